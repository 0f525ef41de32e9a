/* host/settings.c - see settings.h. One table says where each number lies and what it is called; words and the few
 * odd ones are beside it. */
#include "host/settings.h"

#include "base/check.h"
#include "base/fmt.h"
#include "base/num.h"
#include "train/json.h"

#include <math.h>
#include <string.h>

enum {
    FORMAT = 2,
    WORD_MAX = 32,
    PERIOD = 24,
    PERIOD_TOPK = 6,
    OVERLAP = 2,
    MERGES_MANY = 400, /* of a fragment: decision 9 */
    WARMUP = 20,       /* outer steps of a fragment, one a PERIOD */
};
static const char file[] = "settings.json";

/* ---- words ---- */

static const struct {
    const char *name;
    enum pl_algorithm algorithm;
} algorithms[] = {{"decoupled", PL_ALGORITHM_DECOUPLED},
                  {"diloco", PL_ALGORITHM_DILOCO},
                  {"data_parallel", PL_ALGORITHM_DATA_PARALLEL}};
enum { ALGORITHMS = sizeof algorithms / sizeof algorithms[0] };

const char *pl_algorithm_name(enum pl_algorithm a)
{
    for (unsigned i = 0; i < ALGORITHMS; i++)
        if (algorithms[i].algorithm == a)
            return algorithms[i].name;
    return "none";
}

bool pl_algorithm_of_name(const char *name, enum pl_algorithm *a)
{
    for (unsigned i = 0; i < ALGORITHMS; i++)
        if (strcmp(algorithms[i].name, name) == 0) {
            *a = algorithms[i].algorithm;
            return true;
        }
    return false;
}

/* ---- defaults ---- */

float pl_outer_momentum(enum pl_inner_kind matrices)
{
    return matrices == PL_INNER_MUON ? 0.5f : 0.8f;
}

/* Top-k says a 64th of what was done, in an eighteenth of int4's bytes: it has to speak more often. */
uint32_t pl_settings_period(enum pl_codec up)
{
    return pl_codec_is_topk((uint32_t)up) ? PERIOD_TOPK : PERIOD;
}

uint64_t pl_settings_merges(const struct pl_settings *s)
{
    uint64_t tick = (uint64_t)s->trainer.batch * s->trainer.accumulate * s->trainer.seq * s->learners;
    return s->total_tokens / pl_max64(1, tick) / pl_max32(1, s->period);
}

/* docs/results.md: a large momentum is right for 2 to 8 learners once it has grown, and far too much for the first few outer
 * steps, in which the rate makes up for it; a rate that falls at the end takes the noise of the last ones away. Muon wants
 * less momentum, and a higher first rate has not been tried with it. Of top-k a value comes from few of the learners at a
 * time, so that their mean is short; what they hold back is better off in their own values where merges are few, and
 * beside them where there are many; where they speak more often the momentum grows over as many tokens (decision 9). */
void pl_settings_follow_codec(struct pl_settings *s)
{
    /* The synchronous ones send bf16 in its place. */
    const bool sparse = s->algorithm == PL_ALGORITHM_DECOUPLED && pl_codec_is_topk((uint32_t)s->up);
    const bool muon = s->trainer.matrices == PL_INNER_MUON;
    s->feedback_decay = 1;
    s->feedback_local = sparse && s->apply == 0 && pl_settings_merges(s) < MERGES_MANY ? 1 : 0;
    s->outer = (struct pl_outer_rule){
        .lr = sparse ? 2 : 0.7f,
        .mu = sparse ? 0.5f : pl_outer_momentum(s->trainer.matrices),
        .kind = PL_OUTER_NESTEROV,
        .delay = 1,
        .warmup = sparse && s->period < PERIOD ? WARMUP * PERIOD / pl_max32(1, s->period) : WARMUP,
        .decay = 0.1f,
        .floor = 0.1f,
        .first = sparse || muon ? 0 : 1};
    s->merge =
        (struct pl_merge_rule){.kind = sparse ? PL_RULE_MEAN : PL_RULE_RDA, .trim = 0.25f, .guard = true};
}

void pl_settings_defaults(struct pl_settings *s)
{
    s->algorithm = PL_ALGORITHM_DECOUPLED;
    s->shards = 1;
    s->fragments = s->period = PERIOD;
    s->overlap = OVERLAP;
    s->quorum = 1;
    s->gamma_ppm = 800000;
    s->staleness_max = 2;
    s->apply = 0;
    s->mix_ppm = 500000;
    s->up = s->down = PL_CODEC_INT4;
    s->selective = 0;
    pl_settings_follow_codec(s);
    s->unit_sequences = pl_max32(64, 8 * s->trainer.batch * s->trainer.accumulate);
}

/* ---- the table ---- */

/* NEW_FLOAT: runs begun before there was such a setting have none, which is 0. */
enum kind { U8, U32, U64, BITS, FLOAT, NEW_FLOAT, FLAG, TEXT };

struct entry {
    const char *name;
    enum kind kind;
    size_t offset;
    size_t cap; /* TEXT */
};

#define AT(member) offsetof(struct pl_settings, member)
static const struct entry entries[] = {
    {"run_id", BITS, AT(run_id), 0},
    {"model.name", TEXT, AT(model), sizeof((struct pl_settings *)0)->model},
    {"model.layers", U32, AT(trainer.config.layers), 0},
    {"model.width", U32, AT(trainer.config.width), 0},
    {"model.heads", U32, AT(trainer.config.heads), 0},
    {"model.kv_heads", U32, AT(trainer.config.kv_heads), 0},
    {"model.head_dim", U32, AT(trainer.config.head_dim), 0},
    {"model.hidden", U32, AT(trainer.config.hidden), 0},
    {"model.vocab", U32, AT(trainer.config.vocab), 0},
    {"model.context", U32, AT(trainer.config.context), 0},
    {"model.tied", FLAG, AT(trainer.config.tied), 0},
    {"model.qk_norm", FLAG, AT(trainer.config.qk_norm), 0},
    {"model.rope_theta", FLOAT, AT(trainer.config.rope_theta), 0},
    {"model.norm_eps", FLOAT, AT(trainer.config.norm_eps), 0},
    {"data.name", TEXT, AT(data), PL_PATH_MAX},
    {"data.valid", TEXT, AT(valid), PL_PATH_MAX},
    {"data.tokenizer_digest", BITS, AT(tokenizer_digest), 0},
    {"data.unit_sequences", U32, AT(unit_sequences), 0},
    {"data.eval_tokens", U64, AT(eval_tokens), 0},
    {"train.tokens", U64, AT(total_tokens), 0},
    {"train.batch", U32, AT(trainer.batch), 0},
    {"train.seq", U32, AT(trainer.seq), 0},
    {"train.accumulate", U32, AT(trainer.accumulate), 0},
    {"train.recompute", FLAG, AT(trainer.recompute), 0},
    {"train.z_loss", FLOAT, AT(trainer.z_loss), 0},
    {"train.seed", BITS, AT(trainer.seed), 0},
    {"train.beta1", FLOAT, AT(trainer.rule.beta1), 0},
    {"train.beta2", FLOAT, AT(trainer.rule.beta2), 0},
    {"train.eps", FLOAT, AT(trainer.rule.eps), 0},
    {"train.momentum", FLOAT, AT(trainer.rule.momentum), 0},
    {"train.weight_decay", FLOAT, AT(trainer.rule.weight_decay), 0},
    {"train.clip", FLOAT, AT(trainer.rule.clip), 0},
    {"train.peak", FLOAT, AT(trainer.schedule.peak), 0},
    {"train.floor", FLOAT, AT(trainer.schedule.floor), 0},
    {"train.decay", FLOAT, AT(trainer.schedule.decay), 0},
    {"train.warmup_tokens", U64, AT(trainer.schedule.warmup_tokens), 0},
    {"sync.learners", U32, AT(learners), 0},
    {"sync.shards", U32, AT(shards), 0},
    {"sync.fragments", U32, AT(fragments), 0},
    {"sync.period", U32, AT(period), 0},
    {"sync.overlap", U32, AT(overlap), 0},
    {"sync.quorum", U32, AT(quorum), 0},
    {"sync.gamma_ppm", U32, AT(gamma_ppm), 0},
    {"sync.staleness_max", U32, AT(staleness_max), 0},
    {"sync.apply", U8, AT(apply), 0},
    {"sync.mix_ppm", U32, AT(mix_ppm), 0},
    {"sync.feedback_decay", FLOAT, AT(feedback_decay), 0},
    {"sync.feedback_local", NEW_FLOAT, AT(feedback_local), 0},
    {"sync.selective", FLOAT, AT(selective), 0},
    {"sync.outer_lr", FLOAT, AT(outer.lr), 0},
    {"sync.outer_momentum", FLOAT, AT(outer.mu), 0},
    {"sync.outer_delay", U32, AT(outer.delay), 0},
    {"sync.outer_warmup", U32, AT(outer.warmup), 0},
    {"sync.outer_decay", FLOAT, AT(outer.decay), 0},
    {"sync.outer_floor", FLOAT, AT(outer.floor), 0},
    {"sync.outer_first", NEW_FLOAT, AT(outer.first), 0},
    {"sync.codec_lr", FLAG, AT(codec_lr), 0},
    {"sync.merge_trim", FLOAT, AT(merge.trim), 0},
    {"sync.merge_stale", FLOAT, AT(merge.stale), 0},
    {"sync.merge_guard", FLAG, AT(merge.guard), 0},
};
#undef AT
enum { ENTRIES = sizeof entries / sizeof entries[0] };

/* ---- printing ---- */

static json_t *value_of(const struct entry *e, const struct pl_settings *s)
{
    const void *at = (const char *)s + e->offset;
    switch (e->kind) {
    case U8:
        return json_integer(*(const uint8_t *)at);
    case U32:
        return json_integer(*(const uint32_t *)at);
    case U64:
        return json_integer((json_int_t) * (const uint64_t *)at);
    case BITS:
        return pl_json_bits_value(*(const uint64_t *)at);
    case FLOAT:
    case NEW_FLOAT:
        return json_real(pl_json_short(*(const float *)at));
    case FLAG:
        return json_boolean(*(const bool *)at);
    case TEXT:
        return json_string(at);
    }
    return NULL;
}

/* So that settings of then are printed as they were, and have the same digest. */
static bool is_absent(const struct entry *e, const struct pl_settings *s)
{
    return e->kind == NEW_FLOAT && !(*(const float *)(const void *)((const char *)s + e->offset) > 0);
}

enum pelago_status pl_settings_print(const struct pl_settings *s, struct pl_buf *out)
{
    json_t *root = json_object();
    bool good =
        root != NULL && pl_json_put(root, "pelago_settings", json_integer(FORMAT)) &&
        pl_json_put(root, "algorithm", json_string(pl_algorithm_name(s->algorithm))) &&
        pl_json_put(root, "train.optimizer", json_string(pl_optimizer_name(s->trainer.matrices))) &&
        pl_json_put(root, "train.schedule", json_string(pl_schedule_name(s->trainer.schedule.kind))) &&
        pl_json_put(root, "sync.up", json_string(pl_codec_name(s->up))) &&
        pl_json_put(root, "sync.down", json_string(pl_codec_name(s->down))) &&
        pl_json_put(root, "sync.merge", json_string(pl_rule_name(s->merge.kind))) &&
        pl_json_put(root, "sync.outer", json_string(pl_outer_name(s->outer.kind)));
    for (unsigned i = 0; i < ENTRIES && good; i++)
        good = is_absent(&entries[i], s) || pl_json_put(root, entries[i].name, value_of(&entries[i], s));
    enum pelago_status st = good ? pl_json_print(root, 9, out) : PELAGO_NOMEM;
    json_decref(root);
    return st;
}

/* ---- reading ---- */

static enum pelago_status read_small(const struct pl_json *j, const struct entry *e, uint64_t max,
                                     uint64_t *out)
{
    PL_TRY(pl_json_count(j, e->name, max, out));
    return PELAGO_OK;
}

static enum pelago_status read_entry(const struct pl_json *j, const struct entry *e, struct pl_settings *s)
{
    void *at = (char *)s + e->offset;
    uint64_t count = 0;
    double real = 0;
    switch (e->kind) {
    case U8:
        PL_TRY(read_small(j, e, UINT8_MAX, &count));
        *(uint8_t *)at = (uint8_t)count;
        return PELAGO_OK;
    case U32:
        return pl_json_u32(j, e->name, at);
    case U64:
        return pl_json_count(j, e->name, PL_COUNT_MAX, at);
    case BITS:
        return pl_json_bits(j, e->name, at);
    case FLOAT:
    case NEW_FLOAT:
        PL_TRY(pl_json_real(j, e->name, &real));
        *(float *)at = (float)real;
        return PELAGO_OK;
    case FLAG:
        return pl_json_flag(j, e->name, at);
    case TEXT:
        return pl_json_text(j, e->name, at, e->cap);
    }
    return PELAGO_CORRUPT;
}

static enum pelago_status bad_word(const struct pl_json *j, const char *name, const char *word)
{
    return pl_fail(j->err, PELAGO_INVALID, "%s: %s is '%s', which this program does not know", file, name,
                   word);
}

static enum pelago_status read_codec(const struct pl_json *j, const char *name, enum pl_codec *codec)
{
    char word[WORD_MAX];
    PL_TRY(pl_json_text(j, name, word, sizeof word));
    return pl_codec_of_name(word, codec) ? PELAGO_OK : bad_word(j, name, word);
}

static enum pelago_status read_words(const struct pl_json *j, struct pl_settings *s)
{
    char word[WORD_MAX];
    PL_TRY(pl_json_text(j, "algorithm", word, sizeof word));
    if (!pl_algorithm_of_name(word, &s->algorithm))
        return bad_word(j, "algorithm", word);
    PL_TRY(pl_json_text(j, "train.optimizer", word, sizeof word));
    if (!pl_optimizer_of_name(word, &s->trainer.matrices))
        return bad_word(j, "train.optimizer", word);
    PL_TRY(pl_json_text(j, "train.schedule", word, sizeof word));
    if (!pl_schedule_of_name(word, &s->trainer.schedule.kind))
        return bad_word(j, "train.schedule", word);
    PL_TRY(pl_json_text(j, "sync.merge", word, sizeof word));
    if (!pl_rule_of_name(word, &s->merge.kind))
        return bad_word(j, "sync.merge", word);
    PL_TRY(pl_json_text(j, "sync.outer", word, sizeof word));
    if (!pl_outer_of_name(word, &s->outer.kind))
        return bad_word(j, "sync.outer", word);
    PL_TRY(read_codec(j, "sync.up", &s->up));
    return read_codec(j, "sync.down", &s->down);
}

/* Of group "" or one such as "sync". */
static bool is_known(const char *group, const char *member)
{
    static const char *const words[] = {"pelago_settings", "algorithm", "train.optimizer", "train.schedule",
                                        "sync.up",         "sync.down", "sync.merge",      "sync.outer"};
    char name[2 * WORD_MAX];
    bool known = false;
    (void)pl_fmt(name, sizeof name, "%s%s%s", group, group[0] != '\0' ? "." : "", member);
    for (unsigned i = 0; i < sizeof words / sizeof words[0]; i++)
        known = known || strcmp(words[i], name) == 0;
    for (unsigned i = 0; i < ENTRIES; i++)
        known = known || strcmp(entries[i].name, name) == 0;
    return known;
}

static enum pelago_status refuse_unknown_of(const struct pl_json *j, const char *group, json_t *object)
{
    const char *member;
    json_t *value;
    json_object_foreach(object, member, value)
    {
        bool is_group = group[0] == '\0' && json_is_object(value);
        if (!is_group && !is_known(group, member))
            return pl_fail(j->err, PELAGO_INVALID,
                           "%s has %s%s%s, which this program does not know: use the same version of pelago "
                           "everywhere",
                           file, group, group[0] != '\0' ? "." : "", member);
    }
    return PELAGO_OK;
}

/* A setting that is passed over is not obeyed: the run of a later program would go on as another one. */
static enum pelago_status refuse_unknown(const struct pl_json *j)
{
    const char *member;
    json_t *value;
    PL_TRY(refuse_unknown_of(j, "", j->at));
    json_object_foreach(j->at, member, value)
    {
        if (json_is_object(value))
            PL_TRY(refuse_unknown_of(j, member, value));
    }
    return PELAGO_OK;
}

static enum pelago_status read_all(const struct pl_json *j, struct pl_settings *s)
{
    uint64_t format;
    PL_TRY(pl_json_count(j, "pelago_settings", PL_COUNT_MAX, &format));
    if (format != FORMAT)
        return pl_fail(
            j->err, PELAGO_INVALID,
            "%s is of format %lu, this program knows %u: use the same version of pelago everywhere", file,
            format, (unsigned)FORMAT);
    PL_TRY(refuse_unknown(j));
    PL_TRY(read_words(j, s));
    for (unsigned i = 0; i < ENTRIES; i++)
        if (entries[i].kind != NEW_FLOAT || pl_json_find(j, entries[i].name) != NULL)
            PL_TRY(read_entry(j, &entries[i], s));
    s->trainer.schedule.total_tokens = s->total_tokens;
    return pl_settings_check(s, j->err);
}

enum pelago_status pl_settings_parse(const char *text, size_t len, struct pl_settings *s,
                                     struct pl_error *err)
{
    json_t *root = NULL;
    *s = (struct pl_settings){.run_id = 0};
    PL_TRY(pl_json_parse((struct pl_bytes){text, len}, file, &root, err));
    struct pl_json j = {root, file, err};
    enum pelago_status st = read_all(&j, s);
    json_decref(root);
    return st;
}

/* ---- checking ---- */

struct range {
    const char *name;
    uint64_t value, min, max;
};

static enum pelago_status check_ranges(const struct range *ranges, size_t count, struct pl_error *err)
{
    for (size_t i = 0; i < count; i++)
        if (ranges[i].value < ranges[i].min || ranges[i].value > ranges[i].max)
            return pl_fail(err, PELAGO_INVALID, "%s is %lu, expected %lu to %lu", ranges[i].name,
                           ranges[i].value, ranges[i].min, ranges[i].max);
    return PELAGO_OK;
}

enum pelago_status pl_settings_check(const struct pl_settings *s, struct pl_error *err)
{
    PL_TRY(pl_trainer_options_check(&s->trainer, err));
    const struct range ranges[] = {
        {"run_id", s->run_id, 1, UINT64_MAX},
        {"tokens", s->total_tokens, 1, PL_COUNT_MAX},
        {"learners", s->learners, 1, PL_LEARNERS_MAX},
        {"shards", s->shards, 1, PL_SHARDS_MAX},
        {"period", s->period, 1, PL_PERIOD_STEPS_MAX},
        {"fragments", s->fragments, s->shards, (uint64_t)s->shards * s->period},
        {"fragments", s->fragments, 1, PL_FRAGMENTS_MAX},
        {"overlap", s->overlap, 1, s->period},
        {"quorum", s->quorum, 1, PL_LEARNERS_MAX},
        {"gamma_ppm", s->gamma_ppm, 0, 1000000},
        {"staleness_max", s->staleness_max, 0, PL_STALENESS_MAX},
        {"apply", s->apply, 0, 2},
        {"mix_ppm", s->mix_ppm, 0, 1000000},
        {"unit_sequences", s->unit_sequences, 1, UINT32_MAX},
    };
    PL_TRY(check_ranges(ranges, sizeof ranges / sizeof ranges[0], err));
    if (s->algorithm != PL_ALGORITHM_DECOUPLED && s->shards != 1)
        return pl_fail(err, PELAGO_INVALID, "%s runs with one shard, not %u", pl_algorithm_name(s->algorithm),
                       s->shards);
    if (!(s->feedback_decay >= 0 && s->feedback_decay <= 1))
        return pl_fail(err, PELAGO_INVALID, "feedback_decay is out of range, expected 0 to 1");
    if (!(s->feedback_local >= 0 && s->feedback_local <= 1))
        return pl_fail(err, PELAGO_INVALID, "feedback_local is out of range, expected 0 to 1");
    if (s->feedback_local > 0 && s->apply != 0)
        return pl_fail(
            err, PELAGO_INVALID,
            "feedback_local is for apply: rebase alone; otherwise nothing stays in a learner's values");
    if (!(s->selective >= 0 && s->selective < 1))
        return pl_fail(err, PELAGO_INVALID, "selective is out of range, expected 0 to below 1");
    PL_TRY(pl_rule_check(&s->merge, err));
    return pl_outer_check(&s->outer, err);
}

/* What an encoding takes from the length of contributions is given back in every step, the first ones included. */
struct pl_outer_rule pl_settings_outer_rule(const struct pl_settings *s)
{
    struct pl_outer_rule rule = s->outer;
    const float gain = s->codec_lr && s->feedback_decay < 1 ? pl_outer_codec_gain(s->up) : 1;
    rule.lr *= gain;
    rule.first *= gain;
    rule.planned = (uint32_t)pl_min64(pl_settings_merges(s), UINT32_MAX);
    return rule;
}

struct pl_outer_move pl_settings_outer(const struct pl_settings *s, uint64_t version, uint64_t clock_tokens,
                                       double share)
{
    const struct pl_outer_rule rule = pl_settings_outer_rule(s);
    return pl_outer_at(&rule, version, (double)clock_tokens / (double)s->total_tokens, share);
}
