#include "os/plugin.h"

#include "base/fmt.h"

#include <dlfcn.h>
#include <limits.h>
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

void *pl_plugin_open(const char *file, const char *symbol, struct pl_error *err)
{
    static const char *const places[] = {"", "../lib/pelago/", NULL};
    char folder[PATH_MAX], path[2 * PATH_MAX];
    void *library = NULL;
    own_folder(folder);
    for (unsigned i = 0; library == NULL && places[i] != NULL; i++) {
        (void)pl_fmt(path, sizeof path, "%s%s%s", folder, places[i], file);
        library = access(path, F_OK) == 0 ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
        if (library == NULL && access(path, F_OK) == 0) {
            (void)pl_fail(err, PELAGO_UNSUPPORTED, "%s could not be loaded: %s", path, dlerror());
            return NULL;
        }
    }
    if (library == NULL)
        library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    void *found = library != NULL ? dlsym(library, symbol) : NULL;
    if (found == NULL)
        (void)pl_fail(err, PELAGO_UNSUPPORTED, "there is no %s beside this program; 'make cuda' builds it",
                      file);
    return found;
}
