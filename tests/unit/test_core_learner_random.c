/* The learner under random events in any order the host contract allows, with messages of any content the
 * wire allows: it never asserts, its invariants hold after every step, and its effects keep their own
 * contract. */
#include "learner_rig.h"

#include "base/prng.h"
#include "core/learner_int.h"
#include "seed.h"
#include "wire/chunk.h"
#include "wire_gen.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

enum { SHARDS = 2, RUNS = 150, STEPS = 1500 };

enum link_state { ABSENT, DIALLED, OPEN };

/* What a host knows: links, and the answers it owes. */
struct host {
    struct lrig rig;
    struct pl_prng rng;
    struct wire_gen gen;
    enum link_state links[SHARDS][2];
    bool manifest_given, over;
    struct {
        bool copying, decoding, applying, buffer;
        uint64_t round, version;
    } fragments[RIG_FRAGMENTS];
};

static void perform_update(struct host *h, const struct pl_learn_effect *fx)
{
    uint32_t i = fx->u.update.fragment;
    assert_true(i < RIG_FRAGMENTS);
    switch ((int)fx->kind) {
    case PL_LEARN_FX_KEEP:
        h->fragments[i].buffer = true;
        break;
    case PL_LEARN_FX_FORGET:
        h->fragments[i].buffer = false;
        break;
    case PL_LEARN_FX_DECODE:
        assert_true(h->fragments[i].buffer && !h->fragments[i].decoding && !h->fragments[i].applying);
        h->fragments[i].decoding = true;
        h->fragments[i].version = fx->u.update.to_version;
        break;
    case PL_LEARN_FX_APPLY:
        assert_true(h->fragments[i].buffer && !h->fragments[i].applying);
        assert_true(fx->u.update.commit_residual == (fx->u.update.outcome == PL_OUTCOME_MERGED));
        h->fragments[i].applying = true;
        h->fragments[i].buffer = false;
        break;
    default:
        break;
    }
}

static void perform(struct host *h, const struct pl_learn_effect *fx)
{
    enum link_state *link = &h->links[fx->u.conn.shard % SHARDS][fx->u.conn.link & 1];
    switch (fx->kind) {
    case PL_LEARN_FX_CONNECT:
        assert_int_equal(*link, ABSENT);
        *link = DIALLED;
        break;
    case PL_LEARN_FX_DISCONNECT:
        assert_int_not_equal(*link, ABSENT);
        *link = ABSENT;
        break;
    case PL_LEARN_FX_SEND:
        assert_int_equal(*link, OPEN);
        break;
    case PL_LEARN_FX_MANIFEST:
        h->manifest_given = true;
        break;
    case PL_LEARN_FX_COPY:
        h->fragments[fx->u.push.fragment].copying = true;
        h->fragments[fx->u.push.fragment].round = fx->u.push.round;
        break;
    case PL_LEARN_FX_PUSH:
        assert_int_equal(h->links[fx->u.push.shard][PL_LINK_BULK], OPEN);
        assert_true(fx->u.push.push.steps > 0);
        break;
    case PL_LEARN_FX_KEEP:
    case PL_LEARN_FX_DECODE:
    case PL_LEARN_FX_FORGET:
    case PL_LEARN_FX_APPLY:
        perform_update(h, fx);
        break;
    case PL_LEARN_FX_DONE:
    case PL_LEARN_FX_FATAL:
        assert_true(fx->u.conn.text[0] != '\0');
        h->over = true;
        break;
    case PL_LEARN_FX_CANCEL: /* the copy may have been made already: COPIED may still come */
    case PL_LEARN_FX_UNIT:
    case PL_LEARN_FX_CLOCK:
    case PL_LEARN_FX_STOP:
    case PL_LEARN_FX_TRACE:
        break;
    }
}

static void settle(struct host *h)
{
    for (uint32_t i = 0; i < h->rig.out.count; i++)
        perform(h, &h->rig.out.fx[i]);
}

/* Numbers that sometimes meet the learner's state. */
static uint64_t near(struct host *h, uint64_t v)
{
    return v + pl_prng_below(&h->rng, 3);
}

static void bend(struct host *h, uint32_t shard, struct pl_msg *m)
{
    uint32_t fragment = pl_prng_chance(&h->rng, 20000) ? 1 - shard
                        : shard == 1                   ? 1
                                                       : 2 * (uint32_t)pl_prng_below(&h->rng, 2);
    const struct pl_learner *l = h->rig.l;
    const struct pl_learn_fragment *f = &l->fragments[fragment];
    if (m->type == PL_MSG_WELCOME && !pl_prng_chance(&h->rng, 2000)) {
        *m = lrig_welcome(shard);
        m->u.welcome.phase = (uint8_t)pl_prng_chance(&h->rng, 10000);
    } else if (m->type == PL_MSG_MANIFEST && !pl_prng_chance(&h->rng, 2000)) {
        m->u.manifest = h->rig.manifest;
    } else if (m->type == PL_MSG_PULL) {
        m->u.pull.fragment = fragment;
        m->u.pull.round = near(h, f->round_min);
        m->u.pull.base_version = near(h, f->version > 0 ? f->version - 1 : 0);
    } else if (m->type == PL_MSG_DROP) {
        m->u.drop.fragment = fragment;
        m->u.drop.round = pl_prng_chance(&h->rng, 500000) ? f->pending.round : f->want_round;
    } else if (m->type == PL_MSG_UPDATE) {
        m->u.update.fragment = fragment;
        m->u.update.from_version = pl_prng_chance(&h->rng, 300000) ? PL_NONE64 : f->version;
        m->u.update.to_version = near(h, f->version + 1) + (pl_prng_chance(&h->rng, 100000) ? 3 : 0);
        m->u.update.last_merged = pl_prng_chance(&h->rng, 500000) ? f->pending.round : f->last_merged;
        m->u.update.digest = m->u.update.to_version;
        m->u.update.bytes = pl_prng_chance(&h->rng, 900000) ? RIG_UPDATE_BYTES : m->u.update.bytes;
        m->u.update.flags = pl_prng_chance(&h->rng, 50000);
    } else if (m->type == PL_MSG_DATA && f->update.state == PL_UPDATE_RECEIVING) {
        static const uint8_t zeros[RIG_FULL_BYTES * 2];
        m->u.data.fragment = fragment;
        m->u.data.id = f->update.to_version;
        m->u.data.index = (uint32_t)pl_prng_below(&h->rng, pl_chunk_count(f->update.bytes));
        m->u.data.bytes =
            (struct pl_blob){.data = zeros, .len = pl_chunk_len(f->update.bytes, m->u.data.index)};
    } else if (m->type == PL_MSG_CLOSE && !pl_prng_chance(&h->rng, 5000)) {
        m->u.close.code = PL_REASON_LEAVING;
    } else if (m->type == PL_MSG_REFUSE && !pl_prng_chance(&h->rng, 5000)) {
        m->u.refuse.code = PL_REASON_FULL;
    } else if (m->type == PL_MSG_ATTACHED && pl_prng_chance(&h->rng, 900000)) {
        m->u.attached.partial.count = 0;
    } else if (m->type == PL_MSG_FINISH && !pl_prng_chance(&h->rng, 10000)) {
        m->type = PL_MSG_PONG;
    }
}

/* Mostly what the link expects, sometimes anything. */
static uint8_t choose_type(struct host *h, uint32_t shard, enum pl_link link)
{
    static const uint8_t live[] = {PL_MSG_PULL,  PL_MSG_PULL, PL_MSG_DROP,
                                   PL_MSG_CLOCK, PL_MSG_PING, PL_MSG_FINISH};
    static const uint8_t up[] = {PL_MSG_UPDATE, PL_MSG_DATA, PL_MSG_DATA, PL_MSG_DATA};
    const struct pl_session *s = &h->rig.l->sessions[shard];
    if (pl_prng_chance(&h->rng, 10000))
        return (uint8_t)pl_prng_range(&h->rng, 1, PL_MSG_CLOSE);
    if (link == PL_LINK_BULK)
        return s->bulk == PL_BULK_ATTACHING ? PL_MSG_ATTACHED : up[pl_prng_below(&h->rng, sizeof up)];
    if (s->state == PL_SESSION_GREETING)
        return pl_prng_chance(&h->rng, 50000) ? PL_MSG_REFUSE : PL_MSG_WELCOME;
    if (s->state == PL_SESSION_JOINING)
        return s->manifest_due ? PL_MSG_MANIFEST : PL_MSG_CLOCK;
    if (shard == 0 && pl_prng_chance(&h->rng, 50000))
        return PL_MSG_LEASE;
    return live[pl_prng_below(&h->rng, sizeof live)];
}

static void message(struct host *h, uint32_t shard, enum pl_link link)
{
    struct pl_msg m;
    wire_gen_msg(&h->gen, choose_type(h, shard, link), &m);
    bend(h, shard, &m);
    lrig_msg(&h->rig, shard, link, m);
}

static void network(struct host *h)
{
    uint32_t shard = (uint32_t)pl_prng_below(&h->rng, SHARDS);
    enum pl_link link = pl_prng_chance(&h->rng, 500000) ? PL_LINK_BULK : PL_LINK_CONTROL;
    enum link_state *state = &h->links[shard][link];
    if (*state == ABSENT) {
        return;
    } else if (pl_prng_chance(&h->rng, *state == DIALLED ? 200000 : 3000)) {
        *state = ABSENT;
        lrig_closed(&h->rig, shard, link);
    } else if (*state == DIALLED) {
        *state = OPEN;
        lrig_opened(&h->rig, shard, link);
    } else {
        message(h, shard, link);
    }
}

static void answer(struct host *h, uint32_t i)
{
    if (h->fragments[i].copying) {
        h->fragments[i].copying = false;
        lrig_copied(&h->rig, i, h->fragments[i].round, pl_prng_range(&h->rng, 0, RIG_FULL_BYTES));
    } else if (h->fragments[i].decoding) {
        bool good = !pl_prng_chance(&h->rng, 200000);
        h->fragments[i].decoding = false;
        lrig_decoded(&h->rig, i, h->fragments[i].version, good);
    } else if (h->fragments[i].applying) {
        h->fragments[i].applying = false;
        lrig_applied(&h->rig, i, h->fragments[i].version);
    }
}

static void one_event(struct host *h)
{
    h->rig.out.count = 0;
    h->rig.now_ns += pl_prng_below(&h->rng, 20 * PL_MS);
    uint64_t dice = pl_prng_below(&h->rng, 100);
    if (pl_learner_deadline(h->rig.l) <= h->rig.now_ns ||
        (dice < 5 && pl_learner_deadline(h->rig.l) != PL_NEVER))
        lrig_timeout(&h->rig);
    else if (dice < 15 && h->manifest_given && !h->rig.l->ready)
        lrig_ready(&h->rig);
    else if (dice < 25 && h->rig.l->ready)
        lrig_trained(&h->rig, pl_prng_below(&h->rng, 1000));
    else if (dice < 50)
        answer(h, (uint32_t)pl_prng_below(&h->rng, RIG_FRAGMENTS));
    else
        network(h);
    settle(h);
}

static void survives_anything(void **state)
{
    (void)state;
    uint64_t seed = test_seed();
    static struct host h;
    uint64_t applied = 0;
    for (uint64_t run = 0; run < RUNS; run++) {
        memset(&h, 0, sizeof h);
        pl_prng_seed(&h.rng, seed, run);
        wire_gen_init(&h.gen, seed + run, 3);
        lrig_init(&h.rig, NULL);
        h.rig.manifest.apply = (uint8_t)(run % 3);
        lrig_start(&h.rig);
        settle(&h);
        for (int i = 0; i < STEPS && !h.over; i++)
            one_event(&h);
        if (!h.over) {
            lrig_event(&h.rig, (struct pl_learn_event){.kind = PL_LEARN_EV_QUIT});
            settle(&h);
        }
        assert_true(h.over);
        for (uint32_t i = 0; i < 2 * SHARDS; i++)
            assert_int_equal(h.links[i / 2][i % 2], ABSENT);
        for (uint32_t i = 0; i < h.rig.l->fragment_count; i++)
            applied += h.rig.l->fragments[i].version;
        lrig_release(&h.rig);
    }
    assert_true(applied > RUNS); /* the test does reach the deep states */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(survives_anything)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
