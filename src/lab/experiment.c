/* lab/experiment.c - see experiment.h. Values of the file are read as JSON: strict numbers, no surprises. */
#include "lab/experiment.h"

#include "base/fmt.h"
#include "base/hash.h"
#include "base/limits.h"
#include "base/num.h"
#include "model/model.h"
#include "train/dataset.h"
#include "train/json.h"

#include <jansson.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

enum { SEQ = 256, GLOBAL_BATCH = 64, EVAL_TOKENS = 1000000 };
#define VIRTUAL_S_MAX 1e9

/* ---- values ---- */

/* Keys that are the lab's; every other one is a setting. */
static const char *const own_keys[] = {
    "about",
    "rows",
    "seeds",
    "model",
    "learners",
    "global_batch",
    "data",
    "shares",
    "split",
    "speeds",
    "batches",
    "joiners",
    "join_at",
    "latency_ms",
    "bandwidth_mbit",
    "trace",
    "trace_scale",
    "trace_skip_s",
    "trace_fold",
    "restart_s",
    "kill_every_s",
    "stop_every_s",
    "stop_s",
    "cohort",
    "checkpoint_s",
    "points",
    "against",
    "bar",
    "tokens_per_param",
    "short_tokens_per_param",
};

static bool is_own(const char *key)
{
    for (size_t i = 0; i < sizeof own_keys / sizeof own_keys[0]; i++)
        if (strcmp(own_keys[i], key) == 0)
            return true;
    return false;
}

/* The key's own name where an entry is for this row, else NULL. */
static const char *name_for(const struct pl_conf_entry *entry, const char *row)
{
    const char *slash = strchr(entry->key, '/');
    if (slash == NULL)
        return entry->key;
    size_t len = strlen(row);
    return (size_t)(slash - entry->key) == len && memcmp(entry->key, row, len) == 0 ? slash + 1 : NULL;
}

/* What stands there for the row, before what stands there for all. NULL: nothing. */
static const struct pl_conf_entry *find(const struct pl_lab_experiment *e, const char *row, const char *key)
{
    const struct pl_conf_entry *found = NULL;
    for (uint32_t i = 0; i < e->conf.count; i++) {
        const struct pl_conf_entry *entry = &e->conf.entries[i];
        const char *name = name_for(entry, row);
        if (name != NULL && strcmp(name, key) == 0 && (found == NULL || name != entry->key))
            found = entry;
    }
    return found;
}

static enum pelago_status refuse(const struct pl_lab_experiment *e, const struct pl_conf_entry *entry,
                                 const char *expected, struct pl_error *err)
{
    return pl_fail(err, PELAGO_INVALID, "%s, line %u: %s is not %s", e->conf.file, entry->line, entry->key,
                   expected);
}

static enum pelago_status number_of(const struct pl_lab_experiment *e, const struct pl_conf_entry *entry,
                                    const char *text, size_t len, double *out, struct pl_error *err)
{
    json_t *value = json_loadb(text, len, JSON_DECODE_ANY, NULL);
    bool good = json_is_number(value);
    if (good)
        *out = json_number_value(value);
    json_decref(value);
    return good ? PELAGO_OK : refuse(e, entry, "a number", err);
}

/* A number between lo and hi; *out stays where there is no such key. */
static enum pelago_status real(const struct pl_lab_experiment *e, const char *row, const char *key, double lo,
                               double hi, double *out, struct pl_error *err)
{
    const struct pl_conf_entry *entry = find(e, row, key);
    if (entry == NULL)
        return PELAGO_OK;
    PL_TRY(number_of(e, entry, entry->value, strlen(entry->value), out, err));
    return *out >= lo && *out <= hi ? PELAGO_OK : refuse(e, entry, "in its range (docs/experiments.md)", err);
}

static enum pelago_status count(const struct pl_lab_experiment *e, const char *row, const char *key,
                                uint64_t lo, uint64_t hi, uint64_t *out, struct pl_error *err)
{
    double value = (double)*out;
    PL_TRY(real(e, row, key, (double)lo, (double)hi, &value, err));
    if (value != floor(value))
        return refuse(e, find(e, row, key), "a whole number", err);
    *out = (uint64_t)value;
    return PELAGO_OK;
}

static enum pelago_status small(const struct pl_lab_experiment *e, const char *row, const char *key,
                                uint32_t lo, uint32_t hi, uint32_t *out, struct pl_error *err)
{
    uint64_t value = *out;
    PL_TRY(count(e, row, key, lo, hi, &value, err));
    *out = (uint32_t)value;
    return PELAGO_OK;
}

static enum pelago_status text(const struct pl_lab_experiment *e, const char *row, const char *key, char *out,
                               size_t cap, struct pl_error *err)
{
    const struct pl_conf_entry *entry = find(e, row, key);
    if (entry != NULL && strlen(entry->value) >= cap)
        return refuse(e, entry, "short enough", err);
    if (entry != NULL)
        memcpy(out, entry->value, strlen(entry->value) + 1);
    return PELAGO_OK;
}

static enum pelago_status flag(const struct pl_lab_experiment *e, const char *row, const char *key, bool *out,
                               struct pl_error *err)
{
    const struct pl_conf_entry *entry = find(e, row, key);
    if (entry == NULL)
        return PELAGO_OK;
    *out = strcmp(entry->value, "true") == 0;
    return *out || strcmp(entry->value, "false") == 0 ? PELAGO_OK : refuse(e, entry, "true or false", err);
}

/* A key whose value is a list, and what each number of it may be. */
struct list_key {
    const char *name, *expected;
    double lo, hi;
    bool whole;
};

static const struct list_key shares_key = {"shares", "a list of numbers from 0.001 to 1000", 1e-3, 1e3,
                                           false};
static const struct list_key speeds_key = {"speeds", "a list of numbers from 0.001 to 1000", 1e-3, 1e3,
                                           false};
static const struct list_key batches_key = {"batches", "a list of whole numbers from 1 to 65536", 1,
                                            PL_BATCH_MAX, true};

/* Numbers with commas between them, repeated until there are `want`; none where the key is not there. */
static enum pelago_status list(const struct pl_lab_experiment *e, const char *row, const struct list_key *key,
                               uint32_t want, double *out, bool *given, struct pl_error *err)
{
    const struct pl_conf_entry *entry = find(e, row, key->name);
    *given = entry != NULL;
    if (entry == NULL)
        return PELAGO_OK;
    const char *at = entry->value;
    for (uint32_t i = 0; i < want; i++) {
        size_t len = strcspn(at, ",");
        PL_TRY(number_of(e, entry, at, len, &out[i], err));
        if (!(out[i] >= key->lo && out[i] <= key->hi) || (key->whole && out[i] != floor(out[i])))
            return refuse(e, entry, key->expected, err);
        at = at[len] == ',' ? at + len + 1 : entry->value;
    }
    return PELAGO_OK;
}

/* ---- the file ---- */

static enum pelago_status split_rows(struct pl_lab_experiment *e, const struct pl_conf_entry *entry,
                                     struct pl_error *err)
{
    for (const char *at = entry->value; at != NULL && *at != '\0';) {
        size_t len = strcspn(at, ",");
        if (len == 0 || len >= PL_LAB_NAME_MAX || e->row_count == PL_LAB_ROWS_MAX)
            return refuse(e, entry, "a list of up to 64 short names", err);
        memcpy(e->rows[e->row_count], at, len);
        e->rows[e->row_count++][len] = '\0';
        at = at[len] == ',' ? at + len + 1 : NULL;
    }
    return PELAGO_OK;
}

/* "1..5", or one number. */
static enum pelago_status read_seeds(struct pl_lab_experiment *e, struct pl_error *err)
{
    const struct pl_conf_entry *entry = find(e, "", "seeds");
    double first = 1, last = 1;
    if (entry != NULL) {
        const char *dots = strstr(entry->value, "..");
        size_t len = dots != NULL ? (size_t)(dots - entry->value) : strlen(entry->value);
        PL_TRY(number_of(e, entry, entry->value, len, &first, err));
        last = first;
        if (dots != NULL)
            PL_TRY(number_of(e, entry, dots + 2, strlen(dots + 2), &last, err));
        if (!(first >= 1 && first <= last && last <= 1e9) || first != floor(first) || last != floor(last))
            return refuse(e, entry, "A..B with 1 <= A <= B", err);
    }
    e->first_seed = (uint64_t)first;
    e->last_seed = (uint64_t)last;
    return PELAGO_OK;
}

static enum pelago_status check_keys(const struct pl_lab_experiment *e, struct pl_error *err)
{
    for (uint32_t i = 0; i < e->conf.count; i++) {
        const struct pl_conf_entry *entry = &e->conf.entries[i];
        const char *slash = strchr(entry->key, '/');
        bool known = slash == NULL;
        for (uint32_t k = 0; k < e->row_count && !known; k++)
            known = name_for(entry, e->rows[k]) != NULL;
        if (!known)
            return refuse(e, entry, "for a row that `rows` names", err);
    }
    return PELAGO_OK;
}

static enum pelago_status look_at(struct pl_lab_experiment *e, struct pl_error *err)
{
    const struct pl_conf_entry *rows = find(e, "", "rows");
    if (rows == NULL)
        return pl_fail(err, PELAGO_INVALID, "%s has no rows: expected rows: [NAME, ...]", e->conf.file);
    PL_TRY(split_rows(e, rows, err));
    PL_TRY(read_seeds(e, err));
    return check_keys(e, err);
}

enum pelago_status pl_lab_experiment_read(struct pl_lab_experiment *e, const struct pl_alloc *alloc,
                                          const char *path, struct pl_error *err)
{
    const char *base = strrchr(path, '/');
    *e = (struct pl_lab_experiment){.row_count = 0};
    pl_conf_init(&e->conf);
    PL_TRY(pl_conf_read(&e->conf, alloc, path, err));
    base = base != NULL ? base + 1 : path;
    (void)pl_fmt(e->name, sizeof e->name, "%s", base);
    e->name[strcspn(e->name, ".")] = '\0';
    enum pelago_status st = look_at(e, err);
    if (st != PELAGO_OK)
        pl_lab_experiment_release(e);
    return st;
}

void pl_lab_experiment_release(struct pl_lab_experiment *e)
{
    pl_conf_release(&e->conf);
}

/* ---- settings ---- */

/* What `pelago train` takes for small models; experiments say what they want otherwise. */
static void set_base(struct pl_lab_row *row, uint32_t learners)
{
    struct pl_settings *s = &row->settings;
    s->run_id = 1;
    s->learners = learners;
    s->eval_tokens = EVAL_TOKENS;
    s->total_tokens = 1;
    s->trainer = (struct pl_trainer_options){
        .config = s->trainer.config,
        .batch = pl_max32(1, row->global_batch / learners),
        .seq = SEQ,
        .accumulate = 1,
        .matrices = PL_INNER_ADAMW,
        .rule =
            {.beta1 = 0.9f, .beta2 = 0.99f, .eps = 1e-8f, .momentum = 0.95f, .weight_decay = 0.1f, .clip = 1},
        .schedule = {.kind = PL_SCHEDULE_COSINE, .peak = 4e-3f, .floor = 0.1f, .decay = 0.2f}};
    s->trainer.schedule.total_tokens = s->total_tokens;
    pl_settings_defaults(s);
}

/* The value as JSON of the type the setting has. */
static enum pelago_status patch(const struct pl_lab_experiment *e, json_t *root,
                                const struct pl_conf_entry *entry, const char *name, struct pl_error *err)
{
    struct pl_json j = {root, e->conf.file, err};
    const json_t *old = pl_json_find(&j, name);
    if (old == NULL)
        return pl_fail(err, PELAGO_INVALID, "%s, line %u: there is no setting %s", e->conf.file, entry->line,
                       name);
    json_t *value =
        json_is_string(old) ? json_string(entry->value) : json_loads(entry->value, JSON_DECODE_ANY, NULL);
    bool fits = value != NULL && (json_is_real(old)      ? json_is_number(value)
                                  : json_is_boolean(old) ? json_is_boolean(value)
                                                         : json_typeof(value) == json_typeof(old));
    if (!fits) {
        json_decref(value);
        return refuse(e, entry, "of the setting's type", err);
    }
    return pl_json_put(root, name, value) ? PELAGO_OK : pl_fail(err, PELAGO_NOMEM, "there is no memory");
}

static enum pelago_status patch_all(const struct pl_lab_experiment *e, const char *row, json_t *root,
                                    struct pl_error *err)
{
    for (uint32_t i = 0; i < e->conf.count; i++) {
        const struct pl_conf_entry *entry = &e->conf.entries[i];
        const char *name = name_for(entry, row);
        if (name != NULL && !is_own(name) && find(e, row, name) == entry)
            PL_TRY(patch(e, root, entry, name, err));
    }
    return PELAGO_OK;
}

/* As `pelago run` does, but for what the row says. */
static void follow_codec(const struct pl_lab_experiment *e, const char *row, struct pl_settings *s)
{
    if (find(e, row, "sync.period") == NULL) {
        s->period = pl_settings_period(s->up);
        if (find(e, row, "sync.fragments") == NULL)
            s->fragments = s->period;
    }
    struct pl_settings usual = *s;
    pl_settings_follow_codec(&usual);
    if (find(e, row, "sync.feedback_decay") == NULL)
        s->feedback_decay = usual.feedback_decay;
    if (find(e, row, "sync.feedback_local") == NULL)
        s->feedback_local = usual.feedback_local;
    if (find(e, row, "sync.merge") == NULL)
        s->merge.kind = usual.merge.kind;
    if (find(e, row, "sync.outer_lr") == NULL)
        s->outer.lr = usual.outer.lr;
    if (find(e, row, "sync.outer_momentum") == NULL)
        s->outer.mu = usual.outer.mu;
    if (find(e, row, "sync.outer_warmup") == NULL)
        s->outer.warmup = usual.outer.warmup;
    if (find(e, row, "sync.outer_first") == NULL)
        s->outer.first = usual.outer.first;
}

/* Settings go through their own text, so that every name and check of host/settings.c holds here, too. */
static enum pelago_status settle(const struct pl_lab_experiment *e, const char *row, struct pl_settings *s,
                                 struct pl_error *err)
{
    json_t *root = NULL;
    struct pl_buf text;
    pl_buf_init(&text, &e->conf.alloc, PL_JSON_BYTES_MAX);
    enum pelago_status st = pl_settings_print(s, &text);
    if (st == PELAGO_OK)
        st = pl_json_parse((struct pl_bytes){text.data, text.len}, e->conf.file, &root, err);
    /* Not printed where it is 0, but a row may set it. */
    if (st == PELAGO_OK && !pl_json_put(root, "sync.feedback_local", json_real(0)))
        st = pl_fail(err, PELAGO_NOMEM, "there is no memory");
    if (st == PELAGO_OK)
        st = patch_all(e, row, root, err);
    text.len = 0;
    if (st == PELAGO_OK)
        st = pl_json_print(root, 9, &text);
    if (st == PELAGO_OK)
        st = pl_settings_parse((const char *)text.data, text.len, s, err);
    json_decref(root);
    pl_buf_release(&text);
    return st;
}

/* Whole steps of all learners together. */
static void set_tokens(const struct pl_lab_experiment *e, struct pl_lab_row *row)
{
    struct pl_settings *s = &row->settings;
    uint64_t step = (uint64_t)row->global_batch * s->trainer.seq;
    double params = (double)pl_model_config_params(&s->trainer.config);
    uint64_t wanted = s->total_tokens > 1 ? s->total_tokens : (uint64_t)(row->tokens_per_param * params);
    s->total_tokens = pl_max64(1, (wanted + step - 1) / step) * step;
    s->trainer.schedule.total_tokens = s->total_tokens;
    if (find(e, row->name, "train.warmup_tokens") == NULL)
        s->trainer.schedule.warmup_tokens = s->total_tokens / 50;
    if (find(e, row->name, "data.unit_sequences") == NULL)
        s->unit_sequences = pl_max32(64, 8 * s->trainer.batch);
}

/* ---- the world of a row ---- */

static enum pelago_status set_data(const struct pl_lab_experiment *e, struct pl_lab_row *row,
                                   const struct pl_lab *lab, struct pl_error *err)
{
    const struct pl_conf_entry *entry = find(e, row->name, "data");
    const char *at = entry != NULL ? entry->value : PL_DATASET_TALES;
    bool missing = false, given;
    while (*at != '\0') {
        char path[PL_PATH_MAX];
        size_t len = strcspn(at, ",");
        if (len == 0 || len >= PL_LAB_NAME_MAX || row->domain_count == PL_LAB_DOMAINS_MAX)
            return refuse(e, entry, "a list of up to 4 short names", err);
        char *name = row->domains[row->domain_count++];
        memcpy(name, at, len);
        if (lab->folder != NULL) {
            (void)pl_fmt(path, sizeof path, "%s/%s.tok", lab->folder, name);
            missing = missing || (strcmp(name, PL_DATASET_TALES) != 0 && access(path, R_OK) != 0);
        }
        at += len + (at[len] == ',' ? 1 : 0);
    }
    if (missing && row->domain_count > 1)
        return pl_fail(err, PELAGO_NOTFOUND,
                       "row %s needs texts that are not in %s: see experiments/prepare.sh", row->name,
                       lab->folder);
    if (missing)
        (void)pl_fmt(row->domains[0], PL_LAB_NAME_MAX, "%s", PL_DATASET_TALES);
    for (uint32_t i = 0; i < PL_LAB_DOMAINS_MAX; i++)
        row->shares[i] = 1;
    (void)pl_fmt(row->settings.data, PL_PATH_MAX, "%s", row->domains[0]);
    return list(e, row->name, &shares_key, row->domain_count, row->shares, &given, err);
}

static enum pelago_status set_learners(const struct pl_lab_experiment *e, struct pl_lab_row *row,
                                       struct pl_error *err)
{
    double batches[PL_LAB_LEARNERS_MAX];
    uint32_t all = row->settings.learners + row->joiners;
    bool given;
    for (uint32_t i = 0; i < PL_LAB_LEARNERS_MAX; i++)
        row->speeds[i] = 1;
    PL_TRY(list(e, row->name, &speeds_key, all, row->speeds, &given, err));
    PL_TRY(list(e, row->name, &batches_key, all, batches, &given, err));
    uint32_t largest = 0;
    for (uint32_t i = 0; i < all; i++) {
        row->batches[i] = given ? (uint32_t)batches[i] : row->settings.trainer.batch;
        largest = pl_max32(largest, row->batches[i]);
    }
    if (largest == 0 || largest > PL_BATCH_MAX)
        return pl_fail(err, PELAGO_INVALID, "row %s: a learner's batch is out of range", row->name);
    row->settings.trainer.batch = largest;
    return PELAGO_OK;
}

/* Mean seconds between two faults of a kind; 0: none. */
static enum pelago_status rate(const struct pl_lab_experiment *e, const struct pl_lab_row *row,
                               const char *key, uint64_t *every_ns, struct pl_error *err)
{
    double every_s = 0;
    PL_TRY(real(e, row->name, key, 0, 1e6, &every_s, err));
    if (every_s > 0 && every_s < 0.001)
        return pl_fail(err, PELAGO_INVALID, "row %s: %s is below 0.001; 0: never", row->name, key);
    if (every_s > 0 && row->trace[0] != '\0')
        return pl_fail(err, PELAGO_INVALID, "row %s has a trace and %s: one of them", row->name, key);
    *every_ns = (uint64_t)(every_s * 1e9);
    return PELAGO_OK;
}

static enum pelago_status read_world(const struct pl_lab_experiment *e, struct pl_lab_row *row,
                                     uint64_t *points, struct pl_error *err)
{
    double latency_ms = 20, mbit = 100, checkpoint_s = 0, restart_s = 1, stop_s = 1;
    const char *name = row->name;
    row->step_ns = PL_SEC;
    row->trace_scale = 1;
    row->join_at = 0.5;
    PL_TRY(small(e, name, "joiners", 0, PL_LAB_LEARNERS_MAX - row->settings.learners, &row->joiners, err));
    PL_TRY(small(e, name, "cohort", 0, PL_LAB_LEARNERS_MAX, &row->cohort, err));
    PL_TRY(real(e, name, "join_at", 0, 1, &row->join_at, err));
    PL_TRY(real(e, name, "latency_ms", 0.001, 1e5, &latency_ms, err));
    PL_TRY(real(e, name, "bandwidth_mbit", 0.001, 1e6, &mbit, err));
    PL_TRY(real(e, name, "checkpoint_s", 0, 1e9, &checkpoint_s, err));
    PL_TRY(text(e, name, "trace", row->trace, sizeof row->trace, err));
    PL_TRY(real(e, name, "trace_scale", 1e-6, 1e9, &row->trace_scale, err));
    PL_TRY(real(e, name, "restart_s", 0.001, 1e6, &restart_s, err));
    PL_TRY(rate(e, row, "kill_every_s", &row->kill_every_ns, err));
    PL_TRY(rate(e, row, "stop_every_s", &row->stop_every_ns, err));
    PL_TRY(real(e, name, "stop_s", 0.001, 1e6, &stop_s, err));
    PL_TRY(flag(e, name, "trace_fold", &row->trace_fold, err));
    PL_TRY(count(e, name, "trace_skip_s", 0, 1000000000, &row->trace_skip_s, err));
    PL_TRY(count(e, name, "points", 0, PL_LAB_POINTS_MAX - 1, points, err));
    row->latency_ns = (uint64_t)(latency_ms * 1e6);
    row->bandwidth = (uint64_t)(mbit * 1e6 / 8);
    row->checkpoint_ns = (uint64_t)(checkpoint_s * 1e9);
    row->restart_ns = (uint64_t)(restart_s * 1e9);
    row->stop_ns = (uint64_t)(stop_s * 1e9);
    return PELAGO_OK;
}

static enum pelago_status read_head(const struct pl_lab_experiment *e, struct pl_lab_row *row,
                                    struct pl_error *err)
{
    const char *name = row->name;
    char model[sizeof row->settings.model] = "1m";
    uint32_t learners = 1;
    double shorter = 1;
    row->global_batch = GLOBAL_BATCH;
    row->tokens_per_param = 20;
    row->bar = (double)NAN;
    PL_TRY(text(e, name, "model", model, sizeof model, err));
    PL_TRY(flag(e, name, "split", &row->split, err));
    PL_TRY(text(e, name, "against", row->against, sizeof row->against, err));
    PL_TRY(real(e, name, "bar", -100, 1000, &row->bar, err));
    PL_TRY(small(e, name, "learners", 1, PL_LAB_LEARNERS_MAX, &learners, err));
    PL_TRY(small(e, name, "global_batch", 1, 65536, &row->global_batch, err));
    PL_TRY(real(e, name, "tokens_per_param", 1e-6, 1e6, &row->tokens_per_param, err));
    PL_TRY(real(e, name, "short_tokens_per_param", 1e-6, 1e6, &shorter, err));
    if (row->shorter)
        row->tokens_per_param = shorter;
    PL_TRY(pl_model_config_preset(model, &row->settings.trainer.config, err));
    pl_model_config_complete(&row->settings.trainer.config);
    (void)pl_fmt(row->settings.model, sizeof row->settings.model, "%s", model);
    set_base(row, learners);
    return PELAGO_OK;
}

enum pelago_status pl_lab_experiment_row(const struct pl_lab_experiment *e, uint32_t index, bool shorter,
                                         const struct pl_lab *lab, struct pl_lab_row *row,
                                         struct pl_error *err)
{
    uint64_t points = 0;
    *row = (struct pl_lab_row){.shorter = shorter};
    (void)pl_fmt(row->name, sizeof row->name, "%s", e->rows[index]);
    PL_TRY(read_head(e, row, err));
    PL_TRY(settle(e, row->name, &row->settings, err));
    if (row->settings.algorithm == PL_ALGORITHM_DILOCO)
        return pl_fail(err, PELAGO_INVALID,
                       "row %s: algorithm is diloco, expected decoupled or data_parallel", row->name);
    PL_TRY(read_world(e, row, &points, err));
    PL_TRY(set_data(e, row, lab, err));
    PL_TRY(set_learners(e, row, err));
    if (row->settings.algorithm == PL_ALGORITHM_DATA_PARALLEL && row->split)
        return pl_fail(err, PELAGO_INVALID, "row %s: split is for learners that merge, not for data_parallel",
                       row->name);
    set_tokens(e, row);
    follow_codec(e, row->name, &row->settings);
    row->eval_every = points > 0 ? row->settings.total_tokens / points : 0;
    PL_TRY(pl_settings_check(&row->settings, err));
    if (!(pl_lab_row_seconds(row) <= VIRTUAL_S_MAX))
        return pl_fail(err, PELAGO_INVALID,
                       "row %s: its learners would take more than 31 years of virtual time", row->name);
    return PELAGO_OK;
}
