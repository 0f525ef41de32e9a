/* cmd/cluster_home.c - see cluster_home.h. */
#include "cmd/cluster_home.h"

#include "base/fmt.h"
#include "cmd/text.h"
#include "host/home.h"
#include "host/serve.h"
#include "os/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

static const uint64_t renew_below_s = UINT64_C(7) * 24 * 3600, renew_patience_ns = 5 * PL_SEC;

/* ---- paths ---- */

enum pelago_status pl_path_join(char out[static PL_PATH_MAX], const char *folder, const char *name,
                                struct pl_error *err)
{
    if (strlen(folder) + strlen(name) + 2 > PL_PATH_MAX)
        return pl_fail(err, PELAGO_LIMIT, "the name of the folder is too long");
    (void)pl_fmt(out, PL_PATH_MAX, "%s/%s", folder, name);
    return PELAGO_OK;
}

bool pl_path_exists(const char *folder, const char *name)
{
    char path[PL_PATH_MAX];
    return pl_path_join(path, folder, name, NULL) == PELAGO_OK && access(path, F_OK) == 0;
}

static bool is_file(int fd)
{
    struct stat about;
    return fstat(fd, &about) == 0 && S_ISREG(about.st_mode);
}

/* waits: a person named it, so it may be a pipe that somebody is about to write to. */
static enum pelago_status read_line(const char *path, bool waits, char *out, size_t cap, struct pl_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | (waits ? 0 : O_NONBLOCK));
    bool wrong = fd >= 0 && !waits && !is_file(fd);
    ssize_t n = fd >= 0 && !wrong ? read(fd, out, cap - 1) : -1;
    int code = errno;
    if (fd >= 0)
        (void)close(fd);
    if (n < 0)
        return pl_fail(err, !wrong && code == ENOENT ? PELAGO_NOTFOUND : PELAGO_IO, "%s cannot be read: %s",
                       pl_text_clip(path).at, wrong ? "it is not a regular file" : strerror(code));
    out[n] = '\0';
    out[strcspn(out, "\r\n")] = '\0';
    return PELAGO_OK;
}

enum pelago_status pl_path_read_line(const char *path, char *out, size_t cap, struct pl_error *err)
{
    return read_line(path, false, out, cap, err);
}

/* The whole line that invite prints will do. */
static enum pelago_status read_token(const char *path, char out[static PL_TOKEN_TEXT_MAX],
                                     struct pl_error *err)
{
    char line[2 * PL_TOKEN_TEXT_MAX];
    PL_TRY(read_line(path, true, line, sizeof line, err));
    const char *token = strstr(line, "pelago1-");
    (void)pl_fmt(out, PL_TOKEN_TEXT_MAX, "%s", token != NULL ? token : line);
    out[strcspn(out, " \t")] = '\0';
    return PELAGO_OK;
}

enum pelago_status pl_token_given(const char *given, char out[static PL_TOKEN_TEXT_MAX], struct pl_error *err)
{
    if (given[0] == '@')
        return read_token(given + 1, out, err);
    if (strlen(given) >= PL_TOKEN_TEXT_MAX)
        return pl_fail(err, PELAGO_INVALID, "the token is too long to be one; copy the whole line again");
    (void)pl_fmt(out, PL_TOKEN_TEXT_MAX, "%s", given);
    return PELAGO_OK;
}

/* ---- the operator ---- */

static enum pelago_status find_home(struct pl_operator *o, const char *folder, struct pl_error *err)
{
    char inside[PL_PATH_MAX];
    PL_TRY(pl_path_join(inside, folder, "syncer", err));
    const char *home = pl_path_exists(inside, "settings.json") ? inside : folder;
    if (!pl_path_exists(home, "settings.json"))
        return pl_fail(
            err, PELAGO_NOTFOUND,
            "%s holds no run: expected the folder given to pelago syncer --dir or pelago run --out",
            pl_text_clip(folder).at);
    if (!pl_path_exists(home, "operator"))
        return pl_fail(
            err, PELAGO_NOTFOUND,
            "%s is of a learner or a further shard: this asks the home shard, so say it with the folder "
            "given to its pelago syncer --dir",
            pl_text_clip(home).at);
    (void)pl_fmt(o->folder, sizeof o->folder, "%s", home);
    return PELAGO_OK;
}

/* Others may come by another way than we can go: a forwarded port, a name that leads here from outside only. */
static void find_near(struct pl_operator *o)
{
    char path[PL_PATH_MAX], bound[PL_ADDRESS_MAX];
    if (pl_path_join(path, o->folder, "listen", NULL) != PELAGO_OK ||
        pl_path_read_line(path, bound, sizeof bound, NULL) != PELAGO_OK ||
        pl_serve_near(bound, o->near, NULL) != PELAGO_OK || strcmp(o->near, o->address) == 0)
        o->near[0] = '\0';
}

enum pelago_status pl_operator_reload(struct pl_operator *o, struct pl_error *err)
{
    char path[PL_PATH_MAX];
    PL_TRY(pl_path_join(path, o->folder, "address", err));
    enum pelago_status st = pl_path_read_line(path, o->address, sizeof o->address, err);
    if (st == PELAGO_NOTFOUND)
        return pl_fail(err, st, "the syncer of %s has not been started yet: pelago syncer --dir does",
                       pl_text_clip(o->folder).at);
    if (st == PELAGO_OK)
        find_near(o);
    return st;
}

/* Certificates are short-lived; one that ends soon is exchanged, if the syncer is there to do it. */
static void renew(struct pl_operator *o, struct pl_posix_dir *dir, const struct pl_alloc *alloc)
{
    if (pl_pki_seconds_left(&o->own) >= renew_below_s)
        return;
    bool near =
        o->near[0] != '\0' && pl_door_renew(alloc, o->near, renew_patience_ns, &o->own, NULL) == PELAGO_OK;
    if (near || pl_door_renew(alloc, o->address, renew_patience_ns, &o->own, NULL) == PELAGO_OK)
        (void)pl_home_save_credentials(dir, "operator", &o->own, NULL);
}

enum pelago_status pl_operator_load(struct pl_operator *o, const char *folder, struct pl_error *err)
{
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_posix_dir *dir = NULL;
    PL_TRY(find_home(o, folder, err));
    PL_TRY(pl_operator_reload(o, err));
    PL_TRY(pl_posix_dir_open(&dir, &alloc, o->folder, PL_POSIX_DIR_EXISTING, err));
    enum pelago_status st = pl_home_load_credentials(dir, "operator", &alloc, &o->own, err);
    if (st == PELAGO_OK)
        renew(o, dir, &alloc);
    else if (st == PELAGO_IO)
        (void)pl_fail(err, st,
                      "the file operator in %s cannot be used: %s; ask as the user who runs the syncer",
                      pl_text_clip(o->folder).at, pl_posix_dir_reason(dir));
    else
        (void)pl_fail(err, st, "the file operator in %s cannot be used: %s", pl_text_clip(o->folder).at,
                      pl_posix_dir_reason(dir)[0] != '\0' ? pl_posix_dir_reason(dir) : pl_status_text(st));
    pl_posix_dir_close(dir);
    return st;
}

enum pelago_status pl_operator_ask(const struct pl_operator *o, const struct pl_question *q,
                                   uint64_t patience_ns, struct pl_buf *out, struct pl_error *err)
{
    struct pl_alloc alloc = pl_alloc_system();
    uint64_t begin_ns = pl_clock_ns();
    enum pelago_status st = PELAGO_UNREACHABLE;
    if (o->near[0] != '\0')
        st = pl_door_ask(&alloc, o->near, &o->own, q, patience_ns, out, err);
    /* On a machine that only shares the folder there is nobody, or somebody else. Where nothing answered in all that time it is
     * there and busy. */
    if (st == PELAGO_OK || st == PELAGO_DENIED || pl_clock_ns() - begin_ns >= patience_ns)
        return st;
    out->len = 0;
    return pl_door_ask(&alloc, o->address, &o->own, q, patience_ns, out, err);
}

bool pl_operator_last_status(const struct pl_operator *o, struct pl_buf *out)
{
    struct pl_posix_dir *dir = NULL;
    out->len = 0;
    bool good = pl_posix_dir_open(&dir, out->alloc, o->folder, PL_POSIX_DIR_EXISTING, NULL) == PELAGO_OK &&
                pl_home_read(dir, "status.json", out, NULL) == PELAGO_OK;
    pl_posix_dir_close(dir);
    return good;
}

bool pl_is_away(enum pelago_status st)
{
    return st == PELAGO_UNREACHABLE || st == PELAGO_IO;
}

/* ---- lines with a date ---- */

void pl_log_line(void *user, const char *line)
{
    char text[512], date[32] = "";
    struct timeval now;
    struct tm parts;
    (void)user;
    if (gettimeofday(&now, NULL) == 0 && gmtime_r(&now.tv_sec, &parts) != NULL)
        (void)strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &parts);
    int len = snprintf(text, sizeof text - 1, "%s.%03dZ %s", date, (int)(now.tv_usec / 1000), line);
    size_t n = len < 0 ? 0 : (size_t)len < sizeof text - 1 ? (size_t)len : sizeof text - 2;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] < ' ')
            text[i] = '?';
    text[n] = '\n';
    /* One write, so that lines of several processes in one file stay whole. */
    ssize_t written = write(STDERR_FILENO, text, n + 1);
    (void)written;
}
