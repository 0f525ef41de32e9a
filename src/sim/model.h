/* sim/model.h - a naive syncer shard: the rules of docs/protocol.md written down once more, in arrays and linear search.
 *
 * It is told what happened and says what has to follow: who is in a merge, at which version, who is told to drop,
 * what each learner was last merged in. It keeps no clock and does not choose moments: when to pull and when to merge
 * is the core's decision (checked by clock and hostage), what must be true at that moment is said here. It shares no
 * code with core/.
 */
#ifndef PL_SIM_MODEL_H
#define PL_SIM_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One learner and one fragment. */
struct model_cell {
    uint64_t asked; /* round of a PULL not answered yet; 0 none */
    uint64_t held;  /* round of a push that is here and good; 0 none */
    uint64_t steps, tokens;
    uint64_t last_merged; /* round; 0 none */
    bool merging;         /* in the merge under way */
    bool
        asked_here; /* the PULL went out in the present session: one that was lost may be repeated in the next */
    uint64_t acked; /* version the learner said it has */
    bool acked_known;
};

struct model_fragment {
    uint64_t version;
    uint64_t round;    /* the one pushes are gathered for; 0 none */
    uint64_t since_ns; /* when the first learner was asked for it */
    uint64_t merging;  /* the one being merged or stored; 0 none */
    bool closing;      /* `round` is the closing one: K does not matter */
    uint64_t ready_ns; /* since when nothing is waited for; 0: something is */
};

struct pl_model {
    uint32_t people, fragments, quorum, period;
    uint64_t epoch;
    uint64_t *incarnation;           /* [people] */
    struct model_cell *cells;        /* [people][fragments] */
    struct model_fragment *fragment; /* [fragments] */
};

static inline struct model_cell *pl_model_cell(const struct pl_model *m, uint32_t person, uint32_t fragment)
{
    return &m->cells[(size_t)person * m->fragments + fragment];
}

/* A process of this learner was welcomed: an older one's pushes do not count any more. */
void pl_model_welcome(struct pl_model *m, uint32_t person, uint64_t incarnation);
void pl_model_pulled(struct pl_model *m, uint64_t now, uint32_t person, uint32_t fragment, uint64_t round);

/* The learner will not answer, or its answer was thrown away. */
void pl_model_unasked(struct pl_model *m, uint32_t person, uint32_t fragment, uint64_t round);
void pl_model_held(struct pl_model *m, uint32_t person, uint32_t fragment, uint64_t round, uint64_t steps,
                   uint64_t tokens);

/* Is this learner in a merge of this round now? */
bool pl_model_takes_part(const struct pl_model *m, uint32_t person, uint32_t fragment, uint64_t round);

/* The merge of this round began; who was asked and is not in it is to be told. */
void pl_model_merge(struct pl_model *m, uint32_t fragment, uint64_t round);
bool pl_model_owed_drop(const struct pl_model *m, uint32_t person, uint32_t fragment, uint64_t round);

/* Is there nothing more to wait for: enough is held, and of those who are here nobody has still to answer? */
bool pl_model_ready(const struct pl_model *m, uint32_t fragment,
                    const uint32_t *here); /* here[i] != PL_NONE32 */

/* The merge under way came to nothing, or became the next version. */
void pl_model_merge_failed(struct pl_model *m, uint32_t fragment);
void pl_model_published(struct pl_model *m, uint32_t fragment);

/* A power cut: nobody is here, no round is open. What was being stored may have survived. */
void pl_model_crash(struct pl_model *m);
void pl_model_recovered(struct pl_model *m, uint32_t fragment, uint64_t version);

#endif
