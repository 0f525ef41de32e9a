/* host/home.h - the small files a syncer or a learner keeps in its folder, each written whole or not at all.
 *
 *   settings.json     the run (host/settings.h)
 *   tokenizer.json    its tokenizer, where it has one
 *   credentials       who we are (net/pki.h); only the owner may read it
 *   joining           while enrolling: the key that asks (join.c); only the owner may read it
 *   authority         home shard only: the authority's key; only the owner may read it
 *   address           one line: where the home shard listens, as learners dial it
 *   origin            syncers: digests of version 0 (syncer_origin.c)
 *   heard             syncers: when each learner was heard last (syncer_heard.c)
 *   lives             syncers: what this folder has lived through (syncer_mirror.c)
 *   invitations.json  home shard only: open invitations and the next identity
 *   data              learners only: what to train on, where somebody has said so (data_choice.h)
 *   complete          learners only: the syncer said that the run is over
 */
#ifndef PL_HOST_HOME_H
#define PL_HOST_HOME_H

#include "base/buf.h"
#include "host/settings.h"
#include "net/address.h"
#include "net/pki.h"
#include "os/dir_posix.h"

/* NOTFOUND where there is no such file; a sentence names file and folder for everything else. secret: mode 0600. */
enum pelago_status pl_home_write(struct pl_posix_dir *dir, const char *name, struct pl_bytes bytes,
                                 bool secret, struct pl_error *err);
enum pelago_status pl_home_read(struct pl_posix_dir *dir, const char *name, struct pl_buf *out,
                                struct pl_error *err);

/* The address in a file of one line. CORRUPT where it says none: it is empty, cut off or damaged. */
enum pelago_status pl_home_read_address(struct pl_posix_dir *dir, const struct pl_alloc *alloc,
                                        const char *name, char out[static PL_ADDRESS_MAX],
                                        struct pl_error *err);

enum pelago_status pl_home_save_credentials(struct pl_posix_dir *dir, const char *name,
                                            const struct pl_credentials *c, struct pl_error *err);
enum pelago_status pl_home_load_credentials(struct pl_posix_dir *dir, const char *name,
                                            const struct pl_alloc *alloc, struct pl_credentials *c,
                                            struct pl_error *err);
enum pelago_status pl_home_load_settings(struct pl_posix_dir *dir, const struct pl_alloc *alloc,
                                         struct pl_settings *s, uint64_t *digest, struct pl_error *err);

#endif
