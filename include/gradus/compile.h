/* gradus/compile.h: from a C function on tensors to a plan: a flat list of kernel calls over one
 * block of memory.
 *
 * gd_compile(context, fn, user) gives a function; gd_call traces fn once for each signature (shapes
 * and dtypes of its inputs), keeps the plan, and runs it. Running a plan allocates nothing. What fn
 * computes from tensors is recorded; what it does in plain C (ifs, loops) is done once, while
 * tracing, and taken as it was then. Parameter updates (gd_assign, gd_minimize), accumulated
 * gradients and the random stream are effects: they happen at every call, as they would eagerly.
 * The result equals running fn eagerly, bit for bit (which NaN comes out where two go in is not
 * defined).
 *
 * Values do not pass between tensors and plain C in a body that is traced: it would happen once, and
 * what was read then be in the plan for good. gd_item, gd_tensor_read, gd_tensor_data,
 * gd_tensor_write, gd_tensor_modified, gd_seed, gd_module_load, gd_optimizer_load,
 * gd_optimizer_set_lr, gd_ema_swap, the next batch of a loader, and what is made of these
 * (gd_module_save, metrics, generation) are GD_ERR_STATE there, of tensors from outside too;
 * between gd_trace_pause and gd_trace_resume they are done at once. Settings (gd_module_set_training,
 * gd_set_requires_grad, clipping) are plain C: taken as they are while tracing.
 *
 * Gradients pass through a call as through an op, gd_call below says when. The backward pass of the
 * call is a plan as well; what it reads of the forward pass is kept until then.
 */
#ifndef GRADUS_COMPILE_H
#define GRADUS_COMPILE_H

#include <gradus/tensor.h>

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gd_function gd_function;

/* What is compiled is a gd_function_body (gradus/tensor.h). An error it records and does not clear
 * fails the call, whatever it returns: gd_item and gd_tensor_read of a traced value are such errors,
 * so that no plan is made of a branch that was taken on a number that is not there. Scopes it leaves
 * open are ended. */

/* How calls are carried out. */
typedef enum gd_mode {
    GD_MODE_COMPILED, /* traced and planned */
    GD_MODE_EAGER,    /* fn is simply run, in a scope of its own: for debugging and comparison */
    GD_MODE_LAZY, /* fn is recorded anew at every call, so its plain C takes effect every time; a
                     recording equal to one before runs as that one's plan */
} gd_mode;

typedef struct gd_compile_options {
    size_t size GD_DEFAULT(sizeof(gd_compile_options));
    gd_mode mode;
    int cache_limit GD_DEFAULT(16); /* plans kept, 1 or more; the least recently used goes first */
    /* Bytes a plan may take for intermediate values, results and constants (stats.arena_bytes);
     * SIZE_MAX: any number. Values are computed again until it fits; where it cannot, the call is
     * GD_ERR_MEMORY and says how little was reached. The bits stay the same. With a limit parameters
     * are rounded at each use (gradus/precision.h), without copies beside the plan's memory. */
    size_t memory_limit GD_DEFAULT(SIZE_MAX);
    bool detached; /* results have no history: nothing is kept for a gradient through them */
    /* For inference: tensors that the body reads from outside, but for those it assigns to, stay as
     * they are from a plan's first run on. The CPU then packs weights of matrix products once, where
     * that is faster, and each plan keeps them so, beside its memory (stats.packed_bytes; nothing with
     * a memory_limit). The bits are the same. What changes a tensor through this library (an op in
     * place, an optimizer, loading, gd_tensor_write) is noticed, and weights are packed anew at the
     * next call. NOT noticed is what is written through an address: of gd_tensor_data, without
     * gd_tensor_modified, or by DLPack. With GD_MODE_EAGER it has no effect. */
    bool frozen;
    /* Passes of the compiler to switch off, to find out what one of them does: "-fuse,-cse"; all but
     * one: "-all,+fuse". NULL: what the environment variable GRADUS_PASSES says now; "": all are on.
     * A name that is none is GD_ERR_INVALID. The bits are the same under any of them. */
    const char *passes;
} gd_compile_options;
#define GD_COMPILE_DEFAULTS \
    .size = sizeof(gd_compile_options), .cache_limit = 16, .memory_limit = SIZE_MAX, .passes = NULL

/* gd_compile(context, body, user), gd_compile(context, body, user, .mode = GD_MODE_EAGER). Owned by
 * the context; may be released earlier with gd_function_release. */
#define gd_compile(...) \
    GD_WITH_3(gd_compile_with, gd_compile_options, GD_COMPILE_DEFAULTS, __VA_ARGS__, )
GD_API gd_function *gd_compile_with(gd_context *context, gd_function_body body, void *user,
                                    const gd_compile_options *options);
/* GD_ERR_STATE, and nothing happens, while its body is being run. */
GD_API void gd_function_release(gd_function *function);
GD_API gd_context *gd_function_context(const gd_function *function);

/* Run on `count` inputs. Returns the result, owned by the function: it is valid until the next call
 * of the same function, of which it may be an input. If it is referenced then (gd_retain, an op
 * whose history reads it, a view, another function that reads it from outside), it stays valid and
 * keeps its contents: it is copied out of the plan's memory when the plan runs again; where a view
 * is alive or gd_tensor_data has given the address, the plan continues in other memory. Each call's
 * result is a new tensor, even at the old address: a mark, a gradient or a name given to the one
 * before does not pass to it. NULL on error; GD_ERR_STATE for an input that shares memory with a
 * tensor that the body assigns to, whose reads and writes a plan would not keep in order.
 *
 * A compiled call has a history, as an op has, when its result depends on an input or a parameter
 * that requires a gradient: gd_backward and gd_grad go through it, with eager's bits (several
 * results: in the order of their numbers; a tensor that is read inside and outside gets the sum of
 * what is inside first). A result that is retained, or that other ops have read, keeps its
 * contents and its history after the next call, and with them the memory of its call. Gradients of
 * gradients are planned when they are first asked for, and compute the forward values again. There
 * is no history under gd_no_grad_begin, with .detached, and where fn trains: calls gd_backward, or
 * assigns to a tensor that requires a gradient. Errors of the gradient: GD_ERR_STATE, what it reads
 * has been overwritten since; GD_ERR_UNSUPPORTED, it is taken while another function is traced.
 *
 * A body sees its inputs and not what they were computed from: gd_grad in it by a tensor outside
 * leaves out what runs through an input (zeros, if that is all). Called eagerly, or inlined into
 * another body, it finds that as well.
 *
 * A function may call itself, if plain C ends it: GD_ERR_STATE beyond 500 calls within one another.
 */
GD_API gd_tensor *gd_call(gd_function *function, int count, gd_tensor *const *inputs);

/* Make the plan for these inputs, if there is none yet, without running it: nothing has changed
 * when it is shown or exported. */
GD_API gd_status gd_function_prepare(gd_function *function, int count, gd_tensor *const *inputs);

/* Inside a body: make t a further result, number 1, 2, … in the order of the calls. Outside of any
 * body it does nothing. Returns t. */
GD_API gd_tensor *gd_output(gd_tensor *t);
/* Result `index` of the last call (0 is what gd_call returned), NULL when there is none. */
GD_API gd_tensor *gd_function_result(gd_function *function, int index);

/* Inside a body, run what follows at once instead of recording it, up to gd_trace_resume: for
 * making parameters and other state at first use. Nests; does nothing when no trace is going on. */
GD_API void gd_trace_pause(gd_context *context);
GD_API void gd_trace_resume(gd_context *context);

/* Whether a body is being recorded (and not paused). */
GD_API bool gd_is_tracing(const gd_context *context);

/* Tracing without a body, for other languages, whose errors cannot pass through C: a function made
 * with body NULL is traced by its caller, once for each signature of inputs, and then called.
 *
 *     gd_function *f = gd_compile(context, NULL, NULL);
 *     if (!gd_function_has_plan(f, 2, inputs)) {
 *         gd_tensor *placeholders[2];
 *         gd_trace_begin(f, 2, inputs, placeholders);
 *         gd_tensor *result = gd_relu(gd_matmul(placeholders[0], placeholders[1]));
 *         gd_trace_end(f, 1, &result);
 *     }
 *     gd_tensor *y = gd_call(f, 2, inputs);
 *
 * Between begin and end all is as in a body. placeholders[i] stands for input i, which is not read.
 * Scopes that were begun in between are ended. gd_trace_end makes the plan; outputs are the results,
 * number 0, 1, …, before those of gd_output. An error recorded since gd_trace_begin and not cleared
 * fails it, and whether it succeeds or not, the trace is over (but where there is none:
 * GD_ERR_STATE).
 * gd_trace_abandon ends a trace without a plan. GD_ERR_STATE too: within another trace, where what
 * the function does is simply done; gd_call without a plan. A function with a body may be traced so
 * as well.
 *
 * With GD_MODE_LAZY, and without a body, it is traced before every call: gd_trace_end finds the plan
 * that was made of an equal recording, and gd_call runs that of the recording before it. */
GD_API gd_status gd_trace_begin(gd_function *function, int count, gd_tensor *const *inputs,
                                gd_tensor **placeholders);
GD_API gd_status gd_trace_end(gd_function *function, int count, gd_tensor *const *outputs);
GD_API gd_status gd_trace_abandon(gd_function *function);
/* Whether gd_call with these inputs would run a plan there is. */
GD_API bool gd_function_has_plan(gd_function *function, int count, gd_tensor *const *inputs);

/* What a function's plans are and cost. */
typedef struct gd_plan_stats {
    int plans;              /* in the cache */
    uint64_t calls, traces; /* since gd_compile */
    uint64_t evictions;
    /* of the plan used last: */
    int nodes_traced, nodes_planned, kernels;
    size_t arena_bytes;     /* planned memory for intermediate values */
    size_t live_bytes;      /* the most bytes alive at once: a lower bound for it */
    int recomputed;         /* ops computed again to stay within .memory_limit */
    double compile_seconds; /* trace and planning */
    size_t packed_bytes;    /* of weights packed once, beside arena_bytes: see .frozen */
} gd_plan_stats;
GD_API gd_plan_stats gd_function_stats(const gd_function *function);

/* The plan used last as text: a line a kernel: op, shapes, buffers with offsets, bytes, FLOPs; then
 * totals. Conventions of gd_tensor_format. "" before the first call. */
GD_API size_t gd_plan_format(const gd_function *function, char *text, size_t size);

/* The same, and below each kernel of which there are several forms (products, convolutions, attention,
 * recurrent layers, sums) the one that this device takes, and why: how it is computed, what is copied, how many threads. */
GD_API size_t gd_plan_explain(const gd_function *function, char *text, size_t size);

/* The plan used last as a Graphviz digraph. */
GD_API size_t gd_plan_format_dot(const gd_function *function, char *text, size_t size);

/* Write the plan used last as one C99 file that needs libc and libm alone and allocates nothing: a
 * function `int name(const float *input0, …, float *result0, …)` that does what a call does, over
 * parameters and state as they are now, which the file contains. Compiled with -std=c99 its results
 * are the plan's bit for bit (see the head of the file). GD_ERR_STATE before the first call
 * and for a plan that keeps what a gradient through it needs (see .detached); GD_ERR_UNSUPPORTED
 * names an op there is no C text for yet; GD_ERR_IO. */
GD_API gd_status gd_export_c(const gd_function *function, const char *name, FILE *file);
/* The same to the file `path`, as gd_file_write does: after an error an old file stands. */
GD_API gd_status gd_export_c_path(const gd_function *function, const char *name, const char *path);

/* One kernel of a plan, measured. */
typedef struct gd_kernel_profile {
    const char *op; /* "linear"; static text */
    char what[240]; /* dtype, shape and place of its result */
    double seconds; /* the shortest of all runs */
    double start;   /* when it began, in seconds from the beginning of the shortest run */
    double flops;   /* floating-point operations (a fused multiply-add is two) */
    double bytes;   /* read and written, each operand once */
} gd_kernel_profile;

/* Call the function once, then `runs` times more with every kernel timed (its effects happen each
 * time), and describe the first `capacity` kernels in rows. Returns how many the plan has; -1 on
 * error. */
GD_API int gd_function_profile(gd_function *function, int count, gd_tensor *const *inputs, int runs,
                               int capacity, gd_kernel_profile *rows);

/* What the machine does at most: floating-point operations and bytes moved a second. 0: not known.
 */
typedef struct gd_profile_bounds {
    double flops, bytes;
} gd_profile_bounds;

/* The plan used last as a picture, SVG: kernels as boxes in the order in which they run, who reads what
 * whom has made, what each takes, and which bytes of the plan's memory are whose when. Bars are of the
 * seconds in `count` rows of gd_function_profile; NULL: of the bytes that kernels move. Conventions of
 * gd_tensor_format; "" before the first call. 0, and an error: no memory, or a negative count. */
GD_API size_t gd_plan_format_svg(const gd_function *function, int count,
                                 const gd_kernel_profile *rows, char *text, size_t size);

/* Measured kernels as a table: microseconds, GFLOP/s, GB/s, the share of the shortest time the
 * bounds allow, and a line for all together. Conventions of gd_tensor_format. */
GD_API size_t gd_profile_format(int count, const gd_kernel_profile *rows, gd_profile_bounds bounds,
                                char *text, size_t size);
/* The same as a trace for chrome://tracing or ui.perfetto.dev (JSON, Trace Event Format). */
GD_API size_t gd_profile_format_trace(int count, const gd_kernel_profile *rows, char *text,
                                      size_t size);

#ifdef __cplusplus
}
#endif
#endif
