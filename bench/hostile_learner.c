/* bench/hostile_learner.c - build/bench_hostile: a learner with a real identity that lies. For bench/hostile.py.
 *
 * It enrols with a token, speaks the protocol over TLS like any learner (tests/support/island_rig.h), and does one kind of harm
 * until its time is over or the run is complete; then it prints one line of JSON about what became of it.
 *
 *   honest   nothing wrong but its contributions, which lead to smaller weights
 *   digest   contributions do not match their digest
 *   nan      the first scale of every slice is not a number (inf: infinite)
 *   huge     contributions 1e6 times too long
 *   tokens   a push claims more tokens than its steps can have
 *   steps    a push claims 1e6 steps more than were done
 *   reports  every report claims 1e6 steps for one
 *   replay   the same push again and again: its round is long merged
 *   flip     where the others lead the model, it leads back: --norm times as far as the last update went
 *   frames   no learner at all: prints, in hexadecimal, frames that a stranger can send (a wrong token, a question, a length)
 *   random   as long as the last update, --norm times, in a direction of its own
 *   climb    as flip, longer and longer until it is refused, then shorter
 */
#include "island_rig.h"

#include "host/door.h"

#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOOK_MS = 200 };

struct liar {
    struct island island;
    struct island_run run;
    const char *mode;
    double norm;
    float **moved; /* [fragments] where the model went lately */
    uint64_t replay_round, merged, refused_before;
    uint64_t end_ms;
    uv_timer_t end;
};

/* ---- lies ---- */

static void make_nan(struct island *is, uint32_t fragment, uint8_t *encoded, uint64_t len)
{
    const struct liar *l = is->user;
    (void)fragment;
    if (len < 2)
        return;
    encoded[0] =
        strcmp(l->mode, "nan") == 0 ? 0xc0 : 0x80; /* a bf16 or the low half of one; int4 begins with it */
    encoded[1] = 0x7f;
}

static void make_longer(struct island *is, uint32_t fragment, float *values)
{
    for (uint64_t i = 0; i < is->run->layout.fragments[fragment].values; i++)
        values[i] *= 1e6f;
}

static void claim_tokens(struct island *is, struct pl_msg_push *push)
{
    (void)is;
    push->tokens *= 1000;
}

static void repeat_round(struct island *is, struct pl_msg_push *push)
{
    struct liar *l = is->user;
    if (l->replay_round == 0)
        l->replay_round = push->round;
    push->round = l->replay_round;
}

static void watch(struct island *is, uint32_t fragment)
{
    struct liar *l = is->user;
    const struct island_fragment *f = &is->fragments[fragment];
    for (uint64_t i = 0; i < is->run->layout.fragments[fragment].values; i++)
        l->moved[fragment][i] = f->incoming[i] - f->anchor[i];
    l->merged += f->header.last_merged != f->last_merged ? 1 : 0;
}

/* A contribution is what was minus what is: the movement itself leads back. Before any is known, as honest does. */
static void lead_back(struct island *is, uint32_t fragment, float *values)
{
    struct liar *l = is->user;
    double sum = 0;
    for (uint64_t i = 0; i < is->run->layout.fragments[fragment].values; i++)
        sum += fabs((double)l->moved[fragment][i]);
    if (strcmp(l->mode, "climb") == 0) {
        uint64_t refused = is->closes + is->refusals;
        l->norm *= refused > l->refused_before ? 0.5 : 1.02;
        l->refused_before = refused;
    }
    for (uint64_t i = 0; sum > 0 && i < is->run->layout.fragments[fragment].values; i++)
        values[i] = (float)l->norm * l->moved[fragment][i];
}

static void lead_anywhere(struct island *is, uint32_t fragment, float *values)
{
    const struct liar *l = is->user;
    const uint64_t n = is->run->layout.fragments[fragment].values;
    double square = 0;
    for (uint64_t i = 0; i < n; i++)
        square += (double)l->moved[fragment][i] * (double)l->moved[fragment][i];
    const double each =
        l->norm * sqrt(3 * square / (double)n); /* of numbers in -1 to 1, whose mean square is 1/3 */
    for (uint64_t i = 0; square > 0 && i < n; i++)
        values[i] = (float)(each * (2 * drand48() - 1));
}

static bool choose(struct liar *l)
{
    struct island *is = &l->island;
    is->user = l;
    is->updated = watch;
    if (strcmp(l->mode, "digest") == 0)
        is->spoil = true;
    else if (strcmp(l->mode, "nan") == 0 || strcmp(l->mode, "inf") == 0)
        is->bend_bytes = make_nan;
    else if (strcmp(l->mode, "huge") == 0)
        is->bend_values = make_longer;
    else if (strcmp(l->mode, "tokens") == 0)
        is->bend_push = claim_tokens;
    else if (strcmp(l->mode, "steps") == 0)
        is->claim_steps = 1000000;
    else if (strcmp(l->mode, "reports") == 0)
        is->rate = 1000000;
    else if (strcmp(l->mode, "replay") == 0)
        is->bend_push = repeat_round;
    else if (strcmp(l->mode, "flip") == 0 || strcmp(l->mode, "climb") == 0)
        is->bend_values = lead_back;
    else if (strcmp(l->mode, "random") == 0)
        is->bend_values = lead_anywhere;
    else
        return strcmp(l->mode, "honest") == 0 || strcmp(l->mode, "frames") == 0;
    return true;
}

/* ---- its life ---- */

static int fail(const struct pl_error *err)
{
    fprintf(stderr, "bench_hostile: %s\n", err->text);
    return 1;
}

static enum pelago_status enrol(struct liar *l, const char *text, struct pl_credentials *own,
                                struct pl_token *token, struct pl_error *err)
{
    struct pl_buf answer;
    const struct pl_question q = {.what = PL_ASK_SETTINGS};
    l->run.alloc = pl_alloc_system();
    *own = (struct pl_credentials){.role = PL_ROLE_NONE};
    PL_TRY(pl_token_parse(text, token, err));
    PL_TRY(pl_door_enrol(&l->run.alloc, token, PL_ROLE_LEARNER, 0, 10 * PL_SEC, own, NULL, err));
    pl_buf_init(&answer, &l->run.alloc, PL_JSON_BYTES_MAX);
    enum pelago_status st = pl_door_ask(&l->run.alloc, token->address, own, &q, 10 * PL_SEC, &answer, err);
    if (st == PELAGO_OK)
        st = pl_settings_parse((const char *)answer.data, answer.len, &l->run.settings, err);
    pl_buf_release(&answer);
    return st;
}

static volatile sig_atomic_t told_to_stop;

static void on_term(int number)
{
    (void)number;
    told_to_stop = 1;
}

static void on_end(uv_timer_t *timer)
{
    struct liar *l = timer->data;
    if (uv_now(timer->loop) < l->end_ms && !l->island.done && !told_to_stop)
        return;
    island_stop(&l->island);
    uv_close((uv_handle_t *)timer, NULL);
}

static void live(struct liar *l, uv_loop_t *loop, const struct pl_credentials *own, const char *address,
                 double seconds)
{
    island_run_build(&l->run);
    const struct pl_layout *layout = &l->run.layout;
    l->moved = calloc(layout->fragment_count, sizeof *l->moved);
    for (uint32_t i = 0; l->moved != NULL && i < layout->fragment_count; i++)
        l->moved[i] = calloc(layout->fragments[i].values, sizeof **l->moved);
    uint64_t rate = l->island.rate;
    island_start(&l->island, &l->run, loop, own, address);
    l->island.rate = rate != 0 ? rate : 1;
    (void)choose(l);
    (void)uv_timer_init(loop, &l->end);
    l->end.data = l;
    l->end_ms = uv_now(loop) + (uint64_t)(seconds * 1000);
    (void)uv_timer_start(&l->end, on_end, LOOK_MS, LOOK_MS);
    (void)uv_run(loop, UV_RUN_DEFAULT);
}

static void print_frame(const char *name, const uint8_t *bytes, size_t len, const char *after)
{
    printf("\"%s\": \"", name);
    for (size_t i = 0; i < len; i++)
        printf("%02x", bytes[i]);
    printf("\"%s", after);
}

/* For a flood that does not know how frames are made. */
static int print_frames(const struct pl_token *token)
{
    uint8_t bytes[1024], secret[PL_SECRET_BYTES] = {1};
    const uint8_t request[64] = {0};
    const struct pl_msg enrol = {.type = PL_MSG_ENROL,
                                 .u.enrol = {.token = token->number,
                                             .secret = {secret, sizeof secret},
                                             .request = {request, sizeof request},
                                             .role = PL_ROLE_LEARNER}};
    const struct pl_msg ask = {.type = PL_MSG_ASK, .u.ask = {.what = PL_ASK_STATUS}};
    printf("{\"address\": \"%s\", ", token->address);
    print_frame("enrol", bytes, pl_frame_encode(&enrol, bytes, sizeof bytes), ", ");
    size_t len = pl_frame_encode(&ask, bytes, sizeof bytes);
    print_frame("ask", bytes, len, ", ");
    memset(bytes + 4, 0xff, 4); /* the length: 4 GiB */
    print_frame("oversized", bytes, len, "}\n");
    return 0;
}

static int say_usage(void)
{
    fprintf(
        stderr,
        "usage: bench_hostile --join TOKEN --mode MODE [--seconds S] [--step-ms N] [--norm X] [--rate N]\n"
        "MODE is honest, digest, nan, inf, huge, tokens, steps, reports, replay, flip, climb,\nrandom or "
        "frames.\n");
    return 2;
}

int main(int argc, char **argv)
{
    static struct liar l;
    static struct pl_credentials own;
    struct pl_token token;
    struct pl_error err = {.text = ""};
    const char *join = NULL;
    double seconds = 10;
    uv_loop_t loop;
    const struct option options[] = {
        {"join", 1, NULL, 'j'}, {"mode", 1, NULL, 'm'}, {"seconds", 1, NULL, 's'}, {"step-ms", 1, NULL, 't'},
        {"norm", 1, NULL, 'n'}, {"rate", 1, NULL, 'r'}, {NULL, 0, NULL, 0}};
    l.mode = "honest";
    l.norm = 1;
    l.island.step_ms = 100;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        join = c == 'j' ? optarg : join;
        l.mode = c == 'm' ? optarg : l.mode;
        seconds = c == 's' ? strtod(optarg, NULL) : seconds;
        l.island.step_ms = c == 't' ? strtoull(optarg, NULL, 10) : l.island.step_ms;
        l.norm = c == 'n' ? strtod(optarg, NULL) : l.norm;
        l.island.rate = c == 'r' ? strtoull(optarg, NULL, 10) : l.island.rate;
        if (c == '?')
            return say_usage();
    }
    if (join == NULL || l.island.step_ms == 0 || !choose(&l))
        return say_usage();
    if (strcmp(l.mode, "frames") == 0)
        return pl_token_parse(join, &token, &err) == PELAGO_OK ? print_frames(&token) : fail(&err);
    if (enrol(&l, join, &own, &token, &err) != PELAGO_OK)
        return fail(&err);
    srand48((long)own.identity);
    (void)signal(SIGTERM, on_term);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)uv_loop_init(&loop);
    live(&l, &loop, &own, token.address, seconds);
    const struct island *is = &l.island;
    printf("{\"mode\": \"%s\", \"identity\": %llu, \"pushes\": %llu, \"merged\": %llu, \"refusals\": %llu, "
           "\"closes\": %llu, \"norm\": %.3f, \"last_text\": \"%s\"}\n",
           l.mode, (unsigned long long)own.identity, (unsigned long long)is->pushes,
           (unsigned long long)l.merged, (unsigned long long)is->refusals, (unsigned long long)is->closes,
           l.norm, is->last_text);
    return 0;
}
