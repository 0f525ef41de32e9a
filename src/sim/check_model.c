/* sim/check_model.c - the core and the naive model (model.h) are fed the same events; their answers are compared. */
#include "sim/check_int.h"
#include "sim/model.h"

/* All shards' fragments stand in one table by their numbers in the manifest, so a model per shard would only repeat it;
 * incarnations are per shard. */
static bool init(struct pl_checks *c)
{
    c->model = pl_check_zero(c, c->shard_count, sizeof(*c->model));
    if (c->model == NULL)
        return false;
    for (uint32_t s = 0; s < c->shard_count; s++) {
        struct pl_model *m = &c->model[s];
        m->people = c->person_max;
        m->fragments = c->fragment_count;
        m->quorum = c->quorum;
        m->period = c->period;
        m->incarnation = pl_check_zero(c, c->person_max, sizeof(*m->incarnation));
        m->cells = pl_check_zero(c, (size_t)c->person_max * c->fragment_count, sizeof(*m->cells));
        m->fragment = pl_check_zero(c, c->fragment_count, sizeof(*m->fragment));
    }
    return c->status == PELAGO_OK;
}

static void on_join(struct pl_checks *c, uint32_t shard, uint32_t person, const struct pl_msg_join *join)
{
    uint32_t i = 0;
    for (uint32_t p = 0; p < c->fragment_count; p++) {
        if (c->fragments[p].shard != shard)
            continue;
        struct model_cell *cell = pl_model_cell(&c->model[shard], person, p);
        cell->asked_here = false;
        cell->acked_known = i < join->have.count;
        if (cell->acked_known)
            cell->acked = pl_item_have_at(&join->have, i++).version;
    }
}

static void on_message(struct pl_checks *c, uint32_t shard, uint32_t conn, const struct pl_msg *msg)
{
    struct pl_model *m = &c->model[shard];
    uint32_t person = c->shards[shard].conns[conn].person;
    if (person == PL_NONE32 || c->shards[shard].control[person] != conn)
        return;
    if (msg->type == PL_MSG_JOIN)
        on_join(c, shard, person, &msg->u.join);
    else if (msg->type == PL_MSG_SKIP && pl_check_owns(c, shard, msg->u.skip.fragment))
        pl_model_unasked(m, person, msg->u.skip.fragment, msg->u.skip.round);
    else if (msg->type == PL_MSG_HAVE && pl_check_owns(c, shard, msg->u.got.fragment))
        pl_model_cell(m, person, msg->u.got.fragment)->acked = msg->u.got.version;
}

static void sync_event(struct pl_checks *c, uint32_t shard, const struct pl_sync_event *ev)
{
    struct pl_model *m = &c->model[shard];
    if (ev->kind == PL_SYNC_EV_MSG) {
        on_message(c, shard, ev->u.msg.conn, ev->u.msg.msg);
    } else if (ev->kind == PL_SYNC_EV_VERIFIED && ev->u.verified.fragment < c->fragment_count) {
        uint32_t person = c->shards[shard].slot_person[ev->u.verified.learner], p = ev->u.verified.fragment;
        if (person == PL_NONE32)
            return;
        const struct pl_msg_push *h = &pl_check_push(c, person, p)->header;
        if (h->round != ev->u.verified.round)
            return;
        if (ev->u.verified.good)
            pl_model_held(m, person, p, h->round, h->steps, h->tokens);
        else
            pl_model_unasked(m, person, p, h->round);
    } else if (ev->kind == PL_SYNC_EV_MERGED && !ev->u.merged.good &&
               ev->u.merged.fragment < c->fragment_count) {
        pl_model_merge_failed(m, ev->u.merged.fragment);
    }
}

static void on_pull(struct pl_checks *c, uint32_t shard, uint64_t now, uint32_t person,
                    const struct pl_msg_pull *pull)
{
    struct pl_model *m = &c->model[shard];
    const struct check_shard *s = &c->shards[shard];
    uint64_t identity = c->people[person];
    const struct model_fragment *f = &m->fragment[pull->fragment];
    uint64_t tick = pl_round_tick(pull->round);
    /* Repeated in a new session: the first one may be lost, and the round may be past its due tick and still open. */
    bool again = pl_model_owed_drop(m, person, pull->fragment, pull->round);
    if (!pl_check_owns(c, shard, pull->fragment) || s->control[person] == PL_NONE32)
        pl_check_fail(c, "model", now, "shard %u pulls fragment %u from learner %lu, who is not asked for it",
                      shard, pull->fragment, identity);
    else if (pull->base_version != f->version || f->merging != 0)
        pl_check_fail(c, "model", now, "fragment %u is pulled on version %lu; the model has version %lu%s",
                      pull->fragment, pull->base_version, f->version,
                      f->merging != 0 ? " and a merge under way" : "");
    else if ((again && pl_model_cell(m, person, pull->fragment)->asked_here) ||
             pl_model_takes_part(m, person, pull->fragment, pull->round))
        pl_check_fail(c, "model", now, "fragment %u is pulled twice from learner %lu for one round",
                      pull->fragment, identity);
    else if (pl_round_epoch(pull->round) != s->epoch)
        pl_check_fail(c, "model", now, "fragment %u is pulled for a round of epoch %lu in epoch %lu",
                      pull->fragment, pl_round_epoch(pull->round), s->epoch);
    else if (!s->closing && !again &&
             (tick <= s->tick || tick % c->period != c->fragments[pull->fragment].offset))
        pl_check_fail(c, "model", now, "fragment %u is pulled at tick %lu for tick %lu, when it is not due",
                      pull->fragment, s->tick, tick);
    if (m->fragment[pull->fragment].round != pull->round)
        m->fragment[pull->fragment].closing = s->closing;
    pl_model_pulled(m, now, person, pull->fragment, pull->round);
}

/* A closing round takes everybody's remainder: who is here and was asked is waited for, up to a deadline. */
#define CLOSING_NS (10 * PL_SEC)
static void all_asked_in(struct pl_checks *c, uint32_t shard, uint64_t now, uint32_t fragment, uint64_t round)
{
    const struct pl_model *m = &c->model[shard];
    if (now - m->fragment[fragment].since_ns >= CLOSING_NS)
        return;
    for (uint32_t i = 0; i < c->person_count; i++)
        if (pl_model_owed_drop(m, i, fragment, round) && c->shards[shard].control[i] != PL_NONE32)
            pl_check_fail(c, "model", now, "the closing round of fragment %u does not wait for learner %lu",
                          fragment, c->people[i]);
}

static void on_merge(struct pl_checks *c, uint32_t shard, uint64_t now, const struct pl_sync_effect *fx)
{
    struct pl_model *m = &c->model[shard];
    uint32_t p = fx->u.merge.fragment, expected = 0;
    uint64_t round = fx->u.merge.round;
    bool closing = c->shards[shard].closing;
    for (uint32_t i = 0; i < m->people; i++)
        expected += pl_model_takes_part(m, i, p, round) ? 1 : 0;
    for (uint32_t i = 0; i < fx->u.merge.contributor_count; i++) {
        const struct pl_contributor *k = &fx->u.merge.contributors[i];
        uint32_t person = pl_check_person(c, k->identity);
        const struct model_cell *cell = person == PL_NONE32 ? NULL : pl_model_cell(m, person, p);
        if (cell == NULL || cell->held != round || cell->steps != k->steps || cell->tokens != k->tokens)
            pl_check_fail(c, "model", now,
                          "fragment %u, round %lu.%lu: learner %lu with %lu steps is in the merge; "
                          "in the model it is not",
                          p, pl_round_epoch(round), pl_round_tick(round), k->identity, k->steps);
    }
    if (fx->u.merge.contributor_count != expected)
        pl_check_fail(c, "model", now,
                      "fragment %u, round %lu.%lu: %u learners are in the merge, in the model %u", p,
                      pl_round_epoch(round), pl_round_tick(round), fx->u.merge.contributor_count, expected);
    else if (expected == 0 || (!closing && expected < m->quorum))
        pl_check_fail(c, "model", now, "fragment %u is merged with %u learners; the quorum is %u", p,
                      expected, m->quorum);
    else if (fx->u.merge.base_version != m->fragment[p].version || m->fragment[p].merging != 0)
        pl_check_fail(c, "model", now, "fragment %u is merged onto version %lu; the model is at %lu", p,
                      fx->u.merge.base_version, m->fragment[p].version);
    else if (!closing && pl_round_tick(round) > c->shards[shard].tick)
        pl_check_fail(c, "model", now, "fragment %u is merged for tick %lu at tick %lu, before it is due", p,
                      pl_round_tick(round), c->shards[shard].tick);
    if (closing && m->fragment[p].round == round && pl_round_tick(round) > c->shards[shard].tick)
        all_asked_in(c, shard, now, p, round);
    pl_model_merge(m, p, round);
}

static void on_deliver(struct pl_checks *c, uint32_t shard, uint64_t now, const struct pl_sync_effect *fx)
{
    struct pl_model *m = &c->model[shard];
    const struct pl_msg_update *u = &fx->u.deliver.header;
    uint32_t person = c->shards[shard].conns[fx->u.deliver.conn].person;
    if (person == PL_NONE32 || !pl_check_owns(c, shard, u->fragment))
        return;
    const struct model_cell *cell = pl_model_cell(m, person, u->fragment);
    bool honest = pl_check_honest(c, person);
    if (u->to_version != m->fragment[u->fragment].version)
        pl_check_fail(c, "model", now, "fragment %u: an update leads to version %lu, the model is at %lu",
                      u->fragment, u->to_version, m->fragment[u->fragment].version);
    else if (u->last_merged != cell->last_merged)
        pl_check_fail(
            c, "model", now,
            "fragment %u: learner %lu is told that round %lu.%lu was its last merged one; it is %lu.%lu",
            u->fragment, c->people[person], pl_round_epoch(u->last_merged), pl_round_tick(u->last_merged),
            pl_round_epoch(cell->last_merged), pl_round_tick(cell->last_merged));
    else if (u->from_version != PL_NONE64 && (!cell->acked_known || u->from_version != cell->acked))
        pl_check_fail(c, "model", now,
                      "fragment %u: learner %lu has version %lu and is sent a chain from %lu", u->fragment,
                      c->people[person], cell->acked, u->from_version);
    else if (honest && (u->flags & 1) != 0)
        pl_check_fail(c, "model", now,
                      "fragment %u: learner %lu is told to drop its work, which is of this history",
                      u->fragment, c->people[person]);
}

static void on_send(struct pl_checks *c, uint32_t shard, uint64_t now, const struct pl_sync_effect *fx)
{
    struct pl_model *m = &c->model[shard];
    const struct pl_msg *msg = &fx->u.send.msg;
    uint32_t person = c->shards[shard].conns[fx->u.send.conn].person;
    if (person == PL_NONE32)
        return;
    if (msg->type == PL_MSG_WELCOME)
        pl_model_welcome(m, person, msg->u.welcome.incarnation);
    else if (msg->type == PL_MSG_PULL && msg->u.pull.fragment < c->fragment_count)
        on_pull(c, shard, now, person, &msg->u.pull);
    else if (msg->type == PL_MSG_DROP && msg->u.drop.fragment < c->fragment_count) {
        if (pl_model_takes_part(m, person, msg->u.drop.fragment, msg->u.drop.round) ||
            pl_model_cell(m, person, msg->u.drop.fragment)->last_merged == msg->u.drop.round)
            pl_check_fail(c, "model", now,
                          "fragment %u: learner %lu is told to drop a push that is held or merged",
                          msg->u.drop.fragment, c->people[person]);
        pl_model_unasked(m, person, msg->u.drop.fragment, msg->u.drop.round);
    }
}

static void sync_effect(struct pl_checks *c, uint32_t shard, uint64_t now, const struct pl_sync_effect *fx)
{
    struct pl_model *m = &c->model[shard];
    if (fx->kind == PL_SYNC_FX_SEND) {
        on_send(c, shard, now, fx);
    } else if (fx->kind == PL_SYNC_FX_MERGE) {
        on_merge(c, shard, now, fx);
    } else if (fx->kind == PL_SYNC_FX_DELIVER) {
        on_deliver(c, shard, now, fx);
    } else if (fx->kind == PL_SYNC_FX_PUBLISH) {
        pl_model_published(m, fx->u.publish.fragment);
        if (m->fragment[fx->u.publish.fragment].version != fx->u.publish.version)
            pl_check_fail(c, "model", now, "fragment %u: version %lu is published, the model is at %lu",
                          fx->u.publish.fragment, fx->u.publish.version,
                          m->fragment[fx->u.publish.fragment].version);
    }
}

#define CLOSING_PATIENCE_NS (21 * PL_SEC)

/* A round that is due, has its quorum and waits for nobody is merged at once; a closing round may hope for a while
 * that who left a moment ago comes back. */
static void not_merged(struct pl_checks *c, uint32_t shard, uint64_t now)
{
    for (uint32_t p = 0; p < c->fragment_count; p++) {
        struct model_fragment *f = &c->model[shard].fragment[p];
        bool due = f->round != 0 && (f->closing || pl_round_tick(f->round) <= c->shards[shard].tick);
        if (!due || !pl_model_ready(&c->model[shard], p, c->shards[shard].control)) {
            f->ready_ns = 0;
            continue;
        }
        if (f->ready_ns == 0)
            f->ready_ns = now;
        else if (now > f->ready_ns + (f->closing ? CLOSING_PATIENCE_NS : 0))
            pl_check_fail(c, "model", now, "fragment %u waits for nobody since %lu ms and is not merged", p,
                          (now - f->ready_ns) / PL_MS);
    }
}

/* A learner that was asked, is here and is not in the merge has been told so in the same step. */
static void sync_stepped(struct pl_checks *c, uint32_t shard, uint64_t now)
{
    struct pl_model *m = &c->model[shard];
    for (uint32_t p = 0; p < c->fragment_count; p++) {
        uint64_t round = m->fragment[p].merging;
        for (uint32_t i = 0; i < c->person_count && round != 0; i++) {
            if (!pl_model_owed_drop(m, i, p, round))
                continue;
            if (c->shards[shard].control[i] != PL_NONE32)
                pl_check_fail(c, "model", now,
                              "fragment %u was merged without learner %lu, who was asked and not told", p,
                              c->people[i]);
            pl_model_unasked(m, i, p, round);
        }
    }
    not_merged(c, shard, now);
}

static void crash(struct pl_checks *c, uint32_t shard, uint64_t now)
{
    (void)now;
    pl_model_crash(&c->model[shard]);
}

static void recovered(struct pl_checks *c, uint64_t now, uint32_t fragment, uint64_t version, uint64_t digest)
{
    (void)now;
    (void)digest;
    pl_model_recovered(&c->model[c->fragments[fragment].shard], fragment, version);
}

const struct pl_checker pl_check_model = {
    .name = "model",
    .init = init,
    .sync_event = sync_event,
    .sync_effect = sync_effect,
    .sync_stepped = sync_stepped,
    .crash = crash,
    .recovered = recovered,
};
