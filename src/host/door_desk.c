/* host/door_desk.c - see door_desk.h. */
#include "host/door_desk.h"

#include "base/check.h"

#include <string.h>

void pl_desk_init(struct pl_desk *k, const struct pl_desk_options *o)
{
    *k = (struct pl_desk){.o = *o};
    pl_invitations_init(&k->copy, o->alloc);
}

void pl_desk_release(struct pl_desk *k)
{
    pl_assert(!k->busy && k->waiting == NULL);
    pl_invitations_release(&k->copy);
}

struct pl_slip *pl_slip_new(const struct pl_desk *k)
{
    return k->count >= PL_SLIPS_MAX ? NULL : pl_alloc_zero(k->o.alloc, 1, sizeof(struct pl_slip));
}

void pl_slip_free(const struct pl_desk *k, struct pl_slip *s)
{
    pl_alloc_free(k->o.alloc, s, sizeof *s);
}

static enum pelago_status write_list(const struct pl_desk *k, const struct pl_invitations *list,
                                     struct pl_error *err)
{
    if (k->o.mirror != NULL)
        PL_TRY(pl_invitations_save(list, k->o.mirror, k->o.alloc, err));
    return pl_invitations_save(list, k->o.dir, k->o.alloc, err);
}

enum pelago_status pl_desk_write(const struct pl_desk *k, struct pl_error *err)
{
    if (k->busy)
        return pl_fail(err, PELAGO_LIMIT, "the list of invitations is just being written; try again");
    return write_list(k, k->o.list, err);
}

/* ---- the worker ---- */

static void certify(const struct pl_desk *k, struct pl_slip *s)
{
    uint8_t certificate[PL_CERTIFICATE_BYTES_MAX];
    s->status =
        pl_pki_issue(k->o.ca, s->bytes, s->len, &s->grant, certificate, sizeof certificate, &s->len, &s->err);
    if (s->status == PELAGO_OK)
        memcpy(s->bytes, certificate, s->len);
}

static void run(struct pl_job *job)
{
    struct pl_desk *k = (struct pl_desk *)job;
    bool listed = false;
    for (const struct pl_slip *s = k->writing; s != NULL; s = s->next)
        listed = listed || s->listed;
    if (listed && k->status == PELAGO_OK)
        k->status = write_list(k, &k->copy, &k->err);
    for (struct pl_slip *s = k->writing; s != NULL; s = s->next) {
        if (s->listed && k->status != PELAGO_OK)
            s->status = pl_fail(&s->err, PELAGO_LIMIT, "%s", k->err.text);
        else if (s->certifies)
            certify(k, s);
    }
}

/* ---- the loop's thread ---- */

static void done(struct pl_job *job);

static void begin(struct pl_desk *k)
{
    k->busy = true;
    k->writing = k->waiting;
    k->waiting = k->last = NULL;
    k->status = pl_invitations_copy(&k->copy, k->o.list, &k->err);
    k->job = (struct pl_job){.run = run, .done = done};
    pl_work_start(k->o.loop, &k->job);
}

/* The next writing begins before these are told, who may come back at once. */
static void done(struct pl_job *job)
{
    struct pl_desk *k = (struct pl_desk *)job;
    k->telling = k->writing;
    k->writing = NULL;
    k->busy = false;
    if (k->waiting != NULL)
        begin(k);
    while (k->telling != NULL) {
        struct pl_slip *s = k->telling;
        k->telling = s->next;
        k->count--;
        k->o.answer(k->o.user, s);
        pl_slip_free(k, s);
    }
    if (!k->busy)
        k->o.idle(k->o.user);
}

void pl_desk_add(struct pl_desk *k, struct pl_slip *s)
{
    s->next = NULL;
    k->count++;
    if (k->last != NULL)
        k->last->next = s;
    else
        k->waiting = s;
    k->last = s;
    if (!k->busy)
        begin(k);
}

static void forget(struct pl_slip *first, const void *who)
{
    for (struct pl_slip *s = first; s != NULL; s = s->next)
        if (s->who == who) {
            s->who = NULL;
            s->conn = NULL;
        }
}

void pl_desk_forget(struct pl_desk *k, const void *who)
{
    forget(k->waiting, who);
    forget(k->writing, who);
    forget(k->telling, who);
}
