/* gradus/autograd.h: reverse-mode automatic differentiation, and looking at graphs.
 *
 * A tensor that depends on one with gd_set_requires_grad remembers the op and the operands it came
 * from: the graph is the tensors themselves. Gradients are built out of the same ops, so they can
 * be differentiated again and be compiled.
 */
#ifndef GRADUS_AUTOGRAD_H
#define GRADUS_AUTOGRAD_H

#include <gradus/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Mark a leaf (a tensor that has no history) of a float dtype as one gradients are wanted for, or
 * unmark it. Returns t. */
GD_API gd_tensor *gd_set_requires_grad(gd_tensor *t, bool requires_grad);
GD_API bool gd_requires_grad(const gd_tensor *t);

/* The value of x without its history: gradients do not pass. */
GD_API gd_tensor *gd_detach(gd_tensor *x);

/* While open, ops record no history (inference). Nests. */
GD_API gd_status gd_no_grad_begin(gd_context *context);
GD_API gd_status gd_no_grad_end(gd_context *context);

/* d(sum of loss)/d(leaf) added into the grad of every leaf that requires it and that loss depends
 * on. GD_ERR_STATE when loss depends on none, or when a value the derivative needs has been
 * overwritten since (gd_assign, gd_tensor_write). */
GD_API gd_status gd_backward(gd_tensor *loss);
/* The accumulated gradient of a leaf, NULL before the first gd_backward. Owned by the leaf. */
GD_API gd_tensor *gd_gradient(gd_tensor *leaf);
/* Set it to zeros, if there is one. An effect, like gd_assign. */
GD_API gd_status gd_zero_grad(gd_tensor *leaf);

/* gradients[i] = d(sum over o of sum(outputs[o] * seeds[o]))/d(inputs[i]) as new temporaries that
 * can be differentiated again. seeds may be NULL, or hold NULLs, for ones. An input no output
 * depends on gets zeros. inputs may be any tensors of the graph. */
GD_API gd_status gd_grad(int output_count, gd_tensor *const *outputs, gd_tensor *const *seeds,
                         int input_count, gd_tensor *const *inputs, gd_tensor **gradients);

/* Gradient checkpointing: body(user, count, inputs), a function of inputs, of parameters and of
 * random numbers, whose intermediate values are let go after the call and computed again when the
 * gradient of its result is taken. Gradients, of any order, are those without: the same bits,
 * unless an input is used several times within the block and outside of it as well, whose gradients
 * are then added up in another order; random numbers are the same in both runs, and effects
 * (gd_assign, running statistics) happen in the first alone, so body must not read what it assigns.
 * `user` must be valid until the gradient has been taken, and tensors that body takes from there
 * must not be released or changed before. Compiled, the second run is part of the plan, which needs
 * less memory for it; eager, gd_backward and gd_minimize do, while gd_grad keeps it as the history
 * of its results (but not under gd_no_grad_begin). At most 63 inputs and other tensors that need
 * gradients: GD_ERR_UNSUPPORTED. GD_ERR_INVALID: body NULL or no input. Chen et al. 2016. */
typedef gd_tensor *(*gd_checkpoint_body)(void *user, int count, gd_tensor *const *inputs);
GD_API gd_tensor *gd_checkpoint(gd_checkpoint_body body, void *user, int count,
                                gd_tensor *const *inputs);

/* Name a tensor for printing; copied, cut to 31 bytes. Returns t. */
GD_API gd_tensor *gd_set_name(gd_tensor *t, const char *name);

/* The graph behind t, one op a line in topological order: "%3 = relu(%2) f32 [50, 16]". Conventions
 * of gd_tensor_format. */
GD_API size_t gd_graph_format(gd_tensor *t, char *text, size_t size);
/* The same as a Graphviz digraph. */
GD_API size_t gd_graph_format_dot(gd_tensor *t, char *text, size_t size);
/* Check every node behind t: arity, inferred layout against the recorded one, storage bounds,
 * references. GD_ERR_STATE says what is wrong. A sound graph always passes; debug builds run it
 * before gd_backward. */
GD_API gd_status gd_graph_verify(gd_tensor *t);

#ifdef __cplusplus
}
#endif
#endif
