/* cmd/text.c - see text.h. */
#include "cmd/text.h"

#include "base/limits.h"

#include <inttypes.h>
#include <string.h>

enum { CLIP_CHARS = 60 };

static const struct {
    const char *name;
    uint64_t ns;
} units[] = {{"s", PL_SEC},      {"ms", PL_MS},        {"us", PL_US},        {"ns", 1}, {"min", 60 * PL_SEC},
             {"m", 60 * PL_SEC}, {"h", 3600 * PL_SEC}, {"d", 86400 * PL_SEC}}; /* the last four: read only */

static bool read_digits(const char **text, uint64_t *out)
{
    uint64_t v = 0;
    const char *p = *text;
    if (*p < '0' || *p > '9')
        return false;
    for (; *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(v, UINT64_C(10), &v) ||
            __builtin_add_overflow(v, (uint64_t)(*p - '0'), &v))
            return false;
    *text = p;
    *out = v;
    return true;
}

bool pl_text_number(const char *text, uint64_t *out)
{
    return read_digits(&text, out) && *text == '\0';
}

bool pl_text_time(const char *text, uint64_t *ns)
{
    uint64_t v;
    if (!read_digits(&text, &v))
        return false;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strcmp(text, units[i].name) == 0)
            return !__builtin_mul_overflow(v, units[i].ns, ns);
    return false;
}

bool pl_text_range(const char *text, uint64_t *first, uint64_t *last)
{
    if (!read_digits(&text, first))
        return false;
    *last = *first;
    if (*text == '\0')
        return true;
    if (strncmp(text, "..", 2) != 0)
        return false;
    return pl_text_number(text + 2, last) && *last >= *first;
}

void pl_text_clean(char *text)
{
    for (; *text != '\0'; text++)
        if (*text < ' ' || *text > '~')
            *text = '?';
}

struct pl_text pl_text_clip(const char *word)
{
    struct pl_text t;
    bool cut = strlen(word) > CLIP_CHARS;
    (void)snprintf(t.at, sizeof t.at, "%.*s%s", (int)CLIP_CHARS, word, cut ? "..." : "");
    pl_text_clean(t.at);
    return t;
}

struct pl_text pl_text_of_time(uint64_t ns)
{
    struct pl_text t;
    size_t i = 0;
    while (ns % units[i].ns != 0)
        i++;
    (void)snprintf(t.at, sizeof t.at, "%" PRIu64 "%s", ns / units[i].ns, units[i].name);
    return t;
}

void pl_text_quote(FILE *out, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+./,:@%=";
    if (word[0] != '\0' && strspn(word, plain) == strlen(word)) {
        fputs(word, out);
        return;
    }
    fputc('\'', out);
    for (; *word != '\0'; word++) {
        if (*word == '\'')
            fputs("'\\''", out);
        else
            fputc(*word, out);
    }
    fputc('\'', out);
}
