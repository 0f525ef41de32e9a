/* host/syncer_guard.c - what a learner sends is counted only as far as it can be true.
 *
 * Two things are looked at, each with wide margins, because refusing an honest learner costs more than a small lie:
 *
 *   norms   of every slice of a contribution beside the median of those accepted lately for the same slice. How far a
 *           learner goes follows from the learning rate, which rises from nothing in a warm-up, and from its steps: who
 *           comes back after an hour has gone further. What is short beside the parameters themselves is always taken.
 *           Radial averaging takes the mean of norms, so one contribution a million times too long would carry all the
 *           others away with it.
 *   claims  of steps, which weigh a contribution and drive the token clock, beside the time there was for them, by the
 *           syncer's own clock. A learner may be many times as fast as most others, but not any number of times. Each claim
 *           fills a vessel that leaks as fast as steps can be done; who fills it faster is not believed. What came at
 *           once because it had piled up (in a queue, in an hour's absence) had its time before.
 *
 * Who is not believed is disconnected, and stays outside for a while that doubles each time. All of this is this
 * process's opinion: it leaves no trace in the journal but the absence of what was refused.
 */
#include "host/syncer_host_int.h"

#include "base/check.h"
#include "base/num.h"
#include "optim/norm.h"
#include "optim/schedule.h"

#include <math.h>
#include <stdlib.h>

enum {
    NORM_FACTOR = 16,   /* times the usual norm; of honest learners at speeds 1 to 4 none came to 3 */
    MANY_ROOTS = 2,     /* of four times the usual steps on more is thought of an absence */
    STRAIGHT_SHARE = 4, /* of NORM_FACTOR is left where one has gone straight on */
    SHORT_SHARE = 10,   /* a tenth of the parameters' own norm is never too long */
    LEAST_RATE = 64,    /* of the peak: what the first steps of a warm-up are measured in */
    SPEED_FACTOR = 64,  /* times as fast as the usual learner */
    STEPS_ALLOWED = 64, /* always believed: what piles up in queues and in the first moments */
    LIVE_MIN = 3,       /* fewer learners say nothing about what is usual */
};
#define RETURN_NS (600 * PL_SEC) /* in which learners come back after a restart */
#define LOOK_NS (100 * PL_MS)    /* between two looks at how fast the learners are */
#define SHUT_NS_MIN PL_SEC
#define SHUT_NS_MAX (600 * PL_SEC)
#define VALUE_MIN 0.02 /* parameters are about this large when training begins */

/* ---- norms ---- */

void pl_guard_norms(const struct pl_layout *l, uint32_t fragment, enum pl_codec codec, const uint8_t *bytes,
                    float *scratch, double *norms)
{
    _Static_assert(PL_GUARD_PIECE % PL_CODEC_CHUNK == 0, "a piece is made of whole chunks");
    const struct pl_layout_fragment *f = &l->fragments[fragment];
    for (uint32_t k = 0; k < f->slice_count; k++) {
        uint64_t left = l->slices[f->slice_first + k].count;
        double sum = 0;
        while (left > 0) {
            uint64_t n = pl_min64(left, PL_GUARD_PIECE);
            pl_codec_decode(codec, bytes, n, scratch);
            sum += pl_grad_sumsq(scratch, n);
            bytes += pl_codec_bytes(codec, n);
            left -= n;
        }
        norms[k] = sqrt(sum);
    }
}

/* Of the norms of a slice, in units of the learning rate, by so many roots of the steps. */
static double median(const struct pl_shard_fragment *f, const float *norms, unsigned roots)
{
    double sorted[PL_GATE_HISTORY];
    for (uint32_t i = 0; i < f->norm_count; i++) {
        double v = (double)norms[i] / (double)f->rates[i];
        uint32_t at = i;
        for (unsigned n = 0; n < roots; n++)
            v /= (double)f->roots[i];
        for (; at > 0 && sorted[at - 1] > v; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = v;
    }
    return sorted[f->norm_count / 2];
}

/* The run's learning rate now; the very first ones of a warm-up are as good as nothing. */
static double rate_now(struct pl_syncer_host *h)
{
    const struct pl_schedule *s = &h->settings.trainer.schedule;
    struct pl_sync_view view;
    pl_syncer_view(h->core, &view);
    if (h->options.shard != 0)
        return (double)s->peak; /* the token clock is at home */
    return fmax((double)pl_schedule_lr(s, view.clock_tokens), (double)s->peak / LEAST_RATE);
}

/* What is sent now may have been learned while the rate was higher: a residual keeps it, and so does whoever comes late. The
 * highest of the history counts, so that a rate that falls does not make honest work look long. */
static double rate_to_judge_by(const struct pl_shard_fragment *f, double now)
{
    for (uint32_t i = 0; i < f->norm_count; i++)
        now = fmax(now, (double)f->rates[i]);
    return now;
}

/* At least as long as when training begins. */
void pl_guard_measure(const struct pl_layout *l, uint32_t fragment, const float *theta, double *own)
{
    const struct pl_layout_fragment *f = &l->fragments[fragment];
    for (uint32_t k = 0; k < f->slice_count; k++) {
        const struct pl_layout_slice *s = &l->slices[f->slice_first + k];
        own[k] = fmax(sqrt(pl_grad_sumsq(theta + s->first, s->count)), VALUE_MIN * sqrt((double)s->count));
    }
}

/* What is usual for so many steps. Steps at random go as far as their root. Who brings many more than the others made
 * some of them long ago, perhaps at a higher rate, and may have gone straight on. */
static double usual_norm(const struct pl_syncer_host *h, const struct pl_shard_fragment *f, uint32_t k,
                         double root, double rate)
{
    const float *norms = f->norms[k];
    double plain = median(f, norms, 0), by_root = median(f, norms, 1),
           usual = rate * fmax(plain, root * by_root);
    if (root * by_root <= MANY_ROOTS * plain)
        return usual;
    double straight = (double)h->settings.trainer.schedule.peak * root * root * median(f, norms, 2);
    return fmax(usual, straight / STRAIGHT_SHARE);
}

/* The longest norm of slice k that is believed for a contribution of root^2 steps. */
static double longest(const struct pl_syncer_host *h, const struct pl_shard_fragment *f, uint32_t k,
                      double norm, double root, double rate)
{
    if (f->norm_count < PL_GATE_HISTORY_MIN)
        return NORM_FACTOR * root * f->own[k];
    double usual = usual_norm(h, f, k, root, rate_to_judge_by(f, rate));
    if (norm <= NORM_FACTOR * usual)
        return NORM_FACTOR * usual;
    return fmax(NORM_FACTOR * usual, f->own[k] / SHORT_SHARE);
}

static void remember(struct pl_shard_fragment *f, uint32_t slices, const double *norms, double root,
                     double rate)
{
    for (uint32_t k = 0; k < slices; k++)
        f->norms[k][f->norm_next] = (float)norms[k];
    f->roots[f->norm_next] = (float)root;
    f->rates[f->norm_next] = (float)rate;
    f->norm_next = (f->norm_next + 1) % PL_GATE_HISTORY;
    f->norm_count = pl_min32(f->norm_count + 1, PL_GATE_HISTORY);
}

bool pl_guard_norms_ok(struct pl_syncer_host *h, struct pl_shard_fragment *f, uint64_t steps,
                       const double *norms, struct pl_error *err)
{
    uint32_t slices = h->layout.fragments[f->number].slice_count;
    double root = sqrt((double)pl_max64(steps, 1)), rate = rate_now(h);
    for (uint32_t k = 0; k < slices; k++) {
        double most = longest(h, f, k, norms[k], root, rate);
        if (norms[k] > most) {
            double times = NORM_FACTOR * norms[k] / most;
            (void)pl_fail(err, PELAGO_INVALID,
                          "slice %u is %lu times as long as usual, up to %u times is believed", k,
                          times < 1e18 ? (uint64_t)times : UINT64_MAX, (unsigned)NORM_FACTOR);
            return false;
        }
    }
    remember(f, slices, norms, root, rate);
    return true;
}

/* Trust comes back with time: a minute without a fault halves the count. */
void pl_guard_blame(struct pl_syncer_host *h, struct pl_islander *m)
{
    uint64_t now_ns = pl_max64(h->last_now_ns, m->refused_ns);
    for (uint64_t t = m->refused_ns; m->refused > 0 && now_ns - t >= 60 * PL_SEC; t += 60 * PL_SEC)
        m->refused /= 2;
    m->refused = pl_min32(m->refused + 1, 32);
    m->refused_ns = now_ns;
    uint64_t shut = pl_min64(SHUT_NS_MIN << pl_min32(m->refused - 1, 20), SHUT_NS_MAX);
    m->shut_until_ns = now_ns + (m->refused > 1 ? shut : 0);
}

/* ---- claims ---- */

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* The median, not the K-th fastest: with a small K that would be the one who claims most. */
static void look_around(struct pl_syncer_host *h, uint64_t now_ns)
{
    uint32_t n = 0;
    struct pl_learner_view view;
    if (h->usual_ns != 0 && now_ns - h->usual_ns < LOOK_NS)
        return;
    h->usual_ns = now_ns;
    for (uint32_t i = 0; i < h->options.learners_max; i++)
        if (pl_syncer_view_learner(h->core, i, &view) && view.live && view.step_ns > 0)
            h->guard_steps[n++] = view.step_ns;
    qsort(h->guard_steps, n, sizeof *h->guard_steps, by_size);
    h->usual_step_ns = n < LIVE_MIN ? 0 : h->guard_steps[n / 2];
}

/* While the learners come back after a restart, what was usual before it. */
uint64_t pl_guard_step_ns(struct pl_syncer_host *h)
{
    uint64_t now_ns = pl_max64(h->last_now_ns, 1);
    look_around(h, now_ns);
    if (h->usual_step_ns != 0 || now_ns - h->start_ns >= RETURN_NS)
        return h->usual_step_ns;
    return pl_heard_step_ns(h);
}

/* The shortest step that is believed. */
static uint64_t shortest_step(struct pl_syncer_host *h)
{
    return pl_max64(pl_guard_step_ns(h) / SPEED_FACTOR, PL_STEP_NS_LEAST);
}

/* With so many steps more. The time since the last ones lets them out; what it could have let out beside them is spare, and not
 * lost: of a silence, what had piled up comes in many messages, all but the first of them in no time. Only the longest
 * silence's is kept, so that nobody saves up days by working slowly. */
static struct pl_pace pace_with(const struct pl_pace *p, uint64_t steps, uint64_t shortest, uint64_t now_ns)
{
    struct pl_pace next = {.spare_ns = p->spare_ns, .since_ns = now_ns, .timed = true};
    uint64_t past_ns = now_ns - p->since_ns, more_ns;
    if (pl_mul_overflow(steps, shortest, &more_ns))
        more_ns = UINT64_MAX;
    uint64_t all_ns = pl_add_sat(p->owed_ns, more_ns), left_ns = pl_sub_sat(all_ns, past_ns);
    next.owed_ns = pl_sub_sat(left_ns, p->spare_ns);
    next.spare_ns = pl_max64(pl_sub_sat(p->spare_ns, left_ns), pl_sub_sat(past_ns, all_ns));
    return next;
}

static bool fits(struct pl_syncer_host *h, struct pl_pace *p, uint64_t steps, uint64_t now_ns,
                 const char *what, struct pl_error *err)
{
    uint64_t shortest = shortest_step(h);
    struct pl_pace next = pace_with(p, steps, shortest, now_ns);
    if (next.owed_ns <= STEPS_ALLOWED * shortest) {
        *p = next;
        return true;
    }
    (void)pl_fail(
        err, PELAGO_PROTO,
        "%s claims %lu steps in %lu ms, and steps shorter than %lu us are not believed (%u times the "
        "usual speed); nobody is that fast",
        what, steps, (now_ns - p->since_ns) / PL_MS, shortest / PL_US, (unsigned)SPEED_FACTOR);
    return false;
}

/* What is new in it to the core, which counts no other steps, and no tokens without steps. One that says nothing new counts as a
 * step, so that there is a bound to their number, too. */
static bool report_ok(struct pl_syncer_host *h, struct pl_islander *m, const struct pl_msg_report *r,
                      uint64_t now_ns, struct pl_error *err)
{
    struct pl_learner_view view;
    if (!m->pace.timed || !pl_syncer_view_identity(h->core, m->identity, &view))
        return true; /* before any greeting: the core has a sentence for that */
    return fits(h, &m->pace, pl_max64(pl_sub_sat(r->steps, view.steps), 1), now_ns, "REPORT.steps", err);
}

/* As few as there can be in so many tokens. */
static uint64_t steps_of(const struct pl_syncer_host *h, uint64_t tokens)
{
    uint64_t most = pl_max64(h->manifest.msg.step_tokens_max, 1);
    return tokens / most + (tokens % most != 0 ? 1 : 0);
}

/* A process that calls brings its tokens, and those that the core had not heard of go into the clock at once: they are looked
 * at, as the steps they need. Whoever was not heard in this life had the time since an earlier one heard it, or, as a
 * newcomer, since this one began. */
static bool hello_ok(struct pl_syncer_host *h, struct pl_islander *m, const struct pl_msg_hello *hello,
                     uint64_t now_ns, struct pl_error *err)
{
    struct pl_learner_view view;
    bool known = pl_syncer_view_identity(h->core, m->identity, &view);
    bool again = known && hello->incarnation == 0 && view.incarnation != 0 && hello->nonce == view.nonce;
    bool same = again || (known && hello->incarnation == view.incarnation); /* as the core will see it */
    uint64_t tokens = pl_sub_sat(hello->tokens, same ? view.tokens : 0);
    if (known && hello->incarnation != 0 && hello->incarnation < view.incarnation)
        return true; /* of a process that is fenced off; nothing is counted */
    if (!m->pace.timed)
        m->pace.since_ns = pl_heard_since(h, m->identity, known);
    if (!fits(h, &m->pace, steps_of(h, tokens), now_ns, "HELLO.steps", err))
        return false;
    m->pace.spare_ns = 0; /* a greeting brings all there is; nothing can have piled up before it */
    return true;
}

/* Work from before this process began has no time to be compared with; it is bounded by the versions a contribution may
 * be behind. So whoever comes soon after a restart is believed once for each fragment. */
static bool unknown_past(struct pl_syncer_host *h, const struct pl_islander *m)
{
    struct pl_sync_view view;
    pl_syncer_view(h->core, &view);
    return view.reborn && m->known_ns - h->start_ns < RETURN_NS;
}

/* Where nothing was merged yet in this life, the time is that since it was first heard. */
static struct pl_pace pace_of(const struct pl_islander *m, const struct pl_claim *c)
{
    return c->pace.timed ? c->pace : (struct pl_pace){.since_ns = m->known_ns};
}

/* Only what is merged is counted: until then it is claimed again with every round. */
static bool push_ok(struct pl_syncer_host *h, struct pl_islander *m, const struct pl_msg_push *p,
                    uint64_t now_ns, struct pl_error *err)
{
    if (p->fragment >= h->layout.fragment_count || h->layout.fragments[p->fragment].shard != h->options.shard)
        return true; /* the core has a sentence for that */
    const struct pl_claim *c = &m->claims[pl_shost_local(h, p->fragment)];
    struct pl_pace pace = pace_of(m, c);
    if (!c->pace.timed && unknown_past(h, m))
        return true;
    return fits(h, &pace, p->steps, now_ns, "PUSH.steps", err);
}

void pl_guard_merged(struct pl_syncer_host *h, const struct pl_islander *m, struct pl_claim *c,
                     uint64_t steps)
{
    uint64_t now_ns = h->last_now_ns, shortest = shortest_step(h);
    struct pl_pace before = pace_of(m, c);
    c->pace = pace_with(&before, steps, shortest, now_ns);
    /* What was believed without a look, or while steps were longer, is not owed for ever. */
    c->pace.owed_ns = pl_min64(c->pace.owed_ns, STEPS_ALLOWED * shortest);
}

bool pl_guard_claims_ok(struct pl_syncer_host *h, struct pl_islander *m, const struct pl_msg *msg,
                        uint64_t now_ns, struct pl_error *err)
{
    if (msg->type == PL_MSG_HELLO)
        return hello_ok(h, m, &msg->u.hello, now_ns, err);
    if (msg->type == PL_MSG_REPORT)
        return report_ok(h, m, &msg->u.report, now_ns, err);
    if (msg->type == PL_MSG_PUSH)
        return push_ok(h, m, &msg->u.push, now_ns, err);
    return true;
}
