/* cmd/cmd_chaos.c - `pelago chaos`: flags in; a plan out of a file, of rates and of a recorded trace; then it is performed
 * on the run in DIR, printed, or (by `pelago sim --plan`) rehearsed. docs/chaos.md is the page for people. */
#include "base/buf.h"
#include "base/check.h"
#include "chaos/proxy.h"
#include "chaos/trace.h"
#include "chaos/units.h"
#include "cmd/chaos_file.h"
#include "cmd/chaos_run.h"
#include "cmd/cmd.h"
#include "cmd/options.h"
#include "cmd/text.h"
#include "os/clock.h"

#include <poll.h>
#include <string.h>

struct chaos_call {
    const char *dir, *plan, *trace, *log, *proxy, *wait, *until, *skip;
    const char *kill_every, *kill_syncer_every, *stop_every, *stop_for, *slow_every, *reset_every;
    const char *partition_every, *partition_for;
    bool about, fold, dry, print, heal, quiet;
    uint64_t seed;
    uint32_t learners;
    double time_scale;
};

/* ---- what is given ---- */

/* Read once, as either may be a pipe. */
struct inputs {
    struct pl_buf plan, trace;
    uint64_t skip_ns;
};

/* What it says is the person's, whether it is there is not. */
static int say_file_error(enum pelago_status status, const struct pl_error *err)
{
    return status == PELAGO_INVALID ? pl_refusal("chaos", err) : pl_failure("chaos", err);
}

static void inputs_release(struct inputs *in)
{
    pl_buf_release(&in->plan);
    pl_buf_release(&in->trace);
}

static int inputs_read(struct inputs *in, const struct chaos_call *call, const struct pl_alloc *alloc)
{
    struct pl_error err;
    enum pelago_status status = PELAGO_OK;
    *in = (struct inputs){.skip_ns = 0};
    pl_buf_init(&in->plan, alloc, PL_CHAOS_TEXT_MAX);
    pl_buf_init(&in->trace, alloc, PL_TRACE_BYTES_MAX);
    if (!(call->time_scale > 0) || call->time_scale > 1e9)
        return pl_usage_error("chaos", "--time-scale is how many times faster than recorded, such as 100");
    if (!pl_unit_time(call->skip, &in->skip_ns))
        return pl_usage_error("chaos", "--skip is '%s', expected a time such as 2h",
                              pl_text_clip(call->skip).at);
    if (call->plan != NULL)
        status = pl_chaos_read_file(call->plan, &in->plan, &err);
    if (status == PELAGO_OK && call->trace != NULL)
        status = pl_chaos_read_file(call->trace, &in->trace, &err);
    return status == PELAGO_OK ? PL_EXIT_OK : say_file_error(status, &err);
}

/* ---- the plan's text ---- */

static int add(struct pl_buf *text, const char *words)
{
    if (pl_buf_append(text, words, strlen(words)) == PELAGO_OK)
        return PL_EXIT_OK;
    return pl_usage_error("chaos", "the plan is longer than 4 MiB");
}

static int add_time(struct pl_buf *text, const char *option, const char *value, const char *before,
                    const char *after)
{
    char line[200];
    uint64_t ns;
    if (!pl_unit_time(value, &ns) || ns == 0)
        return pl_usage_error("chaos", "--%s is '%s', expected a time such as 15s or 30m", option,
                              pl_text_clip(value).at);
    (void)snprintf(line, sizeof line, "%s%s%s\n", before, value, after);
    return add(text, line);
}

/* A rate is a line of a plan. Without --for it goes on until the run is gone, or longer than any run. */
static int add_rates(const struct chaos_call *call, struct pl_buf *text)
{
    char stop[96], partition[96];
    uint64_t ns;
    if (!pl_unit_time(call->stop_for, &ns) || !pl_unit_time(call->partition_for, &ns))
        return pl_usage_error("chaos", "--stop-for and --partition-for expect times such as 5s");
    const char *every = call->about ? "about every " : "every ",
               *to = call->until == NULL ? " to 87600h" : "";
    (void)snprintf(stop, sizeof stop, " stop random learner for %.40s", call->stop_for);
    (void)snprintf(partition, sizeof partition, " partition half learners for %.40s", call->partition_for);
    const struct {
        const char *option, *value, *after;
    } rates[] = {
        {"kill-every", call->kill_every, " kill random learner"},
        {"kill-syncer-every", call->kill_syncer_every, " kill random syncer"},
        {"stop-every", call->stop_every, stop},
        {"slow-every", call->slow_every, " slow-cpu random learner to 30% for 10s"},
        {"reset-every", call->reset_every, " reset link random learner"},
        {"partition-every", call->partition_every, partition},
    };
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        char after[128];
        (void)snprintf(after, sizeof after, "%s%s", to, rates[i].after);
        int code = rates[i].value == NULL ? PL_EXIT_OK
                                          : add_time(text, rates[i].option, rates[i].value, every, after);
        if (code != PL_EXIT_OK)
            return code;
    }
    return PL_EXIT_OK;
}

static int add_trace(const struct chaos_call *call, const struct inputs *in, uint32_t learners,
                     const struct pl_alloc *alloc, struct pl_buf *text)
{
    const struct pl_trace_options o = {.learners = learners,
                                       .fold = call->fold,
                                       .time_scale = call->time_scale,
                                       .skip_s = in->skip_ns / PL_SEC};
    struct pl_error err;
    enum pelago_status status =
        pl_trace_to_plan((const char *)in->trace.data, in->trace.len, &o, alloc, text, &err);
    return status == PELAGO_OK ? PL_EXIT_OK : say_file_error(status, &err);
}

static int make_text(const struct chaos_call *call, const struct inputs *in, uint32_t learners,
                     const struct pl_alloc *alloc, struct pl_buf *text)
{
    char seed[64];
    int code = PL_EXIT_OK;
    if (pl_buf_append(text, in->plan.data, in->plan.len) != PELAGO_OK)
        return pl_usage_error("chaos", "there is no memory for the plan"), PL_EXIT_FAILED;
    if (text->len > 0 && text->data[text->len - 1] != '\n')
        code = add(text, "\n");
    if (code == PL_EXIT_OK && call->trace != NULL)
        code = add_trace(call, in, learners, alloc, text);
    if (code == PL_EXIT_OK)
        code = add_rates(call, text);
    if (code == PL_EXIT_OK && text->len == 0 && call->trace == NULL)
        return pl_usage_error("chaos",
                              "nothing to do: give --plan, --trace, or a rate such as --kill-every 15s");
    (void)snprintf(seed, sizeof seed, "seed %llu\n", (unsigned long long)call->seed);
    if (code == PL_EXIT_OK && call->seed != UINT64_MAX)
        code = add(text, seed);
    if (code == PL_EXIT_OK && call->until != NULL)
        code = add_time(text, "for", call->until, "until ", "");
    return code;
}

/* ---- what to do with it ---- */

/* Waits for run.json, as a run that is just starting has none yet. */
static enum pelago_status find_run(struct pl_cluster *c, uint64_t wait_ns, struct pl_error *err)
{
    uint64_t until = pl_clock_ns() + wait_ns;
    for (bool told = false;; told = true) {
        enum pelago_status status = pl_cluster_refresh(c, err);
        if (status != PELAGO_NOTFOUND || pl_clock_ns() >= until)
            return status;
        if (!told)
            fprintf(stderr, "pelago chaos: waiting up to %u s for a run to begin in %s\n",
                    (unsigned)(wait_ns / PL_SEC), c->dir);
        (void)poll(NULL, 0, 100);
    }
}

static int perform(const struct chaos_call *call, struct pl_cluster *c, const struct pl_chaos_plan *plan)
{
    char log[PL_CLUSTER_PATH + 32], proxy[PL_CLUSTER_PATH + 32];
    struct pl_error err;
    (void)snprintf(log, sizeof log, "%s/chaos.jsonl", c->dir);
    (void)snprintf(proxy, sizeof proxy, "%s/proxy.sock", c->dir);
    struct pl_chaos_run r = {.cluster = c,
                             .alloc = c->alloc,
                             .proxy = call->proxy != NULL ? call->proxy : proxy,
                             .say = call->quiet ? NULL : stderr,
                             .start_ns = pl_clock_ns()};
    if (pl_chaos_log_open(&r, call->log != NULL ? call->log : log, &err) != PELAGO_OK)
        return pl_failure("chaos", &err);
    int code = PL_EXIT_OK;
    if (call->heal)
        code = pl_chaos_heal_all(&r, &err);
    else
        code = pl_chaos_perform(&r, plan, &err);
    if (code != PL_EXIT_OK)
        (void)pl_failure("chaos", &err);
    if (!pl_chaos_log_close(&r) && code == PL_EXIT_OK)
        return pl_usage_error("chaos", "some lines could not be written to the log"), PL_EXIT_FAILED;
    return code;
}

/* The plan as it will be, with its random choices made. */
static int print_events(const struct pl_chaos_plan *plan, uint32_t learners, uint32_t syncers,
                        const struct pl_alloc *alloc)
{
    struct pl_chaos_schedule s;
    struct pl_chaos_event ev;
    struct pl_error err;
    uint32_t numbers[PL_CHAOS_NODES_MAX];
    char when[32];
    for (uint32_t i = 0; i < PL_CHAOS_NODES_MAX; i++)
        numbers[i] = i;
    int code = PL_EXIT_OK;
    if (pl_chaos_schedule_init(&s, plan, numbers + 1, learners, numbers, syncers, alloc, &err) != PELAGO_OK)
        code = pl_refusal("chaos", &err);
    while (code == PL_EXIT_OK && pl_chaos_schedule_next(&s, &ev)) {
        const struct pl_chaos_action *a = ev.action;
        pl_unit_put_time(when, sizeof when, ev.at_ns);
        printf("at %s %s %s %u\n", when,
               ev.undo ? pl_chaos_verb_undo_name(a->verb) : pl_chaos_verb_name(a->verb),
               a->target.syncer ? "syncer" : "learner", ev.node);
    }
    pl_chaos_schedule_release(&s);
    return code;
}

static bool has_rates(const struct chaos_call *call)
{
    return call->kill_every != NULL || call->kill_syncer_every != NULL || call->stop_every != NULL ||
           call->slow_every != NULL || call->reset_every != NULL || call->partition_every != NULL;
}

/* OK: there is a plan to release. */
static int make_plan(const struct chaos_call *call, const struct inputs *in, uint32_t learners,
                     const struct pl_alloc *alloc, struct pl_buf *text, struct pl_chaos_plan *plan)
{
    struct pl_error err;
    int code = make_text(call, in, learners, alloc, text);
    if (code == PL_EXIT_OK &&
        pl_chaos_plan_parse(plan, (const char *)text->data, text->len, alloc, &err) != PELAGO_OK)
        code = pl_refusal("chaos", &err);
    return code;
}

/* Before the run is there: whatever is wrong is not waited with. How many learners it has only says which
 * of a trace's lines there are. */
static int check_plan(const struct chaos_call *call, const struct inputs *in, const struct pl_alloc *alloc)
{
    struct pl_chaos_plan plan;
    struct pl_buf text;
    pl_buf_init(&text, alloc, PL_CHAOS_TEXT_MAX);
    int code = make_plan(call, in, call->learners > 0 ? call->learners : 1, alloc, &text, &plan);
    if (code == PL_EXIT_OK)
        pl_chaos_plan_release(&plan);
    pl_buf_release(&text);
    return code;
}

static int with_plan(const struct chaos_call *call, const struct inputs *in, struct pl_cluster *c,
                     const struct pl_alloc *alloc)
{
    struct pl_chaos_plan plan;
    struct pl_buf text;
    uint32_t learners = call->learners > 0 ? call->learners : c->learners;
    pl_buf_init(&text, alloc, PL_CHAOS_TEXT_MAX);
    int code = make_plan(call, in, learners, alloc, &text, &plan);
    if (code == PL_EXIT_OK) {
        if (call->dry && !call->print && has_rates(call) && plan.until_ns == PL_NEVER)
            code = pl_usage_error("chaos", "rates go on until the run is gone: --dry-run needs --for TIME");
        else if (call->print)
            (void)fwrite(text.data, 1, text.len, stdout);
        else if (call->dry)
            code = print_events(&plan, learners, c->count > c->learners ? c->count - c->learners : 1, alloc);
        else
            code = perform(call, c, &plan);
        pl_chaos_plan_release(&plan);
    }
    pl_buf_release(&text);
    return code;
}

static int with_run(const struct chaos_call *call, const struct inputs *in, uint64_t wait_ns,
                    const struct pl_alloc *alloc)
{
    struct pl_cluster c = {.alloc = alloc};
    struct pl_error err;
    int code = PL_EXIT_OK;
    if (call->dir != NULL) {
        enum pelago_status status = pl_cluster_init(&c, call->dir, alloc, &err);
        if (status == PELAGO_OK)
            status = find_run(&c, wait_ns, &err);
        if (status != PELAGO_OK)
            code = pl_failure("chaos", &err);
    }
    if (code == PL_EXIT_OK)
        code = call->heal ? perform(call, &c, NULL) : with_plan(call, in, &c, alloc);
    pl_cluster_release(&c);
    return code;
}

static int run_call(const struct chaos_call *call)
{
    struct pl_alloc alloc = pl_alloc_system();
    struct inputs in;
    uint64_t wait_ns;
    bool look_only = call->dry || call->print;
    if (!pl_unit_time(call->wait, &wait_ns))
        return pl_usage_error("chaos", "--wait is '%s', expected a time such as 30s",
                              pl_text_clip(call->wait).at);
    if (call->dir == NULL && !(look_only && call->learners > 0))
        return pl_usage_error("chaos", "which run? give its folder%s",
                              look_only ? ", or --learners to look at a plan without one" : "");
    if (call->heal)
        return with_run(call, NULL, 0, &alloc);
    int code = inputs_read(&in, call, &alloc);
    if (code == PL_EXIT_OK && call->dir != NULL)
        code = check_plan(call, &in, &alloc);
    if (code == PL_EXIT_OK)
        code = with_run(call, &in, look_only ? 0 : wait_ns, &alloc);
    inputs_release(&in);
    return code;
}

/* ---- `pelago chaos proxy` ---- */

static int run_proxy(int argc, char **argv)
{
    struct pl_proxy_options o = {.listen = "127.0.0.1:0", .learners = 1, .seed = 1, .signals = true};
    const struct pl_option table[] = {
        {"to", "HOST:PORT", "where connections go; with commas, the shards 0, 1, ...", PL_OPTION_TEXT, &o.to,
         0, 0},
        {"listen", "HOST:PORT",
         "where they come from (default 127.0.0.1:0); links get this port and the next ones", PL_OPTION_TEXT,
         &o.listen, 0, 0},
        {"ports", "N", "learners; each gets a port for every shard (default 1)", PL_OPTION_U32, &o.learners,
         1, PL_PROXY_LINKS_MAX},
        {"state", "FILE", "write the ports there, as JSON, once all listen", PL_OPTION_TEXT, &o.state, 0, 0},
        {"control", "PATH", "take orders at this Unix socket", PL_OPTION_TEXT, &o.control, 0, 0},
        {"seed", "N", "of jitter and corruption (default 1)", PL_OPTION_U64, &o.seed, 0, 0},
    };
    const struct pl_options options = {
        "chaos proxy", "--to HOST:PORT [OPTION...]",
        "passes TCP connections on, and makes their links slow, far, cut or damaged on order.\n"
        "Orders: set LINK [up|down] KEY VALUE..., clear LINK, reset LINK, half-open LINK, stats, stop.",
        table, sizeof table / sizeof table[0]};
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_proxy *proxy;
    struct pl_words words;
    struct pl_error err;
    int code;
    if (!pl_options_parse(&options, argc, argv, &words, &code))
        return code;
    if (o.to == NULL || words.count > 0)
        return pl_usage_error("chaos proxy", o.to == NULL ? "--to is needed: where do connections go"
                                                          : "it takes options only, no words");
    enum pelago_status st = pl_proxy_new(&proxy, &o, &alloc, &err);
    if (st != PELAGO_OK)
        return st == PELAGO_INVALID ? pl_refusal("chaos proxy", &err) : pl_failure("chaos proxy", &err);
    for (uint32_t i = 1; o.state == NULL && i <= o.learners; i++)
        printf("learner %u port %u\n", i, pl_proxy_port(proxy, i, 0));
    (void)fflush(stdout);
    pl_proxy_run(proxy);
    pl_proxy_free(proxy);
    return PL_EXIT_OK;
}

/* `pelago chaos tell PATH ORDER...`: one order from a shell. */
static int run_tell(int argc, char **argv)
{
    char order[900] = "", answer[8192];
    struct pl_error err;
    if (argc < 3)
        return pl_usage_error("chaos tell",
                              "expected: pelago chaos tell SOCKET ORDER..., such as 'set 2 rate 1Mbit'");
    for (int i = 2; i < argc; i++) {
        size_t len = strlen(order), more = strlen(argv[i]);
        if (len + more + 2 > sizeof order)
            return pl_usage_error("chaos tell", "the order is too long");
        if (len > 0)
            order[len++] = ' ';
        memcpy(order + len, argv[i], more + 1);
    }
    if (pl_proxy_ask(argv[1], order, 5000, answer, sizeof answer, &err) != PELAGO_OK)
        return pl_failure("chaos tell", &err);
    if (answer[0] != '\0')
        printf("%s\n", answer);
    return PL_EXIT_OK;
}

/* ---- flags ---- */

static const char about[] = "breaks a running cluster on purpose: by a plan, by rates, or by replaying a "
                            "recorded trace. What was done and when\n"
                            "goes to DIR/chaos.jsonl. docs/chaos.md has the words of a plan; `pelago sim "
                            "--plan FILE` rehearses one.\n"
                            "Also: pelago chaos proxy --help; pelago chaos tell SOCKET ORDER...";

int pl_cmd_chaos(int argc, char **argv)
{
    struct chaos_call call = {.wait = "30s",
                              .stop_for = "5s",
                              .partition_for = "10s",
                              .skip = "0",
                              .seed = UINT64_MAX,
                              .time_scale = 1};
    const struct pl_option table[] = {
        {"plan", "FILE", "a plan of faults", PL_OPTION_TEXT, &call.plan, 0, 0},
        {"trace", "FILE", "replay a log of failures (t_s,event,node,cause)", PL_OPTION_TEXT, &call.trace, 0,
         0},
        {"time-scale", "X", "of the trace: so many times faster (default 1)", PL_OPTION_FLOAT,
         &call.time_scale, 0, 0},
        {"fold", NULL, "of the trace: every node's fault counts (default: a learner is one node at a time)",
         PL_OPTION_FLAG, &call.fold, 0, 0},
        {"skip", "TIME", "of the trace: begin there, in its own time", PL_OPTION_TEXT, &call.skip, 0, 0},
        {"kill-every", "TIME", "kill -9 a random learner", PL_OPTION_TEXT, &call.kill_every, 0, 0},
        {"kill-syncer-every", "TIME", "kill -9 a random syncer", PL_OPTION_TEXT, &call.kill_syncer_every, 0,
         0},
        {"stop-every", "TIME", "SIGSTOP a random learner", PL_OPTION_TEXT, &call.stop_every, 0, 0},
        {"stop-for", "TIME", "... for so long (default 5s)", PL_OPTION_TEXT, &call.stop_for, 0, 0},
        {"slow-every", "TIME", "slow a random learner down to 30% for 10 s", PL_OPTION_TEXT, &call.slow_every,
         0, 0},
        {"reset-every", "TIME", "reset a random learner's connections", PL_OPTION_TEXT, &call.reset_every, 0,
         0},
        {"partition-every", "TIME", "cut off half of the learners", PL_OPTION_TEXT, &call.partition_every, 0,
         0},
        {"partition-for", "TIME", "... for so long (default 10s)", PL_OPTION_TEXT, &call.partition_for, 0, 0},
        {"about", NULL, "rates are means of random intervals", PL_OPTION_FLAG, &call.about, 0, 0},
        {"seed", "N", "of everything random", PL_OPTION_U64, &call.seed, 0, 0},
        {"for", "TIME", "end after this time, and heal everything", PL_OPTION_TEXT, &call.until, 0, 0},
        {"log", "FILE", "instead of DIR/chaos.jsonl", PL_OPTION_TEXT, &call.log, 0, 0},
        {"proxy", "PATH", "the proxy's control socket (default DIR/proxy.sock)", PL_OPTION_TEXT, &call.proxy,
         0, 0},
        {"wait", "TIME", "for the run to begin (default 30s)", PL_OPTION_TEXT, &call.wait, 0, 0},
        {"heal", NULL, "do nothing but take back what an earlier chaos may have left", PL_OPTION_FLAG,
         &call.heal, 0, 0},
        {"print-plan", NULL, "print the plan, with rates and trace as lines, and do nothing", PL_OPTION_FLAG,
         &call.print, 0, 0},
        {"dry-run", NULL, "print what would be done when, and do nothing", PL_OPTION_FLAG, &call.dry, 0, 0},
        {"learners", "N", "of a run that is not there, for the last two", PL_OPTION_U32, &call.learners, 1,
         4000},
        {"quiet", NULL, "say nothing on stderr", PL_OPTION_FLAG, &call.quiet, 0, 0},
    };
    const struct pl_options options = {"chaos", "DIR [OPTION...]", about, table,
                                       sizeof table / sizeof table[0]};
    struct pl_words words;
    int code;
    if (argc > 1 && strcmp(argv[1], "proxy") == 0)
        return run_proxy(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "tell") == 0)
        return run_tell(argc - 1, argv + 1);
    if (!pl_options_parse(&options, argc, argv, &words, &code))
        return code;
    if (words.count > 1)
        return pl_usage_error("chaos", "one folder is expected, not %u words", words.count);
    call.dir = words.count > 0 ? words.at[0] : NULL;
    return run_call(&call);
}
