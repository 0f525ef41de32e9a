/* host/door_desk.h - what the door writes down, off the loop's thread.
 *
 * An enrolment or an invitation is answered once the list of invitations is on disk. Whoever comes while it is being written
 * waits for the next writing, which is for all who wait: a rush costs a few syncs of the disk, and the loop none. Certificates
 * are made there, too.
 */
#ifndef PL_HOST_DOOR_DESK_H
#define PL_HOST_DOOR_DESK_H

#include "host/door_list.h"
#include "host/work.h"

/* Somebody who waits for an answer. */
struct pl_slip {
    struct pl_slip *next;
    void *who;            /* as the host calls him; NULL: he has gone */
    struct pl_conn *conn; /* his */
    struct pl_peer peer;
    bool listed;    /* the list goes to disk first; otherwise a certificate is made, and nothing is written */
    bool certifies; /* a certificate is wanted; otherwise an invitation has been made */
    uint64_t token; /* number of the invitation that was used, or made; 0: a renewal */
    struct pl_grant grant;
    uint32_t len;
    uint8_t bytes[PL_CERTIFICATE_BYTES_MAX]; /* the request, then the certificate; or the new invitation */
    enum pelago_status status;               /* LIMIT: the list cannot be written */
    struct pl_error err;
};

struct pl_desk_options {
    uv_loop_t *loop;                   /* borrowed, like everything here */
    const struct pl_alloc *alloc;      /* used from the worker, too */
    struct pl_posix_dir *dir, *mirror; /* mirror: may be NULL. Nobody else uses them while the loop runs */
    const struct pl_credentials *ca;
    const struct pl_invitations *list;
    void (*answer)(void *user,
                   const struct pl_slip *s); /* on the loop's thread, in the order of pl_desk_add */
    void (*idle)(void *user);                /* nobody waits; may release the desk */
    void *user;
};

struct pl_desk {
    struct pl_job job; /* first: it is what the worker gets */
    struct pl_desk_options o;
    struct pl_invitations copy; /* what is being written */
    struct pl_slip *waiting, *last, *writing, *telling;
    uint32_t count; /* of those who wait to be written or told */
    bool busy;
    enum pelago_status status; /* of this writing */
    struct pl_error err;
};

void pl_desk_init(struct pl_desk *k, const struct pl_desk_options *o);
void pl_desk_release(struct pl_desk *k); /* not while it is busy */

enum { PL_SLIPS_MAX = 4096 }; /* who waits, at once */
/* NULL: there is no memory, or too many wait already. One that is not added is freed. */
struct pl_slip *pl_slip_new(const struct pl_desk *k);
void pl_slip_free(const struct pl_desk *k, struct pl_slip *s);
/* The list is as it should be written; the answer comes later. s is the desk's from here on. */
void pl_desk_add(struct pl_desk *k, struct pl_slip *s);
/* His connection is gone: nobody is to be told. */
void pl_desk_forget(struct pl_desk *k, const void *who);
/* At once, on this thread; LIMIT while the desk is busy. */
enum pelago_status pl_desk_write(const struct pl_desk *k, struct pl_error *err);

#endif
