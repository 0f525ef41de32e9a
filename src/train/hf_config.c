/* train/hf_config.c - config.json <-> struct pl_model_config; see hf.h. */
#include "train/hf_int.h"

#include "base/check.h"
#include "base/limits.h"
#include "data/tokenizer.h"

#include <string.h>

/* What the two architectures take for granted where config.json is silent. */
static const struct family {
    const char *type;
    const char *architecture;
    bool qk_norm;
    uint32_t head_dim; /* 0: width / heads */
    uint32_t context;
} families[] = {
    {"llama", "LlamaForCausalLM", false, 0, 2048},
    {"qwen3", "Qwen3ForCausalLM", true, 128, 32768},
};

static bool put_special(json_t *o, const struct pl_hf_special *special)
{
    const char *const names[] = {"bos_token_id", "eos_token_id"};
    bool fits = true;
    for (unsigned i = 0; i < 2 && fits; i++)
        fits = pl_json_put(o, names[i], special->known ? json_integer(special->id) : json_null());
    return fits;
}

json_t *pl_hf_config_json(const struct pl_hf_model *m, const struct pl_hf_special *special)
{
    const struct pl_model_config *c = m->config;
    const struct family *family = &families[c->qk_norm ? 1 : 0];
    double theta = pl_json_short(c->rope_theta);
    json_t *o = json_pack(
        "{s:[s], s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:f, s:f, s:n, s:b, s:b, s:b, s:f, s:f, "
        "s:s, s:b}",
        "architectures", family->architecture, "model_type", family->type, "vocab_size", (json_int_t)c->vocab,
        "hidden_size", (json_int_t)c->width, "intermediate_size", (json_int_t)c->hidden, "num_hidden_layers",
        (json_int_t)c->layers, "num_attention_heads", (json_int_t)c->heads, "num_key_value_heads",
        (json_int_t)c->kv_heads, "head_dim", (json_int_t)c->head_dim, "max_position_embeddings",
        (json_int_t)c->context, "hidden_act", "silu", "rms_norm_eps", pl_json_short(c->norm_eps),
        "rope_theta", theta, "rope_scaling", "tie_word_embeddings", c->tied, "attention_bias", false,
        "mlp_bias", false, "attention_dropout", 0.0, "initializer_range", 0.02, "torch_dtype",
        m->dtype == PL_DTYPE_BF16 ? "bfloat16" : "float32", "use_cache", true);
    bool fits = o != NULL && put_special(o, special);
    if (fits && c->qk_norm)
        fits = pl_json_put(o, "use_sliding_window", json_false());
    if (fits)
        return o;
    json_decref(o);
    return NULL;
}

static enum pelago_status unsupported(const struct pl_json *j, const char *member, const char *expected)
{
    return pl_fail(j->err, PELAGO_UNSUPPORTED, "%s: \"%s\" must be %s; pelago's model has nothing else",
                   j->file, member, expected);
}

static enum pelago_status refuse_flag(const struct pl_json *j, const char *member)
{
    bool on = false;
    if (!pl_json_has(j, member))
        return PELAGO_OK;
    PL_TRY(pl_json_flag(j, member, &on));
    return on ? unsupported(j, member, "false") : PELAGO_OK;
}

static enum pelago_status require_text(const struct pl_json *j, const char *member, const char *wanted)
{
    char text[PL_NAME_MAX];
    if (!pl_json_has(j, member))
        return PELAGO_OK;
    PL_TRY(pl_json_text(j, member, text, sizeof text));
    if (strcmp(text, wanted) != 0)
        return pl_fail(j->err, PELAGO_UNSUPPORTED, "%s: \"%s\" is \"%s\"; pelago's model has \"%s\" only",
                       j->file, member, text, wanted);
    return PELAGO_OK;
}

/* A plain rotary embedding: older files say rope_theta and rope_scaling, newer ones rope_parameters. */
static enum pelago_status read_rope(const struct pl_json *j, float *theta)
{
    double value = 10000;
    const char *const types[] = {"rope_scaling.rope_type", "rope_scaling.type", "rope_parameters.rope_type"};
    for (unsigned i = 0; i < sizeof types / sizeof types[0]; i++)
        PL_TRY(require_text(j, types[i], "default"));
    const char *const thetas[] = {"rope_theta", "rope_parameters.rope_theta"};
    for (unsigned i = 0; i < sizeof thetas / sizeof thetas[0]; i++)
        if (pl_json_has(j, thetas[i]))
            PL_TRY(pl_json_real(j, thetas[i], &value));
    const char *const partials[] = {"partial_rotary_factor", "rope_parameters.partial_rotary_factor"};
    for (unsigned i = 0; i < sizeof partials / sizeof partials[0]; i++) {
        double factor = 1;
        if (pl_json_has(j, partials[i]))
            PL_TRY(pl_json_real(j, partials[i], &factor));
        if (factor != 1)
            return unsupported(j, partials[i], "1");
    }
    *theta = (float)value;
    return PELAGO_OK;
}

static enum pelago_status refuse_others(const struct pl_json *j)
{
    size_t i;
    json_t *type;
    PL_TRY(require_text(j, "hidden_act", "silu"));
    PL_TRY(refuse_flag(j, "attention_bias"));
    PL_TRY(refuse_flag(j, "mlp_bias"));
    PL_TRY(refuse_flag(j, "use_sliding_window"));
    if (pl_json_has(j, "quantization_config"))
        return pl_fail(j->err, PELAGO_UNSUPPORTED,
                       "%s: the weights are quantized; pelago reads F32, BF16 and F16", j->file);
    json_array_foreach(pl_json_find(j, "layer_types"), i,
                       type) if (!json_is_string(type) ||
                                 strcmp(json_string_value(type), "full_attention") !=
                                     0) return unsupported(j, "layer_types", "full_attention everywhere");
    return PELAGO_OK;
}

static enum pelago_status read_family(const struct pl_json *j, const struct family **out)
{
    char type[PL_NAME_MAX];
    PL_TRY(pl_json_text(j, "model_type", type, sizeof type));
    for (unsigned i = 0; i < sizeof families / sizeof families[0]; i++)
        if (strcmp(type, families[i].type) == 0) {
            *out = &families[i];
            return PELAGO_OK;
        }
    return pl_fail(j->err, PELAGO_UNSUPPORTED,
                   "%s: \"model_type\" is \"%s\"; pelago reads \"llama\" and \"qwen3\"", j->file, type);
}

static enum pelago_status read_or(const struct pl_json *j, const char *member, uint32_t otherwise,
                                  uint32_t *out)
{
    *out = otherwise;
    return pl_json_has(j, member) ? pl_json_u32(j, member, out) : PELAGO_OK;
}

enum pelago_status pl_hf_config_read(const struct pl_json *j, struct pl_model_config *out)
{
    struct pl_model_config c = {.layers = 0};
    const struct family *family = families;
    struct pl_error why;
    double eps = 1e-6;
    PL_TRY(read_family(j, &family));
    PL_TRY(refuse_others(j));
    c.qk_norm = family->qk_norm;
    PL_TRY(pl_json_u32(j, "num_hidden_layers", &c.layers));
    PL_TRY(pl_json_u32(j, "hidden_size", &c.width));
    PL_TRY(pl_json_u32(j, "intermediate_size", &c.hidden));
    PL_TRY(pl_json_u32(j, "num_attention_heads", &c.heads));
    PL_TRY(pl_json_u32(j, "vocab_size", &c.vocab));
    PL_TRY(read_or(j, "num_key_value_heads", c.heads, &c.kv_heads));
    uint32_t head_dim = c.heads > 0 && c.width % c.heads == 0 ? c.width / c.heads : 0;
    PL_TRY(read_or(j, "head_dim", family->head_dim > 0 ? family->head_dim : head_dim, &c.head_dim));
    PL_TRY(read_or(j, "max_position_embeddings", family->context, &c.context));
    if (pl_json_has(j, "tie_word_embeddings"))
        PL_TRY(pl_json_flag(j, "tie_word_embeddings", &c.tied));
    if (pl_json_has(j, "rms_norm_eps"))
        PL_TRY(pl_json_real(j, "rms_norm_eps", &eps));
    c.norm_eps = (float)eps;
    PL_TRY(read_rope(j, &c.rope_theta));
    enum pelago_status st = pl_model_config_check(&c, &why);
    if (st != PELAGO_OK)
        return pl_fail(j->err, st, "%s: %s", j->file, why.text);
    *out = c;
    return PELAGO_OK;
}

enum pelago_status pl_hf_special_find(struct pl_bytes tokenizer, const struct pl_alloc *alloc,
                                      struct pl_hf_special *out, struct pl_error *err)
{
    struct pl_tokenizer *t;
    struct pl_error why;
    *out = (struct pl_hf_special){.known = false};
    if (tokenizer.len == 0)
        return PELAGO_OK;
    enum pelago_status st = pl_tokenizer_parse(&t, alloc, tokenizer.data, tokenizer.len, &why);
    if (st != PELAGO_OK)
        return pl_fail(err, st, "tokenizer.json: %s", why.text);
    uint32_t end = pl_tokenizer_end_of_text(t);
    if (end != PL_NONE32) {
        const struct pl_bytes text = pl_tokenizer_bytes(t, end);
        pl_assert(text.len < sizeof out->text); /* one of the few names it may have */
        memcpy(out->text, text.data, text.len);
        out->id = end;
        out->known = true;
    }
    pl_tokenizer_free(t);
    return PELAGO_OK;
}
