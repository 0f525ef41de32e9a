/* sim/disk.c - see disk.h.
 *
 * A node is a file's content (sim/disk_node.h), a name points at nodes: `seen` as the process sees it, `kept` as a
 * power cut leaves it. What lies between the two is a list of changes, per node for bytes and one for names.
 */
#include "sim/disk.h"

#include "base/check.h"
#include "base/num.h"
#include "sim/disk_node.h"

#include <string.h>

struct name {
    char text[PL_FILE_NAME_MAX];
    struct pl_disk_node *seen; /* NULL: no such file */
    struct pl_disk_node *kept;
};

/* Takes a node away from one name, gives it to another, or both at once. */
struct name_change {
    uint32_t from; /* index of a name, or PL_NONE32 */
    uint32_t to;
    struct pl_disk_node *node;
};

struct pl_file {
    struct pl_disk_node *node;
};

struct pl_disk {
    const struct pl_alloc *alloc;
    struct pl_prng prng;
    struct name *names;
    size_t name_count, name_cap;
    struct name_change *name_changes;
    size_t name_change_count, name_change_cap;
    struct pl_disk_node **nodes;
    size_t node_count, node_cap;
    struct pl_file **files;
    size_t file_count, file_cap;
    struct pl_disk_fault faults[PL_DISK_OPS];
    struct pl_disk_counts counts;
    uint64_t capacity;
    uint64_t dies_after;
    bool dead;
};

static void reach(struct pl_disk_node *n)
{
    if (n != NULL)
        n->reachable = true;
}

/* Frees nodes that no name, change or open file points at, and names of nothing once no change speaks of them. */
static void collect(struct pl_disk *d)
{
    size_t kept = 0;
    for (size_t i = 0; d->name_change_count == 0 && i < d->name_count; i++)
        if (d->names[i].seen != NULL || d->names[i].kept != NULL)
            d->names[kept++] = d->names[i];
    if (d->name_change_count == 0)
        d->name_count = kept;
    for (size_t i = 0; i < d->name_count; i++) {
        reach(d->names[i].seen);
        reach(d->names[i].kept);
    }
    for (size_t i = 0; i < d->name_change_count; i++)
        reach(d->name_changes[i].node);
    for (size_t i = 0; i < d->file_count; i++)
        reach(d->files[i]->node);
    kept = 0;
    for (size_t i = 0; i < d->node_count; i++) {
        if (d->nodes[i]->reachable)
            d->nodes[kept++] = d->nodes[i];
        else
            pl_disk_node_free(d->alloc, d->nodes[i]);
    }
    d->node_count = kept;
    for (size_t i = 0; i < kept; i++)
        d->nodes[i]->reachable = false;
}

/* Is the operation allowed? Not OK with *perform: it is under way when the power goes. */
static enum pelago_status gate(struct pl_disk *d, enum pl_disk_op op, bool *perform)
{
    struct pl_disk_fault *fault = &d->faults[op];
    *perform = false;
    if (d->dead)
        return PELAGO_IO;
    d->counts.ops[op]++;
    if (op != PL_DISK_READ && d->dies_after != PL_NEVER && d->dies_after-- == 0) {
        d->dead = true;
        *perform = true;
        return PELAGO_IO;
    }
    if (fault->times > 0 && fault->after-- == 0) {
        fault->after = 0;
        if (fault->times != UINT64_MAX)
            fault->times--;
        return fault->status;
    }
    *perform = true;
    return PELAGO_OK;
}

static uint32_t find_name(const struct pl_disk *d, const char *text)
{
    for (uint32_t i = 0; i < d->name_count; i++)
        if (strcmp(d->names[i].text, text) == 0)
            return i;
    return PL_NONE32;
}

static struct pl_disk_node *find_node(const struct pl_disk *d, const char *text)
{
    uint32_t i = find_name(d, text);
    return i == PL_NONE32 ? NULL : d->names[i].seen;
}

/* The index of a name, which is added when it is new; PL_NONE32: no memory. */
static uint32_t need_name(struct pl_disk *d, const char *text)
{
    uint32_t i = find_name(d, text);
    size_t len = strlen(text);
    pl_assert(len > 0 && len < PL_FILE_NAME_MAX);
    if (i != PL_NONE32 ||
        !pl_disk_reserve_one(d->alloc, &d->names, d->name_count, &d->name_cap, sizeof d->names[0]))
        return i;
    struct name *name = &d->names[d->name_count];
    *name = (struct name){.seen = NULL};
    memcpy(name->text, text, len);
    return (uint32_t)d->name_count++;
}

static bool reserve_name_change(struct pl_disk *d)
{
    return pl_disk_reserve_one(d->alloc, &d->name_changes, d->name_change_count, &d->name_change_cap,
                               sizeof d->name_changes[0]);
}

/* Room for it was reserved. */
static void change_name(struct pl_disk *d, uint32_t from, uint32_t to, struct pl_disk_node *node)
{
    pl_assert(d->name_change_count < d->name_change_cap);
    if (from != PL_NONE32)
        d->names[from].seen = NULL;
    if (to != PL_NONE32)
        d->names[to].seen = node;
    d->name_changes[d->name_change_count++] = (struct name_change){from, to, node};
}

static struct pl_disk_node *new_node(struct pl_disk *d)
{
    if (!pl_disk_reserve_one(d->alloc, &d->nodes, d->node_count, &d->node_cap, sizeof(struct pl_disk_node *)))
        return NULL;
    struct pl_disk_node *n = pl_alloc_zero(d->alloc, 1, sizeof *n);
    if (n != NULL)
        d->nodes[d->node_count++] = n;
    return n;
}

/* A file of this name, empty; *out is its node. */
static enum pelago_status create(struct pl_disk *d, const char *name, struct pl_disk_node **out)
{
    *out = find_node(d, name);
    if (*out != NULL)
        return pl_disk_node_resize(d->alloc, *out, 0);
    uint32_t index = need_name(d, name);
    if (index == PL_NONE32 || !reserve_name_change(d))
        return PELAGO_NOMEM;
    *out = new_node(d);
    if (*out == NULL)
        return PELAGO_NOMEM;
    change_name(d, PL_NONE32, index, *out);
    return PELAGO_OK;
}

static enum pelago_status disk_open(void *self, const char *name, enum pl_file_mode mode,
                                    struct pl_file **out)
{
    struct pl_disk *d = self;
    bool perform;
    enum pelago_status st = gate(d, mode == PL_FILE_CREATE ? PL_DISK_META : PL_DISK_READ, &perform);
    *out = NULL;
    if (!perform)
        return st;
    struct pl_file *file = pl_alloc_zero(d->alloc, 1, sizeof *file);
    enum pelago_status done = PELAGO_OK;
    if (file == NULL ||
        !pl_disk_reserve_one(d->alloc, &d->files, d->file_count, &d->file_cap, sizeof(struct pl_file *)))
        done = PELAGO_NOMEM;
    else if (mode == PL_FILE_CREATE)
        done = create(d, name, &file->node);
    else if ((file->node = find_node(d, name)) == NULL)
        done = PELAGO_NOTFOUND;
    if (done != PELAGO_OK || st != PELAGO_OK) {
        pl_alloc_free(d->alloc, file, sizeof *file);
        return done != PELAGO_OK ? done : st;
    }
    d->files[d->file_count++] = file;
    *out = file;
    return PELAGO_OK;
}

static void disk_close(void *self, struct pl_file *file)
{
    struct pl_disk *d = self;
    size_t i = 0;
    while (i < d->file_count && d->files[i] != file)
        i++;
    pl_assert(i < d->file_count);
    d->files[i] = d->files[--d->file_count];
    pl_alloc_free(d->alloc, file, sizeof *file);
    collect(d);
}

static enum pelago_status disk_read_at(void *self, struct pl_file *file, uint64_t offset, void *into,
                                       size_t len)
{
    bool perform;
    PL_TRY(gate(self, PL_DISK_READ, &perform));
    const struct pl_disk_node *n = file->node;
    if (offset > n->seen_len || len > n->seen_len - offset)
        return PELAGO_SHORT;
    if (len > 0)
        memcpy(into, n->seen + offset, len);
    return PELAGO_OK;
}

static enum pelago_status disk_write_at(void *self, struct pl_file *file, uint64_t offset,
                                        const struct pl_bytes *parts, size_t count)
{
    struct pl_disk *d = self;
    struct pl_disk_node *n = file->node;
    bool perform;
    size_t len = 0;
    for (size_t i = 0; i < count; i++)
        len += parts[i].len;
    bool was_dead = d->dead;
    enum pelago_status st = gate(d, PL_DISK_WRITE, &perform);
    if (was_dead)
        return st;
    if (!perform)
        len = (size_t)pl_prng_below(&d->prng, len + 1);
    uint64_t growth = pl_sub_sat(offset + len, n->seen_len);
    uint64_t room = pl_sub_sat(d->capacity, pl_disk_used_bytes(d));
    if (growth > room) {
        len = (size_t)pl_sub_sat(n->seen_len + room, offset);
        st = st == PELAGO_OK ? PELAGO_FULL : st;
    }
    enum pelago_status done = pl_disk_node_write(d->alloc, n, offset, parts, len);
    d->counts.bytes_written += done == PELAGO_OK ? len : 0;
    return done != PELAGO_OK ? done : st;
}

static enum pelago_status disk_sync(void *self, struct pl_file *file)
{
    struct pl_disk *d = self;
    struct pl_disk_node *n = file->node;
    bool perform;
    bool was_dead = d->dead;
    enum pelago_status st = gate(d, PL_DISK_SYNC, &perform);
    if (st == PELAGO_OK) {
        pl_disk_node_sync(d->alloc, n);
    } else if (!perform && !was_dead) {
        pl_disk_node_lose(d->alloc, n, &d->prng);
        if (pl_prng_below(&d->prng, 2) == 0)
            pl_disk_node_revert(n);
    }
    return st;
}

static enum pelago_status disk_size(void *self, struct pl_file *file, uint64_t *bytes)
{
    bool perform;
    *bytes = file->node->seen_len;
    return gate(self, PL_DISK_READ, &perform);
}

static enum pelago_status disk_truncate(void *self, struct pl_file *file, uint64_t bytes)
{
    struct pl_disk *d = self;
    bool perform;
    enum pelago_status st = gate(d, PL_DISK_META, &perform);
    enum pelago_status done = perform ? pl_disk_node_resize(d->alloc, file->node, bytes) : PELAGO_OK;
    return done != PELAGO_OK ? done : st;
}

static enum pelago_status disk_rename(void *self, const char *from, const char *to)
{
    struct pl_disk *d = self;
    bool perform;
    struct pl_disk_node *node = find_node(d, from);
    if (node == NULL && !d->dead)
        return PELAGO_NOTFOUND;
    enum pelago_status st = gate(d, PL_DISK_META, &perform);
    if (!perform)
        return st;
    uint32_t index = need_name(d, to);
    if (index == PL_NONE32 || !reserve_name_change(d))
        return PELAGO_NOMEM;
    change_name(d, find_name(d, from), index, node);
    return st;
}

static enum pelago_status disk_remove(void *self, const char *name)
{
    struct pl_disk *d = self;
    bool perform;
    struct pl_disk_node *node = find_node(d, name);
    if (node == NULL && !d->dead)
        return PELAGO_NOTFOUND;
    enum pelago_status st = gate(d, PL_DISK_META, &perform);
    if (!perform)
        return st;
    if (!reserve_name_change(d))
        return PELAGO_NOMEM;
    change_name(d, find_name(d, name), PL_NONE32, node);
    return st;
}

static enum pelago_status disk_list(void *self, pl_file_name_fn *fn, void *user)
{
    struct pl_disk *d = self;
    bool perform;
    PL_TRY(gate(d, PL_DISK_READ, &perform));
    for (size_t i = 0; i < d->name_count; i++)
        if (d->names[i].seen != NULL)
            PL_TRY(fn(user, d->names[i].text));
    return PELAGO_OK;
}

static void keep_name(struct pl_disk *d, const struct name_change *c)
{
    if (c->from != PL_NONE32 && d->names[c->from].kept == c->node)
        d->names[c->from].kept = NULL;
    if (c->to != PL_NONE32)
        d->names[c->to].kept = c->node;
}

/* A failed one may have done any of it, and all of it waits for the next. */
static enum pelago_status disk_sync_dir(void *self)
{
    struct pl_disk *d = self;
    bool perform;
    bool was_dead = d->dead;
    enum pelago_status st = gate(d, PL_DISK_META, &perform);
    if (st != PELAGO_OK && (perform || was_dead))
        return st;
    uint64_t done =
        st == PELAGO_OK ? d->name_change_count : pl_prng_below(&d->prng, d->name_change_count + 1);
    for (size_t i = 0; i < done; i++)
        keep_name(d, &d->name_changes[i]);
    if (st == PELAGO_OK) {
        d->name_change_count = 0;
        collect(d);
    }
    return st;
}

struct pl_disk *pl_disk_new(const struct pl_alloc *alloc, uint64_t seed)
{
    struct pl_disk *d = pl_alloc_zero(alloc, 1, sizeof *d);
    if (d == NULL)
        return NULL;
    d->alloc = alloc;
    d->capacity = UINT64_MAX;
    d->dies_after = PL_NEVER;
    pl_prng_seed(&d->prng, seed, 0);
    return d;
}

void pl_disk_free(struct pl_disk *d)
{
    if (d == NULL)
        return;
    pl_disk_process_died(d);
    d->name_change_count = 0;
    d->name_count = 0;
    collect(d);
    pl_alloc_free(d->alloc, d->names, d->name_cap * sizeof d->names[0]);
    pl_alloc_free(d->alloc, d->name_changes, d->name_change_cap * sizeof d->name_changes[0]);
    pl_alloc_free(d->alloc, d->nodes, d->node_cap * sizeof(struct pl_disk_node *));
    pl_alloc_free(d->alloc, d->files, d->file_cap * sizeof(struct pl_file *));
    pl_alloc_free(d->alloc, d, sizeof *d);
}

struct pl_dir pl_disk_dir(struct pl_disk *d)
{
    static const struct pl_file_ops ops = {disk_open,   disk_close, disk_read_at,  disk_write_at,
                                           disk_sync,   disk_size,  disk_truncate, disk_rename,
                                           disk_remove, disk_list,  disk_sync_dir};
    return (struct pl_dir){&ops, d};
}

void pl_disk_process_died(struct pl_disk *d)
{
    for (size_t i = 0; i < d->file_count; i++)
        pl_alloc_free(d->alloc, d->files[i], sizeof *d->files[i]);
    d->file_count = 0;
    if (d->dead)
        d->dies_after = PL_NEVER;
    d->dead = false;
    collect(d);
}

void pl_disk_power_cut(struct pl_disk *d)
{
    bool prefix = pl_prng_below(&d->prng, 2) == 0;
    d->dies_after = PL_NEVER;
    uint64_t survive = pl_prng_below(&d->prng, d->name_change_count + 1);
    for (size_t i = 0; i < d->name_change_count; i++)
        if (prefix ? i < survive : pl_prng_below(&d->prng, 2) == 0)
            keep_name(d, &d->name_changes[i]);
    d->name_change_count = 0;
    for (size_t i = 0; i < d->name_count; i++)
        d->names[i].seen = d->names[i].kept;
    pl_disk_process_died(d);
    for (size_t i = 0; i < d->node_count; i++) {
        pl_disk_node_lose(d->alloc, d->nodes[i], &d->prng);
        pl_disk_node_revert(d->nodes[i]);
    }
    d->counts.power_cuts++;
}

void pl_disk_dies_after(struct pl_disk *d, uint64_t changes)
{
    d->dies_after = changes;
}

bool pl_disk_is_dead(const struct pl_disk *d)
{
    return d->dead;
}

void pl_disk_set_fault(struct pl_disk *d, enum pl_disk_op op, struct pl_disk_fault fault)
{
    pl_assert(op < PL_DISK_OPS && (fault.times == 0 || fault.status != PELAGO_OK));
    d->faults[op] = fault;
}

void pl_disk_set_capacity(struct pl_disk *d, uint64_t bytes)
{
    d->capacity = bytes;
}

bool pl_disk_rot(struct pl_disk *d, const char *name, uint64_t offset, uint8_t bits)
{
    struct pl_disk_node *n = find_node(d, name);
    if (n == NULL || offset >= n->seen_len)
        return false;
    n->seen[offset] ^= bits;
    if (offset < n->kept_len)
        n->kept[offset] ^= bits;
    return true;
}

const uint8_t *pl_disk_peek(const struct pl_disk *d, const char *name, uint64_t *bytes)
{
    static const uint8_t nothing[1];
    const struct pl_disk_node *n = find_node(d, name);
    if (n == NULL)
        return NULL;
    *bytes = n->seen_len;
    return n->seen_len > 0 ? n->seen : nothing;
}

enum pelago_status pl_disk_put(struct pl_disk *d, const char *name, const void *bytes, size_t len)
{
    uint32_t index = need_name(d, name);
    if (index == PL_NONE32)
        return PELAGO_NOMEM;
    struct pl_disk_node *n = new_node(d);
    if (n == NULL)
        return PELAGO_NOMEM;
    PL_TRY(pl_disk_node_put(d->alloc, n, bytes, len));
    d->names[index].seen = n;
    d->names[index].kept = n;
    collect(d);
    return PELAGO_OK;
}

/* Files without a name count while they are open. */
uint64_t pl_disk_used_bytes(const struct pl_disk *d)
{
    uint64_t used = 0;
    for (size_t i = 0; i < d->name_count; i++)
        used += d->names[i].seen != NULL ? d->names[i].seen->seen_len : 0;
    for (size_t i = 0; i < d->file_count; i++) {
        const struct pl_disk_node *n = d->files[i]->node;
        bool named = false;
        for (size_t k = 0; k < d->name_count; k++)
            named = named || d->names[k].seen == n;
        used += named ? 0 : n->seen_len;
    }
    return used;
}

struct pl_disk_counts pl_disk_counts(const struct pl_disk *d)
{
    return d->counts;
}
