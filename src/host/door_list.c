/* host/door_list.c - see door_list.h. */
#include "host/door_list.h"

#include "base/check.h"
#include "base/num.h"
#include "train/json.h"

#include <string.h>

enum { FORMAT = 2, FORMAT_BEFORE = 1, HEX_BYTES = 2 * PL_SHA256_BYTES + 1 };
static const char file[] = "invitations.json";

void pl_invitations_init(struct pl_invitations *l, const struct pl_alloc *alloc)
{
    *l = (struct pl_invitations){.alloc = *alloc, .next_identity = 1, .next_number = 1};
}

void pl_invitations_release(struct pl_invitations *l)
{
    pl_alloc_free(&l->alloc, l->at, PL_INVITATIONS_MAX * sizeof *l->at);
    pl_alloc_free(&l->alloc, l->entrants, PL_ENTRANTS_MAX * sizeof *l->entrants);
    l->at = NULL;
    l->entrants = NULL;
    l->count = 0;
    l->entrant_count = 0;
}

static bool make_room(struct pl_invitations *l)
{
    if (l->at == NULL)
        l->at = pl_alloc_zero(&l->alloc, PL_INVITATIONS_MAX, sizeof *l->at);
    if (l->entrants == NULL)
        l->entrants = pl_alloc_zero(&l->alloc, PL_ENTRANTS_MAX, sizeof *l->entrants);
    return l->at != NULL && l->entrants != NULL;
}

static uint32_t entrants_kept(const struct pl_invitations *l)
{
    return (uint32_t)pl_min64(l->entrant_count, PL_ENTRANTS_MAX);
}

/* The i-th of those that are kept, the oldest first. */
static struct pl_entrant *entrant_at(const struct pl_invitations *l, uint32_t i)
{
    return &l->entrants[(l->entrant_count - entrants_kept(l) + i) % PL_ENTRANTS_MAX];
}

static bool is_open(const struct pl_invitation *v, uint64_t now_s)
{
    return v->uses_left > 0 && (v->expires_s == 0 || now_s < v->expires_s);
}

static void remove_at(struct pl_invitations *l, uint32_t i)
{
    memmove(&l->at[i], &l->at[i + 1], (l->count - i - 1) * sizeof *l->at);
    l->count--;
}

/* Those that are of no use any more go, the oldest first, only as far as needed. */
static void forget_one(struct pl_invitations *l, uint64_t now_s)
{
    for (uint32_t i = 0; i < l->count; i++)
        if (!is_open(&l->at[i], now_s)) {
            remove_at(l, i);
            return;
        }
}

void pl_invitations_drop(struct pl_invitations *l, uint64_t number)
{
    for (uint32_t i = 0; i < l->count; i++)
        if (l->at[i].number == number) {
            remove_at(l, i);
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
    *out = equal ? found : NULL;
    if (found == NULL || !equal)
        return "the token is wrong: this run has no such invitation; ask for a new one";
    if (found->uses_left == 0)
        return "the token is used up: as many as it is for have joined with it; whoever has goes on with the "
               "same "
               "--dir, others ask for a new one (pelago invite)";
    if (!is_open(found, now_s))
        return "the token has expired; ask for a new one";
    return NULL;
}

const struct pl_grant *pl_invitations_use(struct pl_invitations *l, struct pl_invitation *inv,
                                          const uint8_t request_sha256[static PL_SHA256_BYTES],
                                          uint32_t shard)
{
    struct pl_entrant *e = &l->entrants[l->entrant_count++ % PL_ENTRANTS_MAX];
    pl_assert(inv->uses_left > 0);
    inv->uses_left--;
    *e = (struct pl_entrant){.token = inv->number,
                             .grant = {.role = inv->role, .identity = l->next_identity++, .shard = shard}};
    memcpy(e->request_sha256, request_sha256, PL_SHA256_BYTES);
    return &e->grant;
}

const struct pl_grant *pl_invitations_given(const struct pl_invitations *l, uint64_t token,
                                            const uint8_t request_sha256[static PL_SHA256_BYTES])
{
    for (uint32_t i = 0; i < entrants_kept(l); i++)
        if (l->entrants[i].token == token &&
            memcmp(l->entrants[i].request_sha256, request_sha256, PL_SHA256_BYTES) == 0)
            return &l->entrants[i].grant;
    return NULL;
}

void pl_invitations_met(struct pl_invitations *l, uint64_t identity)
{
    if (identity >= l->next_identity && identity < PL_COUNT_MAX)
        l->next_identity = identity + 1;
}

bool pl_invitations_written(struct pl_invitations *l, uint64_t identity)
{
    for (uint32_t i = 0; i < entrants_kept(l); i++) {
        struct pl_entrant *e = &l->entrants[i];
        if (e->grant.identity == identity && !e->written) {
            e->written = true;
            return true;
        }
    }
    return false;
}

enum pelago_status pl_invitations_copy(struct pl_invitations *to, const struct pl_invitations *from,
                                       struct pl_error *err)
{
    if (!make_room(to))
        return pl_fail(err, PELAGO_NOMEM, "there is no memory for the list of invitations");
    to->count = from->count;
    to->next_identity = from->next_identity;
    to->next_number = from->next_number;
    to->entrant_count = from->entrant_count;
    if (from->at != NULL)
        memcpy(to->at, from->at, from->count * sizeof *to->at);
    if (from->entrants != NULL)
        memcpy(to->entrants, from->entrants, PL_ENTRANTS_MAX * sizeof *to->entrants);
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

static json_t *print_entrant(const struct pl_entrant *e)
{
    char hex[HEX_BYTES];
    json_t *o = json_object();
    to_hex(e->request_sha256, hex);
    bool good = o != NULL && pl_json_put(o, "token", json_integer((json_int_t)e->token)) &&
                pl_json_put(o, "request_sha256", json_string(hex)) &&
                pl_json_put(o, "identity", json_integer((json_int_t)e->grant.identity)) &&
                pl_json_put(o, "role", json_integer(e->grant.role)) &&
                pl_json_put(o, "shard", json_integer(e->grant.shard));
    if (good)
        return o;
    json_decref(o);
    return NULL;
}

static bool print_all(const struct pl_invitations *l, json_t *root)
{
    json_t *list = json_array(), *entrants = json_array();
    bool good = pl_json_put(root, "format", json_integer(FORMAT)) &&
                pl_json_put(root, "next_identity", json_integer((json_int_t)l->next_identity)) &&
                pl_json_put(root, "next_number", json_integer((json_int_t)l->next_number));
    for (uint32_t i = 0; i < l->count && good; i++)
        good = json_array_append_new(list, print_one(&l->at[i])) == 0;
    for (uint32_t i = 0; i < entrants_kept(l) && good; i++)
        good = json_array_append_new(entrants, print_entrant(entrant_at(l, i))) == 0;
    good = pl_json_put(root, "invitations", list) && good; /* takes it, whatever comes of it */
    return pl_json_put(root, "entrants", entrants) && good;
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

static enum pelago_status read_entrant(struct pl_invitations *l, const struct pl_json *j)
{
    struct pl_entrant e = {.token = 0};
    char hex[HEX_BYTES];
    uint32_t role;
    PL_TRY(pl_json_count(j, "token", PL_COUNT_MAX, &e.token));
    PL_TRY(pl_json_text(j, "request_sha256", hex, sizeof hex));
    PL_TRY(pl_json_count(j, "identity", PL_COUNT_MAX, &e.grant.identity));
    PL_TRY(pl_json_u32(j, "role", &role));
    PL_TRY(pl_json_u32(j, "shard", &e.grant.shard));
    if (!of_hex(hex, e.request_sha256) || role < PL_ROLE_LEARNER || role > PL_ROLE_OPERATOR ||
        e.grant.identity >= l->next_identity)
        return pl_fail(j->err, PELAGO_CORRUPT,
                       "%s: an entrant has a request, role or identity that cannot be", file);
    e.grant.role = (enum pl_role)role;
    e.written = true;
    l->entrants[l->entrant_count++] = e;
    return PELAGO_OK;
}

static enum pelago_status read_entrants(struct pl_invitations *l, const struct pl_json *j)
{
    const json_t *list = pl_json_find(j, "entrants");
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n > PL_ENTRANTS_MAX)
        return pl_fail(j->err, PELAGO_CORRUPT, "%s has entrants that are no list of at most %u", file,
                       (unsigned)PL_ENTRANTS_MAX);
    for (size_t i = 0; i < n; i++) {
        struct pl_json one = {json_array_get(list, i), j->file, j->err};
        if (!json_is_object(one.at))
            return pl_fail(j->err, PELAGO_CORRUPT, "%s: an entrant is no object", file);
        PL_TRY(read_entrant(l, &one));
    }
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
    if ((format != FORMAT && format != FORMAT_BEFORE) || !json_is_array(list) || n > PL_INVITATIONS_MAX ||
        l->next_identity == 0)
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
    /* Before, requests were known by a hash that can be forged: whoever was let in then and not told needs a new token. */
    return format == FORMAT ? read_entrants(l, j) : PELAGO_OK;
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
