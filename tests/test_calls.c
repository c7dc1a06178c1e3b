/* tests/test_calls.c: what calls of compiled functions do with what they should not be given: bad
 * arguments, bodies that fail, read values that are not there, end scopes that are not theirs, call
 * themselves, or release themselves. In every mode, with the same outcome and nothing left behind.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>

#include "support/context.h"
#include "support/data.h"

static const gd_mode modes[] = { GD_MODE_COMPILED, GD_MODE_EAGER, GD_MODE_LAZY };
enum { MODES = sizeof modes / sizeof *modes };

/* What bodies are given as `user`. */
typedef struct things {
    gd_context *gd, *other;
    gd_function *self;
    gd_tensor *kept;
    int depth;
} things;

static gd_tensor *add(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_add(in[0], in[1]);
}

/* f(x) is refused with this code and these words, twice; then an ordinary call still works. */
static void expect_refusal(gd_context *gd, gd_mode mode, gd_function_body body, things *t,
                           gd_status code, const char *words)
{
    int64_t before = gd_memory(gd).live_tensors;
    t->gd = gd;
    t->self = gd_compile(gd, body, t, .mode = mode);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(gd_scope_begin(gd), GD_OK);
        gd_tensor *x = gd_ones(gd, GD_SHAPE(3), GD_F32);
        t->depth = 0;
        assert_null(gd_call(t->self, 1, &x));
        expect_error(code, words);
        float read[3];
        assert_int_equal(gd_tensor_read(gd_neg(x), read, sizeof read), GD_OK);
        assert_true(read[2] == -1);
        assert_int_equal(gd_scope_end(gd), GD_OK);
    }
    assert_int_equal(gd_function_stats(t->self).plans, 0);
    gd_function_release(t->self);
    assert_int_equal(gd_memory(gd).live_tensors, before);
    assert_int_equal(gd_scope_end(gd), GD_ERR_STATE); /* none is open */
    gd_error_clear();
}

/* ---- arguments ---- */

static void bad_arguments_are_named(void **state)
{
    gd_context *gd = *state, *other = gd_open(test_device(), .threads = 1);
    gd_tensor *x = gd_ones(gd, GD_SHAPE(4), GD_F32), *y = gd_ones(other, GD_SHAPE(4), GD_F32);
    for (int m = 0; m < MODES; m++) {
        gd_function *f = gd_compile(gd, add, NULL, .mode = modes[m]);
        assert_null(gd_call(NULL, 2, (gd_tensor *[]){ x, x }));
        expect_error(GD_ERR_INVALID, "gd_call: the function is NULL");
        assert_null(gd_call(f, -1, &x));
        expect_error(GD_ERR_INVALID, "gd_call: -1 inputs");
        assert_null(gd_call(f, 2, NULL));
        expect_error(GD_ERR_INVALID, "gd_call: 2 inputs, but the array of them is NULL");
        assert_null(gd_call(f, 2, (gd_tensor *[]){ x, NULL }));
        expect_error(GD_ERR_INVALID, "gd_call: input 1 is NULL");
        assert_null(gd_call(f, 2, (gd_tensor *[]){ x, y }));
        expect_error(GD_ERR_INVALID, "gd_call: input 1 belongs to another context");
        assert_null(gd_call(f, 2, (gd_tensor *[]){ x, gd_ones(gd, GD_SHAPE(3), GD_F32) }));
        expect_error(GD_ERR_SHAPE, "gd_add: shapes [4] and [3]");
        assert_null(gd_function_result(f, 0));
        assert_int_equal(gd_item(gd_sum(gd_call(f, 2, (gd_tensor *[]){ x, x }), GD_ALL_AXES, 0)),
                         8);
    }
    gd_close(other);
}

/* ---- how many inputs there are ---- */

static gd_tensor *sum_of_all(void *user, int count, gd_tensor *const *in)
{
    (void)user;
    gd_tensor *sum = in[0];
    for (int i = 1; i < count; i++)
        sum = gd_add(sum, in[i]);
    return gd_mul_scalar(sum, count);
}

static gd_tensor *sum_in_a_block(void *user, int count, gd_tensor *const *in)
{
    return gd_checkpoint(sum_of_all, user, count, in);
}

static gd_tensor *sum_by_another(void *user, int count, gd_tensor *const *in)
{
    return gd_call(((things *)user)->self, count, in);
}

/* Called, inlined and run again behind a checkpoint, a body is told its number of inputs. */
static void bodies_know_how_many_inputs_there_are(void **state)
{
    static const gd_function_body bodies[] = { sum_of_all, sum_in_a_block, sum_by_another };
    gd_context *gd = *state;
    gd_tensor *x[3];
    for (int i = 0; i < 3; i++)
        x[i] = gd_set_requires_grad(gd_full(gd, GD_SHAPE(2), i + 1, GD_F32), true);
    for (int k = 0; k < 3 * MODES; k++) {
        const gd_mode mode = modes[k % MODES];
        things t = { .self = gd_compile(gd, sum_of_all, NULL, .mode = mode) };
        gd_function *f = gd_compile(gd, bodies[k / MODES], &t, .mode = mode);
        static const int counts[] = { 2, 1, 3, 2 };
        static const float sums[] = { 3, 1, 6, 3 };
        for (int i = 0; i < 4; i++) {
            const int n = counts[i];
            gd_tensor *y = gd_call(f, n, x), *loss = gd_sum(y, GD_ALL_AXES, false), *g[3];
            assert_same_bits(y, gd_full(gd, GD_SHAPE(2), (double)n * sums[i], GD_F32));
            assert_int_equal(gd_grad(1, &loss, NULL, n, x, g), GD_OK);
            assert_same_bits(g[n - 1], gd_full(gd, GD_SHAPE(2), n, GD_F32));
        }
    }
}

/* The body expects two inputs. Of an earlier call's nothing is left to be read. */
static void reading_an_input_too_many_is_an_error(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = gd_ones(gd, GD_SHAPE(3), GD_F32), *two[2] = { x, x };
    for (int m = 0; m < MODES; m++) {
        if (modes[m] == GD_MODE_EAGER)
            continue; /* the array is the caller's own */
        gd_function *f = gd_compile(gd, add, NULL, .mode = modes[m]);
        assert_non_null(gd_call(f, 2, two));
        assert_null(gd_call(f, 1, two));
        expect_error(GD_ERR_INVALID, "did it read more than the 1 inputs");
        assert_non_null(gd_call(f, 2, two));
    }
}

/* ---- bodies ---- */

static gd_tensor *null_in_silence(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    (void)in;
    return NULL;
}

/* Half-way: what was recorded before goes. */
static gd_tensor *fails_half_way(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_output(gd_neg(in[0]));
    return gd_add(gd_exp(in[0]), gd_reshape(in[0], GD_SHAPE(2, 2)));
}

/* An error that the body does not look at. */
static gd_tensor *ignores_an_error(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *none = gd_matmul(in[0], gd_ones(gd_tensor_context(in[0]), GD_SHAPE(7, 7), GD_F32));
    return none ? none : in[0];
}

static gd_tensor *clears_an_error(void *user, int count, gd_tensor *const *in)
{
    if (ignores_an_error(user, count, in) == in[0])
        gd_error_clear();
    return gd_neg(in[0]);
}

static gd_tensor *leaves_scopes_open(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    things *t = user;
    for (int i = 0; i < 3; i++)
        assert_int_equal(gd_scope_begin(t->gd), GD_OK);
    assert_int_equal(gd_no_grad_begin(t->gd), GD_OK);
    gd_trace_pause(t->gd);
    gd_trace_resume(t->gd);
    return gd_neg(in[0]);
}

static gd_tensor *ends_scopes_of_others(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    things *t = user;
    gd_tensor *y = gd_neg(in[0]);
    (void)gd_scope_end(t->gd);
    return y;
}

/* What a body of another function left open is not left open here. */
static gd_tensor *calls_one_that_leaves_scopes_open(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    things *t = user;
    gd_function *f = gd_compile(t->gd, leaves_scopes_open, t);
    gd_tensor *y = gd_call(f, 1, in);
    assert_int_equal(gd_scope_end(t->gd), GD_ERR_STATE);
    gd_error_clear();
    return gd_neg(gd_neg(y));
}

static gd_tensor *calls_itself(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    things *t = user;
    return gd_add(gd_call(t->self, 1, in), in[0]);
}

/* Plain C ends it. */
static gd_tensor *calls_itself_four_times(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    things *t = user;
    return t->depth++ == 4 ? in[0] : gd_add(gd_call(t->self, 1, in), in[0]);
}

static gd_tensor *calls_itself_while_paused(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    things *t = user;
    gd_trace_pause(t->gd);
    gd_tensor *x = gd_ones(t->gd, GD_SHAPE(3), GD_F32);
    gd_tensor *y = t->depth++ < 3 ? gd_call(t->self, 1, &x) : x;
    gd_trace_resume(t->gd);
    return gd_add(y, in[0]);
}

static gd_tensor *releases_itself(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    things *t = user;
    gd_function_release(t->self);
    return gd_neg(in[0]);
}

static gd_tensor *result_of_another_context(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    (void)in;
    things *t = user;
    return gd_ones(t->other, GD_SHAPE(3), GD_F32);
}

static void bodies_that_fail_leave_nothing_behind(void **state)
{
    gd_context *gd = *state;
    things t = { .gd = gd };
    for (int m = 0; m < MODES; m++) {
        const gd_mode mode = modes[m];
        const bool eager = mode == GD_MODE_EAGER;
        expect_refusal(gd, mode, null_in_silence, &t, GD_ERR_INVALID,
                       "gd_call: the body returned NULL without an error");
        expect_refusal(gd, mode, fails_half_way, &t, GD_ERR_SHAPE, "gd_reshape");
        expect_refusal(gd, mode, ignores_an_error, &t, GD_ERR_SHAPE, "gd_matmul");
        expect_refusal(gd, mode, ends_scopes_of_others, &t, GD_ERR_STATE,
                       "gd_scope_end: no scope is open that the compiled function's body began");
        expect_refusal(gd, mode, calls_itself, &t, GD_ERR_STATE, "500 calls within one another");
        expect_refusal(gd, mode, releases_itself, &t, GD_ERR_STATE, "body is being run");
        if (!eager)
            expect_refusal(gd, mode, calls_itself_while_paused, &t, GD_ERR_STATE,
                           "cannot call it while tracing is paused");
        if (!eager) {
            t.other = gd_open(test_device(), .threads = 1);
            expect_refusal(gd, mode, result_of_another_context, &t, GD_ERR_INVALID,
                           "the body's result is of another context");
            gd_close(t.other);
        }
    }
}

static void bodies_may_be_untidy(void **state)
{
    gd_context *gd = *state;
    things t = { .gd = gd };
    static const struct {
        gd_function_body body;
        float result;
    } cases[] = { { clears_an_error, -1 },
                  { leaves_scopes_open, -1 },
                  { calls_one_that_leaves_scopes_open, -1 },
                  { calls_itself_four_times, 5 } };
    for (int m = 0; m < MODES; m++)
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
            assert_int_equal(gd_scope_begin(gd), GD_OK);
            gd_tensor *x = gd_set_requires_grad(gd_ones(gd, GD_SHAPE(3), GD_F32), true);
            t.depth = 0;
            t.self = gd_compile(gd, cases[c].body, &t, .mode = modes[m]);
            gd_tensor *y = gd_call(t.self, 1, &x);
            float read[3] = { 0 };
            assert_int_equal(gd_tensor_read(y, read, sizeof read), GD_OK);
            assert_true(read[0] == cases[c].result && read[2] == cases[c].result);
            assert_true(gd_requires_grad(gd_neg(x))); /* gd_no_grad_begin was undone */
            gd_function_release(t.self);
            assert_int_equal(gd_scope_end(gd), GD_OK);
            assert_int_equal(gd_scope_end(gd), GD_ERR_STATE);
            gd_error_clear();
        }
}

/* ---- values that are not there ---- */

static gd_tensor *clears_nothing(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_neg(in[0]);
}

/* Eager, the branch is the other one: no plan may be made of it. */
static gd_tensor *branches_on_a_value(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_item(gd_sum(in[0], GD_ALL_AXES, false)) > 0 ? gd_exp(in[0]) : gd_neg(in[0]);
}

/* An error from before, which nobody cleared, neither lets a plan be made of a wrong branch nor
 * fails a call that is right, and is no other function's status. */
static void errors_from_before_change_nothing(void **state)
{
    gd_context *gd = *state;
    static const float values[4] = { 1, 2, 3, 4 };
    gd_tensor *x = gd_from_host(gd, GD_SHAPE(4), GD_F32, values), *none = NULL, *g;
    for (int m = 0; m < MODES; m++) {
        assert_null(gd_reshape(x, GD_SHAPE(7)));
        gd_function *f = gd_compile(gd, branches_on_a_value, NULL, .mode = modes[m]);
        if (modes[m] == GD_MODE_EAGER)
            assert_same_bits(gd_call(f, 1, &x), gd_exp(x));
        else
            assert_null(gd_call(f, 1, &x));
        assert_int_equal(gd_function_stats(f).plans, 0);
        gd_function *h = gd_compile(gd, clears_nothing, NULL, .mode = modes[m]);
        assert_same_bits(gd_call(h, 1, &x), gd_neg(x));
        assert_int_equal(gd_tensor_write(x, values, 3), GD_ERR_SHAPE);
        assert_int_equal(gd_backward(none), GD_ERR_INVALID);
        assert_int_equal(gd_grad(1, &none, NULL, 1, &x, &g), GD_ERR_INVALID);
        if (modes[m] == GD_MODE_COMPILED)
            assert_int_equal(gd_function_prepare(f, 1, &x), GD_ERR_STATE);
        expect_error(GD_ERR_SHAPE, "gd_reshape"); /* the first is still there */
    }
}

static gd_tensor *reads_a_value(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    float read[3] = { 0 };
    (void)gd_tensor_read(in[0], read, sizeof read);
    return gd_mul_scalar(in[0], read[0]);
}

static gd_tensor *keeps_a_value(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    things *t = user;
    gd_release(t->kept);
    t->kept = gd_retain(gd_neg(in[0]));
    return gd_exp(in[0]);
}

static void traced_values_cannot_be_read(void **state)
{
    gd_context *gd = *state;
    things t = { .gd = gd };
    const char *words = "no value while its function is being traced";
    for (int m = 0; m < MODES; m++) {
        if (modes[m] == GD_MODE_EAGER)
            continue;
        expect_refusal(gd, modes[m], branches_on_a_value, &t, GD_ERR_STATE, words);
        expect_refusal(gd, modes[m], reads_a_value, &t, GD_ERR_STATE, words);
        gd_tensor *x = gd_ones(gd, GD_SHAPE(3), GD_F32);
        gd_function *f = gd_compile(gd, keeps_a_value, &t, .mode = modes[m]);
        assert_non_null(gd_call(f, 1, &x));
        float read[3];
        assert_int_equal(gd_tensor_read(t.kept, read, sizeof read), GD_ERR_STATE);
        expect_error(GD_ERR_STATE, words);
        assert_null(gd_add(t.kept, x));
        expect_error(GD_ERR_STATE, "operand 0 is a value of a compiled function");
        assert_null(gd_assign(x, t.kept));
        expect_error(GD_ERR_STATE, "gd_assign: the value is one of a compiled function");
        assert_null(gd_assign(t.kept, x));
        expect_error(GD_ERR_STATE, "gd_assign: the target is a traced value");
        assert_int_equal(gd_tensor_write(t.kept, read, sizeof read), GD_ERR_STATE);
        gd_error_clear();
        assert_null(gd_call(f, 1, &t.kept));
        expect_error(GD_ERR_STATE, "gd_call: input 0 has no value");
        gd_release(t.kept);
        t.kept = NULL;
    }
}

/* What a body may do with values from outside. */
typedef struct host_things {
    gd_context *gd;
    gd_tensor *t, *one;
    gd_module *m;
    gd_optimizer *optimizer;
    gd_ema *ema;
    gd_loader *loader;
    const char *path;
    int what;
    bool paused;
} host_things;

enum { HOST_ACTIONS = 11 };

static void act(const host_things *h)
{
    float values[3] = { 7, 8, 9 };
    gd_batch batch;
    if (h->what == 0)
        (void)gd_tensor_read(h->t, values, sizeof values);
    else if (h->what == 1)
        (void)gd_tensor_write(h->t, values, sizeof values);
    else if (h->what == 2)
        (void)gd_item(h->one);
    else if (h->what == 3)
        (void)gd_tensor_data(h->t);
    else if (h->what == 4)
        (void)gd_tensor_modified(h->t);
    else if (h->what == 5)
        (void)gd_seed(h->gd, 3);
    else if (h->what == 6)
        (void)gd_optimizer_set_lr(h->optimizer, 0.5);
    else if (h->what == 7)
        (void)gd_ema_swap(h->ema);
    else if (h->what == 8)
        (void)gd_loader_next(h->loader, &batch);
    else if (h->what == 9)
        (void)gd_module_load(h->m, h->path);
    else
        (void)gd_optimizer_load(h->optimizer, h->path);
}

static gd_tensor *acts_on_values(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    host_things *h = user;
    if (h->paused)
        gd_trace_pause(h->gd);
    act(h);
    if (h->paused)
        gd_trace_resume(h->gd);
    return gd_neg(in[0]);
}

static void open_host_things(host_things *h, gd_context *gd, const char *path)
{
    static const float samples[4] = { 1, 2, 3, 4 };
    static const int64_t labels[4] = { 0 };
    *h = (host_things){ .gd = gd, .path = path, .m = gd_module_create(gd, .seed = 1) };
    h->one = gd_scalar(gd, 1, GD_F32);
    h->t = gd_full(gd, GD_SHAPE(3), 1, GD_F32);
    assert_non_null(gd_nn_linear(h->m, "fc", gd_ones(gd, GD_SHAPE(1, 2), GD_F32), 2));
    h->optimizer = gd_adam(h->m, .lr = 0.25);
    h->ema = gd_ema_create(h->m);
    assert_int_equal(gd_ema_update(h->ema), GD_OK);
    gd_dataset *d = labelled_samples(gd, GD_SHAPE(1), GD_F32, 1, 4, samples, labels);
    h->loader = gd_loader_create(d, .batch = 1);
}

/* What would happen once, while the body is traced, where eagerly it happens at every call. */
static void values_are_not_touched_while_tracing(void **state)
{
    host_things h;
    open_host_things(&h, *state, GD_BINARY_DIR "/none.safetensors");
    gd_tensor *x = gd_ones(h.gd, GD_SHAPE(3), GD_F32);
    for (h.what = 0; h.what < HOST_ACTIONS; h.what++)
        for (int m = 0; m < MODES; m++) {
            if (h.what == 3 && !gd_context_has_host_memory(h.gd))
                continue; /* there is no gd_tensor_data */
            const bool traced = modes[m] != GD_MODE_EAGER;
            gd_function *f = gd_compile(h.gd, acts_on_values, &h, .mode = modes[m]);
            h.paused = false;
            gd_tensor *y = gd_call(f, 1, &x);
            if (traced || h.what >= 9)
                assert_null(y);
            else
                assert_same_bits(y, gd_neg(x));
            if (traced)
                expect_error(GD_ERR_STATE, "a function is being traced");
            gd_error_clear();
            h.paused = true;
            y = gd_call(f, 1, &x);
            if (h.what >= 9) { /* there is no such file */
                expect_error(GD_ERR_IO, "none.safetensors");
                continue;
            }
            assert_same_bits(y, gd_neg(x));
            gd_function_release(f);
        }
    assert_true(gd_optimizer_lr(h.optimizer) == 0.5);
}

/* A value computed in the body becomes a leaf, as it may eagerly; then in a checkpoint's. */
static gd_tensor *differentiates_by_a_middle(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *z = gd_transpose(gd_mul_scalar(in[0], 2), 0, 1), *g;
    if (!gd_set_requires_grad(z, true) || !gd_set_requires_grad(z, true))
        return NULL;
    gd_tensor *loss = gd_sum(gd_square(gd_exp(z)), GD_ALL_AXES, false);
    if (gd_set_requires_grad(loss, false)) /* has a history */
        return NULL;
    gd_error_clear();
    return gd_grad(1, &loss, NULL, 1, &z, &g) == GD_OK ? gd_output(g) : NULL;
}

static void leaves_are_the_same_eagerly_and_compiled(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = gd_reshape(gd_linspace(gd, -1, 1, 6, GD_F32), GD_SHAPE(2, 3));
    gd_function *eager = gd_compile(gd, differentiates_by_a_middle, NULL, .mode = GD_MODE_EAGER);
    gd_tensor *want = gd_call(eager, 1, &x);
    for (int i = 0; i < 2; i++) {
        gd_function *f = gd_compile(gd, differentiates_by_a_middle, NULL,
                                    .mode = i ? GD_MODE_LAZY : GD_MODE_COMPILED);
        for (int call = 0; call < 3; call++)
            assert_same_bits(gd_call(f, 1, &x), want);
        assert_int_equal(gd_function_stats(f).plans, 1);
    }
}

/* ---- arguments that share memory with what a call writes to ---- */

/* Several kernels, and the argument is read by the first and the last. */
static gd_tensor *one_step(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    gd_tensor *h = in[0], *w = user;
    for (int i = 0; i < 5; i++)
        h = gd_tanh(gd_matmul(h, w));
    gd_output(gd_add(in[1], h));
    return gd_add(h, gd_mul_scalar(in[0], 0.5));
}

/* 20 steps, each on results of the one before: whole, a view of them, in reverse; then one of the
 * results alone. */
static void iterate(gd_mode mode, float *last)
{
    gd_context *gd = gd_open(test_device(), .threads = 1, .seed = 4);
    gd_tensor *w = gd_normal(gd, GD_SHAPE(3, 3), 0, 1, GD_F32);
    gd_tensor *x[2] = { gd_ones(gd, GD_SHAPE(3, 3), GD_F32), gd_ones(gd, GD_SHAPE(3, 3), GD_F32) };
    gd_function *f = gd_compile(gd, one_step, w, .mode = mode);
    for (int i = 0; i < 20; i++) {
        gd_tensor *r = gd_call(f, 2, x), *more = gd_function_result(f, 1);
        assert_non_null(r);
        x[0] = i % 4 == 1 ? gd_flip(r, GD_AXES(0, 1)) : i % 4 == 2 ? gd_transpose(r, 0, 1) : r;
        x[1] = i % 3 == 1 ? r : gd_flip(more, GD_AXES(1));
    }
    assert_int_equal(gd_tensor_read(gd_contiguous(x[0]), last, 9 * sizeof *last), GD_OK);
    assert_int_equal(gd_tensor_read(gd_contiguous(x[1]), last + 9, 9 * sizeof *last), GD_OK);
    gd_close(gd);
}

static void results_may_be_arguments_of_the_next_call(void **state)
{
    (void)state;
    float last[MODES][18];
    for (int m = 0; m < MODES; m++)
        iterate(modes[m], last[m]);
    assert_memory_equal(last[0], last[1], sizeof last[0]);
    assert_memory_equal(last[0], last[2], sizeof last[0]);
}

static gd_tensor *reads_after_assigning(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    things *t = user;
    gd_tensor *before = gd_mul_scalar(in[0], 1.5);
    gd_assign(t->kept, gd_add_scalar(t->kept, 1));
    return gd_add(in[0], before);
}

/* Eagerly it sees the new contents; a plan does not know that the two are one, and says so. */
static void arguments_that_are_assigned_to_are_refused(void **state)
{
    gd_context *gd = *state;
    things t = { .kept = gd_arange(gd, 0, 4, 1, GD_F32) };
    gd_tensor *other = gd_arange(gd, 0, 4, 1, GD_F32);
    for (int m = 0; m < MODES; m++) {
        if (modes[m] == GD_MODE_EAGER)
            continue;
        gd_function *f = gd_compile(gd, reads_after_assigning, &t, .mode = modes[m]);
        assert_non_null(gd_call(f, 1, &other));
        gd_tensor *shared[2] = { t.kept, gd_slice(t.kept, 0, 1, 3, 1) };
        for (int i = 0; i < 2; i++) {
            assert_null(gd_call(f, 1, &shared[i]));
            expect_error(GD_ERR_STATE, "input 0 lies in the memory of a tensor that the function");
        }
        assert_non_null(gd_call(f, 1, &other));
    }
    assert_true(gd_item(gd_select(t.kept, 0, 0)) == 4); /* by the calls that were carried out */
}

/* What is given back at the end shows what was assigned, views too. */
static gd_tensor *gives_views_of_what_it_assigns(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    things *t = user;
    gd_output(gd_slice(t->kept, 0, 1, 3, 1));
    gd_tensor *view = gd_reshape(t->kept, GD_SHAPE(2, 2));
    gd_assign(t->kept, gd_add(t->kept, in[0]));
    gd_output(t->kept);
    return view;
}

static void views_of_what_is_assigned_show_it(void **state)
{
    gd_context *gd = *state;
    gd_tensor *one = gd_ones(gd, GD_SHAPE(4), GD_F32);
    for (int m = 0; m < MODES; m++) {
        things t = { .kept = gd_arange(gd, 0, 4, 1, GD_F32) };
        gd_function *f = gd_compile(gd, gives_views_of_what_it_assigns, &t, .mode = modes[m]);
        for (int call = 1; call <= 3; call++) {
            assert_non_null(gd_call(f, 1, &one));
            gd_tensor *now = gd_arange(gd, call, 4 + call, 1, GD_F32);
            assert_same_bits(gd_function_result(f, 0), gd_reshape(now, GD_SHAPE(2, 2)));
            assert_same_bits(gd_function_result(f, 1), gd_slice(now, 0, 1, 3, 1));
            assert_same_bits(gd_function_result(f, 2), now);
        }
    }
}

/* ---- .passes ---- */

static bool plans_under(gd_context *gd, const char *passes, char *text, size_t size)
{
    gd_tensor *x = gd_ones(gd, GD_SHAPE(3), GD_F32);
    gd_function *f = gd_compile(gd, add, NULL, .passes = passes);
    bool ok = f && gd_function_prepare(f, 2, (gd_tensor *[]){ x, x }) == GD_OK;
    gd_plan_format(f, text, size);
    gd_function_release(f);
    return ok;
}

static void misspelt_passes_are_refused(void **state)
{
    static const char *const bad[] = { "-fuze",       "fuse",       "-",      "+",
                                       "-fuse,-csee", "-fuse;-cse", "--fuse", "-al",
                                       "-allx",       "-FUSE",      "- fuse" };
    static const struct {
        const char *list;
        bool fuse, cse;
    } good[] = { { "", true, true },
                 { ",, ", true, true },
                 { "-fuse", false, true },
                 { " -fuse , -cse,", false, false },
                 { "-fuse -cse", false, false },
                 { "-all", false, false },
                 { "-all,+fuse", true, false },
                 { "-cse,+all,-fuse", false, true } };
    char text[2048];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(plans_under(*state, bad[i], text, sizeof text));
        expect_error(GD_ERR_INVALID, "the passes are simplify cse");
    }
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(plans_under(*state, good[i].list, text, sizeof text));
        assert_int_equal(strstr(text, " fuse off;") == NULL, good[i].fuse);
        assert_int_equal(strstr(text, " cse off;") == NULL, good[i].cse);
    }
}

/* The environment is asked once for each function, when it is made, and only where .passes is not
 * given. */
static void passes_are_the_environments_where_none_are_given(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = gd_ones(gd, GD_SHAPE(3), GD_F32);
    char text[2048];
    setenv("GRADUS_PASSES", "-fuse", 1);
    gd_function *f = gd_compile(gd, add, NULL);
    setenv("GRADUS_PASSES", "-cse", 1);
    assert_int_equal(gd_function_prepare(f, 2, (gd_tensor *[]){ x, x }), GD_OK);
    gd_plan_format(f, text, sizeof text);
    assert_non_null(strstr(text, " fuse off;"));
    assert_null(strstr(text, " cse off;"));
    assert_true(plans_under(gd, "", text, sizeof text));
    assert_null(strstr(text, " cse off;"));
    setenv("GRADUS_PASSES", "-fuze", 1);
    assert_null(gd_compile(gd, add, NULL));
    expect_error(GD_ERR_INVALID, "\"-fuze\" in .passes or GRADUS_PASSES");
    unsetenv("GRADUS_PASSES");
}

/* ---- limits ---- */

static gd_tensor *deep(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    gd_tensor *h = in[0], *w = user, *g;
    for (int i = 0; i < 12; i++)
        h = gd_tanh(gd_matmul(h, w));
    gd_tensor *loss = gd_sum(h, GD_ALL_AXES, false);
    if (gd_grad(1, &loss, NULL, 1, &w, &g) != GD_OK)
        return NULL;
    gd_output(g);
    return loss;
}

/* The least that .memory_limit = 1 says was reached can be had, with or without a history, and one
 * byte less is refused. */
static void the_least_that_is_said_is_reached(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = gd_normal(gd, GD_SHAPE(64, 16), 0, 1, GD_F32);
    gd_tensor *w = gd_set_requires_grad(gd_normal(gd, GD_SHAPE(16, 16), 0, 0.2, GD_F32), true);
    for (int detached = 0; detached < 2; detached++) {
        gd_function *f = gd_compile(gd, deep, w, .detached = detached);
        assert_non_null(gd_call(f, 1, &x));
        gd_tensor *g = gd_retain(gd_neg(gd_neg(gd_function_result(f, 1))));
        const size_t whole = gd_function_stats(f).arena_bytes;
        f = gd_compile(gd, deep, w, .detached = detached, .memory_limit = 1);
        assert_null(gd_call(f, 1, &x));
        const char *said = strstr(gd_error_message(), "reached is ");
        assert_non_null(said);
        const size_t least = strtoul(said + strlen("reached is "), NULL, 10);
        expect_error(GD_ERR_MEMORY, ".memory_limit = 1 B");
        assert_in_range(least, 1, whole - 1);
        f = gd_compile(gd, deep, w, .detached = detached, .memory_limit = least - 1);
        assert_null(gd_call(f, 1, &x));
        gd_error_clear();
        const size_t limits[] = { least, least + 1, whole - 1, whole, SIZE_MAX };
        for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
            f = gd_compile(gd, deep, w, .detached = detached, .memory_limit = limits[i]);
            assert_non_null(gd_call(f, 1, &x));
            assert_true(gd_function_stats(f).arena_bytes <= limits[i]);
            assert_same_bits(gd_function_result(f, 1), g);
        }
        gd_release(g);
    }
}

/* The gradient of the sum of x^2 by a tensor outside, of which x may be made. */
static gd_tensor *gradient_by_what_is_outside(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    const things *t = user;
    gd_tensor *sum = gd_sum(gd_square(in[0]), GD_ALL_AXES, false), *of = t->kept, *g = NULL;
    return gd_grad(1, &sum, NULL, 1, &of, &g) == GD_OK ? g : NULL;
}

static void bodies_do_not_see_what_arguments_are_made_of(void **state)
{
    gd_context *gd = *state;
    things t = { .kept = gd_set_requires_grad(gd_full(gd, GD_SHAPE(3), 5, GD_F32), true) };
    gd_tensor *x = gd_mul_scalar(t.kept, 2);
    for (int i = 0; i < MODES; i++) {
        gd_function *f = gd_compile(gd, gradient_by_what_is_outside, &t, .mode = modes[i]);
        assert_same_bits(gd_call(f, 1, &x),
                         gd_full(gd, GD_SHAPE(3), modes[i] == GD_MODE_EAGER ? 40 : 0, GD_F32));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        context_test(bad_arguments_are_named),
        context_test(bodies_know_how_many_inputs_there_are),
        context_test(reading_an_input_too_many_is_an_error),
        context_test(bodies_that_fail_leave_nothing_behind),
        context_test(bodies_may_be_untidy),
        context_test(errors_from_before_change_nothing),
        context_test(traced_values_cannot_be_read),
        context_test(values_are_not_touched_while_tracing),
        context_test(leaves_are_the_same_eagerly_and_compiled),
        context_test(results_may_be_arguments_of_the_next_call),
        context_test(arguments_that_are_assigned_to_are_refused),
        context_test(views_of_what_is_assigned_show_it),
        context_test(bodies_do_not_see_what_arguments_are_made_of),
        context_test(misspelt_passes_are_refused),
        context_test(passes_are_the_environments_where_none_are_given),
        context_test(the_least_that_is_said_is_reached),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
