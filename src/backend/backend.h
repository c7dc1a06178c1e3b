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
 * input that no instruction behind the result's reads). */
typedef struct gd_kernel_call {
    gd_device *device;
    const gd_op *op;
    const void *attr;
    int n; /* inputs */
    const gd_operand *in;
    gd_operand out;
    const gd_operand
        *more;            /* [n_more] further results of a fused group, NULL when there are none */
    const void *prepared; /* what `prepare` made for this call, or NULL in eager mode */
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
};

/* The back end called `name`, NULL when there is none. */
const gd_backend *gd_backend_find(const char *name);
extern const gd_backend gd_backend_cpu, gd_backend_reference;

/* A fused group: a straight-line program over elements, the attribute of op `fused`. Values are
 * numbered: inputs first, then one per instruction; the last instruction's value is the result.
 * Values of other instructions may be results too; all have one shape. */
#define GD_FUSED_MAX_INPUTS       16
#define GD_FUSED_MAX_INSTRUCTIONS 32
#define GD_FUSED_MAX_MORE         6 /* results besides the last instruction's */
typedef struct gd_fused_instruction {
    int16_t op;      /* gd_op_id of an elementwise op, or GD_OP_cast */
    int16_t dtype;   /* dtype of the value it makes */
    int16_t from[3]; /* numbers of its operands */
    int16_t compute; /* dtype of the operands */
} gd_fused_instruction;
typedef struct gd_fused_attr {
    int32_t n_inputs, n_instructions, n_more;
    int16_t more[GD_FUSED_MAX_MORE]; /* instructions whose values are further results, ascending */
    gd_fused_instruction instruction[GD_FUSED_MAX_INSTRUCTIONS];
} gd_fused_attr;

#endif
