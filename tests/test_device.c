/* tests/test_device.c: what backend/backend.h asks of a device and of its users, on the device
 * "guard" (support/guard.h): the host does not touch its memory, work may be done late, errors may
 * come late, calls may be refused, and every function may fail. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/backend.h"
#include "graph/context.h"
#include "support/context.h"

static int open_guard(void **state)
{
    gd_error_clear();
    guard_reset();
    *state = gd_open("guard", .threads = 2, .seed = 7);
    return *state ? 0 : -1;
}

static int close_guard(void **state)
{
    gd_close(*state);
    guard_reset();
    return 0;
}

#define guard_test(function) cmocka_unit_test_setup_teardown(function, open_guard, close_guard)

/* ---- memory ---- */

static void the_host_cannot_reach_its_memory(void **state)
{
    gd_context *gd = *state;
    gd_tensor *t = gd_ones(gd, GD_SHAPE(4), GD_F32);
    assert_false(gd_context_has_host_memory(gd));
    assert_null(gd_tensor_data(t));
    expect_error(GD_ERR_UNSUPPORTED, "gd_tensor_data: the host cannot reach the memory of device "
                                     "guard; use gd_tensor_map, gd_tensor_read or gd_tensor_write");
    float memory[4] = { 0 };
    assert_null(gd_from_host_in_place(gd, GD_SHAPE(4), GD_F32, memory, NULL, NULL));
    expect_error(GD_ERR_UNSUPPORTED, "gd_from_host_in_place: device guard");
    pid_t child = fork();
    if (child == 0) {
        (void)signal(SIGSEGV, SIG_DFL); /* not a sanitizer's report */
        (void)setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
        _exit(*(volatile char *)gd_node_data(t));
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

static void addresses_have_its_alignment(void **state)
{
    gd_context *gd = *state;
    assert_int_equal(gd->device->alignment, 256);
    for (int i = 0; i < 20; i++) {
        const gd_tensor *t = gd_ones(gd, GD_SHAPE(1 + 7 * i), GD_F32);
        assert_int_equal((uintptr_t)gd_node_data(t) % 256, 0);
    }
    const gd_device_memory_size size = gd_device_memory(gd);
    assert_true(size.total > 0 && size.available <= size.total);
}

/* ---- order ---- */

static void work_waits_until_it_is_asked_for(void **state)
{
    gd_context *gd = *state;
    float numbers[3] = { 1, 2, 3 }, got[3];
    gd_tensor *x = gd_from_host(gd, GD_SHAPE(3), GD_F32, numbers);
    numbers[0] = 100; /* the source was read */
    gd_tensor *y = gd_add(x, x);
    assert_int_equal(gd_tensor_write(x, numbers, sizeof numbers), GD_OK);
    gd_tensor *z = gd_add(x, x); /* behind the write, y before it */
    assert_int_equal(guard_count.waits, 0);
    assert_int_equal(gd_tensor_read(z, got, sizeof got), GD_OK);
    assert_true(got[0] == 200 && got[1] == 4 && got[2] == 6);
    assert_int_equal(guard_count.waits, 1);
    assert_int_equal(gd_tensor_read(y, got, sizeof got), GD_OK);
    assert_true(got[0] == 2 && got[1] == 4 && got[2] == 6);
    assert_int_equal(guard_count.waits, 1); /* nothing was left to be done */
    assert_non_null(gd_exp(z));
    assert_int_equal(gd_synchronize(gd), GD_OK);
    assert_int_equal(guard_count.waits, 2);
    assert_int_equal(gd_synchronize(NULL), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "gd_synchronize: the context is NULL");
}

static void errors_that_values_show_come_late_and_once(void **state)
{
    gd_context *gd = *state;
    const int64_t wrong[2] = { 0, 9 };
    gd_tensor *table = gd_ones(gd, GD_SHAPE(6), GD_F32);
    gd_tensor *picked = gd_gather(table, gd_from_host(gd, GD_SHAPE(2), GD_I64, wrong), 0);
    assert_non_null(picked); /* nobody knows yet */
    assert_int_equal(gd_error_code(), GD_OK);
    assert_int_equal(gd_synchronize(gd), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "9");
    assert_int_equal(gd_synchronize(gd), GD_OK);
    assert_true(gd_item(gd_sum(table, GD_ALL_AXES, false)) == 6);
    picked = gd_gather(table, gd_from_host(gd, GD_SHAPE(2), GD_I64, wrong), 0);
    float got[2];
    assert_int_equal(gd_tensor_read(picked, got, sizeof got), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "9");
}

/* ---- a small network: convolution, attention, norm, dropout, everything that is rewritten ---- */

typedef struct net {
    gd_context *gd;
    gd_module *m;
    gd_optimizer *optimizer;
    gd_function *step;
    gd_tensor *in[2];
} net;

/* in[0] images [4, 1, 8, 8], in[1] labels [4] -> loss [] */
static gd_tensor *net_step(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    const net *n = user;
    gd_tensor *x = gd_relu(gd_nn_conv2d(n->m, "conv", in[0], 8, GD_SHAPE(3)));
    x = gd_transpose(gd_reshape(x, GD_SHAPE(4, 8, 36)), 1, 2);
    x = gd_nn_layer_norm(n->m, "norm",
                         gd_add(x, gd_nn_multi_head_attention(n->m, "attention", x, 2)));
    x = gd_dropout(gd_gelu(gd_nn_linear(n->m, "hidden", gd_mean(x, GD_AXES(1), false), 16)), 0.25);
    x = gd_relu(gd_nn_linear(n->m, "last", x, 16));
    return gd_minimize(n->optimizer, gd_cross_entropy(gd_nn_linear(n->m, "out", x, 5), in[1]));
}

static bool net_open(net *n, const char *device, gd_mode mode)
{
    *n = (net){ .gd = gd_open(device, .threads = 2, .seed = 3) };
    n->m = gd_module_create(n->gd, .seed = 1);
    n->optimizer = gd_adam(n->m, .lr = 0.01);
    n->step = gd_compile(n->gd, net_step, n, .mode = mode);
    n->in[0] = gd_retain(gd_normal(n->gd, GD_SHAPE(4, 1, 8, 8), 0, 1, GD_F32));
    n->in[1] = gd_retain(gd_from_host(n->gd, GD_SHAPE(4), GD_I64, (int64_t[]){ 0, 3, 1, 4 }));
    return n->step && n->in[0] && n->in[1];
}

enum { STEPS = 4, PARAMETERS = 64, NUMBERS = 8 };

/* Losses, and some numbers of every parameter. */
typedef struct trained {
    double loss[STEPS];
    float number[PARAMETERS][NUMBERS];
} trained;

static void net_read(net *n, trained *t)
{
    assert_true(gd_module_count(n->m) <= PARAMETERS);
    for (int i = 0; i < gd_module_count(n->m); i++) {
        gd_tensor *flat = gd_reshape(gd_module_tensor(n->m, i), GD_SHAPE(-1));
        int64_t count = gd_tensor_count(flat) < NUMBERS ? gd_tensor_count(flat) : NUMBERS;
        flat = gd_slice(flat, 0, 0, count, 1);
        assert_int_equal(gd_tensor_read(flat, t->number[i], (size_t)count * sizeof(float)), GD_OK);
    }
}

static trained net_train(const char *device, gd_mode mode)
{
    trained t = { 0 };
    net n;
    gd_error_clear();
    if (!net_open(&n, device, mode))
        fail_msg("%s", gd_error_message());
    for (int i = 0; i < STEPS; i++) {
        gd_tensor *loss = gd_call(n.step, 2, n.in);
        if (!loss)
            fail_msg("%s: %s", device, gd_error_message());
        t.loss[i] = gd_item(loss);
    }
    net_read(&n, &t);
    gd_close(n.gd);
    assert_int_equal(gd_error_code(), GD_OK);
    return t;
}

static const gd_mode modes[] = { GD_MODE_COMPILED, GD_MODE_EAGER, GD_MODE_LAZY };
enum { MODES = sizeof modes / sizeof *modes };

static void training_gives_the_same_bits(void **state)
{
    (void)state;
    const trained expected = net_train("cpu", GD_MODE_COMPILED);
    assert_true(expected.loss[STEPS - 1] < expected.loss[0]);
    for (int m = 0; m < MODES; m++) {
        const trained t = net_train("guard", modes[m]);
        assert_memory_equal(&t, &expected, sizeof t);
    }
}

/* No function waits but those that say so. */
static void a_step_waits_for_nothing(void **state)
{
    (void)state;
    net n;
    assert_true(net_open(&n, "guard", GD_MODE_COMPILED));
    assert_non_null(gd_call(n.step, 2, n.in)); /* makes the plan */
    assert_int_equal(gd_synchronize(n.gd), GD_OK);
    const int64_t before = guard_count.waits;
    for (int i = 0; i < 100; i++) {
        assert_non_null(gd_call(n.step, 2, n.in));
        assert_int_equal(gd_optimizer_set_lr(n.optimizer, 0.01 / (i + 1)), GD_OK);
    }
    assert_int_equal(guard_count.waits, before);
    gd_close(n.gd);
}

/* ---- refusing ---- */

static void refused_rewrites_change_no_bit(void **state)
{
    (void)state;
    const trained expected = net_train("cpu", GD_MODE_COMPILED);
    int64_t refusals = 0;
    for (uint64_t seed = 0; seed < 12; seed++) {
        guard_reset();
        guard.seed = seed;
        guard.refuse = GUARD_REFUSES_REWRITES;
        const trained t = net_train("guard", modes[seed % MODES]);
        assert_memory_equal(&t, &expected, sizeof t);
        refusals += guard_count.refusals;
    }
    assert_true(refusals > 12);
}

/* Each mode refuses the same calls. */
static void refused_ops_are_decomposed(void **state)
{
    (void)state;
    const trained expected = net_train("cpu", GD_MODE_COMPILED);
    for (uint64_t seed = 0; seed < 6; seed++) {
        trained t[MODES];
        for (int m = 0; m < MODES; m++) {
            guard_reset();
            guard.seed = seed;
            guard.refuse = GUARD_REFUSES_COMPOSITE;
            t[m] = net_train("guard", modes[m]);
            assert_true(guard_count.refusals > 0);
        }
        assert_memory_equal(&t[1], &t[0], sizeof t[0]);
        assert_memory_equal(&t[2], &t[0], sizeof t[0]);
        for (int i = 0; i < STEPS; i++)
            assert_true(fabs(t[0].loss[i] - expected.loss[i]) < 1e-4);
    }
}

/* ---- failing ---- */

/* One more step, and whether it worked. Where a kernel failed late, the loss may be any number. */
static bool net_go(net *n)
{
    gd_tensor *loss = gd_call(n->step, 2, n->in);
    (void)gd_item(loss);
    return loss && gd_error_code() == GD_OK;
}

/* The first step and the second with something failing; then, with nothing failing, another, which
 * works. Returns whether nothing failed. */
static bool net_survives(int64_t *countdown, int64_t n, bool fails_late)
{
    net t;
    guard_reset();
    guard.fails_late = fails_late;
    guard.largest_allocation = 256 << 10; /* many small chunks */
    gd_error_clear();
    assert_true(net_open(&t, "guard", GD_MODE_COMPILED));
    *countdown = n;
    if (countdown == &guard.allocation_to_fail)
        *countdown += guard_count.allocations;
    const bool ok = net_go(&t) && net_go(&t);
    const bool happened = countdown == &guard.allocation_to_fail ? !ok : *countdown == 0;
    *countdown = 0;
    if (!ok) {
        const gd_status status = gd_error_code();
        assert_true(status ==
                    (countdown == &guard.allocation_to_fail ? GD_ERR_MEMORY : GD_ERR_DEVICE));
        assert_null(strchr(gd_error_message(), '\n'));
        assert_true(*gd_error_message());
    } else {
        assert_false(happened);
    }
    gd_error_clear();
    (void)gd_synchronize(t.gd);
    gd_error_clear();
    if (!net_go(&t))
        fail_msg("after failure %lld: %s", (long long)n, gd_error_message());
    gd_close(t.gd);
    assert_int_equal(gd_error_code(), GD_OK);
    return ok;
}

static void fail_each(int64_t *countdown, bool fails_late, int64_t least)
{
    int64_t n = 1;
    while (!net_survives(countdown, n, fails_late)) {
        n++;
        assert_true(n < 10000);
    }
    assert_true(n > least);
}

static void every_kernel_may_fail(void **state)
{
    (void)state;
    fail_each(&guard.kernel_to_fail, false, 50);
}

static void every_kernel_may_fail_late(void **state)
{
    (void)state;
    fail_each(&guard.kernel_to_fail, true, 50);
}

static void every_copy_may_fail(void **state)
{
    (void)state;
    fail_each(&guard.copy_to_fail, false, 4);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    fail_each(&guard.allocation_to_fail, false, 10);
}

/* ---- which devices there are ---- */

static void devices_have_names(void **state)
{
    (void)state;
    assert_true(gd_device_count() >= 2);
    assert_string_equal(gd_device_name(0), "cpu");
    assert_string_equal(gd_device_name(1), "reference");
    for (int i = 0; i < gd_device_count(); i++) {
        gd_context *gd = gd_open(gd_device_name(i));
        assert_string_equal(gd_context_device(gd), gd_device_name(i));
        gd_close(gd);
    }
    assert_null(gd_device_name(gd_device_count()));
    assert_null(gd_device_name(-1));
    assert_null(gd_open("abacus"));
    expect_error(GD_ERR_INVALID,
                 "no device is called \"abacus\"; there are \"cpu\", \"reference\"");
    assert_null(gd_open("cpu:1"));
    expect_error(GD_ERR_INVALID, "no device is called \"cpu:1\"");
    static const gd_backend other = { .name = "cpu" };
    assert_int_equal(gd_backend_add(&other), GD_ERR_STATE);
    expect_error(GD_ERR_STATE, "there is one of that name");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        guard_test(the_host_cannot_reach_its_memory),
        guard_test(addresses_have_its_alignment),
        guard_test(work_waits_until_it_is_asked_for),
        guard_test(errors_that_values_show_come_late_and_once),
        guard_test(training_gives_the_same_bits),
        guard_test(a_step_waits_for_nothing),
        guard_test(refused_rewrites_change_no_bit),
        guard_test(refused_ops_are_decomposed),
        guard_test(every_kernel_may_fail),
        guard_test(every_kernel_may_fail_late),
        guard_test(every_copy_may_fail),
        guard_test(every_allocation_may_fail),
        guard_test(devices_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
