/* backend/cpu/vecmath_f32.h: exponentials, logarithms, hyperbolic functions and pow in single
 * precision. Included by vecmath.h, which explains the rules. What deep learning spends its time on
 * (exp, log, tanh, sigmoid, softplus, …) is computed in single precision; the rarer functions go
 * through double. */
#ifndef GD_BACKEND_CPU_VECMATH_F32_H
#define GD_BACKEND_CPU_VECMATH_F32_H

/* ---- exponentials ---- */

/* exp(x) = 2^k (1 + q), k = round(x / ln 2): returns q = expm1(r), r = x - k ln 2, for |x| < 200 */
GD_INLINE float gd_exp_reduce_f32(float x, uint32_t *k)
{
    float shifted = GD_FMA_F32(x, 0x1.715476p+0f, GD_ROUND_F32);
    float n = shifted - GD_ROUND_F32;
    *k = gd_bits_f32(shifted) - UINT32_C(0x4b400000);
    float r = GD_FMA_F32(n, -0x1.63p-1f, x); /* exact: n times 355/512 fits */
    r = GD_FMA_F32(n, 0x1.bd0106p-13f, r);
    float p0_1 = GD_FMA_F32(0x1.5554a8p-3f, r, 0x1.fffffep-2f);
    float p2_3 = GD_FMA_F32(0x1.122ddcp-7f, r, 0x1.555792p-5f);
    float r2 = r * r;
    float p2_4 = GD_FMA_F32(0x1.6aceeep-10f, r2, p2_3);
    float p = GD_FMA_F32(p2_4, r2, p0_1);
    return GD_FMA_F32(r * r, p, r);
}

/* e^x; max 1.5 ulp */
GD_INLINE float gd_exp_f32(float x)
{
    float c = GD_SELECT_F32(x > 89.0f, 89.0f, x); /* written so that NaN passes */
    c = GD_SELECT_F32(c < -104.0f, -104.0f, c);
    uint32_t k;
    float q = gd_exp_reduce_f32(c, &k);
    return gd_scale_f32(1.0f + q, k);
}

/* 2^x; max 1.5 ulp */
GD_INLINE float gd_exp2_f32(float x)
{
    float c = GD_SELECT_F32(x > 129.0f, 129.0f, x);
    c = GD_SELECT_F32(c < -151.0f, -151.0f, c);
    float shifted = c + GD_ROUND_F32;
    float r = c - (shifted - GD_ROUND_F32);
    float p0_1 = GD_FMA_F32(0x1.c6b06ep-5f, r, 0x1.ebfbep-3f);
    float p2_3 = GD_FMA_F32(0x1.5da4a4p-10f, r, 0x1.3b2a5cp-7f);
    float p4_5 = GD_FMA_F32(0x1.e1cd3p-17f, r, 0x1.440dd2p-13f);
    float r2 = r * r;
    float p2_5 = GD_FMA_F32(p4_5, r2, p2_3);
    float p = GD_FMA_F32(p2_5, r2, p0_1);
    float q = GD_FMA_F32(r * r, p, r * 0x1.62e43p-1f);
    return gd_scale_f32(1.0f + q, gd_bits_f32(shifted) - UINT32_C(0x4b400000));
}

/* e^x - 1 = 2^k q + (2^k - 1); max 2.0 ulp */
GD_INLINE float gd_expm1_f32(float x)
{
    float c = GD_SELECT_F32(x > 89.0f, 89.0f, x);
    c = GD_SELECT_F32(c < -18.0f, -18.0f, c);
    uint32_t k;
    float q = gd_exp_reduce_f32(c, &k);
    float s = gd_pow2_f32(k - 1); /* half of 2^k: k may be 128 */
    float y = 2.0f * GD_FMA_F32(s, q, s - 0.5f);
    y = GD_SELECT_F32(k == 0, q, y); /* halving would cost a subnormal its last bit */
    return copysignf(y, x);
}

/* 1 / (1 + e^-x), as 2^-32 / (2^-32 + 2^-32 e^-x) so that the denominator stays finite where the
 * quotient is subnormal; max 2.0 ulp */
GD_INLINE float gd_sigmoid_f32(float x)
{
    float c = GD_SELECT_F32(x < -104.0f, 104.0f, -x);
    c = GD_SELECT_F32(c < -20.0f, -20.0f, c);
    uint32_t k;
    float q = gd_exp_reduce_f32(c, &k);
    float s = gd_pow2_f32(k - 32);
    float sum = 0x1p-32f + s;
    return 0x1p-32f / (sum + GD_FMA_F32(s, q, 0x1p-32f - (sum - s)));
}

/* ---- logarithms ---- */

/* x = 2^e (1 + f), 1 + f in [sqrt 1/2, sqrt 2), for 0 < x < inf */
GD_INLINE float gd_log_reduce_f32(float x, float *e)
{
    float tiny = GD_SELECT_F32(x < 0x1p-126f, 23.0f, 0.0f);
    float scaled = GD_SELECT_F32(x < 0x1p-126f, x * 0x1p23f, x);
    uint32_t u = gd_bits_f32(scaled) - UINT32_C(0x3f3504f3); /* bits of sqrt 1/2 */
    *e = (float)((int32_t)u >> 23) - tiny;
    return gd_from_bits_f32((u & UINT32_C(0x007fffff)) + UINT32_C(0x3f3504f3)) - 1.0f;
}

/* log(1 + f) - f + f^2/2 */
GD_INLINE float gd_log_tail_f32(float f)
{
    float p0_1 = GD_FMA_F32(-0x1.000226p-2f, f, 0x1.555554p-2f);
    float p2_3 = GD_FMA_F32(-0x1.547248p-3f, f, 0x1.99a008p-3f);
    float p4_5 = GD_FMA_F32(-0x1.0d8538p-3f, f, 0x1.22da2cp-3f);
    float p6_7 = GD_FMA_F32(-0x1.38b4bap-4f, f, 0x1.055b08p-3f);
    float f2 = f * f;
    float p0_3 = GD_FMA_F32(p2_3, f2, p0_1);
    float p4_7 = GD_FMA_F32(p6_7, f2, p4_5);
    float f4 = f2 * f2;
    float p = GD_FMA_F32(p4_7, f4, p0_3);
    return f * f * (f * p);
}

/* What a logarithm gives outside (0, inf): -inf at zero, NaN below, inf at inf. */
GD_INLINE float gd_log_edges_f32(float x, float y)
{
    float edge = GD_SELECT_F32(x == 0.0f, -INFINITY, NAN);
    y = GD_SELECT_F32(x < INFINITY, y, x);
    return GD_SELECT_F32(x > 0.0f, y, edge);
}

/* ln x; max 1.0 ulp */
GD_INLINE float gd_log_f32(float x)
{
    float e;
    float f = gd_log_reduce_f32(x, &e);
    float y =
        GD_FMA_F32(e, -0x1.bd0106p-13f, gd_log_tail_f32(f)); /* ln 2 = 355/512 - 0x1.bd0106p-13 */
    y = f + GD_FMA_F32(-0.5f * f, f, y);
    return gd_log_edges_f32(x, GD_FMA_F32(e, 0x1.63p-1f, y));
}

/* log(1 + f) as hi + lo, hi having 12 bits so that its product with an 11-bit constant is exact */
GD_INLINE float gd_log_split_f32(float f, float *lo)
{
    float half_sq = 0.5f * f * f;
    float hi = gd_from_bits_f32(gd_bits_f32(f - half_sq) & UINT32_C(0xfffff000));
    *lo = ((f - hi) - half_sq) + gd_log_tail_f32(f);
    return hi;
}

/* log2 x; exact at powers of two; max 1.0 ulp */
GD_INLINE float gd_log2_f32(float x)
{
    float e, lo;
    float f = gd_log_reduce_f32(x, &e);
    float hi = gd_log_split_f32(f, &lo);
    float y_lo = GD_FMA_F32(lo, 0x1.715476p+0f, hi * 0x1.47652cp-12f);
    return gd_log_edges_f32(x, e + GD_FMA_F32(hi, 0x1.714p+0f, y_lo));
}

/* log10 x; max 1.0 ulp */
GD_INLINE float gd_log10_f32(float x)
{
    float e, lo;
    float f = gd_log_reduce_f32(x, &e);
    float hi = gd_log_split_f32(f, &lo);
    float y_lo = GD_FMA_F32(lo, 0x1.bcb7b2p-2f, hi * 0x1.bd8a94p-13f);
    y_lo = GD_FMA_F32(e, 0x1.3509f8p-18f, y_lo);
    return gd_log_edges_f32(x, GD_FMA_F32(e, 0x1.344p-2f, GD_FMA_F32(hi, 0x1.bc8p-2f, y_lo)));
}

/* ln(1 + x); max 1.5 ulp */
GD_INLINE float gd_log1p_f32(float x)
{
    float u = 1.0f + x;
    float t = u - 1.0f;
    float lost = (1.0f - (u - t)) + (x - t); /* what rounding took from u (TwoSum) */
    float e;
    float f = gd_log_reduce_f32(u, &e);
    f += lost * gd_pow2_f32(gd_integer_f32(GD_SELECT_F32(e < 100.0f, -e, -100.0f)));
    float y = GD_FMA_F32(e, -0x1.bd0106p-13f, gd_log_tail_f32(f));
    y = f + GD_FMA_F32(-0.5f * f, f, y);
    y = gd_log_edges_f32(u, GD_FMA_F32(e, 0x1.63p-1f, y));
    return GD_SELECT_F32(fabsf(x) < 0x1p-25f, x, y);
}

/* ln(1 + e^x) = max(x, 0) + log1p(z), z = e^-|x| in [0, 1]; above sqrt 2 - 1, log1p(z) = ln 2 +
 * log1p((z - 1) / 2); max 2.0 ulp */
GD_INLINE float gd_softplus_f32(float x)
{
    float z = gd_exp_f32(-fabsf(x));
    float f = GD_SELECT_F32(z > 0x1.a8279ap-2f, 0.5f * (z - 1.0f), z); /* exact */
    float ln2_hi = GD_SELECT_F32(z > 0x1.a8279ap-2f, 0x1.63p-1f, 0.0f);
    float ln2_lo = GD_SELECT_F32(z > 0x1.a8279ap-2f, -0x1.bd0106p-13f, 0.0f);
    float positive = GD_SELECT_F32(x > 0.0f, x, 0.0f);
    float y = f + GD_FMA_F32(-0.5f * f, f, ln2_lo + gd_log_tail_f32(f));
    return positive + (ln2_hi + y);
}

/* ---- hyperbolic functions ---- */

/* tanh x = 1 - 2 / (e^2a + 1), a = |x|, or an odd polynomial below 0.6; max 1.5 ulp */
GD_INLINE float gd_tanh_f32(float x)
{
    float a = fabsf(x), t = x * x;
    float c = GD_SELECT_F32(a > 10.0f, 10.0f, a);
    uint32_t k;
    float q = gd_exp_reduce_f32(2.0f * c, &k);
    float s = gd_pow2_f32(k);
    float large = 1.0f - 2.0f / GD_FMA_F32(s, q, 1.0f + s);
    float p = -0x1.7d6e9cp-8f;
    p = GD_FMA_F32(p, t, 0x1.53bd06p-6f);
    p = GD_FMA_F32(p, t, -0x1.b876acp-5f);
    p = GD_FMA_F32(p, t, 0x1.1108c8p-3f);
    p = GD_FMA_F32(p, t, -0x1.55553ap-2f);
    float small = GD_FMA_F32(a * t, p, a);
    return copysignf(GD_SELECT_F32(a < 0.6f, small, large), x);
}

/* cosh x; max 2.0 ulp */
GD_INLINE float gd_cosh_f32(float x)
{
    float a = fabsf(x);
    float c = GD_SELECT_F32(a > 90.0f, 90.0f, a);
    uint32_t k;
    float q = gd_exp_reduce_f32(c, &k);
    float half = gd_scale_f32(1.0f + q, k - 1); /* e^a / 2 */
    return half + 0.25f / half;
}

/* sinh x; max 2.0 ulp */
GD_INLINE float gd_sinh_f32(float x)
{
    float a = fabsf(x), t = x * x;
    float c = GD_SELECT_F32(a > 90.0f, 90.0f, a);
    uint32_t k;
    float q = gd_exp_reduce_f32(c, &k);
    float half = gd_scale_f32(1.0f + q, k - 1);
    float large = half - 0.25f / half;
    float p = 0x1.756c1ep-19f;
    p = GD_FMA_F32(p, t, 0x1.a022bcp-13f);
    p = GD_FMA_F32(p, t, 0x1.1110ep-7f);
    p = GD_FMA_F32(p, t, 0x1.555556p-3f);
    float small = GD_FMA_F32(a * t, p, a);
    return copysignf(GD_SELECT_F32(a < 1.0f, small, large), x);
}

/* asinh x; max 1.0 ulp */
GD_INLINE float gd_asinh_f32(float x)
{
    return (float)gd_asinh_f64((double)x);
}

/* acosh x, NaN below 1; max 1.0 ulp */
GD_INLINE float gd_acosh_f32(float x)
{
    return (float)gd_acosh_f64((double)x);
}

/* atanh x, inf at 1, NaN beyond; max 1.0 ulp */
GD_INLINE float gd_atanh_f32(float x)
{
    return (float)gd_atanh_f64((double)x);
}

/* ---- powers ---- */

/* The special cases of pow(x, y), given r = |x|^y right for finite positive |x|: C99 F.9.4.4. */
GD_INLINE float gd_pow_edges_f32(float x, float y, float r)
{
    float a = fabsf(x), b = fabsf(y), half = 0.5f * b;
    int integer = (b >= 0x1p23f) | ((b + 0x1p23f) - 0x1p23f == b);
    int odd = integer & (b < 0x1p24f) & ((half + 0x1p23f) - 0x1p23f != half);
    int extreme = (a == 0.0f) | (a == INFINITY);
    float zero_or_inf = GD_SELECT_F32((a < 1.0f) ^ (y < 0.0f), 0.0f, INFINITY);
    r = GD_SELECT_F32((extreme | (b == INFINITY)), zero_or_inf, r);
    r = GD_SELECT_F32(a == 1.0f, 1.0f, r);
    float negative = GD_SELECT_F32(odd, -r, r);
    negative = GD_SELECT_F32(integer | extreme, negative, NAN);
    r = GD_SELECT_F32(copysignf(1.0f, x) < 0.0f, negative, r);
    r = GD_SELECT_F32((x != x) | (y != y), x + y, r);
    return GD_SELECT_F32((x == 1.0f) | (y == 0.0f), 1.0f, r);
}

/* x^y = 2^(y log2 x), in double, where every float is a normal number; max 1.0 ulp */
GD_INLINE float gd_pow_f32(float x, float y)
{
    uint64_t u =
        gd_bits_f64((double)fabsf(x)) - UINT64_C(0x3fe6a09e667f3bcd); /* as in gd_log_reduce_f64 */
    uint64_t biased = (u + (UINT64_C(1024) << 52)) >> 52;
    double e = gd_from_bits_f64(biased | UINT64_C(0x4330000000000000)) - (0x1p52 + 1024.0);
    double m = gd_from_bits_f64((u & UINT64_C(0x000fffffffffffff)) + UINT64_C(0x3fe6a09e667f3bcd));
    double s = (m - 1.0) / (m + 1.0);
    double z = s * s;
    double l = 0x1.21b0f6ebe6109p-2;
    l = GD_FMA_F64(l, z, 0x1.47955554827c7p-2);
    l = GD_FMA_F64(l, z, 0x1.a61a2ecf7477ap-2);
    l = GD_FMA_F64(l, z, 0x1.2776c293368e7p-1);
    l = GD_FMA_F64(l, z, 0x1.ec709dc53c706p-1);
    l = GD_FMA_F64(l, z, 0x1.71547652b8251p+1);
    double v = (double)y * GD_FMA_F64(s, l, e);
    v = gd_select_sign_f64(160.0 - v, 160.0, v);
    v = gd_select_sign_f64(v + 160.0, -160.0, v);
    double n = gd_round_small_f64(v);
    double r = v - n;
    double p = 0x1.c04739ea07123p-17;
    p = GD_FMA_F64(p, r, 0x1.443fb42440eedp-13);
    p = GD_FMA_F64(p, r, 0x1.5dc057af9ddafp-10);
    p = GD_FMA_F64(p, r, 0x1.3b2a1bd7826f3p-7);
    p = GD_FMA_F64(p, r, 0x1.c6b0551160917p-5);
    p = GD_FMA_F64(p, r, 0x1.ebfbe045872cap-3);
    p = GD_FMA_F64(p, r, 0x1.62e4300ba64e4p-1);
    return gd_pow_edges_f32(x, y, (float)(GD_FMA_F64(r, p, 1.0) * gd_pow2_f64(gd_integer_f64(n))));
}

/* 1 / sqrt x, each operation rounded; max 1.5 ulp */
GD_INLINE float gd_rsqrt_f32(float x)
{
    return 1.0f / sqrtf(x);
}

#endif
