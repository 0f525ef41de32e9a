/* support/op_main.c - see op_rig.h: the cases as a test of cmocka, over the back ends of this machine. */
#include "op_rig.h"

#include "base/check.h"
#include "host/devices.h"
#include "seed.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

enum { CASES_MAX = 32 };

/* ---- back ends ---- */

void op_backends_open(struct op_backends *b)
{
    const struct pl_alloc alloc = pl_alloc_system();
    bool usable = false;
    *b = (struct op_backends){0};
    pl_devices_offer();
    for (uint32_t i = 0; pl_engine_backend_name(i, &usable) != NULL; i++) {
        struct op_backend *at = &b->at[b->count];
        at->name = pl_engine_backend_name(i, &usable);
        if (!usable) {
            printf("# %s skipped: this machine cannot run it\n", at->name);
            continue;
        }
        pl_assert(b->count < OP_BACKENDS);
        pl_assert(pl_engine_init(&at->many, &alloc, at->name, OP_THREADS, NULL) == PELAGO_OK);
        pl_assert(pl_engine_init(&at->one, &alloc, at->name, 1, NULL) == PELAGO_OK);
        b->count++;
    }
}

void op_backends_close(struct op_backends *b)
{
    for (uint32_t i = 0; i < b->count; i++) {
        pl_engine_release(&b->at[i].many);
        pl_engine_release(&b->at[i].one);
    }
    b->count = 0;
}

static struct op_backends *tested;
static uint64_t test_seed_value;

static void test_case(void **state)
{
    const struct op_case *c = *state;
    const uint32_t failures = op_check(c, tested, test_seed_value, false);
    if (failures > 0)
        fail_msg("%s: %u failures, seed %" PRIu64, c->name, failures, test_seed_value);
}

int op_run_cases(const char *title, const struct op_case *const *cases, uint32_t count, struct op_backends *b)
{
    struct CMUnitTest tests[CASES_MAX] = {{0}};
    pl_assert(count <= CASES_MAX);
    tested = b;
    test_seed_value = test_seed();
    for (uint32_t i = 0; i < count; i++)
        tests[i] = (struct CMUnitTest){cases[i]->name, test_case, NULL, NULL, (void *)(uintptr_t)cases[i]};
    return _cmocka_run_group_tests(title, tests, count, NULL, NULL);
}

int op_main(const char *title, const struct op_case *const *cases, uint32_t count)
{
    static struct op_backends all;
    op_backends_open(&all);
    const int failed = op_run_cases(title, cases, count, &all);
    op_backends_close(&all);
    return failed;
}
