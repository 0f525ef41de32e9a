/* host/learner_start.c - what a learner needs before its first event: a folder, an identity, the run's
 * settings, data, a trainer. Everything that can be wrong is said here, in one sentence.
 *
 * The run's settings never change, so what the folder has is not asked for again: a learner that comes back
 * starts to train before it has reached anybody. host/join.c does that part.
 */
#include "host/learner_host_int.h"

#include "base/check.h"
#include "host/join.h"
#include "os/clock.h"
#include "wire/chunk.h"

#include <string.h>
#include <unistd.h>

/* ---- the folder and who we are ---- */

static enum pelago_status open_folder(struct pl_learner_host *h, struct pl_error *err)
{
    const char *path = h->o.folder;
    if (strlen(path) >= sizeof h->folder)
        return pl_fail(err, PELAGO_INVALID, "the folder's name is too long");
    memcpy(h->folder, path, strlen(path) + 1);
    PL_TRY(pl_posix_dir_open(&h->dir, &h->alloc, path, PL_POSIX_DIR_CREATE, err));
    PL_TRY(pl_posix_dir_lock(h->dir, path, "--dir", err));
    return pl_posix_dir_open(&h->disk, &h->alloc, path, PL_POSIX_DIR_EXISTING, err);
}

/* Who we are and what the run is. */
static enum pelago_status join(struct pl_learner_host *h, struct pl_error *err)
{
    struct pl_join j = {.alloc = &h->alloc,
                        .dir = h->dir,
                        .folder = h->folder,
                        .token = h->o.token,
                        .data = h->o.data,
                        .local_data = h->o.local_data,
                        .role = PL_ROLE_LEARNER,
                        .log = h->o.log,
                        .user = h->o.user};
    enum pelago_status st = pl_join(&j, err);
    if (st == PELAGO_OK && h->o.stub_step_ns == 0) /* which needs no text */
        st = pl_join_tokenizer(&j, &h->tokenizer, err);
    h->own = j.own;
    h->settings = j.settings;
    h->choice = j.choice;
    memcpy(h->address, j.home, sizeof h->address);
    memset(&j.own, 0, sizeof j.own);
    return st;
}

/* ---- data and trainer ---- */

/* The same stretch of the data as everybody else's: what the run keeps back for validation is kept back here
 * too. Where it validates on a file of its own nothing is; that file need not be on this machine, so the data
 * itself stands for it. */
static const char *valid_of(const struct pl_settings *s, const char *data)
{
    if (s->valid[0] == '\0' || strcmp(data, PL_DATASET_TALES) == 0)
        return NULL;
    return access(s->valid, R_OK) == 0 ? s->valid : data;
}

static enum pelago_status open_data(struct pl_learner_host *h, struct pl_error *err)
{
    const struct pl_settings *s = &h->settings;
    const char *data = pl_data_choice_name(&h->choice, s);
    struct pl_dataset_options o = {.data = data,
                                   .valid = valid_of(s, data),
                                   .json = {h->tokenizer.data, h->tokenizer.len},
                                   .vocab = s->trainer.config.vocab,
                                   .valid_tokens = s->eval_tokens,
                                   .seed = s->trainer.seed,
                                   .threads = h->o.threads};
    struct pl_error why;
    char line[PL_DATA_CHOICE_LINE_MAX];
    pl_data_choice_line(&h->choice, s, line);
    pl_lhost_log(h, "%s", line);
    enum pelago_status st = pl_dataset_open(&h->data, &h->alloc, &o, &why);
    if ((st == PELAGO_NOTFOUND || st == PELAGO_IO || st == PELAGO_DENIED) && h->choice.name[0] == '\0')
        return pl_fail(err, st, "%s; say where this machine has the run's data with --data PATH", why.text);
    if (st != PELAGO_OK)
        return pl_fail(err, st, "%s", why.text);
    if (h->data->vocab > s->trainer.config.vocab)
        return pl_fail(
            err, PELAGO_INVALID,
            "the tokens of %s go up to %u, the run's vocabulary has %u: it was made with another tokenizer",
            data, h->data->vocab, s->trainer.config.vocab);
    PL_TRY(pl_batches_init(&h->batches, &h->alloc, &h->data->train, s->trainer.seq, s->trainer.seed, err));
    h->has_batches = true;
    return PELAGO_OK;
}

static enum pelago_status build_trainer(struct pl_learner_host *h, struct pl_error *err)
{
    struct pl_trainer_options o = h->settings.trainer;
    o.backend = h->o.backend;
    o.threads = h->o.threads;
    PL_TRY(open_data(h, err));
    PL_TRY(pl_trainer_new(&h->trainer, &h->alloc, &o, err));
    pl_assert(h->trainer->model->tensors.floats == h->layout.tensors.floats);
    pl_layout_origin(&h->layout, h->settings.trainer.seed, h->trainer->model->params);
    return PELAGO_OK;
}

static enum pelago_status build_stub(struct pl_learner_host *h, struct pl_error *err)
{
    h->stub_theta = pl_alloc_zero(&h->alloc, h->layout.tensors.floats, sizeof(float));
    if (h->stub_theta == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for the model");
    pl_layout_origin(&h->layout, h->settings.trainer.seed, h->stub_theta);
    return PELAGO_OK;
}

static void on_bell(void *user)
{
    struct pl_learner_host *h = user;
    (void)uv_async_send(&h->bell);
}

static enum pelago_status build_thread(struct pl_learner_host *h, struct pl_error *err)
{
    const struct pl_settings *s = &h->settings;
    struct pl_ltrainer_options o = {.alloc = &h->alloc,
                                    .layout = &h->layout,
                                    .trainer = h->trainer,
                                    .theta = h->stub_theta,
                                    .seq = s->trainer.seq,
                                    .unit_sequences = s->unit_sequences,
                                    .step_tokens = h->step_tokens,
                                    .own_sequence = h->own_sequence,
                                    .pace_ns = h->o.pace_ns,
                                    .speed = h->o.speed,
                                    .bell = on_bell,
                                    .user = h};
    if (h->has_batches)
        o.source = pl_batches_sequences(&h->batches);
    h->has_lt = pl_ltrainer_init(&h->lt, &o);
    return h->has_lt ? PELAGO_OK : pl_fail(err, PELAGO_NOMEM, "there is no memory for the trainer's thread");
}

/* ---- the rest ---- */

/* Version 0 as anchors, with its digests. */
static enum pelago_status build_fragments(struct pl_learner_host *h, struct pl_error *err)
{
    uint32_t count = h->layout.fragment_count;
    const float *theta = h->trainer != NULL ? h->trainer->model->params : h->stub_theta;
    h->fragments = pl_alloc_zero(&h->alloc, count, sizeof *h->fragments);
    h->origin_digests = pl_alloc_zero(&h->alloc, count, sizeof *h->origin_digests);
    for (uint32_t i = 0; h->fragments != NULL && h->origin_digests != NULL && i < count; i++) {
        struct pl_vec *v = pl_vec_new(h, h->layout.fragments[i].values);
        h->fragments[i].anchor = v;
        if (v == NULL)
            break;
        pl_layout_gather(&h->layout, i, theta, v->at);
        h->origin_digests[i] = pl_values_digest(v->at, v->count);
    }
    if (h->fragments == NULL || h->origin_digests == NULL || h->fragments[count - 1].anchor == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for the model's anchors");
    return PELAGO_OK;
}

/* The largest frame of a bulk connection: a chunk of the longest update there can be, or the list of partial
 * pushes. */
static uint32_t bulk_frame_max(const struct pl_learner_host *h)
{
    uint64_t longest = 1;
    const struct pl_array *fragments = &h->manifest.msg.fragments;
    for (uint32_t i = 0; i < fragments->count; i++) {
        struct pl_item_fragment item = pl_item_fragment_at(fragments, i);
        longest = pl_max64(longest, item.full_bytes + item.full_bytes / 16 + 4096);
        longest = pl_max64(longest, PL_RING_MAX * item.update_bytes_max);
    }
    uint32_t chunk = pl_chunk_bytes(pl_min64(longest, PL_TRANSFER_BYTES_MAX)) + 64;
    return pl_max32(chunk, PL_MSG_ATTACHED_BYTES_MAX);
}

static enum pelago_status build_links(struct pl_learner_host *h, struct pl_error *err)
{
    uint32_t frame_max[2] = {PL_MSG_MANIFEST_BYTES_MAX, bulk_frame_max(h)};
    h->shards = pl_alloc_zero(&h->alloc, h->settings.shards, sizeof *h->shards);
    if (h->shards == NULL || !pl_lhost_door_init(h))
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for connections");
    for (uint32_t j = 0; j < 2; j++)
        h->net[j] = (struct pl_net_options){.loop = h->o.loop,
                                            .alloc = h->o.alloc,
                                            .own = &h->own,
                                            .frame_max = frame_max[j],
                                            .streams = j != PL_LINK_BULK   ? 1
                                                       : h->o.streams == 0 ? PL_CONN_STREAMS_AUTO
                                                                           : (uint8_t)h->o.streams,
                                            .capture = h->o.capture,
                                            .capture_user = h->o.user};
    h->bucket = (struct pl_bucket){.bytes_per_s = h->o.up_bytes_per_s};
    for (uint32_t i = 0; i < h->settings.shards; i++) {
        struct pl_lshard *s = &h->shards[i];
        s->links[0] = (struct pl_llink){.h = h, .shard = i, .link = PL_LINK_CONTROL};
        s->links[1] = (struct pl_llink){.h = h, .shard = i, .link = PL_LINK_BULK};
        s->queue = pl_alloc_zero(&h->alloc, h->layout.fragment_count, sizeof *s->queue);
        if (s->queue == NULL)
            return pl_fail(err, PELAGO_NOMEM, "there is no memory for connections");
    }
    memcpy(h->shards[0].address, h->address, sizeof h->shards[0].address);
    return PELAGO_OK;
}

static struct pl_learn_options core_options(const struct pl_learner_host *h)
{
    return (struct pl_learn_options){.fragments_max = h->layout.fragment_count,
                                     .local_data = h->choice.local};
}

static void init_core(struct pl_learner_host *h)
{
    struct pl_learn_options o = core_options(h);
    pl_random(&o.nonce, sizeof o.nonce);
    pl_random(&o.seed, sizeof o.seed);
    h->core = pl_learner_init(h->memory, h->memory_bytes, &o);
}

static enum pelago_status build_core(struct pl_learner_host *h, struct pl_error *err)
{
    struct pl_learn_options o = core_options(h);
    h->memory_bytes = pl_learner_bytes(&o);
    h->memory = pl_alloc_zero(&h->alloc, 1, h->memory_bytes);
    h->fxs.max = pl_learner_effects_max(&o);
    h->fxs.fx = pl_alloc_zero(&h->alloc, h->fxs.max, sizeof *h->fxs.fx);
    h->packer_up = pl_packer_new(&h->alloc);
    h->packer_down = pl_packer_new(&h->alloc);
    h->keep.there = pl_alloc_zero(&h->alloc, h->layout.fragment_count, sizeof *h->keep.there);
    if (h->memory == NULL || h->fxs.fx == NULL || h->keep.there == NULL || h->packer_up == NULL ||
        h->packer_down == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for a learner");
    init_core(h);
    return PELAGO_OK;
}

void pl_lhost_begin_anew(struct pl_learner_host *h)
{
    struct pl_inner *inner = &h->trainer->inner;
    pl_layout_origin(&h->layout, h->settings.trainer.seed, h->trainer->model->params);
    for (uint32_t i = 0; i < h->layout.fragment_count; i++)
        pl_layout_gather(&h->layout, i, h->trainer->model->params, h->fragments[i].anchor->at);
    for (uint32_t i = 0; i < h->layout.tensors.count; i++) {
        const struct pl_tensor *t = &h->layout.tensors.at[i];
        size_t bytes = (size_t)t->rows * t->cols * sizeof(float);
        memset(pl_inner_m(inner, i), 0, bytes);
        if (pl_inner_v(inner, i) != NULL)
            memset(pl_inner_v(inner, i), 0, bytes);
    }
    init_core(h);
}

static enum pelago_status check_settings(const struct pl_learner_host *h, struct pl_error *err)
{
    if (h->settings.run_id != h->own.run_id)
        return pl_fail(err, PELAGO_INVALID, "the settings in %s are of run %lx, the credentials of run %lx",
                       h->folder, h->settings.run_id, h->own.run_id);
    if (h->settings.algorithm != PL_ALGORITHM_DECOUPLED)
        return pl_fail(err, PELAGO_UNSUPPORTED, "this run's algorithm is %s, this learner's is decoupled",
                       pl_algorithm_name(h->settings.algorithm));
    return PELAGO_OK;
}

enum pelago_status pl_lhost_prepare(struct pl_learner_host *h, struct pl_error *err)
{
    pl_buf_init(&h->tokenizer, &h->alloc, PL_TOKENIZER_BYTES_MAX);
    pl_buf_init(&h->keep.core, &h->alloc, PL_CHUNK_BYTES_MAX);
    pl_work_queue_init(&h->encoding, h->o.loop);
    pl_work_queue_init(&h->decoding, h->o.loop);
    pl_work_queue_init(&h->disking, h->o.loop);
    PL_TRY(open_folder(h, err));
    PL_TRY(join(h, err));
    PL_TRY(check_settings(h, err));
    PL_TRY(pl_layout_init(&h->layout, &h->alloc, &h->settings, err));
    PL_TRY(pl_layout_manifest(&h->layout, &h->settings, &h->manifest, err));
    h->step_tokens = pl_trainer_options_tokens(&h->settings.trainer);
    h->own_sequence = pl_ltrainer_own_range(h->own.identity, h->settings.trainer.seq);
    if (h->o.stub_step_ns > 0)
        PL_TRY(build_stub(h, err));
    else
        PL_TRY(build_trainer(h, err));
    PL_TRY(build_fragments(h, err));
    PL_TRY(build_core(h, err));
    PL_TRY(build_links(h, err));
    if (h->trainer != NULL)
        PL_TRY(pl_lhost_restore(h, err));
    h->base_steps = pl_learner_steps(h->core);
    h->base_tokens = pl_learner_tokens(h->core);
    h->keep.h = h;
    h->keep.last_ns = h->line_ns = pl_clock_ns();
    return build_thread(h, err);
}

static void release_tables(struct pl_learner_host *h)
{
    for (uint32_t i = 0; h->shards != NULL && i < h->settings.shards; i++)
        pl_alloc_free(&h->alloc, h->shards[i].queue, h->layout.fragment_count * sizeof *h->shards[i].queue);
    pl_alloc_free(&h->alloc, h->shards, h->settings.shards * sizeof *h->shards);
    pl_alloc_free(&h->alloc, h->fragments, h->layout.fragment_count * sizeof *h->fragments);
    pl_alloc_free(&h->alloc, h->origin_digests, h->layout.fragment_count * sizeof *h->origin_digests);
    pl_alloc_free(&h->alloc, h->keep.there, h->layout.fragment_count * sizeof *h->keep.there);
    pl_alloc_free(&h->alloc, h->memory, h->memory_bytes);
    pl_alloc_free(&h->alloc, h->fxs.fx, h->fxs.max * sizeof *h->fxs.fx);
    pl_alloc_free(&h->alloc, h->stub_theta, (size_t)h->layout.tensors.floats * sizeof(float));
}

void pl_lhost_release(struct pl_learner_host *h)
{
    struct pl_alloc alloc = h->alloc;
    if (h->has_lt)
        pl_ltrainer_release(&h->lt);
    pl_lhost_values_release(h);
    pl_lhost_keep_release(h);
    pl_lhost_door_release(h);
    release_tables(h);
    pl_packer_free(h->packer_up);
    pl_packer_free(h->packer_down);
    if (h->has_batches)
        pl_batches_release(&h->batches);
    pl_trainer_free(h->trainer);
    pl_dataset_close(h->data);
    pl_manifest_release(&h->manifest, &h->alloc);
    pl_layout_release(&h->layout);
    pl_buf_release(&h->tokenizer);
    pl_buf_release(&h->keep.core);
    pl_posix_dir_close(h->disk);
    pl_posix_dir_close(h->dir);
    memset(&h->own, 0, sizeof h->own);
    pl_alloc_free(&alloc, h, sizeof *h);
}
