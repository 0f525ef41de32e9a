/* support/goodput_rig.c - see goodput_rig.h. */
#include "goodput_rig.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

void goodput_quiet(struct pl_goodput_options *o)
{
    pl_goodput_defaults(o);
    o->chips = 1000;
    o->learners = 1;
    o->slice_chips = 10;
    o->mtbi_s = 1e12;
    o->detect_s = o->downscale_s = o->upscale_s = o->upscale_wait_s = o->restart_s = 0;
    o->repair = (struct pl_goodput_time){PL_GOODPUT_FIXED, 0, 1, 1};
    o->step_s = 1e-3;
}

void goodput_assert_near(double got, double expected, double tolerance)
{
    if (!(fabs(got - expected) <= tolerance))
        fail_msg("got %.6f, expected %.6f +- %.6f", got, expected, tolerance);
}

void goodput_assert_sound(const struct pl_goodput_result *r)
{
    const double shares[] = {r->goodput,   r->lost_stall,  r->lost_repair,    r->lost_spares, r->lost_steps,
                             r->lost_wait, r->lost_rejoin, r->lost_overwrite, r->lost_speed};
    double sum = 0, cohorts = 0, stale = 0;
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
        assert_true(shares[i] >= -1e-9 && shares[i] <= 1 + 1e-9);
        sum += shares[i];
    }
    goodput_assert_near(sum, 1, 1e-6);
    for (uint32_t i = 0; i <= r->learners; i++)
        cohorts += r->cohort[i];
    goodput_assert_near(cohorts, 1, 1e-6);
    for (uint32_t i = 0; i < PL_GOODPUT_STALENESS_MAX; i++)
        stale += r->staleness[i];
    assert_true(fabs(stale - 1) < 1e-6 || stale == 0);
    assert_true(r->uptime >= 0 && r->uptime <= 1 + 1e-9);
}

struct pl_goodput_result goodput_run(const struct pl_goodput_options *o)
{
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_goodput_result r;
    struct pl_error err = {PELAGO_OK, ""};
    if (pl_goodput_run(o, &alloc, &r, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
    goodput_assert_sound(&r);
    return r;
}

static void *resize(void *user, void *block, size_t old_bytes, size_t new_bytes)
{
    struct goodput_memory *m = user;
    struct pl_alloc system = pl_alloc_system();
    if (new_bytes > 0 && ++m->calls == m->fail_at)
        return NULL;
    m->held += (int64_t)new_bytes - (int64_t)(block != NULL ? old_bytes : 0);
    return system.resize(system.user, block, old_bytes, new_bytes);
}

void goodput_memory_init(struct goodput_memory *m, uint32_t fail_at)
{
    *m = (struct goodput_memory){.fail_at = fail_at};
    m->alloc = (struct pl_alloc){resize, m};
}
