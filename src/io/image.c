/* io/image.c: photographs: JPEG through libjpeg (libjpeg-turbo), and resizing. Start at
 * gd_image_read(). */
#include <gradus/io.h>

#include "base/error.h"
#include "base/memory.h"
#include "io/file.h"

#include <math.h>
#include <string.h>

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

/* ---- JPEG ---- */

#ifdef GD_HAVE_JPEG

#include <setjmp.h>
#include <stdio.h>

#include <jerror.h>
#include <jpeglib.h>

/* A few bytes can claim any size, and a progressive image, which is kept as coefficients until its
 * last scan, any number of scans. A Huffman-coded file spends at least a bit on each block of a
 * component, which is 1,024 pixels a byte. */
#define MOST_PIXELS          (INT64_C(1) << 28)
#define MOST_PIXELS_PER_BYTE 4096
#define MOST_SCANS           100
#define MOST_BYTES           0x7fffffffL /* that libjpeg may allocate */

typedef struct decoder {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf failed;
    char message[JMSG_LENGTH_MAX];
} decoder;

static void on_error(j_common_ptr jpeg)
{
    decoder *d = jpeg->client_data;
    jpeg->err->format_message(jpeg, d->message);
    longjmp(d->failed, 1);
}

/* Told of warnings, which have a negative level, and of traces. libjpeg makes up the pixels that a
 * truncated or damaged file lacks and warns; that is an error here. */
static void on_warning(j_common_ptr jpeg, int level)
{
    static const int harmless[] = { JWRN_EXTRANEOUS_DATA, JWRN_ADOBE_XFORM, JWRN_JFIF_MAJOR,
                                    JWRN_NOT_SEQUENTIAL, JWRN_TOO_MUCH_DATA };
    bool loses = level < 0;
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
        loses = loses && jpeg->err->msg_code != harmless[i];
    if (loses)
        on_error(jpeg);
}

static void on_progress(j_common_ptr jpeg)
{
    decoder *d = jpeg->client_data;
    if (d->jpeg.input_scan_number <= MOST_SCANS)
        return;
    snprintf(d->message, sizeof d->message, "more than %d scans", MOST_SCANS);
    longjmp(d->failed, 1);
}

/* Before anything is allocated for the pixels that the header claims. */
static gd_status check_size(const struct jpeg_decompress_struct *jpeg, size_t bytes,
                            const char *path)
{
    int64_t height = jpeg->image_height, width = jpeg->image_width;
    if (height <= GD_IMAGE_MAX_SIZE && width <= GD_IMAGE_MAX_SIZE &&
        height * width <= MOST_PIXELS && height * width / MOST_PIXELS_PER_BYTE <= (int64_t)bytes)
        return GD_OK;
    return gd_fail(GD_ERR_FORMAT,
                   "%s: an image of %lld x %lld in a file of %zu bytes; at most %d x %d, %lld "
                   "pixels, and %d a byte, are read",
                   path, (long long)height, (long long)width, bytes, GD_IMAGE_MAX_SIZE,
                   GD_IMAGE_MAX_SIZE, (long long)MOST_PIXELS, MOST_PIXELS_PER_BYTE);
}

/* Everything that may end in longjmp. What it makes is in *out and in d, so that the caller can end
 * it. */
static gd_status decode(decoder *d, const unsigned char *bytes, size_t size, const char *path,
                        gd_image *out)
{
    struct jpeg_decompress_struct *jpeg = &d->jpeg;
    jpeg_create_decompress(jpeg);
    jpeg->mem->max_memory_to_use = MOST_BYTES;
    jpeg->progress = &d->progress;
    jpeg_mem_src(jpeg, bytes, (unsigned long)size);
    (void)jpeg_read_header(jpeg, TRUE);
    gd_status status = check_size(jpeg, size, path);
    if (status != GD_OK)
        return status;
    jpeg->out_color_space = JCS_RGB;
    jpeg->dct_method = JDCT_ISLOW;
    (void)jpeg_start_decompress(jpeg);
    int64_t height = jpeg->output_height, width = jpeg->output_width;
    if (jpeg->output_components != 3)
        return gd_fail(GD_ERR_FORMAT, "%s: an image with %d components", path,
                       jpeg->output_components);
    out->pixels = gd_alloc((size_t)(height * width * 3));
    if (!out->pixels)
        return GD_ERR_MEMORY;
    out->height = height, out->width = width, out->channels = 3;
    while (jpeg->output_scanline < jpeg->output_height) {
        JSAMPROW row = out->pixels + (size_t)jpeg->output_scanline * (size_t)width * 3;
        (void)jpeg_read_scanlines(jpeg, &row, 1);
    }
    (void)jpeg_finish_decompress(jpeg);
    return GD_OK;
}

gd_status gd_image_read(const char *path, gd_image *out)
{
    if (!path || !out)
        return gd_fail(GD_ERR_INVALID, "gd_image_read: an argument is NULL");
    *out = (gd_image){ 0 };
    unsigned char *bytes;
    size_t size;
    gd_status status = gd_file_read_all(path, (size_t)1 << 30, &bytes, &size);
    if (status != GD_OK)
        return status;
    decoder *d = gd_alloc_zero(1, sizeof *d);
    if (!d) {
        gd_free(bytes);
        return GD_ERR_MEMORY;
    }
    d->jpeg.err = jpeg_std_error(&d->errors);
    d->jpeg.client_data = d;
    d->errors.error_exit = on_error;
    d->errors.emit_message = on_warning;
    d->progress.progress_monitor = on_progress;
    if (setjmp(d->failed) == 0)
        status = decode(d, bytes, size, path, out);
    else
        status =
            gd_fail(GD_ERR_FORMAT, "%s: not a JPEG image that can be read: %s", path, d->message);
    jpeg_destroy_decompress(&d->jpeg);
    if (status != GD_OK)
        gd_image_free(out);
    gd_free(d);
    gd_free(bytes);
    return status;
}

#else

gd_status gd_image_read(const char *path, gd_image *out)
{
    if (!path || !out)
        return gd_fail(GD_ERR_INVALID, "gd_image_read: an argument is NULL");
    *out = (gd_image){ 0 };
    return gd_fail(GD_ERR_UNSUPPORTED,
                   "%s: this build cannot read images (it was built without libjpeg-turbo)", path);
}

#endif
