/* tests/unit/test_host_recorder.c - the recorder: what its hashes are of, old files, a disk that takes nothing. What is
 * recorded and replayed is in test_host_syncer.c. */
#include "syncer_rig.h"

#include "host/recorder_int.h"
#include "host/syncer_host_int.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether a round closes its fragment decides what the host merges, so the hash must tell one from the other. */
static void a_recording_compares_which_rounds_close(void **state)
{
    (void)state;
    const struct pl_alloc alloc = pl_alloc_system();
    struct pl_sync_effect fx = {.kind = PL_SYNC_FX_MERGE, .u.merge = {.fragment = 3, .round = 7}};
    const struct pl_sync_fxs fxs = {.fx = &fx, .count = 1, .max = 1};
    struct pl_buf scratch;
    bool good = true;
    pl_buf_init(&scratch, &alloc, 1 << 16);
    uint64_t open = pl_effects_hash(&fxs, &scratch, &good);
    fx.u.merge.closing = true;
    assert_true(pl_effects_hash(&fxs, &scratch, &good) != open && good);
    pl_buf_release(&scratch);
}

/* Its hashes cannot be made again. */
static void a_recording_of_an_older_version_is_refused(void **state)
{
    (void)state;
    const struct pl_alloc alloc = pl_alloc_system();
    struct pl_replay_report report;
    struct pl_error err;
    struct tempdir temp;
    tempdir_init(&temp);
    tempdir_put(&temp, "old", "PELAGOR1                                ", 40);
    assert_int_equal(pl_recorder_run(&alloc, tempdir_path(&temp, "old"), NULL, NULL, &report, &err),
                     PELAGO_UNSUPPORTED);
    assert_non_null(strstr(err.text, "replay it with that one"));
    tempdir_release(&temp);
}

/* ---- a disk that takes nothing ---- */

static struct syncer_rig rig;
static int full_pipe; /* the reading end */

static bool recorder_is_stuck(struct syncer_rig *r)
{
    int there = 0;
    assert_int_equal(ioctl(full_pipe, FIONREAD, &there), 0);
    return pl_recorder_busy(r->host->recorder) && there > 24 << 10;
}

static void *drain_pipe(void *path)
{
    char bytes[4096];
    ssize_t n;
    FILE *out = fopen(path, "wb");
    assert_int_equal(fcntl(full_pipe, F_SETFL, 0),
                     0); /* waits for what comes, until its writer has closed it */
    while ((n = read(full_pipe, bytes, sizeof bytes)) > 0)
        (void)fwrite(bytes, 1, (size_t)n, out);
    (void)fclose(out);
    return NULL;
}

/* The recorder's worker waits for ever; rounds go on, and nothing is missing once it can write again. */
static void a_recording_that_cannot_be_written_holds_nobody(void **state)
{
    (void)state;
    struct pl_replay_report report;
    struct pl_error err = {.text = ""};
    char pipe[PL_PATH_MAX], copy[PL_PATH_MAX];
    pthread_t reader;
    syncer_rig_init(&rig, 2);
    syncer_rig_create(&rig);
    (void)snprintf(pipe, sizeof pipe, "%s/pipe", rig.temp.path);
    (void)snprintf(copy, sizeof copy, "%s/copy", rig.temp.path);
    assert_int_equal(mkfifo(pipe, 0600), 0);
    full_pipe = open(pipe, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    assert_true(full_pipe >= 0 && fcntl(full_pipe, F_SETPIPE_SZ, 32 << 10) == 32 << 10);
    rig.options.record = pipe;
    syncer_rig_start(&rig);
    syncer_rig_island(&rig, 1);
    syncer_rig_island(&rig, 2);
    syncer_rig_until(&rig, recorder_is_stuck);
    syncer_rig_reach(&rig, island_version(&rig.islands[0]) + 5);
    assert_true(recorder_is_stuck(&rig));
    assert_int_equal(pthread_create(&reader, NULL, drain_pipe, copy), 0);
    syncer_rig_stop(&rig);
    assert_int_equal(pthread_join(reader, NULL), 0);
    assert_int_equal(close(full_pipe), 0);
    if (pl_recorder_run(&rig.run.alloc, copy, NULL, NULL, &report, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
    assert_true(report.events > 100 && !report.cut);
    rig.options.record = NULL;
    syncer_rig_release(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_recording_compares_which_rounds_close),
        cmocka_unit_test(a_recording_of_an_older_version_is_refused),
        cmocka_unit_test(a_recording_that_cannot_be_written_holds_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
