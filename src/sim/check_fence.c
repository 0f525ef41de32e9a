/* sim/check_fence.c - one process of a learner at a time.
 *
 * Once a shard has welcomed an incarnation, older ones of the same identity have no connection there and nothing of
 * theirs is merged. Two processes never share an incarnation. An identity is in a merge once. A peer that lies about
 * its own incarnation harms only itself and is not judged.
 */
#include "sim/check_int.h"

struct given {
    uint64_t identity, incarnation, nonce;
};

struct check_fence {
    struct given *given; /* by the home shard, to honest learners */
    uint32_t count, cap;
    uint64_t *nonce; /* [person_max] of the HELLO being answered by the home shard */
};

static bool init(struct pl_checks *c)
{
    struct check_fence *f = c->fence = pl_check_zero(c, 1, sizeof(*f));
    if (f != NULL)
        f->nonce = pl_check_zero(c, c->person_max, sizeof(*f->nonce));
    return c->status == PELAGO_OK;
}

static void sync_event(struct pl_checks *c, uint32_t shard, const struct pl_sync_event *ev)
{
    uint32_t person = pl_check_sender(c, shard);
    if (ev->kind == PL_SYNC_EV_MSG && ev->u.msg.msg->type == PL_MSG_HELLO && person != PL_NONE32)
        c->fence->nonce[person] = ev->u.msg.msg->u.hello.nonce;
}

static void on_given(struct pl_checks *c, uint64_t now, uint32_t person, uint64_t incarnation)
{
    struct check_fence *f = c->fence;
    uint64_t identity = c->people[person], nonce = f->nonce[person];
    for (uint32_t i = 0; i < f->count; i++) {
        const struct given *g = &f->given[i];
        if (g->identity == identity && g->incarnation == incarnation && g->nonce == nonce)
            return;
        if (g->incarnation == incarnation)
            pl_check_fail(c, "fence", now,
                          "incarnation %lx of learner %lu is given to another process of learner %lu",
                          incarnation, g->identity, identity);
    }
    if (pl_check_room(c, &f->given, &f->cap, f->count + 1, sizeof(*f->given)))
        f->given[f->count++] = (struct given){identity, incarnation, nonce};
}

static void on_merge(struct pl_checks *c, uint32_t shard, uint64_t now, const struct pl_sync_effect *fx)
{
    uint64_t before = 0;
    for (uint32_t i = 0; i < fx->u.merge.contributor_count; i++) {
        const struct pl_contributor *k = &fx->u.merge.contributors[i];
        uint32_t person = pl_check_person(c, k->identity);
        if (i > 0 && k->identity <= before)
            pl_check_fail(c, "fence", now, "fragment %u: learner %lu stands after learner %lu in a merge",
                          fx->u.merge.fragment, k->identity, before);
        before = k->identity;
        uint64_t newest = pl_check_honest(c, person) ? c->shards[shard].incarnation[person] : 0;
        if (newest != 0 && k->incarnation != newest)
            pl_check_fail(c, "fence", now,
                          "fragment %u merges a push of process %lx of learner %lu, %lx has taken over",
                          fx->u.merge.fragment, k->incarnation, k->identity, newest);
    }
}

static void sync_effect(struct pl_checks *c, uint32_t shard, uint64_t now, const struct pl_sync_effect *fx)
{
    if (fx->kind == PL_SYNC_FX_MERGE) {
        on_merge(c, shard, now, fx);
    } else if (fx->kind == PL_SYNC_FX_SEND && fx->u.send.msg.type == PL_MSG_WELCOME) {
        uint32_t person = c->shards[shard].conns[fx->u.send.conn].person;
        uint64_t incarnation = fx->u.send.msg.u.welcome.incarnation;
        if (!pl_check_honest(c, person))
            return;
        if (incarnation < c->shards[shard].incarnation[person])
            pl_check_fail(c, "fence", now, "shard %u welcomes process %lx of learner %lu after process %lx",
                          shard, incarnation, c->people[person], c->shards[shard].incarnation[person]);
        if (shard == 0)
            on_given(c, now, person, incarnation);
    }
}

/* After a step no connection of a fenced process is left. */
static void sync_stepped(struct pl_checks *c, uint32_t shard, uint64_t now)
{
    const struct check_shard *s = &c->shards[shard];
    if (s->msg_conn == PL_NONE32 || !pl_check_honest(c, s->conns[s->msg_conn].person))
        return;
    uint32_t person = s->conns[s->msg_conn].person;
    uint64_t newest = s->incarnation[person];
    const struct check_conn *k = &s->conns[s->msg_conn];
    if (k->incarnation != 0 && k->incarnation < newest)
        pl_check_fail(c, "fence", now,
                      "a message of process %lx of learner %lu is answered, %lx has taken over",
                      k->incarnation, c->people[person], newest);
}

const struct pl_checker pl_check_fence = {
    .name = "fence",
    .init = init,
    .sync_event = sync_event,
    .sync_effect = sync_effect,
    .sync_stepped = sync_stepped,
};
