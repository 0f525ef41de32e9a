/* A learner's checkpoint: what comes back, what a damaged or foreign one is told, and what a restart does
 * to work. */
#include "learner_rig.h"

#include "base/bytes.h"
#include "base/hash.h"
#include "expect_assert.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

enum { SAVE_MAX = 512 };

static struct lrig r;
static uint8_t saved[SAVE_MAX];
static size_t saved_len;

static int setup(void **state)
{
    (void)state;
    lrig_init(&r, NULL);
    lrig_live(&r);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    lrig_release(&r);
    return 0;
}

static void save(void)
{
    saved_len = pl_learner_save(r.l, saved, sizeof saved);
    assert_true(saved_len == pl_learner_save_bytes(r.l));
}

/* A new process. */
static void restart(const struct pl_learn_options *options)
{
    lrig_release(&r);
    lrig_init(&r, options);
}

static void expect_load(enum pelago_status status, const char *words)
{
    struct pl_error err = {.text = ""};
    assert_int_equal(pl_learner_load(r.l, &r.manifest, saved, saved_len, &err), status);
    if (strstr(err.text, words) == NULL)
        fail_msg("the text is \"%s\", expected was \"%s\" in it", err.text, words);
}

static void train(uint32_t steps)
{
    for (uint32_t i = 0; i < steps; i++)
        lrig_trained(&r, 100);
}

static void push_and_merge(uint64_t round, uint64_t base)
{
    lrig_pull(&r, 0, round, base);
    lrig_copied(&r, 0, round, 5000);
    const struct pl_learn_effect *fx = lrig_decide(&r, lrig_update(0, base, base + 1, round));
    assert_int_equal(fx->u.update.outcome, PL_OUTCOME_MERGED);
    lrig_applied(&r, 0, base + 1);
}

static void come_back(void)
{
    restart(NULL);
    expect_load(PELAGO_OK, "");
    lrig_start(&r);
    lrig_join(&r, 0);
    lrig_join(&r, 1);
}

static void comes_back_as_it_was(void **state)
{
    (void)state;
    train(2);
    push_and_merge(50, 0);
    train(3);
    lrig_msg(&r, 0, PL_LINK_CONTROL,
             (struct pl_msg){.type = PL_MSG_LEASE, .u.lease = {.unit = 8, .cursor = 20}});
    lrig_msg(&r, 0, PL_LINK_CONTROL, (struct pl_msg){.type = PL_MSG_CLOCK, .u.clock = {.clock_tokens = 999}});
    save();
    restart(NULL);
    expect_load(PELAGO_OK, "");
    assert_true(pl_learner_steps(r.l) == 5 && pl_learner_tokens(r.l) == 500);
    lrig_start(&r);
    assert_null(lrig_find(&r, PL_LEARN_FX_UNIT)); /* the syncer knows how far it came since */
    lrig_opened(&r, 0, PL_LINK_CONTROL);
    const struct pl_msg_hello *h = &lrig_sent(&r, 0, PL_MSG_HELLO)->u.hello;
    assert_true(h->run_id == RIG_RUN && h->manifest_digest == RIG_DIGEST);
    assert_true(h->incarnation == 0 && h->steps == 0 && h->tokens == 0); /* a new process */
    lrig_msg(&r, 0, PL_LINK_CONTROL, lrig_welcome(0));
    const struct pl_msg_join *join = &lrig_sent(&r, 0, PL_MSG_JOIN)->u.join;
    assert_true(pl_item_have_at(&join->have, 0).version == 1 &&
                pl_item_have_at(&join->have, 0).digest == 1001);
    assert_int_equal(join->units.count, 0);
    assert_int_equal(lrig_find(&r, PL_LEARN_FX_CONNECT)->u.conn.shard, 0);
    assert_int_equal(lrig_count(&r, PL_LEARN_FX_CONNECT), 2); /* home's bulk, shard 1 */
    lrig_opened(&r, 0, PL_LINK_BULK);
    lrig_msg(&r, 0, PL_LINK_BULK, (struct pl_msg){.type = PL_MSG_ATTACHED});
    train(1);
    assert_true(lrig_sent(&r, 0, PL_MSG_REPORT)->u.report.steps == 1);
    lrig_pull(&r, 0, 60, 1);
    lrig_copied(&r, 0, 60, 5000);
    const struct pl_msg_push *p = &lrig_find(&r, PL_LEARN_FX_PUSH)->u.push.push;
    assert_true(p->steps == 4 && p->tokens == 400);
}

/* Work since the last merge that the checkpoint knows of is still good. */
static void keeps_work_when_nothing_was_merged_since(void **state)
{
    (void)state;
    train(2);
    push_and_merge(50, 0);
    train(3);
    save();
    come_back();
    assert_int_equal(lrig_decide(&r, lrig_update(0, 1, 2, 50))->u.update.outcome, PL_OUTCOME_KEPT);
    lrig_applied(&r, 0, 2);
    lrig_pull(&r, 0, 60, 2);
    lrig_copied(&r, 0, 60, 5000);
    assert_true(lrig_find(&r, PL_LEARN_FX_PUSH)->u.push.push.steps == 3);
}

/* The checkpoint's work went out and was merged after it was written: it must not go out again. */
static void discards_work_merged_after_the_checkpoint(void **state)
{
    (void)state;
    train(2);
    push_and_merge(50, 0);
    train(3);
    save();
    push_and_merge(58, 1);
    come_back();
    train(1);
    assert_int_equal(lrig_decide(&r, lrig_update(0, 1, 2, 58))->u.update.outcome, PL_OUTCOME_DISCARD);
    lrig_applied(&r, 0, 2);
    lrig_pull(&r, 0, 66, 2);
    assert_non_null(lrig_sent(&r, 0, PL_MSG_SKIP));
}

/* A push that was pending when the checkpoint was written is not in it. */
static void a_pending_push_is_not_saved(void **state)
{
    (void)state;
    train(2);
    lrig_pull(&r, 0, 50, 0);
    lrig_copied(&r, 0, 50, 5000);
    save();
    come_back();
    assert_int_equal(lrig_decide(&r, lrig_update(0, 0, 1, 50))->u.update.outcome, PL_OUTCOME_DISCARD);
}

static void every_damage_is_noticed(void **state)
{
    (void)state;
    train(1);
    save();
    uint8_t good[SAVE_MAX];
    size_t len = saved_len;
    memcpy(good, saved, len);
    restart(NULL);
    for (size_t i = 0; i < len; i++) {
        saved[i] ^= 0x10;
        expect_load(PELAGO_CORRUPT, "the learner's state does not");
        saved[i] ^= 0x10;
    }
    for (saved_len = 0; saved_len < len; saved_len++)
        expect_load(PELAGO_CORRUPT, "the learner's state does not");
    assert_memory_equal(good, saved, len);
    expect_load(PELAGO_OK, "");
}

/* Puts a number into the saved bytes and makes the checksum right again. */
static void forge(size_t at, uint64_t value, unsigned width)
{
    pl_put_le(saved + at, value, width);
    pl_put_le(saved + saved_len - 8, pl_hash64(saved, saved_len - 8, 0), 8);
}

/* Older programs kept the units they held. */
static void units_of_an_older_checkpoint_are_passed_over(void **state)
{
    (void)state;
    enum { UNITS = 48, REST = 52, HELD = 2 * 16 };
    train(1);
    save();
    memmove(saved + REST + HELD, saved + REST, saved_len - REST);
    saved_len += HELD;
    for (size_t i = 0; i < 4; i++)
        pl_put_le(saved + REST + 8 * i, 8 + i, 8);
    forge(UNITS, 2, 4);
    restart(NULL);
    expect_load(PELAGO_OK, "");
    assert_true(pl_learner_steps(r.l) == 1);
    lrig_start(&r);
    assert_null(lrig_find(&r, PL_LEARN_FX_UNIT));
}

static void every_limit_is_checked(void **state)
{
    (void)state;
    enum {
        RUN = 8,
        DIGEST = 16,
        STEPS = 24,
        TOKENS = 32,
        CLOCK = 40,
        UNITS = 48,
        FRAGMENTS = 52,
        FIRST = 56
    };
    static const struct {
        size_t at;
        uint64_t value;
        unsigned width;
        enum pelago_status status;
        const char *words;
    } cases[] = {
        {RUN, 5, 8, PELAGO_INVALID, "is of run 5, the manifest of run 77"},
        {DIGEST, 0, 8, PELAGO_CORRUPT, "names no manifest"},
        {STEPS, PL_COUNT_MAX + 1, 8, PELAGO_CORRUPT, "over the limit"},
        {TOKENS, PL_COUNT_MAX + 1, 8, PELAGO_CORRUPT, "over the limit"},
        {CLOCK, PL_COUNT_MAX + 1, 8, PELAGO_CORRUPT, "over the limit"},
        {UNITS, 3, 4, PELAGO_CORRUPT, "has 3 work units"},
        {FRAGMENTS, 4, 4, PELAGO_INVALID, "has 4 fragments, the manifest 3"},
        {FIRST, PL_COUNT_MAX + 1, 8, PELAGO_CORRUPT, "fragment 0 of the learner's state"},
        {FIRST + 40 + 24, 2, 8, PELAGO_CORRUPT, "fragment 1 of the learner's state"},
        {FIRST + 80 + 32, 101, 8, PELAGO_CORRUPT, "fragment 2 of the learner's state"},
    };
    train(1);
    save();
    uint8_t good[SAVE_MAX];
    size_t len = saved_len;
    memcpy(good, saved, len);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        restart(NULL);
        memcpy(saved, good, len);
        forge(cases[i].at, cases[i].value, cases[i].width);
        expect_load(cases[i].status, cases[i].words);
    }
    restart(NULL);
    memcpy(saved, good, len);
    saved_len = len + 3;
    forge(len, 0, 1);
    expect_load(PELAGO_CORRUPT, "has bytes left over");
    restart(NULL);
    memcpy(saved, good, len);
    saved_len = len - 3;
    forge(0, pl_get_le(good, 8), 8);
    expect_load(PELAGO_CORRUPT, "has too few bytes");
    restart(&(struct pl_learn_options){.nonce = 1, .fragments_max = 2});
    memcpy(saved, good, len);
    saved_len = len;
    expect_load(PELAGO_LIMIT, "the manifest has 3 fragments, this learner can take 2");
}

static void saving_at_the_wrong_moment_is_noticed(void **state)
{
    (void)state;
    uint8_t small[16];
    expect_assert(pl_learner_save(r.l, small, sizeof small));
    lrig_decide(&r, lrig_update(0, 0, 1, 0));
    expect_assert(pl_learner_save(r.l, saved, sizeof saved));
    restart(NULL);
    expect_assert(pl_learner_save(r.l, saved, sizeof saved));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(comes_back_as_it_was),
        TEST(keeps_work_when_nothing_was_merged_since),
        TEST(discards_work_merged_after_the_checkpoint),
        TEST(a_pending_push_is_not_saved),
        TEST(units_of_an_older_checkpoint_are_passed_over),
        TEST(every_damage_is_noticed),
        TEST(every_limit_is_checked),
        TEST(saving_at_the_wrong_moment_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
