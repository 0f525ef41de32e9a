/* test_data_tales.c - the built-in corpus: the same text for the same seed, clean text, and an entropy that is exact.
 *
 * That what the stories say is right is shown by test_data_tales_sums.c and test_data_tales_things.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/hash.h"
#include "data/tales.h"
#include "data/tales_int.h"
#include "seed.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct pl_alloc system_alloc;
static struct pl_tales *tales;

static int open_tales(void **state)
{
    (void)state;
    system_alloc = pl_alloc_system();
    return pl_tales_open(&system_alloc, &tales) == PELAGO_OK ? 0 : -1;
}

static int close_tales(void **state)
{
    (void)state;
    pl_tales_close(tales);
    return 0;
}

static struct pl_buf new_text(void)
{
    struct pl_buf b;
    pl_buf_init(&b, &system_alloc, (size_t)1 << 30);
    return b;
}

/* ---- the same seed, the same text ---- */

static void stories_are_as_they_always_were(void **state)
{
    (void)state;
    struct pl_buf b = new_text();
    struct pl_tales_stream s = {.tales = tales, .seed = 1, .split = PL_TALES_TRAIN};
    assert_int_equal(pl_tales_read(&s, 1000000, &b), PELAGO_OK);
    /* A change of words, sentences or plots changes these two, and every figure ever measured on the tales. */
    assert_int_equal(b.len, 1001051);
    assert_int_equal(pl_hash64(b.data, b.len, 0), UINT64_C(0x66b50c5f1fe50aba));
    pl_buf_release(&b);
}

static void a_story_does_not_depend_on_its_neighbours(void **state)
{
    (void)state;
    struct pl_buf all = new_text(), one = new_text();
    struct pl_tales_stream s = {.tales = tales, .seed = 7, .split = PL_TALES_VALID};
    double nats = 0;
    assert_int_equal(pl_tales_read(&s, 20000, &all), PELAGO_OK);
    for (uint64_t i = s.next; i-- > 0;) {
        one.len = 0;
        assert_int_equal(pl_tales_story(tales, 7, PL_TALES_VALID, i, &one, &nats), PELAGO_OK);
        assert_true(all.len >= one.len);
        all.len -= one.len;
        assert_memory_equal(all.data + all.len, one.data, one.len);
    }
    assert_int_equal(all.len, 0);
    assert_float_equal(nats, s.nats, 1e-6);
    pl_buf_release(&all);
    pl_buf_release(&one);
}

static void a_stream_goes_on_where_it_stopped(void **state)
{
    (void)state;
    struct pl_buf whole = new_text(), parts = new_text();
    struct pl_tales_stream a = {.tales = tales, .seed = 3}, b = a;
    assert_int_equal(pl_tales_read(&a, 50000, &whole), PELAGO_OK);
    while (parts.len < whole.len)
        assert_int_equal(pl_tales_read(&b, 1, &parts), PELAGO_OK);
    assert_int_equal(parts.len, whole.len);
    assert_memory_equal(parts.data, whole.data, whole.len);
    assert_int_equal(a.next, b.next);
    assert_int_equal(a.bytes, whole.len);
    pl_buf_release(&whole);
    pl_buf_release(&parts);
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void no_story_is_told_twice(void **state)
{
    (void)state;
    enum { STORIES = 3000 };
    static uint64_t hashes[4 * STORIES];
    struct pl_buf b = new_text();
    uint64_t seed = test_seed();
    for (uint32_t i = 0; i < 4 * STORIES; i++) {
        b.len = 0;
        assert_int_equal(
            pl_tales_story(tales, seed + (i & 1), i & 2 ? PL_TALES_VALID : PL_TALES_TRAIN, i / 4, &b, NULL),
            PELAGO_OK);
        hashes[i] = pl_hash64(b.data, b.len, 0);
    }
    qsort(hashes, 4 * STORIES, sizeof hashes[0], compare);
    for (uint32_t i = 1; i < 4 * STORIES; i++)
        assert_int_not_equal(hashes[i], hashes[i - 1]);
    pl_buf_release(&b);
}

/* ---- clean text ---- */

static void check_line(const char *line, size_t len)
{
    assert_in_range(len, 20, 2000);
    assert_true(line[0] == '"' || (line[0] >= 'A' && line[0] <= 'Z'));
    assert_true(strchr(".!\"", line[len - 1]) != NULL);
    uint32_t quotes = 0;
    for (size_t i = 0; i < len; i++) {
        char c = line[i], next = i + 1 < len ? line[i + 1] : '\0';
        if (c < ' ' || c > '~' || strchr("{}[]|^<>", c) != NULL)
            fail_msg("a strange character in: %.*s", (int)len, line);
        if (c == ' ' && (next == ' ' || next == '\0' || strchr(".,;:!?", next) != NULL))
            fail_msg("a space too many in: %.*s", (int)len, line);
        if (strchr(".!?", c) != NULL && next == ' ' && i + 2 < len && line[i + 2] >= 'a' &&
            line[i + 2] <= 'z')
            fail_msg("a sentence without a capital in: %.*s", (int)len, line);
        quotes += c == '"';
    }
    if (quotes % 2 != 0)
        fail_msg("an open quotation in: %.*s", (int)len, line);
}

static void the_text_is_clean(void **state)
{
    (void)state;
    struct pl_buf b = new_text();
    struct pl_tales_stream s = {.tales = tales, .seed = test_seed()};
    assert_int_equal(pl_tales_read(&s, 4000000, &b), PELAGO_OK);
    uint64_t stories = 0, words = 0;
    for (const char *at = (const char *)b.data, *end = at + b.len; at < end;) {
        size_t len = (size_t)((const char *)memchr(at, '\n', (size_t)(end - at)) - at);
        if (len + 1 == strlen(PL_TALES_SEPARATOR) && memcmp(at, PL_TALES_SEPARATOR, len) == 0) {
            assert_in_range(words, 90, 420);
            words = 0;
            stories++;
        } else {
            check_line(at, len);
            for (size_t i = 0; i <= len; i++)
                words += i == len || at[i] == ' ';
        }
        at += len + 1;
    }
    assert_int_equal(stories, s.next);
    pl_buf_release(&b);
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static void a_or_an_fits_what_follows(void **state)
{
    (void)state;
    struct pl_buf b = new_text();
    struct pl_tales_stream s = {.tales = tales, .seed = test_seed()};
    assert_int_equal(pl_tales_read(&s, 2000000, &b), PELAGO_OK);
    assert_int_equal(pl_buf_append(&b, "", 1), PELAGO_OK);
    uint32_t seen = 0;
    const char *end = (const char *)b.data + b.len;
    /* Not strchr: with strict_string_checks ASan reads on to the end of the text at each call. */
    for (const char *at = (const char *)b.data; (at = memchr(at, ' ', (size_t)(end - at))) != NULL;) {
        at++;
        bool a = begins(at, "a "), an = begins(at, "an ");
        const char *noun = at + (an ? 3 : 2);
        bool vowel = strchr("aeiouAEIOU", noun[0]) != NULL || begins(noun, "hour");
        if ((a || an) && an != vowel)
            fail_msg("the wrong article: %.30s", at);
        seen += an;
    }
    assert_true(seen > 300);
    pl_buf_release(&b);
}

/* ---- entropy ---- */

struct parse {
    const char *target;
    uint32_t target_len;
    uint16_t script[1024];
    uint32_t parses;
    double nats; /* of the last parse */
    struct pl_tale tale;
};

/* Tries every alternative at every choice that the text leaves open, and counts the ways to the whole text. */
static void parse_from(struct parse *p, uint32_t depth)
{
    struct pl_tale *s = &p->tale;
    pl_tale_start(s, tales);
    s->script = p->script;
    s->script_len = depth;
    pl_tale_tell(s);
    uint32_t open = s->open_choices, len = open != 0 ? s->open_len : s->len;
    if (s->impossible || len > p->target_len || memcmp(s->text, p->target, len) != 0)
        return;
    if (open == 0) {
        p->parses += len == p->target_len;
        p->nats = s->nats;
        return;
    }
    assert_true(depth < sizeof p->script / sizeof p->script[0]);
    for (uint32_t k = 0; k < open; k++) {
        p->script[depth] = (uint16_t)k;
        parse_from(p, depth + 1);
    }
}

/* The floor is exact only if each text has one way to come about. A story names its teller, so only that one (the
 * first choice) can have told it; trying the others too would take minutes where the name comes last. */
static void a_text_gives_its_choices_away(void **state)
{
    (void)state;
    static struct parse p;
    static struct pl_tale s;
    char text[sizeof s.text];
    uint64_t seed = test_seed();
    for (uint64_t i = 0; i < 24; i++) {
        pl_tale_start(&s, tales);
        pl_prng_seed(&s.prng, seed, i);
        pl_tale_tell(&s);
        struct pl_word teller = pl_tales_word(tales, PL_LIST_TELLER, s.teller, 0);
        assert_non_null(memmem(s.text, s.len, teller.text + 1, teller.len - 1)); /* but for the capital */
        memcpy(text, s.text, s.len);
        p.target = text;
        p.target_len = s.len;
        p.parses = 0;
        p.script[0] = (uint16_t)s.teller;
        parse_from(&p, 1);
        if (p.parses != 1)
            fail_msg("%u ways to tell: %.*s", p.parses, (int)s.len, text);
        assert_float_equal(p.nats, s.nats, 1e-9);
    }
}

static void nobody_is_taken_for_somebody_else(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < PL_PEOPLE; i++) {
        const struct pl_person *p = &tales->people[i], *friend = &tales->people[p->friend];
        for (uint32_t j = 0; j < i; j++) {
            const struct pl_person *q = &tales->people[j];
            assert_false(p->female == q->female && p->first == q->first && p->family == q->family);
        }
        assert_false(p->female == friend->female && p->first == friend->first);
        assert_int_not_equal(pl_tales_road(tales, p->village, friend->village).hours, 0);
    }
    for (uint32_t i = 0; i < pl_tales_items(tales, PL_LIST_TELLER); i++)
        for (uint32_t j = 0; j < i; j++) {
            struct pl_word a = pl_tales_word(tales, PL_LIST_TELLER, i, 0),
                           b = pl_tales_word(tales, PL_LIST_TELLER, j, 0);
            assert_true(memmem(a.text, a.len, b.text, b.len) == NULL &&
                        memmem(b.text, b.len, a.text, a.len) == NULL);
        }
}

/* The mean of -ln p over drawn alternatives is the entropy of the weights. */
static void draws_have_the_probability_they_are_charged_for(void **state)
{
    (void)state;
    enum { DRAWS = 200000, N = 5 };
    static const uint32_t weights[N] = {1, 0, 7, 2, 6};
    static struct pl_tale s;
    uint32_t seen[N] = {0};
    double entropy = 0;
    pl_tale_start(&s, tales);
    pl_prng_seed(&s.prng, test_seed(), 0);
    for (uint32_t i = 0; i < DRAWS; i++)
        seen[pl_tale_weighted(&s, weights, N)]++;
    for (uint32_t k = 0; k < N; k++) {
        double p = weights[k] / 16.0;
        entropy -= p > 0 ? p * log(p) : 0;
        assert_true(fabs(seen[k] - p * DRAWS) < 6 * sqrt(p * DRAWS) + 1e-9); /* 6 sigma */
    }
    assert_float_equal(s.nats / DRAWS, entropy, 0.02);
    assert_int_equal(s.made, DRAWS);
}

static void a_single_alternative_costs_nothing(void **state)
{
    (void)state;
    static struct pl_tale s;
    pl_tale_start(&s, tales);
    assert_int_equal(pl_tale_even(&s, 1), 0);
    assert_int_equal(pl_tale_ranked(&s, 1), 0);
    assert_true(s.nats == 0 && s.made == 0);
}

static void famous_people_are_met_more_often(void **state)
{
    (void)state;
    enum { DRAWS = 100000 };
    static struct pl_tale s;
    static uint32_t seen[PL_PEOPLE];
    pl_tale_start(&s, tales);
    pl_prng_seed(&s.prng, test_seed(), 0);
    for (uint32_t i = 0; i < DRAWS; i++)
        seen[pl_tale_ranked(&s, PL_PEOPLE)]++;
    assert_true(seen[0] > 5 * seen[20] && seen[20] > 5 * seen[300] && seen[300] > 0);
}

static void the_floor_is_far_below_one_bit_a_byte(void **state)
{
    (void)state;
    struct pl_buf b = new_text();
    struct pl_tales_stream s = {.tales = tales, .seed = test_seed()};
    assert_int_equal(pl_tales_read(&s, 3000000, &b), PELAGO_OK);
    assert_int_equal(s.bytes, b.len);
    double bits = s.nats / log(2) / (double)s.bytes;
    print_message("# floor: %.4f bits a byte, %.1f nats a story\n", bits, s.nats / (double)s.next);
    assert_true(bits > 0.06 && bits < 0.10);
    pl_buf_release(&b);
}

/* ---- memory ---- */

static void a_full_buffer_is_reported_and_left_as_it_was(void **state)
{
    (void)state;
    struct pl_buf b;
    double nats = 0;
    pl_buf_init(&b, &system_alloc, 100);
    assert_int_equal(pl_tales_story(tales, 1, PL_TALES_TRAIN, 0, &b, &nats), PELAGO_LIMIT);
    assert_int_equal(b.len, 0);
    assert_true(nats == 0);
    pl_buf_release(&b);
}

static void *no_memory(void *user, void *block, size_t old_bytes, size_t new_bytes)
{
    (void)user;
    (void)block;
    (void)old_bytes;
    (void)new_bytes;
    return NULL;
}

static void opening_without_memory_fails(void **state)
{
    (void)state;
    struct pl_alloc none = {no_memory, NULL};
    struct pl_tales *t = NULL;
    assert_int_equal(pl_tales_open(&none, &t), PELAGO_NOMEM);
    assert_null(t);
    pl_tales_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stories_are_as_they_always_were),
        cmocka_unit_test(a_story_does_not_depend_on_its_neighbours),
        cmocka_unit_test(a_stream_goes_on_where_it_stopped),
        cmocka_unit_test(no_story_is_told_twice),
        cmocka_unit_test(the_text_is_clean),
        cmocka_unit_test(a_or_an_fits_what_follows),
        cmocka_unit_test(a_text_gives_its_choices_away),
        cmocka_unit_test(nobody_is_taken_for_somebody_else),
        cmocka_unit_test(draws_have_the_probability_they_are_charged_for),
        cmocka_unit_test(a_single_alternative_costs_nothing),
        cmocka_unit_test(famous_people_are_met_more_often),
        cmocka_unit_test(the_floor_is_far_below_one_bit_a_byte),
        cmocka_unit_test(a_full_buffer_is_reported_and_left_as_it_was),
        cmocka_unit_test(opening_without_memory_fails),
    };
    return cmocka_run_group_tests(tests, open_tales, close_tales);
}
