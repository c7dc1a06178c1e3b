/* backend/cpu/elementwise_adam.c: Adam's update, recognised among the instructions of a fused
 * group. Instruction by instruction it is a dozen loops over a tile, most of whose time goes into
 * storing what the next one loads; as one loop (gd_ew_table.adam) it reads and writes each number
 * once. The operations and their order are the same, and so are the bits. Start at gd_ew_find_adam.
 */
#include "backend/cpu/elementwise_program.h"

#include <string.h>

/* The update as optim/rules_adam.c writes it: each node is an instruction, and its operands are
 * nodes or leaves. Leaves are numbered from NODES on. */
enum {
    DIFFERENCE,
    CHANGE,
    MOVED,
    FIRST_MOMENT,
    OLD_SHARE,
    SCALED_G,
    NEW_SHARE,
    MIXED,
    SECOND_MOMENT,
    ROOT,
    DENOMINATOR,
    NUMERATOR,
    STEP,
    DECAYED,
    UPDATED
};
enum { NODES = UPDATED + 1 };
_Static_assert(UPDATED == GD_EW_ADAM_NODES - 1, "room for all nodes");
#define LEAF(name) (NODES + GD_EW_ADAM_##name)
static const struct {
    int16_t op;
    uint8_t from[2];
} nodes[NODES] = {
    [DIFFERENCE] = { GD_OP_sub, { LEAF(G), LEAF(M) } },
    [CHANGE] = { GD_OP_mul, { DIFFERENCE, LEAF(REST1) } },
    [MOVED] = { GD_OP_add, { LEAF(M), CHANGE } },
    [FIRST_MOMENT] = { GD_OP_flush_subnormal, { MOVED } },
    [OLD_SHARE] = { GD_OP_mul, { LEAF(V), LEAF(BETA2) } },
    [SCALED_G] = { GD_OP_mul, { LEAF(G), LEAF(REST2) } },
    [NEW_SHARE] = { GD_OP_mul, { SCALED_G, LEAF(G) } },
    [MIXED] = { GD_OP_add, { OLD_SHARE, NEW_SHARE } },
    [SECOND_MOMENT] = { GD_OP_flush_subnormal, { MIXED } },
    [ROOT] = { GD_OP_sqrt, { SECOND_MOMENT } },
    [DENOMINATOR] = { GD_OP_add, { ROOT, LEAF(EPSILON) } },
    [NUMERATOR] = { GD_OP_mul, { FIRST_MOMENT, LEAF(STEP_SIZE) } },
    [STEP] = { GD_OP_div, { NUMERATOR, DENOMINATOR } },
    [DECAYED] = { GD_OP_mul, { LEAF(P), LEAF(DECAY) } }, /* or p itself */
    [UPDATED] = { GD_OP_sub, { DECAYED, STEP } },
};

/* Whether `value` is what node or leaf `node` stands for; notes what it found. */
static bool match(const gd_fused_attr *attr, int node, int value, gd_ew_adam *found)
{
    if (node >= NODES) {
        int16_t *leaf = &found->leaf[node - NODES];
        if (*leaf < 0)
            *leaf = (int16_t)value;
        return *leaf == value;
    }
    int i = value - attr->n_inputs;
    if (node == DECAYED && i < 0)
        return match(attr, LEAF(P), value, found);
    if (i < 0)
        return false;
    const gd_fused_instruction *instruction = &attr->instruction[i];
    if (instruction->op != nodes[node].op || instruction->dtype != GD_F32 ||
        instruction->compute != GD_F32)
        return false;
    found->node[node] = (int16_t)i;
    return match(attr, nodes[node].from[0], instruction->from[0], found) &&
           (gd_op_row((gd_op_id)instruction->op)->arity == 1 ||
            match(attr, nodes[node].from[1], instruction->from[1], found));
}

/* Whether the operands have the layouts that the loop reads. */
static bool takes(const gd_ew_program *p, const gd_fused_attr *attr, const gd_kernel_call *call,
                  const gd_ew_adam *found)
{
    for (int k = 0; k < GD_EW_ADAM_LEAVES; k++) {
        int leaf = found->leaf[k];
        if (leaf < 0 && k == GD_EW_ADAM_DECAY)
            continue;
        bool is_input = leaf < attr->n_inputs;
        gd_dtype dtype = is_input ? call->in[leaf].layout->dtype
                                  : (gd_dtype)attr->instruction[leaf - attr->n_inputs].dtype;
        if (dtype != GD_F32 || (!is_input && k != GD_EW_ADAM_G))
            return false;
        for (int axis = 0; axis < p->rank && k >= GD_EW_ADAM_NUMBERS; axis++)
            if (p->shape[axis] > 1 && p->source[leaf].stride[axis] != 0)
                return false;
    }
    return true;
}

bool gd_ew_adam_holds(const gd_ew_adam *found, int i)
{
    for (int k = 0; k < NODES && i >= 0; k++) /* nodes that are not there are -1, inputs below 0 */
        if (found->node[k] == i)
            return true;
    return false;
}

/* Whether no node but the new p, m and v is read by other instructions, and these are results. */
static bool is_closed(const gd_fused_attr *attr, const gd_ew_adam *found)
{
    int results = 0;
    for (int i = 0; i < attr->n_instructions; i++) {
        bool is_result = i == attr->n_instructions - 1;
        for (int r = 0; r < attr->n_extra; r++)
            is_result |= attr->extra[r] == i;
        if (gd_ew_adam_holds(found, i)) {
            bool may_be = i == found->node[UPDATED] || i == found->node[FIRST_MOMENT] ||
                          i == found->node[SECOND_MOMENT];
            if (is_result != may_be)
                return false;
            results += is_result;
            continue;
        }
        for (int k = 0; k < 3; k++) /* operands that an op does not have are 0, an input */
            if (gd_ew_adam_holds(found, attr->instruction[i].from[k] - attr->n_inputs))
                return false;
    }
    return results == GD_EW_ADAM_RESULTS;
}

bool gd_ew_find_adam(const gd_ew_program *p, const gd_fused_attr *attr, const gd_kernel_call *call,
                     gd_ew_adam *found)
{
    if (attr->row_axes > 0 || attr->n_extra < GD_EW_ADAM_RESULTS - 1)
        return false;
    for (int i = attr->n_instructions - 1; i >= 0; i--) {
        memset(found, -1, sizeof *found);
        if (match(attr, UPDATED, attr->n_inputs + i, found) && takes(p, attr, call, found) &&
            is_closed(attr, found)) {
            found->result[0] = found->node[UPDATED];
            found->result[1] = found->node[FIRST_MOMENT];
            found->result[2] = found->node[SECOND_MOMENT];
            return true;
        }
    }
    return false;
}
