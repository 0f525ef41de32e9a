/* core/learner.c - the learner's entry: events are dispatched, steps counted, timers kept.
 *
 * Nothing here waits: a session that is down, a shard that is silent or an update that is late changes
 * what is sent, never whether the trainer goes on. See learner_int.h for the other files.
 */
#include "core/learner_int.h"

#include "base/num.h"

#include <string.h>

enum { GREETING_SECONDS = 10 }; /* for WELCOME to come */

size_t pl_learner_bytes(const struct pl_learn_options *o)
{
    pl_assert(o->fragments_max >= 1);
    pl_assert(o->fragments_max <= PL_FRAGMENTS_MAX);
    return sizeof(struct pl_learner) + o->fragments_max * sizeof(struct pl_learn_fragment) +
           pl_learner_scratch_bytes(o);
}

/* The most that one event causes: three effects for each fragment (ATTACHED), eight for each shard
 * (TIMEOUT), and a few. */
uint32_t pl_learner_effects_max(const struct pl_learn_options *o)
{
    return o->fragments_max * 3 + PL_SHARDS_MAX * 8 + 64;
}

struct pl_learner *pl_learner_init(void *memory, size_t bytes, const struct pl_learn_options *o)
{
    pl_assert(bytes >= pl_learner_bytes(o));
    pl_assert((uintptr_t)memory % _Alignof(struct pl_learner) == 0);
    memset(memory, 0, pl_learner_bytes(o));
    struct pl_learner *l = memory;
    l->options = *o;
    pl_prng_seed(&l->prng, o->seed, o->nonce);
    l->shard_count = 1;
    l->last.unit = PL_NONE64;
    for (uint32_t i = 0; i < PL_SHARDS_MAX; i++) {
        l->sessions[i].control_retry.up_ns = PL_NEVER;
        l->sessions[i].bulk_retry.up_ns = PL_NEVER;
    }
    return l;
}

struct pl_learn_effect *pl_learner_emit(struct pl_learn_fxs *out, enum pl_learn_fx kind)
{
    pl_assert(out->count < out->max);
    struct pl_learn_effect *fx = &out->fx[out->count++];
    memset(fx, 0, sizeof *fx);
    fx->kind = kind;
    return fx;
}

void pl_learner_trace(struct pl_learn_fxs *out, enum pl_trace_code code, const uint64_t arg[static 4])
{
    struct pl_trace *t = &pl_learner_emit(out, PL_LEARN_FX_TRACE)->u.trace;
    t->code = code;
    memcpy(t->arg, arg, sizeof t->arg);
}

void pl_learner_send(struct pl_learner *l, uint32_t shard, const struct pl_msg *msg, struct pl_learn_fxs *out)
{
    struct pl_learn_effect *fx = pl_learner_emit(out, PL_LEARN_FX_SEND);
    fx->u.conn.shard = shard;
    fx->u.conn.link = PL_LINK_CONTROL;
    fx->u.conn.msg = *msg;
    l->sessions[shard].sent_ns = l->now_ns;
}

void pl_learner_send_bulk(uint32_t shard, const struct pl_msg *msg, struct pl_learn_fxs *out)
{
    struct pl_learn_effect *fx = pl_learner_emit(out, PL_LEARN_FX_SEND);
    fx->u.conn.shard = shard;
    fx->u.conn.link = PL_LINK_BULK;
    fx->u.conn.msg = *msg;
}

void pl_learner_report_to(struct pl_learner *l, uint32_t shard, struct pl_learn_fxs *out)
{
    struct pl_msg msg = {.type = PL_MSG_REPORT,
                         .u.report = {.steps = l->process_steps,
                                      .tokens = l->process_tokens,
                                      .loss_micro = l->last.loss_micro,
                                      .step_ns = l->last.step_ns,
                                      .unit = l->last.unit,
                                      .cursor = l->last.cursor,
                                      .flags = (l->options.local_data ? 1u : 0u) | (l->finishing ? 2u : 0u)}};
    pl_learner_send(l, shard, &msg, out);
}

static void report(struct pl_learner *l, struct pl_learn_fxs *out)
{
    for (uint32_t shard = 0; shard < l->shard_count; shard++)
        if (l->sessions[shard].state == PL_SESSION_LIVE)
            pl_learner_report_to(l, shard, out);
}

void pl_learner_finish(struct pl_learner *l, struct pl_learn_fxs *out)
{
    if (l->finishing)
        return;
    l->finishing = true;
    PL_LEARN_TRACE(out, LEARN_FINISH, l->clock_tokens);
    (void)pl_learner_emit(out, PL_LEARN_FX_STOP);
    report(l, out);
}

/* The clock is monotone: a shard that is behind does not turn it back. */
void pl_learner_clock(struct pl_learner *l, uint64_t tokens, uint64_t rate, struct pl_learn_fxs *out)
{
    if (tokens <= l->clock_tokens)
        return;
    l->clock_tokens = tokens;
    l->clock_rate = rate;
    struct pl_learn_effect *fx = pl_learner_emit(out, PL_LEARN_FX_CLOCK);
    fx->u.clock.tokens = tokens;
    fx->u.clock.rate = rate;
}

void pl_learner_ask_unit(struct pl_learner *l, struct pl_learn_fxs *out)
{
    if (l->options.local_data || l->finishing || l->want_sent || l->unit_count == PL_UNITS_HELD_MAX ||
        l->sessions[PL_SHARD_HOME].state != PL_SESSION_LIVE)
        return;
    struct pl_msg msg = {.type = PL_MSG_WANT};
    pl_learner_send(l, PL_SHARD_HOME, &msg, out);
    l->want_sent = true;
}

static void on_lease(struct pl_learner *l, uint32_t shard, const struct pl_msg_lease *m,
                     struct pl_learn_fxs *out)
{
    if (m->cursor >= l->unit_tokens) {
        pl_learner_disconnect(l, shard, PL_LINK_CONTROL, out, PL_REASON_BAD_MESSAGE,
                              "LEASE.cursor is %lu, below unit_tokens %lu is expected", m->cursor,
                              l->unit_tokens);
        return;
    }
    l->want_sent = false;
    for (uint32_t i = 0; i < l->unit_count; i++)
        if (l->units[i].unit == m->unit) {
            PL_MARK("learner.lease_again");
            return;
        }
    if (l->unit_count == PL_UNITS_HELD_MAX) {
        /* An answer to the WANT of an earlier session came late. The next JOIN does not list the unit. */
        PL_MARK("learner.lease_too_many");
        return;
    }
    l->units[l->unit_count++] = (struct pl_item_held_unit){.unit = m->unit, .cursor = m->cursor};
    struct pl_learn_effect *fx = pl_learner_emit(out, PL_LEARN_FX_UNIT);
    fx->u.unit.unit = m->unit;
    fx->u.unit.cursor = m->cursor;
    pl_learner_ask_unit(l, out);
}

/* Moves the cursor of the unit in use; a unit that is used up is held no longer. */
static void use_unit(struct pl_learner *l, uint64_t unit, uint64_t cursor)
{
    for (uint32_t i = 0; i < l->unit_count; i++) {
        if (l->units[i].unit != unit)
            continue;
        l->units[i].cursor = cursor;
        if (cursor >= l->unit_tokens)
            l->units[i] = l->units[--l->unit_count];
        return;
    }
}

static void on_step(struct pl_learner *l, const struct pl_learn_event *ev, struct pl_learn_fxs *out)
{
    pl_assert(l->ready);
    pl_assert(ev->u.step.tokens <= PL_STEP_TOKENS_MAX);
    pl_assert(ev->u.step.cursor <= PL_COUNT_MAX);
    l->steps = pl_min64(l->steps + 1, PL_COUNT_MAX);
    l->tokens = pl_min64(l->tokens + ev->u.step.tokens, PL_COUNT_MAX);
    l->process_steps = pl_min64(l->process_steps + 1, PL_COUNT_MAX);
    l->process_tokens = pl_min64(l->process_tokens + ev->u.step.tokens, PL_COUNT_MAX);
    l->last.loss_micro = pl_min64(ev->u.step.loss_micro, PL_COUNT_MAX);
    l->last.step_ns = ev->u.step.step_ns;
    l->last.unit = ev->u.step.unit;
    l->last.cursor = ev->u.step.cursor;
    use_unit(l, ev->u.step.unit, ev->u.step.cursor);
    report(l, out);
    pl_learner_ask_unit(l, out);
}

static const char *expected(const struct pl_session *s, enum pl_link link)
{
    if (link == PL_LINK_BULK)
        return s->bulk == PL_BULK_UP ? "UPDATE or DATA" : "ATTACHED";
    if (s->state == PL_SESSION_GREETING)
        return "WELCOME or REFUSE";
    if (s->state == PL_SESSION_JOINING)
        return s->manifest_due ? "MANIFEST" : "CLOCK or FINISH";
    return "CLOCK, PULL, DROP, LEASE or FINISH";
}

static void wrong_state(struct pl_learner *l, uint32_t shard, enum pl_link link, uint8_t type,
                        struct pl_learn_fxs *out)
{
    const struct pl_msg_info *info = pl_msg_info(type);
    pl_learner_disconnect(l, shard, link, out, PL_REASON_WRONG_STATE,
                          "%s came on the %s connection, expected was %s",
                          info != NULL ? info->name : "an unknown message",
                          link == PL_LINK_BULK ? "bulk" : "control", expected(&l->sessions[shard], link));
}

/* False: the message does not belong to the session's state. */
static bool on_control_live(struct pl_learner *l, uint32_t shard, const struct pl_msg *m,
                            struct pl_learn_fxs *out)
{
    if (m->type == PL_MSG_PULL)
        pl_learner_on_pull(l, shard, &m->u.pull, out);
    else if (m->type == PL_MSG_DROP)
        pl_learner_on_drop(l, shard, &m->u.drop, out);
    else if (m->type == PL_MSG_LEASE && shard == PL_SHARD_HOME && !l->options.local_data)
        on_lease(l, shard, &m->u.lease, out);
    else
        return false;
    return true;
}

static void on_clock(struct pl_learner *l, uint32_t shard, const struct pl_msg_clock *m,
                     struct pl_learn_fxs *out)
{
    struct pl_session *s = &l->sessions[shard];
    s->tick = m->tick;
    if (s->back_tick == PL_NONE64 && s->state == PL_SESSION_LIVE)
        s->back_tick = m->tick;
    pl_learner_clock(l, m->clock_tokens, m->rate, out);
}

static bool on_control(struct pl_learner *l, uint32_t shard, const struct pl_msg *m, struct pl_learn_fxs *out)
{
    struct pl_session *s = &l->sessions[shard];
    if (s->state == PL_SESSION_GREETING) {
        if (m->type == PL_MSG_WELCOME)
            pl_learner_on_welcome(l, shard, &m->u.welcome, out);
        else if (m->type == PL_MSG_REFUSE)
            pl_learner_on_close(l, shard, PL_LINK_CONTROL,
                                &(struct pl_msg_close){.code = m->u.refuse.code, .text = m->u.refuse.text},
                                out);
        else
            return false;
        return true;
    }
    if (m->type == PL_MSG_CLOCK)
        on_clock(l, shard, &m->u.clock, out);
    else if (m->type == PL_MSG_FINISH && shard == PL_SHARD_HOME)
        pl_learner_finish(l, out);
    else if (m->type == PL_MSG_MANIFEST && s->manifest_due)
        pl_learner_on_manifest(l, shard, &m->u.manifest, out);
    else
        return s->state == PL_SESSION_LIVE && on_control_live(l, shard, m, out);
    return true;
}

static bool on_bulk(struct pl_learner *l, uint32_t shard, const struct pl_msg *m, struct pl_learn_fxs *out)
{
    bool up = l->sessions[shard].bulk == PL_BULK_UP;
    if (m->type == PL_MSG_ATTACHED && !up)
        pl_learner_on_attached(l, shard, &m->u.attached, out);
    else if (m->type == PL_MSG_UPDATE && up)
        pl_learner_on_update(l, shard, &m->u.update, out);
    else if (m->type == PL_MSG_DATA && up)
        pl_learner_on_data(l, shard, &m->u.data, out);
    else
        return false;
    return true;
}

static void pong(struct pl_learner *l, uint32_t shard, enum pl_link link, uint64_t nonce,
                 struct pl_learn_fxs *out)
{
    struct pl_msg msg = {.type = PL_MSG_PONG, .u.pong = {.nonce = nonce}};
    if (link == PL_LINK_CONTROL)
        pl_learner_send(l, shard, &msg, out);
    else
        pl_learner_send_bulk(shard, &msg, out);
}

static void on_msg(struct pl_learner *l, uint32_t shard, enum pl_link link, const struct pl_msg *m,
                   struct pl_learn_fxs *out)
{
    bool control = link == PL_LINK_CONTROL;
    if (control)
        l->sessions[shard].heard_ns = l->now_ns;
    bool fits = pl_msg_allowed(m->type, control ? PL_CHANNEL_CONTROL : PL_CHANNEL_BULK, PL_SENDER_SYNCER);
    if (fits && m->type == PL_MSG_PING)
        pong(l, shard, link, m->u.ping.nonce, out);
    else if (fits && m->type == PL_MSG_CLOSE)
        pl_learner_on_close(l, shard, link, &m->u.close, out);
    else if (fits && m->type != PL_MSG_PONG)
        fits = control ? on_control(l, shard, m, out) : on_bulk(l, shard, m, out);
    if (!fits)
        wrong_state(l, shard, link, m->type, out);
}

/* Events of a link that we have given up may still be on their way from the host; they mean nothing. */
static void on_conn(struct pl_learner *l, const struct pl_learn_event *ev, struct pl_learn_fxs *out)
{
    uint32_t shard = ev->u.conn.shard;
    enum pl_link link = ev->u.conn.link;
    pl_assert(shard < l->shard_count);
    if (ev->kind == PL_LEARN_EV_OPENED)
        pl_learner_opened(l, shard, link, out);
    else if (ev->kind == PL_LEARN_EV_CLOSED)
        pl_learner_broke(l, shard, link, out);
    else if (!pl_learner_link_open(&l->sessions[shard], link))
        PL_MARK("learner.late_message");
    else if (ev->kind == PL_LEARN_EV_MSG)
        on_msg(l, shard, link, ev->u.conn.msg, out);
    else
        pl_learner_disconnect(l, shard, link, out, PL_REASON_BAD_FRAME, "%s", ev->u.conn.error->text);
}

static void on_start(struct pl_learner *l, struct pl_learn_fxs *out)
{
    l->started = true;
    pl_learner_dial(l, PL_SHARD_HOME, out);
}

/* A PING is due when nothing was sent for a heartbeat (the syncer must hear us), or nothing was heard for
 * one since the last PING (we must hear the syncer). */
static uint64_t ping_due(const struct pl_session *s)
{
    return pl_add_sat(pl_min64(s->sent_ns, pl_max64(s->heard_ns, s->pinged_ns)), s->heartbeat_ns);
}

static uint64_t silent_at(const struct pl_session *s)
{
    return pl_add_sat(s->heard_ns, pl_learner_silence_ns(s));
}

static uint64_t bulk_due(const struct pl_session *s)
{
    if (s->state == PL_SESSION_LIVE && s->bulk == PL_BULK_DOWN)
        return s->bulk_retry.at_ns;
    if (s->bulk == PL_BULK_ATTACHING)
        return pl_add_sat(s->attached_ns, pl_learner_silence_ns(s));
    return PL_NEVER;
}

static uint64_t control_due(const struct pl_learner *l, uint32_t shard)
{
    const struct pl_session *s = &l->sessions[shard];
    if (s->state == PL_SESSION_DOWN)
        return pl_learner_dialable(l, shard) ? s->control_retry.at_ns : PL_NEVER;
    if (s->state == PL_SESSION_GREETING)
        return pl_add_sat(s->greeted_ns, GREETING_SECONDS * PL_SEC);
    if (s->state == PL_SESSION_JOINING || s->state == PL_SESSION_LIVE)
        return pl_min64(ping_due(s), silent_at(s));
    return PL_NEVER;
}

static void control_timeout(struct pl_learner *l, uint32_t shard, struct pl_learn_fxs *out)
{
    struct pl_session *s = &l->sessions[shard];
    if (s->state == PL_SESSION_DOWN) {
        pl_learner_dial(l, shard, out);
    } else if (s->state == PL_SESSION_GREETING) {
        pl_learner_disconnect(l, shard, PL_LINK_CONTROL, out, PL_REASON_LEASE_EXPIRED,
                              "no WELCOME came within %u seconds of HELLO", (unsigned)GREETING_SECONDS);
    } else if (l->now_ns >= silent_at(s)) {
        PL_MARK("learner.silent_shard");
        pl_learner_disconnect(l, shard, PL_LINK_CONTROL, out, PL_REASON_LEASE_EXPIRED,
                              "nothing was heard for %lu ms", pl_learner_silence_ns(s) / PL_MS);
    } else {
        s->pinged_ns = l->now_ns;
        struct pl_msg msg = {.type = PL_MSG_PING, .u.ping = {.nonce = l->now_ns}};
        pl_learner_send(l, shard, &msg, out);
    }
}

static void on_timeout(struct pl_learner *l, struct pl_learn_fxs *out)
{
    for (uint32_t shard = 0; shard < l->shard_count; shard++) {
        if (l->now_ns >= control_due(l, shard))
            control_timeout(l, shard, out);
        if (l->now_ns < bulk_due(&l->sessions[shard]))
            continue;
        if (l->sessions[shard].bulk == PL_BULK_DOWN)
            pl_learner_dial_bulk(l, shard, out);
        else
            pl_learner_disconnect(l, shard, PL_LINK_BULK, out, PL_REASON_LEASE_EXPIRED,
                                  "no ATTACHED came within %lu ms of ATTACH",
                                  pl_learner_silence_ns(&l->sessions[shard]) / PL_MS);
    }
}

uint64_t pl_learner_deadline(const struct pl_learner *l)
{
    uint64_t at = PL_NEVER;
    for (uint32_t shard = 0; shard < l->shard_count && !l->over; shard++)
        at = pl_min64(at, pl_min64(control_due(l, shard), bulk_due(&l->sessions[shard])));
    return at;
}

static void dispatch(struct pl_learner *l, const struct pl_learn_event *ev, struct pl_learn_fxs *out)
{
    switch (ev->kind) {
    case PL_LEARN_EV_START:
        on_start(l, out);
        break;
    case PL_LEARN_EV_OPENED:
    case PL_LEARN_EV_CLOSED:
    case PL_LEARN_EV_MSG:
    case PL_LEARN_EV_BAD:
        on_conn(l, ev, out);
        break;
    case PL_LEARN_EV_READY:
        pl_learner_ready(l, ev->u.ready.digests, out);
        break;
    case PL_LEARN_EV_STEP:
        on_step(l, ev, out);
        break;
    case PL_LEARN_EV_COPIED:
        pl_learner_copied(l, ev, out);
        break;
    case PL_LEARN_EV_DECODED:
        pl_learner_decoded(l, ev, out);
        break;
    case PL_LEARN_EV_APPLIED:
        pl_learner_applied(l, ev, out);
        break;
    case PL_LEARN_EV_QUIT:
        pl_learner_quit(l, out);
        break;
    case PL_LEARN_EV_TIMEOUT:
        on_timeout(l, out);
        break;
    }
}

void pl_learner_step(struct pl_learner *l, const struct pl_learn_event *ev, struct pl_learn_fxs *out)
{
    pl_assert(ev->now_ns >= l->now_ns);
    pl_assert(out->max >= pl_learner_effects_max(&l->options));
    pl_assert(l->started == (ev->kind != PL_LEARN_EV_START));
    out->count = 0;
    l->now_ns = ev->now_ns;
    l->scratch_used = 0;
    if (!l->over)
        dispatch(l, ev, out);
}

uint64_t pl_learner_steps(const struct pl_learner *l)
{
    return l->steps;
}

uint64_t pl_learner_tokens(const struct pl_learner *l)
{
    return l->tokens;
}

uint64_t pl_learner_version(const struct pl_learner *l, uint32_t fragment, uint64_t *digest)
{
    pl_assert(fragment < l->fragment_count);
    *digest = l->fragments[fragment].digest;
    return l->fragments[fragment].version;
}

bool pl_learner_live(const struct pl_learner *l, uint32_t shard)
{
    return shard < l->shard_count && l->sessions[shard].state == PL_SESSION_LIVE;
}
