/* train/checkpoint.h - a training run on disk: weights, optimizer, progress and tokenizer of one step.
 *
 * A checkpoint of step 1200 is these files of one directory (docs/checkpoints.md has the details):
 *
 *     model-00001200.safetensors      the parameters, F32, under their Hugging Face names
 *     optimizer-00001200.safetensors  the optimizer's tensors, where there are any
 *     tokenizer-00001200.json         where the run has one
 *     state-00001200.json             config, progress, and size and digest of every file and tensor above
 *
 * The state file is the commit point: it takes its name, by a rename, after everything it speaks of is on disk. So a
 * checkpoint is there completely or not at all, at whatever moment the power goes, and files without a state are
 * leftovers, which the next save removes. Loading compares every byte with its digest.
 *
 * The module knows nothing of the optimizer or the trainer: they hand in named spans of floats and named fields, the
 * same for saving and loading.
 */
#ifndef PL_TRAIN_CHECKPOINT_H
#define PL_TRAIN_CHECKPOINT_H

#include "base/alloc.h"
#include "base/buf.h"
#include "model/tensors.h"
#include "store/file.h"
#include "train/safetensors.h"

#define PL_TOKENIZER_BYTES_MAX (64u << 20)
enum { PL_CHECKPOINTS_KEPT = 2 }; /* unless said otherwise */

/* Floats of the caller: read by a save, filled by a load. Names like "adam_m.model.norm.weight". */
struct pl_named_span {
    const char *name;
    uint32_t rows;
    uint32_t cols;
    float *at;
};

/* What a field's pointer points to. */
enum pl_member_kind {
    PL_MEMBER_COUNT = 1, /* uint64_t up to PL_COUNT_MAX */
    PL_MEMBER_BITS,      /* any uint64_t: seeds, states of generators, digests */
    PL_MEMBER_REAL,      /* double, comes back bit for bit (but one NaN is like the other) */
    PL_MEMBER_FLAG,      /* bool */
    PL_MEMBER_TEXT,      /* char[cap], zero-terminated */
};

/* One value of state.json, under "state". A dot in the name makes an object: "schedule.warmup_tokens". */
struct pl_member {
    const char *name;
    enum pl_member_kind kind;
    void *at;
    uint32_t cap;  /* of TEXT */
    bool optional; /* a load leaves it alone where the file has none */
};

struct pl_checkpoint {
    const struct pl_model_config *config;
    const struct pl_tensors *tensors;
    const float *params; /* tensors->floats of them */
    const struct pl_named_span *spans;
    uint32_t span_count; /* 0: no optimizer file */
    const struct pl_member *fields;
    uint32_t field_count;
    struct pl_bytes tokenizer; /* the text of tokenizer.json; no bytes: none */
    bool rewinds; /* it takes the place of all checkpoints after rewinds_to, where there are any */
    uint64_t rewinds_to;
};

/* Saves and then removes all but the newest `keep` (0: keeps all). On failure nothing is left of the attempt, and
 * what was there before is untouched. INVALID where the directory has a checkpoint of a later step and it does not
 * rewind; the same step again is replaced. One that rewinds removes those it takes the place of when it is on the disk itself; where it is, and one
 * of them cannot be removed, that is a failure, too. Needs room on the disk for one more than are kept. */
enum pelago_status pl_checkpoint_save(struct pl_dir dir, const struct pl_alloc *alloc, uint64_t step,
                                      const struct pl_checkpoint *c, uint32_t keep, struct pl_error *err);

/* The newest step below `below` (PL_NONE64: of all). NOTFOUND where there is none, with a sentence. */
enum pelago_status pl_checkpoint_newest(struct pl_dir dir, uint64_t below, uint64_t *step,
                                        struct pl_error *err);

struct pl_checkpoint_reader;

/* Opens the checkpoint of that step, PL_NONE64 for the newest: reads the state file, checks that the files it names
 * are there with their sizes; that of the optimizer only when it is read. */
enum pelago_status pl_checkpoint_open(struct pl_checkpoint_reader **out, struct pl_dir dir,
                                      const struct pl_alloc *alloc, uint64_t step, struct pl_error *err);
void pl_checkpoint_close(struct pl_checkpoint_reader *r); /* NULL is fine */

/* Reading the checkpoint of that step (PL_NONE64: the newest) ended with st and err: where it is damaged and there is one
 * before it, the sentence says so. Returns st. */
enum pelago_status pl_checkpoint_advise(struct pl_dir dir, const struct pl_alloc *alloc, uint64_t step,
                                        enum pelago_status st, struct pl_error *err);

uint64_t pl_checkpoint_step(const struct pl_checkpoint_reader *r);
const struct pl_model_config *
pl_checkpoint_config(const struct pl_checkpoint_reader *r); /* has been checked */
bool pl_checkpoint_has_optimizer(const struct pl_checkpoint_reader *r);
bool pl_checkpoint_has_tokenizer(const struct pl_checkpoint_reader *r);
const char *pl_checkpoint_tokenizer_name(const struct pl_checkpoint_reader *r); /* its file; "": none */

/* Each compares what it reads with the digests, and the names and shapes with what is expected. After a failure the
 * destination may be filled in part. */
enum pelago_status pl_checkpoint_read_params(struct pl_checkpoint_reader *r, const struct pl_tensors *tensors,
                                             float *params, struct pl_error *err);
enum pelago_status pl_checkpoint_read_spans(struct pl_checkpoint_reader *r, const struct pl_named_span *spans,
                                            uint32_t count, struct pl_error *err);
enum pelago_status pl_checkpoint_read_fields(struct pl_checkpoint_reader *r, const struct pl_member *fields,
                                             uint32_t count, struct pl_error *err);
/* Appends the text of tokenizer.json. NOTFOUND where the checkpoint has none. */
enum pelago_status pl_checkpoint_read_tokenizer(struct pl_checkpoint_reader *r, struct pl_buf *into,
                                                struct pl_error *err);

/* For `inspect`. Opens a file of tensors whose head is as it was written; NOTFOUND where there is no optimizer. */
enum pl_checkpoint_part { PL_CHECKPOINT_MODEL = 0, PL_CHECKPOINT_OPTIMIZER };
enum pelago_status pl_checkpoint_open_part(struct pl_checkpoint_reader *r, enum pl_checkpoint_part part,
                                           struct pl_st_reader *out, struct pl_error *err);
/* The digest a tensor must have; false: none is known. */
bool pl_checkpoint_digest(const struct pl_checkpoint_reader *r, const char *tensor, uint64_t *digest);
/* Appends the fields as an object of JSON. */
enum pelago_status pl_checkpoint_print_state(const struct pl_checkpoint_reader *r, struct pl_buf *out);

#endif
