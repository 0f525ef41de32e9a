/* core/syncer_check.c - every invariant that can be seen from inside one shard, asserted. For tests and the simulator:
 * it walks all learners and fragments. */
#include "core/syncer_int.h"

#include "base/check.h"
#include "wire/chunk.h"

static void check_cell(const struct pl_syncer *s, uint32_t m, uint32_t f)
{
    const struct cell *c = cell_of(s, m, f);
    const struct fragment *fr = &s->fragments[f];
    const struct learner *l = &s->learners[m];
    pl_assert(c->push < PUSH_STATES);
    if (c->push != PUSH_NONE)
        pl_assert(c->round == fr->round && fr->state != ROUND_IDLE);
    if (c->push == PUSH_MERGING)
        pl_assert(fr->state == ROUND_MERGING || fr->state == ROUND_STORING);
    else if (c->push != PUSH_NONE)
        pl_assert(fr->state == ROUND_GATHER || fr->state == ROUND_OPEN || fr->state == ROUND_GRACE);
    if (c->push >= PUSH_RECEIVING)
        pl_assert(c->steps > 0 && c->bytes > 0 && c->bytes <= fr->push_bytes_max);
    if (c->push == PUSH_RECEIVING)
        pl_assert((c->mask & ~pl_chunk_all(c->bytes)) == 0 && c->mask != pl_chunk_all(c->bytes));
    if (c->counted)
        pl_assert(l->state == LEARNER_LIVE && c->push >= PUSH_PULLED && c->push <= PUSH_VERIFYING);
    if (l->state == LEARNER_LIVE)
        pl_assert(c->acked == PL_NONE64 || c->acked <= fr->version);
    pl_assert(c->sending == PL_NONE64 || (c->sending <= fr->version && l->bulk != PL_NONE32));
}

static void check_learner(const struct pl_syncer *s, uint32_t m)
{
    const struct learner *l = &s->learners[m];
    uint32_t pulls = 0, receiving = 0, sending = 0, behind = 0;
    for (uint32_t f = 0; f < s->fragment_count; f++) {
        const struct cell *c = cell_of(s, m, f);
        check_cell(s, m, f);
        pulls += c->push >= PUSH_PULLED && c->push <= PUSH_VERIFYING ? 1 : 0;
        receiving += c->push == PUSH_RECEIVING || c->push == PUSH_VERIFYING ? 1 : 0;
        sending += c->sending != PL_NONE64 ? 1 : 0;
        behind += c->acked != s->fragments[f].version ? 1 : 0;
    }
    pl_assert(l->pulls_out == pulls && l->sending == sending && l->draining <= sending && l->owing <= pulls &&
              l->receiving == receiving);
    pl_assert(l->stride > 0 && l->stride <= PL_STRIDE_MAX && (l->stride & (l->stride - 1)) == 0);
    pl_assert((l->control != PL_NONE32) == (l->state == LEARNER_GREETED || l->state == LEARNER_LIVE));
    if (l->control != PL_NONE32) {
        pl_assert(s->conns[l->control].kind == CONN_CONTROL && s->conns[l->control].learner == m);
        pl_assert(l->incarnation != 0);
    }
    if (l->bulk != PL_NONE32)
        pl_assert(s->conns[l->bulk].kind == CONN_BULK && s->conns[l->bulk].learner == m);
    if (l->state == LEARNER_LIVE)
        pl_assert(l->behind == behind);
    else
        pl_assert(!pl_heap_has(&s->pulls, m) && !l->reported);
}

static void check_fragment(const struct pl_syncer *s, uint32_t f)
{
    const struct fragment *fr = &s->fragments[f];
    uint32_t waiting = 0, held = 0, merging = 0;
    for (uint32_t i = 0; i < s->known; i++) {
        const struct cell *c = cell_of(s, s->by_identity[i], f);
        waiting += c->counted;
        held += c->push == PUSH_HELD ? 1 : 0;
        merging += c->push == PUSH_MERGING ? 1 : 0;
    }
    pl_assert(fr->waiting == waiting);
    pl_assert(fr->held == held || pl_mutant(4));
    pl_assert((merging > 0) == (fr->state == ROUND_MERGING || fr->state == ROUND_STORING));
    if (fr->state == ROUND_IDLE)
        pl_assert(waiting == 0 && held == 0);
    if (fr->state == ROUND_GRACE)
        pl_assert(pl_heap_has(&s->timers, pl_sync_grace_timer(s, f)));
    pl_assert(fr->ring_count <= PL_RING_MAX && fr->ring_count <= fr->version);
    pl_assert(!(fr->closing && fr->closed));
}

static void check_units(const struct pl_syncer *s)
{
    for (uint32_t i = 0; i < s->units_max; i++) {
        const struct open_unit *u = &s->units[i];
        if (u->unit == PL_NONE64)
            continue;
        pl_assert(u->unit < s->next_unit && u->cursor <= s->manifest->unit_tokens);
        if (u->owner != PL_NONE32)
            pl_assert(s->learners[u->owner].units[0] == i || s->learners[u->owner].units[1] == i);
        for (uint32_t j = 0; j < i; j++)
            pl_assert(s->units[j].unit != u->unit);
    }
}

void pl_syncer_check(const struct pl_syncer *s)
{
    uint32_t live = 0, reporters = 0, finishing = 0, awaited = 0;
    uint64_t tokens = 0;
    for (uint32_t i = 0; i < s->known; i++) {
        const struct learner *l = &s->learners[s->by_identity[i]];
        pl_assert(l->state != LEARNER_FREE);
        if (i > 0)
            pl_assert(l->identity > s->learners[s->by_identity[i - 1]].identity);
        check_learner(s, s->by_identity[i]);
        live += l->state == LEARNER_LIVE ? 1 : 0;
        reporters += l->reported ? 1 : 0;
        finishing += l->state == LEARNER_LIVE && l->finishing ? 1 : 0;
        awaited += l->awaited ? 1 : 0;
        tokens = pl_add_sat(tokens, counted_tokens(l));
    }
    pl_assert(s->live == live && s->reporters == reporters && s->finishing == finishing);
    pl_assert(s->awaited == awaited);
    pl_assert(pl_add_sat(tokens, s->forgotten_tokens) == s->clock_sum);
    for (uint32_t f = 0; f < s->fragment_count; f++)
        check_fragment(s, f);
    check_units(s);
}
