/* cmd/cluster_args.c - see cluster_args.h: the options, and whether they are well-formed. */
#include "cmd/cluster_args.h"

#include "base/check.h"
#include "cmd/cmd.h"
#include "cmd/text.h"

#include <math.h>
#include <string.h>

void pl_cluster_args_init(struct pl_cluster_args *a)
{
    *a = (struct pl_cluster_args){.outer_lr = (double)NAN,
                                  .outer_momentum = (double)NAN,
                                  .feedback_decay = (double)NAN,
                                  .feedback_local = (double)NAN,
                                  .selective = (double)NAN,
                                  .outer_warmup = PL_NONE32,
                                  .outer_decay = (double)NAN,
                                  .outer_floor = (double)NAN,
                                  .outer_first = (double)NAN,
                                  .merge_trim = (double)NAN,
                                  .merge_stale = (double)NAN};
    pl_train_args_init(&a->train);
}

uint32_t pl_cluster_options(struct pl_cluster_args *a, struct pl_option out[static PL_CLUSTER_OPTIONS_MAX])
{
    const struct pl_option table[] = {
        {"algorithm", "NAME", "decoupled (default), diloco or data_parallel", PL_OPTION_TEXT, &a->algorithm,
         0, 0},
        {"learners", "N", "how many are expected (run: how many to start)", PL_OPTION_U32, &a->learners, 1,
         PL_LEARNERS_MAX},
        {"shards", "N", "syncer processes that share the model (default: 1)", PL_OPTION_U32, &a->shards, 1,
         PL_SHARDS_MAX},
        {"fragments", "N", "parts of the model that are merged one by one (default: 24, at most one a step)",
         PL_OPTION_U32, &a->fragments, 1, PL_FRAGMENTS_MAX},
        {"period", "N", "steps between two merges of a fragment (default: 24; 6 with top-k)", PL_OPTION_U32,
         &a->period, 1, PL_PERIOD_STEPS_MAX},
        {"overlap", "N", "steps that hide one exchange (default: 2)", PL_OPTION_U32, &a->overlap, 1,
         PL_PERIOD_STEPS_MAX},
        {"quorum", "N", "learners a merge needs (default: 1)", PL_OPTION_U32, &a->quorum, 1, PL_LEARNERS_MAX},
        {"staleness", "N",
         "versions a returning learner's work may be behind to be merged still (default: 2)", PL_OPTION_U32,
         &a->staleness, 1, PL_STALENESS_MAX},
        {"up", "CODEC", PL_CODEC_NAMES " (default: int4): what learners send", PL_OPTION_TEXT, &a->up, 0, 0},
        {"down", "CODEC", "the same for what they get (default: int4)", PL_OPTION_TEXT, &a->down, 0, 0},
        {"feedback-decay", "X", "what up loses counts so much when it is sent later (default: 1)",
         PL_OPTION_FLOAT, &a->feedback_decay, 0, 0},
        {"feedback-local", "X",
         "so much of what up leaves behind stays in a learner's own values, the rest beside them (default: "
         "0; 1 "
         "for top-k in runs of fewer than 400 merges)",
         PL_OPTION_FLOAT, &a->feedback_local, 0, 0},
        {"selective", "X", "blocks that changed less than X times the usual wait, both ways (default: 0)",
         PL_OPTION_FLOAT, &a->selective, 0, 0},
        {"apply", "NAME", "rebase (default), overwrite or mix: what becomes of local work", PL_OPTION_TEXT,
         &a->apply, 0, 0},
        {"outer-lr", "RATE", "of the outer optimizer (default: 0.7; 2 with top-k)", PL_OPTION_FLOAT,
         &a->outer_lr, 0, 0},
        {"outer-momentum", "X", "of the outer optimizer (default: 0.8; 0.5 with muon or top-k)",
         PL_OPTION_FLOAT, &a->outer_momentum, 0, 0},
        {"outer", "NAME", "nesterov (default), plain or delayed: the outer optimizer", PL_OPTION_TEXT,
         &a->outer, 0, 0},
        {"outer-delay", "N", "delayed: momentum at every N-th merge of a fragment (default: 1)",
         PL_OPTION_U32, &a->outer_delay, 1, 1024},
        {"outer-warmup", "N",
         "merges of a fragment until its momentum is reached (default: 20; 80 with top-k every 6 steps)",
         PL_OPTION_U32, &a->outer_warmup, 0, PL_NONE32 - 1},
        {"outer-first", "RATE",
         "of a fragment's first merges where the run has few of them (default: 1; 0: as ever)",
         PL_OPTION_FLOAT, &a->outer_first, 0, 0},
        {"outer-decay", "X", "share of the run, at its end, in which the outer rate falls (default: 0.1)",
         PL_OPTION_FLOAT, &a->outer_decay, 0, 0},
        {"outer-floor", "X",
         "the last outer rate as a share of the first, where merges are many (default: 0.1)", PL_OPTION_FLOAT,
         &a->outer_floor, 0, 0},
        {"codec-lr", NULL, "the outer rate makes up for what --up takes from the length", PL_OPTION_FLAG,
         &a->codec_lr, 0, 0},
        {"merge", "RULE", "rda (default; mean with top-k), rda_n, mean, trimmed, clipped or norm_median",
         PL_OPTION_TEXT, &a->merge, 0, 0},
        {"merge-trim", "X", "trimmed: share of learners left out at either end (default: 0.25)",
         PL_OPTION_FLOAT, &a->merge_trim, 0, 0},
        {"merge-stale", "X",
         "work of more than X times the usual steps weighs as of X times (default: 0, off)", PL_OPTION_FLOAT,
         &a->merge_stale, 0, 0},
        {"merge-guard", "NAME", "on (default) or off: bounds what one learner can do to a merge",
         PL_OPTION_TEXT, &a->guard, 0, 0},
    };
    uint32_t count = pl_train_options(&a->train, out);
    pl_assert(count + sizeof table / sizeof table[0] <= PL_CLUSTER_OPTIONS_MAX);
    memcpy(out + count, table, sizeof table);
    return count + (uint32_t)(sizeof table / sizeof table[0]);
}

static bool is_apply(const char *word)
{
    return strcmp(word, "rebase") == 0 || strcmp(word, "overwrite") == 0 || strcmp(word, "mix") == 0;
}

bool pl_cluster_args_check(struct pl_cluster_args *a, const char *command, int *exit_code)
{
    enum pl_algorithm algorithm;
    enum pl_codec codec;
    enum pl_rule_kind rule;
    enum pl_outer_kind outer;
    const struct {
        const char *name, *word;
        bool good;
        const char *expected;
    } words[] = {
        {"algorithm", a->algorithm, a->algorithm == NULL || pl_algorithm_of_name(a->algorithm, &algorithm),
         "decoupled, diloco or data_parallel"},
        {"up", a->up, a->up == NULL || pl_codec_of_name(a->up, &codec), PL_CODEC_NAMES},
        {"down", a->down, a->down == NULL || pl_codec_of_name(a->down, &codec), PL_CODEC_NAMES},
        {"merge", a->merge, a->merge == NULL || pl_rule_of_name(a->merge, &rule),
         "rda, rda_n, mean, trimmed, clipped or norm_median"},
        {"outer", a->outer, a->outer == NULL || pl_outer_of_name(a->outer, &outer),
         "nesterov, plain or delayed"},
        {"merge-guard", a->guard,
         a->guard == NULL || strcmp(a->guard, "on") == 0 || strcmp(a->guard, "off") == 0, "on or off"},
        {"apply", a->apply, a->apply == NULL || is_apply(a->apply), "rebase, overwrite or mix"},
    };
    for (unsigned i = 0; i < sizeof words / sizeof words[0]; i++)
        if (!words[i].good) {
            *exit_code = pl_usage_error(command, "--%s is '%s', expected %s", words[i].name,
                                        pl_text_clip(words[i].word).at, words[i].expected);
            return false;
        }
    bool lr = isnan(a->outer_lr) || (a->outer_lr > 0 && a->outer_lr <= 10);
    bool mu = isnan(a->outer_momentum) || (a->outer_momentum >= 0 && (float)a->outer_momentum < 1);
    if (!lr)
        *exit_code =
            pl_usage_error(command, "--outer-lr is %g, expected a rate above 0 and at most 10", a->outer_lr);
    else if (!mu)
        *exit_code = pl_usage_error(command, "--outer-momentum is %g, expected at least 0 and below 1",
                                    a->outer_momentum);
    return lr && mu && pl_train_args_check(&a->train, command, exit_code);
}
