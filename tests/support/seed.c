/* support/seed.c - see seed.h. */
#include "seed.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

uint64_t test_seed(void)
{
    const char *given = getenv("PL_SEED");
    struct timespec now = {0, 0};
    timespec_get(&now, TIME_UTC);
    uint64_t fresh = (uint64_t)now.tv_sec * 1000003 ^ (uint64_t)now.tv_nsec;
    uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : fresh;
    printf("# seed %" PRIu64 ", repeat with PL_SEED=%" PRIu64 "\n", seed, seed);
    fflush(stdout);
    return seed;
}
