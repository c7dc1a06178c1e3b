/* bench/onednn.h: oneDNN, a peer of the products and convolutions: version 3, where CMake finds it
 * (GD_HAVE_DNNL). */
#ifndef GD_BENCH_ONEDNN_H
#define GD_BENCH_ONEDNN_H

#ifdef GD_HAVE_DNNL
#include <dnnl.h>

#include <stdio.h>

/* "oneDNN 3.2.0, avx512_core_amx": the version, and the instruction set it chose. */
static inline void gd_bench_onednn_name(char *name, size_t size)
{
    static const struct {
        dnnl_cpu_isa_t isa;
        const char *name;
    } sets[] = { { dnnl_cpu_isa_avx512_core_amx_fp16, "avx512_core_amx_fp16" },
                 { dnnl_cpu_isa_avx512_core_amx, "avx512_core_amx" },
                 { dnnl_cpu_isa_avx512_core_fp16, "avx512_core_fp16" },
                 { dnnl_cpu_isa_avx512_core_bf16, "avx512_core_bf16" },
                 { dnnl_cpu_isa_avx512_core_vnni, "avx512_core_vnni" },
                 { dnnl_cpu_isa_avx512_core, "avx512_core" },
                 { dnnl_cpu_isa_avx2_vnni_2, "avx2_vnni_2" },
                 { dnnl_cpu_isa_avx2_vnni, "avx2_vnni" },
                 { dnnl_cpu_isa_avx2, "avx2" },
                 { dnnl_cpu_isa_sse41, "sse41" } };
    const dnnl_version_t *version = dnnl_version();
    const char *isa = "other";
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        if (dnnl_get_effective_cpu_isa() == sets[i].isa)
            isa = sets[i].name;
    snprintf(name, size, "oneDNN %d.%d.%d, %s", version->major, version->minor, version->patch,
             isa);
}
#endif

#endif
