/* data/tales_int.h - the inside of the tales: the world, the compiled sentences, one story in the making.
 *
 * tales_world.c makes the people, villages and roads; tales_markup.c compiles the sentences; tales_choice.c is the one
 * place that draws; tales_say.c turns a compiled sentence into words; tales_plot.c and tales_home.c decide what happens.
 */
#ifndef PL_DATA_TALES_INT_H
#define PL_DATA_TALES_INT_H

#include "base/prng.h"
#include "data/tales.h"

#include <stdbool.h>
#include <stddef.h>

enum pl_tale_list {
#define LIST(name, fields, items) PL_LIST_##name,
#include "data/tales/words.def"
#undef LIST
    PL_LISTS
};

enum pl_tale_group {
#define GROUP(name) PL_SAY_##name,
#define SAY(text)
#include "data/tales/sentences.def"
#undef GROUP
#undef SAY
    PL_GROUPS
};

enum {
    PL_MAP_WIDTH = 12,
    PL_MAP_HEIGHT = 8,
    PL_VILLAGES = PL_MAP_WIDTH * PL_MAP_HEIGHT,
    PL_RESIDENTS = 16,
    PL_PEOPLE = PL_VILLAGES * PL_RESIDENTS, /* the lower the number, the more famous */
    PL_WORDS_MAX = 4096,
    PL_SENTENCES_MAX = 512,
    PL_OPS_MAX = 8192,
    PL_WAYS = 4, /* north, east, south, west */
};

/* ---- the world ---- */

struct pl_word {
    const char *text; /* not zero-terminated */
    uint32_t len;
};

/* Each fact is the number of an item in the list of that name. */
struct pl_person {
    bool female;
    uint8_t first, job, trait, pet, petname, food, house, phrase, fear, likes, wears, kin, tune, keeps,
        manner, village, age;
    uint16_t family, friend;
};

struct pl_village {
    uint8_t river, inn, day, craft, sight, feast, saying, dearness;
    uint16_t elder;
};

struct pl_road {
    uint8_t hours, mark;
};

/* ---- sentences ---- */

enum pl_tale_op {
    PL_OP_TEXT,
    PL_OP_CAPITAL,
    PL_OP_ARTICLE,
    PL_OP_PERSON,  /* a: role, b: attribute */
    PL_OP_VILLAGE, /* a: role, b: attribute */
    PL_OP_ROAD,
    PL_OP_THING,
    PL_OP_GOODS,
    PL_OP_NUMBER, /* a: which, b: how */
    PL_OP_CLOCK,
    PL_OP_SEASON,
    PL_OP_TELLER,
    PL_OP_RECORD, /* a: register, b: field */
    PL_OP_LIST,   /* a: list, drawn from freely */
    PL_OP_HABIT,  /* n: alternatives, their OP_BRANCHes follow; len: number of the slot */
    PL_OP_BRANCH, /* len: distance to the alternative, which ends with a branch to the common end */
    PL_OP_END
};

struct pl_op {
    uint8_t kind, a, b, n;
    uint32_t len;
    const char *text;
};

/* What an attribute op shows, as compiled by tales_markup.c and read by tales_say.c. */
enum pl_tale_attribute {
#define ATTRIBUTE(kind, name, text) PL_##kind##_##name,
#include "data/tales/attributes.def"
#undef ATTRIBUTE
    PL_ATTRIBUTES
};

struct pl_tales {
    struct pl_alloc alloc;
    struct pl_word words[PL_WORDS_MAX];
    uint16_t list_at[PL_LISTS + 1]; /* first word of a list */
    uint8_t list_fields[PL_LISTS];
    struct pl_op ops[PL_OPS_MAX];
    uint32_t op_count;
    uint16_t sentences[PL_SENTENCES_MAX]; /* first op */
    uint16_t group_at[PL_GROUPS + 1];     /* first sentence of a group */
    struct pl_person people[PL_PEOPLE];
    struct pl_village villages[PL_VILLAGES];
    struct pl_road roads[PL_VILLAGES][2]; /* the one to the east, the one to the south */
    uint8_t prices[64];                   /* of goods, in pennies, where life is cheap */
    uint32_t ranked[PL_PEOPLE + 1];       /* sums of 1/(rank + 2), scaled */
    uint32_t steep[64 + 1];               /* sums of 1/(rank + 1)^2, scaled */
};

/* Items of the list, and a field of one. */
uint32_t pl_tales_items(const struct pl_tales *t, enum pl_tale_list list);
struct pl_word pl_tales_word(const struct pl_tales *t, enum pl_tale_list list, uint32_t item, uint32_t field);
uint32_t pl_tales_group_size(const struct pl_tales *t, enum pl_tale_group group);

void pl_tales_load_words(struct pl_tales *t);
void pl_tales_compile(struct pl_tales *t);
void pl_tales_make_world(struct pl_tales *t);

/* The j-th most famous resident of a village. */
uint32_t pl_tales_resident(uint32_t village, uint32_t j);
/* The village next to this one on the map, or PL_NONE32 at the edge. */
uint32_t pl_tales_neighbour(uint32_t village, uint32_t way);
/* The way from one village to its neighbour. */
uint32_t pl_tales_way(uint32_t from, uint32_t to);
struct pl_road pl_tales_road(const struct pl_tales *t, uint32_t from, uint32_t to);

/* A fixed pseudo-random number for a pair: what a teller does in a place. */
static inline uint32_t pl_tales_mix(uint32_t a, uint32_t b)
{
    uint64_t x = ((uint64_t)a << 32 | b) + UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return (uint32_t)(x >> 32);
}

/* ---- a story in the making ---- */

enum pl_tale_role { PL_ROLE_A, PL_ROLE_B, PL_ROLE_C, PL_ROLE_X, PL_ROLE_Y, PL_ROLES };
enum pl_tale_place { PL_PLACE_H, PL_PLACE_D, PL_PLACE_V, PL_PLACES };
enum pl_tale_thing { PL_THING_O, PL_THING_P, PL_THINGS };
enum pl_tale_record { PL_REC_MISHAP, PL_REC_RIDDLE, PL_REC_SPOT, PL_REC_ROOM, PL_RECORDS };

struct pl_thing {
    uint32_t item;
    uint32_t holder;  /* a person, or PL_NONE32 */
    uint32_t spot;    /* where it lies when nobody holds it: a SPOT in a village, or a ROOM when at home */
    uint32_t village; /* PL_NONE32: at home, in a room */
};

struct pl_tale {
    const struct pl_tales *t;
    struct pl_prng prng;
    double nats;
    /* A test may dictate the choices: the first script_len are taken from script; then the telling stops. */
    const uint16_t *script;
    uint32_t script_len, made;
    uint32_t open_choices; /* alternatives at the first choice past the script, 0 when there was none */
    uint32_t open_len;     /* length of the text by then */
    bool impossible;       /* the script took an alternative of probability 0 */

    char text[PL_TALES_STORY_BYTES_MAX];
    uint32_t len, line_start;
    bool capital, article;
    uint32_t focus[2]; /* whom "he" and "she" mean; PL_NONE32: nobody */
    uint8_t uses[PL_GROUPS];

    uint32_t teller, season, clock, clock_then, hours; /* hours walked */
    uint32_t role[PL_ROLES];
    uint32_t place[PL_PLACES];
    struct pl_thing thing[PL_THINGS];
    enum pl_tale_thing spoken; /* which one {O} means */
    uint32_t record[PL_RECORDS];
    uint32_t goods;
    uint32_t number[6];
    uint32_t have, pence; /* goods and pennies of the hero */
};

/* Draws. Each returns the alternative and adds its -ln p; a single alternative is no choice. */
uint32_t pl_tale_even(struct pl_tale *s, uint32_t n);
uint32_t pl_tale_ranked(struct pl_tale *s, uint32_t n); /* weight 1/(rank + 2) */
uint32_t pl_tale_steep(struct pl_tale *s, uint32_t n);  /* weight 1/(rank + 1)^2 */
uint32_t pl_tale_weighted(struct pl_tale *s, const uint32_t *weights,
                          uint32_t n); /* n <= 32, some weight > 0 */
/* Mostly the alternative that this teller prefers in this slot. */
uint32_t pl_tale_habit(struct pl_tale *s, uint32_t n, uint32_t slot);

/* One of the list, the earlier ones more often. */
uint32_t pl_tale_item(struct pl_tale *s, enum pl_tale_list list);
/* Whether the teller puts something in: most do as they always do. */
enum pl_tale_inclination {
    PL_INCLINED_RIDDLE,
    PL_INCLINED_MORE,
    PL_INCLINED_ROAD,
    PL_INCLINED_MORAL,
    PL_INCLINED_THANK,
    PL_INCLINED_PAUSE
};
bool pl_tale_inclined(struct pl_tale *s, enum pl_tale_inclination what);

/* One sentence of the group; with {O} for this thing; a new line. */
void pl_tale_say(struct pl_tale *s, enum pl_tale_group group);
void pl_tale_say_of(struct pl_tale *s, enum pl_tale_group group, enum pl_tale_thing which);
void pl_tale_end_line(struct pl_tale *s);

/* So many facts about a person. */
void pl_tale_facts(struct pl_tale *s, uint32_t person, uint32_t count);
/* The two things of a story are never of the same kind. */
void pl_tale_draw_thing(struct pl_tale *s, enum pl_tale_thing which, uint32_t holder);
/* A day at home: things are carried from room to room. */
void pl_tale_plot_home(struct pl_tale *s);

/* The whole story, from the first choice to the last. */
void pl_tale_tell(struct pl_tale *s);
void pl_tale_start(struct pl_tale *s, const struct pl_tales *t);

#endif
