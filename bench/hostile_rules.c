/* bench/hostile_rules.c - build/bench_hostile_rules: what liars cost, without clocks: the same bits every time.
 *
 * bench/hostile.py lets real processes run, whose losses differ by more than a per cent from run to run on a busy machine.
 * Here six honest learners (real trainers, builtin:tales) and two liars go in step: everybody does a step, then the
 * fragment that is due is merged, by the functions the syncer's host uses, from encoded contributions with error feedback. Honest
 * learners see the same text in every row. One line of JSON a row: the loss, and per cent above the six alone.
 *
 *   flip, climb, claims, random   as bench/hostile_learner.c; claims are of 16 times the steps and tokens (their weight; what they
 *                                 do to the clock is not here)
 *   guard                         on or off; alone with the guard beside alone without shows what it costs honest runs
 *   uneven                        honest learners whose batches count as 8, 8, 4, 2, 2 and 1, alone
 *
 * hostile_rules [STEPS [RULE [SEED]]]
 */
#include "host/syncer_host_int.h"

#include "codec/feedback.h"
#include "island_rig.h"
#include "optim/merge.h"
#include "train/batches.h"
#include "train/dataset.h"
#include "train/evaluate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HONEST = 6, LIARS = 2, ALL = HONEST + LIARS, STEPS = 600, VOCAB = 512 };

enum attack { ALONE, FLIP, CLIMB, CLAIMS, RANDOM, UNEVEN };
static const char *const names[] = {"alone", "flip", "climb", "claims", "random", "uneven"};

struct learner {
    struct pl_trainer *trainer;
    float *residual; /* [floats], in fragment order */
    uint8_t *encoded;
};

struct world {
    struct island_run run;
    struct pl_dataset *data;
    struct pl_batches batches;
    struct pl_sequences source;
    struct learner learners[ALL];
    struct pl_values **values; /* [fragments] */
    struct pl_rule_past *past;
    float **moved;
    float *delta, *change;
    struct pl_trust trust[ALL];
    enum attack attack;
    double norm;
    uint64_t steps, left_out, honest_out, random;
};

static void must(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "bench_hostile_rules: %s\n", what);
    exit(1);
}

static struct pl_values *new_values(uint64_t n)
{
    struct pl_alloc a = pl_alloc_system();
    struct pl_values *v = pl_values_new(&a, n);
    must(v != NULL, "there is no memory");
    memset(v->theta, 0, 3 * n * sizeof(float));
    return v;
}

static uint32_t members(const struct world *w)
{
    return w->attack == ALONE || w->attack == UNEVEN ? HONEST : ALL;
}

static void begin(struct world *w, enum attack attack, bool guard, enum pl_rule_kind rule, uint64_t steps,
                  uint64_t seed)
{
    struct pl_error err = {.text = ""};
    *w = (struct world){.attack = attack, .norm = attack == CLIMB ? 2 : 1, .steps = steps, .random = 1};
    island_run_defaults(&w->run, ALL);
    struct pl_settings *s = &w->run.settings;
    s->trainer.config.vocab = VOCAB;
    s->fragments = s->period = 8;
    s->trainer.seed = seed;
    s->trainer.threads = 1;
    s->trainer.schedule.peak = 3e-3f;
    s->trainer.schedule.warmup_tokens = 20 * HONEST * s->trainer.batch * s->trainer.seq;
    s->total_tokens = s->trainer.schedule.total_tokens = steps * HONEST * s->trainer.batch * s->trainer.seq;
    s->merge = (struct pl_merge_rule){.kind = rule, .trim = 0.25f, .guard = guard};
    island_run_build(&w->run);
    const struct pl_layout *l = &w->run.layout;
    struct pl_dataset_options o = {
        .data = s->data, .vocab = VOCAB, .valid_tokens = 8192, .seed = 7, .threads = 1};
    must(pl_dataset_open(&w->data, &w->run.alloc, &o, &err) == PELAGO_OK, err.text);
    must(pl_batches_init(&w->batches, &w->run.alloc, &w->data->train, s->trainer.seq, 7, &err) == PELAGO_OK,
         err.text);
    w->source = pl_batches_sequences(&w->batches);
    for (uint32_t m = 0; m < ALL; m++) {
        must(pl_trainer_new(&w->learners[m].trainer, &w->run.alloc, &s->trainer, &err) == PELAGO_OK,
             err.text);
        w->learners[m].residual = calloc(l->tensors.floats, sizeof(float));
        w->learners[m].encoded = malloc(4 * l->largest + 4096);
    }
    w->values = calloc(l->fragment_count, sizeof *w->values);
    w->past = calloc(l->fragment_count, sizeof *w->past);
    w->moved = calloc(l->fragment_count, sizeof *w->moved);
    w->delta = malloc(l->largest * sizeof(float));
    w->change = malloc(l->largest * sizeof(float));
    for (uint32_t f = 0; f < l->fragment_count; f++) {
        w->values[f] = new_values(l->fragments[f].values);
        w->moved[f] = calloc(l->fragments[f].values, sizeof(float));
        pl_layout_gather(l, f, w->learners[0].trainer->model->params, w->values[f]->theta);
    }
}

/* False: the model has come apart. */
static bool step_honest(struct world *w, uint64_t step)
{
    const struct pl_trainer_options *o = &w->run.settings.trainer;
    struct pl_error err = {.text = ""};
    struct pl_step_report report;
    for (uint32_t m = 0; m < HONEST; m++) {
        struct pl_trainer *t = w->learners[m].trainer;
        t->progress.sequence = (step * HONEST + m) * o->batch;
        t->progress.clock = step * HONEST * o->batch * o->seq;
        if (pl_trainer_step(t, &w->source, &report, &err) != PELAGO_OK)
            return false;
    }
    return true;
}

static double length(const float *x, uint64_t n)
{
    return pl_norm(x, n);
}

/* What a liar sends; moved is where the model went last. */
static void lie(struct world *w, uint32_t f, float *change, uint64_t n)
{
    const double all = length(w->moved[f], n);
    for (uint64_t i = 0; i < n; i++) {
        w->random = w->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        double noise = (double)(w->random >> 33) / 1073741824.0 - 1; /* mean square 1/3 */
        change[i] = w->attack == RANDOM ? (float)(noise * all * sqrt(3.0 / (double)n))
                                        : (float)w->norm * w->moved[f][i];
    }
}

static void contribute(struct world *w, uint32_t m, uint32_t f, uint64_t first)
{
    const struct pl_layout *l = &w->run.layout;
    const uint64_t n = l->fragments[f].values;
    struct learner *x = &w->learners[m];
    if (m < HONEST) {
        pl_layout_gather(l, f, x->trainer->model->params, w->change);
        for (uint64_t i = 0; i < n; i++)
            w->change[i] = w->values[f]->theta[i] - w->change[i];
        pl_feedback_add(w->change, x->residual + first, n, w->run.settings.feedback_decay);
    } else {
        lie(w, f, w->change, n);
    }
    must(pl_layout_encode_feedback(l, f, w->run.settings.up, 0, w->change, x->encoded),
         "a change is not finite");
    memcpy(x->residual + first, w->change, n * sizeof(float));
}

static void merge(struct world *w, uint32_t f, uint64_t version, uint64_t step)
{
    const struct pl_layout *l = &w->run.layout;
    const struct pl_settings *s = &w->run.settings;
    const uint32_t count = members(w);
    static const uint64_t batches[HONEST] = {8, 8, 4, 2, 2, 1};
    const uint8_t *all[ALL], *parts[ALL];
    uint64_t tokens[ALL], steps[ALL];
    bool fresh[ALL];
    uint32_t used = 0;
    struct pl_round_note note;
    must(pl_note_init(&note, &w->run.alloc, count), "there is no memory");
    for (uint32_t m = 0; m < count; m++) {
        uint64_t times = w->attack == CLAIMS && m >= HONEST ? 16 : 1;
        all[m] = w->learners[m].encoded;
        note.opinions[m].out = s->merge.guard && w->trust[m].out;
        w->left_out += note.opinions[m].out ? 1 : 0;
        w->honest_out += note.opinions[m].out && m < HONEST ? 1 : 0;
        if (note.opinions[m].out)
            continue;
        parts[used] = all[m];
        fresh[used] = w->trust[m].samples < PL_TRUST_SAMPLES_MIN;
        steps[used] = times * s->period;
        tokens[used++] = times * s->period * 64 * (w->attack == UNEVEN ? batches[m] : 1);
    }
    struct pl_values *next = new_values(l->fragments[f].values);
    const struct pl_round_work work = {.layout = l,
                                       .settings = s,
                                       .alloc = &w->run.alloc,
                                       .fragment = f,
                                       .count = l->fragments[f].values,
                                       .contributor_count = used,
                                       .parts = parts,
                                       .tokens = tokens,
                                       .steps = steps,
                                       .fresh = fresh,
                                       .version = version,
                                       .clock_tokens = step * HONEST * 64,
                                       .past = &w->past[f],
                                       .base = w->values[f],
                                       .delta = w->delta,
                                       .result = next};
    if (s->merge.guard)
        pl_trust_compare(&work, all, count, &note);
    must(pl_merge_parts(&work, &note.effective), "there is no memory");
    pl_merge_outer(&work);
    pl_rule_remember(&w->past[f], note.effective);
    for (uint32_t m = 0; m < count; m++)
        (void)pl_trust_add(&w->trust[m], note.opinions[m].sample);
    for (uint64_t i = 0; i < next->count; i++)
        w->moved[f][i] = next->theta[i] - w->values[f]->theta[i];
    pl_values_drop(w->values[f], &w->run.alloc);
    w->values[f] = next;
    pl_note_release(&note, &w->run.alloc);
}

/* Everybody takes the new value: with nothing in flight that is what rebasing comes to. */
static void round_of(struct world *w, uint32_t f, uint64_t step)
{
    const struct pl_layout *l = &w->run.layout;
    uint64_t first = 0;
    for (uint32_t i = 0; i < f; i++)
        first += l->fragments[i].values;
    for (uint32_t m = 0; m < members(w); m++)
        contribute(w, m, f, first);
    merge(w, f, step / w->run.settings.period + 1, step);
    if (w->attack == CLIMB)
        w->norm = fmin(w->norm * 1.02, 16);
    for (uint32_t m = 0; m < HONEST; m++) {
        pl_layout_scatter(l, f, w->values[f]->theta, w->learners[m].trainer->model->params);
        pl_model_refresh(w->learners[m].trainer->model);
    }
}

static double finish(struct world *w, bool good)
{
    struct pl_evaluation e = {.tokens = 1, .nats = (double)INFINITY};
    struct pl_error err = {.text = ""};
    struct pl_model *model = w->learners[0].trainer->model;
    const struct pl_layout *l = &w->run.layout;
    for (uint32_t f = 0; f < l->fragment_count; f++)
        pl_layout_scatter(l, f, w->values[f]->theta, model->params);
    pl_model_refresh(model);
    if (good && pl_evaluate(model, &w->data->valid, &e, &err) != PELAGO_OK)
        e = (struct pl_evaluation){.tokens = 1, .nats = (double)INFINITY};
    for (uint32_t f = 0; f < l->fragment_count; f++) {
        pl_values_drop(w->values[f], &w->run.alloc);
        free(w->moved[f]);
    }
    for (uint32_t m = 0; m < ALL; m++) {
        pl_trainer_free(w->learners[m].trainer);
        free(w->learners[m].residual);
        free(w->learners[m].encoded);
    }
    free(w->values);
    free(w->past);
    free(w->moved);
    free(w->delta);
    free(w->change);
    pl_batches_release(&w->batches);
    pl_dataset_close(w->data);
    island_run_release(&w->run);
    return e.nats / (double)e.tokens;
}

static double run(struct world *w, enum attack attack, bool guard, enum pl_rule_kind rule, uint64_t steps,
                  uint64_t seed)
{
    bool good = true;
    begin(w, attack, guard, rule, steps, seed);
    for (uint64_t step = 0; step < steps && good; step++) {
        good = step_honest(w, step);
        if (good)
            round_of(w, (uint32_t)(step % w->run.settings.period), step);
    }
    return finish(w, good);
}

struct row {
    enum attack attack;
    bool guard;
};

int main(int argc, char **argv)
{
    static struct world w;
    static const struct row rows[] = {{ALONE, false}, {UNEVEN, false}, {ALONE, true},   {UNEVEN, true},
                                      {FLIP, true},   {CLIMB, true},   {CLAIMS, true},  {RANDOM, true},
                                      {FLIP, false},  {CLIMB, false},  {CLAIMS, false}, {RANDOM, false}};
    uint64_t steps = argc > 1 ? strtoull(argv[1], NULL, 10) : STEPS;
    uint64_t seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 7;
    enum pl_rule_kind rule = PL_RULE_RDA;
    double first[2] = {0, 0}; /* alone, uneven */
    must(argc <= 2 || pl_rule_of_name(argv[2], &rule), "there is no such rule");
    must(steps >= 16, "too few steps");
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double loss = run(&w, rows[i].attack, rows[i].guard, rule, steps, seed);
        if (i < 2)
            first[i] = loss;
        printf("{\"row\": \"hostile-rules\", \"rule\": \"%s\", \"attack\": \"%s\", \"guard\": %s, ",
               pl_rule_name(rule), names[rows[i].attack], rows[i].guard ? "true" : "false");
        if (isfinite(loss))
            printf("\"loss\": %.5f, \"above_percent\": %.3f, ", loss,
                   100 * (loss / first[rows[i].attack == UNEVEN] - 1));
        else
            printf("\"loss\": null, ");
        printf("\"left_out\": %llu, \"honest_left_out\": %llu, \"steps\": %llu, \"seed\": %llu}\n",
               (unsigned long long)w.left_out, (unsigned long long)w.honest_out, (unsigned long long)steps,
               (unsigned long long)seed);
        (void)fflush(stdout);
    }
    return 0;
}
