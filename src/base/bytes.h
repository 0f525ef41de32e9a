/* base/bytes.h - little-endian integers in byte arrays, and bounded cursors over them.
 *
 * A reader or writer never runs past its end: it becomes `bad` and stays so, later reads give 0, later writes do
 * nothing. Callers check `bad` once at the end. No bytes at all may be NULL and 0; C forbids even NULL + 0.
 */
#ifndef PL_BASE_BYTES_H
#define PL_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Borrowed bytes; several in a row are one message in pieces, so that large ones need not be copied together. */
struct pl_bytes {
    const void *data;
    size_t len;
};

static inline void pl_put_le(uint8_t *p, uint64_t v, unsigned width)
{
    for (unsigned i = 0; i < width; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}

static inline uint64_t pl_get_le(const uint8_t *p, unsigned width)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < width; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

struct pl_reader {
    const uint8_t *at;
    const uint8_t *end;
    bool bad;
};

static inline struct pl_reader pl_reader_of(const void *bytes, size_t len)
{
    const uint8_t *p = bytes;
    return (struct pl_reader){p, len > 0 ? p + len : p, false};
}

static inline size_t pl_reader_left(const struct pl_reader *r)
{
    return (size_t)(r->end - r->at);
}

/* The next n bytes, or NULL (and bad) when there are fewer. */
static inline const uint8_t *pl_read_bytes(struct pl_reader *r, size_t n)
{
    if (r->bad || pl_reader_left(r) < n) {
        r->bad = true;
        return NULL;
    }
    const uint8_t *p = r->at;
    r->at = n > 0 ? p + n : p;
    return p;
}

static inline uint64_t pl_read_le(struct pl_reader *r, unsigned width)
{
    const uint8_t *p = pl_read_bytes(r, width);
    return p != NULL ? pl_get_le(p, width) : 0;
}

static inline uint8_t pl_read_u8(struct pl_reader *r)
{
    return (uint8_t)pl_read_le(r, 1);
}
static inline uint32_t pl_read_u32(struct pl_reader *r)
{
    return (uint32_t)pl_read_le(r, 4);
}
static inline uint64_t pl_read_u64(struct pl_reader *r)
{
    return pl_read_le(r, 8);
}

struct pl_writer {
    uint8_t *start;
    uint8_t *at;
    uint8_t *end;
    bool bad;
};

static inline struct pl_writer pl_writer_of(void *bytes, size_t cap)
{
    uint8_t *p = bytes;
    return (struct pl_writer){p, p, cap > 0 ? p + cap : p, false};
}

static inline size_t pl_writer_len(const struct pl_writer *w)
{
    return (size_t)(w->at - w->start);
}

/* Room for n bytes, or NULL (and bad). */
static inline uint8_t *pl_write_room(struct pl_writer *w, size_t n)
{
    if (w->bad || (size_t)(w->end - w->at) < n) {
        w->bad = true;
        return NULL;
    }
    uint8_t *p = w->at;
    w->at = n > 0 ? p + n : p;
    return p;
}

static inline void pl_write_le(struct pl_writer *w, uint64_t v, unsigned width)
{
    uint8_t *p = pl_write_room(w, width);
    if (p != NULL)
        pl_put_le(p, v, width);
}

static inline void pl_write_u8(struct pl_writer *w, uint8_t v)
{
    pl_write_le(w, v, 1);
}
static inline void pl_write_u32(struct pl_writer *w, uint32_t v)
{
    pl_write_le(w, v, 4);
}
static inline void pl_write_u64(struct pl_writer *w, uint64_t v)
{
    pl_write_le(w, v, 8);
}

static inline void pl_write_bytes(struct pl_writer *w, const void *bytes, size_t n)
{
    uint8_t *p = pl_write_room(w, n);
    if (p != NULL && n > 0)
        memcpy(p, bytes, n);
}

#endif
