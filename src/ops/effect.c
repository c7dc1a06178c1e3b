/* ops/effect.c: rows of ops that change storage, and of the groups the compiler makes. */
#include "ops/internal.h"

#include "backend/backend.h"

/* inputs: target, value; the result is the target itself. */
static gd_status infer_assign(int n, const gd_layout *const *in, const void *attr, gd_layout *out)
{
    (void)n, (void)attr;
    if (!gd_layout_same_shape(in[0], in[1]) || in[0]->dtype != in[1]->dtype)
        return gd_fail(GD_ERR_SHAPE, "gd_assign: the value does not fit its target");
    *out = *in[0];
    return GD_OK;
}

const gd_op gd_op_assign = {
    .id = GD_OP_assign, .name = "assign", .arity = 2, .flags = GD_OP_EFFECT, .infer = infer_assign
};

/* Input i broadcast over the group's shape, or over the axes before the rows. */
static bool input_fits(const gd_fused_attr *a, int i, const gd_layout *in)
{
    gd_shape over = a->shape, both;
    if (a->outer_inputs >> i & 1)
        over.rank = gd_fused_outer_axes(a);
    if (!gd_shape_broadcast(over, gd_layout_shape(in), &both) || both.rank != over.rank)
        return false;
    for (int axis = 0; axis < over.rank; axis++)
        if (both.dim[axis] != over.dim[axis])
            return false;
    return true;
}

/* A group with reductions. An instruction that makes a number a row reads such numbers, and inputs
 * that are constant along rows. */
static gd_status check_rows(const gd_fused_attr *a, const gd_layout *const *in)
{
    int64_t length = 1;
    for (int axis = gd_fused_outer_axes(a); axis >= 0 && axis < a->shape.rank; axis++)
        length *= a->shape.dim[axis];
    if (gd_fused_outer_axes(a) < 0 || length < 2 || length > GD_FUSED_MOST_ROW)
        return gd_fail(GD_ERR_INVALID, "fused: rows of %lld elements", (long long)length);
    for (int i = 0; i < a->n_inputs; i++)
        if (!input_fits(a, i, in[i]))
            return gd_fail(GD_ERR_SHAPE, "fused: operand %d does not broadcast to the group", i);
    for (int i = 0; i < a->n_instructions; i++) {
        const gd_fused_instruction *made = &a->instruction[i];
        bool reduces = gd_fused_reduces(made->op);
        if (reduces && !made->is_row)
            return gd_fail(GD_ERR_INVALID, "fused: a reduction that makes a whole value");
        for (int k = 0; k < (reduces ? 1 : gd_op_row((gd_op_id)made->op)->arity); k++) {
            int from = made->from[k] - a->n_inputs;
            if (from >= i)
                return gd_fail(GD_ERR_INVALID, "fused: an operand comes after its reader");
            if (reduces && (from >= 0 ? a->instruction[from].is_row
                                      : gd_fused_is_row_input(a, made->from[k], in[made->from[k]])))
                return gd_fail(GD_ERR_INVALID, "fused: a reduction of a number of a row");
            if (!made->is_row || reduces)
                continue;
            if (from >= 0 ? !a->instruction[from].is_row
                          : !gd_fused_is_row_input(a, made->from[k], in[made->from[k]]))
                return gd_fail(GD_ERR_INVALID, "fused: a number of a row made of a whole value");
        }
    }
    return GD_OK;
}

/* The compiler knows the result's layout and does not ask; a group is described by gd_fused_attr
 * (backend/backend.h). */
static gd_status infer_fused(int n, const gd_layout *const *in, const void *attr, gd_layout *out)
{
    const gd_fused_attr *a = attr;
    if (n != a->n_inputs || a->n_instructions < 1)
        return gd_fail(GD_ERR_INVALID, "fused: %d operands, %d expected", n, a->n_inputs);
    gd_dtype dtype = (gd_dtype)a->instruction[a->n_instructions - 1].dtype;
    if (a->row_axes > 0) {
        gd_status status = check_rows(a, in);
        return status == GD_OK ? gd_layout_init(out, a->result, dtype, "fused") : status;
    }
    gd_shape shape = a->drawn_inputs ? a->shape : GD_SCALAR;
    for (int i = 0; i < n; i++)
        if (!(a->drawn_inputs >> i & 1) &&
            !gd_shape_broadcast(shape, gd_layout_shape(in[i]), &shape))
            return gd_fail(GD_ERR_SHAPE, "fused: operands do not broadcast together");
    return gd_layout_init(out, shape, dtype, "fused");
}

static void format_fused(const void *attr, char *text, size_t size)
{
    const gd_fused_attr *a = attr;
    gd_text t = { text, size, 0 };
    for (int i = 0; i < a->n_inputs; i++)
        if (a->drawn_inputs >> i & 1)
            gd_text_add(&t, "random_bits ");
    for (int i = 0, k = 0; i < a->n_instructions; i++) {
        bool is_result =
            k < a->n_extra && a->extra[k] == i; /* marked, as it does not end the group */
        k += is_result;
        if (a->instruction[i].op == GD_OP_extra_result)
            continue;
        gd_text_add(&t, "%s%s%s", i ? " " : "", gd_op_row((gd_op_id)a->instruction[i].op)->name,
                    is_result ? "*" : "");
    }
}

gd_fused_attr gd_fused_adam(const gd_op *op)
{
    const bool is_bf16 = op->id == GD_OP_adam_bf16;
    gd_fused_attr group;
    memset(&group, 0, sizeof group);
    group.n_inputs = op->arity;
    group.n_instructions = GD_ADAM_RESULTS;
    group.n_extra = GD_ADAM_RESULTS - 1;
    for (int i = 0; i < GD_ADAM_RESULTS; i++) {
        gd_fused_instruction *instruction = &group.instruction[i];
        instruction->op = (int16_t)(i ? GD_OP_extra_result : op->id);
        instruction->dtype = is_bf16 && i != GD_ADAM_NEXT_P ? GD_BF16 : GD_F32;
        instruction->compute = GD_F32;
        for (int k = 0; k < op->arity && i == 0; k++)
            instruction->from[k] = (int16_t)k;
        if (i > 0) {
            instruction->from[0] = (int16_t)op->arity;
            instruction->from[1] = (int16_t)(i - 1);
            group.extra[i - 1] = (int16_t)i;
        }
    }
    return group;
}

static double flops_of_instruction(const gd_fused_instruction *instruction)
{
    return gd_is_adam((gd_op_id)instruction->op)   ? GD_ADAM_FLOPS
           : instruction->op == GD_OP_extra_result ? 0
                                                   : 1;
}

/* One for each elementwise op and element; for each row where it makes a number of the row, and is no
 * reduction. */
static double flops_fused(int n, const gd_layout *const *in, const gd_layout *out, const void *attr)
{
    (void)n, (void)in;
    const gd_fused_attr *a = attr;
    double rows = 1, length = 1, flops = 0;
    for (int i = 0; i < a->n_instructions && a->row_axes == 0; i++)
        flops += flops_of_instruction(&a->instruction[i]) * (double)gd_layout_count(out);
    if (a->row_axes == 0)
        return flops;
    for (int axis = 0; axis < a->shape.rank; axis++)
        *(axis < gd_fused_outer_axes(a) ? &rows : &length) *= (double)a->shape.dim[axis];
    for (int i = 0; i < a->n_instructions; i++) {
        const gd_fused_instruction *made = &a->instruction[i];
        flops += made->is_row && !gd_fused_reduces(made->op) ? rows : rows * length;
    }
    return flops;
}

const gd_op gd_op_fused = { .id = GD_OP_fused,
                            .name = "fused",
                            .arity = GD_OP_VARIADIC,
                            .flags = GD_OP_COMPILER_ONLY,
                            .attr_size = sizeof(gd_fused_attr),
                            .infer = infer_fused,
                            .format = format_fused,
                            .flops = flops_fused,
                            .recompute = GD_RECOMPUTE_MOVES };

static gd_status infer_extra_result(int n, const gd_layout *const *in, const void *attr,
                                    gd_layout *out)
{
    (void)n, (void)in;
    const gd_extra_result_attr *a = attr;
    return gd_layout_init(out, a->shape, (gd_dtype)a->dtype, "extra_result");
}

const gd_op gd_op_extra_result = { .id = GD_OP_extra_result,
                                   .name = "extra_result",
                                   .arity = 1,
                                   .flags = GD_OP_COMPILER_ONLY,
                                   .attr_size = sizeof(gd_extra_result_attr),
                                   .infer = infer_extra_result,
                                   .flops = gd_flops_none,
                                   .recompute = GD_RECOMPUTE_MOVES };
