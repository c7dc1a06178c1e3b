/* nn/layer_types_sequence.c: types of layers for sequences [batch, time, width]: recurrent
 * networks, positions, attention, Transformers and their parts. The layers are those of
 * gradus/sequence.h. See nn/layer_types.c. */
#include "nn/layer_types.h"

#include "base/error.h"
#include "nn/module.h"
#include "nn/sequence.h"

#include <string.h>

/* Tokens may come as the floats a model's input is. */
static gd_tensor *tokens_of(const gd_layer_args *c)
{
    return gd_dtype_is_float(gd_tensor_dtype(c->in[0])) ? gd_cast(c->in[0], GD_I64) : c->in[0];
}

static bool is_sequence(const gd_layer_args *c)
{
    char text[GD_NN_SHAPE_TEXT];
    gd_shape shape = gd_tensor_shape(c->in[0]);
    if (shape.rank == 3)
        return true;
    (void)gd_fail(GD_ERR_SHAPE, "the input is %s; [batch, time, width] is needed",
                  gd_nn_shape_text(shape, text));
    return false;
}

/* ---- padded sequences: masks of what attention may look at ---- */

/* A mask [batch, keys] or [batch, queries, keys] with axes of size 1 behind the batch, so that it
 * broadcasts to scores of `rank` axes. */
static gd_tensor *spread(gd_tensor *mask, int rank)
{
    gd_shape shape = gd_tensor_shape(mask), wide = { .rank = rank, .dim = { shape.dim[0] } };
    char text[GD_NN_SHAPE_TEXT];
    if (shape.rank == rank)
        return mask;
    if (shape.rank < 2 || shape.rank > 3 || shape.rank > rank)
        return gd_fail_null(GD_ERR_SHAPE,
                            "the mask is %s; [batch, keys], [batch, queries, keys] or [batch, "
                            "heads, queries, keys] is needed",
                            gd_nn_shape_text(shape, text));
    for (int i = 1; i < rank; i++)
        wide.dim[i] = i > rank - shape.rank ? shape.dim[i - rank + shape.rank] : 1;
    return gd_reshape(mask, wide);
}

/* Integers [batch], as i64. */
static gd_tensor *lengths_of(gd_tensor *lengths)
{
    char text[GD_NN_SHAPE_TEXT];
    if (gd_tensor_shape(lengths).rank == 1)
        return gd_cast(lengths, GD_I64);
    return gd_fail_null(GD_ERR_SHAPE, "the lengths are %s; [batch] is needed",
                        gd_nn_shape_text(gd_tensor_shape(lengths), text));
}

/* bool [batch, keys]: which of them are within their sequence's length */
static gd_tensor *keys_within(gd_tensor *lengths, int64_t keys)
{
    gd_tensor *n = lengths_of(lengths);
    if (!n)
        return NULL;
    gd_tensor *t = gd_arange(gd_tensor_context(n), 0, (double)keys, 1, GD_I64);
    return gd_lt(t, gd_unsqueeze(n, 1));
}

/* What a mask allows and lengths allow too. */
static gd_tensor *join(gd_tensor *mask, gd_tensor *within)
{
    gd_dtype dtype = gd_tensor_dtype(mask);
    if (dtype == GD_BOOL)
        return gd_logical_and(mask, within);
    return gd_where(within, mask, gd_scalar(gd_tensor_context(mask), -INFINITY, dtype));
}

/* The mask for scores of `rank` axes over the second axis of `keys`, of two operands, either of which
 * may be NULL; *out is NULL without both. false: the error is recorded. */
static bool mask_of(gd_tensor *mask, gd_tensor *lengths, const gd_tensor *keys, int rank,
                    gd_tensor **out)
{
    int axis = gd_tensor_shape(keys).rank - 2;
    int64_t count = axis > 0 ? gd_tensor_shape(keys).dim[axis] : gd_tensor_shape(keys).dim[1];
    *out = NULL;
    if (mask && !(*out = spread(mask, rank)))
        return false;
    if (!lengths)
        return true;
    gd_tensor *within = keys_within(lengths, count);
    within = within ? spread(within, rank) : NULL;
    *out = within && *out ? join(*out, within) : within;
    return *out;
}

/* The same of the operands that are a layer's `mask` and `lengths`. */
static bool own_mask(const gd_layer_args *c, const gd_tensor *keys, gd_tensor **out)
{
    return mask_of(c->operand[GD_OPERAND_MASK], c->operand[GD_OPERAND_LENGTHS], keys, 4, out);
}

/* ---- recurrent networks ---- */

static double dropout_of(const gd_layer_spec *spec)
{
    return isnan(spec->dropout) ? 0 : spec->dropout;
}

static gd_nn_recurrent_options recurrent_options(const gd_layer_args *c)
{
    const gd_layer_spec *s = c->spec;
    gd_tensor *lengths = c->operand[GD_OPERAND_LENGTHS];
    return (gd_nn_recurrent_options){ GD_NN_RECURRENT_DEFAULTS,
                                      .layers = s->layers == -1 ? 1 : s->layers,
                                      .bidirectional = s->bidirectional, .lengths = lengths,
                                      .dropout = dropout_of(s) };
}

static gd_tensor *build_rnn(const gd_layer_args *c)
{
    gd_nn_recurrent_options o = recurrent_options(c);
    o.relu = strcmp(c->type->name, "rnn_relu") == 0;
    return gd_nn_rnn_with(c->module, c->spec->name, c->in[0], c->spec->units, &o);
}

static gd_tensor *build_lstm(const gd_layer_args *c)
{
    gd_nn_recurrent_options o = recurrent_options(c);
    return gd_nn_lstm_with(c->module, c->spec->name, c->in[0], c->spec->units, &o);
}

static gd_tensor *build_gru(const gd_layer_args *c)
{
    gd_nn_recurrent_options o = recurrent_options(c);
    return gd_nn_gru_with(c->module, c->spec->name, c->in[0], c->spec->units, &o);
}

/* The last step within each sequence's length; of an empty one the first. */
static gd_tensor *last_within(gd_tensor *x, gd_tensor *lengths)
{
    gd_shape shape = gd_tensor_shape(x);
    int64_t rows = shape.dim[0] * shape.dim[1];
    gd_tensor *n = lengths_of(lengths);
    if (!n)
        return NULL;
    gd_tensor *step = gd_clip(gd_sub_scalar(n, 1), 0, (double)shape.dim[1] - 1);
    gd_tensor *first =
        gd_arange(gd_tensor_context(x), 0, (double)rows, (double)shape.dim[1], GD_I64);
    return gd_take(gd_reshape(x, GD_SHAPE(rows, shape.dim[2])), gd_add(first, step), 0);
}

static gd_tensor *build_last(const gd_layer_args *c)
{
    gd_tensor *lengths = c->operand[GD_OPERAND_LENGTHS];
    if (!is_sequence(c))
        return NULL;
    return lengths ? last_within(c->in[0], lengths) : gd_select(c->in[0], 1, -1);
}

/* ---- positions ---- */

static gd_tensor *build_sinusoidal_position(const gd_layer_args *c)
{
    gd_shape shape = gd_tensor_shape(c->in[0]);
    if (!is_sequence(c))
        return NULL;
    gd_context *context = gd_module_context(c->module);
    return gd_add(c->in[0], gd_sinusoidal_positions(context, 0, shape.dim[1], shape.dim[2],
                                                    gd_module_dtype(c->module)));
}

static gd_tensor *build_learned_position(const gd_layer_args *c)
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

static gd_tensor *build_rotary_position(const gd_layer_args *c)
{
    return gd_rope(c->in[0]);
}

/* ---- attention and Transformers ---- */

/* Attention turns queries and keys; other positions are added to tokens, before. */
static bool position_fits(const gd_layer_args *c)
{
    if (c->spec->position != GD_POSITION_SINUSOIDAL)
        return true;
    (void)gd_fail(GD_ERR_INVALID, "\"position\" may be rotary or rotary_halves here; sinusoidal "
                                  "ones are a layer of their own");
    return false;
}

static gd_tensor *build_attention(const gd_layer_args *c)
{
    const gd_layer_spec *s = c->spec;
    gd_tensor *mask, *memory = c->n > 1 ? c->in[1] : NULL;
    if (!position_fits(c) || !own_mask(c, memory ? memory : c->in[0], &mask))
        return NULL;
    return gd_nn_multi_head_attention(c->module, s->name, c->in[0], s->heads,
                                      .kv_heads = s->kv_heads, .memory = memory, .mask = mask,
                                      .causal = s->causal, .bias = s->bias,
                                      .dropout = dropout_of(s), .position = s->position);
}

static gd_tensor *build_scaled_attention(const gd_layer_args *c)
{
    const gd_layer_spec *s = c->spec;
    gd_tensor *mask;
    if (!mask_of(c->operand[GD_OPERAND_MASK], c->operand[GD_OPERAND_LENGTHS], c->in[1],
                 gd_tensor_shape(c->in[0]).rank, &mask))
        return NULL;
    return gd_attention(c->in[0], c->in[1], c->in[2], .mask = mask, .causal = s->causal,
                        .dropout = gd_module_is_training(c->module) ? dropout_of(s) : 0);
}

static gd_tensor *build_feed_forward(const gd_layer_args *c)
{
    const gd_layer_spec *s = c->spec;
    return gd_nn_feed_forward(c->module, s->name, c->in[0], gd_nn_hidden(s->hidden, c->in[0]),
                              .activation = s->feed_forward, .bias = s->bias,
                              .dropout = dropout_of(s));
}

static gd_transformer_config config_of(const gd_layer_args *c)
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

static gd_tensor *build_encoder_layer(const gd_layer_args *c)
{
    gd_transformer_config config = config_of(c);
    gd_tensor *mask;
    if (!position_fits(c) || !own_mask(c, c->in[0], &mask))
        return NULL;
    return gd_nn_encoder_layer(c->module, c->spec->name, c->in[0], &config, .mask = mask,
                               .causal = c->spec->causal);
}

static gd_tensor *build_encoder(const gd_layer_args *c)
{
    gd_transformer_config config = config_of(c);
    gd_tensor *mask;
    if (!position_fits(c) || !own_mask(c, c->in[0], &mask))
        return NULL;
    return gd_nn_encoder(c->module, c->spec->name, c->in[0], &config, .mask = mask,
                         .causal = c->spec->causal);
}

static bool memory_mask_of(const gd_layer_args *c, gd_tensor **out)
{
    return mask_of(c->operand[GD_OPERAND_MEMORY_MASK], c->operand[GD_OPERAND_MEMORY_LENGTHS],
                   c->in[1], 4, out);
}

static gd_tensor *build_decoder_layer(const gd_layer_args *c)
{
    gd_transformer_config config = config_of(c);
    gd_tensor *mask, *memory_mask;
    if (!own_mask(c, c->in[0], &mask) || !memory_mask_of(c, &memory_mask))
        return NULL;
    return gd_nn_decoder_layer(c->module, c->spec->name, c->in[0], c->in[1], &config, .mask = mask,
                               .memory_mask = memory_mask);
}

static gd_tensor *build_decoder(const gd_layer_args *c)
{
    gd_transformer_config config = config_of(c);
    gd_tensor *mask, *memory_mask;
    if (!own_mask(c, c->in[0], &mask) || !memory_mask_of(c, &memory_mask))
        return NULL;
    return gd_nn_decoder(c->module, c->spec->name, c->in[0], c->in[1], &config, .mask = mask,
                         .memory_mask = memory_mask);
}

static gd_tensor *build_transformer(const gd_layer_args *c)
{
    gd_transformer_config config = config_of(c);
    gd_tensor *mask = c->operand[GD_OPERAND_MASK], *source, *target, *memory;
    gd_tensor *of_keys = mask && gd_tensor_shape(mask).rank == 2 ? mask : NULL;
    if (!own_mask(c, c->in[0], &source) ||
        !mask_of(c->operand[GD_OPERAND_TARGET_MASK], c->operand[GD_OPERAND_TARGET_LENGTHS],
                 c->in[1], 4, &target) ||
        !mask_of(of_keys, c->operand[GD_OPERAND_LENGTHS], c->in[0], 4, &memory))
        return NULL;
    return gd_nn_transformer(c->module, c->spec->name, c->in[0], c->in[1], &config,
                             .source_mask = source, .target_mask = target, .memory_mask = memory);
}

/* ---- models of tokens ---- */

static gd_tensor *build_token_embedding(const gd_layer_args *c)
{
    gd_transformer_config config = config_of(c);
    config.heads = 1;
    return gd_nn_token_embedding(c->module, c->spec->name, tokens_of(c), &config);
}

static gd_tensor *build_decoder_only(const gd_layer_args *c)
{
    gd_transformer_config config = config_of(c);
    gd_tensor *mask;
    if (!own_mask(c, c->in[0], &mask))
        return NULL;
    return gd_nn_decoder_only(c->module, c->spec->name, tokens_of(c), &config, .mask = mask);
}

static gd_tensor *build_encoder_only(const gd_layer_args *c)
{
    gd_transformer_config config = config_of(c);
    gd_tensor *mask;
    if (!own_mask(c, c->in[0], &mask))
        return NULL;
    return gd_nn_encoder_only(c->module, c->spec->name, tokens_of(c), &config, .mask = mask);
}

#define PADDED  (GD_USES(MASK) | GD_USES(LENGTHS))
#define MEMORY  (GD_USES(MEMORY_MASK) | GD_USES(MEMORY_LENGTHS))
#define TARGET  (GD_USES(TARGET_MASK) | GD_USES(TARGET_LENGTHS))
#define DROPOUT (GD_USES(DROPOUT))
#define RECURRENT \
    (GD_USES(UNITS) | GD_USES(LAYERS) | GD_USES(BIDIRECTIONAL) | DROPOUT | GD_USES(LENGTHS))
#define ATTENTION                                                                         \
    (GD_USES(HEADS) | GD_USES(KV_HEADS) | GD_USES(CAUSAL) | GD_USES(POSITION) | DROPOUT | \
     GD_USES(BIAS) | PADDED)
#define FEED_FORWARD (GD_USES(HIDDEN) | GD_USES(FEED_FORWARD) | DROPOUT | GD_USES(BIAS))
#define LAYER        (ATTENTION | FEED_FORWARD | GD_USES(NORM) | GD_USES(PRE_NORM) | GD_USES(EPSILON))
#define STACK        (LAYER | GD_USES(LAYERS))
#define DECODER(of)  (((of) | MEMORY) & ~GD_USES(CAUSAL) & ~GD_USES(POSITION))
#define TRANSFORMER  ((STACK | TARGET) & ~GD_USES(CAUSAL) & ~GD_USES(POSITION))
#define TOKENS       (GD_USES(VOCABULARY) | GD_USES(UNITS))
#define EMBEDDING    (TOKENS | GD_USES(POSITION) | GD_USES(MAX_LENGTH) | DROPOUT)
#define MODEL        ((STACK | EMBEDDING) & ~GD_USES(CAUSAL))
#define NEEDS        (TOKENS | GD_USES(HEADS))
#define HAS_LAYERS   .has_layers = true
#define IS_STACK     .has_layers = true, .is_stack = true

const gd_layer_type gd_sequence_layer_types[] = {
    { "rnn", build_rnn, 1, 1, RECURRENT, GD_USES(UNITS), HAS_LAYERS },
    { "rnn_relu", build_rnn, 1, 1, RECURRENT, GD_USES(UNITS), HAS_LAYERS },
    { "lstm", build_lstm, 1, 1, RECURRENT, GD_USES(UNITS), HAS_LAYERS },
    { "gru", build_gru, 1, 1, RECURRENT, GD_USES(UNITS), HAS_LAYERS },
    { "last", build_last, 1, 1, GD_USES(LENGTHS), 0, .simple = NULL },
    { "sinusoidal_position", build_sinusoidal_position, 1, 1, 0, 0, .simple = NULL },
    { "learned_position", build_learned_position, 1, 1, GD_USES(MAX_LENGTH), 0, HAS_LAYERS },
    { "rotary_position", build_rotary_position, 1, 1, 0, 0, .simple = NULL },
    { "multi_head_attention", build_attention, 1, 2, ATTENTION, GD_USES(HEADS), HAS_LAYERS },
    { "attention", build_scaled_attention, 3, 3, GD_USES(CAUSAL) | DROPOUT | PADDED, 0,
      .simple = NULL },
    { "feed_forward", build_feed_forward, 1, 1, FEED_FORWARD, 0, HAS_LAYERS },
    { "encoder_layer", build_encoder_layer, 1, 1, LAYER, GD_USES(HEADS), HAS_LAYERS },
    { "encoder", build_encoder, 1, 1, STACK, GD_USES(HEADS), IS_STACK },
    { "decoder_layer", build_decoder_layer, 2, 2, DECODER(LAYER), GD_USES(HEADS), HAS_LAYERS },
    { "decoder", build_decoder, 2, 2, DECODER(STACK), GD_USES(HEADS), IS_STACK },
    { "transformer", build_transformer, 2, 2, TRANSFORMER, GD_USES(HEADS), IS_STACK },
    { "token_embedding", build_token_embedding, 1, 1, EMBEDDING, TOKENS, HAS_LAYERS },
    { "decoder_only", build_decoder_only, 1, 1, MODEL | GD_USES(TIED), NEEDS, IS_STACK },
    { "encoder_only", build_encoder_only, 1, 1, MODEL, NEEDS, IS_STACK },
};
const int gd_sequence_layer_type_count =
    sizeof gd_sequence_layer_types / sizeof *gd_sequence_layer_types;
