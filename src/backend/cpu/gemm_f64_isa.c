/* backend/cpu/gemm_f64_isa.c: gemm_f32_isa.c in f64. */
#define GD_GEMM_F64
#include "backend/cpu/gemm_kernels.h"
