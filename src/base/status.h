/* base/status.h - status codes and the error a person reads.
 *
 * Functions that can fail for reasons outside this program return enum pelago_status (0 or negative). Where a
 * person must understand the failure, the last parameter is a struct pl_error *, which may be NULL.
 */
#ifndef PL_BASE_STATUS_H
#define PL_BASE_STATUS_H

#include "base/limits.h"

enum pelago_status {
#define X(name, value, text) PELAGO_##name = value,
#include "base/status.def"
#undef X
};

struct pl_error {
    enum pelago_status status;
    char text[PL_TEXT_MAX + 1]; /* one sentence, zero-terminated */
};

/* "NOMEM" and "out of memory"; never NULL. */
const char *pl_status_name(enum pelago_status status);
const char *pl_status_text(enum pelago_status status);

/* Fills *err (when not NULL) and returns status, so that a failing path is one line. The format knows
 * %s (const char *), %u (unsigned), %lu (uint64_t), %lx (uint64_t, hex) and %%; longer results are cut. */
enum pelago_status pl_fail(struct pl_error *err, enum pelago_status status, const char *format, ...);

#define PL_TRY(expr)                                                                                         \
    do {                                                                                                     \
        enum pelago_status pl_try_status_ = (expr);                                                          \
        if (pl_try_status_ != PELAGO_OK)                                                                     \
            return pl_try_status_;                                                                           \
    } while (0)

#define PL_TRY_TO(label, status_var, expr)                                                                   \
    do {                                                                                                     \
        (status_var) = (expr);                                                                               \
        if ((status_var) != PELAGO_OK)                                                                       \
            goto label;                                                                                      \
    } while (0)

#endif
