/* cmd/cmd_sim_plan.c - `pelago sim --plan FILE`: what `pelago chaos` would do to a real cluster is done to a simulated one.
 *
 *   kill                crash, and start 1 s later, as `pelago run` does       down, up    crash, start
 *   stop, continue      freeze, thaw                                           terminate   quit
 *   slow-cpu to 25%     pace 4000 (permille of a step's time)                  partition   cut, heal (in: down, out: up)
 *   link rate latency   bandwidth, latency (the simulator's own jitter is a    reset       reset
 *                       quarter of the latency; the plan's is not more)        half-open   reset half
 *   fill-disk syncer    disk-full, disk-ok
 *
 * A syncer's kill is harder there: it is a power cut, which loses what was not synced. The rest has no counterpart and is
 * refused by line. Lines "sim ..." of the plan go into the script as they are; the cluster has as many learners as the
 * plan names, at least four, unless they say otherwise.
 */
#include "cmd/cmd_sim_plan.h"

#include "base/check.h"
#include "base/num.h"
#include "chaos/schedule.h"
#include "cmd/chaos_file.h"
#include "cmd/cmd.h"
#include "cmd/cmd_sim.h"
#include "cmd/text.h"
#include "sim/script.h"

#include <string.h>

enum { SCRIPT_MAX = 16 << 20, LEARNERS_MIN = 4, SIM_LEARNERS_MAX = 4000 };
static const uint64_t restart_ns = PL_SEC;

struct translation {
    const struct pl_chaos_plan *plan;
    const char *text;
    struct pl_buf *out;
    struct pl_error *err;
    uint32_t learners, shards;
};

/* ---- the cluster ---- */

static void widen(struct translation *t, const struct pl_chaos_target *target)
{
    for (uint32_t i = 0; target->pick == PL_PICK_LISTED && i < target->range_count; i++) {
        uint32_t last = target->ranges[i].last;
        if (target->syncer)
            t->shards = pl_max32(t->shards, last + 1);
        else
            t->learners = pl_max32(t->learners, last);
    }
}

/* "set learners 8" of a sim line; 0: it is another. */
static uint32_t set_value(const struct translation *t, const struct pl_chaos_sim_line *line, const char *name)
{
    char words[64];
    size_t len = pl_min64(line->len, sizeof words - 1);
    uint64_t value;
    memcpy(words, t->text + line->at, len);
    words[len] = '\0';
    char number[24];
    const char *at = words + strspn(words, " \t");
    if (strncmp(at, "set", 3) != 0)
        return 0;
    at += 3 + strspn(at + 3, " \t");
    if (strncmp(at, name, strlen(name)) != 0 || strchr(" \t", at[strlen(name)]) == NULL)
        return 0;
    at += strlen(name);
    at += strspn(at, " \t");
    (void)snprintf(number, sizeof number, "%.*s", (int)strspn(at, "0123456789"), at);
    return pl_text_number(number, &value) && value <= SIM_LEARNERS_MAX ? (uint32_t)value : 0;
}

static void size_cluster(struct translation *t)
{
    t->learners = LEARNERS_MIN;
    t->shards = 1;
    for (uint32_t i = 0; i < t->plan->rule_count; i++)
        widen(t, &t->plan->rules[i].action.target);
    for (uint32_t i = 0; i < t->plan->sim_line_count; i++) {
        uint32_t learners = set_value(t, &t->plan->sim_lines[i], "learners");
        uint32_t shards = set_value(t, &t->plan->sim_lines[i], "shards");
        t->learners = learners > 0 ? learners : t->learners;
        t->shards = shards > 0 ? shards : t->shards;
    }
}

/* ---- one event ---- */

static enum pelago_status put(struct translation *t, const char *line)
{
    enum pelago_status status = pl_buf_append(t->out, line, strlen(line));
    return status == PELAGO_OK ? status : pl_fail(t->err, status, "the plan makes too long a script");
}

/* at 12.500s VERB learner 2 REST. At time 0 nobody has started yet; all that can be said then is who is absent. */
static enum pelago_status put_at(struct translation *t, const struct pl_chaos_event *ev, uint64_t delay_ns,
                                 const char *verb, const char *rest)
{
    char line[160];
    uint64_t ns = strcmp(verb, "absent") == 0 ? 0 : pl_max64(ev->at_ns + delay_ns, PL_MS);
    (void)snprintf(line, sizeof line, "at %llu.%03llus %s %s %u%s%s\n", (unsigned long long)(ns / PL_SEC),
                   (unsigned long long)(ns / PL_MS % 1000), verb,
                   ev->action->target.syncer ? "syncer" : "learner", ev->node, rest[0] != '\0' ? " " : "",
                   rest);
    return put(t, line);
}

static enum pelago_status refuse(const struct translation *t, const struct pl_chaos_action *a,
                                 const char *why)
{
    return pl_fail(t->err, PELAGO_INVALID,
                   "line %u of the plan: the simulator %s; leave the line out, or use pelago chaos", a->line,
                   why);
}

static enum pelago_status put_link(struct translation *t, const struct pl_chaos_event *ev)
{
    const uint32_t known = 1U << PL_SHAPE_RATE | 1U << PL_SHAPE_LATENCY | 1U << PL_SHAPE_JITTER;
    const struct pl_chaos_action *a = ev->action;
    char rest[48];
    if ((a->change.keys & ~known) != 0)
        return refuse(t, a, "knows rate, latency and jitter of a link, and no other key");
    if (a->dirs != PL_SHAPE_BOTH)
        return refuse(t, a, "shapes a link in both directions only");
    if ((a->change.keys & 1U << PL_SHAPE_JITTER) != 0 &&
        a->change.to.v[PL_SHAPE_JITTER] > a->change.to.v[PL_SHAPE_LATENCY] / 4)
        return refuse(t, a, "has a jitter of a quarter of the latency, and no more");
    if ((a->change.keys & 1U << PL_SHAPE_RATE) != 0) {
        (void)snprintf(rest, sizeof rest, "%llu",
                       ev->undo ? 0ULL : (unsigned long long)a->change.to.v[PL_SHAPE_RATE]);
        PL_TRY(put_at(t, ev, 0, "bandwidth", rest));
    }
    if ((a->change.keys & 1U << PL_SHAPE_LATENCY) == 0)
        return PELAGO_OK;
    (void)snprintf(rest, sizeof rest, "%lluus",
                   ev->undo ? 0ULL : (unsigned long long)(a->change.to.v[PL_SHAPE_LATENCY] / PL_US));
    return put_at(t, ev, 0, "latency", rest);
}

static enum pelago_status put_process(struct translation *t, const struct pl_chaos_event *ev)
{
    const struct pl_chaos_action *a = ev->action;
    char rest[32];
    switch ((uint32_t)a->verb) {
    case PL_CHAOS_KILL:
        PL_TRY(put_at(t, ev, 0, "crash", ""));
        return put_at(t, ev, restart_ns, "start", "");
    case PL_CHAOS_DOWN:
        if (ev->at_ns == 0 && !ev->undo && !a->target.syncer)
            return put_at(t, ev, 0, "absent", "");
        return put_at(t, ev, 0, ev->undo ? "start" : "crash", "");
    case PL_CHAOS_UP:
        return put_at(t, ev, 0, "start", "");
    case PL_CHAOS_TERMINATE:
        return a->target.syncer ? refuse(t, a, "has no polite end of a syncer")
                                : put_at(t, ev, 0, "quit", "");
    case PL_CHAOS_STOP:
    case PL_CHAOS_CONTINUE:
        if (a->target.syncer)
            return refuse(t, a, "stops learners only");
        return put_at(t, ev, 0, ev->undo || a->verb == PL_CHAOS_CONTINUE ? "thaw" : "freeze", "");
    case PL_CHAOS_SLOW_CPU:
        if (a->target.syncer)
            return refuse(t, a, "slows learners only");
        (void)snprintf(rest, sizeof rest, "%u", ev->undo ? 1000 : 100000 / a->percent);
        return put_at(t, ev, 0, "pace", rest);
    case PL_CHAOS_FILL_DISK:
    case PL_CHAOS_FREE_DISK:
        if (!a->target.syncer)
            return refuse(t, a, "fills disks of syncers only");
        return put_at(t, ev, 0, ev->undo || a->verb == PL_CHAOS_FREE_DISK ? "disk-ok" : "disk-full", "");
    default:
        return refuse(t, a, "has no such damage inside a connection");
    }
}

static enum pelago_status put_event(struct translation *t, const struct pl_chaos_event *ev)
{
    static const char *const sides[] = {"", "up", "down", ""};
    const struct pl_chaos_action *a = ev->action;
    switch ((uint32_t)a->verb) {
    case PL_CHAOS_LINK:
        return put_link(t, ev);
    case PL_CHAOS_PARTITION:
        return put_at(t, ev, 0, ev->undo ? "heal" : "cut", sides[a->dirs]);
    case PL_CHAOS_HEAL:
        return put_at(t, ev, 0, "heal", sides[a->dirs]);
    case PL_CHAOS_CLEAR:
        PL_TRY(put_at(t, ev, 0, "heal", ""));
        PL_TRY(put_at(t, ev, 0, "bandwidth", "0"));
        return put_at(t, ev, 0, "latency", "0us");
    case PL_CHAOS_RESET:
        return put_at(t, ev, 0, "reset", "");
    case PL_CHAOS_HALF_OPEN:
        return put_at(t, ev, 0, "reset", "half");
    default:
        return put_process(t, ev);
    }
}

/* ---- the script ---- */

/* Half of the learners are a quorum, and the run has to reach its end whatever was done to it. */
static enum pelago_status put_head(struct translation *t)
{
    char head[300];
    uint64_t until = t->plan->until_ns == PL_NEVER ? 120 * PL_SEC : pl_max64(t->plan->until_ns, 20 * PL_SEC);
    (void)snprintf(
        head, sizeof head,
        "set learners %u\nset shards %u\nset fragments %u\nset quorum %u\nset seed %llu\nset duration %llus\n"
        "until the end\nfinally at least 1 syncer 0 round.merge *\n",
        t->learners, t->shards, pl_max32(2, t->shards), pl_max32(1, t->learners / 2),
        (unsigned long long)t->plan->seed, (unsigned long long)(until / PL_SEC));
    PL_TRY(put(t, head));
    for (uint32_t i = 0; i < t->plan->sim_line_count; i++) {
        const struct pl_chaos_sim_line *line = &t->plan->sim_lines[i];
        if (pl_buf_append(t->out, t->text + line->at, line->len) != PELAGO_OK)
            return pl_fail(t->err, PELAGO_LIMIT, "the plan makes too long a script");
        PL_TRY(put(t, "\n"));
    }
    return PELAGO_OK;
}

static enum pelago_status put_events(struct translation *t, const struct pl_alloc *alloc)
{
    struct pl_chaos_schedule s;
    struct pl_chaos_event ev;
    uint32_t numbers[SIM_LEARNERS_MAX + 1];
    for (uint32_t i = 0; i <= SIM_LEARNERS_MAX; i++)
        numbers[i] = i;
    if (t->learners > SIM_LEARNERS_MAX || t->shards > PL_SHARDS_MAX)
        return pl_fail(t->err, PELAGO_INVALID,
                       "the plan names learner %u and syncer %u, more than are simulated", t->learners,
                       t->shards - 1);
    enum pelago_status status =
        pl_chaos_schedule_init(&s, t->plan, numbers + 1, t->learners, numbers, t->shards, alloc, t->err);
    while (status == PELAGO_OK && pl_chaos_schedule_next(&s, &ev))
        status = put_event(t, &ev);
    pl_chaos_schedule_release(&s);
    return status;
}

enum pelago_status pl_sim_plan_script(const struct pl_chaos_plan *plan, const char *text,
                                      const struct pl_alloc *alloc, struct pl_buf *script,
                                      struct pl_error *err)
{
    struct translation t = {.plan = plan, .text = text, .out = script, .err = err};
    size_cluster(&t);
    PL_TRY(put_head(&t));
    return put_events(&t, alloc);
}

/* ---- running it ---- */

/* path NULL: the sentence names it. */
static int say_error(const char *path, enum pelago_status status, struct pl_error *err)
{
    pl_text_clean(err->text);
    (void)pl_sim_usage_error("%s%s%s", path != NULL ? pl_text_clip(path).at : "", path != NULL ? ": " : "",
                             err->text);
    return status == PELAGO_INVALID ? PL_EXIT_USAGE : PL_EXIT_FAILED;
}

static int run_script(const struct pl_sim_call *call, const struct pl_buf *text, const struct pl_alloc *alloc)
{
    struct pl_script *script;
    struct pl_sim_result result;
    struct pl_error err;
    enum pelago_status status = pl_script_parse((const char *)text->data, text->len, alloc, &script, &err);
    if (status != PELAGO_OK)
        return say_error(call->plan, status, &err);
    status = pl_script_run(script, alloc, &result, call->trace ? pl_sim_print_line : NULL, stdout, &err);
    pl_script_free(script);
    if (status != PELAGO_OK)
        return say_error(call->plan, status, &err);
    pl_text_clean(result.what);
    printf("%s: %s%s, %llu s, %llu tokens trained, %llu merged, %llu merges, %llu rejoins, %llu boots, loss "
           "%.4g, trace "
           "%016llx\n",
           pl_text_clip(call->plan).at, result.exit == PL_SIM_OK ? "good" : "",
           result.exit == PL_SIM_OK ? "" : result.what, (unsigned long long)(result.cluster_ns / PL_SEC),
           (unsigned long long)result.trained_tokens, (unsigned long long)result.merged_tokens,
           (unsigned long long)result.merges, (unsigned long long)result.rejoins,
           (unsigned long long)result.syncer_boots, result.loss_final, (unsigned long long)result.trace_hash);
    pl_sim_print_marks(call);
    printf("reproduce: pelago sim --plan ");
    pl_text_quote(stdout, call->plan);
    pl_sim_print_common(stdout, call);
    return (int)result.exit;
}

int pl_sim_rehearsal(const struct pl_sim_call *call)
{
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_chaos_plan plan;
    struct pl_buf text, script;
    struct pl_error err;
    pl_buf_init(&text, &alloc, PL_CHAOS_TEXT_MAX);
    pl_buf_init(&script, &alloc, SCRIPT_MAX);
    enum pelago_status status = pl_chaos_read_file(call->plan, &text, &err);
    const char *path = status == PELAGO_OK ? call->plan : NULL;
    if (status == PELAGO_OK)
        status = pl_chaos_plan_parse(&plan, (const char *)text.data, text.len, &alloc, &err);
    if (status == PELAGO_OK) {
        status = pl_sim_plan_script(&plan, (const char *)text.data, &alloc, &script, &err);
        pl_chaos_plan_release(&plan);
    }
    if (status == PELAGO_OK && call->trace)
        printf("%.*s\n", (int)script.len, (const char *)script.data);
    int code = status != PELAGO_OK ? say_error(path, status, &err) : run_script(call, &script, &alloc);
    pl_buf_release(&text);
    pl_buf_release(&script);
    return code;
}
