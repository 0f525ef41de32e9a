#include "os/plugin.h"

#include "base/fmt.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

/* The folder of this program, with the slash; empty where the system does not say. */
static void own_folder(char folder[static PATH_MAX])
{
    ssize_t n = readlink("/proc/self/exe", folder, PATH_MAX - 1);
    folder[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(folder, '/');
    if (slash != NULL)
        slash[1] = '\0';
}

/* The library of that path; *there says whether there is a file. */
static void *open_at(const char *path, bool *there)
{
    *there = access(path, F_OK) == 0;
    return *there ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
}

static void *open_library(const char *file, struct pl_error *err)
{
    static const char *const places[] = {"", "../lib/pelago/", NULL};
    char folder[PATH_MAX], path[2 * PATH_MAX];
    own_folder(folder);
    for (unsigned i = 0; folder[0] != '\0' && places[i] != NULL; i++) {
        bool there;
        (void)pl_fmt(path, sizeof path, "%s%s%s", folder, places[i], file);
        void *library = open_at(path, &there);
        if (there && library == NULL)
            (void)pl_fail(err, PELAGO_UNSUPPORTED, "%s could not be loaded: %s", path, dlerror());
        if (there)
            return library;
    }
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        (void)pl_fail(err, PELAGO_UNSUPPORTED,
                      "%s is not beside this program ('make cuda' builds it) and could not be loaded: %s",
                      file, dlerror());
    return library;
}

void *pl_plugin_open(const char *file, const char *symbol, struct pl_error *err)
{
    void *library = open_library(file, err);
    void *found = library != NULL ? dlsym(library, symbol) : NULL;
    if (library != NULL && found == NULL)
        (void)pl_fail(err, PELAGO_UNSUPPORTED, "%s has no %s: it belongs to something else", file, symbol);
    return found;
}
