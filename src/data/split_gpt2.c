/* data/split_gpt2.c - the pattern of GPT-2 by hand, see split.h.
 *
 * The alternatives in order: a contraction; a run of letters, of numbers or of other characters, each with one space
 * before it if there is one; white space up to the last of a run that something follows, which is left for that; a
 * single white space. Every choice depends on what follows, never on what stood before, so a piece can be found from
 * any true boundary. ASCII goes through a table, everything else through the classes of unicode.h.
 */
#include "data/split.h"

#include "data/unicode.h"

enum { LETTER = PL_CHAR_LETTER, NUMBER = PL_CHAR_NUMBER, SPACE = PL_CHAR_SPACE, HIGH = 4 };

#define FIVE(x) x, x, x, x, x
#define LETTERS FIVE(LETTER), FIVE(LETTER), FIVE(LETTER), FIVE(LETTER), FIVE(LETTER), LETTER
#define HIGH32 FIVE(HIGH), FIVE(HIGH), FIVE(HIGH), FIVE(HIGH), FIVE(HIGH), FIVE(HIGH), HIGH, HIGH
#define HIGH128 HIGH32, HIGH32, HIGH32, HIGH32
#define DIGITS FIVE(NUMBER), FIVE(NUMBER)

/* The class of a byte; other ASCII characters are 0. */
static const uint8_t classes[256] = {
    ['\t'] = FIVE(SPACE), [' '] = SPACE, ['0'] = DIGITS, ['A'] = LETTERS, ['a'] = LETTERS, [0x80] = HIGH128,
};

static uint8_t class_at(const uint8_t *at, const uint8_t *end, size_t *len)
{
    uint32_t c;
    *len = 1;
    if (classes[*at] != HIGH)
        return classes[*at];
    *len = pl_utf8_read(at, end, &c);
    return (uint8_t)pl_char_class(c);
}

/* The end of the run of this class that begins at `at`. */
static const uint8_t *run_end(const uint8_t *at, const uint8_t *end, uint8_t class)
{
    for (;;) {
        size_t len;
        while (at < end && classes[*at] == class)
            at++;
        if (at == end || classes[*at] != HIGH || class_at(at, end, &len) != class)
            return at;
        at += len;
    }
}

/* White space at `at`, and no single space before something else. */
static size_t space_run(const uint8_t *at, const uint8_t *end)
{
    const uint8_t *p = at, *last = at;
    size_t len;
    while (p < end && class_at(p, end, &len) == SPACE) {
        last = p;
        p += len;
    }
    if (p == end || last == at)
        return (size_t)(p - at);
    return (size_t)(last - at);
}

/* The length of 's 't 'm 'd 're 've 'll, or 0. */
static size_t contraction(const uint8_t *at, const uint8_t *end)
{
    size_t left = (size_t)(end - at);
    if (left < 2)
        return 0;
    uint8_t a = at[1], b = left > 2 ? at[2] : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

size_t pl_split_gpt2(const uint8_t *at, const uint8_t *end)
{
    const uint8_t *p = at;
    size_t len;
    if (*p == '\'') {
        len = contraction(p, end);
        if (len > 0)
            return len;
    }
    if (*p == ' ' && end - p > 1)
        p++;
    uint8_t class = class_at(p, end, &len);
    if (class == SPACE)
        return space_run(at, end);
    return (size_t)(run_end(p + len, end, class) - at);
}
