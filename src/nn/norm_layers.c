/* nn/norm_layers.c: normalisation as layers. */
#include "nn/layer.h"

#include "base/error.h"
#include "base/options.h"

#include <gradus/layers.h>
#include <gradus/norm.h>

/* What a layer makes beside the buffers of statistics. */
typedef struct parts_wanted {
    bool weight, bias, statistics;
} parts_wanted;

/* The layer with its statistics, its weight and its bias, all of one shape. */
static gd_module_layer *use(gd_module *m, const char *who, const char *name, const char *type,
                            gd_shape shape, parts_wanted wanted)
{
    gd_layer_tensor tensors[GD_LAYER_MAX_PARAMETERS];
    int count = 0;
    if (wanted.statistics) {
        tensors[count++] = (gd_layer_tensor){ GD_LAYER_TENSOR, .suffix = "running_mean",
                                              .shape = shape, .is_buffer = true };
        tensors[count++] = (gd_layer_tensor){ GD_LAYER_TENSOR, .suffix = "running_var",
                                              .shape = shape, .value = 1.0, .is_buffer = true };
    }
    if (wanted.weight)
        tensors[count++] = (gd_layer_tensor){ GD_LAYER_TENSOR, .suffix = "weight", .shape = shape,
                                              .init = GD_INIT_ONES };
    if (wanted.weight && wanted.bias)
        tensors[count++] = (gd_layer_tensor){ GD_LAYER_TENSOR, .suffix = "bias", .shape = shape,
                                              .init = GD_INIT_ZEROS };
    return gd_layer_use(m, who, name, type, tensors, count);
}

/* The last axes of x, which are normalised together. */
static bool last_axes(const char *who, const char *name, const gd_tensor *x, int axes,
                      gd_shape *shape)
{
    gd_shape all = gd_tensor_shape(x);
    if (axes < 1 || axes > all.rank) {
        (void)gd_fail(GD_ERR_SHAPE, "%s: \"%s\" normalises %d axes of an input with %d", who,
                      name ? name : "", axes, all.rank);
        return false;
    }
    *shape = (gd_shape){ .rank = axes };
    for (int i = 0; i < axes; i++)
        shape->dim[i] = all.dim[all.rank - axes + i];
    return true;
}

gd_tensor *gd_nn_layer_norm_with(gd_module *m, const char *name, gd_tensor *x,
                                 const gd_nn_layer_norm_options *options)
{
    static const char who[] = "gd_nn_layer_norm";
    gd_nn_layer_norm_options o = { GD_NN_LAYER_NORM_DEFAULTS };
    gd_shape shape;
    if (!m || !x || !gd_options_read(who, &o, sizeof o, options) ||
        !(x = gd_layer_input(m, who, name, x, 1)) || !last_axes(who, name, x, o.axes, &shape))
        return NULL;
    parts_wanted wanted = { .weight = o.affine, .bias = o.bias };
    gd_module_layer *layer = use(m, who, name, "layer_norm", shape, wanted);
    if (!layer)
        return NULL;
    return gd_layer_done(layer, gd_layer_norm(x, layer->parameter[0], layer->parameter[1],
                                              .axes = o.axes, .epsilon = o.epsilon));
}

gd_tensor *gd_nn_rms_norm_with(gd_module *m, const char *name, gd_tensor *x,
                               const gd_nn_rms_norm_options *options)
{
    static const char who[] = "gd_nn_rms_norm";
    gd_nn_rms_norm_options o = { GD_NN_RMS_NORM_DEFAULTS };
    gd_shape shape;
    if (!m || !x || !gd_options_read(who, &o, sizeof o, options) ||
        !(x = gd_layer_input(m, who, name, x, 1)) || !last_axes(who, name, x, o.axes, &shape))
        return NULL;
    parts_wanted wanted = { .weight = o.affine };
    gd_module_layer *layer = use(m, who, name, "rms_norm", shape, wanted);
    if (!layer)
        return NULL;
    return gd_layer_done(layer,
                         gd_rms_norm(x, layer->parameter[0], .axes = o.axes, .epsilon = o.epsilon));
}

static gd_module_layer *use_channels(gd_module *m, const char *who, const char *name,
                                     const gd_tensor *x, const char *type, parts_wanted wanted)
{
    return use(m, who, name, type, GD_SHAPE(gd_tensor_shape(x).dim[1]), wanted);
}

gd_tensor *gd_nn_group_norm_with(gd_module *m, const char *name, gd_tensor *x, int64_t groups,
                                 const gd_nn_group_norm_options *options)
{
    static const char who[] = "gd_nn_group_norm";
    gd_nn_group_norm_options o = { GD_NN_GROUP_NORM_DEFAULTS };
    if (!m || !x || !gd_options_read(who, &o, sizeof o, options) ||
        !(x = gd_layer_input(m, who, name, x, 2)))
        return NULL;
    if (groups < 1)
        return gd_fail_null(GD_ERR_INVALID, "%s: \"%s\" has %lld groups; at least 1 is needed", who,
                            name ? name : "", (long long)groups);
    parts_wanted wanted = { .weight = o.affine, .bias = o.bias };
    gd_module_layer *layer = use_channels(m, who, name, x, "group_norm", wanted);
    if (!layer)
        return NULL;
    return gd_layer_done(layer, gd_group_norm(x, layer->parameter[0], layer->parameter[1], groups,
                                              .epsilon = o.epsilon));
}

gd_tensor *gd_nn_instance_norm_with(gd_module *m, const char *name, gd_tensor *x,
                                    const gd_nn_instance_norm_options *options)
{
    static const char who[] = "gd_nn_instance_norm";
    gd_nn_instance_norm_options o = { GD_NN_INSTANCE_NORM_DEFAULTS };
    if (!m || !x || !gd_options_read(who, &o, sizeof o, options) ||
        !(x = gd_layer_input(m, who, name, x, 2)))
        return NULL;
    parts_wanted wanted = { .weight = o.affine, .bias = o.bias };
    gd_module_layer *layer = use_channels(m, who, name, x, "instance_norm", wanted);
    if (!layer)
        return NULL;
    return gd_layer_done(
        layer, gd_instance_norm(x, layer->parameter[0], layer->parameter[1], .epsilon = o.epsilon));
}

gd_tensor *gd_nn_batch_norm_with(gd_module *m, const char *name, gd_tensor *x,
                                 const gd_nn_batch_norm_options *options)
{
    static const char who[] = "gd_nn_batch_norm";
    gd_nn_batch_norm_options o = { GD_NN_BATCH_NORM_DEFAULTS };
    if (!m || !x || !gd_options_read(who, &o, sizeof o, options) ||
        !(x = gd_layer_input(m, who, name, x, 2)))
        return NULL;
    parts_wanted wanted = { .weight = o.affine, .bias = o.bias, .statistics = true };
    gd_module_layer *layer = use_channels(m, who, name, x, "batch_norm", wanted);
    if (!layer)
        return NULL;
    gd_tensor *const *p = layer->parameter;
    return gd_layer_done(layer, gd_batch_norm(x, p[2], p[3], p[0], p[1],
                                              .training = gd_module_is_training(m),
                                              .momentum = o.momentum, .epsilon = o.epsilon));
}
