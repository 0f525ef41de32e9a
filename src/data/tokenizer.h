/* data/tokenizer.h - text to token ids and back: byte-level BPE as Hugging Face tokenizers do it, id for id, and a
 * tokenizer of single characters.
 *
 * A tokenizer is read once and then shared by all threads; an encoder is what one thread needs to use it. Every kind is stored
 * as a tokenizer.json that the Python packages `tokenizers` and `transformers` load too (docs/data.md).
 *
 * Special tokens such as <|endoftext|> are found in the text unless asked otherwise. Decoding what was encoded gives the
 * very same bytes, whatever they are, unless the tokenizer says that text is normalized, a space is put in front or spaces
 * around a token are dropped.
 */
#ifndef PL_DATA_TOKENIZER_H
#define PL_DATA_TOKENIZER_H

#include "base/alloc.h"
#include "base/buf.h"
#include "base/bytes.h"
#include "base/status.h"
#include "data/ids.h"

struct pl_tokenizer;

/* From a tokenizer.json, or a folder that holds one, or a folder with encoder.json and vocab.bpe as GPT-2 had them (or
 * vocab.json and merges.txt). The error names the file. The allocator is borrowed. */
enum pelago_status pl_tokenizer_load(struct pl_tokenizer **out, const struct pl_alloc *alloc,
                                     const char *path, struct pl_error *err);
/* From the text of a tokenizer.json. */
enum pelago_status pl_tokenizer_parse(struct pl_tokenizer **out, const struct pl_alloc *alloc,
                                      const void *json, size_t len, struct pl_error *err);
void pl_tokenizer_free(struct pl_tokenizer *t); /* NULL is fine */

/* The text of the tokenizer.json, to be kept beside a model; borrowed. */
struct pl_bytes pl_tokenizer_json(const struct pl_tokenizer *t);
/* Writes that text to a file, whole or not at all. */
enum pelago_status pl_tokenizer_save(const struct pl_tokenizer *t, const char *path, struct pl_error *err);

uint32_t pl_tokenizer_vocab(const struct pl_tokenizer *t); /* ids are below this */
/* The token between documents, PL_NONE32 when there is none. */
uint32_t pl_tokenizer_end_of_text(const struct pl_tokenizer *t);
/* Equal for tokenizers that encode and decode alike, whatever file they came from. */
uint64_t pl_tokenizer_digest(const struct pl_tokenizer *t);
/* One of single characters. */
bool pl_tokenizer_is_chars(const struct pl_tokenizer *t);
/* Whether text may be encoded in parts, cut before any space that follows an ASCII letter. */
bool pl_tokenizer_allows_cuts(const struct pl_tokenizer *t);
/* The bytes of a token, borrowed; none for an id without a token. id < vocab. */
struct pl_bytes pl_tokenizer_bytes(const struct pl_tokenizer *t, uint32_t id);

/* ---- encoding ---- */

struct pl_encoder;

enum pl_specials {
    PL_SPECIALS_FIND = 0, /* "<|endoftext|>" in the text becomes that token */
    PL_SPECIALS_AS_TEXT,  /* it stays what it is: for text that must not control anything */
};

struct pl_encoder *pl_encoder_new(const struct pl_alloc *alloc, const struct pl_tokenizer *t);
void pl_encoder_free(struct pl_encoder *e); /* NULL is fine */
/* Appends the tokens of the text. NOMEM, LIMIT, or INVALID for a character that a tokenizer of characters does not know. */
enum pelago_status pl_encoder_run(struct pl_encoder *e, const void *text, size_t len,
                                  enum pl_specials specials, struct pl_ids *out, struct pl_error *err);

/* ---- decoding as a stream ---- */

enum { PL_DECODER_HOLD = 4 };

/* A token may end inside a character: what is not finished waits for the next one. Starts as zeros. */
struct pl_decoder {
    uint8_t held[PL_DECODER_HOLD];
    uint32_t held_len;
};

/* Appends what is ready after this token. OK or NOMEM, LIMIT of the buffer. id < vocab. */
enum pelago_status pl_decoder_push(struct pl_decoder *d, const struct pl_tokenizer *t, uint32_t id,
                                   struct pl_buf *out);
/* Appends what is still held, finished or not. */
enum pelago_status pl_decoder_finish(struct pl_decoder *d, struct pl_buf *out);

#endif
