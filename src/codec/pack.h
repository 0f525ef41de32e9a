/* codec/pack.h - the envelope of an encoding on a wire or a disk: as it is, or squeezed by zstd, whichever is shorter.
 *
 *   0  u8   0 as it is, 1 zstd
 *   1  ...  the bytes
 *
 * Whoever unpacks knows the size from the manifest; what the envelope says about itself is not believed.
 */
#ifndef PL_CODEC_PACK_H
#define PL_CODEC_PACK_H

#include "base/alloc.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* The longest envelope of raw_bytes. */
size_t pl_pack_bytes_max(size_t raw_bytes);

/* Compression state, one a thread that packs or unpacks; NULL without memory. */
struct pl_packer;
struct pl_packer *pl_packer_new(const struct pl_alloc *alloc);
void pl_packer_free(struct pl_packer *p); /* NULL is fine */

/* Writes at most pl_pack_bytes_max(len) and returns how many. squeeze: try zstd level 1. */
size_t pl_pack(struct pl_packer *p, const uint8_t *raw, size_t len, bool squeeze, uint8_t *out);

/* Exactly raw_bytes come out, or CORRUPT with a sentence. Nothing is allocated by what the bytes claim. */
enum pelago_status pl_unpack(struct pl_packer *p, const uint8_t *bytes, size_t len, uint8_t *raw,
                             size_t raw_bytes, struct pl_error *err);

#endif
