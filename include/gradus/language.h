/* gradus/language.h: decoder-only language models, GPT-2's and Llama's architecture: making,
 * training, reading weights, generating text. Start at gd_language_model_create() and
 * gd_generate(). Tokenisers and batches of tokens are in gradus/text.h.
 */
#ifndef GRADUS_LANGUAGE_H
#define GRADUS_LANGUAGE_H

#include <gradus/gguf.h>
#include <gradus/io.h>
#include <gradus/nn.h>
#include <gradus/text.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum gd_decoder {
    GD_DECODER_GPT2, /* LayerNorm before each part, learned positions, GELU (tanh), biases, the
                        output tied to the embedding. Radford et al. 2019 */
    GD_DECODER_LLAMA /* RMSNorm, rotary positions, grouped-query attention, SwiGLU, no biases.
                        Touvron et al., "LLaMA", 2023 */
} gd_decoder;

/* What a language model is. vocabulary, max_length, layers, heads and width are needed. */
typedef struct gd_language_options {
    size_t size GD_DEFAULT(sizeof(gd_language_options));
    gd_decoder decoder;
    int64_t vocabulary; /* tokens */
    int64_t max_length; /* the most tokens of a sequence */
    int64_t layers, heads, width;
    /* a divisor of heads; -1: as many, which GPT-2 always has */
    int64_t kv_heads GD_DEFAULT(-1);
    int64_t hidden GD_DEFAULT(-1); /* of the feed-forward part; -1: 4 * width */
    bool tied GD_DEFAULT(true);    /* the output's weights are the embedding's */
    bool checkpoint; /* training takes less memory and a second forward pass: gd_checkpoint around
                        each layer; not saved with the model */
    double dropout;  /* in training: of embeddings, attention and what each part adds */
    uint64_t seed; /* of the initial weights: normal with deviation 0.02; of weights that add to the
                      residual stream 0.02 / sqrt(2 * layers) */
    double epsilon GD_DEFAULT(1e-5);      /* of the norms */
    double rotary_base GD_DEFAULT(10000); /* of Llama's positions; see gd_rope */
} gd_language_options;
#define GD_LANGUAGE_DEFAULTS                                                         \
    .size = sizeof(gd_language_options), .kv_heads = -1, .hidden = -1, .tied = true, \
    .epsilon = 1e-5, .rotary_base = 10000

/* gd_language_model_create(context, GD_GPT2_124M): 124,439,808 parameters. */
#define GD_GPT2_124M \
    .vocabulary = 50257, .max_length = 1024, .layers = 12, .heads = 12, .width = 768

typedef struct gd_language_model gd_language_model;

/* gd_language_model_create(context, .vocabulary = 65, .max_length = 256, .layers = 6, .heads = 6,
 * .width = 384, .dropout = 0.2, .seed = 1). Owned by the context. It is a gd_nn_decoder_only
 * (gradus/sequence.h), whose names its parameters have. GD_ERR_INVALID: sizes that do not go
 * together; GD_ERR_MEMORY. */
#define gd_language_model_create(...)                                                   \
    GD_WITH_1(gd_language_model_create_with, gd_language_options, GD_LANGUAGE_DEFAULTS, \
              __VA_ARGS__, )
GD_API gd_language_model *gd_language_model_create_with(gd_context *context,
                                                        const gd_language_options *options);
/* End it before its context closes. Generators and optimizers of it must be released first. NULL is
 * fine. */
GD_API void gd_language_model_release(gd_language_model *model);

/* gd_language_model_load(context, "model.gguf", .quantized = true): a model from a file, told by its
 * content. safetensors: GPT-2 as Hugging Face stores it (heads are 64 wide there), or what
 * gd_language_model_save wrote. GGUF (gradus/gguf.h) of the architectures gpt2 and llama, its weights
 * as f32, or as they are. Else llama2.c's checkpoint, version 0 (a header of 7 numbers i32, then
 * weights f32). GD_ERR_IO; GD_ERR_FORMAT: also a file whose tensors are not those of a model of its
 * sizes; GD_ERR_UNSUPPORTED: safetensors in a build without jansson, GGUF of another architecture;
 * GD_ERR_MEMORY. */
typedef struct gd_language_load_options {
    size_t size GD_DEFAULT(sizeof(gd_language_load_options));
    /* Matrices that a GGUF file has as Q8_0, Q4_0 or Q4_1 stay so in memory, and those of Q5_0, Q5_1 and k-quants as the
     * same weights in 4 bits (Q2_K, Q3_K, Q4_K) or 8: buffers "….values" and "….scales" in place of
     * "….weight", and the model computes with gd_quantized_linear, whose rounding of
     * activations is part of it. Such a model generates; it is not saved, and its matrices are not
     * trained. A file without such matrices is read as ever, which a warning says. */
    bool quantized;
} gd_language_load_options;
#define GD_LANGUAGE_LOAD_DEFAULTS .size = sizeof(gd_language_load_options), .quantized = false
#define gd_language_model_load(...)                                                             \
    GD_WITH_2(gd_language_model_load_with, gd_language_load_options, GD_LANGUAGE_LOAD_DEFAULTS, \
              __VA_ARGS__, )
GD_API gd_language_model *gd_language_model_load_with(gd_context *context, const char *path,
                                                      const gd_language_load_options *options);
/* Write a model to a safetensors file, with what gd_language_model_load needs to know and strings of
 * one's own, as the characters of its tokeniser, to be read with gd_tensor_file_metadata. A GPT-2 gets
 * the published names ("transformer.h.0.attn.c_attn.weight"). Errors of gd_tensors_save. */
GD_API gd_status gd_language_model_save(const gd_language_model *model, const char *path,
                                        int64_t metadata_count, const gd_metadata *metadata);

/* Write a model and its tokeniser to a GGUF file, with the options of gd_gguf_quantize, as .type = GD_GGUF_Q4_0:
 * a file of the architecture gpt2 or llama, for llama.cpp and the programs that stand on it. A tokeniser of bytes or
 * characters becomes one of SentencePiece that spells the same. Of BPE its words are GPT-2's. GD_ERR_INVALID: also a tokeniser
 * of another count of tokens than the model. */
#define gd_language_model_save_gguf(...)                                  \
    GD_WITH_3(gd_language_model_save_gguf_with, gd_gguf_quantize_options, \
              GD_GGUF_QUANTIZE_DEFAULTS, __VA_ARGS__, )
GD_API gd_status gd_language_model_save_gguf_with(const gd_language_model *model,
                                                  const gd_tokenizer *tokenizer, const char *path,
                                                  const gd_gguf_quantize_options *options);

/* How much the columns of its matrices count, for gd_gguf_quantize and gd_language_model_save_gguf: the mean squares of what they
 * are multiplied with where the model reads `count` tokens, in sequences of max_length or 512 ("importance matrix"). The
 * table of tokens has none. Released by the caller. NULL: GD_ERR_INVALID, no tokens or one that is none; GD_ERR_MEMORY. */
GD_API gd_importance *gd_language_model_calibrate(gd_language_model *model, int64_t count,
                                                  const int32_t *tokens);

/* Its module, to optimize and count; owned by the model. */
GD_API gd_module *gd_language_model_module(const gd_language_model *model);
/* Its sizes, with defaults filled in; owned by the model. NULL for NULL. */
GD_API const gd_language_options *gd_language_model_options(const gd_language_model *model);

/* tokens [batch, time], i64 or i32, time at most max_length -> logits [batch, time, vocabulary]: at
 * each place of what comes next. */
GD_API gd_tensor *gd_language_model_forward(gd_language_model *model, gd_tensor *tokens);
/* Mean cross entropy of the logits against the tokens that did come next, targets [batch, time]. []
 */
GD_API gd_tensor *gd_language_model_loss(gd_language_model *model, gd_tensor *tokens,
                                         gd_tensor *targets);

/* ---- generation ---- */

/* A sequence as it grows. The keys and values of its tokens are kept, so that a further token costs
 * O(time) and not O(time^2) ("KV cache"). */
typedef struct gd_generator gd_generator;

/* Owned by the model's context. */
GD_API gd_generator *gd_generator_create(gd_language_model *model);
GD_API void gd_generator_release(gd_generator *generator);
/* Keep keys and values in GD_F16 for half the memory, or GD_I8 for a quarter: gd_kv_cache_set_dtype (gradus/sequence.h)
 * of its cache. GD_ERR_STATE: it has been fed already; GD_ERR_DTYPE. */
GD_API gd_status gd_generator_set_cache_dtype(gd_generator *generator, gd_dtype dtype);
/* Append `count` tokens. Returns the logits [vocabulary] of the token after them; owned by the
 * generator, valid until the next call. NULL: GD_ERR_SHAPE, the sequence would be longer than the
 * model's max_length; GD_ERR_INVALID: no tokens, or one that is none; GD_ERR_MEMORY. */
GD_API const float *gd_generator_feed(gd_generator *generator, int64_t count,
                                      const int32_t *tokens);
/* Likewise, with the logits behind each of the tokens, [count, vocabulary]: what each, given those before it, lets
 * expect. */
GD_API const float *gd_generator_feed_all(gd_generator *generator, int64_t count,
                                          const int32_t *tokens);
/* The mean of -log p of a text's tokens but the first, two or more; exp of it is the text's perplexity. They are read in
 * sequences of the model's max_length, or 1,024, each without what was before it; the generator's own sequence ends. Errors of
 * gd_generator_feed. */
GD_API gd_status gd_generator_loss(gd_generator *generator, int64_t count, const int32_t *tokens,
                                   double *loss);

/* The most tokens that are drafted at once. */
#define GD_MOST_DRAFT_TOKENS 64

/* Append `count` tokens, and choose 1 to draft_tokens + 1 that follow them, into `out`, where there must be room for so
 * many; the last is chosen, but not appended. `draft`, a generator of a smaller model with the same tokens, proposes
 * draft_tokens, fewer where either model would be full; this model reads them in one pass. A proposal is kept with probability
 * min(1, p / q), p being its probability by this model and the sampler, q that by the draft's; the first that is not is
 * drawn anew from max(0, p - q), and if all are kept one more from p (Leviathan et al. 2023; Chen et al. 2023). So tokens have the
 * distribution that gd_sample gives them, and with temperature 0 they are the likeliest, as far as logits of many tokens at
 * once and one by one round to the same order. The draft is fed as needed. `past`: of the penalty, those just appended among
 * them. Returns how many are in `out`; -1: GD_ERR_INVALID (models of different vocabularies, draft_tokens not 1 to
 * GD_MOST_DRAFT_TOKENS), the errors of gd_generator_feed and gd_sample. */
GD_API int64_t gd_generator_speculate(gd_generator *generator, gd_generator *draft,
                                      gd_sampler *sampler, int64_t count, const int32_t *tokens,
                                      int64_t past_count, const int32_t *past, int64_t draft_tokens,
                                      int32_t *out);
/* How many tokens drafts have proposed to this generator since it was made, and how many of them were kept. */
GD_API int64_t gd_generator_drafted(const gd_generator *generator);
GD_API int64_t gd_generator_accepted(const gd_generator *generator);
/* Tokens so far. */
GD_API int64_t gd_generator_length(const gd_generator *generator);
/* Begin a new sequence. */
GD_API void gd_generator_reset(gd_generator *generator);

/* Told of each token as it is chosen, with its text (`size` bytes; see gd_token_text). *stop, false
 * before, ends the text where it is set to true; a status other than GD_OK makes gd_generate fail. */
typedef gd_status (*gd_token_callback)(void *user, int32_t token, const char *text, size_t size,
                                       bool *stop);

typedef struct gd_generate_options {
    size_t size GD_DEFAULT(sizeof(gd_generate_options));
    const char *prompt; /* NULL: none; then the tokeniser's begin token starts, or else its end
                           token, or else token 0 */
    /* the most to generate; -1: until the model's max_length. Beyond that the sequence is begun
     * anew with its last half */
    int64_t max_tokens GD_DEFAULT(-1);
    gd_token_callback callback;
    void *user;
    /* of a smaller model with the same tokens, that proposes draft_tokens at a time: gd_generator_speculate. NULL: none */
    gd_generator *draft;
    int64_t draft_tokens GD_DEFAULT(4);
} gd_generate_options;
#define GD_GENERATE_DEFAULTS \
    .size = sizeof(gd_generate_options), .max_tokens = -1, .draft_tokens = 4

/* gd_generate(generator, tokenizer, sampler, .prompt = "Once", .callback = print): continue a text
 * until the end token or the limit. The prompt is not repeated; it and what was generated count for
 * the sampler's penalty. Where the tokeniser has a begin token, a sequence starts with it. Without
 * gd_generator_reset a further call continues the sequence; the last token of the call before was
 * chosen but not fed, and is not in it. Returns how many tokens were generated; -1 on an error. */
#define gd_generate(...) \
    GD_WITH_3(gd_generate_with, gd_generate_options, GD_GENERATE_DEFAULTS, __VA_ARGS__, )
GD_API int64_t gd_generate_with(gd_generator *generator, const gd_tokenizer *tokenizer,
                                gd_sampler *sampler, const gd_generate_options *options);

#ifdef __cplusplus
}
#endif
#endif
