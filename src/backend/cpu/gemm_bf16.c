/* backend/cpu/gemm_bf16.c: which kernels multiply bfloat16. */
#include "backend/cpu/gemm_bf16.h"

/* A row each, best first. */
static const struct {
    gd_isa isa;
    int extension; /* that the processor must have: gd_cpu_extension, or -1 */
    const gd_gemm_micro *micro;
} rows[] = {
#ifdef GD_HAVE_AMX_BF16
    { GD_ISA_AVX512, GD_CPU_AMX_BF16, &gd_gemm_bf16_tiles },
#endif
#ifdef GD_HAVE_AVX512_BF16
    { GD_ISA_AVX512, GD_CPU_AVX512_BF16, &gd_gemm_bf16_pairs },
#endif
#ifdef GD_HAVE_AVX512
    { GD_ISA_AVX512, -1, &gd_gemm_bf16_avx512 },
#endif
#ifdef GD_HAVE_AVX2
    { GD_ISA_AVX2, -1, &gd_gemm_bf16_avx2 },
#endif
#ifdef GD_HAVE_NEON
    { GD_ISA_NEON, -1, &gd_gemm_bf16_neon },
#endif
    { GD_ISA_BASELINE, -1, &gd_gemm_bf16_baseline },
};

const gd_gemm_micro *gd_gemm_bf16(gd_isa isa)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].isa == isa &&
            (rows[i].extension < 0 || gd_cpu_may_use((gd_cpu_extension)rows[i].extension)))
            return rows[i].micro;
    return NULL;
}
