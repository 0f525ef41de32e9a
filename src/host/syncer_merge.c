/* host/syncer_merge.c - from contributions to a new version: merge, outer step, update; staged, then published.
 *
 * The worker reads the version that is out and writes a new one beside it. Nothing anybody can see changes until the
 * core says PUBLISH, which it does when the journal is durable. Sums go over contributors in the order the core gives
 * (by identity), slice by slice, so the same contributions give the same bits on every machine; recovery calls the same
 * functions on what the journal kept.
 *
 * An update, in ring, journal and on the wire, is a u32 with the length of what follows, then the packed encoding
 * (codec/pack.h): a chain of updates tells by itself where each of them ends.
 */
#include "host/syncer_host_int.h"

#include "base/check.h"
#include "optim/merge.h"
#include "optim/outer.h"
#include "optim/rule.h"
#include "os/clock.h"

#include <string.h>

/* ---- arithmetic ---- */

/* Memory of one merge. */
struct room {
    double *weights, *reach, *scratch; /* [contributor_count], [contributor_count], [scratch_doubles] */
    size_t scratch_doubles;
    struct pl_encoded_part *parts; /* [contributor_count] */
};

static bool room_new(const struct pl_round_work *m, struct room *r)
{
    const uint32_t n = m->contributor_count;
    const struct pl_merge_rule *rule = &m->settings->merge;
    r->scratch_doubles = pl_merge_scratch_of(pl_rule_mode(rule, PL_MERGE_RDA), n, m->pool);
    r->weights = pl_alloc_zero(m->alloc, n, sizeof *r->weights);
    r->reach = pl_alloc_zero(m->alloc, n, sizeof *r->reach);
    r->scratch = pl_alloc_zero(m->alloc, r->scratch_doubles, sizeof *r->scratch);
    r->parts = pl_alloc_zero(m->alloc, n, sizeof *r->parts);
    return r->weights != NULL && r->reach != NULL && r->scratch != NULL && r->parts != NULL;
}

static void room_free(const struct pl_round_work *m, struct room *r)
{
    const uint32_t n = m->contributor_count;
    pl_alloc_free(m->alloc, r->weights, n * sizeof *r->weights);
    pl_alloc_free(m->alloc, r->reach, n * sizeof *r->reach);
    pl_alloc_free(m->alloc, r->scratch, r->scratch_doubles * sizeof *r->scratch);
    pl_alloc_free(m->alloc, r->parts, n * sizeof *r->parts);
}

static void merge_slices(const struct pl_round_work *m, const struct pl_merge_work *work,
                         struct pl_encoded_part *parts)
{
    const struct pl_layout_fragment *f = &m->layout->fragments[m->fragment];
    const struct pl_merge_rule *rule = &m->settings->merge;
    enum pl_codec codec = m->settings->up;
    size_t at = 0;
    for (uint32_t k = 0; k < f->slice_count; k++) {
        const struct pl_layout_slice *s = &m->layout->slices[f->slice_first + k];
        for (uint32_t i = 0; i < m->contributor_count; i++)
            parts[i] = (struct pl_encoded_part){codec, m->parts[i] + at, m->tokens[i], m->steps[i]};
        pl_merge_encoded(pl_rule_mode(rule, s->merge), parts, m->contributor_count, s->count, work,
                         m->delta + s->first);
        at += pl_codec_bytes(codec, s->count);
    }
}

bool pl_merge_parts(const struct pl_round_work *m, double *effective)
{
    struct room r = {0};
    const struct pl_merge_rule *rule = &m->settings->merge;
    bool good = room_new(m, &r);
    if (good) {
        pl_rule_weigh(rule, m->tokens, m->steps, m->fresh, m->contributor_count, r.scratch, r.weights,
                      r.reach);
        *effective = pl_rule_effective(r.weights, m->contributor_count);
        const struct pl_merge_work work = {.scratch = r.scratch,
                                           .pool = m->pool,
                                           .weights = r.weights,
                                           .reach = rule->guard ? r.reach : NULL,
                                           .length = pl_rule_length(rule, m->past, *effective),
                                           .trim = (double)rule->trim};
        merge_slices(m, &work, r.parts);
    }
    room_free(m, &r);
    return good;
}

void pl_merge_outer(const struct pl_round_work *m)
{
    memcpy(m->result->theta, m->base->theta, m->count * sizeof(float));
    memcpy(m->result->momentum, m->base->momentum, m->count * sizeof(float));
    double share = m->closing ? pl_outer_share(m->version, m->clock_tokens, m->merged_tokens) : 1;
    const struct pl_outer_move move = pl_settings_outer(m->settings, m->version, m->clock_tokens, share);
    pl_outer_step_by(m->pool, &move, m->delta, m->count, m->result->momentum, m->result->theta);
}

void pl_merge_apply_update(const struct pl_round_work *m, const uint8_t *encoded)
{
    memcpy(m->result->broadcast, m->base->broadcast, m->count * sizeof(float));
    pl_layout_decode_add(m->layout, m->fragment, m->settings->down, encoded, m->result->broadcast);
}

/* ---- the job ---- */

struct merge_job {
    struct pl_job job;
    struct pl_syncer_host *h;
    struct pl_shard_fragment *f;
    struct pl_round_work work;
    uint64_t round, began_ns;
    uint8_t **parts; /* [contributor_count], each f->push_bytes; owned */
    uint64_t *tokens, *steps;
    bool *fresh;
    const uint8_t **all; /* [note.count] every contribution, in the order of identities; NULL: not compared */
    uint8_t **aside;     /* [note.count] those that are not merged; owned */
    struct pl_round_note note;
    struct pl_rule_past past; /* before this round */
    uint32_t live;
    struct pl_values *base;
    struct pl_packer *packer;
    uint8_t *encoded; /* the update, before it is packed */
    uint8_t *packed;
    size_t packed_bytes;
    uint64_t digest, theta_digest;
    bool good;
};

/* result->broadcast serves as scratch for what the update has to say. An outer gradient or a momentum that is not finite
 * makes a Theta that is not, and no codec takes that: one check is enough for all of them. */
static bool make_update(struct merge_job *j)
{
    struct pl_values *r = j->work.result;
    const struct pl_values *base = j->base;
    for (uint64_t i = 0; i < j->work.count; i++)
        r->broadcast[i] = r->theta[i] - base->broadcast[i];
    if (!pl_layout_encode_feedback(j->work.layout, j->f->number, j->work.settings->down,
                                   j->work.settings->selective, r->broadcast, j->encoded))
        return false;
    pl_merge_apply_update(&j->work, j->encoded);
    if (!pl_all_finite(r->broadcast, j->work.count))
        return false;
    j->packed_bytes = pl_pack(j->packer, j->encoded, j->f->update_bytes, true, j->packed);
    j->digest = pl_values_digest(r->broadcast, j->work.count);
    j->theta_digest = pl_values_digest(r->theta, j->work.count);
    return true;
}

static void merge_run(struct pl_job *job)
{
    struct merge_job *j = (struct merge_job *)job;
    if (j->all != NULL)
        pl_trust_compare(&j->work, j->all, j->live, &j->note);
    if (j->work.contributor_count == 0 || !pl_merge_parts(&j->work, &j->note.effective))
        return;
    pl_merge_outer(&j->work);
    j->good = make_update(j);
    if (j->good)
        pl_guard_measure(j->work.layout, j->f->number, j->work.result->theta, j->f->own_next);
}

static void free_parts(struct merge_job *j)
{
    for (uint32_t i = 0; j->parts != NULL && i < j->work.contributor_count; i++) {
        if (j->parts[i] != NULL)
            j->h->push_bytes -= j->f->push_bytes;
        pl_alloc_free(&j->h->alloc, j->parts[i], j->f->push_bytes);
    }
    for (uint32_t i = 0; j->aside != NULL && i < j->note.count; i++) {
        if (j->aside[i] != NULL)
            j->h->push_bytes -= j->f->push_bytes;
        pl_alloc_free(&j->h->alloc, j->aside[i], j->f->push_bytes);
    }
    pl_alloc_free(&j->h->alloc, j->parts, j->note.count * sizeof *j->parts);
    pl_alloc_free(&j->h->alloc, j->aside, j->note.count * sizeof *j->aside);
    pl_alloc_free(&j->h->alloc, j->all, j->note.count * sizeof *j->all);
    j->parts = NULL;
}

static float *take_delta(struct pl_syncer_host *h)
{
    float *delta = h->spare_delta;
    h->spare_delta = NULL;
    return delta != NULL ? delta : h->alloc.resize(h->alloc.user, NULL, 0, h->layout.largest * sizeof *delta);
}

static void give_delta(struct pl_syncer_host *h, float *delta)
{
    if (h->spare_delta == NULL)
        h->spare_delta = delta;
    else
        pl_alloc_free(&h->alloc, delta, h->layout.largest * sizeof *delta);
}

static void free_job(struct merge_job *j)
{
    const struct pl_alloc *a = &j->h->alloc;
    uint32_t n = j->note.count;
    free_parts(j);
    pl_alloc_free(a, j->tokens, n * sizeof *j->tokens);
    pl_alloc_free(a, j->steps, n * sizeof *j->steps);
    pl_alloc_free(a, j->fresh, n * sizeof *j->fresh);
    pl_note_release(&j->note, a);
    pl_alloc_free(a, j->encoded, j->f->update_bytes);
    pl_alloc_free(a, j->packed, pl_pack_bytes_max(j->f->update_bytes));
    give_delta(j->h, j->work.delta);
    if (j->work.result != NULL)
        pl_shost_retire_values(j->h, j->work.result);
    pl_values_drop(j->base, a);
    pl_shost_give_packer(j->h, j->packer);
    pl_alloc_free(a, j, sizeof *j);
}

/* What goes into the journal: whichever is smaller gives the same bits again. */
static void keep_for_journal(struct merge_job *j, struct pl_staged *g)
{
    uint32_t n = j->work.contributor_count;
    if (n <= PL_SYNC_CONTRIBUTIONS && n * j->f->push_bytes < j->f->count * sizeof(float)) {
        g->part_count = n;
        for (uint32_t i = 0; i < n; i++) {
            g->parts[i] = j->parts[i];
            j->parts[i] = NULL;
            j->h->push_bytes -= j->f->push_bytes;
        }
    } else {
        g->delta = j->work.delta;
        j->work.delta = NULL;
    }
}

static void stage(struct merge_job *j)
{
    struct pl_staged *g = &j->f->staged;
    pl_assert(g->values == NULL && g->update == NULL);
    g->update = pl_shared_new(&j->h->alloc, 4 + j->packed_bytes);
    if (g->update == NULL) {
        j->good = false;
        return;
    }
    pl_put_le(g->update->bytes, j->packed_bytes, 4);
    memcpy(g->update->bytes + 4, j->packed, j->packed_bytes);
    g->digest = j->digest;
    g->theta_digest = j->theta_digest;
    g->tokens = j->work.merged_tokens;
    g->contributors = j->work.contributor_count;
    g->note = j->note;
    j->note = (struct pl_round_note){.count = j->note.count};
    g->values = j->work.result;
    j->work.result = NULL;
    keep_for_journal(j, g);
}

static void say_merged(struct pl_syncer_host *h, struct pl_shard_fragment *f, uint64_t round, bool good)
{
    struct pl_staged *g = &f->staged;
    struct pl_sync_event ev = {.kind = PL_SYNC_EV_MERGED,
                               .u.merged = {.fragment = f->number,
                                            .round = round,
                                            .digest = good ? g->digest : 0,
                                            .update_bytes = good ? g->update->len : 0,
                                            .good = good}};
    if (!good) {
        pl_staged_release(h, f);
        pl_shost_log(
            h,
            "merge.void fragment=%u: the result is not finite, nobody who counts took part, or there "
            "is no memory",
            f->number);
    }
    pl_shost_step(h, &ev);
}

static void merge_done(struct pl_job *job)
{
    struct merge_job *j = (struct merge_job *)job;
    struct pl_syncer_host *h = j->h;
    struct pl_shard_fragment *f = j->f;
    uint64_t round = j->round;
    h->jobs--;
    h->counters.merges++;
    h->counters.merge_ns += pl_clock_ns() - j->began_ns;
    if (j->good)
        stage(j);
    bool good = j->good;
    free_job(j);
    say_merged(h, f, round, good);
}

static void take_part(struct merge_job *j, uint32_t i, const struct pl_contributor *c, uint8_t *bytes)
{
    j->work.merged_tokens += c->tokens;
    if (j->all != NULL)
        j->all[i] = bytes;
    if (j->note.opinions[i].out) {
        j->aside[i] = bytes;
        return;
    }
    uint32_t at = j->work.contributor_count++;
    j->parts[at] = bytes;
    j->fresh[at] = j->note.opinions[i].fresh;
    j->tokens[at] = c->tokens;
    j->steps[at] = c->steps;
}

static bool take_parts(struct merge_job *j, const struct pl_sync_effect *fx)
{
    struct pl_syncer_host *h = j->h;
    bool good = j->parts != NULL && j->tokens != NULL && j->steps != NULL && j->fresh != NULL &&
                j->aside != NULL && j->note.opinions != NULL;
    for (uint32_t i = 0; i < fx->u.merge.contributor_count; i++) {
        const struct pl_contributor *c = &fx->u.merge.contributors[i];
        struct pl_push_buf *p = pl_shost_push(h, c->learner, j->f->number);
        pl_assert(p->bytes != NULL && p->round == j->round && p->verify == NULL);
        pl_assert(p->size == j->f->push_bytes);
        if (good) {
            take_part(j, i, c, p->bytes);
        } else {
            pl_alloc_free(&h->alloc, p->bytes, p->size);
            h->push_bytes -= p->size;
        }
        *p = (struct pl_push_buf){.verify = NULL};
        struct pl_islander *m = pl_shost_member(h, c->identity);
        if (m == NULL)
            continue;
        struct pl_claim *claim = &m->claims[pl_shost_local(h, j->f->number)];
        pl_guard_merged(h, m, claim, c->steps);
        claim->merging_round = j->round;
        claim->merging_tokens = c->tokens;
    }
    return good;
}

static bool fill_job(struct merge_job *j, const struct pl_sync_effect *fx)
{
    const struct pl_alloc *a = &j->h->alloc;
    uint32_t n = fx->u.merge.contributor_count;
    struct pl_sync_view view;
    pl_syncer_view(j->h->core, &view);
    if (pl_note_init(&j->note, a, n)) {
        for (uint32_t i = 0; i < n; i++)
            j->note.opinions[i].identity = fx->u.merge.contributors[i].identity;
        pl_trust_judge(j->h, &j->note);
    }
    j->note.clock_tokens = view.seen_tokens;
    j->note.closing = fx->u.merge.closing;
    j->live = view.live;
    j->past = j->f->past;
    if (j->h->settings.merge.guard)
        j->all = pl_alloc_zero(a, n, sizeof *j->all);
    j->aside = pl_alloc_zero(a, n, sizeof *j->aside);
    j->parts = pl_alloc_zero(a, n, sizeof *j->parts);
    j->tokens = pl_alloc_zero(a, n, sizeof *j->tokens);
    j->steps = pl_alloc_zero(a, n, sizeof *j->steps);
    j->fresh = pl_alloc_zero(a, n, sizeof *j->fresh);
    j->packer = pl_shost_take_packer(j->h);
    j->encoded = a->resize(a->user, NULL, 0, j->f->update_bytes);
    j->packed = a->resize(a->user, NULL, 0, pl_pack_bytes_max(j->f->update_bytes));
    j->base = pl_values_keep(j->f->values);
    j->work = (struct pl_round_work){.layout = &j->h->layout,
                                     .settings = &j->h->settings,
                                     .alloc = a,
                                     .pool = j->h->pool,
                                     .fragment = j->f->number,
                                     .count = j->f->count,
                                     .parts = (const uint8_t *const *)j->parts,
                                     .tokens = j->tokens,
                                     .steps = j->steps,
                                     .fresh = j->fresh,
                                     .version = j->f->version + 1,
                                     .clock_tokens = j->note.clock_tokens,
                                     .closing = j->note.closing,
                                     .past = &j->past,
                                     .base = j->base,
                                     .delta = take_delta(j->h),
                                     .result = pl_shost_take_values(j->h, j->f->count)};
    return take_parts(j, fx) && j->packer != NULL && j->encoded != NULL && j->packed != NULL &&
           j->work.delta != NULL && j->work.result != NULL;
}

/* Without memory the round is void, told on the next turn of the loop like any other outcome. */
static void nothing_run(struct pl_job *job)
{
    (void)job;
}

/* Whoever went away after its push is merged like the others, and was alive when it was asked. */
static uint32_t gone(const struct pl_syncer_host *h, const struct pl_sync_effect *fx)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < fx->u.merge.contributor_count; i++) {
        struct pl_learner_view v;
        if (!pl_syncer_view_identity(h->core, fx->u.merge.contributors[i].identity, &v) || !v.live)
            count++;
    }
    return count;
}

void pl_shost_merge(struct pl_syncer_host *h, const struct pl_sync_effect *fx)
{
    struct pl_shard_fragment *f = pl_shost_fragment(h, fx->u.merge.fragment);
    pl_assert(f->version == fx->u.merge.base_version && !f->staged.active);
    struct pl_sync_view view;
    pl_syncer_view(h->core, &view);
    f->last_merged = fx->u.merge.contributor_count;
    f->last_live = view.live + gone(h, fx);
    h->counters.contributors += f->last_merged;
    h->counters.contributors_alive += f->last_live;
    struct merge_job *j = pl_alloc_zero(&h->alloc, 1, sizeof *j);
    if (j == NULL) {
        struct pl_error why;
        (void)pl_fail(&why, PELAGO_NOMEM, "the machine has no memory left to merge");
        pl_shost_fail(h, &why);
        return;
    }
    j->h = h;
    j->f = f;
    j->round = fx->u.merge.round;
    j->began_ns = pl_clock_ns();
    j->job.run = fill_job(j, fx) ? merge_run : nothing_run;
    j->job.done = merge_done;
    f->staged.active = true;
    f->staged.round = j->round;
    h->jobs++;
    pl_work_add(&h->merge_queue, &j->job);
}

/* ---- staged, published ---- */

void pl_staged_release(struct pl_syncer_host *h, struct pl_shard_fragment *f)
{
    struct pl_staged *g = &f->staged;
    pl_values_drop(g->values, &h->alloc);
    pl_shared_drop(g->update, &h->alloc);
    for (uint32_t i = 0; i < g->part_count; i++)
        pl_alloc_free(&h->alloc, g->parts[i], f->push_bytes);
    give_delta(h, g->delta);
    pl_note_release(&g->note, &h->alloc);
    *g = (struct pl_staged){.active = false};
}

void pl_shost_count_tokens(struct pl_syncer_host *h, uint64_t tokens, uint64_t values)
{
    __extension__ typedef unsigned __int128 wide;
    wide sum = ((wide)h->value_tokens_hi << 64 | h->value_tokens_lo) + (wide)tokens * values;
    h->value_tokens_hi = (uint64_t)(sum >> 64);
    h->value_tokens_lo = (uint64_t)sum;
}

/* Whose work the version is made of. */
static void count_contributors(struct pl_syncer_host *h, const struct pl_shard_fragment *f)
{
    double share = (double)f->count / (double)h->layout.tensors.params;
    for (uint32_t i = 0; i < h->options.learners_max; i++) {
        struct pl_islander *m = &h->members[i];
        struct pl_claim *claim = m->identity != 0 ? &m->claims[pl_shost_local(h, f->number)] : NULL;
        if (claim == NULL || claim->merging_round != f->staged.round)
            continue;
        m->merged_tokens += (double)claim->merging_tokens * share;
        claim->merging_round = 0;
    }
}

void pl_shost_publish(struct pl_syncer_host *h, const struct pl_sync_effect *fx)
{
    struct pl_shard_fragment *f = pl_shost_fragment(h, fx->u.publish.fragment);
    struct pl_staged *g = &f->staged;
    pl_assert(g->active && g->values != NULL && fx->u.publish.version == f->version + 1);
    pl_shost_retire_values(h, f->values);
    f->values = g->values;
    double *own = f->own;
    f->own = f->own_next;
    f->own_next = own;
    f->version++;
    f->renewed = ++h->renewals;
    pl_shost_set_ring(h, f, f->version, g->update);
    pl_shost_count_tokens(h, g->tokens, f->count);
    count_contributors(h, f);
    pl_trust_remember(h, f, &g->note);
    g->values = NULL;
    g->update = NULL;
    pl_staged_release(h, f);
    for (uint32_t i = 0; i < PL_RING_MAX; i++)
        if (f->ring[i].version != 0 && f->ring[i].version <= fx->u.publish.oldest)
            pl_shost_set_ring(h, f, f->ring[i].version, NULL);
}
