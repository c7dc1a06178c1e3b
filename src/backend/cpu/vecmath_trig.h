/* backend/cpu/vecmath_trig.h: trigonometric functions and their inverses, in both precisions.
 * Included by vecmath.h, which explains the rules.
 *
 * sin, cos and tan are right for every finite argument. The argument is reduced to x = k pi/2 + r,
 * |r| <= pi/4, in one of two ways, and both are computed and one selected, as there are no
 * branches: subtraction in parts (Cody and Waite 1980) for |x| <= GD_TRIG_NEAR, and Payne and
 * Hanek's method (1983) beyond, which reads a table of 2/pi (gathers, where the machine has them)
 * and takes four fifths of the time. So there are also gd_<fn>_near_f32/_f64, for |x| <=
 * GD_TRIG_NEAR only, with the same bits there at a fraction of the cost: a loop looks at a block's
 * largest magnitude and picks. */
#ifndef GD_BACKEND_CPU_VECMATH_TRIG_H
#define GD_BACKEND_CPU_VECMATH_TRIG_H

#define GD_TRIG_NEAR 0x1p20

/* ---- argument reduction: x = k pi/2 + (r + *r_lo); *k holds the quadrant, k mod 4, in its two low
 * bits ---- */

/* |x| <= GD_TRIG_NEAR. pi/2 in parts of 33 bits, so that k times a part is exact. */
GD_INLINE double gd_trig_near_f64(double x, double *r_lo, uint64_t *k)
{
    double shifted = x * 0x1.45f306dc9c883p-1 + GD_ROUND_F64;
    double n = shifted - GD_ROUND_F64;
    *k = gd_bits_f64(shifted);
    double lost2, lost3, r;
    r = GD_FMA_F64(n, -0x1.921fb54400000p+0, x); /* exact */
    r = gd_two_sum_f64(r, n * -0x1.0b4611a600000p-34, &lost2);
    r = gd_two_sum_f64(r, n * -0x1.3198a2e000000p-69, &lost3);
    double lo = lost2 + lost3 + n * -0x1.b839a252049c1p-104;
    double sum = r + lo;
    *r_lo = lo - (sum - r);
    return sum;
}

/* 2/pi in 24-bit digits after two zeros, most significant first (from mpmath at 1500 bits) */
GD_CONSTANT double gd_two_over_pi_digits[52] = {
    0,        0,        0xa2f983, 0x6e4e44, 0x1529fc, 0x2757d1, 0xf534dd, 0xc0db62, 0x95993c,
    0x439041, 0xfe5163, 0xabdebb, 0xc561b7, 0x246e3a, 0x424dd2, 0xe00649, 0x2eea09, 0xd1921c,
    0xfe1deb, 0x1cb129, 0xa73ee8, 0x8235f5, 0x2ebb44, 0x84e99c, 0x7026b4, 0x5f7e41, 0x3991d6,
    0x398353, 0x39f49c, 0x845f8b, 0xbdf928, 0x3b1ff8, 0x97ffde, 0x05980f, 0xef2f11, 0x8b5a0a,
    0x6d1f6d, 0x367ecf, 0x27cb09, 0xb74f46, 0x3f669e, 0x5fea2d, 0x7527ba, 0xc7ebe5, 0xf17b3d,
    0x0739f7, 0x8a5292, 0xea6bfb, 0x5fb11f, 0x8d5d08, 0x560330, 0x46fc7b,
};

/* Adds the product f to the pair s + *lost without error in s. */
GD_INLINE double gd_trig_add_f64(double s, double f, double *lost)
{
    double e;
    s = gd_two_sum_f64(s, f, &e);
    *lost += e;
    return s;
}

/* f modulo 4 (in [-2, 2]) of a product of at most 51 bits; huge ones are multiples of 4 */
GD_INLINE double gd_trig_mod4_f64(double f)
{
    double u = 0.25 * f;
    double whole = GD_SELECT_F64(fabs(u) < 0x1p51, gd_round_small_f64(u), u);
    return f - 4.0 * whole;
}

/* Any |x|, and right from 2^20 on. x = x' 2^(24 j), j such that x' is a multiple of 4 and so are
 * the products with the digits before digit j; nine digits from there carry 2/pi x mod 4 to 2^-137.
 * x' = hi + lo of 26 and 27 bits makes each product exact. The sum s + lost keeps its relative
 * accuracy through cancellation (the worst, 2^-61, included). */
GD_INLINE double gd_trig_far_f64(double x, double *r_lo, uint64_t *k)
{
    uint64_t exponent = (gd_bits_f64(x) >> 52) & 0x7ff;
    double e = gd_from_bits_f64(exponent | UINT64_C(0x4330000000000000)) - (0x1p52 + 1023.0);
    double at = (e - 54.0 + 48.0 - 11.5) *
                (1.0 / 24.0);   /* rounds to floor((e - 54) / 24) + 2, the table's two zeros */
    at = 0.5 * (at + fabs(at)); /* below 2^18 */
    double first = at + GD_ROUND_F64;
    GD_TABLE double *digit = gd_two_over_pi_digits;
    uint64_t j = gd_bits_f64(first) & 0x3f;
    double scaled = x * gd_pow2_f64(gd_integer_f64(-24.0 * (first - (GD_ROUND_F64 + 2.0))));
    double hi = gd_from_bits_f64(gd_bits_f64(scaled) & UINT64_C(0xfffffffff8000000));
    double lo = scaled - hi;
    double d0 = digit[j] * 0x1p-24, d1 = digit[j + 1] * 0x1p-48, d2 = digit[j + 2] * 0x1p-72;
    double d3 = digit[j + 3] * 0x1p-96, d4 = digit[j + 4] * 0x1p-120, d5 = digit[j + 5] * 0x1p-144;
    double d6 = digit[j + 6] * 0x1p-168, d7 = digit[j + 7] * 0x1p-192, d8 = digit[j + 8] * 0x1p-216;

    double s = gd_trig_mod4_f64(hi * d0) + gd_trig_mod4_f64(lo * d0); /* these sums are exact */
    s += gd_trig_mod4_f64(hi * d1) + gd_trig_mod4_f64(lo * d1);
    double n = gd_round_small_f64(s), lost = 0.0;
    s -= n;
    double hi2 = gd_trig_mod4_f64(hi * d2), lo2 = gd_trig_mod4_f64(lo * d2),
           hi3 = gd_trig_mod4_f64(hi * d3);
    double n2 = gd_round_small_f64(hi2), n3 = gd_round_small_f64(lo2), n4 = gd_round_small_f64(hi3);
    s = gd_trig_add_f64(s, hi2 - n2, &lost);
    s = gd_trig_add_f64(s, lo2 - n3, &lost);
    s = gd_trig_add_f64(s, hi3 - n4, &lost);
    s = gd_trig_add_f64(s, lo * d3, &lost);
    double n5 = gd_round_small_f64(s);
    s -= n5;
    s = gd_trig_add_f64(s, hi * d4, &lost);
    s = gd_trig_add_f64(s, lo * d4, &lost);
    s = gd_trig_add_f64(s, hi * d5, &lost);
    s = gd_trig_add_f64(s, lo * d5, &lost);
    s = gd_trig_add_f64(s, hi * d6, &lost);
    s = gd_trig_add_f64(s, lo * d6, &lost);
    s = gd_trig_add_f64(s, hi * d7, &lost);
    s = gd_trig_add_f64(s, lo * d7, &lost);
    s = gd_trig_add_f64(s, hi * d8, &lost);
    s = gd_trig_add_f64(s, lo * d8, &lost);
    *k = gd_bits_f64((n + n2) + (n3 + n4) + n5 + GD_ROUND_F64);

    double turn = s + lost, turn_lo = lost - (turn - s), product_lo;
    double r = gd_two_prod_f64(turn, 0x1.921fb54442d18p+0, &product_lo);
    product_lo += turn * 0x1.1a62633145c07p-54 + turn_lo * 0x1.921fb54442d18p+0;
    double sum = r + product_lo;
    *r_lo = product_lo - (sum - r);
    return sum;
}

GD_INLINE double gd_trig_reduce_f64(double x, double *r_lo, uint64_t *k)
{
    double near_lo, far_lo;
    uint64_t near_k, far_k;
    double far = GD_TRIG_NEAR - fabs(x); /* negative */
    double near_r = gd_trig_near_f64(x, &near_lo, &near_k);
    double far_r = gd_trig_far_f64(x, &far_lo, &far_k);
    *k = gd_bits_f64(gd_select_sign_f64(far, gd_from_bits_f64(far_k), gd_from_bits_f64(near_k)));
    *r_lo = gd_select_sign_f64(far, far_lo, near_lo);
    return gd_select_sign_f64(far, far_r, near_r);
}

/* ---- sine, cosine, tangent in double precision ---- */

/* sin(r + r_lo), |r| <= pi/4: the tail P = (sin r - r) / r^3 */
GD_INLINE double gd_sin_kernel_f64(double r, double r_lo)
{
    double z = r * r;
    double p = 0x1.5d8b556ea18d1p-33;
    p = GD_FMA_F64(p, z, -0x1.ae5e4b83909a2p-26);
    p = GD_FMA_F64(p, z, 0x1.71de35552b25dp-19);
    p = GD_FMA_F64(p, z, -0x1.a01a019be9217p-13);
    p = GD_FMA_F64(p, z, 0x1.111111110f73p-7);
    p = GD_FMA_F64(p, z, -0x1.5555555555548p-3);
    return r + GD_FMA_F64(z * r, p, GD_FMA_F64(-0.5 * z, r_lo, r_lo));
}

/* cos(r + r_lo) */
GD_INLINE double gd_cos_kernel_f64(double r, double r_lo)
{
    double z = r * r;
    double p = -0x1.8fa6842a79921p-37;
    p = GD_FMA_F64(p, z, 0x1.1ee9dbce75affp-29);
    p = GD_FMA_F64(p, z, -0x1.27e4f7f190c95p-22);
    p = GD_FMA_F64(p, z, 0x1.a01a019c8f24fp-16);
    p = GD_FMA_F64(p, z, -0x1.6c16c16c15015p-10);
    p = GD_FMA_F64(p, z, 0x1.555555555554bp-5);
    double half = 0.5 * z;
    double w = 1.0 - half;
    return w + (((1.0 - w) - half) + (z * z * p - r * r_lo));
}

/* sin (k pi/2 + r + r_lo); the cosine's quadrant is one further */
GD_INLINE double gd_sin_quadrant_f64(double r, double r_lo, uint64_t k)
{
    uint64_t odd = UINT64_C(0) - (k & 1);
    uint64_t s = gd_bits_f64(gd_sin_kernel_f64(r, r_lo)),
             c = gd_bits_f64(gd_cos_kernel_f64(r, r_lo));
    return gd_from_bits_f64(((s & ~odd) | (c & odd)) ^ ((k & 2) << 62));
}

/* tan (k pi/2 + r + r_lo): n / d = sin / cos or -cos / sin, each as hi + lo */
GD_INLINE double gd_tan_quadrant_f64(double r, double r_lo, uint64_t k)
{
    double z_lo, z = gd_two_prod_f64(r, r, &z_lo);
    double ps = 0x1.5d8b556ea18d1p-33;
    ps = GD_FMA_F64(ps, z, -0x1.ae5e4b83909a2p-26);
    ps = GD_FMA_F64(ps, z, 0x1.71de35552b25dp-19);
    ps = GD_FMA_F64(ps, z, -0x1.a01a019be9217p-13);
    ps = GD_FMA_F64(ps, z, 0x1.111111110f73p-7);
    ps = GD_FMA_F64(ps, z, -0x1.5555555555548p-3);
    double pc = -0x1.8fa6842a79921p-37;
    pc = GD_FMA_F64(pc, z, 0x1.1ee9dbce75affp-29);
    pc = GD_FMA_F64(pc, z, -0x1.27e4f7f190c95p-22);
    pc = GD_FMA_F64(pc, z, 0x1.a01a019c8f24fp-16);
    pc = GD_FMA_F64(pc, z, -0x1.6c16c16c15015p-10);
    pc = GD_FMA_F64(pc, z, 0x1.555555555554bp-5);
    double s_tail = GD_FMA_F64(z * r, ps, GD_FMA_F64(-0.5 * z, r_lo, r_lo));
    double s = r + s_tail, s_lo = s_tail - (s - r);
    double half = 0.5 * z, w = 1.0 - half;
    double c_tail = ((1.0 - w) - half) + (z * z * pc - (r * r_lo + 0.5 * z_lo));
    double c = w + c_tail, c_lo = c_tail - (c - w);
    uint64_t odd = UINT64_C(0) - (k & 1), flip = odd & (UINT64_C(1) << 63);
    double n = gd_from_bits_f64((gd_bits_f64(s) & ~odd) | ((gd_bits_f64(c) ^ flip) & odd));
    double n_lo = gd_from_bits_f64((gd_bits_f64(s_lo) & ~odd) | ((gd_bits_f64(c_lo) ^ flip) & odd));
    double d = gd_from_bits_f64((gd_bits_f64(c) & ~odd) | (gd_bits_f64(s) & odd));
    double d_lo = gd_from_bits_f64((gd_bits_f64(c_lo) & ~odd) | (gd_bits_f64(s_lo) & odd));
    double inverse = 1.0 / d, q = n * inverse, qd_lo;
    double qd = gd_two_prod_f64(q, d, &qd_lo);
    return q + inverse * (((n - qd) - qd_lo) + (n_lo - q * d_lo));
}

/* sin x, |x| <= GD_TRIG_NEAR; max 1.0 ulp */
GD_INLINE double gd_sin_near_f64(double x)
{
    double r_lo;
    uint64_t k;
    double r = gd_trig_near_f64(x, &r_lo, &k);
    double y = gd_sin_quadrant_f64(r, r_lo, k);
    return GD_SELECT_F64(x == 0.0, x, y);
}

/* cos x, |x| <= GD_TRIG_NEAR; max 1.0 ulp */
GD_INLINE double gd_cos_near_f64(double x)
{
    double r_lo;
    uint64_t k;
    double r = gd_trig_near_f64(x, &r_lo, &k);
    return gd_sin_quadrant_f64(r, r_lo, k + 1);
}

/* tan x, |x| <= GD_TRIG_NEAR; max 1.0 ulp */
GD_INLINE double gd_tan_near_f64(double x)
{
    double r_lo;
    uint64_t k;
    double r = gd_trig_near_f64(x, &r_lo, &k);
    double y = gd_tan_quadrant_f64(r, r_lo, k);
    return GD_SELECT_F64(x == 0.0, x, y);
}

/* sin x; max 1.0 ulp */
GD_INLINE double gd_sin_f64(double x)
{
    double r_lo;
    uint64_t k;
    double r = gd_trig_reduce_f64(x, &r_lo, &k);
    double y = gd_sin_quadrant_f64(r, r_lo, k);
    return GD_SELECT_F64(x == 0.0, x, y);
}

/* cos x; max 1.0 ulp */
GD_INLINE double gd_cos_f64(double x)
{
    double r_lo;
    uint64_t k;
    double r = gd_trig_reduce_f64(x, &r_lo, &k);
    return gd_sin_quadrant_f64(r, r_lo, k + 1);
}

/* tan x; max 1.0 ulp */
GD_INLINE double gd_tan_f64(double x)
{
    double r_lo;
    uint64_t k;
    double r = gd_trig_reduce_f64(x, &r_lo, &k);
    double y = gd_tan_quadrant_f64(r, r_lo, k);
    return GD_SELECT_F64(x == 0.0, x, y);
}

/* ---- sine, cosine, tangent in single precision: reduced in double ---- */

/* |x| <= GD_TRIG_NEAR. Returns r; *k is the multiple of pi/2 */
GD_INLINE double gd_trig_near_f32(float x, double *k)
{
    double n = gd_round_small_f64((double)x * 0x1.45f306dc9c883p-1);
    *k = n;
    double r = GD_FMA_F64(n, -0x1.921fb54400000p+0, (double)x); /* exact: 33 bits */
    return GD_FMA_F64(n, -0x1.0b4611a626331p-34, r);
}

/* As gd_trig_far_f64, for a float: its 24 bits make every product exact, and nothing smaller than
 * 2^-71 matters. Returns r; *k holds the quadrant, modulo 4. */
GD_INLINE double gd_trig_far_f32(double x, double *k)
{
    uint64_t exponent = (gd_bits_f64(x) >> 52) & 0x7ff;
    double e = gd_from_bits_f64(exponent | UINT64_C(0x4330000000000000)) - (0x1p52 + 1023.0);
    double at = (e - 25.0 + 48.0 - 11.5) * (1.0 / 24.0); /* rounds to floor((e - 25) / 24) + 2 */
    at = 0.5 * (at + fabs(at));
    double first = at + GD_ROUND_F64;
    GD_TABLE double *digit = gd_two_over_pi_digits;
    uint64_t j = gd_bits_f64(first) & 0x1f;
    double scaled = x * gd_pow2_f64(gd_integer_f64(-24.0 * (first - (GD_ROUND_F64 + 2.0))));
    double p0 = scaled * (digit[j] * 0x1p-24), p1 = scaled * (digit[j + 1] * 0x1p-48);
    double p2 = scaled * (digit[j + 2] * 0x1p-72), p3 = scaled * (digit[j + 3] * 0x1p-96);
    double p4 = scaled * (digit[j + 4] * 0x1p-120);
    double s =
        (p0 - 4.0 * gd_round_small_f64(0.25 * p0)) + (p1 - 4.0 * gd_round_small_f64(0.25 * p1));
    double n = gd_round_small_f64(s);
    s = (s - n) + p2;
    double n2 = gd_round_small_f64(s);
    s = (s - n2) + p3 + p4;
    *k = n + n2;
    return s * 0x1.921fb54442d18p+0;
}

GD_INLINE double gd_trig_reduce_f32(float x, double *k)
{
    double near_k, far_k, d = (double)x;
    double near_r = gd_trig_near_f32(x, &near_k);
    double far_r = gd_trig_far_f32(d, &far_k);
    double far = GD_TRIG_NEAR - fabs(d); /* negative */
    *k = gd_select_sign_f64(far, far_k, near_k);
    return gd_select_sign_f64(far, far_r, near_r);
}

/* sin (k pi/2 + r) */
GD_INLINE float gd_sin_quadrant_f32(float r, uint32_t k)
{
    float z = r * r;
    float ps = -0x1.9953f4p-13f;
    ps = GD_FMA_F32(ps, z, 0x1.110778p-7f);
    ps = GD_FMA_F32(ps, z, -0x1.555546p-3f);
    float pc = 0x1.99e80cp-16f;
    pc = GD_FMA_F32(pc, z, -0x1.6c0c28p-10f);
    pc = GD_FMA_F32(pc, z, 0x1.55554ap-5f);
    uint32_t odd = UINT32_C(0) - (k & 1);
    uint32_t s = gd_bits_f32(GD_FMA_F32(z * r, ps, r));
    uint32_t c = gd_bits_f32(1.0f + GD_FMA_F32(z * z, pc, -0.5f * z));
    return gd_from_bits_f32(((s & ~odd) | (c & odd)) ^ ((k & 2) << 30));
}

/* tan (k pi/2 + r) in double: sin / cos, or -cos / sin */
GD_INLINE float gd_tan_quadrant_f32(double r, double k)
{
    double z = r * r;
    double ps = 0x1.6cd1f35896323p-19;
    ps = GD_FMA_F64(ps, z, -0x1.a00f7f2c6d89ep-13);
    ps = GD_FMA_F64(ps, z, 0x1.1111086a67a3ap-7);
    ps = GD_FMA_F64(ps, z, -0x1.5555554c71dcdp-3);
    double pc = -0x1.23c97ed998916p-22;
    pc = GD_FMA_F64(pc, z, 0x1.a00eb9b1e9958p-16);
    pc = GD_FMA_F64(pc, z, -0x1.6c16b348c1681p-10);
    pc = GD_FMA_F64(pc, z, 0x1.55555545c51cdp-5);
    pc = GD_FMA_F64(pc, z, -0x1.ffffffffe98bp-2);
    double s = GD_FMA_F64(z * r, ps, r), c = GD_FMA_F64(z, pc, 1.0);
    double half = 0.5 * k;
    int even = gd_round_small_f64(half) == half;
    return (float)(GD_SELECT_F64(even, s, -c) / GD_SELECT_F64(even, c, s));
}

/* sin x, |x| <= GD_TRIG_NEAR; max 2.0 ulp */
GD_INLINE float gd_sin_near_f32(float x)
{
    double k;
    float r = (float)gd_trig_near_f32(x, &k);
    float y = gd_sin_quadrant_f32(r, gd_integer_f32((float)k));
    return GD_SELECT_F32(x == 0.0f, x, y);
}

/* cos x, |x| <= GD_TRIG_NEAR; max 2.0 ulp */
GD_INLINE float gd_cos_near_f32(float x)
{
    double k;
    float r = (float)gd_trig_near_f32(x, &k);
    return gd_sin_quadrant_f32(r, gd_integer_f32((float)k) + 1);
}

/* tan x, |x| <= GD_TRIG_NEAR; max 1.0 ulp */
GD_INLINE float gd_tan_near_f32(float x)
{
    double k;
    double r = gd_trig_near_f32(x, &k);
    float y = gd_tan_quadrant_f32(r, k);
    return GD_SELECT_F32(x == 0.0f, x, y);
}

/* sin x; max 2.0 ulp */
GD_INLINE float gd_sin_f32(float x)
{
    double k;
    float r = (float)gd_trig_reduce_f32(x, &k);
    float y = gd_sin_quadrant_f32(r, gd_integer_f32((float)k));
    return GD_SELECT_F32(x == 0.0f, x, y);
}

/* cos x; max 2.0 ulp */
GD_INLINE float gd_cos_f32(float x)
{
    double k;
    float r = (float)gd_trig_reduce_f32(x, &k);
    return gd_sin_quadrant_f32(r, gd_integer_f32((float)k) + 1);
}

/* tan x; max 1.0 ulp */
GD_INLINE float gd_tan_f32(float x)
{
    double k;
    double r = gd_trig_reduce_f32(x, &k);
    float y = gd_tan_quadrant_f32(r, k);
    return GD_SELECT_F32(x == 0.0f, x, y);
}

/* ---- inverse functions in double precision ---- */

/* asin's and acos's common part, a = |x|: for a < 1/2, asin a = a + *tail; else, with t = (1 - a) /
 * 2 and s = sqrt t, asin s = w + *tail, where w is s cut to 26 bits so that the tail can hold s - w
 * = (t - w^2) / (s + w). */
GD_INLINE double gd_asin_parts_f64(double a, double *tail)
{
    double t = GD_SELECT_F64(a < 0.5, a * a, 0.5 - 0.5 * a);
    double p = 0x1.0571743ded163p-5;
    p = GD_FMA_F64(p, t, -0x1.09de8f5ff09f3p-6);
    p = GD_FMA_F64(p, t, 0x1.3ffbad3cc766dp-6);
    p = GD_FMA_F64(p, t, 0x1.abc5870e5907bp-8);
    p = GD_FMA_F64(p, t, 0x1.8ec4118408a12p-7);
    p = GD_FMA_F64(p, t, 0x1.c6fd9a0796ef3p-7);
    p = GD_FMA_F64(p, t, 0x1.1c6be3812f1d7p-6);
    p = GD_FMA_F64(p, t, 0x1.6e89f423c1c71p-6);
    p = GD_FMA_F64(p, t, 0x1.f1c72c3a00462p-6);
    p = GD_FMA_F64(p, t, 0x1.6db6db4277cb5p-5);
    p = GD_FMA_F64(p, t, 0x1.333333336e837p-4);
    p = GD_FMA_F64(p, t, 0x1.555555555539p-3);
    double s = GD_SELECT_F64(a < 0.5, a, sqrt(t));
    double w = gd_from_bits_f64(gd_bits_f64(s) & UINT64_C(0xfffffffff8000000));
    w = GD_SELECT_F64(a < 0.5, a, w);
    double rest = GD_SELECT_F64(a < 0.5, 0.0, (t - w * w) / (s + w));
    rest = GD_SELECT_F64(t == 0.0, 0.0, rest);
    *tail = GD_FMA_F64(s * t, p, rest);
    return w;
}

/* asin x, NaN beyond 1; max 1.0 ulp */
GD_INLINE double gd_asin_f64(double x)
{
    double a = fabs(x), tail, lost;
    double w = gd_asin_parts_f64(a, &tail);
    double y = gd_two_sum_f64(0x1.921fb54442d18p+0, -2.0 * w, &lost); /* pi/2 - 2 asin s */
    y += lost + (0x1.1a62633145c07p-54 - 2.0 * tail);
    return copysign(GD_SELECT_F64(a < 0.5, w + tail, y), x);
}

/* acos x, NaN beyond 1; max 1.0 ulp */
GD_INLINE double gd_acos_f64(double x)
{
    double a = fabs(x), tail, lost;
    double w = gd_asin_parts_f64(a, &tail);
    double sign = copysign(1.0, x);
    /* a < 1/2: pi/2 - asin x. x >= 1/2: 2 asin s. x <= -1/2: pi - 2 asin s. */
    double base = GD_SELECT_F64(a < 0.5, 0x1.921fb54442d18p+0,
                                GD_SELECT_F64(x < 0.0, 0x1.921fb54442d18p+1, 0.0));
    double base_lo = GD_SELECT_F64(a < 0.5, 0x1.1a62633145c07p-54,
                                   GD_SELECT_F64(x < 0.0, 0x1.1a62633145c07p-53, 0.0));
    double factor = GD_SELECT_F64(a < 0.5, -sign, 2.0 * sign);
    double y = gd_two_sum_f64(base, factor * w, &lost);
    return y + (lost + GD_FMA_F64(factor, tail, base_lo));
}

/* atan t, 0 <= t <= 1 */
GD_INLINE double gd_atan_kernel_f64(double t)
{
    double z = t * t;
    double p = 0x1.bbeeab0a3688dp-17;
    p = GD_FMA_F64(p, z, -0x1.3f36dd6695216p-13);
    p = GD_FMA_F64(p, z, 0x1.b3fb57683008ap-11);
    p = GD_FMA_F64(p, z, -0x1.7a39ea681292ep-9);
    p = GD_FMA_F64(p, z, 0x1.d7b961da7c8ddp-8);
    p = GD_FMA_F64(p, z, -0x1.c78fe8557a12p-7);
    p = GD_FMA_F64(p, z, 0x1.683cd00464998p-6);
    p = GD_FMA_F64(p, z, -0x1.e9fa0c1ccb2c1p-6);
    p = GD_FMA_F64(p, z, 0x1.2c2e59f8d6755p-5);
    p = GD_FMA_F64(p, z, -0x1.59a3fc7a92529p-5);
    p = GD_FMA_F64(p, z, 0x1.82dad60587841p-5);
    p = GD_FMA_F64(p, z, -0x1.ae5e7216bb848p-5);
    p = GD_FMA_F64(p, z, 0x1.e1bba6386c1e5p-5);
    p = GD_FMA_F64(p, z, -0x1.110e512147dbfp-4);
    p = GD_FMA_F64(p, z, 0x1.3b136699440a8p-4);
    p = GD_FMA_F64(p, z, -0x1.745d11ae5c0b2p-4);
    p = GD_FMA_F64(p, z, 0x1.c71c717fcdc65p-4);
    p = GD_FMA_F64(p, z, -0x1.249249237f4fap-3);
    p = GD_FMA_F64(p, z, 0x1.99999999955b2p-3);
    p = GD_FMA_F64(p, z, -0x1.5555555555526p-2);
    return GD_FMA_F64(t * z, p, t);
}

/* atan x; max 2.0 ulp */
GD_INLINE double gd_atan_f64(double x)
{
    double a = fabs(x);
    double y = gd_atan_kernel_f64(GD_SELECT_F64(a > 1.0, 1.0, a) / GD_SELECT_F64(a > 1.0, a, 1.0));
    double large = 0x1.921fb54442d18p+0 - (y - 0x1.1a62633145c07p-54);
    return copysign(GD_SELECT_F64(a > 1.0, large, y), x);
}

/* The angle of the point (x, y), in (-pi, pi]: C99 F.9.1.4; max 2.0 ulp */
GD_INLINE double gd_atan2_f64(double y, double x)
{
    double ax = fabs(x), ay = fabs(y);
    double n = GD_SELECT_F64(ay < ax, ay, ax), d = GD_SELECT_F64(ay < ax, ax, ay);
    double t = n / d;
    t = GD_SELECT_F64(d == 0.0, 0.0, t);
    t = GD_SELECT_F64(n == (double)INFINITY, 1.0, t);
    double r = gd_atan_kernel_f64(t);
    double steep = 0x1.921fb54442d18p+0 - (r - 0x1.1a62633145c07p-54);
    r = GD_SELECT_F64((ay < ax) | (d == 0.0), r, steep);
    double left = 0x1.921fb54442d18p+1 - (r - 0x1.1a62633145c07p-53);
    r = GD_SELECT_F64(copysign(1.0, x) < 0.0, left, r);
    r = copysign(r, y);
    return GD_SELECT_F64((x != x) | (y != y), x + y, r);
}

/* ---- inverse functions in single precision ---- */

/* asin x, NaN beyond 1; max 2.0 ulp */
GD_INLINE float gd_asin_f32(float x)
{
    float a = fabsf(x);
    float t = GD_SELECT_F32(a < 0.5f, a * a, 0.5f - 0.5f * a);
    float s = GD_SELECT_F32(a < 0.5f, a, sqrtf(t));
    float p = 0x1.596d3p-5f;
    p = GD_FMA_F32(p, t, 0x1.8c2dacp-6f);
    p = GD_FMA_F32(p, t, 0x1.747d04p-5f);
    p = GD_FMA_F32(p, t, 0x1.3301fcp-4f);
    p = GD_FMA_F32(p, t, 0x1.5555c8p-3f);
    float tail = s * t * p;
    float rest = 0x1.921fb6p-1f - s; /* large = 2 (pi/4 - asin sqrt((1 - a) / 2)) */
    float lost = (0x1.921fb6p-1f - rest) - s;
    float large = 2.0f * (rest + (lost - (tail + 0x1.777a5cp-26f)));
    return copysignf(GD_SELECT_F32(a < 0.5f, s + tail, large), x);
}

/* acos x, NaN beyond 1; max 1.5 ulp */
GD_INLINE float gd_acos_f32(float x)
{
    float a = fabsf(x);
    float t = GD_SELECT_F32(a < 0.5f, a * a, 0.5f - 0.5f * a);
    float s = GD_SELECT_F32(a < 0.5f, a, sqrtf(t));
    float p = 0x1.596d3p-5f;
    p = GD_FMA_F32(p, t, 0x1.8c2dacp-6f);
    p = GD_FMA_F32(p, t, 0x1.747d04p-5f);
    p = GD_FMA_F32(p, t, 0x1.3301fcp-4f);
    p = GD_FMA_F32(p, t, 0x1.5555c8p-3f);
    float tail = s * t * p;
    float middle = 0x1.921fb6p+0f - (copysignf(s, x) + (copysignf(tail, x) + 0x1.777a5cp-25f));
    float y = 2.0f * (s + tail);
    float outer = GD_SELECT_F32(x < 0.0f, 0x1.921fb6p+1f - (y + 0x1.777a5cp-24f), y);
    return GD_SELECT_F32(a < 0.5f, middle, outer);
}

/* atan t, 0 <= t <= 1 */
GD_INLINE float gd_atan_kernel_f32(float t)
{
    float z = t * t;
    float p = -0x1.d3405cp-10f;
    p = GD_FMA_F32(p, z, 0x1.641a6ep-7f);
    p = GD_FMA_F32(p, z, -0x1.fd7796p-6f);
    p = GD_FMA_F32(p, z, 0x1.da281ap-5f);
    p = GD_FMA_F32(p, z, -0x1.5808d4p-4f);
    p = GD_FMA_F32(p, z, 0x1.c08c46p-4f);
    p = GD_FMA_F32(p, z, -0x1.242086p-3f);
    p = GD_FMA_F32(p, z, 0x1.9991e4p-3f);
    p = GD_FMA_F32(p, z, -0x1.55553ep-2f);
    return GD_FMA_F32(t * z, p, t);
}

/* atan x; max 1.5 ulp */
GD_INLINE float gd_atan_f32(float x)
{
    float a = fabsf(x);
    float y =
        gd_atan_kernel_f32(GD_SELECT_F32(a > 1.0f, 1.0f, a) / GD_SELECT_F32(a > 1.0f, a, 1.0f));
    float large = 0x1.921fb6p+0f - (y + 0x1.777a5cp-25f);
    return copysignf(GD_SELECT_F32(a > 1.0f, large, y), x);
}

/* The angle of the point (x, y), in (-pi, pi]: C99 F.9.1.4; max 2.0 ulp */
GD_INLINE float gd_atan2_f32(float y, float x)
{
    float ax = fabsf(x), ay = fabsf(y);
    float n = GD_SELECT_F32(ay < ax, ay, ax), d = GD_SELECT_F32(ay < ax, ax, ay);
    float t = n / d;
    t = GD_SELECT_F32(d == 0.0f, 0.0f, t);
    t = GD_SELECT_F32(n == INFINITY, 1.0f, t);
    float r = gd_atan_kernel_f32(t);
    float steep = 0x1.921fb6p+0f - (r + 0x1.777a5cp-25f);
    r = GD_SELECT_F32((ay < ax) | (d == 0.0f), r, steep);
    float left = 0x1.921fb6p+1f - (r + 0x1.777a5cp-24f);
    r = GD_SELECT_F32(copysignf(1.0f, x) < 0.0f, left, r);
    r = copysignf(r, y);
    return GD_SELECT_F32((x != x) | (y != y), x + y, r);
}

#endif
