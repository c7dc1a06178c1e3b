/* nn/layer.c: finding or making a layer's parameters. Start at gd_layer_use(). */
#include "nn/layer.h"

#include "base/error.h"
#include "base/memory.h"

#include <gradus/ops.h>

#include <string.h>

static gd_tensor *make_tensor(gd_module *m, const char *name, const gd_layer_tensor *tensor)
{
    char *path = gd_module_join(name, tensor->suffix);
    if (!path)
        return NULL;
    gd_tensor *t = tensor->is_buffer
                       ? gd_buffer(m, path, tensor->shape, tensor->value,
                                   tensor->dtype ? *tensor->dtype : m->dtype)
                       : gd_parameter(m, path, tensor->shape, .init = tensor->init,
                                      .init_scale = tensor->init_scale, .fan_in = tensor->fan_in,
                                      .fan_out = tensor->fan_out);
    gd_free(path);
    return t;
}

/* All tensors first, so that a failure leaves no layer behind. */
static gd_module_layer *make(gd_module *m, const char *name, const char *type,
                             const gd_layer_tensor *tensors, int count)
{
    gd_tensor *made[GD_LAYER_MAX_PARAMETERS];
    int64_t numbers = 0;
    for (int i = 0; i < count; i++) {
        made[i] = make_tensor(m, name, &tensors[i]);
        if (!made[i])
            return NULL;
        numbers += tensors[i].is_buffer ? 0 : gd_tensor_count(made[i]);
    }
    gd_module_layer *layer = gd_module_layer_add(m, name, type);
    if (!layer)
        return NULL;
    for (int i = 0; i < count; i++)
        layer->parameter[i] = made[i];
    layer->numbers = numbers;
    return layer;
}

static bool same_shape(gd_shape a, gd_shape b)
{
    return a.rank == b.rank && memcmp(a.dim, b.dim, sizeof(int64_t) * (size_t)a.rank) == 0;
}

/* A later use must fit the first. */
static bool fits(const gd_module_layer *layer, const char *who, const char *type,
                 const gd_layer_tensor *tensors, int count)
{
    if (strcmp(layer->type, type) != 0) {
        (void)gd_fail(GD_ERR_INVALID, "%s: \"%s\" is a layer of type %s already", who, layer->name,
                      layer->type);
        return false;
    }
    for (int i = 0; i < count; i++) {
        char a[GD_NN_SHAPE_TEXT], b[GD_NN_SHAPE_TEXT];
        if (!layer->parameter[i]) {
            (void)gd_fail(GD_ERR_SHAPE, "%s: \"%s\" was made without a %s, here it has one", who,
                          layer->name, tensors[i].suffix);
            return false;
        }
        gd_shape has = gd_tensor_shape(layer->parameter[i]);
        if (!same_shape(has, tensors[i].shape)) {
            (void)gd_fail(GD_ERR_SHAPE,
                          "%s: \"%s.%s\" is %s, but this input and these options need %s", who,
                          layer->name, tensors[i].suffix, gd_nn_shape_text(has, a),
                          gd_nn_shape_text(tensors[i].shape, b));
            return false;
        }
    }
    if (count < GD_LAYER_MAX_PARAMETERS && layer->parameter[count]) {
        (void)gd_fail(GD_ERR_SHAPE,
                      "%s: \"%s\" was made with more parameters than these options need", who,
                      layer->name);
        return false;
    }
    return true;
}

gd_module_layer *gd_layer_use(gd_module *m, const char *who, const char *name, const char *type,
                              const gd_layer_tensor *tensors, int count)
{
    if (!name || !*name)
        return gd_fail_null(GD_ERR_INVALID, "%s: the name is empty", who);
    gd_module_layer *layer = gd_module_layer_find(m, name);
    if (!layer)
        return make(m, name, type, tensors, count);
    return fits(layer, who, type, tensors, count) ? layer : NULL;
}

gd_tensor *gd_layer_done(gd_module_layer *layer, gd_tensor *y)
{
    if (layer && y)
        layer->output = gd_tensor_shape(y);
    return y;
}

gd_tensor *gd_layer_input(const gd_module *m, const char *who, const char *name, gd_tensor *x,
                          int least)
{
    char text[GD_NN_SHAPE_TEXT];
    gd_shape shape = gd_tensor_shape(x);
    gd_dtype dtype = gd_tensor_dtype(x);
    name = name ? name : "";
    if (!gd_dtype_is_float(dtype))
        return gd_fail_null(GD_ERR_DTYPE, "%s: the input of \"%s\" is %s; floats are needed", who,
                            name, gd_dtype_name(dtype));
    if (gd_dtype_promote(dtype, m->dtype) != m->dtype)
        return gd_fail_null(GD_ERR_DTYPE,
                            "%s: the input of \"%s\" is %s, the parameters of its module are %s: "
                            "cast the input, or make the module of %s",
                            who, name, gd_dtype_name(dtype), gd_dtype_name(m->dtype),
                            gd_dtype_name(gd_dtype_promote(dtype, m->dtype)));
    if (shape.rank < least)
        return gd_fail_null(GD_ERR_SHAPE,
                            "%s: the input of \"%s\" is %s; %d axes or more are needed", who, name,
                            gd_nn_shape_text(shape, text), least);
    return gd_cast(x, m->dtype);
}
