/* Fuzz target: a safetensors file of arbitrary bytes, and a checkpoint whose files were tampered with.
 *
 * The first byte chooses. A raw file; a header as given with its length put right and data behind it; or a good
 * checkpoint with some bytes of one file changed, where the digest of the state file may be put right again. Whatever
 * opens must keep its word: tensors lie one behind the other, fill the file exactly, and can be read.
 */
#include "base/alloc.h"
#include "base/check.h"
#include "base/hash.h"
#include "base/num.h"
#include "sim/disk.h"
#include "train/checkpoint.h"
#include "train/hf.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FILE_BYTES_MAX = 1 << 16, BLOCK_FLOATS = 4096 };
static uint8_t file[FILE_BYTES_MAX];
static float block[FILE_BYTES_MAX];
static float params[BLOCK_FLOATS], moments[BLOCK_FLOATS];

static void check_file(struct pl_disk *disk, const struct pl_alloc *alloc)
{
    struct pl_st_reader r;
    struct pl_error err = {.text = ""};
    if (pl_st_open(&r, alloc, pl_disk_dir(disk), "f.safetensors", &err) != PELAGO_OK) {
        pl_assert(strstr(err.text, "f.safetensors") != NULL);
        return;
    }
    uint64_t at = 0;
    for (uint32_t i = 0; i < r.count; i++) {
        const struct pl_st_tensor *t = &r.tensors[i];
        uint64_t digest = 0, again = 1;
        pl_assert(t->begin == at && t->bytes == t->count * pl_dtype_bytes(t->dtype));
        at += t->bytes;
        pl_assert(r.data_start + at <= r.file_bytes && t->count <= FILE_BYTES_MAX);
        pl_assert(pl_st_scan(&r, t, NULL, NULL, &again, &err) == PELAGO_OK);
        enum pelago_status st = pl_st_read(&r, t, block, &digest, &err);
        pl_assert(st == (pl_dtype_is_readable(t->dtype) ? PELAGO_OK : PELAGO_UNSUPPORTED));
        pl_assert(st != PELAGO_OK || digest == again);
        pl_assert(pl_st_find(&r, t->name) != NULL);
    }
    pl_assert(r.data_start + at == r.file_bytes);
    pl_st_close(&r);
}

static void fuzz_file(struct pl_disk *disk, const struct pl_alloc *alloc, struct pl_reader *in, bool repair)
{
    size_t data_bytes = repair ? (size_t)pl_read_le(in, 2) % 512 : 0;
    size_t len = pl_reader_left(in), head = repair ? 8 : 0;
    const uint8_t *bytes = pl_read_bytes(in, len);
    if (in->bad || head + len + data_bytes > sizeof file)
        return;
    if (repair)
        pl_put_le(file, len, 8);
    if (len > 0)
        memcpy(file + head, bytes, len);
    memset(file + head + len, 0x3f, data_bytes);
    pl_assert(pl_disk_put(disk, "f.safetensors", file, head + len + data_bytes) == PELAGO_OK);
    check_file(disk, alloc);
}

static const struct pl_model_config config = {.layers = 1,
                                              .width = 8,
                                              .heads = 2,
                                              .kv_heads = 1,
                                              .head_dim = 4,
                                              .hidden = 6,
                                              .vocab = 5,
                                              .context = 16,
                                              .tied = true,
                                              .rope_theta = 10000,
                                              .norm_eps = 1e-5f};
static const char *const names[] = {"model-00000001.safetensors", "optimizer-00000001.safetensors",
                                    "tokenizer-00000001.json", "state-00000001.json"};

static void save(struct pl_disk *disk, const struct pl_alloc *alloc, const struct pl_tensors *tensors)
{
    uint64_t tokens = 5;
    const struct pl_named_span span = {"adam_m.x", 2, 3, moments};
    const struct pl_member field = {"tokens", PL_MEMBER_COUNT, &tokens, 0, false};
    const struct pl_checkpoint c = {.config = &config,
                                    .tensors = tensors,
                                    .params = params,
                                    .spans = &span,
                                    .span_count = 1,
                                    .fields = &field,
                                    .field_count = 1,
                                    .tokenizer = {"{}", 2}};
    pl_assert(pl_checkpoint_save(pl_disk_dir(disk), alloc, 1, &c, 2, NULL) == PELAGO_OK);
}

/* Replaces some bytes of a file; the digest of a state file is put right where asked to. */
static void tamper(struct pl_disk *disk, struct pl_reader *in)
{
    const char *name = names[pl_read_u8(in) % 4];
    uint64_t len = 0, at = pl_read_le(in, 2);
    bool repair = pl_read_u8(in) % 2 == 0 && name == names[3];
    const uint8_t *bytes = pl_disk_peek(disk, name, &len);
    if (bytes == NULL || len > sizeof file || len < 30)
        return;
    memcpy(file, bytes, (size_t)len);
    at %= len;
    size_t n = (size_t)pl_min64(pl_read_u8(in), pl_min64(len - at, pl_reader_left(in)));
    const uint8_t *patch = pl_read_bytes(in, n);
    if (n > 0 && patch != NULL)
        memcpy(file + at, patch, n);
    uint64_t digest = pl_hash64(file + 29, (size_t)len - 29, 0);
    for (unsigned i = 0; i < 16 && repair; i++)
        file[13 + i] = (uint8_t) "0123456789abcdef"[digest >> (60 - 4 * i) & 15];
    pl_assert(pl_disk_put(disk, name, file, (size_t)len) == PELAGO_OK);
}

static void load(struct pl_disk *disk, const struct pl_alloc *alloc, const struct pl_tensors *tensors)
{
    struct pl_checkpoint_reader *r;
    struct pl_error err = {.text = ""};
    uint64_t tokens;
    const struct pl_named_span span = {"adam_m.x", 2, 3, moments};
    const struct pl_member field = {"tokens", PL_MEMBER_COUNT, &tokens, 0, false};
    if (pl_checkpoint_open(&r, pl_disk_dir(disk), alloc, PL_NONE64, &err) != PELAGO_OK) {
        pl_assert(err.text[0] != '\0');
        return;
    }
    pl_assert(pl_model_config_check(pl_checkpoint_config(r), NULL) == PELAGO_OK);
    (void)pl_checkpoint_read_params(r, tensors, block, &err);
    (void)pl_checkpoint_read_spans(r, &span, 1, &err);
    (void)pl_checkpoint_read_fields(r, &field, 1, &err);
    pl_checkpoint_close(r);
}

static void fuzz_checkpoint(struct pl_disk *disk, const struct pl_alloc *alloc, struct pl_reader *in)
{
    struct pl_tensors tensors;
    pl_assert(pl_tensors_init(&tensors, alloc, &config) == PELAGO_OK && tensors.floats <= BLOCK_FLOATS);
    save(disk, alloc, &tensors);
    for (int i = 0; i < 3 && pl_reader_left(in) > 0; i++)
        tamper(disk, in);
    load(disk, alloc, &tensors);
    pl_tensors_release(&tensors, alloc);
}

static void fuzz_config(struct pl_disk *disk, const struct pl_alloc *alloc, struct pl_reader *in)
{
    struct pl_model_config c;
    size_t len = pl_reader_left(in);
    const uint8_t *bytes = pl_read_bytes(in, len);
    if (in->bad)
        return;
    pl_assert(pl_disk_put(disk, "config.json", bytes, len) == PELAGO_OK);
    if (pl_hf_read_config(pl_disk_dir(disk), alloc, &c, NULL) == PELAGO_OK)
        pl_assert(pl_model_config_check(&c, NULL) == PELAGO_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_disk *disk = pl_disk_new(&alloc, 1);
    struct pl_reader in = pl_reader_of(data, size);
    uint8_t what = pl_read_u8(&in) % 8;
    if (what < 4)
        fuzz_file(disk, &alloc, &in, what > 0);
    else if (what < 7)
        fuzz_checkpoint(disk, &alloc, &in);
    else
        fuzz_config(disk, &alloc, &in);
    pl_disk_free(disk);
    return 0;
}
