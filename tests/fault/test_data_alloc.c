/* The n-th allocation fails, for every n: training, loading, encoding and reading end with NOMEM, and nothing stays
 * allocated or half written. (What jansson, pcre2 and zstd allocate is theirs.) */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/limits.h"
#include "data/encode.h"
#include "data/tokenizer_train.h"
#include "memdisk.h"
#include "tempdir.h"
#include "tokenizer_rig.h"

#include <stdlib.h>
#include <string.h>

static struct tempdir dir;
static struct pl_error err;
static struct pl_pool *pool; /* threads of the system's allocator, shared by all runs */
static struct pl_alloc system_alloc;

static int set_up(void **state)
{
    (void)state;
    system_alloc = pl_alloc_system();
    pool = pl_pool_new(&system_alloc, 1);
    tempdir_init(&dir);
    tempdir_put(&dir, "a.txt", rig_text, strlen(rig_text));
    static const char line[] = "{\"text\": \"the old e\\u0301 dog\"}\n";
    tempdir_put(&dir, "a.jsonl", line, strlen(line));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tempdir_release(&dir);
    pl_pool_free(pool);
    return 0;
}

static enum pelago_status train(const struct pl_alloc *a, struct pl_tokenizer **t)
{
    const char *path = tempdir_path(&dir, "a.txt");
    struct pl_tokenizer_trainer *trainer = pl_tokenizer_trainer_new(a, pool, PL_TRAIN_BPE, 300);
    if (trainer == NULL)
        return PELAGO_NOMEM;
    struct pl_text_sink sink = pl_tokenizer_trainer_sink(trainer);
    enum pelago_status status = pl_corpus_read(a, &path, 1, &sink, &err);
    if (status == PELAGO_OK)
        status = pl_tokenizer_trainer_finish(trainer, t, &err);
    pl_tokenizer_trainer_free(trainer);
    return status;
}

static enum pelago_status encode(const struct pl_alloc *a, const struct pl_tokenizer *t)
{
    const char *paths[2] = {tempdir_path(&dir, "a.txt"), tempdir_path(&dir, "a.jsonl")};
    struct pl_encode_result result;
    return pl_encode_files(a, t, pool, paths, 2, tempdir_path(&dir, "a.tok"), &result, &err);
}

static enum pelago_status read_back(const struct pl_alloc *a)
{
    struct pl_tokens *tokens;
    PL_TRY(pl_tokens_open(&tokens, a, tempdir_path(&dir, "a.tok"), &err));
    pl_tokens_close(tokens);
    return PELAGO_OK;
}

/* A long piece without cuts takes the way of the heap; NFC takes its own. */
static enum pelago_status load_and_encode(const struct pl_alloc *a, const char *json)
{
    struct pl_tokenizer *t;
    char text[2000];
    struct pl_ids ids;
    memset(text, 'e', sizeof text);
    memcpy(text, "e\xcc\x81", 3);
    PL_TRY(pl_tokenizer_parse(&t, a, json, strlen(json), &err));
    struct pl_encoder *e = pl_encoder_new(a, t);
    pl_ids_init(&ids, a);
    enum pelago_status status =
        e != NULL ? pl_encoder_run(e, text, sizeof text, PL_SPECIALS_FIND, &ids, &err) : PELAGO_NOMEM;
    pl_ids_release(&ids);
    pl_encoder_free(e);
    pl_tokenizer_free(t);
    return status;
}

static enum pelago_status everything(const struct pl_alloc *a, const char *json)
{
    struct pl_tokenizer *t = NULL;
    enum pelago_status status = train(a, &t);
    if (status == PELAGO_OK)
        status = encode(a, t);
    if (status == PELAGO_OK)
        status = read_back(a);
    if (status == PELAGO_OK)
        status = load_and_encode(a, json);
    pl_tokenizer_free(t);
    return status;
}

static char *nfc_json(void)
{
    struct pl_tokenizer *t = rig_train(&system_alloc, PL_TRAIN_BPE, rig_text, 300);
    char *json = rig_replace(t, "\"normalizer\": null", "\"normalizer\": {\"type\": \"NFC\"}");
    pl_tokenizer_free(t);
    return json;
}

static void fail_each(uint64_t stride, uint64_t times)
{
    char *json = nfc_json();
    uint64_t n = 0;
    for (;; n += stride) {
        struct counting_alloc memory;
        counting_alloc_init(&memory);
        memory.fail_at = n;
        memory.fail_times = times;
        enum pelago_status status = everything(&memory.alloc, json);
        if (memory.bytes != 0)
            fail_msg("allocation %llu failed, and %lld bytes stay", (unsigned long long)n,
                     (long long)memory.bytes);
        if (memory.requests <= n) {
            assert_int_equal(status, PELAGO_OK);
            break;
        }
        if (status != PELAGO_NOMEM)
            fail_msg("allocation %llu failed, and the answer is %s: %s", (unsigned long long)n,
                     pl_status_name(status), err.text);
        unsigned files = tempdir_count(&dir);
        assert_true(files == 2 || files == 3);
    }
    free(json);
    assert_true(n > 100);
}

static void one_allocation_fails(void **state)
{
    (void)state;
    fail_each(1, 1);
}

static void all_allocations_fail_from_one_on(void **state)
{
    (void)state;
    fail_each(3, UINT64_MAX / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_allocation_fails),
        cmocka_unit_test(all_allocations_fail_from_one_on),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
