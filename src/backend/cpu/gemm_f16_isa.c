/* backend/cpu/gemm_f16_isa.c: products of f16, widened; gemm_bf16_isa.c is the same of bfloat16. */
#define HALF       f16
#define HALF_DTYPE GD_F16
#include "backend/cpu/gemm_widened.h"
