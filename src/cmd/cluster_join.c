/* cmd/cluster_join.c - see cluster_join.h. */
#include "cmd/cluster_join.h"

#include "cmd/cluster_home.h"
#include "cmd/text.h"
#include "host/home.h"
#include "os/clock.h"

#include <string.h>
#include <time.h>

static const uint64_t attempt_ns = 10 * PL_SEC;

struct joining {
    const struct pl_join *j;
    struct pl_alloc alloc;
    struct pl_posix_dir *dir;
    struct pl_credentials own;
    char address[PL_ADDRESS_MAX];
    uint64_t begin_ns;
    bool said;
    struct pl_error *err;
};

/* Does another attempt make sense? A syncer may be about to start, or start again. */
static bool again(struct joining *g, enum pelago_status st)
{
    const struct timespec pause = {0, 200000000};
    if (!pl_is_away(st) || pl_clock_ns() - g->begin_ns >= g->j->patience_ns)
        return false;
    if (!g->said)
        pl_log_line(NULL, g->err->text);
    g->said = true;
    (void)nanosleep(&pause, NULL);
    return true;
}

/* ---- who we are ---- */

static enum pelago_status enrol(struct joining *g, const struct pl_token *token)
{
    enum pelago_status st;
    do
        st = pl_door_enrol(&g->alloc, token, g->j->role, g->j->shard, attempt_ns, &g->own, NULL, g->err);
    while (st != PELAGO_OK && again(g, st));
    PL_TRY(st);
    return pl_home_save_credentials(g->dir, "credentials", &g->own, g->err);
}

static enum pelago_status become_somebody(struct joining *g)
{
    struct pl_token token;
    const struct pl_join *j = g->j;
    if (j->token != NULL) {
        PL_TRY(pl_token_parse(j->token, &token, g->err));
        memcpy(g->address, token.address, sizeof token.address);
    }
    enum pelago_status st = pl_home_load_credentials(g->dir, "credentials", &g->alloc, &g->own, g->err);
    if (st == PELAGO_NOTFOUND && j->token == NULL)
        return pl_fail(
            g->err, PELAGO_INVALID,
            "%s has not taken part in a run yet: --join TOKEN is needed, which pelago invite makes",
            pl_text_clip(j->folder).at);
    if (st == PELAGO_NOTFOUND)
        return enrol(g, &token);
    if (st != PELAGO_OK)
        return st;
    if (g->own.role != j->role || (j->role == PL_ROLE_SHARD && g->own.shard != j->shard))
        return pl_fail(g->err, PELAGO_INVALID, "%s belongs to somebody else of the run: give another --dir",
                       pl_text_clip(j->folder).at);
    if (j->token != NULL && memcmp(token.fingerprint, g->own.fingerprint, sizeof token.fingerprint) != 0)
        return pl_fail(g->err, PELAGO_INVALID,
                       "%s belongs to another run than the token: give another --dir, or leave --join out",
                       pl_text_clip(j->folder).at);
    return PELAGO_OK;
}

/* Where home is: a token says it anew, the folder remembers. */
static enum pelago_status find_home(struct joining *g)
{
    /* A shard's own address is in a file called so. */
    const char *name = g->j->role == PL_ROLE_SHARD ? "home" : "address";
    char path[PL_PATH_MAX];
    if (g->j->token != NULL)
        return pl_home_write(g->dir, name, (struct pl_bytes){g->address, strlen(g->address)}, false, g->err);
    PL_TRY(pl_path_join(path, g->j->folder, name, g->err));
    return pl_path_read_line(path, g->address, sizeof g->address, g->err);
}

/* ---- what the run is ---- */

static enum pelago_status get_settings(struct joining *g, struct pl_settings *settings)
{
    static const struct pl_question q = {.what = PL_ASK_SETTINGS};
    struct pl_buf text;
    enum pelago_status st = pl_home_load_settings(g->dir, &g->alloc, settings, NULL, g->err);
    if (st != PELAGO_NOTFOUND)
        return st;
    pl_buf_init(&text, &g->alloc, PL_CHUNK_BYTES_MAX);
    do {
        text.len = 0;
        st = pl_door_ask(&g->alloc, g->address, &g->own, &q, attempt_ns, &text, g->err);
    } while (st != PELAGO_OK && again(g, st));
    if (st == PELAGO_OK)
        st = pl_settings_parse((const char *)text.data, text.len, settings, g->err);
    if (st == PELAGO_OK)
        st = pl_home_write(g->dir, "settings.json", (struct pl_bytes){text.data, text.len}, false, g->err);
    pl_buf_release(&text);
    return st;
}

enum pelago_status pl_join(const struct pl_join *j, struct pl_settings *settings, struct pl_error *err)
{
    struct joining g = {.j = j, .alloc = pl_alloc_system(), .begin_ns = pl_clock_ns(), .err = err};
    PL_TRY(pl_posix_dir_open(&g.dir, &g.alloc, j->folder,
                             j->token != NULL ? PL_POSIX_DIR_CREATE : PL_POSIX_DIR_EXISTING, err));
    enum pelago_status st = pl_posix_dir_lock(g.dir, j->folder, err);
    if (st == PELAGO_OK)
        st = become_somebody(&g);
    if (st == PELAGO_OK)
        st = find_home(&g);
    if (st == PELAGO_OK)
        st = get_settings(&g, settings);
    pl_posix_dir_close(g.dir);
    return st;
}
