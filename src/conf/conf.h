/* conf/conf.h - a configuration file: strict YAML, one flat mapping of keys to values.
 *
 *     model: 14m
 *     data: builtin:tales
 *     learners: 4
 *     speed: [1, 1, 0.5, 1]     # a list of values; the same as "1,1,0.5,1"
 *
 * Nothing is interpreted here: every value is a text, which the caller hands to the very functions that read the command
 * line, so `30s` is never 30 and `no` is never false. What YAML has beyond that is refused with a sentence that names
 * file and line: anchors, aliases, tags, nested mappings, several documents, texts over several lines, tabs, and a key
 * given twice. Which keys there are is the caller's affair.
 */
#ifndef PL_CONF_CONF_H
#define PL_CONF_CONF_H

#include "base/buf.h"
#include "base/bytes.h"

#include <stdbool.h>

enum {
    PL_CONF_BYTES_MAX = 64 << 10, /* of a file */
    PL_CONF_KEYS_MAX = 128,       /* of a file */
    PL_CONF_VALUE_MAX = 4096,     /* bytes of a value, with the final zero */
};

struct pl_conf_entry {
    const char *key;
    const char *value; /* of a list: its values with commas between them */
    uint32_t line;     /* of the key, from 1 */
    bool is_list;
};

struct pl_conf {
    struct pl_alloc alloc;
    struct pl_buf text; /* all keys and values; entries point into it */
    char file[61];      /* as sentences call it: the end of its path */
    struct pl_conf_entry entries[PL_CONF_KEYS_MAX];
    uint32_t count;
};

/* Empty; what pl_conf_release leaves. */
void pl_conf_init(struct pl_conf *c);
void pl_conf_release(struct pl_conf *c);

/* Fills an empty one. After a failure it is empty again. */
enum pelago_status pl_conf_parse(struct pl_conf *c, const struct pl_alloc *alloc, const char *file,
                                 struct pl_bytes text, struct pl_error *err);
enum pelago_status pl_conf_read(struct pl_conf *c, const struct pl_alloc *alloc, const char *path,
                                struct pl_error *err);

#endif
