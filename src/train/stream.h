/* train/stream.h - a row of tokens that can be read at any place: a file, text in memory, or the endless tales. */
#ifndef PL_TRAIN_STREAM_H
#define PL_TRAIN_STREAM_H

#include "base/status.h"

#include <stdint.h>

struct pl_stream {
    uint64_t tokens; /* PL_NONE64: endless */
    /* Tokens at .. at + count - 1, all of which exist. Not from two threads at once. */
    enum pelago_status (*read)(void *self, uint64_t at, uint64_t count, int32_t *out, struct pl_error *err);
    void *self;
};

/* Sequences for training, by number: `count` of them from number `first` on, each with its targets. */
struct pl_sequences {
    enum pelago_status (*fetch)(void *self, uint64_t first, uint32_t count, uint32_t seq, int32_t *tokens,
                                int32_t *targets, struct pl_error *err);
    void *self;
};

#endif
