/* tests/test_memory_failures.c: out of memory anywhere. Representative programs (an expression,
 * backward, a gradient of a gradient, compiled training, drawing and printing) are run with the
 * n-th allocation and all later ones failing, for every n until nothing fails. Each run must end
 * with GD_ERR_MEMORY or succeed; the same context must then run the program as if nothing had been;
 * and closing it must give back every block. AddressSanitizer sees what the count does not. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/gradus.h>

#include "support/effort.h"
#include "support/guard.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* ---- an allocator that counts ---- */

static _Atomic int64_t blocks_out;

static void *counting_resize(void *user, void *block, size_t bytes)
{
    (void)user;
    if (bytes == 0) {
        atomic_fetch_sub(&blocks_out, block ? 1 : 0);
        free(block);
        return NULL;
    }
    void *moved = realloc(block, bytes);
    atomic_fetch_add(&blocks_out, moved && !block ? 1 : 0);
    return moved;
}

static int use_counting_allocator(void **state)
{
    (void)state;
    static const gd_allocator counting = { counting_resize, NULL };
    gd_set_allocator(&counting);
    return 0;
}

static int use_malloc(void **state)
{
    (void)state;
    gd_set_allocator(NULL);
    return 0;
}

/* ---- programs: true when all went well; numbers they computed go to `out` ---- */

#define MOST_NUMBERS 64

typedef struct outcome {
    double number[MOST_NUMBERS];
    char text[512];
} outcome;

typedef bool (*program)(gd_context *context, outcome *out);

static bool read_numbers(gd_tensor *t, outcome *out)
{
    gd_tensor *wide = gd_cast(t, GD_F64);
    return wide && gd_tensor_count(wide) <= MOST_NUMBERS &&
           gd_tensor_read(wide, out->number, (size_t)gd_tensor_count(wide) * sizeof(double)) ==
               GD_OK;
}

static gd_tensor *ramp(gd_context *context, int64_t rows, int64_t columns)
{
    gd_tensor *line = gd_arange(context, 0, (double)(rows * columns), 1, GD_F32);
    return gd_mul_scalar(gd_sub_scalar(gd_reshape(line, GD_SHAPE(rows, columns)), 7), 0.125);
}

static bool expression(gd_context *context, outcome *out)
{
    gd_tensor *x = ramp(context, 5, 7), *w = gd_transpose(ramp(context, 3, 7), 0, 1);
    gd_tensor *y = gd_relu(gd_add(gd_matmul(x, w), gd_ones(context, GD_SHAPE(3), GD_F32)));
    gd_tensor *parts[2] = { gd_softmax(y, 1), gd_cast(gd_slice(y, 0, 4, GD_END, -1), GD_F64) };
    gd_tensor *t = gd_concat(2, parts, 0);
    return read_numbers(t, out);
}

/* Large tensors: chunks of their own. */
static bool large_tensors(gd_context *context, outcome *out)
{
    gd_tensor *x = gd_full(context, GD_SHAPE(600, 1000), 0.5, GD_F32);
    gd_tensor *y = gd_add(gd_reshape(gd_transpose(x, 0, 1), GD_SHAPE(600, 1000)), x);
    return read_numbers(gd_sum(gd_cast(y, GD_F64), GD_ALL_AXES, false), out);
}

static bool backward(gd_context *context, outcome *out)
{
    gd_tensor *w = gd_set_requires_grad(ramp(context, 7, 3), true);
    if (!w || w != gd_retain(w))
        return false;
    gd_tensor *x = ramp(context, 5, 7);
    gd_tensor *labels = gd_cast(gd_arange(context, 0, 5, 1, GD_I64), GD_I64);
    labels = gd_mod(labels, gd_scalar(context, 3, GD_I64));
    gd_tensor *loss = gd_cross_entropy(gd_tanh(gd_matmul(x, w)), labels);
    bool ok = gd_backward(loss) == GD_OK && gd_backward(loss) == GD_OK &&
              read_numbers(gd_gradient(w), out);
    ok = ok && gd_zero_grad(w) == GD_OK;
    gd_release(w);
    return ok;
}

static bool gradient_of_gradient(gd_context *context, outcome *out)
{
    gd_tensor *x = gd_set_requires_grad(ramp(context, 4, 5), true);
    gd_tensor *y = gd_sum(gd_mul(gd_exp(x), gd_cumsum(gd_softmax(x, 1), 0)), GD_ALL_AXES, false),
              *g, *h;
    if (!y || gd_grad(1, &y, NULL, 1, &x, &g) != GD_OK)
        return false;
    gd_tensor *norm = gd_sum(gd_square(g), GD_ALL_AXES, false);
    return norm && gd_grad(1, &norm, NULL, 1, &x, &h) == GD_OK && read_numbers(h, out);
}

typedef struct trainee {
    gd_tensor *w, *b;
} trainee;

static gd_tensor *step(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    trainee *t = user;
    gd_tensor *noise =
        gd_mul_scalar(gd_normal(gd_tensor_context(in[0]), GD_SHAPE(5, 3), 0, 1, GD_F32), 0.01);
    gd_tensor *y = gd_add(gd_relu(gd_linear(in[0], t->w, t->b)), noise);
    gd_tensor *loss = gd_mse(y, gd_full(gd_tensor_context(in[0]), GD_SHAPE(5, 3), 0.5, GD_F32)),
              *g[2];
    if (gd_grad(1, &loss, NULL, 2, (gd_tensor *[]){ t->w, t->b }, g) != GD_OK)
        return NULL;
    if (!gd_assign(t->w, gd_sub(gd_detach(t->w), gd_mul_scalar(g[0], 0.1))) ||
        !gd_assign(t->b, gd_sub(gd_detach(t->b), gd_mul_scalar(g[1], 0.1))))
        return NULL;
    return gd_output(g[0]) ? loss : NULL;
}

static bool compiled_training(gd_context *context, outcome *out)
{
    trainee t = { gd_set_requires_grad(ramp(context, 7, 3), true),
                  gd_set_requires_grad(gd_zeros(context, GD_SHAPE(3), GD_F32), true) };
    gd_tensor *x = ramp(context, 5, 7);
    gd_function *f = gd_compile(context, step, &t);
    bool ok = t.w && t.b && x && f && gd_seed(context, 3) == GD_OK;
    for (int i = 0; ok && i < 3; i++)
        ok = gd_call(f, 1, &x) != NULL;
    char plan[4096];
    ok = ok && gd_plan_format(f, plan, sizeof plan) > 0 && read_numbers(t.w, out);
    gd_function_release(f);
    return ok;
}

static bool drawing_and_printing(gd_context *context, outcome *out)
{
    if (gd_seed(context, 9) != GD_OK)
        return false;
    gd_tensor *u = gd_uniform(context, GD_SHAPE(3, 4), -1, 1, GD_F32);
    gd_tensor *x =
        gd_set_name(gd_set_requires_grad(gd_contiguous(gd_transpose(u, 0, 1)), true), "x");
    gd_tensor *y = gd_gather(gd_pad(x, GD_SHAPE(1, 0), GD_SHAPE(0, 1), 2),
                             gd_full(context, GD_SHAPE(2, 4), 1, GD_I64), 0);
    char graph[2048];
    return y && gd_graph_format(y, graph, sizeof graph) > 0 && gd_graph_verify(y) == GD_OK &&
           gd_tensor_format(y, out->text, sizeof out->text) > 0 && read_numbers(y, out);
}

/* ---- every failure ---- */

static const struct {
    const char *name;
    program run;
} programs[] = {
    { "expression", expression },
    { "large_tensors", large_tensors },
    { "backward", backward },
    { "gradient_of_gradient", gradient_of_gradient },
    { "compiled_training", compiled_training },
    { "drawing_and_printing", drawing_and_printing },
};

/* In a scope of its own, which may itself fail to open. */
static bool run_in_scope(program run, gd_context *context, outcome *out)
{
    memset(out, 0, sizeof *out);
    if (gd_scope_begin(context) != GD_OK)
        return false;
    bool ok = run(context, out);
    assert_int_equal(gd_scope_end(context), GD_OK);
    return ok;
}

static gd_context *open_device(const char *device)
{
    return gd_open(device, .threads = 1, .seed = 1);
}

/* From the n-th allocation of the program on, memory is out. Returns whether it got through. */
static bool run_failing(int p, const char *device, int64_t n, const outcome *expected)
{
    outcome out;
    gd_error_clear();
    gd_context *context = open_device(device);
    assert_non_null(context);
    gd_memory_trim(context);
    int64_t tensors = gd_memory(context).live_tensors;
    gd_fail_allocations_after(n);
    bool ok = run_in_scope(programs[p].run, context, &out);
    gd_fail_allocations_after(-1);
    if (!ok && (gd_error_code() != GD_ERR_MEMORY || !*gd_error_message()))
        fail_msg("%s on %s, allocation %lld failing: %s \"%s\"", programs[p].name, device,
                 (long long)n, gd_status_name(gd_error_code()), gd_error_message());
    if (ok && memcmp(&out, expected, sizeof out) != 0)
        fail_msg("%s on %s, allocation %lld failing: succeeded with another result",
                 programs[p].name, device, (long long)n);
    if (gd_memory(context).live_tensors != tensors)
        fail_msg("%s on %s, allocation %lld failing: %zu tensors are left", programs[p].name,
                 device, (long long)n, gd_memory(context).live_tensors - tensors);
    gd_error_clear();
    if (!run_in_scope(programs[p].run, context, &out) || memcmp(&out, expected, sizeof out) != 0)
        fail_msg("%s on %s, after allocation %lld failed: does not work any more: %s",
                 programs[p].name, device, (long long)n, gd_error_message());
    gd_close(context);
    if (atomic_load(&blocks_out) != 0)
        fail_msg("%s on %s, allocation %lld failing: %lld blocks leaked", programs[p].name, device,
                 (long long)n, (long long)atomic_load(&blocks_out));
    return ok;
}

/* The result when nothing fails, and the number of allocations it takes. */
static int64_t run_whole(int p, const char *device, outcome *out)
{
    gd_context *context = open_device(device);
    assert_non_null(context);
    gd_memory_trim(context);
    gd_fail_allocations_after(-1);
    if (!run_in_scope(programs[p].run, context, out))
        fail_msg("%s on %s: %s", programs[p].name, device, gd_error_message());
    int64_t count = gd_fail_allocations_after(-1);
    gd_close(context);
    assert_int_equal(atomic_load(&blocks_out), 0);
    return count;
}

static void fail_everywhere(const char *device)
{
    for (int p = 0; p < COUNT(programs); p++) {
        outcome expected;
        int64_t count = run_whole(p, device, &expected), refused = 0;
        assert_true(count > 0); /* it does ask for memory */
        for (int64_t n = 0; n < count; n += test_allocation_step())
            refused += !run_failing(p, device, n, &expected);
        assert_true(refused > 0);
        assert_true(run_failing(p, device, count, &expected));
    }
}

static void test_programs_on_cpu(void **state)
{
    (void)state;
    fail_everywhere("cpu");
}

static void test_programs_on_reference(void **state)
{
    (void)state;
    fail_everywhere("reference");
}

/* And one that works late, in memory of its own. */
static void test_programs_on_guard(void **state)
{
    (void)state;
    fail_everywhere("guard");
}

static void test_opening(void **state)
{
    (void)state;
    static const char *const devices[] = { "cpu", "reference", "guard" };
    for (int d = 0; d < COUNT(devices); d++) {
        gd_context *context = NULL;
        for (int64_t n = 0; !context; n++) {
            gd_error_clear();
            gd_fail_allocations_after(n);
            context = open_device(devices[d]);
            gd_fail_allocations_after(-1);
            assert_int_equal(gd_error_code(), context ? GD_OK : GD_ERR_MEMORY);
            gd_close(context);
            assert_int_equal(atomic_load(&blocks_out), 0);
            assert_true(n < 1000);
        }
    }
    gd_error_clear();
}

/* A limit on storage is met as running out is: an error, and nothing broken. */
static void test_memory_limit(void **state)
{
    (void)state;
    gd_context *context = gd_open(test_device(), .threads = 1, .memory_limit = 1 << 20);
    assert_non_null(context);
    gd_scope_begin(context);
    gd_tensor *held = gd_set_name(gd_zeros(context, GD_SHAPE(300), GD_F64), "held");
    assert_non_null(held);
    assert_null(gd_zeros(context, GD_SHAPE(1 << 20), GD_F32));
    assert_int_equal(gd_error_code(), GD_ERR_MEMORY);
    assert_non_null(strstr(gd_error_message(), " of the limit of 1048576 are taken"));
    assert_non_null(
        strstr(gd_error_message(), " the largest tensor is \"held\", f64 [300] with 2400 bytes"));
    gd_error_clear();
    assert_string_equal(gd_tensor_name(gd_set_name(held, "")), "");
    assert_null(gd_zeros(context, GD_SHAPE(1 << 20), GD_F32));
    assert_non_null(strstr(gd_error_message(), " the largest tensor is full, f64 [300] with"));
    gd_scope_end(context);
    gd_error_clear();
    outcome out;
    assert_true(run_in_scope(expression, context, &out));
    assert_true(gd_memory(context).reserved <= 1 << 20);
    gd_close(context);
    assert_int_equal(atomic_load(&blocks_out), 0);
}

/* ---- little address space, as batch systems give ---- */

/* Sanitizers take terabytes of addresses themselves. */
#if !TEST_UNDER_TSAN && !TEST_UNDER_MEMORY_CHECKS
/* in[0] pixels [50, 784], in[1] digits [50] -> loss [] */
static gd_tensor *mnist_step(void *optimizer, int count, gd_tensor *const *in)
{
    (void)count;
    gd_module *m = gd_optimizer_module(optimizer);
    gd_tensor *a = gd_relu(gd_nn_linear(m, "fc1", in[0], 16));
    gd_tensor *b = gd_relu(gd_nn_linear(m, "fc2", a, 16));
    return gd_minimize(optimizer,
                       gd_cross_entropy(gd_nn_linear(m, "fc3", gd_add(a, b), 10), in[1]));
}

/* Train within `bytes` of address space. The exit status of the process that did: 0 when the loss
 * fell. */
static int train_within(rlim_t bytes)
{
    if (setrlimit(RLIMIT_AS, &(struct rlimit){ bytes, bytes }) != 0)
        return 2;
    gd_context *gd = gd_open(test_device(), .threads = 2);
    gd_optimizer *adam = gd_adam(gd_module_create(gd, .seed = 1), .lr = 0.01);
    gd_function *train = gd_compile(gd, mnist_step, adam);
    gd_tensor *digits = gd_mod(gd_arange(gd, 0, 50, 1, GD_I64), gd_scalar(gd, 10, GD_I64));
    gd_tensor *batch[] = { gd_uniform(gd, GD_SHAPE(50, 784), 0, 1, GD_F32), digits };
    double first = gd_item(gd_call(train, 2, batch)), last = first;
    for (int i = 0; i < 20; i++)
        last = gd_item(gd_call(train, 2, batch));
    gd_close(gd);
    if (gd_error_code())
        fprintf(stderr, "%s\n", gd_error_message());
    return gd_error_code() == GD_OK && last < first ? 0 : 1;
}
#endif

static void test_little_address_space(void **state)
{
    (void)state;
#if TEST_UNDER_TSAN || TEST_UNDER_MEMORY_CHECKS
    skip();
#else
    gd_set_allocator(NULL);
    const rlim_t limits[] = { (rlim_t)4 << 30, (rlim_t)1 << 30, (rlim_t)256 << 20 };
    for (int i = 0; i < COUNT(limits); i++) {
        pid_t child = fork();
        if (child == 0)
            _exit(train_within(limits[i]));
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    (void)use_counting_allocator(NULL);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_opening),
        cmocka_unit_test(test_programs_on_cpu),
        cmocka_unit_test(test_programs_on_reference),
        cmocka_unit_test(test_programs_on_guard),
        cmocka_unit_test(test_memory_limit),
        cmocka_unit_test(test_little_address_space),
    };
    return cmocka_run_group_tests(tests, use_counting_allocator, use_malloc);
}
