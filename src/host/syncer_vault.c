/* host/syncer_vault.c - writing the journal: records in batches, snapshots in pieces. Formats: syncer_vault.h.
 *
 * The core asks for records one by one; those that come while the disk is busy go together, with one sync (group
 * commit). Between two batches every appended record has been answered and applied, so that is where a snapshot can
 * begin: it takes the core's state and a reference to every fragment's values, and then goes into the same queue piece by
 * piece, records in between. A disk that fails, or is full, stops nothing: the record is not durable, the core asks
 * again, and learners train on.
 */
#include "host/syncer_vault.h"

#include "base/check.h"
#include "base/num.h"
#include "os/clock.h"

#include <string.h>

enum { PIECE_BYTES = 8 << 20, JOURNAL_BYTES_MIN = 16 << 20 };
#define SNAPSHOT_RETRY_NS (30 * PL_SEC)

static uint64_t record_bytes_max(const struct pl_syncer_host *h)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < h->fragment_count; i++) {
        const struct pl_shard_fragment *f = &h->fragments[i];
        most = pl_max64(most, f->count * sizeof(float) + 4 + pl_pack_bytes_max(f->update_bytes));
    }
    return 4 + pl_record_bytes_max(h->options.learners_max) + PL_ROUND_HEAD_BYTES +
           (uint64_t)PL_OPINION_BYTES * h->options.learners_max + 4 + most;
}

static uint64_t shard_values(const struct pl_syncer_host *h)
{
    uint64_t values = 0;
    for (uint32_t i = 0; i < h->fragment_count; i++)
        values += h->fragments[i].count;
    return values;
}

static void free_entry(struct pl_syncer_host *h, struct pl_store_entry *e)
{
    pl_alloc_free(&h->alloc, e, sizeof *e + e->len);
}

void pl_vault_free(struct pl_syncer_host *h)
{
    struct pl_vault *v = h->vault;
    struct pl_error err = {.status = PELAGO_OK};
    if (v == NULL)
        return;
    pl_assert(!v->writing && v->snapshot == NULL);
    if (v->open && pl_store_close(&v->store, &err) != PELAGO_OK)
        pl_shost_log(h, "journal.close failed: %s", err.text);
    while (v->first != NULL) {
        struct pl_store_entry *e = v->first;
        v->first = e->next;
        free_entry(h, e);
    }
    pl_alloc_free(&h->alloc, v->options.scratch, v->options.scratch_bytes);
    pl_alloc_free(&h->alloc, v->contributors, h->options.learners_max * sizeof *v->contributors);
    for (uint32_t i = 0; i < PL_VAULT_SECTIONS; i++)
        pl_buf_release(&v->section[i]);
    pl_alloc_free(&h->alloc, v, sizeof *v);
    h->vault = NULL;
}

bool pl_vault_busy(const struct pl_syncer_host *h)
{
    return h->vault != NULL && (h->vault->writing || h->vault->snapshot != NULL);
}

/* ---- records, on a worker ---- */

static enum pelago_status append(struct pl_vault *v, struct pl_store_entry *e, struct pl_error *err)
{
    struct pl_bytes parts[PL_RECORD_PARTS_MAX] = {{e->core, e->len}};
    uint8_t head[4];
    size_t count = 1;
    _Static_assert(PL_SYNC_CONTRIBUTIONS + 3 <= PL_RECORD_PARTS_MAX, "a record has room for all its pieces");
    if (e->fragment != NULL) {
        const struct pl_staged *g = &e->fragment->staged;
        pl_put_le(head, g->part_count, 4);
        parts[count++] = (struct pl_bytes){head, sizeof head};
        for (uint32_t i = 0; i < g->part_count; i++)
            parts[count++] = (struct pl_bytes){g->parts[i], e->fragment->push_bytes};
        if (g->part_count == 0)
            parts[count++] = (struct pl_bytes){g->delta, e->fragment->count * sizeof(float)};
        parts[count++] = (struct pl_bytes){g->update->bytes, g->update->len};
    }
    uint64_t seq;
    e->bytes = 0;
    for (size_t i = 0; i < count; i++)
        e->bytes += parts[i].len;
    return pl_store_append(&v->store, e->type, parts, count, &seq, err);
}

/* After a failure what was in doubt is read back. What was only said to be durable (relaxed) may be gone by then: the
 * history has a hole, and only a new life of the shard, without it, is honest. */
static enum pelago_status resume(struct pl_vault *v, struct pl_store_batch *b)
{
    if (pl_store_failure(&v->store) == PELAGO_OK)
        return PELAGO_OK;
    PL_TRY(pl_store_resume(&v->store, &b->error));
    v->unsynced = 0;
    b->lost = pl_store_last_seq(&v->store) < v->trusted_seq;
    return b->lost ? PELAGO_CORRUPT : PELAGO_OK;
}

static enum pelago_status write_batch(struct pl_vault *v, struct pl_store_batch *b, uint32_t relaxed)
{
    PL_TRY(resume(v, b));
    for (struct pl_store_entry *e = b->first; e != NULL; e = e->next) {
        PL_TRY(append(v, e, &b->error));
        b->appended += e->bytes;
        v->unsynced++;
    }
    if (v->unsynced >= pl_max32(relaxed, 1)) {
        PL_TRY(pl_store_sync(&v->store, &b->error));
        v->unsynced = 0;
        b->synced = true;
    }
    v->trusted_seq = pl_store_last_seq(&v->store);
    return PELAGO_OK;
}

static void batch_run(struct pl_job *job)
{
    struct pl_store_batch *b = (struct pl_store_batch *)job;
    struct pl_vault *v = b->h->vault;
    bool durable = write_batch(v, b, b->h->o.relaxed) == PELAGO_OK;
    for (struct pl_store_entry *e = b->first; e != NULL; e = e->next)
        e->durable = durable;
    v->wants_snapshot = durable && pl_store_wants_snapshot(&v->store);
}

/* ---- records, on the loop's thread ---- */

static void begin_snapshot(struct pl_syncer_host *h);

static void submit(struct pl_syncer_host *h)
{
    struct pl_vault *v = h->vault;
    struct pl_store_batch *b = &v->batch;
    if (v->writing || v->first == NULL || h->stopping)
        return;
    b->first = v->first;
    b->appended = 0;
    b->synced = false;
    b->lost = false;
    b->error = (struct pl_error){.status = PELAGO_OK};
    v->first = v->last = NULL;
    v->writing = true;
    pl_work_add(&v->queue, &b->job);
}

static void tell_failure(struct pl_syncer_host *h, const struct pl_store_batch *b)
{
    struct pl_vault *v = h->vault;
    v->view.failures++;
    h->counters.store_failures++;
    if (!v->view.failing)
        pl_shost_log(h, "journal.failed: %s; nothing new is announced until it works again", b->error.text);
    v->view.failing = true;
}

static void tell_success(struct pl_syncer_host *h)
{
    struct pl_vault *v = h->vault;
    if (v->view.failing)
        pl_shost_log(h, "journal.works again after %lu failures", v->view.failures);
    v->view.failing = false;
}

static void batch_done(struct pl_job *job)
{
    struct pl_store_batch *b = (struct pl_store_batch *)job;
    struct pl_syncer_host *h = b->h;
    struct pl_vault *v = h->vault;
    struct pl_store_entry *e = b->first;
    bool durable = e->durable;
    v->view.journal_bytes += durable ? b->appended : 0;
    v->view.syncs += b->synced ? 1 : 0;
    pl_average_add(&v->latency, pl_clock_ns() - e->asked_ns);
    if (durable)
        tell_success(h);
    else
        tell_failure(h, b);
    if (b->lost) {
        (void)pl_fail(&b->error, PELAGO_CORRUPT,
                      "the disk lost records it had taken (relaxed durability); start the syncer again");
        pl_shost_fail(h, &b->error);
    }
    while (e != NULL) {
        struct pl_store_entry *next = e->next;
        v->view.records += durable ? 1 : 0;
        v->stores_out--;
        struct pl_sync_event ev = {.kind = PL_SYNC_EV_STORED,
                                   .u.stored = {.seq = e->core_seq, .durable = durable}};
        free_entry(h, e);
        pl_shost_step(h, &ev);
        e = next;
    }
    v->writing = false;
    begin_snapshot(h);
    submit(h);
    pl_shost_stop_check(h);
}

/* Of a ROUND, behind the core's part. */
static void put_round_head(const struct pl_staged *g, uint8_t *out)
{
    const struct pl_round_note *n = &g->note;
    pl_put_le(out, g->theta_digest, 8);
    pl_put_le(out + 8, n->clock_tokens, 8);
    pl_put_le(out + 16, pl_double_bits(n->effective), 8);
    pl_put_le(out + 24, n->count, 4);
    out += PL_ROUND_HEAD_BYTES;
    for (uint32_t i = 0; i < n->count; i++, out += PL_OPINION_BYTES) {
        pl_put_le(out, pl_float_bits(n->opinions[i].sample), 4);
        out[4] =
            (uint8_t)((n->opinions[i].out ? 1 : 0) | (n->opinions[i].fresh ? 2 : 0) | (n->closing ? 4 : 0));
    }
}

void pl_vault_store(struct pl_syncer_host *h, const struct pl_sync_effect *fx)
{
    struct pl_vault *v = h->vault;
    const struct pl_record *r = fx->u.store.record;
    const size_t core = pl_record_bytes(r);
    const bool round = r->type == PL_RECORD_ROUND;
    size_t len =
        4 + core + (round ? PL_ROUND_HEAD_BYTES + (size_t)r->contributor_count * PL_OPINION_BYTES : 0);
    struct pl_store_entry *e = pl_alloc_zero(&h->alloc, 1, sizeof *e + len);
    if (e == NULL) {
        struct pl_error why;
        (void)pl_fail(&why, PELAGO_NOMEM, "the machine has no memory left for a record of the journal");
        pl_shost_fail(h, &why);
        return;
    }
    pl_put_le(e->core, core, 4);
    pl_record_encode(r, e->core + 4, core);
    e->len = len;
    e->core_seq = fx->u.store.seq;
    e->type = (uint32_t)r->type;
    e->asked_ns = h->last_now_ns;
    if (round) {
        e->fragment = pl_shost_fragment(h, r->fragment);
        const struct pl_staged *g = &e->fragment->staged;
        pl_assert(g->active && g->round == r->round && g->digest == r->digest && g->values != NULL);
        pl_assert(g->note.count == r->contributor_count);
        put_round_head(g, e->core + 4 + core);
    }
    if (v->last != NULL)
        v->last->next = e;
    else
        v->first = e;
    v->last = e;
    v->stores_out++;
    if (h->listening) /* the first record is written before the loop runs: pl_vault_flush */
        submit(h);
}

enum pelago_status pl_vault_flush(struct pl_syncer_host *h, struct pl_error *err)
{
    struct pl_vault *v = h->vault;
    struct pl_store_batch *b = &v->batch;
    pl_assert(!v->writing && v->first != NULL && pl_work_idle(&v->queue));
    b->first = v->first;
    v->first = v->last = NULL;
    v->writing = true;
    batch_run(&b->job);
    bool durable = b->first->durable;
    struct pl_error why = b->error;
    batch_done(&b->job);
    return durable ? PELAGO_OK : pl_fail(err, why.status, "the journal cannot be written: %s", why.text);
}

/* ---- snapshots ---- */

static void free_snapshot(struct pl_snapshot_job *j)
{
    struct pl_syncer_host *h = j->h;
    for (uint32_t i = 0; j->values != NULL && i < h->fragment_count; i++)
        pl_values_drop(j->values[i], &h->alloc);
    pl_alloc_free(&h->alloc, j->values, h->fragment_count * sizeof *j->values);
    pl_buf_release(&j->core);
    pl_buf_release(&j->order);
    pl_buf_release(&j->rule);
    pl_alloc_free(&h->alloc, j, sizeof *j);
}

static enum pelago_status open_snapshot(struct pl_snapshot_job *j)
{
    struct pl_store *s = &j->h->vault->store;
    struct pl_section sections[PL_VAULT_SECTIONS] = {
        {.tag = PL_SECTION_CORE, .length = j->core.len},
        {.tag = PL_SECTION_ORDER, .length = j->order.len},
        {.tag = PL_SECTION_VALUES, .length = shard_values(j->h) * 3 * sizeof(float)},
        {.tag = PL_SECTION_COUNTERS, .length = sizeof j->counters},
        {.tag = PL_SECTION_RULE, .length = j->rule.len}};
    PL_TRY(pl_store_snapshot_begin(s, sections, PL_VAULT_SECTIONS, &j->error));
    j->begun = true;
    PL_TRY(pl_store_snapshot_write(s, j->core.data, j->core.len, &j->error));
    return pl_store_snapshot_write(s, j->order.data, j->order.len, &j->error);
}

/* The next piece of the values; what is written is let go. */
static enum pelago_status write_values(struct pl_snapshot_job *j)
{
    struct pl_store *s = &j->h->vault->store;
    uint64_t left = PIECE_BYTES;
    while (left > 0 && j->fragment < j->h->fragment_count) {
        struct pl_values *v = j->values[j->fragment];
        const float *arrays[3] = {v->theta, v->momentum, v->broadcast};
        uint64_t total = v->count * sizeof(float), n = pl_min64(left, total - j->offset);
        const uint8_t *from = (const uint8_t *)arrays[j->array] + j->offset;
        PL_TRY(pl_store_snapshot_write(s, from, n, &j->error));
        left -= n;
        j->offset += n;
        if (j->offset < total)
            continue;
        j->offset = 0;
        if (++j->array < 3)
            continue;
        j->array = 0;
        pl_values_drop(v, &j->h->alloc);
        j->values[j->fragment++] = NULL;
    }
    return pl_store_snapshot_flush(s, &j->error);
}

static enum pelago_status snapshot_piece(struct pl_snapshot_job *j)
{
    struct pl_store *s = &j->h->vault->store;
    if (!j->begun)
        return open_snapshot(j);
    if (j->fragment < j->h->fragment_count)
        return write_values(j);
    PL_TRY(pl_store_snapshot_write(s, j->counters, sizeof j->counters, &j->error));
    PL_TRY(pl_store_snapshot_write(s, j->rule.data, j->rule.len, &j->error));
    PL_TRY(pl_store_snapshot_commit(s, &j->error));
    j->good = j->ended = true;
    return PELAGO_OK;
}

static void snapshot_run(struct pl_job *job)
{
    struct pl_snapshot_job *j = (struct pl_snapshot_job *)job;
    if (snapshot_piece(j) != PELAGO_OK)
        j->ended = true;
}

static void snapshot_done(struct pl_job *job)
{
    struct pl_snapshot_job *j = (struct pl_snapshot_job *)job;
    struct pl_syncer_host *h = j->h;
    struct pl_vault *v = h->vault;
    if (!j->ended) {
        pl_work_add(&v->queue, &j->job);
        return;
    }
    if (j->good) {
        v->view.snapshots++;
    } else {
        v->snapshot_retry_ns = pl_clock_ns() + SNAPSHOT_RETRY_NS;
        pl_shost_log(h, "snapshot.failed: %s; the journal goes on and grows", j->error.text);
    }
    v->snapshot = NULL;
    free_snapshot(j);
    pl_shost_stop_check(h);
}

/* Whoever got a version longest ago comes first: it is the next to get one, and until it is written memory holds both. */
static bool take_values(struct pl_snapshot_job *j)
{
    const struct pl_syncer_host *h = j->h;
    uint32_t places[PL_FRAGMENTS_MAX];
    for (uint32_t i = 0; i < h->fragment_count; i++) {
        uint32_t at = i;
        for (; at > 0 && h->fragments[places[at - 1]].renewed > h->fragments[i].renewed; at--)
            places[at] = places[at - 1];
        places[at] = i;
    }
    const size_t bytes = (size_t)h->fragment_count * 4;
    if (pl_buf_reserve(&j->order, bytes) != PELAGO_OK)
        return false;
    j->order.len = bytes;
    for (uint32_t i = 0; i < h->fragment_count; i++) {
        pl_put_le(j->order.data + (size_t)i * 4, places[i], 4);
        j->values[i] = pl_values_keep(h->fragments[places[i]].values);
    }
    return true;
}

static struct pl_snapshot_job *capture(struct pl_syncer_host *h)
{
    struct pl_snapshot_job *j = pl_alloc_zero(&h->alloc, 1, sizeof *j);
    if (j == NULL)
        return NULL;
    j->h = h;
    j->job.run = snapshot_run;
    j->job.done = snapshot_done;
    size_t bytes = pl_syncer_save_bytes(h->core);
    pl_buf_init(&j->core, &h->alloc, bytes);
    pl_buf_init(&j->order, &h->alloc, (size_t)PL_FRAGMENTS_MAX * 4);
    pl_buf_init(&j->rule, &h->alloc, SIZE_MAX);
    j->values = pl_alloc_zero(&h->alloc, h->fragment_count, sizeof *j->values);
    if (j->values == NULL || pl_buf_reserve(&j->core, bytes) != PELAGO_OK ||
        pl_trust_save(h, &j->rule) != PELAGO_OK || !take_values(j)) {
        free_snapshot(j);
        return NULL;
    }
    j->core.len = pl_syncer_save(h->core, j->core.data, bytes);
    pl_put_le(j->counters, h->value_tokens_lo, 8);
    pl_put_le(j->counters + 8, h->value_tokens_hi, 8);
    return j;
}

/* No batch is being written: every record in the journal has been answered, and the core's state is what it says. */
static void begin_snapshot(struct pl_syncer_host *h)
{
    struct pl_vault *v = h->vault;
    if (!v->wants_snapshot || v->snapshot != NULL || h->stopping || pl_clock_ns() < v->snapshot_retry_ns)
        return;
    v->wants_snapshot = false;
    v->snapshot = capture(h);
    if (v->snapshot != NULL)
        pl_work_add(&v->queue, &v->snapshot->job);
}

void pl_vault_view(const struct pl_syncer_host *h, struct pl_vault_view *out)
{
    const struct pl_vault *v = h->vault;
    *out = v->view;
    out->waiting = v->stores_out;
    out->sync_ns = v->latency.mean;
    const struct pl_store_entry *oldest = v->writing ? v->batch.first : v->first;
    out->oldest_ns = oldest != NULL ? oldest->asked_ns : 0;
}

/* ---- making it ---- */

enum pelago_status pl_vault_new(struct pl_syncer_host *h, struct pl_error *err)
{
    struct pl_vault *v = pl_alloc_zero(&h->alloc, 1, sizeof *v);
    if (v == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for the journal");
    h->vault = v;
    v->batch.h = h;
    v->batch.job.run = batch_run;
    v->batch.job.done = batch_done;
    pl_work_queue_init(&v->queue, h->o.loop);
    v->options.record_bytes_max = record_bytes_max(h);
    v->options.snapshot_after_bytes =
        h->o.snapshot_bytes != 0 ? h->o.snapshot_bytes : pl_max64(8 * shard_values(h), JOURNAL_BYTES_MIN);
    v->options.segment_bytes = v->options.snapshot_after_bytes / 2;
    v->options.scratch_bytes = pl_store_scratch_bytes(v->options.record_bytes_max);
    v->options.scratch = pl_alloc_zero(&h->alloc, 1, v->options.scratch_bytes);
    pl_put_le(v->options.run_id, h->settings.run_id, 8);
    v->options.run_id[8] = (uint8_t)h->options.shard;
    v->contributors = pl_alloc_zero(&h->alloc, h->options.learners_max, sizeof *v->contributors);
    for (uint32_t i = 0; i < PL_VAULT_SECTIONS; i++)
        pl_buf_init(&v->section[i], &h->alloc, UINT64_C(1) << 40);
    if (v->options.scratch == NULL || v->contributors == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for a record of %lu bytes",
                       v->options.record_bytes_max);
    return pl_vault_recover(h, err);
}
