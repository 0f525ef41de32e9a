/* train/dataset.h - what a run learns from and is judged by: a tokenizer, tokens to train on, tokens to validate on.
 *
 * A name is a token file (data/tokens.h), a text file (.txt, .jsonl, either with .zst; "-" is standard input), which is
 * encoded in memory, or builtin:tales, which is made up as it is read. Without a validation set of its own a file keeps
 * its last twentieth back, or less where less is wanted; the tales have one of their own, whose floor is known.
 */
#ifndef PL_TRAIN_DATASET_H
#define PL_TRAIN_DATASET_H

#include "base/pool.h"
#include "data/tokenizer.h"
#include "train/stream.h"

#define PL_DATASET_TALES "builtin:tales"

struct pl_dataset_options {
    const char *data;      /* NULL: nothing to train on */
    const char *valid;     /* NULL: a part of data */
    const char *tokenizer; /* char, byte, or a path; NULL: trained on the data */
    struct pl_bytes json;  /* a tokenizer.json instead of all that; no bytes: none */
    uint32_t vocab;        /* of a tokenizer trained on the data */
    uint64_t valid_tokens; /* at most so many are predicted in a validation; the tales give a few more */
    uint64_t seed;         /* of the tales */
    uint32_t threads;      /* 0: one for each processor */
};

struct pl_dataset {
    struct pl_tokenizer *tokenizer; /* NULL: token files without one */
    uint32_t vocab;                 /* tokens are below this */
    struct pl_stream train;         /* no tokens where there is no data */
    struct pl_stream valid;         /* ends */
    double valid_bytes;             /* of the text that is predicted in a validation; 0: unknown */
    double valid_floor;             /* nats no model can do without on it; 0: unknown */
    struct pl_dataset_parts *parts; /* private */
};

/* INVALID with a sentence where it begins with builtin: and is not among ours; NULL is fine. Files are not looked for. */
enum pelago_status pl_dataset_check_name(const char *name, struct pl_error *err);

enum pelago_status pl_dataset_open(struct pl_dataset **out, const struct pl_alloc *alloc,
                                   const struct pl_dataset_options *options, struct pl_error *err);
void pl_dataset_close(struct pl_dataset *d); /* NULL is fine */

#endif
