/* sim/node_hostile.h - enrolled peers that lie: well-formed nonsense, replays, inflated counters, pushes that are no
 * numbers, and bytes that are no frames.
 *
 * Messages are made from the table of wire/messages.def, some fields with what the conversation would have, some with
 * anything the field allows. What they push and is accepted is zeros of next to no weight: the run stays comparable.
 */
#ifndef PL_SIM_NODE_HOSTILE_H
#define PL_SIM_NODE_HOSTILE_H

#include "sim/net.h"
#include "sim/trainer.h"

enum { PL_HOSTILE_REPLAYS = 8, PL_HOSTILE_SCRATCH = 4096 };

struct pl_hostile {
    uint32_t machine;
    bool garbage; /* sends bytes, not messages */
    uint32_t shard;
    uint32_t conns[2]; /* PL_NONE32: none */
    bool up[2];
    bool welcome, joined;
    uint64_t incarnation, nonce;
    uint64_t steps, tokens;
    struct pl_msg_pull pull; /* the last one */
    bool pulled;
    struct {
        uint8_t *bytes;
        size_t len;
        uint32_t link;
    } replay[PL_HOSTILE_REPLAYS]; /* frames it sent before */
    struct pl_prng prng;
    uint8_t scratch[PL_HOSTILE_SCRATCH];
    uint32_t scratch_used;
};

void pl_hostile_init(struct pl_world *w, uint32_t index, bool garbage);
void pl_hostile_opened(struct pl_world *w, uint32_t conn);
void pl_hostile_closed(struct pl_world *w, uint32_t conn);
void pl_hostile_message(struct pl_world *w, uint32_t conn, const struct pl_msg *msg);

#endif
