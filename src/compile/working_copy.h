/* compile/working_copy.h: a tensor that exists outside, rounded to 16 bits for the plans that read it
 * so: mixed precision keeps parameters in f32 and multiplies bf16. A plan that assigns to the
 * parameter makes the copy in the same pass over memory (compile/working_copies.c); a plan that reads
 * it converts the parameter first where the copy is not of the values that are there. All plans of a
 * context share the copy, which lasts as long as one of them. */
#ifndef GD_COMPILE_WORKING_COPY_H
#define GD_COMPILE_WORKING_COPY_H

#include "backend/backend.h"
#include "graph/node.h"
#include "ops/attrs.h"

typedef struct gd_working_copy {
    struct gd_working_copy *next; /* of the same storage */
    gd_tensor *parameter;         /* as the plan reads it: row-major; a reference */
    gd_tensor *tensor;            /* the copy, of the same shape; a reference */
    int32_t refs;                 /* plans */
    uint32_t version;             /* of the parameter's storage, that it was made of */
    bool is_made;
    gd_cast_attr attr;
    gd_operand in;
    gd_kernel_call call; /* the conversion */
} gd_working_copy;

/* A reference to the copy of t as dtype, which is made where there is none; its contents are not.
 * NULL with GD_OK: the device does not convert so. */
gd_status gd_working_copy_take(gd_tensor *t, gd_dtype dtype, gd_working_copy **copy);
void gd_working_copy_drop(gd_working_copy *copy);

/* Whether the copy is of t as it lies in its storage. */
bool gd_working_copy_is_of(const gd_working_copy *copy, const gd_layout *layout, gd_dtype dtype);

/* Convert the parameter, unless the copy is of what is there: made of its storage's present version,
 * where nobody can write without raising that. Allocates nothing. */
gd_status gd_working_copy_refresh(gd_working_copy *copy);
/* Its contents are nothing's. */
static inline void gd_working_copy_forget(gd_working_copy *copy)
{
    copy->is_made = false;
}
/* It has been made of what is there. */
static inline void gd_working_copy_note(gd_working_copy *copy)
{
    copy->version = copy->parameter->storage->version;
    copy->is_made = true;
}

#endif
