/* model/rotation.h - the table of rotary positions that ops.h's rotary reads. */
#ifndef PL_MODEL_ROTATION_H
#define PL_MODEL_ROTATION_H

#include <stdint.h>

/* cos and sin (positions, head_dim / 2) of position * theta^(-2i/head_dim). */
void pl_rotation_fill(float *cosines, float *sines, uint32_t positions, uint32_t head_dim, float theta);

#endif
