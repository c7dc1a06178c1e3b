/* backend/cpu/quantized.h: products with weights of 8 or 4 bits in blocks. What is computed, and in what
 * order, stands in ops/quantized.c. */
#ifndef GD_BACKEND_CPU_QUANTIZED_H
#define GD_BACKEND_CPU_QUANTIZED_H

#include "base/quantized_form.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GD_QUANTIZED_LANES 8 /* sums over the blocks of a row; block b goes to lane b mod 8 */

/* Rows in blocks: values [rows, 32 * blocks], their scales [rows, blocks], and sums of the values of each
 * block; or of the first 16 of each of four blocks, then of the last 16 of each. */
typedef struct gd_quantized_rows {
    int8_t *values;
    float *scales;
    int32_t *sums;
    int sums_of_block; /* gd_quantized_sums_of() */
    int64_t rows, blocks;
} gd_quantized_rows;

/* Weights, a row for each column of the result. */
typedef struct gd_quantized_weights {
    const uint8_t *values;
    const void *scales; /* f32, or the bits of f16 */
    bool half_scales;
    gd_quantized_form form;
} gd_quantized_weights;

/* Sums of a block: of its groups of 16, or of all. They are for least values, and for weights that are
 * multiplied as more than they are. */
static inline int gd_quantized_sums_of(const gd_quantized_form *form)
{
    return form->groups == GD_QUANTIZED_GROUPS ? 2 : 1;
}

/* Many rows at once: rows and weights packed, and multiplied tile by tile. Sizes in bytes are those
 * of one block of a packed tile's height, and of its width. */
typedef struct gd_quantized_tiles {
    int rows, columns;
    int many_rows; /* from here on packing the weights pays */
    size_t row_bytes, column_bytes;
    /* x [rows, 32 * blocks] rounded; rows <= those of a tile */
    void (*pack_rows)(const float *x, int64_t rows, int64_t blocks, void *to);
    /* Columns first … first + columns - 1 of the result; columns <= those of a tile. */
    void (*pack_columns)(const gd_quantized_weights *w, int64_t first, int64_t columns,
                         int64_t blocks, void *to);
    /* The first rows and columns of a tile, to rows of `out` that lie `stride` apart. */
    void (*multiply)(const void *x, const void *w, int64_t blocks, int64_t rows, int64_t columns,
                     float *out, int64_t stride);
} gd_quantized_tiles;

typedef struct gd_quantized_kernels {
    /* x [rows, 32 * blocks] in blocks */
    void (*quantize)(const float *x, const gd_quantized_rows *to);
    /* Columns begin … end - 1 of the result, whose rows lie `stride` apart. */
    void (*columns)(const gd_quantized_rows *x, const gd_quantized_weights *w, int64_t begin,
                    int64_t end, float *out, int64_t stride);
    /* Of blocks without least values and with them, and of groups of 32; then of groups of 16 without
     * least values and with them. */
    const gd_quantized_tiles *tiles, *grouped;
} gd_quantized_kernels;

#define GD_QUANTIZED_DECLARE(isa)                                                              \
    extern const gd_quantized_tiles gd_quantized_tiles_##isa[3], gd_grouped_tiles_##isa[2];    \
    void gd_quantize_rows_##isa(const float *x, const gd_quantized_rows *to);                  \
    void gd_quantized_columns_##isa(const gd_quantized_rows *x, const gd_quantized_weights *w, \
                                    int64_t begin, int64_t end, float *out, int64_t stride);
GD_QUANTIZED_DECLARE(baseline)
GD_QUANTIZED_DECLARE(avx2)
GD_QUANTIZED_DECLARE(avx512)
GD_QUANTIZED_DECLARE(neon)
GD_QUANTIZED_DECLARE(vnni)    /* an extension of AVX-512 */
GD_QUANTIZED_DECLARE(dotprod) /* of NEON, whose grouped tiles it uses */

#endif
