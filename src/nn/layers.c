/* nn/layers.c: dropout, DropConnect, PReLU, embedding. Convolutions are in nn/conv_layers.c,
 * normalisation in nn/norm_layers.c, the linear layer in nn/linear.c. */
#include "nn/layer.h"

#include "base/error.h"

#include <gradus/layers.h>
#include <gradus/ops.h>

static bool check_dropout(const char *who, const char *name, double dropout)
{
    if (dropout >= 0.0 && dropout < 1.0)
        return true;
    (void)gd_fail(GD_ERR_INVALID,
                  "%s: the probability of \"%s\" is %g; it must be at least 0 and below 1", who,
                  name ? name : "", dropout);
    return false;
}

gd_tensor *gd_nn_dropout(gd_module *m, const char *name, gd_tensor *x, double dropout)
{
    if (!m || !x || !check_dropout("gd_nn_dropout", name, dropout))
        return NULL;
    gd_module_layer *layer = gd_layer_use(m, "gd_nn_dropout", name, "dropout", NULL, 0);
    if (!layer)
        return NULL;
    return gd_layer_done(layer,
                         gd_module_is_training(m) && dropout > 0.0 ? gd_dropout(x, dropout) : x);
}

gd_tensor *gd_nn_drop_connect(gd_module *m, const char *name, gd_tensor *x, int64_t units,
                              double dropout)
{
    static const char who[] = "gd_nn_drop_connect";
    if (!m || !x || !check_dropout(who, name, dropout) || !(x = gd_layer_input(m, who, name, x, 1)))
        return NULL;
    if (units < 1)
        return gd_fail_null(GD_ERR_INVALID, "%s: \"%s\" has %lld units; at least 1 is needed", who,
                            name ? name : "", (long long)units);
    gd_shape shape = gd_tensor_shape(x);
    gd_layer_tensor tensors[2] = { { GD_LAYER_TENSOR, .suffix = "weight",
                                     .shape = GD_SHAPE(shape.dim[shape.rank - 1], units) },
                                   { GD_LAYER_TENSOR, .suffix = "bias", .shape = GD_SHAPE(units),
                                     .init = GD_INIT_ZEROS } };
    gd_module_layer *layer = gd_layer_use(m, who, name, "drop_connect", tensors, 2);
    if (!layer)
        return NULL;
    gd_tensor *weight = layer->parameter[0];
    if (gd_module_is_training(m) && dropout > 0.0)
        weight = gd_dropout(weight, dropout);
    return gd_layer_done(layer, gd_linear(x, weight, layer->parameter[1]));
}

gd_tensor *gd_nn_prelu(gd_module *m, const char *name, gd_tensor *x, bool per_channel)
{
    static const char who[] = "gd_nn_prelu";
    if (!m || !x || !(x = gd_layer_input(m, who, name, x, per_channel ? 2 : 0)))
        return NULL;
    gd_shape shape = gd_tensor_shape(x);
    gd_layer_tensor tensor = { GD_LAYER_TENSOR, .suffix = "slope",
                               .shape = GD_SHAPE(per_channel ? shape.dim[1] : 1),
                               .init = GD_INIT_CONSTANT, .init_scale = 0.25 };
    gd_module_layer *layer = gd_layer_use(m, who, name, "prelu", &tensor, 1);
    if (!layer)
        return NULL;
    gd_shape over = { .rank = per_channel ? shape.rank - 1 : 1,
                      .dim = { tensor.shape.dim[0], 1, 1, 1, 1, 1, 1 } };
    return gd_layer_done(layer, gd_prelu(x, gd_reshape(layer->parameter[0], over)));
}

gd_tensor *gd_nn_embedding(gd_module *m, const char *name, gd_tensor *index, int64_t vocabulary,
                           int64_t units)
{
    static const char who[] = "gd_nn_embedding";
    if (!m || !index)
        return NULL;
    if (vocabulary < 1 || units < 1)
        return gd_fail_null(GD_ERR_INVALID,
                            "%s: \"%s\" has %lld rows of %lld numbers; at least 1 is needed", who,
                            name ? name : "", (long long)vocabulary, (long long)units);
    gd_layer_tensor tensor = { GD_LAYER_TENSOR, .suffix = "weight",
                               .shape = GD_SHAPE(vocabulary, units), .init = GD_INIT_NORMAL,
                               .init_scale = 1.0 };
    gd_module_layer *layer = gd_layer_use(m, who, name, "embedding", &tensor, 1);
    return layer ? gd_layer_done(layer, gd_embedding(index, layer->parameter[0])) : NULL;
}
