/* backend/cpu/cpu.c: the CPU as a device: its memory, its threads, and the choice of kernels. Start
 * at cpu_open.
 *
 * The instruction set is chosen once, when the device is opened; kernels are then reached through
 * the device's table, and the few that need more (the matrix product, elementwise loops) through
 * gd_cpu_device.
 */
#include "backend/cpu/cpu.h"
#include "backend/cpu/attention.h"
#include "backend/cpu/conv_micro.h"
#include "backend/cpu/elementwise.h"
#include "backend/cpu/gemm_half.h"
#include "backend/cpu/norm.h"
#include "backend/cpu/pooling.h"
#include "backend/cpu/recurrent.h"
#include "backend/cpu/reduce.h"
#include "backend/cpu/softmax.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/threads.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

typedef void (*register_fn)(gd_kernel_fn *kernel);

/* What is compiled once per instruction set. */
typedef struct isa_kernels {
    register_fn elementwise, reduce, softmax, norm, attention, recurrent, pooling;
    const gd_gemm_micro *gemm_f32, *gemm_f64;
    gd_quantized_kernels quantized;
    const gd_conv_micro *conv_f32;
} isa_kernels;

#define KERNELS_OF(isa)                                                                     \
    {                                                                                       \
        gd_cpu_register_elementwise_##isa, gd_cpu_register_reduce_##isa,                    \
            gd_cpu_register_softmax_##isa, gd_cpu_register_norm_##isa,                      \
            gd_cpu_register_attention_##isa, gd_cpu_register_recurrent_##isa,               \
            gd_cpu_register_pooling_##isa, &gd_gemm_f32_##isa, &gd_gemm_f64_##isa,          \
            { gd_quantize_rows_##isa, gd_quantized_columns_##isa, gd_quantized_tiles_##isa, \
              gd_grouped_tiles_##isa },                                                     \
            &gd_conv_f32_##isa                                                              \
    }
static const isa_kernels kernels[GD_ISA_COUNT] = {
    [GD_ISA_BASELINE] = KERNELS_OF(baseline),
#ifdef GD_HAVE_AVX2
    [GD_ISA_AVX2] = KERNELS_OF(avx2),
#endif
#ifdef GD_HAVE_AVX512
    [GD_ISA_AVX512] = KERNELS_OF(avx512),
#endif
#ifdef GD_HAVE_NEON
    [GD_ISA_NEON] = KERNELS_OF(neon),
#endif
};

/* Measured on Zen 4. */
static const gd_device_limits limits = {
    .group_inputs = GD_FUSED_MAX_INPUTS,
    .group_results = GD_FUSED_MAX_EXTRA,
    .group_instructions = GD_FUSED_MAX_ELEMENTWISE,
    .row_group_instructions = GD_FUSED_MAX_INSTRUCTIONS,
    .row_length = GD_FUSED_MOST_ROW,
    .products_commute = true,
    .group_draws = true,
    .group_distance = 12,
    .row_group_distance = 64,
    .together_result = 4 * 1024,
    .together_waiting = 64 * 1024,
};

/* Ops that are computed as elementwise programs. */
static bool is_program(const gd_op *op)
{
    return (op->flags & GD_OP_ELEMENTWISE) || op->id == GD_OP_cast || op->id == GD_OP_copy ||
           op->id == GD_OP_fused || gd_is_adam(op->id);
}

/* The scratch of a call: bytes for each of some threads. */
typedef gd_workspace (*scratch_fn)(const gd_kernel_call *call);
/* Adds how a call is computed, and why. */
typedef void (*explain_fn)(const gd_kernel_call *call, gd_text *text);

/* Else the order of a reduction would be another than that of a cast operand, which is contiguous. */
static bool is_contiguous(const gd_kernel_call *call)
{
    return gd_layout_is_contiguous(call->in[0].layout);
}

/* Kernels that take scratch, have more than one way, or read f16 and bf16 that they compute with in f32
 * (gd_device.takes_halves); elementwise programs have gd_ew_scratch. */
static const struct {
    scratch_fn scratch;
    explain_fn explain;
    gd_takes_fn takes_halves;
} ways[GD_OP_COUNT] = {
    [GD_OP_matmul] = { gd_cpu_product_scratch, gd_cpu_product_explain, NULL },
    [GD_OP_linear] = { gd_cpu_product_scratch, gd_cpu_product_explain, NULL },
    [GD_OP_matmul_relu_grad] = { gd_cpu_product_scratch, gd_cpu_product_explain, NULL },
    [GD_OP_quantized_linear] = { gd_cpu_quantized_scratch, gd_cpu_quantized_explain, NULL },
    [GD_OP_convolution] = { gd_cpu_convolution_scratch, gd_cpu_convolution_explain, NULL },
    [GD_OP_convolution_grad_input] = { gd_cpu_convolution_scratch, gd_cpu_convolution_explain,
                                       NULL },
    [GD_OP_convolution_grad_weight] = { gd_cpu_convolution_scratch, gd_cpu_convolution_explain,
                                        NULL },
    [GD_OP_attention] = { gd_attention_scratch, gd_attention_explain, NULL },
    [GD_OP_attention_grad] = { gd_attention_scratch, gd_attention_explain, NULL },
    [GD_OP_attention_narrow] = { gd_attention_scratch, gd_attention_explain, NULL },
    [GD_OP_recurrent] = { gd_recurrent_scratch, gd_recurrent_explain, NULL },
    [GD_OP_recurrent_grad] = { gd_recurrent_scratch, gd_recurrent_explain, NULL },
    [GD_OP_sum] = { gd_reduce_scratch, gd_reduce_explain, is_contiguous },
    [GD_OP_prod] = { gd_reduce_scratch, gd_reduce_explain, is_contiguous },
    [GD_OP_max] = { gd_reduce_scratch, gd_reduce_explain, is_contiguous },
    [GD_OP_min] = { gd_reduce_scratch, gd_reduce_explain, is_contiguous },
    [GD_OP_argmax] = { gd_arg_reduce_scratch, NULL, gd_arg_reduce_takes_halves },
    [GD_OP_argmin] = { gd_arg_reduce_scratch, NULL, gd_arg_reduce_takes_halves },
    [GD_OP_cumsum] = { gd_scan_scratch, NULL, is_contiguous },
    [GD_OP_cumprod] = { gd_scan_scratch, NULL, is_contiguous },
    [GD_OP_softmax] = { gd_softmax_scratch, NULL, gd_softmax_takes_halves },
    [GD_OP_log_softmax] = { gd_softmax_scratch, NULL, gd_softmax_takes_halves },
    [GD_OP_max_pool] = { gd_pool_scratch, NULL, gd_pool_takes_halves },
    [GD_OP_max_pool_grad] = { gd_pool_scratch, NULL, gd_pool_takes_halves },
    [GD_OP_avg_pool] = { gd_pool_scratch, NULL, gd_pool_takes_halves },
    [GD_OP_avg_pool_grad] = { gd_pool_scratch, NULL, gd_pool_takes_halves },
    [GD_OP_normalize] = { gd_norm_scratch, NULL, gd_norm_takes_halves },
    [GD_OP_normalize_grad] = { gd_norm_scratch, NULL, gd_norm_takes_halves },
    [GD_OP_centred_products] = { gd_centred_scratch, NULL, gd_centred_takes_halves },
    [GD_OP_cross_entropy] = { gd_softmax_scratch, NULL, gd_softmax_takes_halves },
    [GD_OP_cross_entropy_grad] = { gd_softmax_scratch, NULL, gd_softmax_takes_halves },
};

static bool takes_halves(const gd_kernel_call *call)
{
    const gd_takes_fn takes = ways[call->op->id].takes_halves;
    return takes && takes(call);
}

static void fill_table(gd_cpu_device *cpu)
{
    const isa_kernels *chosen = &kernels[cpu->isa];
    cpu->gemm_f32 = chosen->gemm_f32;
    cpu->gemm_f64 = chosen->gemm_f64;
    cpu->gemm_bf16 = gd_gemm_bf16(cpu->isa);
    cpu->gemm_f16 = gd_gemm_f16(cpu->isa);
    cpu->quantized = chosen->quantized;
#ifdef GD_HAVE_AVX512_VNNI
    if (cpu->isa == GD_ISA_AVX512 && gd_cpu_may_use(GD_CPU_AVX512_VNNI))
        cpu->quantized = (gd_quantized_kernels){ gd_quantize_rows_vnni, gd_quantized_columns_vnni,
                                                 gd_quantized_tiles_vnni, gd_grouped_tiles_vnni };
#endif
#ifdef GD_HAVE_NEON_DOTPROD
    if (cpu->isa == GD_ISA_NEON && gd_cpu_may_use(GD_CPU_NEON_DOTPROD))
        cpu->quantized =
            (gd_quantized_kernels){ gd_quantize_rows_dotprod, gd_quantized_columns_dotprod,
                                    gd_quantized_tiles_dotprod, chosen->quantized.grouped };
#endif
    cpu->conv_f32 = chosen->conv_f32;
#ifdef GD_HAVE_AVX512
    if (cpu->isa == GD_ISA_AVX512)
        cpu->conv_bf16 = &gd_conv_bf16_avx512;
#endif
    chosen->elementwise(cpu->base.kernel);
    chosen->reduce(cpu->base.kernel);
    chosen->softmax(cpu->base.kernel);
    chosen->norm(cpu->base.kernel);
    chosen->attention(cpu->base.kernel);
    chosen->recurrent(cpu->base.kernel);
    chosen->pooling(cpu->base.kernel);
    cpu->base.takes[GD_OP_fused] = gd_ew_takes_group;
    cpu->base.takes[GD_OP_convolution] = gd_cpu_convolution_takes;
    cpu->base.takes[GD_OP_convolution_grad_input] = gd_cpu_convolution_takes;
    cpu->base.takes[GD_OP_convolution_grad_weight] = gd_cpu_convolution_takes;
    cpu->base.takes[GD_OP_recurrent] = gd_recurrent_takes;
    cpu->base.takes[GD_OP_recurrent_grad] = gd_recurrent_takes;
    cpu->base.takes[GD_OP_attention] = gd_attention_takes;
    cpu->base.takes[GD_OP_attention_grad] = gd_attention_takes;
    cpu->base.takes[GD_OP_attention_narrow] = gd_attention_takes;
    gd_cpu_register_memory(cpu->base.kernel);
    gd_cpu_register_sort(cpu->base.kernel);
    gd_cpu_register_matmul(cpu->base.kernel);
    gd_cpu_register_quantized(cpu->base.kernel);
    gd_cpu_register_ctc(cpu->base.kernel);
    gd_cpu_register_convolution(cpu->base.kernel);
    gd_cpu_register_pooling(cpu->base.kernel);
}

static void free_workspace(gd_cpu_device *cpu)
{
    const gd_workspace *w = &cpu->workspace;
    gd_unpoison(w->memory, (size_t)w->threads * w->bytes);
    gd_free_aligned(w->memory);
}

static gd_status cpu_set_threads(gd_device *device, int threads)
{
    gd_cpu_device *cpu = (gd_cpu_device *)device;
    if (threads < 1 || threads > GD_MAX_THREADS)
        return gd_fail(GD_ERR_INVALID, "cpu: %d threads asked for, 1 to %d are possible", threads,
                       GD_MAX_THREADS);
    if (threads == device->threads)
        return GD_OK;
    const size_t bytes = gd_scratch_bytes(gd_gemm_scratch_bytes(&cpu->paths) + GD_CPU_WIDE_SCRATCH +
                                              (cpu->fast ? GD_CONV_FAST_SCRATCH : 0),
                                          GD_CPU_SCRATCH_BLOCKS);
    void *memory = gd_alloc_aligned((size_t)threads * bytes, GD_SCRATCH_ALIGN);
    if (!memory)
        return GD_ERR_MEMORY;
    free_workspace(cpu);
    cpu->workspace = (gd_workspace){ memory, bytes, threads };
    device->threads = threads;
    return GD_OK;
}

static void cpu_close(gd_device *device)
{
    gd_cpu_device *cpu = (gd_cpu_device *)device;
    if (!cpu)
        return;
    free_workspace(cpu);
    gd_free(cpu);
}

static void name_extensions(gd_cpu_device *cpu)
{
    size_t length = 0;
    for (int e = 0; e < GD_CPU_EXTENSION_COUNT; e++)
        if (gd_cpu_may_use((gd_cpu_extension)e))
            length +=
                (size_t)snprintf(cpu->extensions + length, sizeof cpu->extensions - length, "%s%s",
                                 length ? "+" : "", gd_cpu_extension_name((gd_cpu_extension)e));
    cpu->base.extensions = cpu->extensions;
}

static gd_device *cpu_open(const gd_open_options *options, int index)
{
    (void)index;
    gd_numbers numbers;
    gd_isa isa = gd_isa_choose();
    if (isa == GD_ISA_COUNT || gd_numbers_choose(options->numbers, &numbers) != GD_OK)
        return NULL;
    gd_cpu_device *cpu = gd_alloc_zero(1, sizeof *cpu);
    if (!cpu)
        return NULL;
    cpu->base.backend = &gd_backend_cpu;
    cpu->base.name = gd_backend_cpu.name;
    cpu->base.isa = gd_isa_name(isa);
    cpu->base.half_products = GD_DTYPE_SET(GD_BF16) | GD_DTYPE_SET(GD_F16);
    cpu->base.half_recurrent = true;
    cpu->base.takes_halves = takes_halves;
    cpu->base.host_memory = true;
    cpu->base.alignment = 64;
    cpu->base.limits = limits;
    cpu->isa = isa;
    cpu->fast = numbers == GD_NUMBERS_FAST; /* a library's numbers are those of other devices */
    name_extensions(cpu);
    fill_table(cpu);
    int threads = options->threads == -1 ? gd_thread_count_default() : options->threads;
    if (gd_paths_read(&cpu->paths) != GD_OK || cpu_set_threads(&cpu->base, threads) != GD_OK) {
        cpu_close(&cpu->base);
        return NULL;
    }
    if (cpu->fast)
        cpu->gemm_fast = gd_gemm_bf16x3(isa, cpu->paths.matmul == GD_MATMUL_BF16X3);
    return &cpu->base;
}

/* ---- memory ---- */

#define HUGE_PAGE ((size_t)2 << 20)

/* Memory of at least a huge page is aligned to one and asks for them: the first touch of a page is
 * what new memory costs, and a huge page is 512 small ones. The block to free stands just before
 * the memory. */
static void *alloc_huge(size_t bytes)
{
    size_t room = HUGE_PAGE + sizeof(void *);
    if (bytes > SIZE_MAX - room) {
        gd_fail_memory(bytes);
        return NULL;
    }
    char *block = gd_alloc(bytes + room);
    if (!block)
        return NULL;
    uintptr_t first = (uintptr_t)block + sizeof(void *);
    char *memory = (char *)first + (-first & (HUGE_PAGE - 1));
    memcpy(memory - sizeof(void *), &block, sizeof block);
#ifdef MADV_HUGEPAGE
    madvise(memory, bytes & ~(HUGE_PAGE - 1),
            MADV_HUGEPAGE); /* a wish: nothing is lost where it is not granted */
#endif
    return memory;
}

static void *cpu_memory_alloc(gd_device *device, size_t bytes)
{
    (void)device;
    return bytes >= HUGE_PAGE ? alloc_huge(bytes) : gd_alloc_aligned(bytes, 64);
}

static void cpu_memory_free(gd_device *device, void *memory, size_t bytes)
{
    (void)device;
    if (!memory)
        return;
    if (bytes >= HUGE_PAGE) {
        void *block;
        memcpy(&block, (char *)memory - sizeof(void *), sizeof block);
        gd_free(block);
    } else {
        gd_free_aligned(memory);
    }
}

static gd_status cpu_memory_copy(gd_device *device, void *to, const void *from, size_t bytes)
{
    (void)device;
    if (bytes > 0)
        memcpy(to, from, bytes);
    return GD_OK;
}

/* ---- plans ---- */

static size_t cpu_prepare_bytes(const gd_kernel_call *call)
{
    if (gd_cpu_is_product(call))
        return gd_cpu_product_prepare_bytes();
    return is_program(call->op) ? gd_ew_prepare_bytes() : 0;
}

static gd_status cpu_prepare(const gd_kernel_call *call, void *memory)
{
    return gd_cpu_is_product(call) ? gd_cpu_product_prepare(call, memory)
                                   : gd_ew_prepare(call, memory);
}

static gd_kernel_scratch cpu_scratch(const gd_kernel_call *call)
{
    const scratch_fn scratch = is_program(call->op) ? gd_ew_scratch : ways[call->op->id].scratch;
    if (!scratch)
        return (gd_kernel_scratch){ 0 };
    const gd_workspace w = scratch(call);
    return (gd_kernel_scratch){ .bytes = w.bytes,
                                .areas = w.threads,
                                .threads = call->device->threads };
}

static void cpu_explain(const gd_kernel_call *call, gd_text *text)
{
    if (ways[call->op->id].explain)
        ways[call->op->id].explain(call, text);
}

const gd_backend gd_backend_cpu = {
    .name = "cpu",
    .has_fast = true,
    .open = cpu_open,
    .close = cpu_close,
    .set_threads = cpu_set_threads,
    .memory_alloc = cpu_memory_alloc,
    .memory_free = cpu_memory_free,
    .memory_write = cpu_memory_copy,
    .memory_read = cpu_memory_copy,
    .memory_copy = cpu_memory_copy,
    .memory_size = gd_host_memory_size,
    .prepare_bytes = cpu_prepare_bytes,
    .prepare = cpu_prepare,
    .pack_bytes = gd_cpu_product_pack_bytes,
    .pack = gd_cpu_product_pack,
    .scratch = cpu_scratch,
    .explain = cpu_explain,
    .run_together = gd_ew_run_together,
};
