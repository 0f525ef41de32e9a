/* data/split.c - see split.h: the list of steps, and those that run in pcre2. */
#include "data/split.h"

#include "base/buf.h"
#include "base/check.h"
#include "base/hash.h"
#include "data/unicode.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

enum {
    PATTERN_BYTES_MAX = 4096,
    JIT_STACK_START = 64 << 10,
    JIT_STACK_MAX = 16 << 20, /* a long run of one class needs a few bytes a character */
};

struct step {
    enum pl_split_kind kind;
    pcre2_code *code; /* of the REGEX kinds */
};

struct pl_split {
    const struct pl_alloc *alloc;
    struct step steps[PL_SPLIT_STEPS_MAX];
    uint32_t count;
    uint64_t digest;
};

struct pl_split_scratch {
    const struct pl_alloc *alloc;
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
    struct pl_buf prefixed;
};

struct pl_split *pl_split_new(const struct pl_alloc *alloc)
{
    struct pl_split *s = pl_alloc_zero(alloc, 1, sizeof *s);
    if (s != NULL)
        s->alloc = alloc;
    return s;
}

void pl_split_free(struct pl_split *s)
{
    if (s == NULL)
        return;
    for (uint32_t i = 0; i < s->count; i++)
        pcre2_code_free(s->steps[i].code);
    pl_alloc_free(s->alloc, s, sizeof *s);
}

/* ---- steps ---- */

static bool is_regex(enum pl_split_kind kind)
{
    return kind == PL_SPLIT_BY_REGEX || kind == PL_SPLIT_BY_REGEX_ONLY;
}

/* The pattern as pcre2 must read it to mean what Oniguruma means: \s of pcre2 holds U+180E, which is no white space any
 * more; \w, \b and \h are other sets there. NULL, or why it is refused. */
static const char *translate(const char *pattern, struct pl_buf *out)
{
    for (const char *p = pattern; *p != '\0'; p++) {
        const char *space = p[0] != '\\'  ? NULL
                            : p[1] == 's' ? "\\p{White_Space}"
                            : p[1] == 'S' ? "\\P{White_Space}"
                                          : NULL;
        size_t len = p[0] == '\\' && p[1] != '\0' ? 2 : 1;
        if (len == 2 && strchr("wWbBhH", p[1]) != NULL)
            return "it uses \\w, \\b or \\h, which mean different things to different programs";
        if (pl_buf_append(out, space != NULL ? space : p, space != NULL ? strlen(space) : len) != PELAGO_OK)
            return "it is too long";
        p += len - 1;
    }
    return NULL;
}

static enum pelago_status compile(const char *pattern, size_t len, pcre2_code **code, struct pl_error *err)
{
    const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF | PCRE2_MULTILINE;
    int error;
    size_t where;
    uint32_t empty = 0;
    *code = pcre2_compile((PCRE2_SPTR)pattern, len, options, &error, &where, NULL);
    if (*code == NULL) {
        PCRE2_UCHAR text[120];
        (void)pcre2_get_error_message(error, text, sizeof text);
        return pl_fail(err, PELAGO_INVALID, "the pattern of the pre_tokenizer is not usable: %s",
                       (const char *)text);
    }
    (void)pcre2_pattern_info(*code, PCRE2_INFO_MATCHEMPTY, &empty);
    if (empty != 0) {
        pcre2_code_free(*code);
        *code = NULL;
        return pl_fail(err, PELAGO_UNSUPPORTED,
                       "the pattern of the pre_tokenizer can match nothing at all, which is not supported");
    }
    (void)pcre2_jit_compile(*code, PCRE2_JIT_COMPLETE); /* without it the matcher is slower, that is all */
    return PELAGO_OK;
}

static enum pelago_status compile_translated(const struct pl_split *s, const char *pattern, pcre2_code **code,
                                             struct pl_error *err)
{
    struct pl_buf buf;
    pl_buf_init(&buf, s->alloc, PATTERN_BYTES_MAX);
    const char *problem = translate(pattern, &buf);
    enum pelago_status status = PELAGO_OK;
    if (problem != NULL)
        status = pl_fail(err, PELAGO_UNSUPPORTED, "the pattern of the pre_tokenizer is not supported: %s",
                         problem);
    else
        status = compile((const char *)buf.data, buf.len, code, err);
    pl_buf_release(&buf);
    return status;
}

static bool has_kind(const struct pl_split *s, enum pl_split_kind kind)
{
    for (uint32_t i = 0; i < s->count; i++)
        if (s->steps[i].kind == kind)
            return true;
    return false;
}

enum pelago_status pl_split_add(struct pl_split *s, enum pl_split_kind kind, const char *pattern,
                                struct pl_error *err)
{
    pl_assert(is_regex(kind) == (pattern != NULL));
    pcre2_code *code = NULL;
    if (s->count == PL_SPLIT_STEPS_MAX)
        return pl_fail(err, PELAGO_LIMIT, "the pre_tokenizer has more than %u steps",
                       (unsigned)PL_SPLIT_STEPS_MAX);
    if (kind == PL_SPLIT_PREFIX && has_kind(s, kind))
        return pl_fail(err, PELAGO_UNSUPPORTED, "the pre_tokenizer adds a space in front of pieces twice");
    if (is_regex(kind) &&
        strcmp(pattern, PL_SPLIT_GPT2) == 0) /* it matches everything: nothing lies between */
        kind = PL_SPLIT_BY_GPT2;
    if (is_regex(kind))
        PL_TRY(compile_translated(s, pattern, &code, err));
    s->steps[s->count++] = (struct step){kind, code};
    uint8_t number = (uint8_t)kind;
    s->digest = pl_hash64(&number, sizeof number, s->digest);
    if (is_regex(kind))
        s->digest = pl_hash64(pattern, strlen(pattern), s->digest);
    return PELAGO_OK;
}

bool pl_split_allows_cuts(const struct pl_split *s)
{
    return has_kind(s, PL_SPLIT_BY_GPT2) && !has_kind(s, PL_SPLIT_BY_REGEX) &&
           !has_kind(s, PL_SPLIT_BY_REGEX_ONLY);
}

bool pl_split_is_gpt2(const struct pl_split *s)
{
    return s->count == 1 && s->steps[0].kind == PL_SPLIT_BY_GPT2;
}

uint64_t pl_split_digest(const struct pl_split *s)
{
    return s->digest;
}

/* ---- running ---- */

struct pl_split_scratch *pl_split_scratch_new(const struct pl_alloc *alloc, const struct pl_split *s)
{
    struct pl_split_scratch *scratch = pl_alloc_zero(alloc, 1, sizeof *scratch);
    if (scratch == NULL)
        return NULL;
    scratch->alloc = alloc;
    pl_buf_init(&scratch->prefixed, alloc, SIZE_MAX / 2);
    if (!has_kind(s, PL_SPLIT_BY_REGEX) && !has_kind(s, PL_SPLIT_BY_REGEX_ONLY))
        return scratch;
    scratch->match = pcre2_match_data_create(1, NULL);
    scratch->context = pcre2_match_context_create(NULL);
    scratch->stack = pcre2_jit_stack_create(JIT_STACK_START, JIT_STACK_MAX, NULL);
    if (scratch->match == NULL || scratch->context == NULL) {
        pl_split_scratch_free(scratch);
        return NULL;
    }
    pcre2_jit_stack_assign(scratch->context, NULL,
                           scratch->stack); /* a NULL stack is the small default one */
    return scratch;
}

void pl_split_scratch_free(struct pl_split_scratch *scratch)
{
    if (scratch == NULL)
        return;
    pcre2_match_data_free(scratch->match);
    pcre2_match_context_free(scratch->context);
    pcre2_jit_stack_free(scratch->stack);
    pl_buf_release(&scratch->prefixed);
    pl_alloc_free(scratch->alloc, scratch, sizeof *scratch);
}

struct run {
    const struct pl_split *split;
    struct pl_split_scratch *scratch;
    pl_split_fn *fn;
    void *user;
    struct pl_error *err;
};

/* The steps from number `step` on, over one piece. At most PL_SPLIT_STEPS_MAX deep. */
static enum pelago_status run_step(const struct run *r, uint32_t step, const uint8_t *text, size_t len);

static enum pelago_status run_gpt2(const struct run *r, uint32_t next, const uint8_t *text, size_t len)
{
    const uint8_t *end = text + len;
    for (const uint8_t *at = text; at < end;) {
        size_t n = pl_split_gpt2(at, end);
        PL_TRY(run_step(r, next, at, n));
        at += n;
    }
    return PELAGO_OK;
}

static enum pelago_status run_regex(const struct run *r, uint32_t next, const uint8_t *text, size_t len)
{
    const struct step *step = &r->split->steps[next - 1];
    for (size_t at = 0; at < len;) {
        int found = pcre2_match(step->code, text, len, at, 0, r->scratch->match, r->scratch->context);
        const size_t *range = pcre2_get_ovector_pointer(r->scratch->match);
        size_t from = found >= 0 ? range[0] : len, to = found >= 0 ? range[1] : len;
        if (found < 0 && found != PCRE2_ERROR_NOMATCH)
            return pl_fail(
                r->err, PELAGO_LIMIT,
                "the pattern of the pre_tokenizer needs too much memory for a stretch of %lu bytes",
                (uint64_t)(len - at));
        if (from > at && step->kind == PL_SPLIT_BY_REGEX)
            PL_TRY(run_step(r, next, text + at, from - at));
        if (to > from)
            PL_TRY(run_step(r, next, text + from, to - from));
        /* \K and look-behind could end a match where it began, or before: never go back. */
        at = to > at ? to : at + 1;
    }
    return PELAGO_OK;
}

static enum pelago_status run_digits(const struct run *r, uint32_t next, const uint8_t *text, size_t len)
{
    bool each = r->split->steps[next - 1].kind == PL_SPLIT_BY_DIGIT;
    const uint8_t *end = text + len, *start = text, *at = text;
    bool before = false;
    while (at < end) {
        uint32_t c;
        size_t n = pl_utf8_read(at, end, &c);
        bool digit = c != PL_CHAR_BAD && pl_char_class(c) == PL_CHAR_NUMBER;
        if (at > start && (digit != before || (each && digit))) {
            PL_TRY(run_step(r, next, start, (size_t)(at - start)));
            start = at;
        }
        before = digit;
        at += n;
    }
    return at > start ? run_step(r, next, start, (size_t)(at - start)) : PELAGO_OK;
}

static enum pelago_status run_prefix(const struct run *r, uint32_t next, const uint8_t *text, size_t len)
{
    struct pl_buf *buf = &r->scratch->prefixed;
    if (text[0] == ' ')
        return run_step(r, next, text, len);
    buf->len = 0;
    if (pl_buf_append(buf, " ", 1) != PELAGO_OK || pl_buf_append(buf, text, len) != PELAGO_OK)
        return pl_fail(r->err, PELAGO_NOMEM, "there is no memory for a piece of %lu bytes", (uint64_t)len);
    return run_step(r, next, buf->data, buf->len);
}

static enum pelago_status run_step(const struct run *r, uint32_t step, const uint8_t *text, size_t len)
{
    pl_assert(len > 0);
    if (step == r->split->count)
        return r->fn(r->user, text, len, r->err);
    switch (r->split->steps[step].kind) {
    case PL_SPLIT_BY_GPT2:
        return run_gpt2(r, step + 1, text, len);
    case PL_SPLIT_BY_REGEX:
    case PL_SPLIT_BY_REGEX_ONLY:
        return run_regex(r, step + 1, text, len);
    case PL_SPLIT_BY_DIGIT:
    case PL_SPLIT_BY_DIGITS:
        return run_digits(r, step + 1, text, len);
    case PL_SPLIT_PREFIX:
        return run_prefix(r, step + 1, text, len);
    }
    pl_assert_failed("a step has a kind", __FILE__, __LINE__);
}

enum pelago_status pl_split_run(const struct pl_split *s, struct pl_split_scratch *scratch,
                                const uint8_t *text, size_t len, pl_split_fn *fn, void *user,
                                struct pl_error *err)
{
    struct run r = {s, scratch, fn, user, err};
    return len > 0 ? run_step(&r, 0, text, len) : PELAGO_OK;
}
