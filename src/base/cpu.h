/* base/cpu.h: what this processor can do, and which kernels to use. */
#ifndef GD_BASE_CPU_H
#define GD_BASE_CPU_H

#include <stdbool.h>
#include <stddef.h>

typedef enum gd_isa {
    GD_ISA_BASELINE,
    GD_ISA_AVX2,
    GD_ISA_AVX512,
    GD_ISA_NEON,
    GD_ISA_COUNT
} gd_isa;

/* "baseline", "avx2", "avx512", "neon" */
const char *gd_isa_name(gd_isa isa);

/* The name's ISA, or GD_ISA_COUNT when there is none. */
gd_isa gd_isa_parse(const char *name);

/* Whether this processor and operating system run code for `isa` (AVX2 means AVX2+FMA+F16C; AVX512
 * means F, DQ, BW, VL), and the library was built with kernels for it. */
bool gd_isa_available(gd_isa isa);

/* The best available, or what GRADUS_ISA asks for: an instruction set's name, or extensions', which
 * ask for their instruction set, too, with plus signs between them: "avx512_vnni+avx512_bf16". An unknown or
 * unavailable name is GD_ERR_INVALID / GD_ERR_UNSUPPORTED (recorded) and returns GD_ISA_COUNT. */
gd_isa gd_isa_choose(void);

/* What some processors of an instruction set have besides it: products of bfloat16 and
 * of bytes. */
typedef enum gd_cpu_extension {
    GD_CPU_AVX512_BF16,
    GD_CPU_AMX_BF16,
    GD_CPU_AVX512_VNNI,
    GD_CPU_NEON_BF16,    /* FEAT_BF16 of Armv8.6 */
    GD_CPU_NEON_DOTPROD, /* FEAT_DotProd of Armv8.2 */
    GD_CPU_EXTENSION_COUNT
} gd_cpu_extension;

/* Whether this processor has it and the operating system lets this process use it, for which it is
 * asked here, and the library was built with kernels for it. */
bool gd_cpu_has(gd_cpu_extension extension);

/* "avx512_bf16", "amx_bf16", "avx512_vnni", "neon_bf16", "neon_dotprod" */
const char *gd_cpu_extension_name(gd_cpu_extension extension);

/* Whether kernels may use it: the processor has it, and GRADUS_ISA names it, or is unset and it is
 * faster than doing without. So an instruction set's name there forbids all extensions. */
bool gd_cpu_may_use(gd_cpu_extension extension);

/* Data cache sizes in bytes of level 1, 2, 3; a sensible guess where the system does not tell. */
size_t gd_cache_bytes(int level);

/* Cores this process may run on (its affinity mask), at least 1. */
int gd_cpu_count(void);

/* Bytes of memory of this machine, and how many a program could still get; 0: not known. */
void gd_memory_of_machine(size_t *total, size_t *unused);

/* "AMD EPYC 9R14" or "unknown". */
const char *gd_cpu_model(void);

#endif
