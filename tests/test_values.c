/* tests/test_values.c: values of tensors from the host: single elements, copies, other contexts,
 * mapping; helpers for shapes; joining any number of tensors. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <gradus/autograd.h>
#include <gradus/compile.h>
#include <gradus/ops.h>

#include "backend/backend.h"
#include "graph/context.h"

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

static gd_tensor *numbers(gd_context *gd, int64_t rows, int64_t columns)
{
    return gd_reshape(gd_arange(gd, 0, (double)(rows * columns), 1, GD_F32),
                      GD_SHAPE(rows, columns));
}

/* ---- shapes ---- */

static void shapes_are_counted_compared_and_broadcast(void **state)
{
    (void)state;
    assert_int_equal(gd_shape_count(GD_SHAPE(2, 3, 4)), 24);
    assert_int_equal(gd_shape_count(GD_SCALAR), 1);
    assert_int_equal(gd_shape_count(GD_SHAPE(2, 0)), 0);
    assert_int_equal(gd_shape_count(GD_SHAPE(2, -1)), -1);
    assert_int_equal(gd_shape_count(GD_SHAPE((int64_t)1 << 40, 1 << 10)), -1);
    assert_int_equal(gd_shape_count(GD_SHAPE(0, (int64_t)1 << 40, 1 << 10)), -1);
    assert_int_equal(gd_shape_count((gd_shape){ .rank = GD_MAX_RANK + 1 }), -1);

    assert_true(gd_shape_equal(GD_SHAPE(2, 3), GD_SHAPE(2, 3)));
    assert_false(gd_shape_equal(GD_SHAPE(2, 3), GD_SHAPE(2, 4)));
    assert_false(gd_shape_equal(GD_SHAPE(2, 3), GD_SHAPE(2, 3, 1)));
    assert_true(gd_shape_equal(GD_SCALAR, GD_SCALAR));

    gd_shape both = GD_SCALAR;
    assert_true(gd_shape_broadcast(GD_SHAPE(2, 1, 4), GD_SHAPE(3, 1), &both));
    assert_true(gd_shape_equal(both, GD_SHAPE(2, 3, 4)));
    assert_false(gd_shape_broadcast(GD_SHAPE(2), GD_SHAPE(3), &both));
    assert_false(gd_shape_broadcast((gd_shape){ .rank = -1 }, GD_SHAPE(3), &both));
    assert_int_equal(gd_error_code(), GD_OK);

    gd_shape strides = gd_shape_strides(GD_SHAPE(2, 3, 4));
    assert_true(gd_shape_equal(strides, GD_SHAPE(12, 4, 1)));
    assert_int_equal(gd_shape_offset(strides, GD_SHAPE(1, 2, 3)), 23);
    assert_int_equal(gd_shape_offset(GD_SCALAR, GD_SCALAR), 0);
}

/* ---- single elements ---- */

static void elements_are_read_and_written_in_every_dtype(void **state)
{
    gd_context *gd = *state;
    for (int d = 0; d < GD_DTYPE_COUNT; d++) {
        gd_tensor *t = gd_zeros(gd, GD_SHAPE(3, 4), (gd_dtype)d);
        assert_int_equal(gd_set(t, 1, 2, -1), GD_OK);
        assert_true(gd_get(t, 2, 3) == 1);
        assert_true(gd_get(t, -1, -1) == 1);
        assert_true(gd_get(t, 2, 2) == 0);
        assert_true(gd_item(gd_sum(gd_cast(t, GD_F32), GD_ALL_AXES, false)) == 1);
    }
    gd_tensor *half = gd_zeros(gd, GD_SHAPE(1), GD_F16);
    assert_int_equal(gd_set(half, 0.1, 0), GD_OK);
    assert_true(gd_get(half, 0) == 0.0999755859375); /* the nearest f16 */
}

static void elements_of_views_lie_where_the_view_shows_them(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = numbers(gd, 3, 4);
    gd_tensor *view = gd_flip(gd_transpose(x, 0, 1), GD_AXES(0)); /* [4, 3], columns reversed */
    assert_true(gd_get(view, 0, 2) == 11);
    assert_true(gd_get(view, 3, 1) == 4);
    assert_int_equal(gd_set(view, -5, 1, 0), GD_OK);
    assert_true(gd_get(x, 0, 2) == -5);
    gd_tensor *number = gd_scalar(gd, 7, GD_F64);
    assert_true(gd_get_at(number, GD_SCALAR) == 7);
}

static void whole_numbers_are_exact(void **state)
{
    gd_context *gd = *state;
    const int64_t odd = ((int64_t)1 << 53) + 1;
    gd_tensor *t = gd_zeros(gd, GD_SHAPE(2), GD_I64);
    assert_int_equal(gd_set_i64(t, odd, 1), GD_OK);
    assert_true(gd_get_i64(t, 1) == odd);
    assert_int_equal(gd_set_i64(t, INT64_MIN, 0), GD_OK);
    assert_true(gd_get_i64(t, 0) == INT64_MIN);
    gd_tensor *whole = gd_zeros(gd, GD_SHAPE(2), GD_U64);
    assert_int_equal(gd_set_i64(whole, INT64_MAX, 1), GD_OK);
    assert_true(gd_get_i64(whole, 1) == INT64_MAX);
    assert_int_equal(gd_set_i64(whole, -1, 0), GD_ERR_INVALID);
    assert_error(GD_ERR_INVALID, "u64 cannot hold -1");
    assert_int_equal(gd_set(whole, 0x1p63, 0), GD_OK);
    assert_true(gd_get_i64(whole, 0) == 0);
    assert_error(GD_ERR_INVALID, "gd_get_i64: 9223372036854775808 is more than an i64 holds");
    gd_tensor *small = gd_zeros(gd, GD_SHAPE(2), GD_I32);
    assert_int_equal(gd_set_i64(small, -7, 1), GD_OK);
    assert_true(gd_get_i64(small, 1) == -7);
    assert_int_equal(gd_set_i64(small, odd, 1), GD_ERR_INVALID);
    assert_error(GD_ERR_INVALID, "gd_set_i64: i32 cannot hold 9007199254740993");
    assert_int_equal(gd_set_i64(small, (int64_t)1 << 40, 1), GD_ERR_INVALID);
    assert_error(GD_ERR_INVALID, "gd_set_i64: i32 cannot hold");
    assert_int_equal(gd_set(small, 0.5, 1), GD_ERR_INVALID);
    assert_error(GD_ERR_INVALID, "gd_set: i32 cannot hold 0.5");
    assert_true(gd_get_i64(small, 1) == -7);
    gd_tensor *real = gd_ones(gd, GD_SHAPE(1), GD_F32);
    assert_int_equal(gd_get_i64(real, 0), 0);
    assert_error(GD_ERR_DTYPE, "f32");
}

static void indices_are_checked(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = numbers(gd, 3, 4);
    assert_true(isnan(gd_get(x, 3, 0)));
    assert_error(GD_ERR_SHAPE, "gd_get: there is no element [3, 0] in a tensor [3, 4]");
    assert_true(isnan(gd_get(x, 0, -5)));
    assert_error(GD_ERR_SHAPE, "gd_get");
    assert_true(isnan(gd_get(x, 1)));
    assert_error(GD_ERR_SHAPE, "gd_get: 1 indices for a tensor [3, 4]");
    assert_int_equal(gd_set(x, 1, 0, 4), GD_ERR_SHAPE);
    assert_error(GD_ERR_SHAPE, "gd_set");
    assert_int_equal(gd_set(NULL, 1, 0), GD_ERR_INVALID);
    gd_error_clear();
    assert_true(isnan(gd_get(gd_zeros(gd, GD_SHAPE(0), GD_F32), 0)));
    assert_error(GD_ERR_SHAPE, "gd_get");
}

static void a_written_element_makes_old_gradients_errors(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = gd_set_requires_grad(gd_ones(gd, GD_SHAPE(2), GD_F32), true);
    gd_tensor *y = gd_square(x);
    assert_int_equal(gd_set(x, 3, 0), GD_OK);
    assert_int_equal(gd_backward(y), GD_ERR_STATE);
    assert_error(GD_ERR_STATE, "overwritten");
}

static gd_tensor *reads_an_element(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_mul_scalar(in[0], gd_get(in[0], 0));
}

static gd_tensor *writes_an_element(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    (void)gd_set(user, 1, 0);
    return in[0];
}

static gd_tensor *maps_a_tensor(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    return gd_tensor_map(user, GD_MAP_READ) ? in[0] : NULL;
}

static void traced_values_are_neither_read_nor_written(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = gd_ones(gd, GD_SHAPE(2), GD_F32), *other = gd_ones(gd, GD_SHAPE(2), GD_F32);
    const gd_function_body bodies[] = { reads_an_element, writes_an_element, maps_a_tensor };
    for (int i = 0; i < 3; i++) {
        gd_function *f = gd_compile(gd, bodies[i], other);
        assert_null(gd_call(f, 1, &x));
        assert_int_equal(gd_error_code(), GD_ERR_STATE);
        gd_error_clear();
    }
}

/* ---- copies ---- */

static void a_copy_has_memory_of_its_own_and_a_gradient(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = gd_set_requires_grad(gd_copy(numbers(gd, 2, 3)), true);
    gd_tensor *copy = gd_copy(gd_transpose(x, 0, 1));
    assert_true(gd_tensor_is_contiguous(copy));
    assert_ptr_not_equal(gd_tensor_data(copy), gd_tensor_data(x));
    assert_true(gd_get(copy, 2, 1) == 5);
    gd_tensor *same = gd_copy(x); /* of what is contiguous, too */
    assert_ptr_not_equal(gd_tensor_data(same), gd_tensor_data(x));
    assert_int_equal(gd_backward(gd_sum(gd_square(copy), GD_ALL_AXES, false)), GD_OK);
    assert_true(gd_get(gd_gradient(x), 1, 2) == 10);
    assert_null(gd_copy(NULL));
}

static void tensors_go_to_other_contexts(void **state)
{
    gd_context *gd = *state, *other = gd_open("reference");
    gd_tensor *x = numbers(gd, 2, 3), *turned = gd_transpose(x, 0, 1);
    assert_ptr_equal(gd_to(gd, x), x);
    gd_tensor *there = gd_to(other, turned);
    assert_ptr_equal(gd_tensor_context(there), other);
    assert_true(gd_shape_equal(gd_tensor_shape(there), GD_SHAPE(3, 2)));
    assert_true(gd_get(there, 2, 0) == 2);
    assert_true(gd_get(gd_add(there, gd_to(other, gd_copy(turned))), 2, 1) == 10);
    gd_tensor *flags = gd_to(other, gd_gt(x, gd_scalar(gd, 2, GD_F32)));
    assert_int_equal(gd_tensor_dtype(flags), GD_BOOL);
    assert_true(gd_get(flags, 1, 0) == 1);
    gd_tensor *leaf = gd_set_requires_grad(gd_copy(x), true);
    assert_false(gd_requires_grad(gd_to(other, gd_square(leaf))));
    assert_int_equal(gd_tensor_count(gd_to(other, gd_zeros(gd, GD_SHAPE(0, 3), GD_I32))), 0);
    assert_null(gd_to(NULL, x));
    assert_error(GD_ERR_INVALID, "gd_to");
    assert_null(gd_to(other, NULL));
    assert_int_equal(gd_error_code(), GD_OK);
    gd_close(other);
}

/* ---- mapping ---- */

/* As a device whose memory the host cannot use: buffers, filled and given back. */
static void map_and_unmap(gd_context *gd, bool host_memory)
{
    gd->device->host_memory = host_memory;
    gd_tensor *x = numbers(gd, 3, 4), *turned = gd_transpose(x, 0, 1);
    const float *read = gd_tensor_map(turned, GD_MAP_READ);
    assert_non_null(read);
    for (int i = 0; i < 12; i++)
        assert_true(read[i] == (float)(i % 3 * 4 + i / 3));
    assert_int_equal(gd_tensor_unmap(turned), GD_OK);

    float *both = gd_tensor_map(turned, GD_MAP_READ_WRITE);
    both[1] += 100; /* [0, 1] is x[1, 0] */
    assert_int_equal(gd_tensor_unmap(turned), GD_OK);
    assert_true(gd_get(x, 1, 0) == 104);
    assert_true(gd_get(x, 2, 3) == 11);

    float *values = gd_tensor_map(x, GD_MAP_WRITE);
    for (int i = 0; i < 12; i++)
        values[i] = (float)-i;
    assert_null(gd_tensor_map(x, GD_MAP_READ));
    assert_error(GD_ERR_STATE, "mapped already");
    assert_int_equal(gd_tensor_unmap(x), GD_OK);
    assert_true(gd_get(x, 2, 3) == -11);
    assert_int_equal(gd_tensor_unmap(x), GD_ERR_STATE);
    assert_error(GD_ERR_STATE, "not mapped");
    assert_null(gd_tensor_map(x, (gd_map_access)4));
    assert_error(GD_ERR_INVALID, "gd_tensor_map");
    assert_null(gd_tensor_map(NULL, GD_MAP_READ));
    gd_error_clear();

    /* Only writing ages what was computed before. */
    gd_tensor *leaf = gd_set_requires_grad(gd_ones(gd, GD_SHAPE(2), GD_F32), true);
    gd_tensor *y = gd_square(leaf), *z = gd_square(leaf);
    assert_non_null(gd_tensor_map(leaf, GD_MAP_READ));
    assert_int_equal(gd_tensor_unmap(leaf), GD_OK);
    assert_int_equal(gd_backward(y), GD_OK);
    float *w = gd_tensor_map(leaf, GD_MAP_READ_WRITE);
    gd_tensor *during = gd_square(leaf);
    w[0] = 3;
    assert_int_equal(gd_tensor_unmap(leaf), GD_OK);
    assert_int_equal(gd_backward(z), GD_ERR_STATE);
    gd_error_clear();
    assert_int_equal(gd_backward(during), GD_ERR_STATE);
    gd_error_clear();

    /* A mapped tensor outlives its scope; one that stays mapped goes with its context. */
    int64_t live = gd_memory(gd).live_tensors;
    gd_scope_begin(gd);
    gd_tensor *inner = gd_zeros(gd, GD_SHAPE(5), GD_F32);
    float *kept = gd_tensor_map(inner, GD_MAP_WRITE);
    gd_scope_end(gd);
    memset(kept, 0, 5 * sizeof *kept);
    assert_int_equal(gd_memory(gd).live_tensors, live + 1);
    assert_int_equal(gd_tensor_unmap(inner), GD_OK);
    assert_int_equal(gd_memory(gd).live_tensors, live);
    assert_non_null(gd_tensor_map(x, GD_MAP_WRITE));
    gd->device->host_memory = true;
}

static void tensors_are_mapped_in_host_memory(void **state)
{
    gd_context *gd = *state;
    map_and_unmap(gd, true);
    gd_tensor *x = numbers(gd, 2, 2);
    assert_ptr_equal(gd_tensor_map(x, GD_MAP_READ), gd_tensor_data(x)); /* no copy */
}

static void tensors_are_mapped_through_buffers(void **state)
{
    map_and_unmap(*state, false);
}

/* Whether a tensor can be mapped, and unmapped, where nothing can be allocated. */
static bool maps_without_memory(gd_tensor *t)
{
    gd_fail_allocations_after(0);
    bool ok = gd_tensor_map(t, GD_MAP_READ) && gd_tensor_unmap(t) == GD_OK;
    gd_fail_allocations_after(-1);
    if (!ok)
        assert_error(GD_ERR_MEMORY, "");
    return ok;
}

static void buffers_are_used_again(void **state)
{
    gd_context *gd = *state;
    gd->device->host_memory = false;
    gd_tensor *t[6];
    for (int i = 0; i < 6; i++)
        t[i] = gd_ones(gd, GD_SHAPE(i + 1), GD_F64);
    for (int i = 0; i < 5; i++) {
        assert_false(maps_without_memory(t[i]));
        assert_non_null(gd_tensor_map(t[i], GD_MAP_READ));
        assert_int_equal(gd_tensor_unmap(t[i]), GD_OK);
    }
    assert_true(maps_without_memory(t[4])); /* the last four wait */
    assert_true(maps_without_memory(t[1]));
    assert_true(maps_without_memory(gd_zeros(gd, GD_SHAPE(4), GD_F32)));
    assert_false(maps_without_memory(t[0]));
    assert_false(maps_without_memory(t[5]));
    gd_memory_trim(gd);
    assert_false(maps_without_memory(t[4]));
    gd->device->host_memory = true;
}

/* ---- scopes of other languages ---- */

static void claiming_empties_the_scope(void **state)
{
    gd_context *gd = *state;
    gd_scope_begin(gd);
    int64_t live = gd_memory(gd).live_tensors;
    gd_tensor *x = gd_claim(gd, numbers(gd, 3, 4)); /* two temporaries: arange, reshape */
    assert_int_equal(gd_memory(gd).live_tensors, live + 1);
    gd_tensor *y = gd_claim(gd, gd_add(gd_mul_scalar(x, 2), x));
    assert_int_equal(gd_memory(gd).live_tensors, live + 2);
    assert_true(gd_get(y, 2, 3) == 33);
    assert_ptr_equal(gd_claim(gd, y), y); /* one more reference */
    gd_release(y);
    gd_release(y);
    gd_release(x);
    assert_int_equal(gd_memory(gd).live_tensors, live);
    (void)gd_zeros(gd, GD_SHAPE(2), GD_F32);
    assert_null(gd_claim(gd, NULL));
    assert_int_equal(gd_memory(gd).live_tensors, live);
    assert_int_equal(gd_error_code(), GD_OK);
    gd_scope_end(gd);
}

/* ---- any number of tensors ---- */

enum { MANY = 64 * 64 + 3 };

/* [1], [2], … of `count` tensors, concatenated or stacked along axis 0. */
static void join_many(gd_context *gd, int count, bool stacked)
{
    gd_scope_begin(gd);
    gd_tensor **list = calloc((size_t)count, sizeof *list);
    gd_tensor *x = gd_set_requires_grad(gd_copy(gd_arange(gd, 0, count, 1, GD_F64)), true);
    for (int i = 0; i < count; i++)
        list[i] = stacked ? gd_select(x, 0, i) : gd_slice(x, 0, i, i + 1, 1);
    gd_tensor *joined = stacked ? gd_stack(count, list, 0) : gd_concat(count, list, 0);
    assert_true(gd_shape_equal(gd_tensor_shape(joined), GD_SHAPE(count)));
    gd_tensor *ramp = gd_arange(gd, 0, count, 1, GD_F64);
    assert_true(gd_item(gd_all(gd_eq(joined, ramp), GD_ALL_AXES, false)) == 1);
    assert_int_equal(gd_backward(gd_sum(gd_mul(joined, ramp), GD_ALL_AXES, false)), GD_OK);
    assert_true(gd_item(gd_all(gd_eq(gd_gradient(x), ramp), GD_ALL_AXES, false)) == 1);
    free(list);
    gd_scope_end(gd);
}

static void any_number_of_tensors_is_joined(void **state)
{
    gd_context *gd = *state;
    const int counts[] = { 1, 2, 64, 65, 128, 129, MANY };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (int stacked = 0; stacked < 2; stacked++)
            join_many(gd, counts[i], stacked);
    gd_tensor *list[65];
    for (int i = 0; i < 65; i++)
        list[i] = gd_zeros(gd, GD_SHAPE(2, i == 64 ? 3 : 2), i == 64 ? GD_F64 : GD_F32);
    assert_null(gd_concat(65, list, 0));
    assert_error(GD_ERR_SHAPE, "do not join");
    assert_int_equal(gd_tensor_dtype(gd_concat(65, list, 1)), GD_F64);
    list[3] = NULL;
    assert_null(gd_concat(65, list, 1));
    assert_int_equal(gd_error_code(), GD_OK);
    assert_null(gd_concat(0, list, 1));
    assert_error(GD_ERR_INVALID, "gd_concat");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_are_counted_compared_and_broadcast),
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_context, close_context)
        TEST(elements_are_read_and_written_in_every_dtype),
        TEST(elements_of_views_lie_where_the_view_shows_them),
        TEST(whole_numbers_are_exact),
        TEST(indices_are_checked),
        TEST(a_written_element_makes_old_gradients_errors),
        TEST(traced_values_are_neither_read_nor_written),
        TEST(a_copy_has_memory_of_its_own_and_a_gradient),
        TEST(tensors_go_to_other_contexts),
        TEST(tensors_are_mapped_in_host_memory),
        TEST(tensors_are_mapped_through_buffers),
        TEST(buffers_are_used_again),
        TEST(claiming_empties_the_scope),
        TEST(any_number_of_tensors_is_joined),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
