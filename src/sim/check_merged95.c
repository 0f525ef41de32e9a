/* sim/check_merged95.c - a live learner whose lead is under half a period is merged in at least 95% of its rounds.
 *
 * Its rounds are the merges of the shard while the learner was here for some cycles, had something to give, and no
 * fault was on. Its lead is measured here: from PULL to the push being held. A lead near half a period is not judged,
 * nor is a learner with a stride: the rule speaks of learners whose links keep up.
 */
#include "sim/check_int.h"

enum {
    ROUNDS_MIN = 60,
    CYCLES_TO_SETTLE = 4,
    PERCENT = 95,
    MISSES_FREE = 3 /* a short run is a small sample */
};
#define SETTLE_NS (10 * PL_SEC)

struct cell95 {
    uint64_t round, pulled_ns; /* of the last PULL */
    uint64_t skipped;          /* round it had nothing for */
};

struct tally {
    uint64_t here_ns; /* JOINed, or its stride changed */
    uint64_t stride;  /* as last shown; 0 is 1 */
    uint64_t rounds, merged;
    uint64_t leads, lead_sum_ns, lead_max_ns;
};

struct check_merged95 {
    struct cell95 *cells;   /* [honest][fragment_count] */
    struct tally *tallies;  /* [honest][shard_count] */
    uint64_t *interval_sum; /* [shard_count] over the ticks below */
    uint64_t *ticks;        /* [shard_count] */
};

static bool init(struct pl_checks *c)
{
    struct check_merged95 *m = c->merged95 = pl_check_zero(c, 1, sizeof(*m));
    size_t honest = c->setup.identity_count;
    if (m == NULL)
        return false;
    m->cells = pl_check_zero(c, honest * c->fragment_count, sizeof(*m->cells));
    m->tallies = pl_check_zero(c, honest * c->shard_count, sizeof(*m->tallies));
    m->interval_sum = pl_check_zero(c, c->shard_count, sizeof(*m->interval_sum));
    m->ticks = pl_check_zero(c, c->shard_count, sizeof(*m->ticks));
    return c->status == PELAGO_OK;
}

static struct tally *tally_of(const struct pl_checks *c, uint32_t person, uint32_t shard)
{
    return &c->merged95->tallies[(size_t)person * c->shard_count + shard];
}

static struct cell95 *cell_of(const struct pl_checks *c, uint32_t person, uint32_t fragment)
{
    return &c->merged95->cells[(size_t)person * c->fragment_count + fragment];
}

static uint64_t interval(const struct pl_checks *c, uint32_t shard)
{
    return c->merged95->ticks[shard] == 0 ? 0 : c->merged95->interval_sum[shard] / c->merged95->ticks[shard];
}

static void sync_event(struct pl_checks *c, uint32_t shard, const struct pl_sync_event *ev)
{
    if (ev->kind == PL_SYNC_EV_VERIFIED && ev->u.verified.good &&
        ev->u.verified.fragment < c->fragment_count) {
        uint32_t person = c->shards[shard].slot_person[ev->u.verified.learner];
        if (!pl_check_honest(c, person))
            return;
        const struct cell95 *k = cell_of(c, person, ev->u.verified.fragment);
        struct tally *t = tally_of(c, person, shard);
        if (k->round != ev->u.verified.round)
            return;
        uint64_t lead = ev->now_ns - k->pulled_ns;
        t->leads++;
        t->lead_sum_ns += lead;
        t->lead_max_ns = lead > t->lead_max_ns ? lead : t->lead_max_ns;
    } else if (ev->kind == PL_SYNC_EV_MSG && pl_check_honest(c, pl_check_sender(c, shard))) {
        uint32_t person = pl_check_sender(c, shard);
        const struct pl_msg *msg = ev->u.msg.msg;
        if (msg->type == PL_MSG_JOIN)
            tally_of(c, person, shard)->here_ns = ev->now_ns;
        else if (msg->type == PL_MSG_HELLO && msg->u.hello.incarnation == 0)
            tally_of(c, person, shard)->stride = 1; /* a new process begins anew */
        else if (msg->type == PL_MSG_SKIP && msg->u.skip.fragment < c->fragment_count)
            cell_of(c, person, msg->u.skip.fragment)->skipped = msg->u.skip.round;
    }
}

/* Is this round one that counts for this learner? */
static bool counts(const struct pl_checks *c, uint32_t person, uint32_t shard, uint64_t now)
{
    const struct check_shard *s = &c->shards[shard];
    uint64_t settle = SETTLE_NS + (uint64_t)CYCLES_TO_SETTLE * c->period * interval(c, shard);
    return c->calm && !s->closing && s->control[person] != PL_NONE32 && now > c->calm_ns + settle &&
           tally_of(c, person, shard)->stride <= 1 && now > tally_of(c, person, shard)->here_ns + settle;
}

static void on_merge(struct pl_checks *c, uint32_t shard, uint64_t now, const struct pl_sync_effect *fx)
{
    for (uint32_t i = 0; i < c->setup.identity_count; i++) {
        const struct cell95 *k = cell_of(c, i, fx->u.merge.fragment);
        if (!counts(c, i, shard, now) || k->skipped == fx->u.merge.round)
            continue;
        struct tally *t = tally_of(c, i, shard);
        t->rounds++;
        for (uint32_t j = 0; j < fx->u.merge.contributor_count; j++)
            t->merged += fx->u.merge.contributors[j].identity == c->people[i] ? 1 : 0;
    }
}

static void on_stride(struct pl_checks *c, uint32_t shard, uint64_t now, const struct pl_trace *t)
{
    uint32_t person = pl_check_person(c, t->arg[0]);
    if (!pl_check_honest(c, person))
        return;
    tally_of(c, person, shard)->stride = t->arg[1];
    tally_of(c, person, shard)->here_ns = now;
}

static void sync_effect(struct pl_checks *c, uint32_t shard, uint64_t now, const struct pl_sync_effect *fx)
{
    if (fx->kind == PL_SYNC_FX_TRACE && fx->u.trace.code == PL_TRACE_SYNC_TICK) {
        c->merged95->interval_sum[shard] += fx->u.trace.arg[1];
        c->merged95->ticks[shard]++;
    } else if (fx->kind == PL_SYNC_FX_TRACE && fx->u.trace.code == PL_TRACE_SYNC_STRIDE) {
        on_stride(c, shard, now, &fx->u.trace);
    } else if (fx->kind == PL_SYNC_FX_SEND && fx->u.send.msg.type == PL_MSG_PULL) {
        uint32_t person = c->shards[shard].conns[fx->u.send.conn].person;
        if (pl_check_honest(c, person)) {
            struct cell95 *k = cell_of(c, person, fx->u.send.msg.u.pull.fragment);
            k->round = fx->u.send.msg.u.pull.round;
            k->pulled_ns = now;
        }
    } else if (fx->kind == PL_SYNC_FX_MERGE) {
        on_merge(c, shard, now, fx);
    }
}

static void calm(struct pl_checks *c, uint64_t now, uint64_t bound_ns)
{
    (void)now;
    (void)bound_ns;
    for (size_t i = 0; i < (size_t)c->setup.identity_count * c->shard_count; i++) {
        struct tally *t = &c->merged95->tallies[i];
        t->rounds = t->merged = t->leads = t->lead_sum_ns = t->lead_max_ns = 0;
    }
    for (uint32_t s = 0; s < c->shard_count; s++)
        c->merged95->interval_sum[s] = c->merged95->ticks[s] = 0;
}

static void end(struct pl_checks *c, uint64_t now)
{
    for (uint32_t i = 0; i < c->setup.identity_count; i++) {
        for (uint32_t s = 0; s < c->shard_count; s++) {
            const struct tally *t = tally_of(c, i, s);
            uint64_t half = c->period * interval(c, s) / 2;
            if (t->rounds < ROUNDS_MIN || t->leads == 0 || t->lead_max_ns >= half)
                continue;
            if ((t->merged + MISSES_FREE) * 100 < t->rounds * PERCENT)
                pl_check_fail(
                    c, "merged95", now,
                    "learner %lu was in %lu of %lu merges of shard %u, with a lead of %lu ms and half a "
                    "period of %lu ms",
                    c->people[i], t->merged, t->rounds, s, t->lead_sum_ns / t->leads / PL_MS, half / PL_MS);
        }
    }
}

const struct pl_checker pl_check_merged95 = {
    .name = "merged95",
    .init = init,
    .sync_event = sync_event,
    .sync_effect = sync_effect,
    .calm = calm,
    .end = end,
};
