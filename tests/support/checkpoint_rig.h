/* tests/support/checkpoint_rig.h - a tiny training run whose every value follows from a stamp.
 *
 * ckrig_set gives parameters, moments and fields the values of a stamp; ckrig_check tells whether all of them have it.
 */
#ifndef PL_TESTS_CHECKPOINT_RIG_H
#define PL_TESTS_CHECKPOINT_RIG_H

#include "memdisk.h"
#include "train/checkpoint.h"

enum { RIG_SPANS_MAX = 64, RIG_FIELDS = 7 };

struct rig {
    struct counting_alloc memory;
    struct pl_model_config config;
    struct pl_tensors tensors;
    float *params;
    float *m, *v;
    char names[RIG_SPANS_MAX][PL_ST_NAME_MAX];
    struct pl_named_span spans[RIG_SPANS_MAX];
    uint32_t span_count;
    uint64_t tokens, seed;
    double loss, best;
    bool muon;
    char data[64];
    uint64_t pass; /* an optional field, saved as stamp % 2 == 0 */
    struct pl_member fields[RIG_FIELDS];
    char tokenizer[64];
    struct pl_checkpoint checkpoint;
    struct pl_error error;
};

void ckrig_init(struct rig *r);
void ckrig_release(struct rig *r);
void ckrig_set(struct rig *r, uint64_t stamp);
/* Fails the test unless everything is as ckrig_set(stamp) made it. */
void ckrig_check(const struct rig *r, uint64_t stamp);
void ckrig_clear(struct rig *r); /* zeros everywhere */

enum pelago_status ckrig_save(struct rig *r, struct pl_dir dir, uint64_t step, uint32_t keep);
/* Loads the checkpoint of that step (PL_NONE64: the newest), all parts of it, and says which it was. */
enum pelago_status ckrig_load(struct rig *r, struct pl_dir dir, uint64_t step, uint64_t *found);
/* The same, failing the test where they do not; the stamp is the step. */
void ckrig_must_save(struct rig *r, struct pl_dir dir, uint64_t step, uint32_t keep);
void ckrig_must_load(struct rig *r, struct pl_dir dir, uint64_t step, uint64_t wanted);
unsigned ckrig_file_count(struct pl_dir dir);

#endif
