/* sim/check_manners.c - a peer's mistake closes that peer's connection, with a reason, and nobody else's.
 *
 * Mistakes that can be seen from outside: bytes that are no message, a message that its sender may not send or not on
 * this connection, one that comes before any greeting. The same step answers with CLOSE and a sentence. A close that
 * blames a peer (bad frame, bad message, wrong state) hits only the peer that just spoke.
 */
#include "sim/check_int.h"

struct check_manners {
    bool *rude;       /* [shard_count] the message being handled has to be answered with CLOSE */
    uint32_t *person; /* [shard_count] who sent it, PL_NONE32: no message */
    bool *closed;     /* [shard_count] it was */
};

static bool init(struct pl_checks *c)
{
    struct check_manners *m = c->manners = pl_check_zero(c, 1, sizeof(*m));
    if (m == NULL)
        return false;
    m->rude = pl_check_zero(c, c->shard_count, sizeof(*m->rude));
    m->person = pl_check_zero(c, c->shard_count, sizeof(*m->person));
    m->closed = pl_check_zero(c, c->shard_count, sizeof(*m->closed));
    return c->status == PELAGO_OK;
}

static bool is_rude(const struct check_conn *k, const struct pl_msg *msg)
{
    switch (k->link) {
    case LINK_NEW: /* the books have taken a HELLO or ATTACH for what it is */
        return msg->type != PL_MSG_CLOSE;
    case LINK_CONTROL:
        return !pl_msg_allowed(msg->type, PL_CHANNEL_CONTROL, PL_SENDER_LEARNER);
    case LINK_BULK:
        return !pl_msg_allowed(msg->type, PL_CHANNEL_BULK, PL_SENDER_LEARNER);
    case LINK_UNUSED:
        break;
    }
    return false;
}

static void sync_event(struct pl_checks *c, uint32_t shard, const struct pl_sync_event *ev)
{
    struct check_manners *m = c->manners;
    bool bad = ev->kind == PL_SYNC_EV_BAD;
    m->rude[shard] = m->closed[shard] = false;
    m->person[shard] = PL_NONE32;
    if (!bad && ev->kind != PL_SYNC_EV_MSG)
        return;
    const struct check_conn *k = &c->shards[shard].conns[bad ? ev->u.bad.conn : ev->u.msg.conn];
    m->person[shard] = k->person;
    m->rude[shard] = bad || is_rude(k, ev->u.msg.msg);
}

static bool blames(enum pl_reason reason)
{
    return reason == PL_REASON_BAD_FRAME || reason == PL_REASON_BAD_MESSAGE ||
           reason == PL_REASON_WRONG_STATE;
}

static void sync_effect(struct pl_checks *c, uint32_t shard, uint64_t now, const struct pl_sync_effect *fx)
{
    struct check_manners *m = c->manners;
    if (fx->kind != PL_SYNC_FX_CLOSE)
        return;
    uint32_t person = c->shards[shard].closed_person;
    if (fx->u.close.text[0] == '\0')
        pl_check_fail(c, "manners", now, "shard %u closes a connection without a word", shard);
    if (blames(fx->u.close.reason) && person != m->person[shard])
        pl_check_fail(c, "manners", now, "shard %u blames learner %lu for what it did not do: %s", shard,
                      person == PL_NONE32 ? 0 : c->people[person], fx->u.close.text);
    if (person == m->person[shard])
        m->closed[shard] = true;
}

static void sync_stepped(struct pl_checks *c, uint32_t shard, uint64_t now)
{
    struct check_manners *m = c->manners;
    if (m->rude[shard] && !m->closed[shard])
        pl_check_fail(c, "manners", now,
                      "shard %u does not close a connection of learner %lu that breaks the protocol", shard,
                      m->person[shard] == PL_NONE32 ? 0 : c->people[m->person[shard]]);
    m->rude[shard] = false;
}

const struct pl_checker pl_check_manners = {
    .name = "manners",
    .init = init,
    .sync_event = sync_event,
    .sync_effect = sync_effect,
    .sync_stepped = sync_stepped,
};
