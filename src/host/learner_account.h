/* host/learner_account.h - how long one thread was held up, per step: sum, maximum and quantiles in little
 * memory.
 *
 * One thread writes, any thread reads. Buckets are an eighth of a power of two wide, so a quantile is at most
 * 12.5% too high and never too low.
 *
 * A watch tells two times: by the wall, and without what somebody else took who was given the processor
 * meanwhile, another process or, where the kernel knows it, another virtual machine of the host. On a machine
 * with more work than processors a step of ours is interrupted as any other; that is not our holding it up.
 * Where the thread waited for anything, be it once, all of the time counts.
 */
#ifndef PL_HOST_LEARNER_ACCOUNT_H
#define PL_HOST_LEARNER_ACCOUNT_H

#include <stdatomic.h>
#include <stdint.h>

enum { PL_ACCOUNT_BUCKETS = 62 * 8 };

struct pl_account {
    _Atomic uint64_t steps, sum_ns, max_ns;
    _Atomic uint64_t bucket[PL_ACCOUNT_BUCKETS];
};

struct pl_watch {
    uint64_t wall_ns, cpu_ns;
    int64_t waited; /* how often this thread gave its processor away because it had to wait */
};
struct pl_watched {
    uint64_t wall_ns, own_ns;
};
/* Both on the thread that is watched. stop adds what has passed since start. */
void pl_watch_start(struct pl_watch *w);
void pl_watch_stop(const struct pl_watch *w, struct pl_watched *sum);

void pl_account_add(struct pl_account *a, uint64_t ns);
/* At least this share of the steps, in millionths, took no longer; 0 without steps. */
uint64_t pl_account_quantile(const struct pl_account *a, uint32_t share_ppm);
/* How many took longer; a bucket that lies on both sides counts whole. */
uint64_t pl_account_above(const struct pl_account *a, uint64_t ns);

#endif
