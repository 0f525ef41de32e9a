/* host/join.c - see join.h. */
#include "host/join.h"

#include "base/fmt.h"
#include "base/hash.h"
#include "base/num.h"
#include "os/clock.h"

#include <stdlib.h>
#include <string.h>

#define PATIENCE_NS (60 * PL_SEC)
#define TRY_NS (10 * PL_SEC) /* of one attempt */
enum { COMPLETE_BYTES_MAX = 256, BUSY_TIMES = 10, PAUSE_MS = 200, PAUSE_MS_MAX = 5000, SKEW_S = 60 };

static const char complete_name[] = "complete", joining_name[] = "joining";

static void say(const struct pl_join *j, const char *format, ...)
{
    char line[2 * PL_TEXT_MAX];
    va_list args;
    va_start(args, format);
    (void)pl_vfmt(line, sizeof line, format, args);
    va_end(args);
    if (j->log != NULL)
        j->log(j->user, line);
}

/* ---- trying again ---- */

struct attempts {
    uint64_t begin_ns;
    uint32_t count;
};

/* Twice as long each time, and up to half of it less, so that those who were turned away together do not return together. */
static void pause_before(uint32_t attempt)
{
    uint32_t random;
    uint64_t ms = pl_min64((uint64_t)PAUSE_MS << pl_min32(attempt, 16), PAUSE_MS_MAX);
    pl_random(&random, sizeof random);
    uv_sleep((unsigned)(ms - random % (ms / 2)));
}

/* Whether another attempt makes sense; if so, after a pause. Where a connection was taken and broken off (IO) somebody is
 * there who has no time for us now. */
static bool again(const struct pl_join *j, struct attempts *a, enum pelago_status st,
                  const struct pl_error *err)
{
    uint64_t patience_ns = j->patience_ns != 0 ? j->patience_ns : PATIENCE_NS;
    uint64_t allowed_ns = st == PELAGO_IO            ? BUSY_TIMES * patience_ns
                          : st == PELAGO_UNREACHABLE ? patience_ns
                                                     : 0;
    if (pl_clock_ns() - a->begin_ns >= allowed_ns)
        return false;
    if (a->count == 0)
        say(j, "%s (trying again for a while)", err->text);
    pause_before(a->count++);
    return true;
}

/* ---- who we are ---- */

/* The key is on disk before anybody hears of it: whoever is killed while it enrols comes again as the same. */
static enum pelago_status choose_key(struct pl_join *j, const struct pl_token *token, struct pl_error *err)
{
    if (pl_home_load_credentials(j->dir, joining_name, j->alloc, &j->own, NULL) == PELAGO_OK &&
        j->own.role == PL_ROLE_NONE && j->own.key_len > 0 &&
        memcmp(j->own.fingerprint, token->fingerprint, sizeof token->fingerprint) == 0)
        return PELAGO_OK;
    j->own = (struct pl_credentials){.role = PL_ROLE_NONE};
    PL_TRY(pl_pki_new_key(&j->own, err));
    memcpy(j->own.fingerprint, token->fingerprint, sizeof j->own.fingerprint);
    return pl_home_save_credentials(j->dir, joining_name, &j->own, err);
}

static enum pelago_status enrol(struct pl_join *j, const struct pl_token *token, struct pl_error *err)
{
    struct attempts a = {.begin_ns = pl_clock_ns()};
    const struct pl_dir dir = pl_posix_dir_table(j->dir);
    int64_t skew_s = 0;
    enum pelago_status st;
    PL_TRY(choose_key(j, token, err));
    do
        st = pl_door_enrol(j->alloc, token, j->role, j->shard, TRY_NS, &j->own, &skew_s, err);
    while (st != PELAGO_OK && again(j, &a, st, err));
    PL_TRY(st);
    PL_TRY(pl_home_save_credentials(j->dir, "credentials", &j->own, err));
    (void)dir.ops->remove(dir.self, joining_name);
    if (j->role == PL_ROLE_LEARNER)
        say(j, "enrolled as learner %lu", j->own.identity);
    uint64_t apart_s = (uint64_t)llabs((long long)skew_s);
    if (apart_s > SKEW_S)
        say(j, "this machine's clock is %lu seconds %s the syncer's; it does not matter here", apart_s,
            skew_s > 0 ? "ahead of" : "behind");
    return PELAGO_OK;
}

/* Where the folder's credentials may be used for what is wanted. */
static enum pelago_status check_own(const struct pl_join *j, const struct pl_token *token,
                                    struct pl_error *err)
{
    if (j->own.role != j->role || (j->role == PL_ROLE_SHARD && j->own.shard != j->shard))
        return pl_fail(err, PELAGO_INVALID, "%s belongs to somebody else of the run: give another --dir",
                       j->folder);
    if (token != NULL && memcmp(token->fingerprint, j->own.fingerprint, sizeof token->fingerprint) != 0)
        return pl_fail(err, PELAGO_INVALID,
                       "%s belongs to another run than the token: give another --dir, or leave --join out",
                       j->folder);
    return PELAGO_OK;
}

/* Whoever is killed later goes on with the same data. */
static enum pelago_status choose_data(struct pl_join *j, struct pl_error *err)
{
    return j->role == PL_ROLE_LEARNER
               ? pl_data_choice_make(&j->choice, j->dir, j->alloc, j->data, j->local_data, err)
               : PELAGO_OK;
}

/* Data first: a folder that is somebody remembers what was said. */
static enum pelago_status become_somebody(struct pl_join *j, const struct pl_token *token,
                                          struct pl_error *err)
{
    enum pelago_status st = pl_home_load_credentials(j->dir, "credentials", j->alloc, &j->own, err);
    if (st == PELAGO_NOTFOUND && token == NULL)
        return pl_fail(
            err, PELAGO_INVALID,
            "%s has not taken part in a run yet: --join TOKEN is needed, which pelago invite makes",
            j->folder);
    if (st == PELAGO_NOTFOUND) {
        PL_TRY(choose_data(j, err));
        return enrol(j, token, err);
    }
    PL_TRY(st);
    PL_TRY(check_own(j, token, err));
    return choose_data(j, err);
}

/* Where home is: who starts us says it anew, or a token does; the folder remembers. */
static enum pelago_status find_home(struct pl_join *j, const struct pl_token *token, struct pl_error *err)
{
    /* The file is called as the option is; in a shard's folder `address` is its own. */
    const char *name = j->role == PL_ROLE_SHARD ? "home" : "address";
    const char *told = j->address != NULL ? j->address : token != NULL ? token->address : NULL;
    if (told != NULL) {
        (void)pl_fmt(j->home, sizeof j->home, "%s", told);
        return pl_home_write(j->dir, name, (struct pl_bytes){j->home, strlen(j->home)}, false, err);
    }
    enum pelago_status st = pl_home_read_address(j->dir, j->alloc, name, j->home, err);
    if (st == PELAGO_NOTFOUND || st == PELAGO_CORRUPT)
        return pl_fail(err, PELAGO_NOTFOUND,
                       "%s does not say where the syncer is: start once with --%s HOST:PORT", j->folder,
                       name);
    return st;
}

/* ---- what the run is ---- */

static enum pelago_status ask(struct pl_join *j, enum pl_ask what, struct pl_buf *out, struct pl_error *err)
{
    const struct pl_question q = {.what = what};
    struct attempts a = {.begin_ns = pl_clock_ns()};
    enum pelago_status st;
    do {
        out->len = 0;
        st = pl_door_ask(j->alloc, j->home, &j->own, &q, TRY_NS, out, err);
    } while (st != PELAGO_OK && again(j, &a, st, err));
    return st;
}

static enum pelago_status get_settings(struct pl_join *j, struct pl_error *err)
{
    struct pl_buf text;
    enum pelago_status st = pl_home_load_settings(j->dir, j->alloc, &j->settings, &j->settings_digest, err);
    if (st != PELAGO_NOTFOUND)
        return st;
    pl_buf_init(&text, j->alloc, PL_CHUNK_BYTES_MAX);
    st = ask(j, PL_ASK_SETTINGS, &text, err);
    if (st == PELAGO_OK) /* only what can be read is kept */
        st = pl_settings_parse((const char *)text.data, text.len, &j->settings, err);
    if (st == PELAGO_OK)
        st = pl_home_write(j->dir, "settings.json", (struct pl_bytes){text.data, text.len}, false, err);
    pl_buf_release(&text);
    PL_TRY(st);
    return pl_home_load_settings(j->dir, j->alloc, &j->settings, &j->settings_digest, err);
}

enum pelago_status pl_join(struct pl_join *j, struct pl_error *err)
{
    struct pl_token parsed, *token = NULL;
    if (j->token != NULL) {
        PL_TRY(pl_token_parse(j->token, &parsed, err));
        token = &parsed;
    }
    PL_TRY(become_somebody(j, token, err));
    PL_TRY(find_home(j, token, err));
    return get_settings(j, err);
}

/* A folder whose credentials are of another run than the token's is for pl_join to refuse. */
static bool was_complete(struct pl_join *j)
{
    struct pl_buf text;
    struct pl_token token;
    struct pl_credentials own;
    pl_buf_init(&text, j->alloc, COMPLETE_BYTES_MAX);
    bool complete = pl_home_read(j->dir, complete_name, &text, NULL) == PELAGO_OK;
    pl_buf_release(&text);
    if (!complete || j->token == NULL)
        return complete;
    complete = pl_token_parse(j->token, &token, NULL) == PELAGO_OK &&
               pl_home_load_credentials(j->dir, "credentials", j->alloc, &own, NULL) == PELAGO_OK &&
               memcmp(token.fingerprint, own.fingerprint, sizeof own.fingerprint) == 0;
    memset(&own, 0, sizeof own);
    return complete;
}

enum pelago_status pl_join_folder(struct pl_join *j, struct pl_error *err)
{
    PL_TRY(pl_posix_dir_open(&j->dir, j->alloc, j->folder,
                             j->token != NULL ? PL_POSIX_DIR_CREATE : PL_POSIX_DIR_EXISTING, err));
    enum pelago_status st = pl_posix_dir_lock(j->dir, j->folder, "--dir", err);
    if (st == PELAGO_OK) {
        j->complete = was_complete(j);
        st = j->complete ? PELAGO_OK : pl_join(j, err);
    }
    pl_posix_dir_close(j->dir);
    j->dir = NULL;
    return st;
}

enum pelago_status pl_join_note_complete(const struct pl_alloc *alloc, const char *folder,
                                         struct pl_error *err)
{
    static const uint8_t over[] = "the run is complete\n";
    struct pl_posix_dir *dir;
    PL_TRY(pl_posix_dir_open(&dir, alloc, folder, PL_POSIX_DIR_EXISTING, err));
    enum pelago_status st =
        pl_home_write(dir, complete_name, (struct pl_bytes){over, sizeof over - 1}, false, err);
    pl_posix_dir_close(dir);
    return st;
}

enum pelago_status pl_join_tokenizer(struct pl_join *j, struct pl_buf *out, struct pl_error *err)
{
    uint64_t digest = j->settings.tokenizer_digest;
    if (digest == 0)
        return PELAGO_OK;
    enum pelago_status st = pl_home_read(j->dir, "tokenizer.json", out, err);
    if (st == PELAGO_OK && pl_hash64(out->data, out->len, 0) == digest)
        return PELAGO_OK;
    if (st != PELAGO_OK && st != PELAGO_NOTFOUND)
        return st;
    PL_TRY(ask(j, PL_ASK_TOKENIZER, out, err));
    if (pl_hash64(out->data, out->len, 0) != digest)
        return pl_fail(err, PELAGO_CORRUPT, "the syncer's tokenizer is not the one its settings name");
    return pl_home_write(j->dir, "tokenizer.json", (struct pl_bytes){out->data, out->len}, false, err);
}
