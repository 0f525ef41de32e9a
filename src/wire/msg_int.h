/* wire/msg_int.h - reading and writing struct members through their descriptors; for wire/ and its tests. */
#ifndef PL_WIRE_MSG_INT_H
#define PL_WIRE_MSG_INT_H

#include "base/check.h"
#include "wire/msg.h"

#include <string.h>

static inline bool pl_field_is_number(uint8_t kind)
{
    return kind <= PL_FIELD_U64;
}

/* Bytes on the wire: of a number or a name, or of the count that begins an array, text or byte string. */
static inline uint32_t pl_field_width(uint8_t kind)
{
    static const uint8_t widths[] = {
        [PL_FIELD_U8] = 1,    [PL_FIELD_U32] = 4,  [PL_FIELD_U64] = 8,   [PL_FIELD_NAME] = PL_NAME_MAX,
        [PL_FIELD_ARRAY] = 4, [PL_FIELD_TEXT] = 4, [PL_FIELD_BYTES] = 4,
    };
    pl_assert(kind >= PL_FIELD_U8);
    pl_assert(kind <= PL_FIELD_BYTES);
    return widths[kind];
}

/* The number f of the struct at owner. */
static inline uint64_t pl_field_load(const struct pl_field *f, const void *owner)
{
    const uint8_t *p = (const uint8_t *)owner + f->offset;
    if (f->kind == PL_FIELD_U8)
        return *p;
    if (f->kind == PL_FIELD_U32)
        return *(const uint32_t *)(const void *)p;
    pl_assert(f->kind == PL_FIELD_U64);
    return *(const uint64_t *)(const void *)p;
}

static inline void pl_field_store(const struct pl_field *f, void *owner, uint64_t value)
{
    uint8_t *p = (uint8_t *)owner + f->offset;
    if (f->kind == PL_FIELD_U8) {
        *p = (uint8_t)value;
    } else if (f->kind == PL_FIELD_U32) {
        *(uint32_t *)(void *)p = (uint32_t)value;
    } else {
        pl_assert(f->kind == PL_FIELD_U64);
        *(uint64_t *)(void *)p = value;
    }
}

/* Whether len bytes are UTF-8 without control characters; *bad is then the position of the first wrong byte. */
bool pl_text_printable(const uint8_t *text, size_t len, size_t *bad);

#endif
