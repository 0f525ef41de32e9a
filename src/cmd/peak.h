/* cmd/peak.h - what this machine could do at most: matrix products with nothing around them. */
#ifndef PL_CMD_PEAK_H
#define PL_CMD_PEAK_H

#include "model/engine.h"

/* Floating-point operations a second of the engine's product, its best within about 0.2 s; 0 when memory is short,
 * and for a back end with a device. */
double pl_peak_flops(struct pl_engine *e);

#endif
