/* data/encoder.c - text to tokens: added tokens are found, the rest is normalized, cut into pieces, and each piece merged.
 *
 * Text repeats itself, so nearly every piece was seen before: a table remembers the tokens of short pieces. A piece goes to
 * one place of it and takes that from whatever was there. Merging gives the same tokens, only more slowly.
 */
#include "data/tokenizer.h"

#include "base/check.h"
#include "data/tokenizer_int.h"
#include "data/unicode.h"

#include <string.h>

enum { KEY_BYTES = 16, MEMO_IDS = 3, MEMO_BITS = 16 };
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "keys are cut out of words of text");

/* A piece of at most 15 bytes, zeros after it and its length in the last byte; zeros are no piece. */
struct memo {
    uint64_t key[2];
    uint32_t ids[MEMO_IDS];
    uint32_t count;
};

struct pl_encoder {
    const struct pl_alloc *alloc;
    const struct pl_tokenizer *t;
    struct pl_split_scratch *split;
    struct memo *memos;        /* [1 << MEMO_BITS]; BPE */
    struct pl_buf normalized;  /* the text after NFC */
    struct pl_buf merging;     /* scratch of bpe.h */
    struct pl_ids *out;        /* of the call under way */
    enum pl_specials specials; /* of the call under way */
};

struct pl_encoder *pl_encoder_new(const struct pl_alloc *alloc, const struct pl_tokenizer *t)
{
    struct pl_encoder *e = pl_alloc_zero(alloc, 1, sizeof *e);
    if (e == NULL)
        return NULL;
    e->alloc = alloc;
    e->t = t;
    pl_buf_init(&e->normalized, alloc, SIZE_MAX / 2);
    pl_buf_init(&e->merging, alloc, SIZE_MAX / 2);
    e->split = pl_split_scratch_new(alloc, t->split);
    e->memos = pl_alloc_zero(alloc, (size_t)1 << MEMO_BITS, sizeof *e->memos);
    if (e->split != NULL && e->memos != NULL)
        return e;
    pl_encoder_free(e);
    return NULL;
}

void pl_encoder_free(struct pl_encoder *e)
{
    if (e == NULL)
        return;
    pl_split_scratch_free(e->split);
    pl_alloc_free(e->alloc, e->memos, ((size_t)1 << MEMO_BITS) * sizeof *e->memos);
    pl_buf_release(&e->normalized);
    pl_buf_release(&e->merging);
    pl_alloc_free(e->alloc, e, sizeof *e);
}

static enum pelago_status too_much(struct pl_error *err, enum pelago_status status, size_t len)
{
    const char *what = status == PELAGO_LIMIT ? "is too long" : "needs more memory than there is";
    return pl_fail(err, status, "a stretch of %lu bytes without a cut %s", (uint64_t)len, what);
}

/* ---- byte pairs ---- */

static enum pelago_status merge_piece(struct pl_encoder *e, const uint8_t *piece, size_t len,
                                      struct pl_error *err)
{
    struct pl_ids *out = e->out;
    size_t from = out->count;
    if (e->t->whole_words) {
        uint32_t id = pl_vocab_index_find(&e->t->index, e->t, piece, len);
        if (id != PL_NONE32)
            return pl_ids_push(out, id) == PELAGO_OK ? PELAGO_OK : too_much(err, PELAGO_NOMEM, len);
    }
    if (pl_ids_reserve(out, len) != PELAGO_OK)
        return too_much(err, PELAGO_NOMEM, len);
    for (size_t i = 0; i < len; i++) {
        out->at[from + i] = e->t->byte_ids[piece[i]];
        if (out->at[from + i] == PL_NONE32)
            return pl_fail(err, PELAGO_INVALID, "the vocabulary has no token for the byte 0x%lx",
                           (uint64_t)piece[i]);
    }
    out->count += len;
    enum pelago_status status = pl_merges_apply(&e->t->merges, out, from, &e->merging);
    return status == PELAGO_OK ? PELAGO_OK : too_much(err, status, len);
}

/* readable: bytes that may be read from the piece on, at least len. */
static void make_key(uint64_t key[2], const uint8_t *piece, size_t len, size_t readable)
{
    uint8_t bytes[KEY_BYTES] = {0};
    pl_assert(len > 0 && len < KEY_BYTES);
    if (readable >= KEY_BYTES) {
        memcpy(key, piece, KEY_BYTES);
        key[0] &= len >= 8 ? UINT64_MAX : (UINT64_C(1) << (8 * len)) - 1;
        key[1] &= len <= 8 ? 0 : (UINT64_C(1) << (8 * (len - 8))) - 1;
    } else {
        memcpy(bytes, piece, len);
        memcpy(key, bytes, KEY_BYTES);
    }
    key[1] |= (uint64_t)len << 56;
}

static struct memo *memo_of(struct pl_encoder *e, const uint64_t key[2])
{
    uint64_t h = (key[0] ^ (key[1] * UINT64_C(0x9e3779b97f4a7c15))) * UINT64_C(0xd6e8feb86659fd93);
    return &e->memos[h >> (64 - MEMO_BITS)];
}

static enum pelago_status merge_and_remember(struct pl_encoder *e, const uint8_t *piece, size_t len,
                                             const uint64_t key[2], struct memo *memo, struct pl_error *err)
{
    size_t from = e->out->count;
    PL_TRY(merge_piece(e, piece, len, err));
    size_t count = e->out->count - from;
    if (count > MEMO_IDS)
        return PELAGO_OK;
    memcpy(memo->key, key, sizeof memo->key);
    memcpy(memo->ids, e->out->at + from, count * sizeof *memo->ids);
    memo->count = (uint32_t)count;
    return PELAGO_OK;
}

static inline enum pelago_status encode_piece(struct pl_encoder *e, const uint8_t *piece, size_t len,
                                              size_t readable, struct pl_error *err)
{
    uint64_t key[2];
    struct pl_ids *out = e->out;
    if (len >= KEY_BYTES)
        return merge_piece(e, piece, len, err);
    make_key(key, piece, len, readable);
    struct memo *memo = memo_of(e, key);
    if (memo->key[0] != key[0] || memo->key[1] != key[1])
        return merge_and_remember(e, piece, len, key, memo, err);
    if (out->cap - out->count < MEMO_IDS && pl_ids_reserve(out, MEMO_IDS) != PELAGO_OK)
        return too_much(err, PELAGO_NOMEM, len);
    memcpy(out->at + out->count, memo->ids, sizeof memo->ids);
    out->count += memo->count;
    return PELAGO_OK;
}

static enum pelago_status take_piece(void *user, const uint8_t *piece, size_t len, struct pl_error *err)
{
    return encode_piece(user, piece, len, len, err);
}

static enum pelago_status encode_bpe(struct pl_encoder *e, const uint8_t *text, size_t len,
                                     struct pl_error *err)
{
    const uint8_t *end = text + len;
    if (!pl_split_is_gpt2(e->t->split))
        return pl_split_run(e->t->split, e->split, text, len, take_piece, e, err);
    while (text < end) {
        size_t n = pl_split_gpt2(text, end);
        PL_TRY(encode_piece(e, text, n, (size_t)(end - text), err));
        text += n;
    }
    return PELAGO_OK;
}

/* ---- characters ---- */

static enum pelago_status encode_chars(struct pl_encoder *e, const uint8_t *text, size_t len,
                                       struct pl_error *err)
{
    const uint8_t *end = text + len;
    while (text < end) {
        uint32_t c;
        size_t n = pl_utf8_read(text, end, &c);
        uint32_t id = pl_vocab_index_find(&e->t->index, e->t, text, n);
        if (c == PL_CHAR_BAD)
            return pl_fail(err, PELAGO_INVALID,
                           "the text is not UTF-8, as a tokenizer of characters needs it");
        if (id == PL_NONE32)
            return pl_fail(err, PELAGO_INVALID, "the character U+%lx is not in the vocabulary", (uint64_t)c);
        if (pl_ids_push(e->out, id) != PELAGO_OK)
            return too_much(err, PELAGO_NOMEM, len);
        text += n;
    }
    return PELAGO_OK;
}

/* ---- added tokens and normalization ---- */

static bool is_space_at(const uint8_t *at, const uint8_t *end, size_t *len)
{
    uint32_t c;
    *len = pl_utf8_read(at, end, &c);
    return c != PL_CHAR_BAD && pl_char_class(c) == PL_CHAR_SPACE;
}

/* Where the white space before text[where] begins, not before `from`. */
static size_t spaces_before(const uint8_t *text, size_t from, size_t where)
{
    while (where > from) {
        size_t start = where - 1, len;
        while (start > from && (text[start] & 0xc0) == 0x80)
            start--;
        if (!is_space_at(text + start, text + where, &len) || start + len != where)
            break;
        where = start;
    }
    return where;
}

static size_t spaces_after(const uint8_t *text, size_t at, size_t len)
{
    size_t n;
    while (at < len && is_space_at(text + at, text + len, &n))
        at += n;
    return at;
}

typedef enum pelago_status encode_fn(struct pl_encoder *e, const uint8_t *text, size_t len,
                                     struct pl_error *err);

/* Pushes the set's tokens and gives what lies between them to `rest`. */
static enum pelago_status around_added(struct pl_encoder *e, const struct pl_added_set *set,
                                       const uint8_t *text, size_t len, encode_fn *rest, struct pl_error *err)
{
    size_t at = 0, where = 0;
    const struct pl_added *item;
    while ((item = pl_added_set_find(set, e->t, text, len, at, e->specials, &where)) != NULL) {
        size_t start = item->lstrip ? spaces_before(text, at, where) : where;
        if (start > at)
            PL_TRY(rest(e, text + at, start - at, err));
        if (pl_ids_push(e->out, item->id) != PELAGO_OK)
            return too_much(err, PELAGO_NOMEM, len);
        at = where + item->text.len;
        if (item->rstrip)
            at = spaces_after(text, at, len);
    }
    return at < len ? rest(e, text + at, len - at, err) : PELAGO_OK;
}

static enum pelago_status encode_normalized(struct pl_encoder *e, const uint8_t *text, size_t len,
                                            struct pl_error *err)
{
    encode_fn *rest = e->t->kind == PL_TOKENIZER_BPE ? encode_bpe : encode_chars;
    return around_added(e, &e->t->normalized, text, len, rest, err);
}

static enum pelago_status encode_raw(struct pl_encoder *e, const uint8_t *text, size_t len,
                                     struct pl_error *err)
{
    if (!e->t->nfc || pl_nfc_plain(text, len) == len)
        return encode_normalized(e, text, len, err);
    e->normalized.len = 0;
    if (pl_nfc_append(&e->normalized, text, len) != PELAGO_OK)
        return too_much(err, PELAGO_NOMEM, len);
    return encode_normalized(e, e->normalized.data, e->normalized.len, err);
}

enum pelago_status pl_encoder_run(struct pl_encoder *e, const void *text, size_t len,
                                  enum pl_specials specials, struct pl_ids *out, struct pl_error *err)
{
    e->out = out;
    e->specials = specials;
    return len > 0 ? around_added(e, &e->t->raw, text, len, encode_raw, err) : PELAGO_OK;
}
