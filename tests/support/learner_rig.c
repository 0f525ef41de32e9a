/* support/learner_rig.c - see learner_rig.h. */
#include "learner_rig.h"

#include "core/learner_int.h"
#include "wire/chunk.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

void lrig_fragment(struct lrig *r, uint32_t i, const struct pl_item_fragment *f)
{
    pl_item_fragment_put(r->items, i, f);
}

void lrig_init(struct lrig *r, const struct pl_learn_options *options)
{
    memset(r, 0, sizeof *r);
    r->options =
        options != NULL ? *options : (struct pl_learn_options){.nonce = 9, .seed = 1, .fragments_max = 8};
    size_t bytes = pl_learner_bytes(&r->options);
    r->memory = malloc(bytes);
    r->out.max = pl_learner_effects_max(&r->options);
    r->out.fx = calloc(r->out.max, sizeof r->out.fx[0]);
    assert_non_null(r->memory);
    assert_non_null(r->out.fx);
    r->l = pl_learner_init(r->memory, bytes, &r->options);
    r->now_ns = 1000;
    r->manifest = (struct pl_msg_manifest){.run_id = RIG_RUN,
                                           .shard_count = 2,
                                           .quorum = 1,
                                           .overlap_steps = 2,
                                           .period_steps = 8,
                                           .staleness_max = 2,
                                           .token_budget = 1000000,
                                           .unit_tokens = 1000,
                                           .step_tokens_max = 4096,
                                           .fragments = {.items = r->items, .count = RIG_FRAGMENTS}};
    for (uint32_t i = 0; i < RIG_FRAGMENTS; i++)
        lrig_fragment(r, i,
                      &(struct pl_item_fragment){.shard = i == 1,
                                                 .offset = i,
                                                 .full_bytes = RIG_FULL_BYTES,
                                                 .push_bytes_max = RIG_FULL_BYTES,
                                                 .update_bytes_max = RIG_UPDATE_BYTES});
}

void lrig_release(struct lrig *r)
{
    free(r->memory);
    free(r->out.fx);
}

void lrig_event(struct lrig *r, struct pl_learn_event ev)
{
    static uint8_t wire[4096];
    ev.now_ns = r->now_ns;
    pl_learner_step(r->l, &ev, &r->out);
    pl_learner_check(r->l);
    for (uint32_t i = 0; i < r->out.count; i++)
        if (r->out.fx[i].kind == PL_LEARN_FX_SEND)
            (void)pl_msg_encode(&r->out.fx[i].u.conn.msg, wire, sizeof wire);
}

void lrig_start(struct lrig *r)
{
    lrig_event(r, (struct pl_learn_event){.kind = PL_LEARN_EV_START});
}

void lrig_opened(struct lrig *r, uint32_t shard, enum pl_link link)
{
    lrig_event(r,
               (struct pl_learn_event){.kind = PL_LEARN_EV_OPENED, .u.conn = {.shard = shard, .link = link}});
}

void lrig_closed(struct lrig *r, uint32_t shard, enum pl_link link)
{
    lrig_event(r,
               (struct pl_learn_event){.kind = PL_LEARN_EV_CLOSED, .u.conn = {.shard = shard, .link = link}});
}

void lrig_msg(struct lrig *r, uint32_t shard, enum pl_link link, struct pl_msg msg)
{
    r->msg = msg;
    lrig_event(r, (struct pl_learn_event){.kind = PL_LEARN_EV_MSG,
                                          .u.conn = {.shard = shard, .link = link, .msg = &r->msg}});
}

void lrig_ready(struct lrig *r)
{
    static const uint64_t digests[RIG_FRAGMENTS] = {100, 101, 102};
    lrig_event(r, (struct pl_learn_event){.kind = PL_LEARN_EV_READY, .u.ready = {.digests = digests}});
}

void lrig_trained(struct lrig *r, uint64_t tokens)
{
    lrig_event(r, (struct pl_learn_event){.kind = PL_LEARN_EV_STEP,
                                          .u.step = {.tokens = tokens, .step_ns = PL_MS, .unit = PL_NONE64}});
}

void lrig_copied(struct lrig *r, uint32_t fragment, uint64_t round, uint64_t bytes)
{
    lrig_event(r, (struct pl_learn_event){.kind = PL_LEARN_EV_COPIED,
                                          .u.copied = {.fragment = fragment,
                                                       .round = round,
                                                       .steps = pl_learner_steps(r->l),
                                                       .tokens = pl_learner_tokens(r->l),
                                                       .bytes = bytes,
                                                       .digest = round * 10}});
}

void lrig_decoded(struct lrig *r, uint32_t fragment, uint64_t version, bool good)
{
    lrig_event(
        r, (struct pl_learn_event){.kind = PL_LEARN_EV_DECODED,
                                   .u.decoded = {.fragment = fragment, .version = version, .good = good}});
}

void lrig_applied(struct lrig *r, uint32_t fragment, uint64_t version)
{
    lrig_event(r, (struct pl_learn_event){.kind = PL_LEARN_EV_APPLIED,
                                          .u.applied = {.fragment = fragment,
                                                        .version = version,
                                                        .steps = pl_learner_steps(r->l),
                                                        .tokens = pl_learner_tokens(r->l)}});
}

void lrig_timeout(struct lrig *r)
{
    uint64_t at = pl_learner_deadline(r->l);
    assert_true(at != PL_NEVER);
    r->now_ns = at > r->now_ns ? at : r->now_ns;
    lrig_event(r, (struct pl_learn_event){.kind = PL_LEARN_EV_TIMEOUT});
}

struct pl_msg lrig_welcome(uint32_t shard)
{
    return (struct pl_msg){.type = PL_MSG_WELCOME,
                           .u.welcome = {.run_id = RIG_RUN,
                                         .shard = shard,
                                         .incarnation = RIG_INCARNATION,
                                         .manifest_digest = RIG_DIGEST,
                                         .heartbeat_ns = PL_SEC}};
}

void lrig_pull(struct lrig *r, uint32_t fragment, uint64_t round, uint64_t base)
{
    lrig_msg(r, fragment == 1, PL_LINK_CONTROL,
             (struct pl_msg){.type = PL_MSG_PULL,
                             .u.pull = {.fragment = fragment, .round = round, .base_version = base}});
}

struct pl_msg lrig_update(uint32_t fragment, uint64_t from, uint64_t to, uint64_t last_merged)
{
    return (struct pl_msg){.type = PL_MSG_UPDATE,
                           .u.update = {.fragment = fragment,
                                        .from_version = from,
                                        .to_version = to,
                                        .digest = 1000 + to,
                                        .last_merged = last_merged,
                                        .bytes = from == PL_NONE64 ? RIG_FULL_BYTES : RIG_UPDATE_BYTES}};
}

void lrig_data(struct lrig *r, uint32_t fragment, uint64_t id, uint64_t bytes, uint32_t index)
{
    static const uint8_t chunk[RIG_FULL_BYTES];
    struct pl_msg msg = {.type = PL_MSG_DATA, .u.data = {.fragment = fragment, .id = id, .index = index}};
    msg.u.data.bytes = (struct pl_blob){.data = chunk, .len = pl_chunk_len(bytes, index)};
    lrig_msg(r, fragment == 1, PL_LINK_BULK, msg);
}

void lrig_deliver(struct lrig *r, struct pl_msg update)
{
    const struct pl_msg_update *m = &update.u.update;
    lrig_msg(r, m->fragment == 1, PL_LINK_BULK, update);
    for (uint32_t i = 0; i < pl_chunk_count(m->bytes); i++)
        lrig_data(r, m->fragment, m->to_version, m->bytes, i);
    assert_non_null(lrig_find(r, PL_LEARN_FX_DECODE));
}

const struct pl_learn_effect *lrig_decide(struct lrig *r, struct pl_msg update)
{
    lrig_deliver(r, update);
    lrig_decoded(r, update.u.update.fragment, update.u.update.to_version, true);
    const struct pl_learn_effect *fx = lrig_find(r, PL_LEARN_FX_APPLY);
    assert_non_null(fx);
    return fx;
}

void lrig_join(struct lrig *r, uint32_t shard)
{
    lrig_opened(r, shard, PL_LINK_CONTROL);
    lrig_msg(r, shard, PL_LINK_CONTROL, lrig_welcome(shard));
    assert_true(pl_learner_live(r->l, shard));
    lrig_opened(r, shard, PL_LINK_BULK);
    lrig_msg(r, shard, PL_LINK_BULK, (struct pl_msg){.type = PL_MSG_ATTACHED});
}

void lrig_home_live(struct lrig *r)
{
    lrig_start(r);
    lrig_opened(r, 0, PL_LINK_CONTROL);
    lrig_msg(r, 0, PL_LINK_CONTROL, lrig_welcome(0));
    lrig_msg(r, 0, PL_LINK_CONTROL, (struct pl_msg){.type = PL_MSG_MANIFEST, .u.manifest = r->manifest});
    lrig_ready(r);
    lrig_opened(r, 0, PL_LINK_BULK);
    lrig_msg(r, 0, PL_LINK_BULK, (struct pl_msg){.type = PL_MSG_ATTACHED});
}

void lrig_live(struct lrig *r)
{
    lrig_home_live(r);
    lrig_join(r, 1);
}

const struct pl_learn_effect *lrig_find(const struct lrig *r, enum pl_learn_fx kind)
{
    for (uint32_t i = 0; i < r->out.count; i++)
        if (r->out.fx[i].kind == kind)
            return &r->out.fx[i];
    return NULL;
}

uint32_t lrig_count(const struct lrig *r, enum pl_learn_fx kind)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->out.count; i++)
        n += r->out.fx[i].kind == kind;
    return n;
}

const struct pl_msg *lrig_sent(const struct lrig *r, uint32_t shard, uint8_t type)
{
    for (uint32_t i = 0; i < r->out.count; i++) {
        const struct pl_learn_effect *fx = &r->out.fx[i];
        if (fx->kind == PL_LEARN_FX_SEND && fx->u.conn.shard == shard && fx->u.conn.msg.type == type)
            return &fx->u.conn.msg;
    }
    return NULL;
}

static bool says(const struct pl_learn_effect *fx, const char *words)
{
    if (fx == NULL)
        fail_msg("no such effect, expected was \"%s\" in its text", words);
    else if (strstr(fx->u.conn.text, words) == NULL)
        fail_msg("the text is \"%s\", expected was \"%s\" in it", fx->u.conn.text, words);
    return fx != NULL;
}

void lrig_expect_disconnect(const struct lrig *r, uint32_t shard, enum pl_link link, enum pl_reason reason,
                            const char *words)
{
    const struct pl_learn_effect *fx = lrig_find(r, PL_LEARN_FX_DISCONNECT);
    if (!says(fx, words))
        return;
    assert_int_equal(fx->u.conn.shard, shard);
    assert_int_equal(fx->u.conn.link, link);
    assert_int_equal(fx->u.conn.reason, reason);
}

void lrig_expect_fatal(const struct lrig *r, const char *words)
{
    (void)says(lrig_find(r, PL_LEARN_FX_FATAL), words);
    assert_true(pl_learner_deadline(r->l) == PL_NEVER);
}

void lrig_expect_quiet(const struct lrig *r)
{
    assert_int_equal(r->out.count, 0);
}
