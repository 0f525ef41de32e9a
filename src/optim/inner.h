/* optim/inner.h - a learner's own optimizer: one step on all tensors, by AdamW or Muon, with clipping.
 *
 * Parameters, gradients and the first moment are blocks of floats of one layout, which the table of groups describes;
 * a group is one tensor. The second moment exists for AdamW's tensors only. A step:
 *
 *   1. the norm of the whole gradient; when it is not finite nothing is changed;
 *   2. the gradient is scaled to at most clip, on the way;
 *   3. AdamW's tensors in blocks of rows, all threads at once; then Muon's, one matrix after the other.
 *
 * After a block of rows has its new values, updated() is called in the same task, while they are in the cache: the
 * model packs its weights there. Where the blocks lie depends on the table alone, so results have the same bits for
 * any number of threads.
 */
#ifndef PL_OPTIM_INNER_H
#define PL_OPTIM_INNER_H

#include "base/alloc.h"
#include "base/block.h"
#include "base/status.h"
#include "optim/muon.h"

/* Blocks begin at multiples of PL_INNER_ROWS and, but for a tensor's last, hold multiples of it: as many as fit into
 * PL_INNER_BLOCK_FLOATS, and one at least. */
enum {
    PL_INNER_ROWS = 32,
    PL_INNER_BLOCK_FLOATS = 128 << 10,
    PL_INNER_ALIGN = 16, /* floats, 64 bytes */
};

enum pl_inner_kind {
    PL_INNER_ADAMW = 1,
    PL_INNER_MUON,
};

struct pl_param_group {
    uint64_t offset; /* first float in the block; fastest at a multiple of PL_INNER_ALIGN */
    uint32_t rows, cols;
    enum pl_inner_kind kind;
    bool decay;     /* by weight_decay, or not at all */
    float lr_scale; /* of the learning rate; 1 for most */
};

struct pl_inner_rule {
    float beta1, beta2, eps; /* AdamW's */
    float momentum;          /* Muon's */
    float weight_decay;
    float clip; /* longest gradient; 0: no clipping */
};

/* What goes well with a model of so many parameters, for whoever has no wish of their own. */
struct pl_inner_rule pl_inner_rule_usual(uint64_t params);

/* OK, or INVALID with a sentence that names the setting. */
enum pelago_status pl_inner_rule_check(const struct pl_inner_rule *rule, struct pl_error *err);

struct pl_inner_options {
    struct pl_inner_rule rule;           /* has passed pl_inner_rule_check */
    const struct pl_param_group *groups; /* copied; they do not overlap */
    uint32_t group_count;
    uint64_t floats;          /* of the parameter block */
    struct pl_pool *pool;     /* borrowed */
    struct pl_muon_math math; /* used when there is a Muon group */
};

struct pl_inner_block {
    uint32_t group, row0, rows;
};

struct pl_inner {
    uint64_t step; /* steps done: a checkpoint keeps it */
    float *m;      /* [options.floats] first moment or momentum; gaps between the groups stay 0 */
    /* Private from here. */
    struct pl_inner_options options;
    struct pl_alloc alloc;
    struct pl_param_group *groups;
    uint64_t *v_offset;            /* [group_count] where a group's begin in v, PL_NONE64 for Muon's */
    struct pl_inner_block *blocks; /* AdamW's first, then Muon's, group by group */
    double *sums;                  /* [block_count] of squares */
    uint32_t block_count;
    uint32_t adamw_blocks;
    float *v;              /* second moments of AdamW's groups, one behind the other */
    float *scratch;        /* Muon's */
    struct pl_block owned; /* m, v and scratch lie in it */
};

/* All moments zero, step 0. NOMEM leaves *s empty. The groups are ours: a wrong table is an assertion. */
enum pelago_status pl_inner_init(struct pl_inner *s, const struct pl_alloc *alloc,
                                 const struct pl_inner_options *options);
void pl_inner_release(struct pl_inner *s);

/* A group's moments, (rows, cols): for checkpoints. pl_inner_v is NULL for Muon's groups. */
float *pl_inner_m(struct pl_inner *s, uint32_t group);
float *pl_inner_v(struct pl_inner *s, uint32_t group);

/* Bytes the state takes, scratch included. */
uint64_t pl_inner_bytes(const struct pl_inner *s);

struct pl_inner_update {
    float *params;
    const float *grads;
    float lr;
    void (*updated)(void *user, uint32_t group, uint32_t row0,
                    uint32_t rows); /* may be NULL; runs in pool tasks */
    void *user;
};

struct pl_inner_report {
    double norm;        /* of the gradient before clipping */
    float grad_scale;   /* below 1 when it was clipped */
    uint32_t bad_group; /* the first whose gradient is not finite, else PL_NONE32 */
};

/* INVALID when the gradient holds an infinity or a NaN: then nothing has changed but the report, whose bad_group is
 * set. Not from inside a pool task. */
enum pelago_status pl_inner_step(struct pl_inner *s, const struct pl_inner_update *u,
                                 struct pl_inner_report *report);

#endif
