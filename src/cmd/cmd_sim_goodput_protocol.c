/* cmd/cmd_sim_goodput_protocol.c - `pelago sim --goodput --protocol`: both modes over the same window. */
#include "goodput/protocol.h"

#include "cmd/cmd.h"
#include "cmd/cmd_sim_goodput.h"
#include "cmd/options.h"

#include <inttypes.h>
#include <math.h>

static void print_json(const struct pl_goodput_options *o, uint64_t seed, const struct pl_protocol_result *r)
{
    printf(
        "{\"protocol\":true,\"chips\":%" PRIu64 ",\"learners\":%u,\"seed\":%" PRIu64 ",\"rounds\":%" PRIu64
        ",\"seconds\":%.0f,\"goodput\":%.6f,\"goodput_fast\":%.6f,\"difference_points\":%.4f,\"uptime\":%.6f,"
        "\"failures\":%" PRIu64 ",\"steps\":%" PRIu64 ",\"discards\":%" PRIu64 ",\"events\":%" PRIu64
        ",\"cohort\":[",
        o->chips, o->learners, seed, r->rounds, r->seconds, r->goodput, r->fast.goodput,
        100 * (r->goodput - r->fast.goodput), r->fast.uptime, r->fast.failures, r->steps, r->discards,
        r->events);
    for (uint32_t i = 0; i <= o->learners; i++)
        printf("%s%.6f", i == 0 ? "" : ",", r->cohort[i]);
    printf("],\"versions_behind\":[%.6f,%.6f,%.6f,%.6f]}\n", r->behind[0], r->behind[1], r->behind[2],
           r->behind[3]);
}

static void print_text(const struct pl_goodput_options *o, uint64_t seed, const struct pl_protocol_result *r)
{
    printf("seed %" PRIu64 ": %" PRIu64 " rounds in %.0f s with %" PRIu64
           " failures: goodput %.3f%% by the protocol, "
           "%.3f%% fast, difference %+.3f points\n",
           seed, r->rounds, r->seconds, r->fast.failures, 100 * r->goodput, 100 * r->fast.goodput,
           100 * (r->goodput - r->fast.goodput));
    printf("  contributors a round");
    for (uint32_t i = o->learners + 1, shown = 0; i-- > 0 && shown < 9;)
        if (r->cohort[i] >= 0.0005) {
            printf(" %u: %.1f%%", i, 100 * r->cohort[i]);
            shown++;
        }
    printf("\n  versions behind 0: %.2f%% 1: %.2f%% 2: %.2f%% more: %.2f%%; %" PRIu64 " steps, %" PRIu64
           " values overwritten, %" PRIu64 " events\n",
           100 * r->behind[0], 100 * r->behind[1], 100 * r->behind[2], 100 * r->behind[3], r->steps,
           r->discards, r->events);
}

int pl_goodput_call_protocol(const struct pl_goodput_call *c)
{
    struct pl_alloc alloc = pl_alloc_system();
    double worst = 0;
    if (c->last - c->first >= PL_GOODPUT_SEEDS_MAX)
        return pl_usage_error("sim", "--seeds is out of its range, expected 1 to %u of them",
                              (unsigned)PL_GOODPUT_SEEDS_MAX);
    for (uint64_t seed = c->first; seed <= c->last && seed >= c->first; seed++) {
        struct pl_goodput_options o = c->o;
        struct pl_protocol_result r;
        struct pl_error err;
        o.seed = seed;
        enum pelago_status status = pl_protocol_run(&o, c->rounds, &alloc, &r, &err);
        if (status != PELAGO_OK)
            return pl_goodput_refused(status, &err);
        (c->json ? print_json : print_text)(&o, seed, &r);
        worst = fmax(worst, fabs(100 * (r.goodput - r.fast.goodput)));
    }
    if (!c->json)
        printf("largest difference: %.3f points\n", worst);
    return PL_EXIT_OK;
}
