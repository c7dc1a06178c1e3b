/* gradus/chart.h: pictures of a training, as SVG that stands by itself and as text for a terminal:
 *
 *     const double steps[] = { 100, 200, 300 }, losses[] = { 2.3, 0.9, 0.4 };
 *     gd_chart *chart = gd_chart_create(.title = "Loss", .x_label = "step", .log_y = true);
 *     gd_chart_line(chart, "train", 3, steps, losses, .smoothing = 0.9);
 *     gd_chart_save(chart, "loss.svg");
 *     gd_chart_release(chart);
 *
 * SVG has colours for light and for dark surroundings and leaves the background to them. Text and
 * names are UTF-8; longer names are cut off where they do not fit. Values that are not finite leave a
 * gap.
 */
#ifndef GRADUS_CHART_H
#define GRADUS_CHART_H

#include <gradus/metrics.h>
#include <gradus/options.h>
#include <gradus/train.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Used by one thread at a time. */
typedef struct gd_chart gd_chart;

typedef struct gd_chart_options {
    size_t size GD_DEFAULT(sizeof(gd_chart_options));
    const char *title, *x_label, *y_label; /* NULL: none */
    bool log_x, log_y;                     /* what is not positive leaves a gap, then */
    int64_t width GD_DEFAULT(720), height GD_DEFAULT(420); /* of the SVG, 200 to 8192 */
} gd_chart_options;
#define GD_CHART_DEFAULTS .size = sizeof(gd_chart_options), .width = 720, .height = 420

/* ---- curves and histograms ---- */

/* A chart with two axes and nothing on it. The caller releases it. NULL: GD_ERR_INVALID, GD_ERR_MEMORY. */
GD_API gd_chart *gd_chart_create_with(const gd_chart_options *options);
#define gd_chart_create(...) \
    GD_WITH_0(gd_chart_create_with, gd_chart_options, GD_CHART_DEFAULTS, __VA_ARGS__)
GD_API void gd_chart_release(gd_chart *chart);

typedef struct gd_chart_line_options {
    size_t size GD_DEFAULT(sizeof(gd_chart_line_options));
    /* Weight of the past in an exponential moving average that is drawn over the pale line, from 0 (none)
     * to less than 1; TensorBoard's "smoothing". */
    double smoothing;
    bool dashed;
} gd_chart_line_options;
#define GD_CHART_LINE_DEFAULTS .size = sizeof(gd_chart_line_options), .dashed = false

/* A line through `count` points, whose values are copied. The legend has its name; NULL: it is in none.
 * GD_ERR_INVALID, GD_ERR_MEMORY. */
GD_API gd_status gd_chart_line_with(gd_chart *chart, const char *name, int64_t count,
                                    const double *x, const double *y,
                                    const gd_chart_line_options *options);
#define gd_chart_line(chart, name, count, x, ...)                                             \
    GD_WITH_5(gd_chart_line_with, gd_chart_line_options, GD_CHART_LINE_DEFAULTS, chart, name, \
              count, x, __VA_ARGS__, )
/* How the finite ones of the values are spread, as bars of equal width: 1 to 512 bins. */
GD_API gd_status gd_chart_histogram(gd_chart *chart, const char *name, int64_t count,
                                    const double *values, int64_t bins);
/* A vertical line at x with a text beside it. */
GD_API gd_status gd_chart_mark(gd_chart *chart, double x, const char *text);

/* ---- ready-made ---- */

/* The ROC curve with its area; gd_chart_line can add others to it. Errors of gd_ranking_roc. */
GD_API gd_chart *gd_chart_roc(const gd_ranking *ranking);
/* The precision-recall curve with the average precision, and the share of the positives as a line. */
GD_API gd_chart *gd_chart_precision_recall(const gd_ranking *ranking);
/* How probable the scores say it is, and how often it is: `bins` ranges of equal width. */
GD_API gd_chart *gd_chart_calibration(const gd_ranking *ranking, int64_t bins);
/* A confusion matrix with its counts, coloured by the share of each row. `count` is the number of
 * class names, that of the classes, or 0: they are numbered. */
GD_API gd_chart *gd_chart_confusion(const gd_confusion *confusion, int64_t count,
                                    const char *const *names);
/* What gd_lr_range found, with a mark at the rate `lr` that it gave (NaN: none). GD_ERR_INVALID: no
 * points, or a rate that is not positive. */
GD_API gd_chart *gd_chart_lr_range(int64_t count, const gd_lr_point *points, double lr);
/* Images [n, channels, height, width] as a grid, channels 1 or 3. `stretch`: each from its least value
 * (black) to its greatest (white), as filters and attention maps are shown; else u8 from 0 to 255,
 * floats from 0 to 1. GD_ERR_SHAPE, GD_ERR_MEMORY. As SVG, GD_ERR_UNSUPPORTED in a build without
 * libpng. */
GD_API gd_chart *gd_chart_images(gd_tensor *images, bool stretch);
/* A text below image `index` of those, cut where it is wider than the image; NULL: none. `wrong`: in the colour
 * of mistakes. GD_ERR_INVALID: there is no such image. GD_ERR_MEMORY. */
GD_API gd_status gd_chart_caption(gd_chart *chart, int64_t index, const char *text, bool wrong);
/* Change the title of a chart; NULL: none. */
GD_API gd_status gd_chart_set_title(gd_chart *chart, const char *title);

/* ---- output ---- */

/* Write it as an SVG file, atomically as gd_file_write does. */
GD_API gd_status gd_chart_save(const gd_chart *chart, const char *path);
/* The SVG, by the conventions of gd_tensor_format. 0, and an error: no memory. */
GD_API size_t gd_chart_svg(const gd_chart *chart, char *text, size_t size);

typedef enum gd_text_style {
    GD_TEXT_ASCII,   /* where the locale is not UTF-8 */
    GD_TEXT_UNICODE, /* dots of Braille, blocks */
    GD_TEXT_COLOUR,  /* and ECMA-48's colours, as terminals have them */
} gd_text_style;

/* For a terminal of that many columns, with about so many rows, 20 and 5 at least; lines end in \n. By
 * the conventions of gd_tensor_format. 0, and an error: no memory. */
GD_API size_t gd_chart_text(const gd_chart *chart, int columns, int rows, gd_text_style style,
                            char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
