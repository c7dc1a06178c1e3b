/* backend/cpu/cpu.h: the CPU device and how its kernel table is filled: for the instruction set
 * chosen at start, each group of kernels puts its functions into the rows it has. */
#ifndef GD_BACKEND_CPU_CPU_H
#define GD_BACKEND_CPU_CPU_H

#include "backend/backend.h"
#include "backend/cpu/conv.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/quantized.h"
#include "backend/cpu/scratch.h"
#include "base/cpu.h"

typedef struct gd_cpu_device {
    gd_device base; /* first: a gd_device is one of these when its back end is the CPU's */
    gd_isa isa;
    char extensions[64]; /* of gd_context_extensions */
    const gd_gemm_micro *gemm_f32, *gemm_f64, *gemm_bf16, *gemm_f16;
    const gd_gemm_micro *gemm_fast; /* of large products of f32; NULL: the one above */
    gd_quantized_kernels quantized;
    const struct gd_conv_micro *conv_f32, *conv_bf16; /* the last NULL: there is none */
    gd_paths paths;
    bool fast;              /* the numbers of gd_numbers */
    gd_workspace workspace; /* of kernels whose call has none */
} gd_cpu_device;

/* What a kernel may take of a thread's scratch beside the products that it asks for. */
#define GD_CPU_SCRATCH        ((size_t)256 * 1024)
#define GD_CPU_WIDE_SCRATCH   ((size_t)929 * 1024) /* attention */
#define GD_CPU_SCRATCH_BLOCKS 256                  /* in so many blocks */

/* Where a call works: in the memory that its plan placed for it, made for as many threads as there
 * are; else in the device's. */
static inline gd_workspace gd_workspace_of(const gd_kernel_call *call)
{
    const gd_kernel_scratch *s = &call->scratch;
    if (s->memory && s->threads == call->device->threads)
        return (gd_workspace){ s->memory, s->bytes, s->areas };
    return ((const gd_cpu_device *)call->device)->workspace;
}

/* Scratch of one thread (0 … threads-1) in a parallel region. */
static inline gd_scratch gd_scratch_of(const gd_kernel_call *call, int thread)
{
    const gd_workspace w = gd_workspace_of(call);
    return gd_scratch_of_thread(&w, thread);
}

/* Kernel groups. Each writes kernel[GD_OP_x] for the ops it implements. */
#define GD_CPU_DECLARE_ISA(isa)                                                                \
    void gd_cpu_register_elementwise_##isa(                                                    \
        gd_kernel_fn *kernel); /* elementwise rows, cast, copy, fused */                       \
    void gd_cpu_register_reduce_##isa(                                                         \
        gd_kernel_fn *kernel); /* sum prod max min argmax argmin cumsum cumprod */             \
    void gd_cpu_register_softmax_##isa(                                                        \
        gd_kernel_fn *kernel); /* softmax log_softmax cross_entropy cross_entropy_grad */      \
    void gd_cpu_register_norm_##isa(                                                           \
        gd_kernel_fn *kernel); /* normalize normalize_grad centred_products */                 \
    void gd_cpu_register_attention_##isa(gd_kernel_fn *kernel); /* attention attention_grad */ \
    void gd_cpu_register_recurrent_##isa(gd_kernel_fn *kernel); /* recurrent recurrent_grad */ \
    void gd_cpu_register_pooling_##isa(gd_kernel_fn *kernel);   /* max_pool max_pool_grad */
GD_CPU_DECLARE_ISA(baseline)
GD_CPU_DECLARE_ISA(avx2)
GD_CPU_DECLARE_ISA(avx512)
GD_CPU_DECLARE_ISA(neon)
void gd_cpu_register_memory(
    gd_kernel_fn *kernel); /* full iota random_bits dropout pad concat gather scatter_add assign */
void gd_cpu_register_sort(gd_kernel_fn *kernel);   /* argsort searchsorted */
void gd_cpu_register_matmul(gd_kernel_fn *kernel); /* matmul linear */
/* Of matmul, linear and matmul_relu_grad in floats: a plan (gemm_plan.h). */
bool gd_cpu_is_product(const gd_kernel_call *call);
size_t gd_cpu_product_prepare_bytes(void);
gd_status gd_cpu_product_prepare(const gd_kernel_call *call, void *memory);
/* Its second operand packed once: gd_backend.pack. */
size_t gd_cpu_product_pack_bytes(const gd_kernel_call *call);
void gd_cpu_product_pack(const gd_kernel_call *call, void *memory);
gd_workspace gd_cpu_product_scratch(const gd_kernel_call *call);
gd_workspace gd_cpu_convolution_scratch(const gd_kernel_call *call);
gd_workspace gd_cpu_quantized_scratch(const gd_kernel_call *call);
void gd_cpu_product_explain(const gd_kernel_call *call, gd_text *text);
bool gd_cpu_convolution_takes(const gd_kernel_call *call);
void gd_cpu_convolution_explain(const gd_kernel_call *call, gd_text *text);
void gd_cpu_quantized_explain(const gd_kernel_call *call, gd_text *text);
/* "; 2 threads" */
static inline void gd_cpu_explain_threads(gd_text *text, int threads)
{
    gd_text_add(text, "; %d thread%s", threads, threads == 1 ? "" : "s");
}
void gd_cpu_register_quantized(gd_kernel_fn *kernel);   /* quantized_linear */
void gd_cpu_register_ctc(gd_kernel_fn *kernel);         /* ctc_alpha ctc_alpha_grad */
void gd_cpu_register_convolution(gd_kernel_fn *kernel); /* convolution and its gradients */
void gd_cpu_register_pooling(gd_kernel_fn *kernel);     /* max_pool_index avg_pool… */

#endif
