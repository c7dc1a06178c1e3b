/* graph/inspect.c: looking at a graph from a program: a tensor's op, attribute, name and inputs, and
 * the order of what is behind it. As text: graph/print.c. */
#include "graph/autograd.h"
#include "graph/node.h"

#include <gradus/autograd.h>

#include "base/error.h"
#include "base/text.h"

const char *gd_tensor_name(const gd_tensor *t)
{
    return gd_usable(t, "gd_tensor_name") && t->name ? t->name : "";
}

const char *gd_tensor_op(const gd_tensor *t)
{
    return gd_usable(t, "gd_tensor_op") && t->op ? t->op->name : "";
}

size_t gd_tensor_attribute(const gd_tensor *t, char *text, size_t size)
{
    if (size)
        text[0] = '\0';
    if (!gd_usable(t, "gd_tensor_attribute") || !t->op || !t->op->format || !t->attr)
        return 0;
    char attribute[256] = "";
    t->op->format(t->attr, attribute, sizeof attribute);
    gd_text out = { text, size, 0 };
    gd_text_add(&out, "%s", attribute);
    return out.length;
}

int gd_tensor_input_count(const gd_tensor *t)
{
    return gd_usable(t, "gd_tensor_input_count") ? t->n_inputs : 0;
}

gd_tensor *gd_tensor_input(const gd_tensor *t, int i)
{
    if (!gd_usable(t, "gd_tensor_input") || i < 0 || i >= t->n_inputs)
        return NULL;
    return t->inputs[i];
}

int64_t gd_graph_order(gd_tensor *t, gd_tensor **tensors, int64_t capacity)
{
    gd_order order;
    if (!gd_usable(t, "gd_graph_order") || gd_order_make(&order, t->context, &t, 1, NULL) != GD_OK)
        return 0;
    int64_t count = (int64_t)order.count;
    for (int64_t i = 0; i < count && i < capacity; i++)
        tensors[i] = order.nodes[i];
    gd_order_free(&order);
    return count;
}
