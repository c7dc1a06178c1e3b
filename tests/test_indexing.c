/* tests/test_indexing.c: what depends on values for its size (nonzero, masked_select, unique,
 * masks as indices), eagerly and refused in a trace; sorting of lines whose keys need every path of
 * the kernel, against sorting by the C library; random permutations; einsum of more operands than
 * the rows have; steps beyond every axis; what is said to be a copy or new shares no memory. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/autograd.h>

#include "support/guard.h"
#include <gradus/compile.h>
#include <gradus/ops.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static gd_context *context;

static int open_context(void **state)
{
    (void)state;
    gd_error_clear();
    context = gd_open(test_device(), .threads = 2, .seed = 5);
    return context ? 0 : -1;
}

static int close_context(void **state)
{
    (void)state;
    gd_close(context);
    return 0;
}

static gd_tensor *of(gd_shape shape, const double *x, gd_dtype dtype)
{
    return gd_cast(gd_from_host(context, shape, GD_F64, x), dtype);
}

static void assert_values(gd_tensor *t, gd_shape shape, const double *expected, const char *what)
{
    double got[64];
    if (!t)
        fail_msg("%s: %s", what, gd_error_message());
    gd_shape have = gd_tensor_shape(t);
    assert_int_equal(have.rank, shape.rank);
    for (int i = 0; i < shape.rank; i++)
        assert_int_equal(have.dim[i], shape.dim[i]);
    size_t count = (size_t)gd_tensor_count(t);
    assert_true(count <= 64);
    assert_int_equal(gd_tensor_read(gd_cast(t, GD_F64), got, count * sizeof *got), GD_OK);
    for (size_t i = 0; i < count; i++)
        if (!(got[i] == expected[i] || (isnan(got[i]) && isnan(expected[i]))))
            fail_msg("%s: element %zu is %g, expected %g", what, i, got[i], expected[i]);
}

/* ---- sizes that depend on values ---- */

static const double matrix[6] = { 0, 3, 0, -1, 0, NAN };

static void test_nonzero(void **state)
{
    (void)state;
    /* np.argwhere(x) */
    gd_tensor *x = of(GD_SHAPE(2, 3), matrix, GD_F32);
    assert_values(gd_nonzero(x), GD_SHAPE(3, 2), (double[]){ 0, 1, 1, 0, 1, 2 }, "nonzero");
    assert_values(gd_nonzero(gd_transpose(x, 0, 1)), GD_SHAPE(3, 2), (double[]){ 0, 1, 1, 0, 2, 1 },
                  "of a view");
    assert_values(gd_nonzero(gd_scalar(context, 5, GD_I32)), GD_SHAPE(1, 0), NULL, "of a number");
    assert_values(gd_nonzero(gd_zeros(context, GD_SHAPE(0, 4), GD_F32)), GD_SHAPE(0, 2), NULL,
                  "of nothing");
    assert_null(gd_nonzero(NULL));
    assert_int_equal(gd_error_code(), GD_OK);
}

static void test_masks(void **state)
{
    (void)state;
    gd_tensor *x = of(GD_SHAPE(2, 3), (double[]){ 1, 2, 3, 4, 5, 6 }, GD_F64);
    gd_set_requires_grad(x = gd_detach(gd_contiguous(x)), true);
    gd_tensor *mask = of(GD_SHAPE(2, 3), (double[]){ 1, 0, 0, 1, 0, 1 }, GD_BOOL);
    gd_tensor *rows = of(GD_SHAPE(2), (double[]){ 0, 1 }, GD_BOOL);
    gd_tensor *columns = of(GD_SHAPE(3), (double[]){ 1, 0, 1 }, GD_BOOL);
    /* x[mask]; x[rows]; x[:, columns]; x[rows, columns], which broadcasts (NumPy) */
    gd_tensor *picked = gd_masked_select(x, mask);
    assert_values(picked, GD_SHAPE(3), (double[]){ 1, 4, 6 }, "masked_select");
    assert_values(gd_index(x, 1, &mask), GD_SHAPE(3), (double[]){ 1, 4, 6 }, "mask");
    assert_values(gd_index(x, 1, &rows), GD_SHAPE(1, 3), (double[]){ 4, 5, 6 }, "rows");
    assert_values(gd_index(x, 2, (gd_tensor *[]){ NULL, columns }), GD_SHAPE(2, 2),
                  (double[]){ 1, 3, 4, 6 }, "columns");
    assert_values(gd_index(x, 2, (gd_tensor *[]){ rows, columns }), GD_SHAPE(2), (double[]){ 4, 6 },
                  "both");
    assert_values(gd_masked_select(x, columns), GD_SHAPE(4), (double[]){ 1, 3, 4, 6 },
                  "a mask that broadcasts");
    assert_values(gd_index_put(x, 1, &mask, gd_scalar(context, 0, GD_F64), false), GD_SHAPE(2, 3),
                  (double[]){ 0, 2, 3, 0, 5, 0 }, "index_put");
    assert_values(gd_index(x, 0, NULL), GD_SHAPE(2, 3), (double[]){ 1, 2, 3, 4, 5, 6 }, "nothing");
    gd_tensor *sum = gd_sum(gd_square(picked), GD_ALL_AXES, false), *d;
    assert_int_equal(gd_grad(1, &sum, NULL, 1, &x, &d), GD_OK);
    assert_values(d, GD_SHAPE(2, 3), (double[]){ 2, 0, 0, 8, 0, 12 }, "gradient");

    assert_null(gd_index(x, 1, &columns)); /* 3 against 2 rows */
    assert_int_equal(gd_error_code(), GD_ERR_SHAPE);
    gd_error_clear();
    assert_null(gd_masked_select(x, x));
    assert_int_equal(gd_error_code(), GD_ERR_DTYPE);
}

static void test_unique(void **state)
{
    (void)state;
    gd_tensor *x = of(GD_SHAPE(2, 4), (double[]){ 3, 1, NAN, 3, -2, 1, 3, NAN }, GD_F32);
    gd_tensor *inverse, *counts;
    /* np.unique(x, return_inverse=True, return_counts=True) */
    assert_values(gd_unique(x, &inverse, &counts), GD_SHAPE(4), (double[]){ -2, 1, 3, NAN },
                  "unique");
    assert_values(inverse, GD_SHAPE(2, 4), (double[]){ 2, 1, 3, 2, 0, 1, 2, 3 }, "inverse");
    assert_values(counts, GD_SHAPE(4), (double[]){ 1, 2, 3, 2 }, "counts");
    gd_tensor *none = gd_zeros(context, GD_SHAPE(0), GD_I64);
    assert_values(gd_unique(none, &inverse, &counts), GD_SHAPE(0), NULL, "of nothing");
    assert_values(counts, GD_SHAPE(0), NULL, "counts of nothing");
    assert_values(gd_unique(of(GD_SHAPE(5), (double[]){ 1, 0, 1, 1, 0 }, GD_BOOL), NULL, NULL),
                  GD_SHAPE(2), (double[]){ 0, 1 }, "of bools");
}

static gd_tensor *select_by_value(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    gd_tensor *mask = gd_gt(in[0], gd_zeros_like(in[0]));
    switch (*(const int *)user) {
    case 0:
        return gd_nonzero(mask);
    case 1:
        return gd_masked_select(in[0], mask);
    case 2:
        return gd_unique(in[0], NULL, NULL);
    default:
        return gd_index(in[0], 1, &mask);
    }
}

static void test_refused_in_a_trace(void **state)
{
    (void)state;
    gd_tensor *x = of(GD_SHAPE(3), (double[]){ 1, -1, 2 }, GD_F32);
    for (int which = 0; which < 4; which++) {
        gd_function *f = gd_compile(context, select_by_value, &which);
        assert_null(gd_call(f, 1, &x));
        assert_int_equal(gd_error_code(), GD_ERR_STATE);
        assert_non_null(strstr(gd_error_message(), "depends on values"));
        gd_error_clear();
        gd_function_release(f);
    }
}

/* ---- order ---- */

enum { N = 3000 };
static int64_t numbers[N];

static int compare_places(const void *a, const void *b)
{
    int64_t i = *(const int64_t *)a, k = *(const int64_t *)b;
    if (numbers[i] != numbers[k])
        return numbers[i] < numbers[k] ? -1 : 1;
    return (i > k) - (i < k);
}

/* i64 numbers that share their upper halves, differ in them, are few, or span all of the range. */
static void test_argsort_of_wide_keys(void **state)
{
    (void)state;
    static int64_t expected[N], got[N];
    for (int kind = 0; kind < 4; kind++) {
        uint64_t s = 88172645463325252u;
        for (int i = 0; i < N; i++) {
            s ^= s << 13;
            s ^= s >> 7;
            s ^= s << 17;
            int64_t r = (int64_t)s;
            numbers[i] = kind == 0   ? r % 1000
                         : kind == 1 ? r
                         : kind == 2 ? (r % 5) * ((int64_t)1 << 60) + (r >> 40) % 3
                                     : (r & 1 ? INT64_MIN : INT64_MAX) + (r & 1 ? 1 : -1) * (r & 6);
            expected[i] = i;
        }
        qsort(expected, N, sizeof *expected, compare_places);
        gd_tensor *x = gd_from_host(context, GD_SHAPE(N), GD_I64, numbers);
        assert_int_equal(gd_tensor_read(gd_argsort(x, 0, false), got, sizeof got), GD_OK);
        assert_memory_equal(got, expected, sizeof got);
        gd_tensor *first;
        assert_non_null(gd_topk(x, 0, 50, false, &first));
        assert_int_equal(gd_tensor_read(first, got, 50 * sizeof *got), GD_OK);
        assert_memory_equal(got, expected, 50 * sizeof *got);
    }
}

static void test_permutation(void **state)
{
    (void)state;
    static int64_t one[N], other[N];
    static bool seen[N];
    assert_int_equal(gd_tensor_read(gd_permutation(context, N), one, sizeof one), GD_OK);
    assert_int_equal(gd_tensor_read(gd_permutation(context, N), other, sizeof other), GD_OK);
    assert_memory_not_equal(one, other, sizeof one);
    int stay = 0;
    for (int i = 0; i < N; i++) {
        assert_true(one[i] >= 0 && one[i] < N && !seen[one[i]]);
        seen[one[i]] = true;
        stay += one[i] == i;
    }
    assert_true(stay < 12); /* 1 is expected */
}

/* ---- einsum ---- */

/* A chain of five matrices in one equation against the products one by one. */
static void test_einsum_chain(void **state)
{
    (void)state;
    gd_tensor *m[5], *product = NULL;
    for (int i = 0; i < 5; i++) {
        m[i] = gd_round(gd_uniform(context, GD_SHAPE(2 + i, 3 + i), -3, 3, GD_F64));
        product = i ? gd_matmul(product, m[i]) : m[0];
    }
    gd_tensor *chain = gd_einsum("ab,bc,cd,de,ef->af", 5, m);
    assert_int_equal(gd_tensor_count(chain), 2 * 7);
    assert_true(gd_item(gd_all(gd_eq(chain, product), GD_ALL_AXES, false)) == 1);
    gd_tensor *nothing[1] = { NULL };
    assert_null(gd_einsum("ab->ba", 1, nothing));
    assert_int_equal(gd_error_code(), GD_OK);
    assert_null(gd_einsum(NULL, 1, m));
    assert_int_equal(gd_error_code(), GD_ERR_INVALID);
}

/* The step from a single element is to none, however large. */
static void test_steps_beyond_the_axis(void **state)
{
    (void)state;
    static const int64_t steps[] = { GD_END, GD_END - 1, -GD_END };
    float values[] = { 1, 2, 3, 4, 5, 6 }, read[3];
    gd_tensor *x = gd_from_host(context, GD_SHAPE(2, 3), GD_F32, values);
    for (int i = 0; i < 3; i++) {
        gd_tensor *row = gd_slice(x, 0, 0, GD_END, steps[i]);
        assert_int_equal(gd_tensor_shape(row).dim[0], 1);
        assert_int_equal(gd_tensor_strides(row).dim[0], 3);
        assert_int_equal(gd_tensor_read(row, read, sizeof read), GD_OK);
        assert_memory_equal(read, values, sizeof read);
    }
}

/* Changing the result in place does not change the operand. */
static void expect_apart(gd_tensor *result, gd_tensor *operand)
{
    double before = gd_item(gd_sum(operand, GD_ALL_AXES, false));
    assert_non_null(gd_mul_scalar_(result, 0));
    assert_true(gd_item(gd_sum(operand, GD_ALL_AXES, false)) == before && before != 0);
}

static void test_copies_are_apart(void **state)
{
    (void)state;
    gd_tensor *x = gd_ones(context, GD_SHAPE(2, 3), GD_F32), *value = gd_add_scalar(x, 1);
    gd_tensor *all[1] = { NULL }, *none = gd_zeros(context, GD_SHAPE(0, 3), GD_I64);
    gd_tensor *row = gd_zeros(context, GD_SHAPE(0), GD_I64),
              *empty = gd_zeros(context, GD_SHAPE(0, 3), GD_F32);
    expect_apart(gd_index_put(x, 0, all, value, false), value);
    expect_apart(gd_index_put(x, 1, all, value, false), value);
    expect_apart(gd_index_put(x, 1, all, value, true), x);
    expect_apart(gd_scatter(x, none, empty, 0), x);
    expect_apart(gd_scatter_add(x, none, empty, 0), x);
    expect_apart(gd_index_add(x, row, empty, 0), x);
}

static void test_gradients_are_apart(void **state)
{
    (void)state;
    gd_tensor *a = gd_set_requires_grad(gd_ones(context, GD_SHAPE(3), GD_F32), true);
    gd_tensor *b = gd_set_requires_grad(gd_ones(context, GD_SHAPE(3), GD_F32), true);
    gd_tensor *seed = gd_full(context, GD_SHAPE(3), 2, GD_F32), *y = gd_add(a, b), *g[2];
    assert_int_equal(gd_grad(1, &a, &seed, 1, &a, g), GD_OK); /* by itself: the seed's value */
    expect_apart(g[0], seed);
    gd_tensor *both[2] = { a, b };
    assert_int_equal(gd_grad(1, &y, &seed, 2, both, g), GD_OK);
    expect_apart(g[0], seed);
    expect_apart(g[1], seed);
    assert_int_equal(gd_grad(1, &y, NULL, 2, both, g), GD_OK);
    expect_apart(g[0], g[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_nonzero, open_context, close_context),
        cmocka_unit_test_setup_teardown(test_masks, open_context, close_context),
        cmocka_unit_test_setup_teardown(test_unique, open_context, close_context),
        cmocka_unit_test_setup_teardown(test_refused_in_a_trace, open_context, close_context),
        cmocka_unit_test_setup_teardown(test_argsort_of_wide_keys, open_context, close_context),
        cmocka_unit_test_setup_teardown(test_permutation, open_context, close_context),
        cmocka_unit_test_setup_teardown(test_einsum_chain, open_context, close_context),
        cmocka_unit_test_setup_teardown(test_steps_beyond_the_axis, open_context, close_context),
        cmocka_unit_test_setup_teardown(test_copies_are_apart, open_context, close_context),
        cmocka_unit_test_setup_teardown(test_gradients_are_apart, open_context, close_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
