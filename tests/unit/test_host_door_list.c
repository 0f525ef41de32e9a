/* tests/unit/test_host_door_list.c - the list of invitations and the desk that writes it, without a door. */
#include "host/door_desk.h"
#include "tempdir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <unistd.h>

/* ---- the desk alone ---- */

struct clerk {
    struct pl_desk desk;
    uint64_t told[8]; /* tokens, in the order of their answers */
    enum pelago_status status[8];
    unsigned count, idle, gone;
};

static void clerk_answer(void *user, const struct pl_slip *s)
{
    struct clerk *c = user;
    c->gone += s->who == NULL;
    c->told[c->count] = s->token;
    c->status[c->count++] = s->status;
}

static void clerk_idle(void *user)
{
    struct clerk *c = user;
    c->idle++;
}

static void hand_in(struct clerk *c, uint64_t token, bool listed, void *who)
{
    struct pl_slip *s = pl_slip_new(&c->desk);
    assert_non_null(s);
    s->token = token;
    s->listed = listed;
    s->who = who;
    pl_desk_add(&c->desk, s);
}

/* The first goes to the worker, the others wait for it and go together; one has left meanwhile. Then the folder is gone:
 * what must be written fails, what need not is done. */
static void the_desk_writes_for_all_who_wait(void **state)
{
    (void)state;
    static struct clerk c;
    int somebody, other;
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_invitations list;
    struct pl_posix_dir *dir;
    struct tempdir temp;
    struct pl_error err;
    uv_loop_t loop;
    memset(&c, 0, sizeof c);
    assert_int_equal(uv_loop_init(&loop), 0);
    tempdir_init(&temp);
    assert_int_equal(pl_posix_dir_open(&dir, &alloc, temp.path, PL_POSIX_DIR_EXISTING, &err), PELAGO_OK);
    pl_invitations_init(&list, &alloc);
    const struct pl_desk_options o = {.loop = &loop,
                                      .alloc = &alloc,
                                      .dir = dir,
                                      .list = &list,
                                      .answer = clerk_answer,
                                      .idle = clerk_idle,
                                      .user = &c};
    pl_desk_init(&c.desk, &o);
    for (uint64_t i = 1; i <= 5; i++)
        hand_in(&c, i, true, i == 3 ? &other : &somebody);
    assert_true(c.desk.busy && c.desk.writing->next == NULL);
    pl_desk_forget(&c.desk, &other);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_true(!c.desk.busy && c.count == 5 && c.idle == 1 && c.gone == 1);
    for (uint64_t i = 0; i < 5; i++)
        assert_true(c.told[i] == i + 1 && c.status[i] == PELAGO_OK);
    assert_int_equal(unlink(tempdir_path(&temp, "invitations.json")), 0);
    assert_int_equal(rmdir(temp.path), 0);
    c.count = 0;
    hand_in(&c, 7, true, &somebody);
    hand_in(&c, 8, false, &somebody);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_true(c.count == 2 && c.status[0] == PELAGO_LIMIT && c.status[1] == PELAGO_OK);
    pl_desk_release(&c.desk);
    pl_invitations_release(&list);
    pl_posix_dir_close(dir);
    assert_int_equal(uv_loop_close(&loop), 0);
}

/* ---- the list alone ---- */

/* Stands for the hash of one. */
static const uint8_t *request(uint64_t number)
{
    static uint8_t hash[PL_SHA256_BYTES];
    memcpy(hash, &number, sizeof number);
    return hash;
}

static void the_list_knows_used_expired_and_wrong(void **state)
{
    (void)state;
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_invitations l;
    struct pl_invitation *inv;
    struct pl_error err;
    uint8_t secret[PL_SECRET_BYTES] = {1, 2, 3}, other[PL_SECRET_BYTES] = {1, 2, 4};
    uint64_t number, second;
    pl_invitations_init(&l, &alloc);
    assert_int_equal(pl_invitations_add(&l, PL_ROLE_LEARNER, 1, 1000, secret, 500, &number, &err), PELAGO_OK);
    assert_int_equal(pl_invitations_add(&l, PL_ROLE_OPERATOR, 2, 0, other, 500, &second, &err), PELAGO_OK);
    assert_int_not_equal(number, second);
    assert_non_null(strstr(pl_invitations_match(&l, number, other, 500, &inv), "wrong"));
    assert_null(inv);
    assert_non_null(strstr(pl_invitations_match(&l, 99, secret, 500, &inv), "no such"));
    assert_non_null(strstr(pl_invitations_match(&l, number, secret, 1000, &inv), "expired"));
    assert_null(pl_invitations_match(&l, number, secret, 999, &inv));
    assert_int_equal(pl_invitations_use(&l, inv, request(7), 0)->identity, 1);
    assert_int_equal(pl_invitations_given(&l, number, request(7))->identity, 1);
    assert_null(pl_invitations_given(&l, number, request(8)));
    assert_null(pl_invitations_given(&l, second, request(7)));
    assert_true(pl_invitations_written(&l, 1));
    assert_false(pl_invitations_written(&l, 1));
    assert_false(pl_invitations_written(&l, 2));
    assert_non_null(strstr(pl_invitations_match(&l, number, secret, 999, &inv), "used up"));
    assert_int_equal(inv->number, number);
    assert_null(pl_invitations_match(&l, second, other, UINT64_MAX, &inv));
    pl_invitations_drop(&l, second);
    assert_non_null(strstr(pl_invitations_match(&l, second, other, 500, &inv), "no such"));
    pl_invitations_release(&l);
}

/* As many as fit; then those that are over make room, and open ones never do. */
/* The list came from a copy that is older than learners that are there: nobody else becomes one of them. */
static void identities_that_are_met_are_not_given_again(void **state)
{
    (void)state;
    const uint8_t secret[PL_SECRET_BYTES] = {7}, request[PL_SHA256_BYTES] = {1};
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_invitation *inv;
    struct pl_invitations list;
    uint64_t number;
    pl_invitations_init(&list, &alloc);
    assert_int_equal(pl_invitations_add(&list, PL_ROLE_LEARNER, 4, 0, secret, 0, &number, NULL), PELAGO_OK);
    assert_null(pl_invitations_match(&list, number, secret, 0, &inv));
    assert_int_equal(pl_invitations_use(&list, inv, request, 0)->identity, 1);
    pl_invitations_met(&list, 1);
    assert_int_equal(pl_invitations_use(&list, inv, request, 0)->identity, 2);
    pl_invitations_met(&list, 7);
    pl_invitations_met(&list, 5);
    pl_invitations_met(&list, UINT64_MAX);
    assert_int_equal(pl_invitations_use(&list, inv, request, 0)->identity, 8);
    pl_invitations_release(&list);
}

static void the_list_is_bounded(void **state)
{
    (void)state;
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_invitations l;
    struct pl_error err;
    uint8_t secret[PL_SECRET_BYTES] = {0};
    uint64_t number;
    pl_invitations_init(&l, &alloc);
    for (uint32_t i = 0; i < PL_INVITATIONS_MAX; i++)
        assert_int_equal(
            pl_invitations_add(&l, PL_ROLE_LEARNER, 1, i == 7 ? 10 : 0, secret, 5, &number, &err), PELAGO_OK);
    assert_int_equal(pl_invitations_add(&l, PL_ROLE_LEARNER, 1, 0, secret, 5, &number, &err), PELAGO_LIMIT);
    assert_int_equal(pl_invitations_add(&l, PL_ROLE_LEARNER, 1, 0, secret, 10, &number, &err), PELAGO_OK);
    assert_int_equal(l.count, PL_INVITATIONS_MAX);
    assert_int_equal(number, PL_INVITATIONS_MAX + 1);
    pl_invitations_release(&l);
}

static void the_list_comes_back_from_its_file_and_damage_is_refused(void **state)
{
    (void)state;
    static const char *const damaged[] = {
        "{}",
        "[]",
        "not json",
        "{\"format\": 3, \"next_identity\": 1, \"next_number\": 1, \"invitations\": []}",
        "{\"format\": 1, \"next_identity\": 0, \"next_number\": 1, \"invitations\": []}",
        "{\"format\": 1, \"next_identity\": 1, \"next_number\": 1, \"invitations\": [3]}",
        "{\"format\": 1, \"next_identity\": 1, \"next_number\": 1, \"invitations\": [{\"number\": 1}]}",
        "{\"format\": 2, \"next_identity\": 1, \"next_number\": 1, \"invitations\": [], \"entrants\": 7}",
        "{\"format\": 2, \"next_identity\": 1, \"next_number\": 1, \"invitations\": [], \"entrants\": [7]}",
        "{\"format\": 2, \"next_identity\": 1, \"next_number\": 1, \"invitations\": []}",
        "{\"format\": 2, \"next_identity\": 1, \"next_number\": 1, \"invitations\": [], \"entrants\": "
        "[{\"token\": 1, \"request_sha256\": "
        "\"0000000000000000000000000000000000000000000000000000000000000001\", \"identity\": 1, \"role\": 1, "
        "\"shard\": 0}]}",
        ("{\"format\": 2, \"next_identity\": 9, \"next_number\": 1, \"invitations\": [], \"entrants\": "
         "[{\"token\": 1, \"request_sha256\": \"0001\", \"identity\": 1, \"role\": 1, \"shard\": 0}]}")};
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_invitations l, back;
    struct pl_posix_dir *dir;
    struct tempdir temp;
    struct pl_invitation *inv;
    struct pl_error err;
    uint8_t secret[PL_SECRET_BYTES] = {9, 8, 7};
    uint64_t number;
    tempdir_init(&temp);
    assert_int_equal(pl_posix_dir_open(&dir, &alloc, temp.path, PL_POSIX_DIR_EXISTING, &err), PELAGO_OK);
    pl_invitations_init(&l, &alloc);
    l.next_identity = 41;
    assert_int_equal(pl_invitations_add(&l, PL_ROLE_SHARD, 3, 77, secret, 5, &number, &err), PELAGO_OK);
    assert_int_equal(pl_invitations_save(&l, dir, &alloc, &err), PELAGO_OK);
    assert_int_equal(pl_invitations_load(&back, dir, &alloc, &err), PELAGO_OK);
    assert_null(pl_invitations_match(&back, number, secret, 76, &inv));
    assert_true(inv->role == PL_ROLE_SHARD && inv->uses_left == 3 && inv->expires_s == 77);
    assert_int_equal(pl_invitations_use(&back, inv, request(5), 1)->identity, 41);
    for (uint64_t i = 0; i < PL_ENTRANTS_MAX + 3; i++) { /* those who came last are remembered */
        inv->uses_left = 3;
        assert_int_equal(pl_invitations_use(&back, inv, request(1000 + i), 1)->identity, 42 + i);
    }
    assert_int_equal(pl_invitations_copy(&l, &back, &err), PELAGO_OK);
    assert_int_equal(pl_invitations_save(&l, dir, &alloc, &err), PELAGO_OK);
    pl_invitations_release(&back);
    assert_int_equal(pl_invitations_load(&back, dir, &alloc, &err), PELAGO_OK);
    assert_null(pl_invitations_given(&back, number, request(5)));
    assert_null(pl_invitations_given(&back, number, request(1002)));
    for (uint64_t i = 3; i < PL_ENTRANTS_MAX + 3; i++) {
        const struct pl_grant *grant = pl_invitations_given(&back, number, request(1000 + i));
        assert_non_null(grant);
        assert_true(grant->identity == 42 + i && grant->role == PL_ROLE_SHARD && grant->shard == 1);
        assert_false(pl_invitations_written(&back, grant->identity)); /* no news */
    }
    pl_invitations_release(&l);
    pl_invitations_release(&back);
    for (size_t i = 0; i < sizeof damaged / sizeof damaged[0]; i++) {
        tempdir_put(&temp, "invitations.json", damaged[i], strlen(damaged[i]));
        assert_int_equal(pl_invitations_load(&back, dir, &alloc, &err), PELAGO_CORRUPT);
    }
    pl_posix_dir_close(dir);
    tempdir_release(&temp);
}

/* Written by an older syncer: invitations and numbers are good, but not who came with which request. */
static void an_older_list_is_read_without_its_entrants(void **state)
{
    (void)state;
    static const char older[] =
        "{\"format\": 1, \"next_identity\": 5, \"next_number\": 3, \"invitations\": [{\"number\": 2, "
        "\"secret_sha256\": \"00000000000000000000000000000000000000000000000000000000000000ff\", "
        "\"role\": 1, \"uses_left\": 1, \"expires_s\": 0}], \"entrants\": [{\"token\": 2, "
        "\"request\": \"0000000000000001\", \"identity\": 4, \"role\": 1, \"shard\": 0}]}";
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_invitations l;
    struct pl_posix_dir *dir;
    struct tempdir temp;
    struct pl_error err;
    tempdir_init(&temp);
    assert_int_equal(pl_posix_dir_open(&dir, &alloc, temp.path, PL_POSIX_DIR_EXISTING, &err), PELAGO_OK);
    tempdir_put(&temp, "invitations.json", older, strlen(older));
    assert_int_equal(pl_invitations_load(&l, dir, &alloc, &err), PELAGO_OK);
    assert_true(l.count == 1 && l.next_identity == 5 && l.next_number == 3 && l.entrant_count == 0);
    assert_int_equal(pl_invitations_save(&l, dir, &alloc, &err), PELAGO_OK);
    pl_invitations_release(&l);
    assert_int_equal(pl_invitations_load(&l, dir, &alloc, &err), PELAGO_OK);
    assert_int_equal(l.count, 1);
    pl_invitations_release(&l);
    pl_posix_dir_close(dir);
    tempdir_release(&temp);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_desk_writes_for_all_who_wait),
        cmocka_unit_test(the_list_knows_used_expired_and_wrong),
        cmocka_unit_test(identities_that_are_met_are_not_given_again),
        cmocka_unit_test(the_list_is_bounded),
        cmocka_unit_test(an_older_list_is_read_without_its_entrants),
        cmocka_unit_test(the_list_comes_back_from_its_file_and_damage_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
