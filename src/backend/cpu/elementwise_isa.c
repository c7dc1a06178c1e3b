/* backend/cpu/elementwise_isa.c: the table and registration of all elementwise loops of one
 * instruction set. The loops are in elementwise_f32_isa.c, elementwise_f64_isa.c and
 * elementwise_integer_isa.c. */
#include "backend/cpu/elementwise.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/reduce_isa.h"

extern const gd_ew_loop GD_ISA_NAME(gd_ew_ops_f32)[GD_OP_ELEMENTWISE_COUNT];
extern const gd_ew_loop GD_ISA_NAME(gd_ew_ops_f64)[GD_OP_ELEMENTWISE_COUNT];
extern const gd_ew_loop GD_ISA_NAME(gd_ew_ops_i32)[GD_OP_ELEMENTWISE_COUNT];
extern const gd_ew_loop GD_ISA_NAME(gd_ew_ops_i64)[GD_OP_ELEMENTWISE_COUNT];
extern const gd_ew_loop GD_ISA_NAME(gd_ew_ops_u8)[GD_OP_ELEMENTWISE_COUNT];
extern const gd_ew_loop GD_ISA_NAME(gd_ew_ops_half)[GD_OP_ELEMENTWISE_COUNT];
extern const gd_ew_loop GD_ISA_NAME(gd_ew_ops_i8)[GD_OP_ELEMENTWISE_COUNT],
    GD_ISA_NAME(gd_ew_ops_i16)[GD_OP_ELEMENTWISE_COUNT],
    GD_ISA_NAME(gd_ew_ops_u16)[GD_OP_ELEMENTWISE_COUNT],
    GD_ISA_NAME(gd_ew_ops_u32)[GD_OP_ELEMENTWISE_COUNT],
    GD_ISA_NAME(gd_ew_ops_u64)[GD_OP_ELEMENTWISE_COUNT];
extern const gd_ew_loop GD_ISA_NAME(gd_ew_casts)[GD_DTYPE_COUNT][GD_DTYPE_COUNT];
#define DECLARE_COPY(name)                                                                   \
    void GD_ISA_NAME(name)(const void *x, int64_t row_stride, int64_t col_stride, void *out, \
                           int64_t out_row_stride, int64_t rows, int64_t cols);
DECLARE_COPY(gd_ew_copy_8)
DECLARE_COPY(gd_ew_copy_16)
DECLARE_COPY(gd_ew_copy_32)
DECLARE_COPY(gd_ew_copy_64)
#if defined(GD_ISA_AVX512_BUILD)
DECLARE_COPY(gd_ew_copy_streamed_32)
DECLARE_COPY(gd_ew_copy_streamed_64)
#else
#define gd_ew_copy_streamed_32 gd_ew_copy_32
#define gd_ew_copy_streamed_64 gd_ew_copy_64
#endif
void GD_ISA_NAME(gd_ew_stream)(void *to, const void *from, size_t bytes);
void GD_ISA_NAME(gd_ew_chain)(const gd_ew_link *links, char *const *slot, int64_t begin,
                              int64_t end, int64_t row);
void GD_ISA_NAME(gd_ew_adam_f32)(const void *const *from, void *const *to, int64_t n);
void GD_ISA_NAME(gd_ew_adam_bf16)(const void *const *from, void *const *to, int64_t n);

const gd_ew_table GD_ISA_NAME(gd_ew_table) = {
    .op = {
        [GD_F32] = GD_ISA_NAME(gd_ew_ops_f32),
        [GD_F64] = GD_ISA_NAME(gd_ew_ops_f64),
        [GD_I32] = GD_ISA_NAME(gd_ew_ops_i32),
        [GD_I64] = GD_ISA_NAME(gd_ew_ops_i64),
        [GD_U8] = GD_ISA_NAME(gd_ew_ops_u8),
        [GD_BOOL] = GD_ISA_NAME(gd_ew_ops_u8),
        [GD_F16] = GD_ISA_NAME(gd_ew_ops_half),
        [GD_BF16] = GD_ISA_NAME(gd_ew_ops_half),
        [GD_I8] = GD_ISA_NAME(gd_ew_ops_i8),
        [GD_I16] = GD_ISA_NAME(gd_ew_ops_i16),
        [GD_U16] = GD_ISA_NAME(gd_ew_ops_u16),
        [GD_U32] = GD_ISA_NAME(gd_ew_ops_u32),
        [GD_U64] = GD_ISA_NAME(gd_ew_ops_u64),
    },
    .cast = GD_ISA_NAME(gd_ew_casts),
    .copy = {
        GD_ISA_NAME(gd_ew_copy_8),
        GD_ISA_NAME(gd_ew_copy_16),
        GD_ISA_NAME(gd_ew_copy_32),
        GD_ISA_NAME(gd_ew_copy_64),
    },
    .copy_streamed = {
        GD_ISA_NAME(gd_ew_copy_8),
        GD_ISA_NAME(gd_ew_copy_16),
        GD_ISA_NAME(gd_ew_copy_streamed_32),
        GD_ISA_NAME(gd_ew_copy_streamed_64),
    },
    .stream = GD_ISA_NAME(gd_ew_stream),
#if defined(GD_ISA_AVX2_BUILD) || defined(GD_ISA_AVX512_BUILD)
    .chain = GD_ISA_NAME(gd_ew_chain),
#endif
    .adam = GD_ISA_NAME(gd_ew_adam_f32),
    .adam_bf16 = GD_ISA_NAME(gd_ew_adam_bf16),
    .words = GD_ISA_NAME(gd_random_words),
    .reduce = {
        GD_ISA_NAME(gd_reducers_sum),
        GD_ISA_NAME(gd_reducers_prod),
        GD_ISA_NAME(gd_reducers_max),
        GD_ISA_NAME(gd_reducers_min),
    },
};

void GD_ISA_NAME(gd_cpu_register_elementwise)(gd_kernel_fn *kernel)
{
    for (int op = 0; op < GD_OP_ELEMENTWISE_COUNT; op++)
        kernel[op] = gd_ew_kernel_row;
    kernel[GD_OP_cast] = gd_ew_kernel_cast;
    kernel[GD_OP_copy] = gd_ew_kernel_program;
    kernel[GD_OP_fused] = gd_ew_kernel_program;
    kernel[GD_OP_adam] = gd_ew_kernel_program;
    kernel[GD_OP_adam_bf16] = gd_ew_kernel_program;
}
