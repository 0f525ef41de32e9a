/* One line for every codec and every merge of seeded numbers: its name and a digest of all the bits that came out. Two
 * machines, compilers or instruction sets agree when they print the same lines (PELAGO_CPU chooses the instruction set).
 *
 * `merge_digest short` leaves out the two longest arrays, which take most of the time.
 *
 * Needs base, codec and optim only and is linked statically, so that it runs under qemu-user for another architecture:
 * make check-aarch64.
 */
#include "base/alloc.h"
#include "base/hash.h"
#include "base/pool.h"
#include "base/prng.h"
#include "optim/merge.h"
#include "optim/outer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_MAX = 100003, M = 9, SEED = 20 };

static const size_t sizes[] = {1, 255, 256, 257, 5000, 32768, N_MAX};
enum { SIZES = sizeof sizes / sizeof sizes[0], SIZES_SHORT = SIZES - 2, KINDS = 4 };

static unsigned sizes_used = SIZES;

static const char *const modes[] = {"rda", "mean", "trimmed", "clipped", "norm_median"};

static float values[M][N_MAX], out[N_MAX], momentum[N_MAX], theta[N_MAX];
static uint8_t bytes[M][4 * N_MAX];
static double *scratch;

/* In [-1, 1), exact and without libm. */
static float unit(struct pl_prng *r)
{
    return (float)((int32_t)pl_prng_below(r, 1u << 24) - (1 << 23)) / 8388608.0f;
}

/* Like weights; of all sizes; mostly zero; at the lower end of the numbers. */
static float draw(struct pl_prng *r, unsigned kind)
{
    float x = unit(r);
    switch (kind) {
    case 0:
        return x * unit(r) * 0.01f;
    case 1:
        for (uint64_t n = pl_prng_below(r, 200); n > 0; n--)
            x *= 0.5f;
        return x * 1e20f;
    case 2:
        return pl_prng_below(r, 20) == 0 ? x : 0.0f;
    default:
        return x * 3e-38f;
    }
}

static void draw_all(struct pl_prng *r, unsigned kind, size_t n)
{
    for (unsigned m = 0; m < M; m++)
        for (size_t i = 0; i < n; i++)
            values[m][i] = draw(r, kind);
}

static void must(bool good, const char *what)
{
    if (good)
        return;
    (void)fprintf(stderr, "merge_digest: %s\n", what);
    exit(1);
}

/* Bytes, what is left by error feedback, and what is decoded. */
static void digest_codec(enum pl_codec codec)
{
    struct pl_prng r;
    uint64_t digest = 0;
    pl_prng_seed(&r, SEED, codec);
    for (unsigned kind = 0; kind < KINDS; kind++)
        for (unsigned s = 0; s < sizes_used; s++) {
            size_t n = sizes[s];
            for (size_t i = 0; i < n; i++)
                values[0][i] = draw(&r, kind);
            must(pl_codec_encode_feedback(codec, values[0], n, bytes[0]), "a finite value was refused");
            must(pl_codec_check(codec, bytes[0], n), "our own encoding does not pass the check");
            pl_codec_decode(codec, bytes[0], n, out);
            digest = pl_hash64(bytes[0], pl_codec_bytes(codec, n), digest);
            digest = pl_hash64(values[0], n * sizeof(float), digest);
            digest = pl_hash64(out, n * sizeof(float), digest);
        }
    printf("codec %s %016" PRIx64 "\n", pl_codec_name((uint32_t)codec), digest);
}

static void make_part(struct pl_prng *r, enum pl_codec codec, unsigned m, size_t n, struct pl_encoded_part *p)
{
    *p = (struct pl_encoded_part){codec, bytes[m], pl_prng_range(r, 1, 1 << 20), pl_prng_range(r, 1, 64)};
    must(pl_codec_encode(codec, values[m], n, bytes[m]), "a finite value was refused");
}

/* All contributions in one codec, or, for NULL, in all codecs in turn; then the outer step. */
static void digest_merge(const enum pl_codec *codec, enum pl_merge_mode mode, struct pl_pool *pool)
{
    const struct pl_merge_work work = {.scratch = scratch, .pool = pool, .trim = 0.25};
    const struct pl_outer_move rule = {0.7f, 0.9f, 1.0f, 0.9f};
    struct pl_encoded_part parts[M];
    struct pl_prng r;
    uint64_t digest = 0;
    pl_prng_seed(&r, SEED, 100 + (codec != NULL ? *codec : 0) * 8 + mode);
    for (unsigned kind = 0; kind < KINDS; kind++)
        for (unsigned s = 0; s < sizes_used; s++) {
            size_t n = sizes[s];
            draw_all(&r, kind, n);
            for (unsigned m = 0; m < M; m++)
                make_part(&r, codec != NULL ? *codec : (enum pl_codec)(PL_CODEC_FP32 + m % PL_CODEC_LAST), m,
                          n, &parts[m]);
            pl_merge_encoded(mode, parts, M, n, &work, out);
            pl_outer_step_by(pool, &rule, out, n, momentum, theta);
            digest = pl_hash64(out, n * sizeof(float), digest);
            digest = pl_hash64(momentum, n * sizeof(float), digest);
            digest = pl_hash64(theta, n * sizeof(float), digest);
        }
    printf("%s of %s %016" PRIx64 "\n", modes[mode],
           codec != NULL ? pl_codec_name((uint32_t)*codec) : "all codecs", digest);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "short") == 0)
        sizes_used = SIZES_SHORT;
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_pool *pool = pl_pool_new(&alloc, 2);
    const size_t doubles = pl_merge_scratch_of(PL_MERGE_TRIMMED, M, pool);
    scratch = pl_alloc_zero(&alloc, doubles, sizeof *scratch);
    must(pool != NULL && scratch != NULL, "there is no memory");
    for (enum pl_codec c = PL_CODEC_FP32; c <= PL_CODEC_LAST; c++)
        digest_codec(c);
    for (enum pl_merge_mode mode = PL_MERGE_RDA; mode <= PL_MERGE_MEDIAN; mode++) {
        for (enum pl_codec c = PL_CODEC_FP32; c <= PL_CODEC_LAST; c++)
            digest_merge(&c, mode, pool);
        digest_merge(NULL, mode, pool);
    }
    printf("norm %a finite %d\n", pl_norm(theta, N_MAX), pl_all_finite(theta, N_MAX));
    pl_alloc_free(&alloc, scratch, doubles * sizeof *scratch);
    pl_pool_free(pool);
    return 0;
}
