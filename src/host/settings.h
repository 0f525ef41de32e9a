/* host/settings.h - everything that makes a run this run and no other, as one struct and as one text (JSON).
 *
 * The home shard keeps the text and hands it to whoever joins; its digest is in the manifest, so a learner that has
 * other settings notices before it trains a step. What belongs to a machine (threads, back end, folders, rates of its
 * line) is not here.
 */
#ifndef PL_HOST_SETTINGS_H
#define PL_HOST_SETTINGS_H

#include "base/buf.h"
#include "codec/codec.h"
#include "optim/outer.h"
#include "optim/rule.h"
#include "os/dir_posix.h"
#include "train/trainer.h"

enum pl_algorithm {
    PL_ALGORITHM_DECOUPLED = 1,
    PL_ALGORITHM_DILOCO,        /* synchronous: everybody waits, the whole model every H steps */
    PL_ALGORITHM_DATA_PARALLEL, /* synchronous: gradients of every step */
};

enum { PL_STALENESS_MAX = 1024 }; /* of the manifest */

struct pl_settings {
    uint64_t run_id;
    char model[32]; /* the preset's name, or "custom"; for people */
    struct pl_trainer_options
        trainer;               /* all but backend and threads; seed makes version 0 and the order of data */
    char data[PL_PATH_MAX];    /* a path, or builtin:tales */
    char valid[PL_PATH_MAX];   /* "": held out */
    uint64_t tokenizer_digest; /* XXH3-64 of its tokenizer.json; 0: the data has none */
    uint64_t total_tokens;     /* the budget */
    uint64_t eval_tokens;
    enum pl_algorithm algorithm;
    uint32_t
        learners; /* expected: synchronous algorithms wait for so many; decoupled uses it for defaults only */
    uint32_t shards;
    uint32_t fragments; /* P */
    uint32_t period;    /* H */
    uint32_t overlap;   /* tau */
    uint32_t quorum;    /* K */
    uint32_t gamma_ppm, staleness_max;
    uint8_t apply; /* as in the manifest: 0 rebase, 1 overwrite, 2 mix */
    uint32_t mix_ppm;
    enum pl_codec up, down;
    float feedback_decay; /* of what up's encoding lost, each time it is added again */
    float feedback_local; /* so much of what up's encoding leaves behind stays in a learner's own values */
    float selective;      /* blocks that changed less than this share of the usual wait, both ways; 0: none */
    struct pl_merge_rule merge;
    struct pl_outer_rule outer;
    bool codec_lr; /* the outer learning rate makes up for what the up encoding takes (pl_outer_codec_gain) */
    uint32_t unit_sequences; /* sequences of one work unit */
};

/* Of the outer optimizer: what goes well with the inner one. */
float pl_outer_momentum(enum pl_inner_kind matrices);

/* Ticks between two rounds of a fragment: what goes well with this codec up. */
uint32_t pl_settings_period(enum pl_codec up);
/* Merges that a fragment will have in the whole run. */
uint64_t pl_settings_merges(const struct pl_settings *s);
/* Feedback, merge and outer optimizer: what goes well with `up` and so many merges. Also after they were chosen anew. */
void pl_settings_follow_codec(struct pl_settings *s);

/* P, H, tau, K, codecs, outer rule, unit: what goes well with this model and so many learners. trainer, data,
 * total_tokens and learners are set before. */
void pl_settings_defaults(struct pl_settings *s);

/* OK, or INVALID with a sentence that names the field and its range. */
enum pelago_status pl_settings_check(const struct pl_settings *s, struct pl_error *err);

/* The text; the same struct gives the same bytes. */
enum pelago_status pl_settings_print(const struct pl_settings *s, struct pl_buf *out);
/* Reads and checks it; CORRUPT or INVALID with a sentence. */
enum pelago_status pl_settings_parse(const char *text, size_t len, struct pl_settings *s,
                                     struct pl_error *err);

/* The outer rule as it is applied: with what `codec_lr` gives back, and the merges that are planned. */
struct pl_outer_rule pl_settings_outer_rule(const struct pl_settings *s);
/* The outer step that makes this version of a fragment, when the run's clock stands at so many tokens. */
struct pl_outer_move pl_settings_outer(const struct pl_settings *s, uint64_t version, uint64_t clock_tokens,
                                       double share);

const char *pl_algorithm_name(enum pl_algorithm a); /* decoupled, diloco, data_parallel */
bool pl_algorithm_of_name(const char *name, enum pl_algorithm *a);

#endif
