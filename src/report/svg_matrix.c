/* report/svg_matrix.c: confusion matrices and images as SVG. */
#include "report/chart.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "io/image.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LONGEST_NAME = 22 };

/* ---- confusion matrices ---- */

typedef struct grid {
    const gd_chart *chart;
    double left, top, cell; /* of the cells, and their size */
    bool upright;           /* the names above the columns are written upwards */
    int64_t every;          /* one of so many names is written */
} grid;

/* A name that fits, with "…" for what does not. */
static void short_name(const char *name, char *text, size_t size)
{
    size_t bytes = gd_text_bytes(name, LONGEST_NAME);
    (void)snprintf(text, size, "%.*s%s", (int)bytes, name, name[bytes] ? "\u2026" : "");
}

static grid lay_out(const gd_chart *c)
{
    size_t longest = 1;
    for (int64_t i = 0; i < c->classes; i++) {
        size_t length = gd_text_characters(c->names[i]);
        longest = length > longest ? length : longest;
    }
    longest = longest > LONGEST_NAME ? LONGEST_NAME + 1 : longest;
    double names = 7.0 * (double)longest;
    grid g = { .chart = c, .left = names + 44 };
    g.cell = floor(((double)c->width - g.left - 70) / (double)c->classes);
    g.cell = fmin(fmax(g.cell, 4), 72);
    g.upright = names + 6 > g.cell;
    g.top = (c->title ? 40 : 14) + 20 + (g.upright ? names + 8 : 20);
    g.every = g.cell >= 14 ? 1 : (int64_t)ceil(14 / g.cell);
    return g;
}

static void draw_names(const grid *g, gd_text_buffer *out)
{
    const gd_chart *c = g->chart;
    for (int64_t i = 0; i < c->classes; i += g->every) {
        char name[4 * LONGEST_NAME + 8];
        short_name(c->names[i], name, sizeof name);
        double middle = g->cell * ((double)i + 0.5);
        gd_svg_text(out, g->left - 8, g->top + middle + 4, "text-anchor=\"end\"", name);
        if (!g->upright) {
            gd_svg_text(out, g->left + middle, g->top - 8, "text-anchor=\"middle\"", name);
            continue;
        }
        gd_buffer_add(out, "<g transform=\"translate(%.1f %.1f) rotate(-90)\">",
                      g->left + middle + 4, g->top - 8);
        gd_svg_text(out, 0, 0, NULL, name);
        gd_buffer_add(out, "</g>\n");
    }
}

/* A count that a cell is wide enough for: 12345 as 12k. */
static void count_text(int64_t count, double cell, char text[24])
{
    (void)snprintf(text, 24, "%lld", (long long)count);
    if (7.2 * (double)strlen(text) > cell - 4 && count >= 1000)
        (void)snprintf(text, 24, "%lld%s",
                       (long long)(count >= 1000000 ? count / 1000000 : count / 1000),
                       count >= 1000000 ? "M" : "k");
}

static void draw_cell(const grid *g, int64_t row, int64_t column, int64_t of_row,
                      gd_text_buffer *out)
{
    const gd_chart *c = g->chart;
    int64_t count = c->counts[row * c->classes + column];
    double share = of_row ? (double)count / (double)of_row : 0;
    double x = g->left + g->cell * (double)column, y = g->top + g->cell * (double)row;
    double gap = g->cell > 12 ? 1 : 0;
    if (count)
        gd_buffer_add(out,
                      "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" class=\"h\" "
                      "fill-opacity=\"%.3f\"/>",
                      x, y, g->cell - gap, g->cell - gap, 0.06 + 0.94 * share);
    if (g->cell < 22 || (!count && row != column))
        return;
    char text[24], percent[24];
    count_text(count, g->cell, text);
    const char *white =
        share > 0.5 ? "text-anchor=\"middle\" class=\"w\"" : "text-anchor=\"middle\"";
    double middle = x + (g->cell - gap) / 2, base = y + g->cell / 2 + 4;
    bool both = g->cell >= 46;
    gd_svg_text(out, middle, both ? base - 7 : base, white, text);
    if (!both)
        return;
    (void)gd_snprintf(percent, sizeof percent, share > 0 && share < 0.095 ? "%.1f%%" : "%.0f%%",
                      100 * share);
    gd_svg_text(out, middle, base + 9, share > 0.5 ? white : "text-anchor=\"middle\" class=\"m\"",
                percent);
}

/* What the colours mean. */
static void draw_scale(const grid *g, double right, double size, gd_text_buffer *out)
{
    enum { STEPS = 20 };
    double height = fmin(size, 220) / STEPS;
    for (int i = 0; i < STEPS; i++)
        gd_buffer_add(out,
                      "<rect x=\"%.1f\" y=\"%.2f\" width=\"10\" height=\"%.2f\" class=\"h\" "
                      "fill-opacity=\"%.3f\"/>",
                      right, g->top + height * (STEPS - 1 - i), height,
                      0.06 + 0.94 * (i + 0.5) / STEPS);
    gd_svg_text(out, right + 15, g->top + 9, "class=\"m\"", "100%");
    gd_svg_text(out, right + 15, g->top + height * STEPS, "class=\"m\"", "0%");
}

void gd_svg_matrix(const gd_chart *c, gd_text_buffer *out)
{
    grid g = lay_out(c);
    double size = g.cell * (double)c->classes, right = g.left + size;
    gd_svg_begin(c, fmax(right + 64, 240), g.top + size + 16, out);
    if (c->title)
        gd_svg_text(out, 14, 24, "class=\"t\"", c->title);
    if (c->x_label)
        gd_svg_text(out, g.left + size / 2, c->title ? 50 : 24,
                    "text-anchor=\"middle\" class=\"m\"", c->x_label);
    if (c->y_label) {
        gd_buffer_add(out, "<g transform=\"translate(18 %.1f) rotate(-90)\">", g.top + size / 2);
        gd_svg_text(out, 0, 0, "text-anchor=\"middle\" class=\"m\"", c->y_label);
        gd_buffer_add(out, "</g>\n");
    }
    draw_names(&g, out);
    gd_buffer_add(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" class=\"g\"/>\n",
                  g.left - 0.5, g.top - 0.5, size, size);
    for (int64_t row = 0; row < c->classes; row++) {
        int64_t of_row = 0;
        for (int64_t column = 0; column < c->classes; column++)
            of_row += c->counts[row * c->classes + column];
        for (int64_t column = 0; column < c->classes; column++)
            draw_cell(&g, row, column, of_row, out);
        gd_buffer_add(out, "\n");
    }
    draw_scale(&g, right + 12, size, out);
    gd_buffer_add(out, "</svg>\n");
}

/* ---- images ---- */

static void add_base64(gd_text_buffer *out, const unsigned char *bytes, size_t size)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < size; i += 3) {
        size_t n = size - i < 3 ? size - i : 3;
        uint32_t bits = (uint32_t)bytes[i] << 16 | (n > 1 ? (uint32_t)bytes[i + 1] << 8 : 0) |
                        (n > 2 ? (uint32_t)bytes[i + 2] : 0);
        const char four[4] = { digits[bits >> 18], digits[bits >> 12 & 63],
                               n > 1 ? digits[bits >> 6 & 63] : '=',
                               n > 2 ? digits[bits & 63] : '=' };
        gd_buffer_put(out, four, 4);
    }
}

/* Each pixel as a square of `scale` by `scale`: viewers would blur what they enlarge. */
static gd_status enlarge(const gd_image *image, int64_t scale, gd_image *out)
{
    *out = (gd_image){ image->height * scale, image->width * scale, image->channels, NULL };
    size_t channels = (size_t)image->channels;
    out->pixels = gd_alloc((size_t)(out->height * out->width) * channels);
    if (!out->pixels)
        return GD_ERR_MEMORY;
    for (int64_t y = 0; y < out->height; y++)
        for (int64_t x = 0; x < out->width; x++)
            memcpy(out->pixels + (size_t)(y * out->width + x) * channels,
                   image->pixels + (size_t)(y / scale * image->width + x / scale) * channels,
                   channels);
    return GD_OK;
}

/* An image in so many squares a pixel, with its upper left corner there. */
static gd_status add_image(const gd_image *image, int64_t scale, double x, double y,
                           gd_text_buffer *out)
{
    unsigned char *png = NULL;
    size_t size;
    gd_image large;
    gd_status status = enlarge(image, scale, &large);
    if (status == GD_OK)
        status = gd_image_encode_png("gd_chart_images", &large, &png, &size);
    if (status == GD_OK) {
        gd_buffer_add(out,
                      "<image x=\"%.0f\" y=\"%.0f\" width=\"%lld\" height=\"%lld\" "
                      "href=\"data:image/png;base64,",
                      x, y, (long long)large.width, (long long)large.height);
        add_base64(out, png, size);
        gd_buffer_add(out, "\"/>\n");
    }
    gd_image_free(&large);
    gd_free(png);
    return status;
}

enum { CAPTION = 20, CAPTION_CHARACTER = 7, LEAST_CAPTION = 120 };

/* Below the images of a row. */
static void add_captions(const gd_chart *c, int64_t row, int64_t scale, double y,
                         gd_text_buffer *out)
{
    const gd_image_grid *g = &c->grid;
    for (int64_t column = 0; column < g->columns; column++) {
        int64_t index = row * g->columns + column;
        const gd_caption *caption = index < g->count ? &c->captions[index] : NULL;
        char text[256];
        if (!caption || !caption->text)
            continue;
        gd_snprintf(
            text, sizeof text, "%.*s",
            (int)gd_text_bytes(caption->text, (size_t)(g->width * scale / CAPTION_CHARACTER)),
            caption->text);
        gd_svg_text(out, 14 + (double)(column * (g->width + 1) * scale), y,
                    caption->wrong ? "class=\"e\"" : NULL, text);
    }
}

/* Whole squares a pixel, as many as fit; more, where a caption needs them. */
static int64_t scale_of(const gd_chart *c)
{
    int64_t scale = (c->width - 28) / c->image.width;
    scale = scale < 1 ? 1 : scale > 12 ? 12 : scale;
    while (c->captions && scale < 12 && scale * c->grid.width < LEAST_CAPTION)
        scale++;
    return scale;
}

gd_status gd_svg_image(const gd_chart *c, gd_text_buffer *out)
{
    const int64_t scale = scale_of(c), bands = c->captions ? c->grid.rows : 1;
    const double top = c->title ? 38 : 14;
    const double band = (double)(scale * c->grid.height + CAPTION);
    gd_svg_begin(
        c, (double)(scale * c->image.width) + 28,
        top + 14 + (c->captions ? band * (double)bands : (double)(scale * c->image.height)), out);
    if (c->title)
        gd_svg_text(out, 14, 24, "class=\"t\"", c->title);
    gd_status status = GD_OK;
    for (int64_t row = 0; status == GD_OK && row < bands; row++) {
        gd_image part = c->captions ? gd_chart_band(c, row) : c->image;
        status = add_image(&part, scale, 14, top + band * (double)row, out);
        if (c->captions)
            add_captions(c, row, scale, top + band * (double)(row + 1) - 6, out);
    }
    gd_buffer_add(out, "</svg>\n");
    return status;
}
