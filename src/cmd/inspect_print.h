/* cmd/inspect_print.h - the report of `pelago inspect`, as text or as one JSON object. */
#ifndef PL_CMD_INSPECT_PRINT_H
#define PL_CMD_INSPECT_PRINT_H

#include "base/bytes.h"
#include "model/config.h"
#include "train/safetensors.h"

/* What is known of the values of a tensor. */
struct pl_values {
    uint64_t count;
    uint64_t not_finite; /* NaN and infinity: counted, and left out of the rest */
    double sum, squares;
    float min, max;
};
void pl_values_add(struct pl_values *v, const float *values, size_t count);

enum pl_verdict {
    PL_VERDICT_UNKNOWN = 0, /* nothing to compare with */
    PL_VERDICT_GOOD,
    PL_VERDICT_DAMAGED,
};

struct pl_report {
    bool json;
    bool begun;
    uint64_t tensors, parameters, not_finite;
    uint64_t good, damaged;
    uint64_t printed;
};

void pl_report_begin(struct pl_report *p, const char *kind, const char *path);
void pl_report_step(struct pl_report *p, uint64_t step, bool has_optimizer);
void pl_report_config(struct pl_report *p, const struct pl_model_config *c);
void pl_report_state(struct pl_report *p, struct pl_bytes json);
/* Counts; prints a line where asked to, or where there is damage. */
void pl_report_tensor(struct pl_report *p, const struct pl_st_tensor *t, const struct pl_values *v,
                      enum pl_verdict verdict, bool print);
/* err: why it ended early, or NULL. */
void pl_report_end(struct pl_report *p, const struct pl_error *err);

#endif
