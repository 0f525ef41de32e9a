/* codec/topk.c - see topk.h: choosing, writing, reading and checking the chunks of the top-k codecs.
 *
 * Two magnitudes say what is chosen: those from the mean on are sent as their mean, and so are those below it. Whatever
 * the values are, what is lost is shorter than they.
 */
#include "codec/topk.h"

#include "base/check.h"
#include "codec/scale.h"

enum { LEVELS_BYTES = 4, PLACE_BITS = 12 };
_Static_assert(PL_CODEC_CHUNK == 1 << PLACE_BITS, "a place has 12 bits");

/* Where the parts of a chunk begin, and how long they are. */
struct form {
    uint32_t kept, low_bits;
    size_t low_at, high_at, bytes; /* bytes from the chunk's beginning on */
    size_t high_count;             /* bits */
};

static struct form form_of(uint32_t codec, size_t len)
{
    static const uint8_t low_bits[] = {[PL_CODEC_TOPK32] = 7, [PL_CODEC_TOPK64] = 6, [PL_CODEC_TOPK128] = 5};
    struct form f = {.low_bits = low_bits[codec]};
    f.kept = (uint32_t)((len + (1u << f.low_bits) - 1) >> f.low_bits);
    f.high_count = f.kept + ((len - 1) >> f.low_bits);
    f.low_at = LEVELS_BYTES + (f.kept + 3) / 4;
    f.high_at = f.low_at + (f.kept * f.low_bits + 7) / 8;
    f.bytes = f.high_at + (f.high_count + 7) / 8;
    return f;
}

size_t pl_topk_bytes(uint32_t codec, size_t len)
{
    return form_of(codec, len).bytes;
}

/* ---- choosing ---- */

static uint32_t magnitude(float x)
{
    return pl_float_bits(x) & 0x7fffffffu;
}

/* The k-th largest magnitude, ten or eleven bits at a time: of those that agree so far a histogram is made. */
static uint32_t threshold(const float *x, size_t len, uint32_t k)
{
    static const struct {
        uint32_t shift, count;
    } turns[] = {{20, 1 << 11}, {10, 1 << 10}, {0, 1 << 10}};
    uint32_t found = 0, known = 0;
    for (unsigned t = 0; t < sizeof turns / sizeof turns[0]; t++) {
        const uint32_t shift = turns[t].shift, low = turns[t].count - 1;
        uint16_t histogram[1 << 11] = {0};
        for (size_t i = 0; i < len; i++)
            if ((magnitude(x[i]) & known) == found)
                histogram[magnitude(x[i]) >> shift & low]++;
        uint32_t at = low;
        for (; histogram[at] < k; at--)
            k -= histogram[at];
        found |= at << shift;
        known |= low << shift;
    }
    return found;
}

void pl_topk_select(const float *x, size_t len, uint32_t k, uint16_t *index)
{
    pl_assert(k >= 1 && k <= len && len <= PL_CODEC_CHUNK);
    const uint32_t limit = threshold(x, len, k);
    uint32_t equal = k, n = 0; /* so many of those at the limit are taken */
    for (size_t i = 0; i < len; i++)
        equal -= magnitude(x[i]) > limit;
    for (size_t i = 0; i < len; i++) {
        uint32_t m = magnitude(x[i]);
        if (m < limit || (m == limit && equal == 0))
            continue;
        equal -= m == limit;
        index[n++] = (uint16_t)i;
    }
    pl_assert(n == k && equal == 0);
}

/* ---- writing ---- */

struct levels {
    pl_bf16 lower, upper;
    float limit; /* from here on: upper */
};

static pl_bf16 mean_of(double sum, uint32_t count)
{
    float mean = count > 0 ? (float)(sum / count) : 0;
    return pl_float_bits(mean) >= PL_BF16_MAX << 16 ? (pl_bf16)PL_BF16_MAX : pl_scale_settle(mean);
}

/* Sums go in the order of places. The largest is never below the mean. */
static struct levels find_levels(const float *x, const uint16_t *index, uint32_t kept)
{
    struct levels l;
    double sum = 0, above = 0, below = 0;
    uint32_t upper = 0;
    for (uint32_t j = 0; j < kept; j++)
        sum += (double)pl_bits_float(magnitude(x[index[j]]));
    l.limit = (float)(sum / kept);
    for (uint32_t j = 0; j < kept; j++) {
        float m = pl_bits_float(magnitude(x[index[j]]));
        *(m >= l.limit ? &above : &below) += (double)m;
        upper += m >= l.limit;
    }
    l.upper = mean_of(above, upper);
    l.lower = mean_of(below, kept - upper);
    if (l.lower == l.upper) { /* one magnitude says it all */
        l.limit = 0;
        l.lower = 0;
    }
    return l;
}

static void put_bits(uint8_t *out, size_t at, uint32_t bits)
{
    uint32_t shifted = bits << at % 8;
    out[at / 8] = (uint8_t)(out[at / 8] | shifted);
    if (shifted >> 8 != 0)
        out[at / 8 + 1] = (uint8_t)(out[at / 8 + 1] | shifted >> 8);
}

/* A zero has no sign. */
static unsigned code_of(const struct levels *l, float x)
{
    bool upper = pl_bits_float(magnitude(x)) >= l->limit;
    return (upper ? 2u : 0u) | (upper || l->lower != 0 ? pl_float_bits(x) >> 31 : 0);
}

void pl_topk_encode(const struct pl_codec_kernels *kernels, uint32_t codec, const float *x, size_t len,
                    uint8_t *out, float *rest)
{
    const struct form f = form_of(codec, len);
    uint16_t index[PL_TOPK_MAX];
    if (len == PL_CODEC_CHUNK)
        kernels->topk_select(x, f.kept, index);
    else
        pl_topk_select(x, len, f.kept, index);
    const struct levels l = find_levels(x, index, f.kept);
    const float lower = pl_bf16_to_float(l.lower), upper = pl_bf16_to_float(l.upper);
    const float level[4] = {lower, -lower, upper, -upper};
    if (rest != NULL && rest != x)
        memcpy(rest, x, len * sizeof *x);
    memset(out, 0, f.bytes);
    if (l.upper == 0)
        return;
    pl_put_le(out, l.lower, 2);
    pl_put_le(out + 2, l.upper, 2);
    for (uint32_t j = 0; j < f.kept; j++) {
        const uint32_t at = index[j];
        const unsigned code = code_of(&l, x[at]);
        put_bits(out + LEVELS_BYTES, 2 * (size_t)j, code);
        put_bits(out + f.low_at, (size_t)j * f.low_bits, at & ((1u << f.low_bits) - 1));
        put_bits(out + f.high_at, (at >> f.low_bits) + (size_t)j, 1);
        if (rest != NULL)
            rest[at] = x[at] - level[code];
    }
}

/* ---- reading ---- */

/* Up to eight bits. What lies behind the low bits is there to be read: the high bits. */
static uint32_t get_bits(const uint8_t *bytes, size_t at, uint32_t count)
{
    uint32_t two = (uint32_t)bytes[at / 8] | (uint32_t)bytes[at / 8 + 1] << 8;
    return two >> at % 8 & ((1u << count) - 1);
}

/* The places, as far as there are; returns how many bits are set. */
static uint32_t read_places(const struct form *f, const uint8_t *bytes, uint16_t *index)
{
    uint32_t j = 0;
    for (size_t at = 0; at < f->bytes - f->high_at; at += 8) {
        size_t left = f->bytes - f->high_at - at;
        uint64_t word = pl_get_le(bytes + f->high_at + at, left < 8 ? (unsigned)left : 8);
        for (; word != 0; word &= word - 1, j++) {
            if (j >= f->kept)
                return j + 1;
            uint32_t high = (uint32_t)(8 * at) + (uint32_t)__builtin_ctzll(word) - j;
            index[j] = (uint16_t)(high << f->low_bits |
                                  get_bits(bytes + f->low_at, (size_t)j * f->low_bits, f->low_bits));
        }
    }
    return j;
}

void pl_topk_read(uint32_t codec, const uint8_t *bytes, size_t len, struct pl_topk_values *out)
{
    const struct form f = form_of(codec, len);
    const float lower = pl_scale_get(bytes), upper = pl_scale_get(bytes + 2);
    const float level[4] = {lower, -lower, upper, -upper};
    out->count = upper > 0 ? f.kept : 0;
    if (out->count == 0)
        return;
    uint32_t found = read_places(&f, bytes, out->index);
    pl_assert(found == f.kept);
    for (uint32_t j = 0; j < f.kept; j++)
        out->value[j] = level[bytes[LEVELS_BYTES + j / 4] >> 2 * (j % 4) & 3];
}

/* ---- checking ---- */

static bool any_bit(const uint8_t *bytes, size_t n)
{
    uint8_t all = 0;
    for (size_t i = 0; i < n; i++)
        all |= bytes[i];
    return all != 0;
}

/* Bits of a part of `count` bits that mean nothing: those behind the last one. */
static bool any_behind(const uint8_t *part, size_t count)
{
    return count % 8 != 0 && part[count / 8] >> count % 8 != 0;
}

static bool codes_check(const struct form *f, const uint8_t *codes, bool lower)
{
    for (uint32_t j = 0; !lower && j < f->kept; j++)
        if ((codes[j / 4] >> 2 * (j % 4) & 3) == 1) /* minus zero */
            return false;
    return !any_behind(codes, 2 * (size_t)f->kept);
}

static bool places_check(const struct form *f, const uint8_t *bytes, size_t len)
{
    uint16_t index[PL_TOPK_MAX];
    if (any_behind(bytes + f->low_at, (size_t)f->kept * f->low_bits) ||
        any_behind(bytes + f->high_at, f->high_count) || read_places(f, bytes, index) != f->kept)
        return false;
    for (uint32_t j = 1; j < f->kept; j++)
        if (index[j] <= index[j - 1])
            return false;
    return index[f->kept - 1] < len;
}

bool pl_topk_check(uint32_t codec, const uint8_t *bytes, size_t len)
{
    const struct form f = form_of(codec, len);
    uint32_t lower = (uint32_t)pl_get_le(bytes, 2), upper = (uint32_t)pl_get_le(bytes + 2, 2);
    if (upper == 0)
        return !any_bit(bytes, f.bytes);
    if (upper < PL_SCALE_MIN || upper > PL_BF16_MAX || lower >= upper || (lower != 0 && lower < PL_SCALE_MIN))
        return false;
    return codes_check(&f, bytes + LEVELS_BYTES, lower != 0) && places_check(&f, bytes, len);
}
