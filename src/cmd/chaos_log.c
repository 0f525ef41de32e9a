/* cmd/chaos_log.c - DIR/chaos.jsonl: what was done, when, to whom, and whether it worked.
 *
 *   {"t_s":12.345,"unix_s":1700000012.345,"action":"kill","target":"learner 2","pid":4711,"ok":true,"note":""}
 *
 * t_s counts from the start of the plan. A line that a full disk refuses is kept and written later: filling disks is one
 * of the things we do. */
#include "cmd/chaos_run.h"
#include "cmd/text.h"
#include "os/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { UNWRITTEN_MAX = 1 << 20 };

enum pelago_status pl_chaos_log_open(struct pl_chaos_run *r, const char *path, struct pl_error *err)
{
    pl_buf_init(&r->unwritten, r->alloc, UNWRITTEN_MAX);
    r->log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (r->log < 0)
        return pl_fail(err, PELAGO_IO, "%s cannot be written: %s", path, strerror(errno));
    return PELAGO_OK;
}

static void flush(struct pl_chaos_run *r)
{
    while (r->unwritten.len > 0) {
        ssize_t n = write(r->log, r->unwritten.data, r->unwritten.len);
        if (n <= 0)
            return;
        pl_buf_consume(&r->unwritten, (size_t)n);
    }
}

/* JSON and a terminal both want plain letters. */
static void clean(char *out, size_t cap, const char *text)
{
    (void)snprintf(out, cap, "%s", text);
    pl_text_clean(out);
    for (; *out != '\0'; out++)
        if (*out == '"' || *out == '\\')
            *out = '\'';
}

void pl_chaos_log(struct pl_chaos_run *r, const char *action, const char *target, int pid, bool ok,
                  const char *text)
{
    char line[640], note[256];
    struct timespec date;
    double t_s = (double)(pl_clock_ns() - r->start_ns) * 1e-9;
    (void)clock_gettime(CLOCK_REALTIME, &date);
    clean(note, sizeof note, text);
    int len = snprintf(line, sizeof line,
                       "{\"t_s\":%.3f,\"unix_s\":%lld.%03ld,\"action\":\"%s\",\"target\":\"%s\",\"pid\":%d,"
                       "\"ok\":%s,\"note\":\"%s\"}\n",
                       t_s, (long long)date.tv_sec, date.tv_nsec / 1000000, action, target, pid,
                       ok ? "true" : "false", note);
    (void)pl_buf_append(&r->unwritten, line, (size_t)len);
    flush(r);
    if (r->say != NULL)
        fprintf(r->say, "%9.3f s  %s %s%s%s\n", t_s, action, target, note[0] != '\0' ? ": " : "", note);
}

bool pl_chaos_log_close(struct pl_chaos_run *r)
{
    flush(r);
    bool good = r->unwritten.len == 0;
    pl_buf_release(&r->unwritten);
    return close(r->log) == 0 && good;
}
