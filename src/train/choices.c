/* train/choices.c - scores options with a model, many at a time; see choices.h.
 *
 * Options are sorted by length, so that a batch holds options of about the same length and little is padded.
 */
#include "train/choices.h"

#include "base/num.h"
#include "data/ids.h"
#include "train/choices_int.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

static const uint64_t logits_max = 32 << 20; /* floats held to find the likeliest token */

/* One option as tokens: inputs are all but the last, and the last `scored` of the targets count. */
struct row {
    uint64_t option, at; /* at: in ids */
    uint32_t len;        /* tokens, at least 2 */
    uint32_t scored;
    double nats;
    bool greedy;
};

struct scorer {
    const struct pl_choices *c;
    struct pl_model *m;
    const struct pl_tokenizer *t;
    struct pl_alloc alloc;
    struct pl_ids ids;
    struct row *rows;
    uint64_t row_count;
    int32_t *tokens, *targets; /* (batch, seq) */
    float *losses;             /* (batch, seq) */
    float *logits;             /* where an ending is asked for */
    uint64_t logit_floats;
    struct pl_error *err;
};

static enum pelago_status no_memory(const struct scorer *s)
{
    return pl_fail(s->err, PELAGO_NOMEM, "there is no memory to score the options");
}

/* ---- tokens ---- */

/* Context and continuation are encoded apart: a token never reaches across. */
static enum pelago_status encode_option(struct scorer *s, struct pl_encoder *encoder, uint64_t index)
{
    uint64_t count;
    const struct pl_choice_option *o = &pl_choices_options(s->c, &count)[index];
    const uint8_t *text = s->c->text.data;
    struct row *row = &s->rows[index];
    uint32_t end = pl_tokenizer_end_of_text(s->t), longest = s->m->options.seq + 1;
    size_t start = s->ids.count;
    if (pl_ids_push(&s->ids, end != PL_NONE32 ? end : 0) != PELAGO_OK)
        return no_memory(s);
    PL_TRY(pl_encoder_run(encoder, text + o->context, o->context_len, PL_SPECIALS_AS_TEXT, &s->ids, s->err));
    size_t before = s->ids.count;
    PL_TRY(pl_encoder_run(encoder, text + o->ending, o->ending_len, PL_SPECIALS_AS_TEXT, &s->ids, s->err));
    size_t len = s->ids.count - start, scored = s->ids.count - before;
    if (scored == 0)
        return pl_fail(s->err, PELAGO_INVALID, "the tokenizer makes nothing of a continuation");
    *row = (struct row){.option = index, .at = start, .len = (uint32_t)pl_min64(len, longest)};
    row->at += len - row->len;
    row->scored = (uint32_t)pl_min64(scored, row->len - 1);
    return PELAGO_OK;
}

static enum pelago_status encode_all(struct scorer *s)
{
    struct pl_encoder *encoder = pl_encoder_new(&s->alloc, s->t);
    enum pelago_status st = encoder != NULL ? PELAGO_OK : no_memory(s);
    for (uint64_t i = 0; st == PELAGO_OK && i < s->row_count; i++)
        st = encode_option(s, encoder, i);
    pl_encoder_free(encoder);
    return st;
}

static int by_length(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    if (x->len != y->len)
        return x->len < y->len ? 1 : -1; /* the longest first: memory runs out at once or not at all */
    return x->option < y->option ? -1 : 1;
}

static int by_option(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    return x->option < y->option ? -1 : 1;
}

/* ---- batches ---- */

static enum pelago_status fill(const struct scorer *s, const struct row *rows, uint32_t count,
                               struct pl_batch *b)
{
    uint32_t seq = rows[0].len - 1, vocab = s->m->options.config.vocab;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t j = 0; j < seq; j++) {
            const uint32_t *ids = s->ids.at + rows[i].at;
            bool inside = j + 1 < rows[i].len, counted = inside && j + 1 + rows[i].scored >= rows[i].len;
            uint32_t input = inside ? ids[j] : 0, target = counted ? ids[j + 1] : 0;
            if (input >= vocab || target >= vocab)
                return pl_fail(s->err, PELAGO_INVALID,
                               "the tokenizer has tokens that the model does not know");
            s->tokens[(size_t)i * seq + j] = (int32_t)input;
            s->targets[(size_t)i * seq + j] = counted ? (int32_t)target : -1;
        }
    *b = (struct pl_batch){count, seq, s->tokens, s->targets};
    return PELAGO_OK;
}

/* What is not a number compares as false with everything: the answer would be whatever option comes first. */
static enum pelago_status take_losses(const struct scorer *s, struct row *rows, const struct pl_batch *b)
{
    for (uint32_t i = 0; i < b->batch; i++) {
        for (uint32_t j = 0; j < b->seq; j++)
            if (b->targets[(size_t)i * b->seq + j] >= 0)
                rows[i].nats += (double)s->losses[(size_t)i * b->seq + j];
        if (!isfinite(rows[i].nats))
            return pl_fail(s->err, PELAGO_INVALID,
                           "the likelihood of a continuation is not a finite number: the model's weights are "
                           "broken");
    }
    return PELAGO_OK;
}

static bool is_likeliest(const float *logits, uint32_t vocab, uint32_t token)
{
    for (uint32_t i = 0; i < vocab; i++)
        if (logits[i] > logits[token] || (logits[i] == logits[token] && i < token))
            return false;
    return true;
}

static void take_logits(const struct scorer *s, struct row *rows, const struct pl_batch *b)
{
    uint32_t vocab = s->m->options.config.vocab;
    for (uint32_t i = 0; i < b->batch; i++) {
        rows[i].greedy = true;
        for (uint32_t j = 0; j < b->seq; j++) {
            size_t at = (size_t)i * b->seq + j;
            if (b->targets[at] >= 0 && !is_likeliest(s->logits + at * vocab, vocab, (uint32_t)b->targets[at]))
                rows[i].greedy = false;
        }
    }
}

/* Rows of one batch, the longest of them first; with logits only as many as may be held. */
static uint32_t batch_size(const struct scorer *s, const struct row *rows, uint64_t left, bool logits)
{
    uint64_t room = s->m->options.batch;
    if (logits)
        room = pl_max64(1, pl_min64(room, logits_max / ((uint64_t)rows[0].len * s->m->options.config.vocab)));
    return (uint32_t)pl_min64(room, left);
}

static bool asks_for_endings(const struct scorer *s)
{
    uint64_t count;
    const struct pl_choice_question *q = pl_choices_questions(s->c, &count);
    for (uint64_t i = 0; i < count; i++)
        if (q[i].count == 1)
            return true;
    return false;
}

static enum pelago_status reserve_logits(struct scorer *s)
{
    s->logit_floats = pl_max64(logits_max, (uint64_t)s->rows[0].len * s->m->options.config.vocab);
    s->logits = pl_alloc_zero(&s->alloc, s->logit_floats, sizeof *s->logits);
    return s->logits != NULL ? PELAGO_OK : no_memory(s);
}

static enum pelago_status score_rows(struct scorer *s, pl_choices_progress *progress, void *user)
{
    bool logits = asks_for_endings(s);
    if (logits)
        PL_TRY(reserve_logits(s));
    for (uint64_t at = 0; at < s->row_count;) {
        struct row *rows = &s->rows[at];
        uint32_t count = batch_size(s, rows, s->row_count - at, logits);
        struct pl_batch b;
        PL_TRY(fill(s, rows, count, &b));
        (void)pl_model_loss(s->m, &b, s->losses);
        if (logits)
            pl_model_logits(s->m, &b, s->logits);
        PL_TRY(pl_engine_check(&s->m->engine, s->err));
        PL_TRY(take_losses(s, rows, &b));
        if (logits)
            take_logits(s, rows, &b);
        at += count;
        if (progress != NULL)
            progress(user, at, s->row_count);
    }
    return PELAGO_OK;
}

/* ---- answers ---- */

static void answer(const struct scorer *s, const struct pl_choice_question *q, struct pl_choices_result *out)
{
    uint64_t count;
    const struct pl_choice_option *options = pl_choices_options(s->c, &count);
    uint32_t best = 0, best_per_byte = 0;
    double least = DBL_MAX, least_per_byte = DBL_MAX;
    if (q->count == 1) {
        out->endings++;
        out->greedy += s->rows[q->first].greedy ? 1 : 0;
        out->ending_nats += s->rows[q->first].nats;
        return;
    }
    for (uint32_t i = 0; i < q->count; i++) {
        double nats = s->rows[q->first + i].nats, per_byte = nats / (double)options[q->first + i].ending_len;
        if (nats < least) {
            least = nats;
            best = i;
        }
        if (per_byte < least_per_byte) {
            least_per_byte = per_byte;
            best_per_byte = i;
        }
    }
    out->questions++;
    out->chance += 1.0 / q->count;
    out->right += best == q->gold ? 1 : 0;
    out->right_per_byte += best_per_byte == q->gold ? 1 : 0;
}

static enum pelago_status score(struct scorer *s, pl_choices_progress *progress, void *user,
                                struct pl_choices_result *out)
{
    size_t room = (size_t)s->m->options.batch * s->m->options.seq;
    uint64_t questions;
    const struct pl_choice_question *q = pl_choices_questions(s->c, &questions);
    s->rows = pl_alloc_zero(&s->alloc, s->row_count, sizeof *s->rows);
    s->tokens = pl_alloc_zero(&s->alloc, room, sizeof *s->tokens);
    s->targets = pl_alloc_zero(&s->alloc, room, sizeof *s->targets);
    s->losses = pl_alloc_zero(&s->alloc, room, sizeof *s->losses);
    if (s->rows == NULL || s->tokens == NULL || s->targets == NULL || s->losses == NULL)
        return no_memory(s);
    PL_TRY(encode_all(s));
    qsort(s->rows, s->row_count, sizeof *s->rows, by_length);
    PL_TRY(score_rows(s, progress, user));
    qsort(s->rows, s->row_count, sizeof *s->rows, by_option);
    for (uint64_t i = 0; i < questions; i++)
        answer(s, &q[i], out);
    return PELAGO_OK;
}

enum pelago_status pl_choices_score(const struct pl_choices *c, struct pl_model *m,
                                    const struct pl_tokenizer *t, pl_choices_progress *progress, void *user,
                                    struct pl_choices_result *out, struct pl_error *err)
{
    struct scorer s = {.c = c, .m = m, .t = t, .alloc = c->alloc, .err = err};
    size_t room = (size_t)m->options.batch * m->options.seq;
    (void)pl_choices_options(c, &s.row_count);
    pl_ids_init(&s.ids, &s.alloc);
    *out = (struct pl_choices_result){.questions = 0};
    enum pelago_status st = score(&s, progress, user, out);
    pl_alloc_free(&s.alloc, s.logits, s.logit_floats * sizeof *s.logits);
    pl_alloc_free(&s.alloc, s.losses, room * sizeof *s.losses);
    pl_alloc_free(&s.alloc, s.targets, room * sizeof *s.targets);
    pl_alloc_free(&s.alloc, s.tokens, room * sizeof *s.tokens);
    pl_alloc_free(&s.alloc, s.rows, s.row_count * sizeof *s.rows);
    pl_ids_release(&s.ids);
    return st;
}
