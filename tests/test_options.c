/* tests/test_options.c: options, as the library reads those of a caller who was compiled against
 * another version of their struct, and their defaults by name. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include <gradus/gradus.h>

#include "base/options.h"

#include "support/context.h"

/* A struct of options as this version has it, and as versions before and after. */
typedef struct ours {
    size_t size;
    double rate;
    int64_t count;
} ours;

typedef struct older {
    size_t size;
    double rate;
} older;

typedef struct newer {
    size_t size;
    double rate;
    int64_t count;
    double more;
} newer;

static const ours defaults = { .size = sizeof(ours), .rate = 0.5, .count = 7 };

static void without_options_the_defaults_stand(void **state)
{
    (void)state;
    ours o = defaults;
    assert_true(gd_options_read("f", &o, sizeof o, NULL));
    assert_memory_equal(&o, &defaults, sizeof o);
}

static void every_value_given_counts(void **state)
{
    (void)state;
    ours o = defaults, given = { .size = sizeof given, .rate = 0.0, .count = 0 };
    assert_true(gd_options_read("f", &o, sizeof o, &given));
    assert_true(o.rate == 0.0 && o.count == 0);
}

static void a_struct_nobody_filled_is_refused(void **state)
{
    (void)state;
    ours o = defaults, zeros = { 0 }, short_one = { .size = sizeof(size_t) - 1 };
    assert_false(gd_options_read("f", &o, sizeof o, &zeros));
    expect_error(GD_ERR_INVALID, "f: the options have size 0: begin them with their list");
    assert_false(gd_options_read("f", &o, sizeof o, &short_one));
    expect_error(GD_ERR_INVALID, "f: the options have size 7");
    assert_memory_equal(&o, &defaults, sizeof o);
}

static void what_an_older_struct_lacks_has_its_default(void **state)
{
    (void)state;
    ours o = defaults;
    older given = { .size = sizeof given, .rate = 0.25 };
    assert_true(gd_options_read("f", &o, sizeof o, &given));
    assert_true(o.size == sizeof o && o.rate == 0.25 && o.count == 7);
}

static void a_newer_struct_is_read_if_what_is_new_is_not_set(void **state)
{
    (void)state;
    ours o = defaults;
    newer given = { .size = sizeof given, .rate = 0.25, .count = 3 };
    assert_true(gd_options_read("f", &o, sizeof o, &given));
    assert_true(o.size == sizeof o && o.rate == 0.25 && o.count == 3);
    given.more = 1.0;
    assert_false(gd_options_read("f", &o, sizeof o, &given));
    expect_error(GD_ERR_UNSUPPORTED, "f: the options have 32 bytes and set what this version");
}

static void functions_read_them_so(void **state)
{
    gd_module *m = gd_module_create(*state);
    gd_tensor *x = gd_ones(*state, GD_SHAPE(2, 3), GD_F32);
    gd_nn_linear_options zeros = { 0 }, o = { GD_NN_LINEAR_DEFAULTS, .bias = false };
    assert_null(gd_nn_linear_with(m, "a", x, 4, &zeros));
    expect_error(GD_ERR_INVALID, "gd_nn_linear: the options have size 0");
    assert_non_null(gd_nn_linear_with(m, "a", x, 4, &o));
    assert_int_equal(gd_module_count(m), 1);
    assert_non_null(gd_nn_linear_with(m, "b", x, 4, NULL));
    assert_int_equal(gd_module_count(m), 3);
}

static void defaults_are_found_by_name(void **state)
{
    (void)state;
    gd_parameter_options o, expected = { GD_PARAMETER_DEFAULTS };
    memset(&o, 0x55, sizeof o);
    assert_int_equal(gd_options_default("gd_parameter_options", &o, sizeof o), GD_OK);
    assert_int_equal(o.size, sizeof o);
    assert_true(o.init == expected.init && isnan(o.init_scale));
    assert_true(o.fan_in == -1 && o.fan_out == -1);
}

/* As callers have it who were compiled against a version with fewer, or more, members. */
static void defaults_of_other_sizes(void **state)
{
    (void)state;
    struct {
        gd_parameter_options o;
        unsigned char more[16];
    } large, small;
    size_t less = offsetof(gd_parameter_options, fan_in);
    memset(&small, 0x55, sizeof small);
    assert_int_equal(gd_options_default("gd_parameter_options", &small, less), GD_OK);
    assert_true(small.o.size == less && isnan(small.o.init_scale));
    assert_true(small.o.fan_in == INT64_C(0x5555555555555555));
    memset(&large, 0x55, sizeof large);
    assert_int_equal(gd_options_default("gd_parameter_options", &large, sizeof large), GD_OK);
    assert_true(large.o.size == sizeof large && large.o.fan_in == -1);
    for (size_t i = 0; i < sizeof large.more; i++)
        assert_int_equal(large.more[i], 0);
}

static void wrong_names_and_sizes_are_errors(void **state)
{
    (void)state;
    gd_parameter_options o;
    assert_int_equal(gd_options_default("gd_parameter", &o, sizeof o), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "there are no options \"gd_parameter\"");
    assert_int_equal(gd_options_default(NULL, &o, sizeof o), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "a NULL");
    assert_int_equal(gd_options_default("gd_parameter_options", NULL, 0), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "a NULL");
    assert_int_equal(gd_options_default("gd_parameter_options", &o, 4), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "a size less than");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_options_the_defaults_stand),
        cmocka_unit_test(every_value_given_counts),
        cmocka_unit_test(a_struct_nobody_filled_is_refused),
        cmocka_unit_test(what_an_older_struct_lacks_has_its_default),
        cmocka_unit_test(a_newer_struct_is_read_if_what_is_new_is_not_set),
        cmocka_unit_test_setup_teardown(functions_read_them_so, open_context, close_context),
        cmocka_unit_test(defaults_are_found_by_name),
        cmocka_unit_test(defaults_of_other_sizes),
        cmocka_unit_test(wrong_names_and_sizes_are_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
