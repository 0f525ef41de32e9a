/* chaos/units.c - see units.h. */
#include "chaos/units.h"

#include "base/check.h"
#include "base/fmt.h"
#include "base/limits.h"
#include "base/num.h"

#include <string.h>

struct unit {
    const char *name;
    uint64_t numerator, denominator;
};

/* A decimal number is digits x 10^exponent. */
struct decimal {
    uint64_t digits;
    int exponent;
};

static bool read_digit(struct decimal *d, char c)
{
    if (c < '0' || c > '9' || d->digits > PL_COUNT_MAX / 10)
        return false;
    d->digits = d->digits * 10 + (uint64_t)(c - '0');
    return true;
}

/* An e begins an exponent only before a digit: no unit begins so. */
static const char *read_exponent(const char *p, struct decimal *d)
{
    int exponent = 0;
    if (*p != 'e' || p[1] < '0' || p[1] > '9')
        return p;
    for (p++; *p >= '0' && *p <= '9'; p++)
        if (exponent < 100)
            exponent = exponent * 10 + (*p - '0');
    d->exponent += exponent;
    return p;
}

/* What follows the number, or NULL. */
static const char *read_decimal(const char *p, struct decimal *d)
{
    const char *begin = p;
    *d = (struct decimal){0, 0};
    while (read_digit(d, *p))
        p++;
    if (p == begin)
        return NULL;
    if (*p == '.') {
        const char *point = p++;
        while (read_digit(d, *p)) {
            d->exponent--;
            p++;
        }
        if (p == point + 1)
            return NULL;
    }
    return read_exponent(p, d);
}

static bool scale(const struct decimal *d, uint64_t numerator, uint64_t denominator, uint64_t *out)
{
    uint64_t v = d->digits;
    int e = d->exponent;
    if (e > 18 || e < -18)
        return false;
    for (; e < 0 && numerator % 10 == 0;
         e++) /* first, so that what fits in the end does not overflow on the way */
        numerator /= 10;
    if (pl_mul_overflow(v, numerator, &v))
        return false;
    for (; e > 0; e--)
        if (pl_mul_overflow(v, 10, &v))
            return false;
    for (; e < 0; e++)
        v /= 10;
    *out = v / denominator;
    return *out <= PL_COUNT_MAX;
}

static bool read_with_unit(const char *word, const struct unit *units, size_t count, uint64_t *out)
{
    struct decimal d;
    const char *rest = read_decimal(word, &d);
    for (size_t i = 0; rest != NULL && i < count; i++)
        if (strcmp(rest, units[i].name) == 0)
            return scale(&d, units[i].numerator, units[i].denominator, out);
    return false;
}

#define READ(word, table, out) read_with_unit(word, table, sizeof(table) / sizeof((table)[0]), out)

bool pl_unit_number(const char *word, uint64_t *out)
{
    static const struct unit table[] = {{"", 1, 1}};
    return READ(word, table, out);
}

bool pl_unit_time(const char *word, uint64_t *ns)
{
    static const struct unit table[] = {
        {"us", PL_US, 1},        {"ms", PL_MS, 1},        {"s", PL_SEC, 1},        {"m", 60 * PL_SEC, 1},
        {"min", 60 * PL_SEC, 1}, {"h", 3600 * PL_SEC, 1}, {"d", 86400 * PL_SEC, 1}};
    if (strcmp(word, "0") == 0) {
        *ns = 0;
        return true;
    }
    return READ(word, table, ns);
}

bool pl_unit_rate(const char *word, uint64_t *byte_s)
{
    static const struct unit table[] = {{"bit", 1, 8},         {"kbit", 1000, 8},      {"Mbit", 1000000, 8},
                                        {"B", 1, 1},           {"kB", 1000, 1},        {"MB", 1000000, 1},
                                        {"GB", 1000000000, 1}, {"Gbit", 1000000000, 8}};
    char bare[32];
    size_t len = strlen(word);
    if (len >= sizeof bare)
        return false;
    memcpy(bare, word, len + 1);
    if (len > 2 && strcmp(bare + len - 2, "/s") == 0)
        bare[len - 2] = '\0';
    return READ(bare, table, byte_s);
}

bool pl_unit_bytes(const char *word, uint64_t *bytes)
{
    static const struct unit table[] = {
        {"", 1, 1}, {"B", 1, 1}, {"kB", 1000, 1}, {"MB", 1000000, 1}, {"GB", 1000000000, 1}};
    return READ(word, table, bytes);
}

bool pl_unit_percent(const char *word, uint32_t *percent)
{
    static const struct unit table[] = {{"%", 1, 1}};
    uint64_t v;
    if (!READ(word, table, &v) || v < 1 || v > 100)
        return false;
    *percent = (uint32_t)v;
    return true;
}

size_t pl_unit_put_time(char *out, size_t cap, uint64_t ns)
{
    char part[4];
    pl_assert(cap >= 32);
    for (uint32_t i = 0, unit = 100; i < 3; i++, unit /= 10)
        part[i] = (char)('0' + ns / PL_MS / unit % 10);
    part[3] = '\0';
    return pl_fmt(out, cap, "%lu.%ss", ns / PL_SEC, part);
}
