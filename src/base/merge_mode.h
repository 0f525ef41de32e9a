/* base/merge_mode.h - how the contributions to a tensor are merged (arXiv 2604.21428, appendix D.2).
 *
 * Here because the fragment table (core), the manifest (wire) and the arithmetic (optim) all name it. The first two
 * go over the wire, as what a tensor is: a matrix, or not. The others are choices of the run (optim/rule.h) and stay
 * with the syncer.
 */
#ifndef PL_BASE_MERGE_MODE_H
#define PL_BASE_MERGE_MODE_H

enum pl_merge_mode {
    PL_MERGE_RDA = 0,  /* radial-directional averaging: matrices */
    PL_MERGE_MEAN = 1, /* plain weighted mean: embeddings and one-dimensional tensors */
    PL_MERGE_TRIMMED,  /* without the largest and the smallest of every value */
    PL_MERGE_CLIPPED,  /* centred clipping: nobody is further from the centre than half of them are */
    PL_MERGE_MEDIAN,   /* weighted mean of vectors that are all as long as the median one */
};

#endif
