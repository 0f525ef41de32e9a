/* core/plan.c - see plan.h. In the caller's slices: cut, sort by size, pack, sort by fragment, join.
 *
 * Why 1.1 holds: the smallest fragment is always below the mean, so a row of at most a tenth of the mean fits
 * under the ceiling, and a piece that does not fit whole is cut at a row that does.
 */
#include "core/plan.h"

#include "base/check.h"
#include "base/merge_mode.h"
#include "base/num.h"

#include <string.h>

/* A fragment must be able to travel whole, in fp32. */
static const uint64_t fragment_values_max = PL_TRANSFER_BYTES_MAX / 4;

struct plan {
    const struct pl_plan_tensor *tensors;
    struct pl_slice *slices;
    uint32_t count;
    uint32_t max;
    uint64_t mean;    /* total / P, rounded down: what a fragment is filled to when a piece is cut */
    uint64_t ceiling; /* 1.1 * total / P, rounded down: what a whole piece may fill it to */
};

static uint64_t slice_values(const struct plan *p, const struct pl_slice *s)
{
    return s->row_count * p->tensors[s->tensor].cols;
}

static int compare_numbers(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

/* By name, then row: unlike the index, the same however the tensors were ordered. */
static int compare_places(const struct plan *p, const struct pl_slice *a, const struct pl_slice *b)
{
    int by_name = memcmp(p->tensors[a->tensor].name, p->tensors[b->tensor].name, PL_NAME_MAX);
    return by_name != 0 ? by_name : compare_numbers(a->row_first, b->row_first);
}

static int compare_largest_first(const struct plan *p, const struct pl_slice *a, const struct pl_slice *b)
{
    int by_size = compare_numbers(slice_values(p, b), slice_values(p, a));
    return by_size != 0 ? by_size : compare_places(p, a, b);
}

static int compare_fragments(const struct plan *p, const struct pl_slice *a, const struct pl_slice *b)
{
    int by_fragment = compare_numbers(a->fragment, b->fragment);
    return by_fragment != 0 ? by_fragment : compare_places(p, a, b);
}

typedef int compare_slices(const struct plan *p, const struct pl_slice *a, const struct pl_slice *b);

static void sift_down(struct plan *p, compare_slices *compare, uint32_t at, uint32_t count)
{
    struct pl_slice *s = p->slices;
    for (uint32_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && compare(p, &s[child], &s[child + 1]) < 0)
            child++;
        if (compare(p, &s[at], &s[child]) >= 0)
            return;
        struct pl_slice swap = s[at];
        s[at] = s[child];
        s[child] = swap;
    }
}

/* Heapsort: in place, no recursion; not stable, but both orders are total. */
static void sort_slices(struct plan *p, compare_slices *compare)
{
    for (uint32_t at = p->count / 2; at > 0; at--)
        sift_down(p, compare, at - 1, p->count);
    for (uint32_t end = p->count; end > 1; end--) {
        struct pl_slice last = p->slices[end - 1];
        p->slices[end - 1] = p->slices[0];
        p->slices[0] = last;
        sift_down(p, compare, 0, end - 1);
    }
}

static bool name_is_valid(const char name[static PL_NAME_MAX])
{
    uint32_t len = 0;
    while (len < PL_NAME_MAX && name[len] > ' ' && name[len] <= '~')
        len++;
    for (uint32_t i = len; i < PL_NAME_MAX; i++)
        if (name[i] != '\0')
            return false;
    return len > 0 && len < PL_NAME_MAX;
}

static enum pelago_status check_tensor(const struct pl_plan_tensor *t, uint32_t index, uint64_t *values,
                                       struct pl_error *err)
{
    if (!name_is_valid(t->name))
        return pl_fail(err, PELAGO_INVALID,
                       "tensor %u: name must be 1 to %u printable characters, then zeros", index,
                       PL_NAME_MAX - 1u);
    if (t->rows == 0 || t->cols == 0)
        return pl_fail(err, PELAGO_INVALID, "tensor %s: %s is 0, expected at least 1", t->name,
                       t->rows == 0 ? "rows" : "cols");
    if (t->merge != PL_MERGE_RDA && t->merge != PL_MERGE_MEAN)
        return pl_fail(err, PELAGO_INVALID, "tensor %s: merge is %u, expected 0 (rda) or 1 (mean)", t->name,
                       (unsigned)t->merge);
    if (pl_mul_overflow(t->rows, t->cols, values))
        return pl_fail(err, PELAGO_LIMIT, "tensor %s: rows %lu times cols %lu is over 64 bits", t->name,
                       t->rows, t->cols);
    return PELAGO_OK;
}

static enum pelago_status check_counts(uint32_t tensor_count, uint32_t fragment_count, struct pl_error *err)
{
    if (tensor_count == 0 || tensor_count > PL_TENSORS_MAX)
        return pl_fail(err, tensor_count == 0 ? PELAGO_INVALID : PELAGO_LIMIT,
                       "tensors: %u, expected 1 to %u", tensor_count, (unsigned)PL_TENSORS_MAX);
    if (fragment_count == 0 || fragment_count > PL_FRAGMENTS_MAX)
        return pl_fail(err, fragment_count == 0 ? PELAGO_INVALID : PELAGO_LIMIT,
                       "fragments: %u, expected 1 to %u", fragment_count, (unsigned)PL_FRAGMENTS_MAX);
    return PELAGO_OK;
}

/* After this no product or sum of sizes can overflow: the total is below 2^42 values. */
static enum pelago_status check_sizes(const struct pl_plan_tensor *tensors, uint32_t tensor_count,
                                      uint32_t fragment_count, uint64_t *total, struct pl_error *err)
{
    const uint64_t total_max = fragment_count * fragment_values_max;
    uint64_t rows = 0;
    *total = 0;
    for (uint32_t i = 0; i < tensor_count; i++) {
        uint64_t values = 0;
        PL_TRY(check_tensor(&tensors[i], i, &values, err));
        if (values > total_max - *total)
            return pl_fail(err, PELAGO_LIMIT,
                           "tensor %s: with it the model is over %lu values, what %u fragments can hold",
                           tensors[i].name, total_max, fragment_count);
        *total += values;
        rows += tensors[i].rows;
    }
    if (rows < fragment_count)
        return pl_fail(err, PELAGO_INVALID, "fragments: %u, expected at most %lu, the rows of all tensors",
                       fragment_count, rows);
    return PELAGO_OK;
}

static enum pelago_status fail_slices(const struct plan *p, struct pl_error *err)
{
    return pl_fail(err, PELAGO_LIMIT, "slices: the table needs more than %u", p->max);
}

/* One slice per tensor; refuses two of one name. */
static enum pelago_status start(struct plan *p, uint32_t tensor_count, struct pl_error *err)
{
    if (tensor_count > p->max)
        return fail_slices(p, err);
    for (uint32_t i = 0; i < tensor_count; i++)
        p->slices[i] = (struct pl_slice){.tensor = i, .row_count = p->tensors[i].rows};
    p->count = tensor_count;
    sort_slices(p, compare_fragments);
    for (uint32_t i = 1; i < p->count; i++)
        if (compare_places(p, &p->slices[i - 1], &p->slices[i]) >= 0)
            return pl_fail(err, PELAGO_INVALID, "tensor %s: two tensors have this name",
                           p->tensors[p->slices[i].tensor].name);
    return PELAGO_OK;
}

/* Leaves the first rows in the slice and appends the rest as a new one, which the caller finds at count - 1.
 */
static enum pelago_status cut(struct plan *p, uint32_t index, uint64_t rows, struct pl_error *err)
{
    struct pl_slice *s = &p->slices[index];
    pl_assert(rows > 0);
    pl_assert(rows < s->row_count);
    if (p->count == p->max)
        return fail_slices(p, err);
    struct pl_slice rest = *s;
    rest.row_first += rows;
    rest.row_count -= rows;
    s->row_count = rows;
    p->slices[p->count++] = rest;
    return PELAGO_OK;
}

/* Cuts a tensor larger than the mean into pieces of the mean and a rest. A rest under 1/16 is spread over the
 * pieces instead: a sliver would be merged by a norm of its own. */
static enum pelago_status cut_large(struct plan *p, uint32_t index, struct pl_error *err)
{
    uint64_t cols = p->tensors[p->slices[index].tensor].cols;
    uint64_t rows = p->slices[index].row_count;
    if (rows * cols <= p->mean)
        return PELAGO_OK;
    uint64_t piece = pl_max64(p->mean / cols, 1);
    uint64_t whole = rows / piece;
    if (whole >= 2 && rows % piece <= piece / 16)
        piece = (rows + whole - 1) / whole;
    while (p->slices[index].row_count > piece) {
        PL_TRY(cut(p, index, piece, err));
        index = p->count - 1;
    }
    return PELAGO_OK;
}

/* The largest slice that can still be cut; there is one while there are fewer slices than rows. */
static uint32_t find_cuttable(const struct plan *p)
{
    uint32_t best = PL_NONE32;
    for (uint32_t i = 0; i < p->count; i++)
        if (p->slices[i].row_count > 1 &&
            (best == PL_NONE32 || compare_largest_first(p, &p->slices[i], &p->slices[best]) < 0))
            best = i;
    pl_assert(best != PL_NONE32);
    return best;
}

/* Pieces no larger than a fragment, and at least one for each. */
static enum pelago_status cut_pieces(struct plan *p, uint32_t fragment_count, struct pl_error *err)
{
    for (uint32_t i = 0, tensors = p->count; i < tensors; i++)
        PL_TRY(cut_large(p, i, err));
    while (p->count < fragment_count) {
        uint32_t i = find_cuttable(p);
        PL_TRY(cut(p, i, p->slices[i].row_count / 2, err));
    }
    return PELAGO_OK;
}

/* How many rows of the slice go into a fragment that holds load values: all when they stay under the ceiling,
 * else what fits under the mean, else what fits under the ceiling, else one. */
static uint64_t rows_that_fit(const struct plan *p, const struct pl_slice *s, uint64_t load)
{
    uint64_t cols = p->tensors[s->tensor].cols;
    if (load + slice_values(p, s) <= p->ceiling)
        return s->row_count;
    uint64_t rows = pl_sub_sat(p->mean, load) / cols;
    if (rows == 0)
        rows = pl_max64(pl_sub_sat(p->ceiling, load) / cols, 1);
    return pl_min64(rows, s->row_count);
}

/* Pieces are in order, largest first. At the limits (16384 slices, 4096 fragments) the search for the
 * smallest fragment takes tens of milliseconds, once a run. */
static enum pelago_status pack(struct plan *p, uint32_t fragment_count, struct pl_error *err)
{
    uint64_t load[PL_FRAGMENTS_MAX] = {0};
    for (uint32_t i = 0, pieces = p->count; i < pieces; i++) {
        for (uint32_t at = i; at != PL_NONE32;) {
            uint32_t smallest = 0;
            for (uint32_t f = 1; f < fragment_count; f++)
                if (load[f] < load[smallest])
                    smallest = f;
            uint64_t rows = rows_that_fit(p, &p->slices[at], load[smallest]);
            uint32_t rest = PL_NONE32;
            if (rows < p->slices[at].row_count) {
                PL_TRY(cut(p, at, rows, err));
                rest = p->count - 1;
            }
            p->slices[at].fragment = smallest;
            load[smallest] += slice_values(p, &p->slices[at]);
            at = rest;
        }
    }
    return PELAGO_OK;
}

/* Slices are sorted: pieces of a tensor that met again in a fragment become one. */
static void join(struct plan *p)
{
    uint32_t kept = 0;
    for (uint32_t i = 1; i < p->count; i++) {
        struct pl_slice *a = &p->slices[kept];
        const struct pl_slice *b = &p->slices[i];
        bool adjacent = a->fragment == b->fragment && a->tensor == b->tensor &&
                        a->row_first + a->row_count == b->row_first;
        if (adjacent)
            a->row_count += b->row_count;
        else
            p->slices[++kept] = *b;
    }
    p->count = kept + 1;
}

enum pelago_status pl_plan_fragments(const struct pl_plan_tensor *tensors, uint32_t tensor_count,
                                     uint32_t fragment_count, struct pl_slice *slices, uint32_t slice_max,
                                     uint32_t *slice_count, struct pl_error *err)
{
    uint64_t total;
    PL_TRY(check_counts(tensor_count, fragment_count, err));
    PL_TRY(check_sizes(tensors, tensor_count, fragment_count, &total, err));

    struct plan p = {.tensors = tensors, .slices = slices, .max = pl_min32(slice_max, PL_SLICES_MAX)};
    p.mean = total / fragment_count;
    p.ceiling = total * 11 / (10 * (uint64_t)fragment_count);
    PL_TRY(start(&p, tensor_count, err));
    PL_TRY(cut_pieces(&p, fragment_count, err));
    sort_slices(&p, compare_largest_first);
    PL_TRY(pack(&p, fragment_count, err));
    sort_slices(&p, compare_fragments);
    join(&p);

    struct pl_plan_balance b = pl_plan_measure(tensors, slices, p.count, fragment_count);
    pl_assert(b.total == total);
    pl_assert(b.smallest > 0);
    if (b.largest > fragment_values_max)
        return pl_fail(err, PELAGO_LIMIT, "fragments: the largest of %u has %lu values, expected at most %lu",
                       fragment_count, b.largest, fragment_values_max);
    *slice_count = p.count;
    return PELAGO_OK;
}

struct pl_plan_balance pl_plan_measure(const struct pl_plan_tensor *tensors, const struct pl_slice *slices,
                                       uint32_t slice_count, uint32_t fragment_count)
{
    pl_assert(fragment_count > 0);
    pl_assert(fragment_count <= PL_FRAGMENTS_MAX);
    struct pl_plan_balance b = {.smallest = UINT64_MAX};
    uint32_t i = 0;
    for (uint32_t f = 0; f < fragment_count; f++) {
        uint64_t values = 0;
        for (; i < slice_count && slices[i].fragment == f; i++)
            values += slices[i].row_count * tensors[slices[i].tensor].cols;
        b.total += values;
        b.largest = pl_max64(b.largest, values);
        b.smallest = pl_min64(b.smallest, values);
    }
    pl_assert(i == slice_count);
    b.balanced = b.largest * 10 * fragment_count <= b.total * 11;
    return b;
}

enum pelago_status pl_plan_shards(uint32_t fragment_count, uint32_t shard_count, uint32_t period_steps,
                                  struct pl_plan_place *places, struct pl_error *err)
{
    if (fragment_count == 0 || fragment_count > PL_FRAGMENTS_MAX)
        return pl_fail(err, PELAGO_INVALID, "fragments: %u, expected 1 to %u", fragment_count,
                       (unsigned)PL_FRAGMENTS_MAX);
    uint32_t shards_max = pl_min32(fragment_count, PL_SHARDS_MAX);
    if (shard_count == 0 || shard_count > shards_max)
        return pl_fail(err, PELAGO_INVALID, "shards: %u, expected 1 to %u", shard_count, shards_max);
    if (period_steps == 0 || period_steps > PL_PERIOD_STEPS_MAX)
        return pl_fail(err, PELAGO_INVALID, "period: %u steps, expected 1 to %u", period_steps,
                       (unsigned)PL_PERIOD_STEPS_MAX);
    for (uint32_t i = 0; i < fragment_count; i++) {
        uint32_t shard = i % shard_count;
        uint32_t of_shard =
            (fragment_count - shard + shard_count - 1) / shard_count; /* fragments with this shard */
        places[i].shard = shard;
        places[i].offset = i / shard_count * period_steps / of_shard; /* below 2^24, no overflow */
    }
    return PELAGO_OK;
}
