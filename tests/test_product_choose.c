/* tests/test_product_choose.c: how devices divide products: the workspace is bounded, every block of steps
 * is computed, tiles fit what the kernel can load, and long chains of small results are split. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "backend/cpu/gemm.h"
#include "backend/gpu/gpu.h"
#include "backend/gpu/product.h"

enum { MOST_BYTES = 64 << 20, SHARED = 48 << 10 };

static const int64_t sizes[] = { 1, 2, 10, 16, 33, 64, 100, 128, 500, 1024, 4096, 70000, 300000 };
enum { SIZES = sizeof sizes / sizeof *sizes };

/* What the kernel's text takes for granted: product.txt. */
static void expect_a_tile_that_fits(const gd_gpu_product_plan *plan, gd_dtype dtype)
{
    const gd_gpu_product_tile *tile = &plan->tile;
    const int64_t rows = gd_gpu_product_rows(tile), columns = gd_gpu_product_columns(tile);
    assert_true(tile->down >= 4 && tile->down <= 32);
    assert_true(rows <= 256 && 256 % rows == 0 && columns <= 256 && 256 % columns == 0);
    assert_true(rows * tile->depth % 256 == 0 && columns * tile->depth % 256 == 0);
    assert_int_equal(GD_GEMM_KC % tile->depth, 0);
    const size_t bytes = 2 * (size_t)(tile->depth * (rows + columns + 8)) * gd_dtype_size(dtype) +
                         32 * (size_t)(GD_GEMM_KC + tile->depth);
    assert_true(bytes <= SHARED);
}

static void expect_a_division(gd_dtype dtype, int64_t m, int64_t n, int64_t k, bool may_split)
{
    const gd_gpu_product_size size = { dtype, m, n, k, 1, may_split };
    const gd_gpu_product_plan plan = gd_gpu_product_choose(&size);
    const int64_t blocks = (k + GD_GEMM_KC - 1) / GD_GEMM_KC;
    expect_a_tile_that_fits(&plan, dtype);
    assert_int_equal(
        plan.pieces,
        (m + gd_gpu_product_rows(&plan.tile) - 1) / gd_gpu_product_rows(&plan.tile) *
            ((n + gd_gpu_product_columns(&plan.tile) - 1) / gd_gpu_product_columns(&plan.tile)));
    if (plan.blocks == 0)
        return;
    assert_true(may_split && plan.blocks > 0 && plan.blocks <= blocks);
    assert_true(plan.slots >= plan.blocks && (plan.blocks == blocks || plan.slots > plan.blocks));
    assert_true((double)(plan.slots * m * n) * (double)gd_dtype_size(dtype) <= MOST_BYTES);
    assert_true((blocks + plan.blocks - 1) / plan.blocks * 2 <= GD_GPU_STEPS);
}

static void work_is_divided_within_bounds(void **state)
{
    (void)state;
    static const gd_dtype dtypes[] = { GD_F32, GD_F64, GD_U8 };
    for (int d = 0; d < 3; d++)
        for (int i = 0; i < SIZES * SIZES * SIZES; i++)
            expect_a_division(dtypes[d], sizes[i % SIZES], sizes[i / SIZES % SIZES],
                              sizes[i / SIZES / SIZES], i % 5 != 0);
}

static gd_gpu_product_plan plan_of(int64_t m, int64_t n, int64_t k)
{
    const gd_gpu_product_size size = { GD_F32, m, n, k, 1, true };
    return gd_gpu_product_choose(&size);
}

static void long_chains_of_few_results_are_split(void **state)
{
    (void)state;
    assert_int_equal(plan_of(16, 128, 262144).blocks, 1024);
    assert_int_equal(plan_of(64, 288, 65536).blocks, 256);
    /* 70 blocks of 1 MiB: 63 of them and the sum before at a time. */
    assert_int_equal(plan_of(512, 512, 17920).slots, 64);
    assert_int_equal(plan_of(512, 512, 17920).blocks, 63);
    assert_int_equal(plan_of(4096, 4096, 4096).blocks, 0);
    assert_int_equal(plan_of(50, 10, 100).blocks, 0);
}

static void expect_a_tile(int64_t m, int64_t n, int64_t k, int64_t rows, int64_t columns)
{
    const gd_gpu_product_plan plan = plan_of(m, n, k);
    assert_int_equal(gd_gpu_product_rows(&plan.tile), rows);
    assert_int_equal(gd_gpu_product_columns(&plan.tile), columns);
}

static void tiles_are_as_large_as_the_result(void **state)
{
    (void)state;
    expect_a_tile(4096, 4096, 4096, 128, 128);
    expect_a_tile(64, 65536, 288, 64, 256);
    expect_a_tile(32, 65536, 288, 32, 256);
    expect_a_tile(16, 65536, 288, 16, 256);
    expect_a_tile(16, 128, 262144, 16, 128);
    expect_a_tile(50, 10, 100, 16, 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_is_divided_within_bounds),
        cmocka_unit_test(long_chains_of_few_results_are_split),
        cmocka_unit_test(tiles_are_as_large_as_the_result),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
