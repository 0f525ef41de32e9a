/* cmd/run_file.c - see run_file.h. */
#include "cmd/run_file.h"

#include "cmd/cluster_home.h"
#include "cmd/text.h"
#include "host/home.h"
#include "os/clock.h"
#include "train/json.h"

#include <inttypes.h>
#include <string.h>

static const char run_name[] = "run.json";
enum { DIGITS = 9 };

/* NULL: there is none. */
static json_t *read_run(const char *home)
{
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_posix_dir *dir = NULL;
    char above[PL_PATH_MAX];
    json_t *root = NULL;
    struct pl_buf text;
    pl_buf_init(&text, &alloc, PL_JSON_BYTES_MAX);
    if (pl_path_join(above, home, "..", NULL) == PELAGO_OK &&
        pl_posix_dir_open(&dir, &alloc, above, PL_POSIX_DIR_EXISTING, NULL) == PELAGO_OK &&
        pl_home_read(dir, run_name, &text, NULL) == PELAGO_OK)
        (void)pl_json_parse((struct pl_bytes){text.data, text.len}, run_name, &root, NULL);
    pl_posix_dir_close(dir);
    pl_buf_release(&text);
    return root;
}

struct key {
    char at[24];
};

static struct key identity_of(const json_t *learner)
{
    struct key k;
    (void)snprintf(k.at, sizeof k.at, "%" JSON_INTEGER_FORMAT,
                   json_integer_value(json_object_get(learner, "identity")));
    return k;
}

static void add_names(json_t *status, const json_t *run)
{
    json_t *names = json_object(), *item; /* by identity */
    size_t i;
    json_array_foreach(json_object_get(run, "learners"), i, item)
    {
        (void)json_object_set(names, identity_of(item).at, json_object_get(item, "name"));
    }
    json_array_foreach(json_object_get(status, "learners"), i, item)
    {
        json_t *name = json_object_get(names, identity_of(item).at);
        if (json_is_string(name))
            (void)json_object_set(item, "name", name);
    }
    json_decref(names);
}

static void add_expected(json_t *status, const json_t *run)
{
    size_t count = json_array_size(json_object_get(run, "learners"));
    (void)pl_json_put(status, "expected", json_integer((json_int_t)count));
}

static void add_time(json_t *status, const json_t *run)
{
    const json_t *ends_at = json_object_get(run, "ends_at");
    json_int_t left = json_integer_value(ends_at) - (json_int_t)pl_date_s();
    if (json_is_integer(ends_at))
        (void)pl_json_put(status, "time_left_s", json_integer(left > 0 ? left : 0));
}

static void complete(json_t *status, const json_t *run, struct pl_buf *out)
{
    if (json_equal(json_object_get(status, "run"), json_object_get(run, "run")) == 0)
        return;
    add_names(status, run);
    add_expected(status, run);
    add_time(status, run);
    out->len = 0;
    (void)pl_json_print(status, DIGITS, out);
}

void pl_run_file_complete(const char *home, struct pl_buf *status)
{
    json_t *said = NULL, *run = read_run(home);
    if (run != NULL &&
        pl_json_parse((struct pl_bytes){status->data, status->len}, "the status", &said, NULL) == PELAGO_OK)
        complete(said, run, status);
    json_decref(said);
    json_decref(run);
}

void pl_run_file_advise(const char *home, struct pl_error *err)
{
    static const char inside[] = "/syncer";
    size_t len = strlen(home), n = sizeof inside - 1;
    char folder[PL_PATH_MAX];
    struct pl_error said = *err;
    if (len <= n || len >= sizeof folder || strcmp(home + len - n, inside) != 0)
        return;
    memcpy(folder, home, len - n);
    folder[len - n] = '\0';
    if (pl_path_exists(folder, run_name))
        (void)pl_fail(err, said.status,
                      "the run may have been stopped (pelago run --resume --out %s goes on with it): %s",
                      pl_text_clip(folder).at, said.text);
}
