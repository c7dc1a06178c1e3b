/* tests/support/bf16_targets.h: the instruction sets and extensions that have kernels for products of
 * bfloat16, each of which tests ask for by GRADUS_ISA. */
#ifndef GD_TESTS_BF16_TARGETS_H
#define GD_TESTS_BF16_TARGETS_H

#include "base/cpu.h"
#include "support/effort.h"
#include "support/tensors.h"

typedef struct target {
    const char *name; /* in GRADUS_ISA */
    gd_isa isa;
    int extension; /* or -1 */
    const char *kernel;
} target;

static const target targets[] = {
    { "baseline", GD_ISA_BASELINE, -1, "widened to f32" },
    { "avx2", GD_ISA_AVX2, -1, "widened to f32" },
    { "avx512", GD_ISA_AVX512, -1, "widened to f32" },
    { "neon", GD_ISA_NEON, -1, "widened to f32" },
    { "avx512_bf16", GD_ISA_AVX512, GD_CPU_AVX512_BF16, "AVX512-BF16" },
    { "amx_bf16", GD_ISA_AVX512, GD_CPU_AMX_BF16, "AMX" },
    { "neon_bf16", GD_ISA_NEON, GD_CPU_NEON_BF16, "BFMMLA" },
};

/* An instruction set that the build was not given kernels for is left out, too. */
static gd_context *open_target(const target *t, int threads)
{
    const bool runs =
        test_tries_isa(t->isa) && (t->extension < 0 || gd_cpu_has((gd_cpu_extension)t->extension));
    return runs ? open_cpu(t->name, threads) : NULL;
}

#endif
