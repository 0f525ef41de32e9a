/* host/learner_keep.c - when a learner takes a checkpoint of itself, and of what.
 *
 * It must be of one moment: the core's state, the anchors and residuals, and the parameters after the last
 * step the core knows of, with no new value on its way into them. So it begins right after a note, when
 * nothing is being applied: the core's part is written down and the arrays are held at once, and a worker
 * copies the parameters while the number stays. If the optimizer was faster all is dropped and the next note
 * tries again; after some times the trainer's thread makes the copy. The moments need not be of that very
 * moment, only each pair of one: they are copied piece by piece while the file is written.
 */
#include "host/learner_host_int.h"

#include "base/check.h"
#include "base/num.h"
#include "os/clock.h"

#include <string.h>

enum { TRIES_BESIDE = 20, NS_A_BYTE = 100 };
#define SOONEST_NS (2 * PL_SEC)
#define EVERY_NS (60 * PL_SEC)

/* Who lives for seconds only keeps something too: the first checkpoint comes soon, each further attempt after twice the time,
 * and none so soon that the disk is busy with them for more than a tenth of it; one that took for ever is not measured by that. */
static uint64_t interval(const struct pl_learner_host *h)
{
    if (h->o.checkpoint_ns > 0)
        return h->o.checkpoint_ns;
    uint64_t arrays = 5; /* parameters, anchors, residuals, two moments */
    uint64_t first = h->layout.tensors.floats * sizeof(float) * arrays * NS_A_BYTE;
    uint64_t due = pl_min64(pl_max64(first, SOONEST_NS) << pl_min32(h->keep.attempts, 6), EVERY_NS);
    return pl_max64(due, pl_min64(10 * h->keep.write_ns, 10 * EVERY_NS));
}

static void drop(struct pl_learner_host *h)
{
    struct pl_lkeep *k = &h->keep;
    uint32_t count = h->layout.fragment_count;
    for (uint32_t i = 0; k->anchors != NULL && i < count; i++)
        pl_vec_drop(h, k->anchors[i]);
    for (uint32_t i = 0; k->residuals != NULL && i < count; i++)
        pl_vec_drop(h, k->residuals[i]);
    pl_alloc_free(&h->alloc, k->anchors, count * sizeof *k->anchors);
    pl_alloc_free(&h->alloc, k->residuals, count * sizeof *k->residuals);
    k->anchors = k->residuals = NULL;
    k->core.len = 0;
    k->busy = false;
}

void pl_lhost_keep_release(struct pl_learner_host *h)
{
    pl_alloc_free(&h->alloc, h->keep.theta, (size_t)h->layout.tensors.floats * sizeof *h->keep.theta);
    h->keep.theta = NULL;
}

/* The core's part and the arrays, as they are now. False: no memory. */
static bool hold(struct pl_learner_host *h)
{
    struct pl_lkeep *k = &h->keep;
    uint32_t count = h->layout.fragment_count;
    size_t bytes = pl_learner_save_bytes(h->core);
    k->anchors = pl_alloc_zero(&h->alloc, count, sizeof *k->anchors);
    k->residuals = pl_alloc_zero(&h->alloc, count, sizeof *k->residuals);
    /* Kept from an attempt that was overtaken: its pages are there, and the trainer need not wait for them. */
    if (k->theta == NULL)
        k->theta =
            h->alloc.resize(h->alloc.user, NULL, 0, (size_t)h->layout.tensors.floats * sizeof *k->theta);
    if (k->anchors == NULL || k->residuals == NULL || k->theta == NULL ||
        pl_buf_reserve(&k->core, bytes) != PELAGO_OK)
        return false;
    k->core.len = pl_learner_save(h->core, k->core.data, bytes);
    for (uint32_t i = 0; i < count; i++) {
        k->anchors[i] = pl_vec_hold(h->fragments[i].anchor);
        k->residuals[i] = pl_vec_hold(h->fragments[i].residual);
    }
    return true;
}

/* ---- the copy of the parameters ---- */

static void copy_beside(struct pl_job *job)
{
    struct pl_lkeep *k = (struct pl_lkeep *)job;
    struct pl_learner_host *h = k->h;
    const struct pl_steady_span spans[] = {
        {&h->lt.state, &k->state, sizeof k->state},
        {h->lt.theta, k->theta, (size_t)h->layout.tensors.floats * sizeof *k->theta},
    };
    uint64_t number;
    k->good = pl_steady_copy(&h->lt.steady, spans, 2, k->number, &number);
}

static void copied_beside(struct pl_job *job)
{
    struct pl_lkeep *k = (struct pl_lkeep *)job;
    struct pl_learner_host *h = k->h;
    pl_lhost_drain(h);
    pl_lhost_keep_copied(h, k->good);
    pl_lhost_job_done(h);
}

/* Begins one if it is due, nothing is being applied, and the parameters are those of the last note. */
void pl_lhost_keep_look(struct pl_learner_host *h)
{
    struct pl_lkeep *k = &h->keep;
    if (h->trainer == NULL || k->busy || h->over)
        return;
    if (!k->due && !h->left && pl_clock_ns() - k->last_ns >= interval(h) && h->told > k->told)
        k->due = true;
    if (!k->due || h->applies > 0 || pl_steady_now(&h->lt.steady) != h->number)
        return;
    if (h->quitting && h->stepping && !h->hurried)
        return; /* the last step is worth waiting for, a little */
    k->busy = true;
    k->number = h->number;
    k->told_now = h->told;
    if (!hold(h)) {
        drop(h);
        pl_lhost_keep_release(h);
        if (k->complaints++ == 0)
            pl_lhost_log(h, "there is no memory for a checkpoint; training goes on without");
        k->due = false;
        k->attempts++;
        k->last_ns = pl_clock_ns();
        if (h->quitting)
            pl_lhost_leave(h);
        return;
    }
    if (k->tries >= TRIES_BESIDE && h->stepping) {
        k->order = (struct pl_order){.kind = PL_ORDER_WHOLE, .to = k->theta, .want = k->number};
        pl_ltrainer_order(&h->lt, &k->order);
        return;
    }
    k->job.run = copy_beside;
    k->job.done = copied_beside;
    pl_lhost_job(h, NULL, &k->job);
}

/* ---- the file ---- */

static void write_file(struct pl_job *job)
{
    struct pl_lkeep *k = (struct pl_lkeep *)job;
    struct pl_learner_host *h = k->h;
    struct pl_lsave s = {.alloc = &h->alloc,
                         .layout = &h->layout,
                         .trainer = h->trainer,
                         .run_id = h->settings.run_id,
                         .identity = h->own.identity,
                         .manifest_digest = h->manifest.digest,
                         .steady = &h->lt.steady,
                         .state = &k->state,
                         .core = &k->core,
                         .theta = k->theta,
                         .anchors = k->anchors,
                         .residuals = k->residuals};
    uint64_t begin = pl_clock_ns();
    k->good = pl_lsave_write(&s, pl_posix_dir_table(h->disk), &k->err) == PELAGO_OK;
    k->write_ns = pl_clock_ns() - begin;
}

static void written(struct pl_job *job)
{
    struct pl_lkeep *k = (struct pl_lkeep *)job;
    struct pl_learner_host *h = k->h;
    if (k->good) {
        k->told = k->told_now;
        k->complaints = 0;
    } else if (k->complaints++ == 0) {
        pl_lhost_log(h, "the checkpoint was not written: %s (%s%s); the one before is kept, training goes on",
                     k->err.text, pl_posix_dir_reason(h->disk), pl_posix_dir_advice(h->disk));
    }
    drop(h);
    pl_lhost_keep_release(h);
    pl_lhost_job_done(h);
}

void pl_lhost_keep_copied(struct pl_learner_host *h, bool good)
{
    struct pl_lkeep *k = &h->keep;
    pl_assert(k->busy);
    if (!good) {
        k->tries++;
        drop(h);
        pl_lhost_ring(h);
        return;
    }
    k->due = false;
    k->attempts++;
    k->tries = 0;
    k->last_ns = pl_clock_ns();
    k->job.run = write_file;
    k->job.done = written;
    pl_lhost_job(h, &h->disking, &k->job);
    if (h->quitting)
        pl_lhost_leave(h);
}

/* ---- back from it ---- */

/* Reads one file into the host's own arrays. Anything but OK: they hold nothing of use. */
static enum pelago_status read_one(struct pl_learner_host *h, const char *name, struct pl_error *err)
{
    uint32_t count = h->layout.fragment_count;
    struct pl_vec **anchors = pl_alloc_zero(&h->alloc, count, sizeof *anchors);
    struct pl_vec **residuals = pl_alloc_zero(&h->alloc, count, sizeof *residuals);
    bool room = anchors != NULL && residuals != NULL;
    enum pelago_status st =
        room ? PELAGO_OK : pl_fail(err, PELAGO_NOMEM, "there is no memory for the checkpoint");
    for (uint32_t i = 0; room && i < count && st == PELAGO_OK; i++) {
        anchors[i] = h->fragments[i].anchor;
        residuals[i] = pl_vec_new(h, h->layout.fragments[i].values);
        if (residuals[i] == NULL)
            st = pl_fail(err, PELAGO_NOMEM, "there is no memory for the checkpoint");
    }
    struct pl_lsave s = {.alloc = &h->alloc,
                         .layout = &h->layout,
                         .trainer = h->trainer,
                         .run_id = h->settings.run_id,
                         .identity = h->own.identity,
                         .manifest_digest = h->manifest.digest,
                         .state = &h->keep.state,
                         .core = &h->keep.core,
                         .theta = h->trainer->model->params,
                         .anchors = anchors,
                         .residuals = residuals,
                         .residual_there = h->keep.there};
    h->keep.core.len = 0;
    if (st == PELAGO_OK)
        st = pl_lsave_read(&s, pl_posix_dir_table(h->dir), name, err);
    if (st == PELAGO_OK)
        st = pl_learner_load(h->core, &h->manifest.msg, h->keep.core.data, h->keep.core.len, err);
    for (uint32_t i = 0; residuals != NULL && i < count; i++) {
        if (st == PELAGO_OK && h->keep.there[i])
            h->fragments[i].residual = residuals[i];
        else
            pl_vec_drop(h, residuals[i]);
    }
    pl_alloc_free(&h->alloc, anchors, count * sizeof *anchors);
    pl_alloc_free(&h->alloc, residuals, count * sizeof *residuals);
    h->keep.core.len = 0;
    return st;
}

static void take_state(struct pl_learner_host *h)
{
    const struct pl_ltrainer_state *s = &h->keep.state;
    h->trainer->progress = s->progress;
    h->trainer->inner.step = s->inner_step;
    h->own_sequence = s->own_sequence;
    h->warm = true;
    pl_lhost_log(h, "going on after step %lu of its own", pl_learner_steps(h->core));
}

enum pelago_status pl_lhost_restore(struct pl_learner_host *h, struct pl_error *err)
{
    static const char *const names[] = {PL_LSAVE_NAME, PL_LSAVE_OLD};
    struct pl_error why;
    bool touched = false;
    enum pelago_status st = PELAGO_NOTFOUND;
    for (unsigned i = 0; i < 2 && st != PELAGO_OK; i++) {
        st = read_one(h, names[i], &why);
        if (st == PELAGO_NOMEM)
            return pl_fail(err, st, "%s", why.text);
        if (st != PELAGO_OK && st != PELAGO_NOTFOUND) {
            touched = true;
            pl_lhost_log(h, "%s/%s is not used: %s", h->folder, names[i], why.text);
        }
    }
    if (touched) { /* out of the way, or it would become the older one in the place of a good one */
        struct pl_dir dir = pl_posix_dir_table(h->dir);
        (void)dir.ops->rename(dir.self, PL_LSAVE_NAME, "checkpoint.damaged");
    }
    if (st == PELAGO_OK)
        take_state(h);
    else if (touched)
        pl_lhost_begin_anew(h);
    pl_model_refresh(h->trainer->model);
    return PELAGO_OK;
}
