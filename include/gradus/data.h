/* gradus/data.h: reading data sets. Start at gd_idx_read(). */
#ifndef GRADUS_DATA_H
#define GRADUS_DATA_H

#include <gradus/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The IDX format of the MNIST files (Y. LeCun, C. Cortes, C. Burges, "The MNIST database of
 * handwritten digits"):
 *
 *     0 0 type rank | rank sizes, 32 bits each | values, last index fastest
 *
 * with sizes and values big-endian in the file. */

/* The format's code for the type of the values. */
typedef enum gd_idx_type {
    GD_IDX_U8 = 0x08,
    GD_IDX_I8 = 0x09,
    GD_IDX_I16 = 0x0b,
    GD_IDX_I32 = 0x0c,
    GD_IDX_F32 = 0x0d,
    GD_IDX_F64 = 0x0e
} gd_idx_type;

#define GD_IDX_MAX_RANK 255 /* the rank is one byte of the file */

/* An array as read. A rank of 0 is a single value; a size of 0 makes the array empty. */
typedef struct gd_idx {
    gd_idx_type type;
    int rank;                      /* 0 … 255 */
    int64_t dims[GD_IDX_MAX_RANK]; /* the first `rank` count */
    void *data;   /* row-major, in this machine's byte order, aligned for any type; owned by this
                     struct */
    size_t bytes; /* product of dims times the size of a value */
} gd_idx;

/* "u8", "i8", "i16", "i32", "f32", "f64"; "unknown" for a code the format does not have. */
GD_API const char *gd_idx_type_name(gd_idx_type type);

/* Size of one value in bytes; 0 for a code the format does not have. */
GD_API size_t gd_idx_type_size(gd_idx_type type);

/* Read an IDX file, plain or compressed with gzip (told by its content); when `path` does not
 * exist, "path.gz" is tried. On success *out owns its data: gd_idx_free(). On failure *out is all
 * zero. Errors name the file: GD_ERR_IO (cannot open or read); GD_ERR_FORMAT (not IDX, fewer or
 * more values than the header declares, broken gzip data); GD_ERR_MEMORY; GD_ERR_UNSUPPORTED (gzip
 * in a build without zlib); GD_ERR_INVALID (NULL). A header that declares more than the file holds
 * costs no more memory than twice what the file holds. */
GD_API gd_status gd_idx_read(const char *path, gd_idx *out);

/* The same from `size` bytes in memory, which are only read. Errors call them "memory". */
GD_API gd_status gd_idx_read_memory(const void *bytes, size_t size, gd_idx *out);

/* Release the data and zero the struct. NULL and an all-zero struct are fine. */
GD_API void gd_idx_free(gd_idx *idx);

#ifdef __cplusplus
}
#endif
#endif
