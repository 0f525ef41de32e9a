/* cmd/options.h - one table of options per command: it reads the command line and prints the help page.
 *
 *     uint32_t threads = 0;
 *     bool json = false;
 *     const struct pl_option table[] = {
 *         {"threads", "N", "threads to use (default: all)", PL_OPTION_U32, &threads, 1, 256},
 *         {"json", NULL, "print JSON", PL_OPTION_FLAG, &json, 0, 0},
 *     };
 *     const struct pl_options o = {"eval", "[OPTION...] FOLDER", "measures the loss of a model", table, 2};
 *     struct pl_words words;
 *     int code;
 *     if (!pl_options_parse(&o, argc, argv, &words, &code))
 *         return code;
 *
 * Options and words may be mixed; "--name value" and "--name=value" are the same; what follows "--" is words. An option
 * given twice takes its last value. --help and -h are there by themselves.
 */
#ifndef PL_CMD_OPTIONS_H
#define PL_CMD_OPTIONS_H

#include "base/status.h"
#include "conf/conf.h"

#include <stdbool.h>
#include <stdint.h>

/* What `into` points to. */
enum pl_option_kind {
    PL_OPTION_FLAG = 1, /* bool, set to true */
    PL_OPTION_TEXT,     /* const char *, not empty */
    PL_OPTION_ANY_TEXT, /* const char *, perhaps empty */
    PL_OPTION_U32,      /* uint32_t */
    PL_OPTION_U64,      /* uint64_t */
    PL_OPTION_COUNT,    /* uint64_t; 5k, 1.5M and 2G mean thousands, millions and billions */
    PL_OPTION_FLOAT,    /* double, finite */
    PL_OPTION_TIME,     /* uint64_t nanoseconds; 250ms, 2s, 24h */
    PL_OPTION_RATE,     /* uint64_t bytes a second; 20Mbit, 500kbit, 2MB */
    PL_OPTION_LIST,     /* const char *, not empty: values with commas between them; a list in a file */
};

struct pl_option {
    const char *name;  /* without the dashes */
    const char *value; /* as the help page calls it; NULL for a flag */
    const char *help;  /* a line without capital and stop */
    enum pl_option_kind kind;
    void *into;        /* untouched when the option is not given: put the default there */
    uint64_t min, max; /* of U32, U64, COUNT, TIME and RATE; max 0: whatever fits */
};

struct pl_options {
    const char *command; /* what stands after "pelago": "data encode" */
    const char *usage;   /* what stands after that: "[OPTION...] TEXT..." */
    const char *about;   /* sentences for the help page; lines end in \n, the last one does not */
    const struct pl_option *table;
    uint32_t count;
};

/* The words that are no options, in order; they lie in the argv given. */
struct pl_words {
    char **at;
    uint32_t count;
};

/* Reads argv[1] and what follows. True: go on. False: *exit_code is to be returned; a page of help or one sentence about the
 * problem was printed. */
bool pl_options_parse(const struct pl_options *o, int argc, char **argv, struct pl_words *words,
                      int *exit_code);
void pl_options_help(const struct pl_options *o);
/* Help is asked for anywhere before "--", whatever else is wrong. */
bool pl_options_asks_help(int argc, char **argv);

/* The same for a command whose table has an option named "config" (TEXT): the file it names is read first, its keys being
 * the names of the options, and what the command line says goes over it. Texts of the file lie in *conf, which the caller
 * releases at the end, whatever came of it. */
bool pl_options_parse_with_file(const struct pl_options *o, struct pl_conf *conf, int argc, char **argv,
                                struct pl_words *words, int *exit_code);

/* Reads a value into option->into. before: what stands before the option's name in sentences, "--" on a command line.
 * INVALID with a sentence that says what was expected. */
enum pelago_status pl_option_set(const struct pl_option *option, const char *before, const char *value,
                                 struct pl_error *err);
const struct pl_option *pl_options_find(const struct pl_options *o, const char *name,
                                        size_t len); /* NULL: none */

/* One sentence on stderr, "pelago COMMAND: " before and "." after it. The first returns PL_EXIT_USAGE, the second
 * PL_EXIT_FAILED. err->text may end in a stop or not. */
int pl_usage_error(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));
int pl_failure(const char *command, const struct pl_error *err);
int pl_refusal(const char *command,
               const struct pl_error *err); /* as pl_failure, but it was asked wrongly: PL_EXIT_USAGE */

#endif
