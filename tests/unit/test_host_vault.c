/* tests/unit/test_host_vault.c - what a syncer's host has announced survives: restarts, kill -9 at any moment, a lost
 * disk (the mirror), a full disk; snapshots while rounds go on. */
#include "syncer_rig.h"

#include "base/bytes.h"
#include "base/prng.h"
#include "host/home.h"
#include "host/syncer_vault.h"
#include "os/clock.h"
#include "seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static struct syncer_rig rig;

static void a_restart_gives_back_what_was_announced(void **state)
{
    (void)state;
    uint64_t versions[16], digests[16], again[16], again_digests[16];
    syncer_rig_init(&rig, 2);
    syncer_rig_create(&rig);
    syncer_rig_start(&rig);
    syncer_rig_island(&rig, 1);
    syncer_rig_island(&rig, 2);
    for (uint32_t life = 0; life < 4; life++) {
        uint64_t before = island_version(&rig.islands[0]);
        syncer_rig_reach(&rig, before + 3);
        syncer_rig_versions(&rig, versions, digests);
        uint64_t tokens = syncer_rig_count(&rig, "merged_tokens"), epoch = syncer_rig_count(&rig, "epoch");
        syncer_rig_stop(&rig);
        syncer_rig_start(&rig);
        syncer_rig_versions(&rig, again, again_digests);
        assert_true(syncer_rig_count(&rig, "epoch") > epoch);
        assert_true(syncer_rig_count(&rig, "merged_tokens") >= tokens);
        for (uint32_t f = 0; f < rig.run.layout.fragment_count; f++) {
            assert_true(again[f] >= versions[f]);
            if (again[f] == versions[f])
                assert_true(again_digests[f] == digests[f]);
        }
    }
    syncer_rig_release(&rig);
}

static unsigned files_like(const char *folder, const char *prefix)
{
    unsigned count = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d))
        count += strncmp(e->d_name, prefix, strlen(prefix)) == 0 ? 1 : 0;
    (void)closedir(d);
    return count;
}

static bool four_snapshots(struct syncer_rig *r)
{
    return syncer_rig_count(r, "snapshots") >= 4;
}

/* Rounds go on while snapshots are written, and old files go away. */
static void snapshots_keep_the_journal_short(void **state)
{
    (void)state;
    uint64_t versions[16], digests[16], again[16], again_digests[16];
    syncer_rig_init(&rig, 2);
    rig.options.snapshot_bytes = 1 << 20;
    syncer_rig_create(&rig);
    syncer_rig_start(&rig);
    syncer_rig_island(&rig, 1);
    syncer_rig_island(&rig, 2);
    syncer_rig_until(&rig, four_snapshots);
    assert_true(files_like(rig.folder, "snapshot-") <= 3);
    assert_true(files_like(rig.folder, "journal-") <= 16);
    syncer_rig_versions(&rig, versions, digests);
    syncer_rig_stop(&rig);
    syncer_rig_start(&rig);
    assert_true(syncer_rig_logged(&rig, "journal.read snapshot="));
    syncer_rig_versions(&rig, again, again_digests);
    for (uint32_t f = 0; f < rig.run.layout.fragment_count; f++)
        assert_true(again[f] >= versions[f] && (again[f] > versions[f] || again_digests[f] == digests[f]));
    syncer_rig_reach(&rig, island_version(&rig.islands[0]) + 2);
    syncer_rig_release(&rig);
}

/* ---- snapshots of before fragments had an order ---- */

static struct pl_buf sections[PL_SECTION_ORDER + 1]; /* by tag */

static enum pelago_status keep_piece(void *user, const struct pl_piece *piece)
{
    (void)user;
    assert_in_range(piece->tag, PL_SECTION_CORE, PL_SECTION_ORDER);
    return pl_buf_append(&sections[piece->tag], piece->data, piece->len);
}

/* Values of the fragment whose place in the file is `at`. */
static uint32_t fragment_of(uint32_t at)
{
    return (uint32_t)pl_get_le(sections[PL_SECTION_ORDER].data + (size_t)at * 4, 4);
}

static void write_values(struct pl_snapshot_writer *w)
{
    const uint32_t count = rig.run.layout.fragment_count;
    for (uint32_t f = 0; f < count; f++) {
        const uint8_t *from = sections[PL_SECTION_VALUES].data;
        uint32_t at = 0;
        for (; at < count && fragment_of(at) != f; at++)
            from += rig.run.layout.fragments[fragment_of(at)].values * 12;
        assert_true(at < count); /* every fragment has its place */
        assert_int_equal(pl_snapshot_write(w, from, rig.run.layout.fragments[f].values * 12, NULL),
                         PELAGO_OK);
    }
}

/* The same state as a program without section 5 writes it: values in the order of their fragments. */
static void rewrite_snapshot(struct pl_dir dir, uint64_t seq)
{
    static uint8_t scratch[PL_BLOCK_MEMORY_BYTES], block[PL_BLOCK_MEMORY_BYTES];
    uint8_t run_id[PL_RUN_ID_BYTES] = {0};
    char name[PL_FILE_NAME_MAX];
    struct pl_snapshot_header h;
    struct pl_snapshot_writer w;
    pl_put_le(run_id, rig.run.settings.run_id, 8);
    const struct pl_source from = {dir, run_id, {scratch, sizeof scratch}};
    for (uint32_t i = 0; i <= PL_SECTION_ORDER; i++)
        pl_buf_init(&sections[i], &rig.run.alloc, 1 << 30);
    assert_int_equal(pl_snapshot_read(&from, seq, &h, keep_piece, NULL, NULL), PELAGO_OK);
    h.section_count = PL_SECTION_RULE;
    for (uint32_t tag = PL_SECTION_CORE; tag <= PL_SECTION_RULE; tag++)
        h.sections[tag - 1] = (struct pl_section){.tag = tag, .length = sections[tag].len};
    assert_int_equal(pl_snapshot_create(&w, dir, &h, block, NULL), PELAGO_OK);
    for (uint32_t tag = PL_SECTION_CORE; tag <= PL_SECTION_RULE; tag++) {
        if (tag == PL_SECTION_VALUES)
            write_values(&w);
        else
            assert_int_equal(pl_snapshot_write(&w, sections[tag].data, sections[tag].len, NULL), PELAGO_OK);
    }
    assert_int_equal(pl_snapshot_finish(&w, NULL), PELAGO_OK);
    dir.ops->close(dir.self, w.file);
    pl_snapshot_name(seq, name);
    assert_int_equal(dir.ops->rename(dir.self, PL_SNAPSHOT_TEMP, name), PELAGO_OK);
    for (uint32_t i = 0; i <= PL_SECTION_ORDER; i++)
        pl_buf_release(&sections[i]);
}

struct seqs {
    uint64_t at[8];
    uint32_t count;
};

static enum pelago_status see_snapshot(void *user, const char *name)
{
    struct seqs *s = user;
    uint64_t seq;
    if (pl_snapshot_name_parse(name, &seq)) {
        assert_true(s->count < 8);
        s->at[s->count++] = seq;
    }
    return PELAGO_OK;
}

static void snapshots_without_an_order_are_read(void **state)
{
    (void)state;
    uint64_t versions[16], digests[16], again[16], again_digests[16];
    struct pl_posix_dir *folder;
    struct seqs seqs = {.count = 0};
    syncer_rig_init(&rig, 2);
    rig.options.snapshot_bytes = 1 << 20;
    syncer_rig_create(&rig);
    syncer_rig_start(&rig);
    syncer_rig_island(&rig, 1);
    syncer_rig_island(&rig, 2);
    syncer_rig_until(&rig, four_snapshots);
    syncer_rig_versions(&rig, versions, digests);
    syncer_rig_stop(&rig);
    assert_int_equal(pl_posix_dir_open(&folder, &rig.run.alloc, rig.folder, PL_POSIX_DIR_EXISTING, NULL),
                     PELAGO_OK);
    const struct pl_dir dir = pl_posix_dir_table(folder);
    assert_int_equal(dir.ops->list(dir.self, see_snapshot, &seqs), PELAGO_OK);
    assert_true(seqs.count > 0);
    for (uint32_t i = 0; i < seqs.count; i++)
        rewrite_snapshot(dir, seqs.at[i]);
    pl_posix_dir_close(folder);
    syncer_rig_start(&rig);
    assert_true(syncer_rig_logged(&rig, "journal.read snapshot="));
    syncer_rig_versions(&rig, again, again_digests);
    for (uint32_t f = 0; f < rig.run.layout.fragment_count; f++)
        assert_true(again[f] >= versions[f] && (again[f] > versions[f] || again_digests[f] == digests[f]));
    syncer_rig_release(&rig);
}

static void relaxed_durability_goes_on_and_closes_well(void **state)
{
    (void)state;
    uint64_t versions[16], digests[16], again[16], again_digests[16];
    syncer_rig_init(&rig, 1);
    rig.options.relaxed = 1000;
    syncer_rig_create(&rig);
    syncer_rig_start(&rig);
    syncer_rig_island(&rig, 1);
    syncer_rig_reach(&rig, 4);
    syncer_rig_versions(&rig, versions, digests);
    syncer_rig_stop(&rig); /* syncs */
    syncer_rig_start(&rig);
    syncer_rig_versions(&rig, again, again_digests);
    for (uint32_t f = 0; f < rig.run.layout.fragment_count; f++)
        assert_true(again[f] >= versions[f]);
    syncer_rig_release(&rig);
}

/* ---- the mirror ---- */

static void remove_files(const char *folder)
{
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d))
        if (e->d_name[0] != '.')
            assert_int_equal(unlinkat(dirfd(d), e->d_name, 0), 0);
    (void)closedir(d);
}

static void the_mirror_takes_over_with_every_announced_version(void **state)
{
    (void)state;
    uint64_t versions[16], digests[16];
    char mirror[PL_PATH_MAX];
    struct pl_error err;
    syncer_rig_init(&rig, 2);
    (void)snprintf(mirror, sizeof mirror, "%s/mirror", rig.temp.path);
    rig.options.snapshot_bytes = 1 << 20;
    syncer_rig_create(&rig);
    syncer_rig_start(&rig);
    syncer_rig_island(&rig, 1);
    syncer_rig_island(&rig, 2);
    syncer_rig_reach(&rig, 2);
    syncer_rig_stop(&rig);
    rig.options.mirror = mirror; /* comes later: what is there already is copied */
    syncer_rig_start(&rig);
    syncer_rig_until(&rig, four_snapshots);
    syncer_rig_versions(&rig, versions, digests);
    syncer_rig_stop(&rig);
    remove_files(rig.folder);
    /* The first folder is lost. Starting it again is refused; the mirror is the run. */
    assert_int_not_equal(pl_syncer_host_start(&rig.host, &rig.options, &err), PELAGO_OK);
    rig.options.mirror = NULL;
    (void)snprintf(rig.folder, sizeof rig.folder, "%s", mirror);
    syncer_rig_start(&rig);
    uint64_t again[16], again_digests[16];
    syncer_rig_versions(&rig, again, again_digests);
    for (uint32_t f = 0; f < rig.run.layout.fragment_count; f++)
        assert_true(again[f] >= versions[f] && (again[f] > versions[f] || again_digests[f] == digests[f]));
    syncer_rig_reach(&rig, island_version(&rig.islands[0]) + 1); /* with credentials of the same authority */
    char token[PL_TOKEN_TEXT_MAX];
    assert_int_equal(pl_syncer_host_invite(rig.host, PL_ROLE_LEARNER, 1, 0, token, &err), PELAGO_OK);
    syncer_rig_release(&rig);
}

static void a_journal_that_is_gone_is_not_taken_for_a_new_run(void **state)
{
    (void)state;
    struct pl_error err;
    syncer_rig_init(&rig, 1);
    syncer_rig_create(&rig);
    syncer_rig_start(&rig);
    syncer_rig_stop(&rig);
    DIR *d = opendir(rig.folder);
    for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d))
        if (strncmp(e->d_name, "journal-", 8) == 0)
            assert_int_equal(unlinkat(dirfd(d), e->d_name, 0), 0);
    (void)closedir(d);
    assert_int_equal(pl_syncer_host_start(&rig.host, &rig.options, &err), PELAGO_CORRUPT);
    assert_non_null(strstr(err.text, "no journal"));
    syncer_rig_release(&rig);
}

/* ---- a full disk ---- */

static void limit_files(uint64_t bytes)
{
    struct rlimit l;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &l), 0);
    l.rlim_cur = bytes == 0 ? l.rlim_max : bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &l), 0);
}

static bool journal_fails(struct syncer_rig *r)
{
    return syncer_rig_count(r, "store_failures") >= 2;
}

static uint64_t announced;

static bool goes_on(struct syncer_rig *r)
{
    return syncer_rig_logged(r, "journal.works") && island_version(&r->islands[0]) >= announced + 2;
}

/* No file may grow any more: rounds stop being announced, nobody is thrown out, and it goes on by itself. */
static void a_full_disk_stops_nothing_but_announcements(void **state)
{
    (void)state;
    syncer_rig_init(&rig, 2);
    syncer_rig_create(&rig);
    syncer_rig_start(&rig);
    syncer_rig_island(&rig, 1);
    syncer_rig_island(&rig, 2);
    syncer_rig_reach(&rig, 2);
    (void)signal(SIGXFSZ, SIG_IGN);
    limit_files(1024);
    syncer_rig_until(&rig, journal_fails);
    uint64_t steps = rig.islands[0].steps;
    assert_true(syncer_rig_logged(&rig, "journal.failed"));
    assert_int_equal(syncer_rig_count(&rig, "alive"), 2);
    announced = island_version(&rig.islands[0]);
    limit_files(0);
    syncer_rig_until(&rig, goes_on);
    assert_true(rig.islands[0].steps > steps);
    if (rig.islands[0].closes + rig.islands[1].closes > 0)
        fail_msg("closed: %s\n%s", rig.islands[0].last_text, rig.log);
    syncer_rig_stop(&rig);
    syncer_rig_start(&rig);
    syncer_rig_release(&rig);
}

/* ---- kill -9 ---- */

/* The test's own program, as a syncer and nothing else. */
static int serve(const char *folder, const char *listen)
{
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_syncer_host *host;
    struct pl_error err;
    uv_loop_t loop;
    (void)uv_loop_init(&loop);
    struct pl_syncer_host_options o = {.loop = &loop,
                                       .alloc = &alloc,
                                       .folder = folder,
                                       .listen = listen,
                                       .learners_max = 8,
                                       .snapshot_bytes = 1 << 20};
    for (int tries = 0; pl_syncer_host_start(&host, &o, &err) != PELAGO_OK; tries++) {
        if (err.status != PELAGO_STALE || tries == 100) { /* the one before is dying */
            (void)fprintf(stderr, "%s\n", err.text);
            return 1;
        }
        (void)usleep(20000);
    }
    return uv_run(&loop, UV_RUN_DEFAULT);
}

static pid_t start_child(const char *folder, const char *listen)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        execl("/proc/self/exe", "syncer", "serve", folder, listen, (char *)NULL);
        _exit(127);
    }
    return pid;
}

static uint64_t kill_at_ns;

static bool time_has_come(struct syncer_rig *r)
{
    (void)r;
    return pl_clock_ns() >= kill_at_ns;
}

/* After every kill the islands, which hold what was announced, come back; a version that differs from what they have
 * would be a reset, and one with another digest fails in the rig. */
static void a_killed_syncer_has_every_version_it_announced(void **state)
{
    (void)state;
    struct pl_prng prng;
    uint64_t seed = test_seed(), highest = 0, versions[16], digests[16];
    pl_prng_seed(&prng, seed, 0);
    syncer_rig_init(&rig, 2);
    syncer_rig_create(&rig);
    syncer_rig_start(&rig); /* finds a port */
    syncer_rig_stop(&rig);
    pid_t child = start_child(rig.folder, rig.listen);
    syncer_rig_island(&rig, 1);
    syncer_rig_island(&rig, 2);
    for (int kills = 0; kills < 10; kills++) {
        syncer_rig_reach(&rig, highest + 1);
        kill_at_ns = pl_clock_ns() + pl_prng_below(&prng, 300) * PL_MS;
        syncer_rig_until(&rig, time_has_come);
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, NULL, 0), child);
        highest = island_version(&rig.islands[0]);
        child = start_child(rig.folder, rig.listen);
    }
    syncer_rig_reach(&rig, highest + 1);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    syncer_rig_start(&rig);
    syncer_rig_versions(&rig, versions, digests);
    for (uint32_t f = 0; f < rig.run.layout.fragment_count; f++)
        for (uint32_t i = 0; i < 2; i++) {
            const struct island_fragment *held = &rig.islands[i].fragments[f];
            assert_true(versions[f] >= held->version);
            if (versions[f] == held->version)
                assert_true(digests[f] == held->digest);
        }
    syncer_rig_release(&rig);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_restart_gives_back_what_was_announced),
        cmocka_unit_test(snapshots_keep_the_journal_short),
        cmocka_unit_test(snapshots_without_an_order_are_read),
        cmocka_unit_test(relaxed_durability_goes_on_and_closes_well),
        cmocka_unit_test(the_mirror_takes_over_with_every_announced_version),
        cmocka_unit_test(a_journal_that_is_gone_is_not_taken_for_a_new_run),
        cmocka_unit_test(a_full_disk_stops_nothing_but_announcements),
        cmocka_unit_test(a_killed_syncer_has_every_version_it_announced),
    };
    if (argc == 4 && strcmp(argv[1], "serve") == 0)
        return serve(argv[2], argv[3]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
