/* test_wire_doc.c - docs/protocol.md says exactly what messages.def and reasons.def say.
 *
 * The tables at the end of the page are this program's output: run it with --update after a change of the protocol.
 * In the text before them, every word like `PULL` must be a message or a reason.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "wire/frame.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef PL_SOURCE_ROOT
#define PL_SOURCE_ROOT "." /* tests run in the source folder */
#endif
static const char path[] = PL_SOURCE_ROOT "/docs/protocol.md";
static const char mark[] = "<!-- From here on: written by test_wire_doc --update. -->\n";

struct page {
    char text[1 << 16];
    size_t len;
};
static struct page wanted, found;

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(wanted.text + wanted.len, sizeof wanted.text - wanted.len, format, args);
    va_end(args);
    assert_true(n >= 0 && (size_t)n < sizeof wanted.text - wanted.len);
    wanted.len += (size_t)n;
}

static void say_row(const char *field, const char *type, uint64_t limit, const char *doc)
{
    say("| `%s` | %s | ", field, type);
    if (limit == UINT64_MAX)
        say("any");
    else if (limit >= 1 << 20 && (limit & (limit - 1)) == 0)
        say("2^%d", __builtin_ctzll(limit));
    else
        say("%" PRIu64, limit);
    say(" | %s |\n", doc);
}

static void say_items(void)
{
    say("\n## Items of arrays\n");
#define ITEM_BEGIN(ITEM, item)                                                                               \
    say("\n### `%s`, %d bytes\n\n| field | type | limit | meaning |\n|---|---|---|---|\n", #item,            \
        (int)PL_ITEM_##ITEM##_BYTES);
#define ITEM_U8(item, field, limit, doc) say_row(#field, "u8", limit, doc);
#define ITEM_U32(item, field, limit, doc) say_row(#field, "u32", limit, doc);
#define ITEM_U64(item, field, limit, doc) say_row(#field, "u64", limit, doc);
#define ITEM_NAME(item, field, doc) say_row(#field, "name", PL_NAME_MAX - 1, doc);
#include "wire/messages.def"
}

static void say_message(const char *name, int number, const char *channel, const char *sender,
                        unsigned bytes_max, const char *doc)
{
    say("\n### %d `%s`\n\n%s\n\nConnection: %s. Sender: %s. Payload: at most %u bytes.\n\n", number, name,
        doc, channel, sender, bytes_max);
}

static const char *lower(const char *word)
{
    static char copies[2][16];
    static unsigned turn;
    char *copy = copies[turn++ % 2];
    size_t i = 0;
    for (; word[i] != '\0' && i < 15; i++)
        copy[i] = (char)tolower((unsigned char)word[i]);
    copy[i] = '\0';
    return copy;
}

static void say_messages(void)
{
    say("\n## Messages\n");
#define MSG_BEGIN(NAME, name, number, channel, sender, doc)                                                  \
    say_message(#NAME, number, lower(#channel), lower(#sender), (unsigned)PL_MSG_##NAME##_BYTES_MAX, doc);   \
    if (pl_msg_info(number)->field_count > 0)                                                                \
        say("| field | type | limit | meaning |\n|---|---|---|---|\n");
#define U8(name, field, limit, doc) say_row(#field, "u8", limit, doc);
#define U32(name, field, limit, doc) say_row(#field, "u32", limit, doc);
#define U64(name, field, limit, doc) say_row(#field, "u64", limit, doc);
#define ARRAY(name, field, item, limit, doc) say_row(#field, "array of `" #item "`", limit, doc);
#define TEXT(name, field, doc) say_row(#field, "text", PL_TEXT_MAX, doc);
#define BYTES(name, field, limit, doc) say_row(#field, "bytes", limit, doc);
#define NOTHING(name) say("No fields.\n");
#include "wire/messages.def"
}

static void say_reasons(void)
{
    say("\n## Reasons\n\n| number | name | meaning |\n|---|---|---|\n");
#define X(name, value, text) say("| %d | `%s` | %s |\n", value, #name, text);
#include "wire/reasons.def"
#undef X
}

/* found: the page; wanted: its prose, then the tables as they should be. Returns the length of the prose. */
static size_t read_page(void)
{
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        fail_msg("cannot open %s", path);
    found.len = fread(found.text, 1, sizeof found.text - 1, f);
    fclose(f);
    found.text[found.len] = '\0';
    const char *at = strstr(found.text, mark);
    if (at == NULL)
        fail_msg("%s has no line %s", path, mark);
    size_t prose = (size_t)(at - found.text);
    memcpy(wanted.text, found.text, prose);
    wanted.len = prose;
    say("%s", mark);
    say_items();
    say_messages();
    say_reasons();
    return prose;
}

static void the_tables_are_those_of_the_protocol(void **state)
{
    (void)state;
    read_page();
    const char *w = wanted.text;
    const char *f = found.text;
    for (unsigned line = 1; *w != '\0' || *f != '\0'; line++) {
        size_t wn = strcspn(w, "\n");
        size_t fn = strcspn(f, "\n");
        if (wn != fn || memcmp(w, f, wn) != 0)
            fail_msg(
                "%s:%u is\n  %.*s\nexpected\n  %.*s\nrun this program with --update to rewrite the tables",
                path, line, (int)fn, f, (int)wn, w);
        w += wn + (w[wn] == '\n');
        f += fn + (f[fn] == '\n');
    }
    assert_int_equal(wanted.len, found.len);
}

static bool is_known(const char *word, size_t len)
{
#define KNOWN(name)                                                                                          \
    if (len == sizeof #name - 1 && memcmp(word, #name, len) == 0)                                            \
        return true;
#define MSG_BEGIN(NAME, name, number, channel, sender, doc) KNOWN(NAME)
#include "wire/messages.def"
#define X(name, value, text) KNOWN(name)
#include "wire/reasons.def"
#undef X
    return false;
}

static void the_prose_names_only_what_exists(void **state)
{
    (void)state;
    size_t prose = read_page();
    unsigned words = 0;
    for (size_t at = 0; at < prose; at++) {
        if (found.text[at] != '`')
            continue;
        const char *word = found.text + ++at;
        size_t len = strcspn(word, "`");
        at += len;
        if (strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") != len)
            continue;
        if (!is_known(word, len))
            fail_msg("%s names `%.*s`, which is neither a message nor a reason", path, (int)len, word);
        words++;
    }
    assert_true(words > 20);
}

static void the_prose_names_every_message(void **state)
{
    (void)state;
    size_t prose = read_page();
    found.text[prose] = '\0';
#define MSG_BEGIN(NAME, name, number, channel, sender, doc)                                                  \
    if (strstr(found.text, "`" #NAME "`") == NULL)                                                           \
        fail_msg("the text of %s says nothing about %s", path, #NAME);
#include "wire/messages.def"
    char version[64];
    snprintf(version, sizeof version, "# The protocol, version %d\n", PL_PROTOCOL_VERSION);
    assert_memory_equal(found.text, version, strlen(version));
}

static int update(void)
{
    read_page();
    FILE *f = fopen(path, "wb");
    if (f == NULL || fwrite(wanted.text, 1, wanted.len, f) != wanted.len || fclose(f) != 0) {
        fprintf(stderr, "cannot write %s\n", path);
        return 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--update") == 0)
        return update();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_tables_are_those_of_the_protocol),
        cmocka_unit_test(the_prose_names_only_what_exists),
        cmocka_unit_test(the_prose_names_every_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
