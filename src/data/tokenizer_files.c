/* data/tokenizer_files.c - a tokenizer from a file, or from a folder with one of the usual sets of files. */
#include "data/tokenizer.h"

#include "base/buf.h"
#include "base/fmt.h"
#include "data/input.h"
#include "data/tokenizer_json.h"

#include <string.h>
#include <sys/stat.h>

enum { PATH_BYTES = 4096 };

/* Puts the name of the file in front of what is wrong with it. */
static enum pelago_status blame(struct pl_error *err, enum pelago_status status, const char *path)
{
    if (status == PELAGO_OK || err == NULL)
        return status;
    struct pl_error inner = *err;
    return pl_fail(err, status, "%s: %s", path, inner.text);
}

static enum pelago_status load_json(struct pl_tokenizer **out, const struct pl_alloc *alloc, const char *path,
                                    struct pl_error *err)
{
    struct pl_buf text;
    pl_buf_init(&text, alloc, PL_JSON_BYTES_MAX);
    enum pelago_status status = pl_input_read_all(alloc, path, &text, err);
    if (status == PELAGO_OK)
        status = blame(err, pl_tokenizer_parse(out, alloc, text.data, text.len, err), path);
    pl_buf_release(&text);
    return status;
}

static bool is_version(const char *line, size_t len)
{
    return len >= 8 && memcmp(line, "#version", 8) == 0;
}

/* Lines "a b"; the first may be a version. */
static enum pelago_status parse_merges(const struct pl_buf *file, json_t *merges, struct pl_error *err)
{
    const char *text = (const char *)file->data, *end = text + file->len;
    for (unsigned number = 1; file->len > 0 && text < end; number++) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        size_t len = (size_t)((stop != NULL ? stop : end) - text);
        if (len > 0 && text[len - 1] == '\r')
            len--;
        if (len > 0 && !(number == 1 && is_version(text, len)) &&
            json_array_append_new(merges, json_stringn(text, len)) != 0)
            return pl_fail(err, PELAGO_INVALID, "line %u of the merges is not UTF-8", number);
        text = stop != NULL ? stop + 1 : end;
    }
    return PELAGO_OK;
}

static enum pelago_status parse_pair(struct pl_tokenizer **out, const struct pl_alloc *alloc,
                                     const struct pl_buf *encoder, const struct pl_buf *bpe,
                                     struct pl_error *err)
{
    json_t *vocab, *merges = json_array();
    struct pl_buf text;
    pl_buf_init(&text, alloc, PL_JSON_BYTES_MAX);
    enum pelago_status status = pl_tokjson_parse(&vocab, encoder->data, encoder->len, err);
    if (status == PELAGO_OK)
        status = parse_merges(bpe, merges, err);
    if (status == PELAGO_OK)
        status = pl_tokjson_write_bpe(json_incref(vocab), json_incref(merges), &text, err);
    if (status == PELAGO_OK)
        status = pl_tokenizer_parse(out, alloc, text.data, text.len, err);
    json_decref(vocab);
    json_decref(merges);
    pl_buf_release(&text);
    return status;
}

static enum pelago_status load_pair(struct pl_tokenizer **out, const struct pl_alloc *alloc,
                                    const char *vocab_path, const char *merges_path, struct pl_error *err)
{
    struct pl_buf vocab, merges;
    pl_buf_init(&vocab, alloc, PL_JSON_BYTES_MAX);
    pl_buf_init(&merges, alloc, PL_JSON_BYTES_MAX);
    enum pelago_status status = pl_input_read_all(alloc, vocab_path, &vocab, err);
    if (status == PELAGO_OK)
        status = pl_input_read_all(alloc, merges_path, &merges, err);
    if (status == PELAGO_OK)
        status = blame(err, parse_pair(out, alloc, &vocab, &merges, err), vocab_path);
    pl_buf_release(&vocab);
    pl_buf_release(&merges);
    return status;
}

static bool join(char path[PATH_BYTES], const char *folder, const char *name)
{
    struct stat st;
    if (strlen(folder) + strlen(name) + 2 > PATH_BYTES)
        return false;
    (void)pl_fmt(path, PATH_BYTES, "%s/%s", folder, name);
    return stat(path, &st) == 0;
}

enum pelago_status pl_tokenizer_load(struct pl_tokenizer **out, const struct pl_alloc *alloc,
                                     const char *path, struct pl_error *err)
{
    struct stat st;
    char a[PATH_BYTES], b[PATH_BYTES];
    *out = NULL;
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode))
        return load_json(out, alloc, path, err);
    if (join(a, path, "tokenizer.json"))
        return load_json(out, alloc, a, err);
    if ((join(a, path, "encoder.json") && join(b, path, "vocab.bpe")) ||
        (join(a, path, "vocab.json") && join(b, path, "merges.txt")))
        return load_pair(out, alloc, a, b, err);
    return pl_fail(err, PELAGO_NOTFOUND,
                   "the folder %s holds no tokenizer.json, nor encoder.json with vocab.bpe, nor vocab.json "
                   "with merges.txt",
                   path);
}
