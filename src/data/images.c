/* data/images.c: image files as a data set: each is read, cut and resized when its sample is asked
 * for, by the thread that asks, and kept as far as the cache has room. Start at get_sample(). */
#include "data/images.h"

#include <gradus/io.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/options.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- names ---- */

bool gd_name_list_add(gd_name_list *list, const char *name)
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

void gd_name_list_sort(gd_name_list *list)
{
    if (list->count)
        qsort(list->name, list->count, sizeof *list->name, by_name);
}

int64_t gd_name_list_find(const gd_name_list *sorted, const char *name)
{
    char **found = sorted->count
                       ? bsearch(&name, sorted->name, sorted->count, sizeof *sorted->name, by_name)
                       : NULL;
    return found ? found - sorted->name : -1;
}

void gd_name_list_free(gd_name_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        gd_free(list->name[i]);
    gd_free(list->name);
    *list = (gd_name_list){ 0 };
}

/* ---- files ---- */

gd_status gd_image_files_add(gd_image_files *files, const char *path, int64_t label)
{
    if (!gd_grow((void **)&files->labels, &files->label_capacity, files->paths.count + 1,
                 sizeof *files->labels) ||
        !gd_name_list_add(&files->paths, path))
        return GD_ERR_MEMORY;
    files->labels[files->paths.count - 1] = label;
    return GD_OK;
}

void gd_image_files_free(gd_image_files *files)
{
    gd_name_list_free(&files->paths);
    gd_name_list_free(&files->classes);
    gd_free(files->labels);
    files->labels = NULL;
}

uint64_t gd_image_files_fingerprint(const gd_image_files *files)
{
    enum { SIZES = 4096 };
    const size_t count = files->paths.count, step = (count + SIZES - 1) / SIZES;
    gd_hash hash;
    gd_hash_begin(&hash);
    for (size_t i = 0; i < count; i++) {
        const char *path = files->paths.name[i], *slash = strrchr(path, '/');
        const char *name = slash ? slash + 1 : path;
        struct stat info;
        gd_hash_add(&hash, name, strlen(name) + 1);
        if (i % step == 0 && stat(path, &info) == 0) {
            const int64_t size = info.st_size;
            gd_hash_add(&hash, &size, sizeof size);
        }
    }
    return gd_hash_end(&hash);
}

/* ---- samples ---- */

typedef _Atomic(unsigned char *) kept_image;

typedef struct reader {
    gd_name_list paths;
    int64_t height, width;
    bool crop;
    kept_image *kept;   /* [paths.count] samples [3, height, width], or NULL */
    atomic_size_t room; /* bytes that may be kept in addition */
} reader;

static void destroy(void *user)
{
    reader *r = user;
    for (size_t i = 0; r->kept && i < r->paths.count; i++)
        gd_free(atomic_load_explicit(&r->kept[i], memory_order_acquire));
    gd_free(r->kept);
    gd_name_list_free(&r->paths);
    gd_free(r);
}

/* The middle of the image that has the ratio of height to width, in the same memory. */
static void cut_middle(gd_image *image, int64_t height, int64_t width)
{
    int64_t h = image->height, w = image->width;
    if (h * width > w * height)
        h = (2 * w * height + width) / (2 * width);
    else
        w = (2 * h * width + height) / (2 * height);
    h = h < 1 ? 1 : h > image->height ? image->height : h;
    w = w < 1 ? 1 : w > image->width ? image->width : w;
    int64_t c = image->channels, top = (image->height - h) / 2, left = (image->width - w) / 2;
    for (int64_t y = 0; y < h; y++)
        memmove(image->pixels + y * w * c, image->pixels + ((top + y) * image->width + left) * c,
                (size_t)(w * c));
    image->height = h, image->width = w;
}

/* The file as [3, height, width]. */
static gd_status read_planes(const reader *r, int64_t i, unsigned char *out)
{
    gd_image image, small = { 0 };
    gd_status status = gd_image_read_reduced(r->paths.name[i], r->height, r->width, &image);
    if (status == GD_OK && r->crop)
        cut_middle(&image, r->height, r->width);
    if (status == GD_OK)
        status = gd_image_resize(&image, r->height, r->width, &small);
    int64_t plane = r->height * r->width;
    for (int64_t k = 0; status == GD_OK && k < plane; k++)
        for (int64_t c = 0; c < 3; c++)
            out[c * plane + k] = small.pixels[k * 3 + c];
    gd_image_free(&image);
    gd_image_free(&small);
    return status;
}

static bool take_room(reader *r, size_t bytes)
{
    size_t room = atomic_load_explicit(&r->room, memory_order_relaxed);
    while (room >= bytes)
        if (atomic_compare_exchange_weak_explicit(&r->room, &room, room - bytes,
                                                  memory_order_relaxed, memory_order_relaxed))
            return true;
    return false;
}

/* Keep the sample if there is room; it is no error if there is not. */
static void keep(reader *r, int64_t i, const unsigned char *sample, size_t bytes)
{
    if (!take_room(r, bytes))
        return;
    uint64_t mark = gd_error_mark();
    unsigned char *copy = gd_alloc(bytes), *none = NULL;
    if (copy) {
        memcpy(copy, sample, bytes);
        if (atomic_compare_exchange_strong_explicit(&r->kept[i], &none, copy, memory_order_acq_rel,
                                                    memory_order_relaxed))
            return;
    }
    gd_error_rollback(mark);
    gd_free(copy); /* another thread was first */
    atomic_fetch_add_explicit(&r->room, bytes, memory_order_relaxed);
}

static gd_status get_sample(void *user, int64_t index, gd_sample_values *sample)
{
    reader *r = user;
    size_t bytes = (size_t)(3 * r->height * r->width);
    unsigned char *kept = atomic_load_explicit(&r->kept[index], memory_order_acquire);
    if (kept) {
        memcpy(sample->data[0], kept, bytes);
        return GD_OK;
    }
    gd_status status = read_planes(r, index, sample->data[0]);
    if (status == GD_OK)
        keep(r, index, sample->data[0], bytes);
    return status;
}

/* ---- data sets ---- */

bool gd_image_options_read(const char *who, gd_image_options *out, const gd_image_options *given,
                           const char *path, int64_t height, int64_t width)
{
    *out = (gd_image_options){ GD_IMAGE_DEFAULTS };
    if (!gd_options_read(who, out, sizeof *out, given))
        return false;
    if (!path || height < 1 || width < 1 || height > GD_IMAGE_MAX_SIZE || width > GD_IMAGE_MAX_SIZE)
        (void)gd_fail(GD_ERR_INVALID, "%s: the path is NULL, or the size is not 1 to %d", who,
                      GD_IMAGE_MAX_SIZE);
    else if (out->batch_dtype != GD_U8 && !gd_dtype_is_float(out->batch_dtype))
        (void)gd_fail(GD_ERR_DTYPE, "%s: batches of images are u8 or floats, not %s", who,
                      gd_dtype_name(out->batch_dtype));
    else
        return true;
    return false;
}

static reader *make_reader(gd_image_files *files, int64_t height, int64_t width,
                           const gd_image_options *o)
{
    reader *r = gd_alloc_zero(1, sizeof *r);
    if (!r)
        return NULL;
    r->paths = files->paths;
    files->paths = (gd_name_list){ 0 };
    r->height = height, r->width = width, r->crop = o->crop;
    atomic_init(&r->room, o->cache);
    r->kept = gd_alloc_zero(r->paths.count, sizeof *r->kept);
    if (r->kept)
        return r;
    destroy(r);
    return NULL;
}

gd_dataset *gd_image_dataset(gd_context *context, gd_image_files *files, int64_t height,
                             int64_t width, const gd_image_options *options)
{
    int64_t count = (int64_t)files->paths.count;
    const uint64_t print = gd_image_files_fingerprint(files) ^ options->crop;
    reader *r = make_reader(files, height, width, options);
    gd_dataset *d = NULL;
    if (r) {
        bool bytes = options->batch_dtype == GD_U8;
        const gd_field fields[2] = {
            { GD_FIELD_DEFAULTS, .name = "image", .shape = GD_SHAPE(3, height, width),
              .dtype = GD_U8, .batch_dtype = options->batch_dtype, .scale = bytes ? 1 : 1.0 / 255 },
            { GD_FIELD_DEFAULTS, .name = "label", .dtype = GD_I64,
              .classes = (int64_t)files->classes.count,
              .class_names = (const char *const *)files->classes.name },
        };
        const void *const arrays[2] = { NULL, files->labels };
        d = gd_dataset_create(context, count, 2, fields, get_sample, r, .release = destroy,
                              .arrays = arrays, .fingerprint = print);
    }
    gd_image_files_free(files);
    return d;
}
