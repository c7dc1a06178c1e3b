/* backend/backend.h: the only door to a device: what a back end provides, and what a kernel is
 * given. Interface only.
 *
 * Addresses. A device's memory is known by addresses as memory_alloc gives them: numbers that may be
 * computed with (an address plus bytes is the address of those bytes) and handed back to the back
 * end. Nothing above the back end reads or writes through them, unless the device says
 * `host_memory`.
 *
 * Order. What one device is told (kernels, memory_write, memory_copy) happens in that order, as seen
 * by all that is told later. A function may return before its work is done, but for those that say
 * that they wait. Everything a function is given, but what lies at device addresses, is read before
 * it returns: a kernel call's operands, layouts and attribute, the memory that memory_write copies
 * from. So memory that goes back to the pool can be handed out at once.
 *
 * Errors. A status other than GD_OK has its sentence recorded (gd_fail), and nothing was done. What
 * goes wrong in work that is done later, or that only values show (an index out of range), may
 * instead be recorded and returned by the next function that waits, once. The result of a call that
 * failed, and what was computed from it, is then undefined; nothing else is.
 *
 * Functions that may be NULL say what that means. */
#ifndef GD_BACKEND_BACKEND_H
#define GD_BACKEND_BACKEND_H

#include "graph/op.h"

struct gd_text; /* base/text.h */

typedef struct gd_device gd_device;
typedef struct gd_backend gd_backend;
typedef struct gd_replay gd_replay; /* a back end's own */

/* A tensor as a kernel sees it. `data` is the address of element 0 (the layout's offset is already
 * applied). */
typedef struct gd_operand {
    void *data;
    const gd_layout *layout;
} gd_operand;

/* Memory that a call works in beside its operands and results: areas side by side, one for each thread
 * that takes part. What is in it has a meaning only while the call runs. */
typedef struct gd_kernel_scratch {
    void *memory; /* of the device's alignment; NULL: the kernel takes the device's own */
    size_t bytes; /* of an area; whole alignments; 0: the call takes none */
    int areas;
    int threads; /* that the device had when it was asked: with another number it takes its own */
} gd_kernel_scratch;

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
    const gd_operand *extra;   /* [gd_op_extra_count] extra results, NULL when there are none */
    const void *packed;        /* operand 1, packed by `pack`, or NULL: it is not packed */
    const void *prepared;      /* what `prepare` made for this call, or NULL in eager mode */
    gd_kernel_scratch scratch; /* as the device asked for it, in a plan's memory; else zeros */
    const struct gd_kernel_call *next; /* of the calls that run_together is given, else NULL */
} gd_kernel_call;

/* Do the work, or see to it that it is done in its turn. Errors are for what only values show, and
 * for what goes wrong in the device. Allocates nothing. */
typedef gd_status (*gd_kernel_fn)(const gd_kernel_call *call);
/* Whether the kernel does this call: a matter of op, attribute, layouts and dtypes alone. Data
 * pointers are not read, nor is `prepared`. */
typedef bool (*gd_takes_fn)(const gd_kernel_call *call);

/* What the compiler may make for a device, and from where on it pays. */
typedef struct gd_device_limits {
    /* Fused groups, at most GD_FUSED_MAX_…; 0 instructions: none of that kind. */
    int32_t group_inputs, group_results; /* results besides the last instruction's */
    int32_t group_instructions;          /* of an elementwise group */
    int32_t row_group_instructions;      /* of one with reductions */
    int64_t row_length;                  /* elements of its rows, at most GD_FUSED_MOST_ROW */
    bool products_commute;               /* matmul(y^T, x^T) has the bits of matmul(x, y)^T */
    bool group_draws;                    /* elementwise groups draw words of the random stream */
    /* An op whose result others read as well moves down to a group at most so many ops where its
     * operands would live longer for it; in groups with reductions, such a reduction does. */
    int32_t group_distance, row_group_distance;
    /* run_together: bytes of a result, and of what waits in the plan's memory for a batch. */
    size_t together_result, together_waiting;
    /* A plan whose values are so many bytes at most has each in memory of its own: ops that need not
     * wait for one another do not wait for their memory either. */
    size_t apart_bytes;
} gd_device_limits;

/* A place in a device's memory as other libraries name it: DLPack's type of device and the number of
 * the device, what they have for a pointer (an address, or an object such as a cl_mem), and bytes
 * behind it. */
typedef struct gd_foreign_place {
    int32_t device_type, device_id;
    void *pointer;
    uint64_t offset;
} gd_foreign_place;

struct gd_device {
    const gd_backend *backend;
    const char *name;       /* "cpu" */
    const char *isa;        /* "avx512" */
    const char *extensions; /* of it, those that kernels use: "avx512_vnni"; NULL: there are none */
    int threads;
    gd_dtype_set half_products; /* halves that its matmul multiplies; others are widened before */
    bool half_recurrent;        /* and a recurrent network's weight may be bf16 */
    bool host_memory;           /* the host may read and write at the device's addresses */
    size_t alignment;           /* of addresses: a power of two, 64 or more */
    gd_kernel_fn kernel[GD_OP_COUNT]; /* NULL: decompose, and failing that an error */
    gd_takes_fn takes[GD_OP_COUNT];   /* which calls the kernel does; NULL: all */
    /* Which calls with f16 or bf16 among operands that their op's row has in `halves`, or as result, the
     * kernel does: in f32, with the bits that casts would give. NULL: none. */
    gd_takes_fn takes_halves;
    gd_device_limits limits;
};

struct gd_backend {
    const char *name;
    /* How many devices of this kind there are, and their names, "<name>:0" and so on. NULL: one,
     * called `name`. */
    int (*count)(void);
    const char *const *names;
    /* Which numbers its devices may have besides exact ones (gd_open_options): */
    bool has_libraries; /* those of a library, and fast ones */
    bool has_fast;      /* fast ones */
    /* Device number `index`, or NULL with the error recorded: with `count`, also of a number that is
     * none's. */
    gd_device *(*open)(const gd_open_options *options, int index);
    /* Waits; errors of work that nobody waited for are lost. */
    void (*close)(gd_device *device);
    gd_status (*set_threads)(gd_device *device, int threads);

    /* Memory for the pool, of the device's alignment. NULL when out. */
    void *(*memory_alloc)(gd_device *device, size_t bytes);
    /* After all work told so far. */
    void (*memory_free)(gd_device *device, void *memory, size_t bytes);
    /* From the host to the device, from the device to the host (waits), and within the device, where
     * the two do not overlap. Addresses need no alignment. */
    gd_status (*memory_write)(gd_device *device, void *to, const void *from_host, size_t bytes);
    gd_status (*memory_read)(gd_device *device, void *to_host, const void *from, size_t bytes);
    gd_status (*memory_copy)(gd_device *device, void *to, const void *from, size_t bytes);
    /* Bytes of memory the device has, and how many of them nobody has taken. NULL: not known. */
    void (*memory_size)(const gd_device *device, size_t *total, size_t *available);
    /* Waits until everything told so far is done. NULL: it is, when a function returns. */
    gd_status (*synchronize)(gd_device *device);

    /* Memory shared with other libraries; NULL: none, or it is the host's. The place of an address
     * (NULL: the device alone); who gives it away synchronizes first. */
    gd_status (*memory_name)(gd_device *device, const void *address, gd_foreign_place *place);
    /* An address for `bytes` from a place on, which stay the other library's, when all work on the
     * device is done. NULL: GD_ERR_UNSUPPORTED, of another device; GD_ERR_MEMORY. */
    void *(*memory_adopt)(gd_device *device, const gd_foreign_place *place, size_t bytes);
    /* Ends an address from memory_adopt, when all work told so far is done. */
    void (*memory_disown)(gd_device *device, void *address);

    /* For plans; NULL where nothing can be prepared. Bytes that work on a call's layouts and
     * attribute alone takes (0: none), and doing it into memory aligned to 8, to be given to the
     * kernel as call->prepared at every run. Data pointers are not read. What is prepared holds no
     * addresses in the call or in itself: it may be copied. */
    size_t (*prepare_bytes)(const gd_kernel_call *call);
    gd_status (*prepare)(const gd_kernel_call *call, void *memory);
    /* Packs operand 1 of a call once, for plans in which it is constant. pack_bytes: the size of the
     * packed operand, 0 where packing does not pay; it reads no data pointers. pack: writes it to memory
     * of the device's alignment, which the kernel is given as call->packed. That address is set before
     * `scratch`, `prepare` and `explain`, which only compare it with NULL. NULL: nothing is packed. */
    size_t (*pack_bytes)(const gd_kernel_call *call);
    void (*pack)(const gd_kernel_call *call, void *memory);
    /* The scratch of a call, which a plan places among its values. Data pointers are not read, nor is
     * `prepared`. NULL: kernels have all they need, as in eager mode. */
    gd_kernel_scratch (*scratch)(const gd_kernel_call *call);
    /* Adds to `text` how the kernel does a call, whose `prepared` is set as a plan has it, and why, in a
     * few words. NULL, and nothing added: there is one way. Data pointers are not read. */
    void (*explain)(const gd_kernel_call *call, struct gd_text *text);
    /* Whether a prepared call runs on the host instead, on copies of its operands, which waits. NULL: none. */
    bool (*runs_on_host)(const gd_kernel_call *call);
    /* A call and those behind it by `next`, all prepared, of `fused`, elementwise ops, cast and adam.
     * None reads or writes what another one writes: their work together is divided among the
     * threads. NULL: there is no such kernel. */
    gd_kernel_fn run_together;
    /* The calls of a plan, all prepared, one after another. *replay, NULL at first and ended by
     * replay_free: what the device keeps to tell them at once the next time. NULL: calls are run one
     * by one. */
    gd_status (*run_calls)(gd_device *device, const gd_kernel_call *const *calls, size_t count,
                           gd_replay **replay);
    void (*replay_free)(gd_device *device, gd_replay *replay);
    /* Adds to `text` how run_calls does them, as a sentence about the device without its end. NULL, and
     * nothing added: there is one way. */
    void (*explain_calls)(gd_device *device, const gd_kernel_call *const *calls, size_t count,
                          struct gd_text *text);
};

/* Whether a call reads halves, or rounds its result to them, that its op computes in f32. */
static inline bool gd_call_has_halves(const gd_kernel_call *call)
{
    bool has = call->op->halves && gd_dtype_is_half(call->out.layout->dtype);
    for (int i = 0; i < call->n && call->op->halves >> i; i++)
        has |= call->op->halves >> i & 1 && gd_dtype_is_half(call->in[i].layout->dtype);
    return has;
}

/* Whether the device has a kernel for this call. */
static inline bool gd_device_takes(const gd_kernel_call *call)
{
    const gd_device *device = call->device;
    const gd_op_id id = call->op->id;
    if (device->kernel[id] && gd_call_has_halves(call))
        return device->takes_halves && device->takes_halves(call);
    return device->kernel[id] && (!device->takes[id] || device->takes[id](call));
}

static inline gd_status gd_device_synchronize(gd_device *device)
{
    return device->backend->synchronize ? device->backend->synchronize(device) : GD_OK;
}

/* memory_size of devices in the host's memory. */
void gd_host_memory_size(const gd_device *device, size_t *total, size_t *available);

/* ---- which back ends there are: backend/backend.c ---- */

extern const gd_backend gd_backend_cpu, gd_backend_reference, gd_backend_opencl, gd_backend_cuda;

/* The back end of the device called `name`, "<back end>" or "<back end>:<number>", and its number;
 * NULL when there is none. */
const gd_backend *gd_backend_find(const char *name, int *index);
/* Adds one to those of the build, before contexts are opened: tests bring theirs. */
gd_status gd_backend_add(const gd_backend *backend);
/* The class of numbers for gd_open_options.numbers: by default what GRADUS_NUMBERS says.
 * GD_ERR_INVALID, recorded, for a value that is none. */
gd_status gd_numbers_choose(gd_numbers chosen, gd_numbers *numbers);

/* The names of all devices as text for a sentence: "cpu", "reference". */
#define GD_DEVICE_NAMES 512
const char *gd_device_names(char text[GD_DEVICE_NAMES]);

/* ---- fused groups ---- */

/* A fused group: a straight-line program over elements, the attribute of op `fused`. Values are
 * numbered: inputs first, then one per instruction; the last instruction's value is the result.
 * Values of other instructions may be results too.
 *
 * Elementwise (row_axes 0): all values have one shape, that of the result. Such a group may hold the
 * op `adam` or `adam_bf16`, once: its instruction's value is the first result, and instructions `extra_result` of
 * that value are the others.
 *
 * With reductions (row_axes > 0): `shape` is cut into rows, its last row_axes axes. A value is
 * whole, an element for each of `shape`, or one number a row (is_row). sum, prod, max and min make
 * one number a row of a whole value, of f32 or f64, in the order of the op's own kernel on a
 * contiguous operand; numbers of rows are broadcast where an instruction makes a whole value. A
 * row has 2 to GD_FUSED_MOST_ROW elements. */
/* What an attribute has room for; how much of it a device takes is in its limits. */
#define GD_FUSED_MAX_INPUTS       16
#define GD_FUSED_MAX_INSTRUCTIONS 64 /* with reductions */
#define GD_FUSED_MAX_ELEMENTWISE  32 /* without */
#define GD_FUSED_MAX_EXTRA        6  /* results besides the last instruction's */
#define GD_FUSED_MAX_OPERANDS     11 /* of an instruction: adam_bf16's */
#define GD_FUSED_MOST_ROW         4096
typedef struct gd_fused_instruction {
    int16_t
        op; /* gd_op_id of an elementwise op, GD_OP_cast, of a reduction, adam, adam_bf16 or extra_result */
    int16_t dtype;                       /* dtype of the value it makes */
    int16_t from[GD_FUSED_MAX_OPERANDS]; /* numbers of its operands; extra_result: the op's value,
                                            then which result */
    int16_t compute;                     /* dtype of the operands */
    int16_t is_row;                      /* it makes one number a row */
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

    /* Without reductions. Bit i of drawn_inputs: input i is the state of the random stream, i64 [2], and the
     * group draws words of the stream, i32 of `shape`, to compute with. The first of them is number
     * first_word[i], counted from the stream's position. */
    uint32_t drawn_inputs;
    uint64_t first_word[GD_FUSED_MAX_INPUTS];
} gd_fused_attr;

/* The op adam or adam_bf16 by itself as a group: instruction i makes its result i. */
gd_fused_attr gd_fused_adam(const gd_op *op);

static inline bool gd_is_adam(gd_op_id op)
{
    return op == GD_OP_adam || op == GD_OP_adam_bf16;
}

/* How many extra results an op has: a fused group, or one whose row says so. */
static inline int gd_op_extra_count(const gd_op *op, const void *attr)
{
    return op->id == GD_OP_fused ? ((const gd_fused_attr *)attr)->n_extra : op->extra;
}

/* Whether input i of an op is words that a fused group draws. */
static inline bool gd_fused_draws(const gd_op *op, const void *attr, int i)
{
    return op->id == GD_OP_fused && ((const gd_fused_attr *)attr)->drawn_inputs >> i & 1;
}

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
