/* report/svg.c: charts with axes as SVG. Start at gd_svg_axes(). Only what every viewer knows is used:
 * classes in a <style>, no variables, no scripts. */
#include "report/chart.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Colours that people with any kind of colour vision can tell apart (after Okabe and Ito), for a light
 * and for a dark background; from the seventh on the lines are dashed, too. */
static const char *const light[] = { "#0072b2", "#d55e00", "#009e73",
                                     "#b0548c", "#c48a00", "#3a9bd6" };
static const char *const dark[] = {
    "#5cb3ec", "#ff8f52", "#3ecf9f", "#e59ac6", "#f2bf4a", "#9ad4f7"
};
enum { COLOURS = sizeof light / sizeof *light };

/* Widths of text in pixels are guessed: fonts are the viewer's. */
#define CHARACTER 6.7
#define LINE      16.0

static const char style[] =
    "text{font:12px system-ui,-apple-system,'Segoe UI','DejaVu Sans',Arial,sans-serif;fill:#24292f}"
    ".t{font-size:15px;font-weight:600}.m{fill:#57606a}"
    ".g{stroke:#d8dee4;stroke-width:1;fill:none}.a{stroke:#8c959f;stroke-width:1;fill:none}"
    ".l{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}.p{stroke:#8c959f}"
    ".d{stroke-dasharray:6 5}.f{stroke-opacity:.28;stroke-width:1.2}.b{fill-opacity:.6}"
    ".h{fill:#0072b2}.w{fill:#fff}.e{fill:#cf222e}";
static const char style_dark[] =
    "text{fill:#e6edf3}.m{fill:#9da7b1}.g{stroke:#30363d}.a{stroke:#6e7681}.p{stroke:#7d8590}"
    ".h{fill:#3f9be0}.w{fill:#fff}.e{fill:#ff7b72}";

/* ---- pieces that all pictures have ---- */

void gd_svg_begin(const gd_chart *c, double width, double height, gd_text_buffer *out)
{
    gd_buffer_add(out,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
                  "viewBox=\"0 0 %.0f %.0f\" role=\"img\">\n",
                  width, height, width, height);
    if (c->title) {
        gd_buffer_add(out, "<title>");
        gd_svg_text(out, NAN, 0, NULL, c->title);
        gd_buffer_add(out, "</title>\n");
    }
    gd_buffer_add(out, "<style>%s", style);
    for (int i = 0; i < COLOURS; i++)
        gd_buffer_add(out, ".s%d{stroke:%s}.b%d{fill:%s}", i, light[i], i, light[i]);
    gd_buffer_add(out, "\n@media(prefers-color-scheme:dark){%s", style_dark);
    for (int i = 0; i < COLOURS; i++)
        gd_buffer_add(out, ".s%d{stroke:%s}.b%d{fill:%s}", i, dark[i], i, dark[i]);
    gd_buffer_add(out, "}</style>\n");
}

/* NaN for x: the text alone, escaped. */
void gd_svg_text(gd_text_buffer *out, double x, double y, const char *attributes, const char *text)
{
    if (!isnan(x))
        gd_buffer_add(out, "<text x=\"%.1f\" y=\"%.1f\"%s%s>", x, y, attributes ? " " : "",
                      attributes ? attributes : "");
    for (; *text; text++) {
        const char *escaped = *text == '<'   ? "&lt;"
                              : *text == '>' ? "&gt;"
                              : *text == '&' ? "&amp;"
                              : *text == '"' ? "&quot;"
                                             : NULL;
        if (escaped)
            gd_buffer_add(out, "%s", escaped);
        else
            gd_buffer_put(out, text, 1);
    }
    if (!isnan(x))
        gd_buffer_add(out, "</text>\n");
}

/* ---- the frame ---- */

/* Where things are, in pixels from the upper left. */
typedef struct frame {
    const gd_chart *chart;
    gd_axis x, y;
    double left, top, right, bottom; /* of what the axes enclose */
    double legend;                   /* of the legend's first line */
} frame;

static double x_at(const frame *f, double value)
{
    return f->left + gd_axis_place(&f->x, value) * (f->right - f->left);
}

static double y_at(const frame *f, double value)
{
    return f->bottom - gd_axis_place(&f->y, value) * (f->bottom - f->top);
}

static double text_width(const char *text)
{
    return CHARACTER * (double)gd_text_characters(text);
}

static double entry_width(const gd_series *s)
{
    return 30 + text_width(s->name) + 16;
}

/* Draws the legend into `out`, if it is not NULL. Returns how many lines it has. */
static int draw_legend(const frame *f, gd_text_buffer *out)
{
    const gd_chart *c = f->chart;
    int lines = 0, colour = 0;
    double x = f->left;
    for (size_t i = 0; i < c->series_count; i++) {
        const gd_series *s = &c->series[i];
        int own = s->pale ? -1 : colour++;
        if (!s->name)
            continue;
        if (lines == 0 || x + entry_width(s) > (double)c->width) {
            lines++;
            x = f->left;
        }
        double y = f->legend + LINE * (lines - 1);
        if (out && s->bars)
            gd_buffer_add(
                out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"22\" height=\"10\" class=\"b b%d\"/>", x,
                y - 9, own % COLOURS);
        else if (out)
            gd_buffer_add(out, "<path d=\"M%.1f %.1fh22\" class=\"l s%d%s\"/>", x, y - 4,
                          own % COLOURS, s->dashed || own >= COLOURS ? " d" : "");
        if (out)
            gd_svg_text(out, x + 29, y, NULL, s->name);
        x += entry_width(s);
    }
    return lines;
}

static frame lay_out(const gd_chart *c)
{
    frame f = { .chart = c, .right = (double)c->width - 20, .bottom = (double)c->height - 30 };
    if (c->x_label)
        f.bottom -= 20;
    f.top = c->title ? 40 : 14;
    double estimate = (f.bottom - f.top) / 55;
    gd_axis_of(c, 1, (int)fmax(estimate, 3), &f.y);
    double longest = 0;
    for (int i = 0; i < f.y.count; i++)
        longest = fmax(longest, text_width(f.y.labels[i]));
    f.left = longest + (c->y_label ? 44 : 20);
    f.legend = f.top + 8;
    int lines = draw_legend(&f, NULL);
    if (lines)
        f.top += LINE * lines + 6;
    /* as many ticks as their labels leave room for */
    for (int most = GD_MOST_TICKS - 2; most >= 2; most--) {
        gd_axis_of(c, 0, most, &f.x);
        double widest = 0;
        for (int i = 0; i < f.x.count; i++)
            widest = fmax(widest, text_width(f.x.labels[i]));
        if (f.x.count * (widest + 34) <= f.right - f.left)
            break;
    }
    return f;
}

static void draw_frame(const frame *f, gd_text_buffer *out)
{
    const gd_chart *c = f->chart;
    if (c->title)
        gd_svg_text(out, f->left, 24, "class=\"t\"", c->title);
    for (int i = 0; i < f->y.count; i++) {
        double y = y_at(f, f->y.ticks[i]);
        gd_buffer_add(out, "<path d=\"M%.1f %.1fH%.1f\" class=\"g\"/>", f->left, y, f->right);
        gd_svg_text(out, f->left - 8, y + 4, "text-anchor=\"end\" class=\"m\"", f->y.labels[i]);
    }
    gd_buffer_add(out, "<path d=\"M%.1f %.1fH%.1f\" class=\"a\"/>\n", f->left, f->bottom, f->right);
    for (int i = 0; i < f->x.count; i++) {
        double x = x_at(f, f->x.ticks[i]);
        gd_buffer_add(out, "<path d=\"M%.1f %.1fv5\" class=\"a\"/>", x, f->bottom);
        gd_svg_text(out, x, f->bottom + 19, "text-anchor=\"middle\" class=\"m\"", f->x.labels[i]);
    }
    if (c->x_label)
        gd_svg_text(out, (f->left + f->right) / 2, f->bottom + 40, "text-anchor=\"middle\"",
                    c->x_label);
    if (c->y_label) {
        gd_buffer_add(out, "<g transform=\"translate(18 %.1f) rotate(-90)\">",
                      (f->top + f->bottom) / 2);
        gd_svg_text(out, 0, 0, "text-anchor=\"middle\"", c->y_label);
        gd_buffer_add(out, "</g>\n");
    }
}

/* ---- lines and bars ---- */

/* The path of a run of points without gaps; `pen`: whether the last point was drawn. */
static void add_point(const frame *f, double x, double y, bool *pen, gd_text_buffer *out)
{
    double px = x_at(f, x), py = y_at(f, y);
    if (isnan(px) || isnan(py)) {
        *pen = false;
        return;
    }
    py = fmin(fmax(py, -1e4), 1e4); /* what is far outside is clipped */
    gd_buffer_add(out, "%c%.1f %.1f", *pen ? 'L' : 'M', px, py);
    *pen = true;
}

/* Where there are many points in a pixel, the least and the greatest of each half are what is seen. */
static void add_path(const frame *f, const gd_series *s, const double *y, const char *classes,
                     gd_text_buffer *out)
{
    size_t most = (size_t)(f->right - f->left);
    size_t each = s->count > 2 * most ? (s->count + most - 1) / most : 1;
    bool pen = false;
    gd_buffer_add(out, "<path d=\"");
    for (size_t begin = 0; begin < s->count; begin += each) {
        size_t end = begin + each < s->count ? begin + each : s->count, low = begin, high = begin;
        for (size_t i = begin; i < end; i++) {
            low = !(y[i] >= y[low]) ? i : low;
            high = !(y[i] <= y[high]) ? i : high;
        }
        size_t first = low < high ? low : high, second = low < high ? high : low;
        add_point(f, s->x[first], y[first], &pen, out);
        if (second != first)
            add_point(f, s->x[second], y[second], &pen, out);
    }
    gd_buffer_add(out, "\" class=\"l %s\"/>\n", classes);
}

/* Between gaps: it has no length to be drawn. */
static bool is_alone(const gd_series *s, size_t i)
{
    return (i == 0 || !isfinite(s->y[i - 1])) && (i + 1 == s->count || !isfinite(s->y[i + 1]));
}

/* Of few points, and of those alone. */
static void add_dots(const frame *f, const gd_series *s, int colour, gd_text_buffer *out)
{
    for (size_t i = 0; i < s->count; i++) {
        double x = x_at(f, s->x[i]), y = y_at(f, s->y[i]);
        if ((s->count <= 40 || is_alone(s, i)) && !isnan(x) && !isnan(y) && y > f->top - 1 &&
            y < f->bottom + 1)
            gd_buffer_add(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.6\" class=\"b%d\"/>", x, y,
                          colour % COLOURS);
    }
    gd_buffer_add(out, "\n");
}

static void draw_line(const frame *f, const gd_series *s, int colour, gd_text_buffer *out)
{
    char classes[32];
    const char *dashes = s->dashed || colour >= COLOURS ? " d" : "";
    if (s->pale) {
        add_path(f, s, s->y, "p d", out);
        return;
    }
    if (s->smoothed) {
        (void)snprintf(classes, sizeof classes, "s%d f", colour % COLOURS);
        add_path(f, s, s->y, classes, out);
    }
    (void)snprintf(classes, sizeof classes, "s%d%s", colour % COLOURS, dashes);
    add_path(f, s, s->smoothed ? s->smoothed : s->y, classes, out);
    if (!s->smoothed)
        add_dots(f, s, colour, out);
}

static void draw_bars(const frame *f, const gd_series *s, int colour, gd_text_buffer *out)
{
    double zero = f->y.log ? f->bottom : y_at(f, 0);
    gd_buffer_add(out, "<path d=\"");
    for (size_t i = 0; i < s->count; i++) {
        double left = x_at(f, s->x[i]), right = x_at(f, s->x[i + 1]), top = y_at(f, s->y[i]);
        if (isnan(left) || isnan(right) || isnan(top) || s->y[i] == 0)
            continue;
        double gap = right - left > 5 ? 1 : 0;
        gd_buffer_add(out, "M%.1f %.1fV%.1fH%.1fV%.1fz", left, zero, top, right - gap, zero);
    }
    gd_buffer_add(out, "\" class=\"b b%d\"/>\n", colour % COLOURS);
}

/* On the side of the line on which there is more room, each lower than the one before. */
static void draw_marks(const frame *f, gd_text_buffer *out)
{
    const gd_chart *c = f->chart;
    for (size_t i = 0; i < c->mark_count; i++) {
        double x = x_at(f, c->marks[i].x);
        if (isnan(x) || x < f->left - 1 || x > f->right + 1)
            continue;
        bool before = x > (f->left + f->right) / 2;
        gd_buffer_add(out, "<path d=\"M%.1f %.1fV%.1f\" class=\"a d\"/>", x, f->top, f->bottom);
        gd_svg_text(out, before ? x - 6 : x + 6, f->top + 14 + LINE * (double)(i % 5),
                    before ? "text-anchor=\"end\"" : NULL, c->marks[i].text);
    }
}

void gd_svg_axes(const gd_chart *c, gd_text_buffer *out)
{
    frame f = lay_out(c);
    gd_svg_begin(c, (double)c->width, (double)c->height, out);
    draw_frame(&f, out);
    (void)draw_legend(&f, out);
    gd_buffer_add(out,
                  "\n<clipPath id=\"c\"><rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                  "height=\"%.1f\"/></clipPath>\n<g clip-path=\"url(#c)\">\n",
                  f.left - 3, f.top - 3, f.right - f.left + 6, f.bottom - f.top + 6);
    int colour = 0;
    for (size_t i = 0; i < c->series_count; i++) {
        const gd_series *s = &c->series[i];
        int own = s->pale ? -1 : colour++;
        if (s->bars)
            draw_bars(&f, s, own, out);
        else
            draw_line(&f, s, own, out);
    }
    gd_buffer_add(out, "</g>\n");
    draw_marks(&f, out);
    gd_buffer_add(out, "</svg>\n");
}
