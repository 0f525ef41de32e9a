/* data/tales.c - the stories of a seed, one by one or as a stream. */
#include "data/tales.h"
#include "data/tales_int.h"

#include "base/check.h"

#include <string.h>

enum pelago_status pl_tales_open(const struct pl_alloc *alloc, struct pl_tales **out)
{
    struct pl_tales *t = pl_alloc_zero(alloc, 1, sizeof *t);
    if (t == NULL)
        return PELAGO_NOMEM;
    t->alloc = *alloc;
    pl_tales_load_words(t);
    pl_tales_compile(t);
    pl_tales_make_world(t);
    *out = t;
    return PELAGO_OK;
}

void pl_tales_close(struct pl_tales *tales)
{
    if (tales == NULL)
        return;
    struct pl_alloc alloc = tales->alloc;
    pl_alloc_free(&alloc, tales, sizeof *tales);
}

enum pelago_status pl_tales_story(const struct pl_tales *tales, uint64_t seed, enum pl_tales_split split,
                                  uint64_t index, struct pl_buf *out, double *nats)
{
    struct pl_tale s;
    pl_tale_start(&s, tales);
    pl_assert(index < UINT64_C(1) << 63);
    pl_prng_seed(&s.prng, seed, index * 2 + (split == PL_TALES_VALID ? 1 : 0));
    pl_tale_tell(&s);
    const size_t separator = sizeof PL_TALES_SEPARATOR - 1;
    PL_TRY(pl_buf_reserve(out, s.len + separator));
    memcpy(out->data + out->len, s.text, s.len);
    memcpy(out->data + out->len + s.len, PL_TALES_SEPARATOR, separator);
    out->len += s.len + separator;
    if (nats != NULL)
        *nats += s.nats;
    return PELAGO_OK;
}

enum pelago_status pl_tales_read(struct pl_tales_stream *stream, uint64_t min_bytes, struct pl_buf *out)
{
    size_t start = out->len;
    while (out->len - start < min_bytes) {
        size_t before = out->len;
        PL_TRY(pl_tales_story(stream->tales, stream->seed, stream->split, stream->next, out, &stream->nats));
        stream->next++;
        stream->bytes += out->len - before;
    }
    return PELAGO_OK;
}
