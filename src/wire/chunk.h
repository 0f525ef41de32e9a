/* wire/chunk.h - how a transfer is cut into chunks: both ends derive it from the transfer's size alone.
 *
 * At most PL_CHUNKS_MAX chunks, so that a uint64_t tells which have arrived; all of one length, a multiple of 4096
 * bytes and at least PL_CHUNK_BYTES_MIN, but for the last, which holds the rest. total_bytes is that of a validated
 * header: 1 ... PL_TRANSFER_BYTES_MAX.
 */
#ifndef PL_WIRE_CHUNK_H
#define PL_WIRE_CHUNK_H

#include "base/check.h"
#include "base/limits.h"

#include <stdint.h>

/* Bytes of every chunk but the last. */
static inline uint32_t pl_chunk_bytes(uint64_t total_bytes)
{
    pl_assert(total_bytes >= 1);
    pl_assert(total_bytes <= PL_TRANSFER_BYTES_MAX);
    uint64_t even = (total_bytes + PL_CHUNKS_MAX - 1) / PL_CHUNKS_MAX;
    uint64_t paged = (even + 4095) / 4096 * 4096;
    return paged > PL_CHUNK_BYTES_MIN ? (uint32_t)paged : PL_CHUNK_BYTES_MIN;
}

/* 1 ... PL_CHUNKS_MAX. */
static inline uint32_t pl_chunk_count(uint64_t total_bytes)
{
    uint32_t each = pl_chunk_bytes(total_bytes);
    return (uint32_t)((total_bytes + each - 1) / each);
}

static inline uint64_t pl_chunk_offset(uint64_t total_bytes, uint32_t i)
{
    pl_assert(i < pl_chunk_count(total_bytes));
    return (uint64_t)i * pl_chunk_bytes(total_bytes);
}

static inline uint32_t pl_chunk_len(uint64_t total_bytes, uint32_t i)
{
    uint64_t left = total_bytes - pl_chunk_offset(total_bytes, i);
    uint32_t each = pl_chunk_bytes(total_bytes);
    return left < each ? (uint32_t)left : each;
}

/* The mask of a complete transfer. */
static inline uint64_t pl_chunk_all(uint64_t total_bytes)
{
    return UINT64_MAX >> (64 - pl_chunk_count(total_bytes));
}

#endif
