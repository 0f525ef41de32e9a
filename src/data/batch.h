/* data/batch.h - work on text with all cores: documents go in, chunks of about equal size come out, many at a time.
 *
 * Where chunks begin and end depends on the text alone, never on the number of threads. A chunk ends with a document, or,
 * where that is allowed, before a space that follows an ASCII letter.
 */
#ifndef PL_DATA_BATCH_H
#define PL_DATA_BATCH_H

#include "base/alloc.h"
#include "base/pool.h"
#include "data/corpus.h"

#include <stdbool.h>

struct pl_chunk {
    const uint8_t *text;
    size_t len;
    const size_t *ends; /* [end_count] where documents end, from text on, rising, at most len */
    size_t end_count;
};

struct pl_batch_ops {
    /* On any thread, in any order: number from 0 in this batch. */
    void (*run)(void *user, uint32_t number, uint32_t thread, const struct pl_chunk *chunk);
    /* After `count` chunks, on the caller's thread. Anything but OK ends the work and is returned. */
    enum pelago_status (*done)(void *user, uint32_t count, struct pl_error *err);
};

/* Chunks of one batch, at most. */
enum { PL_BATCH_CHUNKS_MAX = 4096 };

struct pl_batch;

/* Everything given is borrowed. NULL when memory runs out. */
struct pl_batch *pl_batch_new(const struct pl_alloc *alloc, struct pl_pool *pool, bool cuts,
                              const struct pl_batch_ops *ops, void *user);
void pl_batch_free(struct pl_batch *b); /* NULL is fine */
/* Where documents go in; one without text is none. */
struct pl_text_sink pl_batch_sink(struct pl_batch *b);
/* Works on what is left. */
enum pelago_status pl_batch_finish(struct pl_batch *b, struct pl_error *err);

#endif
