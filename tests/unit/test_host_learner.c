/* A learner with a real syncer: it joins, trains, pushes, applies, leaves and comes back. Real sockets, TLS
 * and disks; the syncer is another process. */
#include "learner_host_rig.h"

#include "core/learner_int.h"
#include "host/learner_host_int.h"
#include "os/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct run_rig rig;
static struct rig_learner learners[2];

static int set_up(void **state)
{
    (void)state;
    run_rig_init(&rig);
    memset(learners, 0, sizeof learners);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    run_rig_release(&rig);
    return 0;
}

static void start(struct rig_learner *l, const char *name)
{
    struct pl_error err = {PELAGO_OK, ""};
    if (rig_learner_start(l, &rig, name, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
}

/* What the learner holds is what its versions say. */
static void check_anchors(const struct pl_learner_host *h, uint64_t version_min)
{
    for (uint32_t i = 0; i < h->layout.fragment_count; i++) {
        const struct pl_vec *v = h->fragments[i].anchor;
        uint64_t digest, version = pl_learner_version(h->core, i, &digest);
        assert_int_equal(pl_values_digest(v->at, v->count), digest);
        assert_true(version >= version_min);
    }
}

static void test_a_run_to_its_end(void **state)
{
    (void)state;
    struct rig_learner *l = &learners[0];
    struct pl_learner_host_view v;
    run_rig_syncer(&rig);
    start(l, "a");
    assert_true(run_rig_until(&rig, rig_learner_is_done, l, 60));
    assert_int_equal(l->why.status, PELAGO_OK);
    pl_learner_host_view(l->host, &v);
    assert_true(v.tokens >= rig.settings.total_tokens);
    assert_true(v.steps_timed > 0 && v.blocked_p999_ns <= v.blocked_max_ns &&
                v.blocked_max_ns <= v.blocked_ns);
    check_anchors(l->host, 1);
    rig_learner_free(l);
}

/* ---- conditions ---- */

struct progress {
    struct rig_learner *l;
    uint64_t steps, version; /* of every fragment */
    bool live;
};

static uint64_t lowest_version(const struct pl_learner_host *h)
{
    uint64_t lowest = UINT64_MAX, digest;
    for (uint32_t i = 0; i < h->layout.fragment_count; i++)
        lowest = pl_min64(lowest, pl_learner_version(h->core, i, &digest));
    return lowest;
}

static bool has_come_to(void *user)
{
    const struct progress *p = user;
    struct pl_learner_host_view v;
    pl_learner_host_view(p->l->host, &v);
    bool known = v.steps > 0 || v.live; /* before the manifest there are no versions */
    return known && v.steps >= p->steps && (!p->live || v.live) &&
           (p->version == 0 || lowest_version(p->l->host) >= p->version);
}

static void wait_for(struct progress p)
{
    if (!run_rig_until(&rig, has_come_to, &p, 60))
        fail_msg("step %lu, version %lu were not reached; the log:\n%s", (unsigned long)p.steps,
                 (unsigned long)p.version, p.l->log);
}

static uint64_t steps_of(struct rig_learner *l)
{
    struct pl_learner_host_view v;
    pl_learner_host_view(l->host, &v);
    return v.steps;
}

static bool is_idle(void *user)
{
    return pl_learner_host_idle(((struct rig_learner *)user)->host);
}

/* Leaves politely. How long it took to be done; what it has left behind then ends, too. */
static uint64_t quit_ms(struct rig_learner *l)
{
    uint64_t begin = pl_clock_ns();
    pl_learner_host_quit(l->host);
    assert_true(run_rig_until(&rig, rig_learner_is_done, l, 20));
    assert_int_equal(l->why.status, PELAGO_OK);
    return (pl_clock_ns() - begin) / PL_MS;
}

/* A second, and as much again for a busy machine. */
static void quit(struct rig_learner *l)
{
    uint64_t ms = quit_ms(l);
    print_message("# left after %lu ms\n", (unsigned long)ms);
    assert_true(ms < 2000);
    assert_true(run_rig_until(&rig, is_idle, l, 20));
}

static void endless(void)
{
    rig.settings.total_tokens = UINT64_C(1) << 40;
}

/* ---- coming back ---- */

static void test_it_leaves_and_goes_on(void **state)
{
    (void)state;
    struct rig_learner *l = &learners[0];
    endless();
    run_rig_syncer(&rig);
    start(l, "a");
    wait_for((struct progress){.l = l, .steps = 50, .version = 3});
    quit(l);
    uint64_t steps = steps_of(l), version = lowest_version(l->host), identity = l->host->own.identity;
    check_anchors(l->host, 3);
    rig_learner_free(l);
    assert_int_equal(access(tempdir_path(&rig.dir, "a/checkpoint"), R_OK), 0);
    struct stat st;
    assert_int_equal(stat(tempdir_path(&rig.dir, "a/credentials"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);

    l->o.token = NULL;
    start(l, "a");
    assert_true(steps_of(l) + 2 >= steps); /* a step that takes long is not waited for */
    assert_int_equal(l->host->own.identity, identity);
    assert_true(lowest_version(l->host) >= version);
    check_anchors(l->host, version);
    assert_non_null(strstr(l->log, "going on after step"));
    wait_for((struct progress){.l = l, .steps = steps + 50, .version = version + 2, .live = true});
    quit(l);
    rig_learner_free(l);
}

/* A step that does not end: the data do not come. */
struct dam {
    struct pl_sequences source;
    atomic_bool shut, waiting;
};

static enum pelago_status fetch_through(void *self, uint64_t first, uint32_t count, uint32_t seq,
                                        int32_t *tokens, int32_t *targets, struct pl_error *err)
{
    struct dam *d = self;
    while (atomic_load(&d->shut)) {
        atomic_store(&d->waiting, true);
        uv_sleep(1);
    }
    return d->source.fetch(d->source.self, first, count, seq, tokens, targets, err);
}

static bool is_held_up(void *user)
{
    return atomic_load(&((struct dam *)user)->waiting);
}

static bool applies_nothing(void *user)
{
    return ((struct rig_learner *)user)->host->applies == 0;
}

/* Quits while a step is under way that lasts until the test says otherwise. */
static uint64_t quit_in_a_step_ms(struct rig_learner *l, const char *name, uint64_t *steps)
{
    struct dam dam = {.shut = false};
    rig_learner_options(l, &rig, name);
    start(l, name);
    assert_false(l->host->stepping); /* it waits for its values: the thread has not begun */
    dam.source = l->host->lt.o.source;
    l->host->lt.o.source = (struct pl_sequences){fetch_through, &dam};
    wait_for((struct progress){.l = l, .steps = 30, .version = 2});
    run_rig_syncer_kill(&rig); /* nothing new comes that would wait for the step, too */
    assert_true(run_rig_until(&rig, applies_nothing, l, 20));
    atomic_store(&dam.shut, true);
    assert_true(run_rig_until(&rig, is_held_up, &dam, 20));
    uint64_t ms = quit_ms(l);
    assert_false(is_idle(l));
    assert_non_null(strstr(l->log, "leaving in the middle of a step"));
    *steps = steps_of(l);
    atomic_store(&dam.shut, false);
    assert_true(run_rig_until(&rig, is_idle, l, 20));
    rig_learner_free(l);
    return ms;
}

/* It is gone within a second all the same, with a checkpoint of the moment before that step. On a machine that is busy
 * with other work one of a few attempts is. */
static void test_a_long_step_does_not_hold_it(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "b", "c", "d", "e"};
    struct rig_learner *l = &learners[0];
    uint64_t ms = PL_NONE64, steps = 0;
    endless();
    for (unsigned i = 0; i < 5 && ms > 1200; i++) {
        run_rig_syncer(&rig);
        ms = quit_in_a_step_ms(l, names[i], &steps);
        print_message("# left a step that does not end after %lu ms\n", (unsigned long)ms);
    }
    assert_true(ms <= 1200);
    l->o.token = NULL;
    start(l, l->folder);
    assert_int_equal(steps_of(l), steps);
    quit(l);
    rig_learner_free(l);
}

static void test_it_trains_on_without_a_syncer(void **state)
{
    (void)state;
    struct rig_learner *l = &learners[0];
    endless();
    run_rig_syncer(&rig);
    start(l, "a");
    wait_for((struct progress){.l = l, .steps = 20, .version = 2});
    run_rig_syncer_kill(&rig);
    uint64_t version = lowest_version(l->host);
    wait_for((struct progress){.l = l, .steps = steps_of(l) + 100});
    run_rig_syncer(&rig);
    wait_for((struct progress){.l = l, .version = version + 2, .live = true});
    check_anchors(l->host, version + 2);
    quit(l);
    rig_learner_free(l);
}

/* All it needs is in its folder. */
static void test_it_starts_without_a_syncer(void **state)
{
    (void)state;
    struct rig_learner *l = &learners[0];
    endless();
    run_rig_syncer(&rig);
    start(l, "a");
    wait_for((struct progress){.l = l, .steps = 20, .version = 1});
    quit(l);
    rig_learner_free(l);
    run_rig_syncer_kill(&rig);
    l->o.token = NULL;
    start(l, "a");
    wait_for((struct progress){.l = l, .steps = steps_of(l) + 50});
    quit(l);
    rig_learner_free(l);
}

struct first_step {
    struct rig_learner *l;
    uint64_t version; /* the lowest at that time */
    double loss;
};

static bool has_made_a_step(void *user)
{
    struct first_step *f = user;
    if (steps_of(f->l) == 0)
        return false;
    f->version = lowest_version(f->l->host);
    f->loss = f->l->host->loss;
    return true;
}

/* Steps on what the seed says would be of no use, and spoil the moments. */
static void test_a_newcomer_begins_with_the_values_of_the_run(void **state)
{
    (void)state;
    endless();
    rig.settings.trainer.schedule.warmup_tokens = 0;
    run_rig_syncer(&rig);
    start(&learners[0], "a");
    struct first_step first = {.l = &learners[1]};
    wait_for((struct progress){.l = &learners[0], .steps = 300, .version = 20});
    start(&learners[1], "b");
    assert_true(run_rig_until(&rig, has_made_a_step, &first, 60));
    assert_true(first.version >= 1);
    double loss = learners[0].host->loss; /* of the seed it is 5.7, of these 0.6 */
    print_message("# loss after 300 steps %.3f, of the newcomer's first step %.3f\n", loss, first.loss);
    assert_true(first.loss < 3 * loss); /* its packed weights are the run's, too */
    for (unsigned i = 0; i < 2; i++) {
        quit(&learners[i]);
        rig_learner_free(&learners[i]);
    }
}

/* Fragments of a shard that is down wait; those of the other do not. */
static bool first_fragment_grows(void *user)
{
    const struct progress *p = user;
    uint64_t digest;
    return pl_learner_version(p->l->host->core, 0, &digest) >= p->version;
}

static void test_two_shards(void **state)
{
    (void)state;
    struct rig_learner *l = &learners[0];
    uint64_t digest;
    endless();
    rig.settings.shards = 2;
    run_rig_syncer(&rig);
    start(l, "a");
    wait_for((struct progress){.l = l, .steps = 20, .version = 2});
    run_rig_shard_kill(&rig, 1);
    uint64_t version = pl_learner_version(l->host->core, 0, &digest);
    uint64_t before = steps_of(l);
    struct progress more = {.l = l, .version = version + 5};
    assert_int_equal(l->host->layout.fragments[0].shard, 0);
    if (!run_rig_until(&rig, first_fragment_grows, &more, 60))
        fail_msg("from version %lu on step %lu; now %lu, step %lu, live %d; the log:\n%s",
                 (unsigned long)version, (unsigned long)before,
                 (unsigned long)pl_learner_version(l->host->core, 0, &digest), (unsigned long)steps_of(l),
                 l->host->shards[0].live, l->log);
    run_rig_shard_start(&rig, 1);
    wait_for((struct progress){.l = l, .version = version + 5, .live = true});
    check_anchors(l->host, version + 5);
    quit(l);
    rig_learner_free(l);
}

/* ---- checkpoints ---- */

static void damage(const char *name)
{
    FILE *f = fopen(tempdir_path(&rig.dir, name), "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, 5000, SEEK_SET), 0);
    int c = fgetc(f);
    assert_int_equal(fseek(f, 5000, SEEK_SET), 0);
    assert_int_equal(fputc(c ^ 0x10, f), c ^ 0x10);
    assert_int_equal(fclose(f), 0);
}

static void run_and_quit(struct rig_learner *l, uint64_t more_steps)
{
    start(l, "a");
    wait_for((struct progress){.l = l, .steps = steps_of(l) + more_steps, .version = 1, .live = true});
    quit(l);
}

static void test_a_damaged_checkpoint_is_not_used(void **state)
{
    (void)state;
    struct rig_learner *l = &learners[0];
    endless();
    run_rig_syncer(&rig);
    run_and_quit(l, 30);
    uint64_t first = steps_of(l);
    rig_learner_free(l);
    run_and_quit(l, 30);
    rig_learner_free(l);
    damage("a/checkpoint");
    start(l, "a"); /* the one before */
    assert_non_null(strstr(l->log, "is not used: it is damaged"));
    assert_true(l->host->base_steps <= first && l->host->base_steps + 2 >= first);
    wait_for((struct progress){.l = l, .steps = first + 30, .version = 2, .live = true});
    quit(l);
    rig_learner_free(l);
    assert_int_equal(access(tempdir_path(&rig.dir, "a/checkpoint.damaged"), R_OK), 0);
    damage("a/checkpoint");
    damage("a/checkpoint.old"); /* which is the one it went on from */
    start(l, "a");              /* from the beginning, and the syncer's values */
    assert_int_equal(l->host->base_steps, 0);
    wait_for((struct progress){.l = l, .steps = 30, .version = 3, .live = true});
    check_anchors(l->host, 3);
    quit(l);
    rig_learner_free(l);
}

/* ---- memory ---- */

/* None of the size of what goes with a value on its way into the parameters. */
static void *resize_but_one(void *user, void *old, size_t old_bytes, size_t bytes)
{
    if (old == NULL && bytes == sizeof(struct pl_lapply))
        return NULL;
    return rig.alloc.resize(user, old, old_bytes, bytes);
}

static void test_a_value_that_came_needs_no_memory_to_be_applied(void **state)
{
    (void)state;
    struct rig_learner *l = &learners[0];
    static struct pl_alloc alloc;
    endless();
    run_rig_syncer(&rig);
    alloc = rig.alloc;
    alloc.resize = resize_but_one;
    rig_learner_options(l, &rig, "a");
    l->o.alloc = &alloc;
    start(l, "a");
    wait_for((struct progress){.l = l, .steps = 30, .version = 2, .live = true});
    quit(l);
    rig_learner_free(l);
}

/* ---- several ---- */

static bool both_done(void *user)
{
    struct rig_learner *l = user;
    return l[0].done && l[1].done;
}

static void test_two_end_with_the_same_values(void **state)
{
    (void)state;
    struct rig_learner *l = learners;
    rig.settings.learners = rig.settings.quorum = 2;
    rig.settings.total_tokens *= 2;
    run_rig_syncer(&rig);
    for (unsigned i = 0; i < 2; i++) {
        rig_learner_options(&l[i], &rig, i == 0 ? "a" : "b");
        l[i].o.pace_ns = 5 * PL_MS;
        start(&l[i], "");
    }
    assert_true(run_rig_until(&rig, both_done, l, 60));
    assert_int_equal(l[0].why.status, PELAGO_OK);
    assert_int_equal(l[1].why.status, PELAGO_OK);
    assert_int_not_equal(l[0].host->own.identity, l[1].host->own.identity);
    for (uint32_t i = 0; i < l[0].host->layout.fragment_count; i++) {
        uint64_t digest[2];
        assert_int_equal(pl_learner_version(l[0].host->core, i, &digest[0]),
                         pl_learner_version(l[1].host->core, i, &digest[1]));
        assert_int_equal(digest[0], digest[1]);
    }
    check_anchors(l[0].host, 2);
    check_anchors(l[1].host, 2);
    rig_learner_free(&l[0]);
    rig_learner_free(&l[1]);
}

enum { STUBS = 40 };

static bool all_stubs_done(void *user)
{
    struct rig_learner *l = user;
    for (uint32_t i = 0; i < STUBS; i++)
        if (!l[i].done)
            return false;
    return true;
}

static void test_many_stubs_on_one_loop(void **state)
{
    (void)state;
    static struct rig_learner l[STUBS];
    char name[16];
    memset(l, 0, sizeof l);
    rig.settings.learners = STUBS;
    rig.settings.quorum = 10;
    rig.settings.total_tokens = (uint64_t)128 * STUBS * 60;
    run_rig_syncer(&rig);
    for (uint32_t i = 0; i < STUBS; i++) {
        (void)snprintf(name, sizeof name, "stub%u", i);
        rig_learner_options(&l[i], &rig, name);
        l[i].o.stub_step_ns = 20 * PL_MS;
        start(&l[i], name);
    }
    assert_true(run_rig_until(&rig, all_stubs_done, l, 60));
    for (uint32_t i = 0; i < STUBS; i++) {
        assert_int_equal(l[i].why.status, PELAGO_OK);
        check_anchors(l[i].host, 1); /* by the closing round at the latest */
        rig_learner_free(&l[i]);
    }
}

/* ---- its own ways ---- */

static void test_private_data_takes_no_units(void **state)
{
    (void)state;
    struct rig_learner *l = &learners[0];
    run_rig_syncer(&rig);
    rig_learner_options(l, &rig, "a");
    l->o.local_data = rig.data;
    start(l, "a");
    assert_true(run_rig_until(&rig, rig_learner_is_done, l, 60));
    assert_int_equal(l->why.status, PELAGO_OK);
    assert_int_equal(l->host->unit_count, 0);
    assert_int_equal(l->host->lt.unit_tokens, 0);
    check_anchors(l->host, 1);
    rig_learner_free(l);
}

/* Who was told of private data once trains on it, and says HELLO as before, after a start that does not say so. */
static void test_private_data_is_remembered(void **state)
{
    (void)state;
    struct rig_learner *l = &learners[0];
    endless();
    run_rig_syncer(&rig);
    for (int i = 0; i < 4; i++) {
        bool local = i < 2;
        rig_learner_options(l, &rig, "a");
        l->o.local_data = i == 0 ? rig.data : NULL;
        l->o.data = i == 2 ? rig.data : NULL;
        start(l, "a");
        wait_for((struct progress){.l = l, .steps = steps_of(l) + 5, .live = true});
        assert_non_null(strstr(l->log, local ? "learner.data private=true" : "learner.data private=false"));
        assert_int_equal(l->host->core->options.local_data, local);
        assert_int_equal(l->host->choice.remembered, i % 2 == 1);
        if (local) /* also those it had before */
            assert_int_equal(l->host->unit_count, 0);
        quit(l);
        rig_learner_free(l);
    }
}

static void test_pace(void **state)
{
    (void)state;
    struct rig_learner *l = &learners[0];
    struct pl_learner_host_view v;
    endless();
    run_rig_syncer(&rig);
    rig_learner_options(l, &rig, "a");
    l->o.pace_ns = 50 * PL_MS;
    start(l, "a");
    uint64_t begin = pl_clock_ns();
    wait_for((struct progress){.l = l, .steps = 21});
    assert_true(pl_clock_ns() - begin >= 20 * 50 * PL_MS);
    pl_learner_host_view(l->host, &v);
    assert_true(v.step_ns >= 49 * PL_MS);
    assert_true(v.blocked_ns < v.trained_ns / 4); /* the pauses do not count as held up */
    quit(l);
    rig_learner_free(l);
}

/* An attempt that failed, on a machine with other things to do, is made again at once instead of after a minute. */
static bool is_renewed(void *user)
{
    struct rig_learner *l = user;
    if (!l->host->door->busy)
        l->host->door->tried_ns = 0;
    return l->host->door->renewed;
}

static void test_the_certificate_is_renewed(void **state)
{
    (void)state;
    struct rig_learner *l = &learners[0];
    struct pl_credentials kept;
    struct pl_error err;
    endless();
    run_rig_syncer(&rig);
    start(l, "a");
    wait_for((struct progress){.l = l, .steps = 1, .live = true});
    struct pl_credentials before = l->host->own;
    l->host->door->life_s *= 3; /* as if two thirds of it were over */
    if (!run_rig_until(&rig, is_renewed, l, 60))
        fail_msg("%s", l->log);
    const struct pl_credentials *now = &l->host->own;
    assert_int_equal(now->identity, before.identity);
    assert_memory_equal(now->key, before.key, sizeof before.key);
    assert_memory_not_equal(now->certificate, before.certificate, sizeof before.certificate);
    assert_int_equal(pl_home_load_credentials(l->host->dir, "credentials", &rig.alloc, &kept, &err),
                     PELAGO_OK);
    assert_memory_equal(kept.certificate, now->certificate, sizeof kept.certificate);
    run_rig_syncer_kill(&rig); /* the next connection shows the new one */
    run_rig_syncer(&rig);
    wait_for((struct progress){.l = l, .steps = steps_of(l) + 1, .live = true});
    quit(l);
    rig_learner_free(l);
}

/* ---- what is refused ---- */

static void refused(struct rig_learner *l, const char *said)
{
    struct pl_error err = {PELAGO_OK, ""};
    assert_int_not_equal(rig_learner_start(l, &rig, "a", &err), PELAGO_OK);
    assert_null(l->host);
    if (strstr(err.text, said) == NULL)
        fail_msg("'%s' has no '%s'", err.text, said);
}

static void test_what_is_refused(void **state)
{
    (void)state;
    struct rig_learner *l = &learners[0], *other = &learners[1];
    char token[PL_TOKEN_TEXT_MAX];
    endless();
    run_rig_syncer(&rig);
    rig_learner_options(l, &rig, "a");
    l->o.token = NULL;
    refused(l, "--join TOKEN");
    l->o.token = "pelago1-nonsense";
    refused(l, "token");
    l->o.token = rig.token;
    start(l, "a");
    rig_learner_options(other, &rig, "a"); /* the folder is taken */
    refused(other, "another pelago");
    quit(l);
    rig_learner_free(l);
    struct pl_token t;
    struct pl_error err;
    assert_int_equal(pl_token_parse(rig.token, &t, &err), PELAGO_OK);
    t.fingerprint[3] ^= 1;
    pl_token_print(&t, token);
    l->o.token = token;
    refused(l, "another run");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_run_to_its_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_it_leaves_and_goes_on, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_long_step_does_not_hold_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_it_trains_on_without_a_syncer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_it_starts_without_a_syncer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_newcomer_begins_with_the_values_of_the_run, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_two_shards, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_damaged_checkpoint_is_not_used, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_value_that_came_needs_no_memory_to_be_applied, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_two_end_with_the_same_values, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_many_stubs_on_one_loop, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_private_data_takes_no_units, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_private_data_is_remembered, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_pace, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_certificate_is_renewed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_refused, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("host/learner", tests, NULL, NULL);
}
