/* backend/cpu/pooling_isa.c: max_pool and its gradient for one instruction set: the f32 loops over
 * windows of two by two, as almost all networks have them. */
#include "backend/cpu/isa.h"
#include "backend/cpu/pooling.h"

#include <string.h>

#if defined(GD_ISA_AVX512_BUILD)
/* Rows are short, and shuffles are most of the work: AVX2 is as fast. */
void GD_ISA_NAME(gd_cpu_register_pooling)(gd_kernel_fn *kernel)
{
    GD_ISA_NARROW_NAME(gd_cpu_register_pooling)(kernel);
}
#else
#define REAL  float
#define BITS  uint32_t
#define N(op) op##_f32
#include "backend/cpu/pooling_squares.h"

static gd_status max_pool_kernel(const gd_kernel_call *call)
{
    return gd_max_pool_run(call, max_squares_f32);
}

static gd_status max_pool_grad_kernel(const gd_kernel_call *call)
{
    return gd_max_pool_grad_run(call, max_squares_grad_f32);
}

void GD_ISA_NAME(gd_cpu_register_pooling)(gd_kernel_fn *kernel)
{
    kernel[GD_OP_max_pool] = max_pool_kernel;
    kernel[GD_OP_max_pool_grad] = max_pool_grad_kernel;
}
#endif
