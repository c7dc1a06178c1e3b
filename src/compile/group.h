/* compile/group.h: rewriting fused groups without reductions. A draft is a group taken apart:
 * instructions may be put before its own, and results given up, before it is put together again. */
#ifndef GD_COMPILE_GROUP_H
#define GD_COMPILE_GROUP_H

#include "backend/backend.h"
#include "compile/ir.h"

/* Operands are numbered as follows: input i is i, instruction i is GD_FUSED_MAX_INPUTS + i. */
#define GD_DRAFT_MOST (2 * GD_FUSED_MAX_ELEMENTWISE)
typedef struct gd_group_draft {
    int32_t in[GD_FUSED_MAX_INPUTS];
    gd_fused_instruction instruction[GD_DRAFT_MOST];
    bool is_result[GD_DRAFT_MOST]; /* the last instruction is one */
    int n_inputs, n_instructions;
    gd_shape shape;
} gd_group_draft;

/* Take op v apart. false: it is neither elementwise nor a group without reductions. */
bool gd_group_open(const gd_ir *ir, const gd_ir_value *v, gd_group_draft *draft);

/* Put it together: equal instructions and what no result needs are left out. `in` has
 * room for GD_FUSED_MAX_INPUTS values. false: it does not fit into a group. */
bool gd_group_close(const gd_group_draft *draft, const gd_device_limits *limits,
                    gd_fused_attr *attr, int32_t *in);

/* Whether the group's instructions behind the one that makes extra result `made` read operand k.
 */
bool gd_group_reads_behind(const gd_ir_value *group, const gd_ir_value *made, int k);

#endif
