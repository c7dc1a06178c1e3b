/* cli/compare.c: gradus compare: what runs have logged, side by side. Start at cli_compare(). */
#include "cli.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CELL = 16, LABEL = 24, WIDEST = 120, ROWS = 18 };

typedef struct comparison {
    cli_words folders;
    gd_history **runs; /* [folders.count] */
    const char *
        *names; /* of the runs: the folders' names, or whole paths where two have one name */
    const char *metric; /* asked for; NULL: what is most telling */
    const char *svg;
    double smoothing;
    bool by_time;
} comparison;

/* ---- runs ---- */

static void name_runs(comparison *c)
{
    for (int i = 0; i < c->folders.count; i++) {
        c->names[i] = gd_history_name(c->runs[i]);
        for (int k = 0; k < c->folders.count; k++)
            if (k != i && strcmp(gd_history_name(c->runs[k]), c->names[i]) == 0) {
                c->names[i] = c->folders.words[i];
                break;
            }
    }
}

static bool load_runs(comparison *c)
{
    size_t count = (size_t)c->folders.count;
    c->runs = calloc(count, sizeof(gd_history *));
    c->names = calloc(count, sizeof *c->names);
    if (!c->runs || !c->names) {
        (void)gd_error_record(GD_ERR_MEMORY, "out of memory");
        return false;
    }
    for (size_t i = 0; i < count; i++)
        if (!(c->runs[i] = gd_history_load(c->folders.words[i])))
            return false;
    name_runs(c);
    return true;
}

static void release(comparison *c)
{
    for (int i = 0; c->runs && i < c->folders.count; i++)
        gd_history_release(c->runs[i]);
    free(c->runs);
    free(c->names);
}

/* ---- metrics ---- */

int cli_metric_direction(const char *name)
{
    static const char *const less[] = {
        "loss", "error", "perplexity", "mae", "mse", "rmse", "nll"
    };
    static const char *const more[] = {
        "accuracy", "precision", "recall", "f1", "auc", "r2", "top"
    };
    const char *slash = strrchr(name, '/');
    const char *last = slash ? slash + 1 : name;
    for (size_t i = 0; i < sizeof less / sizeof *less; i++)
        if (strstr(last, less[i]))
            return -1;
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        if (strstr(last, more[i]))
            return 1;
    return 0;
}

/* The index of a run's best value; -1: none is a number. */
static int64_t best_of(const gd_history *run, int64_t metric, int way)
{
    const double *values = gd_history_metric_values(run, metric);
    int64_t best = -1;
    for (int64_t i = 0; i < gd_history_metric_points(run, metric); i++)
        if (!isnan(values[i]) && (best < 0 || way * values[i] > way * values[best]))
            best = i;
    return best;
}

/* The run with the best of the best values; -1: none, or it is the only one. */
static int best_run(const comparison *c, const char *name, int way)
{
    int best = -1, with = 0;
    double value = 0;
    for (int i = 0; way != 0 && i < c->folders.count; i++) {
        int64_t metric = gd_history_metric_find(c->runs[i], name);
        int64_t at = best_of(c->runs[i], metric, way);
        if (at < 0)
            continue;
        double own = gd_history_metric_values(c->runs[i], metric)[at];
        if (best < 0 || way * own > way * value)
            best = i, value = own;
        with++;
    }
    return with > 1 ? best : -1;
}

/* Call `each` with every metric of the runs once, in the order in which they first occur. */
static void each_metric(const comparison *c, void (*each)(void *user, const char *name), void *user)
{
    for (int i = 0; i < c->folders.count; i++)
        for (int64_t m = 0; m < gd_history_metric_count(c->runs[i]); m++) {
            const char *name = gd_history_metric_name(c->runs[i], m);
            bool seen = strncmp(name, "time/", 5) == 0 || strcmp(name, "memory") == 0;
            for (int k = 0; k < i && !seen; k++)
                seen = gd_history_metric_find(c->runs[k], name) >= 0;
            if (!seen)
                each(user, name);
        }
}

/* ---- the table ---- */

/* A block of columns of the table: as many runs as fit. */
typedef struct block {
    const comparison *c;
    int first, end;
} block;

/* Columns of UTF-8 text, nearly. */
static int columns_of(const char *text)
{
    int columns = 0;
    for (; *text; text++)
        columns += ((unsigned char)*text & 0xc0) != 0x80;
    return columns;
}

/* The text in `width` columns, cut off where it is longer; its end, where that tells more. */
static void print_field(const char *text, int width, bool right, const char *before,
                        const char *after)
{
    const char *from = text;
    bool cut = columns_of(text) > width;
    while (columns_of(from) > (cut ? width - 2 : width))
        for (from++; ((unsigned char)*from & 0xc0) == 0x80;)
            from++;
    int gap = width - columns_of(from) - 2 * cut;
    printf("%*s%s%s%s%s%*s", right ? gap : 0, "", before, cut ? ".." : "", from, after,
           right ? 0 : gap, "");
}

static void print_label(const char *label)
{
    print_field(label, LABEL, false, "", "");
}

static void print_cell(const char *text, bool best)
{
    printf(" ");
    print_field(text, CELL - 1, true, best ? cli_bold() : "", best ? cli_plain() : "");
}

static void number_text(double value, char text[32])
{
    snprintf(text, 32, fabs(value) >= 1e-4 || value == 0 ? "%.5g" : "%.3e", value);
}

static void print_metric(void *user, const char *name)
{
    const block *b = user;
    const comparison *c = b->c;
    int way = cli_metric_direction(name), best = best_run(c, name, way);
    char text[64], step[CLI_COUNT_TEXT];
    print_label(name);
    for (int i = b->first; i < b->end; i++) {
        int64_t metric = gd_history_metric_find(c->runs[i], name);
        int64_t points = gd_history_metric_points(c->runs[i], metric);
        text[0] = '\0';
        if (points)
            number_text(gd_history_metric_values(c->runs[i], metric)[points - 1], text);
        print_cell(text, false);
    }
    printf("\n");
    if (way == 0)
        return;
    print_label("  best, at step");
    for (int i = b->first; i < b->end; i++) {
        int64_t metric = gd_history_metric_find(c->runs[i], name);
        int64_t at = best_of(c->runs[i], metric, way);
        text[0] = '\0';
        if (at >= 0) {
            number_text(gd_history_metric_values(c->runs[i], metric)[at], text);
            size_t length = strlen(text);
            snprintf(text + length, sizeof text - length, " %s",
                     cli_count((int64_t)gd_history_metric_steps(c->runs[i], metric)[at], step));
        }
        print_cell(text, i == best);
    }
    printf("\n");
}

/* An option's values, where they differ or the option is not everywhere. */
static void print_option(const block *b, const char *name, bool *any)
{
    const comparison *c = b->c;
    const char *first = gd_history_option(c->runs[0], name);
    bool differs = false;
    for (int i = 1; i < c->folders.count; i++) {
        const char *own = gd_history_option(c->runs[i], name);
        differs = differs || !own != !first || (own && first && strcmp(own, first) != 0);
    }
    if (!differs)
        return;
    if (!*any)
        printf("\n%soptions that differ%s\n", cli_bold(), cli_plain());
    *any = true;
    print_label(name);
    for (int i = b->first; i < b->end; i++) {
        const char *own = gd_history_option(c->runs[i], name);
        print_cell(own ? own : "-", false);
    }
    printf("\n");
}

static void print_options(const block *b)
{
    const comparison *c = b->c;
    bool any = false;
    for (int i = 0; i < c->folders.count; i++)
        for (int64_t o = 0; o < gd_history_option_count(c->runs[i]); o++) {
            const char *name = gd_history_option_name(c->runs[i], o);
            bool seen = false;
            for (int k = 0; k < i && !seen; k++)
                seen = gd_history_option(c->runs[k], name);
            if (!seen)
                print_option(b, name, &any);
        }
}

static void print_block(block *b)
{
    const comparison *c = b->c;
    char text[CLI_COUNT_TEXT];
    print_label("");
    for (int i = b->first; i < b->end; i++)
        print_cell(c->names[i], true);
    printf("\n");
    print_label("last step");
    for (int i = b->first; i < b->end; i++) {
        const int64_t step = gd_history_last_step(c->runs[i]); /* -1: its log is empty */
        print_cell(step < 0 ? "none" : cli_count(step, text), false);
    }
    printf("\n");
    print_label("time");
    for (int i = b->first; i < b->end; i++)
        print_cell(cli_duration(gd_history_seconds(c->runs[i]), text), false);
    printf("\n");
    each_metric(c, print_metric, b);
    print_options(b);
}

static void print_table(const comparison *c)
{
    int fit = (cli_width() - LABEL) / CELL;
    fit = fit < 1 ? 1 : fit;
    for (int first = 0; first < c->folders.count; first += fit) {
        int end = first + fit < c->folders.count ? first + fit : c->folders.count;
        print_block(&(block){ c, first, end });
        printf("\n");
    }
}

/* ---- curves ---- */

/* The metric that says most: of validation before training, a loss before others. */
typedef struct choice {
    const char *name;
    int rank;
} choice;

static void choose(void *user, const char *name)
{
    choice *best = user;
    int way = cli_metric_direction(name);
    int rank = (way != 0) * 4 + (strstr(name, "train") == NULL) * 2 + (way < 0);
    if (!best->name || rank > best->rank)
        *best = (choice){ name, rank };
}

static gd_chart *draw(const comparison *c, const char *name)
{
    gd_chart *chart = gd_chart_create(.title = name, .x_label = c->by_time ? "seconds" : "step");
    for (int i = 0; chart && i < c->folders.count; i++) {
        int64_t metric = gd_history_metric_find(c->runs[i], name);
        const double *x = c->by_time ? gd_history_metric_times(c->runs[i], metric)
                                     : gd_history_metric_steps(c->runs[i], metric);
        if (metric >= 0 &&
            gd_chart_line(chart, c->names[i], gd_history_metric_points(c->runs[i], metric), x,
                          gd_history_metric_values(c->runs[i], metric),
                          .smoothing = c->smoothing) != GD_OK) {
            gd_chart_release(chart);
            return NULL;
        }
    }
    return chart;
}

int cli_print_chart(const gd_chart *chart, int most)
{
    int width = cli_width() < 20 ? 20 : cli_width() > most ? most : cli_width();
    gd_text_style style = !cli_has_unicode() ? GD_TEXT_ASCII
                          : cli_has_colour() ? GD_TEXT_COLOUR
                                             : GD_TEXT_UNICODE;
    size_t size = gd_chart_text(chart, width, ROWS, style, NULL, 0);
    char *text = malloc(size + 1);
    if (!size || !text) {
        free(text);
        return cli_fail();
    }
    (void)gd_chart_text(chart, width, ROWS, style, text, size + 1);
    fputs(text, stdout);
    free(text);
    return CLI_OK;
}

static int show_curves(const comparison *c)
{
    choice best = { c->metric, 0 };
    if (!best.name)
        each_metric(c, choose, &best);
    bool there = false;
    for (int i = 0; best.name && i < c->folders.count; i++)
        there = there || gd_history_metric_find(c->runs[i], best.name) >= 0;
    if (!there && c->metric) {
        fprintf(stderr, "gradus compare: no run has a metric '%s'; the table has their names\n",
                c->metric);
        return CLI_FAILED;
    }
    if (!there)
        return CLI_OK;
    gd_chart *chart = draw(c, best.name);
    if (!chart)
        return cli_fail();
    int code = cli_print_chart(chart, WIDEST);
    if (code == CLI_OK && c->svg && gd_chart_save(chart, c->svg) != GD_OK)
        code = cli_fail();
    gd_chart_release(chart);
    return code;
}

int cli_compare(int argc, char **argv)
{
    comparison c = { .smoothing = 0 };
    const cli_option options[] = {
        { "metric", "NAME", "whose curves are drawn (default: the most telling one)", CLI_TEXT,
          &c.metric, 0, 0 },
        { "smoothing", "N", "weight of the past in a moving average over the curves (0)", CLI_REAL,
          &c.smoothing, 0, 0.9999 },
        { "time", NULL, "curves over seconds instead of steps", CLI_FLAG, &c.by_time, 0, 0 },
        { "svg", "FILE", "write the curves as SVG, too", CLI_TEXT, &c.svg, 0, 0 },
        { "RUN...", NULL, "folders of runs, with metrics.jsonl and, perhaps, config.json",
          CLI_OPERANDS, &c.folders, 0, 0 },
    };
    const cli_command_help help = {
        "gradus compare [OPTION]... RUN...",
        "Show runs side by side: the last and the best values of their metrics, the options that\n"
        "differ, and the curves of one metric."
    };
    int code;
    if (cli_parse(argc, argv, &help, options, sizeof options / sizeof *options, &code))
        return code;
    if (c.folders.count == 0) {
        fprintf(stderr,
                "gradus compare: the folder of a run is missing; 'gradus compare --help'\n");
        return CLI_USAGE;
    }
    code = CLI_OK;
    if (load_runs(&c)) {
        print_table(&c);
        code = show_curves(&c);
    } else {
        code = cli_fail();
    }
    release(&c);
    return code;
}
