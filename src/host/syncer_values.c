/* host/syncer_values.c - the tensors of a shard: values of its fragments, contributions as they come, and their check.
 *
 * A contribution is gathered chunk by chunk as the core allows it, at a size the core has compared with the manifest.
 * When it is complete a worker compares its digest, unpacks it, and looks at every number; what stays is the unpacked
 * encoding, which the merge reads. The check of a contribution that the core gives up meanwhile runs to its end and is
 * thrown away.
 */
#include "host/syncer_host_int.h"

#include "base/check.h"
#include "base/hash.h"
#include "os/clock.h"
#include "wire/chunk.h"

#include <string.h>

/* ---- values and shared bytes ---- */

static size_t values_bytes(uint64_t count)
{
    return sizeof(struct pl_values) + 3 * (size_t)count * sizeof(float);
}

static void prepare(struct pl_values *v, uint64_t count)
{
    atomic_init(&v->refs, 1);
    v->count = count;
    v->theta = (float *)(void *)(v + 1);
    v->momentum = v->theta + count;
    v->broadcast = v->momentum + count;
}

struct pl_values *pl_values_new(const struct pl_alloc *alloc, uint64_t count)
{
    struct pl_values *v = alloc->resize(alloc->user, NULL, 0, values_bytes(count));
    if (v != NULL)
        prepare(v, count);
    return v;
}

struct pl_values *pl_values_keep(struct pl_values *v)
{
    atomic_fetch_add(&v->refs, 1);
    return v;
}

void pl_values_drop(struct pl_values *v, const struct pl_alloc *alloc)
{
    if (v != NULL && atomic_fetch_sub(&v->refs, 1) == 1)
        pl_alloc_free(alloc, v, values_bytes(v->count));
}

/* The spare one with just the room that is asked for, or it would grow to that of the largest fragment in every place. */
struct pl_values *pl_shost_take_values(struct pl_syncer_host *h, uint64_t count)
{
    struct pl_values *v = h->spare;
    if (v == NULL)
        return pl_values_new(&h->alloc, count);
    if (v->count != count) {
        v = h->alloc.resize(h->alloc.user, v, values_bytes(v->count), values_bytes(count));
        if (v == NULL)
            return NULL;
    }
    h->spare = NULL;
    prepare(v, count);
    return v;
}

/* Nobody else can get hold of a version that is not out any more: one reference stays one. */
void pl_shost_retire_values(struct pl_syncer_host *h, struct pl_values *v)
{
    if (h->spare == NULL && atomic_load(&v->refs) == 1)
        h->spare = v;
    else
        pl_values_drop(v, &h->alloc);
}

struct pl_shared *pl_shared_new(const struct pl_alloc *alloc, uint64_t len)
{
    pl_assert(len <= UINT32_MAX);
    struct pl_shared *s = alloc->resize(alloc->user, NULL, 0, sizeof *s + len);
    if (s == NULL)
        return NULL;
    s->refs = 1;
    s->len = (uint32_t)len;
    return s;
}

struct pl_shared *pl_shared_keep(struct pl_shared *s)
{
    s->refs++;
    return s;
}

void pl_shared_drop(struct pl_shared *s, const struct pl_alloc *alloc)
{
    if (s != NULL && --s->refs == 0)
        pl_alloc_free(alloc, s, sizeof *s + s->len);
}

/* ---- fragments ---- */

static void describe_fragments(struct pl_syncer_host *h)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < h->layout.fragment_count; i++) {
        if (h->layout.fragments[i].shard != h->options.shard)
            continue;
        struct pl_shard_fragment *f = &h->fragments[at++];
        f->number = i;
        f->count = h->layout.fragments[i].values;
        f->push_bytes = pl_layout_encoded_bytes(&h->layout, i, h->settings.up);
        f->update_bytes = pl_layout_encoded_bytes(&h->layout, i, h->settings.down);
    }
    pl_assert(at == h->fragment_count);
}

/* Not a value in them yet. */
static bool make_values(struct pl_syncer_host *h)
{
    for (uint32_t i = 0; i < h->fragment_count; i++) {
        struct pl_shard_fragment *f = &h->fragments[i];
        f->values = pl_values_new(&h->alloc, f->count);
        uint32_t slices = h->layout.fragments[f->number].slice_count;
        f->norms = pl_alloc_zero(&h->alloc, slices, sizeof *f->norms);
        f->own = pl_alloc_zero(&h->alloc, slices, sizeof *f->own);
        f->own_next = pl_alloc_zero(&h->alloc, slices, sizeof *f->own_next);
        if (f->values == NULL || f->norms == NULL || f->own == NULL || f->own_next == NULL)
            return false;
    }
    return true;
}

enum pelago_status pl_shost_values_init(struct pl_syncer_host *h, struct pl_error *err)
{
    h->fragment_count = pl_manifest_shard_fragments(&h->manifest.msg, h->options.shard);
    h->fragments = pl_alloc_zero(&h->alloc, h->fragment_count, sizeof *h->fragments);
    h->pushes =
        pl_alloc_zero(&h->alloc, (size_t)h->options.learners_max * h->fragment_count, sizeof *h->pushes);
    if (h->fragments == NULL || h->pushes == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for %u learners and %u fragments",
                       h->options.learners_max, h->fragment_count);
    describe_fragments(h);
    if (!make_values(h))
        return pl_fail(
            err, PELAGO_NOMEM,
            "there is no memory for the model: a syncer needs 12 bytes a parameter, and 4 more to start");
    return PELAGO_OK;
}

static void free_push(struct pl_syncer_host *h, struct pl_push_buf *p)
{
    if (p->bytes != NULL)
        h->push_bytes -= p->size;
    pl_alloc_free(&h->alloc, p->bytes, p->size);
    *p = (struct pl_push_buf){.verify = NULL};
}

void pl_shost_values_free(struct pl_syncer_host *h)
{
    for (uint32_t i = 0; h->pushes != NULL && i < h->options.learners_max * h->fragment_count; i++)
        free_push(h, &h->pushes[i]);
    for (uint32_t i = 0; h->fragments != NULL && i < h->fragment_count; i++) {
        struct pl_shard_fragment *f = &h->fragments[i];
        pl_staged_release(h, f);
        pl_values_drop(f->values, &h->alloc);
        for (uint32_t k = 0; k < PL_RING_MAX; k++)
            pl_shared_drop(f->ring[k].update, &h->alloc);
        uint32_t slices = h->layout.fragments[f->number].slice_count;
        pl_alloc_free(&h->alloc, f->norms, slices * sizeof *f->norms);
        pl_alloc_free(&h->alloc, f->own, slices * sizeof *f->own);
        pl_alloc_free(&h->alloc, f->own_next, slices * sizeof *f->own_next);
    }
    pl_alloc_free(&h->alloc, h->fragments, h->fragment_count * sizeof *h->fragments);
    pl_alloc_free(&h->alloc, h->pushes,
                  (size_t)h->options.learners_max * h->fragment_count * sizeof *h->pushes);
    pl_values_drop(h->spare, &h->alloc);
    pl_alloc_free(&h->alloc, h->spare_delta, h->layout.largest * sizeof *h->spare_delta);
    h->spare = NULL;
    h->spare_delta = NULL;
    for (uint32_t i = 0; i < h->packer_count; i++)
        pl_packer_free(h->packers[i]);
    h->fragments = NULL;
    h->pushes = NULL;
    h->packer_count = 0;
}

void pl_shost_set_ring(struct pl_syncer_host *h, struct pl_shard_fragment *f, uint64_t version,
                       struct pl_shared *update)
{
    struct pl_ring_slot *slot = &f->ring[version % PL_RING_MAX];
    pl_shared_drop(slot->update, &h->alloc);
    *slot = (struct pl_ring_slot){update != NULL ? version : 0, update};
}

struct pl_packer *pl_shost_take_packer(struct pl_syncer_host *h)
{
    return h->packer_count > 0 ? h->packers[--h->packer_count] : pl_packer_new(&h->alloc);
}

void pl_shost_give_packer(struct pl_syncer_host *h, struct pl_packer *p)
{
    if (p != NULL && h->packer_count < sizeof h->packers / sizeof h->packers[0])
        h->packers[h->packer_count++] = p;
    else
        pl_packer_free(p);
}

/* ---- pushes ---- */

struct pl_push_buf *pl_shost_push(struct pl_syncer_host *h, uint32_t learner, uint32_t fragment)
{
    pl_assert(learner < h->options.learners_max);
    return &h->pushes[(size_t)learner * h->fragment_count + pl_shost_local(h, fragment)];
}

/* Without memory the contribution is as good as damaged; its work stays with the learner. */
void pl_shost_keep(struct pl_syncer_host *h, const struct pl_sync_effect *fx)
{
    struct pl_push_buf *p = pl_shost_push(h, fx->u.push.learner, fx->u.push.fragment);
    pl_assert(h->delivering != NULL && h->delivering->type == PL_MSG_DATA);
    const struct pl_msg_data *data = &h->delivering->u.data;
    if (p->bytes == NULL && !p->spoilt) {
        pl_assert(p->verify == NULL);
        p->bytes = h->alloc.resize(h->alloc.user, NULL, 0, fx->u.push.bytes);
        p->spoilt = p->bytes == NULL;
        p->size = fx->u.push.bytes;
        p->round = fx->u.push.round;
        h->push_bytes += p->spoilt ? 0 : p->size;
    }
    pl_assert(p->round == fx->u.push.round && p->size == fx->u.push.bytes);
    pl_assert(data->bytes.len == pl_chunk_len(p->size, fx->u.push.index));
    if (!p->spoilt)
        memcpy(p->bytes + pl_chunk_offset(p->size, fx->u.push.index), data->bytes.data, data->bytes.len);
}

struct pl_verify {
    struct pl_job job;
    struct pl_syncer_host *h;
    uint32_t learner, fragment; /* PL_NONE32: given up meanwhile */
    uint64_t identity, round, digest, steps;
    uint8_t *packed;
    uint64_t packed_bytes;
    uint8_t *raw;
    uint64_t raw_bytes;
    struct pl_packer *packer;
    float *scratch; /* [PL_GUARD_PIECE] */
    double *norms;  /* [slices] */
    uint32_t slices;
    uint64_t began_ns;
    bool good;
    struct pl_error why;
};

static void verify_free(struct pl_verify *v)
{
    struct pl_syncer_host *h = v->h;
    if (v->packed != NULL)
        h->push_bytes -= v->packed_bytes;
    pl_alloc_free(&h->alloc, v->packed, v->packed_bytes);
    pl_alloc_free(&h->alloc, v->raw, v->raw_bytes);
    pl_alloc_free(&h->alloc, v->scratch, PL_GUARD_PIECE * sizeof *v->scratch);
    pl_alloc_free(&h->alloc, v->norms, v->slices * sizeof *v->norms);
    pl_shost_give_packer(h, v->packer);
    pl_alloc_free(&h->alloc, v, sizeof *v);
}

static bool check_content(struct pl_verify *v)
{
    const struct pl_syncer_host *h = v->h;
    if (v->raw == NULL || v->packer == NULL || v->scratch == NULL || v->norms == NULL || v->packed == NULL) {
        (void)pl_fail(&v->why, PELAGO_NOMEM, "there was no memory to check it");
        return false;
    }
    if (pl_hash64(v->packed, v->packed_bytes, 0) != v->digest) {
        (void)pl_fail(&v->why, PELAGO_CORRUPT, "it does not match its digest");
        return false;
    }
    if (pl_unpack(v->packer, v->packed, v->packed_bytes, v->raw, v->raw_bytes, &v->why) != PELAGO_OK)
        return false;
    if (!pl_layout_check(&h->layout, v->fragment, h->settings.up, v->raw)) {
        (void)pl_fail(&v->why, PELAGO_CORRUPT, "it holds numbers that are not finite, or is no %s encoding",
                      pl_codec_name(h->settings.up));
        return false;
    }
    pl_guard_norms(&h->layout, v->fragment, h->settings.up, v->raw, v->scratch, v->norms);
    return true;
}

static void verify_run(struct pl_job *job)
{
    struct pl_verify *v = (struct pl_verify *)job;
    v->good = check_content(v);
}

static void refuse_push(struct pl_syncer_host *h, const struct pl_verify *v)
{
    struct pl_islander *m = pl_shost_member(h, v->identity);
    h->counters.bad_pushes++;
    if (m != NULL)
        pl_guard_blame(h, m);
    pl_shost_log(h, "push.refused learner=%lu address=%s fragment=%u: %s", v->identity,
                 m != NULL ? m->address : "?", v->fragment, v->why.text);
}

static void verify_done(struct pl_job *job)
{
    struct pl_verify *v = (struct pl_verify *)job;
    struct pl_syncer_host *h = v->h;
    h->jobs--;
    h->counters.verifies++;
    h->counters.verify_ns += pl_clock_ns() - v->began_ns;
    if (v->learner == PL_NONE32) {
        verify_free(v);
        pl_shost_stop_check(h);
        return;
    }
    struct pl_push_buf *p = pl_shost_push(h, v->learner, v->fragment);
    pl_assert(p->verify == v && p->round == v->round && p->bytes == NULL);
    v->good = v->good && pl_trust_ok(h, v->identity, &v->why) &&
              pl_guard_norms_ok(h, pl_shost_fragment(h, v->fragment), v->steps, v->norms, &v->why);
    p->verify = NULL;
    if (v->good) {
        p->bytes = v->raw;
        p->size = v->raw_bytes;
        h->push_bytes += p->size;
        v->raw = NULL;
    } else {
        refuse_push(h, v);
    }
    struct pl_sync_event ev = {
        .kind = PL_SYNC_EV_VERIFIED,
        .u.verified = {.learner = v->learner, .fragment = v->fragment, .round = v->round, .good = v->good}};
    verify_free(v);
    pl_shost_step(h, &ev);
}

static uint64_t identity_of(const struct pl_syncer_host *h, uint32_t learner)
{
    struct pl_learner_view view;
    return pl_syncer_view_learner(h->core, learner, &view) ? view.identity : 0;
}

void pl_shost_verify(struct pl_syncer_host *h, const struct pl_sync_effect *fx)
{
    struct pl_push_buf *p = pl_shost_push(h, fx->u.push.learner, fx->u.push.fragment);
    const struct pl_shard_fragment *f = pl_shost_fragment(h, fx->u.push.fragment);
    pl_assert(p->round == fx->u.push.round && p->verify == NULL);
    struct pl_verify *v = pl_alloc_zero(&h->alloc, 1, sizeof *v);
    if (v == NULL) {
        struct pl_error why;
        (void)pl_fail(&why, PELAGO_NOMEM, "the machine has no memory left for a contribution's check");
        pl_shost_fail(h, &why);
        return;
    }
    v->h = h;
    v->job.run = verify_run;
    v->job.done = verify_done;
    v->learner = fx->u.push.learner;
    v->fragment = fx->u.push.fragment;
    v->identity = identity_of(h, v->learner);
    v->round = p->round;
    v->digest = fx->u.push.digest;
    v->steps = fx->u.push.steps;
    v->packed = p->bytes;
    v->packed_bytes = p->size;
    v->raw_bytes = f->push_bytes;
    v->raw = h->alloc.resize(h->alloc.user, NULL, 0, v->raw_bytes);
    v->slices = h->layout.fragments[f->number].slice_count;
    v->norms = pl_alloc_zero(&h->alloc, v->slices, sizeof *v->norms);
    v->scratch = pl_alloc_zero(&h->alloc, PL_GUARD_PIECE, sizeof *v->scratch);
    v->packer = pl_shost_take_packer(h);
    v->began_ns = pl_clock_ns();
    p->bytes = NULL;
    p->verify = v;
    h->jobs++;
    pl_work_start(h->o.loop, &v->job);
}

void pl_shost_discard(struct pl_syncer_host *h, const struct pl_sync_effect *fx)
{
    struct pl_push_buf *p = pl_shost_push(h, fx->u.push.learner, fx->u.push.fragment);
    if (p->verify != NULL)
        p->verify->learner = PL_NONE32; /* it ends by itself, for nobody */
    free_push(h, p);
}

void pl_syncer_host_values(const struct pl_syncer_host *h, float *block)
{
    for (uint32_t i = 0; i < h->fragment_count; i++)
        pl_layout_scatter(&h->layout, h->fragments[i].number, h->fragments[i].values->theta, block);
}
