/* cmd/cmd_plan.c - pelago plan: sites and links in, a plan out. */
#include "base/buf.h"
#include "cmd/chaos_file.h"
#include "cmd/cmd.h"
#include "cmd/plan_args.h"
#include "cmd/plan_print.h"
#include "cmd/text.h"
#include "cmd/whole_file.h"
#include "plan/wan.h"

#include <string.h>

enum { WAN_BYTES_MAX = 16 << 20, SEEDS_MAX = 1000 };

struct job {
    struct pl_plan_args args;
    struct pl_plan_input in;
    struct pl_plan plan;
    const char *syncer; /* its region, of a table of links */
};

/* The links of every site to a syncer in `home`; a site there is next door to it. */
static enum pelago_status set_links(struct pl_plan_input *in, const struct pl_buf *wan, const char *home,
                                    struct pl_error *err)
{
    for (uint32_t i = 0; i < in->site_count; i++) {
        struct pl_plan_site *s = &in->sites[i];
        struct pl_wan_link link = {in->syncer_bits_s, 1e-3};
        if (strcmp(s->name, home) != 0 &&
            !pl_wan_find((const char *)wan->data, wan->len, s->name, home, &link))
            return pl_fail(err, PELAGO_INVALID, "sites: wan has no link between %s and %s", s->name,
                           pl_text_clip(home).at);
        s->link_bits_s = link.bits_s;
        s->latency_s = link.latency_s >= 0 ? link.latency_s : s->latency_s;
    }
    return PELAGO_OK;
}

/* The syncer where it was asked for, or beside the site that makes the run shortest. */
static enum pelago_status plan_on_wan(struct job *j, const struct pl_buf *wan, struct pl_error *err)
{
    struct pl_plan_input in;
    struct pl_plan plan;
    enum pelago_status st = PELAGO_INVALID;
    for (uint32_t i = 0; i < (j->args.syncer != NULL ? 1 : j->in.site_count); i++) {
        const char *home = j->args.syncer != NULL ? j->args.syncer : j->in.sites[i].name;
        struct pl_error why;
        in = j->in;
        enum pelago_status one = set_links(&in, wan, home, &why);
        one = one == PELAGO_OK ? pl_plan_make(&in, &plan, &why) : one;
        if (one != PELAGO_OK && st != PELAGO_OK)
            *err = why;
        if (one != PELAGO_OK || (st == PELAGO_OK && plan.best.time_s >= j->plan.best.time_s))
            continue;
        st = PELAGO_OK;
        j->plan = plan;
        j->syncer = home;
    }
    return st == PELAGO_OK ? set_links(&j->in, wan, j->syncer, err) : st;
}

static enum pelago_status make_plan(struct job *j, struct pl_error *err)
{
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_buf wan;
    PL_TRY(pl_plan_args_input(&j->args, &j->in, err));
    if (j->args.wan == NULL)
        return pl_plan_make(&j->in, &j->plan, err);
    pl_buf_init(&wan, &alloc, WAN_BYTES_MAX);
    enum pelago_status st = pl_chaos_read_file(j->args.wan, &wan, err);
    if (st == PELAGO_NOTFOUND) {
        fprintf(stderr, "pelago plan: wan: %s; going on with link and latency.\n", err->text);
        st = pl_plan_make(&j->in, &j->plan, err);
    } else if (st == PELAGO_OK && !pl_wan_known((const char *)wan.data, wan.len)) {
        st = pl_fail(err, PELAGO_INVALID, "wan is neither a grid of Skyplane nor pairs with delay_ms");
    } else if (st == PELAGO_OK) {
        st = plan_on_wan(j, &wan, err);
    }
    pl_buf_release(&wan);
    return st;
}

static int write_config(const struct job *j)
{
    struct pl_whole_file out;
    struct pl_error err;
    if (pl_whole_open(&out, j->args.write, &err) != PELAGO_OK)
        return pl_failure(pl_plan_command, &err);
    pl_plan_write(out.f, &j->args, &j->in, &j->plan);
    return pl_whole_close(&out, &err) == PELAGO_OK ? PL_EXIT_OK : pl_failure(pl_plan_command, &err);
}

static int show_plan(struct job *j)
{
    struct pl_error err;
    enum pelago_status st = make_plan(j, &err);
    if (st != PELAGO_OK)
        return st == PELAGO_INVALID ? pl_refusal(pl_plan_command, &err) : pl_failure(pl_plan_command, &err);
    int code = j->args.write != NULL ? write_config(j) : PL_EXIT_OK;
    if (code != PL_EXIT_OK)
        return code;
    if (j->args.json)
        return pl_plan_print_json(&j->in, &j->plan, j->syncer);
    pl_plan_print(&j->in, &j->plan, j->args.shape.layers, j->syncer);
    if (j->args.write != NULL)
        printf("\n  written: %s; pelago syncer --config %s --dir run begins it, pelago run --config %s --out "
               "run\n"
               "  tries it on this machine\n",
               j->args.write, j->args.write, j->args.write);
    return PL_EXIT_OK;
}

static int check_seeds(const struct pl_plan_args *a)
{
    uint64_t first = 1, last = 10;
    if (a->seeds != NULL && (!pl_text_range(a->seeds, &first, &last) || last - first >= SEEDS_MAX))
        return pl_usage_error(pl_plan_command,
                              "--seeds is '%s', expected a range such as 1..10, of at most %u",
                              pl_text_clip(a->seeds).at, (unsigned)SEEDS_MAX);
    return pl_plan_check_seeds(first, last, a->json);
}

int pl_cmd_plan(int argc, char **argv)
{
    static struct job j; /* large */
    int code;
    if (pl_plan_args_parse(&j.args, argc, argv, &code))
        code = j.args.bandwidth ? pl_plan_bandwidth(j.args.json)
               : j.args.check   ? check_seeds(&j.args)
                                : show_plan(&j);
    pl_conf_release(&j.args.conf);
    return code;
}
