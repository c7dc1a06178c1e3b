/* ops/norm.c: normalisation. Start at the builders at the end.
 *
 * One pair of ops, normalize and normalize_grad, works on the rows of the last axis: with c = x -
 * mean(x) (or x itself when not centred), s = 1 / sqrt(mean(c^2) + epsilon) and h = c * s,
 *
 *     normalize(x, weight, bias) = h * weight + bias
 *
 * Centred, this is layer normalisation (Ba, Kiros, Hinton 2016), not centred RMS normalisation
 * (Zhang, Sennrich 2019). Group (Wu, He 2018) and instance normalisation are layer normalisation of
 * reshaped rows. Batch normalisation (Ioffe, Szegedy 2015) is made of simpler ops, one of them for it alone:
 * centred_products reads x [n, c, ..], and g, once for the sums over the last axes of
 *
 *     (x - center[c])^2    or    (x - center[c]) g
 *
 * with the bits of a subtraction, a product and a sum. Its results [n, c] are then summed over n.
 *
 * Derivatives use J(v) = s * (v - mean(v) - h * mean(v * h)), the product with the Jacobian of h by
 * x, which is symmetric (the middle term only when centred).
 */
#include "ops/internal.h"

#include "base/options.h"

/* ---- the row ops ---- */

static const gd_norm_attr *attr_of(const gd_tensor *r)
{
    return r->attr;
}

static gd_status check_rows(int n, const gd_layout *const *in, const char *who)
{
    const gd_layout *x = in[0];
    if (x->rank < 1)
        return gd_fail(GD_ERR_SHAPE, "%s: x is a single number; it needs an axis to normalise",
                       who);
    for (int i = 0; i < n; i++)
        if (!gd_layout_is_contiguous(in[i]))
            return gd_fail(GD_ERR_INVALID, "%s: operand %d is not contiguous", who, i);
    return GD_OK;
}

/* A weight or bias: [k] for x [.., k]. */
static gd_status check_vector(const gd_layout *x, const gd_layout *v, const char *who)
{
    char a[GD_SHAPE_TEXT], b[GD_SHAPE_TEXT];
    if (v->rank == 1 && v->shape[0] == x->shape[x->rank - 1])
        return GD_OK;
    return gd_fail(
        GD_ERR_SHAPE,
        "%s: rows of %s with a weight or bias %s; one number per element of a row is expected", who,
        gd_layout_text(x, a), gd_layout_text(v, b));
}

static gd_status infer_normalize(int n, const gd_layout *const *in, const void *attr,
                                 gd_layout *out)
{
    static const char who[] = "normalize";
    const gd_norm_attr *a = attr;
    if (n != 1 + a->parts)
        return gd_fail(GD_ERR_INVALID, "%s: %d operands, %d expected", who, n, 1 + a->parts);
    gd_status status = check_rows(n, in, who);
    for (int i = 1; status == GD_OK && i < n; i++)
        status = check_vector(in[0], in[i], who);
    const gd_dtype dtype = gd_rounded_dtype(in[0]->dtype, a->rounded);
    return status == GD_OK ? gd_infer_like(in[0], dtype, who, out) : status;
}

/* x [.., k], g like x, weight [k] where there is one -> [rows + parts * blocks, k] */
static gd_status infer_normalize_grad(int n, const gd_layout *const *in, const void *attr,
                                      gd_layout *out)
{
    static const char who[] = "normalize_grad";
    const gd_norm_attr *a = attr;
    if (n != (a->parts ? 3 : 2))
        return gd_fail(GD_ERR_INVALID, "%s: %d operands, %d expected", who, n, a->parts ? 3 : 2);
    gd_status status = check_rows(n, in, who);
    if (status == GD_OK && !gd_layout_same_shape(in[0], in[1]))
        status = gd_fail(GD_ERR_SHAPE, "%s: the gradient does not fit x", who);
    if (status == GD_OK && n == 3)
        status = check_vector(in[0], in[2], who);
    if (status != GD_OK)
        return status;
    int64_t rows = gd_norm_rows(in[0]);
    return gd_layout_init(
        out, GD_SHAPE(rows + a->parts * gd_norm_blocks(rows), in[0]->shape[in[0]->rank - 1]),
        gd_sums_dtype(in[0]->dtype), who);
}

/* What is known of x [rows, k], as graph. */
typedef struct rows {
    gd_tensor *h, *scale; /* [rows, k], [rows, 1] */
    bool center;
} rows;

static gd_tensor *row_mean(gd_tensor *x)
{
    return gd_mean(x, GD_AXES(-1), true);
}

static rows rows_of(gd_tensor *x, const gd_norm_attr *a)
{
    gd_tensor *c = a->center ? gd_sub(x, row_mean(x)) : x;
    gd_tensor *scale = gd_rsqrt(gd_add_scalar(row_mean(gd_square(c)), a->epsilon));
    return (rows){ gd_mul(c, scale), scale, a->center != 0 };
}

/* J(v) */
static gd_tensor *jacobian(const rows *r, gd_tensor *v)
{
    gd_tensor *rest = gd_mul(r->h, row_mean(gd_mul(v, r->h)));
    gd_tensor *middle = r->center ? gd_sub(v, row_mean(v)) : v;
    return gd_mul(r->scale, gd_sub(middle, rest));
}

static gd_tensor *decompose_normalize(int n, gd_tensor *const *in, const void *attr)
{
    rows r = rows_of(in[0], attr);
    gd_tensor *y = n > 1 ? gd_mul(r.h, in[1]) : r.h;
    return n > 2 ? gd_add(y, in[2]) : y;
}

static gd_tensor *as_rows(gd_tensor *x, int64_t count)
{
    return x ? gd_reshape(x, GD_SHAPE(count, x->layout.shape[x->layout.rank - 1])) : NULL;
}

/* x [rows, k] -> [blocks, k]: the sums over the rows of each block. */
static gd_tensor *block_sums(gd_tensor *x)
{
    if (!x)
        return NULL;
    int64_t count = x->layout.shape[0], blocks = gd_norm_blocks(count),
            each = gd_norm_block_rows(count);
    gd_tensor *full = gd_pad(x, GD_SHAPE(0, 0), GD_SHAPE(blocks * each - count, 0), 0.0);
    return gd_sum(gd_reshape(full, GD_SHAPE(blocks, each, x->layout.shape[1])), GD_AXES(1), false);
}

/* The adjoint of that: [blocks, k] -> [rows, k]. */
static gd_tensor *block_spread(gd_tensor *sums, int64_t count)
{
    if (!sums)
        return NULL;
    int64_t blocks = sums->layout.shape[0], k = sums->layout.shape[1],
            each = gd_norm_block_rows(count);
    gd_tensor *spread = gd_broadcast_to(gd_unsqueeze(sums, 1), GD_SHAPE(blocks, each, k));
    return gd_slice(gd_reshape(spread, GD_SHAPE(blocks * each, k)), 0, 0, count, 1);
}

static gd_tensor *decompose_normalize_grad(int n, gd_tensor *const *in, const void *attr)
{
    const gd_norm_attr *a = attr;
    int64_t count = gd_norm_rows(&in[0]->layout);
    gd_tensor *x = as_rows(in[0], count), *g = as_rows(in[1], count);
    rows r = rows_of(x, a);
    gd_tensor *parts[3] = { jacobian(&r, n > 2 ? gd_mul(g, in[2]) : g) };
    if (a->parts > 0)
        parts[1] = block_sums(gd_mul(g, r.h));
    if (a->parts > 1)
        parts[2] = block_sums(g);
    return gd_concat(1 + a->parts, parts, 0);
}

/* Rows first, first + count … of the result of normalize_grad. */
static gd_tensor *part(gd_tensor *t, int64_t first, int64_t count)
{
    return gd_slice(t, 0, first, first + count, 1);
}

static bool vjp_normalize(gd_tensor *r, gd_tensor *g, gd_tensor **d)
{
    const gd_norm_attr *a = attr_of(r);
    gd_tensor *x = r->inputs[0];
    int64_t count = gd_norm_rows(&x->layout), blocks = gd_norm_blocks(count);
    gd_tensor *all = gd_normalize_grad(x, g, a->parts ? r->inputs[1] : NULL, a);
    if (gd_wants_grad(x) &&
        !gd_put(&d[0], gd_reshape(part(all, 0, count), gd_layout_shape(&x->layout))))
        return false;
    for (int i = 1; i <= a->parts; i++)
        if (gd_wants_grad(r->inputs[i]) &&
            !gd_put(&d[i], gd_sum(part(all, count + (i - 1) * blocks, blocks), GD_AXES(0), false)))
            return false;
    return true;
}

/* The gradient by x of <u, J(gw)>, with p = mean(gw * h) and q = mean(u * h):
 * J(-s (u p + gw q)) - s^2 h (mean(u gw) - mean(u) mean(gw) - p q), because dh/dx = J and ds/dx =
 * -s^2 h / k. */
static gd_tensor *second_by_x(const rows *r, gd_tensor *u, gd_tensor *gw, gd_tensor *more)
{
    gd_tensor *p = row_mean(gd_mul(gw, r->h)), *q = row_mean(gd_mul(u, r->h));
    gd_tensor *v = gd_neg(gd_mul(r->scale, gd_add(gd_mul(u, p), gd_mul(gw, q))));
    gd_tensor *spread = gd_sub(row_mean(gd_mul(u, gw)), gd_mul(p, q));
    if (r->center)
        spread = gd_sub(spread, gd_mul(row_mean(u), row_mean(gw)));
    gd_tensor *by_scale = gd_mul(gd_mul(gd_square(r->scale), r->h), spread);
    return gd_sub(jacobian(r, more ? gd_add(v, more) : v), by_scale);
}

static bool vjp_normalize_grad(gd_tensor *r, gd_tensor *u, gd_tensor **d)
{
    const gd_norm_attr *a = attr_of(r);
    const gd_layout *layout = &r->inputs[0]->layout;
    int64_t count = gd_norm_rows(layout), blocks = gd_norm_blocks(count);
    gd_tensor *x = as_rows(gd_widen(r->inputs[0]), count),
              *g = as_rows(gd_widen(r->inputs[1]), count);
    gd_tensor *weight = a->parts ? r->inputs[2] : NULL;
    rows of = rows_of(x, a);
    gd_tensor *ux = part(u, 0, count), *along = jacobian(&of, ux);
    gd_tensor *uw = a->parts > 0 ? block_spread(part(u, count, blocks), count) : NULL;
    gd_tensor *ub = a->parts > 1 ? block_spread(part(u, count + blocks, blocks), count) : NULL;
    if (gd_wants_grad(r->inputs[0])) {
        gd_tensor *by_x =
            second_by_x(&of, ux, weight ? gd_mul(g, weight) : g, a->parts ? gd_mul(uw, g) : NULL);
        if (!gd_put(&d[0], gd_reshape(by_x, gd_layout_shape(layout))))
            return false;
    }
    if (gd_wants_grad(r->inputs[1])) {
        gd_tensor *by_g = weight ? gd_add(gd_mul(along, weight), gd_mul(of.h, uw)) : along;
        by_g = a->parts > 1 ? gd_add(by_g, ub) : by_g;
        if (!gd_put(&d[1], gd_reshape(by_g, gd_layout_shape(layout))))
            return false;
    }
    return !weight || !gd_wants_grad(weight) ||
           gd_put(&d[2], gd_sum(gd_mul(g, along), GD_AXES(0), false));
}

static void format_norm(const void *attr, char *text, size_t size)
{
    const gd_norm_attr *a = attr;
    gd_snprintf(text, size, "%s epsilon=%g", a->center ? "centred" : "rms", a->epsilon);
}

/* Of each element: its square, the sum of them, the quotient; the mean and the difference from it;
 * weight and bias. */
static double flops_normalize(int n, const gd_layout *const *in, const gd_layout *out,
                              const void *attr)
{
    (void)n, (void)out;
    const gd_norm_attr *a = attr;
    return (3 + (a->center ? 2 : 0) + a->parts) * (double)gd_layout_count(in[0]);
}

/* Twice that, as of products: a gradient by x, and one by what x is multiplied with. */
static double flops_normalize_grad(int n, const gd_layout *const *in, const gd_layout *out,
                                   const void *attr)
{
    return 2 * flops_normalize(n, in, out, attr);
}

const gd_op gd_op_normalize = { .id = GD_OP_normalize,
                                .name = "normalize",
                                .arity = GD_OP_VARIADIC,
                                .flags = GD_OP_FULL,
                                .dtypes = GD_DTYPES_REAL,
                                .alike = GD_ALIKE_ALL,
                                .halves = 1 << 0,
                                .rounds = true,
                                .attr_size = sizeof(gd_norm_attr),
                                .infer = infer_normalize,
                                .vjp = vjp_normalize,
                                .decompose = decompose_normalize,
                                .format = format_norm,
                                .flops = flops_normalize,
                                .recompute = GD_RECOMPUTE_FUNCTION };

const gd_op gd_op_normalize_grad = { .id = GD_OP_normalize_grad,
                                     .name = "normalize_grad",
                                     .arity = GD_OP_VARIADIC,
                                     .dtypes = GD_DTYPES_REAL,
                                     .alike = GD_ALIKE_ALL,
                                     .halves = 1 << 0 | 1 << 1,
                                     .attr_size = sizeof(gd_norm_attr),
                                     .infer = infer_normalize_grad,
                                     .vjp = vjp_normalize_grad,
                                     .decompose = decompose_normalize_grad,
                                     .format = format_norm,
                                     .flops = flops_normalize_grad,
                                     .recompute = GD_RECOMPUTE_NEVER };

gd_tensor *gd_normalize_grad(gd_tensor *x, gd_tensor *g, gd_tensor *weight,
                             const gd_norm_attr *attr)
{
    gd_tensor *in[3] = { gd_contiguous(x), gd_contiguous(g), gd_contiguous(weight) };
    const int n = attr->parts ? 3 : 2;
    gd_norm_attr sums = *attr; /* of the gradients of weight and bias: they are not rounded */
    sums.rounded = 0;
    if (!gd_may_read_halves(GD_OP_normalize_grad, n, in, &sums)) {
        in[0] = gd_widen(in[0]);
        in[1] = gd_widen(in[1]);
    }
    return gd_apply(NULL, GD_OP_normalize_grad, n, in, &sums);
}

/* ---- builders ---- */

/* The dtype of the result: x's and the parameters' promoted, a float; in a scope of mixed precision
 * not a half. */
static gd_dtype common_dtype(gd_tensor *x, gd_tensor *weight, gd_tensor *bias)
{
    gd_dtype dtype =
        gd_float_dtype(gd_autocast_dtype(x->context, GD_OP_normalize, x->layout.dtype));
    if (weight)
        dtype = gd_dtype_promote(dtype, weight->layout.dtype);
    return bias ? gd_dtype_promote(dtype, bias->layout.dtype) : dtype;
}

static bool check_epsilon(double epsilon, const char *who)
{
    if (epsilon >= 0.0 && epsilon < 1e30)
        return true;
    (void)gd_fail(GD_ERR_INVALID, "%s: epsilon is %g, it must be 0 or more", who, epsilon);
    return false;
}

/* x [rows.., k] as `to_normalize` gives it; weight and bias [k] or NULL. The result may be of `dtype`
 * already. */
static gd_tensor *normalize(gd_tensor *x, gd_tensor *weight, gd_tensor *bias, bool center,
                            double epsilon, gd_dtype dtype)
{
    if (!x)
        return NULL;
    gd_norm_attr attr = { .epsilon = epsilon,
                          .center = center,
                          .parts = (weight != NULL) + (weight && bias) };
    const gd_dtype compute = gd_real_dtype(x->layout.dtype);
    const bool adds = bias && !weight;
    gd_tensor *in[3] = { gd_contiguous(x), gd_contiguous(gd_as_dtype(weight, compute)),
                         gd_contiguous(gd_as_dtype(bias, compute)) };
    if (gd_dtype_is_half(dtype) && !adds)
        attr.rounded = (int64_t)dtype;
    if (!gd_may_read_halves(GD_OP_normalize, 1 + attr.parts, in, &attr)) {
        attr.rounded = 0;
        in[0] = gd_widen(in[0]);
    }
    gd_tensor *y = gd_apply(NULL, GD_OP_normalize, 1 + attr.parts, in, &attr);
    return adds ? gd_add(y, in[2]) : y;
}

/* x in the dtype that a result of `dtype` is computed in; but f16 and bf16 that lie contiguous and have
 * no history as they are, for `normalize` to see whether the device reads them. (Where second
 * derivatives meet, in the f32 that was cast, they are added before they are rounded.) */
static gd_tensor *to_normalize(gd_tensor *x, gd_dtype dtype)
{
    const gd_dtype compute = gd_real_dtype(dtype);
    const bool is_left = compute == GD_F32 && gd_dtype_is_half(x->layout.dtype) &&
                         gd_layout_is_contiguous(&x->layout) && !gd_has_history(x);
    return is_left ? x : gd_as_dtype(x, compute);
}

/* The shape of weight and bias: the last `axes` axes of x. */
static bool check_parameter(gd_tensor *x, gd_tensor *parameter, int axes, const char *who)
{
    bool fits = !parameter || parameter->layout.rank == axes;
    for (int i = 0; fits && parameter && i < axes; i++)
        fits = parameter->layout.shape[i] == x->layout.shape[x->layout.rank - axes + i];
    if (fits)
        return true;
    char a[GD_SHAPE_TEXT], b[GD_SHAPE_TEXT];
    (void)gd_fail(
        GD_ERR_SHAPE,
        "%s: x is %s and its last %d axes are normalised; a weight or bias %s does not fit", who,
        gd_layout_text(&x->layout, a), axes, gd_layout_text(&parameter->layout, b));
    return false;
}

/* What is normalised, and by what parameters. */
typedef struct operands {
    gd_tensor *x, *weight, *bias;
} operands;

static gd_tensor *over_last_axes(operands o, int axes, double epsilon, bool center, const char *who)
{
    if (!o.x || !GD_NONE_ENDED(who, o.x, o.weight, o.bias))
        return NULL;
    int rank = o.x->layout.rank;
    if (axes < 1 || axes > rank)
        return gd_fail_null(GD_ERR_SHAPE, "%s: %d axes of a tensor of rank %d", who, axes, rank);
    if (!check_epsilon(epsilon, who) || !check_parameter(o.x, o.weight, axes, who) ||
        !check_parameter(o.x, o.bias, axes, who))
        return NULL;
    gd_dtype dtype = common_dtype(o.x, o.weight, o.bias);
    gd_shape shape = gd_layout_shape(&o.x->layout), merged = { .rank = rank - axes + 1 };
    merged.dim[merged.rank - 1] = 1;
    for (int i = 0; i < rank; i++)
        if (i < rank - axes)
            merged.dim[i] = shape.dim[i];
        else
            merged.dim[merged.rank - 1] *= shape.dim[i];
    gd_shape row = GD_SHAPE(merged.dim[merged.rank - 1]);
    gd_tensor *x = to_normalize(o.x, dtype);
    x = axes == 1 ? x : gd_reshape(x, merged);
    gd_tensor *y = normalize(x, o.weight ? gd_reshape(o.weight, row) : NULL,
                             o.bias ? gd_reshape(o.bias, row) : NULL, center, epsilon, dtype);
    y = gd_as_dtype(y, dtype);
    return axes == 1 || !y ? y : gd_reshape(y, shape);
}

gd_tensor *gd_layer_norm_with(gd_tensor *x, gd_tensor *weight, gd_tensor *bias,
                              const gd_layer_norm_options *options)
{
    gd_layer_norm_options o = { GD_LAYER_NORM_DEFAULTS };
    if (!gd_options_read("gd_layer_norm", &o, sizeof o, options))
        return NULL;
    return GD_AS("gd_layer_norm", over_last_axes((operands){ x, weight, bias }, o.axes, o.epsilon,
                                                 true, "gd_layer_norm"));
}

gd_tensor *gd_rms_norm_with(gd_tensor *x, gd_tensor *weight, const gd_rms_norm_options *options)
{
    gd_rms_norm_options o = { GD_RMS_NORM_DEFAULTS };
    if (!gd_options_read("gd_rms_norm", &o, sizeof o, options))
        return NULL;
    return GD_AS("gd_rms_norm", over_last_axes((operands){ x, weight, NULL }, o.axes, o.epsilon,
                                               false, "gd_rms_norm"));
}

/* A vector of x's channels [c] as [c, 1, ..], to broadcast over x [n, c, ..]. */
static gd_tensor *per_channel(gd_tensor *v, const gd_tensor *x, gd_dtype dtype)
{
    if (!v)
        return NULL;
    gd_shape shape = { .rank = x->layout.rank - 1,
                       .dim = { v->layout.shape[0], 1, 1, 1, 1, 1, 1 } };
    return gd_reshape(gd_as_dtype(v, dtype), shape);
}

static bool check_channels(const gd_tensor *x, gd_tensor *const *vectors, int count,
                           const char *who)
{
    char a[GD_SHAPE_TEXT], b[GD_SHAPE_TEXT];
    if (x->layout.rank < 2) {
        (void)gd_fail(GD_ERR_SHAPE, "%s: x is %s; [batch, channels, ..] is expected", who,
                      gd_layout_text(&x->layout, a));
        return false;
    }
    for (int i = 0; i < count; i++) {
        const gd_tensor *v = vectors[i];
        if (v && (v->layout.rank != 1 || v->layout.shape[0] != x->layout.shape[1])) {
            (void)gd_fail(GD_ERR_SHAPE, "%s: x is %s with %lld channels; a vector %s does not fit",
                          who, gd_layout_text(&x->layout, a), (long long)x->layout.shape[1],
                          gd_layout_text(&v->layout, b));
            return false;
        }
    }
    return true;
}

static gd_tensor *over_groups(operands o, int64_t groups, double epsilon, const char *who)
{
    if (!o.x || !GD_NONE_ENDED(who, o.x, o.weight, o.bias))
        return NULL;
    gd_tensor *vectors[2] = { o.weight, o.bias };
    if (!check_epsilon(epsilon, who) || !check_channels(o.x, vectors, 2, who))
        return NULL;
    gd_shape shape = gd_layout_shape(&o.x->layout);
    int64_t batch = shape.dim[0], channels = shape.dim[1], spatial = 1;
    if (groups < 1 || channels % groups != 0)
        return gd_fail_null(GD_ERR_SHAPE, "%s: %lld channels do not divide into %lld groups", who,
                            (long long)channels, (long long)groups);
    for (int i = 2; i < shape.rank; i++)
        spatial *= shape.dim[i];
    const gd_dtype dtype = common_dtype(o.x, o.weight, o.bias), compute = gd_real_dtype(dtype);
    gd_tensor *x =
        gd_reshape(to_normalize(o.x, dtype), GD_SHAPE(batch * groups, channels / groups * spatial));
    gd_tensor *y = normalize(x, NULL, NULL, true, epsilon, o.weight || o.bias ? compute : dtype);
    y = y ? gd_reshape(y, shape) : NULL;
    if (o.weight)
        y = gd_mul(y, per_channel(o.weight, o.x, compute));
    if (o.bias)
        y = gd_add(y, per_channel(o.bias, o.x, compute));
    return gd_as_dtype(y, dtype);
}

gd_tensor *gd_group_norm_with(gd_tensor *x, gd_tensor *weight, gd_tensor *bias, int64_t groups,
                              const gd_group_norm_options *options)
{
    gd_group_norm_options o = { GD_GROUP_NORM_DEFAULTS };
    if (!gd_options_read("gd_group_norm", &o, sizeof o, options))
        return NULL;
    return GD_AS("gd_group_norm",
                 over_groups((operands){ x, weight, bias }, groups, o.epsilon, "gd_group_norm"));
}

gd_tensor *gd_instance_norm_with(gd_tensor *x, gd_tensor *weight, gd_tensor *bias,
                                 const gd_instance_norm_options *options)
{
    const char *who = "gd_instance_norm";
    gd_instance_norm_options o = { GD_INSTANCE_NORM_DEFAULTS };
    if (!gd_options_read(who, &o, sizeof o, options) || !gd_usable(x, who))
        return NULL;
    const int64_t channels = x->layout.rank > 1 ? x->layout.shape[1] : 1;
    return GD_AS(
        who, over_groups((operands){ x, weight, bias }, channels ? channels : 1, o.epsilon, who));
}

/* ---- sums about the centres of channels ---- */

/* The axes behind the channels. */
static gd_axes plane_axes(const gd_layout *x)
{
    gd_axes axes = { .count = x->rank - 2 };
    for (int i = 0; i < axes.count; i++)
        axes.axis[i] = i + 2;
    return axes;
}

/* [c] or [n, c] with an axis of size 1 for each of those. */
static gd_tensor *over_planes(gd_tensor *v, const gd_layout *x)
{
    if (!v)
        return NULL;
    gd_shape shape = gd_layout_shape(&v->layout);
    for (int i = 2; i < x->rank; i++)
        shape.dim[shape.rank++] = 1;
    return gd_reshape(v, shape);
}

/* x [n, c, ..], center [c], and g like x or none -> [n, c]. Without g the center is the mean of the channel, by
 * which there is no derivative (gd_square_about_mean). */
static gd_status infer_centred_products(int n, const gd_layout *const *in, const void *attr,
                                        gd_layout *out)
{
    static const char who[] = "centred_products";
    const gd_layout *x = in[0], *center = in[1];
    (void)attr;
    if (n != 2 && n != 3)
        return gd_fail(GD_ERR_INVALID, "%s: %d operands, 2 or 3 expected", who, n);
    char a[GD_SHAPE_TEXT], b[GD_SHAPE_TEXT];
    if (x->rank < 3 || center->rank != 1 || center->shape[0] != x->shape[1] ||
        (n == 3 && !gd_layout_same_shape(x, in[2])))
        return gd_fail(GD_ERR_SHAPE,
                       "%s: x %s with centers %s: [n, c, ..], [c], and g like x expected", who,
                       gd_layout_text(x, a), gd_layout_text(center, b));
    for (int i = 0; i < n; i++)
        if (!gd_layout_is_contiguous(in[i]))
            return gd_fail(GD_ERR_INVALID, "%s: operand %d is not contiguous", who, i);
    return gd_layout_init(out, GD_SHAPE(x->shape[0], x->shape[1]), gd_sums_dtype(x->dtype), who);
}

static gd_tensor *decompose_centred_products(int n, gd_tensor *const *in, const void *attr)
{
    (void)attr;
    const gd_layout *x = &in[0]->layout;
    gd_tensor *center = over_planes(in[1], x);
    gd_tensor *each =
        n > 2 ? gd_mul(gd_sub(in[0], center), in[2]) : gd_square_about_mean(in[0], center);
    return gd_sum(each, plane_axes(x), false);
}

static bool vjp_centred_products(gd_tensor *r, gd_tensor *u, gd_tensor **d)
{
    const bool squares = r->n_inputs == 2;
    gd_tensor *x = gd_widen(r->inputs[0]), *g = squares ? NULL : gd_widen(r->inputs[2]);
    const gd_layout *layout = &r->inputs[0]->layout;
    gd_tensor *center = over_planes(r->inputs[1], layout);
    gd_tensor *by = over_planes(squares ? gd_mul_scalar(u, 2.0) : u, layout);
    if (gd_wants_grad(r->inputs[0]) &&
        !gd_put(&d[0], squares ? gd_scale_centred(x, center, by) : gd_mul(by, g)))
        return false;
    if (!squares && gd_wants_grad(r->inputs[2]) && !gd_put(&d[2], gd_scale_centred(x, center, by)))
        return false;
    if (squares || !gd_wants_grad(r->inputs[1]))
        return true;
    gd_tensor *sums = gd_sum(g, plane_axes(layout), true);
    return gd_put(&d[1], gd_reshape(gd_neg(gd_sum(gd_mul(by, sums), GD_AXES(0), false)),
                                    gd_layout_shape(&r->inputs[1]->layout)));
}

/* Of each element a difference, a product and a sum. */
static double flops_centred_products(int n, const gd_layout *const *in, const gd_layout *out,
                                     const void *attr)
{
    (void)n, (void)out, (void)attr;
    return 3 * (double)gd_layout_count(in[0]);
}

const gd_op gd_op_centred_products = { .id = GD_OP_centred_products,
                                       .name = "centred_products",
                                       .arity = GD_OP_VARIADIC,
                                       .flags = GD_OP_FULL,
                                       .dtypes = GD_DTYPES_REAL,
                                       .alike = GD_ALIKE_ALL,
                                       .halves = 1 << 0 | 1 << 2,
                                       .infer = infer_centred_products,
                                       .vjp = vjp_centred_products,
                                       .decompose = decompose_centred_products,
                                       .flops = flops_centred_products,
                                       .recompute = GD_RECOMPUTE_MOVES };

/* x [n, c, ..], center [c], and g like x or NULL -> [c] */
static gd_tensor *sum_centred(gd_tensor *x, gd_tensor *center, gd_tensor *g)
{
    gd_tensor *in[3] = { gd_contiguous(x), gd_contiguous(center), gd_contiguous(g) };
    return gd_sum(gd_apply(NULL, GD_OP_centred_products, g ? 3 : 2, in, NULL), GD_AXES(0), false);
}

/* x [n, c, ..] with more than one number in what follows the channels. */
static bool has_planes(const gd_layout *x)
{
    return x->rank > 2 && gd_centred_row(x) > 1 && x->shape[0] > 0 && x->shape[1] > 0;
}

/* One number for each channel of x, which broadcasts over it. */
static bool is_of_channels(const gd_layout *v, const gd_layout *x)
{
    const int lead = x->rank - v->rank;
    bool fits = lead == 0 || lead == 1;
    for (int i = 0; fits && i < v->rank; i++)
        fits = v->shape[i] == (i + lead == 1 ? x->shape[1] : 1);
    return fits;
}

bool gd_sum_channels(gd_tensor *x, gd_tensor *center, gd_tensor *g, const gd_layout *like,
                     gd_tensor **sums)
{
    if (!g || !has_planes(&x->layout) || !is_of_channels(&center->layout, &x->layout) ||
        !is_of_channels(like, &x->layout) || !gd_layout_same_shape(&g->layout, &x->layout))
        return false;
    const gd_dtype dtype = gd_real_dtype(x->layout.dtype);
    gd_tensor *each = gd_reshape(gd_as_dtype(center, dtype), GD_SHAPE(x->layout.shape[1]));
    gd_tensor *sum = sum_centred(gd_as_dtype(x, dtype), each, gd_as_dtype(g, dtype));
    *sums = sum ? gd_reshape(sum, gd_layout_shape(like)) : NULL;
    return true;
}

/* ---- batch normalisation ---- */

/* running += momentum * (now - running), rounded once; an effect. */
static bool update(gd_tensor *running, gd_tensor *now, double momentum)
{
    if (!running)
        return true;
    const gd_dtype dtype = running->layout.dtype;
    gd_tensor *value = gd_reshape(gd_as_dtype(gd_detach(now), gd_real_dtype(dtype)),
                                  GD_SHAPE(running->layout.shape[0]));
    gd_tensor *mixed =
        gd_add(gd_mul_scalar(gd_widen(running), 1.0 - momentum), gd_mul_scalar(value, momentum));
    return gd_assign(running, gd_as_dtype(mixed, dtype)) != NULL;
}

/* All axes but that of the channels. */
static gd_axes batch_axes(const gd_tensor *x)
{
    gd_axes axes = { .count = x->layout.rank - 1 };
    for (int i = 1; i < axes.count; i++)
        axes.axis[i] = i + 1;
    return axes;
}

/* The operands of a batch normalisation. */
typedef struct batch_operands {
    gd_tensor *x, *weight, *bias, *mean, *variance;
} batch_operands;

static bool check_batch(const batch_operands *t, const gd_batch_norm_options *o, const char *who)
{
    gd_tensor *vectors[4] = { t->weight, t->bias, t->mean, t->variance };
    if (!check_epsilon(o->epsilon, who) || !check_channels(t->x, vectors, 4, who))
        return false;
    int64_t each =
        t->x->layout.shape[1] ? gd_layout_count(&t->x->layout) / t->x->layout.shape[1] : 1;
    if (!(o->momentum >= 0.0 && o->momentum <= 1.0))
        (void)gd_fail(GD_ERR_INVALID, "%s: momentum is %g; it must be 0 to 1", who, o->momentum);
    else if (!o->training && (!t->mean || !t->variance))
        (void)gd_fail(GD_ERR_INVALID,
                      "%s: outside of training the running mean and variance are needed", who);
    else if (o->training && each < 2)
        (void)gd_fail(GD_ERR_SHAPE,
                      "%s: a channel has %lld values; the variance of a batch needs two or more",
                      who, (long long)each);
    else
        return true;
    return false;
}

/* x [n, c, ..] and its mean [1, c, 1, ..], of `count` numbers a channel */
static gd_tensor *batch_variance(gd_tensor *x, gd_tensor *mean, double count)
{
    if (!x || !mean)
        return NULL;
    if (!has_planes(&x->layout))
        return gd_mean(gd_square(gd_sub(x, mean)), batch_axes(x), true);
    gd_tensor *sum = sum_centred(x, gd_reshape(mean, GD_SHAPE(x->layout.shape[1])), NULL);
    return gd_div_scalar(gd_reshape(sum, gd_layout_shape(&mean->layout)), count);
}

static gd_tensor *build_batch_norm(batch_operands t, const gd_batch_norm_options *options)
{
    const char *who = "gd_batch_norm";
    gd_batch_norm_options o = { GD_BATCH_NORM_DEFAULTS };
    if (!gd_options_read(who, &o, sizeof o, options) || !t.x ||
        !GD_NONE_ENDED(who, t.x, t.weight, t.bias, t.mean, t.variance) || !check_batch(&t, &o, who))
        return NULL;
    /* In a scope of mixed precision the result is like x: between a convolution and a ReLU nothing
     * is widened. */
    gd_dtype dtype = gd_autocast_is_on(t.x->context) ? gd_float_dtype(t.x->layout.dtype)
                                                     : common_dtype(t.x, t.weight, t.bias),
             compute = gd_real_dtype(dtype);
    gd_tensor *x = gd_as_dtype(t.x, compute), *mean, *variance;
    if (o.training) {
        double count = (double)(gd_layout_count(&t.x->layout) / t.x->layout.shape[1]);
        mean = gd_mean(x, batch_axes(t.x), true);
        variance = batch_variance(x, mean, count);
        if (!mean || !variance || !update(t.mean, mean, o.momentum) ||
            !update(t.variance, gd_mul_scalar(variance, count / (count - 1.0)), o.momentum))
            return NULL;
    } else {
        mean = per_channel(t.mean, t.x, compute);
        variance = per_channel(t.variance, t.x, compute);
    }
    gd_tensor *scale = gd_rsqrt(gd_add_scalar(variance, o.epsilon));
    if (t.weight)
        scale = gd_mul(scale, per_channel(t.weight, t.x, compute));
    gd_tensor *y = gd_scale_centred(x, mean, scale);
    return gd_as_dtype(t.bias ? gd_add(y, per_channel(t.bias, t.x, compute)) : y, dtype);
}

gd_tensor *gd_batch_norm_with(gd_tensor *x, gd_tensor *weight, gd_tensor *bias, gd_tensor *mean,
                              gd_tensor *variance, const gd_batch_norm_options *options)
{
    return GD_AS("gd_batch_norm",
                 build_batch_norm((batch_operands){ x, weight, bias, mean, variance }, options));
}
