/* host/learner_door.c - what a running learner asks at the door: a new certificate before the old one is out,
 * and where the shards are. Both block, so both run on a worker, one at a time. */
#include "host/learner_host_int.h"

#include "base/check.h"
#include "host/door.h"
#include "os/clock.h"

#include <jansson.h>
#include <string.h>

#define PATIENCE_NS (3 * PL_SEC)     /* so that leaving never waits longer */
#define RENEW_PAUSE_NS (60 * PL_SEC) /* between two attempts */
enum {
    ANSWER_BYTES_MAX = 64 << 10,
    SENT_AWAY = 2,
    SKEWED = 60, /* pauses, where by our own clock no certificate is ever valid */
};

bool pl_lhost_door_init(struct pl_learner_host *h)
{
    h->door = pl_alloc_zero(&h->alloc, 1, sizeof *h->door);
    if (h->door == NULL)
        return false;
    h->door->h = h;
    h->door->life_s = pl_pki_seconds_left(&h->own);
    pl_buf_init(&h->door->answer, &h->alloc, ANSWER_BYTES_MAX);
    return true;
}

void pl_lhost_door_release(struct pl_learner_host *h)
{
    if (h->door == NULL)
        return;
    pl_assert(!h->door->busy);
    pl_buf_release(&h->door->answer);
    memset(&h->door->own, 0, sizeof h->door->own);
    pl_alloc_free(&h->alloc, h->door, sizeof *h->door);
    h->door = NULL;
}

/* ---- addresses ---- */

/* {"addresses": ["host:port", ...]} by number of the shard; "" where one has not told its own yet. */
static void read_addresses(struct pl_learner_host *h, const struct pl_buf *text)
{
    json_t *root = json_loadb((const char *)text->data, text->len, 0, NULL);
    json_t *list = json_object_get(root, "addresses");
    for (uint32_t i = 1; i < h->settings.shards; i++) {
        const char *at = json_string_value(json_array_get(list, i));
        size_t len = at != NULL ? strlen(at) : 0;
        if (len > 0 && len < sizeof h->shards[i].address)
            memcpy(h->shards[i].address, at, len + 1);
    }
    json_decref(root);
}

static void run(struct pl_job *job);
static void done(struct pl_job *job);

static void begin(struct pl_ldoor *d, bool asking)
{
    d->busy = true;
    d->asking = asking;
    d->own = d->h->own;
    d->answer.len = 0;
    d->job.run = run;
    d->job.done = done;
    pl_lhost_job(d->h, asking ? NULL : &d->h->disking, &d->job);
}

void pl_lhost_door_addresses(struct pl_learner_host *h)
{
    h->door->ask_due = true;
    if (!h->door->busy)
        begin(h->door, true);
}

/* ---- the certificate ---- */

void pl_lhost_door_closed(struct pl_learner_host *h, bool sent_away)
{
    h->door->sent_away = sent_away ? h->door->sent_away + 1 : 0;
}

void pl_lhost_door_tick(struct pl_learner_host *h)
{
    struct pl_ldoor *d = h->door;
    uint64_t now = pl_clock_ns();
    uint64_t left = pl_pki_seconds_left(&h->own);
    bool skewed = d->renewed && d->life_s == 0;
    /* By a clock that is behind it never runs out: the syncer's, which counts, may say otherwise. */
    bool run_out = left == 0 || d->sent_away >= SENT_AWAY;
    if (d->busy || h->over || (left > d->life_s / 2 && !run_out) ||
        (d->tried_ns != 0 && now - d->tried_ns < (skewed ? SKEWED : 1) * RENEW_PAUSE_NS) ||
        (!run_out && !pl_learner_live(h->core, 0))) /* one that has run out opens nothing but the door */
        return;
    d->sent_away = 0;
    d->tried_ns = now;
    begin(d, false);
}

static void run(struct pl_job *job)
{
    struct pl_ldoor *d = (struct pl_ldoor *)job;
    const struct pl_question q = {.what = PL_ASK_ADDRESSES};
    struct pl_learner_host *h = d->h;
    if (d->asking) {
        d->status = pl_door_ask(&h->alloc, h->address, &d->own, &q, PATIENCE_NS, &d->answer, &d->err);
        return;
    }
    d->status = pl_door_renew(&h->alloc, h->address, PATIENCE_NS, &d->own, &d->err);
    if (d->status == PELAGO_OK)
        d->status = pl_home_save_credentials(h->disk, "credentials", &d->own, &d->err);
}

static void done(struct pl_job *job)
{
    struct pl_ldoor *d = (struct pl_ldoor *)job;
    struct pl_learner_host *h = d->h;
    d->busy = false;
    if (d->asking) {
        d->ask_due = false;
        if (d->status == PELAGO_OK)
            read_addresses(h, &d->answer);
        if (!h->over)
            pl_lhost_links_addressed(h);
    } else if (d->status == PELAGO_OK) {
        h->own = d->own; /* connections that come use it */
        d->life_s = pl_pki_seconds_left(&h->own);
        d->renewed = true;
        pl_lhost_log(h, "the certificate is renewed");
    } else {
        pl_lhost_log(h, "the certificate could not be renewed yet: %s", d->err.text);
    }
    if (d->ask_due && !h->over)
        begin(d, true);
    pl_lhost_job_done(h);
}
