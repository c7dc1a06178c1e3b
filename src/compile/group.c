/* compile/group.c: taking fused groups apart and putting them together again. */
#include "compile/group.h"

#include <string.h>

static void open_op(const gd_ir *ir, const gd_ir_value *v, gd_group_draft *draft)
{
    gd_fused_instruction *instruction = &draft->instruction[0];
    instruction->op = (int16_t)v->op->id;
    instruction->dtype = (int16_t)v->layout.dtype;
    instruction->compute = (int16_t)ir->values[v->in[v->n - 1]].layout.dtype;
    for (int k = 0; k < v->n; k++) {
        draft->in[k] = v->in[k];
        instruction->from[k] = (int16_t)k;
    }
    draft->n_inputs = v->n;
    draft->n_instructions = 1;
    draft->is_result[0] = true;
}

static void open_fused(const gd_ir_value *v, gd_group_draft *draft)
{
    const gd_fused_attr *attr = v->attr;
    draft->n_inputs = attr->n_inputs;
    draft->n_instructions = attr->n_instructions;
    memcpy(draft->in, v->in, sizeof(int32_t) * (size_t)attr->n_inputs);
    memcpy(draft->instruction, attr->instruction,
           sizeof *attr->instruction * (size_t)attr->n_instructions);
    for (int i = 0; i < attr->n_instructions; i++)
        for (int k = 0; k < gd_op_row((gd_op_id)attr->instruction[i].op)->arity; k++)
            if (draft->instruction[i].from[k] >= attr->n_inputs)
                draft->instruction[i].from[k] =
                    (int16_t)(draft->instruction[i].from[k] - attr->n_inputs + GD_FUSED_MAX_INPUTS);
    for (int i = 0; i < attr->n_extra; i++)
        draft->is_result[attr->extra[i]] = true;
    draft->is_result[attr->n_instructions - 1] = true;
}

bool gd_group_open(const gd_ir *ir, const gd_ir_value *v, gd_group_draft *draft)
{
    if (v->kind != GD_IR_OP)
        return false;
    memset(draft, 0, sizeof *draft);
    draft->shape = gd_layout_shape(&v->layout);
    if ((v->op->flags & GD_OP_ELEMENTWISE) || v->op->id == GD_OP_cast)
        open_op(ir, v, draft);
    else if (v->op->id == GD_OP_fused && ((const gd_fused_attr *)v->attr)->row_axes == 0)
        open_fused(v, draft);
    else
        return false;
    return true;
}

/* to[i]: the instruction that makes what instruction i makes: the first of equal ones, but results
 * stay what they are. The draft's operands are renamed so. */
static void merge_equal(gd_group_draft *draft)
{
    int16_t to[GD_DRAFT_MOST];
    for (int i = 0; i < draft->n_instructions; i++) {
        gd_fused_instruction *v = &draft->instruction[i];
        for (int k = 0; k < gd_op_row((gd_op_id)v->op)->arity; k++)
            if (v->from[k] >= GD_FUSED_MAX_INPUTS)
                v->from[k] = (int16_t)(GD_FUSED_MAX_INPUTS + to[v->from[k] - GD_FUSED_MAX_INPUTS]);
        int first = 0;
        while (memcmp(&draft->instruction[first], v, sizeof *v) != 0)
            first++;
        to[i] = (int16_t)first;
    }
}

bool gd_group_close(const gd_group_draft *draft, const gd_device_limits *limits,
                    gd_fused_attr *attr, int32_t *in)
{
    gd_group_draft d = *draft;
    bool needed[GD_FUSED_MAX_INPUTS + GD_DRAFT_MOST] = { false };
    int16_t number[GD_FUSED_MAX_INPUTS + GD_DRAFT_MOST];
    merge_equal(&d);
    for (int i = d.n_instructions; i-- > 0;) {
        needed[GD_FUSED_MAX_INPUTS + i] |= d.is_result[i];
        for (int k = 0; k < gd_op_row((gd_op_id)d.instruction[i].op)->arity; k++)
            needed[d.instruction[i].from[k]] |= needed[GD_FUSED_MAX_INPUTS + i];
    }
    memset(attr, 0, sizeof *attr);
    for (int i = 0; i < d.n_inputs; i++)
        if (needed[i]) {
            number[i] = (int16_t)attr->n_inputs;
            in[attr->n_inputs++] = d.in[i];
        }
    for (int i = 0; i < d.n_instructions; i++) {
        if (!needed[GD_FUSED_MAX_INPUTS + i])
            continue;
        bool is_more = d.is_result[i] && i < d.n_instructions - 1;
        if (attr->n_instructions == limits->group_instructions ||
            (is_more && attr->n_extra == limits->group_results))
            return false;
        if (is_more)
            attr->extra[attr->n_extra++] = (int16_t)attr->n_instructions;
        gd_fused_instruction *v = &attr->instruction[attr->n_instructions];
        *v = d.instruction[i];
        for (int k = 0; k < gd_op_row((gd_op_id)v->op)->arity; k++)
            v->from[k] = number[v->from[k]];
        number[GD_FUSED_MAX_INPUTS + i] = (int16_t)(attr->n_inputs + attr->n_instructions++);
    }
    attr->shape = attr->result = d.shape;
    return attr->n_inputs <= limits->group_inputs;
}

bool gd_group_reads_behind(const gd_ir_value *group, const gd_ir_value *made, int k)
{
    const gd_fused_attr *a = group->attr;
    if (group->op->id != GD_OP_fused) /* all results at once, place by place */
        return false;
    for (int i = a->extra[((const gd_extra_result_attr *)made->attr)->index] + 1;
         i < a->n_instructions; i++)
        for (int o = 0; o < gd_op_row((gd_op_id)a->instruction[i].op)->arity; o++)
            if (a->instruction[i].from[o] == k)
                return true;
    return false;
}
