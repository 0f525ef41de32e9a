/* host/door_keeper.c - questions and enrolment; see door_keeper.h. The list of invitations is in door_list.c, what writes it in
 * door_desk.c. */
#include "host/door_desk.h"

#include "base/check.h"
#include "base/fmt.h"
#include "host/rate.h"
#include "os/clock.h"
#include "train/files.h"
#include "train/json.h"

#include <string.h>

#define MINUTE_NS (60 * PL_SEC)
#define DAY_S UINT64_C(86400)

/* Who failed lately. */
struct failures {
    char address[PL_ADDRESS_MAX]; /* without the port; "": free */
    uint64_t since_ns;
    uint32_t count;
};

enum {
    REFUSALS_SAID = 20,
    ASKERS = 4096, /* identities this far apart share a rate */
};
#define TOLD_NS PL_SEC /* members other than the operator are told the same for so long */

struct pl_door_keeper {
    struct pl_door_options o;
    struct pl_credentials ca;
    char shard_address[PL_SHARDS_MAX][PL_ADDRESS_MAX];
    struct pl_invitations list;
    struct pl_desk desk;
    struct failures failures[PL_DOOR_ADDRESSES_MAX];
    struct pl_rate asked[ASKERS]; /* questions for the status, by identity */
    struct pl_buf told;           /* the status, as members other than the operator got it last */
    uint64_t told_ns;             /* 0: never */
    struct pl_rate said; /* lines about refusals: who asks for nothing but them must not fill the disk */
    struct pl_door_view view;
};

/* ---- life ---- */

static void on_written(void *user, const struct pl_slip *s);

static void on_idle(void *user)
{
    struct pl_door_keeper *d = user;
    d->o.host.idle(d->o.host.user);
}

static void open_desk(struct pl_door_keeper *d)
{
    const struct pl_desk_options o = {.loop = d->o.loop,
                                      .alloc = d->o.alloc,
                                      .dir = d->o.list_dir,
                                      .mirror = d->o.mirror,
                                      .ca = &d->ca,
                                      .list = &d->list,
                                      .answer = on_written,
                                      .idle = on_idle,
                                      .user = d};
    pl_desk_init(&d->desk, &o);
}

enum pelago_status pl_door_keeper_new(struct pl_door_keeper **out, const struct pl_door_options *o,
                                      struct pl_error *err)
{
    struct pl_door_keeper *d = pl_alloc_zero(o->alloc, 1, sizeof *d);
    *out = NULL;
    if (d == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for the list of invitations");
    d->o = *o;
    d->ca = *o->ca;
    (void)pl_fmt(d->shard_address[0], sizeof d->shard_address[0], "%s", o->address);
    if (d->o.certificate_s == 0)
        d->o.certificate_s = DAY_S;
    pl_buf_init(&d->told, o->alloc, PL_CHUNK_BYTES_MAX);
    open_desk(d);
    enum pelago_status st = pl_invitations_load(&d->list, o->dir, o->alloc, err);
    if (st != PELAGO_OK) {
        pl_door_keeper_free(d);
        return st;
    }
    *out = d;
    return PELAGO_OK;
}

void pl_door_keeper_free(struct pl_door_keeper *d)
{
    if (d == NULL)
        return;
    pl_desk_release(&d->desk);
    pl_buf_release(&d->told);
    pl_invitations_release(&d->list);
    pl_alloc_free(d->o.alloc, d, sizeof *d);
}

bool pl_door_keeper_busy(const struct pl_door_keeper *d)
{
    return d != NULL && d->desk.busy;
}

void pl_door_keeper_forget(struct pl_door_keeper *d, const void *who)
{
    if (d != NULL)
        pl_desk_forget(&d->desk, who);
}

void pl_door_keeper_met(struct pl_door_keeper *d, uint64_t identity)
{
    if (d != NULL)
        pl_invitations_met(&d->list, identity);
}

void pl_door_keeper_view(const struct pl_door_keeper *d, struct pl_door_view *out)
{
    *out = d->view;
    out->invitations = d->list.count;
    out->identities = d->list.next_identity - 1;
}

const char *pl_door_keeper_shard_address(const struct pl_door_keeper *d, uint32_t shard)
{
    pl_assert(shard < PL_SHARDS_MAX);
    return d->shard_address[shard];
}

/* ---- who fails too often ---- */

static void host_of(const char *address, char out[static PL_ADDRESS_MAX])
{
    (void)pl_fmt(out, PL_ADDRESS_MAX, "%s", address);
    char *colon = strrchr(out, ':');
    if (colon != NULL)
        *colon = '\0';
}

static struct failures *failures_of(struct pl_door_keeper *d, const char *host, uint64_t now_ns, bool make)
{
    struct failures *oldest = &d->failures[0];
    for (uint32_t i = 0; i < PL_DOOR_ADDRESSES_MAX; i++) {
        struct failures *f = &d->failures[i];
        if (f->address[0] != '\0' && now_ns - f->since_ns >= MINUTE_NS)
            f->address[0] = '\0';
        if (strcmp(f->address, host) == 0)
            return f;
        if (oldest->address[0] != '\0' && (f->address[0] == '\0' || f->since_ns < oldest->since_ns))
            oldest = f;
    }
    if (!make)
        return NULL;
    *oldest = (struct failures){.since_ns = now_ns};
    (void)pl_fmt(oldest->address, sizeof oldest->address, "%s", host);
    return oldest;
}

static bool too_often(struct pl_door_keeper *d, const char *host, uint64_t now_ns)
{
    const struct failures *f = failures_of(d, host, now_ns, false);
    return f != NULL && f->count >= PL_DOOR_FAILURES_MAX;
}

/* ---- answering ---- */

enum reply {
    ANSWERED,
    REFUSED, /* a REFUSE is on its way */
    LATER,   /* answered() follows, and nothing is read meanwhile */
};

struct caller {
    struct pl_conn *conn;
    const struct pl_peer *peer;
    void *who;
    uint64_t now_ns;
};

static void log_line(struct pl_door_keeper *d, const char *format, ...)
{
    char line[2 * PL_TEXT_MAX + PL_ADDRESS_MAX];
    va_list args;
    va_start(args, format);
    (void)pl_vfmt(line, sizeof line, format, args);
    va_end(args);
    if (d->o.host.log != NULL)
        d->o.host.log(d->o.host.user, line);
}

static void say_refused(struct pl_door_keeper *d, const struct caller *c, const char *text)
{
    if (!pl_rate_ok(&d->said, c->now_ns, REFUSALS_SAID))
        return;
    uint32_t more = pl_rate_dropped(&d->said);
    if (more > 0)
        log_line(d, "door.refused %u more before this", more);
    log_line(d, "door.refused address=%s identity=%lu: %s", c->peer->address, c->peer->identity, text);
}

static enum reply refuse(struct pl_door_keeper *d, const struct caller *c, enum pl_reason reason,
                         const char *text)
{
    struct pl_blob blob = {(const uint8_t *)text, (uint32_t)strlen(text)};
    struct pl_msg msg = {.type = PL_MSG_REFUSE, .u.refuse = {.code = reason, .text = blob}};
    d->view.refused++;
    say_refused(d, c, text);
    (void)pl_conn_send(c->conn, &msg);
    return REFUSED;
}

static enum reply reply(const struct caller *c, const struct pl_msg *msg)
{
    return pl_conn_send(c->conn, msg) ? ANSWERED : REFUSED;
}

static enum reply answer(const struct caller *c, uint32_t what, const void *bytes, size_t len)
{
    struct pl_msg msg = {.type = PL_MSG_ANSWER, .u.answer = {.what = what, .bytes = {bytes, (uint32_t)len}}};
    return reply(c, &msg);
}

static struct pl_slip *slip_of(const struct pl_door_keeper *d, const struct caller *c)
{
    struct pl_slip *s = pl_slip_new(&d->desk);
    if (s != NULL) {
        s->who = c->who;
        s->conn = c->conn;
        s->peer = *c->peer;
    }
    return s;
}

static enum reply no_memory(struct pl_door_keeper *d, const struct caller *c)
{
    return refuse(d, c, PL_REASON_FULL, "the syncer has no memory for an answer now; try later");
}

/* ---- enrolment ---- */

static struct pl_slip *enrol_slip(const struct pl_door_keeper *d, const struct caller *c,
                                  const struct pl_msg_enrol *e)
{
    struct pl_slip *s = slip_of(d, c);
    if (s == NULL)
        return NULL;
    pl_assert(e->request.len <= sizeof s->bytes);
    s->certifies = true;
    s->token = e->token;
    s->len = e->request.len;
    if (s->len > 0)
        memcpy(s->bytes, e->request.data, s->len);
    return s;
}

/* The certificate is made by a worker, where it is listed after the list is on disk. */
static enum reply give(struct pl_door_keeper *d, struct pl_slip *s, const struct pl_grant *grant, bool listed)
{
    s->grant = *grant;
    s->grant.seconds = d->o.certificate_s;
    s->listed = listed;
    pl_desk_add(&d->desk, s);
    return LATER;
}

static enum reply renew(struct pl_door_keeper *d, const struct caller *c, const struct pl_msg_enrol *e)
{
    if (c->peer->role == PL_ROLE_NONE)
        return refuse(d, c, PL_REASON_DENIED,
                      "a certificate is renewed by whoever shows it; without one, enrol with a token");
    const struct pl_grant grant = {
        .role = c->peer->role, .identity = c->peer->identity, .shard = c->peer->shard};
    struct pl_slip *s = enrol_slip(d, c, e);
    return s != NULL ? give(d, s, &grant, false) : no_memory(d, c);
}

static enum reply failed_try(struct pl_door_keeper *d, const struct caller *c, const char *host,
                             const char *why)
{
    failures_of(d, host, c->now_ns, true)->count++;
    return refuse(d, c, PL_REASON_DENIED, why);
}

static enum reply tell_enrolled(struct pl_door_keeper *d, const struct caller *c, const struct pl_slip *s)
{
    if (s->status == PELAGO_LIMIT)
        return refuse(
            d, c, PL_REASON_FULL,
            "the syncer cannot write down a new identity now: its disk is full or failing; try later");
    if (s->status != PELAGO_OK)
        return refuse(d, c, PL_REASON_BAD_MESSAGE, s->err.text);
    const struct pl_msg msg = {.type = PL_MSG_ENROLLED,
                               .u.enrolled = {.identity = s->grant.identity,
                                              .time_s = pl_date_s(),
                                              .certificate = {s->bytes, s->len}}};
    return reply(c, &msg);
}

static enum reply tell_invited(struct pl_door_keeper *d, const struct caller *c, const struct pl_slip *s)
{
    return s->status == PELAGO_OK ? answer(c, PL_ASK_INVITE, s->bytes, s->len)
                                  : refuse(d, c, PL_REASON_FULL, s->err.text);
}

static void note_written(struct pl_door_keeper *d, const struct caller *c, const struct pl_slip *s)
{
    if (s->status == PELAGO_LIMIT && pl_rate_ok(&d->said, c->now_ns, REFUSALS_SAID))
        log_line(d, "door.failed: %s", s->err.text);
    if (s->status != PELAGO_OK && !s->certifies)
        pl_invitations_drop(&d->list, s->token); /* nobody has it */
    if (s->status != PELAGO_OK || !s->certifies)
        return;
    if (s->token == 0)
        d->view.renewed++;
    if (s->token == 0 || !pl_invitations_written(&d->list, s->grant.identity))
        return;
    d->view.enrolled++;
    log_line(d, "door.enrolled address=%s identity=%lu role=%u token=%lu", s->peer.address, s->grant.identity,
             (unsigned)s->grant.role, s->token);
}

static void on_written(void *user, const struct pl_slip *s)
{
    struct pl_door_keeper *d = user;
    const struct caller c = {s->conn, &s->peer, s->who, pl_clock_ns()};
    note_written(d, &c, s);
    if (s->who == NULL)
        return;
    bool good = (s->certifies ? tell_enrolled(d, &c, s) : tell_invited(d, &c, s)) == ANSWERED;
    d->o.host.answered(d->o.host.user, s->who, good);
    if (good)
        pl_conn_pause(s->conn, false);
}

/* Somebody who was given this before (and perhaps not told), or a new identity: written down before it is told. */
static enum reply admit(struct pl_door_keeper *d, const struct caller *c, const struct pl_msg_enrol *e,
                        const struct pl_grant *before, struct pl_invitation *inv,
                        const uint8_t request_sha256[static PL_SHA256_BYTES])
{
    struct pl_slip *s = enrol_slip(d, c, e);
    if (s == NULL)
        return no_memory(d, c);
    return give(d, s, before != NULL ? before : pl_invitations_use(&d->list, inv, request_sha256, e->shard),
                true);
}

static enum reply enrol(struct pl_door_keeper *d, const struct caller *c, const struct pl_msg_enrol *e)
{
    char host[PL_ADDRESS_MAX];
    uint8_t request_sha256[PL_SHA256_BYTES];
    host_of(c->peer->address, host);
    if (too_often(d, host, c->now_ns))
        return refuse(d, c, PL_REASON_DENIED,
                      "too many tokens from this address were wrong; try again in a minute");
    if (e->secret.len != PL_SECRET_BYTES)
        return failed_try(d, c, host, "the token is wrong: its secret has another length");
    struct pl_invitation *inv;
    const char *why = pl_invitations_match(&d->list, e->token, e->secret.data, pl_date_s(), &inv);
    pl_sha256(e->request.data, e->request.len, request_sha256);
    const struct pl_grant *before =
        inv == NULL ? NULL : pl_invitations_given(&d->list, e->token, request_sha256);
    if (before != NULL)
        return admit(d, c, e, before, NULL, request_sha256);
    if (why != NULL)
        return failed_try(d, c, host, why);
    pl_assert(inv != NULL);
    if ((enum pl_role)e->role != inv->role)
        return refuse(d, c, PL_REASON_DENIED,
                      inv->role == PL_ROLE_LEARNER ? "the token is for learners only"
                      : inv->role == PL_ROLE_SHARD ? "the token is for shards of the syncer only"
                                                   : "the token is for operators only");
    if (e->role == PL_ROLE_SHARD && (e->shard == 0 || e->shard >= d->o.shards))
        return refuse(d, c, PL_REASON_BAD_MESSAGE,
                      "there is no such shard in this run; shard 0 is the one you asked");
    return admit(d, c, e, NULL, inv, request_sha256);
}

/* ---- questions ---- */

static bool is_operator(const struct pl_peer *p)
{
    return p->role == PL_ROLE_OPERATOR || (p->role == PL_ROLE_SHARD && p->shard == 0);
}

static enum reply answer_file(struct pl_door_keeper *d, const struct caller *c, uint32_t what,
                              const char *name)
{
    struct pl_buf text;
    struct pl_error err;
    pl_buf_init(&text, d->o.alloc, PL_CHUNK_BYTES_MAX);
    enum pelago_status st = pl_home_read(d->o.dir, name, &text, &err);
    enum reply r = st == PELAGO_OK || (st == PELAGO_NOTFOUND && what == PL_ASK_TOKENIZER)
                       ? answer(c, what, text.data, text.len)
                       : refuse(d, c, PL_REASON_FULL, err.text);
    pl_buf_release(&text);
    return r;
}

static enum reply no_status(struct pl_door_keeper *d, const struct caller *c)
{
    return refuse(d, c, PL_REASON_FULL, "the syncer has no memory for its status now");
}

static enum reply tell_operator(struct pl_door_keeper *d, const struct caller *c)
{
    struct pl_buf text;
    pl_buf_init(&text, d->o.alloc, PL_CHUNK_BYTES_MAX);
    enum reply r = d->o.host.status(d->o.host.user, true, &text) == PELAGO_OK
                       ? answer(c, PL_ASK_STATUS, text.data, text.len)
                       : no_status(d, c);
    pl_buf_release(&text);
    return r;
}

/* It is made once a second at most, however many ask. */
static enum reply tell_member(struct pl_door_keeper *d, const struct caller *c)
{
    if (!pl_rate_ok(&d->asked[c->peer->identity % ASKERS], c->now_ns, PL_DOOR_STATUS_MAX))
        return refuse(d, c, PL_REASON_DENIED,
                      "a member may ask for the status twice a second; ask more slowly");
    if (d->told_ns == 0 || c->now_ns - d->told_ns >= TOLD_NS) {
        d->told.len = 0;
        d->told_ns = d->o.host.status(d->o.host.user, false, &d->told) == PELAGO_OK ? c->now_ns : 0;
    }
    return d->told_ns != 0 ? answer(c, PL_ASK_STATUS, d->told.data, d->told.len) : no_status(d, c);
}

/* ["host:port", ...] by shard; "" for one that has not announced itself. */
static enum reply answer_addresses(struct pl_door_keeper *d, const struct caller *c)
{
    struct pl_buf text;
    json_t *list = json_array();
    bool good = list != NULL;
    for (uint32_t i = 0; i < d->o.shards && good; i++)
        good = json_array_append_new(list, json_string(d->shard_address[i])) == 0;
    pl_buf_init(&text, d->o.alloc, PL_CHUNK_BYTES_MAX);
    json_t *root = json_object();
    good = good && root != NULL && json_object_set(root, "addresses", list) == 0 &&
           pl_json_print(root, 17, &text) == PELAGO_OK;
    enum reply r = good ? answer(c, PL_ASK_ADDRESSES, text.data, text.len) : no_memory(d, c);
    json_decref(list);
    json_decref(root);
    pl_buf_release(&text);
    return r;
}

static enum reply announce(struct pl_door_keeper *d, const struct caller *c, const struct pl_msg_ask *a)
{
    uint32_t shard = c->peer->shard;
    if (c->peer->role != PL_ROLE_SHARD || shard >= d->o.shards)
        return refuse(d, c, PL_REASON_DENIED, "only a shard of this run announces an address");
    if (a->text.len == 0 || a->text.len >= PL_ADDRESS_MAX)
        return refuse(d, c, PL_REASON_BAD_MESSAGE, "the address to announce is empty or too long");
    char text[PL_ADDRESS_MAX];
    memcpy(text, a->text.data, a->text.len);
    text[a->text.len] = '\0';
    struct pl_error err;
    /* It goes into the log, and to every learner's dialler. */
    if (pl_address_dialable(text, &err) != PELAGO_OK)
        return refuse(d, c, PL_REASON_BAD_MESSAGE, err.text);
    if (strcmp(text, d->shard_address[shard]) != 0)
        log_line(d, "shard.address shard=%u address=%s", shard, text);
    memcpy(d->shard_address[shard], text, sizeof text);
    return answer(c, PL_ASK_ANNOUNCE, NULL, 0);
}

/* Checks, and adds to the list in memory. */
static enum pelago_status make_invitation(struct pl_door_keeper *d, enum pl_role role, uint64_t uses,
                                          uint64_t seconds, char out[static PL_TOKEN_TEXT_MAX],
                                          uint64_t *number, struct pl_error *err)
{
    struct pl_token token = {.number = 0};
    if (role < PL_ROLE_LEARNER || role > PL_ROLE_OPERATOR)
        return pl_fail(err, PELAGO_INVALID,
                       "an invitation is for a learner (1), a shard (2) or an operator (3)");
    if (uses == 0)
        return pl_fail(err, PELAGO_INVALID, "an invitation must be good for at least one use");
    if (strlen(d->shard_address[0]) >= sizeof token.address)
        return pl_fail(err, PELAGO_INVALID, "the syncer's address is too long for a token");
    (void)pl_fmt(token.address, sizeof token.address, "%s", d->shard_address[0]);
    memcpy(token.fingerprint, d->ca.fingerprint, sizeof token.fingerprint);
    pl_random(token.secret, sizeof token.secret);
    uint64_t now = pl_date_s();
    uint64_t expires = seconds == 0 ? 0 : seconds > PL_COUNT_MAX - now ? 0 : now + seconds;
    PL_TRY(pl_invitations_add(&d->list, role, uses, expires, token.secret, now, &token.number, err));
    *number = token.number;
    pl_token_print(&token, out);
    return PELAGO_OK;
}

static enum reply invite(struct pl_door_keeper *d, const struct caller *c, const struct pl_msg_ask *a)
{
    char token[PL_TOKEN_TEXT_MAX];
    struct pl_error err;
    struct pl_slip *s = slip_of(d, c);
    if (s == NULL)
        return no_memory(d, c);
    if (make_invitation(d, (enum pl_role)a->role, a->uses, a->seconds, token, &s->token, &err) != PELAGO_OK) {
        pl_slip_free(&d->desk, s);
        return refuse(d, c, PL_REASON_BAD_MESSAGE, err.text);
    }
    log_line(d, "door.invited by=%lu role=%u uses=%lu seconds=%lu", c->peer->identity, (unsigned)a->role,
             a->uses, a->seconds);
    s->listed = true;
    s->len = (uint32_t)strlen(token);
    memcpy(s->bytes, token, s->len);
    pl_desk_add(&d->desk, s);
    return LATER;
}

static enum reply ask(struct pl_door_keeper *d, const struct caller *c, const struct pl_msg_ask *a)
{
    if (c->peer->role == PL_ROLE_NONE)
        return refuse(d, c, PL_REASON_DENIED, "only members of the run may ask; enrol with a token first");
    if ((a->what == PL_ASK_INVITE || a->what == PL_ASK_FINISH) && !is_operator(c->peer))
        return refuse(d, c, PL_REASON_DENIED,
                      "only an operator may invite others or end the run; ask whoever runs the syncer");
    switch (a->what) {
    case PL_ASK_SETTINGS:
        return answer_file(d, c, a->what, "settings.json");
    case PL_ASK_TOKENIZER:
        return answer_file(d, c, a->what, "tokenizer.json");
    case PL_ASK_STATUS:
        return is_operator(c->peer) ? tell_operator(d, c) : tell_member(d, c);
    case PL_ASK_INVITE:
        return invite(d, c, a);
    case PL_ASK_FINISH:
        log_line(d, "run.finish asked by=%lu address=%s", c->peer->identity, c->peer->address);
        d->o.host.finish(d->o.host.user);
        return answer(c, PL_ASK_FINISH, NULL, 0);
    case PL_ASK_ADDRESSES:
        return answer_addresses(d, c);
    case PL_ASK_ANNOUNCE:
        return announce(d, c, a);
    default:
        return refuse(d, c, PL_REASON_BAD_MESSAGE, "the question is not known here; update the syncer");
    }
}

static enum reply message(struct pl_door_keeper *d, const struct caller *c, const struct pl_msg *msg)
{
    if (msg->type == PL_MSG_ASK)
        return ask(d, c, &msg->u.ask);
    pl_assert(msg->type == PL_MSG_ENROL);
    return msg->u.enrol.token == 0 ? renew(d, c, &msg->u.enrol) : enrol(d, c, &msg->u.enrol);
}

bool pl_door_keeper_answer(struct pl_door_keeper *d, struct pl_conn *conn, const struct pl_peer *peer,
                           void *who, const struct pl_msg *msg, uint64_t now_ns)
{
    const struct caller c = {conn, peer, who, now_ns};
    enum reply r = message(d, &c, msg);
    if (r == LATER)
        pl_conn_pause(conn, true);
    return r != REFUSED;
}

enum pelago_status pl_door_keeper_invite(struct pl_door_keeper *d, enum pl_role role, uint64_t uses,
                                         uint64_t seconds, char out[static PL_TOKEN_TEXT_MAX],
                                         struct pl_error *err)
{
    uint64_t number;
    PL_TRY(make_invitation(d, role, uses, seconds, out, &number, err));
    enum pelago_status st = pl_desk_write(&d->desk, err);
    if (st != PELAGO_OK)
        pl_invitations_drop(&d->list, number);
    return st;
}

enum pelago_status pl_door_keeper_create(struct pl_posix_dir *dir, const struct pl_alloc *alloc,
                                         struct pl_error *err)
{
    struct pl_invitations list;
    pl_invitations_init(&list, alloc);
    enum pelago_status st = pl_invitations_save(&list, dir, alloc, err);
    pl_invitations_release(&list);
    return st;
}
