/* nn/summary.c: the table of a module's layers. Start at gd_module_summary(). */
#include "nn/module.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"

/* 12560 -> "12,560" */
#define COUNT_TEXT 32
static const char *count_text(int64_t count, char out[COUNT_TEXT])
{
    char digits[COUNT_TEXT];
    int length = snprintf(digits, sizeof digits, "%lld", (long long)count);
    size_t at = 0;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            out[at++] = ',';
        out[at++] = digits[i];
    }
    out[at] = '\0';
    return out;
}

static void type_text(const gd_module_layer *layer, char *out, size_t size)
{
    snprintf(out, size, "%s%s%s", layer->type, layer->activation ? " + " : "",
             layer->activation ? layer->activation : "");
}

static void widen(int *width, const char *cell)
{
    int length = (int)strlen(cell);
    if (length > *width)
        *width = length;
}

size_t gd_module_summary(const gd_module *m, char *out, size_t size)
{
    gd_text t = { out, size, 0 };
    if (size)
        out[0] = '\0';
    if (!m)
        return 0;
    char type[64], shape[GD_NN_SHAPE_TEXT], count[COUNT_TEXT];
    int name_width = 5, type_width = 4, shape_width = 12;
    for (size_t i = 0; i < m->layer_count; i++) {
        type_text(&m->layers[i], type, sizeof type);
        widen(&name_width, m->layers[i].name);
        widen(&type_width, type);
        widen(&shape_width, gd_nn_shape_text(m->layers[i].output, shape));
    }
    gd_text_add(&t, "%-*s  %-*s  %-*s  %10s\n", name_width, "layer", type_width, "type",
                shape_width, "output shape", "parameters");
    for (size_t i = 0; i < m->layer_count; i++) {
        const gd_module_layer *layer = &m->layers[i];
        type_text(layer, type, sizeof type);
        gd_text_add(&t, "%-*s  %-*s  %-*s  %10s\n", name_width, layer->name, type_width, type,
                    shape_width, gd_nn_shape_text(layer->output, shape),
                    count_text(layer->numbers, count));
    }
    gd_text_add(&t, "%-*s  %-*s  %-*s  %10s\n", name_width, "total", type_width, "", shape_width,
                "", count_text(gd_module_parameter_count(m), count));
    return t.length;
}
