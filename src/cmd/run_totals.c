/* cmd/run_totals.c - see run_totals.h. */
#include "cmd/run_totals.h"

#include "base/check.h"
#include "base/num.h"

#include <stddef.h>

/* Names in run.json, too. */
static const struct {
    const char *name;
    size_t at;
} counts[] = {
    {"bytes_up", offsetof(struct pl_view_counts, bytes_up)},
    {"bytes_down", offsetof(struct pl_view_counts, bytes_down)},
    {"lost", offsetof(struct pl_view_counts, lost)},
    {"rejoined", offsetof(struct pl_view_counts, rejoined)},
    {"refused", offsetof(struct pl_view_counts, refused)},
    {"contributors", offsetof(struct pl_view_counts, contributors)},
    {"contributors_alive", offsetof(struct pl_view_counts, contributors_alive)},
};
enum { COUNTS = sizeof counts / sizeof counts[0] };
_Static_assert(sizeof(struct pl_view_counts) == COUNTS * sizeof(uint64_t), "every count is in the table");

static uint64_t *count_at(struct pl_view_counts *c, unsigned i)
{
    return (uint64_t *)(void *)((char *)c + counts[i].at);
}

static void add(struct pl_view_counts *to, struct pl_view_counts more)
{
    for (unsigned i = 0; i < COUNTS; i++)
        *count_at(to, i) = pl_add_sat(*count_at(to, i), *count_at(&more, i));
}

/* A baseline has no epoch: its process is told by its age, and its bytes by themselves. */
static bool is_another_life(const struct pl_view_shard *before, const struct pl_view_shard *now)
{
    return now->epoch != before->epoch || now->uptime_s < before->uptime_s ||
           now->counts.bytes_up < before->counts.bytes_up;
}

void pl_totals_look(struct pl_run_totals *t, const struct pl_view_shard *s)
{
    pl_assert(s->shard <= PL_SHARDS_MAX);
    if (s->shard == PL_SHARDS_MAX)
        return;
    struct pl_total *one = &t->shard[s->shard];
    if (one->heard && is_another_life(&one->now, s))
        add(&one->before, one->now.counts);
    one->heard = true;
    one->now = *s;
}

void pl_totals_complete(struct pl_run_totals *t, struct pl_cluster_view *v)
{
    for (uint32_t i = 0; i < v->shard_count; i++)
        pl_totals_look(t, &v->shard[i]);
    v->shard_count = 0;
    for (uint32_t i = 0; i < PL_SHARDS_MAX; i++) {
        const struct pl_total *one = &t->shard[i];
        if (!one->heard)
            continue;
        struct pl_view_shard *s = &v->shard[v->shard_count++];
        *s = one->now;
        add(&s->counts, one->before);
    }
    pl_cluster_view_sum(v);
}

double pl_totals_merged_alive(const struct pl_run_totals *t)
{
    struct pl_view_counts all = {0};
    for (uint32_t i = 0; i < PL_SHARDS_MAX; i++) {
        add(&all, t->shard[i].now.counts);
        add(&all, t->shard[i].before);
    }
    return all.contributors_alive > 0 ? (double)all.contributors / (double)all.contributors_alive : -1;
}

/* ---- run.json ---- */

static json_t *counts_json(struct pl_view_counts c)
{
    json_t *j = json_object();
    for (unsigned i = 0; i < COUNTS; i++)
        (void)pl_json_put(j, counts[i].name, json_integer((json_int_t)*count_at(&c, i)));
    return j;
}

json_t *pl_totals_json(const struct pl_run_totals *t)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < PL_SHARDS_MAX; i++) {
        const struct pl_total *one = &t->shard[i];
        if (!one->heard)
            continue;
        json_t *j = json_object();
        (void)pl_json_put(j, "shard", json_integer(i));
        (void)pl_json_put(j, "epoch", json_integer((json_int_t)one->now.epoch));
        (void)pl_json_put(j, "uptime_s", json_real(one->now.uptime_s));
        (void)pl_json_put(j, "merged_tokens", json_integer((json_int_t)one->now.merged_tokens));
        (void)pl_json_put(j, "now", counts_json(one->now.counts));
        (void)pl_json_put(j, "before", counts_json(one->before));
        (void)json_array_append_new(list, j);
    }
    return list;
}

static uint64_t count_in(const json_t *j, const char *name)
{
    json_int_t value = json_integer_value(json_object_get(j, name));
    return value > 0 ? (uint64_t)value : 0;
}

static struct pl_view_counts counts_in(const json_t *j)
{
    struct pl_view_counts c;
    for (unsigned i = 0; i < COUNTS; i++)
        *count_at(&c, i) = count_in(j, counts[i].name);
    return c;
}

void pl_totals_recall(struct pl_run_totals *t, const json_t *list)
{
    size_t index;
    json_t *item;
    *t = (struct pl_run_totals){.partial = !json_is_array(list)};
    json_array_foreach(list, index, item)
    {
        uint64_t shard = count_in(item, "shard");
        if (shard >= PL_SHARDS_MAX)
            continue;
        struct pl_total *one = &t->shard[shard];
        one->heard = true;
        one->now = (struct pl_view_shard){.shard = (uint32_t)shard,
                                          .epoch = count_in(item, "epoch"),
                                          .uptime_s = json_number_value(json_object_get(item, "uptime_s")),
                                          .merged_tokens = count_in(item, "merged_tokens"),
                                          .counts = counts_in(json_object_get(item, "now"))};
        one->before = counts_in(json_object_get(item, "before"));
    }
}
