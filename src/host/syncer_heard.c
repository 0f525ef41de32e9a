/* host/syncer_heard.c - when a shard last heard its learners, written down for its next process.
 *
 * What a learner claims is compared with the time there was for it (syncer_guard.c). That time is this process's own; of the
 * time before it the journal knows nothing, and a learner that comes back after a restart may have worked all the while. So
 * every half a minute a small file says when each was heard last, by the calendar, and how long the usual step was.
 *
 *   heard   u32 magic, u32 format, u64 run, u64 date of writing, u64 usual step in ns (0: not known), u32 count;
 *           of each learner u64 identity, u64 date; u64 hash of all before. Dates are seconds since 1970
 *
 * It is an opinion's memory, not a part of the run's history: one that is missing, damaged or of another run is passed over,
 * and learners that were away are then believed as slowly as time passes from the start (64 times as fast as they work).
 */
#include "host/syncer_vault.h"

#include "base/check.h"
#include "base/hash.h"
#include "os/clock.h"
#include "train/files.h"

enum {
    MAGIC = 0x44524548,
    FORMAT = 1,
    HEAD_BYTES = 36,
    ENTRY_BYTES = 16,
    HASH_BYTES = 8,
    AWAY_S_MAX = 50 * 365 * 86400
};
static const char name[] = "heard", temporary[] = "heard.new";

struct entry {
    uint64_t identity, date_s;
};

/* What the process before this one wrote, and what is being written. */
struct pl_heard {
    struct pl_job job; /* first: it is what the worker gets */
    struct pl_syncer_host *h;
    bool busy, there;
    uint64_t date_s, usual_step_ns; /* of the process before */
    uint32_t count;
    struct entry *entries; /* [learners_max] of it */
    struct pl_buf bytes;   /* being written */
};

/* ---- reading ---- */

static enum pelago_status read_entries(struct pl_heard *x, struct pl_reader *r, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        x->entries[i].identity = pl_read_u64(r);
        x->entries[i].date_s = pl_read_u64(r);
    }
    x->count = count;
    return r->bad ? PELAGO_CORRUPT : PELAGO_OK;
}

static enum pelago_status read_all(struct pl_heard *x, const struct pl_buf *b)
{
    const struct pl_syncer_host *h = x->h;
    if (b->len < HEAD_BYTES + HASH_BYTES ||
        pl_hash64(b->data, b->len - HASH_BYTES, 0) != pl_get_le(b->data + b->len - HASH_BYTES, 8))
        return PELAGO_CORRUPT;
    struct pl_reader r = pl_reader_of(b->data, b->len - HASH_BYTES);
    uint32_t magic = pl_read_u32(&r), format = pl_read_u32(&r);
    uint64_t run = pl_read_u64(&r);
    if (magic != MAGIC || format != FORMAT || run != h->settings.run_id)
        return PELAGO_CORRUPT;
    x->date_s = pl_read_u64(&r);
    x->usual_step_ns = pl_read_u64(&r);
    uint32_t count = pl_read_u32(&r);
    if (count > h->options.learners_max || pl_reader_left(&r) != (size_t)count * ENTRY_BYTES)
        return PELAGO_CORRUPT;
    return read_entries(x, &r, count);
}

static size_t bytes_max(const struct pl_syncer_host *h)
{
    return HEAD_BYTES + (size_t)h->options.learners_max * ENTRY_BYTES + HASH_BYTES;
}

enum pelago_status pl_heard_new(struct pl_syncer_host *h, struct pl_error *err)
{
    struct pl_buf bytes;
    h->heard = pl_alloc_zero(&h->alloc, 1, sizeof *h->heard);
    if (h->heard == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for %u learners", h->options.learners_max);
    struct pl_heard *x = h->heard;
    x->h = h;
    pl_buf_init(&x->bytes, &h->alloc, bytes_max(h));
    x->entries = pl_alloc_zero(&h->alloc, h->options.learners_max, sizeof *x->entries);
    if (x->entries == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for %u learners", h->options.learners_max);
    pl_buf_init(&bytes, &h->alloc, bytes_max(h));
    enum pelago_status st = pl_home_read(h->dir, name, &bytes, NULL);
    if (st == PELAGO_OK)
        st = read_all(x, &bytes);
    x->there = st == PELAGO_OK;
    if (!x->there && st != PELAGO_NOTFOUND)
        pl_shost_log(h, "heard.damaged: when learners were heard last is not known; those that were away are "
                        "believed after a while");
    pl_buf_release(&bytes);
    return PELAGO_OK;
}

void pl_heard_free(struct pl_syncer_host *h)
{
    struct pl_heard *x = h->heard;
    if (x == NULL)
        return;
    pl_assert(!x->busy);
    pl_buf_release(&x->bytes);
    pl_alloc_free(&h->alloc, x->entries, h->options.learners_max * sizeof *x->entries);
    pl_alloc_free(&h->alloc, x, sizeof *x);
    h->heard = NULL;
}

/* ---- asking ---- */

/* So long before this process began, in whole seconds, one at least; the clock may have been set meanwhile. */
static uint64_t before_start(const struct pl_syncer_host *h, uint64_t date_s)
{
    uint64_t seconds = pl_clamp64(pl_sub_sat(h->start_s, date_s), 1, AWAY_S_MAX);
    return h->start_ns -
           seconds * PL_SEC; /* below zero where the machine is younger: differences are right */
}

uint64_t pl_heard_since(const struct pl_syncer_host *h, uint64_t identity, bool known)
{
    const struct pl_heard *x = h->heard;
    for (uint32_t i = 0; x->there && i < x->count; i++)
        if (x->entries[i].identity == identity)
            return before_start(h, x->entries[i].date_s);
    /* Whom the journal knows and the file does not came after it was written. */
    return x->there && known ? before_start(h, x->date_s) : h->start_ns;
}

uint64_t pl_heard_step_ns(const struct pl_syncer_host *h)
{
    return h->heard->usual_step_ns;
}

/* ---- writing ---- */

static enum pelago_status write_file(const struct pl_heard *x)
{
    const struct pl_dir dir = x->h->vault->dir; /* with its mirror */
    PL_TRY(pl_files_write(dir, temporary, (struct pl_bytes){x->bytes.data, x->bytes.len}, NULL));
    PL_TRY(dir.ops->rename(dir.self, temporary, name));
    return dir.ops->sync_dir(dir.self);
}

/* Whether it succeeds or not: the file of before is as good as one can have it, and a full disk is the journal's news. */
static void run(struct pl_job *job)
{
    (void)write_file((struct pl_heard *)job);
}

static void done(struct pl_job *job)
{
    struct pl_heard *x = (struct pl_heard *)job;
    x->busy = false;
    x->h->jobs--;
    pl_shost_stop_check(x->h);
}

static uint64_t date_of(uint64_t since_ns)
{
    return pl_sub_sat(pl_date_s(), (pl_clock_ns() - since_ns) / PL_SEC);
}

static uint32_t put_members(const struct pl_syncer_host *h, struct pl_writer *w)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < h->options.learners_max; i++) {
        const struct pl_islander *m = &h->members[i];
        if (m->identity == 0 || !m->pace.timed)
            continue;
        pl_write_u64(w, m->identity);
        pl_write_u64(w, date_of(m->pace.since_ns));
        count++;
    }
    return count;
}

/* Those that have not come back yet, as long as there is room. */
static uint32_t put_others(struct pl_syncer_host *h, struct pl_writer *w, uint32_t room)
{
    const struct pl_heard *x = h->heard;
    uint32_t count = 0;
    for (uint32_t i = 0; i < x->count && count < room; i++) {
        const struct pl_islander *m = pl_shost_member(h, x->entries[i].identity);
        if (m != NULL && m->pace.timed)
            continue;
        pl_write_u64(w, x->entries[i].identity);
        pl_write_u64(w, x->entries[i].date_s);
        count++;
    }
    return count;
}

static void fill(struct pl_syncer_host *h, struct pl_buf *b)
{
    struct pl_writer w = pl_writer_of(b->data, bytes_max(h));
    pl_write_u32(&w, MAGIC);
    pl_write_u32(&w, FORMAT);
    pl_write_u64(&w, h->settings.run_id);
    pl_write_u64(&w, pl_date_s());
    pl_write_u64(&w, pl_guard_step_ns(h));
    uint8_t *count_at = pl_write_room(&w, 4);
    uint32_t count = put_members(h, &w);
    count += put_others(h, &w, h->options.learners_max - count);
    pl_put_le(count_at, count, 4);
    pl_write_u64(&w, pl_hash64(b->data, pl_writer_len(&w), 0));
    pl_assert(!w.bad);
    b->len = pl_writer_len(&w);
}

void pl_heard_save(struct pl_syncer_host *h)
{
    struct pl_heard *x = h->heard;
    if (x->busy || h->stopping || h->members == NULL)
        return;
    x->bytes.len = 0;
    if (pl_buf_reserve(&x->bytes, bytes_max(h)) != PELAGO_OK)
        return;
    fill(h, &x->bytes);
    x->busy = true;
    h->jobs++;
    x->job = (struct pl_job){.run = run, .done = done};
    pl_work_add(&h->vault->queue, &x->job);
}
