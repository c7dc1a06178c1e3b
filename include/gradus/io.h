/* gradus/io.h: tensors in files, in the safetensors format
 * (https://github.com/huggingface/safetensors, "Format").
 *
 * Modules save and load themselves with gd_module_save and gd_module_load (gradus/nn.h); this is
 * what they stand on. A build without jansson answers every call with GD_ERR_UNSUPPORTED.
 */
#ifndef GRADUS_IO_H
#define GRADUS_IO_H

#include <gradus/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gd_named_tensor {
    const char *name; /* UTF-8 */
    gd_tensor *tensor;
} gd_named_tensor;

/* A string a file carries beside its tensors. */
typedef struct gd_metadata {
    const char *key, *value; /* UTF-8 */
} gd_metadata;

/* Write the tensors and strings to a file, atomically: at any instant `path` is either the old file
 * or the whole new one. The same input gives the same bytes. The file has one string more,
 * "checksum": XXH64 of all its bytes, in 16 hexadecimal digits, for which zeros are taken. GD_ERR_INVALID: a name that is empty,
 * repeated or not UTF-8, a NULL tensor, a negative count. GD_ERR_IO, GD_ERR_MEMORY, GD_ERR_UNSUPPORTED. */
GD_API gd_status gd_tensors_save(const char *path, int64_t count, const gd_named_tensor *tensors,
                                 int64_t metadata_count, const gd_metadata *metadata);

/* A file opened for reading. Its header has been checked; values are read when asked for. */
typedef struct gd_tensor_file gd_tensor_file;

/* NULL: GD_ERR_IO, GD_ERR_FORMAT, GD_ERR_MEMORY, GD_ERR_UNSUPPORTED. The caller closes it. */
GD_API gd_tensor_file *gd_tensor_file_open(const char *path);
GD_API void gd_tensor_file_close(gd_tensor_file *file);
/* Read all of it: GD_ERR_FORMAT when its checksum is not that of what it holds, so that it has been
 * damaged since it was written. A file without one (it is not Gradus's) is GD_OK. What loads a module,
 * a model, an optimizer or a checkpoint does it by itself. */
GD_API gd_status gd_tensor_file_verify(const gd_tensor_file *file);

/* One tensor of a file. `name` lives as long as the file is open. */
typedef struct gd_tensor_info {
    const char *name;
    gd_shape shape;
    gd_dtype dtype;
} gd_tensor_info;

/* Tensors are numbered 0 … count-1 in the order of their names. */
GD_API int64_t gd_tensor_file_count(const gd_tensor_file *file);
/* Describe a tensor. GD_ERR_INVALID: no such number; GD_ERR_UNSUPPORTED: a dtype or rank Gradus
 * does not have. */
GD_API gd_status gd_tensor_file_info(const gd_tensor_file *file, int64_t index,
                                     gd_tensor_info *info);
/* The number of the tensor called `name`, -1 (and no error) if there is none. */
GD_API int64_t gd_tensor_file_find(const gd_tensor_file *file, const char *name);
/* Its values as a new temporary. */
GD_API gd_tensor *gd_tensor_file_read(const gd_tensor_file *file, gd_context *context,
                                      int64_t index);
/* The value of a metadata key, NULL (and no error) if there is none. */
GD_API const char *gd_tensor_file_metadata(const gd_tensor_file *file, const char *key);

/* ---- whole files ---- */

/* Make `path` hold exactly these bytes, atomically, as gd_tensors_save does. Where `path` is a
 * symbolic link, the file that it points to is replaced; a device or a pipe is written to. On
 * GD_ERR_IO or GD_ERR_MEMORY an old file stands. */
GD_API gd_status gd_file_write(const char *path, const void *bytes, size_t size);
/* Whether a file of that path could be written, for programs that would find out after hours:
 * GD_ERR_IO with the reason if not. Nothing is left behind, and an old file stays as it is. */
GD_API gd_status gd_file_check_writable(const char *path);

/* ---- NumPy's arrays: .npy and .npz (numpy.lib.format) ---- */

/* An array as read, or as it is to be written. */
typedef struct gd_npy {
    gd_dtype dtype; /* never bf16, which NumPy does not have */
    gd_shape shape; /* rank 0: a single value; a size of 0 makes it empty */
    void *data;     /* row-major, in this machine's byte order, aligned for any type; owned by this
                   struct where it was read */
    size_t bytes;
} gd_npy;

/* Read a .npy file of version 1, 2 or 3, of either byte order, in C or Fortran order, plain or
 * compressed with gzip. gd_from_host(context, npy.shape, npy.dtype, npy.data) makes a tensor of it.
 * On success *out owns its data: gd_npy_free(). On failure *out is all zero: GD_ERR_IO;
 * GD_ERR_FORMAT (not .npy, fewer or more values than the header declares); GD_ERR_UNSUPPORTED
 * (complex numbers, texts, times, records and objects; more than GD_MAX_RANK axes); GD_ERR_MEMORY;
 * GD_ERR_INVALID (NULL). */
GD_API gd_status gd_npy_read(const char *path, gd_npy *out);
/* Write one, version 1, in C order and this machine's byte order, atomically as gd_file_write does.
 * GD_ERR_INVALID: `bytes` is not what dtype and shape make, or the dtype is bf16. */
GD_API gd_status gd_npy_write(const char *path, const gd_npy *array);
/* Release the data and zero the struct. NULL and an all-zero struct are fine. */
GD_API void gd_npy_free(gd_npy *npy);

/* A .npz file opened for reading: a ZIP archive of arrays, as numpy.savez and savez_compressed
 * write it. Arrays are read when asked for. */
typedef struct gd_npz gd_npz;

/* NULL: GD_ERR_IO, GD_ERR_FORMAT (no ZIP archive, or a damaged one), GD_ERR_MEMORY. The caller
 * closes it. */
GD_API gd_npz *gd_npz_open(const char *path);
GD_API void gd_npz_close(gd_npz *npz);
/* Arrays are numbered 0 … count-1 in the order of the file; 0 for NULL. */
GD_API int64_t gd_npz_count(const gd_npz *npz);
/* The name of one, without ".npy", NULL if there is no such number; lives as long as the file is
 * open. */
GD_API const char *gd_npz_name(const gd_npz *npz, int64_t index);
/* The number of the array of that name, -1 (and no error) if there is none. */
GD_API int64_t gd_npz_find(const gd_npz *npz, const char *name);
/* Read one array, with the errors of gd_npy_read. GD_ERR_FORMAT: also for a checksum that differs;
 * GD_ERR_UNSUPPORTED: also for a compressed array in a build without zlib, and for compression other
 * than deflate. */
GD_API gd_status gd_npz_read(const gd_npz *npz, int64_t index, gd_npy *out);

/* ---- images ---- */

#define GD_IMAGE_MAX_SIZE 32768 /* of height and width */

typedef struct gd_image {
    int64_t height, width, channels;
    unsigned char *pixels; /* [height, width, channels], owned by this struct */
} gd_image;

/* Decode a JPEG or PNG file, told by its content, to RGB (channels 3; grey images too). Of a PNG file
 * of any depth and kind, palettes are looked up, 16 bits are rounded to 8 and alpha is dropped, as
 * Pillow's convert("RGB") does; no gamma or colour profile is applied. On success *out owns its
 * pixels: gd_image_free(). On failure *out is all zero: GD_ERR_IO, GD_ERR_FORMAT (with the decoder's
 * reason; also for a file that is truncated or damaged, has more than 100 scans, 2^28 pixels, or
 * 4,096 pixels for each of its bytes), GD_ERR_MEMORY, GD_ERR_INVALID (NULL), GD_ERR_UNSUPPORTED (a
 * build without libjpeg-turbo or libpng). */
GD_API gd_status gd_image_read(const char *path, gd_image *out);
/* The same for an image that will be brought to height x width, in less time: of a JPEG file that is
 * much larger a half, a quarter or an eighth of the rows and columns is decoded, each pixel being the
 * mean of those that it stands for, as long as twice as many of both stay as are wanted. */
GD_API gd_status gd_image_read_reduced(const char *path, int64_t height, int64_t width,
                                       gd_image *out);
/* Write an image, atomically as gd_file_write does, in the format that the path's ending names: .png
 * (1 channel: grey; 2: grey and alpha; 3: RGB; 4: RGB and alpha), .ppm (3), .pgm (1). GD_ERR_INVALID:
 * no image, another ending, other channels; GD_ERR_UNSUPPORTED (.png in a build without libpng);
 * GD_ERR_IO, GD_ERR_MEMORY. */
GD_API gd_status gd_image_write(const char *path, const gd_image *image);
/* The values of a tensor [height, width] or [channels, height, width] (1 to 4 channels) as pixels:
 * `low` is 0, `high` 255, linearly between, what is beyond is one of these, NaN is 0. The caller
 * frees *out: gd_image_free(). GD_ERR_SHAPE, GD_ERR_INVALID, GD_ERR_MEMORY. */
GD_API gd_status gd_image_from_tensor(gd_tensor *x, double low, double high, gd_image *out);
/* Bilinear, pixel centres at halves; shrinking averages over as many pixels as one of the result
 * covers, with triangular weights (as Pillow's BILINEAR). */
GD_API gd_status gd_image_resize(const gd_image *image, int64_t height, int64_t width,
                                 gd_image *out);
/* Release the pixels and zero the struct. NULL and an all-zero struct are fine. */
GD_API void gd_image_free(gd_image *image);

/* ---- sound ---- */

typedef struct gd_audio {
    int64_t frames, channels;
    int64_t rate;   /* frames a second */
    float *samples; /* [channels, frames] in -1 … 1, owned by this struct */
} gd_audio;

/* Read a sound file of up to 256 channels, told by its content: a WAV file of integers of 8, 16, 24 or 32
 * bits or floats of 32 or 64, WAVE_FORMAT_EXTENSIBLE too; FLAC, Ogg Vorbis and Opus, MP3, AIFF and others
 * where libsndfile is on this machine, which is loaded for the first of them. On success *out owns its
 * samples: gd_audio_free(). On failure *out is all zero: GD_ERR_IO; GD_ERR_FORMAT (no sound, cut, or
 * empty); GD_ERR_UNSUPPORTED (libsndfile is needed and not there); GD_ERR_MEMORY; GD_ERR_INVALID
 * (NULL). */
GD_API gd_status gd_audio_read(const char *path, gd_audio *out);
/* Whether the name ends as those of sound files do: .wav, .flac, .ogg, .opus, .mp3, .aiff, .au … false for
 * NULL. */
GD_API bool gd_audio_is_file_name(const char *path);
/* Release the samples and zero the struct. NULL and an all-zero struct are fine. */
GD_API void gd_audio_free(gd_audio *audio);

#ifdef __cplusplus
}
#endif
#endif
