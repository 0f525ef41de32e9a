/* data/split.h - how text is cut into pieces before byte pairs are merged; no token reaches across a cut.
 *
 * A splitter is a short list of steps, each cutting the pieces of the step before. The pattern of GPT-2, which most
 * tokenizers share, is done by hand; other patterns run in pcre2. Both see Unicode as Hugging Face tokenizers do,
 * except that pcre2 may know fewer of the newest letters.
 */
#ifndef PL_DATA_SPLIT_H
#define PL_DATA_SPLIT_H

#include "base/alloc.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PL_SPLIT_STEPS_MAX = 8 };

/* \p{L} is a letter, \p{N} a number, \s white space. */
#define PL_SPLIT_GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

enum pl_split_kind {
    PL_SPLIT_BY_GPT2 = 1,
    PL_SPLIT_BY_REGEX,      /* every match and every gap between two is a piece */
    PL_SPLIT_BY_REGEX_ONLY, /* every match is a piece, what lies between is dropped */
    PL_SPLIT_BY_DIGIT,      /* every digit is a piece, and what lies between */
    PL_SPLIT_BY_DIGITS,     /* every run of digits is a piece, and what lies between */
    PL_SPLIT_PREFIX,        /* no cut: a piece that does not begin with a space gets one */
};

struct pl_split;         /* compiled steps; read only once made, so threads share it */
struct pl_split_scratch; /* what one thread needs to run it */

struct pl_split *pl_split_new(const struct pl_alloc *alloc);
void pl_split_free(struct pl_split *s); /* NULL is fine */
/* Adds a step; `pattern` for the REGEX kinds, otherwise NULL. INVALID or UNSUPPORTED with a sentence when it can not be used,
 * LIMIT beyond PL_SPLIT_STEPS_MAX steps. */
enum pelago_status pl_split_add(struct pl_split *s, enum pl_split_kind kind, const char *pattern,
                                struct pl_error *err);
/* Whether text may be cut before a space that follows an ASCII letter without changing any piece. */
bool pl_split_allows_cuts(const struct pl_split *s);
/* Whether the only step is the pattern of GPT-2: pl_split_gpt2 then does the same as pl_split_run. */
bool pl_split_is_gpt2(const struct pl_split *s);
/* A number that equal splitters share. */
uint64_t pl_split_digest(const struct pl_split *s);

struct pl_split_scratch *pl_split_scratch_new(const struct pl_alloc *alloc, const struct pl_split *s);
void pl_split_scratch_free(struct pl_split_scratch *scratch); /* NULL is fine */

/* The length of the first piece of the text at..end by the pattern of GPT-2; at < end. The end must be the end of the
 * text, or a place where cuts are allowed. */
size_t pl_split_gpt2(const uint8_t *at, const uint8_t *end);

/* Anything but OK ends the run and is returned from it. */
typedef enum pelago_status pl_split_fn(void *user, const uint8_t *piece, size_t len, struct pl_error *err);

/* Hands every piece to fn, in order. */
enum pelago_status pl_split_run(const struct pl_split *s, struct pl_split_scratch *scratch,
                                const uint8_t *text, size_t len, pl_split_fn *fn, void *user,
                                struct pl_error *err);

#endif
