/* What training reads: the order of sequences, the tales as an endless stream, files and what is held out of them. */
#include "data/tokens.h"
#include "tempdir.h"
#include "train/batches.h"
#include "train/dataset.h"
#include "train/tales_stream.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

/* ---- batches ---- */

/* Token i is i. */
static enum pelago_status count_up(void *self, uint64_t at, uint64_t count, int32_t *out,
                                   struct pl_error *err)
{
    const uint64_t *tokens = self;
    (void)err;
    assert_true(*tokens == PL_NONE64 || at + count <= *tokens);
    for (uint64_t i = 0; i < count; i++)
        out[i] = (int32_t)(at + i);
    return PELAGO_OK;
}

static void fetch(struct pl_batches *b, uint64_t first, uint32_t count, int32_t *tokens, int32_t *targets)
{
    struct pl_sequences source = pl_batches_sequences(b);
    struct pl_error err;
    assert_int_equal(source.fetch(source.self, first, count, b->seq, tokens, targets, &err), PELAGO_OK);
}

static void test_an_epoch_has_no_token_twice(void **state)
{
    (void)state;
    struct pl_alloc alloc = pl_alloc_system();
    const uint64_t sizes[] = {11, 20, 21, 57, 1000};
    for (unsigned s = 0; s < 5; s++) {
        uint64_t size = sizes[s];
        struct pl_stream stream = {size, count_up, &size};
        struct pl_batches b;
        struct pl_error err;
        int32_t tokens[10], targets[10];
        assert_int_equal(pl_batches_init(&b, &alloc, &stream, 10, 3, &err), PELAGO_OK);
        uint64_t windows = pl_batches_epoch_tokens(&b) / 10;
        assert_true(windows >= 1 && windows * 10 + 20 >= size - 1);
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            uint8_t seen[1001] = {0};
            for (uint64_t i = 0; i < windows; i++) {
                fetch(&b, epoch * windows + i, 1, tokens, targets);
                for (unsigned j = 0; j < 10; j++) {
                    assert_int_equal(targets[j], tokens[j] + 1);
                    assert_int_equal(seen[tokens[j]]++, 0);
                }
            }
        }
        pl_batches_release(&b);
    }
}

static void test_a_sequence_depends_on_its_number_alone(void **state)
{
    (void)state;
    struct pl_alloc alloc = pl_alloc_system();
    uint64_t size = 5000;
    struct pl_stream stream = {size, count_up, &size};
    struct pl_batches a, b, other;
    struct pl_error err;
    int32_t together[64], targets[64], alone[8], unused[8];
    unsigned same = 0;
    assert_int_equal(pl_batches_init(&a, &alloc, &stream, 8, 5, &err), PELAGO_OK);
    assert_int_equal(pl_batches_init(&b, &alloc, &stream, 8, 5, &err), PELAGO_OK);
    assert_int_equal(pl_batches_init(&other, &alloc, &stream, 8, 6, &err), PELAGO_OK);
    fetch(&a, 1000, 8, together, targets);
    for (unsigned i = 8; i-- > 0;) {
        fetch(&b, 1000 + i, 1, alone, unused);
        assert_memory_equal(alone, together + 8 * i, sizeof alone);
        fetch(&other, 1000 + i, 1, alone, unused);
        same += alone[0] == together[8 * i] ? 1 : 0;
    }
    assert_true(same < 8);
    pl_batches_release(&a);
    pl_batches_release(&b);
    pl_batches_release(&other);
}

static void test_an_endless_stream_is_read_in_order(void **state)
{
    (void)state;
    struct pl_alloc alloc = pl_alloc_system();
    uint64_t size = PL_NONE64;
    struct pl_stream stream = {size, count_up, &size};
    struct pl_batches b;
    struct pl_error err;
    int32_t tokens[20], targets[20];
    assert_int_equal(pl_batches_init(&b, &alloc, &stream, 10, 5, &err), PELAGO_OK);
    assert_int_equal(pl_batches_epoch_tokens(&b), PL_NONE64);
    fetch(&b, 7, 2, tokens, targets);
    assert_int_equal(tokens[0], 70);
    assert_int_equal(tokens[19], 89);
    assert_int_equal(targets[19], 90);
    pl_batches_release(&b);
}

static void test_too_little_for_a_sequence(void **state)
{
    (void)state;
    struct pl_alloc alloc = pl_alloc_system();
    uint64_t size = 10;
    struct pl_stream stream = {size, count_up, &size};
    struct pl_batches b;
    struct pl_error err;
    assert_int_equal(pl_batches_init(&b, &alloc, &stream, 10, 5, &err), PELAGO_INVALID);
    assert_string_equal(err.text,
                        "the training data has 10 tokens, fewer than one sequence of 10 and its next token");
    pl_batches_release(&b);
}

/* ---- tales ---- */

static struct pl_dataset *open_set(const struct pl_dataset_options *o)
{
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_dataset *d;
    struct pl_error err = {0};
    if (pl_dataset_open(&d, &alloc, o, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
    return d;
}

static void refuse(const struct pl_dataset_options *o, const char *words)
{
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_dataset *d;
    struct pl_error err = {0};
    assert_int_not_equal(pl_dataset_open(&d, &alloc, o, &err), PELAGO_OK);
    assert_null(d);
    if (strstr(err.text, words) == NULL)
        fail_msg("expected '%s' in: %s", words, err.text);
}

static void read_at(const struct pl_stream *s, uint64_t at, uint64_t count, int32_t *out)
{
    struct pl_error err = {0};
    if (s->read(s->self, at, count, out, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
}

/* Any place, in any order, with any number of threads. */
static void test_tales_are_the_same_everywhere(void **state)
{
    (void)state;
    const struct pl_dataset_options o = {
        .data = PL_DATASET_TALES, .tokenizer = "byte", .valid_tokens = 5000, .threads = 1};
    struct pl_dataset_options o3 = o;
    o3.threads = 3;
    struct pl_dataset *one = open_set(&o), *three = open_set(&o3);
    static int32_t a[70000], b[70000];
    assert_int_equal(one->train.tokens, PL_NONE64);
    assert_int_equal(one->vocab, 257);
    read_at(&one->train, 0, 70000, a);
    for (uint64_t at = 70000; at > 0; at -= 7000)
        read_at(&three->train, at - 7000, 7000, b + at - 7000);
    assert_memory_equal(a, b, sizeof a);
    read_at(&one->train, UINT64_C(1) << 40, 100, a);
    read_at(&three->train, (UINT64_C(1) << 40) + 50, 50, b);
    assert_memory_equal(a + 50, b, 50 * sizeof *b);
    pl_dataset_close(one);
    pl_dataset_close(three);
}

static void test_tales_by_seed(void **state)
{
    (void)state;
    struct pl_dataset_options o = {
        .data = PL_DATASET_TALES, .tokenizer = "byte", .valid_tokens = 5000, .threads = 1, .seed = 1};
    struct pl_dataset *a = open_set(&o);
    o.seed = 2;
    struct pl_dataset *b = open_set(&o);
    int32_t x[500], y[500];
    read_at(&a->train, 0, 500, x);
    read_at(&b->train, 0, 500, y);
    assert_memory_not_equal(x, y, sizeof x);
    assert_int_equal(a->valid.tokens, b->valid.tokens); /* one validation set for all */
    read_at(&a->valid, 0, 500, x);
    read_at(&b->valid, 0, 500, y);
    assert_memory_equal(x, y, sizeof x);
    pl_dataset_close(a);
    pl_dataset_close(b);
}

/* Bytes are tokens here: the text of the validation set is all predicted, and its floor is that of its stories. */
static void test_the_floor_belongs_to_the_text(void **state)
{
    (void)state;
    struct pl_alloc alloc = pl_alloc_system();
    const struct pl_dataset_options o = {
        .data = PL_DATASET_TALES, .tokenizer = "byte", .valid_tokens = 20000, .threads = 1};
    struct pl_dataset *d = open_set(&o);
    struct pl_tales *tales;
    struct pl_buf text;
    double nats = 0;
    uint64_t stories = 0, tokens = 0;
    assert_int_equal(pl_tales_open(&alloc, &tales), PELAGO_OK);
    pl_buf_init(&text, &alloc, 1 << 20);
    while (tokens < 20000) {
        size_t before = text.len;
        assert_int_equal(pl_tales_story(tales, 1, PL_TALES_VALID, stories++, &text, &nats), PELAGO_OK);
        tokens += text.len - before - strlen(PL_TALES_SEPARATOR) + 1;
    }
    assert_int_equal(d->valid.tokens, tokens + 1);
    assert_true(d->valid_floor == nats);
    assert_true(d->valid_bytes == (double)(tokens - stories));
    pl_buf_release(&text);
    pl_tales_close(tales);
    pl_dataset_close(d);
}

/* ---- files ---- */

static const char *put_text(const struct tempdir *temp, const char *name, unsigned lines)
{
    static char text[200000];
    size_t len = 0;
    for (unsigned i = 0; i < lines; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, "line %u of a poem about the sea\n", i);
    tempdir_put(temp, name, text, len);
    return tempdir_path(temp, name);
}

static void test_text_holds_a_part_back(void **state)
{
    (void)state;
    struct tempdir temp;
    tempdir_init(&temp);
    struct pl_dataset_options o = {
        .data = put_text(&temp, "a.txt", 1000), .tokenizer = "char", .valid_tokens = 1000000};
    struct pl_dataset *d = open_set(&o);
    uint64_t all = d->train.tokens + d->valid.tokens;
    assert_int_equal(d->valid.tokens, all / 20);
    assert_true(d->valid_floor == 0 && d->valid_bytes > 0 && d->vocab < 40);
    pl_dataset_close(d);
    o.valid_tokens = 100;
    d = open_set(&o);
    assert_int_equal(d->valid.tokens, 101);
    assert_int_equal(d->train.tokens, all - 101);
    pl_dataset_close(d);
    tempdir_release(&temp);
}

static void test_a_validation_file_of_its_own(void **state)
{
    (void)state;
    struct tempdir temp;
    tempdir_init(&temp);
    tempdir_put(&temp, "b.txt", "@", 1); /* a character the other text lacks */
    struct pl_dataset_options o = {.data = put_text(&temp, "a.txt", 100),
                                   .valid = tempdir_path(&temp, "b.txt"),
                                   .tokenizer = "char",
                                   .valid_tokens = 1000};
    struct pl_dataset *d = open_set(&o);
    assert_int_equal(d->valid.tokens, 2); /* and the end of the text */
    assert_true(d->valid_bytes == 0);
    pl_dataset_close(d);
    tempdir_release(&temp);
}

static void test_bytes_pairs_are_learned_from_the_text(void **state)
{
    (void)state;
    struct tempdir temp;
    tempdir_init(&temp);
    struct pl_dataset_options o = {
        .data = put_text(&temp, "a.txt", 1000), .vocab = 300, .valid_tokens = 1000, .threads = 2};
    struct pl_dataset *d = open_set(&o);
    assert_true(d->vocab > 257 && d->vocab <= 300);
    /* Another run, given that tokenizer: the same tokens. */
    struct pl_bytes json = pl_tokenizer_json(d->tokenizer);
    o.json = json;
    o.vocab = 0;
    struct pl_dataset *again = open_set(&o);
    int32_t x[100], y[100];
    assert_int_equal(again->train.tokens, d->train.tokens);
    read_at(&d->train, 500, 100, x);
    read_at(&again->train, 500, 100, y);
    assert_memory_equal(x, y, sizeof x);
    pl_dataset_close(again);
    pl_dataset_close(d);
    tempdir_release(&temp);
}

static void write_tokens(const char *path, uint64_t digest)
{
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_tokens_writer *w;
    struct pl_error err = {0};
    uint32_t ids[1000];
    for (uint32_t i = 0; i < 1000; i++)
        ids[i] = i % 50;
    assert_int_equal(pl_tokens_create(&w, &alloc, path, 50, digest, &err), PELAGO_OK);
    assert_int_equal(pl_tokens_append(w, ids, 1000, &err), PELAGO_OK);
    assert_int_equal(pl_tokens_commit(w, 4000, 1, &err), PELAGO_OK);
}

static void test_token_files(void **state)
{
    (void)state;
    struct tempdir temp;
    tempdir_init(&temp);
    struct pl_dataset_options o = {.data = tempdir_path(&temp, "a.tok"), .valid_tokens = 1000};
    write_tokens(o.data, 77);
    struct pl_dataset *d = open_set(&o);
    int32_t x[3];
    assert_null(d->tokenizer);
    assert_int_equal(d->vocab, 50);
    assert_int_equal(d->train.tokens, 950);
    read_at(&d->valid, 0, 3, x);
    assert_int_equal(x[1], 1);
    assert_true(d->valid_bytes == 4.0 * 49);
    pl_dataset_close(d);
    o.tokenizer = "byte"; /* its digest is not 77 */
    refuse(&o, "cannot be made from a token file");
    o.tokenizer = NULL;
    o.valid = put_text(&temp, "v.txt", 10);
    refuse(&o, "cannot be made from a token file");
    tempdir_release(&temp);
}

static void test_bad_data(void **state)
{
    (void)state;
    struct tempdir temp;
    tempdir_init(&temp);
    struct pl_dataset_options o = {.data = tempdir_path(&temp, "none.txt"), .vocab = 300, .valid_tokens = 10};
    refuse(&o, "none.txt");
    tempdir_put(&temp, "empty.txt", "", 0);
    o.data = tempdir_path(&temp, "empty.txt");
    refuse(&o, "empty");
    tempdir_put(&temp, "latin.txt", "caf\xe9", 4);
    o.data = tempdir_path(&temp, "latin.txt");
    o.tokenizer = "char";
    refuse(&o, "UTF-8");
    o.tokenizer = NULL;
    o.vocab = 100;
    refuse(&o, "at least 257");
    o = (struct pl_dataset_options){.valid = put_text(&temp, "v.txt", 10), .valid_tokens = 10};
    refuse(&o, "no tokenizer");
    tempdir_release(&temp);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_epoch_has_no_token_twice),
        cmocka_unit_test(test_a_sequence_depends_on_its_number_alone),
        cmocka_unit_test(test_an_endless_stream_is_read_in_order),
        cmocka_unit_test(test_too_little_for_a_sequence),
        cmocka_unit_test(test_tales_are_the_same_everywhere),
        cmocka_unit_test(test_tales_by_seed),
        cmocka_unit_test(test_the_floor_belongs_to_the_text),
        cmocka_unit_test(test_text_holds_a_part_back),
        cmocka_unit_test(test_a_validation_file_of_its_own),
        cmocka_unit_test(test_bytes_pairs_are_learned_from_the_text),
        cmocka_unit_test(test_token_files),
        cmocka_unit_test(test_bad_data),
    };
    return cmocka_run_group_tests_name("train_data", tests, NULL, NULL);
}
