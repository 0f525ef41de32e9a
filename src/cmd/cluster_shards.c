/* cmd/cluster_shards.c - see cluster_shards.h. */
#include "cmd/cluster_shards.h"

#include "base/fmt.h"
#include "base/limits.h"
#include "host/home.h"
#include "train/json.h"

#include <string.h>

enum { DIGITS = 9 };
static const uint64_t patience_ns = PL_SEC;
static const char status_name[] = "the status";
static const char *const taken[] = {
    "shard",      "epoch", "uptime_s", "address", "phase",   "merges",       "merged_tokens",     "bytes_up",
    "bytes_down", "lost",  "joins",    "known",   "refused", "contributors", "contributors_alive"};

/* NULL: there is none. */
static json_t *asked(const struct pl_operator *who, uint32_t shard, const char *address, enum pl_ask what)
{
    struct pl_alloc alloc = pl_alloc_system();
    const struct pl_question q = {.what = what, .shard = shard};
    struct pl_operator other = *who;
    json_t *root = NULL;
    struct pl_buf text;
    (void)pl_fmt(other.address, sizeof other.address, "%s", address);
    if (shard > 0)
        other.near[0] = '\0'; /* that is home's */
    pl_buf_init(&text, &alloc, PL_JSON_BYTES_MAX);
    if (pl_operator_ask(&other, &q, patience_ns, &text, NULL) == PELAGO_OK)
        (void)pl_json_parse((struct pl_bytes){text.data, text.len}, status_name, &root, NULL);
    pl_buf_release(&text);
    return root;
}

/* What it left beside the home shard's folder; NULL: nothing. */
static json_t *left(const struct pl_operator *who, uint32_t shard)
{
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_posix_dir *dir = NULL;
    char name[32], folder[PL_PATH_MAX];
    json_t *root = NULL;
    struct pl_buf text;
    pl_buf_init(&text, &alloc, PL_JSON_BYTES_MAX);
    (void)pl_fmt(name, sizeof name, "../syncer-%u", shard);
    if (pl_path_join(folder, who->folder, name, NULL) == PELAGO_OK &&
        pl_posix_dir_open(&dir, &alloc, folder, PL_POSIX_DIR_EXISTING, NULL) == PELAGO_OK &&
        pl_home_read(dir, "status.json", &text, NULL) == PELAGO_OK)
        (void)pl_json_parse((struct pl_bytes){text.data, text.len}, status_name, &root, NULL);
    pl_posix_dir_close(dir);
    pl_buf_release(&text);
    return root;
}

static json_t *excerpt(const json_t *status)
{
    json_t *j = json_object();
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++)
        (void)json_object_set(j, taken[i], json_object_get(status, taken[i]));
    return j;
}

/* Of another run is what somebody else has on that port now. */
static bool is_of(const json_t *other, const json_t *status, uint32_t shard)
{
    return other != NULL && json_equal(json_object_get(other, "run"), json_object_get(status, "run")) &&
           json_integer_value(json_object_get(other, "shard")) == (json_int_t)shard;
}

static void add_others(const struct pl_operator *who, uint32_t shards, json_t *status)
{
    json_t *list = json_array(), *addresses = asked(who, 0, who->address, PL_ASK_ADDRESSES);
    const json_t *tokens = json_object_get(status, "tokens");
    double merged = json_number_value(json_object_get(status, "merged_tokens"));
    for (uint32_t i = 1; i < shards; i++) {
        const char *address = json_string_value(json_array_get(json_object_get(addresses, "addresses"), i));
        json_t *other = address != NULL && address[0] != '\0' ? asked(who, i, address, PL_ASK_STATUS) : NULL;
        if (other == NULL)
            other = left(who, i);
        if (is_of(other, status, i)) {
            merged += json_number_value(json_object_get(other, "merged_tokens"));
            (void)json_array_append_new(list, excerpt(other));
        }
        json_decref(other);
    }
    double all = json_number_value(tokens), share = all > 0 ? merged / all : -1;
    bool whole = json_array_size(list) + 1 == shards;
    (void)pl_json_put(status, "goodput", json_real(!whole ? -1 : share > 1 ? 1 : share));
    (void)pl_json_put(status, "others", list);
    json_decref(addresses);
}

void pl_shards_complete(const struct pl_operator *who, struct pl_buf *status)
{
    json_t *root = NULL;
    if (pl_json_parse((struct pl_bytes){status->data, status->len}, status_name, &root, NULL) != PELAGO_OK)
        return;
    json_int_t shards = json_integer_value(json_object_get(root, "shards"));
    if (shards > 1 && shards <= PL_SHARDS_MAX) {
        add_others(who, (uint32_t)shards, root);
        status->len = 0;
        (void)pl_json_print(root, DIGITS, status);
    }
    json_decref(root);
}
