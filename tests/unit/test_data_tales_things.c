/* test_data_tales_things.c - a reader who knows English and the lists of words, but not the generator, keeps track of who
 * carries what in the stories and finds every answer to "where is it" right.
 *
 * Moves are read by a table of regular expressions; each must be met at least once, so none can go stale unnoticed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data/tales.h"
#include "data/tales_int.h"
#include "seed.h"
#include "tales_rig.h"

#include <ctype.h>
#include <regex.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { GROUPS_MAX = 10, STORIES = 1200 };

/* ---- things and people ---- */

struct name {
    char at[40];
};

struct reader {
    struct name hero;     /* first name */
    struct name focus[2]; /* whom "he" and "she" mean */
    struct {
        struct name who;
        struct name room;
    } people[2];
    struct {
        struct name thing, place, holder; /* place: a room; or a spot, and then the village matters */
    } things[2];
    uint32_t people_count, thing_count;
};

static struct name name_of(const char *text, size_t len)
{
    struct name n = {{0}};
    assert_true(len < sizeof n.at);
    memcpy(n.at, text, len);
    return n;
}

static struct name matched(const char *text, regmatch_t m)
{
    return name_of(text + m.rm_so, (size_t)(m.rm_eo - m.rm_so));
}

static bool equal(struct name a, struct name b)
{
    return strcmp(a.at, b.at) == 0;
}

/* The item of the list that the text begins with, in whole words, or -1; the longest one. */
static int item_at(enum pl_tale_list list, uint32_t field, const char *text)
{
    int best = -1;
    uint32_t best_len = 0;
    for (uint32_t i = 0; i < pl_tales_items(tales_rig(), list); i++) {
        struct pl_word w = pl_tales_word(tales_rig(), list, i, field);
        if (w.len > best_len && strncasecmp(text, w.text, w.len) == 0 &&
            !isalpha((unsigned char)text[w.len])) {
            best = (int)i;
            best_len = w.len;
        }
    }
    return best;
}

static struct name item_name(enum pl_tale_list list, int item, uint32_t field)
{
    struct pl_word w = pl_tales_word(tales_rig(), list, (uint32_t)item, field);
    return name_of(w.text, w.len);
}

/* 0 a man's name, 1 a woman's, -1 no first name. */
static int sex_of(struct name first)
{
    for (int female = 0; female < 2; female++) {
        int item = item_at(female ? PL_LIST_FEMALE : PL_LIST_MALE, 0, first.at);
        if (item >= 0 && equal(first, item_name(female ? PL_LIST_FEMALE : PL_LIST_MALE, item, 0)))
            return female;
    }
    return -1;
}

/* Whom a word means: a name, or a pronoun for the last person of that sex. */
static struct name person_meant(struct reader *r, struct name word)
{
    bool he = strcasecmp(word.at, "he") == 0, she = strcasecmp(word.at, "she") == 0;
    struct name who = he ? r->focus[0] : she ? r->focus[1] : word;
    int sex = sex_of(who);
    if (sex < 0)
        fail_msg("nobody is called '%s'", who.at);
    r->focus[sex] = who;
    return who;
}

static uint32_t person_index(struct reader *r, struct name who)
{
    uint32_t i = 0;
    while (i < r->people_count && !equal(r->people[i].who, who))
        i++;
    assert_true(i < 2);
    if (i == r->people_count)
        r->people[r->people_count++].who = who;
    return i;
}

static uint32_t thing_index(struct reader *r, struct name thing)
{
    uint32_t i = 0;
    while (i < r->thing_count && !equal(r->things[i].thing, thing))
        i++;
    if (i == r->thing_count) {
        assert_true(i < 2);
        r->things[r->thing_count++].thing = thing;
    }
    return i;
}

/* ---- a day at home ---- */

enum move { MOVE_GO, MOVE_CARRY, MOVE_CARRY_LATE, MOVE_TAKE, MOVE_DROP, MOVE_GIVE, MOVE_WANT, MOVES };

static struct {
    const char *text;
    enum move move;
    uint8_t who, thing, other; /* subexpressions; a room follows the expression */
    regex_t compiled;
    uint32_t met;
} moves[] = {
    {"^(Then |Next )?([A-Z]?[a-z]+) (went|walked|wandered|hurried|ran) ", MOVE_GO, 2, 0, 0, {0}, 0},
    {"^With the ([a-z -]+) (in hand|held tight), ([A-Za-z]+) (went|walked) ",
     MOVE_CARRY_LATE,
     3,
     1,
     0,
     {0},
     0},
    {"^([A-Z][a-z]+) (picked up|took) the ([a-z -]+) there", MOVE_TAKE, 1, 3, 0, {0}, 0},
    {"^There ([A-Za-z]+) (picked up|found) the ([a-z -]+) and (kept|took) it", MOVE_TAKE, 1, 3, 0, {0}, 0},
    {"^([A-Z][a-z]+) (carried|took) the ([a-z -]+)\\.", MOVE_CARRY, 1, 3, 0, {0}, 0}, /* thing and room */
    {"^([A-Z][a-z]+) (left|put down) the ([a-z -]+) there", MOVE_DROP, 1, 3, 0, {0}, 0},
    {"^There ([A-Za-z]+) (set|laid) the ([a-z -]+) down", MOVE_DROP, 1, 3, 0, {0}, 0},
    {"^([A-Z][a-z]+) gave the ([a-z -]+) to ([A-Z][a-z]+)", MOVE_GIVE, 1, 2, 3, {0}, 0},
    {"^([A-Z][a-z]+) (asked for|wanted) the ([a-z -]+), and ([A-Za-z]+) (gave|handed) it over",
     MOVE_WANT,
     4,
     3,
     1,
     {0},
     0},
};
enum { MOVE_PATTERNS = sizeof moves / sizeof moves[0] };

static void follow_move(struct reader *r, enum move move, struct name who, struct name thing,
                        struct name other, const char *room_text)
{
    uint32_t p = person_index(r, who);
    if (move == MOVE_GO || move == MOVE_CARRY || move == MOVE_CARRY_LATE) {
        int room = item_at(PL_LIST_ROOM, 1, room_text);
        assert_true(room >= 0);
        r->people[p].room = item_name(PL_LIST_ROOM, room, 0);
        for (uint32_t i = 0; i < r->thing_count; i++)
            if (equal(r->things[i].holder, who))
                r->things[i].place = r->people[p].room;
    }
    if (move == MOVE_GO)
        return;
    uint32_t t = thing_index(r, thing);
    struct name nobody = {{0}};
    if (move == MOVE_TAKE) /* only what lies in the same room can be taken */
        assert_true(equal(r->things[t].place, r->people[p].room) && equal(r->things[t].holder, nobody));
    else
        assert_true(equal(r->things[t].holder, who));
    if (move == MOVE_TAKE)
        r->things[t].holder = who;
    if (move == MOVE_DROP)
        r->things[t].holder = nobody;
    if (move == MOVE_GIVE || move == MOVE_WANT) {
        assert_true(equal(r->people[person_index(r, other)].room, r->people[p].room));
        r->things[t].holder = other;
    }
}

static void read_move(struct reader *r, const char *sentence)
{
    regmatch_t m[GROUPS_MAX];
    for (size_t i = 0; i < MOVE_PATTERNS; i++) {
        if (regexec(&moves[i].compiled, sentence, GROUPS_MAX, m, 0) != 0)
            continue;
        moves[i].met++;
        struct name thing = {{0}}, other = {{0}}, who;
        if (moves[i].move == MOVE_WANT)
            other = person_meant(r, matched(sentence, m[moves[i].other]));
        who = person_meant(r, matched(sentence, m[moves[i].who]));
        if (moves[i].move == MOVE_GIVE)
            other = person_meant(r, matched(sentence, m[moves[i].other]));
        const char *room = sentence + m[0].rm_eo;
        if (moves[i].thing != 0) {
            const char *at = sentence + m[moves[i].thing].rm_so;
            int item = item_at(PL_LIST_THING, 0, at);
            assert_true(item >= 0);
            thing = item_name(PL_LIST_THING, item, 0);
            if (moves[i].move == MOVE_CARRY)
                room = at + strlen(thing.at) + 1;
        }
        follow_move(r, moves[i].move, who, thing, other, room);
        return;
    }
}

/* "There was a brass key in the loft.", "A brass key lay in the loft.", "In the loft lay a brass key." */
static void read_first_places(struct reader *r, const char *line)
{
    for (const char *at = line; at != NULL; at = strchr(at + 1, '.')) {
        const char *s = at + (at == line ? 0 : 2);
        if (at != line && at[1] != ' ')
            continue;
        int room = item_at(PL_LIST_ROOM, 0, s), thing = -1;
        const char *lead = strncmp(s, "There was a", 11) == 0 ? s + 11
                           : strncmp(s, "A", 1) == 0          ? s + 1
                                                              : NULL;
        if (room >= 0) {
            const char *rest = s + strlen(item_name(PL_LIST_ROOM, room, 0).at);
            lead = strncmp(rest, " there was a", 12) == 0 ? rest + 12
                   : strncmp(rest, " lay a", 6) == 0      ? rest + 6
                                                          : NULL;
        }
        if (lead == NULL)
            continue;
        lead += lead[0] == 'n' && lead[1] == ' ' ? 2 : 1;
        if ((thing = item_at(PL_LIST_THING, 0, lead)) < 0)
            continue;
        const char *after = lead + strlen(item_name(PL_LIST_THING, thing, 0).at);
        after += strncmp(after, " lay ", 5) == 0 ? 5 : strncmp(after, " was ", 5) == 0 ? 5 : 1;
        if (room < 0)
            room = item_at(PL_LIST_ROOM, 0, after);
        if (room < 0)
            continue;
        uint32_t t = thing_index(r, item_name(PL_LIST_THING, thing, 0));
        r->things[t].place = item_name(PL_LIST_ROOM, room, 0);
    }
}

/* ---- answers ---- */

/* The hero is the first person who is named in full. */
static struct name first_person(const char *line)
{
    for (const char *at = line; at != NULL; at = strchr(at, ' ')) {
        at += *at == ' ';
        struct name word = name_of(at, strcspn(at, " ,.'\"") < 39 ? strcspn(at, " ,.'\"") : 0);
        const char *next = at + strlen(word.at);
        if (sex_of(word) >= 0 && next[0] == ' ' && next[1] >= 'A' && next[1] <= 'Z')
            return word;
    }
    fail();
    return (struct name){{0}};
}

/* Checks every `... the THING ... "It is PLACE` in the line; returns how many there were. */
static uint32_t check_answers(const struct reader *r, const char *line, const char *village)
{
    uint32_t answers = 0;
    for (const char *at = line; (at = strstr(at, "\"It is ")) != NULL; at++, answers++) {
        int thing = -1;
        for (const char *back = at; thing < 0 && back > line; back--)
            thing = item_at(PL_LIST_THING, 0, back);
        assert_true(thing >= 0);
        uint32_t t = 0;
        while (t < r->thing_count && !equal(r->things[t].thing, item_name(PL_LIST_THING, thing, 0)))
            t++;
        assert_true(t < r->thing_count);
        bool held = r->things[t].holder.at[0] != '\0', mine = equal(r->things[t].holder, r->hero);
        const char *holder = mine ? "me" : r->things[t].holder.at;
        char expected[200];
        if (village == NULL)
            (void)snprintf(expected, sizeof expected, "%s%s%s", r->things[t].place.at, held ? ", with " : "",
                           held ? holder : "");
        else if (held)
            (void)snprintf(expected, sizeof expected, "with %s", holder);
        else
            (void)snprintf(expected, sizeof expected, "%s in %s", r->things[t].place.at, village);
        if (strncmp(at + 7, expected, strlen(expected)) != 0 ||
            strchr(".,", at[7 + strlen(expected)]) == NULL)
            fail_msg("expected '%s' in: %s", expected, at);
    }
    return answers;
}

static uint32_t split_lines(char *text, char **lines, uint32_t max)
{
    uint32_t count = 0;
    for (char *at = text; *at != '\0' && count < max; count++) {
        char *end = strchr(at, '\n');
        assert_non_null(end);
        *end = '\0';
        lines[count] = at;
        at = end + 1;
    }
    return count;
}

static bool is_at_home(const char *text)
{
    return strstr(text, "to visit. ") != NULL || strstr(text, "was visiting. ") != NULL ||
           strstr(text, "clear the house. ") != NULL || strstr(text, "tidy the house. ") != NULL;
}

static uint32_t check_home(char **lines, uint32_t count)
{
    struct reader r = {.hero = first_person(lines[0])};
    read_first_places(&r, lines[0]);
    assert_int_equal(r.thing_count, 2);
    for (char *at = lines[1]; at != NULL;) {
        read_move(&r, at);
        at = strstr(at, ". ");
        at = at != NULL ? at + 2 : NULL;
    }
    return check_answers(&r, lines[count - 3], NULL);
}

static void things_carried_at_home_are_where_they_should_be(void **state)
{
    (void)state;
    uint64_t seed = test_seed();
    uint32_t answers = 0;
    for (size_t i = 0; i < MOVE_PATTERNS; i++)
        assert_int_equal(regcomp(&moves[i].compiled, moves[i].text, REG_EXTENDED), 0);
    for (uint64_t i = 0; i < 4 * STORIES; i++) {
        char *lines[8], *text = tales_rig_text(seed, i);
        bool home = is_at_home(text);
        uint32_t count = split_lines(text, lines, 8);
        if (home)
            answers += check_home(lines, count);
        free(text);
    }
    assert_true(answers > STORIES / 4);
    for (size_t i = 0; i < MOVE_PATTERNS; i++) {
        if (moves[i].met == 0)
            fail_msg("never met: %s", moves[i].text);
        regfree(&moves[i].compiled);
    }
}

/* ---- things given, put away, found again ---- */

static struct name last_village(const char *line)
{
    struct name found = {{0}};
    for (const char *at = line; *at != '\0'; at++)
        if (*at >= 'A' && *at <= 'Z' && (at == line || at[-1] == ' ')) {
            int v = item_at(PL_LIST_VILLAGE, 0, at);
            found = v >= 0 ? item_name(PL_LIST_VILLAGE, v, 0) : found;
        }
    return found;
}

/* Whom the hero sets out for: "to Ada Alder, the", "for Ada Alder, the", "Ada Alder, the smith of Oldwick, had". */
static struct name receiver(const char *line, struct name hero)
{
    struct name found = {{0}};
    for (const char *at = line; *at != '\0'; at++) {
        struct name word = name_of(at, strcspn(at, " ,.'\"!?;:") < 39 ? strcspn(at, " ,.'\"!?;:") : 0);
        const char *next = at + strlen(word.at);
        if ((at == line || at[-1] == ' ') && sex_of(word) >= 0 && !equal(word, hero) && next[0] == ' ' &&
            next[1] >= 'A' && next[1] <= 'Z')
            found = word;
    }
    return found;
}

static bool ends_with(const char *start, const char *end, const char *with)
{
    size_t len = strlen(with);
    return (size_t)(end - start) >= len && memcmp(end - len, with, len) == 0;
}

/* "gave her the " or "handed over the " before the thing, "into his hands" or "and gave it to" after it. */
static bool is_given(const char *line, const char *the, const char *after)
{
    const char *word = the;
    while (word > line && word[-1] != ' ')
        word--;
    for (word = word > line ? word - 1 : line; word > line && word[-1] != ' ';)
        word--; /* now at the last word before "the" */
    return ends_with(line, the, "handed over ") || ends_with(line, the, "held out ") ||
           ends_with(line, word, "gave ") || strncmp(after, " into ", 6) == 0 ||
           strncmp(after, " and gave it to ", 16) == 0;
}

static bool is_taken(const char *line, const char *the)
{
    return ends_with(line, the, "took ") || ends_with(line, the, "picked up ") ||
           ends_with(line, the, "carried off ");
}

/* Follows the things of a line: what is handed over, taken, or put in a spot; a spot is that of the last thing named. */
static void read_things(struct reader *r, const char *line, struct name receives)
{
    struct name last = {{0}};
    for (const char *at = line; *at != '\0'; at++) {
        if (at > line && at[-1] != ' ' && at[-1] != '"')
            continue;
        size_t article = strncasecmp(at, "the ", 4) == 0 ? 4
                         : strncmp(at, "Your ", 5) == 0  ? 5
                         : strncmp(at, "a ", 2) == 0     ? 2
                                                         : 3;
        bool named = article != 3 || strncmp(at, "an ", 3) == 0;
        int thing = named ? item_at(PL_LIST_THING, 0, at + article) : -1, spot = item_at(PL_LIST_SPOT, 0, at);
        if (thing >= 0) {
            last = item_name(PL_LIST_THING, thing, 0);
            if (is_given(line, at, at + article + strlen(last.at)))
                r->things[thing_index(r, last)].holder = receives;
            else if (is_taken(line, at))
                r->things[thing_index(r, last)].holder = r->hero;
        }
        if (spot >= 0 && last.at[0] != '\0') {
            uint32_t t = thing_index(r, last);
            r->things[t].place = item_name(PL_LIST_SPOT, spot, 0);
            r->things[t].holder = (struct name){{0}};
        }
    }
}

static void things_given_and_put_away_are_where_they_should_be(void **state)
{
    (void)state;
    uint64_t seed = test_seed();
    uint32_t answers = 0;
    for (uint64_t i = 0; i < STORIES; i++) {
        char *lines[8], *text = tales_rig_text(seed, i);
        bool home = is_at_home(text);
        uint32_t count = split_lines(text, lines, 8);
        struct reader r = {.hero = first_person(lines[0])};
        bool travels = strstr(lines[1], "o'clock") != NULL;
        struct name village = last_village(lines[travels ? 1 : 0]);
        for (uint32_t line = 1; !home && line < count - 3; line++)
            read_things(&r, lines[line], receiver(lines[0], r.hero));
        if (!home)
            answers += check_answers(&r, lines[count - 3], village.at);
        free(text);
    }
    assert_true(answers > STORIES / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(things_carried_at_home_are_where_they_should_be),
        cmocka_unit_test(things_given_and_put_away_are_where_they_should_be),
    };
    return cmocka_run_group_tests(tests, tales_rig_open, tales_rig_close);
}
