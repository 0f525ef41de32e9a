/* host/learner_steady.c - see learner_steady.h. */
#include "host/learner_steady.h"

#include "base/check.h"
#include "base/limits.h"

enum { PIECE_BYTES = 64 << 10 }; /* between two looks at the number */

/* Keeps the race detector out of one function; clang's goes on watching atomics unless told more. */
#if defined __clang__ && defined __has_attribute
#if __has_attribute(disable_sanitizer_instrumentation)
#define UNWATCHED __attribute__((no_sanitize("thread"), disable_sanitizer_instrumentation, noinline))
#endif
#endif
#ifndef UNWATCHED
#define UNWATCHED __attribute__((no_sanitize("thread"), noinline))
#endif

typedef uint64_t __attribute__((may_alias)) word;
typedef uint32_t __attribute__((may_alias)) half;

/* Reads memory that its owner may be writing at the same time, on purpose. It is sound because the result is
 * thrown away unless the number did not change, and then no write was under way: the load of the even number
 * acquires everything the owner wrote before; the last look is a read-modify-write that releases these loads,
 * and the owner's own read-modify-write before its next write comes after it in the number's order and
 * acquires them. Loads of whole words, atomic and relaxed, so that no compiler may make a call of memcpy of
 * it or read a place twice. */
UNWATCHED static void copy_words(const uint8_t *from, uint8_t *to, size_t bytes)
{
    if (bytes >= 4 && (uintptr_t)from % 8 != 0) {
        *(half *)(void *)to = __atomic_load_n((const half *)(const void *)from, __ATOMIC_RELAXED);
        from += 4;
        to += 4;
        bytes -= 4;
    }
    const word *words = (const word *)(const void *)from;
    for (size_t i = 0; i < bytes / 8; i++) {
        uint64_t w = __atomic_load_n(&words[i], __ATOMIC_RELAXED);
        __builtin_memcpy(to + 8 * i, &w, 8);
    }
    if (bytes % 8 != 0) {
        size_t at = bytes / 8 * 8;
        *(half *)(void *)(to + at) =
            __atomic_load_n((const half *)(const void *)(from + at), __ATOMIC_RELAXED);
    }
}

static bool copy_span(struct pl_steady *s, const struct pl_steady_span *span, uint64_t number)
{
    pl_assert((uintptr_t)span->from % 4 == 0 && (uintptr_t)span->to % 4 == 0 && span->bytes % 4 == 0);
    for (size_t at = 0; at < span->bytes; at += PIECE_BYTES) {
        size_t left = span->bytes - at;
        copy_words((const uint8_t *)span->from + at, (uint8_t *)span->to + at,
                   left < PIECE_BYTES ? left : PIECE_BYTES);
        if (atomic_load_explicit(&s->number, memory_order_relaxed) != number)
            return false; /* only to stop early: it proves nothing */
    }
    return true;
}

bool pl_steady_copy(struct pl_steady *s, const struct pl_steady_span *spans, uint32_t count, uint64_t want,
                    uint64_t *number)
{
    uint64_t at = pl_steady_now(s);
    if (at % 2 != 0 || (want != PL_NONE64 && at != want))
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (!copy_span(s, &spans[i], at))
            return false;
    *number = at;
    return atomic_fetch_add_explicit(&s->number, 0, memory_order_acq_rel) == at;
}
