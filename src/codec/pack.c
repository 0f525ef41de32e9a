/* codec/pack.c - see pack.h. Both zstd contexts live in one piece of memory of known size: zstd itself allocates
 * nothing, then or later. */
#include "codec/pack.h"

#include "base/check.h"

#include <string.h>
#define ZSTD_STATIC_LINKING_ONLY /* ZSTD_initStatic... and the estimates; the shared library exports them */
#include <zstd.h>
#include <zstd_errors.h>

enum { LEVEL = 1, RAW = 0, ZSTD = 1, ALIGN = 64 };

struct pl_packer {
    struct pl_alloc alloc;
    size_t bytes;
    ZSTD_CCtx *compress;
    ZSTD_DCtx *expand;
};

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

size_t pl_pack_bytes_max(size_t raw_bytes)
{
    return 1 + raw_bytes;
}

struct pl_packer *pl_packer_new(const struct pl_alloc *alloc)
{
    size_t head = aligned(sizeof(struct pl_packer));
    size_t compress = aligned(ZSTD_estimateCCtxSize(LEVEL));
    size_t bytes = head + compress + aligned(ZSTD_estimateDCtxSize());
    struct pl_packer *p = pl_alloc_zero(alloc, 1, bytes);
    if (p == NULL)
        return NULL;
    uint8_t *memory = (uint8_t *)p;
    *p = (struct pl_packer){.alloc = *alloc, .bytes = bytes};
    p->compress = ZSTD_initStaticCCtx(memory + head, compress);
    p->expand = ZSTD_initStaticDCtx(memory + head + compress, bytes - head - compress);
    pl_assert(p->compress != NULL && p->expand != NULL);
    return p;
}

void pl_packer_free(struct pl_packer *p)
{
    if (p == NULL)
        return;
    struct pl_alloc alloc = p->alloc;
    pl_alloc_free(&alloc, p, p->bytes);
}

/* The bytes written, or 0 where they would not be fewer. */
static size_t squeezed(struct pl_packer *p, const uint8_t *raw, size_t len, uint8_t *out)
{
    if (len < 2)
        return 0;
    size_t got = ZSTD_compressCCtx(p->compress, out, len - 1, raw, len, LEVEL);
    if (!ZSTD_isError(got))
        return got;
    pl_assert(ZSTD_getErrorCode(got) == ZSTD_error_dstSize_tooSmall);
    return 0;
}

size_t pl_pack(struct pl_packer *p, const uint8_t *raw, size_t len, bool squeeze, uint8_t *out)
{
    size_t short_len = squeeze ? squeezed(p, raw, len, out + 1) : 0;
    out[0] = short_len > 0 ? ZSTD : RAW;
    if (short_len > 0)
        return 1 + short_len;
    if (len > 0)
        memcpy(out + 1, raw, len);
    return 1 + len;
}

static enum pelago_status unpack_raw(const uint8_t *bytes, size_t len, uint8_t *raw, size_t raw_bytes,
                                     struct pl_error *err)
{
    if (len != raw_bytes)
        return pl_fail(err, PELAGO_CORRUPT, "an encoding of %lu bytes should have %lu", (uint64_t)len,
                       (uint64_t)raw_bytes);
    if (len > 0)
        memcpy(raw, bytes, len);
    return PELAGO_OK;
}

static enum pelago_status unpack_zstd(struct pl_packer *p, const uint8_t *bytes, size_t len, uint8_t *raw,
                                      size_t raw_bytes, struct pl_error *err)
{
    size_t got = ZSTD_decompressDCtx(p->expand, raw, raw_bytes, bytes, len);
    if (ZSTD_isError(got) && ZSTD_getErrorCode(got) == ZSTD_error_dstSize_tooSmall)
        return pl_fail(err, PELAGO_CORRUPT, "a compressed encoding expands to more than its %lu bytes",
                       (uint64_t)raw_bytes);
    if (ZSTD_isError(got))
        return pl_fail(err, PELAGO_CORRUPT, "a compressed encoding of %lu bytes cannot be expanded: %s",
                       (uint64_t)len, ZSTD_getErrorName(got));
    if (got != raw_bytes)
        return pl_fail(err, PELAGO_CORRUPT, "a compressed encoding expands to %lu bytes instead of %lu",
                       (uint64_t)got, (uint64_t)raw_bytes);
    return PELAGO_OK;
}

enum pelago_status pl_unpack(struct pl_packer *p, const uint8_t *bytes, size_t len, uint8_t *raw,
                             size_t raw_bytes, struct pl_error *err)
{
    if (len == 0)
        return pl_fail(err, PELAGO_CORRUPT, "an encoding is empty: not even its envelope is there");
    if (bytes[0] == RAW)
        return unpack_raw(bytes + 1, len - 1, raw, raw_bytes, err);
    if (bytes[0] == ZSTD)
        return unpack_zstd(p, bytes + 1, len - 1, raw, raw_bytes, err);
    return pl_fail(err, PELAGO_CORRUPT, "an encoding is packed in an unknown way, %u", (unsigned)bytes[0]);
}
