/* cmd/plan_write.c - the plan as a configuration that pelago syncer and pelago run take. */
#include "cmd/plan_print.h"

#include <inttypes.h>
#include <math.h>

/* A pass holds at most so many sequences; a step accumulates passes. */
enum { PASS_SEQUENCES = 64, SEQ_LARGE = 2048, SEQ_SMALL = 256 };

static void write_model(FILE *out, const struct pl_plan_args *a)
{
    if (a->model != NULL) {
        fprintf(out, "model: %s\n", a->model);
        return;
    }
    fprintf(out,
            "# %" PRIu64 " parameters, %" PRIu64
            " were asked for; another shape of this size does as well.\n",
            pl_model_config_params(&a->shape), a->params);
    fprintf(out, "layers: %u\nwidth: %u\nheads: %u\nvocab: %u\ncontext: %u\n", a->shape.layers,
            a->shape.width, a->shape.heads, a->shape.vocab, a->shape.context);
}

void pl_plan_write(FILE *out, const struct pl_plan_args *a, const struct pl_plan_input *in,
                   const struct pl_plan *p)
{
    const struct pl_plan_choice *c = &p->best.choice;
    uint32_t seq = a->shape.context >= SEQ_LARGE ? SEQ_LARGE : SEQ_SMALL;
    double sequences = fmax(floor(in->batch_tokens / seq + 0.5), 1);
    double passes = ceil(sequences / PASS_SEQUENCES);
    fprintf(out, "# Written by pelago plan. Set data, then begin with\n#\n"
                 "#     pelago syncer --config FILE --dir run\n#\n"
                 "# and let each site join. All of it on one machine, to try it:\n#\n"
                 "#     pelago run --config FILE --out run\n");
    write_model(out, a);
    fprintf(out, "data: builtin:tales\ntokens: %" PRIu64 "\n", (uint64_t)in->tokens);
    fprintf(out, "seq: %u\nbatch: %.0f\naccumulate: %.0f\n\n", seq, ceil(sequences / passes), passes);
    fprintf(out, "learners: %u\nquorum: %u\nshards: %u\n", in->site_count, in->quorum, p->shards);
    fprintf(out, "fragments: %u\nperiod: %u\noverlap: %u\nup: %s\ndown: %s\n", c->fragments, c->period,
            p->best.overlap, pl_codec_name(c->up), pl_codec_name(c->down));
}
