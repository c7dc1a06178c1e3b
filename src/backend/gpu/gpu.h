/* backend/gpu/gpu.h: devices with memory of their own and programs that are compiled when they are
 * needed. What all of them share is written once, in this folder: addresses, staging, kernels' text
 * and their cache, what runs on the host instead. What differs, a gd_gpu_driver, is a file for each
 * interface: backend/opencl. Start at gd_gpu_open in device.c.
 *
 * Addresses. A driver's memory has handles. For each block that it gives, as many bytes of address
 * space are reserved, without access: those are the device's addresses, and gd_gpu_place_of finds
 * the block again.
 *
 * Kernels have the CPU's bits, or there is none: then the op runs on the CPU device `host`, on copies
 * of its operands (host.c). So which ops have kernels changes times, and nothing else. */
#ifndef GD_BACKEND_GPU_GPU_H
#define GD_BACKEND_GPU_GPU_H

#include "backend/backend.h"
#include "base/buffer.h"
#include "codegen/codegen.h"

typedef struct gd_gpu gd_gpu;
struct gd_gpu_convolution; /* convolution.h */
struct gd_conv_sizes;      /* ops/spatial.h */

/* Bytes of the device: in one of the driver's blocks, from `offset` on. */
typedef struct gd_gpu_place {
    void *block;
    size_t offset;
} gd_gpu_place;

enum {
    GD_GPU_PLACES = GD_LOOP_OPERANDS,
};

/* One run of a kernel: its arguments are the places, then a struct of the numbers. */
typedef struct gd_gpu_launch {
    void *kernel;
    int places, numbers;
    const gd_gpu_place *place;
    const int64_t *number;
    int64_t groups[2]; /* work-groups along two axes; along the second at most 65535 */
    int items;         /* of a group, along the first axis */
} gd_gpu_launch;

/* A matrix as libraries name it: between neighbours in a row, or where it is transposed in a column, there
 * are no gaps. */
typedef struct gd_gpu_matrix {
    int64_t is_transposed;
    int64_t stride; /* elements from a row to the next, or from a column */
    int64_t batch;  /* elements from a matrix to the next of a batch, perhaps 0 */
} gd_gpu_matrix;

/* Products by a library: c [m, n], without gaps, is a [m, k] b [k, n], of each of a batch; where has_bias,
 * a vector [n] is added. */
typedef struct gd_gpu_product {
    int64_t dtype; /* of a and b; c and the bias are f32 */
    int64_t m, n, k, batch, has_bias;
    gd_gpu_matrix a, b;
} gd_gpu_product;

enum { GD_GPU_PRODUCT_WORKSPACE = 32 << 20 /* bytes that libraries' algorithms are chosen for */ };

/* Functions return before their work is done, but for those that say that they wait. All work is
 * done in the order it is told. A gd_status other than GD_OK, and NULL, have their sentence
 * recorded. */
typedef struct gd_gpu_driver {
    gd_dialect dialect;
    /* Device `index` into gpu->own, and what gpu.h says that the driver fills in. */
    gd_status (*open)(gd_gpu *gpu, int index);
    void (*close)(gd_gpu *gpu); /* of what open made, even in part */

    /* DLPack's type of such devices, and whether blocks are addresses, which it adds offsets to. */
    int32_t dlpack_type;
    bool is_addressed;
    /* Waits for all work on the device, other libraries' too, and looks whether a block of theirs, of
     * so many bytes at least, can be used here: GD_ERR_UNSUPPORTED. */
    gd_status (*block_adopt)(gd_gpu *gpu, void *block, size_t bytes);
    void *(*block_create)(gd_gpu *gpu, size_t bytes);
    void (*block_release)(gd_gpu *gpu, void *block); /* after all work told so far */
    size_t (*available)(const gd_gpu *gpu);          /* bytes; NULL: what we have not taken */
    /* Memory of the host that the device copies from at its best. NULL: any is. */
    void *(*staging_create)(gd_gpu *gpu, size_t bytes);
    void (*staging_release)(gd_gpu *gpu, void *memory);
    /* write: with `mark`, *mark is a point in the order of work; until is_past says so, or await has
     * waited for it, the source stays as it is. NULL: waits. */
    gd_status (*write)(gd_gpu *gpu, gd_gpu_place to, const void *from, size_t bytes, void **mark);
    gd_status (*read)(gd_gpu *gpu, void *to, gd_gpu_place from, size_t bytes); /* waits */
    gd_status (*copy)(gd_gpu *gpu, gd_gpu_place to, gd_gpu_place from, size_t bytes);
    /* Both end the mark; is_past only where it says true. */
    bool (*is_past)(gd_gpu *gpu, void *mark);
    gd_status (*await)(gd_gpu *gpu, void *mark);
    gd_status (*synchronize)(gd_gpu *gpu); /* waits */

    /* The kernel called `name` of a program. */
    void *(*kernel_compile)(gd_gpu *gpu, const char *text, const char *name);
    /* The same from what kernel_binary gave, perhaps in another process; NULL, and nothing is
     * recorded, where that does not do. */
    void *(*kernel_load)(gd_gpu *gpu, const void *binary, size_t bytes, const char *name);
    gd_status (*kernel_binary)(gd_gpu *gpu, void *kernel, gd_text_buffer *out);
    void (*kernel_release)(gd_gpu *gpu, void *kernel);
    gd_status (*launch)(gd_gpu *gpu, const gd_gpu_launch *launch);

    /* Products, of a, b, bias (read where has_bias), c, and so many bytes of workspace, which are at
     * `place` in this order. *adds_bias: whether the bias was added. NULL: numbers are exact. */
    gd_status (*product)(gd_gpu *gpu, const gd_gpu_product *product, const gd_gpu_place *place,
                         size_t workspace_bytes, bool *adds_bias);

    /* Convolutions; NULL: numbers are exact. find: whether the library has one with the numbers that
     * gpu->numbers asks for, and the bytes of gpu->workspace that it wants; what it keeps of that is made at
     * the first question. run: with the places of x, w and y, one of which is the result's. */
    gd_status (*convolution_find)(gd_gpu *gpu, const struct gd_gpu_convolution *c, bool *is_there,
                                  size_t *workspace);
    gd_status (*convolution_run)(gd_gpu *gpu, const struct gd_gpu_convolution *c,
                                 const gd_gpu_place *place);

    /* Launches told between the two are not done: they become a graph, or NULL with the error
     * recorded. Nothing else is told between them. NULL: there are no graphs. */
    gd_status (*record_begin)(gd_gpu *gpu);
    void *(*record_end)(gd_gpu *gpu);
    gd_status (*replay)(gd_gpu *gpu, void *graph); /* all of them, in their order */
    void (*graph_release)(gd_gpu *gpu, void *graph);
} gd_gpu_driver;

typedef struct gd_gpu_chunk {
    char *address; /* reserved */
    size_t bytes, reserved;
    void *block;
    bool is_foreign; /* another library's block */
} gd_gpu_chunk;

/* A block of host memory that grows, and is what ops on the host compute in. */
typedef struct gd_gpu_scratch {
    char *memory;
    size_t bytes;
} gd_gpu_scratch;

typedef struct gd_gpu_staging gd_gpu_staging;
typedef struct gd_gpu_kernels gd_gpu_kernels;

struct gd_gpu {
    gd_device base; /* first */
    const gd_gpu_driver *driver;
    gd_device *host;

    /* filled in by the driver */
    void *own;
    int index;              /* of the device among its kind */
    char description[128];  /* of the device: base.isa */
    char identity[512];     /* of all that a binary depends on besides its text */
    size_t memory;          /* bytes it has */
    size_t alignment;       /* of addresses */
    size_t parameter_bytes; /* of a kernel's arguments */
    size_t place_bytes;     /* of one argument that is a place */
    bool is_without_f64;    /* it has elements of f64, and no arithmetic for them */
    int plan_items;  /* of a work-group of a plan's one kernel: a power of two, 256 at least */
    int plan_blocks; /* its work-groups, all of which can meet at a barrier */
    double
        kernel_cycles; /* that a kernel more in a graph takes; 0: one kernel pays only if asked for */

    gd_gpu_chunk *chunks; /* by address */
    size_t chunk_count, chunk_capacity, taken;
    gd_gpu_staging *staging;
    gd_gpu_kernels *kernels;
    gd_gpu_scratch scratch;
    void *workspace; /* of jobs, on the device */
    size_t workspace_bytes;
    void *found;                    /* found.c, on the device */
    bool may_find;                  /* since somebody looked there */
    uint64_t launched, ran_on_host; /* calls so far */
    uint64_t recorded, replayed;    /* plans as one launch: made, and run */
    uint64_t one_kernels;           /* plans run as one kernel */
    int one_kernel;                 /* GRADUS_ONE_KERNEL: 0 as it pays, 1 always, -1 never */
    bool refuses_f64;               /* GRADUS_F64: such ops do not run on the host */
    gd_numbers numbers;             /* exact, unless the back end has libraries */
    uint64_t released;              /* blocks */
    uint64_t compiled, loaded;      /* kernels: from text, from the cache on disk */
};

/* ---- device.c: what a back end on a driver is made of ---- */

gd_device *gd_gpu_open(const gd_backend *backend, const gd_gpu_driver *driver, int index,
                       const gd_open_options *options);
void gd_gpu_close(gd_device *device);
gd_status gd_gpu_set_threads(gd_device *device, int threads);
gd_status gd_gpu_memory_write(gd_device *device, void *to, const void *from, size_t bytes);
gd_status gd_gpu_memory_read(gd_device *device, void *to, const void *from, size_t bytes);
gd_status gd_gpu_memory_copy(gd_device *device, void *to, const void *from, size_t bytes);
void gd_gpu_memory_size(const gd_device *device, size_t *total, size_t *available);
gd_status gd_gpu_synchronize(gd_device *device);
size_t gd_gpu_prepare_bytes(const gd_kernel_call *call);
gd_status gd_gpu_prepare(const gd_kernel_call *call, void *memory);
/* Whether a prepared call has no kernel. */
bool gd_gpu_runs_on_host(const gd_kernel_call *call);
/* The functions of a gd_backend that are the same for all drivers. */
#define GD_GPU_BACKEND_FUNCTIONS                                                                   \
    .close = gd_gpu_close, .set_threads = gd_gpu_set_threads, .memory_alloc = gd_gpu_memory_alloc, \
    .memory_free = gd_gpu_memory_free, .memory_write = gd_gpu_memory_write,                        \
    .memory_read = gd_gpu_memory_read, .memory_copy = gd_gpu_memory_copy,                          \
    .memory_size = gd_gpu_memory_size, .synchronize = gd_gpu_synchronize,                          \
    .memory_name = gd_gpu_memory_name, .memory_adopt = gd_gpu_memory_adopt,                        \
    .memory_disown = gd_gpu_memory_disown, .prepare_bytes = gd_gpu_prepare_bytes,                  \
    .prepare = gd_gpu_prepare, .run_calls = gd_gpu_run_calls, .replay_free = gd_gpu_replay_free,   \
    .explain_calls = gd_gpu_explain_calls, .runs_on_host = gd_gpu_runs_on_host

/* ---- replay.c ---- */

gd_status gd_gpu_run_calls(gd_device *device, const gd_kernel_call *const *calls, size_t count,
                           gd_replay **replay);
void gd_gpu_replay_free(gd_device *device, gd_replay *replay);
void gd_gpu_explain_calls(gd_device *device, const gd_kernel_call *const *calls, size_t count,
                          struct gd_text *text);

/* ---- one_kernel.c: small plans as one kernel ---- */

typedef struct gd_one_kernel gd_one_kernel;

/* Whether it pays, or, where the environment says so, whether it can be. Adds to `text` how many steps
 * it has, or why not. */
bool gd_gpu_one_kernel_pays(gd_gpu *gpu, const gd_kernel_call *const *calls, size_t count,
                            struct gd_text *text);
/* NULL, and nothing recorded as an error: it did not come about. */
gd_one_kernel *gd_gpu_one_kernel_make(gd_gpu *gpu, const gd_kernel_call *const *calls,
                                      size_t count);
void gd_gpu_one_kernel_free(gd_gpu *gpu, gd_one_kernel *one);
/* addresses: a hash of all that the calls have. *done: false where their operands lie in more blocks
 * than a kernel is given; then nothing was done. */
gd_status gd_gpu_one_kernel_run(gd_gpu *gpu, gd_one_kernel *one, const gd_kernel_call *const *calls,
                                uint64_t addresses, bool *done);

/* ---- addresses.c ---- */

void *gd_gpu_memory_alloc(gd_device *device, size_t bytes);
void gd_gpu_memory_free(gd_device *device, void *memory, size_t bytes);
gd_status gd_gpu_memory_name(gd_device *device, const void *address, gd_foreign_place *place);
void *gd_gpu_memory_adopt(gd_device *device, const gd_foreign_place *place, size_t bytes);
void gd_gpu_memory_disown(gd_device *device, void *address);
/* The block that an address lies in. GD_ERR_STATE: in none. */
gd_status gd_gpu_place_of(const gd_gpu *gpu, const void *address, gd_gpu_place *place);

/* ---- staging.c: what the host writes goes through memory of ours, and nobody waits ---- */

gd_gpu_staging *gd_gpu_staging_open(gd_gpu *gpu);
void gd_gpu_staging_close(gd_gpu *gpu);
gd_status gd_gpu_staging_write(gd_gpu *gpu, gd_gpu_place to, const void *from, size_t bytes);

/* ---- host.c: ops without a kernel ---- */

size_t gd_gpu_host_prepare_bytes(const gd_kernel_call *call);
gd_status gd_gpu_host_prepare(const gd_kernel_call *call, void *memory);
gd_status gd_gpu_host_run(const gd_kernel_call *call, const void *prepared);

/* ---- kernels.c: compiled kernels by what they compute ---- */

gd_gpu_kernels *gd_gpu_kernels_open(void);
void gd_gpu_kernels_close(gd_gpu *gpu);

/* A program with one kernel: definitions, then the functions of the library that it needs, its own
 * text last. */
typedef struct gd_gpu_source {
    char kernel[64]; /* its name; where the text has none of that name, one of the library's */
    gd_text_buffer definitions, text;
    gd_codegen_functions functions;
} gd_gpu_source;

/* Writes the program of a key, bytes that say all that its text depends on. */
typedef void (*gd_gpu_writer)(const void *key, gd_gpu_source *source);
/* The kernel of a key; written, and compiled or found in the cache, at the first use. NULL: not to
 * be had. */
void *gd_gpu_kernel(gd_gpu *gpu, const void *key, size_t bytes, gd_gpu_writer write);
/* Whether the program of a key computes in f64, or could not be written; nothing is compiled. */
bool gd_gpu_kernel_has_f64(gd_gpu *gpu, const void *key, size_t bytes, gd_gpu_writer write);
/* Kernel `name` of a program; compiled or found likewise, by its text. */
void *gd_gpu_kernel_of(gd_gpu *gpu, const gd_text_buffer *program, const char *name);
/* For those who make a program of several keys: *source, which is zero, of a key, and in `used` all of
 * it, for gd_codegen_link_part. */
gd_status gd_gpu_source_write(const void *key, gd_gpu_writer write, gd_gpu_source *source,
                              gd_text_buffer *used);
void gd_gpu_source_free(gd_gpu_source *source); /* which gd_alloc gave, or NULL */

/* ---- job.c: what a call becomes on the device: launches of kernels, one after another ---- */

enum {
    GD_GPU_NUMBERS = 128,
    GD_GPU_KEY = 1024, /* bytes */
    GD_GPU_STEPS = 16, /* of a job: four of the inputs of a concat each */
    /* in place of an operand's number */
    GD_GPU_WORKSPACE = -1,
    GD_GPU_FOUND = -2, /* found.c */
};

/* A launch, without addresses. */
typedef struct gd_gpu_step {
    gd_gpu_writer write; /* its kernel, of the key */
    size_t key_bytes;
    union {
        char text[GD_GPU_KEY];
        uint64_t aligned;
    } key;
    int places, numbers;
    int8_t place[GD_GPU_PLACES]; /* numbers of operands: inputs, the result, extra results */
    int64_t number[GD_GPU_NUMBERS];
    int64_t groups[2];
    int items;
    bool is_too_large;   /* for the room there is: then there is no kernel */
    bool is_copy;        /* of the first place to the second: nothing to do where they are one */
    bool is_uneven;      /* how many barriers a group has depends on its number */
    bool is_product;     /* a library's, whose numbers are those of library_product.c */
    bool is_bias;        /* adds the bias, unless the product before it did */
    bool is_convolution; /* a library's, whose numbers are a gd_gpu_convolution */
} gd_gpu_step;

typedef struct gd_gpu_job {
    int steps; /* 0: there is nothing to do */
    /* Bytes that the steps share, of the same memory for all jobs: what is there lasts no longer
     * than the job. */
    size_t workspace;
    int64_t turns; /* 1; or all steps are run so many times over, their first number the turn's */
    gd_gpu_step step[GD_GPU_STEPS];
} gd_gpu_job;

/* What a call becomes; false: there is no kernel for it, or it computes in f64, which the device does
 * not have. A matter of op, attribute, layouts and dtypes alone. Nothing is compiled yet. */
bool gd_gpu_describe(const gd_kernel_call *call, gd_gpu_job *job);

/* For those who describe. A step in `groups` groups of `items` items, to be given a key and its
 * arguments in the order the kernel has them. */
gd_gpu_step *gd_gpu_add_step(gd_gpu_job *job, int64_t groups, int items);
/* One of the library's kernel `name`, whose text depends on definitions: gd_gpu_define. */
gd_gpu_step *gd_gpu_add_kernel(gd_gpu_job *job, const char *name, int64_t groups, int items);
void gd_gpu_define(gd_gpu_step *step, const char *name, const char *format, ...) GD_PRINTF(3, 4);
void gd_gpu_add_place(gd_gpu_step *step, int operand);
void gd_gpu_add_number(gd_gpu_step *step, int64_t number);
/* The bits of x as f64, or rounded to f32. */
void gd_gpu_add_real(gd_gpu_step *step, gd_dtype dtype, double x);
/* rank, then GD_MAX_RANK sizes, then as many strides of each operand: "gd_loops<n>" in the text. */
void gd_gpu_add_loops(gd_gpu_step *step, const gd_loops *loops);
static inline int64_t gd_gpu_groups(int64_t items, int of_group)
{
    return (items + of_group - 1) / of_group;
}

/* The address of a job's operand, as gd_gpu_add_place has it. */
const void *gd_gpu_address_of(const gd_kernel_call *call, int operand);
/* Sees to it that the workspace has so many bytes. */
gd_status gd_gpu_make_workspace(gd_gpu *gpu, size_t bytes);
bool gd_gpu_takes(const gd_kernel_call *call);
gd_status gd_gpu_run(const gd_kernel_call *call, const gd_gpu_job *job);
/* For plans: bytes (0: there is no kernel), making, running. */
size_t gd_gpu_job_bytes(const gd_kernel_call *call);
gd_status gd_gpu_job_prepare(const gd_kernel_call *call, void *memory);
gd_status gd_gpu_job_run(const gd_kernel_call *call, const void *memory);

/* ---- found.c: what only values show ---- */

gd_status gd_gpu_found_open(gd_gpu *gpu);
/* For functions that wait: an index out of range that a kernel found is the error, once. */
gd_status gd_gpu_found_tell(gd_gpu *gpu);

/* ---- cache.c: binaries on disk ---- */

/* What was stored under the text, or false. */
bool gd_gpu_cache_find(const gd_gpu *gpu, const gd_text_buffer *text, gd_text_buffer *binary);
/* It is a cache: nothing is reported. */
void gd_gpu_cache_store(const gd_gpu *gpu, const gd_text_buffer *text,
                        const gd_text_buffer *binary);
void gd_gpu_cache_forget(const gd_gpu *gpu, const gd_text_buffer *text);

/* ---- who describes which ops ---- */

/* elementwise.c: elementwise ops, cast, copy, assign, and groups of them */
bool gd_gpu_describe_elementwise(const gd_kernel_call *call, gd_gpu_job *job);
/* The same for a plan's one kernel, of so many items: false: as it is. */
bool gd_gpu_plan_elementwise(const gd_kernel_call *call, int64_t items, gd_gpu_job *job);
/* reduce.c: reductions, arg reductions, scans */
bool gd_gpu_describe_reduction(const gd_kernel_call *call, gd_gpu_job *job);
bool gd_gpu_describe_arg_reduction(const gd_kernel_call *call, gd_gpu_job *job);
bool gd_gpu_describe_scan(const gd_kernel_call *call, gd_gpu_job *job);
/* The loops over all axes but one of the input, operand 0, and the result, operand 1, which has that
 * axis, or not. */
gd_loops gd_gpu_lines_of(const gd_layout *in, const gd_layout *out, int axis);
/* softmax.c: softmax, log_softmax; cross_entropy and its gradient */
bool gd_gpu_describe_softmax(const gd_kernel_call *call, gd_gpu_job *job);
bool gd_gpu_describe_cross_entropy(const gd_kernel_call *call, gd_gpu_job *job);
/* attention.c */
bool gd_gpu_describe_attention(const gd_kernel_call *call, gd_gpu_job *job);
bool gd_gpu_describe_attention_grad(const gd_kernel_call *call, gd_gpu_job *job);
/* recurrent.c */
bool gd_gpu_describe_recurrent(const gd_kernel_call *call, gd_gpu_job *job);
bool gd_gpu_describe_recurrent_grad(const gd_kernel_call *call, gd_gpu_job *job);
/* product.c: matmul, linear, matmul_relu_grad; convolution and its gradients */
bool gd_gpu_describe_product(const gd_kernel_call *call, gd_gpu_job *job);
bool gd_gpu_describe_convolution(const gd_kernel_call *call, gd_gpu_job *job);
/* What a kernel of a product is told of the call besides how it is cut: the type, the order of sums, what
 * becomes of them, places and numbers. */
void gd_gpu_finish_product(const gd_kernel_call *call, gd_gpu_step *step);
/* product_plan.c: matrix products in a plan's one kernel, of work-groups of `items`. Cycles with so many
 * work-groups, by estimate, and the description; 0 and false: it is none. */
double gd_gpu_plan_product_cycles(const gd_kernel_call *call, int items, int blocks);
bool gd_gpu_plan_product(const gd_kernel_call *call, int items, int blocks, gd_gpu_job *job);
/* library_product.c: products by a library */
bool gd_gpu_is_library_product(const gd_kernel_call *call);
bool gd_gpu_describe_library_product(const gd_kernel_call *call, gd_gpu_job *job);
/* Whether a call is to be written as others: what would join ReLU to a product of the library's, and
 * products of halves that only the host has a kernel for. */
bool gd_gpu_declines(const gd_kernel_call *call);
/* The step of such a job; *has_bias: whether it adds the bias. */
gd_status gd_gpu_run_library_product(gd_gpu *gpu, const int64_t *numbers, const gd_gpu_place *place,
                                     bool *has_bias);
/* library_convolution.c: convolution and its gradients by a library. The first: whether it may be, as far as
 * that is a matter of the op, of dtypes and of what numbers are asked for. */
bool gd_gpu_may_be_library_convolution(const gd_kernel_call *call);
bool gd_gpu_describe_library_convolution(const gd_kernel_call *call, const struct gd_conv_sizes *s,
                                         gd_gpu_job *job);
/* Whether a step is a library's, and no kernel of ours. */
static inline bool gd_gpu_is_of_library(const gd_gpu_step *step)
{
    return step->is_product || step->is_convolution;
}
/* quantized.c */
bool gd_gpu_describe_quantized(const gd_kernel_call *call, gd_gpu_job *job);
/* norm.c */
bool gd_gpu_describe_normalize(const gd_kernel_call *call, gd_gpu_job *job);
bool gd_gpu_describe_normalize_grad(const gd_kernel_call *call, gd_gpu_job *job);
/* pooling.c */
bool gd_gpu_describe_pooling(const gd_kernel_call *call, gd_gpu_job *job);
/* movement.c */
bool gd_gpu_describe_full(const gd_kernel_call *call, gd_gpu_job *job);
bool gd_gpu_describe_iota(const gd_kernel_call *call, gd_gpu_job *job);
bool gd_gpu_describe_pad(const gd_kernel_call *call, gd_gpu_job *job);
bool gd_gpu_describe_concat(const gd_kernel_call *call, gd_gpu_job *job);
/* An element that is only moved is a whole number of its size. */
const char *gd_gpu_moved_type(gd_dtype dtype);
/* random.c */
bool gd_gpu_describe_random(const gd_kernel_call *call, gd_gpu_job *job);
bool gd_gpu_describe_dropout(const gd_kernel_call *call, gd_gpu_job *job);
/* index.c: scatter and scatter_add */
bool gd_gpu_describe_gather(const gd_kernel_call *call, gd_gpu_job *job);
bool gd_gpu_describe_scatter(const gd_kernel_call *call, gd_gpu_job *job);
bool gd_gpu_describe_argsort(const gd_kernel_call *call, gd_gpu_job *job);
bool gd_gpu_describe_searchsorted(const gd_kernel_call *call, gd_gpu_job *job);

#endif
