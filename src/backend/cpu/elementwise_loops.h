/* backend/cpu/elementwise_loops.h: the contiguous loops of every row of ops/elementwise.def for one
 * type, and their list gd_ew_ops_<suffix>_<isa>. A template: included once per type by
 * elementwise_*_isa.c, after
 *     #define GD_T float       the type
 *     #define GD_T_SUFFIX f32  its name in function names
 *     #define GD_T_FLOAT 1     its kind; others are GD_T_SIGNED, GD_T_UNSIGNED, GD_T_OPAQUE (moved only)
 * It undefines them at its end. */
#include "backend/cpu/formulas.h"

/* Whether a row is compiled for this type. */
#if defined(GD_T_FLOAT)
#define GD_EW_TAKES_FLOAT(...)   __VA_ARGS__
#define GD_EW_TAKES_WHOLE(...)   __VA_ARGS__
#define GD_EW_TAKES_NUMERIC(...) __VA_ARGS__
#define GD_EW_TAKES_INTEGRAL(...)
#define GD_EW_TAKES_ALL(...) __VA_ARGS__
#elif defined(GD_T_OPAQUE)
#define GD_EW_TAKES_FLOAT(...)
#define GD_EW_TAKES_WHOLE(...)
#define GD_EW_TAKES_NUMERIC(...)
#define GD_EW_TAKES_INTEGRAL(...)
#define GD_EW_TAKES_ALL(...)
#else
#define GD_EW_TAKES_FLOAT(...)
#define GD_EW_TAKES_WHOLE(...)
#define GD_EW_TAKES_NUMERIC(...)  __VA_ARGS__
#define GD_EW_TAKES_INTEGRAL(...) __VA_ARGS__
#define GD_EW_TAKES_ALL(...)      __VA_ARGS__
#endif
#define GD_EW_TAKES_CHOOSE(...) __VA_ARGS__

/* The types of a row's result and of its first operand. */
#define GD_EW_RESULT_SAME    GD_T
#define GD_EW_RESULT_BOOL    uint8_t
#define GD_EW_FIRST_FLOAT    GD_T
#define GD_EW_FIRST_WHOLE    GD_T
#define GD_EW_FIRST_NUMERIC  GD_T
#define GD_EW_FIRST_INTEGRAL GD_T
#define GD_EW_FIRST_ALL      GD_T
#define GD_EW_FIRST_CHOOSE   uint8_t

/* Iterations are independent even where out is exactly an input, which restrict would not allow. */
#if defined(GD_EW_INDEPENDENT)
#elif defined(__clang__)
#define GD_EW_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#pragma clang diagnostic ignored \
    "-Wpass-failed" /* some loops stay scalar: there is no integer division */
#else
#define GD_EW_INDEPENDENT _Pragma("GCC ivdep")
#endif

#define GD_EW_FUNCTION(name) GD_T_NAME(gd_ew_##name)
#define GD_EW_DEFINE(name, result, first, declare_y, declare_z, ...)                           \
    static void GD_EW_FUNCTION(name)(const void *px, const void *py, const void *pz, void *po, \
                                     int64_t n)                                                \
    {                                                                                          \
        (void)py, (void)pz;                                                                    \
        GD_EW_INDEPENDENT                                                                      \
        for (int64_t i = 0; i < n; i++) {                                                      \
            const first x = ((const first *)px)[i];                                            \
            declare_y declare_z((GD_EW_RESULT_##result *)po)[i] =                              \
                (GD_EW_RESULT_##result)(__VA_ARGS__);                                          \
        }                                                                                      \
    }
#define GD_EW_Y const GD_T y = ((const GD_T *)py)[i];
#define GD_EW_Z const GD_T z = ((const GD_T *)pz)[i];

#if defined(GD_T_FLOAT)
/* Rare, and large as vector code: compiled for size. */
static __attribute__((cold)) void GD_EW_FUNCTION(pow_log)(const void *px, const void *py,
                                                          const void *pz, void *po, int64_t n);
#endif

#define GD_UNARY(name, types, result, formula, ...) \
    GD_EW_TAKES_##types(GD_EW_DEFINE(name, result, GD_EW_FIRST_##types, , , formula))
#define GD_BINARY(name, types, result, formula, ...) \
    GD_EW_TAKES_##types(GD_EW_DEFINE(name, result, GD_EW_FIRST_##types, GD_EW_Y, , formula))
#define GD_TERNARY(name, types, result, formula, ...) \
    GD_EW_TAKES_##types(GD_EW_DEFINE(name, result, GD_EW_FIRST_##types, GD_EW_Y, GD_EW_Z, formula))
#include "ops/elementwise.def"

#if defined(GD_T_FLOAT)
/* Where no argument of a block is large, as is usual, the argument reduction for large ones can be
 * left out; a block with a large one is done one by one, which keeps the library small. Both ways
 * give the same bits. */
#define GD_EW_TRIG_BLOCK 256
#define GD_EW_DEFINE_TRIG(name)                                                                  \
    static __attribute__((noinline)) GD_T GD_T_NAME(name##_far)(GD_T x)                          \
    {                                                                                            \
        return GD_T_NAME(gd_##name)(x);                                                          \
    }                                                                                            \
    static void GD_EW_FUNCTION(name##_in_blocks)(const void *px, const void *py, const void *pz, \
                                                 void *po, int64_t n)                            \
    {                                                                                            \
        (void)py;                                                                                \
        (void)pz;                                                                                \
        for (int64_t begin = 0; begin < n; begin += GD_EW_TRIG_BLOCK) {                          \
            const GD_T *x = (const GD_T *)px + begin;                                            \
            GD_T *out = (GD_T *)po + begin;                                                      \
            int64_t count = n - begin < GD_EW_TRIG_BLOCK ? n - begin : GD_EW_TRIG_BLOCK;         \
            int is_far = 0;                                                                      \
            for (int64_t i = 0; i < count; i++)                                                  \
                is_far |= ABS(x[i]) > (GD_T)GD_TRIG_NEAR;                                        \
            if (is_far) {                                                                        \
                for (int64_t i = 0; i < count; i++)                                              \
                    out[i] = GD_T_NAME(name##_far)(x[i]);                                        \
                continue;                                                                        \
            }                                                                                    \
            GD_EW_INDEPENDENT                                                                    \
            for (int64_t i = 0; i < count; i++)                                                  \
                out[i] = GD_T_NAME(gd_##name##_near)(x[i]);                                      \
        }                                                                                        \
    }
GD_EW_DEFINE_TRIG(sin)
GD_EW_DEFINE_TRIG(cos)
GD_EW_DEFINE_TRIG(tan)
#define GD_EW_OVERRIDES                                                                       \
    [GD_OP_sin] = GD_EW_FUNCTION(sin_in_blocks), [GD_OP_cos] = GD_EW_FUNCTION(cos_in_blocks), \
    [GD_OP_tan] = GD_EW_FUNCTION(tan_in_blocks),
#else
#define GD_EW_OVERRIDES
#endif

#pragma GCC diagnostic push
#if defined(__clang__)
#pragma GCC diagnostic ignored "-Winitializer-overrides"
#else
#pragma GCC diagnostic ignored "-Woverride-init"
#endif
extern const gd_ew_loop GD_ISA_NAME(GD_T_NAME(gd_ew_ops))[GD_OP_ELEMENTWISE_COUNT];
const gd_ew_loop GD_ISA_NAME(GD_T_NAME(gd_ew_ops))[GD_OP_ELEMENTWISE_COUNT] = {
#define GD_EW_ENTRY(name, types, ...) GD_EW_TAKES_##types([GD_OP_##name] = GD_EW_FUNCTION(name), )
#define GD_UNARY                      GD_EW_ENTRY
#define GD_BINARY                     GD_EW_ENTRY
#define GD_TERNARY                    GD_EW_ENTRY
#include "ops/elementwise.def"
    GD_EW_OVERRIDES
};
#pragma GCC diagnostic pop

#undef GD_EW_TAKES_FLOAT
#undef GD_EW_TAKES_WHOLE
#undef GD_EW_TAKES_NUMERIC
#undef GD_EW_TAKES_INTEGRAL
#undef GD_EW_TAKES_ALL
#undef GD_EW_TAKES_CHOOSE
#undef GD_EW_RESULT_SAME
#undef GD_EW_RESULT_BOOL
#undef GD_EW_FIRST_FLOAT
#undef GD_EW_FIRST_WHOLE
#undef GD_EW_FIRST_NUMERIC
#undef GD_EW_FIRST_INTEGRAL
#undef GD_EW_FIRST_ALL
#undef GD_EW_FIRST_CHOOSE
#undef GD_EW_FUNCTION
#undef GD_EW_DEFINE
#undef GD_EW_Y
#undef GD_EW_Z
#undef GD_EW_ENTRY
#undef GD_EW_TRIG_BLOCK
#undef GD_EW_DEFINE_TRIG
#undef GD_EW_OVERRIDES
#undef GD_T
#undef GD_T_SUFFIX
#undef GD_T_FLOAT
#undef GD_T_SIGNED
#undef GD_T_UNSIGNED
#undef GD_T_OPAQUE
