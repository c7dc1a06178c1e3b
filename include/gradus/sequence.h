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

/* For `capacity` tokens, at least 1. Owned by the context; released earlier by gd_kv_cache_release.
 */
GD_API gd_kv_cache *gd_kv_cache_create(gd_context *context, int64_t capacity);
GD_API void gd_kv_cache_release(gd_kv_cache *cache);
/* Keep keys and values in a dtype of their own instead of that of the layers: one of floats, as GD_F16 for half the
 * memory, or GD_I8 for about a quarter: whole numbers up to 127 and a scale f32 for each token and head, max |x| / 127. They are
 * rounded once, and attention takes them as rounded, those of new tokens too, so that a text at once and token by token sees
 * the same. GD_ERR_STATE: there are tokens already; GD_ERR_DTYPE. */
GD_API gd_status gd_kv_cache_set_dtype(gd_kv_cache *cache, gd_dtype dtype);
/* Tokens in it, which is the position of the next one; 0 for NULL. */
GD_API int64_t gd_kv_cache_length(const gd_kv_cache *cache);
/* Forget all but the first `length` tokens; 0 begins anew. GD_ERR_INVALID: more than there are. */
GD_API gd_status gd_kv_cache_truncate(gd_kv_cache *cache, int64_t length);

/* ---- Transformers: gd_activation_kind, gd_norm_kind, gd_position_kind are in gradus/nn.h ---- */

/* What a Transformer is:
 *
 *     gd_transformer_config small = { GD_TRANSFORMER_CONFIG_DEFAULTS, .width = 64, .heads = 4 };
 */
typedef struct gd_transformer_config {
    size_t size GD_DEFAULT(sizeof(gd_transformer_config));
    int64_t width;                     /* of token models; layers take it from their input */
    int64_t heads;                     /* needed */
    int64_t kv_heads GD_DEFAULT(-1);   /* of keys and values, a divisor of heads; -1: heads */
    int64_t head_width GD_DEFAULT(-1); /* -1: width / heads */
    int64_t hidden GD_DEFAULT(-1);     /* of the feed-forward network; -1: 4 * width */
    int64_t layers GD_DEFAULT(6);
    int64_t decoder_layers GD_DEFAULT(-1); /* of encoder-decoder models; -1: layers */
    int64_t vocabulary;                    /* of token models */
    int64_t max_length;                    /* most tokens, for learned positions */
    gd_activation_kind activation;
    gd_norm_kind norm;
    gd_position_kind position; /* of token models */
    bool pre_norm;             /* norm(x) into the sublayer, as GPT-2; false: norm after adding */
    bool bias GD_DEFAULT(true);
    bool tied;       /* token models: logits = x @ embedding^T */
    bool checkpoint; /* stacks and models: gd_checkpoint around each layer, which needs less memory
                        in training and a second forward pass; the same gradients */
    double dropout;  /* of sublayers' results, hidden values and attention weights */
    double epsilon GD_DEFAULT(1e-5); /* of norms */
    double rotary_base GD_DEFAULT(10000);
} gd_transformer_config;
#define GD_TRANSFORMER_CONFIG_DEFAULTS                                                     \
    .size = sizeof(gd_transformer_config), .kv_heads = -1, .head_width = -1, .hidden = -1, \
    .layers = 6, .decoder_layers = -1, .bias = true, .epsilon = 1e-5, .rotary_base = 10000

typedef struct gd_nn_multi_head_attention_options {
    size_t size GD_DEFAULT(sizeof(gd_nn_multi_head_attention_options));
    int64_t kv_heads GD_DEFAULT(-1);         /* -1: heads. 1: multi-query; between: grouped-query */
    int64_t head_width GD_DEFAULT(-1);       /* of queries and keys; -1: width / heads */
    int64_t value_head_width GD_DEFAULT(-1); /* of values; -1: head_width */
    gd_tensor *memory; // [batch, s, any]: where keys and values come from; NULL: x itself
    gd_tensor *value;  // [batch, s, any]: where values come from; NULL: where keys come from
    gd_tensor *mask;   /* as gd_attention's */
    bool causal, bias GD_DEFAULT(true);
    double dropout;                                         /* of attention weights */
    gd_position_kind position GD_DEFAULT(GD_POSITION_NONE); /* GD_POSITION_ROTARY and _HALVES turn
                                                               queries and keys, others do nothing */
    double rotary_base GD_DEFAULT(10000);
    gd_kv_cache *cache; /* self-attention only: keys and values of earlier tokens */
} gd_nn_multi_head_attention_options;
#define GD_NN_MULTI_HEAD_ATTENTION_DEFAULTS                                                   \
    .size = sizeof(gd_nn_multi_head_attention_options), .kv_heads = -1, .head_width = -1,     \
    .value_head_width = -1, .bias = true, .position = GD_POSITION_NONE, .rotary_base = 10000, \
    .cache = NULL

/* gd_nn_multi_head_attention(m, "attn", x, heads, .causal = true) -> [batch, t, width]. Parameters:
 * self-attention "attn.qkv" [width, (heads + kv_heads) head_width + kv_heads value_head_width]; with
 * memory "attn.q" and "attn.kv"; with value "attn.q", "attn.k" and "attn.v"; "attn.out" [heads
 * value_head_width, width]; each a gd_nn_linear with weight and bias. x, memory and value may be of
 * three widths. */
#define gd_nn_multi_head_attention(...)                                            \
    GD_WITH_4(gd_nn_multi_head_attention_with, gd_nn_multi_head_attention_options, \
              GD_NN_MULTI_HEAD_ATTENTION_DEFAULTS, __VA_ARGS__, )
GD_API gd_tensor *
gd_nn_multi_head_attention_with(gd_module *m, const char *name, gd_tensor *x, int64_t heads,
                                const gd_nn_multi_head_attention_options *options);

typedef struct gd_nn_feed_forward_options {
    size_t size GD_DEFAULT(sizeof(gd_nn_feed_forward_options));
    gd_activation_kind activation;
    bool bias GD_DEFAULT(true);
    double dropout; /* of the hidden values */
} gd_nn_feed_forward_options;
#define GD_NN_FEED_FORWARD_DEFAULTS \
    .size = sizeof(gd_nn_feed_forward_options), .bias = true, .dropout = 0

/* gd_nn_feed_forward(m, "ff", x, hidden, .bias = false) -> [.., width]: "ff.up" [width, hidden],
 * activation, "ff.down" [hidden, width]; SwiGLU also has "ff.gate". */
#define gd_nn_feed_forward(...)                                                                 \
    GD_WITH_4(gd_nn_feed_forward_with, gd_nn_feed_forward_options, GD_NN_FEED_FORWARD_DEFAULTS, \
              __VA_ARGS__, )
GD_API gd_tensor *gd_nn_feed_forward_with(gd_module *m, const char *name, gd_tensor *x,
                                          int64_t hidden,
                                          const gd_nn_feed_forward_options *options);

typedef struct gd_nn_encoder_options {
    size_t size GD_DEFAULT(sizeof(gd_nn_encoder_options));
    gd_tensor *mask; /* as gd_attention's */
    bool causal;
    gd_kv_cache *cache;
} gd_nn_encoder_options;
#define GD_NN_ENCODER_DEFAULTS .size = sizeof(gd_nn_encoder_options), .cache = NULL

typedef struct gd_nn_decoder_options {
    size_t size GD_DEFAULT(sizeof(gd_nn_decoder_options));
    gd_tensor *mask;        /* of self-attention, beside causal */
    gd_tensor *memory_mask; /* of attention to memory */
    bool causal GD_DEFAULT(true);
    gd_kv_cache *cache;
} gd_nn_decoder_options;
#define GD_NN_DECODER_DEFAULTS .size = sizeof(gd_nn_decoder_options), .causal = true, .cache = NULL

typedef struct gd_nn_transformer_options {
    size_t size GD_DEFAULT(sizeof(gd_nn_transformer_options));
    gd_tensor *source_mask, *target_mask, *memory_mask;
    bool causal GD_DEFAULT(true); /* the target sees its past alone */
    gd_kv_cache *cache;           /* of the decoder */
} gd_nn_transformer_options;
#define GD_NN_TRANSFORMER_DEFAULTS \
    .size = sizeof(gd_nn_transformer_options), .causal = true, .cache = NULL

/* gd_nn_encoder_layer(m, "0", x, &config) of x [batch, t, width]: self-attention "0.self",
 * feed-forward "0.ff", norms "0.norm1", "0.norm2", residual connections. With .causal it is a layer
 * of decoder-only models. */
#define gd_nn_encoder_layer(...)                                                       \
    GD_WITH_4(gd_nn_encoder_layer_with, gd_nn_encoder_options, GD_NN_ENCODER_DEFAULTS, \
              __VA_ARGS__, )
GD_API gd_tensor *gd_nn_encoder_layer_with(gd_module *m, const char *name, gd_tensor *x,
                                           const gd_transformer_config *config,
                                           const gd_nn_encoder_options *options);
/* gd_nn_decoder_layer(m, "0", x, memory, &config): the same, with attention to memory [batch, s,
 * width], "0.cross", between, and three norms. */
#define gd_nn_decoder_layer(...)                                                       \
    GD_WITH_5(gd_nn_decoder_layer_with, gd_nn_decoder_options, GD_NN_DECODER_DEFAULTS, \
              __VA_ARGS__, )
GD_API gd_tensor *gd_nn_decoder_layer_with(gd_module *m, const char *name, gd_tensor *x,
                                           gd_tensor *memory, const gd_transformer_config *config,
                                           const gd_nn_decoder_options *options);

/* The stack of encoder layers "name.0" …, and the norm at its end, "name.norm". */
#define gd_nn_encoder(...) \
    GD_WITH_4(gd_nn_encoder_with, gd_nn_encoder_options, GD_NN_ENCODER_DEFAULTS, __VA_ARGS__, )
GD_API gd_tensor *gd_nn_encoder_with(gd_module *m, const char *name, gd_tensor *x,
                                     const gd_transformer_config *config,
                                     const gd_nn_encoder_options *options);
/* The same of decoder layers: gd_nn_decoder(m, "decoder", x, memory, &config). */
#define gd_nn_decoder(...) \
    GD_WITH_5(gd_nn_decoder_with, gd_nn_decoder_options, GD_NN_DECODER_DEFAULTS, __VA_ARGS__, )
GD_API gd_tensor *gd_nn_decoder_with(gd_module *m, const char *name, gd_tensor *x,
                                     gd_tensor *memory, const gd_transformer_config *config,
                                     const gd_nn_decoder_options *options);
/* gd_nn_transformer(m, "transformer", source, target, &config) of source [batch, s, width] and
 * target [batch, t, width], embedded and with positions -> [batch, t, width]: "name.encoder" and
 * "name.decoder" (Vaswani et al. 2017; torch.nn.Transformer). */
#define gd_nn_transformer(...)                                                               \
    GD_WITH_5(gd_nn_transformer_with, gd_nn_transformer_options, GD_NN_TRANSFORMER_DEFAULTS, \
              __VA_ARGS__, )
GD_API gd_tensor *gd_nn_transformer_with(gd_module *m, const char *name, gd_tensor *source,
                                         gd_tensor *target, const gd_transformer_config *config,
                                         const gd_nn_transformer_options *options);

typedef struct gd_nn_token_embedding_options {
    size_t size GD_DEFAULT(sizeof(gd_nn_token_embedding_options));
    int64_t start; /* position of the first token */
    bool scaled;   /* times sqrt(width), as Vaswani et al. do */
} gd_nn_token_embedding_options;
#define GD_NN_TOKEN_EMBEDDING_DEFAULTS \
    .size = sizeof(gd_nn_token_embedding_options), .scaled = false
/* gd_nn_token_embedding(m, "text", tokens, &config): integers [batch, t] with their positions ->
 * [batch, t, width]: "text.token.weight" [vocabulary, width] and, with learned positions,
 * "text.position.weight" [max_length, width]. */
#define gd_nn_token_embedding(...)                                       \
    GD_WITH_4(gd_nn_token_embedding_with, gd_nn_token_embedding_options, \
              GD_NN_TOKEN_EMBEDDING_DEFAULTS, __VA_ARGS__, )
GD_API gd_tensor *gd_nn_token_embedding_with(gd_module *m, const char *name, gd_tensor *tokens,
                                             const gd_transformer_config *config,
                                             const gd_nn_token_embedding_options *options);

typedef struct gd_nn_decoder_only_options {
    size_t size GD_DEFAULT(sizeof(gd_nn_decoder_only_options));
    gd_tensor *mask;
    gd_kv_cache *cache; /* tokens are those that follow what it has */
    bool last_only;     /* logits of the last token, [batch, 1, vocabulary] */
} gd_nn_decoder_only_options;
#define GD_NN_DECODER_ONLY_DEFAULTS .size = sizeof(gd_nn_decoder_only_options), .last_only = false
/* gd_nn_decoder_only(m, "gpt", tokens, &config) of integers [batch, t] -> logits [batch, t,
 * vocabulary]: a language model, GPT-2's or Llama's architecture as config says. "gpt.token",
 * "gpt.position", layers "gpt.0" …, "gpt.norm" and, unless tied, "gpt.head" (no bias). The name may
 * be NULL or "": paths begin without it. */
#define gd_nn_decoder_only(...)                                                                 \
    GD_WITH_4(gd_nn_decoder_only_with, gd_nn_decoder_only_options, GD_NN_DECODER_ONLY_DEFAULTS, \
              __VA_ARGS__, )
GD_API gd_tensor *gd_nn_decoder_only_with(gd_module *m, const char *name, gd_tensor *tokens,
                                          const gd_transformer_config *config,
                                          const gd_nn_decoder_only_options *options);

typedef struct gd_nn_encoder_only_options {
    size_t size GD_DEFAULT(sizeof(gd_nn_encoder_only_options));
    gd_tensor *mask;
} gd_nn_encoder_only_options;
#define GD_NN_ENCODER_ONLY_DEFAULTS .size = sizeof(gd_nn_encoder_only_options), .mask = NULL
/* gd_nn_encoder_only(m, "bert", tokens, &config) -> [batch, t, width]: every token sees every other
 * that the mask allows. */
#define gd_nn_encoder_only(...)                                                                 \
    GD_WITH_4(gd_nn_encoder_only_with, gd_nn_encoder_only_options, GD_NN_ENCODER_ONLY_DEFAULTS, \
              __VA_ARGS__, )
GD_API gd_tensor *gd_nn_encoder_only_with(gd_module *m, const char *name, gd_tensor *tokens,
                                          const gd_transformer_config *config,
                                          const gd_nn_encoder_only_options *options);

/* ---- recurrent networks ---- */

#define GD_NN_RECURRENT_MOST_STATES 64 /* layers times directions */

typedef struct gd_nn_recurrent_options {
    size_t size GD_DEFAULT(sizeof(gd_nn_recurrent_options));
    int64_t layers GD_DEFAULT(1);
    bool bidirectional;      /* a second pass from the end, its result beside the first's */
    gd_tensor *lengths;      // [batch] integers: steps each sequence has; NULL: all
    gd_tensor *first_hidden; // [layers * directions, batch, units]; NULL: zeros
    gd_tensor *first_cell;   // the same, of LSTM
    gd_tensor **last_hidden; /* if not NULL: the states at the end, [layers * directions, batch,
                                units] */
    gd_tensor **last_cell;
    double dropout; /* of what passes from layer to layer */
    bool relu;      /* RNN alone: instead of tanh */
    bool plain;     /* as gd_recurrent's */
} gd_nn_recurrent_options;
#define GD_NN_RECURRENT_DEFAULTS \
    .size = sizeof(gd_nn_recurrent_options), .layers = 1, .plain = false

/* gd_nn_lstm(m, "lstm", x, 256, .layers = 2) of x [batch, time, any] -> [batch, time, units], units
 * being the size of the state; twice as wide if bidirectional. Behind a sequence's end there are
 * zeros. For layer 0: "lstm.0.forward.input" (a gd_nn_linear to the gates),
 * "lstm.0.forward.hidden.weight" [units, gates * units], "lstm.0.forward.hidden.bias", and
 * "lstm.0.backward…". Gates stand as in PyTorch: i, f, g, o; r, z, n. */
#define gd_nn_lstm(...) \
    GD_WITH_4(gd_nn_lstm_with, gd_nn_recurrent_options, GD_NN_RECURRENT_DEFAULTS, __VA_ARGS__, )
#define gd_nn_gru(...) \
    GD_WITH_4(gd_nn_gru_with, gd_nn_recurrent_options, GD_NN_RECURRENT_DEFAULTS, __VA_ARGS__, )
#define gd_nn_rnn(...) \
    GD_WITH_4(gd_nn_rnn_with, gd_nn_recurrent_options, GD_NN_RECURRENT_DEFAULTS, __VA_ARGS__, )
GD_API gd_tensor *gd_nn_lstm_with(gd_module *m, const char *name, gd_tensor *x, int64_t units,
                                  const gd_nn_recurrent_options *options);
GD_API gd_tensor *gd_nn_gru_with(gd_module *m, const char *name, gd_tensor *x, int64_t units,
                                 const gd_nn_recurrent_options *options);
GD_API gd_tensor *gd_nn_rnn_with(gd_module *m, const char *name, gd_tensor *x, int64_t units,
                                 const gd_nn_recurrent_options *options);

#ifdef __cplusplus
}
#endif
#endif
