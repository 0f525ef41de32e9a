/* host/reduce_host.h - the syncer of the synchronous algorithms: data_parallel and diloco, as honest baselines.
 *
 *   reduce_plan.c     rounds, steps, buckets: what everybody computes alike
 *   reduce_host.c     start and stop, connections, the door
 *   reduce_seats.c    who takes part, who has the run's state, who gets it from whom
 *   reduce_rounds.c   buckets in, means out
 *   reduce_status.c   what status and top show
 *
 * Everybody waits for everybody: so many learners as the settings say, no more and no fewer. All connections end here (a
 * star). The mean of a bucket is sent as soon as it is complete, so a bucket goes up and its mean comes down while
 * the way back still makes the next one, and at two learners each link carries as many bytes as in a ring. The syncer keeps
 * no state of the model: learners have it, and one that comes back gets it from another. docs/baselines.md says more.
 */
#ifndef PL_HOST_REDUCE_HOST_H
#define PL_HOST_REDUCE_HOST_H

#include "host/syncer_host.h"

struct pl_reduce_host;

/* As pl_syncer_host_start, for a run whose algorithm is not decoupled; the folder comes from pl_syncer_host_create. mirror,
 * shard, relaxed, learners_max, threads and record have no meaning here. */
enum pelago_status pl_reduce_host_start(struct pl_reduce_host **out, const struct pl_syncer_host_options *o,
                                        struct pl_error *err);
/* Says LEAVING to everybody, closes; done() is called when it is all gone, and h too. */
void pl_reduce_host_stop(struct pl_reduce_host *h, void (*done)(void *user), void *user);

const struct pl_settings *pl_reduce_host_settings(const struct pl_reduce_host *h);
uint32_t pl_reduce_host_connected(const struct pl_reduce_host *h);  /* learners, now */
const char *pl_reduce_host_address(const struct pl_reduce_host *h); /* as learners dial it */
const char *pl_reduce_host_bound(const struct pl_reduce_host *h);   /* where it listens */
enum pelago_status pl_reduce_host_invite(struct pl_reduce_host *h, enum pl_role role, uint64_t uses,
                                         uint64_t seconds, char out[static PL_TOKEN_TEXT_MAX],
                                         struct pl_error *err);
/* As pl_syncer_host_status, the fields of docs/status.md that mean something here. */
enum pelago_status pl_reduce_host_status(struct pl_reduce_host *h, bool all, struct pl_buf *out);

#endif
