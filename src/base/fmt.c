/* base/fmt.c - see fmt.h. Unknown directives are our own bug and assert. */
#include "base/fmt.h"

#include "base/check.h"

#include <stdint.h>

struct sink {
    char *out;
    size_t cap;
    size_t len;
};

static void put(struct sink *k, char c)
{
    if (k->len + 1 < k->cap)
        k->out[k->len++] = c;
}

static void put_text(struct sink *k, const char *text)
{
    for (; *text != '\0'; text++)
        put(k, *text);
}

static void put_number(struct sink *k, uint64_t value, unsigned base)
{
    char digits[20];
    size_t n = 0;
    do {
        digits[n++] = "0123456789abcdef"[value % base];
        value /= base;
    } while (value != 0);
    while (n > 0)
        put(k, digits[--n]);
}

size_t pl_vfmt(char *out, size_t cap, const char *format, va_list args)
{
    struct sink k = {out, cap, 0};
    pl_assert(cap > 0);
    for (const char *f = format; *f != '\0'; f++) {
        if (*f != '%') {
            put(&k, *f);
            continue;
        }
        f++;
        if (*f == 's')
            put_text(&k, va_arg(args, const char *));
        else if (*f == 'u')
            put_number(&k, va_arg(args, unsigned), 10);
        else if (*f == '%')
            put(&k, '%');
        else {
            pl_assert(*f == 'l' && (f[1] == 'u' || f[1] == 'x'));
            f++;
            put_number(&k, va_arg(args, uint64_t), *f == 'u' ? 10 : 16);
        }
    }
    out[k.len] = '\0';
    return k.len;
}

size_t pl_fmt(char *out, size_t cap, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    size_t len = pl_vfmt(out, cap, format, args);
    va_end(args);
    return len;
}
