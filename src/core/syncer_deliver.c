/* core/syncer_deliver.c - updates on their way down.
 *
 * After a version is durable it is announced to every learner: the UPDATE header is personal (it carries the round
 * the learner was last merged in), the payload is shared. A learner some versions behind gets the chain of encoded
 * updates when all of them are still kept and shorter than the whole value, else the whole value. Per learner a few
 * updates may be on their way; the rest waits as "behind" and is found again when HAVE makes room. So nothing queues
 * up behind a slow link, and what is sent next is always the newest.
 */
#include "core/syncer_int.h"

#include "base/check.h"
#include "wire/chunk.h"

/* ---- the ring of encoded updates ---- */

void pl_sync_ring_add(struct fragment *fr, uint64_t bytes, uint64_t old_digest)
{
    uint64_t next = fr->version + 1;
    fr->ring[next % PL_RING_MAX] = (struct ring_entry){bytes, old_digest};
    if (fr->ring_count < PL_RING_MAX)
        fr->ring_count++;
    /* As many of the newest as fit into half the bytes of one whole fragment, but always the newest: a longer chain is hardly
     * shorter than the whole value, and the other half is room in which versions are made. */
    uint32_t keep = 0;
    uint64_t total = 0;
    while (keep < fr->ring_count) {
        uint64_t sum = pl_add_sat(total, fr->ring[(next - keep) % PL_RING_MAX].bytes);
        if (keep > 0 && sum > fr->full_bytes / 2)
            break;
        total = sum;
        keep++;
    }
    fr->ring_count = keep;
}

/* Are all updates from this version on still here, and are they shorter than the whole value? */
bool pl_sync_chain(const struct fragment *fr, uint64_t from, uint64_t *bytes)
{
    if (from >= fr->version || fr->version - from > fr->ring_count)
        return false;
    uint64_t total = 0;
    for (uint64_t v = from + 1; v <= fr->version; v++)
        total = pl_add_sat(total, fr->ring[v % PL_RING_MAX].bytes);
    *bytes = total;
    return total <= fr->full_bytes;
}

uint64_t pl_sync_visit_bytes(const struct fragment *fr, uint32_t updates)
{
    uint64_t chain = fr->new_bytes * updates, most = updates == 1 ? fr->full_bytes : fr->full_bytes / 2;
    return chain <= most && updates <= PL_RING_MAX ? chain : fr->full_bytes;
}

/* ---- what a learner says it holds ---- */

static bool digest_known_wrong(const struct fragment *fr, const struct pl_item_have *have)
{
    if (have->version > fr->version)
        return true;
    if (have->version == fr->version)
        return have->digest != fr->digest;
    bool in_ring = fr->version - have->version <= fr->ring_count;
    return in_ring && fr->ring[(have->version + 1) % PL_RING_MAX].digest != have->digest;
}

void pl_sync_take_have(struct pl_syncer *s, uint32_t m, const struct pl_array *have)
{
    struct learner *l = &s->learners[m];
    l->behind = 0;
    for (uint32_t f = 0; f < s->fragment_count; f++) {
        struct pl_item_have item = pl_item_have_at(have, f);
        struct cell *c = cell_of(s, m, f);
        bool wrong = digest_known_wrong(&s->fragments[f], &item) ||
                     (c->stranger && item.version < s->fragments[f].version);
        c->stranger = c->stranger && wrong;
        c->acked = wrong ? PL_NONE64 : item.version;
        c->full = c->reset = wrong ? 1 : 0;
        c->sending = PL_NONE64;
        c->met = c->acked == s->fragments[f].version ? 1 : 0;
        l->behind += c->acked != s->fragments[f].version ? 1 : 0;
        if (wrong)
            PL_MARK("syncer.reset_learner");
    }
    pl_sync_line_broken(s, m);
    l->backlog = false;
}

/* ---- sending ---- */

static void make_header(const struct fragment *fr, const struct cell *c, struct pl_msg_update *u)
{
    uint64_t bytes = 0;
    bool chain = !c->full && c->acked != PL_NONE64 && pl_sync_chain(fr, c->acked, &bytes);
    *u = (struct pl_msg_update){.fragment = fr->number,
                                .from_version = chain ? c->acked : PL_NONE64,
                                .to_version = fr->version,
                                .digest = fr->digest,
                                .last_merged = c->last_merged,
                                .bytes = chain ? bytes : fr->full_bytes,
                                .flags = c->reset ? 1 : 0};
}

/* Updates on their way at once: those of its rounds within its lead. A learner takes values between two of its steps
 * only, so one with long steps answers for several ticks at a time. */
static uint64_t window(const struct pl_syncer *s, uint32_t m)
{
    uint64_t ticks = s->interval == 0 ? 0 : s->learners[m].step.mean / s->interval;
    return pl_min64((pl_sync_overlap_eff(s, m) + ticks) / pl_sync_stride(s, m) + 1, s->fragment_count);
}

/* A learner whose line is too thin for every version gets those its own rounds build on, and no other: what it is sent
 * then falls with its stride, as what it is asked for does. One that came with less than its stride explains was away:
 * it gets what it missed at once. */
static bool wanted(const struct pl_syncer *s, uint32_t m, uint32_t f)
{
    const struct fragment *fr = &s->fragments[f];
    const struct cell *c = cell_of(s, m, f);
    uint32_t stride = s->learners[m].stride;
    if (stride <= s->stretch || s->phase == PL_PHASE_DONE)
        return true; /* no round of it goes by without this learner */
    if (!c->met && (c->acked == PL_NONE64 || fr->version - c->acked > stride))
        return true;
    if (s->phase == PL_PHASE_CLOSING)
        return fr->closing || fr->closed;
    return pl_sync_takes_next(s, m, f);
}

void pl_sync_deliver(struct pl_syncer *s, uint32_t m, uint32_t f, uint64_t mask, struct pl_sync_fxs *out)
{
    struct learner *l = &s->learners[m];
    struct cell *c = cell_of(s, m, f);
    const struct fragment *fr = &s->fragments[f];
    if (l->state != LEARNER_LIVE || l->bulk == PL_NONE32)
        return;
    if (c->sending != PL_NONE64 || (c->acked == fr->version && !c->full) || !wanted(s, m, f))
        return;
    if (l->sending >= window(s, m)) {
        l->backlog = true;
        return;
    }
    struct pl_sync_effect *fx = pl_sync_emit(out, PL_SYNC_FX_DELIVER);
    fx->u.deliver.conn = l->bulk;
    fx->u.deliver.mask = mask;
    make_header(fr, c, &fx->u.deliver.header);
    c->sending = fr->version;
    c->sent_bytes = fx->u.deliver.header.bytes;
    pl_sync_line_sent(s, m);
    TRACE(out, DELIVER, fr->number, l->identity, fx->u.deliver.header.from_version, fr->version);
}

void pl_sync_deliver_all(struct pl_syncer *s, uint32_t m, struct pl_sync_fxs *out)
{
    struct learner *l = &s->learners[m];
    l->backlog = false;
    if (l->behind == 0)
        return;
    /* Whose round comes first goes first. That is another one with every tick, so that nobody is always last. */
    uint64_t last = s->tick + (uint64_t)s->period * pl_sync_stride(s, m);
    for (uint64_t due = s->tick + 1; due <= last && !l->backlog; due++) {
        uint32_t f = s->due_fragment[due % s->period];
        if (f != PL_NONE32 && pl_sync_takes_part(s, m, f, due))
            pl_sync_deliver(s, m, f, 0, out);
    }
}

/* The bulk connection is gone, and with it what was on its way. */
void pl_sync_stop_sending(struct pl_syncer *s, uint32_t m)
{
    for (uint32_t f = 0; f < s->fragment_count; f++)
        cell_of(s, m, f)->sending = PL_NONE64;
    pl_sync_line_broken(s, m);
    s->learners[m].backlog = false;
}

/* A learner that reconnected has part of an update already: continue it, if it is still the one to send. */
void pl_sync_resume_updates(struct pl_syncer *s, uint32_t m, const struct pl_array *partial,
                            struct pl_sync_fxs *out)
{
    for (uint32_t i = 0; i < partial->count; i++) {
        struct pl_item_partial item = pl_item_partial_at(partial, i);
        if (item.fragment >= s->manifest->fragments.count || s->local_of[item.fragment] == PL_NONE32)
            continue;
        uint32_t f = s->local_of[item.fragment];
        struct pl_msg_update u;
        make_header(&s->fragments[f], cell_of(s, m, f), &u);
        if (u.to_version != item.id || u.digest != item.digest || u.bytes != item.bytes)
            continue;
        PL_MARK("syncer.resume_update");
        pl_sync_deliver(s, m, f, item.mask & pl_chunk_all(u.bytes), out);
    }
}

static void not_sending(struct pl_syncer *s, uint32_t m, struct cell *c)
{
    if (c->sending == PL_NONE64)
        return;
    c->sending = PL_NONE64;
    pl_sync_line_done(s, m, c->sent_bytes);
}

static void send_more(struct pl_syncer *s, uint32_t m, uint32_t f, struct pl_sync_fxs *out)
{
    pl_sync_deliver(s, m, f, 0, out);
    if (s->learners[m].backlog)
        pl_sync_deliver_all(s, m, out);
}

void pl_sync_have(struct pl_syncer *s, uint32_t m, const struct pl_msg_got *g, struct pl_sync_fxs *out)
{
    uint32_t f;
    struct learner *l = &s->learners[m];
    if (!pl_sync_owned(s, m, g->fragment, "HAVE", &f, out))
        return;
    struct cell *c = cell_of(s, m, f);
    const struct fragment *fr = &s->fragments[f];
    if (g->version > fr->version) {
        pl_sync_drop_learner(s, m, PL_REASON_WRONG_STATE, out, "HAVE.version is %lu, fragment %u is at %lu",
                             g->version, (unsigned)g->fragment, fr->version);
        return;
    }
    if (c->acked != PL_NONE64 && g->version <= c->acked && g->version != c->sending)
        return; /* old news */
    l->behind -= c->acked != fr->version ? 1 : 0;
    if (g->version == c->sending)
        c->full = c->reset = c->stranger = 0;
    c->acked = g->version;
    c->met = 1;
    l->behind += c->acked != fr->version ? 1 : 0;
    not_sending(s, m, c);
    send_more(s, m, f, out);
    pl_sync_release_if_complete(s, m, out);
}

void pl_sync_fetch(struct pl_syncer *s, uint32_t m, const struct pl_msg_fetch *g, struct pl_sync_fxs *out)
{
    uint32_t f;
    if (!pl_sync_owned(s, m, g->fragment, "FETCH", &f, out))
        return;
    PL_MARK("syncer.fetch");
    struct cell *c = cell_of(s, m, f);
    if (c->full && c->sending == s->fragments[f].version)
        return; /* it is on its way */
    s->learners[m].behind += c->acked == s->fragments[f].version ? 1 : 0;
    c->acked = PL_NONE64;
    c->full = 1;
    not_sending(s, m, c);
    send_more(s, m, f, out);
}

/* ---- announcing a version to everybody ---- */

void pl_sync_announce(struct pl_syncer *s, uint32_t f)
{
    for (uint32_t i = 0; i < s->announce_len; i++)
        if (s->announce[(s->announce_head + i) % s->fragment_count] == f)
            return; /* already waiting: it will be sent at its newest version */
    s->announce[(s->announce_head + s->announce_len++) % s->fragment_count] = f;
}

bool pl_sync_announce_some(struct pl_syncer *s, struct pl_sync_fxs *out)
{
    if (s->announce_len == 0)
        return false;
    uint32_t f = s->announce[s->announce_head];
    for (uint32_t i = 0; i < s->known; i++)
        pl_sync_deliver(s, s->by_identity[i], f, 0, out);
    s->announce_head = (s->announce_head + 1) % s->fragment_count;
    s->announce_len--;
    return true;
}
