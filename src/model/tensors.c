/* model/tensors.c - see tensors.h. What each role is stands in one table; its shape follows from the config. */
#include "model/tensors.h"

#include "base/check.h"
#include "base/fmt.h"
#include "base/normal.h"

#include <math.h>
#include <string.h>

enum { ALIGN_FLOATS = 16, ROLES = PL_TENSOR_HEAD + 1 };

/* All matrices start with this deviation. Those that write into the residual stream start smaller, so that its
 * variance does not grow with the depth. */
static const double start_std = 0.02;

struct kind {
    const char *name; /* with "model.layers.N." in front when in a layer */
    enum pl_tensor_group group;
    bool in_layer;
    bool joined; /* follows the tensor before it without a gap */
    bool residual;
};

static const struct kind kinds[ROLES] = {
    [PL_TENSOR_EMBED] = {"model.embed_tokens.weight", PL_GROUP_EMBED, false, false, false},
    [PL_TENSOR_ATTN_NORM] = {"input_layernorm.weight", PL_GROUP_NORM, true, false, false},
    [PL_TENSOR_Q] = {"self_attn.q_proj.weight", PL_GROUP_MATRIX, true, false, false},
    [PL_TENSOR_K] = {"self_attn.k_proj.weight", PL_GROUP_MATRIX, true, true, false},
    [PL_TENSOR_V] = {"self_attn.v_proj.weight", PL_GROUP_MATRIX, true, true, false},
    [PL_TENSOR_Q_NORM] = {"self_attn.q_norm.weight", PL_GROUP_NORM, true, false, false},
    [PL_TENSOR_K_NORM] = {"self_attn.k_norm.weight", PL_GROUP_NORM, true, false, false},
    [PL_TENSOR_O] = {"self_attn.o_proj.weight", PL_GROUP_MATRIX, true, false, true},
    [PL_TENSOR_MLP_NORM] = {"post_attention_layernorm.weight", PL_GROUP_NORM, true, false, false},
    [PL_TENSOR_GATE] = {"mlp.gate_proj.weight", PL_GROUP_MATRIX, true, false, false},
    [PL_TENSOR_UP] = {"mlp.up_proj.weight", PL_GROUP_MATRIX, true, true, false},
    [PL_TENSOR_DOWN] = {"mlp.down_proj.weight", PL_GROUP_MATRIX, true, false, true},
    [PL_TENSOR_NORM] = {"model.norm.weight", PL_GROUP_NORM, false, false, false},
    [PL_TENSOR_HEAD] = {"lm_head.weight", PL_GROUP_EMBED, false, false, false},
};

static bool has_role(const struct pl_model_config *c, enum pl_tensor_role role)
{
    if (role == PL_TENSOR_Q_NORM || role == PL_TENSOR_K_NORM)
        return c->qk_norm;
    return role != PL_TENSOR_HEAD || !c->tied;
}

static void set_shape(struct pl_tensor *t, const struct pl_model_config *c)
{
    uint32_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    t->rows = 1;
    t->cols = c->width;
    switch (t->role) {
    case PL_TENSOR_EMBED:
    case PL_TENSOR_HEAD:
        t->rows = c->vocab;
        break;
    case PL_TENSOR_ATTN_NORM:
    case PL_TENSOR_MLP_NORM:
    case PL_TENSOR_NORM:
        break;
    case PL_TENSOR_Q:
        t->rows = q;
        break;
    case PL_TENSOR_K:
    case PL_TENSOR_V:
        t->rows = kv;
        break;
    case PL_TENSOR_Q_NORM:
    case PL_TENSOR_K_NORM:
        t->cols = c->head_dim;
        break;
    case PL_TENSOR_O:
        t->rows = c->width;
        t->cols = q;
        break;
    case PL_TENSOR_GATE:
    case PL_TENSOR_UP:
        t->rows = c->hidden;
        break;
    case PL_TENSOR_DOWN:
        t->rows = c->width;
        t->cols = c->hidden;
        break;
    }
}

static void align(struct pl_tensors *t)
{
    t->floats = (t->floats + ALIGN_FLOATS - 1) / ALIGN_FLOATS * ALIGN_FLOATS;
}

static uint64_t tensor_size(const struct pl_tensor *tensor)
{
    return (uint64_t)tensor->rows * tensor->cols;
}

static void add(struct pl_tensors *t, const struct pl_model_config *c, enum pl_tensor_role role,
                uint32_t layer)
{
    const struct kind *kind = &kinds[role];
    if (!has_role(c, role))
        return;
    if (!kind->joined)
        align(t);
    struct pl_tensor *tensor = &t->at[t->count++];
    tensor->role = role;
    tensor->group = kind->group;
    tensor->layer = layer;
    tensor->offset = t->floats;
    if (kind->in_layer)
        pl_fmt(tensor->name, sizeof tensor->name, "model.layers.%u.%s", layer, kind->name);
    else
        pl_fmt(tensor->name, sizeof tensor->name, "%s", kind->name);
    if (kind->group != PL_GROUP_NORM)
        tensor->init_std = (float)(kind->residual ? start_std / sqrt(2.0 * c->layers) : start_std);
    set_shape(tensor, c);
    t->floats += tensor_size(tensor);
    t->params += tensor_size(tensor);
}

static uint32_t count_tensors(const struct pl_model_config *c)
{
    uint32_t count = 0;
    for (unsigned role = 1; role < ROLES; role++)
        if (has_role(c, (enum pl_tensor_role)role))
            count += kinds[role].in_layer ? c->layers : 1;
    return count;
}

enum pelago_status pl_tensors_init(struct pl_tensors *t, const struct pl_alloc *alloc,
                                   const struct pl_model_config *config)
{
    pl_assert(pl_model_config_check(config, NULL) == PELAGO_OK);
    uint32_t count = count_tensors(config);
    pl_assert(count <= PL_TENSORS_MAX);
    *t = (struct pl_tensors){.at = pl_alloc_zero(alloc, count, sizeof *t->at)};
    if (t->at == NULL)
        return PELAGO_NOMEM;
    add(t, config, PL_TENSOR_EMBED, PL_NONE32);
    for (uint32_t layer = 0; layer < config->layers; layer++)
        for (unsigned role = PL_TENSOR_ATTN_NORM; role <= PL_TENSOR_DOWN; role++)
            add(t, config, (enum pl_tensor_role)role, layer);
    add(t, config, PL_TENSOR_NORM, PL_NONE32);
    add(t, config, PL_TENSOR_HEAD, PL_NONE32);
    align(t);
    pl_assert(t->count == count && t->params == pl_model_config_params(config));
    return PELAGO_OK;
}

void pl_tensors_release(struct pl_tensors *t, const struct pl_alloc *alloc)
{
    pl_alloc_free(alloc, t->at, t->count * sizeof *t->at);
    *t = (struct pl_tensors){0};
}

uint32_t pl_tensors_find(const struct pl_tensors *t, enum pl_tensor_role role, uint32_t layer)
{
    for (uint32_t i = 0; i < t->count; i++)
        if (t->at[i].role == role && t->at[i].layer == layer)
            return i;
    return PL_NONE32;
}

uint32_t pl_tensors_find_name(const struct pl_tensors *t, const char *name)
{
    for (uint32_t i = 0; i < t->count; i++)
        if (strcmp(t->at[i].name, name) == 0)
            return i;
    return PL_NONE32;
}

void pl_tensors_fill(const struct pl_tensors *t, float *block, uint64_t seed)
{
    struct pl_normal normal;
    uint64_t at = 0;
    pl_normal_init(&normal);
    for (uint32_t i = 0; i < t->count; i++) {
        const struct pl_tensor *tensor = &t->at[i];
        uint64_t end = tensor->offset + tensor_size(tensor);
        double std = (double)tensor->init_std;
        struct pl_prng r;
        pl_prng_seed(&r, seed, i);
        for (; at < tensor->offset; at++)
            block[at] = 0;
        for (; at < end; at++)
            block[at] = std > 0 ? (float)(pl_normal_next(&normal, &r) * std) : 1.0f;
    }
    for (; at < t->floats; at++)
        block[at] = 0;
}
