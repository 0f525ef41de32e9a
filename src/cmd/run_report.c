/* cmd/run_report.c - the end of `pelago run`: the global model put together, judged, and let write a little. */
#include "cmd/run_report.h"

#include "base/num.h"
#include "cmd/cluster_home.h"
#include "cmd/cluster_save.h"
#include "cmd/cmd.h"
#include "cmd/text.h"
#include "cmd/train_sample.h"
#include "cmd/train_view.h"
#include "cmd/weights.h"
#include "data/unicode.h"
#include "host/home.h"
#include "train/checkpoint.h"
#include "train/dataset.h"
#include "train/evaluate.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { SAMPLE_TOKENS = 120, SAMPLE_BYTES_MAX = 1 << 16 };

/* ---- the model ---- */

static enum pelago_status load_from(struct pl_run *r, const char *folder, struct pl_weights *w)
{
    struct pl_posix_dir *dir = NULL;
    PL_TRY(pl_posix_dir_open(&dir, &r->alloc, folder, PL_POSIX_DIR_EXISTING, &r->err));
    enum pelago_status st = pl_weights_load_checkpoint(w, pl_posix_dir_table(dir), PL_NONE64, &r->err);
    pl_posix_dir_close(dir);
    return st;
}

static bool has_checkpoint(struct pl_run *r, const char *folder, uint64_t *step)
{
    struct pl_posix_dir *dir = NULL;
    bool has = pl_posix_dir_open(&dir, &r->alloc, folder, PL_POSIX_DIR_EXISTING, NULL) == PELAGO_OK &&
               pl_checkpoint_newest(pl_posix_dir_table(dir), PL_NONE64, step, NULL) == PELAGO_OK;
    pl_posix_dir_close(dir);
    return has;
}

/* Home has it; where the algorithm is synchronous, the learner that came furthest. */
static const char *find_model(struct pl_run *r)
{
    const char *best = NULL;
    uint64_t step, best_step = 0;
    if (has_checkpoint(r, r->home, &step))
        return r->home;
    for (uint32_t i = 0; i < r->settings.learners; i++)
        if (has_checkpoint(r, r->learners[i].folder, &step) && (best == NULL || step > best_step)) {
            best = r->learners[i].folder;
            best_step = step;
        }
    return best;
}

/* Puts the fragments that another shard owns into the block. */
static enum pelago_status take_shard(struct pl_run *r, const struct pl_layout *layout, uint32_t shard,
                                     float *block)
{
    struct pl_weights w;
    float *values = pl_alloc_zero(&r->alloc, layout->largest, sizeof *values);
    if (values == NULL)
        return pl_fail(&r->err, PELAGO_NOMEM, "there is not enough memory to put the model together");
    enum pelago_status st = load_from(r, r->syncers[shard].folder, &w);
    for (uint32_t f = 0; st == PELAGO_OK && f < layout->fragment_count; f++)
        if (layout->fragments[f].shard == shard) {
            pl_layout_gather(layout, f, w.params, values);
            pl_layout_scatter(layout, f, values, block);
        }
    pl_weights_release(&w);
    pl_alloc_free(&r->alloc, values, layout->largest * sizeof *values);
    return st;
}

static enum pelago_status take_shards(struct pl_run *r, float *block)
{
    struct pl_layout layout;
    if (r->settings.shards == 1)
        return PELAGO_OK;
    PL_TRY(pl_layout_init(&layout, &r->alloc, &r->settings, &r->err));
    enum pelago_status st = PELAGO_OK;
    for (uint32_t i = 1; st == PELAGO_OK && i < r->settings.shards; i++)
        st = take_shard(r, &layout, i, block);
    pl_layout_release(&layout);
    return st;
}

/* The model in memory, and as a checkpoint in OUT, where sample, eval and export look for it. */
static enum pelago_status assemble(struct pl_run *r, struct pl_weights *w)
{
    const char *folder = find_model(r);
    if (folder == NULL)
        return pl_fail(&r->err, PELAGO_NOTFOUND, "the run is complete, but no process saved a model; see %s",
                       pl_text_clip(r->log).at);
    PL_TRY(load_from(r, folder, w));
    PL_TRY(take_shards(r, w->params));
    const struct pl_cluster_model m = {.settings = &r->settings,
                                       .tensors = &w->tensors,
                                       .params = w->params,
                                       .tokens = r->known ? r->view.tokens : r->settings.total_tokens,
                                       .tokenizer = {w->tokenizer.data, w->tokenizer.len}};
    return pl_cluster_save_params(&m, r->args.out, &r->err);
}

/* ---- judging ---- */

static enum pelago_status evaluate(struct pl_run *r, const struct pl_weights *w, const struct pl_dataset *d,
                                   struct pl_run_result *e)
{
    struct pl_model_options o = {.config = w->config, .seq = r->settings.trainer.seq, .batch = 8};
    struct pl_model *m = NULL;
    struct pl_evaluation v;
    if (d->valid.tokens < 2)
        return PELAGO_OK;
    PL_TRY(pl_model_new(&m, &r->alloc, &o, &r->err));
    memcpy(m->params, w->params, w->tensors.floats * sizeof(float));
    pl_model_refresh(m);
    enum pelago_status st = pl_evaluate(m, &d->valid, &v, &r->err);
    pl_model_free(m);
    PL_TRY(st);
    e->judged = true;
    e->tokens = v.tokens;
    e->loss = v.nats / (double)v.tokens;
    e->bits_per_byte = d->valid_bytes > 0 ? v.nats / d->valid_bytes / log(2) : 0;
    e->floor_loss = d->valid_floor / (double)v.tokens;
    return PELAGO_OK;
}

static enum pelago_status judge(struct pl_run *r, const struct pl_weights *w, struct pl_run_result *e)
{
    const struct pl_settings *s = &r->settings;
    struct pl_dataset_options o = {.data = s->data,
                                   .valid = s->valid[0] != '\0' ? s->valid : NULL,
                                   .json = {w->tokenizer.data, w->tokenizer.len},
                                   .vocab = w->config.vocab,
                                   .valid_tokens = s->eval_tokens,
                                   .seed = s->trainer.seed};
    struct pl_dataset *d = NULL;
    PL_TRY(pl_dataset_open(&d, &r->alloc, &o, &r->err));
    enum pelago_status st = evaluate(r, w, d, e);
    e->readable = d->tokenizer != NULL;
    if (st == PELAGO_OK && e->readable)
        pl_train_sample(&r->alloc, &w->config, &w->tensors, w->params, d->tokenizer,
                        pl_min32(SAMPLE_TOKENS, s->trainer.seq), &e->sample);
    pl_report_clean(&e->sample);
    pl_dataset_close(d);
    return st;
}

void pl_report_clean(struct pl_buf *text)
{
    uint8_t *at = text->data, *to = text->data, *end = text->len > 0 ? at + text->len : at;
    while (at < end) {
        uint32_t c;
        size_t len = pl_utf8_read(at, end, &c);
        bool plain = c == '\n' || (c != PL_CHAR_BAD && c >= ' ' && (c < 0x7f || c > 0x9f));
        if (plain)
            memmove(to, at, len);
        else
            *to = '?';
        to += plain ? len : 1;
        at += len;
    }
    /* It is quoted: what ends in empty lines would leave a quotation mark alone on the last. */
    while (to > text->data && (to[-1] == '\n' || to[-1] == ' '))
        to--;
    text->len = (size_t)(to - text->data);
}

/* ---- saying ---- */

static enum pelago_status write_reports(struct pl_run *r, const struct pl_run_result *e)
{
    struct pl_posix_dir *dir = NULL;
    struct pl_buf json, md;
    pl_buf_init(&json, &r->alloc, PL_JSON_BYTES_MAX);
    pl_buf_init(&md, &r->alloc, PL_JSON_BYTES_MAX);
    enum pelago_status st = pl_posix_dir_open(&dir, &r->alloc, r->args.out, PL_POSIX_DIR_EXISTING, &r->err);
    if (st == PELAGO_OK)
        st = pl_report_json(r, e, &json);
    if (st == PELAGO_OK)
        st = pl_report_md(r, e, &md);
    if (st == PELAGO_OK)
        st = pl_home_write(dir, "report.json", (struct pl_bytes){json.data, json.len}, false, &r->err);
    if (st == PELAGO_OK)
        st = pl_home_write(dir, "report.md", (struct pl_bytes){md.data, md.len}, false, &r->err);
    pl_posix_dir_close(dir);
    pl_buf_release(&json);
    pl_buf_release(&md);
    return st;
}

static uint32_t restarts(const struct pl_run_process *list, uint32_t count)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += list[i].child.starts > 0 ? list[i].child.starts - 1 : 0;
    return sum;
}

static void say_result(const struct pl_run *r, const struct pl_run_result *e)
{
    uint32_t again = restarts(r->syncers, r->settings.shards) + restarts(r->learners, r->settings.learners);
    printf("%s tokens%s %s with %u learners, %u restart%s\n",
           pl_view_count((double)(r->known ? r->view.tokens : r->settings.total_tokens)).at,
           r->args.resume ? " in all; since it was resumed" : " in", pl_view_time(e->seconds).at,
           r->settings.learners, again, again == 1 ? "" : "s");
    if (e->judged) {
        printf("validation: loss %.4f nats a token, perplexity %.2f", e->loss, exp(e->loss));
        if (e->bits_per_byte > 0)
            printf(", %.4f bits a byte", e->bits_per_byte);
        printf(" (%" PRIu64 " tokens)\n", e->tokens);
    }
    if (e->floor_loss > 0)
        printf("the tales' own entropy, the floor: %.4f nats a token\n", e->floor_loss);
    if (e->sample.len > 0 && !r->args.quiet)
        printf("it says: \"%.*s\"\n", (int)e->sample.len, (const char *)e->sample.data);
    if (r->args.quiet)
        return;
    printf("report: ");
    pl_text_quote(stdout, r->args.out);
    printf("/report.md");
    if (e->readable) {
        printf("    to read more of it: pelago sample ");
        pl_text_quote(stdout, r->args.out);
    }
    printf("\n");
}

/* Of a large model it takes minutes. */
static void say_judging(const struct pl_run *r)
{
    if (!r->args.quiet)
        printf("judging the model on up to %s tokens; Ctrl-C leaves that for --resume\n",
               pl_view_count((double)r->settings.eval_tokens).at);
    (void)fflush(stdout);
}

int pl_run_report(struct pl_run *r)
{
    struct pl_weights w = {.alloc = r->alloc};
    struct pl_run_result e = {.seconds = pl_run_seconds(r)};
    pl_buf_init(&e.sample, &r->alloc, SAMPLE_BYTES_MAX);
    pl_buf_init(&w.tokenizer, &w.alloc, PL_TOKENIZER_BYTES_MAX);
    pl_run_take_last_status(r);
    enum pelago_status st = assemble(r, &w);
    if (st == PELAGO_OK) {
        say_judging(r);
        pl_run_heed_at_end();
        st = judge(r, &w, &e);
    }
    if (st == PELAGO_OK)
        st = write_reports(r, &e);
    if (st == PELAGO_OK)
        say_result(r, &e);
    pl_weights_release(&w);
    pl_buf_release(&e.sample);
    return st == PELAGO_OK ? PL_EXIT_OK : pl_failure(pl_run_command, &r->err);
}
