/* train/hf.h - a model as a Hugging Face folder: config.json, model.safetensors, tokenizer.json and what goes with them.
 *
 * Our tensors have the names and the layout of LlamaForCausalLM, so nothing is permuted or renamed. With qk_norm the
 * architecture is that of Qwen3ForCausalLM, which is Llama with an RMSNorm on each query and key head. What our model
 * does not compute (biases, scaled rotary embeddings, sliding windows, other activations) is refused, not ignored.
 */
#ifndef PL_TRAIN_HF_H
#define PL_TRAIN_HF_H

#include "base/buf.h"
#include "model/tensors.h"
#include "store/file.h"
#include "train/safetensors.h"

struct pl_hf_model {
    const struct pl_model_config *config;
    const struct pl_tensors *tensors;
    const float *params;
    enum pl_dtype dtype;       /* F32 or BF16 */
    struct pl_bytes tokenizer; /* the text of tokenizer.json; no bytes: none */
};

/* Writes config.json, generation_config.json, model.safetensors and, with a tokenizer, tokenizer.json and
 * tokenizer_config.json, each synced. */
enum pelago_status pl_hf_export(struct pl_dir dir, const struct pl_alloc *alloc, const struct pl_hf_model *m,
                                struct pl_error *err);

/* Reads config.json. The config has been checked. */
enum pelago_status pl_hf_read_config(struct pl_dir dir, const struct pl_alloc *alloc,
                                     struct pl_model_config *out, struct pl_error *err);
/* Reads model.safetensors, or the files that model.safetensors.index.json names. */
enum pelago_status pl_hf_read_params(struct pl_dir dir, const struct pl_alloc *alloc,
                                     const struct pl_tensors *tensors, float *params, struct pl_error *err);
/* Appends tokenizer.json; no bytes where the folder has none. */
enum pelago_status pl_hf_read_tokenizer(struct pl_dir dir, struct pl_buf *into, struct pl_error *err);

#endif
