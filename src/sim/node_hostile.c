/* sim/node_hostile.c - see node_hostile.h. */
#include "sim/node_hostile.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/hash.h"
#include "base/num.h"
#include "core/manifest.h"
#include "sim/codec.h"
#include "wire/frame.h"

#include <string.h>

static bool chance(struct pl_hostile *h, uint32_t percent)
{
    return pl_prng_below(&h->prng, 100) < percent;
}

/* Values at and around the edges more often than others. */
static uint64_t any_number(struct pl_hostile *h, uint64_t limit)
{
    switch (pl_prng_below(&h->prng, 6)) {
    case 0:
        return 0;
    case 1:
        return limit;
    case 2:
        return limit > 0 ? limit - 1 : 0;
    case 3:
        return pl_min64(limit, 1);
    case 4:
        return pl_min64(limit, pl_prng_below(&h->prng, 100));
    default:
        return limit == UINT64_MAX ? pl_prng_next(&h->prng) : pl_prng_below(&h->prng, limit + 1);
    }
}

/* What would be right here, for fields whose meaning their name tells. */
static bool right_number(const struct pl_world *w, struct pl_hostile *h, const char *name, uint64_t *v)
{
    const struct {
        const char *name;
        uint64_t value;
    } known[] = {
        {"run_id", w->objective->manifest.run_id},
        {"incarnation", h->incarnation},
        {"nonce", h->nonce},
        {"manifest_digest", w->objective->manifest_digest},
        {"fragment", h->pulled ? h->pull.fragment : pl_prng_below(&h->prng, w->objective->fragments)},
        {"round", h->pull.round},
        {"id", h->pull.round},
        {"base_version", h->pull.base_version},
        {"version", h->pull.base_version},
        {"steps", h->steps},
        {"tokens", h->tokens},
        {"bytes", w->objective->fragment[h->pull.fragment].push_bytes_max},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(name, known[i].name) == 0) {
            *v = known[i].value;
            return true;
        }
    return false;
}

static uint64_t number_for(const struct pl_world *w, struct pl_hostile *h, const struct pl_field *f)
{
    uint64_t v;
    if (chance(h, 60) && right_number(w, h, f->name, &v) && v <= f->limit)
        return v;
    return any_number(h, f->limit);
}

static uint8_t *take_scratch(struct pl_hostile *h, uint32_t bytes)
{
    if (bytes > PL_HOSTILE_SCRATCH - h->scratch_used)
        return NULL;
    uint8_t *at = h->scratch + h->scratch_used;
    h->scratch_used += bytes;
    return at;
}

static struct pl_array any_array(const struct pl_world *w, struct pl_hostile *h, const struct pl_field *f)
{
    uint32_t count = (uint32_t)pl_min64(f->limit, pl_prng_below(&h->prng, 4));
    uint8_t *items = take_scratch(h, count * f->item->bytes);
    if (items == NULL)
        return (struct pl_array){NULL, 0};
    struct pl_writer out = pl_writer_of(items, (size_t)count * f->item->bytes);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < f->item->field_count; k++) {
            const struct pl_field *g = &f->item->fields[k];
            if (g->kind == PL_FIELD_NAME) {
                memset(pl_write_room(&out, PL_NAME_MAX), 0, PL_NAME_MAX);
                out.at[-PL_NAME_MAX] = (uint8_t)('a' + pl_prng_below(&h->prng, 26));
            } else {
                pl_write_le(&out, number_for(w, h, g),
                            g->kind == PL_FIELD_U8    ? 1
                            : g->kind == PL_FIELD_U32 ? 4
                                                      : 8);
            }
        }
    return (struct pl_array){items, count};
}

static struct pl_blob any_blob(struct pl_hostile *h, bool text)
{
    uint32_t len = (uint32_t)pl_prng_below(&h->prng, 100);
    uint8_t *data = take_scratch(h, len);
    if (data == NULL)
        return (struct pl_blob){NULL, 0};
    for (uint32_t i = 0; i < len; i++)
        data[i] = (uint8_t)(text ? 'a' + pl_prng_below(&h->prng, 26) : pl_prng_below(&h->prng, 256));
    return (struct pl_blob){data, len};
}

static void fill_field(const struct pl_world *w, struct pl_hostile *h, const struct pl_field *f,
                       uint8_t *body)
{
    uint8_t *at = body + f->offset;
    uint64_t v = 0;
    uint32_t v32;
    struct pl_array array;
    struct pl_blob blob;
    if (f->kind == PL_FIELD_ARRAY) {
        array = any_array(w, h, f);
        memcpy(at, &array, sizeof array);
        return;
    }
    if (f->kind == PL_FIELD_TEXT || f->kind == PL_FIELD_BYTES) {
        blob = any_blob(h, f->kind == PL_FIELD_TEXT);
        memcpy(at, &blob, sizeof blob);
        return;
    }
    v = number_for(w, h, f);
    v32 = (uint32_t)v;
    if (f->kind == PL_FIELD_U8)
        *at = (uint8_t)v;
    else if (f->kind == PL_FIELD_U32)
        memcpy(at, &v32, sizeof v32);
    else
        memcpy(at, &v, sizeof v);
}

/* An enrolled peer can say that the run is over, or that it has seen very many tokens, and be believed; that is known
 * and not what is tested here. Its claims are either too large to be believed, or small. */
static void tame(const struct pl_world *w, struct pl_hostile *h, struct pl_msg *msg)
{
    uint64_t *steps = NULL, *tokens = NULL;
    if (msg->type == PL_MSG_HELLO) {
        msg->u.hello.flags &= 1;
        steps = &msg->u.hello.steps;
        tokens = &msg->u.hello.tokens;
    } else if (msg->type == PL_MSG_REPORT) {
        msg->u.report.flags &= 1;
        steps = &msg->u.report.steps;
        tokens = &msg->u.report.tokens;
    } else if (msg->type == PL_MSG_PUSH) {
        steps = &msg->u.push.steps;
        tokens = &msg->u.push.tokens;
    }
    if (steps == NULL)
        return;
    uint64_t most;
    bool over = pl_mul_overflow(*steps, w->objective->manifest.step_tokens_max, &most);
    if (over || *tokens <= most) {
        *steps = pl_min64(*steps, h->steps + 2);
        *tokens = pl_min64(*tokens, h->tokens + 2);
    }
}

static void remember(struct pl_world *w, struct pl_hostile *h, uint32_t link, const struct pl_msg *msg)
{
    uint32_t i = (uint32_t)pl_prng_below(&h->prng, PL_HOSTILE_REPLAYS);
    size_t len = pl_frame_bytes(msg);
    uint8_t *bytes = pl_world_zero(w, 1, len);
    if (bytes == NULL)
        return;
    pl_frame_encode(msg, bytes, len);
    pl_alloc_free(&w->alloc, h->replay[i].bytes, h->replay[i].len);
    h->replay[i].bytes = bytes;
    h->replay[i].len = len;
    h->replay[i].link = link;
}

static void say(struct pl_world *w, struct pl_hostile *h, uint32_t link, const struct pl_msg *msg)
{
    if (!h->up[link])
        return;
    if (pl_world_tracing(w)) {
        char text[PL_SIM_TEXT_MAX];
        pl_msg_print(msg, text, sizeof text);
        pl_world_line(w, "hostile", h->machine + 1, "sends %s to syncer %lu", text, (uint64_t)h->shard);
    }
    remember(w, h, link, msg);
    pl_net_send(w->net, h->conns[link], PL_SIDE_LEARNER, msg);
}

static void say_anything(struct pl_world *w, struct pl_hostile *h)
{
    struct pl_msg msg;
    memset(&msg, 0, sizeof msg);
    uint32_t link = (uint32_t)pl_prng_below(&h->prng, 2);
    msg.type = (uint8_t)(1 + pl_prng_below(&h->prng, PL_MSG_CLOSE));
    const struct pl_msg_info *info = pl_msg_info(msg.type);
    if (info == NULL)
        return;
    if (chance(h, 80)) /* mostly on the right connection, so that it gets further */
        link = info->channel == PL_CHANNEL_BULK ? PL_LINK_BULK : PL_LINK_CONTROL;
    h->scratch_used = 0;
    for (uint32_t i = 0; i < info->field_count; i++)
        fill_field(w, h, &info->fields[i], (uint8_t *)&msg.u);
    tame(w, h, &msg);
    say(w, h, link, &msg);
}

static void say_bytes(struct pl_world *w, struct pl_hostile *h)
{
    uint32_t link = (uint32_t)pl_prng_below(&h->prng, 2);
    if (!h->up[link])
        return;
    uint8_t bytes[64];
    size_t len = 1 + pl_prng_below(&h->prng, sizeof bytes);
    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)pl_prng_next(&h->prng);
    if (chance(h, 50) && len >= 4) { /* looks like a frame for longer */
        bytes[0] = 'P';
        bytes[1] = 'L';
        bytes[2] = PL_PROTOCOL_VERSION;
        bytes[3] = (uint8_t)pl_prng_range(&h->prng, 1, PL_MSG_CLOSE);
    }
    pl_net_send_bytes(w->net, h->conns[link], PL_SIDE_LEARNER, bytes, len);
}

static void say_again(struct pl_world *w, struct pl_hostile *h)
{
    uint32_t i = (uint32_t)pl_prng_below(&h->prng, PL_HOSTILE_REPLAYS);
    uint32_t link = h->replay[i].link;
    size_t len = h->replay[i].len;
    if (h->replay[i].bytes == NULL || !h->up[link])
        return;
    size_t first = chance(h, 30) ? pl_prng_below(&h->prng, len) : 0; /* sometimes in two pieces */
    if (first > 0)
        pl_net_send_bytes(w->net, h->conns[link], PL_SIDE_LEARNER, h->replay[i].bytes, first);
    pl_net_send_bytes(w->net, h->conns[link], PL_SIDE_LEARNER, h->replay[i].bytes + first, len - first);
}

/* ---- a conversation that begins well ---- */

static void greet(struct pl_world *w, struct pl_hostile *h)
{
    h->nonce = pl_prng_next(&h->prng);
    h->steps = h->tokens = 0;
    say(w, h, PL_LINK_CONTROL,
        &(struct pl_msg){.type = PL_MSG_HELLO,
                         .u.hello = {.run_id = w->objective->manifest.run_id,
                                     .incarnation = h->shard == 0 ? 0 : h->incarnation,
                                     .nonce = h->nonce,
                                     .manifest_digest = w->objective->manifest_digest}});
}

static void join(struct pl_world *w, struct pl_hostile *h)
{
    uint32_t count = pl_manifest_shard_fragments(&w->objective->manifest, h->shard);
    uint32_t bytes = count * PL_ITEM_HAVE_BYTES;
    h->scratch_used = 0;
    uint8_t *items = take_scratch(h, bytes);
    if (items == NULL)
        return;
    memset(items, 0, bytes);
    h->joined = true;
    say(w, h, PL_LINK_CONTROL,
        &(struct pl_msg){.type = PL_MSG_JOIN, .u.join = {.have = {items, count}, .units = {items, 0}}});
}

static void report(struct pl_world *w, struct pl_hostile *h)
{
    h->steps++;
    h->tokens++;
    say(w, h, PL_LINK_CONTROL,
        &(struct pl_msg){
            .type = PL_MSG_REPORT,
            .u.report = {
                .steps = h->steps, .tokens = h->tokens, .step_ns = w->o.step_ns, .unit = PL_NONE64}});
}

/* A push of zeros; or one that lies about its size, digest or numbers. */
static void answer_pull(struct pl_world *w, struct pl_hostile *h)
{
    size_t bytes = w->objective->fragment[h->pull.fragment].push_bytes_max;
    h->scratch_used = 0;
    uint8_t *payload = take_scratch(h, (uint32_t)bytes);
    if (payload == NULL)
        return;
    memset(payload, 0, bytes);
    if (chance(h, 20))
        pl_put_le(payload, 0x7fc00000, 4); /* a scale that is no number */
    struct pl_msg push = {.type = PL_MSG_PUSH,
                          .u.push = {.fragment = h->pull.fragment,
                                     .round = h->pull.round,
                                     .base_version = h->pull.base_version,
                                     .steps = 1,
                                     .tokens = 1,
                                     .bytes = bytes,
                                     .digest = pl_hash64(payload, bytes, 0)}};
    if (chance(h, 15))
        push.u.push.digest ^= 1;
    if (chance(h, 10))
        push.u.push.tokens = PL_COUNT_MAX;
    if (chance(h, 10))
        push.u.push.bytes++;
    if (chance(h, 10))
        push.u.push.base_version = pl_sub_sat(push.u.push.base_version, 1);
    say(w, h, PL_LINK_BULK, &push);
    say(w, h, PL_LINK_BULK,
        &(struct pl_msg){.type = PL_MSG_DATA,
                         .u.data = {.fragment = h->pull.fragment,
                                    .id = h->pull.round,
                                    .index = 0,
                                    .bytes = {payload, (uint32_t)bytes}}});
}

static void dial(struct pl_world *w, struct pl_hostile *h, uint32_t link)
{
    h->conns[link] = pl_net_dial(w->net, &(struct pl_conn_info){.machine = h->machine,
                                                                .shard = h->shard,
                                                                .link = (enum pl_link)link,
                                                                .owner = h->machine - w->o.learners});
}

static void go_on(struct pl_world *w, struct pl_hostile *h)
{
    if (h->conns[PL_LINK_CONTROL] == PL_NONE32) {
        h->shard = chance(h, 60) || h->incarnation == 0 ? 0 : (uint32_t)pl_prng_below(&h->prng, w->o.shards);
        dial(w, h, PL_LINK_CONTROL);
    } else if (h->welcome && !h->joined) {
        join(w, h);
    } else if (h->joined && h->conns[PL_LINK_BULK] == PL_NONE32) {
        dial(w, h, PL_LINK_BULK);
    } else if (h->joined) {
        report(w, h);
    }
}

static void act(struct pl_world *w, const struct pl_sim_ev *ev)
{
    struct pl_hostile *h = &w->hostiles[ev->who];
    uint32_t what = (uint32_t)pl_prng_below(&h->prng, 100);
    if (w->healed)
        return; /* it goes quiet; its connections are closed by whom it bores */
    if (what < 55)
        go_on(w, h);
    else if (h->garbage)
        say_bytes(w, h);
    else if (what < 90)
        say_anything(w, h);
    else
        say_again(w, h);
    pl_world_at(w, &(struct pl_sim_ev){.at = w->now_ns + pl_prng_range(&h->prng, PL_MS, 1000 * PL_MS),
                                       .fire = act,
                                       .who = ev->who});
}

void pl_hostile_init(struct pl_world *w, uint32_t index, bool garbage)
{
    struct pl_hostile *h = &w->hostiles[index];
    h->machine = w->o.learners + index;
    h->garbage = garbage;
    h->conns[0] = h->conns[1] = PL_NONE32;
    pl_prng_seed(&h->prng, w->o.seed, PL_STREAM_HOSTILE * 100 + index);
    pl_world_at(w, &(struct pl_sim_ev){.at = pl_prng_below(&h->prng, PL_SEC), .fire = act, .who = index});
}

static struct pl_hostile *owner_of(struct pl_world *w, uint32_t conn)
{
    return &w->hostiles[pl_net_info(w->net, conn)->owner];
}

void pl_hostile_opened(struct pl_world *w, uint32_t conn)
{
    struct pl_hostile *h = owner_of(w, conn);
    enum pl_link link = pl_net_info(w->net, conn)->link;
    h->up[link] = true;
    if (link == PL_LINK_CONTROL && chance(h, 90))
        greet(w, h);
    else if (link == PL_LINK_BULK && chance(h, 90))
        say(w, h, PL_LINK_BULK,
            &(struct pl_msg){.type = PL_MSG_ATTACH,
                             .u.attach = {.incarnation = h->incarnation, .partial = {h->scratch, 0}}});
}

void pl_hostile_closed(struct pl_world *w, uint32_t conn)
{
    struct pl_hostile *h = owner_of(w, conn);
    enum pl_link link = pl_net_info(w->net, conn)->link;
    h->conns[link] = PL_NONE32;
    h->up[link] = false;
    if (link == PL_LINK_CONTROL)
        h->welcome = h->joined = h->pulled = false;
}

void pl_hostile_message(struct pl_world *w, uint32_t conn, const struct pl_msg *msg)
{
    struct pl_hostile *h = owner_of(w, conn);
    if (msg->type == PL_MSG_WELCOME) {
        h->welcome = true;
        h->incarnation = msg->u.welcome.incarnation;
    } else if (msg->type == PL_MSG_PULL) {
        h->pull = msg->u.pull;
        h->pulled = true;
        if (chance(h, 70))
            answer_pull(w, h);
    }
}
