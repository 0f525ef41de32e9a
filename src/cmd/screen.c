/* cmd/screen.c - see screen.h. */
#include "cmd/screen.h"

#include "base/num.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

void pl_screen_measure(struct pl_screen *s)
{
    struct winsize size;
    uint32_t cols = 80, rows = 24;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
        cols = size.ws_col;
        rows = size.ws_row;
    }
    /* Lines that were cut for another width may have wrapped since: where the page begins is not known any more. */
    if (s->drawn > 0 && (cols != s->cols || rows != s->rows)) {
        /* Clearing from the first line on, all at once, would put the old page into the lines to scroll back to. */
        printf("\x1b[H\x1b[K\x1b[2H\x1b[J\x1b[H");
        s->drawn = 0;
    }
    s->cols = cols;
    s->rows = rows;
}

void pl_screen_open(struct pl_screen *s)
{
    const char *term = getenv("TERM"), *plain = getenv("NO_COLOR");
    *s = (struct pl_screen){.live = isatty(STDOUT_FILENO) == 1};
    s->live = s->live && term != NULL && strcmp(term, "dumb") != 0;
    s->color = s->live && (plain == NULL || plain[0] == '\0');
    pl_screen_measure(s);
}

void pl_screen_cut(char *line, uint32_t cols)
{
    char *to = line;
    uint32_t used = 0;
    for (const char *at = line; *at != '\0';) {
        if (*at == '\x1b') {
            size_t len = 1 + (at[1] == '[' ? 1 + strcspn(at + 2, "mKJH") : 0);
            len += at[len] != '\0' ? 1 : 0;
            memmove(to, at, len);
            to += len;
            at += len;
            continue;
        }
        /* Bytes that continue a character of UTF-8 belong to it. */
        if (((unsigned char)*at & 0xc0) != 0x80)
            used++;
        if (used <= cols)
            *to++ = *at;
        at++;
    }
    *to = '\0';
}

void pl_screen_draw(struct pl_screen *s, const struct pl_view_page *page)
{
    uint32_t count = pl_min32(page->count, s->rows > 1 ? s->rows - 1 : 1);
    if (s->drawn > 0)
        printf("\x1b[%uA\r", s->drawn);
    for (uint32_t i = 0; i < count; i++) {
        char line[PL_VIEW_LINE_MAX];
        memcpy(line, page->line[i], sizeof line);
        pl_screen_cut(line, s->cols > 1 ? s->cols - 1 : 1);
        printf("%s%s\x1b[K\n", line, s->color ? "\x1b[0m" : "");
    }
    printf("\x1b[J");
    s->drawn = count;
    (void)fflush(stdout);
}
