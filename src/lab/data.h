/* lab/data.h - what a run learns from and is judged by: one text, or a mixture of several in given shares.
 *
 * A mixture is one row of tokens, text behind text; train/batches.h cuts and shuffles it, so that every learner gets the
 * same blend (iid). Split, each learner reads one of the texts alone. Judged is always by the held-out parts of all
 * texts, as many tokens of each as its share says.
 */
#ifndef PL_LAB_DATA_H
#define PL_LAB_DATA_H

#include "lab/lab.h"
#include "train/batches.h"
#include "train/dataset.h"

struct pl_lab_mixture {
    const struct pl_stream *parts[PL_LAB_DOMAINS_MAX];
    uint64_t tokens[PL_LAB_DOMAINS_MAX]; /* of each that are used */
    uint32_t count;
};

struct pl_lab_text {
    struct pl_alloc alloc;
    struct pl_dataset *domains[PL_LAB_DOMAINS_MAX];
    uint32_t domain_count;
    struct pl_lab_mixture train, valid;
    struct pl_stream train_stream, valid_stream;
    struct pl_batches all;                      /* of the mixture */
    struct pl_batches each[PL_LAB_DOMAINS_MAX]; /* split: of each text alone */
    bool split;
    uint32_t learners;
};

/* tokens: what the run will read. A name without a token file in the folder is NOTFOUND, with a sentence; INVALID where the
 * text is shorter than that: a run reads nothing twice. */
enum pelago_status pl_lab_text_open(struct pl_lab_text *t, const struct pl_lab *lab,
                                    const struct pl_lab_row *row, uint64_t seed, struct pl_error *err);
void pl_lab_text_close(struct pl_lab_text *t); /* also after a failure, and twice */

/* Sequence `number` (PL_SEQUENCE_OWN: its own) for a learner. */
enum pelago_status pl_lab_text_fetch(struct pl_lab_text *t, uint32_t learner, uint64_t number, uint32_t seq,
                                     int32_t *tokens, int32_t *targets, struct pl_error *err);

#endif
