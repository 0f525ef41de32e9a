/* train/choices_read.c - reads files of questions; see choices.h. */
#include "data/input.h"
#include "train/choices_int.h"

#include <string.h>

struct reader {
    struct pl_choices *c;
    const char *path;
    const uint8_t *at, *end;
    uint64_t line; /* of what `at` points to, from 1 */
    struct pl_error *err;
};

static enum pelago_status bad(const struct reader *r, const char *what)
{
    return pl_fail(r->err, PELAGO_INVALID, "line %lu of %s %s", r->line, r->path, what);
}

static enum pelago_status no_memory(const struct reader *r)
{
    return pl_fail(r->err, PELAGO_NOMEM, "there is no memory for the questions of %s", r->path);
}

/* The next line without its end, which may be missing at the end of the file. */
static struct pl_bytes next_line(struct reader *r)
{
    const uint8_t *start = r->at, *newline = memchr(start, '\n', (size_t)(r->end - start));
    const uint8_t *stop = newline != NULL ? newline : r->end;
    r->at = newline != NULL ? newline + 1 : r->end;
    return (struct pl_bytes){start, (size_t)(stop - start)};
}

static bool read_number(const char **at, const char *end, uint32_t *out)
{
    const char *begin = *at;
    *out = 0;
    while (*at < end && **at >= '0' && **at <= '9' && *out < 1000000)
        *out = *out * 10 + (uint32_t)(*(*at)++ - '0');
    return *at > begin;
}

static enum pelago_status read_head(struct reader *r, struct pl_choice_question *q)
{
    struct pl_bytes line = next_line(r);
    const char *at = line.data, *end = at + line.len;
    bool good =
        read_number(&at, end, &q->gold) && at < end && *at++ == ' ' && read_number(&at, end, &q->count);
    if (!good || at != end || q->count == 0 || q->count > PL_CHOICES_OPTIONS_MAX || q->gold >= q->count)
        return bad(r, "should say which option is right and how many there are, as in \"0 4\"");
    r->line++;
    return PELAGO_OK;
}

/* Appends what the text stands for. */
static enum pelago_status unescape(struct reader *r, const uint8_t *text, size_t len)
{
    struct pl_buf *out = &r->c->text;
    if (pl_buf_reserve(out, len) != PELAGO_OK)
        return no_memory(r);
    for (size_t i = 0; i < len; i++) {
        uint8_t byte = text[i];
        if (byte == '\\') {
            byte = i + 1 < len ? text[++i] : '\0';
            if (byte != 'n' && byte != 't' && byte != '\\')
                return bad(r, "has a backslash before something else than n, t or a backslash");
            byte = byte == 'n' ? '\n' : byte == 't' ? '\t' : byte;
        }
        out->data[out->len++] = byte;
    }
    return PELAGO_OK;
}

static enum pelago_status read_option(struct reader *r)
{
    struct pl_choice_option o = {.context = r->c->text.len};
    struct pl_bytes line = next_line(r);
    const uint8_t *text = line.data, *tab = line.len > 0 ? memchr(text, '\t', line.len) : NULL;
    if (tab == NULL)
        return bad(r, "should be a context, a tab and a continuation");
    PL_TRY(unescape(r, text, (size_t)(tab - text)));
    o.ending = r->c->text.len;
    o.context_len = o.ending - o.context;
    PL_TRY(unescape(r, tab + 1, line.len - (size_t)(tab + 1 - text)));
    o.ending_len = r->c->text.len - o.ending;
    if (o.ending_len == 0)
        return bad(r, "has no continuation after the tab");
    r->line++;
    return pl_buf_append(&r->c->options, &o, sizeof o) == PELAGO_OK ? PELAGO_OK : no_memory(r);
}

static enum pelago_status read_question(struct reader *r)
{
    struct pl_choice_question q = {.first = r->c->options.len / sizeof(struct pl_choice_option)};
    PL_TRY(read_head(r, &q));
    for (uint32_t i = 0; i < q.count; i++) {
        if (r->at == r->end)
            return bad(r, "is missing: the file ends inside a question");
        PL_TRY(read_option(r));
    }
    return pl_buf_append(&r->c->questions, &q, sizeof q) == PELAGO_OK ? PELAGO_OK : no_memory(r);
}

static enum pelago_status read_all(struct pl_choices *c, const char *path, uint64_t limit,
                                   struct pl_error *err)
{
    struct pl_buf file;
    pl_buf_init(&file, &c->alloc, PL_DOCUMENT_BYTES_MAX);
    enum pelago_status st = pl_input_read_all(&c->alloc, path, &file, err);
    struct reader r = {c, path, file.data, file.len > 0 ? file.data + file.len : file.data, 1, err};
    for (uint64_t i = 0; st == PELAGO_OK && i < limit && r.at < r.end; i++)
        st = read_question(&r);
    if (st == PELAGO_OK && c->questions.len == 0)
        st = pl_fail(err, PELAGO_INVALID, "there is no question in %s", path);
    pl_buf_release(&file);
    return st;
}

enum pelago_status pl_choices_read(struct pl_choices **out, const struct pl_alloc *alloc, const char *path,
                                   uint64_t limit, struct pl_error *err)
{
    struct pl_choices *c = pl_alloc_zero(alloc, 1, sizeof *c);
    *out = NULL;
    if (c == NULL)
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for the questions of %s", path);
    c->alloc = *alloc;
    pl_buf_init(&c->text, &c->alloc, PL_DOCUMENT_BYTES_MAX);
    pl_buf_init(&c->options, &c->alloc, PL_DOCUMENT_BYTES_MAX);
    pl_buf_init(&c->questions, &c->alloc, PL_DOCUMENT_BYTES_MAX);
    enum pelago_status st = read_all(c, path, limit, err);
    if (st != PELAGO_OK) {
        pl_choices_free(c);
        return st;
    }
    *out = c;
    return PELAGO_OK;
}

void pl_choices_free(struct pl_choices *c)
{
    if (c == NULL)
        return;
    struct pl_alloc alloc = c->alloc;
    pl_buf_release(&c->text);
    pl_buf_release(&c->options);
    pl_buf_release(&c->questions);
    pl_alloc_free(&alloc, c, sizeof *c);
}
