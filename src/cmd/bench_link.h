/* cmd/bench_link.h - pelago bench link: the speed of one connection. */
#ifndef PL_CMD_BENCH_LINK_H
#define PL_CMD_BENCH_LINK_H

int pl_cmd_bench_link(int argc, char **argv); /* argv[0] is "link" */

#endif
