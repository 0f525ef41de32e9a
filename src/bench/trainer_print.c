/* bench/trainer_print.c - the result of a benchmark as one line: JSON, or for a person. */
#include "bench/trainer_bench.h"

#include <inttypes.h>
#include <stdio.h>

void pl_trainer_result_json(const struct pl_trainer_bench *b, const struct pl_trainer_result *r, char *out,
                            size_t cap)
{
    (void)snprintf(out, cap,
                   "{\"bench\": \"trainer\", \"model\": \"%s\", \"params\": %" PRIu64
                   ", \"batch\": %u, \"seq\": %u, \"threads\": %u, \"backend\": \"%s\", \"recompute\": %s, "
                   "\"optimizer\": \"adamw\", \"steps\": %u, \"tokens_per_s\": %.1f, "
                   "\"tokens_per_s_mean\": %.1f, \"step_ms\": %.3f, \"pass_ms\": %.3f, \"optim_ms\": %.3f, "
                   "\"tflops\": %.4f, \"bytes\": %" PRIu64 ", \"bytes_per_param\": %.2f, "
                   "\"max_rss_bytes\": %" PRIu64 ", "
                   "\"loss_first\": %.4f, \"loss_last\": %.4f}",
                   b->model, r->params, b->batch, b->seq, r->threads, r->backend,
                   b->recompute ? "true" : "false", r->steps, r->tokens_per_s, r->tokens_per_s_mean,
                   r->step_ms, r->pass_ms, r->optim_ms, r->tflops, r->bytes, r->bytes_per_param,
                   r->max_rss_bytes, r->loss_first, r->loss_last);
}

void pl_trainer_result_text(const struct pl_trainer_bench *b, const struct pl_trainer_result *r, char *out,
                            size_t cap)
{
    (void)snprintf(out, cap,
                   "%s (%.1fM parameters), batch %u x %u, %s, %u thread%s: %.0f tokens/s, %.3f TFLOP/s, "
                   "%.1f ms a step (%.1f optimizer), %.0f MB (%.1f bytes a parameter)",
                   b->model, (double)r->params * 1e-6, b->batch, b->seq, r->backend, r->threads,
                   r->threads == 1 ? "" : "s", r->tokens_per_s, r->tflops, r->step_ms, r->optim_ms,
                   (double)r->bytes * 1e-6, r->bytes_per_param);
}
