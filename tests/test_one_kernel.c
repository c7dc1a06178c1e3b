/* tests/test_one_kernel.c: small plans as one kernel, on OpenCL and on the stand-in for NVIDIA's driver: the
 * bits of the CPU and of kernels one after another, one launch a step, and when there is none.
 * GRADUS_ONE_KERNEL makes the choice. Skipped where there is neither device. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/gradus.h>

#include "backend/gpu/gpu.h"
#include "fake_cuda/fake.h"
#include "graph/context.h"
#include "support/tensors.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NO_DEVICE = 77, MOST_DEVICES = 2 };

static const char *devices[MOST_DEVICES];
static int device_count;
static fake_cuda *fake; /* NULL: it is not built */

static void load_fake(void)
{
    fake_cuda *(*state)(void) = NULL;
    void *library = dlopen(GD_BINARY_DIR "/tests/fake_cuda/libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *found = library ? dlsym(library, "fake_cuda_state") : NULL;
    memcpy(&state, &found, sizeof found);
    if (state && setenv("GRADUS_CUDA_PATH", GD_BINARY_DIR "/tests/fake_cuda", 1) == 0)
        fake = state();
}

/* A device whose plans are one kernel, "always" or "never". */
static gd_context *open_device(const char *name, const char *when)
{
    assert_int_equal(setenv("GRADUS_ONE_KERNEL", when, 1), 0);
    gd_context *gd = gd_open(name, .threads = 2);
    assert_int_equal(unsetenv("GRADUS_ONE_KERNEL"), 0);
    assert_non_null(gd);
    return gd;
}

static const gd_gpu *gpu_of(const gd_context *gd)
{
    return (const gd_gpu *)gd->device;
}

/* ---- training ---- */

enum { STEPS = 7, MOST_SLOTS = 10 };

typedef struct model {
    const char *name;
    int batch, features, hidden, classes; /* hidden: 0: a neuron, and its squared error */
    bool is_adam, drops;
    int slots;      /* batches in turn */
    bool on_opencl; /* there a program takes long to compile: few are tested */
    gd_module *module;
    gd_optimizer *optimizer;
} model;

static gd_tensor *step(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    const model *m = user;
    gd_tensor *h = in[0];
    if (m->hidden == 0) {
        h = gd_sub(gd_tanh(gd_nn_linear(m->module, "neuron", h, 1)), in[1]);
        return gd_minimize(m->optimizer, gd_mean(gd_square(h), GD_ALL_AXES, false));
    }
    h = gd_relu(gd_nn_linear(m->module, "fc1", h, m->hidden));
    if (m->drops)
        h = gd_dropout(h, 0.25);
    h = gd_nn_linear(m->module, "fc2", h, m->classes);
    return gd_minimize(m->optimizer, gd_cross_entropy(h, in[1]));
}

static void make_batch(gd_context *gd, const model *m, numbers *n, gd_tensor **in)
{
    float *x = malloc(sizeof *x * (size_t)(m->batch * m->features)), y[64];
    int64_t labels[64];
    for (int i = 0; i < m->batch * m->features; i++)
        x[i] = (float)numbers_uniform(n, -1, 1);
    for (int i = 0; i < m->batch; i++) {
        y[i] = x[i * m->features] > 0 ? 1.0f : -1.0f;
        labels[i] = m->classes ? (int64_t)(numbers_uniform(n, 0, 1) * m->classes) : 0;
    }
    in[0] = gd_from_host(gd, GD_SHAPE(m->batch, m->features), GD_F32, x);
    in[1] = m->hidden ? gd_from_host(gd, GD_SHAPE(m->batch), GD_I64, labels)
                      : gd_from_host(gd, GD_SHAPE(m->batch, 1), GD_F32, y);
    free(x);
}

/* Losses of steps with a falling learning rate, then a parameter; and what of it were launches. */
typedef struct outcome {
    float losses[STEPS], weight[16];
} outcome;

typedef struct told {
    uint64_t launched, one_kernels;
    int64_t fake_launches, graph_launches, uploads, waits;
} told;

static told told_so_far(const gd_context *gd)
{
    const gd_gpu *g = gpu_of(gd);
    const bool is_fake = strncmp(gd_context_device(gd), "cuda", 4) == 0;
    return (told){ .launched = g->launched,
                   .one_kernels = g->one_kernels,
                   .fake_launches = is_fake ? fake->launches : 0,
                   .graph_launches = is_fake ? fake->graph_launches : 0,
                   .uploads = is_fake ? fake->uploads : 0,
                   .waits = is_fake ? fake->waits : 0 };
}

/* was: NULL, or where `gd` was before and after the last `STEPS` steps. */
static void train(gd_context *gd, model m, outcome *out, told was[2])
{
    gd_tensor *in[MOST_SLOTS][2], *losses[STEPS];
    numbers n = { 11 };
    memset(out, 0, sizeof *out);
    gd_scope_begin(gd);
    gd_seed(gd, 3);
    for (int s = 0; s < m.slots; s++)
        make_batch(gd, &m, &n, in[s]);
    m.module = gd_module_create(gd);
    m.optimizer =
        m.is_adam ? gd_adam(m.module, .lr = 0.01) : gd_sgd(m.module, .lr = 0.1, .momentum = 0.5);
    gd_function *f = gd_compile(gd, step, &m);
    assert_non_null(f);
    for (int s = 0; s < 2 * m.slots; s++)
        assert_non_null(gd_call(f, 2, in[s % m.slots]));
    assert_int_equal(gd_synchronize(gd), GD_OK);
    if (was)
        was[0] = told_so_far(gd);
    for (int i = 0; i < STEPS; i++) {
        assert_int_equal(gd_optimizer_set_lr(m.optimizer, 0.01 / (1 + i)), GD_OK);
        losses[i] = gd_call(f, 2, in[i % m.slots]);
        assert_non_null(losses[i]);
    }
    if (was)
        was[1] = told_so_far(gd);
    for (int i = 0; i < STEPS; i++)
        out->losses[i] = (float)gd_item(losses[i]);
    gd_tensor *weight = gd_module_parameter(m.module, m.hidden ? "fc1.weight" : "neuron.weight");
    assert_non_null(weight);
    const int64_t most = m.features * (m.hidden ? m.hidden : 1);
    const int64_t count = most < 16 ? most : 16;
    weight = gd_contiguous(gd_slice(gd_reshape(weight, GD_SHAPE(most)), 0, 0, count, 1));
    assert_int_equal(gd_tensor_read(weight, out->weight, sizeof(float) * (size_t)count), GD_OK);
    gd_function_release(f);
    gd_optimizer_release(m.optimizer);
    gd_module_release(m.module);
    gd_scope_end(gd);
}

static const model models[] = {
    { "neuron, SGD", 4, 2, 0, 0, false, false, 1, .on_opencl = true },
    { "neuron, Adam", 4, 2, 0, 0, true, false, 3, .on_opencl = true },
    { "MNIST, SGD", 50, 784, 16, 10, false, false, 2, .on_opencl = false },
    { "MNIST, Adam", 50, 784, 16, 10, true, false, 1, .on_opencl = false },
    { "many classes, dropout, Adam", 9, 20, 70, 90, true, true, 10, .on_opencl = true },
};

static bool runs(const model *m, const char *name)
{
    return m->on_opencl || strcmp(name, "opencl") != 0;
}

static void a_step_is_one_launch_with_the_cpus_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        outcome expected, out;
        gd_context *cpu = gd_open("cpu", .threads = 2);
        train(cpu, models[i], &expected, NULL);
        gd_close(cpu);
        for (int d = 0; d < device_count; d++) {
            if (!runs(&models[i], devices[d]))
                continue;
            told was[2];
            gd_context *gd = open_device(devices[d], "never");
            train(gd, models[i], &out, was);
            assert_memory_equal(&out, &expected, sizeof out);
            assert_int_equal(was[1].one_kernels, 0);
            gd_close(gd);
            gd = open_device(devices[d], "always");
            train(gd, models[i], &out, was);
            if (memcmp(&out, &expected, sizeof out) != 0)
                fail_msg("%s on %s", models[i].name, devices[d]);
            assert_int_equal(was[1].launched - was[0].launched, STEPS);
            assert_int_equal(was[1].one_kernels - was[0].one_kernels, STEPS);
            if (strncmp(devices[d], "cuda", 4) == 0) {
                assert_int_equal(was[1].fake_launches - was[0].fake_launches, STEPS);
                assert_int_equal(was[1].graph_launches, was[0].graph_launches);
                assert_int_equal(was[1].waits, was[0].waits);
                /* the learning rate, the random position; of more batches than tables a table */
                assert_true(was[1].uploads - was[0].uploads <= 3 * STEPS);
            }
            gd_close(gd);
        }
    }
}

/* Work at other moments, threads in other orders. */
static void every_order_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    outcome expected, out;
    if (!fake)
        return;
    const model *m = &models[4];
    gd_context *cpu = gd_open("cpu");
    train(cpu, *m, &expected, NULL);
    gd_close(cpu);
    for (uint64_t seed = 1; seed <= 5; seed++) {
        fake->seed = seed * 7919;
        gd_context *gd = open_device("cuda", "always");
        train(gd, *m, &out, NULL);
        assert_memory_equal(&out, &expected, sizeof out);
        gd_close(gd);
    }
}

/* How many of some orders give the CPU's bits, with barriers as the stand-in then has them. */
static int orders_with_the_cpus_bits(const model *m, int orders)
{
    outcome expected, out;
    int count = 0;
    gd_context *cpu = gd_open("cpu");
    train(cpu, *m, &expected, NULL);
    gd_close(cpu);
    for (int i = 0; i < orders; i++) {
        fake->seed = (uint64_t)(i + 1) * 104729;
        gd_context *gd = open_device("cuda", "always");
        train(gd, *m, &out, NULL);
        count += memcmp(&out, &expected, sizeof out) == 0;
        gd_close(gd);
    }
    return count;
}

/* Work-groups of one kernel share a step's groups, and must wait for one another. */
static void a_missing_barrier_is_found(void **state)
{
    (void)state;
    enum { ORDERS = 4 };
    if (!fake)
        return;
    const model *neuron = &models[1], *mnist = &models[3];
    assert_int_equal(orders_with_the_cpus_bits(mnist, ORDERS), ORDERS);
    fake->forgets_clusters = true;
    assert_true(orders_with_the_cpus_bits(mnist, ORDERS) < ORDERS);
    fake->forgets_clusters = false;
    assert_int_equal(orders_with_the_cpus_bits(neuron, ORDERS), ORDERS);
    fake->forgets_barriers = true;
    assert_true(orders_with_the_cpus_bits(neuron, ORDERS) < ORDERS);
    fake->forgets_barriers = false;
}

/* Before sm_90 there are no clusters: one work-group does all. */
static void older_devices_have_one_work_group(void **state)
{
    (void)state;
    if (!fake)
        return;
    const int own = fake->architecture;
    fake->architecture = 80;
    gd_context *gd = open_device("cuda", "always");
    assert_int_equal(gpu_of(gd)->plan_blocks, 1);
    gd_close(gd);
    assert_int_equal(orders_with_the_cpus_bits(&models[3], 1), 1);
    fake->architecture = own;
    gd = open_device("cuda", "always");
    assert_int_equal(gpu_of(gd)->plan_blocks, 8);
    gd_close(gd);
}

/* ---- which plans are one kernel ---- */

static gd_tensor *chain(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    gd_tensor *y = gd_sum(gd_exp(in[0]), GD_AXES(1), false);
    if (user)
        y = gd_lgamma(y);
    y = gd_softmax(gd_reshape(y, GD_SHAPE(2, 3)), 1);
    return gd_concat(3, (gd_tensor *[]){ y, y, y }, 1);
}

/* What the plan of `chain` says of itself after a call. */
static void expect_plan(const char *name, const char *when, bool with_host, const char *words)
{
    static char text[1 << 14];
    static bool yes = true;
    float x[6 * 40];
    gd_context *gd = open_device(name, when);
    for (int i = 0; i < 6 * 40; i++)
        x[i] = (float)(i % 13) / 8;
    gd_tensor *in = gd_from_host(gd, GD_SHAPE(6, 40), GD_F32, x);
    gd_function *f = gd_compile(gd, chain, with_host ? &yes : NULL);
    assert_non_null(gd_call(f, 1, &in));
    assert_true(gd_plan_format(f, text, sizeof text) < sizeof text);
    if (!strstr(text, words))
        fail_msg("expected \"%s\" in\n%s", words, text);
    assert_int_equal(gpu_of(gd)->one_kernels, strstr(words, "as one kernel") ? 1 : 0);
    gd_function_release(f);
    gd_close(gd);
}

static void plans_say_what_they_are(void **state)
{
    (void)state;
    for (int d = 0; d < device_count; d++) {
        char words[128];
        snprintf(words, sizeof words, "\n%s:0 runs them as one kernel of 4 steps\n", devices[d]);
        expect_plan(devices[d], "always", false, words);
        if (strcmp(devices[d], "cuda") == 0)
            expect_plan(devices[d], "", false, words);
        else
            expect_plan(devices[d], "", false, ": to compile one takes longer than it saves");
        expect_plan(devices[d], "never", false, ": GRADUS_ONE_KERNEL=never\n");
        expect_plan(devices[d], "always", true, ": lgamma runs on the host\n");
    }
    assert_int_equal(setenv("GRADUS_ONE_KERNEL", "perhaps", 1), 0);
    assert_null(gd_open(devices[0]));
    assert_int_equal(gd_error_code(), GD_ERR_INVALID);
    assert_string_equal(gd_error_message(), "GRADUS_ONE_KERNEL=perhaps: must be always or never");
    assert_int_equal(unsetenv("GRADUS_ONE_KERNEL"), 0);
    gd_error_clear();
}

static gd_tensor *multiply(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_relu_grad(gd_tanh(gd_matmul(in[0], in[0])), in[0]);
}

/* By itself: what few multiprocessors would do for longer than launches take is none. */
static void large_plans_are_kernels(void **state)
{
    (void)state;
    static char text[1 << 14];
    if (!fake)
        return;
    gd_context *gd = open_device("cuda", "");
    gd_tensor *in = gd_ones(gd, GD_SHAPE(400, 400), GD_F32);
    gd_function *f = gd_compile(gd, multiply, NULL);
    assert_non_null(gd_call(f, 1, &in));
    assert_true(gd_plan_format(f, text, sizeof text) < sizeof text);
    assert_non_null(strstr(text, "as one kernel they would take "));
    assert_int_equal(gpu_of(gd)->one_kernels, 0);
    gd_function_release(f);
    gd_close(gd);
}

/* ---- what only values show ---- */

static gd_tensor *pick(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_neg(gd_gather(gd_exp(in[0]), in[1], 0));
}

static void an_index_out_of_range_is_told(void **state)
{
    (void)state;
    const int64_t good[2] = { 2, 0 }, bad[2] = { 2, 7 };
    for (int d = 0; d < device_count; d++) {
        gd_context *gd = open_device(devices[d], "always");
        gd_tensor *in[2] = { gd_ones(gd, GD_SHAPE(5), GD_F32),
                             gd_from_host(gd, GD_SHAPE(2), GD_I64, good) };
        gd_function *f = gd_compile(gd, pick, NULL);
        assert_non_null(gd_call(f, 2, in));
        assert_int_equal(gd_synchronize(gd), GD_OK);
        assert_int_equal(gpu_of(gd)->one_kernels, 1);
        assert_int_equal(gd_tensor_write(in[1], bad, sizeof bad), GD_OK);
        assert_non_null(gd_call(f, 2, in));
        assert_int_equal(gd_synchronize(gd), GD_ERR_INVALID);
        assert_non_null(strstr(gd_error_message(), "gather: index 7 (element 1 of the index "
                                                   "tensor) is out of range for axis 0 of size "
                                                   "5"));
        gd_error_clear();
        assert_int_equal(gd_synchronize(gd), GD_OK);
        gd_function_release(f);
        gd_close(gd);
    }
}

/* ---- the cache on disk ---- */

static void the_program_is_kept(void **state)
{
    (void)state;
    char folder[] = "/tmp/gradus-one-kernel-XXXXXX", command[64];
    char *kept = getenv("GRADUS_CACHE") ? strdup(getenv("GRADUS_CACHE")) : NULL;
    assert_non_null(mkdtemp(folder));
    assert_int_equal(setenv("GRADUS_CACHE", folder, 1), 0);
    for (int d = 0; d < device_count; d++) {
        uint64_t compiled = 0;
        for (int i = 0; i < 2; i++) {
            gd_context *gd = open_device(devices[d], "always");
            gd_tensor *in[2] = { gd_ones(gd, GD_SHAPE(6, 40), GD_F32) };
            gd_function *f = gd_compile(gd, chain, NULL);
            assert_non_null(gd_call(f, 1, in));
            assert_int_equal(gpu_of(gd)->one_kernels, 1);
            if (i == 0)
                compiled = gpu_of(gd)->compiled;
            assert_int_equal(gpu_of(gd)->compiled, i == 0 ? compiled : 0);
            assert_int_equal(gpu_of(gd)->loaded, i == 0 ? 0 : compiled);
            gd_function_release(f);
            gd_close(gd);
        }
        assert_true(compiled >= 5); /* four steps, and what they are together */
    }
    assert_int_equal(kept ? setenv("GRADUS_CACHE", kept, 1) : unsetenv("GRADUS_CACHE"), 0);
    free(kept);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

/* ---- operands in more blocks of memory than a kernel is given, or in other places than before ---- */

enum { MOST_CALLS = 6, ELEMENTS = 5 };

/* Runs the calls; how many kernels they were. */
static uint64_t run_negations(gd_context *gd, const gd_kernel_call *const *calls, int count,
                              gd_replay **replay)
{
    const uint64_t before = gpu_of(gd)->launched;
    assert_int_equal(gd->device->backend->run_calls(gd->device, calls, (size_t)count, replay),
                     GD_OK);
    return gpu_of(gd)->launched - before;
}

/* Calls of neg, each operand in a block of its own; whether they were one kernel. Then the second has the
 * first's result for its operand, and is no step that could run at the same time. */
static bool negate_in_blocks(gd_context *gd, int count)
{
    gd_device *device = gd->device;
    const gd_backend *backend = device->backend;
    gd_layout layout;
    gd_operand in[MOST_CALLS];
    gd_kernel_call calls[MOST_CALLS];
    const gd_kernel_call *told_calls[MOST_CALLS];
    void *prepared[MOST_CALLS];
    float x[ELEMENTS], got[ELEMENTS];
    gd_replay *replay = NULL;
    const uint64_t before = gpu_of(gd)->one_kernels;
    assert_int_equal(gd_layout_init(&layout, GD_SHAPE(ELEMENTS), GD_F32, "test"), GD_OK);
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < ELEMENTS; k++)
            x[k] = (float)(i * ELEMENTS + k);
        in[i] = (gd_operand){ backend->memory_alloc(device, 4096), &layout };
        calls[i] = (gd_kernel_call){ .device = device,
                                     .op = gd_op_row(GD_OP_neg),
                                     .n = 1,
                                     .in = &in[i],
                                     .out = { backend->memory_alloc(device, 4096), &layout } };
        assert_int_equal(backend->memory_write(device, in[i].data, x, sizeof x), GD_OK);
        prepared[i] = malloc(backend->prepare_bytes(&calls[i]));
        assert_int_equal(backend->prepare(&calls[i], prepared[i]), GD_OK);
        calls[i].prepared = prepared[i];
        told_calls[i] = &calls[i];
    }
    (void)run_negations(gd, told_calls, count, &replay);
    for (int i = 0; i < count; i++) {
        assert_int_equal(backend->memory_read(device, got, calls[i].out.data, sizeof got), GD_OK);
        for (int k = 0; k < ELEMENTS; k++)
            assert_true(got[k] == -(float)(i * ELEMENTS + k));
    }
    const bool was_one = gpu_of(gd)->one_kernels > before;
    if (count > 1) {
        void *own = in[1].data;
        in[1].data = calls[0].out.data;
        assert_int_equal(run_negations(gd, told_calls, count, &replay), count);
        assert_int_equal(backend->memory_read(device, got, calls[1].out.data, sizeof got), GD_OK);
        for (int k = 0; k < ELEMENTS; k++)
            assert_true(got[k] == (float)k);
        in[1].data = own;
        assert_int_equal(run_negations(gd, told_calls, count, &replay), was_one ? 1 : count);
    }
    backend->replay_free(device, replay);
    for (int i = 0; i < count; i++) {
        backend->memory_free(device, in[i].data, 4096);
        backend->memory_free(device, calls[i].out.data, 4096);
        free(prepared[i]);
    }
    return was_one;
}

static void operands_in_many_blocks_are_no_one_kernels(void **state)
{
    (void)state;
    for (int d = 0; d < device_count; d++) {
        gd_context *gd = open_device(devices[d], "always");
        assert_false(negate_in_blocks(gd, 1));
        assert_true(negate_in_blocks(gd, 2));
        assert_true(negate_in_blocks(gd, 4));
        /* CUDA's kernels are given addresses */
        assert_int_equal(negate_in_blocks(gd, 6), strcmp(devices[d], "cuda") == 0);
        gd_close(gd);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_is_one_launch_with_the_cpus_bits),
        cmocka_unit_test(every_order_of_threads_gives_the_same_bits),
        cmocka_unit_test(a_missing_barrier_is_found),
        cmocka_unit_test(older_devices_have_one_work_group),
        cmocka_unit_test(plans_say_what_they_are),
        cmocka_unit_test(large_plans_are_kernels),
        cmocka_unit_test(an_index_out_of_range_is_told),
        cmocka_unit_test(the_program_is_kept),
        cmocka_unit_test(operands_in_many_blocks_are_no_one_kernels),
    };
    load_fake();
    if (fake)
        devices[device_count++] = "cuda";
    if (gd_backend_opencl.count() > 0)
        devices[device_count++] = "opencl";
    if (device_count == 0) {
        printf("skipped: neither OpenCL nor the stand-in for CUDA is there\n");
        return NO_DEVICE;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
