/* gradus/sequence.h: layers for sequences: attention with a cache, Transformers, recurrent
 * networks. Start at gd_transformer_config and gd_nn_decoder_only(). What they are made of,
 * gd_attention, gd_rope, gd_layer_norm and the like, is in gradus/ops.h; modules and names in
 * gradus/nn.h.
 *
 * A sequence is [batch, time, width]. Every layer makes its parameters at first use; their paths
 * are given beside each. Dropout happens while the module is training (gd_module_set_training).
 */
#ifndef GRADUS_SEQUENCE_H
#define GRADUS_SEQUENCE_H

#include <gradus/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- a cache of keys and values, for generating token by token ---- */

/* Keys and values of every attention layer that was called with it, so that a new token costs time
 * proportional to the tokens before it. Eager execution without gradients only: in a compiled
 * function its use is GD_ERR_STATE. */
typedef struct gd_kv_cache gd_kv_cache;

typedef struct gd_kv_cache_options {
    gd_context *context;
    int64_t capacity; /* tokens; needed */
} gd_kv_cache_options;
/* gd_kv_cache_create(context, .capacity = 1024). Owned by the context; released earlier by
 * gd_kv_cache_release. */
#define gd_kv_cache_create(...) \
    gd_kv_cache_create_with(GD_OPTIONS_1(gd_kv_cache_options, context, __VA_ARGS__))
GD_API gd_kv_cache *gd_kv_cache_create_with(gd_kv_cache_options options);
GD_API void gd_kv_cache_release(gd_kv_cache *cache);
/* Tokens in it, which is the position of the next one; 0 for NULL. */
GD_API int64_t gd_kv_cache_length(const gd_kv_cache *cache);
/* Forget all but the first `length` tokens; 0 begins anew. GD_ERR_INVALID: more than there are. */
GD_API gd_status gd_kv_cache_truncate(gd_kv_cache *cache, int64_t length);

/* ---- Transformers: gd_activation_kind, gd_norm_kind, gd_position_kind are in gradus/nn.h ---- */

/* What a Transformer is. Zero means the default. */
typedef struct gd_transformer_config {
    int64_t width;          /* of token models; layers take it from their input */
    int64_t heads;          /* needed */
    int64_t heads_kv;       /* of keys and values, a divisor of heads; default: heads */
    int64_t head_width;     /* default: width / heads */
    int64_t hidden;         /* of the feed-forward network; default: 4 * width */
    int64_t layers;         /* default: 6 */
    int64_t decoder_layers; /* of encoder-decoder models; default: layers */
    int64_t vocabulary;     /* of token models */
    int64_t context;        /* most tokens, for learned positions */
    gd_activation_kind activation;
    gd_norm_kind norm;
    gd_position_kind position; /* of token models */
    bool pre_norm;             /* norm(x) into the sublayer, as GPT-2; default: norm after adding */
    bool no_bias;
    bool tied;       /* token models: logits = x @ embedding^T */
    bool checkpoint; /* stacks and models: gd_checkpoint around each layer, which needs less memory
                        in training and a second forward pass; the same gradients */
    double dropout;  /* of sublayers' results, hidden values and attention weights */
    double epsilon;  /* of norms; default 1e-5 */
    double rotary_base; /* default 10000 */
} gd_transformer_config;

typedef struct gd_nn_attention_options {
    gd_module *module;
    const char *name;
    gd_tensor *x; // [batch, t, width]
    int64_t heads;
    int64_t heads_kv;   /* 0: heads. 1: multi-query; between: grouped-query */
    int64_t head_width; /* 0: width / heads */
    gd_tensor *memory;  // [batch, s, any]: where keys and values come from; NULL: x itself
    gd_tensor *mask;    /* as gd_attention's */
    bool causal, no_bias;
    double dropout; /* of attention weights */
    gd_position_kind
        position; /* GD_POSITION_ROTARY or _HALVES turn queries and keys, others do nothing */
    double rotary_base;
    gd_kv_cache *cache; /* self-attention only: keys and values of earlier tokens */
} gd_nn_attention_options;

/* gd_nn_multi_head_attention(m, "attn", x, heads, .causal = true) -> [batch, t, width]. Parameters:
 * self-attention "attn.qkv" [width, (heads + 2 heads_kv) head_width]; with memory "attn.q" and
 * "attn.kv"; "attn.out" [heads head_width, width]; each a gd_nn_linear with weight and bias. */
#define gd_nn_multi_head_attention(...) \
    gd_nn_multi_head_attention_with(    \
        GD_OPTIONS_4(gd_nn_attention_options, module, name, x, heads, __VA_ARGS__))
GD_API gd_tensor *gd_nn_multi_head_attention_with(gd_nn_attention_options options);

typedef struct gd_nn_feed_forward_options {
    gd_module *module;
    const char *name;
    gd_tensor *x;   // [.., width]
    int64_t hidden; /* 0: 4 * width */
    gd_activation_kind activation;
    bool no_bias;
    double dropout; /* of the hidden values */
} gd_nn_feed_forward_options;

/* gd_nn_feed_forward(m, "ff", x, hidden, .no_bias = true) -> [.., width]: "ff.up" [width, hidden],
 * activation, "ff.down" [hidden, width]; SwiGLU also has "ff.gate". */
#define gd_nn_feed_forward(...) \
    gd_nn_feed_forward_with(    \
        GD_OPTIONS_4(gd_nn_feed_forward_options, module, name, x, hidden, __VA_ARGS__))
GD_API gd_tensor *gd_nn_feed_forward_with(gd_nn_feed_forward_options options);

typedef struct gd_nn_transformer_layer_options {
    gd_module *module;
    const char *name;
    gd_tensor *x; // [batch, t, width]
    const gd_transformer_config *config;
    gd_tensor *memory;      // [batch, s, width]: what a decoder layer attends to
    gd_tensor *mask;        /* of self-attention */
    gd_tensor *memory_mask; /* of attention to memory */
    bool causal;
    gd_kv_cache *cache;
} gd_nn_transformer_layer_options;

/* gd_nn_encoder_layer(m, "0", x, &config): self-attention "0.self", feed-forward "0.ff", norms
 * "0.norm1", "0.norm2", residual connections. With .causal it is a layer of decoder-only models. */
#define gd_nn_encoder_layer(...) \
    gd_nn_encoder_layer_with(    \
        GD_OPTIONS_4(gd_nn_transformer_layer_options, module, name, x, config, __VA_ARGS__))
GD_API gd_tensor *gd_nn_encoder_layer_with(gd_nn_transformer_layer_options options);
/* gd_nn_decoder_layer(m, "0", x, &config, memory): the same, with attention to memory "0.cross"
 * between, and three norms. Causal unless a mask is given. */
#define gd_nn_decoder_layer(...)                                                            \
    gd_nn_decoder_layer_with(GD_OPTIONS_5(gd_nn_transformer_layer_options, module, name, x, \
                                          config, memory, __VA_ARGS__))
GD_API gd_tensor *gd_nn_decoder_layer_with(gd_nn_transformer_layer_options options);

typedef struct gd_nn_transformer_options {
    gd_module *module;
    const char *name;
    gd_tensor *source, *target; // [batch, s, width], [batch, t, width]: embedded, with positions
    const gd_transformer_config *config;
    gd_tensor *source_mask, *target_mask, *memory_mask;
    gd_kv_cache *cache; /* of the decoder */
} gd_nn_transformer_options;

/* The stack of encoder layers "name.0" …, and the norm at its end, "name.norm". */
#define gd_nn_encoder(...) \
    gd_nn_encoder_with(    \
        GD_OPTIONS_4(gd_nn_transformer_layer_options, module, name, x, config, __VA_ARGS__))
GD_API gd_tensor *gd_nn_encoder_with(gd_nn_transformer_layer_options options);
/* The same of decoder layers: gd_nn_decoder(m, "decoder", x, &config, memory). */
#define gd_nn_decoder(...)                                                                    \
    gd_nn_decoder_with(GD_OPTIONS_5(gd_nn_transformer_layer_options, module, name, x, config, \
                                    memory, __VA_ARGS__))
GD_API gd_tensor *gd_nn_decoder_with(gd_nn_transformer_layer_options options);
/* gd_nn_transformer(m, "transformer", source, target, &config) -> [batch, t, width]: "name.encoder"
 * and "name.decoder" (Vaswani et al. 2017; torch.nn.Transformer). The target sees its past alone
 * unless target_mask is given. */
#define gd_nn_transformer(...)                                                                   \
    gd_nn_transformer_with(GD_OPTIONS_5(gd_nn_transformer_options, module, name, source, target, \
                                        config, __VA_ARGS__))
GD_API gd_tensor *gd_nn_transformer_with(gd_nn_transformer_options options);

typedef struct gd_nn_embedding_options {
    gd_module *module;
    const char *name;
    gd_tensor *tokens; // [batch, t] integers
    const gd_transformer_config *config;
    int64_t start; /* position of the first token */
    bool scaled;   /* times sqrt(width), as Vaswani et al. do */
} gd_nn_embedding_options;
/* Tokens with their positions -> [batch, t, width]: "name.token.weight" [vocabulary, width] and,
 * with learned positions, "name.position.weight" [context, width]. */
#define gd_nn_token_embedding(...) \
    gd_nn_token_embedding_with(    \
        GD_OPTIONS_4(gd_nn_embedding_options, module, name, tokens, config, __VA_ARGS__))
GD_API gd_tensor *gd_nn_token_embedding_with(gd_nn_embedding_options options);

typedef struct gd_nn_token_model_options {
    gd_module *module;
    const char *name;  /* NULL or "": paths begin without it */
    gd_tensor *tokens; // [batch, t] integers
    const gd_transformer_config *config;
    gd_tensor *mask;
    gd_kv_cache *cache; /* gd_nn_decoder_only alone: tokens are those that follow what it has */
    bool last_only; /* gd_nn_decoder_only alone: logits of the last token, [batch, 1, vocabulary] */
} gd_nn_token_model_options;

/* gd_nn_decoder_only(m, "gpt", tokens, &config) -> logits [batch, t, vocabulary]: a language model,
 * GPT-2's or Llama's architecture as config says. "gpt.token", "gpt.position", layers "gpt.0" …,
 * "gpt.norm" and, unless tied, "gpt.head" (no bias). */
#define gd_nn_decoder_only(...) \
    gd_nn_decoder_only_with(    \
        GD_OPTIONS_4(gd_nn_token_model_options, module, name, tokens, config, __VA_ARGS__))
GD_API gd_tensor *gd_nn_decoder_only_with(gd_nn_token_model_options options);
/* gd_nn_encoder_only(m, "bert", tokens, &config) -> [batch, t, width]: every token sees every other
 * that the mask allows. */
#define gd_nn_encoder_only(...) \
    gd_nn_encoder_only_with(    \
        GD_OPTIONS_4(gd_nn_token_model_options, module, name, tokens, config, __VA_ARGS__))
GD_API gd_tensor *gd_nn_encoder_only_with(gd_nn_token_model_options options);

/* ---- recurrent networks ---- */

#define GD_NN_RECURRENT_MOST_STATES 64 /* layers times directions */

typedef struct gd_nn_recurrent_options {
    gd_module *module;
    const char *name;
    gd_tensor *x;            // [batch, time, any]
    int64_t width;           /* of the state */
    int64_t layers;          /* 0: 1 */
    bool bidirectional;      /* a second pass from the end, its result beside the first's */
    gd_tensor *lengths;      // [batch] integers: steps each sequence has; NULL: all
    gd_tensor *first_hidden; // [layers * directions, batch, width]; NULL: zeros
    gd_tensor *first_cell;   // the same, of LSTM
    gd_tensor **last_hidden; /* if not NULL: the states at the end, [layers * directions, batch,
                                width] */
    gd_tensor **last_cell;
    double dropout; /* of what passes from layer to layer */
    bool relu;      /* RNN alone: instead of tanh */
    bool plain;     /* as gd_recurrent's */
} gd_nn_recurrent_options;

/* gd_nn_lstm(m, "lstm", x, 256, .layers = 2) -> [batch, time, width], twice as wide if
 * bidirectional. Behind a sequence's end there are zeros. For layer 0: "lstm.0.forward.input" (a
 * gd_nn_linear to the gates), "lstm.0.forward.hidden.weight" [width, gates * width],
 * "lstm.0.forward.hidden.bias", and "lstm.0.backward…". Gates stand as in PyTorch: i, f, g, o; r,
 * z, n. */
#define gd_nn_lstm(...) \
    gd_nn_lstm_with(GD_OPTIONS_4(gd_nn_recurrent_options, module, name, x, width, __VA_ARGS__))
#define gd_nn_gru(...) \
    gd_nn_gru_with(GD_OPTIONS_4(gd_nn_recurrent_options, module, name, x, width, __VA_ARGS__))
#define gd_nn_rnn(...) \
    gd_nn_rnn_with(GD_OPTIONS_4(gd_nn_recurrent_options, module, name, x, width, __VA_ARGS__))
GD_API gd_tensor *gd_nn_lstm_with(gd_nn_recurrent_options options);
GD_API gd_tensor *gd_nn_gru_with(gd_nn_recurrent_options options);
GD_API gd_tensor *gd_nn_rnn_with(gd_nn_recurrent_options options);

#ifdef __cplusplus
}
#endif
#endif
