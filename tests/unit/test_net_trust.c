/* test_net_trust.c - who talks to whom: wrong authorities, wrong roles, expired certificates, servers that are none; and
 * addresses that lead nowhere. Each failure is told in a sentence that helps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "net/tls.h"
#include "net_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct net_rig rig;

static int setup(void **state)
{
    (void)state;
    net_rig_init(&rig);
    net_rig_listen(&rig);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    net_rig_release(&rig);
    return 0;
}

static void assert_says(const struct pl_error *err, enum pelago_status status, const char *text)
{
    if (err->status != status || strstr(err->text, text) == NULL)
        fail_msg("%s \"%s\", expected %s \"%s\"", pl_status_name(err->status), err->text,
                 pl_status_name(status), text);
}

static void assert_dial_fails(const char *address, uint32_t shard, enum pelago_status status,
                              const char *text)
{
    struct net_side a = {.rig = &rig};
    a.conn = pl_dial(&rig.client, address, shard, &net_side_ops, &a);
    assert_non_null(a.conn);
    assert_int_equal(a.closed, 0);
    net_wait(&rig, &a.closed, 1);
    assert_says(&a.why, status, text);
}

static void another_runs_syncer_is_not_ours(void **state)
{
    (void)state;
    struct pl_credentials ca;
    assert_int_equal(pl_pki_new_authority(&ca, 0x1234, NULL), PELAGO_OK);
    rig.client.own = &rig.stranger;
    memcpy(rig.stranger.fingerprint, ca.fingerprint, sizeof ca.fingerprint);
    assert_dial_fails(rig.address, PL_NONE32, PELAGO_INVALID, "not the syncer the token was made for");
    net_run_for(&rig, 20 * PL_MS);
    assert_int_equal(rig.accepted_count, 0);
}

static void a_shard_must_be_the_one_that_was_meant(void **state)
{
    (void)state;
    assert_dial_fails(rig.address, 0, PELAGO_INVALID, "this is shard 1 of the run, shard 0 was expected");
    struct net_side a = {.rig = &rig};
    a.conn = pl_dial(&rig.client, rig.address, 1, &net_side_ops, &a);
    net_wait(&rig, &a.opened, 1);
    net_close(&a, 0);
}

/* Opened comes first on the side that dials (TLS 1.3), and then the reason; nobody above the listener hears of it. */
static void assert_refused(const struct pl_credentials *own, enum pelago_status status, const char *text,
                           const char *line)
{
    struct net_side a = {0};
    uint32_t before = rig.accepted_count, lines = rig.log_lines;
    rig.client.own = own;
    net_dial(&rig, &a);
    net_send_ping(&a, 1);
    net_wait(&rig, &a.closed, 1);
    assert_says(&a.why, status, text);
    net_wait(&rig, &rig.log_lines, lines + 1);
    if (strstr(rig.log, line) == NULL)
        fail_msg("the log does not say \"%s\": %s", line, rig.log);
    assert_int_equal(rig.accepted_count, before);
    struct pl_listener_view view;
    pl_listener_view(rig.listener, &view);
    assert_int_equal(view.open, 0);
    assert_true(view.refused > 0);
}

/* So that whoever was away for longer than it lasts can renew it. */
static void an_expired_certificate_is_taken_and_marked(void **state)
{
    (void)state;
    struct pl_credentials old;
    net_enrol(&rig.ca, PL_ROLE_LEARNER, 7, 0, 0, &old);
    rig.client.own = &old;
    const struct net_side *b;
    bool expired = false;
    for (unsigned i = 0; i < 3 && !expired;
         i++) { /* two clocks of one machine may differ by a few milliseconds */
        struct net_side a = {0};
        b = net_connect(&rig, &a);
        expired = b->peer.expired;
        assert_int_equal(b->peer.identity, 7);
        net_close(&a, 0);
    }
    assert_true(expired);
    rig.client.own = &rig.learner;
    struct net_side c = {0};
    b = net_connect(&rig, &c);
    assert_false(b->peer.expired);
    net_close(&c, 0);
}

static void a_certificate_of_another_run_is_refused(void **state)
{
    (void)state;
    struct pl_credentials ca, other;
    assert_int_equal(pl_pki_new_authority(&ca, 0x1234, NULL), PELAGO_OK);
    net_enrol(&ca, PL_ROLE_LEARNER, 7, 0, 3600, &other);
    memcpy(other.fingerprint, rig.ca.fingerprint, sizeof other.fingerprint); /* it does know our syncer */
    assert_refused(&other, PELAGO_PROTO, "another run", "its certificate is not of this run's authority");
}

static void the_authority_itself_is_no_member(void **state)
{
    (void)state;
    assert_refused(&rig.ca, PELAGO_PROTO, "does not accept our certificate", "its certificate");
}

static void an_expired_shard_is_still_known(void **state)
{
    (void)state;
    struct pl_credentials old;
    net_enrol(&rig.ca, PL_ROLE_SHARD, 9, 1, 0, &old);
    rig.server.own = &old;
    pl_listener_close(rig.listener);
    net_rig_listen(&rig);
    struct net_side a = {0};
    (void)net_connect(&rig, &a);
    net_close(&a, 0);
}

static void only_a_shard_may_listen(void **state)
{
    (void)state;
    struct pl_listener *l;
    struct pl_error err;
    rig.server.own = &rig.learner;
    assert_int_equal(pl_listen(&l, &rig.server, "127.0.0.1:0", &net_side_ops, NULL, &err), PELAGO_INVALID);
    assert_says(&err, PELAGO_INVALID, "the certificate of a shard");
    assert_null(l);
}

/* --- other servers at the address --- */

struct fake {
    uv_poll_t poll, peer;
    int fd, peer_fd;
    const char *reply; /* NULL: silence */
    SSL_CTX *ctx;
    SSL *ssl;
};

static void on_fake_peer(uv_poll_t *poll, int status, int events)
{
    struct fake *f = poll->data;
    char bytes[4096];
    (void)status;
    (void)events;
    if (f->ssl != NULL) {
        (void)SSL_accept(f->ssl);
    } else if (recv(f->peer_fd, bytes, sizeof bytes, 0) > 0 && f->reply != NULL) {
        assert_true(send(f->peer_fd, f->reply, strlen(f->reply), MSG_NOSIGNAL) > 0);
    }
}

static void on_fake(uv_poll_t *poll, int status, int events)
{
    struct fake *f = poll->data;
    (void)status;
    (void)events;
    f->peer_fd = accept4(f->fd, NULL, NULL, SOCK_NONBLOCK);
    assert_true(f->peer_fd >= 0);
    if (f->ctx != NULL) {
        f->ssl = SSL_new(f->ctx);
        assert_int_equal(SSL_set_fd(f->ssl, f->peer_fd), 1);
    }
    assert_int_equal(uv_poll_init(&rig.loop, &f->peer, f->peer_fd), 0);
    f->peer.data = f;
    assert_int_equal(uv_poll_start(&f->peer, UV_READABLE, on_fake_peer), 0);
    (void)uv_poll_stop(&f->poll);
}

static void fake_start(struct fake *f)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof in;
    f->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    f->peer_fd = -1;
    assert_int_equal(bind(f->fd, (const struct sockaddr *)&in, sizeof in), 0);
    assert_int_equal(listen(f->fd, 8), 0);
    assert_int_equal(getsockname(f->fd, (struct sockaddr *)&in, &len), 0);
    (void)snprintf(rig.address, sizeof rig.address, "127.0.0.1:%u", (unsigned)ntohs(in.sin_port));
    assert_int_equal(uv_poll_init(&rig.loop, &f->poll, f->fd), 0);
    f->poll.data = f;
    assert_int_equal(uv_poll_start(&f->poll, UV_READABLE, on_fake), 0);
}

static void fake_stop(struct fake *f)
{
    uv_close((uv_handle_t *)&f->poll, NULL);
    if (f->peer_fd >= 0)
        uv_close((uv_handle_t *)&f->peer, NULL);
    SSL_free(f->ssl);
    SSL_CTX_free(f->ctx);
    net_run_for(&rig, PL_MS);
    (void)close(f->fd);
    (void)close(f->peer_fd);
}

static void a_web_server_is_no_syncer(void **state)
{
    (void)state;
    struct fake f = {.reply = "HTTP/1.1 400 Bad Request\r\n\r\n"};
    fake_start(&f);
    assert_dial_fails(rig.address, PL_NONE32, PELAGO_PROTO, "does not speak TLS 1.3");
    fake_stop(&f);
}

static void a_silent_server_is_given_up(void **state)
{
    (void)state;
    struct fake f = {.reply = NULL};
    fake_start(&f);
    rig.client.handshake_ns = 100 * PL_MS;
    assert_dial_fails(rig.address, PL_NONE32, PELAGO_IO, "did not finish the handshake");
    fake_stop(&f);
}

/* A TLS server with our shard's own certificate that speaks something else. */
static void assert_tls_server_fails(int version, enum pelago_status status, const char *text)
{
    struct fake f = {.ctx = SSL_CTX_new(TLS_server_method())};
    X509 *x = pl_pki_load_certificate(rig.shard.certificate, rig.shard.certificate_len);
    X509 *ca = pl_pki_load_certificate(rig.shard.authority, rig.shard.authority_len);
    EVP_PKEY *key = pl_pki_load_key(rig.shard.key, rig.shard.key_len);
    assert_int_equal(SSL_CTX_use_certificate(f.ctx, x), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(f.ctx, key), 1);
    assert_int_equal(SSL_CTX_add1_chain_cert(f.ctx, ca), 1);
    assert_int_equal(SSL_CTX_set_max_proto_version(f.ctx, version), 1);
    X509_free(x);
    X509_free(ca);
    EVP_PKEY_free(key);
    fake_start(&f);
    assert_dial_fails(rig.address, PL_NONE32, status, text);
    fake_stop(&f);
}

static void an_old_tls_server_is_no_syncer(void **state)
{
    (void)state;
    assert_tls_server_fails(TLS1_2_VERSION, PELAGO_PROTO, "does not speak TLS 1.3");
}

static void a_tls_server_of_something_else_is_no_syncer(void **state)
{
    (void)state;
    assert_tls_server_fails(TLS1_3_VERSION, PELAGO_PROTO, "not pelago/1");
}

/* --- addresses --- */

static void bad_addresses_are_explained(void **state)
{
    (void)state;
    static const struct {
        const char *address, *text;
    } cases[] = {
        {"", "there is no port"},
        {"somewhere", "there is no port"},
        {"somewhere:", "number from 0 to 65535"},
        {"somewhere:http", "number from 0 to 65535"},
        {"somewhere:65536", "number from 0 to 65535"},
        {"somewhere:-1", "number from 0 to 65535"},
        {"::1:7447", "in brackets"},
        {"[::1:7447", "in brackets"},
        {"[]:", "number from 0 to 65535"},
        {"a b:1", "this host is none"},
        {"http://x:1", "in brackets"},
        {":7447", "nothing to connect to"},
        {"*:7447", "nothing to connect to"},
        {"127.0.0.1:0", "nothing to connect to"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_dial_fails(cases[i].address, PL_NONE32, PELAGO_INVALID, cases[i].text);
}

static void nobody_listens(void **state)
{
    (void)state;
    pl_listener_close(rig.listener); /* its port is free now */
    rig.listener = NULL;
    assert_dial_fails(rig.address, PL_NONE32, PELAGO_UNREACHABLE, "nobody listens at 127.0.0.1:");
}

static void no_way_leads_there(void **state)
{
    (void)state;
    assert_dial_fails("255.255.255.255:7", PL_NONE32, PELAGO_UNREACHABLE, "255.255.255.255:7");
}

static void no_such_host(void **state)
{
    (void)state;
    assert_dial_fails("no-such-host.invalid:7447", PL_NONE32, PELAGO_NOTFOUND, "no-such-host.invalid");
}

static void a_name_may_be_given_up_while_it_is_looked_up(void **state)
{
    (void)state;
    struct net_side a = {.rig = &rig};
    a.conn = pl_dial(&rig.client, "no-such-host.invalid:7447", PL_NONE32, &net_side_ops, &a);
    net_close(&a, 0);
    struct net_side b = {.rig = &rig};
    b.conn = pl_dial(&rig.client, "no-such-host.invalid:7447", PL_NONE32, &net_side_ops, &b);
    net_run_for(&rig, PL_MS);
    net_close(&b, 0);
}

static void a_name_is_tried_at_all_its_addresses(void **state)
{
    (void)state;
    char address[64];
    struct net_side a = {.rig = &rig};
    (void)snprintf(address, sizeof address, "localhost:%u", (unsigned)pl_listener_port(rig.listener));
    a.conn = pl_dial(&rig.client, address, PL_NONE32, &net_side_ops,
                     &a); /* ::1 comes first, where nobody listens */
    net_wait(&rig, &a.opened, 1);
    net_close(&a, 0);
}

static void assert_listen_fails(const char *address, enum pelago_status status, const char *text)
{
    struct pl_listener *l;
    struct pl_error err;
    assert_true(pl_listen(&l, &rig.server, address, &net_side_ops, NULL, &err) != PELAGO_OK);
    assert_null(l);
    assert_says(&err, status, text);
}

static void listening_fails_with_advice(void **state)
{
    (void)state;
    assert_listen_fails(rig.address, PELAGO_IO, "is taken");
    assert_listen_fails("192.0.2.1:0", PELAGO_NOTFOUND, "no such address");
    assert_listen_fails("no-such-host.invalid:0", PELAGO_NOTFOUND, "no host named");
    assert_listen_fails("7447", PELAGO_INVALID, "host:port");
}

/* IPv6, and every address of this machine at once, on one port. */
static void all_addresses_have_one_port(void **state)
{
    (void)state;
    static const char *const hosts[] = {"127.0.0.1", "[::1]"};
    pl_listener_close(rig.listener);
    struct pl_listener *l;
    struct pl_error err;
    const struct pl_conn_ops ops = net_side_ops;
    struct net_side server = {.rig = &rig};
    assert_int_equal(pl_listen(&l, &rig.server, "*:0", &ops, &server, &err), PELAGO_OK);
    rig.listener = l;
    int v6 = socket(AF_INET6, SOCK_STREAM, 0);
    const struct sockaddr_in6 loopback = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    unsigned families = bind(v6, (const struct sockaddr *)&loopback, sizeof loopback) == 0 ? 2 : 1;
    (void)close(v6);
    for (unsigned i = 0; i < families; i++) {
        struct net_side a = {.rig = &rig};
        char address[64];
        (void)snprintf(address, sizeof address, "%s:%u", hosts[i], (unsigned)pl_listener_port(l));
        a.conn = pl_dial(&rig.client, address, 1, &net_side_ops, &a);
        net_wait(&rig, &server.opened, i + 1);
        assert_memory_equal(server.peer.address, address, i == 0 ? 10 : 6);
        net_wait(&rig, &a.opened, 1);
        net_close(&a, 0);
        net_wait(&rig, &server.closed, i + 1);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(another_runs_syncer_is_not_ours),
        TEST(a_shard_must_be_the_one_that_was_meant),
        TEST(an_expired_certificate_is_taken_and_marked),
        TEST(a_certificate_of_another_run_is_refused),
        TEST(the_authority_itself_is_no_member),
        TEST(an_expired_shard_is_still_known),
        TEST(only_a_shard_may_listen),
        TEST(a_web_server_is_no_syncer),
        TEST(a_silent_server_is_given_up),
        TEST(an_old_tls_server_is_no_syncer),
        TEST(a_tls_server_of_something_else_is_no_syncer),
        TEST(bad_addresses_are_explained),
        TEST(nobody_listens),
        TEST(no_way_leads_there),
        TEST(no_such_host),
        TEST(a_name_may_be_given_up_while_it_is_looked_up),
        TEST(a_name_is_tried_at_all_its_addresses),
        TEST(listening_fails_with_advice),
        TEST(all_addresses_have_one_port),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
