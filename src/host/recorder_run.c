/* host/recorder_run.c - a recording stepped through a fresh core; see recorder.h. The file may be anybody's: every length
 * is compared before it is used, and numbers that the core would assert on are compared as well. */
#include "host/recorder_int.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/fmt.h"
#include "base/hash.h"
#include "base/num.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { LINE_MAX_BYTES = 512, FRONT_BYTES = 1024 };
#define ENTRY_BYTES_MAX (UINT64_C(1) << 30)

struct run {
    struct pl_alloc alloc;
    FILE *file;
    struct pl_buf head; /* with the manifest's bytes */
    struct pl_buf entry;
    struct pl_buf effects;
    struct pl_msg manifest;
    struct pl_sync_options options;
    uint32_t fragments;
    void *memory;
    size_t memory_bytes;
    struct pl_syncer *core;
    struct pl_sync_fxs fxs;
    struct pl_contributor *contributors;
    uint8_t *data; /* zeros, for chunks */
    uint32_t data_len;
    void (*line)(void *user, const char *text);
    void *user;
    struct pl_replay_report *report;
    bool whole; /* what is wrong is no damage, and err says what it is */
    struct pl_error *err;
};

static enum pelago_status broken(struct run *x, const char *what)
{
    return pl_fail(x->err, PELAGO_CORRUPT, "event %lu: %s", x->report->events, what);
}

/* ---- reading ---- */

static enum pelago_status take(struct run *x, struct pl_buf *b, size_t n, bool *end)
{
    *end = false;
    enum pelago_status st = pl_buf_reserve(b, n);
    if (st != PELAGO_OK)
        return pl_fail(x->err, st, "it has a piece of %lu bytes, too long to hold", (uint64_t)n);
    *end = fread(b->data + b->len, 1, n, x->file) != n;
    b->len += n;
    return PELAGO_OK;
}

static enum pelago_status no_recording(struct run *x)
{
    x->whole = true;
    return pl_fail(x->err, PELAGO_CORRUPT, "it is not one of a syncer, or it is cut off");
}

static enum pelago_status read_head(struct run *x)
{
    bool end;
    PL_TRY(take(x, &x->head, 24, &end));
    if (!end && memcmp(x->head.data, PL_RECORDER_MAGIC, 7) == 0 && x->head.data[7] < PL_RECORDER_MAGIC[7] &&
        x->head.data[7] >= PL_RECORDER_OLDEST[7])
        return pl_fail(x->err, PELAGO_UNSUPPORTED,
                       "it was made by an older version of pelago: replay it with that one");
    if (end || memcmp(x->head.data, PL_RECORDER_MAGIC, 8) != 0)
        return no_recording(x);
    x->options.shard = (uint32_t)pl_get_le(x->head.data + 8, 4);
    x->options.learners_max = (uint32_t)pl_get_le(x->head.data + 12, 4);
    x->options.conns_max = (uint32_t)pl_get_le(x->head.data + 16, 4);
    uint32_t len = (uint32_t)pl_get_le(x->head.data + 20, 4);
    if (len > PL_MSG_MANIFEST_BYTES_MAX || x->options.learners_max == 0 ||
        x->options.learners_max > PL_LEARNERS_MAX || x->options.conns_max == 0 ||
        x->options.conns_max > 16u * PL_LEARNERS_MAX)
        return no_recording(x);
    PL_TRY(take(x, &x->head, len + (size_t)4, &end));
    if (end)
        return no_recording(x);
    x->fragments = (uint32_t)pl_get_le(x->head.data + 24 + len, 4);
    if (x->fragments > PL_FRAGMENTS_MAX)
        return no_recording(x);
    PL_TRY(take(x, &x->head, (size_t)x->fragments * 8, &end));
    size_t bytes = x->head.len;
    if (!end)
        PL_TRY(take(x, &x->head, PL_ENTRY_TAIL_BYTES, &end));
    if (end)
        return no_recording(x);
    if (pl_hash64(x->head.data, bytes, 0) != pl_get_le(x->head.data + bytes, 8))
        return pl_fail(x->err, PELAGO_CORRUPT, "its first bytes are not those that were written");
    PL_TRY(pl_msg_decode(PL_MSG_MANIFEST, x->head.data + 24, len, &x->manifest, x->err));
    PL_TRY(pl_manifest_check(&x->manifest.u.manifest, x->err));
    x->options.manifest = &x->manifest.u.manifest;
    if (x->options.shard >= x->options.manifest->shard_count ||
        pl_manifest_shard_fragments(x->options.manifest, x->options.shard) != x->fragments)
        return no_recording(x);
    return PELAGO_OK;
}

static enum pelago_status build(struct run *x)
{
    struct pl_msg m = {.type = PL_MSG_MANIFEST, .u.manifest = *x->options.manifest};
    size_t len = pl_msg_payload_bytes(&m), offset = 24 + len + 4;
    PL_TRY(pl_buf_reserve(&x->effects, len));
    x->options.manifest_digest = pl_manifest_digest(x->options.manifest, x->effects.data, len);
    x->memory_bytes = pl_syncer_bytes(&x->options);
    x->memory = pl_alloc_zero(&x->alloc, 1, x->memory_bytes);
    x->fxs.max = pl_syncer_effects_max(&x->options);
    x->fxs.fx = pl_alloc_zero(&x->alloc, x->fxs.max, sizeof *x->fxs.fx);
    x->contributors = pl_alloc_zero(&x->alloc, x->options.learners_max, sizeof *x->contributors);
    if (x->memory == NULL || x->fxs.fx == NULL || x->contributors == NULL)
        return pl_fail(x->err, PELAGO_NOMEM, "there is no memory for a core with %u learners",
                       x->options.learners_max);
    x->core = pl_syncer_init(x->memory, x->memory_bytes, &x->options);
    uint32_t at = 0;
    for (uint32_t i = 0; i < x->options.manifest->fragments.count; i++)
        if (pl_item_fragment_at(&x->options.manifest->fragments, i).shard == x->options.shard)
            pl_syncer_set_origin(x->core, i, pl_get_le(x->head.data + offset + 8 * (size_t)at++, 8));
    return PELAGO_OK;
}

/* ---- events ---- */

static enum pelago_status read_msg(struct run *x, struct pl_reader *r, struct pl_msg *out)
{
    uint8_t type = pl_read_u8(r);
    uint32_t data = pl_read_u32(r), len = pl_read_u32(r);
    const uint8_t *payload = pl_read_bytes(r, len);
    if (r->bad || pl_msg_info(type) == NULL || data > PL_CHUNK_BYTES_MAX)
        return broken(x, "a message is damaged");
    PL_TRY(pl_msg_decode(type, payload, len, out, x->err));
    if (type != PL_MSG_DATA)
        return PELAGO_OK;
    if (data > x->data_len) {
        uint8_t *more = x->alloc.resize(x->alloc.user, x->data, x->data_len, data);
        if (more == NULL)
            return broken(x, "there is no memory for a chunk");
        memset(more, 0, data);
        x->data = more;
        x->data_len = data;
    }
    out->u.data.bytes = (struct pl_blob){x->data, data};
    return PELAGO_OK;
}

static void read_text(struct pl_reader *r, struct pl_error *out)
{
    uint32_t len = pl_read_u32(r);
    const uint8_t *text = len <= PL_TEXT_MAX ? pl_read_bytes(r, len) : NULL;
    r->bad = r->bad || text == NULL;
    if (!r->bad)
        memcpy(out->text, text, len);
    out->text[r->bad ? 0 : len] = '\0';
}

static bool owned(const struct run *x, uint32_t fragment)
{
    const struct pl_array *all = &x->options.manifest->fragments;
    return fragment < all->count && pl_item_fragment_at(all, fragment).shard == x->options.shard;
}

/* Numbers the core asserts on because a host cannot get them wrong; a file can. */
static bool plausible(const struct run *x, const struct pl_sync_event *ev)
{
    switch (ev->kind) {
    case PL_SYNC_EV_OPENED:
        return ev->u.opened.conn < x->options.conns_max && ev->u.opened.identity != 0;
    case PL_SYNC_EV_CLOSED:
        return ev->u.closed.conn < x->options.conns_max;
    case PL_SYNC_EV_MSG:
        return ev->u.msg.conn < x->options.conns_max;
    case PL_SYNC_EV_BAD:
        return ev->u.bad.conn < x->options.conns_max;
    case PL_SYNC_EV_VERIFIED:
        return ev->u.verified.learner < x->options.learners_max && owned(x, ev->u.verified.fragment);
    case PL_SYNC_EV_MERGED:
        return owned(x, ev->u.merged.fragment);
    case PL_SYNC_EV_BOOT:
    case PL_SYNC_EV_STORED:
    case PL_SYNC_EV_TIMEOUT:
    case PL_SYNC_EV_FINISH:
    case PL_SYNC_EV_DOUBT:
        break;
    }
    return true;
}

static enum pelago_status read_event(struct run *x, struct pl_reader *r, struct pl_sync_event *ev,
                                     struct pl_msg *msg, struct pl_error *error)
{
    *ev = (struct pl_sync_event){.kind = (enum pl_sync_ev)pl_read_u8(r)};
    ev->now_ns = pl_read_u64(r);
    switch (ev->kind) {
    case PL_SYNC_EV_TIMEOUT:
    case PL_SYNC_EV_FINISH:
        break;
    case PL_SYNC_EV_BOOT:
        ev->u.boot.epoch_least = pl_read_u64(r);
        break;
    case PL_SYNC_EV_OPENED:
        ev->u.opened.conn = pl_read_u32(r);
        ev->u.opened.identity = pl_read_u64(r);
        break;
    case PL_SYNC_EV_CLOSED:
        ev->u.closed.conn = pl_read_u32(r);
        break;
    case PL_SYNC_EV_MSG:
        ev->u.msg.conn = pl_read_u32(r);
        ev->u.msg.msg = msg;
        PL_TRY(read_msg(x, r, msg));
        break;
    case PL_SYNC_EV_BAD:
        ev->u.bad.conn = pl_read_u32(r);
        ev->u.bad.error = error;
        read_text(r, error);
        break;
    case PL_SYNC_EV_VERIFIED:
        ev->u.verified.learner = pl_read_u32(r);
        ev->u.verified.fragment = pl_read_u32(r);
        ev->u.verified.round = pl_read_u64(r);
        ev->u.verified.good = pl_read_u8(r) != 0;
        break;
    case PL_SYNC_EV_MERGED:
        ev->u.merged.fragment = pl_read_u32(r);
        ev->u.merged.round = pl_read_u64(r);
        ev->u.merged.digest = pl_read_u64(r);
        ev->u.merged.update_bytes = pl_read_u64(r);
        ev->u.merged.good = pl_read_u8(r) != 0;
        break;
    case PL_SYNC_EV_STORED:
        ev->u.stored.seq = pl_read_u64(r);
        ev->u.stored.durable = pl_read_u8(r) != 0;
        break;
    case PL_SYNC_EV_DOUBT:
        ev->u.doubt.identity = pl_read_u64(r);
        ev->u.doubt.doubted = pl_read_u8(r) != 0;
        break;
    default:
        return broken(x, "its kind is unknown");
    }
    if (r->bad || pl_reader_left(r) != 8 || ev->now_ns < x->report->last_ns || !plausible(x, ev))
        return broken(x, "its fields cannot be");
    return PELAGO_OK;
}

static void tell(struct run *x, const struct pl_sync_event *ev)
{
    static const char *const names[] = {"",         "BOOT",   "OPENED", "CLOSED",  "MSG",    "BAD",
                                        "VERIFIED", "MERGED", "STORED", "TIMEOUT", "FINISH", "DOUBT"};
    char text[LINE_MAX_BYTES], rest[LINE_MAX_BYTES] = "";
    if (x->line == NULL)
        return;
    if (ev->kind == PL_SYNC_EV_MSG)
        (void)pl_msg_print(ev->u.msg.msg, rest, sizeof rest);
    uint64_t since = ev->now_ns - x->report->first_ns;
    (void)pl_fmt(text, sizeof text, "%lu ms %s %s", since / PL_MS, names[ev->kind], rest);
    x->line(x->user, text);
    for (uint32_t i = 0; i < x->fxs.count; i++)
        if (x->fxs.fx[i].kind == PL_SYNC_FX_TRACE) {
            (void)pl_trace_print(&x->fxs.fx[i].u.trace, rest, sizeof rest);
            (void)pl_fmt(text, sizeof text, "    %s", rest);
            x->line(x->user, text);
        }
}

static enum pelago_status event_entry(struct run *x)
{
    struct pl_reader r = pl_reader_of(x->entry.data, x->entry.len);
    struct pl_sync_event ev;
    struct pl_msg msg;
    struct pl_error error = {.status = PELAGO_PROTO};
    bool good = true;
    PL_TRY(read_event(x, &r, &ev, &msg, &error));
    if (x->report->events == 0)
        x->report->first_ns = ev.now_ns;
    x->report->last_ns = ev.now_ns;
    pl_syncer_step(x->core, &ev, &x->fxs);
    tell(x, &ev);
    uint64_t hash = pl_effects_hash(&x->fxs, &x->effects, &good);
    if (!good)
        return pl_fail(x->err, PELAGO_NOMEM, "there is no memory for the effects of a step");
    x->whole = hash != pl_read_u64(&r);
    if (x->whole)
        return broken(x, "the core did not ask for the same effects as when it was recorded");
    x->report->events++;
    x->report->messages += ev.kind == PL_SYNC_EV_MSG ? 1 : 0;
    return PELAGO_OK;
}

static enum pelago_status one_entry(struct run *x, uint8_t kind)
{
    struct pl_record record;
    switch (kind) {
    case PL_ENTRY_LOAD:
        return pl_syncer_load(x->core, x->entry.data, x->entry.len, x->err);
    case PL_ENTRY_REPLAY:
        PL_TRY(pl_record_decode(x->entry.data, x->entry.len, &record, x->contributors,
                                x->options.learners_max, x->err));
        x->report->records++;
        return pl_syncer_replay(x->core, &record, x->err);
    case PL_ENTRY_EVENT:
        return event_entry(x);
    default:
        return broken(x, "the entry's kind is unknown");
    }
}

/* What stays is the entry's bytes. */
static enum pelago_status check_entry(struct run *x, size_t len)
{
    uint8_t *bytes = x->entry.data;
    if (pl_get_le(bytes + PL_ENTRY_HEAD_BYTES + len, 8) != pl_hash64(bytes, PL_ENTRY_HEAD_BYTES + len, 0))
        return broken(x, "its bytes are damaged");
    memmove(bytes, bytes + PL_ENTRY_HEAD_BYTES, len);
    x->entry.len = len;
    return PELAGO_OK;
}

static enum pelago_status all_entries(struct run *x)
{
    for (;;) {
        bool end;
        uint8_t head[PL_ENTRY_HEAD_BYTES];
        size_t got = fread(head, 1, sizeof head, x->file);
        if (got == 0)
            return PELAGO_OK;
        uint64_t len = got == sizeof head ? pl_get_le(head + 1, 4) : 0;
        if (len > ENTRY_BYTES_MAX)
            return broken(x, "an entry is longer than any can be");
        x->entry.len = 0;
        PL_TRY(pl_buf_append(&x->entry, head, got));
        PL_TRY(take(x, &x->entry, len + PL_ENTRY_TAIL_BYTES, &end));
        if (got != sizeof head || end) {
            x->report->cut = true;
            return PELAGO_OK;
        }
        PL_TRY(check_entry(x, len));
        PL_TRY(one_entry(x, head[0]));
    }
}

static enum pelago_status play(struct run *x)
{
    PL_TRY(read_head(x));
    PL_TRY(build(x));
    x->report->shard = x->options.shard;
    x->report->fragments = x->fragments;
    PL_TRY(all_entries(x));
    pl_syncer_check(x->core);
    pl_syncer_view(x->core, &x->report->view);
    return PELAGO_OK;
}

/* Whatever displeased a reader, the core or a limit: a recorder writes none of it. */
static enum pelago_status name_file(const struct run *x, const char *path, enum pelago_status st)
{
    bool damaged = !x->whole && st != PELAGO_NOMEM && st != PELAGO_UNSUPPORTED;
    const struct pl_error why = *x->err;
    return pl_fail(x->err, st, "the recording %s%s: %s", path, damaged ? " is damaged" : "", why.text);
}

enum pelago_status pl_recorder_run(const struct pl_alloc *alloc, const char *path,
                                   void (*line)(void *user, const char *text), void *user,
                                   struct pl_replay_report *report, struct pl_error *err)
{
    struct run x = {.alloc = *alloc, .line = line, .user = user, .report = report, .err = err};
    *report = (struct pl_replay_report){.events = 0};
    x.file = fopen(path, "rbe");
    if (x.file == NULL)
        return pl_fail(err, errno == ENOENT ? PELAGO_NOTFOUND : PELAGO_IO,
                       "the recording %s cannot be read: %s", path, strerror(errno));
    pl_buf_init(&x.head, &x.alloc, UINT64_C(1) << 30);
    pl_buf_init(&x.entry, &x.alloc, ENTRY_BYTES_MAX);
    pl_buf_init(&x.effects, &x.alloc, UINT64_C(1) << 30);
    enum pelago_status st = play(&x);
    if (st != PELAGO_OK)
        st = name_file(&x, path, st);
    (void)fclose(x.file);
    pl_buf_release(&x.head);
    pl_buf_release(&x.entry);
    pl_buf_release(&x.effects);
    pl_alloc_free(&x.alloc, x.memory, x.memory_bytes);
    pl_alloc_free(&x.alloc, x.fxs.fx, x.fxs.max * sizeof *x.fxs.fx);
    pl_alloc_free(&x.alloc, x.contributors, x.options.learners_max * sizeof *x.contributors);
    pl_alloc_free(&x.alloc, x.data, x.data_len);
    return st;
}
