/* data/tales_home.c - a day at home: two people go from room to room, take things up, carry them along, hand them over
 * and leave them. Who has what, and where, is asked at the end. */
#include "data/tales_int.h"

#include "base/check.h"

enum { ROOMS_MAX = 32 };

enum move { GO, TAKE, DROP, HAND, MOVES };

struct home {
    uint32_t room[2];              /* of hero and guest; PL_NONE32: not said yet */
    enum pl_tale_thing carries[2]; /* PL_THINGS: nothing */
    enum move last;
};

/* Any room but the one they are in, rather one where something lies that they can carry. */
static uint32_t draw_room(struct pl_tale *s, const struct home *h, uint32_t who)
{
    uint32_t weights[ROOMS_MAX], rooms = pl_tales_items(s->t, PL_LIST_ROOM);
    pl_assert(rooms <= ROOMS_MAX);
    for (uint32_t r = 0; r < rooms; r++)
        weights[r] = s->t->ranked[r + 1] - s->t->ranked[r];
    for (uint32_t i = 0; i < PL_THINGS && h->carries[who] == PL_THINGS; i++)
        if (s->thing[i].holder == PL_NONE32)
            weights[s->thing[i].spot] += 2 * s->t->ranked[1];
    if (h->room[who] != PL_NONE32)
        weights[h->room[who]] = 0;
    return pl_tale_weighted(s, weights, rooms);
}

static void go(struct pl_tale *s, struct home *h, uint32_t who)
{
    uint32_t to = draw_room(s, h, who);
    s->record[PL_REC_ROOM] = h->room[who] = to;
    enum pl_tale_thing carried = h->carries[who];
    if (carried == PL_THINGS) {
        pl_tale_say(s, PL_SAY_HOME_GO);
        return;
    }
    s->thing[carried].spot = to;
    pl_tale_say_of(s, PL_SAY_HOME_CARRY, carried);
}

static void take(struct pl_tale *s, struct home *h, uint32_t who, enum pl_tale_thing which)
{
    h->carries[who] = which;
    s->thing[which].holder = s->role[PL_ROLE_X];
    pl_tale_say_of(s, PL_SAY_HOME_TAKE, which);
}

static void drop(struct pl_tale *s, struct home *h, uint32_t who)
{
    enum pl_tale_thing which = h->carries[who];
    h->carries[who] = PL_THINGS;
    s->thing[which].holder = PL_NONE32;
    pl_tale_say_of(s, PL_SAY_HOME_DROP, which);
}

static void hand_over(struct pl_tale *s, struct home *h, uint32_t who)
{
    enum pl_tale_thing which = h->carries[who];
    h->carries[who] = PL_THINGS;
    h->carries[1 - who] = which;
    s->thing[which].holder = s->role[PL_ROLE_Y];
    pl_tale_say_of(s, PL_SAY_HOME_HAND, which);
}

/* A thing that lies in the room where this person is, or PL_THINGS. */
static enum pl_tale_thing lying_here(const struct pl_tale *s, const struct home *h, uint32_t who)
{
    enum pl_tale_thing which = PL_THING_O;
    while (which < PL_THINGS && (s->thing[which].holder != PL_NONE32 || s->thing[which].spot != h->room[who]))
        which++;
    return which;
}

static void one_move(struct pl_tale *s, struct home *h)
{
    uint32_t who = pl_tale_even(s, 2);
    enum pl_tale_thing lies = lying_here(s, h, who);
    bool loaded = h->carries[who] != PL_THINGS, other_loaded = h->carries[1 - who] != PL_THINGS;
    uint32_t weights[MOVES] = {
        [GO] = 2,
        [TAKE] = lies != PL_THINGS && !loaded && h->last != DROP ? 6 : 0,
        [DROP] = loaded ? 2 : 0,
        [HAND] = loaded && !other_loaded && h->room[0] == h->room[1] ? 4 : 0,
    };
    s->role[PL_ROLE_X] = s->role[who == 0 ? PL_ROLE_A : PL_ROLE_B];
    s->role[PL_ROLE_Y] = s->role[who == 0 ? PL_ROLE_B : PL_ROLE_A];
    enum move move = (enum move)pl_tale_weighted(s, weights, MOVES);
    h->last = move;
    if (move == GO)
        go(s, h, who);
    else if (move == TAKE)
        take(s, h, who, lies);
    else if (move == DROP)
        drop(s, h, who);
    else
        hand_over(s, h, who);
}

static void place_thing(struct pl_tale *s, enum pl_tale_thing which)
{
    pl_tale_draw_thing(s, which, PL_NONE32);
    s->thing[which].village = PL_NONE32;
    s->thing[which].spot = s->record[PL_REC_ROOM] = pl_tale_item(s, PL_LIST_ROOM);
    pl_tale_say_of(s, PL_SAY_HOME_THING, which);
}

void pl_tale_plot_home(struct pl_tale *s)
{
    struct home h = {{PL_NONE32, PL_NONE32}, {PL_THINGS, PL_THINGS}, GO};
    s->role[PL_ROLE_B] = s->t->people[s->role[PL_ROLE_A]].friend;
    pl_tale_say(s, PL_SAY_GOAL_HOME);
    place_thing(s, PL_THING_O);
    place_thing(s, PL_THING_P);
    pl_tale_facts(s, s->role[PL_ROLE_B], 1);
    pl_tale_end_line(s);
    uint32_t moves = 6 + pl_tale_even(s, 6);
    for (uint32_t i = 0; i < moves; i++) {
        one_move(s, &h);
        if (i == 4 && pl_tale_inclined(s, PL_INCLINED_PAUSE))
            pl_tale_say(s, PL_SAY_HOME_PAUSE);
    }
    s->role[PL_ROLE_X] = s->role[PL_ROLE_Y] = PL_NONE32;
}
