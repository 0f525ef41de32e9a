/* host/reduce_status.c - what status and top show of a synchronous run: the members of docs/status.md that mean something
 * where everybody waits for everybody. All tokens are merged, always; a learner is alive while it is here and has the
 * run's state. */
#include "host/reduce_host_int.h"
#include "os/clock.h"
#include "train/json.h"

static bool is_alive(const struct pl_reduce_host *h, const struct pl_seat *s)
{
    return h->placed && s->guest != NULL && s->has;
}

/* Of one learner; waiting for the others is time, too. */
static double speed(const struct pl_reduce_host *h, const struct pl_seat *s)
{
    return is_alive(h, s) ? pl_speed_now(&s->speed, pl_clock_ns()) : 0;
}

static json_t *learner(const struct pl_reduce_host *h, const struct pl_seat *s, bool all, bool *good)
{
    json_t *o = json_object();
    const struct pl_msg_tally *t = &s->tally;
    const struct pl_reduce_guest *g = s->guest;
    pl_json_add_count(o, good, "identity", s->identity);
    pl_json_add(o, good, "alive", json_boolean(is_alive(h, s)));
    pl_json_add(o, good, "connected", json_boolean(g != NULL));
    pl_json_add_count(o, good, "rank", (uint64_t)(s - h->seats));
    pl_json_add_count(o, good, "round", s->round);
    pl_json_add_count(o, good, "steps", t->steps);
    pl_json_add_count(o, good, "tokens", t->tokens);
    pl_json_add_count(o, good, "step_ns", t->step_ns);
    pl_json_add_count(o, good, "blocked_ns", t->blocked_ns);
    pl_json_add_real(o, good, "tokens_per_s", speed(h, s));
    pl_json_add_real(o, good, "loss", (double)t->loss_micro * 1e-6);
    pl_json_add_count(o, good, "bytes_up", s->bytes_in);
    pl_json_add_count(o, good, "bytes_down", s->bytes_out);
    pl_json_add_count(o, good, "joins", s->joins);
    if (all)
        pl_json_add(o, good, "address", json_string(g != NULL ? g->peer.address : ""));
    pl_json_add_real(o, good, "silent_s", g != NULL ? (double)(pl_clock_ns() - g->heard_ns) * 1e-9 : 0);
    return o;
}

static void put_learners(const struct pl_reduce_host *h, bool all, json_t *o, bool *good)
{
    json_t *list = json_array();
    double loss = 0, rate = 0;
    uint32_t count = 0, alive = 0;
    for (uint32_t i = 0; i < h->seat_count; i++) {
        const struct pl_seat *s = &h->seats[i];
        *good = json_array_append_new(list, learner(h, s, all, good)) == 0 && *good;
        alive += is_alive(h, s);
        rate += speed(h, s);
        count += s->tally.steps > 0;
        loss += (double)s->tally.loss_micro * 1e-6;
    }
    pl_json_add_count(o, good, "known", h->seat_count);
    pl_json_add_count(o, good, "alive", alive);
    pl_json_add_count(o, good, "connected", pl_rhost_present(h));
    pl_json_add_real(o, good, "tokens_per_s", alive == h->plan.learners ? rate : 0);
    pl_json_add_real(o, good, "loss", count > 0 ? loss / count : 0);
    pl_json_add(o, good, "learners", list);
}

static void put_run(const struct pl_reduce_host *h, json_t *o, bool *good)
{
    uint64_t tokens = pl_reduce_tokens(&h->plan, h->round);
    const char *phase = h->done ? "done" : h->placed ? "running" : "waiting";
    pl_json_add(o, good, "run", pl_json_bits_value(h->settings.run_id));
    pl_json_add(o, good, "model", json_string(h->settings.model));
    pl_json_add(o, good, "algorithm", json_string(pl_algorithm_name(h->plan.algorithm)));
    pl_json_add_count(o, good, "shard", 0);
    pl_json_add_count(o, good, "shards", 1);
    pl_json_add(o, good, "address", json_string(h->address));
    pl_json_add(o, good, "phase", json_string(phase));
    pl_json_add_real(o, good, "uptime_s", (double)(pl_clock_ns() - h->start_ns) * 1e-9);
    pl_json_add_count(o, good, "tokens", tokens);
    pl_json_add_count(o, good, "total_tokens", h->settings.total_tokens);
    pl_json_add_count(o, good, "merged_tokens", tokens);
    pl_json_add_real(o, good, "goodput", tokens > 0 ? 1 : -1);
    pl_json_add_real(o, good, "merged_alive", tokens > 0 ? 1 : -1);
    pl_json_add_count(o, good, "merges", h->round);
    pl_json_add_count(o, good, "rounds", h->plan.rounds);
    pl_json_add_count(o, good, "quorum", h->plan.learners);
    pl_json_add_count(o, good, "transfers", h->transfers);
}

static void put_traffic(const struct pl_reduce_host *h, json_t *o, bool *good)
{
    struct pl_listener_view l = {0};
    if (h->listener != NULL)
        pl_listener_view(h->listener, &l);
    pl_json_add_count(o, good, "bytes_up", h->bytes_in);
    pl_json_add_count(o, good, "bytes_down", h->bytes_out);
    pl_json_add_count(o, good, "connections", h->guest_count);
    pl_json_add_count(o, good, "accepted", l.accepted);
    pl_json_add_count(o, good, "refused", l.refused);
    pl_json_add_count(o, good, "lost", h->lost);
    pl_json_add_count(o, good, "joins", h->joins);
}

enum pelago_status pl_reduce_host_status(struct pl_reduce_host *h, bool all, struct pl_buf *out)
{
    json_t *o = json_object();
    bool good = o != NULL;
    if (!good)
        return PELAGO_NOMEM;
    put_run(h, o, &good);
    put_traffic(h, o, &good);
    put_learners(h, all, o, &good);
    enum pelago_status st = good ? pl_json_print(o, 9, out) : PELAGO_NOMEM;
    json_decref(o);
    return st;
}
