/* data/batch.c - see batch.h. */
#include "data/batch.h"

#include "base/buf.h"
#include "base/check.h"
#include "base/limits.h"

#include <string.h>

/* A batch keeps a few dozen cores busy; a chunk is long enough to be worth a hand-over. */
enum { BATCH_BYTES = 32 << 20, CHUNK_BYTES = 256 << 10 };
_Static_assert(2 * BATCH_BYTES / CHUNK_BYTES <= PL_BATCH_CHUNKS_MAX, "a batch has room for its chunks");

struct pl_batch {
    const struct pl_alloc *alloc;
    struct pl_pool *pool;
    const struct pl_batch_ops *ops;
    void *user;
    bool cuts, open; /* the last document has text and no end yet */
    struct pl_buf text;
    struct pl_buf ends;      /* size_t: where documents end in the text */
    size_t enough;           /* length at which work begins */
    struct pl_chunk *chunks; /* [PL_BATCH_CHUNKS_MAX] of the batch under way */
};

struct pl_batch *pl_batch_new(const struct pl_alloc *alloc, struct pl_pool *pool, bool cuts,
                              const struct pl_batch_ops *ops, void *user)
{
    struct pl_batch *b = pl_alloc_zero(alloc, 1, sizeof *b);
    if (b == NULL)
        return NULL;
    *b = (struct pl_batch){
        .alloc = alloc, .pool = pool, .ops = ops, .user = user, .cuts = cuts, .enough = BATCH_BYTES};
    pl_buf_init(&b->text, alloc, PL_DOCUMENT_BYTES_MAX + BATCH_BYTES);
    pl_buf_init(&b->ends, alloc, SIZE_MAX / 2);
    b->chunks = pl_alloc_zero(alloc, PL_BATCH_CHUNKS_MAX, sizeof *b->chunks);
    if (b->chunks != NULL)
        return b;
    pl_batch_free(b);
    return NULL;
}

void pl_batch_free(struct pl_batch *b)
{
    if (b == NULL)
        return;
    pl_buf_release(&b->text);
    pl_buf_release(&b->ends);
    pl_alloc_free(b->alloc, b->chunks, PL_BATCH_CHUNKS_MAX * sizeof *b->chunks);
    pl_alloc_free(b->alloc, b, sizeof *b);
}

static const size_t *ends_of(const struct pl_batch *b, size_t *count)
{
    *count = b->ends.len / sizeof(size_t);
    return (const size_t *)(const void *)b->ends.data;
}

static bool is_cut(const uint8_t *text, size_t at)
{
    uint8_t before = text[at - 1] | 0x20;
    return text[at] == ' ' && before >= 'a' && before <= 'z';
}

/* The first place from `at` on where the document that ends at `end` may be cut; `end` when there is none. */
static size_t next_cut(const struct pl_batch *b, size_t at, size_t end)
{
    if (!b->cuts)
        return end;
    while (at < end && !is_cut(b->text.data, at))
        at++;
    return at;
}

static void run_chunk(void *user, uint32_t task, uint32_t thread)
{
    struct pl_batch *b = user;
    b->ops->run(b->user, task, thread, &b->chunks[task]);
}

/* One chunk from `start` on, of the text up to `limit`; *next is the number of the first document end after start and moves
 * on. The offsets of ends become the chunk's own. */
static size_t make_chunk(struct pl_batch *b, struct pl_chunk *chunk, size_t start, size_t limit, size_t *next)
{
    size_t count, first = *next, stop = start;
    (void)ends_of(b, &count);
    size_t *ends = (size_t *)(void *)b->ends.data;
    while (stop < limit && stop - start < CHUNK_BYTES) {
        size_t end = *next < count && ends[*next] < limit ? ends[*next] : limit;
        size_t wanted = start + CHUNK_BYTES;
        stop = end > wanted ? next_cut(b, wanted > stop ? wanted : stop + 1, end) : end;
        if (*next < count && stop == ends[*next])
            (*next)++;
    }
    for (size_t i = first; i < *next; i++)
        ends[i] -= start;
    *chunk = (struct pl_chunk){b->text.data + start, stop - start, first < *next ? ends + first : NULL,
                               *next - first};
    return stop;
}

/* Works on the first `limit` bytes of the text and drops them. */
static enum pelago_status work(struct pl_batch *b, size_t limit, struct pl_error *err)
{
    size_t start = 0, next = 0;
    while (start < limit) {
        uint32_t count = 0;
        while (start < limit && count < PL_BATCH_CHUNKS_MAX)
            start = make_chunk(b, &b->chunks[count++], start, limit, &next);
        pl_pool_run(b->pool, count, run_chunk, b);
        PL_TRY(b->ops->done(b->user, count, err));
    }
    pl_assert(next * sizeof(size_t) == b->ends.len);
    b->ends.len = 0;
    pl_buf_consume(&b->text, limit);
    b->enough = BATCH_BYTES;
    return PELAGO_OK;
}

/* How much of the text can be worked on before the document under way has ended. */
static size_t usable(const struct pl_batch *b)
{
    size_t count, at = b->text.len;
    const size_t *ends = ends_of(b, &count);
    size_t last = count > 0 ? ends[count - 1] : 0;
    if (!b->cuts || at == last)
        return last;
    for (at--; at > last; at--)
        if (is_cut(b->text.data, at))
            return at;
    return last;
}

static enum pelago_status take_text(void *user, const uint8_t *text, size_t len, struct pl_error *err)
{
    struct pl_batch *b = user;
    b->open = b->open || len > 0;
    while (len > 0) {
        size_t part = len < BATCH_BYTES ? len : BATCH_BYTES;
        enum pelago_status status = pl_buf_append(&b->text, text, part);
        if (status == PELAGO_NOMEM)
            return pl_fail(err, status, "there is no memory for the text");
        if (status != PELAGO_OK)
            return pl_fail(err, status, "a document of more than %lu MiB can not be cut into parts",
                           (uint64_t)b->text.len >> 20);
        text += part;
        len -= part;
        if (b->text.len < b->enough)
            continue;
        size_t limit = usable(b);
        if (limit > 0)
            PL_TRY(work(b, limit, err));
        else
            b->enough = 2 * b->text.len;
    }
    return PELAGO_OK;
}

static enum pelago_status take_end(void *user, struct pl_error *err)
{
    struct pl_batch *b = user;
    if (!b->open)
        return PELAGO_OK;
    b->open = false;
    if (pl_buf_append(&b->ends, &b->text.len, sizeof b->text.len) != PELAGO_OK)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for so many documents");
    return PELAGO_OK;
}

struct pl_text_sink pl_batch_sink(struct pl_batch *b)
{
    return (struct pl_text_sink){take_text, take_end, b};
}

enum pelago_status pl_batch_finish(struct pl_batch *b, struct pl_error *err)
{
    return work(b, b->text.len, err);
}
