/* report/pixels.c: see pixels.h. */
#include "report/pixels.h"

#include "base/error.h"
#include "base/memory.h"

#include <gradus/autograd.h>
#include <gradus/ops.h>

#include <math.h>
#include <string.h>

enum { MOST_PIXELS = 1 << 26, LINE = 128 /* grey */ };

/* What is drawn. */
typedef struct drawing {
    gd_image_grid grid;
    double low, scale; /* of a value: (value - low) * scale, from 0 to 255 */
} drawing;

static unsigned char level(double value)
{
    if (!(value > 0)) /* NaN, too */
        return 0;
    return value >= 255 ? 255 : (unsigned char)lround(value);
}

/* The range of an image's finite values. */
static void stretch_range(drawing *d, const double *image)
{
    double low = INFINITY, high = -INFINITY;
    for (int64_t i = 0; i < d->grid.channels * d->grid.height * d->grid.width; i++) {
        low = isfinite(image[i]) && image[i] < low ? image[i] : low;
        high = isfinite(image[i]) && image[i] > high ? image[i] : high;
    }
    d->low = high > low ? low : 0;
    d->scale = high > low ? 255 / (high - low) : 255;
}

static void draw(const drawing *d, const double *image, int64_t index, gd_image *out)
{
    int64_t top = index / d->grid.columns * (d->grid.height + 1),
            left = index % d->grid.columns * (d->grid.width + 1);
    for (int64_t y = 0; y < d->grid.height; y++)
        for (int64_t x = 0; x < d->grid.width; x++)
            for (int64_t c = 0; c < d->grid.channels; c++) {
                double value = image[(c * d->grid.height + y) * d->grid.width + x];
                int64_t at = ((top + y) * out->width + left + x) * d->grid.channels + c;
                out->pixels[at] = level((value - d->low) * d->scale);
            }
}

static gd_status draw_all(drawing *d, const double *values, bool stretch, gd_image *out)
{
    out->height = d->grid.rows * (d->grid.height + 1) - 1;
    out->width = d->grid.columns * (d->grid.width + 1) - 1;
    out->channels = d->grid.channels;
    size_t bytes = (size_t)(out->height * out->width * out->channels);
    out->pixels = gd_alloc(bytes);
    if (!out->pixels)
        return GD_ERR_MEMORY;
    memset(out->pixels, LINE, bytes);
    int64_t size = d->grid.channels * d->grid.height * d->grid.width;
    for (int64_t i = 0; i < d->grid.count; i++) {
        if (stretch)
            stretch_range(d, values + i * size);
        draw(d, values + i * size, i, out);
    }
    return GD_OK;
}

static gd_status lay_out(const char *who, gd_tensor *images, int64_t columns, drawing *d)
{
    gd_shape s = gd_tensor_shape(images);
    if (!images)
        return gd_fail(GD_ERR_INVALID, "%s: the tensor is NULL", who);
    if (s.rank != 3 && s.rank != 4)
        return gd_fail(GD_ERR_SHAPE,
                       "%s: an image has 3 axes, [channels, height, width], and several have 4; "
                       "there are %d",
                       who, s.rank);
    int first = s.rank - 3;
    d->grid.count = first ? s.dim[0] : 1;
    d->grid.channels = s.dim[first];
    d->grid.height = s.dim[first + 1];
    d->grid.width = s.dim[first + 2];
    if ((d->grid.channels != 1 && d->grid.channels != 3) || gd_tensor_count(images) < 1)
        return gd_fail(GD_ERR_SHAPE, "%s: %lld channels, or no pixels; there are 1 or 3 channels",
                       who, (long long)d->grid.channels);
    d->grid.columns = columns > 0 ? columns : (int64_t)ceil(sqrt((double)d->grid.count));
    d->grid.columns = d->grid.columns > d->grid.count ? d->grid.count : d->grid.columns;
    d->grid.columns = d->grid.columns < 1 ? 1 : d->grid.columns;
    d->grid.rows = (d->grid.count + d->grid.columns - 1) / d->grid.columns;
    double pixels = (double)d->grid.rows * (double)(d->grid.height + 1) * (double)d->grid.columns *
                    (double)(d->grid.width + 1);
    if (pixels > MOST_PIXELS)
        return gd_fail(GD_ERR_SHAPE, "%s: a picture of %g pixels; 2^26 are the most", who, pixels);
    bool whole = gd_tensor_dtype(images) == GD_U8;
    d->low = 0;
    d->scale = whole ? 1 : 255;
    return GD_OK;
}

double *gd_doubles_read(gd_tensor *t)
{
    gd_context *context = gd_tensor_context(t);
    if (gd_scope_begin(context) != GD_OK)
        return NULL;
    size_t bytes = (size_t)gd_tensor_count(t) * sizeof(double);
    double *values = gd_alloc(bytes + 1);
    gd_tensor *wide = values ? gd_cast(gd_detach(t), GD_F64) : NULL;
    if (values && (!wide || gd_tensor_read(wide, values, bytes) != GD_OK)) {
        gd_free(values);
        values = NULL;
    }
    (void)gd_scope_end(context);
    return values;
}

gd_status gd_pixels_read(const char *who, gd_tensor *images, bool stretch, int64_t columns,
                         gd_image_grid *grid, gd_image *out)
{
    *out = (gd_image){ 0 };
    drawing d = { .grid = { .columns = 1, .rows = 1 } };
    gd_status status = lay_out(who, images, columns, &d);
    if (status != GD_OK)
        return status;
    double *values = gd_doubles_read(images);
    status = values ? draw_all(&d, values, stretch, out) : gd_error_last();
    gd_free(values);
    if (grid)
        *grid = d.grid;
    return status;
}
