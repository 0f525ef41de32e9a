/* cmd/cmd_inspect.c - pelago inspect: what a checkpoint, a Hugging Face folder or a safetensors file holds.
 *
 * Everything is read and, where digests are known, compared with them. Damage does not end the look around: it is
 * marked, counted, and makes the exit code 1.
 */
#include "cmd/cmd.h"

#include "cmd/inspect_print.h"
#include "cmd/options.h"
#include "cmd/text.h"
#include "cmd/weights.h"
#include "train/checkpoint.h"
#include "train/hf.h"

#include <string.h>
#include <sys/stat.h>

static const char command[] = "inspect";

struct inspection {
    struct pl_alloc alloc;
    struct pl_posix_dir *posix;
    struct pl_dir dir;
    const char *path; /* as the person gave it */
    struct pl_report report;
    bool all;
    uint64_t step;
    struct pl_error err;
};

static bool ends_with(const char *text, const char *end)
{
    size_t len = strlen(text), end_len = strlen(end);
    return len >= end_len && strcmp(text + len - end_len, end) == 0;
}

static void add_values(void *user, const float *values, size_t count)
{
    pl_values_add(user, values, count);
}

/* Reads one tensor and prints its line. With a reader the digest is compared. */
static enum pelago_status look_at(struct inspection *in, struct pl_st_reader *file,
                                  const struct pl_st_tensor *t, const struct pl_checkpoint_reader *r,
                                  bool print)
{
    struct pl_values values = {.count = 0};
    uint64_t digest = 0, expected = 0;
    PL_TRY(pl_st_scan(file, t, add_values, &values, &digest, &in->err));
    enum pl_verdict verdict = PL_VERDICT_UNKNOWN;
    if (r != NULL && pl_checkpoint_digest(r, t->name, &expected))
        verdict = digest == expected ? PL_VERDICT_GOOD : PL_VERDICT_DAMAGED;
    pl_report_tensor(&in->report, t, &values, verdict, print);
    return PELAGO_OK;
}

static enum pelago_status look_at_all(struct inspection *in, struct pl_st_reader *file,
                                      const struct pl_checkpoint_reader *r, bool print)
{
    for (uint32_t i = 0; i < file->count; i++)
        PL_TRY(look_at(in, file, &file->tensors[i], r, print));
    return PELAGO_OK;
}

static enum pelago_status inspect_file(struct inspection *in, const char *name)
{
    struct pl_st_reader file;
    PL_TRY(pl_st_open(&file, &in->alloc, in->dir, name, &in->err));
    pl_report_begin(&in->report, "safetensors file", in->path);
    enum pelago_status st = look_at_all(in, &file, NULL, true);
    pl_st_close(&file);
    return st;
}

static enum pelago_status inspect_parts(struct inspection *in, struct pl_checkpoint_reader *r)
{
    for (unsigned part = PL_CHECKPOINT_MODEL; part <= PL_CHECKPOINT_OPTIMIZER; part++) {
        struct pl_st_reader file;
        if (part == PL_CHECKPOINT_OPTIMIZER && !pl_checkpoint_has_optimizer(r))
            break;
        PL_TRY(pl_checkpoint_open_part(r, (enum pl_checkpoint_part)part, &file, &in->err));
        enum pelago_status st = look_at_all(in, &file, r, part == PL_CHECKPOINT_MODEL || in->all);
        pl_st_close(&file);
        PL_TRY(st);
    }
    return PELAGO_OK;
}

static enum pelago_status inspect_open(struct inspection *in, struct pl_checkpoint_reader *r)
{
    struct pl_buf state;
    pl_buf_init(&state, &in->alloc, PL_TOKENIZER_BYTES_MAX);
    pl_report_begin(&in->report, "checkpoint", in->path);
    pl_report_step(&in->report, pl_checkpoint_step(r), pl_checkpoint_has_optimizer(r));
    pl_report_config(&in->report, pl_checkpoint_config(r));
    enum pelago_status st = pl_checkpoint_print_state(r, &state);
    if (st == PELAGO_OK)
        pl_report_state(&in->report, (struct pl_bytes){state.data, state.len});
    state.len = 0;
    if (st == PELAGO_OK && pl_checkpoint_has_tokenizer(r))
        st = pl_checkpoint_read_tokenizer(r, &state, &in->err);
    if (st == PELAGO_OK)
        st = inspect_parts(in, r);
    pl_buf_release(&state);
    return st;
}

static enum pelago_status inspect_checkpoint(struct inspection *in)
{
    struct pl_checkpoint_reader *r;
    PL_TRY(pl_checkpoint_open(&r, in->dir, &in->alloc, in->step, &in->err));
    enum pelago_status st = inspect_open(in, r);
    pl_checkpoint_close(r);
    return st;
}

/* The files that hold tensors, in the order of their names: shards are numbered. */
struct shard_name {
    char after[PL_FILE_NAME_MAX];
    char next[PL_FILE_NAME_MAX]; /* "": none */
};

static enum pelago_status find_next(void *user, const char *name)
{
    struct shard_name *s = user;
    if (ends_with(name, ".safetensors") && strcmp(name, s->after) > 0 &&
        (s->next[0] == '\0' || strcmp(name, s->next) < 0))
        memcpy(s->next, name, strlen(name) + 1);
    return PELAGO_OK;
}

static enum pelago_status inspect_hf(struct inspection *in)
{
    struct pl_model_config config;
    struct shard_name shard = {"", ""};
    PL_TRY(pl_hf_read_config(in->dir, &in->alloc, &config, &in->err));
    pl_report_begin(&in->report, "Hugging Face folder", in->path);
    pl_report_config(&in->report, &config);
    while (in->dir.ops->list(in->dir.self, find_next, &shard) == PELAGO_OK && shard.next[0] != '\0') {
        struct pl_st_reader file;
        PL_TRY(pl_st_open(&file, &in->alloc, in->dir, shard.next, &in->err));
        enum pelago_status st = look_at_all(in, &file, NULL, true);
        pl_st_close(&file);
        PL_TRY(st);
        memcpy(shard.after, shard.next, sizeof shard.after);
        shard.next[0] = '\0';
    }
    return PELAGO_OK;
}

static enum pelago_status inspect_folder(struct inspection *in)
{
    uint64_t step;
    enum pelago_status st = pl_checkpoint_newest(in->dir, PL_NONE64, &step, &in->err);
    if (st == PELAGO_OK || in->step != PL_NONE64)
        return inspect_checkpoint(in);
    if (st == PELAGO_NOTFOUND)
        st = inspect_hf(in);
    if (st == PELAGO_NOTFOUND)
        return pl_fail(&in->err, st,
                       "this is neither a folder of checkpoints (no state-*.json) nor a Hugging Face "
                       "folder (no config.json)");
    return st;
}

/* Splits a path into folder and name; "file" is in ".". */
static enum pelago_status split(const char *path, char folder[static PL_PATH_MAX], const char **name,
                                struct pl_error *err)
{
    const char *slash = strrchr(path, '/');
    size_t len = slash != NULL ? (size_t)(slash - path) + 1 : 0;
    *name = path + len;
    if (len >= PL_PATH_MAX || strlen(*name) >= PL_FILE_NAME_MAX)
        return pl_fail(err, PELAGO_LIMIT, "the name of the file is too long");
    memcpy(folder, len > 0 ? path : ".", len > 0 ? len : 1);
    folder[len > 0 ? len : 1] = '\0';
    return PELAGO_OK;
}

static enum pelago_status inspect_path(struct inspection *in)
{
    struct stat info;
    char folder[PL_PATH_MAX];
    const char *name = NULL;
    bool is_file = stat(in->path, &info) == 0 && S_ISREG(info.st_mode);
    if (is_file && !ends_with(in->path, ".safetensors"))
        return pl_fail(&in->err, PELAGO_INVALID,
                       "%s is no .safetensors file; of anything else give the folder", in->path);
    if (is_file)
        PL_TRY(split(in->path, folder, &name, &in->err));
    PL_TRY(pl_posix_dir_open(&in->posix, &in->alloc, is_file ? folder : in->path, PL_POSIX_DIR_EXISTING,
                             &in->err));
    in->dir = pl_posix_dir_table(in->posix);
    return is_file ? inspect_file(in, name) : inspect_folder(in);
}

int pl_cmd_inspect(int argc, char **argv)
{
    struct inspection in = {.alloc = pl_alloc_system(), .step = PL_NONE64};
    const struct pl_option table[] = {
        {"step", "N", "the checkpoint of this step (default: the newest)", PL_OPTION_U64, &in.step, 0,
         PL_COUNT_MAX},
        {"all", NULL, "list the optimizer's tensors, too", PL_OPTION_FLAG, &in.all, 0, 0},
        {"json", NULL, "print one JSON object", PL_OPTION_FLAG, &in.report.json, 0, 0},
    };
    const struct pl_options options = {command, "FOLDER-OR-FILE [OPTION...]",
                                       "Says what a folder of checkpoints, a Hugging Face folder or a "
                                       "safetensors file holds, reads all of it,\n"
                                       "and compares it with the checksums it was written with.",
                                       table, sizeof table / sizeof table[0]};
    struct pl_words words;
    int code;
    if (!pl_options_parse(&options, argc, argv, &words, &code))
        return code;
    if (words.count != 1)
        return pl_usage_error(command, "expected one folder or file");
    in.path = words.at[0];
    enum pelago_status st = inspect_path(&in);
    pl_report_end(&in.report, st != PELAGO_OK ? &in.err : NULL);
    code = st == PELAGO_OK && in.report.damaged == 0 ? PL_EXIT_OK : PL_EXIT_FAILED;
    if (st != PELAGO_OK) /* without a folder the sentence has the path already */
        code = in.posix != NULL ? pl_failure_at(command, in.path, in.posix, &in.err)
                                : pl_failure(command, &in.err);
    pl_posix_dir_close(in.posix);
    return code;
}
