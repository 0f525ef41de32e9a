/* core/grace.c - see grace.h. */
#include "core/grace.h"

#include "base/num.h"

enum { PPM = 1000000 };

static uint64_t mul_sat(uint64_t a, uint64_t b)
{
    uint64_t product;
    return pl_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

uint64_t pl_grace_ns(const struct pl_grace_in *in)
{
    uint64_t hidden = mul_sat(in->step_ns, in->overlap_steps);
    uint64_t slack = pl_sub_sat(hidden, pl_add_sat(in->quorum_ns, in->sync_ns));
    /* slack * gamma / PPM, exactly, without a product wider than 64 bits (it would call the compiler's
     * library). */
    uint64_t whole = mul_sat(slack / PPM, in->gamma_ppm);
    uint64_t part = slack % PPM * in->gamma_ppm / PPM;
    return pl_min64(mul_sat(in->step_ns, in->stretch), pl_add_sat(whole, part));
}
