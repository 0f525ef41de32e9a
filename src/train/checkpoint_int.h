/* train/checkpoint_int.h - names of files and the state file; for checkpoint*.c and their tests. */
#ifndef PL_TRAIN_CHECKPOINT_INT_H
#define PL_TRAIN_CHECKPOINT_INT_H

#include "train/checkpoint.h"
#include "train/json.h"

enum { PL_STATE_BYTES_MAX = 16 << 20 };

enum pl_ckpt_kind {
    PL_CKPT_MODEL = 0,
    PL_CKPT_OPTIMIZER,
    PL_CKPT_TOKENIZER,
    PL_CKPT_STATE,
    PL_CKPT_STATE_PARTIAL, /* a state file that has not taken its name */
    PL_CKPT_KINDS,
};

/* A name: the kind, the step with at least 8 digits, and for the data of a step that is saved again a number. */
struct pl_ckpt_name {
    enum pl_ckpt_kind kind;
    uint64_t step;
    uint32_t again; /* 0: the first */
};
void pl_ckpt_name_put(const struct pl_ckpt_name *n, char out[static PL_FILE_NAME_MAX]);
/* False for every name pl_ckpt_name_put does not make. */
bool pl_ckpt_name_parse(const char *text, struct pl_ckpt_name *n);

/* What the state file says of one other file. */
struct pl_ckpt_file {
    char name[PL_FILE_NAME_MAX]; /* "": none */
    uint64_t bytes;
    uint64_t digest; /* of a tokenizer all bytes, else those before the first tensor */
    json_t *tensors; /* {name: digest}, borrowed from the root; NULL for a tokenizer */
};

/* A state file, taken apart. */
struct pl_ckpt_state {
    json_t *root; /* owned */
    char name[PL_FILE_NAME_MAX];
    uint64_t step;
    struct pl_model_config config;
    struct pl_ckpt_file files[PL_CKPT_STATE]; /* by kind */
};

/* Reads, verifies and takes apart. */
enum pelago_status pl_ckpt_state_read(struct pl_ckpt_state *s, struct pl_dir dir,
                                      const struct pl_alloc *alloc, uint64_t step, struct pl_error *err);
void pl_ckpt_state_release(struct pl_ckpt_state *s);

/* The text of a state file for this checkpoint; the files' tensors are filled from the items. */
struct pl_ckpt_data {
    char name[PL_FILE_NAME_MAX]; /* "": none */
    uint64_t bytes;
    uint64_t digest;
    const struct pl_st_item *items;
    uint32_t item_count;
};
enum pelago_status pl_ckpt_state_print(const struct pl_checkpoint *c, uint64_t step,
                                       const struct pl_ckpt_data data[static PL_CKPT_STATE],
                                       struct pl_buf *out);

#endif
