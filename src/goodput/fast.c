/* goodput/fast.c - the fast mode: learners made, the loop from event to event, and what came of it. */
#include "goodput/fast_int.h"

#include "base/check.h"
#include "base/normal.h"
#include "base/num.h"

#include <math.h>

void *pl_fast_zero(struct pl_fast *f, size_t count, size_t size)
{
    void *block = pl_alloc_zero(&f->alloc, count, size);
    if (block != NULL)
        f->bytes += (uint64_t)count * size;
    return block;
}

/* ---- learners ---- */

static struct pl_goodput_site site_of(const struct pl_goodput_options *o, uint32_t i)
{
    struct pl_goodput_site s = {0, 1, 0, 0, -1};
    if (o->sites != NULL)
        s = o->sites[i];
    else
        s.chips = o->chips / o->learners + (i < o->chips % o->learners);
    s.link_bits_s = s.link_bits_s > 0 ? s.link_bits_s : o->link_bits_s;
    s.mtbi_s = s.mtbi_s > 0 ? s.mtbi_s : o->mtbi_s;
    s.outages_per_day = s.outages_per_day >= 0 ? s.outages_per_day : o->outages_per_day;
    return s;
}

/* All sites as one job: it fails as all of them do and goes as the slowest. */
static struct pl_goodput_site site_of_all(const struct pl_goodput_options *o, double *pace)
{
    struct pl_goodput_site all = {0, 0, 0, 0, 0};
    double failing = 0, slowest = HUGE_VAL;
    for (uint32_t i = 0; i < o->learners; i++) {
        struct pl_goodput_site s = site_of(o, i);
        all.chips += s.chips;
        all.speed += (double)s.chips * s.speed;
        failing += (double)s.chips / s.mtbi_s;
        slowest = fmin(slowest, s.speed);
        all.link_bits_s =
            all.link_bits_s > 0 && s.link_bits_s > 0 ? fmin(all.link_bits_s, s.link_bits_s) : s.link_bits_s;
        all.outages_per_day += o->learners > 1 ? s.outages_per_day : 0;
    }
    all.speed /= (double)all.chips;
    all.mtbi_s = (double)all.chips / failing;
    *pace = slowest / all.speed;
    if (o->learners > 1 && all.link_bits_s > 0) /* gradients out and in, every step */
        *pace *= o->step_s / (o->step_s + 16 * o->model_bytes / all.link_bits_s);
    return all;
}

/* A rigid job cannot run with a slice less, so it holds enough replacements that it hardly ever waits for a repair. */
static uint32_t reserve(const struct pl_fast *f, const struct pl_fast_learner *l)
{
    double wanted = ceil(f->o->spare_share * l->slices);
    if (pl_fast_rigid(f) && f->o->spare_share <= 0) {
        double away = f->o->failures == PL_GOODPUT_TRACE ? pl_fast_trace_away(f->o) * l->slices
                                                         : f->o->repair.mean_s / l->fail_s;
        wanted = ceil(away + 4 * sqrt(away) + 1);
    }
    return (uint32_t)fmin(wanted, l->slices - 1);
}

static double slowest_of(const struct pl_fast *f, struct pl_fast_learner *l)
{
    struct pl_normal normal;
    double slowest = 1;
    if (f->o->speed_sd <= 0)
        return 1;
    pl_normal_init(&normal);
    for (uint32_t i = 0; i < l->slices; i++)
        slowest = fmin(slowest, 1 + f->o->speed_sd * pl_normal_next(&normal, &l->prng[PL_FAST_PACE]));
    return fmax(slowest, 0.05);
}

static double rejoin_s(const struct pl_goodput_options *o, const struct pl_goodput_site *s)
{
    double model_s = s->link_bits_s > 0 ? 8 * o->model_bytes / s->link_bits_s : 0;
    if (o->rejoin == PL_GOODPUT_REJOIN_DISK)
        return 3 * o->model_bytes / o->disk_bytes_s + model_s;
    return 3 * model_s; /* values and two moments */
}

static bool make_slices(struct pl_fast *f, struct pl_fast_learner *l)
{
    l->slice = pl_fast_zero(f, l->slices, sizeof *l->slice);
    l->place = pl_fast_zero(f, l->slices, sizeof *l->place);
    l->returns_memory = pl_fast_zero(f, 1, pl_heap_bytes(l->slices));
    l->fails_memory =
        f->o->failures == PL_GOODPUT_WEIBULL ? pl_fast_zero(f, 1, pl_heap_bytes(l->slices)) : NULL;
    for (uint32_t i = 0; i < PL_FAST_LIVING; i++)
        if ((l->list[i] = pl_fast_zero(f, l->slices, sizeof *l->list[i])) == NULL)
            return false;
    if (l->slice == NULL || l->place == NULL || l->returns_memory == NULL ||
        (f->o->failures == PL_GOODPUT_WEIBULL && l->fails_memory == NULL))
        return false;
    pl_heap_init(&l->returns, l->returns_memory, l->slices);
    if (l->fails_memory != NULL)
        pl_heap_init(&l->fails, l->fails_memory, l->slices);
    for (uint32_t i = 0; i < l->slices; i++) {
        l->slice[i] = PL_FAST_DEAD;
        pl_fast_move_slice(l, i, i < l->target ? PL_FAST_ACTIVE : PL_FAST_SPARE);
    }
    return true;
}

static enum pelago_status make_learner(struct pl_fast *f, uint32_t index, uint64_t *first_slice)
{
    const struct pl_goodput_options *o = f->o;
    struct pl_fast_learner *l = &f->learners[index];
    double pace = 1;
    struct pl_goodput_site s = pl_fast_one_job(o) ? site_of_all(o, &pace) : site_of(o, index);
    l->index = index;
    l->slices = (uint32_t)(s.chips / o->slice_chips > 0 ? s.chips / o->slice_chips : 1);
    l->weight = (double)s.chips * s.speed;
    l->fail_s = s.mtbi_s / (double)s.chips;
    l->outages_per_day = s.outages_per_day;
    l->rejoin_s = rejoin_s(o, &s);
    l->comm_s = s.link_bits_s > 0 ? 16 * o->model_bytes / s.link_bits_s : 0;
    l->round_steps = o->period_steps;
    for (uint32_t i = 0; i < PL_FAST_STREAMS; i++)
        pl_prng_seed(&l->prng[i], o->seed, (uint64_t)index * PL_FAST_STREAMS + i);
    l->speed = pace * slowest_of(f, l);
    l->target = l->slices - reserve(f, l);
    if (!make_slices(f, l))
        return PELAGO_NOMEM;
    if (o->failures == PL_GOODPUT_TRACE)
        PL_TRY(pl_fast_trace_spread(f, l, *first_slice));
    *first_slice += l->slices;
    pl_fast_begin(f, l);
    return PELAGO_OK;
}

/* A trace may begin with slices away. */
static void first_mode(struct pl_fast *f, struct pl_fast_learner *l)
{
    pl_fast_form_mesh(l);
    uint32_t active = l->count[PL_FAST_ACTIVE];
    bool enough = active > 0 && (!pl_fast_rigid(f) || active >= l->target);
    l->lost_all = active == 0;
    l->mode = PL_FAST_STARVED;
    pl_fast_enter(f, l, enough ? PL_FAST_RUN : PL_FAST_STARVED);
    pl_fast_arm(f, l);
}

enum pelago_status pl_fast_init(struct pl_fast *f, const struct pl_goodput_options *o,
                                const struct pl_alloc *alloc)
{
    *f = (struct pl_fast){.o = o, .alloc = *alloc, .count = pl_fast_one_job(o) ? 1 : o->learners};
    uint64_t first_slice = 0;
    double all = 0;
    f->learners = pl_fast_zero(f, f->count, sizeof *f->learners);
    f->heap_memory = pl_fast_zero(f, 1, pl_heap_bytes(f->count + 1));
    if (f->learners == NULL || f->heap_memory == NULL)
        return PELAGO_NOMEM;
    pl_heap_init(&f->heap, f->heap_memory, f->count + 1);
    pl_draw_init(&f->repair, &o->repair);
    pl_draw_init(&f->domain_repair, &o->domain_repair);
    pl_draw_init(&f->outage, &o->outage);
    for (uint32_t i = 0; i < f->count; i++) {
        PL_TRY(make_learner(f, i, &first_slice));
        all += f->learners[i].weight;
    }
    for (uint32_t i = 0; i < f->count; i++) {
        f->learners[i].weight /= all;
        first_mode(f, &f->learners[i]);
    }
    return PELAGO_OK;
}

void pl_fast_release(struct pl_fast *f)
{
    for (uint32_t i = 0; f->learners != NULL && i < f->count; i++) {
        struct pl_fast_learner *l = &f->learners[i];
        pl_alloc_free(&f->alloc, l->slice, l->slices * sizeof *l->slice);
        pl_alloc_free(&f->alloc, l->place, l->slices * sizeof *l->place);
        pl_alloc_free(&f->alloc, l->returns_memory, pl_heap_bytes(l->slices));
        pl_alloc_free(&f->alloc, l->fails_memory, pl_heap_bytes(l->slices));
        for (uint32_t k = 0; k < PL_FAST_LIVING; k++)
            pl_alloc_free(&f->alloc, l->list[k], l->slices * sizeof *l->list[k]);
        pl_alloc_free(&f->alloc, l->trace, l->trace_count * sizeof *l->trace);
    }
    pl_alloc_free(&f->alloc, f->heap_memory, pl_heap_bytes(f->count + 1));
    pl_alloc_free(&f->alloc, f->learners, f->count * sizeof *f->learners);
}

/* ---- the loop ---- */

void pl_fast_until(struct pl_fast *f, uint64_t end_ns)
{
    while (pl_heap_top_key(&f->heap) <= end_ns) {
        uint32_t item = pl_heap_top(&f->heap);
        pl_assert(pl_heap_top_key(&f->heap) >= f->now_ns);
        f->now_ns = pl_heap_top_key(&f->heap);
        f->counts.events++;
        if (item == f->count) {
            pl_fast_barrier_over(f);
        } else {
            pl_fast_fire(f, &f->learners[item]);
            pl_fast_arm(f, &f->learners[item]);
            if (f->watch != NULL)
                f->watch(f->watch_user, f, &f->learners[item]);
        }
    }
    f->now_ns = end_ns;
    pl_fast_count(f);
    for (uint32_t i = 0; i < f->count; i++)
        pl_fast_settle(f, &f->learners[i]);
}

void pl_fast_forget(struct pl_fast *f)
{
    f->began_ns = f->counted_ns = f->now_ns;
    f->up_s = f->stale_sum = f->contributions = 0;
    for (uint32_t i = 0; i <= f->count; i++)
        f->cohort_s[i] = 0;
    for (uint32_t i = 0; i < PL_GOODPUT_STALENESS_MAX; i++)
        f->stale[i] = 0;
    f->counts = (struct pl_goodput_result){0};
    for (uint32_t i = 0; i < f->count; i++) {
        f->learners[i].books = (struct pl_fast_books){0};
        f->learners[i].unmerged = 0;
    }
}

static void add_books(struct pl_goodput_result *out, const struct pl_fast_books *b, double share)
{
    out->goodput += share * b->useful;
    out->lost_stall += share * b->stall;
    out->lost_repair += share * b->repair;
    out->lost_spares += share * b->spares;
    out->lost_steps += share * b->steps;
    out->lost_wait += share * b->wait;
    out->lost_rejoin += share * b->rejoin;
    out->lost_overwrite += share * b->overwrite;
    out->lost_speed += share * b->speed;
}

void pl_fast_result(struct pl_fast *f, struct pl_goodput_result *out)
{
    double s = (double)(f->now_ns - f->began_ns) / PL_FAST_SECOND;
    pl_assert(s > 0);
    *out = f->counts;
    for (uint32_t i = 0; i < f->count; i++)
        add_books(out, &f->learners[i].books, f->learners[i].weight / s);
    out->uptime = f->up_s / s;
    out->useful_tokens = out->goodput * f->o->step_tokens * s / f->o->step_s;
    out->days = s / 86400;
    out->learners = f->count;
    out->bytes = f->bytes;
    for (uint32_t i = 0; i <= f->count; i++)
        out->cohort[i] = f->cohort_s[i] / s;
    for (uint32_t i = 0; i < PL_GOODPUT_STALENESS_MAX; i++)
        out->staleness[i] = f->contributions > 0 ? f->stale[i] / f->contributions : 0;
    out->staleness_mean = f->contributions > 0 ? f->stale_sum / f->contributions : 0;
}

enum pelago_status pl_goodput_run(const struct pl_goodput_options *o, const struct pl_alloc *alloc,
                                  struct pl_goodput_result *out, struct pl_error *err)
{
    struct pl_fast f;
    PL_TRY(pl_goodput_check(o, err));
    enum pelago_status status = pl_fast_init(&f, o, alloc);
    if (status == PELAGO_OK) {
        pl_fast_until(&f, (uint64_t)(o->days * 86400 * PL_FAST_SECOND));
        pl_fast_result(&f, out);
    }
    pl_fast_release(&f);
    return status == PELAGO_OK ? status : pl_fail(err, status, "out of memory");
}
