/* cmd/run_children.c - see run_children.h. */
#include "cmd/run_children.h"

#include "base/check.h"
#include "base/num.h"
#include "cmd/text.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { QUICK_DEATHS_MAX = 5, LOG_TAIL_BYTES = 8192 };
static const uint64_t quick_ns = 5 * PL_SEC, backoff_ns = 100 * PL_MS, backoff_max_ns = 2 * PL_SEC;

bool pl_child_word(struct pl_child *c, const char *word)
{
    unsigned i = 0;
    while (c->argv[i] != NULL)
        i++;
    if (i + 1 >= PL_CHILD_WORDS_MAX)
        return false;
    c->argv[i] = word;
    return true;
}

/* ---- starting ---- */

/* Between fork and exec: only calls that are safe there. */
static _Noreturn void become(const struct pl_child *c, const char *program, int log, int nothing,
                             pid_t parent)
{
    sigset_t none;
    char *words[PL_CHILD_WORDS_MAX]; /* execv changes none of them, though its type does not say so */
    memcpy(words, c->argv, sizeof words);
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)signal(SIGPIPE, SIG_DFL);
    /* A stopped process would not heed a milder signal, and the journal does not mind this one. */
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    (void)setpgid(0, 0); /* Ctrl-C is for the parent, which tells everybody in turn */
    (void)dup2(nothing, STDIN_FILENO);
    (void)dup2(c->out >= 0 ? c->out : log, STDOUT_FILENO);
    (void)dup2(log, STDERR_FILENO);
    (void)execv(program, words);
    _exit(127);
}

enum pelago_status pl_child_start(struct pl_child *c, const char *program, uint64_t now_ns,
                                  struct pl_error *err)
{
    pid_t parent = getpid();
    pl_assert(c->state != PL_CHILD_RUNNING && c->argv[0] != NULL);
    int log = open(c->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (log < 0)
        return pl_fail(err, PELAGO_IO, "the log %s cannot be written: %s", pl_text_clip(c->log).at,
                       strerror(errno));
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    pid_t pid = nothing >= 0 ? fork() : -1;
    if (pid == 0)
        become(c, program, log, nothing, parent);
    int code = errno;
    (void)close(log);
    if (nothing >= 0)
        (void)close(nothing);
    if (pid < 0)
        return pl_fail(err, PELAGO_IO, "%s cannot be started: %s", c->name, strerror(code));
    c->pid = pid;
    c->state = PL_CHILD_RUNNING;
    c->started_ns = now_ns;
    c->starts++;
    return PELAGO_OK;
}

/* ---- ending ---- */

void pl_child_ended(struct pl_child *c, int status, uint64_t now_ns)
{
    bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    bool quick = !killed && now_ns - c->started_ns < quick_ns;
    c->status = status;
    c->pid = 0;
    c->kills += killed ? 1 : 0;
    c->quick_deaths = quick ? c->quick_deaths + 1 : 0;
    c->again_ns = now_ns;
    if (c->told || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) {
        c->state = PL_CHILD_DONE;
    } else if (c->quick_deaths >= QUICK_DEATHS_MAX || (WIFEXITED(status) && WEXITSTATUS(status) == 2)) {
        c->state = PL_CHILD_FAILED; /* 2: it was asked wrongly, and will be again */
    } else {
        c->state = PL_CHILD_WAITING;
        if (c->quick_deaths > 0)
            c->again_ns += pl_min64(backoff_ns << (c->quick_deaths - 1), backoff_max_ns);
    }
}

bool pl_child_reap(struct pl_child *c, uint64_t now_ns)
{
    int status;
    if (c->state != PL_CHILD_RUNNING || waitpid(c->pid, &status, WNOHANG) != c->pid)
        return false;
    pl_child_ended(c, status, now_ns);
    return true;
}

void pl_child_tell(struct pl_child *c, int number)
{
    c->told = true;
    if (c->state == PL_CHILD_RUNNING)
        (void)kill(c->pid, number);
    else if (c->state == PL_CHILD_WAITING)
        c->state = PL_CHILD_DONE;
}

struct pl_child_text pl_child_why(int status)
{
    struct pl_child_text t;
    if (WIFSIGNALED(status))
        (void)snprintf(t.at, sizeof t.at, "was killed (signal %d)", WTERMSIG(status));
    else
        (void)snprintf(t.at, sizeof t.at, "left with %d", WEXITSTATUS(status));
    return t;
}

bool pl_child_last_words(const struct pl_child *c, char *out, size_t cap)
{
    static char tail[LOG_TAIL_BYTES + 1];
    int fd = open(c->log, O_RDONLY | O_CLOEXEC);
    off_t size = fd >= 0 ? lseek(fd, 0, SEEK_END) : 0;
    off_t from = size > LOG_TAIL_BYTES ? size - LOG_TAIL_BYTES : 0;
    ssize_t n = fd >= 0 ? pread(fd, tail, LOG_TAIL_BYTES, from) : -1;
    if (fd >= 0)
        (void)close(fd);
    tail[n > 0 ? n : 0] = '\0';
    const char *found = NULL;
    for (const char *line = tail; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n' ? 1 : 0;
        if (strncmp(line, "pelago ", 7) == 0 && strstr(line, ": ") != NULL)
            found = line;
        if (*line == '\0')
            break;
    }
    if (found == NULL)
        return false;
    (void)snprintf(out, cap, "%.*s", (int)strcspn(found, "\n"), found);
    pl_text_clean(out);
    return true;
}
