/* cli/search_report.c: what a search has found: a table of its trials, the best one, and pictures. Start at
 * cli_search_report(). */
#include "search.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { CURVES = 8 /* in one picture */ };

void cli_trial_folder(const cli_study *search, int64_t index, char folder[CLI_PATH_BYTES])
{
    snprintf(folder, CLI_PATH_BYTES, "%.4000s/trials/%03lld", search->folder, (long long)index + 1);
}

void cli_trial_result(const cli_study *search, double value, char text[CLI_COUNT_TEXT])
{
    if (isnan(value))
        snprintf(text, CLI_COUNT_TEXT, "-");
    else if (strstr(search->metric, "accuracy"))
        snprintf(text, CLI_COUNT_TEXT, "%.2f %%", 100.0 * value);
    else
        snprintf(text, CLI_COUNT_TEXT, "%.4g", value);
}

bool cli_is_better(const cli_study *search, double a, double b)
{
    if (isnan(a) || isnan(b))
        return !isnan(a);
    return cli_metric_direction(search->metric) > 0 ? a > b : a < b;
}

/* ---- the order ---- */

static double result_of(const cli_trial *trial)
{
    return trial->rounds > 0 && !trial->problem ? trial->results[trial->rounds - 1] : NAN;
}

static bool comes_before(const cli_study *search, int64_t a, int64_t b)
{
    const cli_trial *x = &search->trials[a], *y = &search->trials[b];
    if (!x->problem != !y->problem)
        return !x->problem;
    if (x->rounds != y->rounds)
        return x->rounds > y->rounds;
    if (cli_is_better(search, result_of(x), result_of(y)))
        return true;
    return !cli_is_better(search, result_of(y), result_of(x)) && a < b;
}

int64_t *cli_search_order(const cli_study *search)
{
    int64_t *order = malloc((size_t)search->trial_count * sizeof *order);
    for (int64_t i = 0; order && i < search->trial_count; i++) {
        int64_t k = i;
        for (; k > 0 && comes_before(search, i, order[k - 1]); k--)
            order[k] = order[k - 1];
        order[k] = i;
    }
    return order;
}

/* ---- the table ---- */

/* "lr" of "optimizer.lr", "name" of neither "optimizer.name" nor "schedule.name". */
static const char *title_of(const cli_try *t)
{
    const char *dot = strrchr(t->key, '.');
    return dot && strcmp(dot, ".name") != 0 ? dot + 1 : dot ? t->option->name : t->key;
}

static int width_of(const cli_study *search, int i)
{
    size_t width = strlen(title_of(&search->tries[i]));
    for (int64_t k = 0; k < search->trial_count; k++) {
        size_t own = strlen(search->trials[k].values[i]);
        width = own > width ? own : width;
    }
    return width > 24 ? 24 : (int)width;
}

/* Its end, where it is too long: of paths, that tells more. */
static void print_value(const char *text, int width)
{
    size_t length = strlen(text);
    if (length > (size_t)width)
        printf("  ..%s", text + length - (size_t)width + 2);
    else
        printf("  %*s", width, text);
}

/* Where trials end after different epochs: by halving, or for want of patience. */
static bool has_epochs(const cli_study *search)
{
    bool tried = false;
    for (int i = 0; i < search->try_count; i++)
        tried |= strcmp(search->tries[i].key, "epochs") == 0;
    return search->method == CLI_HALVING || (search->base.patience > 0 && !tried);
}

/* Of which the metric was told. */
static int64_t epochs_of(const cli_study *search, const gd_history *history)
{
    char name[GD_METRIC_NAME_SIZE + 16];
    snprintf(name, sizeof name, "validation/%s", search->metric);
    return gd_history_metric_points(history, gd_history_metric_find(history, name));
}

static void print_row(const cli_study *search, int64_t index, bool is_best)
{
    const cli_trial *trial = &search->trials[index];
    char text[CLI_COUNT_TEXT], folder[CLI_PATH_BYTES];
    cli_trial_folder(search, index, folder);
    gd_history *history = trial->rounds > 0 || trial->problem ? gd_history_load(folder) : NULL;
    gd_error_clear();
    printf("%s%5lld", is_best ? cli_bold() : "", (long long)index + 1);
    for (int i = 0; i < search->try_count; i++)
        print_value(trial->values[i], width_of(search, i));
    if (has_epochs(search))
        printf("  %6lld", (long long)epochs_of(search, history));
    cli_trial_result(search, result_of(trial), text);
    printf("  %10s", text);
    printf("  %8s%s%s\n", history ? cli_duration(gd_history_seconds(history), text) : "-",
           is_best          ? "  best"
           : trial->problem ? "  failed"
                            : "",
           is_best ? cli_plain() : "");
    gd_history_release(history);
}

static void print_table(const cli_study *search, const int64_t *order)
{
    printf("trial");
    for (int i = 0; i < search->try_count; i++)
        print_value(title_of(&search->tries[i]), width_of(search, i));
    if (has_epochs(search))
        printf("  epochs");
    printf("  %10s  %8s\n", search->metric, "time");
    for (int64_t i = 0; i < search->trial_count; i++)
        print_row(search, order[i], i == 0 && !isnan(result_of(&search->trials[order[0]])));
}

/* ---- pictures ---- */

/* The best trials' metric over the steps. */
static gd_chart *draw_curves(const cli_study *search, const int64_t *order)
{
    char name[GD_METRIC_NAME_SIZE + 16], title[64], folder[CLI_PATH_BYTES];
    snprintf(name, sizeof name, "validation/%s", search->metric);
    gd_chart *chart = gd_chart_create(.title = name, .x_label = "step");
    gd_status status = GD_OK;
    for (int64_t i = 0; chart && status == GD_OK && i < search->trial_count && i < CURVES; i++) {
        cli_trial_folder(search, order[i], folder);
        gd_history *history = gd_history_load(folder);
        int64_t metric = gd_history_metric_find(history, name);
        snprintf(title, sizeof title, "trial %lld", (long long)order[i] + 1);
        if (metric >= 0)
            status = gd_chart_line(chart, title, gd_history_metric_points(history, metric),
                                   gd_history_metric_steps(history, metric),
                                   gd_history_metric_values(history, metric));
        gd_history_release(history);
        gd_error_clear();
    }
    if (status == GD_OK)
        return chart;
    gd_chart_release(chart);
    return NULL;
}

typedef struct point {
    double x, y;
} point;

static int by_x(const void *a, const void *b)
{
    const point *p = a, *q = b;
    return (p->x > q->x) - (p->x < q->x);
}

/* The results over the values of an option. */
static gd_chart *draw_option(const cli_study *search, const cli_try *t, int i)
{
    size_t size = (size_t)search->trial_count;
    point *points = calloc(size, sizeof *points);
    double *x = calloc(2 * size, sizeof *x), *y = calloc(2 * size, sizeof *y);
    int64_t count = 0;
    for (int64_t k = 0; points && k < search->trial_count; k++)
        if (!isnan(result_of(&search->trials[k])))
            points[count++] =
                (point){ strtod(search->trials[k].values[i], NULL), result_of(&search->trials[k]) };
    if (points && count > 0)
        qsort(points, (size_t)count, sizeof *points, by_x);
    /* Gaps between them leave the dots alone, where lines would go to and fro between other options. */
    bool joined = search->try_count == 1;
    for (int64_t k = 0; points && x && y && k < count; k++) {
        int64_t at = joined ? k : 2 * k;
        x[at] = points[k].x;
        y[at] = points[k].y;
        if (!joined)
            x[at + 1] = points[k].x, y[at + 1] = NAN;
    }
    char title[GD_METRIC_NAME_SIZE + 16];
    snprintf(title, sizeof title, "validation/%s", search->metric);
    bool spans = count > 0 && points && points[0].x > 0 &&
                 points[count - 1].x >= 20 * points[0].x; /* decades */
    gd_chart *chart = gd_chart_create(.title = title, .x_label = t->key, .log_x = spans);
    if (chart &&
        (!x || !y || gd_chart_line(chart, NULL, joined ? count : 2 * count, x, y) != GD_OK)) {
        gd_chart_release(chart);
        chart = NULL;
    }
    free(points);
    free(x);
    free(y);
    return chart;
}

static gd_status save_chart(const cli_study *search, gd_chart *chart, const char *name)
{
    char path[CLI_PATH_BYTES + 128];
    snprintf(path, sizeof path, "%s/pictures/%s.svg", search->folder, name);
    gd_status status = chart ? gd_chart_save(chart, path) : gd_error_code();
    gd_chart_release(chart);
    return status;
}

static gd_status save_pictures(const cli_study *search, const int64_t *order)
{
    char path[CLI_PATH_BYTES + 32];
    snprintf(path, sizeof path, "%s/pictures", search->folder);
    (void)mkdir(path, 0777); /* where that fails, writing the file says so */
    gd_status status = save_chart(search, draw_curves(search, order), "curves");
    for (int i = 0; status == GD_OK && i < search->try_count; i++) {
        const cli_try *t = &search->tries[i];
        if (t->option->kind == CLI_WHOLE || t->option->kind == CLI_REAL)
            status = save_chart(search, draw_option(search, t, i), t->key);
    }
    return status;
}

/* ---- all of it ---- */

static void print_best(const cli_study *search, int64_t best)
{
    char folder[CLI_PATH_BYTES], word[CLI_WORD_BYTES], result[CLI_COUNT_TEXT];
    cli_trial_folder(search, best, folder);
    cli_trial_result(search, result_of(&search->trials[best]), result);
    printf("\nThe best is trial %lld, with a validation %s of %s:", (long long)best + 1,
           search->metric, result);
    for (int i = 0; i < search->try_count; i++)
        printf("%s %s=%s", i ? "," : "", search->tries[i].key, search->trials[best].values[i]);
    (void)cli_shell_word(folder, word);
    printf("\n  gradus predict %s DATA   with its model\n"
           "  gradus train --config %s/config.json   trains it anew\n"
           "Pictures are in %s/pictures.\n",
           word, word, search->folder);
}

int cli_search_report(const cli_study *search)
{
    int64_t *order = cli_search_order(search);
    if (!order)
        return CLI_FAILED;
    bool any = !isnan(result_of(&search->trials[order[0]]));
    int code = CLI_OK;
    if (!search->base.quiet)
        print_table(search, order);
    if (!any) {
        fprintf(stderr, "gradus search: no trial came to an end; the first: %s\n",
                search->trials[0].problem ? search->trials[0].problem : "?");
        code = CLI_FAILED;
    } else if (save_pictures(search, order) != GD_OK) {
        code = cli_fail();
    } else if (!search->base.quiet) {
        print_best(search, order[0]);
    }
    free(order);
    return code;
}
