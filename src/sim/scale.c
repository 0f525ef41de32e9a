/* sim/scale.c - see scale.h. */
#include "sim/scale.h"

#include "base/check.h"
#include "base/heap.h"
#include "core/manifest.h"
#include "core/syncer.h"

#include <string.h>

enum { FRAGMENTS = 24, PUSH_BYTES = 20, STEP_TOKENS = 100 };

enum reply { REPLY_HELLO, REPLY_JOIN, REPLY_PUSH, REPLY_HAVE, REPLY_VERIFIED, REPLY_MERGED, REPLY_STORED };

/* What the core will hear next. */
struct waiting {
    enum reply kind;
    uint32_t learner, fragment;
    uint64_t round, version;
};

struct pl_scale {
    struct pl_alloc alloc;
    uint32_t learners;
    struct pl_msg_manifest manifest;
    struct pl_sync_options options;
    uint8_t fragments[FRAGMENTS * PL_ITEM_FRAGMENT_BYTES];
    uint8_t have[FRAGMENTS * PL_ITEM_HAVE_BYTES];
    size_t core_bytes;
    void *memory;
    struct pl_syncer *core;
    struct pl_sync_fxs fxs;
    void *heap_memory;
    struct pl_heap heap; /* learners by the end of their step */
    uint64_t *steps;
    uint64_t *incarnation;
    struct waiting *ring;
    uint32_t ring_first, ring_len, ring_max;
    uint64_t now, events, merges;
};

static void expect(struct pl_scale *s, const struct waiting *r)
{
    pl_assert(s->ring_len < s->ring_max);
    s->ring[(s->ring_first + s->ring_len++) % s->ring_max] = *r;
}

/* Connections of learner i: control 2 i, bulk 2 i + 1. */
static void hear(struct pl_scale *s, const struct pl_sync_effect *fx)
{
    struct waiting r = {.learner = fx->u.send.conn / 2};
    switch (fx->kind) {
    case PL_SYNC_FX_SEND:
        if (fx->u.send.msg.type == PL_MSG_WELCOME) {
            s->incarnation[r.learner] = fx->u.send.msg.u.welcome.incarnation;
            r.kind = REPLY_JOIN;
            expect(s, &r);
        } else if (fx->u.send.msg.type == PL_MSG_PULL) {
            const struct pl_msg_pull *pull = &fx->u.send.msg.u.pull;
            expect(s,
                   &(struct waiting){REPLY_PUSH, r.learner, pull->fragment, pull->round, pull->base_version});
        }
        break;
    case PL_SYNC_FX_VERIFY:
        expect(s, &(struct waiting){REPLY_VERIFIED, fx->u.push.learner, fx->u.push.fragment, fx->u.push.round,
                                    0});
        break;
    case PL_SYNC_FX_MERGE:
        s->merges++;
        expect(s, &(struct waiting){REPLY_MERGED, 0, fx->u.merge.fragment, fx->u.merge.round, 0});
        break;
    case PL_SYNC_FX_STORE:
        expect(s, &(struct waiting){.kind = REPLY_STORED, .version = fx->u.store.seq});
        break;
    case PL_SYNC_FX_DELIVER:
        expect(s, &(struct waiting){REPLY_HAVE, fx->u.deliver.conn / 2, fx->u.deliver.header.fragment, 0,
                                    fx->u.deliver.header.to_version});
        break;
    case PL_SYNC_FX_CLOSE:
        pl_assert(fx->kind != PL_SYNC_FX_CLOSE); /* nobody misbehaves here */
        break;
    case PL_SYNC_FX_LISTEN:
    case PL_SYNC_FX_KEEP:
    case PL_SYNC_FX_DISCARD:
    case PL_SYNC_FX_PUBLISH:
    case PL_SYNC_FX_FINISHED:
    case PL_SYNC_FX_TRACE:
        break;
    }
}

static void step(struct pl_scale *s, struct pl_sync_event *ev)
{
    ev->now_ns = s->now;
    s->fxs.count = 0;
    s->events++;
    pl_syncer_step(s->core, ev, &s->fxs);
    for (uint32_t i = 0; i < s->fxs.count; i++)
        hear(s, &s->fxs.fx[i]);
}

static void tell(struct pl_scale *s, uint32_t conn, const struct pl_msg *msg)
{
    step(s, &(struct pl_sync_event){.kind = PL_SYNC_EV_MSG, .u.msg = {.conn = conn, .msg = msg}});
}

static void open_conn(struct pl_scale *s, uint32_t conn)
{
    step(s, &(struct pl_sync_event){.kind = PL_SYNC_EV_OPENED,
                                    .u.opened = {.conn = conn, .identity = conn / 2 + 1}});
}

static void push(struct pl_scale *s, const struct waiting *r)
{
    static const uint8_t payload[PUSH_BYTES];
    uint64_t steps = s->steps[r->learner] > FRAGMENTS ? FRAGMENTS : s->steps[r->learner];
    if (steps == 0) {
        tell(s, 2 * r->learner,
             &(struct pl_msg){.type = PL_MSG_SKIP, .u.skip = {.fragment = r->fragment, .round = r->round}});
        return;
    }
    tell(s, 2 * r->learner + 1,
         &(struct pl_msg){.type = PL_MSG_PUSH,
                          .u.push = {.fragment = r->fragment,
                                     .round = r->round,
                                     .base_version = r->version,
                                     .steps = steps,
                                     .tokens = steps * STEP_TOKENS,
                                     .bytes = PUSH_BYTES,
                                     .digest = 1}});
    tell(
        s, 2 * r->learner + 1,
        &(struct pl_msg){
            .type = PL_MSG_DATA,
            .u.data = {.fragment = r->fragment, .id = r->round, .index = 0, .bytes = {payload, PUSH_BYTES}}});
}

static void greet(struct pl_scale *s, const struct waiting *r)
{
    open_conn(s, 2 * r->learner);
    tell(s, 2 * r->learner,
         &(struct pl_msg){.type = PL_MSG_HELLO,
                          .u.hello = {.run_id = s->manifest.run_id,
                                      .nonce = r->learner + 1,
                                      .manifest_digest = s->options.manifest_digest,
                                      .flags = 1}});
}

static void join(struct pl_scale *s, const struct waiting *r)
{
    tell(s, 2 * r->learner,
         &(struct pl_msg){.type = PL_MSG_JOIN,
                          .u.join = {.have = {s->have, FRAGMENTS}, .units = {s->have, 0}}});
    open_conn(s, 2 * r->learner + 1);
    tell(s, 2 * r->learner + 1,
         &(struct pl_msg){.type = PL_MSG_ATTACH,
                          .u.attach = {.incarnation = s->incarnation[r->learner], .partial = {s->have, 0}}});
    /* Out of phase with the others. */
    pl_heap_set(&s->heap, r->learner, s->now + PL_SEC + r->learner * PL_SEC / s->learners);
}

static void answer(struct pl_scale *s, const struct waiting *r)
{
    switch (r->kind) {
    case REPLY_HELLO:
        greet(s, r);
        break;
    case REPLY_JOIN:
        join(s, r);
        break;
    case REPLY_PUSH:
        push(s, r);
        break;
    case REPLY_HAVE:
        tell(
            s, 2 * r->learner,
            &(struct pl_msg){.type = PL_MSG_HAVE, .u.got = {.fragment = r->fragment, .version = r->version}});
        break;
    case REPLY_VERIFIED:
        step(s, &(struct pl_sync_event){.kind = PL_SYNC_EV_VERIFIED,
                                        .u.verified = {r->learner, r->fragment, r->round, true}});
        break;
    case REPLY_MERGED:
        step(s, &(struct pl_sync_event){.kind = PL_SYNC_EV_MERGED,
                                        .u.merged = {r->fragment, r->round, s->merges, PUSH_BYTES, true}});
        break;
    case REPLY_STORED:
        step(s, &(struct pl_sync_event){.kind = PL_SYNC_EV_STORED, .u.stored = {r->version, true}});
        break;
    }
}

static void report(struct pl_scale *s, uint32_t learner)
{
    s->steps[learner]++;
    pl_heap_set(&s->heap, learner, s->now + PL_SEC);
    tell(s, 2 * learner,
         &(struct pl_msg){.type = PL_MSG_REPORT,
                          .u.report = {.steps = s->steps[learner],
                                       .tokens = s->steps[learner] * STEP_TOKENS,
                                       .step_ns = PL_SEC,
                                       .unit = PL_NONE64,
                                       .flags = 1}});
}

uint64_t pl_scale_run(struct pl_scale *s, uint64_t events)
{
    uint64_t before = s->events;
    while (s->events - before < events) {
        if (s->ring_len > 0) {
            struct waiting r = s->ring[s->ring_first];
            s->ring_first = (s->ring_first + 1) % s->ring_max;
            s->ring_len--;
            answer(s, &r);
            continue;
        }
        uint64_t deadline = pl_syncer_deadline(s->core), due = pl_heap_top_key(&s->heap);
        if (deadline <= due) {
            s->now = deadline > s->now ? deadline : s->now;
            step(s, &(struct pl_sync_event){.kind = PL_SYNC_EV_TIMEOUT});
        } else {
            s->now = due;
            report(s, pl_heap_top(&s->heap));
        }
    }
    return s->events - before;
}

static void make_manifest(struct pl_scale *s)
{
    for (uint32_t i = 0; i < FRAGMENTS; i++) {
        pl_item_fragment_put(
            s->fragments, i,
            &(struct pl_item_fragment){
                .offset = i, .full_bytes = 64, .push_bytes_max = PUSH_BYTES, .update_bytes_max = PUSH_BYTES});
        pl_item_have_put(s->have, i, &(struct pl_item_have){.version = 0, .digest = 7});
    }
    s->manifest = (struct pl_msg_manifest){.run_id = 1,
                                           .shard_count = 1,
                                           .quorum = s->learners / 2,
                                           .overlap_steps = 2,
                                           .period_steps = FRAGMENTS,
                                           .gamma_ppm = 500000,
                                           .staleness_max = 2,
                                           .token_budget = PL_COUNT_MAX,
                                           .unit_tokens = 1000,
                                           .step_tokens_max = STEP_TOKENS,
                                           .fragments = {s->fragments, FRAGMENTS},
                                           .tensors = {s->have, 0}};
    uint8_t scratch[4096];
    s->options =
        (struct pl_sync_options){.manifest = &s->manifest,
                                 .manifest_digest = pl_manifest_digest(&s->manifest, scratch, sizeof scratch),
                                 .learners_max = s->learners,
                                 .conns_max = 2 * s->learners};
}

static void begin(struct pl_scale *s)
{
    s->core = pl_syncer_init(s->memory, s->core_bytes, &s->options);
    pl_heap_init(&s->heap, s->heap_memory, s->learners);
    for (uint32_t i = 0; i < FRAGMENTS; i++)
        pl_syncer_set_origin(s->core, i, 7);
    step(s, &(struct pl_sync_event){.kind = PL_SYNC_EV_BOOT});
    for (uint32_t i = 0; i < s->learners; i++)
        expect(s, &(struct waiting){.kind = REPLY_HELLO, .learner = i});
}

struct pl_scale *pl_scale_new(const struct pl_alloc *alloc, uint32_t learners)
{
    struct pl_scale *s = pl_alloc_zero(alloc, 1, sizeof *s);
    if (s == NULL)
        return NULL;
    s->alloc = *alloc;
    s->learners = learners;
    make_manifest(s);
    s->core_bytes = pl_syncer_bytes(&s->options);
    s->fxs.max = pl_syncer_effects_max(&s->options);
    s->ring_max = 8 * FRAGMENTS * learners + 64;
    s->memory = pl_alloc_zero(alloc, 1, s->core_bytes);
    s->fxs.fx = pl_alloc_zero(alloc, s->fxs.max, sizeof *s->fxs.fx);
    s->heap_memory = pl_alloc_zero(alloc, 1, pl_heap_bytes(learners));
    s->steps = pl_alloc_zero(alloc, learners, sizeof *s->steps);
    s->incarnation = pl_alloc_zero(alloc, learners, sizeof *s->incarnation);
    s->ring = pl_alloc_zero(alloc, s->ring_max, sizeof *s->ring);
    if (s->memory == NULL || s->fxs.fx == NULL || s->heap_memory == NULL || s->steps == NULL ||
        s->incarnation == NULL || s->ring == NULL) {
        pl_scale_free(s);
        return NULL;
    }
    begin(s);
    return s;
}

void pl_scale_free(struct pl_scale *s)
{
    const struct pl_alloc a = s->alloc;
    pl_alloc_free(&a, s->memory, s->core_bytes);
    pl_alloc_free(&a, s->fxs.fx, s->fxs.max * sizeof *s->fxs.fx);
    pl_alloc_free(&a, s->heap_memory, pl_heap_bytes(s->learners));
    pl_alloc_free(&a, s->steps, s->learners * sizeof *s->steps);
    pl_alloc_free(&a, s->incarnation, s->learners * sizeof *s->incarnation);
    pl_alloc_free(&a, s->ring, s->ring_max * sizeof *s->ring);
    pl_alloc_free(&a, s, sizeof *s);
}

uint64_t pl_scale_bytes(const struct pl_scale *s)
{
    return s->core_bytes;
}

uint64_t pl_scale_merges(const struct pl_scale *s)
{
    return s->merges;
}
