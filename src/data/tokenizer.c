/* data/tokenizer.c - what a tokenizer knows: tokens by id and by bytes, added tokens in a text, decoding. */
#include "data/tokenizer.h"

#include "base/check.h"
#include "base/hash.h"
#include "data/outfile.h"
#include "data/tokenizer_int.h"
#include "data/unicode.h"

#include <stdlib.h>
#include <string.h>

void pl_tokenizer_free(struct pl_tokenizer *t)
{
    if (t == NULL)
        return;
    const struct pl_alloc *a = t->alloc;
    pl_merges_release(&t->merges);
    pl_split_free(t->split);
    pl_vocab_index_release(&t->index, a);
    pl_alloc_free(a, t->raw.items, t->raw.cap * sizeof *t->raw.items);
    pl_alloc_free(a, t->normalized.items, t->normalized.cap * sizeof *t->normalized.items);
    pl_alloc_free(a, t->tokens, t->vocab * sizeof *t->tokens);
    pl_buf_release(&t->blob);
    pl_buf_release(&t->json);
    pl_alloc_free(a, t, sizeof *t);
}

struct pl_bytes pl_tokenizer_json(const struct pl_tokenizer *t)
{
    return (struct pl_bytes){t->json.data, t->json.len};
}

enum pelago_status pl_tokenizer_save(const struct pl_tokenizer *t, const char *path, struct pl_error *err)
{
    return pl_outfile_write_all(t->alloc, path, t->json.data, t->json.len, err);
}

uint32_t pl_tokenizer_vocab(const struct pl_tokenizer *t)
{
    return t->vocab;
}

uint32_t pl_tokenizer_end_of_text(const struct pl_tokenizer *t)
{
    return t->end_of_text;
}

uint64_t pl_tokenizer_digest(const struct pl_tokenizer *t)
{
    return t->digest;
}

bool pl_tokenizer_is_chars(const struct pl_tokenizer *t)
{
    return t->kind == PL_TOKENIZER_CHARS;
}

static bool is_letter(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Whether an item could reach across a cut between a letter and a space. */
static bool crosses_cut(const struct pl_added_set *set, const struct pl_tokenizer *t)
{
    for (uint32_t i = 0; i < set->count; i++) {
        const struct pl_added *item = &set->items[i];
        const uint8_t *text = t->blob.data + item->text.offset;
        for (uint32_t k = 1; k < item->text.len; k++)
            if (is_letter(text[k - 1]) && text[k] == ' ')
                return true;
        if (item->rstrip && is_letter(text[item->text.len - 1]))
            return true;
    }
    return false;
}

bool pl_tokenizer_allows_cuts(const struct pl_tokenizer *t)
{
    bool pieces = t->kind == PL_TOKENIZER_CHARS || pl_split_allows_cuts(t->split);
    return pieces && !crosses_cut(&t->raw, t) && !crosses_cut(&t->normalized, t);
}

struct pl_bytes pl_tokenizer_bytes(const struct pl_tokenizer *t, uint32_t id)
{
    pl_assert(id < t->vocab);
    return (struct pl_bytes){t->blob.data + t->tokens[id].offset, t->tokens[id].len};
}

/* ---- from bytes to tokens ---- */

enum pelago_status pl_vocab_index_init(struct pl_vocab_index *index, const struct pl_tokenizer *t)
{
    uint32_t size = 16;
    while (size < 2 * t->vocab)
        size *= 2;
    index->mask = size - 1;
    index->slots = pl_alloc_zero(t->alloc, size, sizeof *index->slots);
    if (index->slots == NULL)
        return PELAGO_NOMEM;
    for (uint32_t i = 0; i < size; i++)
        index->slots[i] = PL_NONE32;
    return PELAGO_OK;
}

void pl_vocab_index_release(struct pl_vocab_index *index, const struct pl_alloc *alloc)
{
    if (index->slots != NULL)
        pl_alloc_free(alloc, index->slots, ((size_t)index->mask + 1) * sizeof *index->slots);
    index->slots = NULL;
}

/* The slot that holds the bytes' token, or the empty one where it would be. */
static uint32_t *find_slot(const struct pl_vocab_index *index, const struct pl_tokenizer *t,
                           const uint8_t *bytes, size_t len)
{
    uint32_t i = (uint32_t)pl_hash64(bytes, len, 0) & index->mask;
    for (;; i = (i + 1) & index->mask) {
        uint32_t id = index->slots[i];
        if (id == PL_NONE32)
            return &index->slots[i];
        const struct pl_token *token = &t->tokens[id];
        if (token->len == len && memcmp(t->blob.data + token->offset, bytes, len) == 0)
            return &index->slots[i];
    }
}

void pl_vocab_index_put(struct pl_vocab_index *index, const struct pl_tokenizer *t, uint32_t id)
{
    struct pl_bytes bytes = pl_tokenizer_bytes(t, id);
    uint32_t *slot = find_slot(index, t, bytes.data, bytes.len);
    if (*slot == PL_NONE32)
        *slot = id;
}

uint32_t pl_vocab_index_find(const struct pl_vocab_index *index, const struct pl_tokenizer *t,
                             const uint8_t *bytes, size_t len)
{
    return *find_slot(index, t, bytes, len);
}

/* ---- added tokens ---- */

struct sort_key {
    const uint8_t *text;
    struct pl_added item;
};

static int by_first_then_longest(const void *a, const void *b)
{
    const struct sort_key *x = a, *y = b;
    uint32_t lx = x->item.text.len, ly = y->item.text.len;
    if (x->text[0] != y->text[0])
        return x->text[0] < y->text[0] ? -1 : 1;
    if (lx != ly)
        return lx > ly ? -1 : 1;
    return memcmp(x->text, y->text, lx);
}

static void set_bits(struct pl_added_set *set, const uint8_t *text, uint32_t len)
{
    uint32_t lo = len > 1 ? text[1] : 0, hi = len > 1 ? text[1] : 255;
    for (uint32_t second = lo; second <= hi; second++) {
        uint32_t bit = (uint32_t)text[0] << 8 | second;
        set->starts[bit / 8] |= (uint8_t)(1u << (bit % 8));
    }
}

static bool index_sorted(struct pl_added_set *set, struct sort_key *keys)
{
    qsort(keys, set->count, sizeof *keys, by_first_then_longest);
    for (uint32_t i = 0; i < set->count; i++) {
        if (i > 0 && by_first_then_longest(&keys[i - 1], &keys[i]) == 0)
            return false;
        set->items[i] = keys[i].item;
        set->first[keys[i].text[0] + 1]++;
        set_bits(set, keys[i].text, keys[i].item.text.len);
    }
    for (uint32_t b = 0; b < 256; b++)
        set->first[b + 1] += set->first[b];
    return true;
}

enum pelago_status pl_added_set_index(struct pl_added_set *set, const struct pl_tokenizer *t,
                                      struct pl_error *err)
{
    if (set->count == 0)
        return PELAGO_OK;
    struct sort_key *keys = pl_alloc_zero(t->alloc, set->count, sizeof *keys);
    if (keys == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for the added tokens");
    for (uint32_t i = 0; i < set->count; i++) {
        pl_assert(set->items[i].text.len > 0);
        keys[i] = (struct sort_key){t->blob.data + set->items[i].text.offset, set->items[i]};
    }
    bool distinct = index_sorted(set, keys);
    pl_alloc_free(t->alloc, keys, set->count * sizeof *keys);
    return distinct ? PELAGO_OK : pl_fail(err, PELAGO_INVALID, "two added tokens have the same text");
}

static bool may_start(const struct pl_added_set *set, const uint8_t *at, const uint8_t *end)
{
    uint32_t bit = (uint32_t)at[0] << 8 | (at + 1 < end ? at[1] : 0);
    return (set->starts[bit / 8] >> (bit % 8) & 1) != 0;
}

const struct pl_added *pl_added_set_find(const struct pl_added_set *set, const struct pl_tokenizer *t,
                                         const uint8_t *text, size_t len, size_t from,
                                         enum pl_specials specials, size_t *where)
{
    const uint8_t *end = text + len;
    if (set->count == 0)
        return NULL;
    for (const uint8_t *at = text + from; at < end; at++) {
        if (!may_start(set, at, end))
            continue;
        for (uint32_t i = set->first[*at]; i < set->first[*at + 1]; i++) {
            const struct pl_added *item = &set->items[i];
            if (item->text.len > (size_t)(end - at) || (item->special && specials == PL_SPECIALS_AS_TEXT))
                continue;
            if (memcmp(t->blob.data + item->text.offset, at, item->text.len) == 0) {
                *where = (size_t)(at - text);
                return item;
            }
        }
    }
    return NULL;
}

/* ---- bytes in the names of tokens ---- */

static bool stands_for_itself(uint32_t c)
{
    return (c >= '!' && c <= '~') || (c >= 0xa1 && c <= 0xac) || (c >= 0xae && c <= 0xff);
}

/* The bytes that do not, in order: 0..32, 127..160, 173. They become U+0100, U+0101, ... */
uint32_t pl_byte_char(uint8_t byte)
{
    if (stands_for_itself(byte))
        return byte;
    return 256u + (byte <= 32 ? byte : byte == 173 ? 67u : 33u + (byte - 127u));
}

bool pl_byte_of_char(uint32_t c, uint8_t *byte)
{
    uint32_t n = c - 256;
    if (c < 256) {
        *byte = (uint8_t)c;
        return stands_for_itself(c);
    }
    if (n > 67)
        return false;
    *byte = (uint8_t)(n <= 32 ? n : n == 67 ? 173 : 127 + (n - 33));
    return true;
}

/* ---- decoding ---- */

enum pelago_status pl_decoder_push(struct pl_decoder *d, const struct pl_tokenizer *t, uint32_t id,
                                   struct pl_buf *out)
{
    struct pl_bytes bytes = pl_tokenizer_bytes(t, id);
    size_t before = out->len;
    pl_assert(d->held_len < PL_DECODER_HOLD);
    PL_TRY(pl_buf_reserve(out, d->held_len + bytes.len));
    (void)pl_buf_append(out, d->held, d->held_len);
    (void)pl_buf_append(out, bytes.data, bytes.len);
    size_t hold = pl_utf8_unfinished(out->data + before, out->len - before);
    out->len -= hold;
    if (hold > 0)
        memcpy(d->held, out->data + out->len, hold);
    d->held_len = (uint32_t)hold;
    return PELAGO_OK;
}

enum pelago_status pl_decoder_finish(struct pl_decoder *d, struct pl_buf *out)
{
    PL_TRY(pl_buf_append(out, d->held, d->held_len));
    d->held_len = 0;
    return PELAGO_OK;
}
