/* chaos/proxy_control.c - orders over a Unix socket, a line each:
 *
 *   set LINK [up|down] KEY VALUE [KEY VALUE...]   LINK: 2 (learner 2, every shard), 2/0 (its link to shard 0), all
 *   clear LINK                                    every key off
 *   reset LINK | half-open LINK                   now, what is connected
 *   stats [LINK]                                  a line of JSON for each link
 *   stop                                          the proxy ends
 *
 * An answer ends in "ok", or is "error: " and a sentence.
 */
#include "chaos/proxy_int.h"

#include "base/buf.h"
#include "base/check.h"
#include "base/fmt.h"
#include "base/limits.h"
#include "chaos/words.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { ORDER_MAX = 1024, ANSWER_MAX = 4 << 20, CLIENTS_MAX = 64 };

struct control_client {
    struct pl_proxy *proxy;
    struct control_client *next;
    uv_pipe_t pipe;
    char line[ORDER_MAX];
    size_t len;
    uv_write_t write;
    struct pl_buf answer;
    bool busy; /* an answer is on its way; reading waits */
};

/* ---- answers ---- */

static void say(struct pl_buf *b, const char *text)
{
    (void)pl_buf_append(b, text, strlen(text));
}

static void refuse(struct pl_buf *b, const char *what, const char *word)
{
    char text[300];
    b->len = 0;
    pl_fmt(text, sizeof text, "error: %s%s%s%s\n", what, word[0] != '\0' ? ", not '" : "", word,
           word[0] != '\0' ? "'" : "");
    say(b, text);
}

static void put_stats(const struct link *l, struct pl_buf *b)
{
    char text[1024];
    const struct link_stats *s = &l->stats;
    uint64_t queued = 0;
    for (const struct pair *p = l->first; p != NULL; p = p->next)
        queued += p->flow[UP].queued + p->flow[DOWN].queued;
    pl_fmt(text, sizeof text,
           "{\"learner\":%u,\"shard\":%u,\"port\":%u,\"accepted\":%lu,\"open\":%lu,\"refused\":%lu,"
           "\"failed\":%lu,"
           "\"resets\":%lu,\"up_bytes\":%lu,\"down_bytes\":%lu,\"queued_bytes\":%lu,\"dropped_bytes\":%lu,"
           "\"flipped_bits\":%lu}\n",
           l->learner, l->shard, l->port, s->accepted, s->open, s->refused, s->failed, s->resets,
           s->bytes[UP], s->bytes[DOWN], queued, s->dropped, s->flipped);
    say(b, text);
}

/* ---- which links ---- */

struct which {
    bool all, shard_given;
    uint32_t learner, shard;
};

static const char *read_number(const char *p, uint32_t *out)
{
    const char *begin = p;
    for (*out = 0; *p >= '0' && *p <= '9' && p - begin < 6; p++)
        *out = *out * 10 + (uint32_t)(*p - '0');
    return p == begin ? NULL : p;
}

static bool read_which(const char *word, struct which *w)
{
    *w = (struct which){.all = strcmp(word, "all") == 0};
    if (w->all)
        return true;
    const char *p = read_number(word, &w->learner);
    if (p != NULL && *p == '/') {
        w->shard_given = true;
        p = read_number(p + 1, &w->shard);
    }
    return p != NULL && *p == '\0';
}

static bool is_meant(const struct which *w, const struct link *l)
{
    return w->all || (w->learner == l->learner && (!w->shard_given || w->shard == l->shard));
}

/* ---- orders ---- */

enum order { SET, CLEAR, RESET, HALF_OPEN, STATS, STOP, ORDERS };

static void apply(struct link *l, enum order order, uint32_t dirs, const struct pl_shape_change *change,
                  struct pl_buf *b)
{
    if (order == STATS) {
        put_stats(l, b);
    } else if (order == RESET || order == HALF_OPEN) {
        pl_link_reset(l, order == HALF_OPEN);
    } else {
        for (uint32_t dir = 0; dir < 2; dir++)
            if ((dirs & 1U << dir) != 0)
                pl_shape_apply(&l->shape[dir], change);
        pl_link_reshape(l);
    }
}

static bool read_change(struct pl_line_words *w, uint32_t *dirs, struct pl_shape_change *change,
                        struct pl_buf *b)
{
    struct pl_error err;
    *dirs = pl_words_take_if(w, "up")     ? PL_SHAPE_UP
            : pl_words_take_if(w, "down") ? PL_SHAPE_DOWN
                                          : PL_SHAPE_BOTH;
    while (w->next < w->count) {
        const char *name = pl_words_take(w);
        enum pl_shape_key key = pl_shape_find(name);
        if (key == PL_SHAPE_KEYS) {
            refuse(b, "there is no such key", name);
            return false;
        }
        if (pl_shape_set(change, key, pl_words_take(w), &err) != PELAGO_OK) {
            refuse(b, err.text, "");
            return false;
        }
    }
    if (change->keys == 0)
        refuse(b, "a key and a value are expected after the link", "");
    return change->keys != 0;
}

static void act(struct pl_proxy *p, enum order order, struct pl_line_words *w, struct pl_buf *b)
{
    struct which which = {.all = true};
    struct pl_shape_change change = {.keys = (1U << PL_SHAPE_KEYS) - 1};
    uint32_t dirs = PL_SHAPE_BOTH, done = 0;
    if ((order != STATS || w->next < w->count) && !read_which(pl_words_peek(w), &which)) {
        refuse(b, "a link such as 2, 2/0 or all is expected", pl_words_peek(w));
        return;
    }
    const char *word = pl_words_take(w);
    if (order == SET) {
        change.keys = 0;
        if (!read_change(w, &dirs, &change, b))
            return;
    }
    for (uint32_t i = 0; i < p->link_count; i++)
        if (is_meant(&which, &p->links[i])) {
            apply(&p->links[i], order, dirs, &change, b);
            done++;
        }
    if (done > 0)
        say(b, "ok\n");
    else
        refuse(b, "there is no such link", word);
}

static void obey(struct pl_proxy *p, const char *line, size_t len, struct pl_buf *b)
{
    static const char *const names[ORDERS] = {"set", "clear", "reset", "half-open", "stats", "stop"};
    struct pl_line_words w;
    uint32_t order = 0;
    if (!pl_words_split(&w, line, len)) {
        refuse(b, "the line is too long or not ASCII", "");
        return;
    }
    while (order < ORDERS && strcmp(names[order], pl_words_peek(&w)) != 0)
        order++;
    if (order == ORDERS) {
        refuse(b, "set, clear, reset, half-open, stats or stop is expected", pl_words_peek(&w));
        return;
    }
    w.next++;
    if (order == STOP) {
        say(b, "ok\n");
        pl_proxy_stop(p);
        return;
    }
    act(p, (enum order)order, &w, b);
}

/* ---- the socket ---- */

static void read_on(struct control_client *c);

static void on_client_closed(uv_handle_t *handle)
{
    struct control_client *c = handle->data;
    struct control_client **at = &c->proxy->clients;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    pl_buf_release(&c->answer);
    pl_alloc_free(c->proxy->alloc, c, sizeof *c);
}

static void close_client(struct control_client *c)
{
    if (!uv_is_closing((uv_handle_t *)&c->pipe))
        uv_close((uv_handle_t *)&c->pipe, on_client_closed);
}

static void on_answered(uv_write_t *req, int status)
{
    struct control_client *c = req->data;
    c->busy = false;
    c->answer.len = 0;
    if (status < 0)
        close_client(c);
    else if (!uv_is_closing((uv_handle_t *)&c->pipe))
        read_on(c);
}

/* The first line of what came, if there is a whole one. */
static void obey_next(struct control_client *c)
{
    char *end = memchr(c->line, '\n', c->len);
    if (end == NULL) {
        if (c->len == sizeof c->line)
            close_client(c);
        return;
    }
    size_t len = (size_t)(end - c->line);
    obey(c->proxy, c->line, len, &c->answer);
    c->len -= len + 1;
    memmove(c->line, end + 1, c->len);
    (void)uv_read_stop((uv_stream_t *)&c->pipe);
    uv_buf_t buf = uv_buf_init((char *)c->answer.data, (unsigned)c->answer.len);
    c->write.data = c;
    c->busy = uv_write(&c->write, (uv_stream_t *)&c->pipe, &buf, 1, on_answered) == 0;
    if (!c->busy)
        close_client(c);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct control_client *c = handle->data;
    (void)suggested;
    *buf = uv_buf_init(c->line + c->len, (unsigned)(sizeof c->line - c->len));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct control_client *c = stream->data;
    (void)buf;
    if (n < 0) {
        close_client(c);
    } else {
        c->len += (size_t)n;
        obey_next(c);
    }
}

static void read_on(struct control_client *c)
{
    if (uv_read_start((uv_stream_t *)&c->pipe, on_alloc, on_read) != 0)
        close_client(c);
    else
        obey_next(c); /* a second order may have come with the first */
}

static void on_client(uv_stream_t *server, int status)
{
    struct pl_proxy *p = server->data;
    struct control_client *c = status == 0 ? pl_alloc_zero(p->alloc, 1, sizeof *c) : NULL;
    if (c == NULL)
        return;
    c->proxy = p;
    c->pipe.data = c;
    c->next = p->clients;
    p->clients = c;
    pl_buf_init(&c->answer, p->alloc, ANSWER_MAX);
    (void)uv_pipe_init(&p->loop, &c->pipe, 0);
    if (uv_accept(server, (uv_stream_t *)&c->pipe) != 0)
        close_client(c);
    else
        read_on(c);
}

/* libuv would remove whatever has the name at the end: the file is ours to bind and to remove. */
static int bind_socket(struct pl_proxy *p)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct stat about;
    pl_assert(strlen(p->o->control) < sizeof at.sun_path);
    memcpy(at.sun_path, p->o->control, strlen(p->o->control));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return uv_translate_sys_error(errno);
    int r = bind(fd, (struct sockaddr *)&at, sizeof at) == 0 ? 0 : uv_translate_sys_error(errno);
    if (r == 0 && lstat(p->o->control, &about) == 0) {
        p->control_dev = about.st_dev;
        p->control_ino = about.st_ino;
    }
    if (r == 0)
        r = uv_pipe_open(&p->control, fd);
    if (r != 0)
        (void)close(fd);
    return r;
}

static bool is_socket(const char *path, struct stat *about)
{
    return lstat(path, about) == 0 && S_ISSOCK(about->st_mode);
}

/* A socket file that nobody answers at was left behind by a killed proxy; anything else is somebody's. */
static int bind_control(struct pl_proxy *p)
{
    struct stat about;
    struct pl_error err;
    char answer[8];
    int r = bind_socket(p);
    if (r != UV_EADDRINUSE || !is_socket(p->o->control, &about) ||
        pl_proxy_ask(p->o->control, "stats 1", 1000, answer, sizeof answer, &err) != PELAGO_UNREACHABLE)
        return r;
    (void)unlink(p->o->control);
    return bind_socket(p);
}

static void remove_socket(const struct pl_proxy *p)
{
    struct stat about;
    if (is_socket(p->o->control, &about) && p->control_ino != 0 && about.st_dev == p->control_dev &&
        about.st_ino == p->control_ino)
        (void)unlink(p->o->control);
}

enum pelago_status pl_control_open(struct pl_proxy *p, struct pl_error *err)
{
    if (p->o->control[0] == '\0' || strlen(p->o->control) > 107)
        return pl_fail(err, PELAGO_INVALID, "the path of the control socket is %s, expected 1 to 107 letters",
                       p->o->control[0] == '\0' ? "empty" : "too long");
    (void)uv_pipe_init(&p->loop, &p->control, 0);
    p->control.data = p;
    p->controlled = true;
    struct stat about;
    int r = bind_control(p);
    if (r == UV_EADDRINUSE && !is_socket(p->o->control, &about))
        return pl_fail(
            err, PELAGO_IO,
            "there is something else by the name of the control socket, %s: it is left alone; give "
            "another --control",
            p->o->control);
    if (r == 0)
        r = chmod(p->o->control, 0600) == 0 ? 0 : UV_EIO;
    if (r == 0)
        r = uv_listen((uv_stream_t *)&p->control, CLIENTS_MAX, on_client);
    if (r != 0)
        return pl_fail(err, PELAGO_IO, "the control socket %s cannot be made: %s%s", p->o->control,
                       uv_strerror(r), r == UV_EADDRINUSE ? "; another proxy uses it" : "");
    return PELAGO_OK;
}

void pl_control_close(struct pl_proxy *p)
{
    for (struct control_client *c = p->clients; c != NULL; c = c->next)
        close_client(c);
    uv_close((uv_handle_t *)&p->control, NULL);
    remove_socket(p);
}
