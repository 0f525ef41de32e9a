/* model/model_int.h - how a model lies in memory; for model/ and its tests. */
#ifndef PL_MODEL_MODEL_INT_H
#define PL_MODEL_MODEL_INT_H

#include "model/model.h"

/* A matrix of one or more neighbouring tensors that meet the same input, with its packed copy. */
struct pl_matrix {
    uint32_t first;   /* tensor index */
    uint32_t tensors; /* how many neighbours */
    uint32_t n, k;
    bool ragged; /* a tensor inside ends between two multiples of PL_PACK_ROWS */
    void *packed;
};

enum pl_matrix_kind { PL_MATRIX_QKV, PL_MATRIX_O, PL_MATRIX_GATE_UP, PL_MATRIX_DOWN, PL_MATRIX_KINDS };

/* What one layer leaves behind for the way back. M rows each; act with the row stride noted. */
struct pl_layer_acts {
    float *x;       /* (M, C) input */
    float *mid;     /* (M, C) after attention */
    void *x_norm;   /* act, ld_c */
    void *qkv_raw;  /* act, ld_qkv: before norm and rotation; the same memory as qkv without qk_norm */
    void *qkv;      /* act, ld_qkv */
    void *att;      /* act, ld_hd: what attention gives */
    void *mid_norm; /* act, ld_c */
    void *gate_up;  /* act, ld_gu */
    float *x_rstd, *mid_rstd; /* (M) */
    float *qk_rstd;           /* (M, H + G) with qk_norm */
    float *lse;               /* (B, H, T) */
};

struct pl_acts {
    struct pl_layer_acts *layers; /* L; all alike but for x when recomputing */
    size_t ld_c, ld_qkv, ld_hd, ld_gu, ld_f, ld_v;
    uint32_t logit_rows; /* rows of logits held at a time */
    uint32_t loss_rows;  /* rows of float logits held at a time by a pass without gradients */
    float *cos, *sin;    /* (T, D/2) */
    float *out;          /* (M, C) after the last layer */
    float *out_rstd;     /* (M) */
    void *out_norm;      /* act, ld_c */
    void *logits;        /* act or floats, (logit_rows, ld_v) */
    float *losses;       /* (M) */
    void *h;             /* act, ld_f: hidden of the layer at work, and its gradient */
    float *dx;           /* (M, C) gradient of the stream */
    void *dx_act;        /* act, ld_c: the same */
    void *dnorm;         /* act, ld_c: gradient of a norm's output */
    void *datt;          /* act, ld_hd */
    void *dqkv;          /* act, ld_qkv */
};

static inline struct pl_matrix *pl_model_matrix(struct pl_model *m, uint32_t layer, enum pl_matrix_kind kind)
{
    return &m->packed[(size_t)layer * PL_MATRIX_KINDS + kind];
}

static inline struct pl_matrix *pl_model_head(struct pl_model *m)
{
    return &m->packed[(size_t)m->options.config.layers * PL_MATRIX_KINDS];
}

#endif
