/* core/manifest.h - the run's manifest: what both machines check every later size and number against. */
#ifndef PL_CORE_MANIFEST_H
#define PL_CORE_MANIFEST_H

#include "base/status.h"
#include "wire/msg.h"

#include <stddef.h>
#include <stdint.h>

/* Checks what the table's limits cannot: counts that are not zero, shard numbers, distinct offsets below H within a
 * shard, sizes that are not zero, K, tau. INVALID with a text that names the field and the allowed range. */
enum pelago_status pl_manifest_check(const struct pl_msg_manifest *m, struct pl_error *err);

/* XXH3-64 of the encoded payload; scratch holds at least pl_msg_payload_bytes of it. */
uint64_t pl_manifest_digest(const struct pl_msg_manifest *m, uint8_t *scratch, size_t scratch_bytes);

/* Fragments owned by a shard. */
uint32_t pl_manifest_shard_fragments(const struct pl_msg_manifest *m, uint32_t shard);

#endif
