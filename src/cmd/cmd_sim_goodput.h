/* cmd/cmd_sim_goodput.h - inside of `pelago sim --goodput`: cmd_sim_goodput.c reads the flags, the others do what they
 * ask. */
#ifndef PL_CMD_CMD_SIM_GOODPUT_H
#define PL_CMD_CMD_SIM_GOODPUT_H

#include "cmd/whole_file.h"
#include "goodput/seeds.h"

#include <stdio.h>

/* One call: the setting, and what is to be printed of it. */
struct pl_goodput_call {
    struct pl_goodput_options o;
    uint64_t first, last; /* seeds */
    bool json, table1, worlds, beyond, protocol;
    const char *csv, *svg, *trace;
    uint64_t rounds;                 /* of --protocol */
    struct pl_goodput_event *events; /* of the trace; freed by pl_goodput_trace_free */
    uint32_t events_max;
};

/* Each returns the exit code. */
int pl_goodput_call_run(const struct pl_goodput_call *c);
int pl_goodput_call_table1(const struct pl_goodput_call *c);
int pl_goodput_call_worlds(const struct pl_goodput_call *c);
int pl_goodput_call_beyond(const struct pl_goodput_call *c);
int pl_goodput_call_protocol(const struct pl_goodput_call *c);

/* Reads a file of lines `t_s,event,node,cause` into c->events and the options; 0, or the exit code after a sentence. */
int pl_goodput_trace_read(struct pl_goodput_call *c);
void pl_goodput_trace_free(struct pl_goodput_call *c);

/* Several seeds with this setting; 0, or the exit code after a sentence. each may be NULL. */
int pl_goodput_measure(const struct pl_goodput_call *c, const struct pl_goodput_options *o,
                       pl_goodput_each *each, void *user, struct pl_goodput_seeds *out);
int pl_goodput_refused(enum pelago_status status, const struct pl_error *err);

/* A plot: lines over numbers of chips, or bars. */
struct pl_goodput_line {
    const char *name;
    uint32_t count;
    double x[16], y[16], half[16]; /* half: of the interval */
    double mark[16];               /* what is compared with, negative: nothing */
};
void pl_goodput_svg_lines(FILE *f, const char *title, const struct pl_goodput_line *lines, uint32_t count);
void pl_goodput_svg_run(FILE *f, const struct pl_goodput_call *c, const struct pl_goodput_seeds *s);

/* The exit code after a sentence. open: without a path nothing is opened. close: code is that of the work; what failed
 * leaves no file. */
int pl_goodput_open(struct pl_whole_file *w, const char *path);
int pl_goodput_close(struct pl_whole_file *w, int code);

#endif
