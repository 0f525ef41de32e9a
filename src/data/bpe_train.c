/* data/bpe_train.c - see bpe_train.h.
 *
 * Counts of pairs are kept up to date instead of counted anew: a merge visits only the words its pair occurs in, and changes
 * only the counts of the neighbours. A heap holds pairs by the count they had when they were put in; one that has fewer by
 * now goes back to its place.
 */
#include "data/bpe_train.h"

#include "base/check.h"
#include "base/hash.h"
#include "base/limits.h"
#include "data/tokenizer_int.h"

#include <stdlib.h>
#include <string.h>

struct pair {
    uint32_t left, right;
    int64_t count;
    uint32_t *words; /* numbers of words it occurs in, or did */
    uint32_t words_count, words_cap;
    bool fresh; /* in the list of pairs the merge under way has made */
};

struct word {
    size_t at; /* in symbols */
    uint32_t len;
    int64_t count;
};

struct entry {
    int64_t count;
    uint32_t pair;
};

struct trainer {
    const struct pl_alloc *alloc;
    uint32_t *symbols; /* tokens of all words; a word shrinks in its place */
    size_t symbols_count;
    struct word *words;
    uint32_t words_count;
    struct pair *pairs; /* [pairs_cap], a power of two or 0 */
    uint32_t *slots;    /* [2 * pairs_cap] number + 1 of a pair; 0 is empty */
    uint32_t pairs_count, pairs_cap;
    struct entry *heap;
    size_t heap_count, heap_cap;
    struct pl_ids fresh; /* pairs */
};

/* ---- the table of pairs ---- */

static uint32_t *find_slot(const struct trainer *t, uint32_t left, uint32_t right)
{
    uint64_t h = (left * UINT64_C(0x9e3779b97f4a7c15)) ^ (right * UINT64_C(0xc2b2ae3d27d4eb4f));
    uint32_t mask = 2 * t->pairs_cap - 1, i = (uint32_t)((h * UINT64_C(0xff51afd7ed558ccd)) >> 32) & mask;
    for (;; i = (i + 1) & mask) {
        uint32_t number = t->slots[i];
        if (number == 0 || (t->pairs[number - 1].left == left && t->pairs[number - 1].right == right))
            return &t->slots[i];
    }
}

static enum pelago_status grow_pairs(struct trainer *t)
{
    uint32_t cap = t->pairs_cap > 0 ? 2 * t->pairs_cap : 4096;
    if (cap > UINT32_C(1) << 30)
        return PELAGO_LIMIT;
    uint32_t *slots = pl_alloc_zero(t->alloc, 2 * (size_t)cap, sizeof *slots);
    if (slots == NULL)
        return PELAGO_NOMEM;
    struct pair *pairs =
        t->alloc->resize(t->alloc->user, t->pairs, t->pairs_cap * sizeof *pairs, cap * sizeof *pairs);
    if (pairs == NULL) {
        pl_alloc_free(t->alloc, slots, 2 * (size_t)cap * sizeof *slots);
        return PELAGO_NOMEM;
    }
    pl_alloc_free(t->alloc, t->slots, 2 * (size_t)t->pairs_cap * sizeof *slots);
    t->pairs = pairs;
    t->slots = slots;
    t->pairs_cap = cap;
    for (uint32_t i = 0; i < t->pairs_count; i++)
        *find_slot(t, pairs[i].left, pairs[i].right) = i + 1;
    return PELAGO_OK;
}

/* The number of the pair, which is made when it is new. */
static enum pelago_status pair_of(struct trainer *t, uint32_t left, uint32_t right, uint32_t *number)
{
    if (t->pairs_count == t->pairs_cap)
        PL_TRY(grow_pairs(t));
    uint32_t *slot = find_slot(t, left, right);
    if (*slot == 0) {
        t->pairs[t->pairs_count++] = (struct pair){.left = left, .right = right};
        *slot = t->pairs_count;
    }
    *number = *slot - 1;
    return PELAGO_OK;
}

static enum pelago_status add_word(struct trainer *t, struct pair *p, uint32_t word)
{
    if (p->words_count > 0 && p->words[p->words_count - 1] == word)
        return PELAGO_OK;
    if (p->words_count == p->words_cap) {
        uint32_t cap = p->words_cap > 0 ? 2 * p->words_cap : 4;
        uint32_t *words =
            t->alloc->resize(t->alloc->user, p->words, p->words_cap * sizeof *words, cap * sizeof *words);
        if (words == NULL)
            return PELAGO_NOMEM;
        p->words = words;
        p->words_cap = cap;
    }
    p->words[p->words_count++] = word;
    return PELAGO_OK;
}

/* One more place where the pair occurs. */
static enum pelago_status gain(struct trainer *t, uint32_t left, uint32_t right, uint32_t word)
{
    uint32_t number;
    PL_TRY(pair_of(t, left, right, &number));
    struct pair *p = &t->pairs[number];
    p->count += t->words[word].count;
    if (!p->fresh)
        PL_TRY(pl_ids_push(&t->fresh, number));
    p->fresh = true;
    return add_word(t, p, word);
}

static void lose(struct trainer *t, uint32_t left, uint32_t right, uint32_t word)
{
    uint32_t *slot = find_slot(t, left, right);
    pl_assert(*slot != 0);
    t->pairs[*slot - 1].count -= t->words[word].count;
}

/* ---- the heap ---- */

static bool before(const struct trainer *t, const struct entry *a, const struct entry *b)
{
    const struct pair *p = &t->pairs[a->pair], *q = &t->pairs[b->pair];
    if (a->count != b->count)
        return a->count > b->count;
    return p->left != q->left ? p->left < q->left : p->right < q->right;
}

static enum pelago_status push(struct trainer *t, struct entry entry)
{
    if (t->heap_count == t->heap_cap) {
        size_t cap = t->heap_cap > 0 ? 2 * t->heap_cap : 4096;
        void *heap =
            t->alloc->resize(t->alloc->user, t->heap, t->heap_cap * sizeof *t->heap, cap * sizeof *t->heap);
        if (heap == NULL)
            return PELAGO_NOMEM;
        t->heap = heap;
        t->heap_cap = cap;
    }
    size_t at = t->heap_count++;
    for (; at > 0 && before(t, &entry, &t->heap[(at - 1) / 2]); at = (at - 1) / 2)
        t->heap[at] = t->heap[(at - 1) / 2];
    t->heap[at] = entry;
    return PELAGO_OK;
}

static struct entry pop(struct trainer *t)
{
    struct entry top = t->heap[0], last = t->heap[--t->heap_count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child + 1 < t->heap_count && before(t, &t->heap[child + 1], &t->heap[child]))
            child++;
        if (child >= t->heap_count || !before(t, &t->heap[child], &last))
            break;
        t->heap[at] = t->heap[child];
        at = child;
    }
    t->heap[at] = last;
    return top;
}

/* Puts the pairs that gained into the heap. */
static enum pelago_status push_fresh(struct trainer *t)
{
    for (size_t i = 0; i < t->fresh.count; i++) {
        uint32_t number = t->fresh.at[i];
        t->pairs[number].fresh = false;
        if (t->pairs[number].count > 0)
            PL_TRY(push(t, (struct entry){t->pairs[number].count, number}));
    }
    t->fresh.count = 0;
    return PELAGO_OK;
}

/* The pair that occurs most often; PL_NONE32 when none occurs min_count times. */
static uint32_t pop_best(struct trainer *t, uint64_t min_count)
{
    while (t->heap_count > 0) {
        struct entry top = pop(t);
        int64_t count = t->pairs[top.pair].count;
        if (count < (int64_t)min_count || count < 1)
            continue;
        if (top.count == count)
            return top.pair;
        (void)push(t, (struct entry){count, top.pair}); /* there is room: one was popped */
    }
    return PL_NONE32;
}

/* ---- merging ---- */

static enum pelago_status merge_word(struct trainer *t, uint32_t number, uint32_t left, uint32_t right,
                                     uint32_t made)
{
    struct word *w = &t->words[number];
    uint32_t *s = t->symbols + w->at, out = 0;
    for (uint32_t i = 0; i < w->len; i++) {
        if (s[i] != left || i + 1 == w->len || s[i + 1] != right) {
            s[out++] = s[i];
            continue;
        }
        if (out > 0) {
            lose(t, s[out - 1], left, number);
            PL_TRY(gain(t, s[out - 1], made, number));
        }
        if (i + 2 < w->len) {
            lose(t, right, s[i + 2], number);
            PL_TRY(gain(t, made, s[i + 2], number));
        }
        s[out++] = made;
        i++;
    }
    w->len = out;
    return PELAGO_OK;
}

static enum pelago_status merge_pair(struct trainer *t, uint32_t pair, uint32_t made)
{
    struct pair p = t->pairs[pair]; /* its list of words is ours now: the table may move */
    enum pelago_status status = PELAGO_OK;
    t->pairs[pair].words = NULL;
    t->pairs[pair].words_count = t->pairs[pair].words_cap = 0;
    for (uint32_t i = 0; i < p.words_count && status == PELAGO_OK; i++)
        status = merge_word(t, p.words[i], p.left, p.right, made);
    t->pairs[pair].count = 0;
    pl_alloc_free(t->alloc, p.words, p.words_cap * sizeof *p.words);
    PL_TRY(status);
    return push_fresh(t);
}

/* The token that the pair makes; two pairs may make the same one. */
static enum pelago_status make_token(struct pl_bpe_model *m, const struct pair *p, struct pl_buf *bytes,
                                     uint32_t *made)
{
    const uint32_t parts[2] = {p->left, p->right};
    bytes->len = 0;
    for (int i = 0; i < 2; i++) {
        const struct pl_word *token = &m->tokens.words[parts[i] - 1];
        PL_TRY(pl_buf_append(bytes, m->tokens.bytes.data + token->offset, token->len));
    }
    PL_TRY(pl_buf_append(&m->merges, parts, sizeof parts));
    PL_TRY(pl_words_add(&m->tokens, bytes->data, bytes->len, 1));
    *made = 1 + pl_words_find(&m->tokens, bytes->data, bytes->len);
    return PELAGO_OK;
}

static enum pelago_status find_merges(struct trainer *t, struct pl_bpe_model *m, uint32_t vocab,
                                      uint64_t min_count)
{
    enum pelago_status status = PELAGO_OK;
    struct pl_buf bytes;
    pl_buf_init(&bytes, t->alloc, SIZE_MAX / 2);
    while (status == PELAGO_OK && m->tokens.count + 1 < vocab) {
        uint32_t made, best = pop_best(t, min_count);
        if (best == PL_NONE32)
            break;
        status = make_token(m, &t->pairs[best], &bytes, &made);
        if (status == PELAGO_OK)
            status = merge_pair(t, best, made);
    }
    pl_buf_release(&bytes);
    return status;
}

/* ---- the start ---- */

static int by_char(const void *a, const void *b)
{
    uint32_t x = pl_byte_char(*(const uint8_t *)a), y = pl_byte_char(*(const uint8_t *)b);
    return x < y ? -1 : x > y;
}

static enum pelago_status add_bytes(struct pl_bpe_model *m, uint32_t token_of[256])
{
    uint8_t bytes[256];
    for (unsigned i = 0; i < 256; i++)
        bytes[i] = (uint8_t)i;
    qsort(bytes, 256, 1, by_char);
    for (uint32_t i = 0; i < 256; i++) {
        token_of[bytes[i]] = 1 + i;
        PL_TRY(pl_words_add(&m->tokens, &bytes[i], 1, 1));
    }
    return PELAGO_OK;
}

static enum pelago_status load_words(struct trainer *t, const struct pl_words_table *words,
                                     const uint32_t token_of[256])
{
    t->symbols_count = words->bytes.len;
    t->words_count = words->count;
    t->symbols = pl_alloc_zero(t->alloc, t->symbols_count + 1, sizeof *t->symbols);
    t->words = pl_alloc_zero(t->alloc, (size_t)t->words_count + 1, sizeof *t->words);
    if (t->symbols == NULL || t->words == NULL)
        return PELAGO_NOMEM;
    for (size_t i = 0; i < t->symbols_count; i++)
        t->symbols[i] = token_of[words->bytes.data[i]];
    for (uint32_t i = 0; i < words->count; i++) {
        const struct pl_word *w = &words->words[i];
        t->words[i] = (struct word){w->offset, w->len, (int64_t)w->count};
        for (uint32_t k = 0; k + 1 < w->len; k++)
            PL_TRY(gain(t, t->symbols[w->offset + k], t->symbols[w->offset + k + 1], i));
    }
    return push_fresh(t);
}

static void release(struct trainer *t)
{
    const struct pl_alloc *a = t->alloc;
    for (uint32_t i = 0; i < t->pairs_count; i++)
        pl_alloc_free(a, t->pairs[i].words, t->pairs[i].words_cap * sizeof *t->pairs[i].words);
    pl_alloc_free(a, t->pairs, t->pairs_cap * sizeof *t->pairs);
    pl_alloc_free(a, t->slots, 2 * (size_t)t->pairs_cap * sizeof *t->slots);
    pl_alloc_free(a, t->heap, t->heap_cap * sizeof *t->heap);
    if (t->symbols != NULL)
        pl_alloc_free(a, t->symbols, (t->symbols_count + 1) * sizeof *t->symbols);
    if (t->words != NULL)
        pl_alloc_free(a, t->words, ((size_t)t->words_count + 1) * sizeof *t->words);
    pl_ids_release(&t->fresh);
}

void pl_bpe_model_init(struct pl_bpe_model *m, const struct pl_alloc *alloc)
{
    pl_words_init(&m->tokens, alloc);
    pl_buf_init(&m->merges, alloc, SIZE_MAX / 2);
}

void pl_bpe_model_release(struct pl_bpe_model *m)
{
    pl_words_release(&m->tokens);
    pl_buf_release(&m->merges);
}

enum pelago_status pl_bpe_train(struct pl_bpe_model *m, const struct pl_words_table *words, uint32_t vocab,
                                uint64_t min_count)
{
    struct trainer t = {.alloc = words->alloc};
    uint32_t token_of[256] = {0};
    pl_assert(vocab >= PL_BPE_VOCAB_MIN && vocab <= PL_VOCAB_MAX && m->tokens.count == 0);
    pl_ids_init(&t.fresh, t.alloc);
    enum pelago_status status = add_bytes(m, token_of);
    if (status == PELAGO_OK)
        status = load_words(&t, words, token_of);
    if (status == PELAGO_OK)
        status = find_merges(&t, m, vocab, min_count);
    release(&t);
    return status;
}
