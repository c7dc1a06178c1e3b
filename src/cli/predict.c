/* cli/predict.c: gradus predict: what a trained network makes of new data: rows of a table and photographs
 * as CSV, test digits drawn in the terminal. Start at cli_predict(). */
#include "pictures.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { SIDE = 28, PIXELS = SIDE * SIDE, CLASSES = 10, BATCH = 500 };

typedef struct settings {
    const char *model;
    cli_words data;
    const char *device, *precision_name;
    int64_t index, count, threads;
} settings;

/* ---- digits ---- */

/* A character cell shows two pixels, one above the other: in colour as a half block, else as a
 * shade of their mean. */
static void draw_cell(float upper, float lower)
{
    static const char shades[] = " .:-=+*#%@";
    if (cli_has_colour() && cli_has_unicode()) {
        /* 232 … 255 of the 256-colour palette are greys. */
        printf("\033[38;5;%d;48;5;%dm\xe2\x96\x80", 232 + (int)(upper * 23.0f),
               232 + (int)(lower * 23.0f));
        return;
    }
    float mean = 0.5f * (upper + lower);
    putchar(shades[(int)(mean * 9.0f + 0.5f)]);
}

static void draw_row(const float *pixels, int row)
{
    for (int column = 0; column < SIDE; column++)
        draw_cell(pixels[2 * row * SIDE + column], pixels[(2 * row + 1) * SIDE + column]);
    printf("%s", cli_plain());
}

/* "  7 ############ 99.8 %" */
static void draw_probability(int class, float probability, bool best)
{
    enum { CELLS = 30 };
    printf("   %s%d ", best ? cli_bold() : "", class);
    for (int i = 0; i < CELLS; i++)
        putchar((float)i + 0.5f < probability * (float)CELLS ? '#' : ' ');
    printf(" %5.1f %%%s", 100.0 * (double)probability, best ? cli_plain() : "");
}

static int argmax(const float *values, int count)
{
    int best = 0;
    for (int i = 1; i < count; i++)
        if (values[i] > values[best])
            best = i;
    return best;
}

/* pixels [784] in 0 … 1, probabilities [10] */
static void draw_digit(int64_t index, const float *pixels, const float *probabilities,
                       int64_t truth)
{
    int best = argmax(probabilities, CLASSES);
    bool right = best == truth;
    printf("test digit %lld: predicted %s%d%s with %.1f %%, truth %lld%s\n", (long long)index,
           right ? cli_green() : cli_red(), best, cli_plain(), 100.0 * (double)probabilities[best],
           (long long)truth, right ? "" : "  (wrong)");
    for (int row = 0; row < SIDE / 2; row++) {
        draw_row(pixels, row);
        int class = row - 2;
        if (class >= 0 && class < CLASSES)
            draw_probability(class, probabilities[class], class == best);
        putchar('\n');
    }
    putchar('\n');
}

/* One digit: look it up, ask the network, draw. */
static bool predict_digit(cli_network *network, const gd_dataset *digits, int64_t index)
{
    float pixels[PIXELS], probabilities[CLASSES];
    int64_t truth;
    gd_tensor *digit[2];
    if (gd_dataset_get(digits, index, 1, digit) != GD_OK)
        return false;
    gd_tensor *p = cli_probabilities(network->model, digit[0]);
    if (p && gd_tensor_count(p) != CLASSES) {
        fprintf(stderr, "gradus predict: the model gives %lld numbers for a digit, 10 are needed\n",
                (long long)gd_tensor_count(p));
        return false;
    }
    if (gd_tensor_read(digit[0], pixels, sizeof pixels) != GD_OK ||
        gd_tensor_read(digit[1], &truth, sizeof truth) != GD_OK || !p ||
        gd_tensor_read(p, probabilities, sizeof probabilities) != GD_OK)
        return false;
    draw_digit(index, pixels, probabilities, truth);
    return true;
}

static bool predict_digits(const settings *s, cli_network *network, const cli_data *d)
{
    gd_context *gd = network->context;
    int64_t last = gd_dataset_count(d->validation) - 1;
    if (s->index > last) {
        fprintf(stderr, "gradus predict: there are test digits 0 to %lld, not %lld\n",
                (long long)last, (long long)s->index);
        return false;
    }
    bool ok = true;
    for (int64_t i = 0; ok && i < s->count && s->index + i <= last; i++) {
        ok = gd_scope_begin(gd) == GD_OK && predict_digit(network, d->validation, s->index + i);
        ok = gd_scope_end(gd) == GD_OK && ok;
    }
    return ok;
}

/* ---- answers as CSV ---- */

/* A cell, in quotation marks where it needs them (RFC 4180). */
static void print_cell(const char *text)
{
    if (!strpbrk(text, ",\"\r\n")) {
        fputs(text, stdout);
        return;
    }
    putchar('"');
    for (; *text; text++) {
        if (*text == '"')
            putchar('"');
        putchar(*text);
    }
    putchar('"');
}

/* The answers for x [count, ..], a line each, after `names` where it is not NULL. */
static bool answer(cli_network *network, const cli_data *d, gd_tensor *x, int64_t count,
                   char *const *names)
{
    char number[CLI_COUNT_TEXT];
    gd_tensor *y =
        d->regression ? cli_model_output(network->model, x) : cli_probabilities(network->model, x);
    size_t bytes = (size_t)(count * d->outputs) * sizeof(float);
    float *values = malloc(bytes);
    bool ok = values && y && gd_tensor_read(y, values, bytes) == GD_OK;
    for (int64_t i = 0; ok && i < count; i++) {
        const float *row = values + i * d->outputs;
        int best = argmax(row, (int)d->outputs);
        if (names) {
            print_cell(names[i]);
            putchar(',');
        }
        if (d->regression) {
            for (int64_t k = 0; k < d->outputs; k++)
                printf("%.7g%c", cli_data_decode(d, (double)row[k]),
                       k + 1 < d->outputs ? ',' : '\n');
            continue;
        }
        print_cell(cli_data_class(d, best, number));
        printf(",%.4f\n", (double)row[best]);
    }
    free(values);
    return ok;
}

/* ---- tables ---- */

static bool predict_rows(cli_network *network, const cli_data *d, int64_t first, int64_t count)
{
    gd_context *gd = network->context;
    int64_t rows[BATCH], features = gd_table_encoder_features(d->encoder);
    for (int64_t i = 0; i < count; i++)
        rows[i] = first + i;
    float *x = malloc((size_t)(count * features) * sizeof *x);
    bool ok = x && gd_table_encode(d->encoder, d->table, count, rows, x, NULL) == GD_OK;
    if (ok && first == 0) {
        print_cell(gd_table_encoder_target(d->encoder));
        puts(d->regression ? "" : ",probability");
    }
    ok = ok &&
         answer(network, d, gd_from_host(gd, GD_SHAPE(count, features), GD_F32, x), count, NULL);
    free(x);
    return ok;
}

static bool predict_table(cli_network *network, const cli_data *d)
{
    int64_t rows = gd_table_rows(d->table);
    bool ok = true;
    for (int64_t first = 0; ok && first < rows; first += BATCH) {
        ok = gd_scope_begin(network->context) == GD_OK &&
             predict_rows(network, d, first, rows - first < BATCH ? rows - first : BATCH);
        ok = gd_scope_end(network->context) == GD_OK && ok;
    }
    return ok;
}

/* ---- arrays ---- */

static bool predict_arrays(cli_network *network, const cli_data *d)
{
    gd_loader *batches = gd_loader_create(d->validation, .batch = BATCH);
    bool ok = batches && cli_data_fits(network->model, d);
    if (ok && !d->regression)
        puts("class,probability");
    if (ok && d->regression && d->outputs == 1)
        puts("y");
    for (int64_t k = 1; ok && d->regression && d->outputs > 1 && k <= d->outputs; k++)
        printf("y%lld%c", (long long)k, k < d->outputs ? ',' : '\n');
    for (gd_batch b; ok && gd_loader_next(batches, &b);) {
        ok = gd_scope_begin(network->context) == GD_OK &&
             answer(network, d, b.tensors[0], b.size, NULL);
        ok = gd_scope_end(network->context) == GD_OK && ok;
    }
    return ok && gd_error_code() == GD_OK;
}

/* ---- photographs ---- */

/* The photograph as the network takes it, [1, 3, size, size]. */
static gd_tensor *read_photograph(gd_context *gd, const char *path, int64_t size)
{
    gd_image image, resized = { 0 };
    gd_tensor *x = NULL;
    if (gd_image_read(path, &image) == GD_OK &&
        gd_image_resize(&image, size, size, &resized) == GD_OK)
        x = gd_from_host(gd, GD_SHAPE(1, size, size, 3), GD_U8, resized.pixels);
    gd_image_free(&image);
    gd_image_free(&resized);
    return gd_permute(x, GD_AXES(0, 3, 1, 2));
}

/* Photographs that are answered one after another. */
typedef struct album {
    cli_network *network;
    const cli_data *data;
    int64_t answered, damaged; /* a file that is no photograph is told, and the others go on */
} album;

static bool predict_photograph(album *a, const char *path)
{
    char *names[] = { (char *)(uintptr_t)path };
    bool ok = gd_scope_begin(a->network->context) == GD_OK;
    gd_tensor *x = !ok ? NULL
                   : a->data->kind == &cli_audio_kind
                       ? cli_read_sound(a->data, path)
                       : read_photograph(a->network->context, path, a->data->size);
    if (x && a->answered++ == 0)
        puts("file,class,probability");
    if (x)
        ok = answer(a->network, a->data, x, 1, names);
    else if (ok) {
        fflush(stdout);
        (void)cli_fail();
        gd_error_clear();
        a->damaged++;
    }
    return gd_scope_end(a->network->context) == GD_OK && ok;
}

static int is_photograph(const struct dirent *e)
{
    return e->d_name[0] != '.' && cli_is_photograph(e->d_name);
}

static int is_sound(const struct dirent *e)
{
    return e->d_name[0] != '.' && cli_is_sound(e->d_name);
}

/* One, or all of a folder, in the order of their names. */
static bool predict_path(album *a, const char *path)
{
    struct stat status;
    char file[CLI_PATH_BYTES + 80];
    if (stat(path, &status) != 0 || !S_ISDIR(status.st_mode))
        return predict_photograph(a, path);
    struct dirent **entries = NULL;
    bool sounds = a->data->kind == &cli_audio_kind;
    int count = scandir(path, &entries, sounds ? is_sound : is_photograph, alphasort);
    bool ok = true;
    for (int i = 0; i < count; i++) {
        snprintf(file, sizeof file, "%.3800s/%s", path, entries[i]->d_name);
        ok = ok && predict_photograph(a, file);
        free(entries[i]);
    }
    free(entries);
    snprintf(file, sizeof file, "%.4000s: there are no %s in the folder", path,
             sounds ? "sounds (.wav, .flac, .ogg, .mp3)" : "photographs (.jpg, .png)");
    return count > 0 ? ok : gd_error_record(GD_ERR_IO, file) == GD_OK;
}

static bool predict_photographs(cli_network *network, const cli_data *d, const cli_words *paths)
{
    album a = { .network = network, .data = d };
    bool ok = true;
    for (int i = 0; ok && i < paths->count; i++)
        ok = predict_path(&a, paths->words[i]);
    return ok && a.damaged == 0;
}

/* ---- the command ---- */

static bool predict(const settings *s, cli_network *network, const cli_data *d)
{
    gd_module_set_training(gd_model_module(network->model), false);
    if (gd_no_grad_begin(network->context) != GD_OK)
        return false;
    bool ok = d->kind == &cli_table_kind   ? predict_table(network, d)
              : d->kind == &cli_array_kind ? predict_arrays(network, d)
              : d->kind == &cli_image_kind || d->kind == &cli_audio_kind
                  ? predict_photographs(network, d, &s->data)
                  : predict_digits(s, network, d);
    return gd_no_grad_end(network->context) == GD_OK && ok;
}

int cli_predict(int argc, char **argv)
{
    settings s = { .count = 3, .threads = -1 };
    const cli_option options[] = {
        { "MODEL", NULL,
          "a run folder, or its model.safetensors (default: the newest in " CLI_RUNS "/)",
          CLI_OPERAND, &s.model, 0, 0 },
        { "DATA...", NULL,
          "a table, arrays, or photographs or sounds and folders of them (of "
          "digits: " CLI_DEFAULT_DATA ")",
          CLI_OPERANDS, &s.data, 0, 0 },
        { "index", "N", "the first test digit to draw (default: 0)", CLI_WHOLE, &s.index, 0, 9999 },
        { "count", "N", "how many digits (default: 3)", CLI_WHOLE, &s.count, 1, 10000 },
        { "threads", "N", "threads to compute with", CLI_WHOLE, &s.threads, 1, 256 },
        CLI_DEVICE_OPTION(&s.device),
        CLI_PRECISION_OPTION(&s.precision_name),
    };
    const cli_command_help help = {
        "gradus predict [MODEL] [DATA]... [OPTION]...",
        "What a trained network makes of new data: a line of CSV for each row or photograph; test "
        "digits\nare drawn."
    };
    int code;
    if (cli_parse(argc, argv, &help, options, (int)(sizeof options / sizeof *options), &code))
        return code;
    gd_dtype precision;
    if (!cli_precision("predict", s.precision_name, &precision))
        return CLI_USAGE;
    cli_sort_operands(&s.model, &s.data);
    const cli_network_options network_options = {
        .model = s.model, .device = s.device, .precision = precision, .threads = s.threads
    };
    cli_network network;
    cli_data data = { 0 };
    bool ok = cli_trained_open(&network, &network_options) &&
              cli_data_reopen(&data, network.context, s.data.count ? s.data.words[0] : NULL,
                              network.path);
    if (ok && s.data.count > 1 && data.kind != &cli_image_kind && data.kind != &cli_audio_kind)
        code = cli_one_too_many("predict", s.data.words[1]);
    else
        ok = ok && predict(&s, &network, &data);
    code = code != CLI_OK ? code : ok ? CLI_OK : gd_error_code() ? cli_fail() : CLI_FAILED;
    cli_data_close(&data);
    cli_network_close(&network);
    return code;
}
