/* host/recorder.c - writing; see recorder.h. Everything is put together in one buffer and handed to the system when that
 * is long enough; a file that cannot be written, or gets too long, ends there and nobody else notices. */
#include "host/recorder_int.h"

#include "host/work.h"
#include "os/dir_posix.h"
#include "os/errors.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/fmt.h"
#include "base/hash.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { BUFFER_BYTES = 256 << 10, WAITING_BYTES_MAX = 64 << 20, LIVES_MAX = 100000 };
#define FILE_BYTES_MAX (UINT64_C(16) << 30)

struct pl_recorder {
    struct pl_job job; /* first: a worker writes `writing` */
    struct pl_alloc alloc;
    FILE *file;
    struct pl_buf out;     /* whole entries, not yet written */
    struct pl_buf writing; /* the worker's while it is busy */
    struct pl_buf effects; /* scratch */
    uint64_t bytes;
    bool ended;  /* no more entries */
    bool failed; /* to write: the worker's while it is busy */
    bool busy;
    uv_loop_t *loop; /* NULL: our own thread writes */
    void (*written)(void *user);
    void *user;
};

/* ---- putting ---- */

static void put(struct pl_buf *b, bool *good, uint64_t v, unsigned width)
{
    uint8_t bytes[8];
    pl_put_le(bytes, v, width);
    *good = *good && pl_buf_append(b, bytes, width) == PELAGO_OK;
}

static void put_bytes(struct pl_buf *b, bool *good, const void *bytes, size_t len)
{
    put(b, good, len, 4);
    if (len > 0)
        *good = *good && pl_buf_append(b, bytes, len) == PELAGO_OK;
}

/* u8 type, u32 length, payload; of DATA the payload without the chunk, whose length is in it. */
static void put_msg(struct pl_buf *b, bool *good, const struct pl_msg *m)
{
    struct pl_msg shortened = *m;
    uint32_t data = 0;
    if (m->type == PL_MSG_DATA) {
        data = m->u.data.bytes.len;
        shortened.u.data.bytes = (struct pl_blob){NULL, 0};
    }
    size_t len = pl_msg_payload_bytes(&shortened);
    put(b, good, m->type, 1);
    put(b, good, data, 4);
    put(b, good, len, 4);
    *good = *good && pl_buf_reserve(b, len) == PELAGO_OK;
    if (*good)
        b->len += pl_msg_encode(&shortened, b->data + b->len, len);
}

static void put_contributors(struct pl_buf *b, bool *good, const struct pl_contributor *c, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        put(b, good, c[i].learner, 4);
        put(b, good, c[i].identity, 8);
        put(b, good, c[i].steps, 8);
        put(b, good, c[i].tokens, 8);
    }
}

static void put_effect(struct pl_buf *b, bool *good, const struct pl_sync_effect *fx)
{
    put(b, good, fx->kind, 1);
    switch (fx->kind) {
    case PL_SYNC_FX_LISTEN:
    case PL_SYNC_FX_FINISHED:
        break;
    case PL_SYNC_FX_SEND:
        put(b, good, fx->u.send.conn, 4);
        put_msg(b, good, &fx->u.send.msg);
        break;
    case PL_SYNC_FX_CLOSE:
        put(b, good, fx->u.close.conn, 4);
        put(b, good, fx->u.close.reason, 4);
        put(b, good, fx->u.close.refuse, 1);
        put_bytes(b, good, fx->u.close.text, strlen(fx->u.close.text));
        break;
    case PL_SYNC_FX_KEEP:
    case PL_SYNC_FX_VERIFY:
    case PL_SYNC_FX_DISCARD:
        put(b, good, fx->u.push.learner, 4);
        put(b, good, fx->u.push.fragment, 4);
        put(b, good, fx->u.push.round, 8);
        put(b, good, fx->u.push.bytes, 8);
        put(b, good, fx->u.push.digest, 8);
        put(b, good, fx->u.push.index, 4);
        break;
    case PL_SYNC_FX_MERGE:
        put(b, good, fx->u.merge.fragment, 4);
        put(b, good, fx->u.merge.round, 8);
        put(b, good, fx->u.merge.base_version, 8);
        put(b, good, fx->u.merge.closing, 1);
        put_contributors(b, good, fx->u.merge.contributors, fx->u.merge.contributor_count);
        break;
    case PL_SYNC_FX_STORE: {
        size_t len = pl_record_bytes(fx->u.store.record);
        put(b, good, fx->u.store.seq, 8);
        *good = *good && pl_buf_reserve(b, len) == PELAGO_OK;
        if (*good)
            b->len += pl_record_encode(fx->u.store.record, b->data + b->len, len);
        break;
    }
    case PL_SYNC_FX_PUBLISH:
        put(b, good, fx->u.publish.fragment, 4);
        put(b, good, fx->u.publish.version, 8);
        put(b, good, fx->u.publish.oldest, 8);
        break;
    case PL_SYNC_FX_DELIVER:
        put(b, good, fx->u.deliver.conn, 4);
        put(b, good, fx->u.deliver.mask, 8);
        put_msg(b, good, &(struct pl_msg){.type = PL_MSG_UPDATE, .u.update = fx->u.deliver.header});
        break;
    case PL_SYNC_FX_TRACE:
        put(b, good, fx->u.trace.code, 4);
        for (int i = 0; i < 4; i++)
            put(b, good, fx->u.trace.arg[i], 8);
        break;
    }
}

uint64_t pl_effects_hash(const struct pl_sync_fxs *fxs, struct pl_buf *scratch, bool *good)
{
    scratch->len = 0;
    put(scratch, good, fxs->count, 4);
    for (uint32_t i = 0; i < fxs->count; i++)
        put_effect(scratch, good, &fxs->fx[i]);
    return *good ? pl_hash64(scratch->data, scratch->len, 0) : 0;
}

static void put_event(struct pl_buf *b, bool *good, const struct pl_sync_event *ev)
{
    put(b, good, ev->kind, 1);
    put(b, good, ev->now_ns, 8);
    switch (ev->kind) {
    case PL_SYNC_EV_TIMEOUT:
    case PL_SYNC_EV_FINISH:
        break;
    case PL_SYNC_EV_BOOT:
        put(b, good, ev->u.boot.epoch_least, 8);
        break;
    case PL_SYNC_EV_OPENED:
        put(b, good, ev->u.opened.conn, 4);
        put(b, good, ev->u.opened.identity, 8);
        break;
    case PL_SYNC_EV_CLOSED:
        put(b, good, ev->u.closed.conn, 4);
        break;
    case PL_SYNC_EV_MSG:
        put(b, good, ev->u.msg.conn, 4);
        put_msg(b, good, ev->u.msg.msg);
        break;
    case PL_SYNC_EV_BAD:
        put(b, good, ev->u.bad.conn, 4);
        put_bytes(b, good, ev->u.bad.error->text, strlen(ev->u.bad.error->text));
        break;
    case PL_SYNC_EV_VERIFIED:
        put(b, good, ev->u.verified.learner, 4);
        put(b, good, ev->u.verified.fragment, 4);
        put(b, good, ev->u.verified.round, 8);
        put(b, good, ev->u.verified.good, 1);
        break;
    case PL_SYNC_EV_MERGED:
        put(b, good, ev->u.merged.fragment, 4);
        put(b, good, ev->u.merged.round, 8);
        put(b, good, ev->u.merged.digest, 8);
        put(b, good, ev->u.merged.update_bytes, 8);
        put(b, good, ev->u.merged.good, 1);
        break;
    case PL_SYNC_EV_STORED:
        put(b, good, ev->u.stored.seq, 8);
        put(b, good, ev->u.stored.durable, 1);
        break;
    case PL_SYNC_EV_DOUBT:
        put(b, good, ev->u.doubt.identity, 8);
        put(b, good, ev->u.doubt.doubted, 1);
        break;
    }
}

/* ---- the file ---- */

static void write_all(struct pl_recorder *r)
{
    struct pl_buf *b = &r->writing;
    if (fwrite(b->data, 1, b->len, r->file) != b->len || fflush(r->file) != 0)
        r->failed = true;
    b->len = 0;
}

static void write_job(struct pl_job *job)
{
    write_all((struct pl_recorder *)job);
}

static void write_done(struct pl_job *job)
{
    struct pl_recorder *r = (struct pl_recorder *)job;
    r->busy = false;
    r->ended = r->ended || r->failed;
    if (r->out.len >= BUFFER_BYTES)
        pl_recorder_flush(r);
    r->written(r->user); /* which may free r, where it is not busy again */
}

void pl_recorder_flush(struct pl_recorder *r)
{
    struct pl_buf next = r->out;
    if (r->busy || r->out.len == 0)
        return;
    if (r->failed) {
        r->out.len = 0;
        return;
    }
    r->out = r->writing;
    r->writing = next;
    if (r->loop == NULL) {
        write_all(r);
        r->ended = r->ended || r->failed;
        return;
    }
    r->busy = true;
    r->job.run = write_job;
    r->job.done = write_done;
    pl_work_start(r->loop, &r->job);
}

void pl_recorder_use_workers(struct pl_recorder *r, uv_loop_t *loop, void (*written)(void *user), void *user)
{
    r->loop = loop;
    r->written = written;
    r->user = user;
}

bool pl_recorder_busy(const struct pl_recorder *r)
{
    return r != NULL && r->busy;
}

/* Room for the entry's head; the length is put in when it is known. */
static size_t begin_entry(struct pl_recorder *r, bool *good, uint8_t kind)
{
    size_t at = r->out.len;
    put(&r->out, good, kind, 1);
    put(&r->out, good, 0, 4);
    return at;
}

/* An entry that did not fit into memory ends the file: one left out would be another run. */
static void end_entry(struct pl_recorder *r, size_t at, bool good)
{
    put(&r->out, &good, 0, PL_ENTRY_TAIL_BYTES);
    if (!good) {
        r->out.len = at;
        r->ended = true;
    } else {
        uint8_t *entry = r->out.data + at;
        size_t len = r->out.len - at - PL_ENTRY_TAIL_BYTES;
        pl_put_le(entry + 1, len - PL_ENTRY_HEAD_BYTES, 4);
        pl_put_le(entry + len, pl_hash64(entry, len, 0), 8);
        r->bytes += r->out.len - at;
        r->ended = r->bytes > FILE_BYTES_MAX || (r->busy && r->out.len > WAITING_BYTES_MAX);
    }
    if (r->out.len >= BUFFER_BYTES || r->ended)
        pl_recorder_flush(r);
}

static void put_raw(struct pl_recorder *r, uint8_t kind, const uint8_t *bytes, size_t len)
{
    bool good = true;
    if (r->ended)
        return;
    size_t at = begin_entry(r, &good, kind);
    good = good && pl_buf_append(&r->out, bytes, len) == PELAGO_OK;
    end_entry(r, at, good);
}

void pl_recorder_load(struct pl_recorder *r, const uint8_t *bytes, size_t len)
{
    put_raw(r, PL_ENTRY_LOAD, bytes, len);
}

void pl_recorder_replay(struct pl_recorder *r, const uint8_t *record, size_t len)
{
    put_raw(r, PL_ENTRY_REPLAY, record, len);
}

void pl_recorder_step(struct pl_recorder *r, const struct pl_sync_event *ev, const struct pl_sync_fxs *fxs)
{
    bool good = true;
    if (r->ended)
        return;
    size_t at = begin_entry(r, &good, PL_ENTRY_EVENT);
    put_event(&r->out, &good, ev);
    uint64_t hash = pl_effects_hash(fxs, &r->effects, &good);
    put(&r->out, &good, hash, 8);
    end_entry(r, at, good);
}

bool pl_recorder_good(const struct pl_recorder *r, uint64_t *bytes)
{
    *bytes = r->bytes;
    return !r->ended;
}

static void put_head(struct pl_recorder *r, bool *good, const struct pl_sync_options *o,
                     const uint64_t *origin)
{
    struct pl_msg manifest = {.type = PL_MSG_MANIFEST, .u.manifest = *o->manifest};
    size_t len = pl_msg_payload_bytes(&manifest);
    uint32_t fragments = pl_manifest_shard_fragments(o->manifest, o->shard);
    *good = *good && pl_buf_append(&r->out, PL_RECORDER_MAGIC, 8) == PELAGO_OK;
    put(&r->out, good, o->shard, 4);
    put(&r->out, good, o->learners_max, 4);
    put(&r->out, good, o->conns_max, 4);
    put(&r->out, good, len, 4);
    *good = *good && pl_buf_reserve(&r->out, len) == PELAGO_OK;
    if (*good)
        r->out.len += pl_msg_encode(&manifest, r->out.data + r->out.len, len);
    put(&r->out, good, fragments, 4);
    for (uint32_t i = 0; i < fragments; i++)
        put(&r->out, good, origin[i], 8);
    if (*good)
        put(&r->out, good, pl_hash64(r->out.data, r->out.len, 0), PL_ENTRY_TAIL_BYTES);
    r->bytes = r->out.len;
}

/* The recording of an earlier life, or something that is none at all, is not ours to overwrite. */
static bool set_aside(const char *path)
{
    char name[PL_PATH_MAX];
    struct stat info;
    if (lstat(path, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0)
        return true;
    for (uint64_t i = 1; i <= LIVES_MAX; i++) {
        size_t len = pl_fmt(name, sizeof name, "%s.%lu", path, i);
        errno = ENAMETOOLONG;
        if (len + 1 >= sizeof name)
            return false;
        if (lstat(name, &info) != 0)
            return rename(path, name) == 0;
    }
    errno = EEXIST;
    return false;
}

enum pelago_status pl_recorder_new(struct pl_recorder **out, const struct pl_alloc *alloc, const char *path,
                                   const struct pl_sync_options *options, const uint64_t *origin,
                                   struct pl_error *err)
{
    bool good = true;
    struct pl_recorder *r = pl_alloc_zero(alloc, 1, sizeof *r);
    *out = NULL;
    if (r == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for the recorder");
    r->alloc = *alloc;
    pl_buf_init(&r->out, &r->alloc, UINT64_C(1) << 30);
    pl_buf_init(&r->writing, &r->alloc, UINT64_C(1) << 30);
    pl_buf_init(&r->effects, &r->alloc, UINT64_C(1) << 30);
    put_head(r, &good, options, origin);
    r->file = good && set_aside(path) ? fopen(path, "wbe") : NULL;
    if (r->file != NULL)
        pl_recorder_flush(r); /* a process killed while it reads its journal leaves a recording, too */
    int code = errno;
    if (r->file == NULL || r->failed) {
        pl_recorder_free(r);
        return pl_fail(err, PELAGO_IO, "the recording %s cannot be written: %s%s", path,
                       good ? strerror(code) : "out of memory", good ? pl_os_advice(code) : "");
    }
    *out = r;
    return PELAGO_OK;
}

void pl_recorder_free(struct pl_recorder *r)
{
    if (r == NULL)
        return;
    pl_assert(!r->busy);
    if (r->file != NULL) {
        r->loop = NULL;
        pl_recorder_flush(r);
        (void)fclose(r->file);
    }
    pl_buf_release(&r->out);
    pl_buf_release(&r->writing);
    pl_buf_release(&r->effects);
    struct pl_alloc alloc = r->alloc;
    pl_alloc_free(&alloc, r, sizeof *r);
}
