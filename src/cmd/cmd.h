/* cmd/cmd.h - the subcommands. stdout is data, stderr is for problems; exit codes: 0 good, 1 failed, 2 asked wrongly;
 * `sim` adds 3 assertion, 4 liveness, 5 correctness. */
#ifndef PL_CMD_CMD_H
#define PL_CMD_CMD_H

enum { PL_EXIT_OK = 0, PL_EXIT_FAILED = 1, PL_EXIT_USAGE = 2 };

/* argv[0] is the subcommand's name. */
int pl_cmd_sim(int argc, char **argv);
int pl_cmd_data(int argc, char **argv);
int pl_cmd_data_tales(int argc, char **argv); /* the part of `data` that is in cmd_tales.c */
int pl_cmd_export(int argc, char **argv);
int pl_cmd_import(int argc, char **argv);
int pl_cmd_inspect(int argc, char **argv);
int pl_cmd_train(int argc, char **argv);
int pl_cmd_eval(int argc, char **argv);
int pl_cmd_sample(int argc, char **argv);
int pl_cmd_bench(int argc, char **argv);
int pl_cmd_run(int argc, char **argv);
int pl_cmd_syncer(int argc, char **argv);
int pl_cmd_learner(int argc, char **argv);
int pl_cmd_invite(int argc, char **argv);
int pl_cmd_status(int argc, char **argv);
int pl_cmd_top(int argc, char **argv);
int pl_cmd_replay(int argc, char **argv);
int pl_cmd_chaos(int argc, char **argv);
int pl_cmd_plan(int argc, char **argv);

#endif
