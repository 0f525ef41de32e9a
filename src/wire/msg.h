/* wire/msg.h - messages: one struct each, made from messages.def; bytes <-> structs with every field checked.
 *
 * Nothing here owns memory: arrays, texts and byte strings in a message are views into the caller's bytes, valid
 * as long as those are. Decoding accepts a message completely or refuses it with a sentence that names message and
 * field; what it accepts is within every limit of the table. Limits that depend on the run are core/'s to check.
 */
#ifndef PL_WIRE_MSG_H
#define PL_WIRE_MSG_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A round is named by the syncer's epoch (grows with every restart) and its clock t. Printed as epoch.tick. */
/* Epochs have 24 bits of a round's name; what a host asks for leaves half of them to later lives. */
#define PL_EPOCH_LEAST_MAX (UINT64_C(1) << 23)
#define PL_ROUND(epoch, tick) (((uint64_t)(epoch) << 40) | (uint64_t)(tick))
static inline uint64_t pl_round_epoch(uint64_t round)
{
    return round >> 40;
}
static inline uint64_t pl_round_tick(uint64_t round)
{
    return round & ((UINT64_C(1) << 40) - 1);
}

/* count items of the field's item type, packed; read them with pl_item_<item>_at. */
struct pl_array {
    const uint8_t *items;
    uint32_t count;
};

/* Text (not zero-terminated) or plain bytes. */
struct pl_blob {
    const uint8_t *data;
    uint32_t len;
};

/* What array items hold: struct pl_item_have, pl_item_held_unit, pl_item_partial, pl_item_fragment, pl_item_tensor. */
#define ITEM_BEGIN(ITEM, item) struct pl_item_##item {
#define ITEM_U8(item, field, limit, doc) uint8_t field;
#define ITEM_U32(item, field, limit, doc) uint32_t field;
#define ITEM_U64(item, field, limit, doc) uint64_t field;
#define ITEM_NAME(item, field, doc) char field[PL_NAME_MAX]; /* zero-padded; the last byte is always zero */
#define ITEM_END(ITEM, item)                                                                                 \
    }                                                                                                        \
    ;
#include "wire/messages.def"

/* PL_ITEM_HAVE_BYTES ...: the size of one item on the wire. */
enum {
#define ITEM_BEGIN(ITEM, item) pl_item_##item##_bytes_ = 0
#define ITEM_U8(item, field, limit, doc) +1
#define ITEM_U32(item, field, limit, doc) +4
#define ITEM_U64(item, field, limit, doc) +8
#define ITEM_NAME(item, field, doc) +PL_NAME_MAX
#define ITEM_END(ITEM, item) , PL_ITEM_##ITEM##_BYTES = pl_item_##item##_bytes_,
#include "wire/messages.def"
};

/* pl_item_have_at(array, i) ...: item i of an array, i < count. The array must come from a decoded message, or be
 * made with _put. pl_item_have_put(items, i, v) ...: writes item i into the bytes at items; v is within its limits. */
#define ITEM_BEGIN(ITEM, item)                                                                               \
    struct pl_item_##item pl_item_##item##_at(const struct pl_array *array, uint32_t i);                     \
    void pl_item_##item##_put(uint8_t *items, uint32_t i, const struct pl_item_##item *v);
#include "wire/messages.def"

enum pl_msg_type {
#define MSG_BEGIN(NAME, name, number, channel, sender, doc) PL_MSG_##NAME = number,
#include "wire/messages.def"
};

/* struct pl_msg_hello, pl_msg_welcome, ...: the fields of each message. */
#define MSG_BEGIN(NAME, name, number, channel, sender, doc) struct pl_msg_##name {
#define U8(name, field, limit, doc) uint8_t field;
#define U32(name, field, limit, doc) uint32_t field;
#define U64(name, field, limit, doc) uint64_t field;
#define ARRAY(name, field, item, count_limit, doc) struct pl_array field;
#define TEXT(name, field, doc) struct pl_blob field;
#define BYTES(name, field, limit, doc) struct pl_blob field;
#define NOTHING(name) uint8_t unused_; /* C11 has no empty structs */
#define MSG_END(NAME, name)                                                                                  \
    }                                                                                                        \
    ;
#include "wire/messages.def"

struct pl_msg {
    uint8_t type; /* enum pl_msg_type */
    union {
#define MSG_BEGIN(NAME, name, number, channel, sender, doc) struct pl_msg_##name name;
#include "wire/messages.def"
    } u;
};

/* PL_MSG_HELLO_BYTES_MAX ...: the longest payload the table allows. */
enum {
#define MSG_BEGIN(NAME, name, number, channel, sender, doc) PL_MSG_##NAME##_BYTES_MAX = 0
#define U8(name, field, limit, doc) +1
#define U32(name, field, limit, doc) +4
#define U64(name, field, limit, doc) +8
#define ARRAY(name, field, item, count_limit, doc) +4 + (count_limit)*pl_item_##item##_bytes_
#define TEXT(name, field, doc) +4 + PL_TEXT_MAX
#define BYTES(name, field, limit, doc) +4 + (limit)
#define MSG_END(NAME, name) ,
#include "wire/messages.def"
};

enum pl_reason {
#define X(name, value, text) PL_REASON_##name = value,
#include "wire/reasons.def"
#undef X
};

/* "FENCED" and "a newer process of this learner has taken over"; "UNKNOWN" and a text for other numbers. */
const char *pl_reason_name(uint32_t code);
const char *pl_reason_text(uint32_t code);

/* Bits: a message may come on several. DOOR is a connection of its own for enrolment and questions, which the host
 * answers; the state machines of core/ never see it. */
enum pl_channel {
    PL_CHANNEL_CONTROL = 1,
    PL_CHANNEL_BULK = 2,
    PL_CHANNEL_BOTH = 3, /* control and bulk */
    PL_CHANNEL_DOOR = 4,
    PL_CHANNEL_FRONT = 5,    /* control and door */
    PL_CHANNEL_LOCKSTEP = 8, /* the one connection of a learner of a synchronous run; the host's affair too */
};
enum pl_sender { PL_SENDER_LEARNER = 1, PL_SENDER_SYNCER = 2, PL_SENDER_EITHER = 3 };

/* The table as data, for whoever walks all fields of all messages. */
enum pl_field_kind {
    PL_FIELD_U8 = 1, /* limit: the largest value */
    PL_FIELD_U32,
    PL_FIELD_U64,
    PL_FIELD_NAME,  /* limit: the largest length; only in items */
    PL_FIELD_ARRAY, /* limit: the largest count; only in messages, as the next two */
    PL_FIELD_TEXT,  /* limit: the largest length */
    PL_FIELD_BYTES,
};

struct pl_field {
    const char *name;
    const struct pl_item_info *item; /* of an ARRAY; else NULL */
    uint64_t limit;
    uint16_t
        offset;   /* in struct pl_item_<item>, or in struct pl_msg_<name> and so from the start of pl_msg.u */
    uint8_t kind; /* enum pl_field_kind */
};

struct pl_item_info {
    const char *name;
    const struct pl_field *fields;
    uint32_t field_count;
    uint32_t bytes;
};

struct pl_msg_info {
    const char *name; /* "HELLO" */
    const struct pl_field *fields;
    uint32_t field_count;
    uint32_t payload_max;
    uint8_t channel; /* enum pl_channel */
    uint8_t sender;  /* enum pl_sender */
};

/* NULL for a number the protocol does not know. */
const struct pl_msg_info *pl_msg_info(uint8_t type);

/* Whether a message of this type may come on this channel from this sender; false for unknown types. */
bool pl_msg_allowed(uint8_t type, enum pl_channel channel, enum pl_sender sender);

/* Length of the encoded payload; the type must be known. */
size_t pl_msg_payload_bytes(const struct pl_msg *m);

/* Writes the payload and returns its length. That it fits and every field is within its limit is asserted: a
 * message over the limits is our own bug. */
size_t pl_msg_encode(const struct pl_msg *m, uint8_t *out, size_t cap);

/* Reads a payload of exactly len bytes. PROTO, with a sentence in err (may be NULL), when anything is wrong; *out
 * is then unspecified. Bytes of *out that the message does not use are zero. */
enum pelago_status pl_msg_decode(uint8_t type, const uint8_t *payload, size_t len, struct pl_msg *out,
                                 struct pl_error *err);

/* One line, zero-terminated and cut to cap bytes, for traces: "PULL fragment=3 round=1.24 base_version=7". Arrays
 * and bytes print as their length: "have[12]". Returns the length of the text. cap > 0. */
size_t pl_msg_print(const struct pl_msg *m, char *out, size_t cap);

/* In the same way, an incarnation as epoch.counter ("1.3"; "none" for 0) and a reason by its name ("FENCED"; "none"
 * for 0, the number where it is not known). */
size_t pl_incarnation_print(uint64_t incarnation, char *out, size_t cap);
size_t pl_reason_print(uint64_t code, char *out, size_t cap);

#endif
