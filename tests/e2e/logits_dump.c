/* tests/e2e/logits_dump.c - makes a small checkpoint, or writes the logits a checkpoint gives; for comparisons with
 * other programs.
 *
 *     logits_dump make FOLDER LAYERS WIDTH HEADS KV_HEADS HIDDEN VOCAB FLAGS SEED     FLAGS: letters of t (tied), q (QK-norm)
 *     logits_dump run FOLDER BACKEND BATCH SEQ TOKENS LOGITS                      BACKEND: a name, or best
 *
 * TOKENS holds int32 (BATCH, SEQ), LOGITS gets float (BATCH, SEQ, VOCAB), both little-endian without a header.
 */
#include "model/model.h"
#include "os/dir_posix.h"
#include "os/map.h"
#include "train/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct pl_alloc alloc;
static struct pl_error err = {.text = "wrong arguments"};

static uint32_t number(const char *text)
{
    return (uint32_t)strtoul(text, NULL, 10);
}

static enum pelago_status make(char **argv)
{
    struct pl_posix_dir *dir;
    struct pl_tensors tensors;
    struct pl_model_config config = {.layers = number(argv[1]),
                                     .width = number(argv[2]),
                                     .heads = number(argv[3]),
                                     .kv_heads = number(argv[4]),
                                     .hidden = number(argv[5]),
                                     .vocab = number(argv[6]),
                                     .tied = strchr(argv[7], 't') != NULL,
                                     .qk_norm = strchr(argv[7], 'q') != NULL};
    pl_model_config_complete(&config);
    PL_TRY(pl_model_config_check(&config, &err));
    PL_TRY(pl_posix_dir_open(&dir, &alloc, argv[0], PL_POSIX_DIR_CREATE, &err));
    PL_TRY(pl_tensors_init(&tensors, &alloc, &config));
    float *params = pl_alloc_zero(&alloc, tensors.floats, sizeof *params);
    if (params == NULL)
        return PELAGO_NOMEM;
    pl_tensors_fill(&tensors, params, number(argv[8]));
    /* Larger than at the start of training, so that attention and norms are put to use. */
    for (uint64_t i = 0; i < tensors.floats; i++)
        params[i] *= i % 3 == 0 ? 3.0f : 2.0f;
    const struct pl_checkpoint c = {.config = &config, .tensors = &tensors, .params = params};
    enum pelago_status st = pl_checkpoint_save(pl_posix_dir_table(dir), &alloc, 1, &c, 0, &err);
    pl_alloc_free(&alloc, params, tensors.floats * sizeof *params);
    pl_tensors_release(&tensors, &alloc);
    pl_posix_dir_close(dir);
    return st;
}

static enum pelago_status write_logits(struct pl_model *m, const struct pl_batch *b, const char *path)
{
    size_t count = (size_t)b->batch * b->seq * m->options.config.vocab;
    float *logits = pl_alloc_zero(&alloc, count, sizeof *logits);
    FILE *f = fopen(path, "wb");
    if (logits == NULL || f == NULL)
        return pl_fail(&err, PELAGO_IO, "%s cannot be written", path);
    pl_model_logits(m, b, logits);
    bool written = fwrite(logits, sizeof *logits, count, f) == count;
    written = fclose(f) == 0 && written;
    pl_alloc_free(&alloc, logits, count * sizeof *logits);
    return written ? PELAGO_OK : pl_fail(&err, PELAGO_IO, "%s cannot be written", path);
}

static enum pelago_status load(char **argv, struct pl_model **out)
{
    struct pl_posix_dir *dir;
    struct pl_checkpoint_reader *r;
    PL_TRY(pl_posix_dir_open(&dir, &alloc, argv[0], PL_POSIX_DIR_EXISTING, &err));
    PL_TRY(pl_checkpoint_open(&r, pl_posix_dir_table(dir), &alloc, PL_NONE64, &err));
    const struct pl_model_options options = {.config = *pl_checkpoint_config(r),
                                             .backend = strcmp(argv[1], "best") == 0 ? NULL : argv[1],
                                             .threads = 1,
                                             .batch = number(argv[2]),
                                             .seq = number(argv[3])};
    PL_TRY(pl_model_new(out, &alloc, &options, &err));
    PL_TRY(pl_checkpoint_read_params(r, &(*out)->tensors, (*out)->params, &err));
    pl_checkpoint_close(r);
    pl_posix_dir_close(dir);
    pl_model_refresh(*out);
    return PELAGO_OK;
}

static enum pelago_status run(char **argv)
{
    struct pl_model *m;
    struct pl_map tokens;
    PL_TRY(load(argv, &m));
    PL_TRY(pl_map_open(&tokens, argv[4], &err));
    const struct pl_batch b = {.batch = number(argv[2]),
                               .seq = number(argv[3]),
                               .tokens = (const int32_t *)(const void *)tokens.data};
    if (tokens.len != sizeof(int32_t) * b.batch * b.seq)
        return pl_fail(&err, PELAGO_INVALID, "%s has %lu bytes", argv[4], (uint64_t)tokens.len);
    enum pelago_status st = write_logits(m, &b, argv[5]);
    pl_map_close(&tokens);
    pl_model_free(m);
    return st;
}

int main(int argc, char **argv)
{
    enum pelago_status st = PELAGO_INVALID;
    alloc = pl_alloc_system();
    if (argc == 11 && strcmp(argv[1], "make") == 0)
        st = make(argv + 2);
    else if (argc == 8 && strcmp(argv[1], "run") == 0)
        st = run(argv + 2);
    if (st != PELAGO_OK)
        fprintf(stderr, "logits_dump: %s\n", err.text);
    return st == PELAGO_OK ? 0 : 1;
}
