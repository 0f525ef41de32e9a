/* core/learner_session.c - connections with the shards: dial, HELLO ... JOIN, ATTACH, loss, back-off, the
 * ways out.
 *
 * Home is dialled first: it gives the incarnation and the manifest. The other shards follow and then live
 * on their own: a session that is lost ends nothing but itself. What is pending or half received belongs
 * to the fragments and survives it.
 */
#include "core/learner_int.h"

#include "base/fmt.h"
#include "base/num.h"
#include "wire/chunk.h"

#include <string.h>

enum { RETRY_DOUBLINGS_MAX = 7 };

#define RETRY_NS_MIN (100 * PL_MS)
#define RETRY_NS_MAX (10 * PL_SEC)
#define RETRY_BROKEN_NS_MAX (2 * PL_SEC) /* whose line is up for seconds must not sleep through them */
#define PROVEN_NS (1 * PL_SEC)           /* a link that lasted this long and broke is dialled again soon */
#define SETTLED_NS (10 * PL_SEC)         /* the same where one side hung up */
#define HEARTBEAT_NS_MIN (1 * PL_MS)
#define HEARTBEAT_NS_MAX (3600 * PL_SEC)
#define SILENCE_NS_MIN (4 * PL_SEC)

bool pl_learner_link_open(const struct pl_session *s, enum pl_link link)
{
    if (link == PL_LINK_BULK)
        return s->bulk == PL_BULK_ATTACHING || s->bulk == PL_BULK_UP;
    return s->state == PL_SESSION_GREETING || s->state == PL_SESSION_JOINING || s->state == PL_SESSION_LIVE;
}

/* Four heartbeats without a word, and no less than four seconds: a PONG needs its time on a bad line. */
uint64_t pl_learner_silence_ns(const struct pl_session *s)
{
    return pl_max64(4 * s->heartbeat_ns, SILENCE_NS_MIN);
}

bool pl_learner_dialable(const struct pl_learner *l, uint32_t shard)
{
    return shard == PL_SHARD_HOME || (l->incarnation != 0 && l->manifest_digest != 0);
}

void pl_learner_dial(struct pl_learner *l, uint32_t shard, struct pl_learn_fxs *out)
{
    struct pl_session *s = &l->sessions[shard];
    pl_assert(s->state == PL_SESSION_DOWN);
    pl_assert(s->bulk == PL_BULK_DOWN);
    s->state = PL_SESSION_DIALING;
    struct pl_learn_effect *fx = pl_learner_emit(out, PL_LEARN_FX_CONNECT);
    fx->u.conn.shard = shard;
    fx->u.conn.link = PL_LINK_CONTROL;
}

void pl_learner_dial_bulk(struct pl_learner *l, uint32_t shard, struct pl_learn_fxs *out)
{
    struct pl_session *s = &l->sessions[shard];
    pl_assert(s->state == PL_SESSION_LIVE);
    pl_assert(s->bulk == PL_BULK_DOWN);
    s->bulk = PL_BULK_DIALING;
    struct pl_learn_effect *fx = pl_learner_emit(out, PL_LEARN_FX_CONNECT);
    fx->u.conn.shard = shard;
    fx->u.conn.link = PL_LINK_BULK;
}

static void dial_others(struct pl_learner *l, struct pl_learn_fxs *out)
{
    for (uint32_t shard = PL_SHARD_HOME + 1; shard < l->shard_count; shard++)
        if (l->sessions[shard].state == PL_SESSION_DOWN &&
            l->sessions[shard].control_retry.at_ns <= l->now_ns)
            pl_learner_dial(l, shard, out);
}

/* The link is down. Where it broke, because of the line or a shard that died, a short life is enough to look for the
 * shard again at once. Where one side hung up, on a peer that was silent or at fault, it takes a long one: a shard with
 * too much to do is not helped by learners that are back in no time. */
static void link_ended(const struct pl_learner *l, struct pl_retry *r, bool broke)
{
    if (r->up_ns != PL_NEVER && l->now_ns - r->up_ns >= (broke ? PROVEN_NS : SETTLED_NS))
        r->tries = 0;
    r->up_ns = PL_NEVER;
}

static void retry_later(struct pl_learner *l, struct pl_retry *r, bool broke)
{
    link_ended(l, r, broke);
    uint64_t wait = pl_min64(RETRY_NS_MIN << r->tries, broke ? RETRY_BROKEN_NS_MAX : RETRY_NS_MAX);
    r->tries = pl_min32(r->tries + 1, RETRY_DOUBLINGS_MAX);
    /* Jitter: learners that lost a syncer together do not come back together. */
    r->at_ns = pl_add_sat(l->now_ns, pl_prng_range(&l->prng, wait / 2, wait));
}

static void emit_disconnect(uint32_t shard, enum pl_link link, enum pl_reason reason, const char *text,
                            struct pl_learn_fxs *out)
{
    struct pl_learn_effect *fx = pl_learner_emit(out, PL_LEARN_FX_DISCONNECT);
    fx->u.conn.shard = shard;
    fx->u.conn.link = link;
    fx->u.conn.reason = reason;
    (void)pl_fmt(fx->u.conn.text, sizeof fx->u.conn.text, "%s", text);
}

static void drop_bulk(struct pl_learner *l, uint32_t shard, const char *text, struct pl_learn_fxs *out)
{
    struct pl_session *s = &l->sessions[shard];
    if (s->bulk == PL_BULK_DOWN)
        return;
    emit_disconnect(shard, PL_LINK_BULK, PL_REASON_LEAVING, text, out);
    s->bulk = PL_BULK_DOWN;
    link_ended(l, &s->bulk_retry, true);
}

/* What ends with a session, however it ends. */
static void end_session(struct pl_learner *l, uint32_t shard, enum pl_session_state state,
                        struct pl_learn_fxs *out)
{
    struct pl_session *s = &l->sessions[shard];
    drop_bulk(l, shard, "the control connection has ended", out);
    s->state = state;
    s->manifest_due = false;
    if (shard == PL_SHARD_HOME)
        l->want_sent = false;
    for (uint32_t i = 0; i < l->fragment_count; i++)
        if (l->fragments[i].shard == shard)
            l->fragments[i].fetching = false;
}

static void lost(struct pl_learner *l, uint32_t shard, enum pl_link link, bool broke,
                 struct pl_learn_fxs *out)
{
    struct pl_session *s = &l->sessions[shard];
    if (link == PL_LINK_BULK) {
        if (s->bulk == PL_BULK_DOWN)
            return;
        s->bulk = PL_BULK_DOWN;
        retry_later(l, &s->bulk_retry, broke);
        return;
    }
    if (s->state == PL_SESSION_DOWN || s->state == PL_SESSION_DONE)
        return;
    end_session(l, shard, PL_SESSION_DOWN, out);
    retry_later(l, &s->control_retry, broke);
    PL_LEARN_TRACE(out, LEARN_LOST, shard, s->control_retry.at_ns - l->now_ns);
}

void pl_learner_broke(struct pl_learner *l, uint32_t shard, enum pl_link link, struct pl_learn_fxs *out)
{
    lost(l, shard, link, true, out);
}

void pl_learner_disconnect(struct pl_learner *l, uint32_t shard, enum pl_link link, struct pl_learn_fxs *out,
                           enum pl_reason reason, const char *format, ...)
{
    char text[PL_TEXT_MAX + 1];
    va_list args;
    va_start(args, format);
    (void)pl_vfmt(text, sizeof text, format, args);
    va_end(args);
    emit_disconnect(shard, link, reason, text, out);
    lost(l, shard, link, false, out);
}

/* Takes leave of everybody; the machine does nothing from here on. */
static void leave(struct pl_learner *l, enum pl_learn_fx kind, uint32_t shard, const char *text,
                  struct pl_learn_fxs *out)
{
    for (uint32_t i = 0; i < l->shard_count; i++) {
        struct pl_session *s = &l->sessions[i];
        if (s->state == PL_SESSION_DOWN || s->state == PL_SESSION_DONE)
            continue;
        end_session(l, i, PL_SESSION_DOWN, out);
        s->control_retry.up_ns = PL_NEVER;
        emit_disconnect(i, PL_LINK_CONTROL, PL_REASON_LEAVING, "this learner leaves", out);
    }
    struct pl_learn_effect *fx = pl_learner_emit(out, kind);
    fx->u.conn.shard = shard;
    (void)pl_fmt(fx->u.conn.text, sizeof fx->u.conn.text, "%s", text);
    l->over = true;
}

void pl_learner_quit(struct pl_learner *l, struct pl_learn_fxs *out)
{
    leave(l, PL_LEARN_FX_DONE, PL_SHARD_HOME, "leaving as asked", out);
}

static void greet(struct pl_learner *l, uint32_t shard, struct pl_learn_fxs *out)
{
    struct pl_session *s = &l->sessions[shard];
    s->state = PL_SESSION_GREETING;
    s->greeted_ns = s->heard_ns = s->pinged_ns = l->now_ns;
    struct pl_msg msg = {.type = PL_MSG_HELLO,
                         .u.hello = {.run_id = l->run_id,
                                     .incarnation = l->incarnation,
                                     .nonce = l->options.nonce,
                                     .manifest_digest = l->manifest_digest,
                                     .flags = (l->options.local_data ? 1u : 0u) | (l->finishing ? 2u : 0u),
                                     .steps = l->process_steps,
                                     .tokens = l->process_tokens}};
    pl_learner_send(l, shard, &msg, out);
}

static uint8_t *scratch(struct pl_learner *l, size_t bytes)
{
    uint8_t *p = (uint8_t *)&l->fragments[l->options.fragments_max] + l->scratch_used;
    pl_assert(l->scratch_used + bytes <= pl_learner_scratch_bytes(&l->options));
    l->scratch_used += (uint32_t)bytes;
    return p;
}

/* Updates of this shard received in part: the syncer goes on where it was interrupted. */
static void attach(struct pl_learner *l, uint32_t shard, struct pl_learn_fxs *out)
{
    struct pl_session *s = &l->sessions[shard];
    s->bulk = PL_BULK_ATTACHING;
    s->attached_ns = l->now_ns;
    uint8_t *items = scratch(l, (size_t)l->fragment_count * PL_ITEM_PARTIAL_BYTES);
    uint32_t count = 0;
    for (uint32_t i = 0; i < l->fragment_count; i++) {
        const struct pl_incoming *u = &l->fragments[i].update;
        if (l->fragments[i].shard != shard || u->state != PL_UPDATE_RECEIVING)
            continue;
        struct pl_item_partial item = {
            .fragment = i, .id = u->to_version, .digest = u->digest, .bytes = u->bytes, .mask = u->mask};
        pl_item_partial_put(items, count++, &item);
    }
    struct pl_msg msg = {
        .type = PL_MSG_ATTACH,
        .u.attach = {.incarnation = l->incarnation, .partial = {.items = items, .count = count}}};
    pl_learner_send_bulk(shard, &msg, out);
}

void pl_learner_opened(struct pl_learner *l, uint32_t shard, enum pl_link link, struct pl_learn_fxs *out)
{
    const struct pl_session *s = &l->sessions[shard];
    if (link == PL_LINK_CONTROL && s->state == PL_SESSION_DIALING)
        greet(l, shard, out);
    else if (link == PL_LINK_BULK && s->bulk == PL_BULK_DIALING)
        attach(l, shard, out);
}

/* From here on the shard knows what we hold, and we take part. */
static void join(struct pl_learner *l, uint32_t shard, struct pl_learn_fxs *out)
{
    struct pl_session *s = &l->sessions[shard];
    pl_assert(s->state == PL_SESSION_JOINING);
    pl_assert(l->ready);
    uint8_t *items = (uint8_t *)&l->fragments[l->options.fragments_max] + l->scratch_used;
    uint32_t count = 0;
    for (uint32_t i = 0; i < l->fragment_count; i++) {
        struct pl_learn_fragment *f = &l->fragments[i];
        if (f->shard != shard)
            continue;
        struct pl_item_have have = {.version = f->version, .digest = f->digest};
        (void)scratch(l, PL_ITEM_HAVE_BYTES);
        pl_item_have_put(items, count++, &have);
        f->returning = true;
        f->joined_version = f->version;
        f->update.older = true;
    }
    struct pl_msg msg = {.type = PL_MSG_JOIN, .u.join = {.have = {.items = items, .count = count}}};
    if (shard == PL_SHARD_HOME) {
        uint8_t *units = scratch(l, (size_t)l->unit_count * PL_ITEM_HELD_UNIT_BYTES);
        for (uint32_t i = 0; i < l->unit_count; i++)
            pl_item_held_unit_put(units, i, &l->units[i]);
        msg.u.join.units = (struct pl_array){.items = units, .count = l->unit_count};
    }
    pl_learner_send(l, shard, &msg, out);
    s->state = PL_SESSION_LIVE;
    s->left_tick = s->tick;
    s->back_tick = PL_NONE64;
    s->control_retry.up_ns = l->now_ns;
    PL_LEARN_TRACE(out, LEARN_LIVE, shard, l->incarnation);
    if (l->finishing)
        pl_learner_report_to(l, shard,
                             out); /* the end may have come after HELLO, and no step will tell of it */
    pl_learner_dial_bulk(l, shard, out);
    if (shard == PL_SHARD_HOME)
        pl_learner_ask_unit(l, out);
}

static const char *zero_field(const struct pl_msg_welcome *m)
{
    return m->run_id == 0            ? "run_id"
           : m->incarnation == 0     ? "incarnation"
           : m->manifest_digest == 0 ? "manifest_digest"
           : m->heartbeat_ns == 0    ? "heartbeat_ns"
                                     : NULL;
}

/* False after disconnecting: a shard that is not what we dialled, or a WELCOME that says nothing. */
static bool check_welcome(struct pl_learner *l, uint32_t shard, const struct pl_msg_welcome *m,
                          struct pl_learn_fxs *out)
{
    const char *zero = zero_field(m);
    if (zero != NULL)
        pl_learner_disconnect(l, shard, PL_LINK_CONTROL, out, PL_REASON_BAD_MESSAGE,
                              "WELCOME.%s is 0, at least 1 is expected", zero);
    else if (m->shard != shard)
        pl_learner_disconnect(l, shard, PL_LINK_CONTROL, out, PL_REASON_BAD_MESSAGE,
                              "WELCOME.shard is %u, dialled was shard %u", (unsigned)m->shard,
                              (unsigned)shard);
    else if (l->incarnation != 0 && m->incarnation != l->incarnation)
        pl_learner_disconnect(l, shard, PL_LINK_CONTROL, out, PL_REASON_BAD_MESSAGE,
                              "WELCOME.incarnation is %lx, this process is %lx", m->incarnation,
                              l->incarnation);
    else
        return true;
    return false;
}

/* False after leaving: no later answer of this shard would make us one of its learners. */
static bool same_run(struct pl_learner *l, uint32_t shard, const struct pl_msg_welcome *m,
                     struct pl_learn_fxs *out)
{
    char text[PL_TEXT_MAX + 1];
    if (l->run_id != 0 && m->run_id != 0 && m->run_id != l->run_id)
        (void)pl_fmt(text, sizeof text, "shard %u belongs to run %lx, this learner to run %lx",
                     (unsigned)shard, m->run_id, l->run_id);
    else if (l->manifest_digest != 0 && m->manifest_digest != 0 && m->manifest_digest != l->manifest_digest)
        (void)pl_fmt(text, sizeof text, "the run's manifest changed: shard %u has %lx, this learner %lx",
                     (unsigned)shard, m->manifest_digest, l->manifest_digest);
    else
        return true;
    leave(l, PL_LEARN_FX_FATAL, shard, text, out);
    return false;
}

void pl_learner_on_welcome(struct pl_learner *l, uint32_t shard, const struct pl_msg_welcome *m,
                           struct pl_learn_fxs *out)
{
    struct pl_session *s = &l->sessions[shard];
    if (!same_run(l, shard, m, out) || !check_welcome(l, shard, m, out))
        return;
    l->run_id = m->run_id;
    l->incarnation = m->incarnation;
    s->state = PL_SESSION_JOINING;
    s->heartbeat_ns = pl_clamp64(m->heartbeat_ns, HEARTBEAT_NS_MIN, HEARTBEAT_NS_MAX);
    s->manifest_digest = m->manifest_digest;
    s->manifest_due = l->manifest_digest == 0;
    pl_learner_clock(l, m->clock_tokens, l->clock_rate, out);
    if (m->phase >= 1 && shard == PL_SHARD_HOME)
        pl_learner_finish(l, out);
    if (s->manifest_due)
        return;
    if (l->ready)
        join(l, shard, out);
    dial_others(l, out);
}

void pl_learner_take_manifest(struct pl_learner *l, const struct pl_msg_manifest *m)
{
    pl_assert(m->fragments.count <= l->options.fragments_max);
    l->run_id = m->run_id;
    l->shard_count = m->shard_count;
    l->fragment_count = m->fragments.count;
    l->staleness_max = m->staleness_max;
    l->period_steps = m->period_steps;
    l->apply = m->apply;
    l->unit_tokens = m->unit_tokens;
    for (uint32_t i = 0; i < l->fragment_count; i++) {
        struct pl_item_fragment item = pl_item_fragment_at(&m->fragments, i);
        l->fragments[i] = (struct pl_learn_fragment){.shard = item.shard,
                                                     .full_bytes = item.full_bytes,
                                                     .push_bytes_max = item.push_bytes_max,
                                                     .update_bytes_max = item.update_bytes_max};
    }
}

void pl_learner_on_manifest(struct pl_learner *l, uint32_t shard, const struct pl_msg_manifest *m,
                            struct pl_learn_fxs *out)
{
    struct pl_session *s = &l->sessions[shard];
    struct pl_error err;
    enum pelago_status status = pl_manifest_check(m, &err);
    if (status == PELAGO_OK && m->run_id != l->run_id)
        status =
            pl_fail(&err, PELAGO_INVALID, "MANIFEST.run_id is %lx, WELCOME said %lx", m->run_id, l->run_id);
    if (status == PELAGO_OK && m->fragments.count > l->options.fragments_max)
        status = pl_fail(
            &err, PELAGO_LIMIT,
            "MANIFEST.fragments has %u entries, this learner can take %u: use the same version of pelago",
            (unsigned)m->fragments.count, (unsigned)l->options.fragments_max);
    if (status != PELAGO_OK) {
        /* Our own run's syncer has it from its disk: asking again gives the same. */
        pl_learner_disconnect(l, shard, PL_LINK_CONTROL, out, PL_REASON_BAD_MESSAGE, "%s", err.text);
        leave(l, PL_LEARN_FX_FATAL, shard, err.text, out);
        return;
    }
    pl_learner_take_manifest(l, m);
    l->manifest_digest = s->manifest_digest;
    s->manifest_due = false;
    pl_learner_emit(out, PL_LEARN_FX_MANIFEST)->u.manifest.manifest = m;
    dial_others(l, out);
}

void pl_learner_ready(struct pl_learner *l, const uint64_t *digests, struct pl_learn_fxs *out)
{
    pl_assert(!l->ready);
    pl_assert(l->manifest_digest != 0);
    l->ready = true;
    for (uint32_t i = 0; i < l->fragment_count; i++)
        l->fragments[i].digest = digests[i];
    for (uint32_t shard = 0; shard < l->shard_count; shard++)
        if (l->sessions[shard].state == PL_SESSION_JOINING)
            join(l, shard, out);
}

/* Notes which pending pushes the syncer has in part; false after disconnecting. */
static bool read_partial(struct pl_learner *l, uint32_t shard, const struct pl_array *partial,
                         struct pl_learn_fxs *out)
{
    for (uint32_t i = 0; i < partial->count; i++) {
        struct pl_item_partial item = pl_item_partial_at(partial, i);
        struct pl_learn_fragment *f =
            pl_learner_owned(l, shard, PL_LINK_BULK, "ATTACHED.partial", item.fragment, out);
        if (f == NULL)
            return false;
        struct pl_pending *p = &f->pending;
        if (p->state != PL_PENDING_READY || p->round != item.id || p->digest != item.digest ||
            p->bytes != item.bytes)
            continue;
        if ((item.mask & ~pl_chunk_all(p->bytes)) != 0) {
            pl_learner_disconnect(l, shard, PL_LINK_BULK, out, PL_REASON_BAD_MESSAGE,
                                  "ATTACHED.partial.mask is %lx, the push of fragment %u has %u chunks",
                                  item.mask, (unsigned)item.fragment, (unsigned)pl_chunk_count(p->bytes));
            return false;
        }
        p->listed = true;
        p->there = item.mask;
    }
    return true;
}

void pl_learner_on_attached(struct pl_learner *l, uint32_t shard, const struct pl_msg_attached *m,
                            struct pl_learn_fxs *out)
{
    struct pl_session *s = &l->sessions[shard];
    for (uint32_t i = 0; i < l->fragment_count; i++)
        l->fragments[i].pending.listed = false;
    if (!read_partial(l, shard, &m->partial, out))
        return;
    s->bulk = PL_BULK_UP;
    s->bulk_retry.up_ns = l->now_ns;
    for (uint32_t i = 0; i < l->fragment_count; i++) {
        const struct pl_pending *p = &l->fragments[i].pending;
        if (l->fragments[i].shard != shard || p->state != PL_PENDING_READY)
            continue;
        if (p->listed && p->there == pl_chunk_all(p->bytes))
            PL_MARK("learner.push_all_there");
        else
            pl_learner_push(l, i, out);
    }
}

/* The run is complete for a shard that says so to a learner which has all its versions. */
static void session_done(struct pl_learner *l, uint32_t shard, struct pl_learn_fxs *out)
{
    emit_disconnect(shard, PL_LINK_CONTROL, PL_REASON_DONE, "", out);
    end_session(l, shard, PL_SESSION_DONE, out);
    l->sessions[shard].control_retry.up_ns = PL_NEVER;
    for (uint32_t i = 0; i < l->shard_count; i++)
        if (l->sessions[i].state != PL_SESSION_DONE)
            return;
    PL_LEARN_TRACE(out, LEARN_DONE, l->clock_tokens);
    leave(l, PL_LEARN_FX_DONE, shard, "the run is complete", out);
}

/* Behind our own words there is less room than a shard had for its sentence: it ends with a word, and dots. */
static void shorten(char *said, uint32_t len, size_t ours)
{
    static const char dots[] = " ...";
    if (len + ours <= PL_TEXT_MAX)
        return;
    pl_assert(ours + sizeof dots <= PL_TEXT_MAX);
    size_t room = PL_TEXT_MAX - ours - (sizeof dots - 1), end = room;
    while (end > 0 && said[end] != ' ')
        end--;
    if (end == 0) /* one word: at least not within a character */
        for (end = room; end > 0 && ((uint8_t)said[end] & 0xC0) == 0x80;)
            end--;
    memcpy(said + end, dots, sizeof dots);
}

void pl_learner_on_close(struct pl_learner *l, uint32_t shard, enum pl_link link,
                         const struct pl_msg_close *m, struct pl_learn_fxs *out)
{
    char said[PL_TEXT_MAX + 1] = "", text[PL_TEXT_MAX + 1];
    uint32_t len = pl_min32(m->text.len, PL_TEXT_MAX);
    if (len > 0)
        memcpy(said, m->text.data, len);
    if (m->code == PL_REASON_FENCED || m->code == PL_REASON_WRONG_RUN) {
        const char *why = pl_reason_text(m->code);
        shorten(said, len, pl_fmt(text, sizeof text, "shard %u: %s ()", (unsigned)shard, why));
        (void)pl_fmt(text, sizeof text, "shard %u: %s (%s)", (unsigned)shard, why, said);
        leave(l, PL_LEARN_FX_FATAL, shard, text, out);
    } else if (m->code == PL_REASON_DONE && link == PL_LINK_CONTROL) {
        session_done(l, shard, out);
    } else {
        const char *why = pl_reason_name(m->code);
        shorten(said, len, pl_fmt(text, sizeof text, "the shard closed: %s ()", why));
        /* The host is told to drop its end too, so that no CLOSED meets the next dialling. */
        pl_learner_disconnect(l, shard, link, out, PL_REASON_LEAVING, "the shard closed: %s%s%s%s", why,
                              said[0] != '\0' ? " (" : "", said, said[0] != '\0' ? ")" : "");
    }
}
