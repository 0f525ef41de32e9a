/* model/cpu/cpu_ops.h - every operation of model/ops.h on the threads of this machine, over one kernel table. */
#ifndef PL_MODEL_CPU_CPU_OPS_H
#define PL_MODEL_CPU_CPU_OPS_H

#include "model/cpu/kernel.h"

/* The operations for activations of this kernel's type. Valid forever. */
const struct pl_ops *pl_cpu_ops(const struct pl_kernel *kernel);

#endif
