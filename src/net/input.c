/* net/input.c - the buffer that a connection reads into: bytes are taken at one end and come in at the other. */
#include "net/conn_int.h"

#include "base/check.h"

bool pl_input_reserve(struct pl_input *in, const struct pl_alloc *alloc, size_t cap)
{
    size_t have = in->end - in->at;
    pl_assert(in->at <= in->end && in->end <= in->cap);
    if (in->at > 0 && (have == 0 || in->cap - in->at < cap)) {
        memmove(in->bytes, in->bytes + in->at, have);
        in->at = 0;
        in->end = have;
    }
    if (in->cap - in->at >= cap)
        return true;
    uint8_t *bytes = alloc->resize(alloc->user, in->bytes, in->cap, cap);
    if (bytes == NULL)
        return false;
    in->bytes = bytes;
    in->cap = cap;
    return true;
}

void pl_input_release(struct pl_input *in, const struct pl_alloc *alloc)
{
    pl_alloc_free(alloc, in->bytes, in->cap);
    in->bytes = NULL;
    in->cap = in->at = in->end = 0;
}
