/* cmd/cmd_sim_goodput_svg.c - plots of `pelago sim --goodput`, written by hand: no library, one file, any browser. */
#include "cmd/cmd_sim_goodput.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { WIDTH = 760, HEIGHT = 460, LEFT = 60, RIGHT = 190, TOP = 40, BOTTOM = 50 };

static const char *const colours[] = {"#b33", "#d80", "#383", "#169", "#63a", "#111"};

static void begin(FILE *f, const char *title)
{
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
            "font-size=\"12\">\n<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n<text x=\"%d\" y=\"24\" "
            "font-size=\"15\">%s</text>\n",
            WIDTH, HEIGHT, WIDTH, HEIGHT, LEFT, title);
}

static double place_y(double percent)
{
    return HEIGHT - BOTTOM - percent / 100 * (HEIGHT - TOP - BOTTOM);
}

static void draw_grid(FILE *f)
{
    for (int percent = 0; percent <= 100; percent += 20)
        fprintf(
            f,
            "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/><text x=\"%d\" y=\"%.1f\" "
            "text-anchor=\"end\">%d%%</text>\n",
            LEFT, WIDTH - RIGHT, place_y(percent), place_y(percent), LEFT - 6, place_y(percent) + 4, percent);
}

/* ---- lines over chips, on a logarithmic scale ---- */

struct axis {
    double low, high;
};

static double place_x(const struct axis *a, double x)
{
    double span = a->high > a->low ? log(a->high / a->low) : 1;
    return LEFT + 10 + log(x / a->low) / span * (WIDTH - LEFT - RIGHT - 20);
}

static void draw_line(FILE *f, const struct axis *a, const struct pl_goodput_line *l, uint32_t number)
{
    const char *colour = colours[number % (sizeof colours / sizeof colours[0])];
    fprintf(f, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", colour);
    for (uint32_t i = 0; i < l->count; i++)
        fprintf(f, "%.1f,%.1f ", place_x(a, l->x[i]), place_y(l->y[i]));
    fprintf(f, "\"/>\n");
    for (uint32_t i = 0; i < l->count; i++) {
        double x = place_x(a, l->x[i]);
        fprintf(f, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>", x, x,
                place_y(l->y[i] - l->half[i]), place_y(l->y[i] + l->half[i]), colour);
        if (l->mark[i] >= 0)
            fprintf(f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"none\" stroke=\"%s\"/>", x,
                    place_y(l->mark[i]), colour);
        fputc('\n', f);
    }
    fprintf(f, "<text x=\"%d\" y=\"%d\" fill=\"%s\">%s</text>\n", WIDTH - RIGHT + 12,
            TOP + 20 + 20 * (int)number, colour, l->name);
}

void pl_goodput_svg_lines(FILE *f, const char *title, const struct pl_goodput_line *lines, uint32_t count)
{
    struct axis a = {lines[0].x[0], lines[0].x[lines[0].count - 1]};
    begin(f, title);
    draw_grid(f);
    for (uint32_t i = 0; i < lines[0].count; i++) {
        double chips = lines[0].x[i];
        fprintf(f, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%g%s</text>\n", place_x(&a, chips),
                HEIGHT - BOTTOM + 18, chips < 1e6 ? chips / 1e3 : chips / 1e6, chips < 1e6 ? "k" : "M");
    }
    for (uint32_t i = 0; i < count; i++)
        draw_line(f, &a, &lines[i], i);
    fprintf(f, "<text x=\"%d\" y=\"%d\">chips</text>\n</svg>\n", (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10);
}

/* ---- bars of one setting ---- */

static void draw_bar(FILE *f, double x, double width, double percent, const char *colour)
{
    fprintf(f, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n", x,
            place_y(percent), width, place_y(0) - place_y(percent), colour);
}

static void draw_shares(FILE *f, const struct pl_goodput_result *r)
{
    const struct {
        const char *name;
        double share;
    } parts[] = {
        {"useful", r->goodput},          {"stalls", r->lost_stall},          {"slices away", r->lost_repair},
        {"warm spares", r->lost_spares}, {"steps in flight", r->lost_steps}, {"waiting", r->lost_wait},
        {"rejoining", r->lost_rejoin},   {"overwritten", r->lost_overwrite}, {"slow chips", r->lost_speed}};
    int line = 0;
    fprintf(f, "<text x=\"%d\" y=\"%d\">of all chips' time:</text>\n", WIDTH - RIGHT + 12, TOP + 20);
    for (uint32_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (i == 0 || parts[i].share > 0)
            fprintf(f, "<text x=\"%d\" y=\"%d\">%s %.2f%%</text>\n", WIDTH - RIGHT + 12,
                    TOP + 20 + 18 * ++line, parts[i].name, 100 * parts[i].share);
}

void pl_goodput_svg_run(FILE *f, const struct pl_goodput_call *c, const struct pl_goodput_seeds *s)
{
    char title[128];
    uint32_t bars = s->mean.learners + 1;
    double width = (double)(WIDTH - LEFT - RIGHT - 20) / bars;
    (void)snprintf(title, sizeof title, "%" PRIu64 " chips, M=%u, %s: goodput %.2f%%", c->o.chips,
                   c->o.learners, pl_goodput_algorithm_name(c->o.algorithm), 100 * s->mean.goodput);
    if (s->count > 1 && strlen(title) < sizeof title)
        (void)snprintf(title + strlen(title), sizeof title - strlen(title), " +- %.2f", 100 * s->goodput_ci);
    begin(f, title);
    draw_grid(f);
    for (uint32_t i = 0; i < bars; i++) {
        double x = LEFT + 10 + i * width;
        draw_bar(f, x + 0.1 * width, 0.8 * width, 100 * s->mean.cohort[i], "#169");
        if (bars <= 33)
            fprintf(f, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%u</text>\n", x + width / 2,
                    HEIGHT - BOTTOM + 18, i);
    }
    draw_shares(f, &s->mean);
    fprintf(f, "<text x=\"%d\" y=\"%d\">learners at work at once: share of the time</text>\n</svg>\n",
            LEFT + 120, HEIGHT - 10);
}
