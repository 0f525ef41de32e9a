/* tests/support/store_forge.h - store files written by hand: right checksums, any content. */
#ifndef PL_TESTS_STORE_FORGE_H
#define PL_TESTS_STORE_FORGE_H

#include "sim/disk.h"
#include "store/format.h"

extern const uint8_t forge_run_id[PL_RUN_ID_BYTES]; /* the one of memdisk.h's worlds */

/* A journal file. */
struct forge {
    uint8_t bytes[40000];
    size_t len;
    struct pl_segment_header head;
    uint64_t next_seq;
    uint64_t link;
};

void forge_begin(struct forge *f, uint64_t generation, uint64_t first_seq, uint64_t durable_seq,
                 uint64_t link);
/* The header of the next record, with a payload of zeros. */
struct pl_record_header forge_header(const struct forge *f, uint64_t length);
/* Adds a header, whatever it says, and `room` zero bytes. */
void forge_put(struct forge *f, const struct pl_record_header *h, size_t room);
/* Adds good records of 13 bytes. */
void forge_records(struct forge *f, uint32_t count);
void forge_store(const struct forge *f, struct pl_disk *disk);

/* A snapshot whose only section is the number of the record. */
void forge_snapshot(struct pl_disk *disk, uint64_t seq, uint64_t link, const uint8_t *run_id);

#endif
