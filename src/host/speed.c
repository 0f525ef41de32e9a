/* host/speed.c - see speed.h.
 *
 * Every span between two looks with more tokens counts by its length, and less the longer ago it was, falling to 1/e in
 * smooth_s. Before the first look there was nothing: its share of the mean is divided out.
 */
#include "host/speed.h"

#include "base/limits.h"

#include <math.h>

static const double smooth_s = 10, known_s = 1;

static double seconds(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (double)(to_ns - from_ns) / (double)PL_SEC : 0;
}

void pl_speed_begin(struct pl_speed *s)
{
    s->begun = false;
}

void pl_speed_look(struct pl_speed *s, uint64_t tokens, uint64_t now_ns)
{
    if (!s->begun || tokens < s->tokens) {
        *s = (struct pl_speed){.begun = true, .begin_ns = now_ns, .last_ns = now_ns, .tokens = tokens};
        return;
    }
    double span = seconds(s->last_ns, now_ns);
    if (tokens == s->tokens || span <= 0)
        return; /* it is in the middle of a step; or counted with the next look */
    double keep = exp(-span / smooth_s);
    s->mean = s->mean * keep + (double)(tokens - s->tokens) / span * (1 - keep);
    s->interval_s = span;
    s->tokens = tokens;
    s->last_ns = now_ns;
}

double pl_speed_now(const struct pl_speed *s, uint64_t now_ns)
{
    double whole = seconds(s->begin_ns, s->last_ns), silent = seconds(s->last_ns, now_ns);
    if (!s->begun || whole < known_s)
        return 0;
    double excess = silent - 2 * s->interval_s - known_s;
    return s->mean / (1 - exp(-whole / smooth_s)) * (excess > 0 ? exp(-excess / smooth_s) : 1);
}
