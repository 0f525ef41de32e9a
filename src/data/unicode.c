/* data/unicode.c - see unicode.h. The tables come from tools/gen_unicode.py.
 *
 * NFC works on stretches: one begins at a character that no composition changes or absorbs into what stands before it
 * ("plain"), and ends before the next plain one. All others are decomposed, sorted by combining class and composed again,
 * as Unicode Standard Annex 15 has it. English text has next to none, so the speed of that part does not matter.
 */
#include "data/unicode.h"

#include "base/check.h"

#include <stdlib.h>
#include <string.h>

struct mark_range {
    uint32_t first, last;
    uint8_t combining;
};

struct decomposition {
    uint32_t whole, first, second;
};

#include "data/unicode.inc"

enum { MARKS = sizeof mark_ranges / sizeof mark_ranges[0] };
enum { DECOMPOSITIONS = sizeof decompositions / sizeof decompositions[0] };
enum { COMPOSITIONS = sizeof compositions / sizeof compositions[0] };
enum { NOT_PLAIN = 4, CLASS_MASK = 3 };

/* Hangul syllables are arithmetic: leading consonant, vowel, perhaps a trailing consonant. */
enum {
    HANGUL = 0xac00,
    HANGUL_L = 0x1100,
    HANGUL_V = 0x1161,
    HANGUL_T = 0x11a7, /* the one before the first: no trailing consonant */
    L_COUNT = 19,
    V_COUNT = 21,
    T_COUNT = 28,
    HANGUL_COUNT = L_COUNT * V_COUNT * T_COUNT,
};

/* ---- UTF-8 ---- */

static bool is_tail(uint8_t byte)
{
    return (byte & 0xc0) == 0x80;
}

size_t pl_utf8_read(const uint8_t *at, const uint8_t *end, uint32_t *c)
{
    static const uint32_t smallest[5] = {0, 0, 0x80, 0x800, 0x10000};
    uint8_t lead = at[0];
    size_t len = lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
    *c = PL_CHAR_BAD;
    if (len == 0 || (size_t)(end - at) < len)
        return 1;
    if (len == 1) {
        *c = lead;
        return 1;
    }
    uint32_t value = lead & (0x7fu >> len);
    for (size_t i = 1; i < len; i++) {
        if (!is_tail(at[i]))
            return 1;
        value = value << 6 | (at[i] & 0x3fu);
    }
    if (value < smallest[len] || value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff))
        return 1;
    *c = value;
    return len;
}

size_t pl_utf8_write(uint8_t *into, uint32_t c)
{
    pl_assert(c <= 0x10ffff);
    if (c < 0x80) {
        into[0] = (uint8_t)c;
        return 1;
    }
    size_t len = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = len - 1; i > 0; i--) {
        into[i] = (uint8_t)(0x80 | (c & 0x3f));
        c >>= 6;
    }
    into[0] = (uint8_t)((0xf00u >> len & 0xffu) | c);
    return len;
}

size_t pl_utf8_unfinished(const uint8_t *text, size_t len)
{
    for (size_t back = 1; back <= 3 && back <= len; back++) {
        uint8_t byte = text[len - back];
        if (is_tail(byte))
            continue;
        size_t whole = byte >= 0xf0 && byte < 0xf5 ? 4 : byte >= 0xe0 ? 3 : 2;
        return byte >= 0xc2 && byte < 0xf5 && whole > back ? back : 0;
    }
    return 0;
}

/* ---- classes ---- */

static uint32_t look_up(uint32_t c)
{
    if (c >= CLASS_END)
        return 0;
    uint32_t in_block = c % CLASS_BLOCK;
    return class_blocks[class_index[c / CLASS_BLOCK]][in_block / 8] >> (4 * (in_block % 8)) & 0xf;
}

enum pl_char_class pl_char_class(uint32_t c)
{
    return (enum pl_char_class)(look_up(c) & CLASS_MASK);
}

static bool is_plain(uint32_t c)
{
    return (look_up(c) & NOT_PLAIN) == 0;
}

static uint8_t combining_class(uint32_t c)
{
    size_t lo = 0, hi = MARKS;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (mark_ranges[mid].last < c)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < MARKS && mark_ranges[lo].first <= c ? mark_ranges[lo].combining : 0;
}

/* ---- decomposition and composition ---- */

static const struct decomposition *find_decomposition(uint32_t c)
{
    size_t lo = 0, hi = DECOMPOSITIONS;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (decompositions[mid].whole < c)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < DECOMPOSITIONS && decompositions[lo].whole == c ? &decompositions[lo] : NULL;
}

static uint32_t compose_hangul(uint32_t a, uint32_t b)
{
    if (a >= HANGUL_L && a < HANGUL_L + L_COUNT && b >= HANGUL_V && b < HANGUL_V + V_COUNT)
        return HANGUL + ((a - HANGUL_L) * V_COUNT + (b - HANGUL_V)) * T_COUNT;
    if (a >= HANGUL && a < HANGUL + HANGUL_COUNT && (a - HANGUL) % T_COUNT == 0 && b > HANGUL_T &&
        b < HANGUL_T + T_COUNT)
        return a + (b - HANGUL_T);
    return 0;
}

/* The character that a and b make; 0 when they make none. */
static uint32_t compose(uint32_t a, uint32_t b)
{
    uint64_t wanted = (uint64_t)a << 32 | b;
    size_t lo = 0, hi = COMPOSITIONS;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        const struct decomposition *d = &decompositions[compositions[mid]];
        uint64_t here = (uint64_t)d->first << 32 | d->second;
        if (here == wanted)
            return d->whole;
        if (here < wanted)
            lo = mid + 1;
        else
            hi = mid;
    }
    return compose_hangul(a, b);
}

/* ---- NFC ---- */

/* A character of a stretch: combining class, place and code point in one number, so that sorting is stable. */
enum { CLASS_SHIFT = 56, PLACE_SHIFT = 21 };
#define CODE_MASK ((UINT64_C(1) << PLACE_SHIFT) - 1)

static uint32_t code_of(uint64_t item)
{
    return (uint32_t)(item & CODE_MASK);
}

static enum pelago_status push_item(struct pl_buf *items, uint32_t c)
{
    uint64_t place = items->len / sizeof(uint64_t);
    uint64_t item = (uint64_t)combining_class(c) << CLASS_SHIFT | place << PLACE_SHIFT | c;
    return pl_buf_append(items, &item, sizeof item);
}

/* Canonical decompositions nest no deeper than this. */
enum { NEST_MAX = 4 };

static enum pelago_status decompose(struct pl_buf *items, uint32_t c)
{
    uint32_t seconds[NEST_MAX];
    unsigned depth = 0;
    const struct decomposition *d;
    if (c >= HANGUL && c < HANGUL + HANGUL_COUNT) {
        uint32_t at = c - HANGUL;
        PL_TRY(push_item(items, HANGUL_L + at / (V_COUNT * T_COUNT)));
        PL_TRY(push_item(items, HANGUL_V + at / T_COUNT % V_COUNT));
        return at % T_COUNT > 0 ? push_item(items, HANGUL_T + at % T_COUNT) : PELAGO_OK;
    }
    while ((d = find_decomposition(c)) != NULL) {
        pl_assert(depth < NEST_MAX);
        seconds[depth++] = d->second;
        c = d->first;
    }
    PL_TRY(push_item(items, c));
    while (depth > 0) {
        uint32_t second = seconds[--depth];
        if (second != 0)
            PL_TRY(push_item(items, second));
    }
    return PELAGO_OK;
}

static int by_class_then_place(const void *a, const void *b)
{
    uint64_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return x < y ? -1 : x > y;
}

static void sort_marks(uint64_t *items, size_t count)
{
    for (size_t i = 0; i < count;) {
        size_t end = i;
        while (end < count && items[end] >> CLASS_SHIFT != 0)
            end++;
        if (end > i + 1)
            qsort(items + i, end - i, sizeof *items, by_class_then_place);
        i = end + 1;
    }
}

/* Composes in place and returns how many are left. */
static size_t compose_items(uint64_t *items, size_t count)
{
    size_t starter = SIZE_MAX, out = 0;
    uint64_t before =
        0; /* combining class of the last one kept: one of the same or a higher class blocks the way */
    for (size_t i = 0; i < count; i++) {
        uint64_t class = items[i] >> CLASS_SHIFT;
        bool adjacent = starter != SIZE_MAX && out == starter + 1;
        uint32_t whole = 0;
        if (starter != SIZE_MAX && (adjacent || before < class))
            whole = compose(code_of(items[starter]), code_of(items[i]));
        if (whole != 0) {
            items[starter] = whole; /* of class 0: no composite is a mark */
            continue;
        }
        if (class == 0)
            starter = out;
        before = class;
        items[out++] = items[i];
    }
    return out;
}

static enum pelago_status normalize_stretch(struct pl_buf *out, struct pl_buf *items, const uint8_t *at,
                                            const uint8_t *end)
{
    uint32_t c;
    uint8_t utf8[4];
    items->len = 0;
    while (at < end) {
        at += pl_utf8_read(at, end, &c);
        pl_assert(c != PL_CHAR_BAD);
        PL_TRY(decompose(items, c));
    }
    uint64_t *item = (uint64_t *)(void *)items->data;
    size_t count = items->len / sizeof *item;
    sort_marks(item, count);
    count = compose_items(item, count);
    for (size_t i = 0; i < count; i++)
        PL_TRY(pl_buf_append(out, utf8, pl_utf8_write(utf8, code_of(item[i]))));
    return PELAGO_OK;
}

size_t pl_nfc_plain(const uint8_t *text, size_t len)
{
    const uint8_t *at = text, *end = text + len, *last = text; /* the last plain character seen */
    while (at < end) {
        uint32_t c;
        size_t n;
        /* Every character below U+0300, and so every lead byte below 0xcc, is plain. */
        if (*at < 0xcc) {
            last = at++;
            continue;
        }
        n = pl_utf8_read(at, end, &c);
        if (c != PL_CHAR_BAD && !is_plain(c)) {
            while (last > text && is_tail(*last))
                last--;
            return (size_t)(last - text);
        }
        last = at;
        at += n;
    }
    return len;
}

/* Where the stretch ends that begins at `at`: before the next plain character after the first one. */
static const uint8_t *stretch_end(const uint8_t *at, const uint8_t *end)
{
    uint32_t c;
    at += pl_utf8_read(at, end, &c);
    if (c == PL_CHAR_BAD)
        return at;
    while (at < end) {
        size_t n = pl_utf8_read(at, end, &c);
        if (c == PL_CHAR_BAD || is_plain(c))
            break;
        at += n;
    }
    return at;
}

static bool is_bad_byte(const uint8_t *at, const uint8_t *end)
{
    uint32_t c;
    (void)pl_utf8_read(at, end, &c);
    return c == PL_CHAR_BAD;
}

enum pelago_status pl_nfc_append(struct pl_buf *out, const uint8_t *text, size_t len)
{
    const uint8_t *at = text, *end = text + len;
    enum pelago_status status = PELAGO_OK;
    struct pl_buf items;
    pl_buf_init(&items, out->alloc, SIZE_MAX / 2);
    while (at < end && status == PELAGO_OK) {
        size_t plain = pl_nfc_plain(at, (size_t)(end - at));
        status = pl_buf_append(out, at, plain);
        at += plain;
        if (status != PELAGO_OK || at == end)
            break;
        const uint8_t *stop = stretch_end(at, end);
        status = is_bad_byte(at, end) ? pl_buf_append(out, at, (size_t)(stop - at))
                                      : normalize_stretch(out, &items, at, stop);
        at = stop;
    }
    pl_buf_release(&items);
    return status;
}
