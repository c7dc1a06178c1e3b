/* nn/transformer.c: feed-forward networks, encoder and decoder layers, and the models made of them.
 * Reading order: gd_nn_encoder_layer_with(), gd_nn_decoder_only_with().
 *
 * Vaswani et al., "Attention is all you need", 2017. Where the norm stands, and which: Xiong et
 * al., "On layer normalization in the Transformer architecture", 2020; Zhang, Sennrich, "Root mean
 * square layer normalization", 2019.
 */
#include "nn/sequence.h"

#include "base/error.h"

#include <math.h>

/* ---- parts ---- */

static gd_tensor *activate(gd_tensor *x, gd_activation_kind activation)
{
    switch (activation) {
    case GD_ACTIVATION_GELU:
        return gd_gelu(x);
    case GD_ACTIVATION_GELU_TANH:
        return gd_gelu_tanh(x);
    case GD_ACTIVATION_SILU:
        return gd_silu(x);
    default:
        return gd_relu(x);
    }
}

gd_tensor *gd_nn_feed_forward_with(gd_nn_feed_forward_options o)
{
    if (!o.module || !o.x)
        return NULL;
    gd_shape shape = gd_tensor_shape(o.x);
    int64_t width = shape.rank > 0 ? shape.dim[shape.rank - 1] : 1;
    int64_t hidden = o.hidden ? o.hidden : 4 * width;
    char path[GD_NN_PATH];
    gd_tensor *h;
    if (o.activation == GD_ACTIVATION_SWIGLU) {
        gd_tensor *gate = gd_nn_linear(o.module, gd_nn_path(path, o.name, "gate"), o.x, hidden,
                                       .bias = !o.no_bias);
        gd_tensor *up =
            gd_nn_linear(o.module, gd_nn_path(path, o.name, "up"), o.x, hidden, .bias = !o.no_bias);
        h = gd_mul(gd_silu(gate), up);
    } else {
        h = activate(
            gd_nn_linear(o.module, gd_nn_path(path, o.name, "up"), o.x, hidden, .bias = !o.no_bias),
            o.activation);
    }
    h = gd_nn_drop(o.module, h, o.dropout);
    return gd_nn_linear(o.module, gd_nn_path(path, o.name, "down"), h, width, .bias = !o.no_bias);
}

/* name.weight of ones and, for layer norm, name.bias of zeros. */
static gd_tensor *normalize(gd_module *m, const char *name, gd_tensor *x,
                            const gd_transformer_config *config)
{
    char path[GD_NN_PATH];
    gd_shape shape = gd_tensor_shape(x);
    if (!x)
        return NULL;
    gd_shape width = GD_SHAPE(shape.dim[shape.rank - 1]);
    const char *weight_path = gd_nn_path(path, name, "weight");
    gd_tensor *weight =
        weight_path ? gd_parameter(m, weight_path, width, .init = GD_INIT_ONES) : NULL;
    if (!weight)
        return NULL;
    if (config->norm == GD_NORM_RMS)
        return gd_rms_norm(x, weight, .epsilon = config->epsilon != 0.0 ? config->epsilon : 1e-5);
    const char *bias_path = gd_nn_path(path, name, "bias");
    gd_tensor *bias = bias_path ? gd_parameter(m, bias_path, width, .init = GD_INIT_ZEROS) : NULL;
    return bias ? gd_layer_norm(x, weight, bias,
                                .epsilon = config->epsilon != 0.0 ? config->epsilon : 1e-5)
                : NULL;
}

/* ---- layers: sublayers f with x = x + drop(f(norm(x))), or x = norm(x + drop(f(x))) ---- */

typedef gd_tensor *(*sublayer_fn)(const gd_nn_transformer_layer_options *o, const char *name,
                                  gd_tensor *x);

static gd_tensor *attend(const gd_nn_transformer_layer_options *o, const char *name, gd_tensor *x)
{
    const gd_transformer_config *c = o->config;
    return gd_nn_multi_head_attention(
        o->module, name, x, c->heads, .heads_kv = c->heads_kv, .head_width = c->head_width,
        .mask = o->mask, .causal = o->causal, .no_bias = c->no_bias, .dropout = c->dropout,
        .position = c->position, .rotary_base = c->rotary_base, .cache = o->cache);
}

static gd_tensor *attend_to_memory(const gd_nn_transformer_layer_options *o, const char *name,
                                   gd_tensor *x)
{
    const gd_transformer_config *c = o->config;
    return gd_nn_multi_head_attention(
        o->module, name, x, c->heads, .heads_kv = c->heads_kv, .head_width = c->head_width,
        .memory = o->memory, .mask = o->memory_mask, .no_bias = c->no_bias, .dropout = c->dropout);
}

static gd_tensor *feed_forward(const gd_nn_transformer_layer_options *o, const char *name,
                               gd_tensor *x)
{
    const gd_transformer_config *c = o->config;
    return gd_nn_feed_forward(o->module, name, x, c->hidden, .activation = c->activation,
                              .no_bias = c->no_bias, .dropout = c->dropout);
}

static gd_tensor *sublayer(const gd_nn_transformer_layer_options *o, gd_tensor *x, sublayer_fn f,
                           const char *part, const char *norm)
{
    char part_path[GD_NN_PATH], norm_path[GD_NN_PATH];
    if (!x || !gd_nn_path(part_path, o->name, part) || !gd_nn_path(norm_path, o->name, norm))
        return NULL;
    const gd_transformer_config *c = o->config;
    gd_tensor *in = c->pre_norm ? normalize(o->module, norm_path, x, c) : x;
    gd_tensor *sum = gd_add(x, gd_nn_drop(o->module, f(o, part_path, in), c->dropout));
    return c->pre_norm ? sum : normalize(o->module, norm_path, sum, c);
}

static bool check(const gd_nn_transformer_layer_options *o, const char *who)
{
    if (!o->config)
        (void)gd_fail(GD_ERR_INVALID, "%s: \"%s\" has no config", who, o->name ? o->name : "");
    else if (gd_tensor_shape(o->x).rank != 3)
        (void)gd_fail(GD_ERR_SHAPE,
                      "%s: \"%s\" is given a tensor of rank %d; [batch, time, width] "
                      "is needed",
                      who, o->name ? o->name : "", gd_tensor_shape(o->x).rank);
    else
        return true;
    return false;
}

gd_tensor *gd_nn_encoder_layer_with(gd_nn_transformer_layer_options o)
{
    if (!o.module || !o.x || !check(&o, "gd_nn_encoder_layer"))
        return NULL;
    gd_tensor *x = sublayer(&o, o.x, attend, "self", "norm1");
    return sublayer(&o, x, feed_forward, "ff", "norm2");
}

gd_tensor *gd_nn_decoder_layer_with(gd_nn_transformer_layer_options o)
{
    if (!o.module || !o.x || !o.memory || !check(&o, "gd_nn_decoder_layer"))
        return NULL;
    o.causal = o.causal || !o.mask;
    gd_tensor *x = sublayer(&o, o.x, attend, "self", "norm1");
    x = sublayer(&o, x, attend_to_memory, "cross", "norm2");
    return sublayer(&o, x, feed_forward, "ff", "norm3");
}

/* ---- stacks ---- */

static gd_tensor *stack(gd_nn_transformer_layer_options o, int64_t layers, gd_nn_layer_fn layer_of)
{
    const char *name = o.name;
    char path[GD_NN_PATH];
    layers = layers ? layers : 6;
    for (int64_t i = 0; i < layers && o.x; i++) {
        o.name = gd_nn_path_number(path, name, i);
        if (!o.name)
            return NULL;
        o.x = o.config->checkpoint && !o.cache ? gd_nn_checkpointed(o, layer_of) : layer_of(o);
    }
    return o.x && gd_nn_path(path, name, "norm") ? normalize(o.module, path, o.x, o.config) : NULL;
}

gd_tensor *gd_nn_encoder_with(gd_nn_transformer_layer_options o)
{
    if (!o.module || !o.x || !check(&o, "gd_nn_encoder"))
        return NULL;
    return stack(o, o.config->layers, gd_nn_encoder_layer_with);
}

gd_tensor *gd_nn_decoder_with(gd_nn_transformer_layer_options o)
{
    if (!o.module || !o.x || !o.memory || !check(&o, "gd_nn_decoder"))
        return NULL;
    int64_t layers = o.config->decoder_layers ? o.config->decoder_layers : o.config->layers;
    return stack(o, layers, gd_nn_decoder_layer_with);
}

gd_tensor *gd_nn_transformer_with(gd_nn_transformer_options o)
{
    char encoder[GD_NN_PATH], decoder[GD_NN_PATH];
    if (!o.module || !o.source || !o.target || !gd_nn_path(encoder, o.name, "encoder") ||
        !gd_nn_path(decoder, o.name, "decoder"))
        return NULL;
    gd_tensor *memory = gd_nn_encoder(o.module, encoder, o.source, o.config, .mask = o.source_mask);
    return gd_nn_decoder(o.module, decoder, o.target, o.config, memory, .mask = o.target_mask,
                         .memory_mask = o.memory_mask, .cache = o.cache);
}

/* ---- models of tokens ---- */

static bool check_tokens(const gd_transformer_config *c, gd_tensor *tokens, const char *who)
{
    int rank = gd_tensor_shape(tokens).rank;
    if (!c)
        (void)gd_fail(GD_ERR_INVALID, "%s: there is no config", who);
    else if (c->width < 1 || c->vocabulary < 1 || c->heads < 1)
        (void)gd_fail(GD_ERR_INVALID, "%s: width %lld, vocabulary %lld, heads %lld: none may be 0",
                      who, (long long)c->width, (long long)c->vocabulary, (long long)c->heads);
    else if (rank != 2)
        (void)gd_fail(GD_ERR_SHAPE, "%s: the tokens have rank %d; [batch, time] is needed", who,
                      rank);
    else
        return true;
    return false;
}

static gd_tensor *token_table(gd_module *m, const char *name, const gd_transformer_config *c)
{
    char path[GD_NN_PATH];
    if (!gd_nn_path(path, name, "token.weight"))
        return NULL;
    return gd_parameter(m, path, GD_SHAPE(c->vocabulary, c->width), .init = GD_INIT_GLOROT_NORMAL);
}

/* Rows start … of the table of positions, [time, width]. */
static gd_tensor *positions(const gd_nn_embedding_options *o, int64_t time)
{
    const gd_transformer_config *c = o->config;
    gd_context *context = gd_module_context(o->module);
    if (c->position == GD_POSITION_SINUSOIDAL)
        return gd_sinusoidal_positions(context, o->start, time, c->width,
                                       gd_module_dtype(o->module));
    char path[GD_NN_PATH];
    if (o->start + time > c->context)
        return gd_fail_null(
            GD_ERR_SHAPE, "\"%s\": tokens up to position %lld, but the context is %lld",
            o->name ? o->name : "", (long long)o->start + (long long)time, (long long)c->context);
    if (!gd_nn_path(path, o->name, "position.weight"))
        return NULL;
    gd_tensor *table = gd_parameter(o->module, path, GD_SHAPE(c->context, c->width),
                                    .init = GD_INIT_GLOROT_NORMAL);
    return gd_slice(table, 0, o->start, o->start + time, 1);
}

gd_tensor *gd_nn_token_embedding_with(gd_nn_embedding_options o)
{
    if (!o.module || !o.tokens || !check_tokens(o.config, o.tokens, "gd_nn_token_embedding"))
        return NULL;
    const gd_transformer_config *c = o.config;
    gd_tensor *x = gd_embedding(o.tokens, token_table(o.module, o.name, c));
    if (o.scaled)
        x = gd_mul_scalar(x, sqrt((double)c->width));
    if (c->position == GD_POSITION_LEARNED || c->position == GD_POSITION_SINUSOIDAL)
        x = gd_add(x, positions(&o, gd_tensor_shape(o.tokens).dim[1]));
    return gd_nn_drop(o.module, x, c->dropout);
}

/* Token models have their layers at "name.0" …, the norm at "name.norm". */
static gd_tensor *token_model(const gd_nn_token_model_options *o,
                              const gd_transformer_config *config, bool causal)
{
    gd_tensor *x = gd_nn_token_embedding(o->module, o->name, o->tokens, config,
                                         .start = gd_kv_cache_length(o->cache));
    return gd_nn_encoder(o->module, o->name, x, config, .mask = o->mask, .causal = causal,
                         .cache = o->cache);
}

gd_tensor *gd_nn_decoder_only_with(gd_nn_token_model_options o)
{
    if (!o.module || !o.tokens || !check_tokens(o.config, o.tokens, "gd_nn_decoder_only"))
        return NULL;
    gd_transformer_config config = *o.config;
    if (config.activation == GD_ACTIVATION_DEFAULT)
        config.activation = GD_ACTIVATION_GELU_TANH;
    gd_tensor *x = token_model(&o, &config, true);
    if (o.last_only)
        x = gd_slice(x, 1, -1, GD_END, 1);
    if (config.tied)
        return gd_matmul(x, gd_transpose(token_table(o.module, o.name, &config), 0, 1));
    char path[GD_NN_PATH];
    return gd_nn_linear(o.module, gd_nn_path(path, o.name, "head"), x, config.vocabulary,
                        .bias = false);
}

gd_tensor *gd_nn_encoder_only_with(gd_nn_token_model_options o)
{
    if (!o.module || !o.tokens || !check_tokens(o.config, o.tokens, "gd_nn_encoder_only"))
        return NULL;
    if (o.cache)
        return gd_fail_null(GD_ERR_INVALID, "gd_nn_encoder_only: there is no cache for it");
    return token_model(&o, o.config, false);
}
