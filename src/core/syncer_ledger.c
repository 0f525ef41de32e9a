/* core/syncer_ledger.c - the data ledger of the home shard.
 *
 * Units are numbered 0, 1, 2, ... without end; the host maps them onto the data. Units below next_unit that are not
 * in the table of open units are finished. A unit is recorded before its learner is told (so two learners never hold
 * it because of a crash), and comes back with its last reported cursor when its learner is gone for long or returns
 * without it; it is then given out again before any new one. A finished unit is recorded once more, with its cursor at
 * the end, and leaves the table when that is durable: so replay ends with the units that were open, and they fit. A
 * learner holds at most PL_UNITS_HELD_MAX units; one that finds the table full is served when a record is durable.
 */
#include "core/syncer_int.h"

#include "base/check.h"

struct open_unit *pl_sync_unit_find(struct pl_syncer *s, uint64_t unit)
{
    for (uint32_t i = 0; i < s->units_max; i++)
        if (s->units[i].unit == unit)
            return &s->units[i];
    return NULL;
}

struct open_unit *pl_sync_unit_room(struct pl_syncer *s)
{
    return pl_sync_unit_find(s, PL_NONE64);
}

/* A learner's own units are found through its slot, so that a report costs the same however many units are open. */
void pl_sync_unit_own(struct pl_syncer *s, struct open_unit *u, uint32_t m)
{
    uint32_t *mine = s->learners[m].units;
    uint32_t i = 0;
    while (i < PL_UNITS_HELD_MAX && mine[i] != PL_NONE32)
        i++;
    if (i == PL_UNITS_HELD_MAX)
        return; /* it holds enough: the unit stays free for others */
    mine[i] = (uint32_t)(u - s->units);
    u->owner = m;
    u->given = ++s->units_given;
}

void pl_sync_unit_disown(struct pl_syncer *s, struct open_unit *u)
{
    uint32_t *mine = s->learners[u->owner].units;
    for (uint32_t i = 0; i < PL_UNITS_HELD_MAX; i++)
        if (mine[i] == (uint32_t)(u - s->units))
            mine[i] = PL_NONE32;
    u->owner = PL_NONE32;
}

static struct open_unit *unit_at(struct pl_syncer *s, uint32_t m, uint32_t i)
{
    uint32_t at = s->learners[m].units[i];
    return at != PL_NONE32 ? &s->units[at] : NULL;
}

static bool recording(const struct open_unit *u)
{
    return u->store_seq != 0 || u->store_again;
}

static bool finished(const struct pl_syncer *s, const struct open_unit *u)
{
    return u->cursor >= s->manifest->unit_tokens;
}

/* The lowest unit that came back, else a new one. */
static struct open_unit *next_unit(struct pl_syncer *s)
{
    struct open_unit *best = NULL;
    for (uint32_t i = 0; i < s->units_max; i++) {
        struct open_unit *u = &s->units[i];
        bool free_to_give = u->unit != PL_NONE64 && u->owner == PL_NONE32 && !recording(u);
        if (free_to_give && (best == NULL || u->unit < best->unit))
            best = u;
    }
    if (best != NULL)
        return best;
    best = pl_sync_unit_room(s);
    if (best != NULL)
        *best = (struct open_unit){.unit = s->next_unit++, .owner = PL_NONE32};
    return best;
}

bool pl_sync_unit_store_again(struct pl_syncer *s, struct pl_sync_fxs *out)
{
    for (uint32_t i = 0; i < s->units_max; i++) {
        struct open_unit *u = &s->units[i];
        if (!u->store_again)
            continue;
        struct pl_record r = {.type = PL_RECORD_LEASE,
                              .unit = u->unit,
                              .cursor = u->cursor,
                              .identity = u->owner != PL_NONE32 ? s->learners[u->owner].identity : 0};
        u->store_seq = pl_sync_store(s, &u->store_again, &r, out);
        return true;
    }
    return false;
}

static struct open_unit *unit_of_seq(struct pl_syncer *s, uint64_t seq)
{
    for (uint32_t i = 0; i < s->units_max; i++)
        if (s->units[i].unit != PL_NONE64 && s->units[i].store_seq == seq)
            return &s->units[i];
    return NULL;
}

void pl_sync_unit_store_failed(struct pl_syncer *s, uint64_t seq)
{
    struct open_unit *u = unit_of_seq(s, seq);
    pl_assert(u != NULL);
    u->store_seq = 0;
    pl_sync_store_want(s, &u->store_again);
}

static void progress(struct pl_syncer *s, struct open_unit *u, uint64_t cursor)
{
    u->cursor = pl_max64(u->cursor, pl_min64(cursor, s->manifest->unit_tokens));
    if (!finished(s, u) || recording(u))
        return;
    pl_sync_unit_disown(s, u);
    if (s->listening)
        pl_sync_store_want(s, &u->store_again);
    else
        u->unit = PL_NONE64; /* replayed: the record is there */
}

/* Reports may be merged into later ones, so the one that finished a unit need not arrive. A learner finishes its
 * units in the order they were given: what came before the one in use is done. */
static void finish_before(struct pl_syncer *s, uint32_t m, uint64_t given)
{
    for (uint32_t i = 0; i < PL_UNITS_HELD_MAX; i++) {
        struct open_unit *u = unit_at(s, m, i);
        if (u != NULL && u->given < given && !recording(u))
            progress(s, u, s->manifest->unit_tokens);
    }
}

/* A unit that is finished, or was given to somebody else while the learner was away, is not among its own. */
void pl_sync_unit_progress(struct pl_syncer *s, uint32_t m, uint64_t unit, uint64_t cursor)
{
    for (uint32_t i = 0; i < PL_UNITS_HELD_MAX; i++) {
        struct open_unit *u = unit_at(s, m, i);
        if (u == NULL || u->unit != unit)
            continue;
        finish_before(s, m, u->given);
        progress(s, u, cursor);
    }
}

/* May the learner have one more? Not while one is being recorded for it. It asks only when it holds too few, so if
 * all its places are taken here, the unit given first is done. */
static bool wants_more(struct pl_syncer *s, uint32_t m)
{
    uint32_t held = 0;
    uint64_t newest = 0;
    for (uint32_t i = 0; i < PL_UNITS_HELD_MAX; i++) {
        const struct open_unit *u = unit_at(s, m, i);
        if (u == NULL)
            continue;
        if (recording(u))
            return false;
        held++;
        newest = pl_max64(newest, u->given);
    }
    if (held == PL_UNITS_HELD_MAX)
        finish_before(s, m, newest);
    return true;
}

static void give(struct pl_syncer *s, uint32_t m)
{
    if (!wants_more(s, m) || s->phase != PL_PHASE_RUNNING)
        return;
    struct open_unit *u = next_unit(s);
    if (u == NULL)
        return;
    s->learners[m].wants = false;
    pl_sync_unit_own(s, u, m);
    pl_sync_store_want(s, &u->store_again);
}

static void give_waiting(struct pl_syncer *s)
{
    for (uint32_t i = 0; i < s->known; i++)
        if (s->learners[s->by_identity[i]].wants)
            give(s, s->by_identity[i]);
}

void pl_sync_unit_stored(struct pl_syncer *s, uint64_t seq, struct pl_sync_fxs *out)
{
    struct open_unit *u = unit_of_seq(s, seq);
    pl_assert(u != NULL);
    u->store_seq = 0;
    if (u->owner == PL_NONE32) { /* finished, or its learner left meanwhile */
        if (finished(s, u))
            u->unit = PL_NONE64;
        give_waiting(s);
        return;
    }
    if (finished(s, u)) { /* it had the unit all along, and used it up while the lease was being recorded */
        progress(s, u, u->cursor);
        return;
    }
    const struct learner *l = &s->learners[u->owner];
    if (l->state != LEARNER_LIVE) {
        pl_sync_unit_disown(s, u);
        return;
    }
    struct pl_msg msg = {.type = PL_MSG_LEASE, .u.lease = {.unit = u->unit, .cursor = u->cursor}};
    pl_sync_send(out, l->control, &msg);
    TRACE(out, LEASE, l->identity, u->unit, u->cursor);
    if (pl_mutant(18))
        pl_sync_unit_disown(s, u);
}

void pl_sync_want(struct pl_syncer *s, uint32_t m, struct pl_sync_fxs *out)
{
    if (!is_home(s) || s->learners[m].local_data) {
        pl_sync_drop_learner(s, m, PL_REASON_WRONG_STATE, out,
                             "WANT came, but work units are for learners without private data and from shard 0 only");
        return;
    }
    s->learners[m].wants = true;
    give(s, m);
}

static void give_back(struct pl_syncer *s, struct open_unit *u, struct pl_sync_fxs *out)
{
    pl_sync_unit_disown(s, u);
    if (out != NULL)
        TRACE(out, UNIT_BACK, u->unit, u->cursor);
}

void pl_sync_units_back(struct pl_syncer *s, uint32_t m, struct pl_sync_fxs *out)
{
    for (uint32_t i = 0; i < PL_UNITS_HELD_MAX; i++)
        if (unit_at(s, m, i) != NULL)
            give_back(s, unit_at(s, m, i), out);
}

static bool listed(const struct pl_array *held, uint64_t unit)
{
    for (uint32_t i = 0; i < held->count; i++)
        if (pl_item_held_unit_at(held, i).unit == unit)
            return true;
    return false;
}

/* A learner says which units it holds: those it lost come back; those we lost with a crash, or gave back, and nobody
 * else took, are its own again. */
void pl_sync_units_joined(struct pl_syncer *s, uint32_t m, const struct pl_array *held, struct pl_sync_fxs *out)
{
    for (uint32_t i = 0; i < PL_UNITS_HELD_MAX; i++) {
        struct open_unit *u = unit_at(s, m, i);
        if (u != NULL && !listed(held, u->unit))
            give_back(s, u, out);
    }
    for (uint32_t i = 0; i < held->count; i++) {
        struct pl_item_held_unit item = pl_item_held_unit_at(held, i);
        struct open_unit *u = pl_sync_unit_find(s, item.unit);
        if (u != NULL && u->owner == PL_NONE32)
            pl_sync_unit_own(s, u, m);
        pl_sync_unit_progress(s, m, item.unit, item.cursor);
    }
}
