/* host/syncer_shard.c - a shard that is not home stays in touch with home: where it is, and a certificate that is valid.
 *
 * Both are questions at home's door (host/door.h), asked by a worker, now and then. Home may be down: this shard goes on
 * without it, and says so once.
 */
#include "host/syncer_host_int.h"

#include "base/check.h"
#include "os/clock.h"

#include <string.h>

#define EVERY_NS (60 * PL_SEC)
#define RETRY_NS (5 * PL_SEC)
#define PATIENCE_NS (10 * PL_SEC)
enum { RENEW_BELOW_S = 43200 };

struct pl_announcer {
    struct pl_job job;
    struct pl_syncer_host *h;
    char home[PL_ADDRESS_MAX], address[PL_ADDRESS_MAX];
    struct pl_credentials own; /* the job's copy */
    uint64_t next_ns;
    bool busy, renewed, failing, good;
    struct pl_error why;
};

static enum pelago_status read_home(struct pl_announcer *a, struct pl_error *err)
{
    const char *told = a->h->o.home;
    if (told != NULL)
        PL_TRY(pl_home_write(a->h->dir, "home", (struct pl_bytes){told, strlen(told)}, false, err));
    if (pl_home_read_address(a->h->dir, &a->h->alloc, "home", a->home, NULL) != PELAGO_OK)
        return pl_fail(err, PELAGO_INVALID,
                       "the file home in %s does not say where the home shard is: start once with --home "
                       "HOST:PORT",
                       a->h->folder);
    return PELAGO_OK;
}

enum pelago_status pl_announcer_new(struct pl_syncer_host *h, struct pl_error *err)
{
    struct pl_announcer *a = pl_alloc_zero(&h->alloc, 1, sizeof *a);
    if (a == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for a connection to the home shard");
    a->h = h;
    h->announcer = a;
    memcpy(a->address, h->address, sizeof a->address);
    return read_home(a, err);
}

void pl_announcer_free(struct pl_syncer_host *h)
{
    if (h->announcer == NULL)
        return;
    pl_assert(!h->announcer->busy);
    pl_alloc_free(&h->alloc, h->announcer, sizeof *h->announcer);
    h->announcer = NULL;
}

bool pl_announcer_busy(const struct pl_syncer_host *h)
{
    return h->announcer != NULL && h->announcer->busy;
}

static void announce_run(struct pl_job *job)
{
    struct pl_announcer *a = (struct pl_announcer *)job;
    const struct pl_alloc *alloc = &a->h->alloc;
    const struct pl_question q = {.what = PL_ASK_ANNOUNCE, .text = a->address};
    struct pl_buf answer;
    pl_buf_init(&answer, alloc, PL_TEXT_MAX);
    a->good = pl_door_ask(alloc, a->home, &a->own, &q, PATIENCE_NS, &answer, &a->why) == PELAGO_OK;
    pl_buf_release(&answer);
    if (a->good && pl_pki_seconds_left(&a->own) < RENEW_BELOW_S)
        a->renewed = pl_door_renew(alloc, a->home, PATIENCE_NS, &a->own, &a->why) == PELAGO_OK &&
                     pl_home_save_credentials(a->h->dir, "credentials", &a->own, &a->why) == PELAGO_OK;
}

static void announce_done(struct pl_job *job)
{
    struct pl_announcer *a = (struct pl_announcer *)job;
    struct pl_syncer_host *h = a->h;
    a->busy = false;
    if (a->renewed)
        h->own = a->own;
    if (!a->good && !a->failing)
        pl_shost_log(h, "home.unreachable address=%s: %s (this shard goes on)", a->home, a->why.text);
    if (a->good && a->failing)
        pl_shost_log(h, "home.reached address=%s", a->home);
    a->failing = !a->good;
    a->next_ns = pl_clock_ns() + (a->good ? EVERY_NS : RETRY_NS);
    pl_shost_stop_check(h);
}

void pl_announcer_tick(struct pl_syncer_host *h)
{
    struct pl_announcer *a = h->announcer;
    if (a->busy || h->stopping || pl_clock_ns() < a->next_ns)
        return;
    a->busy = true;
    a->renewed = false;
    a->own = h->own;
    a->job.run = announce_run;
    a->job.done = announce_done;
    pl_work_start(h->o.loop, &a->job);
}
