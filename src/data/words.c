/* data/words.c - see words.h. */
#include "data/words.h"

#include "base/check.h"
#include "base/hash.h"
#include "base/limits.h"

#include <string.h>

enum { CAP_MIN = 1024, CAP_MAX = 1 << 30 };

void pl_words_init(struct pl_words_table *w, const struct pl_alloc *alloc)
{
    *w = (struct pl_words_table){.alloc = alloc};
    pl_buf_init(&w->bytes, alloc, SIZE_MAX / 2);
}

void pl_words_release(struct pl_words_table *w)
{
    pl_buf_release(&w->bytes);
    pl_alloc_free(w->alloc, w->words, w->cap * sizeof *w->words);
    pl_alloc_free(w->alloc, w->slots, 2 * (size_t)w->cap * sizeof *w->slots);
    pl_words_init(w, w->alloc);
}

/* The slot of the word, or the empty one where it would be. */
static uint32_t *find(const struct pl_words_table *w, const uint8_t *word, size_t len)
{
    uint32_t mask = 2 * w->cap - 1, i = (uint32_t)pl_hash64(word, len, 0) & mask;
    for (;; i = (i + 1) & mask) {
        uint32_t number = w->slots[i];
        if (number == 0)
            return &w->slots[i];
        const struct pl_word *known = &w->words[number - 1];
        if (known->len == len && memcmp(w->bytes.data + known->offset, word, len) == 0)
            return &w->slots[i];
    }
}

static enum pelago_status grow(struct pl_words_table *w)
{
    if (w->cap == CAP_MAX)
        return PELAGO_LIMIT;
    uint32_t cap = w->cap > 0 ? 2 * w->cap : CAP_MIN;
    uint32_t *slots = pl_alloc_zero(w->alloc, 2 * (size_t)cap, sizeof *slots);
    if (slots == NULL)
        return PELAGO_NOMEM;
    struct pl_word *words =
        w->alloc->resize(w->alloc->user, w->words, w->cap * sizeof *words, cap * sizeof *words);
    if (words == NULL) {
        pl_alloc_free(w->alloc, slots, 2 * (size_t)cap * sizeof *slots);
        return PELAGO_NOMEM;
    }
    pl_alloc_free(w->alloc, w->slots, 2 * (size_t)w->cap * sizeof *slots);
    w->words = words;
    w->slots = slots;
    w->cap = cap;
    for (uint32_t i = 0; i < w->count; i++)
        *find(w, w->bytes.data + words[i].offset, words[i].len) = i + 1;
    return PELAGO_OK;
}

enum pelago_status pl_words_add(struct pl_words_table *w, const uint8_t *word, size_t len, uint64_t count)
{
    pl_assert(len > 0 && len <= UINT32_MAX);
    if (w->count == w->cap)
        PL_TRY(grow(w));
    uint32_t *slot = find(w, word, len);
    if (*slot != 0) {
        w->words[*slot - 1].count += count;
        return PELAGO_OK;
    }
    size_t offset = w->bytes.len;
    PL_TRY(pl_buf_append(&w->bytes, word, len));
    w->words[w->count++] = (struct pl_word){offset, (uint32_t)len, count};
    *slot = w->count;
    return PELAGO_OK;
}

uint32_t pl_words_find(const struct pl_words_table *w, const uint8_t *word, size_t len)
{
    uint32_t number = w->cap > 0 ? *find(w, word, len) : 0;
    return number != 0 ? number - 1 : PL_NONE32;
}

enum pelago_status pl_words_merge(struct pl_words_table *w, const struct pl_words_table *from)
{
    for (uint32_t i = 0; i < from->count; i++)
        PL_TRY(pl_words_add(w, from->bytes.data + from->words[i].offset, from->words[i].len,
                            from->words[i].count));
    return PELAGO_OK;
}
