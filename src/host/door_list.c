/* host/door_list.c - see door_list.h. */
#include "host/door_list.h"

#include "base/check.h"
#include "train/json.h"

#include <string.h>

enum { FORMAT = 1, HEX_BYTES = 2 * PL_SHA256_BYTES + 1 };
static const char file[] = "invitations.json";

void pl_invitations_init(struct pl_invitations *l, const struct pl_alloc *alloc)
{
    *l = (struct pl_invitations){.alloc = *alloc, .next_identity = 1, .next_number = 1};
}

void pl_invitations_release(struct pl_invitations *l)
{
    if (l->at != NULL)
        pl_alloc_free(&l->alloc, l->at, PL_INVITATIONS_MAX * sizeof *l->at);
    l->at = NULL;
    l->count = 0;
}

static bool make_room(struct pl_invitations *l)
{
    if (l->at == NULL)
        l->at = pl_alloc_zero(&l->alloc, PL_INVITATIONS_MAX, sizeof *l->at);
    return l->at != NULL;
}

static bool is_open(const struct pl_invitation *v, uint64_t now_s)
{
    return v->uses_left > 0 && (v->expires_s == 0 || now_s < v->expires_s);
}

/* Those that are of no use any more go, the oldest first, only as far as needed. */
static void forget_one(struct pl_invitations *l, uint64_t now_s)
{
    for (uint32_t i = 0; i < l->count; i++)
        if (!is_open(&l->at[i], now_s)) {
            memmove(&l->at[i], &l->at[i + 1], (l->count - i - 1) * sizeof *l->at);
            l->count--;
            return;
        }
}

enum pelago_status pl_invitations_add(struct pl_invitations *l, enum pl_role role, uint64_t uses,
                                      uint64_t expires_s, const uint8_t secret[static PL_SECRET_BYTES],
                                      uint64_t now_s, uint64_t *number, struct pl_error *err)
{
    if (!make_room(l))
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for the list of invitations");
    if (l->count == PL_INVITATIONS_MAX)
        forget_one(l, now_s);
    if (l->count == PL_INVITATIONS_MAX)
        return pl_fail(err, PELAGO_LIMIT,
                       "%u invitations are open, no more fit; use one for several learners",
                       (unsigned)PL_INVITATIONS_MAX);
    struct pl_invitation *v = &l->at[l->count++];
    *v = (struct pl_invitation){
        .number = l->next_number++, .role = role, .uses_left = uses, .expires_s = expires_s};
    pl_sha256(secret, PL_SECRET_BYTES, v->secret_sha256);
    *number = v->number;
    return PELAGO_OK;
}

const char *pl_invitations_match(struct pl_invitations *l, uint64_t number,
                                 const uint8_t secret[static PL_SECRET_BYTES], uint64_t now_s,
                                 struct pl_invitation **out)
{
    static const uint8_t none[PL_SHA256_BYTES];
    uint8_t hash[PL_SHA256_BYTES];
    struct pl_invitation *found = NULL;
    for (uint32_t i = 0; i < l->count; i++)
        found = l->at[i].number == number ? &l->at[i] : found;
    pl_sha256(secret, PL_SECRET_BYTES, hash);
    bool equal = pl_secret_equal(hash, found != NULL ? found->secret_sha256 : none, sizeof hash);
    *out = found;
    if (found == NULL || !equal)
        return "the token is wrong: this run has no such invitation; ask for a new one";
    if (found->uses_left == 0)
        return "the token is used up: somebody has joined with it already; ask for a new one";
    if (!is_open(found, now_s))
        return "the token has expired; ask for a new one";
    return NULL;
}

uint64_t pl_invitations_use(struct pl_invitations *l, struct pl_invitation *inv)
{
    pl_assert(inv->uses_left > 0);
    inv->uses_left--;
    return l->next_identity++;
}

enum pelago_status pl_invitations_copy(struct pl_invitations *to, const struct pl_invitations *from,
                                       struct pl_error *err)
{
    if (!make_room(to))
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for the list of invitations");
    to->count = from->count;
    to->next_identity = from->next_identity;
    to->next_number = from->next_number;
    if (from->count > 0)
        memcpy(to->at, from->at, from->count * sizeof *to->at);
    return PELAGO_OK;
}

/* ---- the file ---- */

static void to_hex(const uint8_t *bytes, char out[static HEX_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < PL_SHA256_BYTES; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
    out[HEX_BYTES - 1] = '\0';
}

static bool of_hex(const char *text, uint8_t *out)
{
    static const char digits[] = "0123456789abcdef";
    if (strlen(text) != HEX_BYTES - 1)
        return false;
    for (size_t i = 0; i < HEX_BYTES - 1; i++) {
        const char *at = strchr(digits, text[i]);
        if (at == NULL)
            return false;
        uint8_t v = (uint8_t)(at - digits);
        out[i / 2] = (uint8_t)(i % 2 == 0 ? v << 4 : out[i / 2] | v);
    }
    return true;
}

static json_t *print_one(const struct pl_invitation *v)
{
    char hex[HEX_BYTES];
    json_t *o = json_object();
    to_hex(v->secret_sha256, hex);
    bool good = o != NULL && pl_json_put(o, "number", json_integer((json_int_t)v->number)) &&
                pl_json_put(o, "secret_sha256", json_string(hex)) &&
                pl_json_put(o, "role", json_integer(v->role)) &&
                pl_json_put(o, "uses_left", json_integer((json_int_t)v->uses_left)) &&
                pl_json_put(o, "expires_s", json_integer((json_int_t)v->expires_s));
    if (good)
        return o;
    json_decref(o);
    return NULL;
}

static bool print_all(const struct pl_invitations *l, json_t *root)
{
    json_t *list = json_array();
    bool good = list != NULL;
    for (uint32_t i = 0; i < l->count && good; i++)
        good = json_array_append_new(list, print_one(&l->at[i])) == 0;
    good = good && pl_json_put(root, "format", json_integer(FORMAT)) &&
           pl_json_put(root, "next_identity", json_integer((json_int_t)l->next_identity)) &&
           pl_json_put(root, "next_number", json_integer((json_int_t)l->next_number));
    if (!good) {
        json_decref(list);
        return false;
    }
    return pl_json_put(root, "invitations", list);
}

enum pelago_status pl_invitations_save(const struct pl_invitations *l, struct pl_posix_dir *dir,
                                       const struct pl_alloc *alloc, struct pl_error *err)
{
    struct pl_buf text;
    json_t *root = json_object();
    enum pelago_status st = PELAGO_NOMEM;
    pl_buf_init(&text, alloc, PL_JSON_BYTES_MAX);
    if (root != NULL && print_all(l, root) && pl_json_print(root, 17, &text) == PELAGO_OK)
        st = pl_home_write(dir, file, (struct pl_bytes){text.data, text.len}, true, err);
    else
        (void)pl_fail(err, st, "there is no memory to write %s", file);
    json_decref(root);
    pl_buf_release(&text);
    return st;
}

static enum pelago_status read_one(struct pl_invitations *l, const struct pl_json *j)
{
    struct pl_invitation v = {.number = 0};
    char hex[HEX_BYTES];
    uint32_t role;
    PL_TRY(pl_json_count(j, "number", PL_COUNT_MAX, &v.number));
    PL_TRY(pl_json_text(j, "secret_sha256", hex, sizeof hex));
    PL_TRY(pl_json_u32(j, "role", &role));
    PL_TRY(pl_json_count(j, "uses_left", PL_COUNT_MAX, &v.uses_left));
    PL_TRY(pl_json_count(j, "expires_s", PL_COUNT_MAX, &v.expires_s));
    if (!of_hex(hex, v.secret_sha256) || role < PL_ROLE_LEARNER || role > PL_ROLE_OPERATOR)
        return pl_fail(j->err, PELAGO_CORRUPT, "%s: invitation %lu has a secret or role that cannot be", file,
                       v.number);
    v.role = (enum pl_role)role;
    l->at[l->count++] = v;
    return PELAGO_OK;
}

static enum pelago_status read_all(struct pl_invitations *l, const struct pl_json *j)
{
    uint32_t format;
    PL_TRY(pl_json_u32(j, "format", &format));
    PL_TRY(pl_json_count(j, "next_identity", PL_COUNT_MAX, &l->next_identity));
    PL_TRY(pl_json_count(j, "next_number", PL_COUNT_MAX, &l->next_number));
    const json_t *list = pl_json_find(j, "invitations");
    size_t n = json_array_size(list);
    if (format != FORMAT || !json_is_array(list) || n > PL_INVITATIONS_MAX || l->next_identity == 0)
        return pl_fail(j->err, PELAGO_CORRUPT, "%s is not a list of at most %u invitations of format %u",
                       file, (unsigned)PL_INVITATIONS_MAX, (unsigned)FORMAT);
    if (!make_room(l))
        return pl_fail(j->err, PELAGO_NOMEM, "there is no memory for the list of invitations");
    for (size_t i = 0; i < n; i++) {
        struct pl_json one = {json_array_get(list, i), j->file, j->err};
        if (!json_is_object(one.at))
            return pl_fail(j->err, PELAGO_CORRUPT, "%s: an invitation is no object", file);
        PL_TRY(read_one(l, &one));
    }
    return PELAGO_OK;
}

enum pelago_status pl_invitations_load(struct pl_invitations *l, struct pl_posix_dir *dir,
                                       const struct pl_alloc *alloc, struct pl_error *err)
{
    struct pl_buf text;
    json_t *root = NULL;
    pl_invitations_init(l, alloc);
    pl_buf_init(&text, alloc, PL_JSON_BYTES_MAX);
    enum pelago_status st = pl_home_read(dir, file, &text, err);
    if (st == PELAGO_OK)
        st = pl_json_parse((struct pl_bytes){text.data, text.len}, file, &root, err);
    if (st == PELAGO_OK) {
        struct pl_json j = {root, file, err};
        st = read_all(l, &j);
    }
    json_decref(root);
    pl_buf_release(&text);
    if (st != PELAGO_OK)
        pl_invitations_release(l);
    return st;
}
