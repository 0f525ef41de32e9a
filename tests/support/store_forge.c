/* tests/support/store_forge.c - see store_forge.h. */
#include "store_forge.h"

#include "base/hash.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

const uint8_t forge_run_id[PL_RUN_ID_BYTES] = {'r', 'u', 'n'};

void forge_begin(struct forge *f, uint64_t generation, uint64_t first_seq, uint64_t durable_seq,
                 uint64_t link)
{
    f->head = (struct pl_segment_header){.generation = generation,
                                         .owner_epoch = 1,
                                         .first_seq = first_seq,
                                         .durable_seq = durable_seq,
                                         .link = link};
    memcpy(f->head.run_id, forge_run_id, PL_RUN_ID_BYTES);
    pl_segment_header_put(&f->head, f->bytes);
    f->len = PL_SEGMENT_HEADER_BYTES;
    f->next_seq = first_seq;
    f->link = link;
}

struct pl_record_header forge_header(const struct forge *f, uint64_t length)
{
    static const uint8_t zeros[8192];
    return (struct pl_record_header){.seq = f->next_seq,
                                     .length = length,
                                     .durable_seq = f->next_seq - 1,
                                     .link = f->link,
                                     .payload_hash = pl_hash64(zeros, (size_t)pl_padded(length), 0)};
}

void forge_put(struct forge *f, const struct pl_record_header *h, size_t room)
{
    assert_true(f->len + PL_RECORD_HEADER_BYTES + room <= sizeof f->bytes);
    pl_record_header_put(h, pl_segment_seed(forge_run_id, f->head.generation), f->bytes + f->len);
    memset(f->bytes + f->len + PL_RECORD_HEADER_BYTES, 0, room);
    f->len += PL_RECORD_HEADER_BYTES + room;
}

void forge_records(struct forge *f, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct pl_record_header h = forge_header(f, 13);
        forge_put(f, &h, 16);
        f->link = pl_link_next(&h);
        f->next_seq++;
    }
}

void forge_store(const struct forge *f, struct pl_disk *disk)
{
    char name[PL_FILE_NAME_MAX];
    pl_segment_name(f->head.generation, name);
    assert_int_equal(pl_disk_put(disk, name, f->bytes, f->len), PELAGO_OK);
}

void forge_snapshot(struct pl_disk *disk, uint64_t seq, uint64_t link, const uint8_t *run_id)
{
    uint8_t bytes[PL_SNAPSHOT_HEAD_MAX + 16];
    char name[PL_FILE_NAME_MAX];
    struct pl_snapshot_header h = {
        .seq = seq, .link = link, .section_count = 1, .sections = {{.tag = 1, .length = 8}}};
    memcpy(h.run_id, run_id, sizeof h.run_id);
    uint8_t *block = bytes + pl_snapshot_head_bytes(1);
    pl_put_le(block, seq, 8);
    h.sections[0].hash = pl_hash64(block, 8, pl_section_seed(&h, 0));
    pl_put_le(block + 8, h.sections[0].hash, 8);
    size_t len = pl_snapshot_header_put(&h, bytes);
    pl_put_le(bytes + len, seq, 8);
    pl_put_le(bytes + len + 8, h.sections[0].hash, 8);
    pl_snapshot_name(seq, name);
    assert_int_equal(pl_disk_put(disk, name, bytes, len + 16), PELAGO_OK);
}
