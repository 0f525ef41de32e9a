/* net/bucket.c - see bucket.h. */
#include "net/bucket.h"

#include "base/limits.h"
#include "base/num.h"

enum { PACKET_BYTES = 1460, QUANTA_A_SECOND = 100, QUANTA_KEPT = 8 };

static uint64_t quantum(const struct pl_bucket *b)
{
    return pl_max64(b->bytes_per_s / QUANTA_A_SECOND, PACKET_BYTES);
}

static void refill(struct pl_bucket *b, uint64_t now_ns)
{
    int64_t most = (int64_t)(QUANTA_KEPT * quantum(b));
    if (b->at_ns == 0 || now_ns < b->at_ns) {
        b->at_ns = now_ns;
        b->credit = (int64_t)quantum(b);
    }
    uint64_t more = pl_mul_div(now_ns - b->at_ns, b->bytes_per_s, PL_SEC);
    b->at_ns += pl_mul_div(more, PL_SEC, b->bytes_per_s); /* the rest of the time still counts */
    b->credit = more > (uint64_t)most ? most : b->credit + (int64_t)more;
    if (b->credit >= most) {
        b->credit = most;
        b->at_ns = now_ns;
    }
}

uint64_t pl_bucket_allows(struct pl_bucket *b, uint64_t now_ns, uint64_t *wait_ns)
{
    *wait_ns = 0;
    if (b->bytes_per_s == 0)
        return UINT64_MAX;
    refill(b, now_ns);
    if (b->credit >= PACKET_BYTES)
        return (uint64_t)b->credit;
    *wait_ns = pl_mul_div((uint64_t)((int64_t)quantum(b) - b->credit), PL_SEC, b->bytes_per_s);
    return 0;
}

void pl_bucket_spend(struct pl_bucket *b, uint64_t bytes)
{
    if (b->bytes_per_s > 0)
        b->credit -= (int64_t)bytes;
}
