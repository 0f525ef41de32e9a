/* cmd/train_sample.c - see train_sample.h. */
#include "cmd/train_sample.h"

#include "base/num.h"
#include "model/infer.h"
#include "model/sampler.h"

/* What a text begins after: the end of another, or a line end. */
static uint32_t first_token(const struct pl_tokenizer *t)
{
    uint32_t end = pl_tokenizer_end_of_text(t), vocab = pl_tokenizer_vocab(t);
    for (uint32_t id = 0; end == PL_NONE32 && id < vocab; id++) {
        struct pl_bytes bytes = pl_tokenizer_bytes(t, id);
        if (bytes.len == 1 && *(const char *)bytes.data == '\n')
            return id;
    }
    return end == PL_NONE32 ? 0 : end;
}

static void generate(struct pl_infer *inf, struct pl_sampler *sampler, const struct pl_tokenizer *t,
                     uint32_t max, struct pl_buf *out)
{
    uint32_t end = pl_tokenizer_end_of_text(t), vocab = pl_tokenizer_vocab(t), token = first_token(t);
    struct pl_decoder decoder = {.held_len = 0};
    for (uint32_t i = 0; i < max; i++) {
        token = pl_sampler_pick(sampler, pl_infer_step(inf, &token, 1));
        if (token == end || token >= vocab || pl_decoder_push(&decoder, t, token, out) != PELAGO_OK)
            break;
    }
    (void)pl_decoder_finish(&decoder, out);
}

void pl_train_sample(const struct pl_alloc *alloc, const struct pl_model_config *config,
                     const struct pl_tensors *tensors, const float *params,
                     const struct pl_tokenizer *tokenizer, uint32_t max_tokens, struct pl_buf *out)
{
    struct pl_infer_options options = {.config = *config, .context = pl_min32(config->context, max_tokens)};
    struct pl_sampler_options how = {.temperature = 0.8, .top_p = 0.95};
    /* A vocabulary may be padded: what has no token must not come. */
    uint32_t vocab = pl_min32(config->vocab, pl_tokenizer_vocab(tokenizer));
    struct pl_infer *inf = NULL;
    struct pl_sampler sampler;
    if (pl_infer_new(&inf, alloc, &options, tensors, params, NULL) != PELAGO_OK)
        return;
    if (pl_sampler_init(&sampler, alloc, vocab, &how, NULL) == PELAGO_OK) {
        pl_sampler_seed(&sampler, 1, 0);
        generate(inf, &sampler, tokenizer, options.context, out);
        pl_sampler_release(&sampler);
    }
    pl_infer_free(inf);
}
