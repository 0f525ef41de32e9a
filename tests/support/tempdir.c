/* tests/support/tempdir.c - see tempdir.h. */
#include "tempdir.h"

#include <dirent.h>
#include <ftw.h>
#include <stdarg.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

void tempdir_init(struct tempdir *t)
{
    const char *base = getenv("TMPDIR");
    (void)snprintf(t->path, sizeof t->path, "%s/pelago-test-XXXXXX", base != NULL ? base : "/tmp");
    assert_non_null(mkdtemp(t->path));
}

static int remove_one(const char *path, const struct stat *info, int flag, struct FTW *ftw)
{
    (void)info;
    (void)flag;
    (void)ftw;
    return remove(path);
}

void tempdir_release(struct tempdir *t)
{
    assert_int_equal(nftw(t->path, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

const char *tempdir_path(const struct tempdir *t, const char *name)
{
    static char paths[8][512];
    static unsigned next;
    char *path = paths[next++ % 8];
    (void)snprintf(path, sizeof paths[0], "%s/%s", t->path, name);
    return path;
}

void tempdir_put(const struct tempdir *t, const char *name, const void *bytes, size_t len)
{
    FILE *f = fopen(tempdir_path(t, name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

unsigned tempdir_count(const struct tempdir *t)
{
    unsigned count = 0;
    DIR *d = opendir(t->path);
    assert_non_null(d);
    for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d))
        count += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(d);
    return count;
}
