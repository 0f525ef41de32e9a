/* sim/check_books.c - what everybody at the scene can see: connections and whose they are, the last push of each
 * learner, the clock, published versions. No judgement here. */
#include "sim/check_int.h"

#include "base/check.h"

#include <string.h>

uint32_t pl_check_person(const struct pl_checks *c, uint64_t identity)
{
    for (uint32_t i = 0; i < c->person_count; i++)
        if (c->people[i] == identity)
            return i;
    return PL_NONE32;
}

uint32_t pl_check_sender(const struct pl_checks *c, uint32_t shard)
{
    const struct check_shard *s = &c->shards[shard];
    return s->msg_conn == PL_NONE32 ? PL_NONE32 : s->conns[s->msg_conn].person;
}

static bool init_shard(struct pl_checks *c, struct check_shard *s)
{
    s->conns = pl_check_zero(c, c->setup.conns_max, sizeof(*s->conns));
    s->slot_person = pl_check_zero(c, c->setup.learners_max, sizeof(*s->slot_person));
    s->control = pl_check_zero(c, c->person_max, sizeof(*s->control));
    s->incarnation = pl_check_zero(c, c->person_max, sizeof(*s->incarnation));
    return c->status == PELAGO_OK;
}

bool pl_check_books_init(struct pl_checks *c)
{
    const struct pl_msg_manifest *m = c->setup.manifest;
    uint32_t honest = c->setup.identity_count;
    c->shard_count = m->shard_count;
    c->fragment_count = m->fragments.count;
    c->quorum = m->quorum;
    c->period = m->period_steps;
    c->person_max = honest + c->setup.learners_max;
    size_t cells = (size_t)c->person_max * c->fragment_count;
    c->people = pl_check_zero(c, c->person_max, sizeof(*c->people));
    c->shards = pl_check_zero(c, c->shard_count, sizeof(*c->shards));
    c->fragments = pl_check_zero(c, c->fragment_count, sizeof(*c->fragments));
    c->headers = pl_check_zero(c, cells, sizeof(*c->headers));
    c->pushes = pl_check_zero(c, cells, sizeof(*c->pushes));
    c->copies = pl_check_zero(c, (size_t)honest * c->fragment_count, sizeof(*c->copies));
    c->merged_tokens = pl_check_zero(c, c->fragment_count, sizeof(*c->merged_tokens));
    c->staged_tokens = pl_check_zero(c, c->fragment_count, sizeof(*c->staged_tokens));
    if (c->status != PELAGO_OK)
        return false;
    for (uint32_t i = 0; i < honest; i++)
        c->people[i] = c->setup.identities[i];
    c->person_count = honest;
    for (uint32_t p = 0; p < c->fragment_count; p++) {
        struct pl_item_fragment item = pl_item_fragment_at(&m->fragments, p);
        c->fragments[p] = (struct check_fragment){item.shard, item.offset, 0};
    }
    for (uint32_t i = 0; i < c->shard_count; i++) {
        if (!init_shard(c, &c->shards[i]))
            return false;
        pl_check_books_crash(c, i);
    }
    return true;
}

void pl_check_books_crash(struct pl_checks *c, uint32_t shard)
{
    struct check_shard *s = &c->shards[shard];
    for (uint32_t i = 0; i < c->setup.conns_max; i++)
        s->conns[i] = (struct check_conn){.person = PL_NONE32};
    for (uint32_t i = 0; i < c->setup.learners_max; i++)
        s->slot_person[i] = PL_NONE32;
    for (uint32_t i = 0; i < c->person_max; i++) {
        s->control[i] = PL_NONE32;
        s->incarnation[i] = 0;
        for (uint32_t p = 0; p < c->fragment_count; p++)
            if (c->fragments[p].shard == shard)
                *pl_check_push(c, i, p) = (struct check_push){0};
    }
    s->listening = false;
    s->closing = false;
    s->tick = 0;
    s->msg_conn = PL_NONE32;
}

static void drop_conn(struct check_shard *s, uint32_t conn)
{
    struct check_conn *k = &s->conns[conn];
    if (k->person != PL_NONE32 && s->control[k->person] == conn)
        s->control[k->person] = PL_NONE32;
    *k = (struct check_conn){.person = PL_NONE32};
}

static void note_opened(struct pl_checks *c, struct check_shard *s, const struct pl_sync_event *ev)
{
    uint32_t person = pl_check_person(c, ev->u.opened.identity);
    if (person == PL_NONE32 && c->person_count < c->person_max) {
        person = c->person_count++;
        c->people[person] = ev->u.opened.identity;
    }
    s->conns[ev->u.opened.conn] = (struct check_conn){.person = person, .link = LINK_NEW};
}

static void note_message(struct pl_checks *c, struct check_shard *s, const struct pl_msg *msg)
{
    struct check_conn *k = &s->conns[s->msg_conn];
    if (k->person == PL_NONE32)
        return;
    if (msg->type == PL_MSG_HELLO && k->link == LINK_NEW) {
        k->link = LINK_CONTROL;
        k->incarnation = 0;
    } else if (msg->type == PL_MSG_ATTACH && k->link == LINK_NEW) {
        k->link = LINK_BULK;
        k->incarnation = msg->u.attach.incarnation;
    } else if (msg->type == PL_MSG_JOIN && k->link == LINK_CONTROL && k->incarnation != 0) {
        k->joined = true;
        s->control[k->person] = s->msg_conn;
    } else if (msg->type == PL_MSG_PUSH && msg->u.push.fragment < c->fragment_count) {
        size_t at = (size_t)k->person * c->fragment_count + msg->u.push.fragment;
        c->headers[at] = (struct check_push){.header = msg->u.push, .incarnation = k->incarnation};
    }
}

static void note_verified(struct pl_checks *c, const struct check_shard *s, const struct pl_sync_event *ev)
{
    if (ev->u.verified.learner >= c->setup.learners_max || ev->u.verified.fragment >= c->fragment_count)
        return;
    uint32_t person = s->slot_person[ev->u.verified.learner];
    if (person == PL_NONE32)
        return;
    struct check_push *p = pl_check_push(c, person, ev->u.verified.fragment);
    if (ev->u.verified.good && p->header.round == ev->u.verified.round) {
        p->held = true;
        p->held_ns = ev->now_ns;
    }
}

void pl_check_books_event(struct pl_checks *c, uint32_t shard, const struct pl_sync_event *ev)
{
    struct check_shard *s = &c->shards[shard];
    s->msg_conn = PL_NONE32;
    if (ev->kind == PL_SYNC_EV_BOOT)
        s->tick_ns = ev->now_ns;
    else if (ev->kind == PL_SYNC_EV_OPENED)
        note_opened(c, s, ev);
    else if (ev->kind == PL_SYNC_EV_CLOSED)
        drop_conn(s, ev->u.closed.conn);
    else if (ev->kind == PL_SYNC_EV_VERIFIED)
        note_verified(c, s, ev);
    else if (ev->kind == PL_SYNC_EV_MSG) {
        s->msg_conn = ev->u.msg.conn;
        note_message(c, s, ev->u.msg.msg);
    }
}

static void note_send(struct check_shard *s, const struct pl_sync_effect *fx)
{
    if (fx->u.send.msg.type != PL_MSG_WELCOME)
        return;
    struct check_conn *k = &s->conns[fx->u.send.conn];
    s->closing = s->closing || fx->u.send.msg.u.welcome.phase > 0;
    k->incarnation = fx->u.send.msg.u.welcome.incarnation;
    if (k->person != PL_NONE32 && k->incarnation > s->incarnation[k->person])
        s->incarnation[k->person] = k->incarnation;
}

static void note_push(struct pl_checks *c, struct check_shard *s, const struct pl_sync_effect *fx)
{
    uint32_t slot = fx->u.push.learner, fragment = fx->u.push.fragment;
    uint32_t person =
        fx->kind == PL_SYNC_FX_KEEP ? pl_check_sender(c, (uint32_t)(s - c->shards)) : s->slot_person[slot];
    if (person == PL_NONE32 || fragment >= c->fragment_count)
        return;
    s->slot_person[slot] = person;
    struct check_push *p = pl_check_push(c, person, fragment);
    const struct check_push *h = &c->headers[(size_t)person * c->fragment_count + fragment];
    bool another = p->header.round != fx->u.push.round ||
                   (fx->kind == PL_SYNC_FX_VERIFY && p->header.digest != fx->u.push.digest);
    if (fx->kind == PL_SYNC_FX_DISCARD)
        *p = (struct check_push){0};
    else if (another)
        *p = *h;
}

static void note_store(struct pl_checks *c, struct check_shard *s, const struct pl_record *r)
{
    if (r->type == PL_RECORD_BOOT)
        s->epoch = r->epoch;
    if (r->type != PL_RECORD_ROUND || r->fragment >= c->fragment_count)
        return;
    uint64_t tokens = 0;
    for (uint32_t i = 0; i < r->contributor_count; i++)
        tokens += r->contributors[i].tokens;
    c->staged_tokens[r->fragment] = tokens;
}

void pl_check_books_effect(struct pl_checks *c, uint32_t shard, uint64_t now, const struct pl_sync_effect *fx)
{
    struct check_shard *s = &c->shards[shard];
    switch (fx->kind) {
    case PL_SYNC_FX_LISTEN:
        s->listening = true;
        break;
    case PL_SYNC_FX_SEND:
        note_send(s, fx);
        break;
    case PL_SYNC_FX_CLOSE:
        s->closed_person = s->conns[fx->u.close.conn].person;
        drop_conn(s, fx->u.close.conn);
        break;
    case PL_SYNC_FX_KEEP:
    case PL_SYNC_FX_VERIFY:
    case PL_SYNC_FX_DISCARD:
        note_push(c, s, fx);
        break;
    case PL_SYNC_FX_STORE:
        note_store(c, s, fx->u.store.record);
        break;
    case PL_SYNC_FX_PUBLISH:
        if (fx->u.publish.fragment < c->fragment_count) {
            c->fragments[fx->u.publish.fragment].version = fx->u.publish.version;
            c->merged_tokens[fx->u.publish.fragment] += c->staged_tokens[fx->u.publish.fragment];
            c->staged_tokens[fx->u.publish.fragment] = 0;
        }
        break;
    case PL_SYNC_FX_TRACE:
        if (fx->u.trace.code == PL_TRACE_SYNC_TICK) {
            s->tick = fx->u.trace.arg[0];
            s->tick_ns = now;
        } else if (fx->u.trace.code == PL_TRACE_SYNC_BOOT) {
            s->tick = fx->u.trace.arg[1];
        } else if (fx->u.trace.code == PL_TRACE_SYNC_CLOSING) {
            s->closing = true;
        }
        break;
    case PL_SYNC_FX_MERGE:
    case PL_SYNC_FX_DELIVER:
    case PL_SYNC_FX_FINISHED:
        break;
    }
}

void pl_check_books_recovered(struct pl_checks *c, uint32_t fragment, uint64_t version)
{
    if (version > c->fragments[fragment].version)
        c->merged_tokens[fragment] += c->staged_tokens[fragment];
    c->staged_tokens[fragment] = 0;
    c->fragments[fragment].version = version;
}

void pl_check_books_copied(struct pl_checks *c, uint32_t person, uint64_t process, uint32_t fragment,
                           uint64_t round, uint64_t digest, const struct pl_work *work)
{
    struct check_copies *k = &c->copies[(size_t)person * c->fragment_count + fragment];
    uint32_t i = k->next++ % CHECK_COPIES;
    k->at[i].round = round;
    k->at[i].digest = digest;
    k->at[i].process = process;
    k->at[i].work = *work;
}

const struct pl_work *pl_check_copy(const struct pl_checks *c, uint32_t person, uint32_t fragment,
                                    uint64_t round, uint64_t digest, uint64_t *process)
{
    const struct check_copies *k = &c->copies[(size_t)person * c->fragment_count + fragment];
    uint32_t n = k->next < CHECK_COPIES ? k->next : CHECK_COPIES;
    for (uint32_t i = 1; i <= n; i++) {
        uint32_t at = (k->next - i) % CHECK_COPIES;
        if (k->at[at].round != round || k->at[at].digest != digest)
            continue;
        if (process != NULL)
            *process = k->at[at].process;
        return &k->at[at].work;
    }
    return NULL;
}
