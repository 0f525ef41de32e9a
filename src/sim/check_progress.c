/* sim/check_progress.c - with faults gone, every honest learner contributes to every fragment again within a bound.
 *
 * Contributed is who stands in a published version. A shard that has begun to close asks everybody once more and then
 * no more: its fragments are not waited for.
 */
#include "sim/check_int.h"

struct check_progress {
    uint8_t *staged; /* [honest][fragment_count] in the record being stored */
    uint8_t *done;   /* [honest][fragment_count] since calm */
    uint64_t deadline_ns;
};

static bool init(struct pl_checks *c)
{
    struct check_progress *g = c->progress = pl_check_zero(c, 1, sizeof(*g));
    size_t cells = (size_t)c->setup.identity_count * c->fragment_count;
    if (g == NULL)
        return false;
    g->deadline_ns = PL_NEVER;
    g->staged = pl_check_zero(c, cells, sizeof(*g->staged));
    g->done = pl_check_zero(c, cells, sizeof(*g->done));
    return c->status == PELAGO_OK;
}

static void calm(struct pl_checks *c, uint64_t now, uint64_t bound_ns)
{
    struct check_progress *g = c->progress;
    g->deadline_ns = bound_ns == 0 ? PL_NEVER : now + bound_ns;
    for (size_t i = 0; i < (size_t)c->setup.identity_count * c->fragment_count; i++)
        g->done[i] = 0;
}

static void sync_effect(struct pl_checks *c, uint32_t shard, uint64_t now, const struct pl_sync_effect *fx)
{
    (void)shard;
    (void)now;
    struct check_progress *g = c->progress;
    if (fx->kind == PL_SYNC_FX_STORE && fx->u.store.record->type == PL_RECORD_ROUND) {
        const struct pl_record *r = fx->u.store.record;
        for (uint32_t m = 0; m < c->setup.identity_count; m++)
            g->staged[(size_t)m * c->fragment_count + r->fragment] = 0;
        for (uint32_t i = 0; i < r->contributor_count; i++) {
            uint32_t person = pl_check_person(c, r->contributors[i].identity);
            if (pl_check_honest(c, person))
                g->staged[(size_t)person * c->fragment_count + r->fragment] = 1;
        }
    } else if (fx->kind == PL_SYNC_FX_PUBLISH) {
        for (uint32_t m = 0; m < c->setup.identity_count; m++) {
            size_t at = (size_t)m * c->fragment_count + fx->u.publish.fragment;
            g->done[at] |= g->staged[at];
        }
    }
}

/* Somebody who has not contributed yet to a fragment of a shard that runs; false: nobody. */
static bool missing(const struct pl_checks *c, uint32_t *person, uint32_t *fragment)
{
    for (uint32_t m = 0; m < c->setup.identity_count; m++) {
        for (uint32_t p = 0; p < c->fragment_count; p++) {
            if (c->progress->done[(size_t)m * c->fragment_count + p] ||
                c->shards[c->fragments[p].shard].closing)
                continue;
            *person = m;
            *fragment = p;
            return true;
        }
    }
    return false;
}

static void tick(struct pl_checks *c, uint64_t now)
{
    uint32_t person, fragment;
    if (!c->calm || now < c->progress->deadline_ns)
        return;
    if (missing(c, &person, &fragment))
        pl_check_fail_alive(
            c, "progress", now,
            "faults ended at %lu ms, but learner %lu has not contributed to fragment %u since",
            c->calm_ns / PL_MS, c->people[person], fragment);
    c->progress->deadline_ns = PL_NEVER;
}

bool pl_checks_all_contributed(const struct pl_checks *c)
{
    uint32_t person, fragment;
    return !missing(c, &person, &fragment);
}

const struct pl_checker pl_check_progress = {
    .name = "progress",
    .init = init,
    .sync_effect = sync_effect,
    .calm = calm,
    .tick = tick,
};
