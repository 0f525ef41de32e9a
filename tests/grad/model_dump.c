/* tests/grad/model_dump.c - a model's loss and gradients, or the losses of a short training, as raw files for
 * model_vs_torch.py.
 *
 *   model_dump backends                        the back ends this machine can run, one a line
 *   model_dump grad FOLDER BACKEND KEY=VALUE... one step's gradient: reads tokens and targets, writes table, params,
 *                                              grads and losses (one sum a pass)
 *   model_dump train FOLDER BACKEND KEY=VALUE... whole steps: reads the same, writes table, params (of the start) and
 *                                              losses (one mean a step)
 *
 * Keys: layers width heads kv_heads head_dim hidden vocab tied qk_norm batch seq passes recompute threads seed steps
 * z_loss stir lr floor warmup decay clip. tokens and targets are int32 (steps, passes, batch, seq), losses doubles, the
 * others floats as the table of tensors says; machine byte order. stir multiplies the matrices and moves the norms away
 * from 1, so that attention and norms matter.
 */
#include "base/normal.h"
#include "host/devices.h"
#include "train/trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct job {
    const char *folder;
    struct pl_trainer_options o;
    uint32_t tied, qk_norm, recompute, steps, seed;
    float stir;
    int32_t *tokens, *targets;
};

static struct pl_error err = {.text = "expects backends, or grad or train with FOLDER BACKEND KEY=VALUE..."};

/* ---- arguments ---- */

static bool set(struct job *j, const char *key, const char *value)
{
    struct pl_model_config *c = &j->o.config;
    uint32_t warmup = 0;
    const struct {
        const char *key;
        uint32_t *whole;
        float *real;
    } keys[] = {
        {"layers", &c->layers, NULL},
        {"width", &c->width, NULL},
        {"heads", &c->heads, NULL},
        {"kv_heads", &c->kv_heads, NULL},
        {"head_dim", &c->head_dim, NULL},
        {"hidden", &c->hidden, NULL},
        {"vocab", &c->vocab, NULL},
        {"tied", &j->tied, NULL},
        {"qk_norm", &j->qk_norm, NULL},
        {"batch", &j->o.batch, NULL},
        {"seq", &j->o.seq, NULL},
        {"passes", &j->o.accumulate, NULL},
        {"recompute", &j->recompute, NULL},
        {"threads", &j->o.threads, NULL},
        {"seed", &j->seed, NULL},
        {"steps", &j->steps, NULL},
        {"warmup", &warmup, NULL},
        {"z_loss", NULL, &j->o.z_loss},
        {"stir", NULL, &j->stir},
        {"lr", NULL, &j->o.schedule.peak},
        {"floor", NULL, &j->o.schedule.floor},
        {"decay", NULL, &j->o.rule.weight_decay},
        {"clip", NULL, &j->o.rule.clip},
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        char *end = NULL;
        if (strcmp(key, keys[i].key) != 0)
            continue;
        if (keys[i].whole != NULL)
            *keys[i].whole = (uint32_t)strtoul(value, &end, 10);
        else
            *keys[i].real = strtof(value, &end);
        if (keys[i].whole == &warmup)
            j->o.schedule.warmup_tokens = warmup;
        return end != value && *end == '\0';
    }
    return false;
}

static enum pelago_status parse(struct job *j, int argc, char **argv)
{
    *j = (struct job){.folder = argv[0], .steps = 1, .seed = 1, .tokens = NULL};
    j->o = (struct pl_trainer_options){
        .backend = argv[1], .threads = 2, .accumulate = 1, .matrices = PL_INNER_ADAMW};
    j->o.rule = (struct pl_inner_rule){.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .momentum = 0.95f};
    j->o.schedule = (struct pl_schedule){.kind = PL_SCHEDULE_COSINE, .peak = 1e-3f, .decay = 0.2f};
    for (int i = 2; i < argc; i++) {
        char *equals = strchr(argv[i], '=');
        if (equals != NULL)
            *equals = '\0';
        if (equals == NULL || !set(j, argv[i], equals + 1))
            return pl_fail(&err, PELAGO_INVALID, "%s is no KEY=VALUE that is known", argv[i]);
    }
    j->o.config.tied = j->tied != 0;
    j->o.config.qk_norm = j->qk_norm != 0;
    j->o.recompute = j->recompute != 0;
    j->o.seed = j->seed;
    j->o.schedule.total_tokens = pl_trainer_options_tokens(&j->o) * j->steps;
    pl_model_config_complete(&j->o.config);
    return pl_trainer_options_check(&j->o, &err);
}

/* ---- files ---- */

static FILE *open_file(const struct job *j, const char *name, const char *mode)
{
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%s", j->folder, name);
    return fopen(path, mode);
}

static int32_t *read_ids(const struct job *j, const char *name)
{
    size_t count = (size_t)pl_trainer_options_tokens(&j->o) * j->steps;
    int32_t *ids = calloc(count, sizeof *ids);
    FILE *f = open_file(j, name, "rb");
    bool good = ids != NULL && f != NULL && fread(ids, sizeof *ids, count, f) == count;
    if (f != NULL)
        fclose(f);
    for (size_t i = 0; good && i < count; i++)
        good = ids[i] < (int32_t)j->o.config.vocab;
    if (good)
        return ids;
    free(ids);
    return NULL;
}

static enum pelago_status write_file(const struct job *j, const char *name, const void *data, size_t bytes)
{
    FILE *f = open_file(j, name, "wb");
    bool good = f != NULL && fwrite(data, 1, bytes, f) == bytes;
    good = f != NULL && fclose(f) == 0 && good;
    return good ? PELAGO_OK : pl_fail(&err, PELAGO_IO, "%s/%s cannot be written", j->folder, name);
}

/* One line a tensor: name rows cols offset decayed. */
static enum pelago_status write_table(const struct job *j, const struct pl_tensors *tensors)
{
    FILE *f = open_file(j, "table", "w");
    for (uint32_t i = 0; f != NULL && i < tensors->count; i++) {
        const struct pl_tensor *t = &tensors->at[i];
        fprintf(f, "%s %u %u %llu %d\n", t->name, t->rows, t->cols, (unsigned long long)t->offset,
                t->group != PL_GROUP_NORM);
    }
    return f != NULL && fclose(f) == 0 ? PELAGO_OK
                                       : pl_fail(&err, PELAGO_IO, "%s/table cannot be written", j->folder);
}

/* ---- work ---- */

static void stir(const struct job *j, struct pl_model *m)
{
    struct pl_normal normal;
    struct pl_prng random;
    pl_normal_init(&normal);
    pl_prng_seed(&random, j->seed, 1u << 20);
    for (uint32_t i = 0; i < m->tensors.count && j->stir > 0; i++) {
        const struct pl_tensor *t = &m->tensors.at[i];
        float *p = m->params + t->offset;
        for (uint64_t k = 0; k < (uint64_t)t->rows * t->cols; k++)
            p[k] = t->group == PL_GROUP_NORM ? (float)(1 + 0.25 * pl_normal_next(&normal, &random))
                                             : p[k] * j->stir;
    }
    pl_model_refresh(m);
}

static enum pelago_status grad(const struct job *j, struct pl_trainer *t, double *losses)
{
    struct pl_model *m = t->model;
    size_t count = (size_t)j->o.batch * j->o.seq;
    stir(j, m);
    for (uint32_t i = 0; i < j->o.accumulate; i++) {
        struct pl_batch b = {j->o.batch, j->o.seq, j->tokens + i * count, j->targets + i * count};
        struct pl_pass pass = {.scale = (float)(1.0 / (double)pl_trainer_options_tokens(&j->o)),
                               .z_loss = j->o.z_loss,
                               .accumulate = i > 0};
        losses[i] = pl_model_train(m, &b, &pass);
        double forward_only = pl_model_loss(m, &b, NULL); /* the other way to the same number */
        if (!(forward_only > 0.99 * losses[i] && forward_only < 1.01 * losses[i]))
            return pl_fail(&err, PELAGO_INVALID, "pl_model_loss and pl_model_train differ by over 1%%");
    }
    PL_TRY(write_file(j, "params", m->params, m->tensors.floats * sizeof(float)));
    PL_TRY(write_file(j, "grads", m->grads, m->tensors.floats * sizeof(float)));
    return write_file(j, "losses", losses, j->o.accumulate * sizeof *losses);
}

static enum pelago_status fetch(void *self, uint64_t first, uint32_t count, uint32_t seq, int32_t *tokens,
                                int32_t *targets, struct pl_error *e)
{
    const struct job *j = self;
    (void)e;
    memcpy(tokens, j->tokens + first * seq, (size_t)count * seq * sizeof *tokens);
    memcpy(targets, j->targets + first * seq, (size_t)count * seq * sizeof *targets);
    return PELAGO_OK;
}

static enum pelago_status train(struct job *j, struct pl_trainer *t, double *losses)
{
    const struct pl_sequences source = {fetch, j};
    PL_TRY(write_file(j, "params", t->model->params, t->model->tensors.floats * sizeof(float)));
    for (uint32_t i = 0; i < j->steps; i++) {
        struct pl_step_report report;
        PL_TRY(pl_trainer_step(t, &source, &report, &err));
        losses[i] = report.loss;
    }
    return write_file(j, "losses", losses, j->steps * sizeof *losses);
}

static enum pelago_status run(const char *mode, int argc, char **argv)
{
    struct job j;
    struct pl_trainer *t = NULL;
    struct pl_alloc alloc = pl_alloc_system();
    PL_TRY(parse(&j, argc, argv));
    j.tokens = read_ids(&j, "tokens");
    j.targets = read_ids(&j, "targets");
    double *losses = calloc((size_t)j.steps + j.o.accumulate, sizeof *losses);
    enum pelago_status status = PELAGO_OK;
    if (losses == NULL || j.tokens == NULL || j.targets == NULL)
        status =
            pl_fail(&err, PELAGO_INVALID, "tokens or targets in %s are too few or out of range", j.folder);
    else
        status = pl_trainer_new(&t, &alloc, &j.o, &err);
    if (status == PELAGO_OK)
        status = write_table(&j, &t->model->tensors);
    if (status == PELAGO_OK)
        status = strcmp(mode, "grad") == 0 ? grad(&j, t, losses) : train(&j, t, losses);
    pl_trainer_free(t);
    free(losses);
    free(j.tokens);
    free(j.targets);
    return status;
}

int main(int argc, char **argv)
{
    bool usable;
    pl_devices_offer();
    if (argc == 2 && strcmp(argv[1], "backends") == 0) {
        for (uint32_t i = 0; pl_engine_backend_name(i, &usable) != NULL; i++)
            if (usable)
                puts(pl_engine_backend_name(i, &usable));
        return 0;
    }
    if (argc > 4 && (strcmp(argv[1], "grad") == 0 || strcmp(argv[1], "train") == 0) &&
        run(argv[1], argc - 2, argv + 2) == PELAGO_OK)
        return 0;
    fprintf(stderr, "model_dump: %s\n", err.text);
    return 1;
}
