/* os/errors.h - what the system's error numbers mean to us. */
#ifndef PL_OS_ERRORS_H
#define PL_OS_ERRORS_H

#include "base/status.h"

#include <errno.h>

/* FULL, NOTFOUND, NOMEM, or IO for everything else. */
static inline enum pelago_status pl_os_status(int code)
{
    switch (code) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return PELAGO_FULL;
    case ENOENT:
        return PELAGO_NOTFOUND;
    case ENOMEM:
        return PELAGO_NOMEM;
    default:
        return PELAGO_IO;
    }
}

#endif
