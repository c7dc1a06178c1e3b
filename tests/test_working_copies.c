/* tests/test_working_copies.c: copies of parameters in 16 bits, which plans of mixed precision read and
 * updates make: that the bits are those of converting at each use, whoever writes to the parameter
 * between two calls; what is made, shared and ended. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <unistd.h>

#include "support/context.h"
#include "support/dlpack.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof(array)[0]))

enum { BATCH = 6, IN = 24, WIDTH = 40, OUT = 9, STEPS = 5, MOST = 1 << 14, WEIGHTS = 3 };

typedef enum optimizer_kind { SGD, MOMENTUM, ADAM, ADAMW, OPTIMIZERS } optimizer_kind;

typedef struct setting {
    optimizer_kind optimizer;
    gd_dtype dtype;
    bool scaled, averaged;
    size_t memory_limit; /* 0: none */
} setting;

typedef struct trainee {
    setting s;
    gd_context *gd;
    gd_module *module;
    gd_optimizer *optimizer;
    gd_ema *ema; /* NULL: none */
    gd_tensor *in;
    double factor; /* of the loss */
} trainee;

/* x [batch, 24] -> [batch, 9]; the last weight is used transposed. */
static gd_tensor *network(const trainee *t, gd_tensor *x)
{
    gd_tensor *last = gd_parameter(t->module, "last", GD_SHAPE(OUT, WIDTH));
    assert_int_equal(gd_autocast_begin(t->gd, t->s.dtype), GD_OK);
    x = gd_tanh(gd_nn_linear(t->module, "first", x, WIDTH));
    x = gd_relu(gd_nn_linear(t->module, "second", x, WIDTH));
    x = gd_matmul(x, gd_transpose(last, 0, 1));
    assert_int_equal(gd_autocast_end(t->gd), GD_OK);
    return x;
}

static gd_tensor *loss_of(const trainee *t, gd_tensor *x)
{
    return gd_mul_scalar(gd_mean(gd_square(gd_cast(network(t, x), GD_F32)), GD_ALL_AXES, false),
                         t->factor);
}

static gd_tensor *step(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    trainee *t = user;
    gd_tensor *loss = loss_of(t, in[0]);
    loss = gd_minimize(t->optimizer, t->s.scaled ? gd_scale_loss(t->optimizer, loss) : loss);
    return t->ema && gd_ema_update(t->ema) != GD_OK ? NULL : loss;
}

static gd_tensor *evaluate(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    return network(user, in[0]);
}

static trainee trainee_new(gd_context *gd, setting s)
{
    trainee t = { .s = s, .gd = gd, .module = gd_module_create(gd, .seed = 7), .factor = 1 };
    t.optimizer = s.optimizer == SGD        ? gd_sgd(t.module, .lr = 0.05)
                  : s.optimizer == MOMENTUM ? gd_sgd(t.module, .lr = 0.05, .momentum = 0.9)
                  : s.optimizer == ADAM     ? gd_adam(t.module, .lr = 0.01)
                                            : gd_adamw(t.module, .lr = 0.01);
    t.ema = s.averaged ? gd_ema_create(t.module, .decay = 0.5) : NULL;
    float x[BATCH * IN];
    for (int i = 0; i < BATCH * IN; i++)
        x[i] = (float)(i * 37 % 101) / 50.5f - 1;
    t.in = gd_retain(gd_from_host(gd, GD_SHAPE(BATCH, IN), GD_F32, x));
    if (s.scaled)
        assert_int_equal(gd_optimizer_scale_losses(t.optimizer, .initial = 1024, .interval = 2),
                         GD_OK);
    assert_true(t.optimizer && t.in);
    return t;
}

static gd_function *compiled(trainee *t, gd_function_body body, gd_mode mode, const char *passes)
{
    const size_t limit =
        mode == GD_MODE_COMPILED && t->s.memory_limit ? t->s.memory_limit : SIZE_MAX;
    gd_function *f = gd_compile(t->gd, body, t, .mode = mode, .passes = passes, .detached = true,
                                .memory_limit = limit);
    assert_non_null(f);
    return f;
}

static void run(gd_function *f, const trainee *t)
{
    if (!gd_call(f, 1, &t->in))
        fail_msg("%s", gd_error_message());
}

/* All parameters. */
static size_t read_all(const trainee *t, float *values)
{
    size_t at = 0;
    for (int i = 0; i < gd_module_count(t->module); i++) {
        gd_tensor *p = gd_module_tensor(t->module, i);
        const size_t count = (size_t)gd_tensor_count(p);
        assert_true(at + count <= MOST);
        assert_int_equal(gd_tensor_read(p, values + at, count * sizeof *values), GD_OK);
        at += count;
    }
    return at;
}

static float expected[MOST], got[MOST];
static char text[1 << 16];

static const char *plan_of(const gd_function *f)
{
    assert_true(gd_plan_format(f, text, sizeof text) < sizeof text);
    return text;
}

static void expect_copies(const gd_function *f, int tensors, int read, int updated)
{
    char words[128], counts[64];
    snprintf(words, sizeof words, "working copies of %d tensors, ", tensors);
    snprintf(counts, sizeof counts, "%d read, %d updated", read, updated);
    if (!strstr(plan_of(f), words) || !strstr(text, counts))
        fail_msg("not \"%s … %s\" in\n%s", words, counts, text);
}

/* ---- without anybody else ---- */

static void bits_are_those_of_converting_at_each_use(void **state)
{
    (void)state;
    static const gd_dtype dtypes[] = { GD_BF16, GD_F16 };
    static const char *const passes[] = { "",         "-working_copies",     "-fuse",
                                          "-forward", "-schedule",           "-multi_tensor",
                                          "-sink",    "-all,+working_copies" };
    for (int d = 0; d < COUNT(dtypes); d++)
        for (int o = 0; o < 2 * OPTIMIZERS; o++) {
            const setting s = { (optimizer_kind)(o / 2), dtypes[d], o % 2, o % 2, 0 };
            gd_context *gd = gd_open(test_device(), .threads = 1);
            trainee first = trainee_new(gd, s);
            gd_function *eager = compiled(&first, step, GD_MODE_EAGER, "");
            for (int i = 0; i < STEPS; i++)
                run(eager, &first);
            const size_t count = read_all(&first, expected);
            for (int k = 0; k < 2 * COUNT(passes) + 1; k++) {
                gd_context *own = gd_open(test_device(), .threads = 1 + k % 2 * 2);
                trainee t = trainee_new(own, s);
                gd_function *f = compiled(&t, step, k ? GD_MODE_COMPILED : GD_MODE_LAZY,
                                          k ? passes[(k - 1) / 2] : "");
                for (int i = 0; i < STEPS; i++)
                    run(f, &t);
                assert_int_equal(read_all(&t, got), count);
                if (memcmp(got, expected, count * sizeof *got) != 0)
                    fail_msg("optimizer %d, %s, passes \"%s\": other bits", o / 2,
                             gd_dtype_name(s.dtype), k ? passes[(k - 1) / 2] : "");
                gd_close(own);
            }
            gd_close(gd);
        }
}

/* The update makes the copy in its own pass, and nothing converts a weight. */
static void updates_make_the_copies(void **state)
{
    (void)state;
    gd_context *gd = gd_open("cpu", .threads = 1); /* what others have kernels for is their own */
    for (int o = 0; o < OPTIMIZERS; o++) {
        const setting s = { (optimizer_kind)o, GD_BF16, false, false, 0 };
        trainee t = trainee_new(gd, s);
        gd_function *f = compiled(&t, step, GD_MODE_COMPILED, "-multi_tensor");
        run(f, &t);
        run(f, &t);
        expect_copies(f, WEIGHTS, WEIGHTS, WEIGHTS);
        assert_null(strstr(text, "converted at each run"));
        int updates = 0;
        for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
            assert_true(strncmp(line, "assign", 6) != 0);
            const char *weight = strstr(line, ".weight"), *from = strstr(line, "<-");
            if (strncmp(line, "cast", 4) == 0 && weight && from && weight > from)
                fail_msg("a weight is converted: %s", line);
            if (strncmp(line, "fused", 5) == 0 && strstr(line, "bf16[") && weight && from &&
                weight < from)
                updates++;
        }
        assert_int_equal(updates, WEIGHTS - 1); /* and that of `last` */
        gd_function_release(f);
    }
    gd_close(gd);
}

/* ---- somebody else writes to a weight between two calls ---- */

static gd_tensor *weight_of(const trainee *t)
{
    return gd_module_parameter(t->module, "second.weight");
}

static void fill(float *values, int turn)
{
    for (int i = 0; i < WIDTH * WIDTH; i++)
        values[i] = (float)((i * 29 + turn * 7) % 83) / 400 - 0.1f;
}

static void by_write(trainee *t, int turn)
{
    float values[WIDTH * WIDTH];
    fill(values, turn);
    assert_int_equal(gd_tensor_write(weight_of(t), values, sizeof values), GD_OK);
}

static void by_element(trainee *t, int turn)
{
    assert_int_equal(gd_set(weight_of(t), 0.5 + turn, 3, 4), GD_OK);
}

static void by_map(trainee *t, int turn)
{
    fill(gd_tensor_map(weight_of(t), GD_MAP_READ_WRITE), turn);
    assert_int_equal(gd_tensor_unmap(weight_of(t)), GD_OK);
}

/* Without gd_tensor_modified: the address may be known from long ago. */
static void by_address(trainee *t, int turn)
{
    static float *known;
    if (turn == 0)
        known = gd_tensor_data(weight_of(t));
    fill(known, turn);
}

static void by_dlpack(trainee *t, int turn)
{
    static DLManagedTensorVersioned *shared;
    if (turn == 0)
        shared = gd_dlpack_export(gd_detach(weight_of(t)), false);
    assert_non_null(shared);
    fill(shared->dl_tensor.data, turn);
    if (turn == STEPS - 2)
        shared->deleter(shared);
}

static void in_place(trainee *t, int turn)
{
    (void)turn;
    (void)gd_no_grad_begin(t->gd);
    assert_non_null(gd_mul_(weight_of(t), gd_scalar(t->gd, 0.75, GD_F32)));
    (void)gd_no_grad_end(t->gd);
}

static void in_a_view(trainee *t, int turn)
{
    (void)gd_no_grad_begin(t->gd);
    gd_tensor *row = gd_select(gd_detach(weight_of(t)), 0, turn);
    assert_non_null(gd_add_(row, gd_scalar(t->gd, 0.25, GD_F32)));
    (void)gd_no_grad_end(t->gd);
}

static void by_assignment(trainee *t, int turn)
{
    (void)gd_no_grad_begin(t->gd);
    assert_non_null(gd_assign(weight_of(t), gd_mul_scalar(weight_of(t), turn % 2 ? 0.5 : 1.5)));
    (void)gd_no_grad_end(t->gd);
}

static gd_tensor *shrink(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    trainee *t = user;
    (void)gd_assign(weight_of(t), gd_mul_scalar(weight_of(t), 0.9));
    return gd_sum(in[0], GD_ALL_AXES, false);
}

/* Of a plan with working copies of its own, and of one without. */
static void by_another_function(trainee *t, int turn)
{
    gd_function *f = compiled(t, shrink, GD_MODE_COMPILED, turn % 2 ? "" : "-working_copies");
    (void)gd_no_grad_begin(t->gd);
    run(f, t);
    (void)gd_no_grad_end(t->gd);
    gd_function_release(f);
}

static void by_another_optimizer(trainee *t, int turn)
{
    (void)turn;
    const float before = (float)gd_get(weight_of(t), 0, 1);
    gd_optimizer *own = gd_sgd(t->module, .lr = 0.5);
    assert_non_null(gd_minimize(own, loss_of(t, t->in)));
    assert_true((float)gd_get(weight_of(t), 0, 1) != before);
    gd_optimizer_release(own);
}

static void by_loading(trainee *t, int turn)
{
    static char path[64];
    if (turn == 0) {
        snprintf(path, sizeof path, "/tmp/gradus_copies_%ld_%d", (long)getpid(),
                 gd_context_threads(t->gd));
        assert_int_equal(gd_module_save(t->module, path), GD_OK);
    } else {
        assert_int_equal(gd_module_load(t->module, path), GD_OK);
    }
    if (turn == STEPS - 2)
        unlink(path);
}

static void by_swapping_averages(trainee *t, int turn)
{
    (void)turn;
    assert_int_equal(gd_ema_swap(t->ema), GD_OK);
}

static const struct writer {
    const char *what;
    void (*write)(trainee *t, int turn);
    bool needs_host;
} writers[] = {
    { "gd_tensor_write", by_write, false },
    { "gd_set", by_element, false },
    { "gd_tensor_map", by_map, false },
    { "gd_tensor_data", by_address, true },
    { "DLPack", by_dlpack, true },
    { "an op in place", in_place, false },
    { "an op on a view in place", in_a_view, false },
    { "gd_assign", by_assignment, false },
    { "another function", by_another_function, false },
    { "another optimizer", by_another_optimizer, false },
#ifdef GD_HAVE_JANSSON /* reads headers of files */
    { "gd_module_load", by_loading, false },
#endif
    { "gd_ema_swap", by_swapping_averages, false },
};

static size_t train_with(const struct writer *w, gd_mode mode, const char *passes, float *values)
{
    gd_context *gd = gd_open(test_device(), .threads = 2);
    trainee t = trainee_new(gd, (setting){ ADAM, GD_BF16, false, true, 0 });
    gd_function *f = compiled(&t, step, mode, passes), *g = compiled(&t, evaluate, mode, passes);
    for (int i = 0; i < STEPS; i++) {
        run(f, &t);
        if (i > 0) /* the plan is there, and its copies are of its own update */
            w->write(&t, i - 1);
        run(g, &t);
    }
    size_t count = read_all(&t, values);
    gd_tensor *last = gd_call(g, 1, &t.in);
    gd_tensor *result = gd_cast(last, GD_F32);
    assert_int_equal(gd_tensor_read(result, values + count, sizeof(float) * BATCH * OUT), GD_OK);
    gd_close(gd);
    return count + (size_t)BATCH * OUT;
}

static void copies_are_never_stale(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT(writers); i++) {
        if (writers[i].needs_host && !test_device_is_host())
            continue;
        const size_t count = train_with(&writers[i], GD_MODE_EAGER, "", expected);
        for (int k = 0; k < 3; k++) {
            assert_int_equal(train_with(&writers[i], k == 1 ? GD_MODE_LAZY : GD_MODE_COMPILED,
                                        k == 2 ? "-working_copies" : "", got),
                             count);
            if (memcmp(got, expected, count * sizeof *got) != 0)
                fail_msg("%s between two steps: other bits (%d)", writers[i].what, k);
        }
    }
}

/* A weight whose address others know is converted at each run, and the plan says so; one that was saved
 * is not. */
static void exposed_tensors_are_told(void **state)
{
    need_json();
    if (!test_device_is_host())
        skip();
    trainee t = trainee_new(*state, (setting){ SGD, GD_BF16, false, false, 0 });
    gd_function *f = compiled(&t, step, GD_MODE_COMPILED, "");
    run(f, &t);
    by_loading(&t, 0);
    by_loading(&t, STEPS - 2);
    assert_null(strstr(plan_of(f), "converted at each run"));
    by_address(&t, 0);
    assert_non_null(strstr(plan_of(f), "; 1 converted at each run, as others may write to the "
                                       "tensor\n"));
}

/* ---- a step that is passed over ---- */

static void a_step_passed_over_leaves_the_copy(void **state)
{
    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        gd_context *gd = gd_open(test_device(), .threads = 1);
        trainee t = trainee_new(gd, (setting){ ADAM, GD_F16, true, false, 0 });
        t.factor = 1e30; /* overflows f16 until the scale has shrunk */
        gd_function *f = compiled(&t, step, mode ? GD_MODE_COMPILED : GD_MODE_EAGER, "");
        float before[MOST];
        run(f, &t);
        const size_t count = read_all(&t, before);
        run(f, &t);
        assert_int_equal(read_all(&t, mode ? got : expected), count);
        assert_memory_equal(mode ? got : expected, before, count * sizeof *before);
        for (int i = 0; i < 200; i++)
            run(f, &t);
        assert_int_equal(read_all(&t, mode ? got : expected), count);
        gd_close(gd);
    }
    assert_memory_equal(got, expected, sizeof expected);
}

/* ---- programs of other forms ---- */

typedef struct form {
    gd_tensor *weight; // [24, 24]
    gd_tensor *row;    // [24], number 3
    int which;
} form;

enum { TWICE, IN_PART, READ_BEHIND, SWAPPED, VIEWED, ELEMENTWISE, FORMS };

static gd_tensor *rounded_product(gd_tensor *x, gd_tensor *w)
{
    return gd_cast(gd_matmul(gd_cast(x, GD_BF16), gd_cast(w, GD_BF16)), GD_F32);
}

static gd_tensor *form_body(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    form *f = user;
    gd_tensor *w = f->weight, *x = rounded_product(in[0], w);
    gd_tensor *next = gd_add_scalar(gd_mul_scalar(w, 0.875), 0.01);
    switch (f->which) {
    case TWICE: /* the second time of what the first one wrote */
        (void)gd_assign(w, next);
        x = gd_add(x, rounded_product(in[0], w));
        (void)gd_assign(w, gd_mul_scalar(w, 0.5));
        break;
    case IN_PART:
        (void)gd_assign(f->row, gd_select(next, 0, 3));
        break;
    case READ_BEHIND: { /* what was rounded before the assignment, read behind it */
        gd_tensor *old = gd_cast(w, GD_BF16);
        (void)gd_assign(w, next);
        x = gd_add(x, gd_cast(gd_matmul(gd_cast(x, GD_BF16), old), GD_F32));
        break;
    }
    case SWAPPED: /* of a value that is no op's own */
        (void)gd_assign(w, gd_transpose(next, 0, 1));
        break;
    case VIEWED: /* a part of it is multiplied */
        x = gd_add(x, rounded_product(in[0], gd_transpose(w, 0, 1)));
        x = gd_add(x, rounded_product(gd_slice(x, 1, 0, 12, 1), gd_slice(w, 0, 12, 24, 1)));
        (void)gd_assign(w, next);
        break;
    default: /* converted in registers, too */
        x = gd_add(x, gd_cast(gd_relu(gd_cast(gd_slice(w, 0, 0, BATCH, 1), GD_BF16)), GD_F32));
        (void)gd_assign(w, next);
    }
    return x;
}

static void other_forms_have_eager_bits(void **state)
{
    (void)state;
    for (int which = 0; which < FORMS; which++)
        for (int mode = 0; mode < 3; mode++) {
            gd_context *gd = gd_open(test_device(), .threads = 2, .seed = 3);
            form f = { gd_retain(gd_normal(gd, GD_SHAPE(IN, IN), 0, 1, GD_F32)), NULL, which };
            f.row = gd_retain(gd_select(f.weight, 0, 3));
            gd_tensor *in = gd_normal(gd, GD_SHAPE(BATCH, IN), 0, 1, GD_F32);
            gd_function *body = gd_compile(gd, form_body, &f,
                                           .mode = mode == 0   ? GD_MODE_EAGER
                                                   : mode == 1 ? GD_MODE_COMPILED
                                                               : GD_MODE_LAZY);
            float *values = mode ? got : expected;
            for (int call = 0; call < 4; call++) {
                gd_tensor *x = gd_call(body, 1, &in);
                if (!x)
                    fail_msg("%d: %s", which, gd_error_message());
                assert_int_equal(gd_tensor_read(x, values, sizeof(float) * BATCH * IN), GD_OK);
                values += BATCH * IN;
            }
            assert_int_equal(gd_tensor_read(f.weight, values, sizeof(float) * IN * IN), GD_OK);
            if (mode && memcmp(got, expected, sizeof(float) * (4 * BATCH * IN + IN * IN)) != 0)
                fail_msg("form %d, mode %d: other bits", which, mode);
            gd_close(gd);
        }
}

/* ---- sharing and ending ---- */

static gd_tensor *gradients(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    gd_tensor *loss = loss_of(user, in[0]);
    return gd_backward(loss) == GD_OK ? loss : NULL;
}

static gd_tensor *update(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    trainee *t = user;
    return gd_optimizer_step(t->optimizer) == GD_OK && gd_optimizer_zero_grad(t->optimizer) == GD_OK
               ? gd_sum(in[0], GD_ALL_AXES, false)
               : NULL;
}

/* Gradients of one function, updates of another: the second makes what the first one reads. */
static void functions_share_copies(void **state)
{
    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        gd_context *gd = gd_open(test_device(), .threads = 2);
        trainee t = trainee_new(gd, (setting){ ADAM, GD_BF16, false, false, 0 });
        const gd_mode how = mode ? GD_MODE_COMPILED : GD_MODE_EAGER;
        gd_function *f = compiled(&t, gradients, how, ""), *g = compiled(&t, update, how, "");
        for (int i = 0; i < STEPS; i++) {
            run(f, &t);
            run(f, &t);
            run(g, &t);
        }
        const size_t count = read_all(&t, mode ? got : expected);
        if (mode && test_device_is_host()) {
            expect_copies(f, WEIGHTS, WEIGHTS, 0);
            expect_copies(g, WEIGHTS, 0, WEIGHTS);
        }
        if (mode)
            assert_memory_equal(got, expected, count * sizeof *got);
        gd_close(gd);
    }
}

static size_t bytes_in_use(const gd_context *gd)
{
    return gd_memory(gd).in_use;
}

/* Two plans, one copy; with the last of them the copy ends. */
static void copies_end_with_their_plans(void **state)
{
    gd_context *gd = *state;
    trainee t = trainee_new(gd, (setting){ SGD, GD_BF16, false, false, 0 });
    run(compiled(&t, evaluate, GD_MODE_EAGER, ""), &t); /* makes the parameters */
    const size_t before = bytes_in_use(gd);
    gd_function *f = compiled(&t, evaluate, GD_MODE_COMPILED, "");
    run(f, &t);
    const size_t one = bytes_in_use(gd);
    gd_function *g = compiled(&t, evaluate, GD_MODE_COMPILED, "");
    run(g, &t);
    const size_t copies = 2 * (size_t)(WIDTH * (IN + WIDTH + OUT));
    assert_true(one >= before + copies);
    assert_true(bytes_in_use(gd) - one + copies <= one - before + 3 * 64);
    gd_function_release(f);
    run(g, &t);
    gd_function_release(g);
    assert_int_equal(bytes_in_use(gd), before);
}

/* Bytes beside the block are none where the memory of plans is limited. */
static void a_memory_limit_has_no_copies(void **state)
{
    trainee t = trainee_new(*state, (setting){ ADAM, GD_BF16, false, false, 1 << 20 });
    gd_function *f = compiled(&t, step, GD_MODE_COMPILED, "");
    run(f, &t);
    assert_null(strstr(plan_of(f), "working copies of"));
}

/* The gradient of a call reads what the call had. */
static void calls_have_gradients(void **state)
{
    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        gd_context *gd = gd_open(test_device(), .threads = 2);
        trainee t = trainee_new(gd, (setting){ SGD, GD_BF16, false, false, 0 });
        gd_function *f =
            gd_compile(gd, evaluate, &t, .mode = mode ? GD_MODE_COMPILED : GD_MODE_EAGER);
        for (int i = 0; i < STEPS; i++) {
            gd_tensor *y = gd_call(f, 1, &t.in);
            gd_tensor *loss = gd_mean(gd_square(gd_cast(y, GD_F32)), GD_ALL_AXES, false);
            if (!gd_minimize(t.optimizer, loss))
                fail_msg("%s", gd_error_message());
        }
        const size_t count = read_all(&t, mode ? got : expected);
        if (mode)
            assert_memory_equal(got, expected, count * sizeof *got);
        gd_close(gd);
    }
}

static bool train_once(int adam)
{
    gd_context *gd = gd_open(test_device(), .threads = 1);
    trainee t = { .s = { .dtype = GD_BF16 }, .gd = gd, .factor = 1 };
    t.module = gd ? gd_module_create(gd, .seed = 1) : NULL;
    t.optimizer = adam ? gd_adam(t.module) : gd_sgd(t.module);
    gd_function *f = gd_compile(gd, step, &t, .detached = true);
    gd_tensor *in = gd ? gd_zeros(gd, GD_SHAPE(BATCH, IN), GD_F32) : NULL;
    const bool ok = in && f && gd_call(f, 1, &in) && gd_call(f, 1, &in);
    gd_close(gd);
    return ok;
}

static void survives_failed_allocations(void **state)
{
    (void)state;
    fail_every_allocation(train_once, 0);
    fail_every_allocation(train_once, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_those_of_converting_at_each_use),
        cmocka_unit_test(updates_make_the_copies),
        cmocka_unit_test(copies_are_never_stale),
        context_test(exposed_tensors_are_told),
        cmocka_unit_test(a_step_passed_over_leaves_the_copy),
        cmocka_unit_test(other_forms_have_eager_bits),
        cmocka_unit_test(functions_share_copies),
        context_test(copies_end_with_their_plans),
        context_test(a_memory_limit_has_no_copies),
        context_test(calls_have_gradients),
        cmocka_unit_test(survives_failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
