/* report/pixels.h: tensors as pictures. */
#ifndef GD_REPORT_PIXELS_H
#define GD_REPORT_PIXELS_H

#include <gradus/io.h>

/* Images beside and below each other, with a line of one pixel between. */
typedef struct gd_image_grid {
    int64_t count, channels, height, width; /* of the images */
    int64_t columns, rows;
} gd_image_grid;

/* [channels, height, width], or [n, channels, height, width] as a grid of `columns` (0: about a
 * square). `stretch`: each image's least value is black, its
 * greatest white; else u8 from 0 to 255, floats from 0 to 1. out->pixels is gd_free'd by the caller,
 * also NULL after a failure: GD_ERR_INVALID, GD_ERR_SHAPE, GD_ERR_MEMORY. *grid may be NULL. */
gd_status gd_pixels_read(const char *who, gd_tensor *images, bool stretch, int64_t columns,
                         gd_image_grid *grid, gd_image *out);

/* All elements of a tensor of any dtype, gd_free'd by the caller. NULL: failed. */
double *gd_doubles_read(gd_tensor *t);

#endif
