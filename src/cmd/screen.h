/* cmd/screen.h - a page of lines that is drawn again and again in the same place of a terminal. */
#ifndef PL_CMD_SCREEN_H
#define PL_CMD_SCREEN_H

#include "cmd/cluster_view.h"

struct pl_screen {
    bool live;      /* stdout is a terminal */
    bool color;     /* it is one that shows colours, and NO_COLOR is not set */
    uint32_t drawn; /* lines of the last page, above the cursor */
    uint32_t cols, rows;
};

void pl_screen_open(struct pl_screen *s);
/* The terminal's size now; after SIGWINCH. */
void pl_screen_measure(struct pl_screen *s);
/* In the place of the last page. Lines are cut to the terminal. */
void pl_screen_draw(struct pl_screen *s, const struct pl_view_page *page);
/* Cuts a line to so many columns; escape sequences take none and are all kept. */
void pl_screen_cut(char *line, uint32_t cols);

#endif
