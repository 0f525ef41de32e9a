/* sim/script_int.h - a parsed script; for script.c (reading) and script_run.c (running and matching). */
#ifndef PL_SIM_SCRIPT_INT_H
#define PL_SIM_SCRIPT_INT_H

#include "sim/script.h"

enum { SCRIPT_LINE_MAX = 240, SCRIPT_VARS = 26, SCRIPT_VALUE_MAX = 48, SCRIPT_OPTIONS_MAX = 32 };

enum wish_kind {
    WISH_EXPECT,   /* in order */
    WISH_AFTER,    /* the expects below it look only at lines from this time on */
    WISH_NEVER,    /* no line in [from, to) */
    WISH_AT_LEAST, /* number of lines in [from, to) */
    WISH_AT_MOST,
    WISH_EXACTLY,
};

struct wish {
    enum wish_kind kind;
    uint32_t line; /* of the script, for the message */
    uint64_t from_ns, to_ns;
    uint64_t number;
    uint64_t seen;     /* matches so far; of an EXPECT: those that were its turn, so 0 or 1 */
    uint64_t early;    /* EXPECT: matches before its turn; a $ name not yet bound matched anything */
    uint64_t first_ns; /* of the first match that counted */
    char pattern[SCRIPT_LINE_MAX];
};

/* What $a ... $z stand for; an empty one is not bound. */
struct bindings {
    char value[SCRIPT_VARS][SCRIPT_VALUE_MAX];
};

struct pl_script {
    const struct pl_alloc *alloc;
    size_t bytes; /* of this block, arrays included */
    struct pl_sim_options options;
    uint32_t option_line
        [SCRIPT_OPTIONS_MAX]; /* where each was set, in the order of script.c's table; 0: nowhere */
    bool to_end;
    struct pl_action *actions;
    uint32_t action_count;
    struct wish *wishes;
    uint32_t wish_count;
    /* while running */
    uint32_t next; /* the first EXPECT not met yet is at or after this one */
    uint64_t after_ns;
    struct bindings bound;
    pl_sim_line *print;
    void *print_user;
};

/* INVALID names the line of the first option out of its range. */
enum pelago_status pl_script_check_options(const struct pl_script *s, struct pl_error *err);

/* Does the whole text match? * stands for any text, $x for a word without spaces: any at its first use, which is
 * then noted in b, the same one later. b is changed only when the text matches. */
bool pl_script_match(const char *pattern, const char *text, struct bindings *b);

/* One line of the trace: moves the expectations on. */
void pl_script_feed(struct pl_script *s, uint64_t now_ns, const char *who, const char *text);

/* After the last line: false, with a sentence, when something was not met. */
bool pl_script_met(const struct pl_script *s, char *what, size_t cap);

#endif
