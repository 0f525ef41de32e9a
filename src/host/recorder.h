/* host/recorder.h - every event a syncer's core is given, and what came out, in a file: for `pelago replay`.
 *
 * The core is a function of its events, so the file is the run again: a fresh core that takes them one after the other
 * must ask for the same effects, and stops at the same assertion. What is in a file:
 *
 *   head     "PELAGOR3", u32 shard, u32 learners_max, u32 conns_max, u32 length of the manifest, the manifest's payload,
 *            u32 fragments of the shard, u64 digest of version 0 for each, u64 hash of all that
 *   entries  u8 kind, u32 length, bytes, u64 hash of these three:
 *     1 load    the core's saved state, from a snapshot
 *     2 replay  one record of the journal (core/record.h)
 *     3 event   u8 kind of event, u64 now, its fields; u64 hash of the effects it led to
 *
 * Of DATA messages only the length of the chunk is there: tensors never pass through the core. The hash is of every field
 * of every effect. "PELAGOR1" and "PELAGOR2", which had less of both, are not replayed any more.
 *
 * While a syncer begins, its own thread writes. Once it serves learners a worker does, a buffer at a time; what comes
 * meanwhile waits in memory, and where the disk does not follow the file ends early rather than hold anybody up.
 */
#ifndef PL_HOST_RECORDER_H
#define PL_HOST_RECORDER_H

#include "base/alloc.h"
#include "core/syncer.h"

#include <uv.h>

struct pl_recorder;

/* Begins a file; one that exists is kept under the first free name of PATH.1, PATH.2, ... options as for the core, origin: digests of version 0 by local number. */
enum pelago_status pl_recorder_new(struct pl_recorder **out, const struct pl_alloc *alloc, const char *path,
                                   const struct pl_sync_options *options, const uint64_t *origin,
                                   struct pl_error *err);
/* From now on workers of this loop write. written(user) follows each time, on the loop's thread. */
void pl_recorder_use_workers(struct pl_recorder *r, uv_loop_t *loop, void (*written)(void *user), void *user);
/* A worker is writing: it must not be freed. NULL is fine. */
bool pl_recorder_busy(const struct pl_recorder *r);
void pl_recorder_free(struct pl_recorder *r); /* writes what is buffered; NULL is fine */

void pl_recorder_load(struct pl_recorder *r, const uint8_t *bytes, size_t len);
void pl_recorder_replay(struct pl_recorder *r, const uint8_t *record, size_t len);
/* After the step: the event and its effects, whose borrowed parts are still there. */
void pl_recorder_step(struct pl_recorder *r, const struct pl_sync_event *ev, const struct pl_sync_fxs *fxs);
/* Hands what is buffered to the system, or to a worker that does. */
void pl_recorder_flush(struct pl_recorder *r);
/* False once it was not possible to write: the file ends before that. Bytes so far. */
bool pl_recorder_good(const struct pl_recorder *r, uint64_t *bytes);

struct pl_replay_report {
    uint64_t events, records, messages;
    uint64_t first_ns, last_ns; /* of the events */
    uint32_t shard, fragments;
    bool cut; /* the file ends inside an entry: the process was killed */
    struct pl_sync_view view;
};

/* A file that somebody changed may stop at an assertion of the core, as a syncer that was told such things would.
 * Steps a fresh core through the file. line (may be NULL) gets a text for every event, with the core's trace lines after
 * it. CORRUPT with a sentence where the effects differ, or the file is none. */
enum pelago_status pl_recorder_run(const struct pl_alloc *alloc, const char *path,
                                   void (*line)(void *user, const char *text), void *user,
                                   struct pl_replay_report *report, struct pl_error *err);

#endif
