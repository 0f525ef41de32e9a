/* test_net_bundle.c - one connection over several TLS connections: order, bounds, ends, and peers that lie about it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "base/prng.h"
#include "net/conn_int.h"
#include "net_rig.h"
#include "seed.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct net_rig rig;

static int setup(void **state)
{
    (void)state;
    net_rig_init(&rig);
    rig.client.streams = 4;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    net_rig_release(&rig);
    return 0;
}

static uint32_t streams_of(const struct net_side *s)
{
    struct pl_conn_view view;
    pl_conn_view(s->conn, &view);
    return view.streams;
}

static void wait_for_streams(struct net_side *s, uint32_t n)
{
    for (unsigned i = 0; streams_of(s) < n; i++) {
        assert_true(i < 5000);
        net_run_for(&rig, PL_MS);
    }
}

/* Random sizes; the order and every byte must be right. */
struct flow {
    struct pl_prng sent, expected;
    uint32_t to_send, begun, seen;
};
static uint8_t pattern[300000];

static uint32_t next_size(struct pl_prng *p)
{
    return (uint32_t)pl_prng_below(p, pl_prng_below(p, 8) == 0 ? sizeof pattern : 300);
}

static void check_data(struct net_side *s, const struct pl_frame *frame)
{
    struct flow *t = s->user;
    struct pl_msg m;
    assert_int_equal(pl_msg_decode(frame->type, frame->payload, frame->payload_len, &m, NULL), PELAGO_OK);
    assert_int_equal(m.u.data.bytes.len, next_size(&t->expected));
    assert_int_equal(m.u.data.index, t->seen++ % 64);
    assert_memory_equal(m.u.data.bytes.data, pattern, m.u.data.bytes.len);
}

static void send_data(struct net_side *s)
{
    struct flow *t = s->user;
    for (; t->to_send > 0 && pl_conn_room(s->conn); t->to_send--)
        assert_true(net_send_data(s, pattern, next_size(&t->sent), t->begun++ % 64));
}

static void begin_flows(struct flow *a, struct flow *b, uint32_t frames)
{
    uint64_t seed = test_seed();
    for (uint32_t i = 0; i < sizeof pattern; i++)
        pattern[i] = (uint8_t)(i * 7 + i / 251);
    *a = (struct flow){.to_send = frames};
    *b = (struct flow){.to_send = frames};
    pl_prng_seed(&a->sent, seed, 1);
    pl_prng_seed(&b->sent, seed, 2);
    b->expected = a->sent;
    a->expected = b->sent;
}

static void frames_keep_their_order(void **state)
{
    (void)state;
    enum { FRAMES = 2000 };
    struct flow from_a, from_b;
    begin_flows(&from_a, &from_b, FRAMES);
    net_rig_listen(&rig);
    struct net_side a = {.user = &from_a, .on_frame = check_data, .on_drained = send_data};
    struct net_side *b = net_connect(&rig, &a);
    b->user = &from_b;
    b->on_frame = check_data;
    b->on_drained = send_data;
    send_data(&a); /* before the other streams are there */
    send_data(b);
    net_wait(&rig, &a.frames, FRAMES);
    net_wait(&rig, &b->frames, FRAMES);
    wait_for_streams(&a, 4);
    wait_for_streams(b, 4);
    const struct pl_bundle *bundle = a.conn->member.bundle;
    for (uint32_t i = 0; i < bundle->count; i++)
        assert_true(bundle->streams[i]->bytes_out > 100000); /* everybody has carried something */
    struct pl_conn_view va, vb;
    pl_conn_view(a.conn, &va);
    pl_conn_view(b->conn, &vb);
    assert_int_equal(va.bytes_in, vb.bytes_out);
    assert_int_equal(va.bytes_in, a.payload_bytes + (uint64_t)FRAMES * PL_FRAME_HEADER_BYTES);
    assert_int_equal(vb.bytes_in, b->payload_bytes + (uint64_t)FRAMES * PL_FRAME_HEADER_BYTES);
    assert_int_equal(rig.accepted_count, 1); /* nobody above sees the others */
    struct pl_listener_view view;
    pl_listener_view(rig.listener, &view);
    assert_int_equal(view.accepted, 1);
    net_close(&a, 0);
    net_wait(&rig, &b->closed, 1);
}

static void the_listener_says_how_many(void **state)
{
    (void)state;
    static const uint8_t allowed[] = {1, 2, 3, 0}, found[] = {1, 2, 3, 8};
    rig.client.streams = 8;
    for (unsigned i = 0; i < 4; i++) {
        struct net_side a = {0};
        rig.server.streams = allowed[i];
        net_rig_listen(&rig);
        struct net_side *b = net_connect(&rig, &a);
        wait_for_streams(&a, found[i]);
        wait_for_streams(b, found[i]);
        net_run_for(&rig, 20 * PL_MS);
        assert_int_equal(streams_of(&a), found[i]);
        b->echo = true;
        net_send_ping(&a, 1);
        net_wait(&rig, &a.frames, 1);
        net_close(&a, 0);
        net_wait(&rig, &b->closed, 1);
        pl_listener_close(rig.listener);
        rig.listener = NULL;
    }
}

static void a_short_way_needs_one_stream(void **state)
{
    (void)state;
    struct net_side a = {0}, nobody = {0};
    net_rig_listen(&rig);
    rig.client.streams = PL_CONN_STREAMS_AUTO;
    (void)net_connect(&rig, &a);
    assert_null(a.conn->member.bundle);
    rig.client.streams = 4;
    rig.client.own = &rig.stranger;
    (void)net_connect(&rig, &nobody);
    assert_null(nobody.conn->member.bundle);
    net_close(&a, 0);
    net_close(&nobody, 0);
}

static void fewer_streams_will_do(void **state)
{
    (void)state;
    struct net_side a = {0};
    rig.server.conns_max = 2;
    net_rig_listen(&rig);
    struct net_side *b = net_connect(&rig, &a);
    b->echo = true;
    wait_for_streams(&a, 2);
    for (uint32_t i = 0; i < 50; i++) {
        assert_true(net_send_data(&a, pattern, 20000, 0));
        net_wait(&rig, &a.frames, i + 1);
    }
    assert_int_equal(streams_of(&a), 2);
    assert_non_null(strstr(rig.log, "every place is taken"));
    net_close(&a, 0);
    net_wait(&rig, &b->closed, 1);
}

static void a_lost_stream_is_a_lost_connection(void **state)
{
    (void)state;
    net_rig_listen(&rig);
    for (uint32_t i = 0; i < 4; i++) {
        struct net_side a = {0};
        struct net_side *b = net_connect(&rig, &a);
        wait_for_streams(&a, 4);
        wait_for_streams(b, 4);
        (void)shutdown(a.conn->member.bundle->streams[i]->pipe.fd, SHUT_RDWR);
        net_wait(&rig, &a.closed, 1);
        net_wait(&rig, &b->closed, 1);
        assert_int_equal(a.why.status, PELAGO_IO);
        assert_int_equal(b->why.status, PELAGO_IO);
    }
    net_run_for(&rig, 20 * PL_MS);
    struct pl_listener_view view;
    pl_listener_view(rig.listener, &view);
    assert_int_equal(view.open, 0);
}

static uint8_t quarter[256 << 10];

static void send_quarters(struct net_side *s)
{
    uint32_t *left = s->user;
    for (; *left > 0 && pl_conn_room(s->conn); --*left)
        assert_true(net_send_data(s, quarter, sizeof quarter, 0));
}

static void whoever_does_not_read_stops_the_sender(void **state)
{
    (void)state;
    uint32_t left = 600;
    struct net_side a = {.user = &left, .on_drained = send_quarters};
    net_rig_listen(&rig);
    struct net_side *b = net_connect(&rig, &a);
    wait_for_streams(&a, 4);
    wait_for_streams(b, 4);
    pl_conn_pause(b->conn, true);
    send_quarters(&a);
    net_run_for(&rig, 300 * PL_MS);
    assert_int_equal(b->frames, 0);
    assert_true(left > 200); /* the kernel's buffers took some */
    assert_false(pl_conn_room(a.conn));
    assert_true(rig.bytes < 8 << 20);
    uint32_t stopped_at = left;
    net_run_for(&rig, 50 * PL_MS);
    assert_int_equal(left, stopped_at);
    pl_conn_pause(b->conn, false);
    net_wait(&rig, &b->frames, 600);
    net_close(&a, 0);
    net_wait(&rig, &b->closed, 1);
}

/* At any moment, also while the streams are being made: everything that was queued arrives. */
static void closing_sends_what_is_queued(void **state)
{
    (void)state;
    net_rig_listen(&rig);
    for (unsigned round = 0; round < 30; round++) {
        uint32_t left = 1000000, frames = 0;
        struct net_side a = {0};
        struct net_side *b = net_connect(&rig, &a);
        if (round % 2 == 0) {
            b->user = &left;
            b->on_drained = send_quarters;
            send_quarters(b);
        }
        net_run_for(&rig, round * PL_MS / 2);
        for (; frames < 9; frames++)
            assert_true(net_send_data(&a, quarter, sizeof quarter / 2, 0));
        net_close(&a, 20 * PL_SEC);
        net_wait(&rig, &b->closed, 1);
        assert_int_equal(b->frames, frames);
        assert_int_equal(b->why.status, PELAGO_IO);
    }
}

static void close_in_frame(struct net_side *s, const struct pl_frame *frame)
{
    (void)frame;
    net_close(s, (uint64_t)(s->frames % 2) * PL_SEC);
}

static void a_callback_may_close(void **state)
{
    (void)state;
    net_rig_listen(&rig);
    for (unsigned round = 0; round < 6; round++) {
        struct net_side a = {0};
        struct net_side *b = net_connect(&rig, &a);
        b->on_frame = close_in_frame;
        b->frames = round;
        for (unsigned i = 0; i < 3; i++)
            assert_true(net_send_data(&a, quarter, 100000, 0));
        net_wait(&rig, &a.closed, 1);
        assert_int_equal(b->frames, round + 1);
    }
}

static void memory_may_run_out(void **state)
{
    (void)state;
    net_rig_listen(&rig);
    for (uint64_t n = 1; n < 40; n++) {
        struct net_side a = {.rig = &rig};
        rig.fail_at = n;
        a.conn = pl_dial(&rig.client, rig.address, PL_NONE32, &net_side_ops, &a);
        if (a.conn != NULL && !net_send_data(&a, quarter, sizeof quarter, 0))
            net_wait(&rig, &a.closed, 1);
        net_run_for(&rig, 30 * PL_MS);
        rig.fail_at = 0;
        net_close(&a, 0);
        net_run_for(&rig, 5 * PL_MS);
        for (uint32_t i = 0; i < NET_SIDES; i++)
            net_close(&rig.accepted[i], 0);
    }
}

/* --- capture --- */

struct capture {
    uint64_t sent_bytes, taken_bytes;
    bool seen;
};
static const char secret_word[] = "the text nobody may see";

static void on_capture(void *user, bool sent, const void *bytes, size_t len)
{
    struct capture *c = user;
    *(sent ? &c->sent_bytes : &c->taken_bytes) += len;
    c->seen = c->seen || (sent && memmem(bytes, len, secret_word, sizeof secret_word) != NULL);
}

static void a_capture_sees_every_frame(void **state)
{
    (void)state;
    for (uint8_t streams = 1; streams <= 4; streams += 3) {
        struct capture seen = {0};
        struct net_side a = {0};
        rig.client.streams = streams;
        rig.client.capture = on_capture;
        rig.client.capture_user = &seen;
        net_rig_listen(&rig);
        struct net_side *b = net_connect(&rig, &a);
        b->echo = true;
        for (uint32_t i = 0; i < 20; i++)
            assert_true(net_send_data(&a, quarter, 10000, i));
        net_wait(&rig, &a.frames, 20);
        assert_int_equal(seen.sent_bytes, 20 * (10000 + 20 + PL_FRAME_HEADER_BYTES));
        assert_int_equal(seen.taken_bytes, seen.sent_bytes);
        assert_false(seen.seen);
        assert_true(net_send_data(&a, (const uint8_t *)secret_word, sizeof secret_word, 0));
        assert_true(seen.seen);
        net_close(&a, 0);
        net_wait(&rig, &b->closed, 1);
        pl_listener_close(rig.listener);
        rig.listener = NULL;
    }
}

/* --- liars --- */

/* A client of its own that can send what pl_conn would not. */
struct raw {
    struct pl_tls_pipe pipe;
    struct pl_tls_check check;
    struct pl_tls_own own;
    SSL *ssl;
};

static void raw_open(struct raw *t, const struct pl_credentials *own, enum pl_tls_kind kind)
{
    t->pipe = (struct pl_tls_pipe){.fd = net_raw(&rig, NULL), .in_max = UINT64_MAX};
    t->check = (struct pl_tls_check){.dialling = true, .expect_shard = PL_NONE32};
    memcpy(t->check.fingerprint, rig.ca.fingerprint, sizeof t->check.fingerprint);
    assert_int_equal(fcntl(t->pipe.fd, F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(pl_tls_own_load(&t->own, own, NULL), PELAGO_OK);
    t->ssl = pl_tls_new(pl_tls_dialling(NULL), &t->own, kind, &t->pipe, &t->check);
    assert_non_null(t->ssl);
    while (SSL_do_handshake(t->ssl) != 1)
        net_run_for(&rig, PL_MS);
}

static struct net_side *raw_lead(struct raw *t, uint8_t id[static PL_BUNDLE_ID_BYTES])
{
    uint32_t before = rig.accepted_count;
    raw_open(t, &rig.learner, PL_TLS_BUNDLE);
    net_wait(&rig, &rig.accepted_count, before + 1);
    assert_true(pl_tls_secret(t->ssl, id, PL_BUNDLE_ID_BYTES));
    return &rig.accepted[before % NET_SIDES];
}

/* Records as the socket takes them; true when all bytes are out. */
static bool raw_push(struct raw *t, const uint8_t *bytes, size_t len, size_t *done)
{
    int n = 1;
    while (*done < len && n > 0) {
        n = SSL_write(t->ssl, bytes + *done, (int)(len - *done));
        *done += n > 0 ? (size_t)n : 0;
    }
    return *done == len;
}

static void raw_send(struct raw *t, const void *bytes, size_t len)
{
    size_t done = 0;
    for (unsigned i = 0; !raw_push(t, bytes, len, &done); i++) {
        assert_true(i < 2000);
        net_run_for(&rig, PL_MS);
    }
}

static void raw_close(struct raw *t)
{
    SSL_free(t->ssl);
    pl_tls_own_release(&t->own);
    (void)close(t->pipe.fd);
}

static size_t put_segment(uint8_t *out, uint64_t place, const uint8_t *bytes, uint32_t len)
{
    pl_put_le(out, place, 8);
    pl_put_le(out + 8, len, 4);
    if (len > 0 && bytes != NULL)
        memcpy(out + PL_SEGMENT_HEADER_BYTES, bytes, len);
    return PL_SEGMENT_HEADER_BYTES + (bytes != NULL ? len : 0);
}

static void streams_of_nobody_are_refused(void **state)
{
    (void)state;
    struct pl_credentials other;
    uint8_t id[PL_BUNDLE_ID_BYTES], wrong[PL_BUNDLE_ID_BYTES] = {1, 2, 3};
    struct raw lead, stream;
    net_enrol(&rig.ca, PL_ROLE_LEARNER, 8, 0, 3600, &other);
    net_rig_listen(&rig);
    struct net_side *b = raw_lead(&lead, id);

    raw_open(&stream, &rig.learner, PL_TLS_STREAM);
    raw_send(&stream, wrong, sizeof wrong);
    assert_true(net_raw_closed(&rig, stream.pipe.fd, 2 * PL_SEC));
    raw_close(&stream);
    raw_open(&stream, &other, PL_TLS_STREAM); /* the right id, another learner */
    raw_send(&stream, id, sizeof id);
    assert_true(net_raw_closed(&rig, stream.pipe.fd, 2 * PL_SEC));
    raw_close(&stream);
    assert_non_null(strstr(rig.log, "for a connection that is not there"));
    raw_open(&stream, &rig.stranger, PL_TLS_STREAM);
    assert_true(net_raw_closed(&rig, stream.pipe.fd, 2 * PL_SEC));
    raw_close(&stream);
    raw_open(&stream, &rig.stranger, PL_TLS_BUNDLE);
    assert_true(net_raw_closed(&rig, stream.pipe.fd, 2 * PL_SEC));
    raw_close(&stream);
    assert_non_null(strstr(rig.log, "wants several streams but shows no certificate"));
    assert_int_equal(rig.accepted_count, 1);
    assert_int_equal(b->closed, 0);
    assert_int_equal(streams_of(b), 1);
    raw_close(&lead);
    net_wait(&rig, &b->closed, 1);
}

static void a_stream_that_says_nothing_goes(void **state)
{
    (void)state;
    struct raw stream;
    rig.server.handshake_ns = 200 * PL_MS;
    net_rig_listen(&rig);
    raw_open(&stream, &rig.learner, PL_TLS_STREAM);
    raw_send(&stream, "half an id", 10);
    assert_true(net_raw_closed(&rig, stream.pipe.fd, 3 * PL_SEC));
    raw_close(&stream);
    net_run_for(&rig, 20 * PL_MS);
    struct pl_listener_view view;
    pl_listener_view(rig.listener, &view);
    assert_int_equal(view.open, 0);
}

static void segments_that_lie_are_bad(void **state)
{
    (void)state;
    static const struct {
        uint64_t place;
        uint32_t len;
    } lies[] = {{2, 10}, {3, 0}, {3, PL_SEGMENT_BYTES + 1}, {3, UINT32_MAX}, {UINT64_MAX - 4, 10}};
    net_rig_listen(&rig);
    for (unsigned i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        uint8_t id[PL_BUNDLE_ID_BYTES], bytes[64];
        struct raw lead;
        struct net_side *b = raw_lead(&lead, id);
        size_t n = put_segment(bytes, 0, (const uint8_t *)"PL\x01", 3); /* the beginning of a frame */
        n += put_segment(bytes + n, lies[i].place, NULL, lies[i].len);
        raw_send(&lead, bytes, n);
        net_wait(&rig, &b->bad, 1);
        assert_int_equal(b->why.status, PELAGO_PROTO);
        net_close(b, 0);
        raw_close(&lead);
    }
}

/* A stream is far ahead of the lead: what it may hold is bounded, and nothing of it is lost. */
static void a_stream_that_is_ahead_waits(void **state)
{
    (void)state;
    enum { PAYLOAD = 50000, AHEAD = 400 };
    static uint8_t frame[PL_FRAME_HEADER_BYTES + 20 + PAYLOAD],
        segment[sizeof frame + PL_SEGMENT_HEADER_BYTES];
    const struct pl_msg m = {.type = PL_MSG_DATA, .u.data = {.bytes = {quarter, PAYLOAD}}};
    assert_int_equal(pl_frame_encode(&m, frame, sizeof frame), sizeof frame);
    uint8_t id[PL_BUNDLE_ID_BYTES];
    struct raw lead, stream;
    uint32_t ahead = 0;
    net_rig_listen(&rig);
    struct net_side *b = raw_lead(&lead, id);
    raw_open(&stream, &rig.learner, PL_TLS_STREAM);
    raw_send(&stream, id, sizeof id);
    uint64_t before = rig.bytes;
    size_t n = 0, done = 0;
    for (unsigned idle = 0; ahead < AHEAD && idle < 200; idle++) {
        n = put_segment(segment, (uint64_t)(1 + ahead) * sizeof frame, frame, sizeof frame);
        if (raw_push(&stream, segment, n, &done)) {
            ahead++;
            idle = 0;
            done = 0;
        }
        net_run_for(&rig, PL_MS);
    }
    assert_true(ahead > 20);
    assert_true(rig.bytes - before <= 2 * PL_STREAM_AHEAD_BYTES + (128 << 10));
    assert_int_equal(b->frames, 0);
    n = put_segment(segment, 0, frame, sizeof frame);
    raw_send(&lead, segment, n / 2);
    net_run_for(&rig, 10 * PL_MS);
    assert_int_equal(b->frames, 0);
    raw_send(&lead, segment + n / 2, n - n / 2);
    net_wait(&rig, &b->frames, 1 + ahead);
    net_close(b, 0);
    raw_close(&lead);
    raw_close(&stream);
}

static void a_gap_that_is_never_filled_is_a_stall(void **state)
{
    (void)state;
    uint8_t id[PL_BUNDLE_ID_BYTES], bytes[64];
    struct raw lead;
    rig.server.stall_ns = 300 * PL_MS;
    net_rig_listen(&rig);
    struct net_side *b = raw_lead(&lead, id);
    raw_send(&lead, bytes, put_segment(bytes, 100, (const uint8_t *)"PL", 2));
    net_wait(&rig, &b->closed, 1);
    assert_int_equal(b->why.status, PELAGO_LIMIT);
    raw_close(&lead);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(frames_keep_their_order),
        TEST(the_listener_says_how_many),
        TEST(a_short_way_needs_one_stream),
        TEST(fewer_streams_will_do),
        TEST(a_lost_stream_is_a_lost_connection),
        TEST(whoever_does_not_read_stops_the_sender),
        TEST(closing_sends_what_is_queued),
        TEST(a_callback_may_close),
        TEST(memory_may_run_out),
        TEST(a_capture_sees_every_frame),
        TEST(streams_of_nobody_are_refused),
        TEST(a_stream_that_says_nothing_goes),
        TEST(segments_that_lie_are_bad),
        TEST(a_stream_that_is_ahead_waits),
        TEST(a_gap_that_is_never_filled_is_a_stall),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
