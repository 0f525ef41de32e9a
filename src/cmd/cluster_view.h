/* cmd/cluster_view.h - what a syncer says about its run (docs/status.md), as a struct, and as lines for a person. */
#ifndef PL_CMD_CLUSTER_VIEW_H
#define PL_CMD_CLUSTER_VIEW_H

#include "base/buf.h"
#include "base/bytes.h"
#include "base/limits.h"

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

/* What one shard's process has counted. */
struct pl_view_counts {
    uint64_t bytes_up, bytes_down, lost, rejoined, refused;
    uint64_t contributors, contributors_alive; /* of all its merges, and those and who else was alive then */
};

struct pl_view_shard {
    uint32_t shard;
    uint64_t epoch; /* 0: it does not say */
    double uptime_s;
    uint64_t merged_tokens; /* of the run, not of the process */
    struct pl_view_counts counts;
};

struct pl_cluster_view {
    char run[20], model[32], algorithm[32], phase[16];
    uint64_t epoch, tokens, total_tokens, merged_tokens;
    double uptime_s, loss, tokens_per_s, goodput, merged_alive; /* shares below 0: not known */
    double time_left_s;                                         /* of --time; below 0: there is no such end */
    double silent_s; /* since its last answer: whoever asks in vain puts it here; 0: it answers */
    uint64_t bytes_up, bytes_down, refused; /* of all shards in the list */
    uint64_t lost, rejoined; /* of the shard that speaks: each shard loses a learner that dies */
    uint64_t merges, journal_bytes;
    uint32_t alive, connected, known;
    uint32_t expected; /* learners; 0: not known */
    uint32_t shards;   /* of the run */
    uint32_t shard_count;
    struct pl_view_shard shard[PL_SHARDS_MAX]; /* the first is the one that speaks; those that answered */
    uint32_t learner_count;                    /* of those shown */
    struct pl_view_learner learners[PL_VIEW_LEARNERS_MAX];
};

/* CORRUPT with a sentence where the text is no status. Members it has not are 0. */
enum pelago_status pl_cluster_view_parse(struct pl_cluster_view *v, struct pl_bytes json,
                                         struct pl_error *err);

/* What the list of shards adds up to, where it was changed: counts, merged tokens, goodput. */
void pl_cluster_view_sum(struct pl_cluster_view *v);

/* By name, numbers in names as numbers; who has none stays behind those, in the order of joining. */
void pl_cluster_view_sort(struct pl_cluster_view *v);

/* Lines to show. */
struct pl_view_page {
    char line[PL_VIEW_LINES_MAX][PL_VIEW_LINE_MAX];
    uint32_t count;
    uint32_t cols; /* that there are; 0: 80 */
};
void pl_page_add(struct pl_view_page *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Over as many lines as it needs; a word that is wider than a line is broken. */
void pl_page_wrap(struct pl_view_page *p, const char *sentence);

/* The whole state; at most rows lines, learners are left out where there is no room. color: with escape sequences. What may
 * have changed since the last answer is not shown where there is none now.
 * rate: tokens a second as measured by whoever watches; 0: the syncer's word; below 0: nobody knows yet. */
void pl_cluster_view_page(const struct pl_cluster_view *v, double rate, bool color, uint32_t rows,
                          struct pl_view_page *out);
/* One line, for logs. */
void pl_cluster_view_line(const struct pl_cluster_view *v, double rate, struct pl_view_page *out);

#endif
