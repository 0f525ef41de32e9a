/* train/json.c - see json.h. */
#include "train/json.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/num.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BITS_DIGITS = 16, MEMBER_MAX = 64 };

enum pelago_status pl_json_parse(struct pl_bytes text, const char *file, json_t **out, struct pl_error *err)
{
    json_error_t problem;
    *out = NULL;
    if (text.len == 0)
        return pl_fail(err, PELAGO_CORRUPT, "%s is empty", file);
    *out = json_loadb(text.data, text.len, JSON_REJECT_DUPLICATES, &problem);
    if (*out == NULL)
        return pl_fail(err, PELAGO_CORRUPT, "%s is not valid JSON: line %u: %s", file,
                       (unsigned)(problem.line > 0 ? problem.line : 1), problem.text);
    if (!json_is_object(*out)) {
        json_decref(*out);
        *out = NULL;
        return pl_fail(err, PELAGO_CORRUPT, "%s is not a JSON object", file);
    }
    return PELAGO_OK;
}

/* jansson passes over a failure to write an object's key and goes on: the first one is kept, and nothing follows it. */
struct dump {
    struct pl_buf *out;
    bool failed;
};

static int append(const char *text, size_t len, void *user)
{
    struct dump *d = user;
    d->failed = d->failed || pl_buf_append(d->out, text, len) != PELAGO_OK;
    return d->failed ? -1 : 0;
}

enum pelago_status pl_json_dump(const json_t *root, size_t flags, struct pl_buf *out)
{
    struct dump d = {out, false};
    return json_dump_callback(root, append, &d, flags) == 0 && !d.failed ? PELAGO_OK : PELAGO_NOMEM;
}

enum pelago_status pl_json_print(const json_t *root, unsigned digits, struct pl_buf *out)
{
    pl_assert(digits > 0 && digits <= 17);
    size_t flags = JSON_INDENT(2) | JSON_REAL_PRECISION(digits);
    PL_TRY(pl_json_dump(root, flags, out));
    return pl_buf_append(out, "\n", 1);
}

/* Copies the part before the next dot and returns what is after it, NULL at the end. */
static const char *next_part(const char *member, char part[static MEMBER_MAX])
{
    const char *dot = strchr(member, '.');
    size_t len = dot != NULL ? (size_t)(dot - member) : strlen(member);
    pl_assert(len > 0 && len < MEMBER_MAX);
    memcpy(part, member, len);
    part[len] = '\0';
    return dot != NULL ? dot + 1 : NULL;
}

json_t *pl_json_find(const struct pl_json *j, const char *member)
{
    char part[MEMBER_MAX];
    json_t *at = j->at;
    for (const char *rest = member; rest != NULL && at != NULL;) {
        rest = next_part(rest, part);
        at = json_object_get(at, part); /* NULL for anything but an object */
    }
    return json_is_null(at) ? NULL : at;
}

bool pl_json_has(const struct pl_json *j, const char *member)
{
    return pl_json_find(j, member) != NULL;
}

static enum pelago_status wrong(const struct pl_json *j, const char *member, const char *expected)
{
    if (!pl_json_has(j, member))
        return pl_fail(j->err, PELAGO_CORRUPT, "%s: \"%s\" is missing, expected %s", j->file, member,
                       expected);
    return pl_fail(j->err, PELAGO_CORRUPT, "%s: \"%s\" must be %s", j->file, member, expected);
}

enum pelago_status pl_json_count(const struct pl_json *j, const char *member, uint64_t max, uint64_t *out)
{
    const json_t *value = pl_json_find(j, member);
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return wrong(j, member, "a whole number");
    *out = (uint64_t)json_integer_value(value);
    if (*out > max)
        return pl_fail(j->err, PELAGO_LIMIT, "%s: \"%s\" is %lu, at most %lu is allowed", j->file, member,
                       *out, max);
    return PELAGO_OK;
}

enum pelago_status pl_json_u32(const struct pl_json *j, const char *member, uint32_t *out)
{
    uint64_t wide = 0;
    PL_TRY(pl_json_count(j, member, UINT32_MAX, &wide));
    *out = (uint32_t)wide;
    return PELAGO_OK;
}

enum pelago_status pl_json_real(const struct pl_json *j, const char *member, double *out)
{
    const json_t *value = pl_json_find(j, member);
    if (!json_is_number(value))
        return wrong(j, member, "a number");
    *out = json_number_value(value);
    return PELAGO_OK;
}

enum pelago_status pl_json_flag(const struct pl_json *j, const char *member, bool *out)
{
    const json_t *value = pl_json_find(j, member);
    if (!json_is_boolean(value))
        return wrong(j, member, "true or false");
    *out = json_is_true(value);
    return PELAGO_OK;
}

enum pelago_status pl_json_text(const struct pl_json *j, const char *member, char *out, size_t cap)
{
    const json_t *value = pl_json_find(j, member);
    if (!json_is_string(value))
        return wrong(j, member, "a text");
    size_t len = json_string_length(value);
    if (len >= cap)
        return pl_fail(j->err, PELAGO_LIMIT, "%s: \"%s\" is a text of %lu bytes, at most %lu are allowed",
                       j->file, member, (uint64_t)len, (uint64_t)cap - 1);
    memcpy(out, json_string_value(value), len + 1);
    return PELAGO_OK;
}

bool pl_json_bits_of(const json_t *value, uint64_t *out)
{
    const char *digits = "0123456789abcdef";
    const char *text = json_string_value(value);
    if (text == NULL || strlen(text) != BITS_DIGITS)
        return false;
    *out = 0;
    for (unsigned i = 0; i < BITS_DIGITS; i++) {
        const char *digit = strchr(digits, text[i]);
        if (digit == NULL)
            return false;
        *out = *out << 4 | (uint64_t)(digit - digits);
    }
    return true;
}

enum pelago_status pl_json_bits(const struct pl_json *j, const char *member, uint64_t *out)
{
    return pl_json_bits_of(pl_json_find(j, member), out) ? PELAGO_OK
                                                         : wrong(j, member, "16 hexadecimal digits");
}

enum pelago_status pl_json_object(const struct pl_json *j, const char *member, struct pl_json *out)
{
    json_t *value = pl_json_find(j, member);
    if (!json_is_object(value))
        return wrong(j, member, "an object");
    *out = (struct pl_json){value, j->file, j->err};
    return PELAGO_OK;
}

bool pl_json_put(json_t *object, const char *member, json_t *value)
{
    char part[MEMBER_MAX];
    const char *rest = next_part(member, part);
    if (value == NULL)
        return false;
    if (rest == NULL)
        return json_object_set_new(object, part, value) == 0;
    json_t *inner = json_object_get(object, part);
    if (inner == NULL) {
        inner = json_object();
        if (inner == NULL || json_object_set_new(object, part, inner) != 0) {
            json_decref(value);
            return false;
        }
    }
    return pl_json_put(inner, rest, value);
}

void pl_json_add(json_t *object, bool *good, const char *member, json_t *value)
{
    *good = pl_json_put(object, member, value) && *good;
}

void pl_json_add_count(json_t *object, bool *good, const char *member, uint64_t value)
{
    pl_json_add(object, good, member, json_integer((json_int_t)pl_min64(value, INT64_MAX)));
}

void pl_json_add_real(json_t *object, bool *good, const char *member, double value)
{
    pl_json_add(object, good, member, json_real(value));
}

json_t *pl_json_bits_value(uint64_t bits)
{
    char text[BITS_DIGITS];
    for (unsigned i = 0; i < BITS_DIGITS; i++)
        text[i] = "0123456789abcdef"[bits >> (60 - 4 * i) & 15];
    return json_stringn(text, BITS_DIGITS);
}

double pl_json_short(float value)
{
    char text[32];
    double wide = (double)value;
    for (int digits = 1; digits <= 9; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, (double)value);
        wide = strtod(text, NULL);
        if ((float)wide == value)
            break;
    }
    return wide;
}
