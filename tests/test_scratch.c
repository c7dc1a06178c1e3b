/* tests/test_scratch.c: the memory that kernels of a plan work in. It is placed among the plan's
 * values, for the number of threads that the plan was made with; with other numbers kernels work in
 * the device's, with the same bits. And what gd_plan_explain says of the kernels that have several
 * forms. That every kernel asks for all that it takes is seen by every test with watched kernels
 * (support/tensors.h), which give eager kernels exactly that.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/compile.h>
#include <gradus/conv.h>
#include <gradus/ops.h>

#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static gd_tensor *normal(gd_context *gd, gd_shape shape, uint64_t seed)
{
    gd_seed(gd, seed);
    gd_tensor *t = gd_normal(gd, shape, 0, 1, GD_F32);
    assert_non_null(t);
    return t;
}

/* ---- bodies: kernels of one kind each ---- */

static gd_tensor *product(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_matmul(in[0], in[1]);
}

static gd_tensor *convolution(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_conv2d(in[0], in[1], NULL, .padding = GD_SHAPE(1, 1));
}

static gd_tensor *attention(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_attention(in[0], in[1], in[0], .causal = true);
}

static gd_tensor *recurrent(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_recurrent(in[0], in[1], gd_sum(in[1], GD_AXES(0), false), GD_CELL_RNN);
}

static gd_tensor *sum_of_columns(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_sum(in[0], GD_AXES(0), false);
}

static gd_tensor *sum_of_rows(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_sum(in[0], GD_AXES(1), false);
}

static gd_tensor *softmax_of_columns(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_softmax(in[0], 0);
}

static gd_tensor *gathered_sum(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count; /* rows are broadcast: operands of the group are copied to registers */
    return gd_tanh(gd_add(gd_mul(in[0], in[1]), gd_permute(in[0], GD_AXES(1, 0))));
}

typedef struct kind {
    const char *what;
    gd_function_body body;
    gd_shape first, second;
    const char *words; /* of the explanation, with four threads; NULL: there is none */
} kind;

static const kind kinds[] = {
    { "product", product, { 2, { 600, 300 } }, { 2, { 300, 300 } }, "600 x 300 x 300 by blocks" },
    { "few columns", product, { 2, { 1, 4096 } }, { 2, { 4096, 500 } }, "by stretches" },
    { "convolution",
      convolution,
      { 4, { 8, 16, 30, 30 } },
      { 4, { 32, 16, 3, 3 } },
      "32 x 144 x 7200 by " },
    { "attention",
      attention,
      { 4, { 4, 6, 200, 32 } },
      { 4, { 4, 6, 200, 32 } },
      "24 heads, 200 queries x 200 keys by tiles of 100 x 256, on the diagonal by strips; keys "
      "transposed once" },
    { "recurrent",
      recurrent,
      { 3, { 40, 20, 64 } },
      { 2, { 64, 64 } },
      "40 sequences, 10 at a time, through 20 steps: products of f32; threads divide the "
      "sequences; the weight packed once for all steps" },
    { "columns",
      sum_of_columns,
      { 2, { 3000, 40 } },
      { 1, { 1 } },
      "40 results of 3000 by columns: results lie closest together" },
    { "rows",
      sum_of_rows,
      { 2, { 300, 5000 } },
      { 1, { 1 } },
      "300 results of 5000 by rows: what is added up lies closest together; blocks of 4096; 4 "
      "threads" },
    { "long rows",
      sum_of_rows,
      { 2, { 2, 500000 } },
      { 1, { 1 } },
      "few long sums: 4 threads share the blocks of each" },
    { "softmax", softmax_of_columns, { 2, { 300, 700 } }, { 1, { 1 } }, NULL },
    { "group", gathered_sum, { 2, { 500, 500 } }, { 1, { 500 } }, NULL },
};

/* One plan, with numbers of threads for which it was made and others. */
static void test_threads_change(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(kinds); i++) {
        gd_context *gd = gd_open("cpu", .threads = 4);
        assert_non_null(gd);
        gd_function *f = gd_compile(gd, kinds[i].body, NULL);
        gd_tensor *in[] = { normal(gd, kinds[i].first, 1), normal(gd, kinds[i].second, 2) };
        gd_tensor *expected = kinds[i].body(NULL, 2, in);
        assert_non_null(expected);
        const size_t bytes = (size_t)gd_tensor_count(expected) * sizeof(float);
        static const int threads[] = { 4, 1, 3, 6, 4 };
        for (size_t t = 0; t < COUNT(threads); t++) {
            assert_int_equal(gd_context_set_threads(gd, threads[t]), GD_OK);
            gd_tensor *y = gd_call(f, 2, in);
            assert_non_null(y);
            if (memcmp(gd_tensor_data(y), gd_tensor_data(expected), bytes) != 0)
                fail_msg("%s: other bits with %d threads", kinds[i].what, threads[t]);
        }
        assert_int_equal(gd_function_stats(f).plans, 1);
        gd_function_release(f);
        gd_close(gd);
    }
}

static void test_explained(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(kinds); i++) {
        gd_context *gd = gd_open("cpu", .threads = 4);
        assert_non_null(gd);
        gd_function *f = gd_compile(gd, kinds[i].body, NULL);
        gd_tensor *in[] = { normal(gd, kinds[i].first, 1), normal(gd, kinds[i].second, 2) };
        assert_non_null(gd_call(f, 2, in));
        char text[4096];
        assert_true(gd_plan_explain(f, text, sizeof text) < sizeof text);
        if (kinds[i].words && !strstr(text, kinds[i].words))
            fail_msg("%s: \"%s\" is not in:\n%s", kinds[i].what, kinds[i].words, text);
        gd_function_release(f);
        gd_close(gd);
    }
}

static void test_quantized_explained(void **state)
{
    (void)state;
    gd_context *gd = gd_open("cpu", .threads = 2);
    assert_non_null(gd);
    static const struct {
        int64_t rows, inner, bytes, scales;
        const char *words;
    } all[] = { { 1, 64, 64, 2, "1 x 64 x 40 in blocks of 32, 8 bits, by rows: few of them" },
                { 200, 64, 64, 2, "rows or more share packed weights; threads divide rows" },
                { 1, 512, 544, 2, "1 x 512 x 40 in blocks of 16, 8 bits, by rows: few of them" },
                { 200, 512, 544, 4,
                  "200 x 512 x 40 in blocks of 32, 8 bits with least values, by" } };
    for (size_t i = 0; i < COUNT(all); i++) {
        gd_tensor *x = normal(gd, GD_SHAPE(all[i].rows, all[i].inner), 1);
        gd_tensor *values = gd_full(gd, GD_SHAPE(40, all[i].bytes), 3, GD_I8);
        gd_tensor *scales = gd_full(gd, GD_SHAPE(40, all[i].scales), 0.5, GD_F16);
        gd_tensor *in[] = { x, values, scales };
        gd_function *f = gd_compile(gd, NULL, NULL);
        gd_tensor *traced[3], *y;
        assert_int_equal(gd_trace_begin(f, 3, in, traced), GD_OK);
        y = gd_quantized_linear(traced[0], traced[1], traced[2]);
        assert_int_equal(gd_trace_end(f, 1, &y), GD_OK);
        assert_non_null(gd_call(f, 3, in));
        char text[4096];
        assert_true(gd_plan_explain(f, text, sizeof text) < sizeof text);
        if (!strstr(text, all[i].words))
            fail_msg("\"%s\" is not in:\n%s", all[i].words, text);
        gd_function_release(f);
    }
    gd_close(gd);
}

/* The last product packs B, which is transposed in memory: 200 x 112 numbers or so, beside which no more
 * is alive than its operand and its result. The plan has room for that where the large values were. */
static gd_tensor *shrinking(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *large = gd_softmax(gd_matmul(in[0], in[1]), 0); /* [512, 512] */
    gd_tensor *small = gd_sum(large, GD_AXES(1), true);        /* [512, 1] */
    return gd_matmul(gd_mul(in[2], small), gd_permute(in[3], GD_AXES(1, 0)));
}

static void test_scratch_is_planned(void **state)
{
    (void)state;
    gd_context *gd = gd_open("cpu", .threads = 1);
    assert_non_null(gd);
    gd_function *f = gd_compile(gd, shrinking, NULL);
    gd_tensor *in[] = { normal(gd, GD_SHAPE(512, 64), 1), normal(gd, GD_SHAPE(64, 512), 2),
                        normal(gd, GD_SHAPE(512, 200), 3), normal(gd, GD_SHAPE(100, 200), 4) };
    assert_non_null(gd_call(f, 4, in));
    const gd_plan_stats stats = gd_function_stats(f);
    assert_int_equal(stats.arena_bytes, stats.live_bytes); /* that of the values */
    char text[8192];
    assert_true(gd_plan_explain(f, text, sizeof text) < sizeof text);
    const char *second = strstr(text, "512 x 200 x 100 by blocks");
    if (!second || !strstr(second, "; scratch "))
        fail_msg("the second product has no scratch in the plan:\n%s", text);
    gd_function_release(f);
    gd_close(gd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_change),
        cmocka_unit_test(test_explained),
        cmocka_unit_test(test_quantized_explained),
        cmocka_unit_test(test_scratch_is_planned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
