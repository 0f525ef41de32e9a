/* Checkpoints: what is saved comes back bit for bit, the newest is found, old ones go, and problems have sentences. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <math.h>
#include <string.h>
#include <cmocka.h>

#include "checkpoint_rig.h"
#include "os/dir_posix.h"
#include "tempdir.h"
#include "train/checkpoint_int.h"

static struct rig rig;
static struct pl_disk *disk;
static struct pl_dir dir;

static int set_up(void **state)
{
    (void)state;
    ckrig_init(&rig);
    disk = pl_disk_new(&rig.memory.alloc, 1);
    dir = pl_disk_dir(disk);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    pl_disk_free(disk);
    ckrig_release(&rig);
    return 0;
}

static bool has(const char *name)
{
    uint64_t len;
    return pl_disk_peek(disk, name, &len) != NULL;
}

static void expect_failure(uint64_t step, enum pelago_status status, const char *sentence)
{
    uint64_t found;
    assert_int_equal(ckrig_load(&rig, dir, step, &found), status);
    assert_string_equal(rig.error.text, sentence);
}

static void test_save_and_load(void **state)
{
    (void)state;
    expect_failure(PL_NONE64, PELAGO_NOTFOUND, "there is no checkpoint (no file state-*.json)");
    for (uint64_t step = 10; step < 15; step++) {
        ckrig_must_save(&rig, dir, step, 2);
        ckrig_must_load(&rig, dir, PL_NONE64, step);
    }
    ckrig_must_load(&rig, dir, 13, 13);
    expect_failure(12, PELAGO_NOTFOUND, "there is no checkpoint of step 12");
    assert_int_equal(ckrig_file_count(dir), 8);
    assert_true(has("model-00000014.safetensors") && has("optimizer-00000013.safetensors"));
    assert_true(has("tokenizer-00000014.json") && has("state-00000013.json"));
    uint64_t step = 0;
    assert_int_equal(pl_checkpoint_newest(dir, 14, &step, &rig.error), PELAGO_OK);
    assert_int_equal(step, 13);
    assert_int_equal(pl_checkpoint_newest(dir, 13, &step, &rig.error), PELAGO_NOTFOUND);
    assert_string_equal(rig.error.text, "there is no checkpoint before step 13");
}

static void test_real_directory(void **state)
{
    (void)state;
    struct tempdir temp;
    struct pl_posix_dir *posix;
    tempdir_init(&temp);
    assert_int_equal(pl_posix_dir_open(&posix, &rig.memory.alloc, temp.path, PL_POSIX_DIR_EXISTING, NULL),
                     PELAGO_OK);
    dir = pl_posix_dir_table(posix);
    for (uint64_t step = 0; step < 4; step++)
        ckrig_must_save(&rig, dir, step, 2);
    ckrig_must_load(&rig, dir, PL_NONE64, 3);
    assert_int_equal(tempdir_count(&temp), 8);
    dir = pl_disk_dir(disk);
    pl_posix_dir_close(posix);
    tempdir_release(&temp);
}

static void test_keep(void **state)
{
    (void)state;
    for (uint64_t step = 0; step < 5; step++)
        ckrig_must_save(&rig, dir, step, 0);
    assert_int_equal(ckrig_file_count(dir), 20);
    ckrig_must_load(&rig, dir, 0, 0);
    ckrig_must_save(&rig, dir, 5, 1);
    assert_int_equal(ckrig_file_count(dir), 4);
}

/* The same step again, as after Ctrl-C at a step that was saved anyway. */
static void test_same_step_again(void **state)
{
    (void)state;
    ckrig_must_save(&rig, dir, 7, 2);
    for (uint64_t stamp = 100; stamp < 105; stamp++) {
        uint64_t found;
        ckrig_set(&rig, stamp);
        assert_int_equal(ckrig_save(&rig, dir, 7, 2), PELAGO_OK);
        assert_int_equal(ckrig_load(&rig, dir, PL_NONE64, &found), PELAGO_OK);
        assert_int_equal(found, 7);
        ckrig_check(&rig, stamp);
        assert_int_equal(ckrig_file_count(dir), 4);
    }
}

static void test_later_step_is_there(void **state)
{
    (void)state;
    ckrig_must_save(&rig, dir, 7, 2);
    ckrig_set(&rig, 6);
    assert_int_equal(ckrig_save(&rig, dir, 6, 2), PELAGO_INVALID);
    assert_string_equal(rig.error.text,
                        "the checkpoint of step 6 cannot be saved: there is one of step 7 already");
    ckrig_must_load(&rig, dir, PL_NONE64, 7);
}

/* Whatever is not ours stays; whatever no state speaks of goes with the next save. */
static void test_leftovers(void **state)
{
    (void)state;
    const char *const ours[] = {"model-00000003.safetensors", "optimizer-00000009-2.safetensors",
                                "tokenizer-00000000.json", "state-00000009.json.partial"};
    const char *const others[] = {
        "model.safetensors",           "model-3.safetensors", "model-00000003.safetensors.bak",
        "state-00000009-1.json",       "notes.txt",           "xmodel-00000003.safetensors",
        "model-00000003-0.safetensors"};
    ckrig_must_save(&rig, dir, 5, 2);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(pl_disk_put(disk, ours[i], "x", 1), PELAGO_OK);
    for (unsigned i = 0; i < 7; i++)
        assert_int_equal(pl_disk_put(disk, others[i], "x", 1), PELAGO_OK);
    ckrig_must_load(&rig, dir, PL_NONE64, 5);
    ckrig_must_save(&rig, dir, 6, 2);
    for (unsigned i = 0; i < 4; i++)
        assert_false(has(ours[i]));
    for (unsigned i = 0; i < 7; i++)
        assert_true(has(others[i]));
    assert_int_equal(ckrig_file_count(dir), 8 + 7);
}

/* A state that cannot be read keeps its data: a person may want to look. */
static void test_damaged_state_keeps_data(void **state)
{
    (void)state;
    ckrig_must_save(&rig, dir, 5, 3);
    assert_true(pl_disk_rot(disk, "state-00000005.json", 100, 1));
    ckrig_must_save(&rig, dir, 6, 3);
    assert_true(has("model-00000005.safetensors"));
    expect_failure(5, PELAGO_CORRUPT, "checkpoint state-00000005.json is damaged (its checksum differs)");
    ckrig_must_load(&rig, dir, PL_NONE64, 6);
}

static uint64_t data_at(const char *file, const char *tensor)
{
    struct pl_st_reader r;
    assert_int_equal(pl_st_open(&r, &rig.memory.alloc, dir, file, NULL), PELAGO_OK);
    uint64_t at = r.data_start + pl_st_find(&r, tensor)->begin;
    pl_st_close(&r);
    return at;
}

static void test_damage_names_the_tensor(void **state)
{
    (void)state;
    const char model[] = "model-00001200.safetensors", optimizer[] = "optimizer-00001200.safetensors";
    ckrig_must_save(&rig, dir, 1200, 2);
    uint64_t at = data_at(model, "model.layers.0.mlp.up_proj.weight");
    assert_true(pl_disk_rot(disk, model, at + 5, 4));
    expect_failure(
        PL_NONE64, PELAGO_CORRUPT,
        "checkpoint model-00001200.safetensors: tensor model.layers.0.mlp.up_proj.weight is damaged (its "
        "checksum differs)");
    assert_true(pl_disk_rot(disk, model, at + 5, 4));
    at = data_at(optimizer, "adam_v.model.norm.weight");
    assert_true(pl_disk_rot(disk, optimizer, at, 128));
    expect_failure(
        PL_NONE64, PELAGO_CORRUPT,
        "checkpoint optimizer-00001200.safetensors: tensor adam_v.model.norm.weight is damaged (its "
        "checksum differs)");
    assert_true(pl_disk_rot(disk, optimizer, at, 128));
    assert_true(pl_disk_rot(disk, "tokenizer-00001200.json", 3, 1));
    expect_failure(PL_NONE64, PELAGO_CORRUPT,
                   "checkpoint tokenizer-00001200.json is damaged (its checksum differs)");
    assert_int_equal(dir.ops->remove(dir.self, model), PELAGO_OK);
    expect_failure(PL_NONE64, PELAGO_CORRUPT,
                   "checkpoint model-00001200.safetensors is missing, though state-00001200.json names it");
    assert_int_equal(pl_disk_put(disk, model, "short", 5), PELAGO_OK);
    assert_int_equal(ckrig_load(&rig, dir, PL_NONE64, &at), PELAGO_CORRUPT);
    assert_non_null(strstr(rig.error.text, "is damaged (it has 5 bytes, expected "));
}

static void test_go_back(void **state)
{
    (void)state;
    ckrig_must_save(&rig, dir, 5, 0);
    ckrig_must_save(&rig, dir, 6, 0);
    ckrig_must_save(&rig, dir, 7, 0);
    assert_int_equal(dir.ops->remove(dir.self, "optimizer-00000007.safetensors"), PELAGO_OK);
    struct pl_checkpoint_reader *c; /* a model can be used without it */
    assert_int_equal(pl_checkpoint_open(&c, dir, &rig.memory.alloc, 7, &rig.error), PELAGO_OK);
    pl_checkpoint_close(c);
    const char missing[] =
        "checkpoint optimizer-00000007.safetensors is missing, though state-00000007.json names it";
    expect_failure(PL_NONE64, PELAGO_CORRUPT, missing);
    assert_int_equal(pl_checkpoint_advise(dir, &rig.memory.alloc, PL_NONE64, PELAGO_CORRUPT, &rig.error),
                     PELAGO_CORRUPT);
    assert_non_null(strstr(rig.error.text, "; --step 6 goes back to the checkpoint before it"));
    expect_failure(7, PELAGO_CORRUPT, missing); /* and none is advised that is damaged, too */
    assert_int_equal(dir.ops->remove(dir.self, "model-00000006.safetensors"), PELAGO_OK);
    (void)pl_checkpoint_advise(dir, &rig.memory.alloc, 7, PELAGO_CORRUPT, &rig.error);
    assert_string_equal(rig.error.text, missing);
}

static void test_renamed_state(void **state)
{
    (void)state;
    ckrig_must_save(&rig, dir, 5, 2);
    assert_int_equal(dir.ops->rename(dir.self, "state-00000005.json", "state-00000009.json"), PELAGO_OK);
    expect_failure(PL_NONE64, PELAGO_CORRUPT, "state-00000009.json is of step 5: it has been renamed");
}

static void test_other_shape(void **state)
{
    (void)state;
    struct pl_checkpoint_reader *c;
    ckrig_must_save(&rig, dir, 5, 2);
    assert_int_equal(pl_checkpoint_open(&c, dir, &rig.memory.alloc, PL_NONE64, &rig.error), PELAGO_OK);
    assert_memory_equal(pl_checkpoint_config(c), &rig.config, sizeof rig.config);
    assert_true(pl_checkpoint_has_optimizer(c) && pl_checkpoint_has_tokenizer(c));
    struct pl_tensors other = rig.tensors;
    struct pl_tensor table[32];
    memcpy(table, other.at, other.count * sizeof table[0]);
    other.at = table;
    table[0].rows++;
    assert_int_equal(pl_checkpoint_read_params(c, &other, rig.params, &rig.error), PELAGO_INVALID);
    assert_string_equal(rig.error.text,
                        "model-00000005.safetensors: tensor model.embed_tokens.weight has the shape "
                        "[5, 8], expected [6, 8]");
    table[0].rows--;
    memcpy(table[0].name, "other", 6);
    assert_int_equal(pl_checkpoint_read_params(c, &other, rig.params, &rig.error), PELAGO_INVALID);
    assert_string_equal(rig.error.text, "checkpoint model-00000005.safetensors: tensor other is missing");
    other.at++;
    other.count--;
    assert_int_equal(pl_checkpoint_read_params(c, &other, rig.params, &rig.error), PELAGO_INVALID);
    assert_non_null(strstr(rig.error.text, "tensors, expected"));
    assert_int_equal(pl_checkpoint_read_spans(c, rig.spans + 1, rig.span_count - 1, &rig.error),
                     PELAGO_INVALID);
    pl_checkpoint_close(c);
    pl_checkpoint_close(NULL);
}

static void test_without_optimizer(void **state)
{
    (void)state;
    struct pl_checkpoint_reader *c;
    struct pl_buf text;
    ckrig_set(&rig, 1);
    rig.checkpoint.span_count = rig.checkpoint.field_count = 0;
    rig.checkpoint.tokenizer.len = 0;
    assert_int_equal(ckrig_save(&rig, dir, 0, 2), PELAGO_OK);
    assert_int_equal(ckrig_file_count(dir), 2);
    assert_int_equal(pl_checkpoint_open(&c, dir, &rig.memory.alloc, PL_NONE64, &rig.error), PELAGO_OK);
    assert_false(pl_checkpoint_has_optimizer(c) || pl_checkpoint_has_tokenizer(c));
    assert_int_equal(pl_checkpoint_read_params(c, &rig.tensors, rig.params, &rig.error), PELAGO_OK);
    assert_int_equal(pl_checkpoint_read_spans(c, rig.spans, rig.span_count, &rig.error), PELAGO_NOTFOUND);
    assert_string_equal(rig.error.text, "the checkpoint of step 0 has no optimizer state");
    assert_int_equal(pl_checkpoint_read_fields(c, rig.fields, RIG_FIELDS, &rig.error), PELAGO_CORRUPT);
    assert_string_equal(rig.error.text,
                        "state-00000000.json: \"progress.tokens\" is missing, expected a whole number");
    pl_buf_init(&text, &rig.memory.alloc, 1000);
    assert_int_equal(pl_checkpoint_read_tokenizer(c, &text, &rig.error), PELAGO_NOTFOUND);
    pl_buf_release(&text);
    pl_checkpoint_close(c);
}

static void test_odd_numbers(void **state)
{
    (void)state;
    const double odd[] = {0.0, -0.0,    HUGE_VAL, -HUGE_VAL, (double)NAN, 5e-324, 1.7976931348623157e308,
                          0.1, 1.0 / 3, 12345678};
    for (unsigned i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        uint64_t found;
        ckrig_set(&rig, i);
        rig.loss = odd[i];
        rig.tokens = PL_COUNT_MAX;
        assert_int_equal(ckrig_save(&rig, dir, i, 2), PELAGO_OK);
        assert_int_equal(ckrig_load(&rig, dir, i, &found), PELAGO_OK);
        assert_int_equal(rig.tokens, PL_COUNT_MAX);
        if (isnan(odd[i]))
            assert_true(isnan(rig.loss));
        else
            assert_memory_equal(&rig.loss, &odd[i], sizeof odd[i]);
    }
    ckrig_set(&rig, 50);
    memcpy(rig.data, "\xff\xfe", 3);
    assert_int_equal(ckrig_save(&rig, dir, 50, 2), PELAGO_INVALID);
    assert_string_equal(rig.error.text, "data.name is not UTF-8 text and cannot be saved");
}

/* Every field of the wrong type, and a text that is too long. */
static void test_wrong_fields(void **state)
{
    (void)state;
    struct pl_checkpoint_reader *c;
    char little[4];
    uint64_t number;
    ckrig_must_save(&rig, dir, 5, 2);
    assert_int_equal(pl_checkpoint_open(&c, dir, &rig.memory.alloc, PL_NONE64, &rig.error), PELAGO_OK);
    const struct {
        struct pl_member field;
        const char *sentence;
    } cases[] = {
        {{"data.name", PL_MEMBER_COUNT, &number, 0, false}, "\"data.name\" must be a whole number"},
        {{"data.name", PL_MEMBER_REAL, &number, 0, false}, "\"data.name\" is a text of"},
        {{"data", PL_MEMBER_REAL, &number, 0, false}, "\"data\" must be a number"},
        {{"data.name", PL_MEMBER_BITS, &number, 0, false}, "\"data.name\" must be 16 hexadecimal digits"},
        {{"seed", PL_MEMBER_FLAG, &number, 0, true}, "\"seed\" must be true or false"},
        {{"optimizer.muon", PL_MEMBER_TEXT, little, sizeof little, false},
         "\"optimizer.muon\" must be a text"},
        {{"data.name", PL_MEMBER_TEXT, little, sizeof little, false}, "at most 3 are allowed"},
        {{"data.none.x", PL_MEMBER_BITS, &number, 0, false}, "\"data.none.x\" is missing"},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_not_equal(pl_checkpoint_read_fields(c, &cases[i].field, 1, &rig.error), PELAGO_OK);
        if (strstr(rig.error.text, cases[i].sentence) == NULL)
            fail_msg("expected \"%s\" in \"%s\"", cases[i].sentence, rig.error.text);
        assert_non_null(strstr(rig.error.text, "state-00000005.json"));
    }
    pl_checkpoint_close(c);
}

/* Disk full, failing syncs, no memory, at every point: a sentence, nothing left behind, and the old one loads. */
static void try_failures(enum pl_disk_op op, enum pelago_status status)
{
    for (uint64_t after = 0;; after++) {
        ckrig_set(&rig, 6);
        pl_disk_set_fault(disk, op, (struct pl_disk_fault){after, 1, status});
        enum pelago_status st = ckrig_save(&rig, dir, 6, 2);
        bool fired = st != PELAGO_OK;
        pl_disk_set_fault(disk, op, (struct pl_disk_fault){0, 0, PELAGO_OK});
        uint64_t newest = 0;
        assert_int_equal(pl_checkpoint_newest(dir, PL_NONE64, &newest, &rig.error), PELAGO_OK);
        if (fired && newest == 5)
            assert_int_equal(ckrig_file_count(dir), 4);
        ckrig_must_load(&rig, dir, 5, 5);
        ckrig_must_load(&rig, dir, PL_NONE64, newest);
        if (newest == 6 && !fired)
            break;
        assert_true(after < 100);
        if (newest == 6) { /* only the last sync of the directory failed: start again from step 5 */
            const char *const files[] = {"state-00000006.json", "model-00000006.safetensors",
                                         "optimizer-00000006.safetensors", "tokenizer-00000006.json"};
            for (unsigned i = 0; i < 4; i++)
                assert_int_equal(dir.ops->remove(dir.self, files[i]), PELAGO_OK);
        }
    }
}

static void test_failing_disk(void **state)
{
    (void)state;
    ckrig_must_save(&rig, dir, 5, 2);
    try_failures(PL_DISK_WRITE, PELAGO_FULL);
    pl_disk_free(disk);
    disk = pl_disk_new(&rig.memory.alloc, 2);
    dir = pl_disk_dir(disk);
    ckrig_must_save(&rig, dir, 5, 2);
    try_failures(PL_DISK_SYNC, PELAGO_IO);
}

static void test_full_disk(void **state)
{
    (void)state;
    ckrig_must_save(&rig, dir, 5, 2);
    uint64_t used = pl_disk_used_bytes(disk);
    for (uint64_t room = 0; room < used - 8; room += 61) { /* the new one is about as large as the old one */
        pl_disk_set_capacity(disk, used + room);
        ckrig_set(&rig, 6);
        assert_int_equal(ckrig_save(&rig, dir, 6, 2), PELAGO_FULL);
        assert_non_null(strstr(rig.error.text, "cannot be written: no space left"));
        assert_int_equal(ckrig_file_count(dir), 4);
        ckrig_must_load(&rig, dir, PL_NONE64, 5);
    }
}

static void test_no_memory(void **state)
{
    (void)state;
    uint64_t found;
    ckrig_must_save(&rig, dir, 5, 2);
    for (uint64_t n = 0;; n++) {
        rig.memory.fail_at = rig.memory.requests + n;
        rig.memory.fail_times = 1;
        enum pelago_status st = ckrig_load(&rig, dir, PL_NONE64, &found);
        rig.memory.fail_at = PL_NEVER;
        if (st == PELAGO_OK)
            break;
        assert_int_equal(st, PELAGO_NOMEM);
        assert_true(rig.error.text[0] != '\0' && n < 1000);
    }
    for (uint64_t n = 0;; n++) {
        ckrig_set(&rig, 6);
        rig.memory.fail_at = rig.memory.requests + n;
        rig.memory.fail_times = 1;
        enum pelago_status st = ckrig_save(&rig, dir, 6, 2);
        rig.memory.fail_at = PL_NEVER;
        assert_true(st == PELAGO_OK || (st == PELAGO_NOMEM && rig.error.text[0] != '\0'));
        uint64_t newest = 0;
        assert_int_equal(pl_checkpoint_newest(dir, PL_NONE64, &newest, NULL), PELAGO_OK);
        assert_int_equal(newest, st == PELAGO_OK ? 6 : 5);
        ckrig_must_load(&rig, dir, PL_NONE64, newest);
        if (st == PELAGO_OK)
            break;
        assert_true(n < 1000);
    }
}

static void test_names(void **state)
{
    (void)state;
    char text[PL_FILE_NAME_MAX];
    struct pl_ckpt_name n;
    const uint64_t steps[] = {0, 1, 99999999, 100000000, PL_COUNT_MAX};
    for (unsigned kind = 0; kind < PL_CKPT_KINDS; kind++)
        for (unsigned i = 0; i < 5; i++) {
            const struct pl_ckpt_name name = {(enum pl_ckpt_kind)kind, steps[i],
                                              kind < PL_CKPT_STATE ? i : 0};
            pl_ckpt_name_put(&name, text);
            assert_true(pl_ckpt_name_parse(text, &n));
            assert_true(n.kind == name.kind && n.step == name.step && n.again == name.again);
        }
    const char *const wrong[] = {"",
                                 "state-.json",
                                 "state-1.json",
                                 "state-0000000001.json",
                                 "state-4611686018427387905.json",
                                 "state-99999999999999999999.json",
                                 "state-00000001.jso",
                                 "model-00000001-.safetensors",
                                 "model-00000001-01.safetensors",
                                 "model-00000001-4294967296.safetensors"};
    for (unsigned i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_false(pl_ckpt_name_parse(wrong[i], &n));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_save_and_load, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_real_directory, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_keep, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_same_step_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_later_step_is_there, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_leftovers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_damaged_state_keeps_data, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_damage_names_the_tensor, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_renamed_state, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_other_shape, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_without_optimizer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_go_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_odd_numbers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_wrong_fields, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_failing_disk, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_full_disk, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_memory, set_up, tear_down),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
