/* tests/test_sequence.c: layers of sequences: attention, Transformers and token models against
 * PyTorch's, generation with a cache against computing everything again. Recurrent layers are in
 * test_recurrent.c. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/context.h"
#include "support/sequence_golden.h"

#include "goldens/sequences.h"

/* ---- against PyTorch ---- */

static gd_tensor *run_attention(gd_module *m, gd_tensor **in)
{
    return gd_nn_multi_head_attention(m, "attn", in[0], 2, .causal = true);
}

static gd_tensor *run_encoder_layer(gd_module *m, gd_tensor **in)
{
    gd_transformer_config config = { GD_TRANSFORMER_CONFIG_DEFAULTS, .heads = 4, .hidden = 12,
                                     .activation = GD_ACTIVATION_GELU, .pre_norm = true };
    static const uint8_t may[10] = { 1, 1, 1, 1, 1, 1, 1, 1, 0, 0 };
    gd_tensor *mask = gd_from_host(gd_module_context(m), GD_SHAPE(2, 1, 1, 5), GD_BOOL, may);
    return gd_nn_encoder_layer(m, "0", in[0], &config, .mask = mask);
}

static gd_tensor *run_transformer(gd_module *m, gd_tensor **in)
{
    gd_transformer_config config = { GD_TRANSFORMER_CONFIG_DEFAULTS, .heads = 2, .hidden = 12,
                                     .layers = 2 };
    return gd_nn_transformer(m, "net", in[0], in[1], &config);
}

typedef struct golden_case {
    gd_tensor *(*run)(gd_module *m, gd_tensor **in);
    int inputs;
    const char *name[2];
    gd_shape shape[2];
    const double *output;
    size_t output_count;
    const double *gradient[2];
    const parameter_golden *sums;
    int sum_count;
} golden_case;

static void check_case(gd_context *context, const golden_case *c)
{
    gd_scope_begin(context);
    gd_module *m = gd_module_create(context);
    gd_tensor *in[2] = { NULL };
    for (int i = 0; i < c->inputs; i++)
        in[i] = golden_tensor(context, c->name[i], c->shape[i]);
    if (!c->run(m, in)) /* makes the parameters */
        fail_msg("%s", gd_error_message());
    golden_parameters(m);
    gd_tensor *y = c->run(m, in);
    golden_check(m, 1, &y, &c->output, &c->output_count, c->inputs, in, c->gradient, c->sums,
                 c->sum_count);
    gd_module_release(m);
    gd_scope_end(context);
}

static void test_goldens(void **state)
{
#define SUMS(name)   name##_parameters, (int)GOLDEN_COUNT(name##_parameters)
#define OUTPUT(name) name##_output0, GOLDEN_COUNT(name##_output0)
    const golden_case cases[] = {
        { run_attention,
          1,
          { "x" },
          { GD_SHAPE(2, 5, 8) },
          OUTPUT(attention),
          { attention_gradient0 },
          SUMS(attention) },
        { run_encoder_layer,
          1,
          { "x" },
          { GD_SHAPE(2, 5, 8) },
          OUTPUT(encoder_layer),
          { encoder_layer_gradient0 },
          SUMS(encoder_layer) },
        { run_transformer,
          2,
          { "source", "target" },
          { GD_SHAPE(2, 5, 8), GD_SHAPE(2, 4, 8) },
          OUTPUT(transformer),
          { transformer_gradient0, transformer_gradient1 },
          SUMS(transformer) },
    };
    for (size_t i = 0; i < GOLDEN_COUNT(cases); i++)
        check_case(*state, &cases[i]);
}

/* The base model of the paper, 512 wide with 6 + 6 layers, has as many parameters as PyTorch's. */
static void test_base_transformer_parameters(void **state)
{
    gd_context *context = *state;
    gd_scope_begin(context);
    gd_module *m = gd_module_create(context);
    gd_transformer_config config = { GD_TRANSFORMER_CONFIG_DEFAULTS, .heads = 8 };
    gd_tensor *x = gd_zeros(context, GD_SHAPE(1, 2, 512), GD_F32);
    gd_no_grad_begin(context);
    assert_non_null(gd_nn_transformer(m, "base", x, x, &config));
    gd_no_grad_end(context);
    assert_int_equal(gd_module_parameter_count(m), BASE_TRANSFORMER_PARAMETERS);
    gd_module_release(m);
    gd_scope_end(context);
}

/* ---- the cache ---- */

static const gd_transformer_config models[] = {
    { GD_TRANSFORMER_CONFIG_DEFAULTS, .width = 16, .heads = 4, .layers = 2, .vocabulary = 11,
      .max_length = 12, .pre_norm = true, .tied = true },
    { GD_TRANSFORMER_CONFIG_DEFAULTS, .width = 16, .heads = 4, .kv_heads = 2, .layers = 2,
      .hidden = 24, .vocabulary = 11, .norm = GD_NORM_RMS, .position = GD_POSITION_ROTARY,
      .activation = GD_ACTIVATION_SWIGLU, .pre_norm = true, .bias = false },
    { GD_TRANSFORMER_CONFIG_DEFAULTS, .width = 16, .heads = 2, .kv_heads = 1, .head_width = 6,
      .layers = 1, .vocabulary = 11, .position = GD_POSITION_ROTARY_HALVES },
    { GD_TRANSFORMER_CONFIG_DEFAULTS, .width = 16, .heads = 2, .layers = 1, .vocabulary = 11,
      .position = GD_POSITION_SINUSOIDAL, .activation = GD_ACTIVATION_SILU },
};

/* Tokens fed in pieces of 3, 1, 1 and 4 give the logits of all at once, whatever was there before.
 */
static void test_cache_equals_recomputation(void **state)
{
    gd_context *context = *state;
    static const int32_t tokens[2 * 9] = { 3, 1, 4, 1, 5, 9, 2, 6, 5, 2, 7, 1, 8, 2, 8, 1, 8, 10 };
    static const int64_t pieces[] = { 3, 1, 1, 4 };
    for (size_t i = 0; i < GOLDEN_COUNT(models); i++) {
        gd_scope_begin(context);
        gd_module *m = gd_module_create(context, .seed = 3);
        gd_tensor *all = gd_from_host(context, GD_SHAPE(2, 9), GD_I32, tokens);
        gd_tensor *expected = gd_nn_decoder_only(m, "gpt", all, &models[i]);
        if (!expected)
            fail_msg("model %zu: %s", i, gd_error_message());
        float whole[2 * 9 * 11];
        assert_int_equal(gd_tensor_read(expected, whole, sizeof whole), GD_OK);
        gd_kv_cache *cache = gd_kv_cache_create(context, 9);
        gd_no_grad_begin(context);
        for (int round = 0; round < 2; round++) {
            assert_int_equal(gd_kv_cache_truncate(cache, round == 0 ? 0 : 4), GD_OK);
            int64_t at = round == 0 ? 0 : 4;
            for (size_t k = round == 0 ? 0 : 2; k < GOLDEN_COUNT(pieces); k++) {
                assert_int_equal(gd_kv_cache_length(cache), at);
                gd_tensor *next = gd_slice(all, 1, at, at + pieces[k], 1);
                gd_tensor *y = gd_nn_decoder_only(m, "gpt", next, &models[i], .cache = cache);
                if (!y)
                    fail_msg("model %zu: %s", i, gd_error_message());
                float part[2 * 4 * 11];
                size_t numbers = (size_t)(2 * pieces[k] * 11);
                assert_int_equal(gd_tensor_read(y, part, numbers * sizeof *part), GD_OK);
                for (int64_t j = 0; j < (int64_t)numbers; j++) {
                    int64_t row = j / (pieces[k] * 11), rest = j % (pieces[k] * 11);
                    float a = part[j], b = whole[row * 99 + at * 11 + rest];
                    if (!(fabsf(a - b) <= 1e-5f))
                        fail_msg("model %zu, tokens from %lld: %.9g, at once %.9g", i,
                                 (long long)at, (double)a, (double)b);
                }
                at += pieces[k];
            }
        }
        gd_no_grad_end(context);
        gd_kv_cache_release(cache);
        gd_module_release(m);
        gd_scope_end(context);
    }
}

static gd_tensor *with_cache(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    static const gd_transformer_config config = { GD_TRANSFORMER_CONFIG_DEFAULTS,
                                                  .width = 8,
                                                  .heads = 2,
                                                  .layers = 1,
                                                  .vocabulary = 5,
                                                  .max_length = 4 };
    void **u = user;
    return gd_nn_decoder_only(u[0], "gpt", in[0], &config, .cache = u[1]);
}

static void test_cache_refusals(void **state)
{
    gd_context *context = *state;
    gd_scope_begin(context);
    assert_null(gd_kv_cache_create(context, 0));
    assert_int_equal(gd_error_code(), GD_ERR_INVALID);
    gd_error_clear();
    gd_module *m = gd_module_create(context);
    gd_kv_cache *cache = gd_kv_cache_create(context, 3);
    void *user[2] = { m, cache };
    gd_tensor *two = gd_zeros(context, GD_SHAPE(1, 2), GD_I64);
    assert_non_null(with_cache(user, 1, &two));
    assert_null(with_cache(user, 1, &two)); /* beyond the capacity */
    assert_int_equal(gd_error_code(), GD_ERR_SHAPE);
    gd_error_clear();
    assert_int_equal(gd_kv_cache_length(cache), 2);
    gd_tensor *batch = gd_zeros(context, GD_SHAPE(2, 1), GD_I64);
    assert_null(with_cache(user, 1, &batch));
    assert_int_equal(gd_error_code(), GD_ERR_SHAPE);
    gd_error_clear();
    assert_int_equal(gd_kv_cache_truncate(cache, 3), GD_ERR_INVALID);
    gd_error_clear();
    gd_function *f = gd_compile(context, with_cache, user);
    gd_tensor *one = gd_zeros(context, GD_SHAPE(1, 1), GD_I64);
    assert_null(gd_call(f, 1, &one));
    assert_int_equal(gd_error_code(), GD_ERR_STATE);
    gd_error_clear();
    gd_function_release(f);
    gd_kv_cache_release(cache);
    gd_kv_cache_release(NULL);
    gd_module_release(m);
    gd_scope_end(context);
}

/* ---- models ---- */

static gd_tensor *train_step(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    void **u = user;
    gd_transformer_config config = models[1];
    config.dropout = 0.1;
    gd_tensor *logits = gd_nn_decoder_only(u[0], "gpt", in[0], &config);
    gd_tensor *loss =
        gd_cross_entropy(gd_reshape(logits, GD_SHAPE(-1, 11)), gd_reshape(in[1], GD_SHAPE(-1)));
    gd_minimize(u[1], loss);
    return loss;
}

/* The next token is the one before plus 3, mod 11: learned, with dropout, eagerly and compiled with
 * the same losses. */
static void test_language_model_learns(void **state)
{
    gd_context *context = *state;
    double last[2][2];
    for (int mode = 0; mode < 2; mode++) {
        gd_scope_begin(context);
        gd_module *m = gd_module_create(context, .seed = 1);
        int64_t tokens[8 * 7], next[8 * 7];
        for (int i = 0; i < 8 * 7; i++) {
            tokens[i] = (i / 7 + i % 7 * 3) % 11;
            next[i] = (tokens[i] + 3) % 11;
        }
        gd_tensor *in[2] = { gd_from_host(context, GD_SHAPE(8, 7), GD_I64, tokens),
                             gd_from_host(context, GD_SHAPE(8, 7), GD_I64, next) };
        gd_nn_decoder_only(m, "gpt", in[0], &models[1]);
        void *user[2] = { m, gd_adam(m, .lr = 1e-2f) };
        gd_seed(context, 4);
        gd_function *f =
            gd_compile(context, train_step, user, .mode = mode ? GD_MODE_COMPILED : GD_MODE_EAGER);
        double first = 0;
        for (int step = 0; step < 40; step++) {
            gd_tensor *loss = gd_call(f, 2, in);
            if (!loss)
                fail_msg("%s", gd_error_message());
            last[mode][step % 2] = gd_item(loss);
            first = step == 0 ? last[mode][0] : first;
        }
        assert_true(last[mode][1] < 0.2 * first);
        gd_function_release(f);
        gd_optimizer_release(user[1]);
        gd_module_release(m);
        gd_scope_end(context);
    }
    assert_memory_equal(last[0], last[1], sizeof last[0]);
}

/* Every token sees every other, but those the mask hides. */
static void test_encoder_only(void **state)
{
    gd_context *context = *state;
    gd_scope_begin(context);
    gd_module *m = gd_module_create(context, .seed = 2);
    int64_t tokens[6] = { 1, 2, 3, 1, 2, 4 };
    static const uint8_t may[6] = { 1, 1, 0, 1, 1, 0 };
    gd_tensor *in = gd_from_host(context, GD_SHAPE(2, 3), GD_I64, tokens);
    gd_tensor *mask = gd_from_host(context, GD_SHAPE(2, 1, 1, 3), GD_BOOL, may);
    float y[2 * 3 * 16];
    assert_int_equal(gd_tensor_read(gd_nn_encoder_only(m, "bert", in, &models[3]), y, sizeof y),
                     GD_OK);
    assert_true(memcmp(y, y + 3 * 16, 16 * sizeof *y) != 0); /* token 0 sees token 2 */
    gd_tensor *hidden = gd_nn_encoder_only(m, "bert", in, &models[3], .mask = mask);
    assert_int_equal(gd_tensor_read(hidden, y, sizeof y), GD_OK);
    assert_memory_equal(y, y + 3 * 16, 2 * 16 * sizeof *y);
    gd_module_release(m);
    gd_scope_end(context);
}

/* x through the linear layer `path` of m, as heads [batch, heads, t, width]. */
static gd_tensor *heads_by_hand(gd_module *m, const char *path, gd_tensor *x, int64_t heads)
{
    char weight[64], bias[64];
    snprintf(weight, sizeof weight, "%s.weight", path);
    snprintf(bias, sizeof bias, "%s.bias", path);
    gd_tensor *y = gd_linear(x, gd_module_parameter(m, weight), gd_module_parameter(m, bias));
    gd_shape shape = gd_tensor_shape(y);
    y = gd_reshape(y, GD_SHAPE(shape.dim[0], shape.dim[1], heads, shape.dim[2] / heads));
    return gd_permute(y, GD_AXES(0, 2, 1, 3));
}

/* Queries, keys and values of three sources, all of odd widths: the layer against its definition. */
static void test_three_sources(void **state)
{
    gd_context *gd = *state;
    gd_module *m = gd_module_create(gd, .seed = 3);
    gd_tensor *x = gd_uniform(gd, GD_SHAPE(2, 4, 9), -1, 1, GD_F32);
    gd_tensor *memory = gd_uniform(gd, GD_SHAPE(2, 5, 7), -1, 1, GD_F32);
    gd_tensor *value = gd_uniform(gd, GD_SHAPE(2, 5, 3), -1, 1, GD_F32);
    gd_tensor *y =
        gd_nn_multi_head_attention(m, "a", x, 4, .kv_heads = 2, .head_width = 5,
                                   .value_head_width = 11, .memory = memory, .value = value);
    if (!y)
        fail_msg("%s", gd_error_message());
    gd_tensor *r = gd_attention(heads_by_hand(m, "a.q", x, 4), heads_by_hand(m, "a.k", memory, 2),
                                heads_by_hand(m, "a.v", value, 2));
    gd_tensor *joined = gd_reshape(gd_permute(r, GD_AXES(0, 2, 1, 3)), GD_SHAPE(2, 4, 4 * 11));
    assert_same_bits(y, gd_linear(joined, gd_module_parameter(m, "a.out.weight"),
                                  gd_module_parameter(m, "a.out.bias")));
    assert_int_equal(gd_tensor_shape(gd_module_parameter(m, "a.v.weight")).dim[0], 3);
    assert_int_equal(gd_backward(gd_sum(gd_square(y), GD_ALL_AXES, false)), GD_OK);
    for (int i = 0; i < gd_module_count(m); i++)
        assert_non_null(gd_gradient(gd_module_tensor(m, i)));

    /* Keys of x itself: then they are turned with the queries, and kept with the values. */
    gd_tensor *other = gd_uniform(gd, GD_SHAPE(2, 4, 6), -1, 1, GD_F32);
    gd_kv_cache *cache = gd_kv_cache_create(gd, 4);
    (void)gd_no_grad_begin(gd);
    gd_tensor *all = gd_nn_multi_head_attention(m, "b", x, 2, .head_width = 4, .value = other,
                                                .causal = true, .position = GD_POSITION_ROTARY);
    for (int64_t t = 0; t < 4; t++) {
        gd_tensor *step =
            gd_nn_multi_head_attention(m, "b", gd_slice(x, 1, t, t + 1, 1), 2, .head_width = 4,
                                       .value = gd_slice(other, 1, t, t + 1, 1), .causal = true,
                                       .position = GD_POSITION_ROTARY, .cache = cache);
        assert_true(step && gd_allclose(step, gd_slice(all, 1, t, t + 1, 1), 1e-5, 1e-6, false));
    }
    (void)gd_no_grad_end(gd);
    assert_null(gd_nn_multi_head_attention(m, "c", x, 3, .memory = memory, .value = other));
    expect_error(GD_ERR_SHAPE, "memory [2, 5, 7] and value [2, 4, 6]");
    assert_null(gd_nn_multi_head_attention(m, "c", x, 3, .value_head_width = 0));
    expect_error(GD_ERR_INVALID, "of values 0");
    gd_module_release(m);
}

static void test_refusals(void **state)
{
    gd_context *context = *state;
    gd_scope_begin(context);
    gd_module *m = gd_module_create(context);
    gd_tensor *x = gd_zeros(context, GD_SHAPE(2, 3, 8), GD_F32);
    gd_tensor *flat = gd_zeros(context, GD_SHAPE(3, 8), GD_F32);
    gd_tensor *tokens = gd_zeros(context, GD_SHAPE(2, 5), GD_I64);
    gd_transformer_config config = { GD_TRANSFORMER_CONFIG_DEFAULTS, .heads = 2, .width = 8,
                                     .vocabulary = 3, .max_length = 4 };
    char name[400];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
#define REFUSED(status, call)                         \
    do {                                              \
        gd_error_clear();                             \
        assert_null(call);                            \
        assert_int_equal(gd_error_code(), status);    \
        assert_true(strlen(gd_error_message()) > 10); \
    } while (0)
    REFUSED(GD_ERR_INVALID, gd_nn_multi_head_attention(m, "a", x, 3));
    REFUSED(GD_ERR_INVALID, gd_nn_multi_head_attention(m, "a", x, 4, .kv_heads = 3));
    REFUSED(GD_ERR_INVALID, gd_nn_multi_head_attention(m, "a", x, 4, .kv_heads = 0));
    REFUSED(GD_ERR_INVALID, gd_nn_multi_head_attention(m, "a", x, 4, .head_width = 0));
    REFUSED(GD_ERR_INVALID, gd_nn_feed_forward(m, "a", x, 0));
    REFUSED(GD_ERR_INVALID, gd_nn_lstm(m, "a", x, 3, .layers = 0));
    gd_transformer_config flat_config = config, nobody = { .heads = 2 };
    flat_config.hidden = 0;
    REFUSED(GD_ERR_INVALID, gd_nn_encoder_layer(m, "b", x, &flat_config));
    REFUSED(GD_ERR_INVALID, gd_nn_encoder(m, "c", x, &nobody));
    REFUSED(GD_ERR_INVALID, gd_nn_multi_head_attention(m, "a", x, 0));
    REFUSED(GD_ERR_INVALID, gd_nn_multi_head_attention(m, "", x, 2));
    REFUSED(GD_ERR_INVALID, gd_nn_multi_head_attention(m, name, x, 2));
    REFUSED(GD_ERR_SHAPE, gd_nn_multi_head_attention(m, "a", flat, 2));
    REFUSED(GD_ERR_SHAPE, gd_nn_multi_head_attention(m, "a", x, 2, .memory = flat));
    REFUSED(GD_ERR_INVALID,
            gd_nn_multi_head_attention(m, "a", x, 2, .memory = x, .position = GD_POSITION_ROTARY));
    REFUSED(GD_ERR_INVALID, gd_nn_encoder_layer(m, "a", x, NULL));
    REFUSED(GD_ERR_SHAPE, gd_nn_decoder_layer(m, "a", flat, x, &config));
    REFUSED(GD_ERR_SHAPE, gd_nn_decoder_only(m, "a", tokens, &config)); /* beyond the context */
    REFUSED(GD_ERR_SHAPE, gd_nn_decoder_only(m, "a", x, &config));
    REFUSED(GD_ERR_INVALID, gd_nn_decoder_only(m, "a", tokens, NULL));
    gd_error_clear();
    assert_null(gd_nn_multi_head_attention(m, "a", NULL, 2));
    assert_null(gd_nn_feed_forward(m, "a", NULL, 2));
    assert_null(gd_nn_transformer(m, "a", x, NULL, &config));
    assert_null(gd_nn_decoder_only(m, "a", NULL, &config));
    assert_int_equal(gd_error_code(), GD_OK);
    gd_module_release(m);
    gd_scope_end(context);
}

/* Stacks without layers are their norm; a decoder may see its future; what is not 0 of the defaults
 * can be. */
static void test_zeros_are_honoured(void **state)
{
    gd_context *context = *state;
    gd_scope_begin(context);
    gd_module *m = gd_module_create(context, .seed = 1);
    gd_module_set_training(m, false);
    gd_tensor *x = gd_normal(context, GD_SHAPE(2, 5, 8), 0, 1, GD_F32);
    gd_tensor *one = gd_ones(context, GD_SHAPE(8), GD_F32);
    gd_tensor *none = gd_zeros(context, GD_SHAPE(8), GD_F32);
    gd_transformer_config config = { GD_TRANSFORMER_CONFIG_DEFAULTS, .heads = 2, .layers = 0 };
    assert_same_bits(gd_nn_encoder(m, "none", x, &config), gd_layer_norm(x, one, none));
    config.layers = 1;
    config.decoder_layers = 0;
    assert_same_bits(gd_nn_decoder(m, "neither", x, x, &config), gd_layer_norm(x, one, none));
    config.decoder_layers = 1;
    /* The first token of a causal decoder depends on no other; all do on all otherwise. */
    gd_tensor *other = gd_concat(
        2, (gd_tensor *[]){ gd_slice(x, 1, 0, 1, 1), gd_mul_scalar(gd_slice(x, 1, 1, 5, 1), 2) },
        1);
    for (int causal = 0; causal < 2; causal++) {
        gd_tensor *a = gd_nn_decoder(m, "d", x, x, &config, .causal = causal);
        gd_tensor *b = gd_nn_decoder(m, "d", other, x, &config, .causal = causal);
        gd_tensor *same =
            gd_all(gd_eq(gd_slice(a, 1, 0, 1, 1), gd_slice(b, 1, 0, 1, 1)), GD_ALL_AXES, false);
        assert_int_equal(gd_item(same), causal);
    }
    gd_module_release(m);
    gd_scope_end(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        context_test(test_zeros_are_honoured),
        cmocka_unit_test(test_goldens),
        cmocka_unit_test(test_base_transformer_parameters),
        cmocka_unit_test(test_cache_equals_recomputation),
        cmocka_unit_test(test_cache_refusals),
        cmocka_unit_test(test_language_model_learns),
        cmocka_unit_test(test_encoder_only),
        context_test(test_three_sources),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, open_context, close_context);
}
