/* backend/cpu/conv_winograd.h: convolution with kernels of 3 x 3 by the minimal filtering F(4 x 4, 3 x 3)
 * of Winograd (Lavin & Gray, "Fast Algorithms for Convolutional Neural Networks", 2016), in the class
 * of numbers `fast`. A tile of 4 x 4 results sees 6 x 6 elements of the image. Both the tile and the
 * kernel are transformed to 36 frequencies, of which each is a matrix product over the channels:
 *     Y = A^T [ sum over channels of (G w G^T) * (B^T x B) ] A
 * with 36 multiplications for 16 results, where the definition has 144. The interpolation points are
 * 0, +-5/8, +-3/2 and infinity, whose rounding errors are a third of those of the usual 0, +-1, +-2
 * (Barabasz et al., "Error Analysis and Improving the Accuracy of Winograd Convolution for Deep Neural
 * Networks", 2020).
 *
 * What is compiled once per instruction set is the three transforms (conv_winograd_isa.c), with
 * channels in the lanes of vectors. conv_winograd.c gives the products to gemm_driver.c.
 */
#ifndef GD_BACKEND_CPU_CONV_WINOGRAD_H
#define GD_BACKEND_CPU_CONV_WINOGRAD_H

#include <stdbool.h>
#include <stdint.h>

#define GD_WINOGRAD_TILE        4  /* results along an axis */
#define GD_WINOGRAD_SIZE        6  /* elements of the image that they see, and frequencies */
#define GD_WINOGRAD_FREQUENCIES 36 /* of both axes */
#define GD_WINOGRAD_STRIP       16 /* most tiles beside each other that are transformed at once */

/* Numbers of a band, in which a strip is transformed: six rows, and some columns more than are seen. */
#define GD_WINOGRAD_BAND(lanes) \
    ((int64_t)GD_WINOGRAD_SIZE * (GD_WINOGRAD_STRIP * GD_WINOGRAD_TILE + 2 + (lanes)) * (lanes))

/* A strip of tiles in planes of the image or of the result, which are `channel` numbers apart. */
typedef struct gd_winograd_strip {
    int64_t tiles;
    int64_t height, width; /* of a plane */
    int64_t y, x;          /* where the strip begins; of an image perhaps in the padding */
    int64_t channel;
    int64_t channels; /* at most the lanes of a vector */
} gd_winograd_strip;

/* Frequencies in memory: number `lane` of a vector, of tile or step `i`, at [f * frequency + i * step + lane]. */
typedef struct gd_winograd_frequencies {
    float *first;
    int64_t frequency, step;
} gd_winograd_frequencies;

typedef struct gd_winograd_kernels {
    /* B^T x B of the tiles of a strip, by way of a band. Lanes beyond the channels become 0. */
    void (*transform_image)(const gd_winograd_strip *strip, const float *image, float *band,
                            const gd_winograd_frequencies *to);
    /* G w G^T of the kernels [channels] x [steps], which are `channel` and `step` numbers apart;
     * `flipped`: of each the taps in reverse. Lanes beyond the channels become 0. */
    void (*transform_weight)(const float *weight, int64_t channel, int64_t step, int64_t channels,
                             int64_t steps, bool flipped, const gd_winograd_frequencies *to);
    /* A^T m A to the planes of the result, + bias, then ReLU, by way of a band. */
    void (*transform_result)(const gd_winograd_strip *strip, const gd_winograd_frequencies *from,
                             float *band, const float *bias, int64_t bias_step, bool relu,
                             float *result);
} gd_winograd_kernels;

#define GD_WINOGRAD_DECLARE(isa) extern const gd_winograd_kernels gd_winograd_##isa;
GD_WINOGRAD_DECLARE(baseline)
GD_WINOGRAD_DECLARE(avx2)
GD_WINOGRAD_DECLARE(avx512)
GD_WINOGRAD_DECLARE(neon)

#endif
