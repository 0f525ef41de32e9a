/* support/seed.h - the seed of a random test: fresh each time and printed, or PL_SEED to repeat a failure. */
#ifndef PL_TEST_SEED_H
#define PL_TEST_SEED_H

#include <stdint.h>

uint64_t test_seed(void);

#endif
