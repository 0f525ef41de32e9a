/* train/hf_int.h - config.json as text; for hf*.c and their tests. */
#ifndef PL_TRAIN_HF_INT_H
#define PL_TRAIN_HF_INT_H

#include "train/hf.h"
#include "train/json.h"

/* The token between texts: that of data/tokenizer.h, so that a model is used with the one it was trained with. */
struct pl_hf_special {
    bool known;
    uint32_t id;
    char text[PL_NAME_MAX];
};
/* What pl_tokenizer_parse says where the text is not a tokenizer.json; not known where it is empty. */
enum pelago_status pl_hf_special_find(struct pl_bytes tokenizer, const struct pl_alloc *alloc,
                                      struct pl_hf_special *out, struct pl_error *err);

/* Owned by the caller; NULL: out of memory. */
json_t *pl_hf_config_json(const struct pl_hf_model *m, const struct pl_hf_special *special);
enum pelago_status pl_hf_config_read(const struct pl_json *j, struct pl_model_config *out);

#endif
