/* tests/test_op_gradients.c: derivatives. Each differentiable row of support/op_rows.h in f64, on
 * every device, with its operands in different layouts: the gradient against central differences of
 * the op, the gradient of the gradient against central differences of the gradient. Then what needs
 * an oracle of its own: softmax against its Jacobian, ties, casts, zeros of products. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/effort.h"
#include "support/tensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_ELEMENTS  120 /* of the operands of a case: each costs four runs */
#define FEWEST_HALVES  8   /* in which gradients are compared with those in f32 */
#define HALF_ROUNDINGS 16  /* by which a gradient in halves may be apart from that in f32 */

static gd_context *devices[2];

static int open_devices(void **state)
{
    (void)state;
    devices[0] = open_reference();
    devices[1] = open_cpu(NULL, 1);
    return 0;
}

static int close_devices(void **state)
{
    (void)state;
    close_context(devices[0]);
    close_context(devices[1]);
    return 0;
}

static int clear_error(void **state)
{
    (void)state;
    gd_error_clear();
    return 0;
}

/* One op on given numbers, and the directions its derivatives are taken in. */
typedef struct problem {
    const op_row *row;
    const op_case *c;
    gd_context *context;
    operand o[OP_MAX_OPERANDS];
    uint64_t seed; /* of the directions */
    char name[120];
} problem;

/* Random weights of t's shape, the same for the same `which`. */
static gd_tensor *weights_like(const problem *p, gd_tensor *t, uint64_t which)
{
    numbers n = { p->seed + which };
    static double w[1 << 17];
    int64_t count = gd_tensor_count(t);
    assert_true(count <= COUNT(w));
    for (int64_t i = 0; i < count; i++)
        w[i] = numbers_uniform(&n, 0.5, 1.5) * (numbers_next(&n) % 2 ? 1 : -1);
    return gd_from_host(p->context, gd_tensor_shape(t), GD_F64, w);
}

static bool is_real(const problem *p, int i)
{
    return p->row->operand[i].kind == OPERAND_VALUE;
}

/* The leaves of the operands, and sum(result * weights). */
static gd_tensor *build_loss(const problem *p, placed *at)
{
    gd_tensor *in[OP_MAX_OPERANDS] = { NULL };
    for (int i = 0; i < p->row->operands; i++) {
        at[i] = operand_place(p->context, &p->o[i], true);
        in[i] = at[i].view;
    }
    if (p->row->flags & OP_RANDOM)
        gd_seed(p->context, p->seed);
    gd_tensor *t = p->row->build(p->context, in, p->c->p);
    if (!t)
        fail_msg("%s: %s", p->name, gd_error_message());
    return gd_sum(gd_mul(t, weights_like(p, t, 0)), GD_ALL_AXES, false);
}

/* The gradients of the loss by the leaves that are real numbers: g[i], or NULL. */
static void gradients(const problem *p, gd_tensor *loss, const placed *at, gd_tensor **g)
{
    gd_tensor *leaves[OP_MAX_OPERANDS], *grads[OP_MAX_OPERANDS];
    int count = 0;
    for (int i = 0; i < p->row->operands; i++)
        if (is_real(p, i))
            leaves[count++] = at[i].leaf;
    if (gd_grad(1, &loss, NULL, count, leaves, grads) != GD_OK)
        fail_msg("%s: gd_grad: %s", p->name, gd_error_message());
    for (int i = 0, k = 0; i < p->row->operands; i++)
        g[i] = is_real(p, i) ? grads[k++] : NULL;
}

/* sum over operands of sum(gradient * weights): its gradient is the Hessian times the weights. The
 * weights of what lies between the elements of a view do not matter: the gradient there is 0. */
static gd_tensor *build_slope(const problem *p, placed *at)
{
    gd_tensor *g[OP_MAX_OPERANDS];
    gradients(p, build_loss(p, at), at, g);
    gd_tensor *slope = gd_scalar(p->context, 0, GD_F64);
    for (int i = 0; i < p->row->operands; i++)
        if (g[i])
            slope = gd_add(slope, gd_sum(gd_mul(g[i], weights_like(p, g[i], 1 + (uint64_t)i)),
                                         GD_ALL_AXES, false));
    if (!slope)
        fail_msg("%s: the gradient of the gradient: %s", p->name, gd_error_message());
    return slope;
}

typedef gd_tensor *(*function)(const problem *p, placed *at);

static double value_of(const problem *p, function f)
{
    placed at[OP_MAX_OPERANDS];
    gd_scope_begin(p->context);
    double value = gd_item(f(p, at));
    gd_scope_end(p->context);
    if (gd_error_code() != GD_OK)
        fail_msg("%s: %s", p->name, gd_error_message());
    return value;
}

/* Give element i a value; with it those that lie in the same place (stride 0). */
static void set_element(operand *o, int64_t i, double x)
{
    int64_t line = o->layout == LAYOUT_STRETCHED ? o->count / o->shape.dim[0] : o->count;
    for (int64_t k = i; k < o->count; k += line)
        o->value[k] = x;
}

/* df/dx by a central difference over x - h … x + h. */
static double slope_over(problem *p, function f, operand *o, int64_t i, double h)
{
    double kept = o->value[i], above = kept + h, below = kept - h;
    set_element(o, i, above);
    double high = value_of(p, f);
    set_element(o, i, below);
    double low = value_of(p, f);
    set_element(o, i, kept);
    return (high - low) / (above - below);
}

/* df/dx by two central differences and Richardson's step. Where the two are far apart a kink or a
 * jump lies between, and the steps are made smaller. */
static double difference(problem *p, function f, operand *o, int64_t i)
{
    double result = NAN;
    for (double h = 1e-3 * fmax(1, fabs(o->value[i])); h > 1e-8; h /= 30) {
        double wide = slope_over(p, f, o, i, h), narrow = slope_over(p, f, o, i, h / 2);
        result = (4 * narrow - wide) / 3;
        if (fabs(wide - narrow) <= 2e-6 * (1 + fabs(narrow)))
            break;
    }
    return result;
}

/* The derivatives of f as gd_grad builds them, against differences, for every element of every
 * operand. */
static void check_derivatives(problem *p, function f, const char *what)
{
    placed at[OP_MAX_OPERANDS];
    gd_tensor *g[OP_MAX_OPERANDS];
    reading r[OP_MAX_OPERANDS];
    gd_scope_begin(p->context);
    gradients(p, f(p, at), at, g);
    for (int i = 0; i < p->row->operands; i++)
        if (g[i])
            r[i] = reading_take(g[i], p->name);
    gd_scope_end(p->context);

    for (int i = 0; i < p->row->operands; i++) {
        if (!is_real(p, i))
            continue;
        operand *o = &p->o[i];
        assert_int_equal(r[i].dtype, GD_F64);
        double total = 0, seen = 0;
        for (int64_t k = 0; k < r[i].count; k++)
            total += fabs(reading_value(&r[i], k));
        int64_t own =
            o->layout == LAYOUT_STRETCHED && o->count ? o->count / o->shape.dim[0] : o->count;
        for (int64_t k = 0; k < own; k++) {
            double exact = reading_value(&r[i], operand_leaf_index(o, k));
            double close = difference(p, f, o, k);
            seen += fabs(exact);
            if (!(fabs(exact - close) <= 2e-7 * (1 + fabs(close))))
                fail_msg(
                    "%s: the %s by element %lld of operand %d is %.12g, differences give %.12g",
                    p->name, what, (long long)k, i, exact, close);
        }
        if (!(fabs(total - seen) <=
              1e-12 * total)) /* between the elements of a view there is none */
            fail_msg("%s: the %s reaches elements operand %d does not have", p->name, what, i);
        reading_free(&r[i]);
    }
}

static problem make_problem(const op_row *row, int c, int d, int arrangement, numbers *n)
{
    problem p = { .row = row, .c = &row->cases[c], .context = devices[d], .seed = numbers_next(n) };
    for (int i = 0; i < row->operands; i++) {
        layout_kind layout = (layout_kind)((arrangement + i) % LAYOUT_COUNT);
        if (layout == LAYOUT_STRETCHED && (row->flags & OP_MUST_VARY))
            layout = LAYOUT_CONTIGUOUS;
        p.o[i] = operand_make(row, p.c, i, GD_F64, layout, false, n);
    }
    snprintf(p.name, sizeof p.name, "%s, case %d, %s, on %s", row->name, c,
             layout_names[arrangement], gd_context_device(p.context));
    return p;
}

static int64_t case_elements(const op_row *row, int c)
{
    int64_t count = 0;
    for (int i = 0; i < row->operands; i++)
        count += shape_count(row->cases[c].shape[i]);
    return count;
}

/* max, min and their like have kinks where operands are equal: differences would step over one. */
static bool has_ties(const op_row *row)
{
    return row->id == GD_OP_max || row->id == GD_OP_min;
}

/* Each case in every layout; where tests are slow in one, another from case to case. */
static bool tries_layout(int r, int c, int layout)
{
    return !test_is_slow() || op_row_is_named(op_rows[r]) || layout == (r + c) % LAYOUT_COUNT;
}

static void check_all(function f, const char *what, int64_t most_elements)
{
    for (int r = 0; r < op_row_count; r++) {
        numbers n = numbers_of(op_rows[r], 21);
        for (int c = 0; c < op_rows[r]->case_count; c++) {
            if (!(op_rows[r]->flags & OP_DIFFERENTIABLE) ||
                (f == build_slope && (op_rows[r]->flags & OP_ONCE)) ||
                case_elements(op_rows[r], c) > most_elements)
                continue;
            for (int a = 0; a < LAYOUT_COUNT; a++) {
                if (a == LAYOUT_STRETCHED && has_ties(op_rows[r]))
                    continue;
                for (int d = a == 0 ? 0 : 1; d < 2;
                     d++) { /* on the reference, contiguous is enough */
                    problem p = make_problem(op_rows[r], c, d, a, &n);
                    if (tries_layout(r, c, a))
                        check_derivatives(&p, f, what);
                    for (int i = 0; i < p.row->operands; i++)
                        operand_free(&p.o[i]);
                }
            }
        }
    }
    assert_int_equal(watch_faults(), 0);
}

static void test_gradients(void **state)
{
    (void)state;
    check_all(build_loss, "gradient", MOST_ELEMENTS);
}

static void test_second_derivatives(void **state)
{
    (void)state;
    check_all(build_slope, "second derivative", MOST_ELEMENTS / 2);
}

/* ---- half precision against f32 ---- */

/* A number that both halves hold for each element of t, as t's dtype. */
static gd_tensor *seed_like(gd_context *context, gd_tensor *t, uint64_t state)
{
    numbers n = { state };
    const int64_t count = gd_tensor_count(t);
    float *eighths = malloc((size_t)count * sizeof *eighths + 1);
    assert_non_null(eighths);
    for (int64_t i = 0; i < count; i++)
        eighths[i] = (float)(4 + numbers_next(&n) % 9) * (numbers_next(&n) % 2 ? 0.125F : -0.125F);
    gd_tensor *seed = gd_from_host(context, gd_tensor_shape(t), GD_F32, eighths);
    free(eighths);
    return gd_cast(seed, gd_tensor_dtype(t));
}

/* The gradients by the leaves that are real numbers, of operands as they are or converted to f32. */
static void take_gradients(const problem *p, bool in_f32, reading *out)
{
    gd_tensor *in[OP_MAX_OPERANDS] = { NULL }, *g[OP_MAX_OPERANDS];
    placed at[OP_MAX_OPERANDS];
    gd_tensor *leaves[OP_MAX_OPERANDS];
    int count = 0;
    gd_scope_begin(p->context);
    for (int i = 0; i < p->row->operands; i++) {
        operand o = p->o[i];
        o.dtype = in_f32 && is_real(p, i) ? GD_F32 : o.dtype;
        at[i] = operand_place(p->context, &o, true);
        in[i] = at[i].view;
        if (is_real(p, i))
            leaves[count++] = at[i].leaf;
    }
    if (p->row->flags & OP_RANDOM)
        gd_seed(p->context, p->seed);
    gd_tensor *t = p->row->build(p->context, in, p->c->p);
    if (!t)
        fail_msg("%s: %s", p->name, gd_error_message());
    gd_tensor *seed = seed_like(p->context, t, p->seed);
    if (gd_grad(1, &t, &seed, count, leaves, g) != GD_OK)
        fail_msg("%s: gd_grad: %s", p->name, gd_error_message());
    for (int i = 0; i < count; i++)
        out[i] = reading_take(g[i], p->name);
    gd_scope_end(p->context);
}

/* Each rounding is of a value about as large as the largest element, or smaller; where elements are few, all of
 * them may be small by cancellation. */
static void check_half_gradient(const problem *p, int which, const reading *exact,
                                const reading *actual, gd_dtype dtype)
{
    const double epsilon = dtype == GD_F16 ? 0x1p-10 : 0x1p-7;
    double largest = 0;
    assert_int_equal(actual->dtype, dtype);
    assert_int_equal(actual->count, exact->count);
    for (int64_t i = 0; i < exact->count; i++)
        largest = fmax(largest, fabs(reading_value(exact, i)));
    for (int64_t i = 0; i < exact->count && exact->count >= FEWEST_HALVES; i++) {
        const double e = reading_value(exact, i), a = reading_value(actual, i);
        if (!(fabs(a - e) <= HALF_ROUNDINGS * epsilon / 2 * largest))
            fail_msg(
                "%s: the gradient by element %lld of operand %d is %g, in f32 %g, of at most %g",
                p->name, (long long)i, which, a, e, largest);
    }
}

static void try_half_gradients(const op_row *row, int c, gd_dtype dtype, numbers *n)
{
    problem p = { .row = row, .c = &row->cases[c], .context = devices[1], .seed = numbers_next(n) };
    reading half[OP_MAX_OPERANDS], exact[OP_MAX_OPERANDS];
    int count = 0;
    for (int i = 0; i < row->operands; i++) {
        p.o[i] = operand_make(row, p.c, i, dtype, LAYOUT_CONTIGUOUS, false, n);
        count += is_real(&p, i);
    }
    snprintf(p.name, sizeof p.name, "%s %s, case %d", row->name, gd_dtype_name(dtype), c);
    take_gradients(&p, false, half);
    take_gradients(&p, true, exact);
    for (int i = 0; i < count; i++) {
        check_half_gradient(&p, i, &exact[i], &half[i], dtype);
        reading_free(&half[i]);
        reading_free(&exact[i]);
    }
    for (int i = 0; i < row->operands; i++)
        operand_free(&p.o[i]);
}

/* Gradients in f16 and bf16 are those in f32 but for a few roundings. */
static void test_half_gradients(void **state)
{
    (void)state;
    static const gd_dtype dtypes[] = { GD_F16, GD_BF16 };
    for (int r = 0; r < op_row_count; r++) {
        const op_row *row = op_rows[r];
        numbers n = numbers_of(row, 22);
        for (int c = 0; c < row->case_count && (row->flags & OP_DIFFERENTIABLE); c++)
            for (int d = 0; d < 2; d++)
                if (row->operands > 0 && op_row_takes(row, dtypes[d]))
                    try_half_gradients(row, c, dtypes[d], &n);
    }
    assert_int_equal(watch_faults(), 0);
}

/* ---- softmax against its Jacobian ---- */

/* d softmax_i / d x_j = s_i (i == j) - s_i s_j, written out, times g: what the vector-Jacobian
 * product must be. */
static void test_softmax_jacobian(void **state)
{
    (void)state;
    enum { ROWS = 5, N = 13 };
    numbers n = { 31 };
    double x[ROWS * N], g[ROWS * N], d[ROWS * N];
    for (int i = 0; i < ROWS * N; i++) {
        x[i] = numbers_uniform(&n, -6, 6);
        g[i] = numbers_uniform(&n, -2, 2);
    }
    x[3] = 800; /* one row nearly one-hot: its gradient must not overflow */
    for (int k = 0; k < 2; k++) {
        gd_context *context = devices[k];
        gd_scope_begin(context);
        gd_tensor *leaf =
            gd_set_requires_grad(gd_from_host(context, GD_SHAPE(ROWS, N), GD_F64, x), true);
        gd_tensor *s = gd_softmax(leaf, 1),
                  *seed = gd_from_host(context, GD_SHAPE(ROWS, N), GD_F64, g), *dx;
        assert_int_equal(gd_grad(1, &s, &seed, 1, &leaf, &dx), GD_OK);
        assert_int_equal(gd_tensor_read(dx, d, sizeof d), GD_OK);
        for (int row = 0; row < ROWS; row++) {
            long double soft[N], sum = 0, most = -INFINITY;
            for (int i = 0; i < N; i++)
                most = fmaxl(most, x[row * N + i]);
            for (int i = 0; i < N; i++)
                sum += soft[i] = expl(x[row * N + i] - most);
            for (int j = 0; j < N; j++) {
                long double expected = 0;
                for (int i = 0; i < N; i++) {
                    long double jacobian =
                        (i == j ? soft[i] / sum : 0) - soft[i] / sum * (soft[j] / sum);
                    expected += g[row * N + i] * jacobian;
                }
                assert_true(fabs(d[row * N + j] - (double)expected) <= 1e-14);
            }
        }
        gd_scope_end(context);
    }
}

/* ---- by hand ---- */

/* The gradient of sum(f(x)) for one operand of n numbers. */
static void gradient_of(gd_context *context, gd_tensor *(*f)(gd_tensor *x), int n, const double *x,
                        double *out)
{
    gd_scope_begin(context);
    gd_tensor *leaf = gd_set_requires_grad(gd_from_host(context, GD_SHAPE(n), GD_F64, x), true), *d;
    gd_tensor *sum = gd_sum(f(leaf), GD_ALL_AXES, false);
    assert_int_equal(gd_grad(1, &sum, NULL, 1, &leaf, &d), GD_OK);
    assert_int_equal(gd_tensor_read(d, out, (size_t)n * sizeof *out), GD_OK);
    gd_scope_end(context);
}

static gd_tensor *max_of(gd_tensor *x)
{
    return gd_max(x, GD_ALL_AXES, false);
}

static gd_tensor *prod_of(gd_tensor *x)
{
    return gd_prod(x, GD_ALL_AXES, false);
}

static gd_tensor *cumprod_of(gd_tensor *x)
{
    return gd_cumprod(x, 0);
}

/* Its sum is a sum of second derivatives of cumprod. */
static gd_tensor *gradient_of_cumprod(gd_tensor *x)
{
    gd_tensor *y = gd_cumprod(x, 0), *gradient = NULL;
    return gd_grad(1, &y, NULL, 1, &x, &gradient) == GD_OK ? gradient : NULL;
}

static gd_tensor *prod_over_nothing(gd_tensor *x)
{
    gd_tensor *y = gd_reshape(x, GD_SHAPE(2, 1, 1, 1, 1, 1, 1, 1));
    return gd_prod(gd_square(y), (gd_axes){ .count = 0 }, false);
}

static gd_tensor *none_of(gd_tensor *x)
{
    return gd_flip(gd_slice(x, 0, 0, 0, 1), GD_AXES(0));
}

static gd_tensor *max_with_itself(gd_tensor *x)
{
    return gd_maximum(x, gd_flip(x, GD_ALL_AXES));
}

static gd_tensor *clipped(gd_tensor *x)
{
    return gd_clip(x, -1, 2);
}

static gd_tensor *through_f32(gd_tensor *x)
{
    return gd_mul_scalar(gd_cast(gd_mul_scalar(gd_cast(x, GD_F32), 3), GD_F64), 0.125);
}

static gd_tensor *squared_power(gd_tensor *x)
{
    return gd_pow_scalar(x, 2);
}

static gd_tensor *zeroth_power(gd_tensor *x)
{
    return gd_pow_scalar(x, 0);
}

static gd_tensor *power_of_itself(gd_tensor *x)
{
    return gd_pow(gd_detach(x), x);
}

static gd_tensor *to_the_powers(gd_tensor *x)
{
    gd_tensor *y =
        gd_from_host(gd_tensor_context(x), GD_SHAPE(4), GD_F64, (double[]){ 0, 1, 2, 0 });
    return gd_pow(x, y);
}

static gd_tensor *gradient_of_powers(gd_tensor *x)
{
    gd_tensor *y = to_the_powers(x), *gradient = NULL;
    return gd_grad(1, &y, NULL, 1, &x, &gradient) == GD_OK ? gradient : NULL;
}

static gd_tensor *gradient_of_squared_exponent(gd_tensor *x)
{
    gd_tensor *y = gd_full(gd_tensor_context(x), gd_tensor_shape(x), 2, GD_F64), *gradient = NULL;
    gd_set_requires_grad(y, true);
    gd_tensor *z = gd_pow(x, y);
    return gd_grad(1, &z, NULL, 1, &y, &gradient) == GD_OK ? gradient : NULL;
}

static gd_tensor *deviation_of(gd_tensor *x)
{
    return gd_std(x, GD_ALL_AXES, 1, false);
}

static gd_tensor *half_norm_of(gd_tensor *x)
{
    return gd_norm(x, GD_ALL_AXES, 0.5, false);
}

static gd_tensor *norm_of(gd_tensor *x)
{
    return gd_norm(x, GD_ALL_AXES, 1.5, false);
}

static gd_tensor *similarity_to_ones(gd_tensor *x)
{
    return gd_cosine_similarity(x, gd_ones(gd_tensor_context(x), gd_tensor_shape(x), GD_F64), 0);
}

/* The distance is exactly 0: 1e-6 is added to the difference. */
static gd_tensor *distance_of_nothing(gd_tensor *x)
{
    gd_tensor *far = gd_full(gd_tensor_context(x), gd_tensor_shape(x), 9, GD_F64);
    return gd_triplet_margin(x, gd_add_scalar(gd_detach(x), 1e-6), far, .margin = 100);
}

static gd_tensor *focused(gd_tensor *x)
{
    gd_tensor *target = gd_ones(gd_tensor_context(x), gd_tensor_shape(x), GD_F64);
    return gd_focal(x, target, .gamma = 0.5, .reduction = GD_REDUCE_SUM);
}

/* What torch.autograd.grad(f(x).sum(), x) gives (PyTorch 2.15.0; amax for max, vector_norm for
 * norm), but for
 * - clip at a bound: PyTorch gives 0; here it is the gradient inside of the bounds (gradus/ops.h);
 * - cumprod of products that underflow on the way: PyTorch gives { 1, 0, 0 }, which is wrong;
 * - gradient_of_powers and gradient_of_squared_exponent at 0, and a focal loss made of
 *   binary_cross_entropy_with_logits at 800: PyTorch gives NaN; expected is the limit, 0. */
static void test_where_differences_fail(void **state)
{
    (void)state;
    static const struct {
        gd_tensor *(*f)(gd_tensor *x);
        int n;
        double x[5], expected[5];
    } rows[] = {
        { max_of, 5, { 1, 3, 3, 2, 3 }, { 0, 1. / 3, 1. / 3, 0, 1. / 3 } },
        { prod_of, 4, { 2, 0, 3, 4 }, { 0, 24, 0, 0 } },
        { prod_of, 4, { 2, 0, 3, 0 }, { 0, 0, 0, 0 } },
        { cumprod_of, 4, { 2, 0, 3, 4 }, { 1, 32, 0, 0 } },
        { cumprod_of, 5, { 0, 2, 0, 3, 5 }, { 3, 0, 0, 0, 0 } },
        { cumprod_of, 3, { 1e-200, 1e-200, 1e200 }, { 2, 1, 0 } },
        { gradient_of_cumprod, 4, { 2, 0, 3, 4 }, { 16, 32, 10, 6 } },
        { gradient_of_cumprod, 5, { 0, 2, 0, 3, 5 }, { 39, 1, 38, 0, 0 } },
        { prod_over_nothing, 2, { 3, 4 }, { 6, 8 } },
        { none_of, 2, { 1, 2 }, { 0, 0 } },
        { max_with_itself, 3, { 1, 5, 4 }, { 0, 1, 2 } },
        { clipped, 5, { -2, -1, 0, 2, 3 }, { 0, 1, 1, 1, 0 } },
        { through_f32, 2, { 1, -2 }, { 0.375, 0.375 } },
        { squared_power, 3, { 0, -1.5, 2 }, { 0, -3, 4 } },
        { zeroth_power, 3, { 0, -1.5, 2 }, { 0, 0, 0 } },
        { power_of_itself, 2, { 0, 1 }, { 0, 0 } },
        { to_the_powers, 4, { 0, 0, 0, 5 }, { 0, 1, 0, 0 } },
        { gradient_of_powers, 4, { 0, 0, 0, 5 }, { 0, 0, 2, 0 } },
        { gradient_of_squared_exponent, 2, { 0, 1 }, { 0, 1 } },
        { deviation_of, 3, { 2, 2, 2 }, { 0, 0, 0 } },
        { deviation_of, 3, { 1, 2, 3 }, { -0.5, 0, 0.5 } },
        { half_norm_of, 3, { 0, 4, -9 }, { 0, 2.5, -5. / 3 } },
        { half_norm_of, 2, { 0, 0 }, { 0, 0 } },
        { norm_of, 2, { 0, 0 }, { 0, 0 } },
        { norm_of, 2, { 0, -8 }, { 0, -1 } },
        { similarity_to_ones, 2, { 0, 0 }, { 1e8 * M_SQRT1_2, 1e8 * M_SQRT1_2 } },
        { distance_of_nothing, 1, { 0 }, { 1 } },
        { focused, 1, { 800 }, { 0 } },
        { gd_abs, 3, { 0, -1.5, 2 }, { 0, -1, 1 } },
        { gd_relu, 3, { 0, -1.5, 2 }, { 0, 0, 1 } },
        { gd_relu6, 4, { 0, -1.5, 2, 7 }, { 0, 0, 1, 0 } },
    };
    for (int d = 0; d < 2; d++)
        for (int r = 0; r < COUNT(rows); r++) {
            double out[5];
            gradient_of(devices[d], rows[r].f, rows[r].n, rows[r].x, out);
            for (int i = 0; i < rows[r].n; i++)
                if (!(fabs(out[i] - rows[r].expected[i]) <=
                      1e-14 * fmax(1, fabs(rows[r].expected[i]))))
                    fail_msg("row %d on %s: the gradient of element %d is %.17g, expected %.17g", r,
                             gd_context_device(devices[d]), i, out[i], rows[r].expected[i]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_gradients, clear_error),
        cmocka_unit_test_setup(test_second_derivatives, clear_error),
        cmocka_unit_test_setup(test_half_gradients, clear_error),
        cmocka_unit_test_setup(test_softmax_jacobian, clear_error),
        cmocka_unit_test_setup(test_where_differences_fail, clear_error),
    };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
