/* host/reduce_learner.c - start and stop, the connection, what the syncer says. See reduce_learner.h. */
#include "host/reduce_learner.h"

#include "base/check.h"
#include "base/fmt.h"
#include "host/reduce_learner_int.h"
#include "os/clock.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

enum { TICK_MS = 1000, REDIAL_MS = 100, REDIAL_MAX_MS = 2000 };
#define FLUSH_NS (300 * PL_MS)
#define CHECKPOINT_NS (60 * PL_SEC)

void pl_rlearn_log(struct pl_reduce_learner *l, const char *format, ...)
{
    char line[2 * PL_TEXT_MAX];
    va_list args;
    if (l->o.log == NULL)
        return;
    va_start(args, format);
    (void)pl_vfmt(line, sizeof line, format, args);
    va_end(args);
    l->o.log(l->o.user, line);
}

bool pl_rlearn_send(struct pl_reduce_learner *l, const struct pl_msg *msg)
{
    l->bytes_up += pl_frame_bytes(msg);
    return pl_conn_send(l->conn, msg);
}

/* ---- telling ---- */

static void send_tally(struct pl_reduce_learner *l)
{
    struct pl_rtrainer_note n;
    pl_rtrainer_note(&l->thread, &n);
    if (!l->up || !l->placed)
        return;
    double micro = isfinite(n.loss) && n.loss > 0 ? n.loss * 1e6 : 0;
    struct pl_msg msg = {
        .type = PL_MSG_TALLY,
        .u.tally = {.round = n.round,
                    .steps = n.steps,
                    .tokens = n.tokens,
                    .loss_micro = (uint64_t)(micro < 1e15 ? micro : 1e15),
                    .step_ns = n.step_ns,
                    .blocked_ns = atomic_load_explicit(&l->thread.blocked.sum_ns, memory_order_relaxed),
                    .digest_round = n.digest_round,
                    .digest = n.digest,
                    .flags = n.finished ? 1 : 0}};
    l->told = n;
    l->tally_ns = pl_clock_ns();
    (void)pl_rlearn_send(l, &msg); /* where it fails, closed() follows */
}

static void on_bell(uv_async_t *bell)
{
    struct pl_reduce_learner *l = bell->data;
    struct pl_rtrainer_note n;
    pl_rtrainer_note(&l->thread, &n);
    if (n.ended && l->thread.failure.status != PELAGO_OK)
        pl_rlearn_over(l, l->thread.failure.status, l->thread.failure.text);
    if (l->over) {
        pl_rlearn_wind_up(l);
        return;
    }
    pl_rlearn_look(l);
    if (n.steps != l->told.steps)
        pl_average_add(&l->step_ns, n.step_ns);
    if (n.round != l->told.round || n.finished != l->told.finished)
        send_tally(l);
    l->told.steps = n.steps;
}

static void on_tick(uv_timer_t *timer)
{
    struct pl_reduce_learner *l = timer->data;
    if (pl_clock_ns() - l->tally_ns >= (uint64_t)TICK_MS * PL_MS / 2)
        send_tally(l);
}

/* ---- what the syncer says ---- */

static void placed(struct pl_reduce_learner *l, const struct pl_msg_place *m)
{
    l->placed = true;
    l->redial_ms = REDIAL_MS;
    l->last_trouble[0] = '\0';
    l->rank = m->rank;
    if (m->learners != l->kit.plan.learners || m->round > l->kit.plan.rounds) {
        pl_rlearn_over(l, PELAGO_PROTO, "the syncer counts learners or rounds otherwise than the settings");
        return;
    }
    pl_rlearn_log(l, "place %u of %u; the run is in round %lu of %lu", m->rank + 1, m->learners,
                  pl_min64(m->round + 1, l->kit.plan.rounds), l->kit.plan.rounds);
    if ((m->flags & 1) != 0) {
        l->settled = false;
        pl_rlearn_want_state(l);
        return;
    }
    l->settled = true;
    l->load.wanted = l->load.active = false;
    l->x.sent = 0; /* the syncer may have lost what it had; it ignores what it has */
    pl_rtrainer_go(&l->thread, m->rank);
    send_tally(l);
    pl_rlearn_look(l);
}

static void ended(struct pl_reduce_learner *l, const struct pl_msg_end *m)
{
    char text[PL_TEXT_MAX + 1] = "";
    if (m->text.len > 0)
        memcpy(text, m->text.data, m->text.len);
    if (m->code == PL_REASON_LEAVING) {
        pl_rlearn_log(l, "the syncer leaves: %s", text);
        return; /* closed() follows, and we dial again */
    }
    enum pelago_status status = m->code == PL_REASON_DONE          ? PELAGO_OK
                                : m->code == PL_REASON_BAD_CONTENT ? PELAGO_CORRUPT
                                                                   : PELAGO_DENIED;
    pl_rlearn_over(l, status, text);
}

static void on_frame(void *user, struct pl_conn *conn, const struct pl_frame *frame)
{
    struct pl_reduce_learner *l = user;
    struct pl_msg msg;
    struct pl_error err;
    (void)conn;
    l->bytes_down += frame->total;
    if (!pl_msg_allowed(frame->type, PL_CHANNEL_LOCKSTEP, PL_SENDER_SYNCER))
        pl_rlearn_over(l, PELAGO_PROTO, "the syncer runs another algorithm than the settings say");
    else if (pl_msg_decode(frame->type, frame->payload, frame->payload_len, &msg, &err) != PELAGO_OK)
        pl_rlearn_over(l, PELAGO_PROTO, err.text);
    else if (msg.type == PL_MSG_PLACE)
        placed(l, &msg.u.place);
    else if (msg.type == PL_MSG_REDUCE)
        pl_rlearn_mean(l, &msg.u.reduce);
    else if (msg.type == PL_MSG_GIVE)
        pl_rlearn_give(l, &msg.u.give);
    else if (msg.type == PL_MSG_STATE)
        pl_rlearn_state(l, &msg.u.state);
    else if (msg.type == PL_MSG_END)
        ended(l, &msg.u.end);
}

/* ---- the connection ---- */

static void on_opened(void *user, struct pl_conn *conn, const struct pl_peer *peer)
{
    struct pl_reduce_learner *l = user;
    (void)conn;
    (void)peer;
    if (l->load.spoilt) { /* half a state is none */
        pl_rtrainer_reset(&l->thread);
        pl_rlearn_begin(l, 0);
        l->load.spoilt = false;
    }
    struct pl_msg msg = {.type = PL_MSG_ENTER,
                         .u.enter = {.run_id = l->kit.settings.run_id,
                                     .settings_digest = l->kit.settings_digest,
                                     .round = l->x.round,
                                     .flags = l->settled ? 0 : 1}};
    l->up = true;
    (void)pl_rlearn_send(l, &msg);
}

static void on_redial(uv_timer_t *timer);

static void gone(struct pl_reduce_learner *l)
{
    l->conn = NULL;
    l->up = l->placed = false;
    l->load.wanted = l->load.active = l->give.active = false;
    l->x.sent = 0;
    if (l->over)
        return;
    (void)uv_timer_start(&l->redial, on_redial, l->redial_ms, 0);
    l->redial_ms = pl_min64(2 * l->redial_ms, REDIAL_MAX_MS);
}

static void on_closed(void *user, struct pl_conn *conn, const struct pl_error *why)
{
    struct pl_reduce_learner *l = user;
    (void)conn;
    if (strcmp(why->text, l->last_trouble) != 0) {
        (void)pl_fmt(l->last_trouble, sizeof l->last_trouble, "%s", why->text);
        pl_rlearn_log(l, "the syncer is out of reach: %s (everybody waits)", why->text);
    }
    gone(l);
}

static void on_bad(void *user, struct pl_conn *conn, const struct pl_error *err)
{
    struct pl_reduce_learner *l = user;
    (void)conn;
    pl_rlearn_log(l, "the connection is closed: %s", err->text);
    pl_conn_close(l->conn, 0);
    gone(l);
}

static void on_drained(void *user, struct pl_conn *conn)
{
    (void)conn;
    pl_rlearn_pump(user);
}

static const struct pl_conn_ops conn_ops = {on_opened, on_frame, on_bad, on_drained, on_closed};

static void dial(struct pl_reduce_learner *l)
{
    l->conn = pl_dial(&l->net, l->kit.address, 0, &conn_ops, l);
    if (l->conn == NULL)
        gone(l);
    else if (l->bucket.bytes_per_s > 0)
        pl_conn_set_bucket(l->conn, &l->bucket);
}

static void on_redial(uv_timer_t *timer)
{
    dial(timer->data);
}

/* ---- the end ---- */

static void release(struct pl_reduce_learner *l)
{
    struct pl_alloc alloc = l->alloc;
    if (l->has_thread)
        pl_rtrainer_release(&l->thread);
    pl_rlearn_values_free(l);
    pl_reduce_kit_release(&l->kit);
    pl_alloc_free(&alloc, l, sizeof *l);
}

static void tell_done(struct pl_reduce_learner *l)
{
    if (l->told_done)
        return;
    l->told_done = true;
    if (l->o.done != NULL)
        l->o.done(l->o.user, &l->why);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct pl_reduce_learner *l = handle->data;
    if (--l->handles > 0)
        return;
    if (l->orphan)
        release(l);
    else
        tell_done(l);
}

static void close_handles(struct pl_reduce_learner *l)
{
    uv_handle_t *all[] = {(uv_handle_t *)&l->bell, (uv_handle_t *)&l->tick, (uv_handle_t *)&l->redial};
    l->handles = sizeof all / sizeof all[0];
    for (uint32_t i = 0; i < sizeof all / sizeof all[0]; i++)
        uv_close(all[i], on_handle_closed);
}

/* What is at the beginning of the round is worth keeping where nobody else may have it, or the run ended early. */
static void save_at_end(struct pl_reduce_learner *l)
{
    bool good = l->why.status == PELAGO_OK || l->quitting;
    struct pl_error err;
    if (!l->settled || !good || l->rank != 0 || l->thread.round == 0 || l->thread.note.finished ||
        l->load.spoilt)
        return;
    if (pl_reduce_save(&l->kit, l->thread.round, l->thread.momentum, &err) != PELAGO_OK)
        pl_rlearn_log(l, "%s", err.text);
}

void pl_rlearn_wind_up(struct pl_reduce_learner *l)
{
    struct pl_rtrainer_note n;
    if (!l->over || l->finishing || l->jobs > 0)
        return;
    pl_rtrainer_note(&l->thread, &n);
    if (!n.ended)
        return; /* the bell follows */
    l->finishing = true;
    pl_rtrainer_join(&l->thread);
    save_at_end(l);
    close_handles(l);
}

static void say_goodbye(struct pl_reduce_learner *l, enum pelago_status status, const char *text)
{
    bool ours = status != PELAGO_OK && status != PELAGO_DENIED && status != PELAGO_CORRUPT;
    char plain[PL_TEXT_MAX + 1];
    pl_reduce_text(text, plain);
    struct pl_msg msg = {.type = PL_MSG_END,
                         .u.end = {.code = ours ? PL_REASON_BAD_CONTENT : PL_REASON_LEAVING,
                                   .text = {(const uint8_t *)plain, (uint32_t)strlen(plain)}}};
    (void)pl_rlearn_send(l, &msg);
    pl_conn_set_bucket(l->conn, NULL); /* what it still sends may outlive us */
    pl_conn_close(l->conn, FLUSH_NS);
    l->conn = NULL;
}

void pl_rlearn_over(struct pl_reduce_learner *l, enum pelago_status status, const char *text)
{
    if (l->over)
        return;
    l->over = true;
    (void)pl_fail(&l->why, status, "%s", text);
    (void)uv_timer_stop(&l->redial);
    if (l->conn != NULL)
        say_goodbye(l, status, l->why.text);
    l->up = l->placed = false;
    pl_rtrainer_stop(&l->thread);
}

void pl_reduce_learner_quit(struct pl_reduce_learner *l)
{
    l->quitting = true;
    pl_rlearn_over(l, PELAGO_OK, "the learner was asked to leave");
}

/* ---- start ---- */

static void ring(void *user)
{
    struct pl_reduce_learner *l = user;
    (void)uv_async_send(&l->bell);
}

/* From the thread: a checkpoint of rank 0 now and then, for the case that everybody is lost, and at the end. */
static bool boundary(void *user, uint64_t rounds, struct pl_error *err)
{
    struct pl_reduce_learner *l = user;
    uint64_t every = l->o.checkpoint_ns > 0 ? l->o.checkpoint_ns : CHECKPOINT_NS;
    bool last = rounds == l->kit.plan.rounds;
    if (atomic_load(&l->thread.rank) != 0 || (!last && pl_clock_ns() - l->saved_ns < every))
        return true;
    struct pl_error why;
    if (pl_reduce_save(&l->kit, rounds, l->thread.momentum, &why) == PELAGO_OK)
        l->saved_ns = pl_clock_ns();
    else if (last)
        return pl_fail(err, why.status, "%s", why.text) == PELAGO_OK;
    return true;
}

static enum pelago_status prepare_thread(struct pl_reduce_learner *l, struct pl_error *err)
{
    struct pl_rtrainer_options o = {.alloc = &l->alloc,
                                    .plan = &l->kit.plan,
                                    .trainer = l->kit.trainer,
                                    .source = pl_batches_sequences(&l->kit.batches),
                                    .outer = l->kit.settings.outer,
                                    .pace_ns = l->o.pace_ns,
                                    .speed = l->o.speed,
                                    .boundary = boundary,
                                    .bell = ring,
                                    .user = l};
    uint64_t round = 0;
    PL_TRY(pl_rtrainer_init(&l->thread, &o, err));
    l->has_thread = true;
    enum pelago_status st = pl_reduce_load(&l->kit, l->thread.momentum, &round, err);
    if (st != PELAGO_OK && st != PELAGO_NOTFOUND)
        return st;
    pl_rtrainer_settle(&l->thread, round);
    pl_rlearn_begin(l, round);
    if (round > 0)
        pl_rlearn_log(l, "the folder has a checkpoint of round %lu", round);
    return PELAGO_OK;
}

static void open_handles(struct pl_reduce_learner *l)
{
    (void)uv_async_init(l->o.loop, &l->bell, on_bell);
    (void)uv_timer_init(l->o.loop, &l->tick);
    (void)uv_timer_init(l->o.loop, &l->redial);
    l->bell.data = l->tick.data = l->redial.data = l;
    (void)uv_timer_start(&l->tick, on_tick, TICK_MS, TICK_MS);
}

static enum pelago_status start(struct pl_reduce_learner *l, struct pl_error *err)
{
    PL_TRY(pl_reduce_join(&l->kit, &l->o, err));
    PL_TRY(pl_rlearn_values_init(l, err));
    pl_work_queue_init(&l->queue, l->o.loop);
    l->redial_ms = REDIAL_MS;
    l->saved_ns = pl_clock_ns();
    l->bucket = (struct pl_bucket){.bytes_per_s = l->o.up_bytes_per_s};
    l->net =
        (struct pl_net_options){.loop = l->o.loop,
                                .alloc = l->o.alloc,
                                .own = &l->kit.own,
                                .streams = l->o.streams == 0 ? PL_CONN_STREAMS_AUTO : (uint8_t)l->o.streams,
                                .frame_max = PL_MSG_STATE_BYTES_MAX};
    return prepare_thread(l, err);
}

enum pelago_status pl_reduce_learner_start(struct pl_reduce_learner **out,
                                           const struct pl_learner_host_options *o, struct pl_error *err)
{
    *out = NULL;
    struct pl_reduce_learner *l = pl_alloc_zero(o->alloc, 1, sizeof *l);
    if (l == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for a learner");
    l->o = *o;
    l->alloc = *o->alloc;
    enum pelago_status st = start(l, err);
    if (st != PELAGO_OK) {
        release(l);
        return st;
    }
    open_handles(l); /* the thread rings the bell */
    if (!pl_rtrainer_start(&l->thread)) {
        l->orphan = true; /* the loop closes the handles, then the memory goes */
        close_handles(l);
        return pl_fail(err, PELAGO_NOMEM, "the system gives no thread for the trainer");
    }
    *out = l;
    dial(l);
    return PELAGO_OK;
}

void pl_reduce_learner_free(struct pl_reduce_learner *l)
{
    if (l == NULL)
        return;
    pl_assert(l->told_done && l->handles == 0);
    release(l);
}

void pl_reduce_learner_view(struct pl_reduce_learner *l, struct pl_learner_host_view *out)
{
    const struct pl_account *a = &l->thread.blocked;
    struct pl_rtrainer_note n;
    pl_rtrainer_note(&l->thread, &n);
    *out = (struct pl_learner_host_view){
        .identity = l->kit.own.identity,
        .steps = n.steps,
        .tokens = n.tokens,
        .loss = n.loss,
        .step_ns = l->step_ns.mean,
        .steps_timed = atomic_load_explicit(&a->steps, memory_order_relaxed),
        .blocked_ns = atomic_load_explicit(&a->sum_ns, memory_order_relaxed),
        .blocked_max_ns = atomic_load_explicit(&a->max_ns, memory_order_relaxed),
        .blocked_p999_ns = pl_account_quantile(a, 999000),
        .blocked_above_1ms = pl_account_above(a, PL_MS),
        .trained_ns = atomic_load_explicit(&l->thread.trained_ns, memory_order_relaxed),
        .bytes_up = l->bytes_up,
        .bytes_down = l->bytes_down,
        .live = l->placed,
    };
}
