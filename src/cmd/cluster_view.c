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
enum { COLS = 80 };

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

static uint32_t count32_of(const struct pl_json *j, const char *member, uint32_t max)
{
    return (uint32_t)pl_min64(count_of(j, member), max);
}

static void read_shard(struct pl_view_shard *s, const struct pl_json *j)
{
    *s = (struct pl_view_shard){.shard = count32_of(j, "shard", PL_SHARDS_MAX),
                                .epoch = count_of(j, "epoch"),
                                .uptime_s = real_of(j, "uptime_s", 0),
                                .merged_tokens = count_of(j, "merged_tokens"),
                                .counts = {.bytes_up = count_of(j, "bytes_up"),
                                           .bytes_down = count_of(j, "bytes_down"),
                                           .lost = count_of(j, "lost"),
                                           .rejoined = pl_sub_sat(count_of(j, "joins"), count_of(j, "known")),
                                           .refused = count_of(j, "refused"),
                                           .contributors = count_of(j, "contributors"),
                                           .contributors_alive = count_of(j, "contributors_alive")}};
}

/* Of this shard, and of the others where whoever asked has added them. */
static void read_shards(struct pl_cluster_view *v, const struct pl_json *j)
{
    size_t index;
    json_t *item;
    v->shards = count32_of(j, "shards", PL_SHARDS_MAX);
    v->shard_count = 1;
    read_shard(&v->shard[0], j);
    json_array_foreach(pl_json_find(j, "others"), index, item)
    {
        if (v->shard_count == PL_SHARDS_MAX || !json_is_object(item))
            break;
        const struct pl_json one = {item, status_name, j->err};
        read_shard(&v->shard[v->shard_count++], &one);
    }
}

void pl_cluster_view_sum(struct pl_cluster_view *v)
{
    v->bytes_up = v->bytes_down = v->refused = v->merged_tokens = 0;
    for (uint32_t i = 0; i < v->shard_count; i++) {
        const struct pl_view_shard *s = &v->shard[i];
        v->bytes_up = pl_add_sat(v->bytes_up, s->counts.bytes_up);
        v->bytes_down = pl_add_sat(v->bytes_down, s->counts.bytes_down);
        v->refused = pl_add_sat(v->refused, s->counts.refused);
        v->merged_tokens = pl_add_sat(v->merged_tokens, s->merged_tokens);
    }
    v->lost = v->shard[0].counts.lost;
    v->rejoined = v->shard[0].counts.rejoined;
    if (v->shards <= 1)
        return; /* as it says itself */
    /* One shard's part says nothing of the whole. The others are asked a moment later. */
    double share = v->tokens > 0 ? (double)v->merged_tokens / (double)v->tokens : -1;
    v->goodput = v->shard_count < v->shards ? -1 : share > 1 ? 1 : share;
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
    v->uptime_s = real_of(j, "uptime_s", 0);
    v->time_left_s = real_of(j, "time_left_s", -1);
    v->loss = real_of(j, "loss", 0);
    v->tokens_per_s = real_of(j, "tokens_per_s", 0);
    v->goodput = real_of(j, "goodput", -1);
    v->merged_alive = real_of(j, "merged_alive", -1);
    v->merges = count_of(j, "merges");
    v->journal_bytes = count_of(j, "journal_bytes");
    v->known = count32_of(j, "known", PL_LEARNERS_MAX);
    v->alive = count32_of(j, "alive", PL_LEARNERS_MAX);
    v->connected = count32_of(j, "connected", PL_LEARNERS_MAX);
    v->expected = count32_of(j, "expected", PL_LEARNERS_MAX);
    read_shards(v, j);
    pl_cluster_view_sum(v);
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

void pl_page_wrap(struct pl_view_page *p, const char *sentence)
{
    uint32_t wide = p->cols > 0 ? p->cols : COLS;
    uint32_t cols = pl_min32(pl_max32(wide, 2), PL_VIEW_LINE_MAX) - 1; /* the last stays free */
    while (*sentence != '\0') {
        size_t len = strlen(sentence), whole = cols;
        while (whole > 0 && len > cols && sentence[whole] != ' ')
            whole--;
        len = len <= cols ? len : whole > 0 ? whole : cols;
        pl_page_add(p, "%.*s", (int)len, sentence);
        sentence += len;
        sentence += strspn(sentence, " ");
    }
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

static bool is_done(const struct pl_cluster_view *v)
{
    return strcmp(v->phase, "done") == 0;
}

/* `pelago run` says so of one that was stopped and can go on. */
static bool is_over(const struct pl_cluster_view *v)
{
    return is_done(v) || strcmp(v->phase, "stopped") == 0;
}

static bool is_silent(const struct pl_cluster_view *v)
{
    return v->silent_s > 0;
}

/* Tokens a second of whoever watches, or the syncer's word. It says 0 until it has measured. Below 0: not known. */
static double speed_of(const struct pl_cluster_view *v, double rate)
{
    double speed = rate != 0 ? rate : v->tokens_per_s;
    return speed > 0 ? speed : -1;
}

static struct pl_view_text rate_text(const struct pl_cluster_view *v, double rate)
{
    struct pl_view_text t = {"-"};
    return rate <= 0 || is_over(v) || is_silent(v) ? t : pl_view_count(rate);
}

/* Those there are, or will be. */
static uint32_t expected(const struct pl_cluster_view *v)
{
    return pl_max32(v->known, v->expected);
}

/* Until its tokens are trained, or its time is over. */
static struct pl_view_text eta_text(const struct pl_cluster_view *v, double rate)
{
    struct pl_view_text t = {"-"};
    if (is_over(v) || is_silent(v))
        return t;
    double left = v->total_tokens > v->tokens ? (double)(v->total_tokens - v->tokens) : 0;
    double seconds = rate > 0 ? left / rate : -1;
    if (v->time_left_s >= 0 && (seconds < 0 || v->time_left_s < seconds))
        seconds = v->time_left_s;
    return seconds >= 0 ? pl_view_time(seconds) : t;
}

/* What there is to say of an end. */
static const char *end_text(const struct pl_cluster_view *v)
{
    if (!is_done(v))
        return "stopped";
    return v->tokens < v->total_tokens ? "the time was over" : "the run is complete";
}

static void add_bar(const struct pl_cluster_view *v, double rate, bool color, struct pl_view_page *out)
{
    enum { CELLS = 16, CELLS_MAX = 64 };
    char bar[CELLS_MAX + 1], rest[80];
    unsigned cells = CELLS + (out->cols > COLS ? pl_min32(out->cols - COLS, CELLS_MAX - CELLS) : 0);
    double share = v->total_tokens > 0 ? (double)v->tokens / (double)v->total_tokens : 0;
    (void)snprintf(rest, sizeof rest, "%s tokens/s  ETA %s", rate_text(v, rate).at, eta_text(v, rate).at);
    unsigned full = share >= 1 ? cells : (unsigned)(share * cells);
    memset(bar, '.', cells);
    memset(bar, '#', full);
    bar[cells] = '\0';
    pl_page_add(out, "tokens  %s of %s  [%s%s%s] %.0f%%  %s", pl_view_count((double)v->tokens).at,
                pl_view_count((double)v->total_tokens).at, color ? "\x1b[32m" : "", bar,
                color ? "\x1b[0m" : "", 100 * (share < 1 ? share : 1), is_over(v) ? end_text(v) : rest);
}

static const char *state_of(const struct pl_cluster_view *v, const struct pl_view_learner *l)
{
    if (l->note[0] != '\0')
        return l->note;
    if (is_silent(v))
        return "-";
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
    bool plain = !color || strcmp(state, "-") == 0;
    (void)snprintf(name, sizeof name, l->name[0] != '\0' ? "%s" : "%s%" PRIu64, l->name, l->identity);
    pl_page_add(out, " %-11s %s%-9s%s %7s %7" PRIu64 " %8s %7s %7s %6s %8u", name,
                plain  ? ""
                : good ? "\x1b[32m"
                       : "\x1b[31m",
                state, plain ? "" : "\x1b[0m", loss_text(l->loss).at, l->steps,
                rate_text(v, l->tokens_per_s).at, pl_view_bytes(l->bytes_up).at,
                pl_view_bytes(l->bytes_down).at, share_text(l->merged_share).at, l->rejoined);
}

/* The name of the algorithm makes room for how long there is no answer. */
static void add_head(const struct pl_cluster_view *v, const char *bold, const char *off,
                     struct pl_view_page *out)
{
    if (is_silent(v))
        pl_page_add(out, "%spelago%s  run %s  %sno answer for %s%s  model %s", bold, off, v->run, bold,
                    pl_view_time(v->silent_s).at, off, v->model);
    else
        pl_page_add(out, "%spelago%s  run %s  %s  up %s  %s  model %s", bold, off, v->run, v->phase,
                    pl_view_time(v->uptime_s).at, v->algorithm, v->model);
}

void pl_cluster_view_page(const struct pl_cluster_view *v, double rate, bool color, uint32_t rows,
                          struct pl_view_page *out)
{
    double speed = speed_of(v, rate);
    const char *bold = color ? "\x1b[1m" : "", *off = color ? "\x1b[0m" : "";
    add_head(v, bold, off, out);
    add_bar(v, speed, color, out);
    pl_page_add(out, "loss    %s%s%s   goodput %s   merged/alive %s   alive %u of %u", bold,
                loss_text(v->loss).at, off, share_text(v->goodput).at, share_text(v->merged_alive).at,
                v->alive, expected(v));
    pl_page_add(out, "bytes   up %s  down %s   lost %" PRIu64 ", rejoined %" PRIu64 ", refused %" PRIu64,
                pl_view_bytes(v->bytes_up).at, pl_view_bytes(v->bytes_down).at, v->lost, v->rejoined,
                v->refused);
    pl_page_add(out, "%s", "");
    pl_page_add(out, "%s %-11s %-9s %7s %7s %8s %7s %7s %6s %8s%s", bold, "learner", "state", "loss", "steps",
                "tokens/s", "up", "down", "merged", "rejoined", off);
    uint32_t room = rows > out->count + 1 ? rows - out->count : 2;
    room = pl_min32(room, PL_VIEW_LINES_MAX - out->count - 8);
    /* The last line says how many there is no room for. */
    uint32_t shown =
        v->known > room ? pl_min32(v->learner_count, room - 1) : pl_min32(v->learner_count, room);
    for (uint32_t i = 0; i < shown; i++)
        add_learner(v, &v->learners[i], color, out);
    if (shown < v->known)
        pl_page_add(out, "  ... and %u more", v->known - shown);
}

void pl_cluster_view_line(const struct pl_cluster_view *v, double rate, struct pl_view_page *out)
{
    double speed = speed_of(v, rate);
    pl_page_add(out,
                "%s of %s tokens  loss %s  %s tokens/s  alive %u of %u  merged/alive %s  goodput %s  up %s  "
                "down %s  lost %" PRIu64 "  ETA %s",
                pl_view_count((double)v->tokens).at, pl_view_count((double)v->total_tokens).at,
                loss_text(v->loss).at, rate_text(v, speed).at, v->alive, expected(v),
                share_text(v->merged_alive).at, share_text(v->goodput).at, pl_view_bytes(v->bytes_up).at,
                pl_view_bytes(v->bytes_down).at, v->lost, eta_text(v, speed).at);
}
