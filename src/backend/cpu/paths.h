/* backend/cpu/paths.h: which way products and convolutions are computed. The kernels choose by
 * shape, instruction set and cache; the environment can choose instead, for tests and benches.
 * It is read when a device is opened. No path changes a bit of any result (gemm.h, conv.h)
 * but bf16x3's and Winograd's, which contexts alone have that were opened with fast numbers
 * (gemm_half.h, conv_winograd.h).
 *
 *     GRADUS_L2=SIZE       bytes of the second-level cache to assume: 262144, 256K, 2M; 64K to 64M
 *     GRADUS_MATMUL=PATH   packed        blocks of B and panels of A are copied
 *                          direct        neither is, where the kernels can read them
 *                          rows          row by row, as products with one row are
 *                          transposed    C^T = B^T A^T
 *                          bf16x3        as three products of bfloat16, where numbers are fast (gd_numbers)
 *                                        and GRADUS_ISA allows instructions for them, of whatever sizes
 *     GRADUS_CONV=PATH     packed        windows are packed; the weight's gradient, too; in bf16 where
 *                                        it is multiplied, whatever the channels
 *                          direct        bands of padded rows are copied, taps are shifts
 *                          images        images of the batch in the lanes of vectors
 *                          narrow        the weight's gradient by vectors of AVX2 on AVX-512
 *                          winograd      kernels of 3 x 3 by Winograd's filtering, where numbers are fast
 *                                        (gd_numbers), of whatever sizes
 *
 * A shape that a path cannot compute takes another one: of products the blocks that suit it, of
 * convolutions `packed`. The weight's gradient has two: packed, and by bands, which is what it
 * takes where it can with every other value of GRADUS_CONV. Convolutions in f64 are plain loops.
 */
#ifndef GD_BACKEND_CPU_PATHS_H
#define GD_BACKEND_CPU_PATHS_H

#include <gradus/base.h>

#include <stdbool.h>
#include <stddef.h>

typedef enum gd_matmul_path {
    GD_MATMUL_BEST,
    GD_MATMUL_PACKED,
    GD_MATMUL_DIRECT,
    GD_MATMUL_ROWS,
    GD_MATMUL_TRANSPOSED,
    GD_MATMUL_BF16X3
} gd_matmul_path;

typedef enum gd_conv_path {
    GD_CONV_BEST,
    GD_CONV_PACKED,
    GD_CONV_DIRECT,
    GD_CONV_IMAGES,
    GD_CONV_NARROW,
    GD_CONV_WINOGRAD
} gd_conv_path;

typedef struct gd_paths {
    size_t block_bytes;  /* of packed operands: half of the second-level cache */
    size_t stream_bytes; /* products so large may go past the caches: all of the last one's bytes */
    gd_matmul_path matmul;
    gd_conv_path conv;
} gd_paths;

/* As the environment and this machine have it. GD_ERR_INVALID, recorded, for a value not listed
 * above. */
gd_status gd_paths_read(gd_paths *paths);

/* Whether the kernels choose among the paths of a product. */
static inline bool gd_matmul_may_choose(const gd_paths *paths)
{
    return paths->matmul == GD_MATMUL_BEST || paths->matmul == GD_MATMUL_BF16X3;
}

/* Whether the kernels choose among the paths of a convolution: narrow ones do so, too. */
static inline bool gd_conv_may_choose(const gd_paths *paths)
{
    return paths->conv == GD_CONV_BEST || paths->conv == GD_CONV_NARROW;
}

#endif
