/* data/tales_choice.c - the one place where a story draws, and where its entropy is added up.
 *
 * Every draw is among n alternatives with integer weights, given as running sums; its probability is exact, and -ln of
 * it goes to s->nats. A script (tests) replaces the drawing, never the accounting.
 */
#include "data/tales_int.h"

#include "base/check.h"

#include <math.h>

enum {
    HABIT_OF = 16, /* in 15 cases of 16 a teller keeps to the habit */
    SMALL_MAX = 32
};

/* The script's word on this choice. The first choice past its end is described for the test; what is said
 * from there on means nothing, and any possible alternative will do. */
static uint32_t follow_script(struct pl_tale *s, const uint32_t *upto, uint32_t n)
{
    uint32_t pick = 0;
    if (s->made < s->script_len) {
        pick = s->script[s->made];
        pl_assert(pick < n);
        s->impossible |= upto[pick] == upto[pick + 1];
    } else if (s->open_choices == 0) {
        s->open_choices = n;
        s->open_len = s->len;
    }
    while (upto[pick] == upto[pick + 1])
        pick = (pick + 1) % n;
    return pick;
}

/* upto[k] is the weight of all alternatives before k, upto[n] that of all. */
static uint32_t settle(struct pl_tale *s, const uint32_t *upto, uint32_t n)
{
    pl_assert(n > 0 && upto[0] == 0 && upto[n] > 0);
    if (n == 1)
        return 0;
    uint32_t low = 0;
    if (s->script != NULL) {
        low = follow_script(s, upto, n);
    } else {
        uint32_t mark = (uint32_t)pl_prng_below(&s->prng, upto[n]);
        for (uint32_t high = n; high - low > 1;) {
            uint32_t middle = low + (high - low) / 2;
            if (upto[middle] <= mark)
                low = middle;
            else
                high = middle;
        }
    }
    s->made++;
    s->nats += log((double)upto[n] / (double)(upto[low + 1] - upto[low]));
    return low;
}

uint32_t pl_tale_weighted(struct pl_tale *s, const uint32_t *weights, uint32_t n)
{
    uint32_t upto[SMALL_MAX + 1] = {0};
    pl_assert(n > 0 && n <= SMALL_MAX);
    for (uint32_t i = 0; i < n; i++)
        upto[i + 1] = upto[i] + weights[i];
    return settle(s, upto, n);
}

uint32_t pl_tale_even(struct pl_tale *s, uint32_t n)
{
    uint32_t weights[SMALL_MAX];
    pl_assert(n > 0 && n <= SMALL_MAX);
    for (uint32_t i = 0; i < n; i++)
        weights[i] = 1;
    return pl_tale_weighted(s, weights, n);
}

uint32_t pl_tale_ranked(struct pl_tale *s, uint32_t n)
{
    return settle(s, s->t->ranked, n);
}

uint32_t pl_tale_steep(struct pl_tale *s, uint32_t n)
{
    return settle(s, s->t->steep, n);
}

uint32_t pl_tale_habit(struct pl_tale *s, uint32_t n, uint32_t slot)
{
    uint32_t weights[SMALL_MAX];
    pl_assert(n > 0 && n <= SMALL_MAX);
    for (uint32_t i = 0; i < n; i++)
        weights[i] = 1;
    weights[pl_tales_mix(s->teller, slot) % n] += n * (HABIT_OF - 1);
    return pl_tale_weighted(s, weights, n);
}
