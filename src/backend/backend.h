/* backend/backend.h: the only door to a device: what a back end provides, and what a kernel is
 * given. Interface only. */
#ifndef GD_BACKEND_BACKEND_H
#define GD_BACKEND_BACKEND_H

#include "graph/op.h"

typedef struct gd_device gd_device;
typedef struct gd_backend gd_backend;

/* A tensor as a kernel sees it. `data` is the address of element 0 (the layout's offset is already
 * applied). */
typedef struct gd_operand {
    void *data;
    const gd_layout *layout;
} gd_operand;

/* One run of one op. Layouts and attribute have been checked by the op's infer; the result is
 * contiguous and overlaps no input (but an elementwise op's result may be exactly one of its
 * contiguous inputs of the same element size: in place; of a group with several results, only an
 * input that no instruction behind the result's reads; and that of a GD_OP_IN_PLACE op its
 * contiguous input 0). */
typedef struct gd_kernel_call {
    gd_device *device;
    const gd_op *op;
    const void *attr;
    int n; /* inputs */
    const gd_operand *in;
    gd_operand out;
    const gd_operand
        *extra;           /* [n_extra] extra results of a fused group, NULL when there are none */
    const void *prepared; /* what `prepare` made for this call, or NULL in eager mode */
    const struct gd_kernel_call *next; /* of the calls that run_together is given, else NULL */
} gd_kernel_call;

/* Do the work. Errors are for what only values show (an index out of range); the sentence is
 * recorded. Allocates nothing. */
typedef gd_status (*gd_kernel_fn)(const gd_kernel_call *call);

struct gd_device {
    const gd_backend *backend;
    const char *name; /* "cpu" */
    const char *isa;  /* "avx512" */
    int threads;
    bool host_memory;                 /* data pointers can be read by the host */
    gd_kernel_fn kernel[GD_OP_COUNT]; /* NULL: decompose, and failing that an error */
};

struct gd_backend {
    const char *name;
    /* A device, or NULL with the error recorded. */
    gd_device *(*open)(const gd_open_options *options);
    void (*close)(gd_device *device);
    gd_status (*set_threads)(gd_device *device, int threads);
    /* Memory for the pool, aligned to 64. NULL when out. */
    void *(*memory_alloc)(gd_device *device, size_t bytes);
    void (*memory_free)(gd_device *device, void *memory, size_t bytes);
    /* Host to device and back. */
    gd_status (*memory_write)(gd_device *device, void *to, const void *from_host, size_t bytes);
    gd_status (*memory_read)(gd_device *device, void *to_host, const void *from, size_t bytes);

    /* For plans; NULL where nothing can be prepared. Bytes that work on a call's layouts and
     * attribute alone takes (0: none), and doing it into memory aligned to 8, to be given to the
     * kernel as call->prepared at every run. Data pointers are not read. */
    size_t (*prepare_bytes)(const gd_kernel_call *call);
    gd_status (*prepare)(const gd_kernel_call *call, void *memory);
    /* Whether `fused` can run this group with reductions; data pointers are not read. NULL: none.
     */
    bool (*takes_rows)(const gd_kernel_call *call);
    /* A call and those behind it by `next`, all prepared, of `fused`, elementwise ops and cast.
     * None reads or writes what another one writes: their work together is divided among the
     * threads. NULL: there is no such kernel. */
    gd_kernel_fn run_together;
};

/* The back end called `name`, NULL when there is none. */
const gd_backend *gd_backend_find(const char *name);
extern const gd_backend gd_backend_cpu, gd_backend_reference;

/* A fused group: a straight-line program over elements, the attribute of op `fused`. Values are
 * numbered: inputs first, then one per instruction; the last instruction's value is the result.
 * Values of other instructions may be results too.
 *
 * Elementwise (row_axes 0): all values have one shape, that of the result.
 *
 * With reductions (row_axes > 0): `shape` is cut into rows, its last row_axes axes. A value is
 * whole, an element for each of `shape`, or one number a row (is_row). sum, prod, max and min make
 * one number a row of a whole value, of f32 or f64, in the order of the op's own kernel on a
 * contiguous operand; numbers of rows are broadcast where an instruction makes a whole value. A
 * row has 2 to GD_FUSED_MOST_ROW elements. */
#define GD_FUSED_MAX_INPUTS       16
#define GD_FUSED_MAX_INSTRUCTIONS 64 /* with reductions, where the device takes so many */
#define GD_FUSED_MAX_ELEMENTWISE  32 /* without */
#define GD_FUSED_MAX_EXTRA        6  /* results besides the last instruction's */
#define GD_FUSED_MOST_ROW         4096
typedef struct gd_fused_instruction {
    int16_t op;      /* gd_op_id of an elementwise op, GD_OP_cast, or of a reduction */
    int16_t dtype;   /* dtype of the value it makes */
    int16_t from[3]; /* numbers of its operands */
    int16_t compute; /* dtype of the operands */
    int16_t is_row;  /* it makes one number a row */
} gd_fused_instruction;
typedef struct gd_fused_attr {
    int32_t n_inputs, n_instructions, n_extra;
    int16_t extra[GD_FUSED_MAX_EXTRA]; /* instructions whose values are extra results, ascending */
    gd_fused_instruction instruction[GD_FUSED_MAX_INSTRUCTIONS];

    /* with reductions */
    int32_t row_axes;
    uint32_t outer_inputs; /* bit i: the axes of input i are aligned with those before the rows, and
                              not with all */
    gd_shape shape, result; /* `result`: that of the last instruction's value */
} gd_fused_attr;

/* op: a gd_op_id, or as an instruction has it. */
static inline bool gd_fused_reduces(int64_t op)
{
    return op == GD_OP_sum || op == GD_OP_prod || op == GD_OP_max || op == GD_OP_min;
}
/* Axes of `shape` before the rows. */
static inline int gd_fused_outer_axes(const gd_fused_attr *attr)
{
    return attr->shape.rank - attr->row_axes;
}
/* Whether input i, which lies so, is constant along rows. */
static inline bool gd_fused_is_row_input(const gd_fused_attr *attr, int i, const gd_layout *layout)
{
    if (attr->outer_inputs >> i & 1)
        return true;
    for (int axis = 1; axis <= attr->row_axes && axis <= layout->rank; axis++)
        if (layout->shape[layout->rank - axis] != 1 && layout->stride[layout->rank - axis] != 0)
            return false;
    return true;
}

#endif
