/* plan/failures.c - the goodput of one site in closed form, with the constants of goodput/.
 *
 * Between two stalls of a mesh lies the first of two things: a failure, at rate L, or a returned slice that has waited W. Times
 * are exponential, so the mean time and the chance of each are known. What the formula leaves out (failures during a stall,
 * the spread of repairs) is second order until stalls fill most of the time.
 */
#include "plan/plan.h"

#include "goodput/goodput.h"

#include <math.h>

/* A site of one slice: nothing runs until it is back and has fetched the model. */
static double single(const struct pl_goodput_options *o, double fail_s, double rejoin_s)
{
    double away = fmax(o->repair.mean_s, o->detect_s + o->downscale_s) + rejoin_s + o->upscale_s;
    return fail_s / (fail_s + away);
}

static double meshed(const struct pl_goodput_options *o, double slices, double fail_s, double step_s,
                     double rejoin_s)
{
    double waiting = exp(-o->upscale_wait_s / fail_s);
    double run_s = fail_s * (1 - waiting) + fail_s * waiting / 2;
    double upscales = waiting / 2; /* of all stalls */
    double stall_s = upscales * o->upscale_s + (1 - upscales) * (o->detect_s + o->downscale_s);
    double step_lost_s = (1 - upscales) * (run_s - step_s / expm1(step_s / run_s));
    double away_s = o->repair.mean_s + fail_s * (1 - waiting);
    double away = away_s / (fail_s * slices + away_s); /* share of slices */
    double all_lost = pow(away, slices - 1) / fail_s;  /* a second */
    double running = (run_s - step_lost_s) / (run_s + stall_s);
    return running * (1 - away) / (1 + all_lost * (rejoin_s + o->upscale_s));
}

/* Work of an outage that lasts longer than the syncer's patience is discarded; shorter ones cost nothing. */
static double kept_in_outages(const struct pl_goodput_options *o, double per_day, double outage_s,
                              double cycle_s)
{
    if (per_day <= 0 || outage_s <= 0)
        return 1;
    double late_s = o->staleness_max * cycle_s;
    double lost_s = exp(-late_s / outage_s) * (late_s + outage_s);
    return 1 - lost_s / (86400 / per_day + outage_s);
}

double pl_plan_goodput(const struct pl_plan_input *in, uint32_t site, double step_s, double cycle_s,
                       double model_bits)
{
    const struct pl_plan_site *s = &in->sites[site];
    struct pl_goodput_options o;
    pl_goodput_defaults(&o);
    o.repair.mean_s = in->repair_s;
    double slices = fmax(floor((double)s->chips / in->slice_chips), 1);
    double fail_s = s->mtbi_s / (double)s->chips;
    double rejoin_s = 3 * model_bits / s->link_bits_s; /* values and two moments */
    double g = slices < 2 ? single(&o, fail_s, rejoin_s) : meshed(&o, slices, fail_s, step_s, rejoin_s);
    if (in->quorum == in->site_count) /* nobody merges without it, so its work does not get old */
        return g;
    return g * kept_in_outages(&o, s->outages_per_day, in->outage_s, cycle_s);
}
