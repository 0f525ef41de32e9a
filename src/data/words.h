/* data/words.h - how often each piece of a text occurs: the input of tokenizer training. */
#ifndef PL_DATA_WORDS_H
#define PL_DATA_WORDS_H

#include "base/alloc.h"
#include "base/buf.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct pl_word {
    size_t offset; /* in bytes.data */
    uint32_t len;
    uint64_t count;
};

/* Open addressing over a list in the order of arrival. */
struct pl_words_table {
    const struct pl_alloc *alloc;
    struct pl_buf bytes;
    struct pl_word *words; /* [cap] */
    uint32_t *slots;       /* [2 * cap], number + 1 of a word; 0 is empty */
    uint32_t count, cap;   /* cap is 0 or a power of two */
};

void pl_words_init(struct pl_words_table *w, const struct pl_alloc *alloc);
void pl_words_release(struct pl_words_table *w);
/* OK, NOMEM, or LIMIT beyond 2^30 words. len < 2^32. */
enum pelago_status pl_words_add(struct pl_words_table *w, const uint8_t *word, size_t len, uint64_t count);
/* Its number, PL_NONE32 when it is not there. */
uint32_t pl_words_find(const struct pl_words_table *w, const uint8_t *word, size_t len);
/* Adds all of `from`. */
enum pelago_status pl_words_merge(struct pl_words_table *w, const struct pl_words_table *from);

#endif
