/* model/tensors.h - the one table of tensors: it drives allocation, init, fragments, optimizer, checkpoint, export.
 *
 * All parameters lie in one block of floats; a tensor is a range of it, row-major (rows, cols). Neighbours that are
 * multiplied with the same input (q k v; gate up) lie next to each other without a gap, so that they also form one
 * larger matrix; every other tensor, and the first of such a group, starts at a multiple of 16 floats. Names are those
 * of Hugging Face's LlamaForCausalLM.
 */
#ifndef PL_MODEL_TENSORS_H
#define PL_MODEL_TENSORS_H

#include "base/alloc.h"
#include "base/limits.h"
#include "model/config.h"

enum pl_tensor_role {
    PL_TENSOR_EMBED = 1, /* (V, C) also the head where tied */
    PL_TENSOR_ATTN_NORM, /* (1, C) */
    PL_TENSOR_Q,         /* (H*D, C) */
    PL_TENSOR_K,         /* (G*D, C) */
    PL_TENSOR_V,         /* (G*D, C) */
    PL_TENSOR_Q_NORM,    /* (1, D) with qk_norm only */
    PL_TENSOR_K_NORM,    /* (1, D) with qk_norm only */
    PL_TENSOR_O,         /* (C, H*D) */
    PL_TENSOR_MLP_NORM,  /* (1, C) */
    PL_TENSOR_GATE,      /* (F, C) */
    PL_TENSOR_UP,        /* (F, C) */
    PL_TENSOR_DOWN,      /* (C, F) */
    PL_TENSOR_NORM,      /* (1, C) the last one */
    PL_TENSOR_HEAD,      /* (V, C) where not tied */
};

/* How the optimizer treats it. */
enum pl_tensor_group {
    PL_GROUP_EMBED = 1, /* embedding and head: AdamW, decayed, never Muon */
    PL_GROUP_MATRIX,    /* AdamW or Muon, decayed */
    PL_GROUP_NORM,      /* AdamW, not decayed */
};

struct pl_tensor {
    char name[PL_NAME_MAX]; /* "model.layers.3.self_attn.q_proj.weight" */
    enum pl_tensor_role role;
    enum pl_tensor_group group;
    uint32_t layer; /* PL_NONE32 outside the layers */
    uint32_t rows;
    uint32_t cols;
    uint64_t offset; /* first float in the block */
    float init_std;  /* normal with this deviation; 0: all ones (norms) */
};

struct pl_tensors {
    struct pl_tensor *at; /* owned */
    uint32_t count;
    uint64_t floats; /* size of the block, gaps included: a multiple of 16 */
    uint64_t params; /* N, without gaps */
};

/* The config must have passed pl_model_config_check. */
enum pelago_status pl_tensors_init(struct pl_tensors *t, const struct pl_alloc *alloc,
                                   const struct pl_model_config *config);
void pl_tensors_release(struct pl_tensors *t, const struct pl_alloc *alloc);
/* Index of the tensor with that role in that layer (PL_NONE32 outside the layers), or PL_NONE32. */
uint32_t pl_tensors_find(const struct pl_tensors *t, enum pl_tensor_role role, uint32_t layer);
uint32_t pl_tensors_find_name(const struct pl_tensors *t, const char *name);

/* The start of training: each tensor from a stream of its own, so that the values depend on seed and index alone.
 * Gaps become zero. */
void pl_tensors_fill(const struct pl_tensors *t, float *block, uint64_t seed);

#endif
