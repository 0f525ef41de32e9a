/* sim/world.c - see world.h. */
#include "sim/world.h"

#include "base/check.h"
#include "base/fmt.h"

#include <string.h>

/* Stands before every block of a run; a multiple of 16 bytes, so that blocks stay aligned for anything. */
struct pl_mem_block {
    struct pl_mem_block *next, *prev;
    size_t bytes;
    size_t unused;
};

static void unlink_block(struct pl_mem *m, struct pl_mem_block *b)
{
    if (b->prev != NULL)
        b->prev->next = b->next;
    else
        m->first = b->next;
    if (b->next != NULL)
        b->next->prev = b->prev;
    m->live_bytes -= b->bytes;
}

static void link_block(struct pl_mem *m, struct pl_mem_block *b, size_t bytes)
{
    *b = (struct pl_mem_block){m->first, NULL, bytes, 0};
    if (m->first != NULL)
        m->first->prev = b;
    m->first = b;
    m->live_bytes += bytes;
    if (m->live_bytes > m->peak_bytes)
        m->peak_bytes = m->live_bytes;
}

static void *mem_resize(void *user, void *block, size_t old_bytes, size_t new_bytes)
{
    struct pl_mem *m = user;
    struct pl_mem_block *old = block != NULL ? (struct pl_mem_block *)block - 1 : NULL;
    const size_t head = sizeof(struct pl_mem_block);
    pl_assert(old == NULL || old->bytes == old_bytes);
    if (new_bytes == 0) {
        if (old != NULL) {
            unlink_block(m, old);
            m->base->resize(m->base->user, old, head + old_bytes, 0);
        }
        return NULL;
    }
    struct pl_mem_block *fresh = m->base->resize(m->base->user, NULL, 0, head + new_bytes);
    if (fresh == NULL) {
        m->failed = true;
        return NULL;
    }
    link_block(m, fresh, new_bytes);
    if (old != NULL) {
        memcpy(fresh + 1, block, old_bytes < new_bytes ? old_bytes : new_bytes);
        unlink_block(m, old);
        m->base->resize(m->base->user, old, head + old_bytes, 0);
    }
    return fresh + 1;
}

void pl_mem_init(struct pl_mem *m, const struct pl_alloc *base)
{
    *m = (struct pl_mem){.base = base};
}

void pl_mem_release(struct pl_mem *m)
{
    while (m->first != NULL) {
        struct pl_mem_block *b = m->first;
        unlink_block(m, b);
        m->base->resize(m->base->user, b, sizeof *b + b->bytes, 0);
    }
}

struct pl_alloc pl_mem_alloc(struct pl_mem *m)
{
    return (struct pl_alloc){mem_resize, m};
}

void *pl_world_zero(struct pl_world *w, size_t count, size_t size)
{
    void *block = w->status == PELAGO_OK ? pl_alloc_zero(&w->alloc, count, size) : NULL;
    if (block == NULL)
        w->status = PELAGO_NOMEM;
    return block;
}

static bool before(const struct pl_sim_ev *a, const struct pl_sim_ev *b)
{
    return a->at < b->at || (a->at == b->at && a->seq < b->seq);
}

static bool grow(struct pl_world *w)
{
    uint32_t cap = w->heap_cap == 0 ? 256 : w->heap_cap * 2;
    void *heap =
        w->alloc.resize(w->alloc.user, w->heap, w->heap_cap * sizeof *w->heap, cap * sizeof *w->heap);
    if (heap == NULL) {
        w->status = PELAGO_NOMEM;
        return false;
    }
    w->heap = heap;
    w->heap_cap = cap;
    return true;
}

void pl_world_at(struct pl_world *w, const struct pl_sim_ev *ev)
{
    pl_assert(ev->at >= w->now_ns);
    if (w->heap_len == w->heap_cap && !grow(w))
        return;
    struct pl_sim_ev fresh = *ev;
    fresh.seq = w->seq++;
    uint32_t pos = w->heap_len++;
    while (pos > 0 && before(&fresh, &w->heap[(pos - 1) / 2])) {
        w->heap[pos] = w->heap[(pos - 1) / 2];
        pos = (pos - 1) / 2;
    }
    w->heap[pos] = fresh;
}

static void pop(struct pl_world *w)
{
    struct pl_sim_ev last = w->heap[--w->heap_len];
    uint32_t pos = 0;
    for (;;) {
        uint32_t child = 2 * pos + 1;
        if (child >= w->heap_len)
            break;
        if (child + 1 < w->heap_len && before(&w->heap[child + 1], &w->heap[child]))
            child++;
        if (!before(&w->heap[child], &last))
            break;
        w->heap[pos] = w->heap[child];
        pos = child;
    }
    w->heap[pos] = last;
}

bool pl_world_next(struct pl_world *w)
{
    if (w->heap_len == 0)
        return false;
    struct pl_sim_ev ev = w->heap[0];
    pop(w);
    pl_assert(ev.at >= w->now_ns);
    w->now_ns = ev.at;
    w->result->events++;
    ev.fire(w, &ev);
    return true;
}

void pl_world_line(struct pl_world *w, const char *kind, uint64_t number, const char *format, ...)
{
    if (!pl_world_tracing(w))
        return;
    char who[32], text[PL_SIM_TEXT_MAX + 64];
    if (number == PL_NONE64)
        pl_fmt(who, sizeof who, "%s", kind);
    else
        pl_fmt(who, sizeof who, "%s %lu", kind, number);
    va_list args;
    va_start(args, format);
    pl_vfmt(text, sizeof text, format, args);
    va_end(args);
    w->plan->line(w->plan->user, w->now_ns, who, text);
}

void pl_world_fail(struct pl_world *w, enum pl_sim_exit exit_code, const char *format, ...)
{
    if (w->result->exit != PL_SIM_OK)
        return;
    va_list args;
    va_start(args, format);
    pl_vfmt(w->result->what, sizeof w->result->what, format, args);
    va_end(args);
    w->result->exit = exit_code;
}
