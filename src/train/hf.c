/* train/hf.c - the files of a Hugging Face folder; see hf.h. hf_config.c knows config.json. */
#include "train/hf_int.h"

#include "base/check.h"
#include "base/fmt.h"
#include "train/files.h"

#include <string.h>

enum { JSON_BYTES_MAX = 64 << 20 };

static const char config_name[] = "config.json";
static const char single_name[] = "model.safetensors";
static const char index_name[] = "model.safetensors.index.json";
static const char tokenizer_name[] = "tokenizer.json";

/* Writing. */

/* Takes over the reference to root, which may be NULL for out of memory. */
static enum pelago_status write_json(struct pl_dir dir, const struct pl_alloc *alloc, const char *name,
                                     json_t *root, struct pl_error *err)
{
    struct pl_buf text;
    pl_buf_init(&text, alloc, JSON_BYTES_MAX);
    enum pelago_status st = root != NULL ? pl_json_print(root, 9, &text) : PELAGO_NOMEM;
    json_decref(root);
    if (st != PELAGO_OK)
        st = pl_files_fail(err, st, name, "written");
    else
        st = pl_files_write(dir, name, (struct pl_bytes){text.data, text.len}, err);
    pl_buf_release(&text);
    return st;
}

static json_t *generation_json(const struct pl_hf_special *special)
{
    if (!special->known)
        return json_pack("{s:b}", "_from_model_config", true);
    return json_pack("{s:b, s:I, s:I}", "_from_model_config", true, "bos_token_id", (json_int_t)special->id,
                     "eos_token_id", (json_int_t)special->id);
}

static json_t *tokenizer_json(const struct pl_hf_model *m, const struct pl_hf_special *special)
{
    json_t *o = json_pack("{s:s, s:I, s:b}", "tokenizer_class", "PreTrainedTokenizerFast", "model_max_length",
                          (json_int_t)m->config->context, "clean_up_tokenization_spaces", false);
    bool fits = o != NULL && (!special->known || (pl_json_put(o, "bos_token", json_string(special->text)) &&
                                                  pl_json_put(o, "eos_token", json_string(special->text))));
    if (fits)
        return o;
    json_decref(o);
    return NULL;
}

static enum pelago_status write_params(struct pl_dir dir, const struct pl_alloc *alloc,
                                       const struct pl_hf_model *m, struct pl_error *err)
{
    struct pl_st_written written;
    const struct pl_tensors *tensors = m->tensors;
    struct pl_st_item *items = pl_alloc_zero(alloc, tensors->count, sizeof items[0]);
    if (items == NULL)
        return pl_files_fail(err, PELAGO_NOMEM, single_name, "written");
    for (uint32_t i = 0; i < tensors->count; i++) {
        const struct pl_tensor *t = &tensors->at[i];
        items[i] = (struct pl_st_item){.name = t->name,
                                       .at = m->params + t->offset,
                                       .dtype = m->dtype,
                                       .vector = t->group == PL_GROUP_NORM,
                                       .rows = t->rows,
                                       .cols = t->cols};
    }
    enum pelago_status st = pl_st_write(dir, single_name, alloc, items, tensors->count, &written, err);
    pl_alloc_free(alloc, items, tensors->count * sizeof items[0]);
    return st;
}

enum pelago_status pl_hf_export(struct pl_dir dir, const struct pl_alloc *alloc, const struct pl_hf_model *m,
                                struct pl_error *err)
{
    struct pl_hf_special special;
    PL_TRY(pl_hf_special_find(m->tokenizer, alloc, &special, err));
    PL_TRY(write_json(dir, alloc, config_name, pl_hf_config_json(m, &special), err));
    PL_TRY(write_json(dir, alloc, "generation_config.json", generation_json(&special), err));
    if (m->tokenizer.len > 0) {
        PL_TRY(pl_files_write(dir, tokenizer_name, m->tokenizer, err));
        PL_TRY(write_json(dir, alloc, "tokenizer_config.json", tokenizer_json(m, &special), err));
    }
    return write_params(dir, alloc, m, err);
}

/* Reading. */

static enum pelago_status read_json(struct pl_dir dir, const struct pl_alloc *alloc, const char *name,
                                    json_t **out, struct pl_error *err)
{
    struct pl_buf text;
    pl_buf_init(&text, alloc, JSON_BYTES_MAX);
    *out = NULL;
    enum pelago_status st = pl_files_read(dir, name, &text, err);
    if (st == PELAGO_OK)
        st = pl_json_parse((struct pl_bytes){text.data, text.len}, name, out, err);
    pl_buf_release(&text);
    return st;
}

enum pelago_status pl_hf_read_config(struct pl_dir dir, const struct pl_alloc *alloc,
                                     struct pl_model_config *out, struct pl_error *err)
{
    json_t *root;
    PL_TRY(read_json(dir, alloc, config_name, &root, err));
    const struct pl_json j = {root, config_name, err};
    enum pelago_status st = pl_hf_config_read(&j, out);
    json_decref(root);
    return st;
}

/* The files of the weights: which tensor is where, and one of them open. */
struct shards {
    struct pl_dir dir;
    const struct pl_alloc *alloc;
    const struct pl_tensors *tensors;
    json_t *map; /* {tensor: file}, borrowed from root; NULL: one file */
    json_t *root;
    struct pl_st_reader file; /* open where file.file is not NULL */
    struct pl_error *err;
};

/* Tensors we do not keep: the copy of a tied embedding, and the rotary frequencies old files had. */
static bool is_known(const struct shards *s, const char *name)
{
    const char end[] = "rotary_emb.inv_freq";
    size_t len = strlen(name), end_len = sizeof end - 1;
    bool tied = pl_tensors_find(s->tensors, PL_TENSOR_HEAD, PL_NONE32) == PL_NONE32;
    if (pl_tensors_find_name(s->tensors, name) != PL_NONE32)
        return true;
    return (len > end_len && strcmp(name + len - end_len, end) == 0) ||
           (tied && strcmp(name, "lm_head.weight") == 0);
}

static enum pelago_status open_file(struct shards *s, const char *name)
{
    if (s->file.file != NULL && strcmp(s->file.name, name) == 0)
        return PELAGO_OK;
    pl_st_close(&s->file);
    PL_TRY(pl_st_open(&s->file, s->alloc, s->dir, name, s->err));
    for (uint32_t i = 0; i < s->file.count; i++)
        if (!is_known(s, s->file.tensors[i].name))
            return pl_fail(s->err, PELAGO_UNSUPPORTED, "%s has a tensor %s, which this model does not", name,
                           s->file.tensors[i].name);
    return PELAGO_OK;
}

static enum pelago_status shard_of(const struct shards *s, const char *tensor,
                                   char name[static PL_FILE_NAME_MAX])
{
    const json_t *value = json_object_get(s->map, tensor);
    const char *text = json_string_value(value);
    if (value == NULL)
        return pl_fail(s->err, PELAGO_CORRUPT, "%s: tensor %s is missing", index_name, tensor);
    if (text == NULL || text[0] == '\0' || strlen(text) >= PL_FILE_NAME_MAX || strchr(text, '/') != NULL)
        return pl_fail(s->err, PELAGO_CORRUPT, "%s: the file of tensor %s must be a name without /",
                       index_name, tensor);
    pl_fmt(name, PL_FILE_NAME_MAX, "%s", text);
    return PELAGO_OK;
}

static enum pelago_status read_tensor(struct shards *s, const struct pl_tensor *t, float *params)
{
    char name[PL_FILE_NAME_MAX] = "model.safetensors";
    if (s->map != NULL)
        PL_TRY(shard_of(s, t->name, name));
    PL_TRY(open_file(s, name));
    const struct pl_st_tensor *found = pl_st_find(&s->file, t->name);
    if (found == NULL)
        return pl_fail(s->err, PELAGO_CORRUPT, "%s: tensor %s is missing", name, t->name);
    PL_TRY(pl_st_check_shape(&s->file, found, t->rows, t->cols, s->err));
    return pl_st_read(&s->file, found, params + t->offset, NULL, s->err);
}

static enum pelago_status open_index(struct shards *s)
{
    uint64_t bytes;
    struct pl_json map;
    if (pl_files_size(s->dir, single_name, &bytes, s->err) != PELAGO_NOTFOUND)
        return PELAGO_OK;
    enum pelago_status st = read_json(s->dir, s->alloc, index_name, &s->root, s->err);
    if (st == PELAGO_NOTFOUND)
        return pl_fail(s->err, st, "there is neither %s nor %s", single_name, index_name);
    PL_TRY(st);
    const struct pl_json j = {s->root, index_name, s->err};
    PL_TRY(pl_json_object(&j, "weight_map", &map));
    s->map = map.at;
    return PELAGO_OK;
}

enum pelago_status pl_hf_read_params(struct pl_dir dir, const struct pl_alloc *alloc,
                                     const struct pl_tensors *tensors, float *params, struct pl_error *err)
{
    struct shards s = {.dir = dir, .alloc = alloc, .tensors = tensors, .err = err};
    enum pelago_status st = open_index(&s);
    for (uint32_t i = 0; i < tensors->count && st == PELAGO_OK; i++)
        st = read_tensor(&s, &tensors->at[i], params);
    pl_st_close(&s.file);
    json_decref(s.root);
    return st;
}

enum pelago_status pl_hf_read_tokenizer(struct pl_dir dir, struct pl_buf *into, struct pl_error *err)
{
    uint64_t bytes;
    if (pl_files_size(dir, tokenizer_name, &bytes, NULL) == PELAGO_NOTFOUND)
        return PELAGO_OK;
    return pl_files_read(dir, tokenizer_name, into, err);
}
