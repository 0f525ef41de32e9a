/* model/model.h - a transformer that can be trained: parameters, gradients, activations and the two passes.
 *
 * Parameters are floats in one block, described by the tensor table. The passes use packed copies in the back end's
 * own format, which pl_model_refresh makes: call it (or pl_model_refresh_rows from the optimizer) after the block has
 * changed. Memory is allocated once, for the largest batch that will come.
 */
#ifndef PL_MODEL_MODEL_H
#define PL_MODEL_MODEL_H

#include "model/engine.h"
#include "model/tensors.h"

struct pl_model_options {
    struct pl_model_config config;
    const char *backend; /* NULL: the best */
    uint32_t threads;    /* 0: all processors */
    uint32_t batch;      /* B, sequences of one pass */
    uint32_t seq;        /* T at most; the rotary table is this long */
    bool train;          /* gradients and kept activations; without it only pl_model_loss works */
    bool
        recompute; /* keep one activation a layer and compute the rest again: less memory, a third more work */
};

/* Where a model lies; which of it the host may touch is in model.c. */
enum pl_model_part {
    PL_MODEL_PARAMS,
    PL_MODEL_GRADS,
    PL_MODEL_PACKED,
    PL_MODEL_WORK,
    PL_MODEL_LOSSES,
    PL_MODEL_PARTS
};

struct pl_acts;   /* model_int.h */
struct pl_matrix; /* model_int.h */

struct pl_model {
    struct pl_model_options options;
    struct pl_tensors tensors;
    struct pl_engine engine;
    struct pl_alloc alloc;
    float *params;            /* tensors.floats */
    float *grads;             /* tensors.floats, NULL without train */
    struct pl_matrix *packed; /* 4 a layer and the head; owned */
    struct pl_acts *acts;     /* owned */
    struct pl_block memory[PL_MODEL_PARTS];
};

/* Parameters are zero until pl_tensors_fill or a checkpoint fills them; then pl_model_refresh. */
enum pelago_status pl_model_new(struct pl_model **out, const struct pl_alloc *alloc,
                                const struct pl_model_options *options, struct pl_error *err);
void pl_model_free(struct pl_model *m);

/* Bytes in use by the model, without the optimizer's. */
uint64_t pl_model_bytes(const struct pl_model *m);

void pl_model_refresh(struct pl_model *m);
/* The same in two parts, for an optimizer that has just written some rows and still has them in its cache. The first
 * takes one tensor's rows from inside a pool task, row0 a multiple of PL_PACK_ROWS and so is rows unless they are the
 * last; distinct rows may be refreshed at the same time. The second, after all rows, makes what the first could not:
 * matrices made of tensors that do not end at a multiple of PL_PACK_ROWS. */
void pl_model_refresh_rows(struct pl_model *m, uint32_t tensor, uint32_t row0, uint32_t rows);
void pl_model_refresh_rest(struct pl_model *m);

/* One micro-batch. tokens and targets (batch, seq), batch and seq at most those of the options. */
struct pl_batch {
    uint32_t batch, seq;
    const int32_t *tokens;  /* 0 .. V-1: the caller has checked */
    const int32_t *targets; /* below 0: not counted */
};

struct pl_pass {
    float scale;     /* of the gradient: 1 / (tokens of the whole step) */
    float z_loss;    /* 0: none */
    bool accumulate; /* add to grads, or overwrite them */
    /* Called on the way back, by the calling thread, whenever more gradients are final: those of the block's floats from
     * `from` to its end. The way back goes through the block from its end, so `from` falls from call to call, to 0 in
     * the last. NULL: not called. */
    void (*graded)(void *user, uint64_t from);
    void *user;
};

/* Forward and backward. Returns the sum of the losses of the counted tokens (natural log, without z); NaN also when
 * scratch memory ran out or a device failed (pl_engine_check). */
double pl_model_train(struct pl_model *m, const struct pl_batch *b, const struct pl_pass *pass);
/* Forward only. losses (batch*seq) may be NULL. The sum is returned. */
double pl_model_loss(struct pl_model *m, const struct pl_batch *b, float *losses);
/* Forward only: the logits of every position, floats (batch*seq, V). For export's check and tests. */
void pl_model_logits(struct pl_model *m, const struct pl_batch *b, float *logits);

#endif
