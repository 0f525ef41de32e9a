/* `pelago sim --goodput` as a command: traces read line by line, files written, wrong words refused. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "cmd/cmd.h"
#include "cmd/cmd_sim.h"
#include "cmd/cmd_sim_goodput.h"
#include "tempdir.h"

/* The command with these words, what it prints thrown away. */
static int call(char **words)
{
    int argc = 0, out = dup(STDOUT_FILENO), err = dup(STDERR_FILENO), nothing = open("/dev/null", O_WRONLY);
    while (words[argc] != NULL)
        argc++;
    fflush(stdout);
    dup2(nothing, STDOUT_FILENO);
    dup2(nothing, STDERR_FILENO);
    int code = pl_sim_goodput(argc, words);
    fflush(stdout);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    close(out);
    close(err);
    close(nothing);
    return code;
}
#define CALL(...) call((char *[]){(char[]){"sim"}, (char[]){"--goodput"}, __VA_ARGS__, NULL})

static size_t slurp(const char *path, char *text, size_t cap)
{
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    size_t len = fread(text, 1, cap - 1, f);
    fclose(f);
    text[len] = '\0';
    return len;
}

static int read_trace(const struct tempdir *t, const char *text, struct pl_goodput_call *c)
{
    tempdir_put(t, "trace.csv", text, strlen(text));
    *c = (struct pl_goodput_call){.trace = tempdir_path(t, "trace.csv")};
    return pl_goodput_trace_read(c);
}

static void test_trace(void **state)
{
    (void)state;
    struct tempdir t;
    struct pl_goodput_call c;
    tempdir_init(&t);
    assert_int_equal(read_trace(&t, "t_s,event,node,cause\n0,up,b,x\n1.5,down,a,power, again\n9,up,a,\n", &c),
                     PL_EXIT_OK);
    assert_int_equal(c.o.trace_count, 3);
    assert_int_equal(c.o.trace_nodes, 2);
    assert_true(c.o.trace[0].up && c.o.trace[0].node == 0);
    assert_true(!c.o.trace[1].up && c.o.trace[1].node == 1 && c.o.trace[2].node == 1);
    assert_true(c.o.trace[1].t_s > 1.4 && c.o.trace[1].t_s < 1.6);
    pl_goodput_trace_free(&c);
    const char *const wrong[] = {"t_s,event,node,cause\n-1,up,a,x\n",
                                 "x,up,a,x\n",
                                 "1,sideways,a,x\n",
                                 "5,up,a,x\n4,up,a,x\n",
                                 "1,up\n",
                                 "nan,up,a,x\n"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(read_trace(&t, wrong[i], &c), PL_EXIT_USAGE);
        pl_goodput_trace_free(&c);
    }
    tempdir_release(&t);
}

static void test_files(void **state)
{
    (void)state;
    struct tempdir t;
    char text[65536], csv[300], svg[300];
    tempdir_init(&t);
    (void)snprintf(csv, sizeof csv, "%s", tempdir_path(&t, "a.csv"));
    (void)snprintf(svg, sizeof svg, "%s", tempdir_path(&t, "a.svg"));
    assert_int_equal(CALL((char[]){"--days"}, (char[]){"0.5"}, (char[]){"--seeds"}, (char[]){"1..3"},
                          (char[]){"--csv"}, csv, (char[]){"--svg"}, svg, (char[]){"--json"}),
                     PL_EXIT_OK);
    slurp(csv, text, sizeof text);
    uint32_t lines = 0;
    for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++)
        lines++;
    assert_int_equal(lines, 4);
    assert_int_equal(strncmp(text, "chips,learners,algorithm,seed,days,goodput,", 43), 0);
    slurp(svg, text, sizeof text);
    assert_int_equal(strncmp(text, "<svg ", 5), 0);
    assert_non_null(strstr(text, "</svg>"));
    assert_int_equal(CALL((char[]){"--table1"}, (char[]){"--days"}, (char[]){"0.2"}, (char[]){"--csv"}, csv,
                          (char[]){"--svg"}, svg),
                     PL_EXIT_OK);
    slurp(svg, text, sizeof text);
    assert_non_null(strstr(text, "decoupled, M=16"));
    tempdir_release(&t);
}

static void test_refusals(void **state)
{
    (void)state;
    assert_int_equal(CALL((char[]){"--chips"}, (char[]){"0"}), PL_EXIT_USAGE);
    assert_int_equal(CALL((char[]){"--algorithm"}, (char[]){"magic"}), PL_EXIT_USAGE);
    assert_int_equal(CALL((char[]){"--repair-spread"}, (char[]){"wide"}), PL_EXIT_USAGE);
    assert_int_equal(CALL((char[]){"--seeds"}, (char[]){"9..1"}), PL_EXIT_USAGE);
    assert_int_equal(CALL((char[]){"--table1"}, (char[]){"--beyond"}), PL_EXIT_USAGE);
    assert_int_equal(CALL((char[]){"--trace"}, (char[]){"/no/such/file"}), PL_EXIT_FAILED);
    assert_int_equal(CALL((char[]){"--protocol"}, (char[]){"--algorithm"}, (char[]){"diloco"}),
                     PL_EXIT_USAGE);
    assert_int_equal(CALL((char[]){"word"}), PL_EXIT_USAGE);
    assert_int_equal(CALL((char[]){"--csv"}, (char[]){"/no/such/folder/a.csv"}), PL_EXIT_FAILED);
}

/* What is refused or cannot be written leaves what was there, and nothing half done beside it. */
static void test_files_stay(void **state)
{
    (void)state;
    struct tempdir t;
    char text[64], csv[300];
    tempdir_init(&t);
    tempdir_put(&t, "a.csv", "precious", 8);
    (void)snprintf(csv, sizeof csv, "%s", tempdir_path(&t, "a.csv"));
    assert_int_equal(CALL((char[]){"--quorum"}, (char[]){"9"}, (char[]){"--csv"}, csv), PL_EXIT_USAGE);
    assert_int_equal(CALL((char[]){"--csv"}, csv, (char[]){"--svg"}, csv), PL_EXIT_USAGE);
    assert_int_equal(CALL((char[]){"--csv"}, csv, (char[]){"--trace"}, csv), PL_EXIT_USAGE);
    assert_int_equal(CALL((char[]){"--beyond"}, (char[]){"--csv"}, csv), PL_EXIT_USAGE);
    assert_int_equal(CALL((char[]){"--protocol"}, (char[]){"--svg"}, csv), PL_EXIT_USAGE);
    assert_int_equal(CALL((char[]){"--days"}, (char[]){"0.1"}, (char[]){"--csv"}, csv, (char[]){"--svg"},
                          (char[]){"/no/such/folder/a.svg"}),
                     PL_EXIT_FAILED);
    slurp(csv, text, sizeof text);
    assert_string_equal(text, "precious");
    if (access("/dev/full", W_OK) == 0) {
        assert_int_equal(CALL((char[]){"--days"}, (char[]){"0.1"}, (char[]){"--csv"}, (char[]){"/dev/full"}),
                         PL_EXIT_FAILED);
        assert_int_equal(CALL((char[]){"--days"}, (char[]){"0.1"}, (char[]){"--svg"}, (char[]){"/dev/full"}),
                         PL_EXIT_FAILED);
    }
    (void)snprintf(csv, sizeof csv, "%s", tempdir_path(&t, "a.csv.tmp"));
    assert_int_not_equal(access(csv, F_OK), 0);
    tempdir_release(&t);
}

static void test_modes(void **state)
{
    (void)state;
    assert_int_equal(CALL((char[]){"--worlds"}, (char[]){"--days"}, (char[]){"0.2"}, (char[]){"--json"}),
                     PL_EXIT_OK);
    assert_int_equal(
        CALL((char[]){"--beyond"}, (char[]){"--days"}, (char[]){"1"}, (char[]){"--rounds"}, (char[]){"500"}),
        PL_EXIT_OK);
    assert_int_equal(CALL((char[]){"--protocol"}, (char[]){"--days"}, (char[]){"1"}, (char[]){"--rounds"},
                          (char[]){"500"}, (char[]){"--json"}),
                     PL_EXIT_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trace),      cmocka_unit_test(test_files), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_files_stay), cmocka_unit_test(test_modes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
