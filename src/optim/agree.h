/* optim/agree.h - do a round's contributions lead the same way? And who has led another way for long?
 *
 * Contributions of learners that train the same model are nearly at right angles to each other, but only nearly: the
 * cosine of two is positive on average, and over a hundred rounds that is beyond chance. Whoever leads backwards, or
 * anywhere, has an average that is negative, or nothing.
 *
 * The agreement of a contribution is the median cosine with the others, not their mean: two that lie alike agree with
 * each other perfectly, and with the others not at all. A jury of at most PL_AGREE_JURY contributions of learners in good
 * standing stands for all. What is remembered of a learner is the mean of (its agreement - an eighth of the round's usual
 * one), and how much that varies: an honest learner with data of its own may agree less than others, and is not
 * suspected for that. docs/decisions/0006 has the reasons and the limits.
 *
 * All this decides who is merged; the journal keeps the decision and what it was made from. So the numbers here need not
 * be the same on every machine.
 */
#ifndef PL_OPTIM_AGREE_H
#define PL_OPTIM_AGREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PL_AGREE_JURY = 32,
    PL_AGREE_COUNT_MIN = 3,    /* of two, nobody can say who is wrong */
    PL_TRUST_SAMPLES_MIN = 12, /* rounds, before anybody is suspected */
};

/* Dot products of a round, as far as they have been added up. */
struct pl_agree {
    uint32_t count; /* contributions */
    uint32_t jury_count;
    uint32_t jury[PL_AGREE_JURY]; /* numbers of contributions, ascending */
    double *dots;                 /* [count][jury_count] */
    double *squares;              /* [count] */
    uint64_t values;              /* added so far */
};

/* Doubles of memory for so many contributions. */
size_t pl_agree_doubles(uint32_t count);
/* out[i]: contribution i is not in good standing; NULL: all are. */
void pl_agree_begin(struct pl_agree *a, uint32_t count, const bool *out, double *memory);
/* len more values of every contribution: those of contribution i at rows + i * stride. */
void pl_agree_add(struct pl_agree *a, const float *rows, size_t stride, size_t len);
/* samples[i] = agreement - usual / 8, the usual one being the jury's median; NAN where there is nothing to say. False:
 * all of them are: too few contributions, or the jury itself does not agree beyond chance. */
bool pl_agree_end(const struct pl_agree *a, float *samples);

/* What is remembered of a learner. */
struct pl_trust {
    double mean, var; /* of its samples, older ones fading */
    uint32_t samples; /* at most a window's worth */
    bool out;         /* it does not count at present */
};

/* NAN is no sample. True: it changed whether the learner counts. */
bool pl_trust_add(struct pl_trust *t, float sample);
/* How many standard errors the mean is from 0; 0 as long as there are too few samples. */
double pl_trust_z(const struct pl_trust *t);

#endif
