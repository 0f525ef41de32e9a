/* chaos/trace.c - see trace.h. Names of nodes are kept as places in the text; a run through the log is linear but for
 * finding a name, which goes through an open hash table. */
#include "chaos/trace.h"

#include "base/check.h"
#include "base/fmt.h"
#include "base/hash.h"
#include "base/limits.h"
#include "base/num.h"
#include "chaos/units.h"

#include <string.h>

enum { TABLE = 2 * PL_TRACE_NODES_MAX };

struct node {
    const char *name;
    uint32_t len;
    uint32_t learner;   /* slots: 0 when it has none; fold: always */
    uint32_t last_line; /* where the log speaks of it last */
    bool up;            /* before the log begins: unless it comes up first */
    bool down;          /* fold: counted in its learner's down */
};

struct event {
    uint64_t at_s;
    bool up;
    const char *name;
    uint32_t name_len;
};

struct replay {
    const struct pl_trace_options *o;
    struct pl_buf *plan;
    struct pl_error *err;
    uint32_t line;
    bool begun; /* what was skipped is behind us: events become lines */
    uint64_t last_s;
    uint32_t node_count;
    uint32_t table[TABLE]; /* 1 + index of the node; 0: free */
    struct node nodes[PL_TRACE_NODES_MAX];
    uint32_t
        down[PL_TRACE_NODES_MAX + 1]; /* by learner; slots: 1 when down; fold: nodes of it that are down */
};

static enum pelago_status bad(const struct replay *r, const char *what)
{
    return pl_fail(r->err, PELAGO_INVALID, "line %u of the trace: %s", r->line, what);
}

/* ---- reading ---- */

static const char *read_number(const char *p, const char *end, uint64_t *out)
{
    const char *begin = p;
    for (*out = 0; p < end && *p >= '0' && *p <= '9' && p - begin < 15; p++)
        *out = *out * 10 + (uint64_t)(*p - '0');
    return p > begin && p < end && *p == ',' ? p + 1 : NULL;
}

static enum pelago_status read_event(const struct replay *r, const char *p, const char *end, struct event *ev)
{
    p = read_number(p, end, &ev->at_s);
    if (p == NULL)
        return bad(r, "seconds and a comma are expected at its beginning");
    ev->up = end - p >= 3 && memcmp(p, "up,", 3) == 0;
    if (!ev->up && (end - p < 5 || memcmp(p, "down,", 5) != 0))
        return bad(r, "up or down is expected in its second column");
    p += ev->up ? 3 : 5;
    ev->name = p;
    while (p < end && *p != ',' && *p != '\r')
        p++;
    if (p == ev->name || p - ev->name > 255)
        return bad(r, "the name of a node is expected in its third column");
    ev->name_len = (uint32_t)(p - ev->name);
    return ev->at_s < r->last_s ? bad(r, "it is earlier than the one before it") : PELAGO_OK;
}

/* NULL: there are too many. */
static struct node *find_node(struct replay *r, const struct event *ev)
{
    uint32_t at = (uint32_t)(pl_hash64(ev->name, ev->name_len, 0) % TABLE);
    for (; r->table[at] != 0; at = (at + 1) % TABLE) {
        struct node *n = &r->nodes[r->table[at] - 1];
        if (n->len == ev->name_len && memcmp(n->name, ev->name, n->len) == 0)
            return n;
    }
    if (r->node_count == PL_TRACE_NODES_MAX)
        return NULL;
    struct node *n = &r->nodes[r->node_count++];
    r->table[at] = r->node_count;
    *n = (struct node){.name = ev->name, .len = ev->name_len};
    return n;
}

/* ---- writing ---- */

static enum pelago_status put(struct replay *r, uint64_t at_s, const char *what, uint32_t learner)
{
    char line[96], when[32];
    if (!r->begun)
        return PELAGO_OK;
    pl_assert(at_s >= r->o->skip_s);
    double scaled = (double)(at_s - r->o->skip_s) / r->o->time_scale;
    if (scaled > 1e8)
        return bad(r, "it comes more than three years after the beginning");
    pl_unit_put_time(when, sizeof when, (uint64_t)(scaled * 1e9));
    size_t len = pl_fmt(line, sizeof line, "at %s %s learner %u\n", when, what, learner);
    enum pelago_status status = pl_buf_append(r->plan, line, len);
    return status == PELAGO_OK ? status
                               : pl_fail(r->err, status, "the plan of this trace is longer than 4 MiB");
}

/* ---- slots ---- */

static uint32_t free_learner(const struct replay *r)
{
    uint32_t l = 1;
    while (l <= r->o->learners && r->down[l] == 0)
        l++;
    return l <= r->o->learners ? l : 0;
}

static enum pelago_status slot_event(struct replay *r, struct node *n, const struct event *ev)
{
    n->up = ev->up;
    if (!r->begun)
        return PELAGO_OK;
    if (ev->up && n->learner == 0) {
        n->learner = free_learner(r);
        if (n->learner == 0)
            return PELAGO_OK;
        r->down[n->learner] = 0;
        return put(r, ev->at_s, "up", n->learner);
    }
    if (!ev->up && n->learner != 0) {
        uint32_t learner = n->learner;
        n->learner = 0;
        r->down[learner] = 1;
        return put(r, ev->at_s, "down", learner);
    }
    return PELAGO_OK;
}

/* ---- fold ---- */

static enum pelago_status fold_event(struct replay *r, struct node *n, const struct event *ev)
{
    uint32_t *down = &r->down[n->learner];
    if (ev->up != n->down)
        return PELAGO_OK;
    /* Nobody would bring this learner up again. */
    if (!ev->up && r->line == n->last_line)
        return *down == 0 ? put(r, ev->at_s, "kill", n->learner) : PELAGO_OK;
    n->down = !ev->up;
    *down += n->down ? 1 : UINT32_MAX;
    if (*down == (n->down ? 1 : 0))
        return put(r, ev->at_s, n->down ? "down" : "up", n->learner);
    return PELAGO_OK;
}

/* ---- a pass over the log ---- */

typedef enum pelago_status visit(struct replay *r, struct node *n, const struct event *ev);

static enum pelago_status each_event(struct replay *r, const char *text, size_t len, visit *call)
{
    r->line = 0;
    r->last_s = 0;
    for (size_t at = 0; at < len;) {
        const char *p = text + at, *end = memchr(p, '\n', len - at);
        struct event ev;
        end = end != NULL ? end : text + len;
        at = (size_t)(end - text) + 1;
        r->line++;
        if (p == end || (r->line == 1 && end - p >= 4 && memcmp(p, "t_s,", 4) == 0))
            continue;
        PL_TRY(read_event(r, p, end, &ev));
        struct node *n = find_node(r, &ev);
        if (n == NULL)
            return bad(r, "more than 16384 nodes are named");
        r->last_s = ev.at_s;
        PL_TRY(call(r, n, &ev));
    }
    return PELAGO_OK;
}

static enum pelago_status meet(struct replay *r, struct node *n, const struct event *ev)
{
    if (n->last_line == 0)
        n->up = !ev->up;
    n->last_line = r->line;
    return PELAGO_OK;
}

/* Learners stand for nodes that are up, spread over the log's order; those for whom there is none are down. */
static void give_slots(struct replay *r)
{
    uint32_t ups = 0, given = 0, seen = 0;
    for (uint32_t i = 0; i < r->node_count; i++)
        ups += r->nodes[i].up ? 1 : 0;
    uint32_t wanted = pl_min32(r->o->learners, ups);
    for (uint32_t i = 0; i < r->node_count && given < wanted; i++)
        if (r->nodes[i].up && (uint64_t)seen++ * wanted / ups == given)
            r->nodes[i].learner = ++given;
    for (uint32_t l = given + 1; l <= r->o->learners; l++)
        r->down[l] = 1;
}

/* The state when the lines begin: who is down has to be taken down. */
static enum pelago_status begin(struct replay *r)
{
    if (!r->o->fold)
        give_slots(r);
    r->begun = true;
    for (uint32_t l = 1; l <= r->o->learners; l++)
        if (r->down[l] != 0)
            PL_TRY(put(r, r->o->skip_s, "down", l));
    return PELAGO_OK;
}

static enum pelago_status act(struct replay *r, struct node *n, const struct event *ev)
{
    if (!r->begun && ev->at_s > r->o->skip_s)
        PL_TRY(begin(r));
    return r->o->fold ? fold_event(r, n, ev) : slot_event(r, n, ev);
}

static enum pelago_status replay(struct replay *r, const char *text, size_t len)
{
    PL_TRY(each_event(r, text, len, meet));
    if (r->node_count == 0)
        return pl_fail(r->err, PELAGO_INVALID, "the trace has no events");
    for (uint32_t i = 0; r->o->fold && i < r->node_count; i++)
        r->nodes[i].learner = 1 + i % r->o->learners;
    PL_TRY(each_event(r, text, len, act));
    return r->begun ? PELAGO_OK : begin(r);
}

enum pelago_status pl_trace_to_plan(const char *text, size_t len, const struct pl_trace_options *o,
                                    const struct pl_alloc *alloc, struct pl_buf *plan, struct pl_error *err)
{
    pl_assert(o->time_scale > 0);
    if (o->learners == 0 || o->learners > PL_TRACE_NODES_MAX)
        return pl_fail(err, PELAGO_INVALID, "%u learners are too few or too many for a trace", o->learners);
    struct replay *r = pl_alloc_zero(alloc, 1, sizeof *r);
    if (r == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for a trace");
    r->o = o;
    r->plan = plan;
    r->err = err;
    enum pelago_status status = replay(r, text, len);
    pl_alloc_free(alloc, r, sizeof *r);
    return status;
}
