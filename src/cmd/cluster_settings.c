/* cmd/cluster_settings.c - from options to the settings of a run, and whether options agree with settings that are there
 * already; see cluster_args.h. */
#include "base/check.h"
#include "base/fmt.h"
#include "base/hash.h"
#include "base/num.h"
#include "cmd/cluster_args.h"
#include "host/syncer_host.h"
#include "train/batches.h"
#include "train/dataset.h"

#include <math.h>
#include <signal.h>
#include <string.h>

/* ---- a new run ---- */

static void choose_words(struct pl_settings *s, const struct pl_cluster_args *a)
{
    if (a->algorithm != NULL)
        (void)pl_algorithm_of_name(a->algorithm, &s->algorithm);
    /* The synchronous ones move the whole model and wait for everybody. */
    if (s->algorithm != PL_ALGORITHM_DECOUPLED) {
        s->fragments = 1;
        s->quorum = s->learners;
        s->up = s->down = s->algorithm == PL_ALGORITHM_DILOCO ? PL_CODEC_FP32 : PL_CODEC_BF16;
    }
    if (a->up != NULL)
        (void)pl_codec_of_name(a->up, &s->up);
    if (a->down != NULL)
        (void)pl_codec_of_name(a->down, &s->down);
    if (a->apply != NULL)
        s->apply = strcmp(a->apply, "overwrite") == 0 ? 1 : strcmp(a->apply, "mix") == 0 ? 2 : 0;
    if (s->algorithm == PL_ALGORITHM_DECOUPLED)
        s->period = pl_settings_period(s->up);
    s->period = a->period > 0 ? a->period : s->period;
    pl_settings_follow_codec(s);
    if (a->merge != NULL)
        (void)pl_rule_of_name(a->merge, &s->merge.kind);
    if (a->outer != NULL)
        (void)pl_outer_of_name(a->outer, &s->outer.kind);
    if (a->guard != NULL)
        s->merge.guard = strcmp(a->guard, "on") == 0;
}

static void choose_numbers(struct pl_settings *s, const struct pl_cluster_args *a)
{
    s->shards = a->shards > 0 ? a->shards : s->shards;
    /* A tick has at most one fragment of a shard due. */
    s->fragments = (uint32_t)pl_clamp64(s->fragments, s->shards, (uint64_t)s->shards * s->period);
    s->fragments = a->fragments > 0 ? a->fragments : s->fragments;
    s->overlap = a->overlap > 0 ? a->overlap : pl_min32(s->overlap, s->period);
    s->quorum = a->quorum > 0 ? a->quorum : s->quorum;
    s->staleness_max = a->staleness > 0 ? a->staleness : s->staleness_max;
    s->feedback_decay = isnan(a->feedback_decay) ? s->feedback_decay : (float)a->feedback_decay;
    s->feedback_local = isnan(a->feedback_local) ? s->feedback_local : (float)a->feedback_local;
    s->selective = isnan(a->selective) ? s->selective : (float)a->selective;
    s->outer.lr = isnan(a->outer_lr) ? s->outer.lr : (float)a->outer_lr;
    s->outer.mu = isnan(a->outer_momentum) ? s->outer.mu : (float)a->outer_momentum;
    s->outer.delay = a->outer_delay > 0 ? a->outer_delay : s->outer.delay;
    s->outer.warmup = a->outer_warmup != PL_NONE32 ? a->outer_warmup : s->outer.warmup;
    s->outer.decay = isnan(a->outer_decay) ? s->outer.decay : (float)a->outer_decay;
    s->outer.floor = isnan(a->outer_floor) ? s->outer.floor : (float)a->outer_floor;
    s->outer.first = isnan(a->outer_first) ? s->outer.first : (float)a->outer_first;
    s->merge.trim = isnan(a->merge_trim) ? s->merge.trim : (float)a->merge_trim;
    s->merge.stale = isnan(a->merge_stale) ? s->merge.stale : (float)a->merge_stale;
    s->codec_lr = s->codec_lr || a->codec_lr;
}

/* data_parallel is one trainer with the batches of all. */
static void choose_rate(struct pl_settings *s, const struct pl_cluster_args *a)
{
    struct pl_schedule *schedule = &s->trainer.schedule;
    uint32_t trainers = s->algorithm == PL_ALGORITHM_DATA_PARALLEL ? s->learners : 1;
    if (!isnan(a->train.lr))
        return;
    schedule->peak = pl_train_plan_learner_rate(&s->trainer, trainers);
    if (!isnan(a->train.min_lr))
        schedule->floor = (float)a->train.min_lr / schedule->peak;
}

enum pelago_status pl_cluster_settings(const struct pl_cluster_args *a, struct pl_train_plan *plan,
                                       struct pl_settings *s, struct pl_error *err)
{
    struct pl_train_args train = a->train;
    *s = (struct pl_settings){.run_id = 0};
    train.sharers = a->learners;
    PL_TRY(pl_train_plan_new(plan, &train, err));
    if (strcmp(plan->data, "-") == 0)
        return pl_fail(err, PELAGO_INVALID,
                       "--data -: learners cannot read this process's standard input; name a file");
    s->trainer = plan->trainer;
    s->trainer.backend = NULL;
    s->trainer.threads = 0;
    memcpy(s->model, plan->model, sizeof s->model);
    memcpy(s->data, plan->data, sizeof s->data);
    memcpy(s->valid, plan->valid, sizeof s->valid);
    s->total_tokens = plan->total_tokens;
    s->eval_tokens = plan->eval_tokens;
    s->learners = a->learners > 0 ? a->learners : 1;
    pl_settings_defaults(s);
    choose_words(s, a);
    choose_numbers(s, a);
    choose_rate(s, a);
    while (s->run_id == 0)
        pl_random(&s->run_id, sizeof s->run_id);
    return pl_settings_check(s, err);
}

/* Learners would find it out one by one. */
static enum pelago_status check_length(const struct pl_alloc *alloc, const struct pl_dataset *d,
                                       const struct pl_trainer_options *trainer, struct pl_error *err)
{
    struct pl_batches batches;
    PL_TRY(pl_batches_init(&batches, alloc, &d->train, trainer->seq, trainer->seed, err));
    pl_batches_release(&batches);
    return PELAGO_OK;
}

enum pelago_status pl_cluster_open_data(const struct pl_cluster_args *a, struct pl_train_plan *plan,
                                        struct pl_settings *s, struct pl_buf *tokenizer, struct pl_error *err)
{
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_dataset_options o = {.data = plan->data,
                                   .valid = plan->valid[0] != '\0' ? plan->valid : NULL,
                                   .tokenizer = a->train.tokenizer,
                                   .vocab = plan->trainer.config.vocab,
                                   .valid_tokens = plan->eval_tokens,
                                   .seed = plan->trainer.seed};
    struct pl_dataset *d = NULL;
    PL_TRY(pl_dataset_open(&d, &alloc, &o, err));
    enum pelago_status st = check_length(&alloc, d, &plan->trainer, err);
    if (st == PELAGO_OK)
        st = pl_train_plan_settle(plan, d->vocab, err);
    s->trainer.config = plan->trainer.config;
    if (st == PELAGO_OK && d->tokenizer != NULL) {
        struct pl_bytes json = pl_tokenizer_json(d->tokenizer);
        s->tokenizer_digest = pl_hash64(json.data, json.len, 0);
        st = pl_buf_append(tokenizer, json.data, json.len);
    }
    pl_dataset_close(d);
    return st == PELAGO_OK ? pl_settings_check(s, err) : st;
}

/* Ctrl-C waits until the folder is whole: an unfinished one would stay under a name that nobody asked for. */
static enum pelago_status create_whole(const struct pl_alloc *alloc, const char *folder,
                                       const struct pl_settings *s, struct pl_bytes tokenizer,
                                       struct pl_error *err)
{
    sigset_t held, before;
    (void)sigemptyset(&held);
    (void)sigaddset(&held, SIGINT);
    (void)sigaddset(&held, SIGTERM);
    (void)sigaddset(&held, SIGHUP);
    pl_assert(sigprocmask(SIG_BLOCK, &held, &before) == 0);
    enum pelago_status st = pl_syncer_host_create(alloc, folder, s, tokenizer, err);
    pl_assert(sigprocmask(SIG_SETMASK, &before, NULL) == 0);
    return st;
}

enum pelago_status pl_cluster_create(const struct pl_cluster_args *a, const char *folder,
                                     struct pl_settings *s, struct pl_error *err)
{
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_train_plan plan;
    struct pl_buf tokenizer;
    pl_buf_init(&tokenizer, &alloc, PL_TOKENIZER_BYTES_MAX);
    enum pelago_status st = pl_cluster_settings(a, &plan, s, err);
    if (st == PELAGO_OK)
        st = pl_cluster_open_data(a, &plan, s, &tokenizer, err);
    if (st == PELAGO_OK)
        st = create_whole(&alloc, folder, s, (struct pl_bytes){tokenizer.data, tokenizer.len}, err);
    pl_buf_release(&tokenizer);
    return st;
}

/* ---- a run that is there ---- */

/* One option: whether it was given, and whether it says something else than the run. */
struct claim {
    const char *name;
    bool given, differs;
};

static enum pelago_status check_claims(const struct claim *claims, size_t count, struct pl_error *err)
{
    for (size_t i = 0; i < count; i++)
        if (claims[i].given && claims[i].differs)
            return pl_fail(err, PELAGO_INVALID,
                           "--%s is not what the run in this folder has: leave it out to go on with the run, "
                           "or give another folder to begin anew",
                           claims[i].name);
    return PELAGO_OK;
}

static bool differs(float a, float b)
{
    return a < b || a > b;
}

static enum pelago_status check_model(const struct pl_train_args *t, const struct pl_settings *w,
                                      const struct pl_settings *s, struct pl_error *err)
{
    const struct pl_model_config *want = &w->trainer.config, *have = &s->trainer.config;
    const struct pl_model_config *d = &t->dims;
    const struct claim claims[] = {
        {"model", t->model != NULL, strcmp(w->model, s->model) != 0},
        {"layers", d->layers > 0, want->layers != have->layers},
        {"width", d->width > 0, want->width != have->width},
        {"heads", d->heads > 0, want->heads != have->heads},
        {"kv-heads", d->kv_heads > 0, want->kv_heads != have->kv_heads},
        {"head-dim", d->head_dim > 0, want->head_dim != have->head_dim},
        {"hidden", d->hidden > 0, want->hidden != have->hidden},
        {"vocab", d->vocab > 0, want->vocab != have->vocab},
        {"context", d->context > 0, want->context != have->context},
        {"untied", t->untied, have->tied},
        {"qk-norm", d->qk_norm, !have->qk_norm},
        {"data", t->data != NULL, strcmp(w->data, s->data) != 0},
        {"valid", t->valid != NULL, strcmp(w->valid, s->valid) != 0},
    };
    return check_claims(claims, sizeof claims / sizeof claims[0], err);
}

static enum pelago_status check_tokenizer(const char *name, const char *folder, const struct pl_settings *s,
                                          struct pl_error *err)
{
    struct claim claim = {"tokenizer", name != NULL, false};
    struct pl_error why;
    if (name != NULL &&
        pl_cluster_tokenizer_differs(name, folder, s->tokenizer_digest, &claim.differs, &why) != PELAGO_OK)
        return pl_fail(err, PELAGO_INVALID, "%s", why.text);
    return check_claims(&claim, 1, err);
}

static enum pelago_status check_training(const struct pl_train_args *t, const struct pl_settings *w,
                                         const struct pl_settings *s, struct pl_error *err)
{
    const struct pl_trainer_options *want = &w->trainer, *have = &s->trainer;
    const struct pl_schedule *ws = &want->schedule, *hs = &have->schedule;
    uint64_t step = pl_trainer_options_tokens(have); /* the budget is a whole number of them */
    uint64_t warmup = pl_mul_div(t->warmup.count, t->warmup.is_tokens ? 1 : step, 1);
    const struct claim claims[] = {
        {"tokens", t->tokens > 0, pl_add_sat(t->tokens, step - 1) / step != s->total_tokens / step},
        {"steps", t->steps > 0, t->steps != s->total_tokens / step},
        {"batch", t->batch > 0, want->batch != have->batch},
        {"seq", t->seq > 0, want->seq != have->seq},
        {"accumulate", t->accumulate > 0, want->accumulate != have->accumulate},
        {"seed", t->seed != PL_NONE64, want->seed != have->seed},
        {"eval-tokens", t->eval_tokens > 0, w->eval_tokens != s->eval_tokens},
        {"recompute", t->recompute, !have->recompute},
        {"optimizer", t->optimizer != NULL, want->matrices != have->matrices},
        {"schedule", t->schedule != NULL, ws->kind != hs->kind},
        {"warmup", t->warmup.given, warmup != hs->warmup_tokens},
        {"lr", !isnan(t->lr), differs(ws->peak, hs->peak)},
        {"min-lr", !isnan(t->min_lr), differs((float)t->min_lr / hs->peak, hs->floor)},
        {"lr-floor", !isnan(t->lr_floor), differs(ws->floor, hs->floor)},
        {"decay", !isnan(t->decay), differs(ws->decay, hs->decay)},
        {"weight-decay", !isnan(t->weight_decay), differs(want->rule.weight_decay, have->rule.weight_decay)},
        {"beta1", !isnan(t->beta1), differs(want->rule.beta1, have->rule.beta1)},
        {"beta2", !isnan(t->beta2), differs(want->rule.beta2, have->rule.beta2)},
        {"clip", !isnan(t->clip), differs(want->rule.clip, have->rule.clip)},
        {"z-loss", !isnan(t->z_loss), differs(want->z_loss, have->z_loss)},
    };
    return check_claims(claims, sizeof claims / sizeof claims[0], err);
}

static enum pelago_status check_protocol(const struct pl_cluster_args *a, const struct pl_settings *w,
                                         const struct pl_settings *s, struct pl_error *err)
{
    const struct claim claims[] = {
        {"algorithm", a->algorithm != NULL, w->algorithm != s->algorithm},
        {"learners", a->learners > 0, w->learners != s->learners},
        {"shards", a->shards > 0, w->shards != s->shards},
        {"fragments", a->fragments > 0, w->fragments != s->fragments},
        {"period", a->period > 0, w->period != s->period},
        {"overlap", a->overlap > 0, w->overlap != s->overlap},
        {"quorum", a->quorum > 0, w->quorum != s->quorum},
        {"staleness", a->staleness > 0, w->staleness_max != s->staleness_max},
        {"up", a->up != NULL, w->up != s->up},
        {"down", a->down != NULL, w->down != s->down},
        {"feedback-decay", !isnan(a->feedback_decay), differs(w->feedback_decay, s->feedback_decay)},
        {"feedback-local", !isnan(a->feedback_local), differs(w->feedback_local, s->feedback_local)},
        {"selective", !isnan(a->selective), differs(w->selective, s->selective)},
        {"apply", a->apply != NULL, w->apply != s->apply},
        {"outer-lr", !isnan(a->outer_lr), differs(w->outer.lr, s->outer.lr)},
        {"outer-momentum", !isnan(a->outer_momentum), differs(w->outer.mu, s->outer.mu)},
        {"outer", a->outer != NULL, w->outer.kind != s->outer.kind},
        {"outer-delay", a->outer_delay > 0, w->outer.delay != s->outer.delay},
        {"outer-warmup", a->outer_warmup != PL_NONE32, w->outer.warmup != s->outer.warmup},
        {"outer-decay", !isnan(a->outer_decay), differs(w->outer.decay, s->outer.decay)},
        {"outer-floor", !isnan(a->outer_floor), differs(w->outer.floor, s->outer.floor)},
        {"outer-first", !isnan(a->outer_first), differs(w->outer.first, s->outer.first)},
        {"codec-lr", a->codec_lr, !s->codec_lr},
        {"merge", a->merge != NULL, w->merge.kind != s->merge.kind},
        {"merge-trim", !isnan(a->merge_trim), differs(w->merge.trim, s->merge.trim)},
        {"merge-stale", !isnan(a->merge_stale), differs(w->merge.stale, s->merge.stale)},
        {"merge-guard", a->guard != NULL, w->merge.guard != s->merge.guard},
    };
    return check_claims(claims, sizeof claims / sizeof claims[0], err);
}

enum pelago_status pl_cluster_refuse_changes(const struct pl_cluster_args *a, const char *folder,
                                             const struct pl_settings *s, struct pl_error *err)
{
    struct pl_train_plan plan;
    struct pl_settings wanted;
    struct pl_error why;
    struct pl_cluster_args asked = *a;
    asked.train.warmup.given = false; /* in steps of this run, whatever the options would make of a new one */
    /* Options that would not even make a run say something else than this one. */
    if (pl_cluster_settings(&asked, &plan, &wanted, &why) != PELAGO_OK)
        return pl_fail(err, PELAGO_INVALID, "%s", why.text);
    PL_TRY(check_model(&a->train, &wanted, s, err));
    PL_TRY(check_training(&a->train, &wanted, s, err));
    PL_TRY(check_protocol(a, &wanted, s, err));
    return check_tokenizer(a->train.tokenizer, folder, s, err);
}
