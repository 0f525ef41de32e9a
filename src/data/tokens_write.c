/* data/tokens_write.c - writing token files, see tokens.h. Tokens gather in a block; a full one is summed and written. */
#include "data/tokens.h"

#include "base/buf.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/hash.h"
#include "base/limits.h"
#include "data/outfile.h"
#include "data/tokens_int.h"

#include <string.h>

struct pl_tokens_writer {
    const struct pl_alloc *alloc;
    struct pl_outfile *file;
    struct pl_tokens_info info;
    uint8_t *block; /* [PL_TOKENS_BLOCK_BYTES] */
    size_t filled;
    struct pl_buf table;
};

static void free_writer(struct pl_tokens_writer *w)
{
    pl_alloc_free(w->alloc, w->block, PL_TOKENS_BLOCK_BYTES);
    pl_buf_release(&w->table);
    pl_alloc_free(w->alloc, w, sizeof *w);
}

void pl_tokens_abandon(struct pl_tokens_writer *w)
{
    if (w == NULL)
        return;
    pl_outfile_abandon(w->file);
    free_writer(w);
}

enum pelago_status pl_tokens_create(struct pl_tokens_writer **out, const struct pl_alloc *alloc,
                                    const char *path, uint32_t vocab, uint64_t tokenizer_digest,
                                    struct pl_error *err)
{
    static const uint8_t
        blank[PL_TOKENS_HEADER_BYTES]; /* the header comes last: until then it is no token file */
    struct pl_tokens_writer *w = pl_alloc_zero(alloc, 1, sizeof *w);
    pl_assert(vocab > 0 && vocab <= PL_VOCAB_MAX);
    *out = NULL;
    if (w == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory to write %s", path);
    w->alloc = alloc;
    w->info = (struct pl_tokens_info){
        .token_bytes = vocab <= 65536 ? 2 : 4, .vocab = vocab, .tokenizer_digest = tokenizer_digest};
    pl_buf_init(&w->table, alloc, SIZE_MAX / 2);
    w->block = pl_alloc_zero(alloc, PL_TOKENS_BLOCK_BYTES, 1);
    enum pelago_status status = w->block != NULL
                                    ? pl_outfile_open(&w->file, alloc, path, err)
                                    : pl_fail(err, PELAGO_NOMEM, "there is no memory to write %s", path);
    if (status == PELAGO_OK)
        status = pl_outfile_append(w->file, blank, sizeof blank, err);
    if (status == PELAGO_OK)
        *out = w;
    else
        pl_tokens_abandon(w);
    return status;
}

static enum pelago_status flush_block(struct pl_tokens_writer *w, struct pl_error *err)
{
    uint8_t sum[8];
    if (w->filled == 0)
        return PELAGO_OK;
    pl_put_le(sum, pl_hash64(w->block, w->filled, 0), 8);
    if (pl_buf_append(&w->table, sum, sizeof sum) != PELAGO_OK)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for the table of a token file");
    PL_TRY(pl_outfile_append(w->file, w->block, w->filled, err));
    w->filled = 0;
    return PELAGO_OK;
}

enum pelago_status pl_tokens_append(struct pl_tokens_writer *w, const uint32_t *ids, size_t count,
                                    struct pl_error *err)
{
    const uint32_t width = w->info.token_bytes;
    for (size_t i = 0; i < count; i++) {
        pl_assert(ids[i] < w->info.vocab);
        pl_put_le(w->block + w->filled, ids[i], width);
        w->filled += width;
        if (w->filled == PL_TOKENS_BLOCK_BYTES)
            PL_TRY(flush_block(w, err));
    }
    w->info.tokens += count;
    return PELAGO_OK;
}

static void write_header(const struct pl_tokens_writer *w, uint8_t h[PL_TOKENS_HEADER_BYTES])
{
    static const uint8_t magic[8] = {'P', 'E', 'L', 'A', 'G', 'O', 'T', 'K'};
    memset(h, 0, PL_TOKENS_HEADER_BYTES);
    memcpy(h, magic, sizeof magic);
    pl_put_le(h + PL_TOKENS_VERSION_AT, PL_TOKENS_VERSION, 4);
    pl_put_le(h + PL_TOKENS_WIDTH, w->info.token_bytes, 4);
    pl_put_le(h + PL_TOKENS_VOCAB, w->info.vocab, 4);
    pl_put_le(h + PL_TOKENS_BLOCK, PL_TOKENS_BLOCK_BYTES, 4);
    pl_put_le(h + PL_TOKENS_COUNT, w->info.tokens, 8);
    pl_put_le(h + PL_TOKENS_TEXT_BYTES, w->info.text_bytes, 8);
    pl_put_le(h + PL_TOKENS_DOCUMENTS, w->info.documents, 8);
    pl_put_le(h + PL_TOKENS_DIGEST, w->info.tokenizer_digest, 8);
    pl_put_le(h + PL_TOKENS_TABLE, pl_hash64(w->table.data, w->table.len, 0), 8);
    pl_put_le(h + PL_TOKENS_SUM, pl_hash64(h, PL_TOKENS_SUM, 0), 8);
}

static enum pelago_status write_rest(struct pl_tokens_writer *w, struct pl_error *err)
{
    static const uint8_t zeros[8];
    uint8_t header[PL_TOKENS_HEADER_BYTES];
    if (w->info.tokens == 0)
        return pl_fail(err, PELAGO_INVALID, "there are no tokens to write");
    size_t padding = (size_t)(-(w->info.tokens * w->info.token_bytes) & 7);
    PL_TRY(flush_block(w, err));
    PL_TRY(pl_outfile_append(w->file, zeros, padding, err));
    PL_TRY(pl_outfile_append(w->file, w->table.data, w->table.len, err));
    write_header(w, header);
    return pl_outfile_write_at(w->file, 0, header, sizeof header, err);
}

enum pelago_status pl_tokens_commit(struct pl_tokens_writer *w, uint64_t text_bytes, uint64_t documents,
                                    struct pl_error *err)
{
    w->info.text_bytes = text_bytes;
    w->info.documents = documents;
    enum pelago_status status = write_rest(w, err);
    if (status == PELAGO_OK)
        status = pl_outfile_commit(w->file, err);
    else
        pl_outfile_abandon(w->file);
    free_writer(w);
    return status;
}
