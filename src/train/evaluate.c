/* train/evaluate.c - see evaluate.h. */
#include "train/evaluate.h"

#include "base/check.h"
#include "base/num.h"
#include "train/trainer_int.h"

#include <math.h>

struct room {
    int32_t *row;              /* (batch * seq + 1) as the stream has them */
    int32_t *tokens, *targets; /* (batch, seq) */
};

/* Windows from token `at` on, as many as fit: the last may be short, then the rest of the rows is not counted. */
static enum pelago_status fill(const struct pl_model *m, const struct pl_stream *stream, uint64_t at,
                               uint64_t left, const struct room *room, struct pl_batch *b,
                               struct pl_error *err)
{
    uint32_t seq = (uint32_t)pl_min64(m->options.seq, left);
    uint64_t rows = pl_min64(m->options.batch, (left - 1) / seq + 1);
    uint64_t count = pl_min64(rows * seq, left);
    PL_TRY(stream->read(stream->self, at, count + 1, room->row, err));
    for (uint64_t i = 0; i < rows * seq; i++) {
        room->tokens[i] = i < count ? room->row[i] : room->row[0];
        room->targets[i] = i < count ? room->row[i + 1] : -1;
    }
    *b = (struct pl_batch){(uint32_t)rows, seq, room->tokens, room->targets};
    return pl_batch_check(b, m->options.config.vocab, err);
}

static enum pelago_status run(struct pl_model *m, const struct pl_stream *stream, uint64_t tokens,
                              const struct room *room, struct pl_evaluation *out, struct pl_error *err)
{
    for (uint64_t at = 0; at < tokens;) {
        struct pl_batch b;
        PL_TRY(fill(m, stream, at, tokens - at, room, &b, err));
        out->nats += pl_model_loss(m, &b, NULL);
        at += pl_min64((uint64_t)b.batch * b.seq, tokens - at);
    }
    out->tokens = tokens;
    PL_TRY(pl_engine_check(&m->engine, err));
    if (!isfinite(out->nats))
        return pl_fail(err, PELAGO_INVALID, "the validation loss is not a finite number");
    return PELAGO_OK;
}

enum pelago_status pl_evaluate(struct pl_model *m, const struct pl_stream *stream, struct pl_evaluation *out,
                               struct pl_error *err)
{
    pl_assert(stream->tokens != PL_NONE64);
    size_t count = (size_t)m->options.batch * m->options.seq;
    struct room room = {.row = pl_alloc_zero(&m->alloc, count + 1, sizeof *room.row),
                        .tokens = pl_alloc_zero(&m->alloc, count, sizeof *room.tokens),
                        .targets = pl_alloc_zero(&m->alloc, count, sizeof *room.targets)};
    enum pelago_status st = PELAGO_OK;
    *out = (struct pl_evaluation){0};
    if (stream->tokens < 2)
        st = pl_fail(err, PELAGO_INVALID, "there is no text to validate on: it needs two tokens at least");
    else if (room.row == NULL || room.tokens == NULL || room.targets == NULL)
        st = pl_fail(err, PELAGO_NOMEM, "there is no memory for a batch of %u x %u tokens", m->options.batch,
                     m->options.seq);
    else
        st = run(m, stream, stream->tokens - 1, &room, out, err);
    pl_alloc_free(&m->alloc, room.row, (count + 1) * sizeof *room.row);
    pl_alloc_free(&m->alloc, room.tokens, count * sizeof *room.tokens);
    pl_alloc_free(&m->alloc, room.targets, count * sizeof *room.targets);
    return st;
}
