/* cmd/cmd_sim_goodput_trace.c - reads a recorded trace of failures: a head line, then `t_s,event,node,cause`, sorted.
 *
 * Nodes are named as they like; they get numbers in the order in which they first appear.
 */
#include "cmd/cmd.h"
#include "cmd/cmd_sim.h"
#include "cmd/cmd_sim_goodput.h"
#include "cmd/options.h"
#include "cmd/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { NODES_MAX = 65536, EVENTS_MAX = 1 << 20, NAME_BYTES = 48 };

struct reader {
    struct pl_goodput_call *call;
    struct pl_alloc alloc;
    char (*names)[NAME_BYTES]; /* [NODES_MAX] */
    uint32_t *slots;           /* [2 x NODES_MAX] node + 1 by hash of the name */
    unsigned line;
};

static int refuse(const struct reader *r, const char *what)
{
    return pl_usage_error("sim", "%s line %u: %s", pl_text_clip(r->call->trace).at, r->line, what);
}

/* Its number; PL_NONE32 when there are too many. */
static uint32_t node_of(struct reader *r, const char *name)
{
    uint32_t slot = 5381;
    for (const char *c = name; *c != '\0'; c++)
        slot = slot * 33 + (uint8_t)*c;
    for (slot %= 2 * NODES_MAX; r->slots[slot] != 0; slot = (slot + 1) % (2 * NODES_MAX))
        if (strcmp(r->names[r->slots[slot] - 1], name) == 0)
            return r->slots[slot] - 1;
    if (r->call->o.trace_nodes == NODES_MAX)
        return PL_NONE32;
    uint32_t node = r->call->o.trace_nodes++;
    memcpy(r->names[node], name, strlen(name) + 1);
    r->slots[slot] = node + 1;
    return node;
}

static int read_line(struct reader *r, char *text)
{
    struct pl_goodput_call *c = r->call;
    struct pl_goodput_event ev = {0};
    char *end, event[8], name[NAME_BYTES];
    ev.t_s = strtod(text, &end);
    if (end == text || *end != ',' || !(ev.t_s >= 0 && ev.t_s < 1e10))
        return refuse(r, "the time is no number of seconds from 0 to 1e10");
    if (sscanf(end, ",%7[^,],%47[^,\r\n]", event, name) != 2 ||
        (strcmp(event, "up") != 0 && strcmp(event, "down") != 0))
        return refuse(r, "expected t_s,up or down,node,cause");
    if (c->o.trace_count > 0 && ev.t_s < c->events[c->o.trace_count - 1].t_s)
        return refuse(r, "the time goes back");
    ev.node = node_of(r, name);
    ev.up = event[0] == 'u';
    if (ev.node == PL_NONE32 || c->o.trace_count == c->events_max)
        return refuse(r, "too long, expected at most 65536 nodes and 1048576 lines");
    c->events[c->o.trace_count++] = ev;
    return PL_EXIT_OK;
}

static int read_lines(struct reader *r, FILE *f)
{
    char text[512];
    int code = PL_EXIT_OK;
    while (code == PL_EXIT_OK && fgets(text, sizeof text, f) != NULL) {
        r->line++;
        if (strchr(text, '\n') == NULL && feof(f) == 0)
            return refuse(r, "longer than 510 bytes");
        if (r->line > 1 || strncmp(text, "t_s,", 4) != 0)
            code = read_line(r, text);
    }
    if (code == PL_EXIT_OK && ferror(f) != 0)
        return pl_sim_cannot_read(r->call->trace, errno);
    r->call->o.trace = r->call->events;
    return code;
}

int pl_goodput_trace_read(struct pl_goodput_call *c)
{
    struct reader r = {.call = c, .alloc = pl_alloc_system()};
    FILE *f = fopen(c->trace, "re");
    int code = PL_EXIT_FAILED;
    if (f == NULL)
        return pl_sim_cannot_read(c->trace, errno);
    c->events_max = EVENTS_MAX;
    c->events = pl_alloc_zero(&r.alloc, EVENTS_MAX, sizeof *c->events);
    r.names = pl_alloc_zero(&r.alloc, NODES_MAX, sizeof *r.names);
    r.slots = pl_alloc_zero(&r.alloc, 2 * (size_t)NODES_MAX, sizeof *r.slots);
    if (c->events != NULL && r.names != NULL && r.slots != NULL)
        code = read_lines(&r, f);
    else
        fputs("pelago sim: out of memory.\n", stderr);
    pl_alloc_free(&r.alloc, r.names, NODES_MAX * sizeof *r.names);
    pl_alloc_free(&r.alloc, r.slots, 2 * (size_t)NODES_MAX * sizeof *r.slots);
    fclose(f);
    return code;
}

void pl_goodput_trace_free(struct pl_goodput_call *c)
{
    struct pl_alloc alloc = pl_alloc_system();
    pl_alloc_free(&alloc, c->events, EVENTS_MAX * sizeof *c->events);
    c->events = NULL;
}
