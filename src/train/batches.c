/* train/batches.c - see batches.h. */
#include "train/batches.h"

#include "base/check.h"
#include "base/limits.h"
#include "base/prng.h"
#include "data/shuffle.h"

enum { SHIFT_STREAM = 0x5417 }; /* of the generator: any number nobody else uses with this seed */

enum pelago_status pl_batches_init(struct pl_batches *b, const struct pl_alloc *alloc,
                                   const struct pl_stream *stream, uint32_t seq, uint64_t seed,
                                   struct pl_error *err)
{
    *b = (struct pl_batches){
        .alloc = *alloc, .stream = *stream, .seed = seed, .seq = seq, .windows = PL_NONE64};
    if (stream->tokens != PL_NONE64) {
        if (stream->tokens < (uint64_t)seq + 1)
            return pl_fail(
                err, PELAGO_INVALID,
                "the training data has %lu tokens, fewer than one sequence of %u and its next token",
                stream->tokens, seq);
        /* Room to move all windows by up to a window, where there are two. */
        uint64_t spare = stream->tokens - 1 >= 2 * (uint64_t)seq ? seq - 1 : 0;
        b->windows = (stream->tokens - 1 - spare) / seq;
    }
    b->row = pl_alloc_zero(alloc, (size_t)seq + 1, sizeof *b->row);
    if (b->row == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for a sequence of %u tokens", seq);
    return PELAGO_OK;
}

void pl_batches_release(struct pl_batches *b)
{
    if (b->row != NULL)
        pl_alloc_free(&b->alloc, b->row, ((size_t)b->seq + 1) * sizeof *b->row);
    b->row = NULL;
}

uint64_t pl_batches_epoch_tokens(const struct pl_batches *b)
{
    return b->windows == PL_NONE64 ? PL_NONE64 : b->windows * b->seq;
}

/* How far the windows of an epoch are moved. */
static uint64_t shift(const struct pl_batches *b, uint64_t epoch)
{
    struct pl_prng r;
    uint64_t room = b->stream.tokens - 1 - b->windows * b->seq;
    pl_prng_seed(&r, b->seed ^ epoch, SHIFT_STREAM);
    return pl_prng_below(&r, (room < b->seq ? room : b->seq - 1) + 1);
}

static uint64_t begin_of(const struct pl_batches *b, uint64_t number)
{
    if (b->windows == PL_NONE64)
        return number * b->seq;
    return pl_shuffle_order(b->seed, b->windows, number) * b->seq + shift(b, number / b->windows);
}

static enum pelago_status fetch(void *self, uint64_t first, uint32_t count, uint32_t seq, int32_t *tokens,
                                int32_t *targets, struct pl_error *err)
{
    struct pl_batches *b = self;
    pl_assert(seq == b->seq);
    for (uint32_t i = 0; i < count; i++) {
        PL_TRY(b->stream.read(b->stream.self, begin_of(b, first + i), (uint64_t)seq + 1, b->row, err));
        for (uint32_t j = 0; j < seq; j++) {
            tokens[(size_t)i * seq + j] = b->row[j];
            targets[(size_t)i * seq + j] = b->row[j + 1];
        }
    }
    return PELAGO_OK;
}

struct pl_sequences pl_batches_sequences(struct pl_batches *b)
{
    return (struct pl_sequences){fetch, b};
}
