/* compile/export_loops.c: what the statements of exported C are made of: pointers to values, loops
 * over shapes, indices in them. */
#include "compile/export.h"

#include <stdio.h>
#include <string.h>

/* ---- addresses ---- */

void gd_export_pointer(gd_export *e, const char *name, int number, int32_t value, bool is_result)
{
    const gd_ir *ir = &e->plan->ir;
    const gd_ir_value *v = &ir->values[value], *root = &ir->values[v->root];
    const char *alias = gd_codegen_suffix(v->layout.dtype), *is_const = is_result ? "" : "const ";
    char shape[GD_SHAPE_TEXT], storage[128];
    int64_t offset = v->layout.offset;
    gd_buffer_add(&e->body, "        %s%s *const %s%d = (%s%s *)", is_const, alias, name, number,
                  is_const, alias);
    if (root->kind == GD_IR_INPUT) {
        e->is_read[v->root] = true;
        gd_buffer_add(&e->body, "input%d", root->input);
    } else if (root->external) {
        e->is_used[e->storage[v->root]] = true;
        gd_export_storage_name(e, e->storage[v->root], storage);
        gd_buffer_add(&e->body, "%s", storage);
        offset += root->external->layout.offset;
    } else if (root->is_constant) {
        e->is_read[v->root] = true;
        gd_buffer_add(&e->body, "constant_%d", v->root);
    } else {
        size_t at = e->plan->memory.offset[v->root];
        gd_buffer_add(&e->body, "(%svoid *)(memory.byte + %zu)", is_const, at);
    }
    if (offset)
        gd_buffer_add(&e->body, " + %lld", (long long)offset);
    gd_buffer_add(&e->body, "; /* %s */\n", gd_layout_text(&v->layout, shape));
}

void gd_export_pointers(gd_export *e, const gd_step *step)
{
    const gd_ir_value *v = &e->plan->ir.values[step->value];
    for (int k = 0; k < v->n; k++)
        gd_export_pointer(e, "x", k, v->in[k], false);
    gd_export_pointer(e, "r", 0, step->value, true);
}

/* ---- loops over a shape ---- */

void gd_export_open_loops(gd_export *e, const gd_loops *l, const char *letter, int spaces)
{
    for (int a = 0; a < l->rank; a++)
        gd_buffer_add(&e->body, "%*sfor (int64_t %s%d = 0; %s%d < %lld; %s%d++)\n", spaces, "",
                      letter, a, letter, a, (long long)l->size[a], letter, a);
}

void gd_export_index(gd_export *e, const gd_loops *l, int operand, const char *letter)
{
    const char *separator = "";
    for (int a = 0; a < l->rank; a++) {
        int64_t stride = l->stride[operand][a];
        if (stride == 0)
            continue;
        gd_buffer_add(&e->body, stride == 1 ? "%s%s%d" : "%s%s%d * %lld", separator, letter, a,
                      (long long)stride);
        separator = " + ";
    }
    if (!*separator)
        gd_buffer_add(&e->body, "0");
}

void gd_export_place(gd_export *e, const gd_loops *l, const char *pointer, int operand)
{
    bool varies = false;
    for (int a = 0; a < l->rank; a++)
        varies |= l->stride[operand][a] != 0;
    gd_buffer_add(&e->body, "%s%s", pointer, varies ? " + " : "");
    if (varies)
        gd_export_index(e, l, operand, "i");
}

const char *gd_export_indent(const gd_loops *l)
{
    return l->rank ? "            " : "        ";
}
