/* host/learner_line.c - one line of JSON every ten seconds, and at the end, in FOLDER/learner.jsonl: what the
 * trainer did and whether anything of ours held it up. The file is begun anew when it is long; the one before
 * is kept. */
#include "host/learner_host_int.h"

#include "base/check.h"
#include "base/hash.h"
#include "os/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 1024, FILE_BYTES_MAX = 1 << 20 };
#define EVERY_NS (10 * PL_SEC)

struct line {
    struct pl_job job; /* first */
    struct pl_learner_host *h;
    bool last;
    int len;
    char text[LINE_MAX_BYTES];
};

static void join_path(char out[static PL_PATH_MAX + 32], const char *folder, const char *name)
{
    (void)snprintf(out, PL_PATH_MAX + 32, "%s/%s", folder, name);
}

/* One number for all anchors: equal where two learners hold the same values. */
static uint64_t anchors_digest(const struct pl_learner_host *h)
{
    uint64_t digest = 0;
    for (uint32_t i = 0; i < h->layout.fragment_count; i++) {
        const struct pl_vec *v = h->fragments[i].anchor;
        uint64_t own = pl_values_digest(v->at, v->count);
        digest = pl_hash64(&own, sizeof own, digest);
    }
    return digest;
}

/* Worker. All else has ended by then: the anchors stay as they are. */
static void put_end(struct line *l)
{
    l->len += snprintf(l->text + l->len, sizeof l->text - (size_t)l->len, "%s",
                       l->last ? ",\"anchors\":\"" : "}\n");
    if (l->last)
        l->len += snprintf(l->text + l->len, sizeof l->text - (size_t)l->len, "%016llx\",\"last\":true}\n",
                           (unsigned long long)anchors_digest(l->h));
    pl_assert(l->len < LINE_MAX_BYTES);
}

static void append(struct pl_job *job)
{
    struct line *l = (struct line *)job;
    char path[PL_PATH_MAX + 32], old[PL_PATH_MAX + 32];
    struct stat st;
    put_end(l);
    join_path(path, l->h->folder, "learner.jsonl");
    join_path(old, l->h->folder, "learner.jsonl.old");
    if (stat(path, &st) == 0 && st.st_size > FILE_BYTES_MAX)
        (void)rename(path, old);
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return;
    ssize_t n = write(fd, l->text, (size_t)l->len); /* figures: a full disk may cost them */
    (void)n;
    (void)close(fd);
}

static void appended(struct pl_job *job)
{
    struct line *l = (struct line *)job;
    struct pl_learner_host *h = l->h;
    h->line_busy = false;
    pl_alloc_free(&h->alloc, l, sizeof *l);
    pl_lhost_job_done(h);
}

/* All but the end of it. */
static int print(struct pl_learner_host *h, char *out, size_t cap)
{
    struct pl_learner_host_view v;
    const struct pl_account *wall = &h->lt.blocked_wall;
    pl_learner_host_view(h, &v);
    double share = v.trained_ns > 0 ? (double)v.blocked_ns / (double)v.trained_ns : 0;
    return snprintf(
        out, cap,
        "{\"at_ns\":%llu,\"identity\":%llu,\"steps\":%llu,\"tokens\":%llu,\"loss\":%.6f,"
        "\"step_ns\":%llu,\"steps_timed\":%llu,\"blocked_ns\":%llu,\"blocked_max_ns\":%llu,"
        "\"blocked_p999_ns\":%llu,\"blocked_above_1ms\":%llu,\"blocked_wall_ns\":%llu,\"blocked_wall_max_"
        "ns\":%llu,"
        "\"blocked_wall_p999_ns\":%llu,\"blocked_share\":%.8f,\"trained_ns\":%llu,\"bytes_up\":%llu,"
        "\"bytes_down\":%llu,\"live\":%s",
        (unsigned long long)pl_clock_ns(), (unsigned long long)v.identity, (unsigned long long)v.steps,
        (unsigned long long)v.tokens, v.loss, (unsigned long long)v.step_ns,
        (unsigned long long)v.steps_timed, (unsigned long long)v.blocked_ns,
        (unsigned long long)v.blocked_max_ns, (unsigned long long)v.blocked_p999_ns,
        (unsigned long long)v.blocked_above_1ms,
        (unsigned long long)atomic_load_explicit(&wall->sum_ns, memory_order_relaxed),
        (unsigned long long)atomic_load_explicit(&wall->max_ns, memory_order_relaxed),
        (unsigned long long)pl_account_quantile(wall, 999000), share, (unsigned long long)v.trained_ns,
        (unsigned long long)v.bytes_up, (unsigned long long)v.bytes_down, v.live ? "true" : "false");
}

void pl_lhost_line(struct pl_learner_host *h, bool last)
{
    uint64_t now = pl_clock_ns();
    if (h->line_busy || (!last && now - h->line_ns < EVERY_NS))
        return;
    struct line *l = pl_alloc_zero(&h->alloc, 1, sizeof *l);
    if (l == NULL)
        return;
    h->line_ns = now;
    h->line_busy = true;
    l->h = h;
    l->last = last;
    l->len = print(h, l->text, sizeof l->text);
    pl_assert(l->len > 0 && l->len < LINE_MAX_BYTES);
    l->job.run = append;
    l->job.done = appended;
    pl_lhost_job(h, &h->disking, &l->job);
}
