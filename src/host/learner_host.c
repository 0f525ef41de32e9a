/* host/learner_host.c - see learner_host.h: events in, effects out; the trainer's notes; the end.
 *
 * No effect steps the core from within. What an effect causes at once is noted and told in the loop's next
 * turn, which the bell brings about; the trainer's thread rings the same bell.
 */
#include "host/learner_host_int.h"

#include "base/check.h"
#include "base/fmt.h"
#include "base/num.h"
#include "core/trace.h"
#include "os/clock.h"

#include <math.h>
#include <string.h>

/* Leaving: so long for the step under way, so long for a checkpoint beside it, then the farewell; done after LEAVE_MS,
 * whatever is still under way. */
enum {
    CHECK_EVERY_STEPS = 256,
    STEP_MS = 250,
    BESIDE_MS = 350,
    FAREWELL_MS = 50,
    LEAVE_MS = 900,
    TICK_MS = 1000
};

void pl_lhost_log(struct pl_learner_host *h, const char *format, ...)
{
    char line[2 * PL_TEXT_MAX];
    va_list args;
    if (h->o.log == NULL)
        return;
    va_start(args, format);
    (void)pl_vfmt(line, sizeof line, format, args);
    va_end(args);
    h->o.log(h->o.user, line);
}

void pl_lhost_ring(struct pl_learner_host *h)
{
    if (!h->closing)
        (void)uv_async_send(&h->bell);
}

static void wind_up(struct pl_learner_host *h);
static void on_leave(uv_timer_t *timer);

void pl_lhost_job(struct pl_learner_host *h, struct pl_work_queue *queue, struct pl_job *job)
{
    h->jobs++;
    if (queue != NULL)
        pl_work_add(queue, job);
    else
        pl_work_start(h->o.loop, job);
}

void pl_lhost_job_done(struct pl_learner_host *h)
{
    pl_assert(h->jobs > 0);
    h->jobs--;
    wind_up(h);
}

/* ---- the core ---- */

static void arm(struct pl_learner_host *h);

static void on_deadline(uv_timer_t *timer)
{
    struct pl_learner_host *h = timer->data;
    uint64_t late = h->over ? 0 : pl_sub_sat(pl_clock_ns(), pl_learner_deadline(h->core));
    /* Without a processor for a while this comes before what a shard said meanwhile, which is heard first. */
    bool hear_first = late >= PL_LATE_NS && !h->late;
    h->armed_ns = PL_NEVER;
    h->late = hear_first;
    if (hear_first)
        (void)uv_timer_start(&h->deadline, on_deadline, 1, 0);
    else if (!h->over && pl_learner_deadline(h->core) <= pl_clock_ns())
        pl_lhost_step(h, &(struct pl_learn_event){.kind = PL_LEARN_EV_TIMEOUT});
    else
        arm(h); /* the loop's clock is coarser than ours */
}

static void arm(struct pl_learner_host *h)
{
    uint64_t at = h->over ? PL_NEVER : pl_learner_deadline(h->core);
    if (at == h->armed_ns)
        return;
    h->armed_ns = at;
    if (at == PL_NEVER)
        (void)uv_timer_stop(&h->deadline);
    else
        (void)uv_timer_start(&h->deadline, on_deadline, pl_sub_sat(at, pl_clock_ns()) / PL_MS + 1, 0);
}

static void over(struct pl_learner_host *h, enum pelago_status status, const char *text)
{
    if (h->over)
        return;
    h->over = true;
    if (h->why.status == PELAGO_OK)
        (void)pl_fail(&h->why, status, "%s", text);
}

static void take_manifest(struct pl_learner_host *h, const struct pl_msg_manifest *m)
{
    size_t bytes = pl_msg_payload_bytes(&(struct pl_msg){.type = PL_MSG_MANIFEST, .u.manifest = *m});
    uint8_t *scratch = pl_alloc_zero(&h->alloc, 1, bytes);
    bool same = scratch != NULL && pl_manifest_digest(m, scratch, bytes) == h->manifest.digest;
    pl_alloc_free(&h->alloc, scratch, bytes);
    h->ready_due = same;
    h->refuse_due = !same;
    pl_lhost_ring(h);
}

static void stop_stepping(struct pl_learner_host *h)
{
    pl_ltrainer_stop(&h->lt);
    if (h->trainer == NULL) {
        (void)uv_timer_stop(&h->stub);
        h->stepping = false;
        pl_lhost_ring(h);
    }
}

static void hand_unit(struct pl_learner_host *h, uint64_t unit, uint64_t cursor)
{
    for (uint32_t i = 0; i < h->unit_count; i++)
        if (h->units[i].unit == unit)
            return;
    pl_assert(h->unit_count < sizeof h->units / sizeof h->units[0]);
    h->units[h->unit_count++] = (struct pl_ltrainer_unit){unit, cursor};
    pl_ltrainer_unit(&h->lt, unit, cursor);
}

/* Of what the core tells, what a person wants to know: not every attempt to dial a shard that is down. */
static bool is_news(struct pl_learner_host *h, const struct pl_trace *t)
{
    if (t->code == PL_TRACE_LEARN_LIVE || t->code == PL_TRACE_LEARN_LOST) {
        struct pl_lshard *s = &h->shards[t->arg[0]];
        bool before = s->live;
        s->live = t->code == PL_TRACE_LEARN_LIVE;
        if (s->live)
            pl_trouble_over(&s->trouble);
        return s->live != before;
    }
    return t->code == PL_TRACE_LEARN_DISCARD || t->code == PL_TRACE_LEARN_FETCH;
}

static void trace(struct pl_learner_host *h, const struct pl_trace *t)
{
    char text[2 * PL_TEXT_MAX];
    if (!is_news(h, t))
        return;
    (void)pl_trace_print(t, text, sizeof text);
    pl_lhost_log(h, "%s", text);
}

static void perform_values(struct pl_learner_host *h, const struct pl_learn_effect *fx)
{
    if (fx->kind == PL_LEARN_FX_COPY)
        pl_lhost_copy(h, fx);
    else if (fx->kind == PL_LEARN_FX_CANCEL)
        pl_lhost_cancel(h, fx);
    else if (fx->kind == PL_LEARN_FX_KEEP)
        pl_lhost_keep_chunk(h, fx);
    else if (fx->kind == PL_LEARN_FX_DECODE)
        pl_lhost_decode(h, fx);
    else if (fx->kind == PL_LEARN_FX_FORGET)
        pl_lhost_forget(h, fx->u.update.fragment);
    else if (fx->kind == PL_LEARN_FX_APPLY)
        pl_lhost_apply(h, fx);
}

static void perform(struct pl_learner_host *h, const struct pl_learn_effect *fx)
{
    switch (fx->kind) {
    case PL_LEARN_FX_CONNECT:
        pl_lhost_connect(h, fx);
        break;
    case PL_LEARN_FX_DISCONNECT:
        pl_lhost_disconnect(h, fx);
        break;
    case PL_LEARN_FX_SEND:
        pl_lhost_send(h, fx);
        break;
    case PL_LEARN_FX_PUSH:
        pl_lhost_push(h, fx);
        break;
    case PL_LEARN_FX_MANIFEST:
        take_manifest(h, fx->u.manifest.manifest);
        break;
    case PL_LEARN_FX_UNIT:
        hand_unit(h, fx->u.unit.unit, fx->u.unit.cursor);
        break;
    case PL_LEARN_FX_CLOCK:
        pl_ltrainer_clock(&h->lt, fx->u.clock.tokens, fx->u.clock.rate, h->now_ns);
        break;
    case PL_LEARN_FX_STOP:
        pl_lhost_log(h, "the run has seen its tokens; no more steps");
        stop_stepping(h);
        break;
    case PL_LEARN_FX_DONE:
        over(h, PELAGO_OK, fx->u.conn.text);
        break;
    case PL_LEARN_FX_FATAL:
        over(h, PELAGO_DENIED, fx->u.conn.text);
        break;
    case PL_LEARN_FX_TRACE:
        trace(h, &fx->u.trace);
        break;
    case PL_LEARN_FX_COPY:
    case PL_LEARN_FX_CANCEL:
    case PL_LEARN_FX_KEEP:
    case PL_LEARN_FX_DECODE:
    case PL_LEARN_FX_FORGET:
    case PL_LEARN_FX_APPLY:
        perform_values(h, fx);
        break;
    }
}

void pl_lhost_step(struct pl_learner_host *h, const struct pl_learn_event *ev)
{
    struct pl_learn_event stamped = *ev;
    if (h->over)
        return;
    pl_assert(!h->in_step);
    h->in_step = true;
    h->now_ns = pl_max64(h->now_ns, pl_clock_ns());
    stamped.now_ns = h->now_ns;
    h->fxs.count = 0;
    h->delivering = ev->kind == PL_LEARN_EV_MSG ? ev->u.conn.msg : NULL;
    pl_learner_step(h->core, &stamped, &h->fxs);
    for (uint32_t i = 0; i < h->fxs.count; i++)
        perform(h, &h->fxs.fx[i]);
    h->delivering = NULL;
    h->in_step = false;
    if (++h->core_steps % CHECK_EVERY_STEPS == 0)
        pl_learner_check(h->core);
    arm(h);
    if (h->over)
        pl_lhost_ring(h);
}

/* ---- the trainer's notes ---- */

/* One inner step. A step may have used up more than one unit, but is reported with one: the rest is told with
 * the next. */
static void tell_step(struct pl_learner_host *h, const struct pl_note *note)
{
    const uint64_t whole = (uint64_t)h->settings.unit_sequences * h->settings.trainer.seq;
    struct pl_ltrainer_unit used = {PL_NONE64, 0};
    if (h->unit_count > 0 && h->unit_told < h->unit_tokens) {
        struct pl_ltrainer_unit *u = &h->units[0];
        uint64_t more = pl_min64(h->unit_tokens - h->unit_told, whole - u->cursor);
        u->cursor += more;
        h->unit_told += more;
        used = *u;
        if (u->cursor == whole)
            memmove(&h->units[0], &h->units[1], --h->unit_count * sizeof h->units[0]);
    }
    h->told++;
    double micro = note->loss > 0 && isfinite(note->loss) ? note->loss * 1e6 : 0;
    pl_lhost_step(h,
                  &(struct pl_learn_event){.kind = PL_LEARN_EV_STEP,
                                           .u.step = {.tokens = h->step_tokens,
                                                      .loss_micro = (uint64_t)(micro < 1e15 ? micro : 1e15),
                                                      .step_ns = note->step_ns,
                                                      .unit = used.unit,
                                                      .cursor = used.cursor}});
}

static void take_note(struct pl_learner_host *h, const struct pl_note *note)
{
    uint64_t steps = h->told + note->steps;
    h->number = note->number;
    h->unit_tokens = note->unit_tokens;
    if (note->steps > 0) {
        h->loss = note->loss;
        pl_average_add(&h->step_ns, note->step_ns);
    }
    for (struct pl_order *o = note->orders, *next; o != NULL; o = next) {
        next = o->next;
        while (h->told < o->state.steps)
            tell_step(h, note);
        pl_lhost_order_back(h, o);
    }
    while (h->told < steps)
        tell_step(h, note);
}

void pl_lhost_drain(struct pl_learner_host *h)
{
    struct pl_note note;
    while (pl_ltrainer_note(&h->lt, &note))
        take_note(h, &note);
}

/* The thread ends when it was told to, or when step after step failed. */
static void trainer_ended(struct pl_learner_host *h)
{
    pl_ltrainer_join(&h->lt);
    h->stepping = false;
    pl_lhost_drain(h);
    if (h->lt.failure.status == PELAGO_OK || h->over)
        return;
    h->why = h->lt.failure;
    pl_lhost_leave(h);
}

static void on_stub(uv_timer_t *timer)
{
    struct pl_learner_host *h = timer->data;
    pl_ltrainer_stub_step(&h->lt, h->o.stub_step_ns, h->o.stub_dense);
    pl_lhost_drain(h);
    pl_lhost_copies_again(h);
}

static void begin_steps(struct pl_learner_host *h)
{
    if (h->stepping || h->over || atomic_load(&h->lt.stop))
        return;
    if (h->trainer == NULL) {
        uint64_t ms = pl_max64(h->o.stub_step_ns / PL_MS, 1);
        (void)uv_timer_start(&h->stub, on_stub, ms, ms);
        h->stepping = true;
        return;
    }
    h->stepping = pl_ltrainer_start(&h->lt);
    if (!h->stepping) {
        (void)pl_fail(&h->why, PELAGO_NOMEM, "the system gives no thread for the trainer");
        pl_lhost_leave(h);
    }
}

/* ---- the bell ---- */

/* The syncer's manifest is not the one that this folder's settings make. */
static void refuse(struct pl_learner_host *h)
{
    h->refuse_due = false;
    (void)pl_fail(&h->why, PELAGO_UNSUPPORTED,
                  "this folder's settings give another model than the syncer has: use the same version of "
                  "pelago on both "
                  "sides, or join anew with a new token and another --dir");
    pl_lhost_leave(h);
}

static void look_at_values(struct pl_learner_host *h)
{
    if (pl_lhost_values_are_here(h))
        begin_steps(h);
}

static void get_ready(struct pl_learner_host *h)
{
    h->ready_due = false;
    pl_lhost_step(
        h, &(struct pl_learn_event){.kind = PL_LEARN_EV_READY, .u.ready = {.digests = h->origin_digests}});
    pl_lhost_values_await(h);
    look_at_values(h);
}

static void on_bell(uv_async_t *bell)
{
    struct pl_learner_host *h = bell->data;
    if (pl_ltrainer_ended(&h->lt))
        trainer_ended(h);
    if (!h->stepping)
        pl_ltrainer_settle(&h->lt);
    pl_lhost_drain(h);
    if (h->refuse_due)
        refuse(h);
    if (h->ready_due)
        get_ready(h);
    pl_lhost_links_later(h);
    pl_lhost_values_later(h);
    look_at_values(h);
    pl_lhost_copies_again(h);
    pl_lhost_keep_look(h);
    wind_up(h);
}

static void on_tick(uv_timer_t *timer)
{
    struct pl_learner_host *h = timer->data;
    look_at_values(h);
    pl_lhost_keep_look(h);
    pl_lhost_line(h, false);
    pl_lhost_door_tick(h);
}

/* ---- the end ---- */

void pl_lhost_leave(struct pl_learner_host *h)
{
    if (h->left)
        return;
    h->left = true;
    pl_lhost_step(h, &(struct pl_learn_event){.kind = PL_LEARN_EV_QUIT});
}

static void tell_done(struct pl_learner_host *h)
{
    if (h->told_done)
        return;
    h->told_done = true;
    if (h->o.done != NULL)
        h->o.done(h->o.user, &h->why);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct pl_learner_host *h = handle->data;
    if (--h->handles > 0)
        return;
    h->closed = true;
    if (h->free_asked)
        pl_lhost_release(h);
    else
        tell_done(h);
}

static void close_handles(struct pl_learner_host *h)
{
    uv_handle_t *all[] = {(uv_handle_t *)&h->bell, (uv_handle_t *)&h->deadline, (uv_handle_t *)&h->tick,
                          (uv_handle_t *)&h->stub, (uv_handle_t *)&h->leave};
    h->closing = true;
    h->handles = sizeof all / sizeof all[0];
    for (uint32_t i = 0; i < sizeof all / sizeof all[0]; i++)
        uv_close(all[i], on_handle_closed);
}

/* Who was asked to leave is gone after LEAVE_MS, however long a step or the disk takes. */
static void limit_leaving(struct pl_learner_host *h)
{
    uint64_t end = h->quit_ns + LEAVE_MS * PL_MS;
    (void)uv_timer_start(&h->leave, on_leave, pl_sub_sat(end, pl_clock_ns()) / PL_MS, 0);
}

static void say_what_is_left(struct pl_learner_host *h)
{
    if (h->keep.busy)
        pl_lhost_log(h, "leaving before the checkpoint is written: the one before it stays");
    if (h->lt.has_thread)
        pl_lhost_log(h, "leaving in the middle of a step: it is given up");
}

/* Time is up: for the step under way to end, for the last checkpoint, for the farewell. */
static void on_leave(uv_timer_t *timer)
{
    struct pl_learner_host *h = timer->data;
    if (!h->left && !h->over && !h->hurried) { /* then beside the step that is still under way */
        h->hurried = true;
        (void)uv_timer_start(&h->leave, on_leave, BESIDE_MS, 0);
        pl_lhost_keep_look(h);
    } else if (!h->left && !h->over) {
        pl_lhost_log(h, "leaving without a last checkpoint: the step under way takes too long");
        h->keep.due = false;
        pl_lhost_leave(h);
    } else if (!h->farewell) { /* the last words have had their time */
        h->farewell = true;
        if (h->quitting)
            limit_leaving(h);
        wind_up(h);
    } else {
        say_what_is_left(h);
        tell_done(h);
    }
}

/* When the core has left: nothing new begins; once all that was begun has ended, the handles go. */
static void wind_up(struct pl_learner_host *h)
{
    if (!h->over || h->closing)
        return;
    if (!h->ending) {
        h->ending = true;
        pl_lhost_links_close(h);
        stop_stepping(h);
        (void)uv_timer_stop(&h->deadline);
        (void)uv_timer_stop(&h->tick);
        (void)uv_timer_start(&h->leave, on_leave, FAREWELL_MS, 0);
        if (h->why.status != PELAGO_OK)
            pl_lhost_log(h, "%s", h->why.text);
    }
    if (h->lt.has_thread || h->jobs > 0 || !h->farewell)
        return;
    if (!h->last_line) { /* with all that happened in it; a job of its own */
        h->last_line = true;
        pl_ltrainer_settle(&h->lt);
        pl_lhost_drain(h);
        pl_lhost_line(h, true);
        if (h->jobs > 0)
            return;
    }
    close_handles(h);
}

void pl_learner_host_quit(struct pl_learner_host *h)
{
    if (h->quitting)
        return;
    h->quitting = true;
    h->quit_ns = pl_clock_ns();
    if (h->over) { /* the end was near already; now it must not take long */
        if (h->farewell && !h->closing)
            limit_leaving(h);
        return;
    }
    stop_stepping(h);
    h->keep.due = h->trainer != NULL && pl_learner_steps(h->core) > 0;
    if (!h->keep.due) {
        pl_lhost_leave(h);
        return;
    }
    (void)uv_timer_start(&h->leave, on_leave, STEP_MS, 0);
    pl_lhost_keep_look(h);
}

bool pl_learner_host_idle(const struct pl_learner_host *h)
{
    return h->closed;
}

void pl_learner_host_free(struct pl_learner_host *h)
{
    if (h == NULL)
        return;
    pl_assert(h->told_done);
    h->free_asked = true;
    if (h->closed) {
        pl_lhost_release(h);
        return;
    }
    if (h->lt.has_thread)
        trainer_ended(h);
    wind_up(h);
}

/* ---- the beginning ---- */

static bool open_handles(struct pl_learner_host *h)
{
    if (uv_async_init(h->o.loop, &h->bell, on_bell) != 0)
        return false;
    h->bell.data = h;
    uv_timer_t *timers[] = {&h->deadline, &h->tick, &h->stub, &h->leave};
    for (uint32_t i = 0; i < sizeof timers / sizeof timers[0]; i++) {
        (void)uv_timer_init(h->o.loop, timers[i]);
        timers[i]->data = h;
    }
    return true;
}

enum pelago_status pl_learner_host_start(struct pl_learner_host **out,
                                         const struct pl_learner_host_options *o, struct pl_error *err)
{
    struct pl_learner_host *h = pl_alloc_zero(o->alloc, 1, sizeof *h);
    *out = NULL;
    if (h == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for a learner");
    h->o = *o;
    h->alloc = *o->alloc;
    h->armed_ns = PL_NEVER;
    enum pelago_status st = pl_lhost_prepare(h, err);
    if (st == PELAGO_OK && !open_handles(h))
        st = pl_fail(err, PELAGO_IO, "the system gives no more handles: raise the limit of open files");
    if (st != PELAGO_OK) {
        pl_lhost_release(h);
        return st;
    }
    *out = h;
    (void)uv_timer_start(&h->tick, on_tick, TICK_MS, TICK_MS);
    pl_lhost_step(h, &(struct pl_learn_event){.kind = PL_LEARN_EV_START});
    if (h->warm)
        begin_steps(h);
    return PELAGO_OK;
}

void pl_learner_host_view(struct pl_learner_host *h, struct pl_learner_host_view *out)
{
    const struct pl_account *a = &h->lt.blocked;
    *out = (struct pl_learner_host_view){
        .identity = h->own.identity,
        .steps = pl_learner_steps(h->core),
        .tokens = pl_learner_tokens(h->core),
        .loss = h->loss,
        .step_ns = h->step_ns.mean,
        .steps_timed = atomic_load_explicit(&a->steps, memory_order_relaxed),
        .blocked_ns = atomic_load_explicit(&a->sum_ns, memory_order_relaxed),
        .blocked_max_ns = atomic_load_explicit(&a->max_ns, memory_order_relaxed),
        .blocked_p999_ns = pl_account_quantile(a, 999000),
        .blocked_above_1ms = pl_account_above(a, PL_MS),
        .trained_ns = atomic_load_explicit(&h->lt.trained_ns, memory_order_relaxed),
        .bytes_up = h->bytes_up,
        .bytes_down = h->bytes_down,
        .live = !h->over && pl_learner_live(h->core, 0),
    };
}

bool pl_learner_host_version(const struct pl_learner_host *h, uint32_t fragment, uint64_t *version,
                             uint64_t *digest)
{
    if (fragment >= h->layout.fragment_count)
        return false;
    *version = pl_learner_version(h->core, fragment, digest);
    return true;
}
