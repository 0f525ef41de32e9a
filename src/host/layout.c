/* host/layout.c - see layout.h. */
#include "host/layout.h"

#include "base/check.h"
#include "base/hash.h"
#include "base/num.h"
#include "codec/feedback.h"
#include "codec/pack.h"
#include "core/manifest.h"

#include <string.h>

_Static_assert(sizeof(float) == 4, "values go over the wire as the bytes of floats");

/* ---- the tables ---- */

/* Embeddings and vectors are averaged plainly (PAPER section 3.6). */
static void describe(struct pl_layout *l)
{
    for (uint32_t i = 0; i < l->tensors.count; i++) {
        const struct pl_tensor *t = &l->tensors.at[i];
        struct pl_plan_tensor *p = &l->plan_tensors[i];
        memcpy(p->name, t->name, sizeof p->name);
        p->rows = t->rows;
        p->cols = t->cols;
        p->merge = t->group == PL_GROUP_MATRIX ? PL_MERGE_RDA : PL_MERGE_MEAN;
    }
}

static void place_slices(struct pl_layout *l, const struct pl_slice *planned)
{
    for (uint32_t i = 0; i < l->slice_count; i++) {
        const struct pl_slice *p = &planned[i];
        const struct pl_tensor *t = &l->tensors.at[p->tensor];
        struct pl_layout_fragment *f = &l->fragments[p->fragment];
        if (f->slice_count++ == 0)
            f->slice_first = i;
        l->slices[i] = (struct pl_layout_slice){.offset = t->offset + p->row_first * t->cols,
                                                .first = f->values,
                                                .count = p->row_count * t->cols,
                                                .merge = l->plan_tensors[p->tensor].merge};
        f->values += l->slices[i].count;
        l->largest = pl_max64(l->largest, f->values);
    }
}

static enum pelago_status plan(struct pl_layout *l, const struct pl_settings *s, struct pl_slice *planned,
                               struct pl_plan_place *places, struct pl_error *err)
{
    PL_TRY(pl_plan_fragments(l->plan_tensors, l->tensors.count, s->fragments, planned, l->slices_owned,
                             &l->slice_count, err));
    PL_TRY(pl_plan_shards(s->fragments, s->shards, s->period, places, err));
    place_slices(l, planned);
    for (uint32_t i = 0; i < s->fragments; i++) {
        l->fragments[i].shard = places[i].shard;
        l->fragments[i].due = places[i].offset;
    }
    return PELAGO_OK;
}

static enum pelago_status build(struct pl_layout *l, const struct pl_settings *s, struct pl_error *err)
{
    PL_TRY(pl_tensors_init(&l->tensors, &l->alloc, &s->trainer.config));
    l->slices_owned = l->tensors.count + 3 * s->fragments;
    l->fragment_count = s->fragments;
    l->plan_tensors = pl_alloc_zero(&l->alloc, l->tensors.count, sizeof *l->plan_tensors);
    l->slices = pl_alloc_zero(&l->alloc, l->slices_owned, sizeof *l->slices);
    l->fragments = pl_alloc_zero(&l->alloc, s->fragments, sizeof *l->fragments);
    struct pl_slice *planned = pl_alloc_zero(&l->alloc, l->slices_owned, sizeof *planned);
    struct pl_plan_place *places = pl_alloc_zero(&l->alloc, s->fragments, sizeof *places);
    enum pelago_status st = PELAGO_NOMEM;
    if (l->plan_tensors != NULL && l->slices != NULL && l->fragments != NULL && planned != NULL &&
        places != NULL) {
        describe(l);
        st = plan(l, s, planned, places, err);
    }
    pl_alloc_free(&l->alloc, planned, l->slices_owned * sizeof *planned);
    pl_alloc_free(&l->alloc, places, s->fragments * sizeof *places);
    return st;
}

enum pelago_status pl_layout_init(struct pl_layout *l, const struct pl_alloc *alloc,
                                  const struct pl_settings *s, struct pl_error *err)
{
    *l = (struct pl_layout){.alloc = *alloc};
    enum pelago_status st = build(l, s, err);
    if (st == PELAGO_NOMEM)
        (void)pl_fail(err, st, "there is no memory for the table of %u fragments", s->fragments);
    if (st != PELAGO_OK)
        pl_layout_release(l);
    return st;
}

void pl_layout_release(struct pl_layout *l)
{
    pl_alloc_free(&l->alloc, l->plan_tensors, l->tensors.count * sizeof *l->plan_tensors);
    pl_alloc_free(&l->alloc, l->slices, l->slices_owned * sizeof *l->slices);
    pl_alloc_free(&l->alloc, l->fragments, l->fragment_count * sizeof *l->fragments);
    pl_tensors_release(&l->tensors, &l->alloc);
    *l = (struct pl_layout){.alloc = l->alloc};
}

/* ---- values ---- */

static const struct pl_layout_slice *first_slice(const struct pl_layout *l, uint32_t fragment)
{
    pl_assert(fragment < l->fragment_count);
    return &l->slices[l->fragments[fragment].slice_first];
}

void pl_layout_gather(const struct pl_layout *l, uint32_t fragment, const float *block, float *values)
{
    const struct pl_layout_slice *s = first_slice(l, fragment);
    for (uint32_t i = 0; i < l->fragments[fragment].slice_count; i++)
        memcpy(values + s[i].first, block + s[i].offset, s[i].count * sizeof *values);
}

void pl_layout_scatter(const struct pl_layout *l, uint32_t fragment, const float *values, float *block)
{
    const struct pl_layout_slice *s = first_slice(l, fragment);
    for (uint32_t i = 0; i < l->fragments[fragment].slice_count; i++)
        memcpy(block + s[i].offset, values + s[i].first, s[i].count * sizeof *values);
}

uint64_t pl_layout_encoded_bytes(const struct pl_layout *l, uint32_t fragment, enum pl_codec codec)
{
    const struct pl_layout_slice *s = first_slice(l, fragment);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < l->fragments[fragment].slice_count; i++)
        bytes += pl_codec_bytes(codec, s[i].count);
    return bytes;
}

bool pl_layout_encode_feedback(const struct pl_layout *l, uint32_t fragment, enum pl_codec codec,
                               float selective, float *values, uint8_t *out)
{
    const struct pl_layout_slice *s = first_slice(l, fragment);
    for (uint32_t i = 0; i < l->fragments[fragment].slice_count; i++) {
        if (!pl_feedback_encode(codec, values + s[i].first, s[i].count, selective, out))
            return false;
        out += pl_codec_bytes(codec, s[i].count);
    }
    return true;
}

bool pl_layout_check(const struct pl_layout *l, uint32_t fragment, enum pl_codec codec, const uint8_t *bytes)
{
    const struct pl_layout_slice *s = first_slice(l, fragment);
    for (uint32_t i = 0; i < l->fragments[fragment].slice_count; i++) {
        if (!pl_codec_check(codec, bytes, s[i].count))
            return false;
        bytes += pl_codec_bytes(codec, s[i].count);
    }
    return true;
}

void pl_layout_decode_add(const struct pl_layout *l, uint32_t fragment, enum pl_codec codec,
                          const uint8_t *bytes, float *values)
{
    const struct pl_layout_slice *s = first_slice(l, fragment);
    for (uint32_t i = 0; i < l->fragments[fragment].slice_count; i++) {
        pl_codec_decode_add(codec, bytes, s[i].count, values + s[i].first);
        bytes += pl_codec_bytes(codec, s[i].count);
    }
}

void pl_layout_origin(const struct pl_layout *l, uint64_t seed, float *block)
{
    pl_tensors_fill(&l->tensors, block, seed);
}

uint64_t pl_values_digest(const float *values, uint64_t n)
{
    _Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "digests are those of little-endian bytes");
    return pl_hash64(values, n * sizeof *values, 0);
}

/* ---- the manifest ---- */

static void put_items(const struct pl_layout *l, const struct pl_settings *s, uint8_t *fragments,
                      uint8_t *tensors)
{
    for (uint32_t i = 0; i < l->fragment_count; i++) {
        const struct pl_layout_fragment *f = &l->fragments[i];
        pl_item_fragment_put(
            fragments, i,
            &(struct pl_item_fragment){
                .shard = f->shard,
                .offset = f->due,
                .full_bytes = 4 * f->values,
                .push_bytes_max = pl_pack_bytes_max(pl_layout_encoded_bytes(l, i, s->up)),
                .update_bytes_max = 4 + pl_pack_bytes_max(pl_layout_encoded_bytes(l, i, s->down))});
    }
    for (uint32_t i = 0; i < l->tensors.count; i++) {
        const struct pl_plan_tensor *t = &l->plan_tensors[i];
        struct pl_item_tensor item = {.rows = t->rows, .cols = t->cols, .merge = t->merge};
        memcpy(item.name, t->name, sizeof item.name);
        pl_item_tensor_put(tensors, i, &item);
    }
}

static struct pl_msg_manifest numbers(const struct pl_settings *s, uint64_t settings_digest)
{
    uint64_t step = pl_trainer_options_tokens(&s->trainer);
    return (struct pl_msg_manifest){.run_id = s->run_id,
                                    .seed = s->trainer.seed,
                                    .shard_count = s->shards,
                                    .quorum = s->quorum,
                                    .overlap_steps = s->overlap,
                                    .period_steps = s->period,
                                    .gamma_ppm = s->gamma_ppm,
                                    .staleness_max = s->staleness_max,
                                    .apply = s->apply,
                                    .mix_ppm = s->mix_ppm,
                                    .token_budget = s->total_tokens,
                                    .unit_tokens = (uint64_t)s->unit_sequences * s->trainer.seq,
                                    .step_tokens_max = step,
                                    .push_codec = s->up,
                                    .update_codec = s->down,
                                    .settings_digest = settings_digest};
}

static enum pelago_status digest_settings(const struct pl_layout *l, const struct pl_settings *s,
                                          uint64_t *digest)
{
    struct pl_buf text;
    pl_buf_init(&text, &l->alloc, PL_JSON_BYTES_MAX);
    enum pelago_status st = pl_settings_print(s, &text);
    if (st == PELAGO_OK)
        *digest = pl_hash64(text.data, text.len, 0);
    pl_buf_release(&text);
    return st;
}

static enum pelago_status digest_manifest(const struct pl_layout *l, struct pl_manifest *m)
{
    struct pl_msg msg = {.type = PL_MSG_MANIFEST, .u.manifest = m->msg};
    size_t bytes = pl_msg_payload_bytes(&msg);
    uint8_t *scratch = pl_alloc_zero(&l->alloc, 1, bytes);
    if (scratch == NULL)
        return PELAGO_NOMEM;
    m->digest = pl_manifest_digest(&m->msg, scratch, bytes);
    pl_alloc_free(&l->alloc, scratch, bytes);
    return PELAGO_OK;
}

enum pelago_status pl_layout_manifest(const struct pl_layout *l, const struct pl_settings *s,
                                      struct pl_manifest *out, struct pl_error *err)
{
    size_t fragments = (size_t)l->fragment_count * PL_ITEM_FRAGMENT_BYTES;
    *out = (struct pl_manifest){.items_bytes = fragments + (size_t)l->tensors.count * PL_ITEM_TENSOR_BYTES};
    out->items = pl_alloc_zero(&l->alloc, 1, out->items_bytes);
    uint64_t settings_digest = 0;
    if (out->items == NULL || digest_settings(l, s, &settings_digest) != PELAGO_OK) {
        pl_manifest_release(out, &l->alloc);
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for the manifest");
    }
    put_items(l, s, out->items, out->items + fragments);
    out->msg = numbers(s, settings_digest);
    out->msg.fragments = (struct pl_array){out->items, l->fragment_count};
    out->msg.tensors = (struct pl_array){out->items + fragments, l->tensors.count};
    enum pelago_status st = pl_manifest_check(&out->msg, err);
    if (st == PELAGO_OK)
        st = digest_manifest(l, out);
    if (st != PELAGO_OK)
        pl_manifest_release(out, &l->alloc);
    return st;
}

void pl_manifest_release(struct pl_manifest *m, const struct pl_alloc *alloc)
{
    pl_alloc_free(alloc, m->items, m->items_bytes);
    *m = (struct pl_manifest){.digest = 0};
}
