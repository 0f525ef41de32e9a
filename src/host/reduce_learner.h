/* host/reduce_learner.h - a learner of the synchronous algorithms: data_parallel and diloco.
 *
 *   reduce_learner.c   start and stop, the connection, what the syncer says
 *   reduce_send.c      buckets up, means down, the state given to another learner or taken from one
 *   reduce_train.c     the trainer's thread: it trains, and waits for the others
 *   reduce_join.c      identity, settings, data
 *
 * The options are those of the decoupled learner, and what it trains on is remembered as there; stub_step_ns means
 * nothing here. A learner's state is complete at the beginning of each round: parameters, moments, in diloco the outer
 * momentum. It saves a checkpoint from time to time, for the case that everybody is lost at once; in all others one that
 * comes back gets its state from another learner. At the end the learner of rank 0 has the model as a checkpoint in
 * its folder, as `pelago train` writes it.
 */
#ifndef PL_HOST_REDUCE_LEARNER_H
#define PL_HOST_REDUCE_LEARNER_H

#include "host/learner_host.h"

struct pl_reduce_learner;

/* Enrols where needed, gets settings and tokenizer (blocking, with patience), builds the trainer, begins. */
enum pelago_status pl_reduce_learner_start(struct pl_reduce_learner **out,
                                           const struct pl_learner_host_options *o, struct pl_error *err);
/* SIGTERM: gives up the step under way, saves, says goodbye; done() follows. The others wait for its return. */
void pl_reduce_learner_quit(struct pl_reduce_learner *l);
void pl_reduce_learner_free(struct pl_reduce_learner *l); /* after done(); NULL is fine */

void pl_reduce_learner_view(struct pl_reduce_learner *l, struct pl_learner_host_view *out);

#endif
