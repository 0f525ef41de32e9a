/* support/check_rig.h - a hand-made history for the simulator's checkers: every line of it is said here, no core runs.
 *
 * Three learners (identities 11, 12, 13), quorum 2, period 8; fragment p of n is due at ticks p * 8 / n + k * 8. The
 * whole rounds of crig_round are as they should be; tests say single lines wrongly.
 */
#ifndef PL_TEST_CHECK_RIG_H
#define PL_TEST_CHECK_RIG_H

#include "sim/check.h"

enum { RIG_LEARNERS = 3, RIG_FRAGMENTS_MAX = 4, RIG_STEP_TOKENS = 10, RIG_INTERVAL_MS = 1000 };

struct check_rig {
    struct pl_alloc alloc;
    struct pl_checks *c;
    struct pl_msg_manifest manifest;
    uint8_t items[RIG_FRAGMENTS_MAX * PL_ITEM_FRAGMENT_BYTES];
    uint64_t identities[RIG_LEARNERS];
    uint64_t now;
    uint64_t seq;
    uint64_t epoch[2];
    uint64_t version[RIG_FRAGMENTS_MAX];
    uint64_t round[RIG_FRAGMENTS_MAX];
    uint64_t last_merged[RIG_LEARNERS][RIG_FRAGMENTS_MAX];
    uint64_t process[RIG_LEARNERS], steps[RIG_LEARNERS];
    struct pl_work work[RIG_LEARNERS][RIG_FRAGMENTS_MAX];
    struct pl_work copied[RIG_LEARNERS][RIG_FRAGMENTS_MAX];
    struct pl_msg_push push[RIG_LEARNERS][RIG_FRAGMENTS_MAX];
    struct pl_contributor contributors[RIG_LEARNERS];
};

void crig_init(struct check_rig *r, uint32_t fragments, uint32_t shards);
void crig_free(struct check_rig *r);

/* Passes when nothing failed; passes when this checker did. */
void crig_fine(const struct check_rig *r);
void crig_failed(const struct check_rig *r, const char *checker);

/* Life of a shard. Digest of version v of fragment p: crig_digest(p, v). */
uint64_t crig_digest(uint32_t fragment, uint64_t version);
void crig_boot(struct check_rig *r, uint32_t shard);
void crig_crash(struct check_rig *r, uint32_t shard);
void crig_event(struct check_rig *r, uint32_t shard, struct pl_sync_event ev);
void crig_effects(struct check_rig *r, uint32_t shard, struct pl_sync_effect *fx, uint32_t count);
void crig_effect(struct check_rig *r, uint32_t shard, struct pl_sync_effect fx);
void crig_store(struct check_rig *r, uint32_t shard, struct pl_record record, bool stored);

/* Sessions: control is connection 2 * learner, bulk the next. */
void crig_hello(struct check_rig *r, uint32_t shard, uint32_t learner, uint64_t incarnation);
void crig_join(struct check_rig *r, uint32_t shard, uint32_t learner, uint64_t incarnation);
void crig_leave(struct check_rig *r, uint32_t shard, uint32_t learner);
void crig_message(struct check_rig *r, uint32_t shard, uint32_t conn, struct pl_msg msg);
void crig_send(struct check_rig *r, uint32_t shard, uint32_t conn, struct pl_msg msg);

/* A learner trains: one step of RIG_STEP_TOKENS, in all fragments. */
void crig_step(struct check_rig *r, uint32_t learner);

/* The stages of a round, in order. */
void crig_pull(struct check_rig *r, uint32_t learner, uint32_t fragment, uint64_t tick);
void crig_copy(struct check_rig *r, uint32_t learner, uint32_t fragment);
void crig_push(struct check_rig *r, uint32_t learner, uint32_t fragment);
void crig_tick(struct check_rig *r, uint32_t shard, uint64_t tick);
struct pl_sync_effect crig_merge_effect(struct check_rig *r, uint32_t fragment, uint32_t learners); /* mask */
void crig_merged(struct check_rig *r, uint32_t fragment, uint64_t digest);
void crig_store_round(struct check_rig *r, uint32_t fragment, uint32_t learners, bool stored);
void crig_publish(struct check_rig *r, uint32_t fragment);
struct pl_sync_effect crig_deliver_effect(struct check_rig *r, uint32_t learner, uint32_t fragment,
                                          uint64_t last_merged);

/* All of it: these learners train, are pulled, push, are merged; the version is stored, published, sent to everybody
 * and applied. */
void crig_round(struct check_rig *r, uint32_t fragment, uint64_t tick, uint32_t learners);

#endif
