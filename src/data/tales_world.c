/* data/tales_world.c - the words, people, villages and roads of the one world that all stories share.
 *
 * Villages lie on a map of 12 by 8; each knows its neighbours to the north, east, south and west. Person k lives in
 * village 35k mod 96: 35 and 96 have no common divisor, so each village gets 16 people, one of each rank of fame.
 */
#include "data/tales_int.h"

#include "base/check.h"

#include <string.h>

#define WORLD_SEED UINT64_C(0x7A1E5) /* changing it changes every fact */

enum { STRIDE = 35, STRIDE_INVERSE = 11, FAMILIES = 2 * PL_VILLAGES };
_Static_assert(STRIDE *STRIDE_INVERSE % PL_VILLAGES == 1, "resident and village are inverse to each other");

enum stream { STREAM_PEOPLE = 1, STREAM_VILLAGES, STREAM_ROADS, STREAM_PRICES };

/* ---- words ---- */

static const char *const list_text[PL_LISTS] = {
#define LIST(name, fields, items) items,
#include "data/tales/words.def"
#undef LIST
};
static const uint8_t list_fields[PL_LISTS] = {
#define LIST(name, fields, items) fields,
#include "data/tales/words.def"
#undef LIST
};

void pl_tales_load_words(struct pl_tales *t)
{
    uint32_t count = 0;
    for (uint32_t list = 0; list < PL_LISTS; list++) {
        t->list_at[list] = (uint16_t)count;
        t->list_fields[list] = list_fields[list];
        for (const char *at = list_text[list];;) {
            size_t len = strcspn(at, "|/");
            pl_assert(count < PL_WORDS_MAX && len > 0);
            t->words[count++] = (struct pl_word){at, (uint32_t)len};
            if (at[len] != '/')
                pl_assert((count - t->list_at[list]) % list_fields[list] == 0);
            if (at[len] == '\0')
                break;
            at += len + 1;
        }
    }
    t->list_at[PL_LISTS] = (uint16_t)count;
}

uint32_t pl_tales_items(const struct pl_tales *t, enum pl_tale_list list)
{
    return (uint32_t)(t->list_at[list + 1] - t->list_at[list]) / t->list_fields[list];
}

struct pl_word pl_tales_word(const struct pl_tales *t, enum pl_tale_list list, uint32_t item, uint32_t field)
{
    uint32_t at = t->list_at[list] + item * t->list_fields[list] + field;
    pl_assert(field < t->list_fields[list] && at < t->list_at[list + 1]);
    return t->words[at];
}

/* ---- the map ---- */

uint32_t pl_tales_resident(uint32_t village, uint32_t j)
{
    return PL_VILLAGES * j + village * STRIDE_INVERSE % PL_VILLAGES;
}

uint32_t pl_tales_neighbour(uint32_t village, uint32_t way)
{
    static const int dx[PL_WAYS] = {0, 1, 0, -1}, dy[PL_WAYS] = {-1, 0, 1, 0};
    int x = (int)(village % PL_MAP_WIDTH) + dx[way], y = (int)(village / PL_MAP_WIDTH) + dy[way];
    if (x < 0 || x >= PL_MAP_WIDTH || y < 0 || y >= PL_MAP_HEIGHT)
        return PL_NONE32;
    return (uint32_t)(y * PL_MAP_WIDTH + x);
}

uint32_t pl_tales_way(uint32_t from, uint32_t to)
{
    uint32_t way = 0;
    while (way < PL_WAYS && pl_tales_neighbour(from, way) != to)
        way++;
    pl_assert(way < PL_WAYS);
    return way;
}

struct pl_road pl_tales_road(const struct pl_tales *t, uint32_t from, uint32_t to)
{
    uint32_t way = pl_tales_way(from, to);
    bool forth = way == 1 || way == 2; /* a road belongs to its western or northern end */
    return t->roads[forth ? from : to][way % 2 == 1 ? 0 : 1];
}

/* ---- making it ---- */

static uint8_t draw(const struct pl_tales *t, struct pl_prng *r, enum pl_tale_list list)
{
    return (uint8_t)pl_prng_below(r, pl_tales_items(t, list));
}

/* The first names of a village differ, so that a first name is enough within it. */
static bool first_name_taken(const struct pl_tales *t, uint32_t k, const struct pl_person *p)
{
    for (uint32_t j = 0; pl_tales_resident(p->village, j) < k; j++) {
        const struct pl_person *other = &t->people[pl_tales_resident(p->village, j)];
        if (other->female == p->female && other->first == p->first)
            return true;
    }
    return false;
}

static void make_person(struct pl_tales *t, struct pl_prng *r, uint32_t k)
{
    struct pl_person *p = &t->people[k];
    p->village = (uint8_t)(k * STRIDE % PL_VILLAGES);
    p->female = pl_prng_below(r, 2) == 1;
    p->first = draw(t, r, p->female ? PL_LIST_FEMALE : PL_LIST_MALE);
    while (first_name_taken(t, k, p))
        p->first = draw(t, r, p->female ? PL_LIST_FEMALE : PL_LIST_MALE);
    p->family = (uint16_t)(p->village + PL_VILLAGES * pl_prng_below(r, 2));
    p->job = draw(t, r, PL_LIST_JOB);
    p->trait = draw(t, r, PL_LIST_TRAIT);
    p->pet = draw(t, r, PL_LIST_PET);
    p->petname = draw(t, r, PL_LIST_PETNAME);
    p->food = draw(t, r, PL_LIST_FOOD);
    p->house = draw(t, r, PL_LIST_HOUSE);
    p->phrase = draw(t, r, PL_LIST_PHRASE);
    p->fear = draw(t, r, PL_LIST_FEAR);
    p->likes = draw(t, r, PL_LIST_LIKES);
    p->wears = draw(t, r, PL_LIST_WEARS);
    p->manner = draw(t, r, PL_LIST_MANNER);
    p->kin = draw(t, r, PL_LIST_KIN);
    p->tune = draw(t, r, PL_LIST_TUNE);
    p->keeps = draw(t, r, PL_LIST_THING);
    p->age = (uint8_t)pl_prng_range(r, 21, 79);
}

/* A friend lives in the next village and has another first name. */
static void make_friend(struct pl_tales *t, struct pl_prng *r, uint32_t k)
{
    struct pl_person *p = &t->people[k];
    uint32_t village = PL_NONE32;
    while (village == PL_NONE32)
        village = pl_tales_neighbour(p->village, (uint32_t)pl_prng_below(r, PL_WAYS));
    const struct pl_person *other;
    do {
        p->friend = (uint16_t)pl_tales_resident(village, (uint32_t)pl_prng_below(r, PL_RESIDENTS));
        other = &t->people[p->friend];
    } while (other->female == p->female && other->first == p->first);
}

static void make_village(struct pl_tales *t, struct pl_prng *r, uint32_t v)
{
    struct pl_village *village = &t->villages[v];
    village->river = draw(t, r, PL_LIST_RIVER);
    village->inn = draw(t, r, PL_LIST_INN);
    village->day = draw(t, r, PL_LIST_DAY);
    village->craft = draw(t, r, PL_LIST_CRAFT);
    village->sight = draw(t, r, PL_LIST_SIGHT);
    village->feast = draw(t, r, PL_LIST_FEAST);
    village->saying = draw(t, r, PL_LIST_SAYING);
    village->dearness = (uint8_t)pl_prng_below(r, 3);
    village->elder = (uint16_t)pl_tales_resident(v, (uint32_t)pl_prng_below(r, PL_RESIDENTS));
}

static void make_weights(struct pl_tales *t)
{
    const uint32_t one = 1u << 20;
    for (uint32_t k = 0; k < PL_PEOPLE; k++)
        t->ranked[k + 1] = t->ranked[k] + one / (k + 2);
    for (uint32_t k = 0; k + 1 < sizeof t->steep / sizeof t->steep[0]; k++)
        t->steep[k + 1] = t->steep[k] + one / ((k + 1) * (k + 1));
}

void pl_tales_make_world(struct pl_tales *t)
{
    struct pl_prng r;
    pl_assert(pl_tales_items(t, PL_LIST_VILLAGE) == PL_VILLAGES &&
              pl_tales_items(t, PL_LIST_FAMILY) == FAMILIES);
    pl_assert(pl_tales_items(t, PL_LIST_GOODS) <= sizeof t->prices);
    make_weights(t);
    pl_prng_seed(&r, WORLD_SEED, STREAM_PEOPLE);
    for (uint32_t k = 0; k < PL_PEOPLE; k++)
        make_person(t, &r, k);
    for (uint32_t k = 0; k < PL_PEOPLE; k++)
        make_friend(t, &r, k);
    pl_prng_seed(&r, WORLD_SEED, STREAM_VILLAGES);
    for (uint32_t v = 0; v < PL_VILLAGES; v++)
        make_village(t, &r, v);
    pl_prng_seed(&r, WORLD_SEED, STREAM_ROADS);
    for (uint32_t v = 0; v < PL_VILLAGES; v++)
        for (uint32_t side = 0; side < 2; side++)
            t->roads[v][side] =
                (struct pl_road){(uint8_t)pl_prng_range(&r, 1, 3), draw(t, &r, PL_LIST_ROADMARK)};
    pl_prng_seed(&r, WORLD_SEED, STREAM_PRICES);
    for (uint32_t g = 0; g < pl_tales_items(t, PL_LIST_GOODS); g++)
        t->prices[g] = (uint8_t)pl_prng_range(&r, 1, 6);
}
