/* backend/cpu/gemm_bf16_isa.c: products of bfloat16, widened; gemm_f16_isa.c is the same of f16. */
#define HALF       bf16
#define HALF_DTYPE GD_BF16
#include "backend/cpu/gemm_widened.h"
