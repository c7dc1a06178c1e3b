/* backend/cpu/softmax_isa.c: the arithmetic of softmax, log_softmax, cross_entropy and
 * cross_entropy_grad for one instruction set: softmax_loops.h for f32, and the kernels. The loops
 * of f64 are in softmax_f64_isa.c. The walk over tensors is softmax.c; what is computed stands in
 * softmax.h.
 */
#include "backend/cpu/reduce_isa.h"
#include "backend/cpu/softmax.h"
#include "backend/cpu/vecmath.h"
#include "base/error.h"

#define TYPE f32
#include "backend/cpu/softmax_loops.h"

extern const gd_softmax_loops *const GD_ISA_NAME(gd_softmax_f64);

typedef gd_status (*run_fn)(const gd_kernel_call *call, const gd_softmax_loops *loops);

static gd_status run(const gd_kernel_call *call, run_fn fn)
{
    gd_dtype dtype = call->in[0].layout->dtype;
    if (!gd_dtype_is_float(dtype))
        return gd_fail(GD_ERR_DTYPE, "%s of %s", call->op->name, gd_dtype_name(dtype));
    return fn(call, dtype == GD_F64 ? GD_ISA_NAME(gd_softmax_f64) : &softmax_f32_loops);
}

static gd_status softmax_kernel(const gd_kernel_call *call)
{
    return run(call, gd_softmax_run);
}

static gd_status log_softmax_kernel(const gd_kernel_call *call)
{
    return run(call, gd_log_softmax_run);
}

static gd_status cross_entropy_kernel(const gd_kernel_call *call)
{
    return run(call, gd_cross_entropy_run);
}

static gd_status cross_entropy_grad_kernel(const gd_kernel_call *call)
{
    return run(call, gd_cross_entropy_grad_run);
}

void GD_ISA_NAME(gd_cpu_register_softmax)(gd_kernel_fn *kernel)
{
    kernel[GD_OP_softmax] = softmax_kernel;
    kernel[GD_OP_log_softmax] = log_softmax_kernel;
    kernel[GD_OP_cross_entropy] = cross_entropy_kernel;
    kernel[GD_OP_cross_entropy_grad] = cross_entropy_grad_kernel;
}
