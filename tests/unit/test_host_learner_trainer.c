/* The trainer's thread by itself: orders are carried out exactly once and exactly, units are used in order,
 * pacing ends when it must, the clock of the run is followed. A real trainer on a tiny model, a loop that is
 * this test. */
#include "base/check.h"
#include "host/learner_trainer.h"
#include "os/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 2, SEQ = 8, UNIT_SEQUENCES = 5, NUMBERS = 4096 };

static struct {
    struct pl_alloc alloc;
    struct pl_settings settings;
    struct pl_layout layout;
    struct pl_trainer *trainer;
    struct pl_ltrainer lt;
    bool has_lt;
    pthread_mutex_t lock;
    pthread_cond_t rung;
    unsigned rings;
    uint64_t numbers[NUMBERS]; /* sequences fetched */
    _Atomic uint32_t fetched;
    uint64_t told; /* steps, by notes */
    struct pl_note last;
    struct pl_order *back[64];
    unsigned back_count;
} rig;

static enum pelago_status fetch(void *self, uint64_t first, uint32_t count, uint32_t seq, int32_t *tokens,
                                int32_t *targets, struct pl_error *err)
{
    (void)self;
    (void)err;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = atomic_load(&rig.fetched);
        rig.numbers[at % NUMBERS] = first + i;
        atomic_store(&rig.fetched, at + 1);
    }
    for (uint32_t i = 0; i < count * seq; i++) {
        tokens[i] = (int32_t)((first + i) % 30);
        targets[i] = (int32_t)((first + i + 1) % 30);
    }
    return PELAGO_OK;
}

static void bell(void *user)
{
    (void)user;
    pthread_mutex_lock(&rig.lock);
    rig.rings++;
    pthread_cond_signal(&rig.rung);
    pthread_mutex_unlock(&rig.lock);
}

static void wait_for_bell(void)
{
    pthread_mutex_lock(&rig.lock);
    while (rig.rings == 0)
        pthread_cond_wait(&rig.rung, &rig.lock);
    rig.rings = 0;
    pthread_mutex_unlock(&rig.lock);
}

static void drain(void)
{
    struct pl_note note;
    while (pl_ltrainer_note(&rig.lt, &note)) {
        assert_int_equal(note.number % 2, 0);
        assert_true(note.number > rig.last.number);
        rig.last = note;
        rig.told += note.steps;
        for (struct pl_order *o = note.orders; o != NULL; o = o->next) {
            assert_true(o->state.steps <= rig.told);
            rig.back[rig.back_count++] = o;
        }
    }
}

/* Until so many steps are known of, and so many orders are back. */
static void run_until(uint64_t steps, unsigned orders)
{
    for (drain(); rig.told < steps || rig.back_count < orders; drain())
        wait_for_bell();
}

static void build(float peak, uint64_t pace_ns, bool stub)
{
    struct pl_settings *s = &rig.settings;
    struct pl_error err = {PELAGO_OK, ""};
    memset(&rig, 0, sizeof rig);
    rig.alloc = pl_alloc_system();
    pthread_mutex_init(&rig.lock, NULL);
    pthread_cond_init(&rig.rung, NULL);
    s->total_tokens = 1000000;
    s->trainer.config =
        (struct pl_model_config){.layers = 2, .width = 64, .vocab = 1024, .context = 16, .tied = true};
    pl_model_config_complete(&s->trainer.config);
    s->trainer.threads = 2;
    s->trainer.batch = BATCH;
    s->trainer.seq = SEQ;
    s->trainer.accumulate = 1;
    s->trainer.matrices = PL_INNER_ADAMW;
    s->trainer.rule = (struct pl_inner_rule){.beta1 = 0.9f, .beta2 = 0.99f, .eps = 1e-8f, .momentum = 0.9f};
    s->trainer.schedule = (struct pl_schedule){.kind = PL_SCHEDULE_CONSTANT, .peak = peak};
    s->trainer.seed = 3;
    pl_settings_defaults(s);
    s->fragments = 3;
    if (pl_layout_init(&rig.layout, &rig.alloc, s, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
    if (!stub && pl_trainer_new(&rig.trainer, &rig.alloc, &s->trainer, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
    struct pl_ltrainer_options o = {.alloc = &rig.alloc,
                                    .layout = &rig.layout,
                                    .trainer = rig.trainer,
                                    .theta = stub ? calloc(rig.layout.tensors.floats, sizeof(float)) : NULL,
                                    .source = {fetch, NULL},
                                    .seq = SEQ,
                                    .unit_sequences = UNIT_SEQUENCES,
                                    .step_tokens = BATCH * SEQ,
                                    .own_sequence = 1000000,
                                    .notes = 16,
                                    .pace_ns = pace_ns,
                                    .speed = 1,
                                    .bell = bell};
    assert_true(pl_ltrainer_init(&rig.lt, &o));
    rig.has_lt = true;
}

static void stop(void)
{
    pl_ltrainer_stop(&rig.lt);
    while (!pl_ltrainer_ended(&rig.lt))
        wait_for_bell();
    pl_ltrainer_join(&rig.lt);
    drain();
    assert_int_equal(rig.lt.failure.status, PELAGO_OK);
}

static int tear_down(void **state)
{
    (void)state;
    if (rig.lt.has_thread)
        stop();
    free(rig.lt.o.theta);
    pl_ltrainer_release(&rig.lt);
    pl_trainer_free(rig.trainer);
    pl_layout_release(&rig.layout);
    pthread_cond_destroy(&rig.rung);
    pthread_mutex_destroy(&rig.lock);
    return 0;
}

/* ---- orders ---- */

struct values {
    float *fresh, *base, *to;
    struct pl_order order;
};

static void make_values(struct values *v, uint32_t fragment, uint32_t salt)
{
    uint64_t n = rig.layout.fragments[fragment].values;
    v->fresh = calloc(n, sizeof(float));
    v->base = calloc(n, sizeof(float));
    v->to = calloc(n, sizeof(float));
    for (uint64_t i = 0; i < n; i++) {
        v->fresh[i] = (float)((i * 7 + salt) % 101) * 0.01f;
        v->base[i] = (float)((i * 3 + salt) % 57) * 0.01f;
    }
    v->order = (struct pl_order){.kind = PL_ORDER_APPLY,
                                 .fragment = fragment,
                                 .mode = PL_APPLY_REBASE_KEPT,
                                 .fresh = v->fresh,
                                 .base = v->base};
}

static void free_values(struct values *v)
{
    free(v->fresh);
    free(v->base);
    free(v->to);
}

/* With a rate that moves next to nothing, only orders change the parameters: so what they did can be
 * compared. */
static void check_sums(const float *before, struct values *v, uint32_t count)
{
    float *expected = calloc(rig.layout.tensors.floats, sizeof(float));
    memcpy(expected, before, rig.layout.tensors.floats * sizeof(float));
    for (uint32_t k = 0; k < count; k++) {
        const struct pl_layout_fragment *f = &rig.layout.fragments[v[k].order.fragment];
        for (uint32_t i = f->slice_first; i < f->slice_first + f->slice_count; i++) {
            const struct pl_layout_slice *s = &rig.layout.slices[i];
            for (uint64_t j = 0; j < s->count; j++) {
                float *at = &expected[s->offset + j], fresh = v[k].fresh[s->first + j];
                if (v[k].order.mode == PL_APPLY_OVERWRITE)
                    *at = fresh;
                else if (v[k].order.mode == PL_APPLY_MIX)
                    *at = v[k].order.alpha * *at + (1 - v[k].order.alpha) * fresh;
                else
                    *at += fresh - v[k].base[s->first + j];
            }
        }
    }
    for (uint64_t i = 0; i < rig.layout.tensors.floats;
         i++) /* steps of 1e-30 can be seen where there was 0 */
        assert_true(fabsf(expected[i] - rig.lt.theta[i]) < 1e-20f);
    free(expected);
}

static void test_orders_are_carried_out_exactly(void **state)
{
    (void)state;
    struct values v[12];
    build(1e-30f, 0, false);
    size_t bytes = rig.layout.tensors.floats * sizeof(float);
    float *before = malloc(bytes);
    memcpy(before, rig.lt.theta, bytes);
    assert_true(pl_ltrainer_start(&rig.lt));
    unsigned given = 0;
    for (uint32_t round = 0; round < 4; round++) {
        for (uint32_t i = 0; i < 3; i++, given++) {
            make_values(&v[given], i, given);
            if (round == 2)
                v[given].order.mode = i == 0 ? PL_APPLY_OVERWRITE : PL_APPLY_MIX;
            v[given].order.alpha = 0.25f;
            pl_ltrainer_order(&rig.lt, &v[given].order);
        }
        run_until(rig.told + 3, given);
    }
    run_until(10, given);
    stop();
    for (unsigned i = 0; i < given; i++) {
        assert_ptr_equal(rig.back[i], &v[i].order); /* in the order they were given */
        assert_true(v[i].order.good);
    }
    check_sums(before, v, given);
    for (unsigned i = 0; i < given; i++)
        free_values(&v[i]);
    free(before);
}

/* A copy at the boundary is what a copy beside would have been; one of all parameters is of the number wanted
 * or none. */
static void test_copies_at_the_boundary(void **state)
{
    (void)state;
    struct values v[3];
    struct pl_order whole[2];
    float *all[2];
    build(1e-2f, 0, false);
    size_t bytes = rig.layout.tensors.floats * sizeof(float);
    for (unsigned i = 0; i < 2; i++) {
        all[i] = calloc(1, bytes);
        whole[i] = (struct pl_order){.kind = PL_ORDER_WHOLE, .to = all[i], .want = i == 0 ? 0 : 2000000};
        pl_ltrainer_order(&rig.lt, &whole[i]);
    }
    float *before = malloc(bytes);
    memcpy(before, rig.lt.theta, bytes);
    for (uint32_t i = 0; i < 3; i++) {
        make_values(&v[i], i, 0);
        v[i].order = (struct pl_order){.kind = PL_ORDER_COPY, .fragment = i, .to = v[i].to};
        pl_ltrainer_order(&rig.lt, &v[i].order);
    }
    assert_true(pl_ltrainer_start(&rig.lt));
    run_until(3, 5);
    stop();
    assert_true(whole[0].good);
    assert_false(whole[1].good);
    assert_memory_equal(all[0], before, bytes);
    assert_memory_not_equal(rig.lt.theta, before, bytes); /* it has learned since */
    for (uint32_t i = 0; i < 3; i++) {
        float *expected = calloc(rig.layout.fragments[i].values, sizeof(float));
        pl_layout_gather(&rig.layout, i, before, expected);
        assert_int_equal(v[i].order.state.steps, 0);
        assert_memory_equal(v[i].to, expected, rig.layout.fragments[i].values * sizeof(float));
        free(expected);
        free_values(&v[i]);
    }
    free(all[0]);
    free(all[1]);
    free(before);
}

/* After the end the loop's thread carries out what is left. */
static void test_orders_after_the_end(void **state)
{
    (void)state;
    struct values v[2];
    build(1e-30f, 0, false);
    assert_true(pl_ltrainer_start(&rig.lt));
    run_until(3, 0);
    stop();
    size_t bytes = rig.layout.tensors.floats * sizeof(float);
    float *before = malloc(bytes);
    memcpy(before, rig.lt.theta, bytes);
    for (unsigned i = 0; i < 2; i++) {
        make_values(&v[i], 1, i);
        pl_ltrainer_order(&rig.lt, &v[i].order);
    }
    uint64_t steps = rig.told;
    pl_ltrainer_settle(&rig.lt);
    drain();
    assert_int_equal(rig.back_count, 2);
    assert_int_equal(rig.told, steps);
    assert_int_equal(pl_steady_now(&rig.lt.steady), rig.last.number);
    check_sums(before, v, 2);
    pl_ltrainer_settle(&rig.lt); /* nothing to do: nothing moves */
    assert_int_equal(pl_steady_now(&rig.lt.steady), rig.last.number);
    for (unsigned i = 0; i < 2; i++)
        free_values(&v[i]);
    free(before);
}

/* ---- copies beside ---- */

/* The state that is copied with the parameters is that of the parameters, and the note of it was there
 * before. */
static void test_copies_beside_know_their_step(void **state)
{
    (void)state;
    build(1e-2f, 0, false);
    size_t bytes = rig.layout.tensors.floats * sizeof(float);
    float *copy = malloc(bytes), *last = malloc(bytes);
    struct pl_ltrainer_state st;
    const struct pl_steady_span spans[] = {{rig.lt.theta, copy, bytes}, {&rig.lt.state, &st, sizeof st}};
    uint64_t number, last_steps = PL_NONE64;
    assert_true(pl_ltrainer_start(&rig.lt));
    for (unsigned good = 0; good < 30;) {
        if (!pl_steady_copy(&rig.lt.steady, spans, 2, PL_NONE64, &number)) {
            wait_for_bell();
            continue;
        }
        good++;
        drain();
        assert_true(st.steps <= rig.told);
        assert_int_equal(st.progress.step, st.steps);
        assert_int_equal(st.inner_step, st.steps);
        assert_int_equal(number, 2 * st.steps);
        if (last_steps != PL_NONE64)
            assert_int_equal(memcmp(copy, last, bytes) == 0, st.steps == last_steps);
        memcpy(last, copy, bytes);
        last_steps = st.steps;
    }
    stop();
    free(copy);
    free(last);
}

/* The loop sleeps: the thread goes on, but nothing counts as standing until its note is in the ring; orders
 * wait too. */
static void test_a_loop_that_sleeps(void **state)
{
    (void)state;
    struct values v;
    build(1e-3f, 0, false);
    assert_true(pl_ltrainer_start(&rig.lt));
    while (atomic_load(&rig.fetched) < 40 * BATCH)
        wait_for_bell();
    assert_int_equal(pl_steady_now(&rig.lt.steady), 2 * 16 + 1);
    make_values(&v, 0, 1);
    pl_ltrainer_order(&rig.lt, &v.order);
    while (atomic_load(&rig.fetched) < 60 * BATCH)
        wait_for_bell();
    drain();
    assert_int_equal(rig.told, 16);
    run_until(60, 1);
    assert_true(v.order.state.steps >= 58); /* not before the ring had room again */
    stop();
    pl_ltrainer_settle(&rig.lt); /* what the thread could not tell any more */
    drain();
    assert_int_equal(rig.told, rig.lt.state.steps);
    assert_int_equal(pl_steady_now(&rig.lt.steady), rig.last.number);
    free_values(&v);
}

/* ---- data ---- */

static void test_units_are_used_in_order(void **state)
{
    (void)state;
    build(1e-3f, 0, false);
    pl_ltrainer_unit(&rig.lt, 7, 2 * SEQ); /* two of its five sequences are used */
    pl_ltrainer_unit(&rig.lt, 3, 0);
    assert_true(pl_ltrainer_start(&rig.lt));
    run_until(6, 0);
    stop();
    const uint64_t expected[] = {37, 38, 39, 15, 16, 17, 18, 19, 1000000, 1000001, 1000002};
    assert_true(rig.fetched >= 11);
    for (unsigned i = 0; i < 11; i++)
        assert_int_equal(rig.numbers[i], expected[i]);
    assert_int_equal(rig.last.unit_tokens, 8 * SEQ);
    assert_int_equal(rig.lt.state.own_sequence, 1000000 + rig.told * BATCH - 8);
}

/* ---- time ---- */

static void test_a_pause_ends_when_it_must(void **state)
{
    (void)state;
    build(1e-3f, 3600 * PL_SEC, false);
    assert_true(pl_ltrainer_start(&rig.lt));
    run_until(1, 0);
    assert_int_equal(rig.last.step_ns, 3600 * PL_SEC);
    stop(); /* or the test hangs for an hour */
    assert_int_equal(rig.told, 1);
}

/* A syncer takes steps of less for lies, and a toy model on a fast core could make them. */
static void test_no_step_is_shorter_than_is_believed(void **state)
{
    (void)state;
    build(1e-3f, 0, false);
    assert_true(pl_ltrainer_paced_ns(&rig.lt, PL_US) > PL_STEP_NS_LEAST);
    assert_int_equal(pl_ltrainer_paced_ns(&rig.lt, PL_MS), PL_MS);
    rig.lt.o.speed = 0.5;
    assert_int_equal(pl_ltrainer_paced_ns(&rig.lt, PL_MS), 2 * PL_MS);
    rig.lt.o.pace_ns = 5 * PL_MS;
    assert_int_equal(pl_ltrainer_paced_ns(&rig.lt, PL_MS), 5 * PL_MS);
}

static void test_the_clock_is_followed(void **state)
{
    (void)state;
    build(1e-3f, 0, false);
    uint64_t now = pl_clock_ns();
    pl_ltrainer_clock(&rig.lt, 5000, 100, now);
    assert_int_equal(pl_ltrainer_clock_at(&rig.lt, now), 5000);
    assert_int_equal(pl_ltrainer_clock_at(&rig.lt, now + 3 * PL_SEC), 5300);
    assert_int_equal(pl_ltrainer_clock_at(&rig.lt, now - PL_SEC), 5000);
    assert_true(pl_ltrainer_start(&rig.lt));
    run_until(5, 0);
    pl_ltrainer_clock(&rig.lt, 10, 0, now); /* it is never turned back */
    run_until(10, 0);
    stop();
    assert_true(rig.trainer->progress.clock >= 5000 + 10 * BATCH * SEQ);
    assert_true(rig.trainer->progress.clock < 5000 + 100000);
}

/* How many values a stub's step changes. */
static uint64_t changed_by_step(bool dense)
{
    uint64_t count = 0, floats = rig.layout.tensors.floats;
    float *before = calloc(floats, sizeof *before);
    assert_non_null(before);
    memcpy(before, rig.lt.theta, floats * sizeof *before);
    pl_ltrainer_stub_step(&rig.lt, 5 * PL_MS, dense);
    drain();
    for (uint64_t i = 0; i < floats; i++)
        count += rig.lt.theta[i] != before[i] ? 1 : 0;
    free(before);
    return count;
}

static void test_a_stub(void **state)
{
    (void)state;
    struct values v;
    build(1e-3f, 0, true);
    make_values(&v, 2, 1);
    v.order.mode = PL_APPLY_OVERWRITE;
    for (unsigned i = 1; i <= 20; i++) {
        if (i == 10)
            pl_ltrainer_order(&rig.lt, &v.order);
        pl_ltrainer_stub_step(&rig.lt, 5 * PL_MS, false);
        drain();
        assert_int_equal(rig.told, i);
        assert_int_equal(rig.back_count, i >= 10);
    }
    assert_int_equal(v.order.state.steps, 9);
    assert_int_equal(rig.lt.state.own_sequence, 1000000 + 20 * BATCH);
    assert_true(changed_by_step(false) < rig.layout.tensors.params / 100);
    assert_true(changed_by_step(true) > rig.layout.tensors.params / 100 * 99);
    free_values(&v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_orders_are_carried_out_exactly, tear_down),
        cmocka_unit_test_teardown(test_copies_at_the_boundary, tear_down),
        cmocka_unit_test_teardown(test_orders_after_the_end, tear_down),
        cmocka_unit_test_teardown(test_copies_beside_know_their_step, tear_down),
        cmocka_unit_test_teardown(test_a_loop_that_sleeps, tear_down),
        cmocka_unit_test_teardown(test_units_are_used_in_order, tear_down),
        cmocka_unit_test_teardown(test_a_pause_ends_when_it_must, tear_down),
        cmocka_unit_test_teardown(test_no_step_is_shorter_than_is_believed, tear_down),
        cmocka_unit_test_teardown(test_the_clock_is_followed, tear_down),
        cmocka_unit_test_teardown(test_a_stub, tear_down),
    };
    return cmocka_run_group_tests_name("host/learner_trainer", tests, NULL, NULL);
}
