/* base/merge_mode.h - how the contributions to a tensor are merged (arXiv 2604.21428, appendix D.2).
 *
 * Here because the fragment table (core), the manifest (wire) and the arithmetic (optim) all name it. The values
 * go over the wire.
 */
#ifndef PL_BASE_MERGE_MODE_H
#define PL_BASE_MERGE_MODE_H

enum pl_merge_mode {
    PL_MERGE_RDA = 0,  /* radial-directional averaging: matrices */
    PL_MERGE_MEAN = 1, /* plain weighted mean: embeddings and one-dimensional tensors */
};

#endif
