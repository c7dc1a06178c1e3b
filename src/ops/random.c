/* ops/random.c: what is drawn from the context's random stream: random bits, the distributions made
 * of them, and dropout, which draws its mask where it is used and keeps none.
 *
 * The stream is Philox (base/random.h) counted by words. A draw of n words takes the next n of the
 * stream, in eager execution at once, in a trace at an offset from where the stream will stand when
 * the plan runs. So the numbers depend on the seed and on the order of draws, and on nothing else.
 */
#include "ops/random.h"

#include "ops/internal.h"

#include <math.h>

#include "base/half.h"

#include "graph/trace.h"

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

static uint64_t *bits_offset(void *attr)
{
    return &((gd_random_attr *)attr)->offset;
}

const gd_op gd_op_random_bits = { .id = GD_OP_random_bits,
                                  .name = "random_bits",
                                  .arity = 1,
                                  .attr_size = sizeof(gd_random_attr),
                                  .infer = infer_random_bits,
                                  .format = format_random_bits,
                                  .flops = gd_flops_none,
                                  .recompute = GD_RECOMPUTE_FUNCTION,
                                  .random_offset = bits_offset };

/* ---- words of the stream ---- */

/* Words of the context's stream as i32 or i64 of `shape`. */
static gd_tensor *random_bits(gd_context *context, gd_shape shape, gd_dtype dtype)
{
    gd_layout layout;
    if (gd_layout_init(&layout, shape, dtype, "gd_uniform") != GD_OK)
        return NULL;
    gd_random_attr attr;
    memset(&attr, 0, sizeof attr);
    gd_set_shape(&attr.shape, shape);
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

gd_tensor *gd_random_words(gd_context *context, gd_shape shape)
{
    return context ? random_bits(context, shape, GD_I32) : NULL;
}

gd_tensor *gd_word_half(gd_tensor *words, bool is_high, gd_dtype dtype)
{
    if (!words)
        return NULL;
    gd_tensor *mask = gd_scalar(words->context, is_high ? -65536 : 65535, GD_I32);
    gd_tensor *half = gd_cast(gd_bitwise_and(words, mask), dtype);
    return is_high ? gd_add_scalar(gd_mul_scalar(half, 0x1p-16), 32768) : half;
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

/* ---- distributions ---- */

/* The largest number of f16 or bf16 below `high`. */
static double half_below(double high, gd_dtype dtype)
{
    const bool is_f16 = dtype == GD_F16;
    uint16_t bits = is_f16 ? gd_f32_to_f16((float)high) : gd_f32_to_bf16((float)high);
    const float rounded = is_f16 ? gd_f16_to_f32(bits) : gd_bf16_to_f32(bits);
    if ((double)rounded < high)
        return (double)rounded;
    if (rounded == 0)
        bits = 0x8001; /* the least below 0 */
    else
        bits = (uint16_t)(rounded > 0 ? bits - 1 : bits + 1);
    return (double)(is_f16 ? gd_f16_to_f32(bits) : gd_bf16_to_f32(bits));
}

/* The largest number of the dtype below `high`; `high` itself where the interval is empty. */
static double number_below(double high, double low, gd_dtype dtype)
{
    if (dtype == GD_F64 || low == high)
        return nextafter(high, low);
    return gd_dtype_is_half(dtype) ? half_below(high, dtype)
                                   : (double)nextafterf((float)high, (float)low);
}

static gd_tensor *build_uniform(gd_context *context, gd_shape shape, double low, double high,
                                gd_dtype dtype)
{
    if (!check_random(context, dtype, "gd_uniform"))
        return NULL;
    if (!(low <= high) || !isfinite(high - low))
        return gd_fail_null(GD_ERR_INVALID, "gd_uniform: [%g, %g) is no finite interval", low,
                            high);
    gd_dtype compute = gd_real_dtype(dtype);
    gd_tensor *u = unit(context, shape, compute, 0.0);
    gd_tensor *value = gd_add_scalar(gd_mul_scalar(u, high - low), low);
    /* Rounding may land on `high`, which is outside. */
    gd_tensor *most = gd_number_like(value, number_below(high, low, dtype));
    return gd_as_dtype(gd_minimum(value, most), dtype);
}

gd_tensor *gd_uniform(gd_context *context, gd_shape shape, double low, double high, gd_dtype dtype)
{
    return GD_AS("gd_uniform", build_uniform(context, shape, low, high, dtype));
}

static gd_tensor *build_normal(gd_context *context, gd_shape shape, double mean, double deviation,
                               gd_dtype dtype)
{
    if (!check_random(context, dtype, "gd_normal"))
        return NULL;
    if (!isfinite(mean) || !isfinite(deviation) || deviation < 0.0)
        return gd_fail_null(GD_ERR_INVALID,
                            "gd_normal: mean %g and deviation %g are not finite and not negative",
                            mean, deviation);
    gd_dtype compute = gd_real_dtype(dtype);
    gd_tensor *u = unit(context, shape, compute, 1.0); /* (0, 1]: its logarithm is finite */
    gd_tensor *angle = gd_mul_scalar(unit(context, shape, compute, 0.0), 6.28318530717958647693);
    gd_tensor *z = gd_mul(gd_sqrt(gd_mul_scalar(gd_log(u), -2.0)), gd_cos(angle));
    return gd_as_dtype(gd_add_scalar(gd_mul_scalar(z, deviation), mean), dtype);
}

gd_tensor *gd_normal(gd_context *context, gd_shape shape, double mean, double deviation,
                     gd_dtype dtype)
{
    return GD_AS("gd_normal", build_normal(context, shape, mean, deviation, dtype));
}

static gd_tensor *build_truncated_normal(gd_context *context, gd_shape shape, double mean,
                                         double deviation, double low, double high, gd_dtype dtype)
{
    if (!check_random(context, dtype, "gd_truncated_normal"))
        return NULL;
    if (!isfinite(mean) || !isfinite(deviation) || !(deviation > 0.0) || !(low < high))
        return gd_fail_null(GD_ERR_INVALID,
                            "gd_truncated_normal: mean %g, deviation %g, bounds %g and %g: the "
                            "deviation must be positive, the bounds in order",
                            mean, deviation, low, high);
    /* The inverse of the distribution function at what is uniform between its values at the bounds.
     */
    const double root_2 = 1.41421356237309504880;
    double from = erf((low - mean) / (deviation * root_2));
    double to = erf((high - mean) / (deviation * root_2));
    gd_dtype compute = gd_real_dtype(dtype);
    gd_tensor *z = gd_erfinv(gd_uniform(context, shape, from, to, compute));
    gd_tensor *x = gd_add_scalar(gd_mul_scalar(z, deviation * root_2), mean);
    if (x && isfinite(low))
        x = gd_maximum(x, gd_number_like(x, low));
    if (x && isfinite(high))
        x = gd_minimum(x, gd_number_like(x, high));
    return gd_as_dtype(x, dtype);
}

gd_tensor *gd_truncated_normal(gd_context *context, gd_shape shape, double mean, double deviation,
                               double low, double high, gd_dtype dtype)
{
    return GD_AS("gd_truncated_normal",
                 build_truncated_normal(context, shape, mean, deviation, low, high, dtype));
}

/* low + floor(u * (high - low)) for u uniform in [0, 1) with 53 bits, which never reaches high. */
static gd_tensor *build_randint(gd_context *context, gd_shape shape, int64_t low, int64_t high,
                                gd_dtype dtype)
{
    const int64_t exact = (int64_t)1 << 53;
    if (!context)
        return gd_fail_null(GD_ERR_INVALID, "gd_randint: the context is NULL");
    if (gd_dtype_is_float(dtype) || dtype == GD_BOOL)
        return gd_fail_null(GD_ERR_DTYPE, "gd_randint: needs a dtype of integers, not %s",
                            gd_dtype_name(dtype));
    if (low < -exact || high > exact || low >= high || high - low > exact)
        return gd_fail_null(GD_ERR_INVALID,
                            "gd_randint: from %lld to below %lld: in order, within 2^53 and no "
                            "farther apart",
                            (long long)low, (long long)high);
    if (!gd_check_number((double)low, dtype, "gd_randint") ||
        !gd_check_number((double)(high - 1), dtype, "gd_randint"))
        return NULL;
    gd_tensor *u = gd_uniform(context, shape, 0.0, 1.0, GD_F64);
    gd_tensor *whole = gd_floor(gd_mul_scalar(u, (double)(high - low)));
    return gd_as_dtype(gd_add_scalar(whole, (double)low), dtype);
}

gd_tensor *gd_randint(gd_context *context, gd_shape shape, int64_t low, int64_t high,
                      gd_dtype dtype)
{
    return GD_AS("gd_randint", build_randint(context, shape, low, high, dtype));
}

static gd_tensor *build_bernoulli(gd_tensor *probability)
{
    if (!gd_usable(probability, "gd_bernoulli"))
        return NULL;
    gd_dtype dtype = gd_float_dtype(probability->layout.dtype);
    gd_tensor *p = gd_widen(gd_detach(probability));
    gd_tensor *u = p ? unit(p->context, gd_tensor_shape(p), p->layout.dtype, 0.0) : NULL;
    return gd_as_dtype(gd_lt(u, p), dtype);
}

gd_tensor *gd_bernoulli(gd_tensor *probability)
{
    return GD_AS("gd_bernoulli", build_bernoulli(probability));
}

/* The largest of logit + Gumbel noise is at k with the probability of k (Gumbel, 1954). */
static gd_tensor *build_categorical(gd_tensor *logits, int axis)
{
    if (!gd_usable(logits, "gd_categorical"))
        return NULL;
    gd_tensor *x = gd_widen(gd_detach(logits));
    if (!x)
        return NULL;
    gd_tensor *u = unit(x->context, gd_tensor_shape(x), x->layout.dtype, 1.0);
    /* u = 1 would be infinite noise. */
    double below = x->layout.dtype == GD_F64 ? 1.0 - 0x1p-53 : 1.0 - 0x1p-24;
    gd_tensor *inside = gd_minimum(u, gd_number_like(u, below));
    return gd_argmax(gd_sub(x, gd_log(gd_neg(gd_log(inside)))), axis, false);
}

gd_tensor *gd_categorical(gd_tensor *logits, int axis)
{
    return GD_AS("gd_categorical", build_categorical(logits, axis));
}

static gd_tensor *build_permutation(gd_context *context, int64_t n)
{
    if (!context || n < 0 || n > UINT32_MAX)
        return gd_fail_null(GD_ERR_INVALID,
                            "gd_permutation: needs a context and a length from 0 to 2^32 - 1");
    /* The order of 64 random bits each. */
    return gd_argsort(random_bits(context, GD_SHAPE(n), GD_I64), 0, false);
}

gd_tensor *gd_permutation(gd_context *context, int64_t n)
{
    return GD_AS("gd_permutation", build_permutation(context, n));
}

/* ---- dropout ---- */

static gd_status infer_dropout(int n, const gd_layout *const *in, const void *attr, gd_layout *out)
{
    (void)n, (void)attr;
    return gd_infer_like(in[0], in[0]->dtype, "gd_dropout", out);
}

/* The same mask once more, drawn again from the same words. */
static bool vjp_dropout(gd_tensor *r, gd_tensor *g, gd_tensor **d)
{
    return gd_put(&d[0], gd_apply2(GD_OP_dropout, g, r->inputs[1], r->attr));
}

static void format_dropout(const void *attr, char *text, size_t size)
{
    const gd_dropout_attr *a = attr;
    gd_snprintf(text, size, "scale=%g offset=%llu", a->scale, (unsigned long long)a->offset);
}

static uint64_t *dropout_offset(void *attr)
{
    return &((gd_dropout_attr *)attr)->offset;
}

const gd_op gd_op_dropout = { .id = GD_OP_dropout,
                              .name = "dropout",
                              .arity = 2,
                              .dtypes = GD_DTYPES_REAL,
                              .attr_size = sizeof(gd_dropout_attr),
                              .infer = infer_dropout,
                              .vjp = vjp_dropout,
                              .format = format_dropout,
                              .flops = gd_flops_each,
                              .recompute = GD_RECOMPUTE_FUNCTION,
                              .random_offset = dropout_offset };

/* Where a draw of `words` begins: a state the op reads, and an offset from it. Eager, the state is
 * a copy, because the context's own moves on before the gradient is taken. */
static gd_tensor *reserve_words(gd_context *context, uint64_t words, uint64_t *offset)
{
    if (context->trace) {
        *offset = context->trace->random_words;
        context->trace->random_words += words;
        return context->random_state;
    }
    int64_t state[2] = { (int64_t)context->random_seed, (int64_t)context->random_position };
    gd_tensor *copy = gd_from_host(context, GD_SHAPE(2), GD_I64, state);
    *offset = 0;
    if (copy)
        context->random_position += words;
    return copy;
}

gd_tensor *gd_dropout(gd_tensor *x, double p)
{
    if (!gd_usable(x, "gd_dropout"))
        return NULL;
    if (!(p >= 0.0 && p <= 1.0))
        return gd_fail_null(GD_ERR_INVALID, "gd_dropout: the probability is %g, not in 0 … 1", p);
    gd_dtype dtype = gd_float_dtype(x->layout.dtype);
    if (p == 0.0)
        return gd_as_dtype(x, dtype);
    gd_tensor *real = gd_as_dtype(x, gd_compute_dtype(GD_OP_dropout, dtype));
    if (!real)
        return NULL;
    gd_dropout_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.threshold = (uint64_t)llround(p * 4294967296.0);
    attr.scale = p < 1.0 ? 1.0 / (1.0 - p) : 0.0;
    gd_tensor *state = reserve_words(real->context, (uint64_t)gd_tensor_count(real), &attr.offset);
    return gd_as_dtype(gd_apply2(GD_OP_dropout, real, state, &attr), dtype);
}
