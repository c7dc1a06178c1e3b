/* data/mapping.h: a tensor that the host fills again and again, as loaders do. */
#ifndef GD_DATA_MAPPING_H
#define GD_DATA_MAPPING_H

#include <gradus/tensor.h>

typedef struct gd_mapping {
    gd_tensor *tensor; /* retained */
    void *data;        /* row-major: where the host writes */
    void *staging;     /* data, where the host cannot reach the tensor's memory; else NULL */
} gd_mapping;

/* A tensor of zeros and its mapping, to be closed also on failure. */
gd_status gd_mapping_open(gd_mapping *m, gd_context *context, gd_shape shape, gd_dtype dtype);
void gd_mapping_close(gd_mapping *m);

/* Before the host writes to `data`, from any thread. Gradients that need the old values become
 * GD_ERR_STATE. */
gd_status gd_mapping_begin(gd_mapping *m);
/* After it: the tensor's value is what `data` contains, until the next gd_mapping_begin. */
gd_status gd_mapping_end(gd_mapping *m);

#endif
