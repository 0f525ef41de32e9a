/* host/home.c - see home.h. */
#include "host/home.h"

#include "base/check.h"
#include "base/fmt.h"
#include "base/hash.h"
#include "train/files.h"

#include <string.h>

static const char settings_name[] = "settings.json";

static enum pelago_status put(struct pl_posix_dir *posix, const char *name, struct pl_bytes bytes,
                              bool secret, struct pl_error *err)
{
    struct pl_dir dir = pl_posix_dir_table(posix);
    char temporary[PL_FILE_NAME_MAX];
    pl_assert(strlen(name) + sizeof ".new" <= sizeof temporary);
    (void)pl_fmt(temporary, sizeof temporary, "%s.new", name);
    if (secret)
        PL_TRY(pl_posix_dir_make_secret(posix, temporary));
    PL_TRY(pl_files_write(dir, temporary, bytes, err));
    PL_TRY(dir.ops->rename(dir.self, temporary, name));
    return dir.ops->sync_dir(dir.self);
}

enum pelago_status pl_home_write(struct pl_posix_dir *dir, const char *name, struct pl_bytes bytes,
                                 bool secret, struct pl_error *err)
{
    enum pelago_status st = put(dir, name, bytes, secret, err);
    if (st == PELAGO_OK)
        return st;
    return pl_fail(err, st, "the file %s cannot be written: %s%s", name, pl_posix_dir_reason(dir),
                   pl_posix_dir_advice(dir));
}

enum pelago_status pl_home_read(struct pl_posix_dir *dir, const char *name, struct pl_buf *out,
                                struct pl_error *err)
{
    return pl_files_read(pl_posix_dir_table(dir), name, out, err);
}

static enum pelago_status take_address(const struct pl_buf *text, char out[static PL_ADDRESS_MAX],
                                       struct pl_error *err)
{
    struct pl_address parts;
    pl_assert(text->len < PL_ADDRESS_MAX);
    if (text->len == 0 || memchr(text->data, 0, text->len) != NULL)
        return pl_fail(err, PELAGO_CORRUPT, "it is empty or has zeros in it");
    memcpy(out, text->data, text->len);
    out[text->len] = '\0';
    out[strcspn(out, "\r\n")] = '\0';
    return pl_address_parse(out, &parts, err) == PELAGO_OK ? PELAGO_OK : PELAGO_CORRUPT;
}

enum pelago_status pl_home_read_address(struct pl_posix_dir *dir, const struct pl_alloc *alloc,
                                        const char *name, char out[static PL_ADDRESS_MAX],
                                        struct pl_error *err)
{
    struct pl_buf text;
    pl_buf_init(&text, alloc, PL_ADDRESS_MAX - 1);
    enum pelago_status st = pl_home_read(dir, name, &text, err);
    if (st == PELAGO_OK)
        st = take_address(&text, out, err);
    pl_buf_release(&text);
    return st == PELAGO_LIMIT ? PELAGO_CORRUPT : st;
}

enum pelago_status pl_home_save_credentials(struct pl_posix_dir *dir, const char *name,
                                            const struct pl_credentials *c, struct pl_error *err)
{
    uint8_t bytes[sizeof *c + 256];
    pl_assert(pl_credentials_bytes_max() <= sizeof bytes);
    size_t len = pl_credentials_encode(c, bytes, sizeof bytes);
    return pl_home_write(dir, name, (struct pl_bytes){bytes, len}, true, err);
}

enum pelago_status pl_home_load_credentials(struct pl_posix_dir *dir, const char *name,
                                            const struct pl_alloc *alloc, struct pl_credentials *c,
                                            struct pl_error *err)
{
    struct pl_buf bytes;
    pl_buf_init(&bytes, alloc, pl_credentials_bytes_max());
    enum pelago_status st = pl_home_read(dir, name, &bytes, err);
    if (st == PELAGO_OK)
        st = pl_credentials_decode(c, bytes.data, bytes.len, err);
    pl_buf_release(&bytes);
    return st;
}

enum pelago_status pl_home_load_settings(struct pl_posix_dir *dir, const struct pl_alloc *alloc,
                                         struct pl_settings *s, uint64_t *digest, struct pl_error *err)
{
    struct pl_buf text;
    pl_buf_init(&text, alloc, PL_JSON_BYTES_MAX);
    enum pelago_status st = pl_home_read(dir, settings_name, &text, err);
    if (st == PELAGO_OK)
        st = pl_settings_parse((const char *)text.data, text.len, s, err);
    if (st == PELAGO_OK && digest != NULL)
        *digest = pl_hash64(text.data, text.len, 0);
    pl_buf_release(&text);
    return st;
}
