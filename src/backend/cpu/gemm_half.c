/* backend/cpu/gemm_half.c: which kernels multiply bfloat16 and f16. */
#include "backend/cpu/gemm_half.h"

/* A row each, best first. */
struct half_row {
    gd_isa isa;
    int extension; /* that the processor must have: gd_cpu_extension, or -1 */
    const gd_gemm_micro *micro;
};
static const struct half_row bf16_rows[] = {
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
#ifdef GD_HAVE_NEON_BF16
    { GD_ISA_NEON, GD_CPU_NEON_BF16, &gd_gemm_bf16_mmla },
#endif
#ifdef GD_HAVE_NEON
    { GD_ISA_NEON, -1, &gd_gemm_bf16_neon },
#endif
    { GD_ISA_BASELINE, -1, &gd_gemm_bf16_baseline },
};

/* The same of f16, which no processor multiplies with sums in f32. */
static const struct half_row f16_rows[] = {
#ifdef GD_HAVE_AVX512
    { GD_ISA_AVX512, -1, &gd_gemm_f16_avx512 },
#endif
#ifdef GD_HAVE_AVX2
    { GD_ISA_AVX2, -1, &gd_gemm_f16_avx2 },
#endif
#ifdef GD_HAVE_NEON
    { GD_ISA_NEON, -1, &gd_gemm_f16_neon },
#endif
    { GD_ISA_BASELINE, -1, &gd_gemm_f16_baseline },
};

static const gd_gemm_micro *best_of(const struct half_row *rows, size_t count, gd_isa isa)
{
    for (size_t i = 0; i < count; i++)
        if (rows[i].isa == isa &&
            (rows[i].extension < 0 || gd_cpu_may_use((gd_cpu_extension)rows[i].extension)))
            return rows[i].micro;
    return NULL;
}

const gd_gemm_micro *gd_gemm_bf16(gd_isa isa)
{
    return best_of(bf16_rows, sizeof bf16_rows / sizeof bf16_rows[0], isa);
}

const gd_gemm_micro *gd_gemm_f16(gd_isa isa)
{
    return best_of(f16_rows, sizeof f16_rows / sizeof f16_rows[0], isa);
}

/* AVX512-BF16, by which numbers are taken apart, multiplies at most twice as fast as f32's instructions: three
 * products take longer. AMX does so sixteen times as fast. */
const gd_gemm_micro *gd_gemm_bf16x3(gd_isa isa, bool is_asked)
{
    (void)isa;
    (void)is_asked;
#ifdef GD_HAVE_AVX512_BF16
#ifdef GD_HAVE_AMX_BF16
    if (isa == GD_ISA_AVX512 && gd_cpu_may_use(GD_CPU_AMX_BF16) && gd_cpu_has(GD_CPU_AVX512_BF16))
        return &gd_gemm_bf16x3_tiles;
#endif
    if (isa == GD_ISA_AVX512 && is_asked && gd_cpu_may_use(GD_CPU_AVX512_BF16))
        return &gd_gemm_bf16x3_pairs;
#endif
    return NULL;
}
