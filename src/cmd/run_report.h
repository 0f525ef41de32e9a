/* cmd/run_report.h - the result of a run as a person and a program read it. */
#ifndef PL_CMD_RUN_REPORT_H
#define PL_CMD_RUN_REPORT_H

#include "cmd/run_cluster.h"

struct pl_run_result {
    bool judged;   /* there was text to validate on */
    bool readable; /* there is a tokenizer */
    uint64_t tokens;
    double loss, bits_per_byte, floor_loss; /* bits and floor 0: not known */
    double seconds;
    struct pl_buf sample; /* text; perhaps none */
};

/* Appends report.json and report.md as texts. */
enum pelago_status pl_report_json(const struct pl_run *r, const struct pl_run_result *e, struct pl_buf *out);
enum pelago_status pl_report_md(const struct pl_run *r, const struct pl_run_result *e, struct pl_buf *out);

/* Text as a terminal may see it: control characters, and what is no UTF-8, become '?'; line ends stay, but at the end. */
void pl_report_clean(struct pl_buf *text);

#endif
