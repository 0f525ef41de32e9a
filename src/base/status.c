/* base/status.c - names and texts from the one table. */
#include "base/status.h"

#include "base/fmt.h"

const char *pl_status_name(enum pelago_status status)
{
    switch (status) {
#define X(name, value, text)                                                                                 \
    case PELAGO_##name:                                                                                      \
        return #name;
#include "base/status.def"
#undef X
    }
    return "UNKNOWN";
}

const char *pl_status_text(enum pelago_status status)
{
    switch (status) {
#define X(name, value, text)                                                                                 \
    case PELAGO_##name:                                                                                      \
        return text;
#include "base/status.def"
#undef X
    }
    return "unknown status";
}

enum pelago_status pl_fail(struct pl_error *err, enum pelago_status status, const char *format, ...)
{
    if (err == NULL)
        return status;
    va_list args;
    va_start(args, format);
    pl_vfmt(err->text, sizeof err->text, format, args);
    va_end(args);
    err->status = status;
    return status;
}
