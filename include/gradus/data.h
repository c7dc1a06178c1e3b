/* gradus/data.h: reading data sets and feeding them to training in batches. Start at gd_idx_read()
 * for files, at gd_mnist() and gd_loader_create() for training. */
#ifndef GRADUS_DATA_H
#define GRADUS_DATA_H

#include <gradus/tensor.h>

#include <math.h>

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

/* The dtype of its values, so that gd_from_host makes a tensor of what was read; GD_DTYPE_COUNT for
 * a code the format does not have. */
GD_API gd_dtype gd_idx_dtype(gd_idx_type type);

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

/* ---- data sets: samples with class labels ---- */

typedef struct gd_dataset gd_dataset;

typedef struct gd_dataset_options {
    size_t size GD_DEFAULT(sizeof(gd_dataset_options));
    double scale GD_DEFAULT(1), shift; /* a sample is given out as value * scale + shift, in f32 */
} gd_dataset_options;
#define GD_DATASET_DEFAULTS .size = sizeof(gd_dataset_options), .scale = 1, .shift = 0

/* gd_dataset_create(context, GD_SHAPE(4), GD_F32, 150, samples, labels): `count` samples of that
 * shape, u8 or f32, row-major: [count, shape..], and their labels [count]. Both are copied. Owned by
 * the context. GD_ERR_INVALID, GD_ERR_SHAPE, GD_ERR_DTYPE, GD_ERR_MEMORY. */
#define gd_dataset_create(...) \
    GD_WITH_6(gd_dataset_create_with, gd_dataset_options, GD_DATASET_DEFAULTS, __VA_ARGS__, )
GD_API gd_dataset *gd_dataset_create_with(gd_context *context, gd_shape shape, gd_dtype dtype,
                                          int64_t count, const void *samples, const int64_t *labels,
                                          const gd_dataset_options *options);

typedef struct gd_dataset_idx_options {
    size_t size GD_DEFAULT(sizeof(gd_dataset_idx_options));
    bool keep_shape; /* samples keep their rank ([28, 28]) and are not flattened ([784]) */
    /* as above; NaN: what brings samples of u8 to 0 … 1, 1 / 255, and 1 for f32 */
    double scale GD_DEFAULT(NAN), shift;
} gd_dataset_idx_options;
#define GD_DATASET_IDX_DEFAULTS .size = sizeof(gd_dataset_idx_options), .scale = NAN, .shift = 0

/* gd_dataset_load_idx(context, "images", "labels"): samples u8 or f32 of rank 1 or more, labels u8,
 * i8, i16 or i32 of rank 1, as many, in IDX files or those with .gz. The two files are read at the
 * same time. Errors of gd_idx_read; GD_ERR_FORMAT when they do not go together. */
#define gd_dataset_load_idx(...)                                                         \
    GD_WITH_3(gd_dataset_load_idx_with, gd_dataset_idx_options, GD_DATASET_IDX_DEFAULTS, \
              __VA_ARGS__, )
GD_API gd_dataset *gd_dataset_load_idx_with(gd_context *context, const char *samples,
                                            const char *labels,
                                            const gd_dataset_idx_options *options);

typedef struct gd_mnist_options {
    size_t size GD_DEFAULT(sizeof(gd_mnist_options));
    bool test;       /* the 10,000 test digits, not the 60,000 for training */
    bool keep_shape; /* [28, 28], not [784] */
} gd_mnist_options;
#define GD_MNIST_DEFAULTS .size = sizeof(gd_mnist_options), .keep_shape = false

/* gd_mnist(context, "data/mnist"), gd_mnist(context, "data/mnist", .test = true): handwritten
 * digits, pixels 0 … 1, from the four IDX files as published, compressed or not. GD_ERR_IO says
 * which file is missing and where to get it. */
#define gd_mnist(...) GD_WITH_2(gd_mnist_with, gd_mnist_options, GD_MNIST_DEFAULTS, __VA_ARGS__, )
GD_API gd_dataset *gd_mnist_with(gd_context *context, const char *folder,
                                 const gd_mnist_options *options);
/* Both halves of it, flattened, their four files read at the same time. Both are NULL on an error.
 */
GD_API gd_status gd_mnist_pair(gd_context *context, const char *folder, gd_dataset **train,
                               gd_dataset **test);

typedef struct gd_cifar10_options {
    size_t size GD_DEFAULT(sizeof(gd_cifar10_options));
    bool test; /* test_batch.bin, else test_batch_first1000.bin; otherwise data_batch_1.bin …
                  _5.bin, those that are there */
} gd_cifar10_options;
#define GD_CIFAR10_DEFAULTS .size = sizeof(gd_cifar10_options), .test = false

/* gd_cifar10(context, "cifar-10-batches-bin"): colour photographs [3, 32, 32] of ten classes
 * (Krizhevsky 2009), 0 … 1, from the files of the binary version, plain or with gzip. GD_ERR_IO:
 * none is there; GD_ERR_FORMAT. */
#define gd_cifar10(...) \
    GD_WITH_2(gd_cifar10_with, gd_cifar10_options, GD_CIFAR10_DEFAULTS, __VA_ARGS__, )
GD_API gd_dataset *gd_cifar10_with(gd_context *context, const char *folder,
                                   const gd_cifar10_options *options);

/* gd_image_folder(context, "train", 64, 64): JPEG and PNG images as [3, height, width], 0 … 1, resized by
 * gd_image_resize. Each folder in `folder` is a class, numbered in the order of their names; its
 * .jpg, .jpeg and .png files are its samples. Hidden files are passed over, others too, with a warning
 * (gd_set_log_callback). Decoded at once, in the context's threads. Errors of gd_image_read name
 * the file; GD_ERR_IO: no folder, or no images. */
GD_API gd_dataset *gd_image_folder(gd_context *context, const char *folder, int64_t height,
                                   int64_t width);

/* End a data set before its context closes; loaders of it must be released first. NULL is fine. */
GD_API void gd_dataset_release(gd_dataset *dataset);
GD_API int64_t gd_dataset_count(const gd_dataset *dataset);
/* The shape of one sample. */
GD_API gd_shape gd_dataset_shape(const gd_dataset *dataset);
/* Number of classes: the largest label plus one. */
GD_API int64_t gd_dataset_classes(const gd_dataset *dataset);
/* Samples first … first+count-1 in file order, as new temporaries: x [count, shape..] f32, y
 * [count] i64. Either may be NULL. GD_ERR_SHAPE when there are not so many. */
GD_API gd_status gd_dataset_get(const gd_dataset *dataset, int64_t first, int64_t count,
                                gd_tensor **x, gd_tensor **y);

/* ---- loaders: batches, epoch after epoch ---- */

typedef struct gd_loader gd_loader;

typedef struct gd_loader_options {
    size_t size GD_DEFAULT(sizeof(gd_loader_options));
    int64_t batch GD_DEFAULT(32); /* samples in one */
    bool shuffle; /* in a fresh order each epoch, which depends on the seed and the number of the
                      epoch alone */
    uint64_t seed;
    bool drop_last; /* leave out a last batch that is not full */
    int prefetch;   /* batches to make ready ahead in a thread of its own. 0: in the call, cheapest
                       for small samples */
} gd_loader_options;
#define GD_LOADER_DEFAULTS .size = sizeof(gd_loader_options), .batch = 32, .prefetch = 0

typedef struct gd_batch {
    int count;             /* 2 */
    gd_tensor *tensors[2]; /* x [size, shape..] f32 and y [size] i64, owned by the loader and
                              overwritten by the next call: a gradient that needs them is taken
                              before it, or is GD_ERR_STATE */
    int64_t size;          /* samples; less than `batch` in a last one */
} gd_batch;

/* gd_loader_create(dataset, .batch = 50, .shuffle = true). Owned by the context of its data set. The
 * tensors are a fixed set made here; nothing is allocated per batch. */
#define gd_loader_create(...) \
    GD_WITH_1(gd_loader_create_with, gd_loader_options, GD_LOADER_DEFAULTS, __VA_ARGS__, )
GD_API gd_loader *gd_loader_create_with(gd_dataset *dataset, const gd_loader_options *options);
GD_API void gd_loader_release(gd_loader *loader);
/* The next batch of the epoch. False at its end (the call after that begins the next epoch), for
 * NULL, and on an error, which gd_error_code tells apart. */
GD_API bool gd_loader_next(gd_loader *loader, gd_batch *batch);
/* Batches in an epoch, and samples in them. */
GD_API int64_t gd_loader_batches(const gd_loader *loader);
GD_API int64_t gd_loader_samples(const gd_loader *loader);
/* Samples in a full batch. */
GD_API int64_t gd_loader_batch_size(const gd_loader *loader);

#ifdef __cplusplus
}
#endif
#endif
