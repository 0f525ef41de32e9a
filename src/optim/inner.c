/* optim/inner.c - see inner.h. */
#include "optim/inner.h"

#include "base/check.h"
#include "base/num.h"
#include "optim/adamw.h"
#include "optim/norm.h"

#include <math.h>
#include <string.h>

/* ---- settings ---- */

struct pl_inner_rule pl_inner_rule_usual(uint64_t params)
{
    return (struct pl_inner_rule){.beta1 = 0.9f,
                                  .beta2 = params <= 20000000 ? 0.99f : 0.95f,
                                  .eps = 1e-8f,
                                  .momentum = 0.95f,
                                  .weight_decay = 0.1f,
                                  .clip = 1};
}

static bool is_share(float x)
{
    return x >= 0 && x < 1;
}

enum pelago_status pl_inner_rule_check(const struct pl_inner_rule *rule, struct pl_error *err)
{
    if (!is_share(rule->beta1) || !is_share(rule->beta2))
        return pl_fail(err, PELAGO_INVALID, "AdamW's beta1 and beta2 must be at least 0 and below 1.");
    if (!(rule->eps >= 1e-16f && rule->eps <= 1))
        return pl_fail(err, PELAGO_INVALID, "AdamW's eps must be from 1e-16 to 1.");
    if (!is_share(rule->momentum))
        return pl_fail(err, PELAGO_INVALID, "Muon's momentum must be at least 0 and below 1.");
    if (!(rule->weight_decay >= 0 && rule->weight_decay <= 100))
        return pl_fail(err, PELAGO_INVALID, "the weight decay must be from 0 to 100.");
    if (!(rule->clip >= 0 && isfinite(rule->clip)))
        return pl_fail(err, PELAGO_INVALID,
                       "the gradient clip must be 0 (no clipping) or a positive number.");
    return PELAGO_OK;
}

static void check_groups(const struct pl_inner_options *o)
{
    pl_assert(pl_inner_rule_check(&o->rule, NULL) == PELAGO_OK);
    pl_assert(o->floats < SIZE_MAX / 64); /* a block that large exists, so no product below overflows */
    pl_assert(o->group_count > 0 && o->group_count <= PL_TENSORS_MAX && o->pool != NULL);
    for (uint32_t i = 0; i < o->group_count; i++) {
        const struct pl_param_group *g = &o->groups[i];
        pl_assert(g->kind == PL_INNER_ADAMW || g->kind == PL_INNER_MUON);
        pl_assert(g->kind != PL_INNER_MUON || o->math.matmul != NULL);
        pl_assert(g->rows > 0 && g->cols > 0);
        pl_assert(g->offset <= o->floats && (uint64_t)g->rows * g->cols <= o->floats - g->offset);
        pl_assert(g->lr_scale >= 0 && isfinite(g->lr_scale));
    }
}

/* ---- layout ---- */

static uint64_t group_floats(const struct pl_param_group *g)
{
    return (uint64_t)g->rows * g->cols;
}

/* Rows of a block: as many times 32 as fit into PL_INNER_BLOCK_FLOATS, and 32 at least. */
static uint32_t block_rows(const struct pl_param_group *g)
{
    uint32_t sets = PL_INNER_BLOCK_FLOATS / PL_INNER_ROWS / g->cols;
    return pl_max32(sets, 1) * PL_INNER_ROWS;
}

static uint32_t count_blocks(const struct pl_inner_options *o)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < o->group_count; i++)
        count += (o->groups[i].rows - 1) / block_rows(&o->groups[i]) + 1;
    pl_assert(count <= UINT32_MAX);
    return (uint32_t)count;
}

/* The blocks of all groups of one kind, from index at on; returns the index behind them. */
static uint32_t cut_blocks(struct pl_inner *s, enum pl_inner_kind kind, uint32_t at)
{
    for (uint32_t i = 0; i < s->options.group_count; i++) {
        const struct pl_param_group *g = &s->groups[i];
        uint32_t step = block_rows(g);
        if (g->kind != kind)
            continue;
        for (uint32_t left = g->rows; left > 0; at++) {
            uint32_t rows = pl_min32(left, step);
            s->blocks[at] = (struct pl_inner_block){i, g->rows - left, rows};
            left -= rows;
        }
    }
    return at;
}

/* ---- memory ---- */

/* Floats of m, v and scratch, each rounded up so that the next begins aligned. */
struct sizes {
    uint64_t m, v, scratch;
};

static uint64_t aligned(uint64_t floats)
{
    return (floats + PL_INNER_ALIGN - 1) / PL_INNER_ALIGN * PL_INNER_ALIGN;
}

/* Also says where each group's second moments begin. */
static struct sizes lay_out(struct pl_inner *s)
{
    struct sizes n = {.m = aligned(s->options.floats)};
    for (uint32_t i = 0; i < s->options.group_count; i++) {
        const struct pl_param_group *g = &s->groups[i];
        s->v_offset[i] = PL_NONE64;
        if (g->kind == PL_INNER_ADAMW) {
            s->v_offset[i] = n.v;
            n.v += aligned(group_floats(g));
        } else {
            n.scratch = pl_max64(n.scratch, aligned(pl_muon_scratch_floats(g->rows, g->cols)));
        }
    }
    return n;
}

static bool alloc_floats(struct pl_inner *s)
{
    const struct sizes n = lay_out(s);
    if (!pl_block_new(&s->owned, &s->alloc, (size_t)(n.m + n.v + n.scratch) * sizeof(float)))
        return false;
    s->m = s->owned.at;
    s->v = s->m + n.m;
    s->scratch = s->v + n.v;
    return true;
}

static bool alloc_tables(struct pl_inner *s)
{
    const uint32_t groups = s->options.group_count;
    s->groups = pl_alloc_zero(&s->alloc, groups, sizeof s->groups[0]);
    s->v_offset = pl_alloc_zero(&s->alloc, groups, sizeof s->v_offset[0]);
    s->blocks = pl_alloc_zero(&s->alloc, s->block_count, sizeof s->blocks[0]);
    s->sums = pl_alloc_zero(&s->alloc, s->block_count, sizeof s->sums[0]);
    return s->groups != NULL && s->v_offset != NULL && s->blocks != NULL && s->sums != NULL;
}

enum pelago_status pl_inner_init(struct pl_inner *s, const struct pl_alloc *alloc,
                                 const struct pl_inner_options *options)
{
    check_groups(options);
    memset(s, 0, sizeof *s);
    s->options = *options;
    s->alloc = *alloc;
    s->block_count = count_blocks(options);
    if (!alloc_tables(s)) {
        pl_inner_release(s);
        return PELAGO_NOMEM;
    }
    memcpy(s->groups, options->groups, options->group_count * sizeof s->groups[0]);
    s->options.groups = s->groups;
    if (!alloc_floats(s)) {
        pl_inner_release(s);
        return PELAGO_NOMEM;
    }
    s->adamw_blocks = cut_blocks(s, PL_INNER_ADAMW, 0);
    uint32_t end = cut_blocks(s, PL_INNER_MUON, s->adamw_blocks);
    pl_assert(end == s->block_count);
    return PELAGO_OK;
}

void pl_inner_release(struct pl_inner *s)
{
    const uint32_t groups = s->options.group_count;
    pl_block_free(&s->owned, &s->alloc);
    pl_alloc_free(&s->alloc, s->sums, s->block_count * sizeof s->sums[0]);
    pl_alloc_free(&s->alloc, s->blocks, s->block_count * sizeof s->blocks[0]);
    pl_alloc_free(&s->alloc, s->v_offset, groups * sizeof s->v_offset[0]);
    pl_alloc_free(&s->alloc, s->groups, groups * sizeof s->groups[0]);
    memset(s, 0, sizeof *s);
}

float *pl_inner_m(struct pl_inner *s, uint32_t group)
{
    pl_assert(group < s->options.group_count);
    return s->m + s->groups[group].offset;
}

float *pl_inner_v(struct pl_inner *s, uint32_t group)
{
    pl_assert(group < s->options.group_count);
    return s->v_offset[group] != PL_NONE64 ? s->v + s->v_offset[group] : NULL;
}

uint64_t pl_inner_bytes(const struct pl_inner *s)
{
    return s->owned.owned_bytes + s->block_count * (sizeof s->blocks[0] + sizeof s->sums[0]) +
           s->options.group_count * (sizeof s->groups[0] + sizeof s->v_offset[0]);
}

/* ---- a step ---- */

/* What the tasks of one loop share. */
struct work {
    struct pl_inner *inner;
    const struct pl_inner_update *update;
    uint32_t first; /* task t works on block first + t */
    float grad_scale;
    struct pl_muon_step muon;
    float direction_scale;
    const float *direction;
};

/* One block, by task number. */
struct piece {
    const struct pl_inner_block *block;
    const struct pl_param_group *group;
    uint64_t at; /* first float, from the start of the group */
    size_t n;
};

static struct piece piece_of(const struct work *w, uint32_t task)
{
    const struct pl_inner_block *b = &w->inner->blocks[w->first + task];
    const struct pl_param_group *g = &w->inner->groups[b->group];
    return (struct piece){b, g, (uint64_t)b->row0 * g->cols, (size_t)b->rows * g->cols};
}

static void say_updated(const struct work *w, const struct pl_inner_block *b)
{
    if (w->update->updated != NULL)
        w->update->updated(w->update->user, b->group, b->row0, b->rows);
}

static float decay_of(const struct work *w, const struct pl_param_group *g)
{
    return g->decay ? w->inner->options.rule.weight_decay : 0.0f;
}

static void sum_task(void *user, uint32_t task, uint32_t thread)
{
    (void)thread;
    const struct work *w = user;
    struct piece k = piece_of(w, task);
    w->inner->sums[w->first + task] = pl_grad_sumsq(w->update->grads + k.group->offset + k.at, k.n);
}

static void adamw_task(void *user, uint32_t task, uint32_t thread)
{
    (void)thread;
    const struct work *w = user;
    const struct pl_inner_rule *rule = &w->inner->options.rule;
    const struct pl_adamw_rule adamw = {rule->beta1, rule->beta2, rule->eps};
    struct piece k = piece_of(w, task);
    struct pl_adamw_step step = pl_adamw_step(&adamw, w->inner->step + 1, w->update->lr * k.group->lr_scale,
                                              decay_of(w, k.group), w->grad_scale);
    uint64_t at = k.group->offset + k.at;
    float *v = w->inner->v + w->inner->v_offset[k.block->group] + k.at;
    pl_adamw_update(&step, w->update->params + at, w->inner->m + at, v, w->update->grads + at, k.n);
    say_updated(w, k.block);
}

static void momentum_task(void *user, uint32_t task, uint32_t thread)
{
    (void)thread;
    const struct work *w = user;
    struct piece k = piece_of(w, task);
    uint64_t at = k.group->offset + k.at;
    w->inner->sums[w->first + task] =
        pl_muon_momentum(&w->muon, w->inner->m + at, w->update->grads + at, k.n);
}

static void direction_task(void *user, uint32_t task, uint32_t thread)
{
    (void)thread;
    const struct work *w = user;
    struct piece k = piece_of(w, task);
    uint64_t at = k.group->offset;
    pl_muon_direction(&w->muon, w->inner->m + at, w->update->grads + at, k.block->row0, k.block->rows,
                      w->direction_scale, w->inner->scratch);
}

static void apply_task(void *user, uint32_t task, uint32_t thread)
{
    (void)thread;
    const struct work *w = user;
    struct piece k = piece_of(w, task);
    pl_muon_apply(&w->muon, w->update->params + k.group->offset, w->direction, k.block->row0, k.block->rows);
    say_updated(w, k.block);
}

static double sum_of(const struct pl_inner *s, uint32_t first, uint32_t count)
{
    double total = 0;
    for (uint32_t i = first; i < first + count; i++)
        total += s->sums[i];
    return total;
}

/* The matrix whose blocks begin at w->first; returns how many they are. */
static uint32_t step_muon(struct work *w)
{
    struct pl_inner *s = w->inner;
    const struct pl_inner_options *o = &s->options;
    const uint32_t index = s->blocks[w->first].group;
    const struct pl_param_group *g = &s->groups[index];
    const uint32_t count = (g->rows - 1) / block_rows(g) + 1;
    w->muon = pl_muon_step(g->rows, g->cols, o->rule.momentum, w->update->lr * g->lr_scale, decay_of(w, g),
                           w->grad_scale);
    pl_pool_run(o->pool, count, momentum_task, w);
    w->direction_scale = pl_muon_scale(sqrt(sum_of(s, w->first, count)));
    pl_pool_run(o->pool, count, direction_task, w);
    w->direction = pl_muon_orthogonalize(&w->muon, &o->math, o->pool, s->scratch);
    pl_pool_run(o->pool, count, apply_task, w);
    return count;
}

/* The first group, in the order of the table, with a gradient that is not finite. */
static uint32_t bad_group(const struct pl_inner *s)
{
    uint32_t bad = PL_NONE32;
    for (uint32_t i = 0; i < s->block_count; i++)
        if (!isfinite(s->sums[i]))
            bad = pl_min32(bad, s->blocks[i].group);
    return bad;
}

enum pelago_status pl_inner_step(struct pl_inner *s, const struct pl_inner_update *u,
                                 struct pl_inner_report *report)
{
    pl_assert(u->lr >= 0 && isfinite(u->lr) && s->step < PL_COUNT_MAX);
    struct work w = {.inner = s, .update = u};
    pl_pool_run(s->options.pool, s->block_count, sum_task, &w);
    double sum = sum_of(s, 0, s->block_count);
    *report = (struct pl_inner_report){.norm = sqrt(sum), .grad_scale = 1, .bad_group = bad_group(s)};
    if (report->bad_group != PL_NONE32)
        return PELAGO_INVALID;
    w.grad_scale = report->grad_scale = pl_grad_clip_scale(report->norm, s->options.rule.clip);
    if (s->adamw_blocks > 0)
        pl_pool_run(s->options.pool, s->adamw_blocks, adamw_task, &w);
    for (w.first = s->adamw_blocks; w.first < s->block_count;)
        w.first += step_muon(&w);
    s->step++;
    return PELAGO_OK;
}
