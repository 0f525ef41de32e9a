/* data/tales_plot.c - what happens: five plots out of common scenes, and the questions at the end (the sixth is in
 * tales_home.c).
 *
 * The state of the story (who holds what, how many, what time it is) is kept here; the sentences only show it. A choice
 * is always followed by words that give it away, so that the text determines the choices.
 */
#include "data/tales_int.h"

#include "base/check.h"

#include <string.h>

enum {
    COUNT_MIN = 2, /* of goods, so that the plural is right */
    COUNT_MAX = 60,
    PLOT_SLOTS = 1 << 21, /* slots of habits of telling, after those of words and groups */
};

static const uint32_t mostly[] = {3, 1};

enum question { Q_WHERE_O, Q_WHERE_P, Q_COUNT, Q_PENCE, Q_HOURS, Q_WHO, Q_ABOUT, Q_PLACE, QUESTIONS };

/* ---- draws with a meaning ---- */

bool pl_tale_inclined(struct pl_tale *s, enum pl_tale_inclination habit)
{
    bool usually = pl_tales_mix(s->teller, PLOT_SLOTS + (uint32_t)habit) % 2 == 1;
    return (pl_tale_weighted(s, (const uint32_t[]){7, 1}, 2) == 0) == usually;
}

static uint32_t draw_number(struct pl_tale *s, uint32_t low, uint32_t high)
{
    return low + pl_tale_even(s, high - low + 1);
}

uint32_t pl_tale_item(struct pl_tale *s, enum pl_tale_list list)
{
    return pl_tale_ranked(s, pl_tales_items(s->t, list));
}

static bool same_first_name(const struct pl_tale *s, uint32_t k, uint32_t other)
{
    const struct pl_person *p = &s->t->people[k], *q = &s->t->people[other];
    return p->female == q->female && p->first == q->first;
}

/* Somebody of the village whose first name nobody of the story has yet; the famous ones first. */
static uint32_t draw_resident(struct pl_tale *s, uint32_t village)
{
    uint32_t weights[PL_RESIDENTS];
    for (uint32_t j = 0; j < PL_RESIDENTS; j++) {
        weights[j] = s->t->ranked[j + 1] - s->t->ranked[j];
        for (uint32_t r = 0; r < PL_ROLES; r++)
            if (s->role[r] != PL_NONE32 && same_first_name(s, pl_tales_resident(village, j), s->role[r]))
                weights[j] = 0;
    }
    return pl_tales_resident(village, pl_tale_weighted(s, weights, PL_RESIDENTS));
}

static uint32_t draw_neighbour(struct pl_tale *s, uint32_t village)
{
    uint32_t weights[PL_WAYS];
    for (uint32_t way = 0; way < PL_WAYS; way++)
        weights[way] = pl_tales_neighbour(village, way) != PL_NONE32;
    return pl_tales_neighbour(village, pl_tale_weighted(s, weights, PL_WAYS));
}

/* ---- facts ---- */

/* Tells `count` of the groups first .. first + n - 1, each at most once, in the order this teller tends to. */
static void tell_some(struct pl_tale *s, enum pl_tale_group first, uint32_t n, uint32_t count)
{
    uint32_t weights[32], turn = pl_tales_mix(s->teller, PLOT_SLOTS + 64 + (uint32_t)first);
    pl_assert(n <= 32 && count <= n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t rank = (i + turn) % n;
        weights[i] = s->t->ranked[rank + 1] - s->t->ranked[rank];
    }
    for (; count > 0; count--) {
        uint32_t pick = pl_tale_weighted(s, weights, n);
        weights[pick] = 0;
        pl_tale_say(s, (enum pl_tale_group)(first + pick));
    }
}

void pl_tale_facts(struct pl_tale *s, uint32_t person, uint32_t count)
{
    s->role[PL_ROLE_X] = person;
    tell_some(s, PL_SAY_FACT_TRAIT, PL_SAY_FACT_WORK - PL_SAY_FACT_TRAIT + 1, count);
    s->role[PL_ROLE_X] = PL_NONE32;
}

static void tell_village(struct pl_tale *s, uint32_t village, uint32_t count)
{
    s->place[PL_PLACE_V] = village;
    tell_some(s, PL_SAY_VILLAGE_RIVER, PL_SAY_VILLAGE_ELDER - PL_SAY_VILLAGE_RIVER + 1, count);
}

/* ---- the hero's goods ---- */

static void gain(struct pl_tale *s, enum pl_tale_group how, uint32_t n)
{
    s->have += n;
    s->number[1] = n;
    s->number[2] = s->have;
    pl_tale_say(s, how);
}

/* At least two are given and two are kept; nothing happens when there are too few. */
static void part_with(struct pl_tale *s, enum pl_tale_group how)
{
    if (s->have < 2 * COUNT_MIN)
        return;
    uint32_t most = s->have - COUNT_MIN, n = draw_number(s, COUNT_MIN, most < 9 ? most : 9);
    s->have -= n;
    s->number[1] = n;
    s->number[2] = s->have;
    pl_tale_say(s, how);
}

static void put_away(struct pl_tale *s, enum pl_tale_thing which, enum pl_tale_group how)
{
    struct pl_thing *thing = &s->thing[which];
    s->record[PL_REC_SPOT] = thing->spot = pl_tale_item(s, PL_LIST_SPOT);
    thing->holder = PL_NONE32;
    thing->village = s->place[PL_PLACE_H];
    pl_tale_say_of(s, how, which);
}

/* ---- scenes ---- */

static void road_scene(struct pl_tale *s)
{
    tell_some(s, PL_SAY_ROAD_BIRD, PL_SAY_ROAD_SONG - PL_SAY_ROAD_BIRD + 1, 1);
    if (s->have >= 2 * COUNT_MIN && s->have <= COUNT_MAX - 9 && pl_tale_inclined(s, PL_INCLINED_MORE)) {
        if (pl_tale_even(s, 2) == 0)
            part_with(s, PL_SAY_EAT);
        else
            gain(s, PL_SAY_FIND, draw_number(s, COUNT_MIN, 9));
    }
}

/* The hero walks from H to D and is there. */
static void walk(struct pl_tale *s, uint32_t to)
{
    s->place[PL_PLACE_D] = to;
    s->clock = draw_number(s, 6, 9);
    pl_tale_say(s, PL_SAY_TRAVEL);
    if (pl_tale_inclined(s, PL_INCLINED_ROAD))
        road_scene(s);
    uint32_t hours = pl_tales_road(s->t, s->place[PL_PLACE_H], to).hours;
    s->clock += hours;
    s->hours += hours;
    pl_tale_say(s, PL_SAY_ARRIVE);
    s->place[PL_PLACE_H] = to;
    tell_village(s, to, 1);
}

static void walk_back(struct pl_tale *s, uint32_t to)
{
    s->place[PL_PLACE_D] = to;
    uint32_t hours = pl_tales_road(s->t, s->place[PL_PLACE_H], to).hours;
    s->clock_then = s->clock + hours;
    pl_tale_say(s, PL_SAY_RETURN);
    if (pl_tale_inclined(s, PL_INCLINED_ROAD))
        road_scene(s);
    s->clock = s->clock_then;
    s->hours += hours;
    s->place[PL_PLACE_H] = to;
}

static void riddle(struct pl_tale *s)
{
    s->record[PL_REC_RIDDLE] = pl_tale_item(s, PL_LIST_RIDDLE);
    pl_tale_say(s, pl_tale_weighted(s, mostly, 2) == 0 ? PL_SAY_RIDDLE_TOLD : PL_SAY_RIDDLE_HARD);
}

static void chat(struct pl_tale *s)
{
    pl_tale_say(s, PL_SAY_GREET);
    pl_tale_facts(s, s->role[PL_ROLE_B], 1);
    if (pl_tale_inclined(s, PL_INCLINED_RIDDLE))
        riddle(s);
}

static void present(struct pl_tale *s)
{
    s->goods = pl_tale_item(s, PL_LIST_GOODS);
    gain(s, PL_SAY_GIFT, draw_number(s, COUNT_MIN, 12));
    if (pl_tale_inclined(s, PL_INCLINED_MORE))
        gain(s, PL_SAY_GIFT_MORE, draw_number(s, COUNT_MIN, 9));
}

/* ---- questions ---- */

static void ask(struct pl_tale *s, enum question question)
{
    static const enum pl_tale_group groups[QUESTIONS] = {
        PL_SAY_ASK_WHERE, PL_SAY_ASK_WHERE, PL_SAY_ASK_COUNT, PL_SAY_ASK_PENCE,
        PL_SAY_ASK_HOURS, PL_SAY_ASK_WHO,   PL_SAY_ASK_ABOUT, PL_SAY_ASK_PLACE,
    };
    s->number[1] = question == Q_COUNT ? s->have : question == Q_PENCE ? s->pence : s->hours;
    s->place[PL_PLACE_V] = s->t->people[s->role[PL_ROLE_B]].village;
    pl_tale_say_of(s, groups[question], question == Q_WHERE_P ? PL_THING_P : PL_THING_O);
}

/* Somebody of the hero's village comes and asks two or three things, out of those the story has an answer to. */
static void questions(struct pl_tale *s)
{
    uint32_t weights[QUESTIONS] = {
        [Q_WHERE_O] = s->thing[PL_THING_O].item != PL_NONE32 ? 4 : 0,
        [Q_WHERE_P] = s->thing[PL_THING_P].item != PL_NONE32 ? 4 : 0,
        [Q_COUNT] = s->have >= COUNT_MIN ? 3 : 0,
        [Q_PENCE] = s->pence != PL_NONE32 ? 3 : 0,
        [Q_HOURS] = s->hours > 0 ? 2 : 0,
        [Q_WHO] = 2,
        [Q_ABOUT] = 2,
        [Q_PLACE] = 2,
    };
    s->role[PL_ROLE_C] = draw_resident(s, s->t->people[s->role[PL_ROLE_A]].village);
    pl_tale_say(s, PL_SAY_ASK_OPEN);
    for (uint32_t left = 2 + pl_tale_even(s, 2); left > 0; left--) {
        uint32_t question = pl_tale_weighted(s, weights, QUESTIONS);
        weights[question] = 0;
        ask(s, (enum question)question);
    }
}

/* ---- plots ---- */

void pl_tale_draw_thing(struct pl_tale *s, enum pl_tale_thing which, uint32_t holder)
{
    uint32_t taken = which == PL_THING_P ? s->thing[PL_THING_O].item : PL_NONE32;
    uint32_t item = pl_tale_ranked(s, pl_tales_items(s->t, PL_LIST_THING) - (which == PL_THING_P));
    s->thing[which] = (struct pl_thing){item + (item >= taken), holder, 0, s->place[PL_PLACE_H]};
}

/* The hero brings something to a friend in the next village. */
static void plot_deliver(struct pl_tale *s)
{
    uint32_t home = s->place[PL_PLACE_H], hero = s->role[PL_ROLE_A];
    s->role[PL_ROLE_B] = s->t->people[hero].friend;
    s->place[PL_PLACE_D] = s->t->people[s->role[PL_ROLE_B]].village;
    pl_tale_draw_thing(s, PL_THING_O, hero);
    pl_tale_say(s, PL_SAY_GOAL_DELIVER);
    pl_tale_end_line(s);
    walk(s, s->place[PL_PLACE_D]);
    pl_tale_end_line(s);
    pl_tale_say(s, PL_SAY_MEET_FRIEND);
    chat(s);
    pl_tale_say(s, PL_SAY_GIVE);
    s->thing[PL_THING_O].holder = s->role[PL_ROLE_B];
    if (pl_tale_inclined(s, PL_INCLINED_THANK))
        pl_tale_say(s, PL_SAY_THANK);
    if (pl_tale_weighted(s, mostly, 2) == 0)
        put_away(s, PL_THING_O, PL_SAY_STOW);
    present(s);
    walk_back(s, home);
}

/* Buying at the price of the place, paying, and sharing with somebody met there. */
static void plot_market(struct pl_tale *s)
{
    uint32_t home = s->place[PL_PLACE_H];
    s->goods = pl_tale_item(s, PL_LIST_GOODS);
    s->place[PL_PLACE_D] = draw_neighbour(s, home);
    pl_tale_say(s, PL_SAY_GOAL_MARKET);
    s->number[1] = s->pence = draw_number(s, 24, 48);
    pl_tale_say(s, PL_SAY_PURSE);
    pl_tale_end_line(s);
    walk(s, s->place[PL_PLACE_D]);
    pl_tale_end_line(s);
    uint32_t price = s->t->prices[s->goods] + s->t->villages[s->place[PL_PLACE_H]].dearness;
    s->number[2] = price;
    pl_tale_say(s, PL_SAY_PRICE);
    s->number[1] = s->have = draw_number(s, COUNT_MIN, s->pence / price < 12 ? s->pence / price : 12);
    s->number[3] = s->have * price;
    s->number[4] = s->pence -= s->number[3];
    pl_tale_say(s, PL_SAY_BUY);
    pl_tale_say(s, PL_SAY_CHANGE);
    s->role[PL_ROLE_B] = draw_resident(s, s->place[PL_PLACE_V] = s->place[PL_PLACE_H]);
    pl_tale_say(s, PL_SAY_MEET_NEW);
    chat(s);
    part_with(s, PL_SAY_SHARE);
    walk_back(s, home);
}

/* The keepsake is gone; one knows who has it, in the next village, where it is found. */
static void plot_lost(struct pl_tale *s)
{
    uint32_t home = s->place[PL_PLACE_H], hero = s->role[PL_ROLE_A];
    s->thing[PL_THING_O] = (struct pl_thing){s->t->people[hero].keeps, PL_NONE32, 0, home};
    pl_tale_say(s, PL_SAY_GOAL_LOST);
    s->role[PL_ROLE_B] = draw_resident(s, s->place[PL_PLACE_V] = home);
    pl_tale_say(s, PL_SAY_MEET_NEW);
    pl_tale_say(s, PL_SAY_GREET);
    s->place[PL_PLACE_D] = draw_neighbour(s, home);
    s->role[PL_ROLE_C] = draw_resident(s, s->place[PL_PLACE_D]);
    pl_tale_say(s, PL_SAY_LOST_CLUE);
    pl_tale_end_line(s);
    walk(s, s->place[PL_PLACE_D]);
    pl_tale_end_line(s);
    s->role[PL_ROLE_B] = s->role[PL_ROLE_C];
    pl_tale_say(s, PL_SAY_MEET_FRIEND);
    chat(s);
    put_away(s, PL_THING_O, PL_SAY_LOST_FOUND);
    if (pl_tale_weighted(s, mostly, 2) == 0) {
        pl_tale_say(s, PL_SAY_LOST_BACK);
        s->thing[PL_THING_O].holder = hero;
    }
    present(s);
    walk_back(s, home);
}

/* Something breaks; a craftsman of the next village knows what it takes. */
static void plot_mend(struct pl_tale *s)
{
    uint32_t home = s->place[PL_PLACE_H];
    s->record[PL_REC_MISHAP] = pl_tale_item(s, PL_LIST_MISHAP);
    pl_tale_say(s, PL_SAY_GOAL_MEND);
    s->place[PL_PLACE_D] = draw_neighbour(s, home);
    s->role[PL_ROLE_B] = draw_resident(s, s->place[PL_PLACE_D]);
    pl_tale_say(s, PL_SAY_MEND_NEED);
    pl_tale_end_line(s);
    walk(s, s->place[PL_PLACE_D]);
    pl_tale_end_line(s);
    pl_tale_say(s, PL_SAY_MEET_FRIEND);
    chat(s);
    pl_tale_say(s, PL_SAY_MEND_HELP);
    present(s);
    part_with(s, PL_SAY_SHARE);
    walk_back(s, home);
    pl_tale_say(s, PL_SAY_MEND_DONE);
}

static void guest(struct pl_tale *s, enum pl_tale_thing which, uint32_t from)
{
    s->role[PL_ROLE_B] = draw_resident(s, from);
    pl_tale_say(s, PL_SAY_GUEST);
    pl_tale_facts(s, s->role[PL_ROLE_B], 1);
    if (which == PL_THING_O)
        s->goods = pl_tale_item(s, PL_LIST_GOODS);
    pl_tale_draw_thing(s, which, PL_NONE32);
    s->number[1] = draw_number(s, COUNT_MIN, 12);
    pl_tale_say_of(s, PL_SAY_GUEST_BRINGS, which);
    put_away(s, which, PL_SAY_GUEST_STOW);
}

/* Two guests bring goods and presents to the feast of the village. */
static void plot_feast(struct pl_tale *s)
{
    uint32_t home = s->place[PL_PLACE_H];
    pl_tale_say(s, PL_SAY_GOAL_FEAST);
    tell_village(s, home, 1);
    pl_tale_end_line(s);
    guest(s, PL_THING_O, draw_neighbour(s, home));
    uint32_t first = s->number[1];
    s->role[PL_ROLE_C] = s->role[PL_ROLE_B];
    guest(s, PL_THING_P, draw_neighbour(s, home));
    pl_tale_end_line(s);
    s->number[2] = s->number[1];
    s->number[1] = first;
    s->have = s->number[3] = s->number[1] + s->number[2];
    pl_tale_say(s, PL_SAY_FEAST_SUM);
    pl_tale_say(s, PL_SAY_FEAST_PLAY);
    part_with(s, PL_SAY_FEAST_EAT);
    if (pl_tale_inclined(s, PL_INCLINED_RIDDLE))
        riddle(s);
}

/* ---- the whole ---- */

void pl_tale_start(struct pl_tale *s, const struct pl_tales *t)
{
    memset(s, 0, sizeof *s);
    s->t = t;
    s->focus[0] = s->focus[1] = PL_NONE32;
    for (uint32_t i = 0; i < PL_ROLES; i++)
        s->role[i] = PL_NONE32;
    for (uint32_t i = 0; i < PL_THINGS; i++)
        s->thing[i].item = PL_NONE32;
    s->pence = PL_NONE32;
}

void pl_tale_tell(struct pl_tale *s)
{
    static void (*const plots[])(struct pl_tale *) = {plot_deliver, plot_market, pl_tale_plot_home,
                                                      plot_lost,    plot_mend,   plot_feast};
    s->teller = pl_tale_item(s, PL_LIST_TELLER);
    bool told_first = pl_tale_weighted(s, mostly, 2) == 0;
    if (told_first)
        pl_tale_say(s, PL_SAY_OPEN_TOLD);
    s->season = pl_tale_even(s, pl_tales_items(s->t, PL_LIST_SEASON));
    pl_tale_say(s, PL_SAY_OPEN_SEASON);
    s->role[PL_ROLE_A] = pl_tale_ranked(s, PL_PEOPLE);
    s->place[PL_PLACE_H] = s->t->people[s->role[PL_ROLE_A]].village;
    pl_tale_say(s, PL_SAY_INTRO);
    pl_tale_facts(s, s->role[PL_ROLE_A], 1 + pl_tale_even(s, 3));
    plots[pl_tale_even(s, sizeof plots / sizeof plots[0])](s);
    pl_tale_end_line(s);
    questions(s);
    pl_tale_end_line(s);
    pl_tale_say(s, PL_SAY_ENDING);
    if (!told_first)
        pl_tale_say(s, PL_SAY_CLOSE_TOLD);
    else if (pl_tale_inclined(s, PL_INCLINED_MORAL))
        pl_tale_say(s, PL_SAY_MORAL);
    pl_tale_end_line(s);
}
