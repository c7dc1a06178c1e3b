/* ops/elementwise.c: from each row of elementwise.def: its gd_op, its derivative and its builder
 * gd_<name>. Builders that take a C number are in ops/number.c. */
#include "ops/internal.h"

/* The dtypes a row has kernels for, by its `types`. */
#define TYPES_FLOAT    GD_DTYPES_FLOAT
#define TYPES_WHOLE    GD_DTYPES_FLOAT
#define TYPES_NUMERIC  (GD_DTYPES_FLOAT | GD_DTYPES_INTEGER)
#define TYPES_INTEGRAL (GD_DTYPES_INTEGER | GD_DTYPE_SET(GD_BOOL))
#define TYPES_ALL      (GD_DTYPES_FLOAT | GD_DTYPES_INTEGER | GD_DTYPE_SET(GD_BOOL))
#define TYPES_CHOOSE   0 /* any: the elements are moved */

typedef enum types { FLOAT, WHOLE, NUMERIC, INTEGRAL, ALL, CHOOSE } types;
typedef enum result { SAME, BOOL } result;
enum {
    NONE = 0,
    CHEAP = GD_OP_CHEAP,
    COMMUTES = GD_OP_COMMUTES,
    UNIT_ONE = GD_OP_UNIT_ONE,
    UNIT_ZERO = GD_OP_UNIT_ZERO,
    UNIT_MINUS_ZERO = GD_OP_UNIT_MINUS_ZERO,
    IDEMPOTENT = GD_OP_IDEMPOTENT,
    INVOLUTION = GD_OP_INVOLUTION,
    FULL = GD_OP_FULL,
};

gd_tensor gd_zero_marker;
#define ZERO (&gd_zero_marker)

/* Row-major in every axis, from the beginning of its storage: as a result lies. */
static bool lies_like_result(const gd_layout *layout)
{
    int64_t expected = 1;
    for (int a = layout->rank - 1; a >= 0; a--) {
        if (layout->stride[a] != expected)
            return false;
        expected *= layout->shape[a] > 0 ? layout->shape[a] : 1;
    }
    return layout->offset == 0;
}

/* An operand whose layout the result has: the others have its shape or are one number, which is the
 * usual case. NULL: there is none. */
static const gd_layout *find_result_layout(int n, const gd_layout *const *in)
{
    const gd_layout *largest = in[0];
    for (int i = 1; i < n; i++)
        if (in[i]->rank > largest->rank)
            largest = in[i];
    for (int i = 0; i < n; i++)
        if (in[i]->rank != 0 && in[i] != largest && !gd_layout_same_shape(in[i], largest))
            return NULL;
    return lies_like_result(largest) ? largest : NULL;
}

static gd_status infer(const char *name, types accepted, result kind, int n,
                       const gd_layout *const *in, gd_layout *out)
{
    gd_dtype dtype = in[n - 1]->dtype;
    if (accepted == CHOOSE && (in[0]->dtype != GD_BOOL || in[1]->dtype != dtype))
        return gd_fail(
            GD_ERR_DTYPE, "%s: chooses by bool between two of one dtype; given %s, %s and %s", name,
            gd_dtype_name(in[0]->dtype), gd_dtype_name(in[1]->dtype), gd_dtype_name(dtype));
    const gd_layout *same = find_result_layout(n, in);
    if (same) {
        *out = *same;
        out->dtype = kind == BOOL ? GD_BOOL : dtype;
        return GD_OK;
    }
    gd_shape shape = gd_layout_shape(in[0]);
    for (int i = 1; i < n; i++) {
        if (!gd_shape_broadcast(shape, gd_layout_shape(in[i]), &shape)) {
            char a[GD_SHAPE_TEXT], b[GD_SHAPE_TEXT];
            return gd_fail(GD_ERR_SHAPE, "%s: shapes %s and %s do not broadcast together", name,
                           gd_layout_text(in[0], a), gd_layout_text(in[i], b));
        }
    }
    return gd_layout_init(out, shape, kind == BOOL ? GD_BOOL : dtype, name);
}

/* Promote operands [first, n) to one accepted dtype, then apply. */
static gd_tensor *build(gd_op_id id, types accepted, int n, gd_tensor **in)
{
    int first = accepted == CHOOSE ? 1 : 0;
    for (int i = 0; i < n; i++)
        if (!gd_operand_usable(id, i, in[i]))
            return NULL;
    gd_dtype dtype = in[first]->layout.dtype;
    for (int i = first + 1; i < n; i++)
        dtype = gd_dtype_promote(dtype, in[i]->layout.dtype);
    if (gd_autocast_is_on(in[0]->context))
        dtype = gd_autocast_dtype(in[0]->context, id, dtype);
    if (accepted == WHOLE && !gd_dtype_is_float(dtype))
        return in[0];
    gd_dtype compute = gd_compute_dtype(id, dtype);
    if (compute == GD_DTYPE_COUNT)
        compute = dtype; /* which the row refuses */
    if (first)
        in[0] = gd_as_dtype(in[0], GD_BOOL);
    for (int i = first; i < n; i++)
        if (in[i]->layout.dtype != compute)
            in[i] = gd_as_dtype(in[i], compute);
    return gd_apply(NULL, id, n, in, NULL);
}

/* How the gradient g of max or min goes to operand x: where x is the result r; half where the other
 * operand y ties. */
static gd_tensor *gd_extreme_grad(gd_tensor *g, gd_tensor *x, gd_tensor *y, gd_tensor *r)
{
    gd_tensor *share = gd_where(gd_eq(x, y), gd_number_like(g, 0.5), gd_number_like(g, 1.0));
    return gd_where(gd_eq(x, r), gd_mul(g, share), gd_number_like(g, 0.0));
}

/* y - 1, but 0 where y is 0: y * x^that is the derivative of x^y also at 0^0, where it is 0. */
static gd_tensor *gd_lower_exponent(gd_tensor *y)
{
    gd_tensor *one = gd_ne(y, gd_number_like(y, 0.0));
    return one ? gd_sub(y, gd_as_dtype(one, y->layout.dtype)) : NULL;
}

/* y x^(y - 1). In f16 and bf16 y - 1 would be another exponent. */
static gd_tensor *gd_pow_slope(gd_tensor *x, gd_tensor *y)
{
    gd_tensor *base = gd_widen(x), *power = gd_widen(y);
    return gd_as_dtype(gd_mul(power, gd_pow(base, gd_lower_exponent(power))), x->layout.dtype);
}

/* x^(y - 1) (y ln x + 1), in the same way. */
static gd_tensor *gd_pow_log_by_base(gd_tensor *x, gd_tensor *y)
{
    gd_tensor *base = gd_widen(x), *power = gd_widen(y);
    gd_tensor *slope = gd_mul(gd_pow(base, gd_add_scalar(power, -1.0)),
                              gd_add_scalar(gd_mul(power, gd_log(base)), 1.0));
    return gd_as_dtype(slope, x->layout.dtype);
}

/* x / y without the digits behind the point. In f16 and bf16 the quotient could round up to a whole number. */
static gd_tensor *gd_whole_quotient(gd_tensor *x, gd_tensor *y)
{
    return gd_as_dtype(gd_trunc(gd_div(gd_widen(x), gd_widen(y))), x->layout.dtype);
}

/* A derivative of pow_log, 0 where that is 0 by definition. */
static gd_tensor *gd_pow_log_slope(gd_tensor *x, gd_tensor *y, gd_tensor *slope)
{
    gd_tensor *zero = gd_number_like(x, 0.0);
    return gd_where(gd_logical_or(gd_ne(x, zero), gd_lt(y, zero)), slope, zero);
}

/* By y, which often has fewer axes than g, as z has: what is the same along an axis is multiplied once g is summed. */
static gd_tensor *gd_scale_centred_by_center(gd_tensor *g, gd_tensor *y, gd_tensor *z)
{
    const bool is_alike = gd_layout_same_shape(&y->layout, &z->layout);
    return gd_neg(gd_mul(is_alike ? gd_sum_to(g, &y->layout) : g, z));
}

/* By z: of channels, sums of products in one pass. */
static gd_tensor *gd_scale_centred_by_scale(gd_tensor *g, gd_tensor *x, gd_tensor *y, gd_tensor *z)
{
    gd_tensor *sums = NULL;
    if (!gd_sum_channels(x, y, g, &z->layout, &sums))
        return gd_mul(g, gd_sub(x, y));
    return sums;
}

/* ---- second derivatives of activations ---- */

/* phi(x) (2 - x^2), phi the density of the normal distribution */
static gd_tensor *gelu_second(gd_tensor *x)
{
    gd_tensor *square = gd_square(x);
    gd_tensor *density = gd_mul_scalar(gd_exp(gd_mul_scalar(square, -0.5)), 0.39894228040143267794);
    return gd_mul(density, gd_rsub_scalar(square, 2.0));
}

/* (1 - t^2) (u' + x u'' / 2 - x t u'^2), t = tanh u, u = c (x + a x^3), c = sqrt(2 / pi), a =
 * 0.044715: u' = c + 3 c a x^2, x u'' / 2 = 3 c a x^2 */
static gd_tensor *gelu_tanh_second(gd_tensor *x)
{
    const double a = 0.044715, c = 0.79788456080286535588;
    gd_tensor *square = gd_square(x), *bend = gd_mul_scalar(square, 3.0 * c * a);
    gd_tensor *slope = gd_add_scalar(bend, c);
    gd_tensor *u = gd_mul(x, gd_mul_scalar(gd_add_scalar(gd_mul_scalar(square, a), 1.0), c));
    gd_tensor *t = gd_tanh(u);
    gd_tensor *last = gd_mul(gd_mul(x, t), gd_square(slope));
    return gd_mul(gd_rsub_scalar(gd_square(t), 1.0), gd_sub(gd_add(slope, bend), last));
}

/* s (1 - s) (2 + x (1 - 2 s)), s = sigmoid(x) */
static gd_tensor *silu_second(gd_tensor *x)
{
    gd_tensor *s = gd_sigmoid(x), *slope = gd_mul(s, gd_rsub_scalar(s, 1.0));
    gd_tensor *rest = gd_mul(x, gd_rsub_scalar(gd_mul_scalar(s, 2.0), 1.0));
    return gd_mul(slope, gd_add_scalar(rest, 2.0));
}

/* Numbers of 16 bits on the way would be inexact, and not finite where the derivative is. */
static gd_tensor *gd_second(gd_tensor *x, gd_tensor *(*second)(gd_tensor *x))
{
    const gd_dtype dtype = x->layout.dtype;
    if (dtype != GD_F16 && dtype != GD_BF16)
        return second(x);
    return gd_as_dtype(second(gd_as_dtype(x, GD_F32)), dtype);
}

/* ---- rows ---- */

#define ROW(name_, arity_, types_, result_, laws_)                                      \
    static gd_status infer_##name_(int n, const gd_layout *const *in, const void *attr, \
                                   gd_layout *out)                                      \
    {                                                                                   \
        (void)attr;                                                                     \
        return infer("gd_" #name_, types_, result_, n, in, out);                        \
    }                                                                                   \
    extern const gd_op gd_op_##name_;                                                   \
    const gd_op gd_op_##name_ = { .id = GD_OP_##name_,                                  \
                                  .name = #name_,                                       \
                                  .arity = arity_,                                      \
                                  .flags = GD_OP_ELEMENTWISE | (laws_),                 \
                                  .dtypes = TYPES_##types_,                             \
                                  .alike = TYPES_##types_ ? GD_ALIKE_ALL : 0,           \
                                  .infer = infer_##name_,                               \
                                  .vjp = vjp_##name_,                                   \
                                  .flops = gd_flops_each,                               \
                                  .recompute = GD_RECOMPUTE_MOVES };

#define GD_UNARY(name, types, result, formula, dx, laws)              \
    static bool vjp_##name(gd_tensor *r, gd_tensor *g, gd_tensor **d) \
    {                                                                 \
        gd_tensor *x = r->inputs[0];                                  \
        (void)g;                                                      \
        return !gd_wants_grad(x) || gd_put(&d[0], dx);                \
    }                                                                 \
    ROW(name, 1, types, result, laws)                                 \
    gd_tensor *gd_##name(gd_tensor *x)                                \
    {                                                                 \
        return build(GD_OP_##name, types, 1, &x);                     \
    }

#define GD_BINARY(name, types, result, formula, dx, dy, laws)          \
    static bool vjp_##name(gd_tensor *r, gd_tensor *g, gd_tensor **d)  \
    {                                                                  \
        gd_tensor *x = r->inputs[0], *y = r->inputs[1];                \
        (void)g;                                                       \
        return (!gd_wants_grad(x) || gd_put(&d[0], dx)) &&             \
               (!gd_wants_grad(y) || gd_put(&d[1], dy));               \
    }                                                                  \
    ROW(name, 2, types, result, laws)                                  \
    gd_tensor *gd_##name(gd_tensor *x, gd_tensor *y)                   \
    {                                                                  \
        return build(GD_OP_##name, types, 2, (gd_tensor *[]){ x, y }); \
    }

#define GD_TERNARY(name, types, result, formula, dx, dy, dz, laws)         \
    static bool vjp_##name(gd_tensor *r, gd_tensor *g, gd_tensor **d)      \
    {                                                                      \
        gd_tensor *x = r->inputs[0], *y = r->inputs[1], *z = r->inputs[2]; \
        return (!gd_wants_grad(x) || gd_put(&d[0], dx)) &&                 \
               (!gd_wants_grad(y) || gd_put(&d[1], dy)) &&                 \
               (!gd_wants_grad(z) || gd_put(&d[2], dz));                   \
    }                                                                      \
    ROW(name, 3, types, result, laws)                                      \
    gd_tensor *gd_##name(gd_tensor *x, gd_tensor *y, gd_tensor *z)         \
    {                                                                      \
        return build(GD_OP_##name, types, 3, (gd_tensor *[]){ x, y, z });  \
    }

#include "ops/elementwise.def"
