/* tests/test_opencl.c: devices with memory of their own (backend/gpu), as OpenCL has them: every op
 * has a kernel, but for a list, and gives the CPU's bits, in every layout and dtype, eagerly and
 * compiled, on ordinary numbers and on any bits; the cache of programs. Skipped where OpenCL finds no device.
 * GRADUS_TEST_ALL: every row in every dtype, which compiles thousands of kernels. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/compile.h>
#include <gradus/loss.h>
#include <gradus/nn.h>
#include <gradus/optim.h>

#include "backend/gpu/gpu.h"
#include "graph/context.h"
#include "support/dlpack.h"
#include "support/device_rows.h"
#include "support/tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NO_DEVICE = 77 };

static gd_context *cpu, *device;

static int open_contexts(void **state)
{
    (void)state;
    cpu = device_rows_open_cpu();
    device = gd_open("opencl", .threads = 2);
    return cpu && device ? 0 : -1;
}

static int close_contexts(void **state)
{
    (void)state;
    gd_close(cpu);
    gd_close(device);
    return 0;
}

/* ---- bits ---- */

static gd_context *const *both(void)
{
    static gd_context *contexts[2];
    contexts[0] = cpu;
    contexts[1] = device;
    return contexts;
}

static void every_op_gives_the_cpus_bits(void **state)
{
    (void)state;
    device_gives_the_cpus_bits(both(), 0);
}

static void large_operands_give_the_cpus_bits(void **state)
{
    (void)state;
    device_gives_the_cpus_bits_of_large_operands(both());
}

static void elementwise_ops_give_the_cpus_bits_of_any_bits(void **state)
{
    (void)state;
    device_gives_the_cpus_bits_of_any_bits(both(), 0);
}

static void many_parts_and_long_lines_give_the_cpus_bits(void **state)
{
    (void)state;
    device_many_and_long_give_the_cpus_bits(both());
}

static void casts_give_the_cpus_bits_of_any_bits(void **state)
{
    (void)state;
    device_casts_give_the_cpus_bits(both(), 0);
}

/* ---- what only values show ---- */

/* The error of an op on [4, 3] by an index whose second element is out of range: the CPU tells it at
 * once, a device to the next who waits. */
static void tell(gd_context *gd, bool scatters, gd_dtype dtype, char message[256])
{
    const int64_t wide[2] = { 3, -1 };
    const int32_t narrow[2] = { 3, -1 };
    gd_scope_begin(gd);
    gd_tensor *x = gd_ones(gd, GD_SHAPE(4, 3), GD_F32);
    gd_tensor *index = gd_from_host(gd, GD_SHAPE(2, 1), dtype,
                                    dtype == GD_I64 ? (const void *)wide : (const void *)narrow);
    gd_tensor *rows = gd_broadcast_to(index, GD_SHAPE(2, 3));
    gd_tensor *y = scatters ? gd_scatter_add(x, rows, gd_ones(gd, GD_SHAPE(2, 3), GD_F32), 0)
                            : gd_gather(x, rows, 0);
    assert_int_equal(y != NULL, gd == device);
    float read[12];
    if (gd == device) {
        assert_int_equal(gd_error_code(), GD_OK);
        assert_int_equal(scatters ? gd_synchronize(gd) : gd_tensor_read(y, read, 24),
                         GD_ERR_INVALID);
    }
    assert_int_equal(gd_error_code(), GD_ERR_INVALID);
    snprintf(message, 256, "%s", gd_error_message());
    gd_error_clear();
    assert_int_equal(gd_synchronize(gd), GD_OK); /* once */
    assert_int_equal(gd_tensor_read(x, read, sizeof read), GD_OK);
    assert_true(read[0] == 1 && read[11] == 1);
    gd_scope_end(gd);
}

static void an_index_out_of_range_is_told_in_the_cpus_words(void **state)
{
    (void)state;
    char expected[256], told[256];
    for (int scatters = 0; scatters < 2; scatters++)
        for (int wide = 0; wide < 2; wide++) {
            tell(cpu, scatters, wide ? GD_I64 : GD_I32, expected);
            tell(device, scatters, wide ? GD_I64 : GD_I32, told);
            assert_string_equal(expected, told);
            assert_non_null(strstr(told, ": index -1 (element 3 of the index tensor) is out of "
                                         "range for axis 0 of size 4"));
        }
}

static void a_label_out_of_range_is_told_in_the_cpus_words(void **state)
{
    (void)state;
    const int64_t labels[4] = { 1, 0, 3, -5 };
    gd_context *const contexts[2] = { cpu, device };
    char told[2][256];
    for (int i = 0; i < 2; i++) {
        gd_scope_begin(contexts[i]);
        gd_tensor *x = gd_ones(contexts[i], GD_SHAPE(4, 3), GD_F32);
        gd_tensor *y = gd_from_host(contexts[i], GD_SHAPE(4), GD_I64, labels);
        assert_int_equal(gd_cross_entropy(x, y) != NULL, i == 1);
        if (i == 1)
            assert_int_equal(gd_synchronize(device), GD_ERR_INVALID);
        snprintf(told[i], sizeof told[i], "%s", gd_error_message());
        gd_error_clear();
        assert_int_equal(gd_synchronize(contexts[i]), GD_OK);
        gd_scope_end(contexts[i]);
    }
    assert_string_equal(told[0], told[1]);
    assert_non_null(strstr(told[0], "label 3 of row 2 is not one of 3 classes"));
}

/* ---- which ops have kernels ---- */

static void only_what_has_no_kernel_runs_on_the_host(void **state)
{
    (void)state;
    gd_gpu *g = (gd_gpu *)device->device;
    gd_scope_begin(device);
    gd_tensor *x = gd_ones(device, GD_SHAPE(3, 5), GD_F32);
    const uint64_t launched = g->launched, before = g->ran_on_host;
    assert_non_null(gd_tanh(gd_add(x, gd_transpose(gd_contiguous(gd_transpose(x, 0, 1)), 0, 1))));
    assert_int_equal(g->ran_on_host, before);
    assert_int_equal(g->launched, launched + 3);
    assert_non_null(gd_lgamma(x));
    assert_int_equal(g->ran_on_host, before + 1);
    gd_scope_end(device);
}

static gd_tensor *factorials(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_tanh(gd_mul_scalar(gd_lgamma(gd_exp(in[0])), 2));
}

static void plans_tell_what_runs_on_the_host(void **state)
{
    (void)state;
    gd_context *const contexts[2] = { cpu, device };
    for (int i = 0; i < 2; i++) {
        char text[4096];
        gd_tensor *x = gd_ones(contexts[i], GD_SHAPE(3, 5), GD_F32);
        gd_function *f = gd_compile(contexts[i], factorials, NULL);
        assert_non_null(gd_call(f, 1, &x));
        assert_true(gd_plan_format(f, text, sizeof text) < sizeof text);
        const char *line = strstr(text, ", on the host\n");
        assert_int_equal(line != NULL, i == 1);
        if (line) {
            while (line > text && line[-1] != '\n')
                line--;
            assert_memory_equal(line, "lgamma ", 7);
            assert_non_null(strstr(text, "\n1 of the kernels runs on the host, for which opencl:0 "
                                         "has none\n"));
        }
        gd_function_release(f);
    }
}

/* ---- the cache ---- */

/* One op in a context of its own: how many kernels were compiled, and how many were found. */
static void expect_kernels(uint64_t compiled, uint64_t loaded)
{
    gd_context *gd = gd_open("opencl:0");
    const float given[3] = { 1, -2, 3 };
    float got[3];
    gd_tensor *x = gd_from_host(gd, GD_SHAPE(3), GD_F32, given);
    assert_int_equal(gd_tensor_read(gd_neg(x), got, sizeof got), GD_OK);
    assert_true(got[0] == -1 && got[1] == 2 && got[2] == -3);
    const gd_gpu *g = (const gd_gpu *)gd->device;
    assert_int_equal(g->compiled, compiled);
    assert_int_equal(g->loaded, loaded);
    gd_close(gd);
}

/* The one file in the folder is cut to `bytes`, or with -1 made writable by all. */
static void damage(const char *folder, long bytes)
{
    char command[600];
    if (bytes >= 0)
        snprintf(command, sizeof command, "truncate -s %ld %s/*.kernel", bytes, folder);
    else
        snprintf(command, sizeof command, "chmod 0666 %s/*.kernel", folder);
    assert_int_equal(system(command), 0);
}

static void compiled_kernels_are_kept(void **state)
{
    (void)state;
    char folder[] = "/tmp/gradus-kernels-XXXXXX", command[64];
    const char *before = getenv("GRADUS_CACHE");
    char *kept = before ? strdup(before) : NULL;
    assert_non_null(mkdtemp(folder));
    assert_int_equal(setenv("GRADUS_CACHE", folder, 1), 0);
    expect_kernels(1, 0);
    expect_kernels(0, 1);
    static const long damages[] = { 0, 7, 100, 1000, -1 };
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        damage(folder, damages[i]);
        expect_kernels(1, 0);
        expect_kernels(0, 1);
    }
    assert_int_equal(chmod(folder, 0777), 0); /* others could put code there */
    expect_kernels(1, 0);
    assert_int_equal(setenv("GRADUS_CACHE", "", 1), 0);
    expect_kernels(1, 0);
    assert_int_equal(kept ? setenv("GRADUS_CACHE", kept, 1) : unsetenv("GRADUS_CACHE"), 0);
    free(kept);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

/* ---- devices by name ---- */

static void devices_are_opened_by_number(void **state)
{
    (void)state;
    bool is_listed = false;
    for (int i = 0; i < gd_device_count(); i++)
        is_listed |= strcmp(gd_device_name(i), "opencl:0") == 0;
    assert_true(is_listed);
    assert_string_equal(gd_context_device(device), "opencl:0");
    assert_false(gd_context_has_host_memory(device));
    assert_null(gd_open("opencl:15"));
    assert_non_null(strstr(
        gd_error_message(),
        "no device is called \"opencl:15\"; there are \"cpu\", \"reference\", \"opencl:0\""));
    gd_error_clear();
    assert_null(gd_open("opencl:99"));
    assert_non_null(
        strstr(gd_error_message(), "no device is called \"opencl:99\"; there are \"cpu\""));
    gd_error_clear();
}

/* ---- compiled functions ---- */

typedef struct step {
    gd_module *module;
    gd_optimizer *optimizer;
} step;

static gd_tensor *run_step(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    step *s = user;
    gd_tensor *h = gd_tanh(gd_nn_linear(s->module, "first", in[0], 17));
    h = gd_sigmoid(gd_mul(h, gd_exp(gd_neg(gd_square(h)))));
    gd_tensor *loss = gd_cross_entropy(gd_nn_linear(s->module, "second", h, 5), in[1]);
    return gd_minimize(s->optimizer, loss);
}

/* Losses of ten steps, and whether elementwise groups ran on the device. */
static void train(gd_context *gd, double losses[10])
{
    float x[32 * 7];
    int64_t labels[32];
    numbers n = { 3 };
    for (int i = 0; i < 32 * 7; i++)
        x[i] = (float)numbers_uniform(&n, -2, 2);
    for (int i = 0; i < 32; i++)
        labels[i] = i % 5;
    gd_seed(gd, 5);
    step s = { .module = gd_module_create(gd) };
    gd_tensor *in[2] = { gd_from_host(gd, GD_SHAPE(32, 7), GD_F32, x),
                         gd_from_host(gd, GD_SHAPE(32), GD_I64, labels) };
    s.optimizer = gd_adam(s.module, .lr = 0.01);
    gd_function *f = gd_compile(gd, run_step, &s);
    for (int i = 0; i < 10; i++)
        losses[i] = gd_item(gd_call(f, 2, in));
    gd_function_release(f);
    gd_optimizer_release(s.optimizer);
    gd_module_release(s.module);
}

static void training_gives_the_same_bits(void **state)
{
    (void)state;
    double expected[10], losses[10];
    train(cpu, expected);
    const gd_gpu *g = (const gd_gpu *)device->device;
    const uint64_t before = g->launched, on_host = g->ran_on_host;
    train(device, losses);
    assert_memory_equal(expected, losses, sizeof losses);
    assert_true(losses[9] < losses[0] && g->launched > before + 10);
    assert_int_equal(g->ran_on_host, on_host);
}

/* Losses of steps in a context of its own, of which every kernel is kept by now. */
static void a_second_start_compiles_nothing(void **state)
{
    (void)state;
    double first[10], second[10];
    for (int start = 0; start < 2; start++) {
        gd_context *gd = gd_open("opencl:0");
        const gd_gpu *g = (const gd_gpu *)gd->device;
        train(gd, start ? second : first);
        assert_true(g->compiled + g->loaded > 10);
        if (start)
            assert_int_equal(g->compiled, 0);
        gd_close(gd);
    }
    assert_memory_equal(first, second, sizeof first);
}

static void memory_is_shared_by_dlpack(void **state)
{
    (void)state;
    check_dlpack_of_device("opencl", 4, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op_gives_the_cpus_bits),
        cmocka_unit_test(large_operands_give_the_cpus_bits),
        cmocka_unit_test(elementwise_ops_give_the_cpus_bits_of_any_bits),
        cmocka_unit_test(many_parts_and_long_lines_give_the_cpus_bits),
        cmocka_unit_test(casts_give_the_cpus_bits_of_any_bits),
        cmocka_unit_test(an_index_out_of_range_is_told_in_the_cpus_words),
        cmocka_unit_test(a_label_out_of_range_is_told_in_the_cpus_words),
        cmocka_unit_test(only_what_has_no_kernel_runs_on_the_host),
        cmocka_unit_test(plans_tell_what_runs_on_the_host),
        cmocka_unit_test(training_gives_the_same_bits),
        cmocka_unit_test(compiled_kernels_are_kept),
        cmocka_unit_test(a_second_start_compiles_nothing),
        cmocka_unit_test(memory_is_shared_by_dlpack),
        cmocka_unit_test(devices_are_opened_by_number),
    };
    if (gd_backend_opencl.count() == 0) {
        printf("skipped: OpenCL finds no device\n");
        return NO_DEVICE;
    }
    return cmocka_run_group_tests(tests, open_contexts, close_contexts);
}
