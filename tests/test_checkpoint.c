/* tests/test_checkpoint.c: gradient checkpointing: gradients equal bit for bit, eager and compiled,
 * with dropout, running statistics, nested blocks and second derivatives; memory is less; errors.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* ---- models as data, and Transformers, with and without .checkpoint ---- */

typedef struct twin {
    gd_model *model;
    gd_module *module;
    gd_optimizer *optimizer;
    const gd_transformer_config *config;
} twin;

static gd_tensor *model_step(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    twin *t = user;
    gd_tensor *y = gd_model_forward(t->model, in[0]);
    return gd_minimize(t->optimizer, gd_mean(gd_square(y), GD_ALL_AXES, false));
}

static gd_tensor *transformer_step(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    twin *t = user;
    gd_context *gd = gd_module_context(t->module);
    gd_tensor *sees = gd_lt(gd_arange(gd, 0, 7, 1, GD_F32), gd_full(gd, GD_SCALAR, 5, GD_F32));
    gd_tensor *y = gd_nn_transformer(t->module, "t", in[0], in[1], t->config, .source_mask = sees,
                                     .memory_mask = sees);
    return gd_minimize(t->optimizer, gd_mean(gd_square(y), GD_ALL_AXES, false));
}

/* Three steps of each; then all parameters and buffers are the same bits, and the second, which is
 * checkpointed, took less memory. */
static void assert_twins(gd_context *gd, twin twins[2], gd_function_body step, gd_mode mode,
                         gd_tensor *const *in, int count)
{
    size_t bytes[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(gd_seed(gd, 3), GD_OK);
        twins[i].optimizer = gd_sgd(twins[i].module, .lr = 0.1);
        gd_function *f = gd_compile(gd, step, &twins[i], .mode = mode);
        for (int k = 0; k < 3; k++)
            if (!gd_call(f, count, in))
                fail_msg("%s", gd_error_message());
        bytes[i] = gd_function_stats(f).arena_bytes;
    }
    assert_int_equal(gd_module_count(twins[0].module), gd_module_count(twins[1].module));
    for (int i = 0; i < gd_module_count(twins[0].module); i++)
        assert_same_bits(gd_module_tensor(twins[0].module, i),
                         gd_module_tensor(twins[1].module, i));
    if (mode == GD_MODE_COMPILED)
        assert_true(bytes[1] < bytes[0]);
}

/* `json` with `what` in place of every @. */
static void put_in(const char *json, const char *what, char *text, size_t size)
{
    size_t length = 0;
    for (; *json && length < size; json++)
        length += (size_t)(*json == '@' ? snprintf(text + length, size - length, "%s", what)
                                        : snprintf(text + length, size - length, "%c", *json));
    assert_true(length < size);
}

static gd_tensor *random_input(gd_context *gd, gd_shape shape)
{
    return gd_normal(gd, shape, 0, 1, GD_F32);
}

static void test_models_as_data(void **state)
{
    (void)state;
    need_json();
    static const char *const json[] = {
        "{ \"input\": [2, 8, 8], \"layers\": [ { \"name\": \"c1\", \"type\": \"conv2d\", "
        "\"channels\": "
        "8, \"kernel\": 3, \"padding\": \"same\", \"activation\": \"gelu\"@ },"
        "{ \"name\": \"n\", \"type\": \"batch_norm\", \"activation\": \"tanh\"@ },"
        "{ \"name\": \"d\", \"type\": \"dropout\", \"dropout\": 0.3@ },"
        "{ \"name\": \"s\", \"type\": \"add\", \"inputs\": [\"d\", \"n\"], \"activation\": "
        "\"mish\"@ } ] }",
        "{ \"input\": [24, 8], \"layers\": [ { \"name\": \"e\", \"type\": \"encoder\", \"heads\": "
        "2, "
        "\"layers\": 3, \"dropout\": 0.2, \"feed_forward\": \"gelu\"@ } ] }",
        "{ \"input\": [24], \"layers\": [ { \"name\": \"g\", \"type\": \"decoder_only\", "
        "\"heads\": 2, "
        "\"layers\": 3, \"vocabulary\": 5, \"units\": 8, \"dropout\": 0.2@ } ] }",
    };
    for (int i = 0; i < COUNT(json); i++)
        for (int mode = 0; mode < 2; mode++) {
            gd_context *gd = gd_open(test_device(), .threads = 2);
            twin twins[2];
            for (int k = 0; k < 2; k++) {
                char text[2048];
                put_in(json[i], k ? ", \"checkpoint\": true" : "", text, sizeof text);
                twins[k].model = gd_model_load_json(gd, text, .seed = 4);
                twins[k].module = gd_model_module(twins[k].model);
                if (!twins[k].module)
                    fail_msg("%s", gd_error_message());
                assert_true(gd_model_format_json(twins[k].model, text, sizeof text) < sizeof text);
                assert_int_equal(strstr(text, "\"checkpoint\"") != NULL, k);
            }
            gd_tensor *x = i == 0   ? random_input(gd, GD_SHAPE(4, 2, 8, 8))
                           : i == 1 ? random_input(gd, GD_SHAPE(3, 24, 8))
                                    : gd_zeros(gd, GD_SHAPE(3, 24), GD_I64);
            assert_twins(gd, twins, model_step, mode ? GD_MODE_EAGER : GD_MODE_COMPILED, &x, 1);
            gd_close(gd);
        }
}

static void test_transformer_layers(void **state)
{
    (void)state;
    gd_transformer_config plain = { GD_TRANSFORMER_CONFIG_DEFAULTS, .heads = 2, .layers = 2,
                                    .decoder_layers = 3, .dropout = 0.1 };
    gd_transformer_config checkpointed = plain;
    checkpointed.checkpoint = true;
    for (int mode = 0; mode < 2; mode++) {
        gd_context *gd = gd_open(test_device(), .threads = 2);
        twin twins[2] = { { .config = &plain }, { .config = &checkpointed } };
        for (int k = 0; k < 2; k++)
            twins[k].module = gd_module_create(gd, .seed = 5);
        gd_tensor *in[2] = { random_input(gd, GD_SHAPE(2, 7, 8)),
                             random_input(gd, GD_SHAPE(2, 6, 8)) };
        assert_twins(gd, twins, transformer_step, mode ? GD_MODE_EAGER : GD_MODE_COMPILED, in, 2);
        gd_close(gd);
    }
}

/* ---- a network of blocks that may be checkpointed ---- */

enum { BLOCKS = 6, MOST = 64 };

typedef struct network {
    gd_module *module;
    bool checkpointed;
    int64_t width;
    int block; /* which one is run: read by the body, so each call has its own */
} network;

typedef struct block_user {
    const network *net;
    char name[16];
} block_user;

static block_user block_users[BLOCKS];

/* x + dropout(gelu(linear(norm(x)))), with two linear layers */
static gd_tensor *block(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    const block_user *b = user;
    gd_module *m = b->net->module;
    char path[32];
    snprintf(path, sizeof path, "%s.norm", b->name);
    gd_tensor *h = gd_nn_layer_norm(m, path, in[0]);
    snprintf(path, sizeof path, "%s.up", b->name);
    h = gd_gelu(gd_nn_linear(m, path, h, 4 * b->net->width));
    snprintf(path, sizeof path, "%s.down", b->name);
    h = gd_nn_linear(m, path, h, b->net->width);
    snprintf(path, sizeof path, "%s.drop", b->name);
    return gd_add(in[0], gd_nn_dropout(m, path, h, 0.25));
}

static gd_tensor *forward(const network *net, gd_tensor *x)
{
    for (int i = 0; i < BLOCKS; i++) {
        block_users[i].net = net;
        snprintf(block_users[i].name, sizeof block_users[i].name, "b%d", i);
        x = net->checkpointed ? gd_checkpoint(block, &block_users[i], 1, &x)
                              : block(&block_users[i], 1, &x);
    }
    return gd_mean(gd_square(x), GD_ALL_AXES, false);
}

/* The loss, and the gradients of all parameters as outputs. */
static gd_tensor *loss_and_gradients(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    const network *net = user;
    gd_tensor *loss = forward(net, in[0]), *parameters[MOST], *gradients[MOST];
    int n = gd_module_count(net->module);
    for (int i = 0; i < n; i++)
        parameters[i] = gd_module_tensor(net->module, i);
    if (!loss || gd_grad(1, &loss, NULL, n, parameters, gradients) != GD_OK)
        return NULL;
    gd_tensor *all = loss;
    for (int i = 0; i < n; i++) {
        gd_tensor *parts[2] = { gd_reshape(all, GD_SHAPE(-1)),
                                gd_reshape(gradients[i], GD_SHAPE(-1)) };
        all = gd_concat(2, parts, 0);
    }
    return all;
}

static gd_tensor *input_of(gd_context *gd, int64_t rows, int64_t width)
{
    gd_tensor *line = gd_arange(gd, 0, (double)(rows * width), 1, GD_F32);
    return gd_sin(gd_reshape(line, GD_SHAPE(rows, width)));
}

typedef struct run_result {
    float *values;
    int64_t count;
    size_t peak; /* bytes: of the pool, or of the plan */
} run_result;

static run_result run(bool checkpointed, gd_mode mode, int64_t rows, int64_t width)
{
    gd_context *gd = gd_open(test_device(), .threads = 1, .seed = 7);
    network net = { .module = gd_module_create(gd, .seed = 1),
                    .checkpointed = checkpointed,
                    .width = width };
    gd_function *f = gd_compile(gd, loss_and_gradients, &net, .mode = mode);
    gd_tensor *x = gd_retain(input_of(gd, rows, width));
    assert_non_null(forward(&net, x)); /* makes the parameters */
    gd_seed(gd, 7);
    gd_memory_reset_peak(gd);
    gd_tensor *all = gd_call(f, 1, &x);
    if (!all)
        print_error("%s\n", gd_error_message());
    assert_non_null(all);
    run_result r = { .count = gd_tensor_count(all), .peak = gd_memory(gd).peak };
    if (mode == GD_MODE_COMPILED)
        r.peak = gd_function_stats(f).arena_bytes;
    size_t bytes = (size_t)r.count * sizeof(float);
    r.values = malloc(bytes);
    assert_non_null(r.values);
    assert_int_equal(gd_tensor_read(all, r.values, bytes), GD_OK);
    gd_release(x);
    gd_close(gd);
    return r;
}

static void test_same_bits(void **state)
{
    (void)state;
    run_result r[4];
    for (int i = 0; i < 4; i++)
        r[i] = run(i & 1, i & 2 ? GD_MODE_COMPILED : GD_MODE_EAGER, 5, 12);
    for (int i = 1; i < 4; i++) {
        assert_int_equal(r[i].count, r[0].count);
        assert_memory_equal(r[i].values, r[0].values, (size_t)r[0].count * sizeof(float));
    }
    for (int i = 0; i < 4; i++)
        free(r[i].values);
}

/* ---- memory ---- */

typedef struct chain {
    bool checkpointed;
    gd_tensor *scale; /* a parameter */
} chain;

/* Many intermediate values of x's size. */
static gd_tensor *long_block(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *x = in[0];
    for (int i = 0; i < 10; i++)
        x = gd_tanh(gd_mul(x, gd_sigmoid(x)));
    return x;
}

static gd_tensor *chain_loss(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    const chain *c = user;
    gd_tensor *x = gd_mul(in[0], c->scale);
    for (int i = 0; i < 8; i++)
        x = c->checkpointed ? gd_checkpoint(long_block, NULL, 1, &x) : long_block(NULL, 1, &x);
    gd_tensor *loss = gd_sum(x, GD_ALL_AXES, false);
    return gd_backward(loss) == GD_OK ? loss : NULL;
}

static size_t chain_peak(bool checkpointed, gd_mode mode)
{
    gd_context *gd = gd_open(test_device(), .threads = 1);
    chain c = { checkpointed, gd_set_requires_grad(gd_ones(gd, GD_SCALAR, GD_F32), true) };
    gd_function *f = gd_compile(gd, chain_loss, &c, .mode = mode);
    gd_tensor *x = gd_full(gd, GD_SHAPE(64, 1024), 0.5, GD_F32);
    gd_memory_reset_peak(gd);
    assert_non_null(gd_call(f, 1, &x));
    size_t peak = mode == GD_MODE_COMPILED ? gd_function_stats(f).arena_bytes : gd_memory(gd).peak;
    gd_close(gd);
    return peak;
}

/* 8 blocks of 30 values each, against 8 results and one block. */
static void test_less_memory(void **state)
{
    (void)state;
    assert_true(chain_peak(true, GD_MODE_EAGER) < chain_peak(false, GD_MODE_EAGER) / 2);
    assert_true(chain_peak(true, GD_MODE_COMPILED) < chain_peak(false, GD_MODE_COMPILED) / 2);
}

/* ---- what a block may be ---- */

typedef struct captured {
    gd_tensor *leaf, *value; /* value is made of leaf, outside of the block */
    int runs;
} captured;

/* in[0] and in[1] may be the same tensor; leaf and value are not among the inputs. */
static gd_tensor *uses_captured(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    captured *c = user;
    c->runs++;
    return gd_add(gd_mul(in[0], c->value), gd_mul(gd_mul(in[1], c->leaf), in[0]));
}

static void test_captured_tensors(void **state)
{
    gd_context *gd = *state;
    gd_tensor *g[2][2];
    for (int k = 0; k < 2; k++) {
        gd_tensor *x = gd_set_requires_grad(gd_full(gd, GD_SHAPE(3), 1.5, GD_F32), true);
        captured c = { .leaf = gd_set_requires_grad(gd_full(gd, GD_SHAPE(3), 0.25, GD_F32), true) };
        c.value = gd_exp(c.leaf);
        gd_tensor *middle = gd_mul(gd_sin(x), c.leaf); /* depends on leaf, too */
        gd_tensor *in[2] = { middle, middle }, *wanted[2] = { x, c.leaf };
        gd_tensor *y = k ? gd_checkpoint(uses_captured, &c, 2, in) : uses_captured(&c, 2, in);
        assert_int_equal(gd_grad(1, &y, NULL, 2, wanted, g[k]), GD_OK);
        assert_int_equal(c.runs, k ? 2 : 1);
    }
    for (int i = 0; i < 2; i++) {
        float a[3], b[3];
        assert_int_equal(gd_tensor_read(g[0][i], a, sizeof a), GD_OK);
        assert_int_equal(gd_tensor_read(g[1][i], b, sizeof b), GD_OK);
        assert_true(a[0] > b[0] - 1e-6f && a[0] < b[0] + 1e-6f);
    }
}

static gd_tensor *cube(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_mul(gd_mul(in[0], in[0]), in[0]);
}

static gd_tensor *nested(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    gd_tensor *y = gd_checkpoint(cube, user, 1, in);
    return gd_checkpoint(cube, user, 1, &y); /* x^9 */
}

static void test_nested_blocks_and_second_derivatives(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = gd_set_requires_grad(gd_full(gd, GD_SHAPE(2), 1.25, GD_F64), true);
    gd_tensor *y = gd_checkpoint(nested, NULL, 1, &x), *first, *second;
    assert_int_equal(gd_grad(1, &y, NULL, 1, &x, &first), GD_OK);
    assert_int_equal(gd_grad(1, &first, NULL, 1, &x, &second), GD_OK);
    double d1 = gd_item(gd_select(first, 0, 0)), d2 = gd_item(gd_select(second, 0, 0)), p = 1;
    for (int i = 0; i < 7; i++)
        p *= 1.25;
    assert_true(d1 > 9 * p * 1.25 * (1 - 1e-12) && d1 < 9 * p * 1.25 * (1 + 1e-12));
    assert_true(d2 > 72 * p * (1 - 1e-12) && d2 < 72 * p * (1 + 1e-12));
    assert_int_equal(gd_backward(gd_sum(gd_checkpoint(nested, NULL, 1, &x), GD_ALL_AXES, false)),
                     GD_OK);
    assert_true(gd_item(gd_select(gd_gradient(x), 0, 0)) == d1);
}

static gd_tensor *normalised(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    return gd_nn_batch_norm(user, "norm", in[0]);
}

/* Effects happen once, in eager execution and compiled. */
static gd_tensor *normalised_gradient(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    gd_tensor *y = gd_checkpoint(normalised, user, 1, in), *g;
    return gd_grad(1, &y, NULL, 1, in, &g) == GD_OK ? g : NULL;
}

static void test_effects_happen_once(void **state)
{
    gd_context *gd = *state;
    double mean[3];
    for (int k = 0; k < 3; k++) {
        gd_module *m = gd_module_create(gd);
        gd_tensor *x = gd_set_requires_grad(gd_arange(gd, 0, 12, 1, GD_F32), true);
        x = gd_retain(gd_reshape(x, GD_SHAPE(6, 2)));
        if (k == 0) {
            assert_non_null(normalised(m, 1, &x));
        } else {
            gd_function *f = gd_compile(gd, normalised_gradient, m,
                                        .mode = k == 1 ? GD_MODE_EAGER : GD_MODE_COMPILED);
            assert_non_null(gd_call(f, 1, &x));
        }
        mean[k] = gd_item(gd_select(gd_module_parameter(m, "norm.running_mean"), 0, 0));
        gd_release(x);
    }
    assert_true(mean[0] == 0.5 && mean[1] == 0.5 && mean[2] == 0.5);
}

/* ---- plain calls and errors ---- */

static gd_tensor *identity(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return in[0];
}

static gd_tensor *no_result(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_matmul(in[0], in[0]);
}

static gd_tensor *moody(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    int *calls = user;
    return gd_mul_scalar(gd_slice(in[0], 0, 0, 3 - (*calls)++, 1), 2);
}

static gd_tensor *uses_many(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    gd_tensor **many = user, *y = in[0];
    for (int i = 0; i < 70; i++)
        y = gd_mul(y, many[i]);
    return y;
}

static void test_without_gradients(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = gd_ones(gd, GD_SHAPE(3), GD_F32), *none = NULL;
    assert_false(gd_requires_grad(gd_checkpoint(cube, NULL, 1, &x)));
    gd_set_requires_grad(x, true);
    assert_ptr_equal(gd_checkpoint(identity, NULL, 1, &x), x);
    gd_no_grad_begin(gd);
    assert_false(gd_requires_grad(gd_checkpoint(cube, NULL, 1, &x)));
    gd_no_grad_end(gd);
    assert_null(gd_checkpoint(cube, NULL, 1, &none));
    assert_int_equal(gd_error_code(), GD_OK);
}

static void test_errors(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = gd_set_requires_grad(gd_ones(gd, GD_SHAPE(3), GD_F32), true), *g;
    assert_null(gd_checkpoint(NULL, NULL, 1, &x));
    expect_error(GD_ERR_INVALID, "gd_checkpoint");
    assert_null(gd_checkpoint(cube, NULL, 0, &x));
    expect_error(GD_ERR_INVALID, "gd_checkpoint");
    gd_tensor *wide = gd_ones(gd, GD_SHAPE(2, 3), GD_F32);
    assert_null(gd_checkpoint(no_result, NULL, 1, &wide));
    expect_error(GD_ERR_SHAPE, "gd_matmul");
    int calls = 0;
    gd_tensor *y = gd_checkpoint(moody, &calls, 1, &x);
    assert_int_equal(gd_grad(1, &y, NULL, 1, &x, &g), GD_ERR_STATE);
    expect_error(GD_ERR_STATE, "gave [3] at first and [2] when it was run again");
    gd_tensor *many[70];
    for (int i = 0; i < 70; i++)
        many[i] = gd_set_requires_grad(gd_ones(gd, GD_SHAPE(3), GD_F32), true);
    assert_null(gd_checkpoint(uses_many, many, 1, &x));
    expect_error(GD_ERR_UNSUPPORTED, "more than 63 tensors");
    /* a value the second run needs was overwritten */
    y = gd_checkpoint(cube, NULL, 1, &x);
    gd_assign(x, gd_zeros_like(x));
    assert_int_equal(gd_grad(1, &y, NULL, 1, &x, &g), GD_ERR_STATE);
    expect_error(GD_ERR_STATE, "overwritten");
}

static gd_tensor *leaves_a_map_open(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    gd_tensor *row;
    *(gd_vmap **)user = gd_vmap_begin(1, in, NULL, &row);
    return gd_square(row);
}

static gd_tensor *leaves_a_scope_open(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    (void)gd_scope_begin(gd_tensor_context(in[0]));
    return gd_square(in[0]);
}

static gd_tensor *ends_a_scope_of_others(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    (void)gd_scope_end(gd_tensor_context(in[0]));
    return gd_square(in[0]);
}

/* What a block leaves open is its own: the caller's scopes, and what is recorded, are as before. */
static void test_what_is_left_open(void **state)
{
    gd_context *gd = *state;
    const float values[] = { 1, 2, 3 };
    for (int again = 0; again < 2; again++) { /* without gradients, and with them */
        assert_int_equal(gd_scope_begin(gd), GD_OK);
        gd_tensor *x = gd_from_host(gd, GD_SHAPE(3), GD_F32, values), *g;
        x = again ? gd_set_requires_grad(x, true) : x;
        gd_vmap *map;
        assert_null(gd_checkpoint(leaves_a_map_open, &map, 1, &x));
        expect_error(GD_ERR_STATE, "gd_checkpoint: the block left a map open");
        assert_int_equal(gd_vmap_end(map, 1, &x, &g), GD_ERR_STATE);
        gd_error_clear();
        assert_false(gd_is_tracing(gd));
        assert_true(gd_item(gd_sum(x, GD_ALL_AXES, false)) == 6);
        gd_tensor *y = gd_checkpoint(leaves_a_scope_open, NULL, 1, &x);
        assert_true(gd_get(y, 2) == 9);
        if (again) {
            gd_tensor *sum = gd_sum(y, GD_ALL_AXES, false);
            assert_int_equal(gd_grad(1, &sum, NULL, 1, &x, &g), GD_OK);
            assert_true(gd_get(g, 2) == 6);
        }
        assert_null(gd_checkpoint(ends_a_scope_of_others, NULL, 1, &x));
        expect_error(GD_ERR_STATE, "no scope is open");
        assert_true(gd_get(y, 2) == 9);
        assert_int_equal(gd_scope_end(gd), GD_OK);
        assert_int_equal(gd_scope_end(gd), GD_ERR_STATE); /* it was the only one */
        gd_error_clear();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_less_memory),
        cmocka_unit_test(test_models_as_data),
        cmocka_unit_test(test_transformer_layers),
        context_test(test_captured_tensors),
        context_test(test_nested_blocks_and_second_derivatives),
        context_test(test_effects_happen_once),
        context_test(test_without_gradients),
        context_test(test_errors),
        context_test(test_what_is_left_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
