/* graph/apply.h: one op on its inputs, eagerly or traced. Every builder ends in gd_apply. */
#ifndef GD_GRAPH_APPLY_H
#define GD_GRAPH_APPLY_H

#include "graph/node.h"

/* The result of a user's function, a temporary. NULL with an error: so ends one that recorded an
 * error, whatever it returned. */
gd_tensor *gd_run_body(gd_function_body body, void *user, int count, gd_tensor *const *inputs,
                       const char *who);

/* Build op's node on inputs (NULL inputs give NULL); context may be NULL when there is an input.
 * Eager: compute it; tracing: record it. */
gd_tensor *gd_apply(gd_context *context, gd_op_id id, int n, gd_tensor *const *inputs,
                    const void *attr);

/* The result of an elementwise op, or of a GD_OP_IN_PLACE op with target 0, in the storage of
 * inputs[target], which must have its shape and dtype. Returns the tensor that stands for the new
 * value: the target itself where no history is recorded, else a node of its own, and the target may
 * not be used any more. */
gd_tensor *gd_apply_in_place(gd_op_id id, int n, gd_tensor *const *inputs, const void *attr,
                             int target);

/* Copy value (of t's shape and dtype) into t's storage now. */
gd_status gd_store(gd_tensor *t, gd_tensor *value);

/* Shorthands. */
gd_tensor *gd_apply1(gd_op_id id, gd_tensor *x, const void *attr);
gd_tensor *gd_apply2(gd_op_id id, gd_tensor *x, gd_tensor *y, const void *attr);

/* Infer the layout of an op's result, checking arity and rank on the way. */
gd_status gd_op_infer(const gd_op *op, int n, const gd_layout *const *in, const void *attr,
                      gd_layout *out);

/* Whether the context's device has a kernel for op on operands of these layouts. Not, with the error
 * recorded: they do not fit. */
bool gd_op_is_taken(const gd_context *context, gd_op_id id, int n, const gd_layout *const *in,
                    const void *attr);

/* Whether a builder leaves f16 and bf16 among these operands as they are, for an op whose row has them
 * in `halves`, and has the result rounded where the attribute says so: eagerly, where the device takes
 * them so. A trace has the casts, so that other passes see what is computed, and the pass `halves`
 * removes those that are left. */
bool gd_may_read_halves(gd_op_id id, int n, gd_tensor *const *inputs, const void *attr);

/* Views and conversions that graph/ needs itself, through their rows. x itself where nothing is to
 * be done. */
gd_tensor *gd_as_shape(gd_tensor *x, gd_shape shape); /* broadcast_to */
gd_tensor *gd_as_dtype(gd_tensor *x, gd_dtype dtype); /* cast */
/* x summed over a mask of axes. Axes at the end of a contiguous shape are summed first, by
 * themselves, where an axis is kept before them and others are summed: (0, 2, 3) of [n, c, h, w]
 * becomes (2, 3), then 0. A compiled graph joins sums of rows to the ops that make the rows. */
gd_tensor *gd_sum_along(gd_tensor *x, uint32_t axes, bool keep);
/* x summed over the axes along which `like` was broadcast to x's shape: the adjoint of
 * broadcasting. */
gd_tensor *gd_sum_to(gd_tensor *x, const gd_layout *like);

#endif
