/* nn/conv_layers.c: convolutions and transposed convolutions as layers. */
#include "nn/layer.h"

#include "base/error.h"

#include <gradus/conv.h>
#include <gradus/layers.h>

typedef struct kind {
    const char *type[3], *who[3]; /* by the number of spatial axes, less one */
    bool transposed;
} kind;

static const kind plain = { { "conv1d", "conv2d", "conv3d" },
                            { "gd_nn_conv1d", "gd_nn_conv2d", "gd_nn_conv3d" },
                            false };
static const kind transposed = { { "conv_transpose1d", "conv_transpose2d", "conv_transpose3d" },
                                 { "gd_nn_conv_transpose1d", "gd_nn_conv_transpose2d",
                                   "gd_nn_conv_transpose3d" },
                                 true };

/* Sizes that the weight depends on. */
static bool check(const gd_nn_conv_options *o, int axes, const char *who, gd_shape x)
{
    const char *name = o->name ? o->name : "";
    int64_t groups = o->groups ? o->groups : 1;
    char text[GD_NN_SHAPE_TEXT];
    if (x.rank != axes + 2) {
        (void)gd_fail(
            GD_ERR_SHAPE,
            "%s: the input of \"%s\" is %s; [batch, channels] and %d more axes are needed", who,
            name, gd_nn_shape_text(x, text), axes);
        return false;
    }
    if (o->channels < 1 || groups < 1 || o->channels > INT64_C(1) << 31) {
        (void)gd_fail(GD_ERR_INVALID,
                      "%s: \"%s\" has %lld channels and %lld groups; both must be at least 1", who,
                      name, (long long)o->channels, (long long)groups);
        return false;
    }
    if (x.dim[1] % groups || o->channels % groups) {
        (void)gd_fail(GD_ERR_SHAPE,
                      "%s: \"%s\" takes %lld channels to %lld: %lld groups do not divide both", who,
                      name, (long long)x.dim[1], (long long)o->channels, (long long)groups);
        return false;
    }
    for (int i = 0; i < axes; i++) {
        int64_t kernel = o->kernels[i] ? o->kernels[i] : o->kernel;
        if (kernel < 1 || kernel > INT64_C(1) << 20) {
            (void)gd_fail(GD_ERR_INVALID, "%s: the kernel of \"%s\" is %lld, it must be at least 1",
                          who, name, (long long)kernel);
            return false;
        }
    }
    return true;
}

/* Values of a filter for one channel. -1: the whole weight would exceed what memory can hold; where
 * it does not, no product of its sizes overflows. */
static int64_t count_elements(gd_shape weight)
{
    const int64_t most = INT64_C(1) << 46;
    int64_t all = 1, elements = 1;
    for (int i = 0; i < weight.rank; i++) {
        int64_t size = weight.dim[i] > 0 ? weight.dim[i] : 1;
        if (all > most / size)
            return -1;
        all *= size;
        elements *= i < 2 ? 1 : size;
    }
    return elements;
}

/* A number for each axis: the list's, or the one for all; in addition to it where `adds`. */
static gd_shape spread(int axes, const int64_t *list, int64_t all, bool adds)
{
    gd_shape s = { .rank = axes };
    for (int i = 0; i < axes; i++)
        s.dim[i] = adds ? all + list[i] : list[i] ? list[i] : all;
    return s;
}

static gd_tensor *convolve(const kind *k, int axes, gd_nn_conv_options o)
{
    if (!o.module || !o.x)
        return NULL;
    if (axes < 1 || axes > 3)
        return gd_fail_null(GD_ERR_INVALID, "gd_nn_conv_with: %d spatial axes, 1 to 3 are possible",
                            axes);
    const char *who = k->who[axes - 1];
    gd_shape x = gd_tensor_shape(o.x);
    o.x = gd_layer_input(o.module, who, o.name, o.x, 1);
    if (!o.x || !check(&o, axes, who, x))
        return NULL;
    int64_t groups = o.groups ? o.groups : 1;
    gd_shape weight = { .rank = axes + 2 };
    weight.dim[0] = k->transposed ? x.dim[1] : o.channels;
    weight.dim[1] = (k->transposed ? o.channels : x.dim[1]) / groups;
    for (int i = 0; i < axes; i++)
        weight.dim[2 + i] = o.kernels[i] ? o.kernels[i] : o.kernel;
    int64_t elements = count_elements(weight);
    char text[GD_NN_SHAPE_TEXT];
    if (elements < 0)
        return gd_fail_null(GD_ERR_SHAPE, "%s: the weight of \"%s\" would be %s", who,
                            o.name ? o.name : "", gd_nn_shape_text(weight, text));
    gd_layer_part parts[2] = {
        { GD_LAYER_PART, .suffix = "weight", .shape = weight, .init = o.init,
          .init_scale = o.init_scale != 0.0 ? o.init_scale : NAN,
          .fan_in = x.dim[1] / groups * elements, .fan_out = o.channels / groups * elements },
        { GD_LAYER_PART, .suffix = "bias", .shape = GD_SHAPE(o.channels), .init = GD_INIT_ZEROS }
    };
    gd_module_layer *layer =
        gd_layer_use(o.module, who, o.name, k->type[axes - 1], parts, o.no_bias ? 1 : 2);
    if (!layer)
        return NULL;
    gd_conv_options c = { GD_CONV_DEFAULTS, .groups = groups, .same = o.same };
    c.stride = spread(axes, o.strides, o.stride ? o.stride : 1, false);
    c.dilation = spread(axes, o.dilations, o.dilation ? o.dilation : 1, false);
    bool padded = o.pad != 0;
    for (int i = 0; i < axes; i++)
        padded = padded || o.before[i] || o.after[i];
    if (padded) {
        c.padding_before = spread(axes, o.before, o.pad, true);
        c.padding_after = spread(axes, o.after, o.pad, true);
    }
    gd_tensor *w = layer->parameter[0], *b = layer->parameter[1];
    if (!k->transposed)
        return gd_layer_done(layer, gd_conv_with(o.x, w, b, axes, &c));
    c.output_padding = spread(axes, o.output_pads, o.output_pad, true);
    return gd_layer_done(layer, gd_conv_transpose_with(o.x, w, b, axes, &c));
}

gd_tensor *gd_nn_conv_with(int axes, gd_nn_conv_options options)
{
    return convolve(&plain, axes, options);
}

gd_tensor *gd_nn_conv_transpose_with(int axes, gd_nn_conv_options options)
{
    return convolve(&transposed, axes, options);
}
