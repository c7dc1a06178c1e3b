/* cli/data.c: what a network is trained on: the kinds of data, of which the files at a path decide,
 * and MNIST, the simplest. Start at cli_data_open(). */
#include "cli.h"

#include <errno.h>
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- MNIST ---- */

static bool is_mnist(const char *path)
{
    char file[4096];
    for (int compressed = 0; compressed < 2; compressed++) {
        snprintf(file, sizeof file, "%s/train-images-idx3-ubyte%s", path, compressed ? ".gz" : "");
        if (access(file, F_OK) == 0)
            return true;
    }
    return false;
}

static bool open_mnist(cli_data *d, const cli_data_options *o)
{
    if (gd_mnist_pair(d->context, o->path, &d->train, &d->validation) != GD_OK)
        return false;
    snprintf(d->about, sizeof d->about, "MNIST: handwritten digits of 28 x 28 pixels");
    cli_data_take_classes(d);
    return true;
}

static bool reopen_mnist(cli_data *d, const char *path, gd_tensor_file *file)
{
    (void)file;
    d->validation = gd_mnist(d->context, path ? path : CLI_DEFAULT_DATA, .test = true);
    cli_data_take_classes(d);
    return d->validation != NULL;
}

static gd_model *propose_mnist(const cli_data *d, uint64_t seed)
{
    return cli_mnist_model(d->context, seed);
}

static const cli_data_kind mnist_kind = {
    .name = "mnist",
    .sample = "digit",
    .is = is_mnist,
    .open = open_mnist,
    .reopen = reopen_mnist,
    .propose = propose_mnist,
    .epochs = 10,
    .batch = 50,
    .lr = 5e-3,
};

/* ---- kinds ---- */

static const cli_data_kind *const kinds[] = { &mnist_kind,    &cli_image_kind, &cli_table_kind,
                                              &cli_text_kind, &cli_array_kind, &cli_audio_kind };
enum { KIND_COUNT = sizeof kinds / sizeof *kinds };

bool cli_has_ending(const char *path, const char *ending)
{
    size_t length = strlen(path), n = strlen(ending);
    if (length > 3 && strcasecmp(path + length - 3, ".gz") == 0)
        length -= 3;
    return length > n && strncasecmp(path + length - n, ending, n) == 0;
}

static bool is_of_arrow(const char *path)
{
    return cli_has_ending(path, ".arrow") || cli_has_ending(path, ".feather");
}

#define FOR_PYTHON(reader)                                                             \
    "which is read in Python: pandas." reader                                          \
    "(FILE).to_csv(NEW, index=False) makes a table for the shell of it, and gradus's " \
    "data.table(FILE) trains on it there"

const cli_data_kind *cli_data_find(const char *path)
{
    struct stat status;
    char problem[1024 + 256];
    for (int i = 0; i < KIND_COUNT; i++)
        if (kinds[i]->is(path))
            return kinds[i];
    snprintf(problem, sizeof problem, "%.900s %s", path,
             stat(path, &status) != 0           ? "is not there"
             : cli_has_ending(path, ".parquet") ? "is a Parquet file, " FOR_PYTHON("read_parquet")
             : is_of_arrow(path)                ? "is a file of Arrow, " FOR_PYTHON("read_feather")
             : S_ISDIR(status.st_mode)
                 ? "is a folder without MNIST's files, without folders of photographs or sounds, "
                   "each of "
                   "which would be a class, and without x.npy and y.npy"
                 : "is no table (.csv, .tsv), no text (.txt) and no file of arrays (.npz)");
    (void)gd_error_record(GD_ERR_INVALID, problem);
    return NULL;
}

/* So that no other data are taken for those of a run. */
static bool keep_contents(cli_data *d)
{
    char text[24];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)gd_dataset_fingerprint(d->train));
    return cli_data_keep(d, "contents", text);
}

bool cli_data_open(cli_data *d, gd_context *context, const cli_data_options *o)
{
    *d = (cli_data){ .context = context, .kind = cli_data_find(o->path) };
    return d->kind && cli_data_keep(d, "task", d->kind->name) && d->kind->open(d, o) &&
           keep_contents(d);
}

bool cli_data_reopen(cli_data *d, gd_context *context, const char *path, const char *model)
{
    *d = (cli_data){ .context = context };
    gd_tensor_file *file = gd_tensor_file_open(model);
    const char *task = gd_tensor_file_metadata(file, "task");
    for (int i = 0; i < KIND_COUNT; i++)
        if (task && strcmp(task, kinds[i]->name) == 0)
            d->kind = kinds[i];
    if (file && !d->kind)
        (void)gd_error_record(GD_ERR_FORMAT, "the model's file does not say what data it is for");
    if (d->kind && !path && d->kind != &mnist_kind)
        (void)gd_error_record(GD_ERR_INVALID, "DATA is needed: what the model is asked about");
    bool ok = d->kind && (path || d->kind == &mnist_kind) && d->kind->reopen(d, path, file);
    gd_tensor_file_close(file);
    return ok;
}

/* What the run's config.json says of its data. */
static bool open_as_run(cli_data *d, gd_context *context, const gd_history *run, const char *model)
{
    const char *validation = gd_history_option(run, "validation");
    const char *seed = gd_history_option(run, "seed"), *size = gd_history_option(run, "size");
    const cli_data_options o = {
        .path = gd_history_option(run, "data"),
        .target = gd_history_option(run, "target"),
        .ignore = gd_history_option(run, "ignore"),
        .task = gd_history_option(run, "task"),
        .validation = validation ? strtod(validation, NULL) : 0.15,
        .seed = seed ? strtoll(seed, NULL, 10) : 1,
        .size = size ? strtoll(size, NULL, 10) : 0,
    };
    char problem[160];
    if (!cli_data_open(d, context, &o))
        return false;
    const char *changed = cli_data_changed(d, model);
    if (!changed)
        return true;
    snprintf(problem, sizeof problem,
             "the data has changed since the run began (its \"%s\"): give DATA", changed);
    return gd_error_record(GD_ERR_STATE, problem) == GD_OK;
}

bool cli_data_open_kept(cli_data *d, gd_context *context, const char *model)
{
    char folder[CLI_PATH_BYTES], config[CLI_PATH_BYTES + 32];
    *d = (cli_data){ .context = context };
    snprintf(folder, sizeof folder, "%s", model);
    char *slash = strrchr(folder, '/');
    snprintf(slash ? slash : folder, 2, "%s", slash ? "" : ".");
    snprintf(config, sizeof config, "%s/config.json", folder);
    gd_history *run = access(config, F_OK) == 0 ? gd_history_load(folder) : NULL;
    bool ok = gd_history_option(run, "data") && open_as_run(d, context, run, model);
    if (!run && gd_error_code() == GD_OK) /* a file by itself: test digits alone need no more */
        ok = cli_data_reopen(d, context, NULL, model);
    else if (!ok && gd_error_code() == GD_OK)
        (void)gd_error_record(GD_ERR_INVALID, "the run's config.json does not say what data it is "
                                              "of: DATA is needed");
    gd_history_release(run);
    return ok;
}

const char *cli_data_changed(const cli_data *d, const char *path)
{
    gd_tensor_file *file = gd_tensor_file_open(path);
    const char *changed = NULL;
    for (int i = 0; file && i < d->metadata_count; i++) {
        const char *before = gd_tensor_file_metadata(file, d->metadata[i].key);
        if (before && strcmp(before, d->metadata[i].value) != 0)
            changed = d->metadata[i].key;
    }
    if (!file)
        gd_error_clear();
    gd_tensor_file_close(file);
    return changed;
}

bool cli_data_keep(cli_data *d, const char *key, const char *value)
{
    char *copy = d->metadata_count < CLI_MAX_METADATA && value ? strdup(value) : NULL;
    if (!copy) {
        (void)gd_error_record(GD_ERR_MEMORY, "out of memory");
        return false;
    }
    d->metadata[d->metadata_count++] = (gd_metadata){ key, copy };
    return true;
}

void cli_data_close(cli_data *d)
{
    for (int i = 0; i < d->metadata_count; i++)
        free((char *)(uintptr_t)d->metadata[i].value);
    for (int64_t i = 0; d->classes && i < d->outputs; i++)
        free(d->classes[i]);
    free(d->classes);
    free(d->rows);
    gd_tokenizer_release(d->tokenizer);
    gd_table_encoder_release(d->encoder);
    gd_table_release(d->table);
    *d = (cli_data){ 0 };
}

void cli_data_take_classes(cli_data *d)
{
    const gd_dataset *set = d->validation ? d->validation : d->train;
    const gd_field *x = gd_dataset_field(set, 0), *y = gd_dataset_field(set, 1);
    d->input = x ? x->shape : GD_SCALAR;
    d->regression = y && y->classes == 0;
    d->outputs = !y ? 0 : d->regression ? 1 : y->classes;
    for (int i = 0; y && d->regression && i < y->shape.rank; i++)
        d->outputs *= y->shape.dim[i];
}

double cli_data_decode(const cli_data *d, double value)
{
    return d->kind == &cli_array_kind ? value * d->deviation + d->mean
                                      : gd_table_encoder_decode(d->encoder, value);
}

const char *cli_data_class(const cli_data *d, int64_t index, char number[CLI_COUNT_TEXT])
{
    const gd_field *y = gd_dataset_field(d->validation, 1);
    if (d->encoder)
        return gd_table_encoder_class_name(d->encoder, index);
    if (d->classes)
        return d->classes[index];
    if (y && y->class_names && index < y->classes)
        return y->class_names[index];
    snprintf(number, CLI_COUNT_TEXT, "%lld", (long long)index);
    return number;
}

bool cli_data_fits(gd_model *model, const cli_data *d)
{
    char problem[160];
    long long there = (long long)gd_shape_count(d->input);
    long long taken = (long long)gd_shape_count(gd_model_input_shape(model, 0));
    snprintf(problem, sizeof problem, "the %ss have %lld number%s each, the model takes %lld",
             d->kind->sample, there, there == 1 ? "" : "s", taken);
    return there == taken || gd_error_record(GD_ERR_SHAPE, problem) == GD_OK;
}

gd_tensor *cli_model_input(gd_model *model, gd_tensor *x)
{
    gd_shape input = gd_model_input_shape(model, 0);
    if (!x)
        return NULL;
    gd_shape shape = { .rank = input.rank + 1, .dim = { gd_tensor_shape(x).dim[0] } };
    for (int i = 0; i < input.rank; i++)
        shape.dim[i + 1] = input.dim[i];
    if (gd_tensor_dtype(x) == GD_U8)
        x = gd_mul_scalar(gd_cast(x, GD_F32), 1.0 / 255.0);
    return gd_reshape(x, shape);
}

gd_tensor *cli_model_output(gd_model *model, gd_tensor *x)
{
    return gd_cast(gd_model_forward(model, cli_model_input(model, x)), GD_F32);
}

/* In pieces: what comes from a pipe, as `--config <(command)` does, does not say how long it is. */
static char *read_stream(FILE *f, size_t *size)
{
    size_t room = 1 << 16;
    char *bytes = malloc(room);
    *size = 0;
    while (bytes) {
        *size += fread(bytes + *size, 1, room - 1 - *size, f);
        if (*size < room - 1)
            break;
        char *more = realloc(bytes, room *= 2);
        if (!more)
            free(bytes);
        bytes = more;
    }
    if (!bytes || !ferror(f))
        return bytes;
    free(bytes);
    return NULL;
}

char *cli_read_file(const char *path, size_t *size)
{
    errno = 0;
    FILE *f = fopen(path, "rb");
    char *bytes = f ? read_stream(f, size) : NULL;
    const int why = errno;
    if (f)
        fclose(f);
    if (bytes) {
        bytes[*size] = '\0';
        return bytes;
    }
    char sentence[4096 + 160];
    snprintf(sentence, sizeof sentence, "%.4000s: cannot be read%s%.100s", path, why ? ": " : "",
             why ? strerror(why) : "");
    (void)gd_error_record(GD_ERR_IO, sentence);
    return NULL;
}
