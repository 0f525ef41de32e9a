/* host/reduce_train.c - see reduce_train.h. */
#include "host/reduce_train.h"

#include "base/check.h"
#include "base/num.h"
#include "host/layout.h"
#include "os/clock.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>

/* ---- waiting ---- */

static void lock(struct pl_rtrainer *t)
{
    (void)pthread_mutex_lock(&t->lock);
}

static void unlock(struct pl_rtrainer *t)
{
    (void)pthread_mutex_unlock(&t->lock);
}

static void sleep_until(struct pl_rtrainer *t, uint64_t at_ns)
{
    struct timespec at = {.tv_sec = (time_t)(at_ns / PL_SEC), .tv_nsec = (long)(at_ns % PL_SEC)};
    uint64_t begin = pl_clock_ns();
    int result = 0;
    if (at_ns <= begin)
        return;
    lock(t);
    while (result != ETIMEDOUT && !t->stop)
        result = pthread_cond_timedwait(&t->wake, &t->lock, &at);
    unlock(t);
    t->slept_ns += pl_clock_ns() - begin;
}

/* The step's own work is stretched: what is done so far takes at least so long. Time spent waiting for others does not
 * count. */
static void pace(struct pl_rtrainer *t, uint64_t least_ns)
{
    uint64_t now = pl_clock_ns();
    uint64_t elapsed = now - t->begin_ns - t->blocked_ns;
    uint64_t worked = pl_sub_sat(elapsed, t->slept_ns);
    uint64_t slow = t->o.speed > 0 && t->o.speed < 1 ? (uint64_t)((double)worked / t->o.speed) : worked;
    uint64_t due = pl_max64(slow, least_ns);
    if (due > elapsed)
        sleep_until(t, now + (due - elapsed));
}

/* Waits for the means of the round. False: it is given up. */
static bool await(void *user)
{
    struct pl_rtrainer *t = user;
    uint64_t begin = pl_clock_ns();
    lock(t);
    while (t->released <= t->round && !t->hold && !t->stop)
        (void)pthread_cond_wait(&t->wake, &t->lock);
    bool released = t->released > t->round;
    unlock(t);
    t->blocked_ns += pl_clock_ns() - begin;
    return released;
}

static bool interrupted(struct pl_rtrainer *t)
{
    lock(t);
    bool result = t->hold || t->stop;
    unlock(t);
    return result;
}

static void publish(struct pl_rtrainer *t, uint32_t buckets)
{
    uint64_t ready = t->round << PL_RTRAINER_READY_BITS | buckets;
    if (atomic_load_explicit(&t->ready, memory_order_relaxed) == ready)
        return;
    atomic_store_explicit(&t->ready, ready, memory_order_release);
    t->o.bell(t->o.user);
}

/* ---- a step ---- */

/* A part of the way back is over. Of a paced step the way forward has a third, so that buckets become final as early, and
 * no earlier, than they would on a machine that needs so long. */
static void graded(void *user, uint64_t from)
{
    struct pl_rtrainer *t = user;
    uint32_t parts = t->o.trainer->options.config.layers + 2;
    t->parts++;
    pace(t, pl_sub_sat(t->o.pace_ns, t->optimizer_ns) * (parts + UINT64_C(2) * t->parts) /
                (UINT64_C(3) * parts));
    uint64_t begin = pl_clock_ns();
    publish(t, pl_reduce_ready(t->o.plan, from));
    t->blocked_ns += pl_clock_ns() - begin;
}

static void moving(void *user)
{
    struct pl_rtrainer *t = user;
    t->moving_ns = pl_clock_ns();
}

static enum pelago_status step(struct pl_rtrainer *t, uint64_t number, struct pl_error *err)
{
    const struct pl_reduce_plan *plan = t->o.plan;
    struct pl_progress *p = &t->o.trainer->progress;
    struct pl_step_report report = {0};
    t->begin_ns = pl_clock_ns();
    t->slept_ns = t->blocked_ns = t->parts = 0;
    p->step = number;
    p->tokens = number * plan->step_tokens;
    p->sequence = (number * plan->learners + atomic_load(&t->rank)) * plan->step_sequences;
    /* The schedule looks at the clock after the trainer has added the tokens of its own step. */
    p->clock = (number + 1) * plan->step_tokens * plan->learners - plan->step_tokens;
    PL_TRY(pl_trainer_step(t->o.trainer, &t->o.source, &report, err));
    t->optimizer_ns = pl_clock_ns() - t->moving_ns;
    pace(t, t->o.pace_ns);
    lock(t);
    t->note.steps++;
    t->note.tokens += plan->step_tokens;
    t->note.loss = report.loss;
    unlock(t);
    return PELAGO_OK;
}

/* The books of a step, its share of a round's exchange included. */
static void count_step(struct pl_rtrainer *t)
{
    uint64_t now = pl_clock_ns();
    pl_account_add(&t->blocked, t->blocked_ns);
    atomic_store_explicit(&t->trained_ns, now - t->first_ns, memory_order_relaxed);
    lock(t);
    t->note.step_ns = now - t->begin_ns;
    unlock(t);
}

/* ---- a round ---- */

static enum pelago_status gradients_round(struct pl_rtrainer *t, struct pl_error *err)
{
    PL_TRY(step(t, t->round, err));
    count_step(t);
    return PELAGO_OK;
}

static void back_to_anchor(struct pl_rtrainer *t)
{
    struct pl_model *m = t->o.trainer->model;
    memcpy(m->params, t->anchor, t->o.plan->floats * sizeof *m->params);
    pl_model_refresh(m);
}

/* The change of the whole round, in the place of the gradients, is averaged; everybody takes the same outer step. */
static bool exchange(struct pl_rtrainer *t)
{
    struct pl_model *m = t->o.trainer->model;
    uint64_t begin = pl_clock_ns(), blocked = t->blocked_ns, n = t->o.plan->floats;
    for (uint64_t i = 0; i < n; i++)
        m->grads[i] = t->anchor[i] - m->params[i];
    publish(t, t->o.plan->buckets);
    bool good = await(t);
    if (good) {
        const struct pl_reduce_plan *plan = t->o.plan;
        uint64_t round = t->round + 1, done = pl_reduce_steps(plan, round);
        double share =
            done == plan->steps ? pl_outer_share(round, done, done - pl_reduce_steps(plan, t->round)) : 1;
        const struct pl_outer_move move =
            pl_outer_at(&t->o.outer, round, (double)done / (double)plan->steps, share);
        pl_outer_step_by(m->engine.pool, &move, m->grads, n, t->momentum, t->anchor);
    }
    back_to_anchor(t);
    t->blocked_ns = blocked + (pl_clock_ns() - begin);
    return good;
}

static enum pelago_status changes_round(struct pl_rtrainer *t, struct pl_error *err)
{
    uint64_t first = pl_reduce_steps(t->o.plan, t->round), end = pl_reduce_steps(t->o.plan, t->round + 1);
    for (uint64_t i = first; i < end; i++) {
        if (interrupted(t)) {
            back_to_anchor(t);
            return PELAGO_STALE;
        }
        PL_TRY(step(t, i, err));
        if (i + 1 < end) {
            count_step(t);
            t->o.bell(t->o.user);
        }
    }
    if (!exchange(t))
        return PELAGO_STALE;
    count_step(t);
    return PELAGO_OK;
}

static enum pelago_status end_round(struct pl_rtrainer *t, struct pl_error *err)
{
    uint64_t digest = 0, round = ++t->round;
    const struct pl_model *m = t->o.trainer->model;
    bool compares = pl_reduce_compares(t->o.plan, round);
    if (compares)
        digest = pl_values_digest(m->params, t->o.plan->floats);
    lock(t);
    t->note.round = round;
    if (compares) {
        t->note.digest_round = round;
        t->note.digest = digest;
    }
    unlock(t);
    t->o.bell(t->o.user);
    return round == t->o.plan->rounds || t->o.boundary(t->o.user, round, err) ? PELAGO_OK : err->status;
}

/* All rounds are done, in this process or where the state came from. */
static enum pelago_status finish(struct pl_rtrainer *t, struct pl_error *err)
{
    if (!t->o.boundary(t->o.user, t->round, err))
        return err->status;
    lock(t);
    t->note.finished = true;
    unlock(t);
    t->o.bell(t->o.user);
    return PELAGO_OK;
}

static enum pelago_status one_round(struct pl_rtrainer *t, struct pl_error *err)
{
    if (t->round >= t->o.plan->rounds)
        return finish(t, err);
    if (t->o.plan->algorithm == PL_ALGORITHM_DATA_PARALLEL)
        PL_TRY(gradients_round(t, err));
    else
        PL_TRY(changes_round(t, err));
    return end_round(t, err);
}

/* ---- the thread ---- */

/* Parked, and again until it may train. False: it is told to stop. */
static bool await_go(struct pl_rtrainer *t)
{
    lock(t);
    while ((t->hold || t->note.finished) && !t->stop) {
        if (t->hold != t->note.parked) {
            t->note.parked = t->hold;
            t->o.bell(t->o.user);
        }
        (void)pthread_cond_wait(&t->wake, &t->lock);
    }
    t->note.parked = false;
    bool go = !t->stop;
    unlock(t);
    return go;
}

static void *thread_main(void *argument)
{
    struct pl_rtrainer *t = argument;
    struct pl_error err = {PELAGO_OK, ""};
    enum pelago_status st = PELAGO_OK;
    while ((st == PELAGO_OK || st == PELAGO_STALE) && await_go(t)) {
        if (t->first_ns == 0)
            t->first_ns = pl_clock_ns();
        st = one_round(t, &err);
    }
    lock(t);
    t->note.ended = true;
    if (st != PELAGO_OK && st != PELAGO_STALE)
        t->failure = err;
    unlock(t);
    t->o.bell(t->o.user);
    return NULL;
}

static bool init_wake(struct pl_rtrainer *t)
{
    pthread_condattr_t attr;
    if (pthread_condattr_init(&attr) != 0)
        return false;
    bool fine =
        pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0 && pthread_mutex_init(&t->lock, NULL) == 0;
    if (fine && pthread_cond_init(&t->wake, &attr) != 0) {
        (void)pthread_mutex_destroy(&t->lock);
        fine = false;
    }
    (void)pthread_condattr_destroy(&attr);
    return fine;
}

static void free_copies(struct pl_rtrainer *t)
{
    size_t bytes = t->o.plan->floats * sizeof(float);
    pl_alloc_free(t->o.alloc, t->anchor, bytes);
    pl_alloc_free(t->o.alloc, t->momentum, bytes);
    t->anchor = t->momentum = NULL;
}

enum pelago_status pl_rtrainer_init(struct pl_rtrainer *t, const struct pl_rtrainer_options *o,
                                    struct pl_error *err)
{
    bool diloco = o->plan->algorithm == PL_ALGORITHM_DILOCO;
    *t = (struct pl_rtrainer){.o = *o, .hold = true};
    pl_assert(o->plan->buckets < 1u << PL_RTRAINER_READY_BITS);
    atomic_store(&t->ready, UINT64_MAX);
    if (diloco) {
        t->anchor = pl_alloc_zero(o->alloc, o->plan->floats, sizeof(float));
        t->momentum = pl_alloc_zero(o->alloc, o->plan->floats, sizeof(float));
    }
    if ((diloco && (t->anchor == NULL || t->momentum == NULL)) || !init_wake(t)) {
        free_copies(t);
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for the trainer's thread");
    }
    o->trainer->hooks = (struct pl_trainer_hooks){
        .graded = diloco ? NULL : graded, .reduce = diloco ? NULL : await, .moving = moving, .user = t};
    return PELAGO_OK;
}

bool pl_rtrainer_start(struct pl_rtrainer *t)
{
    sigset_t all, before;
    (void)sigfillset(&all); /* signals are for the loop's thread */
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    t->has_thread = pthread_create(&t->thread, NULL, thread_main, t) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return t->has_thread;
}

void pl_rtrainer_stop(struct pl_rtrainer *t)
{
    lock(t);
    t->stop = true;
    (void)pthread_cond_broadcast(&t->wake);
    unlock(t);
}

void pl_rtrainer_join(struct pl_rtrainer *t)
{
    pl_assert(t->has_thread);
    (void)pthread_join(t->thread, NULL);
    t->has_thread = false;
}

void pl_rtrainer_release(struct pl_rtrainer *t)
{
    pl_assert(!t->has_thread);
    free_copies(t);
    (void)pthread_cond_destroy(&t->wake);
    (void)pthread_mutex_destroy(&t->lock);
}

/* ---- the loop's side ---- */

void pl_rtrainer_note(struct pl_rtrainer *t, struct pl_rtrainer_note *out)
{
    lock(t);
    *out = t->note;
    unlock(t);
}

uint32_t pl_rtrainer_ready(const struct pl_rtrainer *t, uint64_t round)
{
    uint64_t ready = atomic_load_explicit(&t->ready, memory_order_acquire);
    uint64_t mask = (UINT64_C(1) << PL_RTRAINER_READY_BITS) - 1;
    return ready >> PL_RTRAINER_READY_BITS == round ? (uint32_t)(ready & mask) : 0;
}

void pl_rtrainer_release_round(struct pl_rtrainer *t, uint64_t round)
{
    lock(t);
    t->released = round + 1;
    (void)pthread_cond_broadcast(&t->wake);
    unlock(t);
}

void pl_rtrainer_park(struct pl_rtrainer *t)
{
    lock(t);
    t->hold = true;
    (void)pthread_cond_broadcast(&t->wake);
    unlock(t);
}

void pl_rtrainer_go(struct pl_rtrainer *t, uint32_t rank)
{
    atomic_store(&t->rank, rank);
    lock(t);
    t->hold = false;
    (void)pthread_cond_broadcast(&t->wake);
    unlock(t);
}

void pl_rtrainer_settle(struct pl_rtrainer *t, uint64_t round)
{
    struct pl_model *m = t->o.trainer->model;
    t->round = round;
    t->o.trainer->inner.step = pl_reduce_steps(t->o.plan, round);
    atomic_store(&t->ready, UINT64_MAX);
    if (t->anchor != NULL)
        memcpy(t->anchor, m->params, t->o.plan->floats * sizeof *t->anchor);
    pl_model_refresh(m);
    lock(t);
    pl_assert(t->hold);
    t->released = round;
    t->note.round = round;
    t->note.digest_round = 0;
    t->note.finished = false;
    unlock(t);
}

/* ---- the state ---- */

/* Part i of the state, NULL after the last. In diloco the parameters of the round's beginning are the anchor, while the
 * trainer's own have moved on. */
static float *state_part(const struct pl_rtrainer *t, uint32_t i, bool reading, uint64_t *count)
{
    const struct pl_trainer *trainer = t->o.trainer;
    *count = t->o.plan->floats;
    if (i == 0)
        return t->anchor != NULL && reading ? t->anchor : trainer->model->params;
    if (i == trainer->span_count + 1)
        return t->momentum;
    if (i > trainer->span_count)
        return NULL;
    const struct pl_named_span *span = &trainer->spans[i - 1];
    *count = (uint64_t)span->rows * span->cols;
    return span->at;
}

uint64_t pl_rtrainer_state_floats(const struct pl_rtrainer *t)
{
    uint64_t sum = 0, count;
    for (uint32_t i = 0; state_part(t, i, true, &count) != NULL; i++)
        sum += count;
    return sum;
}

/* Copies a stretch of the state out, or in. */
static void state_copy(const struct pl_rtrainer *t, uint64_t at, uint64_t count, float *out, const float *in)
{
    uint64_t begin = 0, part_count, done = 0;
    float *part;
    for (uint32_t i = 0; done < count && (part = state_part(t, i, out != NULL, &part_count)) != NULL; i++) {
        uint64_t end = begin + part_count;
        if (at + done < end) {
            uint64_t inside = at + done - begin, n = pl_min64(count - done, end - (at + done));
            if (out != NULL)
                memcpy(out + done, part + inside, n * sizeof *part);
            else
                memcpy(part + inside, in + done, n * sizeof *part);
            done += n;
        }
        begin = end;
    }
    pl_assert(done == count);
}

void pl_rtrainer_state_read(const struct pl_rtrainer *t, uint64_t at, uint64_t count, float *out)
{
    state_copy(t, at, count, out, NULL);
}

void pl_rtrainer_state_write(struct pl_rtrainer *t, uint64_t at, uint64_t count, const float *in)
{
    state_copy(t, at, count, NULL, in);
}

void pl_rtrainer_reset(struct pl_rtrainer *t)
{
    struct pl_trainer *trainer = t->o.trainer;
    pl_tensors_fill(&trainer->model->tensors, trainer->model->params, trainer->options.seed);
    for (uint32_t i = 0; i < trainer->span_count; i++)
        memset(trainer->spans[i].at, 0,
               (size_t)trainer->spans[i].rows * trainer->spans[i].cols * sizeof(float));
    if (t->momentum != NULL)
        memset(t->momentum, 0, t->o.plan->floats * sizeof *t->momentum);
    pl_rtrainer_settle(t, 0);
}
