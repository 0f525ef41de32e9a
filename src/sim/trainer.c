/* sim/trainer.c - see trainer.h. */
#include "sim/trainer.h"

#include "base/check.h"
#include "base/fmt.h"
#include "base/num.h"
#include "core/manifest.h"
#include "sim/codec.h"

#include <string.h>

enum { TENSORS = 8, CONDITION = 10 };

/* -1 ... 1, in 2^-16 steps: 16 bits of a draw. */
static float unit16(uint64_t bits)
{
    return (float)(int32_t)(bits & 0xffff) / 32768.0f - 1.0f;
}

static void set_tensor(struct pl_plan_tensor *t, const char *name, uint64_t values, uint64_t cols,
                       uint8_t merge)
{
    memset(t, 0, sizeof *t);
    pl_fmt(t->name, sizeof t->name, "%s", name);
    t->cols = cols;
    t->rows = values / cols;
    t->merge = merge;
}

/* An eighth is an embedding, a sixteenth are vectors, the rest matrices; rows stay short, so that fragments come out
 * even. */
static void make_tensors(struct pl_toy *t, uint32_t values, uint32_t fragments)
{
    uint64_t cols = values / fragments >= 40 ? 4 : values / fragments >= 16 ? 2 : 1;
    uint64_t eighth = values / 8 / cols * cols, vector = values / 32;
    uint64_t left = values;
    set_tensor(&t->tensors[0], "embed", eighth, cols, PL_MERGE_MEAN);
    set_tensor(&t->tensors[1], "norm.in", vector, 1, PL_MERGE_MEAN);
    set_tensor(&t->tensors[2], "norm.out", vector, 1, PL_MERGE_MEAN);
    set_tensor(&t->tensors[3], "attention.q", eighth, cols, PL_MERGE_RDA);
    set_tensor(&t->tensors[4], "attention.k", eighth, cols, PL_MERGE_RDA);
    set_tensor(&t->tensors[5], "attention.out", eighth, cols, PL_MERGE_RDA);
    set_tensor(&t->tensors[6], "mlp.up", eighth, cols, PL_MERGE_RDA);
    for (uint32_t i = 0; i < TENSORS - 1; i++)
        left -= t->tensors[i].rows * t->tensors[i].cols;
    set_tensor(&t->tensors[7], "mlp.down", left, 1, PL_MERGE_RDA);
    t->tensor_count = TENSORS;
}

static void lay_out(struct pl_toy *t, const struct pl_slice *planned)
{
    uint32_t at = 0;
    for (uint32_t s = 0; s < t->slice_count; s++) {
        const struct pl_plan_tensor *tensor = &t->tensors[planned[s].tensor];
        struct pl_objective_fragment *f = &t->fragment[planned[s].fragment];
        if (f->slice_count == 0) {
            f->first = at;
            f->slice_first = s;
        }
        uint32_t count = (uint32_t)(planned[s].row_count * tensor->cols);
        t->slices[s] = (struct pl_objective_slice){count, (enum pl_merge_mode)tensor->merge};
        f->slice_count++;
        f->count += count;
        at += count;
        t->o.largest = pl_max32(t->o.largest, f->count);
    }
    pl_assert(at == t->o.values);
}

static bool make_arrays(struct pl_world *w, struct pl_toy *t, const struct pl_plan_place *places)
{
    struct pl_msg_manifest *m = &t->o.manifest;
    uint8_t *fragments = pl_world_zero(w, t->o.fragments, PL_ITEM_FRAGMENT_BYTES);
    uint8_t *tensors = pl_world_zero(w, t->tensor_count, PL_ITEM_TENSOR_BYTES);
    if (fragments == NULL || tensors == NULL)
        return false;
    for (uint32_t i = 0; i < t->o.fragments; i++) {
        uint64_t n = t->fragment[i].count;
        t->fragment[i].shard = places[i].shard;
        t->fragment[i].push_bytes_max = t->fragment[i].update_bytes_max = (uint32_t)pl_sim_encoded_bytes(n);
        t->o.update_bytes_max = pl_max32(t->o.update_bytes_max, t->fragment[i].update_bytes_max);
        pl_item_fragment_put(fragments, i,
                             &(struct pl_item_fragment){.shard = places[i].shard,
                                                        .offset = places[i].offset,
                                                        .full_bytes = 4 * n,
                                                        .push_bytes_max = pl_sim_encoded_bytes(n),
                                                        .update_bytes_max = pl_sim_encoded_bytes(n)});
    }
    for (uint32_t i = 0; i < t->tensor_count; i++) {
        struct pl_item_tensor item = {
            .rows = t->tensors[i].rows, .cols = t->tensors[i].cols, .merge = t->tensors[i].merge};
        memcpy(item.name, t->tensors[i].name, sizeof item.name);
        pl_item_tensor_put(tensors, i, &item);
    }
    m->fragments = (struct pl_array){fragments, t->o.fragments};
    m->tensors = (struct pl_array){tensors, t->tensor_count};
    return true;
}

static void make_manifest(struct pl_world *w, struct pl_toy *t, const struct pl_plan_place *places)
{
    const struct pl_sim_options *o = &w->o;
    t->o.manifest = (struct pl_msg_manifest){
        .run_id = o->seed ^ UINT64_C(0x70656c61676f) ? o->seed ^ UINT64_C(0x70656c61676f) : 1,
        .seed = o->seed,
        .shard_count = o->shards,
        .quorum = o->quorum,
        .overlap_steps = o->overlap_steps,
        .period_steps = o->period_steps,
        .gamma_ppm = o->gamma_ppm,
        .staleness_max = o->staleness_max,
        .apply = (uint8_t)o->apply,
        .mix_ppm = 500000,
        .token_budget = o->budget_tokens,
        .unit_tokens = (uint64_t)o->step_tokens * 16,
        .step_tokens_max = (uint64_t)o->step_tokens * 2,
    };
    if (!make_arrays(w, t, places))
        return;
    struct pl_error err;
    pl_assert(pl_manifest_check(&t->o.manifest, &err) == PELAGO_OK);
    struct pl_msg msg = {.type = PL_MSG_MANIFEST, .u.manifest = t->o.manifest};
    size_t bytes = pl_msg_payload_bytes(&msg);
    uint8_t *scratch = pl_world_zero(w, 1, bytes);
    if (scratch == NULL)
        return;
    t->o.manifest_digest = pl_manifest_digest(&t->o.manifest, scratch, bytes);
    pl_alloc_free(&w->alloc, scratch, bytes);
}

static void make_objective(struct pl_world *w, struct pl_toy *t)
{
    struct pl_prng r;
    pl_prng_seed(&r, w->o.seed, PL_STREAM_MODEL);
    double loss = 0;
    for (uint32_t i = 0; i < t->o.values; i++) {
        uint64_t bits = pl_prng_next(&r);
        float spread = unit16(bits) * 0.5f + 0.5f; /* 0 ... 1 */
        float away = unit16(bits >> 16) * 0.5f;
        t->origin[i] = unit16(bits >> 32);
        t->best[i] = t->origin[i] + ((bits >> 48 & 1) != 0 ? 1.0f + away : -1.0f - away);
        t->curve[i] = 1.0f / (1.0f + (CONDITION - 1) * spread);
        double e = (double)t->origin[i] - (double)t->best[i];
        loss += 0.5 * (double)t->curve[i] * e * e;
    }
    /* Over the whole run the steepest direction shrinks by about e^0.75. Faster, and a period's steps would go so far
     * that learners do each other's work twice: the loss would then tell of the timing, not of the protocol. */
    double steps =
        (double)w->o.duration_ns / ((double)w->o.step_ns * (1.0 + w->o.speed_spread_permille / 2000.0));
    double rate = 0.75 / (steps < 1 ? 1 : steps);
    t->rate = rate > 0.1 ? 0.1f : (float)rate;
    t->noise = 0.1f;
    /* lr / (1 - mu) = 1: what is merged arrives in full in the end, so that merging more rarely loses nothing. */
    t->o.feedback_decay = 1;
    t->o.feedback_local = w->o.apply == 0 && w->o.seed % 4 == 3; /* what is left behind stays in theta */
    t->o.outer = (struct pl_outer_rule){.lr = 0.9f, .mu = 0.1f};
    t->o.merge = (struct pl_merge_rule){.kind = PL_RULE_RDA, .trim = 0.25f, .guard = true};
    t->loss_floor = loss / 100;
}

static double sign_of(uint32_t i)
{
    return (i * 2654435761u >> 31) != 0 ? 1.0 : -1.0;
}

double pl_toy_project(uint32_t first, const float *values, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += sign_of(first + i) * (double)values[i];
    return sum;
}

double pl_toy_fragment_loss(const struct pl_toy *t, uint32_t fragment, const float *theta)
{
    const struct pl_objective_fragment *f = &t->fragment[fragment];
    double loss = t->loss_floor * f->count / t->o.values;
    for (uint32_t i = 0; i < f->count; i++) {
        double e = (double)theta[i] - (double)t->best[f->first + i];
        loss += 0.5 * (double)t->curve[f->first + i] * e * e;
    }
    return loss;
}

/* ---- the table ---- */

/* Learning rate at this many tokens of the run. */
static float rate_at(const struct pl_toy *t, uint64_t clock_tokens)
{
    double done = (double)clock_tokens / (double)t->o.manifest.token_budget;
    double share = done < 0.99 ? 1 : done < 1 ? (1 - done) * 100 : 0;
    return t->rate * (float)share;
}

/* One inner step on all values; worked[fragment] -= the projection of what it did (sim/check.h, balance). */
static double step(void *self, const struct pl_objective_step *s)
{
    const struct pl_toy *t = self;
    const float rate = rate_at(t, s->clock_tokens);
    uint64_t bits = 0;
    for (uint32_t p = 0; p < t->o.fragments; p++) {
        const struct pl_objective_fragment *f = &t->fragment[p];
        double moved = 0;
        for (uint32_t i = f->first; i < f->first + f->count; i++) {
            if ((i & 3) == 0)
                bits = pl_prng_next(s->noise);
            float g = t->curve[i] * (s->theta[i] - t->best[i]) + t->noise * unit16(bits >> 16 * (i & 3));
            float fresh = s->theta[i] - rate * g;
            moved += sign_of(i) * ((double)fresh - (double)s->theta[i]);
            s->theta[i] = fresh;
        }
        s->worked[p] -= moved;
    }
    return 1;
}

static size_t encode(void *self, enum pl_way way, uint32_t fragment, float *values, uint8_t *out)
{
    const struct pl_toy *t = self;
    const uint32_t n = t->fragment[fragment].count;
    const size_t bytes = pl_sim_encoded_bytes(n);
    (void)way;
    if (!pl_sim_encode(values, n, out) || !pl_sim_decode(out, bytes, t->scratch, n))
        return 0;
    for (uint32_t i = 0; i < n; i++)
        values[i] = values[i] - t->scratch[i];
    return bytes;
}

static bool decode(void *self, uint32_t fragment, const uint8_t *bytes, size_t len, float *out)
{
    const struct pl_toy *t = self;
    return pl_sim_decode(bytes, len, out, t->fragment[fragment].count);
}

static size_t update_bytes(void *self, uint32_t fragment, const uint8_t *bytes, size_t len)
{
    const struct pl_toy *t = self;
    size_t each = pl_sim_encoded_bytes(t->fragment[fragment].count);
    (void)bytes;
    return len >= each ? each : 0;
}

static bool add_update(void *self, uint32_t fragment, const uint8_t *bytes, size_t len, float *values)
{
    const struct pl_toy *t = self;
    const uint32_t n = t->fragment[fragment].count;
    if (!pl_sim_decode(bytes, len, t->scratch, n))
        return false;
    for (uint32_t i = 0; i < n; i++)
        values[i] = values[i] + t->scratch[i];
    return true;
}

static double loss(void *self, const float *const *theta)
{
    const struct pl_toy *t = self;
    double sum = 0;
    for (uint32_t i = 0; i < t->o.fragments; i++)
        sum += pl_toy_fragment_loss(t, i, theta[i]);
    return sum;
}

static const struct pl_objective_ops toy_ops = {.encode = encode,
                                                .decode = decode,
                                                .update_bytes = update_bytes,
                                                .add_update = add_update,
                                                .step = step,
                                                .loss = loss};

/* ---- making one ---- */

static bool make_room(struct pl_world *w, struct pl_toy *t, uint32_t slice_max)
{
    t->tensors = pl_world_zero(w, TENSORS, sizeof *t->tensors);
    t->slices = pl_world_zero(w, slice_max, sizeof *t->slices);
    t->fragment = pl_world_zero(w, t->o.fragments, sizeof *t->fragment);
    t->origin = pl_world_zero(w, t->o.values, sizeof(float));
    t->best = pl_world_zero(w, t->o.values, sizeof(float));
    t->curve = pl_world_zero(w, t->o.values, sizeof(float));
    t->scratch = pl_world_zero(w, t->o.values, sizeof(float));
    t->o.ops = &toy_ops;
    t->o.self = t;
    t->o.fragment = t->fragment;
    t->o.slices = t->slices;
    t->o.origin = t->origin;
    return w->status == PELAGO_OK;
}

struct pl_toy *pl_toy_new(struct pl_world *w)
{
    struct pl_toy *t = pl_world_zero(w, 1, sizeof *t);
    if (t == NULL)
        return NULL;
    t->o.values = w->o.dimensions;
    t->o.fragments = w->o.fragments;
    uint32_t fragments = t->o.fragments, slice_max = TENSORS + 3 * fragments;
    struct pl_plan_place *places = pl_world_zero(w, fragments, sizeof *places);
    struct pl_slice *planned = pl_world_zero(w, slice_max, sizeof *planned);
    if (!make_room(w, t, slice_max))
        return NULL;
    make_tensors(t, t->o.values, fragments);
    struct pl_error err;
    pl_assert(pl_plan_fragments(t->tensors, t->tensor_count, fragments, planned, slice_max, &t->slice_count,
                                &err) == PELAGO_OK);
    pl_assert(pl_plan_shards(fragments, w->o.shards, w->o.period_steps, places, &err) == PELAGO_OK);
    lay_out(t, planned);
    make_manifest(w, t, places);
    pl_alloc_free(&w->alloc, places, fragments * sizeof *places);
    pl_alloc_free(&w->alloc, planned, slice_max * sizeof *planned);
    make_objective(w, t);
    return w->status == PELAGO_OK ? t : NULL;
}

void pl_curve_add(struct pl_curve *c, double tokens, double loss)
{
    if (c->count == PL_CURVE_POINTS_MAX) {
        for (uint32_t i = 0; i < PL_CURVE_POINTS_MAX / 2; i++)
            c->point[i] = c->point[(size_t)2 * i];
        c->count /= 2;
        c->every *= 2;
    }
    if (c->every == 0)
        c->every = 1;
    if (++c->skipped < c->every && c->count > 0)
        return;
    c->skipped = 0;
    c->point[c->count].tokens = tokens;
    c->point[c->count].loss = loss;
    c->count++;
}

double pl_curve_at(const struct pl_curve *c, double tokens)
{
    if (c->count == 0)
        return 0;
    uint32_t i = 0;
    while (i + 1 < c->count && c->point[i + 1].tokens < tokens)
        i++;
    if (i + 1 == c->count || c->point[i].tokens >= tokens)
        return c->point[i].loss;
    double span = c->point[i + 1].tokens - c->point[i].tokens;
    double part = span > 0 ? (tokens - c->point[i].tokens) / span : 0;
    return c->point[i].loss + part * (c->point[i + 1].loss - c->point[i].loss);
}
