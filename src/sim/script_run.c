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
        s->next++;
        return;
    }
}

void pl_script_feed(struct pl_script *s, uint64_t now_ns, const char *who, const char *text)
{
    char line[TEXT_MAX];
    pl_fmt(line, sizeof(line), "%s %s", who, text);
    feed_expects(s, now_ns, line);
    for (uint32_t i = 0; i < s->wish_count; i++) {
        struct wish *w = &s->wishes[i];
        struct bindings none = {{{0}}};
        if (w->kind == WISH_EXPECT || w->kind == WISH_AFTER || now_ns < w->from_ns || now_ns >= w->to_ns)
            continue;
        w->seen += pl_script_match(w->pattern, line, &none) ? 1 : 0;
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

bool pl_script_met(const struct pl_script *s, char *what, size_t cap)
{
    for (uint32_t i = 0; i < s->wish_count; i++) {
        const struct wish *w = &s->wishes[i];
        if (met(w))
            continue;
        pl_fmt(what, cap, "line %u of the script: \"%s\" was seen %lu times", w->line, w->pattern, w->seen);
        return false;
    }
    return true;
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
        if (a->syncer ? a->node >= s->options.shards : a->node < 1 || a->node > s->options.learners)
            return pl_fail(err, PELAGO_INVALID, "the script speaks of %s %u, there is none",
                           a->syncer ? "syncer" : "learner", a->node);
        if (a->shard != PL_NONE32 && a->shard >= s->options.shards)
            return pl_fail(err, PELAGO_INVALID, "the script speaks of syncer %u, there is none", a->shard);
    }
    return PELAGO_OK;
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
        s->wishes[i].seen = 0;
    PL_TRY(pl_sim_check_options(&s->options, err));
    PL_TRY(check_nodes(s, err));
    enum pelago_status status = pl_sim_run(&s->options, &plan, alloc, result);
    if (status != PELAGO_OK)
        return pl_fail(err, status, "the run could not be finished: %s", pl_status_text(status));
    if (result->exit == PL_SIM_OK && !pl_script_met(s, result->what, sizeof(result->what)))
        result->exit = PL_SIM_CORRECTNESS;
    return PELAGO_OK;
}
