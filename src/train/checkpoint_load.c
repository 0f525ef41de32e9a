/* train/checkpoint_load.c - loading; see checkpoint.h. */
#include "train/checkpoint_int.h"

#include "base/check.h"
#include "base/fmt.h"
#include "train/files.h"

#include <math.h>
#include <string.h>

_Static_assert((int)PL_CHECKPOINT_MODEL == (int)PL_CKPT_MODEL &&
                   (int)PL_CHECKPOINT_OPTIMIZER == (int)PL_CKPT_OPTIMIZER,
               "a part is the kind of its file");

struct pl_checkpoint_reader {
    struct pl_alloc alloc;
    struct pl_dir dir;
    struct pl_ckpt_state state;
};

static enum pelago_status check_size(const struct pl_checkpoint_reader *r, enum pl_ckpt_kind kind,
                                     struct pl_error *err)
{
    const struct pl_ckpt_file *f = &r->state.files[kind];
    uint64_t bytes = 0;
    if (f->name[0] == '\0')
        return PELAGO_OK;
    enum pelago_status st = pl_files_size(r->dir, f->name, &bytes, err);
    if (st == PELAGO_NOTFOUND)
        return pl_fail(err, PELAGO_CORRUPT, "checkpoint %s is missing, though %s names it", f->name,
                       r->state.name);
    PL_TRY(st);
    if (bytes != f->bytes)
        return pl_fail(err, PELAGO_CORRUPT, "checkpoint %s is damaged (it has %lu bytes, expected %lu)",
                       f->name, bytes, f->bytes);
    return PELAGO_OK;
}

/* The optimizer's file is looked at by those who read it: a model can be used without. */
static enum pelago_status check_sizes(const struct pl_checkpoint_reader *r, struct pl_error *err)
{
    PL_TRY(check_size(r, PL_CKPT_MODEL, err));
    return check_size(r, PL_CKPT_TOKENIZER, err);
}

enum pelago_status pl_checkpoint_open(struct pl_checkpoint_reader **out, struct pl_dir dir,
                                      const struct pl_alloc *alloc, uint64_t step, struct pl_error *err)
{
    *out = NULL;
    if (step == PL_NONE64)
        PL_TRY(pl_checkpoint_newest(dir, PL_NONE64, &step, err));
    struct pl_checkpoint_reader *r = pl_alloc_zero(alloc, 1, sizeof *r);
    if (r == NULL)
        return pl_fail(err, PELAGO_NOMEM, "the checkpoint of step %lu cannot be opened: out of memory", step);
    r->alloc = *alloc;
    r->dir = dir;
    enum pelago_status st = pl_ckpt_state_read(&r->state, dir, &r->alloc, step, err);
    if (st == PELAGO_NOTFOUND)
        st = pl_fail(err, st, "there is no checkpoint of step %lu", step);
    if (st == PELAGO_OK)
        st = check_sizes(r, err);
    if (st != PELAGO_OK) {
        pl_checkpoint_close(r);
        return st;
    }
    *out = r;
    return PELAGO_OK;
}

void pl_checkpoint_close(struct pl_checkpoint_reader *r)
{
    if (r == NULL)
        return;
    struct pl_alloc alloc = r->alloc;
    pl_ckpt_state_release(&r->state);
    pl_alloc_free(&alloc, r, sizeof *r);
}

static bool is_there(struct pl_dir dir, const struct pl_alloc *alloc, uint64_t step)
{
    struct pl_checkpoint_reader *r;
    if (pl_checkpoint_open(&r, dir, alloc, step, NULL) != PELAGO_OK)
        return false;
    pl_assert(r != NULL);
    bool whole = check_size(r, PL_CKPT_OPTIMIZER, NULL) == PELAGO_OK;
    pl_checkpoint_close(r);
    return whole;
}

enum pelago_status pl_checkpoint_advise(struct pl_dir dir, const struct pl_alloc *alloc, uint64_t step,
                                        enum pelago_status st, struct pl_error *err)
{
    uint64_t older;
    if (st != PELAGO_CORRUPT)
        return st;
    if (step == PL_NONE64 && pl_checkpoint_newest(dir, PL_NONE64, &step, NULL) != PELAGO_OK)
        return st;
    if (pl_checkpoint_newest(dir, step, &older, NULL) != PELAGO_OK || !is_there(dir, alloc, older))
        return st;
    const struct pl_error why = *err;
    return pl_fail(err, st, "%s; --step %lu goes back to the checkpoint before it", why.text, older);
}

uint64_t pl_checkpoint_step(const struct pl_checkpoint_reader *r)
{
    return r->state.step;
}

const struct pl_model_config *pl_checkpoint_config(const struct pl_checkpoint_reader *r)
{
    return &r->state.config;
}

static bool has_file(const struct pl_checkpoint_reader *r, enum pl_ckpt_kind kind)
{
    return r->state.files[kind].name[0] != '\0';
}

bool pl_checkpoint_has_optimizer(const struct pl_checkpoint_reader *r)
{
    return has_file(r, PL_CKPT_OPTIMIZER);
}

bool pl_checkpoint_has_tokenizer(const struct pl_checkpoint_reader *r)
{
    return has_file(r, PL_CKPT_TOKENIZER);
}

const char *pl_checkpoint_tokenizer_name(const struct pl_checkpoint_reader *r)
{
    return r->state.files[PL_CKPT_TOKENIZER].name;
}

static bool digest_of(const struct pl_ckpt_file *f, const char *tensor, uint64_t *digest)
{
    return pl_json_bits_of(json_object_get(f->tensors, tensor), digest);
}

bool pl_checkpoint_digest(const struct pl_checkpoint_reader *r, const char *tensor, uint64_t *digest)
{
    return digest_of(&r->state.files[PL_CKPT_MODEL], tensor, digest) ||
           digest_of(&r->state.files[PL_CKPT_OPTIMIZER], tensor, digest);
}

enum pelago_status pl_checkpoint_open_part(struct pl_checkpoint_reader *r, enum pl_checkpoint_part part,
                                           struct pl_st_reader *st, struct pl_error *err)
{
    const struct pl_ckpt_file *f = &r->state.files[part];
    struct pl_error why;
    if (f->name[0] == '\0')
        return pl_fail(err, PELAGO_NOTFOUND, "the checkpoint of step %lu has no optimizer state",
                       r->state.step);
    PL_TRY(check_size(r, (enum pl_ckpt_kind)part, err));
    enum pelago_status status = pl_st_open(st, &r->alloc, r->dir, f->name, &why);
    if (status == PELAGO_OK && st->header_digest == f->digest)
        return PELAGO_OK;
    if (status == PELAGO_OK) {
        pl_st_close(st);
        return pl_fail(err, PELAGO_CORRUPT, "checkpoint %s: its header is damaged (its checksum differs)",
                       f->name);
    }
    /* The state file says that a good header was written: whatever displeases the reader now is damage. */
    if (status == PELAGO_CORRUPT || status == PELAGO_LIMIT || status == PELAGO_UNSUPPORTED)
        return pl_fail(err, PELAGO_CORRUPT, "checkpoint %s: its header is damaged (%s)", f->name, why.text);
    return pl_fail(err, status, "checkpoint %s", why.text);
}

static enum pelago_status read_tensor(const struct pl_ckpt_file *f, struct pl_st_reader *st,
                                      const struct pl_named_span *span, struct pl_error *err)
{
    uint64_t expected = 0, digest = 0;
    const struct pl_st_tensor *t = pl_st_find(st, span->name);
    if (t == NULL)
        return pl_fail(err, PELAGO_INVALID, "checkpoint %s: tensor %s is missing", f->name, span->name);
    PL_TRY(pl_st_check_shape(st, t, span->rows, span->cols, err));
    PL_TRY(pl_st_read(st, t, span->at, &digest, err));
    if (!digest_of(f, span->name, &expected))
        return pl_fail(err, PELAGO_CORRUPT, "checkpoint %s: the state file has no checksum for tensor %s",
                       f->name, span->name);
    if (digest != expected)
        return pl_fail(err, PELAGO_CORRUPT, "checkpoint %s: tensor %s is damaged (its checksum differs)",
                       f->name, span->name);
    return PELAGO_OK;
}

/* All that were asked for are there; so are others where the counts differ. */
static enum pelago_status check_count(const struct pl_ckpt_file *f, const struct pl_st_reader *st,
                                      uint32_t count, struct pl_error *err)
{
    if (st->count == count)
        return PELAGO_OK;
    return pl_fail(err, PELAGO_INVALID, "checkpoint %s has %u tensors, expected %u", f->name, st->count,
                   count);
}

enum pelago_status pl_checkpoint_read_params(struct pl_checkpoint_reader *r, const struct pl_tensors *tensors,
                                             float *params, struct pl_error *err)
{
    const struct pl_ckpt_file *f = &r->state.files[PL_CKPT_MODEL];
    struct pl_st_reader file;
    PL_TRY(pl_checkpoint_open_part(r, PL_CHECKPOINT_MODEL, &file, err));
    enum pelago_status st = PELAGO_OK;
    for (uint32_t i = 0; i < tensors->count && st == PELAGO_OK; i++) {
        const struct pl_tensor *t = &tensors->at[i];
        const struct pl_named_span span = {t->name, t->rows, t->cols, params + t->offset};
        st = read_tensor(f, &file, &span, err);
    }
    if (st == PELAGO_OK)
        st = check_count(f, &file, tensors->count, err);
    pl_st_close(&file);
    return st;
}

enum pelago_status pl_checkpoint_read_spans(struct pl_checkpoint_reader *r, const struct pl_named_span *spans,
                                            uint32_t count, struct pl_error *err)
{
    const struct pl_ckpt_file *f = &r->state.files[PL_CKPT_OPTIMIZER];
    struct pl_st_reader file;
    PL_TRY(pl_checkpoint_open_part(r, PL_CHECKPOINT_OPTIMIZER, &file, err));
    enum pelago_status st = PELAGO_OK;
    for (uint32_t i = 0; i < count && st == PELAGO_OK; i++)
        st = read_tensor(f, &file, &spans[i], err);
    if (st == PELAGO_OK)
        st = check_count(f, &file, count, err);
    pl_st_close(&file);
    return st;
}

enum pelago_status pl_checkpoint_read_tokenizer(struct pl_checkpoint_reader *r, struct pl_buf *into,
                                                struct pl_error *err)
{
    const struct pl_ckpt_file *f = &r->state.files[PL_CKPT_TOKENIZER];
    size_t before = into->len;
    if (!pl_checkpoint_has_tokenizer(r))
        return pl_fail(err, PELAGO_NOTFOUND, "the checkpoint of step %lu has no tokenizer", r->state.step);
    PL_TRY(pl_files_read(r->dir, f->name, into, err));
    if (pl_hash64(into->data + before, into->len - before, 0) != f->digest)
        return pl_fail(err, PELAGO_CORRUPT, "checkpoint %s is damaged (its checksum differs)", f->name);
    return PELAGO_OK;
}

static enum pelago_status read_real(const struct pl_json *j, const char *name, double *out)
{
    char word[8];
    if (!json_is_string(pl_json_find(j, name)))
        return pl_json_real(j, name, out);
    PL_TRY(pl_json_text(j, name, word, sizeof word));
    *out = strcmp(word, "inf") == 0    ? (double)INFINITY
           : strcmp(word, "-inf") == 0 ? -(double)INFINITY
                                       : (double)NAN;
    return PELAGO_OK;
}

static enum pelago_status read_field(const struct pl_json *j, const struct pl_member *f)
{
    switch (f->kind) {
    case PL_MEMBER_COUNT:
        return pl_json_count(j, f->name, PL_COUNT_MAX, f->at);
    case PL_MEMBER_BITS:
        return pl_json_bits(j, f->name, f->at);
    case PL_MEMBER_REAL:
        return read_real(j, f->name, f->at);
    case PL_MEMBER_FLAG:
        return pl_json_flag(j, f->name, f->at);
    case PL_MEMBER_TEXT:
        return pl_json_text(j, f->name, f->at, f->cap);
    }
    pl_assert(false);
    return PELAGO_INVALID;
}

enum pelago_status pl_checkpoint_read_fields(struct pl_checkpoint_reader *r, const struct pl_member *fields,
                                             uint32_t count, struct pl_error *err)
{
    const struct pl_json root = {r->state.root, r->state.name, err};
    struct pl_json state;
    PL_TRY(pl_json_object(&root, "state", &state));
    for (uint32_t i = 0; i < count; i++)
        if (!fields[i].optional || pl_json_has(&state, fields[i].name))
            PL_TRY(read_field(&state, &fields[i]));
    return PELAGO_OK;
}

enum pelago_status pl_checkpoint_print_state(const struct pl_checkpoint_reader *r, struct pl_buf *out)
{
    return pl_json_print(json_object_get(r->state.root, "state"), 9, out);
}
