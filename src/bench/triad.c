/* bench/triad.c - see triad.h. Vectors of 16 bytes: memory is far slower than that. */
#include "bench/triad.h"

typedef float vec __attribute__((vector_size(16)));
enum { VECTORS = PL_TRIAD_STEP * sizeof(float) / sizeof(vec) };

/* The two compilers spell it differently. */
#if __has_builtin(__builtin_nontemporal_store)
#define STORE_PAST_CACHE(to, x) __builtin_nontemporal_store((x), (to))
#elif defined __x86_64__
#define STORE_PAST_CACHE(to, x) __builtin_ia32_movntps((float *)(to), (x))
#else
#define STORE_PAST_CACHE(to, x) (*(to) = (x))
#endif

void pl_triad_plain(float *a, const float *b, const float *c, float k, size_t n)
{
    vec *to = (vec *)a;
    const vec *x = (const vec *)b, *y = (const vec *)c;
    for (size_t i = 0; i < n / PL_TRIAD_STEP * VECTORS; i += VECTORS)
        for (size_t j = i; j < i + VECTORS; j++)
            to[j] = x[j] + k * y[j];
}

void pl_triad_past_cache(float *a, const float *b, const float *c, float k, size_t n)
{
    vec *to = (vec *)a;
    const vec *x = (const vec *)b, *y = (const vec *)c;
    for (size_t i = 0; i < n / PL_TRIAD_STEP * VECTORS; i += VECTORS)
        for (size_t j = i; j < i + VECTORS; j++)
            STORE_PAST_CACHE(&to[j], x[j] + k * y[j]);
}
