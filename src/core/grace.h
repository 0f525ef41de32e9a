/* core/grace.h - the adaptive grace window (arXiv 2604.21428, equation 3), in integers.
 *
 * After the quorum the syncer may wait a little for more pushes, using only time that the overlap already
 * hides: a share gamma of the slack tau_eff * step - (quorum + sync), and never more than one step. Where no line keeps up
 * with the period, the period is stretched (docs/decisions/0002), and so is that step.
 */
#ifndef PL_CORE_GRACE_H
#define PL_CORE_GRACE_H

#include <stdint.h>

struct pl_grace_in {
    uint64_t step_ns;       /* an inner step, running average */
    uint64_t quorum_ns;     /* until K pushes are there, running average */
    uint64_t sync_ns;       /* merge + outer step + store + send, running average */
    uint32_t overlap_steps; /* tau_eff */
    uint32_t
        gamma_ppm;    /* share of the slack that may be used; over 1,000,000 is allowed and capped by step */
    uint32_t stretch; /* of the period, at least 1: the K-th smallest stride */
};

/* Nanoseconds to wait; 0 when there is no slack. Saturates, never overflows. */
uint64_t pl_grace_ns(const struct pl_grace_in *in);

#endif
