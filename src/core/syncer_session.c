/* core/syncer_session.c - who is here: connections, greetings, incarnations, leases, and losing a learner.
 *
 * An identity (from the certificate) has one slot. A process of that identity has an incarnation, given by the home
 * shard; a higher one takes over at once and the older is fenced off for good (I18). A slot survives its learner's
 * absence, because it holds last_merged per fragment: without it a returning learner would lose its local work.
 *
 *   connection:  NEW --HELLO--> CONTROL        NEW --ATTACH--> BULK
 *   learner:     FREE -> AWAY -> GREETED (WELCOME sent) -> LIVE (JOIN came) -> AWAY
 */
#include "core/syncer_int.h"

#include "base/check.h"
#include "base/fmt.h"

#define GREETING_NS (5 * PL_SEC) /* a peer that says nothing for so long is dropped */
#define LEASE_NS_MIN (2 * PL_SEC)
#define LEASE_NS_MAX (600 * PL_SEC)
enum { LEASE_GAPS = 4, UNITS_LEASES = 8 };

/* ---- closing ---- */

static void vclose(struct pl_syncer *s, uint32_t conn, enum pl_reason reason, struct pl_sync_fxs *out,
                   const char *format, va_list args)
{
    struct pl_sync_effect *fx = pl_sync_emit(out, PL_SYNC_FX_CLOSE);
    fx->u.close.conn = conn;
    fx->u.close.reason = reason;
    pl_vfmt(fx->u.close.text, sizeof fx->u.close.text, format, args);
    s->conns[conn].kind = CONN_UNUSED;
    pl_heap_remove(&s->timers, pl_sync_greet_timer(s, conn));
}

void pl_sync_close(struct pl_syncer *s, uint32_t conn, enum pl_reason reason, struct pl_sync_fxs *out,
                   const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vclose(s, conn, reason, out, format, args);
    va_end(args);
}

static void refuse(struct pl_syncer *s, uint32_t conn, enum pl_reason reason, struct pl_sync_fxs *out,
                   const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vclose(s, conn, reason, out, format, args);
    va_end(args);
    out->fx[out->count - 1].u.close.refuse = true;
}

/* ---- leases, from the times between two messages ---- */

static uint64_t lease_ns(const struct pl_syncer *s, const struct learner *l)
{
    uint64_t gap = pl_max64(pl_sync_heartbeat(s), l->gap.mean + 4 * l->gap.dev);
    return pl_clamp64(LEASE_GAPS * gap, LEASE_NS_MIN, LEASE_NS_MAX);
}

static void heard(struct pl_syncer *s, uint32_t m)
{
    struct learner *l = &s->learners[m];
    if (l->state == LEARNER_LIVE)
        pl_average_add(&l->gap, s->now - l->heard_ns);
    l->heard_ns = s->now;
    pl_heap_set(&s->timers, pl_sync_lease_timer(s, m), pl_add_sat(s->now, lease_ns(s, l)));
}

/* ---- losing a learner ---- */

static void lose_bulk(struct pl_syncer *s, uint32_t m)
{
    s->learners[m].bulk = PL_NONE32;
    pl_sync_stop_sending(s, m);
}

/* The learner is away; nobody waits for it any longer. Its slot, partial pushes and units stay for a while. */
static void lose(struct pl_syncer *s, uint32_t m, enum pl_reason reason, struct pl_sync_fxs *out)
{
    struct learner *l = &s->learners[m];
    bool was_live = l->state == LEARNER_LIVE;
    l->control = PL_NONE32;
    l->state = LEARNER_AWAY;
    l->wants = false;
    lose_bulk(s, m);
    pl_heap_remove(&s->pulls, m);
    pl_heap_set(&s->timers, pl_sync_lease_timer(s, m), pl_add_sat(s->now, UNITS_LEASES * lease_ns(s, l)));
    if (!was_live)
        return;
    s->live--;
    s->reporters -= l->reported ? 1 : 0;
    s->finishing -= l->finishing ? 1 : 0;
    l->reported = l->finishing = false;
    /* Who breaks the protocol is not expected back; who says goodbye is not either, see goodbye(). */
    bool silent =
        reason == PL_REASON_LEAVING || reason == PL_REASON_LEASE_EXPIRED || reason == PL_REASON_REPLACED;
    l->control_lost_ns = silent ? s->now : 0;
    TRACE(out, LOST, l->identity, reason);
    pl_sync_uncount(s, m);
}

static void vdrop(struct pl_syncer *s, uint32_t m, enum pl_reason reason, struct pl_sync_fxs *out,
                  const char *format, va_list args)
{
    struct learner *l = &s->learners[m];
    char text[PL_TEXT_MAX + 1];
    pl_vfmt(text, sizeof text, format, args);
    if (l->bulk != PL_NONE32)
        pl_sync_close(s, l->bulk, reason, out, "%s", text);
    if (l->control != PL_NONE32)
        pl_sync_close(s, l->control, reason, out, "%s", text);
    lose(s, m, reason, out);
}

void pl_sync_drop_learner(struct pl_syncer *s, uint32_t m, enum pl_reason reason, struct pl_sync_fxs *out,
                          const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vdrop(s, m, reason, out, format, args);
    va_end(args);
}

void pl_sync_lease_expired(struct pl_syncer *s, uint32_t m, struct pl_sync_fxs *out)
{
    struct learner *l = &s->learners[m];
    if (l->state == LEARNER_AWAY) {
        pl_sync_units_back(s, m, out); /* gone for long: others may continue its units */
        return;
    }
    PL_MARK("syncer.lease_expired");
    pl_sync_drop_learner(s, m, PL_REASON_LEASE_EXPIRED, out, "nothing was heard for %lu ms",
                         (s->now - l->heard_ns) / PL_MS);
}

void pl_sync_greet_expired(struct pl_syncer *s, uint32_t conn, struct pl_sync_fxs *out)
{
    PL_MARK("syncer.no_hello");
    pl_sync_close(s, conn, PL_REASON_NO_HELLO, out, "no HELLO or ATTACH came within %lu ms",
                  GREETING_NS / PL_MS);
}

void pl_sync_opened(struct pl_syncer *s, uint32_t conn, uint64_t identity)
{
    pl_assert(conn < s->conns_max && s->conns[conn].kind == CONN_UNUSED && identity != 0 && s->listening);
    s->conns[conn] = (struct conn){CONN_NEW, PL_NONE32, identity};
    pl_heap_set(&s->timers, pl_sync_greet_timer(s, conn), s->now + GREETING_NS);
}

void pl_sync_closed(struct pl_syncer *s, uint32_t conn, struct pl_sync_fxs *out)
{
    pl_assert(conn < s->conns_max && s->conns[conn].kind != CONN_UNUSED);
    struct conn c = s->conns[conn];
    s->conns[conn].kind = CONN_UNUSED;
    pl_heap_remove(&s->timers, pl_sync_greet_timer(s, conn));
    if (c.kind == CONN_BULK) {
        lose_bulk(s, c.learner);
    } else if (c.kind == CONN_CONTROL) {
        uint32_t bulk = s->learners[c.learner].bulk;
        if (bulk != PL_NONE32)
            pl_sync_close(s, bulk, PL_REASON_LEAVING, out, "the control connection is gone");
        lose(s, c.learner, PL_REASON_LEAVING, out);
    }
}

void pl_sync_bad_bytes(struct pl_syncer *s, uint32_t conn, const struct pl_error *error,
                       struct pl_sync_fxs *out)
{
    pl_assert(conn < s->conns_max && s->conns[conn].kind != CONN_UNUSED);
    if (s->conns[conn].kind == CONN_NEW)
        pl_sync_close(s, conn, PL_REASON_BAD_FRAME, out, "%s", error->text);
    else
        pl_sync_drop_learner(s, s->conns[conn].learner, PL_REASON_BAD_FRAME, out, "%s", error->text);
}

/* ---- HELLO ---- */

/* A new process of this identity: what the old one pushed and was not merged does not count any more. */
static void new_incarnation(struct pl_syncer *s, uint32_t m, uint64_t incarnation,
                            const struct pl_msg_hello *h, struct pl_sync_fxs *out)
{
    struct learner *l = &s->learners[m];
    if (l->incarnation != 0)
        TRACE(out, FENCE, l->identity, l->incarnation, incarnation);
    if (!pl_mutant(20))
        pl_sync_forget_pushes(s, m, out);
    l->past_tokens = learner_tokens(l);
    l->tokens = l->steps = 0;
    l->incarnation = incarnation;
    l->nonce = h->nonce;
    l->report_ns = l->told_ns = 0;
    l->unit = PL_NONE64;
    l->told_finish = false;
    l->gap = l->lead = l->step = (struct pl_average){0, 0};
    l->stride = 1;
    l->good_rounds = l->failed_trials = l->failed_stride = 0;
    l->probing = false;
}

/* 0 when the process is fenced off; the refusal is then on its way. */
static uint64_t incarnation_for(struct pl_syncer *s, uint32_t conn, uint32_t m, const struct pl_msg_hello *h,
                                struct pl_sync_fxs *out)
{
    const struct learner *l = &s->learners[m];
    if (h->incarnation == 0)
        return l->nonce == h->nonce && l->incarnation != 0 ? l->incarnation
                                                           : (s->epoch << 32) | ++s->incarnations;
    if (h->incarnation < l->incarnation && !pl_mutant(2)) {
        PL_MARK("syncer.fenced");
        refuse(s, conn, PL_REASON_FENCED, out, "HELLO.incarnation %lx is older than %lx of the same learner",
               h->incarnation, l->incarnation);
        return 0;
    }
    return h->incarnation;
}

static void replace_connections(struct pl_syncer *s, uint32_t m, bool same, struct pl_sync_fxs *out)
{
    struct learner *l = &s->learners[m];
    if (l->control == PL_NONE32)
        return;
    PL_MARK("syncer.replace");
    pl_sync_drop_learner(s, m, same ? PL_REASON_REPLACED : PL_REASON_FENCED, out, "%s",
                         pl_reason_text(same ? PL_REASON_REPLACED : PL_REASON_FENCED));
}

static void welcome(struct pl_syncer *s, uint32_t m, uint64_t manifest_digest, struct pl_sync_fxs *out)
{
    const struct learner *l = &s->learners[m];
    struct pl_msg msg = {.type = PL_MSG_WELCOME,
                         .u.welcome = {.run_id = s->manifest->run_id,
                                       .shard = s->shard,
                                       .incarnation = l->incarnation,
                                       .manifest_digest = s->manifest_digest,
                                       .clock_tokens = pl_sync_clock(s),
                                       .phase = (uint8_t)s->phase,
                                       .heartbeat_ns = pl_sync_heartbeat(s)}};
    pl_sync_send(out, l->control, &msg);
    if (manifest_digest != s->manifest_digest)
        pl_sync_send(out, l->control, &(struct pl_msg){.type = PL_MSG_MANIFEST, .u.manifest = *s->manifest});
}

/* What can be said before a slot is made: a refused HELLO leaves nothing behind. */
static bool hello_plausible(struct pl_syncer *s, uint32_t conn, const struct pl_msg_hello *h,
                            struct pl_sync_fxs *out)
{
    uint64_t most;
    if (h->run_id != 0 && h->run_id != s->manifest->run_id) {
        refuse(s, conn, PL_REASON_WRONG_RUN, out, "HELLO.run_id is %lx, this is run %lx", h->run_id,
               s->manifest->run_id);
        return false;
    }
    if (h->incarnation == 0 && !is_home(s)) {
        refuse(s, conn, PL_REASON_WRONG_STATE, out,
               "HELLO.incarnation is 0, shard 0 must be asked for one first");
        return false;
    }
    if (is_home(s) && h->incarnation > ((s->epoch << 32) | s->incarnations)) {
        refuse(s, conn, PL_REASON_BAD_MESSAGE, out, "HELLO.incarnation %lx was never given to anybody",
               h->incarnation);
        return false;
    }
    if (!pl_mul_overflow(h->steps, s->manifest->step_tokens_max, &most) && h->tokens <= most)
        return true;
    refuse(s, conn, PL_REASON_BAD_MESSAGE, out,
           "HELLO.tokens is %lu in %lu steps, at most %lu a step are allowed", h->tokens, h->steps,
           s->manifest->step_tokens_max);
    return false;
}

/* A process that was forgotten and calls again: its tokens are in the sum already. */
static void remember_tokens(struct pl_syncer *s, uint32_t m, uint64_t tokens)
{
    struct learner *l = &s->learners[m];
    if (!cell_of(s, m, 0)->stranger || l->tokens != 0)
        return;
    PL_MARK("syncer.remembered");
    l->tokens = pl_min64(tokens, s->forgotten_tokens);
    s->forgotten_tokens -= l->tokens;
}

/* Steps done while away, or before our own restart. When they were done is not known: they are in no rate. */
static void count_absence(struct pl_syncer *s, const struct learner *l, uint64_t tokens)
{
    uint64_t before = pl_sync_clock(s);
    if (l->doubted)
        return;
    s->clock_sum = pl_add_sat(s->clock_sum, pl_sub_sat(tokens, l->tokens));
    s->rate_tokens += pl_sync_clock(s) - before;
}

static void hello(struct pl_syncer *s, uint32_t conn, const struct pl_msg_hello *h, struct pl_sync_fxs *out)
{
    if (!hello_plausible(s, conn, h, out))
        return;
    uint32_t m = pl_sync_slot_for(s, s->conns[conn].identity, out);
    if (m == PL_NONE32) {
        PL_MARK("syncer.full");
        refuse(s, conn, PL_REASON_FULL, out, "%u learners are here, that is the limit",
               (unsigned)s->learners_max);
        return;
    }
    struct learner *l = &s->learners[m];
    uint64_t incarnation = incarnation_for(s, conn, m, h, out);
    if (incarnation == 0)
        return;
    replace_connections(s, m, incarnation == l->incarnation, out);
    if (incarnation != l->incarnation)
        new_incarnation(s, m, incarnation, h, out);
    if (h->incarnation != 0)
        remember_tokens(s, m, h->tokens);
    count_absence(s, l, h->tokens);
    l->tokens = pl_max64(l->tokens, h->tokens);
    l->steps = pl_max64(l->steps, h->steps);
    l->report_ns = 0;
    l->local_data = (h->flags & 1) != 0;
    l->finishing = (h->flags & 2) != 0;
    l->state = LEARNER_GREETED;
    l->control = conn;
    s->conns[conn].kind = CONN_CONTROL;
    s->conns[conn].learner = m;
    pl_heap_remove(&s->timers, pl_sync_greet_timer(s, conn));
    heard(s, m);
    welcome(s, m, h->manifest_digest, out);
}

/* ---- JOIN and ATTACH ---- */

static void join(struct pl_syncer *s, uint32_t m, const struct pl_msg_join *j, struct pl_sync_fxs *out)
{
    struct learner *l = &s->learners[m];
    if (j->have.count != s->fragment_count) {
        pl_sync_drop_learner(s, m, PL_REASON_BAD_MESSAGE, out,
                             "JOIN.have has %u entries, this shard has %u fragments", (unsigned)j->have.count,
                             (unsigned)s->fragment_count);
        return;
    }
    if (j->units.count > 0 && (!is_home(s) || l->local_data)) {
        pl_sync_drop_learner(s, m, PL_REASON_BAD_MESSAGE, out,
                             "JOIN.units has %u entries, none are expected here", (unsigned)j->units.count);
        return;
    }
    l->state = LEARNER_LIVE;
    pl_sync_await_no_more(s, l);
    s->live++;
    s->finishing += l->finishing ? 1 : 0;
    pl_sync_take_have(s, m, &j->have);
    pl_sync_recount(s, m, out);
    if (is_home(s))
        pl_sync_units_joined(s, m, &j->units, out);
    TRACE(out, JOIN, l->identity, l->incarnation, l->behind);
    pl_sync_tell_clock(s, m, out); /* before any value: whether its work is too old depends on it */
    if (l->steps > 0 && s->phase == PL_PHASE_RUNNING)
        pl_sync_schedule(s, m, s->tick);
    pl_sync_deliver_all(s, m, out);
    pl_sync_joined_late(s, m, out);
}

static void attached(struct pl_syncer *s, uint32_t m, struct pl_sync_fxs *out)
{
    uint32_t count = 0;
    for (uint32_t f = 0; f < s->fragment_count; f++) {
        const struct cell *c = cell_of(s, m, f);
        if (c->push == PUSH_NONE || c->push == PUSH_PULLED)
            continue; /* complete ones are listed too: they need not be sent again */
        PL_MARK("syncer.resume_push");
        s->fragments[f].held += pl_mutant(4) && c->push == PUSH_HELD ? 1 : 0;
        struct pl_item_partial item = {s->fragments[f].number, c->round, c->digest, c->bytes, c->mask};
        pl_item_partial_put(s->item_scratch, count++, &item);
    }
    struct pl_msg msg = {.type = PL_MSG_ATTACHED, .u.attached.partial = {s->item_scratch, count}};
    pl_sync_send(out, s->learners[m].bulk, &msg);
}

static void attach(struct pl_syncer *s, uint32_t conn, const struct pl_msg_attach *a, struct pl_sync_fxs *out)
{
    uint32_t at = pl_sync_place_of(s, s->conns[conn].identity);
    uint32_t m = at < s->known ? s->by_identity[at] : PL_NONE32;
    if (m == PL_NONE32 || s->learners[m].identity != s->conns[conn].identity ||
        s->learners[m].control == PL_NONE32) {
        pl_sync_close(s, conn, PL_REASON_WRONG_STATE, out,
                      "ATTACH came before HELLO on a control connection");
        return;
    }
    struct learner *l = &s->learners[m];
    if (a->incarnation != l->incarnation) {
        pl_sync_close(s, conn, PL_REASON_WRONG_STATE, out, "ATTACH.incarnation is %lx, %lx is expected",
                      a->incarnation, l->incarnation);
        return;
    }
    if (l->bulk != PL_NONE32) {
        PL_MARK("syncer.replace_bulk");
        pl_sync_close(s, l->bulk, PL_REASON_REPLACED, out, "%s", pl_reason_text(PL_REASON_REPLACED));
        lose_bulk(s, m);
    }
    l->bulk = conn;
    s->conns[conn].kind = CONN_BULK;
    s->conns[conn].learner = m;
    pl_heap_remove(&s->timers, pl_sync_greet_timer(s, conn));
    attached(s, m, out);
    pl_sync_resume_updates(s, m, &a->partial, out);
    pl_sync_deliver_all(s, m, out);
}

/* ---- messages by connection ---- */

bool pl_sync_owned(struct pl_syncer *s, uint32_t m, uint32_t number, const char *name, uint32_t *f,
                   struct pl_sync_fxs *out)
{
    if (number < s->manifest->fragments.count && s->local_of[number] != PL_NONE32) {
        *f = s->local_of[number];
        return true;
    }
    pl_sync_drop_learner(s, m, PL_REASON_BAD_MESSAGE, out, "%s.fragment is %u, which shard %u does not own",
                         name, (unsigned)number, (unsigned)s->shard);
    return false;
}

static void wrong_state(struct pl_syncer *s, uint32_t m, const struct pl_msg *msg, const char *expected,
                        struct pl_sync_fxs *out)
{
    pl_sync_drop_learner(s, m, PL_REASON_WRONG_STATE, out, "%s came, %s is expected on this connection now",
                         pl_msg_info(msg->type)->name, expected);
}

static void first_message(struct pl_syncer *s, uint32_t conn, const struct pl_msg *msg,
                          struct pl_sync_fxs *out)
{
    if (msg->type == PL_MSG_HELLO)
        hello(s, conn, &msg->u.hello, out);
    else if (msg->type == PL_MSG_ATTACH)
        attach(s, conn, &msg->u.attach, out);
    else
        pl_sync_close(s, conn, PL_REASON_WRONG_STATE, out,
                      "the first message is %s, HELLO or ATTACH is expected", pl_msg_info(msg->type)->name);
}

static void pong(uint32_t conn, const struct pl_msg_ping *p, struct pl_sync_fxs *out)
{
    pl_sync_send(out, conn, &(struct pl_msg){.type = PL_MSG_PONG, .u.pong.nonce = p->nonce});
}

/* The peer says goodbye: answer in kind, so that the host drops the connection and no CLOSED follows. */
static void goodbye(struct pl_syncer *s, uint32_t conn, uint32_t code, struct pl_sync_fxs *out)
{
    uint32_t m = s->conns[conn].learner;
    if (s->conns[conn].kind == CONN_CONTROL) {
        pl_sync_drop_learner(s, m, PL_REASON_LEAVING, out, "as the learner asked");
        if (code == PL_REASON_LEAVING)
            s->learners[m].control_lost_ns = 0;
        return;
    }
    pl_sync_close(s, conn, PL_REASON_LEAVING, out, "as the learner asked");
    lose_bulk(s, m);
}

/* Messages that any connection may carry. */
static bool common_message(struct pl_syncer *s, uint32_t conn, const struct pl_msg *msg,
                           struct pl_sync_fxs *out)
{
    if (msg->type == PL_MSG_PING)
        pong(conn, &msg->u.ping, out);
    else if (msg->type == PL_MSG_CLOSE)
        goodbye(s, conn, msg->u.close.code, out);
    else
        return msg->type == PL_MSG_PONG;
    return true;
}

static void live_message(struct pl_syncer *s, uint32_t m, const struct pl_msg *msg, struct pl_sync_fxs *out)
{
    switch (msg->type) {
    case PL_MSG_REPORT:
        pl_sync_report(s, m, &msg->u.report, out);
        break;
    case PL_MSG_SKIP:
        pl_sync_skip(s, m, &msg->u.skip, out);
        break;
    case PL_MSG_HAVE:
        pl_sync_have(s, m, &msg->u.got, out);
        break;
    case PL_MSG_FETCH:
        pl_sync_fetch(s, m, &msg->u.fetch, out);
        break;
    case PL_MSG_WANT:
        pl_sync_want(s, m, out);
        break;
    default:
        wrong_state(s, m, msg, "REPORT, SKIP, HAVE, FETCH or WANT", out);
    }
}

static void control_message(struct pl_syncer *s, uint32_t m, const struct pl_msg *msg,
                            struct pl_sync_fxs *out)
{
    if (s->learners[m].state == LEARNER_LIVE)
        live_message(s, m, msg, out);
    else if (msg->type == PL_MSG_JOIN)
        join(s, m, &msg->u.join, out);
    else
        wrong_state(s, m, msg, "JOIN", out);
}

/* On its own connection a push may overtake the JOIN before it; it is then as good as late, and ignored. */
static void bulk_message(struct pl_syncer *s, uint32_t m, const struct pl_msg *msg, struct pl_sync_fxs *out)
{
    if (msg->type != PL_MSG_PUSH && msg->type != PL_MSG_DATA)
        wrong_state(s, m, msg, "PUSH or DATA", out);
    else if (s->learners[m].state != LEARNER_LIVE)
        PL_MARK("syncer.push_before_join");
    else if (msg->type == PL_MSG_PUSH)
        pl_sync_push(s, m, &msg->u.push, out);
    else
        pl_sync_data(s, m, &msg->u.data, out);
}

void pl_sync_message(struct pl_syncer *s, uint32_t conn, const struct pl_msg *msg, struct pl_sync_fxs *out)
{
    pl_assert(conn < s->conns_max && s->conns[conn].kind != CONN_UNUSED);
    uint32_t m = s->conns[conn].learner;
    if (s->conns[conn].kind == CONN_NEW) {
        first_message(s, conn, msg, out);
        return;
    }
    heard(s, m);
    if (common_message(s, conn, msg, out))
        return;
    if (s->conns[conn].kind == CONN_CONTROL)
        control_message(s, m, msg, out);
    else
        bulk_message(s, m, msg, out);
}
