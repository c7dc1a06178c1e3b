/* tests/test_gemm_plan.c: which way a matrix product is computed, read from its plan, so that no way
 * can vanish unseen; and plans that outlive the number of threads they were made for. That all ways
 * give the same bits is test_gemm.c's.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "backend/cpu/gemm_half.h"
#include "backend/cpu/gemm_plan.h"
#include "base/cpu.h"
#include <gradus/compile.h>
#include <gradus/ops.h>

#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* This machine's best,and others. */
static const gd_gemm_micro *const micros[] = {
#ifdef GD_HAVE_AVX512
    &gd_gemm_f32_avx512,
#endif
#ifdef GD_HAVE_AVX2
    &gd_gemm_f32_avx2,
#endif
#ifdef GD_HAVE_NEON
    &gd_gemm_f32_neon,
#endif
    &gd_gemm_f32_baseline,
};

/* A [m, k] @ B [k, n], each transposed in memory where asked for. */
static gd_gemm_args describe(int64_t m, int64_t k, int64_t n, bool a_transposed, bool b_transposed,
                             const gd_paths *paths)
{
    return (gd_gemm_args){ .m = m,
                           .n = n,
                           .k = k,
                           .a_row_stride = a_transposed ? 1 : k,
                           .a_col_stride = a_transposed ? m : 1,
                           .b_row_stride = b_transposed ? 1 : n,
                           .b_col_stride = b_transposed ? k : 1,
                           .c_row_stride = n,
                           .c_col_stride = 1,
                           .threads = 1,
                           .paths = paths };
}

typedef struct expectation {
    int64_t m, k, n;
    bool a_transposed, b_transposed;
    int threads;
    gd_gemm_way way;
    bool transposed, pack_a, pack_b;
} expectation;

static void test_ways(void **state)
{
    (void)state;
    static const expectation all[] = {
        { 17, 100, 1000, false, false, 1, GD_GEMM_BLOCKS, .pack_b = true },
        { 16, 100, 1000, false, false, 1, GD_GEMM_BLOCKS, .pack_b = false },  /* few rows */
        { 1000, 100, 100, false, false, 1, GD_GEMM_BLOCKS, .pack_b = false }, /* few pages */
        { 1000, 48, 1024, false, false, 1, GD_GEMM_BLOCKS, .pack_b = false }, /* the most pages */
        { 1000, 49, 1024, false, false, 1, GD_GEMM_BLOCKS, .pack_b = true },  /* one more */
        { 50, 784, 64, false, false, 1, GD_GEMM_BLOCKS, .transposed = false },
        { 50, 1024, 32, false, false, 1, GD_GEMM_BLOCKS, .pack_a = true }, /* rows of A collide */
        { 64, 100, 128, true, false, 1, GD_GEMM_BLOCKS, .pack_a = true },
        { 64, 100, 128, false, true, 1, GD_GEMM_BLOCKS, .pack_b = true },
        { 64, 100, 1, false, false, 1, GD_GEMM_DOTS, .transposed = true },
        { 1, 100, 16, false, false, 1, GD_GEMM_CHAINS, .transposed = false },
        { 2, 600, 8, false, false, 1, GD_GEMM_CHAINS, .transposed = false },
        { 1, 100, 500, false, false, 1, GD_GEMM_STREAMS, .transposed = false },
        { 1, 4096, 500, false, false, 2, GD_GEMM_STRETCHES, .transposed = false },
        { 1, 100, 500, false, true, 1, GD_GEMM_DOTS, .transposed = false },
    };
    const gd_paths paths = { .block_bytes = (size_t)1 << 20 };
    for (size_t i = 0; i < COUNT(micros); i++)
        for (size_t e = 0; e < COUNT(all); e++) {
            const expectation *x = &all[e];
            gd_gemm_args args =
                describe(x->m, x->k, x->n, x->a_transposed, x->b_transposed, &paths);
            gd_gemm_plan plan;
            args.threads = x->threads;
            assert_true(gd_gemm_choose(micros[i], &args, &plan));
            assert_int_equal(plan.way.taken, x->way);
            assert_int_equal(plan.transposed.taken, x->transposed);
            assert_int_equal(plan.threads, x->threads);
            assert_non_null(plan.way.why);
            if (plan.way.taken != GD_GEMM_BLOCKS)
                continue;
            assert_int_equal(plan.pack_a.taken, x->pack_a);
            assert_int_equal(plan.pack_b.taken, x->pack_b);
        }
}

/* Kernels of pairs of bfloat16 read rows of A in place, but for those that end within a pair or collide. */
static void test_rows_of_pairs(void **state)
{
    (void)state;
#ifdef GD_HAVE_AVX512_BF16
    const gd_paths paths = { .block_bytes = (size_t)1 << 20 };
    static const struct {
        int64_t k;
        bool a_transposed, pack_a;
    } all[] = {
        { 100, false, false }, { 99, false, true }, { 4096, false, true }, { 100, true, true }
    };
    for (size_t i = 0; i < COUNT(all); i++) {
        const gd_gemm_args args = describe(64, all[i].k, 128, all[i].a_transposed, false, &paths);
        gd_gemm_plan plan;
        assert_true(gd_gemm_choose(&gd_gemm_bf16_pairs, &args, &plan));
        assert_int_equal(plan.pack_a.taken, all[i].pack_a);
        assert_true(plan.pack_b.taken);
    }
#endif
}

/* A constant B is packed once where that is faster. */
static void test_packed_once(void **state)
{
    (void)state;
    static const struct {
        int64_t m, k, n;
        bool b_transposed, once;
    } all[] = {
        { 17, 768, 2304, false, true }, /* else packed at each run */
        { 4, 768, 2304, false, true },  /* else read by pages */
        { 64, 100, 128, false, false }, /* in place, few pages */
        { 64, 100, 120, false, true },  /* the same, vectors in two cache lines */
        { 64, 100, 128, true, true },   /* transposed in memory */
        { 1, 768, 2304, false, false }, /* one row reads B once */
        { 1, 768, 2304, true, false },  /* the same */
        { 64, 100, 1, false, false },   /* one column */
        { 64, 0, 120, false, false },   /* nothing to read */
    };
    gd_paths paths = { .block_bytes = (size_t)1 << 20 };
    for (size_t i = 0; i < COUNT(micros); i++)
        for (size_t e = 0; e < COUNT(all); e++) {
            gd_gemm_args args =
                describe(all[e].m, all[e].k, all[e].n, false, all[e].b_transposed, &paths);
            assert_int_equal(gd_gemm_packs_once(micros[i], &args), all[e].once);
            args.batch_rank = 1; /* a B for each product */
            args.batch_shape[0] = 3;
            args.a_batch_stride[0] = args.m * args.k;
            args.b_batch_stride[0] = args.k * args.n;
            args.c_batch_stride[0] = args.m * args.n;
            assert_false(gd_gemm_packs_once(micros[i], &args));
            args.b_batch_stride[0] = 0; /* one for all: rows of one product */
            assert_int_equal(gd_gemm_packs_once(micros[i], &args), all[e].once || args.m == 1);
        }
    paths.matmul = GD_MATMUL_DIRECT;
    const gd_gemm_args forced = describe(17, 768, 2304, false, false, &paths);
    assert_false(gd_gemm_packs_once(micros[0], &forced));
}

/* Large results of few steps go past the caches, where their rows are whole cache lines. */
static void test_streams(void **state)
{
    (void)state;
    static const struct {
        int64_t m, k, n;
        bool streams;
    } all[] = {
        { 512, 16, 128, true },  { 511, 16, 128, false }, /* a row too small */
        { 512, 64, 128, true },  { 512, 65, 128, false }, /* arithmetic takes longer */
        { 1024, 16, 70, false },                          /* rows share lines */
    };
    for (size_t i = 0; i < COUNT(micros); i++)
        for (size_t e = 0; e < COUNT(all) && micros[i]->stream; e++) {
            const gd_paths paths = { .block_bytes = (size_t)1 << 20,
                                     .stream_bytes = 512 * 128 * (size_t)micros[i]->c_bytes };
            gd_gemm_args args = describe(all[e].m, all[e].k, all[e].n, false, false, &paths);
            gd_gemm_plan plan;
            assert_true(gd_gemm_choose(micros[i], &args, &plan));
            assert_int_equal(plan.stream_c.taken, all[e].streams);
            args.accumulate = true;
            assert_true(gd_gemm_choose(micros[i], &args, &plan));
            assert_false(plan.stream_c.taken);
        }
}

static void test_few_columns(void **state)
{
    (void)state;
    const gd_paths paths = { .block_bytes = (size_t)1 << 20 };
    gd_gemm_plan plan;
    for (size_t i = 0; i < COUNT(micros); i++) {
        const gd_gemm_args args = describe(1, 100, 3, false, false, &paths);
        assert_true(gd_gemm_choose(micros[i], &args, &plan));
        assert_int_equal(plan.way.taken, micros[i]->any_width ? GD_GEMM_CHAINS : GD_GEMM_SCALARS);
    }
}

static void test_forced(void **state)
{
    (void)state;
    gd_gemm_plan plan;
    for (size_t i = 0; i < COUNT(micros); i++)
        for (int path = GD_MATMUL_PACKED; path <= GD_MATMUL_TRANSPOSED; path++) {
            const gd_paths paths = { .block_bytes = (size_t)1 << 20,
                                     .matmul = (gd_matmul_path)path };
            const gd_gemm_args args = describe(50, 784, 80, false, false, &paths);
            assert_true(gd_gemm_choose(micros[i], &args, &plan));
            const bool blocks = path != GD_MATMUL_ROWS;
            assert_int_equal(plan.way.taken, blocks ? GD_GEMM_BLOCKS : GD_GEMM_STREAMS);
            assert_int_equal(plan.transposed.taken, path == GD_MATMUL_TRANSPOSED);
            if (path == GD_MATMUL_PACKED)
                assert_true(plan.pack_a.taken && plan.pack_b.taken);
            if (path == GD_MATMUL_DIRECT)
                assert_true(!plan.pack_a.taken && !plan.pack_b.taken);
            const char *why = path == GD_MATMUL_TRANSPOSED ? plan.transposed.why : plan.way.why;
            assert_string_equal(why, "GRADUS_MATMUL");
        }
}

/* ---- plans of functions ---- */

static gd_tensor *product(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_matmul(in[0], in[1]);
}

static gd_tensor *numbers(gd_context *gd, int64_t rows, int64_t columns, uint64_t seed)
{
    gd_seed(gd, seed);
    return gd_normal(gd, GD_SHAPE(rows, columns), 0, 1, GD_F32);
}

/* The number of threads changes after the plan was made: fewer, whose scratch is smaller, and more.
 * Shapes are of all ways that threads share. */
static void test_threads_change(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = { { 70, 300, 65 }, { 1, 4096, 500 }, { 600, 300, 300 } };
    for (size_t i = 0; i < COUNT(sizes); i++) {
        gd_context *gd = gd_open("cpu", .threads = 4);
        assert_non_null(gd);
        gd_function *f = gd_compile(gd, product, NULL);
        gd_tensor *in[] = { numbers(gd, sizes[i][0], sizes[i][1], 1),
                            numbers(gd, sizes[i][1], sizes[i][2], 2) };
        const size_t bytes = (size_t)(sizes[i][0] * sizes[i][2]) * sizeof(float);
        float *first = malloc(bytes);
        assert_non_null(first);
        static const int threads[] = { 4, 1, 3, 6, 4 };
        for (size_t t = 0; t < COUNT(threads); t++) {
            assert_int_equal(gd_context_set_threads(gd, threads[t]), GD_OK);
            gd_tensor *y = gd_call(f, 2, in);
            assert_non_null(y);
            if (t == 0)
                memcpy(first, gd_tensor_data(y), bytes);
            else
                assert_memory_equal(gd_tensor_data(y), first, bytes);
        }
        assert_int_equal(gd_function_stats(f).plans, 1);
        free(first);
        gd_function_release(f);
        gd_close(gd);
    }
}

static void test_explained(void **state)
{
    (void)state;
    gd_context *gd = gd_open("cpu", .threads = 1);
    assert_non_null(gd);
    gd_function *f = gd_compile(gd, product, NULL);
    char text[2048];
    assert_int_equal(gd_plan_explain(f, text, sizeof text), 0);
    gd_tensor *in[] = { numbers(gd, 1, 100, 1), numbers(gd, 100, 500, 2) };
    assert_non_null(gd_call(f, 2, in));
    assert_true(gd_plan_explain(f, text, sizeof text) < sizeof text);
    assert_non_null(strstr(text, "\n    1 x 100 x 500 by streams: one row: B is read once"));
    assert_true(gd_plan_format(f, text, sizeof text) < sizeof text);
    assert_null(strstr(text, "by streams"));
    gd_function_release(f);
    gd_close(gd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ways),           cmocka_unit_test(test_packed_once),
        cmocka_unit_test(test_rows_of_pairs),  cmocka_unit_test(test_streams),
        cmocka_unit_test(test_few_columns),    cmocka_unit_test(test_forced),
        cmocka_unit_test(test_threads_change), cmocka_unit_test(test_explained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
