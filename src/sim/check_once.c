/* sim/check_once.c - a step's work is merged at most once per fragment.
 *
 * What is merged is known by its bytes: the digest in the push header leads to the copy the learner's host made, and
 * that to the inner steps in it. Work counts as merged once its record is durable: published, or found after a crash.
 */
#include "sim/check_int.h"

struct span {
    uint64_t first, last;
};

struct spans {
    struct span *at; /* ascending, apart */
    uint32_t count, cap;
};

struct part {
    uint32_t person;
    struct pl_work work;
};

struct staged {
    uint64_t version; /* the merge under way leads to it; 0: none */
    struct part *parts;
    uint32_t count, cap;
};

struct check_once {
    struct spans *merged;  /* [honest][fragment_count] */
    struct staged *staged; /* [fragment_count] */
};

static bool init(struct pl_checks *c)
{
    struct check_once *o = c->once = pl_check_zero(c, 1, sizeof(*o));
    if (o == NULL)
        return false;
    o->merged = pl_check_zero(c, (size_t)c->setup.identity_count * c->fragment_count, sizeof(*o->merged));
    o->staged = pl_check_zero(c, c->fragment_count, sizeof(*o->staged));
    return c->status == PELAGO_OK;
}

static struct spans *spans_of(struct pl_checks *c, uint32_t person, uint32_t fragment)
{
    return &c->once->merged[(size_t)person * c->fragment_count + fragment];
}

/* Number of the first span that ends at or after `first`. */
static uint32_t place(const struct spans *s, uint64_t first)
{
    uint32_t i = s->count;
    while (i > 0 && s->at[i - 1].last >= first)
        i--;
    return i;
}

static void add_span(struct pl_checks *c, struct spans *s, uint64_t first, uint64_t last)
{
    uint32_t i = place(s, first);
    if (i > 0 && s->at[i - 1].last + 1 == first) {
        s->at[i - 1].last = last;
        return;
    }
    if (!pl_check_room(c, &s->at, &s->cap, s->count + 1, sizeof(*s->at)))
        return;
    for (uint32_t j = s->count; j > i; j--)
        s->at[j] = s->at[j - 1];
    s->at[i] = (struct span){first, last};
    s->count++;
}

static void one_contributor(struct pl_checks *c, uint64_t now, const struct pl_sync_effect *fx,
                            const struct pl_contributor *k)
{
    uint32_t fragment = fx->u.merge.fragment, person = pl_check_person(c, k->identity);
    if (!pl_check_honest(c, person))
        return;
    const struct check_push *push = pl_check_push(c, person, fragment);
    const struct pl_work *work =
        pl_check_copy(c, person, fragment, fx->u.merge.round, push->header.digest, NULL);
    if (push->header.round != fx->u.merge.round || work == NULL) {
        pl_check_fail(c, "once", now,
                      "fragment %u merges a push of learner %lu that it never copied for this round",
                      fragment, k->identity);
        return;
    }
    const struct spans *s = spans_of(c, person, fragment);
    for (uint32_t i = 0; i < work->range_count; i++) {
        uint32_t at = place(s, work->range[i].first);
        if (at < s->count && s->at[at].first <= work->range[i].last) {
            pl_check_fail(
                c, "once", now,
                "fragment %u merges steps %lu.%lu to %lu of learner %lu; step %lu of them is in already",
                fragment, work->range[i].first >> 32, work->range[i].first & UINT32_MAX,
                work->range[i].last & UINT32_MAX, k->identity, s->at[at].first & UINT32_MAX);
            return;
        }
    }
    struct staged *g = &c->once->staged[fragment];
    if (pl_check_room(c, &g->parts, &g->cap, g->count + 1, sizeof(*g->parts)))
        g->parts[g->count++] = (struct part){person, *work};
}

/* What was staged counts from now on. */
static void settle(struct pl_checks *c, uint32_t fragment)
{
    struct staged *g = &c->once->staged[fragment];
    for (uint32_t i = 0; i < g->count; i++)
        for (uint32_t j = 0; j < g->parts[i].work.range_count; j++)
            add_span(c, spans_of(c, g->parts[i].person, fragment), g->parts[i].work.range[j].first,
                     g->parts[i].work.range[j].last);
    g->version = 0;
    g->count = 0;
}

static void sync_event(struct pl_checks *c, uint32_t shard, const struct pl_sync_event *ev)
{
    (void)shard;
    if (ev->kind == PL_SYNC_EV_MERGED && !ev->u.merged.good && ev->u.merged.fragment < c->fragment_count) {
        c->once->staged[ev->u.merged.fragment].version = 0;
        c->once->staged[ev->u.merged.fragment].count = 0;
    }
}

static void sync_effect(struct pl_checks *c, uint32_t shard, uint64_t now, const struct pl_sync_effect *fx)
{
    (void)shard;
    if (fx->kind == PL_SYNC_FX_PUBLISH) {
        settle(c, fx->u.publish.fragment);
    } else if (fx->kind == PL_SYNC_FX_MERGE) {
        struct staged *g = &c->once->staged[fx->u.merge.fragment];
        if (g->version != 0) {
            pl_check_fail(c, "once", now, "fragment %u is merged while its merge to version %lu is under way",
                          fx->u.merge.fragment, g->version);
            return;
        }
        g->version = fx->u.merge.base_version + 1;
        for (uint32_t i = 0; i < fx->u.merge.contributor_count; i++)
            one_contributor(c, now, fx, &fx->u.merge.contributors[i]);
    }
}

static void recovered(struct pl_checks *c, uint64_t now, uint32_t fragment, uint64_t version, uint64_t digest)
{
    (void)now;
    (void)digest;
    struct staged *g = &c->once->staged[fragment];
    if (g->version != 0 && version >= g->version)
        settle(c, fragment);
    g->version = 0;
    g->count = 0;
}

const struct pl_checker pl_check_once = {
    .name = "once",
    .init = init,
    .sync_event = sync_event,
    .sync_effect = sync_effect,
    .recovered = recovered,
};
