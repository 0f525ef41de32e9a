/* data/tokens.c - reading token files, see tokens.h. */
#include "data/tokens.h"

#include "base/bytes.h"
#include "base/hash.h"
#include "base/limits.h"
#include "base/num.h"
#include "data/tokens_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tokens are used as they lie in the file");

struct pl_tokens {
    const struct pl_alloc *alloc;
    char *path;
    uint8_t *map; /* of pages that can not be written */
    size_t bytes;
    struct pl_tokens_info info;
    uint64_t blocks;
    atomic_uchar *checked; /* [blocks] 1: good; two threads may check one block, to the same end */
};

/* ---- opening ---- */

static enum pelago_status map_file(struct pl_tokens *t, struct pl_error *err)
{
    struct stat st;
    int fd = open(t->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return pl_fail(err, errno == ENOENT ? PELAGO_NOTFOUND : PELAGO_IO, "%s could not be read: %s",
                       t->path, strerror(errno));
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size < PL_TOKENS_HEADER_BYTES) {
        (void)close(fd);
        return pl_fail(err, PELAGO_CORRUPT, "%s is not a token file: it is shorter than a header", t->path);
    }
    t->bytes = (size_t)st.st_size;
    void *map = mmap(NULL, t->bytes, PROT_READ, MAP_SHARED, fd, 0);
    int error = errno;
    (void)close(fd);
    if (map == MAP_FAILED)
        return pl_fail(err, PELAGO_IO, "%s could not be mapped: %s", t->path, strerror(error));
    t->map = map;
    return PELAGO_OK;
}

static enum pelago_status check_header(struct pl_tokens *t, struct pl_error *err)
{
    const uint8_t *h = t->map;
    static const uint8_t zeros[PL_TOKENS_SUM - PL_TOKENS_ZEROS];
    if (memcmp(h, PL_TOKENS_MAGIC, 8) != 0)
        return pl_fail(err, PELAGO_CORRUPT, "%s is not a token file: it does not begin with %s", t->path,
                       PL_TOKENS_MAGIC);
    if (pl_get_le(h + PL_TOKENS_VERSION_AT, 4) != PL_TOKENS_VERSION)
        return pl_fail(err, PELAGO_UNSUPPORTED,
                       "%s is a token file of version %lu, this program reads version %u", t->path,
                       pl_get_le(h + PL_TOKENS_VERSION_AT, 4), (unsigned)PL_TOKENS_VERSION);
    if (pl_get_le(h + PL_TOKENS_SUM, 8) != pl_hash64(h, PL_TOKENS_SUM, 0))
        return pl_fail(err, PELAGO_CORRUPT, "%s is damaged: the checksum of its header is wrong", t->path);
    t->info = (struct pl_tokens_info){
        .token_bytes = (uint32_t)pl_get_le(h + PL_TOKENS_WIDTH, 4),
        .vocab = (uint32_t)pl_get_le(h + PL_TOKENS_VOCAB, 4),
        .tokens = pl_get_le(h + PL_TOKENS_COUNT, 8),
        .text_bytes = pl_get_le(h + PL_TOKENS_TEXT_BYTES, 8),
        .documents = pl_get_le(h + PL_TOKENS_DOCUMENTS, 8),
        .tokenizer_digest = pl_get_le(h + PL_TOKENS_DIGEST, 8),
    };
    if (t->info.token_bytes != 2 && t->info.token_bytes != 4)
        return pl_fail(err, PELAGO_CORRUPT, "%s has tokens of %u bytes, expected 2 or 4", t->path,
                       t->info.token_bytes);
    if (t->info.vocab == 0 || t->info.vocab > PL_VOCAB_MAX)
        return pl_fail(err, PELAGO_CORRUPT, "%s has a vocabulary of %u, expected 1 to %u", t->path,
                       t->info.vocab, (unsigned)PL_VOCAB_MAX);
    if (pl_get_le(h + PL_TOKENS_BLOCK, 4) != PL_TOKENS_BLOCK_BYTES ||
        memcmp(h + PL_TOKENS_ZEROS, zeros, sizeof zeros) != 0)
        return pl_fail(err, PELAGO_CORRUPT, "%s has a header with fields this program does not know",
                       t->path);
    return PELAGO_OK;
}

static enum pelago_status check_table(struct pl_tokens *t, struct pl_error *err)
{
    uint64_t count = t->info.tokens;
    if (count == 0 || count > PL_COUNT_MAX / 8)
        return pl_fail(err, PELAGO_CORRUPT, "%s holds %lu tokens, expected at least one", t->path, count);
    uint64_t data = count * t->info.token_bytes, padded = (data + 7) / 8 * 8;
    t->blocks = (data + PL_TOKENS_BLOCK_BYTES - 1) / PL_TOKENS_BLOCK_BYTES;
    uint64_t whole = PL_TOKENS_HEADER_BYTES + padded + 8 * t->blocks;
    if (t->bytes != whole)
        return pl_fail(err, PELAGO_CORRUPT,
                       "%s has %lu bytes, its header says %lu: it was cut off or extended", t->path,
                       (uint64_t)t->bytes, whole);
    for (uint64_t i = data; i < padded; i++)
        if (t->map[PL_TOKENS_HEADER_BYTES + i] != 0)
            return pl_fail(err, PELAGO_CORRUPT,
                           "%s is damaged: there is something between its tokens and its table", t->path);
    if (pl_hash64(t->map + PL_TOKENS_HEADER_BYTES + padded, 8 * t->blocks, 0) !=
        pl_get_le(t->map + PL_TOKENS_TABLE, 8))
        return pl_fail(err, PELAGO_CORRUPT, "%s is damaged: the checksum of its table of blocks is wrong",
                       t->path);
    return PELAGO_OK;
}

static enum pelago_status open_tokens(struct pl_tokens *t, const char *path, struct pl_error *err)
{
    size_t len = strlen(path) + 1;
    t->path = pl_alloc_zero(t->alloc, len, 1);
    if (t->path == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory to open %s", path);
    memcpy(t->path, path, len);
    PL_TRY(map_file(t, err));
    PL_TRY(check_header(t, err));
    PL_TRY(check_table(t, err));
    t->checked = pl_alloc_zero(t->alloc, t->blocks, sizeof *t->checked);
    return t->checked != NULL ? PELAGO_OK : pl_fail(err, PELAGO_NOMEM, "there is no memory to open %s", path);
}

enum pelago_status pl_tokens_open(struct pl_tokens **out, const struct pl_alloc *alloc, const char *path,
                                  struct pl_error *err)
{
    struct pl_tokens *t = pl_alloc_zero(alloc, 1, sizeof *t);
    *out = NULL;
    if (t == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory to open %s", path);
    t->alloc = alloc;
    enum pelago_status status = open_tokens(t, path, err);
    if (status == PELAGO_OK)
        *out = t;
    else
        pl_tokens_close(t);
    return status;
}

void pl_tokens_close(struct pl_tokens *t)
{
    if (t == NULL)
        return;
    if (t->map != NULL)
        (void)munmap(t->map, t->bytes);
    pl_alloc_free(t->alloc, t->checked, t->blocks * sizeof *t->checked);
    if (t->path != NULL)
        pl_alloc_free(t->alloc, t->path, strlen(t->path) + 1);
    pl_alloc_free(t->alloc, t, sizeof *t);
}

const struct pl_tokens_info *pl_tokens_info(const struct pl_tokens *t)
{
    return &t->info;
}

/* ---- tokens ---- */

static uint32_t token_at(const struct pl_tokens *t, uint64_t i)
{
    return (uint32_t)pl_get_le(t->map + PL_TOKENS_HEADER_BYTES + i * t->info.token_bytes,
                               t->info.token_bytes);
}

static uint32_t highest(const struct pl_tokens *t, uint64_t from, uint64_t to)
{
    const uint8_t *data = t->map + PL_TOKENS_HEADER_BYTES;
    uint32_t max = 0;
    if (t->info.token_bytes == 2) {
        const uint16_t *ids = (const uint16_t *)(const void *)data;
        for (uint64_t i = from; i < to; i++)
            max = ids[i] > max ? ids[i] : max;
    } else {
        const uint32_t *ids = (const uint32_t *)(const void *)data;
        for (uint64_t i = from; i < to; i++)
            max = ids[i] > max ? ids[i] : max;
    }
    return max;
}

static enum pelago_status check_block(struct pl_tokens *t, uint64_t block, struct pl_error *err)
{
    uint64_t data = t->info.tokens * t->info.token_bytes,
             per_block = PL_TOKENS_BLOCK_BYTES / t->info.token_bytes;
    uint64_t offset = block * PL_TOKENS_BLOCK_BYTES, len = pl_min64(PL_TOKENS_BLOCK_BYTES, data - offset);
    uint64_t from = block * per_block, to = pl_min64(from + per_block, t->info.tokens);
    const uint8_t *at = t->map + PL_TOKENS_HEADER_BYTES + offset,
                  *sum = t->map + t->bytes - 8 * (t->blocks - block);
    if (pl_hash64(at, len, 0) != pl_get_le(sum, 8))
        return pl_fail(err, PELAGO_CORRUPT, "%s is damaged: the checksum of its tokens %lu to %lu is wrong",
                       t->path, from, to - 1);
    if (highest(t, from, to) >= t->info.vocab) {
        uint64_t i = from;
        while (token_at(t, i) < t->info.vocab)
            i++;
        return pl_fail(err, PELAGO_CORRUPT, "token %lu of %s is %u, but the vocabulary has %u", i, t->path,
                       token_at(t, i), t->info.vocab);
    }
    atomic_store_explicit(&t->checked[block], 1, memory_order_relaxed);
    return PELAGO_OK;
}

static enum pelago_status check_blocks(struct pl_tokens *t, uint64_t first, uint64_t last,
                                       struct pl_error *err)
{
    for (uint64_t block = first; block <= last; block++)
        if (atomic_load_explicit(&t->checked[block], memory_order_relaxed) == 0)
            PL_TRY(check_block(t, block, err));
    return PELAGO_OK;
}

enum pelago_status pl_tokens_check(struct pl_tokens *t, struct pl_error *err)
{
    return check_blocks(t, 0, t->blocks - 1, err);
}

static void copy(const struct pl_tokens *t, uint64_t at, uint64_t n, int32_t *into)
{
    const uint8_t *data = t->map + PL_TOKENS_HEADER_BYTES + at * t->info.token_bytes;
    const uint16_t *narrow = (const uint16_t *)(const void *)data;
    if (t->info.token_bytes == 4)
        memcpy(into, data, n * sizeof *into);
    else
        for (uint64_t i = 0; i < n; i++)
            into[i] = narrow[i];
}

enum pelago_status pl_tokens_fetch(struct pl_tokens *t, uint64_t at, uint64_t n, int32_t *inputs,
                                   int32_t *targets, struct pl_error *err)
{
    uint64_t ahead = targets != NULL ? 1 : 0, per_block = PL_TOKENS_BLOCK_BYTES / t->info.token_bytes;
    if (n == 0)
        return PELAGO_OK;
    if (at > t->info.tokens || n > t->info.tokens - at || ahead > t->info.tokens - at - n)
        return pl_fail(err, PELAGO_INVALID, "%s has %lu tokens, the %lu from %lu on are not all there",
                       t->path, t->info.tokens, n + ahead, at);
    PL_TRY(check_blocks(t, at / per_block, (at + n + ahead - 1) / per_block, err));
    copy(t, at, n, inputs);
    if (targets != NULL)
        copy(t, at + 1, n, targets);
    return PELAGO_OK;
}
