/* plan/wan.h - measured links between regions, from a CSV that somebody published.
 *
 * Two forms, told apart by their first line: Skyplane's throughput grid (src_region,src_tier,dst_region,dst_tier,
 * throughput_sent_bits_per_second,throughput_received_bits_per_second,...) and pairs with delay
 * (region_a,region_b,delay_ms,bandwidth_gbps). Nothing is measured here, and no file comes with the program.
 */
#ifndef PL_PLAN_WAN_H
#define PL_PLAN_WAN_H

#include <stdbool.h>
#include <stddef.h>

struct pl_wan_link {
    double bits_s;    /* the slower way */
    double latency_s; /* there and back; negative where the file does not say */
};

/* The first line is one of the two. */
bool pl_wan_known(const char *text, size_t len);
/* Both ways must be there where the file has directions; of several tiers the fastest counts. False: the file lacks it. */
bool pl_wan_find(const char *text, size_t len, const char *a, const char *b, struct pl_wan_link *out);

#endif
