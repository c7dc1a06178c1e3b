/* data/dataset.h: what the loader knows of a data set. */
#ifndef GD_DATA_DATASET_H
#define GD_DATA_DATASET_H

#include <gradus/data.h>

/* out[i] = in[i] * scale + shift, rounded twice: the same on every instruction set. */
typedef void (*gd_convert_fn)(const void *in, float *out, int64_t count, float scale, float shift);
/* The one for samples of `dtype` (GD_U8, GD_F32) and the instruction set of that name. */
gd_convert_fn gd_convert_choose(gd_dtype dtype, const char *isa);

struct gd_dataset {
    gd_context *context;
    void *samples;   /* [count, features] of dtype; ours */
    int64_t *labels; /* [count] ours */
    int64_t count, features, classes;
    gd_dtype dtype; /* GD_U8 or GD_F32 */
    gd_shape shape; /* of one sample */
    float scale, shift;
    gd_convert_fn convert;
};

/* Sample number i, as it lies in memory. */
static inline const void *gd_dataset_sample(const gd_dataset *d, int64_t i)
{
    return (const char *)d->samples + (size_t)(i * d->features) * gd_dtype_size(d->dtype);
}

/* What a data set is, beside its samples and labels. */
typedef struct gd_dataset_form {
    gd_context *context;
    gd_shape shape;
    gd_dtype dtype;
    int64_t count;
    double scale, shift;
} gd_dataset_form;

/* Take samples and labels over, whether it succeeds or not (gd_free frees them). */
gd_dataset *gd_dataset_adopt(const gd_dataset_form *form, void *samples, int64_t *labels);

#endif
