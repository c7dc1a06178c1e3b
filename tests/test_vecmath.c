/* tests/test_vecmath.c: the elementary functions of backend/cpu/vecmath.h against libm, for each
 * instruction set this machine has: the largest error in ulp (single precision against libm's
 * double, double against its long double), the special cases of C99 Annex F, and that a value's
 * place in an array does not change its result.
 *
 * The bounds beside the functions in the headers are those of the rows below.
 * GRADUS_VECMATH_STRIDE=1 tests every float. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "backend/cpu/vecmath_table.h"
#include "support/effort.h"

enum { BLOCK = 4096 };

/* ---- references ---- */

static double sigmoid_ref(double x)
{
    return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x));
}

static long double sigmoidl_ref(long double x)
{
    return x < 0 ? expl(x) / (1 + expl(x)) : 1 / (1 + expl(-x));
}

static double softplus_ref(double x)
{
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

static long double softplusl_ref(long double x)
{
    return x > 0 ? x + log1pl(expl(-x)) : log1pl(expl(x));
}

static double rsqrt_ref(double x)
{
    return 1 / sqrt(x);
}

static long double rsqrtl_ref(long double x)
{
    return 1 / sqrtl(x);
}

/* Halley's iteration on erf y = x, or erfc y = 1 - x near 1, from Winitzki's approximation. */
static long double erfinvl_ref(long double x)
{
    long double a = fabsl(x);
    if (!(a < 1) || a == 0)
        return a == 1 ? x * HUGE_VALL : a == 0 ? x : (long double)NAN;
    long double l = logl((1 - a) * (1 + a)), k = 2 / (3.14159265358979323846L * 0.147L) + l / 2;
    long double y = sqrtl(sqrtl(k * k - l / 0.147L) - k);
    y = a < 1e-3L ? a * 0.886226925452758013649L : y;
    for (int i = 0; i < 4; i++) {
        long double residual = a < 0.5L ? erfl(y) - a : (1 - a) - erfcl(y);
        long double step = residual / (1.12837916709551257390L * expl(-y * y));
        y -= step / (1 + y * step);
    }
    return copysignl(y, x);
}

static double erfinv_ref(double x)
{
    return (double)erfinvl_ref(x);
}

/* The sign of gamma goes to a global in lgamma, to an argument in lgamma_r. */
static double lgamma_ref(double x)
{
    int sign;
    return lgamma_r(x, &sign);
}

static long double lgammal_ref(long double x)
{
    int sign;
    return lgammal_r(x, &sign);
}

/* ---- rows: name, references, largest error allowed in ulp ---- */

typedef struct unary_row {
    const char *name;
    double (*f32_ref)(double);
    long double (*f64_ref)(long double);
    double f32_bound, f64_bound;
} unary_row;

static const unary_row unary_rows[] = {
    { "exp", exp, expl, 1.5, 1.0 },
    { "exp2", exp2, exp2l, 1.5, 1.5 },
    { "expm1", expm1, expm1l, 2.0, 2.0 },
    { "sigmoid", sigmoid_ref, sigmoidl_ref, 2.0, 2.0 },
    { "log", log, logl, 1.0, 1.0 },
    { "log2", log2, log2l, 1.0, 1.0 },
    { "log10", log10, log10l, 1.0, 1.0 },
    { "log1p", log1p, log1pl, 1.5, 1.0 },
    { "softplus", softplus_ref, softplusl_ref, 2.0, 2.0 },
    { "tanh", tanh, tanhl, 1.5, 1.5 },
    { "cosh", cosh, coshl, 2.0, 1.5 },
    { "sinh", sinh, sinhl, 2.0, 2.0 },
    { "asinh", asinh, asinhl, 1.0, 2.0 },
    { "acosh", acosh, acoshl, 1.0, 2.5 },
    { "atanh", atanh, atanhl, 1.0, 2.0 },
    { "rsqrt", rsqrt_ref, rsqrtl_ref, 1.5, 1.5 },
    { "sin", sin, sinl, 2.0, 1.0 },
    { "cos", cos, cosl, 2.0, 1.0 },
    { "tan", tan, tanl, 1.0, 1.0 },
    { "asin", asin, asinl, 2.0, 1.0 },
    { "acos", acos, acosl, 1.5, 1.0 },
    { "atan", atan, atanl, 1.5, 2.0 },
    { "erf", erf, erfl, 1.5, 1.5 },
    { "erfc", erfc, erfcl, 1.0, 2.5 },
    { "erfinv", erfinv_ref, erfinvl_ref, 1.0, 2.5 },
    { "lgamma", lgamma_ref, lgammal_ref, 1.0, 6.0 },
};

typedef struct binary_row {
    const char *name;
    double (*f32_ref)(double, double);
    long double (*f64_ref)(long double, long double);
    double f32_bound, f64_bound;
} binary_row;

static const binary_row binary_rows[] = {
    { "pow", pow, powl, 1.0, 1.0 },
    { "atan2", atan2, atan2l, 2.0, 2.0 },
};

enum {
    UNARY_ROWS = sizeof unary_rows / sizeof *unary_rows,
    BINARY_ROWS = sizeof binary_rows / sizeof *binary_rows
};

/* ---- the instruction sets at hand ---- */

static const gd_vecmath_table *tables[GD_ISA_COUNT];
static const char *table_names[GD_ISA_COUNT];
static int table_count;

static void add_table(gd_isa isa, const gd_vecmath_table *table)
{
    if (!gd_isa_available(isa))
        return;
    table_names[table_count] = gd_isa_name(isa);
    tables[table_count++] = table;
}

static int find_tables(void **state)
{
    (void)state;
    add_table(GD_ISA_BASELINE, &gd_vecmath_baseline);
#if defined(GD_HAVE_AVX2)
    add_table(GD_ISA_AVX2, &gd_vecmath_avx2);
#endif
#if defined(GD_HAVE_AVX512)
    add_table(GD_ISA_AVX512, &gd_vecmath_avx512);
#endif
#if defined(GD_HAVE_NEON)
    add_table(GD_ISA_NEON, &gd_vecmath_neon);
#endif
    return table_count > 0 ? 0 : -1;
}

static const gd_vecmath_unary *unary_of(int table, const char *name)
{
    for (int i = 0; i < tables[table]->unary_count; i++)
        if (strcmp(tables[table]->unary[i].name, name) == 0)
            return &tables[table]->unary[i];
    fail_msg("%s has no %s", table_names[table], name);
    return NULL;
}

static const gd_vecmath_binary *binary_of(int table, const char *name)
{
    for (int i = 0; i < tables[table]->binary_count; i++)
        if (strcmp(tables[table]->binary[i].name, name) == 0)
            return &tables[table]->binary[i];
    fail_msg("%s has no %s", table_names[table], name);
    return NULL;
}

/* ---- measuring ---- */

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static double double_of(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint64_t bits_of_double(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* |got - want| in units in the last place of want's binade. Infinity counts as 2^128; a zero must
 * have its sign. */
static double ulps_f32(float got, double want)
{
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got) ? 0 : HUGE_VAL;
    if (want == 0 && (got != 0 || signbit(got) != signbit((float)want)))
        return HUGE_VAL;
    double g = isinf(got) ? copysign(0x1p128, got) : got;
    double w = fabs(want) > 0x1p128 ? copysign(0x1p128, want) : want;
    int exponent = (int)(bits_of_double(w) >> 52 & 0x7ff) - 1023;
    exponent = exponent < -126 ? -126 : exponent > 127 ? 127 : exponent;
    return fabs(g - w) * double_of((uint64_t)(1023 + 23 - exponent) << 52);
}

static double ulps_f64(double got, long double want)
{
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got) ? 0 : HUGE_VAL;
    if (want == 0 && (got != 0 || signbit(got) != signbit((double)want)))
        return HUGE_VAL;
    long double g = isinf(got) ? copysignl(0x1p1024L, got) : got;
    long double w = fabsl(want) > 0x1p1024L ? copysignl(0x1p1024L, want) : want;
    int exponent;
    frexpl(w, &exponent);
    exponent = exponent < -1021 || w == 0 ? -1021 : exponent > 1024 ? 1024 : exponent;
    return (double)ldexpl(fabsl(g - w), 53 - exponent);
}

typedef struct worst {
    double ulp, x, y;
    int table;
} worst;

static void note(worst *w, double ulp, double x, double y, int table)
{
    if (ulp > w->ulp)
        *w = (worst){ ulp, x, y, table };
}

static void check(const worst *w, const char *name, const char *type, double bound)
{
    print_message("  %-8s %s  %.3f ulp at %a, %a (%s)\n", name, type, w->ulp, w->x, w->y,
                  table_names[w->table]);
    if (!(w->ulp <= bound))
        fail_msg("%s_%s: %.3f ulp at %a, %a (%s), %.1f allowed", name, type, w->ulp, w->x, w->y,
                 table_names[w->table], bound);
}

/* Where some function changes its formula, saturates, overflows or underflows, or is zero. */
static const double landmarks[] = {
    0,        0x1p-149,  0x1p-126,  0x1p-54,    0x1p-26,   0x1p-25,
    0x1p-24,  1e-3,      0.25,      0.34657359, 0.4142135, 0.5,
    0.6,      0.693147,  0.7071067, 0.7853981,  0.881373,  0.9,
    0.92,     1,         1.0397207, 1.4142135,  1.570796,  2,
    2.356194, 2.457024,  2.747682,  3,          3.1415926, 3.92,
    4,        5.5,       6.283185,  7,          8.317766,  9.0109,
    10,       13.2877,   16.6355,   17.32868,   18,        20,
    24,       26.5432,   27.226,    32,         36.7368,   40,
    50,       64,        87.33654,  88.72283,   89,        89.415985,
    90,       103.97208, 104,       126,        127,       128,
    129,      149,       150,       151,        200,       354.8913,
    704,      708.39642, 709.78271, 710.47586,  711,       744.44007,
    745.1332, 746,       750,       1022,       1023,      1024,
    1025,     1074,      1075,      1076,       0x1p20,    0x1p23,
    0x1p24,   0x1p52,    0x1p53,    0x1p65,     0x1p127,   0x1.fffffep127,
    0x1p500,  0x1p1023,  HUGE_VAL,  NAN,
};

enum { LANDMARKS = sizeof landmarks / sizeof *landmarks };

static uint64_t random_state;

/* xorshift64* (Vigna 2016) */
static uint64_t random_bits(void)
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return random_state * UINT64_C(0x2545f4914f6cdd1d);
}

/* All bit patterns, or magnitudes 2^-20 to 2^10, or neighbours of landmarks, or [-1, 1] */
static double random_f64(void)
{
    uint64_t bits = random_bits(), choice = random_bits();
    double sign = choice & 1 ? -1 : 1;
    double near = landmarks[(choice >> 8) % LANDMARKS];
    switch (choice >> 1 & 3) {
    case 0:
        return double_of(bits);
    case 1:
        return sign * double_of((bits >> 12) | (1023 - 20 + (choice >> 8) % 30) << 52);
    case 2:
        return sign * double_of(bits_of_double(near) + bits % 64 - (near > 0 ? 32 : 0));
    default:
        return sign * (double)(bits >> 11) * 0x1p-53;
    }
}

static float random_f32(void)
{
    uint64_t bits = random_bits(), choice = random_bits();
    float sign = choice & 1 ? -1.0f : 1.0f;
    float near = (float)landmarks[(choice >> 8) % LANDMARKS];
    switch (choice >> 1 & 3) {
    case 0:
        return float_of((uint32_t)bits);
    case 1:
        return sign * float_of((uint32_t)(bits & 0x7fffff) |
                               (uint32_t)(127 - 20 + (choice >> 8) % 30) << 23);
    case 2:
        return sign * float_of(bits_of(near) + (uint32_t)(bits % 64) - (near > 0 ? 32 : 0));
    default:
        return sign * (float)(bits >> 40) * 0x1p-24f;
    }
}

/* ---- accuracy ---- */

static void measure_unary_f32(const unary_row *row, const float *x, int n, worst *w)
{
    static double want[BLOCK];
    static float got[BLOCK];
    for (int i = 0; i < n; i++)
        want[i] = row->f32_ref((double)x[i]);
    for (int t = 0; t < table_count; t++) {
        unary_of(t, row->name)->f32(x, got, n);
        for (int i = 0; i < n; i++)
            note(w, ulps_f32(got[i], want[i]), (double)x[i], 0, t);
    }
}

static void test_unary_f32(void **state)
{
    (void)state;
    const char *asked = getenv("GRADUS_VECMATH_STRIDE");
    uint64_t stride = asked ? strtoull(asked, NULL, 10) : test_is_slow() ? 64007 : 521;
    assert_true(stride > 0);
    static float x[BLOCK];
    for (int r = 0; r < UNARY_ROWS; r++) {
        const unary_row *row = &unary_rows[r];
        uint64_t step = row->f32_ref == erfinv_ref ? stride * 64 : stride; /* a slow reference */
        worst w = { 0 };
        int n = 0;
        for (uint64_t bits = 0; bits <= UINT32_MAX; bits += step) {
            x[n++] = float_of((uint32_t)bits);
            if (n == BLOCK || bits + step > UINT32_MAX) {
                measure_unary_f32(row, x, n, &w);
                n = 0;
            }
        }
        for (int k = 0; k < 2 * LANDMARKS; k++) {
            float near = (float)landmarks[k / 2];
            uint32_t first = bits_of(near) - (near > 0 ? 128 : 0);
            for (n = 0; n < 256; n++)
                x[n] = float_of((first + (uint32_t)n) ^ (uint32_t)(k & 1) << 31);
            measure_unary_f32(row, x, n, &w);
        }
        check(&w, row->name, "f32", row->f32_bound);
    }
}

static void test_unary_f64(void **state)
{
    (void)state;
    static double x[BLOCK], got[BLOCK];
    static long double want[BLOCK];
    for (int r = 0; r < UNARY_ROWS; r++) {
        const unary_row *row = &unary_rows[r];
        worst w = { 0 };
        random_state = 1;
        for (int block = 0; block < test_share(40); block++) {
            for (int i = 0; i < BLOCK; i++) {
                x[i] = random_f64();
                want[i] = row->f64_ref((long double)x[i]);
            }
            for (int t = 0; t < table_count; t++) {
                unary_of(t, row->name)->f64(x, got, BLOCK);
                for (int i = 0; i < BLOCK; i++)
                    note(&w, ulps_f64(got[i], want[i]), x[i], 0, t);
            }
        }
        check(&w, row->name, "f64", row->f64_bound);
    }
}

static void test_binary_f32(void **state)
{
    (void)state;
    static float x[BLOCK], y[BLOCK], got[BLOCK];
    static double want[BLOCK];
    for (int r = 0; r < BINARY_ROWS; r++) {
        const binary_row *row = &binary_rows[r];
        worst w = { 0 };
        random_state = 2;
        for (int block = 0; block < test_share(400); block++) {
            for (int i = 0; i < BLOCK; i++) {
                x[i] = random_f32();
                y[i] = random_f32();
                want[i] = row->f32_ref((double)x[i], (double)y[i]);
            }
            for (int t = 0; t < table_count; t++) {
                binary_of(t, row->name)->f32(x, y, got, BLOCK);
                for (int i = 0; i < BLOCK; i++)
                    note(&w, ulps_f32(got[i], want[i]), (double)x[i], (double)y[i], t);
            }
        }
        check(&w, row->name, "f32", row->f32_bound);
    }
}

static void test_binary_f64(void **state)
{
    (void)state;
    static double x[BLOCK], y[BLOCK], got[BLOCK];
    static long double want[BLOCK];
    for (int r = 0; r < BINARY_ROWS; r++) {
        const binary_row *row = &binary_rows[r];
        worst w = { 0 };
        random_state = 3;
        for (int block = 0; block < test_share(100); block++) {
            for (int i = 0; i < BLOCK; i++) {
                x[i] = random_f64();
                y[i] = random_f64();
                want[i] = row->f64_ref((long double)x[i], (long double)y[i]);
            }
            for (int t = 0; t < table_count; t++) {
                binary_of(t, row->name)->f64(x, y, got, BLOCK);
                for (int i = 0; i < BLOCK; i++)
                    note(&w, ulps_f64(got[i], want[i]), x[i], y[i], t);
            }
        }
        check(&w, row->name, "f64", row->f64_bound);
    }
}

/* ---- special cases ---- */

typedef struct special {
    const char *name;
    double x, want; /* NAN: any NaN */
} special;

/* C99 F.9, and the obvious for what it does not have; values that must come out exactly. */
static const special specials[] = {
    { "exp", -HUGE_VAL, 0 },
    { "exp", HUGE_VAL, HUGE_VAL },
    { "exp", -0.0, 1 },
    { "exp2", -HUGE_VAL, 0 },
    { "exp2", HUGE_VAL, HUGE_VAL },
    { "exp2", 10, 1024 },
    { "exp2", -126, 0x1p-126 },
    { "expm1", -HUGE_VAL, -1 },
    { "expm1", HUGE_VAL, HUGE_VAL },
    { "expm1", -0.0, -0.0 },
    { "sigmoid", -HUGE_VAL, 0 },
    { "sigmoid", HUGE_VAL, 1 },
    { "sigmoid", 0, 0.5 },
    { "softplus", -HUGE_VAL, 0 },
    { "softplus", HUGE_VAL, HUGE_VAL },
    { "log", 0.0, -HUGE_VAL },
    { "log", -0.0, -HUGE_VAL },
    { "log", -1, NAN },
    { "log", -HUGE_VAL, NAN },
    { "log", HUGE_VAL, HUGE_VAL },
    { "log", 1, 0.0 },
    { "log2", 0x1p-149, -149 },
    { "log2", 0x1p100, 100 },
    { "log2", -1, NAN },
    { "log10", 1, 0.0 },
    { "log10", -0.0, -HUGE_VAL },
    { "log1p", -1, -HUGE_VAL },
    { "log1p", -2, NAN },
    { "log1p", -0.0, -0.0 },
    { "log1p", HUGE_VAL, HUGE_VAL },
    { "tanh", HUGE_VAL, 1 },
    { "tanh", -HUGE_VAL, -1 },
    { "tanh", 30, 1 },
    { "tanh", -0.0, -0.0 },
    { "sinh", -HUGE_VAL, -HUGE_VAL },
    { "sinh", -0.0, -0.0 },
    { "cosh", -HUGE_VAL, HUGE_VAL },
    { "cosh", 0, 1 },
    { "asinh", -HUGE_VAL, -HUGE_VAL },
    { "asinh", -0.0, -0.0 },
    { "acosh", 1, 0.0 },
    { "acosh", 0.5, NAN },
    { "acosh", -3, NAN },
    { "acosh", -HUGE_VAL, NAN },
    { "acosh", HUGE_VAL, HUGE_VAL },
    { "atanh", 1, HUGE_VAL },
    { "atanh", -1, -HUGE_VAL },
    { "atanh", 1.5, NAN },
    { "atanh", HUGE_VAL, NAN },
    { "atanh", -0.0, -0.0 },
    { "rsqrt", 4, 0.5 },
    { "rsqrt", 0.0, HUGE_VAL },
    { "rsqrt", -0.0, -HUGE_VAL },
    { "rsqrt", HUGE_VAL, 0 },
    { "rsqrt", -1, NAN },
    { "sin", -0.0, -0.0 },
    { "sin", HUGE_VAL, NAN },
    { "cos", -0.0, 1 },
    { "cos", -HUGE_VAL, NAN },
    { "tan", -0.0, -0.0 },
    { "tan", HUGE_VAL, NAN },
    { "asin", -0.0, -0.0 },
    { "asin", 1.5, NAN },
    { "acos", 1, 0.0 },
    { "acos", -1.5, NAN },
    { "atan", -0.0, -0.0 },
    { "erf", HUGE_VAL, 1 },
    { "erf", -HUGE_VAL, -1 },
    { "erf", 6, 1 },
    { "erf", -0.0, -0.0 },
    { "erfc", HUGE_VAL, 0 },
    { "erfc", -HUGE_VAL, 2 },
    { "erfc", 0, 1 },
    { "erfinv", 1, HUGE_VAL },
    { "erfinv", -1, -HUGE_VAL },
    { "erfinv", 2, NAN },
    { "erfinv", HUGE_VAL, NAN },
    { "erfinv", -0.0, -0.0 },
    { "lgamma", 1, 0.0 },
    { "lgamma", 2, 0.0 },
    { "lgamma", 0.0, HUGE_VAL },
    { "lgamma", -0.0, HUGE_VAL },
    { "lgamma", -3, HUGE_VAL },
    { "lgamma", -HUGE_VAL, HUGE_VAL },
    { "lgamma", HUGE_VAL, HUGE_VAL },
};

static bool same(double a, double b)
{
    return isnan(a) ? isnan(b) : a == b && !signbit(a) == !signbit(b);
}

static void check_special(int t, const char *name, double x, double want)
{
    float x32 = (float)x, got32;
    double got64;
    unary_of(t, name)->f32(&x32, &got32, 1);
    unary_of(t, name)->f64(&x, &got64, 1);
    if (!same((double)got32, want) || !same(got64, want))
        fail_msg("%s(%g): %g (f32), %g (f64), want %g (%s)", name, x, (double)got32, got64, want,
                 table_names[t]);
}

static void test_specials(void **state)
{
    (void)state;
    for (int t = 0; t < table_count; t++) {
        for (size_t i = 0; i < sizeof specials / sizeof *specials; i++)
            check_special(t, specials[i].name, specials[i].x, specials[i].want);
        for (int r = 0; r < UNARY_ROWS; r++) {
            check_special(t, unary_rows[r].name, (double)NAN, (double)NAN);
            check_special(t, unary_rows[r].name, copysign((double)NAN, -1.0), (double)NAN);
        }
    }
}

/* pow and atan2 on all pairs of values around which their special cases turn, against libm. */
static void test_binary_specials(void **state)
{
    (void)state;
    static const double values[] = { 0,
                                     0x1p-149,
                                     0x1p-126,
                                     0.25,
                                     0.5,
                                     0.75,
                                     1,
                                     1.5,
                                     2,
                                     2.5,
                                     3,
                                     4,
                                     5,
                                     101,
                                     0x1p23,
                                     0x1p24,
                                     0x1.fffffep23,
                                     HUGE_VAL,
                                     NAN,
                                     1e9,
                                     0x1p100,
                                     0x1p52,
                                     0x1p53,
                                     0x1p64,
                                     0x1.fffffep127 };
    const int count = 2 * (int)(sizeof values / sizeof *values);
    for (int t = 0; t < table_count; t++)
        for (int r = 0; r < BINARY_ROWS; r++)
            for (int i = 0; i < count * count; i++) {
                double x = values[i / count / 2] * (i / count & 1 ? -1 : 1),
                       y = values[i % count / 2] * (i & 1 ? -1 : 1);
                float x32 = (float)x, y32 = (float)y, got32;
                double got64, want = binary_rows[r].f32_ref(x, y);
                binary_of(t, binary_rows[r].name)->f32(&x32, &y32, &got32, 1);
                binary_of(t, binary_rows[r].name)->f64(&x, &y, &got64, 1);
                bool exact = want == 0 || isinf(want) || isnan(want) || fabs(want) == 1;
                if (exact && (!same((double)got32, want) || !same(got64, want)))
                    fail_msg("%s(%g, %g): %g (f32), %g (f64), want %g (%s)", binary_rows[r].name, x,
                             y, (double)got32, got64, want, table_names[t]);
                assert_true(ulps_f32(got32, want) <= binary_rows[r].f32_bound);
            }
}

/* Bounded functions stay within their bounds, and do not turn back where they saturate. */
static void test_saturation(void **state)
{
    (void)state;
    static const char *const names[] = { "tanh", "erf", "sigmoid" };
    static float x[BLOCK], y[BLOCK];
    for (int t = 0; t < table_count; t++)
        for (int k = 0; k < 3; k++) {
            float last = 0;
            for (uint32_t bits = bits_of(3.5f); bits < bits_of(20.0f); bits += BLOCK * 16) {
                for (uint32_t i = 0; i < BLOCK; i++)
                    x[i] = float_of(bits + 16 * i);
                unary_of(t, names[k])->f32(x, y, BLOCK);
                for (int i = 0; i < BLOCK; i++) {
                    assert_true(y[i] <= 1.0f && y[i] >= last - 0x1p-24f);
                    last = y[i];
                }
            }
            assert_true(last == 1.0f);
        }
}

/* ---- one value, one result ---- */

enum { LONGEST = 70 };

/* Results in arrays of every length, and in place, have the bits they have in the longest array. */
static void test_place_in_array(void **state)
{
    (void)state;
    float x[LONGEST], whole[LONGEST], part[LONGEST];
    double xd[LONGEST], whole_d[LONGEST], part_d[LONGEST];
    for (int t = 0; t < table_count; t++)
        for (int r = 0; r < UNARY_ROWS; r++) {
            const gd_vecmath_unary *f = unary_of(t, unary_rows[r].name);
            random_state = 4;
            for (int n = 1; n <= LONGEST; n++) {
                for (int i = 0; i < LONGEST; i++) {
                    x[i] = random_f32();
                    xd[i] = random_f64();
                    if (n % 2) { /* without large arguments, which sin and the like treat apart,
                                    block by block */
                        x[i] = (float)fmod((double)x[i], 100.0);
                        xd[i] = fmod(xd[i], 100.0);
                    }
                }
                f->f32(x, whole, LONGEST);
                f->f64(xd, whole_d, LONGEST);
                memcpy(part, x, sizeof x);
                memcpy(part_d, xd, sizeof xd);
                f->f32(part + LONGEST - n, part + LONGEST - n, n);
                f->f64(part_d + LONGEST - n, part_d + LONGEST - n, n);
                for (int i = LONGEST - n; i < LONGEST; i++)
                    assert_true(same((double)whole[i], (double)part[i]) &&
                                same(whole_d[i], part_d[i]));
                assert_memory_equal(part, x, (size_t)(LONGEST - n) * sizeof *x);
            }
        }
}

static void test_place_in_array_binary(void **state)
{
    (void)state;
    float x[LONGEST], y[LONGEST], whole[LONGEST], part[LONGEST];
    double xd[LONGEST], yd[LONGEST], whole_d[LONGEST], part_d[LONGEST];
    for (int t = 0; t < table_count; t++)
        for (int r = 0; r < BINARY_ROWS; r++) {
            const gd_vecmath_binary *f = binary_of(t, binary_rows[r].name);
            random_state = 5;
            for (int n = 1; n <= LONGEST; n++) {
                for (int i = 0; i < LONGEST; i++) {
                    x[i] = random_f32();
                    y[i] = random_f32();
                    xd[i] = random_f64();
                    yd[i] = random_f64();
                }
                f->f32(x, y, whole, LONGEST);
                f->f64(xd, yd, whole_d, LONGEST);
                f->f32(x + LONGEST - n, y + LONGEST - n, part, n);
                f->f64(xd + LONGEST - n, yd + LONGEST - n, part_d, n);
                for (int i = 0; i < n; i++) {
                    assert_true(same((double)whole[LONGEST - n + i], (double)part[i]));
                    assert_true(same(whole_d[LONGEST - n + i], part_d[i]));
                }
            }
        }
}

/* Every function of the tables is tested here. */
static void test_rows_cover_tables(void **state)
{
    (void)state;
    for (int t = 0; t < table_count; t++) {
        assert_int_equal(tables[t]->unary_count, UNARY_ROWS);
        assert_int_equal(tables[t]->binary_count, BINARY_ROWS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_cover_tables), cmocka_unit_test(test_specials),
        cmocka_unit_test(test_binary_specials),   cmocka_unit_test(test_saturation),
        cmocka_unit_test(test_place_in_array),    cmocka_unit_test(test_place_in_array_binary),
        cmocka_unit_test(test_unary_f32),         cmocka_unit_test(test_unary_f64),
        cmocka_unit_test(test_binary_f32),        cmocka_unit_test(test_binary_f64),
    };
    return cmocka_run_group_tests(tests, find_tables, NULL);
}
