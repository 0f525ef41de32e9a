/* Text to token files with any number of threads: always the same tokens, cut or not; training finds the merges that counting
 * anew every time finds. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/limits.h"
#include "base/prng.h"
#include "data/bpe_train.h"
#include "data/encode.h"
#include "seed.h"
#include "tempdir.h"
#include "tokenizer_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct tempdir dir;
static struct pl_alloc alloc;
static struct pl_error err;

static int set_up(void **state)
{
    (void)state;
    alloc = pl_alloc_system();
    tempdir_init(&dir);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tempdir_release(&dir);
    return 0;
}

/* ---- encoding ---- */

/* Documents of very different lengths, some longer than a chunk; `words` false: without a space to cut at. */
static size_t random_documents(struct pl_prng *r, char *text, size_t cap, bool words)
{
    static const char *const parts[] = {"the ", "old ", "dog's ", "house", " 42", ".\n",
                                        "\n\n", "é",    "— ",     "key",   "  "};
    static const char separator[] = "\n<|endoftext|>\n";
    size_t len = 0, end = 0;
    while (len + 20 < cap) {
        if (len >= end) {
            memcpy(text + len, separator, len > 0 ? sizeof separator - 1 : 0);
            len += len > 0 ? sizeof separator - 1 : 0;
            end =
                len + (size_t)(pl_prng_below(r, 4) == 0 ? pl_prng_below(r, 900000) : pl_prng_below(r, 2000));
        }
        const char *part = words ? parts[pl_prng_below(r, 11)] : "xyzzy";
        memcpy(text + len, part, strlen(part));
        len += strlen(part);
    }
    return len;
}

static void encode_with(const struct pl_tokenizer *t, uint32_t threads, const char *in, const char *out,
                        struct pl_encode_result *result)
{
    struct pl_pool *pool = pl_pool_new(&alloc, threads);
    assert_non_null(pool);
    if (pl_encode_files(&alloc, t, pool, &in, 1, out, result, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
    pl_pool_free(pool);
}

/* The text of a token file as `pelago data decode` prints it. */
static void check_decoded(const struct pl_tokenizer *t, const char *path, const char *text, size_t len)
{
    struct pl_tokens *tokens;
    assert_int_equal(pl_tokens_open(&tokens, &alloc, path, &err), PELAGO_OK);
    uint64_t count = pl_tokens_info(tokens)->tokens;
    int32_t *ids = malloc(count * sizeof *ids);
    assert_non_null(ids);
    assert_int_equal(pl_tokens_fetch(tokens, 0, count, ids, NULL, &err), PELAGO_OK);
    size_t at = 0;
    for (uint64_t i = 0; i + 1 < count; i++) {
        struct pl_bytes bytes = pl_tokenizer_bytes(t, (uint32_t)ids[i]);
        if (bytes.len > len - at || memcmp(text + at, bytes.data, bytes.len) != 0)
            fail_msg("token %llu is not what the text has at %zu", (unsigned long long)i, at);
        at += bytes.len;
        at += (uint32_t)ids[i] == pl_tokenizer_end_of_text(t); /* its line end */
    }
    assert_int_equal(at, len);
    assert_int_equal(ids[count - 1], pl_tokenizer_end_of_text(t));
    free(ids);
    pl_tokens_close(tokens);
}

static void check_same_file(const char *a, const char *b)
{
    FILE *f = fopen(a, "rb"), *g = fopen(b, "rb");
    assert_non_null(f);
    assert_non_null(g);
    int c;
    do {
        c = fgetc(f);
        assert_int_equal(c, fgetc(g));
    } while (c != EOF);
    (void)fclose(f);
    (void)fclose(g);
}

static void check_threads(const struct pl_tokenizer *t, struct pl_prng *r, bool words)
{
    enum { CAP = 3 << 20 };
    char *text = malloc(CAP);
    assert_non_null(text);
    size_t len = random_documents(r, text, CAP, words);
    tempdir_put(&dir, "a.txt", text, len);
    struct pl_encode_result one, many;
    encode_with(t, 1, tempdir_path(&dir, "a.txt"), tempdir_path(&dir, "1.tok"), &one);
    encode_with(t, 3, tempdir_path(&dir, "a.txt"), tempdir_path(&dir, "3.tok"), &many);
    assert_memory_equal(&one, &many, sizeof one);
    check_same_file(tempdir_path(&dir, "1.tok"), tempdir_path(&dir, "3.tok"));
    check_decoded(t, tempdir_path(&dir, "3.tok"), text, len);
    free(text);
}

static void threads_do_not_matter(void **state)
{
    (void)state;
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 0);
    struct pl_tokenizer *t = rig_train(&alloc, PL_TRAIN_BPE, rig_text, 350);
    assert_true(pl_tokenizer_allows_cuts(t));
    check_threads(t, &r, true);
    check_threads(t, &r, false);
    pl_tokenizer_free(t);
}

/* A tokenizer that cuts at every letter e: no place is safe, so documents stay whole. */
static void without_cuts_documents_stay_whole(void **state)
{
    (void)state;
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 1);
    struct pl_tokenizer *base = rig_train(&alloc, PL_TRAIN_BPE, rig_text, 350), *t;
    char *json = rig_replace(
        base, "\"pre_tokenizer\": {",
        "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", "
        "\"pattern\": {\"Regex\": \"e|y .\"}, \"behavior\": \"Isolated\", \"invert\": false}, {\"type\": "
        "\"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}]}, \"x\": {");
    assert_int_equal(pl_tokenizer_parse(&t, &alloc, json, strlen(json), &err), PELAGO_OK);
    free(json);
    assert_false(pl_tokenizer_allows_cuts(t));
    check_threads(t, &r, true);
    pl_tokenizer_free(t);
    pl_tokenizer_free(base);
}

static void a_bad_input_leaves_no_file(void **state)
{
    (void)state;
    struct pl_tokenizer *t = rig_train(&alloc, PL_TRAIN_CHARS, "abc \n", 0);
    struct pl_pool *pool = pl_pool_new(&alloc, 2);
    struct pl_encode_result result;
    const char *in = tempdir_path(&dir, "a.txt"), *out = tempdir_path(&dir, "a.tok");
    tempdir_put(&dir, "a.txt", "abcd", 4);
    assert_int_equal(pl_encode_files(&alloc, t, pool, &in, 1, out, &result, &err), PELAGO_INVALID);
    assert_non_null(strstr(err.text, "U+64"));
    tempdir_put(&dir, "a.txt", "", 0);
    assert_int_equal(pl_encode_files(&alloc, t, pool, &in, 1, out, &result, &err), PELAGO_INVALID);
    assert_int_equal(tempdir_count(&dir), 1);
    pl_pool_free(pool);
    pl_tokenizer_free(t);
}

/* ---- training ---- */

struct slow_word {
    uint32_t symbols[40];
    size_t len;
    uint64_t count;
};

/* The pair that occurs most often, of equals the lower one; counted anew. */
static uint64_t count_best(const struct slow_word *words, size_t n, uint32_t symbols, uint32_t *left,
                           uint32_t *right)
{
    uint64_t best = 0, *counts = calloc((size_t)symbols * symbols, sizeof *counts);
    assert_non_null(counts);
    for (size_t w = 0; w < n; w++)
        for (size_t i = 0; i + 1 < words[w].len; i++)
            counts[words[w].symbols[i] * symbols + words[w].symbols[i + 1]] += words[w].count;
    for (uint32_t a = 0; a < symbols; a++)
        for (uint32_t b = 0; b < symbols; b++)
            if (counts[a * symbols + b] > best) {
                best = counts[a * symbols + b];
                *left = a;
                *right = b;
            }
    free(counts);
    return best;
}

static void merge_slowly(struct slow_word *w, uint32_t left, uint32_t right, uint32_t made)
{
    size_t out = 0;
    for (size_t i = 0; i < w->len; i++)
        if (i + 1 < w->len && w->symbols[i] == left && w->symbols[i + 1] == right) {
            w->symbols[out++] = made;
            i++;
        } else
            w->symbols[out++] = w->symbols[i];
    w->len = out;
}

/* Words of three letters, so that pairs repeat and overlap. */
static void training_counts_right(void **state)
{
    (void)state;
    enum { WORDS = 60, VOCAB = 330 };
    static struct slow_word slow[WORDS];
    struct pl_words_table words;
    struct pl_bpe_model model;
    struct pl_prng r;
    pl_prng_seed(&r, test_seed(), 0);
    pl_words_init(&words, &alloc);
    pl_bpe_model_init(&model, &alloc);
    for (size_t w = 0; w < WORDS; w++) {
        uint8_t text[40];
        slow[w].len = (size_t)pl_prng_range(&r, 1, 30);
        slow[w].count = pl_prng_range(&r, 1, 20);
        for (size_t i = 0; i < slow[w].len; i++) {
            uint8_t c = (uint8_t)('a' + pl_prng_below(&r, 3));
            text[i] = c;
            slow[w].symbols[i] = 1 + (c - '!');
        }
        assert_int_equal(pl_words_add(&words, text, slow[w].len, slow[w].count), PELAGO_OK);
    }
    assert_int_equal(pl_bpe_train(&model, &words, VOCAB, 2), PELAGO_OK);
    const uint32_t *merges = (const uint32_t *)(const void *)model.merges.data;
    size_t count = model.merges.len / 8;
    assert_true(count > 30);
    uint32_t made = 257;
    for (size_t m = 0; m < count; m++) {
        uint32_t left = 0, right = 0;
        uint64_t best = count_best(slow, WORDS, made + 1, &left, &right);
        if (best < 2 || merges[2 * m] != left || merges[2 * m + 1] != right)
            fail_msg("merge %zu is %u %u, expected %u %u, which occurs %llu times", m, merges[2 * m],
                     merges[2 * m + 1], left, right, (unsigned long long)best);
        /* Two pairs may make the same token. */
        const struct pl_word *a = &model.tokens.words[left - 1], *b = &model.tokens.words[right - 1];
        uint8_t bytes[80];
        memcpy(bytes, model.tokens.bytes.data + a->offset, a->len);
        memcpy(bytes + a->len, model.tokens.bytes.data + b->offset, b->len);
        uint32_t token = 1 + pl_words_find(&model.tokens, bytes, a->len + b->len);
        assert_true(token <= made);
        made += token == made;
        for (size_t w = 0; w < WORDS; w++)
            merge_slowly(&slow[w], left, right, token);
    }
    pl_bpe_model_release(&model);
    pl_words_release(&words);
}

static void trained_by_any_number_of_threads(void **state)
{
    (void)state;
    struct pl_tokenizer *made[2];
    static const uint32_t threads[2] = {1, 3};
    enum { CAP = 2 << 20 };
    struct pl_prng r;
    char *text = malloc(CAP);
    assert_non_null(text);
    pl_prng_seed(&r, test_seed(), 0);
    size_t len = random_documents(&r, text, CAP, true);
    for (int i = 0; i < 2; i++) {
        struct pl_pool *pool = pl_pool_new(&alloc, threads[i]);
        struct pl_tokenizer_trainer *trainer = pl_tokenizer_trainer_new(&alloc, pool, PL_TRAIN_BPE, 300);
        struct pl_text_sink sink = pl_tokenizer_trainer_sink(trainer);
        assert_int_equal(sink.text(sink.user, (const uint8_t *)text, len, &err), PELAGO_OK);
        assert_int_equal(sink.end(sink.user, &err), PELAGO_OK);
        assert_int_equal(pl_tokenizer_trainer_finish(trainer, &made[i], &err), PELAGO_OK);
        assert_int_equal(pl_tokenizer_trainer_bytes(trainer), len);
        pl_tokenizer_trainer_free(trainer);
        pl_pool_free(pool);
    }
    struct pl_bytes a = pl_tokenizer_json(made[0]), b = pl_tokenizer_json(made[1]);
    assert_int_equal(a.len, b.len);
    assert_memory_equal(a.data, b.data, a.len);
    pl_tokenizer_free(made[0]);
    pl_tokenizer_free(made[1]);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(threads_do_not_matter, set_up, tear_down),
        cmocka_unit_test_setup_teardown(without_cuts_documents_stay_whole, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_bad_input_leaves_no_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(training_counts_right, set_up, tear_down),
        cmocka_unit_test_setup_teardown(trained_by_any_number_of_threads, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
