/* model/config.c - see config.h. The shapes counted here are those of model/tensors.c; a test compares the two. */
#include "model/config.h"

#include "base/check.h"
#include "base/fmt.h"

#include <string.h>

struct preset {
    const char *name;
    struct pl_model_config config; /* completed when asked for */
};

static const struct preset presets[] = {
    {"1m", {.layers = 4, .width = 128, .heads = 4, .vocab = 2048, .tied = true}},
    {"5m", {.layers = 5, .width = 256, .vocab = 4096, .tied = true}},
    {"14m", {.layers = 6, .width = 384, .vocab = 8192, .tied = true}},
    {"35m", {.layers = 10, .width = 512, .vocab = 8192, .tied = true}},
    {"124m", {.layers = 12, .width = 768, .vocab = 50304, .tied = true}},
    {"350m", {.layers = 24, .width = 1024, .vocab = 50304, .tied = true}},
    {"1b",
     {.layers = 16,
      .width = 2048,
      .kv_heads = 8,
      .hidden = 8192,
      .vocab = 50304,
      .context = 2048,
      .tied = true}},
};
enum { PRESETS = sizeof presets / sizeof presets[0] };

const char *pl_model_config_preset_name(uint32_t index)
{
    return index < PRESETS ? presets[index].name : NULL;
}

enum pelago_status pl_model_config_preset(const char *name, struct pl_model_config *out, struct pl_error *err)
{
    char list[100];
    size_t len = 0;
    for (uint32_t i = 0; i < PRESETS; i++) {
        if (strcmp(name, presets[i].name) == 0) {
            *out = presets[i].config;
            pl_model_config_complete(out);
            return PELAGO_OK;
        }
        len += pl_fmt(list + len, sizeof list - len, "%s%s", i > 0 ? ", " : "", presets[i].name);
    }
    return pl_fail(err, PELAGO_NOTFOUND, "the presets are %s; there is none called %s", list, name);
}

void pl_model_config_complete(struct pl_model_config *c)
{
    if (c->heads == 0)
        c->heads = c->width < 64 ? 1 : c->width / 64;
    if (c->kv_heads == 0)
        c->kv_heads = c->heads;
    if (c->head_dim == 0 && c->width % c->heads == 0)
        c->head_dim = c->width / c->heads;
    if (c->hidden == 0) /* 8/3 of the width in units of 32 are width / 12 */
        c->hidden = (uint32_t)(((uint64_t)c->width + 11) / 12 * 32);
    if (c->context == 0)
        c->context = 1024;
    if (c->rope_theta == 0)
        c->rope_theta = 10000;
    if (c->norm_eps == 0)
        c->norm_eps = 1e-5f;
}

static enum pelago_status check_ranges(const struct pl_model_config *c, struct pl_error *err)
{
    const struct {
        const char *name;
        uint32_t value, min, max;
    } dims[] = {
        {"layers", c->layers, 1, PL_LAYERS_MAX},       {"width", c->width, 1, PL_WIDTH_MAX},
        {"heads", c->heads, 1, PL_HEADS_MAX},          {"kv_heads", c->kv_heads, 1, PL_HEADS_MAX},
        {"head_dim", c->head_dim, 2, PL_HEAD_DIM_MAX}, {"hidden", c->hidden, 1, PL_HIDDEN_MAX},
        {"vocab", c->vocab, 2, PL_VOCAB_MAX},          {"context", c->context, 1, PL_CONTEXT_MAX},
    };
    for (unsigned i = 0; i < sizeof dims / sizeof dims[0]; i++)
        if (dims[i].value < dims[i].min || dims[i].value > dims[i].max)
            return pl_fail(err, PELAGO_INVALID, "the model's %s is %u, expected %u to %u", dims[i].name,
                           dims[i].value, dims[i].min, dims[i].max);
    return PELAGO_OK;
}

enum pelago_status pl_model_config_check(const struct pl_model_config *c, struct pl_error *err)
{
    /* The completion found no head_dim: say what it lacked, not that 0 is out of range. */
    if (c->head_dim == 0 && c->heads > 0 && c->width % c->heads != 0)
        return pl_fail(
            err, PELAGO_INVALID,
            "the model's width is %u, expected a multiple of its heads (%u) unless head_dim is given",
            c->width, c->heads);
    PL_TRY(check_ranges(c, err));
    if (c->heads % c->kv_heads != 0)
        return pl_fail(err, PELAGO_INVALID,
                       "the model's kv_heads is %u, expected a number that divides its heads (%u)",
                       c->kv_heads, c->heads);
    if (c->head_dim % 2 != 0)
        return pl_fail(err, PELAGO_INVALID, "the model's head_dim is %u, expected an even number",
                       c->head_dim);
    /* Written so that NaN fails too. */
    if (!(c->rope_theta >= 1.0f && c->rope_theta <= 1e12f))
        return pl_fail(err, PELAGO_INVALID, "the model's rope_theta is out of range, expected 1 to 1e12");
    if (!(c->norm_eps >= 1e-12f && c->norm_eps <= 0.1f))
        return pl_fail(err, PELAGO_INVALID, "the model's norm_eps is out of range, expected 1e-12 to 0.1");
    uint64_t params = pl_model_config_params(c);
    if (params >= PL_PARAMS_MAX)
        return pl_fail(err, PELAGO_INVALID, "the model would have %lu parameters, expected fewer than %lu",
                       params, PL_PARAMS_MAX);
    return PELAGO_OK;
}

/* Elements of the matrices of one layer. */
static uint64_t layer_matrix_params(const struct pl_model_config *c)
{
    uint64_t q = (uint64_t)c->heads * c->head_dim, kv = (uint64_t)c->kv_heads * c->head_dim;
    return c->width * (2 * q + 2 * kv + 3 * (uint64_t)c->hidden);
}

uint64_t pl_model_config_params(const struct pl_model_config *c)
{
    uint64_t norms = 2 * (uint64_t)c->width + (c->qk_norm ? 2 * (uint64_t)c->head_dim : 0);
    uint64_t embeddings = (c->tied ? 1 : 2) * (uint64_t)c->vocab * c->width;
    return embeddings + c->layers * (layer_matrix_params(c) + norms) + c->width;
}

double pl_model_config_flops(const struct pl_model_config *c, uint32_t seq)
{
    double matrices = (double)(c->layers * layer_matrix_params(c) + (uint64_t)c->vocab * c->width);
    double attention = (double)c->layers * c->heads * c->head_dim * seq;
    return 6 * matrices + 6 * attention;
}
