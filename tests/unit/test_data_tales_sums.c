/* test_data_tales_sums.c - a reader who knows English but not the generator counts along in the stories and finds every
 * number right: goods given, bought, lost and shared, pennies, hours on the road, and the answers at the end.
 *
 * The reader is a table of regular expressions; each must be met at least once, so none can go stale unnoticed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data/tales.h"
#include "seed.h"
#include "tales_rig.h"

#include <regex.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { GROUPS_MAX = 10, STORIES = 1200 };

/* ---- numbers ---- */

static int number_named(const char *text, size_t len)
{
    static const char *const small[] = {"no",      "one",     "two",       "three",    "four",
                                        "five",    "six",     "seven",     "eight",    "nine",
                                        "ten",     "eleven",  "twelve",    "thirteen", "fourteen",
                                        "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"};
    static const char *const tens[] = {"twenty", "thirty",  "forty",  "fifty",
                                       "sixty",  "seventy", "eighty", "ninety"};
    for (int i = 0; i < 20; i++)
        if (strlen(small[i]) == len && strncasecmp(text, small[i], len) == 0)
            return i;
    for (int i = 0; i < 8; i++) {
        size_t n = strlen(tens[i]);
        if (len == n && strncasecmp(text, tens[i], n) == 0)
            return 20 + 10 * i;
        if (len > n + 1 && strncasecmp(text, tens[i], n) == 0 && text[n] == '-')
            return 20 + 10 * i + number_named(text + n + 1, len - n - 1);
    }
    return -1;
}

/* ---- sums ---- */

enum what { SET, ADD, SUB, PURSE, PRICE, BUY, CHANGE, BRING, SUM, COUNT, WALKED, CLOCK, TOOK, WHATS };

#define N "([A-Za-z-]+)"
#define WHO "[A-Za-z]+"

/* In the expressions, N is a number; they are taken in order. */
static struct pattern {
    enum what what;
    const char *text;
    uint8_t groups[4]; /* which subexpressions are numbers */
    regex_t compiled;
    uint32_t met;
} patterns[] = {
    {SET, " gave " WHO " " N " [a-z]+ from an? ", {1}, {0}, 0},
    {SET, " gave " WHO " " N " [a-z]+\\. ", {1}, {0}, 0},
    {SET, "\"Take " N " [a-z]+,\"", {1}, {0}, 0},
    {ADD, "added " N " more, so that " WHO " had " N " ", {1, 2}, {0}, 0},
    {ADD, "came " N " more [a-z]+ from " WHO ", which made " N "[. ]", {1, 2}, {0}, 0},
    {ADD, "\"And " N " more,\" said " WHO "\\. (That|It) made " N " ", {1, 3}, {0}, 0},
    {ADD, "found " N " [a-z]+, and so had " N "\\.", {1, 2}, {0}, 0},
    {ADD, "gave " WHO " " N " [a-z]+; that made " N "\\.", {1, 2}, {0}, 0},
    {ADD, "(came across|picked up) " N " more [a-z]+\\. Now there were " N "\\.", {2, 3}, {0}, 0},
    {SUB, "gave " N " of the [a-z]+ to " WHO ", and had " N " left", {1, 2}, {0}, 0},
    {SUB, "\"" N " for you,\" said " WHO " to " WHO ", and (kept|was left with) " N " ", {1, 3}, {0}, 0},
    {SUB, "(handed over|gave up) " N " [a-z]+ and kept " N "\\.", {2, 3}, {0}, 0},
    {SUB, "(used up|parted with) " N " [a-z]+ (on the way|without noticing), so " N " ", {2, 4}, {0}, 0},
    {SUB, N " [a-z]+ (got lost|rolled away) in the [a-z]+; " N " were left", {1, 3}, {0}, 0},
    {SUB, "(stole|ran off with) " N " [a-z]+, which left " N "\\.", {2, 3}, {0}, 0},
    {SUB, "They (used|gave away) " N " of them, and " N " were left", {2, 3}, {0}, 0},
    {SUB, "(When|After) " N " were (taken|given away), " N " [a-z]+ (remained|were left)", {2, 4}, {0}, 0},
    {SUB, "By evening " N " (had|were) gone, and " N " ", {1, 3}, {0}, 0},
    {PURSE, "had " N " pennies in (a purse|one pocket)", {1}, {0}, 0},
    {PURSE, "There were " N " pennies in the purse", {1}, {0}, 0},
    {PURSE, "In the purse lay " N " pennies", {1}, {0}, 0},
    {PURSE, "\"" N " pennies,\" (counted|said)", {1}, {0}, 0},
    {PRICE, "(cost|are sold at) " N " penn(y|ies) (each|apiece)", {2}, {0}, 0},
    {PRICE, "\"" N " penn(y|ies) (each|apiece),\"", {1}, {0}, 0},
    {BUY, "bought " N " [a-z]+ and paid " N " penn", {1, 2}, {0}, 0},
    {BUY, "(took|chose) " N " [a-z]+, which (came to|made) " N " penn", {2, 4}, {0}, 0},
    {BUY, "For " N " [a-z]+ " WHO " (counted out|had to pay) " N " penn", {1, 3}, {0}, 0},
    {CHANGE, "(That|This) left " WHO " " N " penn", {2}, {0}, 0},
    {CHANGE, "had " N " penn(y|ies) left", {1}, {0}, 0},
    {CHANGE, "he purse (held|still held) " N " penn", {2}, {0}, 0},
    {CHANGE, "How much money is left\\?\" \"" N " penn", {1}, {0}, 0},
    {BRING, "(brought|had) " N " [a-z]+ and an? ", {2}, {0}, 0},
    {BRING, "(carried|held) " N " [a-z]+ in an? [a-z ]+, and ", {2}, {0}, 0},
    {BRING, "\"(Here are|I have) " N " [a-z]+,\" said ", {2}, {0}, 0},
    {SUM, N " and " N " (are|make) " N ", so there were", {1, 2, 4}, {0}, 0},
    {SUM, "\"" N " and " N ",\" counted " WHO "\\. \"That makes " N " ", {1, 2, 3}, {0}, 0},
    {SUM, "ogether, " N " [a-z]+ and " N " more made " N "\\.", {1, 2, 3}, {0}, 0},
    {COUNT, "\"How many [a-z]+ do you have\\?\" asked " WHO "\\. \"" N ",\"", {1}, {0}, 0},
    {COUNT, "\"Are there [a-z]+ left\\?\" \"" N " ", {1}, {0}, 0},
    {COUNT, "count(ed)? the [a-z]+: there were " N "\\.", {2}, {0}, 0},
    {WALKED, "How long did you walk\\?\" \"" N " hours", {1}, {0}, 0},
    {WALKED, "had walked " N " hours", {1}, {0}, 0},
    {CLOCK, N " o'clock", {1}, {0}, 0},
    {TOOK, "([Aa]fter|When) " N " hours( of walking| had passed|\\.)", {2}, {0}, 0},
    {TOOK, N " hours later", {1}, {0}, 0},
};
enum { PATTERNS = sizeof patterns / sizeof patterns[0] };

/* What the reader knows so far. */
struct books {
    int have, pence, price, brought[2], guests, clock[8], clocks, took;
};

static void one_way_or_back(const struct books *b, int *way, int *back)
{
    /* The clock is read on leaving, on arriving, perhaps on leaving again, and at home. */
    assert_in_range(b->clocks, 3, 4);
    *way = (b->clock[1] - b->clock[0] + 12) % 12;
    *back = (b->clock[b->clocks - 1] - b->clock[1] + 12) % 12;
    if (b->clocks == 4)
        assert_int_equal(b->clock[2], b->clock[1]);
}

static void enter(struct books *b, enum what what, const int *v)
{
    int way, back;
    switch (what) {
    case SET:
        b->have = v[0];
        break;
    case ADD:
        b->have += v[0];
        assert_int_equal(v[1], b->have);
        break;
    case SUB:
        b->have -= v[0];
        assert_int_equal(v[1], b->have);
        break;
    case PURSE:
        b->pence = v[0];
        break;
    case PRICE:
        b->price = v[0];
        break;
    case BUY:
        assert_int_equal(v[1], v[0] * b->price);
        b->have = v[0];
        b->pence -= v[1];
        break;
    case CHANGE:
        assert_int_equal(v[0], b->pence);
        break;
    case BRING:
        assert_true(b->guests < 2);
        b->brought[b->guests++] = v[0];
        break;
    case SUM:
        assert_int_equal(v[0], b->brought[0]);
        assert_int_equal(v[1], b->brought[1]);
        assert_int_equal(v[2], v[0] + v[1]);
        b->have = v[2];
        break;
    case COUNT:
        assert_int_equal(v[0], b->have);
        break;
    case WALKED:
        one_way_or_back(b, &way, &back);
        assert_int_equal(way, back);
        assert_int_equal(v[0], way + back);
        break;
    case CLOCK:
        assert_true(b->clocks < 8);
        b->clock[b->clocks++] = v[0];
        break;
    case TOOK:
        b->took = v[0];
        break;
    case WHATS:
        fail();
    }
}

/* The earliest thing that is said about numbers from *at on; false at the end of the story. */
static bool read_on(const char **at, struct books *b)
{
    regmatch_t best[GROUPS_MAX], m[GROUPS_MAX];
    struct pattern *first = NULL;
    for (size_t i = 0; i < PATTERNS; i++) {
        if (regexec(&patterns[i].compiled, *at, GROUPS_MAX, m, 0) != 0)
            continue;
        if (first == NULL || m[0].rm_so < best[0].rm_so ||
            (m[0].rm_so == best[0].rm_so && m[0].rm_eo > best[0].rm_eo)) {
            first = &patterns[i];
            memcpy(best, m, sizeof best);
        }
    }
    if (first == NULL)
        return false;
    int v[4] = {0};
    bool numbers = true;
    for (int i = 0; i < 4 && first->groups[i] != 0; i++) {
        const regmatch_t *g = &best[first->groups[i]];
        v[i] = number_named(*at + g->rm_so, (size_t)(g->rm_eo - g->rm_so));
        numbers = numbers && v[i] >= 0;
    }
    if (numbers) {
        enter(b, first->what, v);
        first->met++;
    }
    *at += numbers ? best[0].rm_eo : best[0].rm_so + 1;
    return true;
}

static void every_sum_is_right(void **state)
{
    (void)state;
    uint64_t seed = test_seed();
    for (size_t i = 0; i < PATTERNS; i++)
        assert_int_equal(regcomp(&patterns[i].compiled, patterns[i].text, REG_EXTENDED), 0);
    for (uint64_t i = 0; i < STORIES; i++) {
        struct books b = {0};
        char *text = tales_rig_text(seed, i);
        for (const char *at = text; read_on(&at, &b);)
            ;
        if (b.clocks > 0) {
            int way, back;
            one_way_or_back(&b, &way, &back);
            assert_int_equal(way, back);
            assert_true(b.took == 0 || b.took == way);
        }
        free(text);
    }
    for (size_t i = 0; i < PATTERNS; i++) {
        if (patterns[i].met == 0)
            fail_msg("never met: %s", patterns[i].text);
        regfree(&patterns[i].compiled);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sum_is_right),
    };
    return cmocka_run_group_tests(tests, tales_rig_open, tales_rig_close);
}
