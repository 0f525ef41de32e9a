/* Durable state: save, load, replay. What a shard finds after a crash is what its last durable record said. */
#include "rig_test.h"

#include "base/bytes.h"
#include "base/prng.h"
#include "core/syncer_int.h"
#include "seed.h"

#include <stdlib.h>

static uint8_t one[RIG_SAVE_BYTES], two[RIG_SAVE_BYTES];

static struct pl_syncer *fresh(void **memory)
{
    *memory = calloc(1, rig.memory_bytes);
    assert_non_null(*memory);
    struct pl_syncer *s = pl_syncer_init(*memory, rig.memory_bytes, &rig.so);
    for (uint32_t f = 0; f < rig.o.fragments; f++)
        if (f % rig.o.shards == rig.o.shard)
            pl_syncer_set_origin(s, f, rig_digest(f, 0));
    return s;
}

static enum pelago_status load(const uint8_t *bytes, size_t len, struct pl_error *err)
{
    void *memory;
    struct pl_syncer *s = fresh(&memory);
    enum pelago_status status = pl_syncer_load(s, bytes, len, err);
    if (status == PELAGO_OK)
        pl_syncer_check(s);
    free(memory);
    return status;
}

/* A shard with some of everything: versions, four learners, units in hand, given back and forgotten tokens. */
static void start_rich(void)
{
    struct rig_options o = rig_defaults();
    rig_init(&rig, &o);
    rig_up_many(&rig, 4);
    assert_true(rig_run_to(&rig, 0, 3));
    for (uint32_t i = 0; i < 3; i++)
        rig_send(&rig, rig.peers[i].control, &(struct pl_msg){.type = PL_MSG_WANT});
    rig.peers[0].cursor = 33;
    rig_report(&rig, 0, 1);
    rig_down(&rig, 3);
    rig_down(&rig, 2);
    rig.peers[2].unit = PL_NONE64;
    rig_up(&rig, 2);
    rig_up(&rig, 4); /* takes the place of the fourth */
}

static void test_save_load_save(void **state)
{
    (void)state;
    start_rich();
    size_t len = rig_save(&rig, one);
    assert_int_equal(len, pl_syncer_save_bytes(rig.s));
    rig_snapshot(&rig);
    assert_int_equal(rig_save_recovered(&rig, two), len);
    assert_memory_equal(one, two, len);

    rig_recover(&rig);
    rig_up_many(&rig, 3);
    assert_true(rig_run_to(&rig, 1, 5));
}

static void test_every_truncation_is_refused(void **state)
{
    (void)state;
    start_rich();
    struct pl_error err;
    size_t len = rig_save(&rig, one);
    for (size_t n = 0; n < len; n++) {
        uint8_t *exact = malloc(n > 0 ? n : 1); /* so that reading past the end is seen */
        memcpy(exact, one, n);
        enum pelago_status status = load(exact, n, &err);
        assert_true(status == PELAGO_CORRUPT || status == PELAGO_INVALID);
        free(exact);
    }
    one[len] = 0;
    assert_int_equal(load(one, len + 1, &err), PELAGO_CORRUPT);
    assert_non_null(strstr(err.text, "which do not fit it"));
}

/* Whatever the bytes: a status, never a crash, and what is accepted is consistent. */
static void test_damaged_snapshots(void **state)
{
    (void)state;
    struct pl_prng rng;
    pl_prng_seed(&rng, test_seed(), 1);
    start_rich();
    size_t len = rig_save(&rig, one);
    for (size_t i = 0; i < len; i++)
        for (int k = 0; k < 3; k++) {
            memcpy(two, one, len);
            two[i] = (uint8_t)(k == 0 ? two[i] ^ 1 : k == 1 ? 255 : pl_prng_below(&rng, 256));
            load(two, len, NULL);
        }
}

/* Where the parts of a saved state begin (see syncer_save.c). */
enum {
    AT_RUN = 8,
    AT_DIGEST = 16,
    AT_SHARD = 24,
    AT_NEXT_UNIT = 61,
    AT_FRAGMENTS = 69,
    AT_LEARNERS = 73,
    AT_UNITS = 77
};

static void expect_load(size_t at, uint64_t value, unsigned width, enum pelago_status status,
                        const char *words)
{
    struct pl_error err = {.text = ""};
    size_t len = rig_save(&rig, one);
    pl_put_le(one + at, value, width);
    assert_int_equal(load(one, len, &err), status);
    if (strstr(err.text, words) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", err.text, words);
}

static void test_snapshots_of_something_else(void **state)
{
    (void)state;
    start_rich();
    const size_t learners = 81 + 2 * 16, learner = 32 + 2 * 8, units = learners + 4 * learner;
    expect_load(0, 1, 4, PELAGO_CORRUPT, "not a syncer's state of format 1");
    expect_load(4, 2, 4, PELAGO_CORRUPT, "not a syncer's state of format 1");
    expect_load(AT_RUN, 5, 8, PELAGO_INVALID, "belongs to run 5, this is run abc");
    expect_load(AT_DIGEST, 5, 8, PELAGO_INVALID, "another manifest of run abc");
    expect_load(AT_SHARD, 1, 4, PELAGO_INVALID, "is of shard 1, this is shard 0");
    expect_load(AT_FRAGMENTS, 3, 4, PELAGO_INVALID, "3 fragments and 4 learners, 2 and at most 4 fit");
    expect_load(AT_LEARNERS, 5, 4, PELAGO_INVALID, "2 fragments and 5 learners");
    expect_load(AT_UNITS, 9, 4, PELAGO_INVALID, "the snapshot has");
    expect_load(AT_NEXT_UNIT, 0, 8, PELAGO_CORRUPT, "names work unit 0 twice, or too early");
    expect_load(learners, 0, 8, PELAGO_CORRUPT, "names identity 0 twice, or none");
    expect_load(learners, 20, 8, PELAGO_CORRUPT, "names identity 14 twice");
    expect_load(units + 24, 0, 8, PELAGO_CORRUPT, "names work unit 0 twice");
    expect_load(units + 8, 100, 8, PELAGO_CORRUPT, "cursor 100 in an open work unit of 100 tokens");
    expect_load(units + 16, 0, 8, PELAGO_OK, "");
    expect_load(units + 16, 12345, 8, PELAGO_OK, ""); /* of somebody who was forgotten */
}

/* ---- replay ---- */

static enum pelago_status replay(struct pl_syncer *s, const struct pl_record *r, struct pl_error *err)
{
    enum pelago_status status = pl_syncer_replay(s, r, err);
    if (status == PELAGO_OK)
        pl_syncer_check(s);
    return status;
}

static void test_replay_refuses(void **state)
{
    (void)state;
    struct rig_options o = rig_defaults();
    o.shards = 2;
    o.fragments = 4;
    rig_init(&rig, &o);
    void *memory;
    struct pl_syncer *s = fresh(&memory);
    struct pl_error err;
    struct pl_contributor parts[6] = {{.identity = 0, .steps = 1, .unit = PL_NONE64}};
    struct pl_record boot = {.type = PL_RECORD_BOOT, .epoch = 5, .tick = 9};
    struct pl_record round = {.type = PL_RECORD_ROUND, .epoch = 5, .version = 1, .contributors = parts};
    assert_int_equal(replay(s, &boot, &err), PELAGO_OK);
    assert_int_equal(s->tick, 9);
    boot.epoch = 4;
    assert_int_equal(replay(s, &boot, &err), PELAGO_CORRUPT);
    assert_string_equal(err.text, "a record of epoch 4 follows one of epoch 5");
    round.fragment = 1;
    assert_int_equal(replay(s, &round, &err), PELAGO_CORRUPT);
    assert_string_equal(err.text, "a round record is of fragment 1, which shard 0 does not own");
    round.fragment = 4;
    assert_int_equal(replay(s, &round, &err), PELAGO_CORRUPT);
    round.fragment = 2;
    round.version = 2;
    assert_int_equal(replay(s, &round, &err), PELAGO_CORRUPT);
    assert_string_equal(err.text, "a round record leads fragment 2 to version 2, 1 is next");
    round.version = 1;
    round.contributor_count = 1;
    assert_int_equal(replay(s, &round, &err), PELAGO_CORRUPT);
    assert_non_null(strstr(err.text, "names identity 0"));
    struct pl_record lease = {.type = PL_RECORD_LEASE, .epoch = 5, .unit = PL_NONE64, .identity = 10};
    assert_int_equal(replay(s, &lease, &err), PELAGO_CORRUPT);
    lease.unit = 1;
    lease.cursor = 101;
    assert_int_equal(replay(s, &lease, &err), PELAGO_CORRUPT);
    assert_non_null(strstr(err.text, "work unit 1 and cursor 101, at most 100 is expected"));
    lease.cursor = 0;
    for (lease.unit = 0; lease.unit < 8; lease.unit++)
        assert_int_equal(replay(s, &lease, &err), PELAGO_OK);
    assert_int_equal(replay(s, &lease, &err), PELAGO_CORRUPT);
    assert_non_null(strstr(err.text, "names work unit 8, for which there is no room"));
    lease.cursor = 100;
    lease.unit = 3;
    assert_int_equal(replay(s, &lease, &err), PELAGO_OK); /* finished: room again */
    assert_int_equal(replay(s, &lease, &err), PELAGO_OK);
    lease.cursor = 0;
    lease.unit = 8;
    lease.identity = 0; /* nobody's any more when it was written */
    assert_int_equal(replay(s, &lease, &err), PELAGO_OK);
    lease.identity = 20;
    assert_int_equal(replay(s, &lease, &err), PELAGO_OK); /* somebody else's now */
    free(memory);
}

/* A record that was written twice because the first sync failed, and yet the first one reached the disk. */
static void test_a_round_written_twice(void **state)
{
    (void)state;
    struct rig_options o = rig_defaults();
    rig_init(&rig, &o);
    rig_up_many(&rig, 2);
    assert_true(rig_run_to(&rig, 0, 2));
    void *memory;
    struct pl_syncer *s = fresh(&memory);
    struct pl_error err;
    struct pl_record rec;
    struct pl_contributor parts[RIG_PEERS];
    for (uint32_t i = 0; i < rig.record_count; i++) {
        rig_record(&rig, i, &rec, parts);
        assert_int_equal(replay(s, &rec, &err), PELAGO_OK);
        if (rec.type == PL_RECORD_ROUND)
            assert_int_equal(replay(s, &rec, &err), PELAGO_OK);
        rec.digest++;
        if (rec.type == PL_RECORD_ROUND)
            assert_int_equal(replay(s, &rec, &err), PELAGO_CORRUPT);
    }
    assert_int_equal(pl_syncer_version(s, 0, NULL), 2);
    free(memory);
}

/* More identities than places, over time: replay makes room as the shard did. */
static void test_replay_with_more_identities_than_places(void **state)
{
    (void)state;
    struct rig_options o = rig_defaults();
    o.learners_max = 2;
    o.quorum = 2;
    rig_init(&rig, &o);
    for (uint32_t i = 0; i < 6; i++) {
        rig_up(&rig, i);
        rig_up(&rig, i + 1);
        assert_true(rig_run_to(&rig, 0, pl_syncer_version(rig.s, 0, NULL) + 1));
        rig_send(&rig, rig.peers[i].control, &(struct pl_msg){.type = PL_MSG_WANT});
        rig_down(&rig, i);
        rig_down(&rig, i + 1);
        rig.peers[i].unit = PL_NONE64;
    }
    uint64_t version = pl_syncer_version(rig.s, 0, NULL);
    rig_recover(&rig);
    assert_int_equal(pl_syncer_version(rig.s, 0, NULL), version);
    rig_up_many(&rig, 2);
    assert_true(rig_run_to(&rig, 0, version + 1));
}

/* ---- equality after any history ---- */

struct saved {
    uint64_t epoch, tick, clock, next_unit;
    uint64_t version[RIG_FRAGMENTS], digest[RIG_FRAGMENTS];
    uint32_t learners;
    struct {
        uint64_t identity, incarnation, tokens, last_merged[RIG_FRAGMENTS];
    } learner[RIG_PEERS];
};

static void parse(const uint8_t *bytes, size_t len, struct saved *out)
{
    struct pl_reader rd = pl_reader_of(bytes, len);
    memset(out, 0, sizeof *out);
    pl_read_bytes(&rd, AT_SHARD + 5);
    out->epoch = pl_read_u64(&rd);
    out->tick = pl_read_u64(&rd);
    out->clock = pl_read_u64(&rd);
    pl_read_u64(&rd);
    out->next_unit = pl_read_u64(&rd);
    uint32_t fragments = pl_read_u32(&rd);
    out->learners = pl_read_u32(&rd);
    pl_read_u32(&rd);
    for (uint32_t f = 0; f < fragments; f++) {
        out->version[f] = pl_read_u64(&rd);
        out->digest[f] = pl_read_u64(&rd);
    }
    for (uint32_t i = 0; i < out->learners; i++) {
        out->learner[i].identity = pl_read_u64(&rd);
        out->learner[i].incarnation = pl_read_u64(&rd);
        out->learner[i].tokens = pl_read_u64(&rd);
        out->learner[i].tokens += pl_read_u64(&rd);
        for (uint32_t f = 0; f < fragments; f++)
            out->learner[i].last_merged[f] = pl_read_u64(&rd);
    }
    assert_false(rd.bad);
}

static uint32_t find(const struct saved *s, uint64_t identity)
{
    for (uint32_t i = 0; i < s->learners; i++)
        if (s->learner[i].identity == identity)
            return i;
    return PL_NONE32;
}

/* The state of the disk against the living one: all that was announced is there; what only memory knew may lack. */
static void compare_with_disk(void)
{
    struct saved alive, disk;
    struct pl_record last;
    struct pl_contributor parts[RIG_PEERS];
    parse(one, rig_save(&rig, one), &alive);
    parse(two, rig_save_recovered(&rig, two), &disk);
    assert_int_equal(disk.epoch, alive.epoch);
    assert_memory_equal(disk.version, alive.version, sizeof disk.version);
    assert_memory_equal(disk.digest, alive.digest, sizeof disk.digest);
    assert_true(disk.tick <= alive.tick && disk.clock <= alive.clock && disk.next_unit <= alive.next_unit);
    if (rig.record_count > 0) {
        rig_record(&rig, rig.record_count - 1, &last, parts);
        assert_true(disk.tick >= last.tick && disk.clock >= last.clock_tokens);
    }
    for (uint32_t i = 0; i < alive.learners; i++) {
        uint32_t k = find(&disk, alive.learner[i].identity);
        for (uint32_t f = 0; f < RIG_FRAGMENTS; f++) {
            uint64_t merged = k == PL_NONE32 ? 0 : disk.learner[k].last_merged[f];
            assert_int_equal(merged,
                             alive.learner[i].last_merged[f]); /* I1: what was merged is known for ever */
        }
        if (k == PL_NONE32)
            continue;
        assert_true(disk.learner[k].incarnation <= alive.learner[i].incarnation);
        assert_true(disk.learner[k].tokens <= alive.learner[i].tokens);
    }
}

/* When every learner had a part in the last record and nothing happened since, the two are the same bytes. */
static bool same_when_all_contributed(uint32_t records_before)
{
    struct pl_record last;
    struct pl_contributor parts[RIG_PEERS];
    struct pl_sync_view v;
    pl_syncer_view(rig.s, &v);
    if (rig.record_count == records_before)
        return false;
    uint32_t n = rig_record(&rig, rig.record_count - 1, &last, parts);
    if (last.type != PL_RECORD_ROUND || n != v.known || last.tick != v.tick)
        return false;
    size_t len = rig_save(&rig, one);
    assert_int_equal(rig_save_recovered(&rig, two), len);
    assert_memory_equal(one, two, len);
    return true;
}

static void test_recovered_equals_original(void **state)
{
    (void)state;
    struct rig_options o = rig_defaults();
    rig_init(&rig, &o);
    rig_up_many(&rig, 3);
    uint32_t equal = 0;
    for (int i = 0; i < 300; i++) {
        for (uint32_t p = 0; p < 3; p++)
            rig_report(&rig, p, 1);
        uint32_t before = rig.record_count;
        rig_advance(&rig, rig.step_ns);
        for (uint32_t p = 0; p < 3; p++)
            rig_obey(&rig, p);
        equal += same_when_all_contributed(before) ? 1 : 0;
        if (i == 150) {
            rig_snapshot(&rig);
            rig_recover(&rig);
            rig_up_many(&rig, 3);
        }
    }
    assert_true(equal > 100);
}

static void random_action(struct pl_prng *rng)
{
    uint32_t i = (uint32_t)pl_prng_below(rng, 4);
    uint32_t f = (uint32_t)pl_prng_below(rng, rig.o.fragments);
    bool up = rig_live(&rig, i);
    switch (pl_prng_below(rng, 16)) {
    case 0:
        if (up)
            rig_down(&rig, i);
        break;
    case 1:
    case 2:
        if (!up)
            rig_up(&rig, i);
        break;
    case 3:
        if (pl_prng_chance(rng, 200000)) {
            rig_down(&rig, i);
            rig_restart(&rig, i);
            rig_up(&rig, i);
        }
        break;
    case 4:
        if (up)
            rig_push(&rig, i, f);
        break;
    case 5:
        if (up)
            rig_skip(&rig, i, f);
        break;
    case 6:
        rig.bad_store = pl_prng_chance(rng, 300000);
        rig.hold_store = pl_prng_chance(rng, 300000);
        rig.hold_merge = pl_prng_chance(rng, 200000);
        rig.bad_merge = pl_prng_chance(rng, 100000);
        break;
    case 7:
        if (up && (rig.peers[i].flags & 1) == 0)
            rig_send(&rig, rig.peers[i].control, &(struct pl_msg){.type = PL_MSG_WANT});
        break;
    case 8:
        rig.peers[i].cursor += pl_prng_below(rng, 60);
        break;
    case 9:
        rig_answer(&rig, PL_SYNC_EV_STORED, pl_prng_chance(rng, 700000));
        break;
    case 10:
        rig_answer(&rig, PL_SYNC_EV_MERGED, true);
        break;
    case 11:
        if (pl_prng_chance(rng, 100000))
            rig_recover(&rig);
        break;
    case 12:
        if (rig.answers_len == 0 && pl_prng_chance(rng, 200000))
            rig_snapshot(&rig);
        break;
    default:
        rig_tick(&rig, pl_prng_chance(rng, 800000));
    }
}

/* The boot record may still be on its way: connections come only after LISTEN. */
static void wait_until_listening(void)
{
    rig.hold_store = rig.bad_store = false;
    for (int i = 0; i < 10 && !rig.listening; i++) {
        rig_answer(&rig, PL_SYNC_EV_STORED, true);
        rig_advance(&rig, PL_SEC);
    }
    assert_true(rig.listening);
}

static void test_random_histories(void **state)
{
    (void)state;
    struct pl_prng rng;
    pl_prng_seed(&rng, test_seed(), 2);
    for (int run = 0; run < 12; run++) {
        struct rig_options o = rig_defaults();
        o.quorum = 1 + (uint32_t)pl_prng_below(&rng, 3);
        o.fragments = 1 + (uint32_t)pl_prng_below(&rng, 4);
        o.overlap = 1 + (uint32_t)pl_prng_below(&rng, 2);
        if (run % 4 == 3)
            o.budget = 1500;
        rig_init(&rig, &o);
        for (int i = 0; i < 1500; i++) {
            random_action(&rng);
            if (!rig.listening)
                wait_until_listening();
            rig_forget(&rig);
            if (i % 20 == 0)
                compare_with_disk();
        }
        rig_release(&rig);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rig_unit_test(test_save_load_save),
        rig_unit_test(test_every_truncation_is_refused),
        rig_unit_test(test_damaged_snapshots),
        rig_unit_test(test_snapshots_of_something_else),
        rig_unit_test(test_replay_refuses),
        rig_unit_test(test_a_round_written_twice),
        rig_unit_test(test_replay_with_more_identities_than_places),
        rig_unit_test(test_recovered_equals_original),
        rig_unit_test(test_random_histories),
    };
    return rig_run_tests(tests);
}
