/* sim/check_history.c - one history: a version has one digest, everywhere and for ever, and versions grow by one.
 *
 * A version enters the history when it is published, or when it is found durable after a crash. From then on every
 * update that leads to it, every learner's anchor at it (by the bytes), and every later recovery must show the same
 * digest.
 */
#include "sim/check_int.h"

struct line {
    uint64_t *digests; /* by version */
    uint32_t count, cap;
    bool staged; /* a record of version `count` was handed to the store */
    uint64_t staged_digest;
    bool merged; /* MERGED was said, its record did not come yet */
    uint64_t merged_digest;
};

struct check_history {
    struct line *lines; /* [fragment_count] */
};

static bool init(struct pl_checks *c)
{
    c->history = pl_check_zero(c, 1, sizeof(*c->history));
    if (c->history == NULL)
        return false;
    c->history->lines = pl_check_zero(c, c->fragment_count, sizeof(*c->history->lines));
    return c->history->lines != NULL;
}

static void append(struct pl_checks *c, struct line *l, uint64_t digest)
{
    if (!pl_check_room(c, &l->digests, &l->cap, l->count + 1, sizeof(*l->digests)))
        return;
    l->digests[l->count++] = digest;
    l->staged = false;
}

/* who: "an update", "learner 3's anchor" ... */
static void same(struct pl_checks *c, uint64_t now, const char *who, uint64_t number, uint32_t fragment,
                 uint64_t version, uint64_t digest)
{
    const struct line *l = &c->history->lines[fragment];
    if (version >= l->count)
        pl_check_fail(c, "history", now,
                      "%s %lu has fragment %u at version %lu; the newest one ever published is %lu", who,
                      number, fragment, version, (uint64_t)l->count - 1);
    else if (l->digests[version] != digest)
        pl_check_fail(c, "history", now,
                      "%s %lu has fragment %u version %lu with digest %lx; that version is %lx", who, number,
                      fragment, version, digest, l->digests[version]);
}

static void on_join(struct pl_checks *c, uint32_t shard, uint64_t now, const struct pl_msg_join *join)
{
    uint32_t person = pl_check_sender(c, shard), i = 0;
    if (person == PL_NONE32 || !pl_check_honest(c, person))
        return;
    for (uint32_t p = 0; p < c->fragment_count && i < join->have.count; p++) {
        if (c->fragments[p].shard != shard)
            continue;
        struct pl_item_have have = pl_item_have_at(&join->have, i++);
        same(c, now, "the JOIN of learner", c->people[person], p, have.version, have.digest);
    }
}

static void sync_event(struct pl_checks *c, uint32_t shard, const struct pl_sync_event *ev)
{
    if (ev->kind == PL_SYNC_EV_MERGED && ev->u.merged.good && ev->u.merged.fragment < c->fragment_count) {
        struct line *l = &c->history->lines[ev->u.merged.fragment];
        l->merged = true;
        l->merged_digest = ev->u.merged.digest;
    } else if (ev->kind == PL_SYNC_EV_MSG && ev->u.msg.msg->type == PL_MSG_JOIN) {
        on_join(c, shard, ev->now_ns, &ev->u.msg.msg->u.join);
    }
}

static void on_store(struct pl_checks *c, uint64_t now, const struct pl_record *r)
{
    struct line *l = &c->history->lines[r->fragment];
    if (r->version != l->count)
        pl_check_fail(c, "history", now, "fragment %u: version %lu is to be stored after version %lu",
                      r->fragment, r->version, (uint64_t)l->count - 1);
    else if (l->staged ? r->digest != l->staged_digest : !l->merged || r->digest != l->merged_digest)
        pl_check_fail(c, "history", now,
                      "fragment %u: the record of version %lu has digest %lx, which no merge gave",
                      r->fragment, r->version, r->digest);
    l->staged = true;
    l->merged = false;
    l->staged_digest = r->digest;
}

static void sync_effect(struct pl_checks *c, uint32_t shard, uint64_t now, const struct pl_sync_effect *fx)
{
    if (fx->kind == PL_SYNC_FX_STORE && fx->u.store.record->type == PL_RECORD_ROUND) {
        on_store(c, now, fx->u.store.record);
    } else if (fx->kind == PL_SYNC_FX_PUBLISH) {
        struct line *l = &c->history->lines[fx->u.publish.fragment];
        if (!l->staged || fx->u.publish.version != l->count)
            pl_check_fail(c, "history", now,
                          "fragment %u: version %lu is published after %lu without a record",
                          fx->u.publish.fragment, fx->u.publish.version, (uint64_t)l->count - 1);
        append(c, l, l->staged_digest);
    } else if (fx->kind == PL_SYNC_FX_DELIVER) {
        same(c, now, "an update of shard", shard, fx->u.deliver.header.fragment,
             fx->u.deliver.header.to_version, fx->u.deliver.header.digest);
    }
}

static void crash(struct pl_checks *c, uint32_t shard, uint64_t now)
{
    (void)now;
    for (uint32_t p = 0; p < c->fragment_count; p++)
        if (c->fragments[p].shard == shard)
            c->history->lines[p].merged = false;
}

static void recovered(struct pl_checks *c, uint64_t now, uint32_t fragment, uint64_t version, uint64_t digest)
{
    struct line *l = &c->history->lines[fragment];
    if (l->count == 0 && version == 0) {
        append(c, l, digest);
        return;
    }
    if (version == l->count && l->staged) {
        if (digest != l->staged_digest)
            pl_check_fail(c, "history", now,
                          "fragment %u: version %lu came back with digest %lx, stored was %lx", fragment,
                          version, digest, l->staged_digest);
        append(c, l, digest);
        return;
    }
    l->staged = false;
    same(c, now, "recovery of shard", c->fragments[fragment].shard, fragment, version, digest);
}

void pl_check_history_anchor(struct pl_checks *c, uint64_t now, uint32_t person, uint32_t fragment,
                             uint64_t version, uint64_t digest)
{
    same(c, now, "the anchor of learner", c->people[person], fragment, version, digest);
}

const struct pl_checker pl_check_history = {
    .name = "history",
    .init = init,
    .sync_event = sync_event,
    .sync_effect = sync_effect,
    .crash = crash,
    .recovered = recovered,
};
