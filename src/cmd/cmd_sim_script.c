/* cmd/cmd_sim_script.c - `pelago sim --script FILE`: reads the file, runs it, says what was not as written. */
#include "base/alloc.h"
#include "cmd/cmd.h"
#include "cmd/cmd_sim.h"
#include "cmd/text.h"
#include "sim/script.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

enum { SCRIPT_BYTES_MAX = 1 << 20 };

static int refuse(const char *path, const char *why)
{
    return pl_sim_usage_error("%s %s", pl_text_clip(path).at, why);
}

static int read_script(const char *path, char *text, size_t *len)
{
    struct stat about;
    if (stat(path, &about) == 0 && S_ISDIR(about.st_mode))
        return refuse(path, "is a folder, expected a script");
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        return pl_sim_cannot_read(path, errno);
    *len = fread(text, 1, SCRIPT_BYTES_MAX, f);
    int error = ferror(f) != 0 ? errno : 0;
    bool whole = feof(f) != 0;
    fclose(f);
    if (error != 0)
        return pl_sim_cannot_read(path, error);
    return whole ? PL_EXIT_OK : refuse(path, "is longer than a script may be, 1 MiB");
}

/* INVALID is the script's fault. */
static int say_error(const char *path, enum pelago_status status, struct pl_error *err)
{
    pl_text_clean(err->text);
    (void)pl_sim_usage_error("%s: %s", pl_text_clip(path).at, err->text);
    return status == PELAGO_INVALID ? PL_EXIT_USAGE : PL_EXIT_FAILED;
}

static int run_script(const struct pl_sim_call *call, const char *text, size_t len)
{
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_script *script;
    struct pl_sim_result result;
    struct pl_error err;
    enum pelago_status status = pl_script_parse(text, len, &alloc, &script, &err);
    if (status != PELAGO_OK)
        return say_error(call->script, status, &err);
    status = pl_script_run(script, &alloc, &result, call->trace ? pl_sim_print_line : NULL, stdout, &err);
    pl_script_free(script);
    if (status != PELAGO_OK)
        return say_error(call->script, status, &err);
    pl_text_clean(result.what);
    if (result.exit != PL_SIM_OK)
        printf("%s: %s\n", pl_text_clip(call->script).at, result.what);
    pl_sim_print_marks(call);
    printf("reproduce: pelago sim --script ");
    pl_text_quote(stdout, call->script);
    pl_sim_print_common(stdout, call);
    return (int)result.exit;
}

int pl_sim_conversation(const struct pl_sim_call *call)
{
    struct pl_alloc alloc = pl_alloc_system();
    char *text = pl_alloc_zero(&alloc, 1, SCRIPT_BYTES_MAX);
    size_t len = 0;
    if (text == NULL)
        return pl_sim_out_of_memory();
    int code = read_script(call->script, text, &len);
    if (code == PL_EXIT_OK)
        code = run_script(call, text, len);
    pl_alloc_free(&alloc, text, SCRIPT_BYTES_MAX);
    return code;
}
