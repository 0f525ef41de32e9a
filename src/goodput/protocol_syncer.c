/* goodput/protocol_syncer.c - performs what core/syncer asks: messages, merges of nothing, a store that never fails. */
#include "goodput/protocol_int.h"

#include "base/check.h"
#include "base/num.h"
#include "wire/chunk.h"

#include <string.h>

#define VERIFY_NS (1 * PL_MS)
#define MERGE_NS (5 * PL_MS)
#define STORE_NS (5 * PL_MS)

static const uint8_t payload[PL_CHUNK_BYTES_MIN];

/* Header, then the one chunk, unless it is there already. */
static void deliver(struct pl_proto *h, const struct pl_sync_effect *fx)
{
    const struct pl_msg_update *u = &fx->u.deliver.header;
    uint32_t learner = fx->u.deliver.conn / 2;
    pl_assert(u->bytes <= sizeof payload && pl_chunk_count(u->bytes) == 1);
    pl_proto_send(h, learner, PL_LINK_BULK, false, &(struct pl_msg){.type = PL_MSG_UPDATE, .u.update = *u});
    if (fx->u.deliver.mask == 0)
        pl_proto_send(h, learner, PL_LINK_BULK, false,
                      &(struct pl_msg){.type = PL_MSG_DATA,
                                       .u.data = {.fragment = u->fragment,
                                                  .id = u->to_version,
                                                  .bytes = {payload, (uint32_t)u->bytes}}});
}

static void close_conn(struct pl_proto *h, const struct pl_sync_effect *fx)
{
    uint32_t conn = fx->u.close.conn;
    struct pl_blob text = {(const uint8_t *)fx->u.close.text, (uint32_t)strlen(fx->u.close.text)};
    struct pl_msg msg = {.type = fx->u.close.refuse ? PL_MSG_REFUSE : PL_MSG_CLOSE};
    if (fx->u.close.refuse)
        msg.u.refuse = (struct pl_msg_refuse){.code = fx->u.close.reason, .text = text};
    else
        msg.u.close = (struct pl_msg_close){.code = fx->u.close.reason, .text = text};
    pl_proto_send(h, conn / 2, (enum pl_link)(conn % 2), false, &msg);
    pl_proto_hang_up(h, conn / 2, (enum pl_link)(conn % 2), true);
}

/* What enters the model: the tokens behind every contribution. */
static void merge(struct pl_proto *h, const struct pl_sync_effect *fx)
{
    uint32_t count = fx->u.merge.contributor_count;
    h->rounds++;
    h->cohort[pl_min32(count, h->o->learners)]++;
    for (uint32_t i = 0; i < count; i++) {
        const struct pl_contributor *c = &fx->u.merge.contributors[i];
        uint64_t base = h->learners[c->identity - 1].frags[fx->u.merge.fragment].base;
        h->tokens += (double)c->tokens;
        h->behind[pl_min64(pl_sub_sat(fx->u.merge.base_version, base), 3)]++;
        h->contributions++;
    }
    pl_proto_at(h, MERGE_NS,
                &(struct pl_proto_ev){
                    .kind = PL_PROTO_MERGED, .fragment = fx->u.merge.fragment, .a = fx->u.merge.round});
}

static void perform(struct pl_proto *h, const struct pl_sync_effect *fx)
{
    switch (fx->kind) {
    case PL_SYNC_FX_SEND:
        pl_proto_send(h, fx->u.send.conn / 2, (enum pl_link)(fx->u.send.conn % 2), false, &fx->u.send.msg);
        break;
    case PL_SYNC_FX_CLOSE:
        close_conn(h, fx);
        break;
    case PL_SYNC_FX_VERIFY:
        pl_proto_at(h, VERIFY_NS,
                    &(struct pl_proto_ev){.kind = PL_PROTO_VERIFIED,
                                          .learner = fx->u.push.learner,
                                          .fragment = fx->u.push.fragment,
                                          .a = fx->u.push.round});
        break;
    case PL_SYNC_FX_MERGE:
        merge(h, fx);
        break;
    case PL_SYNC_FX_STORE:
        pl_proto_at(h, STORE_NS, &(struct pl_proto_ev){.kind = PL_PROTO_STORED, .a = fx->u.store.seq});
        break;
    case PL_SYNC_FX_DELIVER:
        deliver(h, fx);
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

void pl_proto_step_syncer(struct pl_proto *h, struct pl_sync_event *ev)
{
    ev->now_ns = h->now_ns;
    h->sync_fxs.count = 0;
    h->events++;
    pl_syncer_step(h->syncer, ev, &h->sync_fxs);
    for (uint32_t i = 0; i < h->sync_fxs.count; i++)
        perform(h, &h->sync_fxs.fx[i]);
    uint64_t deadline = pl_syncer_deadline(h->syncer);
    if (deadline == PL_NEVER)
        pl_heap_remove(&h->timers, h->o->learners);
    else
        pl_heap_set(&h->timers, h->o->learners, pl_max64(deadline, h->now_ns));
}

void pl_proto_syncer_event(struct pl_proto *h, const struct pl_proto_ev *ev)
{
    struct pl_sync_event out = {.kind = PL_SYNC_EV_STORED, .u.stored = {.seq = ev->a, .durable = true}};
    if (ev->kind == PL_PROTO_VERIFIED)
        out = (struct pl_sync_event){.kind = PL_SYNC_EV_VERIFIED,
                                     .u.verified = {ev->learner, ev->fragment, ev->a, true}};
    else if (ev->kind == PL_PROTO_MERGED)
        out = (struct pl_sync_event){.kind = PL_SYNC_EV_MERGED,
                                     .u.merged = {ev->fragment, ev->a, h->rounds, PL_PROTO_PUSH_BYTES, true}};
    pl_proto_step_syncer(h, &out);
}
