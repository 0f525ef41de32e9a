/* Tokenizers: text comes back from its tokens, merging follows its rule, and every bad tokenizer.json gets its sentence. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/limits.h"
#include "base/prng.h"
#include "data/tokenizer.h"
#include "data/tokenizer_json.h"
#include "seed.h"
#include "tempdir.h"
#include "tokenizer_rig.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static struct pl_alloc alloc;
static struct pl_error err;
static struct pl_tokenizer *bpe; /* trained on rig_text */

static int set_up(void **state)
{
    (void)state;
    alloc = pl_alloc_system();
    bpe = rig_train(&alloc, PL_TRAIN_BPE, rig_text, 400);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    pl_tokenizer_free(bpe);
    return 0;
}

static struct pl_ids encode(const struct pl_tokenizer *t, const void *text, size_t len,
                            enum pl_specials specials)
{
    struct pl_encoder *e = pl_encoder_new(&alloc, t);
    struct pl_ids ids;
    assert_non_null(e);
    pl_ids_init(&ids, &alloc);
    if (pl_encoder_run(e, text, len, specials, &ids, &err) != PELAGO_OK)
        fail_msg("not encoded: %s", err.text);
    pl_encoder_free(e);
    return ids;
}

static struct pl_buf decode(const struct pl_tokenizer *t, const struct pl_ids *ids)
{
    struct pl_buf out;
    struct pl_decoder d = {{0}, 0};
    pl_buf_init(&out, &alloc, 1 << 24);
    for (size_t i = 0; i < ids->count; i++)
        assert_int_equal(pl_decoder_push(&d, t, ids->at[i], &out), PELAGO_OK);
    assert_int_equal(pl_decoder_finish(&d, &out), PELAGO_OK);
    return out;
}

static size_t round_trip(const struct pl_tokenizer *t, const void *text, size_t len)
{
    struct pl_ids ids = encode(t, text, len, PL_SPECIALS_FIND);
    struct pl_buf back = decode(t, &ids);
    size_t count = ids.count;
    assert_int_equal(back.len, len);
    if (len > 0)
        assert_memory_equal(back.data, text, len);
    pl_buf_release(&back);
    pl_ids_release(&ids);
    return count;
}

/* ---- encoding ---- */

static void any_bytes_come_back(void **state)
{
    (void)state;
    struct pl_prng r;
    uint8_t text[3000];
    pl_prng_seed(&r, test_seed(), 0);
    assert_int_equal(round_trip(bpe, "", 0), 0);
    assert_true(round_trip(bpe, rig_text, strlen(rig_text)) < strlen(rig_text) / 2);
    for (int i = 0; i < 300; i++) {
        size_t len = (size_t)pl_prng_below(&r, sizeof text);
        uint64_t narrow = pl_prng_below(&r, 3); /* few kinds of bytes make long pieces */
        for (size_t k = 0; k < len; k++)
            text[k] =
                (uint8_t)(narrow == 0 ? pl_prng_next(&r) : 'a' + pl_prng_below(&r, narrow == 1 ? 3 : 26));
        round_trip(bpe, text, len);
    }
}

/* Tokens by the rule, slowly: the pair of the lowest rank, the leftmost of equals. Ranks are the order of the tokens. */
static size_t merge_slowly(const struct pl_tokenizer *t, uint32_t *ids, size_t n)
{
    for (;;) {
        size_t best = SIZE_MAX;
        uint32_t made = PL_NONE32;
        for (size_t i = 0; i + 1 < n; i++) {
            struct pl_bytes a = pl_tokenizer_bytes(t, ids[i]), b = pl_tokenizer_bytes(t, ids[i + 1]);
            for (uint32_t id = 257; id < pl_tokenizer_vocab(t) && id < made; id++) {
                struct pl_bytes c = pl_tokenizer_bytes(t, id);
                if (c.len == a.len + b.len && memcmp(c.data, a.data, a.len) == 0 &&
                    memcmp((const uint8_t *)c.data + a.len, b.data, b.len) == 0) {
                    best = i;
                    made = id;
                }
            }
        }
        if (best == SIZE_MAX)
            return n;
        ids[best] = made;
        memmove(ids + best + 1, ids + best + 2, (--n - best - 1) * sizeof *ids);
    }
}

/* A tokenizer in which every token is made by one merge: aa, then aaaa, ab, ... A piece without cuts is merged as the rule
 * says, whether it is short or goes through the heap. */
static void merging_follows_the_rule(void **state)
{
    (void)state;
    char *json = rig_replace(bpe, "\"use_regex\": true", "\"use_regex\": false");
    struct pl_tokenizer *t;
    struct pl_prng r;
    assert_int_equal(pl_tokenizer_parse(&t, &alloc, json, strlen(json), &err), PELAGO_OK);
    free(json);
    assert_false(pl_tokenizer_allows_cuts(t));
    pl_prng_seed(&r, test_seed(), 0);
    for (int i = 0; i < 60; i++) {
        static const char *const words[] = {" the", " old", " app", "les", "nn", "A", "a", "e", " s", "mall"};
        char text[400];
        uint32_t slow[400];
        size_t len = 0, wanted = (size_t)pl_prng_range(&r, 1, 200);
        while (len < wanted) {
            const char *word = words[pl_prng_below(&r, 10)];
            memcpy(text + len, word, strlen(word));
            len += strlen(word);
        }
        for (size_t k = 0; k < len; k++) {
            struct pl_ids one = encode(t, text + k, 1, PL_SPECIALS_FIND);
            assert_int_equal(one.count, 1);
            slow[k] = one.at[0];
            pl_ids_release(&one);
        }
        size_t count = merge_slowly(t, slow, len);
        struct pl_ids fast = encode(t, text, len, PL_SPECIALS_FIND);
        assert_int_equal(fast.count, count);
        assert_memory_equal(fast.at, slow, count * sizeof *slow);
        pl_ids_release(&fast);
    }
    pl_tokenizer_free(t);
}

static void special_tokens_are_found_or_not(void **state)
{
    (void)state;
    static const char text[] = "the<|endoftext|>old<|endoftext|";
    uint32_t end = pl_tokenizer_end_of_text(bpe);
    assert_int_equal(end, 0);
    struct pl_ids found = encode(bpe, text, strlen(text), PL_SPECIALS_FIND);
    struct pl_ids plain = encode(bpe, text, strlen(text), PL_SPECIALS_AS_TEXT);
    unsigned ends[2] = {0, 0};
    for (size_t i = 0; i < found.count; i++)
        ends[0] += found.at[i] == end;
    for (size_t i = 0; i < plain.count; i++)
        ends[1] += plain.at[i] == end;
    assert_int_equal(ends[0], 1);
    assert_int_equal(ends[1], 0);
    struct pl_buf a = decode(bpe, &found), b = decode(bpe, &plain);
    assert_int_equal(a.len, strlen(text));
    assert_int_equal(b.len, strlen(text));
    assert_memory_equal(a.data, text, a.len);
    assert_memory_equal(b.data, text, b.len);
    pl_buf_release(&a);
    pl_buf_release(&b);
    pl_ids_release(&found);
    pl_ids_release(&plain);
}

static void a_stream_ends_between_characters(void **state)
{
    (void)state;
    static const char text[] = "é日🙂\xf0\x9f";
    struct pl_tokenizer *bytes = rig_train(&alloc, PL_TRAIN_BYTES, "", 0);
    struct pl_ids ids = encode(bytes, text, strlen(text), PL_SPECIALS_FIND);
    static const size_t ready[] = {0, 2, 2, 2, 5, 5, 5, 5, 9, 9, 9};
    struct pl_decoder d = {{0}, 0};
    struct pl_buf out;
    pl_buf_init(&out, &alloc, 100);
    assert_int_equal(pl_tokenizer_vocab(bytes), 257);
    assert_int_equal(ids.count, 11);
    for (size_t i = 0; i < ids.count; i++) {
        assert_int_equal(pl_decoder_push(&d, bytes, ids.at[i], &out), PELAGO_OK);
        assert_int_equal(out.len, ready[i]);
    }
    assert_int_equal(pl_decoder_finish(&d, &out), PELAGO_OK);
    assert_int_equal(out.len, strlen(text));
    assert_memory_equal(out.data, text, out.len);
    pl_buf_release(&out);
    pl_ids_release(&ids);
    pl_tokenizer_free(bytes);
}

static void characters_are_tokens(void **state)
{
    (void)state;
    static const char text[] = "abba — é日🙂\n";
    struct pl_tokenizer *t = rig_train(&alloc, PL_TRAIN_CHARS, text, 0);
    struct pl_encoder *e = pl_encoder_new(&alloc, t);
    struct pl_ids ids;
    assert_int_equal(pl_tokenizer_vocab(t), 9);
    assert_int_equal(round_trip(t, text, strlen(text)), 11);
    assert_int_equal(round_trip(t, "ab<|endoftext|>", 15), 3);
    pl_ids_init(&ids, &alloc);
    assert_int_equal(pl_encoder_run(e, "ac", 2, PL_SPECIALS_FIND, &ids, &err), PELAGO_INVALID);
    assert_string_equal(err.text, "the character U+63 is not in the vocabulary");
    assert_int_equal(pl_encoder_run(e, "a\xff", 2, PL_SPECIALS_FIND, &ids, &err), PELAGO_INVALID);
    pl_ids_release(&ids);
    pl_encoder_free(e);
    pl_tokenizer_free(t);
}

/* ---- files ---- */

static void saved_and_loaded_it_is_the_same(void **state)
{
    (void)state;
    struct tempdir dir;
    struct pl_tokenizer *again, *nothing;
    tempdir_init(&dir);
    const char *path = tempdir_path(&dir, "tokenizer.json");
    assert_int_equal(pl_tokenizer_save(bpe, path, &err), PELAGO_OK);
    assert_int_equal(tempdir_count(&dir), 1);
    assert_int_equal(pl_tokenizer_load(&again, &alloc, path, &err), PELAGO_OK);
    assert_true(pl_tokenizer_digest(again) == pl_tokenizer_digest(bpe));
    pl_tokenizer_free(again);
    assert_int_equal(pl_tokenizer_load(&again, &alloc, dir.path, &err), PELAGO_OK);
    assert_int_equal(pl_tokenizer_vocab(again), pl_tokenizer_vocab(bpe));
    pl_tokenizer_free(again);
    assert_int_equal(pl_tokenizer_load(&nothing, &alloc, tempdir_path(&dir, "none.json"), &err),
                     PELAGO_NOTFOUND);
    assert_non_null(strstr(err.text, "none.json could not be read"));
    assert_int_equal(pl_tokenizer_save(bpe, tempdir_path(&dir, "no/folder"), &err), PELAGO_IO);
    tempdir_release(&dir);
}

/* The two files of GPT-2, made from a tokenizer.json. */
static void put_pair(const struct tempdir *dir, const char *tail)
{
    struct pl_bytes json = pl_tokenizer_json(bpe);
    struct pl_buf merges;
    json_t *root = json_loadb(json.data, json.len, 0, NULL), *model = json_object_get(root, "model"), *merge;
    char *vocab = json_dumps(json_object_get(model, "vocab"), 0);
    size_t i;
    pl_buf_init(&merges, &alloc, 1 << 20);
    assert_int_equal(pl_buf_append(&merges, "#version: 0.2\n", 14), PELAGO_OK);
    json_array_foreach(json_object_get(model, "merges"), i, merge)
    {
        assert_int_equal(pl_buf_append(&merges, json_string_value(merge), json_string_length(merge)),
                         PELAGO_OK);
        assert_int_equal(pl_buf_append(&merges, "\r\n", 2), PELAGO_OK);
    }
    assert_int_equal(pl_buf_append(&merges, tail, strlen(tail)), PELAGO_OK);
    tempdir_put(dir, "encoder.json", vocab, strlen(vocab));
    tempdir_put(dir, "vocab.bpe", merges.data, merges.len);
    pl_buf_release(&merges);
    free(vocab);
    json_decref(root);
}

static void the_two_files_of_gpt2_are_the_same(void **state)
{
    (void)state;
    struct tempdir dir;
    struct pl_tokenizer *t;
    tempdir_init(&dir);
    assert_int_equal(pl_tokenizer_load(&t, &alloc, dir.path, &err), PELAGO_NOTFOUND);
    assert_non_null(strstr(err.text, "holds no tokenizer.json"));
    put_pair(&dir, "");
    if (pl_tokenizer_load(&t, &alloc, dir.path, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
    assert_true(pl_tokenizer_digest(t) == pl_tokenizer_digest(bpe));
    pl_tokenizer_free(t);
    put_pair(&dir, "no-such pair\n");
    assert_int_equal(pl_tokenizer_load(&t, &alloc, dir.path, &err), PELAGO_INVALID);
    assert_non_null(strstr(err.text, "names or makes a token"));
    put_pair(&dir, "\xff x\n");
    assert_int_equal(pl_tokenizer_load(&t, &alloc, dir.path, &err), PELAGO_INVALID);
    assert_non_null(strstr(err.text, "is not UTF-8"));
    tempdir_release(&dir);
}

/* ---- bad files ---- */

static void expect_refused(const char *json, enum pelago_status expected, const char *sentence)
{
    struct pl_tokenizer *t;
    err.text[0] = '\0';
    enum pelago_status status = pl_tokenizer_parse(&t, &alloc, json, strlen(json), &err);
    if (status != expected || strstr(err.text, sentence) == NULL)
        fail_msg("expected '%s', got %s: %s", sentence, pl_status_name(status), err.text);
    assert_null(t);
}

static void changed_files_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to;
        enum pelago_status status;
        const char *sentence;
    } cases[] = {
        {"\"version\"", "version", PELAGO_INVALID, "not valid JSON"},
        {"\"model\"", "\"modell\"", PELAGO_INVALID, "the field model is missing"},
        {"\"BPE\"", "\"Unigram\"", PELAGO_UNSUPPORTED, "model.type is 'Unigram'"},
        {"\"vocab\"", "\"vocabulary\"", PELAGO_INVALID, "model.vocab is missing"},
        {"\"merges\"", "\"mergers\"", PELAGO_INVALID, "model.merges is not a list"},
        {"\"a\": 65", "\"a\": 66", PELAGO_INVALID, "two tokens have the id 66"},
        {"\"a\": 65", "\"a\": -1", PELAGO_INVALID, "the id of the token 'a'"},
        {"\"a\": 65", "\"a\": 16777215", PELAGO_INVALID, "the id of the token 'a'"},
        {"\"a\": 65", "\"a\": 1e3", PELAGO_INVALID, "the id of the token 'a'"},
        {"\"a\": 65", "\"a\": \"65\"", PELAGO_INVALID, "the id of the token 'a'"},
        {"\"a\": 65", "\"\": 65", PELAGO_INVALID, "token 65 has no text"},
        {"\"a\": 65", "\"b\": 65", PELAGO_INVALID, "duplicate"},
        {"\"id\": 0", "\"id\": 1", PELAGO_INVALID, "has another id in model.vocab"},
        {"\"id\": 0", "\"id\": true", PELAGO_INVALID, "the id of the token '<|endoftext|>'"},
        {"\"content\": \"<|endoftext|>\"", "\"content\": \"\"", PELAGO_INVALID,
         "entry 0 of added_tokens has no content"},
        {"\"content\": \"<|endoftext|>\"", "\"content\": 1", PELAGO_INVALID,
         "entry 0 of added_tokens has no content"},
        {"\"single_word\": false", "\"single_word\": true", PELAGO_UNSUPPORTED, "is single_word"},
        {"\"added_tokens\": [", "\"added_tokens\": {}, \"x\": [", PELAGO_INVALID,
         "added_tokens is not a list"},
        {"\"normalizer\": null", "\"normalizer\": {\"type\": \"NFKC\"}", PELAGO_UNSUPPORTED, "'NFKC'"},
        {"\"normalizer\": null",
         "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Lowercase\"}]}",
         PELAGO_UNSUPPORTED, "'Lowercase'"},
        {"\"type\": \"ByteLevel\"", "\"type\": \"Metaspace\"", PELAGO_UNSUPPORTED, "'Metaspace'"},
        {"\"pre_tokenizer\": {", "\"pre_tokenizer\": null, \"x\": {", PELAGO_UNSUPPORTED,
         "not a byte-level tokenizer"},
        {"\"dropout\": null", "\"dropout\": 0.1", PELAGO_UNSUPPORTED, "model.dropout"},
        {"\"byte_fallback\": false", "\"byte_fallback\": true", PELAGO_UNSUPPORTED, "model.byte_fallback"},
        {"\"end_of_word_suffix\": null", "\"end_of_word_suffix\": \"</w>\"", PELAGO_UNSUPPORTED,
         "end_of_word_suffix"},
        {"\"h e\"", "\"he\"", PELAGO_INVALID, "is not two names of tokens"},
        {"\"h e\"", "\"h e x\"", PELAGO_INVALID, "is not two names of tokens"},
        {"\"h e\"", "[\"h\"]", PELAGO_INVALID, "is not two names of tokens"},
        {"\"h e\"", "[\"h\", 1]", PELAGO_INVALID, "is not two names of tokens"},
        {"\"h e\"", "\"h zz\"", PELAGO_INVALID, "names or makes a token"},
        {"\"h e\"", "\"z q\"", PELAGO_INVALID, "names or makes a token"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *json = rig_replace(bpe, cases[i].from, cases[i].to);
        expect_refused(json, cases[i].status, cases[i].sentence);
        free(json);
    }
    expect_refused("", PELAGO_INVALID, "not valid JSON");
    expect_refused("[]", PELAGO_INVALID, "not an object");
    expect_refused(
        "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"x\": 0}, \"merges\": []}, \"pre_tokenizer\": "
        "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"ByteLevel\"}, {\"type\": \"Digits\"}]}}",
        PELAGO_UNSUPPORTED, "after ByteLevel");
    expect_refused("{\"model\": {\"type\": \"WordLevel\", \"vocab\": {\"ab\": 0}}, \"pre_tokenizer\": "
                   "{\"type\": \"Split\", "
                   "\"pattern\": {\"Regex\": \"[\\\\s\\\\S]\"}, \"behavior\": \"Isolated\"}}",
                   PELAGO_UNSUPPORTED, "more than a character");
    expect_refused("{\"model\": {\"type\": \"WordLevel\", \"vocab\": {\"a\": 0}}, \"pre_tokenizer\": "
                   "{\"type\": \"Whitespace\"}}",
                   PELAGO_UNSUPPORTED, "by characters");
}

static void unknown_bytes_are_named(void **state)
{
    (void)state;
    char *json = rig_replace(bpe, "\"Z\": 58", "\"ZZ\": 58");
    struct pl_tokenizer *t;
    struct pl_ids ids;
    assert_int_equal(pl_tokenizer_parse(&t, &alloc, json, strlen(json), &err), PELAGO_OK);
    struct pl_encoder *e = pl_encoder_new(&alloc, t);
    pl_ids_init(&ids, &alloc);
    assert_int_equal(pl_encoder_run(e, "AZ", 2, PL_SPECIALS_FIND, &ids, &err), PELAGO_INVALID);
    assert_string_equal(err.text, "the vocabulary has no token for the byte 0x5a");
    assert_true(pl_tokenizer_digest(t) != pl_tokenizer_digest(bpe));
    pl_ids_release(&ids);
    pl_encoder_free(e);
    pl_tokenizer_free(t);
    free(json);
}

/* Every prefix of a file, and files with a byte changed: an answer, no crash. */
static void broken_files_do_no_harm(void **state)
{
    (void)state;
    struct pl_prng r;
    struct pl_bytes json = pl_tokenizer_json(bpe);
    struct pl_tokenizer *t;
    uint8_t *copy = malloc(json.len);
    assert_non_null(copy);
    pl_prng_seed(&r, test_seed(), 0);
    for (size_t len = 0; len < json.len; len += 97)
        assert_int_equal(pl_tokenizer_parse(&t, &alloc, json.data, len, &err), PELAGO_INVALID);
    for (int i = 0; i < 300; i++) {
        memcpy(copy, json.data, json.len);
        copy[pl_prng_below(&r, json.len)] = (uint8_t)pl_prng_range(&r, ' ', '~');
        if (pl_tokenizer_parse(&t, &alloc, copy, json.len, &err) == PELAGO_OK)
            pl_tokenizer_free(t);
    }
    free(copy);
}

/* Wherever the room ends, also within a name: no memory, and never a text with something left out. */
static void a_text_is_whole_or_refused(void **state)
{
    (void)state;
    struct pl_buf out;
    size_t whole = 0;
    for (size_t max = 1 << 16; whole == 0 || max<whole; max = whole> 0 && max > whole ? 0 : max + 1) {
        pl_buf_init(&out, &alloc, max);
        json_t *vocab = json_pack("{s:i, s:i, s:i}", "<|endoftext|>", 0, "a", 1, "b", 2);
        bool made = pl_tokjson_write_chars(vocab, &out, &err) == PELAGO_OK;
        assert_true(made == (whole == 0));
        whole = made ? out.len : whole;
        pl_buf_release(&out);
    }
    assert_true(whole > 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_bytes_come_back),
        cmocka_unit_test(merging_follows_the_rule),
        cmocka_unit_test(special_tokens_are_found_or_not),
        cmocka_unit_test(a_stream_ends_between_characters),
        cmocka_unit_test(characters_are_tokens),
        cmocka_unit_test(saved_and_loaded_it_is_the_same),
        cmocka_unit_test(the_two_files_of_gpt2_are_the_same),
        cmocka_unit_test(changed_files_are_refused),
        cmocka_unit_test(unknown_bytes_are_named),
        cmocka_unit_test(broken_files_do_no_harm),
        cmocka_unit_test(a_text_is_whole_or_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
