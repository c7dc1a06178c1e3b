/* compile/ir.h: the program between a trace and a plan: a list of values in the order the body made
 * them. A value's number is its place in the list. Passes rewrite the list; order is changed by
 * the passes sink, fuse, schedule and multi_tensor alone.
 *
 * A value is one result of one op. A fused group with several results is the op itself, whose value
 * is the last instruction's, directly followed by an `extra_result` for each other one; and so is an
 * op whose row has extra results (adam). */
#ifndef GD_COMPILE_IR_H
#define GD_COMPILE_IR_H

#include "base/arena.h"
#include "backend/backend.h"
#include "graph/context.h"
#include "graph/trace.h"
#include "ops/attrs.h"

typedef enum gd_ir_kind {
    GD_IR_DEAD,     /* removed */
    GD_IR_INPUT,    /* an argument of the function */
    GD_IR_EXTERNAL, /* a tensor that exists outside: a parameter, a state */
    GD_IR_OP,
} gd_ir_kind;

typedef struct gd_ir_value {
    gd_ir_kind kind;
    int32_t n; /* operands */
    int32_t *in;
    const gd_op *op;
    const void *attr;
    gd_layout layout;    /* for a view: over the storage of `root` */
    int32_t root;        /* the value whose memory this one lies in; itself unless a view */
    int32_t memory;      /* of a root: the number of the storage outside the plan it lies in, below
                            memory_count; -1: it is an argument or the plan's own */
    int32_t input;       /* INPUT: which */
    gd_tensor *external; /* EXTERNAL: retained by the IR. OP: where the value is to be made, or NULL
                            (pass forward); `memory` is the number of its storage */
    int32_t version;     /* EXTERNAL: how many assignments to its storage came before */
    bool requires_grad;  /* EXTERNAL: when it was recorded */
    int32_t origin;      /* pass rematerialise: the value whose contents it has */
    bool is_recomputed;  /* by that pass */
    bool is_joined;      /* one kernel with the op before (pass multi_tensor) */
    uint8_t phase;       /* a gd_phase; of a fused group, its last op's */
    uint32_t region; /* equal ops of different regions are not merged (gradient checkpointing) */
    bool is_output;
    bool is_constant; /* depends on nothing that changes between calls */
} gd_ir_value;

/* A working copy (compile/working_copy.h) that the program reads as a tensor outside, or makes. */
typedef struct gd_ir_copy {
    struct gd_working_copy *copy; /* a reference */
    int32_t effect;               /* of the pass: the assignment it is updated with */
    bool is_read, is_updated;
} gd_ir_copy;

/* How a plan is made. */
typedef struct gd_plan_options {
    size_t memory_limit; /* of the plan's block; SIZE_MAX: none */
    uint32_t passes_off; /* bit i: pass i (compile/passes.c) does not run */
    bool frozen;         /* tensors outside that it does not assign to stay as they are */
} gd_plan_options;

typedef struct gd_ir {
    gd_context *context;
    gd_plan_options options;
    gd_arena memory; /* operands and attributes */
    gd_ir_value *values;
    size_t count, capacity;
    int32_t *outputs; /* values that are results */
    size_t output_count;
    int32_t memory_count; /* storages outside the plan that values lie in */
    uint64_t random_words;
    size_t unlimited_bytes; /* that the block would have without a limit, where there is one */
    gd_ir_copy *copies;     /* pass working_copies */
    size_t copy_count, copy_capacity;
} gd_ir;

/* Recorded ops, in order, that compute outputs from inputs (placeholders, or results of other ops)
 * and tensors that exist. */
typedef struct gd_ir_source {
    gd_tensor *const *nodes;
    const uint8_t *phases; /* [count]; NULL: all are forward */
    size_t count;
    gd_tensor *const *inputs;
    int input_count;
    gd_tensor *const *outputs;
    size_t output_count;
    uint64_t random_words; /* drawn by them */
    gd_plan_options options;
} gd_ir_source;
gd_status gd_ir_make(gd_ir *ir, gd_context *context, const gd_ir_source *source);
void gd_ir_free(gd_ir *ir);

/* An op value at the end of the list; its operands are copied. -1: out of memory. */
int32_t gd_ir_push(gd_ir *ir, const gd_op *op, int n, const int32_t *in, const void *attr,
                   const gd_layout *layout);

/* The contents of a tensor that exists outside, as of before all assignments, at the end of the list,
 * in memory whose number is `memory`. -1: out of memory. */
int32_t gd_ir_push_external(gd_ir *ir, gd_tensor *t, int32_t memory);
/* What lies in the memory of value `of` as `layout` says, at the end of the list. -1: out of memory. */
int32_t gd_ir_push_view(gd_ir *ir, int32_t of, const gd_layout *layout);

/* The ops that read each value: those of value i are op[first[i]] … op[first[i + 1] - 1],
 * ascending. */
typedef struct gd_ir_users {
    int32_t *first, *op;
} gd_ir_users;
gd_status gd_ir_users_make(gd_ir_users *users, const gd_ir *ir, gd_arena *scratch);
/* The one that reads value i, if it is one and reads it once; or -1. */
static inline int32_t gd_ir_sole_user(const gd_ir_users *users, int32_t i)
{
    return users->first[i + 1] - users->first[i] == 1 ? users->op[users->first[i]] : -1;
}

/* last_use[i], of a root: the last op that reads its memory, itself or through views; i: none. */
void gd_ir_find_last_uses(const gd_ir *ir, int32_t *last_use);

/* overwritten_at[i], for an external: the assignment that ends the contents it stands for; reads of
 * it may not move past that. INT32_MAX: none does, or the value is no external. NULL: out of
 * memory. */
int32_t *gd_ir_find_assignments(const gd_ir *ir, gd_arena *scratch);
/* Whether op v may move down to place `to`. */
bool gd_ir_may_sink(const gd_ir *ir, const int32_t *overwritten_at, const gd_ir_value *v,
                    int32_t to);

/* Reads of value i, and results that are it, are of replaced_by[i] from now on; replaced_by[i] is i
 * where nothing replaces it. gd_ir_rename does it for one value's operands. */
void gd_ir_replace(gd_ir *ir, const int32_t *replaced_by);
void gd_ir_rename(gd_ir_value *v, const int32_t *replaced_by);

/* Leave out what is dead. */
gd_status gd_ir_remove_dead(gd_ir *ir);
/* Renumber: order[0 … n-1] are the values to keep, in their new order; all others are dead. */
gd_status gd_ir_reorder(gd_ir *ir, const int32_t *order, size_t n);

static inline bool gd_ir_is_view(const gd_ir_value *v)
{
    return v->kind == GD_IR_OP && (v->op->flags & GD_OP_VIEW);
}
/* An extra result: it follows its group or op, and has memory of its own. */
static inline bool gd_ir_is_extra(const gd_ir_value *v)
{
    return v->kind == GD_IR_OP && v->op->id == GD_OP_extra_result;
}
static inline int32_t gd_ir_extra_count(const gd_ir_value *v)
{
    return gd_op_extra_count(v->op, v->attr);
}
/* The number of the storage outside the plan that a value lies in, or -1. */
static inline int32_t gd_ir_memory(const gd_ir *ir, int32_t value)
{
    return ir->values[ir->values[value].root].memory;
}
static inline bool gd_ir_is_effect(const gd_ir_value *v)
{
    return v->kind == GD_IR_OP && (v->op->flags & GD_OP_EFFECT);
}
/* Whether a kernel runs for it. */
static inline bool gd_ir_is_kernel(const gd_ir_value *v)
{
    return v->kind == GD_IR_OP && !gd_ir_is_view(v) && !gd_ir_is_extra(v) &&
           gd_layout_count(&v->layout) > 0;
}
/* Whether a value has memory of its own in the plan's block. */
static inline bool gd_ir_needs_memory(const gd_ir_value *v)
{
    return v->kind == GD_IR_OP && !gd_ir_is_view(v) && !gd_ir_is_effect(v) && !v->external;
}
/* Whether it has that memory up to its last use only. */
static inline bool gd_ir_is_temporary(const gd_ir_value *v)
{
    return gd_ir_needs_memory(v) && !v->is_constant && !v->is_output;
}

/* The layouts of op v's operands. */
static inline void gd_ir_layouts(const gd_ir *ir, const gd_ir_value *v,
                                 const gd_layout *in[GD_OP_MAX_INPUTS])
{
    for (int k = 0; k < v->n; k++)
        in[k] = &ir->values[v->in[k]].layout;
}

/* Whether op's result `v`, itself or an extra one, may be made in the memory of operand k, of v's shape:
 * each of its elements depends on the operand's element of that place alone. In a group with
 * reductions, all of a row's elements are read first; but a number for each row has another order
 * than an operand of that shape may have. */
static inline bool gd_ir_may_overwrite(const gd_ir_value *op, const gd_ir_value *v, int k)
{
    if (op->op->id != GD_OP_fused)
        return op->op->flags & GD_OP_ELEMENTWISE || op->op->extra > 0 ||
               (op->op->flags & GD_OP_IN_PLACE && k == 0);
    const gd_fused_attr *group = op->attr;
    bool may = group->row_axes == 0 || v->layout.rank == group->shape.rank;
    for (int axis = 0; may && group->row_axes > 0 && axis < v->layout.rank; axis++)
        may = v->layout.shape[axis] == group->shape.dim[axis];
    return may;
}

/* compile/verify.c. The rules of a program, whatever passes did: order, layouts, views, extra results,
 * constants, results, and what is read of memory that the program writes to. GD_ERR_STATE, naming
 * the pass after which they are broken. */
gd_status gd_ir_verify(const gd_ir *ir, const char *after);

#endif
