/* ops/creation.c: tensors out of nothing: full, iota, and what is made of them. Random ones are in
 * ops/random.c. */
#include "ops/internal.h"

#include <gradus/compile.h>

#include <math.h>

#include "base/memory.h"

/* ---- rows ---- */

static gd_status infer_full(int n, const gd_layout *const *in, const void *attr, gd_layout *out)
{
    (void)n, (void)in;
    const gd_full_attr *a = attr;
    return gd_layout_init(out, a->shape, (gd_dtype)a->dtype, "gd_full");
}

static void format_full(const void *attr, char *text, size_t size)
{
    const gd_full_attr *a = attr;
    if (gd_dtype_is_integer((gd_dtype)a->dtype))
        gd_snprintf(text, size, "value=%lld", (long long)a->whole);
    else
        gd_snprintf(text, size, "value=%.9g", a->value);
}

const gd_op gd_op_full = { .id = GD_OP_full,
                           .name = "full",
                           .arity = 0,
                           .attr_size = sizeof(gd_full_attr),
                           .infer = infer_full,
                           .format = format_full,
                           .flops = gd_flops_none,
                           .recompute = GD_RECOMPUTE_MOVES };

static gd_status infer_iota(int n, const gd_layout *const *in, const void *attr, gd_layout *out)
{
    (void)n, (void)in;
    const gd_iota_attr *a = attr;
    return gd_layout_init(out, GD_SHAPE(a->count), (gd_dtype)a->dtype, "gd_arange");
}

static void format_iota(const void *attr, char *text, size_t size)
{
    const gd_iota_attr *a = attr;
    gd_snprintf(text, size, "start=%g step=%g", a->start, a->step);
}

const gd_op gd_op_iota = { .id = GD_OP_iota,
                           .name = "iota",
                           .arity = 0,
                           .attr_size = sizeof(gd_iota_attr),
                           .infer = infer_iota,
                           .format = format_iota,
                           .flops = gd_flops_none,
                           .recompute = GD_RECOMPUTE_MOVES };

/* ---- constants ---- */

static gd_tensor *source(gd_context *context, gd_op_id id, const void *attr, const char *who)
{
    if (!context)
        return gd_fail_null(GD_ERR_INVALID, "%s: the context is NULL", who);
    return gd_apply(context, id, 0, NULL, attr);
}

gd_tensor *gd_full(gd_context *context, gd_shape shape, double value, gd_dtype dtype)
{
    if (!gd_check_number(value, dtype, "gd_full"))
        return NULL;
    gd_full_attr attr;
    memset(&attr, 0, sizeof attr);
    gd_set_shape(&attr.shape, shape);
    if (!gd_dtype_is_integer(dtype))
        attr.value = value;
    else /* C converts beyond the range of i64 in u64 alone */
        attr.whole = value >= 0x1p63 ? (int64_t)(uint64_t)value : (int64_t)value;
    attr.dtype = (int64_t)dtype;
    return source(context, GD_OP_full, &attr, "gd_full");
}

gd_tensor *gd_full_integer(gd_context *context, gd_shape shape, int64_t value, gd_dtype dtype)
{
    static const char who[] = "gd_full_integer";
    const int64_t exact = (int64_t)1 << 53;
    if (!gd_dtype_is_integer(dtype) || (value >= -exact && value <= exact))
        return GD_AS(who, gd_full(context, shape, (double)value, dtype));
    if (gd_dtype_size(dtype) < sizeof value || (dtype == GD_U64 && value < 0))
        return gd_fail_null(GD_ERR_INVALID, "%s: %s cannot hold %lld", who, gd_dtype_name(dtype),
                            (long long)value);
    gd_full_attr attr;
    memset(&attr, 0, sizeof attr);
    gd_set_shape(&attr.shape, shape);
    attr.whole = value;
    attr.dtype = (int64_t)dtype;
    return source(context, GD_OP_full, &attr, who);
}

gd_tensor *gd_zeros(gd_context *context, gd_shape shape, gd_dtype dtype)
{
    return GD_AS("gd_zeros", gd_full(context, shape, 0.0, dtype));
}

gd_tensor *gd_ones(gd_context *context, gd_shape shape, gd_dtype dtype)
{
    return GD_AS("gd_ones", gd_full(context, shape, 1.0, dtype));
}

gd_tensor *gd_scalar(gd_context *context, double value, gd_dtype dtype)
{
    return GD_AS("gd_scalar", gd_full(context, GD_SCALAR, value, dtype));
}

static gd_tensor *filled_like(gd_tensor *x, double value)
{
    return gd_full(x->context, gd_tensor_shape(x), value, x->layout.dtype);
}

gd_tensor *gd_zeros_like(gd_tensor *x)
{
    return gd_usable(x, "gd_zeros") ? gd_zeros(x->context, gd_tensor_shape(x), x->layout.dtype)
                                    : NULL;
}

gd_tensor *gd_ones_like(gd_tensor *x)
{
    return gd_usable(x, "gd_ones_like") ? GD_AS("gd_ones_like", filled_like(x, 1.0)) : NULL;
}

gd_tensor *gd_full_like(gd_tensor *x, double value)
{
    return gd_usable(x, "gd_full_like") ? GD_AS("gd_full_like", filled_like(x, value)) : NULL;
}

/* In a trace there is no memory yet that could be left as it is. */
gd_tensor *gd_empty(gd_context *context, gd_shape shape, gd_dtype dtype)
{
    gd_layout layout;
    if (!context)
        return gd_fail_null(GD_ERR_INVALID, "gd_empty: the context is NULL");
    if (gd_layout_init(&layout, shape, dtype, "gd_empty") != GD_OK ||
        gd_check_free(context, "gd_empty") != GD_OK)
        return NULL;
    if (context->trace)
        return gd_zeros(context, shape, dtype);
    gd_storage *storage = gd_storage_new(context, gd_layout_bytes(&layout));
    return storage ? gd_leaf_new(context, &layout, storage) : NULL;
}

gd_tensor *gd_empty_like(gd_tensor *x)
{
    return gd_usable(x, "gd_empty_like")
               ? GD_AS("gd_empty_like", gd_empty(x->context, gd_tensor_shape(x), x->layout.dtype))
               : NULL;
}

/* ---- sequences ---- */

gd_tensor *gd_arange(gd_context *context, double start, double stop, double step, gd_dtype dtype)
{
    double length = ceil((stop - start) / step);
    if (!isfinite(start) || !isfinite(step) || step == 0.0 || !(length <= 1099511627776.0))
        return gd_fail_null(GD_ERR_INVALID,
                            "gd_arange: from %g to %g by %g is no sequence of at most 2^40 values",
                            start, stop, step);
    if (dtype == GD_BOOL)
        return gd_fail_null(GD_ERR_DTYPE, "gd_arange: bool has no sequences");
    double last = start + (fmax(length, 1.0) - 1.0) * step;
    if (length > 0.0 && (!gd_check_number(trunc(start), dtype, "gd_arange") ||
                         !gd_check_number(trunc(last), dtype, "gd_arange")))
        return NULL;
    gd_iota_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.count = length > 0 ? (int64_t)length : 0;
    attr.start = start;
    attr.step = step;
    attr.dtype = (int64_t)dtype;
    const double exact = 9007199254740992.0;
    if (fabs(start) <= exact && fabs(step) <= exact && start == floor(start) &&
        step == floor(step) && gd_dtype_is_integer(dtype)) {
        attr.use_integers = 1;
        attr.integer_start = (int64_t)start;
        attr.integer_step = (int64_t)step;
    }
    return source(context, GD_OP_iota, &attr, "gd_arange");
}

gd_tensor *gd_linspace(gd_context *context, double start, double stop, int64_t count,
                       gd_dtype dtype)
{
    if (!context || count < 0 || count > (int64_t)1 << 40)
        return gd_fail_null(GD_ERR_INVALID,
                            "gd_linspace: needs a context and a count from 0 to 2^40");
    if (!gd_dtype_is_float(dtype))
        return gd_fail_null(GD_ERR_DTYPE, "gd_linspace: needs a float dtype, not %s",
                            gd_dtype_name(dtype));
    double *values = gd_alloc((size_t)count * sizeof(double) + 1);
    if (!values)
        return NULL;
    double step = count > 1 ? (stop - start) / (double)(count - 1) : 0.0;
    for (int64_t i = 0; i < count; i++)
        values[i] = i > 0 && i == count - 1 ? stop : start + (double)i * step;
    gd_tensor *t = gd_as_dtype(gd_from_host(context, GD_SHAPE(count), GD_F64, values), dtype);
    gd_free(values);
    return t;
}

gd_tensor *gd_eye(gd_context *context, int64_t n, gd_dtype dtype)
{
    if (n < 0)
        return gd_fail_null(GD_ERR_INVALID, "gd_eye: %lld rows", (long long)n);
    gd_tensor *index = GD_AS("gd_eye", gd_arange(context, 0.0, (double)n, 1.0, GD_I64));
    return GD_AS("gd_eye", gd_cast(gd_eq(gd_unsqueeze(index, 1), index), dtype));
}

gd_tensor *gd_state(gd_context *context, gd_shape shape, double value, gd_dtype dtype)
{
    if (!context)
        return NULL;
    gd_trace_pause(context);
    gd_tensor *t = NULL;
    if (gd_scope_begin(context) == GD_OK) {
        t = gd_retain(GD_AS("gd_state", gd_full(context, shape, value, dtype)));
        (void)gd_scope_end(context);
    }
    gd_trace_resume(context);
    return t;
}
