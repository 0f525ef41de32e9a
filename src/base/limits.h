/* base/limits.h - every bound of the program, in one place.
 *
 * Nothing that comes from a wire, a file or a config sizes, counts or indexes anything before it was compared
 * with a number of this page. Reaching a limit is an ordinary, handled outcome.
 */
#ifndef PL_BASE_LIMITS_H
#define PL_BASE_LIMITS_H

enum {
    PL_TEXT_MAX = 200,               /* bytes of a reason or an error text, without the final zero */
    PL_NAME_MAX = 64,                /* bytes of a tensor's name, padded with zeros on the wire */
    PL_SHARDS_MAX = 64,              /* syncer shards of one run */
    PL_FRAGMENTS_MAX = 4096,         /* fragments of one model, all shards together */
    PL_TENSORS_MAX = 4096,           /* tensors of one model */
    PL_SLICES_MAX = 16384,           /* (tensor, row range) entries of a fragment table */
    PL_LEARNERS_MAX = 65536,         /* identities one shard may know */
    PL_PERIOD_STEPS_MAX = 4096,      /* H */
    PL_UNITS_HELD_MAX = 2,           /* work units one learner holds: the current one and the next */
    PL_SECRET_BYTES = 32,            /* of an invitation */
    PL_CERTIFICATE_BYTES_MAX = 8192, /* a certificate or a request for one */
    PL_CHUNKS_MAX = 64,              /* chunks of one transfer, so that a uint64_t says which are there */
    PL_STRIDE_MAX = 64,              /* a learner on a very slow link takes part in every stride-th cycle */
    PL_RING_MAX = 16,                /* encoded updates remembered per fragment */
    PL_RECORD_PARTS_MAX = 64,        /* pieces a journal record may be handed over in */
    PL_SEGMENTS_MAX = 256,           /* journal files in one store */
    PL_SNAPSHOTS_MAX = 16,    /* snapshot files in one store; two are wanted, the others wait for removal */
    PL_SECTIONS_MAX = 64,     /* sections of one snapshot */
    PL_LAYERS_MAX = 256,      /* layers of a model, up to 11 tensors each */
    PL_WIDTH_MAX = 65536,     /* width of a model */
    PL_HEADS_MAX = 1024,      /* attention heads of a layer */
    PL_HEAD_DIM_MAX = 256,    /* values of one head */
    PL_HIDDEN_MAX = 1 << 20,  /* hidden width of the feed-forward part */
    PL_VOCAB_MAX = 1 << 24,   /* tokens of a vocabulary */
    PL_CONTEXT_MAX = 1 << 20, /* tokens of one sequence */
    PL_BATCH_MAX = 1 << 16,   /* sequences of one pass */
    PL_PASS_TOKENS_MAX = 1 << 24, /* tokens of one pass */
};

#define PL_REDUCE_BYTES_MAX (1u << 20) /* a bucket of a synchronous run, encoded */
#define PL_CHUNK_BYTES_MIN (16u << 10) /* smaller transfers go as one chunk */
#define PL_CHUNK_BYTES_MAX (64u << 20) /* the largest DATA payload */
#define PL_TRANSFER_BYTES_MAX ((uint64_t)PL_CHUNKS_MAX * PL_CHUNK_BYTES_MAX)
#define PL_FRAME_BYTES_MAX (PL_CHUNK_BYTES_MAX + 64u)   /* payload of any frame */
#define PL_RECORD_BYTES_MAX (4 * PL_TRANSFER_BYTES_MAX) /* payload of a journal record */
#define PL_SECTION_BYTES_MAX (UINT64_C(1) << 50)        /* one section of a snapshot */
#define PL_STEP_TOKENS_MAX (UINT64_C(1) << 40)          /* tokens one inner step may claim */
#define PL_PARAMS_MAX (UINT64_C(1) << 40)               /* parameters of one model */
#define PL_JSON_BYTES_MAX (UINT64_C(256) << 20)         /* a tokenizer.json, or a line of a .jsonl */
#define PL_DOCUMENT_BYTES_MAX (UINT64_C(1) << 30) /* text that must be held at once to be cut into tokens */
#define PL_COUNT_MAX (UINT64_C(1) << 62)          /* steps, tokens, versions: counters of a run */

#define PL_US UINT64_C(1000)
#define PL_MS UINT64_C(1000000)
#define PL_SEC UINT64_C(1000000000)
#define PL_STEP_NS_LEAST (100 * PL_US) /* nobody's step is believed to be shorter */
#define PL_NEVER UINT64_MAX            /* a deadline that does not come */
#define PL_NONE32 UINT32_MAX           /* no index */
#define PL_NONE64 UINT64_MAX           /* no unit */

#endif
