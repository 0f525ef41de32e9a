/* base/banned.h - functions this project does not call; using one is a compile error that names it.
 *
 * Not included by anybody: the build forces it in front of every source of src/ except the few that wrap the C
 * library (src/meson.build lists them). The headers come first, because a banned name may still be declared.
 */
#ifndef PL_BASE_BANNED_H
#define PL_BASE_BANNED_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef __SSE2__
#include <mm_malloc.h> /* a part of immintrin.h that calls malloc */
#endif

#define PL_BANNED(name) pl_banned_function_##name

/* No bound on what they write. */
#undef strcpy
#define strcpy(...) PL_BANNED(strcpy)
#undef strcat
#define strcat(...) PL_BANNED(strcat)
#undef sprintf
#define sprintf(...) PL_BANNED(sprintf)
#undef vsprintf
#define vsprintf(...) PL_BANNED(vsprintf)
#undef gets
#define gets(...) PL_BANNED(gets)
#undef alloca
#define alloca(...) PL_BANNED(alloca)

/* Hidden state, or errors nobody sees. */
#undef strtok
#define strtok(...) PL_BANNED(strtok)
#undef atoi
#define atoi(...) PL_BANNED(atoi)
#undef strtol
#define strtol(...) PL_BANNED(strtol)
#undef gmtime
#define gmtime(...) PL_BANNED(gmtime)

/* Not reproducible: randomness is base/prng.h, time is an argument. */
#undef rand
#define rand(...) PL_BANNED(rand)
#undef time
#define time(...) PL_BANNED(time)

/* Memory comes through base/alloc.h, so that tests can fail it. */
#undef malloc
#define malloc(...) PL_BANNED(malloc)
#undef calloc
#define calloc(...) PL_BANNED(calloc)
#undef realloc
#define realloc(...) PL_BANNED(realloc)
#undef free
#define free(...) PL_BANNED(free)

/* pl_assert is always compiled in; assert is not. */
#undef assert
#define assert(...) PL_BANNED(assert)

/* Only the command line talks to a person and ends the process. */
#ifndef PL_LAYER_CMD
#undef exit
#define exit(...) PL_BANNED(exit)
#undef printf
#define printf(...) PL_BANNED(printf)
#undef puts
#define puts(...) PL_BANNED(puts)
#endif

#endif
