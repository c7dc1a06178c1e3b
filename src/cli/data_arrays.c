/* cli/data_arrays.c: NumPy's arrays: samples x and targets y of one length, in a .npz file or as x.npy and
 * y.npy in a folder. Start at open_arrays(). */
#include "cli.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_CLASSES = 1000, TEXT_BYTES = 1024 };

static bool is_folder(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* FOLDER/x.npy; of a file the one beside it. */
static void beside(const char *path, const char *name, char file[CLI_PATH_BYTES])
{
    const char *slash = strrchr(path, '/');
    if (is_folder(path))
        snprintf(file, CLI_PATH_BYTES, "%.4000s/%s", path, name);
    else
        snprintf(file, CLI_PATH_BYTES, "%.*s%s", slash ? (int)(slash - path) + 1 : 0, path, name);
}

static bool is_arrays(const char *path)
{
    char x[CLI_PATH_BYTES], y[CLI_PATH_BYTES];
    if (!is_folder(path))
        return access(path, F_OK) == 0 &&
               (cli_has_ending(path, ".npz") || cli_has_ending(path, ".npy"));
    beside(path, "x.npy", x);
    beside(path, "y.npy", y);
    return access(x, F_OK) == 0 && access(y, F_OK) == 0;
}

/* ---- reading ---- */

typedef struct arrays {
    gd_npy x, y; /* y: all zero where there is none */
} arrays;

static void free_arrays(arrays *a)
{
    gd_npy_free(&a->x);
    gd_npy_free(&a->y);
}

/* "which arrays …? There are: a [3, 4], b [3]" */
static bool ask_for_names(const gd_npz *npz)
{
    char text[TEXT_BYTES];
    int at = snprintf(text, sizeof text,
                      "which arrays are the samples and their targets? Call them x and y. "
                      "There are: ");
    for (int64_t i = 0; i < gd_npz_count(npz) && at < (int)sizeof text - 80; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, "%s%.64s", i ? ", " : "",
                       gd_npz_name(npz, i));
    return gd_error_record(GD_ERR_FORMAT, text) == GD_OK;
}

static int64_t find_one(const gd_npz *npz, const char *const *names)
{
    int64_t found = -1;
    for (; *names && found < 0; names++)
        found = gd_npz_find(npz, *names);
    return found;
}

/* By their names; else the only two there are, of which the targets have fewer axes or come second; or, of
 * new samples, the only one. */
static bool read_npz(const char *path, bool needs_y, arrays *a)
{
    static const char *const samples[] = {
        "x", "X", "x_train", "X_train", "inputs", "images", NULL
    };
    static const char *const targets[] = {
        "y", "Y", "y_train", "Y_train", "targets", "labels", NULL
    };
    gd_npz *npz = gd_npz_open(path);
    if (!npz)
        return false;
    int64_t x = find_one(npz, samples), y = find_one(npz, targets), count = gd_npz_count(npz);
    bool named = x >= 0 && (y >= 0 || !needs_y);
    bool ok = named || count == 2 || (count == 1 && !needs_y) || ask_for_names(npz);
    if (ok && !named && count == 2 &&
        (x >= 0 || y >= 0)) { /* one has its name, the other is the other */
        x = x >= 0 ? x : 1 - y;
        y = 1 - x;
        named = true;
    } else if (ok && !named) {
        x = 0, y = count == 2 ? 1 : -1;
    }
    ok =
        ok && gd_npz_read(npz, x, &a->x) == GD_OK && (y < 0 || gd_npz_read(npz, y, &a->y) == GD_OK);
    gd_npz_close(npz);
    if (ok && !named && a->y.shape.rank > a->x.shape.rank) {
        gd_npy other = a->x;
        a->x = a->y;
        a->y = other;
    }
    return ok;
}

static bool fail(const char *sentence)
{
    return gd_error_record(GD_ERR_FORMAT, sentence) == GD_OK;
}

static bool read_npy(const char *path, bool needs_y, arrays *a)
{
    char x[CLI_PATH_BYTES], y[CLI_PATH_BYTES];
    beside(path, "x.npy", x);
    beside(path, "y.npy", y);
    if (!needs_y && !is_folder(path)) /* new samples may have any name */
        return gd_npy_read(path, &a->x) == GD_OK;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (!is_folder(path) && strcmp(name, "x.npy") != 0 && strcmp(name, "y.npy") != 0)
        return fail(
            "one array has no answers to learn: x.npy with y.npy beside it, their folder, or a "
            ".npz with both is needed");
    return gd_npy_read(x, &a->x) == GD_OK &&
           ((!needs_y && access(y, F_OK) != 0) || gd_npy_read(y, &a->y) == GD_OK);
}

/* x [n, height, width, channels] as [n, channels, height, width]. */
static bool bring_channels_first(gd_npy *x)
{
    const int64_t *dim = x->shape.dim, pixels = dim[1] * dim[2], channels = dim[3];
    const size_t size = gd_dtype_size(x->dtype);
    char *to = malloc(x->bytes + 1);
    const char *from = x->data;
    if (!to)
        return gd_error_record(GD_ERR_MEMORY, "out of memory") == GD_OK;
    for (int64_t i = 0; i < dim[0]; i++)
        for (int64_t p = 0; p < pixels; p++)
            for (int64_t c = 0; c < channels; c++, from += size)
                memcpy(to + (size_t)((i * channels + c) * pixels + p) * size, from, size);
    memcpy(x->data, to, x->bytes);
    free(to);
    x->shape = GD_SHAPE(dim[0], channels, dim[1], dim[2]);
    return true;
}

/* Pictures with the colours in their last axis, as most programs have them. */
static bool has_channels_last(gd_shape s)
{
    return s.rank == 4 && (s.dim[3] == 1 || s.dim[3] == 3 || s.dim[3] == 4) && s.dim[1] > 4;
}

static bool read_arrays(const char *path, bool needs_y, arrays *a)
{
    *a = (arrays){ 0 };
    char sentence[256];
    if (!(cli_has_ending(path, ".npz") ? read_npz(path, needs_y, a) : read_npy(path, needs_y, a)))
        return false;
    int64_t n = a->x.shape.rank > 0 ? a->x.shape.dim[0] : 0;
    if (n < 1 || gd_dtype_size(a->x.dtype) == 0)
        return fail("x has no samples: its first axis is that of the samples");
    if (a->y.data && (a->y.shape.rank < 1 || a->y.shape.dim[0] != n)) {
        snprintf(sentence, sizeof sentence,
                 "x has %lld samples, y %lld: their first axes belong "
                 "together",
                 (long long)n, (long long)(a->y.shape.rank > 0 ? a->y.shape.dim[0] : 1));
        return fail(sentence);
    }
    return !has_channels_last(a->x.shape) || bring_channels_first(&a->x);
}

/* ---- what y is ---- */

static double number(const gd_npy *a, int64_t i)
{
    switch ((int)a->dtype) {
    case GD_F32:
        return (double)((const float *)a->data)[i];
    case GD_F64:
        return ((const double *)a->data)[i];
    case GD_I64:
        return (double)((const int64_t *)a->data)[i];
    case GD_I32:
        return (double)((const int32_t *)a->data)[i];
    case GD_I16:
        return (double)((const int16_t *)a->data)[i];
    case GD_I8:
        return (double)((const int8_t *)a->data)[i];
    case GD_U64:
        return (double)((const uint64_t *)a->data)[i];
    case GD_U32:
        return (double)((const uint32_t *)a->data)[i];
    case GD_U16:
        return (double)((const uint16_t *)a->data)[i];
    case GD_U8:
    case GD_BOOL:
        return (double)((const unsigned char *)a->data)[i];
    default:
        return NAN;
    }
}

static int64_t count_of(const gd_npy *a)
{
    return (int64_t)(a->bytes / gd_dtype_size(a->dtype));
}

static bool is_whole(gd_dtype d)
{
    return !gd_dtype_is_float(d);
}

/* One number a sample, whole numbers from 0 on. *classes: the largest, plus one. */
static bool can_be_classes(const gd_npy *y, int64_t *classes)
{
    double most = 0;
    *classes = 0;
    if (count_of(y) != y->shape.dim[0])
        return false;
    for (int64_t i = 0; i < count_of(y); i++) {
        double v = number(y, i);
        if (!(v >= 0) || v != floor(v) || v >= MOST_CLASSES)
            return false;
        most = v > most ? v : most;
    }
    *classes = (int64_t)most + 1;
    return true;
}

/* --task decides; else integers that can be are classes. */
static bool choose_task(const gd_npy *y, const char *task, int64_t *classes)
{
    bool can = can_be_classes(y, classes);
    if (task && strcmp(task, "classification") != 0 && strcmp(task, "regression") != 0)
        return fail("--task is classification or regression");
    if (task && strcmp(task, "classification") == 0 && !can)
        return fail("y is no class of each sample: whole numbers from 0 to 999");
    bool classify = task ? strcmp(task, "classification") == 0 : can && is_whole(y->dtype);
    *classes = classify ? *classes : 0;
    return *classes != 1 || fail("all samples have the class 0: there is nothing to learn");
}

/* Numbers that are none would be found after an epoch. x is computed with in f32. */
static bool is_finite(const gd_npy *a, const char *name)
{
    char sentence[128];
    const bool is_x = strcmp(name, "x") == 0;
    const int64_t count = count_of(a);
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(is_x ? (double)(float)number(a, i) : number(a, i))) {
            snprintf(sentence, sizeof sentence,
                     "%s of sample %lld has a value that is no finite "
                     "number, or of a dtype that is none of numbers",
                     name, (long long)(i / (count / a->shape.dim[0])));
            return fail(sentence);
        }
    return true;
}

/* ---- data sets ---- */

/* The shape of a sample; of one number [1]. */
static gd_shape sample_shape(gd_shape whole)
{
    gd_shape s = { .rank = whole.rank - 1 };
    for (int i = 1; i < whole.rank; i++)
        s.dim[i - 1] = whole.dim[i];
    return s.rank > 0 ? s : GD_SHAPE(1);
}

/* x as f32, bytes as 0 … 1; y classes i64, or standardised numbers f32. */
static gd_dataset *make_set(const cli_data *d, const arrays *a)
{
    gd_field fields[] = {
        { GD_FIELD_DEFAULTS, .name = "x", .shape = sample_shape(a->x.shape), .dtype = a->x.dtype,
          .batch_dtype = GD_F32, .scale = a->x.dtype == GD_U8 ? 1.0 / 255.0 : 1.0 },
        { GD_FIELD_DEFAULTS, .name = "y", .dtype = a->y.dtype, .batch_dtype = GD_F32 },
    };
    int64_t n = a->x.shape.dim[0], *classes = NULL;
    const void *values[] = { a->x.data, a->y.data };
    if (a->y.data && d->regression) {
        fields[1].shape = sample_shape(a->y.shape);
        fields[1].scale = 1.0 / d->deviation;
        fields[1].shift = -d->mean / d->deviation;
    } else if (a->y.data) {
        classes = malloc((size_t)n * sizeof *classes);
        for (int64_t i = 0; classes && i < n; i++)
            classes[i] = (int64_t)number(&a->y, i);
        fields[1].dtype = fields[1].batch_dtype = GD_I64;
        fields[1].classes = d->outputs;
        values[1] = classes;
    }
    gd_dataset *set = values[1] || !a->y.data
                          ? gd_dataset_from_arrays(d->context, n, a->y.data ? 2 : 1, fields, values)
                          : NULL;
    free(classes);
    return set;
}

/* As open_sets splits samples. */
static bool split(const gd_dataset *all, const cli_data_options *o, int stratify,
                  gd_dataset **train, gd_dataset **validation)
{
    return all && gd_dataset_split(all, 1.0 - o->validation, train, validation,
                                   .seed = (uint64_t)o->seed, .stratify = stratify) == GD_OK;
}

/* Which of the rows are trained on: a data set of their numbers is split as they will be. From malloc. */
static int64_t *training_rows(cli_data *d, const cli_data_options *o, int64_t rows, int64_t *count)
{
    int64_t *list = malloc((size_t)rows * sizeof *list);
    const gd_field field = { GD_FIELD_DEFAULTS, .name = "row", .dtype = GD_I64 };
    gd_dataset *train = NULL, *validation = NULL;
    gd_tensor *read = NULL;
    for (int64_t i = 0; list && i < rows; i++)
        list[i] = i;
    if (!list)
        (void)gd_error_record(GD_ERR_MEMORY, "out of memory");
    gd_dataset *all =
        list ? gd_dataset_from_arrays(d->context, rows, 1, &field, (const void *const[]){ list })
             : NULL;
    bool ok = split(all, o, -1, &train, &validation);
    *count = gd_dataset_count(train);
    ok = ok && gd_dataset_get(train, 0, *count, &read) == GD_OK &&
         gd_tensor_read(read, list, (size_t)*count * sizeof *list) == GD_OK;
    gd_dataset_release(all);
    gd_dataset_release(train);
    gd_dataset_release(validation);
    if (ok)
        return list;
    free(list);
    return NULL;
}

/* Mean and deviation of the targets of the training rows, so that numbers of any size are learnt alike. */
static bool standardise(cli_data *d, const cli_data_options *o, const gd_npy *y)
{
    const double largest = 1e150; /* whose square is finite */
    const int64_t each = count_of(y) / y->shape.dim[0];
    for (int64_t i = 0; i < count_of(y); i++)
        if (fabs(number(y, i)) > largest)
            return fail("y has numbers too large to compute with");
    int64_t count, *rows = training_rows(d, o, y->shape.dim[0], &count);
    double sum = 0, squares = 0;
    for (int64_t i = 0; rows && i < count * each; i++)
        sum += number(y, rows[i / each] * each + i % each);
    d->mean = sum / (double)(count * each);
    for (int64_t i = 0; rows && i < count * each; i++) {
        double away = number(y, rows[i / each] * each + i % each) - d->mean;
        squares += away * away;
    }
    d->deviation = squares > 0 ? sqrt(squares / (double)(count * each)) : 1.0;
    bool ok = rows != NULL;
    free(rows);
    return ok;
}

static void describe(cli_data *d, const arrays *a)
{
    char shape[64];
    gd_shape s = sample_shape(a->x.shape);
    int at = 0;
    for (int i = 0; i < s.rank; i++)
        at += snprintf(shape + at, sizeof shape - (size_t)at, "%s%lld", i ? " x " : "",
                       (long long)s.dim[i]);
    at =
        snprintf(d->about, sizeof d->about, "samples of %s %s; ", shape, gd_dtype_name(a->x.dtype));
    if (!d->regression)
        snprintf(d->about + at, sizeof d->about - (size_t)at, "%lld classes",
                 (long long)d->outputs);
    else
        snprintf(d->about + at, sizeof d->about - (size_t)at, "y: %lld number%s",
                 (long long)d->outputs, d->outputs == 1 ? "" : "s");
}

static bool keep(cli_data *d)
{
    char outputs[32], target[64];
    snprintf(outputs, sizeof outputs, "%lld", (long long)d->outputs);
    snprintf(target, sizeof target, "%.17g %.17g", d->mean, d->deviation);
    return cli_data_keep(d, "outputs", outputs) &&
           (!d->regression || cli_data_keep(d, "target", target));
}

static bool open_sets(cli_data *d, const cli_data_options *o, const arrays *a)
{
    int64_t classes = 0;
    if (count_of(&a->y) < 1)
        return fail("y has no numbers");
    if (!is_finite(&a->x, "x") || !is_finite(&a->y, "y") || !choose_task(&a->y, o->task, &classes))
        return false;
    d->regression = classes == 0;
    d->outputs = d->regression ? count_of(&a->y) / a->y.shape.dim[0] : classes;
    if (d->regression && !standardise(d, o, &a->y))
        return false;
    gd_dataset *all = make_set(d, a);
    bool ok = split(all, o, d->regression ? -1 : 1, &d->train, &d->validation);
    gd_dataset_release(all);
    return ok;
}

static bool open_arrays(cli_data *d, const cli_data_options *o)
{
    arrays a;
    bool ok = read_arrays(o->path, true, &a) && open_sets(d, o, &a);
    if (ok) {
        cli_data_take_classes(d);
        describe(d, &a);
    }
    free_arrays(&a);
    return ok && keep(d);
}

/* New samples, with the targets where they are there. */
static bool reopen_arrays(cli_data *d, const char *path, gd_tensor_file *file)
{
    arrays a;
    const char *outputs = gd_tensor_file_metadata(file, "outputs");
    const char *target = gd_tensor_file_metadata(file, "target");
    int64_t wanted = outputs ? strtoll(outputs, NULL, 10) : 0;
    d->outputs = wanted;
    d->regression = target != NULL;
    d->deviation = 1;
    if (target) {
        char *end;
        d->mean = strtod(target, &end);
        d->deviation = strtod(end, NULL);
    }
    if (wanted < 1 || !(d->deviation > 0))
        return fail("the model's file does not say what it gives");
    bool ok =
        read_arrays(path, false, &a) && is_finite(&a.x, "x") && (!a.y.data || is_finite(&a.y, "y"));
    if (ok && a.y.data && count_of(&a.y) != (d->regression ? wanted : 1) * a.x.shape.dim[0])
        ok = fail(d->regression ? "y has other numbers of a sample than the model gives"
                                : "y is not one whole number a sample, its class");
    d->validation = ok ? make_set(d, &a) : NULL;
    if (ok)
        d->input = sample_shape(a.x.shape);
    free_arrays(&a);
    return d->validation != NULL;
}

/* ---- the proposal ---- */

/* Normalisation, so that features of any size are learnt alike, and a network: of a row two hidden
 * layers, of pictures convolutions. */
static gd_model *propose_arrays(const cli_data *d, uint64_t seed)
{
    static const int64_t widths[] = { 64, 64 }, channels[] = { 16, 32, 64 };
    gd_shape s = d->input;
    if (s.rank == 2)
        s = GD_SHAPE(1, s.dim[0], s.dim[1]);
    bool pictures = s.rank == 3 || s.rank == 4;
    int64_t values = 1;
    for (int i = 0; i < s.rank; i++)
        values *= s.dim[i];
    gd_model_builder *b =
        pictures ? gd_model_begin_cnn(d->context, s, 3, channels, d->outputs, .seed = seed)
                 : gd_model_begin_mlp(d->context, values, 2, widths, d->outputs, .seed = seed);
    (void)gd_model_insert(b, "input", "norm", "batch_norm");
    if (d->regression)
        (void)gd_model_add_loss(b, "mse");
    return gd_model_end(b);
}

const cli_data_kind cli_array_kind = {
    .name = "arrays",
    .sample = "sample",
    .is = is_arrays,
    .open = open_arrays,
    .reopen = reopen_arrays,
    .propose = propose_arrays,
    .epochs = 30,
    .batch = 32,
    .lr = 2e-3,
    .monitor = "loss",
};
