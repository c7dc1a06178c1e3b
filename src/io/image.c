/* io/image.c: photographs: which decoder or encoder a file needs, tensors as pictures. The decoders
 * are io/image_jpeg.c and io/image_png.c, resizing is io/image_resize.c. Start at gd_image_read(). */
#include "io/image.h"

#include <gradus/ops.h>

#include "base/error.h"
#include "base/memory.h"
#include "io/file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

void gd_image_free(gd_image *image)
{
    if (!image)
        return;
    gd_free(image->pixels);
    *image = (gd_image){ 0 };
}

bool gd_image_is_whole(const gd_image *image)
{
    return image && image->pixels && image->height > 0 && image->width > 0 && image->channels > 0;
}

/* ---- reading ---- */

#define MOST_FILE_BYTES ((size_t)1 << 30)

gd_status gd_image_check_size(int64_t height, int64_t width, size_t bytes, const char *path)
{
    if (height <= GD_IMAGE_MAX_SIZE && width <= GD_IMAGE_MAX_SIZE &&
        height * width <= GD_IMAGE_MOST_PIXELS &&
        height * width / GD_IMAGE_MOST_PIXELS_PER_BYTE <= (int64_t)bytes)
        return GD_OK;
    return gd_fail(GD_ERR_FORMAT,
                   "%s: an image of %lld x %lld in a file of %zu bytes; at most %d x %d, %lld "
                   "pixels, and %d a byte, are read",
                   path, (long long)height, (long long)width, bytes, GD_IMAGE_MAX_SIZE,
                   GD_IMAGE_MAX_SIZE, (long long)GD_IMAGE_MOST_PIXELS,
                   GD_IMAGE_MOST_PIXELS_PER_BYTE);
}

/* A kind of file, told by its first bytes. */
typedef struct format {
    size_t size;
    unsigned char signature[8];
    gd_status (*decode)(const char *path, const unsigned char *bytes, size_t size,
                        gd_image_size wanted, gd_image *out);
} format;

static const format formats[] = {
    { 2, { 0xff, 0xd8 }, gd_image_decode_jpeg },
    { 8, { 0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n' }, gd_image_decode_png },
};

/* A file that ends within the signature is of that format too: its decoder says that it is cut. */
static const format *find_format(const unsigned char *bytes, size_t size)
{
    for (size_t i = 0; size > 0 && i < sizeof formats / sizeof *formats; i++)
        if (memcmp(bytes, formats[i].signature, size < formats[i].size ? size : formats[i].size) ==
            0)
            return &formats[i];
    return NULL;
}

static gd_status read_image(const char *path, gd_image_size wanted, gd_image *out)
{
    unsigned char *bytes;
    size_t size;
    gd_status status = gd_file_read_all(path, MOST_FILE_BYTES, &bytes, &size);
    if (status != GD_OK)
        return status;
    const format *f = find_format(bytes, size);
    status = f ? f->decode(path, bytes, size, wanted, out)
               : gd_fail(GD_ERR_FORMAT, "%s: neither a JPEG nor a PNG image", path);
    if (status != GD_OK)
        gd_image_free(out);
    gd_free(bytes);
    return status;
}

gd_status gd_image_read(const char *path, gd_image *out)
{
    if (!path || !out)
        return gd_fail(GD_ERR_INVALID, "gd_image_read: an argument is NULL");
    *out = (gd_image){ 0 };
    return read_image(path, (gd_image_size){ GD_IMAGE_MAX_SIZE, GD_IMAGE_MAX_SIZE }, out);
}

gd_status gd_image_read_reduced(const char *path, int64_t height, int64_t width, gd_image *out)
{
    if (!path || !out)
        return gd_fail(GD_ERR_INVALID, "gd_image_read_reduced: an argument is NULL");
    *out = (gd_image){ 0 };
    if (height < 1 || width < 1 || height > GD_IMAGE_MAX_SIZE || width > GD_IMAGE_MAX_SIZE)
        return gd_fail(GD_ERR_INVALID, "gd_image_read_reduced: %lld x %lld; 1 to %d are possible",
                       (long long)height, (long long)width, GD_IMAGE_MAX_SIZE);
    return read_image(path, (gd_image_size){ 2 * height, 2 * width }, out);
}

/* ---- writing ---- */

static bool has_ending(const char *path, const char *ending)
{
    const char *found = strrchr(path, '.');
    return found && strcasecmp(found, ending) == 0;
}

/* Netpbm: a line of text, then the pixels as they are. */
static gd_status write_netpbm(const char *path, const gd_image *image, char kind)
{
    char head[64];
    int length = snprintf(head, sizeof head, "P%c\n%lld %lld\n255\n", kind, (long long)image->width,
                          (long long)image->height);
    const gd_file_part parts[] = { { head, (size_t)length },
                                   { image->pixels,
                                     (size_t)(image->height * image->width * image->channels) } };
    return gd_file_write_atomic(path, parts, 2);
}

static gd_status write_png(const char *path, const gd_image *image)
{
    unsigned char *bytes = NULL;
    size_t size = 0;
    gd_status status = gd_image_encode_png(path, image, &bytes, &size);
    if (status == GD_OK)
        status = gd_file_write_atomic(path, &(gd_file_part){ bytes, size }, 1);
    gd_free(bytes);
    return status;
}

gd_status gd_image_write(const char *path, const gd_image *image)
{
    if (!path || !gd_image_is_whole(image))
        return gd_fail(GD_ERR_INVALID, "gd_image_write: there is no %s", path ? "image" : "path");
    if (image->channels > 4 || image->height > GD_IMAGE_MAX_SIZE ||
        image->width > GD_IMAGE_MAX_SIZE)
        return gd_fail(GD_ERR_INVALID,
                       "gd_image_write: %s: %lld x %lld with %lld channels; at most %d x %d with 4 "
                       "can be written",
                       path, (long long)image->height, (long long)image->width,
                       (long long)image->channels, GD_IMAGE_MAX_SIZE, GD_IMAGE_MAX_SIZE);
    if (has_ending(path, ".png"))
        return write_png(path, image);
    if (has_ending(path, ".ppm") && image->channels == 3)
        return write_netpbm(path, image, '6');
    if (has_ending(path, ".pgm") && image->channels == 1)
        return write_netpbm(path, image, '5');
    return gd_fail(GD_ERR_INVALID,
                   "gd_image_write: %s: an image with %lld channels is written as .png%s", path,
                   (long long)image->channels,
                   image->channels == 3   ? " or .ppm"
                   : image->channels == 1 ? " or .pgm"
                                          : "");
}

/* ---- tensors as pictures ---- */

static unsigned char as_pixel(double value, double low, double high)
{
    double share = (value - low) / (high - low);
    return share > 0.0 ? (unsigned char)lrint(fmin(share, 1.0) * 255.0) : 0; /* NaN is 0 */
}

gd_status gd_image_from_tensor(gd_tensor *x, double low, double high, gd_image *out)
{
    if (!x || !out)
        return gd_fail(GD_ERR_INVALID, "gd_image_from_tensor: an argument is NULL");
    *out = (gd_image){ 0 };
    gd_shape s = gd_tensor_shape(x);
    int64_t channels = s.rank == 3 ? s.dim[0] : 1;
    int64_t height = s.rank >= 2 ? s.dim[s.rank - 2] : 0,
            width = s.rank >= 2 ? s.dim[s.rank - 1] : 0;
    if (s.rank < 2 || s.rank > 3 || channels < 1 || channels > 4 || height < 1 || width < 1 ||
        height > GD_IMAGE_MAX_SIZE || width > GD_IMAGE_MAX_SIZE)
        return gd_fail(GD_ERR_SHAPE,
                       "gd_image_from_tensor: a picture is [height, width] or [channels, height, "
                       "width] with 1 to 4 channels, and at most %d x %d",
                       GD_IMAGE_MAX_SIZE, GD_IMAGE_MAX_SIZE);
    if (!isfinite(low) || !isfinite(high) || low == high)
        return gd_fail(GD_ERR_INVALID, "gd_image_from_tensor: from %g to %g is no range", low,
                       high);
    size_t plane = (size_t)(height * width), count = plane * (size_t)channels;
    double *values = gd_alloc(count * sizeof *values);
    out->pixels = values ? gd_alloc(count) : NULL;
    gd_status status = out->pixels ? GD_OK : GD_ERR_MEMORY;
    if (status == GD_OK)
        status = gd_tensor_read(gd_cast(x, GD_F64), values, count * sizeof *values);
    if (status == GD_OK) {
        out->height = height, out->width = width, out->channels = channels;
        for (size_t i = 0; i < count; i++)
            out->pixels[i % plane * (size_t)channels + i / plane] = as_pixel(values[i], low, high);
    } else {
        gd_image_free(out);
    }
    gd_free(values);
    return status;
}
