/* bench/codec_bench.h - what every codec costs and gives: `pelago bench codec`.
 *
 * Sizes and losses are of changes as training makes them, as far as numbers from a formula can be: bell-shaped, rows of
 * 512 values of five scales, one row in sixteen nearly quiet. They go through error feedback for a few rounds, so that what
 * is encoded in the last one, the one that counts, holds what the others left. Speeds are of one thread, in its own
 * processor time, on arrays larger than the caches, in turns with a triad; the fastest turn counts.
 */
#ifndef PL_BENCH_CODEC_BENCH_H
#define PL_BENCH_CODEC_BENCH_H

#include "base/status.h"

#include <stdint.h>

struct pl_codec_bench {
    double seconds;  /* at least so long, and at least three turns */
    float selective; /* codec/feedback.h */
};

struct pl_codec_row {
    const char *name;
    double bits;   /* a value, encoded */
    double packed; /* a value, with zstd where that is shorter */
    double lost;   /* share of the squares that one encoding of a fresh change loses */
    double waits;  /* length of the residual after the last round, beside that of a change */
    double encode_gb_per_s, decode_gb_per_s, check_gb_per_s; /* of floats */
    double encode_share, decode_share; /* of the triad, by the bytes that have to be moved */
};

enum { PL_CODEC_ROWS_MAX = 16, PL_CODEC_LINE_MAX = 512 };

struct pl_codec_result {
    uint32_t turns, rounds, count;
    uint64_t values;
    double triad_gb_per_s;
    const char *cpu; /* the instruction set */
    struct pl_codec_row rows[PL_CODEC_ROWS_MAX];
};

enum pelago_status pl_codec_bench_run(const struct pl_codec_bench *b, struct pl_codec_result *r,
                                      struct pl_error *err);

/* The head of a table, and one line each, without its end. */
void pl_codec_head_text(char out[static PL_CODEC_LINE_MAX]);
void pl_codec_row_text(const struct pl_codec_result *r, uint32_t row, char out[static PL_CODEC_LINE_MAX]);
void pl_codec_row_json(const struct pl_codec_result *r, uint32_t row, char out[static PL_CODEC_LINE_MAX]);

#endif
