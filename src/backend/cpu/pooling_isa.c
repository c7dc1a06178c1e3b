/* backend/cpu/pooling_isa.c: max_pool and its gradient for one instruction set: the f32 loops over
 * windows of two by two, as almost all networks have them. */
#include "backend/cpu/isa.h"
#include "backend/cpu/pooling.h"

#include <string.h>

#define LANES    4
#define W(name)  name##_4
#define EVEN     0, 2, 4, 6
#define ODD      1, 3, 5, 7
#define IN_ORDER 0, 1, 2, 3
#define LOW      0, 4, 1, 5
#define HIGH     2, 6, 3, 7
#include "backend/cpu/pooling_rows.h"
#if defined(GD_ISA_AVX2_BUILD) || \
    defined(GD_ISA_AVX512_BUILD) /* whose shuffles do not leave halves of a vector */
#define LANES    8
#define W(name)  name##_8
#define EVEN     0, 2, 8, 10, 4, 6, 12, 14
#define ODD      1, 3, 9, 11, 5, 7, 13, 15
#define IN_ORDER 0, 1, 4, 5, 2, 3, 6, 7
#define LOW      0, 8, 1, 9, 4, 12, 5, 13
#define HIGH     2, 10, 3, 11, 6, 14, 7, 15
#include "backend/cpu/pooling_rows.h"
#else
#define pool_row_8   pool_row_4
#define spread_row_8 spread_row_4
#endif

static inline bool pool_row(const float *above, const float *below, int64_t width, float *to)
{
    if (width >= 8)
        pool_row_8(above, below, width, to);
    else if (width >= 4)
        pool_row_4(above, below, width, to);
    return width >= 4;
}

static inline bool spread_row(const float *above, const float *below, const float *g, int64_t width,
                              float *to_above, float *to_below)
{
    if (width >= 8)
        spread_row_8(above, below, g, width, to_above, to_below);
    else if (width >= 4)
        spread_row_4(above, below, g, width, to_above, to_below);
    return width >= 4;
}

#define POOL_ROW   pool_row
#define SPREAD_ROW spread_row

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
