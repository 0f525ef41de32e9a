/* cmd/run_children.h - the processes of `pelago run`: started, watched, started again.
 *
 * A child is one `pelago ...` with a log file of its own. One that is killed is started again at once; one that leaves by
 * itself soon after its start, several times in a row, cannot work, and its own last sentence says why. Nobody outlives this
 * process: the kernel kills children whose parent is gone.
 */
#ifndef PL_CMD_RUN_CHILDREN_H
#define PL_CMD_RUN_CHILDREN_H

#include "base/status.h"
#include "os/dir_posix.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { PL_CHILD_WORDS_MAX = 40 };

enum pl_child_state {
    PL_CHILD_IDLE = 0, /* not started */
    PL_CHILD_RUNNING,
    PL_CHILD_WAITING, /* dead, and started again at again_ns */
    PL_CHILD_DONE,    /* left with 0, or was told to leave */
    PL_CHILD_FAILED,  /* cannot work */
};

struct pl_child {
    char name[24];                        /* "learner-3" */
    const char *argv[PL_CHILD_WORDS_MAX]; /* "pelago", ...; NULL at the end; borrowed */
    char log[PL_PATH_MAX];
    int out; /* -1: stdout goes to the log, too; else a pipe's end, which is the caller's */
    enum pl_child_state state;
    pid_t pid;
    uint64_t started_ns, again_ns;
    uint32_t starts, kills, quick_deaths; /* kills: ended by SIGKILL; quick: in a row, by themselves */
    int status;                           /* of the last end, as waitpid gives it */
    bool told;                            /* to leave */
};

/* Adds a word; false: there are too many. The pointers must stay. */
bool pl_child_word(struct pl_child *c, const char *word);
/* program: the path to execute. On failure the sentence says why. */
enum pelago_status pl_child_start(struct pl_child *c, const char *program, uint64_t now_ns,
                                  struct pl_error *err);
/* Looks whether it has ended, and decides what follows. True: it has; state says what comes. */
bool pl_child_reap(struct pl_child *c, uint64_t now_ns);
/* What follows from an end with this status; the part of reap that decides. */
void pl_child_ended(struct pl_child *c, int status, uint64_t now_ns);
/* Sends a signal to one that runs; remembers that it was told to leave. */
void pl_child_tell(struct pl_child *c, int number);

/* "was killed (signal 9)", "left with 1" */
struct pl_child_text {
    char at[64];
};
struct pl_child_text pl_child_why(int status);

/* The last sentence of its log that begins with "pelago "; false: there is none. */
bool pl_child_last_words(const struct pl_child *c, char *out, size_t cap);

#endif
