/* tests/support/checkpoint_rig.c - see checkpoint_rig.h. */
#include "checkpoint_rig.h"

#include "base/fmt.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void add_span(struct rig *r, const char *kind, const struct pl_tensor *t, float *block)
{
    assert_in_range(r->span_count, 0, RIG_SPANS_MAX - 1);
    char *name = r->names[r->span_count];
    (void)snprintf(name, sizeof r->names[0], "%s.%s", kind, t->name);
    r->spans[r->span_count++] = (struct pl_named_span){name, t->rows, t->cols, block + t->offset};
}

void ckrig_init(struct rig *r)
{
    memset(r, 0, sizeof *r);
    counting_alloc_init(&r->memory);
    r->config = (struct pl_model_config){
        .layers = 1, .width = 8, .heads = 2, .kv_heads = 1, .hidden = 6, .vocab = 5, .tied = true};
    pl_model_config_complete(&r->config);
    assert_int_equal(pl_tensors_init(&r->tensors, &r->memory.alloc, &r->config), PELAGO_OK);
    size_t floats = (size_t)r->tensors.floats;
    r->params = calloc(floats, sizeof *r->params);
    r->m = calloc(floats, sizeof *r->m);
    r->v = calloc(floats, sizeof *r->v);
    for (uint32_t i = 0; i < r->tensors.count; i++) {
        add_span(r, "adam_m", &r->tensors.at[i], r->m);
        add_span(r, "adam_v", &r->tensors.at[i], r->v);
    }
    const struct pl_member fields[RIG_FIELDS] = {
        {"progress.tokens", PL_MEMBER_COUNT, &r->tokens, 0, false},
        {"progress.loss", PL_MEMBER_REAL, &r->loss, 0, false},
        {"progress.best", PL_MEMBER_REAL, &r->best, 0, false},
        {"seed", PL_MEMBER_BITS, &r->seed, 0, false},
        {"optimizer.muon", PL_MEMBER_FLAG, &r->muon, 0, false},
        {"data.name", PL_MEMBER_TEXT, r->data, sizeof r->data, false},
        {"data.pass", PL_MEMBER_COUNT, &r->pass, 0, true},
    };
    memcpy(r->fields, fields, sizeof fields);
}

void ckrig_release(struct rig *r)
{
    pl_tensors_release(&r->tensors, &r->memory.alloc);
    free(r->params);
    free(r->m);
    free(r->v);
    assert_int_equal(r->memory.bytes, 0);
}

void ckrig_clear(struct rig *r)
{
    size_t bytes = (size_t)r->tensors.floats * sizeof(float);
    memset(r->params, 0, bytes);
    memset(r->m, 0, bytes);
    memset(r->v, 0, bytes);
    r->tokens = r->seed = r->pass = 0;
    r->loss = r->best = 0;
    r->muon = false;
    memset(r->data, 0, sizeof r->data);
    memset(r->tokenizer, 0, sizeof r->tokenizer);
}

static float value_of(uint64_t stamp, uint64_t block, uint64_t i)
{
    struct pl_prng prng;
    pl_prng_seed(&prng, stamp * 3 + block, i);
    return (float)((double)pl_prng_below(&prng, 1u << 30) / (1u << 28) - 2);
}

void ckrig_set(struct rig *r, uint64_t stamp)
{
    ckrig_clear(r);
    for (uint32_t k = 0; k < r->tensors.count; k++) {
        const struct pl_tensor *t = &r->tensors.at[k];
        for (uint64_t i = t->offset; i < t->offset + (uint64_t)t->rows * t->cols; i++) {
            r->params[i] = value_of(stamp, 0, i);
            r->m[i] = value_of(stamp, 1, i);
            r->v[i] = value_of(stamp, 2, i);
        }
    }
    r->tokens = stamp * 1000;
    r->seed = UINT64_MAX - stamp;
    r->loss = (double)stamp + 0.1;
    r->best = 1 / (double)(stamp + 3);
    r->muon = stamp % 2 == 1;
    (void)snprintf(r->data, sizeof r->data, "data \"%llu\" \\ \xc3\xa9", (unsigned long long)stamp);
    r->pass = stamp % 2 == 0 ? stamp : 0;
    (void)snprintf(r->tokenizer, sizeof r->tokenizer, "{\"stamp\": %llu}", (unsigned long long)stamp);
    r->checkpoint = (struct pl_checkpoint){.config = &r->config,
                                           .tensors = &r->tensors,
                                           .params = r->params,
                                           .spans = r->spans,
                                           .span_count = r->span_count,
                                           .fields = r->fields,
                                           .field_count = stamp % 2 == 0 ? RIG_FIELDS : RIG_FIELDS - 1,
                                           .tokenizer = {r->tokenizer, strlen(r->tokenizer)}};
}

void ckrig_check(const struct rig *r, uint64_t stamp)
{
    struct rig *want = calloc(1, sizeof *want);
    size_t bytes = (size_t)r->tensors.floats * sizeof(float);
    ckrig_init(want);
    ckrig_set(want, stamp);
    assert_memory_equal(r->params, want->params, bytes);
    assert_memory_equal(r->m, want->m, bytes);
    assert_memory_equal(r->v, want->v, bytes);
    assert_true(r->tokens == want->tokens && r->seed == want->seed && r->pass == want->pass);
    assert_true(r->loss == want->loss && r->best == want->best && r->muon == want->muon);
    assert_string_equal(r->data, want->data);
    assert_string_equal(r->tokenizer, want->tokenizer);
    ckrig_release(want);
    free(want);
}

enum pelago_status ckrig_save(struct rig *r, struct pl_dir dir, uint64_t step, uint32_t keep)
{
    r->error.text[0] = '\0';
    return pl_checkpoint_save(dir, &r->memory.alloc, step, &r->checkpoint, keep, &r->error);
}

static enum pelago_status read_tokenizer(struct rig *r, struct pl_checkpoint_reader *c)
{
    struct pl_buf text;
    pl_buf_init(&text, &r->memory.alloc, sizeof r->tokenizer - 1);
    enum pelago_status st = pl_checkpoint_read_tokenizer(c, &text, &r->error);
    if (st == PELAGO_OK)
        memcpy(r->tokenizer, text.data, text.len);
    pl_buf_release(&text);
    return st;
}

static enum pelago_status read_all(struct rig *r, struct pl_checkpoint_reader *c)
{
    PL_TRY(pl_checkpoint_read_params(c, &r->tensors, r->params, &r->error));
    PL_TRY(pl_checkpoint_read_spans(c, r->spans, r->span_count, &r->error));
    PL_TRY(pl_checkpoint_read_fields(c, r->fields, RIG_FIELDS, &r->error));
    return read_tokenizer(r, c);
}

enum pelago_status ckrig_load(struct rig *r, struct pl_dir dir, uint64_t step, uint64_t *found)
{
    struct pl_checkpoint_reader *c;
    ckrig_clear(r);
    r->error.text[0] = '\0';
    PL_TRY(pl_checkpoint_open(&c, dir, &r->memory.alloc, step, &r->error));
    *found = pl_checkpoint_step(c);
    enum pelago_status st = read_all(r, c);
    pl_checkpoint_close(c);
    return st;
}

void ckrig_must_save(struct rig *r, struct pl_dir dir, uint64_t step, uint32_t keep)
{
    ckrig_set(r, step);
    if (ckrig_save(r, dir, step, keep) != PELAGO_OK)
        fail_msg("%s", r->error.text);
}

void ckrig_must_load(struct rig *r, struct pl_dir dir, uint64_t step, uint64_t wanted)
{
    uint64_t found = 0;
    if (ckrig_load(r, dir, step, &found) != PELAGO_OK)
        fail_msg("%s", r->error.text);
    assert_int_equal(found, wanted);
    ckrig_check(r, wanted);
}

static enum pelago_status count_one(void *user, const char *name)
{
    (void)name;
    ++*(unsigned *)user;
    return PELAGO_OK;
}

unsigned ckrig_file_count(struct pl_dir dir)
{
    unsigned count = 0;
    assert_int_equal(dir.ops->list(dir.self, count_one, &count), PELAGO_OK);
    return count;
}
