#include "model/cpu/run.h"

#include "model/cpu/kernel.h"

#ifdef __x86_64__
#include <immintrin.h>

enum { FLUSH_TO_ZERO = 0x8000, DENORMALS_ARE_ZERO = 0x0040 };

static unsigned enter(void)
{
    unsigned before = _mm_getcsr();
    _mm_setcsr(before | FLUSH_TO_ZERO | DENORMALS_ARE_ZERO);
    return before;
}

static void leave(unsigned before)
{
    _mm_setcsr(before);
}
#else
static unsigned enter(void)
{
    return 0;
}

static void leave(unsigned before)
{
    (void)before;
}
#endif

struct run {
    const struct pl_kernel *kernel;
    pl_pool_fn *fn;
    void *user;
};

static void task(void *user, uint32_t number, uint32_t thread)
{
    const struct run *r = user;
    unsigned before = enter();
    if (r->kernel->thread_begin != NULL)
        r->kernel->thread_begin();
    r->fn(r->user, number, thread);
    leave(before);
}

void pl_cpu_run(struct pl_engine *e, uint32_t tasks, pl_pool_fn *fn, void *user)
{
    struct run r = {e->kernel, fn, user};
    pl_pool_run(e->pool, tasks, task, &r);
}
