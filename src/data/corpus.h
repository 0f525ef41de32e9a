/* data/corpus.h - documents out of text files.
 *
 * .jsonl is one JSON object a line with the document in its field "text". Everything else is plain text whose documents are
 * separated by a line <|endoftext|>; that line, with its line end, belongs to no document. Either may be packed (.zst).
 * A file ends a document, too, and a document without text is none.
 */
#ifndef PL_DATA_CORPUS_H
#define PL_DATA_CORPUS_H

#include "base/alloc.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

/* Who takes documents: text in any number of parts, then its end. Anything but OK stops the reading and is returned. */
struct pl_text_sink {
    enum pelago_status (*text)(void *user, const uint8_t *text, size_t len, struct pl_error *err);
    enum pelago_status (*end)(void *user, struct pl_error *err);
    void *user;
};

/* Reads all files in order. Errors name the file, and the line where there is one. No text at all is an error, too. */
enum pelago_status pl_corpus_read(const struct pl_alloc *alloc, const char *const *paths, size_t count,
                                  const struct pl_text_sink *sink, struct pl_error *err);

#endif
