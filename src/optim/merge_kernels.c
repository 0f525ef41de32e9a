/* optim/merge_kernels.c - the loops of the merge for any machine, and the choice between the variants. */
#include "optim/merge_kernels.h"

#include "base/bf16.h"
#include "base/bytes.h"
#include "base/cpu.h"

typedef float vec __attribute__((vector_size(16)));
typedef double wide __attribute__((vector_size(16)));
enum { SUMS = 8 };
#define WIDEN(x) __builtin_convertvector((x), wide)
#define NARROW(x) __builtin_convertvector((x), narrow)
#define SPREAD(x) (x)
#define SPREAD_WIDE(x) (x)
#define STORE_SUM(to, x, far) store(to, ((void)(far), (x)))
#define STORES_DONE() ((void)0)
#define SQUARE_ADD(x, y) ((x) * (x) + (y))
#include "optim/merge_wide.inc"

static void add_room(vec s[static SUMS], const float room[static TILE], float share)
{
    for (size_t i = 0; i < SUMS; i++)
        s[i] += share * load(room + i * sizeof(vec) / sizeof(float));
}

static void add_bf16(vec s[static SUMS], const uint8_t *bytes, float share)
{
    float room[TILE];
    for (size_t i = 0; i < TILE; i++)
        room[i] = pl_bf16_to_float((pl_bf16)pl_get_le(bytes + 2 * i, 2));
    add_room(s, room, share);
}

static int int4_of(const uint8_t *codes, size_t i)
{
    int nibble = codes[i / 2] >> 4 * (i % 2) & 15;
    return nibble < 8 ? nibble : nibble - 16;
}

static void add_int4(vec s[static SUMS], const uint8_t *codes, float scale, float share)
{
    float room[TILE];
    for (size_t i = 0; i < TILE; i++)
        room[i] = (float)int4_of(codes, i) * scale;
    add_room(s, room, share);
}

static void add_int8(vec s[static SUMS], const uint8_t *codes, float scale, float share)
{
    float room[TILE];
    for (size_t i = 0; i < TILE; i++)
        room[i] = (float)(int8_t)codes[i] * scale;
    add_room(s, room, share);
}

static unsigned nibble_of(const uint8_t *codes, size_t i)
{
    return (unsigned)codes[i / 2] >> 4 * (i % 2) & 15u;
}

/* In scales: what e3m0's levels mean. */
static const float e3m0_level[16] = {0, 0x1p-6f,  0x1p-5f,  0x1p-4f,  0x1p-3f,  0x1p-2f,  0x1p-1f,  1,
                                     0, -0x1p-6f, -0x1p-5f, -0x1p-4f, -0x1p-3f, -0x1p-2f, -0x1p-1f, -1};

static void add_e3m0(vec s[static SUMS], const uint8_t *codes, float scale, float share)
{
    float room[TILE];
    for (size_t i = 0; i < TILE; i++)
        room[i] = e3m0_level[nibble_of(codes, i)] * scale;
    add_room(s, room, share);
}

static void add_int2(vec s[static SUMS], const uint8_t *codes, float scale, float share)
{
    const float level[4] = {0.5f * scale, -0.5f * scale, 1.5f * scale, -1.5f * scale};
    float room[TILE];
    for (size_t i = 0; i < TILE; i++)
        room[i] = level[codes[i / 4] >> 2 * (i % 4) & 3];
    add_room(s, room, share);
}

static double sum_int4(const uint8_t *codes)
{
    int sum = 0;
    for (size_t i = 0; i < PL_MERGE_BLOCK; i++)
        sum += int4_of(codes, i) * int4_of(codes, i);
    return sum;
}

static double sum_int8(const uint8_t *codes)
{
    int sum = 0;
    for (size_t i = 0; i < PL_MERGE_BLOCK; i++)
        sum += (int8_t)codes[i] * (int8_t)codes[i];
    return sum;
}

/* The squares are powers of four: 2^-12 and up. */
static double sum_e3m0(const uint8_t *codes)
{
    int sum = 0;
    for (size_t i = 0; i < PL_MERGE_BLOCK; i++)
        sum += (1 << 2 * (nibble_of(codes, i) & 7)) / 4; /* 0 for level 0 */
    return sum * 0x1p-12;
}

/* A quarter for every value, and two more for the large ones. */
static double sum_int2(const uint8_t *codes)
{
    int large = 0;
    for (size_t i = 0; i < PL_MERGE_BLOCK; i++)
        large += codes[i / 4] >> (2 * (i % 4) + 1) & 1;
    return 0.25 * PL_MERGE_BLOCK + 2.0 * large;
}

#define MIXED(x) (x)
#define SORTED(x) (x)
#define ADD_BF16 add_bf16
#define ADD_INT4 add_int4
#define ADD_INT2 add_int2
#define ADD_INT8 add_int8
#define ADD_E3M0 add_e3m0
#define BLEND_NIBBLES blend_tiles
#define SUM_INT4 sum_int4
#define SUM_INT2 sum_int2
#define SUM_INT8 sum_int8
#define SUM_E3M0 sum_e3m0
#define CODEC pl_codec_portable
#define KERNELS pl_merge_portable
#include "optim/merge_kernels.inc"

const struct pl_merge_kernels *pl_merge_kernels(void)
{
#ifdef __x86_64__
    if (pl_cpu_level() >= PL_CPU_AVX512)
        return &pl_merge_avx512;
    if (pl_cpu_level() >= PL_CPU_AVX2)
        return &pl_merge_avx2;
#endif
    return &pl_merge_portable;
}
