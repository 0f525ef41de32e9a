/* support/wire_gen.c - see wire_gen.h. */
#include "wire_gen.h"

#include "base/check.h"

#include <string.h>

void wire_gen_init(struct wire_gen *g, uint64_t seed, uint32_t count_max)
{
    pl_prng_seed(&g->rng, seed, 1);
    g->count_max = count_max;
    g->used = 0;
}

static uint64_t number(struct wire_gen *g, uint64_t limit)
{
    switch (pl_prng_below(&g->rng, 4)) {
    case 0:
        return pl_prng_below(&g->rng, 2) * limit;
    case 1:
        return limit > 100 ? pl_prng_below(&g->rng, 100) : pl_prng_range(&g->rng, 0, limit);
    default:
        return pl_prng_range(&g->rng, 0, limit);
    }
}

static uint8_t *room(struct wire_gen *g, size_t bytes)
{
    pl_assert(g->used + bytes <= sizeof g->pool);
    uint8_t *p = g->pool + g->used;
    g->used += bytes;
    return p;
}

/* Printable characters of one to four bytes, as many as fit; returns their length. */
static size_t printable(struct wire_gen *g, uint8_t *out, size_t max)
{
    static const char *const wide[] = {"\xc2\xa0",     "\xdf\xbf",         "\xe0\xa0\x80",    "\xed\x9f\xbf",
                                       "\xef\xbf\xbd", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"};
    size_t want = pl_prng_range(&g->rng, 0, max);
    size_t len = 0;
    while (len < want) {
        const char *c = wide[pl_prng_below(&g->rng, 7)];
        size_t n = strlen(c);
        if (pl_prng_chance(&g->rng, 200000) && len + n <= want) {
            memcpy(out + len, c, n);
            len += n;
        } else {
            out[len++] = (uint8_t)pl_prng_range(&g->rng, 0x20, 0x7e);
        }
    }
    return len;
}

static struct pl_blob text(struct wire_gen *g)
{
    uint8_t *data = room(g, PL_TEXT_MAX);
    return (struct pl_blob){data, (uint32_t)printable(g, data, PL_TEXT_MAX)};
}

static struct pl_blob bytes(struct wire_gen *g, uint64_t limit)
{
    uint32_t len = (uint32_t)pl_prng_range(&g->rng, 0, limit < g->count_max ? limit : g->count_max);
    uint8_t *data = room(g, len);
    for (uint32_t i = 0; i < len; i++)
        data[i] = (uint8_t)pl_prng_next(&g->rng);
    return (struct pl_blob){data, len};
}

#define ITEM_BEGIN(ITEM, item)                                                                               \
    static void item_##item(struct wire_gen *g, uint8_t *items, uint32_t i)                                  \
    {                                                                                                        \
        struct pl_item_##item v;                                                                             \
        memset(&v, 0, sizeof v);
#define ITEM_U8(item, field, limit, doc) v.field = (uint8_t)number(g, limit);
#define ITEM_U32(item, field, limit, doc) v.field = (uint32_t)number(g, limit);
#define ITEM_U64(item, field, limit, doc) v.field = number(g, limit);
#define ITEM_NAME(item, field, doc) printable(g, (uint8_t *)v.field, PL_NAME_MAX - 1);
#define ITEM_END(ITEM, item)                                                                                 \
    pl_item_##item##_put(items, i, &v);                                                                      \
    }
#include "wire/messages.def"

static struct pl_array array(struct wire_gen *g, uint32_t limit, size_t item_bytes,
                             void (*make)(struct wire_gen *, uint8_t *, uint32_t))
{
    uint32_t count = (uint32_t)pl_prng_range(&g->rng, 0, limit < g->count_max ? limit : g->count_max);
    uint8_t *items = room(g, count * item_bytes);
    for (uint32_t i = 0; i < count; i++)
        make(g, items, i);
    return (struct pl_array){items, count};
}

enum {
#define ITEM_BEGIN(ITEM, item) bytes_of_##item = PL_ITEM_##ITEM##_BYTES,
#include "wire/messages.def"
};

void wire_gen_msg(struct wire_gen *g, uint8_t type, struct pl_msg *m)
{
    memset(m, 0, sizeof *m);
    m->type = type;
    g->used = 0;
    switch (type) {
#define MSG_BEGIN(NAME, name, no, channel, sender, doc) case no:
#define U8(name, field, limit, doc) m->u.name.field = (uint8_t)number(g, limit);
#define U32(name, field, limit, doc) m->u.name.field = (uint32_t)number(g, limit);
#define U64(name, field, limit, doc) m->u.name.field = number(g, limit);
#define ARRAY(name, field, item, limit, doc) m->u.name.field = array(g, limit, bytes_of_##item, item_##item);
#define TEXT(name, field, doc) m->u.name.field = text(g);
#define BYTES(name, field, limit, doc) m->u.name.field = bytes(g, limit);
#define MSG_END(NAME, name) break;
#include "wire/messages.def"
    default:
        pl_assert_failed("a message of the table", __FILE__, __LINE__);
    }
}

#define ITEM_BEGIN(ITEM, item)                                                                               \
    static bool same_##item(const struct pl_array *a, const struct pl_array *b)                              \
    {                                                                                                        \
        bool same = a->count == b->count;                                                                    \
        for (uint32_t i = 0; same && i < a->count; i++) {                                                    \
            struct pl_item_##item x = pl_item_##item##_at(a, i);                                             \
            struct pl_item_##item y = pl_item_##item##_at(b, i);
#define ITEM_U8(item, field, limit, doc) same = same && x.field == y.field;
#define ITEM_U32(item, field, limit, doc) same = same && x.field == y.field;
#define ITEM_U64(item, field, limit, doc) same = same && x.field == y.field;
#define ITEM_NAME(item, field, doc) same = same && memcmp(x.field, y.field, PL_NAME_MAX) == 0;
#define ITEM_END(ITEM, item)                                                                                 \
    }                                                                                                        \
    return same;                                                                                             \
    }
#include "wire/messages.def"

static bool same_blob(const struct pl_blob *a, const struct pl_blob *b)
{
    return a->len == b->len && (a->len == 0 || memcmp(a->data, b->data, a->len) == 0);
}

const char *wire_msg_difference(const struct pl_msg *a, const struct pl_msg *b)
{
    if (a->type != b->type)
        return "type";
#define SAME(name, field, test)                                                                              \
    if (!(test))                                                                                             \
        return #name "." #field;
    switch (a->type) {
#define MSG_BEGIN(NAME, name, no, channel, sender, doc) case no:
#define U8(name, field, limit, doc) SAME(name, field, a->u.name.field == b->u.name.field)
#define U32(name, field, limit, doc) SAME(name, field, a->u.name.field == b->u.name.field)
#define U64(name, field, limit, doc) SAME(name, field, a->u.name.field == b->u.name.field)
#define ARRAY(name, field, item, limit, doc)                                                                 \
    SAME(name, field, same_##item(&a->u.name.field, &b->u.name.field))
#define TEXT(name, field, doc) SAME(name, field, same_blob(&a->u.name.field, &b->u.name.field))
#define BYTES(name, field, limit, doc) SAME(name, field, same_blob(&a->u.name.field, &b->u.name.field))
#define MSG_END(NAME, name) return NULL;
#include "wire/messages.def"
    default:
        return "type";
    }
}
