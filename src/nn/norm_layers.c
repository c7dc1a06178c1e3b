/* nn/norm_layers.c: normalisation as layers. */
#include "nn/layer.h"

#include "base/error.h"

#include <gradus/layers.h>
#include <gradus/norm.h>

static double epsilon_of(const gd_nn_norm_options *o)
{
    return o->epsilon != 0.0 ? o->epsilon : 1e-5;
}

/* The layer with its weight, its bias and, behind them, `buffers` more parts. */
static gd_module_layer *use(const gd_nn_norm_options *o, const char *who, const char *type,
                            gd_shape shape, bool bias, bool statistics)
{
    gd_layer_part parts[GD_LAYER_MAX_PARAMETERS];
    int count = 0;
    if (statistics) {
        parts[count++] = (gd_layer_part){ GD_LAYER_PART, .suffix = "running_mean", .shape = shape,
                                          .is_buffer = true };
        parts[count++] = (gd_layer_part){ GD_LAYER_PART, .suffix = "running_var", .shape = shape,
                                          .value = 1.0, .is_buffer = true };
    }
    if (!o->no_affine)
        parts[count++] = (gd_layer_part){ GD_LAYER_PART, .suffix = "weight", .shape = shape,
                                          .init = GD_INIT_ONES };
    if (!o->no_affine && bias && !o->no_bias)
        parts[count++] = (gd_layer_part){ GD_LAYER_PART, .suffix = "bias", .shape = shape,
                                          .init = GD_INIT_ZEROS };
    return gd_layer_use(o->module, who, o->name, type, parts, count);
}

/* The last axes of x, which are normalised together. */
static bool last_axes(gd_nn_norm_options *o, const char *who, gd_shape *shape)
{
    gd_shape x = gd_tensor_shape(o->x);
    int axes = o->axes ? o->axes : 1;
    o->x = gd_layer_input(o->module, who, o->name, o->x, 1);
    if (!o->x)
        return false;
    if (axes < 1 || axes > x.rank) {
        (void)gd_fail(GD_ERR_SHAPE, "%s: \"%s\" normalises %d axes of an input with %d", who,
                      o->name ? o->name : "", axes, x.rank);
        return false;
    }
    *shape = (gd_shape){ .rank = axes };
    for (int i = 0; i < axes; i++)
        shape->dim[i] = x.dim[x.rank - axes + i];
    return true;
}

gd_tensor *gd_nn_layer_norm_with(gd_nn_norm_options o)
{
    gd_shape shape;
    if (!o.module || !o.x || !last_axes(&o, "gd_nn_layer_norm", &shape))
        return NULL;
    gd_module_layer *layer = use(&o, "gd_nn_layer_norm", "layer_norm", shape, true, false);
    if (!layer)
        return NULL;
    return gd_layer_done(layer,
                         gd_layer_norm(o.x, layer->parameter[0], layer->parameter[1],
                                       .axes = o.axes ? o.axes : 1, .epsilon = epsilon_of(&o)));
}

gd_tensor *gd_nn_rms_norm_with(gd_nn_norm_options o)
{
    gd_shape shape;
    if (!o.module || !o.x || !last_axes(&o, "gd_nn_rms_norm", &shape))
        return NULL;
    gd_module_layer *layer = use(&o, "gd_nn_rms_norm", "rms_norm", shape, false, false);
    if (!layer)
        return NULL;
    return gd_layer_done(layer, gd_rms_norm(o.x, layer->parameter[0], .axes = o.axes ? o.axes : 1,
                                            .epsilon = epsilon_of(&o)));
}

static gd_module_layer *use_channels(gd_nn_norm_options *o, const char *who, const char *type,
                                     bool statistics)
{
    if (!o->module || !o->x || !(o->x = gd_layer_input(o->module, who, o->name, o->x, 2)))
        return NULL;
    return use(o, who, type, GD_SHAPE(gd_tensor_shape(o->x).dim[1]), true, statistics);
}

gd_tensor *gd_nn_group_norm_with(gd_nn_norm_options o)
{
    if (o.module && o.x && o.groups < 1)
        return gd_fail_null(GD_ERR_INVALID,
                            "gd_nn_group_norm: \"%s\" has %lld groups; at least 1 is needed",
                            o.name ? o.name : "", (long long)o.groups);
    gd_module_layer *layer = use_channels(&o, "gd_nn_group_norm", "group_norm", false);
    if (!layer)
        return NULL;
    return gd_layer_done(layer, gd_group_norm(o.x, layer->parameter[0], layer->parameter[1],
                                              o.groups, .epsilon = epsilon_of(&o)));
}

gd_tensor *gd_nn_instance_norm_with(gd_nn_norm_options o)
{
    gd_module_layer *layer = use_channels(&o, "gd_nn_instance_norm", "instance_norm", false);
    if (!layer)
        return NULL;
    return gd_layer_done(layer, gd_instance_norm(o.x, layer->parameter[0], layer->parameter[1],
                                                 .epsilon = epsilon_of(&o)));
}

gd_tensor *gd_nn_batch_norm_with(gd_nn_norm_options o)
{
    gd_module_layer *layer = use_channels(&o, "gd_nn_batch_norm", "batch_norm", true);
    if (!layer)
        return NULL;
    gd_tensor *const *p = layer->parameter;
    return gd_layer_done(layer, gd_batch_norm(o.x, p[2], p[3], p[0], p[1],
                                              .training = gd_module_is_training(o.module),
                                              .momentum = o.momentum != 0.0 ? o.momentum : 0.1,
                                              .epsilon = epsilon_of(&o)));
}
