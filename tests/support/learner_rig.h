/* support/learner_rig.h - drives a learner by hand: one event in, the effects of that step to look at.
 *
 * The manifest has two shards and three fragments (0 and 2 at shard 0, 1 at shard 1), staleness_max 2,
 * 1000 tokens a work unit. After every step the learner's invariants are checked and every message sent
 * is encoded.
 */
#ifndef PL_TEST_LEARNER_RIG_H
#define PL_TEST_LEARNER_RIG_H

#include "core/learner.h"

#define RIG_INCARNATION UINT64_C(0x100000001)

enum {
    RIG_RUN = 0x77,
    RIG_DIGEST = 0x4444, /* of the manifest */
    RIG_FRAGMENTS = 3,
    RIG_FULL_BYTES = 40000, /* three chunks */
    RIG_UPDATE_BYTES = 20000,
};

struct lrig {
    struct pl_learn_options options;
    struct pl_learner *l;
    struct pl_learn_fxs out;
    uint64_t now_ns;
    void *memory;
    struct pl_msg_manifest manifest;
    struct pl_msg msg; /* the last one delivered: effects may point into it */
    uint8_t items[RIG_FRAGMENTS * PL_ITEM_FRAGMENT_BYTES];
};

void lrig_init(struct lrig *r, const struct pl_learn_options *options);
void lrig_release(struct lrig *r);
void lrig_fragment(struct lrig *r, uint32_t i, const struct pl_item_fragment *f); /* changes the manifest */

/* Events. lrig_event fills in the time. */
void lrig_event(struct lrig *r, struct pl_learn_event ev);
void lrig_start(struct lrig *r);
void lrig_opened(struct lrig *r, uint32_t shard, enum pl_link link);
void lrig_closed(struct lrig *r, uint32_t shard, enum pl_link link);
void lrig_msg(struct lrig *r, uint32_t shard, enum pl_link link, struct pl_msg msg);
void lrig_ready(struct lrig *r);
void lrig_trained(struct lrig *r, uint64_t tokens); /* one step without a unit */
void lrig_copied(struct lrig *r, uint32_t fragment, uint64_t round, uint64_t bytes);
void lrig_decoded(struct lrig *r, uint32_t fragment, uint64_t version, bool good);
void lrig_applied(struct lrig *r, uint32_t fragment, uint64_t version);
void lrig_timeout(struct lrig *r); /* at the deadline */

/* Common messages. */
struct pl_msg lrig_welcome(uint32_t shard);
void lrig_pull(struct lrig *r, uint32_t fragment, uint64_t round, uint64_t base);
struct pl_msg lrig_update(uint32_t fragment, uint64_t from, uint64_t to, uint64_t last_merged);
void lrig_data(struct lrig *r, uint32_t fragment, uint64_t id, uint64_t bytes, uint32_t index);
/* Header and every chunk; the last effect is then DECODE. */
void lrig_deliver(struct lrig *r, struct pl_msg update);
/* ... then DECODED good; returns the APPLY effect. */
const struct pl_learn_effect *lrig_decide(struct lrig *r, struct pl_msg update);

/* From START to live sessions with bulk connections, both shards. */
void lrig_live(struct lrig *r);
void lrig_home_live(struct lrig *r);            /* ... shard 0 only, shard 1 still dialling */
void lrig_join(struct lrig *r, uint32_t shard); /* OPENED to ATTACHED of a session that is dialling */

/* Effects of the last step. */
const struct pl_learn_effect *lrig_find(const struct lrig *r, enum pl_learn_fx kind); /* the first, or NULL */
uint32_t lrig_count(const struct lrig *r, enum pl_learn_fx kind);
const struct pl_msg *lrig_sent(const struct lrig *r, uint32_t shard, uint8_t type); /* or NULL */
/* The step disconnected this link for this reason, with a text that contains the words. */
void lrig_expect_disconnect(const struct lrig *r, uint32_t shard, enum pl_link link, enum pl_reason reason,
                            const char *words);
void lrig_expect_fatal(const struct lrig *r, const char *words);
void lrig_expect_quiet(const struct lrig *r); /* no effects at all */

#endif
