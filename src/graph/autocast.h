/* graph/autocast.h: mixed precision by operators (gradus/precision.h). A row's flag says which kind
 * an op is: GD_OP_LOWER takes f32 operands in the scope's dtype, GD_OP_FULL takes f16 and bf16 as
 * f32. Builders ask here before they look at dtypes. Derivatives, decompositions, optimizers and maps
 * are built with the casts switched off: what they are made of has its dtypes already. */
#ifndef GD_GRAPH_AUTOCAST_H
#define GD_GRAPH_AUTOCAST_H

#include "graph/context.h"
#include "graph/op.h"

/* Two bits a scope, the innermost lowest. */
enum { GD_AUTOCAST_OFF = 1, GD_AUTOCAST_BF16 = 2, GD_AUTOCAST_F16 = 3 };

/* Whether ops have operands of other dtypes than they are given. */
static inline bool gd_autocast_is_on(const gd_context *context)
{
    return (context->autocast & 3) > GD_AUTOCAST_OFF;
}

/* The dtype of the innermost scope; f32: casts are off. */
static inline gd_dtype gd_autocast_now(const gd_context *context)
{
    static const gd_dtype dtype[] = { GD_F32, GD_F32, GD_BF16, GD_F16 };
    return dtype[context->autocast & 3];
}

/* The dtype in which op takes an operand of `dtype`. */
gd_dtype gd_autocast_dtype(const gd_context *context, gd_op_id op, gd_dtype dtype);

gd_tensor *gd_autocast_operand(gd_op_id op, gd_tensor *x);
/* x as op takes it; NULL for NULL, and where the cast fails. */
static inline gd_tensor *gd_autocast(gd_op_id op, gd_tensor *x)
{
    return x && gd_autocast_is_on(x->context) ? gd_autocast_operand(op, x) : x;
}

/* Casts off, until what is returned is given to gd_autocast_resume. */
static inline uint64_t gd_autocast_pause(gd_context *context)
{
    const uint64_t before = context->autocast;
    context->autocast = 0;
    return before;
}

static inline void gd_autocast_resume(gd_context *context, uint64_t before)
{
    context->autocast = before;
}

#endif
