/* cli/data_images.c: folders of photographs, one folder a class, or those in train/ and validation/; the
 * files of CIFAR-10; and a convolutional network for them. Start at open_images(). */
#include "cli.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#ifdef GD_HAVE_JANSSON
#include <jansson.h>
#endif

enum { PATH_BYTES = 4096, DEFAULT_SIZE = 64, CIFAR_SIZE = 32 };

static bool is_folder(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

bool cli_is_photograph(const char *path)
{
    static const char *const endings[] = { ".jpg", ".jpeg", ".png" };
    size_t length = strlen(path);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t n = strlen(endings[i]);
        if (length > n && strcasecmp(path + length - n, endings[i]) == 0)
            return true;
    }
    return false;
}

/* Whether something in the folder is what is looked for: a photograph, or a folder with some. */
static bool has(const char *folder, bool (*wanted)(const char *path))
{
    DIR *stream = opendir(folder);
    bool found = false;
    for (struct dirent *e; stream && !found && (e = readdir(stream));) {
        char path[PATH_BYTES];
        if (e->d_name[0] != '.' &&
            snprintf(path, sizeof path, "%s/%s", folder, e->d_name) < (int)sizeof path)
            found = wanted(path);
    }
    if (stream)
        closedir(stream);
    return found;
}

bool cli_find_in_classes(const char *path, bool (*is)(const char *path), char found[CLI_PATH_BYTES])
{
    DIR *stream = opendir(path);
    bool ok = false;
    for (struct dirent *class; stream && !ok && (class = readdir(stream));) {
        char folder[PATH_BYTES / 2];
        snprintf(folder, sizeof folder, "%.1700s/%s", path, class->d_name);
        DIR *files = class->d_name[0] != '.' ? opendir(folder) : NULL;
        for (struct dirent *e; files && !ok && (e = readdir(files));) {
            snprintf(found, CLI_PATH_BYTES, "%s/%s", folder, e->d_name);
            ok = e->d_name[0] != '.' && is(found);
        }
        if (files)
            closedir(files);
    }
    if (stream)
        closedir(stream);
    return ok;
}

bool cli_has_classes_of(const char *path, bool (*is)(const char *path))
{
    char found[CLI_PATH_BYTES];
    return cli_find_in_classes(path, is, found);
}

static bool has_photographs(const char *path)
{
    return is_folder(path) && has(path, cli_is_photograph);
}

static bool has_classes(const char *path)
{
    return is_folder(path) && has(path, has_photographs);
}

/* The part of the folder of one of these names that has classes in it; "" if there is none. */
static void find_part(const char *folder, const char *const *names, char path[PATH_BYTES])
{
    for (; *names; names++)
        if (snprintf(path, PATH_BYTES, "%s/%s", folder, *names) < PATH_BYTES && has_classes(path))
            return;
    path[0] = '\0';
}

static const char *const train_names[] = { "train", "training", NULL };
/* A folder "test" is left for gradus eval: what chooses the best epoch cannot say how good it is. */
static const char *const validation_names[] = { "validation", "val", "valid", NULL };

static bool is_cifar_file(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    return (strncmp(name, "data_batch_", 11) == 0 || strncmp(name, "test_batch", 10) == 0) &&
           cli_has_ending(name, ".bin");
}

/* CIFAR-10's binary version: data_batch_1.bin … and test_batch.bin. */
static bool is_cifar(const char *path)
{
    return is_folder(path) && has(path, is_cifar_file);
}

static bool is_images(const char *path)
{
    char part[PATH_BYTES];
    find_part(path, train_names, part);
    return part[0] || has_classes(path) || is_cifar(path);
}

/* All photographs of a folder; of CIFAR-10 those to train with, or those to test with. */
static gd_dataset *open_folder(const cli_data *d, const char *path, int64_t size, bool test)
{
    if (!is_cifar(path))
        return gd_image_folder(d->context, path, size, size, .batch_dtype = GD_U8);
    if (size == CIFAR_SIZE)
        return gd_cifar10(d->context, path, .test = test, .batch_dtype = GD_U8);
    (void)gd_error_record(GD_ERR_INVALID, "CIFAR-10's photographs have 32 x 32 pixels, and are not "
                                          "resized");
    return NULL;
}

/* ---- names of classes in the model's file ---- */

#ifdef GD_HAVE_JANSSON

bool cli_data_keep_classes(cli_data *d)
{
    json_t *list = json_array();
    char number[CLI_COUNT_TEXT];
    for (int64_t i = 0; i < d->outputs; i++)
        json_array_append_new(list, json_string(cli_data_class(d, i, number)));
    char *text = json_dumps(list, 0);
    bool ok = cli_data_keep(d, "classes", text);
    free(text);
    json_decref(list);
    return ok;
}

bool cli_data_take_kept_classes(cli_data *d, gd_tensor_file *file)
{
    const char *text = gd_tensor_file_metadata(file, "classes");
    json_t *list = text ? json_loads(text, 0, NULL) : NULL;
    bool ok = list && json_array_size(list) > 0;
    d->outputs = (int64_t)json_array_size(list);
    d->classes = calloc((size_t)d->outputs + 1, sizeof *d->classes);
    for (int64_t i = 0; ok && d->classes && i < d->outputs; i++) {
        const char *name = json_string_value(json_array_get(list, (size_t)i));
        d->classes[i] = name ? strdup(name) : NULL;
        ok = d->classes[i] != NULL;
    }
    json_decref(list);
    if (!ok)
        (void)gd_error_record(GD_ERR_FORMAT, "the model's file has no names of classes");
    return ok && d->classes;
}

#else

bool cli_data_keep_classes(cli_data *d)
{
    return d != NULL; /* nor can the model be saved */
}

bool cli_data_take_kept_classes(cli_data *d, gd_tensor_file *file)
{
    (void)d, (void)file;
    (void)gd_error_record(GD_ERR_UNSUPPORTED, "this build cannot read JSON");
    return false;
}

#endif

/* ---- opening ---- */

static bool have_same_classes(const gd_dataset *a, const gd_dataset *b)
{
    const gd_field *x = gd_dataset_field(a, 1), *y = gd_dataset_field(b, 1);
    bool same = x && y && x->classes == y->classes;
    for (int64_t i = 0; same && x->class_names && y->class_names && i < x->classes; i++)
        same = strcmp(x->class_names[i], y->class_names[i]) == 0;
    if (!same && x && y)
        (void)gd_error_record(GD_ERR_FORMAT, "the folders for validation are not those for "
                                             "training: each is a class");
    return same;
}

static bool open_sets(cli_data *d, const cli_data_options *o, int64_t size)
{
    char train[PATH_BYTES], validation[PATH_BYTES];
    find_part(o->path, train_names, train);
    find_part(o->path, validation_names, validation);
    gd_dataset *all = open_folder(d, train[0] ? train : o->path, size, false);
    if (!all)
        return false;
    if (train[0] && validation[0]) {
        d->train = all;
        d->validation = open_folder(d, validation, size, false);
        return d->validation && have_same_classes(d->train, d->validation);
    }
    bool ok = gd_dataset_split(all, 1.0 - o->validation, &d->train, &d->validation,
                               .seed = (uint64_t)o->seed, .stratify = 1) == GD_OK;
    gd_dataset_release(all);
    return ok;
}

bool cli_data_has_all_classes(const cli_data *d)
{
    char number[CLI_COUNT_TEXT], problem[256];
    double *weights = calloc((size_t)d->outputs + 1, sizeof *weights);
    bool ok = weights && gd_dataset_class_weights(d->train, 1, weights) == GD_OK;
    problem[0] = '\0';
    if (d->outputs < 2)
        snprintf(problem, sizeof problem,
                 "all %ss are in the folder \"%.64s\": there must be a folder for each of two "
                 "classes or more",
                 d->kind->sample, cli_data_class(d, 0, number));
    for (int64_t i = 0; ok && !problem[0] && i < d->outputs; i++)
        if (weights[i] == 0)
            snprintf(problem, sizeof problem,
                     "the folder \"%.64s\" has no %ss to train with, and each folder is a class",
                     cli_data_class(d, i, number), d->kind->sample);
    free(weights);
    if (problem[0])
        ok = gd_error_record(GD_ERR_INVALID, problem) == GD_OK;
    return ok;
}

static bool open_images(cli_data *d, const cli_data_options *o)
{
    char text[CLI_COUNT_TEXT];
    if (o->size > 1024)
        return gd_error_record(GD_ERR_INVALID, "--size of photographs is at most 1024") == GD_OK;
    int64_t size = o->size > 0 ? o->size : is_cifar(o->path) ? CIFAR_SIZE : DEFAULT_SIZE;
    if (!open_sets(d, o, size))
        return false;
    cli_data_take_classes(d);
    if (!cli_data_has_all_classes(d))
        return false;
    int at = snprintf(d->about, sizeof d->about, "%lld x %lld pixels; %lld classes",
                      (long long)size, (long long)size, (long long)d->outputs);
    for (int64_t i = 0; i < d->outputs && i < 8; i++) {
        char number[CLI_COUNT_TEXT];
        at += snprintf(d->about + at, sizeof d->about - (size_t)at, "%s%.24s", i ? ", " : " (",
                       cli_data_class(d, i, number));
    }
    snprintf(d->about + at, sizeof d->about - (size_t)at, d->outputs > 8 ? ", ...)" : ")");
    snprintf(text, sizeof text, "%lld", (long long)size);
    return cli_data_keep(d, "image", text) && cli_data_keep_classes(d);
}

bool cli_data_has_kept_classes(const cli_data *d)
{
    const gd_field *y = gd_dataset_field(d->validation, 1);
    for (int64_t i = 0; y && i < y->classes; i++)
        if (y->classes != d->outputs ||
            (y->class_names && strcmp(y->class_names[i], d->classes[i]) != 0)) {
            (void)gd_error_record(GD_ERR_FORMAT, "the folders are not those the model was trained "
                                                 "with: each is a class");
            return false;
        }
    return y != NULL;
}

static bool reopen_images(cli_data *d, const char *path, gd_tensor_file *file)
{
    const char *size = gd_tensor_file_metadata(file, "image");
    d->size = size ? strtoll(size, NULL, 10) : DEFAULT_SIZE;
    if (d->size < 1 || d->size > GD_IMAGE_MAX_SIZE || !cli_data_take_kept_classes(d, file))
        return false;
    if (!has_classes(path) && !is_cifar(path))
        return true; /* a photograph, or a folder of them: nobody says what they are */
    d->validation = open_folder(d, path, d->size, true);
    return cli_data_has_kept_classes(d);
}

/* Four stages of convolution, batch normalisation, ReLU and pooling, each with twice the channels. */
static gd_model *propose_images(const cli_data *d, uint64_t seed)
{
    static const int64_t channels[] = { 16, 32, 64, 128 };
    gd_model_builder *b =
        gd_model_begin_cnn(d->context, d->input, 4, channels, d->outputs, .seed = seed);
    for (int i = 1; i <= 4; i++) {
        char pool[16], norm[16];
        snprintf(pool, sizeof pool, "pool%d", i);
        snprintf(norm, sizeof norm, "norm%d", i);
        (void)gd_model_insert(b, pool, norm, "batch_norm");
    }
    (void)gd_model_insert(b, "norm4", "drop", "dropout", .dropout = 0.3);
    return gd_model_end(b);
}

const cli_data_kind cli_image_kind = {
    .name = "images",
    .sample = "photograph",
    .is = is_images,
    .open = open_images,
    .reopen = reopen_images,
    .propose = propose_images,
    .epochs = 20,
    .batch = 32,
    .lr = 1e-3,
    .monitor = "accuracy",
    .flip = true,
};
