/* cmd/cluster_view.h - what a syncer says about its run (docs/status.md), as a struct, and as lines for a person. */
#ifndef PL_CMD_CLUSTER_VIEW_H
#define PL_CMD_CLUSTER_VIEW_H

#include "base/buf.h"
#include "base/bytes.h"

#include <stdbool.h>

enum { PL_VIEW_LEARNERS_MAX = 256, PL_VIEW_LINE_MAX = 256, PL_VIEW_LINES_MAX = 128 };

struct pl_view_learner {
    uint64_t identity;
    bool alive, connected;
    double loss, tokens_per_s, merged_share, silent_s;
    uint64_t steps, tokens, bytes_up, bytes_down;
    char name[24];     /* in a `pelago run`; "": the identity's number is shown */
    char note[32];     /* by `run`, which has the processes, instead of the state; "": nothing to say */
    uint32_t rejoined; /* joins after the first, since the syncer's start */
};

struct pl_cluster_view {
    char run[20], model[32], algorithm[32], phase[16];
    uint64_t epoch, tokens, total_tokens, merged_tokens;
    double uptime_s, loss, tokens_per_s, goodput, merged_alive; /* shares below 0: not known */
    double time_left_s;                                         /* of --time; below 0: there is no such end */
    uint64_t bytes_up, bytes_down;
    uint64_t rounds, merges, lost, joins, refused, journal_bytes;
    uint32_t alive, connected, known;
    uint32_t learner_count; /* of those shown */
    struct pl_view_learner learners[PL_VIEW_LEARNERS_MAX];
};

/* CORRUPT with a sentence where the text is no status. Members it has not are 0. */
enum pelago_status pl_cluster_view_parse(struct pl_cluster_view *v, struct pl_bytes json,
                                         struct pl_error *err);

/* By name, numbers in names as numbers; who has none stays behind those, in the order of joining. */
void pl_cluster_view_sort(struct pl_cluster_view *v);

/* Lines to show. */
struct pl_view_page {
    char line[PL_VIEW_LINES_MAX][PL_VIEW_LINE_MAX];
    uint32_t count;
};
void pl_page_add(struct pl_view_page *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The whole state; at most rows lines, learners are left out where there is no room. color: with escape sequences.
 * rate: tokens a second as measured by whoever watches; 0: the syncer's word. */
void pl_cluster_view_page(const struct pl_cluster_view *v, double rate, bool color, uint32_t rows,
                          struct pl_view_page *out);
/* One line, for logs. */
void pl_cluster_view_line(const struct pl_cluster_view *v, double rate, struct pl_view_page *out);

#endif
