/* support/sync_rig_peer.c - the scripted learners of sync_rig.h. */
#include "sync_rig.h"

#include "base/check.h"
#include "base/hash.h"
#include "wire/chunk.h"

#include <string.h>

enum { TOKENS_A_STEP = 10, RUN_TICKS_MAX = 1000, PUSH_BYTES = 100 };

uint64_t rig_digest(uint32_t fragment, uint64_t version)
{
    uint64_t key[2] = {fragment, version};
    return pl_hash64(key, sizeof key, 0);
}

uint64_t rig_identity(uint32_t i)
{
    return 10 * ((uint64_t)i + 1);
}

void rig_hello(struct rig *r, uint32_t i)
{
    struct rig_peer *p = &r->peers[i];
    uint32_t conn = rig_open(r, p->identity);
    p->control = conn;
    r->conns[conn].peer = i;
    struct pl_msg msg = {.type = PL_MSG_HELLO,
                         .u.hello = {.run_id = r->manifest.run_id,
                                     .incarnation = p->incarnation,
                                     .nonce = p->nonce,
                                     .manifest_digest = r->so.manifest_digest,
                                     .flags = p->flags,
                                     .steps = p->steps,
                                     .tokens = p->tokens}};
    rig_send(r, conn, &msg);
}

void rig_join(struct rig *r, uint32_t i)
{
    const struct rig_peer *p = &r->peers[i];
    uint8_t have[RIG_FRAGMENTS * PL_ITEM_HAVE_BYTES], units[PL_ITEM_HELD_UNIT_BYTES];
    uint32_t count = 0;
    for (uint32_t f = 0; f < r->o.fragments; f++)
        if (f % r->o.shards == r->o.shard)
            pl_item_have_put(have, count++, &(struct pl_item_have){p->have[f], rig_digest(f, p->have[f])});
    struct pl_msg msg = {.type = PL_MSG_JOIN, .u.join = {.have = {have, count}, .units = {units, 0}}};
    if (p->unit != PL_NONE64 && r->o.shard == 0 && (p->flags & 1) == 0) {
        pl_item_held_unit_put(units, 0, &(struct pl_item_held_unit){p->unit, p->cursor});
        msg.u.join.units.count = 1;
    }
    rig_send(r, p->control, &msg);
}

void rig_attach(struct rig *r, uint32_t i)
{
    struct rig_peer *p = &r->peers[i];
    uint32_t conn = rig_open(r, p->identity);
    p->bulk = conn;
    r->conns[conn].peer = i;
    rig_send(r, conn, &(struct pl_msg){.type = PL_MSG_ATTACH, .u.attach = {.incarnation = p->incarnation}});
}

void rig_up(struct rig *r, uint32_t i)
{
    rig_hello(r, i);
    if (rig_live(r, i))
        rig_join(r, i);
    if (rig_live(r, i))
        rig_attach(r, i);
}

void rig_up_many(struct rig *r, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        rig_up(r, i);
}

void rig_down(struct rig *r, uint32_t i)
{
    if (r->peers[i].bulk != PL_NONE32)
        rig_close(r, r->peers[i].bulk);
    if (r->peers[i].control != PL_NONE32)
        rig_close(r, r->peers[i].control);
}

void rig_restart(struct rig *r, uint32_t i)
{
    struct rig_peer *p = &r->peers[i];
    p->nonce += 1000;
    p->incarnation = p->steps = p->tokens = p->flags = 0;
    p->unit = PL_NONE64;
    memset(p->pull, 0, sizeof p->pull);
    memset(p->update, 0, sizeof p->update);
    memset(p->pushed, 0, sizeof p->pushed);
}

bool rig_live(const struct rig *r, uint32_t i)
{
    return r->peers[i].control != PL_NONE32;
}

void rig_report(struct rig *r, uint32_t i, uint64_t steps)
{
    struct rig_peer *p = &r->peers[i];
    p->steps += steps;
    p->tokens += steps * TOKENS_A_STEP;
    struct pl_msg msg = {.type = PL_MSG_REPORT,
                         .u.report = {.steps = p->steps,
                                      .tokens = p->tokens,
                                      .step_ns = r->step_ns,
                                      .unit = p->unit,
                                      .cursor = p->cursor,
                                      .flags = p->flags}};
    rig_send(r, p->control, &msg);
}

void rig_push_header(struct rig *r, uint32_t i, uint32_t fragment, uint64_t bytes)
{
    struct rig_peer *p = &r->peers[i];
    uint64_t steps = p->steps > p->pushed[fragment] ? p->steps - p->pushed[fragment] : 1;
    struct pl_msg msg = {.type = PL_MSG_PUSH,
                         .u.push = {.fragment = fragment,
                                    .round = p->pull[fragment].round,
                                    .base_version = p->pull[fragment].base,
                                    .steps = steps,
                                    .tokens = steps * TOKENS_A_STEP,
                                    .bytes = bytes,
                                    .digest = p->identity}};
    rig_send(r, p->bulk, &msg);
}

void rig_push_chunk(struct rig *r, uint32_t i, uint32_t fragment, uint64_t bytes, uint32_t index)
{
    static const uint8_t zeros[PL_CHUNK_BYTES_MIN];
    struct rig_peer *p = &r->peers[i];
    struct pl_msg msg = {.type = PL_MSG_DATA,
                         .u.data = {.fragment = fragment,
                                    .id = p->pull[fragment].round,
                                    .index = index,
                                    .bytes = {zeros, pl_chunk_len(bytes, index)}}};
    rig_send(r, p->bulk, &msg);
}

bool rig_push(struct rig *r, uint32_t i, uint32_t fragment)
{
    struct rig_peer *p = &r->peers[i];
    if (!p->pull[fragment].open || p->bulk == PL_NONE32)
        return false;
    rig_push_header(r, i, fragment, PUSH_BYTES);
    if (p->bulk != PL_NONE32)
        rig_push_chunk(r, i, fragment, PUSH_BYTES, 0);
    p->pull[fragment].open = false;
    p->pushed[fragment] = p->steps;
    return true;
}

bool rig_skip(struct rig *r, uint32_t i, uint32_t fragment)
{
    struct rig_peer *p = &r->peers[i];
    if (!p->pull[fragment].open || p->control == PL_NONE32)
        return false;
    p->pull[fragment].open = false;
    rig_send(r, p->control,
             &(struct pl_msg){.type = PL_MSG_SKIP, .u.skip = {fragment, p->pull[fragment].round}});
    return true;
}

bool rig_have(struct rig *r, uint32_t i, uint32_t fragment)
{
    struct rig_peer *p = &r->peers[i];
    if (!p->update[fragment].open || p->control == PL_NONE32)
        return false;
    p->update[fragment].open = false;
    p->have[fragment] = p->update[fragment].header.to_version;
    rig_send(r, p->control, &(struct pl_msg){.type = PL_MSG_HAVE, .u.got = {fragment, p->have[fragment]}});
    return true;
}

void rig_obey(struct rig *r, uint32_t i)
{
    for (uint32_t f = 0; f < r->o.fragments; f++) {
        rig_have(r, i, f);
        if (r->peers[i].pull[f].base == r->peers[i].have[f])
            rig_push(r, i, f);
        rig_have(r, i, f);
    }
}

void rig_rest(struct rig *r, uint64_t ns)
{
    uint64_t end = r->now_ns + ns;
    while (r->now_ns < end) {
        for (uint32_t i = 0; i < RIG_PEERS; i++)
            if (rig_live(r, i))
                rig_send(r, r->peers[i].control, &(struct pl_msg){.type = PL_MSG_PING});
        rig_advance_until(r, end - r->now_ns > PL_SEC ? r->now_ns + PL_SEC : end);
    }
}

void rig_tick(struct rig *r, bool obey)
{
    for (uint32_t i = 0; i < RIG_PEERS; i++)
        if (rig_live(r, i))
            rig_report(r, i, 1);
    rig_advance(r, r->step_ns);
    for (uint32_t i = 0; obey && i < RIG_PEERS; i++)
        if (rig_live(r, i))
            rig_obey(r, i);
}

bool rig_run_to(struct rig *r, uint32_t fragment, uint64_t version)
{
    for (uint32_t n = 0; n < RUN_TICKS_MAX; n++) {
        if (pl_syncer_version(r->s, fragment, NULL) >= version)
            return true;
        rig_tick(r, true);
    }
    return false;
}

bool rig_run_to_pull(struct rig *r, uint32_t i, uint32_t fragment)
{
    for (uint32_t n = 0; n < RUN_TICKS_MAX && !r->peers[i].pull[fragment].open; n++)
        rig_tick(r, false);
    return r->peers[i].pull[fragment].open;
}
