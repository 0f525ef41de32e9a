/* net/queue.c - see queue.h. */
#include "net/queue.h"

#include "base/check.h"

struct pl_block {
    struct pl_block *next;
    size_t cap, at, end;
    uint8_t bytes[];
};
enum { BLOCK_BYTES = 64 << 10 };

void pl_queue_init(struct pl_queue *q, const struct pl_alloc *alloc)
{
    *q = (struct pl_queue){.alloc = alloc};
}

static void free_block(struct pl_queue *q, struct pl_block *b)
{
    if (b != NULL)
        pl_alloc_free(q->alloc, b, sizeof *b + b->cap);
}

static void drop_head(struct pl_queue *q)
{
    struct pl_block *b = q->head;
    q->head = b->next;
    if (q->head == NULL)
        q->tail = NULL;
    free_block(q, q->spare);
    q->spare = b;
}

void pl_queue_trim(struct pl_queue *q)
{
    free_block(q, q->spare);
    q->spare = NULL;
}

void pl_queue_release(struct pl_queue *q)
{
    while (q->head != NULL)
        drop_head(q);
    pl_queue_trim(q);
    q->bytes = 0;
}

/* One that holds so much, and is not part of the list. */
static struct pl_block *new_block(struct pl_queue *q, size_t cap)
{
    struct pl_block *b = q->spare;
    if (b != NULL && b->cap >= cap) {
        cap = b->cap;
        q->spare = NULL;
    } else {
        b = q->alloc->resize(q->alloc->user, NULL, 0, sizeof *b + cap);
    }
    if (b != NULL)
        *b = (struct pl_block){.cap = cap};
    return b;
}

uint8_t *pl_queue_room(struct pl_queue *q, size_t n)
{
    struct pl_block *b = q->tail;
    if (b != NULL && b->cap - b->end >= n)
        return b->bytes + b->end;
    size_t cap = n > BLOCK_BYTES ? n : (size_t)BLOCK_BYTES;
    b = new_block(q, cap);
    if (b == NULL)
        return NULL;
    if (q->tail != NULL)
        q->tail->next = b;
    else
        q->head = b;
    q->tail = b;
    return b->bytes;
}

void pl_queue_add(struct pl_queue *q, size_t n)
{
    pl_assert(q->tail != NULL && q->tail->cap - q->tail->end >= n);
    q->tail->end += n;
    q->bytes += n;
}

const uint8_t *pl_queue_front(const struct pl_queue *q, size_t *n)
{
    *n = 0;
    if (q->bytes == 0)
        return NULL;
    *n = q->head->end - q->head->at;
    pl_assert(*n > 0);
    return q->head->bytes + q->head->at;
}

void pl_queue_take(struct pl_queue *q, size_t n)
{
    struct pl_block *b = q->head;
    pl_assert(b != NULL && b->end - b->at >= n && q->bytes >= n);
    b->at += n;
    q->bytes -= n;
    if (b->at == b->end)
        drop_head(q);
}
