/* sim/check_units.c - a work unit is never with two live learners at once, is continued where it was left, and is not
 * given out again when used up.
 *
 * Judged by what the home shard has been told: a learner that lost its unit to another while it was away, and does not
 * know, does not hold it. A crash of the shard loses who is here and the newest cursors, not who a unit was leased to.
 * While a lease is being recorded, and after a crash then, when it may stand or not, no other claim to the unit counts.
 */
#include "sim/check_int.h"

struct unit {
    uint64_t unit;
    uint64_t cursor;    /* the furthest any learner reported */
    uint32_t holder;    /* person, PL_NONE32: nobody */
    uint32_t leased;    /* person it was last leased to, PL_NONE32: nobody yet */
    uint32_t recording; /* person a record was last made for */
    bool unsure;        /* which of the two the shard remembers */
};

struct check_units {
    struct unit *at;
    uint32_t count, cap;
};

static bool init(struct pl_checks *c)
{
    c->units = pl_check_zero(c, 1, sizeof(*c->units));
    return c->units != NULL;
}

static struct unit *find(struct pl_checks *c, uint64_t unit)
{
    struct check_units *u = c->units;
    for (uint32_t i = u->count; i-- > 0;)
        if (u->at[i].unit == unit)
            return &u->at[i];
    if (!pl_check_room(c, &u->at, &u->cap, u->count + 1, sizeof(*u->at)))
        return NULL;
    u->at[u->count] =
        (struct unit){.unit = unit, .holder = PL_NONE32, .leased = PL_NONE32, .recording = PL_NONE32};
    return &u->at[u->count++];
}

static bool used_up(const struct pl_checks *c, const struct unit *u)
{
    return u->cursor >= c->setup.manifest->unit_tokens;
}

static void release_all(struct pl_checks *c, uint32_t person)
{
    for (uint32_t i = 0; i < c->units->count; i++)
        if (c->units->at[i].holder == person)
            c->units->at[i].holder = PL_NONE32;
}

/* It says itself what it holds; what others were given meanwhile stays theirs. A liar may name a unit that nobody was
 * ever given: that is no claim. */
static void on_join(struct pl_checks *c, uint32_t person, const struct pl_msg_join *join)
{
    release_all(c, person);
    for (uint32_t i = 0; i < join->units.count; i++) {
        struct pl_item_held_unit held = pl_item_held_unit_at(&join->units, i);
        struct unit *u = find(c, held.unit);
        if (u == NULL)
            return;
        bool its_own = !u->unsure && u->recording == u->leased && u->leased == person;
        if (u->holder == PL_NONE32 && !used_up(c, u) && its_own)
            u->holder = person;
    }
}

static void on_report(struct pl_checks *c, uint32_t person, const struct pl_msg_report *r)
{
    if (r->unit == PL_NONE64 || !pl_check_honest(c, person))
        return;
    for (uint32_t i = 0; i < c->units->count; i++) {
        struct unit *u = &c->units->at[i];
        if (u->unit != r->unit || u->holder != person)
            continue;
        if (r->cursor > u->cursor)
            u->cursor = r->cursor;
        if (used_up(c, u))
            u->holder = PL_NONE32;
    }
}

static void sync_event(struct pl_checks *c, uint32_t shard, const struct pl_sync_event *ev)
{
    if (shard != 0 || ev->kind != PL_SYNC_EV_MSG)
        return;
    uint32_t person = pl_check_sender(c, 0);
    if (person == PL_NONE32 || c->shards[0].control[person] != ev->u.msg.conn)
        return;
    if (ev->u.msg.msg->type == PL_MSG_JOIN)
        on_join(c, person, &ev->u.msg.msg->u.join);
    else if (ev->u.msg.msg->type == PL_MSG_REPORT)
        on_report(c, person, &ev->u.msg.msg->u.report);
}

static void on_record(struct pl_checks *c, const struct pl_record *r)
{
    struct unit *u = r->type == PL_RECORD_LEASE ? find(c, r->unit) : NULL;
    if (u != NULL)
        u->recording = pl_check_person(c, r->identity);
}

static void sync_effect(struct pl_checks *c, uint32_t shard, uint64_t now, const struct pl_sync_effect *fx)
{
    if (fx->kind == PL_SYNC_FX_STORE)
        on_record(c, fx->u.store.record);
    if (fx->kind != PL_SYNC_FX_SEND || fx->u.send.msg.type != PL_MSG_LEASE)
        return;
    const struct pl_msg_lease *lease = &fx->u.send.msg.u.lease;
    uint32_t person = c->shards[shard].conns[fx->u.send.conn].person;
    struct unit *u = find(c, lease->unit);
    if (u == NULL || person == PL_NONE32)
        return;
    if (shard != 0)
        pl_check_fail(c, "units", now, "shard %u leases a unit; only the home shard may", shard);
    else if (u->holder != PL_NONE32 && u->holder != person && c->shards[0].control[u->holder] != PL_NONE32)
        pl_check_fail(c, "units", now, "unit %lu goes to learner %lu while learner %lu is here and holds it",
                      lease->unit, c->people[person], c->people[u->holder]);
    else if (used_up(c, u))
        pl_check_fail(c, "units", now, "unit %lu goes to learner %lu, but it was used up", lease->unit,
                      c->people[person]);
    else if (lease->cursor < u->cursor)
        pl_check_fail(c, "units", now,
                      "unit %lu goes to learner %lu from %lu on, although %lu tokens of it were used",
                      lease->unit, c->people[person], lease->cursor, u->cursor);
    u->holder = u->leased = person;
    u->unsure = false;
}

static void crash(struct pl_checks *c, uint32_t shard, uint64_t now)
{
    (void)now;
    for (uint32_t i = 0; i < c->units->count && shard == 0; i++) {
        struct unit *u = &c->units->at[i];
        u->holder = PL_NONE32;
        u->cursor = 0;
        u->unsure = u->unsure || u->recording != u->leased;
    }
}

const struct pl_checker pl_check_units = {
    .name = "units",
    .init = init,
    .sync_event = sync_event,
    .sync_effect = sync_effect,
    .crash = crash,
};
