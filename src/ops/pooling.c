/* ops/pooling.c: maximum and mean over windows, given or adaptive, and over whole planes. The mean
 * and its gradient are linear and each other's derivative. The maximum sends its gradient to the
 * first largest element, whose place in the plane is the op max_pool_index. */
#include "ops/internal.h"
#include "ops/spatial.h"

#include "base/options.h"

#include <gradus/conv.h>

/* ---- shapes ---- */

static gd_status check_planes(const char *who, const gd_layout *x)
{
    if (x->rank < 3 || x->rank > 2 + GD_SPATIAL) {
        char text[GD_SHAPE_TEXT];
        return gd_fail(GD_ERR_SHAPE, "%s: %s: needs a batch, channels and 1 to 3 spatial axes", who,
                       gd_layout_text(x, text));
    }
    return GD_OK;
}

/* x's shape with other spatial sizes. */
static gd_shape resized(const gd_layout *x, const int64_t size[GD_SPATIAL])
{
    gd_shape shape = gd_layout_shape(x);
    for (int axis = 2; axis < x->rank; axis++)
        shape.dim[axis] = size[GD_SPATIAL - x->rank + axis];
    return shape;
}

static gd_status infer_resized(const gd_layout *x, const void *attr, gd_dtype dtype, gd_layout *out)
{
    if (check_planes("gd_pool", x) != GD_OK)
        return gd_error_last();
    return gd_layout_init(out, resized(x, ((const gd_pool_attr *)attr)->size), dtype, "gd_pool");
}

static gd_status infer_pool(int n, const gd_layout *const *in, const void *attr, gd_layout *out)
{
    (void)n;
    const int64_t rounded = ((const gd_pool_attr *)attr)->rounded;
    return infer_resized(in[0], attr, gd_rounded_dtype(in[0]->dtype, rounded), out);
}

static gd_status infer_index(int n, const gd_layout *const *in, const void *attr, gd_layout *out)
{
    (void)n;
    return infer_resized(in[0], attr, GD_I64, out);
}

/* g of the windows' side, x: the gradient has x's shape. */
static gd_status infer_max_grad(int n, const gd_layout *const *in, const void *attr, gd_layout *out)
{
    gd_layout pooled;
    if (infer_pool(n, in + 1, attr, &pooled) != GD_OK)
        return gd_error_last();
    if (!gd_layout_same_shape(&pooled, in[0]))
        return gd_fail(GD_ERR_SHAPE,
                       "max_pool_grad: the gradient does not have the result's shape");
    const int64_t rounded = ((const gd_pool_attr *)attr)->rounded;
    return gd_infer_like(in[1], gd_rounded_dtype(in[1]->dtype, rounded), "max_pool_grad", out);
}

/* ---- derivatives ---- */

/* The op on contiguous operands, which are read as halves, and the result rounded to `dtype`, where the
 * device does that. */
static gd_tensor *apply(gd_op_id id, int n, gd_tensor *const *operands, gd_pool_attr attr,
                        gd_dtype dtype)
{
    gd_tensor *in[2] = { NULL, NULL };
    for (int i = 0; i < n; i++)
        in[i] = gd_contiguous(operands[i]);
    attr.rounded = gd_dtype_is_half(dtype) ? (int64_t)dtype : 0;
    if (!gd_may_read_halves(id, n, in, &attr)) {
        attr.rounded = 0;
        for (int i = 0; i < n; i++)
            in[i] = gd_widen(in[i]);
    }
    return gd_apply(NULL, id, n, in, &attr);
}

static bool vjp_max_pool(gd_tensor *r, gd_tensor *g, gd_tensor **d)
{
    gd_tensor *x = r->inputs[0];
    const gd_pool_attr *attr = r->attr;
    return gd_put(&d[0],
                  apply(GD_OP_max_pool_grad, 2, (gd_tensor *[]){ g, x }, *attr, x->layout.dtype));
}

/* r = max_pool_grad(g, x) moves elements of g; h has x's shape. Nothing of r depends on x but the
 * places. */
static bool vjp_max_pool_grad(gd_tensor *r, gd_tensor *h, gd_tensor **d)
{
    gd_tensor *g = r->inputs[0], *x = r->inputs[1];
    if (!gd_wants_grad(g))
        return true;
    const gd_shape shape = gd_tensor_shape(g);
    const gd_pool_sizes s = gd_pool_sizes_of(&x->layout, &g->layout, r->attr);
    gd_pool_attr attr = *(const gd_pool_attr *)r->attr;
    attr.rounded = 0;
    gd_tensor *index = gd_apply1(GD_OP_max_pool_index, gd_widen(x), &attr);
    gd_tensor *taken = gd_gather(gd_reshape(h, GD_SHAPE(s.planes, s.in_plane)),
                                 gd_reshape(index, GD_SHAPE(s.planes, s.out_plane)), 1);
    return gd_put(&d[0], gd_reshape(taken, shape));
}

/* avg_pool or its gradient, each the derivative of the other: op `id` whose result has the spatial
 * sizes of `like`. */
static gd_tensor *average(gd_op_id id, gd_tensor *g, const void *attr_, const gd_tensor *like)
{
    gd_pool_attr attr = *(const gd_pool_attr *)attr_;
    for (int a = 0; a < GD_SPATIAL; a++)
        attr.size[a] = gd_spatial_size(&like->layout, a);
    return apply(id, 1, &g, attr, like->layout.dtype);
}

static bool vjp_avg_pool(gd_tensor *r, gd_tensor *g, gd_tensor **d)
{
    return gd_put(&d[0], average(GD_OP_avg_pool_grad, g, r->attr, r->inputs[0]));
}

static bool vjp_avg_pool_grad(gd_tensor *r, gd_tensor *h, gd_tensor **d)
{
    return gd_put(&d[0], average(GD_OP_avg_pool, h, r->attr, r->inputs[0]));
}

static void format_pool(const void *attr_, char *text, size_t size)
{
    const gd_pool_attr *a = attr_;
    if (a->adaptive)
        snprintf(text, size, "adaptive size=%lld,%lld,%lld", (long long)a->size[0],
                 (long long)a->size[1], (long long)a->size[2]);
    else
        snprintf(text, size, "kernel=%lld,%lld,%lld stride=%lld,%lld,%lld pad=%lld,%lld,%lld",
                 (long long)a->kernel[0], (long long)a->kernel[1], (long long)a->kernel[2],
                 (long long)a->stride[0], (long long)a->stride[1], (long long)a->stride[2],
                 (long long)a->before[0], (long long)a->before[1], (long long)a->before[2]);
}

/* One for each element of each window; windows that divide an axis have its elements. */
static double flops_of_windows(const gd_layout *plane, const gd_layout *windows, const void *attr_)
{
    const gd_pool_attr *a = attr_;
    const double taps = (double)(a->kernel[0] * a->kernel[1] * a->kernel[2]);
    return a->adaptive ? (double)gd_layout_count(plane) : taps * (double)gd_layout_count(windows);
}

static double flops_pool(int n, const gd_layout *const *in, const gd_layout *out, const void *attr)
{
    (void)n;
    return flops_of_windows(in[0], out, attr);
}

static double flops_avg_grad(int n, const gd_layout *const *in, const gd_layout *out,
                             const void *attr)
{
    (void)n;
    return flops_of_windows(out, in[0], attr);
}

#define POOL_ROW(name_, arity_, halves_, infer_, vjp_, flops_)       \
    const gd_op gd_op_##name_ = { .id = GD_OP_##name_,               \
                                  .name = #name_,                    \
                                  .arity = arity_,                   \
                                  .dtypes = GD_DTYPES_REAL,          \
                                  .alike = GD_ALIKE_ALL,             \
                                  .halves = halves_,                 \
                                  .rounds = halves_ != 0,            \
                                  .attr_size = sizeof(gd_pool_attr), \
                                  .infer = infer_,                   \
                                  .vjp = vjp_,                       \
                                  .format = format_pool,             \
                                  .flops = flops_,                   \
                                  .recompute = GD_RECOMPUTE_NEVER };
POOL_ROW(max_pool, 1, 1, infer_pool, vjp_max_pool, flops_pool)
POOL_ROW(max_pool_index, 1, 0, infer_index, NULL, gd_flops_none)
POOL_ROW(max_pool_grad, 2, 3, infer_max_grad, vjp_max_pool_grad, gd_flops_each_read)
POOL_ROW(avg_pool, 1, 1, infer_pool, vjp_avg_pool, flops_pool)
POOL_ROW(avg_pool_grad, 1, 1, infer_pool, vjp_avg_pool_grad, flops_avg_grad)

/* ---- builders ---- */

bool gd_spatial_option(const char *who, const char *name, const gd_shape *given, int axes, int i,
                       int64_t fallback, int64_t least, int64_t *out)
{
    if (given->rank != 0 && given->rank != 1 && given->rank != axes) {
        (void)gd_fail(GD_ERR_INVALID,
                      "%s: %s has %d numbers; one, or one for each of %d axes, are needed", who,
                      name, given->rank, axes);
        return false;
    }
    *out = given->rank == 0 ? fallback : given->dim[given->rank == 1 ? 0 : i];
    if (*out >= least && *out <= GD_SPATIAL_LARGEST)
        return true;
    (void)gd_fail(GD_ERR_INVALID, "%s: %s is %lld", who, name, (long long)*out);
    return false;
}

/* What the caller says about his axis i, and the number of windows along it. */
static bool set_axis(const char *who, const gd_tensor *x, int axes, const gd_shape *window,
                     const gd_pool_options *o, int i, int a, gd_pool_attr *attr)
{
    const int64_t size = gd_spatial_size(&x->layout, a);
    int64_t kernel, stride, dilation, pad;
    if (!gd_spatial_option(who, "kernel", window, axes, i, 0, 1, &kernel) ||
        !gd_spatial_option(who, "stride", &o->stride, axes, i, kernel, 1, &stride) ||
        !gd_spatial_option(who, "dilation", &o->dilation, axes, i, 1, 1, &dilation) ||
        !gd_spatial_option(who, "padding", &o->padding, axes, i, 0, 0, &pad))
        return false;
    const int64_t reach = dilation * (kernel - 1) + 1;
    if (2 * pad > reach || (pad > 0 && size < dilation && size > 0)) {
        (void)gd_fail(GD_ERR_INVALID,
                      "%s: with a padding of %lld a window may see nothing of the input", who,
                      (long long)pad);
        return false;
    }
    const int64_t rest = size + 2 * pad - reach;
    int64_t count = rest < 0 ? 0 : rest / stride + 1;
    if (o->ceil_mode && rest + stride - 1 >= 0) {
        count = (rest + stride - 1) / stride + 1;
        count -= (count - 1) * stride >= size + pad; /* it would begin behind the input */
    }
    if (count < 1 || size < 1) {
        (void)gd_fail(GD_ERR_SHAPE,
                      "%s: a window reaches over %lld elements, the padded input has %lld", who,
                      (long long)reach, (long long)size + 2 * (long long)pad);
        return false;
    }
    attr->kernel[a] = kernel;
    attr->stride[a] = stride;
    attr->dilation[a] = dilation;
    attr->before[a] = attr->after[a] = pad;
    attr->size[a] = count;
    return true;
}

/* An op over windows of x, which may have any dtype. */
static gd_tensor *pool(gd_op_id id, gd_tensor *x, const gd_pool_attr *attr)
{
    const gd_dtype dtype = gd_float_dtype(x->layout.dtype);
    if (!gd_dtype_is_half(dtype) || !gd_layout_is_contiguous(&x->layout))
        x = gd_as_dtype(x, gd_compute_dtype(id, dtype));
    return gd_as_dtype(x ? apply(id, 1, &x, *attr, dtype) : NULL, dtype);
}

static gd_tensor *pool_windows(gd_op_id id, const char *who, gd_tensor *x, int axes,
                               gd_shape kernel, const gd_pool_options *o)
{
    if (!gd_usable(x, who))
        return NULL;
    if (axes < 1 || axes > GD_SPATIAL || x->layout.rank != axes + 2) {
        char text[GD_SHAPE_TEXT];
        return gd_fail_null(GD_ERR_SHAPE,
                            "%s: %s does not have a batch, channels and %d spatial %s", who,
                            gd_layout_text(&x->layout, text), axes, axes == 1 ? "axis" : "axes");
    }
    gd_pool_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.exclude_pad = id == GD_OP_avg_pool && !o->count_padding;
    for (int a = 0; a < GD_SPATIAL; a++) {
        const int i = a - (GD_SPATIAL - axes);
        attr.kernel[a] = attr.stride[a] = attr.dilation[a] = attr.size[a] = 1;
        if (i >= 0 && !set_axis(who, x, axes, &kernel, o, i, a, &attr))
            return NULL;
        if (id == GD_OP_avg_pool && attr.dilation[a] != 1)
            return gd_fail_null(GD_ERR_INVALID, "%s: windows of a mean are not dilated", who);
    }
    return pool(id, x, &attr);
}

gd_tensor *gd_max_pool_with(gd_tensor *x, int axes, gd_shape kernel, const gd_pool_options *options)
{
    static const char *const names[] = { "gd_max_pool1d", "gd_max_pool2d", "gd_max_pool3d" };
    const char *who = axes >= 1 && axes <= 3 ? names[axes - 1] : "gd_max_pool_with";
    gd_pool_options o = { GD_POOL_DEFAULTS };
    if (!gd_options_read(who, &o, sizeof o, options))
        return NULL;
    return GD_AS(who, pool_windows(GD_OP_max_pool, who, x, axes, kernel, &o));
}

gd_tensor *gd_avg_pool_with(gd_tensor *x, int axes, gd_shape kernel, const gd_pool_options *options)
{
    static const char *const names[] = { "gd_avg_pool1d", "gd_avg_pool2d", "gd_avg_pool3d" };
    const char *who = axes >= 1 && axes <= 3 ? names[axes - 1] : "gd_avg_pool_with";
    gd_pool_options o = { GD_POOL_DEFAULTS };
    if (!gd_options_read(who, &o, sizeof o, options))
        return NULL;
    return GD_AS(who, pool_windows(GD_OP_avg_pool, who, x, axes, kernel, &o));
}

static gd_tensor *pool_adaptively(gd_op_id id, const char *who, gd_tensor *x, gd_shape spatial)
{
    if (!gd_usable(x, who))
        return NULL;
    char text[GD_SHAPE_TEXT];
    if (spatial.rank < 1 || spatial.rank > GD_SPATIAL || x->layout.rank != spatial.rank + 2)
        return gd_fail_null(GD_ERR_SHAPE, "%s: %s does not have a batch, channels and %d axes more",
                            who, gd_layout_text(&x->layout, text), spatial.rank);
    gd_pool_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.adaptive = 1;
    for (int a = 0; a < GD_SPATIAL; a++) {
        const int i = a - (GD_SPATIAL - spatial.rank);
        attr.size[a] = i < 0 ? 1 : spatial.dim[i];
        if (attr.size[a] < 1 || gd_spatial_size(&x->layout, a) < 1)
            return gd_fail_null(GD_ERR_SHAPE, "%s: %s cannot be divided into %lld windows", who,
                                gd_layout_text(&x->layout, text), (long long)attr.size[a]);
        if (attr.size[a] > GD_SPATIAL_LARGEST)
            return gd_fail_null(GD_ERR_INVALID, "%s: a size is %lld", who, (long long)attr.size[a]);
    }
    return pool(id, x, &attr);
}

gd_tensor *gd_adaptive_avg_pool(gd_tensor *x, gd_shape spatial)
{
    return GD_AS("gd_adaptive_avg_pool",
                 pool_adaptively(GD_OP_avg_pool, "gd_adaptive_avg_pool", x, spatial));
}

gd_tensor *gd_adaptive_max_pool(gd_tensor *x, gd_shape spatial)
{
    return GD_AS("gd_adaptive_max_pool",
                 pool_adaptively(GD_OP_max_pool, "gd_adaptive_max_pool", x, spatial));
}

/* All axes but the first two. */
static bool spatial_axes(const char *who, const gd_tensor *x, gd_axes *axes)
{
    *axes = (gd_axes){ .count = 0 };
    if (!gd_usable(x, who))
        return false;
    if (x->layout.rank < 3) {
        (void)gd_fail(GD_ERR_SHAPE, "%s: rank %d; needs a batch, channels and spatial axes", who,
                      x->layout.rank);
        return false;
    }
    for (int axis = 2; axis < x->layout.rank; axis++)
        axes->axis[axes->count++] = axis;
    return true;
}

gd_tensor *gd_global_avg_pool(gd_tensor *x)
{
    gd_axes axes;
    return spatial_axes("gd_global_avg_pool", x, &axes) ? gd_round_like(gd_mean(x, axes, false), x)
                                                        : NULL;
}

gd_tensor *gd_global_max_pool(gd_tensor *x)
{
    gd_axes axes;
    return spatial_axes("gd_global_max_pool", x, &axes) ? gd_max(x, axes, false) : NULL;
}
