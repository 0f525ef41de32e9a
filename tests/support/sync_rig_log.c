/* support/sync_rig_log.c - what happened in the rig, and going back in it. See sync_rig.h. */
#include "sync_rig.h"

#include "base/check.h"

#include <stdlib.h>
#include <string.h>

struct rig_options rig_defaults(void)
{
    return (struct rig_options){.fragments = 2,
                                .shards = 1,
                                .quorum = 2,
                                .overlap = 1,
                                .period = 4,
                                .gamma_ppm = 500000,
                                .learners_max = 4,
                                .budget = PL_COUNT_MAX,
                                .unit_tokens = 100,
                                .step_tokens_max = 1000,
                                .full_bytes = 400,
                                .push_bytes_max = 40000};
}

const struct pl_sync_effect *rig_effect(const struct rig *r, enum pl_sync_fx kind)
{
    for (uint32_t i = r->log_len; i > 0; i--)
        if (r->log[i - 1].kind == kind)
            return &r->log[i - 1];
    return NULL;
}

uint32_t rig_effects(const struct rig *r, enum pl_sync_fx kind)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->log_len; i++)
        n += r->log[i].kind == kind ? 1 : 0;
    return n;
}

static bool is_sent(const struct pl_sync_effect *fx, uint32_t conn, uint8_t type)
{
    return fx->kind == PL_SYNC_FX_SEND && fx->u.send.conn == conn && fx->u.send.msg.type == type;
}

const struct pl_msg *rig_sent(const struct rig *r, uint32_t conn, uint8_t type)
{
    for (uint32_t i = r->log_len; i > 0; i--)
        if (is_sent(&r->log[i - 1], conn, type))
            return &r->log[i - 1].u.send.msg;
    return NULL;
}

uint32_t rig_sent_count(const struct rig *r, uint32_t conn, uint8_t type)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->log_len; i++)
        n += is_sent(&r->log[i], conn, type) ? 1 : 0;
    return n;
}

const struct pl_trace *rig_traced(const struct rig *r, enum pl_trace_code code)
{
    for (uint32_t i = r->log_len; i > 0; i--)
        if (r->log[i - 1].kind == PL_SYNC_FX_TRACE && r->log[i - 1].u.trace.code == code)
            return &r->log[i - 1].u.trace;
    return NULL;
}

uint32_t rig_traces(const struct rig *r, enum pl_trace_code code)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->log_len; i++)
        n += r->log[i].kind == PL_SYNC_FX_TRACE && r->log[i].u.trace.code == code ? 1 : 0;
    return n;
}

const struct pl_sync_effect *rig_closed(const struct rig *r, uint32_t conn)
{
    for (uint32_t i = r->log_len; i > 0; i--)
        if (r->log[i - 1].kind == PL_SYNC_FX_CLOSE && r->log[i - 1].u.close.conn == conn)
            return &r->log[i - 1];
    return NULL;
}

/* ---- marks ---- */

void rig_mark(const struct rig *r, struct rig_mark *m)
{
    if (m->memory == NULL)
        m->memory = malloc(r->memory_bytes);
    pl_assert(m->memory != NULL);
    m->rig = *r;
    memcpy(m->memory, r->memory, r->memory_bytes);
}

void rig_rewind(struct rig *r, const struct rig_mark *m)
{
    *r = m->rig;
    memcpy(r->memory, m->memory, r->memory_bytes);
}

void rig_mark_release(struct rig_mark *m)
{
    free(m->memory);
    m->memory = NULL;
}
