/* train/choices_int.h - questions in memory; choices_read.c makes them, choices.c scores them. */
#ifndef PL_TRAIN_CHOICES_INT_H
#define PL_TRAIN_CHOICES_INT_H

#include "base/buf.h"
#include "train/choices.h"

struct pl_choice_option {
    size_t context, context_len; /* in text.data */
    size_t ending, ending_len;
};

struct pl_choice_question {
    uint32_t gold, count;
    uint64_t first; /* option */
};

struct pl_choices {
    struct pl_alloc alloc;
    struct pl_buf text;      /* unescaped */
    struct pl_buf options;   /* struct pl_choice_option */
    struct pl_buf questions; /* struct pl_choice_question */
};

static inline const struct pl_choice_option *pl_choices_options(const struct pl_choices *c, uint64_t *count)
{
    *count = c->options.len / sizeof(struct pl_choice_option);
    return (const void *)c->options.data;
}

static inline const struct pl_choice_question *pl_choices_questions(const struct pl_choices *c,
                                                                    uint64_t *count)
{
    *count = c->questions.len / sizeof(struct pl_choice_question);
    return (const void *)c->questions.data;
}

#endif
