/* nn/layer_types_spatial.c: types of layers for inputs [batch, channels, spatial...]: convolution,
 * pooling, and normalisation. See nn/layer_types.c. */
#include "nn/layer_types.h"

#include "base/error.h"

#include <gradus/conv.h>
#include <gradus/layers.h>

static gd_nn_conv_options conv_options(const gd_layer_spec *s)
{
    return (gd_nn_conv_options){ GD_NN_CONV_DEFAULTS,
                                 .stride = s->stride,
                                 .padding = s->padding,
                                 .dilation = s->dilation,
                                 .groups = s->groups == -1 ? 1 : s->groups,
                                 .same = s->same,
                                 .output_padding = s->output_padding,
                                 .bias = s->bias,
                                 .init = s->init,
                                 .init_scale = s->init_scale };
}

static gd_tensor *build_conv(const gd_layer_args *c)
{
    const gd_layer_spec *s = c->spec;
    gd_nn_conv_options o = conv_options(s);
    return gd_nn_conv_with(c->module, s->name, c->in[0], c->type->spatial, s->channels, s->kernel,
                           &o);
}

static gd_tensor *build_conv_transpose(const gd_layer_args *c)
{
    const gd_layer_spec *s = c->spec;
    gd_nn_conv_options o = conv_options(s);
    return gd_nn_conv_transpose_with(c->module, s->name, c->in[0], c->type->spatial, s->channels,
                                     s->kernel, &o);
}

/* ---- pooling ---- */

static bool pool_options(const gd_layer_spec *s, gd_pool_options *o)
{
    *o = (gd_pool_options){ GD_POOL_DEFAULTS,          .stride = s->stride,
                            .padding = s->padding,     .dilation = s->dilation,
                            .ceil_mode = s->ceil_mode, .count_padding = s->count_padding };
    if (s->same)
        (void)gd_fail(GD_ERR_INVALID, "\"padding\" of pooling is a number, not \"same\"");
    return !s->same;
}

static gd_tensor *build_max_pool(const gd_layer_args *c)
{
    gd_pool_options o;
    if (!pool_options(c->spec, &o))
        return NULL;
    return gd_max_pool_with(c->in[0], c->type->spatial, c->spec->kernel, &o);
}

static gd_tensor *build_avg_pool(const gd_layer_args *c)
{
    gd_pool_options o;
    if (!pool_options(c->spec, &o))
        return NULL;
    return gd_avg_pool_with(c->in[0], c->type->spatial, c->spec->kernel, &o);
}

static gd_tensor *build_adaptive_avg_pool(const gd_layer_args *c)
{
    return gd_adaptive_avg_pool(c->in[0], c->spec->shape);
}

static gd_tensor *build_adaptive_max_pool(const gd_layer_args *c)
{
    return gd_adaptive_max_pool(c->in[0], c->spec->shape);
}

static gd_tensor *build_simple(const gd_layer_args *c)
{
    return c->type->simple(c->in[0]);
}

/* ---- normalisation ---- */

static gd_tensor *build_batch_norm(const gd_layer_args *c)
{
    const gd_layer_spec *s = c->spec;
    return gd_nn_batch_norm(c->module, s->name, c->in[0], .momentum = s->momentum,
                            .epsilon = s->epsilon, .affine = s->affine, .bias = s->bias);
}

/* The batch is not among the axes normalised. */
static bool leaves_batch(const gd_layer_args *c)
{
    int rank = gd_tensor_shape(c->in[0]).rank;
    if (c->spec->axes < rank && rank > 1)
        return true;
    (void)gd_fail(GD_ERR_SHAPE, "%d axes cannot be normalised: the input has %d beside the batch",
                  c->spec->axes, rank - 1);
    return false;
}

static gd_tensor *build_layer_norm(const gd_layer_args *c)
{
    const gd_layer_spec *s = c->spec;
    return leaves_batch(c)
               ? gd_nn_layer_norm(c->module, s->name, c->in[0], .axes = s->axes,
                                  .epsilon = s->epsilon, .affine = s->affine, .bias = s->bias)
               : NULL;
}

static gd_tensor *build_rms_norm(const gd_layer_args *c)
{
    const gd_layer_spec *s = c->spec;
    return leaves_batch(c) ? gd_nn_rms_norm(c->module, s->name, c->in[0], .axes = s->axes,
                                            .epsilon = s->epsilon, .affine = s->affine)
                           : NULL;
}

static gd_tensor *build_group_norm(const gd_layer_args *c)
{
    const gd_layer_spec *s = c->spec;
    return gd_nn_group_norm(c->module, s->name, c->in[0], s->groups, .epsilon = s->epsilon,
                            .affine = s->affine, .bias = s->bias);
}

static gd_tensor *build_instance_norm(const gd_layer_args *c)
{
    const gd_layer_spec *s = c->spec;
    return gd_nn_instance_norm(c->module, s->name, c->in[0], .epsilon = s->epsilon,
                               .affine = s->affine, .bias = s->bias);
}

#define CONV                                                                    \
    (GD_USES(CHANNELS) | GD_USES(KERNEL) | GD_USES(STRIDE) | GD_USES(PADDING) | \
     GD_USES(DILATION) | GD_USES(GROUPS) | GD_USES(BIAS) | GD_USES(INIT) | GD_USES(INIT_SCALE))
#define TRANSPOSED (CONV | GD_USES(OUTPUT_PADDING))
#define CONV_NEEDS (GD_USES(CHANNELS) | GD_USES(KERNEL))
#define POOL       (GD_USES(KERNEL) | GD_USES(STRIDE) | GD_USES(PADDING) | GD_USES(CEIL_MODE))
#define MAX_POOL   (POOL | GD_USES(DILATION))
#define AVG_POOL   (POOL | GD_USES(COUNT_PADDING))
#define NORM       (GD_USES(EPSILON) | GD_USES(AFFINE) | GD_USES(BIAS))
#define MAPS       .maps = GD_MAPS_YES
#define AS_INPUT   .maps = GD_MAPS_AS_INPUT

const gd_layer_type gd_spatial_layer_types[] = {
    { "conv1d", build_conv, 1, 1, CONV, CONV_NEEDS, .spatial = 1, MAPS },
    { "conv2d", build_conv, 1, 1, CONV, CONV_NEEDS, .spatial = 2, MAPS },
    { "conv3d", build_conv, 1, 1, CONV, CONV_NEEDS, .spatial = 3, MAPS },
    { "conv_transpose1d", build_conv_transpose, 1, 1, TRANSPOSED, CONV_NEEDS, .spatial = 1, MAPS },
    { "conv_transpose2d", build_conv_transpose, 1, 1, TRANSPOSED, CONV_NEEDS, .spatial = 2, MAPS },
    { "conv_transpose3d", build_conv_transpose, 1, 1, TRANSPOSED, CONV_NEEDS, .spatial = 3, MAPS },
    { "max_pool1d", build_max_pool, 1, 1, MAX_POOL, GD_USES(KERNEL), .spatial = 1, MAPS },
    { "max_pool2d", build_max_pool, 1, 1, MAX_POOL, GD_USES(KERNEL), .spatial = 2, MAPS },
    { "max_pool3d", build_max_pool, 1, 1, MAX_POOL, GD_USES(KERNEL), .spatial = 3, MAPS },
    { "avg_pool1d", build_avg_pool, 1, 1, AVG_POOL, GD_USES(KERNEL), .spatial = 1, MAPS },
    { "avg_pool2d", build_avg_pool, 1, 1, AVG_POOL, GD_USES(KERNEL), .spatial = 2, MAPS },
    { "avg_pool3d", build_avg_pool, 1, 1, AVG_POOL, GD_USES(KERNEL), .spatial = 3, MAPS },
    { "adaptive_avg_pool", build_adaptive_avg_pool, 1, 1, GD_USES(SHAPE), GD_USES(SHAPE), MAPS },
    { "adaptive_max_pool", build_adaptive_max_pool, 1, 1, GD_USES(SHAPE), GD_USES(SHAPE), MAPS },
    { "global_avg_pool", build_simple, 1, 1, 0, 0, .simple = gd_global_avg_pool },
    { "global_max_pool", build_simple, 1, 1, 0, 0, .simple = gd_global_max_pool },
    { "batch_norm", build_batch_norm, 1, 1, NORM | GD_USES(MOMENTUM), 0, AS_INPUT },
    { "layer_norm", build_layer_norm, 1, 1, NORM | GD_USES(AXES), 0, AS_INPUT },
    { "rms_norm", build_rms_norm, 1, 1, (NORM & ~GD_USES(BIAS)) | GD_USES(AXES), 0, AS_INPUT },
    { "group_norm", build_group_norm, 1, 1, NORM | GD_USES(GROUPS), GD_USES(GROUPS), AS_INPUT },
    { "instance_norm", build_instance_norm, 1, 1, NORM, 0, AS_INPUT },
};
const int gd_spatial_layer_type_count =
    sizeof gd_spatial_layer_types / sizeof *gd_spatial_layer_types;
