/* tests/test_cuda.c: NVIDIA's devices, on the stand-in for the driver and for NVRTC in tests/fake_cuda:
 * the CPU's bits in every op and in training, what the driver is told, and that nothing is left.
 * Plans are graphs, but where a test says otherwise: test_one_kernel.c is of the others.
 * Skipped where the stand-in is not built. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/gradus.h>

#include "backend/gpu/gpu.h"
#include "fake_cuda/fake.h"
#include "graph/context.h"
#include "support/dlpack.h"
#include "support/device_program.h"
#include "support/device_rows.h"
#include "support/effort.h"
#include "support/tensors.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NO_DEVICE = 77 };
#define FOLDER GD_BINARY_DIR "/tests/fake_cuda"

static fake_cuda *fake;
static gd_context *cpu, *device;

/* Before CUDA is first asked for. */
static bool load_fake(void)
{
    fake_cuda *(*state)(void) = NULL;
    void *library = dlopen(FOLDER "/libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *found = library ? dlsym(library, "fake_cuda_state") : NULL;
    memcpy(&state, &found, sizeof found);
    if (!state || setenv("GRADUS_CUDA_PATH", FOLDER, 1) != 0)
        return false;
    fake = state();
    return true;
}

static void expect_nothing_left(void)
{
    assert_int_equal(fake->contexts, 0);
    assert_int_equal(fake->streams, 0);
    assert_int_equal(fake->events, 0);
    assert_int_equal(fake->modules, 0);
    assert_int_equal(fake->blocks, 0);
    assert_int_equal(fake->host_blocks, 0);
    assert_int_equal(fake->graphs, 0);
    assert_int_equal(fake->programs, 0);
}

static int open_contexts(void **state)
{
    (void)state;
    cpu = device_rows_open_cpu();
    device = gd_open("cuda", .threads = 2);
    if (!device)
        print_error("%s\n", gd_error_message());
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

static void every_op_gives_the_cpus_bits(void **state)
{
    (void)state;
    device_gives_the_cpus_bits((gd_context *const[2]){ cpu, device }, 1);
}

static void elementwise_ops_give_the_cpus_bits_of_any_bits(void **state)
{
    (void)state;
    device_gives_the_cpus_bits_of_any_bits((gd_context *const[2]){ cpu, device }, 1);
}

static void many_parts_and_long_lines_give_the_cpus_bits(void **state)
{
    (void)state;
    device_many_and_long_give_the_cpus_bits((gd_context *const[2]){ cpu, device });
}

static void casts_give_the_cpus_bits_of_any_bits(void **state)
{
    (void)state;
    device_casts_give_the_cpus_bits((gd_context *const[2]){ cpu, device }, 1);
}

/* ---- the device ---- */

static void a_device_is_described(void **state)
{
    (void)state;
    bool is_listed = false;
    for (int i = 0; i < gd_device_count(); i++)
        is_listed |= strcmp(gd_device_name(i), "cuda:1") == 0;
    assert_true(is_listed);
    assert_string_equal(gd_context_device(device), "cuda:0");
    assert_string_equal(device->device->isa, "Fake GPU 0, sm_90, 4 multiprocessors");
    static const char *const others[] = { "cuda:2", "cuda:16" };
    for (int i = 0; i < 2; i++) {
        assert_null(gd_open(others[i]));
        assert_int_equal(gd_error_code(), GD_ERR_INVALID);
        const char *told = gd_error_message();
        assert_non_null(strstr(told, "no device is called \"cuda:"));
        assert_non_null(strstr(told, "\"cuda:0\", \"cuda:1\""));
        gd_error_clear();
    }
}

static void closing_leaves_nothing(void **state)
{
    (void)state;
    gd_context *gd = gd_open("cuda:1");
    const float given[3] = { 1, -2, 3 };
    float got[3];
    assert_int_equal(
        gd_tensor_read(gd_neg(gd_from_host(gd, GD_SHAPE(3), GD_F32, given)), got, sizeof got),
        GD_OK);
    assert_true(got[0] == -1 && got[1] == 2 && got[2] == -3);
    assert_true(fake->contexts == 1 && fake->streams == 1 && fake->modules == 1);
    gd_close(gd);
    expect_nothing_left();
}

/* ---- a machine without, and with too little: each in a process of its own ---- */

/* What gd_open("cuda") says where `prepare` has made the machine, in a folder of links. */
static void expect_refusal(void (*prepare)(void), const char *folder, const char *words)
{
    int ends[2];
    char told[1024] = "";
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        setenv("GRADUS_CUDA_PATH", folder, 1);
        if (prepare)
            prepare();
        const gd_context *gd = gd_open("cuda");
        const char *said = gd ? "it opens" : gd_error_message();
        const ssize_t written = write(ends[1], said, strlen(said));
        _exit(written < 0 || gd_error_code() != GD_ERR_UNSUPPORTED);
    }
    int state = -1;
    close(ends[1]);
    assert_true(read(ends[0], told, sizeof told - 1) >= 0);
    close(ends[0]);
    assert_int_equal(waitpid(child, &state, 0), child);
    if (state != 0 || !strstr(told, words))
        fail_msg("expected \"%s\" in \"%s\"", words, told);
}

static void old_driver(void)
{
    fake->driver_version = 11080;
}

static void driver_of_12(void)
{
    fake->driver_version = 12040;
}

static void no_devices(void)
{
    fake->devices = 0;
}

static void stand_in(void)
{
    fake->fail_at = fake->calls;
    fake->fail_with = 34;
}

static void driver_that_fails(void)
{
    fake->fail_at = fake->calls;
    fake->fail_with = 999;
}

static void what_is_missing_is_told(void **state)
{
    (void)state;
    char folder[] = "/tmp/gradus-cuda-XXXXXX", link[64];
    assert_non_null(mkdtemp(folder));
    expect_refusal(NULL, folder, "libcuda.so.1 cannot be loaded: NVIDIA's driver is not installed");
    snprintf(link, sizeof link, "%s/libcuda.so.1", folder);
    assert_int_equal(symlink(FOLDER "/libcuda.so.1", link), 0);
    expect_refusal(NULL, folder, "NVRTC, cannot be loaded: no libnvrtc.so.13 or older was found");
    expect_refusal(old_driver, FOLDER, "too old: it is for CUDA 11.8, and CUDA 12.0 is needed");
    expect_refusal(driver_of_12, FOLDER, "no libnvrtc.so.12 was found");
    expect_refusal(no_devices, FOLDER, "NVIDIA's driver finds no device");
    expect_refusal(stand_in, FOLDER, "the toolkit's stand-in for linking");
    expect_refusal(driver_that_fails, FOLDER, "cannot begin: cuInit: error 999");
    unlink(link);
    rmdir(folder);
}

/* ---- devices of all kinds ---- */

static void architectures_are_made_do_with(void **state)
{
    (void)state;
    const int before = fake->architecture;
    const float one = 1;
    float got = 0;
    fake->architecture = 61;
    assert_null(gd_open("cuda:0"));
    assert_non_null(strstr(gd_error_message(), "cuda:0 is an sm_61, and the compiler of kernels, "
                                               "NVRTC 13."));
    assert_non_null(strstr(gd_error_message(), "makes programs for sm_75 and newer ones only"));
    gd_error_clear();
    fake->architecture = 121; /* NVRTC knows 120: the driver makes machine code of that */
    gd_context *gd = gd_open("cuda:0");
    assert_non_null(gd);
    assert_int_equal(
        gd_tensor_read(gd_neg(gd_from_host(gd, GD_SHAPE(1), GD_F32, &one)), &got, sizeof got),
        GD_OK);
    assert_true(got == -1);
    gd_close(gd);
    fake->architecture = before;
}

static void a_full_device_is_told(void **state)
{
    (void)state;
    const size_t before = fake->memory;
    fake->memory = (size_t)64 << 20;
    gd_context *gd = gd_open("cuda:0");
    gd_tensor *some = gd_zeros(gd, GD_SHAPE(1 << 20), GD_F32);
    assert_non_null(some);
    assert_null(gd_zeros(gd, GD_SHAPE(64 << 20), GD_F32));
    assert_int_equal(gd_error_code(), GD_ERR_MEMORY);
    const char *told = gd_error_message();
    char left[128];
    snprintf(left, sizeof left, "cuda:0 has %zu bytes left of 67108864",
             gd_device_memory(gd).available);
    if (!strstr(told, "cuda:0: cuMemAlloc of 268435456 bytes: CUDA_ERROR_OUT_OF_MEMORY") ||
        !strstr(told, left))
        fail_msg("%s", told);
    gd_error_clear();
    assert_true(gd_item(gd_sum(gd_add_scalar(some, 1), GD_ALL_AXES, false)) == 1 << 20);
    gd_close(gd);
    fake->memory = before;
    expect_nothing_left();
}

/* ---- compiled steps ---- */

enum { BATCH = 32, FEATURES = 7, STEPS = 12 };

typedef struct model {
    gd_module *module;
    gd_optimizer *optimizer;
} model;

static gd_tensor *step(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    model *m = user;
    gd_tensor *h = gd_tanh(gd_nn_linear(m->module, "first", in[0], 17));
    gd_tensor *error = gd_sub(gd_nn_linear(m->module, "second", h, 5), in[1]);
    return gd_minimize(m->optimizer, gd_mean(gd_square(error), GD_ALL_AXES, false));
}

/* Losses of steps, each on the next of `slots` batches, and what the last steps had the driver do. */
static void train(gd_context *gd, int slots, float losses[STEPS], fake_cuda *did)
{
    float x[BATCH * FEATURES], y[BATCH * 5];
    numbers n = { 3 };
    gd_tensor *in[3][2];
    gd_scope_begin(gd);
    gd_seed(gd, 5);
    for (int s = 0; s < 3; s++) {
        for (int i = 0; i < BATCH * FEATURES; i++)
            x[i] = (float)numbers_uniform(&n, -2, 2);
        for (int i = 0; i < BATCH * 5; i++)
            y[i] = x[i] * x[i + 1];
        in[s][0] = gd_from_host(gd, GD_SHAPE(BATCH, FEATURES), GD_F32, x);
        in[s][1] = gd_from_host(gd, GD_SHAPE(BATCH, 5), GD_F32, y);
    }
    model m = { .module = gd_module_create(gd) };
    m.optimizer = gd_adam(m.module, .lr = 0.01);
    gd_function *f = gd_compile(gd, step, &m);
    fake_cuda before = *fake;
    for (int i = 0; i < STEPS; i++) {
        if (i == STEPS - 3)
            before = *fake;
        gd_tensor *loss = gd_call(f, 2, in[i % slots]);
        if (i < STEPS - 3)
            losses[i] = (float)gd_item(loss);
    }
    *did = (fake_cuda){ .launches = fake->launches - before.launches,
                        .graph_launches = fake->graph_launches - before.graph_launches,
                        .uploads = fake->uploads - before.uploads,
                        .downloads = fake->downloads - before.downloads,
                        .copies = fake->copies - before.copies,
                        .waits = fake->waits - before.waits,
                        .blocks = fake->blocks - before.blocks };
    for (int i = STEPS - 3; i < STEPS; i++)
        losses[i] = (float)gd_item(gd_call(f, 2, in[i % slots]));
    gd_function_release(f);
    gd_optimizer_release(m.optimizer);
    gd_module_release(m.module);
    gd_scope_end(gd);
}

static void a_step_is_one_launch(void **state)
{
    (void)state;
    float expected_losses[STEPS], losses[STEPS];
    fake_cuda did;
    for (int slots = 1; slots <= 3; slots++) {
        gd_context *host = gd_open("cpu"), *gd = gd_open("cuda");
        train(host, slots, expected_losses, &did);
        train(gd, slots, losses, &did);
        assert_memory_equal(losses, expected_losses, sizeof losses);
        const gd_gpu *gpu = (const gd_gpu *)gd->device;
        assert_int_equal(gpu->recorded, slots);
        assert_int_equal(did.graph_launches, 3);
        assert_int_equal(did.launches, 0);
        assert_true(did.uploads <= 6);
        assert_int_equal(did.downloads + did.copies + did.waits + did.blocks, 0);
        gd_close(host);
        gd_close(gd);
        expect_nothing_left();
    }
}

/* ---- a program ---- */

/* A compiled function, all of whose calls but the first are graphs, as are those of the program. */
static gd_tensor *curve(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_sum(gd_exp(gd_neg(gd_square(in[0]))), GD_ALL_AXES, false);
}

typedef struct outcome {
    device_outcome program;
    float sums[4];
} outcome;

static bool run(gd_context *gd, outcome *out)
{
    float x[300];
    for (int i = 0; i < 300; i++)
        x[i] = (float)i / 100 - 1;
    memset(out, 0, sizeof *out);
    if (!device_program(gd, &out->program) || gd_scope_begin(gd) != GD_OK)
        return false;
    gd_tensor *in = gd_from_host(gd, GD_SHAPE(300), GD_F32, x);
    gd_function *f = gd_compile(gd, curve, NULL);
    bool ok = in && f;
    for (int i = 0; i < 4 && ok; i++) {
        gd_tensor *sum = gd_call(f, 1, &in);
        ok = sum && gd_tensor_read(sum, &out->sums[i], sizeof(float)) == GD_OK;
    }
    gd_function_release(f);
    return gd_scope_end(gd) == GD_OK && ok;
}

static outcome expected;

static void programs_give_the_same_bits_whenever_work_is_done(void **state)
{
    (void)state;
    gd_context *gd = gd_open("cpu");
    assert_true(run(gd, &expected));
    gd_close(gd);
    for (uint64_t seed = 1; seed <= 20; seed++) {
        outcome out;
        fake->seed = seed * 1000003;
        gd = gd_open("cuda");
        assert_non_null(gd);
        assert_true(run(gd, &out));
        assert_memory_equal(&out, &expected, sizeof out);
        assert_int_equal(((const gd_gpu *)gd->device)->replayed, DEVICE_STEPS - 1 + 3);
        gd_close(gd);
        expect_nothing_left();
    }
}

/* The program with a call failing, in a context of its own. Whether it got through. */
static bool run_failing(int64_t call, int error)
{
    outcome out;
    gd_error_clear();
    fake->seed = 77; /* the same moments: the same calls */
    fake->calls = 0;
    fake->fail_at = call;
    fake->fail_with = error;
    gd_context *gd = gd_open("cuda:0", .threads = 1);
    const bool ok = gd && run(gd, &out);
    const bool is_lost = fake->lost;
    if (!ok && (gd_error_code() == GD_OK || !strstr(gd_error_message(), "cuda")))
        fail_msg("call %lld failing: \"%s\"", (long long)call, gd_error_message());
    if (!ok && is_lost && !strstr(gd_error_message(), "the device is lost to this process"))
        fail_msg("call %lld failing: \"%s\"", (long long)call, gd_error_message());
    if (ok)
        assert_memory_equal(&out, &expected, sizeof out);
    fake->fail_at = -1;
    if (gd && !is_lost) { /* it works again */
        gd_error_clear();
        if (!run(gd, &out))
            fail_msg("after call %lld failed: %s", (long long)call, gd_error_message());
        assert_memory_equal(&out, &expected, sizeof out);
    }
    gd_close(gd);
    fake->lost = 0;
    expect_nothing_left();
    return ok;
}

static void fail_each(int error, int64_t step)
{
    outcome out;
    int64_t tried = 0, refused = 0;
    fake->seed = 77;
    fake->calls = 0;
    gd_context *gd = gd_open("cuda:0", .threads = 1);
    assert_true(gd && run(gd, &out));
    gd_close(gd);
    const int64_t calls = fake->calls;
    const int64_t last = calls - 20; /* of these each, as of the first 20 */
    for (int64_t i = 0; i < calls; tried++) {
        refused += !run_failing(i, error);
        if (i < 20 || i >= last)
            i++;
        else
            i = i + step < last ? i + step : last;
    }
    assert_true(tried > 40 && refused > tried / 3);
}

static void a_call_that_fails_is_told(void **state)
{
    (void)state;
    const int64_t step = test_call_step(17);
    fail_each(2 /* CUDA_ERROR_OUT_OF_MEMORY */, step);
    fail_each(1 /* CUDA_ERROR_INVALID_VALUE */, step + 2);
}

static void a_device_that_is_lost_is_told(void **state)
{
    (void)state;
    fail_each(700 /* CUDA_ERROR_ILLEGAL_ADDRESS */, test_call_step(13));
}

/* The same with plans as one kernel, whose program and tables may not come about. */
static void failures_of_one_kernel_are_told(void **state)
{
    (void)state;
    const int64_t step = test_call_step(15);
    assert_int_equal(setenv("GRADUS_ONE_KERNEL", "always", 1), 0);
    fail_each(2, step);
    fail_each(700, step + 3);
    assert_int_equal(setenv("GRADUS_ONE_KERNEL", "never", 1), 0);
}

static bool negate(gd_context *gd)
{
    const float given[3] = { 1, -2, 3 };
    float got[3] = { 0 };
    gd_tensor *y = gd_neg(gd_from_host(gd, GD_SHAPE(3), GD_F32, given));
    const bool ok = y && gd_tensor_read(y, got, sizeof got) == GD_OK;
    return ok && got[0] == -1 && got[1] == 2 && got[2] == -3;
}

/* The first op of a context that must compile, each call failing. */
static void kernels_that_cannot_be_made_are_told(void **state)
{
    (void)state;
    char *kept = getenv("GRADUS_CACHE") ? strdup(getenv("GRADUS_CACHE")) : NULL;
    assert_int_equal(setenv("GRADUS_CACHE", "", 1), 0);
    int told_by_compiler = 0;
    bool was_reached = true;
    for (int64_t n = 0; was_reached; n++) {
        fake->seed = 77; /* the same moments: the same calls */
        gd_context *gd = gd_open("cuda:0", .threads = 1);
        assert_non_null(gd);
        fake->calls = 0;
        fake->fail_at = n;
        fake->fail_with = 2;
        const bool ok = negate(gd);
        was_reached = fake->calls > n;
        fake->fail_at = -1;
        if (!ok && (gd_error_code() == GD_OK || !strstr(gd_error_message(), "cuda")))
            fail_msg("call %lld failing: \"%s\"", (long long)n, gd_error_message());
        told_by_compiler += strstr(gd_error_message(), "NVRTC_ERROR_OUT_OF_MEMORY") != NULL;
        gd_error_clear();
        assert_true(ok || n % 5 || negate(gd)); /* the next one compiles */
        gd_close(gd);
        expect_nothing_left();
    }
    assert_true(told_by_compiler >= 4);
    assert_int_equal(kept ? setenv("GRADUS_CACHE", kept, 1) : unsetenv("GRADUS_CACHE"), 0);
    free(kept);
}

static gd_tensor *pick(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_gather(in[0], in[1], 0);
}

static void an_index_out_of_range_is_told_when_a_plan_is_replayed(void **state)
{
    (void)state;
    gd_context *gd = gd_open("cuda:0", .threads = 1);
    const int64_t good[2] = { 2, 0 }, bad[2] = { 2, 7 };
    gd_tensor *in[2] = { gd_ones(gd, GD_SHAPE(5), GD_F32),
                         gd_from_host(gd, GD_SHAPE(2), GD_I64, good) };
    gd_function *f = gd_compile(gd, pick, NULL);
    const gd_gpu *g = (const gd_gpu *)gd->device;
    for (int i = 0; i < 6; i++) {
        gd_scope_begin(gd);
        assert_non_null(gd_call(f, 2, in));
        assert_int_equal(gd_synchronize(gd), GD_OK);
        gd_scope_end(gd);
    }
    const uint64_t replayed = g->replayed;
    assert_true(replayed > 0);
    assert_int_equal(gd_tensor_write(in[1], bad, sizeof bad), GD_OK);
    assert_non_null(gd_call(f, 2, in));
    assert_int_equal(g->replayed, replayed + 1);
    assert_int_equal(gd_synchronize(gd), GD_ERR_INVALID);
    assert_non_null(strstr(gd_error_message(), "gather: index 7 (element 1 of the index tensor) is "
                                               "out of range for axis 0 of size 5"));
    gd_error_clear();
    assert_int_equal(gd_synchronize(gd), GD_OK);
    gd_function_release(f);
    gd_close(gd);
    expect_nothing_left();
}

static void memory_is_shared_by_dlpack(void **state)
{
    (void)state;
    check_dlpack_of_device("cuda", 2, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_missing_is_told), /* before this process asks for CUDA */
        cmocka_unit_test(closing_leaves_nothing),
        cmocka_unit_test(architectures_are_made_do_with),
        cmocka_unit_test(a_full_device_is_told),
        cmocka_unit_test_setup_teardown(every_op_gives_the_cpus_bits, open_contexts,
                                        close_contexts),
        cmocka_unit_test_setup_teardown(elementwise_ops_give_the_cpus_bits_of_any_bits,
                                        open_contexts, close_contexts),
        cmocka_unit_test_setup_teardown(many_parts_and_long_lines_give_the_cpus_bits, open_contexts,
                                        close_contexts),
        cmocka_unit_test_setup_teardown(casts_give_the_cpus_bits_of_any_bits, open_contexts,
                                        close_contexts),
        cmocka_unit_test_setup_teardown(a_device_is_described, open_contexts, close_contexts),
        cmocka_unit_test(memory_is_shared_by_dlpack),
        cmocka_unit_test(a_step_is_one_launch),
        cmocka_unit_test(an_index_out_of_range_is_told_when_a_plan_is_replayed),
        cmocka_unit_test(programs_give_the_same_bits_whenever_work_is_done),
        cmocka_unit_test(a_call_that_fails_is_told),
        cmocka_unit_test(a_device_that_is_lost_is_told),
        cmocka_unit_test(failures_of_one_kernel_are_told),
        cmocka_unit_test(kernels_that_cannot_be_made_are_told),
    };
    if (!load_fake() || setenv("GRADUS_ONE_KERNEL", "never", 1) != 0) {
        printf("skipped: the stand-in for CUDA is not built\n");
        return NO_DEVICE;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
