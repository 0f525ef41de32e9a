/* cmd/cluster_view.c - see cluster_view.h. */
#include "cmd/cluster_view.h"

#include "base/num.h"
#include "cmd/text.h"
#include "cmd/train_view.h"
#include "train/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

static const char status_name[] = "the status";

/* ---- reading ---- */

static double real_of(const struct pl_json *j, const char *member, double otherwise)
{
    const json_t *value = pl_json_find(j, member);
    double real = value != NULL && json_is_number(value) ? json_number_value(value) : otherwise;
    return isfinite(real) ? real : otherwise;
}

static uint64_t count_of(const struct pl_json *j, const char *member)
{
    double real = real_of(j, member, 0);
    return real > 0 && real < 9e18 ? (uint64_t)real : 0;
}

static void text_of(const struct pl_json *j, const char *member, char *out, size_t cap)
{
    const json_t *value = pl_json_find(j, member);
    (void)snprintf(out, cap, "%s", json_is_string(value) ? json_string_value(value) : "");
    pl_text_clean(out);
}

static bool flag_of(const struct pl_json *j, const char *member)
{
    return json_is_true(pl_json_find(j, member));
}

static void read_learner(struct pl_view_learner *l, const struct pl_json *j)
{
    *l = (struct pl_view_learner){.identity = count_of(j, "identity"),
                                  .alive = flag_of(j, "alive"),
                                  .connected = flag_of(j, "connected"),
                                  .loss = real_of(j, "loss", 0),
                                  .tokens_per_s = real_of(j, "tokens_per_s", 0),
                                  .merged_share = real_of(j, "merged_share", -1),
                                  .silent_s = real_of(j, "silent_s", 0),
                                  .rejoined =
                                      (uint32_t)pl_min64(pl_sub_sat(count_of(j, "joins"), 1), UINT32_MAX),
                                  .steps = count_of(j, "steps"),
                                  .tokens = count_of(j, "tokens"),
                                  .bytes_up = count_of(j, "bytes_up"),
                                  .bytes_down = count_of(j, "bytes_down")};
    text_of(j, "name", l->name, sizeof l->name);
}

static void read_run(struct pl_cluster_view *v, const struct pl_json *j)
{
    text_of(j, "run", v->run, sizeof v->run);
    text_of(j, "model", v->model, sizeof v->model);
    text_of(j, "algorithm", v->algorithm, sizeof v->algorithm);
    text_of(j, "phase", v->phase, sizeof v->phase);
    v->epoch = count_of(j, "epoch");
    v->tokens = count_of(j, "tokens");
    v->total_tokens = count_of(j, "total_tokens");
    v->merged_tokens = count_of(j, "merged_tokens");
    v->uptime_s = real_of(j, "uptime_s", 0);
    v->time_left_s = real_of(j, "time_left_s", -1);
    v->loss = real_of(j, "loss", 0);
    v->tokens_per_s = real_of(j, "tokens_per_s", 0);
    v->goodput = real_of(j, "goodput", -1);
    v->merged_alive = real_of(j, "merged_alive", -1);
    v->bytes_up = count_of(j, "bytes_up");
    v->bytes_down = count_of(j, "bytes_down");
    v->merges = count_of(j, "merges");
    v->lost = count_of(j, "lost");
    v->joins = count_of(j, "joins");
    v->refused = count_of(j, "refused");
    v->journal_bytes = count_of(j, "journal_bytes");
    v->known = (uint32_t)pl_min64(count_of(j, "known"), PL_LEARNERS_MAX);
    v->alive = (uint32_t)pl_min64(count_of(j, "alive"), PL_LEARNERS_MAX);
    v->connected = (uint32_t)pl_min64(count_of(j, "connected"), PL_LEARNERS_MAX);
}

enum pelago_status pl_cluster_view_parse(struct pl_cluster_view *v, struct pl_bytes text,
                                         struct pl_error *err)
{
    json_t *root = NULL;
    size_t index;
    json_t *item;
    memset(v, 0, sizeof *v);
    PL_TRY(pl_json_parse(text, status_name, &root, err));
    struct pl_json j = {root, status_name, err};
    read_run(v, &j);
    const json_t *learners = pl_json_find(&j, "learners");
    json_array_foreach(learners, index, item)
    {
        if (v->learner_count == PL_VIEW_LEARNERS_MAX || !json_is_object(item))
            break;
        struct pl_json one = {item, status_name, err};
        read_learner(&v->learners[v->learner_count++], &one);
    }
    json_decref(root);
    pl_cluster_view_sort(v);
    return PELAGO_OK;
}

/* ---- the order ---- */

/* "learner-2" comes before "learner-10", and a name before none. */
static bool is_before(const struct pl_view_learner *a, const struct pl_view_learner *b)
{
    if (a->name[0] == '\0' || b->name[0] == '\0')
        return a->name[0] != '\0' && b->name[0] == '\0';
    return strverscmp(a->name, b->name) < 0;
}

void pl_cluster_view_sort(struct pl_cluster_view *v)
{
    for (uint32_t i = 1; i < v->learner_count; i++) {
        const struct pl_view_learner one = v->learners[i];
        uint32_t at = i;
        for (; at > 0 && is_before(&one, &v->learners[at - 1]); at--)
            v->learners[at] = v->learners[at - 1];
        v->learners[at] = one;
    }
}

/* ---- showing ---- */

void pl_page_add(struct pl_view_page *p, const char *format, ...)
{
    va_list args;
    if (p->count == PL_VIEW_LINES_MAX)
        return;
    va_start(args, format);
    (void)vsnprintf(p->line[p->count], PL_VIEW_LINE_MAX, format, args);
    va_end(args);
    p->count++;
}

static struct pl_view_text loss_text(double loss)
{
    struct pl_view_text t = {"-"}; /* nobody has trained a step yet, or nobody is there */
    if (loss > 0)
        (void)snprintf(t.at, sizeof t.at, loss < 99 ? "%.4f" : "%.3g", loss);
    return t;
}

static struct pl_view_text share_text(double share)
{
    struct pl_view_text t;
    if (share < 0)
        (void)snprintf(t.at, sizeof t.at, "-");
    else
        (void)snprintf(t.at, sizeof t.at, "%.1f%%", 100 * share);
    return t;
}

/* Until its tokens are trained, or its time is over. */
static struct pl_view_text eta_text(const struct pl_cluster_view *v, double rate)
{
    struct pl_view_text t = {"-"};
    double left = v->total_tokens > v->tokens ? (double)(v->total_tokens - v->tokens) : 0;
    double seconds = rate > 0 ? left / rate : -1;
    if (v->time_left_s >= 0 && (seconds < 0 || v->time_left_s < seconds))
        seconds = v->time_left_s;
    return seconds >= 0 ? pl_view_time(seconds) : t;
}

static bool is_done(const struct pl_cluster_view *v)
{
    return strcmp(v->phase, "done") == 0;
}

static void add_bar(const struct pl_cluster_view *v, double rate, bool color, struct pl_view_page *out)
{
    enum { CELLS = 16 };
    char bar[CELLS + 1], rest[80];
    double share = v->total_tokens > 0 ? (double)v->tokens / (double)v->total_tokens : 0;
    (void)snprintf(rest, sizeof rest, "%s tokens/s  ETA %s", pl_view_count(rate).at, eta_text(v, rate).at);
    unsigned full = share >= 1 ? CELLS : (unsigned)(share * CELLS);
    memset(bar, '.', CELLS);
    memset(bar, '#', full);
    bar[CELLS] = '\0';
    pl_page_add(out, "tokens  %s of %s  [%s%s%s] %.0f%%  %s", pl_view_count((double)v->tokens).at,
                pl_view_count((double)v->total_tokens).at, color ? "\x1b[32m" : "", bar,
                color ? "\x1b[0m" : "", 100 * (share < 1 ? share : 1),
                is_done(v) ? "the run is complete" : rest);
}

static const char *state_of(const struct pl_cluster_view *v, const struct pl_view_learner *l)
{
    if (l->note[0] != '\0')
        return l->note;
    if (is_done(v))
        return "done"; /* those who have left already are no more away than the others */
    return !l->connected && !l->alive ? "away" : l->steps == 0 ? "joining" : l->alive ? "training" : "silent";
}

/* Lines are for a terminal of 80 columns, of which the last stays free. */
static void add_learner(const struct pl_cluster_view *v, const struct pl_view_learner *l, bool color,
                        struct pl_view_page *out)
{
    char name[32];
    const char *state = state_of(v, l);
    bool good = strcmp(state, "training") == 0 || strcmp(state, "done") == 0;
    (void)snprintf(name, sizeof name, l->name[0] != '\0' ? "%s" : "%s%" PRIu64, l->name, l->identity);
    pl_page_add(out, " %-11s %s%-9s%s %7s %7" PRIu64 " %8s %7s %7s %6s %8u", name,
                !color ? ""
                : good ? "\x1b[32m"
                       : "\x1b[31m",
                state, color ? "\x1b[0m" : "", loss_text(l->loss).at, l->steps,
                pl_view_count(l->tokens_per_s).at, pl_view_bytes(l->bytes_up).at,
                pl_view_bytes(l->bytes_down).at, share_text(l->merged_share).at, l->rejoined);
}

void pl_cluster_view_page(const struct pl_cluster_view *v, double rate, bool color, uint32_t rows,
                          struct pl_view_page *out)
{
    double speed = rate > 0 ? rate : v->tokens_per_s;
    const char *bold = color ? "\x1b[1m" : "", *off = color ? "\x1b[0m" : "";
    pl_page_add(out, "%spelago%s  run %s  %s  up %s  %s  model %s", bold, off, v->run, v->phase,
                pl_view_time(v->uptime_s).at, v->algorithm, v->model);
    add_bar(v, speed, color, out);
    pl_page_add(out, "loss    %s%s%s   goodput %s   merged/alive %s   alive %u of %u", bold,
                loss_text(v->loss).at, off, share_text(v->goodput).at, share_text(v->merged_alive).at,
                v->alive, v->known);
    pl_page_add(out, "bytes   up %s  down %s   lost %" PRIu64 ", rejoined %" PRIu64 ", refused %" PRIu64,
                pl_view_bytes(v->bytes_up).at, pl_view_bytes(v->bytes_down).at, v->lost,
                pl_sub_sat(v->joins, v->known), v->refused);
    pl_page_add(out, "%s", "");
    pl_page_add(out, "%s %-11s %-9s %7s %7s %8s %7s %7s %6s %8s%s", bold, "learner", "state", "loss", "steps",
                "tokens/s", "up", "down", "merged", "rejoined", off);
    uint32_t room = rows > out->count + 2 ? rows - out->count - 2 : 1;
    uint32_t shown = pl_min32(v->learner_count, pl_min32(room, PL_VIEW_LINES_MAX - out->count - 8));
    for (uint32_t i = 0; i < shown; i++)
        add_learner(v, &v->learners[i], color, out);
    if (shown < v->known)
        pl_page_add(out, "  ... and %u more", v->known - shown);
}

void pl_cluster_view_line(const struct pl_cluster_view *v, double rate, struct pl_view_page *out)
{
    double speed = rate > 0 ? rate : v->tokens_per_s;
    pl_page_add(out,
                "%s of %s tokens  loss %s  %s tokens/s  alive %u of %u  merged/alive %s  goodput %s  up %s  "
                "down %s  lost %" PRIu64 "  ETA %s",
                pl_view_count((double)v->tokens).at, pl_view_count((double)v->total_tokens).at,
                loss_text(v->loss).at, pl_view_count(speed).at, v->alive, v->known,
                share_text(v->merged_alive).at, share_text(v->goodput).at, pl_view_bytes(v->bytes_up).at,
                pl_view_bytes(v->bytes_down).at, v->lost, eta_text(v, speed).at);
}
