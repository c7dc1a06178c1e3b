/* backend/gpu/product.h: how the kernel of products divides its work: the tile of a result that a group
 * makes, and whether the steps along k are shared between groups. */
#ifndef GD_BACKEND_GPU_PRODUCT_H
#define GD_BACKEND_GPU_PRODUCT_H

#include <gradus/tensor.h>

#include <stdbool.h>
#include <stdint.h>

enum { GD_GPU_PRODUCT_ITEMS = 256 /* of a group */ };

/* Items are `down` x 256 / down; each makes work_m x work_n elements. `depth` steps along k are in local
 * memory at a time. `resident` groups are to be on a multiprocessor. */
typedef struct gd_gpu_product_tile {
    int down, work_m, work_n, depth, resident;
} gd_gpu_product_tile;

static inline int64_t gd_gpu_product_rows(const gd_gpu_product_tile *tile)
{
    return (int64_t)tile->down * tile->work_m;
}

static inline int64_t gd_gpu_product_columns(const gd_gpu_product_tile *tile)
{
    return (int64_t)(GD_GPU_PRODUCT_ITEMS / tile->down) * tile->work_n;
}

/* `products` of [m, k] by [k, n]. */
typedef struct gd_gpu_product_size {
    gd_dtype dtype;
    int64_t m, n, k, products;
    bool may_split; /* sums are defined in blocks of GD_GEMM_KC steps */
} gd_gpu_product_size;

typedef struct gd_gpu_product_plan {
    gd_gpu_product_tile tile;
    int64_t pieces; /* tiles of all products */
    /* Blocks of steps that a launch computes into the workspace, a sum each, for another to add up; 0: a
     * group computes all steps of its piece. */
    int64_t blocks;
    int64_t slots; /* of sums of all results, in the workspace */
    double cycles; /* that it takes by the estimate */
} gd_gpu_product_plan;

gd_gpu_product_plan gd_gpu_product_choose(const gd_gpu_product_size *size);

#endif
