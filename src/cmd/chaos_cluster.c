/* cmd/chaos_cluster.c - see chaos_cluster.h. A process is held by a pidfd while its command line is looked at, so that a
 * number used again by somebody else is never signalled. */
#include "cmd/chaos_cluster.h"

#include "base/check.h"
#include "chaos/schedule.h"
#include "cmd/text.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <unistd.h>

enum pelago_status pl_cluster_init(struct pl_cluster *c, const char *dir, const struct pl_alloc *alloc,
                                   struct pl_error *err)
{
    *c = (struct pl_cluster){.alloc = alloc};
    if (strlen(dir) + 64 > sizeof c->dir)
        return pl_fail(err, PELAGO_INVALID, "the path of the run's folder is too long");
    (void)snprintf(c->dir, sizeof c->dir, "%s", dir);
    return PELAGO_OK;
}

void pl_cluster_release(struct pl_cluster *c)
{
    pl_alloc_free(c->alloc, c->nodes, c->room * sizeof *c->nodes);
    c->nodes = NULL;
    c->count = c->learners = c->room = 0;
}

/* ---- run.json ---- */

/* "learner-12" is learner 12; a name without a number goes by its place. */
static uint32_t number_of(const char *name, uint32_t place)
{
    size_t len = name != NULL ? strlen(name) : 0, at = len;
    uint64_t v;
    while (at > 0 && name[at - 1] >= '0' && name[at - 1] <= '9')
        at--;
    if (at == len || !pl_text_number(name + at, &v) || v > PL_CHAOS_NODE_MAX)
        return place;
    return (uint32_t)v;
}

/* As the file says it, or below the run's folder where that is not there. */
static void find_folder(const struct pl_cluster *c, const char *dir, struct pl_cluster_node *n)
{
    struct stat about;
    if (dir == NULL || strlen(c->dir) + strlen(dir) + 64 > sizeof n->dir)
        return;
    bool beside = dir[0] != '/' && stat(dir, &about) != 0;
    (void)snprintf(n->dir, sizeof n->dir, "%s%s%s", beside ? c->dir : "", beside ? "/" : "", dir);
}

static void read_node(const struct pl_cluster *c, const json_t *o, bool syncer, uint32_t place,
                      struct pl_cluster_node *n)
{
    const char *dir = json_string_value(json_object_get(o, "dir"));
    json_int_t pid = json_integer_value(json_object_get(o, "pid"));
    *n = (struct pl_cluster_node){.syncer = syncer, .pid = pid > 1 && pid <= INT32_MAX ? (int)pid : 0};
    n->number = number_of(json_string_value(json_object_get(o, "name")), syncer ? place : place + 1);
    find_folder(c, dir != NULL ? dir : json_string_value(json_object_get(o, "folder")), n);
}

static enum pelago_status read_nodes(struct pl_cluster *c, const json_t *root, struct pl_error *err)
{
    const json_t *learners = json_object_get(root, "learners"), *syncers = json_object_get(root, "syncers");
    size_t l = json_array_size(learners), s = json_array_size(syncers);
    if (!json_is_array(learners) || !json_is_array(syncers) || l + s == 0)
        return pl_fail(err, PELAGO_CORRUPT, "%s/run.json names no learners and syncers", c->dir);
    if (l > PL_CHAOS_NODES_MAX || s > PL_CHAOS_NODES_MAX - l)
        return pl_fail(err, PELAGO_CORRUPT,
                       "%s/run.json names %lu learners and %lu syncers, expected at most %u in all", c->dir,
                       (uint64_t)l, (uint64_t)s, (unsigned)PL_CHAOS_NODES_MAX);
    struct pl_cluster_node *nodes = pl_alloc_zero(c->alloc, l + s, sizeof *nodes);
    if (nodes == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for %lu processes", (uint64_t)(l + s));
    for (size_t i = 0; i < l; i++)
        read_node(c, json_array_get(learners, i), false, (uint32_t)i, &nodes[i]);
    for (size_t i = 0; i < s; i++)
        read_node(c, json_array_get(syncers, i), true, (uint32_t)i, &nodes[l + i]);
    pl_cluster_release(c);
    c->nodes = nodes;
    c->learners = (uint32_t)l;
    c->count = c->room = (uint32_t)(l + s);
    json_int_t pid = json_integer_value(json_object_get(root, "pid"));
    c->run_pid = pid > 1 && pid <= INT32_MAX ? (int)pid : 0;
    return PELAGO_OK;
}

enum pelago_status pl_cluster_refresh(struct pl_cluster *c, struct pl_error *err)
{
    char path[PL_CLUSTER_PATH + 16];
    struct stat about;
    json_error_t why;
    (void)snprintf(path, sizeof path, "%s/run.json", c->dir);
    if (stat(path, &about) != 0)
        return pl_fail(err, PELAGO_NOTFOUND, "%s is not there: is a run under way in this folder?", path);
    uint64_t stamp[3] = {(uint64_t)about.st_ino,
                         (uint64_t)about.st_mtim.tv_sec * PL_SEC + (uint64_t)about.st_mtim.tv_nsec,
                         (uint64_t)about.st_size};
    if (c->nodes != NULL && memcmp(stamp, c->stamp, sizeof stamp) == 0)
        return PELAGO_OK;
    json_t *root = json_load_file(path, 0, &why);
    if (root == NULL)
        return pl_fail(err, PELAGO_CORRUPT, "%s cannot be read: %s", path, why.text);
    enum pelago_status status = read_nodes(c, root, err);
    json_decref(root);
    if (status == PELAGO_OK)
        memcpy(c->stamp, stamp, sizeof stamp);
    return status;
}

const struct pl_cluster_node *pl_cluster_find(const struct pl_cluster *c, bool syncer, uint32_t number)
{
    for (uint32_t i = 0; i < c->count; i++)
        if (c->nodes[i].syncer == syncer && c->nodes[i].number == number)
            return &c->nodes[i];
    return NULL;
}

/* ---- processes ---- */

/* "pelago learner ...": the program's name without its folder, and the role. */
static bool is_ours(const char *line, size_t len, const char *role)
{
    const char *end = memchr(line, '\0', len), *p = line, *slash;
    if (end != NULL && (line[0] == '/' || line[0] == '.') && (slash = strrchr(line, '/')) != NULL)
        p = slash + 1;
    size_t left = len - (size_t)(p - line), role_len = strlen(role);
    if (left < 8 + role_len || memcmp(p, "pelago", 6) != 0 || (p[6] != ' ' && p[6] != '\0'))
        return false;
    return memcmp(p + 7, role, role_len) == 0 && (p[7 + role_len] == ' ' || p[7 + role_len] == '\0');
}

static enum pelago_status check_line(const struct pl_cluster_node *n, struct pl_error *err)
{
    char path[64], line[4096];
    const char *role = n->syncer ? "syncer" : "learner";
    (void)snprintf(path, sizeof path, "/proc/%d/cmdline", n->pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t len = fd >= 0 ? read(fd, line, sizeof line - 1) : -1;
    if (fd >= 0)
        close(fd);
    if (len <= 0)
        return pl_fail(err, PELAGO_NOTFOUND, "process %u has ended", (unsigned)n->pid);
    line[len] = '\0';
    if (is_ours(line, (size_t)len + 1, "run"))
        return pl_fail(err, PELAGO_NOTFOUND, "process %u is just being started", (unsigned)n->pid);
    if (!is_ours(line, (size_t)len + 1, role))
        return pl_fail(err, PELAGO_INVALID, "process %u is no 'pelago %s': left alone", (unsigned)n->pid,
                       role);
    return PELAGO_OK;
}

enum pelago_status pl_cluster_signal(const struct pl_cluster_node *n, int number, struct pl_error *err)
{
    if (n->pid <= 1)
        return pl_fail(err, PELAGO_NOTFOUND, "it is not running");
    int fd = pidfd_open(n->pid, 0);
    if (fd < 0 && errno == ESRCH)
        return pl_fail(err, PELAGO_NOTFOUND, "process %u has ended", (unsigned)n->pid);
    if (fd < 0)
        return pl_fail(err, PELAGO_IO, "process %u cannot be held: %s", (unsigned)n->pid, strerror(errno));
    enum pelago_status status = check_line(n, err);
    if (status == PELAGO_OK && pidfd_send_signal(fd, number, NULL, 0) != 0)
        status = pl_fail(err, errno == ESRCH ? PELAGO_NOTFOUND : PELAGO_DENIED, "process %u: %s",
                         (unsigned)n->pid, strerror(errno));
    close(fd);
    return status;
}

bool pl_cluster_lives(const struct pl_cluster *c)
{
    if (c->run_pid > 0)
        return kill(c->run_pid, 0) == 0 || errno == EPERM;
    for (uint32_t i = 0; i < c->count; i++)
        if (c->nodes[i].pid > 1 && check_line(&c->nodes[i], NULL) == PELAGO_OK)
            return true;
    return false;
}
