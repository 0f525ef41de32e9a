/* data/ids.h - a growable list of token ids. */
#ifndef PL_DATA_IDS_H
#define PL_DATA_IDS_H

#include "base/alloc.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct pl_ids {
    uint32_t *at;
    size_t count, cap;
    const struct pl_alloc *alloc; /* borrowed; outlives the list */
};

static inline void pl_ids_init(struct pl_ids *ids, const struct pl_alloc *alloc)
{
    *ids = (struct pl_ids){NULL, 0, 0, alloc};
}

static inline void pl_ids_release(struct pl_ids *ids)
{
    pl_alloc_free(ids->alloc, ids->at, ids->cap * sizeof *ids->at);
    ids->at = NULL;
    ids->count = ids->cap = 0;
}

/* Room for n more; OK or NOMEM. */
static inline enum pelago_status pl_ids_reserve(struct pl_ids *ids, size_t n)
{
    if (n <= ids->cap - ids->count)
        return PELAGO_OK;
    size_t cap = ids->cap < 64 ? 64 : ids->cap;
    if (n > SIZE_MAX / sizeof *ids->at / 4 - ids->count)
        return PELAGO_NOMEM;
    while (cap - ids->count < n)
        cap *= 2;
    void *at =
        ids->alloc->resize(ids->alloc->user, ids->at, ids->cap * sizeof *ids->at, cap * sizeof *ids->at);
    if (at == NULL)
        return PELAGO_NOMEM;
    ids->at = at;
    ids->cap = cap;
    return PELAGO_OK;
}

static inline enum pelago_status pl_ids_push(struct pl_ids *ids, uint32_t id)
{
    PL_TRY(pl_ids_reserve(ids, 1));
    ids->at[ids->count++] = id;
    return PELAGO_OK;
}

#endif
