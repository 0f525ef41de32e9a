/* data/tokenizer_json.h - the parts of a tokenizer.json that say how text is treated before it meets the vocabulary, and
 * the writing of whole ones. */
#ifndef PL_DATA_TOKENIZER_JSON_H
#define PL_DATA_TOKENIZER_JSON_H

#include "base/buf.h"
#include "data/split.h"

#include <jansson.h>

/* Strict JSON, no key twice, at most PL_JSON_BYTES_MAX; the root is an object. The caller drops the reference. */
enum pelago_status pl_tokjson_parse(json_t **root, const void *text, size_t len, struct pl_error *err);

/* NULL and null are no normalizer. */
enum pelago_status pl_tokjson_read_normalizer(json_t *normalizer, bool *nfc, struct pl_error *err);
/* Adds the steps of a pre_tokenizer, which must be byte-level. */
enum pelago_status pl_tokjson_read_split(json_t *pre_tokenizer, struct pl_split *split, struct pl_error *err);
/* Nothing that changes the merging and is not supported. */
enum pelago_status pl_tokjson_check_bpe(json_t *model, struct pl_error *err);
/* Cuts text into single characters. */
enum pelago_status pl_tokjson_check_chars(json_t *pre_tokenizer, struct pl_error *err);

/* A whole tokenizer.json as text. Both take the references to their arguments, which may be NULL after a failure to make
 * them: then, too, the answer is NOMEM. `vocab` is an object from names to ids; <|endoftext|> in it becomes a special token. */
enum pelago_status pl_tokjson_write_bpe(json_t *vocab, json_t *merges, struct pl_buf *out,
                                        struct pl_error *err);
enum pelago_status pl_tokjson_write_chars(json_t *vocab, struct pl_buf *out, struct pl_error *err);

#endif
