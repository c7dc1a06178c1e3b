/* backend/cpu/vecmath_isa.c: loops over the functions of vecmath.h, compiled once per instruction
 * set. For each name in the two lists below there is name_array_f32 and name_array_f64; the table
 * at the end is what the outside sees. */
#include "backend/cpu/isa.h"
#include "backend/cpu/vecmath.h"
#include "backend/cpu/vecmath_table.h"

/* Elements of a loop are independent even where out is x. */
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

#define UNARY_LIST(ROW) \
    ROW(exp)            \
    ROW(exp2)           \
    ROW(expm1)          \
    ROW(sigmoid)        \
    ROW(log)            \
    ROW(log2)           \
    ROW(log10)          \
    ROW(log1p)          \
    ROW(softplus)       \
    ROW(tanh)           \
    ROW(cosh)           \
    ROW(sinh)           \
    ROW(asinh)          \
    ROW(acosh)          \
    ROW(atanh)          \
    ROW(rsqrt)          \
    ROW(asin)           \
    ROW(acos)           \
    ROW(atan)           \
    ROW(erf)            \
    ROW(erfc)           \
    ROW(erfinv)         \
    ROW(lgamma)

#define TRIG_LIST(ROW) ROW(sin) ROW(cos) ROW(tan)

#define BINARY_LIST(ROW) ROW(pow) ROW(atan2)

#define UNARY_LOOP(name, type, suffix)                                     \
    static void name##_array_##suffix(const type *x, type *out, int64_t n) \
    {                                                                      \
        INDEPENDENT                                                        \
        for (int64_t i = 0; i < n; i++)                                    \
            out[i] = gd_##name##_##suffix(x[i]);                           \
    }

#define BINARY_LOOP(name, type, suffix)                                                   \
    static void name##_array_##suffix(const type *x, const type *y, type *out, int64_t n) \
    {                                                                                     \
        INDEPENDENT                                                                       \
        for (int64_t i = 0; i < n; i++)                                                   \
            out[i] = gd_##name##_##suffix(x[i], y[i]);                                    \
    }

/* Blocks without a large argument, nearly all, take the short way; both ways give the same bits.
 * That an argument is large shows in the sign of a difference: or-ing signs is vector code
 * everywhere. */
enum { TRIG_BLOCK = 256 };

#define TRIG_LOOP(name, type, suffix, fabs, bits)                          \
    static void name##_array_##suffix(const type *x, type *out, int64_t n) \
    {                                                                      \
        for (int64_t start = 0; start < n; start += TRIG_BLOCK) {          \
            int64_t end = n - start < TRIG_BLOCK ? n : start + TRIG_BLOCK; \
            bits far = 0;                                                  \
            for (int64_t i = start; i < end; i++)                          \
                far |= gd_bits_##suffix((type)GD_TRIG_NEAR - fabs(x[i]));  \
            if (far >> (8 * sizeof far - 1)) {                             \
                INDEPENDENT                                                \
                for (int64_t i = start; i < end; i++)                      \
                    out[i] = gd_##name##_##suffix(x[i]);                   \
            } else {                                                       \
                INDEPENDENT                                                \
                for (int64_t i = start; i < end; i++)                      \
                    out[i] = gd_##name##_near_##suffix(x[i]);              \
            }                                                              \
        }                                                                  \
    }

#define UNARY_LOOPS(name) UNARY_LOOP(name, float, f32) UNARY_LOOP(name, double, f64)
#define TRIG_LOOPS(name) \
    TRIG_LOOP(name, float, f32, fabsf, uint32_t) TRIG_LOOP(name, double, f64, fabs, uint64_t)
#define BINARY_LOOPS(name) BINARY_LOOP(name, float, f32) BINARY_LOOP(name, double, f64)

UNARY_LIST(UNARY_LOOPS)
TRIG_LIST(TRIG_LOOPS)
BINARY_LIST(BINARY_LOOPS)

#define TABLE_ROW(name) { #name, name##_array_f32, name##_array_f64 },

static const gd_vecmath_unary unary_rows[] = { UNARY_LIST(TABLE_ROW) TRIG_LIST(TABLE_ROW) };
static const gd_vecmath_binary binary_rows[] = { BINARY_LIST(TABLE_ROW) };

const gd_vecmath_table GD_ISA_NAME(gd_vecmath) = {
    unary_rows,
    (int)(sizeof unary_rows / sizeof unary_rows[0]),
    binary_rows,
    (int)(sizeof binary_rows / sizeof binary_rows[0]),
};
