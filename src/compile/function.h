/* compile/function.h: what gd_compile makes: the cache of plans and the recording. The functions on it
 * are in compile/function.c; what tells of it in compile/function_report.c. */
#ifndef GD_COMPILE_FUNCTION_H
#define GD_COMPILE_FUNCTION_H

#include "compile/call_gradient.h"
#include "compile/lazy.h"
#include "compile/plan.h"
#include "graph/context.h"

/* What a plan was made for. */
typedef struct gd_signature {
    int count;
    gd_layout *layouts; /* offsets are 0: an argument's address is its element 0's */
    bool *requires_grad;
    bool no_grad;      /* called where no history is recorded */
    gd_dtype autocast; /* called in a scope of mixed precision */
} gd_signature;

typedef struct gd_cache_entry {
    gd_signature signature;
    gd_plan *plan;
    gd_call_gradient *gradient; /* what a gradient through its calls needs; NULL: they have none */
    uint64_t grad_version;  /* the context's when it was last seen that tensors outside require the
                               gradients they did */
    gd_structure structure; /* GD_MODE_LAZY: of the trace the plan was made of */
    uint64_t last_used;
} gd_cache_entry;

/* Between gd_trace_begin and gd_trace_end. */
typedef struct gd_open_trace {
    bool is_open;
    gd_tensor **inputs; /* [count], each with a reference */
    int count;
    gd_scope *body_scope; /* the context's, before */
    gd_recording before;  /* likewise */
    uint64_t mark;        /* errors before */
    double start;
} gd_open_trace;

struct gd_function {
    gd_context *context;
    gd_function_body body;
    void *user;
    gd_mode mode;
    bool detached;
    gd_plan_options options;
    gd_cache_entry *entries;
    size_t count, capacity, limit;
    gd_cache_entry *current;
    gd_plan *last_plan;  /* its results are those of the last call; NULL: see below, or none */
    gd_tensor **results; /* [n_results] of the last call, where they are not the plan's */
    int n_results;
    size_t result_capacity;
    gd_trace *trace;          /* of the call at hand; between calls, room for the next */
    gd_tensor **placeholders; /* [n_placeholders] the placeholders of its arguments, held */
    int n_placeholders;
    size_t placeholder_capacity;
    gd_tensor **last_outputs; /* of the recording before (GD_MODE_LAZY), to compare with */
    size_t last_output_count, last_output_capacity;
    gd_structure structure;   /* of the trace (GD_MODE_LAZY) */
    int running;              /* how often its body is being run */
    gd_open_trace open_trace; /* by gd_trace_begin */
    uint64_t calls, traces, evictions;
    double *phase_seconds; /* of gd_call_timed, while it lasts */
};

#endif
