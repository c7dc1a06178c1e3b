/* tests/test_softmax_kernels.c: softmax, log_softmax, cross_entropy and its gradient of the CPU
 * back end, called by hand: f32 and f64, every axis and kind of layout, on every instruction set of
 * this machine, against long double; the same bits with 1, 2 and 8 threads; extreme logits, NaN and
 * infinities; labels out of range.
 */
#include "device_support.h"

#include <float.h>

#define SHAPE(...) GD_SHAPE(__VA_ARGS__)

typedef struct softmax_case {
    const test_operand *x, *labels, *g;
    int axis;
    bool is_log;
} softmax_case;

static long double unit_of(gd_dtype dtype)
{
    return dtype == GD_F32 ? (long double)FLT_EPSILON : (long double)DBL_EPSILON;
}

/* What a line is made of: element i at row-major number first + i * step. */
typedef struct line {
    int64_t first, step, n;
    long double max, sum;
} line;

static line measure_line(const test_operand *x, int64_t first, int64_t step, int64_t n)
{
    line l = { first, step, n, -(long double)INFINITY, 0 };
    for (int64_t i = 0; i < n; i++) {
        long double v = get_element(x, first + i * step);
        l.max = v > l.max || isnan(v) ? v : l.max;
    }
    for (int64_t i = 0; i < n; i++)
        l.sum += expl(get_element(x, first + i * step) - l.max);
    return l;
}

/* Every factor: the rounding of x - max moves exp by its own size; the sum, 1 / s and the product
 * add a few units. */
static long double softmax_error(gd_dtype dtype, long double value, long double shift)
{
    return unit_of(dtype) * (value * (fabsl(shift) + 12)) +
           (dtype == GD_F32 ? 0x1p-147L : 0x1p-1070L);
}

static long double log_error(gd_dtype dtype, const line *l, long double shift)
{
    return unit_of(dtype) * (fabsl(shift) + fabsl(logl(l->sum)) + 12);
}

static void expect_near(long double got, long double want, long double error)
{
    if (isnan(want) ? !isnan(got) : isinf(want) ? got != want : !(fabsl(got - want) <= error))
        fail_msg("%.12Lg, not %.12Lg (allowed %Lg)", got, want, error);
}

/* Large shapes are there for how work is cut; they need not be tried in every layout. */
static bool is_worth_trying(gd_shape shape, int kind)
{
    int64_t count = 1;
    for (int i = 0; i < shape.rank; i++)
        count *= shape.dim[i];
    return count < 10000 || kind == CONTIGUOUS || kind == TRANSPOSED || kind == STEPPED;
}

static void check_softmax(void *user, const test_result *result)
{
    const softmax_case *c = user;
    gd_dtype dtype = result->layout.dtype;
    const gd_layout *x = &c->x->layout;
    int64_t n = x->rank ? x->shape[c->axis] : 1, inner = 1, count = count_of(c->x);
    for (int i = c->axis + 1; i < x->rank; i++)
        inner *= x->shape[i];
    for (int64_t k = 0; k < (n ? count / n : 0); k++) {
        line l = measure_line(c->x, k / inner * n * inner + k % inner, inner, n);
        for (int64_t i = 0; i < n; i++) {
            int64_t at = l.first + i * inner;
            long double shift = get_element(c->x, at) - l.max;
            long double got = get_number(dtype, result->data, at);
            if (c->is_log)
                expect_near(got, shift - logl(l.sum), log_error(dtype, &l, shift));
            else
                expect_near(got, expl(shift) / l.sum,
                            softmax_error(dtype, expl(shift) / l.sum, shift));
        }
    }
}

static void run_softmax(const test_operand *x, int axis)
{
    softmax_case c = { .x = x, .axis = axis };
    gd_axis_attr attr = { .axis = axis };
    test_result result = make_result(gd_layout_shape(&x->layout), x->layout.dtype);
    gd_operand operand = as_operand(x);
    run_everywhere(GD_OP_softmax, "softmax", &attr, 1, &operand, &result, false, check_softmax, &c);
    c.is_log = true;
    run_everywhere(GD_OP_log_softmax, "log_softmax", &attr, 1, &operand, &result, false,
                   check_softmax, &c);
    free_result(&result);
}

static void fill_logits(test_operand *x, long double scale)
{
    for (int64_t i = 0, n = count_of(x); i < n; i++)
        set_element(x, i, (long double)test_unit() * scale);
}

static void test_shapes(void **state)
{
    (void)state;
    const gd_shape shapes[] = {
        GD_SCALAR,           SHAPE(1),        SHAPE(5),       SHAPE(7, 11),
        SHAPE(5, 7, 11),     SHAPE(0, 3),     SHAPE(3, 0),    SHAPE(50, 10),
        SHAPE(9, 16),        SHAPE(9, 17),    SHAPE(3, 64),   SHAPE(3, 65),
        SHAPE(5, 7, 11, 13), SHAPE(2, 9001),  SHAPE(9001, 3), SHAPE(1, 300),
        SHAPE(2, 130, 150),  SHAPE(300, 257), SHAPE(2, 1, 4),
    };
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int kind = 0; kind < LAYOUT_KINDS; kind++)
            for (gd_dtype dtype = GD_F32; dtype <= GD_F64; dtype++) {
                if (!is_worth_trying(shapes[s], kind))
                    continue;
                test_operand x = make_operand(shapes[s], dtype, (enum layout_kind)kind);
                fill_logits(&x, 5);
                for (int axis = 0; axis < shapes[s].rank || axis == 0; axis++)
                    run_softmax(&x, axis);
                free_operand(&x);
            }
}

/* Logits so far apart that a sum of plain exponentials would overflow or vanish. */
static void test_extremes(void **state)
{
    (void)state;
    const gd_shape shapes[] = { SHAPE(4, 10), SHAPE(4, 100), SHAPE(100, 5), SHAPE(4, 5000) };
    static const long double scales[] = { 1e-30L, 80, 1e4L, 1.5e38L };
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (size_t k = 0; k < 4; k++)
            for (gd_dtype dtype = GD_F32; dtype <= GD_F64; dtype++) {
                test_operand x = make_operand(shapes[s], dtype, CONTIGUOUS);
                fill_logits(&x, scales[k]);
                run_softmax(&x, 0);
                run_softmax(&x, 1);
                free_operand(&x);
            }
}

/* As PyTorch 1.13 prints them: torch.softmax(torch.tensor([[nan, 0.], [-inf, 0.], [-inf, -inf],
 * [inf, 0.]]), 1) gives
 * [[nan, nan], [0, 1], [nan, nan], [nan, nan]]; so do long rows and columns. */
static void test_special_values(void **state)
{
    (void)state;
    static const int lengths[] = { 2, 10, 16, 17, 100, 5000 };
    for (int k = 0; k < 6; k++)
        for (int along = 0; along < 2; along++)
            for (gd_dtype dtype = GD_F32; dtype <= GD_F64; dtype++) {
                int64_t n = lengths[k];
                test_operand x = make_operand(along ? SHAPE(4, n) : SHAPE(n, 4), dtype, CONTIGUOUS);
                fill_logits(&x, 1);
                int64_t row = along ? n : 1, step = along ? 1 : 4, hit = n / 2;
                set_element(&x, 0 * row + hit * step, (long double)NAN);
                set_element(&x, 1 * row + hit * step, -(long double)INFINITY);
                for (int64_t i = 0; i < n; i++)
                    set_element(&x, 2 * row + i * step, -(long double)INFINITY);
                set_element(&x, 3 * row + hit * step, (long double)INFINITY);

                gd_axis_attr attr = { .axis = along };
                test_result result = make_result(gd_layout_shape(&x.layout), dtype);
                gd_operand operand = as_operand(&x);
                for (int d = 0; d < test_device_count; d++)
                    for (int is_log = 0; is_log < 2; is_log++) {
                        assert_int_equal(run_kernel(&test_devices[d], 1,
                                                    is_log ? GD_OP_log_softmax : GD_OP_softmax,
                                                    "softmax", &attr, 1, &operand, &result),
                                         GD_OK);
                        for (int64_t i = 0; i < n; i++) {
                            assert_true(isnan(get_number(dtype, result.data, 0 * row + i * step)));
                            assert_true(isnan(get_number(dtype, result.data, 2 * row + i * step)));
                            assert_true(isnan(get_number(dtype, result.data, 3 * row + i * step)));
                        }
                        long double hidden = get_number(dtype, result.data, row + hit * step);
                        assert_true(is_log ? hidden == -(long double)INFINITY : hidden == 0);
                        assert_true(!isnan(get_number(dtype, result.data, row)));
                    }
                free_result(&result);
                free_operand(&x);
            }
}

/* ---- cross_entropy ---- */

static void check_loss(void *user, const test_result *result)
{
    const softmax_case *c = user;
    gd_dtype dtype = result->layout.dtype;
    int64_t classes = c->x->layout.shape[1];
    for (int64_t r = 0; r < c->x->layout.shape[0]; r++) {
        line l = measure_line(c->x, r * classes, 1, classes);
        long double shift =
            get_element(c->x, r * classes + (int64_t)get_element(c->labels, r)) - l.max;
        expect_near(get_number(dtype, result->data, r), logl(l.sum) - shift,
                    log_error(dtype, &l, shift));
    }
}

static void check_loss_grad(void *user, const test_result *result)
{
    const softmax_case *c = user;
    gd_dtype dtype = result->layout.dtype;
    int64_t classes = c->x->layout.shape[1];
    for (int64_t r = 0; r < c->x->layout.shape[0]; r++) {
        line l = measure_line(c->x, r * classes, 1, classes);
        long double g = get_element(c->g, r);
        for (int64_t i = 0; i < classes; i++) {
            long double shift = get_element(c->x, r * classes + i) - l.max, p = expl(shift) / l.sum;
            int hit = i == (int64_t)get_element(c->labels, r);
            expect_near(get_number(dtype, result->data, r * classes + i), (p - hit) * g,
                        (softmax_error(dtype, p, shift) + 2 * unit_of(dtype) * fabsl(p - hit)) *
                            fabsl(g));
        }
    }
}

static void run_loss(gd_shape shape, gd_dtype dtype, enum layout_kind kind, gd_dtype label_dtype)
{
    test_operand x = make_operand(shape, dtype, kind);
    test_operand labels = make_operand(SHAPE(shape.dim[0]), label_dtype,
                                       kind == STEPPED || kind == BACKWARDS ? kind : CONTIGUOUS);
    /* g broadcast from one number, as the gradient of a mean is, or one for each row */
    test_operand g = make_operand(SHAPE(shape.dim[0]), dtype,
                                  kind == STRETCHED ? STRETCHED
                                  : kind == FLAT    ? STEPPED
                                                    : CONTIGUOUS);
    fill_logits(&x, 8);
    fill_random(&g);
    for (int64_t i = 0; i < shape.dim[0]; i++)
        set_element(
            &labels, i,
            (long double)(test_random() % (uint64_t)(shape.dim[1] < 200 ? shape.dim[1] : 200)));
    gd_operand in[3] = { as_operand(&x), as_operand(&labels), as_operand(&g) };
    softmax_case c = { .x = &x, .labels = &labels, .g = &g };
    test_result loss = make_result(SHAPE(shape.dim[0]), dtype), grad = make_result(shape, dtype);
    run_everywhere(GD_OP_cross_entropy, "cross_entropy", NULL, 2, in, &loss, false, check_loss, &c);
    run_everywhere(GD_OP_cross_entropy_grad, "cross_entropy_grad", NULL, 3, in, &grad, false,
                   check_loss_grad, &c);
    free_result(&loss);
    free_result(&grad);
    free_operand(&x);
    free_operand(&labels);
    free_operand(&g);
}

static void test_cross_entropy(void **state)
{
    (void)state;
    const gd_shape shapes[] = { SHAPE(1, 1),    SHAPE(1, 7),    SHAPE(7, 1),  SHAPE(50, 10),
                                SHAPE(5, 16),   SHAPE(5, 17),   SHAPE(0, 10), SHAPE(300, 11),
                                SHAPE(7, 5003), SHAPE(900, 100) };
    static const gd_dtype label_dtypes[] = { GD_I64, GD_I32, GD_U8 };
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int kind = 0; kind < LAYOUT_KINDS; kind++)
            for (gd_dtype dtype = GD_F32; dtype <= GD_F64; dtype++)
                for (int k = 0; k < 3; k++)
                    if (is_worth_trying(shapes[s], kind + k))
                        run_loss(shapes[s], dtype, (enum layout_kind)kind, label_dtypes[k]);
}

static void test_bad_labels(void **state)
{
    (void)state;
    static const int64_t bad[] = { -1, 10, INT64_MIN, INT64_MAX };
    for (int k = 0; k < 4; k++)
        for (int d = 0; d < test_device_count; d++)
            for (int threads = 1; threads <= 2; threads++) {
                test_operand x = make_operand(SHAPE(5000, 10), GD_F32, CONTIGUOUS);
                test_operand labels = make_operand(SHAPE(5000), GD_I64, CONTIGUOUS);
                test_operand g = make_operand(SHAPE(5000), GD_F32, CONTIGUOUS);
                ((int64_t *)labels.storage)[3] = bad[k];
                ((int64_t *)labels.storage)[4000] = 99;
                test_result loss = make_result(SHAPE(5000), GD_F32),
                            grad = make_result(SHAPE(5000, 10), GD_F32);
                gd_operand in[3] = { as_operand(&x), as_operand(&labels), as_operand(&g) };
                char sentence[200];
                snprintf(sentence, sizeof sentence,
                         "cross_entropy: label %lld of row 3 is not one of 10 classes",
                         (long long)bad[k]);
                assert_int_equal(run_kernel(&test_devices[d], threads, GD_OP_cross_entropy,
                                            "cross_entropy", NULL, 2, in, &loss),
                                 GD_ERR_INVALID);
                assert_string_equal(gd_error_message(), sentence);
                gd_error_clear();
                assert_int_equal(run_kernel(&test_devices[d], threads, GD_OP_cross_entropy_grad,
                                            "cross_entropy_grad", NULL, 3, in, &grad),
                                 GD_ERR_INVALID);
                gd_error_clear();
                free_result(&loss);
                free_result(&grad);
                free_operand(&x);
                free_operand(&labels);
                free_operand(&g);
            }
}

static void test_wrong_dtypes(void **state)
{
    (void)state;
    test_operand x = make_operand(SHAPE(2, 3), GD_I32, CONTIGUOUS),
                 f = make_operand(SHAPE(2, 3), GD_F32, CONTIGUOUS);
    test_operand labels = make_operand(SHAPE(2), GD_F32, CONTIGUOUS);
    test_result result = make_result(SHAPE(2, 3), GD_F32);
    gd_axis_attr attr = { .axis = 1 };
    gd_operand whole = as_operand(&x), in[2] = { as_operand(&f), as_operand(&labels) };
    assert_int_equal(
        run_kernel(&test_devices[0], 1, GD_OP_softmax, "softmax", &attr, 1, &whole, &result),
        GD_ERR_DTYPE);
    assert_string_equal(gd_error_message(), "softmax of i32");
    gd_error_clear();
    assert_int_equal(
        run_kernel(&test_devices[0], 1, GD_OP_cross_entropy, "cross_entropy", NULL, 2, in, &result),
        GD_ERR_DTYPE);
    gd_error_clear();
    free_result(&result);
    free_operand(&x);
    free_operand(&f);
    free_operand(&labels);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),         cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_special_values), cmocka_unit_test(test_cross_entropy),
        cmocka_unit_test(test_bad_labels),     cmocka_unit_test(test_wrong_dtypes),
    };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
