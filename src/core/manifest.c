/* core/manifest.c - see manifest.h. */
#include "core/manifest.h"

#include "base/check.h"
#include "base/hash.h"

static enum pelago_status check_numbers(const struct pl_msg_manifest *m, struct pl_error *err)
{
    static const char least_one[] = "MANIFEST.%s is 0, at least 1 is expected";
    const struct {
        const char *name;
        uint64_t value;
    } positive[] = {
        {"run_id", m->run_id},
        {"shard_count", m->shard_count},
        {"quorum", m->quorum},
        {"overlap_steps", m->overlap_steps},
        {"period_steps", m->period_steps},
        {"token_budget", m->token_budget},
        {"unit_tokens", m->unit_tokens},
        {"step_tokens_max", m->step_tokens_max},
        {"fragments", m->fragments.count},
    };
    for (size_t i = 0; i < sizeof positive / sizeof positive[0]; i++)
        if (positive[i].value == 0)
            return pl_fail(err, PELAGO_INVALID, least_one, positive[i].name);
    if (m->shard_count > m->fragments.count)
        return pl_fail(err, PELAGO_INVALID, "MANIFEST.shard_count is %u, more than the %u fragments",
                       (unsigned)m->shard_count, (unsigned)m->fragments.count);
    return PELAGO_OK;
}

static enum pelago_status check_fragment(const struct pl_msg_manifest *m, uint32_t i, struct pl_error *err)
{
    struct pl_item_fragment f = pl_item_fragment_at(&m->fragments, i);
    if (f.shard >= m->shard_count)
        return pl_fail(err, PELAGO_INVALID, "MANIFEST.fragments[%u].shard is %u, below %u is expected",
                       (unsigned)i, (unsigned)f.shard, (unsigned)m->shard_count);
    if (f.offset >= m->period_steps)
        return pl_fail(err, PELAGO_INVALID,
                       "MANIFEST.fragments[%u].offset is %u, below period_steps %u is expected", (unsigned)i,
                       (unsigned)f.offset, (unsigned)m->period_steps);
    if (f.full_bytes == 0 || f.push_bytes_max == 0 || f.update_bytes_max == 0)
        return pl_fail(err, PELAGO_INVALID, "MANIFEST.fragments[%u] has a size of 0 bytes", (unsigned)i);
    for (uint32_t j = 0; j < i; j++) {
        struct pl_item_fragment g = pl_item_fragment_at(&m->fragments, j);
        if (g.shard == f.shard && g.offset == f.offset)
            return pl_fail(err, PELAGO_INVALID,
                           "MANIFEST.fragments[%u].offset %u is taken by fragment %u of its shard",
                           (unsigned)i, (unsigned)f.offset, (unsigned)j);
    }
    return PELAGO_OK;
}

enum pelago_status pl_manifest_check(const struct pl_msg_manifest *m, struct pl_error *err)
{
    PL_TRY(check_numbers(m, err));
    for (uint32_t i = 0; i < m->fragments.count; i++)
        PL_TRY(check_fragment(m, i, err));
    for (uint32_t shard = 0; shard < m->shard_count; shard++)
        if (pl_manifest_shard_fragments(m, shard) == 0)
            return pl_fail(err, PELAGO_INVALID, "MANIFEST.fragments gives shard %u nothing", (unsigned)shard);
    return PELAGO_OK;
}

uint64_t pl_manifest_digest(const struct pl_msg_manifest *m, uint8_t *scratch, size_t scratch_bytes)
{
    struct pl_msg msg = {.type = PL_MSG_MANIFEST, .u.manifest = *m};
    size_t len = pl_msg_encode(&msg, scratch, scratch_bytes);
    uint64_t digest = pl_hash64(scratch, len, 0);
    return PL_DEFENSIVE(digest != 0) ? digest : 1; /* 0 means "none" in HELLO */
}

uint32_t pl_manifest_shard_fragments(const struct pl_msg_manifest *m, uint32_t shard)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->fragments.count; i++)
        if (pl_item_fragment_at(&m->fragments, i).shard == shard)
            n++;
    return n;
}
