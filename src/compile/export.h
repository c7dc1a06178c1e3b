/* compile/export.h: what the files that write a plan as C share. Private to export*.c; start at
 * gd_export_c in export.c. */
#ifndef GD_COMPILE_EXPORT_H
#define GD_COMPILE_EXPORT_H

#include "compile/plan.h"

/* A text that grows. After a failed allocation nothing more is added. */
typedef struct gd_buffer {
    char *text;
    size_t length, capacity;
    bool failed;
} gd_buffer;
void gd_buffer_add(gd_buffer *buffer, const char *format, ...) GD_PRINTF(2, 3);

typedef struct gd_export {
    const gd_plan *plan;
    gd_buffer functions; /* one for each elementwise op and dtype in use */
    gd_buffer body;      /* the steps */
    bool op_is_defined[GD_DTYPE_COUNT][GD_OP_ELEMENTWISE_COUNT];
    int32_t *storage; /* [ir.count] number of the storage an external value lies in; -1: none */
    const gd_tensor **owner; /* [storages] a tensor over it */
    bool *is_written;        /* [storages] by an effect */
    int storages;
    bool *is_read; /* [ir.count] constants and inputs in use */
} gd_export;

/* How C calls a dtype: "float", its letters in function names "f32"; NULL: none (half precision).
 */
const char *gd_export_type(gd_dtype dtype);
const char *gd_export_suffix(gd_dtype dtype);
/* The type memory is read through: one that may alias others. */
const char *gd_export_alias(gd_dtype dtype);
/* Name of storage number `s`: that of its tensor with _ for what C does not allow. */
void gd_export_storage_name(const gd_export *e, int s, char name[128]);

/* export_steps.c: add one step's statements to the body; and the pointer <name><number> to a value.
 */
gd_status gd_export_step(gd_export *e, const gd_step *step);
void gd_export_pointer(gd_export *e, const char *name, int number, int32_t value, bool is_result);
/* export_spatial.c: convolution, pooling, and their gradients. */
gd_status gd_export_convolution(gd_export *e, const gd_step *step);
gd_status gd_export_pooling(gd_export *e, const gd_step *step);

/* export_runtime.c: add to `out` all functions that `used` needs, from the texts of vecmath and
 * export_kernels.txt. GD_ERR_UNSUPPORTED: a name is nowhere. */
gd_status gd_export_runtime(const gd_buffer *used, gd_buffer *out);

#endif
