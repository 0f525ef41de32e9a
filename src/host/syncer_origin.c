/* host/syncer_origin.c - version 0 of a shard's fragments: made from the run's seed, or only its digests known.
 *
 * A shard that has a snapshot needs nothing of version 0 but the digests, for learners that begin; making it takes seconds
 * for a large model. So the digests are kept in FOLDER/origin, and the values are made when nothing else gives them:
 *
 *   8 bytes "PLORIGN1", u64 digest of the manifest, u64 digest of each fragment of this shard, u64 hash of all before
 *
 * A file that is not there, of another run or damaged is made again.
 */
#include "host/syncer_host_int.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/hash.h"
#include "host/home.h"

#include <string.h>

static const char file[] = "origin";
static const char magic[8] = {'P', 'L', 'O', 'R', 'I', 'G', 'N', '1'};
enum { HEAD_BYTES = 16, HASH_BYTES = 8 };

bool pl_origin_fill(struct pl_syncer_host *h)
{
    size_t bytes = h->layout.tensors.floats * sizeof(float);
    float *block = pl_alloc_zero(&h->alloc, 1, bytes);
    if (block == NULL)
        return false;
    pl_layout_origin(&h->layout, h->settings.trainer.seed, block);
    for (uint32_t i = 0; i < h->fragment_count; i++) {
        const struct pl_shard_fragment *f = &h->fragments[i];
        pl_layout_gather(&h->layout, f->number, block, f->values->theta);
        memcpy(f->values->broadcast, f->values->theta, f->count * sizeof(float));
        memset(f->values->momentum, 0, f->count * sizeof(float));
    }
    pl_alloc_free(&h->alloc, block, bytes);
    h->has_values = true;
    return true;
}

static size_t file_bytes(const struct pl_syncer_host *h)
{
    return HEAD_BYTES + (size_t)h->fragment_count * 8 + HASH_BYTES;
}

static bool read_file(struct pl_syncer_host *h, uint64_t *digests)
{
    struct pl_buf text;
    size_t bytes = file_bytes(h);
    pl_buf_init(&text, &h->alloc, bytes);
    bool good = pl_home_read(h->dir, file, &text, NULL) == PELAGO_OK && text.len == bytes &&
                memcmp(text.data, magic, sizeof magic) == 0 &&
                pl_get_le(text.data + 8, 8) == h->manifest.digest &&
                pl_get_le(text.data + bytes - HASH_BYTES, 8) == pl_hash64(text.data, bytes - HASH_BYTES, 0);
    for (uint32_t i = 0; good && i < h->fragment_count; i++)
        digests[i] = pl_get_le(text.data + HEAD_BYTES + 8 * (size_t)i, 8);
    pl_buf_release(&text);
    return good;
}

/* Where it cannot be written the next start takes longer, and that is all. */
static void write_file(struct pl_syncer_host *h, const uint64_t *digests)
{
    size_t bytes = file_bytes(h);
    uint8_t *text = pl_alloc_zero(&h->alloc, 1, bytes);
    if (text == NULL)
        return;
    memcpy(text, magic, sizeof magic);
    pl_put_le(text + 8, h->manifest.digest, 8);
    for (uint32_t i = 0; i < h->fragment_count; i++)
        pl_put_le(text + HEAD_BYTES + 8 * (size_t)i, digests[i], 8);
    pl_put_le(text + bytes - HASH_BYTES, pl_hash64(text, bytes - HASH_BYTES, 0), 8);
    (void)pl_home_write(h->dir, file, (struct pl_bytes){text, bytes}, false, NULL);
    pl_alloc_free(&h->alloc, text, bytes);
}

static enum pelago_status find(struct pl_syncer_host *h, uint64_t *digests, struct pl_error *err)
{
    if (read_file(h, digests))
        return PELAGO_OK;
    if (!pl_origin_fill(h))
        return pl_fail(err, PELAGO_NOMEM, "there is no memory to make the model: 4 bytes a parameter more");
    for (uint32_t i = 0; i < h->fragment_count; i++)
        digests[i] = pl_values_digest(h->fragments[i].values->broadcast, h->fragments[i].count);
    write_file(h, digests);
    return PELAGO_OK;
}

enum pelago_status pl_origin_tell(struct pl_syncer_host *h, struct pl_error *err)
{
    uint64_t *digests = pl_alloc_zero(&h->alloc, h->fragment_count, sizeof *digests);
    if (digests == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for %u fragments", h->fragment_count);
    enum pelago_status st = find(h, digests, err);
    for (uint32_t i = 0; st == PELAGO_OK && i < h->fragment_count; i++)
        pl_syncer_set_origin(h->core, h->fragments[i].number, digests[i]);
    if (st == PELAGO_OK && h->o.record != NULL)
        st = pl_recorder_new(&h->recorder, &h->alloc, h->o.record, &h->options, digests, err);
    pl_alloc_free(&h->alloc, digests, h->fragment_count * sizeof *digests);
    return st;
}
