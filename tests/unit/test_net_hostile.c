/* test_net_hostile.c - peers that mean harm or know no better: garbage, silence, drips, floods. Each is refused with a
 * reason, within a time and a cost, and nothing of it stays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "net/tls.h"
#include "net_rig.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static struct net_rig rig;

static int setup(void **state)
{
    (void)state;
    net_rig_init(&rig);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    net_rig_release(&rig);
    return 0;
}

static struct pl_listener_view view_now(void)
{
    struct pl_listener_view v;
    pl_listener_view(rig.listener, &v);
    return v;
}

static void assert_log(const char *text)
{
    if (strstr(rig.log, text) == NULL)
        fail_msg("the log does not say \"%s\": %s", text, rig.log);
}

/* --- before the handshake --- */

static void garbage_is_closed_at_once(void **state)
{
    (void)state;
    static const char *const garbage[] = {"GET / HTTP/1.1\r\n\r\n", "PL\001\001", "\026\002", "x"};
    net_rig_listen(&rig);
    uint64_t blocks = rig.blocks;
    for (unsigned i = 0; i < 4; i++) {
        int fd = net_raw(&rig, NULL);
        assert_true(send(fd, garbage[i], strlen(garbage[i]), 0) > 0);
        assert_true(net_raw_closed(&rig, fd, PL_SEC));
        (void)close(fd);
    }
    assert_int_equal(view_now().refused, 4);
    assert_int_equal(view_now().handshaking, 0);
    assert_int_equal(rig.blocks, blocks);
    assert_log("refused 127.0.0.1:");
    assert_log(": it does not speak TLS\n");
}

/* It begins like TLS and goes on as something else. */
static void garbage_in_tls_clothes_is_closed(void **state)
{
    (void)state;
    static const uint8_t hello[] = {22, 3, 1, 0, 5, 1, 0, 0, 1, 7}, huge[] = {22, 3, 1, 0xff, 0xff};
    net_rig_listen(&rig);
    int a = net_raw(&rig, NULL), b = net_raw(&rig, NULL);
    assert_true(send(a, hello, sizeof hello, 0) > 0);
    assert_true(send(b, huge, sizeof huge, 0) > 0);
    assert_true(net_raw_closed(&rig, a, PL_SEC));
    assert_true(net_raw_closed(&rig, b, PL_SEC));
    assert_int_equal(view_now().refused, 2);
    (void)close(a);
    (void)close(b);
}

/* A client hello in many records that never ends: 16 KiB are enough. */
static void a_handshake_without_end_is_cut_off(void **state)
{
    (void)state;
    uint8_t record[1029] = {22, 3, 1, 4, 0, 1, 0, 0xff, 0};
    net_rig_listen(&rig);
    int fd = net_raw(&rig, NULL);
    bool closed = false;
    for (unsigned i = 0; i < 40 && !closed; i++) {
        (void)send(fd, record, sizeof record, MSG_NOSIGNAL);
        memset(record + 5, 0, 4);
        closed = net_raw_closed(&rig, fd, 2 * PL_MS);
    }
    assert_true(closed);
    assert_int_equal(view_now().refused, 1);
    (void)close(fd);
}

static void silence_and_drips_end_with_the_handshakes_time(void **state)
{
    (void)state;
    static const uint8_t start[] = {22, 3, 1, 0, 200};
    rig.server.handshake_ns = 300 * PL_MS;
    net_rig_listen(&rig);
    int silent = net_raw(&rig, NULL), drip = net_raw(&rig, NULL);
    uint64_t begin = uv_hrtime();
    assert_true(send(drip, start, sizeof start, 0) > 0);
    while (view_now().refused < 2) {
        (void)send(drip, "x", 1, MSG_NOSIGNAL);
        net_run_for(&rig, 10 * PL_MS);
        assert_true(uv_hrtime() - begin < 10 * PL_SEC);
    }
    assert_true(uv_hrtime() - begin >= 300 * PL_MS);
    assert_int_equal(view_now().handshaking, 0);
    assert_log("did not end in time");
    (void)close(silent);
    (void)close(drip);
}

/* --- limits --- */

static void the_oldest_silent_one_gives_way(void **state)
{
    (void)state;
    enum { SILENT = 12, PLACES = 8 };
    int fds[SILENT];
    rig.server.handshakes_max = PLACES;
    net_rig_listen(&rig);
    uint64_t begin = uv_hrtime();
    for (unsigned i = 0; i < SILENT; i++) {
        fds[i] = net_raw(&rig, NULL);
        net_run_for(&rig, 2 * PL_MS);
    }
    while (view_now().refused < SILENT - PLACES) {
        assert_true(view_now().handshaking <= PLACES);
        assert_true(uv_hrtime() - begin < 10 * PL_SEC);
        net_run_for(&rig, PL_MS);
    }
    assert_int_equal(view_now().handshaking, PLACES);
    for (unsigned i = 0; i < SILENT; i++)
        assert_int_equal(net_raw_closed(&rig, fds[i], PL_MS), i < SILENT - PLACES);
    assert_log("gave way");
    struct net_side a = {0};
    (void)net_connect(&rig, &a); /* and whoever is quick gets in */
    net_close(&a, 0);
    for (unsigned i = 0; i < SILENT; i++)
        (void)close(fds[i]);
}

static void one_address_has_a_share(void **state)
{
    (void)state;
    int fds[6];
    static const uint8_t start[] = {22, 3};
    rig.server.per_address_max = 4;
    net_rig_listen(&rig);
    for (unsigned i = 0; i < 6; i++) {
        fds[i] = net_raw(&rig, i < 5 ? "127.0.0.2" : "127.0.0.3");
        assert_true(send(fds[i], start, sizeof start, 0) ==
                    2); /* no longer silent: they have a second's grace */
        net_run_for(&rig, 2 * PL_MS);
    }
    assert_int_equal(view_now().handshaking, 5);
    for (unsigned i = 0; i < 6; i++)
        assert_int_equal(net_raw_closed(&rig, fds[i], PL_MS), i == 4);
    assert_log("refused 127.0.0.2:");
    assert_log("too many connections from this address at once");
    for (unsigned i = 0; i < 6; i++)
        (void)close(fds[i]);
}

static void members_have_no_limit_per_address(void **state)
{
    (void)state;
    struct net_side a[6] = {{0}};
    rig.server.per_address_max = 2;
    net_rig_listen(&rig);
    for (unsigned i = 0; i < 6; i++)
        (void)net_connect(&rig, &a[i]);
    assert_int_equal(view_now().open, 6);
    for (unsigned i = 0; i < 6; i++)
        net_close(&a[i], 0);
}

static void members_never_give_way(void **state)
{
    (void)state;
    struct net_side a[3] = {{0}};
    rig.server.conns_max = 3;
    net_rig_listen(&rig);
    int silent = net_raw(&rig, NULL);
    net_run_for(&rig, 2 * PL_MS);
    for (unsigned i = 0; i < 3; i++)
        (void)net_connect(&rig, &a[i]);
    assert_true(net_raw_closed(&rig, silent, PL_SEC));
    int late = net_raw(&rig, NULL);
    assert_true(net_raw_closed(&rig, late, PL_SEC));
    assert_log("every place is taken");
    assert_int_equal(view_now().open, 3);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(a[i].closed, 0);
        net_close(&a[i], 0);
    }
    (void)close(silent);
    (void)close(late);
}

/* A hundred learners at once with eight places for handshakes: everybody gets in, nobody is thrown out on the way. */
static void a_rush_is_served_in_turn(void **state)
{
    (void)state;
    enum { LEARNERS = 100 };
    static struct net_side a[LEARNERS];
    memset(a, 0, sizeof a);
    rig.server.handshakes_max = 8;
    rig.server.per_address_max = LEARNERS;
    rig.client.handshake_ns = 60 * PL_SEC;
    net_rig_listen(&rig);
    for (unsigned i = 0; i < LEARNERS; i++)
        net_dial(&rig, &a[i]);
    net_wait(&rig, &rig.accepted_count, LEARNERS);
    assert_int_equal(view_now().refused, 0);
    assert_int_equal(view_now().open, LEARNERS);
    for (unsigned i = 0; i < LEARNERS; i++) {
        net_wait(&rig, &a[i].opened, 1);
        net_close(&a[i], 0);
    }
    net_run_for(&rig, 50 * PL_MS);
    assert_int_equal(view_now().open, 0); /* the rig knows only the last 64 of them; the books know all */
}

static void when_files_run_out_it_waits(void **state)
{
    (void)state;
    struct rlimit old, low;
    net_rig_listen(&rig);
    int fd = net_raw(&rig, NULL);
    net_run_for(&rig, 5 * PL_MS);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    int probe = dup(fd), more = net_raw(&rig, NULL);
    low = old;
    low.rlim_cur = (rlim_t)more + 1;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    struct timespec ts[2];
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts[0]);
    net_run_for(&rig, 300 * PL_MS);
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts[1]);
    assert_log("too many files are open");
    assert_true((ts[1].tv_sec - ts[0].tv_sec) * 1000000000 + ts[1].tv_nsec - ts[0].tv_nsec < 100000000);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    for (unsigned i = 0; i < 500 && view_now().handshaking < 2; i++)
        net_run_for(&rig, 2 * PL_MS);
    assert_int_equal(view_now().handshaking, 2);
    (void)close(probe);
    (void)close(fd);
    (void)close(more);
}

/* --- after the handshake --- */

/* A client of its own that can send what pl_conn would not. The loop runs in between. */
struct raw_tls {
    struct pl_tls_pipe pipe;
    struct pl_tls_check check;
    struct pl_tls_own own;
    SSL *ssl;
};

static struct net_side *raw_tls_open(struct raw_tls *t, const struct pl_credentials *own)
{
    uint32_t before = rig.accepted_count;
    t->pipe = (struct pl_tls_pipe){.fd = net_raw(&rig, NULL), .in_max = UINT64_MAX};
    t->check = (struct pl_tls_check){.dialling = true, .expect_shard = PL_NONE32};
    memcpy(t->check.fingerprint, rig.ca.fingerprint, sizeof t->check.fingerprint);
    assert_int_equal(fcntl(t->pipe.fd, F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(pl_tls_own_load(&t->own, own, NULL), PELAGO_OK);
    t->ssl = pl_tls_new(pl_tls_dialling(NULL), &t->own, PL_TLS_FRAMES, &t->pipe, &t->check);
    assert_non_null(t->ssl);
    while (SSL_do_handshake(t->ssl) != 1)
        net_run_for(&rig, PL_MS);
    net_wait(&rig, &rig.accepted_count, before + 1);
    return &rig.accepted[before % NET_SIDES];
}

static void raw_tls_send(struct raw_tls *t, const void *bytes, int len)
{
    assert_int_equal(SSL_write(t->ssl, bytes, len), len);
}

static void raw_tls_close(struct raw_tls *t)
{
    SSL_free(t->ssl);
    pl_tls_own_release(&t->own);
    (void)close(t->pipe.fd);
}

static void no_frame_is_seen_at_its_first_byte(void **state)
{
    (void)state;
    struct raw_tls t;
    net_rig_listen(&rig);
    struct net_side *b = raw_tls_open(&t, &rig.learner);
    raw_tls_send(&t, "x", 1);
    net_wait(&rig, &b->bad, 1);
    assert_int_equal(b->why.status, PELAGO_PROTO);
    raw_tls_close(&t);
    net_run_for(&rig, 20 * PL_MS); /* the connection waits for the host to close it */
    assert_int_equal(b->closed, 0);
    net_close(b, 0);
}

static void an_oversized_length_takes_no_memory(void **state)
{
    (void)state;
    struct raw_tls t;
    uint8_t header[8] = {'P', 'L', PL_PROTOCOL_VERSION, PL_MSG_DATA};
    net_rig_listen(&rig);
    struct net_side *b = raw_tls_open(&t, &rig.learner);
    uint64_t bytes = rig.bytes;
    pl_put_le(header + 4, (1 << 20) + 1, 4); /* the table allows it, this connection does not */
    raw_tls_send(&t, header, sizeof header);
    net_wait(&rig, &b->bad, 1);
    assert_int_equal(b->why.status, PELAGO_LIMIT);
    assert_true(rig.bytes <= bytes + (64 << 10));
    net_close(b, 0);
    raw_tls_close(&t);
}

static void assert_drip_ends(const struct pl_credentials *own, const char *text)
{
    struct raw_tls t;
    const uint8_t header[8] = {'P', 'L', PL_PROTOCOL_VERSION, PL_MSG_DATA, 0xff, 0xff, 0, 0};
    struct net_side *b = raw_tls_open(&t, own);
    uint64_t begin = uv_hrtime();
    raw_tls_send(&t, header, sizeof header);
    while (b->closed == 0) {
        (void)SSL_write(t.ssl, "x", 1);
        net_run_for(&rig, 10 * PL_MS);
        assert_true(uv_hrtime() - begin < 20 * PL_SEC);
    }
    assert_true(uv_hrtime() - begin >= rig.server.stall_ns);
    assert_int_equal(b->why.status, PELAGO_LIMIT);
    assert_non_null(strstr(b->why.text, text));
    raw_tls_close(&t);
}

static void drips_of_a_frame_end(void **state)
{
    (void)state;
    rig.server.stall_ns = 400 * PL_MS;
    net_rig_listen(&rig);
    assert_drip_ends(&rig.learner, "has not sent a whole frame");
    assert_drip_ends(&rig.stranger, "has not sent a whole frame");
}

/* Half of a TLS record is not even a byte of a frame, and counts all the same. */
static void half_a_record_ends(void **state)
{
    (void)state;
    struct raw_tls t;
    rig.server.stall_ns = 300 * PL_MS;
    net_rig_listen(&rig);
    struct net_side *b = raw_tls_open(&t, &rig.learner);
    assert_int_equal(send(t.pipe.fd, "\027\003\003\001\000half", 9, 0), 9);
    net_wait(&rig, &b->closed, 1);
    assert_int_equal(b->why.status, PELAGO_LIMIT);
    raw_tls_close(&t);
}

static void whoever_takes_nothing_is_closed(void **state)
{
    (void)state;
    static uint8_t bytes[1 << 20];
    struct raw_tls t;
    rig.server.stall_ns = 300 * PL_MS;
    net_rig_listen(&rig);
    struct net_side *b = raw_tls_open(&t, &rig.learner);
    for (unsigned i = 0; i < 20 && b->conn != NULL; i++) {
        if (pl_conn_room(b->conn))
            assert_true(net_send_data(b, bytes, sizeof bytes, 0));
        net_run_for(&rig, 5 * PL_MS);
    }
    net_wait(&rig, &b->closed, 1);
    assert_int_equal(b->why.status, PELAGO_LIMIT);
    assert_non_null(strstr(b->why.text, "has taken next to nothing"));
    raw_tls_close(&t);
}

static void a_member_may_be_silent_a_stranger_not(void **state)
{
    (void)state;
    struct net_side a = {0}, s = {0};
    rig.server.stall_ns = 200 * PL_MS;
    net_rig_listen(&rig);
    struct net_side *b = net_connect(&rig, &a);
    rig.client.own = &rig.stranger;
    struct net_side *n = net_connect(&rig, &s);
    net_wait(&rig, &n->closed, 1);
    assert_int_equal(n->why.status, PELAGO_LIMIT);
    net_run_for(&rig, 300 * PL_MS);
    assert_int_equal(b->closed, 0);
    net_close(&a, 0);
    net_wait(&rig, &s.closed, 1);
}

static void damaged_records_end_the_connection(void **state)
{
    (void)state;
    struct raw_tls t;
    net_rig_listen(&rig);
    struct net_side *b = raw_tls_open(&t, &rig.learner);
    assert_int_equal(send(t.pipe.fd, "\027\003\003\000\024aaaaaaaaaaaaaaaaaaaa", 25, 0), 25);
    net_wait(&rig, &b->closed, 1);
    assert_int_equal(b->why.status, PELAGO_PROTO);
    raw_tls_close(&t);
}

/* Records without data must not keep the loop from anybody else. */
static void a_flood_of_key_updates_starves_nobody(void **state)
{
    (void)state;
    struct raw_tls t;
    struct net_side a = {0};
    net_rig_listen(&rig);
    rig.echo = true;
    struct net_side *b = raw_tls_open(&t, &rig.learner);
    (void)net_connect(&rig, &a);
    for (uint32_t round = 0; round < 10; round++) {
        for (unsigned i = 0; i < 200; i++) {
            assert_int_equal(SSL_key_update(t.ssl, SSL_KEY_UPDATE_NOT_REQUESTED), 1);
            (void)SSL_do_handshake(t.ssl);
        }
        net_send_ping(&a, 1);
        net_wait(&rig, &a.frames, round + 1);
    }
    assert_int_equal(b->closed, 0);
    net_close(&a, 0);
    raw_tls_close(&t);
    net_wait(&rig, &b->closed, 1);
}

/* --- the flood --- */

static uint64_t cpu_ns(void)
{
    struct timespec ts;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * PL_SEC + (uint64_t)ts.tv_nsec;
}

static char client_secret[2 * EVP_MAX_MD_SIZE + 1];

static void keep_secret(const SSL *ssl, const char *line)
{
    (void)ssl;
    if (strncmp(line, "CLIENT_TRAFFIC_SECRET_0 ", 24) == 0)
        (void)snprintf(client_secret, sizeof client_secret, "%s", strrchr(line, ' ') + 1);
}

/* HKDF-Expand-Label of TLS 1.3, for no more than one block. */
static void expand(const uint8_t secret[32], const char *label, uint8_t *out, uint8_t len)
{
    uint8_t info[64] = {0, len, (uint8_t)(6 + strlen(label))}, block[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    (void)snprintf((char *)info + 3, sizeof info - 3, "tls13 %s", label);
    size_t at = 3 + 6 + strlen(label);
    info[at++] = 0;
    info[at++] = 1;
    assert_non_null(HMAC(EVP_sha256(), secret, 32, info, at, block, &n));
    memcpy(out, block, len);
}

/* The first record under the client's keys: the header of a KeyUpdate, without its one byte of body. No library would
 * send that, so it is encrypted by hand. */
static void send_half_a_key_update(const struct raw_tls *t)
{
    static const uint8_t half[] = {24, 0, 0, 1, 22 /* the kind of record: handshake */};
    uint8_t secret[32], key[16], iv[12], record[5 + sizeof half + 16] = {23, 3, 3, 0, sizeof half + 16};
    int n = 0;
    assert_string_equal(SSL_get_cipher(t->ssl), "TLS_AES_128_GCM_SHA256");
    assert_int_equal(strlen(client_secret), 64);
    for (unsigned i = 0; i < sizeof secret; i++)
        assert_int_equal(sscanf(client_secret + (size_t)2 * i, "%2hhx", &secret[i]), 1);
    expand(secret, "key", key, sizeof key);
    expand(secret, "iv", iv, sizeof iv);
    EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
    assert_int_equal(EVP_EncryptInit_ex(c, EVP_aes_128_gcm(), NULL, key, iv), 1);
    assert_int_equal(EVP_EncryptUpdate(c, NULL, &n, record, 5), 1);
    assert_int_equal(EVP_EncryptUpdate(c, record + 5, &n, half, sizeof half), 1);
    assert_int_equal(EVP_EncryptFinal_ex(c, record + 5 + n, &n), 1);
    assert_int_equal(EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_GET_TAG, 16, record + 5 + sizeof half), 1);
    EVP_CIPHER_CTX_free(c);
    assert_int_equal(send(t->pipe.fd, record, sizeof record, 0), sizeof record);
}

/* OpenSSL writes nothing until the other half has come, while the socket is writable all the time. */
static void half_a_key_update_keeps_nobody_busy(void **state)
{
    (void)state;
    struct raw_tls t;
    SSL_CTX_set_keylog_callback(pl_tls_dialling(NULL), keep_secret);
    net_rig_listen(&rig);
    struct net_side *b = raw_tls_open(&t, &rig.learner);
    SSL_CTX_set_keylog_callback(pl_tls_dialling(NULL), NULL);
    send_half_a_key_update(&t);
    net_run_for(&rig, 50 * PL_MS);
    assert_int_equal(b->closed, 0);
    net_send_ping(b, 1);
    uint64_t cpu = cpu_ns();
    net_run_for(&rig, 400 * PL_MS);
    assert_true(cpu_ns() - cpu < 40 * PL_MS);
    assert_int_equal(b->closed, 1);
    assert_non_null(strstr(b->why.text, "half of a change of keys"));
    raw_tls_close(&t);
}

/* A stranger is looked at for stalls while it owes a frame. When we close and it stays, those looks are over. */
static void waiting_for_its_end_costs_nothing(void **state)
{
    (void)state;
    struct raw_tls t;
    rig.server.stall_ns = 400 * PL_MS;
    net_rig_listen(&rig);
    struct net_side *b = raw_tls_open(&t, &rig.stranger);
    net_run_for(&rig, 20 * PL_MS);
    assert_int_equal(b->closed, 0);
    net_close(b, 700 * PL_MS);
    uint64_t cpu = cpu_ns();
    net_run_for(&rig, 600 * PL_MS);
    cpu = cpu_ns() - cpu;
    print_message("# %.1f ms of processor time in 600 ms\n", (double)cpu * 1e-6);
    assert_true(cpu < 40 * PL_MS);
    raw_tls_close(&t);
}

/* The flood comes from this very process, so that its own cost is in the figure: it is an upper bound. */
static void ten_thousand_strangers_cost_little(void **state)
{
    (void)state;
    enum { BATCH = 100, ROUNDS = 100 };
    int fds[BATCH];
    struct net_side a = {0};
    rig.server.handshakes_max = 64;
    net_rig_listen(&rig);
    rig.echo = true;
    (void)net_connect(&rig, &a);
    net_run_for(&rig, 10 * PL_MS);
    uint64_t blocks = rig.blocks, cpu = cpu_ns();
    uint32_t files = net_open_files();
    for (unsigned round = 0; round < ROUNDS; round++) {
        char from[32];
        (void)snprintf(from, sizeof from, "127.0.%u.%u", round % 7 + 1, round + 1);
        for (unsigned i = 0; i < BATCH; i++) {
            fds[i] = net_raw(&rig, from);
            if (i % 2 == 0)
                assert_true(send(fds[i], "garbage", 7, 0) == 7);
        }
        net_send_ping(&a, round);
        net_wait(&rig, &a.frames, round + 1); /* a member is served in the middle of it */
        for (unsigned i = 0; i < BATCH; i++)
            (void)close(fds[i]);
    }
    for (unsigned i = 0; i < 500 && view_now().refused < BATCH * ROUNDS; i++)
        net_run_for(&rig, 2 * PL_MS);
    cpu = cpu_ns() - cpu;
    assert_int_equal(view_now().refused, BATCH * ROUNDS);
    print_message("# %.1f us of processor time for each of 10,000 refused connections, both ends\n",
                  (double)cpu * 1e-3 / (BATCH * ROUNDS));
#ifndef TEST_SANITIZED
    assert_true(cpu / (BATCH * ROUNDS) < PL_MS);
#endif
    assert_int_equal(rig.blocks, blocks);
    assert_int_equal(net_open_files(), files);
    assert_int_equal(a.closed, 0);
    net_run_for(&rig, 1200 * PL_MS);
    assert_log("more connections");
    assert_true(rig.log_lines < 100); /* a few a second, and sums */
    net_close(&a, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(garbage_is_closed_at_once),
        TEST(garbage_in_tls_clothes_is_closed),
        TEST(a_handshake_without_end_is_cut_off),
        TEST(silence_and_drips_end_with_the_handshakes_time),
        TEST(the_oldest_silent_one_gives_way),
        TEST(one_address_has_a_share),
        TEST(members_have_no_limit_per_address),
        TEST(members_never_give_way),
        TEST(a_rush_is_served_in_turn),
        TEST(when_files_run_out_it_waits),
        TEST(no_frame_is_seen_at_its_first_byte),
        TEST(an_oversized_length_takes_no_memory),
        TEST(drips_of_a_frame_end),
        TEST(half_a_record_ends),
        TEST(whoever_takes_nothing_is_closed),
        TEST(a_member_may_be_silent_a_stranger_not),
        TEST(damaged_records_end_the_connection),
        TEST(a_flood_of_key_updates_starves_nobody),
        TEST(half_a_key_update_keeps_nobody_busy),
        TEST(waiting_for_its_end_costs_nothing),
        TEST(ten_thousand_strangers_cost_little),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
