/* compile/export_rows.c: a fused group with reductions as C statements: row by row, each whole
 * value in an array w of one row. Start at gd_export_rows(). */
#include "compile/export.h"

typedef struct row_export {
    gd_export *e;
    const gd_fused_attr *group;
    gd_dtype dtypes[GD_FUSED_MAX_INPUTS + GD_FUSED_MAX_INSTRUCTIONS];
    bool is_row[GD_FUSED_MAX_INPUTS]; /* inputs that are read once a row */
    gd_loops outer, inner;
    int64_t length;
} row_export;

static void take_row_loops(row_export *r, const gd_ir_value *v, const gd_ir_value *values)
{
    const gd_fused_attr *group = r->group;
    r->length = 1;
    for (int axis = 0; axis < group->shape.rank; axis++) {
        int before = gd_fused_outer_axes(group);
        gd_loops *l = axis < before ? &r->outer : &r->inner;
        if (group->shape.dim[axis] == 1)
            continue;
        r->length *= axis < before ? 1 : group->shape.dim[axis];
        l->size[l->rank] = group->shape.dim[axis];
        for (int k = 0; k < group->n_inputs; k++) {
            const gd_layout *in = &values[v->in[k]].layout;
            bool is_outer = group->outer_inputs >> k & 1;
            int own = axis - ((is_outer ? before : group->shape.rank) - in->rank);
            bool varies = own >= 0 && own < in->rank && in->shape[own] != 1;
            l->stride[k][l->rank] = varies ? in->stride[own] : 0;
        }
        l->rank++;
    }
}

static void add_row_input(row_export *r, int k)
{
    gd_export *e = r->e;
    gd_buffer_add(&e->body, "            const %s v%d = x%d[", gd_codegen_type(r->dtypes[k]), k, k);
    gd_export_index(e, &r->outer, k, "i");
    if (!r->is_row[k]) {
        gd_buffer_add(&e->body, " + ");
        gd_export_index(e, &r->inner, k, "k");
    }
    gd_buffer_add(&e->body, "];\n");
}

/* Operands that vary along the row, as v<number>. */
static void add_row_operands(row_export *r, const gd_fused_instruction *in, int arity)
{
    for (int k = 0; k < arity; k++) {
        int from = in->from[k], made = from - r->group->n_inputs;
        bool again = false;
        for (int before = 0; before < k; before++)
            again |= in->from[before] == from;
        if (again)
            continue;
        if (made < 0 && !r->is_row[from])
            add_row_input(r, from);
        else if (made >= 0 && !r->group->instruction[made].is_row)
            gd_buffer_add(&r->e->body, "            const %s v%d = w%d[j];\n",
                          gd_codegen_type(r->dtypes[from]), from, from);
    }
}

/* A row as one block of the reduction's order. An input lies without gaps. */
static void add_reduction(row_export *r, int i)
{
    gd_export *e = r->e;
    const gd_fused_instruction *in = &r->group->instruction[i];
    const char *suffix = gd_codegen_suffix((gd_dtype)in->dtype);
    const char *op = gd_op_row((gd_op_id)in->op)->name;
    const char *identity = in->op == GD_OP_max    ? "-INFINITY"
                           : in->op == GD_OP_min  ? "INFINITY"
                           : in->op == GD_OP_prod ? "1"
                                                  : "0";
    int number = r->group->n_inputs + i, from = in->from[0];
    gd_buffer_add(&e->body,
                  "            tree_%s tree%d = { { 0 }, 0 };\n            %s_run_%s(&tree%d, ",
                  suffix, number, op, suffix, number);
    if (from < r->group->n_inputs) {
        gd_buffer_add(&e->body, "x%d + ", from);
        gd_export_index(e, &r->outer, from, "i");
    } else {
        gd_buffer_add(&e->body, "w%d", from);
    }
    gd_buffer_add(&e->body, ", %lld, 1, %s);\n            const %s v%d = %s_end_%s(&tree%d);\n",
                  (long long)r->length, identity, gd_codegen_type((gd_dtype)in->dtype), number, op,
                  suffix, number);
}

static void add_row_instruction(row_export *r, int i)
{
    gd_export *e = r->e;
    const gd_fused_instruction *in = &r->group->instruction[i];
    int number = r->group->n_inputs + i;
    if (gd_fused_reduces(in->op)) {
        add_reduction(r, i);
        return;
    }
    if (in->is_row) {
        gd_codegen_instruction(&e->functions, &e->body, r->group, i, r->dtypes);
        return;
    }
    gd_buffer_add(&e->body, "            {\n            int64_t j = 0;\n");
    gd_export_open_loops(e, &r->inner, "k", 12);
    gd_buffer_add(&e->body, "        {\n");
    add_row_operands(r, in, gd_op_row((gd_op_id)in->op)->arity);
    gd_codegen_instruction(&e->functions, &e->body, r->group, i, r->dtypes);
    gd_buffer_add(&e->body, "            w%d[j++] = v%d;\n        }\n            }\n", number,
                  number);
}

static void add_row_result(row_export *r, int result, int i)
{
    gd_export *e = r->e;
    int number = r->group->n_inputs + i;
    if (r->group->instruction[i].is_row)
        gd_buffer_add(&e->body, "        r%d[row] = v%d;\n", result, number);
    else
        gd_buffer_add(&e->body,
                      "        for (int64_t j = 0; j < %lld; j++)\n            r%d[row * %lld + j] "
                      "= w%d[j];\n",
                      (long long)r->length, result, (long long)r->length, number);
}

gd_status gd_export_rows(gd_export *e, const gd_step *step)
{
    const gd_fused_attr *group = step->call.attr;
    const gd_ir *ir = &e->plan->ir;
    const gd_ir_value *v = &ir->values[step->value];
    row_export r = { .e = e, .group = group };
    take_row_loops(&r, v, ir->values);
    for (int k = 0; k < v->n; k++) {
        r.dtypes[k] = ir->values[v->in[k]].layout.dtype;
        r.is_row[k] = gd_fused_is_row_input(group, k, &ir->values[v->in[k]].layout);
        gd_export_pointer(e, "x", k, v->in[k], false);
    }
    for (int k = 0; k <= group->n_extra; k++)
        gd_export_pointer(e, "r", k, step->value + k, true);
    for (int i = 0; i < group->n_instructions; i++) {
        r.dtypes[v->n + i] = (gd_dtype)group->instruction[i].dtype;
        if (!group->instruction[i].is_row)
            gd_buffer_add(&e->body, "        static %s w%d[%lld];\n",
                          gd_codegen_suffix(r.dtypes[v->n + i]), v->n + i, (long long)r.length);
    }
    gd_buffer_add(&e->body, "        int64_t row = 0;\n");
    gd_export_open_loops(e, &r.outer, "i", 8);
    gd_buffer_add(&e->body, "        {\n");
    for (int k = 0; k < v->n; k++)
        if (r.is_row[k])
            add_row_input(&r, k);
    for (int i = 0; i < group->n_instructions; i++)
        add_row_instruction(&r, i);
    for (int k = 0; k <= group->n_extra; k++) {
        const gd_extra_result_attr *made = ir->values[step->value + k].attr;
        add_row_result(&r, k, k ? group->extra[made->index] : group->n_instructions - 1);
    }
    gd_buffer_add(&e->body, "        row++;\n        }\n");
    return GD_OK;
}
