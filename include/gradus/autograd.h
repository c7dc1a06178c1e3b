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
/* The same of sum(output * seed): the seed, of output's shape, is the gradient that comes from
 * above. gd_backward is this with a seed of ones. */
GD_API gd_status gd_backward_seeded(gd_tensor *output, gd_tensor *seed);
/* Let a result have a gradient of its own, as leaves have: each gd_backward through it from now on
 * adds to it. Returns t; of a leaf nothing changes. GD_ERR_STATE: t depends on no tensor that
 * requires a gradient, or is a value of a function that is being traced. */
GD_API gd_tensor *gd_retain_grad(gd_tensor *t);
/* The accumulated gradient of a leaf, or of a result marked by gd_retain_grad; NULL before the first
 * gd_backward. Owned by the tensor. */
GD_API gd_tensor *gd_gradient(gd_tensor *t);
/* Copy `gradient`, of t's shape and dtype, into the gradient of t, which is made if there is none:
 * an effect, like gd_assign. NULL drops it: gd_gradient is NULL again, its memory is free, and
 * functions whose plans add to it are traced anew (GD_ERR_STATE while one is traced). GD_ERR_STATE
 * too: t is neither a leaf that requires a gradient nor marked by gd_retain_grad. */
GD_API gd_status gd_set_gradient(gd_tensor *t, gd_tensor *gradient);
/* Set the gradient to zeros, if there is one. An effect, like gd_assign: a compiled function does it
 * at each call, also if there was none when it was traced. */
GD_API gd_status gd_zero_grad(gd_tensor *t);

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
GD_API gd_tensor *gd_checkpoint(gd_function_body body, void *user, int count,
                                gd_tensor *const *inputs);

/* ---- checking gradients ---- */

/* The element whose gradient is farthest from the differences. */
typedef struct gd_gradient_error {
    int input;        /* which of the inputs */
    gd_shape index;   /* which of its elements */
    double gradient;  /* what gd_grad gives */
    double slope;     /* what differences give */
    double error;     /* |gradient - slope| / max(1, |gradient|, |slope|); NaN if one is */
    int64_t elements; /* compared, of all inputs */
} gd_gradient_error;

/* Compare the gradients of a function's result by those inputs that require one (leaves of f32 or
 * f64 with storage of their own; inputs that require none are given to it as they are) with central
 * differences. Elements of the inputs are changed in place for that, and put back: so parameters of
 * a module may be among the inputs, and be read by the function through `user` instead. The function
 * is called four times for each element, more often where it is far from straight, each time at the
 * same position of the random stream; a result of several elements is multiplied by fixed numbers
 * and summed. Where it has a kink or a jump there is no slope to compare with.
 *
 * GD_OK when every error (below) is at most `tolerance`: 1e-6 suits f64, 1e-2 f32. Otherwise
 * GD_ERR_INVALID, with a sentence that names the worst element. *worst, if not NULL, is filled in
 * both cases. A function that takes gd_grad itself has its second derivatives checked. */
GD_API gd_status gd_check_gradients(gd_function_body function, void *user, int count,
                                    gd_tensor *const *inputs, double tolerance,
                                    gd_gradient_error *worst);

/* ---- looking at graphs ---- */

/* Name a tensor for printing; copied, cut to 31 bytes. "" takes its name away. Returns t. */
GD_API gd_tensor *gd_set_name(gd_tensor *t, const char *name);
/* The name given to it, valid until it is given another; "" when there is none. */
GD_API const char *gd_tensor_name(const gd_tensor *t);

/* The op that made t, "matmul": static text; "" for a tensor that no op made. */
GD_API const char *gd_tensor_op(const gd_tensor *t);
/* The op's attribute as the graph's text has it, "axis=1"; "" when there is none. Conventions of
 * gd_tensor_format. */
GD_API size_t gd_tensor_attribute(const gd_tensor *t, char *text, size_t size);
/* The tensors it was computed from, as far as t remembers them: a leaf and a result without a
 * history have none. Input i stays valid as long as t; NULL out of range. */
GD_API int gd_tensor_input_count(const gd_tensor *t);
GD_API gd_tensor *gd_tensor_input(const gd_tensor *t, int i);
/* The graph behind t in topological order, inputs before what is computed from them, t last: the
 * first `capacity` of them into `tensors`, which may be NULL when that is 0. Returns how many there
 * are; 0 on an error. They stay valid as long as t. */
GD_API int64_t gd_graph_order(gd_tensor *t, gd_tensor **tensors, int64_t capacity);

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
