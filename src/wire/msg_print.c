/* wire/msg_print.c - one readable line per message, for traces. Rounds as epoch.tick, incarnations as
 * epoch.counter, digests in hex, reasons by name. */
#include "wire/msg_int.h"

#include "base/fmt.h"

struct line {
    char *out;
    size_t cap;
    size_t len;
};

static void put(struct line *l, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    l->len += pl_vfmt(l->out + l->len, l->cap - l->len, format, args);
    va_end(args);
}

static bool is_named(const struct pl_field *f, const char *name)
{
    const char *own = f->name;
    while (*own != '\0' && *own == *name) {
        own++;
        name++;
    }
    return *own == *name;
}

size_t pl_incarnation_print(uint64_t incarnation, char *out, size_t cap)
{
    if (incarnation == 0)
        return pl_fmt(out, cap, "none");
    return pl_fmt(out, cap, "%lu.%lu", incarnation >> 32, incarnation & UINT32_MAX);
}

size_t pl_reason_print(uint64_t code, char *out, size_t cap)
{
    const char *name = code == 0 ? "none" : pl_reason_name((uint32_t)code);
    return name == pl_reason_name(0) ? pl_fmt(out, cap, "%lu", code) : pl_fmt(out, cap, "%s", name);
}

static void put_word(struct line *l, const struct pl_field *f, size_t (*print)(uint64_t, char *, size_t),
                     uint64_t value)
{
    put(l, " %s=", f->name);
    l->len += print(value, l->out + l->len, l->cap - l->len);
}

static void put_number(struct line *l, const struct pl_field *f, uint64_t value)
{
    if (is_named(f, "round") || is_named(f, "last_merged"))
        put(l, " %s=%lu.%lu", f->name, pl_round_epoch(value), pl_round_tick(value));
    else if (is_named(f, "digest") || is_named(f, "manifest_digest"))
        put(l, " %s=%lx", f->name, value);
    else if (is_named(f, "incarnation"))
        put_word(l, f, pl_incarnation_print, value);
    else if (is_named(f, "code"))
        put_word(l, f, pl_reason_print, value);
    else if (f->kind == PL_FIELD_U64 && value == UINT64_MAX)
        put(l, " %s=none", f->name);
    else
        put(l, " %s=%lu", f->name, value);
}

static void put_text(struct line *l, const struct pl_field *f, const struct pl_blob *text)
{
    char copy[PL_TEXT_MAX + 1];
    pl_assert(text->len <= PL_TEXT_MAX);
    if (text->len > 0)
        memcpy(copy, text->data, text->len);
    copy[text->len] = '\0';
    put(l, " %s=\"%s\"", f->name, copy);
}

size_t pl_msg_print(const struct pl_msg *m, char *out, size_t cap)
{
    const struct pl_msg_info *info = pl_msg_info(m->type);
    pl_assert(info != NULL);
    struct line l = {out, cap, 0};
    put(&l, "%s", info->name);
    for (uint32_t i = 0; i < info->field_count; i++) {
        const struct pl_field *f = &info->fields[i];
        const void *member = (const uint8_t *)&m->u + f->offset;
        if (pl_field_is_number(f->kind))
            put_number(&l, f, pl_field_load(f, &m->u));
        else if (f->kind == PL_FIELD_TEXT)
            put_text(&l, f, member);
        else if (f->kind == PL_FIELD_ARRAY)
            put(&l, " %s[%u]", f->name, ((const struct pl_array *)member)->count);
        else
            put(&l, " %s[%u]", f->name, ((const struct pl_blob *)member)->len);
    }
    return l.len;
}
