/* goodput/protocol.c - the window of the protocol mode: made, run, measured. See protocol_int.h. */
#include "goodput/protocol_int.h"

#include "base/check.h"
#include "base/num.h"
#include "core/manifest.h"

/* Before the window: everybody is in, the first cycles are behind. */
enum { WARM_CYCLES = 20 };

/* ---- making ---- */

static enum pelago_status make_manifest(struct pl_proto *h, struct pl_error *err)
{
    const struct pl_goodput_options *o = h->o;
    h->fragments = o->period_steps;
    h->fragment_items = pl_proto_zero(h, h->fragments, PL_ITEM_FRAGMENT_BYTES);
    h->digests = pl_proto_zero(h, h->fragments, sizeof *h->digests);
    if (h->fragment_items == NULL || h->digests == NULL)
        return PELAGO_NOMEM;
    for (uint32_t i = 0; i < h->fragments; i++) {
        h->digests[i] = PL_PROTO_DIGEST;
        pl_item_fragment_put(h->fragment_items, i,
                             &(struct pl_item_fragment){.offset = i,
                                                        .full_bytes = PL_PROTO_FULL_BYTES,
                                                        .push_bytes_max = PL_PROTO_PUSH_BYTES,
                                                        .update_bytes_max = PL_PROTO_PUSH_BYTES});
    }
    h->manifest = (struct pl_msg_manifest){.run_id = 1,
                                           .shard_count = 1,
                                           .quorum = o->quorum,
                                           .overlap_steps = pl_max32(o->overlap_steps, 1),
                                           .period_steps = o->period_steps,
                                           .gamma_ppm = 500000,
                                           .staleness_max = o->staleness_max,
                                           .apply = o->rebase ? 0 : 1,
                                           .token_budget = PL_COUNT_MAX,
                                           .unit_tokens = PL_PROTO_STEP_TOKENS,
                                           .step_tokens_max = UINT64_C(1) << 32,
                                           .fragments = {h->fragment_items, h->fragments},
                                           .tensors = {h->fragment_items, 0}};
    return pl_manifest_check(&h->manifest, err);
}

static enum pelago_status make_syncer(struct pl_proto *h)
{
    size_t scratch_bytes = 4096 + (size_t)h->fragments * PL_ITEM_FRAGMENT_BYTES;
    uint8_t *scratch = pl_proto_zero(h, 1, scratch_bytes);
    if (scratch == NULL)
        return PELAGO_NOMEM;
    h->sync_options =
        (struct pl_sync_options){.manifest = &h->manifest,
                                 .manifest_digest = pl_manifest_digest(&h->manifest, scratch, scratch_bytes),
                                 .learners_max = h->o->learners,
                                 .conns_max = 2 * h->o->learners};
    pl_alloc_free(&h->alloc, scratch, scratch_bytes);
    h->syncer_bytes = pl_syncer_bytes(&h->sync_options);
    h->sync_fxs.max = pl_syncer_effects_max(&h->sync_options);
    h->syncer_memory = pl_proto_zero(h, 1, h->syncer_bytes);
    h->sync_fxs.fx = pl_proto_zero(h, h->sync_fxs.max, sizeof *h->sync_fxs.fx);
    return h->status;
}

static enum pelago_status make_learners(struct pl_proto *h)
{
    const struct pl_learn_options o = {.fragments_max = h->fragments, .local_data = true};
    h->learners = pl_proto_zero(h, h->o->learners, sizeof *h->learners);
    h->timers_memory = pl_proto_zero(h, 1, pl_heap_bytes(h->o->learners + 1));
    for (uint32_t i = 0; h->learners != NULL && i < h->o->learners; i++) {
        struct pl_proto_learner *l = &h->learners[i];
        l->bytes = pl_learner_bytes(&o);
        l->fxs.max = pl_learner_effects_max(&o);
        l->memory = pl_proto_zero(h, 1, l->bytes);
        l->fxs.fx = pl_proto_zero(h, l->fxs.max, sizeof *l->fxs.fx);
        l->frags = pl_proto_zero(h, h->fragments, sizeof *l->frags);
        /* comm_s: the whole model out and in. */
        l->payload_ns = (uint64_t)(h->fast.learners[i].comm_s / 2 / h->fragments * PL_FAST_SECOND);
    }
    return h->status;
}

static void release(struct pl_proto *h)
{
    const struct pl_alloc *a = &h->alloc;
    for (uint32_t i = 0; i < h->queue_len; i++)
        pl_alloc_free(a, h->queue[i].bytes, h->queue[i].len);
    pl_alloc_free(a, h->queue, h->queue_cap * sizeof *h->queue);
    for (uint32_t i = 0; h->learners != NULL && i < h->o->learners; i++) {
        struct pl_proto_learner *l = &h->learners[i];
        pl_alloc_free(a, l->memory, l->bytes);
        pl_alloc_free(a, l->fxs.fx, l->fxs.max * sizeof *l->fxs.fx);
        pl_alloc_free(a, l->frags, h->fragments * sizeof *l->frags);
    }
    pl_alloc_free(a, h->learners, h->o->learners * sizeof *h->learners);
    pl_alloc_free(a, h->timers_memory, pl_heap_bytes(h->o->learners + 1));
    pl_alloc_free(a, h->syncer_memory, h->syncer_bytes);
    pl_alloc_free(a, h->sync_fxs.fx, h->sync_fxs.max * sizeof *h->sync_fxs.fx);
    pl_alloc_free(a, h->fragment_items, (size_t)h->fragments * PL_ITEM_FRAGMENT_BYTES);
    pl_alloc_free(a, h->digests, h->fragments * sizeof *h->digests);
    pl_fast_release(&h->fast);
}

/* ---- running ---- */

static void begin(struct pl_proto *h)
{
    pl_heap_init(&h->timers, h->timers_memory, h->o->learners + 1);
    h->syncer = pl_syncer_init(h->syncer_memory, h->syncer_bytes, &h->sync_options);
    for (uint32_t i = 0; i < h->fragments; i++)
        pl_syncer_set_origin(h->syncer, i, PL_PROTO_DIGEST);
    pl_proto_step_syncer(h, &(struct pl_sync_event){.kind = PL_SYNC_EV_BOOT});
    h->fast.watch = pl_proto_follow;
    h->fast.watch_user = h;
    for (uint32_t i = 0; i < h->o->learners; i++)
        pl_proto_follow(h, &h->fast, &h->fast.learners[i]);
}

static void handle(struct pl_proto *h)
{
    struct pl_proto_ev ev = pl_proto_pop(h);
    switch (ev.kind) {
    case PL_PROTO_OPEN:
    case PL_PROTO_TO_SYNCER:
    case PL_PROTO_TO_LEARNER:
    case PL_PROTO_CLOSED_SYNCER:
    case PL_PROTO_CLOSED_LEARNER:
        pl_proto_conn_event(h, &ev);
        break;
    case PL_PROTO_VERIFIED:
    case PL_PROTO_MERGED:
    case PL_PROTO_STORED:
        pl_proto_syncer_event(h, &ev);
        break;
    case PL_PROTO_STEP:
    case PL_PROTO_READY:
    case PL_PROTO_COPIED:
    case PL_PROTO_DECODED:
    case PL_PROTO_APPLIED:
        pl_proto_learner_event(h, &ev);
        break;
    }
    pl_alloc_free(&h->alloc, ev.bytes, ev.len);
}

static void time_out(struct pl_proto *h)
{
    uint32_t who = pl_heap_top(&h->timers);
    if (who == h->o->learners)
        pl_proto_step_syncer(h, &(struct pl_sync_event){.kind = PL_SYNC_EV_TIMEOUT});
    else
        pl_proto_step_learner(h, who, &(struct pl_learn_event){.kind = PL_LEARN_EV_TIMEOUT});
}

/* Until so many rounds are merged, or the time is over: whichever of the three clocks is first. */
static void run(struct pl_proto *h, uint64_t rounds, uint64_t end_ns)
{
    while (h->rounds < rounds && h->status == PELAGO_OK) {
        uint64_t world = pl_heap_top_key(&h->fast.heap), timer = pl_heap_top_key(&h->timers);
        uint64_t event = h->queue_len > 0 ? h->queue[0].at_ns : PL_NEVER;
        uint64_t next = pl_min64(world, pl_min64(timer, event));
        if (next > end_ns)
            break;
        if (world == next) {
            pl_fast_until(&h->fast, next);
            h->now_ns = next;
            continue;
        }
        h->now_ns = next;
        if (event == next)
            handle(h);
        else
            time_out(h);
    }
    pl_fast_until(&h->fast, h->now_ns);
}

/* ---- measuring ---- */

static void forget(struct pl_proto *h)
{
    pl_fast_forget(&h->fast);
    h->rounds = h->events = h->steps = h->discards = h->lost_conns = h->contributions = 0;
    h->tokens = 0;
    for (uint32_t i = 0; i <= h->o->learners; i++)
        h->cohort[i] = 0;
    for (uint32_t i = 0; i < 4; i++)
        h->behind[i] = 0;
}

static void measure(struct pl_proto *h, struct pl_protocol_result *out)
{
    double s = (double)(h->now_ns - h->fast.began_ns) / PL_FAST_SECOND;
    double possible = (double)PL_PROTO_STEP_TOKENS * h->o->learners * s / h->o->step_s;
    *out = (struct pl_protocol_result){.goodput = h->tokens / h->fragments / possible,
                                       .seconds = s,
                                       .rounds = h->rounds,
                                       .events = h->events,
                                       .steps = h->steps,
                                       .discards = h->discards,
                                       .lost_conns = h->lost_conns};
    for (uint32_t i = 0; i <= h->o->learners; i++)
        out->cohort[i] = (double)h->cohort[i] / (double)h->rounds;
    for (uint32_t i = 0; i < 4; i++)
        out->behind[i] = h->contributions > 0 ? (double)h->behind[i] / (double)h->contributions : 0;
    pl_fast_result(&h->fast, &out->fast);
}

static enum pelago_status too_short(uint64_t rounds, struct pl_error *err)
{
    return pl_fail(err, PELAGO_INVALID,
                   "days is too short, expected enough for %lu rounds after a third of them", rounds);
}

static enum pelago_status run_window(struct pl_proto *h, uint64_t rounds, struct pl_protocol_result *out,
                                     struct pl_error *err)
{
    uint64_t end_ns = (uint64_t)(h->o->days * 86400 * PL_FAST_SECOND);
    h->now_ns = end_ns / 3; /* failures and repairs are in balance */
    pl_fast_until(&h->fast, h->now_ns);
    begin(h);
    run(h, (uint64_t)WARM_CYCLES * h->fragments, end_ns);
    forget(h);
    run(h, rounds, end_ns);
    if (h->status == PELAGO_OK && h->rounds < rounds)
        return too_short(rounds, err);
    if (h->status == PELAGO_OK)
        measure(h, out);
    return h->status;
}

/* A round takes a step at least; what cannot end in time is not begun, nor what takes too long here. */
static enum pelago_status check_window(const struct pl_goodput_options *o, uint64_t rounds,
                                       struct pl_error *err)
{
    const double step_max_s = 600, work_max = 1e7;
    double all = (double)rounds + (double)WARM_CYCLES * o->period_steps;
    if (o->algorithm != PL_GOODPUT_DECOUPLED)
        return pl_fail(err, PELAGO_INVALID, "algorithm is %s, expected decoupled for the protocol",
                       pl_goodput_algorithm_name(o->algorithm));
    if (rounds == 0 || rounds > PL_PROTOCOL_ROUNDS_MAX)
        return pl_fail(err, PELAGO_INVALID, "rounds is %lu, expected 1 to %u", rounds,
                       (unsigned)PL_PROTOCOL_ROUNDS_MAX);
    if (o->step_s > step_max_s)
        return pl_fail(err, PELAGO_INVALID, "step is %lu seconds, expected at most %u for the protocol",
                       (uint64_t)o->step_s, (unsigned)step_max_s);
    if (all * o->learners > work_max)
        return pl_fail(err, PELAGO_INVALID,
                       "rounds and %u periods of warm-up are %lu, expected at most %lu with %u learners",
                       (unsigned)WARM_CYCLES, (uint64_t)all, (uint64_t)(work_max / o->learners), o->learners);
    return 0.9 * all * o->step_s > o->days * 86400 * 2 / 3 ? too_short(rounds, err) : PELAGO_OK;
}

enum pelago_status pl_protocol_run(const struct pl_goodput_options *o, uint64_t rounds,
                                   const struct pl_alloc *alloc, struct pl_protocol_result *out,
                                   struct pl_error *err)
{
    struct pl_proto h = {.o = o, .alloc = *alloc};
    PL_TRY(pl_goodput_check(o, err));
    PL_TRY(check_window(o, rounds, err));
    enum pelago_status status = pl_fast_init(&h.fast, o, alloc);
    if (status == PELAGO_OK)
        status = make_manifest(&h, err);
    if (status == PELAGO_OK)
        status = make_syncer(&h);
    if (status == PELAGO_OK)
        status = make_learners(&h);
    if (status == PELAGO_OK)
        status = run_window(&h, rounds, out, err);
    release(&h);
    return status == PELAGO_NOMEM ? pl_fail(err, status, "out of memory") : status;
}
