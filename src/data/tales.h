/* data/tales.h - the built-in corpus `builtin:tales`: short English stories, any number of them, from a seed.
 *
 * A story is a pure function of (seed, split, index), so that stories can be made in any order, by any number of
 * threads. All seeds share one world: 1,536 people, 96 villages and the roads between them, each with fixed
 * attributes that a model can learn by heart, the famous ones sooner than the others. Within a story people walk, carry
 * and give away things, buy and count, and are asked at the end where things are and how many are left; the answers
 * are always right. Each of the 48 tellers has habits of speech, which show from the first sentence to the last.
 *
 * Every random choice goes through one function that adds -ln p. No two sequences of choices give the same text
 * (tests/unit/test_data_tales.c parses stories back to show it), so the sum is exactly -ln p(story): the loss of a
 * reader who knows the generator by heart. No model can have a lower expected loss; it is the floor.
 *
 * Text: ASCII, a paragraph a line, each story followed by the line <|endoftext|>.
 */
#ifndef PL_DATA_TALES_H
#define PL_DATA_TALES_H

#include "base/alloc.h"
#include "base/buf.h"
#include "base/status.h"

#include <stdint.h>

#define PL_TALES_STORY_BYTES_MAX 8192 /* of one story, its separator included */
#define PL_TALES_SEPARATOR "<|endoftext|>\n"

enum pl_tales_split { PL_TALES_TRAIN, PL_TALES_VALID };

struct pl_tales; /* the world and the sentences; some 300 KB; never changes once it is open */

/* *out is for pl_tales_close. Any number of threads may read one. NOMEM when memory is short. */
enum pelago_status pl_tales_open(const struct pl_alloc *alloc, struct pl_tales **out);
void pl_tales_close(struct pl_tales *tales);

/* Appends story `index` and its separator to *out and adds the nats of its choices to *nats (may be NULL). Fails only
 * as pl_buf_append does, and then appends nothing. */
enum pelago_status pl_tales_story(const struct pl_tales *tales, uint64_t seed, enum pl_tales_split split,
                                  uint64_t index, struct pl_buf *out, double *nats);

/* A place in the endless text of (seed, split): the first n bytes of a split are what the first calls give. */
struct pl_tales_stream {
    const struct pl_tales *tales; /* borrowed */
    uint64_t seed;
    enum pl_tales_split split;
    uint64_t next;  /* index of the next story */
    uint64_t bytes; /* given so far */
    double nats;    /* and their floor; nats / bytes is the lowest loss in nats per byte */
};

/* Whole stories, at least min_bytes of text of them, appended to *out. */
enum pelago_status pl_tales_read(struct pl_tales_stream *stream, uint64_t min_bytes, struct pl_buf *out);

#endif
