/* src/nn/model_networks.c: ready-made networks as builders of models: perceptrons and convolutional
 * networks. They use nothing that is not public. */
#include "base/error.h"
#include "base/options.h"

#include <gradus/model.h>

#include <stdio.h>

enum { MAX_NAME = 24 };

/* A builder that has `input`, or NULL after an error: sizes below 1 among the `count` of `sizes`, and
 * of results, are refused here with the names that the caller gives them. */
static gd_model_builder *begin(gd_context *context, const char *who, gd_shape input, int count,
                               const int64_t *sizes, const char *what, int64_t results,
                               const gd_model_options *options)
{
    gd_model_options o = { GD_MODEL_DEFAULTS };
    if (!context || !gd_options_read(who, &o, sizeof o, options))
        return NULL;
    if (count < 0 || (count && !sizes))
        return gd_fail_null(GD_ERR_INVALID, "%s: there are %d %s", who, sizes ? count : 0, what);
    for (int i = 0; i < count; i++)
        if (sizes[i] < 1)
            return gd_fail_null(GD_ERR_INVALID, "%s: %s[%d] is %lld, at least 1 is needed", who,
                                what, i, (long long)sizes[i]);
    if (results < 1)
        return gd_fail_null(GD_ERR_INVALID, "%s: %lld results, at least 1 is needed", who,
                            (long long)results);
    return gd_model_begin_with(context, input, &o);
}

gd_model_builder *gd_model_begin_mlp_with(gd_context *context, int64_t inputs, int count,
                                          const int64_t *widths, int64_t outputs,
                                          const gd_model_options *options)
{
    gd_model_builder *b = begin(context, "gd_model_begin_mlp", GD_SHAPE(inputs), count, widths,
                                "widths", outputs, options);
    for (int i = 0; b && i < count; i++) {
        char name[MAX_NAME];
        snprintf(name, sizeof name, "fc%d", i + 1);
        (void)gd_model_add(b, name, "linear", .units = widths[i], .activation = "relu");
    }
    if (b) /* errors of both are gd_model_end's */
        (void)gd_model_add(b, "out", "linear", .units = outputs);
    return b;
}

gd_model_builder *gd_model_begin_cnn_with(gd_context *context, gd_shape input, int count,
                                          const int64_t *channels, int64_t classes,
                                          const gd_model_options *options)
{
    static const char *const convolutions[] = { "conv1d", "conv2d", "conv3d" }, *const pools[] = {
        "max_pool1d", "max_pool2d", "max_pool3d"
    };
    const int axes = input.rank - 1;
    if (axes < 1 || axes > 3)
        return gd_fail(GD_ERR_SHAPE,
                       "gd_model_begin_cnn: the input has %d axes; channels and 1 to 3 are needed",
                       input.rank),
               NULL;
    gd_model_builder *b =
        begin(context, "gd_model_begin_cnn", input, count, channels, "channels", classes, options);
    for (int i = 0; b && i < count; i++) {
        char name[MAX_NAME];
        bool halves = true;
        for (int a = 1; a <= axes; a++)
            halves = halves && input.dim[a] >> i >= 2;
        snprintf(name, sizeof name, "conv%d", i + 1);
        (void)gd_model_add(b, name, convolutions[axes - 1], .channels = channels[i],
                           .kernel = GD_SHAPE(3), .same = true, .activation = "relu");
        snprintf(name, sizeof name, "pool%d", i + 1);
        if (halves)
            (void)gd_model_add(b, name, pools[axes - 1], .kernel = GD_SHAPE(2));
    }
    if (b)
        (void)gd_model_add(b, "out", "linear", .units = classes);
    return b;
}
