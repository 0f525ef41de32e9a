/* core/syncer_slots.c - the table of identities a shard knows, sorted by identity, and how room is made in it.
 *
 * A slot survives its learner's absence, because it holds what of the learner's work was merged. When the table is full
 * the identity that has been away longest is forgotten; should it return, it is a stranger: its local work is dropped,
 * since nobody knows what of it was merged, and its tokens stay counted once.
 */
#include "core/syncer_int.h"

#include "base/check.h"

#include <string.h>

/* Where an identity stands, or would stand, in the sorted index. */
uint32_t pl_sync_place_of(const struct pl_syncer *s, uint64_t identity)
{
    uint32_t lo = 0, hi = s->known;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (s->learners[s->by_identity[mid]].identity < identity)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static bool forgettable(const struct pl_syncer *s, uint32_t m)
{
    if (s->learners[m].state != LEARNER_AWAY)
        return false;
    for (uint32_t f = 0; f < s->fragment_count; f++)
        if (cell_of(s, m, f)->push == PUSH_MERGING)
            return false;
    return true;
}

/* Makes room by forgetting the identity that has been away longest. Its tokens stay in the clock; should it come
 * back, its local work is discarded, since nobody remembers what of it was merged. */
static bool forget_one(struct pl_syncer *s, struct pl_sync_fxs *out)
{
    uint32_t oldest = PL_NONE32;
    for (uint32_t i = 0; i < s->known; i++) {
        uint32_t m = s->by_identity[i];
        if (forgettable(s, m) &&
            (oldest == PL_NONE32 || s->learners[m].heard_ns < s->learners[oldest].heard_ns))
            oldest = m;
    }
    if (oldest == PL_NONE32)
        return false;
    PL_MARK("syncer.forget_identity");
    pl_sync_units_back(s, oldest, out);
    pl_sync_forget_pushes(s, oldest, out);
    pl_heap_remove(&s->timers, pl_sync_lease_timer(s, oldest));
    s->forgot = true;
    s->forgotten_tokens = pl_add_sat(s->forgotten_tokens, counted_tokens(&s->learners[oldest]));
    uint32_t at = pl_sync_place_of(s, s->learners[oldest].identity);
    memmove(&s->by_identity[at], &s->by_identity[at + 1], (s->known - at - 1) * sizeof s->by_identity[0]);
    s->known--;
    pl_sync_await_no_more(s, &s->learners[oldest]);
    s->learners[oldest].state = LEARNER_FREE;
    return true;
}

static uint32_t free_slot(const struct pl_syncer *s)
{
    for (uint32_t m = 0; m < s->learners_max; m++)
        if (s->learners[m].state == LEARNER_FREE)
            return m;
    return PL_NONE32;
}

uint32_t pl_sync_slot_for(struct pl_syncer *s, uint64_t identity, struct pl_sync_fxs *out)
{
    uint32_t at = pl_sync_place_of(s, identity);
    if (at < s->known && s->learners[s->by_identity[at]].identity == identity)
        return s->by_identity[at];
    if (s->known == s->learners_max) {
        if (!forget_one(s, out))
            return PL_NONE32;
        at = pl_sync_place_of(s, identity);
    }
    uint32_t m = free_slot(s);
    pl_assert(m != PL_NONE32);
    s->learners[m] = (struct learner){.identity = identity,
                                      .state = LEARNER_AWAY,
                                      .control = PL_NONE32,
                                      .bulk = PL_NONE32,
                                      .unit = PL_NONE64,
                                      .units = {PL_NONE32, PL_NONE32},
                                      .stride = 1,
                                      .heard_ns = s->now};
    for (uint32_t f = 0; f < s->fragment_count; f++)
        *cell_of(s, m, f) = (struct cell){.acked = PL_NONE64, .sending = PL_NONE64, .stranger = s->forgot};
    memmove(&s->by_identity[at + 1], &s->by_identity[at], (s->known - at) * sizeof s->by_identity[0]);
    s->by_identity[at] = m;
    s->known++;
    return m;
}
