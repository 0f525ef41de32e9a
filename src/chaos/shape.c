/* chaos/shape.c - see shape.h. */
#include "chaos/shape.h"

#include "base/check.h"
#include "base/fmt.h"
#include "chaos/units.h"

#include <string.h>

enum kind { TIME, RATE, BYTES, NUMBER, SWITCH };

static const struct {
    const char *name;
    enum kind kind;
} keys[PL_SHAPE_KEYS] = {
    [PL_SHAPE_RATE] = {"rate", RATE},         [PL_SHAPE_LATENCY] = {"latency", TIME},
    [PL_SHAPE_JITTER] = {"jitter", TIME},     [PL_SHAPE_SLICE] = {"slice", BYTES},
    [PL_SHAPE_GAP] = {"gap", TIME},           [PL_SHAPE_LIMIT] = {"limit", BYTES},
    [PL_SHAPE_CORRUPT] = {"corrupt", NUMBER}, [PL_SHAPE_SLOW_CLOSE] = {"slow-close", TIME},
    [PL_SHAPE_HOLD] = {"hold", SWITCH},       [PL_SHAPE_DROP] = {"drop", SWITCH},
    [PL_SHAPE_MUTE] = {"mute", SWITCH},       [PL_SHAPE_REFUSE] = {"refuse", SWITCH},
};

static const char *const expected[] = {
    [TIME] = "a time such as 50ms or 2s",
    [RATE] = "a rate such as 25Mbit or 10kB",
    [BYTES] = "a number of bytes such as 16 or 1MB",
    [NUMBER] = "a number such as 1000 or 1e6",
    [SWITCH] = "on or off",
};

enum pl_shape_key pl_shape_find(const char *name)
{
    uint32_t i = 0;
    while (i < PL_SHAPE_KEYS && strcmp(keys[i].name, name) != 0)
        i++;
    return (enum pl_shape_key)i;
}

const char *pl_shape_name(enum pl_shape_key key)
{
    pl_assert(key < PL_SHAPE_KEYS);
    return keys[key].name;
}

static bool read_value(enum kind kind, const char *word, uint64_t *v)
{
    if (strcmp(word, "off") == 0) {
        *v = 0;
        return true;
    }
    switch (kind) {
    case TIME:
        return pl_unit_time(word, v);
    case RATE:
        return pl_unit_rate(word, v) && *v > 0;
    case BYTES:
        return pl_unit_bytes(word, v);
    case NUMBER:
        return pl_unit_number(word, v);
    case SWITCH:
        *v = 1;
        return strcmp(word, "on") == 0;
    }
    return false;
}

enum pelago_status pl_shape_set(struct pl_shape_change *change, enum pl_shape_key key, const char *value,
                                struct pl_error *err)
{
    pl_assert(key < PL_SHAPE_KEYS);
    uint64_t v;
    if (!read_value(keys[key].kind, value, &v))
        return pl_fail(err, PELAGO_INVALID, "%s is '%s', expected %s", keys[key].name, value,
                       expected[keys[key].kind]);
    /* Bytes wait in the proxy for their time, up to its bound. */
    if (keys[key].kind == TIME && v > 3600 * PL_SEC)
        return pl_fail(err, PELAGO_INVALID, "%s is '%s', expected at most an hour", keys[key].name, value);
    change->keys |= 1U << key;
    change->to.v[key] = v;
    return PELAGO_OK;
}

void pl_shape_apply(struct pl_shape *shape, const struct pl_shape_change *change)
{
    for (uint32_t i = 0; i < PL_SHAPE_KEYS; i++)
        if ((change->keys & 1U << i) != 0)
            shape->v[i] = change->to.v[i];
}

static size_t put_value(enum kind kind, uint64_t v, char *out, size_t cap)
{
    if (v == 0)
        return pl_fmt(out, cap, "off");
    if (kind == SWITCH)
        return pl_fmt(out, cap, "on");
    if (kind == TIME)
        return pl_fmt(out, cap, "%luus", v / PL_US);
    return pl_fmt(out, cap, "%lu%s", v, kind == NUMBER ? "" : "B");
}

size_t pl_shape_print(const struct pl_shape_change *change, bool zero, char *out, size_t cap)
{
    size_t len = 0;
    pl_assert(cap > 0);
    out[0] = '\0';
    for (uint32_t i = 0; i < PL_SHAPE_KEYS; i++) {
        if ((change->keys & 1U << i) == 0)
            continue;
        len += pl_fmt(out + len, cap - len, "%s%s ", len > 0 ? " " : "", keys[i].name);
        len += put_value(keys[i].kind, zero ? 0 : change->to.v[i], out + len, cap - len);
    }
    return len;
}
