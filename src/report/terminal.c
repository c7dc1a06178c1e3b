/* report/terminal.c: charts as text, with dots of Braille and colours where a terminal has them. Start
 * at gd_chart_print(). */
#include "report/chart.h"

#include "base/memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of the 256 colours, legible on dark and on light. */
static const int colours[] = { 39, 208, 42, 175, 178, 141 };
enum { COLOURS = sizeof colours / sizeof *colours, GREY = 244 };

/* How a dot was made: 0 not at all, 1 for comparison, 2 and more by a series. */
enum { NOTHING = 0, PALE = 1, FIRST = 2 };

/* Dots in cells of characters. */
typedef struct canvas {
    const gd_chart *chart;
    gd_text_style style;
    gd_axis x, y;
    bool letters;        /* a letter a series, for there are several and no colours */
    int width, height;   /* in cells */
    int across, down;    /* dots of a cell */
    unsigned char *dots; /* [height * down, width * across] */
} canvas;

/* ---- colours ---- */

static void begin_colour(const canvas *c, int dot, gd_text_buffer *out)
{
    if (c->style == GD_TEXT_COLOUR)
        gd_buffer_add(out, "\033[38;5;%dm", dot == PALE ? GREY : colours[(dot - FIRST) % COLOURS]);
}

static void end_colour(const canvas *c, gd_text_buffer *out)
{
    if (c->style == GD_TEXT_COLOUR)
        gd_buffer_add(out, "\033[0m");
}

static char letter_of(int dot)
{
    return (char)(dot == PALE ? '.' : 'a' + (dot - FIRST) % 26);
}

/* ---- dots ---- */

static void set_dot(canvas *c, int x, int y, int dot)
{
    if (x < 0 || y < 0 || x >= c->width * c->across || y >= c->height * c->down)
        return;
    unsigned char *at = &c->dots[y * c->width * c->across + x];
    if (dot != PALE || *at == NOTHING)
        *at = (unsigned char)dot;
}

static double dot_x(const canvas *c, double x)
{
    return gd_axis_place(&c->x, x) * (c->width * c->across - 1);
}

static double dot_y(const canvas *c, double y)
{
    return (1 - gd_axis_place(&c->y, y)) * (c->height * c->down - 1);
}

static void connect(canvas *c, const double from[2], const double to[2], int dot)
{
    double far = fmax(fabs(to[0] - from[0]), fabs(to[1] - from[1]));
    int steps = (int)fmin(ceil(far), 4096);
    for (int i = 0; i <= steps; i++) {
        double at = steps ? (double)i / steps : 0;
        double y = from[1] + at * (to[1] - from[1]);
        if (dot == PALE && i % 4 == 3)
            continue;
        if (y > -1e6 && y < 1e6)
            set_dot(c, (int)lround(from[0] + at * (to[0] - from[0])), (int)lround(y), dot);
    }
}

static void draw_line(canvas *c, const gd_series *s, int dot)
{
    const double *y = s->smoothed ? s->smoothed : s->y;
    double last[2] = { NAN, NAN };
    for (size_t i = 0; i < s->count; i++) {
        double now[2] = { dot_x(c, s->x[i]), dot_y(c, y[i]) };
        if (isnan(now[0]) || isnan(now[1])) {
            last[0] = NAN;
            continue;
        }
        connect(c, isnan(last[0]) ? now : last, now, dot);
        memcpy(last, now, sizeof last);
    }
}

static void draw_bars(canvas *c, const gd_series *s, int dot)
{
    int bottom = c->height * c->down - 1;
    for (size_t i = 0; i < s->count; i++) {
        double left = dot_x(c, s->x[i]), right = dot_x(c, s->x[i + 1]), top = dot_y(c, s->y[i]);
        if (isnan(left) || isnan(right) || isnan(top) || s->y[i] == 0)
            continue;
        int from = (int)lround(left), to = (int)lround(right), high = (int)lround(top);
        for (int x = from; x < to || x == from; x++)
            for (int y = high; y <= bottom; y++)
                set_dot(c, x, y, dot);
    }
}

static void draw_all(canvas *c)
{
    const gd_chart *chart = c->chart;
    int dot = FIRST;
    for (size_t i = 0; i < chart->mark_count; i++) {
        double x = dot_x(c, chart->marks[i].x);
        for (int y = 0; !isnan(x) && y < c->height * c->down; y += 2)
            set_dot(c, (int)lround(x), y, PALE);
    }
    for (size_t i = 0; i < chart->series_count; i++) {
        const gd_series *s = &chart->series[i];
        int own = s->pale ? PALE : dot++;
        if (s->bars)
            draw_bars(c, s, own);
        else
            draw_line(c, s, own);
    }
}

/* ---- cells ---- */

static const unsigned char *dots_of(const canvas *c, int row, int column)
{
    return &c->dots[row * c->down * c->width * c->across + column * c->across];
}

/* The highest dot of a cell; in a single step a cell has no more. */
static int top_dot(const canvas *c, int row, int column)
{
    int top = NOTHING;
    for (int y = 0; y < c->down; y++)
        for (int x = 0; x < c->across; x++) {
            int dot = dots_of(c, row, column)[y * c->width * c->across + x];
            top = dot > top ? dot : top;
        }
    return top;
}

/* U+2800 with a bit for each dot, Unicode's block of Braille patterns. */
static void add_braille(const canvas *c, int row, int column, gd_text_buffer *out)
{
    static const unsigned bits[4][2] = { { 1, 8 }, { 2, 16 }, { 4, 32 }, { 64, 128 } };
    unsigned pattern = 0;
    for (int y = 0; y < 4; y++)
        for (int x = 0; x < 2; x++)
            if (dots_of(c, row, column)[y * c->width * 2 + x] != NOTHING)
                pattern |= bits[y][x];
    const char character[3] = { (char)0xe2, (char)(0xa0 | pattern >> 6),
                                (char)(0x80 | (pattern & 63)) };
    gd_buffer_put(out, character, 3);
}

static void add_row(const canvas *c, int row, gd_text_buffer *out)
{
    int now = NOTHING; /* the colour in force */
    for (int column = 0; column < c->width; column++) {
        int dot = top_dot(c, row, column);
        if (dot != now && now != NOTHING)
            end_colour(c, out);
        if (dot != now && dot != NOTHING)
            begin_colour(c, dot, out);
        now = dot;
        if (dot == NOTHING)
            gd_buffer_put(out, " ", 1);
        else if (c->across == 2)
            add_braille(c, row, column, out);
        else
            gd_buffer_add(out, "%c", c->letters ? letter_of(dot) : dot == PALE ? '.' : '*');
    }
    if (now != NOTHING)
        end_colour(c, out);
}

/* ---- around the cells ---- */

static void add_legend(const canvas *c, gd_text_buffer *out)
{
    const gd_chart *chart = c->chart;
    int dot = FIRST, entries = 0;
    for (size_t i = 0; i < chart->series_count; i++) {
        const gd_series *s = &chart->series[i];
        int own = s->pale ? PALE : dot++;
        if (!s->name)
            continue;
        gd_buffer_add(out, "%s", entries++ ? "   " : "  ");
        begin_colour(c, own, out);
        if (c->letters)
            gd_buffer_add(out, "%c", letter_of(own));
        else
            gd_buffer_add(out, "%s", c->style == GD_TEXT_ASCII ? "*" : "\u2501\u2501");
        end_colour(c, out);
        gd_buffer_add(out, " %s", s->name);
    }
    for (size_t i = 0; i < chart->mark_count; i++)
        gd_buffer_add(out, "%s%s %s", entries++ ? "   " : "  ",
                      c->style == GD_TEXT_ASCII ? ":" : "\u250a", chart->marks[i].text);
    if (entries)
        gd_buffer_add(out, "\n");
}

/* The label of a row, "" for most. */
static const char *row_label(const canvas *c, int row)
{
    for (int i = 0; i < c->y.count; i++)
        if ((int)lround((1 - gd_axis_place(&c->y, c->y.ticks[i])) * (c->height - 1)) == row)
            return c->y.labels[i];
    return "";
}

/* The numbers below, those that do not run into one another. */
static void add_x_labels(const canvas *c, int indent, gd_text_buffer *out)
{
    int at = 0;
    gd_buffer_add(out, "%*s", indent, "");
    for (int i = 0; i < c->x.count; i++) {
        int length = (int)strlen(c->x.labels[i]);
        int place = (int)lround(gd_axis_place(&c->x, c->x.ticks[i]) * (c->width - 1));
        int begin = place - length / 2;
        begin = begin < 0 ? 0 : begin + length > c->width ? c->width - length : begin;
        if (begin < at + (at > 0) || begin < 0)
            continue;
        gd_buffer_add(out, "%*s%s", begin - at, "", c->x.labels[i]);
        at = begin + length;
    }
    if (c->chart->x_label && at + 2 + (int)gd_text_characters(c->chart->x_label) <= c->width)
        gd_buffer_add(out, "  %s", c->chart->x_label);
    else if (c->chart->x_label)
        gd_buffer_add(out, "\n%*s%s", indent, "", c->chart->x_label);
    gd_buffer_add(out, "\n");
}

static void add_titles(const gd_chart *chart, gd_text_style style, gd_text_buffer *out)
{
    if (chart->title)
        gd_buffer_add(out, style == GD_TEXT_COLOUR ? "\033[1m%s\033[0m" : "%s", chart->title);
    if (chart->title && chart->y_label)
        gd_buffer_add(out, " (%s)", chart->y_label);
    else if (chart->y_label)
        gd_buffer_add(out, "%s", chart->y_label);
    if (chart->title || chart->y_label)
        gd_buffer_add(out, "\n");
}

static gd_status print_axes(const gd_chart *chart, int columns, int rows, gd_text_style style,
                            gd_text_buffer *out)
{
    canvas c = { .chart = chart, .style = style, .height = rows > 8 ? rows - 4 : 4 };
    int drawn = 0, label = 0;
    for (size_t i = 0; i < chart->series_count; i++)
        drawn += !chart->series[i].pale;
    c.letters = drawn > 1 && style != GD_TEXT_COLOUR;
    bool braille = style != GD_TEXT_ASCII && !c.letters;
    c.across = braille ? 2 : 1;
    c.down = braille ? 4 : 1;
    gd_axis_of(chart, 1, c.height / 3, &c.y);
    for (int i = 0; i < c.y.count; i++)
        label = (int)strlen(c.y.labels[i]) > label ? (int)strlen(c.y.labels[i]) : label;
    c.width = columns - label - 3;
    c.width = c.width < 8 ? 8 : c.width;
    gd_axis_of(chart, 0, c.width / 12, &c.x);
    c.dots = gd_alloc_zero((size_t)(c.width * c.across) * (size_t)(c.height * c.down), 1);
    if (!c.dots)
        return GD_ERR_MEMORY;
    draw_all(&c);
    add_titles(chart, style, out);
    add_legend(&c, out);
    for (int row = 0; row < c.height; row++) {
        const char *text = row_label(&c, row);
        const char *edge = style == GD_TEXT_ASCII ? "|" : *text ? "\u2524" : "\u2502";
        gd_buffer_add(out, "%*s %s", label, text, edge);
        add_row(&c, row, out);
        gd_buffer_add(out, "\n");
    }
    gd_buffer_add(out, "%*s %s", label, "", style == GD_TEXT_ASCII ? "+" : "\u2514");
    for (int i = 0; i < c.width; i++)
        gd_buffer_add(out, "%s", style == GD_TEXT_ASCII ? "-" : "\u2500");
    gd_buffer_add(out, "\n");
    add_x_labels(&c, label + 2, out);
    gd_free(c.dots);
    return GD_OK;
}

/* ---- confusion matrices ---- */

enum { LONGEST_NAME = 14, MOST_MISTAKES = 10 };

static int64_t row_total(const gd_chart *c, int64_t row)
{
    int64_t total = 0;
    for (int64_t column = 0; column < c->classes; column++)
        total += c->counts[row * c->classes + column];
    return total;
}

static int digits_of(int64_t count)
{
    return snprintf(NULL, 0, "%lld", (long long)count);
}

/* The name in a field of so many columns, on the right. */
static void add_name(const char *name, int width, gd_text_buffer *out)
{
    size_t bytes = gd_text_bytes(name, (size_t)width), shown = gd_text_characters(name);
    int gap = width - (int)(shown < (size_t)width ? shown : (size_t)width);
    gd_buffer_add(out, "%*s%.*s", gap, "", (int)bytes, name);
}

static void add_cell(int64_t count, int64_t total, int width, gd_text_style style,
                     gd_text_buffer *out)
{
    static const int ramp[] = { 153, 117, 75, 33, 27, 21 };
    double share = total ? (double)count / (double)total : 0;
    bool shaded = style == GD_TEXT_COLOUR && share >= 0.01;
    int step = share >= 1 ? 5 : (int)(share * 6);
    if (shaded)
        gd_buffer_add(out, "\033[48;5;%d;38;5;%dm", ramp[step], step < 3 ? 16 : 231);
    if (count)
        gd_buffer_add(out, "%*lld", width, (long long)count);
    else
        gd_buffer_add(out, "%*s%s", width - 1, "", style == GD_TEXT_ASCII ? "." : "\u00b7");
    gd_buffer_add(out, "%s", shaded ? " \033[0m" : " ");
}

/* What is mistaken for what most often, where the matrix is too wide to be shown. */
static void add_mistakes(const gd_chart *c, gd_text_style style, gd_text_buffer *out)
{
    int64_t n = c->classes, last = INT64_MAX, last_at = -1;
    gd_buffer_add(out, "the most frequent mistakes of %lld classes:\n", (long long)n);
    for (int i = 0; i < MOST_MISTAKES; i++) {
        int64_t best = 0, best_at = -1;
        for (int64_t at = 0; at < n * n;
             at++) { /* the next one after the last, by count and place */
            int64_t count = at / n == at % n ? 0 : c->counts[at];
            bool after = count < last || (count == last && at > last_at);
            if (after && count > best)
                best = count, best_at = at;
        }
        if (best_at < 0)
            break;
        last = best, last_at = best_at;
        gd_buffer_add(out, "%8lld  %s %s %s\n", (long long)best, c->names[best_at / n],
                      style == GD_TEXT_ASCII ? "->" : "\u2192", c->names[best_at % n]);
    }
}

static void print_matrix(const gd_chart *c, int columns, gd_text_style style, gd_text_buffer *out)
{
    int name = 5, cell = 2;
    for (int64_t i = 0; i < c->classes; i++) {
        int length = (int)gd_text_characters(c->names[i]);
        name = length > name ? length : name;
    }
    name = name > LONGEST_NAME ? LONGEST_NAME : name;
    for (int64_t i = 0; i < c->classes * c->classes; i++)
        cell = digits_of(c->counts[i]) > cell ? digits_of(c->counts[i]) : cell;
    int64_t room = ((int64_t)columns - name - 1) / c->classes - 1;
    add_titles(&(gd_chart){ .title = c->title }, style, out);
    if (room < cell) {
        add_mistakes(c, style, out);
        return;
    }
    int most = name > cell ? name : cell;
    cell = room < most ? (int)room : most;
    gd_buffer_add(out, "%*s %s\n", name, "truth", c->x_label ? c->x_label : "");
    gd_buffer_add(out, "%*s ", name, "");
    for (int64_t i = 0; i < c->classes; i++) {
        add_name(c->names[i], cell, out);
        gd_buffer_add(out, " ");
    }
    gd_buffer_add(out, "\n");
    for (int64_t row = 0; row < c->classes; row++) {
        add_name(c->names[row], name, out);
        gd_buffer_add(out, " ");
        for (int64_t column = 0; column < c->classes; column++)
            add_cell(c->counts[row * c->classes + column], row_total(c, row), cell, style, out);
        gd_buffer_add(out, "\n");
    }
}

/* ---- images ---- */

/* The mean colour of the pixels under a cell's half: [0, 255] each. */
static void mean_colour(const gd_image *image, const double box[4], int rgb[3])
{
    double sum[3] = { 0 };
    int64_t count = 0;
    int64_t left = (int64_t)box[0], top = (int64_t)box[1];
    int64_t right = (int64_t)fmax(ceil(box[2]), (double)left + 1),
            bottom = (int64_t)fmax(ceil(box[3]), (double)top + 1);
    for (int64_t y = top; y < bottom && y < image->height; y++)
        for (int64_t x = left; x < right && x < image->width; x++, count++)
            for (int k = 0; k < 3; k++) {
                int64_t channel = image->channels == 3 ? k : 0;
                sum[k] += image->pixels[(y * image->width + x) * image->channels + channel];
            }
    for (int k = 0; k < 3; k++)
        rgb[k] = count > 0 ? (int)lround(sum[k] / (double)count) : 0;
}

/* The nearest of the 6 x 6 x 6 colours and the 24 greys. */
static int colour_number(const int rgb[3])
{
    if (abs(rgb[0] - rgb[1]) < 10 && abs(rgb[1] - rgb[2]) < 10) {
        int grey = (rgb[0] + rgb[1] + rgb[2]) / 3;
        return grey < 5 ? 16 : grey > 246 ? 231 : 232 + (grey - 5) * 23 / 241;
    }
    int level[3];
    for (int k = 0; k < 3; k++)
        level[k] = rgb[k] < 48 ? 0 : rgb[k] < 115 ? 1 : (rgb[k] - 35) / 40;
    return 16 + 36 * level[0] + 6 * level[1] + level[2];
}

/* A column for `each` pixels, a row for twice as many. */
static void print_pixels(const gd_image *image, double each, gd_text_style style,
                         gd_text_buffer *out)
{
    static const char *const shades[] = { " ", "\u2591", "\u2592", "\u2593", "\u2588" };
    int width = (int)((double)image->width / each + 0.5);
    int height = (int)ceil((double)image->height / (2 * each));
    for (int row = 0; row < height; row++) {
        for (int column = 0; column < width; column++) {
            int upper[3], lower[3];
            double x = column * each, y = 2 * row * each;
            mean_colour(image, (double[]){ x, y, x + each, y + each }, upper);
            mean_colour(image, (double[]){ x, y + each, x + each, y + 2 * each }, lower);
            int light = (upper[0] + upper[1] + upper[2] + lower[0] + lower[1] + lower[2]) / 6;
            if (style == GD_TEXT_COLOUR)
                gd_buffer_add(out, "\033[38;5;%d;48;5;%dm\u2580", colour_number(upper),
                              colour_number(lower));
            else if (style == GD_TEXT_UNICODE)
                gd_buffer_add(out, "%s", shades[light * 5 / 256]);
            else
                gd_buffer_add(out, "%c", " .:-=+*#%@"[light * 10 / 256]);
        }
        gd_buffer_add(out, "%s", style == GD_TEXT_COLOUR ? "\033[0m\n" : "\n");
    }
}

/* Each where its image begins. */
static void print_captions(const gd_chart *c, int64_t row, double each, gd_text_style style,
                           gd_text_buffer *out)
{
    const gd_image_grid *g = &c->grid;
    int64_t at = 0;
    for (int64_t column = 0; column < g->columns && row * g->columns + column < g->count;
         column++) {
        const gd_caption *caption = &c->captions[row * g->columns + column];
        int64_t begin = (int64_t)((double)(column * (g->width + 1)) / each + 0.5);
        int64_t room = (int64_t)((double)g->width / each);
        if (!caption->text || begin < at)
            continue;
        size_t bytes = gd_text_bytes(caption->text, (size_t)room);
        bool colour = style == GD_TEXT_COLOUR && caption->wrong;
        gd_buffer_add(out, "%*s%s%.*s%s", (int)(begin - at), "", colour ? "\033[31m" : "",
                      (int)bytes, caption->text, colour ? "\033[0m" : "");
        size_t characters = gd_text_characters(caption->text);
        at = begin + (characters < (size_t)room ? (int64_t)characters : room);
    }
    gd_buffer_add(out, "\n");
}

static void print_image(const gd_chart *c, int columns, gd_text_style style, gd_text_buffer *out)
{
    int64_t width = c->image.width < columns ? c->image.width : columns;
    double each = (double)c->image.width / (double)width;
    add_titles(c, style, out);
    if (!c->captions)
        print_pixels(&c->image, each, style, out);
    for (int64_t row = 0; c->captions && row < c->grid.rows; row++) {
        const gd_image band = gd_chart_band(c, row);
        print_pixels(&band, each, style, out);
        print_captions(c, row, each, style, out);
    }
}

gd_status gd_chart_print(const gd_chart *chart, int columns, int rows, gd_text_style style,
                         gd_text_buffer *out)
{
    if (chart->kind == GD_CHART_AXES)
        return print_axes(chart, columns, rows, style, out);
    if (chart->kind == GD_CHART_MATRIX)
        print_matrix(chart, columns, style, out);
    else
        print_image(chart, columns, style, out);
    return GD_OK;
}
