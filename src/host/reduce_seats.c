/* host/reduce_seats.c - who takes part, who has the run's state, and who gets it from whom. See reduce_host.h.
 *
 * The syncer itself holds nothing of the model, so what a round is based on is known only through the learners. A learner
 * that kept its process is in the round under way or in the one before, never elsewhere: no round ends without it. One
 * that lost its memory gets the state from another as soon as that one waits at the beginning of the round. When nobody
 * who is here has the state any more (everybody restarted, or the syncer did), all must be here first; then the run
 * goes on from the newest state anybody has.
 */
#include "base/check.h"
#include "host/reduce_host_int.h"
#include "os/clock.h"

#include <string.h>

/* ---- looking ---- */

struct pl_seat *pl_rhost_seat(struct pl_reduce_host *h, uint64_t identity)
{
    for (uint32_t i = 0; i < h->seat_count; i++)
        if (h->seats[i].identity == identity)
            return &h->seats[i];
    return NULL;
}

struct pl_seat *pl_rguest_seat(struct pl_reduce_guest *g)
{
    struct pl_seat *seat = pl_rhost_seat(g->h, g->peer.identity);
    pl_assert(seat != NULL && seat->guest == g);
    return seat;
}

uint32_t pl_rhost_present(const struct pl_reduce_host *h)
{
    uint32_t present = 0;
    for (uint32_t i = 0; i < h->seat_count; i++)
        present += h->seats[i].guest != NULL;
    return present;
}

static struct pl_seat *holder(struct pl_reduce_host *h)
{
    for (uint32_t i = 0; i < h->seat_count; i++)
        if (h->seats[i].guest != NULL && h->seats[i].has)
            return &h->seats[i];
    return NULL;
}

/* ---- the state on its way from one to another ---- */

static void begin_transfer(struct pl_reduce_host *h)
{
    struct pl_seat *donor = holder(h), *target = NULL;
    for (uint32_t i = 0; i < h->seat_count && target == NULL; i++)
        if (h->seats[i].guest != NULL && !h->seats[i].has && h->seats[i].wants)
            target = &h->seats[i];
    if (h->transfer.active || !h->placed || donor == NULL || target == NULL)
        return;
    h->transfer = (struct pl_reduce_transfer){.active = true,
                                              .number = h->transfer.number + 1,
                                              .donor = donor->identity,
                                              .target = target->identity,
                                              .begin_ns = pl_clock_ns()};
    target->spoilt = true;
    struct pl_msg msg = {.type = PL_MSG_GIVE, .u.give = {.transfer = h->transfer.number, .round = h->round}};
    pl_rhost_log(h, "learner %lu gets the state of round %lu from learner %lu", target->identity, h->round,
                 donor->identity);
    (void)pl_rguest_send(donor->guest, &msg);
}

/* Whom we do not listen to is not silent. */
static void hold(struct pl_reduce_guest *g, bool on)
{
    g->held = on;
    g->heard_ns = pl_clock_ns();
    pl_conn_pause(g->conn, on);
}

static void release_donor(struct pl_reduce_host *h)
{
    struct pl_seat *donor = pl_rhost_seat(h, h->transfer.donor);
    if (donor != NULL && donor->guest != NULL)
        hold(donor->guest, false);
}

static void cancel_transfer(struct pl_reduce_host *h, uint64_t identity)
{
    struct pl_reduce_transfer *t = &h->transfer;
    if (!t->active || (identity != t->donor && identity != t->target))
        return;
    t->active = false;
    release_donor(h);
    begin_transfer(h); /* half a state is none: it begins again, from another donor or for another learner */
}

void pl_rhost_give(struct pl_reduce_guest *g, const struct pl_msg_give *m)
{
    struct pl_seat *seat = pl_rguest_seat(g);
    (void)m;
    if (seat->has)
        return;
    seat->wants = true;
    begin_transfer(g->h);
}

static void transferred(struct pl_reduce_host *h, struct pl_seat *target)
{
    h->transfer.active = false;
    h->transfers++;
    target->has = true;
    target->spoilt = target->wants = target->fresh = false;
    target->round = h->round;
    pl_rhost_log(h, "learner %lu has the state of round %lu, after %lu ms", target->identity, h->round,
                 (pl_clock_ns() - h->transfer.begin_ns) / PL_MS);
    begin_transfer(h);
}

void pl_rhost_state(struct pl_reduce_guest *g, const struct pl_msg *m)
{
    struct pl_reduce_host *h = g->h;
    const struct pl_msg_state *s = &m->u.state;
    struct pl_reduce_transfer *t = &h->transfer;
    if (!t->active || s->transfer != t->number || g->peer.identity != t->donor)
        return; /* of a transfer that was given up */
    struct pl_seat *target = pl_rhost_seat(h, t->target);
    pl_assert(target != NULL && target->guest != NULL); /* whoever leaves ends the transfer */
    struct pl_conn *conn = target->guest->conn;
    bool last = s->at + s->bytes.len / sizeof(float) >= s->values;
    if (!pl_rguest_send(target->guest, m))
        return; /* its closed() follows and ends the transfer */
    if (last)
        transferred(h, target);
    else if (!pl_conn_room(conn))
        hold(g, true);
}

void pl_rhost_flow(struct pl_reduce_guest *g)
{
    struct pl_reduce_host *h = g->h;
    if (!h->transfer.active || g->peer.identity != h->transfer.target)
        return;
    release_donor(h);
}

/* ---- places ---- */

static void send_place(struct pl_reduce_host *h, const struct pl_seat *seat)
{
    struct pl_msg msg = {.type = PL_MSG_PLACE,
                         .u.place = {.rank = (uint32_t)(seat - h->seats),
                                     .learners = h->plan.learners,
                                     .round = h->round,
                                     .flags = seat->has ? 0 : 1}};
    (void)pl_rguest_send(seat->guest, &msg); /* where it fails, closed() follows */
}

/* Is a's state the better one to go on from? */
static bool better(const struct pl_seat *a, const struct pl_seat *b)
{
    if (b == NULL || b->spoilt || a->spoilt)
        return b == NULL || (b->spoilt && !a->spoilt);
    return a->round != b->round ? a->round > b->round : !a->fresh && b->fresh;
}

/* Everybody is here: the run begins, or goes on from the newest state. */
static void place_all(struct pl_reduce_host *h)
{
    struct pl_seat *best = NULL;
    for (uint32_t i = 0; i < h->seat_count; i++)
        best = better(&h->seats[i], best) ? &h->seats[i] : best;
    pl_assert(best != NULL);
    uint64_t round = best->round;
    pl_rhost_rounds_clear(h, round);
    if (h->transfer.active)
        release_donor(h);
    h->transfer.active = false;
    h->digest_round = 0;
    h->placed = true;
    h->placed_ns = pl_clock_ns();
    pl_rhost_log(h, "all %u learners are here; the run goes on in round %lu of %lu", h->plan.learners,
                 round + 1, h->plan.rounds);
    for (uint32_t i = 0; i < h->seat_count; i++) {
        struct pl_seat *s = &h->seats[i];
        s->wants = false;
        s->has = s == best || (!s->spoilt && s->round == round && (!s->fresh || round == 0));
        send_place(h, s);
    }
}

/* A learner came back while the run goes on. */
static void place_one(struct pl_reduce_host *h, struct pl_seat *s)
{
    bool here = !s->fresh && (s->round == h->round || s->round + 1 == h->round);
    s->has = here || (s->round == 0 && h->round == 0);
    s->spoilt = false;
    if (s->has || holder(h) != NULL) {
        send_place(h, s);
        begin_transfer(h);
    } else if (pl_rhost_present(h) == h->plan.learners) {
        place_all(h);
    }
}

/* In the order of identities; there is room. */
static struct pl_seat *new_seat(struct pl_reduce_host *h, uint64_t identity)
{
    uint32_t at = h->seat_count++;
    for (; at > 0 && h->seats[at - 1].identity > identity; at--)
        h->seats[at] = h->seats[at - 1];
    h->seats[at] = (struct pl_seat){.identity = identity};
    return &h->seats[at];
}

static bool may_enter(struct pl_reduce_guest *g, const struct pl_msg_enter *m)
{
    struct pl_reduce_host *h = g->h;
    const char *text = NULL;
    enum pl_reason reason = PL_REASON_WRONG_RUN;
    if (g->peer.role != PL_ROLE_LEARNER)
        reason = PL_REASON_WRONG_STATE, text = "only learners enter";
    else if (h->done)
        reason = PL_REASON_DONE, text = "the run is complete";
    else if (m->run_id != h->settings.run_id)
        text = "this is another run: enrol here, or dial the syncer of yours";
    else if (m->settings_digest != h->settings_digest)
        text = "the settings differ from those of the run: remove settings.json of the learner's folder";
    else if (pl_rhost_seat(h, g->peer.identity) == NULL && h->seat_count == h->plan.learners)
        reason = PL_REASON_FULL,
        text = "all places of this synchronous run are taken: learners cannot be added";
    if (text != NULL)
        pl_rguest_dismiss(g, reason, text);
    return text == NULL;
}

void pl_rhost_enter(struct pl_reduce_guest *g, const struct pl_msg_enter *m)
{
    struct pl_reduce_host *h = g->h;
    if (!may_enter(g, m))
        return;
    struct pl_seat *seat = pl_rhost_seat(h, g->peer.identity);
    if (seat != NULL && seat->guest != NULL)
        pl_rguest_dismiss(seat->guest, PL_REASON_REPLACED,
                          "a newer connection of the same learner took over");
    seat = pl_rhost_seat(h, g->peer.identity); /* before the start a place goes with its connection */
    if (seat == NULL)
        seat = new_seat(h, g->peer.identity);
    g->tickets = pl_alloc_zero(&h->alloc, pl_rhost_ticket_max(h), sizeof *g->tickets);
    if (g->tickets == NULL) {
        pl_rguest_dismiss(g, PL_REASON_FULL, "there is no memory for another learner");
        return;
    }
    g->entered = true;
    seat->guest = g;
    seat->fresh = (m->flags & 1) != 0;
    seat->round = m->round;
    seat->wants = seat->finished = false;
    seat->joins++;
    pl_speed_begin(&seat->speed);
    h->joins++;
    pl_conn_set_frame_max(g->conn, PL_MSG_STATE_BYTES_MAX);
    pl_rhost_log(h, "learner %lu entered from %s with the state of round %lu; %u of %u are here",
                 seat->identity, g->peer.address, m->round, pl_rhost_present(h), h->plan.learners);
    if (h->placed)
        place_one(h, seat);
    else if (pl_rhost_present(h) == h->plan.learners)
        place_all(h);
}

void pl_rhost_left(struct pl_reduce_guest *g)
{
    struct pl_reduce_host *h = g->h;
    struct pl_seat *seat = pl_rguest_seat(g);
    seat->guest = NULL;
    cancel_transfer(h, seat->identity);
    if (h->ended)
        return;
    h->lost += g->leaves ? 0 : 1;
    pl_rhost_log(h, "learner %lu %s; the others wait for it", seat->identity,
                 g->leaves ? "has left" : "is lost");
    if (h->placed)
        return;
    size_t index = (size_t)(seat - h->seats);
    memmove(seat, seat + 1, (h->seat_count - index - 1) * sizeof *seat);
    h->seat_count--;
}

/* ---- what they have done ---- */

static bool all_finished(const struct pl_reduce_host *h)
{
    for (uint32_t i = 0; i < h->seat_count; i++)
        if (!h->seats[i].finished)
            return false;
    return h->placed;
}

/* Learners of one round must have the same bits. False: they do not. */
static bool compare(struct pl_reduce_host *h, const struct pl_seat *seat)
{
    const struct pl_msg_tally *m = &seat->tally;
    struct pl_error err;
    if (m->digest_round > h->digest_round) {
        h->digest_round = m->digest_round;
        h->digest = m->digest;
    }
    if (m->digest_round == 0 || m->digest_round < h->digest_round || m->digest == h->digest)
        return true;
    (void)pl_fail(
        &err, PELAGO_CORRUPT,
        "after round %lu the parameters of learner %lu differ from the others': the run cannot go on; use "
        "the same program and data everywhere",
        m->digest_round, seat->identity);
    pl_rhost_fail(h, &err);
    return false;
}

void pl_rhost_tally(struct pl_reduce_guest *g, const struct pl_msg_tally *m)
{
    struct pl_reduce_host *h = g->h;
    struct pl_seat *seat = pl_rguest_seat(g);
    seat->tally = *m;
    pl_speed_look(&seat->speed, m->tokens, pl_clock_ns());
    if (!h->placed || !seat->has)
        return;
    seat->round = m->round;
    if (!compare(h, seat))
        return;
    seat->finished = (m->flags & 1) != 0;
    if (all_finished(h))
        pl_rhost_complete(h, "the run is complete");
}
