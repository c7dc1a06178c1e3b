/* data/dataset.c: samples and labels in host memory. Start at gd_dataset_adopt(). Reading them from
 * files is data/dataset_idx.c, giving them out in batches data/loader.c. */
#include "data/dataset.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/options.h"

#include <math.h>
#include <string.h>

static void destroy(void *object)
{
    gd_dataset *d = object;
    gd_free(d->samples);
    gd_free(d->labels);
    gd_free(d);
}

void gd_dataset_release(gd_dataset *d)
{
    if (!d)
        return;
    gd_context_disown(d->context, d);
    destroy(d);
}

/* Numbers in a sample, -1 for a shape that cannot be. */
static int64_t count_features(gd_shape shape)
{
    if (shape.rank < 0 || shape.rank >= GD_MAX_RANK)
        return -1;
    int64_t features = 1;
    for (int i = 0; i < shape.rank; i++) {
        if (shape.dim[i] < 1 || shape.dim[i] > (INT64_C(1) << 40) / features)
            return -1;
        features *= shape.dim[i];
    }
    return features;
}

static gd_status check(const gd_dataset_form *o)
{
    int64_t features = count_features(o->shape);
    if (features < 0)
        return gd_fail(GD_ERR_SHAPE, "gd_dataset: a sample of rank %d with such sizes cannot be",
                       o->shape.rank);
    if (o->dtype != GD_U8 && o->dtype != GD_F32)
        return gd_fail(GD_ERR_DTYPE, "gd_dataset: samples are u8 or f32, not %s",
                       gd_dtype_name(o->dtype));
    if (o->count < 1 || o->count > (INT64_C(1) << 48) / features)
        return gd_fail(GD_ERR_INVALID, "gd_dataset: %lld samples", (long long)o->count);
    if (!isfinite(o->scale) || !isfinite(o->shift))
        return gd_fail(GD_ERR_INVALID, "gd_dataset: scale %g and shift %g must be finite", o->scale,
                       o->shift);
    return GD_OK;
}

/* Largest label plus one; 0 and an error when one is no class. */
static int64_t count_classes(const int64_t *labels, int64_t count)
{
    int64_t classes = 0;
    for (int64_t i = 0; i < count; i++) {
        if (labels[i] < 0 || labels[i] == INT64_MAX) {
            (void)gd_fail(GD_ERR_INVALID, "gd_dataset: label %lld of sample %lld is %s",
                          (long long)labels[i], (long long)i,
                          labels[i] < 0 ? "negative" : "too large to count classes");
            return 0;
        }
        classes = labels[i] >= classes ? labels[i] + 1 : classes;
    }
    return classes;
}

gd_dataset *gd_dataset_adopt(const gd_dataset_form *form, void *samples, int64_t *labels)
{
    gd_dataset *d = check(form) == GD_OK ? gd_alloc_zero(1, sizeof *d) : NULL;
    if (!d) {
        gd_free(samples);
        gd_free(labels);
        return NULL;
    }
    *d = (gd_dataset){ .context = form->context,
                       .samples = samples,
                       .labels = labels,
                       .count = form->count,
                       .features = count_features(form->shape),
                       .classes = count_classes(labels, form->count),
                       .dtype = form->dtype,
                       .shape = form->shape,
                       .scale = (float)form->scale,
                       .shift = (float)form->shift,
                       .convert = gd_convert_choose(form->dtype, gd_context_isa(form->context)) };
    if (d->classes == 0 || gd_context_adopt(form->context, d, destroy) != GD_OK) {
        destroy(d);
        return NULL;
    }
    return d;
}

gd_dataset *gd_dataset_create_with(gd_context *context, gd_shape shape, gd_dtype dtype,
                                   int64_t count, const void *samples, const int64_t *labels,
                                   const gd_dataset_options *options)
{
    gd_dataset_options o = { GD_DATASET_DEFAULTS };
    if (!gd_options_read("gd_dataset_create", &o, sizeof o, options) || !context)
        return NULL;
    if (!samples || !labels)
        return gd_fail_null(GD_ERR_INVALID, "gd_dataset_create: %s are NULL",
                            samples ? "labels" : "samples");
    const gd_dataset_form form = { context, shape, dtype, count, o.scale, o.shift };
    if (check(&form) != GD_OK)
        return NULL;
    size_t bytes = (size_t)(count * count_features(shape)) * gd_dtype_size(dtype);
    size_t label_bytes = (size_t)count * sizeof *labels;
    void *own_samples = gd_alloc(bytes);
    int64_t *own_labels = gd_alloc(label_bytes);
    if (!own_samples || !own_labels) {
        gd_free(own_samples);
        gd_free(own_labels);
        return NULL;
    }
    memcpy(own_samples, samples, bytes);
    memcpy(own_labels, labels, label_bytes);
    return gd_dataset_adopt(&form, own_samples, own_labels);
}

int64_t gd_dataset_count(const gd_dataset *d)
{
    return d ? d->count : 0;
}

gd_shape gd_dataset_shape(const gd_dataset *d)
{
    return d ? d->shape : GD_SCALAR;
}

int64_t gd_dataset_classes(const gd_dataset *d)
{
    return d ? d->classes : 0;
}

static gd_tensor *get_samples(const gd_dataset *d, int64_t first, int64_t count)
{
    gd_shape shape = { .rank = d->shape.rank + 1, .dim = { count } };
    memcpy(shape.dim + 1, d->shape.dim, sizeof(int64_t) * (size_t)d->shape.rank);
    size_t values = (size_t)(count * d->features);
    float *copy = gd_alloc(values * sizeof *copy + 1);
    if (!copy)
        return NULL;
    d->convert(gd_dataset_sample(d, first), copy, (int64_t)values, d->scale, d->shift);
    gd_tensor *t = gd_from_host(d->context, shape, GD_F32, copy);
    gd_free(copy);
    return t;
}

gd_status gd_dataset_get(const gd_dataset *d, int64_t first, int64_t count, gd_tensor **x,
                         gd_tensor **y)
{
    if (x)
        *x = NULL;
    if (y)
        *y = NULL;
    if (!d)
        return gd_fail(GD_ERR_INVALID, "gd_dataset_get: the data set is NULL");
    if (first < 0 || count < 1 || first > d->count - count)
        return gd_fail(GD_ERR_SHAPE, "gd_dataset_get: samples %lld to %lld of %lld",
                       (long long)first, (long long)(first + count - 1), (long long)d->count);
    if (x && !(*x = get_samples(d, first, count)))
        return gd_error_last();
    if (y && !(*y = gd_from_host(d->context, GD_SHAPE(count), GD_I64, d->labels + first)))
        return gd_error_last();
    return GD_OK;
}
