/* train/tales_stream.c - see tales_stream.h. */
#include "train/tales_stream.h"

#include "base/check.h"
#include "base/num.h"

enum {
    CHUNK = 1 << 14,         /* tokens */
    STORIES_BITS = 20,       /* a chunk never has 2^20 stories: each is a token at least */
    CHUNK_NUMBERS_BITS = 40, /* beyond that the stream begins again */
};

struct slot {
    uint64_t number; /* of the chunk; PL_NONE64: none */
    struct pl_ids ids;
    struct pl_buf text;
    enum pelago_status status;
    struct pl_error err;
};

/* What one thread needs. */
struct worker {
    struct pl_encoder *encoder;
};

struct pl_tales_tokens {
    struct pl_alloc alloc;
    const struct pl_tales *tales;
    const struct pl_tokenizer *tokenizer;
    struct pl_pool *pool;
    uint64_t seed;
    uint32_t threads, slot_count;
    struct worker *workers; /* one a thread */
    struct slot *slots;     /* chunk n is in slot n % slot_count */
    uint64_t first;         /* of the chunks being made */
};

static enum pelago_status add_story(const struct pl_tales_tokens *s, struct pl_encoder *encoder,
                                    struct slot *slot, uint64_t story)
{
    uint32_t end = pl_tokenizer_end_of_text(s->tokenizer);
    slot->text.len = 0;
    if (pl_tales_story(s->tales, s->seed, PL_TALES_TRAIN, story, &slot->text, NULL) != PELAGO_OK)
        return pl_fail(&slot->err, PELAGO_NOMEM, "there is no memory for a tale");
    size_t len = slot->text.len - (sizeof PL_TALES_SEPARATOR - 1);
    PL_TRY(pl_encoder_run(encoder, slot->text.data, len, PL_SPECIALS_AS_TEXT, &slot->ids, &slot->err));
    if (end != PL_NONE32 && pl_ids_push(&slot->ids, end) != PELAGO_OK)
        return pl_fail(&slot->err, PELAGO_NOMEM, "there is no memory for a tale");
    return PELAGO_OK;
}

static void make_chunk(void *user, uint32_t task, uint32_t thread)
{
    struct pl_tales_tokens *s = user;
    uint64_t number = s->first + task;
    struct slot *slot = &s->slots[number % s->slot_count];
    uint64_t story = (number % (UINT64_C(1) << CHUNK_NUMBERS_BITS)) << STORIES_BITS;
    slot->ids.count = 0;
    slot->status = PELAGO_OK;
    while (slot->status == PELAGO_OK && slot->ids.count < CHUNK)
        slot->status = add_story(s, s->workers[thread].encoder, slot, story++);
    slot->number = slot->status == PELAGO_OK ? number : PL_NONE64;
}

/* The slot that holds the chunk, made now with those that follow it if need be. */
static enum pelago_status chunk(struct pl_tales_tokens *s, uint64_t number, const struct slot **out,
                                struct pl_error *err)
{
    struct slot *slot = &s->slots[number % s->slot_count];
    *out = slot;
    if (slot->number == number)
        return PELAGO_OK;
    s->first = number;
    pl_pool_run(s->pool, s->slot_count, make_chunk, s);
    if (slot->status != PELAGO_OK)
        return pl_fail(err, slot->status, "%s", slot->err.text);
    return PELAGO_OK;
}

static enum pelago_status read_tokens(void *self, uint64_t at, uint64_t count, int32_t *out,
                                      struct pl_error *err)
{
    struct pl_tales_tokens *s = self;
    while (count > 0) {
        const struct slot *slot = NULL;
        uint64_t from = at % CHUNK, part = pl_min64(count, CHUNK - from);
        PL_TRY(chunk(s, at / CHUNK, &slot, err));
        for (uint64_t i = 0; i < part; i++)
            out[i] = (int32_t)slot->ids.at[from + i];
        at += part;
        out += part;
        count -= part;
    }
    return PELAGO_OK;
}

static bool make_parts(struct pl_tales_tokens *s)
{
    s->workers = pl_alloc_zero(&s->alloc, s->threads, sizeof *s->workers);
    s->slots = pl_alloc_zero(&s->alloc, s->slot_count, sizeof *s->slots);
    if (s->workers == NULL || s->slots == NULL)
        return false;
    for (uint32_t i = 0; i < s->slot_count; i++) {
        s->slots[i].number = PL_NONE64;
        pl_ids_init(&s->slots[i].ids, &s->alloc);
        pl_buf_init(&s->slots[i].text, &s->alloc, PL_TALES_STORY_BYTES_MAX);
    }
    for (uint32_t i = 0; i < s->threads; i++)
        if ((s->workers[i].encoder = pl_encoder_new(&s->alloc, s->tokenizer)) == NULL)
            return false;
    return true;
}

enum pelago_status pl_tales_tokens_new(struct pl_tales_tokens **out, const struct pl_alloc *alloc,
                                       const struct pl_tales *tales, const struct pl_tokenizer *tokenizer,
                                       struct pl_pool *pool, uint64_t seed, struct pl_error *err)
{
    struct pl_tales_tokens *s = pl_alloc_zero(alloc, 1, sizeof *s);
    *out = NULL;
    if (s != NULL) {
        uint32_t threads = pl_pool_threads(pool);
        *s = (struct pl_tales_tokens){.alloc = *alloc,
                                      .tales = tales,
                                      .tokenizer = tokenizer,
                                      .pool = pool,
                                      .seed = seed,
                                      .threads = threads,
                                      .slot_count = 2 * threads};
        if (make_parts(s)) {
            *out = s;
            return PELAGO_OK;
        }
    }
    pl_tales_tokens_free(s);
    return pl_fail(err, PELAGO_NOMEM, "there is no memory for the tales");
}

void pl_tales_tokens_free(struct pl_tales_tokens *s)
{
    if (s == NULL)
        return;
    struct pl_alloc alloc = s->alloc;
    for (uint32_t i = 0; s->slots != NULL && i < s->slot_count; i++) {
        if (s->slots[i].ids.alloc != NULL)
            pl_ids_release(&s->slots[i].ids);
        if (s->slots[i].text.alloc != NULL)
            pl_buf_release(&s->slots[i].text);
    }
    for (uint32_t i = 0; s->workers != NULL && i < s->threads; i++)
        pl_encoder_free(s->workers[i].encoder);
    pl_alloc_free(&alloc, s->slots, s->slot_count * sizeof *s->slots);
    pl_alloc_free(&alloc, s->workers, s->threads * sizeof *s->workers);
    pl_alloc_free(&alloc, s, sizeof *s);
}

struct pl_stream pl_tales_tokens_stream(struct pl_tales_tokens *s)
{
    return (struct pl_stream){PL_NONE64, read_tokens, s};
}
