/* data/tales_say.c - a compiled sentence becomes English: names or pronouns, "a" or "an", capitals, numbers in words.
 *
 * Nothing here is random except free lists ({bird}) and habits, which go through tales_choice.c.
 */
#include "data/tales_int.h"

#include "base/check.h"

#include <string.h>

enum { GROUP_SLOTS = 1 << 20 }; /* slots of groups are numbered from here, those of habits by their op */

/* ---- letters ---- */

/* At the start of a line, after a full stop, after an opening quotation mark. */
static bool wants_capital(const struct pl_tale *s)
{
    uint32_t n = s->len - s->line_start;
    const char *end = s->text + s->len;
    if (s->capital || n == 0)
        return true;
    if (end[-1] == '"')
        return n == 1 || end[-2] == ' ';
    return n >= 2 && end[-1] == ' ' && (end[-2] == '.' || end[-2] == '!' || end[-2] == '?');
}

static void put_plain(struct pl_tale *s, const char *text, uint32_t len)
{
    pl_assert(len <= sizeof s->text - s->len);
    memcpy(s->text + s->len, text, len);
    s->len += len;
}

static void put(struct pl_tale *s, const char *text, uint32_t len)
{
    if (len == 0)
        return;
    if (s->article) {
        s->article = false;
        bool vowel = strchr("aeiouAEIOU", text[0]) != NULL;
        put(s, vowel ? "an " : "a ", vowel ? 3 : 2);
    }
    bool capital = wants_capital(s);
    uint32_t at = s->len;
    put_plain(s, text, len);
    if (capital && s->text[at] >= 'a' && s->text[at] <= 'z')
        s->text[at] = (char)(s->text[at] - 'a' + 'A');
    s->capital = false;
}

static void put_text(struct pl_tale *s, const char *text)
{
    put(s, text, (uint32_t)strlen(text));
}

static void put_word(struct pl_tale *s, enum pl_tale_list list, uint32_t item, uint32_t field)
{
    struct pl_word word = pl_tales_word(s->t, list, item, field);
    put(s, word.text, word.len);
}

static void put_number(struct pl_tale *s, uint32_t n)
{
    static const char *const small[] = {"no",      "one",     "two",       "three",    "four",
                                        "five",    "six",     "seven",     "eight",    "nine",
                                        "ten",     "eleven",  "twelve",    "thirteen", "fourteen",
                                        "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"};
    static const char *const tens[] = {"twenty", "thirty",  "forty",  "fifty",
                                       "sixty",  "seventy", "eighty", "ninety"};
    pl_assert(n < 100);
    if (n < 20) {
        put_text(s, small[n]);
        return;
    }
    put_text(s, tens[n / 10 - 2]);
    if (n % 10 != 0) {
        put_text(s, "-");
        put_text(s, small[n % 10]);
    }
}

static void put_count(struct pl_tale *s, uint32_t n, const char *one, const char *many)
{
    put_number(s, n);
    put_text(s, n == 1 ? one : many);
}

static void put_hours(struct pl_tale *s, uint32_t n)
{
    if (n == 1)
        put_text(s, "an hour");
    else
        put_count(s, n, "", " hours");
}

/* ---- people ---- */

static void put_first(struct pl_tale *s, uint32_t k)
{
    const struct pl_person *p = &s->t->people[k];
    put_word(s, p->female ? PL_LIST_FEMALE : PL_LIST_MALE, p->first, 0);
}

static void put_full(struct pl_tale *s, uint32_t k)
{
    put_first(s, k);
    put_text(s, " ");
    put_word(s, PL_LIST_FAMILY, s->t->people[k].family, 0);
}

/* By pronoun when the last person of that sex in this paragraph was the same one, by name otherwise. */
static void put_person(struct pl_tale *s, uint32_t k, const char *he, const char *she, const char *after_name)
{
    bool female = s->t->people[k].female;
    if (s->focus[female] == k) {
        put_text(s, female ? she : he);
        return;
    }
    put_first(s, k);
    put_text(s, after_name);
    s->focus[female] = k;
}

static void put_named(struct pl_tale *s, uint32_t k, bool full)
{
    s->focus[s->t->people[k].female] = k;
    if (full)
        put_full(s, k);
    else
        put_first(s, k);
}

/* Where a fact of a person is found: the list, the item's place in struct pl_person, the field. */
static const struct {
    enum pl_tale_attribute attribute;
    enum pl_tale_list list;
    size_t offset;
    uint8_t field;
} person_facts[] = {
#define FACT(ATTRIBUTE, LIST, member, field)                                                                 \
    {                                                                                                        \
        PL_PERSON_##ATTRIBUTE, PL_LIST_##LIST, offsetof(struct pl_person, member), field                     \
    }
    FACT(JOB, JOB, job, 0),
    FACT(WORK, JOB, job, 1),
    FACT(TOOL, JOB, job, 2),
    FACT(DOES, JOB, job, 3),
    FACT(TRAIT, TRAIT, trait, 0),
    FACT(WOULD, TRAIT, trait, 1),
    FACT(PET, PET, pet, 0),
    FACT(FOOD, FOOD, food, 0),
    FACT(PETNAME, PETNAME, petname, 0),
    FACT(HOUSE, HOUSE, house, 0),
    FACT(FEAR, FEAR, fear, 0),
    FACT(PHRASE, PHRASE, phrase, 0),
    FACT(LIKES, LIKES, likes, 0),
    FACT(WEARS, WEARS, wears, 0),
    FACT(KIN, KIN, kin, 0),
    FACT(MANNER, MANNER, manner, 0),
    FACT(KEEPS, THING, keeps, 0),
    FACT(TUNE, TUNE, tune, 0),
    FACT(VILLAGE, VILLAGE, village, 0),
#undef FACT
};

static void put_person_fact(struct pl_tale *s, uint32_t k, enum pl_tale_attribute attribute)
{
    size_t i = 0;
    while (i < sizeof person_facts / sizeof person_facts[0] && person_facts[i].attribute != attribute)
        i++;
    pl_assert(i < sizeof person_facts / sizeof person_facts[0]);
    const uint8_t *item = (const uint8_t *)&s->t->people[k] + person_facts[i].offset;
    put_word(s, person_facts[i].list, *item, person_facts[i].field);
}

static void say_person(struct pl_tale *s, uint32_t k, enum pl_tale_attribute attribute)
{
    const struct pl_person *p = &s->t->people[k];
    if (attribute == PL_PERSON_HE)
        put_person(s, k, "he", "she", "");
    else if (attribute == PL_PERSON_HIM)
        put_person(s, k, "him", "her", "");
    else if (attribute == PL_PERSON_HIS)
        put_person(s, k, "his", "her", "'s");
    else if (attribute == PL_PERSON_FIRST || attribute == PL_PERSON_FULL)
        put_named(s, k, attribute == PL_PERSON_FULL);
    else if (attribute == PL_PERSON_AGE)
        put_number(s, p->age);
    else if (attribute == PL_PERSON_FRIEND)
        put_full(s, p->friend);
    else if (attribute == PL_PERSON_FRIENDJOB)
        put_person_fact(s, p->friend, PL_PERSON_JOB);
    else if (attribute == PL_PERSON_FRIENDVILLAGE)
        put_person_fact(s, p->friend, PL_PERSON_VILLAGE);
    else
        put_person_fact(s, k, attribute);
}

/* ---- places, things, numbers ---- */

static void put_lowered(struct pl_tale *s, enum pl_tale_list list, uint32_t item)
{
    uint32_t at = s->len;
    put_word(s, list, item, 0);
    s->text[at] = (char)(s->text[at] - 'A' + 'a');
}

static void say_village(struct pl_tale *s, uint32_t v, enum pl_tale_attribute attribute)
{
    const struct pl_village *village = &s->t->villages[v];
    if (attribute == PL_VILLAGE_NAME)
        put_word(s, PL_LIST_VILLAGE, v, 0);
    else if (attribute == PL_VILLAGE_RIVER)
        put_word(s, PL_LIST_RIVER, village->river, 0);
    else if (attribute == PL_VILLAGE_INN)
        put_word(s, PL_LIST_INN, village->inn, 0);
    else if (attribute == PL_VILLAGE_DAY)
        put_word(s, PL_LIST_DAY, village->day, 0);
    else if (attribute == PL_VILLAGE_CRAFT)
        put_word(s, PL_LIST_CRAFT, village->craft, 0);
    else if (attribute == PL_VILLAGE_SIGHT)
        put_word(s, PL_LIST_SIGHT, village->sight, 0);
    else if (attribute == PL_VILLAGE_FEAST)
        put_word(s, PL_LIST_FEAST, village->feast, 0);
    else if (attribute == PL_VILLAGE_SAYING)
        put_word(s, PL_LIST_SAYING, village->saying, 0);
    else if (attribute == PL_VILLAGE_SAYING_LOW)
        put_lowered(s, PL_LIST_SAYING, village->saying);
    else if (attribute == PL_VILLAGE_ELDER)
        put_named(s, village->elder, true);
    else
        put_person_fact(s, village->elder, PL_PERSON_JOB);
}

static void say_road(struct pl_tale *s, enum pl_tale_attribute attribute)
{
    static const char *const ways[PL_WAYS] = {"north", "east", "south", "west"};
    uint32_t from = s->place[PL_PLACE_H], to = s->place[PL_PLACE_D];
    struct pl_road road = pl_tales_road(s->t, from, to);
    if (attribute == PL_ROAD_MARK)
        put_word(s, PL_LIST_ROADMARK, road.mark, 0);
    else if (attribute == PL_ROAD_WAY)
        put_text(s, ways[pl_tales_way(from, to)]);
    else
        put_hours(s, road.hours);
}

/* "it is with me", "it is in the oak chest in Oldwick", as the hero says it. */
static void say_where(struct pl_tale *s, const struct pl_thing *thing)
{
    bool home = thing->village == PL_NONE32;
    put_text(s, "it is ");
    if (home)
        put_word(s, PL_LIST_ROOM, thing->spot, 0);
    if (thing->holder != PL_NONE32) {
        put_text(s, home ? ", with " : "with ");
        if (thing->holder == s->role[PL_ROLE_A])
            put_text(s, "me");
        else
            put_first(s, thing->holder);
    } else if (!home) {
        put_word(s, PL_LIST_SPOT, thing->spot, 0);
        put_text(s, " in ");
        put_word(s, PL_LIST_VILLAGE, thing->village, 0);
    }
}

static void say_number(struct pl_tale *s, uint32_t n, enum pl_tale_attribute attribute)
{
    if (attribute == PL_NUMBER_WORD) {
        put_number(s, n);
    } else if (attribute == PL_NUMBER_PENCE) {
        put_count(s, n, " penny", " pennies");
    } else if (attribute == PL_NUMBER_HOURS) {
        put_hours(s, n);
    } else {
        put_number(s, n);
        put_text(s, " ");
        put_word(s, PL_LIST_GOODS, s->goods, n == 1 ? 0 : 1);
    }
}

static void say_clock(struct pl_tale *s, uint32_t hour)
{
    put_number(s, hour > 12 ? hour - 12 : hour);
    put_text(s, " o'clock");
}

static void say_season(struct pl_tale *s, enum pl_tale_attribute attribute)
{
    if (attribute == PL_SEASON_NAME) {
        put_word(s, PL_LIST_SEASON, s->season, 0);
        return;
    }
    enum pl_tale_list scenes = (enum pl_tale_list)(PL_LIST_SPRING + s->season);
    put_word(s, scenes, pl_tale_ranked(s, pl_tales_items(s->t, scenes)), 0);
}

static void say_record(struct pl_tale *s, uint32_t which, uint32_t field)
{
    static const enum pl_tale_list lists[PL_RECORDS] = {PL_LIST_MISHAP, PL_LIST_RIDDLE, PL_LIST_SPOT,
                                                        PL_LIST_ROOM};
    put_word(s, lists[which], s->record[which], field);
}

static void say_teller(struct pl_tale *s, enum pl_tale_attribute attribute)
{
    uint32_t sayings = pl_tales_items(s->t, PL_LIST_SAYING);
    if (attribute == PL_TELLER_NAME)
        put_word(s, PL_LIST_TELLER, s->teller, 0);
    else
        put_word(s, PL_LIST_SAYING, pl_tales_mix(s->teller, GROUP_SLOTS - 1) % sayings, 0);
}

/* ---- sentences ---- */

static void say_op(struct pl_tale *s, const struct pl_op *op)
{
    enum pl_tale_attribute attribute = (enum pl_tale_attribute)op->b;
    if (op->kind == PL_OP_TEXT)
        put(s, op->text, op->len);
    else if (op->kind == PL_OP_CAPITAL)
        s->capital = true;
    else if (op->kind == PL_OP_ARTICLE)
        s->article = true;
    else if (op->kind == PL_OP_PERSON)
        say_person(s, s->role[op->a], attribute);
    else if (op->kind == PL_OP_VILLAGE)
        say_village(s, s->place[op->a], attribute);
    else if (op->kind == PL_OP_ROAD)
        say_road(s, attribute);
    else if (op->kind == PL_OP_THING && attribute == PL_THING_NAME)
        put_word(s, PL_LIST_THING, s->thing[s->spoken].item, 0);
    else if (op->kind == PL_OP_THING)
        say_where(s, &s->thing[s->spoken]);
    else if (op->kind == PL_OP_GOODS)
        put_word(s, PL_LIST_GOODS, s->goods, attribute == PL_GOODS_PACK ? 2 : 1);
    else if (op->kind == PL_OP_NUMBER)
        say_number(s, s->number[op->a], attribute);
    else if (op->kind == PL_OP_CLOCK)
        say_clock(s, attribute == PL_CLOCK_NOW ? s->clock : s->clock_then);
    else if (op->kind == PL_OP_SEASON)
        say_season(s, attribute);
    else if (op->kind == PL_OP_TELLER)
        say_teller(s, attribute);
    else if (op->kind == PL_OP_RECORD)
        say_record(s, op->a, op->b);
    else
        put_word(s, (enum pl_tale_list)op->a,
                 pl_tale_ranked(s, pl_tales_items(s->t, (enum pl_tale_list)op->a)), 0);
}

void pl_tale_say(struct pl_tale *s, enum pl_tale_group group)
{
    /* Each teller has an order of preference, and moves on by one when a group comes up again. */
    uint32_t n = pl_tales_group_size(s->t, group);
    uint32_t first = pl_tales_mix(s->teller, GROUP_SLOTS + (uint32_t)group) + s->uses[group]++;
    uint32_t pick = (first % n + pl_tale_steep(s, n)) % n;
    if (s->len > s->line_start)
        put_plain(s, " ", 1);
    s->capital = true;
    const struct pl_op *op = &s->t->ops[s->t->sentences[s->t->group_at[group] + pick]];
    while (op->kind != PL_OP_END && s->open_choices == 0) {
        if (op->kind == PL_OP_HABIT)
            op += 1 + pl_tale_habit(s, op->n, op->len);
        if (op->kind == PL_OP_BRANCH) {
            op += op->len;
            continue;
        }
        say_op(s, op++);
    }
}

void pl_tale_say_of(struct pl_tale *s, enum pl_tale_group group, enum pl_tale_thing which)
{
    s->spoken = which;
    pl_tale_say(s, group);
    s->spoken = PL_THING_O;
}

void pl_tale_end_line(struct pl_tale *s)
{
    put_plain(s, "\n", 1);
    s->line_start = s->len;
    s->focus[0] = s->focus[1] = PL_NONE32;
}
