/* gradus/nn.h: modules and layers. Start at gd_module_create() and gd_nn_linear().
 *
 * A MODULE holds named parameters and buffers. A LAYER is a function that is given the module and a
 * name; it makes its parameters at first use, with shapes inferred from its input, and finds them
 * again at every later use. So one C function
 *
 *     gd_tensor *a = gd_relu(gd_nn_linear(m, "fc1", x, 16));
 *     return gd_nn_linear(m, "fc2", a, 10);
 *
 * is the model, its shape inference, its summary and its state dict; it is traced by gd_compile
 * like any other code. The same written as data is a model: gradus/model.h.
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
    gd_dtype dtype; /* of the parameters and of the statistics that layers keep: GD_F32, GD_F64, or
                       GD_BF16, without a copy in f32: see .stochastic_rounding in gradus/optim.h */
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
/* m as a module of `context`, perhaps on another device, which owns it: parameters and buffers are
 * copied, and what is made later is drawn as m would draw it. Optimizers do not come along. With m's
 * own context it is a second one with the same values. Never recorded by a trace. */
GD_API gd_module *gd_module_to(gd_context *context, const gd_module *m);
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
 * dtype. A tensor without a name gets its path as its name. GD_ERR_INVALID, also of a tensor that the
 * module has under another path; GD_ERR_DTYPE; GD_ERR_STATE: a result with a history, an ended tensor. */
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

/* A table of the layers used so far: name, type, output shape (as last seen), parameters; then the
 * parameters that belong to none of them, with their own shapes. Conventions of gd_tensor_format. */
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

/* ---- kinds that layers of sequences and models as data share ---- */

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

#ifdef __cplusplus
}
#endif
#endif
