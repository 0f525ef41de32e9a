/* host/reduce_rounds.c - buckets in, means out. See reduce_host.h.
 *
 * A bucket's mean is computed when all learners' parts are there, summed in the order of identities, so that the result
 * does not depend on who was first. The means of the round before are kept: a learner that lost its connection before
 * it had them all sends its buckets again and gets the means in return. It cannot fall further behind than that, because
 * no round is complete without it.
 */
#include "base/check.h"
#include "host/reduce_host_int.h"

#include <string.h>

struct mean_job {
    struct pl_job job; /* first */
    struct pl_reduce_host *h;
    uint32_t generation;
    uint64_t round;
    uint32_t bucket;
    uint8_t *out; /* becomes the slot's mean */
    bool good;
    uint32_t bad;
    uint8_t *parts[]; /* [learners] */
};

static size_t job_bytes(const struct pl_reduce_host *h)
{
    return sizeof(struct mean_job) + h->plan.learners * sizeof(uint8_t *);
}

/* ---- memory ---- */

static uint8_t *take_part(struct pl_reduce_host *h)
{
    uint8_t *part = h->spare;
    if (part == NULL)
        return pl_alloc_zero(&h->alloc, 1, PL_REDUCE_BYTES_MAX);
    memcpy(&h->spare, part, sizeof h->spare);
    return part;
}

static void give_part(struct pl_reduce_host *h, uint8_t *part)
{
    if (part == NULL)
        return;
    memcpy(part, &h->spare, sizeof h->spare);
    h->spare = part;
}

static enum pelago_status init_store(struct pl_reduce_host *h, struct pl_reduce_store *s, uint8_t **parts)
{
    s->round = PL_NONE64;
    s->slots = pl_alloc_zero(&h->alloc, h->plan.buckets, sizeof *s->slots);
    for (uint32_t i = 0; s->slots != NULL && i < h->plan.buckets; i++)
        s->slots[i].parts = parts + (size_t)i * h->plan.learners;
    return s->slots != NULL ? PELAGO_OK : PELAGO_NOMEM;
}

enum pelago_status pl_rhost_rounds_init(struct pl_reduce_host *h, struct pl_error *err)
{
    size_t each = (size_t)h->plan.buckets * h->plan.learners;
    pl_work_queue_init(&h->queue, h->o.loop);
    h->parts = pl_alloc_zero(&h->alloc, 2 * each, sizeof *h->parts);
    h->scratch = pl_alloc_zero(&h->alloc, h->plan.bucket_values, sizeof *h->scratch);
    if (h->parts == NULL || h->scratch == NULL || init_store(h, &h->stores[0], h->parts) != PELAGO_OK ||
        init_store(h, &h->stores[1], h->parts + each) != PELAGO_OK)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for the buckets of %u learners",
                       h->plan.learners);
    return PELAGO_OK;
}

static void free_store(struct pl_reduce_host *h, struct pl_reduce_store *s)
{
    for (uint32_t i = 0; s->slots != NULL && i < h->plan.buckets; i++)
        pl_alloc_free(&h->alloc, s->slots[i].mean, PL_REDUCE_BYTES_MAX);
    pl_alloc_free(&h->alloc, s->slots, h->plan.buckets * sizeof *s->slots);
}

static void empty_store(struct pl_reduce_host *h, struct pl_reduce_store *s, uint64_t round)
{
    for (uint32_t i = 0; s->slots != NULL && i < h->plan.buckets; i++) {
        struct pl_reduce_slot *slot = &s->slots[i];
        for (uint32_t j = 0; j < h->plan.learners; j++) {
            give_part(h, slot->parts[j]);
            slot->parts[j] = NULL;
        }
        slot->have = 0;
        slot->merging = slot->complete = false;
    }
    s->round = round;
    s->complete = 0;
}

void pl_rhost_rounds_free(struct pl_reduce_host *h)
{
    pl_assert(h->jobs == 0);
    for (uint32_t i = 0; i < 2; i++) {
        empty_store(h, &h->stores[i], PL_NONE64);
        free_store(h, &h->stores[i]);
    }
    while (h->spare != NULL)
        pl_alloc_free(&h->alloc, take_part(h), PL_REDUCE_BYTES_MAX);
    pl_alloc_free(&h->alloc, h->parts, (size_t)2 * h->plan.buckets * h->plan.learners * sizeof *h->parts);
    pl_alloc_free(&h->alloc, h->scratch, h->plan.bucket_values * sizeof *h->scratch);
}

void pl_rhost_rounds_clear(struct pl_reduce_host *h, uint64_t round)
{
    h->generation++;
    h->round = round;
    empty_store(h, &h->stores[round % 2], round);
    empty_store(h, &h->stores[(round + 1) % 2], PL_NONE64);
}

/* ---- means on their way down ---- */

uint32_t pl_rhost_ticket_max(const struct pl_reduce_host *h)
{
    return 4 * h->plan.buckets; /* two rounds, each of them asked for twice */
}

static struct pl_reduce_slot *slot_of(struct pl_reduce_host *h, uint64_t round, uint32_t bucket)
{
    struct pl_reduce_store *s = &h->stores[round % 2];
    return s->round == round ? &s->slots[bucket] : NULL;
}

void pl_rguest_pump(struct pl_reduce_guest *g)
{
    struct pl_reduce_host *h = g->h;
    uint32_t max = pl_rhost_ticket_max(h);
    while (g->ticket_count > 0 && pl_conn_room(g->conn)) {
        struct pl_reduce_ticket t = g->tickets[g->ticket_first];
        g->ticket_first = (g->ticket_first + 1) % max;
        g->ticket_count--;
        struct pl_reduce_slot *slot = slot_of(h, t.round, t.bucket);
        if (slot == NULL || !slot->complete)
            continue;
        struct pl_msg msg = {.type = PL_MSG_REDUCE,
                             .u.reduce = {.round = t.round,
                                          .bucket = t.bucket,
                                          .bytes = {slot->mean, pl_reduce_bucket(&h->plan, t.bucket).bytes}}};
        if (!pl_rguest_send(g, &msg))
            return; /* closed() follows */
    }
}

static void send_mean(struct pl_reduce_guest *g, uint64_t round, uint32_t bucket)
{
    uint32_t max = pl_rhost_ticket_max(g->h);
    if (g->ticket_count == max) {
        pl_rguest_dismiss(g, PL_REASON_WRONG_STATE, "REDUCE came again and again for the same buckets");
        return;
    }
    g->tickets[(g->ticket_first + g->ticket_count++) % max] = (struct pl_reduce_ticket){round, bucket};
    pl_rguest_pump(g);
}

/* ---- the mean ---- */

static void mean_run(struct pl_job *job)
{
    struct mean_job *j = (struct mean_job *)job;
    j->good = pl_reduce_mean(&j->h->plan, j->bucket, (const uint8_t *const *)j->parts, j->h->plan.learners,
                             j->h->scratch, j->out, &j->bad);
}

static void say_bad(struct pl_reduce_host *h, const struct mean_job *j)
{
    struct pl_error err;
    if (j->bad < h->seat_count)
        (void)pl_fail(&err, PELAGO_INVALID,
                      "learner %lu sent values that are not finite in round %lu: try a lower learning rate",
                      h->seats[j->bad].identity, j->round + 1);
    else
        (void)pl_fail(&err, PELAGO_INVALID, "the mean of round %lu is not finite: try a lower learning rate",
                      j->round + 1);
    pl_rhost_fail(h, &err);
}

static void next_round(struct pl_reduce_host *h)
{
    h->round++;
    empty_store(h, &h->stores[h->round % 2], h->round);
}

/* Everybody gets it, in the order of ranks. The round advances first, because an answer may come at once. */
static void publish(struct pl_reduce_host *h, const struct mean_job *j)
{
    struct pl_reduce_store *s = &h->stores[j->round % 2];
    struct pl_reduce_slot *slot = &s->slots[j->bucket];
    pl_assert(s->round == j->round && slot->merging && !slot->complete);
    slot->merging = false;
    slot->complete = true;
    if (++s->complete == h->plan.buckets)
        next_round(h);
    for (uint32_t i = 0; i < h->seat_count; i++)
        if (h->seats[i].guest != NULL && h->seats[i].has)
            send_mean(h->seats[i].guest, j->round, j->bucket);
}

static void mean_done(struct pl_job *job)
{
    struct mean_job *j = (struct mean_job *)job;
    struct pl_reduce_host *h = j->h;
    bool wanted = j->generation == h->generation && !h->ended && !h->stopping;
    for (uint32_t i = 0; i < h->plan.learners; i++)
        give_part(h, j->parts[i]);
    if (wanted && j->good)
        publish(h, j);
    else if (wanted)
        say_bad(h, j);
    pl_alloc_free(&h->alloc, j, job_bytes(h));
    h->jobs--;
    pl_rhost_stop_check(h);
}

static bool start_mean(struct pl_reduce_host *h, uint32_t bucket, struct pl_reduce_slot *slot)
{
    struct mean_job *j = pl_alloc_zero(&h->alloc, 1, job_bytes(h));
    if (slot->mean == NULL)
        slot->mean = pl_alloc_zero(&h->alloc, 1, PL_REDUCE_BYTES_MAX);
    if (j == NULL || slot->mean == NULL) {
        pl_alloc_free(&h->alloc, j, job_bytes(h));
        return false;
    }
    j->job.run = mean_run;
    j->job.done = mean_done;
    j->h = h;
    j->generation = h->generation;
    j->round = h->round;
    j->bucket = bucket;
    j->out = slot->mean;
    for (uint32_t i = 0; i < h->plan.learners; i++) {
        j->parts[i] = slot->parts[i];
        slot->parts[i] = NULL;
    }
    slot->merging = true;
    h->jobs++;
    pl_work_add(&h->queue, &j->job);
    return true;
}

static void no_memory(struct pl_reduce_host *h)
{
    struct pl_error err;
    (void)pl_fail(&err, PELAGO_NOMEM, "there is no memory for the buckets of round %lu", h->round + 1);
    pl_rhost_fail(h, &err);
}

static void keep_part(struct pl_reduce_host *h, struct pl_reduce_slot *slot, size_t rank,
                      const struct pl_msg_reduce *m)
{
    uint8_t *part = take_part(h);
    if (part == NULL) {
        no_memory(h);
        return;
    }
    memcpy(part, m->bytes.data, m->bytes.len);
    slot->parts[rank] = part;
    if (++slot->have == h->plan.learners && !start_mean(h, m->bucket, slot))
        no_memory(h);
}

void pl_rhost_reduce(struct pl_reduce_guest *g, const struct pl_msg_reduce *m)
{
    struct pl_reduce_host *h = g->h;
    struct pl_seat *seat = pl_rguest_seat(g);
    if (m->bucket >= h->plan.buckets || m->bytes.len != pl_reduce_bucket(&h->plan, m->bucket).bytes) {
        pl_rguest_dismiss(g, PL_REASON_BAD_MESSAGE,
                          "REDUCE names a bucket this run does not have, or a wrong size");
        return;
    }
    if (!h->placed || !seat->has)
        return; /* sent before it knew better */
    struct pl_reduce_slot *slot = slot_of(h, m->round, m->bucket);
    if (slot == NULL)
        return; /* of a round that everybody has done with */
    if (slot->complete)
        send_mean(g, m->round, m->bucket);
    else if (m->round == h->round && !slot->merging && slot->parts[seat - h->seats] == NULL)
        keep_part(h, slot, (size_t)(seat - h->seats), m);
}
