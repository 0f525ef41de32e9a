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

/* What a person can do about it, to be put behind strerror; "" where we know nothing better than that. */
static inline const char *pl_os_advice(int code)
{
    switch (code) {
    case ENOSPC:
    case EDQUOT:
        return "; make room there, or choose another folder";
    case EFBIG:
        return "; raise the limit of file sizes (ulimit -f)";
    case EACCES:
    case EPERM:
        return "; choose a folder that this user may use, or give it the right to";
    case EROFS:
        return "; nothing can be written there, choose another folder";
    case ENOTDIR:
        return "; what should be a folder is a file, choose another name";
    case ENOENT:
        return "; give the name of one that is there";
    case EMFILE:
    case ENFILE:
        return "; raise the limit of open files (ulimit -n)";
    default:
        return "";
    }
}

#endif
