#include "model/rotation.h"

#include <math.h>
#include <stddef.h>

/* Angles in double, so that far positions stay exact. */
void pl_rotation_fill(float *cosines, float *sines, uint32_t positions, uint32_t head_dim, float theta)
{
    uint32_t half = head_dim / 2;
    for (uint32_t i = 0; i < half; i++) {
        double speed = pow((double)theta, -(double)i / half);
        for (uint32_t t = 0; t < positions; t++) {
            cosines[(size_t)t * half + i] = (float)cos(t * speed);
            sines[(size_t)t * half + i] = (float)sin(t * speed);
        }
    }
}
