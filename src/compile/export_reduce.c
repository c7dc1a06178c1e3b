/* compile/export_reduce.c: reductions and scans as C statements, in the orders that
 * backend/cpu/reduce.h defines; the functions they call are in codegen/kernels.txt. Start at
 * gd_export_reduction(). */
#include "compile/export.h"

#include "base/error.h"

/* ---- sum, prod, max, min ---- */

typedef struct reduction {
    gd_export *e;
    const char *op, *suffix, *identity;
    gd_loops kept, reduced;
    int64_t offset, rows; /* of the input's first element; elements of a result */
} reduction;

/* "&x0[3 + i0 * 40 + k0]" */
static void add_element(const reduction *r, const char *before)
{
    gd_text_buffer *body = &r->e->body;
    gd_buffer_add(body, "%sx0[%lld + ", before, (long long)r->offset);
    gd_export_index(r->e, &r->kept, 0, "i");
    gd_buffer_add(body, " + ");
    gd_export_index(r->e, &r->reduced, 0, "k");
    gd_buffer_add(body, "]");
}

static void add_result(const reduction *r)
{
    gd_buffer_add(&r->e->body, "r0[");
    gd_export_index(r->e, &r->kept, 1, "i");
    gd_buffer_add(&r->e->body, "] = ");
}

/* One after another: integers, whose order does not matter. */
static void write_simple(const reduction *r, gd_dtype dtype)
{
    gd_text_buffer *body = &r->e->body;
    gd_export_open_loops(r->e, &r->kept, "i", 8);
    gd_buffer_add(body, "        {\n            %s all = %s;\n", gd_codegen_type(dtype),
                  r->identity);
    gd_export_open_loops(r->e, &r->reduced, "k", 12);
    gd_buffer_add(body, "%*sall = combine_%s_%s(all, (%s)", r->reduced.rank ? 16 : 12, "", r->op,
                  r->suffix, gd_codegen_type(dtype));
    add_element(r, "");
    gd_buffer_add(body, ");\n            ");
    add_result(r);
    gd_buffer_add(body, "all;\n        }\n");
}

/* By rows: whole runs, or a sequence of short ones in a buffer. */
static void write_rows(const reduction *r)
{
    gd_text_buffer *body = &r->e->body;
    const int last = r->reduced.rank - 1;
    const bool one = last <= 0, by_runs = !one && r->reduced.size[last] >= 256;
    long long n = last < 0 ? 1 : r->reduced.size[last];
    long long step = last < 0 ? 1 : r->reduced.stride[0][last];
    gd_export_open_loops(r->e, &r->kept, "i", 8);
    gd_buffer_add(body, "        {\n            tree_%s tree = { { 0 }, 0 };\n", r->suffix);
    if (one || by_runs) {
        reduction outer = *r;
        outer.reduced.rank = last < 0 ? 0 : last;
        gd_export_open_loops(r->e, &outer.reduced, "k", 12);
        gd_buffer_add(body, "%*s%s_run_%s(&tree, ", outer.reduced.rank ? 16 : 12, "", r->op,
                      r->suffix);
        add_element(&outer, "&");
        gd_buffer_add(body, ", %lld, %lld, %s);\n", n, step, r->identity);
    } else {
        gd_buffer_add(body, "            static %s block[4096];\n            int64_t count = 0;\n",
                      r->suffix);
        gd_export_open_loops(r->e, &r->reduced, "k", 12);
        gd_buffer_add(body, "            {\n                block[count++] = ");
        add_element(r, "");
        gd_buffer_add(body,
                      ";\n                if (count == 4096) {\n                    "
                      "%s_run_%s(&tree, block, count, 1, %s);\n                    count = 0;\n"
                      "                }\n            }\n            %s_run_%s(&tree, block, "
                      "count, 1, %s);\n",
                      r->op, r->suffix, r->identity, r->op, r->suffix, r->identity);
    }
    gd_buffer_add(body, "            ");
    add_result(r);
    gd_buffer_add(body, "%s_end_%s(&tree);\n        }\n", r->op, r->suffix);
}

/* By columns: lanes of rows, blocks of 64 rows a lane. */
static gd_status write_columns(reduction *r, const gd_step *step)
{
    gd_text_buffer *body = &r->e->body;
    const int last = r->kept.rank - 1;
    const int64_t columns = r->kept.size[last], column_step = r->kept.stride[0][last];
    const int64_t out_step = r->kept.stride[1][last];
    int64_t lanes = 1;
    while (columns < 64 && 2 * lanes * columns <= 128 && 2 * lanes * 4 <= r->rows)
        lanes *= 2;
    if (r->rows / (64 * lanes) >= (int64_t)1 << 20)
        return gd_export_refuse(step, r->e, "so many rows");
    r->kept.rank = last;
    gd_export_open_loops(r->e, &r->kept, "i", 8);
    if (r->reduced.rank == 1) {
        gd_buffer_add(body, "            %s_columns_%s(", r->op, r->suffix);
        r->reduced.rank = 0;
        add_element(r, "&");
        gd_buffer_add(body, ", %lld, %lld, %lld, %lld, %lld, %s, &r0[", (long long)r->rows,
                      (long long)r->reduced.stride[0][0], (long long)columns,
                      (long long)column_step, (long long)lanes, r->identity);
        gd_export_index(r->e, &r->kept, 1, "i");
        gd_buffer_add(body, "], %lld);\n", (long long)out_step);
        return GD_OK;
    }
    /* Several loops: a column at a time, its blocks in a buffer. */
    r->kept.rank = last + 1;
    gd_buffer_add(body,
                  "        for (int64_t i%d = 0; i%d < %lld; i%d++) {\n"
                  "            static %s block[%lld];\n            int64_t count = 0;\n"
                  "            tree_%s tree = { { 0 }, 0 };\n",
                  last, last, (long long)columns, last, r->suffix, 64 * (long long)lanes,
                  r->suffix);
    gd_export_open_loops(r->e, &r->reduced, "k", 12);
    gd_buffer_add(body, "            {\n                block[count++] = ");
    add_element(r, "");
    gd_buffer_add(body,
                  ";\n                if (count == %lld) {\n                    "
                  "%s_lanes_%s(&tree, block, count, %lld, %s);\n                    count = 0;\n"
                  "                }\n            }\n            %s_lanes_%s(&tree, block, "
                  "count, %lld, %s);\n            ",
                  64 * (long long)lanes, r->op, r->suffix, (long long)lanes, r->identity, r->op,
                  r->suffix, (long long)lanes, r->identity);
    add_result(r);
    gd_buffer_add(body, "%s_end_%s(&tree);\n        }\n", r->op, r->suffix);
    return GD_OK;
}

gd_status gd_export_reduction(gd_export *e, const gd_step *step)
{
    const gd_ir *ir = &e->plan->ir;
    const gd_ir_value *v = &ir->values[step->value], *x = &ir->values[v->in[0]];
    reduction r = { .e = e,
                    .op = v->op->name,
                    .suffix = gd_codegen_suffix(v->layout.dtype),
                    .identity = gd_codegen_identity(v->op->id, v->layout.dtype),
                    .rows = 1 };
    const gd_reduce_loops loops =
        gd_codegen_reduce(&x->layout, ((const gd_reduce_attr *)v->attr)->axes);
    r.kept = loops.kept;
    r.reduced = loops.reduced;
    r.offset = loops.offset;
    for (int a = 0; a < r.reduced.rank; a++)
        r.rows *= r.reduced.size[a];
    gd_export_pointers(e, step);
    if (!gd_dtype_is_float(x->layout.dtype) || r.rows == 0) {
        if (r.rows == 0)
            gd_buffer_add(&e->body, "        (void)x0;\n");
        write_simple(&r, v->layout.dtype);
        return GD_OK;
    }
    if (loops.is_by_columns)
        return write_columns(&r, step);
    write_rows(&r);
    return GD_OK;
}

/* ---- along one axis ---- */

/* The loops over all other axes of the input, operand 0, and the result, operand 1. */
static gd_loops lines_of(const gd_layout *in, const gd_layout *out, int axis)
{
    gd_layout lines[2] = { *in, *in };
    int64_t stride = 1;
    for (int i = in->rank - 1; i >= 0; i--) {
        lines[1].stride[i] = stride;
        stride *= out->rank == in->rank ? out->shape[i] : i == axis ? 1 : in->shape[i];
    }
    for (int k = 0; k < 2 && in->rank > 0; k++)
        lines[k].shape[axis] = 1;
    gd_loops l;
    gd_codegen_merge(&l, &lines[0], (const gd_layout *[]){ &lines[0], &lines[1] }, 2);
    return l;
}

gd_status gd_export_arg_reduction(gd_export *e, const gd_step *step)
{
    const gd_ir *ir = &e->plan->ir;
    const gd_ir_value *v = &ir->values[step->value];
    const gd_layout *x = &ir->values[v->in[0]].layout;
    const int axis = ((const gd_axis_attr *)v->attr)->axis;
    gd_loops l = lines_of(x, &v->layout, axis);
    gd_export_pointers(e, step);
    gd_export_open_loops(e, &l, "i", 8);
    gd_buffer_add(&e->body, "%sr0[", gd_export_indent(&l));
    gd_export_index(e, &l, 1, "i");
    gd_buffer_add(&e->body, "] = %s_%s(&x0[", v->op->name, gd_codegen_suffix(x->dtype));
    gd_export_index(e, &l, 0, "i");
    gd_buffer_add(&e->body, "], %lld, %lld);\n", (long long)(x->rank ? x->shape[axis] : 1),
                  (long long)(x->rank ? x->stride[axis] : 1));
    return GD_OK;
}

gd_status gd_export_scan(gd_export *e, const gd_step *step)
{
    const gd_ir *ir = &e->plan->ir;
    const gd_ir_value *v = &ir->values[step->value];
    const gd_layout *x = &ir->values[v->in[0]].layout;
    const int axis = ((const gd_axis_attr *)v->attr)->axis;
    const bool is_scalar = x->rank == 0;
    gd_loops l = lines_of(x, &v->layout, axis);
    const char *type = gd_codegen_type(v->layout.dtype);
    gd_export_pointers(e, step);
    gd_export_open_loops(e, &l, "i", 8);
    gd_buffer_add(&e->body, "        {\n            %s all = 0;\n", type);
    gd_buffer_add(&e->body, "            for (int64_t k = 0; k < %lld; k++) {\n",
                  (long long)(is_scalar ? 1 : x->shape[axis]));
    gd_buffer_add(&e->body, "                const %s next = (%s)x0[", type, type);
    gd_export_index(e, &l, 0, "i");
    gd_buffer_add(&e->body,
                  " + k * %lld];\n                all = k ? combine_%s_%s(all, next) : next;\n"
                  "                r0[",
                  (long long)(is_scalar ? 1 : x->stride[axis]),
                  v->op->id == GD_OP_cumsum ? "sum" : "prod", gd_codegen_suffix(v->layout.dtype));
    gd_export_index(e, &l, 1, "i");
    gd_buffer_add(&e->body, " + k * %lld] = all;\n            }\n        }\n",
                  (long long)(is_scalar ? 1 : v->layout.stride[axis]));
    return GD_OK;
}
