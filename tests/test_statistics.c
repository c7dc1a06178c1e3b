/* tests/test_statistics.c: what the rows of the op tests cannot say of ops/statistics.c and its
 * relatives: answers that are no tensors, indices beside values, distributions, bounds of
 * logarithms, widths of positions; and the callback that makes room. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include <gradus/autograd.h>
#include <gradus/compile.h>
#include <gradus/ops.h>

static int open_context(void **state)
{
    gd_error_clear();
    *state = gd_open("cpu", .threads = 1, .seed = 3);
    return *state ? 0 : -1;
}

static int close_context(void **state)
{
    gd_close(*state);
    gd_error_clear();
    return 0;
}

static void assert_error(gd_status status, const char *part)
{
    assert_int_equal(gd_error_code(), status);
    if (!strstr(gd_error_message(), part))
        fail_msg("\"%s\" is not in \"%s\"", part, gd_error_message());
    gd_error_clear();
}

static gd_tensor *vector(gd_context *gd, double a, double b, double c)
{
    return gd_from_host(gd, GD_SHAPE(3), GD_F64, (double[]){ a, b, c });
}

/* ---- equal and close ---- */

static gd_tensor *asks(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_equal(in[0], in[0]) ? in[0] : gd_neg(in[0]);
}

static void tensors_are_equal_or_close(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = vector(gd, 1, 2, 3), *near = vector(gd, 1, 2, 3.0001);
    int64_t live = gd_memory(gd).live_tensors;
    assert_true(gd_equal(x, x));
    assert_false(gd_equal(x, near));
    assert_true(gd_allclose(x, near, 1e-3, 0, false));
    assert_false(gd_allclose(x, near, 1e-6, 0, false));
    assert_true(gd_allclose(x, near, 0, 1e-3, false));
    assert_int_equal(gd_memory(gd).live_tensors, live); /* nothing stays */
    gd_tensor *hole = vector(gd, 1, (double)NAN, 3);
    assert_false(gd_equal(hole, hole));
    assert_false(gd_allclose(hole, hole, 1, 1, false));
    assert_true(gd_allclose(hole, hole, 0, 0, true));
    assert_true(gd_equal(x, gd_cast(x, GD_I32)));
    assert_false(gd_equal(x, gd_ones(gd, GD_SHAPE(1, 3), GD_F64)));
    assert_true(gd_equal(gd_zeros(gd, GD_SHAPE(0), GD_F32), gd_zeros(gd, GD_SHAPE(0), GD_F64)));
    assert_false(gd_equal(x, NULL));
    assert_false(gd_allclose(NULL, x, 1, 1, true));
    assert_int_equal(gd_error_code(), GD_OK);
    assert_false(gd_allclose(x, x, -1, 0, false));
    assert_error(GD_ERR_INVALID, "gd_allclose");
    assert_null(gd_call(gd_compile(gd, asks, NULL), 1, &x)); /* a branch on a value */
    assert_int_equal(gd_error_code(), GD_ERR_STATE);
}

/* ---- values and indices ---- */

static void running_extremes_tell_where(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = gd_set_requires_grad(vector(gd, 2, 2, 1), true), *indices = NULL;
    gd_tensor *y = gd_cummin(x, 0, &indices);
    assert_true(gd_get_i64(indices, 0) == 0 && gd_get_i64(indices, 1) == 1 &&
                gd_get_i64(indices, 2) == 2);
    assert_int_equal(gd_backward(y), GD_OK);
    assert_true(gd_equal(gd_gradient(x), vector(gd, 1, 1, 1)));
    assert_null(gd_cummax(NULL, 0, &indices));
    assert_null(indices);
}

/* ---- creation ---- */

static void whole_numbers_are_drawn_evenly(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = gd_randint(gd, GD_SHAPE(6000), -3, 3, GD_I32);
    assert_int_equal(gd_tensor_dtype(x), GD_I32);
    gd_tensor *counts = gd_bincount(gd_add_scalar(x, 3), NULL, 6); /* refuses what is outside */
    for (int i = 0; i < 6; i++)
        assert_true(fabs(gd_get(counts, i) - 1000) < 150); /* five deviations */
    gd_tensor *byte = gd_randint(gd, GD_SHAPE(4000), 0, 256, GD_U8);
    assert_true(gd_item(gd_max(byte, GD_ALL_AXES, false)) == 255);
    const int64_t exact = (int64_t)1 << 53;
    gd_tensor *wide = gd_randint(gd, GD_SHAPE(1000), 0, exact, GD_I64);
    assert_true(gd_item(gd_all(gd_lt_scalar(wide, (double)exact), GD_ALL_AXES, false)) == 1);
    assert_null(gd_randint(gd, GD_SHAPE(3), -exact, exact, GD_I64));
    assert_error(GD_ERR_INVALID, "gd_randint");
}

static gd_tensor *makes_empty(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_add(in[0], gd_empty_like(in[0]));
}

static void empty_tensors_have_memory(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = gd_empty(gd, GD_SHAPE(3), GD_F64);
    assert_int_equal(gd_tensor_write(x, (double[]){ 1, 2, 3 }, 3 * sizeof(double)), GD_OK);
    assert_true(gd_equal(x, vector(gd, 1, 2, 3)));
    assert_true(gd_equal(gd_call(gd_compile(gd, makes_empty, NULL), 1, &x), x)); /* zeros there */
    assert_null(gd_empty(NULL, GD_SHAPE(3), GD_F64));
    gd_error_clear();
    assert_null(gd_empty(gd, GD_SHAPE(-3), GD_F64));
    assert_error(GD_ERR_SHAPE, "gd_empty");
}

static void positions_may_have_an_odd_width(void **state)
{
    gd_context *gd = *state;
    gd_tensor *t = gd_sinusoidal_positions(gd, 2, 4, 5, GD_F64);
    assert_true(gd_shape_equal(gd_tensor_shape(t), GD_SHAPE(4, 5)));
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 5; k++) {
            double angle = (2 + i) / pow(10000, (double)(k / 2 * 2) / 5);
            assert_true(fabs(gd_get(t, i, k) - (k % 2 ? cos(angle) : sin(angle))) < 1e-12);
        }
    t = gd_sinusoidal_positions(gd, 0, 3, 1, GD_F64);
    assert_true(fabs(gd_get(t, 2, 0) - sin(2.0)) < 1e-12);
    assert_null(gd_sinusoidal_positions(gd, 0, 3, 0, GD_F64));
    assert_error(GD_ERR_INVALID, "at least 1");
}

/* ---- cross-entropy of probabilities ---- */

static void logarithms_of_probabilities_are_bounded(void **state)
{
    gd_context *gd = *state;
    gd_tensor *q = gd_from_host(gd, GD_SHAPE(2, 2), GD_F64, (double[]){ 0, 1, 0.25, 0.75 });
    gd_set_requires_grad(q, true);
    gd_tensor *classes = gd_from_host(gd, GD_SHAPE(2), GD_I64, (int64_t[]){ 0, 1 });
    gd_tensor *loss = gd_cross_entropy_probabilities(q, classes);
    assert_true(fabs(gd_item(loss) - (100 - log(0.75)) / 2) < 1e-12);
    assert_int_equal(gd_backward(loss), GD_OK);
    assert_true(gd_get(gd_gradient(q), 0, 0) == 0); /* not infinite, not NaN */
    assert_true(fabs(gd_get(gd_gradient(q), 1, 1) + 1 / 0.75 / 2) < 1e-12);
    /* Of a softmax it is the cross-entropy of its logits; so with distributions as targets. */
    gd_tensor *logits = gd_normal(gd, GD_SHAPE(2, 2), 0, 1, GD_F64);
    assert_true(gd_allclose(gd_cross_entropy_probabilities(gd_softmax(logits, 1), classes),
                            gd_cross_entropy(logits, classes), 1e-12, 0, false));
    gd_tensor *soft = gd_softmax(gd_normal(gd, GD_SHAPE(2, 2), 0, 1, GD_F64), 1);
    assert_true(gd_allclose(gd_cross_entropy_probabilities(gd_softmax(logits, 1), soft),
                            gd_cross_entropy(logits, soft), 1e-12, 0, false));
}

/* ---- making room ---- */

enum { PIECES = 6, PIECE = 64 * 1024 };

typedef struct cache {
    gd_tensor *piece[PIECES];
    int count, calls;
    size_t asked;
} cache;

/* Releases one piece at a time. */
static gd_status release_one(void *user, gd_context *context, size_t bytes)
{
    cache *c = user;
    (void)context;
    c->calls++;
    c->asked = bytes;
    if (c->count == 0)
        return GD_ERR_MEMORY;
    gd_release(c->piece[--c->count]);
    return GD_OK;
}

static gd_tensor *twice(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_mul_scalar(in[0], 2);
}

static void a_callback_makes_room_before_memory_ends(void **state)
{
    (void)state;
    const size_t bytes = PIECE * sizeof(float);
    gd_context *gd = gd_open("cpu", .threads = 1, .memory_limit = 8 * bytes);
    cache c = { .count = 0 };
    for (int i = 0; i < PIECES; i++) {
        gd_scope_begin(gd);
        c.piece[c.count++] = gd_retain(gd_full(gd, GD_SHAPE(PIECE), i, GD_F32));
        gd_scope_end(gd);
    }
    gd_scope_begin(gd);
    assert_null(gd_zeros(gd, GD_SHAPE(4 * PIECE), GD_F32));
    assert_error(GD_ERR_MEMORY, "limit");
    assert_int_equal(gd_set_memory_callback(gd, release_one, &c), GD_OK);
    gd_tensor *large = gd_zeros(gd, GD_SHAPE(4 * PIECE), GD_F32);
    assert_non_null(large);
    assert_int_equal(gd_error_code(), GD_OK); /* failed attempts are forgotten */
    assert_true(c.calls >= 1 && c.count == PIECES - c.calls);
    assert_int_equal(c.asked, 4 * bytes);
    assert_true(gd_memory(gd).reserved <= 8 * bytes);
    gd_scope_end(gd);

    /* Operands it releases last as long as the op, and the call, they are for. */
    gd_function *f = gd_compile(gd, twice, NULL);
    for (int compiled = 0; compiled < 2; compiled++) {
        while (c.count)
            gd_release(c.piece[--c.count]);
        gd_memory_trim(gd);
        gd_scope_begin(gd);
        gd_tensor *fill[8] = { NULL };
        c.piece[c.count++] = gd_retain(gd_full(gd, GD_SHAPE(PIECE), 21, GD_F32));
        gd_tensor *x = c.piece[0];
        gd_scope_end(gd); /* the cache has the only reference */
        gd_scope_begin(gd);
        gd_set_memory_callback(gd, NULL, NULL);
        int filled = 0;
        while (filled < 8 && (fill[filled] = gd_zeros(gd, GD_SHAPE(PIECE), GD_F32)))
            filled++;
        gd_error_clear();
        gd_set_memory_callback(gd, release_one, &c);
        gd_tensor *y = compiled ? gd_call(f, 1, &x) : gd_mul_scalar(x, 2);
        assert_null(y); /* the operand itself would have been the room */
        assert_int_equal(c.count, 0);
        assert_int_equal(gd_error_code(), GD_ERR_MEMORY);
        gd_error_clear();
        gd_scope_end(gd);
    }
    gd_close(gd);
    assert_int_equal(gd_set_memory_callback(NULL, release_one, &c), GD_ERR_INVALID);
    gd_error_clear();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_context, close_context)
        TEST(tensors_are_equal_or_close),
        TEST(running_extremes_tell_where),
        TEST(whole_numbers_are_drawn_evenly),
        TEST(empty_tensors_have_memory),
        TEST(positions_may_have_an_odd_width),
        TEST(logarithms_of_probabilities_are_bounded),
        cmocka_unit_test(a_callback_makes_room_before_memory_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
