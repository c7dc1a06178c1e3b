/* graph/trace.h: the record of the ops that the body of a compiled function applies. What becomes of
 * it is src/compile's business. */
#ifndef GD_GRAPH_TRACE_H
#define GD_GRAPH_TRACE_H

#include "graph/node.h"
#include "graph/phase.h"

struct gd_trace {
    const gd_trace
        *outer; /* of a gd_vmap_begin: the trace that it stands in, whose values it may use */
    gd_tensor **nodes; /* [count] every op recorded, in order; each holds a reference */
    size_t count, capacity;
    uint8_t *phases; /* [count] a gd_phase each */
    size_t phase_capacity;
    uint8_t phase; /* of what is recorded now */
    size_t known;  /* nodes behind those are of the recording before, up to here: an op that is the
                     next of them is that node again */
    gd_tensor **outputs; /* gd_output's, each with a reference */
    size_t output_count, output_capacity;
    gd_tensor **zeroed; /* tensors without a gradient whose gradient was set to zeros: where one is
                           made after that, the plan begins with zeros at each call */
    size_t zeroed_count, zeroed_capacity;
    uint64_t random_words; /* drawn so far */
    int nested;            /* inside the bodies of functions called by the body */
    bool failed;
    bool has_backward; /* gd_backward was called */
    bool is_resumed;   /* what is recorded now differentiates what was recorded in an earlier call:
                          tensors outside may have changed since */
};

gd_status gd_trace_record(gd_trace *trace, gd_tensor *node);
/* The node the last recording had here, if it is op on inputs, brought up to date; else NULL, and
 * what that recording had from here on is let go. */
gd_tensor *gd_trace_repeat(gd_trace *trace, const gd_op *op, int n, gd_tensor *const *inputs,
                           const void *attr, bool requires_grad);
/* Begin again, to record what may be the same. */
void gd_trace_rewind(gd_trace *trace);
/* Let go of what was recorded, keeping room for the next recording; gd_trace_clear frees that too.
 */
void gd_trace_reset(gd_trace *trace);
void gd_trace_clear(gd_trace *trace);

#endif
