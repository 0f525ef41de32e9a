/* lab/data.c - see data.h. */
#include "lab/data.h"

#include "base/check.h"
#include "base/fmt.h"
#include "base/limits.h"
#include "base/num.h"
#include "sim/objective.h"

#include <string.h>

/* ---- a row of several texts ---- */

static enum pelago_status read_mixture(void *self, uint64_t at, uint64_t count, int32_t *out,
                                       struct pl_error *err)
{
    const struct pl_lab_mixture *m = self;
    for (uint32_t i = 0; i < m->count && count > 0; i++) {
        if (at >= m->tokens[i]) {
            at -= m->tokens[i];
            continue;
        }
        uint64_t n = pl_min64(count, m->tokens[i] - at);
        PL_TRY(m->parts[i]->read(m->parts[i]->self, at, n, out, err));
        out += n;
        count -= n;
        at = 0;
    }
    return PELAGO_OK;
}

/* Shares of `want` tokens; PL_NONE64 in all: the text has no end. */
static enum pelago_status mix(struct pl_lab_mixture *m, struct pl_stream *stream,
                              const struct pl_lab_row *row, uint64_t want, struct pl_error *err)
{
    double all = 0;
    *stream = (struct pl_stream){0, read_mixture, m};
    m->count = row->domain_count;
    if (m->count == 1 && m->parts[0]->tokens == PL_NONE64) {
        *stream = *m->parts[0];
        return PELAGO_OK;
    }
    for (uint32_t i = 0; i < m->count; i++)
        all += row->shares[i];
    for (uint32_t i = 0; i < m->count; i++) {
        m->tokens[i] = m->count == 1 ? pl_min64(want, m->parts[i]->tokens)
                                     : (uint64_t)((double)want * row->shares[i] / all);
        if (m->tokens[i] > m->parts[i]->tokens)
            return pl_fail(err, PELAGO_INVALID, "%s has %lu tokens, but %lu are wanted of it",
                           row->domains[i], m->parts[i]->tokens, m->tokens[i]);
        stream->tokens += m->tokens[i];
    }
    return PELAGO_OK;
}

/* ---- opening ---- */

static enum pelago_status open_domain(struct pl_lab_text *t, const struct pl_lab *lab,
                                      const struct pl_lab_row *row, uint32_t i, struct pl_error *err)
{
    char train[PL_PATH_MAX], valid[PL_PATH_MAX];
    struct pl_dataset_options o = {.data = row->domains[i],
                                   .vocab = row->settings.trainer.config.vocab,
                                   .valid_tokens = row->settings.eval_tokens,
                                   .seed = 1, /* the same stories and the same tokenizer for every seed */
                                   .threads = lab->threads};
    if (strcmp(row->domains[i], PL_DATASET_TALES) != 0) {
        (void)pl_fmt(train, sizeof train, "%s/%s.tok", lab->folder, row->domains[i]);
        (void)pl_fmt(valid, sizeof valid, "%s/%s.valid.tok", lab->folder, row->domains[i]);
        o.data = train;
        o.valid = valid;
    }
    PL_TRY(pl_dataset_open(&t->domains[i], &t->alloc, &o, err));
    if (t->domains[i]->vocab > row->settings.trainer.config.vocab)
        return pl_fail(err, PELAGO_INVALID,
                       "%s has %u different tokens, more than the model's vocabulary of %u", row->domains[i],
                       t->domains[i]->vocab, row->settings.trainer.config.vocab);
    t->train.parts[i] = &t->domains[i]->train;
    t->valid.parts[i] = &t->domains[i]->valid;
    return PELAGO_OK;
}

/* Learners of the same domain take turns. */
static uint32_t peers_of(const struct pl_lab_text *t, uint32_t domain)
{
    return (t->learners - domain + t->domain_count - 1) / t->domain_count;
}

static enum pelago_status read_twice(const struct pl_lab_text *t, uint32_t domain, uint64_t want,
                                     struct pl_error *err)
{
    return pl_fail(
        err, PELAGO_INVALID,
        "text %u of the row has %lu tokens, fewer than the %lu that its learners take: a run reads nothing "
        "twice",
        domain + 1, pl_batches_epoch_tokens(&t->each[domain]), want);
}

/* As far into a text as the fastest of its learners comes; a slower one leaves out its turns. */
static enum pelago_status check_own(const struct pl_lab_text *t, const struct pl_lab_row *row,
                                    uint32_t domain, struct pl_error *err)
{
    double all = 0, fastest = 0;
    for (uint32_t i = 0; i < t->learners; i++) {
        double rate = row->speeds[i] * row->batches[i];
        all += i < row->settings.learners ? rate : 0;
        fastest = i % t->domain_count == domain && rate > fastest ? rate : fastest;
    }
    double want = (double)row->settings.total_tokens * (fastest / all) * peers_of(t, domain);
    return want <= (double)pl_batches_epoch_tokens(&t->each[domain])
               ? PELAGO_OK
               : read_twice(t, domain, (uint64_t)want, err);
}

static enum pelago_status cut(struct pl_lab_text *t, const struct pl_lab_row *row, uint64_t seed,
                              struct pl_error *err)
{
    const uint32_t seq = row->settings.trainer.seq;
    /* Windows are moved by up to one, and the last needs a token after it. */
    uint64_t want = row->settings.total_tokens + (2 + row->domain_count) * (uint64_t)seq;
    PL_TRY(mix(&t->valid, &t->valid_stream, row, row->settings.eval_tokens + 1, err));
    if (t->split) {
        for (uint32_t i = 0; i < t->domain_count; i++) {
            PL_TRY(pl_batches_init(&t->each[i], &t->alloc, &t->domains[i]->train, seq, seed, err));
            PL_TRY(check_own(t, row, i, err));
        }
        return PELAGO_OK;
    }
    PL_TRY(mix(&t->train, &t->train_stream, row, t->domain_count == 1 ? PL_NONE64 : want, err));
    PL_TRY(pl_batches_init(&t->all, &t->alloc, &t->train_stream, seq, seed, err));
    if (pl_batches_epoch_tokens(&t->all) < row->settings.total_tokens)
        return pl_fail(err, PELAGO_INVALID,
                       "the text has %lu tokens, fewer than the run's %lu: a run reads nothing twice",
                       pl_batches_epoch_tokens(&t->all), row->settings.total_tokens);
    return PELAGO_OK;
}

enum pelago_status pl_lab_text_open(struct pl_lab_text *t, const struct pl_lab *lab,
                                    const struct pl_lab_row *row, uint64_t seed, struct pl_error *err)
{
    *t = (struct pl_lab_text){.alloc = lab->alloc,
                              .domain_count = row->domain_count,
                              .split = row->split,
                              .learners = row->settings.learners + row->joiners};
    enum pelago_status st = PELAGO_OK;
    for (uint32_t i = 0; i < t->domain_count && st == PELAGO_OK; i++)
        st = open_domain(t, lab, row, i, err);
    if (st == PELAGO_OK)
        st = cut(t, row, seed, err);
    if (st != PELAGO_OK)
        pl_lab_text_close(t);
    return st;
}

void pl_lab_text_close(struct pl_lab_text *t)
{
    pl_batches_release(&t->all);
    for (uint32_t i = 0; i < PL_LAB_DOMAINS_MAX; i++) {
        pl_batches_release(&t->each[i]);
        pl_dataset_close(t->domains[i]);
        t->domains[i] = NULL;
    }
}

/* ---- sequences ---- */

/* Where the sequences begin that no unit holds and that are no learner's alone: far above all units. */
#define OWN_RANGE (UINT64_C(1) << 40)

enum pelago_status pl_lab_text_fetch(struct pl_lab_text *t, uint32_t learner, uint64_t number, uint32_t seq,
                                     int32_t *tokens, int32_t *targets, struct pl_error *err)
{
    pl_assert(learner < t->learners && (!t->split || (number & PL_SEQUENCE_OWN) != 0));
    uint64_t own = number & ~PL_SEQUENCE_OWN;
    struct pl_batches *b = t->split ? &t->each[learner % t->domain_count] : &t->all;
    if (t->split) {
        const uint32_t domain = learner % t->domain_count;
        number = own * peers_of(t, domain) + learner / t->domain_count;
        if (number >= b->windows)
            return read_twice(t, domain, (number + 1) * seq, err);
    } else if ((number & PL_SEQUENCE_OWN) != 0) {
        number = OWN_RANGE * (learner + 1) + own;
    }
    struct pl_sequences s = pl_batches_sequences(b);
    return s.fetch(s.self, number, 1, seq, tokens, targets, err);
}
