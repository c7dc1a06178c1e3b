/* backend/cpu/reduce_isa.h: what reduce_isa.c and arg_scan_isa.c share within one instruction set.
 * Only for …_isa.c files. */
#ifndef GD_BACKEND_CPU_REDUCE_ISA_H
#define GD_BACKEND_CPU_REDUCE_ISA_H

#include "backend/cpu/isa.h"
#include "backend/cpu/reduce.h"

#include <math.h>

typedef float f32;
typedef double f64;
typedef int32_t i32;
typedef int64_t i64;
typedef uint8_t u8;

#define DTYPE_f32 GD_F32
#define DTYPE_f64 GD_F64
#define DTYPE_i32 GD_I32
#define DTYPE_i64 GD_I64
#define DTYPE_u8  GD_U8

#define LOWEST_f32  (-INFINITY)
#define LOWEST_f64  (-(f64)INFINITY)
#define LOWEST_i32  INT32_MIN
#define LOWEST_i64  INT64_MIN
#define LOWEST_u8   0
#define HIGHEST_f32 INFINITY
#define HIGHEST_f64 ((f64)INFINITY)
#define HIGHEST_i32 INT32_MAX
#define HIGHEST_i64 INT64_MAX
#define HIGHEST_u8  UINT8_MAX

#define JOIN_(a, b) a##b
#define JOIN(a, b)  JOIN_(a, b)

/* Before a loop that may write what it reads, but only at the same index. */
#ifdef __clang__
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

#define ADD(a, x)      ((a) + (x))
#define MULTIPLY(a, x) ((a) * (x))
#define IS_NAN(x)      ((x) != (x)) /* false for integers, without a warning */
/* Whether x beats a in max, in min. A NaN beats any number and is beaten by nothing. */
#define IS_LARGER(a, x)  ((x) > (a) || (IS_NAN(x) && !IS_NAN(a)))
#define IS_SMALLER(a, x) ((x) < (a) || (IS_NAN(x) && !IS_NAN(a)))
/* What remains of the two. That a later NaN replaces an earlier one saves a comparison. */
#define LARGER(a, x)  ((((x) > (a)) | IS_NAN(x)) ? (x) : (a))
#define SMALLER(a, x) ((((x) < (a)) | IS_NAN(x)) ? (x) : (a))

/* By dtype, NULL where there is none. bool shares the tables of u8. */
extern const gd_reducer *const GD_ISA_NAME(gd_reducers_max)[GD_DTYPE_COUNT];
extern const gd_reducer *const GD_ISA_NAME(gd_reducers_min)[GD_DTYPE_COUNT];

void GD_ISA_NAME(gd_cpu_register_arg_scan)(gd_kernel_fn *kernel);

#endif
