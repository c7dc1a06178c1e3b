/* nn/layer_types_sequence.c: types of layers for sequences [batch, time, width]: recurrent
 * networks, positions, attention, Transformers and their parts. The layers are those of
 * gradus/sequence.h. See nn/layer_types.c. */
#include "nn/layer_types.h"

#include "base/error.h"
#include "nn/module.h"
#include "nn/sequence.h"

#include <string.h>

/* Tokens may come as the floats a model's input is. */
static gd_tensor *tokens_of(const gd_layer_call *c)
{
    return gd_dtype_is_float(gd_tensor_dtype(c->in[0])) ? gd_cast(c->in[0], GD_I64) : c->in[0];
}

static bool is_sequence(const gd_layer_call *c)
{
    char text[GD_NN_SHAPE_TEXT];
    gd_shape shape = gd_tensor_shape(c->in[0]);
    if (shape.rank == 3)
        return true;
    (void)gd_fail(GD_ERR_SHAPE, "the input is %s; [batch, time, width] is needed",
                  gd_nn_shape_text(shape, text));
    return false;
}

/* ---- recurrent networks ---- */

static double dropout_of(const gd_layer_spec *spec)
{
    return isnan(spec->dropout) ? 0 : spec->dropout;
}

static gd_nn_recurrent_options recurrent_options(const gd_layer_call *c)
{
    const gd_layer_spec *s = c->spec;
    return (gd_nn_recurrent_options){ GD_NN_RECURRENT_DEFAULTS,
                                      .layers = s->layers == -1 ? 1 : s->layers,
                                      .bidirectional = s->bidirectional, .dropout = dropout_of(s) };
}

static gd_tensor *build_rnn(const gd_layer_call *c)
{
    gd_nn_recurrent_options o = recurrent_options(c);
    o.relu = strcmp(c->type->name, "rnn_relu") == 0;
    return gd_nn_rnn_with(c->module, c->spec->name, c->in[0], c->spec->units, &o);
}

static gd_tensor *build_lstm(const gd_layer_call *c)
{
    gd_nn_recurrent_options o = recurrent_options(c);
    return gd_nn_lstm_with(c->module, c->spec->name, c->in[0], c->spec->units, &o);
}

static gd_tensor *build_gru(const gd_layer_call *c)
{
    gd_nn_recurrent_options o = recurrent_options(c);
    return gd_nn_gru_with(c->module, c->spec->name, c->in[0], c->spec->units, &o);
}

static gd_tensor *build_last(const gd_layer_call *c)
{
    return is_sequence(c) ? gd_select(c->in[0], 1, -1) : NULL;
}

/* ---- positions ---- */

static gd_tensor *build_sinusoidal_position(const gd_layer_call *c)
{
    gd_shape shape = gd_tensor_shape(c->in[0]);
    if (!is_sequence(c))
        return NULL;
    gd_context *context = gd_module_context(c->module);
    return gd_add(c->in[0], gd_sinusoidal_positions(context, 0, shape.dim[1], shape.dim[2],
                                                    gd_module_dtype(c->module)));
}

static gd_tensor *build_learned_position(const gd_layer_call *c)
{
    char path[GD_NN_PATH];
    gd_shape shape = gd_tensor_shape(c->in[0]);
    if (!is_sequence(c) || !gd_nn_path(path, c->spec->name, "weight"))
        return NULL;
    int64_t time = shape.dim[1], most = c->spec->max_length == -1 ? time : c->spec->max_length;
    if (time > most)
        return gd_fail_null(GD_ERR_SHAPE, "%lld tokens, but max_length is %lld", (long long)time,
                            (long long)most);
    gd_tensor *table =
        gd_parameter(c->module, path, GD_SHAPE(most, shape.dim[2]), .init = GD_INIT_GLOROT_NORMAL);
    return gd_add(c->in[0], gd_slice(table, 0, 0, time, 1));
}

static gd_tensor *build_rotary_position(const gd_layer_call *c)
{
    return gd_rope(c->in[0]);
}

/* ---- attention and Transformers ---- */

/* Attention turns queries and keys; other positions are added to tokens, before. */
static bool position_fits(const gd_layer_call *c)
{
    if (c->spec->position != GD_POSITION_SINUSOIDAL)
        return true;
    (void)gd_fail(GD_ERR_INVALID, "\"position\" may be rotary or rotary_halves here; sinusoidal "
                                  "ones are a layer of their own");
    return false;
}

static gd_tensor *build_attention(const gd_layer_call *c)
{
    const gd_layer_spec *s = c->spec;
    if (!position_fits(c))
        return NULL;
    return gd_nn_multi_head_attention(c->module, s->name, c->in[0], s->heads,
                                      .kv_heads = s->kv_heads, .memory = c->n > 1 ? c->in[1] : NULL,
                                      .causal = s->causal, .bias = s->bias,
                                      .dropout = dropout_of(s), .position = s->position);
}

static gd_tensor *build_scaled_attention(const gd_layer_call *c)
{
    const gd_layer_spec *s = c->spec;
    return gd_attention(c->in[0], c->in[1], c->in[2], .mask = c->n > 3 ? c->in[3] : NULL,
                        .causal = s->causal,
                        .dropout = gd_module_is_training(c->module) ? dropout_of(s) : 0);
}

static gd_tensor *build_feed_forward(const gd_layer_call *c)
{
    const gd_layer_spec *s = c->spec;
    return gd_nn_feed_forward(c->module, s->name, c->in[0], gd_nn_hidden(s->hidden, c->in[0]),
                              .activation = s->feed_forward, .bias = s->bias,
                              .dropout = dropout_of(s));
}

static gd_transformer_config config_of(const gd_layer_call *c)
{
    const gd_layer_spec *s = c->spec;
    gd_shape input = gd_tensor_shape(c->in[0]);
    gd_transformer_config config = {
        GD_TRANSFORMER_CONFIG_DEFAULTS,
        .width = s->units,
        .heads = s->heads,
        .kv_heads = s->kv_heads,
        .hidden = s->hidden,
        .vocabulary = s->vocabulary,
        .max_length = s->max_length != -1 ? s->max_length
                      : input.rank > 1    ? input.dim[1]
                                          : 0,
        .activation = s->feed_forward,
        .norm = s->norm,
        .position = s->position,
        .pre_norm = s->pre_norm,
        .bias = s->bias,
        .tied = s->tied,
        .checkpoint = s->checkpoint,
        .dropout = dropout_of(s),
        .epsilon = s->epsilon,
    };
    if (s->layers != -1)
        config.layers = s->layers;
    return config;
}

static gd_tensor *build_encoder_layer(const gd_layer_call *c)
{
    gd_transformer_config config = config_of(c);
    return position_fits(c) ? gd_nn_encoder_layer(c->module, c->spec->name, c->in[0], &config,
                                                  .causal = c->spec->causal)
                            : NULL;
}

static gd_tensor *build_encoder(const gd_layer_call *c)
{
    gd_transformer_config config = config_of(c);
    return position_fits(c) ? gd_nn_encoder(c->module, c->spec->name, c->in[0], &config,
                                            .causal = c->spec->causal)
                            : NULL;
}

static gd_tensor *build_decoder_layer(const gd_layer_call *c)
{
    gd_transformer_config config = config_of(c);
    return gd_nn_decoder_layer(c->module, c->spec->name, c->in[0], c->in[1], &config);
}

static gd_tensor *build_decoder(const gd_layer_call *c)
{
    gd_transformer_config config = config_of(c);
    return gd_nn_decoder(c->module, c->spec->name, c->in[0], c->in[1], &config);
}

static gd_tensor *build_transformer(const gd_layer_call *c)
{
    gd_transformer_config config = config_of(c);
    return gd_nn_transformer(c->module, c->spec->name, c->in[0], c->in[1], &config);
}

/* ---- models of tokens ---- */

static gd_tensor *build_token_embedding(const gd_layer_call *c)
{
    gd_transformer_config config = config_of(c);
    config.heads = 1;
    return gd_nn_token_embedding(c->module, c->spec->name, tokens_of(c), &config);
}

static gd_tensor *build_decoder_only(const gd_layer_call *c)
{
    gd_transformer_config config = config_of(c);
    return gd_nn_decoder_only(c->module, c->spec->name, tokens_of(c), &config);
}

static gd_tensor *build_encoder_only(const gd_layer_call *c)
{
    gd_transformer_config config = config_of(c);
    return gd_nn_encoder_only(c->module, c->spec->name, tokens_of(c), &config);
}

#define RECURRENT (GD_USES(UNITS) | GD_USES(LAYERS) | GD_USES(BIDIRECTIONAL) | GD_USES(DROPOUT))
#define ATTENTION                                                                                  \
    (GD_USES(HEADS) | GD_USES(KV_HEADS) | GD_USES(CAUSAL) | GD_USES(POSITION) | GD_USES(DROPOUT) | \
     GD_USES(BIAS))
#define FEED_FORWARD (GD_USES(HIDDEN) | GD_USES(FEED_FORWARD) | GD_USES(DROPOUT) | GD_USES(BIAS))
#define LAYER        (ATTENTION | FEED_FORWARD | GD_USES(NORM) | GD_USES(PRE_NORM) | GD_USES(EPSILON))
#define STACK        (LAYER | GD_USES(LAYERS))
#define DECODER      (~GD_USES(CAUSAL) & ~GD_USES(POSITION))
#define TOKENS       (GD_USES(VOCABULARY) | GD_USES(UNITS))
#define EMBEDDING    (TOKENS | GD_USES(POSITION) | GD_USES(MAX_LENGTH) | GD_USES(DROPOUT))
#define MODEL        ((STACK | EMBEDDING) & ~GD_USES(CAUSAL))
#define NEEDS        (TOKENS | GD_USES(HEADS))
#define HAS_LAYERS   .has_layers = true
#define IS_STACK     .has_layers = true, .is_stack = true

const gd_layer_type gd_sequence_layer_types[] = {
    { "rnn", build_rnn, 1, 1, RECURRENT, GD_USES(UNITS), HAS_LAYERS },
    { "rnn_relu", build_rnn, 1, 1, RECURRENT, GD_USES(UNITS), HAS_LAYERS },
    { "lstm", build_lstm, 1, 1, RECURRENT, GD_USES(UNITS), HAS_LAYERS },
    { "gru", build_gru, 1, 1, RECURRENT, GD_USES(UNITS), HAS_LAYERS },
    { "last", build_last, 1, 1, 0, 0, .simple = NULL },
    { "sinusoidal_position", build_sinusoidal_position, 1, 1, 0, 0, .simple = NULL },
    { "learned_position", build_learned_position, 1, 1, GD_USES(MAX_LENGTH), 0, HAS_LAYERS },
    { "rotary_position", build_rotary_position, 1, 1, 0, 0, .simple = NULL },
    { "multi_head_attention", build_attention, 1, 2, ATTENTION, GD_USES(HEADS), HAS_LAYERS },
    { "attention", build_scaled_attention, 3, 4, GD_USES(CAUSAL) | GD_USES(DROPOUT), 0,
      .simple = NULL },
    { "feed_forward", build_feed_forward, 1, 1, FEED_FORWARD, 0, HAS_LAYERS },
    { "encoder_layer", build_encoder_layer, 1, 1, LAYER, GD_USES(HEADS), HAS_LAYERS },
    { "encoder", build_encoder, 1, 1, STACK, GD_USES(HEADS), IS_STACK },
    { "decoder_layer", build_decoder_layer, 2, 2, LAYER &DECODER, GD_USES(HEADS), HAS_LAYERS },
    { "decoder", build_decoder, 2, 2, STACK &DECODER, GD_USES(HEADS), IS_STACK },
    { "transformer", build_transformer, 2, 2, STACK &DECODER, GD_USES(HEADS), IS_STACK },
    { "token_embedding", build_token_embedding, 1, 1, EMBEDDING, TOKENS, HAS_LAYERS },
    { "decoder_only", build_decoder_only, 1, 1, MODEL | GD_USES(TIED), NEEDS, IS_STACK },
    { "encoder_only", build_encoder_only, 1, 1, MODEL, NEEDS, IS_STACK },
};
const int gd_sequence_layer_type_count =
    sizeof gd_sequence_layer_types / sizeof *gd_sequence_layer_types;
