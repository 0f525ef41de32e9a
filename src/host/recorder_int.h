/* host/recorder_int.h - what recorder.c and recorder_run.c share: the bytes of entries. */
#ifndef PL_HOST_RECORDER_INT_H
#define PL_HOST_RECORDER_INT_H

#include "base/buf.h"
#include "host/recorder.h"

#define PL_RECORDER_MAGIC "PELAGOR3"
#define PL_RECORDER_OLDEST "PELAGOR1"
enum { PL_ENTRY_LOAD = 1, PL_ENTRY_REPLAY = 2, PL_ENTRY_EVENT = 3, PL_ENTRY_HEAD_BYTES = 5 };
enum { PL_ENTRY_TAIL_BYTES = 8 }; /* the hash */

/* A hash of effects by their meaning: no padding, no pointers. scratch is a buffer to write them into. */
uint64_t pl_effects_hash(const struct pl_sync_fxs *fxs, struct pl_buf *scratch, bool *good);

#endif
