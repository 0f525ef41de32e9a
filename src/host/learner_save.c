/* host/learner_save.c - a learner's own checkpoint as one file.
 *
 *   8 bytes  "PLLHOST1"
 *   parts, one behind the other, in this order:
 *     HEAD       run, identity, manifest's digest, parameters, fragments, counters (below)
 *     CORE       core/learner.h's own bytes
 *     THETA      the block of parameters, gaps included
 *     ANCHOR     one a fragment
 *     RESIDUAL   one a fragment that has one
 *     MOMENTS    pieces of up to 2^20 values of a tensor: first moments, then second ones where it has them
 *     END        nothing
 *
 * A part is u32 kind, u32 index, u64 length, the bytes, and the XXH3-64 of all of these. Integers and floats
 * are little-endian. Every length follows from the layout, so nothing is sized by what the file says. A file
 * is written under another name, synced and renamed; the one before stays as the older generation.
 */
#include "host/learner_host_int.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/hash.h"

#include <string.h>
#include <time.h>

enum part { HEAD = 1, CORE, THETA, ANCHOR, RESIDUAL, MOMENTS, END };

enum {
    PART_HEAD_BYTES = 16,
    HEAD_BYTES = 12 * 8,
    CORE_BYTES_MAX = 1 << 20,
    PIECE = 1 << 20, /* values of a tensor whose moments are copied together */
    STALL_US = 500,
    STALLS_MAX = 20000,
};

static const char magic[8] = {'P', 'L', 'L', 'H', 'O', 'S', 'T', '1'};
static const char partial_name[] = "checkpoint.partial";

struct file {
    struct pl_dir dir;
    struct pl_file *f;
    const char *name;
    uint64_t at;
    struct pl_error *err;
};

/* ---- writing ---- */

static enum pelago_status write_part(struct file *f, enum part kind, uint32_t index,
                                     const struct pl_bytes *body, uint32_t count)
{
    uint8_t head[PART_HEAD_BYTES], sum[8];
    struct pl_bytes parts[5] = {{head, sizeof head}};
    uint64_t len = 0;
    pl_assert(count <= 3);
    for (uint32_t i = 0; i < count; i++) {
        parts[1 + i] = body[i];
        len += body[i].len;
    }
    pl_put_le(head, kind, 4);
    pl_put_le(head + 4, index, 4);
    pl_put_le(head + 8, len, 8);
    pl_put_le(sum, pl_hash64_parts(parts, 1 + count, 0), 8);
    parts[1 + count] = (struct pl_bytes){sum, sizeof sum};
    enum pelago_status st = f->dir.ops->write_at(f->dir.self, f->f, f->at, parts, 2 + count);
    if (st != PELAGO_OK)
        return pl_fail(f->err, st, "%s cannot be written", f->name);
    f->at += sizeof head + len + sizeof sum;
    return PELAGO_OK;
}

static void put_head(const struct pl_lsave *s, uint8_t out[static HEAD_BYTES])
{
    struct pl_writer w = pl_writer_of(out, HEAD_BYTES);
    uint64_t smooth;
    memcpy(&smooth, &s->state->progress.smooth, sizeof smooth);
    const uint64_t fields[] = {s->run_id,
                               s->identity,
                               s->manifest_digest,
                               s->layout->tensors.floats,
                               s->layout->fragment_count,
                               s->state->own_sequence,
                               s->state->inner_step,
                               s->state->progress.step,
                               s->state->progress.tokens,
                               s->state->progress.clock,
                               s->state->progress.sequence,
                               smooth};
    for (unsigned i = 0; i < sizeof fields / sizeof fields[0]; i++)
        pl_write_u64(&w, fields[i]);
    pl_assert(!w.bad && pl_writer_len(&w) == HEAD_BYTES);
}

/* Waits, on a worker, until the optimizer lets a pair of moments alone for the time of a copy. */
static bool copy_steadily(const struct pl_lsave *s, const struct pl_steady_span *spans, uint32_t count)
{
    const struct timespec pause = {.tv_nsec = STALL_US * 1000L};
    uint64_t number;
    for (uint32_t i = 0; i < STALLS_MAX; i++) {
        if (pl_steady_copy(s->steady, spans, count, PL_NONE64, &number))
            return true;
        (void)nanosleep(&pause, NULL);
    }
    return false;
}

/* m and v of one piece belong together: a first moment without the square it came with would be a huge step.
 * */
static enum pelago_status write_moments(const struct pl_lsave *s, struct file *f, float *scratch)
{
    const struct pl_tensors *t = &s->layout->tensors;
    uint32_t index = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        const float *m = pl_inner_m(&s->trainer->inner, i), *v = pl_inner_v(&s->trainer->inner, i);
        uint64_t count = (uint64_t)t->at[i].rows * t->at[i].cols;
        for (uint64_t at = 0; at < count; at += PIECE) {
            size_t bytes = (size_t)pl_min64(count - at, PIECE) * sizeof(float);
            struct pl_steady_span spans[2] = {{m + at, scratch, bytes}, {NULL, scratch + PIECE, bytes}};
            struct pl_bytes body[2] = {{scratch, bytes}, {scratch + PIECE, bytes}};
            uint32_t both = v != NULL ? 2 : 1;
            if (v != NULL)
                spans[1].from = v + at;
            if (!copy_steadily(s, spans, both))
                return pl_fail(f->err, PELAGO_STALE, "the optimizer's state did not stand still long enough");
            PL_TRY(write_part(f, MOMENTS, index++, body, both));
        }
    }
    return PELAGO_OK;
}

static enum pelago_status write_parts(const struct pl_lsave *s, struct file *f, float *scratch)
{
    uint8_t head[HEAD_BYTES];
    put_head(s, head);
    PL_TRY(write_part(f, HEAD, 0, &(struct pl_bytes){head, sizeof head}, 1));
    PL_TRY(write_part(f, CORE, 0, &(struct pl_bytes){s->core->data, s->core->len}, 1));
    PL_TRY(write_part(f, THETA, 0,
                      &(struct pl_bytes){s->theta, (size_t)s->layout->tensors.floats * sizeof(float)}, 1));
    for (uint32_t i = 0; i < s->layout->fragment_count; i++) {
        size_t bytes = (size_t)s->layout->fragments[i].values * sizeof(float);
        PL_TRY(write_part(f, ANCHOR, i, &(struct pl_bytes){s->anchors[i]->at, bytes}, 1));
        if (s->residuals[i] != NULL)
            PL_TRY(write_part(f, RESIDUAL, i, &(struct pl_bytes){s->residuals[i]->at, bytes}, 1));
    }
    PL_TRY(write_moments(s, f, scratch));
    return write_part(f, END, 0, NULL, 0);
}

static enum pelago_status write_new(const struct pl_lsave *s, struct file *f)
{
    const size_t scratch_bytes = 2 * (size_t)PIECE * sizeof(float);
    const struct pl_bytes begin = {magic, sizeof magic};
    float *scratch = pl_alloc_zero(s->alloc, 1, scratch_bytes);
    if (scratch == NULL)
        return pl_fail(f->err, PELAGO_NOMEM, "there is no memory to write %s", f->name);
    enum pelago_status st = f->dir.ops->write_at(f->dir.self, f->f, 0, &begin, 1);
    f->at = sizeof magic;
    if (st != PELAGO_OK)
        st = pl_fail(f->err, st, "%s cannot be written", f->name);
    else
        st = write_parts(s, f, scratch);
    if (st == PELAGO_OK && (st = f->dir.ops->sync(f->dir.self, f->f)) != PELAGO_OK)
        st = pl_fail(f->err, st, "%s could not be brought to the disk", f->name);
    pl_alloc_free(s->alloc, scratch, scratch_bytes);
    return st;
}

enum pelago_status pl_lsave_write(const struct pl_lsave *s, struct pl_dir dir, struct pl_error *err)
{
    struct file f = {.dir = dir, .name = partial_name, .err = err};
    enum pelago_status st = dir.ops->open(dir.self, partial_name, PL_FILE_CREATE, &f.f);
    if (st != PELAGO_OK)
        return pl_fail(err, st, "%s cannot be made", partial_name);
    st = write_new(s, &f);
    dir.ops->close(dir.self, f.f);
    if (st != PELAGO_OK) {
        (void)dir.ops->remove(dir.self, partial_name);
        return st;
    }
    st = dir.ops->rename(dir.self, PL_LSAVE_NAME, PL_LSAVE_OLD);
    if (st == PELAGO_OK || st == PELAGO_NOTFOUND)
        st = dir.ops->rename(dir.self, partial_name, PL_LSAVE_NAME);
    if (st == PELAGO_OK)
        st = dir.ops->sync_dir(dir.self);
    return st == PELAGO_OK ? st : pl_fail(err, st, "%s cannot be put in its place", PL_LSAVE_NAME);
}

/* ---- reading ---- */

static enum pelago_status damaged(const struct file *f)
{
    return pl_fail(f->err, PELAGO_CORRUPT, "it is damaged at byte %lu", f->at);
}

static enum pelago_status read_bytes(struct file *f, uint64_t at, void *into, size_t len)
{
    enum pelago_status st = f->dir.ops->read_at(f->dir.self, f->f, at, into, len);
    if (st == PELAGO_SHORT)
        return damaged(f);
    return st == PELAGO_OK ? st : pl_fail(f->err, st, "it cannot be read");
}

/* Kind and index of the part that follows, and its length. */
static enum pelago_status peek_part(struct file *f, uint8_t head[static PART_HEAD_BYTES])
{
    return read_bytes(f, f->at, head, PART_HEAD_BYTES);
}

/* The next part must be this one, of these lengths together. */
static enum pelago_status read_part(struct file *f, enum part kind, uint32_t index,
                                    const struct pl_bytes *body, uint32_t count)
{
    uint8_t head[PART_HEAD_BYTES], sum[8];
    struct pl_bytes parts[4] = {{head, sizeof head}};
    uint64_t len = 0, at = f->at + sizeof head;
    pl_assert(count <= 3);
    PL_TRY(peek_part(f, head));
    for (uint32_t i = 0; i < count; i++)
        len += body[i].len;
    if (pl_get_le(head, 4) != kind || pl_get_le(head + 4, 4) != index || pl_get_le(head + 8, 8) != len)
        return damaged(f);
    for (uint32_t i = 0; i < count; i++) {
        parts[1 + i] = body[i];
        void *into; /* the bytes of a part are const to those who write it, and ours to fill here */
        memcpy(&into, &body[i].data, sizeof into);
        PL_TRY(read_bytes(f, at, into, body[i].len));
        at += body[i].len;
    }
    PL_TRY(read_bytes(f, at, sum, sizeof sum));
    if (pl_get_le(sum, 8) != pl_hash64_parts(parts, 1 + count, 0))
        return damaged(f);
    f->at = at + sizeof sum;
    return PELAGO_OK;
}

static enum pelago_status take_head(const struct pl_lsave *s, const struct file *f, const uint8_t *bytes)
{
    struct pl_reader r = pl_reader_of(bytes, HEAD_BYTES);
    uint64_t run_id = pl_read_u64(&r), identity = pl_read_u64(&r), manifest = pl_read_u64(&r);
    uint64_t floats = pl_read_u64(&r), fragments = pl_read_u64(&r);
    if (run_id != s->run_id || identity != s->identity || manifest != s->manifest_digest ||
        floats != s->layout->tensors.floats || fragments != s->layout->fragment_count)
        return pl_fail(f->err, PELAGO_INVALID, "it is of another run, learner or version of the program");
    struct pl_ltrainer_state *state = s->state;
    *state = (struct pl_ltrainer_state){0};
    state->own_sequence = pl_read_u64(&r);
    state->inner_step = pl_read_u64(&r);
    state->progress.step = pl_read_u64(&r);
    state->progress.tokens = pl_read_u64(&r);
    state->progress.clock = pl_read_u64(&r);
    state->progress.sequence = pl_read_u64(&r);
    uint64_t smooth = pl_read_u64(&r);
    memcpy(&state->progress.smooth, &smooth, sizeof smooth);
    if (state->inner_step > PL_COUNT_MAX || state->progress.step > PL_COUNT_MAX ||
        state->progress.tokens > PL_COUNT_MAX || state->progress.clock > PL_COUNT_MAX)
        return pl_fail(f->err, PELAGO_CORRUPT, "it has a counter over the limit");
    return PELAGO_OK;
}

static enum pelago_status read_core(const struct pl_lsave *s, struct file *f)
{
    uint8_t head[PART_HEAD_BYTES];
    PL_TRY(peek_part(f, head));
    uint64_t len = pl_get_le(head + 8, 8);
    if (len > CORE_BYTES_MAX)
        return damaged(f);
    if (pl_buf_reserve(s->core, (size_t)len) != PELAGO_OK)
        return pl_fail(f->err, PELAGO_NOMEM, "there is no memory to read it");
    s->core->len = (size_t)len;
    return read_part(f, CORE, 0, &(struct pl_bytes){s->core->data, (size_t)len}, 1);
}

static enum pelago_status read_fragments(const struct pl_lsave *s, struct file *f)
{
    for (uint32_t i = 0; i < s->layout->fragment_count; i++) {
        uint8_t head[PART_HEAD_BYTES];
        size_t bytes = (size_t)s->layout->fragments[i].values * sizeof(float);
        PL_TRY(read_part(f, ANCHOR, i, &(struct pl_bytes){s->anchors[i]->at, bytes}, 1));
        PL_TRY(peek_part(f, head));
        s->residual_there[i] = pl_get_le(head, 4) == RESIDUAL;
        if (s->residual_there[i])
            PL_TRY(read_part(f, RESIDUAL, i, &(struct pl_bytes){s->residuals[i]->at, bytes}, 1));
    }
    return PELAGO_OK;
}

static enum pelago_status read_moments(const struct pl_lsave *s, struct file *f)
{
    const struct pl_tensors *t = &s->layout->tensors;
    uint32_t index = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        float *m = pl_inner_m(&s->trainer->inner, i), *v = pl_inner_v(&s->trainer->inner, i);
        uint64_t count = (uint64_t)t->at[i].rows * t->at[i].cols;
        for (uint64_t at = 0; at < count; at += PIECE) {
            size_t bytes = (size_t)pl_min64(count - at, PIECE) * sizeof(float);
            struct pl_bytes body[2] = {{m + at, bytes}, {v != NULL ? v + at : NULL, bytes}};
            PL_TRY(read_part(f, MOMENTS, index++, body, v != NULL ? 2 : 1));
        }
    }
    return PELAGO_OK;
}

static enum pelago_status read_parts(const struct pl_lsave *s, struct file *f)
{
    uint8_t begin[sizeof magic], head[HEAD_BYTES];
    PL_TRY(read_bytes(f, 0, begin, sizeof begin));
    if (memcmp(begin, magic, sizeof magic) != 0)
        return damaged(f);
    f->at = sizeof magic;
    PL_TRY(read_part(f, HEAD, 0, &(struct pl_bytes){head, sizeof head}, 1));
    PL_TRY(take_head(s, f, head));
    PL_TRY(read_core(s, f));
    PL_TRY(read_part(f, THETA, 0,
                     &(struct pl_bytes){s->theta, (size_t)s->layout->tensors.floats * sizeof(float)}, 1));
    PL_TRY(read_fragments(s, f));
    PL_TRY(read_moments(s, f));
    return read_part(f, END, 0, NULL, 0);
}

enum pelago_status pl_lsave_read(const struct pl_lsave *s, struct pl_dir dir, const char *name,
                                 struct pl_error *err)
{
    struct file f = {.dir = dir, .name = name, .err = err};
    enum pelago_status st = dir.ops->open(dir.self, name, PL_FILE_READ, &f.f);
    if (st != PELAGO_OK)
        return pl_fail(err, st, "it cannot be opened");
    st = read_parts(s, &f);
    dir.ops->close(dir.self, f.f);
    return st;
}
