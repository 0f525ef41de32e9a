/* host/syncer_trust.c - whose contributions count: what optim/agree.h says of them, remembered by identity.
 *
 * A learner whose contributions have led another way than the others' for long is not merged until they agree again; it
 * is still compared, so that it can come back. Its reports would still drive the clock, so every now and then it is
 * turned away for a while as well (syncer_guard.c). Both are in the log and in the status.
 *
 * Decisions are made here and kept in the journal with each round, so that a replay needs no opinions of its own; the
 * samples are kept beside them and are fed, in the order of the journal, when a round is durable. What this process
 * thinks after a restart is what it thought before. Cohorts of one and two give no samples, nor do those that are a
 * minority of the living: whoever is fast, or claims to be, must not sit in judgement alone.
 *
 *   section of a snapshot   per fragment f64 usual number of contributions, u64 rounds; u32 count; of each identity u64,
 *                           f64 mean, f64 variance, u32 samples, u32 flags: 1 it does not count
 */
#include "host/syncer_vault.h"

#include "base/check.h"

#include <math.h>

enum {
    TURN_AWAY = 8,         /* rounds without agreement that a learner that does not count is listened to */
    COMPARE_MAX = 1 << 16, /* values of a fragment that are compared, at most */
    COMPARE_MIN = 1 << 12, /* ... at least */
    COMPARE_DOTS = 1 << 22 /* ... and products in all, about */
};

bool pl_note_init(struct pl_round_note *note, const struct pl_alloc *alloc, uint32_t count)
{
    *note = (struct pl_round_note){.count = count};
    note->opinions = pl_alloc_zero(alloc, count, sizeof *note->opinions);
    for (uint32_t i = 0; note->opinions != NULL && i < count; i++)
        note->opinions[i].sample = NAN;
    return note->opinions != NULL;
}

void pl_note_release(struct pl_round_note *note, const struct pl_alloc *alloc)
{
    pl_alloc_free(alloc, note->opinions, note->count * sizeof *note->opinions);
    *note = (struct pl_round_note){.count = 0};
}

/* ---- standings ---- */

static struct pl_standing *find(const struct pl_syncer_host *h, uint64_t identity)
{
    for (uint32_t i = 0; i < h->options.learners_max; i++)
        if (h->standings[i].identity == identity)
            return &h->standings[i];
    return NULL;
}

uint32_t pl_trust_doubted(const struct pl_syncer_host *h)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < h->options.learners_max; i++)
        count += h->standings[i].trust.out ? 1 : 0;
    return count;
}

static void tell_core(struct pl_syncer_host *h, uint64_t identity, bool doubted)
{
    pl_shost_step(h, &(struct pl_sync_event){.kind = PL_SYNC_EV_DOUBT,
                                             .u.doubt = {.identity = identity, .doubted = doubted}});
}

void pl_trust_tell(struct pl_syncer_host *h)
{
    if (!h->untold)
        return;
    h->untold = false;
    for (uint32_t i = 0; i < h->options.learners_max; i++) {
        struct pl_standing *s = &h->standings[i];
        if (s->told == s->trust.out)
            continue;
        s->told = s->trust.out;
        tell_core(h, s->identity, s->told);
    }
}

/* Finds or makes; the one that was heard of longest ago makes room, those that do not count last. */
static struct pl_standing *place(struct pl_syncer_host *h, uint64_t identity)
{
    struct pl_standing *known = find(h, identity), *best = &h->standings[0];
    if (known != NULL)
        return known;
    for (uint32_t i = 0; i < h->options.learners_max; i++) {
        struct pl_standing *s = &h->standings[i];
        if (s->identity == 0 || s->trust.out < best->trust.out ||
            (s->trust.out == best->trust.out && s->noted < best->noted))
            best = s;
        if (s->identity == 0)
            break;
    }
    *best = (struct pl_standing){.identity = identity};
    return best;
}

/* For people. */
static uint32_t errors_off(const struct pl_trust *t)
{
    return (uint32_t)fmin(fmax(0, -pl_trust_z(t)), 1e6);
}

/* When half of the living learners or more are doubted, it is the doubt that is wrong. */
static bool credible(const struct pl_syncer_host *h)
{
    uint32_t out = 0, live = 0;
    struct pl_learner_view view;
    for (uint32_t i = 0; i < h->options.learners_max; i++) {
        if (!pl_syncer_view_learner(h->core, i, &view) || !view.live)
            continue;
        const struct pl_standing *s = find(h, view.identity);
        live++;
        out += s != NULL && s->trust.out ? 1 : 0;
    }
    return 2 * out < live;
}

void pl_trust_judge(struct pl_syncer_host *h, struct pl_round_note *note)
{
    const bool believe = h->settings.merge.guard && credible(h);
    for (uint32_t i = 0; h->settings.merge.guard && i < note->count; i++) {
        struct pl_opinion *o = &note->opinions[i];
        struct pl_standing *s = find(h, o->identity);
        o->out = s != NULL && s->trust.out && believe;
        o->fresh = s == NULL || s->trust.samples < PL_TRUST_SAMPLES_MIN;
        if (o->out)
            s->waited++;
    }
}

bool pl_trust_ok(struct pl_syncer_host *h, uint64_t identity, struct pl_error *err)
{
    struct pl_standing *s = find(h, identity);
    if (!h->settings.merge.guard || s == NULL || !s->trust.out || s->waited < TURN_AWAY || !credible(h))
        return true;
    s->waited = 0;
    s->told = false; /* should the core have forgotten it meanwhile */
    h->untold = true;
    (void)pl_fail(err, PELAGO_INVALID,
                  "its contributions lead another way than the others' (%u standard errors over %u rounds)",
                  errors_off(&s->trust), s->trust.samples);
    return false;
}

static void tell(struct pl_syncer_host *h, const struct pl_standing *s)
{
    if (s->trust.out)
        pl_shost_log(h,
                     "learner.doubted learner=%lu: its contributions lead another way than the others', %u "
                     "standard errors over %u rounds; it is not merged until they agree",
                     s->identity, errors_off(&s->trust), s->trust.samples);
    else
        pl_shost_log(h, "learner.counts learner=%lu: its contributions agree with the others' again",
                     s->identity);
}

void pl_trust_remember(struct pl_syncer_host *h, struct pl_shard_fragment *f,
                       const struct pl_round_note *note)
{
    pl_rule_remember(&f->past, note->effective);
    for (uint32_t i = 0; i < note->count; i++) {
        const struct pl_opinion *o = &note->opinions[i];
        if (isnan(o->sample))
            continue;
        struct pl_standing *s = place(h, o->identity);
        s->noted = ++h->noted;
        if (o->sample > 0)
            s->waited = 0; /* it is on its way back */
        if (!pl_trust_add(&s->trust, o->sample))
            continue;
        s->waited = s->trust.out ? TURN_AWAY : 0; /* at once, the first time */
        h->untold = true;
        tell(h, s);
    }
}

/* ---- comparing ---- */

/* Everything one comparison works with. */
struct comparison {
    const struct pl_round_work *m;
    const uint8_t *const *all;
    struct pl_agree agree;
    double *memory;
    bool *out;
    float *rows; /* [count][PL_CODEC_BLOCK] */
    float *samples;
};

static uint64_t stride_of(const struct comparison *c)
{
    uint64_t dots = (uint64_t)c->agree.count * (c->agree.jury_count + 1);
    uint64_t most = pl_min64(COMPARE_MAX, pl_max64(COMPARE_DOTS / dots, COMPARE_MIN));
    return (c->m->count + most - 1) / most;
}

/* Every stride-th block of the fragment. */
static void add_blocks(struct comparison *c)
{
    const struct pl_layout_fragment *f = &c->m->layout->fragments[c->m->fragment];
    const enum pl_codec codec = c->m->settings->up;
    const uint64_t stride = stride_of(c);
    uint64_t number = 0;
    size_t at = 0;
    for (uint32_t k = 0; k < f->slice_count; k++) {
        const uint64_t count = c->m->layout->slices[f->slice_first + k].count;
        for (uint64_t first = 0; first < count; first += PL_CODEC_BLOCK, number++) {
            const uint64_t len = pl_min64(count - first, PL_CODEC_BLOCK);
            if (number % stride != 0)
                continue;
            for (uint32_t i = 0; i < c->agree.count; i++)
                pl_codec_decode(codec, c->all[i] + at + pl_codec_bytes(codec, first), len,
                                c->rows + (size_t)i * PL_CODEC_BLOCK);
            pl_agree_add(&c->agree, c->rows, PL_CODEC_BLOCK, len);
        }
        at += pl_codec_bytes(codec, count);
    }
}

static void compare(struct comparison *c, struct pl_round_note *note)
{
    for (uint32_t i = 0; i < note->count; i++)
        c->out[i] = note->opinions[i].out;
    pl_agree_begin(&c->agree, note->count, c->out, c->memory);
    add_blocks(c);
    (void)pl_agree_end(&c->agree, c->samples);
    for (uint32_t i = 0; i < note->count; i++)
        note->opinions[i].sample = c->samples[i];
}

void pl_trust_compare(const struct pl_round_work *m, const uint8_t *const *all, uint32_t live,
                      struct pl_round_note *note)
{
    const uint32_t n = note->count;
    const size_t doubles = pl_agree_doubles(n), floats = (size_t)n * PL_CODEC_BLOCK;
    if (m->contributor_count < PL_AGREE_COUNT_MIN || 2 * m->contributor_count <= live)
        return;
    struct comparison c = {.m = m,
                           .all = all,
                           .memory = pl_alloc_zero(m->alloc, doubles, sizeof *c.memory),
                           .out = pl_alloc_zero(m->alloc, n, sizeof *c.out),
                           .rows = pl_alloc_zero(m->alloc, floats, sizeof *c.rows),
                           .samples = pl_alloc_zero(m->alloc, n, sizeof *c.samples)};
    if (c.memory != NULL && c.out != NULL && c.rows != NULL && c.samples != NULL)
        compare(&c, note);
    pl_alloc_free(m->alloc, c.memory, doubles * sizeof *c.memory);
    pl_alloc_free(m->alloc, c.out, n * sizeof *c.out);
    pl_alloc_free(m->alloc, c.rows, floats * sizeof *c.rows);
    pl_alloc_free(m->alloc, c.samples, n * sizeof *c.samples);
}

/* ---- snapshots ---- */

static enum pelago_status put(struct pl_buf *out, uint64_t v, unsigned width)
{
    uint8_t bytes[8];
    pl_put_le(bytes, v, width);
    return pl_buf_append(out, bytes, width);
}

enum pelago_status pl_trust_save(const struct pl_syncer_host *h, struct pl_buf *out)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < h->fragment_count; i++) {
        PL_TRY(put(out, pl_double_bits(h->fragments[i].past.usual), 8));
        PL_TRY(put(out, h->fragments[i].past.rounds, 8));
    }
    for (uint32_t i = 0; i < h->options.learners_max; i++)
        count += h->standings[i].identity != 0 ? 1 : 0;
    PL_TRY(put(out, count, 4));
    for (uint32_t i = 0; i < h->options.learners_max; i++) {
        const struct pl_standing *s = &h->standings[i];
        if (s->identity == 0)
            continue;
        PL_TRY(put(out, s->identity, 8));
        PL_TRY(put(out, pl_double_bits(s->trust.mean), 8));
        PL_TRY(put(out, pl_double_bits(s->trust.var), 8));
        PL_TRY(put(out, s->trust.samples, 4));
        PL_TRY(put(out, s->trust.out ? 1 : 0, 4));
    }
    return PELAGO_OK;
}

static enum pelago_status load_standing(struct pl_syncer_host *h, struct pl_reader *r)
{
    uint64_t identity = pl_read_u64(r);
    struct pl_trust t = {.mean = pl_bits_double(pl_read_u64(r))};
    t.var = pl_bits_double(pl_read_u64(r));
    t.samples = pl_read_u32(r);
    t.out = pl_read_u32(r) == 1;
    if (r->bad || identity == 0 || !(fabs(t.mean) <= 2) || !(t.var >= 0 && t.var <= 4))
        return PELAGO_CORRUPT;
    struct pl_standing *s = place(h, identity);
    s->trust = t;
    s->noted = ++h->noted;
    h->untold = h->untold || t.out;
    return PELAGO_OK;
}

enum pelago_status pl_trust_load(struct pl_syncer_host *h, const uint8_t *bytes, size_t len)
{
    struct pl_reader r = pl_reader_of(bytes, len);
    for (uint32_t i = 0; i < h->fragment_count; i++) {
        struct pl_rule_past *p = &h->fragments[i].past;
        p->usual = pl_bits_double(pl_read_u64(&r));
        p->rounds = pl_read_u64(&r);
        if (r.bad || !pl_rule_effective_fits(p->usual, PL_LEARNERS_MAX))
            return PELAGO_CORRUPT;
    }
    uint32_t count = pl_read_u32(&r);
    if (r.bad || count > h->options.learners_max)
        return PELAGO_CORRUPT;
    for (uint32_t i = 0; i < count; i++)
        PL_TRY(load_standing(h, &r));
    return pl_reader_left(&r) == 0 ? PELAGO_OK : PELAGO_CORRUPT;
}
