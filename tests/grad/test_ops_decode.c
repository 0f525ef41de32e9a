/* Attention over a cache is attention: the reference's decode of the last tokens against its own whole pass. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/bf16.h"
#include "base/prng.h"
#include "model/cpu/ref.h"
#include "seed.h"

#include <math.h>

enum { T_MAX = 80, H = 6, G = 2, D = 10, ROOM = 96, COLS = (H + 2 * G) * D };

static float qkv[T_MAX][COLS], whole[T_MAX][H * D], lse[H * T_MAX], out[T_MAX][H * D];
static uint16_t keys[G][ROOM / PL_KV_BLOCK][D][PL_KV_BLOCK], values[G][ROOM][D];

/* Numbers that bfloat16 holds, as the cache does. */
static void draw(struct pl_prng *prng)
{
    for (int t = 0; t < T_MAX; t++)
        for (int i = 0; i < COLS; i++)
            qkv[t][i] = (float)((int)pl_prng_below(prng, 255) - 127) / 64.0f;
    for (int t = 0; t < T_MAX; t++) {
        for (int g = 0; g < G; g++) {
            for (int i = 0; i < D; i++) {
                keys[g][t / PL_KV_BLOCK][i][t % PL_KV_BLOCK] = pl_bf16_of_float(qkv[t][(H + g) * D + i]);
                values[g][t][i] = pl_bf16_of_float(qkv[t][(H + G + g) * D + i]);
            }
        }
    }
}

static void check(uint32_t past, uint32_t rows)
{
    struct pl_attention all = {.batch = 1, .seq = past + rows, .heads = H, .kv_heads = G, .head_dim = D};
    struct pl_decode last = {
        .rows = rows, .past = past, .heads = H, .kv_heads = G, .head_dim = D, .room = ROOM};
    all.qkv = qkv;
    all.qkv_ld = COLS;
    all.out = whole;
    all.out_ld = H * D;
    all.lse = lse;
    last.q = qkv[past];
    last.q_ld = COLS;
    last.keys = keys[0][0][0];
    last.values = values[0][0];
    last.out = out[0];
    last.out_ld = H * D;
    pl_ops_ref.attention(NULL, &all);
    pl_ops_ref.decode(NULL, &last);
    for (uint32_t t = 0; t < rows; t++)
        for (int i = 0; i < H * D; i++)
            if (!(fabsf(out[t][i] - whole[past + t][i]) <= 1e-6f))
                fail_msg("past %u, row %u, value %d: %.9g in the cache, %.9g in the whole pass", past, t, i,
                         (double)out[t][i], (double)whole[past + t][i]);
}

static void test_decode_is_attention(void **state)
{
    struct pl_prng prng;
    (void)state;
    pl_prng_seed(&prng, test_seed(), 0);
    draw(&prng);
    for (uint32_t past = 0; past < T_MAX; past += 1 + past / 20)
        for (uint32_t rows = 1; rows <= 8 && past + rows <= T_MAX; rows += 3)
            check(past, rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_decode_is_attention)};
    return cmocka_run_group_tests_name("decode", tests, NULL, NULL);
}
