/* sim/check_clock.c - the clock t goes at the pace of the K-th fastest learner: neither faster nor not at all.
 *
 * The truth is the time the inner steps were drawn to take. While there are no faults, WINDOW ticks take no less than
 * WINDOW times the K-th smallest step time (less some tolerance: the shard measures through a network); and when K
 * learners have reported since the last tick and a few steps' time is over, t has ticked. The first catches a clock
 * that counts reports, the second one that follows step counts of learners that may have died (I19).
 */
#include "sim/check_int.h"

enum { WINDOW = 32, SAMPLES = 16, SLOWER_TIMES = 4 };
#define TOO_FAST_PERCENT UINT64_C(65)
#define WARM_NS (20 * PL_SEC)

struct pace {
    uint64_t sum_ns; /* of the last SAMPLES steps */
    uint64_t at[SAMPLES];
    uint32_t count;
    uint64_t peak_ns; /* the longest step lately; falls slower than a running average follows */
};

struct seen {
    uint64_t ticks[WINDOW]; /* when; a ring */
    uint64_t count;
    uint64_t since_ns; /* undisturbed since: boot, calm, a change of who is here */
    uint8_t *reported; /* [person_max] a step since the last tick */
    uint64_t *steps;   /* [person_max] as last reported by this process */
    uint32_t reporters;
    uint64_t enough_ns; /* when the K-th of them reported */
};

struct check_clock {
    struct pace *paces; /* [honest] */
    struct seen *seen;  /* [shard_count] */
    uint64_t *scratch;  /* [person_max] */
};

static bool init(struct pl_checks *c)
{
    struct check_clock *k = c->clock = pl_check_zero(c, 1, sizeof(*k));
    if (k == NULL)
        return false;
    k->paces = pl_check_zero(c, c->setup.identity_count, sizeof(*k->paces));
    k->seen = pl_check_zero(c, c->shard_count, sizeof(*k->seen));
    k->scratch = pl_check_zero(c, c->person_max, sizeof(*k->scratch));
    for (uint32_t i = 0; i < c->shard_count && c->status == PELAGO_OK; i++) {
        k->seen[i].reported = pl_check_zero(c, c->person_max, sizeof(*k->seen[i].reported));
        k->seen[i].steps = pl_check_zero(c, c->person_max, sizeof(*k->seen[i].steps));
    }
    return c->status == PELAGO_OK;
}

void pl_check_clock_step(struct pl_checks *c, uint32_t person, uint64_t drawn_ns)
{
    struct pace *p = &c->clock->paces[person];
    uint32_t i = p->count++ % SAMPLES;
    p->sum_ns += drawn_ns - p->at[i];
    p->at[i] = drawn_ns;
    p->peak_ns -= p->peak_ns / 16;
    p->peak_ns = drawn_ns > p->peak_ns ? drawn_ns : p->peak_ns;
}

/* K-th smallest mean and longest recent step of those who are here; a stranger may claim any, so counts as 0. False:
 * too few are here, or one is too new to be known. */
static bool step_times(const struct pl_checks *c, uint32_t shard, uint64_t *kth, uint64_t *largest)
{
    uint64_t *v = c->clock->scratch;
    uint32_t n = 0;
    *largest = 0;
    for (uint32_t i = 0; i < c->person_count; i++) {
        if (c->shards[shard].control[i] == PL_NONE32)
            continue;
        uint64_t mean = 0;
        if (pl_check_honest(c, i)) {
            const struct pace *p = &c->clock->paces[i];
            if (p->count < SAMPLES)
                return false;
            mean = p->sum_ns / SAMPLES;
            *largest = p->peak_ns > *largest ? p->peak_ns : *largest;
        }
        uint32_t at = n++;
        for (; at > 0 && v[at - 1] > mean; at--)
            v[at] = v[at - 1];
        v[at] = mean;
    }
    if (n < c->quorum)
        return false;
    *kth = v[c->quorum - 1];
    return true;
}

static bool judged(const struct pl_checks *c, uint32_t shard, uint64_t now)
{
    uint64_t since = c->clock->seen[shard].since_ns;
    since = since > c->calm_ns ? since : c->calm_ns;
    return c->calm && !c->shards[shard].closing && c->shards[shard].listening && now > since + WARM_NS;
}

static void clear_reports(struct pl_checks *c, struct seen *s)
{
    for (uint32_t i = 0; i < c->person_max; i++)
        s->reported[i] = 0;
    s->reporters = 0;
}

/* Who is here has changed; a report of somebody who left does not count. */
static void disturbed(struct pl_checks *c, struct seen *s, uint64_t now)
{
    s->since_ns = now;
    clear_reports(c, s);
}

static void on_tick(struct pl_checks *c, uint32_t shard, uint64_t now)
{
    struct seen *s = &c->clock->seen[shard];
    uint64_t kth, largest, first = s->ticks[s->count % WINDOW];
    s->ticks[s->count++ % WINDOW] = now;
    clear_reports(c, s);
    if (s->count <= WINDOW || !judged(c, shard, now) || !step_times(c, shard, &kth, &largest))
        return;
    if (first < s->since_ns || first < c->calm_ns)
        return;
    if ((now - first) / WINDOW < kth * TOO_FAST_PERCENT / 100)
        pl_check_fail(c, "clock", now,
                      "shard %u ticks every %lu us; the learner number %u by speed needs %lu us a step",
                      shard, (now - first) / WINDOW / PL_US, c->quorum, kth / PL_US);
}

static void stalled(struct pl_checks *c, uint32_t shard, uint64_t now)
{
    const struct seen *s = &c->clock->seen[shard];
    uint64_t kth, largest,
        from = s->enough_ns > c->shards[shard].tick_ns ? s->enough_ns : c->shards[shard].tick_ns;
    if (s->reporters < c->quorum || !judged(c, shard, now) || !step_times(c, shard, &kth, &largest))
        return;
    if (now - from > SLOWER_TIMES * largest + PL_SEC)
        pl_check_fail(
            c, "clock", now,
            "shard %u has not ticked for %lu ms although %u learners reported; a step takes at most %lu ms",
            shard, (now - from) / PL_MS, s->reporters, largest / PL_MS);
}

static void on_report(struct pl_checks *c, uint32_t shard, uint64_t now, uint32_t person, uint64_t steps)
{
    struct seen *s = &c->clock->seen[shard];
    bool grown = steps > s->steps[person];
    s->steps[person] = steps;
    if (!grown || s->reported[person])
        return;
    s->reported[person] = 1;
    if (++s->reporters == c->quorum)
        s->enough_ns = now;
}

static void sync_event(struct pl_checks *c, uint32_t shard, const struct pl_sync_event *ev)
{
    struct seen *s = &c->clock->seen[shard];
    uint32_t person = pl_check_sender(c, shard);
    if (ev->kind == PL_SYNC_EV_BOOT || ev->kind == PL_SYNC_EV_CLOSED)
        disturbed(c, s, ev->now_ns);
    if (ev->kind != PL_SYNC_EV_MSG || person == PL_NONE32 ||
        c->shards[shard].control[person] != ev->u.msg.conn)
        return;
    if (ev->u.msg.msg->type == PL_MSG_JOIN) {
        s->since_ns = ev->now_ns;
        s->steps[person] = 0;
    } else if (ev->u.msg.msg->type == PL_MSG_REPORT) {
        on_report(c, shard, ev->now_ns, person, ev->u.msg.msg->u.report.steps);
    }
}

static void sync_effect(struct pl_checks *c, uint32_t shard, uint64_t now, const struct pl_sync_effect *fx)
{
    if (fx->kind == PL_SYNC_FX_TRACE && fx->u.trace.code == PL_TRACE_SYNC_TICK)
        on_tick(c, shard, now);
    else if (fx->kind == PL_SYNC_FX_CLOSE)
        disturbed(c, &c->clock->seen[shard], now);
}

const struct pl_checker pl_check_clock = {
    .name = "clock",
    .init = init,
    .sync_event = sync_event,
    .sync_effect = sync_effect,
    .sync_stepped = stalled,
};
