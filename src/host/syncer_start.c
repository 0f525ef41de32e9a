/* host/syncer_start.c - a new run, and a shard's way from its folder to the moment it listens. See syncer_host.h.
 *
 * Everything that can be wrong with folder, port or disk is found here, before the loop runs, with a sentence.
 */
#include "host/syncer_host_int.h"

#include "base/check.h"
#include "base/fmt.h"
#include "base/hash.h"
#include "base/num.h"
#include "host/serve.h"
#include "os/clock.h"
#include "os/folder.h"

#include <string.h>

enum { LEARNERS_DEFAULT = 256, CONNS_PER_LEARNER = 4, CONNS_EXTRA = 64 };
static const uint64_t own_validity_s = UINT64_C(365) * 86400; /* on the authority's own disk */

/* ---- a new run ---- */

/* A certificate for ourselves, from our own authority. */
static enum pelago_status certify(const struct pl_credentials *ca, struct pl_credentials *c,
                                  const struct pl_grant *grant, struct pl_error *err)
{
    uint8_t request[PL_CERTIFICATE_BYTES_MAX], certificate[PL_CERTIFICATE_BYTES_MAX];
    uint32_t request_len, len;
    memcpy(c->fingerprint, ca->fingerprint, sizeof c->fingerprint);
    memcpy(c->authority, ca->certificate, ca->certificate_len);
    c->authority_len = ca->certificate_len;
    c->run_id = ca->run_id;
    PL_TRY(pl_pki_request(c, request, sizeof request, &request_len, err));
    PL_TRY(pl_pki_issue(ca, request, request_len, grant, certificate, sizeof certificate, &len, err));
    return pl_pki_accept(c, certificate, len, err);
}

/* Identities count from 1 for those who enrol; these two are beside them. */
static const struct pl_grant shard_grant = {.role = PL_ROLE_SHARD, .identity = PL_COUNT_MAX, .shard = 0};
static const struct pl_grant operator_grant = {.role = PL_ROLE_OPERATOR, .identity = PL_COUNT_MAX - 1};

static enum pelago_status new_member(struct pl_posix_dir *dir, const struct pl_credentials *ca,
                                     const char *name, struct pl_grant grant, struct pl_error *err)
{
    struct pl_credentials c = {.role = PL_ROLE_NONE};
    grant.seconds = own_validity_s;
    PL_TRY(pl_pki_new_key(&c, err));
    PL_TRY(certify(ca, &c, &grant, err));
    return pl_home_save_credentials(dir, name, &c, err);
}

static enum pelago_status fill_folder(struct pl_posix_dir *dir, const struct pl_alloc *alloc,
                                      const struct pl_settings *settings, struct pl_bytes tokenizer,
                                      struct pl_error *err)
{
    struct pl_credentials ca = {.role = PL_ROLE_NONE};
    struct pl_buf text;
    pl_buf_init(&text, alloc, PL_JSON_BYTES_MAX);
    enum pelago_status st = pl_settings_print(settings, &text);
    if (st == PELAGO_OK)
        st = pl_home_write(dir, "settings.json", (struct pl_bytes){text.data, text.len}, false, err);
    else
        (void)pl_fail(err, st, "there is no memory for the settings");
    pl_buf_release(&text);
    PL_TRY(st);
    if (tokenizer.len > 0)
        PL_TRY(pl_home_write(dir, "tokenizer.json", tokenizer, false, err));
    PL_TRY(pl_pki_new_authority(&ca, settings->run_id, err));
    PL_TRY(pl_home_save_credentials(dir, "authority", &ca, err));
    PL_TRY(new_member(dir, &ca, "credentials", shard_grant, err));
    PL_TRY(new_member(dir, &ca, "operator", operator_grant, err));
    return pl_door_keeper_create(dir, alloc, err);
}

enum pelago_status pl_syncer_host_create(const struct pl_alloc *alloc, const char *folder,
                                         const struct pl_settings *settings, struct pl_bytes tokenizer,
                                         struct pl_error *err)
{
    struct pl_folder f;
    PL_TRY(pl_settings_check(settings, err));
    PL_TRY(pl_folder_begin(&f, alloc, folder, err));
    enum pelago_status st = fill_folder(f.dir, alloc, settings, tokenizer, err);
    if (st != PELAGO_OK) {
        pl_folder_abandon(&f);
        return st;
    }
    return pl_folder_commit(&f, err);
}

/* ---- the folder ---- */

static enum pelago_status open_folders(struct pl_syncer_host *h, struct pl_error *err)
{
    if (strlen(h->o.folder) >= sizeof h->folder ||
        (h->o.mirror != NULL && strlen(h->o.mirror) >= sizeof h->mirror_path))
        return pl_fail(err, PELAGO_LIMIT, "the path of the folder or the mirror is too long");
    (void)pl_fmt(h->folder, sizeof h->folder, "%s", h->o.folder);
    PL_TRY(pl_posix_dir_open(&h->dir, &h->alloc, h->folder, PL_POSIX_DIR_EXISTING, err));
    PL_TRY(pl_posix_dir_lock(h->dir, h->folder, "--dir", err));
    PL_TRY(pl_posix_dir_open(&h->journal_dir, &h->alloc, h->folder, PL_POSIX_DIR_EXISTING, err));
    if (h->o.mirror == NULL)
        return PELAGO_OK;
    (void)pl_fmt(h->mirror_path, sizeof h->mirror_path, "%s", h->o.mirror);
    PL_TRY(pl_posix_dir_open(&h->mirror_home, &h->alloc, h->mirror_path, PL_POSIX_DIR_CREATE, err));
    PL_TRY(pl_posix_dir_lock(h->mirror_home, h->mirror_path, "--mirror", err));
    return pl_posix_dir_open(&h->mirror_dir, &h->alloc, h->mirror_path, PL_POSIX_DIR_CREATE, err);
}

static bool has_file(struct pl_posix_dir *dir, const char *name)
{
    struct pl_dir table = pl_posix_dir_table(dir);
    struct pl_file *file;
    if (table.ops->open(table.self, name, PL_FILE_READ, &file) != PELAGO_OK)
        return false;
    table.ops->close(table.self, file);
    return true;
}

/* Learners and the final model get it from here: one that is damaged would be found when everything is trained. */
static enum pelago_status check_tokenizer(struct pl_syncer_host *h, struct pl_error *err)
{
    struct pl_buf text;
    if (h->settings.tokenizer_digest == 0)
        return PELAGO_OK;
    pl_buf_init(&text, &h->alloc, PL_JSON_BYTES_MAX);
    enum pelago_status st = pl_home_read(h->dir, "tokenizer.json", &text, err);
    if (st == PELAGO_NOTFOUND ||
        (st == PELAGO_OK && pl_hash64(text.data, text.len, 0) != h->settings.tokenizer_digest))
        st =
            pl_fail(err, PELAGO_CORRUPT,
                    "tokenizer.json in %s is not the one the run began with: put that back, from a learner's "
                    "or the mirror's folder",
                    h->folder);
    pl_buf_release(&text);
    return st;
}

static enum pelago_status load_folder(struct pl_syncer_host *h, struct pl_error *err)
{
    PL_TRY(open_folders(h, err));
    PL_TRY(pl_home_load_settings(h->dir, &h->alloc, &h->settings, &h->settings_digest, err));
    PL_TRY(pl_home_load_credentials(h->dir, "credentials", &h->alloc, &h->own, err));
    if (h->own.run_id != h->settings.run_id)
        return pl_fail(err, PELAGO_INVALID, "the credentials in %s are of another run", h->folder);
    if (h->own.role == PL_ROLE_LEARNER)
        return pl_fail(err, PELAGO_INVALID, "%s is a learner's folder: give another --dir", h->folder);
    if (h->own.role != PL_ROLE_SHARD || h->own.shard != h->o.shard)
        return pl_fail(err, PELAGO_INVALID, "the credentials in %s are not those of shard %u", h->folder,
                       h->o.shard);
    h->creating = !has_file(h->dir, "address");
    return h->o.shard == 0 ? check_tokenizer(h, err) : PELAGO_OK;
}

/* ---- the core ---- */

static enum pelago_status build_core(struct pl_syncer_host *h, struct pl_error *err)
{
    uint32_t learners = h->o.learners_max != 0 ? h->o.learners_max : LEARNERS_DEFAULT;
    learners = pl_min32(pl_max32(learners, h->settings.quorum), PL_LEARNERS_MAX);
    PL_TRY(pl_layout_init(&h->layout, &h->alloc, &h->settings, err));
    PL_TRY(pl_layout_manifest(&h->layout, &h->settings, &h->manifest, err));
    h->options = (struct pl_sync_options){.manifest = &h->manifest.msg,
                                          .manifest_digest = h->manifest.digest,
                                          .shard = h->o.shard,
                                          .learners_max = learners,
                                          .conns_max = CONNS_PER_LEARNER * learners + CONNS_EXTRA};
    PL_TRY(pl_shost_values_init(h, err));
    pl_work_queue_init(&h->merge_queue, h->o.loop);
    if (h->o.threads > 1)
        h->pool = pl_pool_new(&h->alloc, pl_min32(h->o.threads, PL_POOL_THREADS_MAX)); /* NULL: one thread */
    h->claim_fragments = h->fragment_count;
    h->memory_bytes = pl_syncer_bytes(&h->options);
    h->memory = pl_alloc_zero(&h->alloc, 1, h->memory_bytes);
    h->fxs.max = pl_syncer_effects_max(&h->options);
    h->fxs.fx = pl_alloc_zero(&h->alloc, h->fxs.max, sizeof *h->fxs.fx);
    h->conns = pl_alloc_zero(&h->alloc, h->options.conns_max, sizeof *h->conns);
    h->members = pl_alloc_zero(&h->alloc, learners, sizeof *h->members);
    h->standings = pl_alloc_zero(&h->alloc, learners, sizeof *h->standings);
    h->guard_steps = pl_alloc_zero(&h->alloc, learners, sizeof *h->guard_steps);
    h->claims = pl_alloc_zero(&h->alloc, (size_t)learners * h->fragment_count, sizeof *h->claims);
    if (h->memory == NULL || h->fxs.fx == NULL || h->conns == NULL || h->members == NULL ||
        h->claims == NULL || h->guard_steps == NULL || h->standings == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for %u learners; ask for fewer", learners);
    for (uint32_t i = 0; i < learners; i++)
        h->members[i].claims = h->claims + (size_t)i * h->fragment_count;
    h->core = pl_syncer_init(h->memory, h->memory_bytes, &h->options);
    return PELAGO_OK;
}

/* ---- the address ---- */

static enum pelago_status write_address(struct pl_syncer_host *h, struct pl_error *err)
{
    char line[PL_ADDRESS_MAX + 2];
    size_t len = pl_fmt(line, sizeof line, "%s\n", h->address);
    return pl_home_write(h->dir, "address", (struct pl_bytes){line, len}, false, err);
}

/* ---- the door ---- */

static enum pelago_status door_status(void *user, bool all, struct pl_buf *out)
{
    return pl_syncer_host_status(user, all, out);
}

static void door_finish(void *user)
{
    pl_shost_step(user, &(struct pl_sync_event){.kind = PL_SYNC_EV_FINISH});
}

static void door_answered(void *user, void *who, bool good)
{
    (void)user;
    pl_visitor_answered(who, good);
}

static void door_idle(void *user)
{
    pl_shost_stop_check(user);
}

static void door_log(void *user, const char *line)
{
    pl_shost_log(user, "%s", line);
}

/* Our own certificates are renewed by ourselves, long before they end. */
static enum pelago_status renew_own(struct pl_syncer_host *h, const struct pl_credentials *ca,
                                    struct pl_error *err)
{
    if (pl_pki_seconds_left(&h->own) > own_validity_s / 2)
        return PELAGO_OK;
    PL_TRY(new_member(h->dir, ca, "credentials", shard_grant, err));
    PL_TRY(new_member(h->dir, ca, "operator", operator_grant, err));
    return pl_home_load_credentials(h->dir, "credentials", &h->alloc, &h->own, err);
}

/* The list may be older than the journal, in a copy. */
static void meet_known(struct pl_syncer_host *h)
{
    struct pl_learner_view one;
    for (uint32_t i = 0; i < h->options.learners_max; i++)
        if (pl_syncer_view_learner(h->core, i, &one))
            pl_door_keeper_met(h->door, one.identity);
}

static enum pelago_status open_door(struct pl_syncer_host *h, struct pl_error *err)
{
    struct pl_credentials ca;
    PL_TRY(pl_home_load_credentials(h->dir, "authority", &h->alloc, &ca, err));
    PL_TRY(renew_own(h, &ca, err));
    PL_TRY(pl_posix_dir_open(&h->door_dir, &h->alloc, h->folder, PL_POSIX_DIR_EXISTING, err));
    const struct pl_door_options o = {.loop = h->o.loop,
                                      .alloc = &h->alloc,
                                      .dir = h->dir,
                                      .list_dir = h->door_dir,
                                      .mirror = h->mirror_home,
                                      .ca = &ca,
                                      .address = h->address,
                                      .shards = h->settings.shards,
                                      .host = {.status = door_status,
                                               .finish = door_finish,
                                               .answered = door_answered,
                                               .idle = door_idle,
                                               .log = door_log,
                                               .user = h}};
    PL_TRY(pl_door_keeper_new(&h->door, &o, err));
    meet_known(h);
    return PELAGO_OK;
}

/* ---- start ---- */

static void allow_files(struct pl_syncer_host *h)
{
    struct pl_error err;
    if (pl_serve_files(h->options.conns_max, &err) != PELAGO_OK)
        pl_shost_log(h, "syncer.files %s", err.text);
}

/* Since the beginning of 2026: names this life apart from one that a restored copy of the folder knows nothing of. A clock
 * that goes back costs that, and no more. */
static uint64_t minutes(void)
{
    const uint64_t since_s = UINT64_C(1767225600), now_s = pl_date_s();
    return now_s > since_s ? (now_s - since_s) / 60 : 0;
}

static enum pelago_status begin(struct pl_syncer_host *h, struct pl_error *err)
{
    PL_TRY(load_folder(h, err));
    PL_TRY(pl_mirror_check(h, err));
    PL_TRY(build_core(h, err));
    PL_TRY(pl_heard_new(h, err));
    PL_TRY(pl_origin_tell(h, err));
    PL_TRY(pl_vault_new(h, err));
    allow_files(h);
    PL_TRY(pl_shost_listen(h, err));
    PL_TRY(pl_serve_address(h->o.advertise, h->o.listen, pl_listener_port(h->listener), h->address, err));
    PL_TRY(pl_serve_bound(h->o.listen, pl_listener_port(h->listener), h->bound, err));
    if (h->o.shard == 0)
        PL_TRY(open_door(h, err));
    else
        PL_TRY(pl_announcer_new(h, err));
    PL_TRY(write_address(h, err));
    PL_TRY(pl_mirror_copy(h, err));
    pl_trust_tell(h);
    pl_shost_step(h, &(struct pl_sync_event){.kind = PL_SYNC_EV_BOOT, .u.boot.epoch_least = minutes()});
    PL_TRY(pl_mirror_note_life(h, err)); /* nothing may fail once the vault is at work */
    PL_TRY(pl_vault_flush(h, err));
    pl_assert(h->listening);
    return PELAGO_OK;
}

enum pelago_status pl_syncer_host_start(struct pl_syncer_host **out, const struct pl_syncer_host_options *o,
                                        struct pl_error *err)
{
    struct pl_syncer_host *h = pl_alloc_zero(o->alloc, 1, sizeof *h);
    *out = NULL;
    if (h == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for a syncer");
    h->o = *o;
    h->alloc = *o->alloc;
    h->start_ns = h->last_now_ns = pl_clock_ns();
    h->start_s = pl_date_s();
    enum pelago_status st = begin(h, err);
    if (st != PELAGO_OK) {
        pl_listener_close(h->listener);
        pl_shost_free(h);
        return st;
    }
    if (h->recorder != NULL)
        pl_recorder_flush(h->recorder); /* whoever is killed in the first second leaves a recording, too */
    pl_shost_start_timers(h);
    *out = h;
    return PELAGO_OK;
}
