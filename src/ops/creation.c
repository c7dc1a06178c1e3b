/* ops/creation.c: tensors out of nothing: full, iota, random bits, and what is made of them. */
#include "ops/internal.h"

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
    snprintf(text, size, "value=%.9g", ((const gd_full_attr *)attr)->value);
}

const gd_op gd_op_full = { .id = GD_OP_full,
                           .name = "full",
                           .arity = 0,
                           .attr_size = sizeof(gd_full_attr),
                           .infer = infer_full,
                           .format = format_full };

static gd_status infer_iota(int n, const gd_layout *const *in, const void *attr, gd_layout *out)
{
    (void)n, (void)in;
    const gd_iota_attr *a = attr;
    return gd_layout_init(out, GD_SHAPE(a->count), (gd_dtype)a->dtype, "gd_arange");
}

static void format_iota(const void *attr, char *text, size_t size)
{
    const gd_iota_attr *a = attr;
    snprintf(text, size, "start=%g step=%g", a->start, a->step);
}

const gd_op gd_op_iota = { .id = GD_OP_iota,
                           .name = "iota",
                           .arity = 0,
                           .attr_size = sizeof(gd_iota_attr),
                           .infer = infer_iota,
                           .format = format_iota };

static gd_status infer_random_bits(int n, const gd_layout *const *in, const void *attr,
                                   gd_layout *out)
{
    (void)n, (void)in;
    const gd_random_attr *a = attr;
    return gd_layout_init(out, a->shape, (gd_dtype)a->dtype, "gd_uniform");
}

static void format_random_bits(const void *attr, char *text, size_t size)
{
    snprintf(text, size, "offset=%llu", (unsigned long long)((const gd_random_attr *)attr)->offset);
}

const gd_op gd_op_random_bits = { .id = GD_OP_random_bits,
                                  .name = "random_bits",
                                  .arity = 1,
                                  .attr_size = sizeof(gd_random_attr),
                                  .infer = infer_random_bits,
                                  .format = format_random_bits };

/* ---- constants ---- */

static gd_tensor *source(gd_context *context, gd_op_id id, const void *attr, const char *who)
{
    if (!context)
        return gd_fail_null(GD_ERR_INVALID, "%s: the context is NULL", who);
    return gd_apply(context, id, 0, NULL, attr);
}

/* A copy of shape with every unused byte zero, so that attributes compare as bytes. */
static gd_shape clean(gd_shape shape)
{
    gd_shape out;
    memset(&out, 0, sizeof out);
    out.rank = shape.rank;
    for (int i = 0; i < shape.rank && i < GD_MAX_RANK; i++)
        out.dim[i] = shape.dim[i];
    return out;
}

gd_tensor *gd_full(gd_context *context, gd_shape shape, double value, gd_dtype dtype)
{
    gd_full_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.shape = clean(shape);
    attr.value = value;
    attr.dtype = (int64_t)dtype;
    return source(context, GD_OP_full, &attr, "gd_full");
}

gd_tensor *gd_zeros(gd_context *context, gd_shape shape, gd_dtype dtype)
{
    return gd_full(context, shape, 0.0, dtype);
}

gd_tensor *gd_ones(gd_context *context, gd_shape shape, gd_dtype dtype)
{
    return gd_full(context, shape, 1.0, dtype);
}

gd_tensor *gd_scalar(gd_context *context, double value, gd_dtype dtype)
{
    return gd_full(context, GD_SCALAR, value, dtype);
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
    gd_iota_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.count = length > 0 ? (int64_t)length : 0;
    attr.start = start;
    attr.step = step;
    attr.dtype = (int64_t)dtype;
    const double exact = 9007199254740992.0;
    if (fabs(start) <= exact && fabs(step) <= exact && start == floor(start) &&
        step == floor(step) && (dtype == GD_I32 || dtype == GD_I64)) {
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
    gd_tensor *index = gd_arange(context, 0.0, (double)n, 1.0, GD_I64);
    return gd_cast(gd_eq(gd_unsqueeze(index, 1), index), dtype);
}

/* ---- random ---- */

/* Words of the context's stream as i32 or i64 of `shape`. */
static gd_tensor *random_bits(gd_context *context, gd_shape shape, gd_dtype dtype)
{
    gd_layout layout;
    if (gd_layout_init(&layout, shape, dtype, "gd_uniform") != GD_OK)
        return NULL;
    gd_random_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.shape = clean(shape);
    attr.dtype = (int64_t)dtype;
    uint64_t words = (uint64_t)gd_layout_count(&layout) * (dtype == GD_I64 ? 2 : 1);
    if (context->trace) {
        attr.offset = context->trace->random_words;
        context->trace->random_words += words;
        return gd_apply1(GD_OP_random_bits, context->random_state, &attr);
    }
    if (gd_random_publish(context) != GD_OK)
        return NULL;
    gd_tensor *bits = gd_apply1(GD_OP_random_bits, context->random_state, &attr);
    if (bits)
        context->random_position += words;
    return bits;
}

/* (integer in [0, 2^24) for f32, [0, 2^53) for f64, plus `shift`) as a float, times 2^-24 or 2^-53.
 */
static gd_tensor *unit(gd_context *context, gd_shape shape, gd_dtype compute, double shift)
{
    gd_dtype bits_dtype = compute == GD_F64 ? GD_I64 : GD_I32;
    double range = compute == GD_F64 ? 9007199254740992.0 : 16777216.0;
    gd_tensor *bits = random_bits(context, shape, bits_dtype);
    gd_tensor *whole = gd_bitwise_and(bits, gd_scalar(context, range - 1.0, bits_dtype));
    gd_tensor *real = gd_cast(whole, compute);
    return gd_mul_scalar(shift == 0.0 ? real : gd_add_scalar(real, shift), 1.0 / range);
}

static bool check_random(gd_context *context, gd_dtype dtype, const char *who)
{
    if (!context)
        (void)gd_fail(GD_ERR_INVALID, "%s: the context is NULL", who);
    else if (!gd_dtype_is_float(dtype))
        (void)gd_fail(GD_ERR_DTYPE, "%s: needs a float dtype, not %s", who, gd_dtype_name(dtype));
    else
        return true;
    return false;
}

gd_tensor *gd_uniform(gd_context *context, gd_shape shape, double low, double high, gd_dtype dtype)
{
    if (!check_random(context, dtype, "gd_uniform"))
        return NULL;
    if (!(low <= high) || !isfinite(high - low))
        return gd_fail_null(GD_ERR_INVALID, "gd_uniform: [%g, %g) is no finite interval", low,
                            high);
    gd_dtype compute = gd_compute_dtype(dtype);
    gd_tensor *u = unit(context, shape, compute, 0.0);
    gd_tensor *value = gd_add_scalar(gd_mul_scalar(u, high - low), low);
    /* Rounding may land on `high`, which is outside. */
    double below =
        compute == GD_F64 ? nextafter(high, low) : (double)nextafterf((float)high, (float)low);
    return gd_as_dtype(gd_minimum(value, gd_number_like(value, below)), dtype);
}

gd_tensor *gd_normal(gd_context *context, gd_shape shape, double mean, double deviation,
                     gd_dtype dtype)
{
    if (!check_random(context, dtype, "gd_normal"))
        return NULL;
    if (!isfinite(mean) || !isfinite(deviation) || deviation < 0.0)
        return gd_fail_null(GD_ERR_INVALID,
                            "gd_normal: mean %g and deviation %g are not finite and not negative",
                            mean, deviation);
    gd_dtype compute = gd_compute_dtype(dtype);
    gd_tensor *u = unit(context, shape, compute, 1.0); /* (0, 1]: its logarithm is finite */
    gd_tensor *angle = gd_mul_scalar(unit(context, shape, compute, 0.0), 6.28318530717958647693);
    gd_tensor *z = gd_mul(gd_sqrt(gd_mul_scalar(gd_log(u), -2.0)), gd_cos(angle));
    return gd_as_dtype(gd_add_scalar(gd_mul_scalar(z, deviation), mean), dtype);
}
