/* core/trace.c - see trace.h. */
#include "core/trace.h"

#include "base/check.h"
#include "base/fmt.h"
#include "wire/msg.h"

static const struct {
    const char *name;
    const char *format;
} lines[] = {
#define X(name, text, format) {text, format},
#include "core/trace.def"
#undef X
};

static size_t put(char *out, size_t cap, char directive, uint64_t v)
{
    switch (directive) {
    case 'R':
        return pl_fmt(out, cap, "%lu.%lu", pl_round_epoch(v), pl_round_tick(v));
    case 'I':
        return pl_incarnation_print(v, out, cap);
    case 'N':
        return pl_reason_print(v, out, cap);
    case 'x':
        return pl_fmt(out, cap, "%lx", v);
    default:
        return pl_fmt(out, cap, "%lu", v);
    }
}

size_t pl_trace_print(const struct pl_trace *t, char *out, size_t cap)
{
    pl_assert((unsigned)t->code < PL_TRACE_COUNT && cap > 0);
    size_t len = pl_fmt(out, cap, "%s ", lines[t->code].name);
    unsigned arg = 0;
    for (const char *f = lines[t->code].format; *f != '\0' && len + 1 < cap; f++) {
        if (*f != '%') {
            out[len++] = *f;
            continue;
        }
        pl_assert(arg < 4);
        f++;
        if (*f == 'l')
            f++;
        len += put(out + len, cap - len, *f, t->arg[arg++]);
    }
    out[len] = '\0';
    return len;
}
