/* gradus/nn.h: modules, layers, and models written as data. Start at gd_module_create() and
 * gd_nn_linear().
 *
 * A MODULE holds named parameters and buffers. A LAYER is a function that is given the module and a
 * name; it makes its parameters at first use, with shapes inferred from its input, and finds them
 * again at every later use. So one C function
 *
 *     gd_tensor *a = gd_relu(gd_nn_linear(m, "fc1", x, 16));
 *     return gd_nn_linear(m, "fc2", a, 10);
 *
 * is the model, its shape inference, its summary and its state dict; it is traced by gd_compile
 * like any other code. A MODEL is the same as data: a list of gd_layer_spec, or JSON.
 */
#ifndef GRADUS_NN_H
#define GRADUS_NN_H

#include <gradus/tensor.h>

#include <math.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- modules ---- */

typedef struct gd_module gd_module;

typedef struct gd_module_options {
    size_t size GD_DEFAULT(sizeof(gd_module_options));
    uint64_t seed;  /* of the initial values: they depend on it and on the order in which parameters
                      are made, on nothing else */
    gd_dtype dtype; /* of the parameters and of the statistics that layers keep: GD_F32 or GD_F64 */
} gd_module_options;
#define GD_MODULE_DEFAULTS .size = sizeof(gd_module_options), .dtype = GD_F32

/* gd_module_create(context), gd_module_create(context, .seed = 1, .dtype = GD_F64). Owned by the
 * context; gd_module_release ends it earlier.
 *
 * A layer computes in its module's dtype. An input of a narrower float dtype is converted to it
 * first, so the f32 batches of a loader go into an f64 model as they are; a wider one, which would
 * lose digits unasked, is GD_ERR_DTYPE, and so is what is no float. */
#define gd_module_create(...) \
    GD_WITH_1(gd_module_create_with, gd_module_options, GD_MODULE_DEFAULTS, __VA_ARGS__, )
GD_API gd_module *gd_module_create_with(gd_context *context, const gd_module_options *options);
/* End a module before its context closes. Optimizers made from it must be released first. NULL is
 * fine. */
GD_API void gd_module_release(gd_module *m);
GD_API gd_context *gd_module_context(const gd_module *m);
GD_API gd_dtype gd_module_dtype(const gd_module *m); /* of its parameters */

/* How initial values are drawn. in and out are fans, the numbers a value is made of and goes into:
 * the sizes of the last two axes times those of all axes before them, unless a layer knows better.
 * init_scale, a number layers and gd_parameter take beside the kind, multiplies the deviation of
 * the kinds that count fans, and is what the others say; NaN means 1 for those, and for these what
 * stands in brackets.
 * glorot: Glorot, Bengio, "Understanding the difficulty of training deep feedforward neural
 * networks", 2010; he: He et al., "Delving deep into rectifiers", 2015; lecun: LeCun et al.,
 * "Efficient backprop", 1998; orthogonal: Saxe et al., 2014. */
typedef enum gd_init {
    GD_INIT_DEFAULT, /* what the layer prefers: glorot_uniform for weights, zeros for biases */
    GD_INIT_ZEROS,
    GD_INIT_ONES,
    GD_INIT_GLOROT_UNIFORM,   /* uniform in +-sqrt(6 / (in + out)) */
    GD_INIT_GLOROT_NORMAL,    /* normal with deviation sqrt(2 / (in + out)) */
    GD_INIT_HE_UNIFORM,       /* uniform in +-sqrt(6 / in) */
    GD_INIT_HE_NORMAL,        /* normal with deviation sqrt(2 / in) */
    GD_INIT_LECUN_UNIFORM,    /* uniform in +-sqrt(3 / in) */
    GD_INIT_LECUN_NORMAL,     /* normal with deviation sqrt(1 / in) */
    GD_INIT_CONSTANT,         /* init_scale everywhere [0] */
    GD_INIT_UNIFORM,          /* uniform in +-init_scale [0.05] */
    GD_INIT_NORMAL,           /* normal with deviation init_scale [0.05] */
    GD_INIT_TRUNCATED_NORMAL, /* the same without what lies beyond two deviations [0.05] */
    GD_INIT_ORTHOGONAL,       /* the first axis by the rest: orthonormal rows or columns, whichever
                                 are fewer, times init_scale [1] */
    GD_INIT_COUNT
} gd_init;

/* "glorot_uniform"; "?" for a number that is none. */
GD_API const char *gd_init_name(gd_init init);

typedef struct gd_parameter_options {
    size_t size GD_DEFAULT(sizeof(gd_parameter_options));
    gd_init init;
    double init_scale GD_DEFAULT(NAN);                     /* see gd_init; NaN: the kind's own */
    int64_t fan_in GD_DEFAULT(-1), fan_out GD_DEFAULT(-1); /* -1: from the shape */
} gd_parameter_options;
#define GD_PARAMETER_DEFAULTS \
    .size = sizeof(gd_parameter_options), .init_scale = NAN, .fan_in = -1, .fan_out = -1

/* gd_parameter(m, "scale", GD_SHAPE(3), .init = GD_INIT_ONES): the parameter at a path, of the
 * module's dtype, made now if there is none; owned by the module. For layers of one's own. An
 * existing one must have this shape (GD_ERR_SHAPE). GD_ERR_STATE: the module was loaded from a file
 * that does not have it. Never recorded by a trace. */
#define gd_parameter(...) \
    GD_WITH_3(gd_parameter_with, gd_parameter_options, GD_PARAMETER_DEFAULTS, __VA_ARGS__, )
GD_API gd_tensor *gd_parameter_with(gd_module *m, const char *path, gd_shape shape,
                                    const gd_parameter_options *options);

/* The buffer at `path`, a tensor that is saved with the module but gets no gradient; made full of
 * `value`. */
GD_API gd_tensor *gd_buffer(gd_module *m, const char *path, gd_shape shape, double value,
                            gd_dtype dtype);

/* Take a tensor in, for parameters that are made elsewhere (by bindings of other languages): a leaf
 * of the module's context, as the parameter or the buffer of a path that is new. It is the same
 * tensor, not a copy, and whether it requires a gradient stays as it is; a parameter has the module's
 * dtype. GD_ERR_INVALID; GD_ERR_DTYPE; GD_ERR_STATE: a result with a history, an ended tensor. */
GD_API gd_status gd_module_put(gd_module *m, const char *path, gd_tensor *t, bool parameter);
/* The values that the module's next parameter would be given, as a leaf that requires a gradient and
 * is not the module's: gd_parameter, without a path. */
#define gd_module_draw(...) \
    GD_WITH_2(gd_module_draw_with, gd_parameter_options, GD_PARAMETER_DEFAULTS, __VA_ARGS__, )
GD_API gd_tensor *gd_module_draw_with(gd_module *m, gd_shape shape,
                                      const gd_parameter_options *options);

/* An existing parameter or buffer, borrowed. GD_ERR_INVALID when there is none of that path. */
GD_API gd_tensor *gd_module_parameter(const gd_module *m, const char *path);

/* All of them in the order of their creation: how many, and number i's path, tensor and kind. NULL,
 * false: no such number. */
GD_API int gd_module_count(const gd_module *m);
GD_API const char *gd_module_path(const gd_module *m, int i);
GD_API gd_tensor *gd_module_tensor(const gd_module *m, int i);
GD_API bool gd_module_is_parameter(const gd_module *m, int i);
/* Numbers in all parameters together; buffers do not count. */
GD_API int64_t gd_module_parameter_count(const gd_module *m);

/* A table of the layers used so far: name, type, output shape (as last seen), parameters.
 * Conventions of gd_tensor_format. */
GD_API size_t gd_module_summary(const gd_module *m, char *text, size_t size);

/* Whether layers behave as in training (the default) or as in use: for dropout and the like. Read
 * while a model function runs; a compiled function keeps what it was when it was traced. */
GD_API void gd_module_set_training(gd_module *m, bool training);
GD_API bool gd_module_is_training(const gd_module *m);

/* Write all parameters and buffers to a safetensors file, atomically. Errors of gd_tensors_save. */
GD_API gd_status gd_module_save(const gd_module *m, const char *path);
/* Read them back. A module that has parameters takes the values of a file with exactly the same
 * names and shapes, or is left unchanged: GD_ERR_FORMAT names the first difference. A module that
 * has none yet takes everything the file has; its layers then find their parameters there. Floats
 * are converted to the module's dtype, be they f64, f32, f16 or bf16 in the file; other dtypes must
 * be the module's. A file that does not say which of its tensors are buffers (it is not Gradus's)
 * is taken to hold parameters where they are floats, until a layer uses one as a buffer. */
GD_API gd_status gd_module_load(gd_module *m, const char *path);

/* ---- layers ---- */

typedef struct gd_nn_linear_options {
    size_t size GD_DEFAULT(sizeof(gd_nn_linear_options));
    bool bias GD_DEFAULT(true);
    gd_init init; /* of the weight */
    double init_scale GD_DEFAULT(NAN);
} gd_nn_linear_options;
#define GD_NN_LINEAR_DEFAULTS .size = sizeof(gd_nn_linear_options), .bias = true, .init_scale = NAN

/* gd_nn_linear(m, "fc1", x, 16), gd_nn_linear(m, "fc1", x, 16, .bias = false): x @ weight + bias,
 * [.., in] -> [.., units], with the parameters "fc1.weight" [in, units] and "fc1.bias" [units]
 * (zeros). x: floats, rank 1 or more. GD_ERR_SHAPE names the path when a later use does not fit the
 * first. */
#define gd_nn_linear(...) \
    GD_WITH_4(gd_nn_linear_with, gd_nn_linear_options, GD_NN_LINEAR_DEFAULTS, __VA_ARGS__, )
GD_API gd_tensor *gd_nn_linear_with(gd_module *m, const char *name, gd_tensor *x, int64_t units,
                                    const gd_nn_linear_options *options);

/* ---- models as data ---- */

/* The feed-forward network of a Transformer. */
typedef enum gd_activation_kind {
    GD_ACTIVATION_DEFAULT, /* what the model prefers: ReLU, or GELU (tanh) in decoder-only models */
    GD_ACTIVATION_RELU,
    GD_ACTIVATION_GELU,
    GD_ACTIVATION_GELU_TANH,
    GD_ACTIVATION_SILU,
    GD_ACTIVATION_SWIGLU, /* silu(x gate) * (x up): Shazeer, "GLU variants improve Transformer" 2020
                           */
} gd_activation_kind;

typedef enum gd_norm_kind {
    GD_NORM_LAYER, /* weight and bias */
    GD_NORM_RMS,   /* weight */
} gd_norm_kind;

typedef enum gd_position_kind {
    GD_POSITION_LEARNED, /* a table [max_length, width], added to the tokens */
    GD_POSITION_SINUSOIDAL,
    GD_POSITION_ROTARY,        /* gd_rope of queries and keys, neighbours in pairs (Llama) */
    GD_POSITION_ROTARY_HALVES, /* the same with .halves (GPT-NeoX) */
    GD_POSITION_NONE,
} gd_position_kind;

#define GD_LAYER_MAX_INPUTS 16
#define GD_MODEL_MAX_LAYERS 4096

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
 *   rnn rnn_relu lstm gru                   units [layers bidirectional dropout]
 *   last                                    nothing: [batch, time, width] -> [batch, width]
 *   sinusoidal_position                     nothing: added to the input
 *   learned_position                        [max_length]
 *   rotary_position                         nothing: gd_rope
 *   multi_head_attention                    heads [kv_heads causal position dropout bias]; a second
 *                                           input is what is attended to
 *   attention                               [causal dropout]: gd_attention of three inputs q, k,
 *                                           v; a fourth is numbers to add to the scores
 *   feed_forward                            [hidden feed_forward dropout bias]
 *   encoder_layer                           heads [kv_heads hidden feed_forward norm position
 *                                           causal pre_norm dropout epsilon bias]
 *   encoder                                 likewise [layers]
 *   decoder_layer, decoder, transformer     likewise but causal; two inputs: x and the memory, of
 *                                           transformer source and target
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
 * checkpoint. */
typedef struct gd_layer_spec {
    size_t size GD_DEFAULT(sizeof(gd_layer_spec));
    const char *name; /* unique, not "input" */
    const char *type;
    const char *inputs[GD_LAYER_MAX_INPUTS]; /* names of layers, or "input"; none: the layer before,
                                                for the first the input */
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
} gd_layer_spec;
#define GD_LAYER_SPEC_DEFAULTS                                                                 \
    .size = sizeof(gd_layer_spec), .bias = true, .init_scale = NAN, .axis = -1, .groups = -1,  \
    .axes = 1, .dropout = NAN, .alpha = NAN, .epsilon = 1e-5, .momentum = 0.1, .affine = true, \
    .count_padding = true, .kv_heads = -1, .hidden = -1, .layers = -1, .max_length = -1,       \
    .checkpoint = false

/* A model: any directed acyclic graph of layers, listed in any order. The layers are an array of
 * structs as large as the first one's size says. */
typedef struct gd_model_spec {
    size_t size GD_DEFAULT(sizeof(gd_model_spec));
    gd_shape input; /* without the batch axis */
    int layer_count;
    const gd_layer_spec *layers;
    const char *output; /* the layer that is the result; NULL: the last listed */
    const char *loss;   /* "cross_entropy" or "mse"; NULL: cross_entropy */
} gd_model_spec;
#define GD_MODEL_SPEC_DEFAULTS .size = sizeof(gd_model_spec), .loss = NULL

typedef struct gd_model gd_model;

typedef struct gd_model_options {
    size_t size GD_DEFAULT(sizeof(gd_model_options));
    uint64_t seed;  /* as for gd_module_create */
    gd_dtype dtype; /* likewise */
} gd_model_options;
#define GD_MODEL_DEFAULTS .size = sizeof(gd_model_options), .dtype = GD_F32

/* gd_model_load_json(context, "model.json", .seed = 1), of a path or of JSON text, told by its
 * first character '{'. The JSON is
 *
 *     { "input": [784], "loss": "cross_entropy", "output": "fc2",
 *       "layers": [ { "name": "fc1", "type": "linear", "units": 16, "activation": "relu" },
 *                   { "name": "fc2", "type": "linear", "units": 10, "inputs": ["fc1"],
 *                     "bias": true, "init": "glorot_uniform" } ] }
 *
 * with keys as the members of gd_layer_spec, but "padding": "same" for same; "kernel",
 * "stride", "padding", "dilation" and "output_padding" are a number or a list. "loss", "output",
 * "inputs", "activation" may be left out. Owned by the context. Parameters are made at once, in an
 * order in which every layer comes after its inputs and otherwise as listed. Errors name the layer
 * and what is allowed. GD_ERR_FORMAT: not JSON, an unknown key or a wrong kind of value;
 * GD_ERR_INVALID: an unknown type, name or loss, a name used twice, a cycle; GD_ERR_SHAPE: shapes
 * that do not fit; GD_ERR_IO; GD_ERR_MEMORY; GD_ERR_UNSUPPORTED: a build without jansson. */
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
 *     gd_model *model = gd_model_end(b);
 *     gd_tensor *logits = gd_model_forward(model, gd_zeros(context, GD_SHAPE(5, 1, 28, 28), GD_F32));
 *     gd_tensor *loss = gd_model_loss(model, logits, gd_zeros(context, GD_SHAPE(5), GD_I64));
 */
typedef struct gd_model_builder gd_model_builder;
typedef struct gd_model_builder_options {
    size_t size GD_DEFAULT(sizeof(gd_model_builder_options));
    uint64_t seed;      /* as for gd_module_create */
    gd_dtype dtype;     /* likewise */
    const char *output; /* as in gd_model_spec */
    const char *loss;
} gd_model_builder_options;
#define GD_MODEL_BUILDER_DEFAULTS .size = sizeof(gd_model_builder_options), .loss = NULL
/* Of a model whose input has this shape without the batch axis. Owned by the context until
 * gd_model_end. */
#define gd_model_begin(...)                                                             \
    GD_WITH_2(gd_model_begin_with, gd_model_builder_options, GD_MODEL_BUILDER_DEFAULTS, \
              __VA_ARGS__, )
GD_API gd_model_builder *gd_model_begin_with(gd_context *context, gd_shape input,
                                             const gd_model_builder_options *options);
/* gd_model_add(builder, "out", "linear", .units = 10): a layer by its name, its type and the
 * further members of its spec, which is copied. An error is kept for gd_model_end as well. */
#define gd_model_add(...) GD_MODEL_ADD_OF(__VA_ARGS__, )
#define GD_MODEL_ADD_OF(builder, layer_name, layer_type, ...)                    \
    GD_WITH_1(gd_model_add_with, gd_layer_spec, GD_LAYER_SPEC_DEFAULTS, builder, \
              .name = layer_name, .type = layer_type, __VA_ARGS__)
GD_API gd_status gd_model_add_with(gd_model_builder *builder, const gd_layer_spec *layer);
/* Make the model, and end the builder in any case. Errors of gd_model_create. */
GD_API gd_model *gd_model_end(gd_model_builder *builder);

/* The model as JSON, which gd_model_load_json reads back to the same model. Conventions of
 * gd_tensor_format; 0 with the error recorded: GD_ERR_UNSUPPORTED, GD_ERR_MEMORY. */
GD_API size_t gd_model_format_json(const gd_model *model, char *text, size_t size);

/* The module with the model's parameters, to optimize, save, load; owned by the model. */
GD_API gd_module *gd_model_module(const gd_model *model);
/* The input's shape without the batch axis. */
GD_API gd_shape gd_model_input_shape(const gd_model *model);

/* x [batch, input..] -> the output layer's result. */
GD_API gd_tensor *gd_model_forward(gd_model *model, gd_tensor *x);
/* Whether the output layer ends in softmax, so that results are probabilities and not logits. */
GD_API bool gd_model_gives_probabilities(const gd_model *model);
/* The model's loss of a result of gd_model_forward: gd_mse, or gd_cross_entropy of the logits. []
 * Of a model that gives probabilities p, cross_entropy is -ln p of the target and not a softmax of
 * a softmax; a p below 1.2e-38 counts as that, and has no gradient. Without the softmax there is no
 * such bound: let a model that is trained end in logits, and take gd_softmax of its results.
 * GD_ERR_SHAPE: a softmax that is not along the last axis, where the classes are. */
GD_API gd_tensor *gd_model_loss(const gd_model *model, gd_tensor *output, gd_tensor *target);

#ifdef __cplusplus
}
#endif
#endif
