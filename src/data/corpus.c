/* data/corpus.c - see corpus.h. */
#include "data/corpus.h"

#include "base/buf.h"
#include "base/check.h"
#include "base/num.h"
#include "data/input.h"

#include <jansson.h>
#include <string.h>

enum { BLOCK_BYTES = 1 << 20 };

static const char separator[] = "<|endoftext|>";
enum { SEPARATOR = sizeof separator - 1 };

struct reader {
    const struct pl_alloc *alloc;
    const struct pl_text_sink *sink;
    const char *path;
    uint8_t *block;     /* [BLOCK_BYTES] */
    struct pl_buf line; /* .jsonl: the line so far */
    uint64_t number;    /* of the line */
    uint64_t total;     /* bytes of text of all files */
    uint64_t document;  /* bytes of text of this document */
    /* Plain text: how much of the separator this line began with, held back until it is clear what it is; NO_MATCH: it is
     * text. */
    uint32_t matched;
    bool carriage; /* ... and a carriage return after all of it */
};

enum { NO_MATCH = SEPARATOR + 1 };

static enum pelago_status give(struct reader *r, const void *text, size_t len, struct pl_error *err)
{
    if (len == 0)
        return PELAGO_OK;
    r->total += len;
    r->document += len;
    return r->sink->text(r->sink->user, text, len, err);
}

static enum pelago_status end_document(struct reader *r, struct pl_error *err)
{
    if (r->document == 0)
        return PELAGO_OK;
    r->document = 0;
    return r->sink->end(r->sink->user, err);
}

/* ---- plain text ---- */

static enum pelago_status give_held(struct reader *r, struct pl_error *err)
{
    if (r->matched != NO_MATCH) {
        PL_TRY(give(r, separator, r->matched, err));
        PL_TRY(give(r, "\r", r->carriage ? 1 : 0, err));
    }
    r->matched = NO_MATCH;
    r->carriage = false;
    return PELAGO_OK;
}

/* Takes bytes while the line may still be a separator; returns where it stopped. */
static enum pelago_status match(struct reader *r, const uint8_t **at, const uint8_t *end,
                                struct pl_error *err)
{
    while (*at < end && r->matched != NO_MATCH) {
        uint8_t c = **at;
        if (r->matched < SEPARATOR && c == (uint8_t)separator[r->matched])
            r->matched++;
        else if (r->matched == SEPARATOR && c == '\r' && !r->carriage)
            r->carriage = true;
        else if (r->matched == SEPARATOR && c == '\n') {
            r->matched = 0;
            r->carriage = false;
            PL_TRY(end_document(r, err));
        } else
            return give_held(r, err);
        (*at)++;
    }
    return PELAGO_OK;
}

/* The end of the text that goes on from `at`: where a line begins like a separator, or the end of the block. */
static const uint8_t *find_candidate(const uint8_t *at, const uint8_t *end)
{
    while (at < end) {
        const uint8_t *newline = memchr(at, '\n', (size_t)(end - at));
        if (newline == NULL)
            return end;
        at = newline + 1;
        if (at == end || *at == (uint8_t)separator[0])
            return at;
    }
    return end;
}

static enum pelago_status take_plain(struct reader *r, const uint8_t *at, const uint8_t *end,
                                     struct pl_error *err)
{
    while (at < end) {
        PL_TRY(match(r, &at, end, err));
        if (at == end)
            break;
        const uint8_t *stop = find_candidate(at, end);
        PL_TRY(give(r, at, (size_t)(stop - at), err));
        r->matched = stop[-1] == '\n' ? 0 : NO_MATCH;
        at = stop;
    }
    return PELAGO_OK;
}

static enum pelago_status finish_plain(struct reader *r, struct pl_error *err)
{
    if (r->matched != SEPARATOR) /* else the last line is one, without a line end */
        PL_TRY(give_held(r, err));
    return end_document(r, err);
}

/* ---- .jsonl ---- */

static enum pelago_status take_object(struct reader *r, json_t *object, struct pl_error *err)
{
    json_t *text = json_object_get(object, "text");
    if (!json_is_string(text))
        return pl_fail(err, PELAGO_INVALID, "line %lu of %s has no field \"text\" with a string", r->number,
                       r->path);
    PL_TRY(give(r, json_string_value(text), json_string_length(text), err));
    return end_document(r, err);
}

static enum pelago_status take_line(struct reader *r, const void *line, size_t len, struct pl_error *err)
{
    json_error_t error;
    const char *text = line;
    r->number++;
    while (len > 0 && strchr(" \t\r", text[len - 1]) != NULL && text[len - 1] != '\0')
        len--;
    if (len == 0)
        return PELAGO_OK;
    json_t *object = json_loadb(text, len, JSON_ALLOW_NUL, &error);
    if (object == NULL)
        return pl_fail(err, PELAGO_INVALID, "line %lu of %s is not valid JSON: %s", r->number, r->path,
                       error.text);
    enum pelago_status status = take_object(r, object, err);
    json_decref(object);
    return status;
}

static enum pelago_status hold_line(struct reader *r, const uint8_t *at, size_t len, struct pl_error *err)
{
    enum pelago_status status = pl_buf_append(&r->line, at, len);
    if (status == PELAGO_LIMIT)
        return pl_fail(err, status, "line %lu of %s is longer than %lu MiB", r->number + 1, r->path,
                       PL_JSON_BYTES_MAX >> 20);
    return status == PELAGO_OK ? PELAGO_OK : pl_fail(err, status, "there is no memory to read %s", r->path);
}

static enum pelago_status take_json(struct reader *r, const uint8_t *at, const uint8_t *end,
                                    struct pl_error *err)
{
    while (at < end) {
        const uint8_t *newline = memchr(at, '\n', (size_t)(end - at));
        if (newline == NULL)
            return hold_line(r, at, (size_t)(end - at), err);
        if (r->line.len > 0) {
            PL_TRY(hold_line(r, at, (size_t)(newline - at), err));
            PL_TRY(take_line(r, r->line.data, r->line.len, err));
            r->line.len = 0;
        } else
            PL_TRY(take_line(r, at, (size_t)(newline - at), err));
        at = newline + 1;
    }
    return PELAGO_OK;
}

static enum pelago_status finish_json(struct reader *r, struct pl_error *err)
{
    size_t len = r->line.len;
    r->line.len = 0;
    return len > 0 ? take_line(r, r->line.data, len, err) : PELAGO_OK;
}

/* ---- files ---- */

static bool is_json(const char *path)
{
    static const char *const ends[] = {".jsonl", ".jsonl.zst"};
    size_t len = strlen(path);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        size_t n = strlen(ends[i]);
        if (len >= n && strcmp(path + len - n, ends[i]) == 0)
            return true;
    }
    return false;
}

static enum pelago_status read_stream(struct reader *r, struct pl_input *in, struct pl_error *err)
{
    bool json = is_json(r->path);
    size_t len;
    r->number = 0;
    r->matched = 0;
    r->carriage = false;
    for (;;) {
        PL_TRY(pl_input_read(in, r->block, BLOCK_BYTES, &len, err));
        if (len == 0)
            return json ? finish_json(r, err) : finish_plain(r, err);
        PL_TRY(json ? take_json(r, r->block, r->block + len, err)
                    : take_plain(r, r->block, r->block + len, err));
    }
}

static enum pelago_status read_file(struct reader *r, struct pl_error *err)
{
    struct pl_input *in;
    PL_TRY(pl_input_open(&in, r->alloc, r->path, err));
    enum pelago_status status = read_stream(r, in, err);
    pl_input_close(in);
    return status;
}

enum pelago_status pl_corpus_read(const struct pl_alloc *alloc, const char *const *paths, size_t count,
                                  const struct pl_text_sink *sink, struct pl_error *err)
{
    struct reader r = {.alloc = alloc, .sink = sink};
    enum pelago_status status = PELAGO_OK;
    r.block = pl_alloc_zero(alloc, BLOCK_BYTES, 1);
    pl_buf_init(&r.line, alloc, PL_JSON_BYTES_MAX);
    if (r.block == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory to read text");
    for (size_t i = 0; i < count && status == PELAGO_OK; i++) {
        r.path = paths[i];
        status = read_file(&r, err);
    }
    if (status == PELAGO_OK && r.total == 0)
        status = pl_fail(err, PELAGO_INVALID, "the corpus is empty: there is no text in %s%s",
                         count > 0 ? paths[0] : "it", count > 1 ? " and the other files" : "");
    pl_buf_release(&r.line);
    pl_alloc_free(alloc, r.block, BLOCK_BYTES);
    return status;
}
