/* nn/transformer.c: feed-forward networks, encoder and decoder layers, and the models made of them.
 * Reading order: encoder_layer(), gd_nn_decoder_only_with().
 *
 * Vaswani et al., "Attention is all you need", 2017. Where the norm stands, and which: Xiong et
 * al., "On layer normalization in the Transformer architecture", 2020; Zhang, Sennrich, "Root mean
 * square layer normalization", 2019.
 */
#include "nn/layer.h"
#include "nn/model.h"
#include "nn/quantized.h"
#include "nn/sequence.h"

#include "base/error.h"
#include "base/options.h"

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

int64_t gd_nn_hidden(int64_t hidden, const gd_tensor *x)
{
    gd_shape shape = gd_tensor_shape(x);
    return hidden == -1 && shape.rank > 0 ? 4 * shape.dim[shape.rank - 1] : hidden;
}

gd_tensor *gd_nn_feed_forward_with(gd_module *m, const char *name, gd_tensor *x, int64_t hidden,
                                   const gd_nn_feed_forward_options *options)
{
    gd_nn_feed_forward_options o = { GD_NN_FEED_FORWARD_DEFAULTS };
    if (!m || !x || !gd_options_read("gd_nn_feed_forward", &o, sizeof o, options))
        return NULL;
    gd_shape shape = gd_tensor_shape(x);
    int64_t width = shape.rank > 0 ? shape.dim[shape.rank - 1] : 1;
    char path[GD_NN_PATH];
    gd_tensor *h;
    if (o.activation == GD_ACTIVATION_SWIGLU) {
        gd_tensor *gate =
            gd_nn_linear(m, gd_nn_path(path, name, "gate"), x, hidden, .bias = o.bias);
        gd_tensor *up = gd_nn_linear(m, gd_nn_path(path, name, "up"), x, hidden, .bias = o.bias);
        h = gd_mul(gd_silu(gate), up);
    } else {
        h = activate(gd_nn_linear(m, gd_nn_path(path, name, "up"), x, hidden, .bias = o.bias),
                     o.activation);
    }
    h = gd_nn_drop(m, h, o.dropout);
    return gd_nn_linear(m, gd_nn_path(path, name, "down"), h, width, .bias = o.bias);
}

/* name.weight of ones and, for layer norm, name.bias of zeros. */
static gd_tensor *normalize(gd_module *m, const char *name, gd_tensor *x,
                            const gd_transformer_config *config)
{
    if (!x)
        return NULL;
    const gd_shape shape = gd_tensor_shape(x), width = GD_SHAPE(shape.dim[shape.rank - 1]);
    const bool is_rms = config->norm == GD_NORM_RMS;
    const double epsilon = config->epsilon != 0.0 ? config->epsilon : 1e-5;
    const gd_layer_tensor tensors[] = {
        { GD_LAYER_TENSOR, .suffix = "weight", .shape = width, .init = GD_INIT_ONES },
        { GD_LAYER_TENSOR, .suffix = "bias", .shape = width, .init = GD_INIT_ZEROS },
    };
    gd_module_layer *layer = gd_layer_use(m, "gd_nn_encoder", name,
                                          is_rms ? "rms_norm" : "layer_norm", tensors, 2 - is_rms);
    if (!layer)
        return NULL;
    gd_tensor *y =
        is_rms ? gd_rms_norm(x, layer->parameter[0], .epsilon = epsilon)
               : gd_layer_norm(x, layer->parameter[0], layer->parameter[1], .epsilon = epsilon);
    return gd_layer_done(layer, y);
}

/* ---- layers: sublayers f with x = x + drop(f(norm(x))), or x = norm(x + drop(f(x))) ---- */

typedef gd_tensor *(*sublayer_fn)(const gd_nn_block *o, const char *name, gd_tensor *x);

static gd_tensor *attend(const gd_nn_block *o, const char *name, gd_tensor *x)
{
    const gd_transformer_config *c = o->config;
    return gd_nn_multi_head_attention(
        o->module, name, x, c->heads, .kv_heads = c->kv_heads, .head_width = c->head_width,
        .mask = o->mask, .causal = o->causal, .bias = c->bias, .dropout = c->dropout,
        .position = c->position, .rotary_base = c->rotary_base, .cache = o->cache);
}

static gd_tensor *attend_to_memory(const gd_nn_block *o, const char *name, gd_tensor *x)
{
    const gd_transformer_config *c = o->config;
    return gd_nn_multi_head_attention(
        o->module, name, x, c->heads, .kv_heads = c->kv_heads, .head_width = c->head_width,
        .memory = o->memory, .mask = o->memory_mask, .bias = c->bias, .dropout = c->dropout);
}

static gd_tensor *feed_forward(const gd_nn_block *o, const char *name, gd_tensor *x)
{
    const gd_transformer_config *c = o->config;
    return gd_nn_feed_forward(o->module, name, x, gd_nn_hidden(c->hidden, x),
                              .activation = c->activation, .bias = c->bias, .dropout = c->dropout);
}

static gd_tensor *sublayer(const gd_nn_block *o, gd_tensor *x, sublayer_fn f, const char *part,
                           const char *norm)
{
    char part_path[GD_NN_PATH], norm_path[GD_NN_PATH];
    if (!x || !gd_nn_path(part_path, o->name, part) || !gd_nn_path(norm_path, o->name, norm))
        return NULL;
    const gd_transformer_config *c = o->config;
    gd_tensor *in = c->pre_norm ? normalize(o->module, norm_path, x, c) : x;
    gd_tensor *sum = gd_add(x, gd_nn_drop(o->module, f(o, part_path, in), c->dropout));
    return c->pre_norm ? sum : normalize(o->module, norm_path, sum, c);
}

/* The config as this version has it, and the input of a block. */
static bool check(const char *who, const char *name, const gd_tensor *x,
                  const gd_transformer_config *given, gd_transformer_config *config)
{
    *config = (gd_transformer_config){ GD_TRANSFORMER_CONFIG_DEFAULTS };
    if (!given)
        (void)gd_fail(GD_ERR_INVALID, "%s: \"%s\" has no config", who, name ? name : "");
    else if (gd_tensor_shape(x).rank != 3)
        (void)gd_fail(GD_ERR_SHAPE,
                      "%s: \"%s\" is given a tensor of rank %d; [batch, time, width] "
                      "is needed",
                      who, name ? name : "", gd_tensor_shape(x).rank);
    else
        return gd_options_read(who, config, sizeof *config, given);
    return false;
}

static gd_tensor *encoder_layer(gd_nn_block o)
{
    gd_tensor *x = sublayer(&o, o.x, attend, "self", "norm1");
    return sublayer(&o, x, feed_forward, "ff", "norm2");
}

static gd_tensor *decoder_layer(gd_nn_block o)
{
    gd_tensor *x = sublayer(&o, o.x, attend, "self", "norm1");
    x = sublayer(&o, x, attend_to_memory, "cross", "norm2");
    return sublayer(&o, x, feed_forward, "ff", "norm3");
}

/* ---- stacks ---- */

static gd_tensor *stack(gd_nn_block o, int64_t layers, gd_nn_layer_fn layer_of)
{
    const char *name = o.name;
    char path[GD_NN_PATH];
    if (layers < 0)
        return gd_fail_null(GD_ERR_INVALID, "\"%s\" has %lld layers", name ? name : "",
                            (long long)layers);
    for (int64_t i = 0; i < layers && o.x; i++) {
        o.name = gd_nn_path_number(path, name, i);
        if (!o.name)
            return NULL;
        o.x = o.config->checkpoint && !o.cache ? gd_nn_checkpointed(o, layer_of) : layer_of(o);
    }
    return o.x && gd_nn_path(path, name, "norm") ? normalize(o.module, path, o.x, o.config) : NULL;
}

static gd_tensor *encoder_stack(gd_nn_block o)
{
    return stack(o, o.config->layers, encoder_layer);
}

static gd_tensor *decoder_stack(gd_nn_block o)
{
    int64_t layers = o.config->decoder_layers;
    return stack(o, layers == -1 ? o.config->layers : layers, decoder_layer);
}

/* ---- the same by options ---- */

static gd_tensor *encode(const char *who, gd_nn_layer_fn run, gd_nn_block o,
                         const gd_nn_encoder_options *options)
{
    gd_nn_encoder_options given = { GD_NN_ENCODER_DEFAULTS };
    gd_transformer_config config;
    if (!o.module || !o.x || !check(who, o.name, o.x, o.config, &config) ||
        !gd_options_read(who, &given, sizeof given, options))
        return NULL;
    o.config = &config;
    o.mask = given.mask;
    o.causal = given.causal;
    o.cache = given.cache;
    return run(o);
}

static gd_tensor *decode(const char *who, gd_nn_layer_fn run, gd_nn_block o,
                         const gd_nn_decoder_options *options)
{
    gd_nn_decoder_options given = { GD_NN_DECODER_DEFAULTS };
    gd_transformer_config config;
    if (!o.module || !o.x || !o.memory || !check(who, o.name, o.x, o.config, &config) ||
        !gd_options_read(who, &given, sizeof given, options))
        return NULL;
    o.config = &config;
    o.mask = given.mask;
    o.memory_mask = given.memory_mask;
    o.causal = given.causal;
    o.cache = given.cache;
    return run(o);
}

gd_tensor *gd_nn_encoder_layer_with(gd_module *m, const char *name, gd_tensor *x,
                                    const gd_transformer_config *config,
                                    const gd_nn_encoder_options *options)
{
    gd_nn_block o = { .module = m, .name = name, .x = x, .config = config };
    return encode("gd_nn_encoder_layer", encoder_layer, o, options);
}

gd_tensor *gd_nn_decoder_layer_with(gd_module *m, const char *name, gd_tensor *x, gd_tensor *memory,
                                    const gd_transformer_config *config,
                                    const gd_nn_decoder_options *options)
{
    gd_nn_block o = { .module = m, .name = name, .x = x, .config = config, .memory = memory };
    return decode("gd_nn_decoder_layer", decoder_layer, o, options);
}

gd_tensor *gd_nn_encoder_with(gd_module *m, const char *name, gd_tensor *x,
                              const gd_transformer_config *config,
                              const gd_nn_encoder_options *options)
{
    gd_nn_block o = { .module = m, .name = name, .x = x, .config = config };
    return encode("gd_nn_encoder", encoder_stack, o, options);
}

gd_tensor *gd_nn_decoder_with(gd_module *m, const char *name, gd_tensor *x, gd_tensor *memory,
                              const gd_transformer_config *config,
                              const gd_nn_decoder_options *options)
{
    gd_nn_block o = { .module = m, .name = name, .x = x, .config = config, .memory = memory };
    return decode("gd_nn_decoder", decoder_stack, o, options);
}

gd_tensor *gd_nn_transformer_with(gd_module *m, const char *name, gd_tensor *source,
                                  gd_tensor *target, const gd_transformer_config *config,
                                  const gd_nn_transformer_options *options)
{
    gd_nn_transformer_options o = { GD_NN_TRANSFORMER_DEFAULTS };
    char encoder[GD_NN_PATH], decoder[GD_NN_PATH];
    if (!m || !source || !target || !gd_options_read("gd_nn_transformer", &o, sizeof o, options) ||
        !gd_nn_path(encoder, name, "encoder") || !gd_nn_path(decoder, name, "decoder"))
        return NULL;
    gd_tensor *memory = gd_nn_encoder(m, encoder, source, config, .mask = o.source_mask);
    return gd_nn_decoder(m, decoder, target, memory, config, .mask = o.target_mask,
                         .memory_mask = o.memory_mask, .causal = o.causal, .cache = o.cache);
}

/* ---- models of tokens ---- */

static bool check_tokens(const char *who, const gd_tensor *tokens,
                         const gd_transformer_config *given, gd_transformer_config *config)
{
    *config = (gd_transformer_config){ GD_TRANSFORMER_CONFIG_DEFAULTS };
    if (!given) {
        (void)gd_fail(GD_ERR_INVALID, "%s: there is no config", who);
        return false;
    }
    int rank = gd_tensor_shape(tokens).rank;
    if (!gd_options_read(who, config, sizeof *config, given))
        return false;
    if (config->width < 1 || config->vocabulary < 1 || config->heads < 1)
        (void)gd_fail(GD_ERR_INVALID, "%s: width %lld, vocabulary %lld, heads %lld: none may be 0",
                      who, (long long)config->width, (long long)config->vocabulary,
                      (long long)config->heads);
    else if (rank != 2)
        (void)gd_fail(GD_ERR_SHAPE, "%s: the tokens have rank %d; [batch, time] is needed", who,
                      rank);
    else
        return true;
    return false;
}

/* A table of `count` rows, name.part.weight: the layer name.part. */
static gd_module_layer *table(gd_module *m, const char *name, const char *part, const char *type,
                              int64_t count, int64_t width)
{
    char path[GD_NN_PATH];
    const gd_layer_tensor tensor = { GD_LAYER_TENSOR, .suffix = "weight",
                                     .shape = GD_SHAPE(count, width),
                                     .init = GD_INIT_GLOROT_NORMAL };
    return gd_nn_path(path, name, part)
               ? gd_layer_use(m, "gd_nn_token_embedding", path, type, &tensor, 1)
               : NULL;
}

static gd_module_layer *token_table(gd_module *m, const char *name, const gd_transformer_config *c)
{
    char path[GD_NN_PATH];
    if (gd_nn_path(path, name, "token") && gd_nn_is_quantized(m, path))
        return gd_nn_quantized_use(m, "gd_nn_token_embedding", path, c->vocabulary, c->width,
                                   false);
    return table(m, name, "token", "embedding", c->vocabulary, c->width);
}

/* Whether the table, or a layer, is in blocks of 8 or 4 bits. */
static bool is_in_blocks(const gd_module_layer *layer)
{
    return !gd_dtype_is_float(gd_tensor_dtype(layer->parameter[0]));
}

static gd_tensor *token_rows(gd_module_layer *rows, gd_tensor *tokens)
{
    return gd_layer_done(rows, is_in_blocks(rows) ? gd_nn_quantized_embedding(rows, tokens)
                                                  : gd_embedding(tokens, rows->parameter[0]));
}

/* The product with the table's rows as columns. */
static gd_tensor *tied_head(const gd_module_layer *rows, gd_tensor *x)
{
    return is_in_blocks(rows) ? gd_nn_quantized_product(rows, x)
                              : gd_matmul(x, gd_transpose(rows->parameter[0], 0, 1));
}

/* x [batch, time, width], the tokens start …, and what tells their positions. */
static gd_tensor *add_positions(gd_module *m, const char *name, const gd_transformer_config *c,
                                int64_t start, gd_tensor *x)
{
    const int64_t time = gd_tensor_shape(x).dim[1];
    if (c->position == GD_POSITION_SINUSOIDAL)
        return gd_add(x, gd_sinusoidal_positions(gd_module_context(m), start, time, c->width,
                                                 gd_module_dtype(m)));
    if (start + time > c->max_length)
        return gd_fail_null(
            GD_ERR_SHAPE, "\"%s\": tokens up to position %lld, but max_length is %lld",
            name ? name : "", (long long)start + (long long)time, (long long)c->max_length);
    gd_module_layer *rows = table(m, name, "position", "learned_position", c->max_length, c->width);
    return rows ? gd_layer_done(rows,
                                gd_add(x, gd_slice(rows->parameter[0], 0, start, start + time, 1)))
                : NULL;
}

static gd_tensor *embed(gd_module *m, const char *name, gd_tensor *tokens,
                        const gd_transformer_config *c, int64_t start, bool scaled)
{
    gd_module_layer *rows = token_table(m, name, c);
    gd_tensor *x = rows ? token_rows(rows, tokens) : NULL;
    if (scaled)
        x = gd_mul_scalar(x, sqrt((double)c->width));
    if (x && (c->position == GD_POSITION_LEARNED || c->position == GD_POSITION_SINUSOIDAL))
        x = add_positions(m, name, c, start, x);
    return gd_nn_drop(m, x, c->dropout);
}

gd_tensor *gd_nn_token_embedding_with(gd_module *m, const char *name, gd_tensor *tokens,
                                      const gd_transformer_config *config,
                                      const gd_nn_token_embedding_options *options)
{
    static const char who[] = "gd_nn_token_embedding";
    gd_nn_token_embedding_options o = { GD_NN_TOKEN_EMBEDDING_DEFAULTS };
    gd_transformer_config c;
    if (!m || !tokens || !check_tokens(who, tokens, config, &c) ||
        !gd_options_read(who, &o, sizeof o, options))
        return NULL;
    return embed(m, name, tokens, &c, o.start, o.scaled);
}

/* A model of tokens knows what the axes of its layers are, which the summary then says. */
static gd_tensor *name_axes(gd_module *m, const char *name, gd_tensor *y)
{
    for (size_t i = 0; i < m->layer_count; i++) {
        gd_shape *shape = &m->layers[i].output;
        if (shape->rank != 3 || (name && *name && !gd_is_below(m->layers[i].name, name)))
            continue;
        shape->dim[0] = GD_NN_BATCH;
        shape->dim[1] = GD_NN_TIME;
    }
    return y;
}

/* Layers of token models are at "name.0" …, their norm is at "name.norm". */
static gd_tensor *token_model(gd_nn_block o, gd_tensor *tokens)
{
    o.x = embed(o.module, o.name, tokens, o.config, gd_kv_cache_length(o.cache), false);
    return o.x ? encoder_stack(o) : NULL;
}

gd_tensor *gd_nn_decoder_only_with(gd_module *m, const char *name, gd_tensor *tokens,
                                   const gd_transformer_config *config,
                                   const gd_nn_decoder_only_options *options)
{
    static const char who[] = "gd_nn_decoder_only";
    gd_nn_decoder_only_options o = { GD_NN_DECODER_ONLY_DEFAULTS };
    gd_transformer_config c;
    if (!m || !tokens || !check_tokens(who, tokens, config, &c) ||
        !gd_options_read(who, &o, sizeof o, options))
        return NULL;
    if (c.activation == GD_ACTIVATION_DEFAULT)
        c.activation = GD_ACTIVATION_GELU_TANH;
    gd_nn_block block = {
        .module = m, .name = name, .config = &c, .mask = o.mask, .causal = true, .cache = o.cache
    };
    gd_tensor *x = token_model(block, tokens);
    if (o.last_only)
        x = gd_slice(x, 1, -1, GD_END, 1);
    char path[GD_NN_PATH];
    const gd_module_layer *rows = c.tied ? token_table(m, name, &c) : NULL;
    gd_tensor *y =
        !c.tied ? gd_nn_linear(m, gd_nn_path(path, name, "head"), x, c.vocabulary, .bias = false)
        : rows  ? tied_head(rows, x)
                : NULL;
    return name_axes(m, name, y);
}

gd_tensor *gd_nn_encoder_only_with(gd_module *m, const char *name, gd_tensor *tokens,
                                   const gd_transformer_config *config,
                                   const gd_nn_encoder_only_options *options)
{
    static const char who[] = "gd_nn_encoder_only";
    gd_nn_encoder_only_options o = { GD_NN_ENCODER_ONLY_DEFAULTS };
    gd_transformer_config c;
    if (!m || !tokens || !check_tokens(who, tokens, config, &c) ||
        !gd_options_read(who, &o, sizeof o, options))
        return NULL;
    gd_nn_block block = { .module = m, .name = name, .config = &c, .mask = o.mask };
    return name_axes(m, name, token_model(block, tokens));
}
