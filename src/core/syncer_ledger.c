/* core/syncer_ledger.c - the data ledger of the home shard.
 *
 * Units are numbered 0, 1, 2, ... without end; the host maps them onto the data. Units below next_unit that are not
 * in the table of open units are finished. A unit is recorded before its learner is told (so two learners never hold
 * it because of a crash), and comes back with its last reported cursor when its learner is gone for long or returns
 * without it; it is then given out again before any new one. That it came back is recorded too, or that the next
 * learner has it if that is known by then. One record of a unit is on its way at a time; what changes meanwhile goes
 * into the next. A finished unit is recorded once more, with its cursor at the end, and leaves the table when that is
 * durable: so replay ends with the units that were open, and they fit. A learner holds at most PL_UNITS_HELD_MAX
 * units; one that finds no room is served when a record is durable.
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

static struct open_unit *unit_at(struct pl_syncer *s, uint32_t m, uint32_t i)
{
    uint32_t at = s->learners[m].units[i];
    return at != PL_NONE32 ? &s->units[at] : NULL;
}

/* A free one of the learner's places, PL_UNITS_HELD_MAX: there is none. */
static uint32_t place(struct pl_syncer *s, uint32_t m)
{
    uint32_t i = 0;
    while (i < PL_UNITS_HELD_MAX && unit_at(s, m, i) != NULL)
        i++;
    return i;
}

/* A learner's own units are found through its slot, so that a report costs the same however many units are open.
 * It was not given more than it can hold. If it seems so in replay, a crash came before the record that an older one
 * came back or was finished: the newest stand. */
void pl_sync_unit_own(struct pl_syncer *s, struct open_unit *u, uint32_t m)
{
    uint32_t *mine = s->learners[m].units;
    uint32_t i = place(s, m);
    if (i == PL_UNITS_HELD_MAX) {
        pl_assert(!s->listening);
        i = 0;
        for (uint32_t j = 1; j < PL_UNITS_HELD_MAX; j++)
            if (s->units[mine[j]].given < s->units[mine[i]].given)
                i = j;
        pl_sync_unit_disown(s, &s->units[mine[i]]);
    }
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
    u->tell = false;
}

static bool recording(const struct open_unit *u)
{
    return u->store_seq != 0 || u->store_again;
}

/* What changes while a record is on its way is seen when that is durable. */
static void record(struct pl_syncer *s, struct open_unit *u)
{
    if (!recording(u))
        pl_sync_store_want(s, &u->store_again);
}

static uint64_t owner_identity(const struct pl_syncer *s, const struct open_unit *u)
{
    return u->owner != PL_NONE32 ? s->learners[u->owner].identity : 0;
}

static bool finished(const struct pl_syncer *s, const struct open_unit *u)
{
    return u->cursor >= s->manifest->unit_tokens;
}

/* The lowest unit that came back, else a new one. If it is yet to be recorded that it came back, the record will name
 * the new owner instead; if that record is on its way, the unit must wait. */
static struct open_unit *next_unit(struct pl_syncer *s)
{
    struct open_unit *best = NULL;
    for (uint32_t i = 0; i < s->units_max; i++) {
        struct open_unit *u = &s->units[i];
        bool free_to_give =
            u->unit != PL_NONE64 && u->owner == PL_NONE32 && u->store_seq == 0 && !finished(s, u);
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

/* In the order of giving, which replay takes from the order of the records. */
bool pl_sync_unit_store_again(struct pl_syncer *s, struct pl_sync_fxs *out)
{
    struct open_unit *u = NULL;
    for (uint32_t i = 0; i < s->units_max; i++)
        if (s->units[i].store_again && (u == NULL || s->units[i].given < u->given))
            u = &s->units[i];
    if (u == NULL)
        return false;
    u->recorded = owner_identity(s, u);
    u->ended = finished(s, u);
    struct pl_record r = {
        .type = PL_RECORD_LEASE, .unit = u->unit, .cursor = u->cursor, .identity = u->recorded};
    u->store_seq = pl_sync_store(s, &u->store_again, &r, out);
    return true;
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
        record(s, u);
    else
        u->unit = PL_NONE64; /* replayed: the record is there */
}

/* Reports may be merged into later ones, so the one that finished a unit need not arrive. A learner finishes its
 * units in the order they were given: what came before the one in use is done. */
static void finish_before(struct pl_syncer *s, uint32_t m, uint64_t given)
{
    for (uint32_t i = 0; i < PL_UNITS_HELD_MAX; i++) {
        struct open_unit *u = unit_at(s, m, i);
        if (u != NULL && u->given < given && !u->tell)
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

/* Has it been given a unit that it was not told of yet? */
static bool being_served(struct pl_syncer *s, uint32_t m)
{
    for (uint32_t i = 0; i < PL_UNITS_HELD_MAX; i++) {
        const struct open_unit *u = unit_at(s, m, i);
        if (u != NULL && u->tell)
            return true;
    }
    return false;
}

/* Is there a place for one more? It asks only when it holds too few, so if all its places are taken here, the unit
 * given first is done. */
static bool make_place(struct pl_syncer *s, uint32_t m)
{
    if (place(s, m) < PL_UNITS_HELD_MAX)
        return true;
    uint64_t newest = 0;
    for (uint32_t i = 0; i < PL_UNITS_HELD_MAX; i++)
        newest = pl_max64(newest, s->units[s->learners[m].units[i]].given);
    finish_before(s, m, newest);
    return place(s, m) < PL_UNITS_HELD_MAX;
}

static void give(struct pl_syncer *s, uint32_t m)
{
    if (!make_place(s, m) || s->phase != PL_PHASE_RUNNING)
        return;
    struct open_unit *u = next_unit(s);
    if (u == NULL)
        return;
    s->learners[m].wants = false;
    pl_sync_unit_own(s, u, m);
    u->tell = true;
    record(s, u);
}

static void give_waiting(struct pl_syncer *s)
{
    for (uint32_t i = 0; i < s->known; i++)
        if (s->learners[s->by_identity[i]].wants)
            give(s, s->by_identity[i]);
}

static void give_back(struct pl_syncer *s, struct open_unit *u, struct pl_sync_fxs *out)
{
    pl_sync_unit_disown(s, u);
    if (!s->listening)
        return; /* replayed: the record follows */
    record(s, u);
    TRACE(out, UNIT_BACK, u->unit, u->cursor);
}

/* It was used up while something of it was being recorded. Should that have been its lease, its learner had the unit
 * all along, and still wants another. */
static void stored_finished(struct pl_syncer *s, struct open_unit *u)
{
    if (u->owner != PL_NONE32) {
        struct learner *l = &s->learners[u->owner];
        l->wants = l->wants || (u->tell && l->state == LEARNER_LIVE);
        pl_sync_unit_disown(s, u);
    }
    if (u->ended)
        u->unit = PL_NONE64;
    else
        record(s, u);
}

static void tell(struct pl_syncer *s, struct open_unit *u, struct pl_sync_fxs *out)
{
    const struct learner *l = &s->learners[u->owner];
    if (l->state != LEARNER_LIVE) {
        give_back(s, u, out);
        return;
    }
    u->tell = false;
    struct pl_msg msg = {.type = PL_MSG_LEASE, .u.lease = {.unit = u->unit, .cursor = u->cursor}};
    pl_sync_send(out, l->control, &msg);
    TRACE(out, LEASE, l->identity, u->unit, u->cursor);
    if (pl_mutant(18))
        pl_sync_unit_disown(s, u);
}

void pl_sync_unit_stored(struct pl_syncer *s, uint64_t seq, struct pl_sync_fxs *out)
{
    struct open_unit *u = unit_of_seq(s, seq);
    pl_assert(u != NULL);
    u->store_seq = 0;
    if (finished(s, u))
        stored_finished(s, u);
    else if (u->recorded != owner_identity(s, u))
        record(s, u); /* it changed hands meanwhile */
    else if (u->tell)
        tell(s, u, out);
    give_waiting(s);
}

void pl_sync_want(struct pl_syncer *s, uint32_t m, struct pl_sync_fxs *out)
{
    if (!is_home(s) || s->learners[m].local_data) {
        pl_sync_drop_learner(
            s, m, PL_REASON_WRONG_STATE, out,
            "WANT came, but work units are for learners without private data and from shard 0 only");
        return;
    }
    if (being_served(s, m))
        return;
    s->learners[m].wants = true;
    give(s, m);
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

static void take_again(struct pl_syncer *s, struct open_unit *u, uint32_t m)
{
    pl_sync_unit_own(s, u, m);
    if (u->recorded != s->learners[m].identity)
        record(s, u);
}

/* A learner says which units it holds, in the order it uses them: those it lost come back; those we lost with a crash,
 * or gave back, and nobody else took, are its own again. */
void pl_sync_units_joined(struct pl_syncer *s, uint32_t m, const struct pl_array *held,
                          struct pl_sync_fxs *out)
{
    for (uint32_t i = 0; i < PL_UNITS_HELD_MAX; i++) {
        struct open_unit *u = unit_at(s, m, i);
        if (u != NULL && !listed(held, u->unit))
            give_back(s, u, out);
    }
    for (uint32_t i = 0; i < held->count; i++) {
        struct pl_item_held_unit item = pl_item_held_unit_at(held, i);
        struct open_unit *u = pl_sync_unit_find(s, item.unit);
        if (u != NULL && u->owner == PL_NONE32 && !finished(s, u))
            take_again(s, u, m);
        if (u == NULL || u->owner != m)
            continue;
        u->tell = false; /* it has it */
        u->given = ++s->units_given;
        progress(s, u, item.cursor);
    }
}
