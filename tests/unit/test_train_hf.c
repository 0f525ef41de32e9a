/* Hugging Face folders: config.json in both directions, weights in one file or in shards, and what is refused. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/bf16.h"
#include "data/tokenizer.h"
#include "memdisk.h"
#include "tokenizer_rig.h"
#include "train/hf.h"
#include "train/hf_int.h"

static struct counting_alloc memory;
static struct pl_disk *disk;
static struct pl_dir dir;
static struct pl_error err;
static struct pl_model_config config;
static struct pl_tensors tensors;
static float *params, *back;

static void make_model(bool tied, bool qk_norm)
{
    config = (struct pl_model_config){.layers = 2,
                                      .width = 24,
                                      .heads = 4,
                                      .kv_heads = 2,
                                      .hidden = 40,
                                      .vocab = 30,
                                      .tied = tied,
                                      .qk_norm = qk_norm};
    pl_model_config_complete(&config);
    config.rope_theta = 500000;
    assert_int_equal(pl_tensors_init(&tensors, &memory.alloc, &config), PELAGO_OK);
    params = calloc((size_t)tensors.floats, sizeof *params);
    back = calloc((size_t)tensors.floats, sizeof *back);
    pl_tensors_fill(&tensors, params, 7);
}

static void drop_model(void)
{
    pl_tensors_release(&tensors, &memory.alloc);
    free(params);
    free(back);
}

static int set_up(void **state)
{
    (void)state;
    counting_alloc_init(&memory);
    disk = pl_disk_new(&memory.alloc, 1);
    dir = pl_disk_dir(disk);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    pl_disk_free(disk);
    assert_int_equal(memory.bytes, 0);
    return 0;
}

static void put_text(const char *name, const char *text)
{
    assert_int_equal(pl_disk_put(disk, name, text, strlen(text)), PELAGO_OK);
}

static bool file_has(const char *name, const char *words)
{
    uint64_t len = 0;
    const uint8_t *bytes = pl_disk_peek(disk, name, &len);
    return bytes != NULL && memmem(bytes, len, words, strlen(words)) != NULL;
}

static void export_as(enum pl_dtype dtype, const char *tokenizer)
{
    const struct pl_hf_model m = {.config = &config,
                                  .tensors = &tensors,
                                  .params = params,
                                  .dtype = dtype,
                                  .tokenizer = {tokenizer, strlen(tokenizer)}};
    if (pl_hf_export(dir, &memory.alloc, &m, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
}

static void expect_params(enum pl_dtype dtype)
{
    if (pl_hf_read_params(dir, &memory.alloc, &tensors, back, &err) != PELAGO_OK)
        fail_msg("%s", err.text);
    for (uint64_t i = 0; i < tensors.floats; i++)
        assert_true(back[i] ==
                    (dtype == PL_DTYPE_F32 ? params[i] : pl_bf16_to_float(pl_bf16_of_float(params[i]))));
}

static void test_round_trip(void **state)
{
    (void)state;
    for (unsigned k = 0; k < 8; k++) {
        struct pl_model_config read;
        enum pl_dtype dtype = k % 2 == 0 ? PL_DTYPE_F32 : PL_DTYPE_BF16;
        make_model((k & 2) != 0, (k & 4) != 0);
        export_as(dtype, "");
        assert_int_equal(pl_hf_read_config(dir, &memory.alloc, &read, &err), PELAGO_OK);
        assert_memory_equal(&read, &config, sizeof config);
        expect_params(dtype);
        assert_true(file_has("config.json", (k & 4) != 0 ? "Qwen3ForCausalLM" : "LlamaForCausalLM"));
        assert_true(file_has("config.json", "\"rms_norm_eps\": 1e-5")); /* as a person would write it */
        assert_true(file_has("config.json", dtype == PL_DTYPE_F32 ? "\"float32\"" : "\"bfloat16\""));
        assert_true(file_has("config.json", "\"eos_token_id\": null"));
        assert_false(file_has("tokenizer_config.json", ""));
        drop_model();
    }
}

/* Exports with this tokenizer.json and expects that end of text. */
static void expect_end(const char *text, uint32_t id, const char *name)
{
    char number[64], eos[64];
    struct pl_buf read;
    struct pl_tokenizer *t;
    (void)snprintf(number, sizeof number, "\"eos_token_id\": %u", id);
    (void)snprintf(eos, sizeof eos, "\"eos_token\": \"%s\"", name);
    export_as(PL_DTYPE_F32, text);
    assert_true(file_has("tokenizer.json", text));
    assert_true(file_has("config.json", number));
    assert_true(file_has("generation_config.json", number));
    assert_true(file_has("tokenizer_config.json", eos));
    pl_buf_init(&read, &memory.alloc, 1 << 20);
    assert_int_equal(pl_hf_read_tokenizer(dir, &read, &err), PELAGO_OK);
    assert_int_equal(read.len, strlen(text));
    assert_int_equal(pl_tokenizer_parse(&t, &memory.alloc, read.data, read.len, &err), PELAGO_OK);
    assert_int_equal(pl_tokenizer_end_of_text(t), id);
    pl_tokenizer_free(t);
    pl_buf_release(&read);
}

/* The token between texts is the one the data was made with, in whatever order the file has them. */
static void test_tokenizer(void **state)
{
    (void)state;
    struct pl_alloc heap = pl_alloc_system();
    struct pl_tokenizer *t = rig_train(&heap, PL_TRAIN_BYTES, rig_text, 0);
    char *two = rig_replace(t, "\"added_tokens\": [",
                            "\"added_tokens\": [{\"id\": 300, \"content\": \"</s>\"}, {\"id\": 301, "
                            "\"content\": \"<|im_end|>\"}, ");
    make_model(true, false);
    expect_end(two, 0, "<|endoftext|>");
    free(two);
    pl_tokenizer_free(t);
    const struct pl_hf_model m = {.config = &config,
                                  .tensors = &tensors,
                                  .params = params,
                                  .dtype = PL_DTYPE_F32,
                                  .tokenizer = {"no JSON", 7}};
    assert_int_equal(pl_hf_export(dir, &memory.alloc, &m, &err), PELAGO_INVALID);
    assert_non_null(strstr(err.text, "tokenizer.json: line 1 is not valid JSON"));
    drop_model();
}

#define REQUIRED                                                                                             \
    "\"num_hidden_layers\": 2, \"hidden_size\": 24, \"intermediate_size\": 40, \"num_attention_heads\": 4, " \
    "\"vocab_size\": 30"
#define LLAMA "{\"model_type\": \"llama\", " REQUIRED

static void test_configs(void **state)
{
    (void)state;
    struct pl_model_config c;
    put_text("config.json", LLAMA "}");
    assert_int_equal(pl_hf_read_config(dir, &memory.alloc, &c, &err), PELAGO_OK);
    assert_true(c.kv_heads == 4 && c.head_dim == 6 && c.context == 2048 && !c.tied && !c.qk_norm);
    assert_true(c.rope_theta == 10000 && c.norm_eps == 1e-6f);
    put_text("config.json",
             "{\"model_type\": \"qwen3\", \"use_sliding_window\": false, \"sliding_window\": null, "
             "\"layer_types\": [\"full_attention\"], " REQUIRED "}");
    assert_int_equal(pl_hf_read_config(dir, &memory.alloc, &c, &err), PELAGO_OK);
    assert_true(c.head_dim == 128 && c.qk_norm);
    put_text("config.json",
             LLAMA ", \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 5e5}, "
                   "\"head_dim\": null, \"rope_scaling\": null, \"tie_word_embeddings\": true}");
    assert_int_equal(pl_hf_read_config(dir, &memory.alloc, &c, &err), PELAGO_OK);
    assert_true(c.rope_theta == 500000 && c.head_dim == 6 && c.tied);
}

static void test_refused_configs(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *sentence;
    } cases[] = {
        {"{" REQUIRED "}", "\"model_type\" is missing"},
        {"{\"model_type\": \"gpt2\"}", "\"model_type\" is \"gpt2\"; pelago reads \"llama\" and \"qwen3\""},
        {LLAMA ", \"attention_bias\": true}", "\"attention_bias\" must be false"},
        {LLAMA ", \"mlp_bias\": true}", "\"mlp_bias\" must be false"},
        {LLAMA ", \"mlp_bias\": 3}", "\"mlp_bias\" must be true or false"},
        {LLAMA ", \"hidden_act\": \"gelu\"}", "\"hidden_act\" is \"gelu\"; pelago's model has \"silu\" only"},
        {LLAMA ", \"rope_scaling\": {\"rope_type\": \"llama3\"}}",
         "\"rope_scaling.rope_type\" is \"llama3\""},
        {LLAMA ", \"rope_scaling\": {\"type\": \"linear\"}}", "\"rope_scaling.type\" is \"linear\""},
        {LLAMA ", \"rope_parameters\": {\"rope_type\": \"yarn\"}}",
         "\"rope_parameters.rope_type\" is \"yarn\""},
        {LLAMA ", \"partial_rotary_factor\": 0.5}", "\"partial_rotary_factor\" must be 1"},
        {LLAMA ", \"use_sliding_window\": true}", "\"use_sliding_window\" must be false"},
        {LLAMA ", \"layer_types\": [\"full_attention\", \"sliding_attention\"]}", "\"layer_types\" must be"},
        {LLAMA ", \"quantization_config\": {}}", "the weights are quantized"},
        {LLAMA ", \"num_key_value_heads\": 3}", "config.json: the model's kv_heads is 3"},
        {LLAMA ", \"num_key_value_heads\": -3}", "\"num_key_value_heads\" must be a whole number"},
        {LLAMA ", \"num_key_value_heads\": 5000000000}", "at most 4294967295 is allowed"},
        {"{\"model_type\": \"llama\", \"hidden_size\": 24}", "\"num_hidden_layers\" is missing"},
        {"[]", "config.json is not a JSON object"},
    };
    struct pl_model_config c;
    assert_int_equal(pl_hf_read_config(dir, &memory.alloc, &c, &err), PELAGO_NOTFOUND);
    assert_string_equal(err.text, "config.json is not there");
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        put_text("config.json", cases[i].text);
        assert_int_not_equal(pl_hf_read_config(dir, &memory.alloc, &c, &err), PELAGO_OK);
        if (strstr(err.text, cases[i].sentence) == NULL)
            fail_msg("expected \"%s\" in \"%s\"", cases[i].sentence, err.text);
    }
}

/* The tensors from `first` on, to a file of their own; `extra` is another name for the first, or NULL. */
static void write_shard(const char *name, uint32_t first, uint32_t count, const char *extra)
{
    struct pl_st_item items[64];
    struct pl_st_written written;
    for (uint32_t i = 0; i < count; i++) {
        const struct pl_tensor *t = &tensors.at[first + i];
        items[i] = (struct pl_st_item){.name = t->name,
                                       .at = params + t->offset,
                                       .dtype = PL_DTYPE_F32,
                                       .rows = t->rows,
                                       .cols = t->cols};
    }
    if (extra != NULL) {
        items[count] = items[0];
        items[count++].name = extra;
    }
    assert_int_equal(pl_st_write(dir, name, &memory.alloc, items, count, &written, &err), PELAGO_OK);
}

static void write_index(const char *odd_tensor, const char *odd_file)
{
    json_t *map = json_object();
    for (uint32_t i = 0; i < tensors.count; i++) {
        const char *file = i < 7 ? "model-00001-of-00002.safetensors" : "model-00002-of-00002.safetensors";
        const char *name = tensors.at[i].name;
        if (odd_tensor != NULL && strcmp(name, odd_tensor) == 0)
            file = odd_file;
        if (file != NULL)
            assert_int_equal(json_object_set_new(map, name, json_string(file)), 0);
    }
    json_t *root = json_pack("{s:{}, s:o}", "metadata", "weight_map", map);
    struct pl_buf text;
    pl_buf_init(&text, &memory.alloc, 1 << 20);
    assert_int_equal(pl_json_print(root, 9, &text), PELAGO_OK);
    assert_int_equal(pl_disk_put(disk, "model.safetensors.index.json", text.data, text.len), PELAGO_OK);
    pl_buf_release(&text);
    json_decref(root);
}

static void expect_refused(const char *sentence)
{
    assert_int_not_equal(pl_hf_read_params(dir, &memory.alloc, &tensors, back, &err), PELAGO_OK);
    assert_string_equal(err.text, sentence);
}

static void test_shards(void **state)
{
    (void)state;
    make_model(true, false);
    expect_refused("there is neither model.safetensors nor model.safetensors.index.json");
    write_shard("model-00001-of-00002.safetensors", 0, 7,
                "lm_head.weight"); /* a copy of the tied embedding */
    write_shard("model-00002-of-00002.safetensors", 7, tensors.count - 7,
                "model.layers.0.self_attn.rotary_emb.inv_freq");
    write_index(NULL, NULL);
    expect_params(PL_DTYPE_F32);
    write_index("model.norm.weight", NULL);
    expect_refused("model.safetensors.index.json: tensor model.norm.weight is missing");
    write_index("model.norm.weight", "../model.safetensors");
    expect_refused(
        "model.safetensors.index.json: the file of tensor model.norm.weight must be a name without /");
    write_index("model.norm.weight", "model-00003-of-00002.safetensors");
    expect_refused("model-00003-of-00002.safetensors is not there");
    write_index("model.norm.weight", "model-00001-of-00002.safetensors");
    expect_refused("model-00001-of-00002.safetensors: tensor model.norm.weight is missing");
    write_index(NULL, NULL);
    write_shard("model-00002-of-00002.safetensors", 7, tensors.count - 7, "model.vision.weight");
    expect_refused(
        "model-00002-of-00002.safetensors has a tensor model.vision.weight, which this model does not");
    put_text("model.safetensors.index.json", "{}");
    expect_refused("model.safetensors.index.json: \"weight_map\" is missing, expected an object");
    drop_model();
}

static void test_wrong_weights(void **state)
{
    (void)state;
    make_model(false, false);
    write_shard("model.safetensors", 0, tensors.count - 1, NULL);
    expect_refused("model.safetensors: tensor lm_head.weight is missing");
    write_shard("model.safetensors", 0, tensors.count, NULL);
    expect_params(PL_DTYPE_F32);
    tensors.at[0].cols = 23;
    expect_refused(
        "model.safetensors: tensor model.embed_tokens.weight has the shape [30, 24], expected [30, 23]");
    tensors.at[0].cols = 24;
    drop_model();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_round_trip, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_tokenizer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_configs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_refused_configs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_shards, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_wrong_weights, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
