/* host/data_choice.c - see data_choice.h. */
#include "host/data_choice.h"

#include "base/check.h"
#include "base/fmt.h"
#include "os/errors.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WORD_MAX = 16, FILE_MAX = WORD_MAX + PL_PATH_MAX, SAID_MAX = 72, LOGGED_MAX = 240 };

static const char file_name[] = "data", public_word[] = "data ", local_word[] = "local-data ";
static const char stream_name[] = "-", builtin[] = "builtin:";

/* Of a long path the end tells more than the beginning; a sentence or a line of a log must stay one. */
static const char *shown(const char *name, size_t max, char out[static LOGGED_MAX + 1])
{
    size_t len = strlen(name);
    bool cut = len > max;
    (void)pl_fmt(out, LOGGED_MAX + 1, "%s%s", cut ? "..." : "", cut ? name + len - (max - 3) : name);
    for (char *p = out; *p != '\0'; p++)
        if ((unsigned char)*p < ' ' || *p == '"' || *p == '\x7f')
            *p = '?';
    return out;
}

/* ---- what somebody says ---- */

/* A pipe and a terminal have names, too, that mean nothing to another process. */
static bool is_stream(const char *name)
{
    struct stat info;
    return strcmp(name, stream_name) == 0 ||
           (stat(name, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode));
}

/* The last name stays as it is said: its ending tells what the text is, and a link may lead elsewhere tomorrow. */
static bool absolute(const char *name, char out[static PL_PATH_MAX])
{
    char folder[PL_PATH_MAX], real[PL_PATH_MAX];
    const char *slash = strrchr(name, '/');
    const char *last = slash != NULL ? slash + 1 : name;
    if (last[0] == '\0' || strcmp(last, ".") == 0 || strcmp(last, "..") == 0)
        return realpath(name, out) != NULL;
    size_t len = slash == NULL ? 1 : slash == name ? 1 : (size_t)(slash - name);
    errno = ENAMETOOLONG;
    if (len >= sizeof folder)
        return false;
    memcpy(folder, slash == NULL ? "." : name, len);
    folder[len] = '\0';
    if (realpath(folder, real) == NULL)
        return false;
    const char *between = strcmp(real, "/") == 0 ? "" : "/";
    errno = ENAMETOOLONG;
    return pl_fmt(out, PL_PATH_MAX, "%s%s%s", real, between, last) ==
           strlen(real) + strlen(between) + strlen(last);
}

static enum pelago_status resolve(const char *name, char out[static PL_PATH_MAX], struct pl_error *err)
{
    char said[LOGGED_MAX + 1];
    if (strncmp(name, builtin, sizeof builtin - 1) == 0 || is_stream(name)) {
        if (pl_fmt(out, PL_PATH_MAX, "%s", name) != strlen(name))
            return pl_fail(err, PELAGO_LIMIT, "the name of the data is too long");
        return PELAGO_OK;
    }
    struct stat info;
    if (stat(name, &info) == 0 && (S_ISDIR(info.st_mode) || (S_ISREG(info.st_mode) && info.st_size == 0)))
        return pl_fail(err, PELAGO_INVALID, "%s is %s, not a text or a token file",
                       shown(name, SAID_MAX, said), S_ISDIR(info.st_mode) ? "a folder" : "empty");
    if (access(name, R_OK) == 0 && absolute(name, out))
        return PELAGO_OK;
    int code = errno;
    return pl_fail(err, pl_os_status(code), "%s could not be read: %s", shown(name, SAID_MAX, said),
                   strerror(code));
}

static enum pelago_status take(struct pl_data_choice *s, struct pl_posix_dir *dir, const char *name,
                               struct pl_error *err)
{
    char text[FILE_MAX];
    PL_TRY(resolve(name, s->name, err));
    size_t len = pl_fmt(text, sizeof text, "%s%s\n", s->local ? local_word : public_word,
                        is_stream(s->name) ? stream_name : s->name);
    pl_assert(len + 1 < sizeof text);
    return pl_home_write(dir, file_name, (struct pl_bytes){text, len}, false, err);
}

/* ---- what the folder remembers ---- */

static bool begins_with(const struct pl_buf *text, const char *word)
{
    return text->len > strlen(word) && memcmp(text->data, word, strlen(word)) == 0;
}

/* A line that was cut off has no end. */
static bool parse(const struct pl_buf *text, struct pl_data_choice *s)
{
    s->local = begins_with(text, local_word);
    if (!s->local && !begins_with(text, public_word))
        return false;
    size_t from = strlen(s->local ? local_word : public_word);
    size_t len = text->len - from - 1;
    if (text->data[text->len - 1] != '\n' || len >= sizeof s->name ||
        memchr(text->data + from, '\0', len) != NULL)
        return false;
    memcpy(s->name, text->data + from, len);
    s->name[len] = '\0';
    return s->name[0] == '/' || strncmp(s->name, builtin, sizeof builtin - 1) == 0 ||
           strcmp(s->name, stream_name) == 0;
}

/* No other data stands in for it: the option that was given says what was meant. */
static enum pelago_status check_there(const struct pl_data_choice *s, struct pl_error *err)
{
    const char *what = s->local ? "this learner's private text" : "the run's data on this machine";
    const char *option = s->local ? "--local-data" : "--data";
    char said[LOGGED_MAX + 1];
    if (strcmp(s->name, stream_name) == 0)
        return pl_fail(err, PELAGO_NOTFOUND, "%s came in a stream, which is over: give %s PATH again", what,
                       option);
    if (is_stream(s->name)) /* nobody may be there to write */
        return pl_fail(err, PELAGO_INVALID, "%s is no file any more: give %s PATH again; it was %s", what,
                       option, shown(s->name, SAID_MAX, said));
    if (s->name[0] != '/' || access(s->name, R_OK) == 0)
        return PELAGO_OK;
    int code = errno;
    return pl_fail(err, pl_os_status(code), "%s cannot be read (%s): give %s PATH again; it was %s", what,
                   strerror(code), option, shown(s->name, SAID_MAX, said));
}

static enum pelago_status recall(struct pl_data_choice *s, struct pl_posix_dir *dir,
                                 const struct pl_alloc *alloc, struct pl_error *err)
{
    struct pl_buf text;
    pl_buf_init(&text, alloc, FILE_MAX);
    enum pelago_status st = pl_home_read(dir, file_name, &text, err);
    if (st == PELAGO_LIMIT || (st == PELAGO_OK && !parse(&text, s)))
        st = pl_fail(err, PELAGO_CORRUPT,
                     "the folder's file %s does not say what to train on: give --local-data PATH again if it "
                     "was private text, else --data NAME",
                     file_name);
    else if (st == PELAGO_OK)
        st = check_there(s, err);
    pl_buf_release(&text);
    s->remembered = st == PELAGO_OK;
    return st;
}

enum pelago_status pl_data_choice_make(struct pl_data_choice *out, struct pl_posix_dir *dir,
                                       const struct pl_alloc *alloc, const char *data, const char *local_data,
                                       struct pl_error *err)
{
    pl_assert(data == NULL || local_data == NULL);
    memset(out, 0, sizeof *out);
    out->local = local_data != NULL;
    if (data != NULL || local_data != NULL)
        return take(out, dir, out->local ? local_data : data, err);
    enum pelago_status st = recall(out, dir, alloc, err);
    return st == PELAGO_NOTFOUND && out->name[0] == '\0' ? PELAGO_OK : st;
}

const char *pl_data_choice_name(const struct pl_data_choice *s, const struct pl_settings *settings)
{
    return s->name[0] != '\0' ? s->name : settings->data;
}

void pl_data_choice_line(const struct pl_data_choice *s, const struct pl_settings *settings,
                         char out[static PL_DATA_CHOICE_LINE_MAX])
{
    char said[LOGGED_MAX + 1];
    (void)pl_fmt(out, PL_DATA_CHOICE_LINE_MAX, "learner.data private=%s remembered=%s name=\"%s\"%s",
                 s->local ? "true" : "false", s->remembered ? "true" : "false",
                 shown(pl_data_choice_name(s, settings), LOGGED_MAX, said),
                 s->local ? ": private text, which stays on this machine" : "");
}
