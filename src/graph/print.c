/* graph/print.c: graphs as text and as Graphviz, and the verifier. */
#include "graph/apply.h"
#include "graph/autograd.h"
#include "graph/node.h"

#include <stdio.h>

#include <gradus/autograd.h>

#include "base/error.h"
#include "base/text.h"

static void add_type(gd_text *text, const gd_tensor *t)
{
    char shape[GD_SHAPE_TEXT];
    gd_text_add(text, "%s %s", gd_dtype_name(t->layout.dtype), gd_layout_text(&t->layout, shape));
}

static void add_attr(gd_text *text, const gd_tensor *t, const char *before, const char *after)
{
    if (!t->op || !t->op->format || !t->attr)
        return;
    char attr[256] = "";
    t->op->format(t->attr, attr, sizeof attr);
    if (attr[0])
        gd_text_add(text, "%s%s%s", before, attr, after);
}

static void add_line(gd_text *text, const gd_tensor *t)
{
    gd_text_add(text, "%%%lld = ", (long long)t->slot);
    if (!t->op) {
        gd_text_add(text, "%s", t->requires_grad ? "parameter" : "tensor");
    } else {
        gd_text_add(text, "%s(", t->op->name);
        for (int i = 0; i < t->n_inputs; i++)
            gd_text_add(text, "%s%%%lld", i ? ", " : "", (long long)t->inputs[i]->slot);
        gd_text_add(text, ")");
        add_attr(text, t, " {", "}");
    }
    gd_text_add(text, " ");
    add_type(text, t);
    if (t->name)
        gd_text_add(text, " \"%s\"", t->name);
    gd_text_add(text, "\n");
}

static void add_dot_node(gd_text *text, const gd_tensor *t)
{
    gd_text_add(text, "  n%lld [label=\"%s", (long long)t->slot, t->op ? t->op->name : "");
    if (t->name)
        gd_text_add_escaped(text, t->name);
    add_attr(text, t, " ", "");
    gd_text_add(text, "\\n");
    add_type(text, t);
    gd_text_add(text, "\"%s];\n",
                t->n_inputs        ? ""
                : t->requires_grad ? ", shape=box, style=bold"
                                   : ", shape=box");
    for (int i = 0; i < t->n_inputs; i++)
        gd_text_add(text, "  n%lld -> n%lld;\n", (long long)t->inputs[i]->slot, (long long)t->slot);
}

static size_t format_graph(gd_tensor *t, char *out, size_t size, bool dot)
{
    if (size)
        out[0] = '\0';
    gd_order order;
    if (!gd_usable(t, "gd_graph_format") || gd_order_make(&order, t->context, &t, 1, NULL) != GD_OK)
        return 0;
    gd_text text = { out, size, 0 };
    if (dot)
        gd_text_add(&text, "digraph gradus {\n  rankdir=BT;\n  node [fontname=\"sans-serif\"];\n");
    for (size_t i = 0; i < order.count; i++)
        (dot ? add_dot_node : add_line)(&text, order.nodes[i]);
    if (dot)
        gd_text_add(&text, "}\n");
    gd_order_free(&order);
    return text.length;
}

size_t gd_graph_format(gd_tensor *t, char *text, size_t size)
{
    return format_graph(t, text, size, false);
}

size_t gd_graph_format_dot(gd_tensor *t, char *text, size_t size)
{
    return format_graph(t, text, size, true);
}

/* ---- the verifier ---- */

static gd_status fault(const gd_tensor *t, const char *what)
{
    return gd_fail(GD_ERR_STATE, "gd_graph_verify: node %lld (%s): %s", (long long)t->slot,
                   t->op ? t->op->name : "leaf", what);
}

static bool same_layout(const gd_layout *a, const gd_layout *b)
{
    if (a->dtype != b->dtype || a->offset != b->offset || !gd_layout_same_shape(a, b))
        return false;
    for (int i = 0; i < a->rank; i++)
        if (a->stride[i] != b->stride[i])
            return false;
    return true;
}

/* Every element lies within the storage. */
static bool in_bounds(const gd_tensor *t)
{
    int64_t low = t->layout.offset, high = t->layout.offset;
    if (gd_layout_count(&t->layout) == 0)
        return true;
    for (int i = 0; i < t->layout.rank; i++) {
        int64_t reach = (t->layout.shape[i] - 1) * t->layout.stride[i];
        *(reach < 0 ? &low : &high) += reach;
    }
    int64_t capacity = (int64_t)(t->storage->bytes / gd_dtype_size(t->layout.dtype));
    return low >= 0 && high < capacity;
}

static gd_status verify_node(const gd_tensor *t)
{
    if (t->refs < 1)
        return fault(t, "nothing holds it");
    if (t->storage && (t->storage->refs < 1 || !in_bounds(t)))
        return fault(t, "its elements lie outside of its storage");
    if (!t->op || t->n_inputs == 0)
        return GD_OK;
    const gd_layout *layouts[GD_OP_MAX_INPUTS];
    for (int i = 0; i < t->n_inputs; i++) {
        if (t->inputs[i]->context != t->context || t->inputs[i]->id >= t->id)
            return fault(t, "an input is of another context or younger than its user");
        if (i < GD_OP_MAX_INPUTS) /* a call may have more, and does not look at them */
            layouts[i] = &t->inputs[i]->layout;
    }
    gd_layout inferred;
    if (gd_op_infer(t->op, t->n_inputs, layouts, t->attr, &inferred) != GD_OK)
        return fault(t, "its inputs do not fit the op");
    bool in_place = false;
    for (int i = 0; i < t->n_inputs; i++)
        in_place |=
            !(t->op->flags & GD_OP_VIEW) && t->storage && t->storage == t->inputs[i]->storage;
    if (in_place && inferred.dtype == t->layout.dtype &&
        gd_layout_same_shape(&inferred, &t->layout))
        return GD_OK; /* it lies as what it replaced */
    if (!same_layout(&inferred, &t->layout))
        return fault(t, "its layout is not the one the op infers");
    if ((t->op->flags & GD_OP_VIEW) && t->storage && t->storage != t->inputs[0]->storage)
        return fault(t, "a view does not share its input's storage");
    return GD_OK;
}

gd_status gd_graph_verify(gd_tensor *t)
{
    if (!t)
        return gd_fail(GD_ERR_INVALID, "gd_graph_verify: the tensor is NULL");
    if (!gd_usable(t, "gd_graph_verify"))
        return GD_ERR_STATE;
    gd_order order;
    if (gd_order_make(&order, t->context, &t, 1, NULL) != GD_OK)
        return GD_ERR_MEMORY;
    gd_status status = GD_OK;
    for (size_t i = 0; status == GD_OK && i < order.count; i++)
        status = verify_node(order.nodes[i]);
    gd_order_free(&order);
    return status;
}
