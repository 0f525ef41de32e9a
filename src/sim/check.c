/* sim/check.c - the checks as a whole: memory, the first failure, the calls of check.h and whom they reach. The books
 * all checkers read are in check_books.c. */
#include "sim/check_int.h"

#include "base/check.h"
#include "base/fmt.h"

#include <string.h>

static const struct pl_checker *const checkers[] = {
    &pl_check_history,  &pl_check_durable,  &pl_check_once,    &pl_check_staleness, &pl_check_ledger,
    &pl_check_units,    &pl_check_fence,    &pl_check_manners, &pl_check_hostage,   &pl_check_clock,
    &pl_check_progress, &pl_check_merged95, &pl_check_model,
};
enum { CHECKERS = sizeof(checkers) / sizeof(checkers[0]) };

static void fail(struct pl_checks *c, enum pl_sim_exit exit_code, const char *checker, uint64_t now,
                 const char *format, va_list args)
{
    if (c->failed)
        return;
    c->failed = true;
    c->failure.exit = exit_code;
    c->failure.checker = checker;
    c->failure.time_ns = now;
    pl_vfmt(c->failure.text, sizeof(c->failure.text), format, args);
}

void pl_check_fail(struct pl_checks *c, const char *checker, uint64_t now, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fail(c, PL_SIM_CORRECTNESS, checker, now, format, args);
    va_end(args);
}

void pl_check_fail_alive(struct pl_checks *c, const char *checker, uint64_t now, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fail(c, PL_SIM_LIVENESS, checker, now, format, args);
    va_end(args);
}

/* Remembers a block so that free finds it; NULL: no room. */
static struct block *new_block(struct pl_checks *c)
{
    if (c->block_count == c->block_cap) {
        uint32_t cap = c->block_cap > 0 ? 2 * c->block_cap : 64;
        void *grown = c->alloc->resize(c->alloc->user, c->blocks, c->block_cap * sizeof(*c->blocks),
                                       cap * sizeof(*c->blocks));
        if (grown == NULL)
            return NULL;
        c->blocks = grown;
        c->block_cap = cap;
    }
    struct block *b = &c->blocks[c->block_count++];
    *b = (struct block){NULL, 0};
    return b;
}

void *pl_check_zero(struct pl_checks *c, size_t count, size_t size)
{
    size_t bytes = (count > 0 ? count : 1) * size;
    struct block *b = c->status == PELAGO_OK ? new_block(c) : NULL;
    if (b != NULL)
        b->memory = pl_alloc_zero(c->alloc, 1, bytes);
    if (b == NULL || b->memory == NULL) {
        c->status = PELAGO_NOMEM;
        return NULL;
    }
    b->bytes = bytes;
    return b->memory;
}

bool pl_check_room(struct pl_checks *c, void *array_of, uint32_t *cap, uint32_t need, size_t size)
{
    if (need <= *cap)
        return true;
    void *old;
    memcpy(&old, array_of, sizeof(old));
    struct block *b = NULL;
    for (uint32_t i = 0; i < c->block_count && old != NULL; i++)
        if (c->blocks[i].memory == old)
            b = &c->blocks[i];
    if (b == NULL)
        b = new_block(c);
    uint32_t want = *cap > 0 ? 2 * *cap : 8;
    while (want < need)
        want *= 2;
    void *grown = b != NULL ? c->alloc->resize(c->alloc->user, old, *cap * size, want * size) : NULL;
    if (grown == NULL) {
        c->status = PELAGO_NOMEM;
        return false;
    }
    *b = (struct block){grown, want * size};
    memcpy(array_of, &grown, sizeof(grown));
    *cap = want;
    return true;
}

struct pl_checks *pl_checks_new(const struct pl_alloc *alloc, const struct pl_check_setup *setup)
{
    struct pl_checks *c = pl_alloc_zero(alloc, 1, sizeof(*c));
    if (c == NULL)
        return NULL;
    c->alloc = alloc;
    c->setup = *setup;
    bool ok = pl_check_books_init(c);
    for (uint32_t i = 0; i < CHECKERS && ok; i++)
        ok = checkers[i]->init == NULL || checkers[i]->init(c);
    if (ok)
        return c;
    pl_checks_free(c);
    return NULL;
}

void pl_checks_free(struct pl_checks *c)
{
    if (c == NULL)
        return;
    const struct pl_alloc *alloc = c->alloc;
    for (uint32_t i = 0; i < c->block_count; i++)
        pl_alloc_free(alloc, c->blocks[i].memory, c->blocks[i].bytes);
    pl_alloc_free(alloc, c->blocks, c->block_cap * sizeof(*c->blocks));
    pl_alloc_free(alloc, c, sizeof(*c));
}

const struct pl_check_failure *pl_checks_failure(const struct pl_checks *c)
{
    return c->failed ? &c->failure : NULL;
}

enum pelago_status pl_checks_status(const struct pl_checks *c)
{
    return c->status;
}

static bool over(const struct pl_checks *c)
{
    return c->failed || c->status != PELAGO_OK;
}

/* Calls a hook of every checker that has it, until one fails. */
#define EACH(hook, ...)                                                                                      \
    do {                                                                                                     \
        for (uint32_t each_ = 0; each_ < CHECKERS && !over(c); each_++)                                      \
            if (checkers[each_]->hook != NULL)                                                               \
                checkers[each_]->hook(__VA_ARGS__);                                                          \
    } while (0)

void pl_checks_sync_event(struct pl_checks *c, uint32_t shard, const struct pl_sync_event *ev)
{
    if (over(c))
        return;
    pl_assert(shard < c->shard_count);
    pl_check_books_event(c, shard, ev);
    EACH(sync_event, c, shard, ev);
}

void pl_checks_sync_effects(struct pl_checks *c, uint32_t shard, uint64_t now_ns,
                            const struct pl_sync_fxs *fxs)
{
    pl_assert(shard < c->shard_count);
    for (uint32_t i = 0; i < fxs->count && !over(c); i++) {
        pl_check_books_effect(c, shard, now_ns, &fxs->fx[i]);
        EACH(sync_effect, c, shard, now_ns, &fxs->fx[i]);
    }
    if (!over(c))
        EACH(sync_stepped, c, shard, now_ns);
}

void pl_checks_learn_event(struct pl_checks *c, uint64_t identity, uint64_t process,
                           const struct pl_learn_event *ev)
{
    uint32_t person = pl_check_person(c, identity);
    pl_assert(pl_check_honest(c, person));
    EACH(learn_event, c, person, process, ev);
}

void pl_checks_learn_effects(struct pl_checks *c, uint64_t identity, uint64_t process, uint64_t now_ns,
                             const struct pl_learn_fxs *fxs)
{
    uint32_t person = pl_check_person(c, identity);
    pl_assert(pl_check_honest(c, person));
    for (uint32_t i = 0; i < fxs->count; i++)
        EACH(learn_effect, c, person, process, now_ns, &fxs->fx[i]);
}

void pl_checks_sync_crash(struct pl_checks *c, uint32_t shard, uint64_t now_ns)
{
    if (over(c))
        return;
    pl_assert(shard < c->shard_count);
    EACH(crash, c, shard, now_ns);
    pl_check_books_crash(c, shard);
}

void pl_checks_replayed(struct pl_checks *c, uint32_t shard, uint64_t now_ns, const struct pl_record *record)
{
    EACH(replayed, c, shard, now_ns, record);
}

void pl_checks_recovered(struct pl_checks *c, uint32_t shard, uint64_t now_ns, uint32_t fragment,
                         uint64_t version, uint64_t digest)
{
    if (over(c))
        return;
    pl_assert(pl_check_owns(c, shard, fragment));
    EACH(recovered, c, now_ns, fragment, version, digest);
    pl_check_books_recovered(c, fragment, version);
}

void pl_checks_copied(struct pl_checks *c, uint64_t now_ns, uint64_t identity, uint64_t process,
                      uint32_t fragment, uint64_t round, uint64_t digest, const struct pl_work *work)
{
    (void)now_ns;
    uint32_t person = pl_check_person(c, identity);
    pl_assert(pl_check_honest(c, person) && fragment < c->fragment_count);
    if (!over(c))
        pl_check_books_copied(c, person, process, fragment, round, digest, work);
}

void pl_checks_anchor(struct pl_checks *c, uint64_t now_ns, uint64_t identity, uint64_t process,
                      uint32_t fragment, uint64_t version, uint64_t digest)
{
    (void)process;
    uint32_t person = pl_check_person(c, identity);
    pl_assert(pl_check_honest(c, person) && fragment < c->fragment_count);
    if (!over(c))
        pl_check_history_anchor(c, now_ns, person, fragment, version, digest);
}

void pl_checks_balance(struct pl_checks *c, uint64_t now_ns, uint64_t identity, uint64_t process,
                       uint32_t fragment, const struct pl_check_balance *b)
{
    double off = b->worked - (b->merged + b->residual + b->local);
    /* The comparison is written so that a value that is no number fails it. */
    if (off <= b->tolerance_abs && -off <= b->tolerance_abs)
        return;
    double scale = b->tolerance_abs > 0.0 ? off / b->tolerance_abs : 1e18;
    scale = scale < 0.0 ? -scale : scale;
    pl_check_fail(c, "balance", now_ns,
                  "learner %lu (process %lu), fragment %u: work done is not work merged plus work left; the "
                  "difference is %lu times the rounding allowed",
                  identity, process, fragment,
                  scale < 1e18 ? (uint64_t)scale : UINT64_C(1000000000000000000));
}

void pl_checks_step(struct pl_checks *c, uint64_t now_ns, uint64_t identity, uint64_t process,
                    uint64_t tokens, uint64_t drawn_ns, uint64_t excused_ns)
{
    uint32_t person = pl_check_person(c, identity);
    pl_assert(pl_check_honest(c, person));
    if (over(c))
        return;
    pl_check_ledger_step(c, tokens);
    pl_check_clock_step(c, person, drawn_ns);
    pl_check_hostage_step(c, now_ns, person, process, drawn_ns, excused_ns);
}

void pl_checks_learn_start(struct pl_checks *c, uint64_t now_ns, uint64_t identity, uint64_t process)
{
    uint32_t person = pl_check_person(c, identity);
    pl_assert(pl_check_honest(c, person));
    EACH(learn_start, c, now_ns, person, process);
}

void pl_checks_learn_end(struct pl_checks *c, uint64_t now_ns, uint64_t identity, uint64_t process)
{
    uint32_t person = pl_check_person(c, identity);
    pl_assert(pl_check_honest(c, person));
    EACH(learn_end, c, now_ns, person, process);
}

void pl_checks_queue(struct pl_checks *c, uint64_t now_ns, const char *what, uint64_t bytes, uint64_t bound)
{
    if (bytes > bound)
        pl_check_fail(c, "bounds", now_ns, "%s holds %lu bytes, its bound is %lu", what, bytes, bound);
}

void pl_checks_storm(struct pl_checks *c, uint64_t now_ns)
{
    (void)now_ns;
    c->calm = false;
}

void pl_checks_calm(struct pl_checks *c, uint64_t now_ns, uint64_t bound_ns)
{
    c->calm = true;
    c->calm_ns = now_ns;
    EACH(calm, c, now_ns, bound_ns);
}

void pl_checks_tick(struct pl_checks *c, uint64_t now_ns)
{
    EACH(tick, c, now_ns);
}

void pl_checks_end(struct pl_checks *c, uint64_t now_ns)
{
    EACH(end, c, now_ns);
}

uint64_t pl_checks_merged_tokens(const struct pl_checks *c, uint32_t fragment)
{
    pl_assert(fragment < c->fragment_count);
    return c->merged_tokens[fragment];
}
