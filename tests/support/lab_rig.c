/* tests/support/lab_rig.c - see lab_rig.h. */
#include "lab_rig.h"

#include "base/prng.h"
#include "data/tokens.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

enum { VOCAB = 64, TOKENS = 60000, VALID = 3000 };

static const char common[] = "seeds: 1..3\n"
                             "model: 1m\n"
                             "data: one\n"
                             "model.layers: 1\n"
                             "model.width: 32\n"
                             "model.heads: 2\n"
                             "model.kv_heads: 2\n"
                             "model.head_dim: 16\n"
                             "model.hidden: 64\n"
                             "model.vocab: 64\n"
                             "model.context: 64\n"
                             "train.seq: 16\n"
                             "global_batch: 8\n"
                             "data.eval_tokens: 1000\n"
                             "sync.fragments: 4\n"
                             "sync.period: 4\n"
                             "train.peak: 0.01\n";

/* Mostly a walk through the vocabulary with the text's own stride, so that there is something to learn. */
static void write_text(const struct lab_rig *r, const char *name, uint32_t stride, uint64_t count)
{
    struct pl_tokens_writer *w;
    struct pl_error err;
    struct pl_prng prng;
    uint32_t ids[1000], at = 0;
    pl_prng_seed(&prng, stride, 1);
    assert_int_equal(pl_tokens_create(&w, &r->lab.alloc, tempdir_path(&r->dir, name), VOCAB, 0, &err),
                     PELAGO_OK);
    for (uint64_t done = 0; done < count; done += 1000) {
        for (uint32_t i = 0; i < 1000; i++) {
            at =
                pl_prng_chance(&prng, 300000) ? (uint32_t)pl_prng_below(&prng, VOCAB) : (at + stride) % VOCAB;
            ids[i] = at;
        }
        assert_int_equal(pl_tokens_append(w, ids, 1000, &err), PELAGO_OK);
    }
    assert_int_equal(pl_tokens_commit(w, count, 1, &err), PELAGO_OK);
}

void lab_rig_init(struct lab_rig *r)
{
    memset(r, 0, sizeof *r);
    tempdir_init(&r->dir);
    r->lab = (struct pl_lab){.alloc = pl_alloc_system(), .folder = r->dir.path, .threads = 1};
    pl_conf_init(&r->experiment.conf);
    write_text(r, "one.tok", 5, TOKENS);
    write_text(r, "one.valid.tok", 5, VALID);
    write_text(r, "two.tok", 11, TOKENS);
    write_text(r, "two.valid.tok", 11, VALID);
}

void lab_rig_release(struct lab_rig *r)
{
    pl_lab_experiment_release(&r->experiment);
    tempdir_release(&r->dir);
}

bool lab_rig_read(struct lab_rig *r, const char *lines)
{
    char text[4096];
    struct pl_error err = {PELAGO_OK, ""};
    int len = snprintf(text, sizeof text, "%s%s", common, lines);
    tempdir_put(&r->dir, "test.yaml", text, (size_t)len);
    pl_lab_experiment_release(&r->experiment);
    bool good = pl_lab_experiment_read(&r->experiment, &r->lab.alloc, tempdir_path(&r->dir, "test.yaml"),
                                       &err) == PELAGO_OK;
    (void)snprintf(r->error, sizeof r->error, "%s", err.text);
    return good;
}

bool lab_rig_row(struct lab_rig *r, const char *name, struct pl_lab_row *row)
{
    struct pl_error err = {PELAGO_OK, ""};
    uint32_t i = 0;
    while (i < r->experiment.row_count && strcmp(r->experiment.rows[i], name) != 0)
        i++;
    assert_true(i < r->experiment.row_count);
    bool good = pl_lab_experiment_row(&r->experiment, i, false, &r->lab, row, &err) == PELAGO_OK;
    (void)snprintf(r->error, sizeof r->error, "%s", err.text);
    return good;
}

void lab_rig_run(struct lab_rig *r, const char *name, uint64_t seed, struct pl_lab_result *result)
{
    struct pl_lab_row row;
    struct pl_error err = {PELAGO_OK, ""};
    if (!lab_rig_row(r, name, &row))
        fail_msg("row %s: %s", name, r->error);
    if (pl_lab_run(&r->lab, &row, seed, result, &err) != PELAGO_OK)
        fail_msg("%s: %s", name, err.text);
    if (result->exit != PL_SIM_OK)
        fail_msg("%s: %s", name, result->what);
}
