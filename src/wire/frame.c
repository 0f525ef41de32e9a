/* wire/frame.c - see frame.h for the format. */
#include "wire/frame.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/hash.h"

enum { CHECKED_BYTES = 8 }; /* of the header, under the checksum */

static const uint8_t magic[2] = {'P', 'L'};

static uint64_t checksum(const uint8_t *header, const uint8_t *payload, size_t payload_len)
{
    return pl_hash64(payload, payload_len, pl_hash64(header, CHECKED_BYTES, 0));
}

size_t pl_frame_bytes(const struct pl_msg *m)
{
    return PL_FRAME_HEADER_BYTES + pl_msg_payload_bytes(m);
}

size_t pl_frame_encode(const struct pl_msg *m, uint8_t *out, size_t cap)
{
    pl_assert(cap >= PL_FRAME_HEADER_BYTES);
    uint8_t *payload = out + PL_FRAME_HEADER_BYTES;
    size_t len = pl_msg_encode(m, payload, cap - PL_FRAME_HEADER_BYTES);
    memcpy(out, magic, sizeof magic);
    out[2] = PL_PROTOCOL_VERSION;
    out[3] = m->type;
    pl_put_le(out + 4, len, 4);
    pl_put_le(out + CHECKED_BYTES, checksum(out, payload, len), 8);
    return PL_FRAME_HEADER_BYTES + len;
}

/* Checks as much of the header as is there. */
static enum pelago_status check_header(const uint8_t *bytes, size_t len, struct pl_error *err)
{
    for (size_t i = 0; i < sizeof magic && i < len; i++)
        if (bytes[i] != magic[i])
            return pl_fail(err, PELAGO_PROTO, "frame byte %u is 0x%lx, 0x%lx is expected: not this protocol",
                           (unsigned)i, (uint64_t)bytes[i], (uint64_t)magic[i]);
    if (len > 2 && bytes[2] != PL_PROTOCOL_VERSION)
        return pl_fail(err, PELAGO_PROTO,
                       "the frame is of protocol version %u, this build speaks version %u: use the same "
                       "version of pelago on "
                       "both sides",
                       (unsigned)bytes[2], (unsigned)PL_PROTOCOL_VERSION);
    if (len <= 3)
        return PELAGO_OK;
    const struct pl_msg_info *info = pl_msg_info(bytes[3]);
    if (info == NULL)
        return pl_fail(err, PELAGO_PROTO, "message type %u is not known", (unsigned)bytes[3]);
    if (len < CHECKED_BYTES)
        return PELAGO_OK;
    uint64_t payload_len = pl_get_le(bytes + 4, 4);
    if (payload_len > info->payload_max)
        return pl_fail(err, PELAGO_LIMIT,
                       "the %s frame announces a payload of %lu bytes, at most %u are allowed", info->name,
                       payload_len, info->payload_max);
    return PELAGO_OK;
}

enum pelago_status pl_frame_parse(const uint8_t *bytes, size_t len, struct pl_frame *frame,
                                  struct pl_error *err)
{
    *frame = (struct pl_frame){.need = PL_FRAME_HEADER_BYTES};
    PL_TRY(check_header(bytes, len, err));
    if (len >= CHECKED_BYTES)
        frame->need = PL_FRAME_HEADER_BYTES + (size_t)pl_get_le(bytes + 4, 4);
    if (len < frame->need)
        return pl_fail(err, PELAGO_SHORT, "a frame of %lu bytes has %lu so far", (uint64_t)frame->need,
                       (uint64_t)len);
    frame->type = bytes[3];
    frame->payload = bytes + PL_FRAME_HEADER_BYTES;
    frame->payload_len = (uint32_t)(frame->need - PL_FRAME_HEADER_BYTES);
    uint64_t found = checksum(bytes, frame->payload, frame->payload_len);
    uint64_t expected = pl_get_le(bytes + CHECKED_BYTES, 8);
    if (found != expected)
        return pl_fail(err, PELAGO_PROTO, "the %s frame's checksum is %lx, its bytes give %lx",
                       pl_msg_info(frame->type)->name, expected, found);
    frame->total = frame->need;
    return PELAGO_OK;
}
