/* chaos/proxy_flow.c - bytes through a misshapen link.
 *
 * What is read gets a time at which it may leave and waits in a queue. Pumping writes whatever is due, as far as the line
 * is free: the rate is a virtual clock that each write moves on. A link without any shape skips the queue.
 */
#include "chaos/proxy_int.h"

#include "base/check.h"
#include "base/limits.h"
#include "base/num.h"

#include <math.h>
#include <string.h>

enum {
    QUEUE_MIN = 16 << 10,  /* always held, whatever the settings */
    QUEUE_PLAIN = 1 << 20, /* without latency only a slow reader fills it */
    QUEUE_MAX = 16 << 20,
    TURN_BYTES = 16 << 10, /* one connection's turn on a shared line */
};
static const uint64_t queued_max = UINT64_C(1) << 30; /* of the whole proxy, beyond QUEUE_MIN each */

static struct link *link_of(const struct flow *f)
{
    return f->pair->link;
}

static const uint64_t *shape_of(const struct flow *f)
{
    return link_of(f)->shape[f->dir].v;
}

static uv_stream_t *from_side(struct flow *f)
{
    return (uv_stream_t *)&f->pair->side[f->dir == UP ? LEARNER : SYNCER];
}

static uv_stream_t *to_side(struct flow *f)
{
    return (uv_stream_t *)&f->pair->side[f->dir == UP ? SYNCER : LEARNER];
}

void pl_flow_init(struct flow *f, struct pair *pair, uint32_t dir)
{
    *f = (struct flow){.pair = pair, .dir = dir};
}

/* ---- the queue ---- */

/* What a line of this rate and length holds twice, and a tenth of a second more, as routers do: it never runs empty. */
static uint64_t queue_bound(const struct flow *f)
{
    const uint64_t *v = shape_of(f);
    uint64_t delay = v[PL_SHAPE_LATENCY] + v[PL_SHAPE_JITTER], bound = delay > 0 ? QUEUE_MAX : QUEUE_PLAIN;
    if (v[PL_SHAPE_RATE] > 0)
        bound = pl_mul_div(v[PL_SHAPE_RATE], 2 * delay + 100 * PL_MS, PL_SEC);
    if (link_of(f)->proxy->queued > queued_max)
        bound = QUEUE_MIN;
    return pl_clamp64(bound, QUEUE_MIN, QUEUE_MAX);
}

static void pop(struct flow *f)
{
    struct chunk *c = f->head;
    f->head = c->next;
    if (f->head == NULL)
        f->tail = NULL;
    f->queued -= sizeof *c + c->len;
    link_of(f)->proxy->queued -= sizeof *c + c->len;
    pl_alloc_free(link_of(f)->proxy->alloc, c, sizeof *c + c->len);
}

void pl_flow_release(struct flow *f)
{
    while (f->head != NULL)
        pop(f);
}

static uint64_t due_of(struct flow *f, uint64_t now)
{
    const uint64_t *v = shape_of(f);
    uint64_t due = now + v[PL_SHAPE_LATENCY];
    if (v[PL_SHAPE_JITTER] > 0)
        due += pl_prng_range(&link_of(f)->proxy->prng, 0, v[PL_SHAPE_JITTER]);
    f->due_ns = pl_max64(f->due_ns, due);
    return f->due_ns;
}

static bool push(struct flow *f, const uint8_t *bytes, size_t len, uint64_t due_ns)
{
    const struct pl_alloc *a = link_of(f)->proxy->alloc;
    struct chunk *c = a->resize(a->user, NULL, 0, sizeof *c + len);
    if (c == NULL)
        return false;
    *c = (struct chunk){.due_ns = due_ns, .len = (uint32_t)len};
    memcpy(c->data, bytes, len);
    if (f->tail != NULL)
        f->tail->next = c;
    else
        f->head = c;
    f->tail = c;
    f->queued += sizeof *c + len;
    link_of(f)->proxy->queued += sizeof *c + len;
    return true;
}

/* ---- damage ---- */

static uint64_t draw_gap(struct flow *f, uint64_t one_in)
{
    double u = (double)(pl_prng_next(&link_of(f)->proxy->prng) >> 11) * 0x1p-53;
    return one_in == 1 ? 0 : (uint64_t)(-log1p(-u) * (double)one_in);
}

static void corrupt(struct flow *f, uint8_t *bytes, size_t len)
{
    uint64_t one_in = shape_of(f)[PL_SHAPE_CORRUPT], at = 0;
    if (one_in == 0)
        return;
    if (f->flip_rate != one_in) {
        f->flip_rate = one_in;
        f->flip_in = draw_gap(f, one_in);
    }
    while (f->flip_in < len - at) {
        at += f->flip_in;
        bytes[at++] ^= (uint8_t)(1U << pl_prng_below(&link_of(f)->proxy->prng, 8));
        link_of(f)->stats.flipped++;
        f->flip_in = draw_gap(f, one_in);
    }
    f->flip_in -= len - at;
}

/* ---- writing ---- */

/* The other side is gone: nothing more passes, and the sender hears of it as it would over this link. */
static void break_flow(struct flow *f)
{
    struct flow *back = &f->pair->flow[!f->dir];
    pl_flow_release(f);
    f->done = true;
    if (back->end == FLOW_OPEN) {
        back->end = FLOW_RESET;
        back->end_ns = due_of(back, uv_hrtime());
    }
}

static void sent(struct flow *f, size_t n)
{
    struct link *l = link_of(f);
    f->passed += n;
    l->stats.bytes[f->dir] += n;
}

static void on_written(uv_write_t *req, int status)
{
    struct flow *f = req->data;
    struct link *l = link_of(f);
    f->writing = false;
    if (f->pair->gone || f->head == NULL) /* ended, or made half-open, meanwhile */
        return;
    if (status < 0) {
        break_flow(f);
    } else {
        struct chunk *c = f->head;
        sent(f, f->write_len);
        c->at += f->write_len;
        if (c->at == c->len)
            pop(f);
    }
    pl_link_pump(l);
}

/* Writes n bytes of the head, now or when the socket takes them. */
static void write_some(struct flow *f, size_t n)
{
    struct chunk *c = f->head;
    uv_buf_t buf = uv_buf_init((char *)c->data + c->at, (unsigned)n);
    int r = uv_try_write(to_side(f), &buf, 1);
    if (r < 0 && r != UV_EAGAIN) {
        break_flow(f);
        return;
    }
    size_t done = r > 0 ? (size_t)r : 0;
    sent(f, done);
    c->at += (uint32_t)done;
    if (c->at == c->len) {
        pop(f);
    } else if (done < n) {
        buf = uv_buf_init((char *)c->data + c->at, (unsigned)(n - done));
        f->write.data = f;
        f->write_len = (uint32_t)(n - done);
        f->writing = uv_write(&f->write, to_side(f), &buf, 1, on_written) == 0;
        if (!f->writing)
            break_flow(f);
    }
}

/* How many bytes of the head may go now; 0: not before *wake. */
static size_t allowance(struct flow *f, uint64_t now, uint64_t *wake)
{
    const uint64_t *v = shape_of(f);
    struct line *line = &link_of(f)->line[f->dir];
    size_t n = f->head->len - f->head->at;
    uint64_t later = pl_max64(f->head->due_ns, f->drip_ns);
    if (later > now) {
        *wake = pl_min64(*wake, later);
        return 0;
    }
    if (v[PL_SHAPE_SLICE] > 0)
        n = pl_min64(n, v[PL_SHAPE_SLICE]);
    if (v[PL_SHAPE_LIMIT] > 0)
        n = pl_min64(n, pl_sub_sat(v[PL_SHAPE_LIMIT], f->passed));
    if (v[PL_SHAPE_RATE] == 0 || n == 0)
        return n;
    n = pl_min64(n, TURN_BYTES);
    if (line->free_ns > now) {
        line->waited_for = true;
        *wake = pl_min64(*wake, line->free_ns);
        return 0;
    }
    /* A line that nobody waited for has been idle: it saves up nothing. One that is busy may have been woken late. */
    line->free_ns = pl_max64(line->free_ns, now - (line->busy ? 100 * PL_MS : PL_MS));
    uint64_t credit = pl_mul_div(v[PL_SHAPE_RATE], now - line->free_ns, PL_SEC);
    n = pl_min64(n, pl_max64(credit, PACKET_BYTES)); /* a free line takes at least a packet */
    line->free_ns += pl_mul_div(n, PL_SEC, v[PL_SHAPE_RATE]);
    return n;
}

/* One turn of one connection; true when something went. */
static bool turn(struct flow *f, uint64_t now, uint64_t *wake)
{
    const uint64_t *v = shape_of(f);
    if (f->head == NULL || f->writing || f->done || v[PL_SHAPE_HOLD] != 0)
        return false;
    if (v[PL_SHAPE_LIMIT] > 0 && f->passed >= v[PL_SHAPE_LIMIT])
        return false;
    size_t n = allowance(f, now, wake);
    if (n == 0)
        return false;
    if (v[PL_SHAPE_SLICE] > 0)
        f->drip_ns = now + v[PL_SHAPE_GAP];
    write_some(f, n);
    return true;
}

/* ---- reading ---- */

static bool is_plain(const struct flow *f)
{
    const uint64_t *v = shape_of(f);
    return v[PL_SHAPE_RATE] == 0 && v[PL_SHAPE_LATENCY] == 0 && v[PL_SHAPE_JITTER] == 0 &&
           v[PL_SHAPE_SLICE] == 0 && v[PL_SHAPE_LIMIT] == 0 && v[PL_SHAPE_HOLD] == 0;
}

static void end_flow(struct flow *f, enum flow_end how)
{
    uint64_t now = uv_hrtime();
    f->reading = false;
    f->end = how;
    f->end_ns = pl_max64(due_of(f, now), now + (how == FLOW_FIN ? shape_of(f)[PL_SHAPE_SLOW_CLOSE] : 0));
}

/* Straight through as far as the socket takes it. What is left over is queued. False: no memory. */
static bool pass(struct flow *f, uint8_t *bytes, size_t len)
{
    uint64_t now = uv_hrtime();
    size_t done = 0;
    if (f->head == NULL && !f->writing && is_plain(f)) {
        uv_buf_t buf = uv_buf_init((char *)bytes, (unsigned)len);
        int r = uv_try_write(to_side(f), &buf, 1);
        if (r < 0 && r != UV_EAGAIN) {
            break_flow(f);
            return true;
        }
        done = r > 0 ? (size_t)r : 0;
        sent(f, done);
    }
    return done == len || push(f, bytes + done, len - done, due_of(f, now));
}

static void on_bytes(struct flow *f, uint8_t *bytes, size_t len)
{
    struct link *l = link_of(f);
    if (f->pair->mute || f->pair->half_open || f->done || shape_of(f)[PL_SHAPE_DROP] != 0) {
        l->stats.dropped += len;
        return;
    }
    corrupt(f, bytes, len);
    if (!pass(f, bytes, len)) {
        pl_pair_end(f->pair, true);
        return;
    }
    if (f->head != NULL || f->done)
        pl_link_pump(l);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct flow *f = handle->data;
    uint64_t room = pl_clamp64(pl_sub_sat(queue_bound(f), f->queued), QUEUE_MIN / 4, PROXY_READ_BYTES);
    (void)suggested;
    *buf = uv_buf_init((char *)link_of(f)->proxy->scratch, (unsigned)room);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct flow *f = stream->data;
    if (n > 0) {
        on_bytes(f, (uint8_t *)buf->base, (size_t)n);
    } else if (n < 0) {
        (void)uv_read_stop(stream);
        if (f->pair->mute || f->pair->half_open) {
            pl_pair_end(f->pair, false);
            return;
        }
        if (f->end == FLOW_OPEN)
            end_flow(f, n == UV_EOF ? FLOW_FIN : FLOW_RESET);
        f->reading = false;
        pl_link_pump(link_of(f));
    }
}

void pl_flow_begin(struct flow *f)
{
    from_side(f)->data = f;
    f->reading = uv_read_start(from_side(f), on_alloc, on_read) == 0;
}

/* Reading goes on while the queue has room. */
static void steer_reading(struct flow *f)
{
    uint64_t bound = queue_bound(f);
    bool open = f->end == FLOW_OPEN && !f->pair->closed[f->dir == UP ? LEARNER : SYNCER];
    if (f->reading && f->queued >= bound) {
        (void)uv_read_stop(from_side(f));
        f->reading = false;
    } else if (!f->reading && open && f->queued <= bound / 4 * 3) {
        pl_flow_begin(f);
    }
}

/* ---- a link ---- */

/* What the sender did at last comes out at the other end. True: the pair is gone. */
static bool finish(struct flow *f, uint64_t now, uint64_t *wake)
{
    const uint64_t *v = shape_of(f);
    if (v[PL_SHAPE_LIMIT] > 0 && f->passed >= v[PL_SHAPE_LIMIT]) {
        pl_pair_end(f->pair, false);
        return true;
    }
    if (f->done || f->end == FLOW_OPEN || f->head != NULL || f->writing || v[PL_SHAPE_HOLD] != 0)
        return false;
    if (f->end_ns > now) {
        *wake = pl_min64(*wake, f->end_ns);
        return false;
    }
    if (f->end == FLOW_RESET) {
        pl_pair_end(f->pair, true);
        return true;
    }
    f->done = true;
    if (!f->pair->flow[!f->dir].done && uv_shutdown(&f->shutdown, to_side(f), NULL) != 0)
        break_flow(f);
    return false;
}

static bool finish_pair(struct pair *p, uint64_t now, uint64_t *wake)
{
    if (finish(&p->flow[UP], now, wake) || finish(&p->flow[DOWN], now, wake))
        return true;
    if (!p->flow[UP].done || !p->flow[DOWN].done)
        return false;
    pl_pair_end(p, p->flow[UP].end != FLOW_FIN || p->flow[DOWN].end != FLOW_FIN);
    return true;
}

/* In turns, until nobody moves. */
static void pump_direction(struct link *l, uint32_t dir, uint64_t now, uint64_t *wake)
{
    bool moved = true;
    l->line[dir].waited_for = false;
    while (moved) {
        moved = false;
        for (struct pair *p = l->first; p != NULL; p = p->next)
            if (p->connected && !p->half_open)
                moved = turn(&p->flow[dir], now, wake) || moved;
    }
    l->line[dir].busy = l->line[dir].waited_for;
}

/* The first becomes the last, so that nobody is always first on a busy line. */
static void rotate(struct link *l)
{
    struct pair *p = l->first;
    if (p == l->last)
        return;
    l->first = p->next;
    l->first->prev = NULL;
    p->next = NULL;
    p->prev = l->last;
    l->last->next = p;
    l->last = p;
}

void pl_link_pump(struct link *l)
{
    uint64_t now = uv_hrtime(), wake = PL_NEVER;
    if (l->first == NULL)
        return;
    rotate(l);
    pump_direction(l, UP, now, &wake);
    pump_direction(l, DOWN, now, &wake);
    for (struct pair *p = l->first, *next; p != NULL; p = next) {
        next = p->next;
        if (!p->connected || p->half_open)
            continue;
        if (finish_pair(p, now, &wake))
            continue;
        steer_reading(&p->flow[UP]);
        steer_reading(&p->flow[DOWN]);
    }
    if (wake == PL_NEVER)
        return;
    /* libuv counts whole milliseconds on a cached clock and may fire early: we look at the time again. */
    uv_update_time(&l->proxy->loop);
    uint64_t wait_ms = (pl_sub_sat(wake, uv_hrtime()) + PL_MS - 1) / PL_MS;
    (void)uv_timer_start(&l->timer, pl_link_woken, pl_max64(wait_ms, 1), 0);
}

void pl_link_woken(uv_timer_t *timer)
{
    pl_link_pump(timer->data);
}
