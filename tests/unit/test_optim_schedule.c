/* Learning rates at the corners of each schedule, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/prng.h"
#include "optim/schedule.h"
#include "seed.h"

#include <math.h>
#include <string.h>

static const struct pl_schedule cosine = {
    .kind = PL_SCHEDULE_COSINE, .peak = 2, .floor = 0.25f, .warmup_tokens = 100, .total_tokens = 1100};
static const struct pl_schedule wsd = {.kind = PL_SCHEDULE_WSD,
                                       .peak = 2,
                                       .floor = 0.25f,
                                       .decay = 0.5f,
                                       .warmup_tokens = 100,
                                       .total_tokens = 1000};
static const struct pl_schedule constant = {.kind = PL_SCHEDULE_CONSTANT, .peak = 2, .warmup_tokens = 100};

static void assert_rate(const struct pl_schedule *s, uint64_t tokens, float want)
{
    float got = pl_schedule_lr(s, tokens);
    if (!(fabsf(got - want) <= 1e-6f * want))
        fail_msg("at %llu tokens got %.9g, expected %.9g", (unsigned long long)tokens, (double)got,
                 (double)want);
}

static void test_warmup_is_a_straight_line(void **state)
{
    (void)state;
    const struct pl_schedule *all[3] = {&cosine, &wsd, &constant};
    for (int i = 0; i < 3; i++) {
        assert_rate(all[i], 0, 0);
        assert_rate(all[i], 1, 0.02f);
        assert_rate(all[i], 50, 1);
        assert_rate(all[i], 99, 1.98f);
        assert_rate(all[i], 100, 2);
        assert_false(pl_schedule_is_warm(all[i], 99));
        assert_true(pl_schedule_is_warm(all[i], 100));
    }
    struct pl_schedule none = constant;
    none.warmup_tokens = 0;
    assert_false(pl_schedule_is_warm(&none, 0)); /* it has not begun */
    assert_true(pl_schedule_is_warm(&none, 1));
}

static void test_cosine(void **state)
{
    (void)state;
    assert_rate(&cosine, 350, 0.5f + 1.5f * 0.5f * (1 + 0.70710678f));
    assert_rate(&cosine, 600, 1.25f);
    assert_rate(&cosine, 1100, 0.5f);
    assert_rate(&cosine, 1101, 0.5f);
    assert_rate(&cosine, UINT64_MAX, 0.5f);
}

static void test_wsd(void **state)
{
    (void)state;
    assert_rate(&wsd, 500, 2);
    assert_rate(&wsd, 501, 2 - 1.5f / 500);
    assert_rate(&wsd, 750, 1.25f);
    assert_rate(&wsd, 1000, 0.5f);
    assert_rate(&wsd, UINT64_MAX, 0.5f);
}

static void test_constant_ends_never(void **state)
{
    (void)state;
    assert_rate(&constant, 101, 2);
    assert_rate(&constant, UINT64_MAX, 2);
}

static void test_no_warmup_begins_at_the_peak(void **state)
{
    (void)state;
    struct pl_schedule s = cosine;
    s.warmup_tokens = 0;
    assert_rate(&s, 0, 2);
    s.floor = 0;
    assert_true(pl_schedule_lr(&s, s.total_tokens) == 0);
}

/* A run that is all warm-up reaches the peak's floor exactly when it ends. */
static void test_warmup_as_long_as_the_run(void **state)
{
    (void)state;
    struct pl_schedule s = cosine;
    s.warmup_tokens = s.total_tokens;
    assert_int_equal(pl_schedule_check(&s, NULL), PELAGO_OK);
    assert_rate(&s, s.total_tokens - 1, 2.0f * 1099 / 1100);
    assert_rate(&s, s.total_tokens, 0.5f);
}

static void test_rates_rise_then_fall(void **state)
{
    (void)state;
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 0);
    for (int round = 0; round < 200; round++) {
        struct pl_schedule s = round % 2 == 0 ? cosine : wsd;
        s.total_tokens = pl_prng_range(&r, 4, UINT64_C(1) << pl_prng_range(&r, 3, 62));
        s.warmup_tokens = pl_prng_below(&r, s.total_tokens / 2);
        assert_int_equal(pl_schedule_check(&s, NULL), PELAGO_OK);
        uint64_t a = pl_prng_below(&r, s.total_tokens), b = pl_prng_range(&r, a, s.total_tokens);
        float at_a = pl_schedule_lr(&s, a), at_b = pl_schedule_lr(&s, b);
        assert_true(at_a >= 0 && at_a <= s.peak && at_b >= 0 && at_b <= s.peak);
        if (b < s.warmup_tokens)
            assert_true(at_a <= at_b);
        if (a >= s.warmup_tokens)
            assert_true(at_a >= at_b && at_b >= s.floor * s.peak * 0.999999f);
    }
}

static void refuse(struct pl_schedule s, const char *word)
{
    struct pl_error err = {0};
    assert_int_equal(pl_schedule_check(&s, &err), PELAGO_INVALID);
    if (strstr(err.text, word) == NULL)
        fail_msg("\"%s\" does not speak of %s", err.text, word);
}

#define REFUSE(base, field, value, word)                                                                     \
    do {                                                                                                     \
        struct pl_schedule s_ = (base);                                                                      \
        s_.field = (value);                                                                                  \
        refuse(s_, word);                                                                                    \
    } while (0)

static void test_refusals(void **state)
{
    (void)state;
    assert_int_equal(pl_schedule_check(&cosine, NULL), PELAGO_OK);
    assert_int_equal(pl_schedule_check(&wsd, NULL), PELAGO_OK);
    assert_int_equal(pl_schedule_check(&constant, NULL), PELAGO_OK);
    REFUSE(cosine, kind, (enum pl_schedule_kind)0, "constant, cosine or wsd");
    REFUSE(cosine, kind, (enum pl_schedule_kind)4, "constant, cosine or wsd");
    REFUSE(constant, peak, 0, "peak");
    REFUSE(constant, peak, NAN, "peak");
    REFUSE(constant, peak, 101, "peak");
    REFUSE(constant, warmup_tokens, UINT64_MAX, "warm-up");
    REFUSE(cosine, total_tokens, 0, "total_tokens");
    REFUSE(cosine, total_tokens, UINT64_MAX, "total_tokens");
    REFUSE(cosine, floor, -0.1f, "floor");
    REFUSE(cosine, floor, 1.1f, "floor");
    REFUSE(cosine, floor, NAN, "floor");
    REFUSE(cosine, warmup_tokens, 1101, "longer than the run");
    REFUSE(wsd, decay, 0, "decay");
    REFUSE(wsd, decay, 1.5f, "decay");
    REFUSE(wsd, decay, NAN, "decay");
    REFUSE(wsd, warmup_tokens, 501, "reaches into the decay");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_warmup_is_a_straight_line),
        cmocka_unit_test(test_cosine),
        cmocka_unit_test(test_wsd),
        cmocka_unit_test(test_constant_ends_never),
        cmocka_unit_test(test_no_warmup_begins_at_the_peak),
        cmocka_unit_test(test_warmup_as_long_as_the_run),
        cmocka_unit_test(test_rates_rise_then_fall),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("optim_schedule", tests, NULL, NULL);
}
