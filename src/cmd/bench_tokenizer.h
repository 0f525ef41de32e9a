/* cmd/bench_tokenizer.h - pelago bench tokenizer: how fast text becomes tokens. */
#ifndef PL_CMD_BENCH_TOKENIZER_H
#define PL_CMD_BENCH_TOKENIZER_H

int pl_cmd_bench_tokenizer(int argc, char **argv); /* argv[0] is "tokenizer" */

#endif
