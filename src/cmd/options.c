/* cmd/options.c - see options.h. */
#include "cmd/options.h"

#include "base/check.h"
#include "base/limits.h"
#include "cmd/cmd.h"
#include "cmd/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- problems ---- */

int pl_usage_error(const char *command, const char *format, ...)
{
    va_list args;
    fprintf(stderr, "pelago %s: ", command);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputs(".\n", stderr);
    return PL_EXIT_USAGE;
}

int pl_failure(const char *command, const struct pl_error *err)
{
    char text[sizeof err->text];
    memcpy(text, err->text, sizeof text);
    pl_text_clean(text);
    size_t len = strlen(text);
    bool ended = len > 0 && (text[len - 1] == '.' || text[len - 1] == '?');
    fprintf(stderr, "pelago %s: %s%s\n", command, text, ended ? "" : ".");
    return PL_EXIT_FAILED;
}

int pl_refusal(const char *command, const struct pl_error *err)
{
    (void)pl_failure(command, err);
    return PL_EXIT_USAGE;
}

/* ---- values ---- */

/* "5k", "1.5M": as many digits after the point as keep the count whole. */
static bool read_count(const char *text, uint64_t *out)
{
    static const struct {
        char letter;
        uint64_t unit;
    } units[] = {{'k', 1000}, {'K', 1000}, {'M', 1000000}, {'G', 1000000000}};
    char digits[32];
    size_t len = strspn(text, "0123456789."), whole = strcspn(text, ".");
    uint64_t unit = 1, after = 0;
    if (len == 0 || len >= sizeof digits || whole == 0)
        return false;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (text[len] == units[i].letter && text[len + 1] == '\0')
            unit = units[i].unit;
    if (text[len] != '\0' && unit == 1)
        return false;
    memcpy(digits, text, len);
    digits[len] = '\0';
    if (whole < len) {
        after = len - whole - 1;
        memmove(digits + whole, digits + whole + 1, after + 1);
        if (after == 0)
            return false;
    }
    if (!pl_text_number(digits, out))
        return false;
    for (; after > 0; after--) {
        if (unit == 1)
            return false;
        unit /= 10;
    }
    return !__builtin_mul_overflow(*out, unit, out);
}

static bool read_float(const char *text, double *out)
{
    char *end;
    if (strspn(text, "+-.0123456789eE") != strlen(text))
        return false;
    *out = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(*out);
}

/* "20Mbit", "2MB": a whole number and a unit, a second. */
static bool read_rate(const char *text, uint64_t *out)
{
    static const struct {
        const char *name;
        uint64_t bits;
    } units[] = {{"kbit", 1000}, {"Mbit", 1000000}, {"Gbit", 1000000000},
                 {"kB", 8000},   {"MB", 8000000},   {"GB", 8000000000}};
    char digits[24];
    size_t len = strspn(text, "0123456789");
    if (len == 0 || len >= sizeof digits)
        return false;
    memcpy(digits, text, len);
    digits[len] = '\0';
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strcmp(text + len, units[i].name) == 0) {
            uint64_t bits;
            bool good = pl_text_number(digits, &bits) && !__builtin_mul_overflow(bits, units[i].bits, &bits);
            *out = good ? bits / 8 : 0;
            return good;
        }
    return false;
}

static bool read_whole(enum pl_option_kind kind, const char *text, uint64_t *out)
{
    if (kind == PL_OPTION_COUNT)
        return read_count(text, out);
    if (kind == PL_OPTION_TIME)
        return pl_text_time(text, out);
    if (kind == PL_OPTION_RATE)
        return read_rate(text, out);
    return pl_text_number(text, out) && (kind == PL_OPTION_U64 || *out <= UINT32_MAX);
}

static const char *expectation(enum pl_option_kind kind)
{
    if (kind == PL_OPTION_COUNT)
        return "a count such as 4096, 5k or 1.5M";
    if (kind == PL_OPTION_TIME)
        return "a time such as 250ms, 2s or 24h";
    if (kind == PL_OPTION_RATE)
        return "a rate such as 500kbit, 20Mbit or 2MB";
    if (kind == PL_OPTION_FLOAT)
        return "a number such as 0.1 or 3e-4";
    return kind == PL_OPTION_FLAG ? "true or false" : "a whole number";
}

static struct pl_text text_of_whole(enum pl_option_kind kind, uint64_t v)
{
    struct pl_text t;
    if (kind == PL_OPTION_TIME)
        return pl_text_of_time(v);
    (void)snprintf(t.at, sizeof t.at, "%" PRIu64 "%s", v, kind == PL_OPTION_RATE ? " bytes a second" : "");
    return t;
}

/* A limit that nobody meets is no help to a person; it is told only to whoever is above it. */
static bool tells_max(const struct pl_option *option, uint64_t v)
{
    return option->max > 0 && (option->max < PL_COUNT_MAX || v > option->max);
}

static enum pelago_status bad_value(const struct pl_option *option, const char *before, const char *value,
                                    struct pl_error *err)
{
    struct pl_text min = text_of_whole(option->kind, option->min);
    struct pl_text max = text_of_whole(option->kind, option->max);
    bool upto = tells_max(option, 0);
    return pl_fail(err, PELAGO_INVALID, "%s%s is '%s', expected %s%s%s%s%s", before, option->name,
                   pl_text_clip(value).at, expectation(option->kind),
                   upto              ? ", from "
                   : option->min > 0 ? ", at least "
                                     : "",
                   upto || option->min > 0 ? min.at : "", upto ? " to " : "", upto ? max.at : "");
}

static enum pelago_status set_whole(const struct pl_option *option, const char *before, const char *value,
                                    struct pl_error *err)
{
    uint64_t v;
    if (!read_whole(option->kind, value, &v))
        return bad_value(option, before, value, err);
    if (v < option->min || (option->max > 0 && v > option->max)) {
        struct pl_text min = text_of_whole(option->kind, option->min);
        struct pl_text max = text_of_whole(option->kind, option->max);
        bool upto = tells_max(option, v);
        return pl_fail(err, PELAGO_INVALID, "%s%s is %s, expected %s%s%s%s", before, option->name,
                       pl_text_clip(value).at, upto ? "" : "at least ", min.at, upto ? " to " : "",
                       upto ? max.at : "");
    }
    if (option->kind == PL_OPTION_U32)
        *(uint32_t *)option->into = (uint32_t)v;
    else
        *(uint64_t *)option->into = v;
    return PELAGO_OK;
}

/* Of a file: the command line's flags have no value. */
static enum pelago_status set_flag(const struct pl_option *option, const char *before, const char *value,
                                   struct pl_error *err)
{
    bool yes = strcmp(value, "true") == 0;
    if (!yes && strcmp(value, "false") != 0)
        return bad_value(option, before, value, err);
    *(bool *)option->into = yes;
    return PELAGO_OK;
}

enum pelago_status pl_option_set(const struct pl_option *option, const char *before, const char *value,
                                 struct pl_error *err)
{
    if (value == NULL || (value[0] == '\0' && option->kind != PL_OPTION_ANY_TEXT))
        return pl_fail(err, PELAGO_INVALID, "%s%s needs a value", before, option->name);
    switch (option->kind) {
    case PL_OPTION_TEXT:
    case PL_OPTION_ANY_TEXT:
    case PL_OPTION_LIST:
        *(const char **)option->into = value;
        return PELAGO_OK;
    case PL_OPTION_FLOAT:
        return read_float(value, option->into) ? PELAGO_OK : bad_value(option, before, value, err);
    case PL_OPTION_U32:
    case PL_OPTION_U64:
    case PL_OPTION_COUNT:
    case PL_OPTION_TIME:
    case PL_OPTION_RATE:
        return set_whole(option, before, value, err);
    case PL_OPTION_FLAG:
        return set_flag(option, before, value, err);
    }
    pl_assert_failed("an option has a kind", __FILE__, __LINE__);
}

/* ---- the command line ---- */

const struct pl_option *pl_options_find(const struct pl_options *o, const char *name, size_t len)
{
    for (uint32_t i = 0; i < o->count; i++)
        if (strlen(o->table[i].name) == len && strncmp(o->table[i].name, name, len) == 0)
            return &o->table[i];
    return NULL;
}

/* One word that begins with a dash, and the one after it (NULL at the end). *took: that one was its value. 0, or the exit
 * code after saying what is wrong. */
static int set_option(const struct pl_options *o, const char *word, const char *next, bool *took)
{
    bool is_long = word[1] == '-';
    const char *name = word + (is_long ? 2 : 1);
    size_t len = strcspn(name, "=");
    const char *joined = name[len] == '=' ? name + len + 1 : NULL;
    const struct pl_option *option = is_long ? pl_options_find(o, name, len) : NULL;
    *took = false;
    if (option == NULL)
        return pl_usage_error(o->command, "there is no option %s; see pelago %s --help",
                              pl_text_clip(word).at, o->command);
    pl_assert((option->value == NULL) == (option->kind == PL_OPTION_FLAG));
    if (option->kind != PL_OPTION_FLAG) {
        struct pl_error err;
        *took = joined == NULL;
        if (pl_option_set(option, "--", joined != NULL ? joined : next, &err) != PELAGO_OK)
            return pl_usage_error(o->command, "%s", err.text);
        return PL_EXIT_OK;
    }
    if (joined != NULL)
        return pl_usage_error(o->command, "--%s takes no value", option->name);
    *(bool *)option->into = true;
    return PL_EXIT_OK;
}

bool pl_options_asks_help(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    return false;
}

bool pl_options_parse(const struct pl_options *o, int argc, char **argv, struct pl_words *words,
                      int *exit_code)
{
    bool only_words = false;
    *words = (struct pl_words){argv + (argc > 0 ? 1 : 0), 0};
    *exit_code = PL_EXIT_OK;
    if (pl_options_asks_help(argc, argv)) {
        pl_options_help(o);
        return false;
    }
    for (int i = 1; i < argc; i++) {
        char *word = argv[i];
        bool took;
        if (!only_words && strcmp(word, "--") == 0) {
            only_words = true;
            continue;
        }
        if (only_words || word[0] != '-' || word[1] == '\0') {
            words->at[words->count++] = word;
            continue;
        }
        *exit_code = set_option(o, word, i + 1 < argc ? argv[i + 1] : NULL, &took);
        if (*exit_code != PL_EXIT_OK)
            return false;
        i += took ? 1 : 0;
    }
    return true;
}

enum { HELP_COLS = 80 };

/* The words of one line after those that stand in the line already; returns how wide that is then. */
static size_t fill(const char *words, size_t len, size_t used)
{
    while (len > 0) {
        size_t word = 0;
        while (word < len && words[word] != ' ')
            word++;
        if (word > 0 && used > 0 && used + 1 + word > HELP_COLS) {
            printf("\n");
            used = 0;
        }
        if (word > 0) {
            printf("%s%.*s", used > 0 ? " " : "", (int)word, words);
            used += word + (used > 0 ? 1 : 0);
        }
        word += word < len ? 1 : 0;
        words += word;
        len -= word;
    }
    return used;
}

/* Where the words of a line end that has so many columns; a word that is wider than that is whole. */
static size_t line_end(const char *line, size_t cols)
{
    size_t end = cols;
    while (end > 0 && line[end] != ' ')
        end--;
    return end > 0 ? end : strcspn(line, " \n");
}

/* A line to be copied that is too wide goes on in the next, as a shell takes it. */
static void help_copy(const char *line, size_t len)
{
    static const char on[] = " \\";
    size_t indent = strspn(line, " ");
    int deeper = (int)indent + 4;
    printf("%*s", (int)indent, "");
    for (line += indent, len -= indent; indent + len > HELP_COLS; indent = (size_t)deeper) {
        size_t end = line_end(line, HELP_COLS - indent - strlen(on));
        size_t next = end + strspn(line + end, " ");
        if (next >= len)
            break;
        printf("%.*s%s\n%*s", (int)end, line, on, deeper, "");
        line += next;
        len -= next;
    }
    printf("%.*s\n", (int)len, line);
}

/* Sentences are filled anew; indented lines are there to be copied and stay lines. */
static void help_text(const char *text)
{
    size_t used = 0;
    while (*text != '\0') {
        size_t end = strcspn(text, "\n");
        if (end == 0 || text[0] == ' ') {
            printf("%s", used > 0 ? "\n" : "");
            help_copy(text, end);
            used = 0;
        } else {
            used = fill(text, end, used);
        }
        text += end + (text[end] == '\n' ? 1 : 0);
    }
    if (used > 0)
        printf("\n");
}

/* What does not fit into its column, or into 80 columns, goes on in the next line. */
static void help_line(const char *left, const char *help)
{
    enum { LEFT = 22, RIGHT = HELP_COLS - 2 - LEFT - 1 };
    printf("  %-*s", (int)LEFT, left);
    if (strlen(left) > LEFT)
        printf("\n%*s", (int)LEFT + 2, "");
    while (strlen(help) > RIGHT) {
        size_t len = line_end(help, RIGHT);
        printf(" %.*s\n%*s", (int)len, help, (int)LEFT + 2, "");
        help += len + strspn(help + len, " ");
    }
    printf(" %s\n", help);
}

void pl_options_help(const struct pl_options *o)
{
    printf("usage: pelago %s %s\n\n", o->command, o->usage);
    help_text(o->about);
    printf("\n");
    for (uint32_t i = 0; i < o->count; i++) {
        const struct pl_option *option = &o->table[i];
        char left[64];
        (void)snprintf(left, sizeof left, "--%s%s%s", option->name, option->value != NULL ? " " : "",
                       option->value != NULL ? option->value : "");
        help_line(left, option->help);
    }
    help_line("-h, --help", "this page");
}
