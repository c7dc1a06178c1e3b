/* tests/test_opencl_failures.c: every call of OpenCL fails once, while a program opens a device, runs
 * ops, trains compiled steps, reads and closes. Each time the program ends with a sentence, or with
 * the right numbers; a context that is there then computes as if nothing had been; and all that was
 * made is released. The library in front of OpenCL's that does this is tests/failing_opencl.
 * GRADUS_TEST_ALL: every call; else of each function the first, one in the middle, and the last. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/gradus.h>

#include "backend/gpu/gpu.h"
#include "failing_opencl/failing_opencl.h"
#include "graph/context.h"
#include "support/device_program.h"
#include "support/device_rows.h"
#include "support/effort.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NO_DEVICE = 77 };
#define FOLDER GD_BINARY_DIR "/tests/failing_opencl"

/* CL_OUT_OF_RESOURCES, CL_MEM_OBJECT_ALLOCATION_FAILURE */
enum { OUT_OF_RESOURCES = -5, NO_MEMORY = -4 };

static struct {
    void (*arm)(const char *name, int64_t call, bool lasting, cl_int code);
    int64_t (*calls)(const char *name);
    int64_t (*alive)(void);
    void (*without)(cl_uint what, cl_bitfield bits);
} failing;

static bool find(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    memcpy(function, &found, sizeof found);
    return found;
}

#define COUNT_ONE(result, name, parameters) +1
enum { FUNCTIONS = GD_OPENCL_FUNCTIONS(COUNT_ONE) };
#define NAME(result, name, parameters) #name,
static const char *const names[FUNCTIONS] = { GD_OPENCL_FUNCTIONS(NAME) };

/* Before OpenCL is first asked for. Without one of the functions that Gradus calls it would be no OpenCL library, and the
 * tests would be skipped as if there were no device. */
static bool load_failing(void)
{
    void *library = dlopen(FOLDER "/libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        printf("%s\n", dlerror());
        return false;
    }
    for (int f = 0; f < FUNCTIONS; f++)
        if (!dlsym(library, names[f])) {
            printf("tests/failing_opencl/failing_opencl.c lacks %s\n", names[f]);
            return false;
        }
    return setenv("GRADUS_OPENCL_PATH", FOLDER, 1) == 0 &&
           find(library, "failing_opencl_arm", &failing.arm) &&
           find(library, "failing_opencl_calls", &failing.calls) &&
           find(library, "failing_opencl_alive", &failing.alive) &&
           find(library, "failing_opencl_without", &failing.without);
}

/* ---- every failure ---- */

static device_outcome expected;

/* The program with a call failing, in a context of its own. Whether it got through. */
static bool run_failing(const char *name, int64_t call, bool lasting)
{
    device_outcome out;
    gd_error_clear();
    failing.arm(name, call, lasting, call % 2 ? OUT_OF_RESOURCES : NO_MEMORY);
    gd_context *gd = gd_open("opencl:0", .threads = 1);
    const bool ok = gd && device_program(gd, &out);
    if (!ok && (gd_error_code() == GD_OK || !strstr(gd_error_message(), "opencl")))
        fail_msg("call %lld of %s failing: \"%s\"", (long long)call, name, gd_error_message());
    if (ok)
        assert_memory_equal(&out, &expected, sizeof out);
    if (gd && !lasting) { /* it works again */
        failing.arm(NULL, 0, false, 0);
        gd_error_clear();
        if (!device_program(gd, &out))
            fail_msg("after call %lld of %s failed: %s", (long long)call, name, gd_error_message());
        assert_memory_equal(&out, &expected, sizeof out);
    }
    gd_close(gd);
    failing.arm(NULL, 0, false, 0);
    if (failing.alive() != 0)
        fail_msg("call %lld of %s failing: %lld objects are left", (long long)call, name,
                 (long long)failing.alive());
    return ok;
}

/* How often the program calls each function. Of events it asks as often as time has it. */
static void count_calls(int64_t calls[FUNCTIONS])
{
    device_outcome out;
    failing.arm(NULL, 0, false, 0);
    gd_context *gd = gd_open("opencl:0", .threads = 1);
    assert_non_null(gd);
    assert_true(device_program(gd, &out));
    gd_close(gd);
    assert_memory_equal(&out, &expected, sizeof out);
    assert_int_equal(failing.alive(), 0);
    for (int f = 0; f < FUNCTIONS; f++)
        calls[f] = failing.calls(names[f]);
}

static void fail_each(bool lasting)
{
    int64_t calls[FUNCTIONS];
    int tried = 0, refused = 0;
    count_calls(calls);
    for (int f = 0; f < FUNCTIONS; f++)
        for (int64_t i = 0; i < calls[f]; i++)
            if (getenv("GRADUS_TEST_ALL") || i == 0 ||
                (!lasting && (i == calls[f] - 1 || (i == calls[f] / 2 && !test_is_slow())))) {
                refused += !run_failing(names[f], i, lasting);
                tried++;
            }
    assert_true(tried > 20 && refused > 10);
}

static void a_call_that_fails_is_told(void **state)
{
    (void)state;
    fail_each(false);
}

/* As a device does that is lost. */
static void all_calls_that_fail_are_told(void **state)
{
    (void)state;
    fail_each(true);
}

/* The same with plans as one kernel. */
static void failures_of_one_kernel_are_told(void **state)
{
    (void)state;
    assert_int_equal(setenv("GRADUS_ONE_KERNEL", "always", 1), 0);
    fail_each(false);
    assert_int_equal(unsetenv("GRADUS_ONE_KERNEL"), 0);
}

static void out_of_memory_names_what_there_is_and_what_holds_most(void **state)
{
    (void)state;
    gd_error_clear();
    gd_context *gd = gd_open("opencl:0", .threads = 1);
    gd_tensor *held = gd_set_name(gd_ones(gd, GD_SHAPE(3, 1000), GD_F32), "weights");
    assert_non_null(held);
    failing.arm("clCreateBuffer", 0, true, NO_MEMORY);
    assert_null(gd_ones(gd, GD_SHAPE(1 << 22), GD_F64));
    assert_int_equal(gd_error_code(), GD_ERR_MEMORY);
    const gd_device_memory_size size = gd_device_memory(gd);
    char rest[256];
    snprintf(rest, sizeof rest,
             "; opencl:0 has %zu bytes left of %zu; the largest tensor is \"weights\", f32 "
             "[3, 1000] with 12000 bytes",
             size.available, size.total);
    assert_true(size.available > 0 && size.available < size.total);
    static const char begin[] = "out of memory: 33554432 bytes could not be allocated: opencl:0: "
                                "clCreateBuffer of 33554432 bytes: CL_";
    assert_memory_equal(gd_error_message(), begin, sizeof begin - 1);
    if (!strstr(gd_error_message(), rest))
        fail_msg("\"%s\"", gd_error_message());
    failing.arm(NULL, 0, false, 0);
    gd_error_clear();
    gd_close(gd);
}

/* ---- kernels that must be compiled ---- */

static bool negate(gd_context *gd)
{
    const float given[3] = { 1, -2, 3 };
    float got[3] = { 0 };
    gd_tensor *y = gd_neg(gd_from_host(gd, GD_SHAPE(3), GD_F32, given));
    const bool ok = y && gd_tensor_read(y, got, sizeof got) == GD_OK;
    return ok && got[0] == -1 && got[1] == 2 && got[2] == -3;
}

/* The first op of a context that has to compile, with the first call of `name` failing. */
static void compile_failing(const char *name, const char *told)
{
    gd_context *gd = gd_open("opencl:0", .threads = 1);
    assert_non_null(gd);
    gd_error_clear();
    failing.arm(name, 0, false, NO_MEMORY);
    assert_int_equal(negate(gd), !told);
    assert_int_equal(gd_error_code(), told ? GD_ERR_DEVICE : GD_OK);
    if (told && !strstr(gd_error_message(), told))
        fail_msg("%s failing: \"%s\"", name, gd_error_message());
    assert_true(failing.calls(name) > 0);
    gd_error_clear();
    assert_true(negate(gd)); /* the next one compiles */
    gd_close(gd);
    assert_int_equal(failing.alive(), 0);
}

static void kernels_that_cannot_be_made_are_told(void **state)
{
    (void)state;
    const char *before = getenv("GRADUS_CACHE");
    char *kept = before ? strdup(before) : NULL;
    assert_int_equal(setenv("GRADUS_CACHE", "", 1), 0);
    compile_failing("clCreateProgramWithSource", "opencl:0: clCreateProgramWithSource: CL_");
    compile_failing("clBuildProgram", "opencl:0: a kernel does not compile: CL_");
    compile_failing("clCreateKernel", "opencl:0: clCreateKernel: CL_MEM_OBJECT_ALLOCATION_FAILURE");
    compile_failing("clGetProgramInfo", NULL); /* what would be kept in the cache */
    compile_failing("clGetKernelInfo", NULL);
    assert_int_equal(kept ? setenv("GRADUS_CACHE", kept, 1) : unsetenv("GRADUS_CACHE"), 0);
    free(kept);
}

/* ---- devices whose results would be others ---- */

static void a_device_without_the_arithmetic_is_refused(void **state)
{
    (void)state;
    static const struct {
        cl_uint what;
        cl_bitfield bits;
        const char *lacks;
    } cases[] = {
        { CL_DEVICE_SINGLE_FP_CONFIG, CL_FP_DENORM, "has no f32 with subnormal numbers and fma" },
        { CL_DEVICE_SINGLE_FP_CONFIG, CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT,
          "has no f32 with divisions and roots that are rounded correctly" },
    };
    failing.arm(NULL, 0, false, 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        failing.without(cases[i].what, cases[i].bits);
        assert_null(gd_open("opencl:0", .threads = 1));
        assert_int_equal(gd_error_code(), GD_ERR_UNSUPPORTED);
        if (!strstr(gd_error_message(), cases[i].lacks))
            fail_msg("%s", gd_error_message());
        gd_error_clear();
        assert_int_equal(failing.alive(), 0);
    }
    failing.without(0, 0);
    gd_context *gd = gd_open("opencl:0", .threads = 1);
    assert_non_null(gd);
    gd_close(gd);
}

/* ---- a device without f64 ---- */

/* ops: what GRADUS_F64 says of those of f64 */
static void open_without_f64(gd_context *contexts[2], cl_bitfield bits, const char *ops)
{
    failing.arm(NULL, 0, false, 0);
    assert_int_equal(setenv("GRADUS_F64", ops, 1), 0);
    failing.without(CL_DEVICE_DOUBLE_FP_CONFIG, bits);
    contexts[0] = device_rows_open_cpu();
    contexts[1] = gd_open("opencl:0", .threads = 2);
    assert_non_null(contexts[0]);
    assert_non_null(contexts[1]);
}

static void close_without_f64(gd_context *contexts[2])
{
    gd_close(contexts[0]);
    gd_close(contexts[1]);
    failing.without(0, 0);
    assert_int_equal(unsetenv("GRADUS_F64"), 0);
    assert_int_equal(failing.alive(), 0);
}

static bool is_among(const char *const *list, const char *name)
{
    while (*list && strcmp(*list, name) != 0)
        list++;
    return *list != NULL;
}

/* Those of f32 that run on the host there: their formulas are in f64, or have no kernel on any device. */
static const char *const on_host[] = {
    "pow",       "pow_log",        "asinh",          "acosh", "atanh",
    "lgamma",    "polygamma",      "normalize",      "adam",  "adam_bf16",
    "ctc_alpha", "ctc_alpha_grad", "normalize_grad", NULL
};
/* Those of f64 that only move elements. */
static const char *const movers[] = { "reshape", "permute", "broadcast_to", "slice",  "copy", "pad",
                                      "concat",  "gather",  "scatter",      "assign", NULL };

/* Of elementwise ops, which are kernels to compile, every eighth, of others in bf16 and i64 every fourth. */
static void every_dtype_has_the_cpus_bits_without_f64(void **state)
{
    (void)state;
    static const gd_dtype dtypes[] = { GD_F32, GD_F64, GD_BF16, GD_I64 };
    gd_context *contexts[2];
    device_outcome out;
    open_without_f64(contexts, ~(cl_bitfield)0, "host");
    if (!device_program(contexts[1], &out))
        fail_msg("%s", gd_error_message());
    assert_memory_equal(&out, &expected, sizeof out);
    for (int r = 0; r < op_row_count && op_rows[r]->id < GD_OP_COUNT; r++)
        for (int d = 0; d < 4; d++) {
            const op_row *row = op_rows[r];
            const bool is_rare = is_among(on_host, row->name);
            const int share = row->id < GD_OP_ELEMENTWISE_COUNT ? 8 : d < 2 ? 1 : 4;
            if (row->case_count == 0 || !op_row_takes(row, dtypes[d]) ||
                ((r + d) % share != 0 && !is_rare))
                continue;
            numbers n = numbers_of(row, 5);
            const bool is_on_device =
                device_row_gives_the_cpus_bits(contexts, row, &row->cases[0], dtypes[d], 0, &n);
            if (d < 2 && is_on_device == (d == 0 ? is_rare : !is_among(movers, row->name)))
                fail_msg("%s of %s runs on the %s", row->name, gd_dtype_name(dtypes[d]),
                         is_on_device ? "device" : "host");
        }
    close_without_f64(contexts);
}

static void ops_of_f64_are_refused_by_name(void **state)
{
    (void)state;
    gd_context *contexts[2];
    open_without_f64(contexts, ~(cl_bitfield)0, "refuse");
    for (int r = 0; r < op_row_count && op_rows[r]->id < GD_OP_COUNT; r++) {
        const op_row *row = op_rows[r];
        if (row->case_count == 0 || !op_row_takes(row, GD_F64))
            continue;
        numbers n = numbers_of(row, 5);
        if (device_row_is_refused(contexts, row, &n) == is_among(movers, row->name))
            fail_msg("%s is %srefused", row->name, is_among(movers, row->name) ? "" : "not ");
    }
    close_without_f64(contexts);
}

/* The error names the op; with it nothing is lost. */
static void expect_refused(const void *result, const char *op)
{
    char told[100];
    snprintf(told, sizeof told, "%s: needs f64, which opencl:0 (", op);
    assert_null(result);
    assert_int_equal(gd_error_code(), GD_ERR_UNSUPPORTED);
    if (!strstr(gd_error_message(), told))
        fail_msg("\"%s\" is not in \"%s\"", told, gd_error_message());
    gd_error_clear();
}

static gd_tensor *root_of_the_sum(void *user, int count, gd_tensor *const *in)
{
    (void)user;
    (void)count;
    return gd_sqrt(gd_sum(gd_square(in[0]), GD_AXES(0), false));
}

static void expect_refusals(gd_context *gd)
{
    const double given[3] = { 1, -2, 4 };
    double got[3];
    gd_scope_begin(gd);
    gd_tensor *x = gd_from_host(gd, GD_SHAPE(3), GD_F64, given);
    gd_tensor *y = gd_ones(gd, GD_SHAPE(3), GD_F32);
    expect_refused(gd_cast(x, GD_F32), "gd_cast");
    expect_refused(gd_cast(y, GD_F64), "gd_cast");
    expect_refused(gd_exp(x), "gd_exp");
    expect_refused(gd_normal(gd, GD_SHAPE(3), 0, 1, GD_F64), "gd_normal");
    gd_function *f = gd_compile(gd, root_of_the_sum, NULL);
    expect_refused(gd_call(f, 1, &x), "gd_square");
    float root;
    gd_tensor *of_y = gd_call(f, 1, &y);
    assert_non_null(of_y);
    assert_int_equal(gd_tensor_read(of_y, &root, sizeof root), GD_OK);
    assert_true(root > 1.732F && root < 1.7321F);
    gd_function_release(f);
    /* What is there stays, and is read. */
    assert_int_equal(gd_tensor_read(gd_flip(x, GD_AXES(0)), got, sizeof got), GD_OK);
    assert_true(got[0] == 4 && got[1] == -2 && got[2] == 1);
    gd_scope_end(gd);
}

static void a_refusal_of_f64_loses_nothing(void **state)
{
    (void)state;
    static const cl_bitfield bits[] = { ~(cl_bitfield)0, CL_FP_FMA };
    for (int i = 0; i < 2; i++) {
        gd_context *contexts[2];
        open_without_f64(contexts, bits[i], "refuse");
        expect_refusals(contexts[1]);
        const size_t before = gd_memory(contexts[1]).in_use;
        expect_refusals(contexts[1]);
        assert_int_equal(gd_memory(contexts[1]).in_use, before);
        close_without_f64(contexts);
    }
    assert_int_equal(setenv("GRADUS_F64", "perhaps", 1), 0);
    assert_null(gd_open("opencl:0", .threads = 1));
    assert_string_equal(gd_error_message(), "GRADUS_F64=perhaps: must be host or refuse");
    gd_error_clear();
    assert_int_equal(unsetenv("GRADUS_F64"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_that_fails_is_told),
        cmocka_unit_test(all_calls_that_fail_are_told),
        cmocka_unit_test(failures_of_one_kernel_are_told),
        cmocka_unit_test(out_of_memory_names_what_there_is_and_what_holds_most),
        cmocka_unit_test(kernels_that_cannot_be_made_are_told),
        cmocka_unit_test(a_device_without_the_arithmetic_is_refused),
        cmocka_unit_test(every_dtype_has_the_cpus_bits_without_f64),
        cmocka_unit_test(ops_of_f64_are_refused_by_name),
        cmocka_unit_test(a_refusal_of_f64_loses_nothing),
    };
    gd_context *cpu = gd_open("cpu", .threads = 1);
    const bool ran = cpu && device_program(cpu, &expected);
    gd_close(cpu);
    if (!ran || !load_failing()) {
        printf("failed: %s\n", ran ? "the library that fails cannot be used" : gd_error_message());
        return 1;
    }
    if (gd_backend_opencl.count() == 0) {
        printf("skipped: OpenCL finds no device\n");
        return NO_DEVICE;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
