/* model/config.h - the dimensions of a Llama-family transformer.
 *
 * Shape letters used throughout model/: B sequences of T tokens, M = B*T rows, L layers, C width, H heads and G
 * key/value heads of D values each, F hidden width of the feed-forward part, V vocabulary.
 */
#ifndef PL_MODEL_CONFIG_H
#define PL_MODEL_CONFIG_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct pl_model_config {
    uint32_t layers;   /* L */
    uint32_t width;    /* C */
    uint32_t heads;    /* H */
    uint32_t kv_heads; /* G, divides H */
    uint32_t head_dim; /* D, even */
    uint32_t hidden;   /* F */
    uint32_t vocab;    /* V */
    uint32_t context;  /* longest T the model is meant for */
    bool tied;         /* the head is the embedding */
    bool qk_norm;      /* RMSNorm of each query and key head */
    float rope_theta;
    float norm_eps;
};

/* A preset by name: 1m 5m 14m 35m 124m 350m 1b. NOTFOUND names the presets. */
enum pelago_status pl_model_config_preset(const char *name, struct pl_model_config *out,
                                          struct pl_error *err);
/* The name of preset number index, NULL after the last. */
const char *pl_model_config_preset_name(uint32_t index);

/* Fills in what is zero from what is given: heads from width (64 values each), kv_heads = heads, head_dim = width /
 * heads where that divides (else it stays 0 and the check says so), hidden = 8/3 width rounded up to 32, context 1024,
 * theta 10000, eps 1e-5. */
void pl_model_config_complete(struct pl_model_config *c);

/* One sentence about the first dimension that is out of range or does not divide. */
enum pelago_status pl_model_config_check(const struct pl_model_config *c, struct pl_error *err);

uint64_t pl_model_config_params(const struct pl_model_config *c); /* N, all of them */
/* Floating-point operations of one token's forward and backward pass at sequence length T: 6 per matrix parameter
 * (the head counts, the embedding look-up does not) and 6 * L * H * D * T for causal attention. */
double pl_model_config_flops(const struct pl_model_config *c, uint32_t seq);

#endif
