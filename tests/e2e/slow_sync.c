/* tests/e2e/slow_sync.c - preloaded, it makes a disk that takes long: files whose name has PELAGO_SLOW_NAME in it are synced
 * only once the file PELAGO_SLOW_UNTIL is there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int fsync(int fd)
{
    const struct timespec pause = {.tv_nsec = 10000000};
    const char *name = getenv("PELAGO_SLOW_NAME"), *until = getenv("PELAGO_SLOW_UNTIL");
    char link[64], path[4096];
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof path - 1);
    path[len > 0 ? len : 0] = '\0';
    while (name != NULL && until != NULL && strstr(path, name) != NULL && access(until, F_OK) != 0)
        (void)nanosleep(&pause, NULL);
    return (int)syscall(SYS_fsync, fd);
}
