/* tests/support/chaos_rig.h - a proxy in a thread, a server socket behind it, and blocking sockets through it. */
#ifndef PL_TESTS_CHAOS_RIG_H
#define PL_TESTS_CHAOS_RIG_H

#include "chaos/proxy.h"
#include "tempdir.h"

#include <pthread.h>

struct chaos_rig {
    struct tempdir dir;
    struct pl_alloc alloc;
    char to[32], control[300], state[300];
    struct pl_proxy_options options;
    struct pl_proxy *proxy;
    pthread_t thread;
    int server; /* listens where the proxy connects to */
};

void chaos_rig_init(struct chaos_rig *r);
void chaos_rig_release(struct chaos_rig *r);

/* An order that must be taken. */
void chaos_rig_tell(struct chaos_rig *r, const char *order);
/* A figure of link 1's stats. */
uint64_t chaos_rig_stat(struct chaos_rig *r, const char *name);
/* Asks again and again until it is at least so much. */
void chaos_rig_await(struct chaos_rig *r, const char *name, uint64_t least);

struct chaos_ends {
    int client, server;
};

int chaos_rig_dial(struct chaos_rig *r, uint32_t learner); /* through the proxy; reads give up after 10 s */
int chaos_rig_accept(struct chaos_rig *r);
struct chaos_ends chaos_rig_connect(struct chaos_rig *r);
void chaos_ends_close(struct chaos_ends *e);

void chaos_send(int fd, const void *bytes, size_t len);
void chaos_recv(int fd, void *bytes, size_t len); /* all of it */
double chaos_now(void);                           /* seconds */

#endif
