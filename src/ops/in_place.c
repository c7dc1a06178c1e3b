/* ops/in_place.c: ops that write their result into the storage of their first operand. What makes
 * that safe under gradients is in gd_apply_in_place (graph/apply.c). */
#include "ops/internal.h"

/* in[target] = op(in …), the others first converted to its dtype, which must be the wider. */
static gd_tensor *in_place(gd_op_id id, int n, gd_tensor **in, int target)
{
    for (int i = 0; i < n; i++)
        if (!gd_operand_usable(id, i, in[i]))
            return NULL;
    gd_dtype dtype = in[target]->layout.dtype;
    for (int i = 0; i < n; i++) {
        if (i == target || (id == GD_OP_where && i == 0))
            continue;
        gd_dtype other = in[i]->layout.dtype;
        if (gd_dtype_promote(dtype, other) != dtype)
            return gd_fail_null(GD_ERR_DTYPE, "gd_%s_: %s with %s gives %s, which %s cannot hold",
                                gd_op_row(id)->name, gd_dtype_name(dtype), gd_dtype_name(other),
                                gd_dtype_name(gd_dtype_promote(dtype, other)),
                                gd_dtype_name(dtype));
        in[i] = gd_as_dtype(in[i], dtype);
        if (!in[i])
            return NULL;
    }
    return gd_apply_in_place(id, n, in, NULL, target);
}

bool gd_may_replace(const gd_tensor *t, const gd_tensor *other)
{
    gd_layout stretched;
    return t && other && !t->context->trace && gd_dtype_is_float(t->layout.dtype) &&
           other->layout.dtype == t->layout.dtype &&
           gd_layout_broadcast(&other->layout, gd_layout_shape(&t->layout), &stretched);
}

#define IN_PLACE_1(name)                                                                   \
    gd_tensor *gd_##name##_(gd_tensor *x)                                                  \
    {                                                                                      \
        return GD_AS("gd_" #name "_", in_place(GD_OP_##name, 1, (gd_tensor *[]){ x }, 0)); \
    }
#define IN_PLACE_2(name)                                                                      \
    gd_tensor *gd_##name##_(gd_tensor *x, gd_tensor *y)                                       \
    {                                                                                         \
        return GD_AS("gd_" #name "_", in_place(GD_OP_##name, 2, (gd_tensor *[]){ x, y }, 0)); \
    }
IN_PLACE_2(add)
IN_PLACE_2(sub)
IN_PLACE_2(mul)
IN_PLACE_2(div)
IN_PLACE_2(maximum)
IN_PLACE_2(minimum)
IN_PLACE_1(neg)
IN_PLACE_1(abs)
IN_PLACE_1(square)
IN_PLACE_1(sqrt)
IN_PLACE_1(exp)
IN_PLACE_1(log)
IN_PLACE_1(relu)
IN_PLACE_1(sigmoid)
IN_PLACE_1(tanh)

gd_tensor *gd_masked_fill_(gd_tensor *x, gd_tensor *mask, double value)
{
    if (x && gd_usable(mask, "gd_masked_fill_") && mask->layout.dtype != GD_BOOL)
        return gd_fail_null(GD_ERR_DTYPE, "gd_masked_fill_: the mask is %s, it must be bool",
                            gd_dtype_name(mask->layout.dtype));
    return GD_AS("gd_masked_fill_",
                 in_place(GD_OP_where, 3, (gd_tensor *[]){ mask, gd_number_like(x, value), x }, 2));
}
