/* The syncer of the synchronous algorithms, met by peers that speak the protocol by hand over TLS: means that are exact,
 * whoever comes first; a member that is lost and returns; digests that differ; who may enter. */
#include "base/bf16.h"
#include "base/prng.h"
#include "reduce_rig.h"
#include "seed.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PEERS = 3 };

struct world {
    struct reduce_rig r;
    struct reduce_peer peer[PEERS];
    uint32_t count;
    struct pl_prng rng;
    float *values[PEERS]; /* [floats] */
    uint8_t *bytes;       /* one encoded bucket */
};

/* Peers of identities 30, 20, 10: ranks go the other way than the order in which they enter. */
static void begin(struct world *w, uint32_t count)
{
    memset(w, 0, sizeof *w);
    reduce_rig_init(&w->r, PL_ALGORITHM_DATA_PARALLEL, count);
    reduce_rig_serve(&w->r);
    w->count = count;
    pl_prng_seed(&w->rng, test_seed(), 0);
    w->bytes = malloc(PL_REDUCE_BYTES_MAX);
    assert_true(w->r.plan.buckets >= 3 && w->r.plan.buckets <= REDUCE_PEER_BUCKETS);
    for (uint32_t i = 0; i < count; i++) {
        reduce_peer_init(&w->peer[i], &w->r, 10 * (count - i));
        w->values[i] = malloc(w->r.plan.floats * sizeof(float));
    }
}

static void finish(struct world *w)
{
    for (uint32_t i = 0; i < w->count; i++) {
        reduce_peer_release(&w->peer[i]);
        free(w->values[i]);
    }
    free(w->bytes);
    reduce_rig_release(&w->r);
}

static void enter_all(struct world *w, uint64_t round)
{
    for (uint32_t i = 0; i < w->count; i++)
        reduce_peer_enter(&w->peer[i], round, true);
    for (uint32_t i = 0; i < w->count; i++) {
        reduce_rig_wait(&w->r, &w->peer[i].is_placed);
        assert_int_equal(w->peer[i].place.rank, w->count - 1 - i);
    }
}

static void draw(struct world *w)
{
    for (uint32_t i = 0; i < w->count; i++)
        for (uint64_t j = 0; j < w->r.plan.floats; j++) {
            double magnitude = exp((double)pl_prng_below(&w->rng, 40) - 30);
            w->values[i][j] = (float)(((double)pl_prng_below(&w->rng, 2000001) - 1e6) * 1e-6 * magnitude);
        }
}

static void put(struct world *w, uint32_t i, uint64_t round, uint32_t bucket)
{
    struct pl_reduce_range range = pl_reduce_bucket(&w->r.plan, bucket);
    assert_true(pl_codec_encode(PL_CODEC_BF16, w->values[i] + range.first, range.count, w->bytes));
    reduce_peer_send(&w->peer[i], round, bucket, w->bytes);
}

/* Written as plainly as can be: values rounded to bf16, summed in the order of identities, divided, rounded. */
static uint16_t expected(const struct world *w, uint64_t at)
{
    float sum = 0;
    for (uint32_t rank = 0; rank < w->count; rank++) {
        float v = pl_bf16_to_float(pl_bf16_of_float(w->values[w->count - 1 - rank][at]));
        sum = rank == 0 ? v : sum + v;
    }
    return pl_bf16_of_float(sum / (float)w->count);
}

static void assert_means(const struct world *w, const struct reduce_peer *p)
{
    for (uint32_t b = 0; b < w->r.plan.buckets; b++) {
        struct pl_reduce_range range = pl_reduce_bucket(&w->r.plan, b);
        assert_non_null(p->mean[b]);
        for (uint32_t i = 0; i < range.count; i++) {
            uint16_t got = (uint16_t)(p->mean[b][2 * i] | p->mean[b][2 * i + 1] << 8);
            if (got != expected(w, range.first + i))
                fail_msg("bucket %u value %u is %04x, expected %04x", b, i, got,
                         expected(w, range.first + i));
        }
    }
}

/* ---- means ---- */

static void means(uint32_t count)
{
    struct world w;
    begin(&w, count);
    enter_all(&w, 0);
    for (uint64_t round = 0; round < 2; round++) {
        draw(&w);
        for (uint32_t b = 0; b < w.r.plan.buckets; b++)
            for (uint32_t i = 0; i < count; i++)
                put(&w, (i + b) % count, round, b);
        for (uint32_t i = 0; i < count; i++) {
            reduce_rig_wait_count(&w.r, &w.peer[i].means, (uint32_t)(round + 1) * w.r.plan.buckets);
            assert_means(&w, &w.peer[i]);
        }
    }
    double tokens;
    reduce_rig_status(&w.r, "tokens", &tokens);
    assert_int_equal((uint64_t)tokens, pl_reduce_tokens(&w.r.plan, 2));
    finish(&w);
}

static void means_of_two_are_exact(void **state)
{
    (void)state;
    means(2);
}

static void means_of_three_are_summed_in_the_order_of_identities(void **state)
{
    (void)state;
    means(3);
}

/* ---- loss and return ---- */

static void send_all(struct world *w, uint32_t i, uint64_t round)
{
    for (uint32_t b = 0; b < w->r.plan.buckets; b++)
        put(w, i, round, b);
}

static double lost_so_far(struct world *w)
{
    double lost;
    reduce_rig_status(&w->r, "lost", &lost);
    return lost;
}

static void who_says_goodbye_is_not_lost(void **state)
{
    static const struct pl_msg goodbye = {.type = PL_MSG_END, .u.end.code = PL_REASON_LEAVING};
    struct world w;
    (void)state;
    begin(&w, 2);
    enter_all(&w, 0);
    reduce_peer_message(&w.peer[0], &goodbye);
    reduce_rig_wait(&w.r, &w.peer[0].closed);
    assert_true(lost_so_far(&w) < 0.5);
    reduce_peer_drop(&w.peer[1]);
    reduce_rig_wait_log(&w.r, "learner 10 is lost");
    assert_true(lost_so_far(&w) > 0.5);
    finish(&w);
}

static void a_broken_line_loses_nothing(void **state)
{
    struct world w;
    (void)state;
    begin(&w, 2);
    uint32_t buckets = w.r.plan.buckets;
    enter_all(&w, 0);
    draw(&w);
    send_all(&w, 0, 0);
    put(&w, 1, 0, 0);
    reduce_rig_wait_count(&w.r, &w.peer[0].means, 1);
    reduce_peer_drop(&w.peer[1]);
    reduce_rig_wait_log(&w.r, "learner 10 is lost");
    /* It is still in round 0, sends everything again, and gets the mean it may have missed, too. */
    w.peer[1].means = 0;
    reduce_peer_enter(&w.peer[1], 0, false);
    reduce_rig_wait(&w.r, &w.peer[1].is_placed);
    assert_int_equal(w.peer[1].place.flags, 0);
    send_all(&w, 1, 0);
    reduce_rig_wait_count(&w.r, &w.peer[1].means, buckets);
    reduce_rig_wait_count(&w.r, &w.peer[0].means, buckets);
    assert_means(&w, &w.peer[0]);
    assert_means(&w, &w.peer[1]);
    /* Now it loses the means of a round that is over for the syncer. */
    reduce_peer_drop(&w.peer[1]);
    for (uint32_t b = 0; b < buckets; b++) {
        free(w.peer[1].mean[b]);
        w.peer[1].mean[b] = NULL;
    }
    w.peer[1].means = 0;
    reduce_peer_enter(&w.peer[1], 0, false);
    reduce_rig_wait(&w.r, &w.peer[1].is_placed);
    assert_int_equal(w.peer[1].place.round, 1);
    assert_int_equal(w.peer[1].place.flags, 0);
    send_all(&w, 1, 0);
    reduce_rig_wait_count(&w.r, &w.peer[1].means, buckets);
    assert_means(&w, &w.peer[1]);
    finish(&w);
}

static void give_state(struct world *w, uint32_t donor, uint64_t values)
{
    float piece[1000];
    memset(piece, 0, sizeof piece);
    for (uint64_t at = 0; at < values;) {
        uint32_t n = (uint32_t)(values - at < 1000 ? values - at : 1000);
        struct pl_msg msg = {.type = PL_MSG_STATE,
                             .u.state = {.transfer = w->peer[donor].give.transfer,
                                         .round = w->peer[donor].give.round,
                                         .at = at,
                                         .values = values,
                                         .bytes = {(const uint8_t *)piece, n * 4}}};
        reduce_peer_message(&w->peer[donor], &msg);
        at += n;
    }
}

static void whoever_lost_its_memory_gets_the_state_from_another(void **state)
{
    struct world w;
    const struct pl_msg want = {.type = PL_MSG_GIVE};
    (void)state;
    begin(&w, 2);
    enter_all(&w, 0);
    draw(&w);
    send_all(&w, 0, 0);
    send_all(&w, 1, 0);
    reduce_rig_wait_count(&w.r, &w.peer[0].means, w.r.plan.buckets);
    reduce_peer_drop(&w.peer[1]);
    reduce_rig_wait_log(&w.r, "learner 10 is lost");
    reduce_peer_enter(&w.peer[1], 0, true);
    reduce_rig_wait(&w.r, &w.peer[1].is_placed);
    assert_int_equal(w.peer[1].place.round, 1);
    assert_int_equal(w.peer[1].place.flags, 1);
    /* What it sends before it has the state does not count. */
    send_all(&w, 1, 1);
    send_all(&w, 0, 1);
    reduce_peer_message(&w.peer[1], &want);
    reduce_rig_wait_count(&w.r, &w.peer[0].gives, 1);
    assert_int_equal(w.peer[0].give.round, 1);
    assert_int_equal(w.peer[0].means, w.r.plan.buckets);
    give_state(&w, 0, 2500);
    reduce_rig_wait_count(&w.r, &w.peer[1].states, 3);
    assert_int_equal(w.peer[1].state_values, 2500);
    send_all(&w, 1, 1);
    reduce_rig_wait_count(&w.r, &w.peer[0].means, 2 * w.r.plan.buckets);
    double transfers;
    reduce_rig_status(&w.r, "transfers", &transfers);
    assert_int_equal((int)transfers, 1);
    finish(&w);
}

static void after_everybody_restarted_the_newest_state_counts(void **state)
{
    struct world w;
    (void)state;
    begin(&w, 3);
    for (uint32_t i = 0; i < 3; i++)
        reduce_peer_enter(&w.peer[i], i == 1 ? 7 : 5, true);
    for (uint32_t i = 0; i < 3; i++) {
        reduce_rig_wait(&w.r, &w.peer[i].is_placed);
        assert_int_equal(w.peer[i].place.round, 7);
        assert_int_equal(w.peer[i].place.flags, i == 1 ? 0 : 1);
    }
    finish(&w);
}

/* ---- digests ---- */

static void tally(struct world *w, uint32_t i, uint64_t digest_round, uint64_t digest, bool last)
{
    struct pl_msg msg = {.type = PL_MSG_TALLY,
                         .u.tally = {.round = digest_round,
                                     .steps = digest_round,
                                     .digest_round = digest_round,
                                     .digest = digest,
                                     .flags = last ? 1 : 0}};
    reduce_peer_message(&w->peer[i], &msg);
}

static void other_parameters_end_the_run_with_a_sentence(void **state)
{
    struct world w;
    (void)state;
    begin(&w, 2);
    enter_all(&w, 0);
    tally(&w, 0, 50, 123, false);
    tally(&w, 1, 50, 123, false);
    tally(&w, 0, 100, 4, false);
    tally(&w, 1, 100, 5, false);
    reduce_rig_wait(&w.r, &w.r.failed);
    assert_non_null(strstr(w.r.why.text, "after round 100 the parameters of learner"));
    for (uint32_t i = 0; i < 2; i++) {
        reduce_rig_wait(&w.r, &w.peer[i].ended);
        assert_int_equal(w.peer[i].end_code, PL_REASON_BAD_CONTENT);
        assert_string_equal(w.peer[i].end_text, w.r.why.text);
    }
    finish(&w);
}

static void the_run_is_complete_when_everybody_says_so(void **state)
{
    struct world w;
    (void)state;
    begin(&w, 2);
    enter_all(&w, 0);
    tally(&w, 0, 20, 9, true);
    tally(&w, 1, 20, 9, false);
    tally(&w, 1, 20, 9, true);
    reduce_rig_wait(&w.r, &w.r.finished);
    reduce_rig_wait(&w.r, &w.peer[0].ended);
    assert_int_equal(w.peer[0].end_code, PL_REASON_DONE);
    assert_false(w.r.failed);
    /* It stays complete, also for a syncer that starts again and a learner that comes late. */
    reduce_rig_stop(&w.r);
    reduce_rig_serve(&w.r);
    reduce_rig_wait(&w.r, &w.r.finished);
    reduce_peer_drop(&w.peer[0]);
    reduce_peer_enter(&w.peer[0], 20, false);
    reduce_rig_wait(&w.r, &w.peer[0].ended);
    assert_int_equal(w.peer[0].end_code, PL_REASON_DONE);
    finish(&w);
}

static void values_that_are_not_finite_end_the_run(void **state)
{
    struct world w;
    (void)state;
    begin(&w, 2);
    enter_all(&w, 0);
    memset(w.bytes, 0, PL_REDUCE_BYTES_MAX);
    reduce_peer_send(&w.peer[0], 0, 0, w.bytes);
    w.bytes[0] = 0x80;
    w.bytes[1] = 0x7f;
    reduce_peer_send(&w.peer[1], 0, 0, w.bytes);
    reduce_rig_wait(&w.r, &w.r.failed);
    assert_non_null(strstr(w.r.why.text, "learner 10 sent values that are not finite"));
    finish(&w);
}

/* ---- who may enter ---- */

static void expect_end(struct world *w, struct reduce_peer *p, uint32_t code)
{
    reduce_rig_wait(&w->r, &p->ended);
    assert_int_equal(p->end_code, code);
}

static void strangers_to_the_run_are_refused(void **state)
{
    struct world w;
    struct reduce_peer more;
    (void)state;
    begin(&w, 2);
    enter_all(&w, 0);
    reduce_peer_init(&more, &w.r, 40);
    reduce_peer_enter(&more, 0, true);
    expect_end(&w, &more, PL_REASON_FULL);
    reduce_peer_drop(&more);
    w.r.settings.run_id++;
    reduce_peer_enter(&more, 0, true);
    expect_end(&w, &more, PL_REASON_WRONG_RUN);
    reduce_peer_drop(&more);
    w.r.settings.run_id--;
    w.r.settings_digest++;
    reduce_peer_enter(&more, 0, true);
    expect_end(&w, &more, PL_REASON_WRONG_RUN);
    reduce_peer_drop(&more);
    w.r.settings_digest--;
    reduce_peer_dial(&more);
    tally(&w, 0, 0, 0, false);
    reduce_peer_message(&more, &(struct pl_msg){.type = PL_MSG_GIVE});
    expect_end(&w, &more, PL_REASON_WRONG_STATE);
    reduce_peer_release(&more);
    finish(&w);
}

static void what_is_no_bucket_closes_the_connection(void **state)
{
    struct world w;
    (void)state;
    begin(&w, 2);
    enter_all(&w, 0);
    struct pl_msg msg = {.type = PL_MSG_REDUCE, .u.reduce = {.bucket = 0, .bytes = {w.bytes, 10}}};
    reduce_peer_message(&w.peer[0], &msg);
    expect_end(&w, &w.peer[0], PL_REASON_BAD_MESSAGE);
    msg.u.reduce.bucket = w.r.plan.buckets;
    reduce_peer_message(&w.peer[1], &msg);
    expect_end(&w, &w.peer[1], PL_REASON_BAD_MESSAGE);
    finish(&w);
}

static void a_newer_connection_takes_over(void **state)
{
    struct world w;
    struct reduce_peer twin;
    (void)state;
    begin(&w, 2);
    enter_all(&w, 0);
    reduce_peer_init(&twin, &w.r, 20);
    reduce_peer_enter(&twin, 0, false);
    reduce_rig_wait(&w.r, &twin.is_placed);
    expect_end(&w, &w.peer[0], PL_REASON_REPLACED);
    reduce_peer_release(&twin);
    finish(&w);
}

/* Learners dial what it says, which is no address for every machine. */
static void every_address_has_a_name(void **state)
{
    (void)state;
    static struct reduce_rig r;
    reduce_rig_init(&r, PL_ALGORITHM_DATA_PARALLEL, 2);
    (void)snprintf(r.listen, sizeof r.listen, "*:0");
    reduce_rig_serve(&r);
    assert_int_equal(pl_address_dialable(r.listen, NULL), PELAGO_OK);
    reduce_rig_release(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(means_of_two_are_exact),
        cmocka_unit_test(means_of_three_are_summed_in_the_order_of_identities),
        cmocka_unit_test(who_says_goodbye_is_not_lost),
        cmocka_unit_test(a_broken_line_loses_nothing),
        cmocka_unit_test(whoever_lost_its_memory_gets_the_state_from_another),
        cmocka_unit_test(after_everybody_restarted_the_newest_state_counts),
        cmocka_unit_test(other_parameters_end_the_run_with_a_sentence),
        cmocka_unit_test(the_run_is_complete_when_everybody_says_so),
        cmocka_unit_test(values_that_are_not_finite_end_the_run),
        cmocka_unit_test(strangers_to_the_run_are_refused),
        cmocka_unit_test(what_is_no_bucket_closes_the_connection),
        cmocka_unit_test(a_newer_connection_takes_over),
        cmocka_unit_test(every_address_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
