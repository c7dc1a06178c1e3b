/* tests/test_cudnn.c: convolutions by cuDNN, on the stand-in for it (tests/fake_cuda/cudnn.h): right numbers, the same
 * bits eagerly, compiled and replayed, only engines that may be taken, what is missing is told, and
 * nothing is left. Skipped where the stand-in is not built. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/gradus.h>

#include "backend/cuda/cuda.h"
#include "fake_cuda/cudnn.h"
#include "fake_cuda/fake.h"
#include "graph/context.h"
#include "support/effort.h"
#include "support/tensors.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NO_DEVICE = 77 };
#define FOLDER GD_BINARY_DIR "/tests/fake_cuda"

static fake_cuda *fake;
static fake_cudnn *dnn;

static void *find(const char *library, const char *name)
{
    void *opened = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    return opened ? dlsym(opened, name) : NULL;
}

static bool load_fakes(void)
{
    fake_cuda *(*cuda)(void) = NULL;
    fake_cudnn *(*cudnn)(void) = NULL;
    void *found = find(FOLDER "/libcuda.so.1", "fake_cuda_state");
    memcpy(&cuda, &found, sizeof found);
    found = find(FOLDER "/libcudnn.so.9", "fake_cudnn_state");
    memcpy(&cudnn, &found, sizeof found);
    if (!cuda || !cudnn || setenv("GRADUS_CUDA_PATH", FOLDER, 1) != 0)
        return false;
    fake = cuda();
    dnn = cudnn();
    return true;
}

static void expect_nothing_left(void)
{
    assert_int_equal(fake->handles, 0);
    assert_int_equal(fake->descriptors, 0);
    assert_int_equal(fake->contexts, 0);
    assert_int_equal(fake->streams, 0);
    assert_int_equal(fake->events, 0);
    assert_int_equal(fake->modules, 0);
    assert_int_equal(fake->blocks, 0);
    assert_int_equal(fake->host_blocks, 0);
    assert_int_equal(fake->graphs, 0);
    assert_int_equal(fake->programs, 0);
}

/* ---- convolutions ---- */

/* A convolution over `axes` axes and its gradients. */
typedef struct row {
    const char *name;
    int axes;
    int64_t n, c, in[3], o, kernel[3], groups;
    gd_shape stride, before, after, dilation;
    bool has_bias, has_relu;
} row;

static const row rows[] = {
    { "plain", 2, 2, 3, { 6, 5 }, 4, { 3, 3 }, 1, .has_bias = false },
    { "bias and ReLU", 2, 2, 3, { 6, 5 }, 4, { 3, 3 }, 1, .has_bias = true, .has_relu = true },
    { "ReLU", 2, 2, 3, { 6, 5 }, 4, { 3, 2 }, 1, .has_relu = true },
    { "bias",
      2,
      1,
      1,
      { 7, 7 },
      5,
      { 5, 5 },
      1,
      { 1, { 1 } },
      { 1, { 2 } },
      { 1, { 2 } },
      .has_bias = true },
    { "stride",
      2,
      3,
      2,
      { 9, 8 },
      3,
      { 3, 3 },
      1,
      { 2, { 2, 3 } },
      { 1, { 1 } },
      { 1, { 1 } },
      .has_bias = false },
    { "dilation",
      2,
      2,
      2,
      { 9, 9 },
      2,
      { 3, 3 },
      1,
      { 1, { 1 } },
      { 1, { 2 } },
      { 1, { 2 } },
      { 2, { 2, 3 } },
      .has_bias = false },
    { "groups",
      2,
      2,
      6,
      { 5, 5 },
      9,
      { 3, 3 },
      3,
      { 1, { 1 } },
      { 1, { 1 } },
      { 1, { 1 } },
      .has_bias = true },
    { "depthwise",
      2,
      2,
      4,
      { 5, 6 },
      4,
      { 3, 3 },
      4,
      { 1, { 2 } },
      { 1, { 1 } },
      { 1, { 1 } },
      .has_bias = false },
    { "more behind",
      2,
      2,
      3,
      { 6, 5 },
      4,
      { 2, 4 },
      1,
      { 1, { 1 } },
      { 2, { 0, 1 } },
      { 2, { 1, 2 } },
      .has_bias = false },
    { "one axis",
      1,
      3,
      2,
      { 11 },
      4,
      { 4 },
      1,
      { 1, { 2 } },
      { 1, { 1 } },
      { 1, { 2 } },
      { 1, { 2 } },
      .has_bias = true },
    { "three axes",
      3,
      1,
      2,
      { 4, 5, 3 },
      3,
      { 2, 3, 2 },
      1,
      { 3, { 1, 2, 1 } },
      { 1, { 1 } },
      { 1, { 0 } },
      .has_bias = true },
};
enum { ROWS = sizeof rows / sizeof *rows };

static gd_shape shape_of(int64_t first, int64_t second, const int64_t *spatial, int axes)
{
    gd_shape shape = { .rank = 2 + axes };
    shape.dim[0] = first;
    shape.dim[1] = second;
    memcpy(shape.dim + 2, spatial, sizeof *spatial * (size_t)axes);
    return shape;
}

static gd_tensor *draw(gd_context *gd, gd_shape shape, uint64_t seed)
{
    numbers n = { seed };
    const int64_t count = shape_count(shape);
    float *values = malloc(sizeof *values * (size_t)count);
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)numbers_uniform(&n, -1, 1);
    gd_tensor *t = gd_from_host(gd, shape, GD_F32, values);
    free(values);
    return t;
}

/* Of x, w, bias and the gradient of the result: the result and the gradients by x, w and bias, one behind another. */
static gd_tensor *convolve(void *user, int count, gd_tensor *const *in)
{
    const row *r = user;
    gd_conv_options with = { GD_CONV_DEFAULTS };
    with.stride = r->stride;
    with.padding_before = r->before;
    with.padding_after = r->after;
    with.dilation = r->dilation;
    with.groups = r->groups;
    (void)count;
    gd_tensor *y = gd_conv_with(in[0], in[1], r->has_bias ? in[2] : NULL, r->axes, &with);
    y = r->has_relu ? gd_relu(y) : y;
    gd_tensor *part[4] = { y };
    if (gd_grad(1, &y, &in[3], r->has_bias ? 3 : 2, in, part + 1) != GD_OK)
        return NULL;
    const int parts = r->has_bias ? 4 : 3;
    for (int i = 0; i < parts; i++)
        part[i] = gd_reshape(part[i], GD_SHAPE(-1));
    return gd_concat(parts, part, 0);
}

/* Elements of y along a spatial axis. */
static int64_t one(gd_shape shape, int axis, int64_t otherwise)
{
    return shape.rank == 0 ? otherwise : shape.dim[shape.rank == 1 ? 0 : axis];
}

static void make_operands(gd_context *gd, const row *r, gd_tensor *in[4])
{
    int64_t out[3];
    for (int a = 0; a < r->axes; a++)
        out[a] = (r->in[a] + one(r->before, a, 0) + one(r->after, a, 0) -
                  one(r->dilation, a, 1) * (r->kernel[a] - 1) - 1) /
                     one(r->stride, a, 1) +
                 1;
    in[0] = draw(gd, shape_of(r->n, r->c, r->in, r->axes), 1);
    in[1] = draw(gd, shape_of(r->o, r->c / r->groups, r->kernel, r->axes), 2);
    in[2] = draw(gd, GD_SHAPE(r->o), 3);
    in[3] = draw(gd, shape_of(r->n, r->o, out, r->axes), 4);
    for (int i = 0; i < 3; i++)
        assert_non_null(gd_set_requires_grad(in[i], true));
}

static reading eagerly(gd_context *gd, const row *r)
{
    gd_tensor *in[4];
    gd_scope_begin(gd);
    make_operands(gd, r, in);
    const reading got = reading_take(convolve((void *)r, 4, in), r->name);
    gd_scope_end(gd);
    return got;
}

/* The last of `calls` calls of a compiled function. */
static reading compiled(gd_context *gd, const row *r, int calls)
{
    gd_tensor *in[4];
    reading got = { 0 };
    gd_scope_begin(gd);
    make_operands(gd, r, in);
    gd_function *f = gd_compile(gd, convolve, (void *)r);
    for (int i = 0; i < calls; i++) {
        gd_tensor *result = gd_call(f, 4, in);
        if (i == calls - 1)
            got = reading_take(result, r->name);
    }
    gd_function_release(f);
    gd_scope_end(gd);
    return got;
}

static gd_context *open_with(gd_numbers numbers_of_library)
{
    gd_context *gd = gd_open("cuda", .threads = 1, .numbers = numbers_of_library);
    if (!gd)
        fail_msg("%s", gd_error_message());
    return gd;
}

static double distance(const reading *a, const reading *b, bool *are_same)
{
    double most = 0;
    assert_int_equal(a->count, b->count);
    for (int64_t i = 0; i < a->count; i++)
        most = fmax(most, fabs(reading_value(a, i) - reading_value(b, i)));
    *are_same &= memcmp(a->data, b->data, a->bytes) == 0;
    return most;
}

/* Sums of some dozen products of numbers from -1 to 1, so many bits of factors. */
static void numbers_are_right(gd_numbers of_library, int engine, double limit)
{
    gd_context *cpu = gd_open("cpu", .threads = 1), *gd = open_with(of_library);
    bool are_same = true;
    for (int i = 0; i < ROWS; i++) {
        const int64_t before = dnn->executed[engine], all = dnn->executions;
        reading expected = eagerly(cpu, &rows[i]), got = eagerly(gd, &rows[i]);
        const double most = distance(&expected, &got, &are_same);
        if (!(most <= limit))
            fail_msg("%s: off by %g", rows[i].name, most);
        assert_int_equal(dnn->executed[engine] - before, 3);
        assert_int_equal(dnn->executions - all, 3);
        reading_free(&expected);
        reading_free(&got);
    }
    assert_false(are_same); /* it is not the engine's own kernel */
    gd_close(cpu);
    gd_close(gd);
    expect_nothing_left();
}

static void numbers_of_the_library_are_right(void **state)
{
    (void)state;
    numbers_are_right(GD_NUMBERS_LIBRARY, FAKE_ENGINE_F32, 1e-5);
}

static void numbers_of_tf32_are_right(void **state)
{
    (void)state;
    numbers_are_right(GD_NUMBERS_TF32, FAKE_ENGINE_TF32, 2e-2);
}

static void exact_numbers_do_without(void **state)
{
    (void)state;
    gd_context *cpu = gd_open("cpu", .threads = 1), *gd = open_with(GD_NUMBERS_EXACT);
    const int64_t before = fake->calls, all = dnn->executions;
    for (int i = 0; i < ROWS; i++) {
        reading expected = eagerly(cpu, &rows[i]), got = eagerly(gd, &rows[i]);
        assert_same_bits(&expected, &got, rows[i].name);
        reading_free(&expected);
        reading_free(&got);
    }
    assert_true(fake->calls > before && fake->handles == 0 && dnn->executions == all);
    gd_close(cpu);
    gd_close(gd);
}

static void compiled_and_replayed_are_the_same_bits(void **state)
{
    (void)state;
    gd_context *gd = open_with(GD_NUMBERS_TF32);
    for (int i = 0; i < ROWS; i++) {
        reading expected = eagerly(gd, &rows[i]);
        for (int calls = 1; calls <= 4; calls++) {
            reading got = compiled(gd, &rows[i], calls);
            assert_same_bits(&expected, &got, rows[i].name);
            reading_free(&got);
        }
        reading_free(&expected);
    }
    const gd_gpu *gpu = (const gd_gpu *)gd->device;
    assert_true(gpu->recorded >= ROWS && gpu->replayed >= 3 * ROWS);
    gd_close(gd);
    expect_nothing_left();
}

/* An operand that begins at no multiple of 16 bytes is copied: the same engine, the same bits. */
static void odd_addresses_give_the_same_bits(void **state)
{
    (void)state;
    const row r = { "odd addresses", 2, 1,           1,           { 3, 3 },    1,
                    { 3, 3 },        1, GD_SHAPE(1), GD_SHAPE(1), GD_SHAPE(1), .has_bias = false };
    gd_context *gd = open_with(GD_NUMBERS_LIBRARY);
    gd_tensor *in[4], *odd[4];
    make_operands(gd, &r, in);
    const int64_t before = fake->copies;
    reading expected = reading_take(convolve((void *)&r, 4, in), r.name);
    const int64_t at_even_ones = fake->copies - before;
    for (int i = 0; i < 4; i++) {
        gd_tensor *twice[2] = { in[i], in[i] };
        odd[i] = gd_slice(gd_concat(2, twice, 0), 0, i == 2 ? 0 : 1, i == 2 ? 1 : 2, 1);
    }
    assert_int_equal((uintptr_t)odd[0]->layout.offset, 9);
    const int64_t between = fake->copies;
    reading got = reading_take(convolve((void *)&r, 4, odd), r.name);
    assert_same_bits(&expected, &got, r.name);
    assert_true(fake->copies - between >= at_even_ones + 6); /* two operands of each of three */
    reading_free(&expected);
    reading_free(&got);
    gd_function *f = gd_compile(gd, convolve, (void *)&r);
    expected = reading_take(gd_call(f, 4, in), r.name);
    for (int i = 0; i < 4; i++) {
        got = reading_take(gd_call(f, 4, odd), r.name);
        assert_same_bits(&expected, &got, r.name);
        reading_free(&got);
    }
    reading_free(&expected);
    gd_close(gd);
    expect_nothing_left();
}

/* ---- engines ---- */

/* What a row gives where these engines are proposed, `by` whom it is computed (-1: by us). */
static void expect_engine(uint32_t engines, gd_numbers of_library, int by)
{
    const uint32_t before = dnn->engines;
    gd_context *cpu = gd_open("cpu", .threads = 1), *gd = open_with(of_library);
    dnn->engines = engines;
    const int64_t count = dnn->executions, of_engine = by < 0 ? 0 : dnn->executed[by];
    reading expected = eagerly(cpu, &rows[1]), got = eagerly(gd, &rows[1]),
            again = compiled(gd, &rows[1], 3);
    assert_same_bits(&got, &again, "compiled");
    if (by < 0) {
        assert_same_bits(&expected, &got, "ours");
        assert_int_equal(dnn->executions, count);
    } else {
        assert_true(dnn->executed[by] >= of_engine + 6);
        assert_int_equal(dnn->executed[by] - of_engine, dnn->executions - count);
    }
    dnn->engines = before;
    reading_free(&expected);
    reading_free(&got);
    reading_free(&again);
    gd_close(cpu);
    gd_close(gd);
    expect_nothing_left();
}

static void only_engines_that_may_be_taken_are(void **state)
{
    (void)state;
    const uint32_t racing = 1 << FAKE_ENGINE_RACING, half = 1 << FAKE_ENGINE_HALF_SUMS,
                   large = 1 << FAKE_ENGINE_LARGE, refusing = 1 << FAKE_ENGINE_REFUSING,
                   tf32 = 1 << FAKE_ENGINE_TF32, fallback = 1 << FAKE_ENGINE_FALLBACK;
    expect_engine(racing | half | refusing | large | fallback, GD_NUMBERS_TF32,
                  FAKE_ENGINE_FALLBACK);
    expect_engine(racing | tf32 | fallback, GD_NUMBERS_TF32, FAKE_ENGINE_TF32);
    expect_engine(racing | tf32 | fallback, GD_NUMBERS_LIBRARY, FAKE_ENGINE_FALLBACK);
    expect_engine(racing, GD_NUMBERS_TF32, -1);
    expect_engine(half, GD_NUMBERS_TF32, -1);
    expect_engine(large, GD_NUMBERS_TF32, -1);
    expect_engine(refusing, GD_NUMBERS_TF32, -1);
    expect_engine(tf32, GD_NUMBERS_LIBRARY, -1);
    expect_engine(0, GD_NUMBERS_LIBRARY, -1);
}

/* Some convolutions of a program by the library, those that it refuses by us. */
static void refused_convolutions_are_computed_by_us(void **state)
{
    (void)state;
    const uint32_t before = dnn->engines;
    dnn->engines = 1 << FAKE_ENGINE_SYMMETRIC;
    gd_context *cpu = gd_open("cpu", .threads = 1), *gd = open_with(GD_NUMBERS_LIBRARY);
    int ours = 0;
    for (int i = 0; i < ROWS; i++) {
        const int64_t count = dnn->executions;
        reading expected = eagerly(cpu, &rows[i]), got = eagerly(gd, &rows[i]);
        if (dnn->executions == count) {
            assert_same_bits(&expected, &got, rows[i].name);
            ours++;
        }
        reading_free(&expected);
        reading_free(&got);
    }
    assert_true(ours >= 3 && ours < ROWS);
    dnn->engines = before;
    gd_close(cpu);
    gd_close(gd);
    expect_nothing_left();
}

/* ---- plans ---- */

/* A convolution [1, 1, size] of its own, whose plan is kept for a while. */
static float one_of_many(gd_context *gd, int64_t size)
{
    gd_scope_begin(gd);
    gd_tensor *sum = gd_sum(gd_conv1d(gd_ones(gd, GD_SHAPE(1, 1, size), GD_F32),
                                      gd_ones(gd, GD_SHAPE(1, 1, 2), GD_F32), NULL),
                            GD_ALL_AXES, false);
    const float got = (float)gd_item(sum);
    gd_scope_end(gd);
    return got;
}

static void plans_are_kept_and_their_number_is_bounded(void **state)
{
    (void)state;
    const int64_t first = 3;
    gd_context *gd = open_with(GD_NUMBERS_LIBRARY);
    const row *r = &rows[1];
    gd_tensor *in[4];
    make_operands(gd, r, in);
    gd_function *f = gd_compile(gd, convolve, (void *)r);
    reading expected = reading_take(gd_call(f, 4, in), r->name), got;
    for (int i = 0; i < 3; i++) {
        got = reading_take(gd_call(f, 4, in), r->name);
        reading_free(&got);
    }
    const int64_t none = dnn->plans;
    assert_true(one_of_many(gd, first) == 4);
    const int64_t one_plan = dnn->plans, descriptors = fake->descriptors;
    assert_true(one_plan > none);
    assert_true(one_of_many(gd, first) == 4);
    assert_int_equal(dnn->plans, one_plan);
    assert_int_equal(fake->descriptors, descriptors);
    for (int64_t i = 0; i < GD_CUDA_CONVOLUTIONS; i++)
        assert_true(one_of_many(gd, first + 1 + i) == (float)(2 * (first + i)));
    const int64_t many = dnn->plans, most = fake->descriptors;
    for (int64_t i = 0; i < 20; i++)
        assert_true(one_of_many(gd, 1000 + i) == (float)(2 * (999 + i)));
    assert_int_equal(fake->descriptors, most); /* as many are ended as are made */
    assert_true(one_of_many(gd, first) == 4);
    assert_true(dnn->plans > many + 20 * (one_plan - none));
    for (int i = 0; i < 4; i++) { /* the graph used plans that are gone */
        got = reading_take(gd_call(f, 4, in), r->name);
        assert_same_bits(&expected, &got, r->name);
        reading_free(&got);
    }
    reading_free(&expected);
    gd_close(gd);
    expect_nothing_left();
}

typedef struct model {
    gd_module *module;
    gd_optimizer *optimizer;
} model;

static gd_tensor *step(void *user, int count, gd_tensor *const *in)
{
    const model *m = user;
    (void)count;
    gd_tensor *h =
        gd_relu(gd_nn_conv2d(m->module, "first", in[0], 3, GD_SHAPE(3), .padding = GD_SHAPE(1)));
    h = gd_relu(gd_nn_conv2d(m->module, "second", gd_max_pool2d(h, GD_SHAPE(2)), 4, GD_SHAPE(2)));
    return gd_minimize(
        m->optimizer,
        gd_cross_entropy(gd_nn_linear(m->module, "out", gd_flatten(h, 1, -1), 3), in[1]));
}

enum { STEPS = 8, BATCH = 5 };

static bool train(gd_context *gd, gd_mode mode, float losses[STEPS], fake_cuda *did)
{
    static const int64_t labels[BATCH] = { 0, 1, 2, 0, 1 };
    if (gd_scope_begin(gd) != GD_OK)
        return false;
    (void)gd_seed(gd, 5);
    model m = { .module = gd_module_create(gd) };
    gd_tensor *in[2] = { draw(gd, GD_SHAPE(BATCH, 2, 6, 6), 7),
                         gd_from_host(gd, GD_SHAPE(BATCH), GD_I64, labels) };
    m.optimizer = gd_adam(m.module, .lr = 0.05);
    gd_function *f = gd_compile(gd, step, &m, .mode = mode);
    bool ok = in[0] && in[1] && m.optimizer && f;
    for (int i = 0; i < STEPS && ok; i++) {
        const fake_cuda before = *fake;
        gd_tensor *loss = gd_call(f, 2, in);
        if (did)
            *did = (fake_cuda){ .launches = fake->launches - before.launches,
                                .graph_launches = fake->graph_launches - before.graph_launches,
                                .waits = fake->waits - before.waits,
                                .blocks = fake->blocks - before.blocks,
                                .descriptors = fake->descriptors - before.descriptors };
        ok = loss && gd_tensor_read(loss, &losses[i], sizeof losses[i]) == GD_OK;
    }
    gd_function_release(f);
    gd_optimizer_release(m.optimizer);
    gd_module_release(m.module);
    return gd_scope_end(gd) == GD_OK && ok;
}

static void a_step_of_training_is_one_launch(void **state)
{
    (void)state;
    float compiled_losses[STEPS], eager_losses[STEPS], exact_losses[STEPS];
    fake_cuda did;
    gd_context *cpu = gd_open("cpu"), *gd = open_with(GD_NUMBERS_TF32);
    assert_true(train(cpu, GD_MODE_COMPILED, exact_losses, NULL));
    assert_true(train(gd, GD_MODE_COMPILED, compiled_losses, &did));
    assert_int_equal(did.graph_launches, 1);
    assert_int_equal(did.launches + did.waits + did.blocks + did.descriptors, 0);
    assert_true(train(gd, GD_MODE_EAGER, eager_losses, NULL));
    assert_memory_equal(compiled_losses, eager_losses, sizeof eager_losses);
    for (int i = 0; i < STEPS; i++)
        assert_true(fabsf(compiled_losses[i] - exact_losses[i]) < 0.02f);
    gd_close(cpu);
    gd_close(gd);
    expect_nothing_left();
}

/* ---- failures ---- */

static float expected_losses[STEPS];

/* A call failing, in a context of its own. Whether it got through. */
static bool run_failing(int64_t call, int error)
{
    float losses[STEPS];
    gd_error_clear();
    fake->seed = 77; /* the same moments: the same calls */
    fake->calls = 0;
    fake->fail_at = call;
    fake->fail_with = error;
    gd_context *gd = gd_open("cuda", .threads = 1, .numbers = GD_NUMBERS_TF32);
    const bool ok = gd && train(gd, GD_MODE_COMPILED, losses, NULL), is_lost = fake->lost;
    if (!ok && (gd_error_code() == GD_OK || !strstr(gd_error_message(), "cuda")))
        fail_msg("call %lld failing: \"%s\"", (long long)call, gd_error_message());
    if (ok)
        assert_memory_equal(losses, expected_losses, sizeof losses);
    fake->fail_at = -1;
    if (gd && !is_lost) { /* it works again */
        gd_error_clear();
        if (!train(gd, GD_MODE_COMPILED, losses, NULL))
            fail_msg("after call %lld failed: %s", (long long)call, gd_error_message());
        assert_memory_equal(losses, expected_losses, sizeof losses);
    }
    gd_close(gd);
    fake->lost = 0;
    expect_nothing_left();
    return ok;
}

static void fail_each(int error, int64_t step_between)
{
    int64_t tried = 0, refused = 0;
    fake->seed = 77;
    fake->calls = 0;
    gd_context *gd = open_with(GD_NUMBERS_TF32);
    assert_true(train(gd, GD_MODE_COMPILED, expected_losses, NULL));
    gd_close(gd);
    const int64_t calls = fake->calls;
    for (int64_t i = 0; i < calls; i += step_between, tried++)
        refused += !run_failing(i, error);
    assert_true(tried > 5 && refused > tried / 4);
}

static void a_call_that_fails_is_told(void **state)
{
    (void)state;
    fail_each(2 /* CUDA_ERROR_OUT_OF_MEMORY */, test_call_step(13));
    fail_each(1 /* CUDA_ERROR_INVALID_VALUE */, test_call_step(13));
    fail_each(700 /* CUDA_ERROR_ILLEGAL_ADDRESS */, test_call_step(17));
}

/* A convolution whose plan is not made yet, each call failing once. A failure to make the plan is made good by
 * the next attempt, one to run it is told. */
static void each_call_of_a_convolution_may_fail(void **state)
{
    (void)state;
    int told_by_cudnn = 0, refused = 0;
    bool was_reached = true;
    for (int64_t n = 0; was_reached; n++) {
        float got[4] = { 0 };
        fake->seed = 77;
        gd_context *gd = open_with(GD_NUMBERS_LIBRARY);
        gd_tensor *x = gd_ones(gd, GD_SHAPE(1, 1, 5), GD_F32),
                  *w = gd_ones(gd, GD_SHAPE(1, 1, 2), GD_F32);
        assert_int_equal(gd_synchronize(gd), GD_OK);
        fake->calls = 0;
        fake->fail_at = n;
        fake->fail_with = n % 2 ? 1 : 2;
        gd_tensor *y = gd_conv1d(x, w, NULL);
        const bool ok = y && gd_tensor_read(y, got, sizeof got) == GD_OK;
        was_reached = fake->calls > n;
        fake->fail_at = -1;
        if (!ok && !strstr(gd_error_message(), "cuda"))
            fail_msg("call %lld failing: \"%s\"", (long long)n, gd_error_message());
        told_by_cudnn += strstr(gd_error_message(), " of cuDNN 9.26.0: CUDNN_STATUS_") != NULL;
        refused += !ok;
        gd_error_clear();
        if (!ok)
            assert_int_equal(gd_tensor_read(gd_conv1d(x, w, NULL), got, sizeof got), GD_OK);
        for (int i = 0; i < 4; i++)
            assert_true(got[i] == 2);
        gd_close(gd);
        expect_nothing_left();
    }
    assert_true(told_by_cudnn >= 6 && refused >= told_by_cudnn);
}

/* ---- a machine without ---- */

static gd_tensor *first_convolution(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_conv1d(in[0], in[1], NULL);
}

/* Writes what a convolution says. */
static int try_convolution(bool is_compiled, int end)
{
    gd_context *gd = gd_open("cuda", .numbers = GD_NUMBERS_LIBRARY);
    gd_tensor *in[2] = { gd ? gd_ones(gd, GD_SHAPE(1, 1, 5), GD_F32) : NULL,
                         gd ? gd_ones(gd, GD_SHAPE(1, 1, 2), GD_F32) : NULL };
    gd_function *f = gd && is_compiled ? gd_compile(gd, first_convolution, NULL) : NULL;
    const gd_tensor *y = f ? gd_call(f, 2, in) : gd ? first_convolution(NULL, 2, in) : NULL;
    const char *said = y ? "it is computed" : gd_error_message();
    const ssize_t written = write(end, said, strlen(said));
    return written < 0 || gd_error_code() != GD_ERR_UNSUPPORTED;
}

/* What a convolution says in a process of its own, with the libraries of a folder. */
static void expect_refusal(const char *folder, int64_t version, bool is_compiled, const char *words)
{
    int ends[2];
    char told[2048] = "";
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        setenv("GRADUS_CUDA_PATH", folder, 1);
        dnn->version = version;
        _exit(try_convolution(is_compiled, ends[1]));
    }
    int state = -1;
    close(ends[1]);
    assert_true(read(ends[0], told, sizeof told - 1) >= 0);
    close(ends[0]);
    assert_int_equal(waitpid(child, &state, 0), child);
    if (state != 0 || !strstr(told, words))
        fail_msg("expected \"%s\" in \"%s\"", words, told);
}

static void put_link(const char *folder, const char *library, const char *name)
{
    char link[128];
    snprintf(link, sizeof link, "%s/%s", folder, name);
    (void)unlink(link);
    if (library) {
        char to[512];
        snprintf(to, sizeof to, "%s/%s", FOLDER, library);
        assert_int_equal(symlink(to, link), 0);
    }
}

static void what_is_missing_is_told(void **state)
{
    (void)state;
    static const char *const others[] = { "libcuda.so.1", "libnvrtc.so.13", "libcublasLt.so.13" };
    char folder[] = "/tmp/gradus-cudnn-XXXXXX";
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < 3; i++)
        put_link(folder, others[i], others[i]);
    for (int compiled_too = 0; compiled_too < 2; compiled_too++)
        expect_refusal(folder, 92600, compiled_too,
                       "cuDNN cannot be loaded: no libcudnn.so.9 was found");
    put_link(folder, "libcuda.so.1", "libcudnn.so.9");
    expect_refusal(
        folder, 92600, false,
        "the libcudnn.so.9 that was found is of no use: it has no function cudnnGetErrorString");
    expect_refusal(FOLDER, 8907, false,
                   "the libcudnn.so.9 that was found says that it is version 8907, and cuDNN 9");
    for (int i = 0; i < 3; i++)
        put_link(folder, NULL, others[i]);
    put_link(folder, NULL, "libcudnn.so.9");
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_missing_is_told), /* before this process asks for cuDNN */
        cmocka_unit_test(exact_numbers_do_without),
        cmocka_unit_test(numbers_of_the_library_are_right),
        cmocka_unit_test(numbers_of_tf32_are_right),
        cmocka_unit_test(compiled_and_replayed_are_the_same_bits),
        cmocka_unit_test(odd_addresses_give_the_same_bits),
        cmocka_unit_test(only_engines_that_may_be_taken_are),
        cmocka_unit_test(refused_convolutions_are_computed_by_us),
        cmocka_unit_test(plans_are_kept_and_their_number_is_bounded),
        cmocka_unit_test(a_step_of_training_is_one_launch),
        cmocka_unit_test(each_call_of_a_convolution_may_fail),
        cmocka_unit_test(a_call_that_fails_is_told),
    };
    if (!load_fakes() || setenv("GRADUS_ONE_KERNEL", "never", 1) != 0) {
        printf("skipped: the stand-in for cuDNN is not built\n");
        return NO_DEVICE;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
