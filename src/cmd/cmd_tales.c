/* cmd/cmd_tales.c - `pelago data tales`: the built-in corpus as text, and its entropy on stderr. */
#include "base/alloc.h"
#include "base/num.h"
#include "cmd/cmd.h"
#include "cmd/options.h"
#include "cmd/text.h"
#include "cmd/unfinished.h"
#include "data/outfile.h"
#include "data/tales.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CHUNK_BYTES = 1 << 20 };

/* Where the text goes: a file, or stdout when it is NULL. */
static enum pelago_status write_text(struct pl_outfile *file, const struct pl_buf *text, struct pl_error *err)
{
    if (file != NULL)
        return pl_outfile_append(file, text->data, text->len, err);
    if (fwrite(text->data, 1, text->len, stdout) == text->len)
        return PELAGO_OK;
    return pl_fail(err, PELAGO_IO, "the output could not be written: %s", strerror(errno));
}

static enum pelago_status write_stories(struct pl_tales_stream *stream, uint64_t bytes,
                                        struct pl_outfile *file, const struct pl_alloc *alloc,
                                        struct pl_error *err)
{
    struct pl_buf text;
    enum pelago_status status = PELAGO_OK;
    pl_buf_init(&text, alloc, CHUNK_BYTES + PL_TALES_STORY_BYTES_MAX);
    while (status == PELAGO_OK && stream->bytes < bytes) {
        text.len = 0;
        status = pl_tales_read(stream, pl_min64(bytes - stream->bytes, CHUNK_BYTES), &text);
        if (status != PELAGO_OK)
            (void)pl_fail(err, status, "there is not enough memory for the stories");
        else
            status = write_text(file, &text, err);
    }
    pl_buf_release(&text);
    return status;
}

static enum pelago_status tell(struct pl_tales_stream *stream, uint64_t bytes, const char *out,
                               struct pl_error *err)
{
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_tales *tales = NULL;
    struct pl_outfile *file = NULL;
    if (pl_tales_open(&alloc, &tales) != PELAGO_OK)
        return pl_fail(err, PELAGO_NOMEM, "there is not enough memory for the stories");
    stream->tales = tales;
    enum pelago_status status = out != NULL ? pl_outfile_open(&file, &alloc, out, err) : PELAGO_OK;
    if (status == PELAGO_OK)
        status = write_stories(stream, bytes, file, &alloc, err);
    if (status != PELAGO_OK)
        pl_outfile_abandon(file);
    else if (file != NULL)
        status = pl_outfile_commit(file, err);
    pl_tales_close(tales);
    return status;
}

static void print_floor(const struct pl_tales_stream *s)
{
    double nats = s->nats / (double)s->bytes;
    fprintf(stderr,
            "%" PRIu64 " stories, %" PRIu64
            " bytes; entropy, which is the floor of any loss: %.5f nats a byte (%.5f bits)\n",
            s->next, s->bytes, nats, nats / log(2));
}

int pl_cmd_data_tales(int argc, char **argv)
{
    uint64_t bytes = 1000000, seed = 1;
    const char *split = "train", *out = NULL;
    const struct pl_option table[] = {
        {"bytes", "N", "at least so many bytes of text, in whole stories (default 1M)", PL_OPTION_COUNT,
         &bytes, 1, 0},
        {"seed", "N", "another seed, other stories of the same world (default 1)", PL_OPTION_U64, &seed, 0,
         0},
        {"split", "NAME", "train or valid; they have no story in common (default train)", PL_OPTION_TEXT,
         &split, 0, 0},
        {"out", "FILE", "write there (default: standard output)", PL_OPTION_TEXT, &out, 0, 0},
    };
    const struct pl_options o = {
        "data tales", "[OPTION...]",
        "Writes stories of the built-in corpus, as --data builtin:tales trains on them: a\n"
        "paragraph a line, the line <|endoftext|> after each story. Says on standard error\n"
        "how many nats a byte their choices have: no model can have a lower loss.",
        table, sizeof table / sizeof table[0]};
    struct pl_words words;
    struct pl_error err = {PELAGO_OK, ""};
    int code;
    if (!pl_options_parse(&o, argc, argv, &words, &code))
        return code;
    if (words.count > 0)
        return pl_usage_error(o.command, "there is no use for '%s'", pl_text_clip(words.at[0]).at);
    bool valid = strcmp(split, "valid") == 0;
    if (!valid && strcmp(split, "train") != 0)
        return pl_usage_error(o.command, "--split is train or valid, not '%s'", pl_text_clip(split).at);
    struct pl_tales_stream stream = {.seed = seed, .split = valid ? PL_TALES_VALID : PL_TALES_TRAIN};
    if (out != NULL)
        pl_unfinished_file(out);
    enum pelago_status status = tell(&stream, bytes, out, &err);
    pl_unfinished_end();
    if (status != PELAGO_OK)
        return pl_failure(o.command, &err);
    print_floor(&stream);
    return PL_EXIT_OK;
}
