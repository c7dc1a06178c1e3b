/* backend/cpu/norm_isa.c: normalize, normalize_grad and centred_products for one instruction set: the f32 loops and
 * the kernels. f64 shares one set of loops, in norm.c. */
#include "backend/cpu/isa.h"
#include "backend/cpu/norm.h"

#include <math.h>

#define TYPE       float
#define NAME(what) norm_f32_##what
#include "backend/cpu/norm_loops.h"

static const gd_norm_loops f32_loops = { .size = sizeof(float),
                                         .forward = norm_f32_forward,
                                         .backward = norm_f32_backward,
                                         .centred = norm_f32_centred };

static const gd_norm_loops *loops_of(const gd_kernel_call *call)
{
    return call->in[0].layout->dtype == GD_F64 ? &gd_norm_f64_loops : &f32_loops;
}

static gd_status normalize_kernel(const gd_kernel_call *call)
{
    return gd_normalize_run(call, loops_of(call));
}

static gd_status normalize_grad_kernel(const gd_kernel_call *call)
{
    return gd_normalize_grad_run(call, loops_of(call));
}

static gd_status centred_products_kernel(const gd_kernel_call *call)
{
    return gd_centred_products_run(call, loops_of(call));
}

void GD_ISA_NAME(gd_cpu_register_norm)(gd_kernel_fn *kernel)
{
    kernel[GD_OP_normalize] = normalize_kernel;
    kernel[GD_OP_normalize_grad] = normalize_grad_kernel;
    kernel[GD_OP_centred_products] = centred_products_kernel;
}
