/* cmd/run_proxy.c - `pelago run --proxy`: a `pelago chaos proxy` between the learners and the syncer, so that a plan of
 * chaos can break links without root and without a second machine.
 *
 * The syncer is there first; then the proxy, whose state file says which port is whose; then the learners, each of which
 * dials its own port. Ports live as long as the proxy: without it nobody reaches anybody, so its end is the run's.
 */
#include "cmd/run_cluster.h"

#include "base/check.h"
#include "cmd/cluster_home.h"
#include "cmd/text.h"
#include "host/home.h"
#include "os/clock.h"
#include "train/json.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { TURN_MS = 20 };
static const uint64_t patience_ns = 30 * PL_SEC, leave_ns = 2 * PL_SEC;
static const char state_name[] = "proxy.json";

static void word(struct pl_run *r, const char *text)
{
    bool fits = pl_child_word(&r->proxy.child, text);
    pl_assert(fits);
}

static enum pelago_status plan(struct pl_run *r)
{
    struct pl_run_proxy *p = &r->proxy;
    char path[PL_PATH_MAX];
    if (r->settings.shards > 1) /* only home would be behind it: learners ask home where the others are */
        return pl_fail(&r->err, PELAGO_INVALID, "--proxy stands in front of one syncer, and the run has %u",
                       r->settings.shards);
    PL_TRY(pl_path_join(path, r->home, "address", &r->err));
    PL_TRY(pl_path_read_line(path, p->to, sizeof p->to, &r->err));
    PL_TRY(pl_path_join(p->state, r->args.out, state_name, &r->err));
    PL_TRY(pl_path_join(p->control, r->args.out, "proxy.sock", &r->err));
    PL_TRY(pl_path_join(p->child.log, r->log, "proxy.log", &r->err));
    (void)snprintf(p->child.name, sizeof p->child.name, "proxy");
    (void)snprintf(p->ports, sizeof p->ports, "%u", r->settings.learners);
    p->child.out = -1;
    const char *const words[] = {"pelago", "chaos",   "proxy",  "--to",      p->to,     "--ports",
                                 p->ports, "--state", p->state, "--control", p->control};
    for (unsigned i = 0; i < sizeof words / sizeof words[0]; i++)
        word(r, words[i]);
    return PELAGO_OK;
}

/* Every learner's port, from the state file. */
static enum pelago_status give_addresses(struct pl_run *r, const json_t *links)
{
    const json_t *link;
    size_t i;
    uint32_t given = 0;
    json_array_foreach(links, i, link)
    {
        const char *listen = json_string_value(json_object_get(link, "listen"));
        json_int_t learner = json_integer_value(json_object_get(link, "learner"));
        if (listen == NULL || learner < 1 || learner > r->settings.learners ||
            strlen(listen) >= sizeof r->learners[0].address)
            continue;
        struct pl_run_process *p = &r->learners[learner - 1];
        (void)snprintf(p->address, sizeof p->address, "%s", listen);
        bool fits = pl_child_word(&p->child, "--address") && pl_child_word(&p->child, p->address);
        pl_assert(fits);
        given++;
    }
    if (given != r->settings.learners)
        return pl_fail(&r->err, PELAGO_CORRUPT, "%s names %u ports of %u learners", r->proxy.state, given,
                       r->settings.learners);
    return PELAGO_OK;
}

static enum pelago_status read_state(struct pl_run *r)
{
    struct pl_posix_dir *dir = NULL;
    struct pl_buf text;
    json_t *root = NULL;
    pl_buf_init(&text, &r->alloc, PL_JSON_BYTES_MAX);
    enum pelago_status st = pl_posix_dir_open(&dir, &r->alloc, r->args.out, PL_POSIX_DIR_EXISTING, &r->err);
    if (st == PELAGO_OK)
        st = pl_home_read(dir, state_name, &text, &r->err);
    if (st == PELAGO_OK)
        st = pl_json_parse((struct pl_bytes){text.data, text.len}, state_name, &root, &r->err);
    if (st == PELAGO_OK)
        st = give_addresses(r, json_object_get(root, "links"));
    json_decref(root);
    pl_posix_dir_close(dir);
    pl_buf_release(&text);
    return st;
}

enum pelago_status pl_run_proxy_start(struct pl_run *r)
{
    if (!r->args.proxy)
        return PELAGO_OK;
    PL_TRY(plan(r));
    (void)unlink(r->proxy.state); /* of a proxy that is gone */
    PL_TRY(pl_child_start(&r->proxy.child, r->program, pl_clock_ns(), &r->err));
    uint64_t begin_ns = pl_clock_ns();
    while (access(r->proxy.state, F_OK) != 0) {
        PL_TRY(pl_run_turn(r, TURN_MS));
        if (pl_run_caught() != 0)
            return PELAGO_OK;
        if (pl_clock_ns() - begin_ns > patience_ns)
            return pl_fail(&r->err, PELAGO_UNREACHABLE, "the proxy does not listen; its log is %s",
                           pl_text_clip(r->proxy.child.log).at);
    }
    return read_state(r);
}

enum pelago_status pl_run_proxy_tend(struct pl_run *r, uint64_t now_ns)
{
    struct pl_child *c = &r->proxy.child;
    char said[PL_TEXT_MAX];
    if (!pl_child_reap(c, now_ns) || c->told)
        return PELAGO_OK;
    if (pl_child_last_words(c, said, sizeof said))
        return pl_fail(&r->err, PELAGO_IO, "the proxy cannot work; it says: %s", said);
    return pl_fail(&r->err, PELAGO_IO,
                   "the proxy %s, and learners reach the syncer through nothing else: "
                   "pelago run --resume goes on",
                   pl_child_why(c->status).at);
}

void pl_run_proxy_stop(struct pl_run *r)
{
    struct pl_child *c = &r->proxy.child;
    uint64_t begin_ns = pl_clock_ns();
    pl_child_tell(c, SIGTERM);
    while (c->state == PL_CHILD_RUNNING && pl_clock_ns() - begin_ns < leave_ns)
        (void)pl_run_turn(r, TURN_MS);
    pl_child_tell(c, SIGKILL);
}
