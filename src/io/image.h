/* io/image.h: the decoders and encoders of io/image.c. */
#ifndef GD_IO_IMAGE_H
#define GD_IO_IMAGE_H

#include <gradus/io.h>

/* A few bytes can claim any size. A Huffman-coded JPEG file spends at least a bit on each block of
 * a component, which is 1,024 pixels a byte; deflate makes at most 1,032 bytes of one, which is as
 * many pixels of 8 bits. */
#define GD_IMAGE_MOST_PIXELS          (INT64_C(1) << 28)
#define GD_IMAGE_MOST_PIXELS_PER_BYTE 4096

bool gd_image_is_whole(const gd_image *image);

/* Whether a file of `bytes` bytes may claim this size; asked before anything is allocated for it.
 * GD_ERR_FORMAT. */
gd_status gd_image_check_size(int64_t height, int64_t width, size_t bytes, const char *path);

/* The least that is wanted of an image; a decoder that is quicker for it may give fewer pixels than
 * the file has, all of them means of the file's. */
typedef struct gd_image_size {
    int64_t height, width;
} gd_image_size;

/* Decode the bytes to RGB. `path` is for the error. On failure the caller frees *out. GD_ERR_FORMAT,
 * GD_ERR_MEMORY, GD_ERR_UNSUPPORTED. */
gd_status gd_image_decode_jpeg(const char *path, const unsigned char *bytes, size_t size,
                               gd_image_size wanted, gd_image *out);
gd_status gd_image_decode_png(const char *path, const unsigned char *bytes, size_t size,
                              gd_image_size wanted, gd_image *out);

/* An image of 1 to 4 channels as a PNG file in memory (gd_free, also after an error). GD_ERR_MEMORY,
 * GD_ERR_UNSUPPORTED. */
gd_status gd_image_encode_png(const char *path, const gd_image *image, unsigned char **bytes,
                              size_t *size);

#endif
