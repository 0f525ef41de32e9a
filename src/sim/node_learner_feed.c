/* sim/node_learner_feed.c - what a learner's steps learn from: work units, or sequences of its own. See node_learner.h.
 *
 * A step may use up one unit and begin the next, but is reported with one: the rest is told with the next report, as
 * a real learner does.
 */
#include "base/num.h"
#include "sim/node_learner.h"

#include <string.h>

static struct pl_item_held_unit *find(struct pl_item_held_unit *units, uint32_t count, uint64_t unit)
{
    for (uint32_t i = 0; i < count; i++)
        if (units[i].unit == unit)
            return &units[i];
    return NULL;
}

static void drop_first(struct pl_item_held_unit *units, uint32_t *count)
{
    memmove(units, units + 1, --*count * sizeof *units);
}

void pl_lnode_unit(struct pl_lnode *p, uint64_t unit, uint64_t cursor)
{
    struct pl_item_held_unit *held = find(p->units, p->unit_count, unit);
    struct pl_item_held_unit *fed = find(p->feed, p->feed_count, unit);
    if (held != NULL)
        held->cursor = pl_max64(held->cursor, cursor);
    if (fed != NULL)
        fed->cursor = pl_max64(fed->cursor, cursor);
    if (held == NULL && p->unit_count < PL_UNITS_HELD_MAX) {
        p->units[p->unit_count++] = (struct pl_item_held_unit){unit, cursor};
        if (p->feed_count < PL_UNITS_HELD_MAX)
            p->feed[p->feed_count++] = (struct pl_item_held_unit){unit, cursor};
    }
}

static uint64_t next_sequence(const struct pl_world *w, struct pl_lnode *p)
{
    const uint64_t seq = w->objective->seq, whole = w->objective->manifest.unit_tokens;
    struct pl_item_held_unit *u = &p->feed[0];
    if (p->feed_count == 0)
        return PL_SEQUENCE_OWN | p->own_sequence++;
    uint64_t number = u->unit * (whole / seq) + u->cursor / seq;
    uint64_t used = pl_min64(seq, whole - u->cursor);
    u->cursor += used;
    p->feed_used += used;
    if (u->cursor == whole)
        drop_first(p->feed, &p->feed_count);
    return number;
}

uint64_t pl_lnode_feed(struct pl_world *w, struct pl_lnode *p)
{
    const struct pl_objective *o = w->objective;
    if (o->seq == 0) {
        uint64_t spread = w->o.step_tokens / 10;
        return w->o.step_tokens - spread + pl_prng_below(&w->hosts[p->host].prng, 2 * spread + 1);
    }
    const uint32_t count = o->step_sequences[p->host];
    for (uint32_t i = 0; i < count; i++)
        p->sequences[i] = next_sequence(w, p);
    return (uint64_t)count * o->seq;
}

struct pl_item_held_unit pl_lnode_used(const struct pl_world *w, struct pl_lnode *p, uint64_t tokens)
{
    const uint64_t whole = w->objective->manifest.unit_tokens;
    uint64_t due = w->objective->seq == 0 ? tokens : p->feed_used - p->feed_told;
    if (p->unit_count == 0 || due == 0)
        return (struct pl_item_held_unit){PL_NONE64, 0};
    struct pl_item_held_unit *u = &p->units[0];
    uint64_t more = pl_min64(due, whole - u->cursor);
    u->cursor += more;
    p->feed_told += more;
    struct pl_item_held_unit used = *u;
    if (u->cursor == whole)
        drop_first(p->units, &p->unit_count);
    return used;
}
