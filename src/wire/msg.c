/* wire/msg.c - encode and decode by walking the descriptors of msg_info.c.
 *
 * The decoder looks at a count or length only after comparing it with its limit and with the bytes that are left.
 * The encoder decodes what it wrote: whatever a peer would refuse stops us here.
 */
#include "wire/msg_int.h"

#include "base/bytes.h"

size_t pl_msg_payload_bytes(const struct pl_msg *m)
{
    const struct pl_msg_info *info = pl_msg_info(m->type);
    pl_assert(info != NULL);
    size_t bytes = 0;
    for (uint32_t i = 0; i < info->field_count; i++) {
        const struct pl_field *f = &info->fields[i];
        const void *member = (const uint8_t *)&m->u + f->offset;
        bytes += pl_field_width(f->kind);
        if (f->kind == PL_FIELD_ARRAY)
            bytes += (size_t)((const struct pl_array *)member)->count * f->item->bytes;
        else if (!pl_field_is_number(f->kind))
            bytes += ((const struct pl_blob *)member)->len;
    }
    return bytes;
}

static void write_field(struct pl_writer *w, const struct pl_field *f, const void *owner)
{
    const void *member = (const uint8_t *)owner + f->offset;
    if (f->kind == PL_FIELD_ARRAY) {
        const struct pl_array *a = member;
        pl_write_u32(w, a->count);
        pl_write_bytes(w, a->items, (size_t)a->count * f->item->bytes);
    } else if (pl_field_is_number(f->kind)) {
        pl_write_le(w, pl_field_load(f, owner), pl_field_width(f->kind));
    } else {
        const struct pl_blob *b = member;
        pl_write_u32(w, b->len);
        pl_write_bytes(w, b->data, b->len);
    }
}

size_t pl_msg_encode(const struct pl_msg *m, uint8_t *out, size_t cap)
{
    const struct pl_msg_info *info = pl_msg_info(m->type);
    pl_assert(info != NULL);
    struct pl_writer w = pl_writer_of(out, cap);
    for (uint32_t i = 0; i < info->field_count; i++)
        write_field(&w, &info->fields[i], &m->u);
    pl_assert(!w.bad);
    size_t len = pl_writer_len(&w);
    struct pl_msg back;
    pl_assert(pl_msg_decode(m->type, out, len, &back, NULL) == PELAGO_OK);
    return len;
}

/* Length of the UTF-8 sequence that starts at p, 0 when it is none or a control character. */
static size_t sequence_len(const uint8_t *p, size_t left)
{
    uint8_t first = p[0];
    if (first < 0x80)
        return first >= 0x20 && first != 0x7f ? 1 : 0;
    size_t len = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4 || left < len)
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    /* Second bytes that would make a control character, a second spelling, a surrogate, or a number too large. */
    if ((first == 0xc2 && p[1] < 0xa0) || (first == 0xe0 && p[1] < 0xa0) || (first == 0xed && p[1] >= 0xa0) ||
        (first == 0xf0 && p[1] < 0x90) || (first == 0xf4 && p[1] >= 0x90))
        return 0;
    return len;
}

bool pl_text_printable(const uint8_t *text, size_t len, size_t *bad)
{
    size_t at = 0;
    while (at < len) {
        size_t n = sequence_len(text + at, len - at);
        if (n == 0) {
            *bad = at;
            return false;
        }
        at += n;
    }
    return true;
}

struct decoder {
    struct pl_reader r;
    const char *msg;
    struct pl_error *err;
};

/* The number of a field, or the count or length that begins it. */
static enum pelago_status read_number(struct decoder *d, const struct pl_field *f, uint64_t *value)
{
    uint32_t width = pl_field_width(f->kind);
    if (pl_reader_left(&d->r) < width)
        return pl_fail(d->err, PELAGO_PROTO, "%s.%s needs %u bytes, %lu are left", d->msg, f->name, width,
                       (uint64_t)pl_reader_left(&d->r));
    *value = pl_read_le(&d->r, width);
    if (*value <= f->limit)
        return PELAGO_OK;
    const char *is = "is";
    if (f->kind == PL_FIELD_ARRAY)
        is = "has a count of";
    else if (!pl_field_is_number(f->kind))
        is = "has a length of";
    return pl_fail(d->err, PELAGO_PROTO, "%s.%s %s %lu, at most %lu is allowed", d->msg, f->name, is, *value,
                   f->limit);
}

static enum pelago_status read_blob(struct decoder *d, const struct pl_field *f, struct pl_blob *blob)
{
    uint64_t len;
    PL_TRY(read_number(d, f, &len));
    if (pl_reader_left(&d->r) < len)
        return pl_fail(d->err, PELAGO_PROTO, "%s.%s has a length of %lu, but only %lu bytes are left", d->msg,
                       f->name, len, (uint64_t)pl_reader_left(&d->r));
    *blob = (struct pl_blob){pl_read_bytes(&d->r, (size_t)len), (uint32_t)len};
    size_t bad;
    if (f->kind == PL_FIELD_TEXT && !pl_text_printable(blob->data, blob->len, &bad))
        return pl_fail(d->err, PELAGO_PROTO,
                       "%s.%s has byte 0x%lx at position %lu, printable UTF-8 is expected", d->msg, f->name,
                       (uint64_t)blob->data[bad], (uint64_t)bad);
    return PELAGO_OK;
}

/* A name: printable UTF-8, then zeros to the end, at least one. Returns what is wrong with it, or NULL. */
static const char *name_fault(const uint8_t *name)
{
    size_t len = 0;
    while (len < PL_NAME_MAX && name[len] != 0)
        len++;
    if (len == PL_NAME_MAX)
        return "has no final zero byte, at most 63 bytes of text are allowed";
    for (size_t i = len; i < PL_NAME_MAX; i++)
        if (name[i] != 0)
            return "has bytes after its first zero, only zeros are expected there";
    size_t bad;
    return pl_text_printable(name, len, &bad) ? NULL : "is not printable UTF-8";
}

static enum pelago_status check_item(struct decoder *d, const struct pl_field *array, uint32_t index,
                                     const uint8_t *bytes)
{
    for (uint32_t i = 0; i < array->item->field_count; i++) {
        const struct pl_field *f = &array->item->fields[i];
        uint32_t width = pl_field_width(f->kind);
        const char *fault = f->kind == PL_FIELD_NAME ? name_fault(bytes) : NULL;
        if (fault != NULL)
            return pl_fail(d->err, PELAGO_PROTO, "%s.%s[%u].%s %s", d->msg, array->name, index, f->name,
                           fault);
        if (f->kind != PL_FIELD_NAME && pl_get_le(bytes, width) > f->limit)
            return pl_fail(d->err, PELAGO_PROTO, "%s.%s[%u].%s is %lu, at most %lu is allowed", d->msg,
                           array->name, index, f->name, pl_get_le(bytes, width), f->limit);
        bytes += width;
    }
    return PELAGO_OK;
}

static enum pelago_status read_array(struct decoder *d, const struct pl_field *f, struct pl_array *array)
{
    uint64_t count;
    PL_TRY(read_number(d, f, &count));
    if (pl_reader_left(&d->r) / f->item->bytes < count)
        return pl_fail(d->err, PELAGO_PROTO,
                       "%s.%s has a count of %lu with %u bytes each, but only %lu bytes are left", d->msg,
                       f->name, count, f->item->bytes, (uint64_t)pl_reader_left(&d->r));
    *array = (struct pl_array){pl_read_bytes(&d->r, (size_t)count * f->item->bytes), (uint32_t)count};
    for (uint32_t i = 0; i < array->count; i++)
        PL_TRY(check_item(d, f, i, array->items + (size_t)i * f->item->bytes));
    return PELAGO_OK;
}

static enum pelago_status read_field(struct decoder *d, const struct pl_field *f, void *owner)
{
    void *member = (uint8_t *)owner + f->offset;
    if (f->kind == PL_FIELD_ARRAY)
        return read_array(d, f, member);
    if (!pl_field_is_number(f->kind))
        return read_blob(d, f, member);
    uint64_t value;
    PL_TRY(read_number(d, f, &value));
    pl_field_store(f, owner, value);
    return PELAGO_OK;
}

enum pelago_status pl_msg_decode(uint8_t type, const uint8_t *payload, size_t len, struct pl_msg *out,
                                 struct pl_error *err)
{
    memset(out, 0, sizeof *out);
    const struct pl_msg_info *info = pl_msg_info(type);
    if (info == NULL)
        return pl_fail(err, PELAGO_PROTO, "message type %u is not known", (unsigned)type);
    out->type = type;
    struct decoder d = {pl_reader_of(payload, len), info->name, err};
    for (uint32_t i = 0; i < info->field_count; i++)
        PL_TRY(read_field(&d, &info->fields[i], &out->u));
    if (pl_reader_left(&d.r) > 0)
        return pl_fail(err, PELAGO_PROTO, "%s has %lu bytes after its last field", info->name,
                       (uint64_t)pl_reader_left(&d.r));
    return PELAGO_OK;
}
