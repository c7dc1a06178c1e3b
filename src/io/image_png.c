/* io/image_png.c: PNG through libpng. Reading gives RGB of 8 bits: palettes are looked up, grey is
 * spread, 16 bits are rounded to 8, alpha is dropped; no gamma or colour profile is applied. Start at
 * gd_image_decode_png() and gd_image_encode_png(). */
#include "io/image.h"

#include "base/error.h"
#include "base/memory.h"

#ifdef GD_HAVE_PNG

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <png.h>

/* A file in memory that libpng reads or writes, and why it failed. */
typedef struct stream {
    const unsigned char *bytes; /* to read */
    size_t size, at;
    unsigned char *written; /* to write; size counts it */
    size_t capacity;
    bool no_memory;
    char message[160];
} stream;

static void on_error(png_structp png, png_const_charp message)
{
    stream *s = png_get_error_ptr(png);
    snprintf(s->message, sizeof s->message, "%s", message);
    png_longjmp(png, 1);
}

/* What a file says wrongly beside its pixels. */
static void on_warning(png_structp png, png_const_charp message)
{
    (void)png, (void)message;
}

static png_voidp allocate(png_structp png, png_alloc_size_t bytes)
{
    stream *s = png_get_mem_ptr(png);
    void *block = gd_alloc(bytes);
    s->no_memory = s->no_memory || !block;
    return block;
}

static void release(png_structp png, png_voidp block)
{
    (void)png;
    gd_free(block);
}

static void read_bytes(png_structp png, png_bytep out, size_t count)
{
    stream *s = png_get_io_ptr(png);
    if (count > s->size - s->at)
        png_error(png, "the file ends too early");
    memcpy(out, s->bytes + s->at, count);
    s->at += count;
}

static void write_bytes(png_structp png, png_bytep bytes, size_t count)
{
    stream *s = png_get_io_ptr(png);
    if (!gd_grow((void **)&s->written, &s->capacity, s->size + count, 1)) {
        s->no_memory = true;
        png_error(png, "no memory");
    }
    memcpy(s->written + s->size, bytes, count);
    s->size += count;
}

static void flush_nothing(png_structp png)
{
    (void)png;
}

/* What libpng's functions ended with. */
static gd_status explain(const stream *s, const char *path, const char *what)
{
    if (s->no_memory)
        return GD_ERR_MEMORY;
    return gd_fail(GD_ERR_FORMAT, "%s: %s: %s", path, what, s->message);
}

/* ---- reading ---- */

/* Whatever the file has to 8 bits of red, green and blue. */
static void ask_for_rgb(png_structp png)
{
    png_set_expand(png);
    png_set_scale_16(png);
    png_set_strip_alpha(png);
    png_set_gray_to_rgb(png);
}

/* Everything that may end in longjmp. */
static gd_status decode(png_structp png, png_infop info, const char *path, gd_image *out)
{
    const stream *s = png_get_io_ptr(png);
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, NULL, -1); /* texts, profiles, gamma */
    png_set_crc_action(png, PNG_CRC_ERROR_QUIT, PNG_CRC_WARN_DISCARD);
    png_set_user_limits(png, PNG_UINT_31_MAX, PNG_UINT_31_MAX); /* checked here */
    png_read_info(png, info);
    int64_t height = png_get_image_height(png, info), width = png_get_image_width(png, info);
    gd_status status = gd_image_check_size(height, width, s->size, path);
    if (status != GD_OK)
        return status;
    ask_for_rgb(png);
    int passes = png_set_interlace_handling(png);
    png_read_update_info(png, info);
    size_t row_bytes = (size_t)width * 3;
    if (png_get_rowbytes(png, info) != row_bytes)
        png_error(png, "libpng cannot convert it to RGB");
    out->pixels = gd_alloc((size_t)height * row_bytes);
    if (!out->pixels)
        return GD_ERR_MEMORY;
    out->height = height, out->width = width, out->channels = 3;
    for (int pass = 0; pass < passes; pass++)
        for (int64_t y = 0; y < height; y++)
            png_read_row(png, out->pixels + (size_t)y * row_bytes, NULL);
    png_read_end(png, NULL);
    return GD_OK;
}

gd_status gd_image_decode_png(const char *path, const unsigned char *bytes, size_t size,
                              gd_image_size wanted, gd_image *out)
{
    (void)wanted; /* there is nothing to be saved */
    stream s = { .bytes = bytes, .size = size };
    png_structp png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &s, on_error, on_warning, &s,
                                               allocate, release);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    gd_status status = GD_ERR_MEMORY;
    if (!info && !s.no_memory)
        status = gd_fail(GD_ERR_UNSUPPORTED, "%s: libpng %s cannot be used", path,
                         png_get_libpng_ver(NULL));
    else if (info && setjmp(png_jmpbuf(png)) == 0) {
        png_set_read_fn(png, &s, read_bytes);
        status = decode(png, info, path, out);
    } else if (info)
        status = explain(&s, path, "not a PNG image that can be read");
    png_destroy_read_struct(&png, &info, NULL);
    return status;
}

/* ---- writing ---- */

static void encode(png_structp png, png_infop info, const gd_image *image)
{
    static const int kinds[] = { PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB,
                                 PNG_COLOR_TYPE_RGB_ALPHA };
    png_set_IHDR(png, info, (png_uint_32)image->width, (png_uint_32)image->height, 8,
                 kinds[image->channels - 1], PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    png_write_info(png, info);
    for (int64_t y = 0; y < image->height; y++)
        png_write_row(png, image->pixels + (size_t)(y * image->width * image->channels));
    png_write_end(png, NULL);
}

gd_status gd_image_encode_png(const char *path, const gd_image *image, unsigned char **bytes,
                              size_t *size)
{
    stream s = { 0 };
    png_structp png = png_create_write_struct_2(PNG_LIBPNG_VER_STRING, &s, on_error, on_warning, &s,
                                                allocate, release);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    gd_status status = GD_ERR_MEMORY;
    if (!info && !s.no_memory)
        status = gd_fail(GD_ERR_UNSUPPORTED, "%s: libpng %s cannot be used", path,
                         png_get_libpng_ver(NULL));
    else if (info && setjmp(png_jmpbuf(png)) == 0) {
        png_set_write_fn(png, &s, write_bytes, flush_nothing);
        encode(png, info, image);
        status = GD_OK;
    } else if (info)
        status = explain(&s, path, "cannot be written as PNG");
    png_destroy_write_struct(&png, &info);
    *bytes = s.written;
    *size = s.size;
    return status;
}

#else

gd_status gd_image_decode_png(const char *path, const unsigned char *bytes, size_t size,
                              gd_image_size wanted, gd_image *out)
{
    (void)wanted; /* there is nothing to be saved */
    (void)bytes, (void)size, (void)out;
    return gd_fail(GD_ERR_UNSUPPORTED,
                   "%s: this build cannot read PNG images (it was built without libpng)", path);
}

gd_status gd_image_encode_png(const char *path, const gd_image *image, unsigned char **bytes,
                              size_t *size)
{
    (void)image, (void)bytes, (void)size;
    return gd_fail(GD_ERR_UNSUPPORTED,
                   "%s: this build cannot write PNG images (it was built without libpng)", path);
}

#endif
