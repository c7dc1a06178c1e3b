/* io/image.c: photographs: which decoder or encoder a file needs, resizing, tensors as pictures. The
 * decoders are io/image_jpeg.c and io/image_png.c. Start at gd_image_read(). */
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

/* ---- resizing ---- */

/* What one pixel of the result takes of a line of the source. */
typedef struct taps {
    int64_t first, count;
    float *weight; // [count]
} taps;

/* The triangle around the pixel's centre, as wide as a pixel of the coarser of the two grids, so
 * that shrinking averages; weights add up to 1. */
static void make_taps(taps *t, int64_t i, int64_t from, int64_t to)
{
    double scale = (double)from / (double)to, support = scale > 1.0 ? scale : 1.0;
    double centre = ((double)i + 0.5) * scale, sum = 0.0;
    int64_t first = (int64_t)floor(centre - support), end = (int64_t)ceil(centre + support);
    t->first = first < 0 ? 0 : first;
    end = end > from ? from : end;
    t->count = end - t->first;
    for (int64_t k = 0; k < t->count; k++) {
        double weight = 1.0 - fabs((double)(t->first + k) + 0.5 - centre) / support;
        t->weight[k] = (float)(weight > 0.0 ? weight : 0.0);
        sum += (double)t->weight[k];
    }
    for (int64_t k = 0; k < t->count; k++)
        t->weight[k] = (float)((double)t->weight[k] / sum);
}

/* Lines of `from` pixels to lines of `to`: in and out are [lines, pixels, channels]. */
static void resize_lines(const float *in, int64_t from, int64_t lines, int64_t channels, float *out,
                         int64_t to, float *weights)
{
    for (int64_t i = 0; i < to; i++) {
        taps t = { .weight = weights };
        make_taps(&t, i, from, to);
        for (int64_t line = 0; line < lines; line++)
            for (int64_t c = 0; c < channels; c++) {
                const float *x = in + (line * from + t.first) * channels + c;
                float sum = 0.0f;
                for (int64_t k = 0; k < t.count; k++)
                    sum += t.weight[k] * x[k * channels];
                out[(line * to + i) * channels + c] = sum;
            }
    }
}

static bool is_image(const gd_image *image)
{
    return image && image->pixels && image->height > 0 && image->width > 0 && image->channels > 0;
}

gd_status gd_image_resize(const gd_image *image, int64_t height, int64_t width, gd_image *out)
{
    if (!out || !is_image(image))
        return gd_fail(GD_ERR_INVALID, "gd_image_resize: there is no image");
    *out = (gd_image){ 0 };
    if (height < 1 || width < 1 || height > GD_IMAGE_MAX_SIZE || width > GD_IMAGE_MAX_SIZE)
        return gd_fail(GD_ERR_INVALID, "gd_image_resize: to %lld x %lld; 1 to %d are possible",
                       (long long)height, (long long)width, GD_IMAGE_MAX_SIZE);
    int64_t h = image->height, w = image->width, c = image->channels, count = h * w * c;
    size_t longest = (size_t)(h > w ? h : w) + 2;
    float *source = gd_alloc((size_t)count * sizeof *source),
          *weights = gd_alloc(longest * sizeof *weights);
    float *narrow = gd_alloc((size_t)(h * width * c) * sizeof *narrow);
    float *result = gd_alloc((size_t)(height * width * c) * sizeof *result);
    out->pixels = gd_alloc((size_t)(height * width * c));
    bool ok = source && weights && narrow && result && out->pixels;
    if (ok) {
        for (int64_t i = 0; i < count; i++)
            source[i] = (float)image->pixels[i];
        resize_lines(source, w, h, c, narrow, width, weights);
        resize_lines(narrow, h, 1, width * c, result, height, weights);
        for (int64_t i = 0; i < height * width * c; i++)
            out->pixels[i] = (unsigned char)lrintf(fminf(fmaxf(result[i], 0.0f), 255.0f));
        out->height = height, out->width = width, out->channels = c;
    } else {
        gd_image_free(out);
    }
    gd_free(source);
    gd_free(weights);
    gd_free(narrow);
    gd_free(result);
    return ok ? GD_OK : GD_ERR_MEMORY;
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
    gd_status (*decode)(const char *path, const unsigned char *bytes, size_t size, gd_image *out);
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

gd_status gd_image_read(const char *path, gd_image *out)
{
    if (!path || !out)
        return gd_fail(GD_ERR_INVALID, "gd_image_read: an argument is NULL");
    *out = (gd_image){ 0 };
    unsigned char *bytes;
    size_t size;
    gd_status status = gd_file_read_all(path, MOST_FILE_BYTES, &bytes, &size);
    if (status != GD_OK)
        return status;
    const format *f = find_format(bytes, size);
    status = f ? f->decode(path, bytes, size, out)
               : gd_fail(GD_ERR_FORMAT, "%s: neither a JPEG nor a PNG image", path);
    if (status != GD_OK)
        gd_image_free(out);
    gd_free(bytes);
    return status;
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
    if (!path || !is_image(image))
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
