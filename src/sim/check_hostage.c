/* sim/check_hostage.c - nobody holds up anybody.
 *
 * A learner's inner step ends when it was drawn to end, whatever links, syncers and other learners do; only its own
 * freezing moves it. And a round that is due and has its quorum is merged within the grace window, which is at most
 * one step of the period, however many pushes are still outstanding. The shard measures that step; a measurement far over
 * every step that was ever drawn is not believed. Where lines stretch the period, so is its step: by no more than the
 * longest stride.
 */
#include "sim/check_int.h"

#include "base/num.h"

enum { BELIEVED_TIMES = 4 };

struct steps {
    uint64_t process, end_ns;
};

struct waiting {
    uint64_t round;     /* due and not merged yet; 0 none */
    uint64_t quorum_ns; /* since when K pushes are held, PL_NEVER: they are not */
    uint64_t grace_ns;  /* as shown then */
};

struct check_hostage {
    struct steps *steps;     /* [honest][2]: a clone runs beside the first */
    struct waiting *waiting; /* [fragment_count] */
    uint64_t *asked;         /* [fragment_count] newest round pulled */
    uint64_t *interval;      /* [shard_count] as last shown */
    uint64_t *stretch;       /* [shard_count] the longest stride ever shown, 0 is 1 */
    uint64_t longest_ns;     /* step ever drawn */
};

static bool init(struct pl_checks *c)
{
    struct check_hostage *h = c->hostage = pl_check_zero(c, 1, sizeof(*h));
    if (h == NULL)
        return false;
    h->steps = pl_check_zero(c, (size_t)c->setup.identity_count * 2, sizeof(*h->steps));
    h->waiting = pl_check_zero(c, c->fragment_count, sizeof(*h->waiting));
    h->asked = pl_check_zero(c, c->fragment_count, sizeof(*h->asked));
    h->interval = pl_check_zero(c, c->shard_count, sizeof(*h->interval));
    h->stretch = pl_check_zero(c, c->shard_count, sizeof(*h->stretch));
    return c->status == PELAGO_OK;
}

void pl_check_hostage_step(struct pl_checks *c, uint64_t now, uint32_t person, uint64_t process,
                           uint64_t drawn_ns, uint64_t excused_ns)
{
    struct steps *s = &c->hostage->steps[(size_t)person * 2];
    if (drawn_ns > c->hostage->longest_ns)
        c->hostage->longest_ns = drawn_ns;
    if (s[0].process != process && s[1].process != process) {
        struct steps *old = s[0].process < s[1].process ? &s[0] : &s[1];
        *old = (struct steps){process, now};
        return;
    }
    struct steps *mine = s[0].process == process ? &s[0] : &s[1];
    uint64_t expected = mine->end_ns + drawn_ns + excused_ns;
    if (now != expected)
        pl_check_fail(c, "hostage", now, "a step of learner %lu ended %lu us %s than it was drawn to",
                      c->people[person], (now > expected ? now - expected : expected - now) / PL_US,
                      now > expected ? "later" : "earlier");
    mine->end_ns = now;
}

static uint32_t count_held(const struct pl_checks *c, uint32_t fragment, uint64_t round)
{
    uint32_t held = 0;
    for (uint32_t i = 0; i < c->person_count; i++) {
        const struct check_push *p = pl_check_push(c, i, fragment);
        held += p->held && p->header.round == round ? 1 : 0;
    }
    return held;
}

/* After anything that may have changed who is held. */
static void look(struct pl_checks *c, uint64_t now, uint32_t fragment)
{
    struct waiting *w = &c->hostage->waiting[fragment];
    if (w->round == 0)
        return;
    if (count_held(c, fragment, w->round) < c->quorum)
        w->quorum_ns = PL_NEVER;
    else if (w->quorum_ns == PL_NEVER) {
        w->quorum_ns = now;
        uint32_t shard = c->fragments[fragment].shard;
        w->grace_ns = c->hostage->interval[shard] * pl_max64(c->hostage->stretch[shard], 1);
    }
}

static void on_tick(struct pl_checks *c, uint32_t shard, uint64_t now, const struct pl_trace *t)
{
    struct check_hostage *h = c->hostage;
    h->interval[shard] = t->arg[1];
    uint64_t round = PL_ROUND(c->shards[shard].epoch, t->arg[0]);
    for (uint32_t p = 0; p < c->fragment_count; p++) {
        if (c->fragments[p].shard != shard || t->arg[0] % c->period != c->fragments[p].offset)
            continue;
        h->waiting[p] = (struct waiting){h->asked[p] == round ? round : 0, PL_NEVER, 0};
        look(c, now, p);
    }
}

static void on_quorum(struct pl_checks *c, uint64_t now, const struct pl_trace *t)
{
    struct check_hostage *h = c->hostage;
    struct waiting *w = &h->waiting[t->arg[0]];
    uint32_t shard = c->fragments[t->arg[0]].shard;
    uint64_t stretch = pl_max64(h->stretch[shard], 1), most = BELIEVED_TIMES * h->longest_ns;
    if (w->round != t->arg[1])
        return;
    if (t->arg[3] > most * stretch && t->arg[3] > h->interval[shard] * stretch)
        pl_check_fail(c, "hostage", now,
                      "fragment %lu gets a grace of %lu ms; no step ever took more than %lu ms", t->arg[0],
                      t->arg[3] / PL_MS, h->longest_ns / PL_MS);
    if (t->arg[3] > w->grace_ns)
        w->grace_ns = t->arg[3];
}

static void sync_effect(struct pl_checks *c, uint32_t shard, uint64_t now, const struct pl_sync_effect *fx)
{
    struct check_hostage *h = c->hostage;
    if (fx->kind == PL_SYNC_FX_TRACE && fx->u.trace.code == PL_TRACE_SYNC_TICK) {
        on_tick(c, shard, now, &fx->u.trace);
    } else if (fx->kind == PL_SYNC_FX_TRACE && fx->u.trace.code == PL_TRACE_SYNC_QUORUM) {
        on_quorum(c, now, &fx->u.trace);
    } else if (fx->kind == PL_SYNC_FX_TRACE && fx->u.trace.code == PL_TRACE_SYNC_STRIDE) {
        h->stretch[shard] = pl_max64(h->stretch[shard], fx->u.trace.arg[1]);
    } else if (fx->kind == PL_SYNC_FX_SEND && fx->u.send.msg.type == PL_MSG_PULL) {
        uint32_t p = fx->u.send.msg.u.pull.fragment;
        h->asked[p] = fx->u.send.msg.u.pull.round;
        if (h->waiting[p].round != 0 && h->waiting[p].round != h->asked[p])
            h->waiting[p].round = 0; /* superseded by a later round */
    } else if (fx->kind == PL_SYNC_FX_MERGE) {
        struct waiting *w = &h->waiting[fx->u.merge.fragment];
        if (w->round == fx->u.merge.round)
            w->round = 0;
    } else if (fx->kind == PL_SYNC_FX_DISCARD) {
        look(c, now, fx->u.push.fragment);
    }
}

static void overdue(struct pl_checks *c, uint32_t shard, uint64_t now)
{
    for (uint32_t p = 0; p < c->fragment_count; p++) {
        const struct waiting *w = &c->hostage->waiting[p];
        if (w->round == 0 || c->fragments[p].shard != shard || w->quorum_ns == PL_NEVER ||
            c->shards[shard].closing)
            continue;
        if (now - w->quorum_ns > w->grace_ns)
            pl_check_fail(
                c, "hostage", now,
                "fragment %u has had its quorum for %lu us and is not merged; %lu us is the longest grace", p,
                (now - w->quorum_ns) / PL_US, w->grace_ns / PL_US);
    }
}

static void sync_event(struct pl_checks *c, uint32_t shard, const struct pl_sync_event *ev)
{
    (void)shard;
    if (ev->kind == PL_SYNC_EV_VERIFIED && ev->u.verified.fragment < c->fragment_count)
        look(c, ev->now_ns, ev->u.verified.fragment);
}

static void crash(struct pl_checks *c, uint32_t shard, uint64_t now)
{
    (void)now;
    for (uint32_t p = 0; p < c->fragment_count; p++) {
        if (c->fragments[p].shard == shard) {
            c->hostage->waiting[p].round = 0;
            c->hostage->asked[p] = 0;
        }
    }
}

static void tick(struct pl_checks *c, uint64_t now)
{
    for (uint32_t i = 0; i < c->shard_count; i++)
        overdue(c, i, now);
}

const struct pl_checker pl_check_hostage = {
    .name = "hostage",
    .init = init,
    .sync_event = sync_event,
    .sync_effect = sync_effect,
    .sync_stepped = overdue,
    .crash = crash,
    .tick = tick,
};
