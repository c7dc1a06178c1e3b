/* cli/samples.c: what a model makes of single samples whose truth is known: the pictures "predictions" of gradus
 * train and gradus eval, and the mistakes that gradus eval prints. Start at cli_samples_find(). */
#include "pictures.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOOKED_AT = 512, BATCH = 64, MOST_FIELDS = 8, SHOWN = 16, PRINTED = 5, DRAWN = 4 };

/* ---- asking ---- */

static double *read_doubles(gd_tensor *t)
{
    gd_tensor *wide = gd_cast(t, GD_F64);
    size_t bytes = (size_t)gd_tensor_count(t) * sizeof(double);
    double *values = malloc(bytes + 1);
    if (values && wide && gd_tensor_read(wide, values, bytes) == GD_OK)
        return values;
    free(values);
    return NULL;
}

/* Of a row of probabilities [classes], or of numbers in the target's unit. */
static void take_sample(const cli_data *d, const double *answer, const double *truth, cli_sample *s)
{
    if (d->regression) {
        s->truth = cli_data_decode(d, truth[0]);
        s->predicted = cli_data_decode(d, answer[0]);
        s->sure = fabs(s->predicted - s->truth);
        s->wrong = true;
        return;
    }
    int64_t best = 0;
    for (int64_t k = 1; k < d->outputs; k++)
        best = answer[k] > answer[best] ? k : best;
    s->truth = truth[0];
    s->predicted = (double)best;
    s->sure = answer[best];
    s->wrong = s->truth != s->predicted;
}

static bool ask(const cli_data *d, gd_model *model, const gd_dataset *set, int64_t first,
                int64_t count, cli_sample *samples)
{
    gd_tensor *fields[MOST_FIELDS];
    if (gd_dataset_get(set, first, count, fields) != GD_OK)
        return false;
    gd_tensor *y =
        d->regression ? cli_model_output(model, fields[0]) : cli_probabilities(model, fields[0]);
    double *answers = y ? read_doubles(y) : NULL;
    double *truths = answers ? read_doubles(fields[1]) : NULL;
    int64_t each = gd_tensor_count(fields[1]) / count;
    for (int64_t i = 0; truths && i < count; i++) {
        samples[i].index = first + i;
        take_sample(d, answers + i * d->outputs, truths + i * each, &samples[i]);
    }
    bool ok = truths != NULL;
    free(answers);
    free(truths);
    return ok;
}

/* Mistakes first, and of them the surest, or the numbers that are off most; then what was least sure. */
static int by_interest(const void *a, const void *b)
{
    const cli_sample *p = a, *q = b;
    if (p->wrong != q->wrong)
        return p->wrong ? -1 : 1;
    int order = (p->sure < q->sure) - (p->sure > q->sure);
    if (order == 0)
        return (p->index > q->index) - (p->index < q->index);
    return p->wrong ? order : -order;
}

int64_t cli_samples_find(const cli_data *d, gd_model *model, const gd_dataset *set,
                         cli_sample **samples)
{
    int64_t count = gd_dataset_count(set);
    count = count > LOOKED_AT ? LOOKED_AT : count;
    *samples = calloc((size_t)count + 1, sizeof **samples);
    bool ok = *samples && gd_dataset_tensor_count(set) <= MOST_FIELDS &&
              gd_no_grad_begin(d->context) == GD_OK;
    for (int64_t at = 0; ok && at < count; at += BATCH) {
        ok = gd_scope_begin(d->context) == GD_OK &&
             ask(d, model, set, at, count - at < BATCH ? count - at : BATCH, *samples + at);
        ok = gd_scope_end(d->context) == GD_OK && ok;
    }
    if (!ok || gd_no_grad_end(d->context) != GD_OK)
        return -1;
    qsort(*samples, (size_t)count, sizeof **samples, by_interest);
    return count;
}

/* ---- images ---- */

/* "dog (98 %)", "dog (98 %), is cat" */
static gd_status add_caption(gd_chart *chart, int64_t index, const cli_data *d, const cli_sample *s)
{
    char text[160], predicted[CLI_COUNT_TEXT], truth[CLI_COUNT_TEXT];
    int at = snprintf(text, sizeof text, "%.60s (%.0f %%)",
                      cli_data_class(d, (int64_t)s->predicted, predicted), 100.0 * s->sure);
    if (s->wrong)
        snprintf(text + at, sizeof text - (size_t)at, ", is %.60s",
                 cli_data_class(d, (int64_t)s->truth, truth));
    return gd_chart_caption(chart, index, text, s->wrong);
}

/* The first `most` of the samples. NULL: they are no images, or an error is recorded. */
static gd_chart *draw_images(const cli_data *d, const gd_dataset *set, int64_t count,
                             const cli_sample *samples, int64_t most)
{
    int64_t indices[SHOWN];
    count = count > most ? most : count;
    for (int64_t i = 0; i < count; i++)
        indices[i] = samples[i].index;
    gd_dataset *chosen = count > 0 ? gd_dataset_subset(set, count, indices) : NULL;
    gd_tensor *images = chosen ? cli_sample_images(d, chosen, count) : NULL;
    gd_chart *chart = images ? gd_chart_images(images, gd_tensor_dtype(images) != GD_U8) : NULL;
    gd_status status = chart ? gd_chart_set_title(chart, "Predictions: the surest mistakes first")
                             : gd_error_code();
    for (int64_t i = 0; chart && status == GD_OK && i < count; i++)
        status = add_caption(chart, i, d, &samples[i]);
    gd_dataset_release(chosen);
    if (status == GD_OK)
        return chart;
    gd_chart_release(chart);
    return NULL;
}

/* ---- numbers ---- */

/* Predicted against true, as dots around the line of what is exact. */
static gd_chart *draw_numbers(const cli_data *d, int64_t count, const cli_sample *samples)
{
    char title[160];
    double *x = calloc(4 * (size_t)count + 1, sizeof *x), *y = x ? x + 2 * count : NULL;
    double ends[2] = { INFINITY, -INFINITY };
    for (int64_t i = 0; x && i < count; i++) {
        x[2 * i] = x[2 * i + 1] = samples[i].truth;
        y[2 * i] = samples[i].predicted;
        y[2 * i + 1] = NAN; /* a gap, so that there are no lines */
        ends[0] = fmin(ends[0], samples[i].truth);
        ends[1] = fmax(ends[1], samples[i].truth);
    }
    snprintf(title, sizeof title, "%.100s: predicted against true",
             d->encoder ? gd_table_encoder_target(d->encoder) : "y");
    gd_chart *chart = x ? gd_chart_create(.title = title, .x_label = "true", .y_label = "predicted",
                                          .width = 560, .height = 520)
                        : NULL;
    if (chart && (gd_chart_line(chart, NULL, 2 * count, x, y) != GD_OK ||
                  gd_chart_line(chart, "exact", 2, ends, ends, .dashed = true) != GD_OK)) {
        gd_chart_release(chart);
        chart = NULL;
    }
    free(x);
    return chart;
}

/* ---- shown ---- */

gd_status cli_draw_samples(const cli_data *d, const gd_dataset *set, int64_t count,
                           const cli_sample *samples, const char *folder)
{
    gd_chart *chart = NULL;
    gd_status status = gd_scope_begin(d->context);
    if (status != GD_OK || count == 0)
        return status;
    if (d->regression && d->outputs == 1)
        chart = draw_numbers(d, count, samples);
    else if (!d->regression)
        chart = draw_images(d, set, count, samples, SHOWN);
    status =
        chart || gd_error_code() != GD_OK ? cli_save_picture(chart, folder, "predictions") : GD_OK;
    gd_status ended = gd_scope_end(d->context);
    return status == GD_OK ? ended : status;
}

/* Of a table: rows that can be found in it. */
static void print_rows(const cli_data *d, int64_t count, const cli_sample *samples)
{
    printf(d->regression ? "\nFarthest off:\n" : "\nThe surest mistakes:\n");
    for (int64_t i = 0; i < count; i++) {
        const cli_sample *s = &samples[i];
        char a[CLI_COUNT_TEXT], b[CLI_COUNT_TEXT];
        printf("  row %-6lld ", (long long)d->rows[s->index] + 1);
        if (d->regression)
            printf("is %.7g, predicted %s\n", s->truth, cli_number(s->predicted, a));
        else
            printf("is %.40s, predicted %.40s with %.1f %%\n",
                   cli_data_class(d, (int64_t)s->truth, a),
                   cli_data_class(d, (int64_t)s->predicted, b), 100.0 * s->sure);
    }
}

bool cli_print_mistakes(const cli_data *d, const gd_dataset *set, int64_t count,
                        const cli_sample *samples)
{
    int64_t wrong = 0;
    while (wrong < count && wrong < PRINTED && samples[wrong].wrong)
        wrong++;
    if (wrong > 0 && d->rows)
        print_rows(d, wrong, samples);
    if (wrong == 0 || d->rows || d->regression || !cli_is_terminal())
        return true;
    if (gd_scope_begin(d->context) != GD_OK)
        return false;
    gd_chart *chart = draw_images(d, set, wrong, samples, DRAWN);
    if (chart) {
        printf("\n");
        (void)cli_print_chart(chart, 48);
    }
    gd_chart_release(chart);
    return gd_scope_end(d->context) == GD_OK && (chart || gd_error_code() == GD_OK);
}
