/* tests/test_cudnn_real.c: the real cuDNN takes our graphs, without a device: in its deviceless mode it makes plans
 * for a device that a JSON text describes: tests/data/h200_device_properties.json, written by hand
 * from what NVIDIA publishes of the H200. The convolutions are those of LeNet, the simple CNN and cats and dogs,
 * and some with all options. Nothing is computed.
 *
 * GRADUS_TEST_CUDNN: the folder of the library, libcudnn.so.9 (9.8 or newer); not set: skipped. Where there are headers
 * in ../include, the numbers of cudnn.def are compared with theirs. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/gradus.h>

#include "backend/cuda/cudnn.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NO_LIBRARY = 77, FIRST_DEVICELESS = 90800 };
#define FAKE_DRIVER GD_BINARY_DIR "/tests/fake_cuda/libcuda.so.1"
#define PROPERTIES  GD_SOURCE_DIR "/tests/data/h200_device_properties.json"

static const gd_cudnn_api *dnn;

/* A whole file with a 0 behind it, or NULL. */
static char *read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    size_t bytes = 0;
    if (!file)
        return NULL;
    for (size_t room = 1 << 16;; room *= 2) {
        text = realloc(text, room);
        bytes += fread(text + bytes, 1, room - bytes - 1, file);
        if (bytes < room - 1)
            break;
    }
    text[bytes] = '\0';
    fclose(file);
    return text;
}

/* ---- the numbers of the headers ---- */

static const struct value {
    const char *name;
    int number;
} values[] = {
#define CUDNN_VALUE(name, number) { #name, number },
#include "backend/cuda/cudnn.def"
};

/* "NAME = 17" or "NAME CUDNN_DEPRECATED_ENUM = 17", the name a whole word; false: not there. */
static bool find_value(const char *text, const char *name, long *number)
{
    const size_t length = strlen(name);
    for (const char *at = text; (at = strstr(at, name)); at += length) {
        const char *rest = at + length;
        if (isalnum((unsigned char)*rest) || *rest == '_' ||
            (at > text && (isalnum((unsigned char)at[-1]) || at[-1] == '_')))
            continue;
        static const char deprecated[] = "CUDNN_DEPRECATED_ENUM";
        rest += strspn(rest, " ");
        if (strncmp(rest, deprecated, sizeof deprecated - 1) == 0)
            rest += sizeof deprecated - 1;
        rest += strspn(rest, " ");
        if (*rest != '=' || !isdigit((unsigned char)rest[1 + strspn(rest + 1, " ")]))
            continue;
        *number = strtol(rest + 1, NULL, 10);
        return true;
    }
    return false;
}

static void numbers_are_those_of_the_headers(void **state)
{
    (void)state;
    char path[1024];
    snprintf(path, sizeof path, "%s/../include/cudnn_graph.h", getenv("GRADUS_TEST_CUDNN"));
    char *text = read_file(path);
    if (!text) {
        print_message("no %s: the numbers are not compared\n", path);
        skip();
    }
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        long number = -1;
        if (!find_value(text, values[i].name, &number) || number != values[i].number)
            fail_msg("%s is %d, and %ld in the header", values[i].name, values[i].number, number);
    }
    free(text);
}

/* ---- plans ---- */

static cudnnBackendDescriptor_t properties_of_h200(void)
{
    char *text = read_file(PROPERTIES), told[512] = "";
    cudnnBackendDescriptor_t properties = NULL;
    assert_non_null(text);
    assert_int_equal(
        dnn->cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &properties), 0);
    int error = dnn->cudnnBackendSetAttribute(properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                              CUDNN_TYPE_CHAR, (int64_t)strlen(text) + 1, text);
    if (error == 0)
        error = dnn->cudnnBackendFinalize(properties);
    dnn->cudnnGetLastErrorString(told, sizeof told);
    if (error)
        fail_msg("%s: %s", dnn->cudnnGetErrorString(error), told);
    free(text);
    return properties;
}

/* A convolution in two dimensions. */
static const struct row {
    const char *name;
    int64_t n, c, in[2], o, kernel[2], stride[2], before[2], after[2], dilation[2], groups;
} rows[] = {
#define PLAIN(name, n, c, size, o, kernel, padding)                                        \
    {                                                                                      \
        name, n, c, { size, size }, o, { kernel, kernel }, { 1, 1 }, { padding, padding }, \
            { padding, padding }, { 1, 1 }, 1                                              \
    }
    PLAIN("LeNet conv1", 64, 1, 28, 12, 5, 2),
    PLAIN("LeNet conv2", 64, 12, 14, 32, 5, 0),
    PLAIN("simple CNN conv", 32, 3, 32, 8, 3, 1),
    PLAIN("cats and dogs conv1", 16, 3, 64, 16, 3, 1),
    PLAIN("cats and dogs conv2", 16, 16, 64, 32, 3, 1),
    PLAIN("cats and dogs conv3", 16, 32, 64, 64, 3, 1),
    { "stride 2", 8, 16, { 33, 30 }, 24, { 3, 3 }, { 2, 2 }, { 1, 1 }, { 1, 1 }, { 1, 1 }, 1 },
    { "dilation 2", 8, 16, { 32, 32 }, 16, { 3, 3 }, { 1, 1 }, { 2, 2 }, { 2, 2 }, { 2, 2 }, 1 },
    { "4 groups", 8, 16, { 32, 32 }, 32, { 3, 3 }, { 1, 1 }, { 1, 1 }, { 1, 1 }, { 1, 1 }, 4 },
    { "one axis", 8, 16, { 1, 100 }, 32, { 1, 5 }, { 1, 1 }, { 0, 2 }, { 0, 2 }, { 1, 1 }, 1 },
};

static gd_gpu_convolution convolution_of(const struct row *r, int result)
{
    gd_gpu_convolution c = { .result = result, .axes = 4, .groups = r->groups };
    const int64_t x[] = { r->n, r->c, r->in[0], r->in[1] };
    const int64_t w[] = { r->o, r->c / r->groups, r->kernel[0], r->kernel[1] };
    int64_t y[] = { r->n, r->o, 0, 0 };
    for (int a = 0; a < 2; a++) {
        y[2 + a] =
            (r->in[a] + r->before[a] + r->after[a] - r->dilation[a] * (r->kernel[a] - 1) - 1) /
                r->stride[a] +
            1;
        c.stride[a] = r->stride[a];
        c.before[a] = r->before[a];
        c.after[a] = r->after[a];
        c.dilation[a] = r->dilation[a];
    }
    memcpy(c.size[GD_CONV_X], x, sizeof x);
    memcpy(c.size[GD_CONV_W], w, sizeof w);
    memcpy(c.size[GD_CONV_Y], y, sizeof y);
    return c;
}

static void check_plan(const struct row *row, int result, const gd_cudnn_target *target)
{
    static const char *const results[] = { "by the input", "by the weight", "forward" };
    const gd_gpu_convolution c = convolution_of(row, result);
    gd_cudnn_plan plan;
    if (gd_cudnn_plan_make(dnn, target, &c, &plan) != GD_OK)
        fail_msg("%s, %s: %s", row->name, results[result], gd_error_message());
    print_message(
        "%-20s %-14s %-5s engine %3lld, notes %#6x, %2d proposed, %2d refused, %9lld bytes\n",
        row->name, results[result], target->allows_tf32 ? "TF32" : "f32", (long long)plan.engine,
        plan.notes, plan.proposed, plan.refused, (long long)plan.workspace);
    if (!plan.execution)
        fail_msg("%s, %s: no engine", row->name, results[result]);
    assert_false(plan.notes >> CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC & 1);
    assert_true(target->allows_tf32 || !(plan.notes >> CUDNN_NUMERICAL_NOTE_TENSOR_CORE & 1));
    assert_true(target->allows_tf32 ||
                !(plan.notes >> CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS & 1));
    assert_true(plan.workspace >= 0 && plan.workspace <= GD_CUDNN_WORKSPACE);
    gd_cudnn_plan_end(dnn, &plan);
}

static void graphs_have_plans_for_an_h200(void **state)
{
    (void)state;
    gd_cudnn_target target = { .name = "H200", .properties = properties_of_h200() };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int result = 0; result < GD_CONV_OPERANDS; result++)
            for (int tf32 = 0; tf32 < 2; tf32++) {
                target.allows_tf32 = tf32;
                check_plan(&rows[i], result, &target);
            }
    (void)dnn->cudnnBackendDestroyDescriptor(target.properties);
}

/* The same question has the same answer. */
static void the_choice_of_an_engine_is_repeatable(void **state)
{
    (void)state;
    const gd_cudnn_target target = { .name = "H200",
                                     .properties = properties_of_h200(),
                                     .allows_tf32 = true };
    for (int result = 0; result < GD_CONV_OPERANDS; result++) {
        const gd_gpu_convolution c = convolution_of(&rows[4], result);
        gd_cudnn_plan first, second;
        assert_int_equal(gd_cudnn_plan_make(dnn, &target, &c, &first), GD_OK);
        assert_int_equal(gd_cudnn_plan_make(dnn, &target, &c, &second), GD_OK);
        assert_true(first.engine == second.engine && first.notes == second.notes &&
                    first.workspace == second.workspace);
        gd_cudnn_plan_end(dnn, &first);
        gd_cudnn_plan_end(dnn, &second);
    }
    (void)dnn->cudnnBackendDestroyDescriptor(target.properties);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_those_of_the_headers),
        cmocka_unit_test(graphs_have_plans_for_an_h200),
        cmocka_unit_test(the_choice_of_an_engine_is_repeatable),
    };
    const char *folder = getenv("GRADUS_TEST_CUDNN");
    if (!folder || !*folder) {
        printf("skipped: GRADUS_TEST_CUDNN names no folder of cuDNN\n");
        return NO_LIBRARY;
    }
    if (!dlopen(FAKE_DRIVER, RTLD_NOW | RTLD_GLOBAL) ||
        setenv("GRADUS_CUDA_PATH", folder, 1) != 0) {
        printf("skipped: the stand-in for CUDA's driver is not built\n");
        return NO_LIBRARY;
    }
    dnn = gd_cudnn();
    if (!dnn) {
        printf("%s\n", gd_error_message());
        return 1;
    }
    if (dnn->version < FIRST_DEVICELESS) {
        printf("skipped: cuDNN %d makes no plans without a device\n", dnn->version);
        return NO_LIBRARY;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
