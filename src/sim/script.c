/* sim/script.c - reading a script. One statement a line; words are separated by blanks; # begins a comment. */
#include "sim/script_int.h"

#include "base/check.h"
#include "base/fmt.h"
#include "base/limits.h"
#include "base/num.h"
#include "wire/msg.h"

#include <string.h>

enum { WORDS_MAX = 16, WORD_MAX = 40 };

struct words {
    char at[WORDS_MAX][WORD_MAX];
    uint32_t count;
    uint32_t next;
};

struct reader {
    struct pl_script *s;
    uint32_t line;
    struct words words;
    struct pl_error *err;
};

/* ---- words and numbers ---- */

static enum pelago_status bad(struct reader *r, const char *what, const char *word)
{
    return pl_fail(r->err, PELAGO_INVALID, "line %u of the script: %s%s%s", r->line, what,
                   word[0] != '\0' ? ": " : "", word);
}

static const char *peek(const struct reader *r)
{
    return r->words.next < r->words.count ? r->words.at[r->words.next] : "";
}

static const char *take(struct reader *r)
{
    return r->words.next < r->words.count ? r->words.at[r->words.next++] : "";
}

static bool take_if(struct reader *r, const char *word)
{
    if (strcmp(peek(r), word) != 0)
        return false;
    r->words.next++;
    return true;
}

static const char *digits(const char *p, uint64_t *out)
{
    const char *begin = p;
    *out = 0;
    for (; *p >= '0' && *p <= '9' && p - begin < 18; p++)
        *out = *out * 10 + (uint64_t)(*p - '0');
    return p == begin ? NULL : p;
}

static bool number(const char *word, uint64_t *out)
{
    const char *end = digits(word, out);
    return end != NULL && *end == '\0';
}

/* 250ms, 2s, 1.5s. */
static bool duration(const char *word, uint64_t *out)
{
    static const struct {
        const char *name;
        uint64_t ns;
    } units[] = {{"us", PL_US}, {"ms", PL_MS}, {"s", PL_SEC}};
    uint64_t whole, part = 0, scale = 1;
    const char *p = digits(word, &whole);
    if (p == NULL)
        return false;
    if (*p == '.') {
        const char *from = p + 1;
        p = digits(from, &part);
        if (p == NULL || p - from > 6)
            return false;
        for (const char *d = from; d < p; d++)
            scale *= 10;
    }
    for (uint32_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (strcmp(p, units[i].name) == 0) {
            *out = whole * units[i].ns + part * units[i].ns / scale;
            return whole < 1000000;
        }
    }
    return false;
}

/* ---- set ---- */

struct option {
    const char *name;
    size_t offset;
    bool wide; /* uint64_t, else uint32_t */
    bool time;
};
#define NUMBER(name, field)                                                                                  \
    {                                                                                                        \
        name, offsetof(struct pl_sim_options, field), false, false                                           \
    }
#define WIDE(name, field)                                                                                    \
    {                                                                                                        \
        name, offsetof(struct pl_sim_options, field), true, false                                            \
    }
#define TIME(name, field)                                                                                    \
    {                                                                                                        \
        name, offsetof(struct pl_sim_options, field), true, true                                             \
    }
static const struct option options[] = {
    WIDE("seed", seed),
    TIME("duration", duration_ns),
    NUMBER("learners", learners),
    NUMBER("shards", shards),
    NUMBER("fragments", fragments),
    NUMBER("quorum", quorum),
    NUMBER("overlap", overlap_steps),
    NUMBER("period", period_steps),
    NUMBER("gamma", gamma_ppm),
    NUMBER("staleness", staleness_max),
    NUMBER("apply", apply),
    TIME("step", step_ns),
    NUMBER("spread", speed_spread_permille),
    TIME("latency", latency_ns),
    WIDE("bandwidth", bandwidth),
    NUMBER("dimensions", dimensions),
    NUMBER("local-data", local_data_permille),
    TIME("checkpoint", checkpoint_ns),
    TIME("merge", merge_ns),
    TIME("sync", sync_ns),
    NUMBER("step-tokens", step_tokens),
    WIDE("budget", budget_tokens),
};

enum { OPTIONS = sizeof(options) / sizeof(options[0]) };
_Static_assert((int)OPTIONS <= (int)SCRIPT_OPTIONS_MAX, "every option has a line");

/* Its place in the table; OPTIONS when there is none. */
static uint32_t option_at(size_t offset)
{
    uint32_t i = 0;
    while (i < OPTIONS && options[i].offset != offset)
        i++;
    return i;
}

/* "250ms": the largest unit that says it exactly. */
static size_t put_value(char *out, size_t cap, const struct option *o, uint64_t value)
{
    static const struct {
        const char *name;
        uint64_t ns;
    } units[] = {{"s", PL_SEC}, {"ms", PL_MS}, {"us", PL_US}, {"ns", 1}};
    uint32_t i = 0;
    if (!o->time)
        return pl_fmt(out, cap, "%lu", value);
    while (value % units[i].ns != 0)
        i++;
    return pl_fmt(out, cap, "%lu%s", value / units[i].ns, units[i].name);
}

enum pelago_status pl_script_check_options(const struct pl_script *s, struct pl_error *err)
{
    struct pl_sim_wrong wrong;
    char value[32], lo[32], hi[32];
    if (!pl_sim_find_wrong(&s->options, &wrong))
        return PELAGO_OK;
    uint32_t i = option_at(wrong.offset);
    pl_assert(i < OPTIONS);
    put_value(value, sizeof(value), &options[i], wrong.value);
    put_value(lo, sizeof(lo), &options[i], wrong.lo);
    put_value(hi, sizeof(hi), &options[i], wrong.hi);
    if (s->option_line[i] == 0)
        return pl_fail(err, PELAGO_INVALID, "%s is %s unless set, and has to be %s to %s here",
                       options[i].name, value, lo, hi);
    return pl_fail(err, PELAGO_INVALID, "line %u of the script: %s is %s, expected %s to %s",
                   s->option_line[i], options[i].name, value, lo, hi);
}

static enum pelago_status read_set(struct reader *r)
{
    const char *name = take(r), *word = take(r);
    for (uint32_t i = 0; i < OPTIONS; i++) {
        const struct option *o = &options[i];
        uint64_t value;
        if (strcmp(o->name, name) != 0)
            continue;
        if (!(o->time ? duration(word, &value) : number(word, &value)))
            return bad(r, o->time ? "a time like 250ms or 2s is expected" : "a number is expected", word);
        if (!o->wide && value > UINT32_MAX)
            return bad(r, "the number is too large", word);
        if (r->words.next < r->words.count)
            return bad(r, "more words than expected", peek(r));
        r->s->option_line[i] = r->line;
        uint8_t *field = (uint8_t *)&r->s->options + o->offset;
        uint32_t narrow = (uint32_t)value;
        if (o->wide)
            memcpy(field, &value, sizeof(value));
        else
            memcpy(field, &narrow, sizeof(narrow));
        return PELAGO_OK;
    }
    return bad(r, "there is no such option", name);
}

/* ---- actions ---- */

enum takes {
    TAKES_TIME = 1 << 0,
    TAKES_NUMBER = 1 << 1,
    TAKES_CRASH = 1 << 2,
    TAKES_BREAK = 1 << 3,
    TAKES_SHARD = 1 << 4,   /* [from syncer S] */
    TAKES_DIRS = 1 << 5,    /* [up|down] */
    TAKES_MESSAGE = 1 << 6, /* a message's name */
    TAKES_EVERY = 1 << 7,   /* [every TIME] */
    OF_SYNCER = 1 << 8,     /* may be done to a syncer */
    OF_SYNCER_ONLY = 1 << 9,
};

static const struct {
    const char *word;
    enum pl_act kind;
    uint32_t takes;
} verbs[] = {
    {"crash", PL_ACT_CRASH, TAKES_CRASH | OF_SYNCER},
    {"start", PL_ACT_START, OF_SYNCER},
    {"absent", PL_ACT_ABSENT, 0},
    {"quit", PL_ACT_QUIT, 0},
    {"clone", PL_ACT_CLONE, 0},
    {"freeze", PL_ACT_FREEZE, 0},
    {"thaw", PL_ACT_THAW, 0},
    {"pace", PL_ACT_PACE, TAKES_NUMBER},
    {"step", PL_ACT_STEP, TAKES_TIME},
    {"checkpoint", PL_ACT_CHECKPOINT, TAKES_EVERY},
    {"cut", PL_ACT_CUT, TAKES_SHARD | TAKES_DIRS},
    {"heal", PL_ACT_HEAL, TAKES_SHARD | TAKES_DIRS},
    {"stall", PL_ACT_STALL, TAKES_DIRS},
    {"flow", PL_ACT_FLOW, TAKES_DIRS},
    {"slow", PL_ACT_SLOW, TAKES_NUMBER},
    {"bandwidth", PL_ACT_BANDWIDTH, TAKES_NUMBER},
    {"latency", PL_ACT_LATENCY, TAKES_TIME},
    {"reset", PL_ACT_RESET, TAKES_SHARD | TAKES_BREAK},
    {"hold", PL_ACT_HOLD, TAKES_MESSAGE | TAKES_SHARD | TAKES_DIRS},
    {"release", PL_ACT_RELEASE, TAKES_MESSAGE | TAKES_SHARD | TAKES_DIRS},
    {"repeat", PL_ACT_REPEAT, TAKES_SHARD},
    {"disk-full", PL_ACT_DISK_FULL, OF_SYNCER | OF_SYNCER_ONLY},
    {"disk-failing", PL_ACT_SYNC_FAIL, OF_SYNCER | OF_SYNCER_ONLY},
    {"disk-ok", PL_ACT_DISK_OK, OF_SYNCER | OF_SYNCER_ONLY},
};

static uint32_t message_number(const char *name)
{
    for (uint32_t type = 1; type < 256; type++) {
        const struct pl_msg_info *info = pl_msg_info((uint8_t)type);
        if (info != NULL && strcmp(info->name, name) == 0)
            return type;
    }
    return 0;
}

static enum pelago_status read_crash(struct reader *r, struct pl_action *a)
{
    a->arg = PL_CRASH_NOW;
    if (!a->syncer) {
        if (take_if(r, "wiped"))
            a->arg = PL_CRASH_WIPE;
        else if (take_if(r, "silently"))
            a->arg = PL_CRASH_SILENT;
        return PELAGO_OK;
    }
    bool after = take_if(r, "after");
    bool before = !after && take_if(r, "before");
    if ((after || before) && !take_if(r, "store"))
        return bad(r, "crash syncer NUMBER [after store|before store] is expected", peek(r));
    if (after || before)
        a->arg = after ? PL_CRASH_AFTER_STORE : PL_CRASH_BEFORE_STORE;
    return PELAGO_OK;
}

/* What may follow the node, as the verb's mask says. */
static enum pelago_status read_details(struct reader *r, uint32_t takes, struct pl_action *a)
{
    uint64_t value;
    if ((takes & TAKES_CRASH) != 0)
        PL_TRY(read_crash(r, a));
    if ((takes & TAKES_TIME) != 0 && !duration(take(r), &a->arg))
        return bad(r, "a time like 250ms or 2s is expected at the end", "");
    if ((takes & TAKES_NUMBER) != 0 && !number(take(r), &a->arg))
        return bad(r, "a number is expected at the end", "");
    if ((takes & TAKES_EVERY) != 0 && take_if(r, "every") && !duration(take(r), &a->arg))
        return bad(r, "every TIME is expected", "");
    if ((takes & TAKES_MESSAGE) != 0) {
        a->type = message_number(peek(r));
        if (a->type != 0)
            r->words.next++;
    }
    if ((takes & TAKES_SHARD) != 0 && take_if(r, "from")) {
        if (!take_if(r, "syncer") || !number(take(r), &value))
            return bad(r, "from syncer NUMBER is expected", "");
        a->shard = (uint32_t)pl_min64(value, PL_NONE32 - 1);
    }
    if ((takes & TAKES_DIRS) != 0)
        a->dirs = take_if(r, "up") ? PL_DIR_UP : take_if(r, "down") ? PL_DIR_DOWN : PL_DIR_BOTH;
    if ((takes & TAKES_BREAK) != 0)
        a->arg = take_if(r, "half")       ? PL_BREAK_HALF
                 : take_if(r, "silently") ? PL_BREAK_SILENT
                                          : PL_BREAK_TOLD;
    return PELAGO_OK;
}

static enum pelago_status read_at(struct reader *r)
{
    struct pl_action a = {.shard = PL_NONE32, .dirs = PL_DIR_BOTH, .line = r->line};
    uint32_t takes = 0;
    uint64_t node;
    if (!duration(peek(r), &a.at_ns))
        return bad(r, "a time like 250ms or 2s is expected", peek(r));
    r->words.next++;
    for (uint32_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
        if (strcmp(verbs[i].word, peek(r)) == 0) {
            a.kind = verbs[i].kind;
            takes = verbs[i].takes;
        }
    }
    if (a.kind == 0)
        return bad(r, "there is no such action", peek(r));
    r->words.next++;
    a.syncer = strcmp(peek(r), "syncer") == 0;
    if (a.syncer ? (takes & OF_SYNCER) == 0
                 : (takes & OF_SYNCER_ONLY) != 0 || strcmp(peek(r), "learner") != 0)
        return bad(r, "this cannot be done to", peek(r));
    r->words.next++;
    if (!number(take(r), &node))
        return bad(r, "the number of the learner or syncer is expected", "");
    a.node = (uint32_t)pl_min64(node, PL_NONE32 - 1);
    PL_TRY(read_details(r, takes, &a));
    if (r->words.next < r->words.count)
        return bad(r, "more words than expected", peek(r));
    /* By time; equal times in the order of the script. */
    uint32_t i = r->s->action_count++;
    for (; i > 0 && r->s->actions[i - 1].at_ns > a.at_ns; i--)
        r->s->actions[i] = r->s->actions[i - 1];
    r->s->actions[i] = a;
    return PELAGO_OK;
}

/* ---- what must be seen ---- */

/* The rest of the line, words joined by single blanks, is the pattern. */
static enum pelago_status read_pattern(struct reader *r, struct wish *w)
{
    size_t len = 0;
    if (r->words.next == r->words.count)
        return bad(r, "a line of the trace is expected", "");
    while (r->words.next < r->words.count) {
        const char *word = take(r);
        size_t n = strlen(word);
        if (len > 0)
            w->pattern[len++] = ' ';
        memcpy(w->pattern + len, word, n);
        len += n;
    }
    w->pattern[len] = '\0';
    if (w->kind != WISH_EXPECT && strchr(w->pattern, '$') != NULL)
        return bad(r, "$ names can only be used with expect", "");
    r->s->wish_count++;
    return PELAGO_OK;
}

/* [before TIME] [after TIME] */
static enum pelago_status read_window(struct reader *r, struct wish *w)
{
    for (;;) {
        bool before = take_if(r, "before");
        if (!before && !take_if(r, "after"))
            return PELAGO_OK;
        if (!duration(take(r), before ? &w->to_ns : &w->from_ns))
            return bad(r, "a time like 250ms or 2s is expected", "");
    }
}

static struct wish *new_wish(struct reader *r, enum wish_kind kind)
{
    struct wish *w = &r->s->wishes[r->s->wish_count];
    *w = (struct wish){.kind = kind, .line = r->line, .to_ns = PL_NEVER};
    return w;
}

static enum pelago_status read_never(struct reader *r)
{
    struct wish *w = new_wish(r, WISH_NEVER);
    PL_TRY(read_window(r, w));
    return read_pattern(r, w);
}

static enum pelago_status read_finally(struct reader *r)
{
    struct wish *w = new_wish(r, WISH_EXACTLY);
    if (take_if(r, "at")) {
        w->kind = strcmp(peek(r), "least") == 0 ? WISH_AT_LEAST : WISH_AT_MOST;
        if (!take_if(r, "least") && !take_if(r, "most"))
            return bad(r, "at least or at most is expected", peek(r));
    } else {
        (void)take_if(r, "exactly");
    }
    if (!number(take(r), &w->number))
        return bad(r, "finally [at least|at most|exactly] NUMBER is expected", "");
    PL_TRY(read_window(r, w));
    return read_pattern(r, w);
}

static enum pelago_status read_after(struct reader *r)
{
    struct wish *w = new_wish(r, WISH_AFTER);
    if (!duration(take(r), &w->from_ns) || r->words.next < r->words.count)
        return bad(r, "after TIME is expected", "");
    r->s->wish_count++;
    return PELAGO_OK;
}

static enum pelago_status read_until(struct reader *r)
{
    r->s->to_end = take_if(r, "the");
    if (!r->s->to_end)
        r->s->option_line[option_at(offsetof(struct pl_sim_options, duration_ns))] = r->line;
    if (r->s->to_end ? take_if(r, "end") : duration(take(r), &r->s->options.duration_ns))
        return PELAGO_OK;
    return bad(r, "until TIME or until the end is expected", "");
}

static enum pelago_status read_statement(struct reader *r)
{
    if (take_if(r, "set"))
        return read_set(r);
    if (take_if(r, "until"))
        return read_until(r);
    if (take_if(r, "at"))
        return read_at(r);
    if (take_if(r, "after"))
        return read_after(r);
    if (take_if(r, "never"))
        return read_never(r);
    if (take_if(r, "finally"))
        return read_finally(r);
    if (take_if(r, "expect"))
        return read_pattern(r, new_wish(r, WISH_EXPECT));
    return bad(r, "set, until, at, expect, after, never or finally is expected", peek(r));
}

/* ---- lines ---- */

static enum pelago_status split(struct reader *r, const char *p, size_t len)
{
    r->words = (struct words){.count = 0};
    if (len >= SCRIPT_LINE_MAX)
        return bad(r, "the line is too long", "");
    for (size_t i = 0; i < len && p[i] != '#';) {
        if (p[i] == ' ' || p[i] == '\t' || p[i] == '\r') {
            i++;
            continue;
        }
        size_t n = 0;
        while (i + n < len && p[i + n] != ' ' && p[i + n] != '\t' && p[i + n] != '\r')
            n++;
        if (n >= WORD_MAX || r->words.count == WORDS_MAX)
            return bad(r, "a word is too long, or there are too many", "");
        memcpy(r->words.at[r->words.count++], p + i, n);
        i += n;
    }
    return PELAGO_OK;
}

static struct pl_script *new_script(const struct pl_alloc *alloc, uint32_t lines)
{
    size_t bytes = sizeof(struct pl_script) + lines * (sizeof(struct pl_action) + sizeof(struct wish));
    struct pl_script *s = pl_alloc_zero(alloc, 1, bytes);
    if (s == NULL)
        return NULL;
    s->alloc = alloc;
    s->bytes = bytes;
    s->actions = (struct pl_action *)(s + 1);
    s->wishes = (struct wish *)(s->actions + lines);
    return s;
}

static const struct pl_sim_options start_options = {
    .seed = 1,
    .duration_ns = 60 * PL_SEC,
    .learners = 3,
    .shards = 1,
    .fragments = 2,
    .quorum = 2,
    .overlap_steps = 2,
    .period_steps = 8,
    .gamma_ppm = 500000,
    .staleness_max = 2,
    .fault_mean_ms = 1000,
    .step_ns = PL_SEC,
    .latency_ns = 20 * PL_MS,
    .bandwidth = 1000000,
    .dimensions = 64,
    .checkpoint_ns = 10 * PL_SEC,
    .merge_ns = 10 * PL_MS,
    .sync_ns = 10 * PL_MS,
    .step_tokens = 100,
};

enum pelago_status pl_script_parse(const char *text, size_t len, const struct pl_alloc *alloc,
                                   struct pl_script **out, struct pl_error *err)
{
    uint32_t lines = 1;
    *out = NULL;
    for (size_t i = 0; i < len; i++)
        lines += text[i] == '\n' ? 1 : 0;
    struct reader r = {.s = new_script(alloc, lines), .err = err};
    if (r.s == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for a script of %u lines", lines);
    r.s->options = start_options;
    enum pelago_status status = PELAGO_OK;
    for (size_t i = 0; i < len && status == PELAGO_OK;) {
        size_t n = 0;
        while (i + n < len && text[i + n] != '\n')
            n++;
        r.line++;
        status = split(&r, text + i, n);
        if (status == PELAGO_OK && r.words.count > 0)
            status = read_statement(&r);
        i += n + 1;
    }
    if (status != PELAGO_OK) {
        pl_script_free(r.s);
        return status;
    }
    *out = r.s;
    return PELAGO_OK;
}

void pl_script_free(struct pl_script *s)
{
    if (s != NULL)
        pl_alloc_free(s->alloc, s, s->bytes);
}
