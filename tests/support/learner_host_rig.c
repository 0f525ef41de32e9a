/* support/learner_host_rig.c - see learner_host_rig.h. */
#include "learner_host_rig.h"

#include "base/hash.h"
#include "base/prng.h"
#include "data/tokenizer.h"
#include "host/door.h"
#include "host/home.h"
#include "host/syncer_host.h"
#include "train/dataset.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- the run ---- */

static void write_data(struct run_rig *r)
{
    static const char *const words[] = {"the ", "sea ",  "is ",    "wide ", "and ",
                                        "a ",   "ship ", "sails ", "on ",   "it.\n"};
    static char text[60000];
    struct pl_prng p;
    size_t at = 0;
    pl_prng_seed(&p, 5, 6);
    while (at + 16 < sizeof text) {
        const char *word = words[pl_prng_below(&p, 10)];
        memcpy(text + at, word, strlen(word));
        at += strlen(word);
    }
    tempdir_put(&r->dir, "data.txt", text, at);
    (void)snprintf(r->data, sizeof r->data, "%s", tempdir_path(&r->dir, "data.txt"));
}

static uint32_t read_tokenizer(struct run_rig *r)
{
    struct pl_dataset *d;
    struct pl_error err = {PELAGO_OK, ""};
    struct pl_dataset_options o = {
        .data = r->data, .tokenizer = "byte", .valid_tokens = 1000, .seed = 1, .threads = 1};
    if (pl_dataset_open(&d, &r->alloc, &o, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
    struct pl_bytes json = pl_tokenizer_json(d->tokenizer);
    assert_int_equal(pl_buf_append(&r->tokenizer, json.data, json.len), PELAGO_OK);
    uint32_t vocab = d->vocab;
    pl_dataset_close(d);
    return vocab;
}

static struct pl_settings settings_of(const struct run_rig *r, uint32_t vocab)
{
    struct pl_settings s = {.run_id = 4711, .model = "custom", .total_tokens = 128 * 200, .learners = 1};
    s.trainer.config = (struct pl_model_config){
        .layers = 2, .width = 32, .heads = 2, .vocab = (vocab + 31) / 32 * 32, .context = 64, .tied = true};
    pl_model_config_complete(&s.trainer.config);
    s.trainer.batch = 4;
    s.trainer.seq = 32;
    s.trainer.accumulate = 1;
    s.trainer.matrices = PL_INNER_ADAMW;
    s.trainer.rule = (struct pl_inner_rule){
        .beta1 = 0.9f, .beta2 = 0.99f, .eps = 1e-8f, .momentum = 0.95f, .weight_decay = 0.1f, .clip = 1};
    s.trainer.schedule = (struct pl_schedule){.kind = PL_SCHEDULE_CONSTANT, .peak = 3e-3f};
    s.trainer.seed = 99;
    s.eval_tokens = 1000;
    s.tokenizer_digest = pl_hash64(r->tokenizer.data, r->tokenizer.len, 0);
    (void)snprintf(s.data, sizeof s.data, "%s", r->data);
    pl_settings_defaults(&s);
    s.fragments = s.period = 6;
    s.unit_sequences = 20;
    return s;
}

void run_rig_init(struct run_rig *r)
{
    memset(r, 0, sizeof *r);
    r->alloc = pl_alloc_system();
    tempdir_init(&r->dir);
    pl_buf_init(&r->tokenizer, &r->alloc, 64 << 20);
    write_data(r);
    r->settings = settings_of(r, read_tokenizer(r));
    assert_int_equal(uv_loop_init(&r->loop), 0);
}

static void stop_learner(struct rig_learner *l)
{
    if (l == NULL)
        return;
    if (!l->done)
        pl_learner_host_quit(l->host);
    (void)run_rig_until(l->rig, rig_learner_is_done, l, 5);
    rig_learner_free(l);
}

void run_rig_release(struct run_rig *r)
{
    for (unsigned i = 0; i < RUN_RIG_LEARNERS; i++)
        stop_learner(r->started[i]);
    run_rig_syncer_kill(r);
    (void)uv_run(&r->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&r->loop), 0);
    pl_buf_release(&r->tokenizer);
    tempdir_release(&r->dir);
}

/* ---- the syncer's process ---- */

struct child {
    uv_loop_t loop;
    uv_pipe_t control;
    struct pl_syncer_host *host;
};

static void child_log(void *user, const char *line)
{
    (void)user;
    if (getenv("PL_RIG_LOG") != NULL)
        fprintf(stderr, "# syncer: %s\n", line);
}

static void child_failed(void *user, const struct pl_error *why)
{
    (void)user;
    fprintf(stderr, "# syncer failed: %s\n", why->text);
    _exit(3);
}

static void child_buffer(uv_handle_t *h, size_t n, uv_buf_t *out)
{
    static char one[1];
    (void)h;
    (void)n;
    *out = uv_buf_init(one, 1);
}

static void child_told(uv_stream_t *s, ssize_t n, const uv_buf_t *buf)
{
    (void)s;
    (void)buf;
    if (n < 0)
        _exit(0);
}

static const char *shard_folder(const struct run_rig *r, uint32_t shard)
{
    return tempdir_path(&r->dir, shard == 0 ? "syncer" : "shard");
}

/* Tells where it listens and, home, what to join with. */
static enum pelago_status child_start(struct run_rig *r, struct child *c, uint32_t shard, char *line,
                                      size_t cap, struct pl_error *err)
{
    char tokens[2][PL_TOKEN_TEXT_MAX] = {"-", "-"};
    const char *folder = shard_folder(r, shard), *before = r->shards[shard].address;
    struct pl_syncer_host_options o = {.loop = &c->loop,
                                       .alloc = &r->alloc,
                                       .folder = folder,
                                       .listen = before[0] != '\0' ? before : "127.0.0.1:0",
                                       .shard = shard,
                                       .learners_max = 2048,
                                       .threads = 1,
                                       .log = child_log,
                                       .failed = child_failed};
    if (shard == 0 && before[0] == '\0')
        PL_TRY(pl_syncer_host_create(&r->alloc, folder, &r->settings,
                                     (struct pl_bytes){r->tokenizer.data, r->tokenizer.len}, err));
    PL_TRY(pl_syncer_host_start(&c->host, &o, err));
    if (shard == 0) {
        PL_TRY(pl_syncer_host_invite(c->host, PL_ROLE_LEARNER, 2000, 0, tokens[0], err));
        PL_TRY(pl_syncer_host_invite(c->host, PL_ROLE_SHARD, 10, 0, tokens[1], err));
    }
    (void)snprintf(line, cap, "%s %s %s\n", pl_syncer_host_address(c->host), tokens[0], tokens[1]);
    return PELAGO_OK;
}

static _Noreturn void child_main(struct run_rig *r, uint32_t shard, int control, int out)
{
    struct child c;
    struct pl_error err = {PELAGO_OK, ""};
    char line[2048];
    (void)uv_loop_init(&c.loop);
    if (child_start(r, &c, shard, line, sizeof line, &err) != PELAGO_OK) {
        fprintf(stderr, "# syncer: %s\n", err.text);
        _exit(2);
    }
    if (write(out, line, strlen(line)) != (ssize_t)strlen(line))
        _exit(2);
    (void)uv_pipe_init(&c.loop, &c.control, 0);
    (void)uv_pipe_open(&c.control, control);
    (void)uv_read_start((uv_stream_t *)&c.control, child_buffer, child_told);
    (void)uv_run(&c.loop, UV_RUN_DEFAULT);
    _exit(0);
}

static void read_line(int fd, char *out, size_t cap)
{
    size_t at = 0;
    char c = 0;
    while (at + 1 < cap && read(fd, &c, 1) == 1 && c != '\n')
        out[at++] = c;
    out[at] = '\0';
    assert_int_equal(c, '\n'); /* else the child has failed, and said why */
}

void run_rig_shard_start(struct run_rig *r, uint32_t shard)
{
    int down[2], up[2];
    char line[2048], tokens[2][PL_TOKEN_TEXT_MAX];
    assert_int_equal(r->shards[shard].pid, 0);
    assert_int_equal(pipe(down), 0);
    assert_int_equal(pipe(up), 0);
    (void)fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)close(down[1]);
        (void)close(up[0]);
        child_main(r, shard, down[0], up[1]);
    }
    (void)close(down[0]);
    (void)close(up[1]);
    r->shards[shard].pid = pid;
    r->shards[shard].control = down[1];
    read_line(up[0], line, sizeof line);
    (void)close(up[0]);
    assert_int_equal(sscanf(line, "%127s %511s %511s", r->shards[shard].address, tokens[0], tokens[1]), 3);
    if (shard == 0) {
        memcpy(r->token, tokens[0], sizeof r->token);
        memcpy(r->shard_token, tokens[1], sizeof r->shard_token);
    }
}

/* What the second shard needs in its folder. */
static void prepare_shard(struct run_rig *r)
{
    struct pl_posix_dir *dir;
    struct pl_token token;
    struct pl_credentials own = {.role = PL_ROLE_NONE};
    struct pl_buf text;
    struct pl_error err = {PELAGO_OK, ""};
    pl_buf_init(&text, &r->alloc, 1 << 20);
    if (pl_posix_dir_open(&dir, &r->alloc, shard_folder(r, 1), PL_POSIX_DIR_CREATE, &err) != PELAGO_OK ||
        pl_token_parse(r->shard_token, &token, &err) != PELAGO_OK ||
        pl_door_enrol(&r->alloc, &token, PL_ROLE_SHARD, 1, 10 * PL_SEC, &own, NULL, &err) != PELAGO_OK ||
        pl_home_save_credentials(dir, "credentials", &own, &err) != PELAGO_OK ||
        pl_settings_print(&r->settings, &text) != PELAGO_OK ||
        pl_home_write(dir, "settings.json", (struct pl_bytes){text.data, text.len}, false, &err) !=
            PELAGO_OK ||
        pl_home_write(dir, "home", (struct pl_bytes){token.address, strlen(token.address)}, false, &err) !=
            PELAGO_OK)
        fail_msg("%s", err.text);
    pl_posix_dir_close(dir);
    pl_buf_release(&text);
}

void run_rig_syncer(struct run_rig *r)
{
    run_rig_shard_start(r, 0);
    if (r->settings.shards < 2)
        return;
    if (r->shards[1].address[0] == '\0')
        prepare_shard(r);
    run_rig_shard_start(r, 1);
}

void run_rig_shard_kill(struct run_rig *r, uint32_t shard)
{
    if (r->shards[shard].pid == 0)
        return;
    (void)kill(r->shards[shard].pid, SIGKILL);
    (void)waitpid(r->shards[shard].pid, NULL, 0);
    (void)close(r->shards[shard].control);
    r->shards[shard].pid = 0;
}

void run_rig_syncer_kill(struct run_rig *r)
{
    run_rig_shard_kill(r, 0);
    run_rig_shard_kill(r, 1);
}

/* ---- learners ---- */

static void on_log(void *user, const char *line)
{
    struct rig_learner *l = user;
    size_t len = strlen(l->log), more = strlen(line);
    if (getenv("PL_RIG_LOG") != NULL)
        fprintf(stderr, "# learner: %s\n", line);
    if (len + more + 2 > sizeof l->log)
        len = 0;
    if (more + 2 > sizeof l->log)
        return;
    memcpy(l->log + len, line, more);
    l->log[len + more] = '\n';
    l->log[len + more + 1] = '\0';
}

static void on_done(void *user, const struct pl_error *why)
{
    struct rig_learner *l = user;
    assert_false(l->done);
    l->done = true;
    l->why = *why;
}

void rig_learner_options(struct rig_learner *l, struct run_rig *r, const char *name)
{
    memset(l, 0, sizeof *l);
    l->rig = r;
    (void)snprintf(l->folder, sizeof l->folder, "%s", tempdir_path(&r->dir, name));
    l->o = (struct pl_learner_host_options){.loop = &r->loop,
                                            .alloc = &r->alloc,
                                            .folder = l->folder,
                                            .token = r->token,
                                            .threads = 1,
                                            .speed = 1,
                                            .log = on_log,
                                            .done = on_done,
                                            .user = l};
}

enum pelago_status rig_learner_start(struct rig_learner *l, struct run_rig *r, const char *name,
                                     struct pl_error *err)
{
    if (l->rig == NULL)
        rig_learner_options(l, r, name);
    l->done = false;
    unsigned free = 0;
    while (free < RUN_RIG_LEARNERS && r->started[free] != NULL)
        free++;
    assert_true(free < RUN_RIG_LEARNERS);
    enum pelago_status st = pl_learner_host_start(&l->host, &l->o, err);
    if (st == PELAGO_OK)
        r->started[free] = l;
    return st;
}

void rig_learner_free(struct rig_learner *l)
{
    for (unsigned i = 0; i < RUN_RIG_LEARNERS; i++)
        if (l->rig->started[i] == l)
            l->rig->started[i] = NULL;
    pl_learner_host_free(l->host);
    l->host = NULL;
}

/* ---- waiting ---- */

struct wait {
    uv_timer_t timer, look;
    bool late;
};

static void on_late(uv_timer_t *t)
{
    ((struct wait *)t->data)->late = true;
}

static void on_look(uv_timer_t *t)
{
    (void)t; /* the loop turns, and the condition is looked at */
}

bool run_rig_until(struct run_rig *r, bool (*holds)(void *user), void *user, unsigned seconds)
{
    struct wait w = {.late = false};
    (void)uv_timer_init(&r->loop, &w.timer);
    (void)uv_timer_init(&r->loop, &w.look);
    w.timer.data = &w;
    (void)uv_timer_start(&w.timer, on_late, seconds * 1000, 0);
    (void)uv_timer_start(&w.look, on_look, 5, 5);
    bool held = false;
    while (!(held = holds(user)) && !w.late)
        (void)uv_run(&r->loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&w.timer, NULL);
    uv_close((uv_handle_t *)&w.look, NULL);
    (void)uv_run(&r->loop, UV_RUN_NOWAIT);
    return held;
}

bool rig_learner_is_done(void *learner)
{
    return ((struct rig_learner *)learner)->done;
}
