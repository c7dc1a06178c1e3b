/* graph/foreign.c: an op and gd_claim in one call. */
#include <gradus/foreign.h>

#include "graph/node.h"

/* Own what came of an op on x; where it failed, x's context is emptied of its temporaries. */
static gd_tensor *claim(const gd_tensor *x, gd_tensor *result)
{
    if (result)
        return gd_claim(result->context, result);
    return x && gd_is_alive(x) ? gd_claim(x->context, NULL) : NULL;
}

gd_tensor *gd_claim_of_one(gd_op_of_one op, gd_tensor *x)
{
    return claim(x, op(x));
}

gd_tensor *gd_claim_of_two(gd_op_of_two op, gd_tensor *x, gd_tensor *y)
{
    return claim(x, op(x, y));
}

gd_tensor *gd_claim_along_axes(gd_op_along_axes op, gd_tensor *x, const gd_axes *axes, bool keep)
{
    return claim(x, op(x, *axes, keep));
}

gd_tensor *gd_claim_to_shape(gd_op_to_shape op, gd_tensor *x, const gd_shape *shape)
{
    return claim(x, op(x, *shape));
}

gd_tensor *gd_claim_with_number(gd_op_with_number op, gd_tensor *x, double number)
{
    return claim(x, op(x, number));
}

gd_tensor *gd_claim_call(gd_function *function, int count, gd_tensor *const *inputs)
{
    gd_context *context = gd_function_context(function);
    if (gd_is_tracing(context) || !gd_function_has_plan(function, count, inputs))
        return NULL;
    return gd_claim(context, gd_call(function, count, inputs));
}
