/* core/record.c - see record.h. Layout: u32 type, u64 epoch, u64 clock_tokens, u64 tick, then by type
 *   ROUND: u32 fragment, u64 round, version, digest, update_bytes, u32 count, count x 8 u64 (identity ... cursor)
 *   LEASE: u64 unit, cursor, identity
 */
#include "core/record.h"

#include "base/bytes.h"
#include "base/check.h"

enum {
    HEAD_BYTES = 4 + 3 * 8,
    ROUND_BYTES = 4 + 4 * 8 + 4,
    CONTRIBUTOR_BYTES = 8 * 8,
    LEASE_BYTES = 3 * 8,
};

size_t pl_record_bytes_max(uint32_t learners_max)
{
    return HEAD_BYTES + ROUND_BYTES + (size_t)learners_max * CONTRIBUTOR_BYTES;
}

size_t pl_record_bytes(const struct pl_record *r)
{
    size_t body = 0;
    if (r->type == PL_RECORD_ROUND)
        body = ROUND_BYTES + (size_t)r->contributor_count * CONTRIBUTOR_BYTES;
    else if (r->type == PL_RECORD_LEASE)
        body = LEASE_BYTES;
    return HEAD_BYTES + body;
}

static void write_contributor(struct pl_writer *w, const struct pl_contributor *c)
{
    const uint64_t fields[] = {c->identity,    c->incarnation, c->steps, c->tokens,
                               c->seen_tokens, c->past_tokens, c->unit,  c->cursor};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        pl_write_u64(w, fields[i]);
}

size_t pl_record_encode(const struct pl_record *r, uint8_t *out, size_t cap)
{
    struct pl_writer w = pl_writer_of(out, cap);
    pl_write_u32(&w, (uint32_t)r->type);
    pl_write_u64(&w, r->epoch);
    pl_write_u64(&w, r->clock_tokens);
    pl_write_u64(&w, r->tick);
    if (r->type == PL_RECORD_ROUND) {
        pl_write_u32(&w, r->fragment);
        pl_write_u64(&w, r->round);
        pl_write_u64(&w, r->version);
        pl_write_u64(&w, r->digest);
        pl_write_u64(&w, r->update_bytes);
        pl_write_u32(&w, r->contributor_count);
        for (uint32_t i = 0; i < r->contributor_count; i++)
            write_contributor(&w, &r->contributors[i]);
    } else if (r->type == PL_RECORD_LEASE) {
        pl_write_u64(&w, r->unit);
        pl_write_u64(&w, r->cursor);
        pl_write_u64(&w, r->identity);
    }
    pl_assert(!w.bad && pl_writer_len(&w) == pl_record_bytes(r));
    return pl_writer_len(&w);
}

static void read_contributor(struct pl_reader *rd, struct pl_contributor *c)
{
    c->learner = UINT32_MAX;
    c->identity = pl_read_u64(rd);
    c->incarnation = pl_read_u64(rd);
    c->steps = pl_read_u64(rd);
    c->tokens = pl_read_u64(rd);
    c->seen_tokens = pl_read_u64(rd);
    c->past_tokens = pl_read_u64(rd);
    c->unit = pl_read_u64(rd);
    c->cursor = pl_read_u64(rd);
}

static enum pelago_status read_round(struct pl_reader *rd, struct pl_record *r,
                                     struct pl_contributor *contributors, uint32_t contributors_max,
                                     struct pl_error *err)
{
    r->fragment = pl_read_u32(rd);
    r->round = pl_read_u64(rd);
    r->version = pl_read_u64(rd);
    r->digest = pl_read_u64(rd);
    r->update_bytes = pl_read_u64(rd);
    r->contributor_count = pl_read_u32(rd);
    if (r->contributor_count > contributors_max)
        return pl_fail(err, PELAGO_LIMIT, "a round record has %u contributors, at most %u are expected",
                       (unsigned)r->contributor_count, (unsigned)contributors_max);
    for (uint32_t i = 0; i < r->contributor_count; i++) {
        read_contributor(rd, &contributors[i]);
        bool ordered = i == 0 || contributors[i].identity > contributors[i - 1].identity;
        if (!rd->bad && (contributors[i].steps == 0 || !ordered))
            return pl_fail(err, PELAGO_CORRUPT, "contributor %u of a round record is out of order or empty",
                           (unsigned)i);
    }
    r->contributors = contributors;
    return PELAGO_OK;
}

enum pelago_status pl_record_decode(const uint8_t *bytes, size_t len, struct pl_record *r,
                                    struct pl_contributor *contributors, uint32_t contributors_max,
                                    struct pl_error *err)
{
    struct pl_reader rd = pl_reader_of(bytes, len);
    uint32_t type = pl_read_u32(&rd);
    *r = (struct pl_record){.type = PL_RECORD_BOOT};
    r->epoch = pl_read_u64(&rd);
    r->clock_tokens = pl_read_u64(&rd);
    r->tick = pl_read_u64(&rd);
    if (type < PL_RECORD_BOOT || type > PL_RECORD_DONE)
        return pl_fail(err, PELAGO_CORRUPT, "a record has type %u, 1 to 4 are expected", (unsigned)type);
    r->type = (enum pl_record_type)type;
    if (r->type == PL_RECORD_ROUND)
        PL_TRY(read_round(&rd, r, contributors, contributors_max, err));
    if (r->type == PL_RECORD_LEASE) {
        r->unit = pl_read_u64(&rd);
        r->cursor = pl_read_u64(&rd);
        r->identity = pl_read_u64(&rd);
    }
    if (rd.bad || pl_reader_left(&rd) != 0)
        return pl_fail(err, PELAGO_CORRUPT, "a record of type %u has %lu bytes, which do not fit it",
                       (unsigned)type, (uint64_t)len);
    return PELAGO_OK;
}
