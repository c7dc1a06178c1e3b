/* tests/support/data.h: data sets of samples and class labels in memory. Include after cmocka.h. */
#ifndef GD_TESTS_DATA_H
#define GD_TESTS_DATA_H

#include <gradus/gradus.h>

/* Fields "x", f32 in batches, which are values * scale, and "y", of as many classes as occur. */
static inline gd_dataset *labelled_samples(gd_context *gd, gd_shape shape, gd_dtype dtype,
                                           double scale, int64_t count, const void *samples,
                                           const int64_t *labels)
{
    const gd_field fields[2] = {
        { GD_FIELD_DEFAULTS, .name = "x", .shape = shape, .dtype = dtype, .batch_dtype = GD_F32,
          .scale = scale },
        { GD_FIELD_DEFAULTS, .name = "y", .dtype = GD_I64, .classes = -1 },
    };
    const void *arrays[2] = { samples, labels };
    return gd_dataset_from_arrays(gd, count, 2, fields, arrays);
}

#endif
