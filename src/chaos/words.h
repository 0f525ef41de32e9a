/* chaos/words.h - one line of text as words between blanks; # begins a comment. */
#ifndef PL_CHAOS_WORDS_H
#define PL_CHAOS_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { PL_WORDS_MAX = 24, PL_WORD_MAX = 48 };

struct pl_line_words {
    char at[PL_WORDS_MAX][PL_WORD_MAX];
    uint32_t count, next;
};

/* False: a word is too long, holds something other than printable ASCII, or there are too many. */
static inline bool pl_words_split(struct pl_line_words *w, const char *p, size_t len)
{
    w->count = w->next = 0;
    for (size_t i = 0; i < len && p[i] != '#';) {
        if (p[i] == ' ' || p[i] == '\t' || p[i] == '\r') {
            i++;
            continue;
        }
        size_t n = 0;
        for (; i + n < len && p[i + n] != ' ' && p[i + n] != '\t' && p[i + n] != '\r'; n++)
            if (p[i + n] < '!' || p[i + n] > '~')
                return false;
        if (n >= PL_WORD_MAX || w->count == PL_WORDS_MAX)
            return false;
        memcpy(w->at[w->count], p + i, n);
        w->at[w->count++][n] = '\0';
        i += n;
    }
    return true;
}

static inline const char *pl_words_peek(const struct pl_line_words *w)
{
    return w->next < w->count ? w->at[w->next] : "";
}

static inline const char *pl_words_take(struct pl_line_words *w)
{
    return w->next < w->count ? w->at[w->next++] : "";
}

static inline bool pl_words_take_if(struct pl_line_words *w, const char *word)
{
    if (w->next == w->count || strcmp(w->at[w->next], word) != 0)
        return false;
    w->next++;
    return true;
}

#endif
