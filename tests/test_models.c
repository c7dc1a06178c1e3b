/* tests/test_models.c: models as data with several inputs and outputs, padded sequences and losses:
 * what JSON builds gives the bits of the same net written by hand, eagerly and compiled; and
 * descriptions that are wrong say so. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gradus/gradus.h>

#include "support/context.h"

#ifdef GD_HAVE_JANSSON

#define QUOTE(...) #__VA_ARGS__

enum { BATCH = 4, TIME = 6, TOKENS = 11, CLASSES = 3 };

static gd_model *load(gd_context *gd, const char *json)
{
    gd_model *model = gd_model_load_json(gd, json, .seed = 3);
    if (!model)
        fail_msg("%s\n%s", gd_error_message(), json);
    return model;
}

static gd_tensor *integers(gd_context *gd, gd_shape shape, int64_t most)
{
    int64_t values[256], count = gd_shape_count(shape);
    assert_true(count <= 256);
    for (int64_t i = 0; i < count; i++)
        values[i] = (i * 7 + 3) % most;
    return gd_from_host(gd, shape, GD_I64, values);
}

static gd_tensor *lengths(gd_context *gd)
{
    static const int64_t values[BATCH] = { 6, 1, 4, 3 };
    return gd_from_host(gd, GD_SHAPE(BATCH), GD_I64, values);
}

/* bool [BATCH, TIME]: true within the lengths */
static gd_tensor *keys(gd_context *gd)
{
    gd_tensor *t = gd_arange(gd, 0, TIME, 1, GD_I64);
    return gd_lt(t, gd_unsqueeze(lengths(gd), 1));
}

/* ---- several inputs and outputs ---- */

static const char two_heads[] = QUOTE({
    "inputs" : [
        { "name" : "tokens", "shape" : [6], "dtype" : "i64" },
        { "name" : "lengths", "shape" : [], "dtype" : "i64" }
    ],
    "layers" : [
        { "name" : "table", "type" : "embedding", "vocabulary" : 11, "units" : 8 },
        { "name" : "rnn", "type" : "gru", "units" : 5, "lengths" : "lengths" },
        { "name" : "end", "type" : "last", "lengths" : "lengths" },
        { "name" : "class", "type" : "linear", "units" : 3 }, {
            "name" : "score",
            "type" : "linear",
            "units" : 1,
            "inputs" : ["end"],
            "activation" : "tanh"
        }
    ],
    "outputs" : [ "class", "score" ],
    "losses" : [
        {
            "type" : "cross_entropy",
            "outputs" : ["class"],
            "label_smoothing" : 0.1,
            "weight" : [ 1, 1.5, 2 ]
        },
        { "type" : "huber", "delta" : 0.25, "outputs" : ["score"], "scale" : 0.5 }
    ]
});

typedef struct net {
    gd_module *module;
    gd_model *model;
    gd_optimizer *optimizer;
} net;

/* The result of layer number `length - 1` of each sequence. */
static gd_tensor *ends(gd_context *gd, gd_tensor *h, gd_tensor *n)
{
    gd_tensor *first = gd_arange(gd, 0, BATCH * TIME, TIME, GD_I64);
    gd_tensor *rows = gd_reshape(h, GD_SHAPE(BATCH * TIME, 5));
    return gd_take(rows, gd_add(first, gd_clip(gd_sub_scalar(n, 1), 0, TIME - 1)), 0);
}

static void forward_by_hand(gd_module *m, gd_tensor *tokens, gd_tensor *n, gd_tensor *out[2])
{
    gd_tensor *x = gd_nn_embedding(m, "table", tokens, TOKENS, 8);
    gd_tensor *h = gd_nn_gru(m, "rnn", x, 5, .lengths = n);
    gd_tensor *end = ends(gd_module_context(m), h, n);
    out[0] = gd_nn_linear(m, "class", end, CLASSES);
    out[1] = gd_tanh(gd_nn_linear(m, "score", end, 1));
}

/* in: tokens, lengths, classes, scores */
static gd_tensor *loss_by_hand(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    const net *n = user;
    static const float weights[CLASSES] = { 1, 1.5f, 2 };
    gd_tensor *out[2], *weight;
    gd_trace_pause(gd_module_context(n->module));
    weight = gd_from_host(gd_module_context(n->module), GD_SHAPE(CLASSES), GD_F32, weights);
    gd_trace_resume(gd_module_context(n->module));
    forward_by_hand(n->module, in[0], in[1], out);
    gd_tensor *a = gd_cross_entropy(out[0], in[2], .weight = weight, .label_smoothing = 0.1);
    gd_tensor *b = gd_huber(out[1], in[3], .delta = 0.25);
    gd_tensor *loss = gd_add(a, gd_mul_scalar(b, 0.5));
    return n->optimizer ? gd_minimize(n->optimizer, loss) : loss;
}

static gd_tensor *loss_of_model(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    const net *n = user;
    gd_tensor *out[2];
    if (gd_model_forward_all(n->model, 2, in, 2, out) != GD_OK)
        return NULL;
    gd_tensor *loss = gd_model_loss_all(n->model, 2, out, 2, in + 2);
    return n->optimizer ? gd_minimize(n->optimizer, loss) : loss;
}

static void make_inputs(gd_context *gd, gd_tensor *in[4])
{
    in[0] = integers(gd, GD_SHAPE(BATCH, TIME), TOKENS);
    in[1] = lengths(gd);
    in[2] = integers(gd, GD_SHAPE(BATCH), CLASSES);
    in[3] = gd_sub_scalar(gd_mul_scalar(gd_arange(gd, 0, BATCH, 1, GD_F32), 0.5), 1);
    in[3] = gd_reshape(in[3], GD_SHAPE(BATCH, 1));
}

static void several_inputs_and_outputs_have_the_bits_of_c(void **state)
{
    gd_context *gd = *state;
    gd_tensor *in[4], *expected[2], *out[2];
    make_inputs(gd, in);
    net data = { .model = load(gd, two_heads) },
        code = { .module = gd_module_create(gd, .seed = 3) };
    forward_by_hand(code.module, in[0], in[1], expected);
    assert_int_equal(gd_model_forward_all(data.model, 2, in, 2, out), GD_OK);
    assert_same_bits(out[0], expected[0]);
    assert_same_bits(out[1], expected[1]);
    assert_same_bits(loss_of_model(&data, 4, in), loss_by_hand(&code, 4, in));
    assert_int_equal(gd_model_target_count(data.model), 2);
}

static void they_train_compiled_as_eagerly(void **state)
{
    gd_context *gd = *state;
    gd_tensor *in[4];
    make_inputs(gd, in);
    net nets[3];
    gd_function *functions[3];
    for (int i = 0; i < 3; i++) {
        nets[i].model = i < 2 ? load(gd, two_heads) : NULL;
        nets[i].module = i < 2 ? gd_model_module(nets[i].model) : gd_module_create(gd, .seed = 3);
        nets[i].optimizer = NULL;
        (void)loss_by_hand(&nets[i], 4, in); /* makes the parameters */
        nets[i].optimizer = gd_adam(nets[i].module, .lr = 0.05);
        functions[i] = gd_compile(gd, i < 2 ? loss_of_model : loss_by_hand, &nets[i],
                                  .mode = i == 1 ? GD_MODE_EAGER : GD_MODE_COMPILED);
    }
    double first = 0, last = 0;
    for (int step = 0; step < 8; step++) {
        gd_tensor *loss[3];
        for (int i = 0; i < 3; i++)
            loss[i] = gd_call(functions[i], 4, in);
        assert_same_bits(loss[0], loss[1]);
        assert_same_bits(loss[0], loss[2]);
        last = gd_item(loss[0]);
        first = step ? first : last;
    }
    assert_true(last < 0.7 * first);
    for (int i = 0; i < gd_module_count(nets[0].module); i++)
        assert_same_bits(gd_module_tensor(nets[0].module, i), gd_module_tensor(nets[2].module, i));
}

/* What is written is read back to the same model, whatever it has. */
static void descriptions_are_written_and_read_back(void **state)
{
    gd_context *gd = *state;
    static char text[8192], again[8192];
    gd_tensor *in[4], *a[2], *b[2];
    make_inputs(gd, in);
    gd_model *model = load(gd, two_heads);
    assert_true(gd_model_format_json(model, text, sizeof text) < sizeof text);
    gd_model *back = load(gd, text);
    assert_int_equal(gd_model_forward_all(model, 2, in, 2, a), GD_OK);
    assert_int_equal(gd_model_forward_all(back, 2, in, 2, b), GD_OK);
    assert_same_bits(a[1], b[1]);
    assert_same_bits(gd_model_loss_all(model, 2, a, 2, in + 2),
                     gd_model_loss_all(back, 2, b, 2, in + 2));
    assert_true(gd_model_format_json(back, again, sizeof again) < sizeof again);
    assert_string_equal(text, again);
}

static void what_does_not_fit_is_named(void **state)
{
    gd_context *gd = *state;
    gd_tensor *in[4], *out[2] = { gd_ones(gd, GD_SHAPE(1), GD_F32) };
    make_inputs(gd, in);
    gd_model *model = load(gd, two_heads);
    assert_null(gd_model_forward(model, in[0]));
    expect_error(GD_ERR_INVALID, "2 inputs and 2 outputs: call gd_model_forward_all");
    assert_null(gd_model_loss(model, in[3], in[2]));
    expect_error(GD_ERR_INVALID, "call gd_model_loss_all");
    assert_int_equal(gd_model_forward_all(model, 1, in, 2, out), GD_ERR_INVALID);
    assert_null(out[0]);
    expect_error(GD_ERR_INVALID,
                 "1 inputs and room for 2 outputs are given; the model has 2 and 2");
    gd_tensor *given[2] = { gd_cast(in[0], GD_F32), in[1] };
    assert_int_equal(gd_model_forward_all(model, 2, given, 2, out), GD_ERR_DTYPE);
    expect_error(GD_ERR_DTYPE, "the input \"tokens\" is f32; the model takes i64");
    given[0] = gd_slice(in[0], 0, 0, 2, 1);
    assert_int_equal(gd_model_forward_all(model, 2, given, 2, out), GD_ERR_SHAPE);
    expect_error(GD_ERR_SHAPE, "\"lengths\" is a batch of 4, the input \"tokens\" one of 2");
    given[0] = in[0];
    given[1] = in[0];
    assert_int_equal(gd_model_forward_all(model, 2, given, 2, out), GD_ERR_SHAPE);
    expect_error(GD_ERR_SHAPE, "the input \"lengths\" is [4, 6]; the model takes a batch of []");
    given[1] = NULL;
    assert_int_equal(gd_model_forward_all(model, 2, given, 2, out), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "the input \"lengths\" is NULL");
    assert_int_equal(gd_model_forward_all(model, 2, in, 2, out), GD_OK);
    assert_null(gd_model_loss_all(model, 2, out, 1, in + 2));
    expect_error(GD_ERR_INVALID,
                 "2 outputs and 1 targets are given; the model's losses take 2 and 2");
}

/* ---- padded sequences ---- */

/* Values a layer may take, each by a letter. */
typedef struct source {
    char letter;
    const char *input; /* its description among the model's inputs */
} source;

static const source sources[] = {
    { 'x', QUOTE({ "name" : "x", "shape" : [ 6, 8 ] }) },
    { 'm', QUOTE({ "name" : "memory", "shape" : [ 3, 8 ] }) },
    { 's', QUOTE({ "name" : "see", "shape" : [6], "dtype" : "bool" }) },
    { 'n', QUOTE({ "name" : "n", "shape" : [], "dtype" : "i64" }) },
    { 'p', QUOTE({ "name" : "pairs", "shape" : [ 6, 6 ] }) },
    { 't', QUOTE({ "name" : "tokens", "shape" : [6], "dtype" : "i64" }) },
};
enum { SOURCES = sizeof sources / sizeof *sources };

static gd_tensor *waves(gd_context *gd, gd_shape shape)
{
    return gd_reshape(gd_sin(gd_arange(gd, 0, (double)gd_shape_count(shape), 1, GD_F32)), shape);
}

static gd_tensor *value_of(gd_context *gd, char letter)
{
    switch (letter) {
    case 'x':
        return waves(gd, GD_SHAPE(BATCH, TIME, 8));
    case 'm':
        return gd_mul_scalar(waves(gd, GD_SHAPE(BATCH, 3, 8)), 2);
    case 's':
        return keys(gd);
    case 'n':
        return lengths(gd);
    case 'p':
        return waves(gd, GD_SHAPE(BATCH, TIME, TIME));
    default:
        return integers(gd, GD_SHAPE(BATCH, TIME), TOKENS);
    }
}

static gd_tensor *forward(void *user, int count, gd_tensor *const *in)
{
    gd_tensor *y;
    return gd_model_forward_all(user, count, in, 1, &y) == GD_OK ? y : NULL;
}

/* The layer "a" of the inputs of these letters, whose first ones are its operands; compiled and
 * eagerly. *module is the model's. */
static gd_tensor *one_layer(gd_context *gd, const char *letters, const char *layer,
                            gd_module **module)
{
    char json[2048] = "{ \"inputs\": [";
    gd_tensor *in[SOURCES];
    int count = 0;
    for (const char *letter = letters; *letter; letter++)
        for (int i = 0; i < SOURCES; i++)
            if (sources[i].letter == *letter) {
                strcat(strcat(json, count ? ", " : ""), sources[i].input);
                in[count++] = value_of(gd, *letter);
            }
    snprintf(json + strlen(json), sizeof json - strlen(json),
             "], \"layers\": [ { \"name\": \"a\", %s } ] }", layer);
    gd_model *model = load(gd, json);
    *module = gd_model_module(model);
    gd_module_set_training(*module, false);
    gd_tensor *eager = forward(model, count, in);
    gd_tensor *compiled = gd_call(gd_compile(gd, forward, model), count, in);
    assert_same_bits(compiled, eager);
    return eager;
}
#define LAYER(letters, ...) one_layer(gd, letters, #__VA_ARGS__, &m)

static gd_tensor *wide(gd_tensor *mask)
{
    gd_shape shape = gd_tensor_shape(mask);
    return gd_reshape(mask, GD_SHAPE(shape.dim[0], 1, 1, shape.dim[1]));
}

/* Of a memory of 3 steps. */
static gd_tensor *few_keys(gd_context *gd)
{
    return gd_lt(gd_arange(gd, 0, 3, 1, GD_I64), gd_unsqueeze(lengths(gd), 1));
}

static void attention_takes_masks_and_lengths(void **state)
{
    gd_context *gd = *state;
    gd_module *m;
    gd_tensor *x = value_of(gd, 'x'), *memory = value_of(gd, 'm'), *see = wide(keys(gd));
    gd_tensor *pairs = gd_unsqueeze(value_of(gd, 'p'), 1);
    gd_tensor *both = gd_where(see, pairs, gd_scalar(gd, -INFINITY, GD_F32));
    gd_tensor *y = LAYER("xs", "type" : "multi_head_attention", "heads" : 2, "mask" : "see");
    assert_same_bits(y, gd_nn_multi_head_attention(m, "a", x, 2, .mask = see));
    assert_false(gd_equal(y, gd_nn_multi_head_attention(m, "a", x, 2))); /* without */
    assert_same_bits(LAYER("xn", "type" : "multi_head_attention", "heads" : 2, "lengths" : "n"), y);
    assert_same_bits(LAYER("xsn", "type"
                           : "multi_head_attention", "heads" : 2, "lengths"
                           : "n", "mask"
                           : "see"),
                     y);
    y = LAYER("xpn", "type"
              : "multi_head_attention", "heads" : 2, "lengths"
              : "n", "mask"
              : "pairs", "causal"
              : true);
    assert_same_bits(y, gd_nn_multi_head_attention(m, "a", x, 2, .mask = both, .causal = true));
    y = LAYER("xmn", "type"
              : "multi_head_attention", "heads" : 2, "lengths"
              : "n", "inputs"
              : [ "x", "memory" ]);
    assert_same_bits(
        y, gd_nn_multi_head_attention(m, "a", x, 2, .memory = memory, .mask = wide(few_keys(gd))));
    y = LAYER("xn", "type" : "attention", "inputs" : [ "x", "x", "x" ], "lengths" : "n");
    assert_same_bits(y, gd_attention(x, x, x, .mask = gd_unsqueeze(keys(gd), 1)));
}

static void transformers_take_masks_and_lengths(void **state)
{
    gd_context *gd = *state;
    gd_module *m;
    gd_transformer_config c = { GD_TRANSFORMER_CONFIG_DEFAULTS, .heads = 2, .layers = 2 };
    gd_tensor *x = value_of(gd, 'x'), *memory = value_of(gd, 'm'), *see = wide(keys(gd));
    gd_tensor *few = wide(few_keys(gd)), *y;
    y = LAYER("xn", "type" : "encoder_layer", "heads" : 2, "lengths" : "n");
    assert_same_bits(y, gd_nn_encoder_layer(m, "a", x, &c, .mask = see));
    y = LAYER("xs", "type"
              : "encoder", "heads" : 2, "layers" : 2, "mask"
              : "see", "checkpoint"
              : true);
    assert_same_bits(y, gd_nn_encoder(m, "a", x, &c, .mask = see));
    y = LAYER("xmsn", "type"
              : "decoder", "heads" : 2, "layers" : 2, "memory_lengths"
              : "n", "mask"
              : "see", "inputs"
              : [ "x", "memory" ]);
    assert_same_bits(y, gd_nn_decoder(m, "a", x, memory, &c, .mask = see, .memory_mask = few));
    y = LAYER("xmn", "type"
              : "decoder_layer", "heads" : 2, "lengths"
              : "n", "inputs"
              : [ "x", "memory" ]);
    assert_same_bits(y, gd_nn_decoder_layer(m, "a", x, memory, &c, .mask = see));
    /* The source's keys, in the decoder as well. */
    y = LAYER("mxsn", "type"
              : "transformer", "heads" : 2, "layers" : 2, "lengths"
              : "n", "target_mask"
              : "see", "inputs"
              : [ "memory", "x" ]);
    assert_same_bits(y, gd_nn_transformer(m, "a", memory, x, &c, .source_mask = few,
                                          .target_mask = see, .memory_mask = few));
    y = LAYER("mxp", "type"
              : "transformer", "heads" : 2, "layers" : 2, "mask"
              : "pairs", "inputs"
              : [ "x", "memory" ]);
    assert_same_bits(y, gd_nn_transformer(m, "a", x, memory, &c,
                                          .source_mask = gd_unsqueeze(value_of(gd, 'p'), 1)));
    c.width = 8;
    c.vocabulary = TOKENS;
    c.max_length = TIME;
    gd_tensor *tokens = value_of(gd, 't');
    y = LAYER("tn", "type"
              : "encoder_only", "vocabulary" : 11, "units" : 8, "heads" : 2, "layers" : 2, "lengths"
              : "n");
    assert_same_bits(y, gd_nn_encoder_only(m, "a", tokens, &c, .mask = see));
    y = LAYER("ts", "type"
              : "decoder_only", "vocabulary" : 11, "units" : 8, "heads" : 2, "layers" : 2, "mask"
              : "see");
    assert_same_bits(y, gd_nn_decoder_only(m, "a", tokens, &c, .mask = see));
}

static void recurrent_networks_take_lengths(void **state)
{
    gd_context *gd = *state;
    gd_module *m;
    gd_tensor *x = value_of(gd, 'x'), *n = lengths(gd), *y;
    y = LAYER("xn", "type"
              : "lstm", "units" : 5, "layers" : 2, "bidirectional"
              : true, "lengths"
              : "n");
    assert_same_bits(y, gd_nn_lstm(m, "a", x, 5, .layers = 2, .bidirectional = true, .lengths = n));
    y = LAYER("xn", "type" : "rnn", "units" : 5, "lengths" : "n");
    assert_same_bits(y, gd_nn_rnn(m, "a", x, 5, .lengths = n));
    y = LAYER("xn", "type" : "last", "lengths" : "n");
    float all[BATCH * TIME * 8], ends_of[BATCH * 8];
    static const int64_t steps[BATCH] = { 6, 1, 4, 3 };
    assert_int_equal(gd_tensor_read(x, all, sizeof all), GD_OK);
    assert_int_equal(gd_tensor_read(y, ends_of, sizeof ends_of), GD_OK);
    for (int i = 0; i < BATCH; i++)
        assert_memory_equal(ends_of + 8 * i, all + 8 * (TIME * i + steps[i] - 1),
                            8 * sizeof(float));
}

/* ---- losses ---- */

typedef gd_tensor *(*loss_fn)(gd_tensor *const *in);

/* A loss in a description, its outputs and targets by letters, and the same in C. */
typedef struct loss_case {
    const char *json;
    const char *outputs, *targets;
    loss_fn expected;
} loss_case;

#define LOSS(name, ...)                          \
    static gd_tensor *name(gd_tensor *const *in) \
    {                                            \
        return __VA_ARGS__;                      \
    }

static gd_tensor *weight_of(const gd_tensor *x, float last)
{
    const float weight[4] = { 1, 0.5f, 3, last };
    return gd_from_host(gd_tensor_context(x), GD_SHAPE(4), GD_F32, weight);
}

LOSS(cross_entropy_plain, gd_cross_entropy(in[0], in[1]))
LOSS(cross_entropy_full,
     gd_cross_entropy(in[0], in[1], .weight = weight_of(in[0], 2), .label_smoothing = 0.2,
                      .ignore_index = 2, .reduction = GD_REDUCE_SUM))
LOSS(probabilities, gd_cross_entropy_probabilities(in[0], in[1]))
LOSS(nll, gd_nll(in[0], in[1], .weight = weight_of(in[0], 2), .ignore_index = 1))
LOSS(bce, gd_bce(in[0], in[1], .weight = weight_of(in[0], 2), .reduction = GD_REDUCE_NONE))
LOSS(logits, gd_bce_with_logits(in[0], in[1], .weight = weight_of(in[0], 2),
                                .positive_weight = weight_of(in[0], 7)))
LOSS(focal, gd_focal(in[0], in[1], .alpha = NAN, .gamma = 1.5))
LOSS(focal_plain, gd_focal(in[0], in[1]))
LOSS(hinge, gd_hinge(in[0], in[1], .margin = 0))
LOSS(hinge_plain, gd_hinge(in[0], in[1]))
LOSS(hinge_embedding, gd_hinge_embedding(in[0], in[1], .margin = 2))
LOSS(kl_div, gd_kl_div(in[0], in[1], .reduction = GD_REDUCE_BATCH_MEAN))
LOSS(kl_div_log, gd_kl_div(in[0], in[1], .log_target = true))
LOSS(mse, gd_mse(in[0], in[1], .reduction = GD_REDUCE_SUM))
LOSS(mae, gd_mul_scalar(gd_mae(in[0], in[1]), 0.125))
LOSS(huber, gd_huber(in[0], in[1], .delta = 0.3))
LOSS(smooth_l1, gd_smooth_l1(in[0], in[1], .delta = 0.3))
LOSS(cosine, gd_cosine_embedding(in[0], in[1], in[2], .margin = 0.1))
LOSS(cosine_plain, gd_cosine_embedding(in[0], in[1], in[2]))
LOSS(triplet, gd_triplet_margin(in[0], in[1], in[2], .margin = 0.2, .p = 1, .swap = true))
LOSS(triplet_plain, gd_triplet_margin(in[0], in[1], in[2]))

/* Letters: u, v, w outputs of the model [BATCH, 4], p its probabilities, l their logarithms; c classes,
 * f floats of 0 and 1, s signs [BATCH, 4], o signs [BATCH], q and g probabilities and logarithms. */
static const loss_case loss_cases[] = {
    { QUOTE("cross_entropy"), "u", "c", cross_entropy_plain },
    { QUOTE({
          "type" : "cross_entropy",
          "weight" : [ 1, 0.5, 3, 2 ],
          "label_smoothing" : 0.2,
          "ignore_index" : 2,
          "reduction" : "sum"
      }),
      "u", "c", cross_entropy_full },
    { QUOTE("cross_entropy"), "p", "c", probabilities },
    { QUOTE("cross_entropy_probabilities"), "p", "c", probabilities },
    { QUOTE({ "type" : "nll", "weight" : [ 1, 0.5, 3, 2 ], "ignore_index" : 1 }), "l", "c", nll },
    { QUOTE({ "type" : "bce", "weight" : [ 1, 0.5, 3, 2 ], "reduction" : "none" }), "p", "f", bce },
    { QUOTE({
          "type" : "bce_with_logits",
          "weight" : [ 1, 0.5, 3, 2 ],
          "positive_weight" : [ 1, 0.5, 3, 7 ]
      }),
      "u", "f", logits },
    { QUOTE({ "type" : "focal", "alpha" : null, "gamma" : 1.5 }), "u", "f", focal },
    { QUOTE({ "type" : "focal" }), "u", "f", focal_plain },
    { QUOTE({ "type" : "hinge", "margin" : 0 }), "u", "s", hinge },
    { QUOTE("hinge"), "u", "s", hinge_plain },
    { QUOTE({ "type" : "hinge_embedding", "margin" : 2 }), "u", "s", hinge_embedding },
    { QUOTE({ "type" : "kl_div", "reduction" : "batch_mean" }), "l", "q", kl_div },
    { QUOTE({ "type" : "kl_div", "log_target" : true }), "l", "g", kl_div_log },
    { QUOTE({ "type" : "mse", "reduction" : "sum" }), "u", "f", mse },
    { QUOTE({ "type" : "mae", "scale" : 0.125 }), "u", "f", mae },
    { QUOTE({ "type" : "huber", "delta" : 0.3 }), "u", "f", huber },
    { QUOTE({ "type" : "smooth_l1", "delta" : 0.3 }), "u", "f", smooth_l1 },
    { QUOTE({ "type" : "cosine_embedding", "margin" : 0.1 }), "uv", "o", cosine },
    { QUOTE("cosine_embedding"), "uv", "o", cosine_plain },
    { QUOTE({ "type" : "triplet_margin", "margin" : 0.2, "p" : 1, "swap" : true }), "uvw", "",
      triplet },
    { QUOTE("triplet_margin"), "uvw", "", triplet_plain },
};

static gd_tensor *target_of(gd_context *gd, char letter)
{
    gd_tensor *classes = integers(gd, GD_SHAPE(BATCH), 4);
    gd_tensor *bits = gd_cast(integers(gd, GD_SHAPE(BATCH, 4), 2), GD_F32);
    gd_tensor *q = gd_softmax(waves(gd, GD_SHAPE(BATCH, 4)), -1);
    switch (letter) {
    case 'c':
        return classes;
    case 'f':
        return bits;
    case 's':
        return gd_sub_scalar(gd_mul_scalar(bits, 2), 1);
    case 'o':
        return gd_sub_scalar(gd_mul_scalar(gd_cast(gd_mod_scalar(classes, 2), GD_F32), 2), 1);
    case 'q':
        return q;
    default:
        return gd_log(q);
    }
}

/* A model whose outputs have the letters' names. */
static gd_model *model_of_loss(gd_context *gd, const char *outputs, const char *loss)
{
    static const struct {
        char name;
        const char *rest;
    } layers[] = { { 'u', "\"linear\", \"units\": 4" },
                   { 'v', "\"linear\", \"units\": 4" },
                   { 'w', "\"linear\", \"units\": 4" },
                   { 'p', "\"softmax\"" },
                   { 'l', "\"log_softmax\"" } };
    char json[2048] = "{ \"input\": [4], \"layers\": [", names[64] = "";
    for (const char *output = outputs; *output; output++)
        for (int i = 0; i < 5; i++)
            if (layers[i].name == *output) {
                const char *comma = *names ? ", " : "";
                snprintf(json + strlen(json), 128,
                         "%s{ \"name\": \"%c\", \"inputs\": [\"input\"], \"type\": %s }", comma,
                         *output, layers[i].rest);
                snprintf(names + strlen(names), 8, "%s\"%c\"", comma, *output);
            }
    snprintf(json + strlen(json), sizeof json - strlen(json),
             "], \"outputs\": [%s], \"loss\": %s }", names, loss);
    return load(gd, json);
}

static void every_loss_is_the_function_with_its_options(void **state)
{
    gd_context *gd = *state;
    static char text[4096];
    for (size_t i = 0; i < sizeof loss_cases / sizeof *loss_cases; i++) {
        const loss_case *c = &loss_cases[i];
        gd_model *model = model_of_loss(gd, c->outputs, c->json);
        int outputs = (int)strlen(c->outputs), targets = (int)strlen(c->targets);
        gd_tensor *in[4], *x = waves(gd, GD_SHAPE(BATCH, 4));
        assert_int_equal(gd_model_forward_all(model, 1, &x, outputs, in), GD_OK);
        for (int k = 0; k < targets; k++)
            in[outputs + k] = target_of(gd, c->targets[k]);
        gd_tensor *loss = gd_model_loss_all(model, outputs, in, targets, in + outputs);
        assert_same_bits(loss, c->expected(in));
        assert_int_equal(gd_model_target_count(model), targets);
        assert_true(gd_model_format_json(model, text, sizeof text) < sizeof text);
        gd_model *back = load(gd, text); /* with all its options */
        assert_same_bits(gd_model_loss_all(back, outputs, in, targets, in + outputs), loss);
        gd_model_release(model);
        gd_model_release(back);
    }
}

static void ctc_takes_batches_first(void **state)
{
    gd_context *gd = *state;
    gd_model *model = load(gd, QUOTE({
                               "input" : [ 6, 5 ],
                               "layers" : [ { "name" : "l", "type" : "log_softmax" } ],
                               "loss" : { "type" : "ctc", "blank" : 4, "zero_infinity" : true }
                           }));
    gd_tensor *x = waves(gd, GD_SHAPE(BATCH, TIME, 5)), *y = gd_model_forward(model, x);
    gd_tensor *targets[3] = { integers(gd, GD_SHAPE(BATCH, 2), 4),
                              gd_full(gd, GD_SHAPE(BATCH), TIME, GD_I64),
                              gd_full(gd, GD_SHAPE(BATCH), 2, GD_I64) };
    gd_tensor *expected = gd_ctc(gd_transpose(y, 0, 1), targets[0], targets[1], targets[2],
                                 .blank = 4, .zero_infinity = true);
    assert_same_bits(gd_model_loss_all(model, 1, &y, 3, targets), expected);
    assert_null(gd_model_loss(model, y, targets[0]));
    expect_error(GD_ERR_INVALID, "its losses take 3 targets");
}

/* ---- descriptions that are wrong ---- */

#define RELU  "{ \"name\": \"a\", \"type\": \"relu\" }"
#define MODEL "\"input\": [4], \"layers\": [" RELU "]"
#define TWO   "\"input\": [4], \"layers\": [" RELU ", { \"name\": \"b\", \"type\": \"tanh\" }]"
#define PAIR  "\"outputs\": [\"a\", \"b\"]"

static void mistakes_are_explained(void **state)
{
    static const struct {
        const char *json;
        gd_status status;
        const char *words;
    } rows[] = {
        { "{ " MODEL ", \"loss\": { \"type\": \"cross_entropy\", \"lable_smoothing\": 0.1 } }",
          GD_ERR_FORMAT,
          "loss \"cross_entropy\": there is no key \"lable_smoothing\": did you mean "
          "\"label_smoothing\"? there are type, outputs, scale, weight" },
        { "{ " MODEL ", \"loss\": { \"type\": \"mse\", \"delta\": 2 } }", GD_ERR_INVALID,
          "the loss mse does not use \"delta\"" },
        { "{ " MODEL ", \"loss\": \"cross_entopy\" }", GD_ERR_INVALID,
          "no loss \"cross_entopy\": did you mean \"cross_entropy\"?" },
        { "{ " MODEL ", \"loss\": { \"delta\": 2 } }", GD_ERR_FORMAT, "an object {\"type\": ..}" },
        { "{ " MODEL ", \"loss\": { \"type\": \"nll\", \"weight\": 3 } }", GD_ERR_FORMAT,
          "\"weight\" must be a list of numbers" },
        { "{ " MODEL ", \"loss\": { \"type\": \"nll\", \"weight\": [\"1\"] } }", GD_ERR_FORMAT,
          "\"weight\" must be a list of numbers" },
        { "{ " MODEL ", \"loss\": { \"type\": \"mse\", \"reduction\": \"all\" } }", GD_ERR_FORMAT,
          "\"reduction\" must be one of mean, sum, none, batch_mean" },
        { "{ " MODEL ", \"loss\": \"mse\", \"losses\": [\"mse\"] }", GD_ERR_FORMAT,
          "both \"loss\" and \"losses\"" },
        { "{ " MODEL ", \"losses\": [] }", GD_ERR_FORMAT, "a list of 1 to 64 losses" },
        { "{ " MODEL ", \"losses\": [\"mse\", \"mse\"] }", GD_ERR_INVALID,
          "takes 1 output, but the model has 1 and other losses take them" },
        { "{ " MODEL ", \"loss\": \"triplet_margin\" }", GD_ERR_INVALID,
          "triplet_margin takes 3 outputs" },
        { "{ " MODEL ", \"loss\": { \"type\": \"mse\", \"outputs\": [\"b\"] } }", GD_ERR_INVALID,
          "of \"b\", which is no output" },
        { "{ " TWO ", " PAIR ", \"loss\": { \"type\": \"mse\", \"outputs\": [\"a\", \"b\"] } }",
          GD_ERR_INVALID, "the loss mse takes 1 output, not 2" },
        { "{ " TWO ", " PAIR ", \"losses\": [\"mse\", { \"type\": \"mae\", \"reduction\": "
          "\"none\" }] }",
          GD_ERR_INVALID, "the loss mae has the reduction none" },
        { "{ \"input\": [4], \"layers\": [ { \"name\": \"a\", \"type\": \"softmax\" } ], \"loss\": "
          "{ \"type\": \"cross_entropy\", \"label_smoothing\": 0.1 } }",
          GD_ERR_INVALID,
          "with \"label_smoothing\" takes logits, but layer \"a\" ends in softmax" },
        { "{ " TWO ", \"outputs\": [\"b\", \"b\"] }", GD_ERR_INVALID, "\"b\" is listed twice" },
        { "{ " TWO ", \"outputs\": [\"b\", \"input\"] }", GD_ERR_INVALID,
          "the output \"input\" is no layer" },
        { "{ " TWO ", \"output\": \"b\", " PAIR " }", GD_ERR_INVALID, "both output and outputs" },
        { "{ " TWO ", \"outputs\": [] }", GD_ERR_FORMAT, "a list of 1 to 64 names" },
        { "{ " MODEL ", \"inputs\": [ { \"name\": \"x\", \"shape\": [4] } ] }", GD_ERR_INVALID,
          "both input and inputs" },
        { "{ \"inputs\": [ { \"name\": \"x\" } ], \"layers\": [" RELU "] }", GD_ERR_FORMAT,
          "input \"x\" must be an object {\"name\": .., \"shape\": [..]}" },
        { "{ \"inputs\": [ { \"name\": \"x\", \"shape\": [4], \"dtyp\": \"i64\" } ], \"layers\": "
          "[" RELU "] }",
          GD_ERR_FORMAT, "no key \"dtyp\": did you mean \"dtype\"? there are name, shape, dtype" },
        { "{ \"inputs\": [ { \"name\": \"x\", \"shape\": [4], \"dtype\": \"float\" } ], "
          "\"layers\": [" RELU "] }",
          GD_ERR_FORMAT, "\"dtype\" must be the name of a dtype" },
        { "{ \"inputs\": [ { \"name\": \"x\", \"shape\": [4] }, { \"name\": \"y\", \"shape\": [4] "
          "} ],"
          "\"layers\": [" RELU "] }",
          GD_ERR_INVALID, "nothing leads from the input \"y\" to the output" },
        { "{ \"inputs\": [ { \"name\": \"x\", \"shape\": [4] }, { \"name\": \"x\", \"shape\": [4] "
          "} ],"
          "\"layers\": [" RELU "] }",
          GD_ERR_INVALID, "two inputs are called \"x\"" },
        { "{ \"inputs\": [ { \"name\": \"a\", \"shape\": [4] } ], \"layers\": [" RELU "] }",
          GD_ERR_INVALID, "layer number 1 is called \"a\", which is an input" },
        { "{ \"inputs\": [ { \"name\": \"x\", \"shape\": [1099511627776, 4] } ], \"layers\": [" RELU
          "] }",
          GD_ERR_SHAPE, "size 1 of the input \"x\"" },
        { "{ \"input\": [4], \"layers\": [ { \"name\": \"block\", \"type\": \"linear\", \"units\": "
          "4 "
          "}, { \"name\": \"block.weight\", \"type\": \"linear\", \"units\": 4 } ] }",
          GD_ERR_INVALID,
          "\"block.weight\" cannot be told from parameters of the layer \"block\"" },
        { "{ \"input\": [4], \"layers\": [ { \"name\": \"first\", \"type\": \"relu\" }, { "
          "\"name\": "
          "\"b\", \"type\": \"relu\", \"inputs\": [\"frist\"] } ] }",
          GD_ERR_INVALID, "nor an input of it" },
        { "{ \"input\": [4], \"layers\": [ { \"name\": \"a\", \"type\": \"linear\", \"units\": 3, "
          "\"lengths\": \"input\" } ] }",
          GD_ERR_INVALID, "type linear does not use \"lengths\"" },
        { "{ \"input\": [4, 3], \"layers\": [ { \"name\": \"a\", \"type\": \"gru\", \"units\": 3, "
          "\"lengths\": \"inputs\" } ] }",
          GD_ERR_INVALID,
          "its lengths \"inputs\" is no layer of the model, nor an input of it: did "
          "you mean \"input\"?" },
        { "{ \"input\": [4, 3], \"layers\": [ { \"name\": \"a\", \"type\": \"last\", \"lengths\": "
          "\"input\" } ] }",
          GD_ERR_SHAPE, "layer \"a\" (last): the lengths are [1, 4, 3]; [batch] is needed" },
        { "{ \"inputs\": [ { \"name\": \"x\", \"shape\": [4, 6] }, { \"name\": \"s\", \"shape\": "
          "[], "
          "\"dtype\": \"bool\" } ], \"layers\": [ { \"name\": \"a\", \"type\": "
          "\"multi_head_attention\", \"heads\": 2, \"mask\": \"s\" } ] }",
          GD_ERR_SHAPE, "the mask is [1]; [batch, keys]" },
        { "{ \"input\": [4], \"layers\": [ { \"name\": \"a\", \"type\": \"relu\", \"config\": 3 } "
          "] }",
          GD_ERR_FORMAT, "\"config\" must be an object" },
        { "{ \"input\": [4], \"layers\": [ { \"name\": \"a\", \"type\": \"relu\", \"config\": {} } "
          "] "
          "}",
          GD_ERR_INVALID, "type relu does not use \"config\"" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (gd_model_load_json(*state, rows[i].json))
            fail_msg("accepted: %s", rows[i].json);
        expect_error(rows[i].status, rows[i].words);
    }
}

/* As deep as an attacker likes. */
static void depth_is_bounded(void **state)
{
    enum { DEPTH = 100000 };
    static char json[DEPTH + 64];
    strcpy(json, "{ \"input\": ");
    memset(json + strlen(json), '[', DEPTH);
    assert_null(gd_model_load_json(*state, json));
    expect_error(GD_ERR_FORMAT, "depth");
}

/* ---- out of memory, at every allocation in turn ---- */

static bool everything(int unused)
{
    (void)unused;
    gd_context *gd = gd_open(test_device(), .threads = 1);
    gd_model *model = gd ? gd_model_load_json(gd, two_heads, .seed = 3) : NULL;
    gd_tensor *out[2], *in[4] = { NULL };
    bool ok = model;
    if (ok) {
        in[0] = gd_zeros(gd, GD_SHAPE(2, TIME), GD_I64);
        in[1] = gd_ones(gd, GD_SHAPE(2), GD_I64);
        in[2] = gd_zeros(gd, GD_SHAPE(2), GD_I64);
        in[3] = gd_zeros(gd, GD_SHAPE(2, 1), GD_F32);
        ok = in[0] && in[1] && in[2] && in[3] &&
             gd_model_forward_all(model, 2, in, 2, out) == GD_OK &&
             gd_model_loss_all(model, 2, out, 2, in + 2) &&
             gd_model_format_json(model, NULL, 0) > 0;
    }
    gd_close(gd);
    return ok;
}

static void failing_allocations_leave_nothing_behind(void **state)
{
    (void)state;
    fail_every_allocation(everything, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        context_test(several_inputs_and_outputs_have_the_bits_of_c),
        context_test(they_train_compiled_as_eagerly),
        context_test(descriptions_are_written_and_read_back),
        context_test(what_does_not_fit_is_named),
        context_test(attention_takes_masks_and_lengths),
        context_test(transformers_take_masks_and_lengths),
        context_test(recurrent_networks_take_lengths),
        context_test(every_loss_is_the_function_with_its_options),
        context_test(ctc_takes_batches_first),
        context_test(mistakes_are_explained),
        context_test(depth_is_bounded),
        cmocka_unit_test(failing_allocations_leave_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
    return 77; /* no JSON in this build */
}

#endif
