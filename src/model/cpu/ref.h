/* model/cpu/ref.h - the reference back end: every operation in plain loops, the oracle of all others. */
#ifndef PL_MODEL_CPU_REF_H
#define PL_MODEL_CPU_REF_H

#include "model/ops.h"

/* Activations are floats; one thread; uses nothing of the engine, which may be NULL. */
extern const struct pl_ops pl_ops_ref;

#endif
