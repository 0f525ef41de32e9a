/* base/check.h - assertions, defensive branches, marks on rare paths, and planted faults.
 *
 * pl_assert is always compiled in: it is for our own bugs only, never for anything a peer, a file or a person
 * can cause. A failed one calls the handler (by default: print to stderr and abort); the simulator installs one
 * that reports the seed and leaves with exit code 3.
 */
#ifndef PL_BASE_CHECK_H
#define PL_BASE_CHECK_H

#include <stdbool.h>

/* Must not return. */
typedef void pl_assert_handler(const char *expr, const char *file, int line);

/* Returns the handler that was installed before; NULL restores the default. */
pl_assert_handler *pl_assert_set_handler(pl_assert_handler *handler);
_Noreturn void pl_assert_failed(const char *expr, const char *file, int line);

#ifdef PL_COVERAGE
/* One call, no branch of its own: branch coverage then counts decisions, not assertions. */
void pl_assert_that(bool holds, const char *expr, const char *file, int line);
#define pl_assert(expr) pl_assert_that((expr), #expr, __FILE__, __LINE__)
#else
#define pl_assert(expr) ((expr) ? (void)0 : pl_assert_failed(#expr, __FILE__, __LINE__))
#endif

/* Around a condition that cannot hold as far as we know, but is answered all the same. Branch coverage leaves such
 * a line out (scripts/cov.sh). */
#define PL_DEFENSIVE(condition) (condition)

/* A test build can count visits of rare paths and switch on one planted fault (docs/testing.md). In every other
 * build both vanish: a mark costs nothing and no fault can be chosen. */
#ifdef PL_TEST_HOOKS
#define PL_MARK(name) pl_mark_hit(name)
enum { PL_MUTANTS = 20 }; /* planted faults are numbered 1 to this; tests/sim/mutants.txt names them */
bool pl_mutant(unsigned number);
void pl_mutant_choose(unsigned number); /* 0: none */
void pl_mark_hit(const char *name);
/* Names hit so far and how often; index from 0, NULL after the last. */
const char *pl_mark_at(unsigned index, unsigned long *hits);
#else
#define PL_MARK(name) ((void)0)
#define pl_mutant(number) (false)
#endif

#endif
