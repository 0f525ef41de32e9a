/* What a model's memory grows with, and what it does not grow with. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "model/model.h"

#include <math.h>

enum { WIDTH = 32, HEADS = 4, LAYERS = 4, VOCAB = 512, ROWS_MAX = 8192 };

struct shape {
    uint32_t layers, vocab, batch, seq;
    bool recompute;
};

static int32_t tokens[ROWS_MAX], targets[ROWS_MAX];

/* Bytes after one whole pass, so that the scratch memory of its operations is there and counted. */
static uint64_t bytes_of(const char *backend, const struct shape *s)
{
    const struct pl_alloc alloc = pl_alloc_system();
    struct pl_model_options o = {.backend = backend, .threads = 2, .batch = s->batch, .seq = s->seq};
    const struct pl_batch batch = {s->batch, s->seq, tokens, targets};
    const struct pl_pass pass = {.scale = 1.0f / ROWS_MAX};
    struct pl_model *m = NULL;
    struct pl_error err = {0};
    o.config = (struct pl_model_config){
        .layers = s->layers, .width = WIDTH, .heads = HEADS, .vocab = s->vocab, .context = s->seq};
    o.config.tied = true;
    o.train = true;
    o.recompute = s->recompute;
    pl_model_config_complete(&o.config);
    if (pl_model_new(&m, &alloc, &o, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
    pl_tensors_fill(&m->tensors, m->params, 1);
    pl_model_refresh(m);
    assert_true(isfinite(pl_model_train(m, &batch, &pass)));
    uint64_t bytes = pl_model_bytes(m);
    pl_model_free(m);
    return bytes;
}

static int fill_tokens(void **state)
{
    (void)state;
    for (int i = 0; i < ROWS_MAX; i++) {
        tokens[i] = i * 7 % VOCAB;
        targets[i] = (i * 11 + 1) % VOCAB;
    }
    return 0;
}

/* A check for each back end that this machine has but ref, which lies in the same memory and takes long. */
static void each_backend(void (*check)(const char *backend))
{
    bool usable = false;
    const char *name;
    for (uint32_t i = 1; (name = pl_engine_backend_name(i, &usable)) != NULL; i++)
        if (usable)
            check(name);
}

/* What one more token of the batch costs. */
static uint64_t token_bytes(const char *backend, struct shape s)
{
    s.seq = 64;
    s.batch = 16;
    uint64_t few = bytes_of(backend, &s);
    s.batch = 32;
    return (bytes_of(backend, &s) - few) / (16 * s.seq);
}

/* With recomputation a further layer costs a token one stream of floats; without, all that the way back needs. */
static void check_recompute(const char *backend)
{
    const unsigned long stream = WIDTH * sizeof(float);
    struct shape s = {.vocab = VOCAB, .layers = LAYERS, .recompute = true}, more = s;
    more.layers = 2 * LAYERS;
    unsigned long thrifty = (token_bytes(backend, more) - token_bytes(backend, s)) / LAYERS;
    s.recompute = more.recompute = false;
    unsigned long plain = (token_bytes(backend, more) - token_bytes(backend, s)) / LAYERS;
    if (thrifty > stream || plain < 4 * stream)
        fail_msg("%s: a layer costs a token %lu bytes with recomputation and %lu without; a stream has %lu",
                 backend, thrifty, plain, stream);
}

static void test_recompute(void **state)
{
    (void)state;
    each_backend(check_recompute);
}

/* One long sequence of as many tokens as many short ones takes no more than a few blocks of queries for each thread:
 * less than one seq x seq matrix of one head in bfloat16. */
static void check_long(const char *backend)
{
    struct shape s = {.vocab = VOCAB, .layers = 1, .batch = ROWS_MAX / 64, .seq = 64};
    unsigned long many = bytes_of(backend, &s), matrix = 2UL * ROWS_MAX * ROWS_MAX;
    s.batch = 1;
    s.seq = ROWS_MAX;
    unsigned long one = bytes_of(backend, &s);
    if (one > many + matrix / 2)
        fail_msg("%s: %lu bytes with one sequence of %d tokens, %lu with sequences of 64", backend, one,
                 ROWS_MAX, many);
}

static void test_long(void **state)
{
    (void)state;
    each_backend(check_long);
}

/* Once a batch has more tokens than have logits at a time, one more costs the same whatever the vocabulary is. */
static void check_logits(const char *backend)
{
    struct shape s = {.vocab = VOCAB, .layers = 1}, large = {.vocab = 16 * VOCAB, .layers = 1};
    unsigned long few = token_bytes(backend, s), many = token_bytes(backend, large);
    if (many > few + WIDTH)
        fail_msg("%s: a token costs %lu bytes with %d words and %lu with %d", backend, few, VOCAB, many,
                 16 * VOCAB);
}

static void test_logits(void **state)
{
    (void)state;
    each_backend(check_logits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recompute),
        cmocka_unit_test(test_long),
        cmocka_unit_test(test_logits),
    };
    return cmocka_run_group_tests_name("memory", tests, fill_tokens, NULL);
}
