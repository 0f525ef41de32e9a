/* bench/merge_bench.h - how fast this machine merges, beside what its memory gives: `pelago bench merge`.
 *
 * Everything runs in turns, several times over, in one process: the triad (bench/triad.h), the mean and RDA of eight
 * contributions as floats and in int4, the outer step, and the codecs. The slices are those of the 124m model, tensors
 * above 4M values cut by rows; of every slice the fastest round counts, because neighbours on a shared machine slow the
 * others. Shares are of the faster triad. The bytes counted are those an algorithm cannot avoid: every pass over an array
 * once, encoded arrays by their encoded size; that a store reads its line first is not counted, nor is it in the triad.
 */
#ifndef PL_BENCH_MERGE_BENCH_H
#define PL_BENCH_MERGE_BENCH_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct pl_merge_bench {
    uint32_t threads;
    uint32_t contributions; /* up to PL_MERGE_BENCH_CONTRIBUTIONS_MAX */
    uint64_t memory_max;    /* bytes that may be taken; fewer values are used where 124M do not fit */
    double seconds;         /* at least so long, and at least three rounds */
    bool judge;             /* false: for the reader, no row has a bar */
};

struct pl_merge_row {
    const char *name;
    const char *counted; /* which bytes, for people */
    uint32_t passes;     /* over the contributions or the values */
    double bytes;        /* a value */
    double gb_per_s;     /* of the bytes counted */
    double share;        /* of the triad */
    double bar;          /* the least share; 0: none */
};

enum { PL_MERGE_ROWS_MAX = 20, PL_MERGE_LINE_MAX = 512, PL_MERGE_BENCH_CONTRIBUTIONS_MAX = 64 };

struct pl_merge_result {
    uint64_t values; /* of a contribution */
    uint32_t contributions, slices, threads, rounds;
    const char *cpu; /* the instruction set */
    uint32_t count;
    struct pl_merge_row rows[PL_MERGE_ROWS_MAX];
};

enum pelago_status pl_merge_bench_run(const struct pl_merge_bench *b, struct pl_merge_result *r,
                                      struct pl_error *err);

bool pl_merge_row_missed(const struct pl_merge_result *r, uint32_t row);
/* One line, without its end. */
void pl_merge_row_json(const struct pl_merge_result *r, uint32_t row, char out[static PL_MERGE_LINE_MAX]);
void pl_merge_row_text(const struct pl_merge_result *r, uint32_t row, char out[static PL_MERGE_LINE_MAX]);

#endif
