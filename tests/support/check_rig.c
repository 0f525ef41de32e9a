/* support/check_rig.c - see check_rig.h. */
#include "check_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

void crig_init(struct check_rig *r, uint32_t fragments, uint32_t shards)
{
    *r = (struct check_rig){.alloc = pl_alloc_system(), .now = PL_SEC};
    for (uint32_t p = 0; p < fragments; p++) {
        struct pl_item_fragment item = {.shard = p % shards,
                                        .offset = p * 8 / fragments,
                                        .full_bytes = 400,
                                        .push_bytes_max = 200,
                                        .update_bytes_max = 200};
        pl_item_fragment_put(r->items, p, &item);
    }
    r->manifest = (struct pl_msg_manifest){.run_id = 1,
                                           .shard_count = shards,
                                           .quorum = 2,
                                           .overlap_steps = 2,
                                           .period_steps = 8,
                                           .staleness_max = 2,
                                           .token_budget = 1000000,
                                           .unit_tokens = 1000,
                                           .step_tokens_max = 100,
                                           .fragments = {r->items, fragments}};
    for (uint32_t i = 0; i < RIG_LEARNERS; i++) {
        r->identities[i] = 11 + i;
        r->process[i] = 1 + i;
    }
    struct pl_check_setup setup = {.manifest = &r->manifest,
                                   .identities = r->identities,
                                   .identity_count = RIG_LEARNERS,
                                   .learners_max = 8,
                                   .conns_max = 16};
    r->c = pl_checks_new(&r->alloc, &setup);
    assert_non_null(r->c);
    for (uint32_t s = 0; s < shards; s++)
        crig_boot(r, s);
}

void crig_free(struct check_rig *r)
{
    pl_checks_free(r->c);
}

void crig_fine(const struct check_rig *r)
{
    const struct pl_check_failure *f = pl_checks_failure(r->c);
    if (f != NULL)
        fail_msg("%s: %s", f->checker, f->text);
    assert_int_equal(pl_checks_status(r->c), PELAGO_OK);
}

void crig_failed(const struct check_rig *r, const char *checker)
{
    const struct pl_check_failure *f = pl_checks_failure(r->c);
    if (f == NULL)
        fail_msg("%s saw nothing", checker);
    else if (strcmp(f->checker, checker) != 0)
        fail_msg("%s failed instead of %s: %s", f->checker, checker, f->text);
}

uint64_t crig_digest(uint32_t fragment, uint64_t version)
{
    return 1000 * (fragment + 1) + version;
}

void crig_event(struct check_rig *r, uint32_t shard, struct pl_sync_event ev)
{
    ev.now_ns = r->now;
    pl_checks_sync_event(r->c, shard, &ev);
}

void crig_effects(struct check_rig *r, uint32_t shard, struct pl_sync_effect *fx, uint32_t count)
{
    struct pl_sync_fxs fxs = {fx, count, count};
    pl_checks_sync_effects(r->c, shard, r->now, &fxs);
}

void crig_effect(struct check_rig *r, uint32_t shard, struct pl_sync_effect fx)
{
    crig_effects(r, shard, &fx, 1);
}

void crig_store(struct check_rig *r, uint32_t shard, struct pl_record record, bool stored)
{
    uint64_t seq = ++r->seq;
    crig_effect(r, shard, (struct pl_sync_effect){.kind = PL_SYNC_FX_STORE, .u.store = {seq, &record}});
    if (stored)
        crig_event(r, shard, (struct pl_sync_event){.kind = PL_SYNC_EV_STORED, .u.stored = {seq, true}});
}

void crig_boot(struct check_rig *r, uint32_t shard)
{
    for (uint32_t p = 0; p < r->manifest.fragments.count; p++)
        if (p % r->manifest.shard_count == shard)
            pl_checks_recovered(r->c, shard, r->now, p, r->version[p], crig_digest(p, r->version[p]));
    crig_event(r, shard, (struct pl_sync_event){.kind = PL_SYNC_EV_BOOT});
    crig_store(r, shard, (struct pl_record){.type = PL_RECORD_BOOT, .epoch = ++r->epoch[shard]}, true);
    crig_effect(r, shard, (struct pl_sync_effect){.kind = PL_SYNC_FX_LISTEN});
}

void crig_crash(struct check_rig *r, uint32_t shard)
{
    pl_checks_sync_crash(r->c, shard, r->now);
}

void crig_message(struct check_rig *r, uint32_t shard, uint32_t conn, struct pl_msg msg)
{
    crig_event(r, shard, (struct pl_sync_event){.kind = PL_SYNC_EV_MSG, .u.msg = {conn, &msg}});
}

void crig_send(struct check_rig *r, uint32_t shard, uint32_t conn, struct pl_msg msg)
{
    crig_effect(r, shard, (struct pl_sync_effect){.kind = PL_SYNC_FX_SEND, .u.send = {conn, msg}});
}

static void open_conn(struct check_rig *r, uint32_t shard, uint32_t conn, uint64_t identity)
{
    crig_event(r, shard, (struct pl_sync_event){.kind = PL_SYNC_EV_OPENED, .u.opened = {conn, identity}});
}

void crig_hello(struct check_rig *r, uint32_t shard, uint32_t learner, uint64_t incarnation)
{
    open_conn(r, shard, 2 * learner, r->identities[learner]);
    crig_message(r, shard, 2 * learner,
                 (struct pl_msg){.type = PL_MSG_HELLO, .u.hello = {.nonce = r->process[learner]}});
    crig_send(
        r, shard, 2 * learner,
        (struct pl_msg){.type = PL_MSG_WELCOME, .u.welcome = {.shard = shard, .incarnation = incarnation}});
}

void crig_join(struct check_rig *r, uint32_t shard, uint32_t learner, uint64_t incarnation)
{
    uint8_t have[RIG_FRAGMENTS_MAX * PL_ITEM_HAVE_BYTES];
    uint32_t n = 0;
    for (uint32_t p = 0; p < r->manifest.fragments.count; p++) {
        struct pl_item_have item = {r->version[p], crig_digest(p, r->version[p])};
        if (p % r->manifest.shard_count == shard)
            pl_item_have_put(have, n++, &item);
    }
    crig_hello(r, shard, learner, incarnation);
    crig_message(r, shard, 2 * learner, (struct pl_msg){.type = PL_MSG_JOIN, .u.join = {.have = {have, n}}});
    open_conn(r, shard, 2 * learner + 1, r->identities[learner]);
    crig_message(r, shard, 2 * learner + 1,
                 (struct pl_msg){.type = PL_MSG_ATTACH, .u.attach = {.incarnation = incarnation}});
}

void crig_leave(struct check_rig *r, uint32_t shard, uint32_t learner)
{
    crig_event(r, shard, (struct pl_sync_event){.kind = PL_SYNC_EV_CLOSED, .u.closed = {2 * learner + 1}});
    crig_event(r, shard, (struct pl_sync_event){.kind = PL_SYNC_EV_CLOSED, .u.closed = {2 * learner}});
}

void crig_step(struct check_rig *r, uint32_t learner)
{
    uint64_t id = pl_step_id(r->process[learner], ++r->steps[learner]);
    for (uint32_t p = 0; p < r->manifest.fragments.count; p++)
        pl_work_step(&r->work[learner][p], id, RIG_STEP_TOKENS);
}

void crig_pull(struct check_rig *r, uint32_t learner, uint32_t fragment, uint64_t tick)
{
    uint32_t shard = fragment % r->manifest.shard_count;
    r->round[fragment] = PL_ROUND(r->epoch[shard], tick);
    crig_send(
        r, shard, 2 * learner,
        (struct pl_msg){.type = PL_MSG_PULL, .u.pull = {fragment, r->round[fragment], r->version[fragment]}});
}

void crig_copy(struct check_rig *r, uint32_t learner, uint32_t fragment)
{
    struct pl_work *w = &r->work[learner][fragment];
    uint64_t digest = 5000 + 100 * learner + r->steps[learner];
    r->copied[learner][fragment] = *w;
    r->push[learner][fragment] = (struct pl_msg_push){.fragment = fragment,
                                                      .round = r->round[fragment],
                                                      .base_version = r->version[fragment],
                                                      .steps = w->steps,
                                                      .tokens = w->tokens,
                                                      .bytes = 100,
                                                      .digest = digest};
    pl_checks_copied(r->c, r->now, r->identities[learner], r->process[learner], fragment, r->round[fragment],
                     digest, w);
}

void crig_push(struct check_rig *r, uint32_t learner, uint32_t fragment)
{
    static const uint8_t bytes[100];
    uint32_t shard = fragment % r->manifest.shard_count;
    const struct pl_msg_push *h = &r->push[learner][fragment];
    crig_message(r, shard, 2 * learner + 1, (struct pl_msg){.type = PL_MSG_PUSH, .u.push = *h});
    crig_message(
        r, shard, 2 * learner + 1,
        (struct pl_msg){.type = PL_MSG_DATA,
                        .u.data = {.fragment = fragment, .id = h->round, .bytes = {bytes, sizeof(bytes)}}});
    struct pl_sync_effect fx[2] = {{.kind = PL_SYNC_FX_KEEP}, {.kind = PL_SYNC_FX_VERIFY}};
    for (uint32_t i = 0; i < 2; i++) {
        fx[i].u.push.learner = learner;
        fx[i].u.push.fragment = fragment;
        fx[i].u.push.round = h->round;
        fx[i].u.push.bytes = h->bytes;
        fx[i].u.push.digest = h->digest;
    }
    crig_effects(r, shard, fx, 2);
    crig_event(r, shard,
               (struct pl_sync_event){.kind = PL_SYNC_EV_VERIFIED,
                                      .u.verified = {learner, fragment, h->round, true}});
}

void crig_tick(struct check_rig *r, uint32_t shard, uint64_t tick)
{
    struct pl_trace t = {PL_TRACE_SYNC_TICK, {tick, RIG_INTERVAL_MS * PL_MS, RIG_LEARNERS, 0}};
    crig_effect(r, shard, (struct pl_sync_effect){.kind = PL_SYNC_FX_TRACE, .u.trace = t});
}

struct pl_sync_effect crig_merge_effect(struct check_rig *r, uint32_t fragment, uint32_t learners)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < RIG_LEARNERS; i++) {
        if ((learners >> i & 1) == 0)
            continue;
        r->contributors[n++] = (struct pl_contributor){.learner = i,
                                                       .identity = r->identities[i],
                                                       .incarnation = 100 + r->process[i],
                                                       .steps = r->push[i][fragment].steps,
                                                       .tokens = r->push[i][fragment].tokens};
    }
    return (struct pl_sync_effect){.kind = PL_SYNC_FX_MERGE,
                                   .u.merge = {.fragment = fragment,
                                               .round = r->round[fragment],
                                               .base_version = r->version[fragment],
                                               .contributor_count = n,
                                               .contributors = r->contributors}};
}

void crig_merged(struct check_rig *r, uint32_t fragment, uint64_t digest)
{
    crig_event(r, fragment % r->manifest.shard_count,
               (struct pl_sync_event){.kind = PL_SYNC_EV_MERGED,
                                      .u.merged = {fragment, r->round[fragment], digest, 50, true}});
}

void crig_store_round(struct check_rig *r, uint32_t fragment, uint32_t learners, bool stored)
{
    uint32_t shard = fragment % r->manifest.shard_count;
    struct pl_sync_effect fx = crig_merge_effect(r, fragment, learners);
    uint64_t version = r->version[fragment] + 1;
    crig_store(r, shard,
               (struct pl_record){.type = PL_RECORD_ROUND,
                                  .epoch = r->epoch[shard],
                                  .fragment = fragment,
                                  .round = r->round[fragment],
                                  .version = version,
                                  .digest = crig_digest(fragment, version),
                                  .update_bytes = 50,
                                  .contributor_count = fx.u.merge.contributor_count,
                                  .contributors = r->contributors},
               stored);
}

void crig_publish(struct check_rig *r, uint32_t fragment)
{
    crig_effect(r, fragment % r->manifest.shard_count,
                (struct pl_sync_effect){.kind = PL_SYNC_FX_PUBLISH,
                                        .u.publish = {fragment, r->version[fragment] + 1, 0}});
    r->version[fragment]++;
}

struct pl_sync_effect crig_deliver_effect(struct check_rig *r, uint32_t learner, uint32_t fragment,
                                          uint64_t last_merged)
{
    uint64_t version = r->version[fragment];
    struct pl_msg_update u = {.fragment = fragment,
                              .from_version = version - 1,
                              .to_version = version,
                              .digest = crig_digest(fragment, version),
                              .last_merged = last_merged,
                              .bytes = 50};
    return (struct pl_sync_effect){.kind = PL_SYNC_FX_DELIVER, .u.deliver = {2 * learner + 1, u, 0}};
}

static void deliver(struct check_rig *r, uint32_t learner, uint32_t fragment)
{
    uint32_t shard = fragment % r->manifest.shard_count;
    crig_effect(r, shard, crig_deliver_effect(r, learner, fragment, r->last_merged[learner][fragment]));
    pl_checks_anchor(r->c, r->now, r->identities[learner], r->process[learner], fragment,
                     r->version[fragment], crig_digest(fragment, r->version[fragment]));
    crig_message(r, shard, 2 * learner,
                 (struct pl_msg){.type = PL_MSG_HAVE, .u.got = {fragment, r->version[fragment]}});
}

void crig_round(struct check_rig *r, uint32_t fragment, uint64_t tick, uint32_t learners)
{
    uint32_t shard = fragment % r->manifest.shard_count;
    for (uint32_t i = 0; i < RIG_LEARNERS; i++) {
        if ((learners >> i & 1) == 0)
            continue;
        crig_step(r, i);
        crig_pull(r, i, fragment, tick);
        crig_copy(r, i, fragment);
        crig_step(r, i); /* training goes on */
        crig_push(r, i, fragment);
    }
    r->now += RIG_INTERVAL_MS * PL_MS;
    crig_tick(r, shard, tick);
    crig_effect(r, shard, crig_merge_effect(r, fragment, learners));
    crig_merged(r, fragment, crig_digest(fragment, r->version[fragment] + 1));
    crig_store_round(r, fragment, learners, true);
    crig_publish(r, fragment);
    for (uint32_t i = 0; i < RIG_LEARNERS; i++) {
        if ((learners >> i & 1) != 0) {
            r->last_merged[i][fragment] = r->round[fragment];
            pl_work_remove(&r->work[i][fragment], &r->copied[i][fragment]);
        }
        deliver(r, i, fragment);
    }
}
