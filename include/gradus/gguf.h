/* gradus/gguf.h: GGUF files (https://github.com/ggml-org/ggml, docs/gguf.md): language models with
 * weights in blocks of few bits, as llama.cpp uses them. Start at gd_gguf_open() and
 * gd_gguf_quantize(); gd_language_model_load() and gd_tokenizer_load_gguf() read models from them.
 */
#ifndef GRADUS_GGUF_H
#define GRADUS_GGUF_H

#include <gradus/options.h>
#include <gradus/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How a tensor's values are stored. Of Q4_0 to Q8_0, 32 numbers of a row are a block with a scale of
 * its own (and _1: a smallest value), of Q2_K to Q6_K ("k-quants") 256. The numbers are the file's;
 * it may have others, which are not read here. */
typedef enum gd_gguf_type {
    GD_GGUF_F32 = 0,
    GD_GGUF_F16 = 1,
    GD_GGUF_Q4_0 = 2,
    GD_GGUF_Q4_1 = 3,
    GD_GGUF_Q5_0 = 6,
    GD_GGUF_Q5_1 = 7,
    GD_GGUF_Q8_0 = 8,
    GD_GGUF_Q2_K = 10,
    GD_GGUF_Q3_K = 11,
    GD_GGUF_Q4_K = 12,
    GD_GGUF_Q5_K = 13,
    GD_GGUF_Q6_K = 14,
    GD_GGUF_BF16 = 30
} gd_gguf_type;

/* "Q4_0"; "type 99" is not named: NULL for one that Gradus does not know. */
GD_API const char *gd_gguf_type_name(gd_gguf_type type);
/* The type of that name, in any case of letters. false: there is none. */
GD_API bool gd_gguf_type_find(const char *name, gd_gguf_type *out);

/* ---- reading ---- */

/* A file opened for reading. What stands before the values has been checked and is in memory; values
 * are read when asked for. */
typedef struct gd_gguf gd_gguf;

/* Versions 2 and 3, little-endian. NULL: GD_ERR_IO, GD_ERR_FORMAT, GD_ERR_MEMORY, GD_ERR_UNSUPPORTED
 * (another version or byte order, lists of lists). The caller closes it. */
GD_API gd_gguf *gd_gguf_open(const char *path);
GD_API void gd_gguf_close(gd_gguf *gguf);

typedef struct gd_gguf_info {
    const char *name; /* lives as long as the file is open */
    gd_gguf_type type;
    gd_shape shape; /* as everywhere here: the last axis lies together in memory. GGUF writes it the
                       other way round */
    size_t bytes;   /* in the file */
} gd_gguf_info;

/* Tensors are numbered 0 … count-1 in the order of the file; 0 for NULL. */
GD_API int64_t gd_gguf_count(const gd_gguf *gguf);
/* GD_ERR_INVALID: no such number. */
GD_API gd_status gd_gguf_tensor_info(const gd_gguf *gguf, int64_t index, gd_gguf_info *info);
/* The number of the tensor called `name`, -1 (and no error) if there is none. */
GD_API int64_t gd_gguf_find(const gd_gguf *gguf, const char *name);
/* Its values as a new temporary of f32, bit for bit those of the Python package gguf. GD_ERR_UNSUPPORTED: a type
 * that is not in gd_gguf_type; GD_ERR_IO, GD_ERR_MEMORY. */
GD_API gd_tensor *gd_gguf_read(const gd_gguf *gguf, gd_context *context, int64_t index);

/* ---- metadata: values by name ---- */

/* The name of value number `index`, in the order of the file; NULL: there is none. */
GD_API const char *gd_gguf_key(const gd_gguf *gguf, int64_t index);
/* How many numbers or texts the value has: 1, or the length of a list, which may be 0. -1: the file has no such key. */
GD_API int64_t gd_gguf_length(const gd_gguf *gguf, const char *key);
/* Element `index` of a value, 0 of what is no list. NULL or false (and no error): there is none, or it is none. A
 * text is UTF-8, or whatever bytes the file has, *size of them and a 0 byte behind; it lives as long as the file is
 * open; size may be NULL. Truth values are 0 and 1. */
GD_API const char *gd_gguf_text(const gd_gguf *gguf, const char *key, int64_t index, size_t *size);
GD_API bool gd_gguf_number(const gd_gguf *gguf, const char *key, int64_t index, double *out);

/* ---- writing ---- */

/* How much the columns of a model's matrices count: the mean squares of what they are multiplied with, over a text.
 * gd_language_model_calibrate makes it; the caller releases it. NULL is fine. */
typedef struct gd_importance gd_importance;
GD_API void gd_importance_release(gd_importance *importance);
/* Of how many matrices it is; 0 for NULL. */
GD_API int64_t gd_importance_count(const gd_importance *importance);

/* What has been made of a tensor. */
typedef struct gd_gguf_written {
    const char *name; /* in the file */
    gd_shape shape;
    gd_gguf_type type;
    size_t bytes;
    /* of the values as they are read again: the root of the sum of squared errors over that of squares (0 where all
     * are 0), and the largest error */
    double error, largest_error;
    /* with importance: the root of the sum of importance * error^2 over that of importance * value^2, which is how far
     * the matrix' products are off in the text, were its columns not correlated; -1: the tensor has none */
    double output_error;
} gd_gguf_written;

/* Told of each tensor as it is written. *stop, false before, ends the writing where it is set to true: GD_ERR_STATE, and no file is left; a
 * status other than GD_OK makes the call fail. */
typedef gd_status (*gd_gguf_callback)(void *user, const gd_gguf_written *tensor, bool *stop);

typedef struct gd_gguf_quantize_options {
    size_t size GD_DEFAULT(sizeof(gd_gguf_quantize_options));
    /* of matrices. Of those whose rows are no whole blocks it is F16, or for Q2_K to Q6_K Q4_0, Q4_0, Q5_0, Q5_1 and
     * Q8_0, where rows are multiples of 32; vectors and tables of positions are F32 */
    gd_gguf_type type GD_DEFAULT(GD_GGUF_Q8_0);
    gd_gguf_callback callback;
    void *user;
    /* NULL: all columns count alike. Else Q2_K to Q6_K make the sum of weight * error^2 small, a column's weight being the
     * root of its importance over the matrix' mean, and 0.05; of the other types it is in the report alone. Tensors that it
     * does not name have none */
    const gd_importance *importance;
} gd_gguf_quantize_options;
#define GD_GGUF_QUANTIZE_DEFAULTS \
    .size = sizeof(gd_gguf_quantize_options), .type = GD_GGUF_Q8_0, .importance = NULL

/* gd_gguf_quantize("model.gguf", "small.gguf", .type = GD_GGUF_Q4_0): write a GGUF file, of any architecture, again with its matrices
 * in another type; the metadata is kept. F32 to Q8_0 have the bits that the Python package gguf writes; scales and least
 * values of Q2_K to Q6_K are searched for, so that the sum of squared errors is small. It is read and written in pieces, and
 * put in place when it is whole; `to` may be `from`. gd_language_model_save_gguf writes a model of one's own. GD_ERR_INVALID:
 * also a type that is none; GD_ERR_SHAPE: an importance of other columns; the errors of gd_gguf_open and gd_gguf_read. */
#define gd_gguf_quantize(...)                                                             \
    GD_WITH_2(gd_gguf_quantize_with, gd_gguf_quantize_options, GD_GGUF_QUANTIZE_DEFAULTS, \
              __VA_ARGS__, )
GD_API gd_status gd_gguf_quantize_with(const char *from, const char *to,
                                       const gd_gguf_quantize_options *options);

#ifdef __cplusplus
}
#endif
#endif
