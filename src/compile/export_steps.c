/* compile/export_steps.c: one step of a plan as C statements. A row a kind of op: the table at the
 * end. Elementwise code comes from the formulas of ops/elementwise.def. */
#include "compile/export.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/quantized_form.h"

/* ---- elementwise ---- */

/* made[r]: the instruction that makes result r. */
static void export_group(gd_export *e, const gd_step *step, const gd_fused_attr *group,
                         const int *made)
{
    const gd_ir *ir = &e->plan->ir;
    const gd_ir_value *v = &ir->values[step->value];
    const gd_layout *operands[GD_LOOP_OPERANDS];
    gd_dtype dtypes[GD_FUSED_MAX_INPUTS + GD_FUSED_MAX_INSTRUCTIONS];
    for (int k = 0; k < v->n; k++) {
        const bool draws = gd_fused_draws(v->op, v->attr, k);
        operands[k] = draws ? &v->layout : &ir->values[v->in[k]].layout;
        dtypes[k] = draws ? GD_I32 : operands[k]->dtype;
        gd_export_pointer(e, "x", k, v->in[k], false);
    }
    for (int i = 0; i < group->n_instructions; i++)
        dtypes[v->n + i] = (gd_dtype)group->instruction[i].dtype;
    for (int r = 0; r <= group->n_extra; r++) {
        operands[v->n + r] = &v->layout;
        gd_export_pointer(e, "r", r, step->value + r, true);
    }
    gd_loops l;
    gd_codegen_merge(&l, &v->layout, operands, v->n + 1);
    gd_export_open_loops(e, &l, "i", 8);
    gd_buffer_add(&e->body, "        {\n");
    for (int k = 0; k < v->n; k++) {
        if (gd_fused_draws(v->op, v->attr, k)) {
            gd_export_word(e, step, &l, k);
            continue;
        }
        gd_buffer_add(&e->body, "            const %s v%d = x%d[", gd_codegen_type(dtypes[k]), k,
                      k);
        gd_export_index(e, &l, k, "i");
        gd_buffer_add(&e->body, "];\n");
    }
    for (int i = 0; i < group->n_instructions; i++)
        gd_codegen_instruction(&e->functions, &e->body, group, i, dtypes);
    for (int r = 0; r <= group->n_extra; r++) {
        gd_buffer_add(&e->body, "            r%d[", r);
        gd_export_index(e, &l, v->n, "i");
        gd_buffer_add(&e->body, "] = v%d;\n", v->n + made[r]);
    }
    gd_buffer_add(&e->body, "        }\n");
}

static gd_status export_fused(gd_export *e, const gd_step *step)
{
    const gd_fused_attr *group = step->call.attr;
    for (int i = 0; i < group->n_instructions; i++)
        if (gd_export_check_type((gd_dtype)group->instruction[i].dtype) != GD_OK)
            return gd_error_last();
    if (group->row_axes > 0)
        return gd_export_rows(e, step);
    int made[1 + GD_FUSED_MAX_EXTRA] = { group->n_instructions - 1 };
    for (int r = 1; r <= group->n_extra; r++) {
        const gd_ir_value *extra = &e->plan->ir.values[step->value + r];
        made[r] = group->extra[((const gd_extra_result_attr *)extra->attr)->index];
    }
    export_group(e, step, group, made);
    return GD_OK;
}

static gd_status export_adam(gd_export *e, const gd_step *step)
{
    const gd_fused_attr group = gd_fused_adam(e->plan->ir.values[step->value].op);
    export_group(e, step, &group, (const int[]){ 0, 1, 2 });
    return GD_OK;
}

/* A row or a cast: a group of one. */
static gd_status export_row(gd_export *e, const gd_step *step)
{
    const gd_ir_value *v = &e->plan->ir.values[step->value];
    const gd_dtype computes = e->plan->ir.values[v->in[v->n - 1]].layout.dtype;
    const gd_fused_attr group = gd_codegen_group_of_one(v->op, v->n, computes, v->layout.dtype);
    export_group(e, step, &group, &(const int){ 0 });
    return GD_OK;
}

/* copy: input 0 to the result; assign: input 1 to input 0. */
static gd_status export_copy(gd_export *e, const gd_step *step)
{
    const gd_ir *ir = &e->plan->ir;
    const gd_ir_value *v = &ir->values[step->value];
    bool assigns = gd_ir_is_effect(v);
    int32_t to = assigns ? v->in[0] : step->value, from = v->in[assigns];
    gd_export_pointer(e, "x", 0, from, false);
    gd_export_pointer(e, "r", 0, to, true);
    gd_loops l;
    gd_codegen_merge(&l, &ir->values[to].layout,
                     (const gd_layout *[]){ &ir->values[from].layout, &ir->values[to].layout }, 2);
    gd_export_open_loops(e, &l, "i", 8);
    gd_buffer_add(&e->body, "%sr0[", gd_export_indent(&l));
    gd_export_index(e, &l, 1, "i");
    gd_buffer_add(&e->body, "] = x0[");
    gd_export_index(e, &l, 0, "i");
    gd_buffer_add(&e->body, "];\n");
    return GD_OK;
}

/* ---- matrix products ---- */

static gd_status export_product(gd_export *e, const gd_step *step)
{
    const gd_ir *ir = &e->plan->ir;
    const gd_ir_value *v = &ir->values[step->value];
    const gd_layout *a = &ir->values[v->in[0]].layout, *b = &ir->values[v->in[1]].layout;
    bool is_linear = v->op->id == GD_OP_linear;
    if (a->rank < 2 || b->rank < 2 || !gd_dtype_is_float(v->layout.dtype) ||
        gd_dtype_is_half(a->dtype))
        return gd_fail(GD_ERR_UNSUPPORTED, "gd_export_c: there is no C text for this %s",
                       v->op->name);
    gd_export_pointers(e, step);
    /* The batch axes, as loops over what is left without the last two. */
    gd_layout batch[3] = { *a, *b, v->layout };
    for (int k = 0; k < 3; k++)
        batch[k].rank -= 2;
    gd_loops l;
    gd_codegen_merge(&l, &batch[2], (const gd_layout *[]){ &batch[0], &batch[1], &batch[2] }, 3);
    gd_export_open_loops(e, &l, "i", 8);
    int ar = a->rank, br = b->rank, rank = v->layout.rank;
    gd_buffer_add(&e->body, "%smatmul_%s(%lld, %lld, %lld, ", gd_export_indent(&l),
                  gd_codegen_suffix(v->layout.dtype), (long long)v->layout.shape[rank - 2],
                  (long long)v->layout.shape[rank - 1], (long long)a->shape[ar - 1]);
    gd_export_place(e, &l, "x0", 0);
    gd_buffer_add(&e->body, ", %lld, %lld, ", (long long)a->stride[ar - 2],
                  (long long)a->stride[ar - 1]);
    gd_export_place(e, &l, "x1", 1);
    gd_buffer_add(&e->body, ", %lld, %lld, ", (long long)b->stride[br - 2],
                  (long long)b->stride[br - 1]);
    if (is_linear && v->n > 2)
        gd_buffer_add(&e->body, "x2, %lld, ", (long long)ir->values[v->in[2]].layout.stride[0]);
    else
        gd_buffer_add(&e->body, "NULL, 0, ");
    gd_buffer_add(&e->body, "%d, ", is_linear && ((const gd_linear_attr *)v->attr)->relu ? 1 : 0);
    gd_export_place(e, &l, "r0", 2);
    gd_buffer_add(&e->body, ");\n");
    if (v->op->id == GD_OP_matmul_relu_grad)
        gd_buffer_add(&e->body,
                      "        for (int64_t i = 0; i < %lld; i++)\n"
                      "            r0[i] = x2[i] > 0 ? r0[i] : 0;\n",
                      (long long)gd_layout_count(&v->layout));
    return GD_OK;
}

static gd_status export_quantized(gd_export *e, const gd_step *step)
{
    const gd_ir_value *v = &e->plan->ir.values[step->value];
    const gd_layout *w = &e->plan->ir.values[v->in[1]].layout;
    if (e->plan->ir.values[v->in[2]].layout.dtype != GD_F32)
        return gd_export_refuse(step, e, "scales of f16");
    const int64_t scales = e->plan->ir.values[v->in[2]].layout.shape[1], columns = w->shape[0];
    const long long rows = gd_layout_count(&v->layout) / (columns ? columns : 1);
    gd_quantized_form form;
    (void)gd_quantized_form_of(w->dtype == GD_U8, w->shape[1], scales, &form);
    gd_export_pointers(e, step);
    if (form.groups)
        gd_buffer_add(&e->body,
                      "        grouped_linear(%lld, %lld, %lld, %d, %d, %d, %d, x0, x1, x2, r0);\n",
                      rows, (long long)columns, (long long)scales / form.scales, form.bytes,
                      form.groups, form.four_bits, form.has_least);
    else
        gd_buffer_add(
            &e->body, "        quantized_linear(%lld, %lld, %lld, %d, %d, x0, x1, x2, r0);\n", rows,
            (long long)columns, (long long)scales / form.scales, form.four_bits, form.has_least);
    return GD_OK;
}

/* ---- softmax and cross-entropy ---- */

static gd_status export_softmax(gd_export *e, const gd_step *step)
{
    const gd_ir *ir = &e->plan->ir;
    const gd_ir_value *v = &ir->values[step->value];
    const gd_layout *in = &ir->values[v->in[0]].layout;
    const int axis = ((const gd_axis_attr *)v->attr)->axis;
    if (in->rank == 0)
        return gd_export_refuse(step, e, "a scalar");
    gd_export_pointers(e, step);
    gd_layout lines[2] = { *in, v->layout };
    lines[0].shape[axis] = lines[1].shape[axis] = 1;
    gd_loops l;
    gd_codegen_merge(&l, &lines[1], (const gd_layout *[]){ &lines[0], &lines[1] }, 2);
    gd_export_open_loops(e, &l, "i", 8);
    gd_buffer_add(&e->body, "%s%s_%s(", gd_export_indent(&l), v->op->name,
                  gd_codegen_suffix(v->layout.dtype));
    gd_export_place(e, &l, "x0", 0);
    gd_buffer_add(&e->body, ", %lld, %lld, %d, ", (long long)in->shape[axis],
                  (long long)in->stride[axis], axis != in->rank - 1);
    gd_export_place(e, &l, "r0", 1);
    gd_buffer_add(&e->body, ", %lld);\n", (long long)v->layout.stride[axis]);
    return GD_OK;
}

/* Inputs: logits [rows, n], labels [rows], and for the gradient g [rows]. */
static gd_status export_loss(gd_export *e, const gd_step *step)
{
    const gd_ir *ir = &e->plan->ir;
    const gd_ir_value *v = &ir->values[step->value];
    const gd_layout *x = &ir->values[v->in[0]].layout, *label = &ir->values[v->in[1]].layout;
    bool is_gradient = v->op->id == GD_OP_cross_entropy_grad;
    if (x->stride[1] != 1 && x->shape[1] != 1)
        return gd_fail(GD_ERR_UNSUPPORTED, "gd_export_c: there is no C text for %s of columns",
                       v->op->name);
    gd_export_pointers(e, step);
    long long n = x->shape[1], rows = x->shape[0];
    const char *suffix = gd_codegen_suffix(v->layout.dtype);
    gd_buffer_add(&e->body, "        for (int64_t i = 0; i < %lld; i++) {\n", rows);
    gd_buffer_add(&e->body, "            const int64_t label = x1[i * %lld];\n",
                  (long long)label->stride[0]);
    gd_buffer_add(&e->body,
                  "            if (label < 0 || label >= %lld)\n                return 1;\n", n);
    if (is_gradient)
        gd_buffer_add(&e->body,
                      "            cross_entropy_grad_%s(x0 + i * %lld, %lld, 1, label, x2[i * "
                      "%lld], r0 + i * %lld);\n",
                      suffix, (long long)x->stride[0], n,
                      (long long)ir->values[v->in[2]].layout.stride[0], n);
    else
        gd_buffer_add(&e->body,
                      "            r0[i] = cross_entropy_%s(x0 + i * %lld, %lld, 1, label);\n",
                      suffix, (long long)x->stride[0], n);
    gd_buffer_add(&e->body, "        }\n");
    return GD_OK;
}

/* ---- the table ---- */

static const gd_export_writer writers[GD_OP_COUNT] = {
    [GD_OP_fused] = export_fused,
    [GD_OP_adam] = export_adam,
    [GD_OP_cast] = export_row,
    [GD_OP_copy] = export_copy,
    [GD_OP_assign] = export_copy,
    [GD_OP_matmul] = export_product,
    [GD_OP_linear] = export_product,
    [GD_OP_matmul_relu_grad] = export_product,
    [GD_OP_quantized_linear] = export_quantized,
    [GD_OP_sum] = gd_export_reduction,
    [GD_OP_prod] = gd_export_reduction,
    [GD_OP_max] = gd_export_reduction,
    [GD_OP_min] = gd_export_reduction,
    [GD_OP_argmax] = gd_export_arg_reduction,
    [GD_OP_argmin] = gd_export_arg_reduction,
    [GD_OP_cumsum] = gd_export_scan,
    [GD_OP_cumprod] = gd_export_scan,
    [GD_OP_iota] = gd_export_iota,
    [GD_OP_random_bits] = gd_export_random,
    [GD_OP_dropout] = gd_export_dropout,
    [GD_OP_pad] = gd_export_pad,
    [GD_OP_concat] = gd_export_concat,
    [GD_OP_gather] = gd_export_gather,
    [GD_OP_scatter_add] = gd_export_scatter,
    [GD_OP_scatter] = gd_export_scatter,
    [GD_OP_argsort] = gd_export_sort,
    [GD_OP_searchsorted] = gd_export_search,
    [GD_OP_normalize] = gd_export_norm,
    [GD_OP_normalize_grad] = gd_export_norm,
    [GD_OP_centred_products] = gd_export_centred,
    [GD_OP_attention] = gd_export_attention,
    [GD_OP_attention_narrow] = gd_export_attention,
    [GD_OP_attention_grad] = gd_export_attention,
    [GD_OP_recurrent] = gd_export_recurrent,
    [GD_OP_recurrent_grad] = gd_export_recurrent,
    [GD_OP_softmax] = export_softmax,
    [GD_OP_log_softmax] = export_softmax,
    [GD_OP_cross_entropy] = export_loss,
    [GD_OP_cross_entropy_grad] = export_loss,
    [GD_OP_ctc_alpha] = gd_export_ctc,
    [GD_OP_ctc_alpha_grad] = gd_export_ctc,
    [GD_OP_full] = gd_export_full,
    [GD_OP_convolution] = gd_export_convolution,
    [GD_OP_convolution_grad_input] = gd_export_convolution,
    [GD_OP_convolution_grad_weight] = gd_export_convolution,
    [GD_OP_max_pool] = gd_export_pooling,
    [GD_OP_max_pool_index] = gd_export_pooling,
    [GD_OP_max_pool_grad] = gd_export_pooling,
    [GD_OP_avg_pool] = gd_export_pooling,
    [GD_OP_avg_pool_grad] = gd_export_pooling,
};

static gd_export_writer writer_of(gd_op_id id)
{
    return gd_op_row(id)->flags & GD_OP_ELEMENTWISE ? export_row : writers[id];
}

bool gd_export_has_writer(gd_op_id id)
{
    return writer_of(id) || (gd_op_row(id)->flags & GD_OP_VIEW) || id == GD_OP_extra_result;
}

gd_status gd_export_refuse(const gd_step *step, const gd_export *e, const char *of_what)
{
    return gd_fail(GD_ERR_UNSUPPORTED, "gd_export_c: there is no C text for %s%s%s",
                   e->plan->ir.values[step->value].op->name, of_what ? " of " : "",
                   of_what ? of_what : "");
}

gd_status gd_export_step(gd_export *e, const gd_step *step)
{
    const gd_op *op = e->plan->ir.values[step->value].op;
    gd_export_writer write = writer_of((gd_op_id)op->id);
    if (!write)
        return gd_export_refuse(step, e, NULL);
    char attr[512] = "";
    if (op->format)
        op->format(step->call.attr, attr, sizeof attr);
    gd_buffer_add(&e->body, "    { /* %s%s%s */\n", op->name, attr[0] ? ": " : "", attr);
    gd_status status = write(e, step);
    gd_buffer_add(&e->body, "    }\n");
    return status;
}
