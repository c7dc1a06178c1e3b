/* io/gguf.h: GGUF files for the rest of the library:
 *
 *     "GGUF" | version u32 | tensors u64 | values u64 | the values | what the tensors are | padding | the tensors
 *
 * little-endian; a text is its size as u64 and its bytes, a list the type of its elements as u32, their count as u64
 * and they. Start at gd_gguf_open() for reading, at gd_gguf_write() for writing. */
#ifndef GD_IO_GGUF_H
#define GD_IO_GGUF_H

#include "io/quantized.h"

/* ---- values ---- */

typedef enum gd_gguf_kind {
    GD_GGUF_U8,
    GD_GGUF_I8,
    GD_GGUF_U16,
    GD_GGUF_I16,
    GD_GGUF_U32,
    GD_GGUF_I32,
    GD_GGUF_REAL32,
    GD_GGUF_BOOL,
    GD_GGUF_TEXT,
    GD_GGUF_LIST,
    GD_GGUF_U64,
    GD_GGUF_I64,
    GD_GGUF_REAL64,
    GD_GGUF_KINDS
} gd_gguf_kind;

/* ---- tensors ---- */

typedef struct gd_gguf_entry {
    const char *name;
    uint32_t type;                 /* of the file, known here or not */
    const gd_block_format *format; /* NULL: not known */
    gd_shape shape;
    size_t at, bytes; /* in the file; bytes is 0 where the type is not known */
} gd_gguf_entry;

/* NULL: there is no such number. Lives as long as the file is open. */
const gd_gguf_entry *gd_gguf_entry_at(const gd_gguf *gguf, int64_t index);
/* GD_ERR_UNSUPPORTED: its type is not known, and its shape therefore not held against the file. */
gd_status gd_gguf_check_type(const gd_gguf *gguf, const gd_gguf_entry *entry);
/* Numbers first … first + count - 1 of a tensor, whole blocks, as they are in the file. */
gd_status gd_gguf_read_blocks(const gd_gguf *gguf, const gd_gguf_entry *entry, size_t first,
                              size_t count, unsigned char *raw);
/* Numbers first … first + count - 1 of a tensor as f32, whole blocks; `raw` has room for them as they are in the file.
 * GD_ERR_UNSUPPORTED: its type is not known. */
gd_status gd_gguf_read_numbers(const gd_gguf *gguf, const gd_gguf_entry *entry, size_t first,
                               size_t count, unsigned char *raw, float *out);
const char *gd_gguf_path(const gd_gguf *gguf);

/* ---- writing ---- */

/* Bytes that grow: the values of a file to be. A failure is kept, and told by gd_gguf_write. */
typedef struct gd_gguf_values {
    unsigned char *bytes;
    size_t size, capacity;
    int64_t count;
    bool failed;
} gd_gguf_values;

void gd_gguf_values_free(gd_gguf_values *values);
/* Each adds one value. A list is begun with the kind and the count of its elements, which are then put one by one. */
void gd_gguf_add_text(gd_gguf_values *v, const char *key, const char *text);
void gd_gguf_add_u32(gd_gguf_values *v, const char *key, uint32_t value);
void gd_gguf_add_real(gd_gguf_values *v, const char *key, float value);
void gd_gguf_add_bool(gd_gguf_values *v, const char *key, bool value);
void gd_gguf_add_list(gd_gguf_values *v, const char *key, gd_gguf_kind kind, uint64_t count);
void gd_gguf_put_text(gd_gguf_values *v, const char *text, size_t size);
void gd_gguf_put_u32(gd_gguf_values *v, uint32_t value);
void gd_gguf_put_real(gd_gguf_values *v, float value);
/* A value as another file has it, key and all. */
void gd_gguf_add_raw(gd_gguf_values *v, const unsigned char *raw, size_t size);
gd_status gd_gguf_copy_value(const gd_gguf *gguf, int64_t index, gd_gguf_values *to);

/* A tensor to be written. `values` gives numbers first … first + count - 1 of it, rows at a time, front to back. */
typedef struct gd_gguf_part {
    const char *name;
    const gd_block_format *format;
    gd_shape shape; /* the last axis a multiple of the format's count */
    gd_status (*values)(void *user, size_t first, size_t count, float *out);
    void *user;
    /* filled in as it is written */
    double squares, squared_error, largest_error, output_squares, output_squared_error;
} gd_gguf_part;

/* Write a file of version 3, atomically; options' callback is told of each part, its type is not looked at. `who` is the function
 * that was called. GD_ERR_INVALID: a number that is not finite or too large for its type; GD_ERR_IO, GD_ERR_MEMORY, what
 * `values` and the callback return. */
gd_status gd_gguf_write(const char *who, const char *path, const gd_gguf_values *values,
                        size_t count, gd_gguf_part *parts, const gd_gguf_quantize_options *options);

/* NULL: there is no such type. */
const gd_block_format *gd_gguf_written_format(const char *who, gd_gguf_type type);
/* That of a tensor where matrices have the format `wanted`. */
const gd_block_format *gd_gguf_choose(const gd_block_format *wanted, const char *name,
                                      gd_shape shape);
/* Values that say of what type most of a file is. */
void gd_gguf_add_file_type(gd_gguf_values *v, const gd_block_format *format);

#endif
