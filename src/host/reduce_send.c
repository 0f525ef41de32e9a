/* host/reduce_send.c - buckets up, means down; the state given to another learner or taken from one. See reduce_learner.h.
 *
 * A bucket is encoded by a worker as soon as its gradients are final, while the thread is still on the way back, and sent
 * when it is encoded. Encoded buckets are kept until the round is over: when the connection breaks they are all sent
 * again, and the syncer answers with the means it has already. A mean is taken only where the bucket itself is encoded,
 * because before that the gradient's place is still being written to.
 */
#include "base/check.h"
#include "host/reduce_learner_int.h"

#include <string.h>

/* Of a state. The syncer does not read while the learner it is for has no room: smaller pieces, shorter pauses, and a slow line
 * does not look like a broken one. */
enum { PIECE_VALUES = (64 << 10) / sizeof(float) };

struct encode_job {
    struct pl_job job; /* first */
    struct pl_reduce_learner *l;
    uint32_t generation, bucket;
    bool good;
};

enum pelago_status pl_rlearn_values_init(struct pl_reduce_learner *l, struct pl_error *err)
{
    uint32_t buckets = l->kit.plan.buckets;
    l->x.up = pl_alloc_zero(&l->alloc, buckets, PL_REDUCE_BYTES_MAX);
    l->x.got = pl_alloc_zero(&l->alloc, buckets, sizeof *l->x.got);
    l->give.values = pl_alloc_zero(&l->alloc, PIECE_VALUES, sizeof *l->give.values);
    l->give.bytes = pl_alloc_zero(&l->alloc, 1, PL_REDUCE_BYTES_MAX);
    if (l->x.up == NULL || l->x.got == NULL || l->give.values == NULL || l->give.bytes == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for the buckets of the model");
    return PELAGO_OK;
}

void pl_rlearn_values_free(struct pl_reduce_learner *l)
{
    uint32_t buckets = l->kit.plan.buckets;
    pl_alloc_free(&l->alloc, l->x.up, (size_t)buckets * PL_REDUCE_BYTES_MAX);
    pl_alloc_free(&l->alloc, l->x.got, buckets * sizeof *l->x.got);
    pl_alloc_free(&l->alloc, l->give.values, PIECE_VALUES * sizeof *l->give.values);
    pl_alloc_free(&l->alloc, l->give.bytes, PL_REDUCE_BYTES_MAX);
}

void pl_rlearn_begin(struct pl_reduce_learner *l, uint64_t round)
{
    struct pl_reduce_exchange *x = &l->x;
    x->generation++;
    x->round = round;
    x->encoding = x->encoded = x->sent = x->got_count = 0;
    memset(x->got, 0, l->kit.plan.buckets * sizeof *x->got);
}

/* ---- up ---- */

static uint8_t *up_bytes(const struct pl_reduce_learner *l, uint32_t bucket)
{
    return l->x.up + (size_t)bucket * PL_REDUCE_BYTES_MAX;
}

static void encode_run(struct pl_job *job)
{
    struct encode_job *j = (struct encode_job *)job;
    const struct pl_reduce_plan *plan = &j->l->kit.plan;
    struct pl_reduce_range r = pl_reduce_bucket(plan, j->bucket);
    const float *values = j->l->kit.trainer->model->grads + r.first;
    j->good = pl_codec_encode(plan->codec, values, r.count, up_bytes(j->l, j->bucket));
}

static void encode_done(struct pl_job *job)
{
    struct encode_job *j = (struct encode_job *)job;
    struct pl_reduce_learner *l = j->l;
    bool current = j->generation == l->x.generation;
    bool good = j->good;
    pl_alloc_free(&l->alloc, j, sizeof *j);
    l->jobs--;
    if (current && !l->over && good) {
        l->x.encoded++;
        pl_rlearn_pump(l);
    } else if (current && !good) {
        pl_rlearn_over(l, PELAGO_INVALID,
                       "a gradient is not finite: try a lower learning rate or a longer warm-up");
    }
    pl_rlearn_wind_up(l);
}

static void encode(struct pl_reduce_learner *l)
{
    struct encode_job *j = pl_alloc_zero(&l->alloc, 1, sizeof *j);
    if (j == NULL) {
        pl_rlearn_over(l, PELAGO_NOMEM, "there is no memory to encode a bucket");
        return;
    }
    j->job.run = encode_run;
    j->job.done = encode_done;
    j->l = l;
    j->generation = l->x.generation;
    j->bucket = l->x.encoding++;
    l->jobs++;
    pl_work_add(&l->queue, &j->job);
}

static bool give_piece(struct pl_reduce_learner *l);

void pl_rlearn_look(struct pl_reduce_learner *l)
{
    uint32_t ready = pl_rtrainer_ready(&l->thread, l->x.round);
    while (l->x.encoding < ready && !l->over)
        encode(l);
    if (l->load.wanted)
        pl_rlearn_want_state(l);
    pl_rlearn_pump(l);
}

static bool send_bucket(struct pl_reduce_learner *l)
{
    struct pl_reduce_exchange *x = &l->x;
    if (x->sent == x->encoded)
        return false;
    struct pl_reduce_range r = pl_reduce_bucket(&l->kit.plan, x->sent);
    struct pl_msg msg = {
        .type = PL_MSG_REDUCE,
        .u.reduce = {.round = x->round, .bucket = x->sent, .bytes = {up_bytes(l, x->sent), r.bytes}}};
    x->sent++;
    return pl_rlearn_send(l, &msg);
}

void pl_rlearn_pump(struct pl_reduce_learner *l)
{
    while (l->placed && !l->over && pl_conn_room(l->conn))
        if (!send_bucket(l) && !give_piece(l))
            return;
}

/* ---- down ---- */

void pl_rlearn_mean(struct pl_reduce_learner *l, const struct pl_msg_reduce *m)
{
    const struct pl_reduce_plan *plan = &l->kit.plan;
    struct pl_reduce_exchange *x = &l->x;
    if (m->round != x->round || m->bucket >= x->encoded || x->got[m->bucket])
        return; /* it is here already, or will be sent again */
    struct pl_reduce_range r = pl_reduce_bucket(plan, m->bucket);
    if (m->bytes.len != r.bytes || !pl_codec_check(plan->codec, m->bytes.data, r.count)) {
        pl_rlearn_over(l, PELAGO_PROTO, "the syncer sent a mean of a wrong size, or one that is not finite");
        return;
    }
    pl_codec_decode(plan->codec, m->bytes.data, r.count, l->kit.trainer->model->grads + r.first);
    x->got[m->bucket] = true;
    if (++x->got_count < plan->buckets)
        return;
    uint64_t round = x->round;
    pl_rlearn_begin(l, round + 1);
    pl_rtrainer_release_round(&l->thread, round);
}

/* ---- the state, taken ---- */

/* When the thread is parked, parameters and moments are ours to write. */
void pl_rlearn_want_state(struct pl_reduce_learner *l)
{
    struct pl_rtrainer_note note;
    struct pl_msg msg = {.type = PL_MSG_GIVE, .u.give = {.round = l->x.round}};
    l->load.wanted = true;
    pl_rtrainer_park(&l->thread);
    pl_rtrainer_note(&l->thread, &note);
    if (!note.parked || !l->placed)
        return;
    l->load.wanted = false;
    l->load.active = true;
    l->load.transfer = 0;
    (void)pl_rlearn_send(l, &msg); /* where it fails, closed() follows */
}

void pl_rlearn_state(struct pl_reduce_learner *l, const struct pl_msg_state *m)
{
    uint64_t count = m->bytes.len / sizeof(float), values = pl_rtrainer_state_floats(&l->thread);
    if (!l->load.active)
        return;
    if (m->transfer != l->load.transfer && m->at == 0) {
        l->load.transfer = m->transfer;
        l->load.at = 0;
    }
    if (m->transfer != l->load.transfer)
        return;
    if (m->values != values || m->at != l->load.at || count == 0 || count > values - m->at ||
        m->bytes.len % sizeof(float) != 0 || !pl_codec_check(PL_CODEC_FP32, m->bytes.data, count)) {
        pl_rlearn_over(l, PELAGO_PROTO, "the state that came is not that of a learner of this run");
        return;
    }
    l->load.spoilt = true;
    pl_codec_decode(PL_CODEC_FP32, m->bytes.data, count, l->give.values);
    pl_rtrainer_state_write(&l->thread, m->at, count, l->give.values);
    l->load.at += count;
    if (l->load.at < values)
        return;
    l->load.active = l->load.spoilt = false;
    l->settled = true;
    pl_rtrainer_settle(&l->thread, m->round);
    pl_rlearn_begin(l, m->round);
    pl_rtrainer_go(&l->thread, l->rank);
    pl_rlearn_log(l, "the state of round %lu is here; training goes on", m->round);
}

/* ---- the state, given ---- */

void pl_rlearn_give(struct pl_reduce_learner *l, const struct pl_msg_give *m)
{
    l->give.active = true;
    l->give.transfer = m->transfer;
    l->give.round = m->round;
    l->give.at = 0;
    pl_rlearn_pump(l);
}

/* While the thread waits for the means of this round, or has nothing more to do, its state stands. */
static bool stands(struct pl_reduce_learner *l)
{
    struct pl_rtrainer_note note;
    if (l->x.round != l->give.round)
        return false;
    if (pl_rtrainer_ready(&l->thread, l->x.round) == l->kit.plan.buckets)
        return true;
    pl_rtrainer_note(&l->thread, &note);
    return note.finished;
}

static bool give_piece(struct pl_reduce_learner *l)
{
    uint64_t values = pl_rtrainer_state_floats(&l->thread);
    if (!l->give.active || !stands(l))
        return false;
    uint64_t count = pl_min64(PIECE_VALUES, values - l->give.at);
    pl_rtrainer_state_read(&l->thread, l->give.at, count, l->give.values);
    if (!pl_codec_encode(PL_CODEC_FP32, l->give.values, count, l->give.bytes)) {
        pl_rlearn_over(l, PELAGO_INVALID, "the state is not finite any more: try a lower learning rate");
        return false;
    }
    struct pl_msg msg = {.type = PL_MSG_STATE,
                         .u.state = {.transfer = l->give.transfer,
                                     .round = l->give.round,
                                     .at = l->give.at,
                                     .values = values,
                                     .bytes = {l->give.bytes, (uint32_t)(count * sizeof(float))}}};
    l->give.at += count;
    l->give.active = l->give.at < values;
    return pl_rlearn_send(l, &msg);
}
