/* data/tokenizer_write.c - the tokenizer.json of our own tokenizers and of GPT-2's two files.
 *
 * The fields are those that Hugging Face `tokenizers` wants to see, and nothing else.
 */
#include "data/tokenizer_json.h"

#include <string.h>

static const char end_of_text[] = "<|endoftext|>";

static enum pelago_status no_memory(struct pl_error *err)
{
    return pl_fail(err, PELAGO_NOMEM, "there is no memory for the text of the tokenizer");
}

static json_t *make_added(json_t *vocab)
{
    json_t *id = json_object_get(vocab, end_of_text), *list = json_array();
    if (id != NULL)
        (void)json_array_append_new(list,
                                    json_pack("{s:I, s:s, s:b, s:b, s:b, s:b, s:b}", "id",
                                              json_integer_value(id), "content", end_of_text, "single_word",
                                              0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1));
    return list;
}

static json_t *make_byte_level(void)
{
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1,
                     "use_regex", 1);
}

/* jansson passes over a failure to write an object's key and goes on: the first one is kept. */
struct dump {
    struct pl_buf *out;
    bool failed;
};

static int append(const char *bytes, size_t len, void *user)
{
    struct dump *d = user;
    d->failed = d->failed || pl_buf_append(d->out, bytes, len) != PELAGO_OK;
    return d->failed ? -1 : 0;
}

/* Takes all references. */
static enum pelago_status write_root(json_t *added, json_t *pre_tokenizer, json_t *decoder, json_t *model,
                                     struct pl_buf *out, struct pl_error *err)
{
    json_t *root = json_pack("{s:s, s:n, s:n, s:o, s:n, s:o, s:n, s:o, s:o}", "version", "1.0", "truncation",
                             "padding", "added_tokens", added, "normalizer", "pre_tokenizer", pre_tokenizer,
                             "post_processor", "decoder", decoder, "model", model);
    struct dump d = {out, root == NULL};
    if (!d.failed && json_dump_callback(root, append, &d, JSON_INDENT(1)) != 0)
        d.failed = true;
    json_decref(root);
    return d.failed ? no_memory(err) : PELAGO_OK;
}

enum pelago_status pl_tokjson_write_bpe(json_t *vocab, json_t *merges, struct pl_buf *out,
                                        struct pl_error *err)
{
    json_t *added = make_added(vocab);
    json_t *model = json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE", "dropout",
                              "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0,
                              "byte_fallback", 0, "ignore_merges", 0, "vocab", vocab, "merges", merges);
    return write_root(added, make_byte_level(), make_byte_level(), model, out, err);
}

/* WordLevel wants the name of a token for the unknown. There is none, so an unknown character is an error there too. */
enum pelago_status pl_tokjson_write_chars(json_t *vocab, struct pl_buf *out, struct pl_error *err)
{
    json_t *added = make_added(vocab);
    json_t *split = json_pack("{s:s, s:{s:s}, s:s, s:b}", "type", "Split", "pattern", "Regex", "[\\s\\S]",
                              "behavior", "Isolated", "invert", 0);
    json_t *model = json_pack("{s:s, s:o, s:s}", "type", "WordLevel", "vocab", vocab, "unk_token", "<unk>");
    return write_root(added, split, json_pack("{s:s}", "type", "Fuse"), model, out, err);
}
