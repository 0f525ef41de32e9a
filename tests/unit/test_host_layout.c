/* tests/unit/test_host_layout.c - settings as text and back; fragments and the model's block. */
#include "base/hash.h"
#include "base/prng.h"
#include "core/manifest.h"
#include "host/layout.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <math.h>
#include <string.h>

static struct pl_settings example(void)
{
    struct pl_error err;
    struct pl_settings s = {
        .run_id = 77, .model = "1m", .data = "builtin:tales", .total_tokens = 1000000, .learners = 4};
    assert_int_equal(pl_model_config_preset("1m", &s.trainer.config, &err), PELAGO_OK);
    s.trainer.batch = 4;
    s.trainer.seq = 128;
    s.trainer.accumulate = 1;
    s.trainer.matrices = PL_INNER_MUON;
    s.trainer.rule = (struct pl_inner_rule){
        .beta1 = 0.9f, .beta2 = 0.99f, .eps = 1e-8f, .momentum = 0.95f, .weight_decay = 0.1f, .clip = 1};
    s.trainer.schedule = (struct pl_schedule){.kind = PL_SCHEDULE_COSINE,
                                              .peak = 1e-3f,
                                              .floor = 0.1f,
                                              .decay = 0.2f,
                                              .warmup_tokens = 1000,
                                              .total_tokens = s.total_tokens};
    s.trainer.seed = UINT64_C(0xfedcba9876543210);
    s.eval_tokens = 5000;
    pl_settings_defaults(&s);
    return s;
}

static void come_back(struct pl_settings *s)
{
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_settings back;
    struct pl_buf text, again;
    struct pl_error err = {.text = ""};
    pl_buf_init(&text, &alloc, 1 << 20);
    pl_buf_init(&again, &alloc, 1 << 20);
    assert_int_equal(pl_settings_check(s, &err), PELAGO_OK);
    assert_int_equal(pl_settings_print(s, &text), PELAGO_OK);
    assert_int_equal(pl_settings_parse((const char *)text.data, text.len, &back, &err), PELAGO_OK);
    assert_int_equal(pl_settings_print(&back, &again), PELAGO_OK);
    assert_int_equal(text.len, again.len);
    assert_memory_equal(text.data, again.data, text.len);
    assert_true(back.trainer.seed == s->trainer.seed && back.outer.lr == s->outer.lr && back.up == s->up);
    assert_true(back.trainer.matrices == s->trainer.matrices &&
                back.trainer.schedule.total_tokens == s->total_tokens);
    assert_true(back.outer.first == s->outer.first);
    assert_true(back.feedback_local == s->feedback_local);
    /* Settings of before there was a first rate, or a place at home, have none, and are printed as they were. */
    assert_int_equal(pl_buf_append(&text, "", 1), PELAGO_OK);
    assert_int_equal(strstr((const char *)text.data, "outer_first") != NULL, s->outer.first > 0);
    assert_int_equal(strstr((const char *)text.data, "feedback_local") != NULL, s->feedback_local > 0);
    pl_buf_release(&text);
    pl_buf_release(&again);
}

static void settings_come_back_from_their_text(void **state)
{
    (void)state;
    struct pl_settings s = example();
    come_back(&s);
    s.outer.first = 0.75f;
    come_back(&s);
    s.outer.first = 0;
    come_back(&s);
    s.feedback_local = 1;
    come_back(&s);
}

/* Top-k speaks more often; what it holds back stays at home where merges are few; the synchronous ones know no top-k. */
static void settings_follow_the_codec(void **state)
{
    (void)state;
    struct pl_settings s = example();
    assert_int_equal(pl_settings_period(PL_CODEC_INT4), 24);
    assert_int_equal(pl_settings_period(PL_CODEC_TOPK64), 6);
    s.up = PL_CODEC_TOPK64;
    s.apply = 0;
    s.total_tokens =
        399 * (uint64_t)s.trainer.batch * s.trainer.accumulate * s.trainer.seq * s.learners * s.period;
    pl_settings_follow_codec(&s);
    assert_int_equal(pl_settings_merges(&s), 399);
    assert_true(s.feedback_local == 1 && s.outer.lr == 2 && s.merge.kind == PL_RULE_MEAN);
    s.total_tokens = s.total_tokens / 399 * 400;
    pl_settings_follow_codec(&s);
    assert_true(s.feedback_local == 0 && s.feedback_decay == 1 && s.outer.lr == 2);
    const uint32_t chosen = s.period;
    s.period = 6; /* the momentum grows over as many tokens as with 24 */
    pl_settings_follow_codec(&s);
    assert_int_equal(s.outer.warmup, 80);
    s.period = 24;
    pl_settings_follow_codec(&s);
    assert_int_equal(s.outer.warmup, 20);
    s.period = chosen;
    s.total_tokens = 1;
    s.apply = 1;
    pl_settings_follow_codec(&s);
    assert_true(s.feedback_local == 0);
    s.apply = 0;
    s.algorithm = PL_ALGORITHM_DILOCO;
    pl_settings_follow_codec(&s);
    assert_true(s.feedback_local == 0 && s.outer.lr < 1 && s.merge.kind == PL_RULE_RDA);
}

/* What codec_lr gives back is given back in the first steps, too; every host takes the rule from here. */
static void the_outer_rule_is_one_for_all(void **state)
{
    (void)state;
    struct pl_settings s = example();
    s.up = PL_CODEC_TOPK64;
    s.feedback_decay = 0.95f;
    s.outer = (struct pl_outer_rule){.lr = 0.5f, .first = 1, .warmup = 20};
    s.total_tokens =
        10 * (uint64_t)s.trainer.batch * s.trainer.accumulate * s.trainer.seq * s.learners * s.period;
    s.codec_lr = false;
    struct pl_outer_rule rule = pl_settings_outer_rule(&s);
    assert_true(rule.lr == 0.5f && rule.first == 1 && rule.planned == 10);
    float plain = pl_settings_outer(&s, 1, s.total_tokens / 10, 1).lr;
    assert_true(plain > 0.9f);
    s.codec_lr = true;
    const float gain = pl_outer_codec_gain(s.up);
    rule = pl_settings_outer_rule(&s);
    assert_true(gain > 1 && rule.lr == 0.5f * gain && rule.first == gain);
    assert_true(fabsf(pl_settings_outer(&s, 1, s.total_tokens / 10, 1).lr - gain * plain) < 1e-6f);
    s.feedback_decay = 1; /* nothing is lost for good */
    assert_true(pl_settings_outer_rule(&s).lr == 0.5f);
}

/* Replaces the first `from` of the text and expects a refusal that has `said` in it. */
static void refused(const char *text, const char *from, const char *to, const char *said)
{
    struct pl_settings s;
    struct pl_error err = {.text = ""};
    char changed[8192];
    const char *at = strstr(text, from);
    assert_non_null(at);
    (void)snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    assert_int_not_equal(pl_settings_parse(changed, strlen(changed), &s, &err), PELAGO_OK);
    if (strstr(err.text, said) == NULL)
        fail_msg("'%s' says: %s", to, err.text);
}

static void settings_that_cannot_be_are_refused_by_name(void **state)
{
    (void)state;
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_settings s = example();
    struct pl_buf text;
    pl_buf_init(&text, &alloc, 1 << 20);
    assert_int_equal(pl_settings_print(&s, &text), PELAGO_OK);
    assert_int_equal(pl_buf_append(&text, "", 1), PELAGO_OK);
    const char *t = (const char *)text.data;
    refused(t, "\"pelago_settings\": 2", "\"pelago_settings\": 3", "same version");
    refused(t, "\"decoupled\"", "\"coupled\"", "algorithm");
    refused(t, "\"period\": 24", "\"period\": 0", "period");
    refused(t, "\"fragments\": 24", "\"fragments\": 25", "fragments");
    refused(t, "\"quorum\": 1", "\"quorum\": 0", "quorum");
    refused(t, "\"overlap\": 2", "\"overlap\": 25", "overlap");
    refused(t, "\"feedback_decay\": 1.0", "\"feedback_decay\": 1.5", "feedback_decay");
    refused(t, "\"feedback_decay\": 1.0", "\"feedback_decay\": 1.0, \"feedback_local\": 1.5",
            "feedback_local");
    refused(t, "\"apply\": 0", "\"apply\": 1, \"feedback_local\": 1.0", "rebase");
    refused(t, "\"selective\": 0.0", "\"selective\": 1.0", "selective");
    refused(t, "\"outer_momentum\": 0.5", "\"outer_momentum\": 1.0", "outer momentum");
    refused(t, "\"merge\": \"rda\"", "\"merge\": \"krum\"", "sync.merge");
    refused(t, "\"outer\": \"nesterov\"", "\"outer\": \"adam\"", "sync.outer");
    refused(t, "\"merge_trim\": 0.25", "\"merge_trim\": 0.75", "merge_trim");
    refused(t, "\"up\": \"int4\"", "\"up\": \"int5\"", "sync.up");
    refused(t, "\"layers\": 4", "\"layers\": 100000", "layers");
    refused(t, "\"quorum\": 1", "\"quorum\": 1, \"patience\": 5", "sync.patience");
    refused(t, "\"algorithm\"", "\"later\": {\"a\": 1}, \"algorithm\"", "later.a");
    refused(t, "\"algorithm\"", "\"weather\": \"fine\", \"algorithm\"", "weather");
    refused(t, "{", "", "settings.json");
    pl_buf_release(&text);
}

/* Every value of the block is in exactly one fragment, and comes back from it. */
static void fragments_hold_every_value_once(void **state)
{
    (void)state;
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_settings s = example();
    struct pl_layout l;
    struct pl_error err;
    assert_int_equal(pl_layout_init(&l, &alloc, &s, &err), PELAGO_OK);
    float *block = calloc(l.tensors.floats, sizeof *block), *back = calloc(l.tensors.floats, sizeof *back);
    float *values = calloc(l.largest, sizeof *values);
    pl_layout_origin(&l, s.trainer.seed, block);
    uint64_t total = 0;
    for (uint32_t f = 0; f < l.fragment_count; f++) {
        total += l.fragments[f].values;
        pl_layout_gather(&l, f, block, values);
        pl_layout_scatter(&l, f, values, back);
    }
    assert_int_equal(total, l.tensors.params);
    assert_memory_equal(block, back, l.tensors.floats * sizeof *block);
    free(block);
    free(back);
    free(values);
    pl_layout_release(&l);
}

static void the_manifest_follows_from_the_settings(void **state)
{
    (void)state;
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_settings s = example();
    struct pl_layout l;
    struct pl_manifest m, other;
    struct pl_error err;
    assert_int_equal(pl_layout_init(&l, &alloc, &s, &err), PELAGO_OK);
    assert_int_equal(pl_layout_manifest(&l, &s, &m, &err), PELAGO_OK);
    assert_int_equal(m.msg.fragments.count, 24);
    assert_int_equal(m.msg.tensors.count, l.tensors.count);
    struct pl_item_fragment f = pl_item_fragment_at(&m.msg.fragments, 3);
    assert_int_equal(f.full_bytes, 4 * l.fragments[3].values);
    assert_true(f.push_bytes_max < f.full_bytes / 6);
    s.trainer.schedule.peak *= 2; /* not in the manifest itself, but in the settings */
    assert_int_equal(pl_layout_manifest(&l, &s, &other, &err), PELAGO_OK);
    assert_true(m.digest != other.digest);
    pl_manifest_release(&m, &alloc);
    pl_manifest_release(&other, &alloc);
    pl_layout_release(&l);
}

/* What an encoding loses is what feedback keeps: decoded + kept = what went in, to rounding. */
static void encoding_a_fragment_loses_nothing_but_what_it_keeps(void **state)
{
    (void)state;
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_settings s = example();
    struct pl_layout l;
    struct pl_error err;
    struct pl_prng r;
    pl_prng_seed(&r, 5, 1);
    assert_int_equal(pl_layout_init(&l, &alloc, &s, &err), PELAGO_OK);
    uint64_t n = l.fragments[7].values;
    float *values = calloc(n, sizeof *values), *kept = calloc(n, sizeof *kept), *sum = calloc(n, sizeof *sum);
    for (enum pl_codec c = PL_CODEC_FP32; c <= PL_CODEC_LAST; c++) {
        const float selective = c % 2 == 0 ? 0.5f : 0;
        uint8_t *bytes = calloc(1, pl_layout_encoded_bytes(&l, 7, c));
        for (uint64_t i = 0; i < n; i++)
            values[i] = ((float)pl_prng_below(&r, 20001) - 10000) * 1e-6f;
        memcpy(kept, values, n * sizeof *kept);
        memset(sum, 0, n * sizeof *sum);
        assert_true(pl_layout_encode_feedback(&l, 7, c, selective, kept, bytes));
        assert_true(pl_layout_check(&l, 7, c, bytes));
        pl_layout_decode_add(&l, 7, c, bytes, sum);
        for (uint64_t i = 0; i < n; i++) {
            float off = sum[i] + kept[i] - values[i];
            assert_true(off < 1e-8f && off > -1e-8f);
            assert_true(c != PL_CODEC_FP32 || kept[i] == 0);
        }
        free(bytes);
    }
    free(values);
    free(kept);
    free(sum);
    pl_layout_release(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_come_back_from_their_text),
        cmocka_unit_test(settings_follow_the_codec),
        cmocka_unit_test(the_outer_rule_is_one_for_all),
        cmocka_unit_test(settings_that_cannot_be_are_refused_by_name),
        cmocka_unit_test(fragments_hold_every_value_once),
        cmocka_unit_test(the_manifest_follows_from_the_settings),
        cmocka_unit_test(encoding_a_fragment_loses_nothing_but_what_it_keeps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
