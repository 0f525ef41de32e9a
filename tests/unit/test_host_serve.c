/* tests/unit/test_host_serve.c - where learners dial a syncer, and how many files it may open. */
#include "host/serve.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static void every_address_is_called_by_the_name_of_the_machine(void **state)
{
    (void)state;
    static const char *const all[] = {"*:0", ":0", "0.0.0.0:0", "[::]:0"};
    char name[PL_HOST_MAX], expected[PL_ADDRESS_MAX + 8], out[PL_ADDRESS_MAX];
    assert_int_equal(gethostname(name, sizeof name), 0);
    (void)snprintf(expected, sizeof expected, "%s:7441", name[0] != '\0' ? name : "localhost");
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        assert_int_equal(pl_serve_address(NULL, all[i], 7441, out, NULL), PELAGO_OK);
        assert_string_equal(out, expected);
        assert_int_equal(pl_address_dialable(out, NULL), PELAGO_OK);
    }
    assert_int_equal(pl_serve_address(NULL, "127.0.0.1:0", 7441, out, NULL), PELAGO_OK);
    assert_string_equal(out, "127.0.0.1:7441");
    assert_int_equal(pl_serve_address(NULL, "[::1]:0", 7441, out, NULL), PELAGO_OK);
    assert_string_equal(out, "[::1]:7441");
    assert_int_equal(pl_serve_address(NULL, "127.0.0.1", 7441, out, NULL), PELAGO_INVALID);
}

static void what_is_advertised_can_be_dialled(void **state)
{
    (void)state;
    static const char *const bad[] = {"host",       "*:7441", ":7441", "0.0.0.0:7441", "[::]:7441", "host:0",
                                      "host:70000", "a b:1",  ""};
    struct pl_error err;
    char out[PL_ADDRESS_MAX];
    assert_int_equal(pl_serve_address("host.example:1", "*:0", 7441, out, &err), PELAGO_OK);
    assert_string_equal(out, "host.example:1");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(pl_serve_address(bad[i], "*:0", 7441, out, &err), PELAGO_INVALID);
        assert_non_null(strstr(err.text, "nobody can dial"));
    }
}

static void this_machine_dials_where_it_is_listened(void **state)
{
    (void)state;
    static const char *const near[][2] = {{"*:0", "127.0.0.1:9"},
                                          {":0", "127.0.0.1:9"},
                                          {"0.0.0.0:0", "127.0.0.1:9"},
                                          {"[::]:0", "[::1]:9"},
                                          {"127.0.0.2:0", "127.0.0.2:9"},
                                          {"[fe80::1]:7", "[fe80::1]:9"},
                                          {"host.example:0", "host.example:9"}};
    char bound[PL_ADDRESS_MAX], out[PL_ADDRESS_MAX];
    for (size_t i = 0; i < sizeof near / sizeof near[0]; i++) {
        assert_int_equal(pl_serve_bound(near[i][0], 9, bound, NULL), PELAGO_OK);
        assert_int_equal(pl_serve_near(bound, out, NULL), PELAGO_OK);
        assert_string_equal(out, near[i][1]);
    }
    assert_int_equal(pl_serve_near("127.0.0.1", out, NULL), PELAGO_INVALID);
}

static void the_limit_of_open_files_is_raised(void **state)
{
    (void)state;
    struct rlimit before, now;
    struct pl_error err;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    if (before.rlim_max < 2000)
        skip();
    const struct rlimit low = {.rlim_cur = 256, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    assert_int_equal(pl_serve_files(300, &err), PELAGO_OK);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &now), 0);
    assert_in_range(now.rlim_cur, 300, 2000);
    assert_int_equal(pl_serve_files(UINT32_MAX, &err), PELAGO_LIMIT);
    assert_non_null(strstr(err.text, "ulimit -Hn"));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_address_is_called_by_the_name_of_the_machine),
        cmocka_unit_test(what_is_advertised_can_be_dialled),
        cmocka_unit_test(this_machine_dials_where_it_is_listened),
        cmocka_unit_test(the_limit_of_open_files_is_raised),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
