/* backend/cpu/quantized_isa.c: products with weights in blocks on each instruction set. */
#include "backend/cpu/isa.h"

#define NAME(function) GD_ISA_NAME(function)
#if defined(GD_ISA_AVX2_BUILD) || defined(GD_ISA_AVX512_BUILD)
#define WITH_AVX2 1
#endif
#include "backend/cpu/quantized_loops.h"
