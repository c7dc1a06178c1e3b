/* gradus/foreign.h: an op and gd_claim in one call, for languages in which a call of C costs more than
 * a small op: gd_claim(context, op(x, …)) with x's context, and axes and shapes by address. */
#ifndef GRADUS_FOREIGN_H
#define GRADUS_FOREIGN_H

#include <gradus/compile.h>
#include <gradus/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef gd_tensor *(*gd_op_of_one)(gd_tensor *x);
typedef gd_tensor *(*gd_op_of_two)(gd_tensor *x, gd_tensor *y);
typedef gd_tensor *(*gd_op_along_axes)(gd_tensor *x, gd_axes axes, bool keep);
typedef gd_tensor *(*gd_op_to_shape)(gd_tensor *x, gd_shape shape);
typedef gd_tensor *(*gd_op_with_number)(gd_tensor *x, double number);

GD_API gd_tensor *gd_claim_of_one(gd_op_of_one op, gd_tensor *x);
GD_API gd_tensor *gd_claim_of_two(gd_op_of_two op, gd_tensor *x, gd_tensor *y);
GD_API gd_tensor *gd_claim_along_axes(gd_op_along_axes op, gd_tensor *x, const gd_axes *axes,
                                      bool keep);
GD_API gd_tensor *gd_claim_to_shape(gd_op_to_shape op, gd_tensor *x, const gd_shape *shape);
GD_API gd_tensor *gd_claim_with_number(gd_op_with_number op, gd_tensor *x, double number);

/* gd_claim(context, gd_call(function, …)) with the function's context, where there is a plan for these
 * inputs and no trace goes on; NULL without an error where not, and nothing has happened. */
GD_API gd_tensor *gd_claim_call(gd_function *function, int count, gd_tensor *const *inputs);

#ifdef __cplusplus
}
#endif
#endif
