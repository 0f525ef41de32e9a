/* store/store_int.h - what store.c and recover.c share. */
#ifndef PL_STORE_STORE_INT_H
#define PL_STORE_STORE_INT_H

#include "store/store.h"

/* Begins the journal file that holds the records from `start` on and makes it the store's journal. With carry, the
 * records from there to last_seq are copied from that scan (which stands at start). When it returns OK, everything up
 * to last_seq is durable. On failure the store's journal is as before, but may have been superseded on disk. */
enum pelago_status pl_store_begin_segment(struct pl_store *s, const struct pl_spot *start,
                                          struct pl_scan *carry, uint64_t last_seq, struct pl_error *err);

/* Is the last file, of so many bytes, copied as a whole rather than only its unproven end? Small ones are, so that
 * many short lives of the store do not leave many files. */
bool pl_store_carry_whole(const struct pl_store *s, uint64_t bytes);

/* Removes snapshots beyond the two newest good ones and journal files no kept snapshot needs. Errors do not matter:
 * what is left over is tried again. */
void pl_store_prune(struct pl_store *s);

/* The last record a journal file stands for: the one before the next file begins, or PL_COUNT_MAX. */
uint64_t pl_store_segment_last(const struct pl_store *s, uint32_t index);

void pl_store_remove_segment_file(const struct pl_store *s, uint64_t generation);

#endif
