/* tests/test_scalar_set.c: the set of pointers. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/scalar.h>

static void it_knows_what_was_inserted(void **state)
{
    (void)state;
    char a = 0, b = 0;
    gd_scalar_set *set = gd_scalar_set_create();
    assert_false(gd_scalar_set_contains(set, &a));
    assert_int_equal(gd_scalar_set_insert(set, &a), 1); /* new */
    assert_int_equal(gd_scalar_set_insert(set, &a), 0); /* known */
    assert_true(gd_scalar_set_contains(set, &a));
    assert_false(gd_scalar_set_contains(set, &b));
    assert_int_equal(gd_scalar_set_size(set), 1);
    gd_scalar_set_destroy(set);
}

static void identity_is_the_address_not_the_number(void **state)
{
    (void)state;
    gd_scalar_set *set = gd_scalar_set_create();
    gd_value *a = gd_value_create_leaf(1.0);
    gd_value *b = gd_value_create_leaf(1.0);
    assert_int_equal(gd_scalar_set_insert(set, a), 1);
    assert_int_equal(gd_scalar_set_insert(set, b), 1);
    assert_int_equal(gd_value_references(a), 1); /* it holds nothing */
    gd_value_release(a);
    gd_value_release(b);
    assert_true(gd_scalar_set_contains(set, a)); /* nor does it look */
    gd_scalar_set_destroy(set);
}

/* Neighbouring addresses, and addresses that differ only high up, as pages do. */
static void it_grows_without_losing_any(void **state)
{
    (void)state;
    enum { COUNT = 20000 };
    static const size_t strides[] = { 1, 64, 4096 };
    static char memory[COUNT];
    for (size_t s = 0; s < 3; s++) {
        gd_scalar_set *set = gd_scalar_set_create();
        for (size_t i = 0; i < COUNT; i++) {
            const void *item = (const void *)((uintptr_t)memory + i * strides[s]);
            assert_int_equal(gd_scalar_set_insert(set, item), 1);
        }
        assert_int_equal(gd_scalar_set_size(set), COUNT);
        for (size_t i = 0; i < COUNT; i++) {
            const void *item = (const void *)((uintptr_t)memory + i * strides[s]);
            assert_true(gd_scalar_set_contains(set, item));
            assert_int_equal(gd_scalar_set_insert(set, item), 0);
        }
        const void *beyond = (const void *)((uintptr_t)memory + COUNT * strides[s]);
        assert_false(gd_scalar_set_contains(set, beyond));
        gd_scalar_set_destroy(set);
    }
}

/* What it is good for: how many values is a result made of? */
static void count_graph(gd_scalar_set *seen, const gd_value *value)
{
    if (value == NULL || gd_scalar_set_insert(seen, value) != 1)
        return;
    count_graph(seen, gd_value_operand(value, 0));
    count_graph(seen, gd_value_operand(value, 1));
}

static void it_counts_the_values_of_a_graph(void **state)
{
    (void)state;
    gd_scalar_set *seen = gd_scalar_set_create();
    gd_value *a = gd_value_create_leaf(2.0);
    gd_value *b = gd_value_mul(a, a);
    gd_value *c = gd_value_add(b, a);
    count_graph(seen, c);
    assert_int_equal(gd_scalar_set_size(seen), 3);
    gd_value_release(c);
    gd_value_release(b);
    gd_value_release(a);
    gd_scalar_set_destroy(seen);
}

static void null_is_no_member(void **state)
{
    (void)state;
    gd_scalar_set *set = gd_scalar_set_create();
    assert_int_equal(gd_scalar_set_insert(set, NULL), -1);
    assert_false(gd_scalar_set_contains(set, NULL));
    assert_int_equal(gd_scalar_set_size(set), 0);
    gd_scalar_set_destroy(set);
}

static void a_null_set_is_empty(void **state)
{
    (void)state;
    char a = 0;
    assert_int_equal(gd_scalar_set_insert(NULL, &a), -1);
    assert_false(gd_scalar_set_contains(NULL, &a));
    assert_int_equal(gd_scalar_set_size(NULL), 0);
    gd_scalar_set_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_knows_what_was_inserted),
        cmocka_unit_test(identity_is_the_address_not_the_number),
        cmocka_unit_test(it_grows_without_losing_any),
        cmocka_unit_test(it_counts_the_values_of_a_graph),
        cmocka_unit_test(null_is_no_member),
        cmocka_unit_test(a_null_set_is_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
