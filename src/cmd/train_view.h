/* cmd/train_view.h - what a person sees of a run: one line that lives on a terminal, a line every few seconds elsewhere,
 * and a log of JSON lines for programs. */
#ifndef PL_CMD_TRAIN_VIEW_H
#define PL_CMD_TRAIN_VIEW_H

#include "train/trainer.h"

#include <stdio.h>

struct pl_train_view {
    bool live;  /* a terminal */
    bool quiet; /* no progress */
    bool drawn; /* a live line stands where the cursor is */
    FILE *log;  /* may be NULL */
    uint64_t total_tokens, total_steps;
    double flops_token, peak_flops; /* peak 0: unknown */
    uint64_t begin_ns, shown_ns;
    uint64_t busy_ns; /* in steps of this process */
    uint64_t tokens;  /* of this process */
    double rate;      /* tokens a second, lately */
};

/* NULL path: no log. False: it could not be opened, which has been said. */
bool pl_train_view_open_log(struct pl_train_view *v, const char *path);
/* After a step that took so long. */
void pl_train_view_step(struct pl_train_view *v, const struct pl_progress *p, const struct pl_step_report *r,
                        uint64_t took_ns);
/* Without the share of the peak and the memory where all of it is not narrower than cols. */
void pl_train_view_line(const struct pl_train_view *v, const struct pl_progress *p, uint32_t cols, char *out,
                        size_t cap);
/* A line that stays; the live line moves on below it. Nothing when quiet. */
void pl_train_view_say(struct pl_train_view *v, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Ends the live line. */
void pl_train_view_rest(struct pl_train_view *v);
/* For the log. */
void pl_train_view_log_valid(struct pl_train_view *v, const struct pl_progress *p, double loss,
                             double bits_per_byte);
/* False: some of the log is lost. */
bool pl_train_view_close_log(struct pl_train_view *v);

/* "10.0M", "512k", "37" */
struct pl_view_text {
    char at[32];
};
struct pl_view_text pl_view_count(double count);
struct pl_view_text pl_view_bytes(uint64_t bytes); /* "1.2 MB" */
struct pl_view_text pl_view_time(double seconds);  /* "1h 02m", "3m 07s", "12s" */

#endif
