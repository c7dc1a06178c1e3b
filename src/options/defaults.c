/* options/defaults.c: the defaults of every struct of options by its name, for languages that have
 * neither the headers' macros nor their initializers. It stands above all other folders, since it
 * sees all public headers. To add a struct: a row in images[]; tools/check-options names what is
 * missing. */
#include "base/error.h"

#include <gradus/gradus.h>

#include <string.h>

typedef struct image {
    const char *type;
    const void *defaults;
    size_t size;
} image;

#define IMAGE(type, ...)                                  \
    {                                                     \
#type, &(const type){ __VA_ARGS__ }, sizeof(type) \
    }

static const image images[] = {
    IMAGE(gd_adadelta_options, GD_ADADELTA_DEFAULTS),
    IMAGE(gd_adagrad_options, GD_ADAGRAD_DEFAULTS),
    IMAGE(gd_adam_options, GD_ADAM_DEFAULTS),
    IMAGE(gd_adamw_options, GD_ADAMW_DEFAULTS),
    IMAGE(gd_ema_options, GD_EMA_DEFAULTS),
    IMAGE(gd_lamb_options, GD_LAMB_DEFAULTS),
    IMAGE(gd_lbfgs_options, GD_LBFGS_DEFAULTS),
    IMAGE(gd_lion_options, GD_LION_DEFAULTS),
    IMAGE(gd_module_options, GD_MODULE_DEFAULTS),
    IMAGE(gd_nadam_options, GD_NADAM_DEFAULTS),
    IMAGE(gd_nn_linear_options, GD_NN_LINEAR_DEFAULTS),
    IMAGE(gd_optimizer_group_options, GD_OPTIMIZER_GROUP_DEFAULTS),
    IMAGE(gd_optimizer_options, GD_OPTIMIZER_DEFAULTS),
    IMAGE(gd_parameter_options, GD_PARAMETER_DEFAULTS),
    IMAGE(gd_radam_options, GD_RADAM_DEFAULTS),
    IMAGE(gd_rmsprop_options, GD_RMSPROP_DEFAULTS),
    IMAGE(gd_sgd_options, GD_SGD_DEFAULTS),
};

gd_status gd_options_default(const char *type, void *options, size_t size)
{
    if (!type || !options || size < sizeof size)
        return gd_fail(GD_ERR_INVALID,
                       "gd_options_default: %s; a struct's name, its address and its size are "
                       "needed",
                       type && options ? "a size less than that of a size_t" : "a NULL");
    for (size_t i = 0; i < sizeof images / sizeof *images; i++) {
        if (strcmp(images[i].type, type) != 0)
            continue;
        memset(options, 0, size);
        memcpy(options, images[i].defaults, size < images[i].size ? size : images[i].size);
        memcpy(options, &size, sizeof size);
        return GD_OK;
    }
    return gd_fail(GD_ERR_INVALID, "gd_options_default: there are no options \"%s\"", type);
}
