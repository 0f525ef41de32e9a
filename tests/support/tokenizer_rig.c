/* tests/support/tokenizer_rig.c - see tokenizer_rig.h. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tokenizer_rig.h"

#include <stdlib.h>
#include <string.h>

const char rig_text[] = "Anna had 12 apples and Ben had 30 apples. Ben gave Anna 7 of his apples, so Anna "
                        "had 19 apples in the end.\n"
                        "The old man and the old dog went to the market. They couldn't find the market, and "
                        "they didn't find the road.\n"
                        "\"Where is the road?\" said the old man. \"The road is where the market is,\" said "
                        "the dog. They were happy.\n"
                        "There was a small house in the forest; the house had a small door, and the door had "
                        "a small key. The key was\n"
                        "hidden under the small stone, and nobody who went into the forest had ever found "
                        "the stone or the key of it.\n";

struct pl_tokenizer *rig_train(const struct pl_alloc *alloc, enum pl_train_kind kind, const char *text,
                               uint32_t vocab)
{
    struct pl_error err = {PELAGO_OK, ""};
    struct pl_tokenizer *t = NULL;
    struct pl_pool *pool = pl_pool_new(alloc, 1);
    assert_non_null(pool);
    struct pl_tokenizer_trainer *trainer = pl_tokenizer_trainer_new(alloc, pool, kind, vocab);
    assert_non_null(trainer);
    struct pl_text_sink sink = pl_tokenizer_trainer_sink(trainer);
    assert_int_equal(sink.text(sink.user, (const uint8_t *)text, strlen(text), &err), PELAGO_OK);
    assert_int_equal(sink.end(sink.user, &err), PELAGO_OK);
    if (pl_tokenizer_trainer_finish(trainer, &t, &err) != PELAGO_OK)
        fail_msg("no tokenizer: %s", err.text);
    pl_tokenizer_trainer_free(trainer);
    pl_pool_free(pool);
    return t;
}

char *rig_replace(const struct pl_tokenizer *t, const char *from, const char *to)
{
    struct pl_bytes json = pl_tokenizer_json(t);
    const char *start = json.data, *at = memmem(start, json.len, from, strlen(from));
    if (at == NULL)
        fail_msg("the tokenizer has no %s", from);
    size_t before = (size_t)(at - start), after = json.len - before - strlen(from);
    char *out = calloc(before + strlen(to) + after + 1, 1);
    assert_non_null(out);
    memcpy(out, start, before);
    memcpy(out + before, to, strlen(to));
    memcpy(out + before + strlen(to), at + strlen(from), after);
    return out;
}
