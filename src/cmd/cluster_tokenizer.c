/* cmd/cluster_tokenizer.c - whether --tokenizer names what a run has already; see cluster_args.h.
 *
 * The option is a way to a tokenizer and not one itself: what it leads to is compared. One of characters
 * would have to be made of the whole data again, so there the kind is enough: the data is compared by its own
 * option.
 */
#include "cmd/cluster_args.h"

#include "base/hash.h"
#include "data/tokenizer_train.h"
#include "host/home.h"
#include "train/checkpoint.h"

#include <string.h>

/* It needs no text. */
static enum pelago_status make_bytes(struct pl_tokenizer **out, const struct pl_alloc *alloc,
                                     struct pl_error *err)
{
    struct pl_pool *pool = pl_pool_new(alloc, 1);
    struct pl_tokenizer_trainer *trainer =
        pool != NULL ? pl_tokenizer_trainer_new(alloc, pool, PL_TRAIN_BYTES, 0) : NULL;
    enum pelago_status st = trainer != NULL
                                ? pl_tokenizer_trainer_finish(trainer, out, err)
                                : pl_fail(err, PELAGO_NOMEM, "there is no memory for the tokenizer");
    pl_tokenizer_trainer_free(trainer);
    pl_pool_free(pool);
    return st;
}

/* The run's; NULL where the folder has none that can be read, as of a further shard. */
static struct pl_tokenizer *load_own(const struct pl_alloc *alloc, const char *folder)
{
    struct pl_posix_dir *dir = NULL;
    struct pl_tokenizer *own = NULL;
    struct pl_buf text;
    pl_buf_init(&text, alloc, PL_TOKENIZER_BYTES_MAX);
    if (pl_posix_dir_open(&dir, alloc, folder, PL_POSIX_DIR_EXISTING, NULL) == PELAGO_OK &&
        pl_home_read(dir, "tokenizer.json", &text, NULL) == PELAGO_OK)
        (void)pl_tokenizer_parse(&own, alloc, text.data, text.len, NULL);
    pl_posix_dir_close(dir);
    pl_buf_release(&text);
    return own;
}

/* The same text, or another one that means the same. */
static bool is_same(const struct pl_tokenizer *named, const struct pl_tokenizer *own, uint64_t digest)
{
    struct pl_bytes json = pl_tokenizer_json(named);
    return pl_hash64(json.data, json.len, 0) == digest ||
           (own != NULL && pl_tokenizer_digest(named) == pl_tokenizer_digest(own));
}

enum pelago_status pl_cluster_tokenizer_differs(const char *name, const char *folder, uint64_t digest,
                                                bool *differs, struct pl_error *err)
{
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_tokenizer *named = NULL;
    struct pl_error why;
    *differs = true;
    if (digest == 0)
        return PELAGO_OK;
    struct pl_tokenizer *own = load_own(&alloc, folder);
    enum pelago_status st = PELAGO_OK;
    if (strcmp(name, "char") == 0) {
        *differs = own != NULL && !pl_tokenizer_is_chars(own);
    } else {
        st = strcmp(name, "byte") == 0 ? make_bytes(&named, &alloc, &why)
                                       : pl_tokenizer_load(&named, &alloc, name, &why);
        *differs = st == PELAGO_OK && !is_same(named, own, digest);
    }
    pl_tokenizer_free(named);
    pl_tokenizer_free(own);
    return st == PELAGO_OK ? st
                           : pl_fail(err, st,
                                     "leave --tokenizer out to go on with the run in this folder: it cannot "
                                     "be compared with the run's: %s",
                                     why.text);
}
