/* model/cpu/attention.h - causal attention in blocks of queries; no T x T matrix is ever kept. */
#ifndef PL_MODEL_CPU_ATTENTION_H
#define PL_MODEL_CPU_ATTENTION_H

#include "model/engine.h"

void pl_cpu_attention(struct pl_engine *e, const struct pl_attention *a);
void pl_cpu_attention_dx(struct pl_engine *e, const struct pl_attention_dx *a);

#endif
