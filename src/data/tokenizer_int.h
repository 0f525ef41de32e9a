/* data/tokenizer_int.h - inside of a tokenizer: tokenizer_load.c fills it, encoder.c uses it. */
#ifndef PL_DATA_TOKENIZER_INT_H
#define PL_DATA_TOKENIZER_INT_H

#include "base/buf.h"
#include "base/limits.h"
#include "data/bpe.h"
#include "data/split.h"
#include "data/tokenizer.h"

enum pl_tokenizer_kind { PL_TOKENIZER_BPE = 1, PL_TOKENIZER_CHARS };

/* A piece of the blob of all tokens' bytes. */
struct pl_token {
    uint32_t offset, len;
};

/* A token that is found in the text before anything else happens to it. */
struct pl_added {
    struct pl_token text; /* what is looked for; normalized like the text it is looked for in */
    uint32_t id;
    bool special, lstrip, rstrip; /* it takes the white space before or after it along */
};

/* Those found in the text as it is, or those found in normalized text. */
struct pl_added_set {
    struct pl_added *items; /* by first byte, then the longest first */
    uint32_t count, cap;
    uint32_t first[257];  /* items of first byte b: first[b] .. first[b + 1] */
    uint8_t starts[8192]; /* bits: whether an item begins with these two bytes */
};

/* From bytes to the token that has them; open addressing, PL_NONE32 is empty. */
struct pl_vocab_index {
    uint32_t *slots;
    uint32_t mask;
};

struct pl_tokenizer {
    const struct pl_alloc *alloc;
    enum pl_tokenizer_kind kind;
    struct pl_buf json; /* as it was read */
    struct pl_buf blob;
    struct pl_token *tokens; /* [vocab] */
    uint32_t vocab;
    uint32_t end_of_text;
    uint32_t byte_ids[256];      /* BPE: the token of each byte, or PL_NONE32 */
    struct pl_merges merges;     /* BPE */
    struct pl_split *split;      /* BPE */
    struct pl_vocab_index index; /* CHARS, and BPE with whole_words */
    bool whole_words;            /* a piece that is a token needs no merges to become it */
    bool nfc;                    /* text is normalized */
    struct pl_added_set raw, normalized;
    uint64_t digest;
};

/* Filled once; an id whose bytes are there already is passed over. OK or NOMEM. */
enum pelago_status pl_vocab_index_init(struct pl_vocab_index *index, const struct pl_tokenizer *t);
void pl_vocab_index_release(struct pl_vocab_index *index, const struct pl_alloc *alloc);
void pl_vocab_index_put(struct pl_vocab_index *index, const struct pl_tokenizer *t, uint32_t id);
uint32_t pl_vocab_index_find(const struct pl_vocab_index *index, const struct pl_tokenizer *t,
                             const uint8_t *bytes, size_t len); /* PL_NONE32: none */

/* Sorts and indexes the items, whose texts are not empty; INVALID when two look for the same text. */
enum pelago_status pl_added_set_index(struct pl_added_set *set, const struct pl_tokenizer *t,
                                      struct pl_error *err);
/* The leftmost, longest item in text[from .. len); NULL when there is none. Specials are passed over when told so. */
const struct pl_added *pl_added_set_find(const struct pl_added_set *set, const struct pl_tokenizer *t,
                                         const uint8_t *text, size_t len, size_t from,
                                         enum pl_specials specials, size_t *where);

/* The 256 characters that stand for bytes in the names of tokens, as GPT-2 chose them: printable ones are themselves. */
uint32_t pl_byte_char(uint8_t byte);
bool pl_byte_of_char(uint32_t c, uint8_t *byte);

#endif
