/* support/island_rig.c - see island_rig.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "island_rig.h"

#include "base/hash.h"
#include "base/prng.h"
#include "wire/chunk.h"

#include <stdlib.h>
#include <string.h>

enum { REDIAL_MS = 30, FRAME_MAX = 1 << 20 };

/* ---- the run ---- */

void island_run_defaults(struct island_run *r, uint32_t learners)
{
    *r = (struct island_run){.alloc = pl_alloc_system()};
    struct pl_settings *s = &r->settings;
    *s = (struct pl_settings){
        .run_id = 0x600d, .model = "tiny", .data = "builtin:tales", .learners = learners};
    s->trainer.config =
        (struct pl_model_config){.layers = 2, .width = 64, .heads = 2, .vocab = 256, .context = 64};
    pl_model_config_complete(&s->trainer.config);
    s->trainer.batch = 2;
    s->trainer.seq = 32;
    s->trainer.accumulate = 1;
    s->trainer.matrices = PL_INNER_ADAMW;
    s->trainer.rule = (struct pl_inner_rule){
        .beta1 = 0.9f, .beta2 = 0.99f, .eps = 1e-8f, .momentum = 0.95f, .weight_decay = 0.1f, .clip = 1};
    s->total_tokens = UINT64_C(1) << 50;
    s->trainer.schedule = (struct pl_schedule){.kind = PL_SCHEDULE_COSINE,
                                               .peak = 1e-3f,
                                               .floor = 0.1f,
                                               .decay = 0.2f,
                                               .warmup_tokens = 1000,
                                               .total_tokens = s->total_tokens};
    s->trainer.seed = 7;
    pl_settings_defaults(s);
    s->fragments = 4;
    s->period = 8;
}

void island_run_build(struct island_run *r)
{
    struct pl_error err = {.text = ""};
    if (pl_settings_check(&r->settings, &err) != PELAGO_OK ||
        pl_layout_init(&r->layout, &r->alloc, &r->settings, &err) != PELAGO_OK ||
        pl_layout_manifest(&r->layout, &r->settings, &r->manifest, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
}

void island_run_release(struct island_run *r)
{
    pl_manifest_release(&r->manifest, &r->alloc);
    pl_layout_release(&r->layout);
}

/* ---- values ---- */

static void fill_origin(struct island *is)
{
    const struct pl_layout *l = &is->run->layout;
    float *block = calloc(l->tensors.floats, sizeof *block);
    assert_non_null(block);
    pl_layout_origin(l, is->run->settings.trainer.seed, block);
    for (uint32_t i = 0; i < l->fragment_count; i++) {
        struct island_fragment *f = &is->fragments[i];
        f->anchor = calloc(l->fragments[i].values, sizeof *f->anchor);
        f->incoming = calloc(l->fragments[i].values, sizeof *f->incoming);
        f->payload = calloc(1, 4 * l->fragments[i].values);
        assert_true(f->anchor != NULL && f->incoming != NULL && f->payload != NULL);
        pl_layout_gather(l, i, block, f->anchor);
        f->digest = pl_values_digest(f->anchor, l->fragments[i].values);
    }
    free(block);
}

/* Downhill to zero, with some noise of its own. */
static void make_delta(struct island *is, uint32_t fragment, uint64_t round)
{
    struct pl_prng prng;
    const struct island_fragment *f = &is->fragments[fragment];
    pl_prng_seed(&prng, is->own.identity * 1000003 + fragment, round);
    for (uint64_t i = 0; i < is->run->layout.fragments[fragment].values; i++) {
        float noise = (float)(pl_prng_next(&prng) % 2001) / 1000.0f - 1.0f;
        is->scratch[i] = is->scale * (0.05f * f->anchor[i] + 0.001f * noise);
    }
}

/* ---- sending ---- */

static void say(struct pl_conn *c, const struct pl_msg *msg)
{
    if (c != NULL)
        (void)pl_conn_send(c, msg);
}

static void push(struct island *is, const struct pl_msg_pull *p)
{
    struct island_fragment *f = &is->fragments[p->fragment];
    const struct pl_settings *s = &is->run->settings;
    uint64_t raw = pl_layout_encoded_bytes(&is->run->layout, p->fragment, s->up);
    uint64_t steps = is->steps - f->pushed_steps;
    if (is->bulk == NULL)
        return;
    f->asked = *p;
    if (is->mute)
        return;
    if (p->base_version != f->version)
        return; /* once it is there */
    f->asked.round = 0;
    if (steps == 0) {
        say(is->control, &(struct pl_msg){.type = PL_MSG_SKIP, .u.skip = {p->fragment, p->round}});
        return;
    }
    make_delta(is, p->fragment, p->round);
    if (is->bend_values != NULL)
        is->bend_values(is, p->fragment, is->scratch);
    assert_true(pl_layout_encode_feedback(&is->run->layout, p->fragment, s->up, s->selective, is->scratch,
                                          is->encoded));
    if (is->bend_bytes != NULL)
        is->bend_bytes(is, p->fragment, is->encoded, raw);
    size_t len = pl_pack(is->packer, is->encoded, raw, true, is->packed);
    steps += is->claim_steps;
    struct pl_msg head = {.type = PL_MSG_PUSH,
                          .u.push = {.fragment = p->fragment,
                                     .round = p->round,
                                     .base_version = p->base_version,
                                     .steps = steps,
                                     .tokens = steps * is->run->manifest.msg.step_tokens_max,
                                     .bytes = len,
                                     .digest = pl_hash64(is->packed, len, 0) + (is->spoil ? 1 : 0)}};
    if (is->bend_push != NULL)
        is->bend_push(is, &head.u.push);
    say(is->bulk, &head);
    for (uint32_t i = 0; i < pl_chunk_count(len); i++)
        say(is->bulk, &(struct pl_msg){
                          .type = PL_MSG_DATA,
                          .u.data = {.fragment = p->fragment,
                                     .id = head.u.push.round,
                                     .index = i,
                                     .bytes = {is->packed + pl_chunk_offset(len, i), pl_chunk_len(len, i)}}});
    if (is->again_steps != 0) {
        head.u.push.steps += is->again_steps;
        say(is->bulk, &head);
    }
    is->pushes++;
}

static void hello(struct island *is)
{
    say(is->control, &(struct pl_msg){.type = PL_MSG_HELLO,
                                      .u.hello = {.run_id = is->run->settings.run_id,
                                                  .incarnation = is->incarnation,
                                                  .nonce = is->nonce,
                                                  .manifest_digest = is->run->manifest.digest,
                                                  .flags = 1,
                                                  .steps = is->steps,
                                                  .tokens = is->tokens}});
}

static void join(struct island *is)
{
    const struct pl_layout *l = &is->run->layout;
    uint8_t items[PL_FRAGMENTS_MAX / 8 * PL_ITEM_HAVE_BYTES];
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->fragment_count; i++) {
        if (l->fragments[i].shard != is->shard)
            continue;
        struct pl_item_have have = {is->fragments[i].version, is->fragments[i].digest};
        assert_true(n < PL_FRAGMENTS_MAX / 8);
        pl_item_have_put(items, n++, &have);
    }
    say(is->control, &(struct pl_msg){.type = PL_MSG_JOIN, .u.join.have = {items, n}});
    is->joined = true;
}

/* ---- updates ---- */

static void apply_chain(struct island *is, uint32_t number)
{
    struct island_fragment *f = &is->fragments[number];
    const struct pl_layout *l = &is->run->layout;
    enum pl_codec down = is->run->settings.down;
    uint64_t raw = pl_layout_encoded_bytes(l, number, down), at = 0, links = 0;
    memcpy(f->incoming, f->anchor, l->fragments[number].values * sizeof(float));
    while (at < f->header.bytes) {
        uint64_t len = pl_get_le(f->payload + at, 4);
        assert_true(at + 4 + len <= f->header.bytes);
        assert_int_equal(pl_unpack(is->packer, f->payload + at + 4, len, is->encoded, raw, NULL), PELAGO_OK);
        assert_true(pl_layout_check(l, number, down, is->encoded));
        pl_layout_decode_add(l, number, down, is->encoded, f->incoming);
        at += 4 + len;
        links++;
    }
    assert_int_equal(links, f->header.to_version - f->header.from_version);
}

static void finish_update(struct island *is, uint32_t number)
{
    struct island_fragment *f = &is->fragments[number];
    uint64_t values = is->run->layout.fragments[number].values;
    if (f->header.from_version == PL_NONE64) {
        memcpy(f->incoming, f->payload, values * sizeof(float));
        is->fulls++;
    } else {
        assert_int_equal(f->header.from_version, f->version);
        apply_chain(is, number);
    }
    /* What every test of this rig is about: a version has the same bits everywhere. */
    assert_true(pl_values_digest(f->incoming, values) == f->header.digest);
    if (is->updated != NULL)
        is->updated(is, number);
    memcpy(f->anchor, f->incoming, values * sizeof(float));
    assert_true(f->header.to_version >= f->version || (f->header.flags & 1) != 0);
    f->version = f->header.to_version;
    f->digest = f->header.digest;
    if (f->header.last_merged != f->last_merged) {
        f->last_merged = f->header.last_merged;
        f->pushed_steps = is->steps;
    }
    f->header.bytes = 0;
    is->updates++;
    say(is->control, &(struct pl_msg){.type = PL_MSG_HAVE, .u.got = {number, f->version}});
    if (f->asked.round != 0 && f->asked.base_version == f->version)
        push(is, &(struct pl_msg_pull){number, f->asked.round, f->version});
}

static void take_data(struct island *is, const struct pl_msg_data *d)
{
    struct island_fragment *f = &is->fragments[d->fragment];
    if (f->header.bytes == 0 || f->header.to_version != d->id)
        return;
    assert_int_equal(d->bytes.len, pl_chunk_len(f->header.bytes, d->index));
    memcpy(f->payload + pl_chunk_offset(f->header.bytes, d->index), d->bytes.data, d->bytes.len);
    f->mask |= UINT64_C(1) << d->index;
    if (f->mask == pl_chunk_all(f->header.bytes))
        finish_update(is, d->fragment);
}

/* ---- frames ---- */

static void dial_bulk(struct island *is);

static void note_end(struct island *is, uint32_t code, const struct pl_blob *text)
{
    is->last_code = code;
    memcpy(is->last_text, text->data, text->len);
    is->last_text[text->len] = '\0';
    is->done = is->done || code == PL_REASON_DONE;
}

static void on_control(struct island *is, const struct pl_msg *m)
{
    if (m->type == PL_MSG_WELCOME) {
        is->incarnation = m->u.welcome.incarnation;
        is->greetings++;
        if (m->u.welcome.manifest_digest == is->run->manifest.digest && !is->joined) {
            join(is);
            dial_bulk(is);
        }
    } else if (m->type == PL_MSG_MANIFEST) {
        fail_msg("the manifest is another one");
    } else if (m->type == PL_MSG_PULL) {
        push(is, &m->u.pull);
    } else if (m->type == PL_MSG_CLOCK) {
        is->live = true;
    } else if (m->type == PL_MSG_PING) {
        say(is->control, &(struct pl_msg){.type = PL_MSG_PONG, .u.pong.nonce = m->u.ping.nonce});
    } else if (m->type == PL_MSG_REFUSE) {
        is->refusals++;
        note_end(is, m->u.refuse.code, &m->u.refuse.text);
    } else if (m->type == PL_MSG_CLOSE) {
        is->closes++;
        note_end(is, m->u.close.code, &m->u.close.text);
    }
}

static void on_bulk(struct island *is, const struct pl_msg *m)
{
    if (m->type == PL_MSG_UPDATE) {
        struct island_fragment *f = &is->fragments[m->u.update.fragment];
        assert_true(m->u.update.bytes <= 4 * is->run->layout.fragments[m->u.update.fragment].values);
        f->header = m->u.update;
        f->mask = 0;
    } else if (m->type == PL_MSG_DATA) {
        take_data(is, &m->u.data);
    }
}

static void on_opened(void *user, struct pl_conn *c, const struct pl_peer *peer)
{
    struct island *is = user;
    assert_int_equal(peer->role, PL_ROLE_SHARD);
    if (c == is->control)
        hello(is);
    else
        say(c, &(struct pl_msg){.type = PL_MSG_ATTACH, .u.attach.incarnation = is->incarnation});
}

static void on_frame(void *user, struct pl_conn *c, const struct pl_frame *frame)
{
    struct island *is = user;
    struct pl_msg m;
    assert_int_equal(pl_msg_decode(frame->type, frame->payload, frame->payload_len, &m, NULL), PELAGO_OK);
    if (c == is->control)
        on_control(is, &m);
    else if (c == is->bulk)
        on_bulk(is, &m);
}

static void on_bad(void *user, struct pl_conn *c, const struct pl_error *err)
{
    (void)user;
    (void)c;
    fail_msg("the syncer sent bytes that are no frame: %s", err->text);
}

static void on_drained(void *user, struct pl_conn *c)
{
    (void)user;
    (void)c;
}

static void redial(uv_timer_t *timer);

static void on_closed(void *user, struct pl_conn *c, const struct pl_error *why)
{
    struct island *is = user;
    (void)why;
    if (c == is->bulk) {
        is->bulk = NULL;
        if (!is->stopping && !is->done)
            (void)uv_timer_start(&is->redial, redial, REDIAL_MS, 0);
    }
    if (c != is->control)
        return;
    is->control = NULL;
    is->joined = is->live = false;
    if (is->bulk != NULL)
        pl_conn_close(is->bulk, 0);
    is->bulk = NULL;
    for (uint32_t i = 0; i < is->run->layout.fragment_count; i++)
        is->fragments[i].header.bytes = is->fragments[i].asked.round = 0;
    if (!is->stopping && !is->done)
        (void)uv_timer_start(&is->redial, redial, REDIAL_MS, 0);
}

static const struct pl_conn_ops ops = {on_opened, on_frame, on_bad, on_drained, on_closed};

static struct pl_conn *dial(struct island *is)
{
    const struct pl_net_options net = {
        .loop = is->loop, .alloc = &is->run->alloc, .own = &is->own, .frame_max = FRAME_MAX};
    return pl_dial(&net, is->address, is->shard, &ops, is);
}

static void dial_bulk(struct island *is)
{
    if (is->bulk == NULL)
        is->bulk = dial(is);
}

static void redial(uv_timer_t *timer)
{
    struct island *is = timer->data;
    if (is->stopping)
        return;
    if (is->control == NULL)
        is->control = dial(is);
    else if (is->joined)
        dial_bulk(is);
}

/* ---- steps ---- */

static void on_step(uv_timer_t *timer)
{
    struct island *is = timer->data;
    if (is->done)
        return;
    is->steps += is->rate;
    is->tokens += is->rate * is->run->manifest.msg.step_tokens_max;
    if (is->joined && is->control != NULL)
        say(is->control, &(struct pl_msg){.type = PL_MSG_REPORT,
                                          .u.report = {.steps = is->steps,
                                                       .tokens = is->tokens,
                                                       .loss_micro = 2000000 + is->own.identity,
                                                       .step_ns = is->step_ms * PL_MS,
                                                       .unit = PL_NONE64}});
}

void island_start(struct island *is, struct island_run *run, uv_loop_t *loop,
                  const struct pl_credentials *own, const char *address)
{
    const struct pl_layout *l = &run->layout;
    uint64_t step_ms = is->step_ms != 0 ? is->step_ms : 5;
    uint32_t shard = is->shard;
    *is = (struct island){
        .run = run, .loop = loop, .own = *own, .shard = shard, .step_ms = step_ms, .scale = 1, .rate = 1};
    (void)strncpy(is->address, address, sizeof is->address - 1);
    is->nonce = own->identity * 77 + 1;
    is->fragments = calloc(l->fragment_count, sizeof *is->fragments);
    is->packer = pl_packer_new(&run->alloc);
    is->encoded = malloc(4 * l->largest + 64);
    is->packed = malloc(pl_pack_bytes_max(4 * l->largest));
    is->scratch = malloc(4 * l->largest);
    assert_true(is->fragments != NULL && is->packer != NULL && is->encoded != NULL);
    fill_origin(is);
    (void)uv_timer_init(loop, &is->timer);
    (void)uv_timer_init(loop, &is->redial);
    is->timer.data = is->redial.data = is;
    is->handles = 2;
    (void)uv_timer_start(&is->timer, on_step, is->step_ms, is->step_ms);
    is->control = dial(is);
}

static void on_handle(uv_handle_t *handle)
{
    struct island *is = handle->data;
    is->handles--;
}

void island_stop(struct island *is)
{
    is->stopping = true;
    if (is->control != NULL)
        pl_conn_close(is->control, 0);
    if (is->bulk != NULL)
        pl_conn_close(is->bulk, 0);
    is->control = is->bulk = NULL;
    uv_close((uv_handle_t *)&is->timer, on_handle);
    uv_close((uv_handle_t *)&is->redial, on_handle);
}

void island_speak(struct island *is)
{
    is->mute = false;
    for (uint32_t i = 0; i < is->run->layout.fragment_count; i++) {
        const struct pl_msg_pull asked = is->fragments[i].asked;
        if (asked.round != 0 && asked.base_version == is->fragments[i].version)
            push(is, &asked);
    }
}

void island_release(struct island *is)
{
    assert_int_equal(is->handles, 0);
    for (uint32_t i = 0; i < is->run->layout.fragment_count; i++) {
        free(is->fragments[i].anchor);
        free(is->fragments[i].incoming);
        free(is->fragments[i].payload);
    }
    free(is->fragments);
    free(is->encoded);
    free(is->packed);
    free(is->scratch);
    pl_packer_free(is->packer);
}

uint64_t island_version(const struct island *is)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < is->run->layout.fragment_count; i++)
        if (is->run->layout.fragments[i].shard == is->shard && is->fragments[i].version < least)
            least = is->fragments[i].version;
    return least;
}
