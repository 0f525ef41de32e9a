/* Updates on their way down: chunks, interruptions, contradictions, bad digests, malformed headers. */
#include "learner_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

static int setup(void **state)
{
    static struct lrig r;
    lrig_init(&r, NULL);
    lrig_live(&r);
    *state = &r;
    return 0;
}

static int teardown(void **state)
{
    lrig_release(*state);
    return 0;
}

static void again(struct lrig *r)
{
    lrig_release(r);
    lrig_init(r, NULL);
    lrig_live(r);
}

static void reconnect(struct lrig *r, uint32_t shard)
{
    lrig_closed(r, shard, PL_LINK_CONTROL);
    lrig_timeout(r);
    assert_non_null(lrig_find(r, PL_LEARN_FX_CONNECT));
    lrig_opened(r, shard, PL_LINK_CONTROL);
    lrig_msg(r, shard, PL_LINK_CONTROL, lrig_welcome(shard));
}

static void train(struct lrig *r, uint32_t steps)
{
    for (uint32_t i = 0; i < steps; i++)
        lrig_trained(r, 100);
}

static void a_reset_may_go_back_or_stay(void **state)
{
    struct lrig *r = *state;
    train(r, 1);
    lrig_decide(r, lrig_update(0, 0, 3, 0));
    lrig_applied(r, 0, 3);
    lrig_msg(r, 0, PL_LINK_BULK, lrig_update(0, PL_NONE64, 3, 0)); /* not without the flag */
    lrig_data(r, 0, 3, RIG_FULL_BYTES, 0);
    lrig_expect_quiet(r);
    struct pl_msg m = lrig_update(0, PL_NONE64, 3, 0);
    m.u.update.flags = 1;
    m.u.update.digest = 5;
    lrig_decide(r, m);
    lrig_applied(r, 0, 3);
    m.u.update.to_version = 2;
    lrig_decide(r, m);
    lrig_applied(r, 0, 2);
    uint64_t digest;
    assert_true(pl_learner_version(r->l, 0, &digest) == 2 && digest == 5);
    assert_true(lrig_sent(r, 0, PL_MSG_HAVE)->u.got.version == 2);
}

static void an_update_goes_on_where_it_stopped(void **state)
{
    struct lrig *r = *state;
    struct pl_msg m = lrig_update(0, PL_NONE64, 4, 0);
    lrig_msg(r, 0, PL_LINK_BULK, m);
    lrig_expect_quiet(r);
    lrig_data(r, 0, 4, RIG_FULL_BYTES, 1);
    assert_int_equal(lrig_find(r, PL_LEARN_FX_KEEP)->u.update.index, 1);
    lrig_data(r, 0, 4, RIG_FULL_BYTES, 1); /* twice */
    lrig_expect_quiet(r);
    lrig_data(r, 0, 3, RIG_FULL_BYTES, 0); /* of something else */
    lrig_expect_quiet(r);
    reconnect(r, 0);
    lrig_opened(r, 0, PL_LINK_BULK);
    const struct pl_array *partial = &lrig_sent(r, 0, PL_MSG_ATTACH)->u.attach.partial;
    assert_int_equal(partial->count, 1);
    struct pl_item_partial item = pl_item_partial_at(partial, 0);
    assert_true(item.fragment == 0 && item.id == 4 && item.digest == 1004 && item.bytes == RIG_FULL_BYTES &&
                item.mask == 2);
    lrig_msg(r, 0, PL_LINK_BULK, (struct pl_msg){.type = PL_MSG_ATTACHED});
    lrig_msg(r, 0, PL_LINK_BULK, m);
    lrig_expect_quiet(r);
    lrig_data(r, 0, 4, RIG_FULL_BYTES, 0);
    assert_null(lrig_find(r, PL_LEARN_FX_DECODE));
    lrig_data(r, 0, 4, RIG_FULL_BYTES, 2);
    assert_true(lrig_find(r, PL_LEARN_FX_DECODE)->u.update.bytes == RIG_FULL_BYTES);
}

static void another_update_replaces_a_partial_one(void **state)
{
    struct lrig *r = *state;
    struct pl_msg first = lrig_update(0, PL_NONE64, 4, 0);
    for (int i = 0; i < 4; i++) {
        again(r);
        lrig_msg(r, 0, PL_LINK_BULK, first);
        lrig_data(r, 0, 4, RIG_FULL_BYTES, 0);
        struct pl_msg next = i == 0 ? lrig_update(0, 0, 4, 0) : first;
        next.u.update.bytes -= i == 1;
        next.u.update.digest += i == 2;
        next.u.update.to_version += i == 3;
        lrig_msg(r, 0, PL_LINK_BULK, next);
        assert_true(lrig_find(r, PL_LEARN_FX_FORGET)->u.update.to_version == 4);
        lrig_data(r, 0, next.u.update.to_version, next.u.update.bytes, 0);
        assert_non_null(lrig_find(r, PL_LEARN_FX_KEEP));
    }
}

/* A chain that has the size of the full value: the chunks here are not those the shard thinks are here. */
static void a_payload_of_the_same_size_starts_over(void **state)
{
    struct lrig *r = *state;
    struct pl_msg m = lrig_update(0, PL_NONE64, 4, 0);
    lrig_msg(r, 0, PL_LINK_BULK, m);
    lrig_data(r, 0, 4, RIG_FULL_BYTES, 0);
    m.u.update.from_version = 0;
    lrig_msg(r, 0, PL_LINK_BULK, m);
    assert_non_null(lrig_find(r, PL_LEARN_FX_FORGET));
    lrig_expect_disconnect(r, 0, PL_LINK_BULK, PL_REASON_LEAVING, "it must start over");
    lrig_timeout(r);
    lrig_opened(r, 0, PL_LINK_BULK);
    assert_int_equal(lrig_sent(r, 0, PL_MSG_ATTACH)->u.attach.partial.count, 0);
}

/* The shard lost version 1 and made another one. */
static void another_history_is_noticed(void **state)
{
    struct lrig *r = *state;
    struct pl_msg other = lrig_update(0, 0, 1, 0);
    other.u.update.digest = 5;
    lrig_deliver(r, lrig_update(0, 0, 1, 0));
    lrig_msg(r, 0, PL_LINK_BULK, other); /* while we are about to take ours */
    lrig_expect_disconnect(r, 0, PL_LINK_CONTROL, PL_REASON_WRONG_STATE,
                           "UPDATE.digest of fragment 0 at version 1 is 5");
    lrig_timeout(r);
    lrig_join(r, 0);
    lrig_decoded(r, 0, 1, true);
    lrig_applied(r, 0, 1);
    lrig_msg(r, 0, PL_LINK_BULK, lrig_update(0, 0, 1, 0)); /* the same once more */
    lrig_expect_quiet(r);
    lrig_msg(r, 0, PL_LINK_BULK, other);
    lrig_expect_disconnect(r, 0, PL_LINK_CONTROL, PL_REASON_WRONG_STATE, "this learner has 3e9");
}

static void ignores_updates_that_do_not_fit(void **state)
{
    struct lrig *r = *state;
    lrig_msg(r, 0, PL_LINK_BULK, lrig_update(0, 3, 4, 0)); /* not our version */
    lrig_data(r, 0, 4, RIG_UPDATE_BYTES, 0);
    lrig_expect_quiet(r);
    lrig_deliver(r, lrig_update(0, 0, 1, 0));
    lrig_msg(r, 0, PL_LINK_BULK, lrig_update(0, PL_NONE64, 2, 0)); /* one is being decoded */
    lrig_data(r, 0, 2, RIG_FULL_BYTES, 0);
    lrig_expect_quiet(r);
    lrig_decoded(r, 0, 1, true);
    lrig_msg(r, 0, PL_LINK_BULK, lrig_update(0, PL_NONE64, 2, 0)); /* ... applied */
    lrig_data(r, 0, 2, RIG_FULL_BYTES, 0);
    lrig_expect_quiet(r);
    lrig_applied(r, 0, 1);
    assert_true(lrig_sent(r, 0, PL_MSG_HAVE)->u.got.version == 1);
}

static void fetches_after_a_bad_digest(void **state)
{
    struct lrig *r = *state;
    train(r, 1);
    lrig_deliver(r, lrig_update(0, 0, 1, 0));
    lrig_pull(r, 0, 50, 0); /* waits for the decoder */
    lrig_decoded(r, 0, 1, false);
    assert_non_null(lrig_find(r, PL_LEARN_FX_FORGET));
    assert_int_equal(lrig_sent(r, 0, PL_MSG_FETCH)->u.fetch.fragment, 0);
    assert_non_null(lrig_find(r, PL_LEARN_FX_COPY)); /* the version is still the one it builds on */
    lrig_deliver(r, lrig_update(0, 0, 1, 0));
    lrig_decoded(r, 0, 1, false);
    assert_null(lrig_sent(r, 0, PL_MSG_FETCH)); /* one is out */
    lrig_deliver(r, lrig_update(0, PL_NONE64, 1, 0));
    lrig_decoded(r, 0, 1, false);
    lrig_expect_disconnect(r, 0, PL_LINK_CONTROL, PL_REASON_BAD_CONTENT,
                           "the full value of fragment 0 at version 1 does not have the digest");
    lrig_timeout(r);
    lrig_join(r, 0);
    lrig_deliver(r, lrig_update(0, 0, 1, 0));
    lrig_decoded(r, 0, 1, false);
    assert_non_null(lrig_sent(r, 0, PL_MSG_FETCH)); /* a new session, a new chance */
    lrig_deliver(r, lrig_update(0, PL_NONE64, 1, 0));
    lrig_closed(r, 0, PL_LINK_CONTROL);
    lrig_decoded(r, 0, 1, false); /* nobody to blame */
    assert_int_equal(r->out.count, 1);
    assert_non_null(lrig_find(r, PL_LEARN_FX_FORGET));
}

static void answers_malformed_messages(void **state)
{
    struct lrig *r = *state;
    struct pl_msg empty = lrig_update(0, 0, 1, 0), large = empty, full = lrig_update(0, PL_NONE64, 1, 0),
                  back = empty;
    empty.u.update.bytes = 0;
    large.u.update.bytes = RIG_UPDATE_BYTES + 1;
    full.u.update.bytes = UINT64_C(2) * RIG_FULL_BYTES;
    back.u.update.from_version = 1;
    const struct {
        enum pl_link link;
        struct pl_msg msg;
        const char *words;
    } cases[] = {
        {PL_LINK_CONTROL, {.type = PL_MSG_PULL, .u.pull = {.fragment = 1, .round = 5}}, "PULL.fragment is 1"},
        {PL_LINK_CONTROL, {.type = PL_MSG_PULL, .u.pull = {.fragment = 3, .round = 5}}, "PULL.fragment is 3"},
        {PL_LINK_CONTROL, {.type = PL_MSG_PULL, .u.pull = {.fragment = 0, .round = 0}}, "PULL.round is 0"},
        {PL_LINK_CONTROL, {.type = PL_MSG_DROP, .u.drop = {.fragment = 1, .round = 5}}, "DROP.fragment is 1"},
        {PL_LINK_BULK, lrig_update(1, 0, 1, 0), "UPDATE.fragment is 1"},
        {PL_LINK_BULK, empty, "UPDATE.bytes is 0"},
        {PL_LINK_BULK, large, "UPDATE.bytes is 20001, 1 to 20000"},
        {PL_LINK_BULK, full, "UPDATE.bytes is 80000"},
        {PL_LINK_BULK, back, "UPDATE.to_version is 1, above from_version 1"},
        {PL_LINK_BULK, {.type = PL_MSG_DATA, .u.data = {.fragment = 1}}, "DATA.fragment is 1"},
        {PL_LINK_BULK,
         {.type = PL_MSG_DATA, .u.data = {.fragment = 2, .id = 1, .index = 2}},
         "DATA.index is 2"},
        {PL_LINK_BULK,
         {.type = PL_MSG_DATA, .u.data = {.fragment = 2, .id = 1, .index = 1}},
         "DATA.bytes has 0 bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        again(r);
        lrig_msg(r, 0, PL_LINK_BULK, lrig_update(2, 0, 1, 0));
        lrig_msg(r, 0, cases[i].link, cases[i].msg);
        lrig_expect_disconnect(r, 0, cases[i].link, PL_REASON_BAD_MESSAGE, cases[i].words);
        assert_true(pl_learner_live(r->l, 0) == (cases[i].link == PL_LINK_BULK));
        assert_null(lrig_find(r, PL_LEARN_FX_FATAL));
    }
}

/* A chain over so many versions that its limit would overflow: the limit is then the table's. */
static void a_long_chain_does_not_overflow(void **state)
{
    struct lrig *r = *state;
    struct pl_msg m = lrig_update(0, 0, PL_COUNT_MAX, 0);
    lrig_msg(r, 0, PL_LINK_BULK, m);
    lrig_data(r, 0, PL_COUNT_MAX, RIG_UPDATE_BYTES, 0);
    assert_non_null(lrig_find(r, PL_LEARN_FX_KEEP));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_reset_may_go_back_or_stay),
        TEST(an_update_goes_on_where_it_stopped),
        TEST(another_update_replaces_a_partial_one),
        TEST(a_payload_of_the_same_size_starts_over),
        TEST(another_history_is_noticed),
        TEST(ignores_updates_that_do_not_fit),
        TEST(fetches_after_a_bad_digest),
        TEST(answers_malformed_messages),
        TEST(a_long_chain_does_not_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
