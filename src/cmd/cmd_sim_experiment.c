/* cmd/cmd_sim_experiment.c - `pelago sim --experiment FILE`: every row of the file with every seed, a line of results each.
 *
 * A run is known by the digest of its row and its seed; what the results already have is not run again, so that a table
 * can be made in as many sittings as it takes; --list says what there is, and trains nothing. A row that cannot be run (a codec this program does not have) is said
 * and left out.
 */
#include "base/check.h"
#include "cmd/cmd.h"
#include "cmd/cmd_sim.h"
#include "cmd/text.h"
#include "data/input.h"
#include "lab/experiment.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

enum { RESULTS_MAX = 256 << 20 };
static const char default_folder[] = "build/experiments";
static const char default_results[] = "experiments/results.jsonl";

struct sitting {
    const struct pl_sim_call *call;
    struct pl_lab lab;
    struct pl_lab_experiment experiment;
    struct pl_buf known; /* the results so far */
    FILE *results;
    uint32_t done, skipped, failed, missing;
};

static bool write_out(struct sitting *s, struct pl_buf *line)
{
    return pl_buf_append(line, "\n", 1) == PELAGO_OK &&
           fwrite(line->data, 1, line->len, s->results) == line->len && fflush(s->results) == 0 &&
           pl_buf_append(&s->known, line->data, line->len) == PELAGO_OK;
}

/* The line of a finished run: under this experiment's name where there is one (*named), else under another's. Its data is
 * NULL where there is none. */
static struct pl_bytes find_line(const struct sitting *s, const struct pl_lab_row *row, uint64_t key,
                                 uint64_t seed, bool *named)
{
    const char *at = (const char *)s->known.data, *end = at + s->known.len;
    struct pl_bytes found = {NULL, 0};
    *named = false;
    while (at < end && !*named) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t len = (size_t)((stop != NULL ? stop : end) - at);
        if (pl_lab_line_is(at, len, key, seed)) {
            found = (struct pl_bytes){at, len};
            *named = pl_lab_line_named(&s->experiment, row, at, len);
        }
        at += len + 1;
    }
    return found;
}

/* True: the run is there. One that another experiment made is noted under this one's name. */
static bool is_known(struct sitting *s, const struct pl_lab_row *row, uint64_t key, uint64_t seed)
{
    bool named;
    struct pl_bytes found = find_line(s, row, key, seed, &named);
    if (found.data == NULL || named)
        return named;
    struct pl_buf line;
    pl_buf_init(&line, &s->lab.alloc, RESULTS_MAX);
    bool noted = pl_lab_line_rename(&s->experiment, row, found.data, found.len, &line) == PELAGO_OK &&
                 write_out(s, &line);
    pl_buf_release(&line);
    return noted;
}

static void list_one(struct sitting *s, const struct pl_lab_row *row, uint64_t key, uint64_t seed)
{
    bool named;
    struct pl_bytes found = find_line(s, row, key, seed, &named);
    printf("%s %s seed %" PRIu64 " key %016" PRIx64 ": %s\n", s->experiment.name, row->name, seed, key,
           named                ? "there"
           : found.data != NULL ? "there under another name"
                                : "missing");
    if (found.data != NULL)
        s->skipped++;
    else
        s->missing++;
}

static bool write_line(struct sitting *s, const struct pl_lab_row *row, uint64_t seed,
                       const struct pl_lab_result *result)
{
    struct pl_buf line;
    pl_buf_init(&line, &s->lab.alloc, RESULTS_MAX);
    bool good = pl_lab_line(&s->experiment, row, seed, result, &s->lab.alloc, &line) == PELAGO_OK &&
                write_out(s, &line);
    pl_buf_release(&line);
    return good;
}

static void print_run(const struct sitting *s, const struct pl_lab_row *row, uint64_t seed,
                      const struct pl_lab_result *r)
{
    printf("%s %s seed %" PRIu64 ": loss %.4f, %.2fM tokens, %" PRIu64 " merges, %.1f MB up, %.1f MB down, "
           "%.0f virtual s, %.0f s (%.0f%% training), %.1f steps/s\n",
           s->experiment.name, row->name, seed, r->loss, (double)r->merged_tokens / 1e6, r->outer_steps,
           (double)r->bytes_up / 1e6, (double)r->bytes_down / 1e6, r->virtual_s, r->wall_s,
           100 * r->trainer_s / (r->wall_s - r->eval_s), (double)r->steps / (r->wall_s - r->eval_s));
    (void)fflush(stdout);
}

static void say_failed(struct sitting *s, const char *row, uint64_t seed, char *text)
{
    pl_text_clean(text);
    (void)fprintf(stderr, "pelago sim: %s %s seed %" PRIu64 ": %s.\n", s->experiment.name, row, seed, text);
    s->failed++;
}

static void run_one(struct sitting *s, const struct pl_lab_row *row, uint64_t key, uint64_t seed)
{
    static struct pl_lab_result result; /* large */
    struct pl_error err = {PELAGO_OK, ""};
    if (s->call->list) {
        list_one(s, row, key, seed);
        return;
    }
    if (is_known(s, row, key, seed)) {
        s->skipped++;
        return;
    }
    if (pl_lab_run(&s->lab, row, seed, &result, &err) != PELAGO_OK) {
        say_failed(s, row->name, seed, err.text);
    } else if (result.exit != PL_SIM_OK) {
        say_failed(s, row->name, seed, result.what);
    } else if (!write_line(s, row, seed, &result)) {
        (void)pl_fail(&err, PELAGO_IO, "the results cannot be written");
        say_failed(s, row->name, seed, err.text);
    } else {
        print_run(s, row, seed, &result);
        s->done++;
    }
}

/* Seed by seed, so that a sitting that ends early leaves whole pairs. */
static void run_all(struct sitting *s)
{
    static struct pl_lab_row row; /* large */
    const struct pl_sim_call *call = s->call;
    bool given = call->seeds || call->seed;
    uint64_t first = given ? call->first : s->experiment.first_seed;
    uint64_t last = given ? call->last : call->shorter ? first : s->experiment.last_seed;
    for (uint64_t seed = first; seed <= last; seed++)
        for (uint32_t i = 0; i < s->experiment.row_count; i++) {
            struct pl_error err;
            if (call->row != NULL && strcmp(call->row, s->experiment.rows[i]) != 0)
                continue;
            if (pl_lab_experiment_row(&s->experiment, i, call->shorter, &s->lab, &row, &err) != PELAGO_OK)
                say_failed(s, s->experiment.rows[i], seed, err.text);
            else
                run_one(s, &row, pl_lab_row_key(&row, &s->lab.alloc), seed);
        }
}

static bool has_row(const struct pl_lab_experiment *e, const char *row)
{
    for (uint32_t i = 0; i < e->row_count; i++)
        if (strcmp(e->rows[i], row) == 0)
            return true;
    return false;
}

/* Nothing is written; results that do not exist yet have no line. */
static int list_file(struct sitting *s, const char *path)
{
    struct pl_error err;
    if (access(path, F_OK) == 0 && pl_input_read_all(&s->lab.alloc, path, &s->known, &err) != PELAGO_OK)
        return pl_sim_usage_error("%s", err.text);
    run_all(s);
    printf("%s: %u there, %u missing, %u failed; results in %s\n", s->experiment.name, s->skipped, s->missing,
           s->failed, path);
    return s->failed == 0 ? PL_EXIT_OK : PL_EXIT_FAILED;
}

static int run_file(struct sitting *s)
{
    const char *path = s->call->results != NULL ? s->call->results : default_results;
    struct pl_error err;
    if (s->call->row != NULL && !has_row(&s->experiment, s->call->row))
        return pl_sim_usage_error("%s has no row '%s'", pl_text_clip(s->call->experiment).at,
                                  pl_text_clip(s->call->row).at);
    if (s->call->list)
        return list_file(s, path);
    s->results = fopen(path, "a");
    if (s->results == NULL)
        return pl_sim_usage_error("%s cannot be written (%s); --results FILE says where else",
                                  pl_text_clip(path).at, strerror(errno));
    if (pl_input_read_all(&s->lab.alloc, path, &s->known, &err) != PELAGO_OK) {
        (void)fclose(s->results);
        return pl_sim_usage_error("%s", err.text);
    }
    if (s->known.len > 0 &&
        s->known.data[s->known.len - 1] != '\n') { /* a line that was cut off stays alone */
        (void)fputc('\n', s->results);
        (void)pl_buf_append(&s->known, "\n", 1);
    }
    run_all(s);
    printf("%s: %u runs, %u known before, %u failed; results in %s\n", s->experiment.name, s->done,
           s->skipped, s->failed, path);
    return fclose(s->results) == 0 && s->failed == 0 ? PL_EXIT_OK : PL_EXIT_FAILED;
}

int pl_sim_experiment(const struct pl_sim_call *call)
{
    static struct sitting s; /* large */
    struct pl_error err;
    s = (struct sitting){.call = call};
    s.lab = (struct pl_lab){.alloc = pl_alloc_system(),
                            .folder = call->list             ? NULL
                                      : call->folder != NULL ? call->folder
                                                             : default_folder,
                            .threads = call->threads,
                            .backend = call->backend};
    enum pelago_status st = pl_lab_experiment_read(&s.experiment, &s.lab.alloc, call->experiment, &err);
    if (st != PELAGO_OK) {
        (void)pl_sim_usage_error("%s", err.text);
        return st == PELAGO_INVALID ? PL_EXIT_USAGE : PL_EXIT_FAILED;
    }
    pl_buf_init(&s.known, &s.lab.alloc, RESULTS_MAX);
    int code = run_file(&s);
    pl_buf_release(&s.known);
    pl_lab_experiment_release(&s.experiment);
    return code;
}
