/* cmd/cmd_sim_run.c - `pelago sim`: one seed, many seeds, a smaller failure. */
#include "base/alloc.h"
#include "base/check.h"
#include "base/limits.h"
#include "cmd/cmd.h"
#include "cmd/cmd_sim.h"
#include "sim/shrink.h"

#include <inttypes.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *exit_name(int code)
{
    return code == PL_SIM_OK         ? "good"
           : code == PL_SIM_ASSERT   ? "assert"
           : code == PL_SIM_LIVENESS ? "liveness"
                                     : "correctness";
}

void pl_sim_print_line(void *user, uint64_t now_ns, const char *who, const char *text)
{
    fprintf(user, "%4" PRIu64 ".%06" PRIu64 "  %-10s %s\n", now_ns / PL_SEC, now_ns / PL_US % 1000000, who,
            text);
}

int pl_sim_out_of_memory(void)
{
    fprintf(stderr, "pelago sim: out of memory.\n");
    return PL_EXIT_FAILED;
}

#ifdef PL_TEST_HOOKS
/* The next name in the order of the alphabet; NULL after the last. */
static const char *next_mark(const char *after, unsigned long *hits)
{
    const char *name, *best = NULL;
    unsigned long n;
    for (unsigned i = 0; (name = pl_mark_at(i, &n)) != NULL; i++)
        if (strcmp(name, after) > 0 && (best == NULL || strcmp(name, best) < 0)) {
            best = name;
            *hits = n;
        }
    return best;
}

void pl_sim_print_marks(const struct pl_sim_call *call)
{
    unsigned long hits;
    for (const char *name = ""; call->marks && (name = next_mark(name, &hits)) != NULL;)
        printf("mark %s %lu\n", name, hits);
}
#else
void pl_sim_print_marks(const struct pl_sim_call *call)
{
    (void)call;
}
#endif

static bool is_repeated(const struct pl_sim_call *call, uint64_t seed)
{
    return seed * UINT64_C(0x9e3779b97f4a7c15) >> 32 < (UINT64_C(1) << 32) / 100 * call->twice_percent;
}

/* One seed, perhaps twice; prints nothing. */
static int try_seed(const struct pl_sim_call *call, const struct pl_sim_options *o,
                    const struct pl_sim_plan *plan, struct pl_sim_result *result)
{
    struct pl_alloc alloc = pl_alloc_system();
    if (pl_sim_run(o, plan, &alloc, result) != PELAGO_OK)
        return pl_sim_out_of_memory();
    if (result->exit == PL_SIM_OK && is_repeated(call, o->seed)) {
        struct pl_sim_result again;
        struct pl_sim_plan quiet = {.no_reference = true};
        if (pl_sim_run(o, &quiet, &alloc, &again) != PELAGO_OK)
            return pl_sim_out_of_memory();
        if (again.trace_hash != result->trace_hash) {
            result->exit = PL_SIM_CORRECTNESS;
            snprintf(result->what, sizeof result->what,
                     "determinism: two runs have the traces %" PRIx64 " and %" PRIx64, result->trace_hash,
                     again.trace_hash);
        }
    }
    return (int)result->exit;
}

static void print_result(const struct pl_sim_options *o, const struct pl_sim_result *r)
{
    printf("seed %" PRIu64 ": %s, %" PRIu64 " s, %" PRIu64 " events, %" PRIu64 " merges, %" PRIu64
           " faults, %" PRIu64 " rejoins, %" PRIu64 " boots, loss %.6f",
           o->seed, exit_name((int)r->exit), r->cluster_ns / PL_SEC, r->events, r->merges, r->faults_injected,
           r->rejoins, r->syncer_boots, r->loss_final);
    if (r->loss_reference > 0)
        printf(" (%.3f of fault-free)", r->loss_final / r->loss_reference);
    printf(", trace %016" PRIx64 "\n", r->trace_hash);
    if (r->exit != PL_SIM_OK)
        printf("%s\n", r->what);
}

int pl_sim_one(const struct pl_sim_call *call)
{
    struct pl_sim_options o;
    struct pl_sim_result result;
    struct pl_sim_plan plan = {.line = call->trace ? pl_sim_print_line : NULL, .user = stdout};
    int code = pl_sim_call_options(call, call->first, &o);
    if (code != PL_EXIT_OK)
        return code;
    code = try_seed(call, &o, &plan, &result);
    if (code == PL_EXIT_FAILED)
        return code;
    print_result(&o, &result);
    pl_sim_print_marks(call);
    pl_sim_print_reproduce(stdout, call, call->first, call->first);
    return code;
}

/* ---- many ---- */

struct totals {
    uint64_t runs, failed, cluster_ns, events, merges, faults, rejoins, boots;
    uint64_t first_failed;
    int first_code;
};

static int run_share(const struct pl_sim_call *call, uint32_t part, struct totals *t)
{
    *t = (struct totals){.first_failed = UINT64_MAX};
    for (uint64_t seed = call->first + part; seed <= call->last && seed >= call->first; seed += call->jobs) {
        struct pl_sim_options o;
        struct pl_sim_result r;
        int code = pl_sim_call_options(call, seed, &o);
        if (code != PL_EXIT_OK)
            return code;
        code = try_seed(call, &o, NULL, &r);
        if (code == PL_EXIT_FAILED)
            return code;
        t->runs++;
        t->cluster_ns += r.cluster_ns;
        t->events += r.events;
        t->merges += r.merges;
        t->faults += r.faults_injected;
        t->rejoins += r.rejoins;
        t->boots += r.syncer_boots;
        if (code == PL_SIM_OK)
            continue;
        if (t->failed++ == 0) {
            t->first_failed = seed;
            t->first_code = code;
        }
        printf("seed %" PRIu64 ": exit %d %s: %s\n", seed, code, exit_name(code), r.what);
        fflush(stdout);
    }
    return PL_EXIT_OK;
}

/* A child does every jobs-th seed and writes its totals to the pipe. */
static int start_child(const struct pl_sim_call *call, uint32_t part, int *read_end, pid_t *pid)
{
    int ends[2];
    if (pipe(ends) != 0)
        return PL_EXIT_FAILED;
    fflush(stdout);
    *pid = fork();
    if (*pid == 0) {
        struct totals t;
        int code = run_share(call, part, &t);
        bool wrote = fflush(stdout) == 0 && write(ends[1], &t, sizeof t) == (ssize_t)sizeof t;
        _exit(wrote ? code : PL_EXIT_FAILED);
    }
    close(ends[1]);
    *read_end = ends[0];
    return *pid > 0 ? PL_EXIT_OK : PL_EXIT_FAILED;
}

static void add_totals(struct totals *sum, const struct totals *t)
{
    if (t->first_failed < sum->first_failed) {
        sum->first_failed = t->first_failed;
        sum->first_code = t->first_code;
    }
    sum->runs += t->runs;
    sum->failed += t->failed;
    sum->cluster_ns += t->cluster_ns;
    sum->events += t->events;
    sum->merges += t->merges;
    sum->faults += t->faults;
    sum->rejoins += t->rejoins;
    sum->boots += t->boots;
}

static int run_jobs(const struct pl_sim_call *call, struct totals *sum)
{
    int ends[PL_SIM_JOBS_MAX];
    pid_t pids[PL_SIM_JOBS_MAX];
    int worst = PL_EXIT_OK;
    for (uint32_t i = 0; i < call->jobs; i++)
        if (start_child(call, i, &ends[i], &pids[i]) != PL_EXIT_OK) {
            fprintf(stderr, "pelago sim: no process could be started.\n");
            return PL_EXIT_FAILED;
        }
    for (uint32_t i = 0; i < call->jobs; i++) {
        struct totals t;
        int status = 0;
        bool got = read(ends[i], &t, sizeof t) == (ssize_t)sizeof t;
        close(ends[i]);
        waitpid(pids[i], &status, 0);
        if (got && WIFEXITED(status) && WEXITSTATUS(status) == PL_EXIT_OK)
            add_totals(sum, &t);
        else
            worst = WIFEXITED(status) ? WEXITSTATUS(status) : PL_EXIT_FAILED;
    }
    return worst;
}

int pl_sim_many(const struct pl_sim_call *call)
{
    struct totals t = {.first_failed = UINT64_MAX};
    int code = call->jobs > 1 ? run_jobs(call, &t) : run_share(call, 0, &t);
    if (code != PL_EXIT_OK)
        return code;
    printf("%" PRIu64 " seeds, %" PRIu64 " failed; %" PRIu64 " cluster-seconds, %" PRIu64 " events, %" PRIu64
           " merges, %" PRIu64 " faults, %" PRIu64 " rejoins, %" PRIu64 " boots\n",
           t.runs, t.failed, t.cluster_ns / PL_SEC, t.events, t.merges, t.faults, t.rejoins, t.boots);
    pl_sim_print_marks(call);
    if (t.failed > 0) {
        pl_sim_print_reproduce(stdout, call, t.first_failed, t.first_failed);
        return t.first_code;
    }
    pl_sim_print_reproduce(stdout, call, call->first, call->last);
    return PL_EXIT_OK;
}

/* ---- shrink ---- */

static void show_progress(void *user, const struct pl_sim_options *o, const struct pl_sim_result *result)
{
    (void)user;
    printf("still fails: ");
    pl_sim_print_flags(stdout, o);
    printf("\n  %s\n", result->what);
    fflush(stdout);
}

static int shrink(const struct pl_sim_call *call, struct pl_sim_options *o, struct pl_sim_result *result)
{
    struct pl_alloc alloc = pl_alloc_system();
    print_result(o, result);
    if (pl_sim_shrink(o, result, &alloc, show_progress, NULL) != PELAGO_OK)
        return pl_sim_out_of_memory();
    print_result(o, result);
    pl_sim_print_marks(call);
    printf("reproduce: pelago sim ");
    pl_sim_print_flags(stdout, o);
    pl_sim_print_common(stdout, call);
    return (int)result->exit;
}

int pl_sim_smallest(const struct pl_sim_call *call)
{
    for (uint64_t seed = call->first; seed <= call->last && seed >= call->first; seed++) {
        struct pl_sim_options o;
        struct pl_sim_result result;
        int code = pl_sim_call_options(call, seed, &o);
        if (code != PL_EXIT_OK)
            return code;
        code = try_seed(call, &o, NULL, &result);
        if (code == PL_EXIT_FAILED)
            return code;
        if (code != PL_SIM_OK)
            return shrink(call, &o, &result);
    }
    printf("nothing fails, so there is nothing to shrink\n");
    pl_sim_print_marks(call);
    pl_sim_print_reproduce(stdout, call, call->first, call->last);
    return PL_EXIT_OK;
}
