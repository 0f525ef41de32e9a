/* base/check.c - see check.h. The handler, the mark table and the chosen mutant are the only process-wide state
 * of the lower layers; the last two exist in test builds alone. */
#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>

static void print_and_abort(const char *expr, const char *file, int line)
{
    fprintf(stderr, "pelago: assertion failed: %s (%s:%d)\n", expr, file, line);
    abort();
}

static pl_assert_handler *assert_handler = print_and_abort;

pl_assert_handler *pl_assert_set_handler(pl_assert_handler *handler)
{
    pl_assert_handler *before = assert_handler;
    assert_handler = handler != NULL ? handler : print_and_abort;
    return before;
}

_Noreturn void pl_assert_failed(const char *expr, const char *file, int line)
{
    assert_handler(expr, file, line);
    abort();
}

#ifdef PL_COVERAGE
void pl_assert_that(bool holds, const char *expr, const char *file, int line)
{
    if (!holds)
        pl_assert_failed(expr, file, line);
}
#endif

#ifdef PL_TEST_HOOKS
#include <string.h>

enum { MARKS_MAX = 256 };
static struct {
    const char *name;
    unsigned long hits;
} marks[MARKS_MAX];
static unsigned mark_count;
static unsigned mutant_chosen;

bool pl_mutant(unsigned number)
{
    return number != 0 && number == mutant_chosen;
}

void pl_mutant_choose(unsigned number)
{
    mutant_chosen = number;
}

void pl_mark_hit(const char *name)
{
    unsigned i = 0;
    while (i < mark_count && strcmp(marks[i].name, name) != 0)
        i++;
    if (i == mark_count) {
        pl_assert(mark_count < MARKS_MAX);
        marks[mark_count++].name = name;
    }
    marks[i].hits++;
}

const char *pl_mark_at(unsigned index, unsigned long *hits)
{
    if (index >= mark_count)
        return NULL;
    *hits = marks[index].hits;
    return marks[index].name;
}
#endif
