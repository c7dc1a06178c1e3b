/* compile/ir.h: the program between a trace and a plan: a list of values in the order the body made
 * them. A value's number is its place in the list. Passes rewrite the list; order is changed by
 * the passes sink, fuse, schedule and multi_tensor alone.
 *
 * A value is one result of one op. A fused group with several results is the op itself, whose value
 * is the last instruction's, directly followed by a `part` for each further result. */
#ifndef GD_COMPILE_IR_H
#define GD_COMPILE_IR_H

#include "base/arena.h"
#include "graph/node.h"
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
    int32_t input;       /* INPUT: which */
    gd_tensor *external; /* EXTERNAL: retained by the IR. OP: where the value is to be made, or NULL
                            (pass forward) */
    int32_t version;     /* EXTERNAL: how many assignments to its storage came before */
    bool requires_grad;  /* EXTERNAL: when it was recorded */
    int32_t origin;      /* pass rematerialise: the value whose contents it has */
    bool is_recomputed;  /* by that pass */
    bool is_joined;      /* one kernel with the op before (pass multi_tensor) */
    uint32_t region; /* equal ops of different regions are not merged (gradient checkpointing) */
    int32_t users;   /* ops that read it; kept by gd_ir_count_users */
    bool is_output;
    bool is_constant; /* depends on nothing that changes between calls */
} gd_ir_value;

typedef struct gd_ir {
    gd_context *context;
    gd_arena memory; /* operands and attributes */
    gd_ir_value *values;
    size_t count, capacity;
    int32_t *outputs; /* values that are results */
    size_t output_count;
    uint64_t random_words;
    size_t memory_limit;    /* of the plan's block; 0: none */
    size_t unlimited_bytes; /* that the block would have without a limit, where there is one */
} gd_ir;

/* Recorded ops, in order, that compute outputs from inputs (placeholders, or results of other ops)
 * and tensors that exist. */
typedef struct gd_ir_source {
    gd_tensor *const *nodes;
    size_t count;
    gd_tensor *const *inputs;
    int input_count;
    gd_tensor *const *outputs;
    size_t output_count;
    uint64_t random_words; /* drawn by them */
    size_t memory_limit;   /* of the plan's block; 0: none */
} gd_ir_source;
gd_status gd_ir_make(gd_ir *ir, gd_context *context, const gd_ir_source *source);
void gd_ir_free(gd_ir *ir);

/* An op value at the end of the list; its operands are copied. -1: out of memory. */
int32_t gd_ir_push(gd_ir *ir, const gd_op *op, int n, const int32_t *in, const void *attr,
                   const gd_layout *layout);

void gd_ir_count_users(gd_ir *ir);

/* The ops that read each value: those of value i are op[first[i]] … op[first[i + 1] - 1],
 * ascending. One block of memory, freed with gd_ir_users_free. */
typedef struct gd_ir_users {
    int32_t *first, *op;
} gd_ir_users;
gd_status gd_ir_users_make(gd_ir_users *users, const gd_ir *ir);
void gd_ir_users_free(gd_ir_users *users);

/* until[i], for an external: the assignment that ends the contents it stands for; reads of it may
 * not move past that. INT32_MAX: none does, or the value is no external. */
void gd_ir_find_assignments(gd_ir *ir, int32_t *until);
/* Whether op v may move down to place `to`. */
bool gd_ir_may_sink(const gd_ir *ir, const int32_t *until, const gd_ir_value *v, int32_t to);

/* Renumber: order[0 … n-1] are the values to keep, in their new order; all others are dead. */
gd_status gd_ir_reorder(gd_ir *ir, const int32_t *order, size_t n);

static inline bool gd_ir_is_view(const gd_ir_value *v)
{
    return v->kind == GD_IR_OP && (v->op->flags & GD_OP_VIEW);
}
/* A further result of a fused group: it follows its group, and has memory of its own. */
static inline bool gd_ir_is_part(const gd_ir_value *v)
{
    return v->kind == GD_IR_OP && v->op->id == GD_OP_part;
}
static inline int32_t gd_ir_parts_of(const gd_ir_value *v)
{
    return v->op->id == GD_OP_fused ? ((const gd_fused_attr *)v->attr)->n_more : 0;
}
/* The storage outside the plan that a value lies in, or NULL. */
static inline gd_storage *gd_ir_storage(const gd_ir *ir, int32_t value)
{
    const gd_ir_value *root = &ir->values[ir->values[value].root];
    return root->external ? root->external->storage : NULL;
}
static inline bool gd_ir_is_effect(const gd_ir_value *v)
{
    return v->kind == GD_IR_OP && (v->op->flags & GD_OP_EFFECT);
}

/* The layouts of op v's operands. */
static inline void gd_ir_layouts(const gd_ir *ir, const gd_ir_value *v,
                                 const gd_layout *in[GD_OP_MAX_INPUTS])
{
    for (int k = 0; k < v->n; k++)
        in[k] = &ir->values[v->in[k]].layout;
}

/* Whether op's result `v`, itself or a part, may be made in the memory of operand k, of v's shape:
 * each of its elements depends on the operand's element of that place alone. In a group with
 * reductions, all of a row's elements are read first; but a number for each row has another order
 * than an operand of that shape may have. */
static inline bool gd_ir_may_overwrite(const gd_ir_value *op, const gd_ir_value *v, int k)
{
    if (op->op->id != GD_OP_fused)
        return op->op->flags & GD_OP_ELEMENTWISE || (op->op->flags & GD_OP_IN_PLACE && k == 0);
    const gd_fused_attr *group = op->attr;
    bool may = group->row_axes == 0 || v->layout.rank == group->shape.rank;
    for (int axis = 0; may && group->row_axes > 0 && axis < v->layout.rank; axis++)
        may = v->layout.shape[axis] == group->shape.dim[axis];
    return may;
}

/* compile/verify.c. The rules of a program, whatever passes did: order, layouts, views, parts,
 * constants, results, and what is read of memory that the program writes to. GD_ERR_STATE, naming
 * the pass after which they are broken. */
gd_status gd_ir_verify(const gd_ir *ir, const char *after);

#endif
