/* gradus/model.h: models written as data: a graph of layers with named inputs and outputs and its
 * losses, given as JSON, as structs or by calls. Start at gd_model_load_json() and gd_model_begin().
 *
 *     gd_model *model = gd_model_load_json(context, path, .seed = 1);
 *     gd_tensor *logits = gd_model_forward(model, gd_zeros(context, GD_SHAPE(5, 784), GD_F32));
 *     gd_tensor *loss = gd_model_loss(model, logits, gd_zeros(context, GD_SHAPE(5), GD_I64));
 *     gd_model_save(model, "model.safetensors");
 *     gd_model *same = gd_model_load(context, "model.safetensors");
 *
 * A model is compiled like any other code. What it is made of can be listed (gd_model_layer_spec),
 * changed (gd_model_edit), and extended by types of layers of your own (gd_layer_type_register).
 */
#ifndef GRADUS_MODEL_H
#define GRADUS_MODEL_H

#include <gradus/loss.h>
#include <gradus/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- what a model is ---- */

#define GD_LAYER_MAX_INPUTS  16
#define GD_MODEL_MAX_LAYERS  4096
#define GD_MODEL_MAX_INPUTS  64
#define GD_MODEL_MAX_OUTPUTS 64
#define GD_MODEL_MAX_LOSSES  64
#define GD_LOSS_MAX_OUTPUTS  3

/* An input. Values are given to gd_model_forward_all in the order of the model's inputs. */
typedef struct gd_input_spec {
    size_t size GD_DEFAULT(sizeof(gd_input_spec));
    const char *name;
    gd_shape shape; /* of one sample, without the batch axis; rank 0: a number for each sample */
    /* GD_F32: floats, which layers convert to the model's dtype, or integers where a layer takes
     * indices. An input of an integer dtype takes integers, one of GD_BOOL takes bool. */
    gd_dtype dtype;
} gd_input_spec;
#define GD_INPUT_SPEC_DEFAULTS .size = sizeof(gd_input_spec), .dtype = GD_F32

/* One layer. Types and what they use beside name and inputs (in brackets: may be left out):
 *   linear                                  units [bias init init_scale]; along the last axis,
 *                                           but behind convolution and pooling, whose results are
 *                                           [batch, channels, spatial ..], of all but the batch, as
 *                                           if a flatten stood between (drop_connect likewise)
 *   conv1d conv2d conv3d                    channels kernel [stride padding dilation groups bias
 *                                           init init_scale]
 *   conv_transpose1d, …2d, …3d              likewise [output_padding]
 *   max_pool1d, …2d, …3d                    kernel [stride padding dilation ceil_mode]
 *   avg_pool1d, …2d, …3d                    kernel [stride padding ceil_mode count_padding]
 *   adaptive_avg_pool, adaptive_max_pool    shape (the spatial sizes of the result)
 *   global_avg_pool, global_max_pool        nothing: [batch, c, ..] -> [batch, c]
 *   batch_norm                              [epsilon momentum affine bias]
 *   layer_norm, rms_norm                    [axes (how many last ones) epsilon affine bias]
 *   group_norm                              groups [epsilon affine bias]
 *   instance_norm                           [epsilon affine bias]
 *   dropout                                 dropout
 *   drop_connect                            units dropout
 *   embedding                               vocabulary units; its input are indices
 * of sequences [batch, time, width], see gradus/sequence.h:
 *   rnn rnn_relu lstm gru                   units [layers bidirectional dropout lengths]
 *   last                                    [lengths]: [batch, time, width] -> [batch, width], the
 *                                           last step each sequence has
 *   sinusoidal_position                     nothing: added to the input
 *   learned_position                        [max_length]
 *   rotary_position                         nothing: gd_rope
 *   multi_head_attention                    heads [kv_heads causal position dropout bias mask
 *                                           lengths]; a second input is what is attended to
 *   attention                               [causal dropout mask lengths]: gd_attention of three
 *                                           inputs q, k, v
 *   feed_forward                            [hidden feed_forward dropout bias]
 *   encoder_layer                           heads [kv_heads hidden feed_forward norm position
 *                                           causal pre_norm dropout epsilon bias mask lengths]
 *   encoder                                 likewise [layers]
 *   decoder_layer, decoder                  likewise but causal, of two inputs x and memory
 *                                           [memory_mask memory_lengths]
 *   transformer                             likewise, of two inputs source and target: mask and
 *                                           lengths are the source's [target_mask target_lengths]
 *   token_embedding                         vocabulary units [position max_length dropout]
 *   decoder_only, encoder_only              vocabulary units heads, and as encoder [max_length];
 *                                           the first also [tied]
 * and of any shape:
 *   relu sigmoid tanh gelu gelu_tanh silu   nothing
 *   mish softplus selu relu6 hard_sigmoid   nothing
 *   hard_swish                              nothing
 *   leaky_relu, elu                         [alpha: 0.01, 1]
 *   prelu                                   [per_channel]
 *   softmax, log_softmax                    [axis: -1]
 *   add, multiply                           two or more inputs, broadcast
 *   concat                                  two or more inputs [axis: -1]
 *   flatten                                 nothing: [batch, ..] -> [batch, n]
 *   reshape                                 shape, without the batch axis; one size may be -1
 * Any type takes an activation, applied to its result: one of the activations above but prelu; and
 * checkpoint. Types of one's own: gd_layer_type_register.
 *
 * A layer's parameters have paths that begin with its name and a dot; so no layer's name may be
 * that of another with a dot and more behind it.
 *
 * PADDED SEQUENCES. mask and lengths name an input of the model, or a layer:
 *   lengths  integers [batch]: how many steps a sequence has; what lies behind them is not attended
 *            to, and recurrent layers give zeros there
 *   mask     of keys [batch, keys], of pairs [batch, queries, keys], or [batch, heads, queries,
 *            keys]: bool, true where a query may look, or numbers added to the scores
 * Of two inputs these are the mask and the lengths of what is attended to in multi_head_attention
 * and attention; in a decoder those of x, and memory_mask and memory_lengths are memory's. In a
 * transformer the source's lengths, and its mask of keys, hold for the decoder's attention to it as
 * well. Both may be given: a key must be allowed by either. */
typedef struct gd_layer_spec {
    size_t size GD_DEFAULT(sizeof(gd_layer_spec));
    const char *name; /* unique among layers and inputs */
    const char *type;
    const char *inputs[GD_LAYER_MAX_INPUTS]; /* names of layers or of inputs of the model; none: the
                                                layer listed before, for the first the first input */
    const char *activation;                  /* NULL: none */
    int64_t units;
    bool bias GD_DEFAULT(true);
    gd_init init;
    double init_scale GD_DEFAULT(NAN);
    int axis GD_DEFAULT(-1); /* counted with the batch axis, 0, which it cannot be */
    gd_shape shape;
    int64_t channels; /* of the result */
    /* GD_SHAPE(3) for all spatial axes, GD_SHAPE(3, 5) for each; rank 0: the layer's default */
    gd_shape kernel, stride, padding, dilation, output_padding;
    bool same;                     /* padding so that the result has ceil(size / stride) elements */
    int64_t groups GD_DEFAULT(-1); /* -1: 1; group_norm needs it */
    int64_t vocabulary;            /* rows of an embedding */
    int axes GD_DEFAULT(1);
    double dropout GD_DEFAULT(NAN); /* NaN: 0; dropout and drop_connect need it */
    double alpha GD_DEFAULT(NAN);   /* slope for negative numbers; NaN: the type's */
    double epsilon GD_DEFAULT(1e-5), momentum GD_DEFAULT(0.1);
    bool affine GD_DEFAULT(true), per_channel, ceil_mode;
    bool count_padding GD_DEFAULT(true); /* false: the mean is of what lies inside the input */
    /* of sequences, as in gd_transformer_config */
    int64_t heads, kv_heads GD_DEFAULT(-1), hidden GD_DEFAULT(-1);
    int64_t layers GD_DEFAULT(-1);     /* -1: 1 of recurrent networks, 6 of stacks */
    int64_t max_length GD_DEFAULT(-1); /* -1: what the model's input has */
    gd_activation_kind feed_forward;
    gd_norm_kind norm;
    gd_position_kind position;
    bool bidirectional, causal, pre_norm, tied;
    bool checkpoint; /* any type: gd_checkpoint around the layer, its activation included; in
                        stacks of layers and whole Transformers around each of theirs */
    const char *mask, *lengths, *memory_mask, *memory_lengths, *target_mask, *target_lengths;
    const char *config; /* for types of one's own: JSON text of an object */
} gd_layer_spec;
#define GD_LAYER_SPEC_DEFAULTS                                                                 \
    .size = sizeof(gd_layer_spec), .bias = true, .init_scale = NAN, .axis = -1, .groups = -1,  \
    .axes = 1, .dropout = NAN, .alpha = NAN, .epsilon = 1e-5, .momentum = 0.1, .affine = true, \
    .count_padding = true, .kv_heads = -1, .hidden = -1, .layers = -1, .max_length = -1,       \
    .config = NULL

/* A loss of outputs of the model and of targets, which are given to gd_model_loss_all in the order
 * of the losses. Types, what they take, and what they use (all may be left out), as in
 * gradus/loss.h:
 *   cross_entropy                logits, target           weight label_smoothing ignore_index
 *   cross_entropy_probabilities  probabilities, target    nothing
 *   nll                          log-probabilities, t.    weight ignore_index reduction
 *   bce                          probabilities, target    weight reduction
 *   bce_with_logits              logits, target           weight positive_weight reduction
 *   focal                        logits, target           alpha gamma reduction
 *   hinge, hinge_embedding       x, target                margin reduction
 *   kl_div                       log-probabilities, t.    log_target reduction
 *   mse, mae                     x, target                reduction
 *   huber, smooth_l1             x, target                delta reduction
 *   cosine_embedding             x and y, target          margin reduction
 *   triplet_margin               anchor, positive and     margin p swap reduction
 *                                negative; no target
 *   ctc                          log-probabilities        blank zero_infinity reduction
 *                                [batch, time, classes];
 *                                three targets: classes, input lengths, target lengths
 * cross_entropy uses reduction as well. Of an output that ends in softmax, so that it is
 * probabilities and not logits, cross_entropy is cross_entropy_probabilities; then it has no
 * options. */
typedef struct gd_loss_spec {
    size_t size GD_DEFAULT(sizeof(gd_loss_spec));
    const char *type;
    const char *outputs[GD_LOSS_MAX_OUTPUTS]; /* of the model; none: the next ones in the order of
                                                 the model's outputs */
    double scale GD_DEFAULT(1);               /* of this loss in the sum of all */
    gd_tensor *weight, *positive_weight;      /* copied */
    double label_smoothing;
    int64_t ignore_index GD_DEFAULT(GD_NO_INDEX);
    double alpha GD_DEFAULT(0.25), gamma GD_DEFAULT(2);
    double margin GD_DEFAULT(NAN); /* NaN: the type's, 1, of cosine_embedding 0 */
    double delta GD_DEFAULT(1), p GD_DEFAULT(2);
    int64_t blank;
    bool log_target, swap, zero_infinity;
    gd_reduction reduction; /* not GD_REDUCE_NONE where there are several losses */
} gd_loss_spec;
#define GD_LOSS_SPEC_DEFAULTS                                                             \
    .size = sizeof(gd_loss_spec), .scale = 1, .ignore_index = GD_NO_INDEX, .alpha = 0.25, \
    .gamma = 2, .margin = NAN, .delta = 1, .p = 2, .reduction = GD_REDUCE_MEAN

/* A model: any directed acyclic graph of layers, listed in any order. Arrays of specs are structs
 * as large as the first one's size says. */
typedef struct gd_model_spec {
    size_t size GD_DEFAULT(sizeof(gd_model_spec));
    gd_shape input; /* the shape of the one input, "input", of floats; rank 0: see inputs */
    int layer_count;
    const gd_layer_spec *layers;
    const char *output; /* the layer that is the one result; NULL: see outputs */
    int input_count;
    const gd_input_spec *inputs; /* instead of input */
    int output_count;
    const char *const *outputs; /* layers that are results; 0 and no output: the last listed */
    int loss_count;
    const gd_loss_spec *losses; /* 0: cross_entropy, if there is one output */
} gd_model_spec;
#define GD_MODEL_SPEC_DEFAULTS .size = sizeof(gd_model_spec), .losses = NULL

typedef struct gd_model gd_model;

/* ---- making one ---- */

typedef struct gd_model_options {
    size_t size GD_DEFAULT(sizeof(gd_model_options));
    uint64_t seed;  /* as for gd_module_create */
    gd_dtype dtype; /* likewise */
} gd_model_options;
#define GD_MODEL_DEFAULTS .size = sizeof(gd_model_options), .dtype = GD_F32

/* gd_model_load_json(context, "model.json", .seed = 1), of a path or of JSON text, told by its
 * first character '{'. The JSON is
 *
 *     { "input": [784],
 *       "layers": [ { "name": "fc1", "type": "linear", "units": 16, "activation": "relu" },
 *                   { "name": "fc2", "type": "linear", "units": 10, "inputs": ["fc1"],
 *                     "bias": true, "init": "glorot_uniform" } ],
 *       "output": "fc2",
 *       "loss": { "type": "cross_entropy", "label_smoothing": 0.1 } }
 *
 * or, of several,
 *
 *     { "inputs": [ { "name": "tokens", "shape": [12], "dtype": "i64" },
 *                   { "name": "lengths", "shape": [], "dtype": "i64" } ],
 *       "layers": [ { "name": "table", "type": "embedding", "vocabulary": 50, "units": 8 },
 *                   { "name": "rnn", "type": "gru", "units": 16, "lengths": "lengths" },
 *                   { "name": "end", "type": "last", "lengths": "lengths" },
 *                   { "name": "class", "type": "linear", "units": 3 },
 *                   { "name": "score", "type": "linear", "units": 1, "inputs": ["end"] } ],
 *       "outputs": ["class", "score"],
 *       "losses": [ { "type": "cross_entropy", "outputs": ["class"], "weight": [1, 1, 2] },
 *                   { "type": "huber", "delta": 0.5, "outputs": ["score"], "scale": 0.1 } ] }
 *
 * with keys as the members of gd_layer_spec and gd_loss_spec, but "padding": "same" for same;
 * "kernel", "stride", "padding", "dilation" and "output_padding" are a number or a list, weights
 * of losses lists of numbers, "config" an object. "loss": "mse" says the type alone; "alpha": null
 * is NaN. Everything but an input and "layers" may be left out. Owned by the context. Parameters are
 * made at once, in an order in which every layer comes after its inputs and otherwise as listed.
 * Errors name the layer and what is allowed. GD_ERR_FORMAT: not JSON, an unknown key or a wrong kind
 * of value; GD_ERR_INVALID: an unknown type, name or loss, a name used twice, a cycle; GD_ERR_SHAPE:
 * shapes that do not fit; GD_ERR_IO; GD_ERR_MEMORY; GD_ERR_UNSUPPORTED: a build without jansson. */
#define gd_model_load_json(...) \
    GD_WITH_2(gd_model_load_json_with, gd_model_options, GD_MODEL_DEFAULTS, __VA_ARGS__, )
GD_API gd_model *gd_model_load_json_with(gd_context *context, const char *json,
                                         const gd_model_options *options);

/* gd_model_create(context, &spec, .seed = 1): the same from C. The spec is copied. */
#define gd_model_create(...) \
    GD_WITH_2(gd_model_create_with, gd_model_options, GD_MODEL_DEFAULTS, __VA_ARGS__, )
GD_API gd_model *gd_model_create_with(gd_context *context, const gd_model_spec *spec,
                                      const gd_model_options *options);
GD_API void gd_model_release(gd_model *model);

/* The same by calls:
 *
 *     gd_model_builder *b = gd_model_begin(context, GD_SHAPE(1, 28, 28), .seed = 1);
 *     gd_model_add(b, "conv", "conv2d", .activation = "relu", .channels = 8, .kernel = GD_SHAPE(3));
 *     gd_model_add(b, "pool", "max_pool2d", .kernel = GD_SHAPE(2));
 *     gd_model_add(b, "out", "linear", .units = 10);
 *     gd_model_add_loss(b, "cross_entropy", .label_smoothing = 0.1);
 *     gd_model *model = gd_model_end(b);
 *     gd_tensor *logits = gd_model_forward(model, gd_zeros(context, GD_SHAPE(5, 1, 28, 28), GD_F32));
 *     gd_tensor *loss = gd_model_loss(model, logits, gd_zeros(context, GD_SHAPE(5), GD_I64));
 *
 * An error of any of these calls is kept for gd_model_end as well. Names and specs are copied. */
typedef struct gd_model_builder gd_model_builder;
/* Of a model whose first input, called "input", has this shape without the batch axis; GD_SCALAR:
 * its inputs are those of gd_model_add_input. Owned by the context until gd_model_end. */
#define gd_model_begin(...) \
    GD_WITH_2(gd_model_begin_with, gd_model_options, GD_MODEL_DEFAULTS, __VA_ARGS__, )
GD_API gd_model_builder *gd_model_begin_with(gd_context *context, gd_shape input,
                                             const gd_model_options *options);
/* gd_model_add_input(builder, "lengths", GD_SCALAR, GD_I64) */
GD_API gd_status gd_model_add_input(gd_model_builder *builder, const char *name, gd_shape shape,
                                    gd_dtype dtype);
/* gd_model_add(builder, "out", "linear", .units = 10): a layer by its name, its type and the
 * further members of its spec. Without inputs it takes the layer that was added before. */
#define gd_model_add(...) GD_MODEL_ADD_OF(__VA_ARGS__, )
#define GD_MODEL_ADD_OF(builder, layer_name, layer_type, ...)                    \
    GD_WITH_1(gd_model_add_with, gd_layer_spec, GD_LAYER_SPEC_DEFAULTS, builder, \
              .name = layer_name, .type = layer_type, __VA_ARGS__)
GD_API gd_status gd_model_add_with(gd_model_builder *builder, const gd_layer_spec *layer);
/* The layers that are results, instead of those so far. None at all: the last that was added. */
GD_API gd_status gd_model_set_outputs(gd_model_builder *builder, int count,
                                      const char *const *outputs);
/* gd_model_add_loss(builder, "huber", .delta = 0.5): one more loss. */
#define gd_model_add_loss(...) GD_MODEL_ADD_LOSS_OF(__VA_ARGS__, )
#define GD_MODEL_ADD_LOSS_OF(builder, loss_type, ...)                               \
    GD_WITH_1(gd_model_add_loss_with, gd_loss_spec, GD_LOSS_SPEC_DEFAULTS, builder, \
              .type = loss_type, __VA_ARGS__)
GD_API gd_status gd_model_add_loss_with(gd_model_builder *builder, const gd_loss_spec *loss);
/* Forget the losses so far. */
GD_API gd_status gd_model_drop_losses(gd_model_builder *builder);
/* Make the model, and end the builder in any case. Errors of gd_model_create. */
GD_API gd_model *gd_model_end(gd_model_builder *builder);
/* End a builder without a model. NULL is fine. */
GD_API void gd_model_builder_release(gd_model_builder *builder);

/* ---- ready-made networks ---- */

/* gd_model_begin_mlp(context, 784, 2, widths, 10, .seed = 1): a builder with a multilayer perceptron
 * of vectors [inputs]: linear layers fc1 ... of `count` widths with ReLU, and "out" of `outputs`
 * units, which are logits or the numbers of a regression: cross_entropy is the loss until another is
 * added. Layers can be added, and changed as below, before gd_model_end. GD_ERR_INVALID: a size
 * below 1. */
#define gd_model_begin_mlp(...) \
    GD_WITH_5(gd_model_begin_mlp_with, gd_model_options, GD_MODEL_DEFAULTS, __VA_ARGS__, )
GD_API gd_model_builder *gd_model_begin_mlp_with(gd_context *context, int64_t inputs, int count,
                                                 const int64_t *widths, int64_t outputs,
                                                 const gd_model_options *options);

/* gd_model_begin_cnn(context, GD_SHAPE(3, 32, 32), 2, channels, 10): likewise a convolutional network
 * of maps [channels, width], [channels, height, width] or [channels, depth, height, width]: conv1 ...
 * of `count` channels, 3 wide, padded so that the size stays, with ReLU; behind each a max_pool that
 * halves the size, pool1 ..., while all of its axes are 2 or more; and "out", a linear layer of
 * `classes` units. GD_ERR_SHAPE: other ranks; GD_ERR_INVALID. */
#define gd_model_begin_cnn(...) \
    GD_WITH_5(gd_model_begin_cnn_with, gd_model_options, GD_MODEL_DEFAULTS, __VA_ARGS__, )
GD_API gd_model_builder *gd_model_begin_cnn_with(gd_context *context, gd_shape input, int count,
                                                 const int64_t *channels, int64_t classes,
                                                 const gd_model_options *options);

/* ---- changing one ---- */

/* A builder that begins with all of a model, for taking layers out of it and putting others in:
 *
 *     gd_model_builder *b = gd_model_edit(model, 2);
 *     gd_model_insert(b, "fc1", "drop", "dropout", .dropout = 0.1);
 *     gd_model_replace(b, "out", "linear", .units = 3);
 *     gd_model *other = gd_model_end(b);
 *
 * gd_model_end makes another model, of the same context; the first stays as it is. The layers that
 * were neither replaced nor added have the same parameters and buffers in both, the same tensors and
 * not copies: training one trains the other, until one of them is released. New parameters are
 * drawn with `seed`. An optimizer is made anew, for the new model. GD_ERR_SHAPE where a layer that
 * stays does not fit its new input: replace it as well. */
GD_API gd_model_builder *gd_model_edit(const gd_model *model, uint64_t seed);
/* gd_model_insert(builder, "fc1", "norm", "layer_norm"): a new layer behind `after`, a layer or an
 * input. It takes its result, unless .inputs says what it takes, and whatever took it (layers,
 * outputs, losses) takes the new layer's. */
#define gd_model_insert(...) GD_MODEL_INSERT_OF(__VA_ARGS__, )
#define GD_MODEL_INSERT_OF(builder, after, layer_name, layer_type, ...)                    \
    GD_WITH_2(gd_model_insert_with, gd_layer_spec, GD_LAYER_SPEC_DEFAULTS, builder, after, \
              .name = layer_name, .type = layer_type, __VA_ARGS__)
GD_API gd_status gd_model_insert_with(gd_model_builder *builder, const char *after,
                                      const gd_layer_spec *layer);
/* gd_model_replace(builder, "out", "linear", .units = 3): another layer of the same name, with new
 * parameters. Its inputs stay, unless .inputs says others. */
#define gd_model_replace(...) GD_MODEL_REPLACE_OF(__VA_ARGS__, )
#define GD_MODEL_REPLACE_OF(builder, layer_name, layer_type, ...)                    \
    GD_WITH_1(gd_model_replace_with, gd_layer_spec, GD_LAYER_SPEC_DEFAULTS, builder, \
              .name = layer_name, .type = layer_type, __VA_ARGS__)
GD_API gd_status gd_model_replace_with(gd_model_builder *builder, const gd_layer_spec *layer);
/* Take a layer out, with its parameters. What took its result takes its first input. */
GD_API gd_status gd_model_remove(gd_model_builder *builder, const char *name);

/* ---- running one ---- */

/* Of a model with one input and one output: x [batch, input..] -> the output layer's result. */
GD_API gd_tensor *gd_model_forward(gd_model *model, gd_tensor *x);
/* Of any model: a tensor [batch, ..] for each input, a result for each output, written to outputs.
 * `count` and `output_count` are the model's. GD_ERR_INVALID, GD_ERR_SHAPE, GD_ERR_DTYPE name the
 * input that does not fit. */
GD_API gd_status gd_model_forward_all(gd_model *model, int count, gd_tensor *const *inputs,
                                      int output_count, gd_tensor **outputs);
/* Whether the first output ends in softmax, so that results are probabilities and not logits. */
GD_API bool gd_model_gives_probabilities(const gd_model *model);
/* Of a model with one loss, of one output and one target: the loss of a result of
 * gd_model_forward. []
 * Of a model that gives probabilities p, cross_entropy is -ln p of the target and not a softmax of
 * a softmax; a p below 1.2e-38 counts as that, and has no gradient. Without the softmax there is no
 * such bound: let a model that is trained end in logits, and take gd_softmax of its results.
 * GD_ERR_SHAPE: a softmax that is not along the last axis, where the classes are. */
GD_API gd_tensor *gd_model_loss(const gd_model *model, gd_tensor *output, gd_tensor *target);
/* Of any model: the sum of its losses, each times its scale, of the results of
 * gd_model_forward_all and of gd_model_target_count(model) targets, in the order of the losses. */
GD_API gd_tensor *gd_model_loss_all(const gd_model *model, int output_count,
                                    gd_tensor *const *outputs, int target_count,
                                    gd_tensor *const *targets);
/* The same of padded sequences, of which each has so many steps: lengths [batch], integers. Where a loss's
 * output and target are [batch, time, ..], steps behind a sequence's end count for nothing, in the
 * sum and in the mean. NULL: none are padded. GD_ERR_UNSUPPORTED: cross_entropy of probabilities. */
GD_API gd_tensor *gd_model_loss_padded(const gd_model *model, int output_count,
                                       gd_tensor *const *outputs, int target_count,
                                       gd_tensor *const *targets, gd_tensor *lengths);
/* How many tensors the losses take beside outputs. */
GD_API int gd_model_target_count(const gd_model *model);

/* ---- looking at one. Numbers begin at 0; for one that is none, NULL, GD_SCALAR or 0 ---- */

/* The module with the model's parameters, to optimize; owned by the model. */
GD_API gd_module *gd_model_module(const gd_model *model);
GD_API int gd_model_input_count(const gd_model *model);
GD_API const char *gd_model_input_name(const gd_model *model, int index);
GD_API gd_shape gd_model_input_shape(const gd_model *model, int index); /* without the batch axis */
GD_API gd_dtype gd_model_input_dtype(const gd_model *model, int index);
GD_API int gd_model_output_count(const gd_model *model);
GD_API const char *gd_model_output_name(const gd_model *model, int index); /* the layer's */
GD_API int gd_model_loss_count(const gd_model *model);
/* A loss as it was described, with the names of its outputs. */
GD_API const gd_loss_spec *gd_model_loss_spec(const gd_model *model, int index);

/* Layers in the order in which they are listed. */
GD_API int gd_model_layer_count(const gd_model *model);
/* The number of the layer of that name, -1 if there is none. */
GD_API int gd_model_layer_find(const gd_model *model, const char *name);
/* A layer as it was described: name, type, the names of all its inputs, and the members its type
 * uses. It lives as long as the model. */
GD_API const gd_layer_spec *gd_model_layer_spec(const gd_model *model, int layer);
/* The shape of its result as last seen, whose first axis, the batch, is -1. */
GD_API gd_shape gd_model_layer_shape(const gd_model *model, int layer);
/* Numbers in its parameters, without its buffers. */
GD_API int64_t gd_model_layer_parameter_count(const gd_model *model, int layer);
/* How many parameters and buffers are its own, and the path of each in the model's module. */
GD_API int gd_model_layer_tensor_count(const gd_model *model, int layer);
GD_API const char *gd_model_layer_tensor_path(const gd_model *model, int layer, int index);
/* It as JSON, as it stands among the "layers". Conventions of gd_tensor_format; 0 with the error
 * recorded: GD_ERR_UNSUPPORTED, GD_ERR_MEMORY. */
GD_API size_t gd_model_layer_format_json(const gd_model *model, int layer, char *text, size_t size);
/* The model as JSON, which gd_model_load_json reads back to the same model. Likewise. */
GD_API size_t gd_model_format_json(const gd_model *model, char *text, size_t size);

/* ---- one file for model and parameters ---- */

/* Write a safetensors file with the parameters and buffers, as gd_module_save does, and with the
 * model's JSON in its metadata; atomically. gd_module_load can read it, too. Errors of
 * gd_tensors_save. */
GD_API gd_status gd_model_save(const gd_model *model, const char *path);
/* The model of such a file, with its dtype and its parameters. Types of one's own must be registered
 * before. Owned by the context. No parameter is larger than what the file has of it, so that memory
 * for them is bounded by the file's size; what a forward pass needs is bounded by gd_open's
 * memory_limit. GD_ERR_FORMAT: the file has no description, or has other tensors than it asks for;
 * errors of gd_model_load_json and gd_tensor_file_open. */
GD_API gd_model *gd_model_load(gd_context *context, const char *path);

/* ---- types of layers of one's own ---- */

/* One use of a layer. The struct may become larger at its end. */
typedef struct gd_layer_call {
    gd_module *module;         /* for gd_parameter, gd_nn_linear and the like */
    const gd_layer_spec *spec; /* its name, and what the description gives */
    int count;
    gd_tensor *const *inputs; // [count], [batch, ..]
    gd_tensor *mask, *lengths, *memory_mask, *memory_lengths, *target_mask, *target_lengths;
} gd_layer_call;

/* Build a layer's result in *result. Its parameters have paths that begin with spec->name and a dot;
 * it is called for every forward pass, and once with a sample of zeros when a model is made. A
 * status other than GD_OK is the error already recorded, or one that is recorded for it. */
typedef gd_status (*gd_layer_build_fn)(void *user, const gd_layer_call *call, gd_tensor **result);

typedef struct gd_layer_type_options {
    size_t size GD_DEFAULT(sizeof(gd_layer_type_options));
    int min_inputs GD_DEFAULT(1), max_inputs GD_DEFAULT(1); /* 1 … GD_LAYER_MAX_INPUTS */
    const char *uses;  /* the members of a gd_layer_spec it may be given beside name, type, inputs,
                          activation and checkpoint: "units bias config"; NULL: none */
    const char *needs; /* those of them that may not be left out */
    bool activation;   /* of one input and without parameters: may be another layer's activation */
} gd_layer_type_options;
#define GD_LAYER_TYPE_DEFAULTS \
    .size = sizeof(gd_layer_type_options), .min_inputs = 1, .max_inputs = 1, .activation = false

/* gd_layer_type_register(context, "gated", build, user, .uses = "units bias", .needs = "units"): a
 * type that models of this context may have from now on, in JSON too, until the context is closed.
 * GD_ERR_INVALID: a name that is empty or that a type has already, a member there is not. */
#define gd_layer_type_register(...)                                                       \
    GD_WITH_4(gd_layer_type_register_with, gd_layer_type_options, GD_LAYER_TYPE_DEFAULTS, \
              __VA_ARGS__, )
GD_API gd_status gd_layer_type_register_with(gd_context *context, const char *name,
                                             gd_layer_build_fn build, void *user,
                                             const gd_layer_type_options *options);
/* All types there are, the library's first: how many, and each one's name. */
GD_API int gd_layer_type_count(gd_context *context);
GD_API const char *gd_layer_type_name(gd_context *context, int index);

#ifdef __cplusplus
}
#endif
#endif
