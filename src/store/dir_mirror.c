/* store/dir_mirror.c - see dir_mirror.h. */
#include "store/dir_mirror.h"

#include "base/check.h"
#include "base/fmt.h"
#include "base/num.h"

#include <string.h>

/* ---- the table ---- */

static struct pl_mirror_file *pair_of(struct pl_file *file)
{
    return (struct pl_mirror_file *)(void *)file;
}

static enum pelago_status mirror_open(void *self, const char *name, enum pl_file_mode mode,
                                      struct pl_file **out)
{
    struct pl_dir_mirror *m = self;
    struct pl_mirror_file *f = NULL;
    *out = NULL;
    for (uint32_t i = 0; i < PL_MIRROR_FILES_MAX && f == NULL; i++)
        f = m->files[i].used ? NULL : &m->files[i];
    pl_assert(f != NULL);
    *f = (struct pl_mirror_file){.used = false};
    PL_TRY(m->first.ops->open(m->first.self, name, mode, &f->first));
    if (mode == PL_FILE_CREATE) {
        enum pelago_status st = m->second.ops->open(m->second.self, name, mode, &f->second);
        if (st != PELAGO_OK) {
            m->first.ops->close(m->first.self, f->first);
            return st;
        }
    }
    f->used = true;
    *out = (struct pl_file *)(void *)f;
    return PELAGO_OK;
}

static void mirror_close(void *self, struct pl_file *file)
{
    struct pl_dir_mirror *m = self;
    struct pl_mirror_file *f = pair_of(file);
    pl_assert(f->used);
    m->first.ops->close(m->first.self, f->first);
    if (f->second != NULL)
        m->second.ops->close(m->second.self, f->second);
    *f = (struct pl_mirror_file){.used = false};
}

static enum pelago_status mirror_read_at(void *self, struct pl_file *file, uint64_t offset, void *into,
                                         size_t len)
{
    struct pl_dir_mirror *m = self;
    return m->first.ops->read_at(m->first.self, pair_of(file)->first, offset, into, len);
}

static enum pelago_status mirror_write_at(void *self, struct pl_file *file, uint64_t offset,
                                          const struct pl_bytes *parts, size_t count)
{
    struct pl_dir_mirror *m = self;
    struct pl_mirror_file *f = pair_of(file);
    pl_assert(f->second != NULL);
    PL_TRY(m->first.ops->write_at(m->first.self, f->first, offset, parts, count));
    return m->second.ops->write_at(m->second.self, f->second, offset, parts, count);
}

/* The second first: what the first one has durable, and may come back after a crash, the second has too. */
static enum pelago_status mirror_sync(void *self, struct pl_file *file)
{
    struct pl_dir_mirror *m = self;
    struct pl_mirror_file *f = pair_of(file);
    if (f->second != NULL)
        PL_TRY(m->second.ops->sync(m->second.self, f->second));
    return m->first.ops->sync(m->first.self, f->first);
}

static enum pelago_status mirror_size(void *self, struct pl_file *file, uint64_t *bytes)
{
    struct pl_dir_mirror *m = self;
    return m->first.ops->size(m->first.self, pair_of(file)->first, bytes);
}

static enum pelago_status mirror_truncate(void *self, struct pl_file *file, uint64_t bytes)
{
    struct pl_dir_mirror *m = self;
    struct pl_mirror_file *f = pair_of(file);
    pl_assert(f->second != NULL);
    PL_TRY(m->first.ops->truncate(m->first.self, f->first, bytes));
    return m->second.ops->truncate(m->second.self, f->second, bytes);
}

static enum pelago_status mirror_rename(void *self, const char *from, const char *to)
{
    struct pl_dir_mirror *m = self;
    PL_TRY(m->second.ops->rename(m->second.self, from, to));
    return m->first.ops->rename(m->first.self, from, to);
}

/* What is gone from the second already was removed when the first one failed. */
static enum pelago_status mirror_remove(void *self, const char *name)
{
    struct pl_dir_mirror *m = self;
    enum pelago_status st = m->second.ops->remove(m->second.self, name);
    if (st != PELAGO_OK && st != PELAGO_NOTFOUND)
        return st;
    return m->first.ops->remove(m->first.self, name);
}

static enum pelago_status mirror_list(void *self, pl_file_name_fn *fn, void *user)
{
    struct pl_dir_mirror *m = self;
    return m->first.ops->list(m->first.self, fn, user);
}

static enum pelago_status mirror_sync_dir(void *self)
{
    struct pl_dir_mirror *m = self;
    PL_TRY(m->second.ops->sync_dir(m->second.self));
    return m->first.ops->sync_dir(m->first.self);
}

static const struct pl_file_ops mirror_ops = {
    .open = mirror_open,
    .close = mirror_close,
    .read_at = mirror_read_at,
    .write_at = mirror_write_at,
    .sync = mirror_sync,
    .size = mirror_size,
    .truncate = mirror_truncate,
    .rename = mirror_rename,
    .remove = mirror_remove,
    .list = mirror_list,
    .sync_dir = mirror_sync_dir,
};

void pl_dir_mirror_init(struct pl_dir_mirror *m, struct pl_dir first, struct pl_dir second)
{
    *m = (struct pl_dir_mirror){.first = first, .second = second};
}

struct pl_dir pl_dir_mirror_table(struct pl_dir_mirror *m)
{
    return (struct pl_dir){&mirror_ops, m};
}

/* ---- filling ---- */

struct fill {
    struct pl_dir first, second;
    pl_mirror_name_fn *about;
    uint8_t *a, *b; /* [half] */
    size_t half;
    struct pl_error *err;
    char found[PL_FILE_NAME_MAX]; /* a name only the second has */
    char stem[PL_FILE_NAME_MAX];  /* of a staged one: its name to be */
};
static const char staged_end[] = ".new";

static enum pelago_status read_some(struct pl_dir d, struct pl_file *f, uint64_t at, void *into, size_t n)
{
    return d.ops->read_at(d.self, f, at, into, n);
}

/* Both have the file; same size, same bytes? */
static enum pelago_status compare(struct fill *x, struct pl_file *f, struct pl_file *g, bool *equal)
{
    uint64_t size, other;
    *equal = false;
    PL_TRY(x->first.ops->size(x->first.self, f, &size));
    PL_TRY(x->second.ops->size(x->second.self, g, &other));
    if (size != other)
        return PELAGO_OK;
    for (uint64_t at = 0; at < size; at += x->half) {
        size_t n = (size_t)pl_min64(x->half, size - at);
        PL_TRY(read_some(x->first, f, at, x->a, n));
        PL_TRY(read_some(x->second, g, at, x->b, n));
        if (memcmp(x->a, x->b, n) != 0)
            return PELAGO_OK;
    }
    *equal = true;
    return PELAGO_OK;
}

static enum pelago_status copy(struct fill *x, struct pl_file *f, struct pl_file *g)
{
    uint64_t size;
    PL_TRY(x->first.ops->size(x->first.self, f, &size));
    for (uint64_t at = 0; at < size; at += x->half) {
        size_t n = (size_t)pl_min64(x->half, size - at);
        PL_TRY(read_some(x->first, f, at, x->a, n));
        PL_TRY(x->second.ops->write_at(x->second.self, g, at, &(struct pl_bytes){x->a, n}, 1));
    }
    return x->second.ops->sync(x->second.self, g);
}

static enum pelago_status is_equal(struct fill *x, struct pl_file *f, const char *name, bool *equal)
{
    struct pl_file *g;
    enum pelago_status st = x->second.ops->open(x->second.self, name, PL_FILE_READ, &g);
    *equal = false;
    if (st == PELAGO_NOTFOUND)
        return PELAGO_OK;
    PL_TRY(st);
    st = compare(x, f, g, equal);
    x->second.ops->close(x->second.self, g);
    return st;
}

/* At most PL_FILE_NAME_MAX: longer names are nobody's business here. */
static size_t length(const char *name)
{
    size_t len = 0;
    while (len < PL_FILE_NAME_MAX && name[len] != '\0')
        len++;
    return len;
}

/* Under another name, until all of them are there. */
static enum pelago_status stage(struct fill *x, struct pl_file *f, const char *name)
{
    char staged[PL_FILE_NAME_MAX];
    struct pl_file *g;
    pl_assert(length(name) + sizeof staged_end <= sizeof staged);
    (void)pl_fmt(staged, sizeof staged, "%s%s", name, staged_end);
    PL_TRY(x->second.ops->open(x->second.self, staged, PL_FILE_CREATE, &g));
    enum pelago_status st = copy(x, f, g);
    x->second.ops->close(x->second.self, g);
    return st;
}

static enum pelago_status stage_one(void *user, const char *name)
{
    struct fill *x = user;
    struct pl_file *f;
    bool equal;
    if (!x->about(name))
        return PELAGO_OK;
    enum pelago_status st = x->first.ops->open(x->first.self, name, PL_FILE_READ, &f);
    if (st == PELAGO_OK) {
        st = is_equal(x, f, name, &equal);
        if (st == PELAGO_OK && !equal)
            st = stage(x, f, name);
        x->first.ops->close(x->first.self, f);
    }
    return st == PELAGO_OK
               ? st
               : pl_fail(x->err, st, "%s cannot be copied into the mirror: %s", name, pl_status_text(st));
}

/* Remembers the first staged name, by the order of names, and what it stands for. */
static enum pelago_status see_staged(void *user, const char *name)
{
    struct fill *x = user;
    char stem[PL_FILE_NAME_MAX] = "";
    size_t len = length(name), end = sizeof staged_end - 1;
    if (len <= end || len >= sizeof stem || memcmp(name + len - end, staged_end, end) != 0)
        return PELAGO_OK;
    memcpy(stem, name, len - end);
    if (x->about(stem) && (x->stem[0] == '\0' || memcmp(stem, x->stem, sizeof stem) < 0)) {
        (void)pl_fmt(x->found, sizeof x->found, "%s", name);
        memcpy(x->stem, stem, sizeof stem);
    }
    return PELAGO_OK;
}

static enum pelago_status find_staged(struct fill *x, bool *any)
{
    x->stem[0] = '\0';
    enum pelago_status st = x->second.ops->list(x->second.self, see_staged, x);
    *any = st == PELAGO_OK && x->stem[0] != '\0';
    return st == PELAGO_OK ? st : pl_fail(x->err, st, "the mirror cannot be listed");
}

/* What somebody who died in the middle of this left behind. */
static enum pelago_status remove_staged(struct fill *x)
{
    bool any;
    PL_TRY(find_staged(x, &any));
    while (any) {
        enum pelago_status st = x->second.ops->remove(x->second.self, x->found);
        if (st != PELAGO_OK)
            return pl_fail(x->err, st, "%s cannot be removed from the mirror: %s", x->found,
                           pl_status_text(st));
        PL_TRY(find_staged(x, &any));
    }
    return PELAGO_OK;
}

static enum pelago_status sync_second(struct fill *x)
{
    enum pelago_status st = x->second.ops->sync_dir(x->second.self);
    return st == PELAGO_OK ? st : pl_fail(x->err, st, "the mirror cannot be synced: %s", pl_status_text(st));
}

/* By the order of names: whoever dies here leaves longer journals behind, not gaps, as long as they follow one another. */
static enum pelago_status unveil(struct fill *x)
{
    bool any;
    PL_TRY(find_staged(x, &any));
    while (any) {
        enum pelago_status st = x->second.ops->rename(x->second.self, x->found, x->stem);
        if (st != PELAGO_OK)
            return pl_fail(x->err, st, "%s cannot get its name in the mirror: %s", x->stem,
                           pl_status_text(st));
        PL_TRY(find_staged(x, &any));
    }
    return sync_second(x);
}

/* Stops (STALE) at a file that the first directory does not have. */
static enum pelago_status find_extra(void *user, const char *name)
{
    struct fill *x = user;
    struct pl_file *f;
    if (!x->about(name))
        return PELAGO_OK;
    enum pelago_status st = x->first.ops->open(x->first.self, name, PL_FILE_READ, &f);
    if (st == PELAGO_OK)
        x->first.ops->close(x->first.self, f);
    if (st != PELAGO_NOTFOUND)
        return st;
    (void)pl_fmt(x->found, sizeof x->found, "%s", name);
    return PELAGO_STALE;
}

static enum pelago_status remove_extras(struct fill *x)
{
    enum pelago_status st;
    while ((st = x->second.ops->list(x->second.self, find_extra, x)) == PELAGO_STALE) {
        st = x->second.ops->remove(x->second.self, x->found);
        if (st != PELAGO_OK)
            return pl_fail(x->err, st, "%s cannot be removed from the mirror: %s", x->found,
                           pl_status_text(st));
    }
    if (st != PELAGO_OK)
        return pl_fail(x->err, st, "the mirror cannot be listed");
    return sync_second(x);
}

enum pelago_status pl_dir_mirror_fill(struct pl_dir first, struct pl_dir second, pl_mirror_name_fn *about,
                                      void *scratch, size_t scratch_bytes, struct pl_error *err)
{
    pl_assert(scratch_bytes >= 2);
    struct fill x = {.first = first, .second = second, .about = about, .err = err};
    x.half = scratch_bytes / 2;
    x.a = scratch;
    x.b = x.a + x.half;
    PL_TRY(remove_staged(&x));
    PL_TRY(first.ops->list(first.self, stage_one, &x));
    PL_TRY(unveil(&x));
    return remove_extras(&x);
}
