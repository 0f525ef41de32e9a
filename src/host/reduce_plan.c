/* host/reduce_plan.c - see reduce_plan.h. */
#include "host/reduce_plan.h"

#include "base/check.h"
#include "base/num.h"

enum { COMPARE_STEPS = 50 };

enum pelago_status pl_reduce_plan_init(struct pl_reduce_plan *p, const struct pl_alloc *alloc,
                                       const struct pl_settings *s, struct pl_error *err)
{
    struct pl_tensors tensors;
    if (s->algorithm == PL_ALGORITHM_DECOUPLED)
        return pl_fail(err, PELAGO_INVALID, "the run is %s, not a synchronous one",
                       pl_algorithm_name(s->algorithm));
    if (pl_tensors_init(&tensors, alloc, &s->trainer.config) != PELAGO_OK)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for the model's table of tensors");
    bool diloco = s->algorithm == PL_ALGORITHM_DILOCO;
    *p = (struct pl_reduce_plan){.algorithm = s->algorithm,
                                 .codec = diloco && s->up == PL_CODEC_FP32 ? PL_CODEC_FP32 : PL_CODEC_BF16,
                                 .learners = s->learners,
                                 .period = diloco ? s->period : 1,
                                 .floats = tensors.floats,
                                 .step_tokens = pl_trainer_options_tokens(&s->trainer),
                                 .step_sequences = (uint64_t)s->trainer.batch * s->trainer.accumulate};
    pl_tensors_release(&tensors, alloc);
    uint64_t together = p->step_tokens * p->learners;
    p->steps = (s->total_tokens - 1) / together + 1;
    p->rounds = (p->steps - 1) / p->period + 1;
    p->bucket_values = PL_REDUCE_BYTES_MAX / (uint32_t)pl_codec_bytes(p->codec, 1);
    p->buckets = (uint32_t)((p->floats - 1) / p->bucket_values + 1);
    return PELAGO_OK;
}

struct pl_reduce_range pl_reduce_bucket(const struct pl_reduce_plan *p, uint32_t bucket)
{
    pl_assert(bucket < p->buckets);
    uint64_t end = p->floats - (uint64_t)bucket * p->bucket_values;
    uint32_t count = (uint32_t)pl_min64(end, p->bucket_values);
    return (struct pl_reduce_range){end - count, count, (uint32_t)pl_codec_bytes(p->codec, count)};
}

uint32_t pl_reduce_ready(const struct pl_reduce_plan *p, uint64_t from)
{
    pl_assert(from <= p->floats);
    return from == 0 ? p->buckets : (uint32_t)((p->floats - from) / p->bucket_values);
}

uint64_t pl_reduce_steps(const struct pl_reduce_plan *p, uint64_t rounds)
{
    return rounds >= p->rounds ? p->steps : rounds * p->period;
}

uint64_t pl_reduce_tokens(const struct pl_reduce_plan *p, uint64_t rounds)
{
    return pl_reduce_steps(p, rounds) * p->step_tokens * p->learners;
}

bool pl_reduce_compares(const struct pl_reduce_plan *p, uint64_t rounds)
{
    uint32_t every = pl_max32(COMPARE_STEPS / p->period, 1);
    return rounds > 0 && (rounds % every == 0 || rounds == p->rounds);
}

bool pl_reduce_mean(const struct pl_reduce_plan *p, uint32_t bucket, const uint8_t *const *parts,
                    uint32_t count, float *scratch, uint8_t *out, uint32_t *bad)
{
    uint32_t n = pl_reduce_bucket(p, bucket).count;
    pl_assert(count > 0);
    for (uint32_t i = 0; i < count; i++) {
        *bad = i;
        if (!pl_codec_check(p->codec, parts[i], n))
            return false;
        if (i == 0)
            pl_codec_decode(p->codec, parts[i], n, scratch);
        else
            pl_codec_decode_add(p->codec, parts[i], n, scratch);
    }
    *bad = count;
    for (uint32_t i = 0; i < n; i++)
        scratch[i] /= (float)count;
    return pl_codec_encode(p->codec, scratch, n, out);
}

void pl_reduce_text(const char *text, char out[static PL_TEXT_MAX + 1])
{
    size_t n = 0;
    for (; n < PL_TEXT_MAX && text[n] != '\0'; n++)
        out[n] = text[n] >= ' ' && text[n] <= '~' ? text[n] : '?';
    out[n] = '\0';
}
