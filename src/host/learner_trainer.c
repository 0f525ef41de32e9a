/* host/learner_trainer.c - see learner_trainer.h. */
#include "host/learner_trainer.h"

#include "base/check.h"
#include "base/num.h"
#include "base/prng.h"
#include "os/clock.h"

#include <math.h>
#include <signal.h>
#include <string.h>
#include <time.h>

enum {
    NOTES = 4096,       /* steps the loop may fall behind, where nothing else is said */
    UNITS = 8,          /* a learner holds two */
    PIECE = 32 << 10,   /* floats of one task */
    FAILURES_MAX = 8,   /* steps in a row */
    STUB_STRIDE = 4096, /* a stub changes one value in so many, or all */
};
#define STEP_NS_MIN                                                                                          \
    (PL_STEP_NS_LEAST * 5 / 4) /* syncers believe no shorter ones: a toy model could take less */
#define APPLY_NS (300 * PL_US) /* of one step, for new values; a piece more at most */

/* ---- set-up ---- */

static bool init_wake(struct pl_ltrainer *t)
{
    pthread_condattr_t attr;
    if (pthread_condattr_init(&attr) != 0)
        return false;
    bool fine =
        pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0 && pthread_mutex_init(&t->lock, NULL) == 0;
    if (fine && pthread_cond_init(&t->wake, &attr) != 0) {
        pthread_mutex_destroy(&t->lock);
        fine = false;
    }
    (void)pthread_condattr_destroy(&attr);
    return fine;
}

bool pl_ltrainer_init(struct pl_ltrainer *t, const struct pl_ltrainer_options *o)
{
    memset(t, 0, sizeof *t);
    t->o = *o;
    t->theta = o->trainer != NULL ? o->trainer->model->params : o->theta;
    t->unit.unit = PL_NONE64;
    t->own_sequence = t->state.own_sequence = o->own_sequence;
    if (o->trainer != NULL) {
        t->state.progress = o->trainer->progress;
        t->state.inner_step = o->trainer->inner.step;
    }
    if (!init_wake(t))
        return false;
    uint32_t orders = 2 * o->layout->fragment_count + 2; /* a copy and an update of each, and one of all */
    uint32_t notes = o->notes > 0 ? o->notes : o->trainer != NULL ? NOTES : 16;
    if (pl_ring_init(&t->notes, o->alloc, notes, sizeof(struct pl_note)) &&
        pl_ring_init(&t->orders, o->alloc, orders, sizeof(struct pl_order *)) &&
        pl_ring_init(&t->units, o->alloc, UNITS, sizeof(struct pl_ltrainer_unit)))
        return true;
    pl_ltrainer_release(t);
    return false;
}

void pl_ltrainer_release(struct pl_ltrainer *t)
{
    pl_assert(!t->has_thread);
    pl_ring_release(&t->notes, t->o.alloc);
    pl_ring_release(&t->orders, t->o.alloc);
    pl_ring_release(&t->units, t->o.alloc);
    (void)pthread_cond_destroy(&t->wake);
    (void)pthread_mutex_destroy(&t->lock);
}

/* ---- sequences ---- */

/* Far above all work units, and below where the endless tales begin again. */
uint64_t pl_ltrainer_own_range(uint64_t identity, uint32_t seq)
{
    struct pl_prng r;
    pl_prng_seed(&r, identity, 0x0123);
    return ((UINT64_C(1) << 53) + pl_prng_below(&r, UINT64_C(1) << 52)) / seq;
}

static uint64_t next_sequence(struct pl_ltrainer *t)
{
    const uint64_t unit_tokens = (uint64_t)t->o.unit_sequences * t->o.seq;
    if (t->unit.unit == PL_NONE64 && !pl_ring_take(&t->units, &t->unit))
        return t->own_sequence++;
    uint64_t number = t->unit.unit * t->o.unit_sequences + t->unit.cursor / t->o.seq;
    uint64_t used = pl_min64(t->o.seq, unit_tokens - t->unit.cursor);
    t->unit.cursor += used;
    t->unit_tokens += used;
    if (t->unit.cursor >= unit_tokens)
        t->unit.unit = PL_NONE64;
    return number;
}

/* Whatever number the trainer asks for, it gets the next sequences of its units. */
static enum pelago_status fetch(void *self, uint64_t first, uint32_t count, uint32_t seq, int32_t *tokens,
                                int32_t *targets, struct pl_error *err)
{
    struct pl_ltrainer *t = self;
    (void)first;
    if (atomic_load_explicit(&t->stop, memory_order_relaxed))
        return pl_fail(err, PELAGO_STALE, "training is being stopped");
    for (uint32_t i = 0; i < count; i++) {
        size_t at = (size_t)i * seq;
        PL_TRY(t->o.source.fetch(t->o.source.self, next_sequence(t), 1, seq, tokens + at, targets + at, err));
    }
    return PELAGO_OK;
}

/* ---- the clock of the run ---- */

void pl_ltrainer_clock(struct pl_ltrainer *t, uint64_t tokens, uint64_t rate, uint64_t now_ns)
{
    (void)atomic_fetch_add_explicit(&t->clock.number, 1, memory_order_acq_rel);
    atomic_store_explicit(&t->clock.tokens, tokens, memory_order_relaxed);
    atomic_store_explicit(&t->clock.rate, rate, memory_order_relaxed);
    atomic_store_explicit(&t->clock.at_ns, now_ns, memory_order_relaxed);
    (void)atomic_fetch_add_explicit(&t->clock.number, 1, memory_order_release);
}

uint64_t pl_ltrainer_clock_at(struct pl_ltrainer *t, uint64_t now_ns)
{
    uint64_t number = atomic_load_explicit(&t->clock.number, memory_order_acquire);
    uint64_t tokens = atomic_load_explicit(&t->clock.tokens, memory_order_relaxed);
    uint64_t rate = atomic_load_explicit(&t->clock.rate, memory_order_relaxed);
    uint64_t at = atomic_load_explicit(&t->clock.at_ns, memory_order_relaxed);
    if (number % 2 != 0 || atomic_fetch_add_explicit(&t->clock.number, 0, memory_order_acq_rel) != number)
        return PL_NONE64;
    return pl_min64(pl_add_sat(tokens, pl_mul_div(rate, pl_sub_sat(now_ns, at), PL_SEC)), PL_COUNT_MAX);
}

/* Told from time to time, advanced at the last known rate, never turned back. */
static void follow_clock(struct pl_ltrainer *t, uint64_t now_ns)
{
    struct pl_progress *p = &t->o.trainer->progress;
    uint64_t told = pl_ltrainer_clock_at(t, now_ns);
    if (told == PL_NONE64)
        return;
    p->clock = pl_max64(p->clock, told);
    if (t->unaware && told > 0) {
        t->unaware = false;
        pl_trainer_join(t->o.trainer);
    }
}

/* One that comes back with a checkpoint steps before it hears where the run is, and looks again then. */
static void begin(struct pl_ltrainer *t)
{
    t->begun = true;
    t->unaware = t->o.trainer->inner.step > 0;
    pl_trainer_join(t->o.trainer);
}

/* ---- orders ---- */

enum { BLOCK = 1024 };

/* theta += fresh - base, each difference and each sum rounded. Blocks of a fixed length, so that any compiler
 * makes vectors of them. */
static void rebase(const float *restrict fresh, const float *restrict base, size_t n, float *restrict theta)
{
    for (; n >= BLOCK; n -= BLOCK, fresh += BLOCK, base += BLOCK, theta += BLOCK)
        for (size_t i = 0; i < BLOCK; i++)
            theta[i] += fresh[i] - base[i];
    for (size_t i = 0; i < n; i++)
        theta[i] += fresh[i] - base[i];
}

static void mix(const float *fresh, float alpha, size_t n, float *theta)
{
    const float beta = 1.0f - alpha;
    for (size_t i = 0; i < n; i++)
        theta[i] = alpha * theta[i] + beta * fresh[i];
}

/* What the order says about n values that lie together: `at` is the first inside the fragment. optim/apply.h
 * has the rule; the anchor is changed by whoever gave the order, by a pointer. */
static void carry_out_part(const struct pl_order *o, uint64_t at, size_t n, float *theta)
{
    if (o->kind == PL_ORDER_COPY) {
        memcpy(o->to + at, theta, n * sizeof *theta);
        return;
    }
    switch (o->mode) {
    case PL_APPLY_REBASE_MERGED:
    case PL_APPLY_REBASE_KEPT:
        rebase(o->fresh + at, o->base + at, n, theta);
        break;
    case PL_APPLY_OVERWRITE:
        memcpy(theta, o->fresh + at, n * sizeof *theta);
        break;
    case PL_APPLY_MIX:
        mix(o->fresh + at, o->alpha, n, theta);
        break;
    }
}

/* Values first .. end - 1 of the order's fragment, slice by slice. */
static void carry_out(const struct pl_ltrainer *t, const struct pl_order *o, uint64_t first, uint64_t end)
{
    const struct pl_layout *l = t->o.layout;
    const struct pl_layout_fragment *f = &l->fragments[o->fragment];
    for (uint32_t i = f->slice_first; i < f->slice_first + f->slice_count && first < end; i++) {
        const struct pl_layout_slice *s = &l->slices[i];
        if (s->first + s->count <= first)
            continue;
        uint64_t n = pl_min64(s->first + s->count, end) - first;
        carry_out_part(o, first, (size_t)n, t->theta + s->offset + (first - s->first));
        first += n;
    }
}

struct share {
    const struct pl_ltrainer *t;
    const struct pl_order *order;
    uint64_t first, end;
};

static void share_task(void *user, uint32_t task, uint32_t thread)
{
    const struct share *s = user;
    uint64_t first = s->first + (uint64_t)task * PIECE;
    (void)thread;
    carry_out(s->t, s->order, first, pl_min64(first + PIECE, s->end));
}

/* The next pieces of an order, one for each thread. False: it is done. */
static bool advance(struct pl_ltrainer *t, struct pl_order *o, bool threads)
{
    uint64_t values = t->o.layout->fragments[o->fragment].values;
    struct pl_pool *pool = threads && t->o.trainer != NULL ? t->o.trainer->model->engine.pool : NULL;
    uint32_t team = pool != NULL ? pl_pool_threads(pool) : 1;
    uint64_t end = pl_min64(o->values + (uint64_t)team * PIECE, values);
    struct share share = {t, o, o->values, end};
    uint32_t tasks = (uint32_t)((end - o->values + PIECE - 1) / PIECE);
    if (tasks > 1)
        pl_pool_run(pool, tasks, share_task, &share);
    else
        carry_out(t, o, o->values, end);
    o->values = end;
    return end < values;
}

static void take_orders(struct pl_ltrainer *t)
{
    struct pl_order *o;
    while (pl_ring_take(&t->orders, &o)) {
        o->next = NULL;
        o->values = 0;
        if (t->todo == NULL)
            t->todo = o;
        else
            t->todo_last->next = o;
        t->todo_last = o;
    }
}

static void done_with(struct pl_ltrainer *t, struct pl_order *o, bool good)
{
    o->state = t->state;
    o->good = good;
    o->next = NULL;
    if (t->held.orders == NULL)
        t->held.orders = o;
    else
        t->held_last->next = o;
    t->held_last = o;
}

/* Those that only read, while the parameters still stand. */
static void take_copies(struct pl_ltrainer *t, bool threads)
{
    struct pl_order **at = &t->todo, *last = NULL;
    while (*at != NULL) {
        struct pl_order *o = *at;
        if (o->kind == PL_ORDER_APPLY) {
            last = o;
            at = &o->next;
            continue;
        }
        *at = o->next;
        bool good = o->kind == PL_ORDER_COPY || o->want == pl_steady_now(&t->steady);
        if (o->kind == PL_ORDER_COPY)
            while (advance(t, o, threads))
                continue;
        else if (good)
            memcpy(o->to, t->theta, t->o.layout->tensors.floats * sizeof *t->theta);
        done_with(t, o, good);
    }
    t->todo_last = last;
}

/* New values, until the time is up. A sum of differences can be added in parts, with steps in between; what
 * is overwritten must be overwritten at one moment, or the counters would not be those of the values. */
static void apply_orders(struct pl_ltrainer *t, uint64_t until_ns, bool threads)
{
    while (t->todo != NULL) {
        struct pl_order *o = t->todo;
        bool parts = o->mode == PL_APPLY_REBASE_MERGED || o->mode == PL_APPLY_REBASE_KEPT;
        while (advance(t, o, threads))
            if (parts && pl_clock_ns() >= until_ns)
                return;
        t->todo = o->next;
        done_with(t, o, true);
        if (pl_clock_ns() >= until_ns)
            return;
    }
}

/* ---- notes ---- */

/* The parameters stand, unless the loop is so far behind that there is no room for the note: then they count
 * as moving until there is. */
static void stand(struct pl_ltrainer *t)
{
    pl_assert(pl_steady_now(&t->steady) % 2 == 1);
    t->held.number = pl_steady_now(&t->steady) + 1;
    if (!pl_ring_put(&t->notes, &t->held))
        return;
    t->held = (struct pl_note){0};
    t->held_last = NULL;
    pl_steady_stand(&t->steady);
}

/* Called with the gradients complete, before the optimizer moves the parameters. */
static void moving(void *user)
{
    struct pl_ltrainer *t = user;
    struct pl_watch watch;
    pl_watch_start(&watch);
    t->moved = true;
    if (pl_steady_now(&t->steady) % 2 == 0) {
        take_orders(t);
        if (t->todo != NULL)
            take_copies(t, true);
        pl_steady_move(&t->steady);
        apply_orders(t, watch.wall_ns + APPLY_NS, true);
    }
    pl_watch_stop(&watch, &t->held_up);
}

/* ---- the thread ---- */

uint64_t pl_ltrainer_paced_ns(const struct pl_ltrainer *t, uint64_t spent_ns)
{
    uint64_t slow = t->o.speed > 0 && t->o.speed < 1 ? (uint64_t)((double)spent_ns / t->o.speed) : spent_ns;
    return pl_max64(slow, pl_max64(t->o.pace_ns, STEP_NS_MIN));
}

static void sleep_until(struct pl_ltrainer *t, uint64_t at_ns)
{
    struct timespec at = {.tv_sec = (time_t)(at_ns / PL_SEC), .tv_nsec = (long)(at_ns % PL_SEC)};
    int result = 0;
    (void)pthread_mutex_lock(&t->lock);
    while (result == 0 && !atomic_load_explicit(&t->stop, memory_order_relaxed))
        result = pthread_cond_timedwait(&t->wake, &t->lock, &at);
    (void)pthread_mutex_unlock(&t->lock);
}

/* A failed step has changed nothing but what moving() did. */
static bool failed(struct pl_ltrainer *t, const struct pl_error *err)
{
    if (atomic_load_explicit(&t->stop, memory_order_relaxed) || ++t->failures < FAILURES_MAX)
        return false;
    t->failure = *err;
    return true;
}

/* Books of a step that began at begin_ns. */
static void count_step(struct pl_ltrainer *t, bool good, double loss, uint64_t step_ns)
{
    if (good) {
        t->held.steps++;
        t->held.loss = loss;
        t->held.step_ns = step_ns;
        t->failures = 0;
    }
    t->held.unit_tokens = t->unit_tokens;
    if (!t->moved)
        return;
    t->state.steps += good ? 1 : 0;
    t->state.own_sequence = t->own_sequence;
    if (t->o.trainer != NULL) {
        t->state.progress = t->o.trainer->progress;
        t->state.inner_step = t->o.trainer->inner.step;
    }
    stand(t);
}

static void account(struct pl_ltrainer *t)
{
    pl_account_add(&t->blocked, t->held_up.own_ns);
    pl_account_add(&t->blocked_wall, t->held_up.wall_ns);
    t->held_up = (struct pl_watched){0};
}

/* One step and what belongs to it. The watch has run since the last one ended. False: the thread ends. */
static bool run_step(struct pl_ltrainer *t, const struct pl_sequences *source, struct pl_watch *watch)
{
    struct pl_step_report report = {0};
    struct pl_error err = {PELAGO_OK, ""};
    uint64_t began = pl_clock_ns();
    follow_clock(t, began);
    if (!t->begun)
        begin(t);
    t->moved = false;
    pl_watch_stop(watch, &t->held_up);
    enum pelago_status st = pl_trainer_step(t->o.trainer, source, &report, &err);
    pl_watch_start(watch);
    uint64_t step_ns = pl_ltrainer_paced_ns(t, watch->wall_ns - began);
    count_step(t, st == PELAGO_OK, report.loss, step_ns);
    bool over = st != PELAGO_OK && failed(t, &err);
    if (t->moved)
        t->o.bell(t->o.user);
    pl_watch_stop(watch, &t->held_up);
    if (st == PELAGO_OK)
        account(t);
    if (began + step_ns > pl_clock_ns())
        sleep_until(t, began + step_ns);
    pl_watch_start(watch);
    atomic_store_explicit(&t->trained_ns, watch->wall_ns - t->first_ns, memory_order_relaxed);
    return !over;
}

static void *thread_main(void *argument)
{
    struct pl_ltrainer *t = argument;
    struct pl_sequences source = {fetch, t};
    struct pl_watch watch;
    if (t->unpacked)
        pl_model_refresh(t->o.trainer->model);
    t->unpacked = false;
    pl_watch_start(&watch);
    t->first_ns = watch.wall_ns;
    while (!atomic_load_explicit(&t->stop, memory_order_acquire) && run_step(t, &source, &watch))
        continue;
    atomic_store_explicit(&t->ended, true, memory_order_release);
    t->o.bell(t->o.user);
    return NULL;
}

bool pl_ltrainer_start(struct pl_ltrainer *t)
{
    sigset_t all, before;
    pl_assert(!t->has_thread && t->o.trainer != NULL);
    t->o.trainer->hooks = (struct pl_trainer_hooks){.moving = moving, .user = t};
    (void)sigfillset(&all); /* signals are for the loop's thread */
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    t->has_thread = pthread_create(&t->thread, NULL, thread_main, t) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return t->has_thread;
}

void pl_ltrainer_stop(struct pl_ltrainer *t)
{
    atomic_store_explicit(&t->stop, true, memory_order_release);
    (void)pthread_mutex_lock(&t->lock);
    (void)pthread_cond_broadcast(&t->wake);
    (void)pthread_mutex_unlock(&t->lock);
}

bool pl_ltrainer_ended(const struct pl_ltrainer *t)
{
    return t->has_thread && atomic_load_explicit(&t->ended, memory_order_acquire);
}

void pl_ltrainer_join(struct pl_ltrainer *t)
{
    pl_assert(t->has_thread);
    (void)pthread_join(t->thread, NULL);
    t->has_thread = false;
}

/* ---- the loop's side ---- */

bool pl_ltrainer_note(struct pl_ltrainer *t, struct pl_note *note)
{
    return pl_ring_take(&t->notes, note);
}

void pl_ltrainer_order(struct pl_ltrainer *t, struct pl_order *order)
{
    bool room = pl_ring_put(&t->orders, &order);
    pl_assert(room);
}

void pl_ltrainer_unit(struct pl_ltrainer *t, uint64_t unit, uint64_t cursor)
{
    struct pl_ltrainer_unit u = {unit, cursor};
    bool room = pl_ring_put(&t->units, &u);
    pl_assert(room);
}

/* The loop's thread is the owner of the parameters now. */
static void own_move(struct pl_ltrainer *t)
{
    take_orders(t);
    if (pl_steady_now(&t->steady) % 2 == 0) {
        take_copies(t, false);
        pl_steady_move(&t->steady);
    }
    apply_orders(t, PL_NEVER, false);
    t->unpacked = true;
}

void pl_ltrainer_settle(struct pl_ltrainer *t)
{
    pl_assert(!t->has_thread);
    bool nothing = pl_ring_peek(&t->orders) == NULL && t->todo == NULL;
    if (nothing && pl_steady_now(&t->steady) % 2 == 0)
        return;
    own_move(t);
    t->held.unit_tokens = t->unit_tokens;
    stand(t);
}

/* At most 3e-4, by the value's place alone: all stubs change the same ones the same way, for who disagrees is doubted. */
static float stub_change(uint64_t place)
{
    uint32_t x = (uint32_t)place * UINT32_C(0x9e3779b1);
    x = (x ^ x >> 15) * UINT32_C(0x85ebca77);
    return (float)(int32_t)(x ^ x >> 13) * (3e-4f / 2147483648.0f);
}

void pl_ltrainer_stub_step(struct pl_ltrainer *t, uint64_t step_ns, bool dense)
{
    const struct pl_layout *l = t->o.layout;
    pl_assert(!t->has_thread && t->o.trainer == NULL);
    for (uint64_t i = 0; i < t->o.step_tokens; i += t->o.seq)
        (void)next_sequence(t);
    own_move(t);
    for (uint32_t i = 0; i < l->slice_count; i++)
        for (uint64_t j = 0; j < l->slices[i].count; j += dense ? 1 : STUB_STRIDE)
            t->theta[l->slices[i].offset + j] += stub_change(j);
    t->moved = true;
    count_step(t, true, 1.0 + 1.0 / sqrt((double)t->state.steps + 1), step_ns);
}
