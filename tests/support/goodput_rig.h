/* support/goodput_rig.h - settings of goodput/ for tests: everything off, so that each test switches one thing on. */
#ifndef PL_TEST_GOODPUT_RIG_H
#define PL_TEST_GOODPUT_RIG_H

#include "goodput/goodput.h"

/* Chips that never fail, no stall costs anything, steps of 1 ms. */
void goodput_quiet(struct pl_goodput_options *o);
/* Runs it, and asserts that every share is one and that they add up. */
struct pl_goodput_result goodput_run(const struct pl_goodput_options *o);
void goodput_assert_sound(const struct pl_goodput_result *r);
/* |got - expected| <= tolerance, with the figures when not. */
void goodput_assert_near(double got, double expected, double tolerance);

/* An allocator that counts what is held and fails at the n-th request (0: never). */
struct goodput_memory {
    struct pl_alloc alloc;
    int64_t held;
    uint32_t calls, fail_at;
};
void goodput_memory_init(struct goodput_memory *m, uint32_t fail_at);

#endif
