/* cmd/run_report_text.c - report.json and report.md; see run_report.h. */
#include "cmd/run_report.h"

#include "cmd/text.h"
#include "cmd/train_view.h"
#include "train/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

/* ---- JSON ---- */

static json_t *settings_json(const struct pl_run *r)
{
    const struct pl_settings *s = &r->settings;
    json_t *j = json_object();
    (void)pl_json_put(j, "run", pl_json_bits_value(s->run_id));
    (void)pl_json_put(j, "model", json_string(s->model));
    (void)pl_json_put(j, "data", json_string(s->data));
    (void)pl_json_put(j, "algorithm", json_string(pl_algorithm_name(s->algorithm)));
    (void)pl_json_put(j, "tokens", json_integer((json_int_t)s->total_tokens));
    if (r->args.time_ns > 0)
        (void)pl_json_put(j, "time_s", json_real((double)r->args.time_ns * 1e-9));
    (void)pl_json_put(j, "batch", json_integer(s->trainer.batch));
    (void)pl_json_put(j, "seq", json_integer(s->trainer.seq));
    (void)pl_json_put(j, "accumulate", json_integer(s->trainer.accumulate));
    (void)pl_json_put(j, "seed", json_integer((json_int_t)s->trainer.seed));
    (void)pl_json_put(j, "learners", json_integer(s->learners));
    (void)pl_json_put(j, "shards", json_integer(s->shards));
    (void)pl_json_put(j, "fragments", json_integer(s->fragments));
    (void)pl_json_put(j, "period", json_integer(s->period));
    (void)pl_json_put(j, "overlap", json_integer(s->overlap));
    (void)pl_json_put(j, "quorum", json_integer(s->quorum));
    (void)pl_json_put(j, "up", json_string(pl_codec_name(s->up)));
    (void)pl_json_put(j, "down", json_string(pl_codec_name(s->down)));
    (void)pl_json_put(j, "merge", json_string(pl_rule_name(s->merge.kind)));
    (void)pl_json_put(j, "merge_guard", json_boolean(s->merge.guard));
    (void)pl_json_put(j, "outer", json_string(pl_outer_name(s->outer.kind)));
    (void)pl_json_put(j, "outer_lr", json_real(pl_json_short(s->outer.lr)));
    (void)pl_json_put(j, "feedback_decay", json_real(pl_json_short(s->feedback_decay)));
    (void)pl_json_put(j, "feedback_local", json_real(pl_json_short(s->feedback_local)));
    (void)pl_json_put(j, "selective", json_real(pl_json_short(s->selective)));
    (void)pl_json_put(j, "outer_momentum", json_real(pl_json_short(s->outer.mu)));
    return j;
}

/* At the very end nobody trains any more. */
static double last_loss(const struct pl_run_history *h)
{
    uint32_t i = h->points;
    while (i > 0 && h->curve[i - 1].loss <= 0)
        i--;
    return i > 0 ? h->curve[i - 1].loss : 0;
}

/* Over the whole run; baselines, where everybody is merged always, count nothing. */
static double merged_alive(const struct pl_run *r)
{
    double mean = pl_totals_merged_alive(&r->totals);
    return mean >= 0 ? mean : r->view.merged_alive;
}

static json_t *result_json(const struct pl_run *r, const struct pl_run_result *e)
{
    json_t *j = json_object();
    (void)pl_json_put(j, "seconds", json_real(e->seconds));
    if (e->judged) {
        (void)pl_json_put(j, "loss", json_real(e->loss));
        (void)pl_json_put(j, "perplexity", json_real(exp(e->loss)));
        (void)pl_json_put(j, "eval_tokens", json_integer((json_int_t)e->tokens));
    }
    if (e->bits_per_byte > 0)
        (void)pl_json_put(j, "bits_per_byte", json_real(e->bits_per_byte));
    if (e->floor_loss > 0)
        (void)pl_json_put(j, "floor_loss", json_real(e->floor_loss));
    (void)pl_json_put(j, "sample", json_stringn((const char *)e->sample.data, e->sample.len));
    if (!r->known)
        return j;
    (void)pl_json_put(j, "tokens", json_integer((json_int_t)r->view.tokens));
    if (last_loss(&r->history) > 0)
        (void)pl_json_put(j, "train_loss", json_real(last_loss(&r->history)));
    (void)pl_json_put(j, "merged_tokens", json_integer((json_int_t)r->view.merged_tokens));
    (void)pl_json_put(j, "bytes_up", json_integer((json_int_t)r->view.bytes_up));
    (void)pl_json_put(j, "bytes_down", json_integer((json_int_t)r->view.bytes_down));
    if (r->view.goodput >= 0)
        (void)pl_json_put(j, "goodput", json_real(r->view.goodput));
    if (merged_alive(r) >= 0)
        (void)pl_json_put(j, "merged_alive", json_real(merged_alive(r)));
    (void)pl_json_put(j, "lost", json_integer((json_int_t)r->view.lost));
    (void)pl_json_put(j, "rejoined", json_integer((json_int_t)r->view.rejoined));
    (void)pl_json_put(j, "refused", json_integer((json_int_t)r->view.refused));
    return j;
}

static json_t *syncers_json(const struct pl_run *r)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < r->settings.shards; i++) {
        const struct pl_child *c = &r->syncers[i].child;
        json_t *j = json_object();
        (void)pl_json_put(j, "name", json_string(c->name));
        (void)pl_json_put(j, "starts", json_integer(c->starts));
        (void)pl_json_put(j, "kills", json_integer(c->kills));
        (void)json_array_append_new(array, j);
    }
    return array;
}

static json_t *learners_json(const struct pl_run *r)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < r->settings.learners; i++) {
        const struct pl_run_process *p = &r->learners[i];
        json_t *j = json_object();
        (void)pl_json_put(j, "name", json_string(p->child.name));
        (void)pl_json_put(j, "identity", json_integer((json_int_t)p->identity));
        (void)pl_json_put(j, "starts", json_integer(p->child.starts));
        (void)pl_json_put(j, "kills", json_integer(p->child.kills));
        for (uint32_t k = 0; k < r->view.learner_count; k++)
            if (p->identity != 0 && r->view.learners[k].identity == p->identity) {
                (void)pl_json_put(j, "tokens", json_integer((json_int_t)r->view.learners[k].tokens));
                (void)pl_json_put(j, "steps", json_integer((json_int_t)r->view.learners[k].steps));
            }
        (void)json_array_append_new(array, j);
    }
    return array;
}

static json_t *curve_json(const struct pl_run_history *h)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < h->points; i++) {
        const struct pl_curve_point *p = &h->curve[i];
        json_t *j = json_object();
        (void)pl_json_put(j, "seconds", json_real(p->seconds));
        (void)pl_json_put(j, "tokens", json_integer((json_int_t)p->tokens));
        (void)pl_json_put(j, "loss", p->loss > 0 ? json_real(p->loss) : json_null());
        (void)pl_json_put(j, "alive", json_integer(p->alive));
        (void)json_array_append_new(array, j);
    }
    return array;
}

static json_t *events_json(const struct pl_run_history *h)
{
    json_t *array = json_array();
    const struct pl_run_event *e;
    for (uint64_t i = 0; (e = pl_history_at(h, i)) != NULL; i++) {
        json_t *j = json_object();
        (void)pl_json_put(j, "seconds", json_real(e->seconds));
        (void)pl_json_put(j, "what", json_string(e->text));
        (void)json_array_append_new(array, j);
    }
    return array;
}

enum pelago_status pl_report_json(const struct pl_run *r, const struct pl_run_result *e, struct pl_buf *out)
{
    json_t *root = json_object();
    bool good =
        pl_json_put(root, "pelago_report", json_integer(1)) &&
        pl_json_put(root, "settings", settings_json(r)) && pl_json_put(root, "result", result_json(r, e)) &&
        pl_json_put(root, "syncers", syncers_json(r)) && pl_json_put(root, "learners", learners_json(r)) &&
        pl_json_put(root, "events", events_json(&r->history)) &&
        pl_json_put(root, "curve", curve_json(&r->history));
    enum pelago_status st = good ? pl_json_print(root, 6, out) : PELAGO_NOMEM;
    json_decref(root);
    return st;
}

/* ---- Markdown ---- */

static enum pelago_status say(struct pl_buf *out, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static enum pelago_status say(struct pl_buf *out, const char *format, ...)
{
    char line[PL_PATH_MAX + 512];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    size_t len = n < 0 ? 0 : (size_t)n < sizeof line ? (size_t)n : sizeof line - 1;
    return pl_buf_append(out, line, len);
}

static enum pelago_status say_settings(const struct pl_run *r, struct pl_buf *out)
{
    const struct pl_settings *s = &r->settings;
    PL_TRY(say(out, "# Run %016" PRIx64 "\n\n", s->run_id));
    PL_TRY(say(out, "| setting | value |\n|---|---|\n| model | %s |\n| data | %s |\n| algorithm | %s |\n",
               s->model, s->data, pl_algorithm_name(s->algorithm)));
    PL_TRY(say(out, "| tokens | %s |\n| learners | %u |\n| shards | %u |\n",
               pl_view_count((double)s->total_tokens).at, s->learners, s->shards));
    if (r->args.time_ns > 0)
        PL_TRY(say(out, "| at most this long | %s |\n", pl_view_time((double)r->args.time_ns * 1e-9).at));
    PL_TRY(say(out, "| batch x sequence x accumulate | %u x %u x %u |\n| seed | %" PRIu64 " |\n",
               s->trainer.batch, s->trainer.seq, s->trainer.accumulate, s->trainer.seed));
    return say(out, "| fragments, period, overlap, quorum | %u, %u, %u, %u |\n| up, down | %s, %s |\n",
               s->fragments, s->period, s->overlap, s->quorum, pl_codec_name(s->up), pl_codec_name(s->down));
}

static enum pelago_status say_result(const struct pl_run *r, const struct pl_run_result *e,
                                     struct pl_buf *out)
{
    PL_TRY(say(out, "\n## Result\n\n| what | value |\n|---|---|\n| time%s | %s |\n",
               r->args.resume ? " since it was resumed" : "", pl_view_time(e->seconds).at));
    if (e->judged)
        PL_TRY(say(out, "| validation loss | %.4f nats a token |\n| perplexity | %.2f |\n", e->loss,
                   exp(e->loss)));
    if (e->bits_per_byte > 0)
        PL_TRY(say(out, "| bits a byte | %.4f |\n", e->bits_per_byte));
    if (e->floor_loss > 0)
        PL_TRY(say(out, "| the data's own entropy | %.4f nats a token |\n", e->floor_loss));
    if (r->known) {
        PL_TRY(say(out, "| tokens trained | %s |\n", pl_view_count((double)r->view.tokens).at));
        PL_TRY(say(out, "| bytes up, down | %s, %s |\n", pl_view_bytes(r->view.bytes_up).at,
                   pl_view_bytes(r->view.bytes_down).at));
        if (r->view.goodput >= 0)
            PL_TRY(say(out, "| goodput | %.1f%% |\n", 100 * r->view.goodput));
        if (merged_alive(r) >= 0)
            PL_TRY(say(out, "| merged / alive, mean of the run | %.1f%% |\n", 100 * merged_alive(r)));
        PL_TRY(say(out, "| learners lost, rejoined | %" PRIu64 ", %" PRIu64 " |\n| refused | %" PRIu64 " |\n",
                   r->view.lost, r->view.rejoined, r->view.refused));
    }
    if (e->sample.len > 0) {
        PL_TRY(say(out, "\n## It says\n\n> "));
        for (size_t i = 0; i < e->sample.len; i++)
            PL_TRY(say(out, e->sample.data[i] == '\n' ? "\n> " : "%c", e->sample.data[i]));
    }
    return say(out, "\n");
}

static enum pelago_status say_list(const struct pl_run_process *list, uint32_t count, struct pl_buf *out)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct pl_child *c = &list[i].child;
        PL_TRY(say(out, "| %s | %u | %u |\n", c->name, c->starts, c->kills));
    }
    return PELAGO_OK;
}

static enum pelago_status say_processes(const struct pl_run *r, struct pl_buf *out)
{
    if (r->args.resume)
        PL_TRY(say(out, "\nStarts, curve and events are of the time since the run was resumed%s.\n",
                   r->totals.partial ? "; so are bytes, merged / alive and what was lost or refused" : ""));
    PL_TRY(say(out, "\n## Processes\n\n| process | starts | of them after kill -9 |\n|---|---|---|\n"));
    PL_TRY(say_list(r->syncers, r->settings.shards, out));
    return say_list(r->learners, r->settings.learners, out);
}

/* A status may come before anybody has said a loss. */
static struct pl_view_text loss_text(double loss)
{
    struct pl_view_text t = {"-"};
    if (loss > 0)
        (void)snprintf(t.at, sizeof t.at, "%.4f", loss);
    return t;
}

static enum pelago_status say_history(const struct pl_run_history *h, struct pl_buf *out)
{
    enum { EVENTS_MAX = 200 };
    uint32_t step = h->points / 20 + 1;
    PL_TRY(say(out, "\n## Curve\n\n| time | tokens | loss | alive |\n|---|---|---|---|\n"));
    for (uint32_t i = 0; i < h->points; i += step)
        PL_TRY(say(out, "| %s | %s | %s | %u |\n", pl_view_time(h->curve[i].seconds).at,
                   pl_view_count((double)h->curve[i].tokens).at, loss_text(h->curve[i].loss).at,
                   h->curve[i].alive));
    if (h->event_count == 0)
        return PELAGO_OK;
    PL_TRY(say(out, "\n## What happened\n\n"));
    const struct pl_run_event *e;
    for (uint64_t i = 0; i < EVENTS_MAX && (e = pl_history_at(h, i)) != NULL; i++)
        PL_TRY(say(out, "- %s: %s\n", pl_view_time(e->seconds).at, e->text));
    if (h->event_count > EVENTS_MAX)
        PL_TRY(say(out, "- ... %" PRIu64 " in all; report.json has more\n", h->event_count));
    return PELAGO_OK;
}

enum pelago_status pl_report_md(const struct pl_run *r, const struct pl_run_result *e, struct pl_buf *out)
{
    PL_TRY(say_settings(r, out));
    PL_TRY(say_result(r, e, out));
    PL_TRY(say_processes(r, out));
    return say_history(&r->history, out);
}
