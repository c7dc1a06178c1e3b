/* backend/cpu/conv.h: convolution in f32 and bf16 as a matrix product whose one operand, the image
 * seen through the kernel's windows, is never made: the packing of the product (gemm.h) reads it out
 * of the image (implicit im2col; Chetlur et al. 2014). Sums are f32; of bf16 operands they are within
 * the bound of gemm_half.h.
 *
 * In f32 the results are DEFINED as gemm.h defines a product's: a chain of fused multiply-adds over blocks
 * of GD_GEMM_KC steps from 0, and block sums added in ascending order, where the steps are
 *     convolution               input channel of the group, then tap
 *                               then + bias, or + 0 without one, and ReLU
 *     convolution_grad_input    output channel of the group, then those taps that can bring the
 *                               element something: the others fall between strides; then + 0
 *     convolution_grad_weight   image of the batch, then position
 * in row-major order, and padding counts as zeros that are multiplied. No thread count, path or
 * vector width changes a bit.
 * With gd_conv_args.fast the first two may be computed as conv_winograd.c defines them.
 */
#ifndef GD_BACKEND_CPU_CONV_H
#define GD_BACKEND_CPU_CONV_H

#include "backend/cpu/paths.h"
#include "backend/cpu/scratch.h"
#include "base/text.h"
#include "ops/spatial.h"

typedef struct gd_conv_args {
    const gd_conv_attr *attr;
    gd_conv_sizes s;
    const void *a, *b; /* the op's operands in their order, contiguous: of f32, or of bf16 */
    const float *bias; /* or NULL */
    float *out;
    const struct gd_conv_micro *micro;   /* kernels of the operands' type */
    const struct gd_gemm_micro *product; /* those of products, where `micro` names none */
    int threads;                         /* at most */
    const gd_paths *paths;               /* which way it is computed */
    bool fast; /* where it pays by conv_winograd.c, with other numbers than those defined above */
    gd_workspace workspace; /* of `threads` threads: a product's and GD_CONV_SCRATCH bytes each,
                             * with `fast` GD_CONV_FAST_SCRATCH more */
    /* Questions, one at a time: nothing is computed, and no data read. */
    gd_text *explain;      /* not NULL: how it is computed is added */
    gd_workspace *scratch; /* not NULL: raised to what it takes */
    bool has_not_finite;   /* of `scratch`: whether the weight has a number that is not finite */
} gd_conv_args;

static inline bool gd_conv_is_asked(const gd_conv_args *args)
{
    return args->explain || args->scratch;
}

static inline void gd_conv_raise(const gd_conv_args *args, gd_workspace need)
{
    gd_workspace *s = args->scratch;
    s->bytes = need.bytes > s->bytes ? need.bytes : s->bytes;
    s->threads = need.threads > s->threads ? need.threads : s->threads;
}

#define GD_CONV_SCRATCH        ((size_t)256 * 1024)
#define GD_CONV_FAST_SCRATCH   ((size_t)6 * 1024 * 1024) /* with `fast` so much more */
#define GD_CONV_SCRATCH_BLOCKS 4

/* Each computes or, where it is asked a question, answers it. */
typedef void (*gd_conv_fn)(const gd_conv_args *args);
void gd_conv_forward(const gd_conv_args *args);
void gd_conv_grad_input(const gd_conv_args *args);
void gd_conv_grad_weight(const gd_conv_args *args);

#endif
