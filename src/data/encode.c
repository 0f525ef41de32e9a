/* data/encode.c - see encode.h. Every chunk has a list of its own; the lists are written in the order of the text. */
#include "data/encode.h"

#include "base/check.h"
#include "base/limits.h"
#include "data/batch.h"

struct slot {
    struct pl_ids ids;
    enum pelago_status status;
    struct pl_error err;
    size_t text_bytes, documents;
};

/* What one thread has to itself. */
struct worker {
    struct pl_encoder *encoder;
};

struct pl_encode {
    const struct pl_alloc *alloc;
    const struct pl_tokenizer *t;
    struct pl_tokens_writer *writer; /* NULL: to the list */
    struct pl_ids *list;
    struct pl_batch *batch;
    struct worker *workers; /* [threads] */
    uint32_t threads;
    struct slot *slots; /* [PL_BATCH_CHUNKS_MAX] */
    struct pl_encode_result result;
};

static enum pelago_status encode_document(struct pl_encoder *e, struct slot *slot, const uint8_t *text,
                                          size_t len)
{
    slot->text_bytes += len;
    return pl_encoder_run(e, text, len, PL_SPECIALS_FIND, &slot->ids, &slot->err);
}

static enum pelago_status encode_chunk(const struct pl_encode *e, struct pl_encoder *encoder,
                                       struct slot *slot, const struct pl_chunk *chunk)
{
    uint32_t end_of_text = pl_tokenizer_end_of_text(e->t);
    size_t at = 0;
    for (size_t i = 0; i < chunk->end_count; i++) {
        PL_TRY(encode_document(encoder, slot, chunk->text + at, chunk->ends[i] - at));
        at = chunk->ends[i];
        slot->documents++;
        if (end_of_text != PL_NONE32 && pl_ids_push(&slot->ids, end_of_text) != PELAGO_OK)
            return pl_fail(&slot->err, PELAGO_NOMEM, "there is no memory for the tokens");
    }
    return encode_document(encoder, slot, chunk->text + at, chunk->len - at);
}

static void run(void *user, uint32_t number, uint32_t thread, const struct pl_chunk *chunk)
{
    struct pl_encode *e = user;
    struct slot *slot = &e->slots[number];
    pl_assert(thread < e->threads && number < PL_BATCH_CHUNKS_MAX);
    slot->ids.count = 0;
    slot->text_bytes = slot->documents = 0;
    slot->status = encode_chunk(e, e->workers[thread].encoder, slot, chunk);
}

static enum pelago_status put(struct pl_encode *e, const struct pl_ids *ids, struct pl_error *err)
{
    if (e->writer != NULL)
        return pl_tokens_append(e->writer, ids->at, ids->count, err);
    if (pl_ids_reserve(e->list, ids->count) != PELAGO_OK)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for the tokens");
    for (size_t i = 0; i < ids->count; i++)
        e->list->at[e->list->count++] = ids->at[i];
    return PELAGO_OK;
}

static enum pelago_status done(void *user, uint32_t count, struct pl_error *err)
{
    struct pl_encode *e = user;
    for (uint32_t i = 0; i < count; i++) {
        struct slot *slot = &e->slots[i];
        if (slot->status != PELAGO_OK)
            return pl_fail(err, slot->status, "%s", slot->err.text);
        PL_TRY(put(e, &slot->ids, err));
        e->result.tokens += slot->ids.count;
        e->result.text_bytes += slot->text_bytes;
        e->result.documents += slot->documents;
    }
    return PELAGO_OK;
}

static const struct pl_batch_ops ops = {run, done};

static struct pl_encode *new_encode(const struct pl_alloc *alloc, const struct pl_tokenizer *t,
                                    struct pl_pool *pool)
{
    struct pl_encode *e = pl_alloc_zero(alloc, 1, sizeof *e);
    if (e == NULL)
        return NULL;
    *e = (struct pl_encode){.alloc = alloc, .t = t, .threads = pl_pool_threads(pool)};
    e->batch = pl_batch_new(alloc, pool, pl_tokenizer_allows_cuts(t), &ops, e);
    e->workers = pl_alloc_zero(alloc, e->threads, sizeof *e->workers);
    e->slots = pl_alloc_zero(alloc, PL_BATCH_CHUNKS_MAX, sizeof *e->slots);
    bool good = e->batch != NULL && e->workers != NULL && e->slots != NULL;
    for (uint32_t i = 0; e->slots != NULL && i < PL_BATCH_CHUNKS_MAX; i++)
        pl_ids_init(&e->slots[i].ids, alloc);
    for (uint32_t i = 0; good && i < e->threads; i++)
        good = (e->workers[i].encoder = pl_encoder_new(alloc, t)) != NULL;
    if (good)
        return e;
    pl_encode_free(e);
    return NULL;
}

struct pl_encode *pl_encode_new(const struct pl_alloc *alloc, const struct pl_tokenizer *t,
                                struct pl_pool *pool, struct pl_tokens_writer *writer)
{
    struct pl_encode *e = new_encode(alloc, t, pool);
    if (e != NULL)
        e->writer = writer;
    return e;
}

struct pl_encode *pl_encode_new_list(const struct pl_alloc *alloc, const struct pl_tokenizer *t,
                                     struct pl_pool *pool, struct pl_ids *list)
{
    struct pl_encode *e = new_encode(alloc, t, pool);
    if (e != NULL)
        e->list = list;
    return e;
}

void pl_encode_free(struct pl_encode *e)
{
    if (e == NULL)
        return;
    for (uint32_t i = 0; e->workers != NULL && i < e->threads; i++)
        pl_encoder_free(e->workers[i].encoder);
    for (uint32_t i = 0; e->slots != NULL && i < PL_BATCH_CHUNKS_MAX; i++)
        pl_ids_release(&e->slots[i].ids);
    pl_batch_free(e->batch);
    pl_alloc_free(e->alloc, e->workers, e->threads * sizeof *e->workers);
    pl_alloc_free(e->alloc, e->slots, PL_BATCH_CHUNKS_MAX * sizeof *e->slots);
    pl_alloc_free(e->alloc, e, sizeof *e);
}

struct pl_text_sink pl_encode_sink(struct pl_encode *e)
{
    return pl_batch_sink(e->batch);
}

enum pelago_status pl_encode_finish(struct pl_encode *e, struct pl_encode_result *result,
                                    struct pl_error *err)
{
    PL_TRY(pl_batch_finish(e->batch, err));
    *result = e->result;
    return PELAGO_OK;
}

static enum pelago_status encode_to(struct pl_tokens_writer *writer, const struct pl_alloc *alloc,
                                    const struct pl_tokenizer *t, struct pl_pool *pool,
                                    const char *const *paths, size_t count, struct pl_encode_result *result,
                                    struct pl_error *err)
{
    struct pl_encode *e = pl_encode_new(alloc, t, pool, writer);
    if (e == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory to encode text");
    struct pl_text_sink sink = pl_encode_sink(e);
    enum pelago_status status = pl_corpus_read(alloc, paths, count, &sink, err);
    if (status == PELAGO_OK)
        status = pl_encode_finish(e, result, err);
    pl_encode_free(e);
    return status;
}

enum pelago_status pl_encode_files(const struct pl_alloc *alloc, const struct pl_tokenizer *t,
                                   struct pl_pool *pool, const char *const *paths, size_t count,
                                   const char *out_path, struct pl_encode_result *result,
                                   struct pl_error *err)
{
    struct pl_tokens_writer *writer;
    PL_TRY(pl_tokens_create(&writer, alloc, out_path, pl_tokenizer_vocab(t), pl_tokenizer_digest(t), err));
    enum pelago_status status = encode_to(writer, alloc, t, pool, paths, count, result, err);
    if (status == PELAGO_OK)
        return pl_tokens_commit(writer, result->text_bytes, result->documents, err);
    pl_tokens_abandon(writer);
    return status;
}
