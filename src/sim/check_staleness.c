/* sim/check_staleness.c - a merge builds on the newest version, and so does everything in it.
 *
 * Every contribution names the version it was made from; that must be the published one the merge builds on. And a
 * learner that comes back with an anchor more than staleness_max versions old, after the shard's clock went on by as
 * many cycles without it, discards the work since its last merge. Nobody else does: in mode rebase a process never
 * loses work, unless it began from a checkpoint or another process of the same learner was merged beside it.
 */
#include "base/num.h"
#include "sim/check_int.h"

/* What a learner process said in JOIN. */
struct said {
    uint64_t process;
    uint64_t version;
    uint32_t taken; /* values since; the first may be one that was on its way before */
    bool present;   /* a PULL was answered since: it builds on the newest version */
    bool long_away; /* the shard's clock went on by staleness_max cycles since it last heard of the learner */
};

struct check_staleness {
    struct said *said; /* [honest][fragment_count] */
    uint64_t *process; /* [honest][fragment_count] that took a value last */
    uint64_t *merged;  /* [honest][fragment_count] process whose push was merged last */
    uint64_t *heard;   /* [honest][shard_count] the shard's clock when it last heard of the learner */
};

static bool init(struct pl_checks *c)
{
    struct check_staleness *s = c->staleness = pl_check_zero(c, 1, sizeof(*s));
    size_t cells = (size_t)c->setup.identity_count * c->fragment_count;
    if (s != NULL)
        s->said = pl_check_zero(c, cells, sizeof(*s->said));
    if (s != NULL)
        s->process = pl_check_zero(c, cells, sizeof(*s->process));
    if (s != NULL)
        s->merged = pl_check_zero(c, cells, sizeof(*s->merged));
    if (s != NULL)
        s->heard = pl_check_zero(c, (size_t)c->setup.identity_count * c->shard_count, sizeof(*s->heard));
    return c->status == PELAGO_OK;
}

static void sync_event(struct pl_checks *c, uint32_t shard, const struct pl_sync_event *ev)
{
    uint32_t person = ev->kind == PL_SYNC_EV_MSG ? pl_check_sender(c, shard) : PL_NONE32;
    if (pl_check_honest(c, person) && c->shards[shard].control[person] != PL_NONE32)
        c->staleness->heard[(size_t)person * c->shard_count + shard] = c->shards[shard].tick;
}

static void sync_effect(struct pl_checks *c, uint32_t shard, uint64_t now, const struct pl_sync_effect *fx)
{
    (void)shard;
    if (fx->kind != PL_SYNC_FX_MERGE)
        return;
    uint32_t fragment = fx->u.merge.fragment;
    uint64_t base = fx->u.merge.base_version, version = c->fragments[fragment].version;
    if (base != version)
        pl_check_fail(c, "staleness", now, "fragment %u is merged onto version %lu, the published one is %lu",
                      fragment, base, version);
    for (uint32_t i = 0; i < fx->u.merge.contributor_count; i++) {
        uint64_t identity = fx->u.merge.contributors[i].identity;
        uint32_t person = pl_check_person(c, identity);
        if (person == PL_NONE32) {
            pl_check_fail(c, "staleness", now, "fragment %u merges a push of %lu, who never connected",
                          fragment, identity);
            return;
        }
        const struct check_push *push = pl_check_push(c, person, fragment);
        if (push->header.base_version != base || push->header.round != fx->u.merge.round)
            pl_check_fail(
                c, "staleness", now,
                "fragment %u: a merge onto version %lu takes a push of learner %lu that builds on %lu",
                fragment, base, identity, push->header.base_version);
        if (pl_check_honest(c, person))
            (void)pl_check_copy(c, person, fragment, push->header.round, push->header.digest,
                                &c->staleness->merged[(size_t)person * c->fragment_count + fragment]);
    }
}

static void on_join(struct pl_checks *c, uint32_t person, uint64_t process, uint32_t shard,
                    const struct pl_msg_join *join)
{
    uint32_t i = 0;
    uint64_t away =
        pl_sub_sat(c->shards[shard].tick, c->staleness->heard[(size_t)person * c->shard_count + shard]);
    bool long_away = away >= (uint64_t)c->setup.manifest->staleness_max * c->period;
    for (uint32_t p = 0; p < c->fragment_count && i < join->have.count; p++) {
        if (c->fragments[p].shard != shard)
            continue;
        struct pl_item_have have = pl_item_have_at(&join->have, i++);
        c->staleness->said[(size_t)person * c->fragment_count + p] =
            (struct said){process, have.version, 0, false, long_away};
    }
}

static void on_apply(struct pl_checks *c, uint32_t person, uint64_t process, uint64_t now,
                     const struct pl_learn_effect *fx)
{
    uint32_t fragment = fx->u.update.fragment, bound = c->setup.manifest->staleness_max;
    size_t cell = (size_t)person * c->fragment_count + fragment;
    struct said *s = &c->staleness->said[cell];
    bool first = c->staleness->process[cell] != process;
    bool alone = c->staleness->merged[cell] == 0 || c->staleness->merged[cell] == process;
    uint64_t to = fx->u.update.to_version;
    bool behind = !s->present && to > s->version && to - s->version > bound;
    c->staleness->process[cell] = process;
    if (s->process != process)
        return; /* another process of this learner has joined since: what this one said is not known any more */
    uint32_t taken = s->taken++;
    if (fx->u.update.outcome != PL_OUTCOME_DISCARD && behind && s->long_away && taken == 0)
        pl_check_fail(
            c, "staleness", now,
            "learner %lu came back with fragment %u at version %lu, takes %lu and keeps its work; at most "
            "%u versions may lie between",
            c->people[person], fragment, s->version, to, bound);
    else if (fx->u.update.outcome == PL_OUTCOME_DISCARD && !first && alone && !(behind && taken <= 1) &&
             c->setup.manifest->apply == 0)
        pl_check_fail(
            c, "staleness", now,
            "learner %lu takes version %lu of fragment %u and drops its work, although it never lost touch "
            "with this history",
            c->people[person], to, fragment);
}

static void answered(struct pl_checks *c, uint32_t person, uint64_t process, uint32_t fragment)
{
    struct said *s = &c->staleness->said[(size_t)person * c->fragment_count + fragment];
    if (s->process == process)
        s->present = true;
}

static void learn_effect(struct pl_checks *c, uint32_t person, uint64_t process, uint64_t now,
                         const struct pl_learn_effect *fx)
{
    if (fx->kind == PL_LEARN_FX_SEND && fx->u.conn.msg.type == PL_MSG_JOIN)
        on_join(c, person, process, fx->u.conn.shard, &fx->u.conn.msg.u.join);
    else if (fx->kind == PL_LEARN_FX_SEND && fx->u.conn.msg.type == PL_MSG_SKIP)
        answered(c, person, process, fx->u.conn.msg.u.skip.fragment);
    else if (fx->kind == PL_LEARN_FX_COPY)
        answered(c, person, process, fx->u.push.fragment);
    else if (fx->kind == PL_LEARN_FX_APPLY)
        on_apply(c, person, process, now, fx);
}

const struct pl_checker pl_check_staleness = {
    .name = "staleness",
    .init = init,
    .sync_event = sync_event,
    .sync_effect = sync_effect,
    .learn_effect = learn_effect,
};
