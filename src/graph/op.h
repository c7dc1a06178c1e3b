/* graph/op.h: what an op is. Each op is one const row beside its functions in src/ops/; every fact
 * about an op is in its row. Start at struct gd_op; then ops/op_list.def for the list. */
#ifndef GD_GRAPH_OP_H
#define GD_GRAPH_OP_H

#include "tensor/layout.h"

typedef enum gd_op_id {
#define GD_UNARY(name, ...)   GD_OP_##name,
#define GD_BINARY(name, ...)  GD_OP_##name,
#define GD_TERNARY(name, ...) GD_OP_##name,
#include "ops/elementwise.def"
    GD_OP_ELEMENTWISE_COUNT,
    GD_OP_BEFORE_KERNELS_ = GD_OP_ELEMENTWISE_COUNT - 1,
#define GD_OP(name) GD_OP_##name,
#include "ops/op_list.def"
    GD_OP_COUNT
} gd_op_id;

enum {
    GD_OP_ELEMENTWISE = 1 << 0,   /* a row of elementwise.def */
    GD_OP_VIEW = 1 << 1,          /* result shares the storage of input 0; no kernel */
    GD_OP_EFFECT = 1 << 2,        /* changes storage: never removed */
    GD_OP_COMPILER_ONLY = 1 << 3, /* no builder; made by src/compile */
    GD_OP_SEVERAL = 1 << 4,       /* several results, shown by views of it: their gradients are not
                                     added up but linked to a list, gd_link_gradient */
    GD_OP_IN_PLACE = 1 << 5, /* the result may be made in the memory of input 0, which it then is
                                but for what the kernel writes */
    GD_OP_PART = 1 << 6,     /* the result is elements of input 0 (slice, gather): the gradients of
                                all its parts are put together at once, by the walk */

    /* laws of elementwise ops that hold for every value and bit for bit */
    GD_OP_COMMUTES = 1 << 7,         /* x op y = y op x */
    GD_OP_UNIT_ONE = 1 << 8,         /* x op 1 = x */
    GD_OP_UNIT_ZERO = 1 << 9,        /* x op 0 = x */
    GD_OP_UNIT_MINUS_ZERO = 1 << 10, /* x op -0 = x */
    GD_OP_IDEMPOTENT = 1 << 11,      /* op(op(x)) = op(x) */
    GD_OP_INVOLUTION = 1 << 12,      /* op(op(x)) = x, of floats */
    GD_OP_CHEAP = 1 << 13,           /* takes no longer than to load its result from memory */

    /* in a scope of mixed precision (graph/autocast.h) */
    GD_OP_LOWER = 1 << 14, /* f32 operands are rounded to the scope's dtype */
    GD_OP_FULL = 1 << 15,  /* f16 and bf16 operands are taken as f32 */
};

/* Whether the compiler may compute an op once more, to keep less memory (pass rematerialise), and
 * what that costs besides the bytes it reads and writes. */
typedef enum gd_op_recompute {
    GD_RECOMPUTE_UNKNOWN,  /* not said: of views and effects, which are not asked */
    GD_RECOMPUTE_NEVER,    /* it costs too much */
    GD_RECOMPUTE_MOVES,    /* nothing: it takes as long as to move those bytes */
    GD_RECOMPUTE_FUNCTION, /* a function of each element, such as exp or a random number */
    GD_RECOMPUTE_PRODUCT,  /* its flops */
} gd_op_recompute;

#define GD_ALIKE_ALL     UINT64_MAX
#define GD_OP_VARIADIC   (-1)
#define GD_OP_MAX_INPUTS 64 /* of a variadic op */

typedef struct gd_op gd_op;
struct gd_op {
    gd_op_id id;
    const char *name;
    int arity; /* number of inputs, or GD_OP_VARIADIC (at least one) */
    unsigned flags;
    gd_dtype_set dtypes; /* of operand 0: what every back end's kernel computes with. 0: any, as
                            elements are only moved or converted, or infer sees to it. What other
                            dtypes are computed in: graph/dtypes.h */
    uint64_t alike;      /* bit i: operand i must have the dtype of operand 0 */
    /* Bit i: operand i may be f16 or bf16 in place of f32, on a device that reads them so
     * (gd_device.takes_halves). The op computes in f32 all the same, so the bits are those of casts before
     * it. Gradients of such operands may be f32: the walk rounds them. */
    uint64_t halves;
    /* The attribute ends with an int64_t, `rounded`: GD_F16 or GD_BF16, to which the result is rounded
     * as a cast behind the op would, on such a device; 0: it is not. */
    bool rounds;
    int extra;        /* results besides the first, elementwise as that one: in a trace each is an
                  extra_result of the op, and they follow it. The op is for traces alone */
    size_t attr_size; /* bytes of the attribute struct (ops/attrs.h), 0 for none. Zero its padding:
                         attributes are compared as bytes */

    /* Result layout from the inputs' layouts, whose dtypes have been checked against `dtypes` and
     * `alike`, and the attribute. A view op writes strides and offset
     * into the same storage; any other op gives a contiguous layout with offset 0. Records a
     * sentence and returns the code when the inputs do not fit. */
    gd_status (*infer)(int n, const gd_layout *const *in, const void *attr, gd_layout *out);

    /* Vector-Jacobian product, built as graph: given the result r and its gradient g, put the
     * gradient of input i, of its shape and dtype, in d[i], for every i with
     * gd_wants_grad(r->inputs[i]); leave d[i] NULL where it is zero. false: a builder failed. NULL:
     * not differentiable (gradients stop here in silence, as for comparisons). */
    bool (*vjp)(gd_tensor *r, gd_tensor *g, gd_tensor **d);

    /* The same result from simpler ops, for back ends without a kernel. NULL for primitives. */
    gd_tensor *(*decompose)(int n, gd_tensor *const *in, const void *attr);

    /* The attribute as text, "axis=1"; NULL when there is none. */
    void (*format)(const void *attr, char *text, size_t size);

    /* Floating-point operations as the field counts them, a multiply-add as two; gd_flops_none where
     * it does not count. NULL for views and effects alone. */
    double (*flops)(int n, const gd_layout *const *in, const gd_layout *out, const void *attr);
    gd_op_recompute recompute;

    /* In its attribute, where in the stream of random numbers it draws: words after the position that
     * its operand holds. NULL: it draws none, as an op whose row has no such function. */
    uint64_t *(*random_offset)(void *attr);
};

/* What the attribute of an op that rounds has as `rounded`. */
static inline int64_t gd_op_rounded(const gd_op *op, const void *attr)
{
    return *((const int64_t *)(const void *)((const char *)attr + op->attr_size) - 1);
}

/* The row of an id. */
const gd_op *gd_op_row(gd_op_id id);
/* The row of a name, NULL when there is none. */
const gd_op *gd_op_find(const char *name);

#endif
