/* nn/conv_layers.c: convolutions and transposed convolutions as layers. */
#include "nn/layer.h"

#include "base/error.h"
#include "base/options.h"

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

/* One use of a layer, with its options read. */
typedef struct convolution {
    const kind *kind;
    gd_module *module;
    const char *name;
    gd_tensor *x;
    int axes;
    int64_t channels;
    gd_shape kernel;
    gd_nn_conv_options o;
} convolution;

static bool check_kernel(const convolution *c, const char *who)
{
    const char *name = c->name ? c->name : "";
    if (c->kernel.rank != 1 && c->kernel.rank != c->axes) {
        (void)gd_fail(GD_ERR_INVALID,
                      "%s: the kernel of \"%s\" has %d sizes; one, or one for each of %d axes, are "
                      "needed",
                      who, name, c->kernel.rank, c->axes);
        return false;
    }
    for (int i = 0; i < c->kernel.rank; i++)
        if (c->kernel.dim[i] < 1 || c->kernel.dim[i] > INT64_C(1) << 20) {
            (void)gd_fail(GD_ERR_INVALID, "%s: the kernel of \"%s\" is %lld, it must be at least 1",
                          who, name, (long long)c->kernel.dim[i]);
            return false;
        }
    return true;
}

/* Sizes that the weight depends on. */
static bool check(const convolution *c, const char *who)
{
    const char *name = c->name ? c->name : "";
    gd_shape x = gd_tensor_shape(c->x);
    int64_t groups = c->o.groups;
    char text[GD_NN_SHAPE_TEXT];
    if (x.rank != c->axes + 2)
        (void)gd_fail(
            GD_ERR_SHAPE,
            "%s: the input of \"%s\" is %s; [batch, channels] and %d more axes are needed", who,
            name, gd_nn_shape_text(x, text), c->axes);
    else if (c->channels < 1 || groups < 1 || c->channels > INT64_C(1) << 31)
        (void)gd_fail(GD_ERR_INVALID,
                      "%s: \"%s\" has %lld channels and %lld groups; both must be at least 1", who,
                      name, (long long)c->channels, (long long)groups);
    else if (x.dim[1] % groups || c->channels % groups)
        (void)gd_fail(GD_ERR_SHAPE,
                      "%s: \"%s\" takes %lld channels to %lld: %lld groups do not divide both", who,
                      name, (long long)x.dim[1], (long long)c->channels, (long long)groups);
    else
        return check_kernel(c, who);
    return false;
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

/* The layer with its weight and, if it has one, its bias. */
static gd_module_layer *use(const convolution *c, const char *who)
{
    gd_shape x = gd_tensor_shape(c->x), weight = { .rank = c->axes + 2 };
    int64_t groups = c->o.groups;
    weight.dim[0] = c->kind->transposed ? x.dim[1] : c->channels;
    weight.dim[1] = (c->kind->transposed ? c->channels : x.dim[1]) / groups;
    for (int i = 0; i < c->axes; i++)
        weight.dim[2 + i] = c->kernel.dim[c->kernel.rank == 1 ? 0 : i];
    int64_t elements = count_elements(weight);
    char text[GD_NN_SHAPE_TEXT];
    if (elements < 0)
        return gd_fail_null(GD_ERR_SHAPE, "%s: the weight of \"%s\" would be %s", who,
                            c->name ? c->name : "", gd_nn_shape_text(weight, text));
    gd_layer_tensor tensors[2] = { { .suffix = "weight",
                                     .shape = weight,
                                     .init = c->o.init,
                                     .init_scale = c->o.init_scale,
                                     .fan_in = x.dim[1] / groups * elements,
                                     .fan_out = c->channels / groups * elements },
                                   { GD_LAYER_TENSOR, .suffix = "bias",
                                     .shape = GD_SHAPE(c->channels), .init = GD_INIT_ZEROS } };
    return gd_layer_use(c->module, who, c->name, c->kind->type[c->axes - 1], tensors,
                        c->o.bias ? 2 : 1);
}

static gd_tensor *run(const convolution *c, const gd_module_layer *layer)
{
    gd_conv_options o = { GD_CONV_DEFAULTS,
                          .stride = c->o.stride,
                          .padding = c->o.padding,
                          .padding_before = c->o.padding_before,
                          .padding_after = c->o.padding_after,
                          .dilation = c->o.dilation,
                          .groups = c->o.groups,
                          .same = c->o.same,
                          .output_padding = c->o.output_padding };
    gd_tensor *const *p = layer->parameter;
    return c->kind->transposed ? gd_conv_transpose_with(c->x, p[0], p[1], c->axes, &o)
                               : gd_conv_with(c->x, p[0], p[1], c->axes, &o);
}

static gd_tensor *convolve(convolution c, const gd_nn_conv_options *options)
{
    if (!c.module || !c.x)
        return NULL;
    if (c.axes < 1 || c.axes > 3)
        return gd_fail_null(GD_ERR_INVALID, "gd_nn_conv_with: %d spatial axes, 1 to 3 are possible",
                            c.axes);
    const char *who = c.kind->who[c.axes - 1];
    c.o = (gd_nn_conv_options){ GD_NN_CONV_DEFAULTS };
    if (!gd_options_read(who, &c.o, sizeof c.o, options))
        return NULL;
    c.x = gd_layer_input(c.module, who, c.name, c.x, 1);
    if (!c.x || !check(&c, who))
        return NULL;
    gd_module_layer *layer = use(&c, who);
    return layer ? gd_layer_done(layer, run(&c, layer)) : NULL;
}

gd_tensor *gd_nn_conv_with(gd_module *m, const char *name, gd_tensor *x, int axes, int64_t channels,
                           gd_shape kernel, const gd_nn_conv_options *options)
{
    convolution c = { .kind = &plain,
                      .module = m,
                      .name = name,
                      .x = x,
                      .axes = axes,
                      .channels = channels,
                      .kernel = kernel };
    return convolve(c, options);
}

gd_tensor *gd_nn_conv_transpose_with(gd_module *m, const char *name, gd_tensor *x, int axes,
                                     int64_t channels, gd_shape kernel,
                                     const gd_nn_conv_options *options)
{
    convolution c = { .kind = &transposed,
                      .module = m,
                      .name = name,
                      .x = x,
                      .axes = axes,
                      .channels = channels,
                      .kernel = kernel };
    return convolve(c, options);
}
