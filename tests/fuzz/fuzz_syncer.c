/* fuzz_syncer.c - a whole syncer shard under whatever a peer, its disk and its data plane may do.
 *
 * The first byte chooses: raw bytes of one peer through the frame parser, or a script. A script is a sequence of
 * actions: connections come and go under a few identities, messages of any type arrive in correct frames with fields
 * drawn from small numbers, from what the shard said last, and from the ends of their ranges; time passes; VERIFY,
 * MERGE and STORE are answered well, badly, late; the power fails. Well-behaved peers are among the actions, so that
 * deep states are reached. The rig checks the shard's invariants and the host's contract after every step.
 */
#include "sync_rig.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/num.h"
#include "wire/frame.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { IDENTITIES = 5, ITEMS_MAX = 4, ACTIONS_MAX = 400 };

static struct rig rig; /* kept from input to input, for its memory */
static struct pl_reader in;

static uint8_t byte(void)
{
    return pl_read_u8(&in);
}

/* ---- messages ---- */

/* Numbers that mean something: what peers were told, and the ends of ranges. */
static uint64_t number(uint64_t limit)
{
    uint8_t choice = byte();
    const struct rig_peer *p = &rig.peers[choice % IDENTITIES];
    uint32_t f = choice / 8 % rig.o.fragments;
    const uint64_t known[] = {p->incarnation,
                              p->pull[f].round,
                              p->pull[f].base,
                              p->steps,
                              p->tokens,
                              p->unit,
                              p->cursor,
                              rig.fragments[f].version,
                              rig_digest(f, rig.fragments[f].version),
                              p->update[f].header.to_version,
                              p->update[f].header.bytes,
                              p->identity,
                              limit,
                              limit - 1,
                              limit / 2 + 1,
                              PL_ROUND(1, choice)};
    uint64_t v = choice < 128 ? choice % 16 : known[choice % 16];
    return pl_min64(v, limit);
}

static void item(const struct pl_item_info *info, uint8_t *out)
{
    for (uint32_t i = 0; i < info->field_count; i++) {
        const struct pl_field *f = &info->fields[i];
        unsigned width = f->kind == PL_FIELD_U8 ? 1 : f->kind == PL_FIELD_U32 ? 4 : 8;
        if (f->kind == PL_FIELD_NAME)
            width = PL_NAME_MAX; /* stays empty */
        else
            pl_put_le(out, number(f->limit), width);
        out += width;
    }
}

static void payload(const struct pl_msg_info *info, struct pl_writer *w)
{
    for (uint32_t i = 0; i < info->field_count; i++) {
        const struct pl_field *f = &info->fields[i];
        if (f->kind == PL_FIELD_U8 || f->kind == PL_FIELD_U32 || f->kind == PL_FIELD_U64) {
            pl_write_le(w, number(f->limit), f->kind == PL_FIELD_U8 ? 1 : f->kind == PL_FIELD_U32 ? 4 : 8);
        } else if (f->kind == PL_FIELD_ARRAY) {
            uint32_t count = byte() % (ITEMS_MAX + 1);
            pl_write_u32(w, count);
            for (uint32_t k = 0; k < count; k++)
                item(f->item, pl_write_room(w, f->item->bytes));
        } else {
            uint32_t len = f->kind == PL_FIELD_TEXT ? 0 : byte();
            pl_write_u32(w, len);
            memset(pl_write_room(w, len), 0, len);
        }
    }
}

/* A payload of the table, or bytes of the input, in a correct frame. */
static void message(uint32_t conn)
{
    static uint8_t bytes[4096];
    struct pl_msg msg;
    uint8_t type = (uint8_t)(1 + byte() % 23);
    struct pl_writer w = pl_writer_of(bytes, sizeof bytes);
    memset(bytes, 0, sizeof bytes);
    if (byte() % 8 == 0) {
        size_t len = byte();
        pl_write_bytes(&w, in.at, pl_min64(len, pl_reader_left(&in)));
        pl_read_bytes(&in, pl_min64(len, pl_reader_left(&in)));
    } else {
        payload(pl_msg_info(type), &w);
    }
    pl_assert(!w.bad);
    struct pl_error err;
    if (pl_msg_decode(type, bytes, pl_writer_len(&w), &msg, &err) == PELAGO_OK)
        rig_send(&rig, conn, &msg);
    else
        rig_step(&rig, &(struct pl_sync_event){.kind = PL_SYNC_EV_BAD,
                                               .now_ns = rig.now_ns,
                                               .u.bad = {.conn = conn, .error = &err}});
}

/* ---- actions ---- */

static uint32_t some_conn(void)
{
    uint32_t first = byte() % RIG_CONNS;
    for (uint32_t i = 0; i < RIG_CONNS; i++)
        if (rig.conns[(first + i) % RIG_CONNS].open)
            return (first + i) % RIG_CONNS;
    return PL_NONE32;
}

static void connection_action(uint8_t action)
{
    uint32_t conn;
    switch (action) {
    case 0:
        if (rig.listening)
            rig_open(&rig, rig_identity(byte() % IDENTITIES));
        break;
    case 1:
        conn = some_conn();
        if (conn != PL_NONE32)
            rig_close(&rig, conn);
        break;
    default:
        conn = some_conn();
        if (conn != PL_NONE32)
            message(conn);
    }
}

static uint32_t conns_free(void)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < RIG_CONNS; i++)
        n += rig.conns[i].open ? 0 : 1;
    return n;
}

/* What a well-behaved learner does. */
static void peer_action(uint8_t action)
{
    uint32_t i = byte() % IDENTITIES, f = byte() % rig.o.fragments;
    bool up = rig_live(&rig, i);
    switch (action) {
    case 0:
        if (!up && rig.listening && conns_free() >= 2)
            rig_up(&rig, i);
        break;
    case 1:
        if (up)
            rig_down(&rig, i);
        break;
    case 2:
        if (!up)
            rig_restart(&rig, i);
        break;
    case 3:
        if (up)
            rig_report(&rig, i, 1 + byte() % 4);
        break;
    case 4:
        if (up)
            rig_push(&rig, i, f);
        break;
    case 5:
        if (up)
            rig_skip(&rig, i, f);
        break;
    case 6:
        if (up)
            rig_send(&rig, rig.peers[i].control, &(struct pl_msg){.type = PL_MSG_WANT});
        break;
    default:
        rig_tick(&rig, action == 7);
    }
}

static void world_action(uint8_t action)
{
    static const uint64_t spans[] = {1,           PL_MS,      10 * PL_MS,   100 * PL_MS,
                                     600 * PL_MS, 5 * PL_SEC, 700 * PL_SEC, 0};
    uint8_t how = byte();
    switch (action) {
    case 0:
        rig_advance(&rig, spans[how % 8]);
        break;
    case 1:
        rig.hold_verify = (how & 1) != 0;
        rig.hold_merge = (how & 2) != 0;
        rig.hold_store = (how & 4) != 0;
        break;
    case 2:
        rig.bad_verify = (how & 1) != 0 && (how & 2) != 0;
        rig.bad_merge = (how & 4) != 0 && (how & 8) != 0;
        rig.bad_store = (how & 16) != 0 && (how & 32) != 0;
        break;
    case 3:
        rig_answer(&rig, PL_SYNC_EV_VERIFIED, (how & 3) != 0);
        break;
    case 4:
        rig_answer(&rig, PL_SYNC_EV_MERGED, (how & 3) != 0);
        break;
    case 5:
        rig_answer(&rig, PL_SYNC_EV_STORED, (how & 3) != 0);
        break;
    case 6:
        if (how % 4 == 0)
            rig_recover(&rig);
        break;
    default:
        if (rig.answers_len == 0)
            rig_snapshot(&rig);
    }
}

static void script(void)
{
    for (uint32_t n = 0; n < ACTIONS_MAX && pl_reader_left(&in) > 0; n++) {
        uint8_t action = byte();
        if (action < 96)
            connection_action(action % 8);
        else if (action < 192)
            peer_action(action % 10);
        else
            world_action(action % 8);
        rig_forget(&rig);
    }
}

/* One peer's stream, cut anywhere; the others are well-behaved. */
static void stream(void)
{
    rig_up_many(&rig, 2);
    uint32_t conn = (byte() & 1) != 0 ? rig.peers[0].control : rig_open(&rig, 99);
    rig_tick(&rig, true);
    if (rig.conns[conn].open)
        rig_bytes(&rig, conn, in.at, pl_reader_left(&in));
    rig_tick(&rig, true);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rig_options o = rig_defaults();
    in = pl_reader_of(data, size);
    uint8_t mode = byte(), shape = byte();
    o.quorum = 1 + shape % 3;
    o.fragments = 2 + (shape / 4 % 2) * 2;
    o.shards = shape / 8 % 4 == 3 ? 2 : 1;
    o.shard = o.shards - 1;
    o.overlap = 1 + shape / 32 % 3;
    o.learners_max = shape / 128 == 0 ? 4 : 3;
    o.budget = mode / 2 % 4 == 0 ? 400 : PL_COUNT_MAX;
    o.unit_tokens = 20;
    if (rig.memory == NULL)
        rig_init(&rig, &o);
    else
        rig_again(&rig, &o);
    for (uint32_t i = 0; i < RIG_PEERS && o.shard != 0; i++)
        rig.peers[i].incarnation = 1;
    if (mode % 2 == 0)
        stream();
    else
        script();
    return 0;
}
