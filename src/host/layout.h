/* host/layout.h - where every value of every fragment lies in the model's block of parameters.
 *
 * Fragments are lists of slices (core/plan.h); inside a fragment values stand slice behind slice. Syncer and learners
 * compute the same layout from the settings and compare its digest through the manifest.
 */
#ifndef PL_HOST_LAYOUT_H
#define PL_HOST_LAYOUT_H

#include "base/alloc.h"
#include "base/merge_mode.h"
#include "codec/codec.h"
#include "core/plan.h"
#include "host/settings.h"
#include "model/tensors.h"
#include "wire/msg.h"

struct pl_layout_slice {
    uint64_t offset; /* first float in the model's block */
    uint64_t first;  /* first value inside the fragment */
    uint64_t count;  /* values */
    enum pl_merge_mode merge;
};

struct pl_layout_fragment {
    uint32_t slice_first, slice_count;
    uint64_t values;
    uint32_t shard;
    uint32_t due; /* offset in the period */
};

struct pl_layout {
    struct pl_alloc alloc;
    struct pl_tensors tensors;
    struct pl_plan_tensor *plan_tensors; /* [tensors.count] */
    struct pl_layout_slice *slices;
    uint32_t slice_count, slices_owned;
    struct pl_layout_fragment *fragments;
    uint32_t fragment_count;
    uint64_t largest; /* values of the largest fragment */
};

/* From settings that passed pl_settings_check. */
enum pelago_status pl_layout_init(struct pl_layout *l, const struct pl_alloc *alloc,
                                  const struct pl_settings *s, struct pl_error *err);
void pl_layout_release(struct pl_layout *l);

/* Between the model's block and a fragment's values. */
void pl_layout_gather(const struct pl_layout *l, uint32_t fragment, const float *block, float *values);
void pl_layout_scatter(const struct pl_layout *l, uint32_t fragment, const float *values, float *block);

/* Encoded bytes of a fragment: slice behind slice. Encoding with feedback (codec/feedback.h) leaves what was lost in
 * values. */
uint64_t pl_layout_encoded_bytes(const struct pl_layout *l, uint32_t fragment, enum pl_codec codec);
bool pl_layout_encode_feedback(const struct pl_layout *l, uint32_t fragment, enum pl_codec codec,
                               float selective, float *values, uint8_t *out);
bool pl_layout_check(const struct pl_layout *l, uint32_t fragment, enum pl_codec codec, const uint8_t *bytes);
void pl_layout_decode_add(const struct pl_layout *l, uint32_t fragment, enum pl_codec codec,
                          const uint8_t *bytes, float *values);

/* Version 0 of all parameters, into the model's block. */
void pl_layout_origin(const struct pl_layout *l, uint64_t seed, float *block);

/* XXH3-64 of n floats, little-endian: what a version's digest is. */
uint64_t pl_values_digest(const float *values, uint64_t n);

/* The run's manifest; its arrays lie in memory of *bytes, which is the caller's to free with the layout's allocator. */
struct pl_manifest {
    struct pl_msg_manifest msg;
    uint64_t digest;
    uint8_t *items; /* owned */
    size_t items_bytes;
};
enum pelago_status pl_layout_manifest(const struct pl_layout *l, const struct pl_settings *s,
                                      struct pl_manifest *out, struct pl_error *err);
void pl_manifest_release(struct pl_manifest *m, const struct pl_alloc *alloc);

#endif
