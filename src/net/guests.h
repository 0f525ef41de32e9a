/* net/guests.h - a listener's books: who is in, since when, from where, and who gives way when it is full.
 *
 * Four lists, oldest first. Strangers (the first three) are also found by the address they come from. Whoever has sent
 * nothing gives way after a quarter of a second (a busy learner may connect and then need a moment), whoever is in the
 * handshake after a second, whoever stays without an identity after the time of a handshake. A member never gives way.
 */
#ifndef PL_NET_GUESTS_H
#define PL_NET_GUESTS_H

#include <stdbool.h>
#include <stdint.h>

struct pl_conn;
struct pl_peer;

enum pl_guest_list { PL_GUEST_SILENT, PL_GUEST_ACTIVE, PL_GUEST_NAMELESS, PL_GUEST_MEMBER, PL_GUEST_LISTS };
enum { PL_GUEST_HASHES = 1024 };

/* In every connection that was accepted. */
struct pl_guest {
    struct pl_conn *next, *prev;
    struct pl_conn *chain; /* the next stranger of the same hash */
    enum pl_guest_list list;
};

struct pl_guests {
    struct {
        struct pl_conn *first, *last;
        uint32_t count;
    } lists[PL_GUEST_LISTS];
    struct pl_conn *chains[PL_GUEST_HASHES];
};

void pl_guests_add(struct pl_guests *g, struct pl_conn *c); /* silent */
void pl_guests_move(struct pl_guests *g, struct pl_conn *c, enum pl_guest_list list);
void pl_guests_remove(struct pl_guests *g, struct pl_conn *c);

uint32_t pl_guests_handshaking(const struct pl_guests *g);
uint32_t pl_guests_all(const struct pl_guests *g);
uint32_t pl_guests_of(const struct pl_guests *g, uint64_t owner); /* strangers from there */
uint32_t pl_guests_members(const struct pl_guests *g,
                           const struct pl_peer *like); /* open, of its role and identity; a bundle is one */

/* Who gives way: of everybody, or of one owner's; NULL: nobody. nameless: those without an identity too. */
struct pl_conn *pl_guests_oldest(const struct pl_guests *g, uint64_t now_ns, bool nameless);
struct pl_conn *pl_guests_oldest_of(const struct pl_guests *g, uint64_t now_ns, uint64_t owner);

#endif
