/* tests/test_activation_bits.c: gd_gelu, gd_gelu_tanh and gd_silu, each one op, against the graphs of
 * smaller ops that define them: results and gradients, bit for bit, for numbers of every magnitude
 * and of every kind, in every float dtype, on each instruction set; eagerly, compiled and lazily. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/compile.h>

#include "support/effort.h"
#include "support/guard.h"
#include "support/tensors.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- the definitions ---- */

static gd_tensor *gelu(gd_tensor *x)
{
    gd_tensor *cdf = gd_add_scalar(gd_erf(gd_mul_scalar(x, 0.70710678118654752440)), 1.0);
    return gd_mul(gd_mul_scalar(x, 0.5), cdf);
}

static gd_tensor *gelu_tanh(gd_tensor *x)
{
    gd_tensor *cubic = gd_mul(gd_mul_scalar(gd_square(x), 0.044715), x);
    gd_tensor *inner = gd_mul_scalar(gd_add(x, cubic), 0.79788456080286535588);
    return gd_mul(gd_mul_scalar(x, 0.5), gd_add_scalar(gd_tanh(inner), 1.0));
}

static gd_tensor *silu(gd_tensor *x)
{
    return gd_mul(x, gd_sigmoid(x));
}

typedef struct activation {
    const char *name;
    gd_tensor *(*op)(gd_tensor *x), *(*definition)(gd_tensor *x);
    gd_tensor *(*gradient)(gd_tensor *g, gd_tensor *x);
} activation;

static const activation activations[] = {
    { "gelu", gd_gelu, gelu, gd_gelu_grad },
    { "gelu_tanh", gd_gelu_tanh, gelu_tanh, gd_gelu_tanh_grad },
    { "silu", gd_silu, silu, gd_silu_grad },
};

/* ---- numbers ---- */

enum { NUMBERS = 40009 };

/* Not finite, subnormal, at the ends of the range, around the functions' minima and where they
 * become 0 or the identity; then two thirds of any bits, a third from -12 to 12. */
static double number(numbers *n, gd_dtype dtype, int i)
{
    static const double special[] = { NAN,     INFINITY, 0,      FLT_TRUE_MIN, FLT_MIN, 0x1p-130,
                                      FLT_MAX, DBL_MIN,  1e-310, DBL_MAX,      0x1p63,  0x1p-63,
                                      0.75,    0.7517,   1.2785, 0.92,         1.3,     1,
                                      5.5,     8.5,      13.5,   20,           38,      88.7,
                                      103.9,   104.1,    709,    745,          1e4,     65504,
                                      0x1p-24, 0x1p-14,  0x1p64, 1e19,         1e13,    3e38,
                                      1.84e19 };
    if (i < 2 * COUNT(special))
        return i % 2 ? -special[i / 2] : special[i / 2];
    const uint64_t bits = numbers_next(n);
    if (i % 3 == 0)
        return numbers_uniform(n, -12, 12);
    if (dtype == GD_F64) {
        double any;
        memcpy(&any, &bits, sizeof any);
        return any;
    }
    const uint32_t word = (uint32_t)(bits >> 32);
    float any;
    memcpy(&any, &word, sizeof any);
    return (double)any;
}

/* As a tensor of the dtype; `shift` pairs them differently. */
static gd_tensor *numbers_tensor(gd_context *context, gd_dtype dtype, uint64_t seed, int shift)
{
    static double list[NUMBERS];
    numbers n = { seed };
    for (int i = 0; i < NUMBERS; i++)
        list[(i + shift) % NUMBERS] = number(&n, dtype, i);
    return gd_cast(gd_from_host(context, GD_SHAPE(NUMBERS), GD_F64, list), dtype);
}

/* ---- a function and its gradient ---- */

enum { RESULTS = 3 };

typedef struct body {
    const activation *a;
    bool is_defined; /* by the graph, else the op */
    gd_tensor *result[RESULTS];
} body;

/* f(x), the gradient by x that g gives, and the same by the op of gradients, where there is one. */
static gd_tensor *run_body(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    body *b = user;
    gd_tensor *x = in[0], *g = in[1], *y, *d;
    if (b->is_defined) { /* halves are computed in f32 and rounded once */
        const gd_dtype dtype = gd_tensor_dtype(x);
        y = gd_cast(b->a->definition(dtype == GD_F64 ? x : gd_cast(x, GD_F32)), dtype);
    } else {
        y = b->a->op(x);
    }
    if (!y || gd_grad(1, &y, &g, 1, &x, &d) != GD_OK)
        return NULL;
    b->result[0] = y;
    b->result[1] = gd_output(d);
    b->result[2] = b->is_defined ? NULL : gd_output(b->a->gradient(g, x));
    return y;
}

static void take(const body *b, gd_function *f, reading *out, const char *what)
{
    for (int i = 0; i < RESULTS; i++)
        if (b->result[i] || i < RESULTS - 1)
            out[i] = reading_take(f ? gd_function_result(f, i) : b->result[i], what);
}

static void run(gd_context *context, const body *which, int mode, gd_tensor *const *in,
                reading *out, const char *what)
{
    body b = *which;
    if (gd_scope_begin(context) != GD_OK)
        fail_msg("%s: %s", what, gd_error_message());
    if (mode < 0) {
        if (!run_body(&b, 2, in))
            fail_msg("%s: %s", what, gd_error_message());
        take(&b, NULL, out, what);
    } else {
        gd_function *f = gd_compile(context, run_body, &b, .mode = (gd_mode)mode, .detached = true);
        if (!gd_call(f, 2, in))
            fail_msg("%s: %s", what, gd_error_message());
        take(&b, f, out, what);
        gd_function_release(f);
    }
    (void)gd_scope_end(context);
}

static void check_activation(gd_context *context, const activation *a, gd_dtype dtype,
                             const char *where)
{
    static const struct {
        int mode;
        const char *name;
    } modes[] = { { -1, "eager" }, { GD_MODE_COMPILED, "compiled" }, { GD_MODE_LAZY, "lazy" } };
    gd_scope_begin(context);
    gd_tensor *in[2] = { gd_set_requires_grad(numbers_tensor(context, dtype, 11, 0), true),
                         numbers_tensor(context, dtype, 12, 1777) };
    const body defined = { .a = a, .is_defined = true }, op = { .a = a };
    reading expected[RESULTS];
    run(context, &defined, -1, in, expected, a->name);
    for (int m = 0; m < COUNT(modes); m++) {
        reading got[RESULTS];
        char what[160];
        snprintf(what, sizeof what, "%s %s, %s, on %s", a->name, gd_dtype_name(dtype),
                 modes[m].name, where);
        run(context, &op, modes[m].mode, in, got, what);
        for (int i = 0; i < RESULTS; i++) {
            assert_same_bits(&expected[i > 0], &got[i], what);
            reading_free(&got[i]);
        }
    }
    reading_free(&expected[0]);
    reading_free(&expected[1]);
    gd_scope_end(context);
}

static void check_context(gd_context *context, const char *where)
{
    static const gd_dtype dtypes[] = { GD_F32, GD_F64, GD_F16, GD_BF16 };
    for (int a = 0; a < COUNT(activations); a++)
        for (int d = 0; d < COUNT(dtypes); d++)
            check_activation(context, &activations[a], dtypes[d], where);
}

static void test_each_instruction_set(void **state)
{
    (void)state;
    for (const char *const *isa = isa_names(); *isa; isa++) {
        gd_context *context = open_cpu(*isa, 2);
        check_context(context, *isa);
        close_context(context);
    }
}

static void test_reference(void **state)
{
    (void)state;
    gd_context *context = open_reference();
    check_context(context, "reference");
    close_context(context);
}

static void test_chosen_device(void **state)
{
    (void)state;
    gd_context *context = gd_open(test_device(), .threads = 1);
    assert_non_null(context);
    check_context(context, gd_context_device(context));
    gd_close(context);
}

/* Integers are taken as f32, as by every function of real numbers; an error names the function. */
static void test_other_operands(void **state)
{
    (void)state;
    gd_context *context = gd_open(test_device(), .threads = 1);
    for (int a = 0; a < COUNT(activations); a++) {
        gd_tensor *whole = gd_arange(context, -4, 5, 1, GD_I64);
        gd_tensor *y = activations[a].op(whole), *same = activations[a].definition(whole);
        assert_int_equal(gd_tensor_dtype(y), GD_F32);
        reading expected = reading_take(same, "whole"), got = reading_take(y, "whole");
        assert_same_bits(&expected, &got, activations[a].name);
        reading_free(&expected);
        reading_free(&got);
        gd_tensor *pair = gd_zeros(context, GD_SHAPE(2), GD_F32);
        assert_null(activations[a].gradient(pair, gd_zeros(context, GD_SHAPE(3), GD_F32)));
        char words[64];
        snprintf(words, sizeof words, "gd_%s_grad: shapes", activations[a].name);
        assert_non_null(strstr(gd_error_message(), words));
        gd_error_clear();
        assert_null(activations[a].op(NULL));
        gd_error_clear();
    }
    gd_close(context);
}

/* d2/dx2 of each number. */
static gd_tensor *second_derivative(const activation *a, gd_tensor *x)
{
    gd_tensor *slope = a->gradient(gd_ones_like(x), gd_set_requires_grad(x, true)), *second = NULL;
    gd_tensor *sum = gd_sum(slope, GD_ALL_AXES, false);
    assert_int_equal(gd_grad(1, &sum, NULL, 1, &x, &second), GD_OK);
    return second;
}

/* Of f16 and bf16 they are those of f32, rounded: a power of x on the way is beyond f16's numbers where
 * the derivative is not. */
static void test_second_derivatives_in_16_bits(void **state)
{
    (void)state;
    static const float given[] = { 0,     0.5f, -1.25f, 3.3f, -3.3f, 6.2f,
                                   14.5f, 30,   -30,    88,   -1000, 1e4f };
    const gd_dtype narrow[] = { GD_F16, GD_BF16 };
    gd_context *context = gd_open(test_device(), .threads = 1);
    for (int a = 0; a < COUNT(activations); a++)
        for (int d = 0; d < 2; d++) {
            gd_tensor *x = gd_from_host(context, GD_SHAPE(COUNT(given)), GD_F32, given);
            gd_tensor *rounded = gd_cast(x, narrow[d]);
            gd_tensor *wide =
                second_derivative(&activations[a], gd_detach(gd_cast(rounded, GD_F32)));
            gd_tensor *second = second_derivative(&activations[a], gd_detach(rounded));
            assert_int_equal(gd_tensor_dtype(second), narrow[d]);
            reading expected = reading_take(gd_cast(wide, narrow[d]), "in f32");
            reading got = reading_take(second, "in 16 bits");
            assert_same_bits(&expected, &got, activations[a].name);
            assert_true(gd_item(gd_all(gd_isfinite(second), GD_ALL_AXES, false)) == 1);
            reading_free(&expected);
            reading_free(&got);
        }
    gd_close(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_instruction_set),
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_chosen_device),
        cmocka_unit_test(test_other_operands),
        cmocka_unit_test(test_second_derivatives_in_16_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
