/* backend/cpu/arg_scan_isa.c: the arithmetic of argmax, argmin (arg_loops.h), cumsum and cumprod
 * (scan_loops.h) for one instruction set. The walks over tensors are in arg_reduce.c and scan.c;
 * what is defined about order is in reduce.h.
 */
#include "backend/cpu/reduce_isa.h"
#include "base/error.h"

/* ---- argmax ---- */
#define OP      argmax
#define EXTREME GD_ISA_NAME(gd_reducers_max)
#define BEATS   IS_LARGER
#define TYPE    f32
#include "backend/cpu/arg_loops.h"
#define TYPE f64
#include "backend/cpu/arg_loops.h"
#define TYPE i32
#include "backend/cpu/arg_loops.h"
#define TYPE i64
#include "backend/cpu/arg_loops.h"
#define TYPE u8
#include "backend/cpu/arg_loops.h"
#undef OP
#undef EXTREME
#undef BEATS

/* ---- argmin ---- */
#define OP      argmin
#define EXTREME GD_ISA_NAME(gd_reducers_min)
#define BEATS   IS_SMALLER
#define TYPE    f32
#include "backend/cpu/arg_loops.h"
#define TYPE f64
#include "backend/cpu/arg_loops.h"
#define TYPE i32
#include "backend/cpu/arg_loops.h"
#define TYPE i64
#include "backend/cpu/arg_loops.h"
#define TYPE u8
#include "backend/cpu/arg_loops.h"
#undef OP
#undef EXTREME
#undef BEATS

/* ---- cumsum: floats keep their dtype, integers give i64 and wrap ---- */
#define OP    cumsum
#define MERGE ADD
#define TYPE  f32
#define ACC   f32
#include "backend/cpu/scan_loops.h"
#define TYPE f64
#define ACC  f64
#include "backend/cpu/scan_loops.h"
#define TYPE i32
#define ACC  i64
#include "backend/cpu/scan_loops.h"
#define TYPE i64
#define ACC  i64
#include "backend/cpu/scan_loops.h"
#define TYPE u8
#define ACC  i64
#include "backend/cpu/scan_loops.h"
#undef OP
#undef MERGE

/* ---- cumprod: the same ---- */
#define OP    cumprod
#define MERGE MULTIPLY
#define TYPE  f32
#define ACC   f32
#include "backend/cpu/scan_loops.h"
#define TYPE f64
#define ACC  f64
#include "backend/cpu/scan_loops.h"
#define TYPE i32
#define ACC  i64
#include "backend/cpu/scan_loops.h"
#define TYPE i64
#define ACC  i64
#include "backend/cpu/scan_loops.h"
#define TYPE u8
#define ACC  i64
#include "backend/cpu/scan_loops.h"
#undef OP
#undef MERGE

/* ---- kernels: one for each op, which picks by dtype ---- */

#define PICK_KERNEL(op, of_halves)                                                              \
    static gd_status op##_kernel(const gd_kernel_call *call)                                    \
    {                                                                                           \
        static const gd_kernel_fn by_dtype[GD_DTYPE_COUNT] = {                                  \
            [GD_F32] = op##_f32_kernel, [GD_F64] = op##_f64_kernel, [GD_I32] = op##_i32_kernel, \
            [GD_I64] = op##_i64_kernel, [GD_U8] = op##_u8_kernel,   [GD_BOOL] = op##_u8_kernel, \
            [GD_F16] = of_halves,       [GD_BF16] = of_halves,                                  \
        };                                                                                      \
        gd_dtype dtype = call->in[0].layout->dtype;                                             \
        return by_dtype[dtype] ? by_dtype[dtype](call)                                          \
                               : gd_fail(GD_ERR_DTYPE, "%s of %s", #op, gd_dtype_name(dtype));  \
    }
PICK_KERNEL(argmax, argmax_f32_kernel)
PICK_KERNEL(argmin, argmin_f32_kernel)
PICK_KERNEL(cumsum, cumsum_f32_kernel)
PICK_KERNEL(cumprod, cumprod_f32_kernel)

void GD_ISA_NAME(gd_cpu_register_arg_scan)(gd_kernel_fn *kernel)
{
    kernel[GD_OP_argmax] = argmax_kernel;
    kernel[GD_OP_argmin] = argmin_kernel;
    kernel[GD_OP_cumsum] = cumsum_kernel;
    kernel[GD_OP_cumprod] = cumprod_kernel;
}
