/* compile/export_index.c: moving elements as C statements, by indices and otherwise; sorting and
 * searching; random numbers. */
#include "compile/export.h"

#include <math.h>
#include <string.h>

#include "base/error.h"

static const gd_layout *layout_of(const gd_export *e, int32_t value)
{
    return &e->plan->ir.values[value].layout;
}

/* A number as an element of `dtype`, as gd_cast makes it. */
static void add_real(gd_export *e, double value, gd_dtype dtype)
{
    const char *type = gd_codegen_type(dtype);
    if (dtype == GD_BOOL)
        gd_buffer_add(&e->body, "%d", value != 0);
    else if (isfinite(value))
        gd_buffer_add(&e->body, gd_dtype_is_float(dtype) ? "(%s)%a" : "f64_to_%s(%a)",
                      gd_dtype_is_float(dtype) ? type : gd_codegen_suffix(dtype), value);
    else if (gd_dtype_is_float(dtype))
        gd_buffer_add(&e->body, "(%s)%s", type,
                      isnan(value) ? "NAN"
                      : value > 0  ? "INFINITY"
                                   : "-INFINITY");
    else
        gd_buffer_add(&e->body, "f64_to_%s(%s)", gd_codegen_suffix(dtype),
                      isnan(value) ? "NAN"
                      : value > 0  ? "INFINITY"
                                   : "-INFINITY");
}

/* ---- sources ---- */

gd_status gd_export_full(gd_export *e, const gd_step *step)
{
    const gd_ir_value *v = &e->plan->ir.values[step->value];
    gd_export_pointers(e, step);
    gd_buffer_add(&e->body, "        for (int64_t i = 0; i < %lld; i++)\n            r0[i] = ",
                  (long long)gd_layout_count(&v->layout));
    const gd_full_attr *attr = v->attr;
    if (gd_dtype_is_integer(v->layout.dtype))
        gd_buffer_add(&e->body, attr->whole == INT64_MIN ? "INT64_MIN" : "INT64_C(%lld)",
                      (long long)attr->whole);
    else
        add_real(e, attr->value, v->layout.dtype);
    gd_buffer_add(&e->body, ";\n");
    return GD_OK;
}

gd_status gd_export_iota(gd_export *e, const gd_step *step)
{
    const gd_ir_value *v = &e->plan->ir.values[step->value];
    const gd_iota_attr *attr = v->attr;
    const gd_dtype dtype = v->layout.dtype;
    gd_export_pointers(e, step);
    gd_buffer_add(&e->body, "        for (int64_t i = 0; i < %lld; i++)\n            r0[i] = ",
                  (long long)attr->count);
    if (attr->use_integers)
        gd_buffer_add(&e->body, "(%s)((uint64_t)%lld + (uint64_t)i * (uint64_t)%lld)%s;\n",
                      gd_codegen_type(dtype), (long long)attr->integer_start,
                      (long long)attr->integer_step, dtype == GD_BOOL ? " != 0" : "");
    else if (dtype == GD_BOOL)
        gd_buffer_add(&e->body, "%a + (double)i * %a != 0;\n", attr->start, attr->step);
    else if (gd_dtype_is_float(dtype))
        gd_buffer_add(&e->body, "(%s)(%a + (double)i * %a);\n", gd_codegen_type(dtype), attr->start,
                      attr->step);
    else
        gd_buffer_add(&e->body, "f64_to_%s(%a + (double)i * %a);\n", gd_codegen_suffix(dtype),
                      attr->start, attr->step);
    return GD_OK;
}

/* ---- copies ---- */

/* Operand `number` into the part of the result that begins at element `at`. */
static void copy_into(gd_export *e, int number, const gd_layout *from, const gd_layout *to,
                      int64_t at)
{
    gd_layout part = *from;
    memcpy(part.stride, to->stride, sizeof part.stride);
    gd_loops l;
    gd_codegen_merge(&l, from, (const gd_layout *[]){ from, &part }, 2);
    gd_export_open_loops(e, &l, "i", 8);
    gd_buffer_add(&e->body, "%sr0[%lld + ", gd_export_indent(&l), (long long)at);
    gd_export_index(e, &l, 1, "i");
    gd_buffer_add(&e->body, "] = x%d[", number);
    gd_export_index(e, &l, 0, "i");
    gd_buffer_add(&e->body, "];\n");
}

gd_status gd_export_pad(gd_export *e, const gd_step *step)
{
    const gd_ir_value *v = &e->plan->ir.values[step->value];
    const gd_layout *in = layout_of(e, v->in[0]);
    const gd_pad_attr *attr = v->attr;
    int64_t at = 0;
    for (int i = 0; i < in->rank; i++)
        at += attr->before[i] * v->layout.stride[i];
    gd_export_pointers(e, step);
    gd_buffer_add(&e->body, "        for (int64_t i = 0; i < %lld; i++)\n            r0[i] = ",
                  (long long)gd_layout_count(&v->layout));
    add_real(e, attr->value, v->layout.dtype);
    gd_buffer_add(&e->body, ";\n");
    if (gd_layout_count(in) > 0)
        copy_into(e, 0, in, &v->layout, at);
    else
        gd_buffer_add(&e->body, "        (void)x0;\n");
    return GD_OK;
}

gd_status gd_export_concat(gd_export *e, const gd_step *step)
{
    const gd_ir_value *v = &e->plan->ir.values[step->value];
    const int axis = ((const gd_axis_attr *)v->attr)->axis;
    int64_t at = 0;
    gd_export_pointers(e, step);
    for (int k = 0; k < v->n; k++) {
        const gd_layout *in = layout_of(e, v->in[k]);
        if (gd_layout_count(in) > 0)
            copy_into(e, k, in, &v->layout, at);
        else
            gd_buffer_add(&e->body, "        (void)x%d;\n", k);
        at += in->shape[axis] * v->layout.stride[axis];
    }
    return GD_OK;
}

/* ---- by indices ---- */

/* Loops over the index, operand 0; the innermost ones over which it does not vary are left for the
 * elements. "const int64_t k = x1[…]; if (k < 0 || k >= size) return 1;" */
static void open_indices(gd_export *e, const gd_loops *l, int64_t size)
{
    int outer = l->rank;
    while (outer > 0 && l->stride[0][outer - 1] == 0)
        outer--;
    gd_loops some = *l;
    some.rank = outer;
    gd_export_open_loops(e, &some, "i", 8);
    gd_buffer_add(&e->body, "        {\n            const int64_t k = x1[");
    gd_export_index(e, &some, 0, "i");
    gd_buffer_add(&e->body, "];\n            if (k < 0 || k >= %lld)\n                return 1;\n",
                  (long long)size);
    for (int a = outer; a < l->rank; a++)
        gd_buffer_add(&e->body, "            for (int64_t i%d = 0; i%d < %lld; i%d++)\n", a, a,
                      (long long)l->size[a], a);
    gd_buffer_add(&e->body, outer < l->rank ? "                " : "            ");
}

gd_status gd_export_gather(gd_export *e, const gd_step *step)
{
    const gd_ir_value *v = &e->plan->ir.values[step->value];
    const gd_layout *x = layout_of(e, v->in[0]), *index = layout_of(e, v->in[1]);
    const int axis = ((const gd_axis_attr *)v->attr)->axis;
    gd_layout across = *index; /* x, but along the axis the index says where */
    memcpy(across.stride, x->stride, sizeof across.stride);
    across.stride[axis] = 0;
    gd_loops l;
    gd_codegen_merge(&l, index, (const gd_layout *[]){ index, &across, &v->layout }, 3);
    gd_export_pointers(e, step);
    open_indices(e, &l, x->shape[axis]);
    gd_buffer_add(&e->body, "r0[");
    gd_export_index(e, &l, 2, "i");
    gd_buffer_add(&e->body, "] = x0[k * %lld + ", (long long)x->stride[axis]);
    gd_export_index(e, &l, 1, "i");
    gd_buffer_add(&e->body, "];\n        }\n");
    return GD_OK;
}

/* scatter_add and scatter: a copy of the base; then elements of the source are added, or put, in
 * the order of the index along the axis. */
gd_status gd_export_scatter(gd_export *e, const gd_step *step)
{
    const gd_ir_value *v = &e->plan->ir.values[step->value];
    const gd_layout *base = layout_of(e, v->in[0]), *index = layout_of(e, v->in[1]);
    const gd_layout *source = layout_of(e, v->in[2]);
    const int axis = ((const gd_axis_attr *)v->attr)->axis;
    gd_layout across = *index;
    memcpy(across.stride, v->layout.stride, sizeof across.stride);
    across.stride[axis] = 0;
    gd_export_pointers(e, step);
    if (step->call.out.data == step->call.in[0].data) /* in place */
        gd_buffer_add(&e->body, "        (void)x0;\n");
    else
        copy_into(e, 0, base, &v->layout, 0);
    if (gd_layout_count(index) == 0) {
        gd_buffer_add(&e->body, "        (void)x1;\n        (void)x2;\n");
        return GD_OK;
    }
    gd_loops l;
    gd_codegen_merge(&l, index, (const gd_layout *[]){ index, source, &across }, 3);
    open_indices(e, &l, base->shape[axis]);
    const bool adds = v->op->id == GD_OP_scatter_add;
    const char *suffix = gd_codegen_suffix(v->layout.dtype);
    gd_buffer_add(&e->body, "r0[k * %lld + ", (long long)v->layout.stride[axis]);
    gd_export_index(e, &l, 2, "i");
    gd_buffer_add(&e->body, "] = ");
    if (adds) {
        gd_buffer_add(&e->body, "combine_sum_%s(r0[k * %lld + ", suffix,
                      (long long)v->layout.stride[axis]);
        gd_export_index(e, &l, 2, "i");
        gd_buffer_add(&e->body, "], ");
    }
    gd_buffer_add(&e->body, "x2[");
    gd_export_index(e, &l, 1, "i");
    gd_buffer_add(&e->body, "]%s;\n        }\n", adds ? ")" : "");
    return GD_OK;
}

/* ---- order ---- */

gd_status gd_export_sort(gd_export *e, const gd_step *step)
{
    const gd_ir_value *v = &e->plan->ir.values[step->value];
    const gd_layout *x = layout_of(e, v->in[0]);
    const gd_sort_attr *attr = v->attr;
    const int last = x->rank - 1;
    gd_layout lines[2] = { *x, v->layout };
    lines[0].rank = lines[1].rank = last;
    gd_loops l;
    gd_codegen_merge(&l, &lines[0], (const gd_layout *[]){ &lines[0], &lines[1] }, 2);
    gd_export_pointers(e, step);
    gd_export_open_loops(e, &l, "i", 8);
    gd_buffer_add(&e->body, "%sargsort_%s(", gd_export_indent(&l), gd_codegen_suffix(x->dtype));
    gd_export_place(e, &l, "x0", 0);
    gd_buffer_add(&e->body, ", %lld, %lld, %lld, %d, ", (long long)x->shape[last],
                  (long long)x->stride[last], (long long)attr->count, attr->descending != 0);
    gd_export_place(e, &l, "r0", 1);
    gd_buffer_add(&e->body, ");\n");
    return GD_OK;
}

gd_status gd_export_search(gd_export *e, const gd_step *step)
{
    const gd_ir_value *v = &e->plan->ir.values[step->value];
    const gd_layout *sorted = layout_of(e, v->in[0]), *values = layout_of(e, v->in[1]);
    gd_loops l;
    gd_codegen_merge(&l, values, (const gd_layout *[]){ values, &v->layout }, 2);
    gd_export_pointers(e, step);
    gd_export_open_loops(e, &l, "i", 8);
    gd_buffer_add(&e->body, "%sr0[", gd_export_indent(&l));
    gd_export_index(e, &l, 1, "i");
    gd_buffer_add(&e->body, "] = search_%s(x0, %lld, %lld, x1[", gd_codegen_suffix(sorted->dtype),
                  (long long)sorted->shape[0], (long long)sorted->stride[0]);
    gd_export_index(e, &l, 0, "i");
    gd_buffer_add(&e->body, "], %d);\n", ((const gd_search_attr *)v->attr)->right != 0);
    return GD_OK;
}

/* ---- random numbers: words of the stream that the state, x<k>, names ---- */

/* "(uint64_t)x1[0], (uint64_t)x1[1] + 17": the seed, and the number of the first word. */
static void add_state(gd_export *e, int k, int64_t stride, uint64_t offset)
{
    gd_buffer_add(&e->body, "(uint64_t)x%d[0], (uint64_t)x%d[%lld] + %llu", k, k, (long long)stride,
                  (unsigned long long)offset);
}

gd_status gd_export_random(gd_export *e, const gd_step *step)
{
    const gd_ir_value *v = &e->plan->ir.values[step->value];
    const gd_random_attr *attr = v->attr;
    gd_export_pointers(e, step);
    gd_buffer_add(&e->body, "        random_bits_%s(", gd_codegen_suffix(v->layout.dtype));
    add_state(e, 0, layout_of(e, v->in[0])->stride[0], attr->offset);
    gd_buffer_add(&e->body, ", %lld, r0);\n", (long long)gd_layout_count(&v->layout));
    return GD_OK;
}

void gd_export_word(gd_export *e, const gd_step *step, const gd_loops *l, int k)
{
    const gd_ir_value *v = &e->plan->ir.values[step->value];
    gd_buffer_add(&e->body, "            i32 v%d;\n            random_bits_i32(", k);
    add_state(e, k, layout_of(e, v->in[k])->stride[0],
              ((const gd_fused_attr *)v->attr)->first_word[k]);
    gd_buffer_add(&e->body, " + (uint64_t)(");
    gd_export_index(e, l, k, "i");
    gd_buffer_add(&e->body, "), 1, &v%d);\n", k);
}

gd_status gd_export_dropout(gd_export *e, const gd_step *step)
{
    const gd_ir_value *v = &e->plan->ir.values[step->value];
    const gd_dropout_attr *attr = v->attr;
    gd_loops l;
    gd_codegen_merge(&l, &v->layout, (const gd_layout *[]){ layout_of(e, v->in[0]), &v->layout },
                     2);
    gd_export_pointers(e, step);
    /* The last loop is within. */
    const int last = l.rank - 1;
    const long long n = last < 0 ? 1 : l.size[last], step_size = last < 0 ? 1 : l.stride[0][last];
    l.rank = last < 0 ? 0 : last;
    gd_export_open_loops(e, &l, "i", 8);
    gd_buffer_add(&e->body, "%sdropout_%s(", gd_export_indent(&l),
                  gd_codegen_suffix(v->layout.dtype));
    add_state(e, 1, layout_of(e, v->in[1])->stride[0], attr->offset);
    gd_buffer_add(&e->body, " + (uint64_t)(");
    gd_export_index(e, &l, 1, "i");
    gd_buffer_add(&e->body, "), UINT64_C(%llu), %a, %lld, ", (unsigned long long)attr->threshold,
                  attr->scale, n);
    gd_export_place(e, &l, "x0", 0);
    gd_buffer_add(&e->body, ", %lld, ", step_size);
    gd_export_place(e, &l, "r0", 1);
    gd_buffer_add(&e->body, ");\n");
    return GD_OK;
}
