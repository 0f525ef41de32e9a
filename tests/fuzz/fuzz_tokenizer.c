/* fuzz_tokenizer.c - arbitrary bytes as a tokenizer.json, and arbitrary text through it.
 *
 * The input is a tokenizer.json, a zero byte, and a text. A fuzzer rarely writes 256 tokens for bytes, so the text also goes
 * through a small tokenizer made here. Whatever is encoded must decode to the very text, unless the tokenizer says
 * otherwise: it normalizes, adds or drops spaces, or drops what lies between matches.
 */
#include "base/check.h"
#include "data/tokenizer.h"
#include "data/tokenizer_train.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct pl_alloc alloc;
static struct pl_tokenizer *own;       /* merges of a few words; made once, never freed */
static struct pl_encoder *own_encoder; /* making one is slow */

static void make_own(void)
{
    static const char text[] =
        "the old dog and the old man's dog couldn't count: 12 and 12 are 24, 24 and 24 are 48 <|><|>";
    alloc = pl_alloc_system();
    struct pl_pool *pool = pl_pool_new(&alloc, 1);
    struct pl_tokenizer_trainer *trainer = pl_tokenizer_trainer_new(&alloc, pool, PL_TRAIN_BPE, 300);
    struct pl_text_sink sink = pl_tokenizer_trainer_sink(trainer);
    pl_assert(sink.text(sink.user, (const uint8_t *)text, sizeof text - 1, NULL) == PELAGO_OK);
    pl_assert(pl_tokenizer_trainer_finish(trainer, &own, NULL) == PELAGO_OK);
    pl_tokenizer_trainer_free(trainer);
    pl_pool_free(pool);
    own_encoder = pl_encoder_new(&alloc, own);
    pl_assert(own_encoder != NULL);
}

static void round_trip(const struct pl_tokenizer *t, struct pl_encoder *e, const uint8_t *text, size_t len,
                       bool exact)
{
    struct pl_error err = {PELAGO_OK, ""};
    struct pl_decoder d = {{0}, 0};
    struct pl_ids ids;
    struct pl_buf out;
    pl_assert(e != NULL);
    for (int specials = PL_SPECIALS_FIND; specials <= PL_SPECIALS_AS_TEXT; specials++) {
        pl_ids_init(&ids, &alloc);
        pl_buf_init(&out, &alloc, SIZE_MAX / 2);
        enum pelago_status status = pl_encoder_run(e, text, len, (enum pl_specials)specials, &ids, &err);
        pl_assert(status == PELAGO_OK || err.text[0] != '\0');
        for (size_t i = 0; i < ids.count; i++)
            pl_assert(pl_decoder_push(&d, t, ids.at[i], &out) == PELAGO_OK);
        pl_assert(pl_decoder_finish(&d, &out) == PELAGO_OK);
        if (status == PELAGO_OK && exact)
            pl_assert(out.len == len && (len == 0 || memcmp(out.data, text, len) == 0));
        pl_buf_release(&out);
        pl_ids_release(&ids);
    }
}

/* Fields that let text change. A ByteLevel without add_prefix_space adds a space. */
static bool is_exact(const struct pl_bytes *json)
{
    static const char *const inexact[] = {"NFC", "\"add_prefix_space\":t", "strip", "Removed", "\\", " :",
                                          ": "};
    for (size_t i = 0; i < sizeof inexact / sizeof inexact[0]; i++)
        if (memmem(json->data, json->len, inexact[i], strlen(inexact[i])) != NULL)
            return false;
    return memmem(json->data, json->len, "\"add_prefix_space\":false", 24) != NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (own == NULL)
        make_own();
    const uint8_t *zero = size > 0 ? memchr(data, 0, size) : NULL;
    size_t json_len = zero != NULL ? (size_t)(zero - data) : size,
           text_len = zero != NULL ? size - json_len - 1 : 0;
    const uint8_t *text = zero != NULL ? zero + 1 : data;
    struct pl_error err = {PELAGO_OK, ""};
    struct pl_tokenizer *t;
    round_trip(own, own_encoder, text, text_len, true);
    enum pelago_status status = pl_tokenizer_parse(&t, &alloc, data, json_len, &err);
    pl_assert((status == PELAGO_OK) == (t != NULL) && (t != NULL || err.text[0] != '\0'));
    if (t == NULL)
        return 0;
    struct pl_bytes json = pl_tokenizer_json(t);
    pl_assert(json.len == json_len);
    (void)pl_tokenizer_allows_cuts(t);
    struct pl_encoder *e = pl_encoder_new(&alloc, t);
    round_trip(t, e, text, text_len, is_exact(&json));
    pl_encoder_free(e);
    pl_tokenizer_free(t);
    return 0;
}
