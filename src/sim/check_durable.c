/* sim/check_durable.c - nothing is told before it is durable, and nothing told is lost.
 *
 * Durable is what the store answered for: STORED with durable = true. Told are: LISTEN (a new epoch), a published
 * version, a leased unit, the end of the run. After a crash every fragment is at least at its published version, what
 * is replayed is what was stored, and the new epoch is larger than every one before.
 */
#include "sim/check_int.h"

#include "base/hash.h"

/* A record the store was asked for. */
struct stored {
    uint64_t seq;
    enum pl_record_type type;
    uint32_t shard, fragment;
    uint64_t version, unit, identity, epoch;
    uint64_t hash; /* of its contents, for the replay */
    bool durable;
};

struct check_durable {
    struct stored *rounds; /* [fragment_count] the newest ROUND record */
    struct stored *boots;  /* [shard_count] */
    struct stored *dones;  /* [shard_count] */
    struct stored *leases; /* growing; those of the home shard that were not told yet */
    uint32_t lease_count, lease_cap;
};

static bool init(struct pl_checks *c)
{
    struct check_durable *d = c->durable = pl_check_zero(c, 1, sizeof(*d));
    if (d == NULL)
        return false;
    d->rounds = pl_check_zero(c, c->fragment_count, sizeof(*d->rounds));
    d->boots = pl_check_zero(c, c->shard_count, sizeof(*d->boots));
    d->dones = pl_check_zero(c, c->shard_count, sizeof(*d->dones));
    return c->status == PELAGO_OK;
}

/* What makes a round what it is; what the shard knew of its contributors besides may differ when a failed store is
 * asked again. */
static uint64_t hash_record(const struct pl_record *r)
{
    uint64_t head[6] = {r->round, r->version, r->digest, r->update_bytes, r->contributor_count, r->epoch};
    uint64_t hash = pl_hash64(head, sizeof(head), 0);
    for (uint32_t i = 0; i < r->contributor_count; i++) {
        const struct pl_contributor *k = &r->contributors[i];
        uint64_t part[3] = {k->identity, k->steps, k->tokens};
        hash = pl_hash64(part, sizeof(part), hash);
    }
    return hash;
}

/* A lease asked for again, after a failed store or for another learner, replaces the first. */
static void note_lease(struct pl_checks *c, const struct stored *s)
{
    struct check_durable *d = c->durable;
    for (uint32_t i = 0; i < d->lease_count; i++) {
        if (d->leases[i].unit == s->unit) {
            d->leases[i] = *s;
            return;
        }
    }
    if (pl_check_room(c, &d->leases, &d->lease_cap, d->lease_count + 1, sizeof(*d->leases)))
        d->leases[d->lease_count++] = *s;
}

static void on_store(struct pl_checks *c, uint32_t shard, uint64_t now, uint64_t seq,
                     const struct pl_record *r)
{
    struct check_durable *d = c->durable;
    struct stored s = {.seq = seq,
                       .type = r->type,
                       .shard = shard,
                       .fragment = r->fragment,
                       .version = r->version,
                       .unit = r->unit,
                       .identity = r->identity,
                       .epoch = r->epoch,
                       .hash = hash_record(r)};
    switch (r->type) {
    case PL_RECORD_BOOT:
        if (d->boots[shard].seq != 0 && d->boots[shard].durable && r->epoch <= d->boots[shard].epoch)
            pl_check_fail(c, "durable", now,
                          "shard %u begins epoch %lu after epoch %lu: rounds would be named twice", shard,
                          r->epoch, d->boots[shard].epoch);
        d->boots[shard] = s;
        break;
    case PL_RECORD_ROUND:
        d->rounds[r->fragment] = s;
        break;
    case PL_RECORD_DONE:
        d->dones[shard] = s;
        break;
    case PL_RECORD_LEASE:
        note_lease(c, &s);
        break;
    }
}

static void mark(struct stored *s, uint32_t shard, uint64_t seq)
{
    if (s->seq == seq && s->shard == shard)
        s->durable = true;
}

static void sync_event(struct pl_checks *c, uint32_t shard, const struct pl_sync_event *ev)
{
    struct check_durable *d = c->durable;
    if (ev->kind != PL_SYNC_EV_STORED || !ev->u.stored.durable)
        return;
    uint64_t seq = ev->u.stored.seq;
    mark(&d->boots[shard], shard, seq);
    mark(&d->dones[shard], shard, seq);
    for (uint32_t p = 0; p < c->fragment_count; p++)
        mark(&d->rounds[p], shard, seq);
    for (uint32_t i = 0; i < d->lease_count; i++)
        mark(&d->leases[i], shard, seq);
}

static void on_lease(struct pl_checks *c, uint32_t shard, uint64_t now, const struct pl_sync_effect *fx)
{
    struct check_durable *d = c->durable;
    uint32_t person = c->shards[shard].conns[fx->u.send.conn].person;
    uint64_t unit = fx->u.send.msg.u.lease.unit;
    for (uint32_t i = d->lease_count; i-- > 0;) {
        struct stored *s = &d->leases[i];
        if (s->unit != unit || person == PL_NONE32 || s->identity != c->people[person])
            continue;
        if (!s->durable)
            break;
        *s = d->leases[--d->lease_count];
        return;
    }
    pl_check_fail(c, "durable", now, "unit %lu is told to learner %lu before its lease is durable", unit,
                  person == PL_NONE32 ? 0 : c->people[person]);
}

static void sync_effect(struct pl_checks *c, uint32_t shard, uint64_t now, const struct pl_sync_effect *fx)
{
    struct check_durable *d = c->durable;
    if (fx->kind == PL_SYNC_FX_STORE) {
        on_store(c, shard, now, fx->u.store.seq, fx->u.store.record);
    } else if (fx->kind == PL_SYNC_FX_LISTEN && !d->boots[shard].durable) {
        pl_check_fail(c, "durable", now, "shard %u listens before its epoch is durable", shard);
    } else if (fx->kind == PL_SYNC_FX_PUBLISH) {
        const struct stored *s = &d->rounds[fx->u.publish.fragment];
        if (!s->durable || s->version != fx->u.publish.version)
            pl_check_fail(c, "durable", now, "fragment %u: version %lu is announced before it is durable",
                          fx->u.publish.fragment, fx->u.publish.version);
    } else if (fx->kind == PL_SYNC_FX_DELIVER) {
        uint64_t newest = c->fragments[fx->u.deliver.header.fragment].version;
        if (fx->u.deliver.header.to_version > newest)
            pl_check_fail(c, "durable", now, "fragment %u: an update leads to version %lu, published is %lu",
                          fx->u.deliver.header.fragment, fx->u.deliver.header.to_version, newest);
    } else if (fx->kind == PL_SYNC_FX_SEND && fx->u.send.msg.type == PL_MSG_LEASE) {
        on_lease(c, shard, now, fx);
    } else if ((fx->kind == PL_SYNC_FX_FINISHED ||
                (fx->kind == PL_SYNC_FX_CLOSE && fx->u.close.reason == PL_REASON_DONE)) &&
               !d->dones[shard].durable) {
        pl_check_fail(c, "durable", now, "shard %u says that the run is complete before that is durable",
                      shard);
    }
}

static void crash(struct pl_checks *c, uint32_t shard, uint64_t now)
{
    (void)now;
    struct check_durable *d = c->durable;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < d->lease_count; i++)
        if (d->leases[i].shard != shard)
            d->leases[kept++] = d->leases[i];
    d->lease_count = kept;
}

static void replayed(struct pl_checks *c, uint32_t shard, uint64_t now, const struct pl_record *r)
{
    if (r->type == PL_RECORD_DONE)
        c->durable->dones[shard].durable = true;
    if (r->type != PL_RECORD_ROUND)
        return;
    if (!pl_check_owns(c, shard, r->fragment)) {
        pl_check_fail(c, "durable", now, "shard %u replays a record of fragment %u, which is not its own",
                      shard, r->fragment);
        return;
    }
    const struct stored *s = &c->durable->rounds[r->fragment];
    if (s->seq != 0 && s->version == r->version && s->hash != hash_record(r))
        pl_check_fail(c, "durable", now,
                      "fragment %u: the replayed record of version %lu is not the one stored", r->fragment,
                      r->version);
    if (r->version > s->version)
        pl_check_fail(c, "durable", now,
                      "fragment %u: version %lu is replayed, but no such record was ever stored", r->fragment,
                      r->version);
}

static void recovered(struct pl_checks *c, uint64_t now, uint32_t fragment, uint64_t version, uint64_t digest)
{
    (void)digest;
    if (version < c->fragments[fragment].version)
        pl_check_fail(c, "durable", now,
                      "fragment %u is back at version %lu, but version %lu had been announced", fragment,
                      version, c->fragments[fragment].version);
}

const struct pl_checker pl_check_durable = {
    .name = "durable",
    .init = init,
    .sync_event = sync_event,
    .sync_effect = sync_effect,
    .crash = crash,
    .replayed = replayed,
    .recovered = recovered,
};
