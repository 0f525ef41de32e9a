/* data/tales_markup.c - compiles data/tales/sentences.def into ops, once, when the tales are opened.
 *
 * "[a|b]" becomes  HABIT n=2, BRANCH, BRANCH, a.., BRANCH to the end, b.., BRANCH to the end.  A mistake in the
 * markup is our own and meets an assertion.
 */
#include "data/tales_int.h"

#include "base/check.h"

#include <string.h>

enum { BRANCHES_MAX = 8 };

static const char *const sentence_text[] = {
#define GROUP(name) NULL,
#define SAY(text) (text),
#include "data/tales/sentences.def"
#undef GROUP
#undef SAY
};

static const struct {
    const char *text;
    enum pl_tale_attribute attribute;
    enum pl_tale_op kind;
} attributes[] = {
#define ATTRIBUTE(kind, name, text) {text, PL_##kind##_##name, PL_OP_##kind},
#include "data/tales/attributes.def"
#undef ATTRIBUTE
};

/* What stands before the first dot. Where it is a register or a list, a number after the dot is the field. */
static const struct {
    const char *text;
    enum pl_tale_op kind;
    uint8_t which;
} names[] = {
    {"a", PL_OP_ARTICLE, 0},
    {"A", PL_OP_PERSON, PL_ROLE_A},
    {"B", PL_OP_PERSON, PL_ROLE_B},
    {"C", PL_OP_PERSON, PL_ROLE_C},
    {"X", PL_OP_PERSON, PL_ROLE_X},
    {"Y", PL_OP_PERSON, PL_ROLE_Y},
    {"H", PL_OP_VILLAGE, PL_PLACE_H},
    {"D", PL_OP_VILLAGE, PL_PLACE_D},
    {"V", PL_OP_VILLAGE, PL_PLACE_V},
    {"R", PL_OP_ROAD, 0},
    {"O", PL_OP_THING, 0},
    {"G", PL_OP_GOODS, 0},
    {"1", PL_OP_NUMBER, 1},
    {"2", PL_OP_NUMBER, 2},
    {"3", PL_OP_NUMBER, 3},
    {"4", PL_OP_NUMBER, 4},
    {"clock", PL_OP_CLOCK, 0},
    {"season", PL_OP_SEASON, 0},
    {"teller", PL_OP_TELLER, 0},
    {"mishap", PL_OP_RECORD, PL_REC_MISHAP},
    {"riddle", PL_OP_RECORD, PL_REC_RIDDLE},
    {"spot", PL_OP_RECORD, PL_REC_SPOT},
    {"room", PL_OP_RECORD, PL_REC_ROOM},
    {"bird", PL_OP_LIST, PL_LIST_BIRD},
    {"tree", PL_OP_LIST, PL_LIST_TREE},
};

static struct pl_op *emit(struct pl_tales *t, enum pl_tale_op kind)
{
    pl_assert(t->op_count < PL_OPS_MAX);
    struct pl_op *op = &t->ops[t->op_count++];
    *op = (struct pl_op){.kind = (uint8_t)kind};
    return op;
}

static bool same(const char *text, size_t len, const char *name)
{
    return strlen(name) == len && memcmp(text, name, len) == 0;
}

static uint8_t attribute_named(enum pl_tale_op kind, const char *text, size_t len)
{
    size_t i = 0;
    while (i < PL_ATTRIBUTES && !(attributes[i].kind == kind && same(text, len, attributes[i].text)))
        i++;
    pl_assert(i < PL_ATTRIBUTES);
    return (uint8_t)attributes[i].attribute;
}

/* {name} or {name.rest}; returns what follows the brace. */
static const char *compile_reference(struct pl_tales *t, const char *at)
{
    const char *end = strchr(at, '}');
    pl_assert(end != NULL);
    size_t len = (size_t)(end - at), head = strcspn(at, ".}"), i = 0;
    const char *rest = head < len ? at + head + 1 : end;
    while (i < sizeof names / sizeof names[0] && !same(at, head, names[i].text))
        i++;
    pl_assert(i < sizeof names / sizeof names[0]);
    struct pl_op *op = emit(t, names[i].kind);
    op->a = names[i].which;
    if (op->kind == PL_OP_RECORD)
        op->b = rest < end ? (uint8_t)(rest[0] - '1') : 0;
    else if (op->kind != PL_OP_ARTICLE && op->kind != PL_OP_LIST)
        op->b = attribute_named(names[i].kind, rest, (size_t)(end - rest));
    return end + 1;
}

static const char *compile_until(struct pl_tales *t, const char *at, const char *stops);

static const char *compile_habit(struct pl_tales *t, const char *at)
{
    uint32_t start = t->op_count, ends[BRANCHES_MAX], n = 1;
    for (const char *p = at; *p != ']'; p++) {
        pl_assert(*p != '\0' && *p != '['); /* habits do not nest */
        n += *p == '|';
    }
    pl_assert(n >= 2 && n <= BRANCHES_MAX);
    emit(t, PL_OP_HABIT)->n = (uint8_t)n;
    t->ops[start].len = start;
    for (uint32_t i = 0; i < n; i++)
        emit(t, PL_OP_BRANCH);
    for (uint32_t i = 0; i < n; i++) {
        t->ops[start + 1 + i].len = t->op_count - (start + 1 + i);
        at = compile_until(t, at, "|]") + 1;
        ends[i] = t->op_count;
        emit(t, PL_OP_BRANCH);
    }
    for (uint32_t i = 0; i < n; i++)
        t->ops[ends[i]].len = t->op_count - ends[i];
    return at;
}

/* Returns the place of the first character of stops that is not inside a reference or a habit. */
static const char *compile_until(struct pl_tales *t, const char *at, const char *stops)
{
    while (*at != '\0' && strchr(stops, *at) == NULL) {
        size_t len = strcspn(at, "{[^|]");
        if (len > 0) {
            struct pl_op *op = emit(t, PL_OP_TEXT);
            op->text = at;
            op->len = (uint32_t)len;
            at += len;
        } else if (*at == '{') {
            at = compile_reference(t, at + 1);
        } else if (*at == '[') {
            at = compile_habit(t, at + 1);
        } else {
            pl_assert(*at == '^');
            emit(t, PL_OP_CAPITAL);
            at++;
        }
    }
    return at;
}

uint32_t pl_tales_group_size(const struct pl_tales *t, enum pl_tale_group group)
{
    return (uint32_t)(t->group_at[group + 1] - t->group_at[group]);
}

void pl_tales_compile(struct pl_tales *t)
{
    uint32_t group = 0, sentence = 0;
    for (size_t i = 0; i < sizeof sentence_text / sizeof sentence_text[0]; i++) {
        if (sentence_text[i] == NULL) {
            t->group_at[group++] = (uint16_t)sentence;
            continue;
        }
        pl_assert(sentence < PL_SENTENCES_MAX);
        t->sentences[sentence++] = (uint16_t)t->op_count;
        const char *end = compile_until(t, sentence_text[i], "");
        pl_assert(*end == '\0');
        emit(t, PL_OP_END);
    }
    pl_assert(group == PL_GROUPS);
    t->group_at[PL_GROUPS] = (uint16_t)sentence;
}
