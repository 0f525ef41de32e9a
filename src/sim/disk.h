/* sim/disk.h - a disk in memory that forgets, tears, fills up, rots and fails, by seed.
 *
 * It implements store/file.h and keeps two contents: what the process sees, and what a power cut would leave. Bytes
 * move from the first to the second when a file is synced, names when the directory is. There is no time in it: the
 * simulator adds delays around it.
 *
 * What a power cut does to writes since the last sync of their file: each is lost, kept, or torn (only a beginning of
 * it, or only some 512-byte sectors), in any combination; a lost sector reads as before, or as zeros, or as noise;
 * the file may be as long as it was without having the bytes. Creations, renames and removals since the last sync_dir
 * survive as a prefix or as any subset; each is atomic.
 *
 * After a failed sync the writes of that file are no longer waiting: any part of them is durable, a later sync does
 * not bring the rest, and reading shows either the new bytes or only what became durable. A disk of the worst kind,
 * but each of these has been seen on real ones.
 */
#ifndef PL_SIM_DISK_H
#define PL_SIM_DISK_H

#include "base/alloc.h"
#include "base/prng.h"
#include "store/file.h"

enum pl_disk_op {
    PL_DISK_READ,
    PL_DISK_WRITE,
    PL_DISK_SYNC,
    PL_DISK_META, /* create, truncate, rename, remove, sync of the directory */
    PL_DISK_OPS,
};

/* The operations `after` .. `after + times - 1` of a kind, counted from when the plan is made, return status. A
 * failed write may have written a beginning. */
struct pl_disk_fault {
    uint64_t after;
    uint64_t times; /* 0: no fault; UINT64_MAX: for ever */
    enum pelago_status status;
};

struct pl_disk_counts {
    uint64_t ops[PL_DISK_OPS];
    uint64_t bytes_written;
    uint64_t power_cuts;
};

struct pl_disk; /* owned by who made it */

/* NULL when memory is short. alloc is borrowed and outlives the disk. */
struct pl_disk *pl_disk_new(const struct pl_alloc *alloc, uint64_t seed);
void pl_disk_free(struct pl_disk *d); /* NULL is fine */

/* The table of operations over this disk. NOMEM from any of them leaves the disk as it was. */
struct pl_dir pl_disk_dir(struct pl_disk *d);

/* The power goes and comes back. Every open file is closed: handles must not be used again. Needs no memory. */
void pl_disk_power_cut(struct pl_disk *d);
/* Only the process died: files are closed, nothing is lost. */
void pl_disk_process_died(struct pl_disk *d);

/* From now on, after this many more changing operations (writes, syncs, names) the power is about to go: the next
 * one is still under way when it does, and everything returns IO until pl_disk_power_cut or pl_disk_process_died.
 * PL_NEVER switches it off. */
void pl_disk_dies_after(struct pl_disk *d, uint64_t changes);
bool pl_disk_is_dead(const struct pl_disk *d);

void pl_disk_set_fault(struct pl_disk *d, enum pl_disk_op op, struct pl_disk_fault fault);
/* Bytes all files together may have; a write that would pass it writes a beginning and returns FULL. */
void pl_disk_set_capacity(struct pl_disk *d, uint64_t bytes);

/* Flips bits of one stored byte. False: no such byte. */
bool pl_disk_rot(struct pl_disk *d, const char *name, uint64_t offset, uint8_t bits);

/* A file as the process sees it; NULL when there is none. Valid until the next change. */
const uint8_t *pl_disk_peek(const struct pl_disk *d, const char *name, uint64_t *bytes);
/* Makes a file with this content, durable at once, without counting or faults. */
enum pelago_status pl_disk_put(struct pl_disk *d, const char *name, const void *bytes, size_t len);

uint64_t pl_disk_used_bytes(const struct pl_disk *d);
struct pl_disk_counts pl_disk_counts(const struct pl_disk *d);

#endif
