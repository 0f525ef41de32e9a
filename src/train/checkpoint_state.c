/* train/checkpoint_state.c - the state file of a checkpoint, text <-> struct. See checkpoint_int.h.
 *
 * The file begins with {"xxh3": "16 digits" and the digest is that of every byte after those digits, so that damage
 * anywhere in the file is seen before a word of it is believed.
 */
#include "train/checkpoint_int.h"

#include "base/check.h"
#include "base/fmt.h"
#include "base/hash.h"
#include "train/files.h"

#include <math.h>
#include <string.h>

enum { FORMAT = 1, DIGITS_AT = 13, DIGITS = 16, BODY_AT = DIGITS_AT + DIGITS };
static const char head[] = "{\n  \"xxh3\": \"";
_Static_assert(sizeof head - 1 == DIGITS_AT, "the digest follows the head");

static const char *const kind_names[] = {"model", "optimizer", "tokenizer"};

/* Names. */

void pl_ckpt_name_put(const struct pl_ckpt_name *n, char out[static PL_FILE_NAME_MAX])
{
    static const char *const stems[] = {"model", "optimizer", "tokenizer", "state", "state"};
    static const char *const ends[] = {".safetensors", ".safetensors", ".json", ".json", ".json.partial"};
    char zeros[9] = "00000000", again[16] = "";
    char digits[24];
    size_t len = pl_fmt(digits, sizeof digits, "%lu", n->step);
    pl_assert(n->kind < PL_CKPT_KINDS);
    zeros[len < 8 ? 8 - len : 0] = '\0';
    if (n->again > 0)
        pl_fmt(again, sizeof again, "-%u", n->again);
    pl_fmt(out, PL_FILE_NAME_MAX, "%s-%s%s%s%s", stems[n->kind], zeros, digits, again, ends[n->kind]);
}

static bool parse_number(const char **text, uint64_t max, uint64_t *out)
{
    const char *p = *text;
    *out = 0;
    for (; *p >= '0' && *p <= '9'; p++) {
        *out = *out * 10 + (uint64_t)(*p - '0');
        if (*out > max)
            return false;
    }
    bool any = p > *text;
    *text = p;
    return any;
}

bool pl_ckpt_name_parse(const char *text, struct pl_ckpt_name *n)
{
    char again[PL_FILE_NAME_MAX];
    const char *p = strchr(text, '-');
    uint64_t number = 0;
    if (p == NULL)
        return false;
    p++;
    if (!parse_number(&p, PL_COUNT_MAX, &n->step))
        return false;
    if (*p == '-') {
        p++;
        if (!parse_number(&p, UINT32_MAX, &number))
            return false;
    }
    n->again = (uint32_t)number;
    for (unsigned kind = 0; kind < PL_CKPT_KINDS; kind++) {
        n->kind = (enum pl_ckpt_kind)kind;
        pl_ckpt_name_put(n, again);
        if (strcmp(again, text) == 0)
            return kind < PL_CKPT_STATE || n->again == 0;
    }
    return false;
}

/* Writing. */

static json_t *real_value(double v)
{
    if (isfinite(v))
        return json_real(v);
    return json_string(isnan(v) ? "nan" : v > 0 ? "inf" : "-inf");
}

static json_t *field_value(const struct pl_member *f)
{
    switch (f->kind) {
    case PL_MEMBER_COUNT:
        pl_assert(*(const uint64_t *)f->at <= PL_COUNT_MAX);
        return json_integer((json_int_t) * (const uint64_t *)f->at);
    case PL_MEMBER_BITS:
        return pl_json_bits_value(*(const uint64_t *)f->at);
    case PL_MEMBER_REAL:
        return real_value(*(const double *)f->at);
    case PL_MEMBER_FLAG:
        return json_boolean(*(const bool *)f->at);
    case PL_MEMBER_TEXT:
        return json_string(f->at);
    }
    pl_assert(false);
    return NULL;
}

static bool put_fields(json_t *root, const struct pl_checkpoint *c)
{
    json_t *state = json_object();
    bool fits = true;
    for (uint32_t i = 0; i < c->field_count && state != NULL && fits; i++)
        fits = pl_json_put(state, c->fields[i].name, field_value(&c->fields[i]));
    return pl_json_put(root, "state", state) && fits;
}

static bool put_config(json_t *root, const struct pl_model_config *c)
{
    json_t *o = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:b, s:f, s:f}", "layers",
                          (json_int_t)c->layers, "width", (json_int_t)c->width, "heads", (json_int_t)c->heads,
                          "kv_heads", (json_int_t)c->kv_heads, "head_dim", (json_int_t)c->head_dim, "hidden",
                          (json_int_t)c->hidden, "vocab", (json_int_t)c->vocab, "context",
                          (json_int_t)c->context, "tied", c->tied, "qk_norm", c->qk_norm, "rope_theta",
                          pl_json_short(c->rope_theta), "norm_eps", pl_json_short(c->norm_eps));
    return pl_json_put(root, "config", o);
}

static json_t *file_value(const struct pl_ckpt_data *d, enum pl_ckpt_kind kind)
{
    json_t *o = json_pack("{s:s, s:I, s:o}", "file", d->name, "bytes", (json_int_t)d->bytes, "xxh3",
                          pl_json_bits_value(d->digest));
    if (o == NULL || kind == PL_CKPT_TOKENIZER)
        return o;
    json_t *tensors = json_object();
    bool fits = tensors != NULL;
    for (uint32_t i = 0; i < d->item_count && fits; i++)
        fits = json_object_set_new(tensors, d->items[i].name, pl_json_bits_value(d->items[i].digest)) == 0;
    if (pl_json_put(o, "tensors", tensors) && fits)
        return o;
    json_decref(o);
    return NULL;
}

static bool put_files(json_t *root, const struct pl_ckpt_data *data)
{
    json_t *files = json_object();
    bool fits = true;
    for (unsigned kind = 0; kind < PL_CKPT_STATE && files != NULL && fits; kind++)
        if (data[kind].name[0] != '\0')
            fits = pl_json_put(files, kind_names[kind], file_value(&data[kind], (enum pl_ckpt_kind)kind));
    return pl_json_put(root, "files", files) && fits;
}

/* The digits that belong at DIGITS_AT. */
static void digest_of(const struct pl_buf *text, char digits[static DIGITS])
{
    pl_assert(text->len > BODY_AT);
    uint64_t digest = pl_hash64(text->data + BODY_AT, text->len - BODY_AT, 0);
    for (unsigned i = 0; i < DIGITS; i++)
        digits[i] = "0123456789abcdef"[digest >> (60 - 4 * i) & 15];
}

enum pelago_status pl_ckpt_state_print(const struct pl_checkpoint *c, uint64_t step,
                                       const struct pl_ckpt_data data[static PL_CKPT_STATE],
                                       struct pl_buf *out)
{
    char digits[DIGITS];
    pl_assert(out->len == 0 && step <= PL_COUNT_MAX);
    json_t *root = json_object();
    bool fits = root != NULL && pl_json_put(root, "xxh3", pl_json_bits_value(0)) &&
                pl_json_put(root, "format", json_integer(FORMAT)) &&
                pl_json_put(root, "step", json_integer((json_int_t)step)) && put_fields(root, c) &&
                put_config(root, c->config) && put_files(root, data);
    enum pelago_status st = fits ? pl_json_print(root, 17, out) : PELAGO_NOMEM;
    json_decref(root);
    if (st != PELAGO_OK)
        return st;
    pl_assert(memcmp(out->data, head, DIGITS_AT) == 0);
    digest_of(out, digits);
    memcpy(out->data + DIGITS_AT, digits, DIGITS);
    return PELAGO_OK;
}

/* Reading. */

static bool digest_is_right(const struct pl_buf *text)
{
    char digits[DIGITS];
    if (text->len <= BODY_AT || memcmp(text->data, head, DIGITS_AT) != 0)
        return false;
    digest_of(text, digits);
    return memcmp(text->data + DIGITS_AT, digits, DIGITS) == 0;
}

static enum pelago_status read_config(const struct pl_json *root, struct pl_model_config *c)
{
    struct pl_json j;
    double theta = 0, eps = 0;
    PL_TRY(pl_json_object(root, "config", &j));
    PL_TRY(pl_json_u32(&j, "layers", &c->layers));
    PL_TRY(pl_json_u32(&j, "width", &c->width));
    PL_TRY(pl_json_u32(&j, "heads", &c->heads));
    PL_TRY(pl_json_u32(&j, "kv_heads", &c->kv_heads));
    PL_TRY(pl_json_u32(&j, "head_dim", &c->head_dim));
    PL_TRY(pl_json_u32(&j, "hidden", &c->hidden));
    PL_TRY(pl_json_u32(&j, "vocab", &c->vocab));
    PL_TRY(pl_json_u32(&j, "context", &c->context));
    PL_TRY(pl_json_flag(&j, "tied", &c->tied));
    PL_TRY(pl_json_flag(&j, "qk_norm", &c->qk_norm));
    PL_TRY(pl_json_real(&j, "rope_theta", &theta));
    PL_TRY(pl_json_real(&j, "norm_eps", &eps));
    c->rope_theta = (float)theta;
    c->norm_eps = (float)eps;
    return pl_model_config_check(c, root->err);
}

static enum pelago_status read_file(const struct pl_ckpt_state *s, const struct pl_json *files,
                                    enum pl_ckpt_kind kind, struct pl_ckpt_file *f)
{
    struct pl_json j;
    struct pl_json tensors;
    struct pl_ckpt_name name;
    PL_TRY(pl_json_object(files, kind_names[kind], &j));
    PL_TRY(pl_json_text(&j, "file", f->name, sizeof f->name));
    PL_TRY(pl_json_count(&j, "bytes", INT64_MAX, &f->bytes));
    PL_TRY(pl_json_bits(&j, "xxh3", &f->digest));
    if (!pl_ckpt_name_parse(f->name, &name) || name.kind != kind || name.step != s->step)
        return pl_fail(files->err, PELAGO_CORRUPT, "%s names %s, which is no %s file of step %lu", s->name,
                       f->name, kind_names[kind], s->step);
    if (kind == PL_CKPT_TOKENIZER)
        return PELAGO_OK;
    PL_TRY(pl_json_object(&j, "tensors", &tensors));
    f->tensors = tensors.at;
    return PELAGO_OK;
}

static enum pelago_status take_apart(struct pl_ckpt_state *s, uint64_t step, struct pl_error *err)
{
    const struct pl_json root = {s->root, s->name, err};
    struct pl_json files;
    uint64_t format = 0;
    PL_TRY(pl_json_count(&root, "format", UINT32_MAX, &format));
    if (format != FORMAT)
        return pl_fail(err, PELAGO_UNSUPPORTED, "%s has format %lu; this pelago reads format %u", s->name,
                       format, (unsigned)FORMAT);
    PL_TRY(pl_json_count(&root, "step", PL_COUNT_MAX, &s->step));
    if (s->step != step)
        return pl_fail(err, PELAGO_CORRUPT, "%s is of step %lu: it has been renamed", s->name, s->step);
    PL_TRY(read_config(&root, &s->config));
    PL_TRY(pl_json_object(&root, "files", &files));
    for (unsigned kind = 0; kind < PL_CKPT_STATE; kind++)
        if (kind == PL_CKPT_MODEL || pl_json_has(&files, kind_names[kind]))
            PL_TRY(read_file(s, &files, (enum pl_ckpt_kind)kind, &s->files[kind]));
    return PELAGO_OK;
}

enum pelago_status pl_ckpt_state_read(struct pl_ckpt_state *s, struct pl_dir dir,
                                      const struct pl_alloc *alloc, uint64_t step, struct pl_error *err)
{
    const struct pl_ckpt_name name = {PL_CKPT_STATE, step, 0};
    struct pl_buf text;
    *s = (struct pl_ckpt_state){.root = NULL};
    pl_ckpt_name_put(&name, s->name);
    pl_buf_init(&text, alloc, PL_STATE_BYTES_MAX);
    enum pelago_status st = pl_files_read(dir, s->name, &text, err);
    if (st == PELAGO_OK && !digest_is_right(&text))
        st = pl_fail(err, PELAGO_CORRUPT, "checkpoint %s is damaged (its checksum differs)", s->name);
    if (st == PELAGO_OK)
        st = pl_json_parse((struct pl_bytes){text.data, text.len}, s->name, &s->root, err);
    if (st == PELAGO_OK)
        st = take_apart(s, step, err);
    pl_buf_release(&text);
    if (st != PELAGO_OK)
        pl_ckpt_state_release(s);
    return st;
}

void pl_ckpt_state_release(struct pl_ckpt_state *s)
{
    json_decref(s->root);
    s->root = NULL;
}
