/* tests/support/memdisk.c - see memdisk.h. */
#include "memdisk.h"

#include "base/check.h"
#include "base/hash.h"
#include "base/num.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void *counting_resize(void *user, void *block, size_t old_bytes, size_t new_bytes)
{
    struct counting_alloc *a = user;
    if (new_bytes == 0) {
        a->bytes -= (int64_t)old_bytes;
        free(block);
        return NULL;
    }
    uint64_t n = a->requests++;
    if (n >= a->fail_at && n - a->fail_at < a->fail_times)
        return NULL;
    void *more = realloc(block, new_bytes);
    assert_non_null(more);
    a->bytes += (int64_t)new_bytes - (int64_t)old_bytes;
    return more;
}

void counting_alloc_init(struct counting_alloc *a)
{
    *a = (struct counting_alloc){.alloc = {counting_resize, a}, .fail_at = PL_NEVER};
}

void world_init(struct world *w, uint64_t seed)
{
    memset(w, 0, sizeof *w);
    counting_alloc_init(&w->memory);
    w->disk = pl_disk_new(&w->memory.alloc, seed);
    assert_non_null(w->disk);
    pl_prng_seed(&w->prng, seed, 1);
    w->filler_bytes = 1000;
    w->options = (struct pl_store_options){.run_id = {'r', 'u', 'n'},
                                           .record_bytes_max = WORLD_RECORD_BYTES_MAX,
                                           .segment_bytes = 12000,
                                           .snapshot_after_bytes = 30000,
                                           .scratch = w->scratch,
                                           .scratch_bytes = sizeof w->scratch};
    assert_true(pl_store_scratch_bytes(WORLD_RECORD_BYTES_MAX) <= sizeof w->scratch);
}

void world_release(struct world *w)
{
    pl_disk_free(w->disk);
    assert_int_equal(w->memory.bytes, 0);
}

size_t world_record(uint64_t stamp, uint8_t out[static WORLD_RECORD_BYTES_MAX], uint32_t *type)
{
    struct pl_prng r;
    pl_prng_seed(&r, stamp, 7);
    size_t len = (size_t)pl_prng_below(&r, pl_prng_below(&r, 4) == 0 ? 3000 : 200);
    *type = (uint32_t)pl_prng_next(&r);
    for (size_t i = 0; i < len; i++)
        out[i] = (uint8_t)pl_prng_next(&r);
    return len;
}

static uint64_t digest_after(uint64_t before, const uint8_t *data, size_t len, uint32_t type)
{
    return pl_hash64(data, len, before + type);
}

static enum pelago_status load(void *user, const struct pl_piece *piece)
{
    struct world *w = user;
    if (piece->tag == WORLD_TAG_STATE) {
        assert_int_equal(piece->section_length, sizeof w->snapshot_state);
        assert_int_equal(piece->len, sizeof w->snapshot_state);
        w->read_seq = pl_get_le(piece->data, 8);
        w->read_digest = pl_get_le(piece->data + 8, 8);
    } else if (piece->tag == WORLD_TAG_FILLER) {
        assert_int_equal(piece->section_length, w->filler_bytes);
        assert_int_equal(piece->offset, w->filler_read);
        for (size_t i = 0; i < piece->len; i++)
            assert_int_equal(piece->data[i], (uint8_t)(w->read_digest + (w->filler_read + i) * 7));
        w->filler_read += piece->len;
    } else {
        assert_int_equal(piece->tag, WORLD_TAG_EMPTY);
        assert_int_equal(piece->len, 0);
    }
    return PELAGO_OK;
}

static enum pelago_status replay(void *user, const struct pl_store_record *record)
{
    struct world *w = user;
    uint8_t expected[WORLD_RECORD_BYTES_MAX];
    uint32_t type;
    assert_int_equal(record->seq, w->read_seq + 1);
    assert_in_range(record->seq, 1, w->maybe_seq);
    size_t len = world_record(w->stamps[record->seq], expected, &type);
    assert_int_equal(record->len, len);
    assert_int_equal(record->type, type);
    assert_memory_equal(record->data, expected, len);
    w->read_seq = record->seq;
    w->read_digest = digest_after(w->read_digest, record->data, record->len, record->type);
    return PELAGO_OK;
}

enum pelago_status world_open(struct world *w)
{
    const struct pl_store_reader reader = {load, replay, w};
    pl_assert(!w->open);
    w->read_seq = w->read_digest = w->filler_read = 0;
    enum pelago_status st =
        pl_store_open(&w->store, pl_disk_dir(w->disk), &w->options, &reader, &w->report, &w->error);
    if (st != PELAGO_OK)
        return st;
    assert_in_range(w->read_seq, w->acked_seq, w->maybe_seq);
    assert_int_equal(w->read_digest, w->digests[w->read_seq]);
    assert_int_equal(w->filler_read, w->report.has_snapshot ? w->filler_bytes : 0);
    assert_int_equal(pl_store_last_seq(&w->store), w->read_seq);
    assert_int_equal(pl_store_durable_seq(&w->store), w->read_seq);
    assert_int_equal(w->report.replayed + w->report.snapshot_seq, w->read_seq);
    w->last_seq = w->maybe_seq = w->acked_seq = w->read_seq;
    w->open = true;
    return PELAGO_OK;
}

enum pelago_status world_append(struct world *w)
{
    uint8_t data[WORLD_RECORD_BYTES_MAX];
    uint32_t type;
    uint64_t seq = 0;
    size_t len = world_record(++w->stamp, data, &type);
    size_t a = (size_t)pl_prng_below(&w->prng, len + 1);
    const struct pl_bytes parts[] = {{data, a}, {data + a, len - a}, {NULL, 0}};
    pl_assert(w->last_seq + 1 < WORLD_RECORDS_MAX);
    uint64_t next = w->last_seq + 1;
    enum pelago_status st = pl_store_append(&w->store, type, parts, 3, &seq, &w->error);
    w->stamps[next] = w->stamp;
    w->digests[next] = digest_after(w->digests[next - 1], data, len, type);
    w->maybe_seq = next;
    if (st != PELAGO_OK)
        return st;
    w->last_seq = next;
    assert_int_equal(seq, next);
    return PELAGO_OK;
}

enum pelago_status world_sync(struct world *w)
{
    enum pelago_status st = pl_store_sync(&w->store, &w->error);
    if (st == PELAGO_OK)
        w->acked_seq = w->last_seq;
    assert_true(pl_store_durable_seq(&w->store) >= w->acked_seq);
    return st;
}

static enum pelago_status write_filler(struct world *w, uint64_t digest)
{
    uint8_t piece[5000];
    for (uint64_t at = 0; at < w->filler_bytes;) {
        size_t n = (size_t)pl_min64(w->filler_bytes - at, 1 + pl_prng_below(&w->prng, sizeof piece));
        for (size_t i = 0; i < n; i++)
            piece[i] = (uint8_t)(digest + (at + i) * 7);
        PL_TRY(pl_store_snapshot_write(&w->store, piece, n, &w->error));
        at += n;
        if (!w->quiet && pl_prng_below(&w->prng, 4) == 0 && pl_store_failure(&w->store) == PELAGO_OK)
            world_append(w);
    }
    return PELAGO_OK;
}

enum pelago_status world_snapshot(struct world *w)
{
    const struct pl_section sections[] = {{.tag = WORLD_TAG_STATE, .length = 16},
                                          {.tag = WORLD_TAG_EMPTY},
                                          {.tag = WORLD_TAG_FILLER, .length = w->filler_bytes}};
    uint8_t state[16];
    PL_TRY(pl_store_snapshot_begin(&w->store, sections, 3, &w->error));
    assert_int_equal(pl_store_durable_seq(&w->store), w->last_seq);
    w->acked_seq = w->last_seq;
    uint64_t digest = w->digests[w->last_seq];
    pl_put_le(state, w->last_seq, 8);
    pl_put_le(state + 8, digest, 8);
    PL_TRY(pl_store_snapshot_write(&w->store, state, sizeof state, &w->error));
    PL_TRY(write_filler(w, digest));
    return pl_store_snapshot_commit(&w->store, &w->error);
}

enum pelago_status world_resume(struct world *w)
{
    bool stopped = pl_store_failure(&w->store) != PELAGO_OK;
    enum pelago_status st = pl_store_resume(&w->store, &w->error);
    if (st != PELAGO_OK || !stopped)
        return st;
    assert_in_range(pl_store_last_seq(&w->store), w->acked_seq, w->last_seq);
    assert_int_equal(pl_store_durable_seq(&w->store), pl_store_last_seq(&w->store));
    w->last_seq = w->maybe_seq = w->acked_seq = pl_store_last_seq(&w->store);
    return PELAGO_OK;
}

void world_close(struct world *w)
{
    if (w->open && pl_store_close(&w->store, &w->error) == PELAGO_OK)
        w->acked_seq = w->last_seq;
    w->open = false;
}

void world_power_cut(struct world *w)
{
    pl_disk_power_cut(w->disk);
    w->open = false;
}

void world_process_dies(struct world *w)
{
    pl_disk_process_died(w->disk);
    w->open = false;
}

enum pelago_status world_act(struct world *w)
{
    uint64_t dice = pl_prng_below(&w->prng, 100);
    if (pl_store_failure(&w->store) != PELAGO_OK)
        return world_resume(w);
    if (dice < 45)
        return world_append(w);
    if (dice < 88)
        return world_sync(w);
    if (!w->no_snapshots && (dice < 92 || pl_store_wants_snapshot(&w->store)))
        return world_snapshot(w);
    if (dice < 97)
        world_close(w);
    else
        world_process_dies(w);
    return world_open(w);
}
