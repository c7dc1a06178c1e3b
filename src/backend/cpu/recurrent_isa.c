/* backend/cpu/recurrent_isa.c: the cells of recurrent networks, for one instruction set. */
#include "backend/cpu/recurrent.h"

#include "backend/cpu/isa.h"
#include "backend/cpu/vecmath.h"
#include "base/half.h"

#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

#define REAL       float
#define SIGMOID(x) gd_sigmoid_f32(x)
#define TANH(x)    gd_tanh_f32(x)
#define N(name)    name##_f32
#include "backend/cpu/recurrent_cells.h"

#undef REAL
#undef SIGMOID
#undef TANH
#undef N
#define REAL       double
#define SIGMOID(x) gd_sigmoid_f64(x)
#define TANH(x)    gd_tanh_f64(x)
#define N(name)    name##_f64
#include "backend/cpu/recurrent_cells.h"

static void round_to_bf16(uint16_t *restrict to, const float *restrict from, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = gd_f32_to_bf16(from[i]);
}

static const gd_recurrent_loops loops_f32 = { .forward = cell_forward_f32,
                                              .backward = cell_backward_f32,
                                              .round = round_to_bf16 };
static const gd_recurrent_loops loops_f64 = { .forward = cell_forward_f64,
                                              .backward = cell_backward_f64 };

static const gd_recurrent_loops *loops_of(const gd_kernel_call *call)
{
    return call->out.layout->dtype == GD_F64 ? &loops_f64 : &loops_f32;
}

static gd_status recurrent_kernel(const gd_kernel_call *call)
{
    return gd_recurrent_run(call, loops_of(call));
}

static gd_status recurrent_grad_kernel(const gd_kernel_call *call)
{
    return gd_recurrent_grad_run(call, loops_of(call));
}

void GD_ISA_NAME(gd_cpu_register_recurrent)(gd_kernel_fn *kernel)
{
    kernel[GD_OP_recurrent] = recurrent_kernel;
    kernel[GD_OP_recurrent_grad] = recurrent_grad_kernel;
}
