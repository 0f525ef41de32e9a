/* train/choices.h - multiple choice by likelihood, as HellaSwag, ARC and PIQA are scored, and last words, as LAMBADA is.
 *
 * A file is text, perhaps packed (.zst): for each question a line "<gold> <n>", then n lines "context<TAB>continuation",
 * where \n, \t and \\ stand for a line end, a tab and a backslash. An option's score is log p(continuation | context);
 * the best of the n is the answer. Longer options are at a disadvantage there, so it is also counted by score a byte.
 * A question with one option only (n = 1) asks for the continuation itself: right when every token of it is the
 * likeliest.
 */
#ifndef PL_TRAIN_CHOICES_H
#define PL_TRAIN_CHOICES_H

#include "data/tokenizer.h"
#include "model/model.h"

enum { PL_CHOICES_OPTIONS_MAX = 64 }; /* of a question */

struct pl_choices;

/* The first `limit` questions of the file. Errors name the file and the line. */
enum pelago_status pl_choices_read(struct pl_choices **out, const struct pl_alloc *alloc, const char *path,
                                   uint64_t limit, struct pl_error *err);
void pl_choices_free(struct pl_choices *c); /* NULL is fine */

struct pl_choices_result {
    uint64_t questions, right, right_per_byte; /* with two options or more */
    double chance;                             /* right answers guessing would give, on average */
    uint64_t endings, greedy;                  /* with one: how many, how many found */
    double ending_nats;                        /* sum of -log p */
};

/* Called now and then; may be NULL. */
typedef void pl_choices_progress(void *user, uint64_t done, uint64_t total);

/* Contexts that do not fit the model's sequences lose their beginning. INVALID where a likelihood is not a number. */
enum pelago_status pl_choices_score(const struct pl_choices *c, struct pl_model *m,
                                    const struct pl_tokenizer *t, pl_choices_progress *progress, void *user,
                                    struct pl_choices_result *out, struct pl_error *err);

#endif
