/* cmd/unfinished.c - see unfinished.h. What the handler calls may be called in one: no allocation, no streams. */
#include "cmd/unfinished.h"

#include "base/check.h"
#include "base/fmt.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { NUMBERS = 3, ATTEMPTS = 100 };
static const int numbers[NUMBERS] = {SIGINT, SIGTERM, SIGHUP};

/* Written while the signals do as before. */
static struct {
    char path[PL_PATH_MAX + 16], gone[PL_PATH_MAX + 16];
    bool is_folder;
    struct sigaction before[NUMBERS];
} unfinished;

static void remove_files(const char *folder)
{
    _Alignas(struct dirent64) char entries[4096];
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ssize_t len;
    while (fd >= 0 && (len = getdents64(fd, entries, sizeof entries)) > 0)
        for (ssize_t at = 0; at < len;) {
            const struct dirent64 *e = (const void *)(entries + at);
            (void)unlinkat(fd, e->d_name, 0);
            at += e->d_reclen;
        }
    if (fd >= 0)
        (void)close(fd);
}

/* Another thread may be at the commit, or still make files: the folder is taken out of its way first, at once or not at all,
 * so that one with its final name never lacks any. */
static void remove_folder(void)
{
    if (rename(unfinished.path, unfinished.gone) != 0)
        return;
    for (int i = 0; i < ATTEMPTS; i++) {
        remove_files(unfinished.gone);
        if (rmdir(unfinished.gone) == 0)
            return;
    }
}

static void on_signal(int number)
{
    if (unfinished.is_folder)
        remove_folder();
    else
        (void)unlink(unfinished.path);
    _exit(128 + number);
}

static void listen(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    (void)sigemptyset(&action.sa_mask);
    for (unsigned i = 0; i < NUMBERS; i++)
        (void)sigaddset(&action.sa_mask, numbers[i]);
    for (unsigned i = 0; i < NUMBERS; i++)
        if (sigaction(numbers[i], NULL, &unfinished.before[i]) == 0 &&
            unfinished.before[i].sa_handler != SIG_IGN)
            (void)sigaction(numbers[i], &action, NULL);
}

static void begin(const char *path, const char *end, bool is_folder)
{
    pl_assert(unfinished.path[0] == '\0');
    if (strlen(path) >= PL_PATH_MAX)
        return; /* opening it is going to fail */
    pl_fmt(unfinished.path, sizeof unfinished.path, "%s%s", path, end);
    pl_fmt(unfinished.gone, sizeof unfinished.gone, "%s.gone", unfinished.path);
    unfinished.is_folder = is_folder;
    listen();
}

void pl_unfinished_file(const char *path)
{
    begin(path, ".tmp", false);
}

void pl_unfinished_folder(const struct pl_folder *f)
{
    begin(f->partial, "", true);
}

void pl_unfinished_end(void)
{
    if (unfinished.path[0] == '\0')
        return;
    for (unsigned i = 0; i < NUMBERS; i++)
        (void)sigaction(numbers[i], &unfinished.before[i], NULL);
    unfinished.path[0] = '\0';
}
