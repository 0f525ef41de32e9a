/* plan/wan.c - see wan.h. The text is scanned for each question: a plan asks a few dozen. */
#include "plan/wan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FIELDS = 6, NUMBER_MAX = 32 };

struct field {
    const char *at;
    size_t len;
};

static const char grid_head[] = "src_region,src_tier,dst_region,dst_tier,throughput_sent_bits_per_second,"
                                "throughput_received_bits_per_second";
static const char pairs_head[] = "region_a,region_b,delay_ms,bandwidth_gbps";

static bool begins(const char *text, size_t len, const char *head)
{
    size_t n = strlen(head);
    return len > n && memcmp(text, head, n) == 0;
}

bool pl_wan_known(const char *text, size_t len)
{
    return begins(text, len, grid_head) || begins(text, len, pairs_head);
}

/* The fields of the line at `at`, as many as there are up to FIELDS; returns where the next line begins. */
static const char *split(const char *at, const char *end, struct field out[static FIELDS], unsigned *count)
{
    const char *stop = memchr(at, '\n', (size_t)(end - at));
    stop = stop != NULL ? stop : end;
    for (*count = 0; *count < FIELDS && at <= stop; (*count)++) {
        const char *comma = memchr(at, ',', (size_t)(stop - at));
        comma = comma != NULL ? comma : stop;
        out[*count] = (struct field){at, (size_t)(comma - at)};
        at = comma + 1;
    }
    return stop < end ? stop + 1 : end;
}

static bool is(struct field f, const char *word)
{
    return strlen(word) == f.len && memcmp(f.at, word, f.len) == 0;
}

static double number(struct field f)
{
    char text[NUMBER_MAX];
    if (f.len == 0 || f.len >= sizeof text)
        return 0;
    memcpy(text, f.at, f.len);
    text[f.len] = '\0';
    double v = strtod(text, NULL);
    return isfinite(v) && v > 0 ? v : 0;
}

static bool find_in_grid(const char *at, const char *end, const char *a, const char *b,
                         struct pl_wan_link *out)
{
    double there = 0, back = 0;
    struct field f[FIELDS];
    unsigned count;
    while (at < end) {
        at = split(at, end, f, &count);
        if (count == FIELDS && is(f[0], a) && is(f[2], b))
            there = fmax(there, number(f[5]));
        if (count == FIELDS && is(f[0], b) && is(f[2], a))
            back = fmax(back, number(f[5]));
    }
    *out = (struct pl_wan_link){fmin(there, back), -1};
    return there > 0 && back > 0;
}

static bool find_in_pairs(const char *at, const char *end, const char *a, const char *b,
                          struct pl_wan_link *out)
{
    struct field f[FIELDS];
    unsigned count;
    while (at < end) {
        at = split(at, end, f, &count);
        if (count >= 4 && ((is(f[0], a) && is(f[1], b)) || (is(f[0], b) && is(f[1], a)))) {
            *out = (struct pl_wan_link){number(f[3]) * 1e9, number(f[2]) / 1e3};
            return out->bits_s > 0;
        }
    }
    return false;
}

bool pl_wan_find(const char *text, size_t len, const char *a, const char *b, struct pl_wan_link *out)
{
    if (begins(text, len, grid_head))
        return find_in_grid(text, text + len, a, b, out);
    return begins(text, len, pairs_head) && find_in_pairs(text, text + len, a, b, out);
}
