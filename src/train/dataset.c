/* train/dataset.c - see dataset.h. */
#include "train/dataset.h"

#include "base/check.h"
#include "base/cpu.h"
#include "base/num.h"
#include "data/bpe_train.h"
#include "data/encode.h"
#include "data/input.h"
#include "data/tokenizer_train.h"
#include "data/tokens.h"
#include "train/tales_stream.h"

#include <string.h>

enum {
    SAMPLE_BYTES = 8 << 20, /* of the tales, to train a tokenizer on */
    TALES_SEED = 1,         /* of that sample and of the validation set: all runs share them */
    HEAD_BYTES = 64 << 10,  /* of a file, to see what it is */
    HELD_OUT = 20,          /* one token in so many, at most */
};

/* One of the two sources: at most one of its members is there. */
struct source {
    const char *name;
    struct pl_tokens *file;
    struct pl_ids ids;
    struct pl_tales_tokens *tales;
};

struct pl_dataset_parts {
    struct pl_alloc alloc;
    struct pl_pool *pool;
    struct pl_tales *tales;
    struct source train, valid;
};

static enum pelago_status no_memory(struct pl_error *err)
{
    return pl_fail(err, PELAGO_NOMEM, "there is no memory for the data");
}

static bool is_tales(const char *name)
{
    return name != NULL && strcmp(name, PL_DATASET_TALES) == 0;
}

/* ---- documents ---- */

/* Gives tales of the training split to a sink, one document each. */
static enum pelago_status tell(struct pl_dataset_parts *p, const struct pl_text_sink *sink,
                               struct pl_error *err)
{
    struct pl_buf text;
    uint64_t bytes = 0;
    enum pelago_status st = PELAGO_OK;
    pl_buf_init(&text, &p->alloc, PL_TALES_STORY_BYTES_MAX);
    for (uint64_t i = 0; st == PELAGO_OK && bytes < SAMPLE_BYTES; i++) {
        text.len = 0;
        if (pl_tales_story(p->tales, TALES_SEED, PL_TALES_TRAIN, i, &text, NULL) != PELAGO_OK)
            st = no_memory(err);
        size_t len = st == PELAGO_OK ? text.len - (sizeof PL_TALES_SEPARATOR - 1) : 0;
        if (st == PELAGO_OK)
            st = sink->text(sink->user, text.data, len, err);
        if (st == PELAGO_OK)
            st = sink->end(sink->user, err);
        bytes += len;
    }
    pl_buf_release(&text);
    return st;
}

static enum pelago_status read_documents(struct pl_dataset_parts *p, const char *name,
                                         const struct pl_text_sink *sink, struct pl_error *err)
{
    return is_tales(name) ? tell(p, sink, err) : pl_corpus_read(&p->alloc, &name, 1, sink, err);
}

/* ---- the tokenizer ---- */

static enum pelago_status teach(struct pl_dataset *d, struct pl_tokenizer_trainer *trainer,
                                enum pl_train_kind kind, struct pl_error *err)
{
    struct pl_dataset_parts *p = d->parts;
    struct pl_text_sink sink = pl_tokenizer_trainer_sink(trainer);
    if (kind != PL_TRAIN_BYTES && p->train.name != NULL)
        PL_TRY(read_documents(p, p->train.name, &sink, err));
    /* A character that only the validation text has must be known, too. */
    if (kind == PL_TRAIN_CHARS && p->valid.name != NULL && !is_tales(p->valid.name))
        PL_TRY(read_documents(p, p->valid.name, &sink, err));
    return pl_tokenizer_trainer_finish(trainer, &d->tokenizer, err);
}

static enum pelago_status train_tokenizer(struct pl_dataset *d, enum pl_train_kind kind, uint32_t vocab,
                                          struct pl_error *err)
{
    if (d->parts->train.file != NULL || (d->parts->valid.file != NULL && kind == PL_TRAIN_CHARS))
        return pl_fail(err, PELAGO_INVALID,
                       "a tokenizer cannot be made from a token file: give the one it was made with");
    if (d->parts->train.name != NULL && strcmp(d->parts->train.name, "-") == 0 && kind != PL_TRAIN_BYTES)
        return pl_fail(err, PELAGO_INVALID, "standard input can be read only once: give a tokenizer");
    if (kind == PL_TRAIN_BPE && (vocab < PL_BPE_VOCAB_MIN || vocab > PL_VOCAB_MAX))
        return pl_fail(err, PELAGO_LIMIT,
                       "the vocabulary is %u, but a tokenizer of byte pairs needs at least %u", vocab,
                       (unsigned)PL_BPE_VOCAB_MIN);
    struct pl_tokenizer_trainer *trainer =
        pl_tokenizer_trainer_new(&d->parts->alloc, d->parts->pool, kind, vocab);
    if (trainer == NULL)
        return no_memory(err);
    enum pelago_status st = teach(d, trainer, kind, err);
    pl_tokenizer_trainer_free(trainer);
    return st;
}

static enum pelago_status parse_tokenizer(struct pl_dataset *d, const struct pl_dataset_options *o,
                                          struct pl_error *err)
{
    struct pl_error why;
    enum pelago_status st =
        pl_tokenizer_parse(&d->tokenizer, &d->parts->alloc, o->json.data, o->json.len, &why);
    return st == PELAGO_OK ? st : pl_fail(err, st, "the model's tokenizer.json: %s", why.text);
}

static enum pelago_status open_tokenizer(struct pl_dataset *d, const struct pl_dataset_options *o,
                                         struct pl_error *err)
{
    struct pl_dataset_parts *p = d->parts;
    bool needed =
        (p->train.name != NULL && p->train.file == NULL) || (p->valid.name != NULL && p->valid.file == NULL);
    if (o->json.len > 0)
        return parse_tokenizer(d, o, err);
    if (needed && o->tokenizer == NULL && p->train.name == NULL)
        return pl_fail(err, PELAGO_INVALID, "there is no tokenizer to read %s with", p->valid.name);
    if (o->tokenizer == NULL)
        return needed ? train_tokenizer(d, PL_TRAIN_BPE, o->vocab, err) : PELAGO_OK;
    if (strcmp(o->tokenizer, "char") == 0)
        return train_tokenizer(d, PL_TRAIN_CHARS, 0, err);
    if (strcmp(o->tokenizer, "byte") == 0)
        return train_tokenizer(d, PL_TRAIN_BYTES, 0, err);
    return pl_tokenizer_load(&d->tokenizer, &p->alloc, o->tokenizer, err);
}

/* ---- streams ---- */

static enum pelago_status read_ids(void *self, uint64_t at, uint64_t count, int32_t *out,
                                   struct pl_error *err)
{
    const struct source *s = self;
    (void)err;
    pl_assert(at + count <= s->ids.count);
    for (uint64_t i = 0; i < count; i++)
        out[i] = (int32_t)s->ids.at[at + i];
    return PELAGO_OK;
}

static enum pelago_status read_file(void *self, uint64_t at, uint64_t count, int32_t *out,
                                    struct pl_error *err)
{
    const struct source *s = self;
    return pl_tokens_fetch(s->file, at, count, out, NULL, err);
}

static bool is_named_tokens(const char *name)
{
    size_t len = strlen(name);
    return len > 4 && strcmp(name + len - 4, ".tok") == 0;
}

/* The first bytes of a file, unpacked; fewer where it ends. */
static enum pelago_status read_head(struct pl_dataset_parts *p, const char *name, struct pl_buf *head,
                                    struct pl_error *err)
{
    struct pl_input *in;
    size_t len = 1;
    if (pl_buf_reserve(head, HEAD_BYTES) != PELAGO_OK)
        return no_memory(err);
    PL_TRY(pl_input_open(&in, &p->alloc, name, err));
    enum pelago_status st = PELAGO_OK;
    while (st == PELAGO_OK && len > 0 && head->len < HEAD_BYTES) {
        st = pl_input_read(in, head->data + head->len, HEAD_BYTES - head->len, &len, err);
        head->len += len;
    }
    pl_input_close(in);
    return st;
}

/* Token files begin with a mark of their own, or have a name that says so; everything else must be text. */
static enum pelago_status look_at(struct pl_dataset_parts *p, struct source *s, const struct pl_buf *head,
                                  struct pl_error *err)
{
    static const char mark[] = "PELAGOTK";
    size_t mark_len = sizeof mark - 1;
    if (is_named_tokens(s->name) || (head->len >= mark_len && memcmp(head->data, mark, mark_len) == 0))
        return pl_tokens_open(&s->file, &p->alloc, s->name, err);
    const uint8_t *zero = head->len > 0 ? memchr(head->data, 0, head->len) : NULL;
    if (zero != NULL)
        return pl_fail(err, PELAGO_INVALID, "%s is not text: it has a zero byte at %lu", s->name,
                       (uint64_t)(zero - head->data));
    return PELAGO_OK;
}

enum pelago_status pl_dataset_check_name(const char *name, struct pl_error *err)
{
    if (name == NULL || is_tales(name) || strncmp(name, "builtin:", 8) != 0)
        return PELAGO_OK;
    return pl_fail(err, PELAGO_INVALID, "there is no %s: " PL_DATASET_TALES " is the only one built in",
                   name);
}

static enum pelago_status open_file(struct pl_dataset_parts *p, struct source *s, struct pl_error *err)
{
    struct pl_buf head;
    if (s->name == NULL || is_tales(s->name) || strcmp(s->name, "-") == 0)
        return PELAGO_OK;
    PL_TRY(pl_dataset_check_name(s->name, err));
    pl_buf_init(&head, &p->alloc, HEAD_BYTES);
    enum pelago_status st = read_head(p, s->name, &head, err);
    if (st == PELAGO_OK)
        st = look_at(p, s, &head, err);
    pl_buf_release(&head);
    return st;
}

static enum pelago_status check_file(const struct pl_dataset *d, const struct source *s, struct pl_error *err)
{
    const struct pl_tokens_info *info = pl_tokens_info(s->file);
    if (d->tokenizer != NULL && info->tokenizer_digest != pl_tokenizer_digest(d->tokenizer))
        return pl_fail(err, PELAGO_INVALID, "%s was made with another tokenizer than the one in use",
                       s->name);
    return PELAGO_OK;
}

static enum pelago_status encode_text(struct pl_dataset *d, struct source *s, struct pl_error *err)
{
    struct pl_dataset_parts *p = d->parts;
    struct pl_encode_result result;
    struct pl_encode *e = pl_encode_new_list(&p->alloc, d->tokenizer, p->pool, &s->ids);
    if (e == NULL)
        return no_memory(err);
    struct pl_text_sink sink = pl_encode_sink(e);
    enum pelago_status st = pl_corpus_read(&p->alloc, &s->name, 1, &sink, err);
    if (st == PELAGO_OK)
        st = pl_encode_finish(e, &result, err);
    pl_encode_free(e);
    return st;
}

/* Tokens of a file or a text; the tales are opened elsewhere. */
static enum pelago_status open_source(struct pl_dataset *d, struct source *s, struct pl_stream *out,
                                      struct pl_error *err)
{
    if (s->file != NULL) {
        PL_TRY(check_file(d, s, err));
        *out = (struct pl_stream){pl_tokens_info(s->file)->tokens, read_file, s};
        return PELAGO_OK;
    }
    PL_TRY(encode_text(d, s, err));
    *out = (struct pl_stream){s->ids.count, read_ids, s};
    return PELAGO_OK;
}

/* Whole stories of the validation split, behind an end of text, so that every one of their tokens is predicted. */
static enum pelago_status tell_valid(struct pl_dataset *d, uint64_t tokens, struct pl_error *err)
{
    struct pl_dataset_parts *p = d->parts;
    struct pl_ids *ids = &p->valid.ids;
    uint32_t end = pl_tokenizer_end_of_text(d->tokenizer);
    struct pl_encoder *encoder = pl_encoder_new(&p->alloc, d->tokenizer);
    struct pl_buf text;
    pl_buf_init(&text, &p->alloc, PL_TALES_STORY_BYTES_MAX);
    enum pelago_status st = encoder != NULL ? PELAGO_OK : no_memory(err);
    if (st == PELAGO_OK && end != PL_NONE32)
        st = pl_ids_push(ids, end);
    for (uint64_t i = 0; st == PELAGO_OK && ids->count <= tokens; i++) {
        text.len = 0;
        st = pl_tales_story(p->tales, TALES_SEED, PL_TALES_VALID, i, &text, &d->valid_floor);
        if (st == PELAGO_OK)
            st = pl_encoder_run(encoder, text.data, text.len - (sizeof PL_TALES_SEPARATOR - 1),
                                PL_SPECIALS_AS_TEXT, ids, err);
        if (st == PELAGO_OK && end != PL_NONE32)
            st = pl_ids_push(ids, end);
    }
    pl_buf_release(&text);
    pl_encoder_free(encoder);
    d->valid = (struct pl_stream){ids->count, read_ids, &p->valid};
    return st == PELAGO_NOMEM ? no_memory(err) : st;
}

static enum pelago_status open_train(struct pl_dataset *d, uint64_t seed, struct pl_error *err)
{
    struct pl_dataset_parts *p = d->parts;
    if (p->train.name == NULL)
        return PELAGO_OK;
    if (!is_tales(p->train.name))
        return open_source(d, &p->train, &d->train, err);
    PL_TRY(pl_tales_tokens_new(&p->train.tales, &p->alloc, p->tales, d->tokenizer, p->pool, seed, err));
    d->train = pl_tales_tokens_stream(p->train.tales);
    return PELAGO_OK;
}

/* The end of a stream as a stream of its own. */
static enum pelago_status read_held(void *self, uint64_t at, uint64_t count, int32_t *out,
                                    struct pl_error *err)
{
    const struct pl_dataset *d = self;
    return d->train.read(d->train.self, d->train.tokens + at, count, out, err);
}

static void hold_out(struct pl_dataset *d, uint64_t wanted)
{
    uint64_t held = pl_min64(d->train.tokens / HELD_OUT, wanted + 1);
    d->train.tokens -= held;
    d->valid = (struct pl_stream){held, read_held, d};
}

static enum pelago_status open_valid(struct pl_dataset *d, uint64_t tokens, struct pl_error *err)
{
    struct pl_dataset_parts *p = d->parts;
    if (is_tales(p->valid.name) || (p->valid.name == NULL && is_tales(p->train.name)))
        return tell_valid(d, tokens, err);
    if (p->valid.name == NULL) {
        hold_out(d, tokens);
        return PELAGO_OK;
    }
    PL_TRY(open_source(d, &p->valid, &d->valid, err));
    d->valid.tokens = pl_min64(d->valid.tokens, pl_add_sat(tokens, 1));
    return PELAGO_OK;
}

/* ---- bytes ---- */

/* Bytes of text behind the tokens that are predicted: all but the first. The end of a text has none. */
static enum pelago_status count_bytes(struct pl_dataset *d, struct pl_error *err)
{
    uint32_t end = pl_tokenizer_end_of_text(d->tokenizer);
    int32_t part[1024];
    uint64_t bytes = 0, known = pl_tokenizer_vocab(d->tokenizer);
    for (uint64_t at = 1; at < d->valid.tokens;) {
        uint64_t count = pl_min64(d->valid.tokens - at, sizeof part / sizeof part[0]);
        PL_TRY(d->valid.read(d->valid.self, at, count, part, err));
        for (uint64_t i = 0; i < count; i++)
            if ((uint32_t)part[i] < known && (uint32_t)part[i] != end)
                bytes += pl_tokenizer_bytes(d->tokenizer, (uint32_t)part[i]).len;
        at += count;
    }
    d->valid_bytes = (double)bytes;
    return PELAGO_OK;
}

/* Without a tokenizer: as many bytes a token as in the whole file. */
static void guess_bytes(struct pl_dataset *d)
{
    struct pl_dataset_parts *p = d->parts;
    const struct pl_tokens *file = p->valid.file != NULL ? p->valid.file : p->train.file;
    if (file == NULL || d->valid.tokens < 2)
        return;
    const struct pl_tokens_info *info = pl_tokens_info(file);
    d->valid_bytes = info->tokens > 0
                         ? (double)info->text_bytes / (double)info->tokens * (double)(d->valid.tokens - 1)
                         : 0;
}

/* ---- all together ---- */

static uint32_t vocab_of(const struct pl_dataset *d)
{
    const struct pl_dataset_parts *p = d->parts;
    const struct pl_tokens *files[2] = {p->train.file, p->valid.file};
    uint32_t vocab = d->tokenizer != NULL ? pl_tokenizer_vocab(d->tokenizer) : 0;
    for (unsigned i = 0; i < 2; i++)
        if (files[i] != NULL)
            vocab = pl_max32(vocab, pl_tokens_info(files[i])->vocab);
    return vocab;
}

static enum pelago_status fill(struct pl_dataset *d, const struct pl_dataset_options *o, struct pl_error *err)
{
    struct pl_dataset_parts *p = d->parts;
    uint32_t threads = o->threads > 0 ? o->threads : pl_cpu_count();
    p->pool = pl_pool_new(&p->alloc, pl_min32(threads, PL_POOL_THREADS_MAX));
    if (p->pool == NULL || pl_tales_open(&p->alloc, &p->tales) != PELAGO_OK)
        return no_memory(err);
    PL_TRY(open_file(p, &p->train, err));
    PL_TRY(open_file(p, &p->valid, err));
    PL_TRY(open_tokenizer(d, o, err));
    d->vocab = vocab_of(d);
    PL_TRY(open_train(d, o->seed, err));
    PL_TRY(open_valid(d, o->valid_tokens, err));
    if (d->tokenizer != NULL)
        return count_bytes(d, err);
    guess_bytes(d);
    return PELAGO_OK;
}

enum pelago_status pl_dataset_open(struct pl_dataset **out, const struct pl_alloc *alloc,
                                   const struct pl_dataset_options *options, struct pl_error *err)
{
    struct pl_dataset *d = pl_alloc_zero(alloc, 1, sizeof *d);
    struct pl_dataset_parts *p = pl_alloc_zero(alloc, 1, sizeof *p);
    pl_assert(options->data != NULL || options->valid != NULL);
    *out = NULL;
    if (d == NULL || p == NULL) {
        pl_alloc_free(alloc, d, sizeof *d);
        pl_alloc_free(alloc, p, sizeof *p);
        return no_memory(err);
    }
    p->alloc = *alloc;
    p->train.name = options->data;
    p->valid.name = options->valid;
    pl_ids_init(&p->train.ids, &p->alloc);
    pl_ids_init(&p->valid.ids, &p->alloc);
    d->parts = p;
    enum pelago_status st = fill(d, options, err);
    if (st != PELAGO_OK) {
        pl_dataset_close(d);
        return st;
    }
    *out = d;
    return PELAGO_OK;
}

void pl_dataset_close(struct pl_dataset *d)
{
    if (d == NULL)
        return;
    struct pl_dataset_parts *p = d->parts;
    struct pl_alloc alloc = p->alloc;
    pl_tales_tokens_free(p->train.tales);
    pl_ids_release(&p->train.ids);
    pl_ids_release(&p->valid.ids);
    pl_tokens_close(p->train.file);
    pl_tokens_close(p->valid.file);
    pl_tokenizer_free(d->tokenizer);
    pl_tales_close(p->tales);
    pl_pool_free(p->pool);
    pl_alloc_free(&alloc, p, sizeof *p);
    pl_alloc_free(&alloc, d, sizeof *d);
}
