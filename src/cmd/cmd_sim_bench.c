/* cmd/cmd_sim_bench.c - `pelago sim --bench` and `--scale`: figures as JSON lines. */
#include "base/alloc.h"
#include "base/limits.h"
#include "cmd/cmd.h"
#include "cmd/cmd_sim.h"
#include "sim/scale.h"

#include <inttypes.h>
#include <time.h>

enum { BENCH_RUNS = 3, SCALE_EVENTS = 200000 };

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* 8 learners, a step of a second, P = H = 24, no faults. */
static void bench_options(struct pl_sim_options *o)
{
    pl_sim_draw(1, o);
    o->duration_ns = 2000 * PL_SEC;
    o->learners = 8;
    o->shards = 1;
    o->fragments = o->period_steps = 24;
    o->quorum = 4;
    o->overlap_steps = 2;
    o->gamma_ppm = 500000;
    o->staleness_max = 2;
    o->apply = o->faults = 0;
    o->step_ns = PL_SEC;
    o->speed_spread_permille = 300;
    o->latency_ns = 20 * PL_MS;
    o->bandwidth = 1000000;
    o->dimensions = 256;
    o->local_data_permille = 0;
    o->checkpoint_ns = 30 * PL_SEC;
    o->merge_ns = 5 * PL_MS;
    o->sync_ns = 5 * PL_MS;
}

int pl_sim_bench(void)
{
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_sim_options o;
    struct pl_sim_result r;
    double best = 0, best_events = 0;
    bench_options(&o);
    for (int i = 0; i < BENCH_RUNS; i++) {
        double began = seconds();
        if (pl_sim_run(&o, NULL, &alloc, &r) != PELAGO_OK || r.exit != PL_SIM_OK) {
            fprintf(stderr, "pelago sim: the run failed: %s\n", r.what);
            return PL_EXIT_FAILED;
        }
        double took = seconds() - began;
        double rate = (double)r.cluster_ns / 1e9 / took;
        if (rate > best) {
            best = rate;
            best_events = (double)r.events / took;
        }
    }
    printf("{\"bench\":\"sim\",\"learners\":8,\"fragments\":24,\"cluster_seconds_per_second\":%.0f,"
           "\"events_per_second\":%.0f,\"events\":%" PRIu64 ",\"merges\":%" PRIu64 "}\n",
           best, best_events, r.events, r.merges);
    return pl_sim_scale();
}

int pl_sim_scale(void)
{
    static const uint32_t sizes[] = {10, 100, 1000, 10000};
    struct pl_alloc alloc = pl_alloc_system();
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct pl_scale *s = pl_scale_new(&alloc, sizes[i]);
        if (s == NULL) {
            fprintf(stderr, "pelago sim: out of memory.\n");
            return PL_EXIT_FAILED;
        }
        pl_scale_run(s, SCALE_EVENTS / 4 + 50 * (uint64_t)sizes[i]); /* everybody has joined and settled */
        double began = seconds();
        uint64_t events = pl_scale_run(s, SCALE_EVENTS);
        double took = seconds() - began;
        printf("{\"bench\":\"scale\",\"learners\":%u,\"core_bytes_per_learner\":%" PRIu64
               ",\"microseconds_per_event\":%.3f,\"events\":%" PRIu64 ",\"merges\":%" PRIu64 "}\n",
               sizes[i], pl_scale_bytes(s) / sizes[i], took * 1e6 / (double)events, events,
               pl_scale_merges(s));
        pl_scale_free(s);
    }
    return PL_EXIT_OK;
}
