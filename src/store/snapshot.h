/* store/snapshot.h - one snapshot file: a few named sections, checksummed block by block.
 *
 * Written under a temporary name, synced, then renamed: a file with its real name was whole once. The writer needs
 * one block of memory, whatever the size of the sections; the reader hands over a block only after its checksum.
 */
#ifndef PL_STORE_SNAPSHOT_H
#define PL_STORE_SNAPSHOT_H

#include "store/journal.h"

enum { PL_BLOCK_MEMORY_BYTES = PL_BLOCK_BYTES + PL_HASH_BYTES };

struct pl_snapshot_writer {
    struct pl_dir dir;
    struct pl_file *file; /* NULL: no snapshot is being written */
    uint8_t *block;       /* [PL_BLOCK_MEMORY_BYTES], borrowed */
    size_t block_len;
    struct pl_snapshot_header header;
    uint32_t section; /* being filled */
    uint64_t left;    /* bytes of it still to come */
    uint64_t chain;   /* checksum of its last block */
    uint64_t offset;
};

/* After a failure of any of these the writer is good for pl_snapshot_discard only.
 * header: run, seq, link, section tags and lengths; checksums are filled in. */
enum pelago_status pl_snapshot_create(struct pl_snapshot_writer *w, struct pl_dir dir,
                                      const struct pl_snapshot_header *header, uint8_t *block,
                                      struct pl_error *err);
/* The bytes of all sections, one after the other, in pieces of any size. INVALID: more than announced. */
enum pelago_status pl_snapshot_write(struct pl_snapshot_writer *w, const void *data, size_t len,
                                     struct pl_error *err);
/* Writes the head and makes the content durable, still under the temporary name. INVALID: bytes are missing. */
enum pelago_status pl_snapshot_finish(struct pl_snapshot_writer *w, struct pl_error *err);
/* Closes the file, if there is one, and removes the temporary name, as far as that works. */
void pl_snapshot_discard(struct pl_snapshot_writer *w);

/* A piece of a section. Pieces come in the order of the file; an empty section comes as one empty piece. */
struct pl_piece {
    uint32_t tag;
    uint64_t section_length;
    uint64_t offset;     /* in the section */
    const uint8_t *data; /* borrowed during the call */
    size_t len;
};

typedef enum pelago_status pl_load_fn(void *user, const struct pl_piece *piece);

/* Reads the whole file and checks every byte of it. load may be NULL: then it is only checked. The
 * scratch has at least PL_BLOCK_MEMORY_BYTES. CORRUPT: damaged.
 * INVALID: it belongs to another run. Otherwise what load or the disk returned. */
enum pelago_status pl_snapshot_read(const struct pl_source *from, uint64_t seq,
                                    struct pl_snapshot_header *header, pl_load_fn *load, void *user,
                                    struct pl_error *err);

#endif
