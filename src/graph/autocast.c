/* graph/autocast.c: scopes of mixed precision, and what they make of an operand. */
#include "graph/autocast.h"

#include <gradus/ops.h>
#include <gradus/precision.h>

#include "base/error.h"
#include "graph/apply.h"

gd_status gd_autocast_begin(gd_context *context, gd_dtype dtype)
{
    if (!context)
        return gd_fail(GD_ERR_INVALID, "gd_autocast_begin: the context is NULL");
    if (dtype != GD_F32 && dtype != GD_BF16 && dtype != GD_F16)
        return gd_fail(GD_ERR_DTYPE, "gd_autocast_begin: bf16, f16, or f32 for none; given %s",
                       gd_dtype_name(dtype));
    if (context->autocast >> 62)
        return gd_fail(GD_ERR_STATE, "gd_autocast_begin: 32 scopes are open, which is the most");
    const uint64_t code = dtype == GD_BF16  ? GD_AUTOCAST_BF16
                          : dtype == GD_F16 ? GD_AUTOCAST_F16
                                            : GD_AUTOCAST_OFF;
    context->autocast = context->autocast << 2 | code;
    return GD_OK;
}

gd_status gd_autocast_end(gd_context *context)
{
    if (!context || !context->autocast)
        return gd_fail(GD_ERR_STATE, "gd_autocast_end: without gd_autocast_begin");
    context->autocast >>= 2;
    return GD_OK;
}

gd_dtype gd_autocast_get(const gd_context *context)
{
    return context ? gd_autocast_now(context) : GD_F32;
}

gd_dtype gd_autocast_dtype(const gd_context *context, gd_op_id op, gd_dtype dtype)
{
    const unsigned flags = gd_op_row(op)->flags;
    if (!gd_autocast_is_on(context))
        return dtype;
    if ((flags & GD_OP_LOWER) && dtype == GD_F32)
        return gd_autocast_now(context);
    return (flags & GD_OP_FULL) && gd_dtype_is_half(dtype) ? GD_F32 : dtype;
}

gd_tensor *gd_autocast_operand(gd_op_id op, gd_tensor *x)
{
    return gd_as_dtype(x, gd_autocast_dtype(x->context, op, x->layout.dtype));
}
