/* sim/codec.h - the simulator's small lossy codec: int8 with one fp32 scale for every 64 values.
 *
 *   block:  f32 scale (largest magnitude / 127), then up to 64 x i8; value = scale * i8
 *
 * Real in what matters here: it loses something, so error feedback has work to do, and it is the same on every
 * machine.
 */
#ifndef PL_SIM_CODEC_H
#define PL_SIM_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PL_SIM_BLOCK = 64 };

/* Encoded size of n values. */
static inline size_t pl_sim_encoded_bytes(size_t n)
{
    return n + 4 * ((n + PL_SIM_BLOCK - 1) / PL_SIM_BLOCK);
}

/* Writes pl_sim_encoded_bytes(n) bytes; false when a value is not finite. */
bool pl_sim_encode(const float *values, size_t n, uint8_t *out);

/* False when len is not that of n values, or a value would not be finite. */
bool pl_sim_decode(const uint8_t *bytes, size_t len, float *values, size_t n);

/* Floats as bytes, little-endian: what digests are made of and full values are sent as. */
void pl_sim_put_floats(uint8_t *out, const float *values, size_t n);
void pl_sim_get_floats(float *values, const uint8_t *bytes, size_t n);
uint64_t pl_sim_digest(const float *values, size_t n);

#endif
