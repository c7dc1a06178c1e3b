/* gradus/precision.h: mixed precision: what is large is computed in 16 bits, and what needs digits
 * in 32.
 *
 * Between gd_autocast_begin and gd_autocast_end ops choose the dtype of their operands by what they
 * do. Parameters stay f32, and so do their gradients and the optimizer's moments: an op reads a
 * rounded copy. Eagerly it is made at each use. Compiled functions share one, which the update of the
 * parameter makes anew in the same pass over memory; after other writes to the parameter the next call
 * does, and where its address was given out (gd_tensor_data, DLPack for writing) each call.
 *
 * 16 bits: gd_matmul, gd_linear, gd_einsum, gd_dot, convolutions, gd_attention, the recurrent layers.
 * f32 operands are rounded to the scope's dtype, which the result has, too. Products are added up in
 * f32, with the bias, and rounded once.
 *
 * 32 bits: losses, softmax, sums, means, norms, cumulative sums and products, layer, group and RMS
 * normalisation, exp, log, pow and other functions whose results grow or lose digits. f16 and bf16
 * operands are taken as f32, and so is the result.
 *
 * As given: everything else, activations, pooling, dropout, sums of two tensors, movement. A 16-bit
 * operand beside an f32 one is taken as f32. gd_batch_norm's result is like x.
 *
 * f64 and integers are left as they are. Derivatives are computed in the dtypes that the ops had:
 * gd_backward needs no scope. A compiled function is traced anew where it is called in another
 * scope. Optimizers compute as without. The rules are PyTorch's (torch.autocast); `flags` of each
 * op's row say which is whose. Moments in 16 bits, and parameters without a copy in f32, are options of
 * optimizers: .state_dtype and .stochastic_rounding in gradus/optim.h.
 *
 * Results of 16 bits are a class of numbers of their own: the same bits run after run, eager or
 * compiled, with any number of threads, on one instruction set; between instruction sets they differ
 * in the last places, and numbers below 2^-126 in size may count as 0 in products of bfloat16
 * (where the processor has instructions for them, AMX, AVX512-BF16 or BFMMLA, which do so).
 */
#ifndef GRADUS_PRECISION_H
#define GRADUS_PRECISION_H

#include <gradus/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Open a scope of mixed precision: GD_BF16 or GD_F16; GD_F32, none within an outer one. They nest,
 * up to 32. GD_ERR_DTYPE for another dtype, GD_ERR_STATE where too many are open. What is open in the
 * body of a compiled function ends with it. */
GD_API gd_status gd_autocast_begin(gd_context *context, gd_dtype dtype);
/* End the innermost. GD_ERR_STATE: none is open. */
GD_API gd_status gd_autocast_end(gd_context *context);
/* The dtype of the innermost scope; GD_F32 outside of all, and for NULL. */
GD_API gd_dtype gd_autocast_get(const gd_context *context);

#ifdef __cplusplus
}
#endif

#endif
