/* data/tokenizer_train.c - see tokenizer_train.h: threads count words, or collect characters; then one of them makes the
 * tokenizer.json, and the tokenizer is read from that. */
#include "data/tokenizer_train.h"

#include "base/check.h"
#include "data/batch.h"
#include "data/bpe_train.h"
#include "data/split.h"
#include "data/tokenizer_int.h"
#include "data/tokenizer_json.h"
#include "data/unicode.h"

#include <string.h>

enum { MIN_COUNT = 2, CHAR_BYTES = 0x110000 / 8 };

/* What one thread has found. */
struct part {
    struct pl_words_table words;
    uint8_t *chars; /* [CHAR_BYTES] bits */
    uint64_t text_bytes;
    enum pelago_status status;
    struct pl_error err;
};

struct pl_tokenizer_trainer {
    const struct pl_alloc *alloc;
    enum pl_train_kind kind;
    uint32_t vocab, threads;
    struct pl_batch *batch;
    struct part *parts; /* [threads] */
};

static enum pelago_status no_memory(struct pl_error *err)
{
    return pl_fail(err, PELAGO_NOMEM, "there is no memory to make a tokenizer");
}

/* ---- collecting ---- */

static enum pelago_status count_words(struct part *part, const uint8_t *at, const uint8_t *end)
{
    while (at < end) {
        size_t len = pl_split_gpt2(at, end);
        if (pl_words_add(&part->words, at, len, 1) != PELAGO_OK)
            return no_memory(&part->err);
        at += len;
    }
    return PELAGO_OK;
}

static enum pelago_status collect_chars(struct part *part, const uint8_t *at, const uint8_t *end)
{
    while (at < end) {
        uint32_t c;
        at += pl_utf8_read(at, end, &c);
        if (c == PL_CHAR_BAD || c == 0)
            return pl_fail(&part->err, PELAGO_INVALID,
                           "the text is not UTF-8 without zeros, as a tokenizer of characters needs it");
        part->chars[c / 8] |= (uint8_t)(1u << (c % 8));
    }
    return PELAGO_OK;
}

static void run(void *user, uint32_t number, uint32_t thread, const struct pl_chunk *chunk)
{
    struct pl_tokenizer_trainer *tr = user;
    struct part *part = &tr->parts[thread];
    const uint8_t *at = chunk->text, *end = chunk->text + chunk->len;
    (void)number;
    part->text_bytes += chunk->len;
    for (size_t i = 0; part->status == PELAGO_OK && i <= chunk->end_count; i++) {
        const uint8_t *stop = i < chunk->end_count ? chunk->text + chunk->ends[i] : end;
        part->status = tr->kind == PL_TRAIN_BPE     ? count_words(part, at, stop)
                       : tr->kind == PL_TRAIN_CHARS ? collect_chars(part, at, stop)
                                                    : PELAGO_OK;
        at = stop;
    }
}

static enum pelago_status done(void *user, uint32_t count, struct pl_error *err)
{
    struct pl_tokenizer_trainer *tr = user;
    (void)count;
    for (uint32_t i = 0; i < tr->threads; i++)
        if (tr->parts[i].status != PELAGO_OK)
            return pl_fail(err, tr->parts[i].status, "%s", tr->parts[i].err.text);
    return PELAGO_OK;
}

static const struct pl_batch_ops ops = {run, done};

struct pl_tokenizer_trainer *pl_tokenizer_trainer_new(const struct pl_alloc *alloc, struct pl_pool *pool,
                                                      enum pl_train_kind kind, uint32_t vocab)
{
    struct pl_tokenizer_trainer *tr = pl_alloc_zero(alloc, 1, sizeof *tr);
    if (tr == NULL)
        return NULL;
    *tr = (struct pl_tokenizer_trainer){
        .alloc = alloc, .kind = kind, .vocab = vocab, .threads = pl_pool_threads(pool)};
    tr->batch = pl_batch_new(alloc, pool, true, &ops, tr);
    tr->parts = pl_alloc_zero(alloc, tr->threads, sizeof *tr->parts);
    bool good = tr->batch != NULL && tr->parts != NULL;
    for (uint32_t i = 0; tr->parts != NULL && i < tr->threads; i++) {
        pl_words_init(&tr->parts[i].words, alloc);
        tr->parts[i].chars = pl_alloc_zero(alloc, CHAR_BYTES, 1);
        good = good && tr->parts[i].chars != NULL;
    }
    if (good)
        return tr;
    pl_tokenizer_trainer_free(tr);
    return NULL;
}

void pl_tokenizer_trainer_free(struct pl_tokenizer_trainer *tr)
{
    if (tr == NULL)
        return;
    for (uint32_t i = 0; tr->parts != NULL && i < tr->threads; i++) {
        pl_words_release(&tr->parts[i].words);
        pl_alloc_free(tr->alloc, tr->parts[i].chars, CHAR_BYTES);
    }
    pl_batch_free(tr->batch);
    pl_alloc_free(tr->alloc, tr->parts, tr->threads * sizeof *tr->parts);
    pl_alloc_free(tr->alloc, tr, sizeof *tr);
}

struct pl_text_sink pl_tokenizer_trainer_sink(struct pl_tokenizer_trainer *tr)
{
    return pl_batch_sink(tr->batch);
}

uint64_t pl_tokenizer_trainer_bytes(const struct pl_tokenizer_trainer *tr)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < tr->threads; i++)
        bytes += tr->parts[i].text_bytes;
    return bytes;
}

/* ---- making ---- */

/* The name of a token: its bytes by the characters that stand for them. */
static enum pelago_status append_name(struct pl_buf *name, const struct pl_bpe_model *m, uint32_t id)
{
    const struct pl_word *token = &m->tokens.words[id - 1];
    for (uint32_t i = 0; i < token->len; i++) {
        uint8_t utf8[4];
        size_t len = pl_utf8_write(utf8, pl_byte_char(m->tokens.bytes.data[token->offset + i]));
        PL_TRY(pl_buf_append(name, utf8, len));
    }
    return PELAGO_OK;
}

static bool put_vocab(json_t *vocab, const char *name, uint32_t id)
{
    return json_object_set_new(vocab, name, json_integer(id)) == 0;
}

static bool fill_vocab(json_t *vocab, const struct pl_bpe_model *m, struct pl_buf *name)
{
    if (!put_vocab(vocab, "<|endoftext|>", 0))
        return false;
    for (uint32_t id = 1; id <= m->tokens.count; id++) {
        name->len = 0;
        if (append_name(name, m, id) != PELAGO_OK || pl_buf_append(name, "", 1) != PELAGO_OK ||
            !put_vocab(vocab, (const char *)name->data, id))
            return false;
    }
    return true;
}

static bool fill_merges(json_t *merges, const struct pl_bpe_model *m, struct pl_buf *name)
{
    const uint32_t *pairs = (const uint32_t *)(const void *)m->merges.data;
    for (size_t i = 0; i < m->merges.len / sizeof *pairs; i += 2) {
        name->len = 0;
        if (append_name(name, m, pairs[i]) != PELAGO_OK || pl_buf_append(name, " ", 1) != PELAGO_OK ||
            append_name(name, m, pairs[i + 1]) != PELAGO_OK ||
            json_array_append_new(merges, json_stringn((const char *)name->data, name->len)) != 0)
            return false;
    }
    return true;
}

static enum pelago_status write_bpe(const struct pl_bpe_model *m, struct pl_buf *text, struct pl_error *err)
{
    struct pl_buf name;
    json_t *vocab = json_object(), *merges = json_array();
    pl_buf_init(&name, text->alloc, SIZE_MAX / 2);
    bool good = fill_vocab(vocab, m, &name) && fill_merges(merges, m, &name);
    pl_buf_release(&name);
    if (good)
        return pl_tokjson_write_bpe(vocab, merges, text, err);
    json_decref(vocab);
    json_decref(merges);
    return no_memory(err);
}

static enum pelago_status make_bpe(struct pl_tokenizer_trainer *tr, struct pl_buf *text, struct pl_error *err)
{
    struct pl_bpe_model model;
    enum pelago_status status = PELAGO_OK;
    pl_bpe_model_init(&model, tr->alloc);
    for (uint32_t i = 1; i < tr->threads && status == PELAGO_OK; i++) {
        status = pl_words_merge(&tr->parts[0].words, &tr->parts[i].words);
        pl_words_release(&tr->parts[i].words);
    }
    if (status == PELAGO_OK)
        status = pl_bpe_train(&model, &tr->parts[0].words,
                              tr->kind == PL_TRAIN_BPE ? tr->vocab : PL_BPE_VOCAB_MIN, MIN_COUNT);
    status = status == PELAGO_OK ? write_bpe(&model, text, err) : no_memory(err);
    pl_bpe_model_release(&model);
    return status;
}

static enum pelago_status make_chars(struct pl_tokenizer_trainer *tr, struct pl_buf *text,
                                     struct pl_error *err)
{
    json_t *vocab = json_object();
    uint32_t id = 0;
    bool good = put_vocab(vocab, "<|endoftext|>", id++);
    for (uint32_t c = 0; c < 8 * CHAR_BYTES && good; c++) {
        uint8_t found = 0;
        for (uint32_t i = 0; i < tr->threads; i++)
            found |= (uint8_t)(tr->parts[i].chars[c / 8] >> (c % 8) & 1);
        if (found != 0) {
            char name[5] = {0};
            (void)pl_utf8_write((uint8_t *)name, c);
            good = put_vocab(vocab, name, id++);
        }
    }
    if (good)
        return pl_tokjson_write_chars(vocab, text, err);
    json_decref(vocab);
    return no_memory(err);
}

enum pelago_status pl_tokenizer_trainer_finish(struct pl_tokenizer_trainer *tr, struct pl_tokenizer **out,
                                               struct pl_error *err)
{
    struct pl_buf text;
    *out = NULL;
    PL_TRY(pl_batch_finish(tr->batch, err));
    pl_buf_init(&text, tr->alloc, PL_JSON_BYTES_MAX);
    enum pelago_status status =
        tr->kind == PL_TRAIN_CHARS ? make_chars(tr, &text, err) : make_bpe(tr, &text, err);
    if (status == PELAGO_OK)
        status = pl_tokenizer_parse(out, tr->alloc, text.data, text.len, err);
    pl_buf_release(&text);
    return status;
}
