/* cmd/plan_json.c - a plan as one line of JSON. */
#include "cmd/cmd.h"
#include "cmd/plan_print.h"

#include <jansson.h>

static const char *const bottlenecks[] = {"chips", "links", "failures", "syncer"};

static json_t *site_of(const struct pl_plan_input *in, const struct pl_plan *p, uint32_t i)
{
    const struct pl_plan_site *s = &in->sites[i];
    const struct pl_plan_site_outcome *o = &p->best.sites[i];
    const struct pl_plan_worth *w = &p->worth[i];
    return json_pack("{s:s s:I s:f s:f s:f s:f s:f s:i s:f s:f s:f s:f s:f s:f s:f s:f s:f}", "name", s->name,
                     "chips", (json_int_t)s->chips, "step_s", o->step_s, "tokens_s", o->tokens_s, "goodput",
                     o->goodput, "link_bits_s", s->link_bits_s, "link_load", o->link_load, "stride",
                     (int)o->stride, "exchange_s", o->exchange_s, "interval_steps", o->interval_steps,
                     "overlap_steps", o->overlap_steps, "efficiency", o->efficiency, "hours", o->hours,
                     "cost", o->cost, "gigabytes", o->gigabytes, "brings", w->brings, "hours_without",
                     w->hours_without);
}

static json_t *plan_of(const struct pl_plan_input *in, const struct pl_plan *p, const char *syncer)
{
    const struct pl_plan_outcome *b = &p->best;
    json_t *sites = json_array();
    for (uint32_t i = 0; i < in->site_count && sites != NULL; i++)
        (void)json_array_append_new(sites, site_of(in, p, i));
    return json_pack(
        "{s:f s:f s:f s:i s:i s:i s:i s:s s:s s:i s:f s:f s:f s:f s:f s:f s:b s:f s:b s:s s:s s:f s:s* s:o*}",
        "params", in->params, "tokens", in->tokens, "batch_tokens", in->batch_tokens, "fragments",
        (int)b->choice.fragments, "period", (int)b->choice.period, "overlap", (int)b->overlap, "quorum",
        (int)in->quorum, "up", pl_codec_name(b->choice.up), "down", pl_codec_name(b->choice.down), "shards",
        (int)p->shards, "shard_bytes", p->shard_bytes, "shard_bits_s", p->shard_bits_s, "cycle_s", b->cycle_s,
        "goodput", b->goodput, "efficiency", b->efficiency, "time_s", b->time_s, "deadline_met",
        in->deadline_s <= 0 || b->time_s <= in->deadline_s, "cost", b->cost, "priced", p->priced,
        "bottleneck", bottlenecks[p->bottleneck], "bottleneck_site", in->sites[p->bottleneck_site].name,
        "bottleneck_share", p->bottleneck_share, "syncer", syncer, "sites", sites);
}

int pl_plan_print_json(const struct pl_plan_input *in, const struct pl_plan *p, const char *syncer)
{
    json_t *root = plan_of(in, p, syncer);
    int bad = root == NULL ? -1 : json_dumpf(root, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(root);
    if (bad != 0)
        return pl_failure(pl_plan_command, &(struct pl_error){PELAGO_NOMEM, "out of memory"});
    printf("\n");
    return PL_EXIT_OK;
}
