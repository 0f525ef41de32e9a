/* train/checkpoint.c - saving; see checkpoint.h. checkpoint_load.c loads, checkpoint_state.c knows the state file.
 *
 * The order is what makes it safe: data files are written and synced under names nothing refers to; then their names
 * are synced; then the state file takes its name, and that is synced. Only after that anything older is removed, and
 * of each older checkpoint the state file first.
 */
#include "train/checkpoint_int.h"

#include "base/check.h"
#include "train/files.h"

#include <string.h>

enum { NAMES_MAX = 4096, AGAIN_MAX = 1000 };

/* The names in the directory that are ours, copied: it changes while we work through them. */
struct names {
    struct pl_buf buf; /* of struct pl_ckpt_name */
};

static enum pelago_status take_name(void *user, const char *text)
{
    struct names *names = user;
    struct pl_ckpt_name n = {.kind = PL_CKPT_MODEL};
    if (!pl_ckpt_name_parse(text, &n) || names->buf.len / sizeof n >= NAMES_MAX)
        return PELAGO_OK;
    return pl_buf_append(&names->buf, &n, sizeof n);
}

static enum pelago_status names_read(struct names *names, struct pl_dir dir, const struct pl_alloc *alloc)
{
    pl_buf_init(&names->buf, alloc, NAMES_MAX * sizeof(struct pl_ckpt_name));
    enum pelago_status st = dir.ops->list(dir.self, take_name, names);
    if (st != PELAGO_OK)
        pl_buf_release(&names->buf);
    return st;
}

static struct pl_ckpt_name name_at(const struct names *names, size_t i)
{
    struct pl_ckpt_name n;
    pl_assert((i + 1) * sizeof n <= names->buf.len);
    memcpy(&n, names->buf.data + i * sizeof n, sizeof n);
    return n;
}

static size_t name_count(const struct names *names)
{
    return names->buf.len / sizeof(struct pl_ckpt_name);
}

static bool has_name(const struct names *names, const struct pl_ckpt_name *wanted)
{
    for (size_t i = 0; i < name_count(names); i++) {
        struct pl_ckpt_name n = name_at(names, i);
        if (n.kind == wanted->kind && n.step == wanted->step && n.again == wanted->again)
            return true;
    }
    return false;
}

struct newest {
    uint64_t below;
    uint64_t step;
    bool any;
};

static enum pelago_status look_newer(void *user, const char *text)
{
    struct newest *newest = user;
    struct pl_ckpt_name n;
    if (pl_ckpt_name_parse(text, &n) && n.kind == PL_CKPT_STATE && n.step < newest->below &&
        (!newest->any || n.step > newest->step)) {
        newest->step = n.step;
        newest->any = true;
    }
    return PELAGO_OK;
}

enum pelago_status pl_checkpoint_newest(struct pl_dir dir, uint64_t below, uint64_t *step,
                                        struct pl_error *err)
{
    struct newest newest = {.below = below};
    enum pelago_status st = dir.ops->list(dir.self, look_newer, &newest);
    if (st != PELAGO_OK)
        return pl_fail(err, st, "the checkpoints cannot be listed: %s", pl_status_text(st));
    if (!newest.any && below != PL_NONE64)
        return pl_fail(err, PELAGO_NOTFOUND, "there is no checkpoint before step %lu", below);
    if (!newest.any)
        return pl_fail(err, PELAGO_NOTFOUND, "there is no checkpoint (no file state-*.json)");
    *step = newest.step;
    return PELAGO_OK;
}

enum pelago_status pl_checkpoint_go_back(struct pl_dir dir, uint64_t step, struct pl_error *err)
{
    struct pl_ckpt_name n = {PL_CKPT_STATE, 0, 0};
    char text[PL_FILE_NAME_MAX];
    while (pl_checkpoint_newest(dir, PL_NONE64, &n.step, NULL) == PELAGO_OK && n.step > step) {
        pl_ckpt_name_put(&n, text);
        enum pelago_status st = dir.ops->remove(dir.self, text);
        if (st != PELAGO_OK)
            return pl_files_fail(err, st, text, "removed");
    }
    return PELAGO_OK;
}

/* Whether a state file speaks of this data file. One that cannot be read might. */
static bool is_referred_to(struct pl_dir dir, const struct pl_alloc *alloc, const struct names *names,
                           const struct pl_ckpt_name *n)
{
    const struct pl_ckpt_name state_name = {PL_CKPT_STATE, n->step, 0};
    struct pl_ckpt_state state;
    char text[PL_FILE_NAME_MAX];
    if (!has_name(names, &state_name))
        return false;
    if (pl_ckpt_state_read(&state, dir, alloc, n->step, NULL) != PELAGO_OK)
        return true;
    pl_ckpt_name_put(n, text);
    bool same = strcmp(state.files[n->kind].name, text) == 0;
    pl_ckpt_state_release(&state);
    return same;
}

/* Removes what no checkpoint needs. Failing to is no failure: the next save tries again. What is seen is made to
 * last first: a state file whose rename a power cut undid would ask for the data of the one it replaced. */
static void remove_leftovers(struct pl_dir dir, const struct pl_alloc *alloc, const struct names *names)
{
    char text[PL_FILE_NAME_MAX];
    if (dir.ops->sync_dir(dir.self) != PELAGO_OK)
        return;
    for (size_t i = 0; i < name_count(names); i++) {
        struct pl_ckpt_name n = name_at(names, i);
        if (n.kind == PL_CKPT_STATE || (n.kind < PL_CKPT_STATE && is_referred_to(dir, alloc, names, &n)))
            continue;
        pl_ckpt_name_put(&n, text);
        (void)dir.ops->remove(dir.self, text);
    }
}

/* The oldest state files beyond `keep` go first, for good; then what belonged to them is a leftover. */
static void prune(struct pl_dir dir, const struct pl_alloc *alloc, uint32_t keep)
{
    struct names names;
    struct newest newest = {.below = PL_NONE64};
    char text[PL_FILE_NAME_MAX];
    for (uint32_t i = 0; keep > 0; i++) {
        newest.any = false;
        if (dir.ops->list(dir.self, look_newer, &newest) != PELAGO_OK || !newest.any)
            break;
        newest.below = newest.step;
        const struct pl_ckpt_name n = {PL_CKPT_STATE, newest.step, 0};
        pl_ckpt_name_put(&n, text);
        if (i >= keep && dir.ops->remove(dir.self, text) != PELAGO_OK)
            return;
    }
    if (names_read(&names, dir, alloc) != PELAGO_OK)
        return;
    remove_leftovers(dir, alloc, &names);
    pl_buf_release(&names.buf);
}

/* One attempt to save. */
struct save {
    struct pl_dir dir;
    const struct pl_alloc *alloc;
    const struct pl_checkpoint *c;
    uint64_t step;
    uint32_t again;
    struct pl_st_item *items; /* those of the model, then the spans */
    uint32_t item_count;
    struct pl_ckpt_data data[PL_CKPT_STATE];
    struct pl_error *err;
};

static void name_data(struct save *s, enum pl_ckpt_kind kind)
{
    const struct pl_ckpt_name n = {kind, s->step, s->again};
    pl_ckpt_name_put(&n, s->data[kind].name);
}

static enum pelago_status fill_items(struct save *s)
{
    const struct pl_checkpoint *c = s->c;
    s->item_count = c->tensors->count + c->span_count;
    s->items = pl_alloc_zero(s->alloc, s->item_count, sizeof s->items[0]);
    if (s->items == NULL)
        return pl_fail(s->err, PELAGO_NOMEM, "the checkpoint of step %lu cannot be saved: out of memory",
                       s->step);
    for (uint32_t i = 0; i < c->tensors->count; i++) {
        const struct pl_tensor *t = &c->tensors->at[i];
        s->items[i] = (struct pl_st_item){.name = t->name,
                                          .at = c->params + t->offset,
                                          .dtype = PL_DTYPE_F32,
                                          .vector = t->group == PL_GROUP_NORM,
                                          .rows = t->rows,
                                          .cols = t->cols};
    }
    for (uint32_t i = 0; i < c->span_count; i++) {
        const struct pl_named_span *span = &c->spans[i];
        s->items[c->tensors->count + i] = (struct pl_st_item){.name = span->name,
                                                              .at = span->at,
                                                              .dtype = PL_DTYPE_F32,
                                                              .vector = span->rows == 1,
                                                              .rows = span->rows,
                                                              .cols = span->cols};
    }
    return PELAGO_OK;
}

static enum pelago_status write_tensors(struct save *s, enum pl_ckpt_kind kind, struct pl_st_item *items,
                                        uint32_t count)
{
    struct pl_st_written written;
    struct pl_ckpt_data *d = &s->data[kind];
    name_data(s, kind);
    PL_TRY(pl_st_write(s->dir, d->name, s->alloc, items, count, &written, s->err));
    d->bytes = written.file_bytes;
    d->digest = written.header_digest;
    d->items = items;
    d->item_count = count;
    return PELAGO_OK;
}

static enum pelago_status write_data(struct save *s)
{
    const struct pl_checkpoint *c = s->c;
    PL_TRY(write_tensors(s, PL_CKPT_MODEL, s->items, c->tensors->count));
    if (c->span_count > 0)
        PL_TRY(write_tensors(s, PL_CKPT_OPTIMIZER, s->items + c->tensors->count, c->span_count));
    if (c->tokenizer.len > 0) {
        struct pl_ckpt_data *d = &s->data[PL_CKPT_TOKENIZER];
        name_data(s, PL_CKPT_TOKENIZER);
        PL_TRY(pl_files_write(s->dir, d->name, c->tokenizer, s->err));
        d->bytes = c->tokenizer.len;
        d->digest = pl_hash64(c->tokenizer.data, c->tokenizer.len, 0);
    }
    return PELAGO_OK;
}

static enum pelago_status write_state(struct save *s, const char *partial)
{
    struct pl_buf text;
    pl_buf_init(&text, s->alloc, PL_STATE_BYTES_MAX);
    enum pelago_status st = pl_ckpt_state_print(s->c, s->step, s->data, &text);
    if (st != PELAGO_OK)
        st = pl_files_fail(s->err, st, partial, "written");
    else
        st = pl_files_write(s->dir, partial, (struct pl_bytes){text.data, text.len}, s->err);
    pl_buf_release(&text);
    return st;
}

/* From here on the checkpoint counts, when it returns OK. */
static enum pelago_status commit(struct save *s)
{
    const struct pl_ckpt_name from = {PL_CKPT_STATE_PARTIAL, s->step, 0}, to = {PL_CKPT_STATE, s->step, 0};
    char partial[PL_FILE_NAME_MAX], final[PL_FILE_NAME_MAX];
    pl_ckpt_name_put(&from, partial);
    pl_ckpt_name_put(&to, final);
    PL_TRY(write_state(s, partial));
    enum pelago_status st = s->dir.ops->sync_dir(s->dir.self);
    if (st == PELAGO_OK)
        st = s->dir.ops->rename(s->dir.self, partial, final);
    if (st == PELAGO_OK)
        st = s->dir.ops->sync_dir(s->dir.self);
    return st == PELAGO_OK ? st : pl_files_fail(s->err, st, final, "written");
}

static enum pelago_status check_fields(const struct pl_checkpoint *c, struct pl_error *err)
{
    for (uint32_t i = 0; i < c->field_count; i++) {
        if (c->fields[i].kind != PL_MEMBER_TEXT)
            continue;
        json_t *text = json_string(c->fields[i].at);
        if (text == NULL)
            return pl_fail(err, PELAGO_INVALID, "%s is not UTF-8 text and cannot be saved",
                           c->fields[i].name);
        json_decref(text);
    }
    return PELAGO_OK;
}

/* Refuses where a later step is there; tidies up; finds names for the data that are free. */
static enum pelago_status prepare(struct save *s)
{
    uint64_t newest = 0;
    struct names names;
    if (pl_checkpoint_newest(s->dir, PL_NONE64, &newest, NULL) == PELAGO_OK && newest > s->step)
        return pl_fail(s->err, PELAGO_INVALID,
                       "the checkpoint of step %lu cannot be saved: there is one of step %lu already",
                       s->step, newest);
    enum pelago_status st = names_read(&names, s->dir, s->alloc);
    if (st == PELAGO_OK) {
        remove_leftovers(s->dir, s->alloc, &names);
        pl_buf_release(&names.buf);
        st = names_read(&names, s->dir, s->alloc);
    }
    if (st != PELAGO_OK)
        return pl_fail(s->err, st, "the folder of checkpoints cannot be listed: %s", pl_status_text(st));
    for (bool taken = true; taken && s->again < AGAIN_MAX; s->again += taken) {
        taken = false;
        for (unsigned kind = 0; kind < PL_CKPT_STATE; kind++) {
            const struct pl_ckpt_name n = {(enum pl_ckpt_kind)kind, s->step, s->again};
            taken = taken || has_name(&names, &n);
        }
    }
    pl_buf_release(&names.buf);
    return PELAGO_OK;
}

/* After a failure: what was written of this attempt. A state file that has taken its name keeps its data. */
static void undo(struct save *s)
{
    struct names names;
    if (names_read(&names, s->dir, s->alloc) != PELAGO_OK)
        return;
    remove_leftovers(s->dir, s->alloc, &names);
    pl_buf_release(&names.buf);
}

enum pelago_status pl_checkpoint_save(struct pl_dir dir, const struct pl_alloc *alloc, uint64_t step,
                                      const struct pl_checkpoint *c, uint32_t keep, struct pl_error *err)
{
    struct save s = {.dir = dir, .alloc = alloc, .c = c, .step = step, .err = err};
    pl_assert(step <= PL_COUNT_MAX && c->tensors->count > 0);
    PL_TRY(check_fields(c, err));
    PL_TRY(fill_items(&s));
    enum pelago_status st = prepare(&s);
    if (st == PELAGO_OK) {
        st = write_data(&s);
        if (st == PELAGO_OK)
            st = commit(&s);
        if (st != PELAGO_OK)
            undo(&s);
    }
    pl_alloc_free(alloc, s.items, s.item_count * sizeof s.items[0]);
    if (st == PELAGO_OK)
        prune(dir, alloc, keep);
    return st;
}
