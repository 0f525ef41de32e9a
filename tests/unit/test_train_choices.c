/* Multiple choice: reading files of questions, and scores against those taken one option at a time. */
#include "data/tokenizer_train.h"
#include "tempdir.h"
#include "train/choices.h"
#include "train/choices_int.h"
#include "train/evaluate.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

static struct pl_alloc heap;

/* ---- reading ---- */

static enum pelago_status read_text(const char *text, uint64_t limit, struct pl_choices **out,
                                    struct pl_error *err)
{
    struct tempdir temp;
    tempdir_init(&temp);
    tempdir_put(&temp, "q.txt", text, strlen(text));
    heap = pl_alloc_system();
    enum pelago_status st = pl_choices_read(out, &heap, tempdir_path(&temp, "q.txt"), limit, err);
    tempdir_release(&temp);
    return st;
}

static void assert_text(const struct pl_choices *c, size_t at, size_t len, const char *expected)
{
    assert_int_equal(len, strlen(expected));
    assert_memory_equal(c->text.data + at, expected, len);
}

static void test_reads_questions(void **state)
{
    (void)state;
    struct pl_choices *c;
    struct pl_error err = {0};
    uint64_t questions, options;
    assert_int_equal(read_text("1 2\nA\\nb:\t yes\nA\\nb:\tn\\\\o\\t\n0 1\n\tend", PL_NONE64, &c, &err),
                     PELAGO_OK);
    const struct pl_choice_question *q = pl_choices_questions(c, &questions);
    const struct pl_choice_option *o = pl_choices_options(c, &options);
    assert_int_equal(questions, 2);
    assert_int_equal(options, 3);
    assert_int_equal(q[0].gold, 1);
    assert_int_equal(q[1].first, 2);
    assert_text(c, o[0].context, o[0].context_len, "A\nb:");
    assert_text(c, o[0].ending, o[0].ending_len, " yes");
    assert_text(c, o[1].ending, o[1].ending_len, "n\\o\t");
    assert_text(c, o[2].context, o[2].context_len, "");
    assert_text(c, o[2].ending, o[2].ending_len, "end");
    pl_choices_free(c);
    assert_int_equal(read_text("0 1\na\tb\nnonsense", 1, &c, &err),
                     PELAGO_OK); /* the limit comes before it */
    pl_choices_free(c);
}

static void test_refuses_damaged_files(void **state)
{
    (void)state;
    const struct {
        const char *text, *says;
    } cases[] = {
        {"", "no question"},
        {"x 2\n", "line 1"},
        {"2 2\na\tb\na\tc\n", "line 1"},
        {"0 0\n", "line 1"},
        {"0 65\n", "line 1"},
        {"0 99999999999999999999\n", "line 1"},
        {"0 2 \na\tb\n", "line 1"},
        {"0 2\na\tb\n", "ends inside a question"},
        {"0 1\nno tab\n", "line 2"},
        {"0 1\na\t\n", "no continuation"},
        {"0 1\na\t\\x\n", "backslash"},
        {"0 1\na\tb\\", "backslash"},
        {"0 1\na\tb\n\n", "line 3"},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct pl_choices *c;
        struct pl_error err = {0};
        assert_int_equal(read_text(cases[i].text, PL_NONE64, &c, &err), PELAGO_INVALID);
        assert_null(c);
        if (strstr(err.text, cases[i].says) == NULL)
            fail_msg("case %u: expected '%s' in: %s", i, cases[i].says, err.text);
    }
}

/* ---- scoring ---- */

struct rig {
    struct pl_pool *pool;
    struct pl_tokenizer *tokenizer; /* of bytes */
    struct pl_model *model;
};

static void rig_init(struct rig *r, uint32_t batch, uint32_t seq)
{
    struct pl_error err = {0};
    heap = pl_alloc_system();
    r->pool = pl_pool_new(&heap, 1);
    struct pl_tokenizer_trainer *trainer = pl_tokenizer_trainer_new(&heap, r->pool, PL_TRAIN_BYTES, 0);
    assert_int_equal(pl_tokenizer_trainer_finish(trainer, &r->tokenizer, &err), PELAGO_OK);
    pl_tokenizer_trainer_free(trainer);
    struct pl_model_options o = {
        .config = {.layers = 2, .width = 32, .heads = 2, .vocab = 260, .context = 64, .tied = true},
        .backend = "ref",
        .threads = 1,
        .batch = batch,
        .seq = seq};
    pl_model_config_complete(&o.config);
    assert_int_equal(pl_model_new(&r->model, &heap, &o, &err), PELAGO_OK);
    pl_tensors_fill(&r->model->tensors, r->model->params, 3);
    for (uint64_t i = 0; i < r->model->tensors.floats; i++)
        r->model->params[i] *= 6; /* far from uniform, so that answers differ */
    pl_model_refresh(r->model);
}

static void rig_release(struct rig *r)
{
    pl_model_free(r->model);
    pl_tokenizer_free(r->tokenizer);
    pl_pool_free(r->pool);
}

/* -log p(ending | context) and whether each of its tokens is the likeliest, from plain logits. */
static double score_alone(struct rig *r, const char *context, const char *ending, bool *greedy)
{
    static float logits[64 * 260];
    int32_t tokens[65] = {(int32_t)pl_tokenizer_end_of_text(r->tokenizer)}, none[65];
    struct pl_encoder *encoder = pl_encoder_new(&heap, r->tokenizer);
    struct pl_ids ids;
    struct pl_error err;
    double nats = 0;
    pl_ids_init(&ids, &heap);
    assert_int_equal(pl_encoder_run(encoder, context, strlen(context), PL_SPECIALS_AS_TEXT, &ids, &err),
                     PELAGO_OK);
    size_t before = ids.count;
    assert_int_equal(pl_encoder_run(encoder, ending, strlen(ending), PL_SPECIALS_AS_TEXT, &ids, &err),
                     PELAGO_OK);
    for (size_t i = 0; i < ids.count; i++)
        tokens[i + 1] = (int32_t)ids.at[i];
    struct pl_batch b = {1, (uint32_t)ids.count, tokens, none};
    pl_model_logits(r->model, &b, logits);
    *greedy = true;
    for (size_t i = before; i < ids.count; i++) {
        const float *row = logits + i * 260;
        double sum = 0;
        for (unsigned j = 0; j < 260; j++) {
            sum += exp((double)row[j] - (double)row[ids.at[i]]);
            *greedy = *greedy && row[j] <= row[ids.at[i]];
        }
        nats += log(sum);
    }
    pl_ids_release(&ids);
    pl_encoder_free(encoder);
    return nats;
}

static const char *const contexts[] = {"The cat", "Two and two are",    "It rained. Then",
                                       "",        "A man walks into a", "So"};
static const char *const endings[6][3] = {
    {" sat", " flew away home", " is"}, {" four", " five or six", " x"}, {" the sun came", " we", " nothing"},
    {"Once", "zzzzzzzz", "a"},          {" bar", " wall", " qqq"},       {" it goes", " what", "!"}};

static void test_scores_as_one_by_one(void **state)
{
    (void)state;
    struct rig r;
    struct pl_choices *c;
    struct pl_choices_result got;
    struct pl_error err = {0};
    char text[2000];
    size_t len = 0;
    uint64_t right = 0, right_per_byte = 0;
    rig_init(&r, 4, 40);
    for (unsigned q = 0; q < 6; q++) {
        double nats[3], per_byte[3];
        bool greedy;
        len += (size_t)snprintf(text + len, sizeof text - len, "1 3\n");
        for (unsigned i = 0; i < 3; i++) {
            nats[i] = score_alone(&r, contexts[q], endings[q][i], &greedy);
            per_byte[i] = nats[i] / (double)strlen(endings[q][i]);
            len += (size_t)snprintf(text + len, sizeof text - len, "%s\t%s\n", contexts[q], endings[q][i]);
        }
        right += nats[1] < nats[0] && nats[1] < nats[2] ? 1 : 0;
        right_per_byte += per_byte[1] < per_byte[0] && per_byte[1] < per_byte[2] ? 1 : 0;
    }
    assert_int_equal(read_text(text, PL_NONE64, &c, &err), PELAGO_OK);
    if (pl_choices_score(c, r.model, r.tokenizer, NULL, NULL, &got, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
    assert_int_equal(got.questions, 6);
    assert_int_equal(got.right, right);
    assert_int_equal(got.right_per_byte, right_per_byte);
    assert_true(fabs(got.chance - 2) < 1e-9);
    assert_int_equal(got.endings, 0);
    pl_choices_free(c);
    rig_release(&r);
}

/* The likeliest byte after each context is found, any other is not. */
static void test_endings(void **state)
{
    (void)state;
    struct rig r;
    struct pl_choices *c;
    struct pl_choices_result got;
    struct pl_error err = {0};
    char text[4000];
    size_t len = 0;
    uint64_t greedy = 0, count = 0;
    double nats = 0;
    rig_init(&r, 3, 40);
    for (unsigned q = 0; q < 6; q++)
        for (int byte = '!'; byte <= '~'; byte += 7) {
            char ending[2] = {(char)byte, '\0'};
            bool found;
            if (byte == '\\')
                continue;
            nats += score_alone(&r, contexts[q], ending, &found);
            greedy += found ? 1 : 0;
            count++;
            len += (size_t)snprintf(text + len, sizeof text - len, "0 1\n%s\t%s\n", contexts[q], ending);
        }
    assert_int_equal(read_text(text, PL_NONE64, &c, &err), PELAGO_OK);
    assert_int_equal(pl_choices_score(c, r.model, r.tokenizer, NULL, NULL, &got, &err), PELAGO_OK);
    assert_int_equal(got.endings, count);
    assert_int_equal(got.greedy, greedy);
    assert_true(fabs(got.ending_nats - nats) < 1e-3 * nats);
    assert_int_equal(got.questions, 0);
    pl_choices_free(c);
    rig_release(&r);
}

/* Only what fits counts: a context cut on the left scores as its end alone. */
static void test_long_contexts_lose_their_beginning(void **state)
{
    (void)state;
    struct rig r;
    struct pl_choices *c;
    struct pl_choices_result cut, whole;
    struct pl_error err = {0};
    rig_init(&r, 2, 8);
    assert_int_equal(read_text("0 1\nthis beginning is lost 1234567\tx\n", PL_NONE64, &c, &err), PELAGO_OK);
    assert_int_equal(pl_choices_score(c, r.model, r.tokenizer, NULL, NULL, &cut, &err), PELAGO_OK);
    pl_choices_free(c);
    assert_int_equal(read_text("0 1\nanother one 1234567\tx\n", PL_NONE64, &c, &err), PELAGO_OK);
    assert_int_equal(pl_choices_score(c, r.model, r.tokenizer, NULL, NULL, &whole, &err), PELAGO_OK);
    pl_choices_free(c);
    assert_true(cut.ending_nats > 0 && cut.ending_nats == whole.ending_nats);
    rig_release(&r);
}

/* A weight that is not a number, seen by every option or by one of many: no accuracy is made up for it. */
static void test_a_broken_model_has_no_accuracy(void **state)
{
    (void)state;
    static const char *const texts[] = {"0 2\nThe cat\t sat\nThe cat\t flew\n", "0 1\nThe cat\t sat\n"};
    static const double broken[] = {(double)NAN, (double)INFINITY};
    for (unsigned i = 0; i < 4; i++) {
        struct rig r;
        struct pl_choices *c;
        struct pl_choices_result got;
        struct pl_error err = {0};
        rig_init(&r, 1, 40);
        assert_int_equal(read_text(texts[i % 2], PL_NONE64, &c, &err), PELAGO_OK);
        assert_int_equal(pl_choices_score(c, r.model, r.tokenizer, NULL, NULL, &got, &err), PELAGO_OK);
        r.model->params[(size_t)'t' * 32] = (float)broken[i / 2]; /* in the embedding of one byte */
        pl_model_refresh(r.model);
        assert_int_equal(pl_choices_score(c, r.model, r.tokenizer, NULL, NULL, &got, &err), PELAGO_INVALID);
        assert_non_null(strstr(err.text, "not a finite number"));
        pl_choices_free(c);
        rig_release(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_questions),
        cmocka_unit_test(test_refuses_damaged_files),
        cmocka_unit_test(test_scores_as_one_by_one),
        cmocka_unit_test(test_endings),
        cmocka_unit_test(test_long_contexts_lose_their_beginning),
        cmocka_unit_test(test_a_broken_model_has_no_accuracy),
    };
    return cmocka_run_group_tests_name("train_choices", tests, NULL, NULL);
}
