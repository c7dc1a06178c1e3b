/* report/chart.c: charts as data: what is put on them, and the ready-made ones. Who draws them:
 * report/svg.c, report/terminal.c. */
#include "report/chart.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/text.h"
#include "report/pixels.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_CLASSES = 1024 };

/* ---- text ---- */

size_t gd_text_characters(const char *text)
{
    size_t count = 0;
    for (int length; (length = gd_utf8_length(text)) > 0; text += length)
        count++;
    return count;
}

size_t gd_text_bytes(const char *text, size_t most)
{
    const char *at = text;
    for (int length; most > 0 && (length = gd_utf8_length(at)) > 0; at += length)
        most--;
    return (size_t)(at - text);
}

/* A copy in *out, NULL of NULL. */
static gd_status copy_text(const char *who, const char *text, char **out)
{
    *out = NULL;
    if (!text)
        return GD_OK;
    if (!gd_utf8_is_printable(text))
        return gd_fail(GD_ERR_INVALID, "%s: a text is not printable UTF-8", who);
    *out = gd_strdup(text);
    return *out ? GD_OK : GD_ERR_MEMORY;
}

/* ---- making ---- */

static gd_chart *make(const char *who, gd_chart_kind kind, const gd_chart_options *o)
{
    if (o->width < 200 || o->width > 8192 || o->height < 200 || o->height > 8192)
        return gd_fail_null(GD_ERR_INVALID, "%s: a chart of %lld x %lld; 200 to 8192 are possible",
                            who, (long long)o->width, (long long)o->height);
    gd_chart *c = gd_alloc_zero(1, sizeof *c);
    if (!c)
        return NULL;
    c->kind = kind;
    c->log_x = o->log_x;
    c->log_y = o->log_y;
    c->width = o->width;
    c->height = o->height;
    c->low[0] = c->low[1] = c->high[0] = c->high[1] = NAN;
    if (copy_text(who, o->title, &c->title) == GD_OK &&
        copy_text(who, o->x_label, &c->x_label) == GD_OK &&
        copy_text(who, o->y_label, &c->y_label) == GD_OK)
        return c;
    gd_chart_release(c);
    return NULL;
}

gd_chart *gd_chart_create_with(const gd_chart_options *given)
{
    gd_chart_options options = { GD_CHART_DEFAULTS };
    if (!gd_options_read("gd_chart_create", &options, sizeof options, given))
        return NULL;
    return make("gd_chart_create", GD_CHART_AXES, &options);
}

void gd_chart_release(gd_chart *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->series_count; i++) {
        gd_free(c->series[i].name);
        gd_free(c->series[i].x);
        gd_free(c->series[i].y);
        gd_free(c->series[i].smoothed);
    }
    for (size_t i = 0; i < c->mark_count; i++)
        gd_free(c->marks[i].text);
    for (int64_t i = 0; c->names && i < c->classes; i++)
        gd_free(c->names[i]);
    gd_free(c->series);
    gd_free(c->marks);
    gd_free(c->names);
    gd_free(c->counts);
    gd_image_free(&c->image);
    for (int64_t i = 0; c->captions && i < c->grid.count; i++)
        gd_free(c->captions[i].text);
    gd_free(c->captions);
    gd_free(c->title);
    gd_free(c->x_label);
    gd_free(c->y_label);
    gd_free(c);
}

gd_status gd_chart_set_title(gd_chart *chart, const char *title)
{
    char *copy;
    gd_status status = chart ? copy_text("gd_chart_set_title", title, &copy)
                             : gd_fail(GD_ERR_INVALID, "gd_chart_set_title: the chart is NULL");
    if (status != GD_OK)
        return status;
    gd_free(chart->title);
    chart->title = copy;
    return GD_OK;
}

/* ---- what is on it ---- */

static gd_status check_axes(const char *who, const gd_chart *c)
{
    if (!c || c->kind != GD_CHART_AXES)
        return gd_fail(GD_ERR_INVALID, "%s: the chart is NULL, or has no axes", who);
    return GD_OK;
}

/* A series with room for its values, not yet on the chart; NULL: failed. */
static gd_series *new_series(const char *who, gd_chart *c, const char *name, size_t count)
{
    if (!gd_grow((void **)&c->series, &c->series_capacity, c->series_count + 1, sizeof *c->series))
        return NULL;
    gd_series *s = &c->series[c->series_count];
    *s = (gd_series){ .count = count };
    if (copy_text(who, name, &s->name) != GD_OK)
        return NULL;
    s->x = gd_alloc((count + 1) * sizeof(double));
    s->y = gd_alloc((count + 1) * sizeof(double));
    if (s->x && s->y)
        return s;
    gd_free(s->name);
    gd_free(s->x);
    gd_free(s->y);
    return NULL;
}

/* An average that does not begin at 0: divided by the sum of its weights. */
static void smooth(size_t count, const double *y, double weight, double *out)
{
    double sum = 0, weights = 0;
    for (size_t i = 0; i < count; i++) {
        if (isfinite(y[i])) {
            sum = weight * sum + (1 - weight) * y[i];
            weights = weight * weights + (1 - weight);
        }
        out[i] = isfinite(y[i]) ? sum / weights : (double)NAN;
    }
}

static gd_status add_line(const char *who, gd_chart *chart, const char *name, size_t count,
                          const double *x, const double *y, const gd_chart_line_options *o)
{
    gd_series *s = new_series(who, chart, name, count);
    if (!s)
        return gd_error_last();
    if (count) {
        memcpy(s->x, x, count * sizeof *x);
        memcpy(s->y, y, count * sizeof *y);
    }
    s->dashed = o->dashed;
    chart->series_count++;
    if (o->smoothing == 0)
        return GD_OK;
    s->smoothed = gd_alloc((count + 1) * sizeof(double));
    if (!s->smoothed)
        return GD_ERR_MEMORY;
    smooth(count, y, o->smoothing, s->smoothed);
    return GD_OK;
}

gd_status gd_chart_line_with(gd_chart *chart, const char *name, int64_t count, const double *x,
                             const double *y, const gd_chart_line_options *given)
{
    static const char who[] = "gd_chart_line";
    gd_chart_line_options o = { GD_CHART_LINE_DEFAULTS };
    if (!gd_options_read(who, &o, sizeof o, given))
        return gd_error_last();
    gd_status status = check_axes(who, chart);
    if (status != GD_OK)
        return status;
    if (count < 0 || (count > 0 && (!x || !y)) || !(o.smoothing >= 0 && o.smoothing < 1))
        return gd_fail(GD_ERR_INVALID, "%s: %lld points, a NULL, or smoothing %g beyond 0 and 1",
                       who, (long long)count, o.smoothing);
    return add_line(who, chart, name, (size_t)count, x, y, &o);
}

static void fill_bars(gd_series *s, int64_t count, const double *values)
{
    double low = INFINITY, high = -INFINITY;
    for (int64_t i = 0; i < count; i++) {
        low = isfinite(values[i]) && values[i] < low ? values[i] : low;
        high = isfinite(values[i]) && values[i] > high ? values[i] : high;
    }
    if (!(high >= low))
        low = 0, high = 1;
    if (high == low)
        low -= 0.5, high += 0.5;
    double bins = (double)s->count, width = high / bins - low / bins;
    for (size_t i = 0; i < s->count; i++) {
        s->x[i] = low + width * (double)i;
        s->y[i] = 0;
    }
    s->x[s->count] = high;
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(values[i]))
            continue;
        double place = values[i] / width - low / width;
        size_t bin = place > 0 ? (size_t)place : 0;
        s->y[bin < s->count ? bin : s->count - 1] += 1;
    }
}

gd_status gd_chart_histogram(gd_chart *chart, const char *name, int64_t count, const double *values,
                             int64_t bins)
{
    static const char who[] = "gd_chart_histogram";
    gd_status status = check_axes(who, chart);
    if (status != GD_OK)
        return status;
    if (count < 0 || (count > 0 && !values) || bins < 1 || bins > 512)
        return gd_fail(GD_ERR_INVALID, "%s: %lld values in %lld bins, or a NULL", who,
                       (long long)count, (long long)bins);
    gd_series *s = new_series(who, chart, name, (size_t)bins);
    if (!s)
        return gd_error_last();
    s->bars = true;
    fill_bars(s, count, values);
    chart->series_count++;
    return GD_OK;
}

gd_status gd_chart_mark(gd_chart *chart, double x, const char *text)
{
    static const char who[] = "gd_chart_mark";
    gd_status status = check_axes(who, chart);
    if (status != GD_OK)
        return status;
    if (!isfinite(x) || !text)
        return gd_fail(GD_ERR_INVALID, "%s: at %g, or the text is NULL", who, x);
    if (!gd_grow((void **)&chart->marks, &chart->mark_capacity, chart->mark_count + 1,
                 sizeof *chart->marks))
        return GD_ERR_MEMORY;
    gd_chart_note *mark = &chart->marks[chart->mark_count];
    mark->x = x;
    status = copy_text(who, text, &mark->text);
    chart->mark_count += status == GD_OK;
    return status;
}

/* ---- of rankings ---- */

/* x and y from 0 to 1. */
static gd_chart *unit_chart(const char *who, const char *title, const char *x, const char *y)
{
    gd_chart *c = make(who, GD_CHART_AXES,
                       &(gd_chart_options){ GD_CHART_DEFAULTS, .title = title, .x_label = x,
                                            .y_label = y, .width = 480, .height = 480 });
    for (int i = 0; c && i < 2; i++)
        c->low[i] = 0, c->high[i] = 1;
    return c;
}

/* A line for comparison, and the points of two tensors. Releases the chart on failure. */
static gd_chart *with_curve(const char *who, gd_chart *c, const char *name, gd_tensor *x,
                            gd_tensor *y, const double pale_y[2])
{
    double *xs = c ? gd_doubles_read(x) : NULL, *ys = xs ? gd_doubles_read(y) : NULL;
    const double ends[2] = { 0, 1 };
    gd_chart_line_options plain = { GD_CHART_LINE_DEFAULTS };
    bool ok = ys && add_line(who, c, NULL, 2, ends, pale_y, &plain) == GD_OK &&
              add_line(who, c, name, (size_t)gd_tensor_count(x), xs, ys, &plain) == GD_OK;
    gd_free(xs);
    gd_free(ys);
    if (ok) {
        c->series[0].dashed = c->series[0].pale = true;
        return c;
    }
    gd_chart_release(c);
    return NULL;
}

gd_chart *gd_chart_roc(const gd_ranking *ranking)
{
    static const char who[] = "gd_chart_roc";
    gd_tensor *x, *y, *at;
    if (gd_ranking_roc(ranking, &x, &y, &at) != GD_OK)
        return NULL;
    char name[64];
    gd_snprintf(name, sizeof name, "area %.4f", gd_ranking_auc(ranking));
    gd_chart *c = unit_chart(who, "ROC curve", "false positive rate", "true positive rate");
    return with_curve(who, c, name, x, y, (const double[]){ 0, 1 });
}

gd_chart *gd_chart_precision_recall(const gd_ranking *ranking)
{
    static const char who[] = "gd_chart_precision_recall";
    gd_tensor *precision, *recall, *at;
    if (gd_ranking_precision_recall(ranking, &precision, &recall, &at) != GD_OK)
        return NULL;
    double *all = gd_doubles_read(precision);
    if (!all)
        return NULL;
    const double share[2] = { all[0], all[0] }; /* with every sample: that of the positives */
    gd_free(all);
    char name[64];
    gd_snprintf(name, sizeof name, "average precision %.4f", gd_ranking_average_precision(ranking));
    gd_chart *c = unit_chart(who, "Precision and recall", "recall", "precision");
    return with_curve(who, c, name, recall, precision, share);
}

gd_chart *gd_chart_calibration(const gd_ranking *ranking, int64_t bins)
{
    static const char who[] = "gd_chart_calibration";
    gd_tensor *x, *y;
    if (gd_ranking_calibration(ranking, bins, &x, &y) != GD_OK)
        return NULL;
    gd_chart *c = unit_chart(who, "Calibration", "mean score", "share of positives");
    return with_curve(who, c, "model", x, y, (const double[]){ 0, 1 });
}

/* ---- of a confusion matrix ---- */

static bool fill_names(gd_chart *c, const char *const *names)
{
    static const char who[] = "gd_chart_confusion";
    c->names = gd_alloc_zero((size_t)c->classes, sizeof *c->names);
    for (int64_t i = 0; c->names && i < c->classes; i++) {
        char number[24];
        snprintf(number, sizeof number, "%lld", (long long)i);
        if (names && !names[i])
            (void)gd_fail(GD_ERR_INVALID, "%s: the name of class %lld is NULL", who, (long long)i);
        if (copy_text(who, names ? names[i] : number, &c->names[i]) != GD_OK || !c->names[i])
            return false;
    }
    return c->names;
}

gd_chart *gd_chart_confusion(const gd_confusion *confusion, int64_t count, const char *const *names)
{
    static const char who[] = "gd_chart_confusion";
    gd_tensor *matrix = gd_confusion_matrix(confusion);
    if (!matrix)
        return NULL;
    int64_t classes = gd_tensor_shape(matrix).dim[0];
    if (classes > MOST_CLASSES || count < 0 || (count > 0 && (!names || count != classes)))
        return gd_fail_null(GD_ERR_INVALID,
                            "%s: %lld names of %lld classes (at most %d), or a NULL", who,
                            (long long)count, (long long)classes, MOST_CLASSES);
    gd_chart *c =
        make(who, GD_CHART_MATRIX,
             &(gd_chart_options){ GD_CHART_DEFAULTS, .title = "Confusion matrix",
                                  .x_label = "predicted", .y_label = "truth", .width = 560 });
    size_t bytes = (size_t)gd_tensor_count(matrix) * sizeof(int64_t);
    if (c) {
        c->classes = classes;
        c->counts = gd_alloc(bytes);
        if (c->counts && fill_names(c, count ? names : NULL) &&
            gd_tensor_read(matrix, c->counts, bytes) == GD_OK)
            return c;
    }
    gd_chart_release(c);
    return NULL;
}

/* ---- of a learning-rate range test ---- */

/* So that the curve before it diverges is seen. */
static void limit_losses(gd_chart *c, int64_t count, const gd_lr_point *points)
{
    double low = points[0].loss, high = low, first = low;
    for (int64_t i = 1; i < count; i++) {
        double loss = points[i].loss;
        if (!(loss <= 2 * first - low + fabs(first) / 2))
            break;
        low = loss < low ? loss : low;
        high = loss > high ? loss : high;
    }
    if (!(high > low))
        return;
    double step = pow(10, floor(log10(high - low))) / 2;
    c->low[1] = floor((low - 0.05 * (high - low)) / step) * step;
    c->high[1] = ceil((high + 0.05 * (high - low)) / step) * step;
}

static gd_status fill_rates(gd_chart *c, int64_t count, const gd_lr_point *points, double lr)
{
    gd_series *s = new_series("gd_chart_lr_range", c, NULL, (size_t)count);
    if (!s)
        return gd_error_last();
    for (int64_t i = 0; i < count; i++) {
        s->x[i] = points[i].lr;
        s->y[i] = points[i].loss;
    }
    c->series_count++;
    limit_losses(c, count, points);
    char text[64];
    gd_snprintf(text, sizeof text, "steepest at %.2g", lr);
    return isnan(lr) ? GD_OK : gd_chart_mark(c, lr, text);
}

gd_chart *gd_chart_lr_range(int64_t count, const gd_lr_point *points, double lr)
{
    static const char who[] = "gd_chart_lr_range";
    bool positive = count > 0 && points;
    for (int64_t i = 0; positive && i < count; i++)
        positive = points[i].lr > 0 && isfinite(points[i].lr);
    if (!positive || lr <= 0 || isinf(lr))
        return gd_fail_null(GD_ERR_INVALID, "%s: no points, or a rate that is not positive", who);
    gd_chart *c = gd_chart_create(.title = "Learning-rate range test", .x_label = "learning rate",
                                  .y_label = "loss", .log_x = true);
    if (c && fill_rates(c, count, points, lr) == GD_OK)
        return c;
    gd_chart_release(c);
    return NULL;
}

/* ---- of images ---- */

gd_chart *gd_chart_images(gd_tensor *images, bool stretch)
{
    static const char who[] = "gd_chart_images";
    gd_chart *c = make(who, GD_CHART_IMAGES, &(gd_chart_options){ GD_CHART_DEFAULTS });
    if (c && gd_pixels_read(who, images, stretch, 0, &c->grid, &c->image) == GD_OK)
        return c;
    gd_chart_release(c);
    return NULL;
}

gd_status gd_chart_caption(gd_chart *c, int64_t index, const char *text, bool wrong)
{
    static const char who[] = "gd_chart_caption";
    if (!c || c->kind != GD_CHART_IMAGES || index < 0 || index >= c->grid.count)
        return gd_fail(GD_ERR_INVALID, "%s: the chart is NULL, or has no image %lld", who,
                       (long long)index);
    if (!c->captions)
        c->captions = gd_alloc_zero((size_t)c->grid.count, sizeof *c->captions);
    if (!c->captions)
        return GD_ERR_MEMORY;
    char *copy;
    gd_status status = copy_text(who, text, &copy);
    if (status != GD_OK)
        return status;
    gd_free(c->captions[index].text);
    c->captions[index] = (gd_caption){ copy, wrong };
    return GD_OK;
}

gd_image gd_chart_band(const gd_chart *c, int64_t row)
{
    int64_t top = row * (c->grid.height + 1);
    return (gd_image){ .height = c->grid.height,
                       .width = c->image.width,
                       .channels = c->image.channels,
                       .pixels = c->image.pixels + top * c->image.width * c->image.channels };
}

/* ---- output ---- */

static gd_status write_svg(const gd_chart *c, gd_text_buffer *out)
{
    gd_status status = GD_OK;
    if (c->kind == GD_CHART_AXES)
        gd_svg_axes(c, out);
    else if (c->kind == GD_CHART_MATRIX)
        gd_svg_matrix(c, out);
    else
        status = gd_svg_image(c, out);
    return out->failed ? GD_ERR_MEMORY : status;
}

gd_status gd_chart_save(const gd_chart *chart, const char *path)
{
    if (!chart || !path)
        return gd_fail(GD_ERR_INVALID, "gd_chart_save: an argument is NULL");
    gd_text_buffer svg = { 0 };
    gd_status status = write_svg(chart, &svg);
    if (status == GD_OK)
        status = gd_file_write(path, svg.text, svg.length);
    gd_free(svg.text);
    return status;
}

/* As snprintf: what fits, and the length of all. */
static size_t hand_out(gd_text_buffer *from, gd_status status, char *text, size_t size)
{
    size_t length = status == GD_OK ? from->length : 0;
    size_t fits = size == 0 ? 0 : length < size ? length : size - 1;
    if (fits)
        memcpy(text, from->text, fits);
    if (size)
        text[fits] = '\0';
    gd_free(from->text);
    return length;
}

size_t gd_chart_svg(const gd_chart *chart, char *text, size_t size)
{
    gd_text_buffer svg = { 0 };
    gd_status status =
        chart ? write_svg(chart, &svg) : gd_fail(GD_ERR_INVALID, "gd_chart_svg: the chart is NULL");
    return hand_out(&svg, status, text, size);
}

size_t gd_chart_text(const gd_chart *chart, int columns, int rows, gd_text_style style, char *text,
                     size_t size)
{
    gd_text_buffer out = { 0 };
    bool known = style == GD_TEXT_ASCII || style == GD_TEXT_UNICODE || style == GD_TEXT_COLOUR;
    gd_status status =
        chart && known && columns >= 20 && columns <= 1000 && rows >= 5 && rows <= 1000
            ? gd_chart_print(chart, columns, rows, style, &out)
            : gd_fail(GD_ERR_INVALID,
                      "gd_chart_text: %d columns and %d rows, a style that is none, "
                      "or the chart is NULL",
                      columns, rows);
    if (status == GD_OK && out.failed)
        status = GD_ERR_MEMORY;
    return hand_out(&out, status, text, size);
}
