/* nn/summary.c: the table of a module's layers. Start at gd_module_summary(). */
#include "nn/model.h"
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

/* One row: of a layer, or of a parameter that belongs to none, as those a program makes itself. */
typedef struct row {
    const char *name;
    char type[64], shape[GD_NN_SHAPE_TEXT];
    int64_t numbers;
} row;

/* Number i of the layers and, behind them, of the parameters; false: that has no row of its own. */
static bool read_row(const gd_module *m, size_t i, row *r)
{
    if (i < m->layer_count) {
        const gd_module_layer *layer = &m->layers[i];
        r->name = layer->name;
        r->numbers = layer->numbers;
        type_text(layer, r->type, sizeof r->type);
        gd_nn_shape_text(layer->output, r->shape);
        return true;
    }
    const gd_module_entry *entry = &m->entries[i - m->layer_count];
    if (!entry->parameter)
        return false;
    for (size_t k = 0; k < m->layer_count; k++)
        if (gd_is_below(entry->path, m->layers[k].name))
            return false;
    r->name = entry->path;
    r->numbers = gd_tensor_count(entry->tensor);
    snprintf(r->type, sizeof r->type, "parameter");
    gd_nn_shape_text(gd_tensor_shape(entry->tensor), r->shape);
    return true;
}

size_t gd_module_summary(const gd_module *m, char *out, size_t size)
{
    gd_text t = { out, size, 0 };
    if (size)
        out[0] = '\0';
    if (!m)
        return 0;
    row r;
    char count[COUNT_TEXT];
    int name_width = 5, type_width = 4, shape_width = 12;
    const size_t rows = m->layer_count + m->entry_count;
    for (size_t i = 0; i < rows; i++) {
        if (!read_row(m, i, &r))
            continue;
        widen(&name_width, r.name);
        widen(&type_width, r.type);
        widen(&shape_width, r.shape);
    }
    gd_text_add(&t, "%-*s  %-*s  %-*s  %10s\n", name_width, "layer", type_width, "type",
                shape_width, "output shape", "parameters");
    for (size_t i = 0; i < rows; i++)
        if (read_row(m, i, &r))
            gd_text_add(&t, "%-*s  %-*s  %-*s  %10s\n", name_width, r.name, type_width, r.type,
                        shape_width, r.shape, count_text(r.numbers, count));
    gd_text_add(&t, "%-*s  %-*s  %-*s  %10s\n", name_width, "total", type_width, "", shape_width,
                "", count_text(gd_module_parameter_count(m), count));
    return t.length;
}
