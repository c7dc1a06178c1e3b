/* ops/convolution.c: convolution and its two gradients, each an op. y = x * w is linear in x and in
 * w, so each of the three differentiates into the other two, to any order. Of bf16 they give their
 * sums, in f32, as products do (ops/matmul.c). A transposed convolution
 * is the gradient by the input. Start at convolve(). */
#include "ops/internal.h"
#include "ops/spatial.h"

#include "backend/backend.h"
#include "base/options.h"

#include <gradus/conv.h>

/* ---- shapes ---- */

static gd_status fail_operands(const char *who, const gd_layout *x, const gd_layout *w,
                               const char *why)
{
    char a[GD_SHAPE_TEXT], b[GD_SHAPE_TEXT];
    return gd_fail(GD_ERR_SHAPE, "%s: %s and %s: %s", who, gd_layout_text(x, a),
                   gd_layout_text(w, b), why);
}

static gd_status check_operands(const char *who, const gd_layout *a, const gd_layout *b)
{
    if (a->rank < 3 || a->rank > 2 + GD_SPATIAL || b->rank != a->rank)
        return fail_operands(who, a, b, "both need a batch, channels and 1 to 3 spatial axes");
    return GD_OK;
}

/* Elements of one axis of y. */
static gd_status output_size(const char *who, const gd_conv_attr *attr, int a, int64_t in,
                             int64_t kernel, int64_t *out)
{
    const int64_t padded = in + attr->before[a] + attr->after[a];
    const int64_t reach = attr->dilation[a] * (kernel - 1) + 1;
    if (kernel < 1)
        return gd_fail(GD_ERR_SHAPE, "%s: the kernel has no elements", who);
    if (padded < reach)
        return gd_fail(GD_ERR_SHAPE,
                       "%s: the kernel reaches over %lld elements, the padded input has %lld", who,
                       (long long)reach, (long long)padded);
    *out = (padded - reach) / attr->stride[a] + 1;
    return GD_OK;
}

/* Whether y's spatial sizes are what x's and w's give. */
static gd_status check_output(const char *who, const gd_conv_attr *attr, const gd_conv_sizes *s)
{
    for (int a = 0; a < GD_SPATIAL; a++) {
        int64_t size = 0;
        if (output_size(who, attr, a, s->in[a], s->kernel[a], &size) != GD_OK)
            return gd_error_last();
        if (size != s->out[a])
            return gd_fail(GD_ERR_SHAPE, "%s: %lld elements along a spatial axis, %lld expected",
                           who, (long long)s->out[a], (long long)size);
    }
    return GD_OK;
}

/* [first, second, the last rank - 2 of size[3]] */
static gd_shape spatial_shape(int rank, int64_t first, int64_t second,
                              const int64_t size[GD_SPATIAL])
{
    gd_shape shape = { .rank = rank };
    shape.dim[0] = first;
    shape.dim[1] = second;
    for (int axis = 2; axis < rank; axis++)
        shape.dim[axis] = size[GD_SPATIAL - rank + axis];
    return shape;
}

static gd_status infer_convolution(int n, const gd_layout *const *in, const void *attr_,
                                   gd_layout *out)
{
    const char *who = "gd_conv";
    const gd_conv_attr *attr = attr_;
    const gd_layout *x = in[0], *w = n > 1 ? in[1] : NULL;
    if (n < 2 || n > 3)
        return gd_fail(GD_ERR_INVALID, "convolution: %d operands, 2 or 3 expected", n);
    if (check_operands(who, x, w) != GD_OK)
        return gd_error_last();
    if (w->shape[1] * attr->groups != x->shape[1] || w->shape[0] % attr->groups)
        return fail_operands(who, x, w,
                             "the weight must be [out, channels / groups, kernel...], both "
                             "multiples of the groups");
    if (n == 3 && (in[2]->rank != 1 || in[2]->shape[0] != w->shape[0] ||
                   in[2]->dtype != gd_sums_dtype(x->dtype)))
        return fail_operands(who, w, in[2], "the bias must have an element for each output");
    int64_t size[GD_SPATIAL];
    for (int a = 0; a < GD_SPATIAL; a++)
        if (output_size(who, attr, a, gd_spatial_size(x, a), gd_spatial_size(w, a), &size[a]) !=
            GD_OK)
            return gd_error_last();
    return gd_layout_init(out, spatial_shape(x->rank, x->shape[0], w->shape[0], size),
                          gd_sums_dtype(x->dtype), who);
}

static gd_status infer_grad_input(int n, const gd_layout *const *in, const void *attr_,
                                  gd_layout *out)
{
    (void)n;
    const char *who = "gd_conv_transpose";
    const gd_conv_attr *attr = attr_;
    const gd_layout *g = in[0], *w = in[1];
    if (check_operands(who, g, w) != GD_OK)
        return gd_error_last();
    if (g->shape[1] != w->shape[0] || w->shape[0] % attr->groups)
        return fail_operands(who, g, w,
                             "the weight must be [channels, out / groups, kernel...], the channels "
                             "a multiple of the groups");
    const gd_shape shape =
        spatial_shape(g->rank, g->shape[0], w->shape[1] * attr->groups, attr->size);
    if (gd_layout_init(out, shape, gd_sums_dtype(g->dtype), who) != GD_OK)
        return gd_error_last();
    const gd_conv_sizes s = gd_conv_sizes_of(out, w, g, attr->groups);
    return check_output(who, attr, &s);
}

static gd_status infer_grad_weight(int n, const gd_layout *const *in, const void *attr_,
                                   gd_layout *out)
{
    (void)n;
    const char *who = "convolution_grad_weight";
    const gd_conv_attr *attr = attr_;
    const gd_layout *g = in[0], *x = in[1];
    if (check_operands(who, g, x) != GD_OK)
        return gd_error_last();
    if (g->shape[0] != x->shape[0] || g->shape[1] % attr->groups || x->shape[1] % attr->groups)
        return fail_operands(who, g, x, "batches differ or channels do not divide into groups");
    const gd_shape shape =
        spatial_shape(x->rank, g->shape[1], x->shape[1] / attr->groups, attr->size);
    if (gd_layout_init(out, shape, gd_sums_dtype(g->dtype), who) != GD_OK)
        return gd_error_last();
    const gd_conv_sizes s = gd_conv_sizes_of(x, out, g, attr->groups);
    return check_output(who, attr, &s);
}

/* ---- derivatives ---- */

/* The dtype in which the op multiplies operands of these layouts, once both have `dtype`. bf16 where the
 * device has a kernel of its own for it, else f32 for halves. */
static gd_dtype factor_dtype(gd_op_id id, const gd_tensor *a, const gd_tensor *b, gd_dtype dtype,
                             const gd_conv_attr *attr)
{
    const gd_context *context = a->context;
    if (!gd_dtype_is_half(dtype) || gd_compute_dtype(id, dtype) != dtype)
        return gd_compute_dtype(id, dtype);
    if (!gd_dtype_set_has(context->device->half_products, dtype))
        return GD_F32;
    gd_layout x = a->layout, y = b->layout;
    x.dtype = y.dtype = dtype;
    const gd_layout *const in[] = { &x, &y };
    return gd_op_is_taken(context, id, 2, in, attr) ? dtype : GD_F32;
}

/* One of the three ops, for the gradient of r: of operands of the dtype of r's, to which its sums are
 * rounded. Kernels want their operands contiguous. size_of: the tensor whose spatial sizes the
 * attribute is to name, or NULL. */
static gd_tensor *apply(gd_op_id id, gd_tensor *a, gd_tensor *b, const gd_tensor *r,
                        const gd_tensor *size_of)
{
    const gd_dtype dtype = r->inputs[0]->layout.dtype;
    gd_conv_attr attr = *(const gd_conv_attr *)r->attr;
    for (int axis = 0; axis < GD_SPATIAL; axis++)
        attr.size[axis] = size_of ? gd_spatial_size(&size_of->layout, axis) : 0;
    const gd_dtype compute = factor_dtype(id, a, b, dtype, &attr);
    a = gd_contiguous(gd_as_dtype(gd_as_dtype(a, dtype), compute));
    b = gd_contiguous(gd_as_dtype(gd_as_dtype(b, dtype), compute));
    return gd_as_dtype(gd_apply2(id, a, b, &attr), dtype);
}

/* The bias first: the sums of its gradient's rows may then join what makes g (compile/fuse.c). */
static bool vjp_convolution(gd_tensor *r, gd_tensor *g, gd_tensor **d)
{
    gd_tensor *x = r->inputs[0], *w = r->inputs[1];
    if (r->n_inputs > 2 && gd_wants_grad(r->inputs[2])) {
        gd_axes axes = { .count = 0 };
        for (int axis = 0; axis < r->layout.rank; axis++)
            if (axis != 1)
                axes.axis[axes.count++] = axis;
        if (!gd_put(&d[2], gd_sum(g, axes, false)))
            return false;
    }
    return (!gd_wants_grad(x) || gd_put(&d[0], apply(GD_OP_convolution_grad_input, g, w, r, x))) &&
           (!gd_wants_grad(w) || gd_put(&d[1], apply(GD_OP_convolution_grad_weight, g, x, r, w)));
}

/* r = grad_input(g, w), h its gradient, of x's shape. */
static bool vjp_grad_input(gd_tensor *r, gd_tensor *h, gd_tensor **d)
{
    gd_tensor *g = r->inputs[0], *w = r->inputs[1];
    return (!gd_wants_grad(g) || gd_put(&d[0], apply(GD_OP_convolution, h, w, r, NULL))) &&
           (!gd_wants_grad(w) || gd_put(&d[1], apply(GD_OP_convolution_grad_weight, g, h, r, w)));
}

/* r = grad_weight(g, x), h its gradient, of w's shape. */
static bool vjp_grad_weight(gd_tensor *r, gd_tensor *h, gd_tensor **d)
{
    gd_tensor *g = r->inputs[0], *x = r->inputs[1];
    return (!gd_wants_grad(g) || gd_put(&d[0], apply(GD_OP_convolution, x, h, r, NULL))) &&
           (!gd_wants_grad(x) || gd_put(&d[1], apply(GD_OP_convolution_grad_input, g, h, r, x)));
}

static void format_conv(const void *attr_, char *text, size_t size)
{
    const gd_conv_attr *a = attr_;
    snprintf(text, size,
             "stride=%lld,%lld,%lld pad=%lld:%lld,%lld:%lld,%lld:%lld dilation=%lld,%lld,%lld "
             "groups=%lld%s",
             (long long)a->stride[0], (long long)a->stride[1], (long long)a->stride[2],
             (long long)a->before[0], (long long)a->after[0], (long long)a->before[1],
             (long long)a->after[1], (long long)a->before[2], (long long)a->after[2],
             (long long)a->dilation[0], (long long)a->dilation[1], (long long)a->dilation[2],
             (long long)a->groups, a->relu ? " relu" : "");
}

/* For each element of x or of the output, a multiply-add with each weight [o, c, kernel...] of one
 * channel. */
static double flops_of(const gd_layout *elements, const gd_layout *w)
{
    return w->shape[0] ? 2.0 * (double)gd_layout_count(elements) *
                             (double)(gd_layout_count(w) / w->shape[0])
                       : 0;
}

static double flops_convolution(int n, const gd_layout *const *in, const gd_layout *out,
                                const void *attr)
{
    (void)n, (void)attr;
    return flops_of(out, in[1]);
}

/* The gradient of the output is input 0. */
static double flops_grad_input(int n, const gd_layout *const *in, const gd_layout *out,
                               const void *attr)
{
    (void)n, (void)out, (void)attr;
    return flops_of(in[0], in[1]);
}

static double flops_grad_weight(int n, const gd_layout *const *in, const gd_layout *out,
                                const void *attr)
{
    (void)n, (void)attr;
    return flops_of(in[0], out);
}

#define CONV_DTYPES (GD_DTYPES_REAL | GD_DTYPE_SET(GD_BF16))
#define CONV_ROW(name_, arity_, infer_, vjp_, flops_)                \
    const gd_op gd_op_##name_ = { .id = GD_OP_##name_,               \
                                  .name = #name_,                    \
                                  .arity = arity_,                   \
                                  .flags = GD_OP_LOWER,              \
                                  .dtypes = CONV_DTYPES,             \
                                  .alike = 1 << 1,                   \
                                  .attr_size = sizeof(gd_conv_attr), \
                                  .infer = infer_,                   \
                                  .vjp = vjp_,                       \
                                  .format = format_conv,             \
                                  .flops = flops_,                   \
                                  .recompute = GD_RECOMPUTE_NEVER };
CONV_ROW(convolution, GD_OP_VARIADIC, infer_convolution, vjp_convolution, flops_convolution)
CONV_ROW(convolution_grad_input, 2, infer_grad_input, vjp_grad_input, flops_grad_input)
CONV_ROW(convolution_grad_weight, 2, infer_grad_weight, vjp_grad_weight, flops_grad_weight)

/* ---- builders ---- */

/* Zeros in front of an axis and behind it; false (recorded) when they cannot be. */
static bool set_padding(const char *who, int axes, const gd_conv_options *o, int i, int64_t *before,
                        int64_t *after)
{
    const gd_shape *front = o->padding_before.rank ? &o->padding_before : &o->padding;
    const gd_shape *behind = o->padding_after.rank ? &o->padding_after : &o->padding;
    return gd_spatial_option(who, "padding", front, axes, i, 0, 0, before) &&
           gd_spatial_option(who, "padding", behind, axes, i, 0, 0, after);
}

/* The attribute of a convolution over `axes` axes; with .same, paddings that depend on x's sizes.
 */
static bool make_attr(const char *who, const gd_tensor *x, const gd_tensor *weight, int axes,
                      const gd_conv_options *o, bool transposed, gd_conv_attr *attr)
{
    memset(attr, 0, sizeof *attr);
    attr->groups = o->groups;
    if (o->groups < 1 || o->groups > GD_SPATIAL_LARGEST) {
        (void)gd_fail(GD_ERR_INVALID, "%s: groups is %lld", who, (long long)o->groups);
        return false;
    }
    if (o->same && (o->padding.rank || o->padding_before.rank || o->padding_after.rank)) {
        (void)gd_fail(GD_ERR_INVALID, "%s: .same finds the padding itself; both are given", who);
        return false;
    }
    for (int a = 0; a < GD_SPATIAL; a++) {
        attr->stride[a] = attr->dilation[a] = 1;
        const int i = a - (GD_SPATIAL - axes); /* which of the caller's axes */
        if (i < 0)
            continue;
        if (!gd_spatial_option(who, "stride", &o->stride, axes, i, 1, 1, &attr->stride[a]) ||
            !gd_spatial_option(who, "dilation", &o->dilation, axes, i, 1, 1, &attr->dilation[a]) ||
            !set_padding(who, axes, o, i, &attr->before[a], &attr->after[a]))
            return false;
        if (!o->same)
            continue;
        const int64_t size = gd_spatial_size(&x->layout, a), s = attr->stride[a];
        const int64_t reach = attr->dilation[a] * (gd_spatial_size(&weight->layout, a) - 1) + 1;
        const int64_t last = transposed ? (size - 1) * s : ((size + s - 1) / s - 1) * s;
        const int64_t total = last + reach - (transposed ? size * s : size);
        attr->before[a] = total > 0 ? total / 2 : 0;
        attr->after[a] = total > 0 ? total - total / 2 : 0;
    }
    return true;
}

/* The operands of a builder, and the dtype of its result. */
typedef struct operands {
    gd_tensor *x, *weight, *bias;
    bool has_bias;
    gd_dtype dtype;
} operands;

/* Checks what a builder looks at before infer does, and finds the dtype of the result. */
static bool prepare(const char *who, operands *t, int axes)
{
    if (!t->x || !t->weight || !GD_NONE_ENDED(who, t->x, t->weight, t->bias))
        return false;
    if (axes < 1 || axes > GD_SPATIAL) {
        (void)gd_fail(GD_ERR_INVALID, "%s: %d spatial axes, 1 to 3 are possible", who, axes);
        return false;
    }
    if (t->x->layout.rank != axes + 2 || t->weight->layout.rank != axes + 2) {
        (void)fail_operands(who, &t->x->layout, &t->weight->layout,
                            axes == 1   ? "both need 3 axes"
                            : axes == 2 ? "both need 4 axes"
                                        : "both need 5 axes");
        return false;
    }
    t->has_bias = t->bias != NULL;
    t->x = gd_autocast(GD_OP_convolution, t->x);
    t->weight = gd_autocast(GD_OP_convolution, t->weight);
    if (!t->x || !t->weight)
        return false;
    t->dtype = gd_dtype_promote(t->x->layout.dtype, t->weight->layout.dtype);
    if (t->bias && !gd_autocast_is_on(t->x->context))
        t->dtype = gd_dtype_promote(t->dtype, t->bias->layout.dtype);
    t->dtype = gd_float_dtype(t->dtype);
    return true;
}

/* Brings the operands to the dtype in which the op multiplies them, and the bias to that of its sums. */
static bool convert(operands *t, gd_op_id id, const gd_conv_attr *attr)
{
    /* Of a half and another dtype one would be rounded: they are multiplied in f32. */
    const bool alike = t->x->layout.dtype == t->weight->layout.dtype;
    const gd_dtype compute = gd_dtype_is_half(t->dtype) && !alike
                                 ? GD_F32
                                 : factor_dtype(id, t->x, t->weight, t->dtype, attr);
    t->x = gd_contiguous(gd_as_dtype(t->x, compute));
    t->weight = gd_contiguous(gd_as_dtype(t->weight, compute));
    if (t->has_bias)
        t->bias = gd_contiguous(gd_as_dtype(t->bias, gd_sums_dtype(compute)));
    return t->x && t->weight && (t->bias || !t->has_bias);
}

static gd_tensor *build_conv(const char *who, operands t, int axes, const gd_conv_options *options)
{
    gd_conv_options o = { GD_CONV_DEFAULTS };
    gd_conv_attr attr;
    if (!gd_options_read(who, &o, sizeof o, options) || !prepare(who, &t, axes) ||
        !make_attr(who, t.x, t.weight, axes, &o, false, &attr))
        return NULL;
    if (o.output_padding.rank)
        return gd_fail_null(GD_ERR_INVALID,
                            "%s: output_padding is an option of transposed convolution", who);
    if (!convert(&t, GD_OP_convolution, &attr))
        return NULL;
    gd_tensor *in[3] = { t.x, t.weight, t.bias };
    return gd_as_dtype(gd_apply(NULL, GD_OP_convolution, t.has_bias ? 3 : 2, in, &attr), t.dtype);
}

gd_tensor *gd_conv_with(gd_tensor *x, gd_tensor *weight, gd_tensor *bias, int axes,
                        const gd_conv_options *options)
{
    static const char *const names[] = { "gd_conv1d", "gd_conv2d", "gd_conv3d" };
    const char *who = axes >= 1 && axes <= 3 ? names[axes - 1] : "gd_conv_with";
    const operands t = { .x = x, .weight = weight, .bias = bias };
    return GD_AS(who, build_conv(who, t, axes, options));
}

/* bias [out] as [out, 1...], so that it broadcasts along the channels. */
static gd_tensor *channel_bias(gd_tensor *bias, int axes)
{
    if (bias->layout.rank != 1)
        return gd_fail_null(GD_ERR_SHAPE, "gd_conv_transpose: the bias has rank %d, not 1",
                            bias->layout.rank);
    gd_shape shape = { .rank = 1 + axes, .dim = { bias->layout.shape[0], 1, 1, 1 } };
    return gd_reshape(bias, shape);
}

/* The sizes of a transposed convolution's result. */
static bool set_sizes(const char *who, const operands *t, int axes, const gd_conv_options *o,
                      gd_conv_attr *attr)
{
    for (int a = 0; a < GD_SPATIAL; a++) {
        const int i = a - (GD_SPATIAL - axes);
        const int64_t size = gd_spatial_size(&t->x->layout, a);
        const int64_t reach = attr->dilation[a] * (gd_spatial_size(&t->weight->layout, a) - 1) + 1;
        int64_t more = 0;
        if (i >= 0 &&
            !gd_spatial_option(who, "output_padding", &o->output_padding, axes, i, 0, 0, &more))
            return false;
        if (more >= attr->stride[a]) {
            (void)gd_fail(GD_ERR_INVALID, "%s: an output padding is %lld, the stride %lld", who,
                          (long long)more, (long long)attr->stride[a]);
            return false;
        }
        attr->size[a] =
            (size - 1) * attr->stride[a] - attr->before[a] - attr->after[a] + reach + more;
        if (o->same && i >= 0)
            attr->size[a] = size * attr->stride[a];
        if (attr->size[a] < 1) {
            (void)gd_fail(GD_ERR_SHAPE, "%s: an axis of the result has %lld elements", who,
                          (long long)attr->size[a]);
            return false;
        }
    }
    return true;
}

static gd_tensor *build_conv_transpose(const char *who, operands t, int axes,
                                       const gd_conv_options *options)
{
    gd_conv_options o = { GD_CONV_DEFAULTS };
    gd_conv_attr attr;
    if (!gd_options_read(who, &o, sizeof o, options) || !prepare(who, &t, axes) ||
        !make_attr(who, t.x, t.weight, axes, &o, true, &attr) ||
        !set_sizes(who, &t, axes, &o, &attr) || !convert(&t, GD_OP_convolution_grad_input, &attr))
        return NULL;
    gd_tensor *r = gd_apply2(GD_OP_convolution_grad_input, t.x, t.weight, &attr);
    if (t.has_bias) {
        if (r && t.bias->layout.rank == 1 && t.bias->layout.shape[0] != r->layout.shape[1])
            return gd_fail_null(GD_ERR_SHAPE, "%s: %lld channels and a bias of %lld", who,
                                (long long)r->layout.shape[1], (long long)t.bias->layout.shape[0]);
        r = r ? gd_add(r, channel_bias(t.bias, axes)) : NULL;
    }
    return gd_as_dtype(r, t.dtype);
}

gd_tensor *gd_conv_transpose_with(gd_tensor *x, gd_tensor *weight, gd_tensor *bias, int axes,
                                  const gd_conv_options *options)
{
    static const char *const names[] = { "gd_conv_transpose1d", "gd_conv_transpose2d",
                                         "gd_conv_transpose3d" };
    const char *who = axes >= 1 && axes <= 3 ? names[axes - 1] : "gd_conv_transpose_with";
    const operands t = { .x = x, .weight = weight, .bias = bias };
    return GD_AS(who, build_conv_transpose(who, t, axes, options));
}
