/* bench/onednn.h: oneDNN, a peer of the products and convolutions: version 3, where CMake finds it
 * (GD_HAVE_DNNL). Products are its matmul primitive. */
#ifndef GD_BENCH_ONEDNN_H
#define GD_BENCH_ONEDNN_H

#ifdef GD_HAVE_DNNL
#include <dnnl.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* C [batch, m, n] = A [batch, m, k] times B [batch, k, n], each of numbers of `type` without gaps;
 * `transposed`: its matrices lie column after column. */
typedef struct gd_bench_onednn_product {
    dnnl_data_type_t type;
    int64_t batch, m, k, n;
    bool a_transposed, b_transposed;
    void *a, *b, *c;
    dnnl_engine_t engine; /* from here on gd_bench_onednn_open() fills */
    dnnl_stream_t stream;
    dnnl_primitive_t primitive;
    dnnl_memory_t memory[3];
} gd_bench_onednn_product;

/* What it lacks for this product ends the program. */
void gd_bench_onednn_open(gd_bench_onednn_product *product);
void gd_bench_onednn_run(gd_bench_onednn_product *product);
void gd_bench_onednn_close(gd_bench_onednn_product *product);

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
