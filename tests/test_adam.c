/* tests/test_adam.c: the step of Adam is one op, read from plans, so that its kernel cannot vanish
 * unseen; with the bits of its formula in elementwise ops, whatever is fused with it, and whichever
 * passes run. (That optimizers compute what they should is test_optimizers.c's.) */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>

#include "ops/adam.h"
#include "support/context.h"
#include "support/effort.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof(array)[0]))

enum { CALLS = 4, MOST = 1 << 16, PARAMETERS = 5 };

typedef struct setting {
    const char *what;
    bool decoupled, amsgrad, clips_norm, clips_value, scales_losses, rounds;
    bool narrow; /* states in bf16, rounded stochastically */
    double weight_decay;
    gd_dtype dtype;
    int steps_of_adam; /* on the CPU, as ops of the plan */
} setting;

static const setting settings[] = {
    { .what = "adam", .steps_of_adam = PARAMETERS },
    { .what = "penalty", .weight_decay = 0.1, .steps_of_adam = PARAMETERS },
    { .what = "adamw", .decoupled = true, .weight_decay = 0.2, .steps_of_adam = PARAMETERS },
    { .what = "norm", .clips_norm = true, .steps_of_adam = PARAMETERS },
    { .what = "value", .clips_value = true, .steps_of_adam = PARAMETERS },
    { .what = "bf16", .rounds = true, .steps_of_adam = PARAMETERS },
    { .what = "amsgrad", .amsgrad = true },
    { .what = "scaled", .scales_losses = true }, /* its choices are fused with formulas */
    { .what = "f64", .dtype = GD_F64 },
    { .what = "states", .narrow = true, .steps_of_adam = PARAMETERS },
    { .what = "states, norm", .narrow = true, .clips_norm = true, .steps_of_adam = PARAMETERS },
    { .what = "states, adamw",
      .narrow = true,
      .decoupled = true,
      .weight_decay = 0.2,
      .steps_of_adam = PARAMETERS },
    { .what = "states, amsgrad", .narrow = true, .amsgrad = true },
    { .what = "states, scaled", .narrow = true, .scales_losses = true },
    { .what = "states, f64", .narrow = true, .dtype = GD_F64 },
};

typedef struct trainee {
    const setting *s;
    gd_module *module;
    gd_optimizer *optimizer;
} trainee;

static gd_tensor *weight(const trainee *t, const char *name, gd_shape shape)
{
    return gd_parameter(t->module, name, shape,
                        .init = shape.rank < 2 ? GD_INIT_ONES : GD_INIT_GLOROT_UNIFORM);
}

/* Gradients of several shapes: strided as that of `last` (used transposed), of one element, a sum of
 * two, and large enough for two threads. in: f32 or f64 [16, 9], [16, 9]. */
static gd_tensor *step(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    trainee *t = user;
    gd_context *gd = gd_module_context(t->module);
    if (t->s->rounds)
        (void)gd_autocast_begin(gd, GD_BF16);
    gd_tensor *first = weight(t, "first", GD_SHAPE(9, 401)),
              *last = weight(t, "last", GD_SHAPE(9, 401));
    gd_tensor *x = gd_tanh(gd_linear(in[0], first, weight(t, "bias", GD_SHAPE(401))));
    x = gd_mul(x, gd_add(weight(t, "number", GD_SCALAR), weight(t, "one", GD_SHAPE(1))));
    x = gd_matmul(x, gd_transpose(last, 0, 1));
    x = gd_add(x, gd_matmul(gd_matmul(x, last), gd_transpose(last, 0, 1)));
    if (t->s->rounds)
        (void)gd_autocast_end(gd);
    gd_tensor *loss = gd_mse(gd_cast(x, gd_tensor_dtype(in[1])), in[1]);
    return gd_minimize(t->optimizer,
                       t->s->scales_losses ? gd_scale_loss(t->optimizer, loss) : loss);
}

static void open_trainee(trainee *t, gd_context *gd, const setting *s)
{
    *t = (trainee){ .s = s, .module = gd_module_create(gd, .seed = 4, .dtype = s->dtype) };
    const gd_dtype states = s->narrow ? GD_BF16 : GD_DTYPE_COUNT;
    t->optimizer = s->decoupled ? gd_adamw(t->module, .lr = 0.02, .weight_decay = s->weight_decay,
                                           .amsgrad = s->amsgrad, .state_dtype = states)
                                : gd_adam(t->module, .lr = 0.02, .weight_decay = s->weight_decay,
                                          .amsgrad = s->amsgrad, .state_dtype = states);
    assert_non_null(t->optimizer);
    if (s->clips_norm)
        assert_int_equal(gd_optimizer_clip_norm(t->optimizer, 0.05), GD_OK);
    if (s->clips_value)
        assert_int_equal(gd_optimizer_clip_value(t->optimizer, 1e-3), GD_OK);
    if (s->scales_losses)
        assert_int_equal(gd_optimizer_scale_losses(t->optimizer, .initial = 1024), GD_OK);
}

/* Parameters after CALLS steps. text: the plan of a compiled one, or NULL. */
static size_t train(const char *device, const setting *s, gd_mode mode, int threads,
                    const char *passes, unsigned char *values, char *text, size_t size)
{
    gd_context *gd = gd_open(device, .threads = threads, .seed = 3);
    if (!gd)
        fail_msg("%s", gd_error_message());
    trainee t;
    open_trainee(&t, gd, s);
    gd_tensor *in[2];
    for (int i = 0; i < 2; i++)
        in[i] = gd_normal(gd, GD_SHAPE(16, 9), 0, 1, s->dtype);
    gd_function *f = gd_compile(gd, step, &t, .mode = mode, .passes = passes, .detached = true);
    for (int call = 0; call < CALLS; call++)
        if (!gd_call(f, 2, in))
            fail_msg("%s: %s", s->what, gd_error_message());
    size_t bytes = 0;
    assert_int_equal(gd_module_count(t.module), PARAMETERS);
    for (int i = 0; i < PARAMETERS; i++) {
        const gd_tensor *p = gd_module_tensor(t.module, i);
        const size_t more = (size_t)gd_tensor_count(p) * gd_dtype_size(s->dtype);
        assert_true(bytes + more <= MOST);
        assert_int_equal(gd_tensor_read(p, values + bytes, more), GD_OK);
        bytes += more;
    }
    if (text)
        assert_true(gd_plan_format(f, text, size) < size);
    gd_close(gd);
    return bytes;
}

static unsigned char expected[MOST], got[MOST];
static char text[1 << 16];

/* How many groups of the plan, each with its instructions in braces, hold the op. A kernel of several
 * updates is one line, so that pass is off. */
static int count_steps(const char *plan)
{
    int steps = 0;
    for (const char *line = plan; *line; line += *line == '\n') {
        const size_t length = strcspn(line, "\n");
        const char *brace = memchr(line, '{', length),
                   *found = brace ? strstr(brace, "adam") : NULL;
        steps += found && found < line + length;
        line += length;
    }
    return steps;
}

static void every_update_in_a_plan_is_the_op(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT(settings); i++) {
        (void)train("cpu", &settings[i], GD_MODE_COMPILED, 1, "-multi_tensor", got, text,
                    sizeof text);
        if (count_steps(text) != settings[i].steps_of_adam)
            fail_msg("%s: %d steps of adam in\n%s", settings[i].what, count_steps(text), text);
    }
    (void)train("reference", &settings[0], GD_MODE_COMPILED, 1, "", got, text, sizeof text);
    assert_null(strstr(text, "adam")); /* it has no kernel for the op */
}

/* What is made of the gradient before, and read by the update alone, is of its group. */
static void gradients_are_fused_with_the_update(void **state)
{
    (void)state;
    static const struct {
        int setting;
        const char *group;
    } rows[] = { { 1, "mul add adam*" }, { 3, "mul adam*" }, { 4, "adam*" } };
    for (int i = 0; i < COUNT(rows); i++) {
        (void)train("cpu", &settings[rows[i].setting], GD_MODE_COMPILED, 1, "-multi_tensor", got,
                    text, sizeof text);
        if (!strstr(text, rows[i].group))
            fail_msg("%s: no group \"%s\" in\n%s", settings[rows[i].setting].what, rows[i].group,
                     text);
    }
}

/* Without fusion it is a kernel by itself. */
static void the_op_has_a_kernel_of_its_own(void **state)
{
    (void)state;
    (void)train("cpu", &settings[0], GD_MODE_COMPILED, 1, "-fuse,-multi_tensor", got, text,
                sizeof text);
    int lines = 0;
    for (const char *at = text; (at = strstr(at, "\nadam ")) != NULL; at++)
        lines++;
    assert_int_equal(lines, PARAMETERS);
}

/* Of every mode, number of threads and choice of passes; and where the op is not taken: in f32 the
 * formula's ops, which "-all" leaves alone on a device without the op. */
static void bits_are_those_of_the_formula(void **state)
{
    (void)state;
    static const char *const passes[] = { "",          "-fuse",      "-multi_tensor", "-forward",
                                          "-schedule", "-recompute", "-dead,-cse",    "-all" };
    int number = 0;
    for (int i = 0; i < COUNT(settings); i++) {
        const setting *s = &settings[i];
        const size_t bytes = train(test_device(), s, GD_MODE_EAGER, 1, "", expected, NULL, 0);
        for (int mode = 0; mode < 2 + COUNT(passes); mode++)
            for (int threads = 1; threads <= 3; threads++) {
                if (!test_tries_alike(&number))
                    continue;
                const gd_mode how = mode == 0   ? GD_MODE_EAGER
                                    : mode == 1 ? GD_MODE_LAZY
                                                : GD_MODE_COMPILED;
                assert_int_equal(train(test_device(), s, how, threads,
                                       mode < 2 ? "" : passes[mode - 2], got, NULL, 0),
                                 bytes);
                if (memcmp(expected, got, bytes) != 0)
                    fail_msg("%s: other bits, mode %d, %d threads", s->what, mode, threads);
            }
    }
}

/* ---- the op by itself ---- */

static void open_operands(gd_tensor *const *given, gd_tensor *in[GD_ADAM_OPERANDS])
{
    static const double number[] = { 0.02, 1e-6, 0.1, 0.999, 0.001, 0.99 };
    for (int k = 0; k < GD_ADAM_OPERANDS; k++)
        in[k] = k < GD_ADAM_NUMBERS
                    ? given[k]
                    : gd_scalar(gd_tensor_context(given[0]), number[k - GD_ADAM_NUMBERS], GD_F32);
}

/* user: which result. */
static gd_tensor *result_of_step(void *user, int count, gd_tensor *const *given)
{
    (void)count;
    gd_tensor *in[GD_ADAM_OPERANDS], *out[GD_ADAM_RESULTS];
    open_operands(given, in);
    return gd_adam_step(in, out) ? out[*(const int *)user] : NULL;
}

/* Results of which others are read by nobody, too; and a reader within the function. */
static void each_result_may_be_read_alone(void **state)
{
    (void)state;
    char saved[32] = "";
    if (getenv("GRADUS_ISA"))
        snprintf(saved, sizeof saved, "%s", getenv("GRADUS_ISA"));
    static const char *const isa[] = { "baseline", "avx2", "avx512", "neon" };
    for (int i = 0; i < COUNT(isa); i++) {
        setenv("GRADUS_ISA", isa[i], 1);
        gd_context *gd = gd_open("cpu", .threads = 2, .seed = 5);
        if (!gd) { /* not on this machine */
            gd_error_clear();
            continue;
        }
        for (int turned = 0; turned < 2; turned++) {
            gd_tensor *given[4], *in[GD_ADAM_OPERANDS], *out[GD_ADAM_RESULTS];
            for (int k = 0; k < 4; k++) {
                given[k] =
                    gd_normal(gd, turned ? GD_SHAPE(131, 77) : GD_SHAPE(77, 131), 0, 1, GD_F32);
                given[k] = turned ? gd_transpose(given[k], 0, 1) : given[k];
            }
            given[GD_ADAM_V] = gd_square(given[GD_ADAM_V]);
            open_operands(given, in);
            assert_true(gd_adam_step(in, out)); /* eagerly: by elementwise ops */
            for (int r = 0; r < GD_ADAM_RESULTS; r++)
                for (int fuses = 0; fuses < 2; fuses++) {
                    gd_function *f = gd_compile(gd, result_of_step, &r, .detached = true,
                                                .passes = fuses ? "" : "-fuse");
                    assert_same_bits(gd_call(f, 4, given), out[r]);
                    assert_true(gd_plan_format(f, text, sizeof text) < sizeof text);
                    assert_non_null(strstr(text, "adam"));
                    gd_function_release(f);
                }
        }
        gd_close(gd);
    }
    if (saved[0])
        setenv("GRADUS_ISA", saved, 1);
    else
        unsetenv("GRADUS_ISA");
}

/* user: which operand is made by a chain of multiplications and additions, as the last of the group is the
 * square that v is. All results, one behind the other. */
static gd_tensor *step_of_chained_operand(void *user, int count, gd_tensor *const *given)
{
    (void)count;
    const int which = *(const int *)user;
    gd_tensor *in[GD_ADAM_OPERANDS], *out[GD_ADAM_RESULTS];
    open_operands(given, in);
    in[which] = gd_add_scalar(gd_mul_scalar(in[which], 1.5), 0.5);
    in[GD_ADAM_V] = gd_square(in[which == GD_ADAM_V ? GD_ADAM_V : GD_ADAM_M]);
    return gd_adam_step(in, out) ? gd_stack(GD_ADAM_RESULTS, out, 0) : NULL;
}

/* Values that stay in a register from op to op are in memory, too, where the step of Adam reads them. */
static void operands_may_be_made_by_chains(void **state)
{
    gd_context *gd = *state;
    static const int64_t counts[] = { 1031, 70001 }; /* chains of three, and of two */
    for (int c = 0; c < COUNT(counts); c++)
        for (int which = 0; which < GD_ADAM_NUMBERS; which++) {
            gd_tensor *given[4];
            for (int k = 0; k < 4; k++)
                given[k] = gd_uniform(gd, GD_SHAPE(counts[c]), 0.5, 2, GD_F32);
            gd_function *f = gd_compile(gd, step_of_chained_operand, &which, .detached = true);
            assert_same_bits(gd_call(f, 4, given), step_of_chained_operand(&which, 4, given));
            gd_function_release(f);
        }
}

static void operands_that_do_not_fit_are_refused(void **state)
{
    gd_context *gd = *state;
    gd_tensor *given[4], *in[GD_ADAM_OPERANDS];
    for (int k = 0; k < 4; k++)
        given[k] = gd_ones(gd, k == 2 ? GD_SHAPE(3, 2) : GD_SHAPE(2, 3), GD_F32);
    int r = 0;
    gd_function *f = gd_compile(gd, result_of_step, &r, .detached = true);
    assert_null(gd_call(f, 4, given));
    assert_int_equal(gd_error_code(), GD_ERR_SHAPE);
    gd_error_clear();
    open_operands(given, in);
    in[GD_ADAM_G] = NULL;
    gd_tensor *out[GD_ADAM_RESULTS];
    assert_false(gd_adam_step(in, out));
    gd_error_clear();
}

/* Every allocation fails once, in recording, planning and running: an error, and the step after it
 * has the bits. */
static void failed_allocations_change_no_bit(void **state)
{
    (void)state;
    const setting *s = &settings[3];
    const size_t bytes = train("cpu", s, GD_MODE_COMPILED, 1, "", expected, NULL, 0);
    bool done = false;
    for (int64_t n = 0; !done; n += TEST_UNDER_TSAN || TEST_UNDER_MEMORY_CHECKS ? 37 : 5) {
        gd_context *gd = gd_open("cpu", .threads = 1, .seed = 3);
        trainee t;
        open_trainee(&t, gd, s);
        gd_tensor *in[2];
        for (int i = 0; i < 2; i++)
            in[i] = gd_normal(gd, GD_SHAPE(16, 9), 0, 1, GD_F32);
        gd_function *f = gd_compile(gd, step, &t, .detached = true);
        gd_fail_allocations_after(n);
        const bool called = gd_call(f, 2, in) != NULL;
        done = gd_fail_allocations_after(-1) <= n;
        assert_true(called == done);
        gd_error_clear();
        for (int call = called; call < CALLS; call++)
            assert_non_null(gd_call(f, 2, in));
        size_t at = 0;
        for (int i = 0; i < PARAMETERS; i++) {
            const gd_tensor *p = gd_module_tensor(t.module, i);
            const size_t more = (size_t)gd_tensor_count(p) * sizeof(float);
            assert_int_equal(gd_tensor_read(p, got + at, more), GD_OK);
            at += more;
        }
        assert_int_equal(at, bytes);
        assert_memory_equal(got, expected, bytes);
        gd_close(gd);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_update_in_a_plan_is_the_op),
        cmocka_unit_test(gradients_are_fused_with_the_update),
        cmocka_unit_test(the_op_has_a_kernel_of_its_own),
        cmocka_unit_test(bits_are_those_of_the_formula),
        cmocka_unit_test(each_result_may_be_read_alone),
        context_test(operands_may_be_made_by_chains),
        context_test(operands_that_do_not_fit_are_refused),
        cmocka_unit_test(failed_allocations_change_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
