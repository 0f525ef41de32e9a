/* support/wire_gen.h - random valid messages, and their comparison field by field.
 *
 * Made from messages.def by macros, not from the descriptors wire/ itself walks, so that a wrong descriptor shows.
 */
#ifndef PL_TEST_WIRE_GEN_H
#define PL_TEST_WIRE_GEN_H

#include "base/prng.h"
#include "wire/msg.h"

struct wire_gen {
    struct pl_prng rng;
    uint32_t count_max; /* items of an array, bytes of a byte string */
    size_t used;
    uint8_t pool[1 << 16]; /* what the views of the message point into; reused by the next message */
};

void wire_gen_init(struct wire_gen *g, uint64_t seed, uint32_t count_max);

/* Every field within its limit, often at its ends. The message is valid until the next call. */
void wire_gen_msg(struct wire_gen *g, uint8_t type, struct pl_msg *m);

/* The name of the first field that differs, NULL when all are equal. */
const char *wire_msg_difference(const struct pl_msg *a, const struct pl_msg *b);

#endif
