/* cmd/train_view.c - see train_view.h. */
#include "cmd/train_view.h"

#include "cmd/options.h"
#include "cmd/text.h"
#include "cmd/train_args.h"
#include "os/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

static const uint64_t live_ns = 200 * PL_MS, plain_ns = 5 * PL_SEC;

struct pl_view_text pl_view_count(double count)
{
    struct pl_view_text t;
    const char *unit = count >= 999.5e6 ? "G" : count >= 999.5e3 ? "M" : count >= 9999.5 ? "k" : "";
    double value = unit[0] == 'G'   ? count * 1e-9
                   : unit[0] == 'M' ? count * 1e-6
                   : unit[0] == 'k' ? count * 1e-3
                                    : count;
    int digits = unit[0] == '\0' ? 0 : value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    (void)snprintf(t.at, sizeof t.at, "%.*f%s", digits, value, unit);
    return t;
}

struct pl_view_text pl_view_bytes(uint64_t bytes)
{
    struct pl_view_text t;
    double b = (double)bytes;
    const char *unit = b >= 999.5e9 ? "TB" : b >= 999.5e6 ? "GB" : b >= 999.5e3 ? "MB" : "kB";
    double scaled = b * (unit[0] == 'T' ? 1e-12 : unit[0] == 'G' ? 1e-9 : unit[0] == 'M' ? 1e-6 : 1e-3);
    (void)snprintf(t.at, sizeof t.at, "%.*f %s", scaled < 99.95 ? 1 : 0, scaled, unit);
    return t;
}

struct pl_view_text pl_view_time(double seconds)
{
    struct pl_view_text t;
    uint64_t s = seconds > 0 && seconds < 3e9 ? (uint64_t)(seconds + 0.5) : 0;
    if (s >= 86400)
        (void)snprintf(t.at, sizeof t.at, "%" PRIu64 "d %02" PRIu64 "h", s / 86400, s / 3600 % 24);
    else if (s >= 3600)
        (void)snprintf(t.at, sizeof t.at, "%" PRIu64 "h %02" PRIu64 "m", s / 3600, s / 60 % 60);
    else if (s >= 60)
        (void)snprintf(t.at, sizeof t.at, "%" PRIu64 "m %02" PRIu64 "s", s / 60, s % 60);
    else
        (void)snprintf(t.at, sizeof t.at, "%" PRIu64 "s", s);
    return t;
}

/* ---- the line ---- */

static double memory_gb(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (double)usage.ru_maxrss * 1024e-9 : 0;
}

void pl_train_view_line(const struct pl_train_view *v, const struct pl_progress *p, uint32_t cols, char *out,
                        size_t cap)
{
    double left = v->total_tokens > p->tokens ? (double)(v->total_tokens - p->tokens) : 0;
    char share[32] = "";
    if (v->peak_flops > 0)
        (void)snprintf(share, sizeof share, ", %.0f%% of peak",
                       100 * v->rate * v->flops_token / v->peak_flops);
    (void)snprintf(
        out, cap, "step %" PRIu64 "/%" PRIu64 "  %s of %s tokens  loss %.3f  %s tokens/s%s  %s left  %.1f GB",
        p->step, v->total_steps, pl_view_count((double)p->tokens).at,
        pl_view_count((double)v->total_tokens).at, p->smooth, pl_view_count(v->rate).at, share,
        pl_view_time(v->rate > 0 ? left / v->rate : 0).at, memory_gb());
    if (strlen(out) >= cols)
        (void)snprintf(out, cap, "step %" PRIu64 "/%" PRIu64 "  %s of %s  loss %.3f  %s tokens/s  %s left",
                       p->step, v->total_steps, pl_view_count((double)p->tokens).at,
                       pl_view_count((double)v->total_tokens).at, p->smooth, pl_view_count(v->rate).at,
                       pl_view_time(v->rate > 0 ? left / v->rate : 0).at);
}

static uint32_t columns(const struct pl_train_view *v)
{
    struct winsize size;
    bool known = v->live && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    return known ? size.ws_col : UINT32_MAX;
}

static void draw(struct pl_train_view *v, const struct pl_progress *p)
{
    char line[256];
    uint32_t cols = columns(v);
    pl_train_view_line(v, p, cols, line, sizeof line);
    if (strlen(line) >= cols)
        line[cols - 1] = '\0'; /* one that wraps would leave pieces of itself behind */
    printf(v->live ? "\r%s\x1b[K" : "%s\n", line);
    v->drawn = v->live;
    fflush(stdout);
}

void pl_train_view_rest(struct pl_train_view *v)
{
    if (v->drawn)
        printf("\n");
    v->drawn = false;
    fflush(stdout);
}

void pl_train_view_say(struct pl_train_view *v, const char *format, ...)
{
    va_list args;
    if (v->quiet)
        return;
    if (v->drawn)
        printf("\r\x1b[K");
    v->drawn = false;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
    fflush(stdout);
}

/* ---- the log ---- */

bool pl_train_view_open_log(struct pl_train_view *v, const char *path)
{
    struct pl_error err;
    v->log = NULL;
    if (path == NULL)
        return true;
    v->log = fopen(path, "ae");
    if (v->log != NULL)
        return true;
    (void)pl_fail(&err, PELAGO_IO, "the log %s could not be opened: %s", path, strerror(errno));
    (void)pl_failure(pl_train_command, &err);
    return false;
}

static void log_step(struct pl_train_view *v, const struct pl_progress *p, const struct pl_step_report *r,
                     uint64_t took_ns)
{
    fprintf(v->log,
            "{\"step\": %" PRIu64 ", \"tokens\": %" PRIu64
            ", \"loss\": %.6f, \"grad_norm\": %.6g, \"lr\": %.6g, "
            "\"clipped\": %s, \"ms\": %.3f}\n",
            p->step, p->tokens, r->loss, r->norm, (double)r->lr, r->clipped ? "true" : "false",
            (double)took_ns * 1e-6);
    fflush(v->log);
}

void pl_train_view_log_valid(struct pl_train_view *v, const struct pl_progress *p, double loss,
                             double bits_per_byte)
{
    if (v->log == NULL)
        return;
    fprintf(v->log, "{\"step\": %" PRIu64 ", \"tokens\": %" PRIu64 ", \"valid_loss\": %.6f", p->step,
            p->tokens, loss);
    if (bits_per_byte > 0)
        fprintf(v->log, ", \"bits_per_byte\": %.6f", bits_per_byte);
    fprintf(v->log, "}\n");
    fflush(v->log);
}

bool pl_train_view_close_log(struct pl_train_view *v)
{
    if (v->log == NULL)
        return true;
    bool bad = ferror(v->log) != 0;
    bad = fclose(v->log) != 0 || bad;
    v->log = NULL;
    return !bad;
}

/* ---- steps ---- */

void pl_train_view_step(struct pl_train_view *v, const struct pl_progress *p, const struct pl_step_report *r,
                        uint64_t took_ns)
{
    uint64_t now = pl_clock_ns();
    double rate = (double)r->tokens / ((double)took_ns * 1e-9 + 1e-9);
    /* An average over some five seconds: the share of the newest step is its part of them. */
    double weight = (double)took_ns / (double)(5 * PL_SEC);
    v->rate = v->tokens == 0 ? rate : v->rate + (weight < 1 ? weight : 1) * (rate - v->rate);
    v->tokens += r->tokens;
    v->busy_ns += took_ns;
    if (v->log != NULL)
        log_step(v, p, r, took_ns);
    if (v->quiet || now - v->shown_ns < (v->live ? live_ns : plain_ns))
        return;
    v->shown_ns = now;
    draw(v, p);
}
