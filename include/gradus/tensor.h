/* gradus/tensor.h: contexts, dtypes, shapes, scopes, and n-dimensional tensors: creation, views,
 * reading, printing. What can be computed with them is in gradus/ops.h; derivatives are in
 * gradus/autograd.h.
 *
 * Lifetimes. A tensor a function returns is a TEMPORARY: it belongs to the innermost open scope of
 * its context and goes with it. So gd_relu(gd_add(gd_matmul(x, w), b)) leaks nothing and needs no
 * release. What is to live longer is retained: gd_retain(t) gives the caller a reference, to be
 * given back with gd_release(t); gd_keep(t) moves a temporary to the enclosing scope. Tensors share
 * storage: views cost no copy.
 *
 * Handles. A gd_tensor * that was released, or whose scope has ended, is an error of every function
 * of the library it is given to, GD_ERR_STATE, and so is a gd_release without a gd_retain. This
 * holds in every build and costs a comparison. The memory of an ended tensor is used again, and the
 * old handle is told from the new tensor's, unless a multiple of 32 tensors have had the memory in
 * between and the last of them is alive: then it is taken for that one. After gd_close nothing is
 * found: no handle of the context may be used. Under AddressSanitizer ended tensors are poisoned.
 *
 * Threads. A context and what belongs to it is used by one thread at a time. Different contexts are
 * independent. A thread that uses one while another is inside a long call (gd_call, gd_backward,
 * gd_grad, gd_tensor_read, gd_tensor_write) gets GD_ERR_STATE; short calls that overlap are not
 * noticed. gd_release_later alone is for any thread.
 *
 * Broadcasting (NumPy): shapes are aligned at their last axes; an axis of size 1 (or missing)
 * stretches to the other's size.
 *
 * Type promotion for two operands, by category bool < integer < float, as PyTorch and JAX do:
 *   the higher category wins with its own dtype (i64 + f32 -> f32; u8 + bool -> u8);
 *   within integers as in NumPy, the smallest that holds both: of one signedness the larger, of two
 *   the signed one that holds the unsigned (u8 + i8 -> i16, u32 + i32 -> i64); u64 with a signed
 *   one, which no integer dtype holds, is f64;
 *   within floats: f16, bf16 < f32 < f64; f16 with bf16 gives f32.
 *
 *          bool  u8   i8   u16  i16  u32  i32  u64  i64  f16  bf16 f32  f64
 *   bool   bool  u8   i8   u16  i16  u32  i32  u64  i64  f16  bf16 f32  f64
 *   u8     u8    u8   i16  u16  i16  u32  i32  u64  i64  f16  bf16 f32  f64
 *   i8     i8    i16  i8   i32  i16  i64  i32  f64  i64  f16  bf16 f32  f64
 *   u16    u16   u16  i32  u16  i32  u32  i32  u64  i64  f16  bf16 f32  f64
 *   i16    i16   i16  i16  i32  i16  i64  i32  f64  i64  f16  bf16 f32  f64
 *   u32    u32   u32  i64  u32  i64  u32  i64  u64  i64  f16  bf16 f32  f64
 *   i32    i32   i32  i32  i32  i32  i64  i32  f64  i64  f16  bf16 f32  f64
 *   u64    u64   u64  f64  u64  f64  u64  f64  u64  f64  f16  bf16 f32  f64
 *   i64    i64   i64  i64  i64  i64  i64  i64  f64  i64  f16  bf16 f32  f64
 *   f16    f16   f16  f16  f16  f16  f16  f16  f16  f16  f16  f32  f32  f64
 *   bf16   bf16  bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 f32  bf16 f32  f64
 *   f32    f32   f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f64
 *   f64    f64   f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64
 *
 * Arithmetic on two bools gives i32 (True counts 1). Integer arithmetic wraps, modulo 2^bits; sums
 * and products of many elements are u64 of unsigned integers, i64 of all others and of bools. Functions
 * such as exp of an integer or bool compute in f32; gd_floor, gd_ceil, gd_round and gd_trunc leave
 * them as they are. Conversions: floats to integers toward zero, what is out of range to the
 * nearest end of it, NaN to 0; integers to integers modulo 2^bits; to bool x != 0; to floats
 * rounded once.
 * f16 and bf16 are storage: every function computes them in f32 and rounds once, to nearest even;
 * matrix products of bf16 by the processor's own instructions, with sums in f32 (precision.h).
 *
 * C numbers. Beside a tensor of floats a number has the tensor's dtype. Beside integers and bools:
 *   in division and powers, which compute integers as f32, it is f32;
 *   in other arithmetic a whole number has the tensor's dtype (beside bools i32), as in NumPy 2; a
 *   number that is not whole is f32, and so is the result.
 * A number that must be an integer and is none of the dtype's is GD_ERR_INVALID, never cut off,
 * wrapped or saturated: gd_add_scalar(u8, 256), gd_full(…, 2.5, GD_I32). Where a number is to be a
 * bool, all but 0 are true.
 */
#ifndef GRADUS_TENSOR_H
#define GRADUS_TENSOR_H

#include <gradus/base.h>
#include <gradus/options.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GD_MAX_RANK 8

typedef enum gd_dtype {
    GD_F32, /* IEEE binary32; the default wherever a dtype may be left out */
    GD_F64, /* IEEE binary64 */
    GD_I32,
    GD_I64,
    GD_U8,
    GD_BOOL, /* one byte, 0 or 1 */
    GD_F16,  /* IEEE binary16, storage only */
    GD_BF16, /* bfloat16, storage only */
    GD_I8,
    GD_I16,
    GD_U16,
    GD_U32,
    GD_U64,
    GD_DTYPE_COUNT
} gd_dtype;

/* "f32", "i64", … ; "?" for a number that is no dtype. */
GD_API const char *gd_dtype_name(gd_dtype dtype);
/* Bytes an element takes; 0 for a number that is no dtype. */
GD_API size_t gd_dtype_size(gd_dtype dtype);
/* Whether it is one of the float dtypes; of the integer dtypes (bool is none). */
GD_API bool gd_dtype_is_float(gd_dtype dtype);
GD_API bool gd_dtype_is_integer(gd_dtype dtype);
/* The dtype two operands are computed in (table above). */
GD_API gd_dtype gd_dtype_promote(gd_dtype a, gd_dtype b);

/* A shape by value. Rank 0 is a single number. */
typedef struct gd_shape {
    int rank; /* 0 … GD_MAX_RANK */
    int64_t dim[GD_MAX_RANK];
} gd_shape;

/* A list of axes for reductions; negative axes count from the end. GD_ALL_AXES means every axis. */
typedef struct gd_axes {
    int count; /* 0 … GD_MAX_RANK, or -1 for all */
    int axis[GD_MAX_RANK];
} gd_axes;

/* Where an index is wanted: there is none. */
#define GD_NO_INDEX INT64_MIN

/* GD_SHAPE(32, 784), GD_AXES(0, -1). */
#ifdef __cplusplus
#define GD_SHAPE(...) gd_shape_of(__VA_ARGS__)
#define GD_SCALAR     gd_shape_of()
#define GD_AXES(...)  gd_axes_of(__VA_ARGS__)
#define GD_ALL_AXES   (gd_axes{ -1, {} })
#else
#define GD_SHAPE(...)                                                                 \
    ((gd_shape){ .rank = (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), \
                 .dim = { __VA_ARGS__ } })
#define GD_SCALAR ((gd_shape){ .rank = 0 })
#define GD_AXES(...)                                                          \
    ((gd_axes){ .count = (int)(sizeof((int[]){ __VA_ARGS__ }) / sizeof(int)), \
                .axis = { __VA_ARGS__ } })
#define GD_ALL_AXES ((gd_axes){ .count = -1 })
#endif

typedef struct gd_context gd_context;
typedef struct gd_tensor gd_tensor;

/* A function of the user's on tensors, for gd_compile, gd_checkpoint, gd_check_gradients: reads in[0]
 * to in[count - 1] and gives its (first) result; NULL reports the error already recorded. `user` is
 * passed through. */
typedef gd_tensor *(*gd_function_body)(void *user, int count, gd_tensor *const *in);

/* ---- shapes ---- */

/* How many elements a tensor of this shape has; -1 when there can be none of it: a rank not in
 * 0 … GD_MAX_RANK, a negative size, sizes whose product is beyond 2^46. */
GD_API int64_t gd_shape_count(gd_shape shape);
GD_API bool gd_shape_equal(gd_shape a, gd_shape b);
/* The shape two operands broadcast to, in *out; false, and no error, when they do not. */
GD_API bool gd_shape_broadcast(gd_shape a, gd_shape b, gd_shape *out);
/* The strides, in elements, of a row-major tensor of this shape. */
GD_API gd_shape gd_shape_strides(gd_shape shape);
/* Where the element at `index` lies: the sum of index * stride, for strides of gd_shape_strides or
 * gd_tensor_strides. */
GD_API int64_t gd_shape_offset(gd_shape strides, gd_shape index);

/* ---- contexts ---- */

/* The devices of this machine that this build can use, by number from 0 on: "cpu"; "reference", plain
 * loops that everything else is tested against; and where there are any, "opencl:0", "opencl:1", ….
 * NULL for a number that is none's. */
GD_API int gd_device_count(void);
GD_API const char *gd_device_name(int index);

/* Which numbers a device's matrix products have, of f32, f16 and bf16, and its convolutions, of f32; all
 * else, and what is of f64 and integers, is exact in any case. */
typedef enum gd_numbers {
    GD_NUMBERS_DEFAULT, /* what GRADUS_NUMBERS says, exact, library, tf32 or fast; not set: exact */
    GD_NUMBERS_EXACT,   /* the engine's own kernels: the CPU's bits */
    /* The maker's library: sums in f32, in an order of its own, of f32, f16 and bf16 as they are. The
     * same bits run after run on the same type of device with the same version of the library. */
    GD_NUMBERS_LIBRARY,
    /* The same, but that factors of f32 are taken as TF32, with 11 significant bits. */
    GD_NUMBERS_TF32,
    /* On CUDA the same as TF32. On the CPU convolutions of f32 with kernels of 3 x 3 and many channels,
     * and their gradients by the input, by Winograd's filtering, and with AMX large matrix products of f32 as
     * three of bfloat16: the same bits run after run, compiled or not, with any number of threads; all else
     * is exact. docs/devices.md has the bounds of their errors. */
    GD_NUMBERS_FAST,
} gd_numbers;

typedef struct gd_open_options {
    size_t size GD_DEFAULT(sizeof(gd_open_options));
    /* -1: GRADUS_NUM_THREADS, else OMP_NUM_THREADS, else the cores this process may use */
    int threads GD_DEFAULT(-1);
    uint64_t seed; /* of the context's random stream */
    /* bytes of tensor storage, beyond which it is GD_ERR_MEMORY; SIZE_MAX: none */
    size_t memory_limit GD_DEFAULT(SIZE_MAX);
    bool warn_leaks; /* gd_close logs tensors that were retained and never released */
    /* Others than exact: CUDA devices, with NVIDIA's cuBLASLt, and for convolutions its cuDNN, which is
     * looked for at the first one; those that it has no repeatable kernel for are exact. Fast ones: the
     * CPU, too. GD_ERR_UNSUPPORTED where there is no such library, and on devices that cannot have them;
     * GRADUS_NUMBERS leaves these exact. */
    gd_numbers numbers;
} gd_open_options;
#define GD_OPEN_DEFAULTS                                                      \
    .size = sizeof(gd_open_options), .threads = -1, .memory_limit = SIZE_MAX, \
    .numbers = GD_NUMBERS_DEFAULT

/* Open a device, by a name that gd_device_name gives: gd_open("cpu"), gd_open("cpu", .threads = 1);
 * "opencl" is the first of its kind. What a device has no kernel for runs on the host's threads.
 * The caller closes it. NULL: unknown device, numbers it cannot have, bad GRADUS_ISA, memory. */
#define gd_open(...) GD_WITH_1(gd_open_with, gd_open_options, GD_OPEN_DEFAULTS, __VA_ARGS__, )
GD_API gd_context *gd_open_with(const char *device, const gd_open_options *options);

/* Release everything the context owns: scopes, temporaries, modules, optimizers, functions, loaders
 * made from it, and its memory. Tensors still retained become invalid. NULL is fine. */
GD_API void gd_close(gd_context *context);
/* The same if nothing of it is in use any more: no object made from it, no tensor that the user, a
 * mapping or memory shared by DLPack retains. Whether it has been closed. For collectors of other
 * languages, which do not know in which order a context's tensors and the context itself end. */
GD_API bool gd_close_if_unused(gd_context *context);

/* Restart the context's random stream. GD_ERR_STATE while tracing. */
GD_API gd_status gd_seed(gd_context *context, uint64_t seed);
/* Where the stream is: its seed, and how many of its 32-bit words have been used; and to go on from
 * there, as if as many had been used. GD_ERR_STATE while tracing, and zeros. */
typedef struct gd_random_stream {
    uint64_t seed, position;
} gd_random_stream;
GD_API gd_random_stream gd_random_position(const gd_context *context);
GD_API gd_status gd_random_seek(gd_context *context, uint64_t seed, uint64_t position);

/* The device's name ("cpu"), the instruction set in use ("avx512"; "scalar" for the reference
 * device), threads in use. */
GD_API const char *gd_context_device(const gd_context *context);
GD_API const char *gd_context_isa(const gd_context *context);
/* The instruction set's extensions that products of bf16 and of bytes use, with plus signs between them, as
 * GRADUS_ISA takes them: "amx_bf16+avx512_vnni"; "": none. */
GD_API const char *gd_context_extensions(const gd_context *context);
GD_API int gd_context_threads(const gd_context *context);
/* Change the number of threads (at least 1). Results do not depend on it. */
GD_API gd_status gd_context_set_threads(gd_context *context, int threads);
/* Whether tensors' memory is the host's, for gd_tensor_data and gd_from_host_in_place; elsewhere
 * gd_tensor_read and gd_tensor_write copy. */
GD_API bool gd_context_has_host_memory(const gd_context *context);

/* Wait until the device has done all it was told. A device may work behind the host's back: then
 * what goes wrong in it, an index out of range in a tensor among them, is told here or by another
 * function that waits (gd_tensor_read, gd_item, gd_tensor_format), instead of by the op. The error is
 * recorded and returned, once; tensors computed from that op's result are then undefined. "cpu" and
 * "reference" have nothing to wait for. GD_ERR_STATE while tracing. */
GD_API gd_status gd_synchronize(gd_context *context);

/* State of the context's storage pool, in bytes but for counts. */
typedef struct gd_memory_stats {
    size_t in_use;        /* handed out, after rounding up */
    size_t peak;          /* the most ever in use */
    size_t reserved;      /* taken from the device */
    size_t limit;         /* SIZE_MAX: none */
    int64_t free_blocks;  /* pieces available for reuse */
    size_t largest_free;  /* the largest of them */
    uint64_t allocations; /* requests served since open */
    uint64_t from_device; /* of those, how many needed new memory from the device */
    uint64_t splits, merges;
    int64_t live_tensors; /* tensor handles alive */
} gd_memory_stats;
GD_API gd_memory_stats gd_memory(const gd_context *context);
/* The memory of the context's device in bytes, all of it and what no program has taken; 0: not
 * known. */
typedef struct gd_device_memory_size {
    size_t total, available;
} gd_device_memory_size;
GD_API gd_device_memory_size gd_device_memory(const gd_context *context);
GD_API void gd_memory_reset_peak(gd_context *context);
/* A list of the live tensors, the largest first: a line with their number and the bytes of their
 * storage, then one for each: bytes of storage ("shared" with the line before), the op that made it
 * ("parameter": a leaf that requires a gradient), dtype and shape, who has references to it (its
 * scope, 0 the outermost; gd_retain, of users, modules and optimizers; history and functions), and
 * its name. Conventions of gd_tensor_format. For a loop whose memory grows: call it
 * in two iterations and compare. */
GD_API size_t gd_memory_report(const gd_context *context, char *text, size_t size);
/* Give memory nobody uses back to the device. */
GD_API void gd_memory_trim(gd_context *context);
/* Called when `bytes` of storage cannot be had, because of the limit or because the device is out,
 * before what needs them fails. It may release what it can spare: tensors, functions, loaders; then
 * it returns GD_OK and is tried again, which may call it again. Any other status: there is nothing
 * left, and GD_ERR_MEMORY is recorded. It computes nothing, begins and ends no scopes, and should
 * not release operands of what is under way: those of a single op and of gd_call last until that is
 * done, those of functions made of several ops need not. */
typedef gd_status (*gd_memory_callback)(void *user, gd_context *context, size_t bytes);
/* Have it called for this context; NULL: no more. */
GD_API gd_status gd_set_memory_callback(gd_context *context, gd_memory_callback callback,
                                        void *user);

/* Make the context destroy `object` when it closes: last adopted, first destroyed, before its
 * tensors go. */
GD_API gd_status gd_context_adopt(gd_context *context, void *object, void (*destroy)(void *object));
/* Undo that, when the object is destroyed earlier. */
GD_API void gd_context_disown(gd_context *context, void *object);

/* ---- scopes and references ---- */

/* Open a scope; temporaries made from now on go with it. Scopes nest. */
GD_API gd_status gd_scope_begin(gd_context *context);
/* Close the innermost scope and release its temporaries. GD_ERR_STATE when none was begun. */
GD_API gd_status gd_scope_end(gd_context *context);
/* Move a temporary to the scope around its own, so it survives gd_scope_end; nothing happens in the
 * outermost scope. Returns t. */
GD_API gd_tensor *gd_keep(gd_tensor *t);
/* Take a reference; NULL gives NULL. */
GD_API gd_tensor *gd_retain(gd_tensor *t);
/* Take a reference to t and release all temporaries of the innermost scope of t's context: gd_retain,
 * gd_scope_end and gd_scope_begin in one call, for callers that know no scopes (other languages,
 * after each op). NULL, as of an op that failed: only `context`'s scope is emptied. Returns t. */
GD_API gd_tensor *gd_claim(gd_context *context, gd_tensor *t);
/* Give a reference back that gd_retain took; NULL is fine. GD_ERR_STATE, and nothing happens, when
 * there is none: what a scope has goes with the scope. Never recurses, however long the graph
 * behind t. */
GD_API void gd_release(gd_tensor *t);
/* The same from any thread, at any time before gd_close, without waiting: for collectors and
 * callbacks of other languages. The reference is taken off by the next gd_scope_end, gd_claim, gd_call
 * or gd_close of the thread that uses the context. */
GD_API void gd_release_later(gd_tensor *t);

/* ---- creation. All give a temporary of the context; [shape] dtype ---- */

GD_API gd_tensor *gd_zeros(gd_context *context, gd_shape shape, gd_dtype dtype);
GD_API gd_tensor *gd_ones(gd_context *context, gd_shape shape, gd_dtype dtype);
/* Every element `value`; GD_ERR_INVALID for a number the dtype cannot hold (see C numbers, above).
 */
GD_API gd_tensor *gd_full(gd_context *context, gd_shape shape, double value, gd_dtype dtype);
/* The same of an integer, all of whose 64 bits count: a double cannot say 2^53 + 1. A u64 beyond
 * 2^63 - 1 cannot be said so, either: gd_from_host. */
GD_API gd_tensor *gd_full_integer(gd_context *context, gd_shape shape, int64_t value,
                                  gd_dtype dtype);
/* Memory as it is found: to be written to before it is read. In a function that is being traced:
 * zeros. */
GD_API gd_tensor *gd_empty(gd_context *context, gd_shape shape, gd_dtype dtype);
/* A number as a 0-d tensor. */
GD_API gd_tensor *gd_scalar(gd_context *context, double value, gd_dtype dtype);
/* start, start+step, … below stop (above, for a negative step): ceil((stop-start)/step) values,
 * computed as start + i*step in f64 (integers: in integers when start and step are whole). Step
 * 0, a length beyond 2^40 or ends that the dtype cannot hold are GD_ERR_INVALID, bool GD_ERR_DTYPE.
 */
GD_API gd_tensor *gd_arange(gd_context *context, double start, double stop, double step,
                            gd_dtype dtype);
/* `count` values from start to stop inclusive, start + i*((stop-start)/(count-1)), the last exactly
 * stop. Floats only, else GD_ERR_DTYPE; a count not in 0 … 2^40 is GD_ERR_INVALID. */
GD_API gd_tensor *gd_linspace(gd_context *context, double start, double stop, int64_t count,
                              gd_dtype dtype);
/* The n by n identity; a negative n is GD_ERR_INVALID. */
GD_API gd_tensor *gd_eye(gd_context *context, int64_t n, gd_dtype dtype);
/* Uniform in [low, high) from the context's random stream. Floats only. */
GD_API gd_tensor *gd_uniform(gd_context *context, gd_shape shape, double low, double high,
                             gd_dtype dtype);
/* Normal by Box and Muller (1958) from the context's random stream. Floats only. */
GD_API gd_tensor *gd_normal(gd_context *context, gd_shape shape, double mean, double deviation,
                            gd_dtype dtype);
/* Normal, but only values in [low, high]; by inversion, so the bounds should not both lie more than
 * some five deviations to one side of the mean. Bounds may be infinite. */
GD_API gd_tensor *gd_truncated_normal(gd_context *context, gd_shape shape, double mean,
                                      double deviation, double low, double high, gd_dtype dtype);
/* Whole numbers from low to high - 1, all equally likely (to one in 2^53 / (high - low)), of an
 * integer dtype that can hold them, from the context's random stream. Bounds within 2^53. */
GD_API gd_tensor *gd_randint(gd_context *context, gd_shape shape, int64_t low, int64_t high,
                             gd_dtype dtype);
/* The numbers 0 … n-1 in random order: i64 [n]. */
GD_API gd_tensor *gd_permutation(gd_context *context, int64_t n);
/* Copy row-major host memory of exactly the shape's element count. */
GD_API gd_tensor *gd_from_host(gd_context *context, gd_shape shape, gd_dtype dtype,
                               const void *data);
/* Use row-major host memory in place (host devices only; aligned to the element). `release(user)`,
 * if not NULL, is called when the last tensor over it goes; until then the caller keeps it alive,
 * and after changing it calls gd_tensor_modified. */
GD_API gd_tensor *gd_from_host_in_place(gd_context *context, gd_shape shape, gd_dtype dtype,
                                        void *data, void (*release)(void *user), void *user);

/* ---- asking ---- */

GD_API gd_context *gd_tensor_context(const gd_tensor *t);
GD_API gd_shape gd_tensor_shape(const gd_tensor *t);   /* rank 0 for NULL */
GD_API gd_shape gd_tensor_strides(const gd_tensor *t); /* in elements; may be zero or negative */
GD_API gd_dtype gd_tensor_dtype(const gd_tensor *t);
GD_API int64_t gd_tensor_count(const gd_tensor *t); /* number of elements; 0 for NULL */
GD_API bool gd_tensor_is_contiguous(const gd_tensor *t);
/* The address of element 0. NULL for NULL, GD_ERR_STATE while tracing, GD_ERR_UNSUPPORTED on a device
 * whose memory is not the host's: gd_context_has_host_memory. Follow gd_tensor_strides. Who writes
 * through it says so with gd_tensor_modified. */
GD_API void *gd_tensor_data(gd_tensor *t);
/* t's memory has been written through gd_tensor_data, or as that given to gd_from_host_in_place:
 * gradients that need the values from before are GD_ERR_STATE from now on, as after
 * gd_tensor_write, instead of wrong. */
GD_API gd_status gd_tensor_modified(gd_tensor *t);
/* Copy all elements to row-major host memory. `bytes` must be exactly count * dtype size.
 * GD_ERR_STATE while tracing. */
GD_API gd_status gd_tensor_read(const gd_tensor *t, void *out, size_t bytes);
/* Copy row-major host memory of exactly count * dtype size bytes into t's storage (parameters,
 * inputs kept between calls). Seen by every view of it. GD_ERR_STATE while tracing. */
GD_API gd_status gd_tensor_write(gd_tensor *t, const void *data, size_t bytes);
/* The only element as a double; NaN and an error when t has not exactly one. Of an i64 or u64
 * beyond 2^53 rounded: gd_tensor_read gives all of it. */
GD_API double gd_item(const gd_tensor *t);

/* One element: gd_get(t, i, j), gd_set(t, 0.5, i, j). As many indices as t has axes; negative ones
 * count from the end; out of range is GD_ERR_SHAPE. The forms with i64 are exact beyond 2^53, and
 * read no floats (GD_ERR_DTYPE). gd_set rounds to t's dtype; a number that is none of an integer
 * dtype, and for gd_get_i64 a u64 beyond INT64_MAX, is GD_ERR_INVALID. On an error gd_get is NaN,
 * gd_get_i64 0. GD_ERR_STATE while tracing. Each is a transfer of its own: for many elements there is
 * gd_tensor_read, gd_tensor_map. */
#define gd_get(t, ...)            gd_get_at(t, GD_SHAPE(__VA_ARGS__))
#define gd_get_i64(t, ...)        gd_get_i64_at(t, GD_SHAPE(__VA_ARGS__))
#define gd_set(t, value, ...)     gd_set_at(t, GD_SHAPE(__VA_ARGS__), value)
#define gd_set_i64(t, value, ...) gd_set_i64_at(t, GD_SHAPE(__VA_ARGS__), value)
GD_API double gd_get_at(const gd_tensor *t, gd_shape index);
GD_API int64_t gd_get_i64_at(const gd_tensor *t, gd_shape index);
GD_API gd_status gd_set_at(gd_tensor *t, gd_shape index, double value);
GD_API gd_status gd_set_i64_at(gd_tensor *t, gd_shape index, int64_t value);

typedef enum gd_map_access {
    GD_MAP_READ = 1,
    GD_MAP_WRITE = 2,
    GD_MAP_READ_WRITE = 3
} gd_map_access;

/* The elements of t as row-major host memory, on every device, until gd_tensor_unmap: t's own
 * memory where the host can use it as it lies, else a buffer. With GD_MAP_WRITE alone the buffer's
 * contents are not defined before, and every element must be written. Other threads may write to
 * it; what reads t meanwhile finds any mixture. Gradients that need the values from before are
 * GD_ERR_STATE, as after gd_tensor_write. t stays alive while it is mapped. NULL: GD_ERR_STATE (t is
 * mapped already, or a trace is going on), GD_ERR_INVALID, GD_ERR_MEMORY. */
GD_API void *gd_tensor_map(gd_tensor *t, gd_map_access access);
/* End that; t's value is what was written. The memory must not be used any more. GD_ERR_STATE: t is
 * not mapped, or a trace is going on. */
GD_API gd_status gd_tensor_unmap(gd_tensor *t);

/* Text as NumPy prints it: "[[1. 2.]\n [3. 4.]]", large tensors summarised by "...". Written to
 * `text` of `size` bytes, always terminated; returns the length the whole text has, as snprintf
 * does. */
GD_API size_t gd_tensor_format(const gd_tensor *t, char *text, size_t size);

/* ---- copies ---- */

/* A tensor of its own with x's values, row-major; gradients pass. */
GD_API gd_tensor *gd_copy(gd_tensor *x);
/* t's values as a tensor of another context, perhaps of another device: a leaf without a history. t
 * itself when it belongs to the context already. GD_ERR_STATE while either is tracing. */
GD_API gd_tensor *gd_to(gd_context *context, gd_tensor *t);

/* ---- views: same storage, no copy ---- */

/* Same elements in row-major order, another shape; one dimension may be -1. Copies only when
 * strides cannot express it. */
GD_API gd_tensor *gd_reshape(gd_tensor *x, gd_shape shape);
/* Axes in a new order; `order` names each axis once. */
GD_API gd_tensor *gd_permute(gd_tensor *x, gd_axes order);
/* Exchange two axes. */
GD_API gd_tensor *gd_transpose(gd_tensor *x, int axis_a, int axis_b);
/* Stretch axes of size 1 (and add leading ones) to `shape`; stride 0. */
GD_API gd_tensor *gd_broadcast_to(gd_tensor *x, gd_shape shape);
/* Elements start, start+step, … before stop along one axis, Python's rules: negative indices count
 * from the end, out of range is clipped. step must not be 0. GD_END as stop means "to the end" in
 * either direction. */
#define GD_END INT64_MAX
GD_API gd_tensor *gd_slice(gd_tensor *x, int axis, int64_t start, int64_t stop, int64_t step);
/* One index along an axis, which disappears: x[..., i, ...]. Out of range is GD_ERR_SHAPE. */
GD_API gd_tensor *gd_select(gd_tensor *x, int axis, int64_t index);
/* Reverse along axes. */
GD_API gd_tensor *gd_flip(gd_tensor *x, gd_axes axes);
/* Move an axis to another place; the others keep their order. */
GD_API gd_tensor *gd_movedim(gd_tensor *x, int from, int to);
/* Merge the axes from first_axis to last_axis, both included: gd_flatten(x, 1, -1). A number becomes
 * [1]. */
GD_API gd_tensor *gd_flatten(gd_tensor *x, int first_axis, int last_axis);
/* Remove all axes of size 1. */
GD_API gd_tensor *gd_squeeze_all(gd_tensor *x);
/* Remove one axis of size 1 / insert one. */
GD_API gd_tensor *gd_squeeze(gd_tensor *x, int axis);
GD_API gd_tensor *gd_unsqueeze(gd_tensor *x, int axis);
/* x itself when row-major contiguous, else a copy that is. */
GD_API gd_tensor *gd_contiguous(gd_tensor *x);

#ifdef __cplusplus
}

template <typename... Sizes> constexpr gd_shape gd_shape_of(Sizes... sizes)
{
    static_assert(sizeof...(Sizes) <= GD_MAX_RANK, "a shape has at most GD_MAX_RANK sizes");
    return gd_shape{ static_cast<int>(sizeof...(Sizes)), { static_cast<int64_t>(sizes)... } };
}

template <typename... Axes> constexpr gd_axes gd_axes_of(Axes... axes)
{
    static_assert(sizeof...(Axes) <= GD_MAX_RANK, "a shape has at most GD_MAX_RANK axes");
    return gd_axes{ static_cast<int>(sizeof...(Axes)), { static_cast<int>(axes)... } };
}
#endif
#endif
