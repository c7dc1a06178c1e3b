/* tests/test_f64_models.c: models in double precision from end to end: a perceptron, a
 * convolutional and a recurrent network and a Transformer are made, trained eagerly and compiled,
 * saved and loaded; nothing on the way goes through f32. And the dtype rules of modules, layers and
 * files. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "support/context.h"

enum { BATCH = 4, STEPS = 8 };

typedef gd_tensor *(*forward_fn)(gd_module *m, gd_tensor *x);

typedef struct network {
    const char *name;
    gd_shape input;
    forward_fn forward;
} network;

static gd_tensor *mlp(gd_module *m, gd_tensor *x)
{
    gd_tensor *h = gd_nn_dropout(m, "drop", gd_tanh(gd_nn_linear(m, "fc1", x, 8)), 0.25);
    return gd_nn_linear(m, "fc2", h, 3, .init = GD_INIT_ORTHOGONAL);
}

static gd_tensor *convolutional(gd_module *m, gd_tensor *x)
{
    gd_tensor *h = gd_nn_conv2d(m, "conv", x, 6, GD_SHAPE(3), .padding = GD_SHAPE(1),
                                .init = GD_INIT_TRUNCATED_NORMAL);
    h = gd_max_pool2d(gd_relu(gd_nn_batch_norm(m, "norm", h)), GD_SHAPE(2));
    return gd_nn_linear(m, "fc", gd_reshape(h, GD_SHAPE(BATCH, -1)), 3);
}

static gd_tensor *recurrent(gd_module *m, gd_tensor *x)
{
    gd_tensor *last = gd_select(gd_nn_lstm(m, "lstm", x, 6), 1, -1);
    return gd_nn_linear(m, "fc", last, 3);
}

static gd_tensor *transformer(gd_module *m, gd_tensor *x)
{
    const gd_transformer_config config = { GD_TRANSFORMER_CONFIG_DEFAULTS, .heads = 2, .layers = 1,
                                           .hidden = 16, .dropout = 0.1 };
    gd_tensor *position =
        gd_sinusoidal_positions(gd_tensor_context(x), 0, 5, 8, gd_module_dtype(m));
    gd_tensor *h = gd_nn_encoder(m, "encoder", gd_add(x, position), &config);
    return gd_nn_linear(m, "fc", gd_mean(h, GD_AXES(1), false), 3);
}

#define NETWORK(forward_, ...)                            \
    {                                                     \
#forward_, GD_SHAPE(BATCH, __VA_ARGS__), forward_ \
    }

static int networks(network out[4])
{
    const network all[4] = { NETWORK(mlp, 7), NETWORK(convolutional, 2, 6, 6),
                             NETWORK(recurrent, 5, 4), NETWORK(transformer, 5, 8) };
    memcpy(out, all, sizeof all);
    return 4;
}

typedef struct training {
    const network *network;
    gd_module *m;
    gd_optimizer *optimizer;
} training;

static gd_tensor *loss_of(const training *t, gd_tensor *x, gd_tensor *y)
{
    return gd_cross_entropy(t->network->forward(t->m, x), y);
}

static gd_tensor *step(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    training *t = user;
    return gd_minimize(t->optimizer, loss_of(t, in[0], in[1]));
}

static gd_tensor *some_input(gd_context *gd, const network *n, gd_dtype dtype)
{
    assert_int_equal(gd_seed(gd, 11), GD_OK);
    return gd_normal(gd, n->input, 0.0, 1.0, dtype);
}

static gd_tensor *some_classes(gd_context *gd)
{
    static const int64_t classes[BATCH] = { 0, 2, 1, 2 };
    return gd_from_host(gd, GD_SHAPE(BATCH), GD_I64, classes);
}

/* Train for a while; *first and *last are the first and the last loss. */
static void train(gd_context *gd, training *t, bool compiled, double *first, double *last)
{
    gd_tensor *in[2] = { some_input(gd, t->network, GD_F64), some_classes(gd) };
    gd_function *f = compiled ? gd_compile(gd, step, t) : NULL;
    assert_int_equal(gd_seed(gd, 5), GD_OK);
    for (int i = 0; i < STEPS; i++) {
        gd_tensor *loss = NULL;
        if (compiled) {
            assert_true(gd_call(f, 2, in));
            loss = gd_function_result(f, 0);
        } else {
            loss = step(t, 2, in);
        }
        if (!loss)
            fail_msg("%s: %s", t->network->name, gd_error_message());
        assert_int_equal(gd_tensor_dtype(loss), GD_F64);
        *last = gd_item(loss);
        if (i == 0)
            *first = *last;
    }
}

static void assert_same_modules(gd_module *a, gd_module *b)
{
    assert_int_equal(gd_module_count(a), gd_module_count(b));
    for (int i = 0; i < gd_module_count(a); i++) { /* files have an order of their own */
        int k = 0;
        while (k < gd_module_count(b) && strcmp(gd_module_path(a, i), gd_module_path(b, k)) != 0)
            k++;
        assert_int_equal(gd_module_is_parameter(a, i), gd_module_is_parameter(b, k));
        assert_same_bits(gd_module_tensor(a, i), gd_module_tensor(b, k));
    }
}

static void trains_alike_eagerly_and_compiled(void **state)
{
    gd_context *gd = *state;
    network all[4];
    for (int k = 0, n = networks(all); k < n; k++) {
        training t[2];
        double first[2], last[2];
        for (int i = 0; i < 2; i++) {
            t[i] = (training){ .network = &all[k],
                               .m = gd_module_create(gd, .seed = 3, .dtype = GD_F64) };
            t[i].optimizer = gd_adamw(t[i].m, .lr = 0.02);
            assert_int_equal(gd_optimizer_clip_norm(t[i].optimizer, 5.0), GD_OK);
            train(gd, &t[i], i == 1, &first[i], &last[i]);
        }
        assert_true(last[0] < first[0]);
        assert_true(first[0] == first[1] && last[0] == last[1]);
        for (int i = 0; i < gd_module_count(t[0].m); i++)
            assert_int_equal(gd_tensor_dtype(gd_module_tensor(t[0].m, i)), GD_F64);
        assert_same_modules(t[0].m, t[1].m);
    }
}

/* A difference quotient is right to eight digits only if all of the way is computed in f64. */
static void computes_in_f64_throughout(void **state)
{
    gd_context *gd = *state;
    network all[4];
    for (int k = 0, n = networks(all); k < n; k++) {
        training t = { .network = &all[k], .m = gd_module_create(gd, .seed = 3, .dtype = GD_F64) };
        gd_tensor *x = some_input(gd, t.network, GD_F64), *y = some_classes(gd);
        gd_module_set_training(t.m, false); /* no dropout, no statistics */
        assert_non_null(loss_of(&t, x, y));
        gd_tensor *p = gd_module_tensor(t.m, 0);
        for (int i = 0; !gd_module_is_parameter(t.m, i); i++)
            p = gd_module_tensor(t.m, i + 1);
        gd_tensor *loss = loss_of(&t, x, y), *g;
        assert_int_equal(gd_grad(1, &loss, NULL, 1, &p, &g), GD_OK);
        size_t count = (size_t)gd_tensor_count(p);
        double *value = malloc(count * 8), *slope = malloc(count * 8), sides[2];
        assert_true(value && slope);
        assert_int_equal(gd_tensor_read(g, slope, count * 8), GD_OK);
        assert_int_equal(gd_tensor_read(p, value, count * 8), GD_OK);
        size_t i = 0; /* the largest */
        for (size_t j = 1; j < count; j++)
            i = fabs(slope[j]) > fabs(slope[i]) ? j : i;
        const double h = 0x1p-17, middle = value[i];
        for (int side = 0; side < 2; side++) {
            value[i] = side ? middle + h : middle - h;
            assert_int_equal(gd_tensor_write(p, value, count * 8), GD_OK);
            sides[side] = gd_item(loss_of(&t, x, y));
        }
        double quotient = (sides[1] - sides[0]) / (2 * h);
        if (!(fabs(quotient - slope[i]) < 1e-8 * (1 + fabs(slope[i]))))
            fail_msg("%s: %.12g and %.12g", t.network->name, quotient, slope[i]);
        free(value);
        free(slope);
    }
}

static const char *temporary(char text[64], const char *what)
{
    snprintf(text, 64, "f64_models_%s_%d.safetensors", what, (int)getpid());
    return text;
}

static void saves_and_loads(void **state)
{
    need_json();
    gd_context *gd = *state;
    network all[4];
    char path[64], optimizer_path[64];
    temporary(path, "module");
    temporary(optimizer_path, "optimizer");
    for (int k = 0, n = networks(all); k < n; k++) {
        training t = { .network = &all[k], .m = gd_module_create(gd, .seed = 3, .dtype = GD_F64) };
        t.optimizer = gd_adam(t.m, .lr = 0.02);
        double first, last[3];
        train(gd, &t, false, &first, &last[2]);
        assert_int_equal(gd_module_save(t.m, path), GD_OK);
        assert_int_equal(gd_optimizer_save(t.optimizer, optimizer_path), GD_OK);
        training u[2];
        for (int used = 0; used < 2; used++) { /* its layers find the parameters; replace theirs */
            u[used] = (training){ .network = &all[k],
                                  .m = gd_module_create(gd, .seed = 4, .dtype = GD_F64) };
            u[used].optimizer = gd_adam(u[used].m, .lr = 0.02);
            if (used)
                train(gd, &u[used], false, &first, &last[used]);
            assert_int_equal(gd_module_load(u[used].m, path), GD_OK);
            assert_same_modules(t.m, u[used].m);
            assert_int_equal(gd_optimizer_load(u[used].optimizer, optimizer_path), GD_OK);
            train(gd, &u[used], false, &first, &last[used]);
        }
        train(gd, &t, false, &first, &last[2]);
        assert_true(last[0] == last[2] && last[1] == last[2]);
        assert_same_modules(t.m, u[0].m);
        assert_same_modules(t.m, u[1].m);
    }
    unlink(path);
    unlink(optimizer_path);
}

/* The kind is in the file: a float buffer stays one, and does not train. */
static void files_say_what_is_a_buffer(void **state)
{
    need_json();
    gd_context *gd = *state;
    char path[64];
    temporary(path, "kinds");
    gd_module *m = gd_module_create(gd, .dtype = GD_F64);
    assert_non_null(gd_parameter(m, "w", GD_SHAPE(2), .init = GD_INIT_ONES));
    assert_non_null(gd_buffer(m, "mean", GD_SHAPE(2), 0.5, GD_F64));
    assert_non_null(gd_buffer(m, "narrow", GD_SHAPE(2), 0.25, GD_F32));
    assert_non_null(gd_buffer(m, "steps", GD_SCALAR, 7, GD_I64));
    assert_int_equal(gd_module_save(m, path), GD_OK);
    gd_module *loaded = gd_module_create(gd, .dtype = GD_F64);
    assert_int_equal(gd_module_load(loaded, path), GD_OK);
    assert_same_modules(m, loaded);
    for (int i = 0; i < 4; i++)
        assert_int_equal(gd_requires_grad(gd_module_tensor(loaded, i)),
                         gd_module_is_parameter(loaded, i));
    assert_non_null(gd_buffer(loaded, "narrow", GD_SHAPE(2), 0, GD_F32));
    unlink(path);
}

/* Parameters of a file become the module's dtype, be the module empty or not. */
static void files_of_other_floats_are_converted(void **state)
{
    need_json();
    gd_context *gd = *state;
    char path[64];
    temporary(path, "floats");
    static const float numbers[3] = { 0.5f, -1.25f, 3.0f }; /* exact in all */
    const gd_dtype floats[] = { GD_F32, GD_F64, GD_F16, GD_BF16 };
    for (int of_file = 0; of_file < 4; of_file++)
        for (int of_module = 0; of_module < 2; of_module++)
            for (int has = 0; has < 2; has++) {
                gd_tensor *t =
                    gd_cast(gd_from_host(gd, GD_SHAPE(3), GD_F32, numbers), floats[of_file]);
                const gd_named_tensor named = { "w", t };
                assert_int_equal(gd_tensors_save(path, 1, &named, 0, NULL), GD_OK);
                gd_module *m = gd_module_create(gd, .dtype = floats[of_module]);
                if (has)
                    assert_non_null(gd_parameter(m, "w", GD_SHAPE(3), .init = GD_INIT_ZEROS));
                assert_int_equal(gd_module_load(m, path), GD_OK);
                gd_tensor *w = gd_parameter(m, "w", GD_SHAPE(3), .init = GD_INIT_ZEROS);
                assert_same_bits(w, gd_cast(t, floats[of_module]));
                assert_true(gd_requires_grad(w) && gd_module_is_parameter(m, 0));
            }
    unlink(path);
}

static void layers_take_narrower_inputs_alone(void **state)
{
    gd_context *gd = *state;
    network all[4];
    for (int k = 0, n = networks(all); k < n; k++) {
        if (all[k].forward == transformer)
            continue; /* adds in front of its first layer */
        gd_module *wide = gd_module_create(gd, .seed = 3, .dtype = GD_F64);
        gd_module_set_training(wide, false);
        gd_tensor *x = some_input(gd, &all[k], GD_F32);
        assert_same_bits(all[k].forward(wide, x), all[k].forward(wide, gd_cast(x, GD_F64)));
        gd_module *narrow = gd_module_create(gd, .seed = 3);
        assert_null(all[k].forward(narrow, gd_cast(x, GD_F64)));
        expect_error(GD_ERR_DTYPE, "is f64, the parameters of its module are f32");
        assert_null(all[k].forward(wide, gd_cast(x, GD_I64)));
        expect_error(GD_ERR_DTYPE, "is i64; floats are needed");
    }
    assert_null(gd_module_create(gd, .dtype = GD_I32));
    expect_error(GD_ERR_DTYPE, "parameters are f32, f64 or bf16, not i32");
}

/* ---- optimizers: all rules, EMA and L-BFGS, on one parameter ---- */

/* |p - 1/3| after some steps; exactly as far in f64 whatever way it is run. */
static void every_rule_works_in_f64(void **state)
{
    gd_context *gd = *state;
    const char *const rules[] = { "sgd",   "rmsprop", "adam",     "adamw", "nadam",
                                  "radam", "adagrad", "adadelta", "lion",  "lamb" };
    for (size_t k = 0; k < sizeof rules / sizeof *rules; k++) {
        gd_module *m = gd_module_create(gd, .dtype = GD_F64);
        gd_tensor *p = gd_parameter(m, "p", GD_SHAPE(3), .init = GD_INIT_ONES);
        gd_tensor *target = gd_full(gd, GD_SHAPE(3), 1.0 / 3.0, GD_F64);
        gd_optimizer *o = gd_optimizer_create(m, rules[k], .lr = 0.1);
        gd_ema *ema = gd_ema_create(m, .decay = 0.5);
        double first = 0, loss = 0;
        for (int i = 0; i < 20; i++) {
            loss = gd_item(gd_minimize(o, gd_mse(p, target)));
            first = i == 0 ? loss : first;
            assert_int_equal(gd_ema_update(ema), GD_OK);
        }
        if (!(loss < first))
            fail_msg("%s: %g after %g: %s", rules[k], loss, first, gd_error_message());
        assert_int_equal(gd_ema_swap(ema), GD_OK);
        assert_int_equal(gd_tensor_dtype(p), GD_F64);
    }
}

/* Adam's first step is lr * g / (|g| + epsilon): in f32 the lr alone would be off by 1e-9. */
static void a_step_has_the_digits_of_f64(void **state)
{
    gd_context *gd = *state;
    gd_module *m = gd_module_create(gd, .dtype = GD_F64);
    gd_tensor *p = gd_parameter(m, "p", GD_SCALAR, .init = GD_INIT_ONES);
    gd_optimizer *o = gd_adam(m, .lr = 0.1, .epsilon = 1e-12);
    assert_non_null(gd_minimize(o, gd_mul_scalar(p, 3.0)));
    assert_true(fabs(gd_item(p) - 0.9) < 1e-12);
    gd_optimizer *sgd = gd_sgd(m, .lr = 0.1);
    assert_non_null(gd_minimize(sgd, gd_mul_scalar(p, 3.0)));
    assert_true(fabs(gd_item(p) - 0.6) < 1e-12);
}

static gd_tensor *bowl(void *user)
{
    gd_tensor *p = user;
    return gd_sum(
        gd_square(gd_sub(p, gd_full(gd_tensor_context(p), GD_SHAPE(3), 1.0 / 3.0, GD_F64))),
        GD_ALL_AXES, false);
}

static void lbfgs_finds_all_digits(void **state)
{
    gd_context *gd = *state;
    gd_module *m = gd_module_create(gd, .dtype = GD_F64);
    gd_tensor *p = gd_parameter(m, "p", GD_SHAPE(3), .init = GD_INIT_ONES);
    gd_lbfgs *l = gd_lbfgs_create(m, .tolerance_gradient = 1e-15);
    double values[3];
    double loss;
    assert_int_equal(gd_lbfgs_step(l, bowl, p, &loss), GD_OK);
    assert_int_equal(gd_tensor_read(p, values, sizeof values), GD_OK);
    for (int i = 0; i < 3; i++)
        assert_true(fabs(values[i] - 1.0 / 3.0) < 1e-14);
}

/* ---- models as data ---- */

static void models_as_data(void **state)
{
    gd_context *gd = *state;
    const gd_layer_spec layers[] = {
        { GD_LAYER_SPEC_DEFAULTS, .name = "conv", .type = "conv2d", .channels = 4,
          .kernel = GD_SHAPE(3), .activation = "relu" },
        { GD_LAYER_SPEC_DEFAULTS, .name = "flat", .type = "flatten" },
        { GD_LAYER_SPEC_DEFAULTS, .name = "fc", .type = "linear", .units = 3 },
    };
    const gd_model_spec spec = { GD_MODEL_SPEC_DEFAULTS, .input = GD_SHAPE(1, 5, 5),
                                 .layers = layers, .layer_count = 3 };
    gd_model *model = gd_model_create(gd, &spec, .seed = 1, .dtype = GD_F64);
    if (!model)
        fail_msg("%s", gd_error_message());
    gd_tensor *y = gd_model_forward(model, gd_zeros(gd, GD_SHAPE(2, 1, 5, 5), GD_F32));
    assert_int_equal(gd_tensor_dtype(y), GD_F64);
    assert_int_equal(gd_module_dtype(gd_model_module(model)), GD_F64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        context_test(trains_alike_eagerly_and_compiled),
        context_test(computes_in_f64_throughout),
        context_test(saves_and_loads),
        context_test(files_say_what_is_a_buffer),
        context_test(files_of_other_floats_are_converted),
        context_test(layers_take_narrower_inputs_alone),
        context_test(every_rule_works_in_f64),
        context_test(a_step_has_the_digits_of_f64),
        context_test(lbfgs_finds_all_digits),
        context_test(models_as_data),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
