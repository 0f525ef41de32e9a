/* core/trace.h - lines for humans, as data: a code and up to four numbers. Tests compare them; hosts print them. */
#ifndef PL_CORE_TRACE_H
#define PL_CORE_TRACE_H

#include <stddef.h>
#include <stdint.h>

enum pl_trace_code {
#define X(name, text, format) PL_TRACE_##name,
#include "core/trace.def"
#undef X
    PL_TRACE_COUNT
};

struct pl_trace {
    enum pl_trace_code code;
    uint64_t arg[4];
};

/* "round.merge fragment=3 round=1.27 contributors=4 base=6"; zero-terminated, cut at cap; returns the length. */
size_t pl_trace_print(const struct pl_trace *t, char *out, size_t cap);

#endif
