/* host/syncer_status.c - what a shard is doing now, as JSON; docs/status.md names every member. */
#include "host/syncer_host_int.h"

#include "base/check.h"
#include "base/hash.h"
#include "base/num.h"
#include "os/clock.h"
#include "train/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

enum { DIGITS = 9 };

static double seconds(uint64_t ns)
{
    return (double)ns / (double)PL_SEC;
}

static double share(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

/* ---- the process ---- */

static uint64_t resident_bytes(void)
{
    unsigned long total = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f == NULL)
        return 0;
    if (fscanf(f, "%lu %lu", &total, &resident) != 2)
        resident = 0;
    (void)fclose(f);
    return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static double cpu_seconds(void)
{
    struct rusage u;
    if (getrusage(RUSAGE_SELF, &u) != 0)
        return 0;
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void put_process(struct pl_syncer_host *h, json_t *o, bool *good)
{
    pl_json_add_count(o, good, "memory_bytes", resident_bytes());
    pl_json_add_count(o, good, "push_bytes", h->push_bytes);
    pl_json_add_real(o, good, "cpu_s", cpu_seconds());
    pl_json_add_count(o, good, "core_steps", h->steps);
    pl_json_add_count(o, good, "merge_ns",
                      h->counters.merges > 0 ? h->counters.merge_ns / h->counters.merges : 0);
    pl_json_add_count(o, good, "verify_ns",
                      h->counters.verifies > 0 ? h->counters.verify_ns / h->counters.verifies : 0);
}

/* ---- the run ---- */

static const char *phase_name(enum pl_phase phase)
{
    return phase == PL_PHASE_RUNNING ? "running" : phase == PL_PHASE_CLOSING ? "closing" : "done";
}

static double merged_tokens(const struct pl_syncer_host *h)
{
    double sum = (double)h->value_tokens_hi * 0x1p64 + (double)h->value_tokens_lo;
    return sum / (double)h->layout.tensors.params;
}

/* Contributors of the last round of every fragment, beside the learners that were alive then; never above 1. */
static double merged_alive(const struct pl_syncer_host *h)
{
    uint64_t merged = 0, live = 0;
    for (uint32_t i = 0; i < h->fragment_count; i++) {
        merged += h->fragments[i].last_merged;
        live += h->fragments[i].last_live;
    }
    return live == 0 ? -1 : share((double)merged, (double)live);
}

static void put_run(struct pl_syncer_host *h, const struct pl_sync_view *v, json_t *o, bool *good)
{
    double merged = merged_tokens(h);
    pl_json_add(o, good, "run", pl_json_bits_value(h->settings.run_id));
    pl_json_add(o, good, "model", json_string(h->settings.model));
    pl_json_add(o, good, "algorithm", json_string(pl_algorithm_name(h->settings.algorithm)));
    pl_json_add_count(o, good, "params", h->layout.tensors.params);
    pl_json_add_count(o, good, "shard", h->options.shard);
    pl_json_add_count(o, good, "shards", h->settings.shards);
    pl_json_add(o, good, "address", json_string(h->address));
    pl_json_add(o, good, "phase", json_string(phase_name(v->phase)));
    pl_json_add_real(o, good, "uptime_s", seconds(pl_clock_ns() - h->start_ns));
    pl_json_add_count(o, good, "epoch", v->epoch);
    pl_json_add_count(o, good, "tick", v->tick);
    pl_json_add_count(o, good, "interval_ns", v->interval_ns);
    pl_json_add_count(o, good, "tokens", v->clock_tokens);
    pl_json_add_count(o, good, "total_tokens", h->settings.total_tokens);
    pl_json_add_count(o, good, "merged_tokens", (uint64_t)merged);
    pl_json_add_real(o, good, "goodput", v->clock_tokens == 0 ? -1 : merged / (double)v->clock_tokens);
    pl_json_add_count(o, good, "tokens_per_s", v->rate_tokens);
    pl_json_add_count(o, good, "merges", v->rounds_merged);
    pl_json_add_count(o, good, "rounds_void", v->rounds_void);
    pl_json_add_count(o, good, "rounds_busy", v->rounds_busy);
    pl_json_add_count(o, good, "rounds_graced", v->rounds_graced);
    pl_json_add_count(o, good, "grace_late_ns", v->grace_late_ns);
    pl_json_add_count(o, good, "announce_ns", v->sync_ns);
    pl_json_add_real(o, good, "merged_alive", merged_alive(h));
    pl_json_add_count(o, good, "contributors", h->counters.contributors);
    pl_json_add_count(o, good, "contributors_alive", h->counters.contributors_alive);
    pl_json_add_count(o, good, "known", v->known);
    pl_json_add_count(o, good, "alive", v->live);
    pl_json_add_count(o, good, "quorum", v->quorum);
    pl_json_add_count(o, good, "overlap_eff", v->overlap_eff);
    pl_json_add_count(o, good, "period_eff", v->period_eff);
}

static void put_traffic(struct pl_syncer_host *h, json_t *o, bool *good)
{
    struct pl_listener_view l = {0};
    if (h->listener != NULL)
        pl_listener_view(h->listener, &l);
    pl_json_add_count(o, good, "bytes_up", h->counters.bytes_in);
    pl_json_add_count(o, good, "bytes_down", h->counters.bytes_out);
    pl_json_add_count(o, good, "connections", h->visitor_count);
    pl_json_add_count(o, good, "accepted", l.accepted);
    pl_json_add_count(o, good, "strangers_refused", l.refused);
    pl_json_add_count(o, good, "handshaking", l.handshaking);
    pl_json_add_count(o, good, "lost", h->counters.lost);
    pl_json_add_count(o, good, "joins", h->counters.joins);
    pl_json_add_count(o, good, "fenced", h->counters.fenced);
    pl_json_add_count(o, good, "refused", h->counters.refused + h->counters.bad_pushes + l.refused);
    pl_json_add_count(o, good, "pushes_refused", h->counters.bad_pushes);
}

static void put_door(struct pl_syncer_host *h, json_t *o, bool *good)
{
    struct pl_door_view d;
    if (h->door == NULL)
        return;
    pl_door_keeper_view(h->door, &d);
    pl_json_add_count(o, good, "door.identities", d.identities);
    pl_json_add_count(o, good, "door.invitations", d.invitations);
    pl_json_add_count(o, good, "door.enrolled", d.enrolled);
    pl_json_add_count(o, good, "door.renewed", d.renewed);
    pl_json_add_count(o, good, "door.refused", d.refused);
}

static void put_journal(struct pl_syncer_host *h, json_t *o, bool *good)
{
    struct pl_vault_view v;
    uint64_t recorded;
    pl_vault_view(h, &v);
    pl_json_add(o, good, "durability", json_string(h->o.relaxed == 0 ? "strict" : "relaxed"));
    pl_json_add_count(o, good, "journal_bytes", v.journal_bytes);
    pl_json_add_count(o, good, "journal_records", v.records);
    pl_json_add_count(o, good, "snapshots", v.snapshots);
    pl_json_add_count(o, good, "store_failures", v.failures);
    pl_json_add(o, good, "store_failing", json_boolean(v.failing));
    pl_json_add_count(o, good, "store_waiting", v.waiting);
    pl_json_add_real(o, good, "store_lag_s", v.oldest_ns == 0 ? 0 : seconds(pl_clock_ns() - v.oldest_ns));
    pl_json_add_count(o, good, "store_ns", v.sync_ns);
    pl_json_add_count(o, good, "store_syncs", v.syncs);
    pl_json_add(o, good, "mirror", json_boolean(h->mirror_dir != NULL));
    if (h->recorder != NULL) {
        pl_json_add(o, good, "recorder_good", json_boolean(pl_recorder_good(h->recorder, &recorded)));
        pl_json_add_count(o, good, "recorder_bytes", recorded);
    }
}

/* ---- learners ---- */

/* Tokens a second of one that takes part. */
static double speed(const struct pl_learner_view *v, const struct pl_islander *m)
{
    return v->live && m != NULL ? pl_speed_now(&m->speed, pl_clock_ns()) : 0;
}

static json_t *learner(const struct pl_learner_view *v, const struct pl_islander *m,
                       const struct pl_trust *trust, bool all, bool *good)
{
    json_t *o = json_object();
    char incarnation[32];
    (void)pl_incarnation_print(v->incarnation, incarnation, sizeof incarnation);
    uint64_t step_ns = v->step_ns != 0 ? v->step_ns : m != NULL ? m->step_ns : 0;
    pl_json_add_count(o, good, "identity", v->identity);
    pl_json_add(o, good, "alive", json_boolean(v->live));
    pl_json_add(o, good, "incarnation", json_string(incarnation));
    pl_json_add_count(o, good, "steps", v->steps);
    pl_json_add_count(o, good, "tokens", v->tokens);
    pl_json_add_count(o, good, "step_ns", step_ns);
    pl_json_add_real(o, good, "tokens_per_s", speed(v, m));
    pl_json_add_count(o, good, "lead_ns", v->lead_ns);
    pl_json_add_count(o, good, "stride", v->stride);
    pl_json_add_count(o, good, "rounds_pulled", v->rounds_pulled);
    pl_json_add_count(o, good, "rounds_merged", v->rounds_merged);
    pl_json_add_real(o, good, "merged_share",
                     v->rounds_pulled == 0 ? -1 : share((double)v->rounds_merged, (double)v->rounds_pulled));
    pl_json_add(o, good, "counts", json_boolean(trust == NULL || !trust->out));
    pl_json_add_real(o, good, "agreement_z", trust == NULL ? 0 : pl_trust_z(trust));
    pl_json_add(o, good, "connected", json_boolean(m != NULL && m->conns > 0));
    if (m == NULL)
        return o;
    if (all)
        pl_json_add(o, good, "address", json_string(m->address));
    pl_json_add_real(o, good, "loss", (double)m->loss_micro / 1e6);
    pl_json_add_count(o, good, "bytes_up", m->bytes_in);
    pl_json_add_count(o, good, "bytes_down", m->bytes_out);
    pl_json_add_real(o, good, "silent_s", seconds(pl_sub_sat(pl_clock_ns(), m->heard_ns)));
    pl_json_add_real(o, good, "merged_tokens", m->merged_tokens);
    pl_json_add_count(o, good, "joins", m->joins);
    pl_json_add_count(o, good, "refused", m->refused);
    return o;
}

/* Members and standings in the order of their identities: with thousands of learners nobody is searched for one by one. */
struct sorted {
    const struct pl_islander **members;
    const struct pl_standing **standings;
    uint32_t member_count, standing_count, capacity;
};

static int in_order(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static int by_member(const void *a, const void *b)
{
    const struct pl_islander *const *x = a, *const *y = b;
    return in_order((*x)->identity, (*y)->identity);
}

static int by_standing(const void *a, const void *b)
{
    const struct pl_standing *const *x = a, *const *y = b;
    return in_order((*x)->identity, (*y)->identity);
}

static bool sort(const struct pl_syncer_host *h, struct sorted *s)
{
    s->capacity = h->options.learners_max;
    s->members = pl_alloc_zero(&h->alloc, s->capacity, sizeof(void *));
    s->standings = pl_alloc_zero(&h->alloc, s->capacity, sizeof(void *));
    if (s->members == NULL || s->standings == NULL)
        return false;
    for (uint32_t i = 0; i < s->capacity; i++) {
        if (h->members[i].identity != 0)
            s->members[s->member_count++] = &h->members[i];
        if (h->standings[i].identity != 0)
            s->standings[s->standing_count++] = &h->standings[i];
    }
    qsort(s->members, s->member_count, sizeof(void *), by_member);
    qsort(s->standings, s->standing_count, sizeof(void *), by_standing);
    return true;
}

static void sorted_release(const struct pl_syncer_host *h, struct sorted *s)
{
    pl_alloc_free(&h->alloc, s->members, s->capacity * sizeof(void *));
    pl_alloc_free(&h->alloc, s->standings, s->capacity * sizeof(void *));
}

/* NULL: not known. */
static const struct pl_islander *member_of(const struct sorted *s, uint64_t identity)
{
    const struct pl_islander key = {.identity = identity}, *at = &key;
    const struct pl_islander **found = bsearch(&at, s->members, s->member_count, sizeof(void *), by_member);
    return found == NULL ? NULL : *found;
}

static const struct pl_trust *trust_of(const struct sorted *s, uint64_t identity)
{
    const struct pl_standing key = {.identity = identity}, *at = &key;
    const struct pl_standing **found =
        bsearch(&at, s->standings, s->standing_count, sizeof(void *), by_standing);
    return found == NULL ? NULL : &(*found)->trust;
}

void pl_shost_look(struct pl_syncer_host *h)
{
    uint64_t now = pl_clock_ns();
    for (uint32_t i = 0; i < h->options.learners_max; i++) {
        struct pl_islander *m = &h->members[i];
        struct pl_learner_view v;
        if (m->identity != 0 && pl_syncer_view_identity(h->core, m->identity, &v) && v.live)
            pl_speed_look(&m->speed, v.tokens, now);
    }
}

/* The loss of the run as its learners see it. */
struct loss {
    double fast, fast_weight; /* of the living, by tokens a second */
    double live, live_weight; /* of the living, while nobody's speed is known */
    double past, past_weight; /* of those who left: what is said last when all have gone */
};

static void add_loss(struct loss *l, const struct pl_learner_view *v, const struct pl_islander *m)
{
    if (m == NULL || m->loss_micro == 0)
        return;
    double loss = (double)m->loss_micro / 1e6, rate = speed(v, m);
    l->fast += rate * loss;
    l->fast_weight += rate;
    *(v->live ? &l->live : &l->past) += loss;
    *(v->live ? &l->live_weight : &l->past_weight) += 1;
}

static double loss_of(const struct loss *l)
{
    if (l->fast_weight > 0)
        return l->fast / l->fast_weight;
    return l->live_weight > 0 ? l->live / l->live_weight : share(l->past, l->past_weight);
}

static void put_learners(struct pl_syncer_host *h, const struct sorted *s, bool all, json_t *o, bool *good)
{
    json_t *list = json_array();
    struct loss loss = {0};
    uint32_t connected = 0;
    for (uint32_t i = 0; i < h->options.learners_max; i++) {
        struct pl_learner_view v;
        if (!pl_syncer_view_learner(h->core, i, &v))
            continue;
        const struct pl_islander *m = member_of(s, v.identity);
        json_t *one = learner(&v, m, trust_of(s, v.identity), all, good);
        *good = json_array_append_new(list, one) == 0 && *good;
        connected += m != NULL && m->conns > 0 ? 1 : 0;
        add_loss(&loss, &v, m);
    }
    pl_json_add_count(o, good, "connected", connected);
    pl_json_add_count(o, good, "doubted", pl_trust_doubted(h));
    pl_json_add_real(o, good, "loss", loss_of(&loss));
    pl_json_add(o, good, "learners", list);
}

static void put_fragments(struct pl_syncer_host *h, json_t *o, bool *good)
{
    json_t *list = json_array();
    uint64_t all = 0;
    for (uint32_t i = 0; i < h->fragment_count; i++) {
        const struct pl_shard_fragment *f = &h->fragments[i];
        json_t *one = json_object();
        uint64_t digest, version = pl_syncer_version(h->core, f->number, &digest);
        all = pl_hash64(&digest, sizeof digest, all); /* as in learner_line.c */
        pl_json_add_count(one, good, "fragment", f->number);
        pl_json_add_count(one, good, "version", version);
        pl_json_add(one, good, "digest", pl_json_bits_value(digest));
        pl_json_add_count(one, good, "values", f->count);
        *good = json_array_append_new(list, one) == 0 && *good;
    }
    pl_json_add(o, good, "fragments", list);
    pl_json_add(o, good, "anchors", pl_json_bits_value(all));
}

uint64_t pl_syncer_host_tokens(struct pl_syncer_host *h)
{
    struct pl_sync_view view;
    pl_assert(!h->stepping);
    pl_syncer_view(h->core, &view);
    return view.seen_tokens;
}

enum pelago_status pl_syncer_host_status(struct pl_syncer_host *h, bool all, struct pl_buf *out)
{
    struct pl_sync_view view;
    struct sorted s = {.members = NULL};
    json_t *o = json_object();
    bool good = o != NULL;
    pl_assert(!h->stepping);
    if (!good)
        return PELAGO_NOMEM;
    pl_syncer_view(h->core, &view);
    put_run(h, &view, o, &good);
    put_traffic(h, o, &good);
    put_journal(h, o, &good);
    put_door(h, o, &good);
    put_process(h, o, &good);
    if (sort(h, &s))
        put_learners(h, &s, all, o, &good);
    else
        good = false;
    sorted_release(h, &s);
    put_fragments(h, o, &good);
    enum pelago_status st = good ? pl_json_print(o, DIGITS, out) : PELAGO_NOMEM;
    json_decref(o);
    return st;
}
