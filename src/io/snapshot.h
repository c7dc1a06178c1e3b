/* io/snapshot.h: tensors and strings as they are now, copied, to be written to a file later and by any
 * thread. Memory is kept from one to the next. */
#ifndef GD_IO_SNAPSHOT_H
#define GD_IO_SNAPSHOT_H

#include <gradus/io.h>

#include "io/safetensors.h"

/* All of it belongs to the snapshot. */
typedef struct gd_snapshot {
    gd_safetensors_entry *entries;
    size_t count, entry_capacity;
    int64_t *dims; /* GD_MAX_RANK for each entry */
    size_t dim_capacity;
    gd_safetensors_string *metadata; /* the checksum first */
    size_t metadata_count, metadata_capacity;
    char *text; /* names, keys and values */
    size_t text_capacity;
    unsigned char *values;
    size_t value_capacity;
} gd_snapshot;

/* Take one, into a struct of zeros or over an older one. */
gd_status gd_snapshot_take(gd_snapshot *snapshot, size_t count, const gd_named_tensor *tensors,
                           size_t metadata_count, const gd_metadata *metadata);
/* Errors of gd_tensors_save. */
gd_status gd_snapshot_write(const gd_snapshot *snapshot, const char *path);
void gd_snapshot_free(gd_snapshot *snapshot);

/* What tensors in files share: io/tensor_file.c. The format's names of dtypes; and values of `size`
 * bytes each brought from this machine's order to the file's or back. */
extern const char *const gd_safetensors_dtypes[GD_DTYPE_COUNT];
void gd_fix_byte_order(unsigned char *data, size_t bytes, size_t size);

#endif
