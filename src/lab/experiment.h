/* lab/experiment.h - a file of rows, and a run as one line of JSON.
 *
 *     rows: [dp, m8]
 *     seeds: 1..5
 *     model: 1m
 *     tokens_per_param: 20
 *     dp/algorithm: data_parallel        # NAME/key: for that row alone
 *     m8/learners: 8
 *     m8/sync.up: int4                   # any setting of a run, by its name in settings.json
 *
 * docs/experiments.md lists the keys. Keys that are not the lab's own are settings (host/settings.h): what a run can be
 * told, a row can be told, without a word about it here.
 */
#ifndef PL_LAB_EXPERIMENT_H
#define PL_LAB_EXPERIMENT_H

#include "conf/conf.h"
#include "lab/lab.h"

enum { PL_LAB_ROWS_MAX = 64 };

struct pl_lab_experiment {
    struct pl_conf conf;
    char name[PL_LAB_NAME_MAX]; /* the file's, without folder and ending */
    char rows[PL_LAB_ROWS_MAX][PL_LAB_NAME_MAX];
    uint32_t row_count;
    uint64_t first_seed, last_seed;
};

/* Reads the file and looks at its keys; what they say is looked at row by row. */
enum pelago_status pl_lab_experiment_read(struct pl_lab_experiment *e, const struct pl_alloc *alloc,
                                          const char *path, struct pl_error *err);
void pl_lab_experiment_release(struct pl_lab_experiment *e);

/* shorter: the 10-minute form, with fewer tokens. folder: where the token files are; a row whose text is not there takes
 * builtin:tales instead, unless it needs several texts. */
enum pelago_status pl_lab_experiment_row(const struct pl_lab_experiment *e, uint32_t index, bool shorter,
                                         const struct pl_lab *lab, struct pl_lab_row *row,
                                         struct pl_error *err);

/* What a run is known by: a digest of all that makes its result, but the seed. 0: no memory. */
uint64_t pl_lab_row_key(const struct pl_lab_row *row, const struct pl_alloc *alloc);

/* A finished run as one line of JSON, without the newline. */
enum pelago_status pl_lab_line(const struct pl_lab_experiment *e, const struct pl_lab_row *row, uint64_t seed,
                               const struct pl_lab_result *result, const struct pl_alloc *alloc,
                               struct pl_buf *out);
/* Whether a line is that of a finished run with this key and seed. Lines of any other kind are not. */
bool pl_lab_line_is(const char *line, size_t len, uint64_t key, uint64_t seed);
/* Such a line may come from another experiment that has the same row under its own name: */
bool pl_lab_line_named(const struct pl_lab_experiment *e, const struct pl_lab_row *row, const char *line,
                       size_t len);
enum pelago_status pl_lab_line_rename(const struct pl_lab_experiment *e, const struct pl_lab_row *row,
                                      const char *line, size_t len, struct pl_buf *out);

#endif
