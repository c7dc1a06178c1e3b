/* tests/test_frozen.c: functions compiled with .frozen: the bits are those of functions that are not,
 * on every type, instruction set and number of threads; weights are packed once, which the plan says;
 * and what changes a weight is noticed. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <unistd.h>

#include "support/context.h"
#include "support/effort.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof(array)[0]))

/* Columns do not fill vectors, depths are more than one block of k. */
enum { IN = 300, OUT = 117, MOST = 1 << 18 };

typedef enum layer_form {
    LINEAR,     /* x @ w + b, then ReLU */
    TRANSPOSED, /* w [out, in] */
    BATCH,      /* x [2, rows, in] */
    MIXED,      /* f32 parameters, rounded to bf16 by autocast */
    CONVOLVED,  /* w [out, in, 3, 3] */
    FORMS
} layer_form;

typedef struct layer {
    gd_context *gd;
    layer_form form;
    gd_tensor *w, *b; /* retained */
} layer;

static gd_tensor *apply(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    const layer *l = user;
    gd_tensor *y;
    switch (l->form) {
    case TRANSPOSED:
        return gd_matmul(in[0], gd_transpose(l->w, 0, 1));
    case CONVOLVED:
        return gd_conv2d(in[0], l->w, NULL, .padding = GD_SHAPE(1));
    case MIXED:
        assert_int_equal(gd_autocast_begin(l->gd, GD_BF16), GD_OK);
        y = gd_linear(in[0], l->w, l->b);
        assert_int_equal(gd_autocast_end(l->gd), GD_OK);
        return y;
    default:
        return gd_relu(gd_linear(in[0], l->w, l->b));
    }
}

static gd_tensor *numbers(gd_context *gd, gd_shape shape, gd_dtype dtype)
{
    return gd_cast(gd_normal(gd, shape, 0, 1, GD_F32), dtype);
}

static layer layer_new(gd_context *gd, layer_form form, gd_dtype dtype)
{
    assert_int_equal(gd_seed(gd, 3), GD_OK);
    const gd_shape shape = form == TRANSPOSED  ? GD_SHAPE(OUT, IN)
                           : form == CONVOLVED ? GD_SHAPE(16, 8, 3, 3)
                                               : GD_SHAPE(IN, OUT);
    layer l = { .gd = gd, .form = form };
    l.w = gd_retain(numbers(gd, shape, dtype));
    l.b = gd_retain(numbers(gd, GD_SHAPE(OUT), dtype));
    assert_true(l.w && l.b);
    return l;
}

static void layer_end(layer *l)
{
    gd_release(l->w);
    gd_release(l->b);
}

static gd_tensor *input_of(const layer *l, int64_t rows, gd_dtype dtype)
{
    gd_tensor *x = numbers(l->gd,
                           l->form == BATCH       ? GD_SHAPE(2, rows, IN)
                           : l->form == CONVOLVED ? GD_SHAPE(rows, 8, 9, 9)
                                                  : GD_SHAPE(rows, IN),
                           dtype);
    assert_non_null(x);
    return x;
}

/* The result of a call, as bytes. */
static size_t call(gd_function *f, gd_tensor *x, char *bytes)
{
    gd_tensor *y = gd_call(f, 1, &x);
    if (!y)
        fail_msg("%s", gd_error_message());
    const size_t size = (size_t)gd_tensor_count(y) * gd_dtype_size(gd_tensor_dtype(y));
    assert_true(size <= MOST);
    assert_int_equal(gd_tensor_read(y, bytes, size), GD_OK);
    return size;
}

static char expected[MOST], got[MOST], before[MOST];

static void expect_same(gd_function *plain, gd_function *frozen, gd_tensor *x)
{
    const size_t size = call(plain, x, expected);
    assert_int_equal(call(frozen, x, got), size);
    assert_memory_equal(got, expected, size);
}

/* Whether a plan says that its products' weights are packed once, in kernels and in totals. */
static bool is_packed(const gd_function *f)
{
    static char text[1 << 16];
    assert_true(gd_plan_explain(f, text, sizeof text) < sizeof text);
    const bool kernel = strstr(text, "B packed once: it is frozen");
    const bool total = strstr(text, "1 operand packed once, ");
    if (kernel != total || total != (gd_function_stats(f).packed_bytes > 0))
        fail_msg("one says so, another does not:\n%s", text);
    return total;
}

static void check_layer(gd_context *gd, layer_form form, gd_dtype dtype, int64_t rows, bool packed)
{
    assert_int_equal(gd_scope_begin(gd), GD_OK);
    layer l = layer_new(gd, form, dtype);
    gd_tensor *x = input_of(&l, rows, dtype);
    gd_function *plain = gd_compile(gd, apply, &l),
                *frozen = gd_compile(gd, apply, &l, .frozen = true);
    for (int run = 0; run < 2; run++)
        expect_same(plain, frozen, x);
    assert_false(is_packed(plain));
    if (is_packed(frozen) != packed)
        fail_msg("form %d of %s with %d rows on %s: %s", (int)form, gd_dtype_name(dtype), (int)rows,
                 gd_context_isa(gd), packed ? "not packed" : "packed");
    assert_int_equal(gd_context_set_threads(gd, 3 - gd_context_threads(gd)), GD_OK);
    expect_same(plain, frozen, x); /* a plan made for other threads */
    assert_int_equal(gd_context_set_threads(gd, 3 - gd_context_threads(gd)), GD_OK);
    gd_function_release(plain);
    gd_function_release(frozen);
    layer_end(&l);
    assert_int_equal(gd_scope_end(gd), GD_OK);
}

/* With one row, B is read once: it is not packed. */
static void check_layers(gd_context *gd)
{
    static int tried;
    static const gd_dtype dtypes[] = { GD_F32, GD_F64, GD_BF16, GD_F16 };
    static const int64_t rows[] = { 4, 9, 33, 150 };
    for (int r = 0; r < COUNT(rows); r++) {
        for (int d = 0; d < COUNT(dtypes); d++)
            for (int f = LINEAR; f <= BATCH; f++)
                if (!(f == BATCH && rows[r] > 100) && test_tries_alike(&tried))
                    check_layer(gd, (layer_form)f, dtypes[d], rows[r], true);
        check_layer(gd, MIXED, GD_F32, rows[r], true);
        check_layer(gd, CONVOLVED, GD_F32, rows[r] % 8 + 1, false);
    }
    check_layer(gd, LINEAR, GD_F32, 1, false);
    check_layer(gd, LINEAR, GD_F64, 1, false);
}

static void bits_are_those_of_functions_that_are_not_frozen(void **state)
{
    (void)state;
    static const char *const isas[] = { "",         "baseline", "avx2",     "avx512", "avx512_bf16",
                                        "amx_bf16", "neon",     "neon_bf16" };
    char saved[64] = "";
    if (getenv("GRADUS_ISA"))
        snprintf(saved, sizeof saved, "%s", getenv("GRADUS_ISA"));
    int ran = 0;
    for (int i = 0; i < COUNT(isas); i++)
        for (int threads = 1; threads <= 2; threads++) {
            if (isas[i][0])
                setenv("GRADUS_ISA", isas[i], 1);
            gd_context *gd = gd_open("cpu", .threads = threads);
            if (gd)
                check_layers(gd);
            gd_close(gd);
            gd_error_clear(); /* the machine has no such instructions */
            ran += gd != NULL;
        }
    if (saved[0])
        setenv("GRADUS_ISA", saved, 1);
    else
        unsetenv("GRADUS_ISA");
    assert_true(ran >= 4); /* the machine's best and the baseline */
}

/* ---- whoever changes a weight ---- */

typedef struct trainee {
    layer l;
    gd_module *module;
    gd_optimizer *optimizer;
    gd_tensor *x;
    gd_function *step;
} trainee;

static gd_tensor *train(void *user, int count, gd_tensor *const *in)
{
    trainee *t = user;
    return gd_minimize(t->optimizer, gd_mean(gd_square(gd_cast(apply(&t->l, count, in), GD_F32)),
                                             GD_ALL_AXES, false));
}

static trainee trainee_new(gd_context *gd, layer_form form)
{
    trainee t = { .l = { .gd = gd, .form = form }, .module = gd_module_create(gd, .seed = 5) };
    t.l.w = gd_retain(gd_parameter(t.module, "w", GD_SHAPE(IN, OUT)));
    t.l.b = gd_retain(gd_parameter(t.module, "b", GD_SHAPE(OUT)));
    t.optimizer = gd_sgd(t.module, .lr = 0.5);
    t.x = gd_retain(input_of(&t.l, 20, GD_F32));
    assert_true(t.optimizer && t.x);
    return t;
}

static void write_zeros(trainee *t)
{
    static const float zeros[IN * OUT];
    assert_int_equal(gd_tensor_write(t->l.w, zeros, sizeof zeros), GD_OK);
}

static void add_in_place(trainee *t)
{
    (void)gd_no_grad_begin(t->l.gd);
    assert_non_null(gd_add_(t->l.w, gd_full(t->l.gd, GD_SHAPE(IN, OUT), 0.25, GD_F32)));
    (void)gd_no_grad_end(t->l.gd);
}

static void step_eagerly(trainee *t)
{
    assert_non_null(train(t, 1, &t->x));
}

static void step_compiled(trainee *t)
{
    if (!t->step)
        t->step = gd_compile(t->l.gd, train, t, .detached = true);
    assert_non_null(gd_call(t->step, 1, &t->x));
}

/* Of a device with memory of its own there is no address: it is an op there. */
static void write_by_address(trainee *t)
{
    if (!gd_context_has_host_memory(t->l.gd)) {
        add_in_place(t);
        return;
    }
    float *w = gd_tensor_data(t->l.w);
    for (int i = 0; i < IN * OUT; i++)
        w[i] += 0.5f;
    assert_int_equal(gd_tensor_modified(t->l.w), GD_OK);
}

#ifdef GD_HAVE_JANSSON
static const char *saved_as(void)
{
    static char path[256];
    snprintf(path, sizeof path, GD_BINARY_DIR "/test_frozen_%d.safetensors", (int)getpid());
    return path;
}

static void save(const trainee *t)
{
    assert_int_equal(gd_module_save(t->module, saved_as()), GD_OK);
}

static void load(trainee *t)
{
    assert_int_equal(gd_module_load(t->module, saved_as()), GD_OK);
    assert_int_equal(remove(saved_as()), 0);
}
#else /* files of parameters need Jansson */
static void save(const trainee *t)
{
    (void)t;
}

static void load(trainee *t)
{
    add_in_place(t);
}
#endif

static void changes_are_noticed(void **state)
{
    gd_context *gd = *state;
    static void (*const changes[])(trainee * t) = { add_in_place,  step_eagerly,     step_compiled,
                                                    step_compiled, write_by_address, write_zeros,
                                                    load };
    static const layer_form forms[] = { LINEAR, MIXED };
    for (int f = 0; f < COUNT(forms); f++) {
        trainee t = trainee_new(gd, forms[f]);
        save(&t);
        gd_function *plain = gd_compile(gd, apply, &t.l, .detached = true);
        gd_function *frozen = gd_compile(gd, apply, &t.l, .detached = true, .frozen = true);
        expect_same(plain, frozen, t.x);
        if (strcmp(test_device(), "cpu") == 0)
            assert_true(is_packed(frozen));
        for (int i = 0; i < COUNT(changes); i++) {
            memcpy(before, expected, sizeof before);
            changes[i](&t);
            expect_same(plain, frozen, t.x);
            assert_memory_not_equal(before, expected, 20 * OUT * 2);
        }
    }
}

/* ---- what is not packed ---- */

/* The weight is the body's own to change. */
static gd_tensor *count_up(void *user, int count, gd_tensor *const *in)
{
    layer *l = user;
    gd_tensor *y = apply(l, count, in);
    return gd_assign(l->w, gd_add_scalar(l->w, 1)) ? y : NULL;
}

static void what_the_body_assigns_to_is_not_packed(void **state)
{
    gd_context *gd = *state;
    layer own[2] = { layer_new(gd, LINEAR, GD_F32), layer_new(gd, LINEAR, GD_F32) };
    gd_tensor *x = input_of(&own[0], 20, GD_F32);
    gd_function *plain = gd_compile(gd, count_up, &own[0]);
    gd_function *frozen = gd_compile(gd, count_up, &own[1], .frozen = true);
    for (int i = 0; i < 3; i++)
        expect_same(plain, frozen, x);
    assert_false(is_packed(frozen));
    layer_end(&own[0]);
    layer_end(&own[1]);
}

static gd_tensor *multiply_inputs(void *user, int count, gd_tensor *const *in)
{
    (void)user;
    (void)count;
    return gd_matmul(in[0], in[1]);
}

static void inputs_are_not_frozen(void **state)
{
    gd_context *gd = *state;
    gd_function *f = gd_compile(gd, multiply_inputs, NULL, .frozen = true);
    gd_tensor *in[2] = { numbers(gd, GD_SHAPE(20, IN), GD_F32),
                         numbers(gd, GD_SHAPE(IN, OUT), GD_F32) };
    assert_non_null(gd_call(f, 2, in));
    assert_false(is_packed(f));
}

static void a_memory_limit_packs_nothing(void **state)
{
    gd_context *gd = *state;
    layer l = layer_new(gd, LINEAR, GD_F32);
    gd_tensor *x = input_of(&l, 20, GD_F32);
    gd_function *f = gd_compile(gd, apply, &l, .frozen = true, .memory_limit = 1 << 20);
    assert_non_null(gd_call(f, 1, &x));
    assert_false(is_packed(f));
    layer_end(&l);
}

static bool call_once(int form)
{
    gd_context *gd = gd_open(test_device(), .threads = 1);
    layer l = { .gd = gd, .form = (layer_form)form };
    gd_tensor *x = gd ? gd_ones(gd, GD_SHAPE(20, IN), GD_F32) : NULL;
    l.w = gd ? gd_ones(gd, GD_SHAPE(IN, OUT), GD_F32) : NULL;
    l.b = gd ? gd_ones(gd, GD_SHAPE(OUT), GD_F32) : NULL;
    gd_function *f = l.w && l.b ? gd_compile(gd, apply, &l, .frozen = true) : NULL;
    const bool ok = x && f && gd_call(f, 1, &x) && gd_call(f, 1, &x);
    gd_close(gd);
    return ok;
}

static void survives_failed_allocations(void **state)
{
    (void)state;
    fail_every_allocation(call_once, LINEAR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_those_of_functions_that_are_not_frozen),
        context_test(changes_are_noticed),
        context_test(what_the_body_assigns_to_is_not_packed),
        context_test(inputs_are_not_frozen),
        context_test(a_memory_limit_packs_nothing),
        cmocka_unit_test(survives_failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
