/* tests/test_sequence_models.c: layers of sequences in models written as data: what JSON builds
 * gives the bits of the same layers called in C, and of a language model. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gradus/language.h>
#include <gradus/layers.h>
#include <gradus/ops.h>
#include <gradus/sequence.h>

#include "support/context.h"

#ifdef GD_HAVE_JANSSON

enum { BATCH = 3, TIME = 8, TOKENS = 11 };

static gd_tensor *some_tokens(gd_context *gd)
{
    int64_t tokens[BATCH * TIME];
    for (int i = 0; i < BATCH * TIME; i++)
        tokens[i] = i * 7 % TOKENS;
    return gd_from_host(gd, GD_SHAPE(BATCH, TIME), GD_I64, tokens);
}

static gd_model *load(gd_context *gd, const char *json)
{
    gd_model *model = gd_model_load_json(gd, json, .seed = 3);
    if (!model)
        fail_msg("%s\n%s", gd_error_message(), json);
    gd_module_set_training(gd_model_module(model), false);
    return model;
}

/* A layer's row says which shape it gives, and the rows' numbers make up the total. */
static void assert_summary(gd_model *model, const char *words)
{
    char text[8192];
    assert_true(gd_module_summary(gd_model_module(model), text, sizeof text) < sizeof text);
    if (!strstr(text, words))
        fail_msg("expected \"%s\" in\n%s", words, text);
    int64_t sum = 0, total = 0;
    for (char *line = strtok(strchr(text, '\n'), "\n"); line; line = strtok(NULL, "\n")) {
        total = 0;
        for (const char *c = strrchr(line, ' '); *c; c++) /* "1,234" */
            total = *c >= '0' && *c <= '9' ? total * 10 + (*c - '0') : total;
        sum += total;
    }
    assert_int_equal(sum, 2 * total); /* the last line is the total */
    assert_int_equal(total, gd_module_parameter_count(gd_model_module(model)));
}

/* ---- the same as a language model ---- */

static void json_builds_a_language_model(void **state)
{
    gd_context *gd = *state;
    gd_language_model *m =
        gd_language_model_create(gd, .vocabulary = TOKENS, .max_length = TIME, .layers = 2,
                                 .heads = 2, .width = 12, .seed = 5);
    gd_module *from = gd_language_model_module(m);
    gd_model *model = load(
        gd, "{ \"input\": [8], \"layers\": [ { \"name\": \"gpt\", \"type\": \"decoder_only\", "
            "\"vocabulary\": 11, \"units\": 12, \"layers\": 2, \"heads\": 2, \"pre_norm\": true, "
            "\"tied\": true, \"dropout\": 0.1 } ] }");
    gd_module *to = gd_model_module(model);
    assert_int_equal(gd_module_count(to), gd_module_count(from));
    for (int i = 0; i < gd_module_count(to); i++) {
        assert_string_equal(gd_module_path(to, i) + strlen("gpt."), gd_module_path(from, i));
        assert_non_null(gd_assign(gd_module_tensor(to, i), gd_module_tensor(from, i)));
    }
    gd_module_set_training(from, false);
    gd_tensor *tokens = some_tokens(gd);
    assert_same_bits(gd_model_forward(model, tokens), gd_language_model_forward(m, tokens));
    assert_same_bits(gd_model_forward(model, gd_cast(tokens, GD_F32)),
                     gd_language_model_forward(m, tokens));
    assert_summary(model, "gpt             decoder_only      [batch, 8, 11]");
}

static void json_builds_a_llama(void **state)
{
    gd_context *gd = *state;
    gd_language_model *m = gd_language_model_create(
        gd, .decoder = GD_DECODER_LLAMA, .vocabulary = TOKENS, .max_length = TIME, .layers = 1,
        .heads = 4, .kv_heads = 2, .width = 16, .hidden = 20, .tied = false, .seed = 5);
    gd_module *from = gd_language_model_module(m);
    gd_model *model = load(
        gd, "{ \"input\": [8], \"layers\": [ { \"name\": \"llama\", \"type\": \"decoder_only\", "
            "\"vocabulary\": 11, \"units\": 16, \"layers\": 1, \"heads\": 4, \"kv_heads\": 2, "
            "\"hidden\": "
            "20, \"feed_forward\": \"swiglu\", \"norm\": \"rms\", \"position\": \"rotary\", "
            "\"pre_norm\": true, \"bias\": false } ] }");
    gd_module *to = gd_model_module(model);
    for (int i = 0; i < gd_module_count(to); i++)
        assert_non_null(gd_assign(gd_module_tensor(to, i), gd_module_tensor(from, i)));
    gd_tensor *tokens = some_tokens(gd);
    assert_same_bits(gd_model_forward(model, tokens), gd_language_model_forward(m, tokens));
}

/* ---- the same as layers called in C ---- */

static void json_builds_scaled_attention(void **state)
{
    gd_context *gd = *state;
    gd_model *model = load(
        gd, "{ \"input\": [6, 8], \"layers\": ["
            "{ \"name\": \"q\", \"type\": \"linear\", \"units\": 4 },"
            "{ \"name\": \"k\", \"type\": \"linear\", \"units\": 4, \"inputs\": [\"input\"] },"
            "{ \"name\": \"bias\", \"type\": \"linear\", \"units\": 6, \"inputs\": [\"input\"] },"
            "{ \"name\": \"see\", \"type\": \"attention\", \"causal\": true, \"dropout\": 0.5,"
            "  \"inputs\": [\"q\", \"k\", \"input\"] },"
            "{ \"name\": \"all\", \"type\": \"attention\", \"mask\": \"bias\","
            "  \"inputs\": [\"q\", \"k\", \"see\"] } ] }");
    gd_module *m = gd_model_module(model);
    gd_module_set_training(m, false);
    gd_tensor *x = gd_normal(gd, GD_SHAPE(3, 6, 8), 0, 1, GD_F32);
    gd_tensor *q = gd_nn_linear(m, "q", x, 4), *k = gd_nn_linear(m, "k", x, 4);
    gd_tensor *see = gd_attention(q, k, x, .causal = true);
    assert_same_bits(gd_model_forward(model, x),
                     gd_attention(q, k, see, .mask = gd_nn_linear(m, "bias", x, 6)));
}

static void json_builds_recurrent_networks(void **state)
{
    gd_context *gd = *state;
    gd_model *model = load(
        gd, "{ \"input\": [8], \"layers\": ["
            "{ \"name\": \"token\", \"type\": \"embedding\", \"vocabulary\": 11, \"units\": 6 },"
            "{ \"name\": \"lstm\", \"type\": \"lstm\", \"units\": 5, \"layers\": 2, "
            "\"bidirectional\": true, \"dropout\": 0.2 },"
            "{ \"name\": \"gru\", \"type\": \"gru\", \"units\": 4 },"
            "{ \"name\": \"rnn\", \"type\": \"rnn\", \"units\": 4 },"
            "{ \"name\": \"relu\", \"type\": \"rnn_relu\", \"units\": 4 },"
            "{ \"name\": \"last\", \"type\": \"last\" },"
            "{ \"name\": \"head\", \"type\": \"linear\", \"units\": 2 } ] }");
    gd_module *m = gd_module_create(gd, .seed = 3);
    gd_tensor *tokens = some_tokens(gd);
    gd_module_set_training(m, false);
    gd_tensor *x = gd_nn_embedding(m, "token", tokens, TOKENS, 6);
    x = gd_nn_lstm(m, "lstm", x, 5, .layers = 2, .bidirectional = true);
    x = gd_nn_rnn(m, "rnn", gd_nn_gru(m, "gru", x, 4), 4);
    x = gd_select(gd_nn_rnn(m, "relu", x, 4, .relu = true), 1, -1);
    assert_same_bits(gd_model_forward(model, tokens), gd_nn_linear(m, "head", x, 2));
    assert_summary(model, "[batch, 8, 10]");
}

static void json_builds_transformers(void **state)
{
    gd_context *gd = *state;
    gd_model *model = load(
        gd,
        "{ \"input\": [8], \"layers\": ["
        "{ \"name\": \"from\", \"type\": \"token_embedding\", \"vocabulary\": 11, \"units\": 12, "
        "\"position\": \"sinusoidal\" },"
        "{ \"name\": \"to\", \"type\": \"token_embedding\", \"vocabulary\": 11, \"units\": 12, "
        "\"inputs\": [\"input\"] },"
        "{ \"name\": \"t\", \"type\": \"transformer\", \"heads\": 3, \"layers\": 2, \"hidden\": "
        "10, \"inputs\": [\"from\", \"to\"] } ] }");
    gd_module *m = gd_module_create(gd, .seed = 3);
    gd_module_set_training(m, false);
    const gd_transformer_config config = {
        GD_TRANSFORMER_CONFIG_DEFAULTS, .width = 12,       .heads = 3, .layers = 2, .hidden = 10,
        .vocabulary = TOKENS,           .max_length = TIME
    };
    gd_transformer_config sinusoidal = config;
    sinusoidal.position = GD_POSITION_SINUSOIDAL;
    gd_tensor *tokens = some_tokens(gd);
    gd_tensor *from = gd_nn_token_embedding(m, "from", tokens, &sinusoidal);
    gd_tensor *to = gd_nn_token_embedding(m, "to", tokens, &config);
    assert_same_bits(gd_model_forward(model, tokens), gd_nn_transformer(m, "t", from, to, &config));
    assert_summary(model, "transformer");
}

static void json_builds_parts_of_transformers(void **state)
{
    gd_context *gd = *state;
    gd_model *model = load(
        gd, "{ \"input\": [8, 12], \"layers\": ["
            "{ \"name\": \"p\", \"type\": \"sinusoidal_position\" },"
            "{ \"name\": \"l\", \"type\": \"learned_position\", \"max_length\": 9 },"
            "{ \"name\": \"r\", \"type\": \"rotary_position\" },"
            "{ \"name\": \"a\", \"type\": \"multi_head_attention\", \"heads\": 2, \"kv_heads\": 1, "
            "\"causal\": true, \"position\": \"rotary_halves\" },"
            "{ \"name\": \"f\", \"type\": \"feed_forward\", \"hidden\": 7, \"feed_forward\": "
            "\"silu\", \"activation\": \"tanh\" },"
            "{ \"name\": \"e\", \"type\": \"encoder_layer\", \"heads\": 2, \"norm\": \"rms\", "
            "\"epsilon\": 0.001, \"bias\": false },"
            "{ \"name\": \"s\", \"type\": \"encoder\", \"heads\": 2, \"layers\": 1 },"
            "{ \"name\": \"d\", \"type\": \"decoder_layer\", \"heads\": 2, \"inputs\": [\"s\", "
            "\"e\"] },"
            "{ \"name\": \"c\", \"type\": \"multi_head_attention\", \"heads\": 2, \"inputs\": "
            "[\"d\", \"e\"] },"
            "{ \"name\": \"dd\", \"type\": \"decoder\", \"heads\": 2, \"layers\": 1, \"pre_norm\": "
            "true, \"inputs\": [\"c\", \"e\"] } ] }");
    gd_module *m = gd_module_create(gd, .seed = 3);
    gd_module_set_training(m, false);
    gd_tensor *x = gd_normal(gd, GD_SHAPE(BATCH, TIME, 12), 0, 1, GD_F32);
    gd_tensor *y = gd_add(x, gd_sinusoidal_positions(gd, 0, TIME, 12, GD_F32));
    gd_tensor *table = gd_parameter(m, "l.weight", GD_SHAPE(9, 12), .init = GD_INIT_GLOROT_NORMAL);
    y = gd_rope(gd_add(y, gd_slice(table, 0, 0, TIME, 1)));
    y = gd_nn_multi_head_attention(m, "a", y, 2, .kv_heads = 1, .causal = true,
                                   .position = GD_POSITION_ROTARY_HALVES);
    y = gd_tanh(gd_nn_feed_forward(m, "f", y, 7, .activation = GD_ACTIVATION_SILU));
    const gd_transformer_config rms = { GD_TRANSFORMER_CONFIG_DEFAULTS, .heads = 2,
                                        .norm = GD_NORM_RMS, .epsilon = 0.001, .bias = false };
    const gd_transformer_config one = { GD_TRANSFORMER_CONFIG_DEFAULTS, .heads = 2, .layers = 1 };
    const gd_transformer_config before = { GD_TRANSFORMER_CONFIG_DEFAULTS, .heads = 2, .layers = 1,
                                           .pre_norm = true };
    gd_tensor *e = gd_nn_encoder_layer(m, "e", y, &rms);
    gd_tensor *d = gd_nn_decoder_layer(m, "d", gd_nn_encoder(m, "s", e, &one), e, &one);
    gd_tensor *c = gd_nn_multi_head_attention(m, "c", d, 2, .memory = e);
    assert_same_bits(gd_model_forward(model, x), gd_nn_decoder(m, "dd", c, e, &before));
    assert_summary(model, "decoder_layer");
    /* Written and read again, it is the same model. */
    char text[8192];
    assert_true(gd_model_format_json(model, text, sizeof text) < sizeof text);
    assert_same_bits(gd_model_forward(load(gd, text), x), gd_model_forward(model, x));
}

/* ---- mistakes ---- */

static void assert_refused(gd_context *gd, const char *layer, gd_status code, const char *words)
{
    char json[1024];
    snprintf(json, sizeof json, "{ \"input\": [8, 12], \"layers\": [ { \"name\": \"x\", %s } ] }",
             layer);
    assert_null(gd_model_load_json(gd, json));
    expect_error(code, words);
}

static void mistakes_name_the_layer(void **state)
{
    gd_context *gd = *state;
    assert_refused(gd, "\"type\": \"encoder_layer\"", GD_ERR_INVALID, "layer \"x\"");
    assert_refused(gd, "\"type\": \"encoder_layer\", \"heads\": 5", GD_ERR_INVALID, "layer \"x\"");
    assert_refused(gd, "\"type\": \"lstm\", \"units\": 3, \"heads\": 2", GD_ERR_INVALID,
                   "does not use \"heads\"");
    assert_refused(gd, "\"type\": \"feed_forward\", \"feed_forward\": \"elu\"", GD_ERR_FORMAT,
                   "swiglu");
    assert_refused(gd, "\"type\": \"encoder\", \"heads\": 2, \"position\": \"sinusoidal\"",
                   GD_ERR_INVALID, "layer \"x\"");
    assert_refused(gd, "\"type\": \"learned_position\", \"max_length\": 7", GD_ERR_SHAPE,
                   "layer \"x\"");
    assert_refused(gd, "\"type\": \"decoder_only\", \"vocabulary\": 5, \"units\": 8, \"heads\": 2",
                   GD_ERR_SHAPE, "layer \"x\"");
    assert_refused(gd, "\"type\": \"transformer\", \"heads\": 2", GD_ERR_INVALID, "2 inputs");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        context_test(json_builds_a_language_model),
        context_test(json_builds_a_llama),
        context_test(json_builds_recurrent_networks),
        context_test(json_builds_scaled_attention),
        context_test(json_builds_transformers),
        context_test(json_builds_parts_of_transformers),
        context_test(mistakes_name_the_layer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
    return 77; /* no JSON in this build */
}

#endif
