/* sim/script_run.c - running a script: the cluster does what it does, the script listens to the trace. */
#include "sim/script_int.h"

#include "base/fmt.h"
#include "base/limits.h"

#include <string.h>

enum { TEXT_MAX = 1024 };

/* Length of the word at p that $x may stand for. */
static size_t word_len(const char *p)
{
    size_t n = 0;
    while (p[n] != '\0' && p[n] != ' ')
        n++;
    return n;
}

static bool match(const char *p, const char *t, struct bindings *b)
{
    for (; *p != '\0'; p++, t++) {
        if (*p == '*') {
            for (;; t++) {
                struct bindings trial = *b;
                if (match(p + 1, t, &trial)) {
                    *b = trial;
                    return true;
                }
                if (*t == '\0')
                    return false;
            }
        }
        if (*p == '$' && p[1] >= 'a' && p[1] <= 'z') {
            char *value = b->value[p[1] - 'a'];
            size_t n = value[0] != '\0' ? strlen(value) : word_len(t);
            if (n == 0 || n >= SCRIPT_VALUE_MAX || (value[0] != '\0' && strncmp(value, t, n) != 0))
                return false;
            if (value[0] == '\0') {
                memcpy(value, t, n);
                value[n] = '\0';
            }
            p++;
            t += n - 1;
        } else if (*p != *t) {
            return false;
        }
    }
    return *t == '\0';
}

bool pl_script_match(const char *pattern, const char *text, struct bindings *b)
{
    struct bindings trial = *b;
    if (!match(pattern, text, &trial))
        return false;
    *b = trial;
    return true;
}

/* One line may meet one expectation. */
static void feed_expects(struct pl_script *s, uint64_t now_ns, const char *text)
{
    for (; s->next < s->wish_count; s->next++) {
        struct wish *w = &s->wishes[s->next];
        if (w->kind == WISH_AFTER)
            s->after_ns = w->from_ns;
        if (w->kind != WISH_EXPECT)
            continue;
        if (now_ns < s->after_ns || !pl_script_match(w->pattern, text, &s->bound))
            return;
        w->seen = 1;
        w->first_ns = now_ns;
        s->next++;
        return;
    }
}

/* Expectations whose turn has not come. Only for the sentence when one is not met. */
static void feed_early(struct pl_script *s, uint64_t now_ns, const char *text)
{
    for (uint32_t i = s->next; i < s->wish_count; i++) {
        struct bindings trial = s->bound;
        bool waits = i > s->next || now_ns < s->after_ns;
        if (s->wishes[i].kind == WISH_EXPECT && waits && pl_script_match(s->wishes[i].pattern, text, &trial))
            s->wishes[i].early++;
    }
}

void pl_script_feed(struct pl_script *s, uint64_t now_ns, const char *who, const char *text)
{
    char line[TEXT_MAX];
    pl_fmt(line, sizeof(line), "%s %s", who, text);
    feed_expects(s, now_ns, line);
    feed_early(s, now_ns, line);
    for (uint32_t i = 0; i < s->wish_count; i++) {
        struct wish *w = &s->wishes[i];
        struct bindings none = {{{0}}};
        if (w->kind == WISH_EXPECT || w->kind == WISH_AFTER || now_ns < w->from_ns || now_ns >= w->to_ns)
            continue;
        if (pl_script_match(w->pattern, line, &none) && w->seen++ == 0)
            w->first_ns = now_ns;
    }
}

static bool met(const struct wish *w)
{
    switch (w->kind) {
    case WISH_AFTER:
        return true;
    case WISH_EXPECT:
        return w->seen > 0;
    case WISH_NEVER:
        return w->seen == 0;
    case WISH_AT_LEAST:
        return w->seen >= w->number;
    case WISH_AT_MOST:
        return w->seen <= w->number;
    case WISH_EXACTLY:
        return w->seen == w->number;
    }
    return false;
}

/* "12.045000", as the trace prints it. */
static const char *seconds(char out[32], uint64_t ns)
{
    size_t len = pl_fmt(out, 24, "%lu.", ns / PL_SEC);
    for (uint64_t unit = PL_SEC / 10; unit >= PL_US; unit /= 10)
        out[len++] = (char)('0' + ns / unit % 10);
    out[len] = '\0';
    return out;
}

static const char *times(uint64_t n)
{
    return n == 1 ? "time" : "times";
}

/* From when on it was looked for: the last expect above it, which was met, or an "after" since. */
static size_t say_not_seen(const struct pl_script *s, uint32_t wish, char *out, size_t cap)
{
    char at[32];
    uint64_t early = s->wishes[wish].early;
    for (uint32_t i = wish; i-- > 0;) {
        const struct wish *w = &s->wishes[i];
        if (w->kind == WISH_AFTER)
            return pl_fmt(out, cap, "not seen after %s s, where line %u begins (seen %lu %s before)",
                          seconds(at, w->from_ns), w->line, early, times(early));
        if (w->kind == WISH_EXPECT)
            return pl_fmt(out, cap, "not seen after line %u was met at %s s (seen %lu %s before)", w->line,
                          seconds(at, w->first_ns), early, times(early));
    }
    return pl_fmt(out, cap, "not seen at any time");
}

static size_t say_unmet(const struct pl_script *s, uint32_t wish, char *out, size_t cap)
{
    const struct wish *w = &s->wishes[wish];
    const char *wanted = "exactly";
    char at[32];
    switch (w->kind) {
    case WISH_EXPECT:
        return say_not_seen(s, wish, out, cap);
    case WISH_NEVER:
        return pl_fmt(out, cap, "wanted never, seen %lu %s, first at %s s", w->seen, times(w->seen),
                      seconds(at, w->first_ns));
    case WISH_AT_LEAST:
        wanted = "at least";
        break;
    case WISH_AT_MOST:
        wanted = "at most";
        break;
    case WISH_EXACTLY:
    case WISH_AFTER:
        break;
    }
    return pl_fmt(out, cap, "wanted %s %lu %s, seen %lu", wanted, w->number, times(w->number), w->seen);
}

bool pl_script_met(const struct pl_script *s, char *what, size_t cap)
{
    uint32_t i = 0;
    while (i < s->wish_count && met(&s->wishes[i]))
        i++;
    if (i == s->wish_count)
        return true;
    size_t len = pl_fmt(what, cap, "line %u of the script: ", s->wishes[i].line);
    len += say_unmet(s, i, what + len, cap - len);
    pl_fmt(what + len, cap - len, ": %s", s->wishes[i].pattern);
    return false;
}

static void on_line(void *user, uint64_t now_ns, const char *who, const char *text)
{
    struct pl_script *s = user;
    if (s->print != NULL)
        s->print(s->print_user, now_ns, who, text);
    pl_script_feed(s, now_ns, who, text);
}

/* Does everybody the script speaks of exist? */
static enum pelago_status check_nodes(const struct pl_script *s, struct pl_error *err)
{
    for (uint32_t i = 0; i < s->action_count; i++) {
        const struct pl_action *a = &s->actions[i];
        if (!a->syncer && (a->node < 1 || a->node > s->options.learners))
            return pl_fail(err, PELAGO_INVALID, "line %u of the script: there is no learner %u, only 1 to %u",
                           a->line, a->node, s->options.learners);
        uint32_t shard = a->syncer ? a->node : a->shard;
        if (shard >= s->options.shards && (a->syncer || shard != PL_NONE32))
            return pl_fail(err, PELAGO_INVALID, "line %u of the script: there is no syncer %u, only 0 to %u",
                           a->line, shard, s->options.shards - 1);
    }
    return PELAGO_OK;
}

/* A run that nothing is asked of would always be good. */
static enum pelago_status check_wishes(const struct pl_script *s, struct pl_error *err)
{
    for (uint32_t i = 0; i < s->wish_count; i++)
        if (s->wishes[i].kind != WISH_AFTER)
            return PELAGO_OK;
    return pl_fail(err, PELAGO_INVALID, "the script expects nothing: it has no expect, never or finally");
}

enum pelago_status pl_script_run(struct pl_script *s, const struct pl_alloc *alloc,
                                 struct pl_sim_result *result, pl_sim_line *print, void *user,
                                 struct pl_error *err)
{
    struct pl_sim_plan plan = {.actions = s->actions,
                               .action_count = s->action_count,
                               .line = on_line,
                               .user = s,
                               .no_reference = true,
                               .no_end = !s->to_end};
    s->print = print;
    s->print_user = user;
    s->next = 0;
    s->after_ns = 0;
    s->bound = (struct bindings){{{0}}};
    for (uint32_t i = 0; i < s->wish_count; i++)
        s->wishes[i].seen = s->wishes[i].early = 0;
    PL_TRY(pl_script_check_options(s, err));
    PL_TRY(check_nodes(s, err));
    PL_TRY(check_wishes(s, err));
    enum pelago_status status = pl_sim_run(&s->options, &plan, alloc, result);
    if (status != PELAGO_OK)
        return pl_fail(err, status, "the run could not be finished: %s", pl_status_text(status));
    if (result->exit == PL_SIM_OK && !pl_script_met(s, result->what, sizeof(result->what)))
        result->exit = PL_SIM_CORRECTNESS;
    return PELAGO_OK;
}
