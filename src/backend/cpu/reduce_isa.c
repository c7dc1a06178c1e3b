/* backend/cpu/reduce_isa.c: the arithmetic of sum, prod, max and min over f32 for one instruction
 * set, reduce_loops.h once for each, and the kernels of all dtypes; the loops of the others are in
 * reduce_others_isa.c. The order of operations is defined in reduce.h; the walk is reduce.c.
 * argmax, argmin, cumsum and cumprod are in arg_scan_isa.c.
 */
/* A loop of fixed length over an array of lanes, once vectorised, is to be unrolled completely, so
 * that the lanes stay in registers. gcc does that at -O3, or when it is told; clang always. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("peel-loops")
#endif

#include "backend/cpu/isa.h"
#include "backend/cpu/reduce_isa.h"

#if defined(GD_ISA_AVX2_BUILD) || defined(GD_ISA_AVX512_BUILD)
#define LANES_IN_REGISTERS 1
#else
#define LANES_IN_REGISTERS 0
#endif

/* ---- sum: floats keep their dtype; integers are summed in i64, where they wrap ---- */
#define OP       sum
#define MERGE    ADD
#define IDENTITY 0
#define TYPE     f32
#define ACC      f32
#if LANES_IN_REGISTERS
#define VMERGE(P, a, x) JOIN(P, add_ps)(a, x)
#include "backend/cpu/reduce_lanes.h"
#define ROW_BLOCK sum_in_registers
#endif
#include "backend/cpu/reduce_loops.h"
#undef OP
#undef MERGE
#undef IDENTITY

/* ---- prod: the same ---- */
#define OP       prod
#define MERGE    MULTIPLY
#define IDENTITY 1
#define TYPE     f32
#define ACC      f32
#include "backend/cpu/reduce_loops.h"
#undef OP
#undef MERGE
#undef IDENTITY

/* ---- max: the dtype stays; NaN wins ---- */
#define OP       max
#define MERGE    LARGER
#define IDENTITY JOIN(LOWEST_, TYPE)
#define TYPE     f32
#define ACC      f32
#if LANES_IN_REGISTERS
#define VMERGE(P, a, x) JOIN(P, max_ps)(x, a) /* the second where unordered, and of zeros */
#define EXACT           max_f32_block
static f32 EXACT(const f32 *restrict x, int64_t n);
#include "backend/cpu/reduce_lanes.h"
#define ROW_BLOCK max_in_registers
#endif
#include "backend/cpu/reduce_loops.h"
#undef OP
#undef MERGE
#undef IDENTITY

/* ---- min: the dtype stays; NaN wins ---- */
#define OP       min
#define MERGE    SMALLER
#define IDENTITY JOIN(HIGHEST_, TYPE)
#define TYPE     f32
#define ACC      f32
#if LANES_IN_REGISTERS
#define VMERGE(P, a, x) JOIN(P, min_ps)(x, a)
#define EXACT           min_f32_block
static f32 EXACT(const f32 *restrict x, int64_t n);
#include "backend/cpu/reduce_lanes.h"
#define ROW_BLOCK min_in_registers
#endif
#include "backend/cpu/reduce_loops.h"

/* ---- kernels ---- */

#define REDUCE_KERNEL(op)                                                                      \
    extern const gd_reducer GD_ISA_NAME(op##_f64_reducer), GD_ISA_NAME(op##_i32_reducer),      \
        GD_ISA_NAME(op##_i64_reducer), GD_ISA_NAME(op##_u8_reducer);                           \
    const gd_reducer *const GD_ISA_NAME(gd_reducers_##op)[GD_DTYPE_COUNT] = {                  \
        [GD_F32] = &GD_ISA_NAME(op##_f32_reducer), [GD_F64] = &GD_ISA_NAME(op##_f64_reducer),  \
        [GD_F16] = &GD_ISA_NAME(op##_f32_reducer), [GD_BF16] = &GD_ISA_NAME(op##_f32_reducer), \
        [GD_I32] = &GD_ISA_NAME(op##_i32_reducer), [GD_I64] = &GD_ISA_NAME(op##_i64_reducer),  \
        [GD_U8] = &GD_ISA_NAME(op##_u8_reducer),   [GD_BOOL] = &GD_ISA_NAME(op##_u8_reducer),  \
    };                                                                                         \
    static gd_status op##_kernel(const gd_kernel_call *call)                                   \
    {                                                                                          \
        return gd_reduce_run(call, GD_ISA_NAME(gd_reducers_##op)[call->in[0].layout->dtype]);  \
    }
REDUCE_KERNEL(sum)
REDUCE_KERNEL(prod)
REDUCE_KERNEL(max)
REDUCE_KERNEL(min)

void GD_ISA_NAME(gd_cpu_register_reduce)(gd_kernel_fn *kernel)
{
    kernel[GD_OP_sum] = sum_kernel;
    kernel[GD_OP_prod] = prod_kernel;
    kernel[GD_OP_max] = max_kernel;
    kernel[GD_OP_min] = min_kernel;
    GD_ISA_NAME(gd_cpu_register_arg_scan)(kernel);
}
