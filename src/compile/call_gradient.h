/* compile/call_gradient.h: gradients through a compiled function that is called eagerly. */
#ifndef GD_COMPILE_CALL_GRADIENT_H
#define GD_COMPILE_CALL_GRADIENT_H

#include "compile/ir.h"
#include "graph/trace.h"

/* What one plan's calls need to be differentiated: the recording, and plans of its gradients.
 * Counted: the plan's cache entry holds it, and so does every block of memory such a call has its
 * results in. */
typedef struct gd_call_gradient gd_call_gradient;
typedef struct gd_plan gd_plan;

/* Whether calls of what was recorded are to have a gradient: a result requires one, and the body
 * was no training step (gd_backward, or an assignment to a tensor that requires a gradient).
 */
bool gd_call_gradient_is_wanted(const gd_trace *trace);

/* Record the gradient of what was recorded behind it, and find what of the forward computation it
 * reads. Takes over the trace when it succeeds; placeholders: those of the arguments. */
gd_call_gradient *gd_call_gradient_make(gd_context *context, gd_trace *trace,
                                        gd_tensor *const *placeholders, int count,
                                        gd_plan_options options);
void gd_call_gradient_retain(gd_call_gradient *gradient);
void gd_call_gradient_drop(void *gradient);

/* The plan of what was recorded: its outputs are the results, then what the gradient reads. NULL on
 * failure. */
gd_plan *gd_call_gradient_plan(gd_call_gradient *c);
int gd_call_gradient_result_count(const gd_call_gradient *gradient);

/* If only its scope and the caller have references to a result of an earlier call, its storage and
 * its history are dropped, and true is returned: the handle can be used for a result of the next
 * call, so that calls in a loop make no tensors. */
bool gd_call_gradient_recycle(gd_tensor *result);
/* Run the plan as one node of the graph. results: recycled handles or NULL; then each with a
 * reference for the caller, and one of the scope's, as an op's result has. */
gd_status gd_call_gradient_run(gd_call_gradient *c, gd_plan *plan, gd_tensor *const *inputs,
                               gd_tensor **results);

#endif
