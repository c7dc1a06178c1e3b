/* backend/cpu/vecmath_f64.h: exponentials, logarithms, hyperbolic functions and pow in double
 * precision. Included by vecmath.h, which explains the rules; vecmath_f32.h has the same functions
 * in the same order and with more comments. */
#ifndef GD_BACKEND_CPU_VECMATH_F64_H
#define GD_BACKEND_CPU_VECMATH_F64_H

/* ---- rounding ---- */

/* To the 8 binary digits of bf16: gd_round_bf16_f32. */
GD_INLINE double gd_round_bf16_f64(double x, double y)
{
    const uint64_t infinity = UINT64_C(0x7ff0000000000000), behind = (UINT64_C(1) << 45) - 1;
    y = y > 0.0 ? y : 0.0;
    y = y < 65535.0 ? y : 65535.0;
    uint64_t bits = gd_bits_f64(x), noise = (gd_bits_f64(y + 0x1p52) & UINT64_C(0xffff)) << 29;
    uint64_t cut = bits & (UINT64_MAX >> 1) & ~behind;
    noise = cut == infinity - behind - 1 ? UINT64_C(1) << 44 : noise;
    uint64_t rounded = (bits + noise) & ~behind;
    return gd_from_bits_f64(cut < infinity ? rounded : bits);
}

/* ---- exponentials ---- */

/* exp(x) = 2^k (1 + q), k = round(x / ln 2): returns q = expm1(r), |r| <= ln2/2, for |x| < 2^10.
 * x_lo is added to x. */
GD_INLINE double gd_exp_reduce_f64(double x, double x_lo, uint64_t *k)
{
    double shifted = GD_FMA_F64(x, 0x1.71547652b82fep+0, GD_ROUND_F64);
    double n = shifted - GD_ROUND_F64;
    *k = gd_bits_f64(shifted) - UINT64_C(0x4338000000000000);
    double near = GD_FMA_F64(n, -0x1.62e42feep-1, x); /* exact: 32 bits of ln 2, 11 of n */
    double rest = n * 0x1.a39ef35793c76p-33 - x_lo;
    double r = near - rest;
    double r_lo = (near - r) - rest;
    double p0_1 = GD_FMA_F64(0x1.5555555555559p-3, r, 0x1p-1);
    double p2_3 = GD_FMA_F64(0x1.111111110f6ep-7, r, 0x1.555555555553fp-5);
    double p4_5 = GD_FMA_F64(0x1.a01a01afd114ep-13, r, 0x1.6c16c16c1f046p-10);
    double p6_7 = GD_FMA_F64(0x1.71ddf886624e8p-19, r, 0x1.a01a017bcfbe3p-16);
    double p8_9 = GD_FMA_F64(0x1.af5e66ab03535p-26, r, 0x1.27e5362429028p-22);
    double r2 = r * r;
    double p0_3 = GD_FMA_F64(p2_3, r2, p0_1);
    double p4_7 = GD_FMA_F64(p6_7, r2, p4_5);
    double p8_10 = GD_FMA_F64(0x1.1ee884114726ep-29, r2, p8_9);
    double r4 = r2 * r2;
    double p4_10 = GD_FMA_F64(p8_10, r4, p4_7);
    double p = GD_FMA_F64(p4_10, r4, p0_3);
    return r + GD_FMA_F64(r * r, p, r_lo);
}

/* e^x; max 1.0 ulp */
GD_INLINE double gd_exp_f64(double x)
{
    double c = GD_SELECT_F64(x > 710.0, 710.0, x);
    c = GD_SELECT_F64(c < -746.0, -746.0, c);
    uint64_t k;
    double q = gd_exp_reduce_f64(c, 0.0, &k);
    return gd_scale_f64(1.0 + q, k);
}

/* 2^x; max 1.5 ulp */
GD_INLINE double gd_exp2_f64(double x)
{
    double c = GD_SELECT_F64(x > 1025.0, 1025.0, x);
    c = GD_SELECT_F64(c < -1076.0, -1076.0, c);
    double shifted = c + GD_ROUND_F64;
    double r = c - (shifted - GD_ROUND_F64);
    double p0_1 = GD_FMA_F64(0x1.c6b08d704a26fp-5, r, 0x1.ebfbdff82c5b3p-3);
    double p2_3 = GD_FMA_F64(0x1.5d87fe78458c6p-10, r, 0x1.3b2ab6fb9dab7p-7);
    double p4_5 = GD_FMA_F64(0x1.ffcbfe661ecdap-17, r, 0x1.430913167f272p-13);
    double p6_7 = GD_FMA_F64(0x1.b520836f8aafp-24, r, 0x1.62bfb49c93eefp-20);
    double p8_9 = GD_FMA_F64(0x1.f0e6f61e73a3dp-32, r, 0x1.e63b95111b89p-28);
    double r2 = r * r;
    double p0_3 = GD_FMA_F64(p2_3, r2, p0_1);
    double p4_7 = GD_FMA_F64(p6_7, r2, p4_5);
    double r4 = r2 * r2;
    double p4_9 = GD_FMA_F64(p8_9, r4, p4_7);
    double p = GD_FMA_F64(p4_9, r4, p0_3);
    double q = GD_FMA_F64(r * r, p, r * 0x1.62e42fefa39efp-1);
    return gd_scale_f64(1.0 + q, gd_bits_f64(shifted) - UINT64_C(0x4338000000000000));
}

/* e^x - 1; max 2.0 ulp */
GD_INLINE double gd_expm1_f64(double x)
{
    double c = GD_SELECT_F64(x > 710.0, 710.0, x);
    c = GD_SELECT_F64(c < -40.0, -40.0, c);
    uint64_t k;
    double q = gd_exp_reduce_f64(c, 0.0, &k);
    double s = gd_pow2_f64(k - 1); /* half of 2^k: k may be 1024 */
    double y = 2.0 * GD_FMA_F64(s, q, s - 0.5);
    y = GD_SELECT_F64(fabs(x) < 0.34, q, y); /* there k = 0 */
    return copysign(y, x);
}

/* 1 / (1 + e^-x); max 2.0 ulp */
GD_INLINE double gd_sigmoid_f64(double x)
{
    double c = GD_SELECT_F64(x < -750.0, 750.0, -x);
    c = GD_SELECT_F64(c < -40.0, -40.0, c);
    uint64_t k;
    double q = gd_exp_reduce_f64(c, 0.0, &k);
    double s = gd_pow2_f64(k - 64);
    double sum = 0x1p-64 + s;
    return 0x1p-64 / (sum + GD_FMA_F64(s, q, 0x1p-64 - (sum - s)));
}

/* ---- logarithms ---- */

/* x = 2^e (1 + f), 1 + f in [sqrt 1/2, sqrt 2), for 0 < x < inf */
GD_INLINE double gd_log_reduce_f64(double x, double *e)
{
    double tiny = GD_SELECT_F64(x < 0x1p-1022, 54.0, 0.0);
    double scaled = GD_SELECT_F64(x < 0x1p-1022, x * 0x1p54, x);
    uint64_t u = gd_bits_f64(scaled) - UINT64_C(0x3fe6a09e667f3bcd); /* bits of sqrt 1/2 */
    /* the exponent, made positive by 1024, becomes a double by way of the mantissa of 2^52 */
    uint64_t biased = (u + (UINT64_C(1024) << 52)) >> 52;
    *e = gd_from_bits_f64(biased | UINT64_C(0x4330000000000000)) - (0x1p52 + 1024.0) - tiny;
    return gd_from_bits_f64((u & UINT64_C(0x000fffffffffffff)) + UINT64_C(0x3fe6a09e667f3bcd)) -
           1.0;
}

/* log(1 + f) - f + f^2/2, with s = f / (2 + f) and log(1 + f) = 2 s + 2/3 s^3 + ... */
GD_INLINE double gd_log_tail_f64(double f)
{
    double s = f / (2.0 + f);
    double z = s * s;
    double p = 0x1.2f0257ed5060ep-3;
    p = GD_FMA_F64(p, z, 0x1.39a20afb80829p-3);
    p = GD_FMA_F64(p, z, 0x1.74663ba9f77eap-3);
    p = GD_FMA_F64(p, z, 0x1.c71c5219f9666p-3);
    p = GD_FMA_F64(p, z, 0x1.24924941db6d5p-2);
    p = GD_FMA_F64(p, z, 0x1.999999997ff61p-2);
    p = GD_FMA_F64(p, z, 0x1.5555555555592p-1);
    return s * GD_FMA_F64(z, p, 0.5 * f * f);
}

/* What a logarithm gives outside (0, inf): -inf at zero, NaN below, inf at inf. */
GD_INLINE double gd_log_edges_f64(double x, double y)
{
    double edge = GD_SELECT_F64(x == 0.0, (double)-INFINITY, (double)NAN);
    y = GD_SELECT_F64(x < (double)INFINITY, y, x);
    return GD_SELECT_F64(x > 0.0, y, edge);
}

/* ln x; max 1.0 ulp */
GD_INLINE double gd_log_f64(double x)
{
    double e;
    double f = gd_log_reduce_f64(x, &e);
    double y = GD_FMA_F64(e, 0x1.ef35793c76730p-45, gd_log_tail_f64(f));
    y = f - (0.5 * f * f - y);
    return gd_log_edges_f64(x, GD_FMA_F64(e, 0x1.62e42fefa3800p-1, y));
}

/* log(1 + f) as hi + lo, hi having 21 bits so that its product with a 21-bit constant is exact */
GD_INLINE double gd_log_split_f64(double f, double *lo)
{
    double half_sq = 0.5 * f * f;
    double hi = gd_from_bits_f64(gd_bits_f64(f - half_sq) & UINT64_C(0xffffffff00000000));
    *lo = ((f - hi) - half_sq) + gd_log_tail_f64(f);
    return hi;
}

/* log2 x; exact at powers of two; max 1.0 ulp */
GD_INLINE double gd_log2_f64(double x)
{
    double e, lo;
    double f = gd_log_reduce_f64(x, &e);
    double hi = gd_log_split_f64(f, &lo);
    double y_hi = hi * 0x1.7154700000000p+0;
    double y_lo = GD_FMA_F64(lo, 0x1.71547652b82fep+0, hi * 0x1.94ae0bf85ddf4p-22);
    double sum = e + y_hi; /* |e| >= 1 > |y_hi|, or e = 0 */
    return gd_log_edges_f64(x, sum + (((e - sum) + y_hi) + y_lo));
}

/* log10 x; max 1.0 ulp */
GD_INLINE double gd_log10_f64(double x)
{
    double e, lo;
    double f = gd_log_reduce_f64(x, &e);
    double hi = gd_log_split_f64(f, &lo);
    double y_hi = hi * 0x1.bcb7b00000000p-2;
    double y_lo = GD_FMA_F64(lo, 0x1.bcb7b1526e50ep-2, hi * 0x1.526e50e32a6abp-26);
    y_lo = GD_FMA_F64(e, 0x1.9fef311f12b36p-42, y_lo);
    double whole = e * 0x1.34413509f6000p-2;
    double sum = whole + y_hi;
    return gd_log_edges_f64(x, sum + (((whole - sum) + y_hi) + y_lo));
}

/* ln(1 + x); max 1.0 ulp */
GD_INLINE double gd_log1p_f64(double x)
{
    double lost, e;
    double u = gd_two_sum_f64(1.0, x, &lost);
    double m = gd_log_reduce_f64(u, &e);
    double shift = lost * gd_pow2_f64(gd_integer_f64(GD_SELECT_F64(
                              e < 1000.0, -e, -1000.0))); /* 1 + x = 2^e (1 + m + shift) */
    double f = m + shift;
    double f_lo = shift - (f - m);
    double y = GD_FMA_F64(e, 0x1.ef35793c76730p-45, gd_log_tail_f64(f) + f_lo);
    y = f - (0.5 * f * f - y);
    y = gd_log_edges_f64(u, GD_FMA_F64(e, 0x1.62e42fefa3800p-1, y));
    return GD_SELECT_F64(fabs(x) < 0x1p-54, x, y);
}

/* ln(1 + e^x); max 2.0 ulp */
GD_INLINE double gd_softplus_f64(double x)
{
    double positive = GD_SELECT_F64(x > 0.0, x, 0.0);
    return positive + gd_log1p_f64(gd_exp_f64(-fabs(x)));
}

/* ---- hyperbolic functions ---- */

/* tanh x; max 1.5 ulp */
GD_INLINE double gd_tanh_f64(double x)
{
    double a = fabs(x), t = x * x;
    double c = GD_SELECT_F64(a > 20.0, 20.0, a);
    uint64_t k;
    double q = gd_exp_reduce_f64(2.0 * c, 0.0, &k);
    double s = gd_pow2_f64(k);
    double large = 1.0 - 2.0 / GD_FMA_F64(s, q, 1.0 + s); /* 1 - 2 / (e^2a + 1) */
    double p = 0x1.a4ed78d03f4cp-18;
    p = GD_FMA_F64(p, t, -0x1.0174d7392326ep-15);
    p = GD_FMA_F64(p, t, 0x1.820bef382b867p-14);
    p = GD_FMA_F64(p, t, -0x1.f19a9fcff2cc9p-13);
    p = GD_FMA_F64(p, t, 0x1.35172bcac5249p-11);
    p = GD_FMA_F64(p, t, -0x1.7d9d83b566c68p-10);
    p = GD_FMA_F64(p, t, 0x1.d6d373620aecfp-9);
    p = GD_FMA_F64(p, t, -0x1.226e336c477ap-7);
    p = GD_FMA_F64(p, t, 0x1.664f487582b5p-6);
    p = GD_FMA_F64(p, t, -0x1.ba1ba1b9e6ae7p-5);
    p = GD_FMA_F64(p, t, 0x1.1111111110dbep-3);
    p = GD_FMA_F64(p, t, -0x1.5555555555553p-2);
    double small = GD_FMA_F64(a * t, p, a);
    return copysign(GD_SELECT_F64(a < 0.6, small, large), x);
}

/* cosh x; max 1.5 ulp */
GD_INLINE double gd_cosh_f64(double x)
{
    double a = fabs(x);
    double c = GD_SELECT_F64(a > 711.0, 711.0, a);
    uint64_t k;
    double q = gd_exp_reduce_f64(c, 0.0, &k);
    double half = gd_scale_f64(1.0 + q, k - 1); /* e^a / 2 */
    return half + 0.25 / half;
}

/* sinh x; max 2.0 ulp */
GD_INLINE double gd_sinh_f64(double x)
{
    double a = fabs(x), t = x * x;
    double c = GD_SELECT_F64(a > 711.0, 711.0, a);
    uint64_t k;
    double q = gd_exp_reduce_f64(c, 0.0, &k);
    double half = gd_scale_f64(1.0 + q, k - 1);
    double large = half - 0.25 / half;
    double p = 0x1.d2a21649f651bp-48;
    p = GD_FMA_F64(p, t, 0x1.a6653684df1c8p-41);
    p = GD_FMA_F64(p, t, 0x1.61314d702d0f7p-33);
    p = GD_FMA_F64(p, t, 0x1.ae6441227f717p-26);
    p = GD_FMA_F64(p, t, 0x1.71de3a68d038ep-19);
    p = GD_FMA_F64(p, t, 0x1.a01a01a00735bp-13);
    p = GD_FMA_F64(p, t, 0x1.111111111119bp-7);
    p = GD_FMA_F64(p, t, 0x1.5555555555555p-3);
    double small = GD_FMA_F64(a * t, p, a);
    return copysign(GD_SELECT_F64(a < 1.0, small, large), x);
}

/* asinh x; max 2.0 ulp */
GD_INLINE double gd_asinh_f64(double x)
{
    double a = fabs(x);
    double huge =
        GD_SELECT_F64(a > 0x1p500, 0x1.62e42fefa39efp-1, 0.0); /* there asinh a = ln a + ln 2 */
    double c = GD_SELECT_F64(a > 0x1p500, 1.0, a);
    double t = c + c * c / (1.0 + sqrt(GD_FMA_F64(c, c, 1.0)));
    return copysign(gd_log1p_f64(GD_SELECT_F64(a > 0x1p500, a, t)) + huge, x);
}

/* acosh x, NaN below 1; max 2.5 ulp */
GD_INLINE double gd_acosh_f64(double x)
{
    double huge = GD_SELECT_F64(x > 0x1p500, 0x1.62e42fefa39efp-1, 0.0);
    double t = GD_SELECT_F64(x > 0x1p500, 1.0, x - 1.0);
    double arg = t + sqrt(t * (t + 2.0));
    double y = gd_log1p_f64(GD_SELECT_F64(x > 0x1p500, x, arg)) + huge;
    return GD_SELECT_F64(x < 1.0, (double)NAN, y);
}

/* atanh x, inf at 1, NaN beyond; max 2.0 ulp */
GD_INLINE double gd_atanh_f64(double x)
{
    double a = fabs(x), twice = 2.0 * a;
    double quotient = GD_SELECT_F64(a < 0.5, twice * a, twice) / (1.0 - a);
    double arg = GD_SELECT_F64(a < 0.5, twice + quotient, quotient); /* 2a / (1 - a) */
    return copysign(0.5 * gd_log1p_f64(arg), x);
}

/* ---- powers ---- */

/* ln x as hi + lo with about 65 bits, 0 < x < inf: ln x = e ln 2 + 2 s + 2/3 s^3 + s^5 P(s^2), s =
 * f / (2 + f) */
GD_INLINE double gd_log_dd_f64(double x, double *log_lo)
{
    double e, d_lo, sd_lo, z_lo, c_lo, lost;
    double f = gd_log_reduce_f64(x, &e);
    double d = gd_two_sum_f64(2.0, f, &d_lo);
    double s = f / d;
    double sd = gd_two_prod_f64(s, d, &sd_lo);
    double s_lo = ((f - sd) - sd_lo - s * d_lo) / d;
    double z = gd_two_prod_f64(s, s, &z_lo);
    z_lo += 2.0 * s * s_lo;
    double p = 0x1.0e40feae90428p-3;
    p = GD_FMA_F64(p, z, 0x1.0f801a1b19ff1p-3);
    p = GD_FMA_F64(p, z, 0x1.3b1ee9dbc8717p-3);
    p = GD_FMA_F64(p, z, 0x1.745ce9f0183a3p-3);
    p = GD_FMA_F64(p, z, 0x1.c71c722d3f4acp-3);
    p = GD_FMA_F64(p, z, 0x1.2492492457f32p-2);
    p = GD_FMA_F64(p, z, 0x1.9999999999b2fp-2);
    /* c = s^3, then 2/3 c + s^5 p: the cube as hi + lo, 2/3 as hi + lo */
    double c = gd_two_prod_f64(z, s, &c_lo);
    c_lo += z * s_lo + z_lo * s;
    double t_lo;
    double t = gd_two_prod_f64(c, 0x1.5555555555555p-1, &t_lo);
    t_lo += c * 0x1.5555555555555p-55 + c_lo * 0x1.5555555555555p-1 + c * z * p;
    double whole = e * 0x1.62e42fefa3800p-1; /* exact */
    double hi = gd_two_sum_f64(whole, 2.0 * s, &lost);
    double lo = lost + (2.0 * s_lo + t_lo + e * 0x1.ef35793c76730p-45);
    hi = gd_two_sum_f64(hi, t, &lost);
    lo += lost;
    double sum = hi + lo;
    *log_lo = lo - (sum - hi);
    return sum;
}

/* The special cases of pow(x, y), given r = |x|^y right for finite positive |x|: C99 F.9.4.4. */
GD_INLINE double gd_pow_edges_f64(double x, double y, double r)
{
    double a = fabs(x), b = fabs(y), half = 0.5 * b;
    int integer = (b >= 0x1p52) | ((b + 0x1p52) - 0x1p52 == b);
    int odd = integer & (b < 0x1p53) & ((half + 0x1p52) - 0x1p52 != half);
    int extreme = (a == 0.0) | (a == (double)INFINITY);
    double zero_or_inf = GD_SELECT_F64((a < 1.0) ^ (y < 0.0), 0.0, (double)INFINITY);
    r = GD_SELECT_F64((extreme | (b == (double)INFINITY)), zero_or_inf, r);
    r = GD_SELECT_F64(a == 1.0, 1.0, r);
    double negative = GD_SELECT_F64(odd, -r, r);
    negative = GD_SELECT_F64(integer | extreme, negative, (double)NAN);
    r = GD_SELECT_F64(copysign(1.0, x) < 0.0, negative, r);
    r = GD_SELECT_F64((x != x) | (y != y), x + y, r);
    return GD_SELECT_F64((x == 1.0) | (y == 0.0), 1.0, r);
}

/* x^y; max 1.0 ulp */
GD_INLINE double gd_pow_f64(double x, double y)
{
    double log_lo, v_lo;
    uint64_t k;
    double log_hi = gd_log_dd_f64(fabs(x), &log_lo);
    double c = gd_select_sign_f64(0x1p65 - y, 0x1p65,
                                  y); /* beyond, the result is 0, 1 or inf all the same */
    c = gd_select_sign_f64(c + 0x1p65, -0x1p65, c);
    double v = gd_two_prod_f64(c, log_hi, &v_lo);
    v_lo = GD_FMA_F64(c, log_lo, v_lo);
    v_lo = gd_select_sign_f64(746.0 - fabs(v), 0.0, v_lo);
    v = gd_select_sign_f64(710.0 - v, 710.0, v);
    v = gd_select_sign_f64(v + 746.0, -746.0, v);
    double q = gd_exp_reduce_f64(v, v_lo, &k);
    return gd_pow_edges_f64(x, y, gd_scale_f64(1.0 + q, k));
}

/* 1 / sqrt x, each operation rounded; max 1.5 ulp */
GD_INLINE double gd_rsqrt_f64(double x)
{
    return 1.0 / sqrt(x);
}

#endif
