/* train/batches.h - which stretch of a stream is sequence number n: a function of seed and n alone.
 *
 * An endless stream is read from its start. One that ends is read again and again, each time in another order and cut
 * at other places; within one such epoch no token is seen twice.
 */
#ifndef PL_TRAIN_BATCHES_H
#define PL_TRAIN_BATCHES_H

#include "base/alloc.h"
#include "train/stream.h"

struct pl_batches {
    struct pl_alloc alloc;
    struct pl_stream stream;
    uint64_t seed;
    uint32_t seq;
    uint64_t windows; /* of one epoch; PL_NONE64: endless */
    int32_t *row;     /* (seq + 1) */
};

/* INVALID where the stream holds no sequence of seq tokens and the token after it. The stream is borrowed. */
enum pelago_status pl_batches_init(struct pl_batches *b, const struct pl_alloc *alloc,
                                   const struct pl_stream *stream, uint32_t seq, uint64_t seed,
                                   struct pl_error *err);
void pl_batches_release(struct pl_batches *b);
/* For a trainer of that seq. */
struct pl_sequences pl_batches_sequences(struct pl_batches *b);
/* Tokens of one epoch; PL_NONE64: endless. */
uint64_t pl_batches_epoch_tokens(const struct pl_batches *b);

#endif
