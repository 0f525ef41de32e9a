/* lab/line.c - a run as a line of JSON: what it was, and what came of it; see experiment.h. */
#include "base/fmt.h"
#include "base/hash.h"
#include "lab/experiment.h"
#include "train/json.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

enum { DIGITS = 17, LINE_MAX = 1 << 20 };

static json_t *numbers(const double *values, uint32_t count)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < count; i++)
        (void)json_array_append_new(array, json_real(values[i]));
    return array;
}

static json_t *batches(const struct pl_lab_row *row, uint32_t count)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < count; i++)
        (void)json_array_append_new(array, json_integer(row->batches[i]));
    return array;
}

static json_t *domains(const struct pl_lab_row *row)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < row->domain_count; i++)
        (void)json_array_append_new(array, json_string(row->domains[i]));
    return array;
}

static json_t *settings_of(const struct pl_lab_row *row, const struct pl_alloc *alloc)
{
    struct pl_buf text;
    json_t *root = NULL;
    struct pl_settings s = row->settings;
    s.run_id = 1;
    s.trainer.seed = 0;
    pl_buf_init(&text, alloc, PL_JSON_BYTES_MAX);
    if (pl_settings_print(&s, &text) == PELAGO_OK)
        (void)pl_json_parse((struct pl_bytes){text.data, text.len}, "settings", &root, NULL);
    pl_buf_release(&text);
    if (row->settings.algorithm == PL_ALGORITHM_DATA_PARALLEL && root != NULL) {
        /* Nothing is merged: how it would be makes no other run of it. */
        (void)json_object_del(root, "sync");
        (void)pl_json_put(root, "sync.learners", json_integer(row->settings.learners));
    }
    return root;
}

static void put(json_t *config, const char *name, json_t *value)
{
    (void)json_object_set_new(config, name, value);
}

static void put_count(json_t *config, const char *name, uint64_t value)
{
    put(config, name, json_integer((json_int_t)value));
}

/* What most rows have not: left out then, so that a new key does not make other runs of old rows. */
static void put_rare(json_t *config, const struct pl_lab_row *row)
{
    const char *trace = strrchr(row->trace, '/');
    if (row->split)
        put(config, "split", json_true());
    if (row->cohort > 0)
        put_count(config, "cohort", row->cohort);
    if (row->checkpoint_ns > 0)
        put_count(config, "checkpoint_ns", row->checkpoint_ns);
    if (row->joiners > 0) {
        put_count(config, "joiners", row->joiners);
        put(config, "join_at", json_real(row->join_at));
    }
    if (row->trace[0] != '\0') {
        put(config, "trace", json_string(trace != NULL ? trace + 1 : row->trace)); /* without its folder */
        put(config, "trace_scale", json_real(row->trace_scale));
        put_count(config, "trace_skip_s", row->trace_skip_s);
        put(config, "trace_fold", json_boolean(row->trace_fold));
    }
    if (row->kill_every_ns > 0)
        put_count(config, "kill_every_ns", row->kill_every_ns);
    if (row->stop_every_ns > 0) {
        put_count(config, "stop_every_ns", row->stop_every_ns);
        put_count(config, "stop_ns", row->stop_ns);
    }
    if (row->trace[0] != '\0' || row->kill_every_ns > 0)
        put_count(config, "restart_ns", row->restart_ns);
}

/* All that makes the result. */
static json_t *config_of(const struct pl_lab_row *row, const struct pl_alloc *alloc)
{
    uint32_t all = row->settings.learners + row->joiners;
    json_t *config = json_object();
    put(config, "settings", settings_of(row, alloc));
    put(config, "data", domains(row));
    put(config, "shares", numbers(row->shares, row->domain_count));
    put(config, "speeds", numbers(row->speeds, all));
    put(config, "batches", batches(row, all));
    put_count(config, "global_batch", row->global_batch);
    put_count(config, "step_ns", row->step_ns);
    put_count(config, "latency_ns", row->latency_ns);
    put_count(config, "bandwidth", row->bandwidth);
    put_rare(config, row);
    return config;
}

uint64_t pl_lab_row_key(const struct pl_lab_row *row, const struct pl_alloc *alloc)
{
    json_t *config = config_of(row, alloc);
    char *text = config != NULL
                     ? json_dumps(config, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(DIGITS))
                     : NULL;
    uint64_t key = text != NULL ? pl_hash64(text, strlen(text), 0) : 0;
    json_decref(config);
    if (text != NULL) {
        json_malloc_t get;
        json_free_t give;
        json_get_alloc_funcs(&get, &give);
        give(text);
    }
    return key;
}

static json_t *cohorts_of(const struct pl_lab_result *r)
{
    json_t *object = json_object();
    for (uint32_t i = 1; i <= PL_LAB_LEARNERS_MAX; i++) {
        char name[12];
        (void)pl_fmt(name, sizeof name, "%u", i);
        if (r->cohorts[i] > 0)
            (void)json_object_set_new(object, name, json_integer((json_int_t)r->cohorts[i]));
    }
    return object;
}

static json_t *points_of(const struct pl_lab_result *r)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < r->point_count; i++)
        (void)json_array_append_new(array, json_pack("[f, I, f]", r->points[i].virtual_s,
                                                     (json_int_t)r->points[i].tokens, r->points[i].loss));
    return array;
}

static json_t *outcome_of(const struct pl_lab_result *r)
{
    return json_pack(
        "{sI sI sI sI sI sI sI sI sI so sf sf sf sf so so so ss}", "params", (json_int_t)r->params, "tokens",
        (json_int_t)r->tokens, "merged_tokens", (json_int_t)r->merged_tokens, "steps", (json_int_t)r->steps,
        "eval_tokens", (json_int_t)r->eval_tokens, "outer_steps", (json_int_t)r->outer_steps, "bytes_up",
        (json_int_t)r->bytes_up, "bytes_down", (json_int_t)r->bytes_down, "rejoins", (json_int_t)r->rejoins,
        "cohorts", cohorts_of(r), "virtual_s", r->virtual_s, "wall_s", r->wall_s, "trainer_s", r->trainer_s,
        "eval_s", r->eval_s, "points", points_of(r), "trace_hash", pl_json_bits_value(r->trace_hash),
        "value_digest", pl_json_bits_value(r->value_digest), "backend", r->backend);
}

/* What a run is called, and compared with. */
static void put_names(json_t *line, const struct pl_lab_experiment *e, const struct pl_lab_row *row)
{
    (void)json_object_set_new(line, "experiment", json_string(e->name));
    (void)json_object_set_new(line, "row", json_string(row->name));
    (void)json_object_del(line, "against");
    (void)json_object_del(line, "bar");
    if (row->against[0] != '\0')
        (void)json_object_set_new(line, "against", json_string(row->against));
    if (isfinite(row->bar))
        (void)json_object_set_new(line, "bar", json_real(row->bar));
}

static enum pelago_status append(const json_t *line, struct pl_buf *out)
{
    const size_t flags = JSON_COMPACT | JSON_REAL_PRECISION(DIGITS);
    size_t need = json_dumpb(line, NULL, 0, flags);
    if (need == 0 || need > LINE_MAX)
        return PELAGO_LIMIT;
    PL_TRY(pl_buf_reserve(out, need));
    out->len += json_dumpb(line, (char *)out->data + out->len, need, flags);
    return PELAGO_OK;
}

static json_t *line_of(const struct pl_lab_experiment *e, const struct pl_lab_row *row, uint64_t seed,
                       const struct pl_lab_result *r, const struct pl_alloc *alloc)
{
    json_t *line =
        json_pack("{ss ss so sI sf sb so so}", "experiment", e->name, "row", row->name, "key",
                  pl_json_bits_value(pl_lab_row_key(row, alloc)), "seed", (json_int_t)seed, "eval_loss",
                  r->loss, "short", row->shorter, "outcome", outcome_of(r), "config", config_of(row, alloc));
    if (line != NULL && row->against[0] != '\0')
        (void)json_object_set_new(line, "against", json_string(row->against));
    if (line != NULL && isfinite(row->bar))
        (void)json_object_set_new(line, "bar", json_real(row->bar));
    return line;
}

enum pelago_status pl_lab_line(const struct pl_lab_experiment *e, const struct pl_lab_row *row, uint64_t seed,
                               const struct pl_lab_result *result, const struct pl_alloc *alloc,
                               struct pl_buf *out)
{
    json_t *line = line_of(e, row, seed, result, alloc);
    enum pelago_status st = line != NULL ? append(line, out) : PELAGO_NOMEM;
    json_decref(line);
    return st;
}

bool pl_lab_line_is(const char *line, size_t len, uint64_t key, uint64_t seed)
{
    uint64_t bits = 0;
    json_t *root = json_loadb(line, len, 0, NULL);
    bool same = root != NULL && pl_json_bits_of(json_object_get(root, "key"), &bits) && bits == key &&
                (uint64_t)json_integer_value(json_object_get(root, "seed")) == seed &&
                json_is_number(json_object_get(root, "eval_loss"));
    json_decref(root);
    return same;
}

static bool is_text(const json_t *root, const char *member, const char *text)
{
    const char *at = json_string_value(json_object_get(root, member));
    return at != NULL && strcmp(at, text) == 0;
}

bool pl_lab_line_named(const struct pl_lab_experiment *e, const struct pl_lab_row *row, const char *line,
                       size_t len)
{
    json_t *root = json_loadb(line, len, 0, NULL);
    bool named = is_text(root, "experiment", e->name) && is_text(root, "row", row->name);
    json_decref(root);
    return named;
}

enum pelago_status pl_lab_line_rename(const struct pl_lab_experiment *e, const struct pl_lab_row *row,
                                      const char *line, size_t len, struct pl_buf *out)
{
    json_t *root = json_loadb(line, len, 0, NULL);
    enum pelago_status st = PELAGO_NOMEM;
    if (root != NULL) {
        put_names(root, e, row);
        st = append(root, out);
    }
    json_decref(root);
    return st;
}
