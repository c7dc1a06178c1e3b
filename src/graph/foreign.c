/* graph/foreign.c: an op and gd_claim in one call. */
#include <gradus/foreign.h>

gd_tensor *gd_claim_of_one(gd_context *context, gd_op_of_one op, gd_tensor *x)
{
    return gd_claim(context, op(x));
}

gd_tensor *gd_claim_of_two(gd_context *context, gd_op_of_two op, gd_tensor *x, gd_tensor *y)
{
    return gd_claim(context, op(x, y));
}

gd_tensor *gd_claim_along_axes(gd_context *context, gd_op_along_axes op, gd_tensor *x,
                               const gd_axes *axes, bool keep)
{
    return gd_claim(context, op(x, *axes, keep));
}

gd_tensor *gd_claim_to_shape(gd_context *context, gd_op_to_shape op, gd_tensor *x,
                             const gd_shape *shape)
{
    return gd_claim(context, op(x, *shape));
}

gd_tensor *gd_claim_with_number(gd_context *context, gd_op_with_number op, gd_tensor *x,
                                double number)
{
    return gd_claim(context, op(x, number));
}

gd_tensor *gd_claim_call(gd_context *context, gd_function *function, int count,
                         gd_tensor *const *inputs)
{
    if (gd_is_tracing(context) || !gd_function_has_plan(function, count, inputs))
        return NULL;
    return gd_claim(context, gd_call(function, count, inputs));
}
