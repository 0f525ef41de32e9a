/* conf/conf.c - see conf.h. libyaml gives events; this is the small machine that takes the few we want. */
#include "conf/conf.h"

#include "base/fmt.h"

#include <errno.h>
#include <string.h>
#include <yaml.h>

struct reader {
    struct pl_conf *conf;
    struct pl_error *err;
    yaml_parser_t parser;
    yaml_event_t event;
    bool has_event;
};

void pl_conf_init(struct pl_conf *c)
{
    *c = (struct pl_conf){.count = 0};
}

void pl_conf_release(struct pl_conf *c)
{
    if (c->text.alloc != NULL)
        pl_buf_release(&c->text);
    pl_conf_init(c);
}

/* ---- sentences ---- */

static enum pelago_status refuse(struct reader *r, uint32_t line, const char *format, const char *word)
{
    char what[PL_TEXT_MAX];
    (void)pl_fmt(what, sizeof what, format, word);
    return pl_fail(r->err, PELAGO_INVALID, "%s, line %u: %s", r->conf->file, line, what);
}

static uint32_t line_of(const yaml_event_t *e)
{
    return (uint32_t)e->start_mark.line + 1;
}

/* What a person gave may be long or odd: the beginning of it, as plain text. */
struct word {
    char at[48];
};
static struct word word_of(const char *text)
{
    struct word w;
    size_t i = 0;
    for (; text[i] != '\0' && i < sizeof w.at - 4; i++)
        w.at[i] = '?';
    for (size_t k = 0; k < i; k++)
        if (text[k] >= ' ' && text[k] <= '~')
            w.at[k] = text[k];
    (void)pl_fmt(w.at + i, sizeof w.at - i, "%s", text[i] != '\0' ? "..." : "");
    return w;
}

static enum pelago_status refuse_yaml(struct reader *r)
{
    const yaml_parser_t *p = &r->parser;
    if (p->error == YAML_MEMORY_ERROR)
        return pl_fail(r->err, PELAGO_NOMEM, "%s: there is no memory to read it", r->conf->file);
    bool is_bytes = p->error == YAML_READER_ERROR;
    uint32_t line = is_bytes ? 0 : (uint32_t)p->problem_mark.line + 1;
    const char *problem = p->problem != NULL ? p->problem : "it cannot be understood";
    if (is_bytes)
        return pl_fail(r->err, PELAGO_INVALID, "%s is not text in UTF-8: %s at byte %lu", r->conf->file,
                       word_of(problem).at, (uint64_t)p->problem_offset);
    return refuse(r, line, "this is no YAML of the form 'key: value' (%s)", word_of(problem).at);
}

/* ---- events ---- */

/* The next event; the one before is gone. */
static enum pelago_status next(struct reader *r)
{
    if (r->has_event)
        yaml_event_delete(&r->event);
    r->has_event = yaml_parser_parse(&r->parser, &r->event) != 0;
    return r->has_event ? PELAGO_OK : refuse_yaml(r);
}

static enum pelago_status expect(struct reader *r, yaml_event_type_t type, const char *otherwise)
{
    PL_TRY(next(r));
    return r->event.type == type ? PELAGO_OK : refuse(r, line_of(&r->event), otherwise, "");
}

/* ---- values ---- */

/* Zero-terminated, behind what is there already. Entries point into the buffer: all it may ever hold was reserved, so it
 * does not move. */
static enum pelago_status keep(struct reader *r, const char *text, size_t len)
{
    PL_TRY(pl_buf_append(&r->conf->text, text, len));
    return pl_buf_append(&r->conf->text, "", 1);
}

static bool is_plain_null(const yaml_event_t *e)
{
    const char *text = (const char *)e->data.scalar.value;
    return e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (text[0] == '\0' || strcmp(text, "~") == 0 || strcmp(text, "null") == 0);
}

/* A scalar as a text of one line, without anything YAML hangs on it. */
static enum pelago_status check_scalar(struct reader *r, const char *key)
{
    const yaml_event_t *e = &r->event;
    const char *text = (const char *)e->data.scalar.value;
    size_t len = e->data.scalar.length;
    if (e->data.scalar.anchor != NULL || e->data.scalar.tag != NULL)
        return refuse(r, line_of(e), "%s has an anchor or a tag, which are not used here", key);
    if (is_plain_null(e))
        return refuse(r, line_of(e), "%s has no value; leave the line out to get the default", key);
    if (e->data.scalar.style == YAML_LITERAL_SCALAR_STYLE ||
        e->data.scalar.style == YAML_FOLDED_SCALAR_STYLE || e->start_mark.line != e->end_mark.line)
        return refuse(r, line_of(e), "%s goes over several lines; a value must be on one", key);
    if (len >= PL_CONF_VALUE_MAX)
        return refuse(r, line_of(e), "%s is longer than 4095 bytes", key);
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
            return refuse(r, line_of(e), "%s has a control character in it", key);
    return PELAGO_OK;
}

static enum pelago_status read_item(struct reader *r, struct pl_conf_entry *entry, bool first)
{
    const yaml_event_t *e = &r->event;
    struct word key = word_of(entry->key);
    if (e->type != YAML_SCALAR_EVENT)
        return refuse(r, line_of(e), "%s is a list of something else than plain values", key.at);
    PL_TRY(check_scalar(r, key.at));
    const char *text = (const char *)e->data.scalar.value;
    if (strchr(text, ',') != NULL)
        return refuse(r, line_of(e), "a value of the list %s has a comma in it", key.at);
    if (!first)
        r->conf->text.data[r->conf->text.len - 1] = ',';
    PL_TRY(keep(r, text, e->data.scalar.length));
    size_t len = (size_t)((const char *)r->conf->text.data + r->conf->text.len - entry->value);
    return len <= PL_CONF_VALUE_MAX ? PELAGO_OK
                                    : refuse(r, line_of(e), "the list %s is longer than 4095 bytes", key.at);
}

static enum pelago_status read_list(struct reader *r, struct pl_conf_entry *entry)
{
    bool first = true;
    struct word key = word_of(entry->key);
    if (r->event.data.sequence_start.anchor != NULL || r->event.data.sequence_start.tag != NULL)
        return refuse(r, entry->line, "%s has an anchor or a tag, which are not used here", key.at);
    entry->is_list = true;
    PL_TRY(next(r));
    for (; r->event.type != YAML_SEQUENCE_END_EVENT; first = false) {
        PL_TRY(read_item(r, entry, first));
        PL_TRY(next(r));
    }
    return first ? refuse(r, entry->line, "%s is an empty list; leave it out to get the default", key.at)
                 : PELAGO_OK;
}

static enum pelago_status read_value(struct reader *r, struct pl_conf_entry *entry)
{
    struct word key = word_of(entry->key);
    PL_TRY(next(r));
    entry->value = (const char *)r->conf->text.data + r->conf->text.len;
    if (r->event.type == YAML_ALIAS_EVENT)
        return refuse(r, entry->line, "%s is an alias (*name), which is not used here", key.at);
    if (r->event.type == YAML_MAPPING_START_EVENT)
        return refuse(r, entry->line, "%s has keys of its own; every key stands alone here", key.at);
    if (r->event.type == YAML_SEQUENCE_START_EVENT)
        return read_list(r, entry);
    PL_TRY(check_scalar(r, key.at));
    return keep(r, (const char *)r->event.data.scalar.value, r->event.data.scalar.length);
}

/* ---- the mapping ---- */

static enum pelago_status read_key(struct reader *r, struct pl_conf_entry *entry)
{
    const yaml_event_t *e = &r->event;
    entry->line = line_of(e);
    if (e->type != YAML_SCALAR_EVENT)
        return refuse(r, entry->line, "a key is a word, and this is none", "");
    PL_TRY(check_scalar(r, "a key"));
    entry->key = (const char *)r->conf->text.data + r->conf->text.len;
    PL_TRY(keep(r, (const char *)e->data.scalar.value, e->data.scalar.length));
    for (uint32_t i = 0; i < r->conf->count; i++)
        if (strcmp(r->conf->entries[i].key, entry->key) == 0)
            return refuse(r, entry->line, "%s was given before; a key stands there once",
                          word_of(entry->key).at);
    return PELAGO_OK;
}

static enum pelago_status read_mapping(struct reader *r)
{
    static const char form[] = "expected lines of the form 'key: value'";
    struct pl_conf *c = r->conf;
    PL_TRY(expect(r, YAML_STREAM_START_EVENT, form));
    PL_TRY(next(r));
    if (r->event.type == YAML_STREAM_END_EVENT)
        return pl_fail(r->err, PELAGO_INVALID, "%s is empty: expected lines of the form 'key: value'",
                       c->file);
    PL_TRY(expect(r, YAML_MAPPING_START_EVENT, form));
    if (r->event.data.mapping_start.anchor != NULL || r->event.data.mapping_start.tag != NULL)
        return refuse(r, line_of(&r->event), "anchors and tags are not used here", "");
    PL_TRY(next(r));
    for (; r->event.type != YAML_MAPPING_END_EVENT; c->count++) {
        if (c->count == PL_CONF_KEYS_MAX)
            return refuse(r, line_of(&r->event), "there are more than 128 keys", "");
        struct pl_conf_entry *entry = &c->entries[c->count];
        PL_TRY(read_key(r, entry));
        PL_TRY(read_value(r, entry));
        PL_TRY(next(r));
    }
    PL_TRY(expect(r, YAML_DOCUMENT_END_EVENT, form));
    return expect(r, YAML_STREAM_END_EVENT, "a second document begins; there may be one only");
}

/* ---- the whole ---- */

static enum pelago_status refuse_tabs(struct reader *r, struct pl_bytes text)
{
    const char *at = text.data;
    uint32_t line = 1;
    for (size_t i = 0; i < text.len; i++) {
        line += at[i] == '\n';
        if (at[i] == '\t')
            return refuse(r, line, "there is a tab; spaces are expected", "");
    }
    return PELAGO_OK;
}

static void name_file(struct pl_conf *c, const char *file)
{
    size_t len = strlen(file), cap = sizeof c->file - 1;
    (void)pl_fmt(c->file, sizeof c->file, "%s%s", len > cap ? "..." : "",
                 len > cap ? file + len - cap + 3 : file);
    for (char *p = c->file; *p != '\0'; p++)
        if (*p < ' ' || *p > '~')
            *p = '?';
}

enum pelago_status pl_conf_parse(struct pl_conf *c, const struct pl_alloc *alloc, const char *file,
                                 struct pl_bytes text, struct pl_error *err)
{
    struct reader r = {.conf = c, .err = err};
    pl_conf_init(c);
    c->alloc = *alloc;
    name_file(c, file);
    if (text.len > PL_CONF_BYTES_MAX)
        return pl_fail(err, PELAGO_LIMIT, "%s is longer than 64 KiB, which no configuration is", c->file);
    /* An escape of two characters may stand for three bytes, and every text gets a zero behind it. */
    pl_buf_init(&c->text, &c->alloc, 2 * text.len + 16);
    enum pelago_status st = pl_buf_reserve(&c->text, 2 * text.len + 16);
    if (st != PELAGO_OK || yaml_parser_initialize(&r.parser) == 0) {
        pl_conf_release(c);
        return pl_fail(err, PELAGO_NOMEM, "there is no memory to read a configuration");
    }
    yaml_parser_set_input_string(&r.parser, text.len > 0 ? text.data : (const unsigned char *)"", text.len);
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    st = refuse_tabs(&r, text);
    if (st == PELAGO_OK)
        st = read_mapping(&r);
    if (r.has_event)
        yaml_event_delete(&r.event);
    yaml_parser_delete(&r.parser);
    if (st != PELAGO_OK)
        pl_conf_release(c);
    return st;
}

static enum pelago_status read_file(FILE *f, const char *path, struct pl_buf *out, struct pl_error *err)
{
    PL_TRY(pl_buf_reserve(out, PL_CONF_BYTES_MAX + 1));
    errno = 0;
    out->len = fread(out->data, 1, PL_CONF_BYTES_MAX + 1, f);
    if (ferror(f) != 0)
        return pl_fail(err, PELAGO_IO, "%s cannot be read: %s", word_of(path).at, strerror(errno));
    return PELAGO_OK;
}

enum pelago_status pl_conf_read(struct pl_conf *c, const struct pl_alloc *alloc, const char *path,
                                struct pl_error *err)
{
    struct pl_buf text;
    pl_conf_init(c);
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return pl_fail(err, errno == ENOENT ? PELAGO_NOTFOUND : PELAGO_IO,
                       "the configuration %s cannot be read: %s", word_of(path).at, strerror(errno));
    pl_buf_init(&text, alloc, PL_CONF_BYTES_MAX + 1);
    enum pelago_status st = read_file(f, path, &text, err);
    (void)fclose(f);
    if (st == PELAGO_OK)
        st = pl_conf_parse(c, alloc, path, (struct pl_bytes){text.data, text.len}, err);
    pl_buf_release(&text);
    return st;
}
