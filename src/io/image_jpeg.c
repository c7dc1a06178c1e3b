/* io/image_jpeg.c: JPEG through libjpeg (libjpeg-turbo). Start at gd_image_decode_jpeg(). */
#include "io/image.h"

#include "base/error.h"
#include "base/memory.h"

#ifdef GD_HAVE_JPEG

#include <setjmp.h>
#include <stdio.h>

#include <jerror.h>
#include <jpeglib.h>

/* A progressive image, which is kept as coefficients until its last scan, can have any number of
 * scans. */
#define MOST_SCANS 100
#define MOST_BYTES 0x7fffffffL /* that libjpeg may allocate */

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

/* By how much both sides can be divided and stay as long as `wanted`: 1, 2, 4 or 8. */
static unsigned reduction(const struct jpeg_decompress_struct *jpeg, gd_image_size wanted)
{
    unsigned by = 8;
    while (by > 1 && ((int64_t)jpeg->image_height < by * wanted.height ||
                      (int64_t)jpeg->image_width < by * wanted.width))
        by /= 2;
    return by;
}

/* Everything that may end in longjmp. What it makes is in *out and in d, so that the caller can end
 * it. */
static gd_status decode(decoder *d, const unsigned char *bytes, size_t size, const char *path,
                        gd_image_size wanted, gd_image *out)
{
    struct jpeg_decompress_struct *jpeg = &d->jpeg;
    jpeg_create_decompress(jpeg);
    jpeg->mem->max_memory_to_use = MOST_BYTES;
    jpeg->progress = &d->progress;
    jpeg_mem_src(jpeg, bytes, (unsigned long)size);
    (void)jpeg_read_header(jpeg, TRUE);
    gd_status status = gd_image_check_size(jpeg->image_height, jpeg->image_width, size, path);
    if (status != GD_OK)
        return status;
    jpeg->out_color_space = JCS_RGB;
    jpeg->scale_num = 1;
    jpeg->scale_denom = reduction(jpeg, wanted);
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

gd_status gd_image_decode_jpeg(const char *path, const unsigned char *bytes, size_t size,
                               gd_image_size wanted, gd_image *out)
{
    decoder *d = gd_alloc_zero(1, sizeof *d);
    if (!d)
        return GD_ERR_MEMORY;
    d->jpeg.err = jpeg_std_error(&d->errors);
    d->jpeg.client_data = d;
    d->errors.error_exit = on_error;
    d->errors.emit_message = on_warning;
    d->progress.progress_monitor = on_progress;
    gd_status status;
    if (setjmp(d->failed) == 0)
        status = decode(d, bytes, size, path, wanted, out);
    else
        status =
            gd_fail(GD_ERR_FORMAT, "%s: not a JPEG image that can be read: %s", path, d->message);
    jpeg_destroy_decompress(&d->jpeg);
    gd_free(d);
    return status;
}

#else

gd_status gd_image_decode_jpeg(const char *path, const unsigned char *bytes, size_t size,
                               gd_image_size wanted, gd_image *out)
{
    (void)bytes, (void)size, (void)wanted, (void)out;
    return gd_fail(GD_ERR_UNSUPPORTED,
                   "%s: this build cannot read JPEG images (it was built without libjpeg-turbo)",
                   path);
}

#endif
