/* cmd/weights.h - a model's weights in memory, on their way from one folder to another. */
#ifndef PL_CMD_WEIGHTS_H
#define PL_CMD_WEIGHTS_H

#include "base/buf.h"
#include "data/tokenizer.h"
#include "model/tensors.h"
#include "os/dir_posix.h"

struct pl_weights {
    struct pl_alloc alloc;
    struct pl_model_config config;
    struct pl_tensors tensors;
    float *params;                         /* tensors.floats */
    struct pl_buf tokenizer;               /* the text of tokenizer.json; no bytes: none */
    char tokenizer_name[PL_FILE_NAME_MAX]; /* the file that text is from */
    uint64_t step;                         /* of the checkpoint they come from, 0 for other sources */
    uint32_t seq;                          /* tokens of the sequences they were trained with; 0: not known */
};

/* From a folder of checkpoints, PL_NONE64 for the newest, or from a Hugging Face folder. *w must be released whether
 * it succeeds or not. */
enum pelago_status pl_weights_load_checkpoint(struct pl_weights *w, struct pl_dir dir, uint64_t step,
                                              struct pl_error *err);
enum pelago_status pl_weights_load_hf(struct pl_weights *w, struct pl_dir dir, struct pl_error *err);
/* From whichever of the two the folder is; checkpoints where it is both or a step is given. */
enum pelago_status pl_weights_load(struct pl_weights *w, struct pl_dir dir, uint64_t step,
                                   struct pl_error *err);
/* The tokenizer beside the weights; the error names its file. NOTFOUND where there is none. */
enum pelago_status pl_weights_tokenizer(const struct pl_weights *w, struct pl_tokenizer **out,
                                        struct pl_error *err);
void pl_weights_release(struct pl_weights *w);

/* As pl_failure, with the path first and, where a file operation failed, the system's words last. dir may be NULL. */
int pl_failure_at(const char *command, const char *path, const struct pl_posix_dir *dir,
                  const struct pl_error *err);

#endif
