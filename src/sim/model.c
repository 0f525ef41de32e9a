/* sim/model.c - see model.h. */
#include "sim/model.h"

#include "base/limits.h"

void pl_model_welcome(struct pl_model *m, uint32_t person, uint64_t incarnation)
{
    if (m->incarnation[person] == incarnation)
        return;
    m->incarnation[person] = incarnation;
    for (uint32_t p = 0; p < m->fragments; p++) {
        struct model_cell *c = pl_model_cell(m, person, p);
        c->asked = 0;
        if (!c->merging)
            c->held = 0;
    }
}

void pl_model_pulled(struct pl_model *m, uint64_t now, uint32_t person, uint32_t fragment, uint64_t round)
{
    struct model_fragment *f = &m->fragment[fragment];
    if (f->round != round) {
        /* A new round of the fragment: what was gathered for an older one is void. */
        for (uint32_t i = 0; i < m->people; i++)
            pl_model_cell(m, i, fragment)->asked = pl_model_cell(m, i, fragment)->held = 0;
        f->round = round;
        f->since_ns = now;
        f->ready_ns = 0;
    }
    pl_model_cell(m, person, fragment)->asked = round;
    pl_model_cell(m, person, fragment)->asked_here = true;
}

void pl_model_unasked(struct pl_model *m, uint32_t person, uint32_t fragment, uint64_t round)
{
    struct model_cell *c = pl_model_cell(m, person, fragment);
    if (c->asked == round)
        c->asked = 0;
}

void pl_model_held(struct pl_model *m, uint32_t person, uint32_t fragment, uint64_t round, uint64_t steps,
                   uint64_t tokens)
{
    struct model_cell *c = pl_model_cell(m, person, fragment);
    if (c->asked != round || m->fragment[fragment].round != round)
        return;
    c->asked = 0;
    c->held = round;
    c->steps = steps;
    c->tokens = tokens;
}

bool pl_model_ready(const struct pl_model *m, uint32_t fragment, const uint32_t *here)
{
    uint64_t round = m->fragment[fragment].round;
    uint32_t held = 0;
    for (uint32_t i = 0; i < m->people; i++) {
        const struct model_cell *c = pl_model_cell(m, i, fragment);
        if (c->asked == round && here[i] != PL_NONE32)
            return false;
        held += c->held == round ? 1 : 0;
    }
    return held >= (m->fragment[fragment].closing ? 1 : m->quorum);
}

bool pl_model_takes_part(const struct pl_model *m, uint32_t person, uint32_t fragment, uint64_t round)
{
    return round != 0 && pl_model_cell(m, person, fragment)->held == round;
}

bool pl_model_owed_drop(const struct pl_model *m, uint32_t person, uint32_t fragment, uint64_t round)
{
    return round != 0 && pl_model_cell(m, person, fragment)->asked == round;
}

void pl_model_merge(struct pl_model *m, uint32_t fragment, uint64_t round)
{
    m->fragment[fragment].merging = round;
    m->fragment[fragment].round = 0;
    for (uint32_t i = 0; i < m->people; i++)
        pl_model_cell(m, i, fragment)->merging = pl_model_cell(m, i, fragment)->held == round;
}

static void end_merge(struct pl_model *m, uint32_t fragment, bool published)
{
    for (uint32_t i = 0; i < m->people; i++) {
        struct model_cell *c = pl_model_cell(m, i, fragment);
        if (c->merging && published)
            c->last_merged = m->fragment[fragment].merging;
        if (c->merging)
            c->held = 0;
        c->merging = false;
    }
    m->fragment[fragment].merging = 0;
}

void pl_model_merge_failed(struct pl_model *m, uint32_t fragment)
{
    end_merge(m, fragment, false);
}

void pl_model_published(struct pl_model *m, uint32_t fragment)
{
    end_merge(m, fragment, true);
    m->fragment[fragment].version++;
}

void pl_model_crash(struct pl_model *m)
{
    for (uint32_t i = 0; i < m->people; i++) {
        m->incarnation[i] = 0;
        for (uint32_t p = 0; p < m->fragments; p++) {
            struct model_cell *c = pl_model_cell(m, i, p);
            c->asked = c->held = 0;
            c->acked_known = false;
        }
    }
    for (uint32_t p = 0; p < m->fragments; p++)
        m->fragment[p].round = 0;
}

void pl_model_recovered(struct pl_model *m, uint32_t fragment, uint64_t version)
{
    bool survived = m->fragment[fragment].merging != 0 && version == m->fragment[fragment].version + 1;
    end_merge(m, fragment, survived);
    m->fragment[fragment].version = version;
}
