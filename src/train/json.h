/* train/json.h - JSON files read with a sentence for whatever is wrong, on top of jansson.
 *
 * A struct pl_json is an object of a file. The readers below check type and range and name the file and the member.
 * Member names may go down one level per dot: "progress.step".
 */
#ifndef PL_TRAIN_JSON_H
#define PL_TRAIN_JSON_H

#include "base/buf.h"
#include "base/bytes.h"

#include <jansson.h>
#include <stdbool.h>

struct pl_json {
    json_t *at;       /* an object; who owns it is said where it is made */
    const char *file; /* as sentences call it; borrowed */
    struct pl_error *err;
};

/* An object, owned by the caller (json_decref). Duplicate members, trailing bytes and anything else than an object are
 * refused with CORRUPT. */
enum pelago_status pl_json_parse(struct pl_bytes text, const char *file, json_t **out, struct pl_error *err);

/* Appends the text, with jansson's flags. NOMEM also where the buffer may not hold it. */
enum pelago_status pl_json_dump(const json_t *root, size_t flags, struct pl_buf *out);
/* Appends the text, indented by two. digits: of reals, 17 to read the same double back. */
enum pelago_status pl_json_print(const json_t *root, unsigned digits, struct pl_buf *out);

/* NULL where the member, or an object on the way, is not there. null counts as not there. */
json_t *pl_json_find(const struct pl_json *j, const char *member);
bool pl_json_has(const struct pl_json *j, const char *member);

enum pelago_status pl_json_count(const struct pl_json *j, const char *member, uint64_t max, uint64_t *out);
enum pelago_status pl_json_u32(const struct pl_json *j, const char *member, uint32_t *out);
enum pelago_status pl_json_real(const struct pl_json *j, const char *member, double *out); /* or an integer */
enum pelago_status pl_json_flag(const struct pl_json *j, const char *member, bool *out);
/* Without zero bytes inside, shorter than cap. */
enum pelago_status pl_json_text(const struct pl_json *j, const char *member, char *out, size_t cap);
/* A text of 16 hexadecimal digits. */
enum pelago_status pl_json_bits(const struct pl_json *j, const char *member, uint64_t *out);
enum pelago_status pl_json_object(const struct pl_json *j, const char *member, struct pl_json *out);

/* Puts a new value (whose reference is taken over) into the object, making objects on the way. False: out of memory,
 * also when value is NULL. */
bool pl_json_put(json_t *object, const char *member, json_t *value);
/* The same for many members in a row: a failure makes *good false, and it stays so. */
void pl_json_add(json_t *object, bool *good, const char *member, json_t *value);
void pl_json_add_count(json_t *object, bool *good, const char *member, uint64_t value);
void pl_json_add_real(json_t *object, bool *good, const char *member, double value);
json_t *pl_json_bits_value(uint64_t bits);
bool pl_json_bits_of(const json_t *value, uint64_t *out); /* false: NULL, or not 16 hexadecimal digits */
/* The double with the fewest digits that is this float again: 1e-5 and not 9.99999974737875e-06. */
double pl_json_short(float value);

#endif
