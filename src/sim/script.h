/* sim/script.h - a readable conversation: what is done to a small cluster and what must be seen.
 *
 *   # comment
 *   set learners 3                   an option of struct pl_sim_options; times as 250ms, 1.5s
 *   until 60s                        how long; "until the end": to the token budget and the last word
 *   at 10s crash learner 2           an action of sim/sim.h; script.c has the table of verbs
 *   expect syncer 0 round.merge *    a later line of the trace matches, in the order of the script
 *   after 12s                        the expects below look only at lines from this time on
 *   never [before T] [after T] syncer 0 round.void *
 *   finally [at least|at most|exactly] 4 [before T] [after T] syncer 0 round.merge *
 *
 * In patterns * stands for anything; $x, in expect only, for one word: any at first, the same one from then on. A line
 * of the trace reads "who text": "syncer 0 sends PULL fragment=0 round=1.5 base_version=0 to learner 2" when a message
 * leaves, "learner 2 gets PULL ... from syncer 0" when it arrives, what a core traces ("syncer 0 round.merge
 * fragment=0 ..."), or what is done to the world ("world crash learner 2").
 *
 * tests/proto holds the scripts. All checkers of sim/check.h watch them too.
 */
#ifndef PL_SIM_SCRIPT_H
#define PL_SIM_SCRIPT_H

#include "base/alloc.h"
#include "base/status.h"
#include "sim/sim.h"

struct pl_script;

/* INVALID names line and word. The allocator is borrowed until pl_script_free. */
enum pelago_status pl_script_parse(const char *text, size_t len, const struct pl_alloc *alloc,
                                   struct pl_script **out, struct pl_error *err);
void pl_script_free(struct pl_script *s); /* NULL is fine */

/* Runs it on a simulated cluster. OK with result->exit 0: everything was as written; otherwise result->what says
 * which line of the script was not met, or which checker failed. INVALID: an option is out of range, somebody does not
 * exist, or nothing is expected. print (may be NULL) gets every line. */
enum pelago_status pl_script_run(struct pl_script *s, const struct pl_alloc *alloc,
                                 struct pl_sim_result *result, pl_sim_line *print, void *user,
                                 struct pl_error *err);

#endif
