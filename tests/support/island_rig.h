/* support/island_rig.h - learners that have no trainer, for tests of the syncer's host: real sockets, the real protocol
 * spoken by hand, contributions made up from the anchor. They check what they get: every version's digest.
 */
#ifndef PL_TEST_ISLAND_RIG_H
#define PL_TEST_ISLAND_RIG_H

#include "codec/pack.h"
#include "host/layout.h"
#include "net/conn.h"

/* A run's settings, layout and manifest, as both sides compute them. */
struct island_run {
    struct pl_alloc alloc;
    struct pl_settings settings;
    struct pl_layout layout;
    struct pl_manifest manifest;
};
/* A model of a few ten thousand parameters; change settings before island_run_build. */
void island_run_defaults(struct island_run *r, uint32_t learners);
void island_run_build(struct island_run *r);
void island_run_release(struct island_run *r);

struct island_fragment {
    float *anchor, *incoming;
    uint64_t version, digest;
    uint64_t pushed_steps; /* of all steps, what the last push covered */
    uint64_t last_merged;
    struct pl_msg_update header; /* bytes 0: none on its way */
    uint8_t *payload;
    uint64_t mask;
    struct pl_msg_pull asked; /* round 0: nothing to answer */
};

struct island {
    struct island_run *run;
    uv_loop_t *loop;
    struct pl_credentials own;
    char address[PL_ADDRESS_MAX];
    uint32_t shard;
    uint64_t step_ms; /* pace */
    /* Misbehaviour. */
    float scale;          /* of contributions; 1 */
    uint64_t claim_steps; /* added to the steps of every push */
    uint64_t again_steps; /* not 0: after its data every PUSH comes again, with so many steps more */
    bool spoil;           /* the digest of a push is wrong */
    bool mute;            /* does not answer PULL, until island_speak */
    uint64_t rate;        /* steps claimed for every one done; 1 */
    /* NULL, or changes what is about to be sent: values, their encoding, the header. */
    void (*bend_values)(struct island *is, uint32_t fragment, float *values);
    void (*bend_bytes)(struct island *is, uint32_t fragment, uint8_t *encoded, uint64_t len);
    void (*bend_push)(struct island *is, struct pl_msg_push *push);
    /* NULL, or sees a new version in incoming while anchor still has the one before. */
    void (*updated)(struct island *is, uint32_t fragment);
    void *user;
    /* What happened. */
    uint64_t steps, tokens, incarnation, nonce;
    uint64_t pushes, updates, fulls, greetings, refusals, closes;
    bool live, done;
    char last_text[PL_TEXT_MAX + 1]; /* of REFUSE or CLOSE */
    uint32_t last_code;
    /* Private. */
    struct pl_conn *control, *bulk;
    bool joined, stopping;
    struct island_fragment *fragments; /* [all] */
    uv_timer_t timer, redial;
    uint32_t handles;
    struct pl_packer *packer;
    uint8_t *encoded, *packed;
    float *scratch;
};

/* Dials at once and again whenever the connection is gone. own is copied. */
void island_start(struct island *is, struct island_run *run, uv_loop_t *loop,
                  const struct pl_credentials *own, const char *address);
void island_stop(struct island *is);  /* closes; run the loop until it is idle, then island_release */
void island_speak(struct island *is); /* answers what it was asked while it was mute */
void island_release(struct island *is);

/* The lowest version of its fragments. */
uint64_t island_version(const struct island *is);

#endif
