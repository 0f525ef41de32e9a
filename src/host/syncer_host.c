/* host/syncer_host.c - the step: an event goes into the core, its effects are performed in order. See syncer_host.h.
 *
 * No effect steps the core again from within: answers come from jobs and sockets on a later turn of the loop, and what
 * the owner is told (finished, failed) waits for such a turn, too, because the owner may stop us in it.
 */
#include "host/syncer_host_int.h"

#include "base/check.h"
#include "base/fmt.h"
#include "base/num.h"
#include "os/clock.h"

#include <string.h>

enum {
    LINE_BYTES = 512,
    SWEEP_MS = 1000,
    TRIM_SWEEPS = 10,
    HEARD_SWEEPS = 30,
    CHECK_EVERY_STEPS = 4096,
    STRANGER_LINES = 20
};
#define TIMER_MS_MAX UINT64_C(60000)

/* ---- telling people ---- */

void pl_shost_log(struct pl_syncer_host *h, const char *format, ...)
{
    char line[LINE_BYTES];
    va_list args;
    if (h->o.log == NULL)
        return;
    va_start(args, format);
    (void)pl_vfmt(line, sizeof line, format, args);
    va_end(args);
    h->o.log(h->o.user, line);
}

void pl_shost_log_stranger(struct pl_syncer_host *h, const char *format, ...)
{
    char line[LINE_BYTES];
    va_list args;
    if (h->o.log == NULL || !pl_rate_ok(&h->strangers, pl_clock_ns(), STRANGER_LINES))
        return;
    uint32_t more = pl_rate_dropped(&h->strangers);
    if (more > 0)
        pl_shost_log(h, "before this, %u more lines like these", more);
    va_start(args, format);
    (void)pl_vfmt(line, sizeof line, format, args);
    va_end(args);
    h->o.log(h->o.user, line);
}

static void tell_owner(uv_timer_t *timer)
{
    struct pl_syncer_host *h = timer->data;
    if (h->failure.status != PELAGO_OK && !h->told_failure) {
        h->told_failure = true;
        if (h->o.failed != NULL)
            h->o.failed(h->o.user, &h->failure);
    } else if (h->finished && !h->told_finished) {
        h->told_finished = true;
        if (h->o.finished != NULL)
            h->o.finished(h->o.user);
    }
}

static void tell_later(struct pl_syncer_host *h)
{
    if (h->running && !h->stopping)
        (void)uv_timer_start(&h->later, tell_owner, 0, 0);
}

void pl_shost_fail(struct pl_syncer_host *h, const struct pl_error *why)
{
    if (h->failure.status != PELAGO_OK)
        return;
    h->failure = *why;
    if (h->failure.status == PELAGO_OK)
        h->failure.status = PELAGO_IO;
    pl_shost_log(h, "syncer.failed: %s", why->text);
    tell_later(h);
}

/* The core takes whoever is gone for one that left; an operator wants to know who said goodbye. */
static void lost(struct pl_syncer_host *h, const struct pl_trace *t)
{
    const struct pl_islander *m = pl_shost_member(h, t->arg[0]);
    bool said = m != NULL && m->leaves;
    h->counters.lost += t->arg[1] != PL_REASON_DONE && !said ? 1 : 0;
    pl_shost_log(h, "learner.lost learner=%lu reason=%s", t->arg[0],
                 t->arg[1] == PL_REASON_LEAVING && !said ? "DISCONNECTED"
                                                         : pl_reason_name((uint32_t)t->arg[1]));
}

/* What a person wants to read: who comes and goes, what fails. Rounds are for `pelago replay`. */
static void trace(struct pl_syncer_host *h, const struct pl_trace *t)
{
    char text[LINE_BYTES];
    struct pl_islander *m;
    if (t->code == PL_TRACE_SYNC_LOST) {
        lost(h, t);
        return;
    }
    if (t->code == PL_TRACE_SYNC_JOIN) {
        h->counters.joins++;
        m = pl_shost_member(h, t->arg[0]);
        if (m != NULL) {
            m->joins++;
            m->leaves = false;
            pl_speed_begin(&m->speed);
        }
    } else if (t->code == PL_TRACE_SYNC_FENCE) {
        h->counters.fenced++;
    } else if (t->code == PL_TRACE_SYNC_LATE) {
        /* Ordinary, or sent again by somebody who hopes to count twice: whoever wants can have many of them. */
        (void)pl_trace_print(t, text, sizeof text);
        pl_shost_log_stranger(h, "%s: the round is over; it counts for nothing", text);
        return;
    } else if (t->code != PL_TRACE_SYNC_BOOT && t->code != PL_TRACE_SYNC_CLOSING &&
               t->code != PL_TRACE_SYNC_DONE) {
        return;
    }
    (void)pl_trace_print(t, text, sizeof text);
    pl_shost_log(h, "%s", text);
}

/* ---- effects ---- */

uint32_t pl_shost_local(const struct pl_syncer_host *h, uint32_t fragment)
{
    uint32_t i = fragment / h->manifest.msg.shard_count; /* fragments are dealt out in turn (core/plan.h) */
    pl_assert(i < h->fragment_count && h->fragments[i].number == fragment);
    return i;
}

struct pl_shard_fragment *pl_shost_fragment(struct pl_syncer_host *h, uint32_t number)
{
    return &h->fragments[pl_shost_local(h, number)];
}

static void perform(struct pl_syncer_host *h, const struct pl_sync_effect *fx)
{
    switch (fx->kind) {
    case PL_SYNC_FX_LISTEN:
        h->listening = true;
        break;
    case PL_SYNC_FX_SEND:
        pl_shost_send(h, fx->u.send.conn, &fx->u.send.msg);
        break;
    case PL_SYNC_FX_CLOSE:
        pl_shost_close(h, fx);
        break;
    case PL_SYNC_FX_KEEP:
        pl_shost_keep(h, fx);
        break;
    case PL_SYNC_FX_VERIFY:
        pl_shost_verify(h, fx);
        break;
    case PL_SYNC_FX_DISCARD:
        pl_shost_discard(h, fx);
        break;
    case PL_SYNC_FX_MERGE:
        pl_shost_merge(h, fx);
        break;
    case PL_SYNC_FX_STORE:
        pl_vault_store(h, fx);
        break;
    case PL_SYNC_FX_PUBLISH:
        pl_shost_publish(h, fx);
        break;
    case PL_SYNC_FX_DELIVER:
        pl_shost_deliver(h, fx);
        break;
    case PL_SYNC_FX_FINISHED:
        h->finished = true;
        tell_later(h);
        break;
    case PL_SYNC_FX_TRACE:
        trace(h, &fx->u.trace);
        break;
    }
}

void pl_shost_step(struct pl_syncer_host *h, struct pl_sync_event *ev)
{
    if (h->stopping || h->failure.status != PELAGO_OK) {
        pl_shost_stop_check(h);
        return;
    }
    pl_assert(!h->stepping);
    h->stepping = true;
    ev->now_ns = pl_max64(pl_clock_ns(), h->last_now_ns);
    h->last_now_ns = ev->now_ns;
    pl_syncer_step(h->core, ev, &h->fxs);
    if (h->recorder != NULL)
        pl_recorder_step(h->recorder, ev, &h->fxs);
    for (uint32_t i = 0; i < h->fxs.count; i++)
        perform(h, &h->fxs.fx[i]);
    h->stepping = false;
    if (++h->steps % CHECK_EVERY_STEPS == 0)
        pl_syncer_check(h->core);
    pl_shost_arm(h);
}

/* ---- time ---- */

static void on_timer(uv_timer_t *timer)
{
    struct pl_syncer_host *h = timer->data;
    uint64_t late = pl_sub_sat(pl_clock_ns(), pl_syncer_deadline(h->core));
    h->armed_ns = PL_NEVER;
    if (h->failure.status != PELAGO_OK)
        return;
    /* Without a processor for a while this comes before what learners said meanwhile: they are heard first, or all of them
     * would count as silent. */
    bool hear_first = late >= PL_LATE_NS && !h->late;
    h->late = hear_first;
    if (hear_first)
        (void)uv_timer_start(&h->timer, on_timer, 1, 0);
    else if (pl_clock_ns() >= pl_syncer_deadline(h->core))
        pl_shost_step(h, &(struct pl_sync_event){.kind = PL_SYNC_EV_TIMEOUT});
    else
        pl_shost_arm(h); /* libuv counts whole milliseconds on a clock of its own, and rings early */
}

void pl_shost_arm(struct pl_syncer_host *h)
{
    if (!h->running || h->stopping)
        return;
    uint64_t deadline = pl_syncer_deadline(h->core), now = pl_clock_ns();
    if (deadline == PL_NEVER) {
        (void)uv_timer_stop(&h->timer);
        h->armed_ns = PL_NEVER;
        return;
    }
    if (deadline == h->armed_ns)
        return;
    h->armed_ns = deadline;
    uint64_t ms = deadline <= now ? 0 : pl_min64((deadline - now + PL_MS - 1) / PL_MS, TIMER_MS_MAX);
    uv_update_time(h->o.loop);
    (void)uv_timer_start(&h->timer, on_timer, ms, 0);
}

static void on_sweep(uv_timer_t *timer)
{
    struct pl_syncer_host *h = timer->data;
    pl_shost_sweep(h);
    pl_shost_look(h);
    /* What a rush of learners needed lies between what stays, and would not be given back by itself. */
    if (++h->sweeps % TRIM_SWEEPS == 0)
        pl_alloc_trim();
    if (!h->stopping)
        pl_trust_tell(h);
    if (h->sweeps % HEARD_SWEEPS == 0)
        pl_heard_save(h);
    if (h->recorder != NULL)
        pl_recorder_flush(h->recorder);
    if (h->announcer != NULL)
        pl_announcer_tick(h);
}

static void recorded(void *user)
{
    pl_shost_stop_check(user);
}

void pl_shost_start_timers(struct pl_syncer_host *h)
{
    uv_timer_t *timers[] = {&h->timer, &h->sweep, &h->later};
    for (size_t i = 0; i < sizeof timers / sizeof timers[0]; i++) {
        (void)uv_timer_init(h->o.loop, timers[i]);
        timers[i]->data = h;
        h->timers_open++;
    }
    if (h->recorder != NULL)
        pl_recorder_use_workers(h->recorder, h->o.loop, recorded, h);
    h->armed_ns = PL_NEVER;
    h->running = true;
    (void)uv_timer_start(&h->sweep, on_sweep, SWEEP_MS, SWEEP_MS);
    pl_shost_arm(h);
    if (h->finished || h->failure.status != PELAGO_OK)
        tell_later(h);
}

/* ---- the end ---- */

void pl_shost_free(struct pl_syncer_host *h)
{
    const struct pl_alloc alloc = h->alloc;
    pl_vault_free(h);
    pl_heard_free(h);
    if (h->layout.fragments != NULL)
        pl_shost_values_free(h);
    pl_pool_free(h->pool);
    pl_recorder_free(h->recorder);
    pl_door_keeper_free(h->door);
    pl_announcer_free(h);
    pl_alloc_free(&alloc, h->memory, h->memory_bytes);
    pl_alloc_free(&alloc, h->fxs.fx, h->fxs.max * sizeof *h->fxs.fx);
    pl_alloc_free(&alloc, h->conns, h->options.conns_max * sizeof *h->conns);
    pl_alloc_free(&alloc, h->members, h->options.learners_max * sizeof *h->members);
    pl_alloc_free(&alloc, h->claims,
                  (size_t)h->options.learners_max * h->claim_fragments * sizeof *h->claims);
    pl_alloc_free(&alloc, h->standings, h->options.learners_max * sizeof *h->standings);
    pl_alloc_free(&alloc, h->guard_steps, h->options.learners_max * sizeof *h->guard_steps);
    pl_alloc_free(&alloc, h->chunk, h->chunk_bytes);
    pl_manifest_release(&h->manifest, &alloc);
    if (h->layout.fragments != NULL)
        pl_layout_release(&h->layout);
    pl_posix_dir_close(h->journal_dir);
    pl_posix_dir_close(h->mirror_dir);
    pl_posix_dir_close(h->mirror_home);
    pl_posix_dir_close(h->door_dir);
    pl_posix_dir_close(h->dir);
    pl_alloc_free(&alloc, h, sizeof *h);
}

void pl_shost_stop_check(struct pl_syncer_host *h)
{
    if (!h->stopping || h->jobs > 0 || h->timers_open > 0 || pl_vault_busy(h) || pl_announcer_busy(h) ||
        pl_door_keeper_busy(h->door) || pl_recorder_busy(h->recorder))
        return;
    void (*done)(void *user) = h->stopped;
    void *user = h->stopped_user;
    pl_shost_free(h);
    if (done != NULL)
        done(user);
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct pl_syncer_host *h = handle->data;
    h->timers_open--;
    pl_shost_stop_check(h);
}

void pl_syncer_host_stop(struct pl_syncer_host *h, void (*done)(void *user), void *user)
{
    pl_assert(!h->stopping && !h->stepping);
    h->stopping = true;
    h->stopped = done;
    h->stopped_user = user;
    pl_listener_close(h->listener);
    h->listener = NULL;
    pl_shost_dismiss(h);
    uv_close((uv_handle_t *)&h->timer, on_timer_closed);
    uv_close((uv_handle_t *)&h->sweep, on_timer_closed);
    uv_close((uv_handle_t *)&h->later, on_timer_closed);
}

const struct pl_settings *pl_syncer_host_settings(const struct pl_syncer_host *h)
{
    return &h->settings;
}

uint32_t pl_syncer_host_connected(const struct pl_syncer_host *h)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < h->options.learners_max; i++)
        count += h->members[i].identity != 0 && h->members[i].conns > 0 ? 1 : 0;
    return count;
}

const char *pl_syncer_host_address(const struct pl_syncer_host *h)
{
    return h->address;
}

const char *pl_syncer_host_bound(const struct pl_syncer_host *h)
{
    return h->bound;
}

uint64_t pl_syncer_host_run_id(const struct pl_syncer_host *h)
{
    return h->settings.run_id;
}

enum pelago_status pl_syncer_host_invite(struct pl_syncer_host *h, enum pl_role role, uint64_t uses,
                                         uint64_t seconds, char out[static PL_TOKEN_TEXT_MAX],
                                         struct pl_error *err)
{
    if (h->door == NULL)
        return pl_fail(err, PELAGO_INVALID, "only the home shard, shard 0, invites");
    return pl_door_keeper_invite(h->door, role, uses, seconds, out, err);
}
