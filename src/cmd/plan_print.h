/* cmd/plan_print.h - a plan for a person, for a program, and as a configuration; the two tables that vouch for it. */
#ifndef PL_CMD_PLAN_PRINT_H
#define PL_CMD_PLAN_PRINT_H

#include "cmd/plan_args.h"

#include <stdio.h>

void pl_plan_print(const struct pl_plan_input *in, const struct pl_plan *p, uint32_t layers,
                   const char *syncer);
int pl_plan_print_json(const struct pl_plan_input *in, const struct pl_plan *p,
                       const char *syncer); /* exit code */

/* A file for pelago syncer and pelago run. */
void pl_plan_write(FILE *out, const struct pl_plan_args *a, const struct pl_plan_input *in,
                   const struct pl_plan *p);

int pl_plan_bandwidth(bool json);                                  /* exit code */
int pl_plan_check_seeds(uint64_t first, uint64_t last, bool json); /* exit code: 1 when a bar is broken */

#endif
