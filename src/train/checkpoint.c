/* train/checkpoint.c - saving; see checkpoint.h. checkpoint_load.c loads, checkpoint_state.c knows the state file.
 *
 * The order is what makes it safe: data files are written and synced under names nothing refers to; then their names
 * are synced; then the state file takes its name, and that is synced. Only after that any other checkpoint is removed, and
 * of each the state file first.
 */
#include "train/checkpoint_int.h"

#include "base/check.h"
#include "train/files.h"

#include <stdlib.h>
#include <string.h>

enum { AGAIN_MAX = 1000 };

/* All names in the directory that are ours, copied: it changes while we work through them. Sorted by step and, of a step, the
 * state first. There is no bound but memory: of a list that was cut, whatever its missing states speak of would look
 * like leftovers. */
struct names {
    struct pl_buf buf; /* of struct pl_ckpt_name */
};

static enum pelago_status take_name(void *user, const char *text)
{
    struct names *names = user;
    struct pl_ckpt_name n = {.kind = PL_CKPT_MODEL};
    if (!pl_ckpt_name_parse(text, &n))
        return PELAGO_OK;
    return pl_buf_append(&names->buf, &n, sizeof n);
}

static int by_step(const void *a, const void *b)
{
    const struct pl_ckpt_name *x = a, *y = b;
    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    if (x->kind != y->kind)
        return x->kind == PL_CKPT_STATE || (y->kind != PL_CKPT_STATE && x->kind < y->kind) ? -1 : 1;
    return x->again < y->again ? -1 : x->again > y->again;
}

static enum pelago_status names_read(struct names *names, struct pl_dir dir, const struct pl_alloc *alloc)
{
    pl_buf_init(&names->buf, alloc, SIZE_MAX);
    enum pelago_status st = dir.ops->list(dir.self, take_name, names);
    if (st != PELAGO_OK)
        pl_buf_release(&names->buf);
    else if (names->buf.len > 0)
        qsort(names->buf.data, names->buf.len / sizeof(struct pl_ckpt_name), sizeof(struct pl_ckpt_name),
              by_step);
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

/* What belongs to one step: the names `from` up to before `end`. */
struct step_names {
    size_t from, end;
    bool has_state;
    bool has_twins; /* two data files of one kind: one of them is a leftover */
};

static struct step_names step_at(const struct names *names, size_t from)
{
    struct step_names s = {from, from, false, false};
    const struct pl_ckpt_name first = name_at(names, from);
    struct pl_ckpt_name before = first;
    s.has_state = first.kind == PL_CKPT_STATE;
    for (s.end++; s.end < name_count(names); s.end++) {
        const struct pl_ckpt_name n = name_at(names, s.end);
        if (n.step != first.step)
            break;
        s.has_twins = s.has_twins || n.kind == before.kind;
        before = n;
    }
    return s;
}

static void remove_name(struct pl_dir dir, const struct pl_ckpt_name *n)
{
    char text[PL_FILE_NAME_MAX];
    pl_ckpt_name_put(n, text);
    (void)dir.ops->remove(dir.self, text);
}

/* state: of that step, NULL: there is none, nothing of it is needed. */
static void remove_of_step(struct pl_dir dir, const struct names *names, const struct step_names *s,
                           const struct pl_ckpt_state *state)
{
    char text[PL_FILE_NAME_MAX];
    for (size_t i = s->from; i < s->end; i++) {
        const struct pl_ckpt_name n = name_at(names, i);
        pl_ckpt_name_put(&n, text);
        if (n.kind == PL_CKPT_STATE ||
            (n.kind < PL_CKPT_STATE && state != NULL && strcmp(state->files[n.kind].name, text) == 0))
            continue;
        remove_name(dir, &n);
    }
}

/* Removes what no checkpoint needs. Failing to is no failure: the next save tries again. What is seen is made to
 * last first: a state file whose rename a power cut undid would ask for the data of the one it replaced.
 *
 * A state is read where there is a choice only, so that many checkpoints cost a listing: `step`, which may have been saved
 * again with fewer files, and steps with two files of one kind. One that cannot be read might speak of any. */
static void remove_leftovers(struct pl_dir dir, const struct pl_alloc *alloc, const struct names *names,
                             uint64_t step)
{
    if (dir.ops->sync_dir(dir.self) != PELAGO_OK)
        return;
    for (size_t at = 0; at < name_count(names);) {
        const struct step_names s = step_at(names, at);
        struct pl_ckpt_state state;
        uint64_t its_step = name_at(names, at).step;
        if (!s.has_state) {
            remove_of_step(dir, names, &s, NULL);
        } else if ((s.has_twins || its_step == step) &&
                   pl_ckpt_state_read(&state, dir, alloc, its_step, NULL) == PELAGO_OK) {
            remove_of_step(dir, names, &s, &state);
            pl_ckpt_state_release(&state);
        }
        at = s.end;
    }
}

/* After `step` is there for good, where it rewinds: the state files whose place it takes go, the last first, so that whenever
 * this ends the first ones are left. That one stays is a failure: it may be the newest. */
static enum pelago_status remove_later(struct pl_dir dir, const struct names *names, uint64_t step,
                                       uint64_t rewinds_to, struct pl_error *err)
{
    for (size_t i = name_count(names); i-- > 0 && name_at(names, i).step > rewinds_to;) {
        const struct pl_ckpt_name n = name_at(names, i);
        char text[PL_FILE_NAME_MAX];
        if (n.kind != PL_CKPT_STATE || n.step == step)
            continue;
        pl_ckpt_name_put(&n, text);
        enum pelago_status st = dir.ops->remove(dir.self, text);
        if (st != PELAGO_OK)
            return pl_files_fail(err, st, text, "removed");
    }
    enum pelago_status st = dir.ops->sync_dir(dir.self);
    return st == PELAGO_OK
               ? st
               : pl_fail(err, st, "the later checkpoints cannot be removed: %s", pl_status_text(st));
}

static enum pelago_status take_their_place(struct pl_dir dir, const struct pl_alloc *alloc, uint64_t step,
                                           uint64_t rewinds_to, struct pl_error *err)
{
    struct names names;
    enum pelago_status st = names_read(&names, dir, alloc);
    if (st != PELAGO_OK)
        return pl_fail(err, st, "the later checkpoints cannot be listed: %s", pl_status_text(st));
    st = remove_later(dir, &names, step, rewinds_to, err);
    pl_buf_release(&names.buf);
    return st;
}

/* The oldest state files beyond `keep`; 0: none. False: one could not be removed. */
static bool remove_oldest(struct pl_dir dir, const struct names *names, uint32_t keep)
{
    uint32_t seen = 0;
    for (size_t i = name_count(names); keep > 0 && i-- > 0;) {
        const struct pl_ckpt_name n = name_at(names, i);
        char text[PL_FILE_NAME_MAX];
        if (n.kind != PL_CKPT_STATE || seen++ < keep)
            continue;
        pl_ckpt_name_put(&n, text);
        if (dir.ops->remove(dir.self, text) != PELAGO_OK)
            return false;
    }
    return true;
}

/* The oldest state files beyond `keep` go first, for good; then what belonged to them is a leftover. */
static void prune(struct pl_dir dir, const struct pl_alloc *alloc, uint64_t step, uint32_t keep)
{
    struct names names;
    if (names_read(&names, dir, alloc) != PELAGO_OK)
        return;
    bool removed = remove_oldest(dir, &names, keep);
    pl_buf_release(&names.buf);
    if (!removed || names_read(&names, dir, alloc) != PELAGO_OK)
        return;
    remove_leftovers(dir, alloc, &names, step);
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

/* Refuses where a later step is there, unless it rewinds; tidies up; finds names for the data that are free. */
static enum pelago_status prepare(struct save *s)
{
    uint64_t newest = 0;
    struct names names;
    if (!s->c->rewinds && pl_checkpoint_newest(s->dir, PL_NONE64, &newest, NULL) == PELAGO_OK &&
        newest > s->step)
        return pl_fail(s->err, PELAGO_INVALID,
                       "the checkpoint of step %lu cannot be saved: there is one of step %lu already",
                       s->step, newest);
    enum pelago_status st = names_read(&names, s->dir, s->alloc);
    if (st == PELAGO_OK) {
        remove_leftovers(s->dir, s->alloc, &names, s->step);
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
    remove_leftovers(s->dir, s->alloc, &names, s->step);
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
    if (st == PELAGO_OK && c->rewinds)
        st = take_their_place(dir, alloc, step, c->rewinds_to, err);
    if (st == PELAGO_OK)
        prune(dir, alloc, step, keep);
    return st;
}
