/* base/buf.c - see buf.h. */
#include "base/buf.h"

#include "base/check.h"

#include <string.h>

void pl_buf_init(struct pl_buf *b, const struct pl_alloc *alloc, size_t max_bytes)
{
    *b = (struct pl_buf){NULL, 0, 0, max_bytes, alloc};
}

void pl_buf_release(struct pl_buf *b)
{
    pl_alloc_free(b->alloc, b->data, b->cap);
    b->data = NULL;
    b->len = b->cap = 0;
}

enum pelago_status pl_buf_reserve(struct pl_buf *b, size_t n)
{
    if (n > b->max - b->len)
        return PELAGO_LIMIT;
    size_t need = b->len + n;
    if (need <= b->cap)
        return PELAGO_OK;
    size_t cap = b->cap < 256 ? 256 : b->cap;
    if (cap > b->max)
        cap = b->max;
    while (cap < need)
        cap = cap > b->max / 2 ? b->max : cap * 2;
    void *data = b->alloc->resize(b->alloc->user, b->data, b->cap, cap);
    if (data == NULL)
        return PELAGO_NOMEM;
    b->data = data;
    b->cap = cap;
    return PELAGO_OK;
}

enum pelago_status pl_buf_append(struct pl_buf *b, const void *bytes, size_t n)
{
    PL_TRY(pl_buf_reserve(b, n));
    if (n > 0)
        memcpy(b->data + b->len, bytes, n);
    b->len += n;
    return PELAGO_OK;
}

void pl_buf_consume(struct pl_buf *b, size_t n)
{
    pl_assert(n <= b->len);
    if (n > 0 && n < b->len)
        memmove(b->data, b->data + n, b->len - n);
    b->len -= n;
}
