/* tests/test_bf16_states.c: what optimizers keep in bf16: states, and parameters of bf16 modules; rounded
 * to nearest or stochastically, against steps written out here with words of Philox. Start at
 * adam_follows_its_formula. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "base/half.h"
#include "base/random.h"
#include "optim/optimizer.h"
#include "support/context.h"
#include "support/effort.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof(array)[0]))

enum { ROWS = 5, COLUMNS = 7, NUMBERS = ROWS * COLUMNS, STEPS = 6 };

/* ---- the reference ---- */

/* The bits of x in bf16: to nearest, or rounded by 16 random bits. */
static uint16_t stored(float x, bool stochastically, uint32_t noise)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return stochastically ? (uint16_t)((bits + noise) >> 16) : gd_f32_to_bf16(x);
}

/* The 16 bits that the k-th of what is stored takes of its word. */
static uint32_t noise_of(uint32_t word, int k)
{
    return k % 2 ? (word >> 16) ^ 0x8000 : word & 0xffff;
}

typedef struct trained {
    float p[NUMBERS];
    uint16_t state[2][NUMBERS];
} trained;

/* One step of gd_adam(.lr = 0.02) against g, with the words from `first` on. */
static void step_of_adam(trained *n, const float *g, int t, bool stochastically,
                         const uint32_t *words)
{
    const double root = sqrt(1 - pow(0.999, t));
    const float size = (float)((double)0.02f / (1 - pow(0.9, t)) * root);
    const float epsilon = (float)(root * 1e-8);
    for (int i = 0; i < NUMBERS; i++) {
        const float m0 = gd_bf16_to_f32(n->state[0][i]), v0 = gd_bf16_to_f32(n->state[1][i]);
        const float m = m0 + (g[i] - m0) * (float)(1 - 0.9);
        const float v = v0 * 0.999f + g[i] * (float)(1 - 0.999) * g[i];
        n->p[i] -= m * size / (sqrtf(v) + epsilon);
        n->state[0][i] = stored(m, stochastically, noise_of(words[i], 0));
        n->state[1][i] = stored(v, stochastically, noise_of(words[i], 1));
    }
}

static void step_of_sgd(trained *n, const float *g, int t, bool stochastically,
                        const uint32_t *words)
{
    (void)t;
    for (int i = 0; i < NUMBERS; i++) {
        const float b = gd_bf16_to_f32(n->state[0][i]) * 0.9f + g[i];
        n->p[i] -= b * 0.02f;
        n->state[0][i] = stored(b, stochastically, noise_of(words[i], 0));
    }
}

/* ---- steps ---- */

static void fill(float *values, float scale, uint64_t seed)
{
    gd_random random = { .seed = seed };
    for (int i = 0; i < NUMBERS; i++)
        values[i] = scale * (float)(gd_random_unit(&random) - 0.5);
}

static void read_bits(gd_tensor *t, uint16_t *bits)
{
    assert_int_equal(gd_tensor_dtype(t), GD_BF16);
    assert_int_equal(gd_tensor_read(t, bits, NUMBERS * sizeof *bits), GD_OK);
}

typedef void step_fn(trained *n, const float *g, int t, bool stochastically, const uint32_t *words);

static gd_optimizer *make_adam(gd_module *m, int stochastic)
{
    return gd_adam(m, .lr = 0.02f, .state_dtype = GD_BF16, .stochastic_rounding = stochastic);
}

static gd_optimizer *make_sgd(gd_module *m, int stochastic)
{
    return gd_sgd(m, .lr = 0.02f, .momentum = 0.9, .state_dtype = GD_BF16,
                  .stochastic_rounding = stochastic);
}

/* stochastic: the option; -1 rounds states by chance. */
static void expect_steps(gd_context *gd, gd_optimizer *(*make)(gd_module *m, int stochastic),
                         step_fn *step, int states, int stochastic)
{
    gd_module *m = gd_module_create(gd);
    gd_tensor *p = gd_parameter(m, "p", GD_SHAPE(ROWS, COLUMNS));
    gd_optimizer *o = make(m, stochastic);
    assert_non_null(o);
    trained n = { { 0 }, { { 0 } } };
    fill(n.p, 2, 1);
    assert_int_equal(gd_tensor_write(p, n.p, sizeof n.p), GD_OK);
    for (int t = 1; t <= STEPS; t++) {
        float g[NUMBERS], got[NUMBERS];
        uint32_t words[NUMBERS];
        uint16_t bits[NUMBERS];
        const gd_random_stream at = gd_random_position(gd);
        gd_philox_words(at.seed, at.position, NUMBERS, words);
        fill(g, powf(0.1F, (float)t), (uint64_t)t + 10);
        assert_int_equal(gd_set_gradient(p, gd_from_host(gd, gd_tensor_shape(p), GD_F32, g)),
                         GD_OK);
        assert_int_equal(gd_optimizer_step(o), GD_OK);
        step(&n, g, t, stochastic != 0, words);
        assert_int_equal(gd_random_position(gd).position - at.position,
                         stochastic != 0 ? NUMBERS : 0);
        assert_int_equal(gd_tensor_read(p, got, sizeof got), GD_OK);
        for (int k = 0; k < states; k++) {
            read_bits(gd_optimizer_state(o, 0, k), bits);
            assert_memory_equal(bits, n.state[k], sizeof bits);
        }
        assert_memory_equal(got, n.p, sizeof got);
    }
}

static void adam_follows_its_formula(void **state)
{
    for (int stochastic = -1; stochastic <= 1; stochastic++)
        expect_steps(*state, make_adam, step_of_adam, 2, stochastic);
}

static void momentum_follows_its_formula(void **state)
{
    for (int stochastic = -1; stochastic <= 1; stochastic++)
        expect_steps(*state, make_sgd, step_of_sgd, 1, stochastic);
}

/* A parameter in bf16 is rounded by chance only where that is said; its word is the next of its own. */
static void parameters_in_bf16_follow_their_formula(void **state)
{
    gd_context *gd = *state;
    for (int stochastic = -1; stochastic <= 1; stochastic++) {
        gd_module *m = gd_module_create(gd, .dtype = GD_BF16);
        gd_tensor *p = gd_parameter(m, "p", GD_SHAPE(ROWS, COLUMNS));
        gd_optimizer *o = make_sgd(m, stochastic);
        uint16_t want[NUMBERS], momentum[NUMBERS] = { 0 }, bits[NUMBERS], g[NUMBERS];
        read_bits(p, want);
        for (int t = 1; t <= STEPS; t++) {
            float numbers[NUMBERS];
            uint32_t words[NUMBERS];
            const gd_random_stream at = gd_random_position(gd);
            gd_philox_words(at.seed, at.position, NUMBERS, words);
            fill(numbers, 0.1F, (uint64_t)t);
            for (int i = 0; i < NUMBERS; i++) {
                g[i] = gd_f32_to_bf16(numbers[i]);
                const float b = gd_bf16_to_f32(momentum[i]) * 0.9f + gd_bf16_to_f32(g[i]);
                const float next = gd_bf16_to_f32(want[i]) - b * 0.02f;
                momentum[i] = stored(b, stochastic != 0, noise_of(words[i], 0));
                want[i] = stored(next, stochastic > 0, noise_of(words[i], 1));
            }
            assert_int_equal(gd_set_gradient(p, gd_from_host(gd, gd_tensor_shape(p), GD_BF16, g)),
                             GD_OK);
            assert_int_equal(gd_optimizer_step(o), GD_OK);
            read_bits(gd_optimizer_state(o, 0, 0), bits);
            assert_memory_equal(bits, momentum, sizeof bits);
            read_bits(p, bits);
            assert_memory_equal(bits, want, sizeof bits);
        }
    }
}

/* The mean of many roundings is the number: within five deviations of the mean of 2^20 draws. */
static void rounding_by_chance_is_unbiased(void **state)
{
    enum { DRAWS = 1 << 20 };
    static const double numbers[] = { 1 + 0x1.3p-9, -(0.75 + 0x1.dp-10), 0x1.0003p-140, 3e20 };
    gd_context *gd = *state;
    for (int i = 0; i < COUNT(numbers); i++) {
        gd_tensor *wide = gd_full(gd, GD_SHAPE(DRAWS), numbers[i], GD_F32);
        gd_rounding rounding = { 0 };
        for (int half = 0; half < 2; half++) {
            gd_tensor *drawn = gd_optimizer_stored(&rounding, wide, GD_BF16, true);
            gd_tensor *r = gd_cast(drawn, GD_F64);
            const double x = (double)(float)numbers[i],
                         mean = gd_item(gd_mean(r, GD_ALL_AXES, false));
            const double below = gd_item(gd_min(r, GD_ALL_AXES, false));
            const double above = gd_item(gd_max(r, GD_ALL_AXES, false));
            assert_true(below < x && x < above);
            const double deviation = sqrt((x - below) * (above - x) / DRAWS);
            if (fabs(mean - x) > 5 * deviation)
                fail_msg("%g: the mean is %.9g, %g deviations off", x, mean,
                         (mean - x) / deviation);
        }
    }
}

/* ---- whole steps ---- */

typedef struct trainee {
    gd_module *module;
    gd_optimizer *optimizer;
    gd_tensor *in[2];
} trainee;

static gd_tensor *network(gd_module *m, gd_tensor *x)
{
    x = gd_tanh(gd_nn_linear(m, "first", x, 64));
    x = gd_tanh(gd_nn_linear(m, "second", x, 401));
    return gd_nn_linear(m, "last", x, 3);
}

static gd_tensor *step(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    trainee *t = user;
    gd_tensor *x = gd_cast(in[0], gd_module_dtype(t->module));
    gd_tensor *y = gd_cast(network(t->module, x), GD_F32);
    return gd_minimize(t->optimizer, gd_mse(y, in[1]));
}

static const char *const names[] = { "sgd",   "rmsprop", "adam",     "adamw", "nadam",
                                     "radam", "adagrad", "adadelta", "lion",  "lamb" };

static void open_trainee(trainee *t, gd_context *gd, const char *name, gd_dtype dtype,
                         int stochastic)
{
    *t = (trainee){ .module = gd_module_create(gd, .seed = 4, .dtype = dtype) };
    const bool has_momentum = strcmp(name, "sgd") == 0 || strcmp(name, "rmsprop") == 0;
    t->optimizer =
        gd_optimizer_create(t->module, name, .lr = 0.01, .momentum = has_momentum ? 0.9 : NAN,
                            .state_dtype = GD_BF16, .stochastic_rounding = stochastic);
    assert_non_null(t->optimizer);
    t->in[0] = gd_retain(gd_normal(gd, GD_SHAPE(16, 9), 0, 1, GD_F32));
    t->in[1] = gd_retain(gd_normal(gd, GD_SHAPE(16, 3), 0, 1, GD_F32));
}

static uint64_t hash(uint64_t h, gd_tensor *t)
{
    static unsigned char bytes[1 << 18];
    const size_t size = (size_t)gd_tensor_count(t) * gd_dtype_size(gd_tensor_dtype(t));
    assert_true(size <= sizeof bytes);
    assert_int_equal(gd_tensor_read(t, bytes, size), GD_OK);
    for (size_t i = 0; i < size; i++)
        h = (h ^ bytes[i]) * UINT64_C(0x100000001b3);
    return h;
}

/* Of parameters, states, and where the random stream stands. */
static uint64_t hash_of(const trainee *t)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (int i = 0; i < gd_module_count(t->module); i++) {
        h = hash(h, gd_module_tensor(t->module, i));
        for (int k = 0; k < GD_RULE_MAX_STATES; k++)
            if (t->optimizer->slots[i].state[k])
                h = hash(h, t->optimizer->slots[i].state[k]);
    }
    return h + gd_random_position(gd_module_context(t->module)).position;
}

static uint64_t train(const char *device, const char *name, gd_dtype dtype, gd_mode mode,
                      int threads, bool scaled)
{
    gd_context *gd = gd_open(device, .threads = threads, .seed = 3);
    assert_non_null(gd);
    trainee t;
    open_trainee(&t, gd, name, dtype, true);
    if (scaled)
        assert_int_equal(gd_optimizer_scale_losses(t.optimizer, .initial = 1024), GD_OK);
    gd_function *f = gd_compile(gd, step, &t, .mode = mode);
    for (int call = 0; call < 4; call++)
        if (!gd_call(f, 2, t.in))
            fail_msg("%s: %s", name, gd_error_message());
    const uint64_t h = hash_of(&t);
    gd_close(gd);
    return h;
}

static void eager_equals_compiled_with_any_threads(void **state)
{
    (void)state;
    static const gd_dtype dtypes[] = { GD_F32, GD_BF16, GD_F64 };
    int number = 0;
    for (int i = 0; i < COUNT(names); i++)
        for (int k = 0; k < 4; k++) {
            if (!test_tries_alike(&number))
                continue;
            const gd_dtype dtype = dtypes[k % 3];
            const bool scaled = k == 3;
            const uint64_t want = train("cpu", names[i], dtype, GD_MODE_EAGER, 1, scaled);
            assert_true(train("cpu", names[i], dtype, GD_MODE_COMPILED, 1, scaled) == want);
            assert_true(train("cpu", names[i], dtype, GD_MODE_COMPILED, 2, scaled) == want);
            assert_true(train("cpu", names[i], dtype, GD_MODE_EAGER, 2, scaled) == want);
        }
}

static void a_device_gives_the_bits_of_the_cpu(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT(names); i += 2) {
        const uint64_t want = train("cpu", names[i], GD_F32, GD_MODE_COMPILED, 1, false);
        assert_true(train(test_device(), names[i], GD_F32, GD_MODE_COMPILED, 2, false) == want);
    }
}

/* ---- files ---- */

static void run(trainee *t, int steps)
{
    for (int i = 0; i < steps; i++)
        assert_non_null(step(t, 2, t->in));
}

/* A second optimizer goes on from the first one's file, module and place in the stream. */
static void resuming_goes_on_to_the_same_bits(void **state)
{
    need_json();
    char path[] = "/tmp/gradus-bf16-states-XXXXXX";
    const int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    for (int dtype = 0; dtype < 2; dtype++) {
        trainee t, other;
        gd_context *gd = *state;
        open_trainee(&t, gd, "adamw", dtype ? GD_BF16 : GD_F32, true);
        run(&t, 3);
        assert_int_equal(
            gd_training_save(&(gd_training){ GD_TRAINING_DEFAULTS, .optimizer = t.optimizer },
                             path),
            GD_OK);
        run(&t, 3);
        const uint64_t want = hash_of(&t);
        open_trainee(&other, gd, "adamw", dtype ? GD_BF16 : GD_F32, true);
        assert_non_null(network(other.module, gd_cast(t.in[0], gd_module_dtype(t.module))));
        other.in[0] = t.in[0], other.in[1] = t.in[1];
        assert_int_equal(
            gd_training_load(&(gd_training){ GD_TRAINING_DEFAULTS, .optimizer = other.optimizer },
                             path),
            GD_OK);
        run(&other, 3);
        assert_true(hash_of(&other) == want);
    }
    unlink(path);
}

/* States are converted to what the optimizer keeps: rounded to nearest, or widened. */
static void files_of_another_dtype_are_converted(void **state)
{
    need_json();
    char path[] = "/tmp/gradus-bf16-states-XXXXXX";
    const int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    gd_module *m = gd_module_create(*state);
    gd_tensor *p = gd_parameter(m, "p", GD_SHAPE(ROWS, COLUMNS));
    assert_int_equal(gd_set_gradient(p, gd_normal(*state, gd_tensor_shape(p), 0, 1, GD_F32)),
                     GD_OK);
    gd_optimizer *wide = gd_adam(m), *narrow = gd_adam(m, .state_dtype = GD_BF16);
    assert_int_equal(gd_optimizer_step(wide), GD_OK);
    assert_int_equal(gd_optimizer_save(wide, path), GD_OK);
    assert_int_equal(gd_optimizer_load(narrow, path), GD_OK);
    for (int k = 0; k < 2; k++)
        assert_same_bits(gd_optimizer_state(narrow, 0, k),
                         gd_cast(gd_optimizer_state(wide, 0, k), GD_BF16));
    assert_int_equal(gd_optimizer_save(narrow, path), GD_OK);
    gd_tensor_file *saved = gd_tensor_file_open(path);
    gd_tensor_info info;
    assert_int_equal(gd_tensor_file_info(saved, gd_tensor_file_find(saved, "p.v"), &info), GD_OK);
    assert_int_equal(info.dtype, GD_BF16);
    gd_tensor_file_close(saved);
    assert_int_equal(gd_optimizer_load(wide, path), GD_OK);
    for (int k = 0; k < 2; k++)
        assert_same_bits(gd_optimizer_state(wide, 0, k),
                         gd_cast(gd_optimizer_state(narrow, 0, k), GD_F32));
    unlink(path);
}

/* ---- what is refused, passed over, and gained ---- */

static void wrong_options_are_errors(void **state)
{
    gd_module *m = gd_module_create(*state), *halves = gd_module_create(*state, .dtype = GD_BF16);
    assert_null(gd_adam(m, .state_dtype = GD_F16));
    expect_error(GD_ERR_DTYPE, "gd_adam: states are kept in f32 or bf16, not in f16, where running "
                               "squares would be 0");
    assert_null(gd_lion(m, .state_dtype = GD_F64));
    expect_error(GD_ERR_DTYPE, "gd_lion: states are kept in f32 or bf16, not in f64");
    assert_null(gd_optimizer_create(m, "sgd", .stochastic_rounding = 2));
    expect_error(GD_ERR_INVALID, "gd_sgd: stochastic_rounding is 2");
    assert_null(gd_ema_create(halves));
    expect_error(GD_ERR_DTYPE, "gd_ema_create: the parameters are bf16");
    assert_null(gd_lbfgs_create(halves));
    expect_error(GD_ERR_DTYPE, "gd_lbfgs_create: the parameters are bf16");
}

/* States are halves of what they were. */
static void states_take_half_the_memory(void **state)
{
    trainee t;
    open_trainee(&t, *state, "adam", GD_F32, -1);
    run(&t, 1);
    for (int i = 0; i < gd_module_count(t.module); i++)
        for (int k = 0; k < 2; k++)
            assert_int_equal(gd_tensor_dtype(t.optimizer->slots[i].state[k]), GD_BF16);
}

static void a_step_that_is_passed_over_leaves_states(void **state)
{
    gd_context *gd = *state;
    gd_module *m = gd_module_create(gd, .dtype = GD_BF16);
    gd_tensor *p = gd_parameter(m, "p", GD_SHAPE(ROWS, COLUMNS));
    gd_optimizer *o = make_adam(m, true);
    assert_int_equal(gd_optimizer_scale_losses(o, .initial = 4), GD_OK);
    gd_tensor *x = gd_normal(gd, gd_tensor_shape(p), 0, 1, GD_BF16);
    uint16_t before[3][NUMBERS], after[NUMBERS];
    assert_non_null(gd_minimize(o, gd_mul(p, x)));
    for (int k = 0; k < 3; k++)
        read_bits(k < 2 ? gd_optimizer_state(o, 0, k) : p, before[k]);
    assert_non_null(gd_minimize(o, gd_mul(p, gd_full(gd, GD_SCALAR, INFINITY, GD_BF16))));
    for (int k = 0; k < 3; k++) {
        read_bits(k < 2 ? gd_optimizer_state(o, 0, k) : p, after);
        assert_memory_equal(after, before[k], sizeof after);
    }
    assert_non_null(gd_minimize(o, gd_mul(p, x)));
    read_bits(p, after);
    assert_memory_not_equal(after, before[2], sizeof after);
}

/* Small steps of gd_sgd from 1 towards 0: to nearest, none is seen. */
static void updates_below_half_a_digit_add_up(void **state)
{
    gd_context *gd = *state;
    for (int stochastic = 0; stochastic < 2; stochastic++) {
        gd_module *m = gd_module_create(gd, .dtype = GD_BF16);
        gd_tensor *p = gd_parameter(m, "p", GD_SHAPE(64, 64), .init = GD_INIT_ONES);
        gd_optimizer *o = gd_sgd(m, .lr = 1e-3, .stochastic_rounding = stochastic);
        assert_int_equal(gd_set_gradient(p, gd_ones_like(p)), GD_OK);
        for (int i = 0; i < 300; i++)
            assert_int_equal(gd_optimizer_step(o), GD_OK);
        const double mean = gd_item(gd_mean(gd_cast(p, GD_F64), GD_ALL_AXES, false));
        if (stochastic)
            assert_true(fabs(mean - 0.7) < 0.005);
        else
            assert_true(mean == 1);
    }
}

/* A running square of gradients that become small falls as that in f32 does, or, to nearest, not at all. */
static void running_squares_can_shrink(void **state)
{
    gd_context *gd = *state;
    for (int stochastic = -1; stochastic < 1; stochastic++) {
        gd_module *m = gd_module_create(gd);
        gd_tensor *p = gd_parameter(m, "p", GD_SHAPE(64, 64));
        gd_optimizer *o = gd_adam(m, .state_dtype = GD_BF16, .stochastic_rounding = stochastic);
        gd_tensor *v = gd_optimizer_reserve(o) ? gd_optimizer_state(o, 0, 1) : NULL;
        assert_non_null(gd_assign(v, gd_ones_like(v)));
        assert_int_equal(gd_set_gradient(p, gd_zeros_like(p)), GD_OK);
        for (int i = 0; i < 300; i++)
            assert_int_equal(gd_optimizer_step(o), GD_OK);
        const double mean = gd_item(gd_mean(gd_cast(v, GD_F64), GD_ALL_AXES, false));
        if (stochastic)
            assert_true(fabs(mean - pow(0.999, 300)) < 0.005);
        else
            assert_true(mean == 1);
    }
}

/* The loss of the network after some steps of gd_adam. */
static double loss_after(gd_context *gd, gd_dtype dtype, gd_dtype states, int stochastic)
{
    trainee t;
    open_trainee(&t, gd, "adam", dtype, -1);
    gd_optimizer_release(t.optimizer);
    t.optimizer =
        gd_adam(t.module, .lr = 2e-4, .state_dtype = states, .stochastic_rounding = stochastic);
    (void)gd_seed(gd, 5);
    t.in[0] = gd_normal(gd, GD_SHAPE(64, 9), 0, 1, GD_F32);
    t.in[1] = gd_sin(gd_slice(t.in[0], 1, 0, 3, 1));
    gd_function *f = gd_compile(gd, step, &t);
    double loss = NAN;
    for (int i = 0; i < 600; i++) {
        gd_scope_begin(gd);
        loss = gd_item(gd_call(f, 2, t.in));
        gd_scope_end(gd);
    }
    gd_function_release(f);
    return loss;
}

static void training_in_bf16_reaches_the_loss_of_f32(void **state)
{
    TEST_OF_ONE_THREAD();
    const double full = loss_after(*state, GD_F32, GD_F32, -1);
    const double states = loss_after(*state, GD_F32, GD_BF16, -1);
    const double chance = loss_after(*state, GD_BF16, GD_BF16, true);
    const double nearest = loss_after(*state, GD_BF16, GD_BF16, false);
    print_message("f32 %g, states %g, all in bf16: by chance %g, nearest %g\n", full, states,
                  chance, nearest);
    assert_true(states < 1.2 * full);
    assert_true(chance < 2 * full);
    assert_true(nearest > 4 * full);
}

/* Two steps on a bf16 parameter, so that states and it are rounded. */
static bool two_steps(int mode)
{
    gd_context *gd = gd_open(test_device(), .threads = 1);
    gd_module *m = gd ? gd_module_create(gd, .dtype = GD_BF16) : NULL;
    trainee t = { .module = m };
    t.optimizer = m ? gd_adam(m, .state_dtype = GD_BF16, .stochastic_rounding = true) : NULL;
    t.in[0] = gd ? gd_ones(gd, GD_SHAPE(4, 9), GD_F32) : NULL;
    t.in[1] = gd ? gd_ones(gd, GD_SHAPE(4, 3), GD_F32) : NULL;
    gd_function *f = t.optimizer ? gd_compile(gd, step, &t, .mode = (gd_mode)mode) : NULL;
    bool ok = f && t.in[0] && t.in[1];
    for (int i = 0; ok && i < 2; i++)
        ok = gd_call(f, 2, t.in);
    gd_close(gd);
    return ok;
}

static void failing_allocations_leave_nothing_behind(void **state)
{
    (void)state;
    TEST_OF_ONE_THREAD();
    fail_every_allocation(two_steps, GD_MODE_COMPILED);
    fail_every_allocation(two_steps, GD_MODE_EAGER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        context_test(adam_follows_its_formula),
        context_test(momentum_follows_its_formula),
        context_test(parameters_in_bf16_follow_their_formula),
        context_test(rounding_by_chance_is_unbiased),
        cmocka_unit_test(eager_equals_compiled_with_any_threads),
        cmocka_unit_test(a_device_gives_the_bits_of_the_cpu),
        context_test(resuming_goes_on_to_the_same_bits),
        context_test(files_of_another_dtype_are_converted),
        context_test(wrong_options_are_errors),
        context_test(states_take_half_the_memory),
        context_test(a_step_that_is_passed_over_leaves_states),
        context_test(updates_below_half_a_digit_add_up),
        context_test(running_squares_can_shrink),
        context_test(training_in_bf16_reaches_the_loss_of_f32),
        cmocka_unit_test(failing_allocations_leave_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
