/* os/plugin.h - a shared library that is loaded at run time, because most machines do without it. */
#ifndef PL_OS_PLUGIN_H
#define PL_OS_PLUGIN_H

#include "base/status.h"

/* The function `symbol` of a library: beside this program, in ../lib/pelago of it, or where the system looks. NULL with a
 * sentence. The library stays loaded. */
void *pl_plugin_open(const char *file, const char *symbol, struct pl_error *err);

#endif
