/* wire/msg_info.c - messages.def and reasons.def as data: descriptors of fields, items and messages.
 *
 * Everything generic (encode, decode, print, docs and tests) walks these descriptors; only the structs themselves
 * and their offsets come from the macros.
 */
#include "wire/msg_int.h"

#include "base/bytes.h"
#include "base/check.h"

#define FIELD(owner, field, kind, limit, item)                                                               \
    {#field, item, limit, (uint16_t)offsetof(struct owner, field), PL_FIELD_##kind},

#define ITEM_BEGIN(ITEM, item) static const struct pl_field item_##item##_fields[] = {
#define ITEM_U8(item, field, limit, doc) FIELD(pl_item_##item, field, U8, limit, NULL)
#define ITEM_U32(item, field, limit, doc) FIELD(pl_item_##item, field, U32, limit, NULL)
#define ITEM_U64(item, field, limit, doc) FIELD(pl_item_##item, field, U64, limit, NULL)
#define ITEM_NAME(item, field, doc) FIELD(pl_item_##item, field, NAME, PL_NAME_MAX - 1, NULL)
#define ITEM_END(ITEM, item)                                                                                 \
    }                                                                                                        \
    ;                                                                                                        \
    static const struct pl_item_info item_##item = {                                                         \
        #item, item_##item##_fields, sizeof item_##item##_fields / sizeof *item_##item##_fields,             \
        PL_ITEM_##ITEM##_BYTES};
#include "wire/messages.def"

/* The fields of a message are fields[first_ ... end_ - 1] of one long array: unlike one array each, that needs no
 * exception for messages without fields. */
static const struct pl_field fields[] = {
#define U8(name, field, limit, doc) FIELD(pl_msg_##name, field, U8, limit, NULL)
#define U32(name, field, limit, doc) FIELD(pl_msg_##name, field, U32, limit, NULL)
#define U64(name, field, limit, doc) FIELD(pl_msg_##name, field, U64, limit, NULL)
#define ARRAY(name, field, item, limit, doc) FIELD(pl_msg_##name, field, ARRAY, limit, &item_##item)
#define TEXT(name, field, doc) FIELD(pl_msg_##name, field, TEXT, PL_TEXT_MAX, NULL)
#define BYTES(name, field, limit, doc) FIELD(pl_msg_##name, field, BYTES, limit, NULL)
#include "wire/messages.def"
};

enum {
#define MSG_BEGIN(NAME, name, number, channel, sender, doc) first_##name, before_##name = first_##name - 1,
#define U8(name, field, limit, doc) at_##name##_##field,
#define U32(name, field, limit, doc) at_##name##_##field,
#define U64(name, field, limit, doc) at_##name##_##field,
#define ARRAY(name, field, item, limit, doc) at_##name##_##field,
#define TEXT(name, field, doc) at_##name##_##field,
#define BYTES(name, field, limit, doc) at_##name##_##field,
#define MSG_END(NAME, name) end_##name, back_##name = end_##name - 1,
#include "wire/messages.def"
    fields_end
};
_Static_assert(fields_end == sizeof fields / sizeof *fields, "one descriptor a field");

static const struct pl_msg_info infos[] = {
#define MSG_BEGIN(NAME, name, number, chan, from, doc)                                                       \
    [number] = {#NAME,                                                                                       \
                fields + first_##name,                                                                       \
                end_##name - first_##name,                                                                   \
                PL_MSG_##NAME##_BYTES_MAX,                                                                   \
                PL_CHANNEL_##chan,                                                                           \
                PL_SENDER_##from},
#include "wire/messages.def"
};

#define MSG_BEGIN(NAME, name, number, channel, sender, doc)                                                  \
    _Static_assert(PL_MSG_##NAME##_BYTES_MAX <= PL_FRAME_BYTES_MAX, #NAME " fits a frame");                  \
    _Static_assert((number) >= 1 && (number) <= UINT8_MAX, #NAME "'s number is a byte");
#include "wire/messages.def"

const struct pl_msg_info *pl_msg_info(uint8_t type)
{
    if (type >= sizeof infos / sizeof *infos || infos[type].name == NULL)
        return NULL;
    return &infos[type];
}

bool pl_msg_allowed(uint8_t type, enum pl_channel channel, enum pl_sender sender)
{
    const struct pl_msg_info *info = pl_msg_info(type);
    return info != NULL && (info->channel & channel) != 0 && (info->sender & sender) != 0;
}

static void item_load(const struct pl_item_info *info, const uint8_t *bytes, void *item)
{
    for (uint32_t i = 0; i < info->field_count; i++) {
        const struct pl_field *f = &info->fields[i];
        uint32_t width = pl_field_width(f->kind);
        if (f->kind == PL_FIELD_NAME)
            memcpy((uint8_t *)item + f->offset, bytes, width);
        else
            pl_field_store(f, item, pl_get_le(bytes, width));
        bytes += width;
    }
}

static void item_save(const struct pl_item_info *info, uint8_t *bytes, const void *item)
{
    for (uint32_t i = 0; i < info->field_count; i++) {
        const struct pl_field *f = &info->fields[i];
        uint32_t width = pl_field_width(f->kind);
        if (f->kind == PL_FIELD_NAME)
            memcpy(bytes, (const uint8_t *)item + f->offset, width);
        else
            pl_put_le(bytes, pl_field_load(f, item), width);
        bytes += width;
    }
}

#define ITEM_BEGIN(ITEM, item)                                                                               \
    struct pl_item_##item pl_item_##item##_at(const struct pl_array *array, uint32_t i)                      \
    {                                                                                                        \
        struct pl_item_##item v;                                                                             \
        pl_assert(i < array->count);                                                                         \
        memset(&v, 0, sizeof v);                                                                             \
        item_load(&item_##item, array->items + (size_t)i * PL_ITEM_##ITEM##_BYTES, &v);                      \
        return v;                                                                                            \
    }                                                                                                        \
    void pl_item_##item##_put(uint8_t *items, uint32_t i, const struct pl_item_##item *v)                    \
    {                                                                                                        \
        item_save(&item_##item, items + (size_t)i * PL_ITEM_##ITEM##_BYTES, v);                              \
    }
#include "wire/messages.def"

const char *pl_reason_name(uint32_t code)
{
    switch (code) {
#define X(name, value, text)                                                                                 \
    case PL_REASON_##name:                                                                                   \
        return #name;
#include "wire/reasons.def"
#undef X
    default:
        return "UNKNOWN";
    }
}

const char *pl_reason_text(uint32_t code)
{
    switch (code) {
#define X(name, value, text)                                                                                 \
    case PL_REASON_##name:                                                                                   \
        return text;
#include "wire/reasons.def"
#undef X
    default:
        return "a reason this build does not know";
    }
}
