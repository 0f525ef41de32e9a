/* base/buf.h - a growable byte buffer that knows its maximum. */
#ifndef PL_BASE_BUF_H
#define PL_BASE_BUF_H

#include "base/alloc.h"
#include "base/status.h"

#include <stdint.h>

struct pl_buf {
    uint8_t *data;
    size_t len;
    size_t cap;
    size_t max;
    const struct pl_alloc *alloc; /* borrowed; outlives the buffer */
};

void pl_buf_init(struct pl_buf *b, const struct pl_alloc *alloc, size_t max_bytes);
void pl_buf_release(struct pl_buf *b);

/* Room for n more bytes at data + len; LIMIT when the maximum forbids it, NOMEM when memory does. */
enum pelago_status pl_buf_reserve(struct pl_buf *b, size_t n);
enum pelago_status pl_buf_append(struct pl_buf *b, const void *bytes, size_t n);

/* Drops the first n bytes; n <= len. */
void pl_buf_consume(struct pl_buf *b, size_t n);

#endif
