/* compile/export_sequence.c: what sequence models compute as C statements: normalisation of rows,
 * attention, recurrent networks, CTC. A constant says the shape, and a function of
 * codegen/kernels.txt is called, which follows the CPU back end's order. Start at the functions that
 * are not static. */
#include "compile/export.h"

#include <math.h>
#include <stdio.h>

#include "base/error.h"

static const gd_layout *layout_of(const gd_export *e, int32_t value)
{
    return &e->plan->ir.values[value].layout;
}

static void add_sizes(gd_export *e, int n, const int64_t *size)
{
    gd_buffer_add(&e->body, ", { ");
    for (int i = 0; i < n; i++)
        gd_buffer_add(&e->body, "%s%lld", i ? ", " : "", (long long)size[i]);
    gd_buffer_add(&e->body, " }");
}

/* ---- normalize, normalize_grad ---- */

gd_status gd_export_norm(gd_export *e, const gd_step *step)
{
    const gd_ir_value *v = &e->plan->ir.values[step->value];
    const gd_norm_attr *attr = v->attr;
    const gd_layout *x = layout_of(e, v->in[0]);
    const bool is_gradient = v->op->id == GD_OP_normalize_grad;
    const int64_t rows = gd_norm_rows(x);
    gd_export_pointers(e, step);
    gd_buffer_add(&e->body, "        %s_%s(%lld, %lld, %a, %d, x0", v->op->name,
                  gd_codegen_suffix(x->dtype), (long long)rows, (long long)x->shape[x->rank - 1],
                  attr->epsilon, attr->center != 0);
    if (is_gradient)
        gd_buffer_add(&e->body, ", x1, %s, %d, %lld", attr->parts > 0 ? "x2" : "NULL", attr->parts,
                      (long long)gd_norm_block_rows(rows));
    else
        gd_buffer_add(&e->body, ", %s, %s", attr->parts > 0 ? "x1" : "NULL",
                      attr->parts > 1 ? "x2" : "NULL");
    gd_buffer_add(&e->body, ", r0);\n");
    return GD_OK;
}

gd_status gd_export_centred(gd_export *e, const gd_step *step)
{
    const gd_ir_value *v = &e->plan->ir.values[step->value];
    const gd_layout *x = layout_of(e, v->in[0]);
    gd_export_pointers(e, step);
    gd_buffer_add(&e->body, "        centred_products_%s(%lld, %lld, %lld, x0, x1, %s, r0);\n",
                  gd_codegen_suffix(x->dtype), (long long)x->shape[0], (long long)x->shape[1],
                  (long long)gd_centred_row(x), v->n > 2 ? "x2" : "NULL");
    return GD_OK;
}

/* ---- attention, attention_narrow, attention_grad ---- */

/* Strides of heads, rows and columns. */
static void add_last_strides(gd_export *e, const gd_layout *x)
{
    static const int64_t none[3] = { 0 };
    add_sizes(e, 3, x ? x->stride + x->rank - 3 : none);
}

/* The shape as a constant. */
static void add_attention_shape(gd_export *e, const gd_attention_attr *attr, const gd_layout *q,
                                const gd_layout *k, const gd_layout *v, const gd_layout *g,
                                const gd_layout *mask, const gd_attention_offsets *places)
{
    const int64_t *qs = q->shape + q->rank - 3, *ks = k->shape + k->rank - 3;
    gd_buffer_add(&e->body,
                  "        static const attention_shape shape = { %lld, %lld, %lld, %lld, %lld, "
                  "%lld",
                  (long long)qs[0], (long long)ks[0], (long long)qs[1], (long long)ks[1],
                  (long long)qs[2], (long long)v->shape[v->rank - 1]);
    add_last_strides(e, q);
    add_last_strides(e, k);
    add_last_strides(e, v);
    add_last_strides(e, g);
    add_last_strides(e, mask);
    add_sizes(e, 3, places->row);
    gd_buffer_add(&e->body, ", %af, %af, %lu, %d, %d };\n", (double)(float)attr->scale,
                  (double)(float)(1 / (1 - attr->dropout)),
                  (unsigned long)ceil(attr->dropout * 16777216), attr->causal != 0,
                  mask && mask->dtype == GD_BOOL);
}

/* A layout cut to its batch axes. */
static gd_layout batch_of(const gd_layout *x)
{
    gd_layout batch = *x;
    batch.rank -= 3;
    return batch;
}

/* ", x0 + i0 * 64" */
static void add_operand(gd_export *e, const gd_loops *l, const char *name, int operand)
{
    gd_buffer_add(&e->body, ", ");
    gd_export_place(e, l, name, operand);
}

enum { Q, K, V, PACKED, G };                /* inputs; then the mask and the random state, if any */
enum { K_SCALE = 3, V_SCALE, NARROW_MASK }; /* inputs of attention_narrow */

/* Keys (x1) or values (x2) of i8 times their scales, as wide1 or wide2: *to. */
static gd_status add_widened(gd_export *e, int number, const gd_layout *x, const gd_layout *scale,
                             gd_layout *to)
{
    gd_layout stretched;
    gd_loops l;
    if (gd_layout_init(to, gd_layout_shape(x), GD_F32, "gd_export_c") != GD_OK ||
        !gd_layout_broadcast(scale, gd_layout_shape(x), &stretched))
        return gd_error_last();
    gd_codegen_merge(&l, to, (const gd_layout *[]){ to, x, &stretched }, 3);
    const int64_t count = gd_layout_count(x);
    gd_buffer_add(&e->body, "        static f32 wide%d[%lld];\n", number,
                  (long long)(count > 0 ? count : 1)); /* C has no empty arrays */
    gd_export_open_loops(e, &l, "i", 8);
    gd_buffer_add(&e->body, "%swide%d[", gd_export_indent(&l), number);
    gd_export_index(e, &l, 0, "i");
    gd_buffer_add(&e->body, "] = (f32)x%d[", number);
    gd_export_index(e, &l, 1, "i");
    gd_buffer_add(&e->body, "] * x%d[", number + K_SCALE - K);
    gd_export_index(e, &l, 2, "i");
    gd_buffer_add(&e->body, "];\n");
    return GD_OK;
}

gd_status gd_export_attention(gd_export *e, const gd_step *step)
{
    const gd_ir_value *value = &e->plan->ir.values[step->value];
    const gd_attention_attr *attr = value->attr;
    const bool is_gradient = value->op->id == GD_OP_attention_grad;
    const bool is_narrow = value->op->id == GD_OP_attention_narrow;
    const gd_layout *q = layout_of(e, value->in[Q]), *k = layout_of(e, value->in[K]);
    const gd_layout *v = layout_of(e, value->in[V]);
    const gd_layout *g = is_gradient ? layout_of(e, value->in[G]) : q;
    if (q->dtype != GD_F32 || gd_dtype_is_half(k->dtype))
        return gd_export_refuse(step, e, gd_dtype_name(k->dtype));
    if (gd_layout_count(q) == 0) { /* keys nobody looks at */
        gd_export_pointer(e, "r", 0, step->value, true);
        gd_buffer_add(&e->body, "        memset((void *)r0, 0, %zu);\n",
                      gd_layout_bytes(&value->layout));
        return GD_OK;
    }
    const int extra = is_gradient ? G + 1 : is_narrow ? NARROW_MASK : V + 1;
    gd_layout mask = *q;
    if (attr->has_mask) {
        gd_shape scores = gd_layout_shape(q);
        scores.dim[q->rank - 1] = k->shape[k->rank - 2];
        (void)gd_layout_broadcast(layout_of(e, value->in[extra]), scores, &mask);
    }
    gd_export_pointers(e, step);
    gd_layout wide[2];
    if (is_narrow) {
        if (add_widened(e, K, k, layout_of(e, value->in[K_SCALE]), &wide[0]) != GD_OK ||
            add_widened(e, V, v, layout_of(e, value->in[V_SCALE]), &wide[1]) != GD_OK)
            return gd_error_last();
        k = &wide[0];
        v = &wide[1];
    }
    const gd_attention_offsets places =
        gd_attention_grad_offsets(attr, (const gd_layout *[]){ q, k, v });
    const long long rows = (long long)(gd_layout_count(q) / q->shape[q->rank - 1]);
    if (is_narrow)
        gd_buffer_add(&e->body, "        static f32 logarithms[%lld];\n", rows);
    add_attention_shape(e, attr, q, k, v, is_gradient ? g : NULL, attr->has_mask ? &mask : NULL,
                        &places);
    /* Loops over batch entries; the last operand counts them. */
    gd_layout batch[6] = { batch_of(q), batch_of(k), batch_of(v), batch_of(g), batch_of(&mask) };
    if (gd_layout_init(&batch[5], gd_layout_shape(&batch[0]), GD_F32, "gd_export_c") != GD_OK)
        return gd_error_last();
    gd_loops l;
    gd_codegen_merge(
        &l, &batch[5],
        (const gd_layout *[]){ &batch[0], &batch[1], &batch[2], &batch[3], &batch[4], &batch[5] },
        6);
    gd_export_open_loops(e, &l, "i", 8);
    gd_buffer_add(&e->body, "%s%s(&shape, ", gd_export_indent(&l),
                  is_gradient ? "attention_grad" : "attention");
    gd_export_index(e, &l, 5, "i");
    add_operand(e, &l, "x0", Q);
    add_operand(e, &l, is_narrow ? "wide1" : "x1", K);
    add_operand(e, &l, is_narrow ? "wide2" : "x2", V);
    const char mask_name[] = { 'x', (char)('0' + extra), 0 };
    if (attr->has_mask)
        add_operand(e, &l, mask_name, 4);
    else
        gd_buffer_add(&e->body, ", NULL");
    const int state = extra + (attr->has_mask != 0);
    if (attr->dropout > 0)
        gd_buffer_add(&e->body, ", (uint64_t)x%d[0], (uint64_t)x%d[%lld] + %llu", state, state,
                      (long long)layout_of(e, value->in[state])->stride[0],
                      (unsigned long long)attr->offset);
    else
        gd_buffer_add(&e->body, ", 0, 0");
    const long long width = (long long)v->shape[v->rank - 1];
    if (is_gradient) {
        add_operand(e, &l, "x4", 3);
        gd_buffer_add(&e->body, ", x3, x3 + %lld, r0, r0 + %lld, r0 + %lld);\n", rows * width,
                      (long long)places.at[1], (long long)places.at[2]);
    } else if (is_narrow) {
        gd_buffer_add(&e->body, ", r0, logarithms);\n");
    } else {
        gd_buffer_add(&e->body, ", r0, r0 + %lld);\n", rows * width);
    }
    return GD_OK;
}

/* ---- recurrent, recurrent_grad ---- */

/* Scratch, and the shape as a constant. */
static void add_recurrent_shape(gd_export *e, const gd_recurrent_attr *attr, const int64_t sizes[3],
                                const gd_layout *u, const gd_layout *h0, const gd_layout *c0,
                                const gd_layout *lengths, const gd_layout *zg)
{
    static const int64_t none[3] = { 0 };
    const int64_t gates = gd_recurrent_gates(attr->cell);
    const int64_t scratch = sizes[0] * sizes[2] * (2 + gates) + 2 * sizes[2];
    gd_buffer_add(&e->body,
                  "        static float scratch[%lld];\n"
                  "        static const recurrent_shape shape = { %lld, %lld, %lld, %lld, %d, %d, "
                  "%lld",
                  (long long)scratch, (long long)sizes[0], (long long)sizes[1], (long long)sizes[2],
                  (long long)gates, attr->cell, attr->reverse,
                  (long long)(lengths ? lengths->stride[0] : 0));
    add_sizes(e, 2, u->stride);
    add_sizes(e, 2, h0->stride);
    add_sizes(e, 2, c0 ? c0->stride : none);
    add_sizes(e, zg->rank, zg->stride);
    gd_buffer_add(&e->body, " };\n");
}

gd_status gd_export_recurrent(gd_export *e, const gd_step *step)
{
    const gd_ir_value *value = &e->plan->ir.values[step->value];
    const gd_recurrent_attr *attr = value->attr;
    const bool is_gradient = value->op->id == GD_OP_recurrent_grad, is_lstm = attr->cell == 2;
    if (value->layout.dtype != GD_F32)
        return gd_export_refuse(step, e, gd_dtype_name(value->layout.dtype));
    const int n = value->n, h0 = is_gradient ? 2 : 3;
    const int g = n - 1, lengths = is_gradient ? n - 2 : n - 1;
    const gd_layout *u = layout_of(e, value->in[1]), *first = layout_of(e, value->in[h0]);
    if (u->dtype != GD_F32)
        return gd_export_refuse(step, e, gd_dtype_name(u->dtype));
    const gd_layout *in = layout_of(e, value->in[0]);
    int64_t sizes[3] = { first->shape[0], 0, first->shape[1] }; /* batch, time, width */
    sizes[1] = is_gradient ? in->shape[0] / (sizes[0] * sizes[2] * gd_recurrent_kept(attr->cell))
                           : in->shape[1];
    gd_export_pointers(e, step);
    add_recurrent_shape(e, attr, sizes, u, first, is_lstm ? layout_of(e, value->in[h0 + 1]) : NULL,
                        attr->has_lengths ? layout_of(e, value->in[lengths]) : NULL,
                        is_gradient ? layout_of(e, value->in[g]) : in);
    char c0_name[16] = "NULL", lengths_name[16] = "NULL";
    if (is_lstm)
        snprintf(c0_name, sizeof c0_name, "x%d", h0 + 1);
    if (attr->has_lengths)
        snprintf(lengths_name, sizeof lengths_name, "x%d", lengths);
    if (is_gradient)
        gd_buffer_add(&e->body, "        recurrent_grad(&shape, x0, x1, x2, %s, %s, x%d, %d, ",
                      c0_name, lengths_name, g, attr->part != 0);
    else
        gd_buffer_add(&e->body, "        recurrent(&shape, x0, x1, x2, x3, %s, %s, ", c0_name,
                      lengths_name);
    gd_buffer_add(&e->body, "scratch, r0);\n");
    return GD_OK;
}

/* ---- ctc_alpha, ctc_alpha_grad ---- */

gd_status gd_export_ctc(gd_export *e, const gd_step *step)
{
    const gd_ir_value *value = &e->plan->ir.values[step->value];
    const gd_layout *table = layout_of(e, value->in[0]);
    const bool is_gradient = value->op->id == GD_OP_ctc_alpha_grad;
    gd_export_pointers(e, step);
    gd_buffer_add(&e->body, "        static const ctc_shape shape = { %lld, %lld, %lld",
                  (long long)table->shape[0], (long long)table->shape[1],
                  (long long)table->shape[2]);
    add_sizes(e, 3, table->stride);
    add_sizes(e, 2, layout_of(e, value->in[1])->stride);
    add_sizes(e, 3, is_gradient ? layout_of(e, value->in[2])->stride : value->layout.stride);
    gd_buffer_add(&e->body, " };\n        %s_%s(&shape, x0, x1, %sr0);\n", value->op->name,
                  gd_codegen_suffix(table->dtype), is_gradient ? "x2, " : "");
    return GD_OK;
}
