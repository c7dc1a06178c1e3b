/* tests/test_nn.c: modules, the linear layer, initial values, and module files. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gradus/gradus.h>

#include "base/error.h"
#include "nn/module.h"

#include "support/network.h"

static float *values_of(gd_tensor *t)
{
    assert_non_null(t);
    size_t bytes = (size_t)gd_tensor_count(t) * sizeof(float);
    float *values = malloc(bytes + 1);
    assert_non_null(values);
    assert_int_equal(gd_tensor_read(t, values, bytes), GD_OK);
    return values;
}

/* ---- modules ---- */

static void parameters_are_made_at_first_use(void **state)
{
    gd_module *m = gd_module_create(*state, .seed = 1);
    assert_int_equal(gd_module_count(m), 0);
    assert_non_null(network(m, ramp(*state, GD_SHAPE(2, 784))));
    static const char *const paths[] = { "fc1.weight", "fc1.bias",   "fc2.weight",
                                         "fc2.bias",   "fc3.weight", "fc3.bias" };
    assert_int_equal(gd_module_count(m), 6);
    for (int i = 0; i < 6; i++) {
        assert_string_equal(gd_module_path(m, i), paths[i]);
        assert_true(gd_module_is_parameter(m, i));
        assert_true(gd_requires_grad(gd_module_tensor(m, i)));
        assert_ptr_equal(gd_module_tensor(m, i), gd_module_parameter(m, paths[i]));
    }
    assert_int_equal(gd_module_parameter_count(m), 13002);
    gd_shape shape = gd_tensor_shape(gd_module_parameter(m, "fc1.weight"));
    assert_true(shape.rank == 2 && shape.dim[0] == 784 && shape.dim[1] == 16);
    assert_non_null(network(m, ramp(*state, GD_SHAPE(3, 784))));
    assert_int_equal(gd_module_count(m), 6);
    assert_null(gd_module_path(m, 6));
    assert_null(gd_module_tensor(m, -1));
}

static void values_depend_on_seed_and_order_alone(void **state)
{
    gd_module *a = gd_module_create(*state, .seed = 7), *b = gd_module_create(*state, .seed = 7);
    gd_module *c = gd_module_create(*state, .seed = 8);
    gd_tensor *x = ramp(*state, GD_SHAPE(2, 5));
    assert_non_null(gd_nn_linear(a, "p", x, 4));
    assert_non_null(gd_uniform(*state, GD_SHAPE(100), 0.0, 1.0, GD_F32));
    assert_non_null(gd_nn_linear(b, "q", x, 4));
    assert_non_null(gd_nn_linear(c, "p", x, 4));
    assert_same_bits(gd_module_parameter(a, "p.weight"), gd_module_parameter(b, "q.weight"));
    float *left = values_of(gd_module_parameter(a, "p.weight"));
    float *right = values_of(gd_module_parameter(c, "p.weight"));
    assert_memory_not_equal(left, right, 20 * sizeof(float));
    free(left);
    free(right);
    /* What fails draws nothing. */
    assert_null(gd_parameter(b, "r", GD_SHAPE(4), .init = GD_INIT_GLOROT_UNIFORM));
    expect_error(GD_ERR_SHAPE, "at least two axes");
    assert_non_null(gd_nn_linear(a, "p2", x, 4));
    assert_non_null(gd_nn_linear(b, "p2", x, 4));
    assert_same_bits(gd_module_parameter(a, "p2.weight"), gd_module_parameter(b, "p2.weight"));
}

static void initialisers_have_their_variance(void **state)
{
    const struct {
        gd_init init;
        double variance, limit;
    } rows[] = {
        { GD_INIT_DEFAULT, 2.0 / 500.0, sqrt(6.0 / 500.0) },
        { GD_INIT_GLOROT_UNIFORM, 2.0 / 500.0, sqrt(6.0 / 500.0) },
        { GD_INIT_GLOROT_NORMAL, 2.0 / 500.0, INFINITY },
        { GD_INIT_HE_UNIFORM, 2.0 / 300.0, sqrt(6.0 / 300.0) },
        { GD_INIT_HE_NORMAL, 2.0 / 300.0, INFINITY },
        { GD_INIT_ZEROS, 0.0, 0.0 },
    };
    enum { COUNT = 300 * 200 };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        gd_module *m = gd_module_create(*state, .seed = r);
        float *v = values_of(gd_parameter(m, "w", GD_SHAPE(300, 200), .init = rows[r].init));
        double sum = 0.0, squares = 0.0, largest = 0.0;
        for (int i = 0; i < COUNT; i++) {
            sum += (double)v[i];
            squares += (double)v[i] * (double)v[i];
            largest = fmax(largest, fabs((double)v[i]));
        }
        double deviation = sqrt(rows[r].variance);
        /* Five standard errors of the mean, and a generous bound on the variance's own spread. */
        assert_true(fabs(sum / COUNT) <= 5.0 * deviation / sqrt(COUNT));
        assert_true(fabs(squares / COUNT - rows[r].variance) <= 0.05 * rows[r].variance);
        assert_true(largest <= rows[r].limit * (1.0 + 1e-6));
        free(v);
    }
    assert_string_equal(gd_init_name(GD_INIT_HE_NORMAL), "he_normal");
    assert_string_equal(gd_init_name((gd_init)99), "?");
}

static void linear_computes_its_formula(void **state)
{
    gd_module *m = gd_module_create(*state, .seed = 3);
    gd_tensor *x = ramp(*state, GD_SHAPE(2, 3, 5));
    gd_tensor *y = gd_nn_linear(m, "l", x, 7);
    gd_shape shape = gd_tensor_shape(y);
    assert_true(shape.rank == 3 && shape.dim[0] == 2 && shape.dim[1] == 3 && shape.dim[2] == 7);
    float bias[7] = { 1.0f, -2.0f, 3.0f, -4.0f, 5.0f, -6.0f, 7.0f };
    assert_int_equal(gd_tensor_write(gd_module_parameter(m, "l.bias"), bias, sizeof bias), GD_OK);
    float *in = values_of(x), *w = values_of(gd_module_parameter(m, "l.weight"));
    float *out = values_of(gd_nn_linear(m, "l", x, 7));
    for (int r = 0; r < 6; r++)
        for (int u = 0; u < 7; u++) {
            double sum = (double)bias[u];
            for (int k = 0; k < 5; k++)
                sum += (double)in[r * 5 + k] * (double)w[k * 7 + u];
            assert_true(fabs(sum - (double)out[r * 7 + u]) < 1e-5);
        }
    free(in);
    free(w);
    free(out);
    assert_non_null(gd_nn_linear(m, "bare", x, 4, .bias = false, .init = GD_INIT_ONES));
    assert_null(gd_module_parameter(m, "bare.bias"));
    expect_error(GD_ERR_INVALID, "bare.bias");
}

static void wrong_uses_are_errors(void **state)
{
    gd_module *m = gd_module_create(*state);
    gd_tensor *x = ramp(*state, GD_SHAPE(2, 5));
    assert_non_null(gd_nn_linear(m, "l", x, 4));
    assert_null(gd_nn_linear(m, "l", x, 5));
    expect_error(GD_ERR_SHAPE, "\"l\" was made with 4 units and a bias, here it has 5 and a bias");
    assert_null(gd_nn_linear(m, "l", x, 4, .bias = false));
    expect_error(GD_ERR_SHAPE, "no bias");
    assert_null(gd_nn_linear(m, "l", ramp(*state, GD_SHAPE(2, 6)), 4));
    expect_error(GD_ERR_SHAPE, "the input is [2, 6], but \"l.weight\" is [5, 4]");
    assert_null(gd_nn_linear(m, "n", x, 0));
    expect_error(GD_ERR_INVALID, "units");
    assert_null(gd_nn_linear(m, "", x, 1));
    expect_error(GD_ERR_INVALID, "name is empty");
    assert_null(gd_nn_linear(m, "n", gd_zeros(*state, GD_SHAPE(2, 5), GD_I32), 1));
    expect_error(GD_ERR_DTYPE, "i32");
    assert_null(gd_nn_linear(m, "n", gd_zeros(*state, GD_SCALAR, GD_F32), 1));
    expect_error(GD_ERR_SHAPE, "1 axes or more are needed");
    assert_null(gd_nn_linear(m, "n", NULL, 4));
    assert_null(gd_nn_linear(NULL, "n", x, 4));
    assert_int_equal(gd_error_code(), GD_OK); /* NULL in, NULL out */
    assert_null(gd_parameter(m, "l.weight", GD_SHAPE(5, 3), .init = GD_INIT_ZEROS));
    expect_error(GD_ERR_SHAPE, "\"l.weight\" is f32 [5, 4], but is used here as f32 [5, 3]");
    assert_null(gd_buffer(m, "l.weight", GD_SHAPE(5, 4), 0.0, GD_F32));
    expect_error(GD_ERR_INVALID, "a parameter, but is used here as a buffer");
    assert_null(gd_parameter(m, "", GD_SHAPE(5), .init = GD_INIT_ZEROS));
    expect_error(GD_ERR_INVALID, "empty");
    assert_null(gd_parameter(m, "big", GD_SHAPE(INT64_C(1) << 40, INT64_C(1) << 40),
                             .init = GD_INIT_ZEROS));
    assert_int_not_equal(gd_error_code(), GD_OK);
    gd_error_clear();
    assert_null(gd_module_parameter(m, "nothing"));
    expect_error(GD_ERR_INVALID, "there is no \"nothing\"");
    assert_null(gd_module_create(NULL));
}

static void buffers_are_saved_but_not_trained(void **state)
{
    gd_module *m = gd_module_create(*state);
    gd_tensor *seen = gd_buffer(m, "norm.seen", GD_SHAPE(3), 4.0, GD_I64);
    assert_non_null(seen);
    assert_ptr_equal(seen, gd_buffer(m, "norm.seen", GD_SHAPE(3), 9.0, GD_I64));
    assert_false(gd_module_is_parameter(m, 0));
    assert_false(gd_requires_grad(seen));
    assert_int_equal(gd_module_parameter_count(m), 0);
    int64_t values[3];
    assert_int_equal(gd_tensor_read(seen, values, sizeof values), GD_OK);
    assert_int_equal(values[2], 4);
}

static void summary_is_a_table(void **state)
{
    gd_module *m = gd_module_create(*state);
    assert_non_null(network(m, ramp(*state, GD_SHAPE(50, 784))));
    static const char expected[] = "layer  type    output shape  parameters\n"
                                   "fc1    linear  [50, 16]          12,560\n"
                                   "fc2    linear  [50, 16]             272\n"
                                   "fc3    linear  [50, 10]             170\n"
                                   "total                            13,002\n";
    char text[512];
    assert_int_equal(gd_module_summary(m, text, sizeof text), strlen(expected));
    assert_string_equal(text, expected);
    char cut[10];
    assert_int_equal(gd_module_summary(m, cut, sizeof cut), strlen(expected));
    assert_string_equal(cut, "layer  ty");
    assert_int_equal(gd_module_summary(m, NULL, 0), strlen(expected));
}

/* What a program makes itself beside layers: the rows make up the total. */
static void parameters_of_no_layer_have_rows(void **state)
{
    gd_module *m = gd_module_create(*state);
    gd_tensor *x = ramp(*state, GD_SHAPE(2, 3));
    assert_non_null(gd_parameter(m, "scale", GD_SHAPE(3), .init = GD_INIT_ONES));
    assert_non_null(gd_buffer(m, "seen", GD_SHAPE(3), 0.0, GD_F32));
    assert_non_null(gd_nn_linear(m, "fc", x, 4));
    char text[512];
    gd_module_summary(m, text, sizeof text);
    assert_string_equal(text, "layer  type       output shape  parameters\n"
                              "fc     linear     [2, 4]                16\n"
                              "scale  parameter  [3]                    3\n"
                              "total                                   19\n");
}

static void the_training_flag_is_kept(void **state)
{
    gd_module *m = gd_module_create(*state);
    assert_true(gd_module_is_training(m));
    gd_module_set_training(m, false);
    assert_false(gd_module_is_training(m));
    assert_false(gd_module_is_training(NULL));
}

static gd_tensor *traced_body(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    return gd_nn_linear(user, "t", in[0], 4);
}

static void parameters_made_while_tracing_last(void **state)
{
    gd_module *m = gd_module_create(*state, .seed = 5),
              *eager = gd_module_create(*state, .seed = 5);
    gd_function *f = gd_compile(*state, traced_body, m);
    gd_tensor *x = ramp(*state, GD_SHAPE(3, 6));
    gd_tensor *y = gd_call(f, 1, &x);
    assert_non_null(y);
    assert_same_bits(y, gd_nn_linear(eager, "t", x, 4));
    assert_same_bits(gd_module_parameter(m, "t.weight"), gd_module_parameter(eager, "t.weight"));
    float bias[4] = { 1.0f, 1.0f, 1.0f, 1.0f };
    assert_int_equal(gd_tensor_write(gd_module_parameter(m, "t.bias"), bias, sizeof bias), GD_OK);
    assert_int_equal(gd_tensor_write(gd_module_parameter(eager, "t.bias"), bias, sizeof bias),
                     GD_OK);
    assert_same_bits(gd_call(f, 1, &x), gd_nn_linear(eager, "t", x, 4));
}

/* ---- files ---- */

static const char *temporary(char path[256])
{
    snprintf(path, 256, "%s/test_nn_%ld.safetensors", GD_BINARY_DIR, (long)getpid());
    return path;
}

static bool can_store(gd_module *m, const char *path)
{
    if (gd_module_save(m, path) == GD_OK)
        return true;
    assert_int_equal(gd_error_code(), GD_ERR_UNSUPPORTED); /* a build without jansson */
    gd_error_clear();
    return false;
}

static void saved_modules_load(void **state)
{
    char path[256];
    gd_module *a = gd_module_create(*state, .seed = 1);
    gd_tensor *x = ramp(*state, GD_SHAPE(2, 784));
    gd_tensor *y = network(a, x);
    assert_non_null(gd_buffer(a, "steps", GD_SCALAR, 12.0, GD_I64));
    if (!can_store(a, temporary(path)))
        skip();
    /* into a module that has its parameters */
    gd_module *b = gd_module_create(*state, .seed = 2);
    assert_non_null(network(b, x));
    assert_non_null(gd_buffer(b, "steps", GD_SCALAR, 0.0, GD_I64));
    assert_int_equal(gd_module_load(b, path), GD_OK);
    assert_same_bits(network(b, x), y);
    assert_true(gd_item(gd_module_parameter(b, "steps")) == 12.0);
    /* into an empty one, which then finds them */
    gd_module *c = gd_module_create(*state, .seed = 3);
    assert_int_equal(gd_module_load(c, path), GD_OK);
    assert_same_bits(network(c, x), y);
    assert_int_equal(gd_module_parameter_count(c), 13002);
    assert_true(gd_requires_grad(gd_module_parameter(c, "fc2.bias")));
    /* what is not in the file cannot be made up */
    assert_null(gd_nn_linear(c, "fc4", x, 3));
    expect_error(GD_ERR_STATE, "\"fc4.weight\" is not in ");
    remove(path);
    assert_int_equal(gd_module_load(b, path), GD_ERR_IO);
    gd_error_clear();
}

static void files_of_other_models_are_told_apart(void **state)
{
    char path[256];
    gd_tensor *x = ramp(*state, GD_SHAPE(2, 5));
    gd_module *a = gd_module_create(*state, .seed = 1);
    assert_non_null(gd_nn_linear(a, "one", x, 4));
    if (!can_store(a, temporary(path)))
        skip();
    gd_module *wider = gd_module_create(*state, .seed = 2), *other = gd_module_create(*state);
    gd_module *smaller = gd_module_create(*state);
    assert_non_null(gd_nn_linear(wider, "one", x, 6));
    float *before = values_of(gd_module_parameter(wider, "one.weight"));
    assert_int_equal(gd_module_load(wider, path), GD_ERR_FORMAT);
    expect_error(GD_ERR_FORMAT, "its \"one.weight\" is f32 [5, 4], the module's is f32 [5, 6]");
    float *after = values_of(gd_module_parameter(wider, "one.weight"));
    assert_memory_equal(before, after, 30 * sizeof(float));
    free(before);
    free(after);
    assert_non_null(gd_nn_linear(other, "two", x, 4));
    assert_int_equal(gd_module_load(other, path), GD_ERR_FORMAT);
    expect_error(GD_ERR_FORMAT, "it has no \"two.weight\" (f32 [5, 4])");
    assert_non_null(gd_nn_linear(smaller, "one", x, 4, .bias = false));
    assert_int_equal(gd_module_load(smaller, path), GD_ERR_FORMAT);
    expect_error(GD_ERR_FORMAT, "it has a \"one.bias\", which the module has not");
    remove(path);
    assert_int_equal(gd_module_save(NULL, path), GD_ERR_INVALID);
    gd_error_clear();
    assert_int_equal(gd_module_save(a, "/no/such/folder/m.safetensors"), GD_ERR_IO);
    gd_error_clear();
}

/* ---- out of memory, at every allocation in turn ---- */

static bool everything(int unused)
{
    (void)unused;
    gd_context *gd = gd_open(test_device(), .threads = 1);
    gd_module *m = gd_module_create(gd, .seed = 1);
    gd_tensor *x = gd ? gd_zeros(gd, GD_SHAPE(2, 784), GD_F32) : NULL;
    bool ok = gd && network(m, x) && gd_buffer(m, "b", GD_SHAPE(2), 1.0, GD_I64);
    gd_close(gd);
    return ok;
}

static void failing_allocations_leave_nothing_behind(void **state)
{
    (void)state;
    fail_every_allocation(everything, 0);
}

static void failing_allocations_in_files(void **state)
{
    char path[256];
    gd_module *a = gd_module_create(*state, .seed = 1);
    gd_tensor *x = ramp(*state, GD_SHAPE(2, 5));
    assert_non_null(gd_nn_linear(a, "one", x, 4));
    if (!can_store(a, temporary(path)))
        skip();
    for (int64_t n = 0;; n++) {
        gd_module *empty = gd_module_create(*state), *full = gd_module_create(*state, .seed = 9);
        assert_non_null(gd_nn_linear(full, "one", x, 4));
        gd_fail_allocations_after(n);
        bool saved = gd_module_save(a, path) == GD_OK;
        bool loaded = gd_module_load(full, path) == GD_OK && gd_module_load(empty, path) == GD_OK;
        gd_fail_allocations_after(-1);
        assert_true((saved && loaded) == (gd_error_code() == GD_OK));
        int count = gd_module_count(empty); /* all or nothing */
        assert_true(count == 2 || (count == 0 && gd_error_code() != GD_OK));
        gd_module_release(empty);
        gd_module_release(full);
        if (gd_error_code() == GD_OK)
            break;
        assert_int_equal(gd_error_code(), GD_ERR_MEMORY);
        gd_error_clear();
        assert_true(n < 10000);
    }
    remove(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        context_test(parameters_are_made_at_first_use),
        context_test(values_depend_on_seed_and_order_alone),
        context_test(initialisers_have_their_variance),
        context_test(linear_computes_its_formula),
        context_test(wrong_uses_are_errors),
        context_test(buffers_are_saved_but_not_trained),
        context_test(summary_is_a_table),
        context_test(parameters_of_no_layer_have_rows),
        context_test(the_training_flag_is_kept),
        context_test(parameters_made_while_tracing_last),
        context_test(saved_modules_load),
        context_test(files_of_other_models_are_told_apart),
        cmocka_unit_test(failing_allocations_leave_nothing_behind),
        context_test(failing_allocations_in_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
