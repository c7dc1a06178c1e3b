/* cli/eval.c: gradus eval: how well a trained network does on data whose answers are known: accuracy
 * and confusion matrix of classes, errors of numbers. Start at cli_eval(). */
#include "pictures.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BATCH = 500, MOST_CLASSES = 40 };

typedef struct settings {
    const char *model;
    cli_words data;
    const char *device, *tokenizer, *cache, *precision_name;
    int64_t threads;
    bool quantized;
} settings;

/* ---- classes ---- */

static void print_confusion(const gd_confusion *c, const cli_data *d)
{
    char number[CLI_COUNT_TEXT];
    int width = 5;
    for (int64_t i = 0; i < d->outputs; i++) {
        int length = (int)strlen(cli_data_class(d, i, number));
        width = length > width ? length : width;
    }
    width = width > 14 ? 14 : width;
    printf("\n%*s predicted\n%*s ", width + 2, "", width, "truth");
    for (int64_t p = 0; p < d->outputs; p++)
        printf(" %*.*s", width, width, cli_data_class(d, p, number));
    printf("   right\n");
    for (int64_t t = 0; t < d->outputs; t++) {
        printf("%*.*s ", width, width, cli_data_class(d, t, number));
        for (int64_t p = 0; p < d->outputs; p++) {
            int64_t n = gd_confusion_count(c, t, p);
            if (n == 0)
                printf(" %*s", width, ".");
            else
                printf(" %s%*lld%s", p == t ? cli_bold() : "", width, (long long)n,
                       p == t ? cli_plain() : "");
        }
        printf("  %5.1f %%\n", 100.0 * gd_confusion_class(c, t).recall);
    }
}

static void print_scores(const char *name, int width, const gd_class_scores *s)
{
    printf("%*.*s  %8.1f %%  %6.1f %%  %6.1f %%  %7lld\n", width, width, name, 100.0 * s->precision,
           100.0 * s->recall, 100.0 * s->f1, (long long)s->support);
}

/* Of each class, and of all alike: what accuracy hides where one class has most of the samples. */
static void print_classes(const gd_confusion *c, const cli_data *d)
{
    char number[CLI_COUNT_TEXT];
    int width = 12;
    for (int64_t i = 0; i < d->outputs; i++) {
        int length = (int)strlen(cli_data_class(d, i, number));
        width = length > width ? length : width;
    }
    width = width > 30 ? 30 : width;
    printf("\n%*s   precision    recall        F1  samples\n", width, "");
    for (int64_t i = 0; i < d->outputs; i++) {
        const gd_class_scores scores = gd_confusion_class(c, i);
        print_scores(cli_data_class(d, i, number), width, &scores);
    }
    const gd_class_scores mean = gd_confusion_score(c, GD_AVERAGE_MACRO);
    print_scores("mean", width, &mean);
}

/* ---- numbers ---- */

/* Sums over predictions and truths in the target's unit. */
typedef struct errors {
    double absolute, squares;
    double
        first; /* of the truths: the two sums are of what they are above it, so that nothing cancels */
    double truth, truth_squares;
    double *off; /* [count] predicted - truth */
    int64_t count;
} errors;

static bool add_errors(errors *e, const cli_data *d, gd_tensor *output, gd_tensor *truth,
                       int64_t samples)
{
    const int64_t count = samples * d->outputs;
    const size_t bytes = (size_t)count * sizeof(float);
    float *predicted = malloc(2 * bytes), *wanted = predicted ? predicted + count : NULL;
    double *more = realloc(e->off, (size_t)(e->count + count) * sizeof *more);
    e->off = more ? more : e->off;
    bool ok = predicted && more && gd_tensor_read(output, predicted, bytes) == GD_OK &&
              gd_tensor_read(truth, wanted, bytes) == GD_OK;
    for (int64_t i = 0; ok && i < count; i++) {
        double y = cli_data_decode(d, (double)wanted[i]);
        double off = cli_data_decode(d, (double)predicted[i]) - y;
        e->first = e->count == 0 ? y : e->first;
        e->off[e->count++] = off;
        e->absolute += fabs(off);
        e->squares += off * off;
        e->truth += y - e->first;
        e->truth_squares += (y - e->first) * (y - e->first);
    }
    free(predicted);
    return ok;
}

static void print_errors(const errors *e, const cli_data *d, int64_t samples, const char *which)
{
    char count[CLI_COUNT_TEXT];
    double n = (double)(samples * d->outputs), spread = e->truth_squares - e->truth * e->truth / n;
    printf("%s %ss%s: %s is off by %s%.5g%s in the mean (absolute),\nroot mean square %.5g",
           cli_count(samples, count), d->kind->sample, which,
           d->encoder ? gd_table_encoder_target(d->encoder) : "y", cli_bold(), e->absolute / n,
           cli_plain(), sqrt(e->squares / n));
    if (spread > 0) /* else all truths are the same */
        printf(", R2 %.4f", 1.0 - e->squares / spread);
    printf("\n");
}

static gd_status draw_errors(const errors *e, const cli_data *d, const char *folder)
{
    enum { BINS = 40 };
    char title[160];
    snprintf(title, sizeof title, "Errors of %.100s: predicted less true",
             d->encoder ? gd_table_encoder_target(d->encoder) : "y");
    gd_chart *chart = gd_chart_create(.title = title, .x_label = "error", .y_label = "how many");
    if (chart && (gd_chart_histogram(chart, NULL, e->count, e->off, BINS) != GD_OK ||
                  gd_chart_mark(chart, 0.0, "exact") != GD_OK)) {
        gd_chart_release(chart);
        chart = NULL;
    }
    if (chart && cli_is_terminal()) {
        printf("\n");
        (void)cli_print_chart(chart, 80);
    }
    return cli_save_picture(chart, folder, "errors");
}

/* ---- the command ---- */

/* One pass over the batches. */
static bool measure(cli_network *network, const cli_data *d, gd_loader *batches, cli_answers *a,
                    errors *e, double *loss, int64_t *samples)
{
    gd_context *gd = network->context;
    gd_model *model = network->model;
    for (gd_batch b; gd_loader_next(batches, &b); *samples += b.size) {
        if (gd_scope_begin(gd) != GD_OK)
            return false;
        gd_tensor *y = cli_model_output(model, b.tensors[0]);
        *loss += gd_item(gd_model_loss(model, y, b.tensors[1])) * (double)b.size;
        bool ok =
            d->regression
                ? add_errors(e, d, y, b.tensors[1], b.size)
                : cli_answers_add(a, gd_model_gives_probabilities(model) ? y : gd_softmax(y, -1),
                                  b.tensors[1]) == GD_OK;
        if (gd_scope_end(gd) != GD_OK || !ok)
            return false;
    }
    return gd_error_code() == GD_OK;
}

/* Of a table: the rows whose target is known. */
static bool find_truth(const cli_network *network, cli_data *d)
{
    if (d->kind == &cli_array_kind && gd_dataset_field_count(d->validation) < 2)
        return gd_error_record(GD_ERR_INVALID, "there is no y, which eval compares with") == GD_OK;
    if (d->validation)
        return d->kind != &cli_array_kind || cli_data_fits(network->model, d);
    if (d->kind != &cli_table_kind)
        return gd_error_record(GD_ERR_INVALID, "eval needs folders of what it was trained on, "
                                               "one for each class") == GD_OK;
    const char *target = gd_table_encoder_target(d->encoder);
    int64_t *rows = malloc((size_t)gd_table_rows(d->table) * sizeof *rows);
    int64_t count = rows ? gd_table_known_rows(d->table, gd_table_find(d->table, target), rows) : 0;
    if (count > 0)
        d->validation = gd_table_dataset(d->context, d->encoder, d->table, count, rows);
    else {
        char sentence[512];
        snprintf(sentence, sizeof sentence,
                 "the table has no %s\"%.200s\", which was to be predicted and which eval compares "
                 "with",
                 gd_table_find(d->table, target) < 0 ? "column " : "values of ", target);
        (void)gd_error_record(GD_ERR_FORMAT, sentence);
    }
    d->rows = rows;
    return d->validation != NULL;
}

/* The folder of a run that the model is in. */
static bool find_run(const cli_network *network, char folder[CLI_PATH_BYTES])
{
    char config[CLI_PATH_BYTES + 32];
    snprintf(folder, CLI_PATH_BYTES, "%s", network->path);
    char *slash = strrchr(folder, '/');
    snprintf(slash ? slash : folder, 2, "%s", slash ? "" : ".");
    snprintf(config, sizeof config, "%s/config.json", folder);
    return access(config, F_OK) == 0;
}

static bool draw(const cli_network *network, const cli_data *d, const cli_answers *a,
                 const errors *e, int64_t count, const cli_sample *samples)
{
    char folder[CLI_PATH_BYTES];
    if (!find_run(network, folder))
        return true;
    gd_status status = d->regression ? draw_errors(e, d, folder) : cli_draw_answers(a, d, folder);
    if (status == GD_OK)
        status = cli_draw_samples(d, d->validation, count, samples, folder);
    if (status == GD_OK)
        printf("\nPictures: %s/pictures (%s)\n", folder,
               d->regression ? "errors, predictions"
                             : "confusion, roc, precision-recall, calibration");
    return status == GD_OK;
}

/* Single samples: what is wrong, told and drawn with the rest. */
static bool show(const cli_network *network, const cli_data *d, const cli_answers *a,
                 const errors *e)
{
    cli_sample *samples;
    int64_t count = cli_samples_find(d, network->model, d->validation, &samples);
    bool ok = count >= 0 && cli_print_mistakes(d, d->validation, count, samples) &&
              draw(network, d, a, e, count, samples);
    free(samples);
    return ok;
}

static void print_answers(const cli_answers *a, const cli_data *d, double loss, int64_t samples,
                          const char *which)
{
    char count[CLI_COUNT_TEXT];
    printf("%s %ss%s: accuracy %s%.2f %%%s, loss %.4f\n", cli_count(samples, count),
           d->kind->sample, which, cli_bold(),
           100.0 * gd_confusion_score(a->confusion, GD_AVERAGE_MICRO).f1, cli_plain(),
           loss / (double)samples);
    if (d->outputs > MOST_CLASSES)
        return;
    print_confusion(a->confusion, d);
    print_classes(a->confusion, d);
}

/* `which` of the samples: "", or words behind their number. */
static bool eval(cli_network *network, cli_data *d, const char *which)
{
    gd_loader *batches =
        find_truth(network, d) ? gd_loader_create(d->validation, .batch = BATCH) : NULL;
    cli_answers a = { 0 };
    errors e = { 0 };
    double loss = 0.0;
    int64_t samples = 0;
    gd_module_set_training(gd_model_module(network->model), false);
    if (!batches || (!d->regression && !cli_answers_open(&a, network->context, d->outputs)) ||
        gd_no_grad_begin(network->context) != GD_OK)
        return false;
    bool ok = measure(network, d, batches, &a, &e, &loss, &samples);
    ok = gd_no_grad_end(network->context) == GD_OK && ok;
    if (ok && d->regression)
        print_errors(&e, d, samples, which);
    else if (ok)
        print_answers(&a, d, loss, samples, which);
    ok = ok && show(network, d, &a, &e);
    free(e.off);
    return ok;
}

int cli_eval(int argc, char **argv)
{
    settings s = { .threads = -1 };
    const cli_option options[] = {
        { "MODEL", NULL,
          "a run folder, its model.safetensors, or a language model that gradus generate takes "
          "(default: the newest in " CLI_RUNS "/)",
          CLI_OPERAND, &s.model, 0, 0 },
        { "DATA", NULL,
          "of the kind it was trained on, with answers (default: what the run kept for validation)",
          CLI_OPERANDS, &s.data, 0, 0 },
        { "tokenizer", "FILE",
          "of a language model in whose file there is none; as gradus generate has it", CLI_TEXT,
          &s.tokenizer, 0, 0 },
        { "threads", "N", "threads to compute with", CLI_WHOLE, &s.threads, 1, 256 },
        CLI_DEVICE_OPTION(&s.device),
        CLI_PRECISION_OPTION(&s.precision_name),
        { "quantized", NULL,
          "of a language model: compute with a GGUF file's 8 and 4 bits, as gradus generate",
          CLI_FLAG, &s.quantized, 0, 0 },
        { "cache", "DTYPE",
          "of a language model: read keys and values out of a cache of f32, f16 or int8, as gradus "
          "generate",
          CLI_TEXT, &s.cache, 0, 0 },
    };
    const cli_command_help help = {
        "gradus eval [MODEL] [DATA] [OPTION]...",
        "How well a trained network does on data: accuracy and confusion matrix, errors, or "
        "perplexity.\nPictures go into the run's folder."
    };
    int code;
    if (cli_parse(argc, argv, &help, options, (int)(sizeof options / sizeof *options), &code))
        return code;
    gd_dtype precision;
    if (!cli_precision("eval", s.precision_name, &precision))
        return CLI_USAGE;
    if (!s.tokenizer) /* else the first is the model, of any format */
        cli_sort_operands(&s.model, &s.data);
    if (s.data.count > 1)
        return cli_one_too_many("eval", s.data.words[1]);
    const char *path = s.data.count ? s.data.words[0] : NULL;
    char file[CLI_PATH_BYTES];
    if (!cli_find_trained(s.model, file))
        return cli_fail();
    if (s.tokenizer || cli_is_language_file(file))
        return cli_eval_text(file, path,
                             &(cli_eval_text_options){ .tokenizer = s.tokenizer,
                                                       .cache = s.cache,
                                                       .device = s.device,
                                                       .precision = precision,
                                                       .threads = s.threads,
                                                       .quantized = s.quantized });
    if (s.quantized || s.cache) {
        fprintf(stderr, "gradus eval: --%s is of language models, which %s is not\n",
                s.quantized ? "quantized" : "cache", file);
        return CLI_USAGE;
    }
    const cli_network_options network_options = {
        .model = file, .device = s.device, .precision = precision, .threads = s.threads
    };
    cli_network network;
    cli_data data = { 0 };
    bool ok = cli_trained_open(&network, &network_options) &&
              (path ? cli_data_reopen(&data, network.context, path, network.path)
                    : cli_data_open_kept(&data, network.context, network.path)) &&
              eval(&network, &data, !path && data.kind->monitor ? " kept for validation" : "");
    code = ok ? CLI_OK : cli_fail();
    cli_data_close(&data);
    cli_network_close(&network);
    return code;
}
