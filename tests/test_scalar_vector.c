/* tests/test_scalar_vector.c: the growing array of values. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/scalar.h>

static void it_starts_empty(void **state)
{
    (void)state;
    gd_scalar_vector *vector = gd_scalar_vector_create();
    assert_int_equal(gd_scalar_vector_size(vector), 0);
    assert_null(gd_scalar_vector_get(vector, 0));
    assert_null(gd_scalar_vector_items(vector));
    gd_scalar_vector_destroy(vector);
}

static void push_retains_and_destroy_releases(void **state)
{
    (void)state;
    gd_scalar_vector *vector = gd_scalar_vector_create();
    gd_value *a = gd_value_create_leaf(1.0);
    assert_int_equal(gd_scalar_vector_push(vector, a), 0);
    assert_int_equal(gd_scalar_vector_push(vector, a), 0); /* twice is fine */
    assert_int_equal(gd_value_references(a), 3);
    assert_ptr_equal(gd_scalar_vector_get(vector, 1), a);
    assert_int_equal(gd_value_references(a), 3); /* get only lends */
    gd_scalar_vector_destroy(vector);
    assert_int_equal(gd_value_references(a), 1);
    gd_value_release(a);
}

static void it_grows_and_keeps_the_order(void **state)
{
    (void)state;
    enum { COUNT = 1000 };
    gd_scalar_vector *vector = gd_scalar_vector_create();
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(gd_scalar_vector_push_leaf(vector, i), 0);
    assert_int_equal(gd_scalar_vector_size(vector), COUNT);
    gd_value *const *items = gd_scalar_vector_items(vector);
    for (size_t i = 0; i < COUNT; i++) {
        assert_true(gd_value_data(items[i]) == (double)i);
        assert_ptr_equal(gd_scalar_vector_get(vector, i), items[i]);
        assert_int_equal(gd_value_references(items[i]), 1);
    }
    assert_null(gd_scalar_vector_get(vector, COUNT));
    gd_scalar_vector_destroy(vector);
    assert_int_equal(gd_scalar_live_values(), 0);
}

static void clear_releases_and_leaves_it_usable(void **state)
{
    (void)state;
    gd_scalar_vector *vector = gd_scalar_vector_create();
    gd_scalar_vector_push_leaf(vector, 1.0);
    gd_scalar_vector_push_leaf(vector, 2.0);
    gd_scalar_vector_clear(vector);
    assert_int_equal(gd_scalar_live_values(), 0);
    assert_int_equal(gd_scalar_vector_size(vector), 0);
    gd_scalar_vector_push_leaf(vector, 3.0);
    assert_true(gd_value_data(gd_scalar_vector_get(vector, 0)) == 3.0);
    gd_scalar_vector_destroy(vector);
}

static void what_is_no_value_is_refused(void **state)
{
    (void)state;
    gd_scalar_vector *vector = gd_scalar_vector_create();
    gd_value *stale = gd_value_create_leaf(1.0);
    gd_value_release(stale);
    assert_int_equal(gd_scalar_vector_push(vector, NULL), -1);
    assert_int_equal(gd_scalar_vector_push(vector, stale), -1);
    assert_int_equal(gd_scalar_vector_size(vector), 0);
    gd_scalar_vector_destroy(vector);
    gd_scalar_error_clear();
}

static void null_is_an_empty_vector(void **state)
{
    (void)state;
    gd_value *a = gd_value_create_leaf(1.0);
    assert_int_equal(gd_scalar_vector_size(NULL), 0);
    assert_null(gd_scalar_vector_get(NULL, 0));
    assert_null(gd_scalar_vector_items(NULL));
    assert_int_equal(gd_scalar_vector_push(NULL, a), -1);
    assert_int_equal(gd_scalar_vector_push_leaf(NULL, 1.0), -1);
    gd_scalar_vector_clear(NULL);
    gd_scalar_vector_destroy(NULL);
    assert_int_equal(gd_value_references(a), 1);
    gd_value_release(a);
    assert_int_equal(gd_scalar_live_values(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_starts_empty),
        cmocka_unit_test(push_retains_and_destroy_releases),
        cmocka_unit_test(it_grows_and_keeps_the_order),
        cmocka_unit_test(clear_releases_and_leaves_it_usable),
        cmocka_unit_test(what_is_no_value_is_refused),
        cmocka_unit_test(null_is_an_empty_vector),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
