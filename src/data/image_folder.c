/* data/image_folder.c: a folder of photographs as a data set: each folder in it is a class, in the
 * order of their names. Hidden files are skipped in silence; other files that are not JPEG or PNG
 * images are skipped with a warning. Start at gd_image_folder_with(). */
#include "data/dataset.h"

#include <gradus/io.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/threads.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { PATH_BYTES = 4096, MOST_THREADS = 16 };

typedef struct names {
    char **name;
    size_t count, capacity;
} names;

static void names_free(names *list)
{
    for (size_t i = 0; i < list->count; i++)
        gd_free(list->name[i]);
    gd_free(list->name);
    *list = (names){ 0 };
}

static bool names_add(names *list, const char *name)
{
    if (!gd_grow((void **)&list->name, &list->capacity, list->count + 1, sizeof *list->name))
        return false;
    char *copy = gd_strdup(name);
    if (copy)
        list->name[list->count++] = copy;
    return copy != NULL;
}

static int by_name(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;
    return strcmp(*x, *y);
}

static bool is_photograph(const char *name)
{
    const char *end = strrchr(name, '.');
    return end && (strcasecmp(end, ".jpg") == 0 || strcasecmp(end, ".jpeg") == 0 ||
                   strcasecmp(end, ".png") == 0);
}

static bool is_folder(const char *folder, const char *name)
{
    char path[PATH_BYTES];
    struct stat info;
    return snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path &&
           stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* What a folder holds, sorted: photographs, or else folders. Names that begin with a dot are
 * hidden. */
static gd_status list_folder(const char *path, bool photographs, names *list)
{
    DIR *folder = opendir(path);
    if (!folder)
        return gd_fail(GD_ERR_IO, "%s: cannot be read as a folder", path);
    bool ok = true;
    char other[256] = "";
    int others = 0;
    for (struct dirent *entry; ok && (entry = readdir(folder)) != NULL;) {
        const char *name = entry->d_name;
        if (name[0] == '.')
            continue;
        if (photographs ? is_photograph(name) : is_folder(path, name))
            ok = names_add(list, name);
        else if (others++ == 0)
            snprintf(other, sizeof other, "%s", name);
    }
    closedir(folder);
    if (others > 0)
        gd_log_message(GD_LOG_WARNING, "%s: left out what is no %s: %s%s", path,
                       photographs ? "image (.jpg, .jpeg, .png)" : "folder", other,
                       others > 1 ? " and others" : "");
    if (list->count)
        qsort(list->name, list->count, sizeof *list->name, by_name);
    return ok ? GD_OK : GD_ERR_MEMORY;
}

/* Every photograph's path, and its class. */
typedef struct listing {
    names paths;
    int64_t *labels;
    size_t label_capacity;
} listing;

static gd_status list_class(listing *all, const char *folder, int64_t label)
{
    names files = { 0 };
    gd_status status = list_folder(folder, true, &files);
    char path[PATH_BYTES];
    for (size_t i = 0; status == GD_OK && i < files.count; i++) {
        if (snprintf(path, sizeof path, "%s/%s", folder, files.name[i]) >= (int)sizeof path)
            status = gd_fail(GD_ERR_INVALID, "%s: the path is too long", folder);
        else if (!gd_grow((void **)&all->labels, &all->label_capacity, all->paths.count + 1,
                          sizeof *all->labels) ||
                 !names_add(&all->paths, path))
            status = GD_ERR_MEMORY;
        else
            all->labels[all->paths.count - 1] = label;
    }
    names_free(&files);
    return status;
}

static gd_status list_all(listing *all, const char *folder)
{
    names classes = { 0 };
    gd_status status = list_folder(folder, false, &classes);
    char path[PATH_BYTES];
    for (size_t i = 0; status == GD_OK && i < classes.count; i++)
        status = snprintf(path, sizeof path, "%s/%s", folder, classes.name[i]) < (int)sizeof path
                     ? list_class(all, path, (int64_t)i)
                     : gd_fail(GD_ERR_INVALID, "%s: the path is too long", folder);
    if (status == GD_OK && all->paths.count == 0)
        status = gd_fail(GD_ERR_IO, "%s: holds no folders with images (.jpg, .jpeg, .png)", folder);
    names_free(&classes);
    return status;
}

/* ---- decoding, in several threads ---- */

typedef struct decoding {
    const names *paths;
    int64_t height, width;
    unsigned char *samples; // [count, 3, height, width]
    gd_status status[MOST_THREADS];
    char message[MOST_THREADS][GD_ERROR_MESSAGE_BYTES];
} decoding;

static gd_status decode_one(const decoding *d, int64_t i)
{
    gd_image image, small = { 0 };
    gd_status status = gd_image_read(d->paths->name[i], &image);
    if (status == GD_OK)
        status = gd_image_resize(&image, d->height, d->width, &small);
    int64_t plane = d->height * d->width;
    unsigned char *out = d->samples + i * 3 * plane;
    for (int64_t k = 0; status == GD_OK && k < plane; k++)
        for (int64_t c = 0; c < 3; c++)
            out[c * plane + k] = small.pixels[k * 3 + c];
    gd_image_free(&image);
    gd_image_free(&small);
    return status;
}

/* Errors are recorded for each thread, and any thread of the pool may run this range: the sentence
 * goes to `message`, and decode_all() records it again for the caller. */
static void decode_range(void *context, int64_t begin, int64_t end, int range)
{
    decoding *d = context;
    uint64_t mark = gd_error_mark();
    for (int64_t i = begin; i < end && d->status[range] == GD_OK; i++)
        d->status[range] = decode_one(d, i);
    if (d->status[range] == GD_OK)
        return;
    snprintf(d->message[range], sizeof d->message[range], "%s", gd_error_last_message());
    gd_error_rollback(mark);
}

static gd_status decode_all(decoding *d, int threads)
{
    gd_parallel_for(threads < MOST_THREADS ? threads : MOST_THREADS, (int64_t)d->paths->count, 1,
                    decode_range, d);
    for (int i = 0; i < MOST_THREADS; i++)
        if (d->status[i] != GD_OK)
            return gd_fail(d->status[i], "%s", d->message[i]);
    return GD_OK;
}

gd_dataset *gd_image_folder(gd_context *context, const char *folder, int64_t height, int64_t width)
{
    if (!context)
        return NULL;
    if (!folder || height < 1 || width < 1 || height > GD_IMAGE_MAX_SIZE ||
        width > GD_IMAGE_MAX_SIZE)
        return gd_fail_null(GD_ERR_INVALID,
                            "gd_image_folder: the folder is NULL, or the size is not 1 to %d",
                            GD_IMAGE_MAX_SIZE);
    listing all = { 0 };
    gd_status status = list_all(&all, folder);
    decoding *d = status == GD_OK ? gd_alloc_zero(1, sizeof *d) : NULL;
    if (d) {
        d->paths = &all.paths;
        d->height = height;
        d->width = width;
        d->samples = gd_alloc(all.paths.count * (size_t)(3 * height * width));
        status = d->samples ? decode_all(d, gd_context_threads(context)) : GD_ERR_MEMORY;
    }
    int64_t count = (int64_t)all.paths.count;
    unsigned char *samples = d ? d->samples : NULL;
    bool ok = d && status == GD_OK;
    gd_free(d);
    names_free(&all.paths);
    if (!ok) {
        gd_free(samples);
        gd_free(all.labels);
        return NULL;
    }
    const gd_field fields[2] = {
        { GD_FIELD_DEFAULTS, .name = "image", .shape = GD_SHAPE(3, height, width), .dtype = GD_U8,
          .batch_dtype = GD_F32, .scale = 1.0 / 255.0 },
        { GD_FIELD_DEFAULTS, .name = "label", .dtype = GD_I64, .classes = -1 },
    };
    void *const arrays[2] = { samples, all.labels };
    return gd_dataset_adopt(context, count, 2, fields, arrays);
}
