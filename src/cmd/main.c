/* cmd/main.c - one program, one table of subcommands. */
#include "cmd/cmd.h"

#include <stdio.h>
#include <string.h>

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
    {"sim", pl_cmd_sim, "the protocol in a simulated world, by seed; pelago sim --help says more"},
    {"version", cmd_version, "which pelago this is"},
    {"help", cmd_help, "this page"},
};

static int cmd_help(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    printf("usage: pelago COMMAND [OPTION...]\n\n");
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        printf("  %-10s %s\n", commands[i].name, commands[i].help);
    return PL_EXIT_OK;
}

int main(int argc, char **argv)
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
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(commands[i].name, name) == 0)
            return commands[i].main(argc - 1, argv + 1);
    fprintf(stderr, "pelago: there is no command '%s'; 'pelago help' lists them.\n", name);
    return PL_EXIT_USAGE;
}
