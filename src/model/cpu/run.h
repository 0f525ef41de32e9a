/* model/cpu/run.h - a loop of tasks as the kernels want it: tiles configured, and numbers too small for a normal float
 * taken as zero. Intel's chips need a hundred times longer for each of those, and softmax makes many. */
#ifndef PL_MODEL_CPU_RUN_H
#define PL_MODEL_CPU_RUN_H

#include "model/engine.h"

void pl_cpu_run(struct pl_engine *e, uint32_t tasks, pl_pool_fn *fn, void *user);

#endif
