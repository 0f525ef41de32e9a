/* host/syncer_mirror.c - which folder may be a syncer's mirror, and the small files in it. The journal's bytes are the vault's.
 *
 * The file `lives` has a line for every life of this folder's run, the newest last: its epoch and random bytes. A mirror has
 * the lives of the folder that fills it, up to the last one it was there for. One whose last life is none of ours has gone on
 * by itself: what it announced would be lost.
 */
#include "host/syncer_host_int.h"

#include "base/fmt.h"

#include <string.h>

enum { LIVES_KEPT = 1024, LIFE_BYTES = 48, LIVES_BYTES = (LIVES_KEPT + 1) * LIFE_BYTES };
static const char lives_name[] = "lives";

/* ---- whose it is ---- */

static enum pelago_status refuse_stranger(struct pl_syncer_host *h, const char *whose, struct pl_error *err)
{
    return pl_fail(err, PELAGO_INVALID,
                   "the mirror %s holds %s, which would be lost: give --mirror a folder of its own",
                   h->mirror_path, whose);
}

/* What failed while the mirror was read: sentences of home.h name no folder. */
static enum pelago_status of_mirror(struct pl_syncer_host *h, enum pelago_status st,
                                    const struct pl_error *why, struct pl_error *err)
{
    return pl_fail(err, st, "in the mirror %s: %s", h->mirror_path, why->text);
}

static bool ends_in(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

/* What a first start that was killed may have left, and what a disk brings along. */
static enum pelago_status see_name(void *user, const char *name)
{
    bool ours = ends_in(name, ".pl") || ends_in(name, ".pl.new") || ends_in(name, ".tmp") ||
                strcmp(name, "pelago.lock") == 0 || strcmp(name, "lost+found") == 0;
    if (!ours)
        (void)pl_fmt(user, PL_FILE_NAME_MAX, "%s", name);
    return ours ? PELAGO_OK : PELAGO_STALE;
}

/* Where nothing says whose it is, there must be nothing to lose. */
static enum pelago_status check_unknown(struct pl_syncer_host *h, struct pl_error *err)
{
    char name[PL_FILE_NAME_MAX];
    const struct pl_dir there = pl_posix_dir_table(h->mirror_home);
    enum pelago_status st = there.ops->list(there.self, see_name, name);
    if (st == PELAGO_STALE)
        return pl_fail(err, PELAGO_INVALID,
                       "the mirror %s is no mirror and holds %s, which may be replaced: give --mirror a "
                       "folder of its own",
                       h->mirror_path, name);
    return st == PELAGO_OK ? st : pl_fail(err, st, "the mirror %s cannot be listed", h->mirror_path);
}

static enum pelago_status check_owner(struct pl_syncer_host *h, struct pl_error *err)
{
    struct pl_settings run;
    struct pl_credentials owner = {.role = PL_ROLE_NONE};
    struct pl_error why;
    enum pelago_status st = pl_home_load_settings(h->mirror_home, &h->alloc, &run, NULL, &why);
    bool settled = st == PELAGO_OK;
    if (settled && run.run_id != h->settings.run_id)
        return refuse_stranger(h, "another run", err);
    if (!settled && st != PELAGO_NOTFOUND)
        return of_mirror(h, st, &why, err);
    st = pl_home_load_credentials(h->mirror_home, "credentials", &h->alloc, &owner, &why);
    bool same_run = owner.run_id == h->settings.run_id;
    bool ours = same_run && owner.role == PL_ROLE_SHARD && owner.shard == h->o.shard;
    const char *whose = !same_run                     ? "another run"
                        : owner.role == PL_ROLE_SHARD ? "another shard"
                                                      : "a learner";
    memset(&owner, 0, sizeof owner);
    if (st == PELAGO_OK)
        return ours ? PELAGO_OK : refuse_stranger(h, whose, err);
    if (st != PELAGO_NOTFOUND)
        return of_mirror(h, st, &why, err);
    return settled ? PELAGO_OK : check_unknown(h, err);
}

/* ---- what it has lived through ---- */

/* The length of the last line, with its end; 0: there is none, or it was cut off. */
static size_t last_line(const struct pl_buf *text)
{
    size_t len = 0;
    if (text->len == 0 || text->data[text->len - 1] != '\n')
        return 0;
    for (len = 1; len < text->len && text->data[text->len - len - 1] != '\n';)
        len++;
    return len;
}

static bool has_line(const struct pl_buf *text, const uint8_t *line, size_t len)
{
    for (size_t at = 0; at + len <= text->len; at++)
        if ((at == 0 || text->data[at - 1] == '\n') && memcmp(text->data + at, line, len) == 0)
            return true;
    return false;
}

/* Empty where there is no such file. */
static enum pelago_status read_lives(struct pl_posix_dir *dir, struct pl_buf *out, struct pl_error *err)
{
    enum pelago_status st = pl_home_read(dir, lives_name, out, err);
    return st == PELAGO_NOTFOUND ? PELAGO_OK : st;
}

static enum pelago_status check_lives(struct pl_syncer_host *h, struct pl_error *err)
{
    struct pl_buf ours, theirs;
    pl_buf_init(&ours, &h->alloc, LIVES_BYTES);
    pl_buf_init(&theirs, &h->alloc, LIVES_BYTES);
    struct pl_error why;
    enum pelago_status st = read_lives(h->dir, &ours, err);
    if (st == PELAGO_OK && read_lives(h->mirror_home, &theirs, &why) != PELAGO_OK)
        st = of_mirror(h, why.status, &why, err);
    size_t len = last_line(&theirs);
    bool known = len > 0 && has_line(&ours, theirs.data + theirs.len - len, len);
    if (st == PELAGO_OK && theirs.len > 0 && ours.len == 0)
        st = pl_fail(err, PELAGO_INVALID,
                     "%s has lost its list of lives, so nobody can tell whether the mirror %s is newer: give "
                     "--mirror another folder",
                     h->folder, h->mirror_path);
    else if (st == PELAGO_OK && theirs.len > 0 && !known)
        st = pl_fail(
            err, PELAGO_INVALID,
            "the mirror %s has gone on without %s: start with --dir %s, or give --mirror another folder",
            h->mirror_path, h->folder, h->mirror_path);
    pl_buf_release(&ours);
    pl_buf_release(&theirs);
    return st;
}

enum pelago_status pl_mirror_check(struct pl_syncer_host *h, struct pl_error *err)
{
    if (h->mirror_home == NULL)
        return PELAGO_OK;
    PL_TRY(check_owner(h, err));
    return check_lives(h, err);
}

/* ---- what is written ---- */

enum pelago_status pl_mirror_note_life(struct pl_syncer_host *h, struct pl_error *err)
{
    char line[LIFE_BYTES];
    uint64_t name;
    struct pl_sync_view view;
    struct pl_buf lives;
    pl_syncer_view(h->core, &view);
    pl_random(&name, sizeof name);
    size_t len = pl_fmt(line, sizeof line, "%lu %lx\n", view.epoch, name), lines = 1;
    pl_buf_init(&lives, &h->alloc, LIVES_BYTES);
    enum pelago_status st = read_lives(h->dir, &lives, err);
    for (size_t i = 0; i < lives.len; i++)
        lines += lives.data[i] == '\n';
    for (; st == PELAGO_OK && lines > LIVES_KEPT; lines--) /* the oldest go */
        pl_buf_consume(&lives, (size_t)((uint8_t *)memchr(lives.data, '\n', lives.len) + 1 - lives.data));
    if (st == PELAGO_OK && pl_buf_append(&lives, line, len) != PELAGO_OK)
        st = pl_fail(err, PELAGO_NOMEM, "there is no memory for the list of this folder's lives");
    const struct pl_bytes bytes = {lives.data, lives.len};
    if (st == PELAGO_OK) /* ours first: the mirror never has a life that we do not know */
        st = pl_home_write(h->dir, lives_name, bytes, false, err);
    if (st == PELAGO_OK && h->mirror_home != NULL)
        st = pl_home_write(h->mirror_home, lives_name, bytes, false, err);
    pl_buf_release(&lives);
    return st;
}

/* So that the mirror alone can take over. */
enum pelago_status pl_mirror_copy(struct pl_syncer_host *h, struct pl_error *err)
{
    static const struct {
        const char *name;
        bool secret;
    } files[] = {{"settings.json", false}, {"tokenizer.json", false}, {"credentials", true},
                 {"authority", true},      {"operator", true},        {"invitations.json", true},
                 {"address", false},       {"home", false},           {"listen", false},
                 {"origin", false}};
    for (size_t i = 0; h->mirror_home != NULL && i < sizeof files / sizeof files[0]; i++) {
        struct pl_buf bytes;
        pl_buf_init(&bytes, &h->alloc, PL_JSON_BYTES_MAX);
        enum pelago_status st = pl_home_read(h->dir, files[i].name, &bytes, err);
        if (st == PELAGO_OK)
            st = pl_home_write(h->mirror_home, files[i].name, (struct pl_bytes){bytes.data, bytes.len},
                               files[i].secret, err);
        pl_buf_release(&bytes);
        if (st != PELAGO_NOTFOUND)
            PL_TRY(st);
    }
    return PELAGO_OK;
}
