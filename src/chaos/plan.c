/* chaos/plan.c - reading a plan. One statement a line; the order of words after the target is free. */
#include "chaos/plan.h"

#include "base/check.h"
#include "base/limits.h"
#include "chaos/units.h"
#include "chaos/words.h"

#include <string.h>

struct reader {
    struct pl_chaos_plan *plan;
    struct pl_line_words words;
    uint32_t line;
    struct pl_error *err;
};

enum takes {
    TAKES_SYNCER = 1 << 0,  /* may be done to a syncer */
    TAKES_FOR = 1 << 1,     /* [for TIME] */
    TAKES_DIRS = 1 << 2,    /* [in|out] */
    TAKES_SHAPE = 1 << 3,   /* KEY VALUE ... */
    TAKES_PERCENT = 1 << 4, /* to 30% */
    NEEDS_END = 1 << 5,     /* somebody has to keep doing it */
};

static const struct {
    const char *word;
    uint32_t takes;
    const char *undo;
    enum pl_chaos_verb ends;
} verbs[PL_CHAOS_VERBS] = {
    [PL_CHAOS_KILL] = {"kill", TAKES_SYNCER | TAKES_FOR, NULL, 0},
    [PL_CHAOS_TERMINATE] = {"terminate", TAKES_SYNCER, NULL, 0},
    [PL_CHAOS_DOWN] = {"down", TAKES_SYNCER | TAKES_FOR, "up", 0},
    [PL_CHAOS_UP] = {"up", TAKES_SYNCER, NULL, PL_CHAOS_DOWN},
    [PL_CHAOS_STOP] = {"stop", TAKES_SYNCER | TAKES_FOR, "continue", 0},
    [PL_CHAOS_CONTINUE] = {"continue", TAKES_SYNCER, NULL, PL_CHAOS_STOP},
    [PL_CHAOS_SLOW_CPU] = {"slow-cpu", TAKES_SYNCER | TAKES_FOR | TAKES_PERCENT | NEEDS_END, "full-cpu", 0},
    [PL_CHAOS_LINK] = {"link", TAKES_FOR | TAKES_DIRS | TAKES_SHAPE, "link-as-before", 0},
    [PL_CHAOS_PARTITION] = {"partition", TAKES_FOR | TAKES_DIRS, "heal", 0},
    [PL_CHAOS_DRIP] = {"drip", TAKES_FOR | TAKES_DIRS, "link-as-before", 0},
    [PL_CHAOS_CORRUPT] = {"corrupt", TAKES_FOR | TAKES_DIRS, "link-as-before", 0},
    [PL_CHAOS_LIMIT_DATA] = {"limit-data", TAKES_FOR | TAKES_DIRS, "link-as-before", 0},
    [PL_CHAOS_SLOW_CLOSE] = {"slow-close", TAKES_FOR | TAKES_DIRS, "link-as-before", 0},
    [PL_CHAOS_MUTE] = {"mute", TAKES_FOR, "link-as-before", 0},
    [PL_CHAOS_HEAL] = {"heal", TAKES_DIRS, NULL, PL_CHAOS_PARTITION},
    [PL_CHAOS_CLEAR] = {"clear", 0, NULL, 0},
    [PL_CHAOS_RESET] = {"reset", 0, NULL, 0},
    [PL_CHAOS_HALF_OPEN] = {"half-open", 0, NULL, 0},
    [PL_CHAOS_FILL_DISK] = {"fill-disk", TAKES_SYNCER | TAKES_FOR, "free-disk", 0},
    [PL_CHAOS_FREE_DISK] = {"free-disk", TAKES_SYNCER, NULL, PL_CHAOS_FILL_DISK},
};

const char *pl_chaos_verb_name(enum pl_chaos_verb verb)
{
    pl_assert(verb > 0 && verb < PL_CHAOS_VERBS);
    return verbs[verb].word;
}

const char *pl_chaos_verb_undo_name(enum pl_chaos_verb verb)
{
    pl_assert(verb > 0 && verb < PL_CHAOS_VERBS);
    return verbs[verb].undo;
}

enum pl_chaos_verb pl_chaos_verb_ends(enum pl_chaos_verb verb)
{
    pl_assert(verb > 0 && verb < PL_CHAOS_VERBS);
    return verbs[verb].ends;
}

bool pl_chaos_verb_is_link(enum pl_chaos_verb verb)
{
    return verb >= PL_CHAOS_LINK && verb <= PL_CHAOS_HALF_OPEN;
}

/* ---- words ---- */

static enum pelago_status bad(const struct reader *r, const char *what, const char *word)
{
    return pl_fail(r->err, PELAGO_INVALID, "line %u of the plan: %s%s%s%s", r->line, what,
                   word[0] != '\0' ? ", not '" : "", word, word[0] != '\0' ? "'" : "");
}

static bool take_time(struct reader *r, uint64_t *ns)
{
    if (!pl_unit_time(pl_words_peek(&r->words), ns))
        return false;
    r->words.next++;
    return true;
}

static enum pelago_status bad_time(const struct reader *r, const char *after)
{
    return pl_fail(r->err, PELAGO_INVALID,
                   "line %u of the plan: a time such as 250ms, 10s or 5m is expected after '%s'%s%s%s",
                   r->line, after, pl_words_peek(&r->words)[0] != '\0' ? ", not '" : "",
                   pl_words_peek(&r->words), pl_words_peek(&r->words)[0] != '\0' ? "'" : "");
}

/* ---- whom ---- */

static bool take_pick(struct reader *r, struct pl_chaos_target *t)
{
    static const struct {
        const char *word;
        enum pl_chaos_pick pick;
    } picks[] = {{"random", PL_PICK_RANDOM}, {"half", PL_PICK_HALF}, {"all", PL_PICK_ALL}};
    for (uint32_t i = 0; i < sizeof picks / sizeof picks[0]; i++)
        if (pl_words_take_if(&r->words, picks[i].word)) {
            t->pick = picks[i].pick;
            return true;
        }
    return false;
}

static const char *take_node(const char *p, uint32_t *out)
{
    const char *begin = p;
    for (*out = 0; *p >= '0' && *p <= '9' && *out <= PL_CHAOS_NODE_MAX; p++)
        *out = *out * 10 + (uint32_t)(*p - '0');
    return p == begin || *out > PL_CHAOS_NODE_MAX ? NULL : p;
}

/* 2 or 1,2,5-8 */
static enum pelago_status read_numbers(struct reader *r, struct pl_chaos_target *t)
{
    const char *word = pl_words_take(&r->words), *p = word;
    for (;;) {
        if (t->range_count == PL_CHAOS_RANGES_MAX)
            return bad(r, "at most 16 numbers or ranges may be named at once", "");
        uint32_t first, last;
        p = take_node(p, &first);
        last = first;
        if (p != NULL && *p == '-')
            p = take_node(p + 1, &last);
        if (p == NULL || last < first || (*p != ',' && *p != '\0'))
            return bad(r, "a number such as 2, 1,2 or 3-5, or random, half or all is expected", word);
        t->ranges[t->range_count].first = first;
        t->ranges[t->range_count++].last = last;
        if (*p++ == '\0')
            return PELAGO_OK;
    }
}

/* learner 2, learners 1,2, random learner, learner random, half [of the] learners, syncer 0, all syncers */
static enum pelago_status read_target(struct reader *r, struct pl_chaos_target *t)
{
    bool picked = take_pick(r, t);
    if (picked && pl_words_take_if(&r->words, "of"))
        (void)pl_words_take_if(&r->words, "the");
    t->syncer = pl_words_take_if(&r->words, "syncer") || pl_words_take_if(&r->words, "syncers");
    if (!t->syncer && !pl_words_take_if(&r->words, "learner") && !pl_words_take_if(&r->words, "learners"))
        return bad(r, "learner or syncer is expected", pl_words_peek(&r->words));
    if (picked || take_pick(r, t))
        return PELAGO_OK;
    t->pick = PL_PICK_LISTED;
    return read_numbers(r, t);
}

/* ---- what ---- */

static void put(struct pl_chaos_action *a, enum pl_shape_key key, uint64_t value)
{
    a->change.keys |= 1U << key;
    a->change.to.v[key] = value;
}

/* [16 bytes every 10ms] */
static enum pelago_status read_drip(struct reader *r, struct pl_chaos_action *a)
{
    uint64_t bytes = 16, gap = 10 * PL_MS;
    if (pl_unit_bytes(pl_words_peek(&r->words), &bytes)) {
        r->words.next++;
        if (!(pl_words_take_if(&r->words, "bytes") || pl_words_take_if(&r->words, "byte")) ||
            !pl_words_take_if(&r->words, "every"))
            return bad(r, "drip TARGET 16 bytes every 10ms is expected", pl_words_peek(&r->words));
        if (!take_time(r, &gap))
            return bad_time(r, "every");
    }
    if (bytes == 0 || gap == 0 || gap > 3600 * PL_SEC)
        return bad(r, "a drip has at least one byte and a time from 1us to an hour", "");
    put(a, PL_SHAPE_SLICE, bytes);
    put(a, PL_SHAPE_GAP, gap);
    return PELAGO_OK;
}

/* 1 in 1e6 bytes */
static enum pelago_status read_corrupt(struct reader *r, struct pl_chaos_action *a)
{
    uint64_t one_in;
    if (!pl_words_take_if(&r->words, "1") || !pl_words_take_if(&r->words, "in") ||
        !pl_unit_number(pl_words_take(&r->words), &one_in) || one_in == 0)
        return bad(r, "corrupt TARGET 1 in 1e6 bytes is expected", "");
    (void)(pl_words_take_if(&r->words, "bytes") || pl_words_take_if(&r->words, "byte"));
    put(a, PL_SHAPE_CORRUPT, one_in);
    return PELAGO_OK;
}

static enum pelago_status read_limit(struct reader *r, struct pl_chaos_action *a)
{
    uint64_t bytes;
    if (!pl_unit_bytes(pl_words_peek(&r->words), &bytes) || bytes == 0)
        return bad(r, "a number of bytes such as 64kB is expected", pl_words_peek(&r->words));
    r->words.next++;
    put(a, PL_SHAPE_LIMIT, bytes);
    return PELAGO_OK;
}

/* What only this verb has, right after the target. */
static enum pelago_status read_own(struct reader *r, struct pl_chaos_action *a)
{
    uint64_t ns;
    switch ((uint32_t)a->verb) {
    case PL_CHAOS_SLOW_CPU:
        if (!pl_words_take_if(&r->words, "to") || !pl_unit_percent(pl_words_take(&r->words), &a->percent))
            return bad(r, "slow-cpu TARGET to 30% is expected, 1% to 100%", "");
        return PELAGO_OK;
    case PL_CHAOS_PARTITION:
        put(a, PL_SHAPE_HOLD, 1);
        return PELAGO_OK;
    case PL_CHAOS_HEAL:
        put(a, PL_SHAPE_HOLD, 0);
        return PELAGO_OK;
    case PL_CHAOS_MUTE:
        put(a, PL_SHAPE_MUTE, 1);
        return PELAGO_OK;
    case PL_CHAOS_DRIP:
        return read_drip(r, a);
    case PL_CHAOS_CORRUPT:
        return read_corrupt(r, a);
    case PL_CHAOS_LIMIT_DATA:
        return read_limit(r, a);
    case PL_CHAOS_SLOW_CLOSE:
        if (!take_time(r, &ns) || ns == 0 || ns > 3600 * PL_SEC)
            return bad(r, "slow-close TARGET TIME is expected, up to an hour", pl_words_peek(&r->words));
        put(a, PL_SHAPE_SLOW_CLOSE, ns);
        return PELAGO_OK;
    default:
        return PELAGO_OK;
    }
}

static uint32_t take_dirs(struct reader *r)
{
    if (pl_words_take_if(&r->words, "in"))
        return PL_SHAPE_DOWN;
    if (pl_words_take_if(&r->words, "out"))
        return PL_SHAPE_UP;
    return pl_words_take_if(&r->words, "both") ? PL_SHAPE_BOTH : 0;
}

static enum pelago_status read_key(struct reader *r, struct pl_chaos_action *a)
{
    struct pl_error why;
    enum pl_shape_key key = pl_shape_find(pl_words_peek(&r->words));
    if (key == PL_SHAPE_KEYS)
        return bad(r,
                   "rate, latency, jitter, slice, gap, limit, corrupt, slow-close, hold, drop, mute or "
                   "refuse is expected",
                   pl_words_peek(&r->words));
    r->words.next++;
    if (pl_shape_set(&a->change, key, pl_words_take(&r->words), &why) != PELAGO_OK)
        return bad(r, why.text, "");
    return PELAGO_OK;
}

/* What may follow, in any order. */
static enum pelago_status read_details(struct reader *r, uint32_t takes, struct pl_chaos_action *a)
{
    PL_TRY(read_own(r, a));
    while (r->words.next < r->words.count) {
        uint32_t dirs = (takes & TAKES_DIRS) != 0 ? take_dirs(r) : 0;
        if (dirs != 0) {
            a->dirs = dirs;
        } else if ((takes & TAKES_FOR) != 0 && pl_words_take_if(&r->words, "for")) {
            if (!take_time(r, &a->for_ns) || a->for_ns == 0)
                return bad_time(r, "for");
        } else if ((takes & TAKES_SHAPE) != 0) {
            PL_TRY(read_key(r, a));
        } else {
            return bad(r, "nothing more, or 'for TIME' where it has an end, is expected",
                       pl_words_peek(&r->words));
        }
    }
    if ((takes & TAKES_SHAPE) != 0 && a->change.keys == 0)
        return bad(r, "link TARGET rate 1Mbit latency 50ms, or other keys, is expected", "");
    return PELAGO_OK;
}

static enum pelago_status refuse_verb(const struct reader *r, const char *word)
{
    if (strcmp(word, "duplicate") == 0 || strcmp(word, "reorder") == 0)
        return pl_fail(r->err, PELAGO_INVALID,
                       "line %u of the plan: '%s' has no meaning here: links are TCP, which delivers bytes "
                       "once and in order; "
                       "use reset, drip or latency with jitter",
                       r->line, word);
    return bad(r, "kill, stop, partition, link or another action is expected", word[0] != '\0' ? word : "");
}

static enum pelago_status read_action(struct reader *r, struct pl_chaos_action *a)
{
    const char *word = pl_words_take(&r->words);
    uint32_t verb = 1;
    while (verb < PL_CHAOS_VERBS && strcmp(verbs[verb].word, word) != 0)
        verb++;
    if (verb == PL_CHAOS_VERBS)
        return refuse_verb(r, word);
    a->verb = (enum pl_chaos_verb)verb;
    a->dirs = PL_SHAPE_BOTH;
    a->line = r->line;
    if (verb == PL_CHAOS_RESET || verb == PL_CHAOS_CLEAR)
        (void)pl_words_take_if(&r->words, "link");
    PL_TRY(read_target(r, &a->target));
    if (a->target.syncer && (verbs[verb].takes & TAKES_SYNCER) == 0)
        return bad(r, "links are those of learners: name learners here", "syncer");
    PL_TRY(read_details(r, verbs[verb].takes, a));
    if (a->verb == PL_CHAOS_KILL && a->for_ns > 0)
        a->verb = PL_CHAOS_DOWN;
    return PELAGO_OK;
}

/* ---- when ---- */

static enum pelago_status read_every(struct reader *r, struct pl_chaos_rule *rule)
{
    if (!take_time(r, &rule->every_ns))
        return bad_time(r, "every");
    if (rule->every_ns < PL_MS)
        return bad(r, "every takes at least 1ms", "");
    rule->from_ns = 0;
    if (pl_words_take_if(&r->words, "from") && !take_time(r, &rule->from_ns))
        return bad_time(r, "from");
    if (pl_words_take_if(&r->words, "to") && !take_time(r, &rule->to_ns))
        return bad_time(r, "to");
    return PELAGO_OK;
}

static enum pelago_status read_rule(struct reader *r)
{
    struct pl_chaos_rule *rule = &r->plan->rules[r->plan->rule_count];
    *rule = (struct pl_chaos_rule){.to_ns = PL_NEVER};
    rule->about = pl_words_take_if(&r->words, "about");
    if (pl_words_take_if(&r->words, "every")) {
        PL_TRY(read_every(r, rule));
    } else if (rule->about) {
        return bad(r, "every is expected after about", pl_words_peek(&r->words));
    } else if (pl_words_take_if(&r->words, "at") && !take_time(r, &rule->from_ns)) {
        return bad_time(r, "at");
    }
    PL_TRY(read_action(r, &rule->action));
    r->plan->rule_count++;
    return PELAGO_OK;
}

static enum pelago_status read_seed(struct reader *r)
{
    if (!pl_unit_number(pl_words_take(&r->words), &r->plan->seed) || r->words.next < r->words.count)
        return bad(r, "seed NUMBER is expected", "");
    return PELAGO_OK;
}

static enum pelago_status read_until(struct reader *r)
{
    if (!take_time(r, &r->plan->until_ns))
        return bad_time(r, "until");
    return r->words.next == r->words.count ? PELAGO_OK : bad(r, "until TIME is expected", "");
}

/* ---- lines ---- */

/* The rest of a "sim ..." line goes on untouched. */
static bool take_sim_line(struct reader *r, const char *text, size_t at, size_t len)
{
    while (len > 0 && (text[at] == ' ' || text[at] == '\t')) {
        at++;
        len--;
    }
    if (len < 4 || memcmp(text + at, "sim", 3) != 0 || (text[at + 3] != ' ' && text[at + 3] != '\t'))
        return false;
    r->plan->sim_lines[r->plan->sim_line_count++] =
        (struct pl_chaos_sim_line){r->line, (uint32_t)at + 4, (uint32_t)len - 4};
    return true;
}

static enum pelago_status read_line(struct reader *r, const char *text, size_t at, size_t len)
{
    if (take_sim_line(r, text, at, len))
        return PELAGO_OK;
    if (!pl_words_split(&r->words, text + at, len))
        return bad(
            r,
            "the line has more than 24 words, a word of more than 47 letters, or letters that are not ASCII",
            "");
    if (r->words.count == 0)
        return PELAGO_OK;
    if (pl_words_take_if(&r->words, "until"))
        return read_until(r);
    if (pl_words_take_if(&r->words, "random") && strcmp(pl_words_peek(&r->words), "seed") != 0)
        return bad(r, "seed is expected after random", pl_words_peek(&r->words));
    if (pl_words_take_if(&r->words, "seed"))
        return read_seed(r);
    return read_rule(r);
}

static enum pelago_status make_room(struct pl_chaos_plan *plan, const char *text, size_t len,
                                    struct pl_error *err)
{
    plan->room = 1;
    for (size_t i = 0; i < len; i++)
        plan->room += text[i] == '\n' ? 1 : 0;
    if (plan->room > PL_CHAOS_LINES_MAX)
        return pl_fail(err, PELAGO_INVALID, "the plan has %u lines, and at most 65536 are read", plan->room);
    plan->rules = pl_alloc_zero(plan->alloc, plan->room, sizeof *plan->rules);
    plan->sim_lines = pl_alloc_zero(plan->alloc, plan->room, sizeof *plan->sim_lines);
    if (plan->rules != NULL && plan->sim_lines != NULL)
        return PELAGO_OK;
    return pl_fail(err, PELAGO_NOMEM, "there is no memory for a plan of %u lines", plan->room);
}

static enum pelago_status check_ends(const struct reader *r)
{
    for (uint32_t i = 0; i < r->plan->rule_count; i++) {
        const struct pl_chaos_action *a = &r->plan->rules[i].action;
        if ((verbs[a->verb].takes & NEEDS_END) != 0 && a->for_ns == 0 && r->plan->until_ns == PL_NEVER)
            return pl_fail(r->err, PELAGO_INVALID,
                           "line %u of the plan: %s lasts only while the plan runs: add 'for TIME' to it, or "
                           "'until TIME' to the plan",
                           a->line, verbs[a->verb].word);
        if (r->plan->rules[i].every_ns != 0 && r->plan->until_ns == PL_NEVER &&
            r->plan->rules[i].to_ns == PL_NEVER)
            return pl_fail(
                r->err, PELAGO_INVALID,
                "line %u of the plan: it has no end: add 'to TIME' to it, or 'until TIME' to the plan",
                a->line);
    }
    return PELAGO_OK;
}

enum pelago_status pl_chaos_plan_parse(struct pl_chaos_plan *out, const char *text, size_t len,
                                       const struct pl_alloc *alloc, struct pl_error *err)
{
    struct reader r = {.plan = out, .err = err};
    *out = (struct pl_chaos_plan){.alloc = alloc, .until_ns = PL_NEVER, .seed = 1};
    if (len > PL_CHAOS_TEXT_MAX)
        return pl_fail(err, PELAGO_INVALID, "the plan is longer than 4 MiB");
    enum pelago_status status = make_room(out, text, len, err);
    for (size_t at = 0; at < len && status == PELAGO_OK;) {
        size_t n = 0;
        while (at + n < len && text[at + n] != '\n')
            n++;
        r.line++;
        status = read_line(&r, text, at, n);
        at += n + 1;
    }
    if (status == PELAGO_OK)
        status = check_ends(&r);
    if (status != PELAGO_OK)
        pl_chaos_plan_release(out);
    return status;
}

void pl_chaos_plan_release(struct pl_chaos_plan *plan)
{
    pl_alloc_free(plan->alloc, plan->rules, plan->room * sizeof *plan->rules);
    pl_alloc_free(plan->alloc, plan->sim_lines, plan->room * sizeof *plan->sim_lines);
    plan->rules = NULL;
    plan->sim_lines = NULL;
    plan->rule_count = plan->sim_line_count = 0;
}
