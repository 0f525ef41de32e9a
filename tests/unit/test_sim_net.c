/* Simulated connections: delay, rate, priority, order, and the ways they break. The ends are recorders. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "sim/net.h"
#include "wire/frame.h"

#include <string.h>

enum { EVENTS_MAX = 256 };

enum what { OPENED, CLOSED, MESSAGE, BAD, DRAINED };

struct seen {
    enum what what;
    enum pl_side side;
    uint32_t conn;
    uint64_t at;
    uint8_t type;
    uint64_t number; /* of a PING, steps of a REPORT */
};

static struct fixture {
    struct pl_mem mem;
    struct pl_alloc system;
    struct pl_world w;
    struct pl_sim_result result;
    struct seen seen[EVENTS_MAX];
    uint32_t count;
    bool refuse;
    bool frozen;
} fx;

static void see(enum what what, uint32_t conn, enum pl_side side, const struct pl_msg *msg)
{
    assert_true(fx.count < EVENTS_MAX);
    struct seen *s = &fx.seen[fx.count++];
    *s = (struct seen){.what = what, .side = side, .conn = conn, .at = fx.w.now_ns};
    if (msg != NULL) {
        s->type = msg->type;
        s->number = msg->type == PL_MSG_PING     ? msg->u.ping.nonce
                    : msg->type == PL_MSG_REPORT ? msg->u.report.steps
                                                 : 0;
    }
}

static bool on_accept(struct pl_world *w, uint32_t conn)
{
    (void)w;
    (void)conn;
    return !fx.refuse;
}

static void on_opened(struct pl_world *w, uint32_t conn, enum pl_side side)
{
    (void)w;
    see(OPENED, conn, side, NULL);
}

static void on_closed(struct pl_world *w, uint32_t conn, enum pl_side side)
{
    (void)w;
    see(CLOSED, conn, side, NULL);
}

static void on_message(struct pl_world *w, uint32_t conn, enum pl_side side, const struct pl_msg *msg)
{
    (void)w;
    see(MESSAGE, conn, side, msg);
}

static void on_bad(struct pl_world *w, uint32_t conn, enum pl_side side, const struct pl_error *error)
{
    (void)w;
    assert_true(error->text[0] != '\0');
    see(BAD, conn, side, NULL);
}

static void on_drained(struct pl_world *w, uint32_t conn, enum pl_side side)
{
    (void)w;
    see(DRAINED, conn, side, NULL);
}

static bool on_reads(struct pl_world *w, uint32_t conn, enum pl_side side)
{
    (void)w;
    (void)conn;
    return side == PL_SIDE_SYNCER || !fx.frozen;
}

static int set_up(void **state)
{
    (void)state;
    memset(&fx, 0, sizeof fx);
    fx.system = pl_alloc_system();
    pl_mem_init(&fx.mem, &fx.system);
    fx.w.alloc = pl_mem_alloc(&fx.mem);
    fx.w.result = &fx.result;
    struct pl_net_setup setup = {
        .machines = 2,
        .shards = 2,
        .latency_ns = 10 * PL_MS,
        .bandwidth = 100000,
        .seed = 1,
        .ops = {on_accept, on_opened, on_closed, on_message, on_bad, on_drained, on_reads},
    };
    fx.w.net = pl_net_new(&fx.w, &setup);
    return fx.w.net == NULL;
}

static int tear_down(void **state)
{
    (void)state;
    pl_mem_release(&fx.mem);
    return 0;
}

static void run_until(uint64_t ns)
{
    while (fx.w.heap_len > 0 && fx.w.heap[0].at <= ns)
        pl_world_next(&fx.w);
    if (fx.w.now_ns < ns)
        fx.w.now_ns = ns;
}

static uint32_t connect(uint32_t machine, uint32_t shard, enum pl_link link)
{
    uint32_t conn =
        pl_net_dial(fx.w.net, &(struct pl_conn_info){.machine = machine, .shard = shard, .link = link});
    run_until(fx.w.now_ns + 50 * PL_MS);
    fx.count = 0;
    return conn;
}

static void ping(uint32_t conn, enum pl_side side, uint64_t nonce)
{
    pl_net_send(fx.w.net, conn, side, &(struct pl_msg){.type = PL_MSG_PING, .u.ping = {.nonce = nonce}});
}

static void send_chunk(uint32_t conn, enum pl_side side, const uint8_t *bytes, uint32_t len)
{
    pl_net_send(fx.w.net, conn, side,
                &(struct pl_msg){.type = PL_MSG_DATA, .u.data = {.bytes = {bytes, len}}});
}

static uint32_t count_of(enum what what, enum pl_side side)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < fx.count; i++)
        n += fx.seen[i].what == what && fx.seen[i].side == side ? 1 : 0;
    return n;
}

static void dialling_takes_a_round_trip(void **state)
{
    (void)state;
    pl_net_dial(fx.w.net, &(struct pl_conn_info){.machine = 0, .shard = 0, .link = PL_LINK_CONTROL});
    run_until(PL_SEC);
    assert_int_equal(fx.count, 2);
    assert_int_equal(fx.seen[0].what, OPENED);
    assert_int_equal(fx.seen[0].side, PL_SIDE_SYNCER);
    assert_true(fx.seen[0].at >= 10 * PL_MS && fx.seen[0].at <= 13 * PL_MS);
    assert_int_equal(fx.seen[1].side, PL_SIDE_LEARNER);
    assert_true(fx.seen[1].at >= 20 * PL_MS && fx.seen[1].at <= 26 * PL_MS);
}

static void a_shard_that_refuses_and_a_cut_path_end_the_dial(void **state)
{
    (void)state;
    fx.refuse = true;
    pl_net_dial(fx.w.net, &(struct pl_conn_info){.machine = 0, .shard = 0});
    run_until(PL_SEC);
    assert_int_equal(fx.count, 1);
    assert_int_equal(fx.seen[0].what, CLOSED);
    fx.refuse = false;
    pl_net_cut(fx.w.net, 0, 1, PL_DIR_DOWN);
    pl_net_dial(fx.w.net, &(struct pl_conn_info){.machine = 0, .shard = 1});
    run_until(2 * PL_SEC);
    assert_int_equal(fx.count, 1); /* nobody says no: it takes its time */
    run_until(10 * PL_SEC);
    assert_int_equal(fx.count, 2);
    assert_int_equal(fx.seen[1].what, CLOSED);
    assert_int_equal(fx.seen[1].side, PL_SIDE_LEARNER);
}

static void messages_arrive_in_order_after_delay_and_transfer(void **state)
{
    (void)state;
    uint32_t c = connect(0, 0, PL_LINK_CONTROL);
    uint64_t began = fx.w.now_ns;
    for (uint64_t i = 0; i < 20; i++)
        ping(c, PL_SIDE_LEARNER, i);
    run_until(began + PL_SEC);
    assert_int_equal(count_of(MESSAGE, PL_SIDE_SYNCER), 20);
    for (uint32_t i = 0; i < 20; i++) {
        assert_int_equal(fx.seen[i].number, i);
        /* 24 bytes each at 100 kB/s */
        assert_true(fx.seen[i].at >= began + 10 * PL_MS + (i + 1) * 240 * PL_US);
    }
}

static void control_goes_between_the_packets_of_a_chunk(void **state)
{
    (void)state;
    static uint8_t chunk[50000];
    uint32_t bulk = connect(0, 0, PL_LINK_BULK), control = connect(0, 1, PL_LINK_CONTROL);
    uint64_t began = fx.w.now_ns;
    send_chunk(bulk, PL_SIDE_LEARNER, chunk, sizeof chunk); /* half a second */
    ping(control, PL_SIDE_LEARNER, 7);
    run_until(began + 2 * PL_SEC);
    assert_int_equal(count_of(MESSAGE, PL_SIDE_SYNCER), 2);
    const struct seen *first = NULL, *second = NULL;
    for (uint32_t i = 0; i < fx.count; i++)
        if (fx.seen[i].what == MESSAGE) {
            second = first != NULL ? &fx.seen[i] : second;
            first = first == NULL ? &fx.seen[i] : first;
        }
    assert_int_equal(first->type, PL_MSG_PING);
    assert_true(first->at < began + 50 * PL_MS);
    assert_int_equal(second->type, PL_MSG_DATA);
    assert_true(second->at >= began + 500 * PL_MS);
}

static void the_send_buffer_fills_and_drains(void **state)
{
    (void)state;
    static uint8_t chunk[40000];
    uint32_t c = connect(0, 0, PL_LINK_BULK);
    assert_true(pl_net_room(fx.w.net, c, PL_SIDE_SYNCER));
    send_chunk(c, PL_SIDE_SYNCER, chunk, sizeof chunk);
    send_chunk(c, PL_SIDE_SYNCER, chunk, sizeof chunk);
    assert_false(pl_net_room(fx.w.net, c, PL_SIDE_SYNCER));
    run_until(fx.w.now_ns + 2 * PL_SEC);
    assert_true(pl_net_room(fx.w.net, c, PL_SIDE_SYNCER));
    assert_true(count_of(DRAINED, PL_SIDE_SYNCER) >= 1);
    assert_int_equal(count_of(MESSAGE, PL_SIDE_LEARNER), 2);
}

static void an_unsent_report_is_replaced(void **state)
{
    (void)state;
    uint32_t c = connect(0, 0, PL_LINK_CONTROL);
    pl_net_stall(fx.w.net, 0, PL_DIR_UP);
    for (uint64_t i = 1; i <= 5; i++)
        pl_net_send(fx.w.net, c, PL_SIDE_LEARNER,
                    &(struct pl_msg){.type = PL_MSG_REPORT, .u.report = {.steps = i}});
    pl_net_flow(fx.w.net, 0, PL_DIR_UP);
    run_until(fx.w.now_ns + PL_SEC);
    assert_int_equal(fx.count, 1);
    assert_int_equal(fx.seen[0].number, 5);
}

static void a_cut_keeps_what_was_sent_until_it_heals(void **state)
{
    (void)state;
    uint32_t c = connect(0, 0, PL_LINK_CONTROL), other = connect(1, 0, PL_LINK_CONTROL);
    pl_net_cut(fx.w.net, 0, 0, PL_DIR_UP);
    ping(c, PL_SIDE_LEARNER, 1);
    ping(c, PL_SIDE_SYNCER, 2);
    ping(other, PL_SIDE_LEARNER, 3);
    run_until(fx.w.now_ns + 20 * PL_SEC);
    assert_int_equal(count_of(MESSAGE, PL_SIDE_LEARNER), 1); /* the other direction works, and so do others */
    assert_int_equal(count_of(MESSAGE, PL_SIDE_SYNCER), 1);
    pl_net_heal(fx.w.net, 0, 0, PL_DIR_UP);
    run_until(fx.w.now_ns + PL_SEC);
    assert_int_equal(count_of(MESSAGE, PL_SIDE_SYNCER), 2);
}

static void closing_comes_after_what_was_said(void **state)
{
    (void)state;
    uint32_t c = connect(0, 0, PL_LINK_CONTROL);
    ping(c, PL_SIDE_SYNCER, 1);
    pl_net_close(fx.w.net, c, PL_SIDE_SYNCER);
    run_until(fx.w.now_ns + PL_SEC);
    assert_int_equal(fx.count, 2);
    assert_int_equal(fx.seen[0].what, MESSAGE);
    assert_int_equal(fx.seen[1].what, CLOSED);
    assert_int_equal(fx.seen[1].side, PL_SIDE_LEARNER);
}

static void a_break_loses_what_is_under_way(void **state)
{
    (void)state;
    uint32_t told = connect(0, 0, PL_LINK_CONTROL);
    ping(told, PL_SIDE_LEARNER, 1);
    pl_net_break(fx.w.net, told, 3);
    run_until(fx.w.now_ns + PL_SEC);
    assert_int_equal(count_of(MESSAGE, PL_SIDE_SYNCER), 0);
    assert_int_equal(count_of(CLOSED, PL_SIDE_SYNCER), 1);
    assert_int_equal(count_of(CLOSED, PL_SIDE_LEARNER), 1);
    uint32_t silent = connect(0, 0, PL_LINK_CONTROL);
    pl_net_break(fx.w.net, silent, 0);
    ping(silent, PL_SIDE_LEARNER, 2); /* into the void */
    run_until(fx.w.now_ns + 100 * PL_SEC);
    assert_int_equal(fx.count, 0);
    pl_net_close(fx.w.net, silent, PL_SIDE_LEARNER);
    pl_net_close(fx.w.net, silent, PL_SIDE_SYNCER);
}

static void a_dead_process_is_noticed_or_not(void **state)
{
    (void)state;
    uint32_t c = connect(0, 0, PL_LINK_CONTROL), d = connect(1, 0, PL_LINK_CONTROL);
    pl_net_die(fx.w.net, c, PL_SIDE_LEARNER, true);
    pl_net_die(fx.w.net, d, PL_SIDE_LEARNER, false);
    run_until(fx.w.now_ns + 10 * PL_SEC);
    assert_int_equal(fx.count, 1);
    assert_int_equal(fx.seen[0].what, CLOSED);
    assert_int_equal(fx.seen[0].conn, c);
}

static void a_dial_that_is_broken_still_ends(void **state)
{
    (void)state;
    uint32_t c = pl_net_dial(fx.w.net, &(struct pl_conn_info){.machine = 0, .shard = 0});
    run_until(15 * PL_MS); /* the shard has it, the learner does not know yet */
    pl_net_break(fx.w.net, c, 0);
    run_until(10 * PL_SEC);
    assert_int_equal(count_of(OPENED, PL_SIDE_LEARNER), 0);
    assert_int_equal(count_of(CLOSED, PL_SIDE_LEARNER), 1);
}

static void a_frozen_reader_gets_it_later(void **state)
{
    (void)state;
    uint32_t c = connect(0, 0, PL_LINK_CONTROL);
    fx.frozen = true;
    ping(c, PL_SIDE_SYNCER, 1);
    ping(c, PL_SIDE_SYNCER, 2);
    run_until(fx.w.now_ns + PL_SEC);
    assert_int_equal(fx.count, 0);
    fx.frozen = false;
    pl_net_kick(fx.w.net, c, PL_SIDE_LEARNER);
    run_until(fx.w.now_ns + PL_SEC);
    assert_int_equal(fx.count, 2);
    assert_int_equal(fx.seen[1].number, 2);
}

static void a_held_type_holds_its_connection_only(void **state)
{
    (void)state;
    uint32_t c = connect(0, 0, PL_LINK_CONTROL), d = connect(0, 1, PL_LINK_CONTROL);
    pl_net_hold(fx.w.net, 0, 0, PL_DIR_UP, PL_MSG_PING);
    ping(c, PL_SIDE_LEARNER, 1);
    pl_net_send(fx.w.net, c, PL_SIDE_LEARNER, &(struct pl_msg){.type = PL_MSG_WANT});
    ping(d, PL_SIDE_LEARNER, 2);
    run_until(fx.w.now_ns + PL_SEC);
    assert_int_equal(fx.count, 1);
    assert_int_equal(fx.seen[0].conn, d);
    pl_net_release(fx.w.net, 0, 0, PL_DIR_UP, PL_MSG_PING);
    run_until(fx.w.now_ns + PL_SEC);
    assert_int_equal(fx.count, 3);
}

static void bytes_may_come_in_pieces_and_may_be_no_frame(void **state)
{
    (void)state;
    uint32_t c = connect(0, 0, PL_LINK_CONTROL);
    uint8_t frame[64];
    size_t len =
        pl_frame_encode(&(struct pl_msg){.type = PL_MSG_PING, .u.ping = {.nonce = 9}}, frame, sizeof frame);
    for (size_t i = 0; i < len; i++)
        pl_net_send_bytes(fx.w.net, c, PL_SIDE_LEARNER, frame + i, 1);
    run_until(fx.w.now_ns + PL_SEC);
    assert_int_equal(fx.count, 1);
    assert_int_equal(fx.seen[0].number, 9);
    frame[5] ^= 1;
    pl_net_send_bytes(fx.w.net, c, PL_SIDE_LEARNER, frame, len);
    ping(c, PL_SIDE_LEARNER, 10); /* behind it: cannot be read any more */
    run_until(fx.w.now_ns + PL_SEC);
    assert_int_equal(fx.count, 2);
    assert_int_equal(fx.seen[1].what, BAD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
        TEST(dialling_takes_a_round_trip),
        TEST(a_shard_that_refuses_and_a_cut_path_end_the_dial),
        TEST(messages_arrive_in_order_after_delay_and_transfer),
        TEST(control_goes_between_the_packets_of_a_chunk),
        TEST(the_send_buffer_fills_and_drains),
        TEST(an_unsent_report_is_replaced),
        TEST(a_cut_keeps_what_was_sent_until_it_heals),
        TEST(closing_comes_after_what_was_said),
        TEST(a_break_loses_what_is_under_way),
        TEST(a_dead_process_is_noticed_or_not),
        TEST(a_dial_that_is_broken_still_ends),
        TEST(a_frozen_reader_gets_it_later),
        TEST(a_held_type_holds_its_connection_only),
        TEST(bytes_may_come_in_pieces_and_may_be_no_frame),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
