/* cli/pictures.c: what gradus train and gradus eval draw into a run's folder "pictures". */
#include "pictures.h"
#include "train.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

gd_status cli_save_picture(gd_chart *chart, const char *folder, const char *name)
{
    char path[CLI_PATH_BYTES + 64];
    snprintf(path, sizeof path, "%.4000s/pictures", folder);
    (void)mkdir(path, 0777); /* where that fails, writing the file says so */
    snprintf(path, sizeof path, "%.4000s/pictures/%.40s.svg", folder, name);
    gd_status status = chart ? gd_chart_save(chart, path) : gd_error_code();
    gd_chart_release(chart);
    if (status != GD_ERR_UNSUPPORTED)
        return status;
    gd_error_clear(); /* images, in a build without libpng */
    return GD_OK;
}

/* ---- samples ---- */

enum { MOST_FIELDS = 8 };

static bool take_samples(const gd_dataset *set, int64_t most, gd_tensor *fields[MOST_FIELDS])
{
    int64_t count = gd_dataset_count(set);
    return gd_dataset_field_count(set) <= MOST_FIELDS &&
           gd_dataset_get(set, 0, count < most ? count : most, fields) == GD_OK;
}

/* Of images, and of digits, which are flat. */
static bool is_image(const cli_data *d, gd_shape *shape)
{
    *shape = d->input;
    if (shape->rank == 1 && strcmp(d->kind->name, "mnist") == 0)
        *shape = GD_SHAPE(1, 28, 28);
    return shape->rank == 3 && (shape->dim[0] == 1 || shape->dim[0] == 3);
}

gd_tensor *cli_sample_images(const cli_data *d, const gd_dataset *set, int64_t most)
{
    gd_shape shape;
    gd_tensor *fields[MOST_FIELDS];
    if (!is_image(d, &shape) || !take_samples(set, most, fields))
        return NULL;
    return gd_reshape(fields[0], GD_SHAPE(gd_tensor_shape(fields[0]).dim[0], shape.dim[0],
                                          shape.dim[1], shape.dim[2]));
}

gd_tensor *cli_sample_loss(const cli_data *d, gd_model *model, gd_language_model *language,
                           const gd_dataset *set, int64_t most)
{
    (void)d;
    gd_tensor *fields[MOST_FIELDS];
    if (!take_samples(set, most, fields))
        return NULL;
    if (language)
        return gd_language_model_loss(language, fields[0], fields[1]);
    gd_tensor *x = cli_model_input(model, fields[0]);
    return gd_model_loss(model, gd_model_forward(model, x), fields[1]);
}

/* ---- curves ---- */

/* Loss, and the metric that chooses, of training and of validation. */
static gd_chart *draw_curves(const cli_training *t, const gd_history *history)
{
    const char *monitor = t->monitor;
    const char *metrics[] = { "loss", monitor && strcmp(monitor, "loss") != 0 ? monitor : NULL };
    char title[CLI_PATH_BYTES];
    snprintf(title, sizeof title, "%s", gd_history_name(history));
    gd_chart *chart = gd_chart_create(.title = title, .x_label = "step");
    gd_status status = GD_OK;
    for (int i = 0; chart && status == GD_OK && i < 4; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s/%s", i % 2 ? "validation" : "train",
                 metrics[i / 2] ? metrics[i / 2] : "");
        int64_t metric = metrics[i / 2] ? gd_history_metric_find(history, name) : -1;
        if (metric >= 0)
            status = gd_chart_line(chart, name, gd_history_metric_points(history, metric),
                                   gd_history_metric_steps(history, metric),
                                   gd_history_metric_values(history, metric), .dashed = i >= 2);
    }
    if (status == GD_OK)
        return chart;
    gd_chart_release(chart);
    return NULL;
}

/* What the model makes of the validation data. */
static gd_status draw_samples(const cli_training *t)
{
    cli_sample *samples = NULL;
    const gd_dataset *set = t->data.validation;
    int64_t count = t->language ? 0 : cli_samples_find(&t->data, t->model, set, &samples);
    gd_status status = count < 0   ? gd_error_code()
                       : count > 0 ? cli_draw_samples(&t->data, set, count, samples, t->folder)
                                   : GD_OK;
    free(samples);
    return status;
}

gd_status cli_draw_training(const cli_training *t)
{
    gd_history *history = gd_history_load(t->folder);
    gd_status status =
        cli_save_picture(history ? draw_curves(t, history) : NULL, t->folder, "curves");
    gd_history_release(history);
    gd_module_set_training(cli_train_module(t), false);
    if (status == GD_OK)
        status = cli_draw_model(&t->data, t->model, t->language, t->data.validation, t->folder);
    return status == GD_OK && !t->settings->is_trial ? draw_samples(t) : status;
}

gd_status cli_draw_rates(const cli_training *t, int64_t count, const gd_lr_point *points, double lr)
{
    return cli_save_picture(gd_chart_lr_range(count, points, lr), t->folder, "lr-range");
}

/* ---- what a model has learnt to look at ---- */

/* The first convolution's filters: in colour where it reads three channels; of one that reads other
 * numbers of channels nothing can be seen. */
static gd_status draw_filters(const gd_module *m, const char *folder)
{
    for (int i = 0; i < gd_module_count(m); i++) {
        gd_tensor *w = gd_module_tensor(m, i);
        gd_shape shape = gd_tensor_shape(w);
        if (!gd_module_is_parameter(m, i) || shape.rank != 4)
            continue;
        if ((shape.dim[1] != 1 && shape.dim[1] != 3) || shape.dim[2] * shape.dim[3] < 4)
            return GD_OK;
        gd_chart *chart = gd_chart_images(w, true);
        char title[160];
        snprintf(title, sizeof title, "%.100s", gd_module_path(m, i));
        if (chart)
            (void)gd_chart_set_title(chart, title);
        return cli_save_picture(chart, folder, "filters");
    }
    return GD_OK;
}

/* softmax(scale q k^T) of an attention's q and k [batch, heads, time, width], of the first sample, a map
 * for each head: [heads, 1, queries, keys]. NULL, and no error: it has a mask, or groups of heads. */
static gd_tensor *attention_maps(gd_tensor *attention)
{
    char attribute[160];
    gd_tensor_attribute(attention, attribute, sizeof attribute);
    gd_tensor *q = gd_tensor_input(attention, 1), *k = gd_tensor_input(attention, 2);
    if (!q || !k)
        return NULL;
    gd_shape shape = gd_tensor_shape(q), keys = gd_tensor_shape(k);
    if (shape.rank != 4 || keys.dim[1] != shape.dim[1] || strstr(attribute, "mask"))
        return NULL;
    q = gd_slice(q, 0, 0, 1, 1);
    k = gd_slice(k, 0, 0, 1, 1);
    gd_tensor *scores = gd_mul_scalar(gd_matmul(q, gd_transpose(k, -1, -2)),
                                      strtod(strchr(attribute, '=') + 1, NULL));
    if (strstr(attribute, " causal"))
        scores = gd_add(scores, gd_triu(gd_full_like(scores, -1e30), 1));
    gd_tensor *maps = gd_softmax(scores, -1);
    maps = gd_div(maps, gd_max(maps, GD_AXES(-1), true)); /* of each query, what it looks at most */
    return gd_reshape(maps, GD_SHAPE(shape.dim[1], 1, shape.dim[2], keys.dim[2]));
}

static gd_status draw_attention(gd_tensor *attention, int layer, const char *folder)
{
    char name[40], title[96];
    gd_tensor *maps = attention_maps(attention);
    if (!maps)
        return gd_error_code();
    gd_chart *chart = gd_chart_images(maps, true);
    snprintf(name, sizeof name, "attention-%d", layer);
    snprintf(title, sizeof title, "Attention %d: queries down, keys across", layer);
    if (chart)
        (void)gd_chart_set_title(chart, title);
    return cli_save_picture(chart, folder, name);
}

/* Of the graph of one sample's loss. */
static gd_status draw_attentions(gd_tensor *loss, const char *folder)
{
    enum { MOST_LAYERS = 12 };
    int64_t count = loss ? gd_graph_order(loss, NULL, 0) : 0;
    gd_tensor **order = calloc((size_t)count + 1, sizeof *order);
    gd_status status = !loss ? gd_error_code() : order ? GD_OK : GD_ERR_MEMORY;
    if (status == GD_OK)
        (void)gd_graph_order(loss, order, count);
    int layer = 0;
    for (int64_t i = 0; status == GD_OK && i < count && layer < MOST_LAYERS; i++)
        if (strcmp(gd_tensor_op(order[i]), "attention_result") == 0)
            status = draw_attention(order[i], ++layer, folder);
    free(order);
    return status;
}

gd_status cli_draw_model(const cli_data *d, gd_model *model, gd_language_model *language,
                         const gd_dataset *set, const char *folder)
{
    gd_module *m = language ? gd_language_model_module(language) : gd_model_module(model);
    gd_status status = draw_filters(m, folder);
    if (status == GD_OK)
        status = gd_scope_begin(d->context);
    if (status != GD_OK)
        return status;
    bool attends = language != NULL;
    for (int i = 0; model && i < gd_model_layer_count(model); i++)
        attends |= gd_model_layer_spec(model, i)->heads > 0;
    if (attends)
        status = draw_attentions(cli_sample_loss(d, model, language, set, 1), folder);
    (void)gd_scope_end(d->context);
    return status;
}

/* ---- answers whose truth is known ---- */

gd_tensor *cli_probabilities(gd_model *model, gd_tensor *x)
{
    gd_tensor *y = cli_model_output(model, x);
    return gd_model_gives_probabilities(model) ? y : gd_softmax(y, -1);
}

bool cli_answers_open(cli_answers *a, gd_context *context, int64_t classes)
{
    *a = (cli_answers){ .confusion = gd_confusion_create(context, classes),
                        .sure = gd_ranking_create(context),
                        .curves = classes > 2 && classes <= CLI_MOST_CURVES ? (int)classes : 1 };
    bool ok = a->confusion && a->sure;
    for (int i = 0; i < a->curves; i++)
        ok = (a->curve[i] = gd_ranking_create(context)) && ok;
    return ok;
}

/* Scores of a class, and whether it is the truth. */
static gd_status add_class(gd_ranking *ranking, gd_tensor *probabilities, gd_tensor *truth,
                           int64_t class)
{
    gd_tensor *scores = gd_squeeze(gd_slice(probabilities, 1, class, class + 1, 1), 1);
    return gd_ranking_add(ranking, scores, gd_eq(truth, gd_full_like(truth, (double)class)));
}

gd_status cli_answers_add(cli_answers *a, gd_tensor *probabilities, gd_tensor *truth)
{
    int64_t classes = gd_tensor_shape(probabilities).dim[1];
    gd_tensor *best = gd_argmax(probabilities, -1, false), *wide = gd_cast(truth, GD_I64);
    gd_status status = gd_confusion_add(a->confusion, probabilities, truth);
    if (status == GD_OK)
        status =
            gd_ranking_add(a->sure, gd_max(probabilities, GD_AXES(-1), false), gd_eq(best, wide));
    if (a->curves > 1 || classes == 2)
        for (int i = 0; status == GD_OK && i < a->curves; i++)
            status = add_class(a->curve[i], probabilities, wide, classes == 2 ? 1 : i);
    else if (status == GD_OK)
        status = gd_ranking_add(a->curve[0], probabilities, gd_one_hot(wide, classes, GD_F32));
    return status;
}

static double *read_doubles(gd_tensor *t)
{
    size_t bytes = (size_t)gd_tensor_count(t) * sizeof(double);
    double *values = malloc(bytes + 1);
    if (values && gd_tensor_read(t, values, bytes) == GD_OK)
        return values;
    free(values);
    return NULL;
}

static bool add_line(gd_chart *chart, const char *name, gd_tensor *x, gd_tensor *y)
{
    double *xs = read_doubles(x), *ys = read_doubles(y);
    bool ok = xs && ys && gd_chart_line(chart, name, gd_tensor_count(x), xs, ys) == GD_OK;
    free(xs);
    free(ys);
    return ok;
}

/* Curve i, with its area, where there are samples of the class and others. */
static bool add_curve(const cli_answers *a, const cli_data *d, gd_chart *chart, int i, bool is_roc)
{
    char name[128], number[CLI_COUNT_TEXT];
    const char *class = a->curves > 1 || d->outputs == 2
                            ? cli_data_class(d, d->outputs == 2 ? 1 : i, number)
                            : "all classes";
    gd_tensor *x, *y, *at;
    gd_status status = is_roc ? gd_ranking_roc(a->curve[i], &x, &y, &at)
                              : gd_ranking_precision_recall(a->curve[i], &y, &x, &at);
    if (status == GD_ERR_STATE) {
        gd_error_clear();
        return true;
    }
    if (status != GD_OK)
        return false;
    snprintf(name, sizeof name, "%.80s: %.4f", class,
             is_roc ? gd_ranking_auc(a->curve[i]) : gd_ranking_average_precision(a->curve[i]));
    return add_line(chart, name, x, y);
}

static gd_chart *draw_rates(const cli_answers *a, const cli_data *d, bool is_roc)
{
    gd_chart *chart =
        is_roc ? gd_chart_create(.title = "ROC curves, and the areas under them",
                                 .x_label = "false positive rate", .y_label = "true positive rate",
                                 .width = 640, .height = 520)
               : gd_chart_create(.title = "Precision and recall, and the average precision",
                                 .x_label = "recall", .y_label = "precision", .width = 640,
                                 .height = 520);
    bool ok = chart != NULL;
    for (int i = 0; ok && i < a->curves; i++)
        ok = add_curve(a, d, chart, i, is_roc);
    if (ok)
        return chart;
    gd_chart_release(chart);
    return NULL;
}

static gd_chart *draw_confusion(const cli_answers *a, const cli_data *d)
{
    char(*numbers)[CLI_COUNT_TEXT] = calloc((size_t)d->outputs + 1, sizeof *numbers);
    const char **names = calloc((size_t)d->outputs + 1, sizeof *names);
    gd_chart *chart = NULL;
    for (int64_t i = 0; numbers && names && i < d->outputs; i++)
        names[i] = cli_data_class(d, i, numbers[i]);
    if (numbers && names)
        chart = gd_chart_confusion(a->confusion, d->outputs, names);
    free(numbers);
    free(names);
    return chart;
}

gd_status cli_draw_answers(const cli_answers *a, const cli_data *d, const char *folder)
{
    enum { BINS = 10, MOST_NAMED = 200 };
    gd_status status = GD_OK;
    if (d->outputs <= MOST_NAMED)
        status = cli_save_picture(draw_confusion(a, d), folder, "confusion");
    if (status == GD_OK)
        status = cli_save_picture(draw_rates(a, d, true), folder, "roc");
    if (status == GD_OK)
        status = cli_save_picture(draw_rates(a, d, false), folder, "precision-recall");
    gd_chart *calibration = status == GD_OK ? gd_chart_calibration(a->sure, BINS) : NULL;
    if (calibration)
        (void)gd_chart_set_title(calibration, "Calibration of the predicted class");
    if (status == GD_OK)
        status = cli_save_picture(calibration, folder, "calibration");
    return status;
}
