/* net/guests.c - see guests.h. */
#include "net/conn_int.h"

#include "base/check.h"
#include "base/num.h"

#define SILENT_GRACE_NS (250 * PL_MS)
#define ACTIVE_GRACE_NS PL_SEC

static unsigned hash(uint64_t owner)
{
    return (unsigned)(owner * UINT64_C(0x9e3779b97f4a7c15) >> 54) % PL_GUEST_HASHES;
}

static struct pl_conn **chain_of(struct pl_guests *g, uint64_t owner)
{
    return &g->chains[hash(owner)];
}

static void link_last(struct pl_guests *g, struct pl_conn *c, enum pl_guest_list list)
{
    c->guest.list = list;
    c->guest.next = NULL;
    c->guest.prev = g->lists[list].last;
    if (c->guest.prev != NULL)
        c->guest.prev->guest.next = c;
    else
        g->lists[list].first = c;
    g->lists[list].last = c;
    g->lists[list].count++;
}

static void unlink_guest(struct pl_guests *g, struct pl_conn *c)
{
    enum pl_guest_list list = c->guest.list;
    pl_assert(g->lists[list].count > 0);
    if (c->guest.prev != NULL)
        c->guest.prev->guest.next = c->guest.next;
    else
        g->lists[list].first = c->guest.next;
    if (c->guest.next != NULL)
        c->guest.next->guest.prev = c->guest.prev;
    else
        g->lists[list].last = c->guest.prev;
    g->lists[list].count--;
}

static void unchain(struct pl_guests *g, struct pl_conn *c)
{
    struct pl_conn **at = chain_of(g, c->owner);
    while (*at != c) {
        pl_assert(*at != NULL);
        at = &(*at)->guest.chain;
    }
    *at = c->guest.chain;
}

void pl_guests_add(struct pl_guests *g, struct pl_conn *c)
{
    struct pl_conn **chain = chain_of(g, c->owner);
    pl_assert(c->guest.next == NULL && c->guest.prev == NULL && c->guest.chain == NULL);
    c->guest.chain = *chain;
    *chain = c;
    link_last(g, c, PL_GUEST_SILENT);
}

void pl_guests_move(struct pl_guests *g, struct pl_conn *c, enum pl_guest_list list)
{
    pl_assert(list > c->guest.list);
    unlink_guest(g, c);
    if (list == PL_GUEST_MEMBER)
        unchain(g, c);
    link_last(g, c, list);
}

void pl_guests_remove(struct pl_guests *g, struct pl_conn *c)
{
    unlink_guest(g, c);
    if (c->guest.list != PL_GUEST_MEMBER)
        unchain(g, c);
}

uint32_t pl_guests_handshaking(const struct pl_guests *g)
{
    return g->lists[PL_GUEST_SILENT].count + g->lists[PL_GUEST_ACTIVE].count;
}

uint32_t pl_guests_all(const struct pl_guests *g)
{
    return pl_guests_handshaking(g) + g->lists[PL_GUEST_NAMELESS].count + g->lists[PL_GUEST_MEMBER].count;
}

uint32_t pl_guests_of(const struct pl_guests *g, uint64_t owner)
{
    uint32_t n = 0;
    for (const struct pl_conn *c = g->chains[hash(owner)]; c != NULL; c = c->guest.chain)
        n += c->owner == owner;
    return n;
}

uint32_t pl_guests_members(const struct pl_guests *g, const struct pl_peer *like)
{
    uint32_t n = 0;
    for (const struct pl_conn *c = g->lists[PL_GUEST_MEMBER].first; c != NULL; c = c->guest.next)
        n += c->state == PL_CONN_OPEN && !c->member.is_stream && c->peer.role == like->role &&
             c->peer.identity == like->identity;
    return n;
}

static bool gives_way(const struct pl_conn *c, uint64_t now_ns)
{
    uint64_t age = pl_sub_sat(now_ns, c->born_ns);
    return (c->guest.list == PL_GUEST_SILENT && age >= SILENT_GRACE_NS) ||
           (c->guest.list == PL_GUEST_ACTIVE && age >= ACTIVE_GRACE_NS) ||
           (c->guest.list == PL_GUEST_NAMELESS && age >= c->handshake_ns);
}

struct pl_conn *pl_guests_oldest(const struct pl_guests *g, uint64_t now_ns, bool nameless)
{
    int end = nameless ? PL_GUEST_NAMELESS : PL_GUEST_ACTIVE;
    for (int list = PL_GUEST_SILENT; list <= end; list++) {
        struct pl_conn *c = g->lists[list].first;
        if (c != NULL && gives_way(c, now_ns))
            return c;
    }
    return NULL;
}

struct pl_conn *pl_guests_oldest_of(const struct pl_guests *g, uint64_t now_ns, uint64_t owner)
{
    struct pl_conn *best = NULL;
    for (struct pl_conn *c = g->chains[hash(owner)]; c != NULL; c = c->guest.chain) {
        if (c->owner != owner || !gives_way(c, now_ns))
            continue;
        if (best == NULL || c->guest.list < best->guest.list ||
            (c->guest.list == best->guest.list && c->born_ns <= best->born_ns))
            best = c;
    }
    return best;
}
