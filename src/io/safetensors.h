/* io/safetensors.h: the safetensors format (https://github.com/huggingface/safetensors, "Format")
 * on plain arrays.
 *
 *     u64 n, little-endian | n bytes of JSON | the tensors' values, one after another
 *
 * It knows nothing of gd_tensor: values are bytes, little-endian as in the file. Start at
 * gd_safetensors_open() and gd_safetensors_write(). Without jansson at build time every call here
 * is GD_ERR_UNSUPPORTED. */
#ifndef GD_IO_SAFETENSORS_H
#define GD_IO_SAFETENSORS_H

#include <gradus/base.h>

/* ---- reading ---- */

typedef struct gd_safetensors gd_safetensors;

/* One tensor of a file. Everything it points to lives as long as the file is open. */
typedef struct gd_safetensors_entry {
    const char *name;
    const char *dtype;    /* "F32", "BF16" … as in the file */
    int rank;             /* any; 0 is a single value */
    const int64_t *shape; /* [rank] */
    const void *data; /* to write: the values, little-endian, row-major. Of what was read: NULL; see
                         gd_safetensors_read */
    size_t bytes;
    size_t begin; /* of what was read: its place among the values of the file */
} gd_safetensors_entry;

/* Open a file and check all of it that is not values: header length at most 100 MB and within the
 * file, a JSON object without repeated names, known dtypes, shapes that do not overflow and fit
 * their byte ranges, ranges that follow each other from 0 to the end of the file without hole or
 * overlap. On failure *out is NULL: GD_ERR_IO, GD_ERR_FORMAT, GD_ERR_MEMORY, GD_ERR_UNSUPPORTED. */
gd_status gd_safetensors_open(const char *path, gd_safetensors **out);

/* The same over bytes that the caller keeps until the file is closed; messages call them `name`. */
gd_status gd_safetensors_open_memory(const void *bytes, size_t size, const char *name,
                                     gd_safetensors **out);

void gd_safetensors_close(gd_safetensors *file);

/* Read a tensor's values, entry->bytes of them, little-endian and row-major. GD_ERR_IO: also where
 * the file has been truncated since. */
gd_status gd_safetensors_read(const gd_safetensors *file, const gd_safetensors_entry *entry,
                              void *out);

/* Tensors are numbered in the order of their names (strcmp). */
size_t gd_safetensors_count(const gd_safetensors *file);
const gd_safetensors_entry *gd_safetensors_at(const gd_safetensors *file, size_t index);

/* The entry of that name, NULL (no error recorded) if there is none. */
const gd_safetensors_entry *gd_safetensors_find(const gd_safetensors *file, const char *name);

/* The entry of that name for a reader who needs it: GD_ERR_INVALID if there is none,
 * GD_ERR_UNSUPPORTED if its dtype is not one of Gradus's (F32 F64 I32 I64 U8 BOOL F16 BF16); *out
 * is then NULL. */
gd_status gd_safetensors_get(const gd_safetensors *file, const char *name,
                             const gd_safetensors_entry **out);

/* The "__metadata__" strings, in the order of the file. */
typedef struct gd_safetensors_string {
    const char *key;
    const char *value;
} gd_safetensors_string;

size_t gd_safetensors_metadata_count(const gd_safetensors *file);
gd_safetensors_string gd_safetensors_metadata_at(const gd_safetensors *file, size_t index);

/* The value of that key, NULL if there is none. */
const char *gd_safetensors_metadata(const gd_safetensors *file, const char *key);

/* ---- checksums ---- */

/* A first metadata string of this key, and of this value, is filled in when the file is written:
 * XXH64 of all its bytes, with these zeros in their place, as 16 hexadecimal digits. */
#define GD_SAFETENSORS_CHECKSUM    "checksum"
#define GD_SAFETENSORS_NO_CHECKSUM "0000000000000000"

bool gd_safetensors_has_checksum(const gd_safetensors *file);
/* Read all of the file, if it has a checksum: GD_ERR_FORMAT when it holds other bytes than were
 * written. GD_OK: it has none. */
gd_status gd_safetensors_verify(const gd_safetensors *file);

/* ---- writing ---- */

/* Write `count` entries (their `bytes` must be what dtype and shape say) and the metadata,
 * atomically: see gd_file_write_atomic(). As the reference implementation does, values are laid out
 * by falling element size, then by name, and the header is padded to 8 bytes, so every tensor lies
 * aligned; the same input gives the same file. A checksum is filled in. GD_ERR_INVALID: a name that is not UTF-8, repeated,
 * or "__metadata__"; a repeated key; a dtype, shape or size that does not fit. GD_ERR_IO,
 * GD_ERR_MEMORY. */
gd_status gd_safetensors_write(const char *path, const gd_safetensors_entry *entries, size_t count,
                               const gd_safetensors_string *metadata, size_t metadata_count);

#endif
