/* host/reduce_host.c - start and stop, connections, the door. See reduce_host.h. */
#include "host/reduce_host.h"

#include "base/check.h"
#include "base/fmt.h"
#include "host/reduce_host_int.h"
#include "host/serve.h"
#include "os/clock.h"

#include <stdarg.h>
#include <string.h>

enum {
    SWEEP_MS = 1000,
    LINE_BYTES = 256,
    CONNS_PER_LEARNER = 4,
    CONNS_EXTRA = 64,
    STRANGER_LINES = 20, /* a second */
    QUESTIONS_MAX = 20,  /* on one connection, a second */
};
#define SILENT_NS                                                                                            \
    (120 * PL_SEC) /* learners say something every second, but a bucket may be before it on a slow line */
#define FLUSH_NS (500 * PL_MS)

static const char complete_name[] = "complete";

void pl_rhost_log(struct pl_reduce_host *h, const char *format, ...)
{
    char line[LINE_BYTES];
    va_list args;
    if (h->o.log == NULL)
        return;
    va_start(args, format);
    (void)pl_vfmt(line, sizeof line, format, args);
    va_end(args);
    h->o.log(h->o.user, line);
}

/* ---- connections ---- */

/* Its connection is closed or gone. */
static void drop(struct pl_reduce_guest *g)
{
    struct pl_reduce_host *h = g->h;
    if (g->at_door)
        pl_door_keeper_forget(h->door, g);
    if (g->prev != NULL)
        g->prev->next = g->next;
    else
        h->guests = g->next;
    if (g->next != NULL)
        g->next->prev = g->prev;
    h->guest_count--;
    pl_alloc_free(&h->alloc, g->tickets, pl_rhost_ticket_max(h) * sizeof *g->tickets);
    pl_alloc_free(&h->alloc, g, sizeof *g);
}

static void leave(struct pl_reduce_guest *g, uint64_t flush_ns)
{
    if (g->entered)
        pl_rhost_left(g);
    if (g->conn != NULL)
        pl_conn_close(g->conn, flush_ns);
    drop(g);
}

bool pl_rguest_send(struct pl_reduce_guest *g, const struct pl_msg *msg)
{
    uint64_t bytes = pl_frame_bytes(msg);
    struct pl_seat *seat = g->entered ? pl_rhost_seat(g->h, g->peer.identity) : NULL;
    g->h->bytes_out += bytes;
    if (seat != NULL)
        seat->bytes_out += bytes;
    return pl_conn_send(g->conn, msg);
}

static void say_closed(struct pl_reduce_guest *g, const char *text)
{
    struct pl_reduce_host *h = g->h;
    if (!pl_rate_ok(&h->strangers, pl_clock_ns(), STRANGER_LINES))
        return;
    uint32_t more = pl_rate_dropped(&h->strangers);
    if (more > 0)
        pl_rhost_log(h, "closed %u more before this", more);
    pl_rhost_log(h, "closed %s: %s", g->peer.address, text);
}

void pl_rguest_dismiss(struct pl_reduce_guest *g, enum pl_reason reason, const char *text)
{
    char plain[PL_TEXT_MAX + 1];
    pl_reduce_text(text, plain);
    struct pl_msg msg = {
        .type = PL_MSG_END,
        .u.end = {.code = reason, .text = {(const uint8_t *)plain, (uint32_t)strlen(plain)}}};
    if (reason != PL_REASON_DONE && reason != PL_REASON_LEAVING)
        say_closed(g, plain);
    (void)pl_rguest_send(g, &msg);
    leave(g, FLUSH_NS);
}

void pl_rhost_fail(struct pl_reduce_host *h, const struct pl_error *why)
{
    if (h->ended)
        return;
    h->ended = true;
    for (struct pl_reduce_guest *g = h->guests, *next; g != NULL; g = next) {
        next = g->next;
        if (g->entered)
            pl_rguest_dismiss(g, PL_REASON_BAD_CONTENT, why->text);
    }
    h->o.failed(h->o.user, why);
}

/* A learner that cannot go on takes the run with it: that is what everybody waiting for everybody means. */
static void end_from(struct pl_reduce_guest *g, const struct pl_msg_end *m)
{
    char text[PL_TEXT_MAX + 1] = "";
    struct pl_reduce_host *h = g->h;
    struct pl_error err;
    uint64_t identity = g->peer.identity;
    bool over = g->entered && m->code == PL_REASON_BAD_CONTENT;
    if (m->text.len > 0)
        memcpy(text, m->text.data, m->text.len);
    g->leaves = m->code == PL_REASON_LEAVING;
    leave(g, 0);
    if (!over)
        return;
    (void)pl_fail(&err, PELAGO_INVALID, "learner %lu cannot go on: %s", identity, text);
    pl_rhost_fail(h, &err);
}

static void door(struct pl_reduce_guest *g, const struct pl_msg *msg)
{
    g->at_door = true;
    if (!pl_rate_ok(&g->questions, g->heard_ns, QUESTIONS_MAX))
        pl_rguest_dismiss(g, PL_REASON_DENIED, "too many questions in a second; ask more slowly");
    else if (!pl_door_keeper_answer(g->h->door, g->conn, &g->peer, g, msg, pl_clock_ns()))
        leave(g, FLUSH_NS);
}

static void handle(struct pl_reduce_guest *g, const struct pl_msg *msg)
{
    if (msg->type == PL_MSG_ENROL || msg->type == PL_MSG_ASK)
        door(g, msg);
    else if (msg->type == PL_MSG_END)
        end_from(g, &msg->u.end);
    else if (msg->type == PL_MSG_ENTER && !g->entered)
        pl_rhost_enter(g, &msg->u.enter);
    else if (msg->type == PL_MSG_ENTER || !g->entered)
        pl_rguest_dismiss(g, PL_REASON_WRONG_STATE, "ENTER is the first message, and comes once");
    else if (msg->type == PL_MSG_REDUCE)
        pl_rhost_reduce(g, &msg->u.reduce);
    else if (msg->type == PL_MSG_GIVE)
        pl_rhost_give(g, &msg->u.give);
    else if (msg->type == PL_MSG_STATE)
        pl_rhost_state(g, msg);
    else if (msg->type == PL_MSG_TALLY)
        pl_rhost_tally(g, &msg->u.tally);
}

static void on_frame(void *user, struct pl_conn *conn, const struct pl_frame *frame)
{
    struct pl_reduce_guest *g = user;
    struct pl_msg msg;
    struct pl_error err;
    (void)conn;
    struct pl_seat *seat = g->entered ? pl_rhost_seat(g->h, g->peer.identity) : NULL;
    g->heard_ns = pl_clock_ns();
    g->h->bytes_in += frame->total;
    if (seat != NULL)
        seat->bytes_in += frame->total;
    enum pl_channel channel = g->at_door   ? PL_CHANNEL_DOOR
                              : g->entered ? PL_CHANNEL_LOCKSTEP
                                           : (enum pl_channel)(PL_CHANNEL_DOOR | PL_CHANNEL_LOCKSTEP);
    if (g->peer.expired && frame->type != PL_MSG_ENROL)
        pl_rguest_dismiss(g, PL_REASON_LEAVING, "the certificate has expired: renew it and come again");
    else if (!pl_msg_allowed(frame->type, channel, PL_SENDER_LEARNER))
        pl_rguest_dismiss(g, PL_REASON_WRONG_STATE,
                          "the message does not belong here: is this learner of another algorithm?");
    else if (pl_msg_decode(frame->type, frame->payload, frame->payload_len, &msg, &err) != PELAGO_OK)
        pl_rguest_dismiss(g, PL_REASON_BAD_MESSAGE, err.text);
    else
        handle(g, &msg);
}

static void on_bad(void *user, struct pl_conn *conn, const struct pl_error *err)
{
    (void)conn;
    pl_rguest_dismiss(user, PL_REASON_BAD_FRAME, err->text);
}

static void on_drained(void *user, struct pl_conn *conn)
{
    struct pl_reduce_guest *g = user;
    (void)conn;
    if (!g->entered)
        return;
    pl_rhost_flow(g);
    pl_rguest_pump(g);
}

static void on_closed(void *user, struct pl_conn *conn, const struct pl_error *why)
{
    struct pl_reduce_guest *g = user;
    (void)conn;
    g->conn = NULL;
    if (g->entered)
        pl_rhost_log(g->h, "the connection of learner %lu ended: %s", g->peer.identity, why->text);
    leave(g, 0);
}

static void on_opened(void *user, struct pl_conn *conn, const struct pl_peer *peer);
static const struct pl_conn_ops guest_ops = {on_opened, on_frame, on_bad, on_drained, on_closed};

static void on_opened(void *user, struct pl_conn *conn, const struct pl_peer *peer)
{
    struct pl_reduce_host *h = user;
    struct pl_reduce_guest *g = pl_conn_is_too_many(conn) ? NULL : pl_alloc_zero(&h->alloc, 1, sizeof *g);
    if (g == NULL) {
        pl_conn_close(conn, 0);
        return;
    }
    *g = (struct pl_reduce_guest){
        .next = h->guests, .h = h, .conn = conn, .peer = *peer, .heard_ns = pl_clock_ns()};
    if (h->guests != NULL)
        h->guests->prev = g;
    h->guests = g;
    h->guest_count++;
    pl_conn_set_user(conn, g);
}

void pl_rhost_complete(struct pl_reduce_host *h, const char *text)
{
    struct pl_error err;
    h->finish_due = false;
    h->done = h->ended = true;
    pl_rhost_log(h, "%s", text);
    if (pl_home_write(h->dir, complete_name, (struct pl_bytes){text, strlen(text)}, false, &err) != PELAGO_OK)
        pl_rhost_log(h, "%s", err.text);
    for (struct pl_reduce_guest *g = h->guests, *next; g != NULL; g = next) {
        next = g->next;
        if (g->entered)
            pl_rguest_dismiss(g, PL_REASON_DONE, text);
    }
    if (h->o.finished != NULL)
        h->o.finished(h->o.user);
}

static void on_sweep(uv_timer_t *timer)
{
    struct pl_reduce_host *h = timer->data;
    uint64_t now = pl_clock_ns();
    if (h->finish_due)
        pl_rhost_complete(h, h->done ? "the run is complete" : "an operator ended the run");
    for (struct pl_reduce_guest *g = h->guests, *next; g != NULL; g = next) {
        next = g->next;
        if (!g->held && now - g->heard_ns > SILENT_NS)
            leave(g, 0);
    }
}

/* ---- start ---- */

static enum pelago_status door_status(void *user, bool all, struct pl_buf *out)
{
    return pl_reduce_host_status(user, all, out);
}

/* Not from inside the door's answer: whoever hears of the end may close everything. */
static void door_finish(void *user)
{
    struct pl_reduce_host *h = user;
    h->finish_due = !h->ended;
    if (h->finish_due)
        (void)uv_timer_start(&h->sweep, on_sweep, 0, SWEEP_MS);
}

static void door_answered(void *user, void *who, bool good)
{
    (void)user;
    if (!good)
        leave(who, FLUSH_NS);
}

static void door_idle(void *user)
{
    pl_rhost_stop_check(user);
}

static void door_log(void *user, const char *line)
{
    pl_rhost_log(user, "%s", line);
}

static enum pelago_status open_door(struct pl_reduce_host *h, struct pl_error *err)
{
    struct pl_credentials ca;
    PL_TRY(pl_home_load_credentials(h->dir, "authority", &h->alloc, &ca, err));
    PL_TRY(pl_posix_dir_open(&h->door_dir, &h->alloc, h->o.folder, PL_POSIX_DIR_EXISTING, err));
    struct pl_door_options o = {.loop = h->o.loop,
                                .alloc = &h->alloc,
                                .dir = h->dir,
                                .list_dir = h->door_dir,
                                .ca = &ca,
                                .address = h->address,
                                .shards = 1,
                                .host = {.status = door_status,
                                         .finish = door_finish,
                                         .answered = door_answered,
                                         .idle = door_idle,
                                         .log = door_log,
                                         .user = h}};
    return pl_door_keeper_new(&h->door, &o, err);
}

static enum pelago_status open_net(struct pl_reduce_host *h, struct pl_error *err)
{
    struct pl_error few;
    if (pl_serve_files(CONNS_PER_LEARNER * h->plan.learners + CONNS_EXTRA, &few) != PELAGO_OK)
        pl_rhost_log(h, "syncer.files %s", few.text);
    /* Connections flush and close after we are gone: their memory is the caller's allocator's. */
    h->net = (struct pl_net_options){.loop = h->o.loop,
                                     .alloc = h->o.alloc,
                                     .own = &h->own,
                                     .frame_max = PL_MSG_ENROL_BYTES_MAX,
                                     .log = h->o.log,
                                     .log_user = h->o.user};
    PL_TRY(pl_listen(&h->listener, &h->net, h->o.listen, &guest_ops, h, err));
    PL_TRY(pl_serve_address(h->o.advertise, h->o.listen, pl_listener_port(h->listener), h->address, err));
    PL_TRY(pl_serve_bound(h->o.listen, pl_listener_port(h->listener), h->bound, err));
    PL_TRY(open_door(h, err));
    char line[PL_ADDRESS_MAX + 1];
    size_t len = pl_fmt(line, sizeof line, "%s\n", h->address);
    return pl_home_write(h->dir, "address", (struct pl_bytes){line, len}, false, err);
}

/* A run that was complete before this process stays so: whoever comes is told. */
static bool is_complete(struct pl_reduce_host *h)
{
    struct pl_buf text;
    pl_buf_init(&text, &h->alloc, LINE_BYTES);
    enum pelago_status st = pl_home_read(h->dir, complete_name, &text, NULL);
    pl_buf_release(&text);
    return st == PELAGO_OK;
}

static enum pelago_status start(struct pl_reduce_host *h, struct pl_error *err)
{
    PL_TRY(pl_posix_dir_open(&h->dir, &h->alloc, h->o.folder, PL_POSIX_DIR_EXISTING, err));
    PL_TRY(pl_posix_dir_lock(h->dir, h->o.folder, "--dir", err));
    PL_TRY(pl_home_load_settings(h->dir, &h->alloc, &h->settings, &h->settings_digest, err));
    PL_TRY(pl_home_load_credentials(h->dir, "credentials", &h->alloc, &h->own, err));
    PL_TRY(pl_reduce_plan_init(&h->plan, &h->alloc, &h->settings, err));
    if (h->plan.learners > PL_REDUCE_LEARNERS_MAX)
        return pl_fail(err, PELAGO_LIMIT, "%s takes at most %u learners, not %u",
                       pl_algorithm_name(h->plan.algorithm), (unsigned)PL_REDUCE_LEARNERS_MAX,
                       h->plan.learners);
    h->seats = pl_alloc_zero(&h->alloc, h->plan.learners, sizeof *h->seats);
    if (h->seats == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for %u learners", h->plan.learners);
    PL_TRY(pl_rhost_rounds_init(h, err));
    PL_TRY(open_net(h, err));
    (void)uv_timer_init(h->o.loop, &h->sweep);
    h->sweep.data = h;
    h->sweeping = true;
    h->done = h->ended = h->finish_due = is_complete(h);
    (void)uv_timer_start(&h->sweep, on_sweep, h->done ? 0 : SWEEP_MS, SWEEP_MS);
    pl_rhost_log(h, "%s for %u learners at %s: %lu rounds of %u buckets, %s",
                 pl_algorithm_name(h->plan.algorithm), h->plan.learners, h->address, h->plan.rounds,
                 h->plan.buckets, pl_codec_name(h->plan.codec));
    return PELAGO_OK;
}

static void release(struct pl_reduce_host *h)
{
    struct pl_alloc alloc = h->alloc;
    pl_door_keeper_free(h->door);
    pl_rhost_rounds_free(h);
    pl_alloc_free(&alloc, h->seats, h->plan.learners * sizeof *h->seats);
    pl_posix_dir_close(h->door_dir);
    pl_posix_dir_close(h->dir);
    pl_alloc_free(&alloc, h, sizeof *h);
}

enum pelago_status pl_reduce_host_start(struct pl_reduce_host **out, const struct pl_syncer_host_options *o,
                                        struct pl_error *err)
{
    *out = NULL;
    struct pl_reduce_host *h = pl_alloc_zero(o->alloc, 1, sizeof *h);
    if (h == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for a syncer");
    pl_assert(o->failed != NULL);
    h->o = *o;
    h->alloc = *o->alloc;
    h->start_ns = pl_clock_ns();
    enum pelago_status st = start(h, err);
    if (st != PELAGO_OK) {
        pl_listener_close(h->listener);
        release(h);
        return st;
    }
    *out = h;
    return PELAGO_OK;
}

/* ---- stop ---- */

static void on_sweep_closed(uv_handle_t *handle)
{
    struct pl_reduce_host *h = handle->data;
    h->sweeping = false;
    pl_rhost_stop_check(h);
}

void pl_rhost_stop_check(struct pl_reduce_host *h)
{
    if (!h->stopping || h->sweeping || h->jobs > 0 || pl_door_keeper_busy(h->door))
        return;
    void (*stopped)(void *) = h->stopped;
    void *user = h->stopped_user;
    release(h);
    if (stopped != NULL)
        stopped(user);
}

void pl_reduce_host_stop(struct pl_reduce_host *h, void (*done)(void *user), void *user)
{
    pl_assert(!h->stopping);
    h->stopping = h->ended = true;
    h->stopped = done;
    h->stopped_user = user;
    pl_listener_close(h->listener);
    while (h->guests != NULL) {
        if (h->guests->entered)
            pl_rguest_dismiss(h->guests, PL_REASON_LEAVING, "the syncer is shutting down");
        else
            leave(h->guests, FLUSH_NS);
    }
    uv_close((uv_handle_t *)&h->sweep, on_sweep_closed);
}

/* ---- looking ---- */

const struct pl_settings *pl_reduce_host_settings(const struct pl_reduce_host *h)
{
    return &h->settings;
}

uint32_t pl_reduce_host_connected(const struct pl_reduce_host *h)
{
    return pl_rhost_present(h);
}

const char *pl_reduce_host_address(const struct pl_reduce_host *h)
{
    return h->address;
}

const char *pl_reduce_host_bound(const struct pl_reduce_host *h)
{
    return h->bound;
}

enum pelago_status pl_reduce_host_invite(struct pl_reduce_host *h, enum pl_role role, uint64_t uses,
                                         uint64_t seconds, char out[static PL_TOKEN_TEXT_MAX],
                                         struct pl_error *err)
{
    return pl_door_keeper_invite(h->door, role, uses, seconds, out, err);
}
