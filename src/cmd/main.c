/* cmd/main.c - one program, one table of subcommands. */
#include "cmd/cmd.h"
#include "cmd/text.h"
#include "host/devices.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct command {
    const char *name;
    int (*main)(int argc, char **argv);
    const char *help;
};

static int cmd_help(int argc, char **argv);

static int cmd_version(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    printf("pelago %s\n", PL_VERSION);
    return PL_EXIT_OK;
}

static const struct command commands[] = {
    {"train", pl_cmd_train, "train a model on this machine; pelago train --help says more"},
    {"run", pl_cmd_run, "a cluster on this machine, watched, ending with a report"},
    {"syncer", pl_cmd_syncer, "merges what learners learn; begins a run or goes on with one"},
    {"learner", pl_cmd_learner, "takes part in a run; a token is all it needs"},
    {"invite", pl_cmd_invite, "a token for the next learner"},
    {"status", pl_cmd_status, "what a run is doing now"},
    {"top", pl_cmd_top, "the same as a live screen"},
    {"eval", pl_cmd_eval, "the loss of a model, and its score on multiple choice"},
    {"sample", pl_cmd_sample, "text that a model goes on with"},
    {"sim", pl_cmd_sim, "the protocol in a simulated world, by seed; see pelago sim --help"},
    {"plan", pl_cmd_plan, "what to expect of a run over several sites, and how to set it"},
    {"data", pl_cmd_data, "tokenizers and token files"},
    {"export", pl_cmd_export, "a checkpoint as a Hugging Face folder"},
    {"import", pl_cmd_import, "a Hugging Face folder as a checkpoint"},
    {"inspect", pl_cmd_inspect, "what a checkpoint or a safetensors file holds, and if it is whole"},
    {"replay", pl_cmd_replay, "the recorded events of a syncer, stepped again"},
    {"chaos", pl_cmd_chaos, "breaks a run on purpose: by a plan, rates or a recorded trace"},
    {"bench", pl_cmd_bench, "how fast this machine is"},
    {"version", cmd_version, "which pelago this is"},
    {"help", cmd_help, "this page"},
};

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    fprintf(stderr, "pelago: there is no command '%s'; 'pelago help' lists them.\n", pl_text_clip(name).at);
    return NULL;
}

/* "pelago help sim" is "pelago sim --help". */
static int cmd_help(int argc, char **argv)
{
    char help[] = "--help";
    char *about[] = {argc > 1 ? argv[1] : NULL, help, NULL};
    const struct command *command = argc > 1 ? find_command(argv[1]) : NULL;
    if (argc > 1 && command == NULL)
        return PL_EXIT_USAGE;
    if (command != NULL && command->main != cmd_help)
        return command->main(2, about);
    printf("usage: pelago COMMAND [OPTION...]\n\n");
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        printf("  %-10s %s\n", commands[i].name, commands[i].help);
    return PL_EXIT_OK;
}

static int run_command(int argc, char **argv)
{
    if (argc < 2) {
        cmd_help(argc, argv);
        return PL_EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--version") == 0)
        name = "version";
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        name = "help";
    const struct command *command = find_command(name);
    return command != NULL ? command->main(argc - 1, argv + 1) : PL_EXIT_USAGE;
}

/* Where a standard stream is closed, no file or pipe of ours may take its place: it is empty, and refuses every write. */
static void occupy_streams(void)
{
    for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; stream++) {
        if (fcntl(stream, F_GETFD) >= 0)
            continue;
        int fd = open("/dev/null", O_RDONLY);
        if (fd >= 0 && fd != stream) {
            (void)dup2(fd, stream);
            (void)close(fd);
        }
    }
}

int main(int argc, char **argv)
{
    occupy_streams();
    (void)signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes is then an error like a full disk */
    pl_devices_offer();
    int code = run_command(argc, argv);
    bool before = ferror(stdout) != 0;
    if (fflush(stdout) == 0 && !before)
        return code;
    fprintf(stderr, "pelago: the output could not be written%s%s.\n", before ? "" : ": ",
            before ? "" : strerror(errno));
    return PL_EXIT_FAILED;
}
