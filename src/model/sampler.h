/* model/sampler.h - which token comes next: temperature, top-k, top-p and min-p, seeded.
 *
 * The options act in this order: logits are divided by the temperature and become probabilities; the top_k likeliest
 * stay; of those as few of the likeliest as reach top_p of their probability; of those the ones with at least min_p of
 * the greatest probability. Among equals the lower id counts as likelier. Then one is drawn.
 */
#ifndef PL_MODEL_SAMPLER_H
#define PL_MODEL_SAMPLER_H

#include "base/alloc.h"
#include "base/prng.h"
#include "base/status.h"

#include <stdint.h>

struct pl_sampler_options {
    double temperature; /* 0: always the likeliest; or 0.01 .. 100 */
    double top_p;       /* 0 .. 1; 1: all */
    double min_p;       /* 0 .. 1; 0: all */
    uint32_t top_k;     /* 0: all */
};

struct pl_sampler {
    struct pl_alloc alloc;
    struct pl_sampler_options options;
    struct pl_prng random;
    uint32_t vocab;
    float *weights;       /* (V) probabilities, up to a factor; owned */
    uint64_t *candidates; /* (V) owned */
};

/* INVALID names the option that is out of range. */
enum pelago_status pl_sampler_options_check(const struct pl_sampler_options *o, struct pl_error *err);

/* vocab > 0; checks the options. Seeded with 0, 0. */
enum pelago_status pl_sampler_init(struct pl_sampler *s, const struct pl_alloc *alloc, uint32_t vocab,
                                   const struct pl_sampler_options *options, struct pl_error *err);
void pl_sampler_release(struct pl_sampler *s);

/* The same seed, stream and logits give the same tokens. */
void pl_sampler_seed(struct pl_sampler *s, uint64_t seed, uint64_t stream);

/* The next token, or PL_NONE32 where the logits are no numbers: NaN, plus infinity, or all minus infinity. */
uint32_t pl_sampler_pick(struct pl_sampler *s, const float *logits);

#endif
