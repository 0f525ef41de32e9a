/* sim/check_ledger.c - a merge's weights are exactly the tokens and steps contributed, and the token clock is honest.
 *
 * The host of each learner counts what its copy really holds; a contributor's numbers in MERGE and in the record must
 * be those. The run's token clock never goes back within a life of the home shard or a process of a learner, never
 * shows more tokens than were trained, and comes back from a crash with at least what was durable.
 */
#include "sim/check_int.h"

struct merge_note {
    uint64_t round;
    uint32_t count;
    uint64_t steps, tokens; /* sums of the MERGE effect, for the record */
};

struct told {
    uint64_t process;
    uint64_t clock;
};

/* A record of the home shard on its way to the disk. */
enum { NOTES = 64 };
struct note {
    uint64_t seq, clock;
};

struct check_ledger {
    struct merge_note *merges; /* [fragment_count] */
    struct told *told;         /* [honest] */
    uint64_t clock;            /* last one the home shard spoke of in this life */
    uint64_t trained;          /* tokens of all inner steps of honest learners */
    struct note notes[NOTES];  /* by seq mod NOTES */
    uint64_t durable;          /* largest clock of a durable record */
};

static bool init(struct pl_checks *c)
{
    struct check_ledger *l = c->ledger = pl_check_zero(c, 1, sizeof(*l));
    if (l == NULL)
        return false;
    l->merges = pl_check_zero(c, c->fragment_count, sizeof(*l->merges));
    l->told = pl_check_zero(c, c->setup.identity_count, sizeof(*l->told));
    return c->status == PELAGO_OK;
}

void pl_check_ledger_step(struct pl_checks *c, uint64_t tokens)
{
    c->ledger->trained += tokens;
}

static void one_contributor(struct pl_checks *c, uint64_t now, const struct pl_sync_effect *fx,
                            const struct pl_contributor *k)
{
    uint32_t fragment = fx->u.merge.fragment, person = pl_check_person(c, k->identity);
    if (person == PL_NONE32)
        return;
    const struct pl_msg_push *h = &pl_check_push(c, person, fragment)->header;
    uint64_t steps = h->steps, tokens = h->tokens;
    if (pl_check_honest(c, person)) {
        const struct pl_work *work = pl_check_copy(c, person, fragment, fx->u.merge.round, h->digest, NULL);
        if (work != NULL) {
            steps = work->steps;
            tokens = work->tokens;
        }
    }
    if (k->steps != steps || k->tokens != tokens)
        pl_check_fail(
            c, "ledger", now,
            "fragment %u: learner %lu is weighed with %lu steps and %lu tokens; it contributed %lu and %lu",
            fragment, k->identity, k->steps, k->tokens, steps, tokens);
}

static void on_merge(struct pl_checks *c, uint64_t now, const struct pl_sync_effect *fx)
{
    struct merge_note *n = &c->ledger->merges[fx->u.merge.fragment];
    *n = (struct merge_note){.round = fx->u.merge.round, .count = fx->u.merge.contributor_count};
    for (uint32_t i = 0; i < n->count; i++) {
        const struct pl_contributor *k = &fx->u.merge.contributors[i];
        one_contributor(c, now, fx, k);
        n->steps += k->steps;
        n->tokens += k->tokens;
    }
}

static void on_record(struct pl_checks *c, uint64_t now, const struct pl_record *r)
{
    const struct merge_note *n = &c->ledger->merges[r->fragment];
    uint64_t steps = 0, tokens = 0;
    for (uint32_t i = 0; i < r->contributor_count; i++) {
        steps += r->contributors[i].steps;
        tokens += r->contributors[i].tokens;
    }
    if (r->round != n->round || r->contributor_count != n->count || steps != n->steps || tokens != n->tokens)
        pl_check_fail(
            c, "ledger", now,
            "fragment %u: the record has %u contributors with %lu tokens, the merge had %u with %lu",
            r->fragment, r->contributor_count, tokens, n->count, n->tokens);
}

static void on_clock(struct pl_checks *c, uint64_t now, uint64_t clock)
{
    struct check_ledger *l = c->ledger;
    if (clock < l->clock)
        pl_check_fail(c, "ledger", now, "the token clock went back from %lu to %lu", l->clock, clock);
    if (!c->setup.hostile && clock > l->trained)
        pl_check_fail(c, "ledger", now, "the token clock shows %lu, only %lu tokens were trained", clock,
                      l->trained);
    l->clock = clock;
}

static void sync_event(struct pl_checks *c, uint32_t shard, const struct pl_sync_event *ev)
{
    struct check_ledger *l = c->ledger;
    if (shard != 0 || ev->kind != PL_SYNC_EV_STORED || !ev->u.stored.durable)
        return;
    const struct note *n = &l->notes[ev->u.stored.seq % NOTES];
    if (n->seq == ev->u.stored.seq && n->clock > l->durable)
        l->durable = n->clock;
}

static void on_home_store(struct pl_checks *c, const struct pl_sync_effect *fx)
{
    uint64_t seq = fx->u.store.seq;
    c->ledger->notes[seq % NOTES] = (struct note){seq, fx->u.store.record->clock_tokens};
}

static void on_boot(struct pl_checks *c, uint64_t now, uint64_t clock)
{
    if (clock < c->ledger->durable)
        pl_check_fail(c, "ledger", now, "the token clock came back at %lu, but %lu was durable", clock,
                      c->ledger->durable);
}

static void sync_effect(struct pl_checks *c, uint32_t shard, uint64_t now, const struct pl_sync_effect *fx)
{
    if (fx->kind == PL_SYNC_FX_STORE && shard == 0)
        on_home_store(c, fx);
    if (fx->kind == PL_SYNC_FX_TRACE && shard == 0 && fx->u.trace.code == PL_TRACE_SYNC_BOOT)
        on_boot(c, now, fx->u.trace.arg[2]);
    else if (fx->kind == PL_SYNC_FX_MERGE)
        on_merge(c, now, fx);
    else if (fx->kind == PL_SYNC_FX_STORE && fx->u.store.record->type == PL_RECORD_ROUND)
        on_record(c, now, fx->u.store.record);
    else if (fx->kind == PL_SYNC_FX_SEND && shard == 0 && fx->u.send.msg.type == PL_MSG_CLOCK)
        on_clock(c, now, fx->u.send.msg.u.clock.clock_tokens);
    else if (fx->kind == PL_SYNC_FX_SEND && shard == 0 && fx->u.send.msg.type == PL_MSG_WELCOME)
        on_clock(c, now, fx->u.send.msg.u.welcome.clock_tokens);
}

static void crash(struct pl_checks *c, uint32_t shard, uint64_t now)
{
    (void)now;
    if (shard == 0)
        c->ledger->clock = 0; /* what came after the last record is told again by the learners */
}

static void learn_effect(struct pl_checks *c, uint32_t person, uint64_t process, uint64_t now,
                         const struct pl_learn_effect *fx)
{
    if (fx->kind != PL_LEARN_FX_CLOCK)
        return;
    struct told *t = &c->ledger->told[person];
    if (t->process == process && fx->u.clock.tokens < t->clock)
        pl_check_fail(c, "ledger", now, "learner %lu's token clock went back from %lu to %lu",
                      c->people[person], t->clock, fx->u.clock.tokens);
    *t = (struct told){process, fx->u.clock.tokens};
}

const struct pl_checker pl_check_ledger = {
    .name = "ledger",
    .init = init,
    .sync_event = sync_event,
    .sync_effect = sync_effect,
    .crash = crash,
    .learn_effect = learn_effect,
};
