/* The fragment table: every row exactly once, balanced where rows permit, the same whatever the order of the tensors; real
 * transformer shapes; the bound of largest-first packing; refusals; shards and offsets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/fmt.h"
#include "base/hash.h"
#include "base/merge_mode.h"
#include "base/num.h"
#include "base/prng.h"
#include "core/plan.h"
#include "seed.h"

#include <string.h>

static struct pl_plan_tensor tensors[PL_TENSORS_MAX], shuffled[PL_TENSORS_MAX];
static struct pl_slice slices[PL_SLICES_MAX], other[PL_SLICES_MAX];

static struct pl_plan_tensor tensor(const char *name, uint64_t rows, uint64_t cols)
{
    struct pl_plan_tensor t = {.rows = rows, .cols = cols, .merge = PL_MERGE_RDA};
    pl_fmt(t.name, sizeof t.name, "%s", name);
    return t;
}

static struct pl_plan_tensor numbered(const char *name, unsigned number, uint64_t rows, uint64_t cols)
{
    char text[PL_NAME_MAX];
    pl_fmt(text, sizeof text, "%s.%u", name, number);
    return tensor(text, rows, cols);
}

/* Every row of the tensor is in exactly one slice: they chain from row 0 to the end, and none is left over. */
static void check_cover(uint32_t t, const struct pl_plan_tensor *table, uint32_t slice_count)
{
    uint32_t mine = 0, chained = 0;
    for (uint32_t i = 0; i < slice_count; i++)
        mine += slices[i].tensor == t;
    uint64_t row = 0;
    for (bool found = true; found;) {
        found = false;
        for (uint32_t i = 0; i < slice_count && !found; i++) {
            if (slices[i].tensor == t && slices[i].row_first == row) {
                assert_true(slices[i].row_count > 0);
                row += slices[i].row_count;
                chained++;
                found = true;
            }
        }
    }
    assert_int_equal(row, table[t].rows);
    assert_int_equal(chained, mine);
}

/* By fragment, name, row; joined where they touch; no fragment is missing. */
static void check_order(const struct pl_plan_tensor *table, uint32_t slice_count, uint32_t fragment_count)
{
    assert_int_equal(slices[0].fragment, 0);
    assert_int_equal(slices[slice_count - 1].fragment, fragment_count - 1);
    for (uint32_t i = 1; i < slice_count; i++) {
        const struct pl_slice *a = &slices[i - 1], *b = &slices[i];
        assert_true(b->fragment == a->fragment || b->fragment == a->fragment + 1);
        if (a->fragment != b->fragment)
            continue;
        int by_name = strcmp(table[a->tensor].name, table[b->tensor].name);
        assert_true(by_name < 0 || (by_name == 0 && a->row_first + a->row_count < b->row_first));
    }
}

/* Makes the table and checks all that must hold for any. Returns how even it is. */
static struct pl_plan_balance plan_and_check(const struct pl_plan_tensor *table, uint32_t tensor_count,
                                             uint32_t fragment_count, uint32_t *slice_count)
{
    struct pl_error err = {.text = ""};
    uint32_t count = 0;
    if (pl_plan_fragments(table, tensor_count, fragment_count, slices, PL_SLICES_MAX, &count, &err) !=
        PELAGO_OK)
        fail_msg("refused: %s", err.text);
    uint64_t total = 0, row_max = 0;
    for (uint32_t t = 0; t < tensor_count; t++) {
        check_cover(t, table, count);
        total += table[t].rows * table[t].cols;
        row_max = pl_max64(row_max, table[t].cols);
    }
    check_order(table, count, fragment_count);
    struct pl_plan_balance b = pl_plan_measure(table, slices, count, fragment_count);
    assert_int_equal(b.total, total);
    assert_true(b.smallest > 0 && b.smallest <= total / fragment_count &&
                b.largest * fragment_count >= total);
    assert_int_equal(b.balanced, b.largest * 10 * fragment_count <= total * 11);
    if (row_max * 10 <= total / fragment_count)
        assert_true(b.balanced);
    assert_true(b.largest * 10 <=
                pl_max64(total * 11 / fragment_count, (total / fragment_count + row_max) * 10 + 10));
    assert_true(count <= tensor_count + 3 * fragment_count);
    *slice_count = count;
    return b;
}

/* A table and the same in another order. */
static void check_permutation(struct pl_prng *r, uint32_t tensor_count, uint32_t fragment_count,
                              uint32_t slice_count)
{
    memcpy(shuffled, tensors, tensor_count * sizeof tensors[0]);
    for (uint32_t i = tensor_count; i > 1; i--) {
        uint32_t j = (uint32_t)pl_prng_below(r, i);
        struct pl_plan_tensor swap = shuffled[i - 1];
        shuffled[i - 1] = shuffled[j];
        shuffled[j] = swap;
    }
    uint32_t count = 0;
    assert_int_equal(
        pl_plan_fragments(shuffled, tensor_count, fragment_count, other, PL_SLICES_MAX, &count, NULL),
        PELAGO_OK);
    assert_int_equal(count, slice_count);
    for (uint32_t i = 0; i < count; i++) {
        assert_string_equal(tensors[slices[i].tensor].name, shuffled[other[i].tensor].name);
        assert_int_equal(slices[i].fragment, other[i].fragment);
        assert_int_equal(slices[i].row_first, other[i].row_first);
        assert_int_equal(slices[i].row_count, other[i].row_count);
    }
}

static uint32_t llama(uint32_t layers, uint64_t width, uint64_t hidden, uint64_t vocab)
{
    uint32_t n = 0;
    tensors[n++] = tensor("model.embed_tokens.weight", vocab, width);
    tensors[n++] = tensor("lm_head.weight", vocab, width);
    tensors[n++] = tensor("model.norm.weight", width, 1);
    for (unsigned l = 0; l < layers; l++) {
        tensors[n++] = numbered("attn_q", l, width, width);
        tensors[n++] = numbered("attn_k", l, width, width);
        tensors[n++] = numbered("attn_v", l, width, width);
        tensors[n++] = numbered("attn_o", l, width, width);
        tensors[n++] = numbered("mlp_gate", l, hidden, width);
        tensors[n++] = numbered("mlp_up", l, hidden, width);
        tensors[n++] = numbered("mlp_down", l, width, hidden);
        tensors[n++] = numbered("norm_in", l, width, 1);
        tensors[n++] = numbered("norm_post", l, width, 1);
    }
    return n;
}

static void test_transformers(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t layers, width, hidden, vocab, fragments;
    } models[] = {
        {"1m", 4, 128, 344, 2048, 24},
        {"1m in 3", 4, 128, 344, 2048, 3},
        {"1m in 1", 4, 128, 344, 2048, 1},
        {"gpt2 size", 12, 768, 2048, 50304, 24},
        {"gpt2 in 96", 12, 768, 2048, 50304, 96},
        {"1b", 16, 2048, 8192, 128256, 24},
        {"7b", 32, 4096, 11008, 32000, 24},
        {"8b", 32, 4096, 14336, 128256, 96},
    };
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 1);
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
        uint32_t n = llama(models[m].layers, models[m].width, models[m].hidden, models[m].vocab), count;
        struct pl_plan_balance b = plan_and_check(tensors, n, models[m].fragments, &count);
        print_message("# %s: %u tensors, %u fragments, %u slices, largest %.4f of the mean, smallest %.4f\n",
                      models[m].name, n, models[m].fragments, count,
                      (double)(b.largest * models[m].fragments) / (double)b.total,
                      (double)(b.smallest * models[m].fragments) / (double)b.total);
        assert_true(b.balanced);
        check_permutation(&r, n, models[m].fragments, count);
    }
}

/* Rows, columns and their ratio of every kind, from one row to a matrix that is most of the model. */
static uint32_t draw_table(struct pl_prng *r)
{
    uint32_t n = (uint32_t)pl_prng_range(r, 1, 60);
    unsigned rows_shift = (unsigned)pl_prng_range(r, 0, 12), cols_shift = (unsigned)pl_prng_range(r, 0, 10);
    for (uint32_t t = 0; t < n; t++) {
        uint64_t rows = 1 + (pl_prng_next(r) & ((1u << pl_prng_range(r, 0, rows_shift)) - 1));
        uint64_t cols = 1 + (pl_prng_next(r) & ((1u << pl_prng_range(r, 0, cols_shift)) - 1));
        tensors[t] = numbered("t", t, rows, cols);
    }
    return n;
}

static void test_random_tables(void **state)
{
    (void)state;
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 2);
    uint32_t balanced = 0;
    for (int round = 0; round < 2000; round++) {
        uint32_t n = draw_table(&r), count;
        uint64_t rows = 0;
        for (uint32_t t = 0; t < n; t++)
            rows += tensors[t].rows;
        uint32_t fragments = (uint32_t)pl_prng_range(&r, 1, pl_min64(rows, 64));
        struct pl_plan_balance b = plan_and_check(tensors, n, fragments, &count);
        balanced += b.balanced;
        check_permutation(&r, n, fragments, count);
    }
    print_message("# %u of 2000 within 1.1\n", balanced);
    assert_in_range(balanced, 200, 1800); /* tables of both kinds were drawn */
}

/* The smallest possible largest fragment, by trying every assignment. */
static uint64_t best_possible(uint32_t n, uint32_t fragments)
{
    uint64_t ways = 1, best = UINT64_MAX;
    for (uint32_t t = 0; t < n; t++)
        ways *= fragments;
    for (uint64_t way = 0; way < ways; way++) {
        uint64_t load[8] = {0}, largest = 0, rest = way;
        for (uint32_t t = 0; t < n; t++, rest /= fragments) {
            load[rest % fragments] += tensors[t].cols;
            largest = pl_max64(largest, load[rest % fragments]);
        }
        best = pl_min64(best, largest);
    }
    return best;
}

/* Tensors of one row cannot be cut, which leaves LPT: at most 4/3 - 1/(3P) of the optimum. */
static void test_lpt_bound(void **state)
{
    (void)state;
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 3);
    for (int round = 0; round < 200; round++) {
        uint32_t fragments = (uint32_t)pl_prng_range(&r, 2, 4), count;
        uint32_t n = (uint32_t)pl_prng_range(&r, fragments, 7);
        for (uint32_t t = 0; t < n; t++)
            tensors[t] = numbered("t", t, 1, pl_prng_range(&r, 1, 30));
        struct pl_plan_balance b = plan_and_check(tensors, n, fragments, &count);
        assert_true(b.largest * 3 * fragments <= best_possible(n, fragments) * (4 * fragments - 1));
    }
}

/* Total 40, mean 10: "big" is cut into 10, 10 and a rest of 2; then b 8, c 6, a 4 and the rest of 2 are packed. */
static void test_by_hand(void **state)
{
    (void)state;
    uint32_t count;
    tensors[0] = tensor("c", 6, 1);
    tensors[1] = tensor("big", 22, 1);
    tensors[2] = tensor("a", 4, 1);
    tensors[3] = tensor("b", 8, 1);
    struct pl_plan_balance b = plan_and_check(tensors, 4, 4, &count);
    const struct pl_slice want[] = {
        {1, 0, 0, 10}, {1, 1, 10, 10}, {3, 2, 0, 8}, {1, 2, 20, 2}, {2, 3, 0, 4}, {0, 3, 0, 6},
    };
    assert_int_equal(count, sizeof want / sizeof want[0]);
    assert_memory_equal(slices, want, sizeof want);
    assert_int_equal(b.largest, 10);
    assert_int_equal(b.smallest, 10);
}

/* Equal tensors: the order is by name alone, and as text, not by number. */
static void test_ties_by_name(void **state)
{
    (void)state;
    uint32_t count;
    tensors[0] = tensor("w.2", 5, 5);
    tensors[1] = tensor("w.10", 5, 5);
    tensors[2] = tensor("w.1", 5, 5);
    plan_and_check(tensors, 3, 3, &count);
    const struct pl_slice want[] = {{2, 0, 0, 5}, {1, 1, 0, 5}, {0, 2, 0, 5}};
    assert_int_equal(count, 3);
    assert_memory_equal(slices, want, sizeof want);
}

/* A rest of less than 1/16 of a piece does not become a slice of its own. */
static void test_no_slivers(void **state)
{
    (void)state;
    uint32_t count;
    tensors[0] = tensor("a", 201, 1); /* mean 100 */
    tensors[1] = tensor("b", 99, 1);
    plan_and_check(tensors, 2, 3, &count);
    const struct pl_slice want[] = {{0, 0, 0, 101}, {0, 1, 101, 100}, {1, 2, 0, 99}};
    assert_int_equal(count, 3);
    assert_memory_equal(slices, want, sizeof want);
}

/* A row over the mean cannot be helped: the table is made all the same, no fragment is empty, and it is reported. */
static void test_rows_too_long(void **state)
{
    (void)state;
    uint32_t count;
    tensors[0] = tensor("long", 1, 1000);
    tensors[1] = tensor("short", 8, 1);
    struct pl_plan_balance b = plan_and_check(tensors, 2, 4, &count);
    assert_int_equal(b.largest, 1000);
    assert_false(b.balanced);
    /* As many fragments as rows: one row each. */
    b = plan_and_check(tensors, 2, 9, &count);
    assert_int_equal(count, 9);
    assert_int_equal(b.smallest, 1);
}

static void expect_refusal(uint32_t tensor_count, uint32_t fragment_count, uint32_t slice_max,
                           enum pelago_status status, const char *text)
{
    struct pl_error err = {.text = ""};
    uint32_t count = 77;
    assert_int_equal(
        pl_plan_fragments(tensors, tensor_count, fragment_count, slices, slice_max, &count, &err), status);
    assert_int_equal(err.status, status);
    assert_string_equal(err.text, text);
    assert_int_equal(count, 77);
    assert_int_equal(
        pl_plan_fragments(tensors, tensor_count, fragment_count, slices, slice_max, &count, NULL), status);
}

static void test_refused_tensors(void **state)
{
    (void)state;
    tensors[0] = tensor("a", 4, 4);
    tensors[1] = tensor("b", 0, 4);
    expect_refusal(2, 1, 9, PELAGO_INVALID, "tensor b: rows is 0, expected at least 1");
    tensors[0].merge = PL_MERGE_MEAN;
    tensors[1] = tensor("b", 4, 0);
    expect_refusal(2, 1, 9, PELAGO_INVALID, "tensor b: cols is 0, expected at least 1");
    tensors[1] = tensor("b", 4, 4);
    tensors[1].merge = 9;
    expect_refusal(2, 1, 9, PELAGO_INVALID, "tensor b: merge is 9, expected 0 (rda) or 1 (mean)");
    tensors[1] = tensor("b", UINT64_C(1) << 33, UINT64_C(1) << 33);
    expect_refusal(2, 1, 9, PELAGO_LIMIT, "tensor b: rows 8589934592 times cols 8589934592 is over 64 bits");
    tensors[1] = tensor("b", UINT64_C(1) << 15, UINT64_C(1) << 15);
    expect_refusal(2, 1, 9, PELAGO_LIMIT,
                   "tensor b: with it the model is over 1073741824 values, what 1 fragments can hold");
    tensors[1] = tensor("a", 1, 1);
    expect_refusal(2, 1, 9, PELAGO_INVALID, "tensor a: two tensors have this name");
}

static void test_refused_names(void **state)
{
    (void)state;
    const char *text = "tensor 0: name must be 1 to 63 printable characters, then zeros";
    tensors[0] = tensor("", 1, 1);
    expect_refusal(1, 1, 9, PELAGO_INVALID, text);
    memset(tensors[0].name, 'x', PL_NAME_MAX); /* no final zero */
    expect_refusal(1, 1, 9, PELAGO_INVALID, text);
    tensors[0] = tensor("a\nb", 1, 1);
    expect_refusal(1, 1, 9, PELAGO_INVALID, text);
    tensors[0] = tensor("a\xffz", 1, 1);
    expect_refusal(1, 1, 9, PELAGO_INVALID, text);
    tensors[0] = tensor("a\x7fz", 1, 1);
    expect_refusal(1, 1, 9, PELAGO_INVALID, text);
    tensors[0] = tensor("a", 1, 1);
    tensors[0].name[PL_NAME_MAX - 1] = 'z'; /* something behind the zero */
    expect_refusal(1, 1, 9, PELAGO_INVALID, text);
    memset(tensors[0].name, '~', PL_NAME_MAX - 1); /* the longest name there is */
    tensors[0].name[PL_NAME_MAX - 1] = '\0';
    uint32_t count;
    plan_and_check(tensors, 1, 1, &count);
}

static void test_refused_counts(void **state)
{
    (void)state;
    tensors[0] = tensor("a", 4, 4);
    tensors[1] = tensor("b", 2, 4);
    expect_refusal(0, 1, 9, PELAGO_INVALID, "tensors: 0, expected 1 to 4096");
    expect_refusal(4097, 1, 9, PELAGO_LIMIT, "tensors: 4097, expected 1 to 4096");
    expect_refusal(2, 0, 9, PELAGO_INVALID, "fragments: 0, expected 1 to 4096");
    expect_refusal(2, 4097, 9, PELAGO_LIMIT, "fragments: 4097, expected 1 to 4096");
    expect_refusal(2, 7, 9, PELAGO_INVALID, "fragments: 7, expected at most 6, the rows of all tensors");
    /* Room for slices: too little at the start, while cutting large tensors, and for the fragments. */
    expect_refusal(2, 1, 1, PELAGO_LIMIT, "slices: the table needs more than 1");
    expect_refusal(2, 3, 2, PELAGO_LIMIT, "slices: the table needs more than 2");
    tensors[2] = tensor("long", 1, 1000);
    expect_refusal(3, 4, 3, PELAGO_LIMIT, "slices: the table needs more than 3");
    /* ... and while packing: three tensors of 2/3 in two fragments, the last is cut. */
    for (unsigned t = 0; t < 3; t++)
        tensors[t] = numbered("t", t, 20, 1);
    expect_refusal(3, 2, 3, PELAGO_LIMIT, "slices: the table needs more than 3");
    uint32_t count;
    struct pl_plan_balance b = plan_and_check(tensors, 3, 2, &count);
    assert_int_equal(count, 4);
    assert_int_equal(b.largest, 30);
    /* Rows so long that one fragment could not travel, though the mean could. */
    tensors[0] = tensor("a", 1, UINT64_C(1) << 31);
    tensors[1] = tensor("b", 3, 1);
    expect_refusal(2, 4, 9, PELAGO_LIMIT,
                   "fragments: the largest of 4 has 2147483648 values, expected at most 1073741824");
}

/* Every limit at once: as many tensors and fragments as there may be. The hash is what gcc and clang both printed at -O2;
 * it changes only with the rule, and then machines of two versions would cut one model differently. */
static const uint64_t golden = UINT64_C(0x5a998621aa009f3b);

static void test_at_the_limits(void **state)
{
    (void)state;
    struct pl_prng r;
    pl_prng_seed(&r, 4128, 4);
    for (uint32_t t = 0; t < PL_TENSORS_MAX; t++) {
        uint64_t rows = pl_prng_range(&r, 1, 5000);
        tensors[t] = numbered("t", t, rows, pl_prng_range(&r, 1, 16));
    }
    uint32_t count = 0;
    assert_int_equal(
        pl_plan_fragments(tensors, PL_TENSORS_MAX, PL_FRAGMENTS_MAX, slices, PL_SLICES_MAX, &count, NULL),
        PELAGO_OK);
    struct pl_plan_balance b = pl_plan_measure(tensors, slices, count, PL_FRAGMENTS_MAX);
    uint64_t hash = pl_hash64(slices, count * sizeof slices[0], 0);
    print_message("# %u slices, hash %016llx\n", count, (unsigned long long)hash);
    assert_true(hash == golden);
    assert_true(b.balanced);
    check_permutation(&r, PL_TENSORS_MAX, PL_FRAGMENTS_MAX, count);
}

/* Any fragments, shards and period: shards differ by at most one fragment, offsets by what the contract says. */
static void check_places(uint32_t fragments, uint32_t shards, uint32_t period)
{
    static struct pl_plan_place places[PL_FRAGMENTS_MAX];
    static uint32_t used[PL_PERIOD_STEPS_MAX];
    struct pl_error err;
    assert_int_equal(pl_plan_shards(fragments, shards, period, places, &err), PELAGO_OK);
    for (uint32_t s = 0; s < shards; s++) {
        uint32_t of_shard = 0, before = 0;
        memset(used, 0, sizeof used);
        for (uint32_t i = 0; i < fragments; i++) {
            assert_int_equal(places[i].shard, i % shards);
            if (places[i].shard != s)
                continue;
            assert_true(places[i].offset < period && places[i].offset >= before);
            before = places[i].offset;
            used[before]++;
            of_shard++;
        }
        assert_true(of_shard == fragments / shards || of_shard == fragments / shards + 1);
        for (uint32_t t = 0; t < period; t++)
            assert_true(used[t] <= (of_shard + period - 1) / period);
    }
}

static void test_shards(void **state)
{
    (void)state;
    for (uint32_t fragments = 1; fragments <= 30; fragments++)
        for (uint32_t shards = 1; shards <= fragments; shards++)
            for (uint32_t period = 1; period <= 30; period++)
                check_places(fragments, shards, period);
    check_places(PL_FRAGMENTS_MAX, 1, PL_PERIOD_STEPS_MAX);
    check_places(PL_FRAGMENTS_MAX, PL_SHARDS_MAX, PL_PERIOD_STEPS_MAX);
    check_places(PL_FRAGMENTS_MAX, PL_SHARDS_MAX - 1, 24);

    struct pl_plan_place places[5];
    assert_int_equal(pl_plan_shards(5, 2, 24, places, NULL), PELAGO_OK);
    const struct pl_plan_place want[5] = {{0, 0}, {1, 0}, {0, 8}, {1, 12}, {0, 16}};
    assert_memory_equal(places, want, sizeof want);
}

static void test_refused_shards(void **state)
{
    (void)state;
    static const struct {
        uint32_t fragments, shards, period;
        const char *text;
    } bad[] = {
        {0, 1, 24, "fragments: 0, expected 1 to 4096"},
        {4097, 1, 24, "fragments: 4097, expected 1 to 4096"},
        {24, 0, 24, "shards: 0, expected 1 to 24"},
        {24, 25, 24, "shards: 25, expected 1 to 24"},
        {100, 65, 24, "shards: 65, expected 1 to 64"},
        {24, 1, 0, "period: 0 steps, expected 1 to 4096"},
        {24, 1, 4097, "period: 4097 steps, expected 1 to 4096"},
    };
    struct pl_plan_place places[1];
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct pl_error err = {.text = ""};
        assert_int_equal(pl_plan_shards(bad[i].fragments, bad[i].shards, bad[i].period, places, &err),
                         PELAGO_INVALID);
        assert_string_equal(err.text, bad[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transformers),   cmocka_unit_test(test_random_tables),
        cmocka_unit_test(test_lpt_bound),      cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_ties_by_name),   cmocka_unit_test(test_no_slivers),
        cmocka_unit_test(test_rows_too_long),  cmocka_unit_test(test_refused_tensors),
        cmocka_unit_test(test_refused_names),  cmocka_unit_test(test_refused_counts),
        cmocka_unit_test(test_at_the_limits),  cmocka_unit_test(test_shards),
        cmocka_unit_test(test_refused_shards),
    };
    return cmocka_run_group_tests_name("core_plan", tests, NULL, NULL);
}
