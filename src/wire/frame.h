/* wire/frame.h - a message on a byte stream: 16 bytes of header, then the payload.
 *
 *   0  'P' 'L'          magic
 *   2  u8               protocol version
 *   3  u8               message type
 *   4  u32              payload length
 *   8  u64              XXH3-64 of the payload, seeded with the XXH3-64 (seed 0) of header bytes 0..7
 *   16 payload
 *
 * The parser refuses at the earliest byte that shows the fault, so that no buffer is ever sized by a length that was
 * not checked. The checksum finds damage; it is no defence against malice (TLS is).
 */
#ifndef PL_WIRE_FRAME_H
#define PL_WIRE_FRAME_H

#include "wire/msg.h"

enum { PL_FRAME_HEADER_BYTES = 16, PL_PROTOCOL_VERSION = 1 };

struct pl_frame {
    size_t need;            /* SHORT: bytes wanted in total before it is worth asking again */
    size_t total;           /* OK: bytes of the frame, header and payload */
    const uint8_t *payload; /* OK: into the bytes given */
    uint32_t payload_len;
    uint8_t type; /* enum pl_msg_type */
};

/* Header and payload of m. */
size_t pl_frame_bytes(const struct pl_msg *m);

/* Writes the frame and returns its length; that it fits and is within the limits is asserted. */
size_t pl_frame_encode(const struct pl_msg *m, uint8_t *out, size_t cap);

/* Looks at the first bytes of a stream. OK: a whole frame, its payload still to be decoded. SHORT: more bytes are
 * needed. PROTO: not a frame of this protocol, version and table, or damaged. LIMIT: the length is over what the
 * type allows. After PROTO and LIMIT the stream cannot be read on. err may be NULL; bytes too when len is 0. */
enum pelago_status pl_frame_parse(const uint8_t *bytes, size_t len, struct pl_frame *frame,
                                  struct pl_error *err);

#endif
