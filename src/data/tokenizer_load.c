/* data/tokenizer_load.c - a tokenizer from the text of a tokenizer.json.
 *
 * Everything is checked here, so that using a tokenizer fails on nothing but text it has no token for: ids are below the
 * vocabulary's size and each belongs to one token, some bytes have one (a text with another is refused by the encoder),
 * merges name tokens that exist. What would change the result and is not
 * supported is refused by name; what only matters to training or to other programs (truncation, post_processor,
 * decoder) is passed over.
 */
#include "data/tokenizer.h"

#include "base/check.h"
#include "base/hash.h"
#include "base/num.h"
#include "data/tokenizer_int.h"
#include "data/tokenizer_json.h"
#include "data/unicode.h"

#include <string.h>

static enum pelago_status no_memory(struct pl_error *err)
{
    return pl_fail(err, PELAGO_NOMEM, "there is no memory for the tokenizer");
}

/* ---- tokens ---- */

static enum pelago_status put_token(struct pl_tokenizer *t, struct pl_token *into, const void *bytes,
                                    size_t len)
{
    if (len > UINT32_MAX - t->blob.len)
        return PELAGO_LIMIT;
    *into = (struct pl_token){(uint32_t)t->blob.len, (uint32_t)len};
    return pl_buf_append(&t->blob, bytes, len);
}

/* The bytes that a name in the vocabulary stands for; a name with other characters stands for itself. */
static enum pelago_status put_name(struct pl_tokenizer *t, struct pl_token *into, const char *name,
                                   size_t len)
{
    const uint8_t *at = (const uint8_t *)name, *end = at + len;
    PL_TRY(put_token(t, into, NULL, 0));
    while (at < end) {
        uint32_t c;
        uint8_t byte;
        at += pl_utf8_read(at, end, &c);
        if (!pl_byte_of_char(c, &byte)) {
            t->blob.len = into->offset;
            return put_token(t, into, name, len);
        }
        PL_TRY(pl_buf_append(&t->blob, &byte, 1));
        into->len++;
    }
    return PELAGO_OK;
}

/* An id that has no token yet. Names of length 0 are no tokens: they could not be told from a hole. */
static enum pelago_status check_id(const struct pl_tokenizer *t, json_int_t id, const char *name,
                                   struct pl_error *err)
{
    pl_assert(id >= 0 && (uint64_t)id < t->vocab);
    if (name[0] == '\0')
        return pl_fail(err, PELAGO_INVALID, "token %lu has no text", (uint64_t)id);
    if (t->tokens[id].len > 0)
        return pl_fail(err, PELAGO_INVALID, "two tokens have the id %lu", (uint64_t)id);
    return PELAGO_OK;
}

static enum pelago_status read_vocab(struct pl_tokenizer *t, json_t *vocab, struct pl_error *err)
{
    const char *name;
    json_t *value;
    json_object_foreach(vocab, name, value)
    {
        json_int_t id = json_integer_value(value);
        PL_TRY(check_id(t, id, name, err));
        enum pelago_status status = t->kind == PL_TOKENIZER_BPE
                                        ? put_name(t, &t->tokens[id], name, strlen(name))
                                        : put_token(t, &t->tokens[id], name, strlen(name));
        if (status != PELAGO_OK)
            return no_memory(err);
    }
    return PELAGO_OK;
}

/* Ids are not far above the number of tokens: checked before anything is sized by them. */
static enum pelago_status measure_id(json_t *id, const char *name, uint64_t limit, uint64_t *vocab,
                                     struct pl_error *err)
{
    if (!json_is_integer(id) || json_integer_value(id) < 0 || (uint64_t)json_integer_value(id) >= limit)
        return pl_fail(err, PELAGO_INVALID, "the id of the token '%s' is not a number from 0 to %lu", name,
                       limit - 1);
    *vocab = pl_max64(*vocab, (uint64_t)json_integer_value(id) + 1);
    return PELAGO_OK;
}

static enum pelago_status size_vocab(struct pl_tokenizer *t, json_t *vocab, json_t *added,
                                     struct pl_error *err)
{
    uint64_t tokens = json_object_size(vocab) + json_array_size(added), ids = 0;
    uint64_t limit = pl_min64(PL_VOCAB_MAX, 4 * tokens + 65536);
    const char *name;
    json_t *value;
    size_t i;
    if (json_object_size(vocab) == 0)
        return pl_fail(err, PELAGO_INVALID, "the field model.vocab is missing or empty");
    if (added != NULL && !json_is_array(added) && !json_is_null(added))
        return pl_fail(err, PELAGO_INVALID, "the field added_tokens is not a list");
    json_object_foreach(vocab, name, value)
    {
        PL_TRY(measure_id(value, name, limit, &ids, err));
    }
    json_array_foreach(added, i, value)
    {
        name = json_string_value(json_object_get(value, "content"));
        if (name == NULL || name[0] == '\0')
            return pl_fail(err, PELAGO_INVALID, "entry %lu of added_tokens has no content", (uint64_t)i);
        PL_TRY(measure_id(json_object_get(value, "id"), name, limit, &ids, err));
    }
    t->tokens = pl_alloc_zero(t->alloc, ids, sizeof *t->tokens);
    if (t->tokens == NULL)
        return no_memory(err);
    t->vocab = (uint32_t)ids;
    return PELAGO_OK;
}

/* ---- added tokens ---- */

static bool flag_of(json_t *object, const char *name)
{
    return json_is_true(json_object_get(object, name));
}

static enum pelago_status put_normalized(struct pl_tokenizer *t, struct pl_token *into, const char *text)
{
    PL_TRY(put_token(t, into, NULL, 0));
    PL_TRY(pl_nfc_append(&t->blob, (const uint8_t *)text, strlen(text)));
    into->len = (uint32_t)(t->blob.len - into->offset);
    return PELAGO_OK;
}

static bool has_bytes(const struct pl_tokenizer *t, uint32_t id, const char *text)
{
    struct pl_bytes bytes = pl_tokenizer_bytes(t, id);
    return bytes.len == strlen(text) && memcmp(bytes.data, text, bytes.len) == 0;
}

/* It may be in the vocabulary too, under the same id and with the same bytes. */
static enum pelago_status read_added(struct pl_tokenizer *t, json_t *entry, json_t *vocab,
                                     struct pl_error *err)
{
    const char *content = json_string_value(json_object_get(entry, "content"));
    uint32_t id = (uint32_t)json_integer_value(json_object_get(entry, "id"));
    struct pl_added_set *set = flag_of(entry, "normalized") ? &t->normalized : &t->raw;
    struct pl_added item = {.id = id,
                            .special = flag_of(entry, "special"),
                            .lstrip = flag_of(entry, "lstrip"),
                            .rstrip = flag_of(entry, "rstrip")};
    if (flag_of(entry, "single_word"))
        return pl_fail(err, PELAGO_UNSUPPORTED, "the added token '%s' is single_word, which is not supported",
                       content);
    json_t *known = json_object_get(vocab, content);
    if (known != NULL && json_integer_value(known) != id)
        return pl_fail(err, PELAGO_INVALID, "the added token '%s' has another id in model.vocab", content);
    enum pelago_status status = PELAGO_OK;
    if (known == NULL) {
        PL_TRY(check_id(t, id, content, err));
        status = put_token(t, &t->tokens[id], content, strlen(content));
    } else if (!has_bytes(t, id, content))
        return pl_fail(err, PELAGO_UNSUPPORTED, "the added token '%s' stands for other bytes in model.vocab",
                       content);
    item.text = t->tokens[id];
    if (status == PELAGO_OK && t->nfc && set == &t->normalized)
        status = put_normalized(t, &item.text, content);
    pl_assert(set->count < set->cap);
    set->items[set->count++] = item;
    return status == PELAGO_OK ? PELAGO_OK : no_memory(err);
}

static enum pelago_status size_set(struct pl_tokenizer *t, struct pl_added_set *set, uint32_t count,
                                   struct pl_error *err)
{
    if (count == 0)
        return PELAGO_OK;
    set->items = pl_alloc_zero(t->alloc, count, sizeof *set->items);
    set->cap = count;
    return set->items != NULL ? PELAGO_OK : no_memory(err);
}

static enum pelago_status read_all_added(struct pl_tokenizer *t, json_t *added, json_t *vocab,
                                         struct pl_error *err)
{
    uint32_t normalized = 0, all = (uint32_t)json_array_size(added);
    size_t i;
    json_t *entry;
    json_array_foreach(added, i, entry)
    {
        normalized += flag_of(entry, "normalized") ? 1 : 0;
    }
    PL_TRY(size_set(t, &t->normalized, normalized, err));
    PL_TRY(size_set(t, &t->raw, all - normalized, err));
    json_array_foreach(added, i, entry)
    {
        PL_TRY(read_added(t, entry, vocab, err));
    }
    PL_TRY(pl_added_set_index(&t->raw, t, err));
    return pl_added_set_index(&t->normalized, t, err);
}

/* ---- byte pairs ---- */

/* Some leave out the bytes that UTF-8 never has. */
static enum pelago_status read_bytes(struct pl_tokenizer *t, json_t *vocab, struct pl_error *err)
{
    uint32_t found = 0;
    for (uint32_t byte = 0; byte < 256; byte++) {
        char name[5] = {0};
        (void)pl_utf8_write((uint8_t *)name, pl_byte_char((uint8_t)byte));
        json_t *id = json_object_get(vocab, name);
        t->byte_ids[byte] = id != NULL ? (uint32_t)json_integer_value(id) : PL_NONE32;
        found += id != NULL ? 1 : 0;
    }
    if (found == 0)
        return pl_fail(err, PELAGO_UNSUPPORTED,
                       "model.vocab has no tokens for single bytes: this is not a byte-level tokenizer");
    return PELAGO_OK;
}

/* The two names of a merge: ["a", "b"], or "a b". False when it is neither. */
static bool names_of_merge(json_t *merge, const char **left, size_t *left_len, const char **right)
{
    if (json_is_array(merge) && json_array_size(merge) == 2) {
        *left = json_string_value(json_array_get(merge, 0));
        *right = json_string_value(json_array_get(merge, 1));
        *left_len = *left != NULL ? strlen(*left) : 0;
        return *left != NULL && *right != NULL;
    }
    *left = json_string_value(merge);
    const char *space = *left != NULL ? strchr(*left, ' ') : NULL;
    if (space == NULL || strchr(space + 1, ' ') != NULL)
        return false;
    *left_len = (size_t)(space - *left);
    *right = space + 1;
    return true;
}

static enum pelago_status read_merge(struct pl_tokenizer *t, json_t *vocab, json_t *merge, uint32_t rank,
                                     struct pl_buf *name, struct pl_error *err)
{
    const char *left, *right;
    size_t left_len;
    if (!names_of_merge(merge, &left, &left_len, &right))
        return pl_fail(err, PELAGO_INVALID, "merge %u is not two names of tokens", rank);
    name->len = 0;
    if (pl_buf_append(name, left, left_len) != PELAGO_OK || pl_buf_append(name, "", 1) != PELAGO_OK)
        return no_memory(err);
    json_t *a = json_object_get(vocab, (const char *)name->data), *b = json_object_get(vocab, right);
    name->len = left_len;
    if (pl_buf_append(name, right, strlen(right) + 1) != PELAGO_OK)
        return no_memory(err);
    json_t *made = json_object_get(vocab, (const char *)name->data);
    if (a == NULL || b == NULL || made == NULL)
        return pl_fail(err, PELAGO_INVALID, "merge %u names or makes a token that is not in model.vocab",
                       rank);
    uint32_t ids[3] = {(uint32_t)json_integer_value(a), (uint32_t)json_integer_value(b),
                       (uint32_t)json_integer_value(made)};
    pl_merges_put(&t->merges, ids[0], ids[1], rank, ids[2]);
    uint8_t bytes[12];
    for (size_t i = 0; i < 3; i++)
        pl_put_le(bytes + 4 * i, ids[i], 4);
    t->digest = pl_hash64(bytes, sizeof bytes, t->digest);
    return PELAGO_OK;
}

static enum pelago_status read_merges(struct pl_tokenizer *t, json_t *vocab, json_t *merges,
                                      struct pl_error *err)
{
    enum pelago_status status = PELAGO_OK;
    struct pl_buf name;
    json_t *merge;
    size_t i;
    if (!json_is_array(merges) || json_array_size(merges) > PL_VOCAB_MAX)
        return pl_fail(err, PELAGO_INVALID, "the field model.merges is not a list of at most %u merges",
                       (unsigned)PL_VOCAB_MAX);
    if (pl_merges_init(&t->merges, t->alloc, (uint32_t)json_array_size(merges)) != PELAGO_OK)
        return no_memory(err);
    pl_buf_init(&name, t->alloc, PL_JSON_BYTES_MAX);
    json_array_foreach(merges, i, merge)
    {
        status = read_merge(t, vocab, merge, (uint32_t)i, &name, err);
        if (status != PELAGO_OK)
            break;
    }
    pl_buf_release(&name);
    return status;
}

/* A piece that is a token becomes it whatever the merges say; names that stand for themselves are out of reach. */
static enum pelago_status index_words(struct pl_tokenizer *t, json_t *vocab, struct pl_error *err)
{
    const char *name;
    json_t *value;
    if (pl_vocab_index_init(&t->index, t) != PELAGO_OK)
        return no_memory(err);
    json_object_foreach(vocab, name, value)
    {
        const uint8_t *at = (const uint8_t *)name, *end = at + strlen(name);
        bool mapped = true;
        while (t->kind == PL_TOKENIZER_BPE && mapped && at < end) {
            uint32_t c;
            uint8_t byte;
            at += pl_utf8_read(at, end, &c);
            mapped = pl_byte_of_char(c, &byte);
        }
        if (mapped)
            pl_vocab_index_put(&t->index, t, (uint32_t)json_integer_value(value));
    }
    return PELAGO_OK;
}

static enum pelago_status read_bpe(struct pl_tokenizer *t, json_t *root, json_t *model, json_t *vocab,
                                   struct pl_error *err)
{
    PL_TRY(pl_tokjson_check_bpe(model, err));
    PL_TRY(pl_tokjson_read_split(json_object_get(root, "pre_tokenizer"), t->split, err));
    PL_TRY(read_bytes(t, vocab, err));
    PL_TRY(read_merges(t, vocab, json_object_get(model, "merges"), err));
    t->whole_words = flag_of(model, "ignore_merges");
    return t->whole_words ? index_words(t, vocab, err) : PELAGO_OK;
}

/* ---- characters ---- */

static bool is_added(const struct pl_tokenizer *t, uint32_t id)
{
    for (uint32_t i = 0; i < t->raw.count; i++)
        if (t->raw.items[i].id == id)
            return true;
    return false;
}

static enum pelago_status read_chars(struct pl_tokenizer *t, json_t *root, json_t *vocab,
                                     struct pl_error *err)
{
    const char *name;
    json_t *value;
    PL_TRY(pl_tokjson_check_chars(json_object_get(root, "pre_tokenizer"), err));
    json_object_foreach(vocab, name, value)
    {
        uint32_t c;
        size_t len = strlen(name);
        bool is_char = pl_utf8_read((const uint8_t *)name, (const uint8_t *)name + len, &c) == len;
        if (!is_char && !is_added(t, (uint32_t)json_integer_value(value)))
            return pl_fail(err, PELAGO_UNSUPPORTED,
                           "'%s' is more than a character: of WordLevel tokenizers only those of characters "
                           "are supported",
                           name);
    }
    return index_words(t, vocab, err);
}

/* ---- all of it ---- */

static void find_end_of_text(struct pl_tokenizer *t)
{
    static const char *const names[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"};
    t->end_of_text = PL_NONE32;
    for (size_t n = 0; n < sizeof names / sizeof names[0] && t->end_of_text == PL_NONE32; n++) {
        size_t len = strlen(names[n]), where;
        const uint8_t *text = (const uint8_t *)names[n];
        const struct pl_added *item = pl_added_set_find(&t->raw, t, text, len, 0, PL_SPECIALS_FIND, &where);
        if (item == NULL)
            item = pl_added_set_find(&t->normalized, t, text, len, 0, PL_SPECIALS_FIND, &where);
        if (item != NULL && item->text.len == len)
            t->end_of_text = item->id;
    }
}

static void digest_set(struct pl_tokenizer *t, const struct pl_added_set *set)
{
    for (uint32_t i = 0; i < set->count; i++) {
        const struct pl_added *item = &set->items[i];
        uint8_t bytes[5];
        pl_put_le(bytes, item->id, 4);
        bytes[4] = (uint8_t)((item->special ? 1 : 0) | (item->lstrip ? 2 : 0) | (item->rstrip ? 4 : 0));
        t->digest = pl_hash64(bytes, sizeof bytes, t->digest);
    }
}

/* The merges are in it already. */
static void finish_digest(struct pl_tokenizer *t)
{
    uint8_t head[16] = {(uint8_t)t->kind, t->nfc ? 1 : 0, t->whole_words ? 1 : 0};
    pl_put_le(head + 4, t->vocab, 4);
    pl_put_le(head + 8, pl_split_digest(t->split), 8);
    t->digest = pl_hash64(head, sizeof head, t->digest);
    for (uint32_t id = 0; id < t->vocab; id++)
        t->digest = pl_hash64(t->blob.data + t->tokens[id].offset, t->tokens[id].len, t->digest);
    digest_set(t, &t->raw);
    digest_set(t, &t->normalized);
}

static enum pelago_status read_root(struct pl_tokenizer *t, json_t *root, struct pl_error *err)
{
    json_t *model = json_object_get(root, "model"), *added = json_object_get(root, "added_tokens");
    json_t *vocab = json_object_get(model, "vocab");
    const char *type = json_string_value(json_object_get(model, "type"));
    if (!json_is_object(model))
        return pl_fail(err, PELAGO_INVALID, "the field model is missing");
    if (type == NULL)
        type = "BPE"; /* files from before the field existed */
    if (strcmp(type, "BPE") != 0 && strcmp(type, "WordLevel") != 0)
        return pl_fail(err, PELAGO_UNSUPPORTED, "model.type is '%s', supported are BPE and WordLevel", type);
    t->kind = type[0] == 'B' ? PL_TOKENIZER_BPE : PL_TOKENIZER_CHARS;
    PL_TRY(pl_tokjson_read_normalizer(json_object_get(root, "normalizer"), &t->nfc, err));
    PL_TRY(size_vocab(t, vocab, added, err));
    PL_TRY(read_vocab(t, vocab, err));
    PL_TRY(read_all_added(t, added, vocab, err));
    PL_TRY(t->kind == PL_TOKENIZER_BPE ? read_bpe(t, root, model, vocab, err)
                                       : read_chars(t, root, vocab, err));
    find_end_of_text(t);
    finish_digest(t);
    return PELAGO_OK;
}

static struct pl_tokenizer *new_tokenizer(const struct pl_alloc *alloc)
{
    struct pl_tokenizer *t = pl_alloc_zero(alloc, 1, sizeof *t);
    if (t == NULL)
        return NULL;
    t->alloc = alloc;
    t->split = pl_split_new(alloc);
    pl_buf_init(&t->json, alloc, PL_JSON_BYTES_MAX);
    pl_buf_init(&t->blob, alloc, UINT32_MAX);
    if (t->split != NULL)
        return t;
    pl_tokenizer_free(t);
    return NULL;
}

enum pelago_status pl_tokenizer_parse(struct pl_tokenizer **out, const struct pl_alloc *alloc,
                                      const void *json, size_t len, struct pl_error *err)
{
    struct pl_tokenizer *t = new_tokenizer(alloc);
    json_t *root = NULL;
    *out = NULL;
    if (t == NULL)
        return no_memory(err);
    enum pelago_status status = pl_tokjson_parse(&root, json, len, err);
    if (status == PELAGO_OK)
        status = read_root(t, root, err);
    json_decref(root);
    if (status == PELAGO_OK && pl_buf_append(&t->json, json, len) != PELAGO_OK)
        status = no_memory(err);
    if (status == PELAGO_OK)
        *out = t;
    else
        pl_tokenizer_free(t);
    return status;
}
