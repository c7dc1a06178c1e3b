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

/* ---- data sets: samples, each of one or more fields ---- */

/* A data set is a number of samples; a sample has the fields of its data set, each a tensor: an image
 * and its class, a row of numbers and what is to be predicted of it, two sequences. The values are
 * in memory, or a callback of the caller's writes those of a sample when they are asked for. */
typedef struct gd_dataset gd_dataset;

#define GD_FIELDS_MAX        8
#define GD_BATCH_TENSORS_MAX 17 /* two for each field, and the draws */

/* As the first size of a field's shape: sequences, each of its own length. */
#define GD_VARIES (-1)

typedef struct gd_field {
    size_t size GD_DEFAULT(sizeof(gd_field));
    const char *name; /* "image", "label": unique in the data set; copied */
    gd_shape shape;   /* of one sample; rank 0: a number. dim[0] may be GD_VARIES */
    gd_dtype dtype;   /* of the values in memory, and of what a callback writes */
    gd_dtype batch_dtype GD_DEFAULT(GD_DTYPE_COUNT); /* of the values in batches: a float dtype, or
                                                        an integer dtype that has all numbers of
                                                        `dtype`; GD_DTYPE_COUNT: as dtype */
    double scale GD_DEFAULT(1), shift; /* batches have value * scale + shift, where batch_dtype is a
                                          float dtype */
    int64_t max_length;                /* of a field that varies: the most a sample has */
    double padding;                    /* fills up the shorter sequences of a batch */
    int64_t
        classes; /* > 0: the values are class indices 0 … classes-1, which is checked; 0: they are
                        none; -1, of values in memory: as many classes as the largest, plus one */
    const char *const *class_names; /* [classes], copied; NULL: none */
} gd_field;
#define GD_FIELD_DEFAULTS \
    .size = sizeof(gd_field), .batch_dtype = GD_DTYPE_COUNT, .scale = 1, .class_names = NULL

/* Where a callback writes the values of one sample. */
typedef struct gd_sample_values {
    void *data[GD_FIELDS_MAX]; /* of each field, row-major, of its dtype; there is room for
                                      max_length steps where it varies; NULL: the field is in memory */
    int64_t
        length[GD_FIELDS_MAX]; /* to be set where a field varies; before the call its length, where
                                      that is known, else max_length */
} gd_sample_values;

/* Writes sample number `index`. Called by the threads of loaders, several at once unless .one_thread:
 * it uses no context. A status other than GD_OK, best with a sentence (gd_error_record), becomes the
 * error of gd_loader_next or gd_dataset_get: "sample 17: the sentence". */
typedef gd_status (*gd_sample_fn)(void *user, int64_t index, gd_sample_values *sample);

typedef struct gd_dataset_options {
    size_t size GD_DEFAULT(sizeof(gd_dataset_options));
    void (*release)(void *user); /* called once, when the data set, its subsets and its loaders are
                                    gone, or it could not be made; NULL: nothing */
    bool one_thread;             /* `get` is called by one thread at a time */
    /* [field_count], the values of fields that are in memory, as labels may be, NULL for those that
     * `get` writes; NULL: `get` writes all of them. Of fields in memory data[] is NULL in `get`. */
    const void *const *arrays;
    /* [field_count], of fields that vary the length of each sample, where they are known beforehand;
     * needed for those in memory, and for .length_window of a loader */
    const int64_t *const *lengths;
    bool copy GD_DEFAULT(true); /* false: the arrays are not copied, and stay where they are while
                                   the data set, its subsets and its loaders are there */
    uint64_t fingerprint; /* of what `get` writes: another number where that is something else, for
                             gd_dataset_fingerprint. 0 is as good as any, where nobody knows */
} gd_dataset_options;
#define GD_DATASET_DEFAULTS .size = sizeof(gd_dataset_options), .copy = true, .fingerprint = 0

/* gd_dataset_create(context, 1000, 2, fields, get, user): a data set of samples that a
 * callback writes. Owned by the context. Fields are structs as large as the first one's size says.
 * GD_ERR_INVALID, GD_ERR_SHAPE, GD_ERR_DTYPE, GD_ERR_MEMORY. */
#define gd_dataset_create(...) \
    GD_WITH_6(gd_dataset_create_with, gd_dataset_options, GD_DATASET_DEFAULTS, __VA_ARGS__, )
GD_API gd_dataset *gd_dataset_create_with(gd_context *context, int64_t count, int field_count,
                                          const gd_field *fields, gd_sample_fn get, void *user,
                                          const gd_dataset_options *options);

typedef struct gd_dataset_from_arrays_options {
    size_t size GD_DEFAULT(sizeof(gd_dataset_from_arrays_options));
    const int64_t *const *lengths; /* as above; needed where a field varies */
    bool copy GD_DEFAULT(true);    /* as above; false: memory-mapped files, too */
} gd_dataset_from_arrays_options;
#define GD_DATASET_FROM_ARRAYS_DEFAULTS .size = sizeof(gd_dataset_from_arrays_options), .copy = true

/* gd_dataset_from_arrays(context, 150, 2, fields, arrays): samples in memory. arrays[f] is
 * [count, shape..] of the field's dtype, row-major, with max_length for the size that varies. */
#define gd_dataset_from_arrays(...)                                        \
    GD_WITH_5(gd_dataset_from_arrays_with, gd_dataset_from_arrays_options, \
              GD_DATASET_FROM_ARRAYS_DEFAULTS, __VA_ARGS__, )
GD_API gd_dataset *gd_dataset_from_arrays_with(gd_context *context, int64_t count, int field_count,
                                               const gd_field *fields, const void *const *arrays,
                                               const gd_dataset_from_arrays_options *options);

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
 * digits, fields "image" and "label", pixels u8 that are 0 … 1 in batches, from the four IDX files as published, compressed or not. GD_ERR_IO says
 * which file is missing and where to get it. */
#define gd_mnist(...) GD_WITH_2(gd_mnist_with, gd_mnist_options, GD_MNIST_DEFAULTS, __VA_ARGS__, )
GD_API gd_dataset *gd_mnist_with(gd_context *context, const char *folder,
                                 const gd_mnist_options *options);
/* Both halves of it, flattened, their four files read at the same time. Both are NULL on an error.
 */
GD_API gd_status gd_mnist_pair(gd_context *context, const char *folder, gd_dataset **train,
                               gd_dataset **test);

typedef struct gd_image_options {
    size_t size GD_DEFAULT(sizeof(gd_image_options));
    /* bytes of samples that are kept in memory, the first ones that are asked for; others are read
     * from their files each time. 0: none */
    size_t cache GD_DEFAULT(1073741824);
    bool
        crop; /* only the middle of each image that has the result's ratio of height to width, so that
                  nothing is stretched */
    gd_dtype
        batch_dtype GD_DEFAULT(GD_F32); /* floats: 0 … 1; GD_U8: bytes, as gd_augment takes them */
} gd_image_options;
#define GD_IMAGE_DEFAULTS \
    .size = sizeof(gd_image_options), .cache = 1073741824, .batch_dtype = GD_F32

typedef struct gd_cifar10_options {
    size_t size GD_DEFAULT(sizeof(gd_cifar10_options));
    bool test; /* test_batch.bin, else test_batch_first1000.bin; otherwise data_batch_1.bin …
                  _5.bin, those that are there */
    gd_dtype batch_dtype GD_DEFAULT(GD_F32); /* as gd_image_options has it */
} gd_cifar10_options;
#define GD_CIFAR10_DEFAULTS .size = sizeof(gd_cifar10_options), .batch_dtype = GD_F32

/* gd_cifar10(context, "cifar-10-batches-bin"): colour photographs [3, 32, 32] of ten classes
 * (Krizhevsky 2009), 0 … 1, from the files of the binary version, plain or with gzip. GD_ERR_IO:
 * none is there; GD_ERR_FORMAT. */
#define gd_cifar10(...) \
    GD_WITH_2(gd_cifar10_with, gd_cifar10_options, GD_CIFAR10_DEFAULTS, __VA_ARGS__, )
GD_API gd_dataset *gd_cifar10_with(gd_context *context, const char *folder,
                                   const gd_cifar10_options *options);

/* gd_image_folder(context, "train", 64, 64): JPEG and PNG images, fields "image" [3, height, width],
 * read by gd_image_read_reduced and resized by gd_image_resize, and "label". Each folder in `folder` is a class, numbered in the order of
 * their names; its .jpg, .jpeg and .png files are its samples. Hidden files are passed over, others
 * too, with a warning (gd_set_log_callback). Here files are listed alone: an image is read when its
 * sample is asked for, by the workers of a loader, whose error names the file. GD_ERR_IO: no folder,
 * or no images; GD_ERR_INVALID, GD_ERR_DTYPE, GD_ERR_MEMORY. */
#define gd_image_folder(...) \
    GD_WITH_4(gd_image_folder_with, gd_image_options, GD_IMAGE_DEFAULTS, __VA_ARGS__, )
GD_API gd_dataset *gd_image_folder_with(gd_context *context, const char *folder, int64_t height,
                                        int64_t width, const gd_image_options *options);

/* gd_image_list(context, "train.csv", 64, 64): the same for images that a text file names, one a line:
 * path, comma or tab, class; the last comma or tab counts. Paths begin at the list's folder. Classes
 * are numbered in the order of their names. A first line whose class is "class" or "label", empty
 * lines, and lines that begin with # are passed over. GD_ERR_IO, and GD_ERR_FORMAT with the line. */
#define gd_image_list(...) \
    GD_WITH_4(gd_image_list_with, gd_image_options, GD_IMAGE_DEFAULTS, __VA_ARGS__, )
GD_API gd_dataset *gd_image_list_with(gd_context *context, const char *path, int64_t height,
                                      int64_t width, const gd_image_options *options);

typedef struct gd_audio_folder_options {
    size_t size GD_DEFAULT(sizeof(gd_audio_folder_options));
    int64_t channels GD_DEFAULT(1); /* 1: the mean of a file's; 0: as many as the first file has */
    int64_t rate;                   /* frames a second; 0: the first file's */
} gd_audio_folder_options;
#define GD_AUDIO_FOLDER_DEFAULTS .size = sizeof(gd_audio_folder_options), .channels = 1, .rate = 0

/* gd_audio_folder(context, "words", 16000): sounds [channels, length] f32, fields "audio" and "label",
 * of sound files (gd_audio_read), with a folder for each class as gd_image_folder has them. Of longer
 * sounds the middle is taken, around shorter ones is silence; length 0: the first file's. Files are read
 * when their samples are asked for, by the workers of a loader, whose error names the file: also one of
 * another rate, or other channels where several are wanted. Rates of plain WAV files are looked at when the
 * folder is opened (of more than 10,000 files at as many, evenly spread). GD_ERR_IO: no folder, or no sounds;
 * GD_ERR_FORMAT: files of another rate; GD_ERR_INVALID, GD_ERR_MEMORY, errors of gd_audio_read. */
#define gd_audio_folder(...)                                                           \
    GD_WITH_3(gd_audio_folder_with, gd_audio_folder_options, GD_AUDIO_FOLDER_DEFAULTS, \
              __VA_ARGS__, )
GD_API gd_dataset *gd_audio_folder_with(gd_context *context, const char *folder, int64_t length,
                                        const gd_audio_folder_options *options);

/* End a data set before its context closes. Its subsets and loaders keep what they need of it. NULL
 * is fine. */
GD_API void gd_dataset_release(gd_dataset *dataset);
GD_API int64_t gd_dataset_count(const gd_dataset *dataset);
GD_API int gd_dataset_field_count(const gd_dataset *dataset);
/* A number that tells data sets apart: count, fields, and the values in memory, which are hashed whole up
 * to 16 MiB a field, of more 4 MiB spread over them; of image and sound files names and sizes; of tokens
 * as of values. The same data give the same number in every process. gd_fit goes on with no other data
 * than it was begun with. 0 for NULL. */
GD_API uint64_t gd_dataset_fingerprint(const gd_dataset *dataset);
/* Field number `index` as it was given, batch_dtype and classes filled in; owned by the data set.
 * NULL: there is none. */
GD_API const gd_field *gd_dataset_field(const gd_dataset *dataset, int index);
/* Its number by its name; -1: there is none. */
GD_API int gd_dataset_field_find(const gd_dataset *dataset, const char *name);
/* How many tensors a batch has: one for each field, and one more for each that varies. */
GD_API int gd_dataset_tensor_count(const gd_dataset *dataset);
/* Samples first … first+count-1 in their order, as a batch: new temporaries tensors[0], …,
 * gd_dataset_tensor_count() of them, sequences padded to the longest. GD_ERR_SHAPE when there are not
 * so many samples. */
GD_API gd_status gd_dataset_get(const gd_dataset *dataset, int64_t first, int64_t count,
                                gd_tensor **tensors);

/* ---- some of the samples ---- */

/* Samples indices[0], …, indices[count-1] of a data set, in that order, as a data set of their own,
 * which shares their values; an index may occur more than once. The indices are copied.
 * GD_ERR_INVALID: none; GD_ERR_SHAPE: one that is no sample's. */
GD_API gd_dataset *gd_dataset_subset(const gd_dataset *dataset, int64_t count,
                                     const int64_t *indices);

typedef struct gd_dataset_split_options {
    size_t size GD_DEFAULT(sizeof(gd_dataset_split_options));
    uint64_t seed;
    bool shuffle GD_DEFAULT(true); /* false: the first samples are one part, the last the other, as
                                      time series need it */
    int stratify
        GD_DEFAULT(-1); /* a field of classes, one for each sample: each part has as large a
                                      share of every class; -1: no such */
} gd_dataset_split_options;
#define GD_DATASET_SPLIT_DEFAULTS \
    .size = sizeof(gd_dataset_split_options), .shuffle = true, .stratify = -1

/* gd_dataset_split(dataset, 0.8, &first, &second): two data sets, of that share of the samples and of
 * the others, both in the order of the data set. Both are NULL on an error; GD_ERR_INVALID: a part
 * would be empty. */
#define gd_dataset_split(...)                                                             \
    GD_WITH_4(gd_dataset_split_with, gd_dataset_split_options, GD_DATASET_SPLIT_DEFAULTS, \
              __VA_ARGS__, )
GD_API gd_status gd_dataset_split_with(const gd_dataset *dataset, double share, gd_dataset **first,
                                       gd_dataset **second,
                                       const gd_dataset_split_options *options);
/* gd_dataset_fold(dataset, 5, 0, &rest, &fold): for cross-validation: `fold` is part number 0 of 5
 * parts as large as each other, and `rest` all others. With the same options each sample is in one
 * of the folds. */
#define gd_dataset_fold(...)                                                             \
    GD_WITH_5(gd_dataset_fold_with, gd_dataset_split_options, GD_DATASET_SPLIT_DEFAULTS, \
              __VA_ARGS__, )
GD_API gd_status gd_dataset_fold_with(const gd_dataset *dataset, int folds, int index,
                                      gd_dataset **rest, gd_dataset **fold,
                                      const gd_dataset_split_options *options);

/* Of a field of classes, one for each sample: weights[c] = count / (classes * samples of class c), 0
 * for a class without samples: a loss weighted so counts all classes alike. [classes] */
GD_API gd_status gd_dataset_class_weights(const gd_dataset *dataset, int field, double *weights);
/* The weight of each sample's class, [count]: a loader with such .weights draws all classes as
 * often. */
GD_API gd_status gd_dataset_sample_weights(const gd_dataset *dataset, int field, double *weights);

/* ---- loaders: batches, epoch after epoch ---- */

typedef struct gd_loader gd_loader;

typedef struct gd_loader_options {
    size_t size GD_DEFAULT(sizeof(gd_loader_options));
    int64_t batch GD_DEFAULT(32); /* samples in one */
    bool shuffle; /* in a fresh order each epoch, which depends on the seed and the number of the
                     epoch alone */
    uint64_t seed;
    bool drop_last; /* leave out a last batch that is not full */
    int workers; /* threads that make batches ahead. 0: they are made in the call, cheapest for small
                    samples in memory. Batches are the same with any number of workers. */
    int prefetch GD_DEFAULT(2);            /* batches that workers make ahead of the caller's */
    int64_t length_multiple GD_DEFAULT(8); /* sequences are padded to a multiple of this length, so
                                              that few shapes occur */
    int draws; /* > 0: batches end with a tensor f32 [size, draws] of numbers uniform in [0, 1), which
                  depend on the seed, the epoch and the index of the sample alone (of samples drawn
                  with replacement, on the number of the draw): what random
                  augmentation is made of */
    bool with_replacement; /* samples are drawn at random, each batch anew: batch n is a function of
                              the seed and n, `shuffle` means nothing, and all batches are full */
    const double
        *weights; /* [count] how often each sample is drawn, with replacement, as against the
                              others; copied. NULL: none are given */
    /* -1: as many as the samples fill. Fewer: an epoch ends before; with replacement any number,
     * INT64_MAX for an epoch without end */
    int64_t batches_per_epoch GD_DEFAULT(-1);
    int64_t
        length_window; /* > 0: batches of samples that are about as long, which needs less padding:
                              within so many batches the samples are sorted by the length of the first
                              field whose lengths are known, and then, with `shuffle`, the batches
                              shuffled */
} gd_loader_options;
#define GD_LOADER_DEFAULTS                                                               \
    .size = sizeof(gd_loader_options), .batch = 32, .prefetch = 2, .length_multiple = 8, \
    .batches_per_epoch = -1, .length_window = 0

typedef struct gd_batch {
    int count; /* of tensors: the fields', [size, shape..] of batch_dtype, in their order; then the
                  lengths, i64 [size], of each field that varies, which itself is padded to the
                  longest sequence of the batch; then the draws, where they are asked for */
    gd_tensor
        *tensors[GD_BATCH_TENSORS_MAX]; /* owned by the loader and overwritten by the next call:
                                                 a gradient that needs them is taken before it, or is
                                                 GD_ERR_STATE */
    int64_t size;                       /* samples; less than `batch` in a last one */
    const int64_t *indices;             /* [size] of the samples; until the next call */
    int64_t epoch;                      /* from 0 on */
    int64_t number;                     /* of this batch, counted through all epochs, from 0 on */
} gd_batch;

/* gd_loader_create(dataset, .batch = 50, .shuffle = true). Owned by the context of its data set. The
 * tensors are a fixed set made here, but for those of fields that vary; nothing else is allocated per
 * batch. */
#define gd_loader_create(...) \
    GD_WITH_1(gd_loader_create_with, gd_loader_options, GD_LOADER_DEFAULTS, __VA_ARGS__, )
GD_API gd_loader *gd_loader_create_with(gd_dataset *dataset, const gd_loader_options *options);
GD_API void gd_loader_release(gd_loader *loader);
/* The next batch of the epoch. False at its end (the call after that begins the next epoch), for
 * NULL, and on an error, which gd_error_code tells apart. After the error of a sample the next call
 * gives the batch that follows. */
GD_API bool gd_loader_next(gd_loader *loader, gd_batch *batch);
/* How many batches were asked for since the beginning, through all epochs: the number of the next. */
GD_API int64_t gd_loader_position(const gd_loader *loader);
/* Let the next batch be the one of that number, in its epoch: what is given is a function of the data
 * set, the options and the number alone. Overwrites the batch given last. GD_ERR_INVALID: negative. */
GD_API gd_status gd_loader_seek(gd_loader *loader, int64_t position);
/* Batches in an epoch, and samples in them, INT64_MAX for one without end. */
GD_API int64_t gd_loader_batches(const gd_loader *loader);
GD_API int64_t gd_loader_samples(const gd_loader *loader);
/* Samples in a full batch. */
GD_API int64_t gd_loader_batch_size(const gd_loader *loader);
/* What it gives batches of; as long as the loader is there. */
GD_API const gd_dataset *gd_loader_dataset(const gd_loader *loader);

#ifdef __cplusplus
}
#endif
#endif
